//! [`Queues`]: which block is evicted. W-TinyLFU with a clock, or HBase's LRU, and a queue for
//! `IN_MEMORY` families.
//!
//! ```text
//!           first seen          hit, or requested more often
//!                               than main's victim
//!  insert --------------> window ---------------------------> main <-- hit: requeued
//!     \                      |                                 |
//!      \ replaces cached     v otherwise                       v not hit
//!       \ blocks --> main   evicted                           evicted
//! ```
//!
//! A hit only increments the slot's counter, so it takes no lock and moves nothing.
//! [`FrequencySketch`] counts requests of cached and of other blocks: misses immediately, hits when
//! the clock takes them from the slot. A block that leaves `window` without a hit replaces main's
//! oldest block without a hit, if it was requested more often. So a scan passes through `window`,
//! which has a twentieth of the bytes, without moving main's clock or its blocks. While there is
//! free space, blocks move from `window` to main without a comparison.
//!
//! A block that was hot on the server from which its region has moved goes to main, with its
//! requests there ([`Admission::Moved`]), if main's next victim had fewer.
//!
//! `window` and `main` are HBase's areas of single and multiple access. `memory` is its in-memory
//! area, which keeps its share against the others and lends the unused part.
//!
//! [`Policy::Lru`] has the order of HBase's `LruBlockCache` instead: the area that exceeds its
//! share the most evicts its oldest block. `window` is the single access area and `main` the
//! multiple access area.
//!
//! ```text
//!  insert ---> window -- hit meanwhile --> main <-- hit meanwhile: requeued
//!                |                          |
//!                v not hit: evicted         v not hit: evicted
//! ```
//!
//! It is a clock instead of a list in access order, because hits take no lock. A block that was hit
//! is requeued when it reaches the end of its area, not at the hit.
//!
//! If the clock finds only used blocks, it stops after [`CLOCK_STEPS_MAX`] of them and evicts the
//! current one. So the lock is held for microseconds, however large the cache is.
//!
//! docs/benchmarks.md compares it with other policies. All methods are called with the shard's lock
//! held.

#![allow(clippy::indexing_slicing, reason = "indexes come from the lengths of the arrays")]

use std::sync::atomic::Ordering::Relaxed;

use super::frequency_sketch::FrequencySketch;
use super::slot::{NONE, Slot, Slots, USES_MAX};

/// In no queue.
pub(crate) const NO_QUEUE: u8 = 0;
const WINDOW: u8 = 1;
const MAIN: u8 = 2;
const MEMORY: u8 = 3;

/// The window's share of the bytes, while main needs the rest.
pub(crate) const WINDOW_SHARE: f64 = 0.05;
/// While more than 1/32 of the bytes is free, blocks leave the window without a comparison.
const FREE_DIVISOR: u64 = 32;
/// A block with a higher count may replace another one. Blocks of a scan stay at or below it: a
/// sketch of this size often returns two for a block that was requested once.
const INFREQUENT_COUNT_MAX: u8 = 2;
/// The maximum number of blocks that the clock passes for one victim.
const CLOCK_STEPS_MAX: usize = 128;
/// The blocks at the end of main among which a block of another server must find its victim.
const VICTIM_STEPS_MAX: usize = 32;

#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    newest: u32,
    oldest: u32,
    bytes: u64,
}

/// The order of eviction (`hfile.block.cache.policy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// W-TinyLFU: evicts blocks with the fewest recent requests.
    #[default]
    TinyLfu,
    /// HBase's LRU: evicts the least recently used block of an area that exceeds its share.
    Lru,
}

/// What the inserting thread can state about a block's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// No information beyond the policy's counts.
    #[default]
    New,
    /// It replaces cached blocks, so it is as valuable as they were.
    Warm,
    /// It belongs to an `IN_MEMORY` family.
    InMemory,
    /// It was requested this number of times in the cache of the server from which its region has
    /// moved here. The inserter has asked [`crate::BlockCache::admits`].
    Moved(u8),
}

impl Admission {
    /// The admission of a block that a reader requested.
    pub fn of(in_memory: bool) -> Self {
        if in_memory { Self::InMemory } else { Self::New }
    }
}

