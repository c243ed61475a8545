//! [`Block`], one verified and decompressed block of a store file.
//!
//! Its bytes are on the heap, held by a reference count, or in a cache's memory, held by a pin. The
//! handle stores the address of the body, so readers treat both alike.

#![allow(clippy::indexing_slicing, reason = "indexes come from the lengths of the arrays")]
#![allow(unsafe_code)]

use evenkeel_common::length;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use bytes::Bytes;

use crate::BlockKey;
use crate::bucket::frame::FrameRef;
use crate::bucket::pin::Pin;
use crate::heap_blocks::HeapBlock;

/// Types of block in a store file (`BlockType`), each with an eight-byte magic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum BlockType {
    /// Cells without an encoding.
    Data,
    /// Encoded cells.
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
    /// The metadata of the ROW or ROWCOL bloom filter.
    GeneralBloomMeta,
    /// The metadata of the bloom filter of rows with a family deleted.
    DeleteFamilyBloomMeta,
}

/// Classes of block that a cache may treat differently (`BlockType.BlockCategory`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockCategory {
    /// Cells.
    Data,
    /// Index blocks of any level.
    Index,
    /// Bloom filter chunks and their metadata.
    Bloom,
    /// File info and named blocks.
    Meta,
}

impl BlockCategory {
    /// The number of categories.
    pub const COUNT: usize = 4;
}

impl BlockType {
    /// All types.
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

    /// The eight bytes at the start of a block of this type.
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

    /// Returns the type with this magic.
    pub fn from_magic(magic: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.magic() == magic)
    }

    /// The block's category.
    pub const fn category(self) -> BlockCategory {
        match self {
            Self::Data | Self::EncodedData => BlockCategory::Data,
            Self::LeafIndex | Self::IntermediateIndex | Self::RootIndex => BlockCategory::Index,
            Self::BloomChunk | Self::GeneralBloomMeta | Self::DeleteFamilyBloomMeta => BlockCategory::Bloom,
            Self::Meta | Self::FileInfo => BlockCategory::Meta,
        }
    }

    /// Returns true if the block holds cells.
    pub const fn is_data(self) -> bool {
        matches!(self.category(), BlockCategory::Data)
    }
}

/// A slice of a block is shared instead of copied if it is at least 1/8 of the block. So a shared
/// slice holds at most eight times its own bytes in memory.
const SHARED_BLOCK_PARTS_MAX: usize = 8;
/// As above, for a block outside of a cache: its memory exists only for the slice.
const SHARED_HEAP_BLOCK_PARTS_MAX: usize = 2;

/// The fields of a [`Block`].
#[derive(Debug)]
pub struct BlockParts {
    /// The type.
    pub kind: BlockType,
    /// The offset in the file.
    pub offset: u64,
    /// Bytes in the file: header, body and checksums.
    pub on_disk_bytes: u32,
    /// The offset of the previous block of the same type; -1 for the first.
    pub prev_offset: i64,
    /// The body, verified and decompressed, possibly with the bytes that surround it on disk.
    pub bytes: Box<[u8]>,
    /// The range of the body in `bytes`. It is clipped to `bytes` when the block is made.
    pub body: Range<u32>,
    /// Positions in the body where a search may start, ascending. Only the HFile reader interprets
    /// them. They are computed once, when the block is loaded. May be empty.
    pub seek_points: Box<[u32]>,
    /// Data of the seek points: keys that the encoding on disk does not spell out, or a row prefix
    /// index. May be empty.
    pub seek_keys: Box<[u8]>,
    /// The bytes are compressed, as in the file, so every read decompresses them
    /// (`hbase.block.data.cachecompressed`).
    pub compressed: bool,
}

/// A handle to one block. The bytes stay valid while any handle exists, even after an eviction.
#[derive(Clone)]
pub struct Block {
    /// Points into the memory that `owner` keeps.
    data: NonNull<u8>,
    data_bytes: u32,
    kind: BlockType,
    compressed: bool,
    owner: Owner,
}

/// A pinned block in a cache's memory whose header was prefetched and not yet read.
#[derive(Debug)]
pub struct PrefetchedBlock {
    key: BlockKey,
    frame: FrameRef,
    /// The allocated size of the frame, an upper bound of its length.
    frame_bytes: u64,
    pin: Pin,
}

impl PrefetchedBlock {
    #[inline]
    pub(crate) fn new(key: BlockKey, frame: FrameRef, frame_bytes: u64, pin: Pin) -> Self {
        frame.prefetch_header();
        Self { key, frame, frame_bytes, pin }
    }

