//! [`Block`], one verified and decompressed block of a store file.
//!
//! Its bytes lie on the heap, counted by reference, or in a cache's memory, held by a pin. Where the body begins is kept
//! in the handle, so that readers need not care.

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

impl BlockCategory {
    /// How many there are.
    pub const COUNT: usize = 4;
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

/// A part is shared when it is at least this part of its block: so many times its own bytes it holds in memory at most.
const SHARED_BLOCK_PARTS_MAX: usize = 8;
/// The same of a block that no cache keeps, whose memory is there for the part alone.
const SHARED_HEAP_BLOCK_PARTS_MAX: usize = 2;

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
    /// Bytes that belong to the seek points (keys that the encoding on disk does not spell out, digests of rows). May be empty.
    pub seek_keys: Box<[u8]>,
    /// The bytes are those of the file, compressed: whoever reads the block must open it each time
    /// (`hbase.block.data.cachecompressed`).
    pub compressed: bool,
}

/// A handle to one block. The bytes stay as long as any handle does, evicted or not.
#[derive(Clone)]
pub struct Block {
    /// Into the memory that `owner` keeps.
    data: NonNull<u8>,
    data_bytes: u32,
    kind: BlockType,
    compressed: bool,
    owner: Owner,
}

/// A block in a cache's memory that nobody has looked at yet. It is pinned.
#[derive(Debug)]
pub struct PrefetchedBlock {
    key: BlockKey,
    frame: FrameRef,
    /// Bytes that the frame has at most.
    frame_bytes: u64,
    pin: Pin,
}

impl PrefetchedBlock {
    #[inline]
    pub(crate) fn new(key: BlockKey, frame: FrameRef, frame_bytes: u64, pin: Pin) -> Self {
        frame.prefetch_header();
        Self { key, frame, frame_bytes, pin }
    }

    /// The block, if it is what the cache's index says.
    #[inline]
    pub fn block(self) -> Option<Block> {
        let Self { key, frame, frame_bytes, pin } = self;
        frame.header().is_of(&key, frame_bytes).then(|| Block::pinned(frame, pin))
    }
}

#[derive(Clone)]
enum Owner {
    Heap(Arc<BlockParts>),
    Cache(FrameRef, #[allow(dead_code)] Pin), // the pin is kept for its drop
}

// SAFETY: the bytes never change while a handle exists, and both owners may be dropped by any thread.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// Makes a block of its parts.
    pub fn new(mut parts: BlockParts) -> Self {
        parts.body.end = parts.body.end.min(length::must_u32(parts.bytes.len()));
        parts.body.start = parts.body.start.min(parts.body.end);
        let body = &parts.bytes[parts.body.start as usize..parts.body.end as usize];
        Self {
            data: NonNull::from(body).cast(),
            data_bytes: length::must_u32(body.len()),
            kind: parts.kind,
            compressed: parts.compressed,
            owner: Owner::Heap(Arc::new(parts)),
        }
    }

    /// The block of a frame that a pin keeps. The frame's kind is known.
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

    /// The kind.
    #[inline]
    pub fn kind(&self) -> BlockType {
        self.kind
    }

    /// See [`BlockParts::compressed`].
    #[inline]
    pub fn is_compressed(&self) -> bool {
        self.compressed
    }

    /// Where the block begins in its file.
    #[inline]
    pub fn offset(&self) -> u64 {
        match &self.owner {
            Owner::Heap(parts) => parts.offset,
            Owner::Cache(frame, _) => frame.header().offset,
        }
    }

    /// Bytes on disk: header, body and checksums.
    pub fn on_disk_bytes(&self) -> u32 {
        match &self.owner {
            Owner::Heap(parts) => parts.on_disk_bytes,
            Owner::Cache(frame, _) => frame.header().on_disk_bytes,
        }
    }

    /// Where the previous block of the same kind begins; -1 for the first.
    pub fn prev_offset(&self) -> i64 {
        match &self.owner {
            Owner::Heap(parts) => parts.prev_offset,
            Owner::Cache(frame, _) => frame.header().prev_offset,
        }
    }

    /// The body, verified and decompressed, without the header.
    #[inline]
    pub fn data(&self) -> &[u8] {
        // SAFETY: the owner keeps the bytes, and nobody writes them.
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

    /// A part of the body that keeps the block where it is for as long as it is held, with no copy. `None` when `part` is
    /// not a part of the body, or so small a one that it is not worth the rest of the block.
    pub fn share(&self, part: &[u8]) -> Option<Bytes> {
        let start = (part.as_ptr() as usize).checked_sub(self.data.as_ptr() as usize)?;
        let end = start.checked_add(part.len()).filter(|end| *end <= self.data().len())?;
        let parts_max = if self.is_pinned() { SHARED_BLOCK_PARTS_MAX } else { SHARED_HEAP_BLOCK_PARTS_MAX };
        let is_worth_it = part.len().saturating_mul(parts_max) >= self.data().len();
        is_worth_it.then(|| Bytes::from_owner(self.clone()).slice(start..end))
    }

    /// Whether the bytes lie in a cache's memory, held by a pin.
    pub fn is_pinned(&self) -> bool {
        matches!(self.owner, Owner::Cache(..))
    }

    /// Whether two handles are of the same block in memory.
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
