//! [`Allocator`]: the free bytes of a shard.
//!
//! A frame may start at any multiple of eight bytes; there are no size classes. Live slots are
//! linked by address. A *hole* is the space between two frames, identified by the slot before it
//! (slot 0 for the start), so freed bytes join the adjacent holes without a search. A new frame
//! takes the smallest hole that it fits into. If enough bytes are free, but not in one hole,
//! [`Allocator::plan_relocation`] selects a few neighbours to move away, and
//! [`Allocator::plan_slide`] a few to slide together; see `shard`.
//!
//! All methods are called with the shard's lock held.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use super::slot::{NONE, Slots};

/// Holes considered for a relocation.
const HOLES_TRIED: usize = 8;

/// The maximum number of blocks relocated for one frame. A larger plan would hold the lock for too
/// long.
const RELOCATED_MAX: usize = 256;
/// The cost of an eviction out of turn, in moves of a block of the same size.
const EVICTION_COST: u64 = 4;

/// Holes considered for a slide, and the maximum number of blocks slid.
const SLIDE_HOLES_TRIED: usize = 8;
const SLIDERS_MAX: usize = 256;

/// The ways in which coalescing may remove a block from its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relocation {
    /// It stays: it is pinned or retired.
    Forbidden,
    /// It may move to another hole.
    Move,
    /// It may move, or be evicted.
    MoveOrEvict,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Allocator {
    size: u64,
    used: u64,
    /// Length, and the slot before the hole.
    holes: BTreeSet<(u64, u32)>,
}

impl Allocator {
    /// An empty space of `size` bytes.
    pub fn new(size: u64) -> Self {
        Self { size, used: 0, holes: BTreeSet::from([(size, NONE)]) }
    }

    /// Bytes of frames.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// The slot before the smallest hole of at least `len` bytes.
    pub fn best_fit(&self, len: u64) -> Option<u32> {
        self.holes.range((len, NONE)..).next().map(|(_, before)| *before)
    }

    /// The holes of at least `len` bytes.
    pub fn holes_of<'a>(&'a self, slots: &'a Slots, len: u64) -> impl Iterator<Item = Range<u64>> + 'a {
        let range = |(len, before): &(u64, u32)| {
            let start = Self::hole_start(slots, *before);
            start..start + len
        };
        self.holes.range((len, NONE)..).map(range)
    }

    /// The start of the hole after a slot.
    pub fn hole_start(slots: &Slots, before: u32) -> u64 {
        slots.get(before).extent().end()
    }

    /// Links a slot, whose extent is at the start of the hole after `before`.
    pub fn link(&mut self, slots: &Slots, before: u32, id: u32) {
        let (slot, previous) = (slots.get(id), slots.get(before));
        let hole = self.hole(slots, before);
        let after = previous.after.load(Relaxed);
        self.remove_hole(hole, before);
        slot.before.store(before, Relaxed);
        slot.after.store(after, Relaxed);
        previous.after.store(id, Relaxed);
        slots.get(after).before.store(id, Relaxed);
        let len = slot.extent().len;
        self.used += len;
        // The rest of the hole is after the new slot. Only recovery leaves a gap before it.
        let gap = slot.extent().start - previous.extent().end();
        self.add_hole(gap, before);
        self.add_hole(hole - gap - len, id);
    }

    /// Unlinks a slot. Its bytes join the adjacent holes.
    pub fn unlink(&mut self, slots: &Slots, id: u32) {
        let slot = slots.get(id);
        let (before, after) = (slot.before.load(Relaxed), slot.after.load(Relaxed));
        let (left, right) = (self.hole(slots, before), self.hole(slots, id));
        self.remove_hole(left, before);
        self.remove_hole(right, id);
        slots.get(before).after.store(after, Relaxed);
        slots.get(after).before.store(before, Relaxed);
        let len = slot.extent().len;
        self.used -= len;
        self.add_hole(left + len + right, before);
    }