/// Shares of a cache's bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// For blocks requested once (`hbase.lru.blockcache.single.percentage`), while others need the
    /// bytes.
    pub single: f64,
    /// For blocks requested more often (`hbase.lru.blockcache.multi.percentage`). LRU only:
    /// W-TinyLFU gives them the rest.
    pub multi: f64,
    /// For blocks of `IN_MEMORY` families (`hbase.lru.blockcache.memory.percentage`), while there
    /// are any.
    pub memory: f64,
}

impl Shares {
    /// The default shares of a policy.
    pub fn of(policy: Policy) -> Self {
        let single = match policy {
            Policy::TinyLfu => WINDOW_SHARE,
            Policy::Lru => 0.25,
        };
        Self { single, multi: 0.5, memory: 0.25 }
    }
}

impl Default for Shares {
    fn default() -> Self {
        Self::of(Policy::default())
    }
}

/// The content of a shard when a block is inserted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occupancy {
    /// Live entries, with the new one.
    pub live: u32,
    /// Used bytes, with the new block.
    pub used: u64,
    /// The maximum of used bytes.
    pub limit: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Queues {
    queues: [Queue; 4],
    sketch: FrequencySketch,
    policy: Policy,
    shares: Shares,
}

impl Queues {
    pub fn new(policy: Policy, shares: Shares) -> Self {
        Self { queues: [Queue::default(); 4], sketch: FrequencySketch::default(), policy, shares }
    }

    /// Bytes of the policy outside of the slots.
    pub fn bytes(&self) -> usize {
        self.sketch.bytes()
    }

    /// Inserts a new block.
    pub fn admit(&mut self, slots: &Slots, id: u32, hash: u64, admission: Admission, occupancy: Occupancy) {
        let queue = match admission {
            Admission::New => WINDOW,
            Admission::Warm | Admission::Moved(_) => MAIN,
            Admission::InMemory => MEMORY,
        };
        slots.get(id).uses.store(0, Relaxed);
        self.push(slots, queue, id);
        if self.policy == Policy::TinyLfu {
            let requests = if let Admission::Moved(heat) = admission { heat.max(1) } else { 1 };
            self.sketch.resize_for(occupancy.live);
            (0..requests).for_each(|_| self.sketch.add(hash));
            if occupancy.used < occupancy.limit - occupancy.limit / FREE_DIVISOR {
                self.fill_main(slots, id, occupancy.limit);
            }
        }
    }

    /// Moves the excess of the window, except the newest block, to main, which has free space.
    /// Keeps the hit counts.
    fn fill_main(&mut self, slots: &Slots, newest: u32, limit: u64) {
        for _ in 0..CLOCK_STEPS_MAX {
            match self.oldest(WINDOW).filter(|oldest| *oldest != newest) {
                Some(oldest) if self.is_over(WINDOW, self.shares.single, limit) => {
                    self.requeue(slots, MAIN, oldest);
                }
                _ => return,
            }
        }
    }

    /// Returns the recent requests of a block, as far as the policy counts them; `None` if it was
    /// requested about once. A block that LRU has moved to main counts one request more than its
    /// hits since then.
    pub fn heat(&self, slot: &Slot) -> Option<u8> {
        let (uses, queue) = (slot.uses.load(Relaxed).min(USES_MAX), slot.queue.load(Relaxed));
        let count = match self.policy {
            Policy::TinyLfu => self.sketch.count(hash_of(slot)),
            Policy::Lru => u8::from(queue == MAIN),
        };
        let is_frequent = match self.policy {
            Policy::TinyLfu => count > INFREQUENT_COUNT_MAX,
            Policy::Lru => count > 0,
        };
        (uses > 0 || is_frequent || queue == MEMORY).then_some(uses + count)
    }

