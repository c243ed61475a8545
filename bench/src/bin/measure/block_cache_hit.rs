//! `block_cache_hit`: CPU of one hit, for one hot block and for blocks at random, from one thread
//! and from two.
//!
//! Counts CPU time of the threads, so that a busy machine disturbs it less.

use evenkeel_bench::thread_cpu;
use evenkeel_block_cache::{
    Admission, Block, BlockCache, BlockKey, BlockParts, BlockType, BucketCache, BucketCacheConfig, CacheHint,
    FileId,
};

use crate::Outcome;

const BLOCKS: u64 = 1000;
const HITS: u64 = 3_000_000;

fn key(n: u64) -> BlockKey {
    BlockKey { file: FileId::of_name("0123456789abcdef0123456789abcdef"), offset: n * 65_536 }
}

fn block(n: u64) -> Block {
    Block::new(BlockParts {
        kind: BlockType::Data,
        offset: key(n).offset,
        on_disk_bytes: 4096,
        prev_offset: -1,
        bytes: vec![n as u8; 4096].into(),
        body: 0..4096,
        seek_points: Box::default(),
        seek_keys: Box::default(),
        compressed: false,
    })
}

/// CPU nanoseconds of a hit, on average of all threads.
fn hits(cache: &BucketCache, threads: u64, pick: fn(u64) -> u64) -> f64 {
    let file = key(0).file;
    let run = |thread: u64| {
        let began = thread_cpu();
        let mut sum = 0u64;
        for i in 0..HITS {
            let n = pick(i.wrapping_mul(0x9e37_79b9).wrapping_add(thread));
            let key = BlockKey { file, offset: n * 65_536 };
            let found = cache.get_or_load(&key, CacheHint::INSERT, &mut || unreachable!("all is cached"));
            sum += u64::from(found.expect("cached").data()[17]);
        }
        std::hint::black_box(sum);
        (thread_cpu() - began).as_nanos() as f64 / HITS as f64
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        running.into_iter().map(|thread| thread.join().expect("runs")).sum::<f64>() / threads as f64
    })
}

pub fn run(_: &[String]) -> Outcome {
    let cache = BucketCache::open(&BucketCacheConfig::in_memory(64 << 20))?;
    (0..BLOCKS).for_each(|n| cache.insert(key(n), block(n), Admission::New));
    println!("| CPU of a hit, ns | 1 thread | 2 threads |");
    println!("|---|---|---|");
    for _ in 0..3 {
        let row = |pick| (hits(&cache, 1, pick), hits(&cache, 2, pick));
        let (one, two) = row(|_| 0);
        println!("| one hot block | {one:.1} | {two:.1} |");
        let (one, two) = row(|i| i % BLOCKS);
        println!("| 1,000 blocks at random | {one:.1} | {two:.1} |");
    }
    println!("{} pins left", cache.pins());
    Ok(())
}
