//! Block caches.
//!
//! # Nouns
//! * [`Block`]: one block of a store file as readers use it: checksum verified, decompressed, its structure walked
//!   once. Whoever holds it keeps the memory, evicted or not: by a reference count on the heap, or by a pin in a cache.
//! * [`BlockKey`]: which file, which offset. Files are told apart by a 128-bit [`FileId`] made from the file's name,
//!   so that a cache outlives readers, and a link or a half of a split file shares the blocks of the file behind it.
//! * [`BlockCache`]: the seam. [`BucketCache`] is the engine, in memory or in files; its header is the design document.
//!   [`LruBlockCache`] is one in memory for all blocks, [`CombinedBlockCache`] keeps data apart, [`NoCache`] nothing.
//! * *Rows*: a [`BucketCache`] in memory also keeps what Gets answered, by the same budget and policy. What such an entry
//!   means, and that it is never stale, is the region's to say.
//! * [`CacheConfig`]: HBase's settings, and the deploy that they ask for.
//!
//! # Bounds
//! A cache holds at most its capacity in bytes of frames (body, seek points and 56 bytes a block). Beside it lies its
//! index, below 80 bytes a block.

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

mod block;
pub mod bucket;
mod combined;
mod config;
#[cfg(test)]
mod deploy_tests;
mod key;
mod lru;
mod none;
mod single_flight;
mod stats;

use std::fmt::Debug;

use evenkeel_common::Result;

pub use block::{Block, BlockCategory, BlockParts, BlockType, PrefetchedBlock};
pub use bucket::{Admission, BucketCache, BucketCacheConfig, CachedFile, Engine};
pub use combined::CombinedBlockCache;
pub use config::{CacheConfig, DataBlocks};
pub use key::{BlockKey, FileId};
pub use lru::LruBlockCache;
pub use none::NoCache;
pub use stats::{ByCategory, CacheStats};

/// How a block is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheHint {
    /// Keep the block after a miss. A lookup is made either way (HBase's `cache_blocks=false` only stops insertion).
    pub keep: bool,
    /// The family is `IN_MEMORY`: the block should go last.
    pub in_memory: bool,
    /// What kind of block it will be: says which cache has it, and what a miss counts as.
    pub category: BlockCategory,
}

impl CacheHint {
    /// Look up a data block, and keep it on a miss.
    pub const KEEP: Self = Self { keep: true, in_memory: false, category: BlockCategory::Data };
    /// Look up a data block, and do not keep it on a miss.
    pub const LOOK_ONLY: Self = Self { keep: false, in_memory: false, category: BlockCategory::Data };
}

/// Reads a block that is not cached.
pub type LoadBlock<'a> = &'a mut dyn FnMut() -> Result<Block>;

/// A cache of blocks, shared by every reader of a server.
pub trait BlockCache: Send + Sync + Debug {
    /// The block, when it is cached. Counts a hit or a miss.
    fn get(&self, key: &BlockKey) -> Option<Block>;

    /// Where the block of a category lies, when it is cached in memory, for who will most likely read it soon and then says so
    /// by [`BlockCache::count_hit`]. For the policy this is a use; it counts nothing. Asks for the memory that
    /// [`PrefetchedBlock::block`] looks at.
    fn prefetch(&self, key: &BlockKey, category: BlockCategory) -> Option<PrefetchedBlock> {
        let _ = (key, category);
        None
    }

    /// Counts a hit of a block that [`BlockCache::prefetch`] gave.
    fn count_hit(&self, category: BlockCategory) {
        let _ = category;
    }

    /// Whether the block is cached. Counts nothing.
    fn contains(&self, key: &BlockKey) -> bool {
        let _ = key;
        false
    }

    /// Whether blocks of a category are kept at all.
    fn keeps(&self, category: BlockCategory) -> bool {
        let _ = category;
        true
    }

    /// Whether a block of so many bytes can be kept without another one leaving.
    fn has_room(&self, category: BlockCategory, bytes: usize) -> bool {
        let _ = (category, bytes);
        false
    }

    /// Keeps a block, unless the cache does not want it.
    fn insert(&self, key: BlockKey, block: Block, admission: Admission);

    /// Forgets every block of a file; returns how many there were.
    fn evict_file(&self, file: FileId) -> usize;

    /// The engine that keeps rows beside blocks, if one does; see [`bucket::rows`].
    fn rows(&self) -> Option<&BucketCache> {
        None
    }

    /// Gives memory back to the system that no block has needed for two calls; how many bytes. It goes piece by piece, and
    /// after each it asks whether it `may_go_on`, which may take its time.
    fn release_idle(&self, may_go_on: &dyn Fn() -> bool) -> u64 {
        let _ = may_go_on;
        0
    }

    /// What happened so far, and what is held now.
    fn stats(&self) -> CacheStats;

    /// As [`BlockCache::stats`], for each level apart: L1, and L2 when there is one.
    fn levels(&self) -> Vec<CacheStats> {
        vec![self.stats()]
    }

    /// What is cached of each of these files.
    fn cached_files(&self, files: &[FileId]) -> Vec<CachedFile> {
        vec![CachedFile::default(); files.len()]
    }

    /// The block from the cache, or else from `load`.
    ///
    /// An implementation may let one caller load while others that miss the same block wait for it.
    ///
    /// # Errors
    /// What `load` says; nothing is cached then.
    fn get_or_load(&self, key: &BlockKey, hint: CacheHint, load: LoadBlock<'_>) -> Result<Block> {
        if let Some(block) = self.get(key) {
            return Ok(block);
        }
        let block = load()?;
        if hint.keep {
            self.insert(*key, block.clone(), Admission::of(hint.in_memory));
        }
        Ok(block)
    }
}
