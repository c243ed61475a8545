//! [`Pin`]: keeps a slot's frame in place for a reader.
//!
//! With a reference count in the slot, all cores that read a hot block would contend for its cache
//! line. So a pin is a hazard pointer, an entry in a stripe that belongs to the thread: taking it
//! writes only memory of this core. A thread that moves or frees a frame scans all stripes in use,
//! and so pays the cost.
//!
//! * Taking a pin: write the slot's address into an entry, then check that the slot's version is
//!   still the live one that was found.
//! * Freeing: make the version even, then search the entries for the address. All four accesses are
//!   sequentially consistent, so one of the two threads sees the other.
//! * A clone, and a pin without a free entry in its stripe, increments the count in the slot. A
//!   thread that frees reads the entries first and the count afterwards, and a clone is counted
//!   before its original can be dropped. So no pin is missed.
//!
//! Stripes belong to the process, not to a cache. Pins may outlive their cache, whose memory is
//! kept then (see [`super::retired`]).

#![allow(clippy::indexing_slicing, reason = "indexes come from the lengths of the arrays")]

use evenkeel_common::length;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use super::slot::{Slot, Slots};
use super::sync::{AtomicUsize, ENTRIES, STRIPES, array, fence, shared, thread_local};

#[derive(Debug)]
#[repr(align(128))]
struct Stripe {
    /// The number of entries ever used.
    used: AtomicUsize,
    entries: [AtomicUsize; ENTRIES],
}

shared!(PINS: [Stripe; STRIPES] = array![
    Stripe { used: AtomicUsize::new(0), entries: array![AtomicUsize::new(0); ENTRIES] };
    STRIPES
]);
shared!(
    /// The number of threads that have taken a pin.
    THREADS: AtomicUsize = AtomicUsize::new(0)
);

thread_local! {
    /// This thread's stripe, and the entry to try first.
    static MINE: Cell<(u16, u16)> = Cell::new((length::must_u16(THREADS.fetch_add(1, SeqCst) % STRIPES), 0));
}

/// The pin is counted in the slot.
const COUNTED: u16 = u16::MAX;

/// Keeps a slot's frame in place.
#[derive(Debug)]
pub(crate) struct Pin {
    slot: NonNull<Slot>,
    /// Stripe and entry, or [`COUNTED`].
    at: u16,
}

// SAFETY: the slot consists of atomics, and its table stays mapped while a pin exists: dropping a
// cache checks for pins.
unsafe impl Send for Pin {}
// SAFETY: as above.
unsafe impl Sync for Pin {}

impl Pin {
    /// Pins a slot, if `version` is still its live version.
    #[inline]
    pub fn take(slot: &Slot, version: u32) -> Option<Self> {
        let at = take_entry(std::ptr::from_ref(slot) as usize);
        if at == COUNTED {
            slot.pins.fetch_add(1, SeqCst);
        }
        let pin = Self { slot: NonNull::from(slot), at };
        (slot.version.load(SeqCst) == version).then_some(pin)
    }

    /// The pinned slot.
    #[inline]
    pub fn slot(&self) -> &Slot {
        // SAFETY: a table of slots stays mapped while it has pins.
        unsafe { self.slot.as_ref() }
    }
}

impl Clone for Pin {
    fn clone(&self) -> Self {
        self.slot().pins.fetch_add(1, SeqCst);
        Self { slot: self.slot, at: COUNTED }
    }
}

impl Drop for Pin {
    #[inline]
    fn drop(&mut self) {
        if self.at == COUNTED {
            self.slot().pins.fetch_sub(1, SeqCst);
            return;
        }
        let (stripe, entry) = (self.at / length::must_u16(ENTRIES), self.at % length::must_u16(ENTRIES));
        PINS[stripe as usize].entries[entry as usize].store(0, Release);
        // While the thread ends there is no hint to update.
        let _ = MINE.try_with(|mine| {
            if mine.get().0 == stripe {
                mine.set((stripe, entry));
            }
        });
    }
}

#[inline]
fn take_entry(address: usize) -> u16 {
    let (stripe, hint) = MINE.try_with(Cell::get).unwrap_or((0, 0));
    let own = &PINS[stripe as usize];
    for i in 0..ENTRIES {
        let entry = (hint as usize + i) % ENTRIES;
        let free = own.entries[entry].load(Relaxed) == 0;
        if free {
            if own.used.load(SeqCst) <= entry {
                own.used.fetch_max(entry + 1, SeqCst);
            }
            if own.entries[entry].compare_exchange(0, address, SeqCst, Relaxed).is_ok() {
                return stripe * length::must_u16(ENTRIES) + length::must_u16(entry);
            }
        }
    }
    COUNTED
}

/// Returns true if the slot is pinned. If its version is even, a false result stays false.
pub(crate) fn is_pinned(slot: &Slot) -> bool {
    let address = std::ptr::from_ref(slot) as usize;
    fence(SeqCst);
    entries().any(|held| held == address) || slot.pins.load(SeqCst) > 0
}

/// The number of pins on the slots of a table.
pub(crate) fn count(slots: &Slots) -> usize {
    let addresses = slots.addresses();
    fence(SeqCst);
    let striped = entries().filter(|held| addresses.contains(held)).count();
    striped + (0..slots.count()).map(|id| slots.get(id).pins.load(SeqCst) as usize).sum::<usize>()
}

/// Returns true if any of the first `used` slots of a table is pinned.
pub(crate) fn any_pinned(slots: &Slots, used: u32) -> bool {
    let addresses = slots.addresses();
    fence(SeqCst);
    entries().any(|held| addresses.contains(&held)) || (0..used).any(|id| slots.get(id).pins.load(SeqCst) > 0)
}

fn entries() -> impl Iterator<Item = usize> {
    let stripes = THREADS.load(SeqCst).min(STRIPES);
    PINS[..stripes.max(1)].iter().flat_map(|stripe| {
        let used = stripe.used.load(SeqCst);
        stripe.entries[..used].iter().map(|entry| entry.load(SeqCst))
    })
}
