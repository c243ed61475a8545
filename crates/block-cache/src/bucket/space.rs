//! [`Space`]: which bytes of a shard are free.
//!
//! Frames lie anywhere, in multiples of eight bytes; there are no size classes. Live slots are linked by address, and a
//! *hole* is what lies between one frame and the next, known by the slot before it (slot 0 for the start), so freeing
//! joins holes by itself. A new frame takes the smallest hole that it fits into. When there are bytes enough but in
//! pieces, [`Space::plan`] says which few neighbours to move away; see `shard`.
//!
//! Called with the shard's lock held.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;

use super::slot::{NONE, Slots};

/// Holes looked at for a plan.
const PLANS_TRIED: usize = 6;

/// See the module.
#[derive(Debug)]
pub(crate) struct Space {
    size: u64,
    used: u64,
    /// Length, and the slot before.
    holes: BTreeSet<(u64, u32)>,
}

impl Space {
    /// An empty space of `size` bytes.
    pub fn new(size: u64) -> Self {
        Self { size, used: 0, holes: BTreeSet::from([(size, NONE)]) }
    }

    /// Bytes of frames.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// The slot before the smallest hole of at least `len` bytes.
    pub fn fit(&self, len: u64) -> Option<u32> {
        self.holes.range((len, NONE)..).next().map(|(_, before)| *before)
    }

    /// As [`Space::fit`], but not in the holes before or after these slots.
    fn fit_elsewhere(&self, len: u64, not: &[u32]) -> Option<u32> {
        self.holes.range((len, NONE)..).map(|(_, before)| *before).find(|before| !not.contains(before))
    }

    /// Where the hole after a slot begins.
    pub fn hole_start(slots: &Slots, before: u32) -> u64 {
        slots.get(before).place().end()
    }

    /// Puts a slot, whose place is at the start of the hole, after `before`.
    pub fn link(&mut self, slots: &Slots, before: u32, id: u32) {
        let (slot, previous) = (slots.get(id), slots.get(before));
        let hole = self.hole(slots, before);
        let after = previous.after.load(Relaxed);
        self.forget(hole, before);
        slot.before.store(before, Relaxed);
        slot.after.store(after, Relaxed);
        previous.after.store(id, Relaxed);
        slots.get(after).before.store(id, Relaxed);
        let len = slot.place().len;
        self.used += len;
        // What is left lies after the new slot; before it, nothing unless the slot was put apart (recovery).
        let gap = slot.place().start - previous.place().end();
        self.know(gap, before);
        self.know(hole - gap - len, id);
    }

    /// Takes a slot out; its bytes join the holes around it.
    pub fn unlink(&mut self, slots: &Slots, id: u32) {
        let slot = slots.get(id);
        let (before, after) = (slot.before.load(Relaxed), slot.after.load(Relaxed));
        let (left, right) = (self.hole(slots, before), self.hole(slots, id));
        self.forget(left, before);
        self.forget(right, id);
        slots.get(before).after.store(after, Relaxed);
        slots.get(after).before.store(before, Relaxed);
        let len = slot.place().len;
        self.used -= len;
        self.know(left + len + right, before);
    }

    /// Neighbours to move, each to the slot before its new hole, so that a hole of `len` bytes comes about. `movable`
    /// says which slots may be moved. The plan with the fewest bytes of the holes looked at; slots without a new
    /// hole (`None`) would have to go.
    pub fn plan(&self, slots: &Slots, len: u64, movable: impl Fn(u32) -> bool) -> Option<Vec<u32>> {
        let largest = self.holes.iter().rev().take(PLANS_TRIED);
        let plans = largest.filter_map(|(_, before)| self.plan_from(slots, *before, len, &movable));
        plans.min_by_key(|(bytes, _)| *bytes).map(|(_, movers)| movers)
    }

    fn plan_from(
        &self,
        slots: &Slots,
        before: u32,
        len: u64,
        movable: impl Fn(u32) -> bool,
    ) -> Option<(u64, Vec<u32>)> {
        let (mut total, mut moved, mut movers) = (self.hole(slots, before), 0, Vec::new());
        let mut next = slots.get(before).after.load(Relaxed);
        while total < len {
            if next == NONE || !movable(next) {
                return None;
            }
            let slot = slots.get(next);
            moved += slot.place().len;
            total += slot.place().len + self.hole(slots, next);
            movers.push(next);
            next = slot.after.load(Relaxed);
        }
        Some((moved, movers))
    }

    /// The slot before a hole for a mover of a plan whose other movers are `movers`: none of the holes that the plan
    /// joins.
    pub fn refuge(&self, slots: &Slots, len: u64, movers: &[u32]) -> Option<u32> {
        let mut not = movers.to_vec();
        not.extend(movers.first().map(|first| slots.get(*first).before.load(Relaxed)));
        self.fit_elsewhere(len, &not)
    }

    fn hole(&self, slots: &Slots, before: u32) -> u64 {
        let slot = slots.get(before);
        let end = match slot.after.load(Relaxed) {
            NONE => self.size,
            after => slots.get(after).place().start,
        };
        end - slot.place().end()
    }

    fn know(&mut self, len: u64, before: u32) {
        if len > 0 {
            self.holes.insert((len, before));
        }
    }

    fn forget(&mut self, len: u64, before: u32) {
        if len > 0 {
            self.holes.remove(&(len, before));
        }
    }
}
