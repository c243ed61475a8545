//! [`CacheOnWrite`]: blocks of a file that is being written, kept as they are written; and [`InputResidency`], which tells a
//! compaction which of them are worth it.
//!
//! An index block or bloom chunk is worth it when a data block that it leads to is: a read of what was warm needs all three.

use evenkeel_common::length;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use evenkeel_block_cache::{
    Admission, Block, BlockCache, BlockCategory, BlockKey, BlockParts, BlockType, FileId,
};

use crate::context::CellLayout;
use crate::encoding::{SeekPoints, index_cells};
use crate::index::BlockAt;

/// Whether what a compaction reads is in the cache. Its scanners tell for each data block they enter; its writer asks
/// for each data block it ends.
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

    /// Whether at least half of the blocks entered since the last call were cached; when none was, the answer of that
    /// call, for the cells are still of the same blocks.
    fn was_mostly_cached(&self) -> bool {
        let (entered, cached) = (self.entered.swap(0, Relaxed), self.cached.swap(0, Relaxed));
        if entered > 0 {
            self.last.store(2 * cached >= entered, Relaxed);
        }
        self.last.load(Relaxed)
    }
}

/// Which blocks of one kind of a file being written are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheOnWritePolicy {
    /// None.
    Never,
    /// All.
    Always,
    /// Those that replace blocks that are in the cache, or lead to one that does; see [`CacheOnWrite::residency`].
    IfInputsCached,
}

impl CacheOnWritePolicy {
    /// All when a setting asks for them.
    pub fn when(is_set: bool, otherwise: Self) -> Self {
        if is_set { Self::Always } else { otherwise }
    }

    fn wants(self, replaces_cached: bool) -> bool {
        self == Self::Always || replaces_cached && self == Self::IfInputsCached
    }
}

/// Where and which blocks of a file being written are kept. See [`crate::HFileWriter::cache_on_write`].
#[derive(Clone, Debug)]
pub struct CacheOnWrite {
    /// The cache.
    pub cache: Arc<dyn BlockCache>,
    /// The file, by the name it will have.
    pub file: FileId,
    /// The family is `IN_MEMORY`.
    pub in_memory: bool,
    /// What [`CacheOnWritePolicy::IfInputsCached`] goes by; nothing is warm when no scanner tells.
    pub residency: Arc<InputResidency>,
    /// Data blocks (`hbase.rs.cacheblocksonwrite`, `hbase.rs.cachecompactedblocksonwrite`).
    pub data: CacheOnWritePolicy,
    /// Those of a compressed file are kept as they are on disk (`hbase.block.data.cachecompressed`).
    pub compressed_data: bool,
    /// Leaf and intermediate index blocks (`hfile.block.index.cacheonwrite`).
    pub index: CacheOnWritePolicy,
    /// Bloom chunks (`hfile.block.bloom.cacheonwrite`).
    pub bloom: CacheOnWritePolicy,
}

impl CacheOnWrite {
    /// Whether the data block that ends now replaces what is in the cache. Asked once a data block.
    pub(crate) fn replaces_cached(&self) -> bool {
        self.residency.was_mostly_cached()
    }

    /// As what to keep a block that was just written, if at all. `is_warm`: it, or a data block that it leads to, replaces
    /// what is in the cache.
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

    /// Keeps a block that [`CacheOnWrite::block`] made.
    pub(crate) fn keep(&self, block: Block, admission: Admission) {
        self.cache.insert(BlockKey { file: self.file, offset: block.offset() }, block, admission);
    }

    /// A block as it is kept, of which `body` is the uncompressed body, and `compressed` all that is on disk, where it is.
    pub(crate) fn block(
        &self,
        kind: BlockType,
        at: BlockAt,
        prev_offset: i64,
        body: &[u8],
        compressed: Option<&[u8]>,
        layout: CellLayout,
    ) -> Option<Block> {
        let points = match kind.is_data() {
            true => index_cells(body, layout),
            false => Ok(SeekPoints::default()),
        };
        // What was just written is not malformed; if it were, the reader is the one to say so.
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