    /// Selects blocks to relocate so that a hole of `len` bytes results. Returns the cheapest of
    /// the plans considered. `relocation_of` returns the permitted relocation of a block; see
    /// [`Allocator::relocation_target`].
    pub fn plan_relocation(
        &self,
        slots: &Slots,
        len: u64,
        relocation_of: impl Fn(u32) -> Relocation,
    ) -> Option<Vec<u32>> {
        let largest = self.holes.iter().rev().take(HOLES_TRIED);
        // From the hole to the right, and from its left neighbour.
        let starts = largest.flat_map(|(_, before)| {
            let left = (*before != NONE).then(|| slots.get(*before).before.load(Relaxed));
            [Some(*before), left].into_iter().flatten()
        });
        let plans = starts.filter_map(|before| self.plan_relocation_from(slots, before, len, &relocation_of));
        plans.min_by_key(|(cost, _)| *cost).map(|(_, relocated)| relocated)
    }

    fn plan_relocation_from(
        &self,
        slots: &Slots,
        before: u32,
        len: u64,
        relocation_of: impl Fn(u32) -> Relocation,
    ) -> Option<(u64, Vec<u32>)> {
        let (mut total, mut cost, mut relocated) = (self.hole(slots, before), 0, Vec::new());
        let mut next = slots.get(before).after.load(Relaxed);
        while total < len {
            if next == NONE || relocated.len() == RELOCATED_MAX {
                return None;
            }
            let slot = slots.get(next);
            let bytes = slot.extent().len;
            relocated.push(next);
            cost += match relocation_of(next) {
                Relocation::Forbidden => return None,
                _ if self.relocation_target_from(bytes, before, &relocated).is_some() => bytes,
                Relocation::Move => return None,
                Relocation::MoveOrEvict => bytes * EVICTION_COST,
            };
            total += bytes + self.hole(slots, next);
            next = slot.after.load(Relaxed);
        }
        Some((cost, relocated))
    }

    /// Selects blocks to slide to the left so that the holes between them become one of `len`
    /// bytes. Returns the plan with the fewest bytes to move, at most `slid_max`. The first block
    /// moves behind the returned slot, and each other one behind its predecessor.
    pub fn plan_slide(
        &self,
        slots: &Slots,
        len: u64,
        slid_max: u64,
        relocation_of: impl Fn(u32) -> Relocation,
    ) -> Option<(u32, Vec<u32>)> {
        let largest = self.holes.iter().rev().take(SLIDE_HOLES_TRIED);
        let plans = largest.filter_map(|(_, before)| {
            let (mut total, mut moved, mut sliders) = (self.hole(slots, *before), 0, Vec::new());
            let mut next = slots.get(*before).after.load(Relaxed);
            while total < len {
                moved += slots.get(next).extent().len;
                let is_too_much = moved > slid_max || sliders.len() == SLIDERS_MAX;
                if next == NONE || is_too_much || relocation_of(next) == Relocation::Forbidden {
                    return None;
                }
                total += self.hole(slots, next);
                sliders.push(next);
                next = slots.get(next).after.load(Relaxed);
            }
            Some((moved, (*before, sliders)))
        });
        plans.min_by_key(|(moved, _)| *moved).map(|(_, plan)| plan)
    }

    /// Returns the slot before a hole for a relocated block, outside of the holes that the plan
    /// joins.
    pub fn relocation_target(&self, slots: &Slots, len: u64, relocated: &[u32]) -> Option<u32> {
        let before = relocated.first().map(|first| slots.get(*first).before.load(Relaxed));
        self.relocation_target_from(len, before.unwrap_or(NONE), relocated)
    }

    fn relocation_target_from(&self, len: u64, before: u32, relocated: &[u32]) -> Option<u32> {
        let joined = |id: u32| id == before || relocated.contains(&id);
        self.holes.range((len, NONE)..).map(|(_, id)| *id).find(|id| !joined(*id))
    }

    fn hole(&self, slots: &Slots, before: u32) -> u64 {
        let slot = slots.get(before);
        let end = match slot.after.load(Relaxed) {
            NONE => self.size,
            after => slots.get(after).extent().start,
        };
        end - slot.extent().end()
    }

    fn add_hole(&mut self, len: u64, before: u32) {
        if len > 0 {
            self.holes.insert((len, before));
        }
    }

    fn remove_hole(&mut self, len: u64, before: u32) {
        if len > 0 {
            self.holes.remove(&(len, before));
        }
    }
}
