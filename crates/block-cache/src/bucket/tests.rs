//! Tests of the engine's guarantees: lookups return what was inserted, space is used, pins hold.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use evenkeel_common::HBaseError;

use super::slot::USES_MAX;
use super::*;
use crate::{BlockParts, BlockType, HEAT_MAX};

/// A block whose bytes are derived from its key.
pub(super) fn block(key: &BlockKey, bytes: usize) -> Block {
    block_of(BlockType::Data, key, bytes)
}

/// As [`block`], of any type.
pub(crate) fn block_of(kind: BlockType, key: &BlockKey, bytes: usize) -> Block {
    let seed = hash_of(key);
    let body: Vec<u8> = (0..bytes as u64).map(|i| (seed >> (i % 8 * 8)) as u8 ^ (i / 8) as u8).collect();
    Block::new(BlockParts {
        kind,
        offset: key.offset,
        on_disk_bytes: bytes as u32 + 33,
        prev_offset: -1,
        body: 0..bytes as u32,
        bytes: body.into(),
        seek_points: vec![seed as u32; (seed % 5) as usize].into(),
        seek_keys: vec![seed as u8; (seed % 11) as usize].into(),
        compressed: false,
    })
}

/// Returns true if a block is the one that [`block`] makes.
pub(crate) fn is_right(key: &BlockKey, found: &Block) -> bool {
    let wanted = block(key, found.data().len());
    found.data() == wanted.data()
        && found.offset() == key.offset
        && found.on_disk_bytes() == wanted.on_disk_bytes()
        && found.seek_points() == wanted.seek_points()
        && found.seek_keys() == wanted.seek_keys()
}

pub(crate) fn key(file: u64, offset: u64) -> BlockKey {
    BlockKey { file: FileId::of_name(&format!("file-{file}")), offset }
}

/// Deterministic pseudo-random numbers.
pub(crate) struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = hash(self.0, self.0 >> 32);
        mixed % n
    }
}

pub(super) fn memory(bytes: u64) -> BucketCacheConfig {
    BucketCacheConfig { poison: true, ..BucketCacheConfig::in_memory(bytes) }
}

fn put(cache: &BucketCache, key: BlockKey, bytes: usize) {
    cache.insert(key, block(&key, bytes), Admission::New);
}

fn check(cache: &BucketCache) {
    cache.shards.iter().for_each(Shard::check);
}

#[test]
fn inserted_blocks_are_found() {
    let cache = BucketCache::open(&memory(1 << 20)).unwrap();
    for i in 0..100 {
        put(&cache, key(i % 3, i), 100 + i as usize);
    }
    for i in 0..100 {
        let found = cache.get(&key(i % 3, i)).unwrap();
        assert!(found.is_pinned() && is_right(&key(i % 3, i), &found), "{i}");
    }
    assert!(cache.get(&key(0, 1)).is_none() && !cache.contains(&key(5, 0)));
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.miss_count(), stats.blocks), ([100, 0, 0, 0], 1, 100));
    assert_eq!(cache.pins(), 0);
    assert_eq!(cache.evict_file(key(1, 0).file), 33);
    assert!(cache.get(&key(1, 1)).is_none() && cache.get(&key(0, 0)).is_some());
    check(&cache);
}

/// The size of the next block.
type SizeOf = fn(&mut Random) -> usize;

/// Block sizes from 4 KB to 512 KB, in the mixes that tables make.
fn mixes() -> Vec<(&'static str, SizeOf)> {
    vec![
        ("4 KB", |_| 4 << 10),
        ("64 KB and a little", |r| (64 << 10) + r.below(2000) as usize),
        ("512 KB", |_| 512 << 10),
        ("any", |r| (4 << 10) + r.below(508 << 10) as usize),
        (
            "mostly small",
            |r| if r.below(50) == 0 { 512 << 10 } else { (4 << 10) + r.below(8 << 10) as usize },
        ),
        ("powers", |r| 4096 << r.below(8)),
        ("4 KB or 512 KB", |r| if r.below(2) == 0 { 4 << 10 } else { 512 << 10 }),
    ]
}

/// After long churn with each mix, and with a sequence of mixes, at least 97 % of the configured
/// bytes hold blocks. The index costs tens of bytes per block.
#[test]
fn churn() {
    [Policy::TinyLfu, Policy::Lru].into_iter().for_each(churn_by);
}

