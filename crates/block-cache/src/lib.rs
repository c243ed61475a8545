//! Block caches.
//!
//! # Nouns
//! * [`Block`]: one block of a store file as readers use it: checksum verified, decompressed, its structure walked
//!   once. A cheap handle (one reference count); whoever holds it keeps the memory, evicted or not.
//! * [`BlockKey`]: which file, which offset. Files are told apart by a 128-bit [`FileId`] made from the file's name,
//!   so that a cache outlives readers, and a link or a half of a split file shares the blocks of the file behind it.
//! * [`BlockCache`]: the seam. [`LruBlockCache`] keeps blocks on the heap within a byte budget, [`NoCache`] nothing.
//!
//! # What is apart from what
//! *Policy* (which block goes) and *index* (where a block is) belong to quick_cache, behind [`LruBlockCache`];
//! *storage* is [`Block`] itself, which hides where its bytes lie. So a bucket cache, or another policy, replaces one of
//! the three. Nothing outside this crate sees more than the trait.
//!
//! # Bounds
//! A cache holds at most its capacity in bytes of [`Block::heap_bytes`] (data, seek points and a fixed overhead a
//! block); blocks larger than `block_bytes_max` are handed out but never kept (`hbase.lru.max.block.size`).

#![forbid(unsafe_code)]

mod block;
mod key;
mod lru;
mod none;
mod stats;

use std::fmt::Debug;

use evenkeel_common::Result;

pub use block::{Block, BlockCategory, BlockParts, BlockType};
pub use key::{BlockKey, FileId};
pub use lru::{LRU_BLOCK_BYTES_MAX, LruBlockCache};
pub use none::NoCache;
pub use stats::CacheStats;

/// How a block is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheHint {
    /// Keep the block after a miss. A lookup is made either way (HBase's `cache_blocks=false` only stops insertion).
    pub keep: bool,
    /// The family is `IN_MEMORY`: the block should go last.
    pub in_memory: bool,
}

impl CacheHint {
    /// Look up, and keep on a miss.
    pub const KEEP: Self = Self { keep: true, in_memory: false };
    /// Look up, and do not keep on a miss.
    pub const LOOK_ONLY: Self = Self { keep: false, in_memory: false };
}

/// Reads a block that is not cached.
pub type LoadBlock<'a> = &'a mut dyn FnMut() -> Result<Block>;

/// A cache of blocks, shared by every reader of a server.
pub trait BlockCache: Send + Sync + Debug {
    /// The block, when it is cached. Counts a hit or a miss.
    fn get(&self, key: &BlockKey) -> Option<Block>;

    /// Keeps a block, unless the cache does not want it.
    fn insert(&self, key: BlockKey, block: Block, in_memory: bool);

    /// Forgets every block of a file; returns how many there were.
    fn evict_file(&self, file: FileId) -> usize;

    /// What happened so far, and what is held now.
    fn stats(&self) -> CacheStats;

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
            self.insert(*key, block.clone(), hint.in_memory);
        }
        Ok(block)
    }
}
