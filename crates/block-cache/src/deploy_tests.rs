//! Every deployment, selected by HBase's settings, under the concurrent operations of a server:
//! insert, look up, hold, share, remove, resize, and shut down while readers hold blocks. The rule
//! is simple: a lookup returns what belongs to the key, for as long as it is held. Freed memory is
//! overwritten, so early reuse is detected.

use std::sync::{Arc, Barrier};

use bytes::Bytes;
use evenkeel_common::{Configuration, Wait};

use crate::bucket::tests::{Random, block_of, is_right, key};
use crate::bucket::{Admission, BucketCache, BucketCacheConfig};
use crate::{
    Block, BlockCache, BlockCategory, BlockKey, BlockType, CacheConfig, CacheHint, CombinedBlockCache,
    DataBlocks, LruBlockCache, NoCache,
};

const THREADS: u64 = 4;
const STEPS: u64 = 600;
/// How often a deployment is shut down and reopened.
const LIVES: u64 = 2;
const READS_AFTER_SHUTDOWN: usize = 8;
/// The size to which an engine is shrunk at the end.
const SMALL_BYTES: u64 = 200_000;

/// A deployment and its engines, for checks that the cache as a whole does not offer.
trait Deploy: BlockCache {
    fn engines(&self) -> Vec<&BucketCache>;
}

impl Deploy for LruBlockCache {
    fn engines(&self) -> Vec<&BucketCache> {
        vec![self.engine()]
    }
}

impl Deploy for CombinedBlockCache<BucketCache> {
    fn engines(&self) -> Vec<&BucketCache> {
        vec![self.l1().engine(), self.l2()]
    }
}

impl Deploy for CombinedBlockCache<NoCache> {
    fn engines(&self) -> Vec<&BucketCache> {
        vec![self.l1().engine()]
    }
}

impl Deploy for NoCache {
    fn engines(&self) -> Vec<&BucketCache> {
        Vec::new()
    }
}

fn open(settings: &[(&str, String)]) -> Arc<dyn Deploy> {
    let mut conf = Configuration::new();
    conf.set("hfile.block.cache.memory.size", "2m");
    settings.iter().for_each(|(key, value)| conf.set(*key, value.clone()));
    let config = CacheConfig::from_configuration(&conf, 1 << 30).expect("settings");
    let poisoned = |config: &BucketCacheConfig| BucketCacheConfig { poison: true, ..config.clone() };
    let Some(l1) = &config.l1 else { return Arc::new(NoCache) };
    let l1 = LruBlockCache::open(&poisoned(l1)).expect("memory");
    match &config.data {
        DataBlocks::InL1 => Arc::new(l1),
        DataBlocks::NotCached => Arc::new(CombinedBlockCache::new(l1, NoCache)),
        DataBlocks::InL2(l2) => {
            let l2 = BucketCache::open(&poisoned(l2)).expect("memory or files");
            Arc::new(CombinedBlockCache::new(l1, l2))
        }
    }
}

/// The bytes that a reader holds.
enum HeldBytes {
    Block(BlockKey, Block),
    /// A slice of a block, as in a reply, and a copy.
    Part(Bytes, Vec<u8>),
}

impl HeldBytes {
    fn check(&self) {
        match self {
            Self::Block(key, block) => assert!(is_right(key, block), "{key:?} held"),
            Self::Part(part, copy) => assert!(part == copy, "a part of a block changed while it was held"),
        }
    }

    /// Another handle to the same bytes.
    fn copy(&self) -> Self {
        match self {
            Self::Block(key, block) => Self::Block(*key, block.clone()),
            Self::Part(part, copy) => Self::Part(part.clone(), copy.clone()),
        }
    }
}

fn kind_of(n: u64) -> BlockType {
    [BlockType::Data, BlockType::EncodedData, BlockType::LeafIndex, BlockType::BloomChunk][n as usize % 4]
}

fn make(key: &BlockKey, n: u64) -> Block {
    block_of(kind_of(n), key, 200 + (n * 2_654_435_761 % 50_000) as usize)
}

/// Runs one reader; returns its handles and copies.
fn live(cache: &dyn Deploy, random: &mut Random) -> Vec<HeldBytes> {
    let mut held = Vec::new();
    for _ in 0..STEPS {
        let n = random.below(20) * random.below(20);
        let key = key(n % 5, n);
        let hint = CacheHint {
            insert: random.below(8) > 0,
            in_memory: n.is_multiple_of(7),
            category: kind_of(n).category(),
            wait: Wait::Allowed,
        };
        match random.below(200) {
            0 => drop(cache.evict_file(key.file)),
            1 => cache.engines().iter().for_each(|engine| engine.resize((1 << 20) + random.below(2 << 20))),
            2..50 => cache.insert(key, make(&key, n), Admission::of(hint.in_memory)),
            50..80 => held.extend(cache.get(&key).map(|block| HeldBytes::Block(key, block))),
            80..120 => held.extend(cache.get(&key).and_then(|block| {
                let part = &block.data()[block.data().len() / 3..];
                Some(HeldBytes::Part(block.share(part)?, part.to_vec()))
            })),
            _ => {
                let found = cache.get_or_load(&key, hint, &mut || Ok(make(&key, n))).expect("loads");
                assert!(is_right(&key, &found), "{key:?}");
            }
        }
        if held.len() > 16 {
            held.swap_remove(random.below(16) as usize).check();
        }
    }
    held
}

