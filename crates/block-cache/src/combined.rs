//! [`CombinedBlockCache`]: index and bloom blocks in L1, data blocks in L2, or in no cache.
//!
//! Readers that miss the same block wait for one read: in the cache that keeps the block, or here
//! if no cache keeps it.

use evenkeel_common::TryResult;

use crate::bucket::{Admission, BucketCache, CachedFile};
use crate::single_flight::SingleFlight;
use crate::{
    Block, BlockCache, BlockCategory, BlockKey, CacheHint, CacheStats, FileId, HotBlock, LoadBlock,
    LruBlockCache, PrefetchedBlock,
};

/// L1 for all blocks except data, L2 for data blocks. Without L2, data blocks are not cached.
#[derive(Debug)]
pub struct CombinedBlockCache<L2> {
    l1: LruBlockCache,
    l2: L2,
    /// Reads in progress of blocks that no cache keeps.
    single_flight: SingleFlight,
}

impl<L2: BlockCache> CombinedBlockCache<L2> {
    /// Combines two caches. [`crate::NoCache`] as `l2` caches no data blocks.
    pub fn new(l1: LruBlockCache, l2: L2) -> Self {
        Self { l1, l2, single_flight: SingleFlight::default() }
    }

    /// The cache of index, bloom and meta blocks.
    pub fn l1(&self) -> &LruBlockCache {
        &self.l1
    }

    /// The cache of data blocks.
    pub fn l2(&self) -> &L2 {
        &self.l2
    }

    /// Reads in progress of blocks that no cache keeps.
    #[cfg(test)]
    pub(crate) fn single_flight(&self) -> &SingleFlight {
        &self.single_flight
    }

    fn of(&self, category: BlockCategory) -> &dyn BlockCache {
        if category == BlockCategory::Data { &self.l2 } else { &self.l1 }
    }
}

impl<L2: BlockCache> BlockCache for CombinedBlockCache<L2> {
    fn get(&self, key: &BlockKey) -> Option<Block> {
        if self.l1.contains(key) { self.l1.get(key) } else { self.l2.get(key) }
    }

    fn prefetch(&self, key: &BlockKey, category: BlockCategory) -> Option<PrefetchedBlock> {
        self.of(category).prefetch(key, category)
    }

    fn count_hit(&self, category: BlockCategory) {
        self.of(category).count_hit(category);
    }

    fn contains(&self, key: &BlockKey) -> bool {
        self.l1.contains(key) || self.l2.contains(key)
    }

    fn caches_category(&self, category: BlockCategory) -> bool {
        self.of(category).caches_category(category)
    }

    fn has_space(&self, category: BlockCategory, bytes: usize) -> bool {
        self.of(category).has_space(category, bytes)
    }

    fn insert(&self, key: BlockKey, block: Block, admission: Admission) {
        self.of(block.kind().category()).insert(key, block, admission);
    }

    fn evict_file(&self, file: FileId) -> usize {
        self.l1.evict_file(file) + self.l2.evict_file(file)
    }

    /// L2, or L1 if L2 is in files or absent.
    fn rows(&self) -> Option<&BucketCache> {
        self.l2.rows().or_else(|| self.l1.rows())
    }

    fn hot_blocks(&self, files: &[FileId], blocks_max: usize) -> Vec<HotBlock> {
        let mut both = self.l1.hot_blocks(files, blocks_max);
        both.extend(self.l2.hot_blocks(files, blocks_max));
        both.sort_unstable_by(|a, b| b.cmp(a));
        both.truncate(blocks_max);
        both
    }

    fn admits(&self, key: &BlockKey, category: BlockCategory, bytes: usize, heat: u8) -> bool {
        self.of(category).admits(key, category, bytes, heat)
    }

    fn release_idle(&self, should_continue: &dyn Fn() -> bool) -> u64 {
        self.l1.release_idle(should_continue) + self.l2.release_idle(should_continue)
    }

    /// The sum of both levels.
    fn stats(&self) -> CacheStats {
        let mut sum = self.l1.stats();
        sum += self.l2.stats();
        sum
    }

    fn levels(&self) -> Vec<CacheStats> {
        vec![self.l1.stats(), self.l2.stats()]
    }

    fn is_persistent(&self) -> bool {
        self.l2.is_persistent()
    }

    fn cached_files(&self, files: &[FileId]) -> Vec<CachedFile> {
        let (l1, l2) = (self.l1.cached_files(files), self.l2.cached_files(files));
        let sum = |(a, b): (CachedFile, CachedFile)| CachedFile {
            blocks: a.blocks + b.blocks,
            on_disk_bytes: a.on_disk_bytes + b.on_disk_bytes,
        };
        l1.into_iter().zip(l2).map(sum).collect()
    }

    fn get_or_load(&self, key: &BlockKey, hint: CacheHint, load: LoadBlock<'_>) -> TryResult<Block> {
        let cache = self.of(hint.category);
        match cache.caches_category(hint.category) {
            true => cache.get_or_load(key, hint, load),
            false => self.single_flight.read(key, hint.wait, load),
        }
    }
}
