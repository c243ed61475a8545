//! Log lines with the statistics of the caches and the allocator.
//!
//! HBase's caches log such a line every five minutes, and the line here has its names: `accesses`,
//! `hits` and `hitRatio` of all lookups, and sizes and counts of the contents; then the metrics
//! `blockCacheDataHitCount` and `blockCacheDataMissCount` for data blocks only; then those of
//! HBASE-29585, once a Get has looked up a row. Counts are since the start, sizes in bytes.
//!
//! The allocator line corresponds to HBase's metrics of garbage collectors (`GcTimeMillis`,
//! `GcCount`), if the process counts allocator calls ([`evenkeel_common::allocator`]).

use std::fmt::Write as _;

use evenkeel_block_cache::{BlockCategory, CacheStats};
use evenkeel_common::allocator;

/// Returns the line of the allocator; `None` if its calls are not counted.
pub fn allocator_line(total: allocator::AllocatorStats) -> Option<String> {
    let millis = total.ns / 1_000_000;
    (total.calls > 0).then(|| format!("allocatorTimeMillis={millis}, allocatorCallCount={}", total.calls))
}

/// Returns the line of the caches; `None` before the first lookup.
pub fn line(stats: &CacheStats) -> Option<String> {
    const DATA: usize = BlockCategory::Data as usize;
    let (hits, accesses) = (stats.hit_count(), stats.hit_count() + stats.miss_count());
    if accesses == 0 {
        return None;
    }
    let mut line = format!(
        "totalSize={}, usedSize={}, freeSize={}, blockCount={}, accesses={accesses}, hits={hits}, hitRatio={:.2}%, evicted={}, \
         failedBlockAdditions={}, blockCacheDataHitCount={}, blockCacheDataMissCount={}",
        stats.capacity_bytes,
        stats.bytes,
        stats.free_bytes(),
        stats.blocks,
        stats.hit_percent(),
        stats.evictions,
        stats.failed_insertions,
        stats.hits[DATA],
        stats.misses[DATA],
    );
    if stats.row_hits + stats.row_misses > 0 {
        let _ = write!(
            line,
            ", rowCacheHitCount={}, rowCacheMissCount={}, rowCacheEvictedRowCount={}, rowCacheCount={}, rowCacheSize={}",
            stats.row_hits, stats.row_misses, stats.row_evictions, stats.rows, stats.row_bytes
        );
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allocator_line_appears_only_when_counted() {
        assert_eq!(allocator_line(allocator::AllocatorStats::default()), None);
        let line = allocator_line(allocator::AllocatorStats { ns: 7_654_321_000, calls: 123 });
        assert_eq!(line.as_deref(), Some("allocatorTimeMillis=7654, allocatorCallCount=123"));
    }

    #[test]
    fn the_cache_line_reports_accesses_and_hits() {
        assert_eq!(line(&CacheStats::default()), None);
        let stats = CacheStats {
            hits: [70, 5, 0, 0],
            misses: [20, 5, 0, 0],
            evictions: 3,
            blocks: 7,
            bytes: 700,
            capacity_bytes: 1000,
            ..CacheStats::default()
        };
        let text = "totalSize=1000, usedSize=700, freeSize=300, blockCount=7, accesses=100, hits=75, hitRatio=75.00%, evicted=3, \
                    failedBlockAdditions=0, blockCacheDataHitCount=70, blockCacheDataMissCount=20";
        assert_eq!(line(&stats).as_deref(), Some(text));
        let with_rows = CacheStats { row_misses: 4, row_evictions: 1, rows: 3, row_bytes: 300, ..stats };
        let rows = ", rowCacheHitCount=0, rowCacheMissCount=4, rowCacheEvictedRowCount=1, rowCacheCount=3, rowCacheSize=300";
        assert_eq!(line(&with_rows), Some(format!("{text}{rows}")));
    }
}
