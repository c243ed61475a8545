//! [`LruBlockCache`], blocks on the heap within a byte budget.
//!
//! The policy is quick_cache's (a clock over a hot and a cold queue with ghost entries: near LRU in cost, and a scan
//! passes through without driving the hot blocks out). It keeps HBase's name because the setting does.
//!
//! `in_memory` is taken and not yet honoured: quick_cache has one priority.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use evenkeel_common::Result;
use quick_cache::sync::{Cache, GuardResult};
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};

use crate::stats::Counters;
use crate::{Block, BlockCache, BlockKey, CacheHint, CacheStats, FileId, LoadBlock};

/// Larger blocks are not kept (`hbase.lru.max.block.size`).
pub const LRU_BLOCK_BYTES_MAX: usize = 16 << 20;

/// Sizes quick_cache's tables; a guess does no harm (`hbase.blockcache.minblocksize`).
const AVERAGE_BLOCK_BYTES: usize = 64 << 10;

/// The smallest weight a shard is given, so that a small cache is not cut into shards that hold no block.
const SHARD_BYTES_MIN: u64 = 2 * LRU_BLOCK_BYTES_MAX as u64;

type Blocks = Cache<BlockKey, Block, HeapBytes, BuildHasherDefault<MixHasher>, CountEvictions>;

/// A cache of blocks on the heap. See the module for its policy.
pub struct LruBlockCache {
    blocks: Blocks,
    counters: Arc<Counters>,
    capacity_bytes: u64,
    block_bytes_max: usize,
}

impl LruBlockCache {
    /// A cache of at most `capacity_bytes`, bookkeeping included.
    pub fn new(capacity_bytes: usize) -> Self {
        let counters = Arc::new(Counters::default());
        let capacity_bytes = capacity_bytes as u64;
        let shards = (capacity_bytes / SHARD_BYTES_MIN).clamp(1, 64) as usize;
        let options = OptionsBuilder::new()
            .estimated_items_capacity((capacity_bytes as usize / AVERAGE_BLOCK_BYTES).max(16))
            .weight_capacity(capacity_bytes)
            .shards(shards)
            .build()
            .expect("all required options are set");
        let lifecycle = CountEvictions(Arc::clone(&counters));
        let blocks = Cache::with_options(options, HeapBytes, BuildHasherDefault::default(), lifecycle);
        Self { blocks, counters, capacity_bytes, block_bytes_max: LRU_BLOCK_BYTES_MAX }
    }

    fn wants(&self, block: &Block) -> bool {
        block.heap_bytes() <= self.block_bytes_max
    }
}

impl BlockCache for LruBlockCache {
    fn get(&self, key: &BlockKey) -> Option<Block> {
        let found = self.blocks.get(key);
        match &found {
            Some(block) => self.counters.hit(block.kind().category()),
            None => self.counters.miss(),
        }
        found
    }

    fn insert(&self, key: BlockKey, block: Block, _in_memory: bool) {
        if self.wants(&block) {
            self.counters.insertion();
            self.blocks.insert(key, block);
        }
    }

    fn evict_file(&self, file: FileId) -> usize {
        let before = self.blocks.len();
        self.blocks.retain(|key, _| key.file != file);
        before.saturating_sub(self.blocks.len())
    }

    fn stats(&self) -> CacheStats {
        CacheStats {
            blocks: self.blocks.len() as u64,
            bytes: self.blocks.weight(),
            capacity_bytes: self.capacity_bytes,
            ..self.counters.snapshot()
        }
    }

    /// One caller loads; others that miss the same block meanwhile wait for it. When the load fails, the next of them
    /// tries.
    fn get_or_load(&self, key: &BlockKey, hint: CacheHint, load: LoadBlock<'_>) -> Result<Block> {
        if !hint.keep {
            return self.get(key).map_or_else(load, Ok);
        }
        match self.blocks.get_value_or_guard(key, None) {
            GuardResult::Value(block) => {
                self.counters.hit(block.kind().category());
                Ok(block)
            }
            GuardResult::Guard(guard) => {
                self.counters.miss();
                let block = load()?;
                if self.wants(&block) {
                    self.counters.insertion();
                    // Refused only when the key was evicted meanwhile; the block is served all the same.
                    let _ = guard.insert(block.clone());
                }
                Ok(block)
            }
            GuardResult::Timeout => load(),
        }
    }
}

impl std::fmt::Debug for LruBlockCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LruBlockCache").field("stats", &self.stats()).finish()
    }
}

#[derive(Clone)]
struct HeapBytes;

impl Weighter<BlockKey, Block> for HeapBytes {
    fn weight(&self, _key: &BlockKey, block: &Block) -> u64 {
        block.heap_bytes() as u64
    }
}

#[derive(Clone)]
struct CountEvictions(Arc<Counters>);

impl Lifecycle<BlockKey, Block> for CountEvictions {
    type RequestState = ();

    fn on_evict(&self, (): &mut (), _key: BlockKey, _block: Block) {
        self.0.eviction();
    }
}

