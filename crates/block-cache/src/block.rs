//! [`Block`], one verified and decompressed block of a store file.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The kinds of block in a store file (`BlockType`), by their eight-byte magic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BlockType {
    /// Cells, not encoded.
    Data,
    /// Cells, encoded.
    EncodedData,
    /// The lowest level of a multi-level data index.
    LeafIndex,
    /// Bits of a bloom filter.
    BloomChunk,
    /// A named block that users of the file added.
    Meta,
    /// A level of the data index between root and leaves.
    IntermediateIndex,
    /// The top of the data index, or the index of the meta blocks.
    RootIndex,
    /// The file's key-value map.
    FileInfo,
    /// The description of the row or row and column bloom filter.
    GeneralBloomMeta,
    /// The description of the bloom filter of rows with a family deleted.
    DeleteFamilyBloomMeta,
}

/// What a cache may treat differently (`BlockType.BlockCategory`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockCategory {
    /// Cells.
    Data,
    /// Index blocks of any level.
    Index,
    /// Bloom filter chunks and their description.
    Bloom,
    /// File info and named blocks.
    Meta,
}

impl BlockType {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::Data,
        Self::EncodedData,
        Self::LeafIndex,
        Self::BloomChunk,
        Self::Meta,
        Self::IntermediateIndex,
        Self::RootIndex,
        Self::FileInfo,
        Self::GeneralBloomMeta,
        Self::DeleteFamilyBloomMeta,
    ];

    /// The eight bytes that such a block begins with.
    pub const fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::Data => b"DATABLK*",
            Self::EncodedData => b"DATABLKE",
            Self::LeafIndex => b"IDXLEAF2",
            Self::BloomChunk => b"BLMFBLK2",
            Self::Meta => b"METABLKc",
            Self::IntermediateIndex => b"IDXINTE2",
            Self::RootIndex => b"IDXROOT2",
            Self::FileInfo => b"FILEINF2",
            Self::GeneralBloomMeta => b"BLMFMET2",
            Self::DeleteFamilyBloomMeta => b"DFBLMET2",
        }
    }

    /// The kind of a magic.
    pub fn from_magic(magic: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.magic() == magic)
    }

    /// The category.
    pub const fn category(self) -> BlockCategory {
        match self {
            Self::Data | Self::EncodedData => BlockCategory::Data,
            Self::LeafIndex | Self::IntermediateIndex | Self::RootIndex => BlockCategory::Index,
            Self::BloomChunk | Self::GeneralBloomMeta | Self::DeleteFamilyBloomMeta => BlockCategory::Bloom,
            Self::Meta | Self::FileInfo => BlockCategory::Meta,
        }
    }

    /// Whether the block holds cells.
    pub const fn is_data(self) -> bool {
        matches!(self.category(), BlockCategory::Data)
    }
}

/// What a [`Block`] is made of.
#[derive(Debug)]
pub struct BlockParts {
    /// The kind.
    pub kind: BlockType,
    /// Where the block begins in its file.
    pub offset: u64,
    /// Bytes it takes there: header, body and checksums.
    pub on_disk_bytes: u32,
    /// Where the previous block of the same kind begins; -1 for the first.
    pub prev_offset: i64,
    /// Bytes that hold the body, verified and decompressed, and possibly what stood around it on disk.
    pub bytes: Box<[u8]>,
    /// Where in `bytes` the body lies. Clipped to `bytes` when the block is made.
    pub body: Range<u32>,
    /// Positions in the body at which a search may enter, ascending. Their meaning is the HFile reader's; they are found
    /// once, when the block is loaded, and kept beside it. May be empty.
    pub seek_points: Box<[u32]>,
    /// Bytes that belong to the seek points (keys that the encoding on disk does not spell out). May be empty.
    pub seek_keys: Box<[u8]>,
}

/// A handle to one block. Cloning it counts a reference; the bytes stay as long as any handle does.
#[derive(Clone)]
pub struct Block(Arc<BlockParts>);

/// Bookkeeping bytes of one cached block: its parts, the reference counts, the cache's slot.
const OVERHEAD_BYTES: usize = size_of::<BlockParts>() + 16 + 64;

impl Block {
    /// Makes a block of its parts.
    pub fn new(mut parts: BlockParts) -> Self {
        parts.body.end = parts.body.end.min(parts.bytes.len() as u32);
        parts.body.start = parts.body.start.min(parts.body.end);
        Self(Arc::new(parts))
    }

    /// The kind.
    #[inline]
    pub fn kind(&self) -> BlockType {
        self.0.kind
    }

    /// Where the block begins in its file.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.0.offset
    }

    /// Bytes on disk: header, body and checksums.
    pub fn on_disk_bytes(&self) -> u32 {
        self.0.on_disk_bytes
    }

    /// Where the previous block of the same kind begins; -1 for the first.
    pub fn prev_offset(&self) -> i64 {
        self.0.prev_offset
    }

    /// The body, verified and decompressed, without the header.
    #[inline]
    pub fn data(&self) -> &[u8] {
        &self.0.bytes[self.0.body.start as usize..self.0.body.end as usize]
    }

    /// See [`BlockParts::seek_points`].
    #[inline]
    pub fn seek_points(&self) -> &[u32] {
        &self.0.seek_points
    }

    /// See [`BlockParts::seek_keys`].
    #[inline]
    pub fn seek_keys(&self) -> &[u8] {
        &self.0.seek_keys
    }

    /// Bytes of memory that the block takes, bookkeeping included: its weight in a cache.
    pub fn heap_bytes(&self) -> usize {
        self.0.bytes.len() + 4 * self.0.seek_points.len() + self.0.seek_keys.len() + OVERHEAD_BYTES
    }

    /// Whether two handles are of the same block in memory.
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?}@{}+{} ({} bytes)",
            self.0.kind,
            self.0.offset,
            self.0.on_disk_bytes,
            self.data().len()
        )
    }
}