fn churn_by(policy: Policy) {
    const CAPACITY: u64 = 64 << 20;
    let shares = Shares::of(policy);
    let config = BucketCacheConfig { policy, shares, ..BucketCacheConfig::in_memory(CAPACITY) };
    let cache = BucketCache::open(&config).unwrap();
    let mut random = Random(1);
    // All blocks have the same bytes: this test is about their placement.
    let largest = block(&key(0, 0), 512 << 10);
    let mut offset = 0;
    for (name, size) in mixes() {
        let (mut worst, mut filled) = (1.0f64, 0);
        let before = cache.stats();
        while filled < 4 * CAPACITY {
            let bytes = size(&mut random);
            offset += 1;
            let parts = BlockParts {
                kind: BlockType::Data,
                offset,
                on_disk_bytes: 0,
                prev_offset: -1,
                bytes: largest.data()[..bytes].into(),
                body: 0..bytes as u32,
                seek_points: Box::default(),
                seek_keys: Box::default(),
                compressed: false,
            };
            cache.insert(key(offset % 7, offset), Block::new(parts), Admission::New);
            filled += bytes as u64;
            if random.below(20) == 0 {
                let seen = offset.saturating_sub(50);
                let again = key(seen % 7, seen);
                drop(cache.get(&again));
            }
            if filled > 2 * CAPACITY && offset % 16 == 0 {
                let stats = cache.stats();
                let held = stats.bytes - stats.blocks * frame::HEADER_BYTES as u64 - stats.blocks * 7;
                worst = worst.min(held as f64 / CAPACITY as f64);
            }
        }
        let stats = cache.stats();
        let moved = (stats.relocated_bytes - before.relocated_bytes) as f64 / filled as f64;
        eprintln!(
            "{policy:?}, {name}: {worst:.4} of the bytes hold blocks at least, {moved:.2} bytes moved for each filled"
        );
        assert!(worst >= 0.97, "{policy:?}, {name}: {worst}");
        assert!(moved < 2.0, "{policy:?}, {name}: {moved}");
        assert_eq!(stats.failed_insertions, 0);
    }
    check(&cache);
}

#[test]
fn the_index_costs_tens_of_bytes_a_block() {
    let cache = BucketCache::open(&BucketCacheConfig::in_memory(64 << 20)).unwrap();
    for i in 0..20_000 {
        put(&cache, key(1, i), 4 << 10);
    }
    let stats = cache.stats();
    assert!(stats.blocks > 10_000);
    let each = stats.index_bytes as f64 / stats.blocks as f64;
    eprintln!("{each:.1} bytes of index a block");
    assert!(each <= 80.0, "{each}");
}

#[test]
fn a_pinned_block_is_never_reused() {
    let cache = BucketCache::open(&memory(1 << 20)).unwrap();
    let held: Vec<_> = (0..4)
        .map(|i| {
            put(&cache, key(9, i), 50_000);
            (key(9, i), cache.get(&key(9, i)).unwrap())
        })
        .collect();
    let clones: Vec<_> = held.iter().map(|(key, block)| (*key, block.clone())).collect();
    drop(held);
    assert_eq!(cache.pins(), 4);
    for i in 0..500 {
        put(&cache, key(1, i), 20_000 + (i as usize * 37) % 30_000);
    }
    assert!(clones.iter().all(|(key, block)| is_right(key, block)));
    assert!(clones.iter().all(|(key, _)| cache.contains(key)), "blocks in use are not evicted");
    assert_eq!(cache.evict_file(key(9, 0).file), 4);
    assert!(clones.iter().all(|(key, _)| cache.get(key).is_none()));
    (0..500).for_each(|i| put(&cache, key(2, i), 30_000));
    assert!(clones.iter().all(|(key, block)| is_right(key, block)), "forgotten, and still held");
    assert_eq!(cache.pending_free(), 4);
    drop(clones);
    assert_eq!((cache.pending_free(), cache.pins()), (0, 0));
    check(&cache);
}

#[test]
fn blocks_outlive_their_cache() {
    let cache = BucketCache::open(&memory(1 << 20)).unwrap();
    put(&cache, key(1, 1), 1000);
    let held = cache.get(&key(1, 1)).unwrap();
    drop(cache);
    assert!(is_right(&key(1, 1), &held));
    let other = std::thread::spawn(move || is_right(&key(1, 1), &held)).join().unwrap();
    assert!(other);
}

