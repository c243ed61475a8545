//! [`NoCache`]: for `hfile.block.cache.size` of 0, tools and tests.

use crate::{Admission, Block, BlockCache, BlockCategory, BlockKey, CacheStats, FileId};

/// A cache that keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCache;

impl BlockCache for NoCache {
    fn get(&self, _key: &BlockKey) -> Option<Block> {
        None
    }

    fn caches_category(&self, _category: BlockCategory) -> bool {
        false
    }

    fn insert(&self, _key: BlockKey, _block: Block, _admission: Admission) {}

    fn evict_file(&self, _file: FileId) -> usize {
        0
    }

    fn stats(&self) -> CacheStats {
        CacheStats::default()
    }
}
