//! Concurrent operations of a few threads, for one variant of the core.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use loom::cell::UnsafeCell;
use loom::thread;

use super::mapping::Mapping;
use super::pin::{self, Pin};
use super::slot::{Extent, Slot, Slots, UNIT_BYTES};

/// The slot under test.
const ID: u32 = 1;
/// The content of a free frame.
const POISON: u64 = u64::MAX;

/// One slot and two frames; the first frame holds block 1. loom fails on concurrent access to a
/// frame.
struct Shard {
    slots: Slots,
    frames: [UnsafeCell<u64>; 2],
}

// SAFETY: loom checks all accesses to a frame. The rest is shared as in a cache.
unsafe impl Send for Shard {}
// SAFETY: as above.
unsafe impl Sync for Shard {}

/// A block held by a reader.
struct HeldBlock {
    shard: Arc<Shard>,
    pin: Pin,
    block: u64,
}

impl Shard {
    fn new() -> Arc<Self> {
        let slots = Slots::new(Arc::new(Mapping::of_slots(2)), 0, 2);
        let shard = Self { slots, frames: [1, POISON].map(UnsafeCell::new) };
        shard.fill(1, 0);
        Arc::new(shard)
    }

    fn slot(&self) -> &Slot {
        self.slots.get(ID)
    }

    fn write(&self, frame: usize, block: u64) {
        // SAFETY: loom fails if another thread reads or writes the frame concurrently.
        self.frames[frame].with_mut(|frame| unsafe { *frame = block });
    }

    fn read(&self, frame: usize) -> u64 {
        // SAFETY: loom fails if another thread writes the frame concurrently.
        self.frames[frame].with(|frame| unsafe { *frame })
    }

    fn fill(&self, block: u64, frame: usize) {
        self.write(frame, block);
        self.slot().file.store(block, Relaxed);
        self.slot().extent.store(extent(frame), Relaxed);
        self.slot().revive();
    }

    /// Acts as a reader that reached the slot by the hash chain.
    fn get(self: &Arc<Self>, block: u64) -> Option<HeldBlock> {
        let slot = self.slot();
        let version = slot.live_version().filter(|_| slot.has_key(block, 0))?;
        let pin = Pin::take(slot, version)?;
        Some(HeldBlock { shard: Arc::clone(self), pin, block })
    }

    /// Frees a retired block unless it is pinned. Returns true if it was freed.
    fn free(&self) -> bool {
        let is_free = !pin::is_pinned(self.slot());
        if is_free {
            self.write(0, POISON);
        }
        is_free
    }
}

impl HeldBlock {
    fn check(&self) {
        let frame = (self.pin.slot().extent().start / UNIT_BYTES) as usize;
        assert_eq!(self.shard.read(frame), self.block, "another block's bytes");
    }

    fn copy(&self) -> Self {
        Self { shard: Arc::clone(&self.shard), pin: self.pin.clone(), block: self.block }
    }
}

fn extent(frame: usize) -> u64 {
    Extent { start: frame as u64 * UNIT_BYTES, len: UNIT_BYTES }.pack()
}

fn reader(shard: &Arc<Shard>, read: impl Fn(&Arc<Shard>) + Send + 'static) -> thread::JoinHandle<()> {
    let shard = Arc::clone(shard);
    thread::spawn(move || read(&shard))
}

/// Evicts block 1 unless it is pinned, and puts block 2 into its slot and frame.
pub(in super::super) fn evict_and_reuse() {
    let shard = Shard::new();
    let other = reader(&shard, |shard| {
        for block in [1, 2] {
            if let Some(held) = shard.get(block) {
                held.check();
            }
        }
    });
    shard.slot().retire();
    let is_pinned = pin::is_pinned(shard.slot());
    if is_pinned {
        shard.slot().revive();
    } else {
        shard.fill(2, 0);
    }
    other.join().expect("reads");
    let left = shard.get(if is_pinned { 1 } else { 2 }).expect("is there");
    left.check();
    assert!(pin::is_pinned(shard.slot()));
    drop(left);
    assert_eq!(pin::count(&shard.slots), 0);
}

/// Moves block 1 to another frame unless it is pinned, and overwrites the old frame.
pub(in super::super) fn move_away() {
    let shard = Shard::new();
    let readers = [(); 2].map(|()| {
        reader(&shard, |shard| {
            if let Some(held) = shard.get(1) {
                held.check();
            }
        })
    });
    shard.slot().retire();
    if !pin::is_pinned(shard.slot()) {
        shard.write(1, shard.read(0));
        shard.slot().extent.store(extent(1), Relaxed);
        shard.write(0, POISON);
    }
    shard.slot().revive();
    readers.into_iter().for_each(|reader| reader.join().expect("reads"));
    shard.get(1).expect("is there").check();
    assert_eq!(pin::count(&shard.slots), 0);
}

/// Removes block 1 while a reader has two pins on it, the second one counted. It is freed after
/// both are gone.
pub(in super::super) fn two_pins_and_a_retirement() {
    let shard = Shard::new();
    let other = reader(&shard, |shard| {
        let (first, second) = (shard.get(1), shard.get(1));
        first.iter().for_each(HeldBlock::check);
        drop(first);
        second.iter().for_each(HeldBlock::check);
    });
    shard.slot().retire();
    let is_free = shard.free() || shard.free();
    other.join().expect("reads");
    assert!(is_free || shard.free(), "it is no longer read");
    assert!(shard.get(1).is_none());
    assert_eq!(pin::count(&shard.slots), 0);
}

/// Removes block 1 while a reader clones its handle and drops the original.
pub(in super::super) fn a_clone_and_a_retirement() {
    let shard = Shard::new();
    let other = reader(&shard, |shard| {
        let Some(held) = shard.get(1) else { return };
        let copy = held.copy();
        drop(held);
        copy.check();
    });
    shard.slot().retire();
    let is_free = shard.free();
    other.join().expect("reads");
    assert!(is_free || shard.free(), "it is no longer read");
    assert_eq!(pin::count(&shard.slots), 0);
}
