//! [`CacheOnWrite`]: caches the blocks of a file as they are written. A compaction learns from
//! [`InputResidency`] which of them replace cached blocks.
//!
//! An index block or bloom chunk is cached if a data block that it refers to is: a read needs all
//! three.

use evenkeel_common::length;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use evenkeel_block_cache::{
    Admission, Block, BlockCache, BlockCategory, BlockKey, BlockParts, BlockType, FileId,
};

use crate::context::CellLayout;
use crate::encoding::{SeekPoints, index_cells};
use crate::index::BlockLocation;

/// Tracks whether the inputs of a compaction are cached. Its scanners record each data block they
/// enter. Its writer queries it at the end of each data block.
#[derive(Debug, Default)]
pub struct InputResidency {
    cached: AtomicU32,
    entered: AtomicU32,
    last: AtomicBool,
}

impl InputResidency {
    pub(crate) fn record(&self, is_cached: bool) {
        self.entered.fetch_add(1, Relaxed);
        self.cached.fetch_add(u32::from(is_cached), Relaxed);
    }

    /// Returns true if at least half of the blocks entered since the last call were cached. If no
    /// block was entered, it returns the last result, because the cells still come from the same
    /// blocks.
    fn was_mostly_cached(&self) -> bool {
        let (entered, cached) = (self.entered.swap(0, Relaxed), self.cached.swap(0, Relaxed));
        if entered > 0 {
            self.last.store(2 * cached >= entered, Relaxed);
        }
        self.last.load(Relaxed)
    }
}

/// Which blocks of one category of a file being written are cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheOnWritePolicy {
    /// None.
    Never,
    /// All.
    Always,
    /// Blocks that replace cached blocks, or refer to one that does; see
    /// [`CacheOnWrite::residency`].
    IfInputsCached,
}

impl CacheOnWritePolicy {
    /// `Always` if the setting is on.
    pub fn when(is_set: bool, otherwise: Self) -> Self {
        if is_set { Self::Always } else { otherwise }
    }

    fn wants(self, replaces_cached: bool) -> bool {
        self == Self::Always || replaces_cached && self == Self::IfInputsCached
    }
}

/// Which blocks of a file being written are cached, and where. See
/// [`crate::HFileWriter::cache_on_write`].
#[derive(Clone, Debug)]
pub struct CacheOnWrite {
    /// The cache.
    pub cache: Arc<dyn BlockCache>,
    /// The file's id, by its final name.
    pub file: FileId,
    /// The family is `IN_MEMORY`.
    pub in_memory: bool,
    /// The input of [`CacheOnWritePolicy::IfInputsCached`]. Without scanners that record, no block
    /// is cached by it.
    pub residency: Arc<InputResidency>,
    /// Data blocks (`hbase.rs.cacheblocksonwrite`, `hbase.rs.cachecompactedblocksonwrite`).
    pub data: CacheOnWritePolicy,
    /// Data blocks of a compressed file are cached as on disk (`hbase.block.data.cachecompressed`).
    pub compressed_data: bool,
    /// Leaf and intermediate index blocks (`hfile.block.index.cacheonwrite`).
    pub index: CacheOnWritePolicy,
    /// Bloom chunks (`hfile.block.bloom.cacheonwrite`).
    pub bloom: CacheOnWritePolicy,
}

impl CacheOnWrite {
    /// Returns true if the data block that ends now replaces cached blocks. Call it once per data
    /// block.
    pub(crate) fn replaces_cached(&self) -> bool {
        self.residency.was_mostly_cached()
    }

    /// The admission of a block that was just written, or `None` if it is not cached.
    /// `replaces_cached`: the block, or a data block that it refers to, replaces cached blocks.
    pub(crate) fn admission(&self, kind: BlockType, replaces_cached: bool) -> Option<Admission> {
        let wanted = match kind.category() {
            BlockCategory::Data => self.data.wants(replaces_cached),
            BlockCategory::Index => self.index.wants(replaces_cached) && kind != BlockType::RootIndex,
            BlockCategory::Bloom => self.bloom.wants(replaces_cached) && kind == BlockType::BloomChunk,
            BlockCategory::Meta => false,
        };
        wanted.then_some(match replaces_cached && !self.in_memory {
            true => Admission::Warm,
            false => Admission::of(self.in_memory),
        })
    }

    /// Inserts a block of [`CacheOnWrite::block`] into the cache.
    pub(crate) fn insert(&self, block: Block, admission: Admission) {
        self.cache.insert(BlockKey { file: self.file, offset: block.offset() }, block, admission);
    }

    /// The block to cache. `body` is the uncompressed body, and `compressed` the whole block on
    /// disk, if the file is compressed.
    pub(crate) fn block(
        &self,
        kind: BlockType,
        at: BlockLocation,
        prev_offset: i64,
        body: &[u8],
        compressed: Option<&[u8]>,
        layout: CellLayout,
    ) -> Option<Block> {
        let points = match kind.is_data() {
            true => index_cells(body, layout),
            false => Ok(SeekPoints::default()),
        };
        // A block that was just written is well formed. If not, the reader reports it.
        let points = points.ok()?;
        let compressed = compressed.filter(|_| self.compressed_data && kind.is_data());
        let bytes = compressed.unwrap_or(body);
        Some(Block::new(BlockParts {
            kind,
            offset: at.offset,
            on_disk_bytes: at.on_disk_bytes,
            prev_offset,
            bytes: bytes.into(),
            body: 0..length::must_u32(bytes.len()),
            seek_points: points.points,
            seek_keys: points.keys,
            compressed: compressed.is_some(),
        }))
    }
}
