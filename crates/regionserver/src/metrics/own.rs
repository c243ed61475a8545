//! sub=Evenkeel: what the pages show and HBase has no metric for.

use evenkeel_block_cache::CacheStats;
use evenkeel_metrics::Record;
use evenkeel_rpc::RpcStats;
use evenkeel_wal::Wal;

use crate::RegionServer;

/// Creates the record.
pub fn record(server: &RegionServer, rpc: &RpcStats, wals: &[&Wal]) -> Record {
    let mut record = Record::new("Evenkeel", "regionserver", "name=RegionServer,sub=Evenkeel");
    append_caches(&mut record, &server.cache_stats());
    let (mut queue_bytes_peak, mut failures) = (0, 0);
    for stats in wals.iter().map(|wal| wal.stats()) {
        queue_bytes_peak += stats.queue_bytes_peak as u64;
        failures += stats.failures;
    }
    let background = server.background();
    let held = background.write_throttle().count();
    record
        .gauge("logQueueSizeMax", "The most bytes that waited in the logs' buffers", queue_bytes_peak)
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
