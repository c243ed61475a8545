//! [`Queues`]: which block goes. S3-FIFO or HBase's LRU, with bytes for objects and a queue for `IN_MEMORY` families.
//!
//! ```text
//!           first seen         hit meanwhile
//!  insert --------------> small -----------> main <-- hit meanwhile: around again
//!     \                     |                  |
//!      \ seen not long ago  v not hit          v not hit
//!       \-----> main      ghost (key only)    gone
//! ```
//!
//! A hit only counts in the slot, so it takes no lock and moves nothing. A scan passes through `small`, which has a tenth
//! of the bytes, and leaves `main` alone. HBase's single and multi access areas are `small` and `main`; its in-memory
//! area is `memory`, which keeps its share against the others and lends what it does not use.
//!
//! [`Policy::Lru`] has the order of HBase's `LruBlockCache` instead: the area that is furthest over its share gives up its
//! oldest block. `small` is the area of single access and `main` that of multi access; there is no ghost.
//!
//! ```text
//!  insert ---> small -- hit meanwhile --> main <-- hit meanwhile: around again
//!                |                          |
//!                v not hit: gone            v not hit: gone
//! ```
//!
//! It is a clock in place of a list in order of access, for hits take no lock: a block that was hit goes on when it comes
//! to the end of its area, and not at the hit.
//!
//! docs/benchmarks.md has what this was measured against. Everything here is called with the shard's lock held.

use std::sync::atomic::Ordering::Relaxed;

use super::slot::{NONE, Slot, Slots};

/// Of no queue.
pub(crate) const NO_QUEUE: u8 = 0;
const SMALL: u8 = 1;
const MAIN: u8 = 2;
const MEMORY: u8 = 3;

/// The part of the bytes that blocks seen once may have.
pub(crate) const SMALL_SHARE: f64 = 0.1;

/// So many hits while in `small` make a block worth keeping.
const PROMOTING_USES: u8 = 1;

#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    newest: u32,
    oldest: u32,
    bytes: u64,
}

/// In what order blocks go (`hfile.block.cache.policy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// S3-FIFO: blocks seen once go first, soon.
    #[default]
    S3Fifo,
    /// HBase's LRU: those not asked for for longest, by areas with shares.
    Lru,
}

/// How the bytes of a cache are shared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// Of the blocks seen once (`hbase.lru.blockcache.single.percentage`), while others want the bytes.
    pub single: f64,
    /// Of the blocks seen more often (`hbase.lru.blockcache.multi.percentage`), by LRU. S3-FIFO gives them what is left.
    pub multi: f64,
    /// Of the blocks of `IN_MEMORY` families (`hbase.lru.blockcache.memory.percentage`), while they are there.
    pub memory: f64,
}

