//! [`Queues`]: which block goes. W-TinyLFU by a clock, or HBase's LRU, with a queue for `IN_MEMORY` families.
//!
//! ```text
//!           first seen          hit, or asked for more often
//!                                 than what main gives up
//!  insert --------------> window ---------------------------> main <-- hit meanwhile: around again
//!     \                      |                                 |
//!      \ replaces what is    v otherwise                       v not hit
//!       \  warm ---> main   gone                              gone
//! ```
//!
//! A hit only counts in the slot, so it takes no lock and moves nothing. [`FrequencySketch`] counts requests of blocks that are
//! here and that are not: misses as they come, hits when the clock takes them from the slot. A block that leaves `window`
//! unhit takes the place of main's oldest unhit block if it was asked for more often than that, and before. So a scan
//! passes through `window`, which has a twentieth of the bytes, and neither moves main's clock nor anything in it. While
//! there is room, what leaves `window` goes on to main without being compared.
//!
//! HBase's single and multi access areas are `window` and `main`; its in-memory area is `memory`, which keeps its share
//! against the others and lends what it does not use.
//!
//! [`Policy::Lru`] has the order of HBase's `LruBlockCache` instead: the area that is furthest over its share gives up its
//! oldest block. `window` is the area of single access and `main` that of multi access.
//!
//! ```text
//!  insert ---> window -- hit meanwhile --> main <-- hit meanwhile: around again
//!                |                          |
//!                v not hit: gone            v not hit: gone
//! ```
//!
//! It is a clock in place of a list in order of access, for hits take no lock: a block that was hit goes on when it comes
//! to the end of its area, and not at the hit.
//!
//! A clock that finds all in use stops after [`CLOCK_STEPS_MAX`] blocks, and takes the one it has come to: who waits for the
//! lock waits for microseconds, however large the cache is.
//!
//! docs/benchmarks.md has what this was measured against. Everything here is called with the shard's lock held.

use std::sync::atomic::Ordering::Relaxed;

use super::frequency_sketch::FrequencySketch;
use super::slot::{NONE, Slot, Slots};

/// Of no queue.
pub(crate) const NO_QUEUE: u8 = 0;
const WINDOW: u8 = 1;
const MAIN: u8 = 2;
const MEMORY: u8 = 3;

/// The part of the bytes that the window has, while blocks of the main part want the rest.
pub(crate) const WINDOW_SHARE: f64 = 0.05;
/// While one byte in so many is free, blocks go on from the window without being compared.
const ROOM_PART: u64 = 32;
/// A block of which more was counted is known, and may take another's place. A scan's are not: a sketch as small as
/// this one often says two of a block that was asked for once.
const INFREQUENT_COUNT_MAX: u8 = 2;
/// A clock passes no more blocks for one victim.
const CLOCK_STEPS_MAX: usize = 128;

#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    newest: u32,
    oldest: u32,
    bytes: u64,
}

/// In what order blocks go (`hfile.block.cache.policy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// W-TinyLFU: those asked for least often, lately.
    #[default]
    TinyLfu,
    /// HBase's LRU: those not asked for for longest, by areas with shares.
    Lru,
}

/// What is known of a block that comes in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// Nothing, but what the policy knows.
    #[default]
    New,
    /// It replaces blocks that were kept: it is worth what they were.
    Warm,
    /// It is of an `IN_MEMORY` family.
    InMemory,
}

impl Admission {
    /// Of a block that somebody asked for.
    pub fn of(in_memory: bool) -> Self {
        if in_memory { Self::InMemory } else { Self::New }
    }
}

/// How the bytes of a cache are shared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// Of the blocks seen once (`hbase.lru.blockcache.single.percentage`), while others want the bytes.
    pub single: f64,
    /// Of the blocks seen more often (`hbase.lru.blockcache.multi.percentage`), by LRU. W-TinyLFU gives them what is left.
    pub multi: f64,
    /// Of the blocks of `IN_MEMORY` families (`hbase.lru.blockcache.memory.percentage`), while they are there.
    pub memory: f64,
}

impl Shares {
    /// Those of a policy when nothing else is set.
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

/// What a cache holds when a block comes in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occupancy {
    /// Blocks, with the new one.
    pub live: u32,
    /// Bytes in use, with the new block's.
    pub used: u64,
    /// Bytes that may be.
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

    /// Bytes of the policy beside the slots.
    pub fn bytes(&self) -> usize {
        self.sketch.bytes()
    }

    /// Takes in a new block.
    pub fn admit(&mut self, slots: &Slots, id: u32, hash: u64, admission: Admission, occupancy: Occupancy) {
        let queue = match admission {
            Admission::New => WINDOW,
            Admission::Warm => MAIN,
            Admission::InMemory => MEMORY,
        };
        slots.get(id).uses.store(0, Relaxed);
        self.push(slots, queue, id);
        if self.policy == Policy::TinyLfu {
            self.sketch.resize_for(occupancy.live);
            self.sketch.add(hash);
            if occupancy.used < occupancy.limit - occupancy.limit / ROOM_PART {
                self.fill_main(slots, id, occupancy.limit);
            }
        }
    }

    /// Lets blocks of the window go on to the main part, which has room, and keep their hits; all but the newest.
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

    /// Takes in a block that an earlier process left.
    pub fn readmit(&mut self, slots: &Slots, id: u32, live: u32) {
        if self.policy == Policy::TinyLfu {
            self.sketch.resize_for(live);
        }
        let was = slots.get(id).queue.load(Relaxed);
        let queue = if matches!(was, WINDOW | MAIN | MEMORY) { was } else { WINDOW };
        self.push(slots, queue, id);
    }

    /// Takes a block out, wherever it is.
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

    /// The next block to go, of a cache of `limit` bytes. It stays in its queue. `None` when there is no block.
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
            // Below its share, the window gives up only what nobody knows, and keeps half.
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

    /// The oldest block of a queue that was not hit since the clock passed it, or that the clock got to.
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

    /// From the window to the main part; its hits are counted.
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

    /// A victim that cannot go now: it is in use, so it is worth keeping.
    pub fn requeue_pinned(&mut self, slots: &Slots, id: u32) {
        let queue = if slots.get(id).queue.load(Relaxed) == MEMORY { MEMORY } else { MAIN };
        self.requeue(slots, queue, id);
    }

    /// Whether a block may go out of turn, to make one hole of two: it is in the part that gives up a block now, and the
    /// policy loses nothing by it.
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

    /// Whether hardly anybody asked for a block but who brought it in.
    fn is_infrequent(&self, slot: &Slot) -> bool {
        self.sketch.count(hash_of(slot)) <= INFREQUENT_COUNT_MAX
    }

    fn oldest(&self, queue: u8) -> Option<u32> {
        Some(self.queues[queue as usize].oldest).filter(|id| *id != NONE)
    }

    fn is_over(&self, queue: u8, share: f64, limit: u64) -> bool {
        self.queues[queue as usize].bytes as f64 > share * limit as f64
    }

    /// The area with the most bytes beyond its share, or the fewest below it.
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
