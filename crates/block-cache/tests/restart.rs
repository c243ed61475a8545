//! File engines across restarts, kill -9 and damage: warm immediately, and never a wrong byte.
//!
//! Each engine is killed [`KILLS`] times while it is written to, a hundred times in all.
//! `EVENKEEL_CACHE_KILLS=100` sets the kills per engine.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{RwLock, RwLockReadGuard};
use std::time::Duration;

use evenkeel_block_cache::{
    Admission, Block, BlockCache, BlockKey, BlockParts, BlockType, BucketCache, BucketCacheConfig, Engine,
    FileId,
};

const CAPACITY: u64 = 4 << 20;
/// Keys that the child cycles through: more than fit.
const KEYS: u64 = 1000;
/// Kills per engine; there are three.
const KILLS: u64 = 34;
/// The line that the child prints when its writes start.
const WRITES: &str = "it writes";
const CHILD_DIR: &str = "EVENKEEL_CACHE_CHILD_DIR";
const CHILD_ENGINE: &str = "EVENKEEL_CACHE_CHILD_ENGINE";

fn config(dir: &Path, engine: &str) -> BucketCacheConfig {
    let engine = match engine {
        "mmap" => Engine::Mapped(dir.join("cache")),
        "file" => Engine::Files(vec![dir.join("cache")]),
        _ => Engine::Files(vec![dir.join("cache"), dir.join("cache.2")]),
    };
    BucketCacheConfig { engine, ..BucketCacheConfig::in_memory(CAPACITY) }
}

/// Write-locked while a process is started: until its `exec`, the child holds all open files with
/// their locks. Read-locked while a cache is open.
static STARTS: RwLock<()> = RwLock::new(());

fn no_starts() -> RwLockReadGuard<'static, ()> {
    STARTS.read().unwrap()
}

fn open(dir: &Path, engine: &str) -> BucketCache {
    BucketCache::open(&config(dir, engine)).expect("opens")
}

fn key(n: u64) -> BlockKey {
    BlockKey { file: FileId::of_name(&format!("file-{}", n % 7)), offset: n }
}

fn block(n: u64) -> Block {
    let bytes = 100 + (n * 7919 % 20_000) as usize;
    let body: Vec<u8> = (0..bytes as u64).map(|i| (n.wrapping_mul(31) + i * (n | 1)) as u8).collect();
    Block::new(BlockParts {
        kind: BlockType::EncodedData,
        offset: n,
        on_disk_bytes: bytes as u32,
        prev_offset: -1,
        body: 0..bytes as u32,
        bytes: body.into(),
        seek_points: vec![n as u32; 3].into(),
        seek_keys: vec![n as u8; 5].into(),
        compressed: false,
    })
}

/// Counts the cached blocks, and asserts that all of them are right.
fn count_right(cache: &BucketCache) -> usize {
    let found = (0..KEYS).filter_map(|n| cache.get(&key(n)).map(|found| (n, found)));
    let checked = found.map(|(n, found)| {
        let wanted = block(n);
        assert_eq!(found.data(), wanted.data(), "block {n}");
        assert_eq!((found.offset(), found.kind()), (n, BlockType::EncodedData));
        assert_eq!((found.seek_points(), found.seek_keys()), (wanted.seek_points(), wanted.seek_keys()));
    });
    checked.count()
}

#[test]
fn a_closed_cache_is_warm_when_it_is_opened() {
    let _open = no_starts();
    for engine in ["mmap", "file", "files"] {
        let dir = tempfile::tempdir().unwrap();
        let cache = open(dir.path(), engine);
        (0..200).for_each(|n| cache.insert(key(n), block(n), Admission::of(n % 9 == 0)));
        let (there, stats) = (count_right(&cache), cache.stats());
        assert!(BucketCache::open(&config(dir.path(), engine)).is_err(), "{engine}: in use");
        drop(cache);
        let cache = open(dir.path(), engine);
        assert_eq!(cache.stats().bytes, stats.bytes, "{engine}");
        assert_eq!(count_right(&cache), there, "{engine}");
        let files: Vec<_> = (0..7).map(|n| key(n).file).collect();
        let blocks: u64 = cache.cached_files(&files).iter().map(|file| file.blocks).sum();
        assert_eq!(blocks, there as u64);
        (0..KEYS).for_each(|n| cache.insert(key(n), block(n), Admission::New));
        assert!(count_right(&cache) > 100);
    }
}

#[test]
fn damage_is_dropped_block_by_block() {
    let _open = no_starts();
    for engine in ["mmap", "file"] {
        let dir = tempfile::tempdir().unwrap();
        let cache = open(dir.path(), engine);
        (0..300).for_each(|n| cache.insert(key(n), block(n), Admission::New));
        let there = count_right(&cache);
        drop(cache);
        let data = std::fs::OpenOptions::new().write(true).open(dir.path().join("cache")).unwrap();
        for at in (0..CAPACITY).step_by(100_000) {
            data.write_all_at(b"damage", at).unwrap();
        }
        let cache = open(dir.path(), engine);
        let left = count_right(&cache);
        assert!(left < there && left > there / 2, "{engine}: {left} of {there}");
        assert!(cache.stats().damaged as usize == there - left, "{engine}: {:?}", cache.stats());
        assert_eq!(count_right(&cache), left);
    }
}

