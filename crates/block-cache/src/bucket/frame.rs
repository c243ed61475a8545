//! A frame: one block as it lies in a cache's memory or file. It tells itself what it is.
//!
//! ```text
//! u64 x 2 file id | u64 offset | i64 offset of the previous block of its kind
//! u32 checksum | u32 on-disk bytes | u32 body bytes | u32 seek points | u32 seek key bytes | u16 format | u8 kind | u8 flags
//! seek points (u32 each) | seek keys | body | up to 7 bytes of padding
//! ```
//!
//! All numbers in the machine's own byte order: a cache's file is read where it was written. The checksum (CRC32C) is
//! over the whole frame without padding, with zero in its own place; only file engines write and check it.

use std::ptr::NonNull;

use crc_fast::{CrcAlgorithm, Digest};
use evenkeel_common::cache_line::prefetch;
use evenkeel_common::length;

use super::slot::UNIT_BYTES;
use crate::{Block, BlockKey, BlockParts, BlockType, FileId};

/// Changes whenever a frame, or the meaning of seek points, does: frames of another version are misses.
pub(crate) const FORMAT: u16 = 2;

/// Bytes before seek points, keys and body.
pub(crate) const HEADER_BYTES: usize = 56;

const COMPRESSED: u8 = 1;

/// See the module. No padding, and any bytes are values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Header {
    pub file: [u64; 2],
    pub offset: u64,
    pub prev_offset: i64,
    pub checksum: u32,
    pub on_disk_bytes: u32,
    pub body_bytes: u32,
    pub points: u32,
    pub keys_bytes: u32,
    pub format: u16,
    pub kind: u8,
    pub flags: u8,
}

const _: () = assert!(size_of::<Header>() == HEADER_BYTES);

impl Header {
    /// Of a block under a key, the checksum left open.
    pub fn of(key: &BlockKey, block: &Block) -> Self {
        let bits = key.file.bits();
        Self {
            file: [length::low_u64(bits >> 64), length::low_u64(bits)],
            offset: key.offset,
            prev_offset: block.prev_offset(),
            checksum: 0,
            on_disk_bytes: block.on_disk_bytes(),
            body_bytes: length::must_u32(block.data().len()),
            points: length::must_u32(block.seek_points().len()),
            keys_bytes: length::must_u32(block.seek_keys().len()),
            format: FORMAT,
            kind: block.kind() as u8,
            flags: if block.is_compressed() { COMPRESSED } else { 0 },
        }
    }

    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        // SAFETY: of one size, without padding.
        unsafe { std::mem::transmute(self) }
    }

    pub fn from_bytes(bytes: [u8; HEADER_BYTES]) -> Self {
        // SAFETY: of one size, and any bytes are a header.
        unsafe { std::mem::transmute(bytes) }
    }

    /// The header at the start of some bytes.
    pub fn at_start(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().map(|bytes| Self::from_bytes(*bytes))
    }

    /// The key.
    pub fn key(&self) -> BlockKey {
        let bits = (u128::from(self.file[0]) << 64) | u128::from(self.file[1]);
        BlockKey { file: FileId::from_bits(bits), offset: self.offset }
    }

    pub fn kind(&self) -> Option<BlockType> {
        BlockType::ALL.get(self.kind as usize).copied()
    }

    pub fn is_compressed(&self) -> bool {
        self.flags & COMPRESSED != 0
    }

    /// Where the body begins, and where it ends, in the frame. `None` when that is past all bounds.
    pub fn body(&self) -> Option<(usize, usize)> {
        let start = HEADER_BYTES + self.points as usize * 4 + self.keys_bytes as usize;
        start.checked_add(self.body_bytes as usize).map(|end| (start, end))
    }

    /// Bytes that the frame takes, padding counted.
    pub fn frame_bytes(&self) -> Option<u64> {
        self.body().map(|(_, end)| (end as u64).next_multiple_of(UNIT_BYTES))
    }

    /// Whether this is a frame of the key that fits `len` bytes.
    pub fn is_of(&self, key: &BlockKey, len: u64) -> bool {
        self.key() == *key
            && self.format == FORMAT
            && self.kind().is_some()
            && self.frame_bytes().is_some_and(|bytes| bytes <= len)
    }
}

