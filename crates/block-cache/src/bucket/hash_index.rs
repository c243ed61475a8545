//! [`HashIndex`]: from a key's hash to its slot, by linear hashing.
//!
//! Slots form chains, about one slot per bucket. The table grows by one bucket at a time, in memory
//! that was reserved at the start, so no insert pays for a rehash. Readers walk chains without a
//! lock. A walk during a change may end early or in another chain, after a bounded number of steps.
//! It finds a slot with the key or none, and a caller that needs certainty repeats it under the
//! shard's lock.

use evenkeel_common::length;
use std::io;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::mapping::Mapping;
use super::slot::{NONE, Slot, Slots};

/// Buckets of an empty table.
const BUCKETS_MIN: u32 = 16;
/// The maximum of steps in a chain; an intact chain is shorter.
const STEPS_MAX: usize = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct HashIndex {
    heads: Mapping,
    len: AtomicU32,
}

impl HashIndex {
    /// A table for at most `slots` slots.
    ///
    /// # Errors
    /// `OutOfMemory` without address space.
    pub fn new(slots: u32) -> io::Result<Self> {
        let heads = Mapping::anonymous(slots.max(BUCKETS_MIN) as usize * size_of::<AtomicU32>())?;
        Ok(Self { heads, len: AtomicU32::new(BUCKETS_MIN) })
    }

    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        self.len.load(Relaxed) as usize * size_of::<AtomicU32>()
    }

    fn max(&self) -> u32 {
        length::must_u32(self.heads.len() / size_of::<AtomicU32>())
    }

    fn head(&self, bucket: u32) -> &AtomicU32 {
        assert!(bucket < self.max());
        // SAFETY: within the mapping, which is page-aligned. Every bit pattern is a valid
        // AtomicU32.
        unsafe { self.heads.base().cast::<AtomicU32>().add(bucket as usize).as_ref() }
    }

    /// The slots that may have a key with this hash.
    #[inline]
    pub fn chain<'a>(&self, slots: &'a Slots, hash: u64) -> impl Iterator<Item = (u32, &'a Slot)> {
        let first = self.head(bucket_of(hash, self.len.load(Acquire))).load(Acquire);
        let next = |id: u32| (id != NONE).then(|| (id, slots.get(id)));
        std::iter::successors(next(first), move |(_, slot)| next(slot.chain.load(Acquire))).take(STEPS_MAX)
    }

    /// Adds a slot. Requires the lock. `live` is the number of live slots with it.
    pub fn add(&self, slots: &Slots, hash: u64, id: u32, live: u32) {
        let head = self.head(bucket_of(hash, self.len.load(Relaxed)));
        slots.get(id).chain.store(head.load(Relaxed), Release);
        head.store(id, Release);
        while self.len.load(Relaxed) < live.min(self.max()) {
            self.grow(slots);
        }
    }

    /// Removes a slot. Requires the lock.
    pub fn remove(&self, slots: &Slots, hash: u64, id: u32) {
        let mut link = self.head(bucket_of(hash, self.len.load(Relaxed)));
        loop {
            let at = link.load(Relaxed);
            if at == id {
                return link.store(slots.get(id).chain.load(Relaxed), Release);
            }
            if at == NONE {
                return;
            }
            link = &slots.get(at).chain;
        }
    }

    /// Adds a bucket, and moves the slots that belong to it out of the bucket that it splits.
    fn grow(&self, slots: &Slots) {
        let new = self.len.load(Relaxed);
        let old = new - (new + 1).next_power_of_two() / 2;
        let mut rest = self.head(old).swap(NONE, Release);
        self.len.store(new + 1, Release);
        while rest != NONE {
            let slot = slots.get(rest);
            let next = slot.chain.load(Relaxed);
            let hash = super::hash(slot.file.load(Relaxed), slot.offset.load(Relaxed));
            let head = self.head(bucket_of(hash, new + 1));
            slot.chain.store(head.load(Relaxed), Release);
            head.store(rest, Release);
            rest = next;
        }
    }
}

fn bucket_of(hash: u64, len: u32) -> u32 {
    let mask = len.next_power_of_two() - 1;
    let bucket = length::low_u32(hash) & mask;
    if bucket < len { bucket } else { bucket & (mask >> 1) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn every_slot_is_found_while_the_table_grows_and_shrinks() {
        let count = 5000;
        let mapping = Arc::new(Mapping::anonymous(Slots::bytes(count)).unwrap());
        let slots = Slots::new(mapping, 0, count);
        let buckets = HashIndex::new(count).unwrap();
        let hash = |id: u32| crate::bucket::hash(u64::from(id) % 7, u64::from(id));
        let has = |id: u32| buckets.chain(&slots, hash(id)).any(|(found, _)| found == id);
        for id in 1..count {
            slots.get(id).file.store(u64::from(id) % 7, Relaxed);
            slots.get(id).offset.store(u64::from(id), Relaxed);
            buckets.add(&slots, hash(id), id, id);
        }
        assert!((1..count).all(has));
        let longest = (1..count).map(|id| buckets.chain(&slots, hash(id)).count()).max().unwrap();
        assert!(longest < 20, "{longest}");
        (1..count).step_by(2).for_each(|id| buckets.remove(&slots, hash(id), id));
        assert!((1..count).all(|id| has(id) == id.is_multiple_of(2)));
    }
}
