//! What a few threads do at once, for one way of compiling the core.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use loom::cell::UnsafeCell;
use loom::thread;

use super::mapping::Mapping;
use super::pin::{self, Pin};
use super::slot::{Extent, Slot, Slots, UNIT_BYTES};

/// The slot that all is about.
const ID: u32 = 1;
/// What a frame holds that belongs to nobody.
const POISON: u64 = u64::MAX;

/// One slot and two frames, of which the first holds block 1. loom fails when one is read and written at once.
struct Shard {
    slots: Slots,
    frames: [UnsafeCell<u64>; 2],
}

// SAFETY: loom watches who reads and who writes a frame; the rest is shared as in a cache.
unsafe impl Send for Shard {}
// SAFETY: as above.
unsafe impl Sync for Shard {}

/// A block that a reader holds.
struct Held {
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
        // SAFETY: loom fails when another thread reads or writes it now.
        self.frames[frame].with_mut(|frame| unsafe { *frame = block });
    }

    fn read(&self, frame: usize) -> u64 {
        // SAFETY: loom fails when another thread writes it now.
        self.frames[frame].with(|frame| unsafe { *frame })
    }

    fn fill(&self, block: u64, frame: usize) {
        self.write(frame, block);
        self.slot().file.store(block, Relaxed);
        self.slot().extent.store(extent(frame), Relaxed);
        self.slot().revive();
    }

    /// As a reader that came by the chain to the slot.
    fn get(self: &Arc<Self>, block: u64) -> Option<Held> {
        let slot = self.slot();
        let version = slot.live_version().filter(|_| slot.has_key(block, 0))?;
        let pin = Pin::take(slot, version)?;
        Some(Held { shard: Arc::clone(self), pin, block })
    }

    /// Whether a retired block could be freed.
    fn free(&self) -> bool {
        let is_free = !pin::is_pinned(self.slot());
        if is_free {
            self.write(0, POISON);
        }
        is_free
    }
}

impl Held {
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

/// Block 1 is evicted, unless someone reads it, and block 2 is put in its slot and frame.
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

/// Block 1 goes to another frame, unless someone reads it, and its old one is overwritten.
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

/// Block 1 is forgotten while a reader has two pins of it, of which the second is counted. It is freed once both are gone.
pub(in super::super) fn two_pins_and_a_retirement() {
    let shard = Shard::new();
    let other = reader(&shard, |shard| {
        let (first, second) = (shard.get(1), shard.get(1));
        first.iter().for_each(Held::check);
        drop(first);
        second.iter().for_each(Held::check);
    });
    shard.slot().retire();
    let is_free = shard.free() || shard.free();
    other.join().expect("reads");
    assert!(is_free || shard.free(), "nobody reads it any more");
    assert!(shard.get(1).is_none());
    assert_eq!(pin::count(&shard.slots), 0);
}

/// Block 1 is forgotten while a reader hands a copy of its handle on and lets go of its own.
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
    assert!(is_free || shard.free(), "nobody reads it any more");
    assert_eq!(pin::count(&shard.slots), 0);
}