#[test]
fn a_damaged_index_gives_no_wrong_byte() {
    let _open = no_starts();
    for engine in ["mmap", "file"] {
        for seed in 0..20u64 {
            let dir = tempfile::tempdir().unwrap();
            let cache = open(dir.path(), engine);
            (0..300).for_each(|n| cache.insert(key(n), block(n), Admission::New));
            drop(cache);
            let path = dir.path().join("cache.index");
            let mut bytes = std::fs::read(&path).unwrap();
            let mut random = seed + 1;
            for _ in 0..200 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Behind the superblock, mostly in the slots in use.
                let at = 4096 + (random >> 33) as usize % (64 * 320);
                bytes[at] = (random >> 17) as u8;
            }
            std::fs::write(&path, bytes).unwrap();
            let cache = open(dir.path(), engine);
            count_right(&cache);
            (0..KEYS).for_each(|n| cache.insert(key(n), block(n), Admission::New));
            assert!(count_right(&cache) > 100, "{engine} {seed}");
            for n in 0..7 {
                cache.evict_file(key(n).file);
            }
            assert_eq!(count_right(&cache), 0);
        }
    }
}

#[test]
fn another_geometry_or_version_starts_empty() {
    let _open = no_starts();
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), "file");
    (0..100).for_each(|n| cache.insert(key(n), block(n), Admission::New));
    drop(cache);
    let larger = BucketCacheConfig { capacity_bytes: 2 * CAPACITY, ..config(dir.path(), "file") };
    let cache = BucketCache::open(&larger).unwrap();
    assert_eq!((cache.stats().blocks, count_right(&cache)), (0, 0));
    (0..100).for_each(|n| cache.insert(key(n), block(n), Admission::New));
    drop(cache);
    let index = std::fs::OpenOptions::new().write(true).open(dir.path().join("cache.index")).unwrap();
    index.write_all_at(&[99], 8).unwrap();
    let cache = BucketCache::open(&larger).unwrap();
    assert_eq!(count_right(&cache), 0);
    drop(cache);
    std::fs::write(dir.path().join("cache"), b"").unwrap();
    assert_eq!(count_right(&BucketCache::open(&larger).unwrap()), 0);
}

/// The process that is killed: inserts, looks up and removes until then.
fn be_killed(dir: &Path, engine: &str) {
    let cache = open(dir, engine);
    println!("\n{WRITES}");
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let cache = &cache;
            scope.spawn(move || {
                for n in (thread * 17..).step_by(3) {
                    cache.insert(key(n % KEYS), block(n % KEYS), Admission::of(n % 5 == 0));
                    drop(cache.get(&key((n / 2) % KEYS)));
                    if n % 501 == 0 {
                        cache.evict_file(key(n).file);
                    }
                }
            });
        }
    });
}

/// Starts the process that is killed, and waits until it writes.
fn writing_child(dir: &Path, engine: &str) -> Child {
    let start = STARTS.write().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["killed_while_it_writes", "--exact", "--nocapture"])
        .env(CHILD_DIR, dir)
        .env(CHILD_ENGINE, engine)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(start);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == WRITES), "{engine}: the child ended before it wrote");
    child
}

/// Kills a writing process `kills` times. Returns the mean number of intact blocks afterwards.
fn kill_and_check(engine: &str, kills: u64) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let mut warm = 0;
    for round in 0..kills {
        let mut child = writing_child(dir.path(), engine);
        std::thread::sleep(Duration::from_millis(5 + round * 37 % 100));
        assert!(child.try_wait().unwrap().is_none(), "{engine}: the child runs until it is killed");
        child.kill().unwrap();
        child.wait().unwrap();
        let _open = no_starts();
        let began = std::time::Instant::now();
        let cache = open(dir.path(), engine);
        assert!(began.elapsed() < Duration::from_secs(5));
        warm += count_right(&cache) as u64;
    }
    warm / kills
}

#[test]
fn killed_while_it_writes() {
    if let Some(dir) = std::env::var_os(CHILD_DIR) {
        return be_killed(Path::new(&dir), &std::env::var(CHILD_ENGINE).unwrap());
    }
    let kills = std::env::var("EVENKEEL_CACHE_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(KILLS);
    std::thread::scope(|scope| {
        for engine in ["mmap", "file", "files"] {
            scope.spawn(move || {
                let warm = kill_and_check(engine, kills);
                assert!(warm > 0, "{engine}: nothing survived");
                println!("{engine}: {warm} blocks warm after a kill, on average of {kills}");
            });
        }
    });
}