impl Shares {
    /// Those of a policy when nothing else is set.
    pub fn of(policy: Policy) -> Self {
        let single = match policy {
            Policy::S3Fifo => SMALL_SHARE,
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

/// See the module.
#[derive(Debug)]
pub(crate) struct Queues {
    queues: [Queue; 4],
    ghost: Ghost,
    policy: Policy,
    shares: Shares,
}

impl Queues {
    pub fn new(policy: Policy, shares: Shares) -> Self {
        Self { queues: [Queue::default(); 4], ghost: Ghost::default(), policy, shares }
    }

    /// Bytes of the policy beside the slots.
    pub fn bytes(&self) -> usize {
        self.ghost.fingerprints.len() * size_of::<u32>()
    }

    /// Takes in a new block. `live` is how many blocks there are.
    pub fn admit(&mut self, slots: &Slots, id: u32, hash: u64, in_memory: bool, live: u32) {
        self.fit_ghost(live);
        let queue = match () {
            () if in_memory => MEMORY,
            () if self.ghost.take(hash) => MAIN,
            () => SMALL,
        };
        slots.get(id).uses.store(0, Relaxed);
        self.push(slots, queue, id);
    }

    /// Takes in a block that an earlier process left.
    pub fn readmit(&mut self, slots: &Slots, id: u32, live: u32) {
        self.fit_ghost(live);
        let was = slots.get(id).queue.load(Relaxed);
        let queue = if matches!(was, SMALL | MAIN | MEMORY) { was } else { SMALL };
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
        queue.bytes -= slot.place().len;
    }

    /// The next block to go, of a cache of `limit` bytes. It stays in its queue. `None` when there is no block.
    pub fn victim(&mut self, slots: &Slots, limit: u64) -> Option<u32> {
        match self.policy {
            Policy::S3Fifo => self.first_seen_once(slots, limit),
            Policy::Lru => self.least_recent(slots, limit),
        }
    }

    fn first_seen_once(&mut self, slots: &Slots, limit: u64) -> Option<u32> {
        loop {
            let queue = self.choose(limit)?;
            let id = self.queues[queue as usize].oldest;
            let slot = slots.get(id);
            let uses = slot.uses.load(Relaxed);
            match queue {
                SMALL if uses >= PROMOTING_USES => {
                    slot.uses.store(0, Relaxed);
                    self.requeue(slots, MAIN, id);
                }
                MAIN | MEMORY if uses > 0 => {
                    slot.uses.store(uses - 1, Relaxed);
                    self.requeue(slots, queue, id);
                }
                _ => return Some(id),
            }
        }
    }

    fn least_recent(&mut self, slots: &Slots, limit: u64) -> Option<u32> {
        loop {
            let queue = self.furthest_over(limit)?;
            let id = self.queues[queue as usize].oldest;
            if slots.get(id).uses.swap(0, Relaxed) == 0 {
                return Some(id);
            }
            self.requeue(slots, if queue == SMALL { MAIN } else { queue }, id);
        }
    }

    /// A victim that cannot go now: it is in use, so it is worth keeping.
    pub fn spare(&mut self, slots: &Slots, id: u32) {
        let queue = if slots.get(id).queue.load(Relaxed) == MEMORY { MEMORY } else { MAIN };
        self.requeue(slots, queue, id);
    }

    /// Remembers the key of a victim, so that it counts as known when it comes back soon.
    pub fn remember(&mut self, slot: &Slot, hash: u64) {
        if slot.queue.load(Relaxed) == SMALL {
            self.ghost.add(hash);
        }
    }

    /// Whether a block is among those that go first.
    pub fn is_cold(slot: &Slot) -> bool {
        slot.queue.load(Relaxed) != MEMORY && slot.uses.load(Relaxed) == 0
    }

    fn choose(&self, limit: u64) -> Option<u8> {
        let has = |queue: u8| self.queues[queue as usize].oldest != NONE;
        let over = |queue: u8, share: f64| self.queues[queue as usize].bytes as f64 > share * limit as f64;
        let others = has(SMALL) || has(MAIN);
        match () {
            () if has(MEMORY) && (!others || over(MEMORY, self.shares.memory)) => Some(MEMORY),
            () if has(SMALL) && (!has(MAIN) || over(SMALL, self.shares.single)) => Some(SMALL),
            () if has(MAIN) => Some(MAIN),
            () => None,
        }
    }

    /// The area with the most bytes beyond its share, or the fewest below it.
    fn furthest_over(&self, limit: u64) -> Option<u8> {
        let shares = [(SMALL, self.shares.single), (MAIN, self.shares.multi), (MEMORY, self.shares.memory)];
        let areas = shares.into_iter().filter(|(queue, _)| self.queues[*queue as usize].oldest != NONE);
        let over =
            |(queue, share): &(u8, f64)| self.queues[*queue as usize].bytes as f64 - share * limit as f64;
        areas.max_by(|a, b| over(a).total_cmp(&over(b))).map(|(queue, _)| queue)
    }

    fn fit_ghost(&mut self, live: u32) {
        if self.policy == Policy::S3Fifo {
            self.ghost.fit(live);
        }
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
        queue.bytes += slot.place().len;
    }
}

/// Fingerprints of keys that left `small` not long ago: a table without chains, with a place or two for each block of the
/// cache, in which the new takes the place of the old.
#[derive(Debug, Default)]
struct Ghost {
    fingerprints: Vec<u32>,
}

impl Ghost {
    fn fit(&mut self, live: u32) {
        let wanted = (live as usize).next_power_of_two().max(64);
        if self.fingerprints.len() < wanted {
            self.fingerprints = vec![0; wanted];
        }
    }

    fn add(&mut self, hash: u64) {
        if let Some(place) = self.place(hash) {
            *place = fingerprint(hash);
        }
    }

    fn take(&mut self, hash: u64) -> bool {
        self.place(hash).is_some_and(|place| {
            let known = *place == fingerprint(hash);
            if known {
                *place = 0;
            }
            known
        })
    }

    fn place(&mut self, hash: u64) -> Option<&mut u32> {
        let mask = self.fingerprints.len().checked_sub(1)?;
        self.fingerprints.get_mut(hash as usize & mask)
    }
}

fn fingerprint(hash: u64) -> u32 {
    (hash >> 32) as u32 | 1
}
