//! [`Slot`]: the metadata of one cached block, 64 bytes. [`Slots`]: the table of all slots.
//!
//! Only the holder of the shard's lock writes a slot, with two exceptions: `uses` (a hit) and
//! `pins` (a clone of a handle).
//!
//! A slot is *live* while its `version` is odd. A writer that changes key or extent makes the
//! version even first, and odd afterwards. So a reader that saw the same odd version before and
//! after pinning has a consistent slot, which does not change while the pin lasts. The table of a
//! file engine is in a mapped file. A process that dies during a change leaves an even version, and
//! the next start discards that slot.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use super::mapping::Mapping;
use super::rows::NO_ROW;
use super::sync::{AtomicU8, AtomicU32, AtomicU64, IS_MACHINE};

/// No slot. Slot 0 is the sentinel of the list by address.
pub(crate) const NONE: u32 = 0;

/// Starts and lengths of extents are multiples of this.
pub(crate) const UNIT_BYTES: u64 = 8;

const LENGTH_BITS: u32 = 24;
/// The maximum length of a frame.
pub(crate) const FRAME_BYTES_MAX: u64 = ((1 << LENGTH_BITS) - 1) * UNIT_BYTES;
/// The maximum size of a shard.
pub(crate) const SHARD_BYTES_MAX: u64 = (1 << (64 - LENGTH_BITS)) * UNIT_BYTES;

/// See the module. All zeros are a free slot.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct Slot {
    pub version: AtomicU32,
    /// The number of recent hits, up to [`USES_MAX`].
    pub uses: AtomicU8,
    /// The queue of `policy` that holds the slot.
    pub queue: AtomicU8,
    /// Set once this process has written or verified the frame. Only file engines read it.
    pub verified: AtomicU8,
    /// The state of a row, or `NO_ROW` for a block. See `rows`.
    pub row: AtomicU8,
    /// The file's id folded to 64 bits. The frame holds the whole id.
    pub file: AtomicU64,
    pub offset: AtomicU64,
    /// The packed [`Extent`] of the frame.
    pub extent: AtomicU64,
    pub on_disk_bytes: AtomicU32,
    /// Pins that are not in a stripe of `pin`.
    pub pins: AtomicU32,
    /// The next slot of the hash bucket, or of the free list.
    pub chain: AtomicU32,
    pub newer: AtomicU32,
    pub older: AtomicU32,
    /// The slots with the preceding and the following frame.
    pub before: AtomicU32,
    pub after: AtomicU32,
    /// In the sentinel: the number of slots ever used. In a row being updated: the id of the
    /// update.
    pub extra: AtomicU32,
}

const _: () = assert!(size_of::<Slot>() == 64 || !IS_MACHINE);

/// The range of a frame in its shard.
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

/// The maximum of [`Slot::uses`].
pub(crate) const USES_MAX: u8 = 3;

impl Slot {
    pub fn is_live(version: u32) -> bool {
        version & 1 == 1
    }

    /// Counts a hit. At the maximum it writes nothing, so a hot block's line stays shared.
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

    /// Ends the version. No reader can pin the slot afterwards.
    pub fn retire(&self) {
        let version = self.version.load(Relaxed);
        self.version.store((version | 1).wrapping_add(1), SeqCst);
    }

    /// Begins a new version.
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

/// A table of slots in part of a mapping.
#[derive(Debug)]
pub(crate) struct Slots {
    /// Kept to keep its memory mapped.
    _mapping: Arc<Mapping>,
    first: NonNull<Slot>,
    count: u32,
}

// SAFETY: it points into the mapping, which is Send and Sync, and only at atomics.
unsafe impl Send for Slots {}
// SAFETY: as above.
unsafe impl Sync for Slots {}

impl Slots {
    /// Bytes of a table of `count` slots, with the sentinel.
    pub fn bytes(count: u32) -> usize {
        count as usize * size_of::<Slot>()
    }

    /// The table at `start` of a mapping.
    ///
    /// # Panics
    /// If the table does not fit or `start` is not aligned.
    pub fn new(mapping: Arc<Mapping>, start: usize, count: u32) -> Self {
        let first = mapping.at(start).cast::<Slot>();
        assert!(start + Self::bytes(count) <= mapping.len() && first.is_aligned());
        Self { _mapping: mapping, first, count }
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns a slot, or the sentinel if `id` is out of range (from a damaged file).
    #[inline]
    pub fn get(&self, id: u32) -> &Slot {
        let id = if id < self.count { id } else { NONE };
        // SAFETY: `id` is within the table, which is in the mapping that `self` keeps. A slot
        // consists of atomics, for which every bit pattern is valid.
        unsafe { self.first.add(id as usize).as_ref() }
    }

    /// The address range of the table.
    pub fn addresses(&self) -> std::ops::Range<usize> {
        let start = self.first.as_ptr() as usize;
        start..start + Self::bytes(self.count)
    }
}
