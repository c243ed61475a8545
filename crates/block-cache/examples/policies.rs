//! Hit ratios of eviction policies at equal memory, on zipf and zipf-plus-scan traces; ours by the real engine.
//!
//! `cargo run --release -p evenkeel-block-cache --example policies`
//!
//! The others are simulated, with exact bytes and no overhead. `HBase LRU` is LruBlockCache (single, multi and in-memory
//! areas, evicted down to 0.95 of the size when it is reached), `BucketCache` is stock's with its default sizes: a block
//! takes a slot of the next size, areas of four largest slots belong to one size, and eviction is by size.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use evenkeel_block_cache::{
    Block, BlockCache, BlockKey, BlockParts, BlockType, BucketCache, BucketCacheConfig, CacheHint, FileId,
};

/// Numbers that look random and are the same each time (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Keys from 0 on, the first the most frequent, by the given exponent; shuffled over the blocks.
struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    fn new(keys: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=keys).map(|rank| {
            sum += 1.0 / (rank as f64).powf(exponent);
            sum
        });
        Self { sums: sums.collect() }
    }

    fn pick(&self, random: &mut Random) -> u64 {
        let at = random.unit() * self.sums.last().copied().unwrap_or(1.0);
        let rank = self.sums.partition_point(|sum| *sum < at) as u64;
        rank.wrapping_mul(7_919) % self.sums.len() as u64
    }
}

const KEYS: usize = 20_000;
const REQUESTS: usize = 600_000;

/// A request: the block, and whether a scan asks (for the report only).
type Trace = Vec<u64>;

fn zipf(exponent: f64) -> Trace {
    let (zipf, mut random) = (Zipf::new(KEYS, exponent), Random(1));
    (0..REQUESTS).map(|_| zipf.pick(&mut random)).collect()
}

/// Zipf reads, and between them scans over blocks that nobody else reads, a third of all requests.
fn zipf_and_scans(exponent: f64) -> Trace {
    let (zipf, mut random) = (Zipf::new(KEYS, exponent), Random(2));
    let mut trace = Vec::with_capacity(REQUESTS);
    let mut cold = KEYS as u64;
    while trace.len() < REQUESTS {
        trace.extend((0..4000).map(|_| zipf.pick(&mut random)));
        trace.extend(cold..cold + 2000);
        cold += 2000;
        if cold > 6 * KEYS as u64 {
            cold = KEYS as u64;
        }
    }
    trace
}

/// The popular blocks change slowly.
fn drifting(exponent: f64) -> Trace {
    let (zipf, mut random) = (Zipf::new(KEYS, exponent), Random(3));
    (0..REQUESTS).map(|i| (zipf.pick(&mut random) + (i / 20_000 * 300) as u64) % KEYS as u64).collect()
}

/// Blocks as tables with compression and values of all sizes give them: 4 KB to 256 KB, most about 64 KB.
fn size_of(key: u64) -> u64 {
    let mut random = Random(key ^ 0x5eed);
    match random.next() % 10 {
        0 => 4_096 + random.next() % 12_000,
        1..3 => 16_000 + random.next() % 30_000,
        9 => 80_000 + random.next() % 176_000,
        _ => 65_536 + random.next() % 2_500,
    }
}

trait Policy {
    /// Whether it was there; it is kept now.
    fn ask(&mut self, key: u64, size: u64) -> bool;
}

/// Least recently used.
struct Lru {
    capacity: u64,
    used: u64,
    clock: u64,
    at: HashMap<u64, (u64, u64)>,
    order: BTreeSet<(u64, u64)>,
}

impl Lru {
    fn new(capacity: u64) -> Self {
        Self { capacity, used: 0, clock: 0, at: HashMap::new(), order: BTreeSet::new() }
    }

    fn touch(&mut self, key: u64) -> bool {
        self.clock += 1;
        let clock = self.clock;
        let Some((seen, _)) = self.at.get_mut(&key) else { return false };
        self.order.remove(&(*seen, key));
        *seen = clock;
        self.order.insert((clock, key));
        true
    }

    fn put(&mut self, key: u64, size: u64) {
        self.clock += 1;
        self.at.insert(key, (self.clock, size));
        self.order.insert((self.clock, key));
        self.used += size;
    }

    fn oldest(&self) -> Option<u64> {
        self.order.first().map(|(_, key)| *key)
    }

    fn remove(&mut self, key: u64) -> Option<u64> {
        let (seen, size) = self.at.remove(&key)?;
        self.order.remove(&(seen, key));
        self.used -= size;
        Some(size)
    }
}

