//! Requests flushes of default replicas on other servers, whose edits secondary replicas here wait
//! for (`RegionReplicaFlushHandler`).
//!
//! A secondary replica shows the edits that are sent to it when it has seen a whole flush of its
//! default replica ([`Region::resume_replay`]). Without a request that would be the next flush,
//! which may be an hour away. The server of a default replica logs a marker even if it has nothing
//! to flush, and sends it or a list of its files, if it replicates edits to other servers. A
//! request that fails or has no effect is repeated after [`REQUEST_PAUSE`]. If it has an effect and
//! the same secondary replica still waits, the pause doubles each time, up to
//! [`REQUEST_PAUSE_MAX`]: what the server sent may be lost, but if it sends nothing, further
//! flushes are of no use.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use evenkeel_client::{Admin, ClientConfig, Connection, Error};
use evenkeel_common::{Configuration, HBaseError, RegionInfo, Result, clock};
use evenkeel_protocol::pb;
use evenkeel_region::region::{Region, ReplicaReplication};
use evenkeel_regionserver::{RegionServer, convert};
use tokio::runtime::Handle;
use tokio::time::sleep;

/// How often the secondary replicas are looked at.
const PERIOD: Duration = Duration::from_secs(1);
/// The time between two requests for the same region, until one has an effect.
const REQUEST_PAUSE: Duration = Duration::from_secs(30);
/// The maximum of that time.
const REQUEST_PAUSE_MAX: Duration = Duration::from_secs(16 * 60);
/// Tries of a call after the first. The next round tries again.
const RETRIES: u32 = 2;

/// Starts the task, if MemStores are replicated.
///
/// # Errors
/// `IOException` about a setting of clients.
pub(crate) fn start(runtime: &Handle, server: &Arc<RegionServer>, conf: &Configuration) -> Result<()> {
    let replication = ReplicaReplication::from_configuration(conf);
    let replication = replication.map_err(|error| HBaseError::io(error.to_string()))?;
    if !replication.is_enabled() {
        return Ok(());
    }
    let config = ClientConfig::from_configuration(conf).map_err(io)?;
    let config = ClientConfig { retries: RETRIES, ..config };
    drop(runtime.spawn(run(Arc::downgrade(server), replication, config)));
    Ok(())
}

fn io(error: Error) -> HBaseError {
    HBaseError::io(error.to_string())
}

/// Requests flushes until the server is gone.
async fn run(server: Weak<RegionServer>, replication: ReplicaReplication, config: ClientConfig) {
    let mut requests = Requests::default();
    loop {
        sleep(PERIOD).await;
        let Some(waiting) = server.upgrade().map(|server| waiting(&server, &replication)) else { return };
        let due = requests.due(waiting, clock::monotonic());
        if let Err(error) = flush(&due, &config, &mut requests).await {
            tracing::debug!(%error, "default replicas could not be flushed for secondary replicas");
        }
    }
}

/// Returns the secondary replicas that wait for edits of default replicas on other servers.
fn waiting(server: &RegionServer, replication: &ReplicaReplication) -> Vec<Arc<Region>> {
    let regions = server.regions();
    let is_replicated = |region: &Region| {
        let is_enabled = if region.info().is_meta() { replication.catalog } else { replication.user_tables };
        is_enabled && region.table().is_memstore_replicated()
    };
    let waits = |region: &Arc<Region>| {
        region.is_secondary()
            && is_replicated(region)
            && region.is_replay_suspended()
            && regions.find(region.info().replica(0).encoded_name()).is_none()
    };
    regions.all().into_iter().filter(waits).collect()
}

/// The last request of an open secondary replica.
struct Request<T> {
    /// A secondary replica that was opened again is another one.
    replica: Weak<T>,
    at: Instant,
    /// The time before the next request.
    pause: Duration,
}

/// The requests for secondary replicas that wait, by an id of these.
struct Requests<T>(HashMap<String, Request<T>>);

impl<T> Default for Requests<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Identified> Requests<T> {
    /// Returns the waiting replicas for which a flush must be requested, and remembers them.
    fn due(&mut self, waiting: Vec<Arc<T>>, now: Instant) -> Vec<Arc<T>> {
        self.0.retain(|_, request| request.replica.strong_count() > 0);
        for (id, request) in &mut self.0 {
            // One that replays, and waits again later, needs another flush.
            if waiting.iter().all(|replica| replica.id() != id) {
                request.pause = REQUEST_PAUSE;
            }
        }
        let mut due = waiting;
        due.retain(|replica| {
            let before = self.0.get(replica.id());
            let before = before.filter(|request| request.replica.as_ptr() == Arc::as_ptr(replica));
            let pause = before.map_or(REQUEST_PAUSE, |request| request.pause);
            let is_due = before.is_none_or(|request| now.saturating_duration_since(request.at) >= pause);
            if is_due {
                let request = Request { replica: Arc::downgrade(replica), at: now, pause };
                self.0.insert(replica.id().to_owned(), request);
            }
            is_due
        });
        due
    }

