//! The block cache in sub=Server.
//!
//! HBase counts lookups by the type of block; here they are counted by four categories. Index
//! lookups are reported as `LeafIndex`, bloom filters as `BloomChunk`. Types that are never looked
//! up, because they are read when a file is opened, are reported as 0. HBase separates lookups that
//! cache their misses from others; here all are reported as caching. HBase also separates the
//! lookups of secondary replicas, which share the blocks of the default replica; here all are
//! reported as primary.

use evenkeel_block_cache::{BlockCategory, CacheStats};
use evenkeel_metrics::Record;

/// Appends the sums over all levels, and each level. `levels` are L1 and, if there is one, L2.
pub fn append(record: &mut Record, levels: &[CacheStats]) {
    let mut all = CacheStats::default();
    levels.iter().for_each(|level| all += *level);
    append_sizes(record, &all, levels);
    append_lookups(record, &all);
    append_types(record, &all);
    append_l1(record, levels.first().copied().unwrap_or_default());
    append_l2(record, levels.get(1).copied().unwrap_or_default());
}

/// Returns a fraction of lookups, from 0 to 1.
fn ratio(part: u64, stats: &CacheStats) -> f64 {
    match stats.hit_count() + stats.miss_count() {
        0 => 0.0,
        all => part as f64 / all as f64,
    }
}

fn append_sizes(record: &mut Record, all: &CacheStats, levels: &[CacheStats]) {
    // With two levels, L2 has the data blocks. With one, its few index blocks count, too.
    let data_blocks = levels.last().map_or(0, |level| level.blocks.saturating_sub(level.rows));
    record
        .gauge("blockCacheFreeSize", "Size of the block cache that is not occupied.", all.free_bytes())
        .gauge("blockCacheCount", "Number of block in the block cache.", all.blocks)
        .gauge("blockCacheDataBlockCount", "Number of DATA block in the block cache.", data_blocks)
        .gauge("blockCacheSize", "Size of the block cache.", all.bytes)
        .real("blockCacheCountHitPercent", "Percent of block cache requests that are hits", all.hit_percent())
        .real(
            "blockCacheExpressHitPercent",
            "The percent of the time that requests with the cache turned on hit the cache.",
            all.hit_percent(),
        );
}

fn append_lookups(record: &mut Record, all: &CacheStats) {
    const HITS: &str = "Count of the hit on the block cache.";
    const MISSES: &str = "Number of requests for a block that missed the block cache.";
    const EVICTIONS: &str = "Count of the number of blocks evicted from the block cache.(Not including blocks evicted because of HFile removal)";
    for name in ["blockCacheHitCount", "blockCacheHitCountPrimary", "blockCacheHitCachingCount"] {
        record.counter(name, HITS, all.hit_count());
    }
    for name in ["blockCacheMissCount", "blockCacheMissCountPrimary", "blockCacheMissCachingCount"] {
        record.counter(name, MISSES, all.miss_count());
    }
    for name in ["blockCacheEvictionCount", "blockCacheEvictionCountPrimary"] {
        record.counter(name, EVICTIONS, all.evictions);
    }
    record.counter(
        "blockCacheFailedInsertionCount",
        "Number of times that a block cache insertion failed. Usually due to size restrictions.",
        all.failed_insertions,
    );
}

/// The block types of HBase's metrics, and the category that each is counted under.
const TYPES: [(&str, &str, Option<BlockCategory>); 10] = [
    ("blockCacheDataMissCount", "blockCacheDataHitCount", Some(BlockCategory::Data)),
    ("blockCacheLeafIndexMissCount", "blockCacheLeafIndexHitCount", Some(BlockCategory::Index)),
    ("blockCacheBloomChunkMissCount", "blockCacheBloomChunkHitCount", Some(BlockCategory::Bloom)),
    ("blockCacheMetaMissCount", "blockCacheMetaHitCount", Some(BlockCategory::Meta)),
    ("blockCacheRootIndexMissCount", "blockCacheRootIndexHitCount", None),
    ("blockCacheIntermediateIndexMissCount", "blockCacheIntermediateIndexHitCount", None),
    ("blockCacheFileInfoMissCount", "blockCacheFileInfoHitCount", None),
    ("blockCacheGeneralBloomMetaMissCount", "blockCacheGeneralBloomMetaHitCount", None),
    ("blockCacheDeleteFamilyBloomMissCount", "blockCacheDeleteFamilyBloomHitCount", None),
    ("blockCacheTrailerMissCount", "blockCacheTrailerHitCount", None),
];

fn append_types(record: &mut Record, all: &CacheStats) {
    for (misses, hits, category) in TYPES {
        let of = |counts: &[u64]| category.and_then(|of| counts.get(of as usize)).copied().unwrap_or(0);
        record.counter(misses, "", of(&all.misses));
        record.counter(hits, "", of(&all.hits));
    }
}

fn append_l1(record: &mut Record, l1: CacheStats) {
    record
        .gauge("l1CacheSize", "Size of the L1 cache in bytes", l1.bytes)
        .gauge("l1CacheFreeSize", "Amount of free bytes in the L1 cache", l1.free_bytes())
        .gauge("l1CacheCount", "Count of blocks in the L1 cache", l1.blocks)
        .counter("l1CacheEvictionCount", "Count of blocks evicted from the L1 cache", l1.evictions)
        .gauge("l1CacheHitCount", "L1 cache hit count.", l1.hit_count())
        .gauge("l1CacheMissCount", "L1 cache miss count.", l1.miss_count())
        .real("l1CacheHitRatio", "L1 cache hit ratio.", ratio(l1.hit_count(), &l1))
        .real("l1CacheMissRatio", "L1 cache miss ratio.", ratio(l1.miss_count(), &l1));
}

fn append_l2(record: &mut Record, l2: CacheStats) {
    record
        .gauge("l2CacheSize", "Size of the L2 cache in bytes", l2.bytes)
        .gauge("l2CacheFreeSize", "Amount of free bytes in the L2 cache", l2.free_bytes())
        .gauge("l2CacheCount", "Count of blocks in the L2 cache", l2.blocks)
        .counter("l2CacheEvictionCount", "Count of blocks evicted from the L2 cache", l2.evictions)
        .gauge("l2CacheHitCount", "L2 cache hit count.", l2.hit_count())
        .gauge("l2CacheMissCount", "L2 cache miss count.", l2.miss_count())
        .real("l2CacheHitRatio", "L2 cache hit ratio.", ratio(l2.hit_count(), &l2))
        .real("l2CacheMissRatio", "L2 cache miss ratio.", ratio(l2.miss_count(), &l2));
}
