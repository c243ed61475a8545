//! Block caches.
//!
//! # Terms
//! * [`Block`]: one block of a store file as readers use it: its checksum is verified, its body is
//!   decompressed, and its cells were parsed once. A handle keeps the bytes, even after the cache
//!   evicts the block: by a reference count on the heap, or by a pin in a cache's memory.
//! * [`BlockKey`]: file and offset. A file is identified by a 128-bit [`FileId`] made from its
//!   name, so a cache outlives its readers, and a link or a half of a split file shares the blocks
//!   of the file it refers to.
//! * [`BlockCache`]: the trait of all caches. [`BucketCache`] is the engine, in memory or in files;
//!   its header is the design document. [`LruBlockCache`] holds all blocks in memory,
//!   [`CombinedBlockCache`] holds data blocks apart from the others, and [`NoCache`] holds nothing.
//! * *Rows*: a [`BucketCache`] in memory also caches the results of Gets, under the same budget and
//!   policy. The region defines what such an entry means and guarantees that it is never stale.
//! * [`CacheConfig`]: HBase's settings, and the deployment they select.
//!
//! # Bounds
//! A cache holds at most its capacity in bytes of frames (body, seek points and 56 bytes a block).
//! Its index comes on top, at less than 80 bytes a block.

#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::indexing_slicing))]

mod block;
pub mod bucket;
mod combined;
mod config;
#[cfg(test)]
mod deploy_tests;
pub mod heap_blocks;
mod hot_blocks;
mod key;
mod lru;
mod no_cache;
mod single_flight;
mod stats;

use std::fmt::Debug;

use evenkeel_common::{TryResult, Wait};

pub use block::{Block, BlockCategory, BlockParts, BlockType, PrefetchedBlock};
pub use bucket::{Admission, BucketCache, BucketCacheConfig, CachedFile, Engine};
pub use combined::CombinedBlockCache;
pub use config::{CacheConfig, DataBlocks};
pub use hot_blocks::{HEAT_MAX, HotBlock};
pub use key::{BlockKey, FileId};
pub use lru::LruBlockCache;
pub use no_cache::NoCache;
pub use stats::{ByCategory, CacheStats};

/// How a lookup treats the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheHint {
    /// Insert the block after a miss. The lookup happens either way: HBase's `cache_blocks=false`
    /// prevents only the insertion.
    pub insert: bool,
    /// The family is `IN_MEMORY`, so the block is evicted last.
    pub in_memory: bool,
    /// The expected category. It selects the cache, and the counter of a miss.
    pub category: BlockCategory,
    /// If the lookup and the load may wait for a disk, or for another thread's load of the block.
    pub wait: Wait,
}

impl CacheHint {
    /// Looks up a data block and inserts it after a miss.
    pub const INSERT: Self =
        Self { insert: true, in_memory: false, category: BlockCategory::Data, wait: Wait::Allowed };
    /// Looks up a data block and does not insert it after a miss.
    pub const NO_INSERT: Self =
        Self { insert: false, in_memory: false, category: BlockCategory::Data, wait: Wait::Allowed };
}

/// Reads a block that is not cached.
pub type LoadBlock<'a> = &'a mut dyn FnMut() -> TryResult<Block>;

/// A cache of blocks, shared by all readers of a server.
pub trait BlockCache: Send + Sync + Debug {
    /// Returns the block if it is cached. Counts a hit or a miss.
    fn get(&self, key: &BlockKey) -> Option<Block>;

    /// Pins a block that is cached in memory and prefetches its header into the processor's cache.
    /// The policy records a use. No hit is counted: a caller that reads the block calls
    /// [`BlockCache::count_hit`].
    fn prefetch(&self, key: &BlockKey, category: BlockCategory) -> Option<PrefetchedBlock> {
        let _ = (key, category);
        None
    }

    /// Counts a hit of a block that [`BlockCache::prefetch`] returned.
    fn count_hit(&self, category: BlockCategory) {
        let _ = category;
    }

    /// Returns true if the block is cached. Counts nothing.
    fn contains(&self, key: &BlockKey) -> bool {
        let _ = key;
        false
    }

    /// Returns true if the cache keeps blocks of this category.
    fn caches_category(&self, category: BlockCategory) -> bool {
        let _ = category;
        true
    }

    /// Returns true if a block of `bytes` bytes fits without an eviction.
    fn has_space(&self, category: BlockCategory, bytes: usize) -> bool {
        let _ = (category, bytes);
        false
    }

    /// Inserts a block. The cache may reject it.
    fn insert(&self, key: BlockKey, block: Block, admission: Admission);

    /// Removes every block of a file and returns their number.
    fn evict_file(&self, file: FileId) -> usize;

    /// Returns the engine that caches rows beside blocks, if there is one. See [`bucket::rows`].
    fn rows(&self) -> Option<&BucketCache> {
        None
    }

    /// Returns the blocks of `files` that were requested repeatedly, the hottest first and at most
    /// `blocks_max`. Reads the metadata of every cached block, so it takes milliseconds.
    fn hot_blocks(&self, files: &[FileId], blocks_max: usize) -> Vec<HotBlock> {
        let _ = (files, blocks_max);
        Vec::new()
    }

    /// Returns true if a block of `bytes` bytes, which another server's cache had with this
    /// [heat](HotBlock::heat), is worth inserting: it fits without an eviction, or it was requested
    /// more often than the block that is evicted next.
    fn admits(&self, key: &BlockKey, category: BlockCategory, bytes: usize, heat: u8) -> bool {
        let _ = (key, category, bytes, heat);
        false
    }

    /// Returns memory to the system that held no block during two calls in a row, and returns its
    /// size in bytes. The cache releases a few pages at a time and calls `should_continue` after
    /// each; `should_continue` may block.
    fn release_idle(&self, should_continue: &dyn Fn() -> bool) -> u64 {
        let _ = should_continue;
        0
    }

    /// Returns the counters, and the cache's current content.
    fn stats(&self) -> CacheStats;

    /// As [`BlockCache::stats`], but per level: L1, and L2 if there is one.
    fn levels(&self) -> Vec<CacheStats> {
        vec![self.stats()]
    }

    /// Returns true if a restarted server finds its blocks again
    /// (`BucketCache.isCachePersistent`).
    fn is_persistent(&self) -> bool {
        false
    }

    /// Returns the cached blocks and bytes of each of `files`.
    fn cached_files(&self, files: &[FileId]) -> Vec<CachedFile> {
        vec![CachedFile::default(); files.len()]
    }

    /// Returns the block from the cache, or else from `load`.
    ///
    /// An implementation may let one caller load while others that miss the same block wait for it.
    ///
    /// # Errors
    /// The error of `load`; [`WouldWait`](evenkeel_common::TryError::WouldWait) if `hint` forbids
    /// waiting. Nothing is cached then.
    fn get_or_load(&self, key: &BlockKey, hint: CacheHint, load: LoadBlock<'_>) -> TryResult<Block> {
        if let Some(block) = self.get(key) {
            return Ok(block);
        }
        let block = load()?;
        if hint.insert {
            self.insert(*key, block.clone(), Admission::of(hint.in_memory));
        }
        Ok(block)
    }
}