    /// Returns true if main's next victim, as [`Self::clock_victim`] finds it, was requested less
    /// often than a block of this heat, by the rule for blocks that leave the window. Colder blocks
    /// behind that victim do not count, because an insertion does not evict them. Changes nothing.
    /// LRU counts no requests, so it has no such victim.
    pub fn is_hotter_than_victim(&self, slots: &Slots, heat: u8) -> bool {
        if self.policy != Policy::TinyLfu || heat <= INFREQUENT_COUNT_MAX {
            return false;
        }
        let next = |id: &u32| Some(slots.get(*id).newer.load(Relaxed)).filter(|id| *id != NONE);
        let mut oldest =
            std::iter::successors(self.oldest(MAIN), next).take(VICTIM_STEPS_MAX).map(|id| slots.get(id));
        let victim = oldest.find(|slot| slot.uses.load(Relaxed) == 0);
        victim.is_some_and(|slot| self.sketch.count(hash_of(slot)) < heat)
    }

    /// Inserts a block of an earlier process.
    pub fn readmit(&mut self, slots: &Slots, id: u32, live: u32) {
        if self.policy == Policy::TinyLfu {
            self.sketch.resize_for(live);
        }
        let was = slots.get(id).queue.load(Relaxed);
        let queue = if matches!(was, WINDOW | MAIN | MEMORY) { was } else { WINDOW };
        self.push(slots, queue, id);
    }

    /// Removes a block from its queue.
    pub fn remove(&mut self, slots: &Slots, id: u32) {
        let slot = slots.get(id);
        let Some(queue) = self.queues.get_mut(slot.queue.swap(NO_QUEUE, Relaxed) as usize) else { return };
        let (newer, older) = (slot.newer.load(Relaxed), slot.older.load(Relaxed));
        match newer {
            NONE => queue.newest = older,
            newer => slots.get(newer).older.store(older, Relaxed),
        }
        match older {
            NONE => queue.oldest = newer,
            older => slots.get(older).newer.store(newer, Relaxed),
        }
        queue.bytes -= slot.extent().len;
    }

    /// Returns the next block to evict from a cache of `limit` bytes. It stays in its queue. `None`
    /// if there is no block.
    pub fn victim(&mut self, slots: &Slots, limit: u64) -> Option<u32> {
        match self.policy {
            Policy::TinyLfu => self.tiny_lfu_victim(slots, limit),
            Policy::Lru => self.lru_victim(slots, limit),
        }
    }

    fn tiny_lfu_victim(&mut self, slots: &Slots, limit: u64) -> Option<u32> {
        for _ in 0..CLOCK_STEPS_MAX {
            let (window, main) = (self.oldest(WINDOW), self.oldest(MAIN));
            if window.is_none() && main.is_none() || self.is_over(MEMORY, self.shares.memory, limit) {
                return self.clock_victim(slots, MEMORY);
            }
            let Some(candidate) = window else { return self.clock_victim(slots, MAIN) };
            let slot = slots.get(candidate);
            let hit = slot.uses.load(Relaxed) > 0;
            let is_over = self.is_over(WINDOW, self.shares.single, limit);
            if main.is_none() || hit && is_over {
                self.promote(slots, candidate);
                continue;
            }
            // Below its share the window evicts only infrequent blocks, and keeps half of the
            // share.
            if !hit && self.is_infrequent(slot) && self.is_over(WINDOW, self.shares.single / 2.0, limit) {
                return Some(candidate);
            }
            let victim = self.clock_victim(slots, MAIN)?;
            if !is_over {
                return Some(victim);
            }
            if self.sketch.count(hash_of(slot)) <= self.sketch.count(hash_of(slots.get(victim))) {
                return Some(candidate);
            }
            self.promote(slots, candidate);
            return Some(victim);
        }
        self.oldest(MAIN)
    }

    /// Returns the oldest block of a queue that was not hit since the clock passed it, or the block
    /// where the clock stopped.
    fn clock_victim(&mut self, slots: &Slots, queue: u8) -> Option<u32> {
        for _ in 0..CLOCK_STEPS_MAX {
            let id = self.oldest(queue)?;
            let slot = slots.get(id);
            let uses = slot.uses.load(Relaxed);
            if uses == 0 {
                return Some(id);
            }
            slot.uses.store(uses - 1, Relaxed);
            self.sketch.add(hash_of(slot));
            self.requeue(slots, queue, id);
        }
        self.oldest(queue)
    }