/// A hasher for keys that are already spread (UUIDs and offsets): each word is folded in and mixed once.
#[derive(Default)]
struct MixHasher(u64);

impl MixHasher {
    fn mix(&mut self, word: u64) {
        let mut h = self.0.rotate_left(29) ^ word;
        h = (h ^ (h >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        h = (h ^ (h >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        self.0 = h ^ (h >> 33);
    }
}

impl Hasher for MixHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }

    fn write_u128(&mut self, word: u128) {
        self.mix(word as u64);
        self.mix((word >> 64) as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use evenkeel_common::HBaseError;

    use super::*;
    use crate::{BlockParts, BlockType};

    fn block(offset: u64, bytes: usize) -> Block {
        Block::new(BlockParts {
            kind: BlockType::Data,
            offset,
            on_disk_bytes: 0,
            prev_offset: -1,
            bytes: vec![offset as u8; bytes].into(),
            body: 0..bytes as u32,
            seek_points: Box::default(),
            seek_keys: Box::default(),
        })
    }

    fn key(file: &str, offset: u64) -> BlockKey {
        BlockKey { file: FileId::of_name(file), offset }
    }

    #[test]
    fn a_kept_block_is_found_and_counted() {
        let cache = LruBlockCache::new(1 << 20);
        assert!(cache.get(&key("f", 0)).is_none());
        cache.insert(key("f", 0), block(0, 100), false);
        assert_eq!(cache.get(&key("f", 0)).unwrap().data(), [0; 100]);
        assert!(cache.get(&key("f", 1)).is_none());
        assert!(cache.get(&key("g", 0)).is_none());
        let stats = cache.stats();
        assert_eq!((stats.data_hits, stats.misses, stats.insertions, stats.blocks), (1, 3, 1, 1));
    }

    #[test]
    fn the_budget_holds_and_evictions_are_counted() {
        let cache = LruBlockCache::new(1 << 20);
        for i in 0..100 {
            cache.insert(key("f", i), block(i, 64 << 10), false);
            assert!(cache.stats().bytes <= 1 << 20);
        }
        let stats = cache.stats();
        assert!(stats.blocks >= 12, "{stats:?}");
        assert_eq!(stats.evictions + stats.blocks, 100);
    }

    #[test]
    fn too_large_a_block_is_served_and_not_kept() {
        let cache = LruBlockCache::new(1 << 30);
        let big =
            cache.get_or_load(&key("f", 0), CacheHint::KEEP, &mut || Ok(block(0, LRU_BLOCK_BYTES_MAX + 1)));
        assert_eq!(big.unwrap().data().len(), LRU_BLOCK_BYTES_MAX + 1);
        assert_eq!(cache.stats().blocks, 0);
    }

    #[test]
    fn looking_only_does_not_keep() {
        let cache = LruBlockCache::new(1 << 20);
        let mut loads = 0;
        for _ in 0..2 {
            let mut load = || {
                loads += 1;
                Ok(block(0, 10))
            };
            cache.get_or_load(&key("f", 0), CacheHint::LOOK_ONLY, &mut load).unwrap();
        }
        assert_eq!(loads, 2);
        cache.get_or_load(&key("f", 0), CacheHint::KEEP, &mut || Ok(block(0, 10))).unwrap();
        cache.get_or_load(&key("f", 0), CacheHint::LOOK_ONLY, &mut || panic!("is cached")).unwrap();
    }

    #[test]
    fn a_failed_load_is_not_remembered() {
        let cache = LruBlockCache::new(1 << 20);
        let failed = cache.get_or_load(&key("f", 0), CacheHint::KEEP, &mut || Err(HBaseError::io("no disk")));
        assert_eq!(failed.unwrap_err().message(), "no disk");
        assert!(cache.get_or_load(&key("f", 0), CacheHint::KEEP, &mut || Ok(block(0, 1))).is_ok());
    }

    #[test]
    fn evicting_a_file_leaves_the_others() {
        let cache = LruBlockCache::new(1 << 20);
        for i in 0..5 {
            cache.insert(key("f", i), block(i, 10), false);
            cache.insert(key("g", i), block(i, 10), false);
        }
        assert_eq!(cache.evict_file(FileId::of_name("f")), 5);
        assert!(cache.get(&key("f", 1)).is_none());
        assert!(cache.get(&key("g", 1)).is_some());
    }

    #[test]
    fn one_of_many_loads() {
        let cache = LruBlockCache::new(1 << 20);
        let (loads, start) = (AtomicUsize::new(0), Barrier::new(8));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    let mut load = || {
                        loads.fetch_add(1, Ordering::SeqCst);
                        std::thread::sleep(std::time::Duration::from_millis(50));
                        Ok(block(7, 10))
                    };
                    let block = cache.get_or_load(&key("f", 0), CacheHint::KEEP, &mut load).unwrap();
                    assert_eq!(block.data(), [7; 10]);
                });
            }
        });
        assert_eq!(loads.load(Ordering::SeqCst), 1);
    }
}
