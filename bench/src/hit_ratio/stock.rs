//! LRU, and HBase's `LruBlockCache` and `BucketCache`.
//!
//! `LruBlockCache` has single and multi areas and evicts down to 0.95 of the size when it is
//! reached. `BucketCache` has HBase's default sizes: a block takes a slot of the next larger size,
//! an area of four largest slots belongs to one size, and eviction is by size. Otherwise sizes are
//! exact, without overhead.

use std::collections::{BTreeSet, HashMap};

use super::Policy;

/// Least recently used.
pub(super) struct Lru {
    capacity: u64,
    pub(super) used: u64,
    clock: u64,
    pub(super) at: HashMap<u64, (u64, u64)>,
    pub(super) order: BTreeSet<(u64, u64)>,
}

impl Lru {
    pub(super) fn new(capacity: u64) -> Self {
        Self { capacity, used: 0, clock: 0, at: HashMap::new(), order: BTreeSet::new() }
    }

    pub(super) fn touch(&mut self, key: u64) -> bool {
        self.clock += 1;
        let clock = self.clock;
        let Some((seen, _)) = self.at.get_mut(&key) else { return false };
        self.order.remove(&(*seen, key));
        *seen = clock;
        self.order.insert((clock, key));
        true
    }

    pub(super) fn put(&mut self, key: u64, size: u64) {
        self.clock += 1;
        self.at.insert(key, (self.clock, size));
        self.order.insert((self.clock, key));
        self.used += size;
    }

    pub(super) fn oldest(&self) -> Option<u64> {
        self.order.first().map(|(_, key)| *key)
    }

    pub(super) fn remove(&mut self, key: u64) -> Option<u64> {
        let (seen, size) = self.at.remove(&key)?;
        self.order.remove(&(seen, key));
        self.used -= size;
        Some(size)
    }
}

impl Policy for Lru {
    fn request(&mut self, key: u64, size: u64) -> bool {
        if self.touch(key) {
            return true;
        }
        while self.used + size > self.capacity {
            let oldest = self.oldest().unwrap_or(key);
            self.remove(oldest);
        }
        self.put(key, size);
        false
    }
}

/// HBase's LruBlockCache.
pub(super) struct HBaseLru {
    capacity: u64,
    single: Lru,
    multi: Lru,
}

impl HBaseLru {
    pub(super) fn new(capacity: u64) -> Self {
        Self { capacity, single: Lru::new(capacity), multi: Lru::new(capacity) }
    }
}

impl Policy for HBaseLru {
    fn request(&mut self, key: u64, size: u64) -> bool {
        if self.multi.touch(key) {
            return true;
        }
        if let Some(size) = self.single.remove(key) {
            self.multi.put(key, size);
            return true;
        }
        if self.single.used + self.multi.used + size > self.capacity * 99 / 100 {
            let target = self.capacity * 95 / 100;
            while self.single.used + self.multi.used > target {
                // Without in-memory blocks, the single and multi areas share in the ratio of their
                // sizes.
                let over = |used: u64, share: f64| used as f64 - share * target as f64;
                let single = over(self.single.used, 0.25) >= over(self.multi.used, 0.50);
                let area = if single { &mut self.single } else { &mut self.multi };
                let oldest = area.oldest().expect("over its share");
                area.remove(oldest);
            }
        }
        self.single.put(key, size);
        false
    }
}

const BUCKET_KB: [u64; 14] = [5, 9, 17, 33, 41, 49, 57, 65, 97, 129, 193, 257, 385, 513];

/// Stock's BucketCache: sizes, areas of four largest slots, and eviction that frees 15% of each
/// size.
pub(super) struct StockBucket {
    free_areas: u64,
    /// For each size: its slots, and the blocks in them.
    classes: Vec<(u64, Lru)>,
}

impl StockBucket {
    pub(super) fn new(capacity: u64) -> Self {
        let areas = capacity / (4 * 513 * 1024);
        let classes = BUCKET_KB.iter().map(|_| (0, Lru::new(0))).collect();
        Self { free_areas: areas, classes }
    }

    fn slots(class: usize) -> u64 {
        4 * 513 / BUCKET_KB[class]
    }
}

impl Policy for StockBucket {
    fn request(&mut self, key: u64, size: u64) -> bool {
        let class = BUCKET_KB.iter().position(|kb| size <= kb * 1024).expect("not larger");
        if self.classes[class].1.touch(key) {
            return true;
        }
        if self.classes[class].1.at.len() as u64 >= self.classes[class].0 {
            if self.free_areas > 0 {
                self.free_areas -= 1;
                self.classes[class].0 += Self::slots(class);
            } else if self.classes[class].0 == 0 {
                // A size without an area takes one from the size with the most.
                let donor = (0..BUCKET_KB.len())
                    .max_by_key(|c| self.classes[*c].0 * BUCKET_KB[*c])
                    .expect("there are sizes");
                self.classes[donor].0 -= Self::slots(donor);
                self.classes[class].0 += Self::slots(class);
            }
            for (slots, blocks) in &mut self.classes {
                while blocks.at.len() as u64 > *slots * 85 / 100 {
                    let oldest = blocks.oldest().expect("not empty");
                    blocks.remove(oldest);
                }
            }
        }
        self.classes[class].1.put(key, size);
        false
    }
}