    /// Moves a block from the window to main, and its hits to the sketch.
    fn promote(&mut self, slots: &Slots, id: u32) {
        let slot = slots.get(id);
        let uses = slot.uses.swap(0, Relaxed);
        (0..uses).for_each(|_| self.sketch.add(hash_of(slot)));
        self.requeue(slots, MAIN, id);
    }

    fn lru_victim(&mut self, slots: &Slots, limit: u64) -> Option<u32> {
        for _ in 0..CLOCK_STEPS_MAX {
            let queue = self.furthest_over(limit)?;
            let id = self.oldest(queue)?;
            if slots.get(id).uses.swap(0, Relaxed) == 0 {
                return Some(id);
            }
            self.requeue(slots, if queue == WINDOW { MAIN } else { queue }, id);
        }
        self.oldest(self.furthest_over(limit)?)
    }

    /// Requeues a victim that is pinned, because a reader uses it.
    pub fn requeue_pinned(&mut self, slots: &Slots, id: u32) {
        let queue = if slots.get(id).queue.load(Relaxed) == MEMORY { MEMORY } else { MAIN };
        self.requeue(slots, queue, id);
    }

    /// Returns true if a block may be evicted out of turn to join two holes: its area is the one
    /// that evicts next, and the hit ratio loses nothing.
    pub fn is_cold(&self, slot: &Slot, limit: u64) -> bool {
        let queue = slot.queue.load(Relaxed);
        let is_its_turn = || match self.policy {
            Policy::TinyLfu => (queue == MEMORY) == self.is_over(MEMORY, self.shares.memory, limit),
            Policy::Lru => Some(queue) == self.furthest_over(limit),
        };
        let is_worthless = || match (self.policy, queue) {
            (Policy::Lru, _) | (_, MEMORY) => true,
            (_, WINDOW) => self.is_infrequent(slot),
            _ => self.sketch.count(hash_of(slot)) == 0,
        };
        slot.uses.load(Relaxed) == 0 && is_its_turn() && is_worthless()
    }

    /// Returns true if a block was rarely requested since its insertion.
    fn is_infrequent(&self, slot: &Slot) -> bool {
        self.sketch.count(hash_of(slot)) <= INFREQUENT_COUNT_MAX
    }

    fn oldest(&self, queue: u8) -> Option<u32> {
        Some(self.queues[queue as usize].oldest).filter(|id| *id != NONE)
    }

    fn is_over(&self, queue: u8, share: f64, limit: u64) -> bool {
        self.queues[queue as usize].bytes as f64 > share * limit as f64
    }

    /// Returns the area that exceeds its share the most, or else falls short of it the least.
    fn furthest_over(&self, limit: u64) -> Option<u8> {
        let shares = [(WINDOW, self.shares.single), (MAIN, self.shares.multi), (MEMORY, self.shares.memory)];
        let areas = shares.into_iter().filter(|(queue, _)| self.queues[*queue as usize].oldest != NONE);
        let over =
            |(queue, share): &(u8, f64)| self.queues[*queue as usize].bytes as f64 - share * limit as f64;
        areas.max_by(|a, b| over(a).total_cmp(&over(b))).map(|(queue, _)| queue)
    }

    fn requeue(&mut self, slots: &Slots, queue: u8, id: u32) {
        self.remove(slots, id);
        self.push(slots, queue, id);
    }

    fn push(&mut self, slots: &Slots, queue: u8, id: u32) {
        let slot = slots.get(id);
        slot.queue.store(queue, Relaxed);
        let queue = &mut self.queues[queue as usize];
        slot.newer.store(NONE, Relaxed);
        slot.older.store(queue.newest, Relaxed);
        match queue.newest {
            NONE => queue.oldest = id,
            newest => slots.get(newest).newer.store(id, Relaxed),
        }
        queue.newest = id;
        queue.bytes += slot.extent().len;
    }
}

fn hash_of(slot: &Slot) -> u64 {
    super::hash(slot.file.load(Relaxed), slot.offset.load(Relaxed))
}