/// Drops the cache, as all readers do at about the same time, and continues to read. One of them
/// shuts the cache down while the others read its blocks.
fn read_through_shutdown(cache: Arc<dyn Deploy>, held: &mut Vec<HeldBytes>, all_are_here: &Barrier) {
    all_are_here.wait();
    drop(cache);
    for _ in 0..READS_AFTER_SHUTDOWN {
        held.iter().for_each(HeldBytes::check);
        // Handles are also cloned and dropped after the shutdown.
        let copies: Vec<_> = held.iter().map(HeldBytes::copy).collect();
        held.truncate(held.len() - held.len() / 4);
        copies.iter().for_each(HeldBytes::check);
    }
}

fn drive(name: &str, settings: &[(&str, String)]) {
    let mut randoms: Vec<_> = (0..THREADS).map(|thread| Random(thread + 1)).collect();
    for life in 0..LIVES {
        let cache = open(settings);
        let held: Vec<HeldBytes> = std::thread::scope(|scope| {
            let day = |random| scope.spawn(|| live(&*cache, random));
            let days: Vec<_> = randoms.iter_mut().map(day).collect();
            days.into_iter().flat_map(|day| day.join().expect("no reader fails")).collect()
        });
        held.iter().for_each(HeldBytes::check);
        let pins = |engine: &&BucketCache| (engine.pins(), engine.pending_free());
        if life == 0 && !cache.engines().is_empty() {
            assert!(cache.engines().iter().any(|engine| engine.pins() > 0), "{name}: nothing is held");
        }
        drop(held);
        let pins: Vec<_> = cache.engines().iter().map(pins).collect();
        assert!(pins.iter().all(|pins| *pins == (0, 0)), "{name}: all is quiet, and there are {pins:?}");
        check_quiet(name, &*cache);

        let (all_are_here, mut shares) = (Barrier::new(THREADS as usize), Vec::new());
        shares.resize_with(THREADS as usize, || Arc::clone(&cache));
        drop(cache);
        let held: Vec<HeldBytes> = std::thread::scope(|scope| {
            let readers: Vec<_> = std::iter::zip(shares, &mut randoms)
                .map(|(cache, random)| {
                    let all_are_here = &all_are_here;
                    scope.spawn(move || {
                        let mut held = live(&*cache, random);
                        read_through_shutdown(cache, &mut held, all_are_here);
                        held
                    })
                })
                .collect();
            readers.into_iter().flat_map(|reader| reader.join().expect("no reader fails")).collect()
        });
        held.iter().for_each(HeldBytes::check);
        drop(held);
        // The next drop of a cache frees the rest of this one, with the lock of its files.
        drop(BucketCache::open(&BucketCacheConfig::in_memory(1 << 20)).expect("memory"));
    }
}

/// Checks a deployment without readers: each engine is within its size, and nothing failed.
fn check_quiet(name: &str, cache: &dyn Deploy) {
    let stats = cache.stats();
    assert_eq!((stats.damaged, stats.io_errors), (0, 0), "{name}");
    let keeps_data = cache.caches_category(BlockCategory::Data);
    assert!(keeps_data || cache.levels().iter().skip(1).all(|l2| l2.blocks == 0), "{name}");
    for engine in cache.engines() {
        engine.resize(SMALL_BYTES);
        let stats = engine.stats();
        assert!(stats.bytes <= SMALL_BYTES && stats.blocks > 0, "{name}: {stats:?}");
        engine.resize(3 << 20);
    }
}

#[test]
fn model_of_each_deploy() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let l2 = |engine: String| {
        vec![("hbase.bucketcache.ioengine", engine), ("hbase.bucketcache.size", "3".to_owned())]
    };
    let deploys = [
        ("lru", vec![]),
        ("offheap", l2("offheap".to_owned())),
        ("heap", l2("heap".to_owned())),
        ("file", l2(format!("file:{}", path("file")))),
        ("files", l2(format!("files:{},{}", path("a"), path("b")))),
        ("mmap", l2(format!("mmap:{}", path("mmap")))),
        ("meta only", vec![("hbase.bucketcache.ioengine", "offheap".to_owned())]),
        ("none", vec![("hfile.block.cache.size", "0".to_owned())]),
    ];
    for (name, settings) in &deploys {
        drive(name, settings);
    }
}

#[test]
fn slices_above_an_eighth_share_their_block() {
    let cache =
        BucketCache::open(&BucketCacheConfig { poison: true, ..BucketCacheConfig::in_memory(1 << 20) })
            .expect("memory");
    let key = key(1, 1);
    cache.insert(key, block_of(BlockType::Data, &key, 64_000), Admission::New);
    let block = cache.get(&key).expect("kept");
    let part = block.share(&block.data()[50_000..60_000]).expect("more than an eighth");
    assert!(block.share(&block.data()[..7999]).is_none(), "less than an eighth");
    assert!(block.share(b"of something else").is_none());
    let heap = block_of(BlockType::Data, &key, 64_000);
    assert!(heap.share(&heap.data()[..32_000]).is_some() && heap.share(&heap.data()[..31_999]).is_none());
    let copy = part.to_vec();
    drop(block);
    assert_eq!(cache.pins(), 1);
    assert_eq!(cache.evict_file(key.file), 1);
    for i in 0..200 {
        let other = crate::bucket::tests::key(2, i);
        cache.insert(other, block_of(BlockType::Data, &other, 40_000), Admission::New);
    }
    assert!(part == copy, "forgotten, and still held");
    assert_eq!((cache.pins(), cache.pending_free()), (1, 1));
    let clone = part.slice(10..20);
    drop(part);
    assert_eq!(cache.pins(), 1);
    std::thread::spawn(move || drop(clone)).join().expect("ends");
    assert_eq!((cache.pins(), cache.pending_free()), (0, 0));
}