#[test]
fn loads_are_served_uncached_when_every_block_is_pinned() {
    let cache = BucketCache::open(&memory(1 << 20)).unwrap();
    (0..100).for_each(|i| put(&cache, key(1, i), 100_000));
    let held: Vec<_> = (0..100).filter_map(|i| cache.get(&key(1, i))).collect();
    assert!(held.len() >= 9, "{}", held.len());
    let key = key(2, 0);
    let served = cache.get_or_load(&key, CacheHint::INSERT, &mut || Ok(block(&key, 500_000))).unwrap();
    assert!(is_right(&key, &served) && !cache.contains(&key));
    assert_eq!(cache.stats().failed_insertions, 1);
    drop(held);
    put(&cache, key, 500_000);
    assert!(cache.contains(&key));
}

#[test]
fn a_thousand_pins_of_one_thread() {
    let cache = BucketCache::open(&memory(1 << 20)).unwrap();
    (0..10).for_each(|i| put(&cache, key(1, i), 100));
    let held: Vec<_> = (0..1000).map(|i| cache.get(&key(1, i % 10)).unwrap()).collect();
    assert_eq!(cache.pins(), 1000);
    drop(held);
    assert_eq!(cache.pins(), 0);
}

#[test]
fn blocks_of_in_memory_families_keep_their_share() {
    let cache = BucketCache::open(&memory(1 << 20)).unwrap();
    for i in 0..20 {
        cache.insert(key(7, i), block(&key(7, i), 10_000), Admission::InMemory);
    }
    (0..1000).for_each(|i| put(&cache, key(1, i), 10_000));
    assert!((0..20).all(|i| cache.contains(&key(7, i))), "less than their share: they stay");
    for i in 0..1000 {
        cache.insert(key(8, i), block(&key(8, i), 10_000), Admission::InMemory);
    }
    let others = (0..1000).filter(|i| cache.contains(&key(1, *i))).count();
    assert!(others > 60, "others keep the rest: {others}");
}

#[test]
fn a_scan_does_not_evict_hot_blocks() {
    let cache = BucketCache::open(&memory(1 << 20)).unwrap();
    for _ in 0..3 {
        for i in 0..40 {
            cache.get_or_load(&key(1, i), CacheHint::INSERT, &mut || Ok(block(&key(1, i), 10_000))).unwrap();
        }
    }
    (0..1000).for_each(|i| put(&cache, key(2, i), 10_000));
    let kept = (0..40).filter(|i| cache.contains(&key(1, *i))).count();
    assert!(kept >= 38, "{kept}");
}

#[test]
fn frequent_blocks_replace_blocks_requested_once() {
    let cache = BucketCache::open(&memory(1 << 20)).unwrap();
    // Main is full of blocks that are not requested again.
    (0..200).for_each(|i| put(&cache, key(1, i), 10_000));
    assert!(count(&cache, 1, 0..100) > 80, "what came first is kept while nothing else is known");
    // Twenty blocks that are never cached long enough for a hit: a scan follows each round.
    for round in 0..12 {
        (0..20).for_each(|i| put(&cache, key(2, i), 10_000));
        (0..20).for_each(|i| put(&cache, key(3, round * 20 + i), 10_000));
    }
    assert!(count(&cache, 2, 0..20) >= 18, "{} of 20", count(&cache, 2, 0..20));
    assert!(count(&cache, 3, 0..240) < 30, "{} blocks seen once", count(&cache, 3, 0..240));
    check(&cache);
}

#[test]
fn replacements_of_warm_blocks_survive_a_scan() {
    for (admission, kept) in [(Admission::Warm, 38..=40), (Admission::New, 0..=2)] {
        let cache = BucketCache::open(&memory(1 << 20)).unwrap();
        (0..200).for_each(|i| put(&cache, key(1, i), 10_000));
        (0..40).for_each(|i| cache.insert(key(2, i), block(&key(2, i), 10_000), admission));
        (0..300).for_each(|i| put(&cache, key(3, i), 10_000));
        let there = count(&cache, 2, 0..40);
        assert!(kept.contains(&there), "{there} of {admission:?}");
        check(&cache);
    }
}

