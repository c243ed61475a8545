//! sub=Evenkeel: what the pages show and HBase has no metric for.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use evenkeel_block_cache::CacheStats;
use evenkeel_metrics::Record;
use evenkeel_rpc::RpcStats;
use evenkeel_wal::Wal;

use crate::RegionServer;

/// Counts of blocks in the lists by which Evenkeel servers tell each other what is hot in a region
/// that moves.
#[derive(Debug, Default)]
pub struct HotBlockCounts {
    /// Told to other servers, which accepted the list.
    pub told: AtomicU64,
    /// Told by other servers.
    pub received: AtomicU64,
    /// Received, read and cached.
    pub fetched: AtomicU64,
    /// Received and not fetched: cached already, not worth their space, not found, or too late.
    pub dropped: AtomicU64,
}

/// Creates the record.
pub fn record(server: &RegionServer, rpc: &RpcStats, wals: &[&Wal]) -> Record {
    let mut record = Record::new("Evenkeel", "regionserver", "name=RegionServer,sub=Evenkeel");
    append_caches(&mut record, &server.cache_stats());
    append_hot_blocks(&mut record, server.hot_block_counts());
    let (mut queue_bytes_peak, mut failures) = (0, 0);
    for stats in wals.iter().map(|wal| wal.stats()) {
        queue_bytes_peak += stats.queue_bytes_peak as u64;
        failures += stats.failures;
    }
    let background = server.background();
    let held = background.write_throttle().count();
    record
        .gauge(
            "logQueueSizeMax",
            "The sum of the most bytes that waited in each log's buffers",
            queue_bytes_peak,
        )
        .counter("logFailureCount", "Writes and syncs of logs that failed", failures)
        .counter("flushFailureCount", "Flushes that failed", background.flush_failures())
        .counter("heldReplyCount", "Replies to writers that were delayed", held)
        .counter("numOpenedConnections", "Connections opened since the start", rpc.connections_opened);
    record
}

fn append_caches(record: &mut Record, stats: &CacheStats) {
    record
        .gauge("rowCacheCount", "Cached rows", stats.rows)
        .gauge("rowCacheSize", "Bytes of cached rows", stats.row_bytes)
        .counter("rowCacheHitCount", "Gets that found their row in the row cache", stats.row_hits)
        .counter("rowCacheMissCount", "Gets that did not find their row in the row cache", stats.row_misses)
        .gauge(
            "blockCacheIndexSize",
            "Bytes of slots, hash index and policy of the caches",
            stats.index_bytes,
        )
        .counter(
            "blockCacheDamagedCount",
            "Blocks of a cache file that failed verification and were dropped",
            stats.damaged,
        );
}

fn append_hot_blocks(record: &mut Record, counts: &HotBlockCounts) {
    let of = |count: &AtomicU64| count.load(Relaxed);
    record
        .counter("hotBlockToldCount", "Blocks of moving regions told to other servers", of(&counts.told))
        .counter("hotBlockReceivedCount", "Blocks of arriving regions told by others", of(&counts.received))
        .counter("hotBlockFetchedCount", "Received blocks that were read and cached", of(&counts.fetched))
        .counter("hotBlockDroppedCount", "Received blocks that were not fetched", of(&counts.dropped));
}