impl Policy for Lru {
    fn ask(&mut self, key: u64, size: u64) -> bool {
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
struct HBaseLru {
    capacity: u64,
    single: Lru,
    multi: Lru,
}

impl Policy for HBaseLru {
    fn ask(&mut self, key: u64, size: u64) -> bool {
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
                // Without in-memory blocks, single and multi share in the ratio of their areas.
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

/// SIEVE: one queue, a hand that passes over what was visited.
struct Sieve {
    capacity: u64,
    used: u64,
    /// Oldest first; `None` where one was removed.
    queue: Vec<Option<u64>>,
    hand: usize,
    blocks: HashMap<u64, (u64, bool)>,
}

impl Policy for Sieve {
    fn ask(&mut self, key: u64, size: u64) -> bool {
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

/// W-TinyLFU: a window of 1%, and a main part that takes in what was asked for more often than what must leave.
struct TinyLfu {
    capacity: u64,
    window: Lru,
    probation: Lru,
    protected: Lru,
    counts: HashMap<u64, u32>,
    asked: u64,
}

impl TinyLfu {
    fn count(&mut self, key: u64) {
        *self.counts.entry(key).or_default() += 1;
        self.asked += 1;
        // Exact counts, halved as a sketch would be.
        if self.asked.is_multiple_of(10 * KEYS as u64) {
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
    fn ask(&mut self, key: u64, size: u64) -> bool {
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

/// S3-FIFO with exact bytes: what the engine does, without its allocator.
struct S3Fifo {
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
    fn new(capacity: u64, small_share: f64) -> Self {
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
    fn ask(&mut self, key: u64, size: u64) -> bool {
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

const BUCKET_KB: [u64; 14] = [5, 9, 17, 33, 41, 49, 57, 65, 97, 129, 193, 257, 385, 513];

/// Stock's BucketCache: sizes, areas of four largest slots, and eviction that frees 15% of each size.
struct StockBucket {
    free_areas: u64,
    /// Of each size: slots that belong to it, and the blocks in them.
    classes: Vec<(u64, Lru)>,
}

impl StockBucket {
    fn new(capacity: u64) -> Self {
        let areas = capacity / (4 * 513 * 1024);
        let classes = BUCKET_KB.iter().map(|_| (0, Lru::new(0))).collect();
        Self { free_areas: areas, classes }
    }

    fn slots(class: usize) -> u64 {
        4 * 513 / BUCKET_KB[class]
    }
}

impl Policy for StockBucket {
    fn ask(&mut self, key: u64, size: u64) -> bool {
        let class = BUCKET_KB.iter().position(|kb| size <= kb * 1024).expect("not larger");
        if self.classes[class].1.touch(key) {
            return true;
        }
        if self.classes[class].1.at.len() as u64 >= self.classes[class].0 {
            if self.free_areas > 0 {
                self.free_areas -= 1;
                self.classes[class].0 += Self::slots(class);
            } else if self.classes[class].0 == 0 {
                // A size without an area takes one of the size with the most.
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

/// The engine itself, with blocks of the given sizes.
struct Engine {
    cache: BucketCache,
    bytes: Vec<u8>,
}

impl Policy for Engine {
    fn ask(&mut self, key: u64, size: u64) -> bool {
        let id = BlockKey { file: FileId::of_name("trace"), offset: key };
        let mut hit = true;
        let mut load = || {
            hit = false;
            Ok(Block::new(BlockParts {
                kind: BlockType::Data,
                offset: key,
                on_disk_bytes: size as u32,
                prev_offset: -1,
                bytes: self.bytes[..size as usize].into(),
                body: 0..size as u32,
                seek_points: Box::default(),
                seek_keys: Box::default(),
                packed: false,
            }))
        };
        drop(self.cache.get_or_load(&id, CacheHint::KEEP, &mut load).expect("loads"));
        hit
    }
}

fn run(policy: &mut dyn Policy, trace: &Trace) -> f64 {
    let warm = trace.len() / 4;
    let mut hits = 0;
    for (i, key) in trace.iter().enumerate() {
        let hit = policy.ask(*key, size_of(*key));
        hits += u64::from(hit && i >= warm);
    }
    100.0 * hits as f64 / (trace.len() - warm) as f64
}

fn main() {
    let total: u64 = (0..KEYS as u64).map(size_of).sum();
    println!(
        "{KEYS} blocks of {} KB on average, {REQUESTS} requests, the first quarter not counted",
        (total >> 10) / KEYS as u64
    );
    println!(
        "| trace | memory | LRU | HBase LRU | BucketCache | SIEVE | W-TinyLFU | S3-FIFO 10% | S3-FIFO 25% | ours |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let traces = [
        ("zipf 0.9", zipf(0.9)),
        ("zipf 0.7", zipf(0.7)),
        ("zipf 0.9 and scans", zipf_and_scans(0.9)),
        ("zipf 0.9, drifting", drifting(0.9)),
    ];
    for (name, trace) in &traces {
        for part in [5, 20] {
            let capacity = total / 100 * part;
            let lru = || Lru::new(capacity);
            let engine = BucketCache::open(&BucketCacheConfig::in_memory(capacity)).expect("memory");
            let mut policies: Vec<Box<dyn Policy>> = vec![
                Box::new(lru()),
                Box::new(HBaseLru { capacity, single: lru(), multi: lru() }),
                Box::new(StockBucket::new(capacity)),
                Box::new(Sieve { capacity, used: 0, queue: Vec::new(), hand: 0, blocks: HashMap::new() }),
                Box::new(TinyLfu {
                    capacity,
                    window: lru(),
                    probation: lru(),
                    protected: lru(),
                    counts: HashMap::new(),
                    asked: 0,
                }),
                Box::new(S3Fifo::new(capacity, 0.10)),
                Box::new(S3Fifo::new(capacity, 0.25)),
                Box::new(Engine { cache: engine, bytes: vec![7; 300_000] }),
            ];
            let ratios: Vec<_> =
                policies.iter_mut().map(|policy| format!("{:.1}", run(&mut **policy, trace))).collect();
            println!("| {name} | {part}% | {} |", ratios.join(" | "));
        }
    }
}
