//! Policies of the last ten years, simulated with exact bytes: SIEVE, W-TinyLFU and S3-FIFO.

use std::collections::{HashMap, HashSet, VecDeque};

use super::Policy;
use super::stock::Lru;

/// SIEVE: one queue, with a hand that skips visited blocks.
pub(super) struct Sieve {
    capacity: u64,
    used: u64,
    /// Oldest first; `None` where one was removed.
    queue: Vec<Option<u64>>,
    hand: usize,
    blocks: HashMap<u64, (u64, bool)>,
}

impl Sieve {
    pub(super) fn new(capacity: u64) -> Self {
        Self { capacity, used: 0, queue: Vec::new(), hand: 0, blocks: HashMap::new() }
    }
}

impl Policy for Sieve {
    fn request(&mut self, key: u64, size: u64) -> bool {
        if let Some((_, visited)) = self.blocks.get_mut(&key) {
            *visited = true;
            return true;
        }
        while self.used + size > self.capacity {
            if self.hand >= self.queue.len() {
                self.queue.retain(Option::is_some);
                self.hand = 0;
            }
            if let Some(at) = self.queue[self.hand] {
                let block = self.blocks.get_mut(&at).expect("in the queue");
                if block.1 {
                    block.1 = false;
                } else {
                    self.used -= block.0;
                    self.blocks.remove(&at);
                    self.queue[self.hand] = None;
                }
            }
            self.hand += 1;
        }
        self.queue.push(Some(key));
        self.blocks.insert(key, (size, false));
        self.used += size;
        false
    }
}

/// W-TinyLFU as Caffeine has it (HBase's `TinyLfuBlockCache`): a window of 1 %, and a main part
/// that admits a block if it was requested more often than the victim. Counts are exact up to 15,
/// which favours it over a sketch, and are halved after ten requests for each cached block.
/// Caffeine's adaptive window is not simulated.
pub(super) struct TinyLfu {
    capacity: u64,
    window: Lru,
    probation: Lru,
    protected: Lru,
    counts: HashMap<u64, u32>,
    counted: u64,
}

impl TinyLfu {
    pub(super) fn new(capacity: u64) -> Self {
        let lru = || Lru::new(capacity);
        Self {
            capacity,
            window: lru(),
            probation: lru(),
            protected: lru(),
            counts: HashMap::new(),
            counted: 0,
        }
    }

    fn count(&mut self, key: u64) {
        let count = self.counts.entry(key).or_default();
        if *count == 15 {
            return;
        }
        *count += 1;
        self.counted += 1;
        let held = self.window.at.len() + self.probation.at.len() + self.protected.at.len();
        if self.counted >= 10 * held.max(64) as u64 {
            self.counted /= 2;
            self.counts.retain(|_, n| {
                *n /= 2;
                *n > 0
            });
        }
    }

    fn of(&self, key: u64) -> u32 {
        self.counts.get(&key).copied().unwrap_or(0)
    }

    fn admit(&mut self, key: u64, size: u64) {
        let main = self.capacity * 99 / 100;
        let mut victims = Vec::new();
        let mut freed = 0;
        for (_, victim) in &self.probation.order {
            if self.probation.used + self.protected.used - freed + size <= main {
                break;
            }
            if self.of(*victim) >= self.of(key) {
                return;
            }
            freed += self.probation.at[victim].1;
            victims.push(*victim);
        }
        if self.probation.used + self.protected.used - freed + size <= main {
            for victim in victims {
                self.probation.remove(victim);
            }
            self.probation.put(key, size);
        }
    }
}

impl Policy for TinyLfu {
    fn request(&mut self, key: u64, size: u64) -> bool {
        self.count(key);
        if self.window.touch(key) || self.protected.touch(key) {
            return true;
        }
        if let Some(size) = self.probation.remove(key) {
            self.protected.put(key, size);
            while self.protected.used > self.capacity * 79 / 100 {
                let oldest = self.protected.oldest().expect("not empty");
                let size = self.protected.remove(oldest).expect("there");
                self.probation.put(oldest, size);
            }
            return true;
        }
        self.window.put(key, size);
        while self.window.used > self.capacity / 100 && self.window.at.len() > 1 {
            let oldest = self.window.oldest().expect("not empty");
            let size = self.window.remove(oldest).expect("there");
            self.admit(oldest, size);
        }
        false
    }
}

/// S3-FIFO with exact bytes.
pub(super) struct S3Fifo {
    capacity: u64,
    small_share: f64,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    small_bytes: u64,
    main_bytes: u64,
    blocks: HashMap<u64, (u64, u8)>,
    ghost: VecDeque<u64>,
    ghosts: HashSet<u64>,
}

impl S3Fifo {
    pub(super) fn new(capacity: u64, small_share: f64) -> Self {
        Self {
            capacity,
            small_share,
            small: VecDeque::new(),
            main: VecDeque::new(),
            small_bytes: 0,
            main_bytes: 0,
            blocks: HashMap::new(),
            ghost: VecDeque::new(),
            ghosts: HashSet::new(),
        }
    }

    fn evict(&mut self) {
        let small = self.small_bytes as f64 > self.small_share * self.capacity as f64 || self.main.is_empty();
        let queue = if small { &mut self.small } else { &mut self.main };
        let key = queue.pop_front().expect("not empty");
        let (size, uses) = self.blocks[&key];
        if small {
            self.small_bytes -= size;
            if uses > 0 {
                self.blocks.insert(key, (size, 0));
                self.main.push_back(key);
                self.main_bytes += size;
                return;
            }
            self.blocks.remove(&key);
            self.ghost.push_back(key);
            self.ghosts.insert(key);
            if self.ghost.len() > self.blocks.len() {
                let old = self.ghost.pop_front().expect("not empty");
                self.ghosts.remove(&old);
            }
        } else if uses > 0 {
            self.blocks.insert(key, (size, uses - 1));
            self.main.push_back(key);
        } else {
            self.main_bytes -= size;
            self.blocks.remove(&key);
        }
    }
}

impl Policy for S3Fifo {
    fn request(&mut self, key: u64, size: u64) -> bool {
        if let Some((_, uses)) = self.blocks.get_mut(&key) {
            *uses = (*uses + 1).min(3);
            return true;
        }
        while self.small_bytes + self.main_bytes + size > self.capacity {
            self.evict();
        }
        self.blocks.insert(key, (size, 0));
        if self.ghosts.remove(&key) {
            self.main.push_back(key);
            self.main_bytes += size;
        } else {
            self.small.push_back(key);
            self.small_bytes += size;
        }
        false
    }
}