    /// Returns the block, if its header agrees with the cache's index.
    #[inline]
    pub fn block(self) -> Option<Block> {
        let Self { key, frame, frame_bytes, pin } = self;
        frame.header().is_of(&key, frame_bytes).then(|| Block::pinned(frame, pin))
    }
}

#[derive(Clone)]
enum Owner {
    Heap(Arc<HeapBlock>),
    Cache(FrameRef, #[allow(dead_code)] Pin), // keeps the block in place until it is dropped
}

// SAFETY: the bytes never change while a handle exists, and any thread may drop either owner.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// Makes a block from its fields.
    pub fn new(mut parts: BlockParts) -> Self {
        parts.body.end = parts.body.end.min(length::must_u32(parts.bytes.len()));
        parts.body.start = parts.body.start.min(parts.body.end);
        let body = &parts.bytes[parts.body.start as usize..parts.body.end as usize];
        Self {
            data: NonNull::from(body).cast(),
            data_bytes: length::must_u32(body.len()),
            kind: parts.kind,
            compressed: parts.compressed,
            owner: Owner::Heap(Arc::new(HeapBlock::new(parts))),
        }
    }

    /// Makes a block from a pinned frame. The caller has checked the frame's type.
    pub(crate) fn pinned(frame: FrameRef, pin: Pin) -> Self {
        let header = frame.header();
        Self {
            data: frame.body(),
            data_bytes: header.body_bytes,
            kind: header.kind().unwrap_or(BlockType::Data),
            compressed: header.is_compressed(),
            owner: Owner::Cache(frame, pin),
        }
    }

    /// The type.
    #[inline]
    pub fn kind(&self) -> BlockType {
        self.kind
    }

    /// See [`BlockParts::compressed`].
    #[inline]
    pub fn is_compressed(&self) -> bool {
        self.compressed
    }

    /// The offset in the file.
    #[inline]
    pub fn offset(&self) -> u64 {
        match &self.owner {
            Owner::Heap(parts) => parts.offset,
            Owner::Cache(frame, _) => frame.header().offset,
        }
    }

    /// Bytes in the file: header, body and checksums.
    pub fn on_disk_bytes(&self) -> u32 {
        match &self.owner {
            Owner::Heap(parts) => parts.on_disk_bytes,
            Owner::Cache(frame, _) => frame.header().on_disk_bytes,
        }
    }

    /// The offset of the previous block of the same type; -1 for the first.
    pub fn prev_offset(&self) -> i64 {
        match &self.owner {
            Owner::Heap(parts) => parts.prev_offset,
            Owner::Cache(frame, _) => frame.header().prev_offset,
        }
    }

    /// The body, verified and decompressed, without the header.
    #[inline]
    pub fn data(&self) -> &[u8] {
        // SAFETY: the owner keeps the bytes, and nothing writes them.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.data_bytes as usize) }
    }

    /// See [`BlockParts::seek_points`].
    #[inline]
    pub fn seek_points(&self) -> &[u32] {
        match &self.owner {
            Owner::Heap(parts) => &parts.seek_points,
            Owner::Cache(frame, _) => frame.seek_points(),
        }
    }

    /// See [`BlockParts::seek_keys`].
    #[inline]
    pub fn seek_keys(&self) -> &[u8] {
        match &self.owner {
            Owner::Heap(parts) => &parts.seek_keys,
            Owner::Cache(frame, _) => frame.seek_keys(),
        }
    }

    /// Returns `part` without a copy, as a slice that keeps the whole block. Returns `None` if
    /// `part` is not within the body, or too small to be worth keeping the block.
    pub fn share(&self, part: &[u8]) -> Option<Bytes> {
        let start = (part.as_ptr() as usize).checked_sub(self.data.as_ptr() as usize)?;
        let end = start.checked_add(part.len()).filter(|end| *end <= self.data().len())?;
        let parts_max = if self.is_pinned() { SHARED_BLOCK_PARTS_MAX } else { SHARED_HEAP_BLOCK_PARTS_MAX };
        let is_worth_it = part.len().saturating_mul(parts_max) >= self.data().len();
        is_worth_it.then(|| Bytes::from_owner(self.clone()).slice(start..end))
    }

    /// Returns true if the bytes are in a cache's memory, held by a pin.
    pub fn is_pinned(&self) -> bool {
        matches!(self.owner, Owner::Cache(..))
    }

    /// Returns true if both handles refer to the same bytes.
    pub fn same(&self, other: &Self) -> bool {
        self.data == other.data
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        self.data()
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, offset, on_disk, bytes) =
            (self.kind, self.offset(), self.on_disk_bytes(), self.data().len());
        write!(f, "{kind:?}@{offset}+{on_disk} ({bytes} bytes)")
    }
}