/// The parts of a frame, in order.
pub(crate) fn parts<'a>(header: &'a [u8; HEADER_BYTES], block: &'a Block) -> [&'a [u8]; 4] {
    let points = block.seek_points();
    // SAFETY: numbers seen as bytes.
    let points = unsafe { std::slice::from_raw_parts(points.as_ptr().cast(), size_of_val(points)) };
    [header, points, block.seek_keys(), block.data()]
}

/// The checksum of a frame made of parts, of which the first begins with a header.
pub(crate) fn checksum(header: Header, rest: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&Header { checksum: 0, ..header }.to_bytes());
    rest.iter().for_each(|part| digest.update(part));
    (digest.finalize() & 0xffff_ffff) as u32
}

/// Whether bytes are a whole frame of the key, by its checksum.
pub(crate) fn verify(bytes: &[u8], key: &BlockKey) -> Option<Header> {
    let header = Header::at_start(bytes).filter(|header| header.is_of(key, bytes.len() as u64))?;
    let (_, end) = header.body()?;
    (checksum(header, &[bytes.get(HEADER_BYTES..end)?]) == header.checksum).then_some(header)
}

/// A block on the heap, of a frame's bytes that were verified.
pub(crate) fn to_heap(header: Header, bytes: Vec<u8>) -> Option<Block> {
    let (start, end) = header.body()?;
    let points_end = HEADER_BYTES + header.points as usize * 4;
    let points = bytes.get(HEADER_BYTES..points_end)?.as_chunks::<4>().0;
    Some(Block::new(BlockParts {
        kind: header.kind()?,
        offset: header.offset,
        on_disk_bytes: header.on_disk_bytes,
        prev_offset: header.prev_offset,
        seek_points: points.iter().map(|point| u32::from_ne_bytes(*point)).collect(),
        seek_keys: bytes.get(points_end..start)?.into(),
        body: u32::try_from(start).ok()?..u32::try_from(end).ok()?,
        bytes: bytes.into(),
        compressed: header.is_compressed(),
    }))
}

/// A frame in mapped memory that its holder keeps in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameRef(NonNull<u8>);

impl FrameRef {
    /// # Safety
    /// The address is aligned to eight bytes and a frame lies there, whole, for as long as this is used.
    pub unsafe fn new(start: NonNull<u8>) -> Self {
        Self(start)
    }

    /// Asks for the memory of the header.
    #[inline]
    pub fn prefetch_header(&self) {
        prefetch(self.0.as_ptr());
    }

    #[inline]
    pub fn header(&self) -> &Header {
        // SAFETY: a frame begins with a header, is aligned, and stays: see `new`.
        unsafe { self.0.cast().as_ref() }
    }

    #[inline]
    pub fn seek_points(&self) -> &[u32] {
        let points = self.header().points as usize;
        // SAFETY: they follow the header, whose size keeps the alignment.
        unsafe { std::slice::from_raw_parts(self.0.add(HEADER_BYTES).cast().as_ptr(), points) }
    }

    #[inline]
    pub fn seek_keys(&self) -> &[u8] {
        let header = self.header();
        let start = HEADER_BYTES + header.points as usize * 4;
        // SAFETY: they follow the seek points.
        unsafe { std::slice::from_raw_parts(self.0.add(start).as_ptr(), header.keys_bytes as usize) }
    }

    /// Where the body begins.
    pub fn body(&self) -> NonNull<u8> {
        let header = self.header();
        // SAFETY: it follows the seek keys.
        unsafe { self.0.add(HEADER_BYTES + header.points as usize * 4 + header.keys_bytes as usize) }
    }
}