#[test]
fn blocks_with_hits_are_hot() {
    for policy in [Policy::TinyLfu, Policy::Lru] {
        let shares = Shares::of(policy);
        let cache = BucketCache::open(&BucketCacheConfig { policy, shares, ..memory(1 << 20) }).unwrap();
        (0..50).for_each(|i| put(&cache, key(1, i), 1000));
        (0..5).for_each(|i| put(&cache, key(2, i), 1000));
        for (offset, hits) in [(7, 1), (3, 3)] {
            (0..hits).for_each(|_| drop(cache.get(&key(1, offset))));
        }
        drop(cache.get(&key(2, 1)));
        let hot = |files: &[u64], blocks_max| {
            let ids: Vec<_> = files.iter().map(|file| key(*file, 0).file).collect();
            cache.hot_blocks(&ids, blocks_max)
        };
        let keys = |blocks: &[HotBlock]| blocks.iter().map(|block| block.key).collect::<Vec<_>>();
        let found = hot(&[1], 10);
        assert_eq!(keys(&found), [key(1, 3), key(1, 7)], "{policy:?}");
        assert!(found[0].heat > found[1].heat && found[0].heat <= HEAT_MAX);
        assert!(found.iter().all(|block| block.on_disk_bytes == 1033));
        assert_eq!(keys(&hot(&[1, 2], 10)).len(), 3);
        assert_eq!(keys(&hot(&[1], 1)), [key(1, 3)]);
        assert_eq!(hot(&[3], 10), []);
        check(&cache);
    }
}

#[test]
fn a_block_that_moved_here_replaces_only_colder_ones() {
    let admits = |cache: &BucketCache, i, heat| cache.admits(&key(2, i), BlockCategory::Data, 10_000, heat);
    let cache = BucketCache::open(&memory(1 << 20)).unwrap();
    assert!(admits(&cache, 0, 1), "while there is space");
    assert!(!cache.admits(&key(2, 0), BlockCategory::Data, 600_000, 1), "larger than half a shard");
    (0..200).for_each(|i| put(&cache, key(1, i), 10_000));
    let hot: Vec<_> = (0..200).rev().filter(|i| cache.contains(&key(1, *i))).skip(5).take(40).collect();
    (0..3).for_each(|_| hot.iter().for_each(|i| drop(cache.get(&key(1, *i)))));
    assert!(!admits(&cache, 0, 1), "not more often than those that are here");
    for i in (0..30).filter(|i| admits(&cache, *i, 8)) {
        cache.insert(key(2, i), block(&key(2, i), 10_000), Admission::Moved(8));
    }
    (0..300).for_each(|i| put(&cache, key(3, i), 10_000));
    assert!(count(&cache, 2, 0..30) >= 28, "{} of 30 after a scan", count(&cache, 2, 0..30));
    assert!(hot.iter().all(|i| cache.contains(&key(1, *i))), "a hot block was evicted");
    check(&cache);

    // Blocks that are all in use do not yield.
    for _ in 0..USES_MAX {
        (0..3).for_each(|file| (0..300).for_each(|i| drop(cache.get(&key(file + 1, i)))));
    }
    assert!(!admits(&cache, 99, HEAT_MAX));

    let cache = lru();
    assert!(admits(&cache, 0, 1));
    (0..200).for_each(|i| put(&cache, key(1, i), 10_000));
    assert!(!admits(&cache, 0, HEAT_MAX), "LRU takes blocks into free space only");
}

/// An insertion evicts main's oldest block without a hit, however cold the blocks behind it are.
#[test]
fn a_block_that_moved_here_is_compared_with_the_block_that_it_evicts() {
    let admits = |cache: &BucketCache, i, heat| cache.admits(&key(2, i), BlockCategory::Data, 20_000, heat);
    let cache = BucketCache::open(&memory(1 << 20)).unwrap();
    (0..5).for_each(|i| cache.insert(key(1, i), block(&key(1, i), 20_000), Admission::Moved(15)));
    // A heat of 1 is admitted into free space only.
    for i in (0..100).take_while(|i| admits(&cache, *i, 1)) {
        cache.insert(key(3, i), block(&key(3, i), 20_000), Admission::Warm);
    }
    let cold = count(&cache, 3, 0..100);
    assert!(cold > 30 && cache.stats().evictions == 0, "{cold} cold blocks behind the hot ones");
    for i in (0..5).filter(|i| admits(&cache, *i, 3)) {
        cache.insert(key(2, i), block(&key(2, i), 20_000), Admission::Moved(3));
    }
    assert_eq!((count(&cache, 1, 0..5), count(&cache, 2, 0..5)), (5, 0));
    assert!(admits(&cache, 0, HEAT_MAX), "it is hotter than the victim");
    check(&cache);
}

