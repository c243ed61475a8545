//! The task of each secondary replica elsewhere: one call in flight, in order.
//!
//! A call that fails is repeated after a pause that grows, at most
//! `hbase.region.replica.replication.client.retries.number` times. Before each repetition the
//! secondary replica is looked up again: another opening of it needs a flush instead. If all fail,
//! or if the oldest marker is older than [`MARKER_AGE_MAX`](super::queue::MARKER_AGE_MAX), its
//! place is forgotten, and the entries with it, until a later lookup.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_client::{AdminCaller, Connection, Error, RegionLocation};
use evenkeel_common::{HBaseError, RegionInfo, ServerName, clock};
use evenkeel_protocol::pb;
use tokio::time::{sleep, timeout};

use super::entries::ReplayCall;
use super::queue::{Batch, Next};
use super::{SentRegion, Shared};
use crate::session::Session;

/// The multiples of the first pause (`HConstants.RETRY_BACKOFF`).
const BACKOFF: [u32; 8] = [1, 2, 3, 5, 10, 20, 40, 100];
/// How long a lookup may take.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The other servers.
pub(super) trait Destinations: Send + Sync {
    /// Returns the open secondary replicas of a region, wherever they are.
    fn locate<'a>(&'a self, region: &'a RegionInfo) -> BoxFuture<'a, Result<Vec<RegionLocation>, Error>>;

    /// Makes one call.
    fn replay<'a>(&'a self, server: &'a ServerName, call: &'a ReplayCall)
    -> BoxFuture<'a, Result<(), Error>>;
}

/// The servers of the cluster: secondary replicas are found in hbase:meta, and those of hbase:meta
/// in ZooKeeper.
pub(super) struct ClusterDestinations {
    session: Arc<Session>,
    connection: tokio::sync::Mutex<Option<Connection>>,
    caller: AdminCaller,
    config: evenkeel_client::ClientConfig,
}

impl ClusterDestinations {
    pub(super) fn new(session: &Arc<Session>, config: evenkeel_client::ClientConfig) -> Self {
        // Tags are a part of cells: `_ttl`, for example.
        let of_calls = evenkeel_client::ClientConfig { tags: true, ..config.clone() };
        let caller = AdminCaller::new(of_calls);
        Self { session: Arc::clone(session), connection: tokio::sync::Mutex::default(), caller, config }
    }

    async fn connection(&self) -> Result<Connection, Error> {
        let mut connection = self.connection.lock().await;
        if let Some(open) = &*connection {
            return Ok(open.clone());
        }
        let opened = Connection::connect(self.config.clone()).await?;
        Ok(connection.insert(opened).clone())
    }

    fn replicas_of_meta(&self) -> Vec<RegionLocation> {
        let view = self.session.view();
        let location = |(region, server, seq_num): &(RegionInfo, Option<ServerName>, i64)| {
            let server = server.clone().filter(|_| !region.is_primary())?;
            Some(RegionLocation { region: region.clone(), server, seq_num: *seq_num })
        };
        view.meta.iter().filter_map(location).collect()
    }
}

impl Destinations for ClusterDestinations {
    fn locate<'a>(&'a self, region: &'a RegionInfo) -> BoxFuture<'a, Result<Vec<RegionLocation>, Error>> {
        Box::pin(async move {
            if region.is_meta() {
                return Ok(self.replicas_of_meta());
            }
            let look_up = async { self.connection().await?.admin().open_replicas(region).await };
            let late = |_| Err(Error::Timeout(format!("no location after {LOOKUP_TIMEOUT:?}")));
            timeout(LOOKUP_TIMEOUT, look_up).await.unwrap_or_else(late)
        })
    }

    fn replay<'a>(
        &'a self,
        server: &'a ServerName,
        call: &'a ReplayCall,
    ) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let address = server.host_port();
            let (request, limit) = (&call.request, self.config.rpc_timeout);
            let replayed = self.caller.call_with_cells::<pb::ReplicateWalEntryResponse>(
                &address,
                "Replay",
                request,
                &call.cells,
                limit,
            );
            replayed.await.map(drop)
        })
    }
}

/// Sends the entries of a secondary replica until the region is gone.
pub(super) async fn run(shared: Arc<Shared>, region: Arc<SentRegion>, id: i32) {
    // The log entry that wakes this task.
    let mut awaited = None;
    while let Some(work) = region.work_of(id) {
        match region.next(id) {
            Next::Batch(batch) => {
                deliver(&shared, &region, *batch).await;
                continue;
            }
            Next::Unlogged(entry) => {
                if awaited.replace(entry) != Some(entry) {
                    region.notify_when_logged(entry, &work);
                }
            }
            Next::Nothing => {}
        }
        work.notified().await;
    }
}

/// Sends a batch, or fails it.
async fn deliver(shared: &Shared, region: &SentRegion, mut batch: Batch) {
    let begun = batch.oldest_marker().unwrap_or_else(clock::monotonic);
    let mut failures = 0;
    while !batch.is_empty() {
        let call = batch.call();
        let Err(error) = shared.destinations.replay(&batch.to.server, &call).await else { return };
        let (name, server) = (batch.to.region.name_text(), &batch.to.server);
        tracing::debug!(region = %name, server = %server, failures, %error, "edits could not be sent");
        failures += 1;
        let is_late = clock::since(begun) > shared.repeat_max;
        if failures > shared.retries || is_late || is_final(&error) {
            tracing::warn!(region = %name, server = %server, %error, "edits for a secondary replica are dropped until it is found again");
            return region.fail(shared, &batch);
        }
        region.prepare_repetition(&mut batch);
        sleep(pause(shared.pause, failures)).await;
        region.look_up(shared).await;
        if !region.is_current(&batch) {
            return;
        }
    }
}

fn is_final(error: &Error) -> bool {
    // The secondary replica may be about to open again, where the lookup finds it.
    let is_elsewhere = matches!(error.kind(), Some(evenkeel_common::ErrorKind::NotServingRegion));
    error.is_final() && !is_elsewhere
}

fn pause(first: Duration, failures: u32) -> Duration {
    let at = usize::try_from(failures.saturating_sub(1)).unwrap_or(usize::MAX);
    first.saturating_mul(*BACKOFF.get(at).or(BACKOFF.last()).unwrap_or(&1))
}

/// An error of a setting of clients.
pub(super) fn io(error: &Error) -> HBaseError {
    HBaseError::io(error.to_string())
}
