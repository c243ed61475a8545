//! [`CacheOnWrite`]: blocks of a file that is being written, kept as they are written; and [`Warmth`], which tells a
//! compaction which of them are worth it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use evenkeel_block_cache::{Block, BlockCache, BlockCategory, BlockKey, BlockParts, BlockType, FileId};

use crate::context::CellLayout;
use crate::encoding::{SeekPoints, index_cells};
use crate::index::BlockAt;

/// Whether what a compaction reads is in the cache. Its scanners tell for each data block they enter; its writer asks
/// for each data block it ends.
#[derive(Debug, Default)]
pub struct Warmth {
    cached: AtomicU32,
    entered: AtomicU32,
    last: AtomicBool,
}

impl Warmth {
    pub(crate) fn entered(&self, is_cached: bool) {
        self.entered.fetch_add(1, Relaxed);
        self.cached.fetch_add(u32::from(is_cached), Relaxed);
    }

    /// Whether at least half of the blocks entered since the last call were cached; when none was, the answer of that
    /// call, for the cells are still of the same blocks.
    fn take(&self) -> bool {
        let (entered, cached) = (self.entered.swap(0, Relaxed), self.cached.swap(0, Relaxed));
        if entered > 0 {
            self.last.store(2 * cached >= entered, Relaxed);
        }
        self.last.load(Relaxed)
    }
}

/// Which data blocks of a file being written are kept.
#[derive(Clone, Debug)]
pub enum DataOnWrite {
    /// None.
    Never,
    /// All (`hbase.rs.cacheblocksonwrite`, `hbase.rs.cachecompactedblocksonwrite`).
    Always,
    /// Those that replace blocks that are in the cache.
    WhereWarm(Arc<Warmth>),
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
    /// Data blocks.
    pub data: DataOnWrite,
    /// Those of a compressed file are kept as they are on disk (`hbase.block.data.cachecompressed`).
    pub packs: bool,
    /// Leaf and intermediate index blocks (`hfile.block.index.cacheonwrite`).
    pub index: bool,
    /// Bloom chunks (`hfile.block.bloom.cacheonwrite`).
    pub bloom: bool,
}

impl CacheOnWrite {
    /// Whether to keep a block that was just written. Asked once a block.
    pub(crate) fn wants(&self, kind: BlockType) -> bool {
        match (kind.category(), &self.data) {
            (BlockCategory::Data, DataOnWrite::Never) => false,
            (BlockCategory::Data, DataOnWrite::Always) => true,
            (BlockCategory::Data, DataOnWrite::WhereWarm(warmth)) => warmth.take(),
            (BlockCategory::Index, _) => self.index && kind != BlockType::RootIndex,
            (BlockCategory::Bloom, _) => self.bloom && kind == BlockType::BloomChunk,
            (BlockCategory::Meta, _) => false,
        }
    }

    /// Keeps a block of which `body` is the uncompressed body, and `compressed` all that is on disk, where it is.
    pub(crate) fn keep(
        &self,
        kind: BlockType,
        at: BlockAt,
        prev_offset: i64,
        body: &[u8],
        compressed: Option<&[u8]>,
        layout: CellLayout,
    ) {
        let points = match kind.is_data() {
            true => index_cells(body, layout),
            false => Ok(SeekPoints::default()),
        };
        // What was just written is not malformed; if it were, the reader is the one to say so.
        let Ok(points) = points else { return };
        let packed = compressed.filter(|_| self.packs && kind.is_data());
        let bytes = packed.unwrap_or(body);
        let block = Block::new(BlockParts {
            kind,
            offset: at.offset,
            on_disk_bytes: at.on_disk_bytes,
            prev_offset,
            bytes: bytes.into(),
            body: 0..bytes.len() as u32,
            seek_points: points.points,
            seek_keys: points.keys,
            packed: packed.is_some(),
        });
        self.cache.insert(BlockKey { file: self.file, offset: at.offset }, block, self.in_memory);
    }
}