/// With all blocks in use, the clock stops before a full round for one victim, and lookups are
/// right.
#[test]
fn a_clock_round_is_bounded_when_all_blocks_are_used() {
    for policy in [Policy::TinyLfu, Policy::Lru] {
        let shares = Shares::of(policy);
        let cache = BucketCache::open(&BucketCacheConfig { policy, shares, ..memory(1 << 20) }).unwrap();
        (0..8000).for_each(|i| put(&cache, key(1, i), 200));
        for _ in 0..USES_MAX {
            (0..8000).for_each(|i| drop(cache.get(&key(1, i))));
        }
        let full = cache.stats();
        let hit = || -> u64 {
            let slots = cache.shards[0].slots();
            (1..slots.count()).map(|id| u64::from(slots.get(id).uses.load(Relaxed))).sum()
        };
        let before = hit();
        assert!(before > full.blocks * 2, "{before} uses of {} blocks", full.blocks);
        let evictions = cache.stats().evictions;
        (0..3).for_each(|i| cache.insert(key(2, i), block(&key(2, i), 200), Admission::Warm));
        let evicted = cache.stats().evictions - evictions;
        let looked = before - hit();
        assert!(
            evicted > 0 && looked <= (evicted + 3) * 3 * 128,
            "{looked} uses taken for {evicted} victims"
        );
        check(&cache);
    }
}

/// An LRU cache of 1 MB, which holds about 100 blocks of 10,000 bytes.
fn lru() -> BucketCache {
    let (policy, shares) = (Policy::Lru, Shares::of(Policy::Lru));
    BucketCache::open(&BucketCacheConfig { policy, shares, ..memory(1 << 20) }).unwrap()
}

fn count(cache: &BucketCache, file: u64, offsets: std::ops::Range<u64>) -> usize {
    offsets.filter(|i| cache.contains(&key(file, *i))).count()
}

#[test]
fn lru_areas_keep_their_shares() {
    let cache = lru();
    (0..45).for_each(|i| put(&cache, key(1, i), 10_000));
    (0..45).for_each(|i| drop(cache.get(&key(1, i))));
    (0..20).for_each(|i| cache.insert(key(2, i), block(&key(2, i), 10_000), Admission::InMemory));
    (0..1000).for_each(|i| put(&cache, key(3, i), 10_000));
    assert_eq!((count(&cache, 1, 0..45), count(&cache, 2, 0..20)), (45, 20), "a scan takes only the rest");
    for i in 0..1000 {
        put(&cache, key(4, i), 10_000);
        drop(cache.get(&key(4, i)));
        put(&cache, key(5, i), 10_000);
    }
    assert_eq!(count(&cache, 2, 0..20), 20, "IN_MEMORY blocks below their share stay");
    let (multi, single) = (count(&cache, 4, 0..1000), count(&cache, 5, 0..1000));
    assert!(multi > 45 && single > 8, "{multi} blocks seen twice and {single} seen once");
    check(&cache);
}

#[test]
fn lru_evicts_the_least_recently_used_block() {
    let cache = lru();
    let twice = |file: u64, offsets: std::ops::Range<u64>| {
        for i in offsets {
            put(&cache, key(file, i), 10_000);
            drop(cache.get(&key(file, i)));
        }
    };
    twice(1, 0..20);
    // Hot for long, and not requested since.
    (0..10).for_each(|_| (0..20).for_each(|i| drop(cache.get(&key(1, i)))));
    twice(2, 0..180);
    assert_eq!(count(&cache, 1, 0..20), 0);
    let (older, newer) = (count(&cache, 2, 0..60), count(&cache, 2, 100..180));
    assert!(older == 0 && newer > 70, "{older} and {newer}");
    check(&cache);
}

#[test]
fn a_resize_evicts_or_admits_blocks() {
    let cache = BucketCache::open(&memory(1 << 20)).unwrap();
    let fill = || (0..100).for_each(|i| put(&cache, key(1, i), 20_000));
    fill();
    let full = cache.stats().bytes;
    cache.resize(500_000);
    assert!(cache.stats().bytes <= 500_000);
    fill();
    assert!(cache.stats().bytes <= 500_000);
    cache.resize(1 << 20);
    fill();
    assert!(cache.stats().bytes > full * 9 / 10);
    check(&cache);
}

