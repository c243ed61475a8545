//! [`LruBlockCache`], a cache of all blocks in memory with one budget.
//!
//! It has HBase's name because the deployment does. A [`crate::bucket::Policy`] defines the order
//! of eviction, which is HBase's LRU only if `hfile.block.cache.policy` selects it.

use std::fmt;
use std::io;

use evenkeel_common::TryResult;

use crate::bucket::{Admission, BucketCache, BucketCacheConfig, CachedFile};
use crate::{
    Block, BlockCache, BlockCategory, BlockKey, CacheHint, CacheStats, FileId, HotBlock, LoadBlock,
    PrefetchedBlock,
};

/// A cache of all blocks in memory.
pub struct LruBlockCache(BucketCache);

impl LruBlockCache {
    /// A cache of at most `capacity_bytes` with default settings.
    ///
    /// # Panics
    /// If the process has no address space left for it.
    pub fn new(capacity_bytes: usize) -> Self {
        Self::open(&BucketCacheConfig::in_memory(capacity_bytes as u64))
            .expect("address space for the block cache")
    }

    /// Opens a cache in memory.
    ///
    /// # Errors
    /// `OutOfMemory` without address space.
    pub fn open(config: &BucketCacheConfig) -> io::Result<Self> {
        BucketCache::open(config).map(Self)
    }

    /// The engine.
    pub fn engine(&self) -> &BucketCache {
        &self.0
    }
}

impl BlockCache for LruBlockCache {
    fn get(&self, key: &BlockKey) -> Option<Block> {
        self.0.get(key)
    }

    fn prefetch(&self, key: &BlockKey, category: BlockCategory) -> Option<PrefetchedBlock> {
        self.0.prefetch(key, category)
    }

    fn count_hit(&self, category: BlockCategory) {
        self.0.count_hit(category);
    }

    fn contains(&self, key: &BlockKey) -> bool {
        self.0.contains(key)
    }

    fn has_space(&self, category: BlockCategory, bytes: usize) -> bool {
        self.0.has_space(category, bytes)
    }

    fn insert(&self, key: BlockKey, block: Block, admission: Admission) {
        self.0.insert(key, block, admission);
    }

    fn evict_file(&self, file: FileId) -> usize {
        self.0.evict_file(file)
    }

    fn rows(&self) -> Option<&BucketCache> {
        self.0.rows()
    }

    fn hot_blocks(&self, files: &[FileId], blocks_max: usize) -> Vec<HotBlock> {
        self.0.hot_blocks(files, blocks_max)
    }

    fn admits(&self, key: &BlockKey, category: BlockCategory, bytes: usize, heat: u8) -> bool {
        self.0.admits(key, category, bytes, heat)
    }

    fn release_idle(&self, should_continue: &dyn Fn() -> bool) -> u64 {
        self.0.release_idle(should_continue)
    }

    fn stats(&self) -> CacheStats {
        self.0.stats()
    }

    fn cached_files(&self, files: &[FileId]) -> Vec<CachedFile> {
        self.0.cached_files(files)
    }

    fn get_or_load(&self, key: &BlockKey, hint: CacheHint, load: LoadBlock<'_>) -> TryResult<Block> {
        self.0.get_or_load(key, hint, load)
    }
}

impl fmt::Debug for LruBlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LruBlockCache").field("stats", &self.stats()).finish()
    }
}
