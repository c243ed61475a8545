//! Requests flushes of default replicas on other servers, whose edits secondary replicas here wait
//! for (`RegionReplicaFlushHandler`).
//!
//! A secondary replica shows the edits that are sent to it when it has seen a whole flush of its
//! default replica ([`Region::resume_replay`]). Without a request that would be the next flush,
//! which may be an hour away. The server of a default replica logs a marker even if it has nothing
//! to flush, and sends it. A request that fails is repeated, and so is one without any effect for
//! [`REQUEST_PAUSE`].

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
/// The time between two requests for the same region.
const REQUEST_PAUSE: Duration = Duration::from_secs(30);
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
    let mut requested = HashMap::new();
    loop {
        sleep(PERIOD).await;
        let Some(waiting) = server.upgrade().map(|server| waiting(&server, &replication)) else { return };
        let due = due(waiting, &mut requested, clock::monotonic());
        if let Err(error) = flush(&due, &config).await {
            tracing::debug!(%error, "default replicas could not be flushed for secondary replicas");
        }
    }
}

/// Returns the default replicas on other servers for whose edits secondary replicas here wait.
fn waiting(server: &RegionServer, replication: &ReplicaReplication) -> Vec<RegionInfo> {
    let regions = server.regions();
    let is_replicated = |region: &Region| {
        let is_enabled = if region.info().is_meta() { replication.catalog } else { replication.user_tables };
        is_enabled && region.table().is_memstore_replicated()
    };
    let waits = |region: &&Arc<Region>| {
        region.is_secondary() && is_replicated(region) && region.is_replay_suspended()
    };
    let all = regions.all();
    let primaries = all.iter().filter(waits).map(|region| region.info().replica(0));
    primaries.filter(|primary| regions.find(primary.encoded_name()).is_none()).collect()
}

/// Returns the regions for which no flush was requested recently, and remembers them.
fn due(waiting: Vec<RegionInfo>, requested: &mut HashMap<String, Instant>, now: Instant) -> Vec<RegionInfo> {
    requested.retain(|name, at| {
        now.saturating_duration_since(*at) < REQUEST_PAUSE
            && waiting.iter().any(|region| region.encoded_name() == name)
    });
    let mut due = waiting;
    due.retain(|region| match requested.contains_key(region.encoded_name()) {
        true => false,
        false => requested.insert(region.encoded_name().to_owned(), now).is_none(),
    });
    due
}

async fn flush(regions: &[RegionInfo], config: &ClientConfig) -> Result<()> {
    if regions.is_empty() {
        return Ok(());
    }
    let connection = Connection::connect(config.clone()).await.map_err(io)?;
    let mut flushed = Ok(());
    for region in regions {
        // Each is tried, whatever became of those before it.
        let outcome = flush_region(&connection.admin(), region).await;
        flushed = flushed.and(outcome);
    }
    flushed
}

async fn flush_region(admin: &Admin, region: &RegionInfo) -> Result<()> {
    let found = admin.find_region(region.name()).await.map_err(io)?;
    let Some(server) = found.and_then(|state| state.server) else { return Ok(()) };
    let request = pb::FlushRegionRequest {
        region: convert::region::specifier(region),
        write_flush_wal_marker: Some(true),
        ..Default::default()
    };
    let flushed = admin.call_server(&server, "FlushRegion", &request).await;
    flushed.map(|_: pb::FlushRegionResponse| ()).map_err(io)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_flush_is_requested_again_after_a_pause() {
        let region = |id| RegionInfo::new("t".parse().expect("legal"), Bytes::new(), Bytes::new(), id);
        let (mut requested, now) = (HashMap::new(), clock::monotonic());
        let mut due = |ids: &[i64], at: Instant| {
            let due = due(ids.iter().map(|id| region(*id)).collect(), &mut requested, at);
            due.iter().map(RegionInfo::region_id).collect::<Vec<_>>()
        };
        assert_eq!(due(&[1], now), [1]);
        assert_eq!(due(&[1, 2], now), [2]);
        assert_eq!(due(&[1, 2], now + REQUEST_PAUSE), [1, 2]);
        // A region that waited no more, and then again.
        assert_eq!(due(&[2], now + REQUEST_PAUSE), [0; 0]);
        assert_eq!(due(&[1, 2], now + REQUEST_PAUSE), [1]);
    }
}
