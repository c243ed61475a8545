//! [`Slot`]: all that is kept in memory of one cached block, 64 bytes; and [`Slots`], the table of them.
//!
//! Only the holder of the shard's lock writes, with two exceptions: `uses` (a hit) and `pins` (a clone of a handle).
//!
//! A slot is *live* while its `version` is odd. Whoever changes key or place makes it even first and odd after, so a
//! reader that saw the same odd version before and after pinning has a consistent slot that nothing changes while the
//! pin lasts. The table of a file engine lies in a mapped file, and a process that dies halfway leaves an even version:
//! a slot that the next start does not believe.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use super::mapping::Mapping;
use super::rows::NO_ROW;
use super::sync::{AtomicU8, AtomicU32, AtomicU64, IS_MACHINE};

/// No slot. Slot 0 is the sentinel of the list by address.
pub(crate) const NONE: u32 = 0;

/// Places and lengths are multiples of this.
pub(crate) const UNIT_BYTES: u64 = 8;

const LENGTH_BITS: u32 = 24;
/// No frame is longer.
pub(crate) const FRAME_BYTES_MAX: u64 = ((1 << LENGTH_BITS) - 1) * UNIT_BYTES;
/// No shard is larger.
pub(crate) const SHARD_BYTES_MAX: u64 = (1 << (64 - LENGTH_BITS)) * UNIT_BYTES;

/// See the module. Zeroes are a free slot.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Slot {
    pub version: AtomicU32,
    /// How often it was hit lately, up to a few.
    pub uses: AtomicU8,
    /// The queue it is in; see `policy`.
    pub queue: AtomicU8,
    /// Whether this process has checked, or written, the frame. Only asked for in file engines.
    pub verified: AtomicU8,
    /// Whether it is a row, and whether that can be served; see `rows`.
    pub row: AtomicU8,
    /// The file, folded to 64 bits; the frame has all of it.
    pub file: AtomicU64,
    pub offset: AtomicU64,
    /// Extent and length of the frame; see [`Extent`].
    pub extent: AtomicU64,
    pub on_disk_bytes: AtomicU32,
    /// Pins that are not in a stripe of `pin`.
    pub pins: AtomicU32,
    /// The next slot of the bucket, or of the free list.
    pub chain: AtomicU32,
    pub newer: AtomicU32,
    pub older: AtomicU32,
    /// The slots whose frames lie before and after.
    pub before: AtomicU32,
    pub after: AtomicU32,
    /// Of the sentinel: how many slots were ever used. Of a row that is held: by whom.
    pub extra: AtomicU32,
}

const _: () = assert!(size_of::<Slot>() == 64 || !IS_MACHINE);

/// Where a frame lies in its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub start: u64,
    pub len: u64,
}

impl Extent {
    pub fn end(self) -> u64 {
        self.start + self.len
    }

    pub fn pack(self) -> u64 {
        debug_assert!(self.start.is_multiple_of(UNIT_BYTES) && self.len.is_multiple_of(UNIT_BYTES));
        ((self.start / UNIT_BYTES) << LENGTH_BITS) | (self.len / UNIT_BYTES)
    }

    pub fn unpack(word: u64) -> Self {
        let units = word & ((1 << LENGTH_BITS) - 1);
        Self { start: (word >> LENGTH_BITS) * UNIT_BYTES, len: units * UNIT_BYTES }
    }
}

/// No slot counts more uses.
pub(crate) const USES_MAX: u8 = 3;

impl Slot {
    pub fn is_live(version: u32) -> bool {
        version & 1 == 1
    }

    /// Counts a hit. A hot block's line is not written again once it has the most.
    #[inline]
    pub fn record_hit(&self) {
        let uses = self.uses.load(Relaxed);
        if uses < USES_MAX {
            self.uses.store(uses + 1, Relaxed);
        }
    }

    #[inline]
    pub fn is_row(&self) -> bool {
        self.row.load(Relaxed) != NO_ROW
    }

    pub fn extent(&self) -> Extent {
        Extent::unpack(self.extent.load(Relaxed))
    }

    /// Ends the version: no reader can pin it from here on.
    pub fn retire(&self) {
        let version = self.version.load(Relaxed);
        self.version.store((version | 1).wrapping_add(1), SeqCst);
    }

    /// Begins a version.
    pub fn revive(&self) {
        let version = self.version.load(Relaxed);
        self.version.store((version | 1).wrapping_add(u32::from(Self::is_live(version)) * 2), SeqCst);
    }

    #[inline]
    pub fn has_key(&self, file: u64, offset: u64) -> bool {
        self.file.load(Relaxed) == file && self.offset.load(Relaxed) == offset
    }

    #[inline]
    pub fn live_version(&self) -> Option<u32> {
        let version = self.version.load(Acquire);
        Self::is_live(version).then_some(version)
    }
}

/// A table of slots, in part of a mapping.
#[derive(Debug)]
pub(crate) struct Slots {
    /// Kept for its memory.
    _mapping: Arc<Mapping>,
    first: NonNull<Slot>,
    count: u32,
}

// SAFETY: a pointer into the mapping, which is Send and Sync, to atomics only.
unsafe impl Send for Slots {}
// SAFETY: as above.
unsafe impl Sync for Slots {}

impl Slots {
    /// Bytes of a table of `count` slots, the sentinel counted.
    pub fn bytes(count: u32) -> usize {
        count as usize * size_of::<Slot>()
    }

    /// The table at `start` of a mapping.
    ///
    /// # Panics
    /// When it does not fit, or is not aligned.
    pub fn new(mapping: Arc<Mapping>, start: usize, count: u32) -> Self {
        let first = mapping.at(start).cast::<Slot>();
        assert!(start + Self::bytes(count) <= mapping.len() && first.is_aligned());
        Self { _mapping: mapping, first, count }
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    /// A slot; the sentinel for a number that is none of the table's (from a damaged file).
    #[inline]
    pub fn get(&self, id: u32) -> &Slot {
        let id = if id < self.count { id } else { NONE };
        // SAFETY: within the table, which lies in the mapping that `self` keeps. A slot is all atomics, for which any
        // bytes are values.
        unsafe { self.first.add(id as usize).as_ref() }
    }

    /// The addresses of its slots.
    pub fn addresses(&self) -> std::ops::Range<usize> {
        let start = self.first.as_ptr() as usize;
        start..start + Self::bytes(self.count)
    }
}