    /// The request for this replica had an effect.
    fn answered(&mut self, replica: &T) {
        if let Some(request) = self.0.get_mut(replica.id()) {
            request.pause = (request.pause * 2).min(REQUEST_PAUSE_MAX);
        }
    }
}

/// Something with a unique name.
trait Identified {
    fn id(&self) -> &str;
}

impl Identified for Region {
    fn id(&self) -> &str {
        self.info().encoded_name()
    }
}

async fn flush(
    replicas: &[Arc<Region>],
    config: &ClientConfig,
    requests: &mut Requests<Region>,
) -> Result<()> {
    if replicas.is_empty() {
        return Ok(());
    }
    let connection = Connection::connect(config.clone()).await.map_err(io)?;
    let mut flushed = Ok(());
    for replica in replicas {
        // Each is tried, whatever became of those before it.
        let outcome = flush_region(&connection.admin(), &replica.info().replica(0)).await;
        if matches!(outcome, Ok(true)) {
            requests.answered(replica);
        }
        flushed = flushed.and(outcome.map(drop));
    }
    flushed
}

/// Returns true if the flush was made, or a marker in its place was logged.
async fn flush_region(admin: &Admin, region: &RegionInfo) -> Result<bool> {
    let found = admin.find_region(region.name()).await.map_err(io)?;
    let Some(server) = found.and_then(|state| state.server) else { return Ok(false) };
    let request = pb::FlushRegionRequest {
        region: convert::region::specifier(region),
        write_flush_wal_marker: Some(true),
        ..Default::default()
    };
    let response: pb::FlushRegionResponse =
        admin.call_server(&server, "FlushRegion", &request).await.map_err(io)?;
    Ok(has_effect(&response))
}

/// A server that does not tell whether it logged a marker knows none, and would not log one later.
fn has_effect(response: &pb::FlushRegionResponse) -> bool {
    response.flushed() || response.wrote_flush_wal_marker.unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Identified for &'static str {
        fn id(&self) -> &str {
            self
        }
    }

    #[test]
    fn a_flush_that_failed_is_requested_again_after_a_pause() {
        let (mut requests, now) = (Requests::default(), clock::monotonic());
        let (first, second) = (Arc::new("1"), Arc::new("2"));
        let mut due = |replicas: &[&Arc<&'static str>], at: Instant| {
            let due = requests.due(replicas.iter().map(|replica| Arc::clone(replica)).collect(), at);
            due.iter().map(|replica| **replica).collect::<Vec<_>>()
        };
        assert_eq!(due(&[&first], now), ["1"]);
        assert_eq!(due(&[&first, &second], now), ["2"]);
        assert_eq!(due(&[&first, &second], now + REQUEST_PAUSE), ["1", "2"]);
    }

    #[test]
    fn a_flush_that_had_an_effect_is_requested_again_more_and_more_rarely() {
        let (mut requests, mut now) = (Requests::default(), clock::monotonic());
        let replica = Arc::new("1");
        assert_eq!(requests.due(vec![Arc::clone(&replica)], now).len(), 1);
        for pauses in [2, 4, 8, 16, 32, 32] {
            requests.answered(&replica);
            let next = now + REQUEST_PAUSE * pauses;
            assert!(requests.due(vec![Arc::clone(&replica)], next - PERIOD).is_empty());
            assert_eq!(requests.due(vec![Arc::clone(&replica)], next).len(), 1);
            now = next;
        }
        // It replays, and waits again later.
        assert!(requests.due(Vec::new(), now).is_empty());
        assert!(requests.due(vec![Arc::clone(&replica)], now).is_empty(), "too soon");
        now += REQUEST_PAUSE;
        assert_eq!(requests.due(vec![Arc::clone(&replica)], now).len(), 1);
        requests.answered(&replica);
        let again = Arc::new("1");
        assert_eq!(requests.due(vec![again], now + REQUEST_PAUSE).len(), 1);
        drop(replica);
        assert!(requests.due(Vec::new(), now).is_empty() && requests.0.is_empty());
    }

    #[test]
    fn a_flush_has_an_effect_if_something_is_logged() {
        let response = |flushed, wrote_flush_wal_marker| pb::FlushRegionResponse {
            flushed: Some(flushed),
            wrote_flush_wal_marker,
            ..Default::default()
        };
        assert!(has_effect(&response(true, None)) && has_effect(&response(false, Some(true))));
        assert!(!has_effect(&response(false, Some(false))), "it closes, or flushes already");
        assert!(has_effect(&response(false, None)), "an old server");
    }
}
