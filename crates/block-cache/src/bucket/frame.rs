//! A frame: one block as it is stored in a cache's memory or file, with its key.
//!
//! ```text
//! u64 x 2 file id | u64 offset | i64 offset of the previous block of its type
//! u32 checksum | u32 on-disk bytes | u32 body bytes | u32 seek points | u32 seek key bytes
//! u16 format | u8 block type | u8 flags
//! seek points (u32 each) | seek keys | body | up to 7 bytes of padding
//! ```
//!
//! All numbers are in the machine's byte order: a cache's file is only read on the machine that
//! wrote it. The checksum (CRC32C) covers the frame without padding, with zero in place of the
//! checksum itself. Only file engines write and verify it.

#![deny(clippy::indexing_slicing)]

use std::ptr::NonNull;

use crc_fast::{CrcAlgorithm, Digest};
use evenkeel_common::cache_line::prefetch;
use evenkeel_common::length;

use super::slot::UNIT_BYTES;
use crate::{Block, BlockKey, BlockParts, BlockType, FileId};

/// Changes whenever the layout of a frame or the meaning of seek points changes. A frame of another
/// version is a miss.
pub(crate) const FORMAT: u16 = 2;

/// Bytes before seek points, keys and body.
pub(crate) const HEADER_BYTES: usize = 56;

const COMPRESSED: u8 = 1;

/// See the module. It has no padding, and every bit pattern is valid.
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
    /// The header of a block under a key, with a checksum of 0.
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
        // SAFETY: both types have the same size and no padding.
        unsafe { std::mem::transmute(self) }
    }

    pub fn from_bytes(bytes: [u8; HEADER_BYTES]) -> Self {
        // SAFETY: both types have the same size, and every bit pattern is a valid header.
        unsafe { std::mem::transmute(bytes) }
    }

    /// The header at the start of `bytes`.
    pub fn at_start(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().map(|bytes| Self::from_bytes(*bytes))
    }

    /// The block's key.
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

    /// The start and end of the body in the frame. `None` on overflow.
    pub fn body(&self) -> Option<(usize, usize)> {
        let start = HEADER_BYTES + self.points as usize * 4 + self.keys_bytes as usize;
        start.checked_add(self.body_bytes as usize).map(|end| (start, end))
    }

    /// The frame's bytes with padding.
    pub fn frame_bytes(&self) -> Option<u64> {
        self.body().map(|(_, end)| (end as u64).next_multiple_of(UNIT_BYTES))
    }

    /// Returns true if this is a frame of the key and fits into `len` bytes.
    pub fn is_of(&self, key: &BlockKey, len: u64) -> bool {
        self.key() == *key
            && self.format == FORMAT
            && self.kind().is_some()
            && self.frame_bytes().is_some_and(|bytes| bytes <= len)
    }
}

/// The consecutive parts of a frame.
pub(crate) fn parts<'a>(header: &'a [u8; HEADER_BYTES], block: &'a Block) -> [&'a [u8]; 4] {
    let points = block.seek_points();
    // SAFETY: initialized integers, viewed as bytes.
    let points = unsafe { std::slice::from_raw_parts(points.as_ptr().cast(), size_of_val(points)) };
    [header, points, block.seek_keys(), block.data()]
}

/// The checksum of a frame. The first part begins with the header.
pub(crate) fn checksum(header: Header, rest: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&Header { checksum: 0, ..header }.to_bytes());
    rest.iter().for_each(|part| digest.update(part));
    (digest.finalize() & 0xffff_ffff) as u32
}

/// Returns the header if `bytes` are a whole frame of the key with the right checksum.
pub(crate) fn verify(bytes: &[u8], key: &BlockKey) -> Option<Header> {
    let header = Header::at_start(bytes).filter(|header| header.is_of(key, bytes.len() as u64))?;
    let (_, end) = header.body()?;
    (checksum(header, &[bytes.get(HEADER_BYTES..end)?]) == header.checksum).then_some(header)
}

/// Makes a block on the heap from the bytes of a verified frame.
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

/// A reference to a frame in mapped memory. A pin keeps the frame in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameRef(NonNull<u8>);

impl FrameRef {
    /// # Safety
    /// `start` is aligned to eight bytes, and a whole frame is there for as long as this is used.
    pub unsafe fn new(start: NonNull<u8>) -> Self {
        Self(start)
    }

    /// Prefetches the header.
    #[inline]
    pub fn prefetch_header(&self) {
        prefetch(self.0.as_ptr());
    }

    #[inline]
    pub fn header(&self) -> &Header {
        // SAFETY: `new` requires an aligned frame, which begins with a header and stays in place.
        unsafe { self.0.cast().as_ref() }
    }

    #[inline]
    pub fn seek_points(&self) -> &[u32] {
        let points = self.header().points as usize;
        // SAFETY: the seek points follow the header, whose size keeps the alignment.
        unsafe { std::slice::from_raw_parts(self.0.add(HEADER_BYTES).cast().as_ptr(), points) }
    }

    #[inline]
    pub fn seek_keys(&self) -> &[u8] {
        let header = self.header();
        let start = HEADER_BYTES + header.points as usize * 4;
        // SAFETY: the seek keys follow the seek points.
        unsafe { std::slice::from_raw_parts(self.0.add(start).as_ptr(), header.keys_bytes as usize) }
    }

    /// The address of the body.
    pub fn body(&self) -> NonNull<u8> {
        let header = self.header();
        // SAFETY: the body follows the seek keys.
        unsafe { self.0.add(HEADER_BYTES + header.points as usize * 4 + header.keys_bytes as usize) }
    }
}
