//! [`Storage`]: where the frames of one shard are stored.
//!
//! | engine | storage | a reader gets |
//! |---|---|---|
//! | LruBlockCache, `offheap`, `heap` | memory of the process | the pinned frame |
//! | `mmap:`, `pmem:` | a mapped file | the pinned frame, verified once |
//! | `file:`, `files:` | a file, `pread` and `pwrite` | a copy on the heap, verified each time |

#![deny(clippy::indexing_slicing)]

use evenkeel_common::length;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::Arc;

use evenkeel_fs::page_cache;

use super::frame::{self, FrameRef, HEADER_BYTES, Header};
use super::idle_pages::PAGE_BYTES;
use super::mapping::Mapping;
use super::slot::Extent;
use crate::{Block, BlockKey};

/// The fill byte of freed memory in tests.
pub(crate) const POISON: u8 = 0xDB;

/// See the module.
#[derive(Debug)]
pub(crate) enum Storage {
    /// Frames in memory that readers share. `start` is the shard's offset in the mapping.
    Mapped { mapping: Arc<Mapping>, start: u64, durable: bool },
    /// Frames in a file. `start` is the shard's offset in it.
    File { file: Arc<File>, start: u64 },
}

impl Storage {
    /// Returns true if frames outlive the process, so they carry checksums.
    pub fn is_durable(&self) -> bool {
        !matches!(self, Self::Mapped { durable: false, .. })
    }

    /// Writes a block's frame. The caller guarantees that the extent is unused.
    ///
    /// # Errors
    /// I/O errors.
    pub fn write(&self, extent: Extent, key: &BlockKey, block: &Block) -> io::Result<()> {
        let mut header = Header::of(key, block);
        if self.is_durable() {
            let bytes = header.to_bytes();
            let [_, rest @ ..] = frame::parts(&bytes, block);
            header.checksum = frame::checksum(header, &rest);
        }
        let bytes = header.to_bytes();
        let parts = frame::parts(&bytes, block);
        match self {
            Self::Mapped { .. } => {
                let mut to = self.address(extent.start);
                for part in parts {
                    // SAFETY: the extent's length was computed from these parts, and no live slot
                    // has the extent, so nothing else reads or writes it.
                    unsafe {
                        to.as_ptr().copy_from_nonoverlapping(part.as_ptr(), part.len());
                        to = to.add(part.len());
                    }
                }
                Ok(())
            }
            Self::File { file, start } => {
                let mut whole = Vec::with_capacity(length::index(extent.len));
                parts.iter().for_each(|part| whole.extend_from_slice(part));
                file.write_all_at(&whole, start + extent.start)
            }
        }
    }

    /// Copies a frame. The extents may overlap. No thread reads or writes `from`, and the rest of
    /// the target belongs to the caller. If a file fails during an overlapping copy, it leaves a
    /// torn frame, which its checksum reveals.
    ///
    /// # Errors
    /// I/O errors.
    pub fn copy(&self, from: Extent, to: u64) -> io::Result<()> {
        match self {
            Self::Mapped { .. } => {
                let (from_at, to_at) = (self.address(from.start), self.address(to));
                // SAFETY: both are within the shard, and nothing else reads or writes them.
                unsafe { to_at.as_ptr().copy_from(from_at.as_ptr(), length::index(from.len)) };
                Ok(())
            }
            Self::File { file, start } => {
                let mut bytes = vec![0; length::index(from.len)];
                let read = read_up_to(file, start + from.start, &mut bytes)?;
                file.write_all_at(bytes.get(..read).unwrap_or(&bytes), start + to)
            }
        }
    }

    /// The frame at a pinned extent, if readers share the memory.
    #[inline]
    pub fn frame(&self, extent: Extent) -> Option<FrameRef> {
        match self {
            // SAFETY: extents are multiples of eight in a page-aligned mapping, and the caller's
            // pin keeps the frame.
            Self::Mapped { .. } => Some(unsafe { FrameRef::new(self.address(extent.start)) }),
            Self::File { .. } => None,
        }
    }

    /// Reads and verifies a copy of the frame at a pinned extent. `None` if it is not a frame of
    /// the key.
    ///
    /// # Errors
    /// I/O errors.
    pub fn read(&self, extent: Extent, key: &BlockKey) -> io::Result<Option<Block>> {
        let Self::File { file, start } = self else { return Ok(None) };
        let mut bytes = vec![0; length::index(extent.len)];
        let read = read_up_to(file, start + extent.start, &mut bytes)?;
        bytes.truncate(read);
        Ok(block_in(bytes, key))
    }

    /// As [`Storage::read`], from the kernel's page cache only. `None` if part of the frame may be
    /// missing there.
    pub fn read_nowait(&self, extent: Extent, key: &BlockKey) -> Option<Option<Block>> {
        let Self::File { file, start } = self else { return Some(None) };
        let mut bytes = vec![0; length::index(extent.len)];
        page_cache::read(file, start + extent.start, &mut bytes).then(|| block_in(bytes, key))
    }

    /// Returns true if the mapped frame at a pinned extent is whole and belongs to the key.
    pub fn verify(&self, extent: Extent, key: &BlockKey) -> bool {
        match self {
            Self::Mapped { .. } => {
                let at = self.address(extent.start);
                // SAFETY: within the shard (recovery checked the extent), and pinned.
                let bytes = unsafe { std::slice::from_raw_parts(at.as_ptr(), length::index(extent.len)) };
                frame::verify(bytes, key).is_some()
            }
            Self::File { .. } => true,
        }
    }

    /// Overwrites freed bytes. For tests.
    pub fn poison(&self, extent: Extent) {
        if let Self::Mapped { .. } = self {
            // SAFETY: within the shard, and no live slot has the extent.
            unsafe { self.address(extent.start).as_ptr().write_bytes(POISON, length::index(extent.len)) };
        }
    }

    /// The offset in the shard of the first whole huge page, if the shard is in memory of this
    /// process.
    pub fn first_page(&self) -> Option<u64> {
        match self {
            Self::Mapped { durable: false, .. } => {
                let address = self.address(0).as_ptr().addr() as u64;
                Some(address.next_multiple_of(PAGE_BYTES) - address)
            }
            _ => None,
        }
    }

    /// Returns a huge page to the kernel. It reads as zeros afterwards. `at` is the start of a
    /// whole page without a frame.
    pub fn release_page(&self, at: u64) {
        if let Self::Mapped { mapping, start, durable: false } = self {
            mapping.release(length::index(start + at), length::index(PAGE_BYTES));
        }
    }

    fn address(&self, at: u64) -> NonNull<u8> {
        match self {
            Self::Mapped { mapping, start, .. } => mapping.at(length::index(start + at)),
            Self::File { .. } => unreachable!("only mapped storage has addresses"),
        }
    }
}

/// Returns the block in a frame's bytes, if they are a frame of the key.
fn block_in(bytes: Vec<u8>, key: &BlockKey) -> Option<Block> {
    frame::verify(&bytes, key).and_then(|header| frame::to_heap(header, bytes))
}

/// Reads until the buffer is full or the file ends: the padding of the last frame is never written.
fn read_up_to(file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done.max(HEADER_BYTES.min(bytes.len())))
}