#[test]
fn a_failed_load_is_not_remembered() {
    let cache = BucketCache::open(&memory(1 << 20)).unwrap();
    let key = key(1, 0);
    let failed = cache.get_or_load(&key, CacheHint::INSERT, &mut || Err(HBaseError::io("no disk").into()));
    assert_eq!(failed.unwrap_err().into_failure().message(), "no disk");
    assert!(cache.get_or_load(&key, CacheHint::INSERT, &mut || Ok(block(&key, 1))).is_ok());
}

#[test]
fn an_oversized_block_is_served_uncached() {
    let cache = BucketCache::open(&memory(64 << 20)).unwrap();
    let key = key(1, 0);
    let big = block(&key, BLOCK_BYTES_MAX + 1);
    let found = cache.get_or_load(&key, CacheHint::INSERT, &mut || Ok(big.clone())).unwrap();
    assert_eq!((found.data().len(), cache.stats().blocks), (BLOCK_BYTES_MAX + 1, 0));
}

/// Every engine against a simple rule: a lookup returns what belongs to the key, whatever other
/// threads do.
#[test]
fn model_of_each_engine() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let engines = [
        Engine::Memory,
        Engine::Mapped(file("mapped")),
        Engine::Files(vec![file("file")]),
        Engine::Files(vec![file("a"), file("b"), file("c")]),
    ];
    for (engine, policy) in
        engines.iter().flat_map(|engine| [Policy::TinyLfu, Policy::Lru].map(|p| (engine, p)))
    {
        let shares = Shares::of(policy);
        let config = BucketCacheConfig { engine: engine.clone(), policy, shares, ..memory(3 << 20) };
        let cache = BucketCache::open(&config).unwrap();
        drive(&cache, 4, 3000);
        assert_eq!((cache.pins(), cache.pending_free()), (0, 0), "{engine:?} {policy:?}");
        check(&cache);
        let stats = cache.stats();
        assert_eq!((stats.damaged, stats.io_errors), (0, 0), "{engine:?} {policy:?}");
        assert!(
            stats.evictions > 0 && stats.hit_count() > 0 && stats.invalidations > 0,
            "{engine:?} {policy:?} {stats:?}"
        );
        drop(cache);
    }
}

/// Many threads insert, look up, hold, remove and resize concurrently.
pub(super) fn drive(cache: &BucketCache, threads: u64, steps: u64) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut random = Random(thread + 1);
                let mut held: Vec<(BlockKey, Block)> = Vec::new();
                for _ in 0..steps {
                    let n = random.below(20) * random.below(20);
                    let key = key(n % 5, n);
                    // A key always has the same size, like a block of a file.
                    let bytes = 200 + (hash_of(&key) % 60_000) as usize;
                    match random.below(200) {
                        0 => drop(cache.evict_file(key.file)),
                        1 => cache.resize((1 << 20) + random.below(2 << 20)),
                        2..60 => cache.insert(key, block(&key, bytes), Admission::of(n.is_multiple_of(7))),
                        60..100 => held.extend(cache.get(&key).map(|block| (key, block))),
                        _ => {
                            let mut load = || Ok(block(&key, bytes));
                            let found = cache.get_or_load(&key, CacheHint::INSERT, &mut load).unwrap();
                            assert!(is_right(&key, &found), "{key:?}");
                        }
                    }
                    if held.len() > 12 {
                        let (key, block) = held.swap_remove(random.below(12) as usize);
                        assert!(is_right(&key, &block), "{key:?} held");
                    }
                }
                assert!(held.iter().all(|(key, block)| is_right(key, block)));
            });
        }
    });
}

/// Two threads read one hot block, while a third causes moves and evictions.
#[test]
fn a_hot_block_under_churn() {
    let cache = BucketCache::open(&memory(1 << 20)).unwrap();
    let (stop, hits) = (AtomicBool::new(false), AtomicU64::new(0));
    let hot = key(1, 1);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    let found =
                        cache.get_or_load(&hot, CacheHint::INSERT, &mut || Ok(block(&hot, 3000))).unwrap();
                    assert!(is_right(&hot, &found));
                    hits.fetch_add(1, SeqCst);
                }
            });
        }
        let mut random = Random(3);
        for i in 0..4000 {
            put(&cache, key(2, i), 1000 + random.below(100_000) as usize);
            if i % 50 == 0 {
                cache.evict_file(hot.file);
            }
        }
        stop.store(true, SeqCst);
    });
    assert!(hits.load(SeqCst) > 100);
    assert_eq!(cache.pins(), 0);
    check(&cache);
}
