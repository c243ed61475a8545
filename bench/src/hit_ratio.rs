//! Hit ratios of eviction policies at equal memory, on zipf and zipf-plus-scan traces; ours with
//! the real cache.
//!
//! `cargo run --release -p evenkeel-bench --bin measure -- hit_ratio` prints the whole table; the
//! read-path report has its main rows.
//!
//! | module | contents |
//! |---|---|
//! | `trace` | the sequence of requested blocks, and their sizes |
//! | `stock` | LRU, and HBase's policies |
//! | `modern` | SIEVE, W-TinyLFU, S3-FIFO |
//! | `engine` | our cache, with each of its policies |

mod engine;
mod modern;
mod stock;
mod trace;

use engine::Engine;
use evenkeel_block_cache::bucket::Policy as Order;
use modern::{S3Fifo, Sieve, TinyLfu};
use stock::{HBaseLru, Lru, StockBucket};
use trace::{Trace, all_change, newest_first, size_of, zipf, zipf_and_scans};

/// Memory as percentages of all blocks.
const MEMORY: [u64; 2] = [5, 20];

/// Generates a trace.
type Make = fn(&Sizes) -> Trace;

const TRACES: [(&str, Make); 5] = [
    ("zipf 0.9", |sizes| zipf(sizes, 0.9)),
    ("zipf 0.7", |sizes| zipf(sizes, 0.7)),
    ("zipf 0.9 and scans", |sizes| zipf_and_scans(sizes, 0.9)),
    ("zipf 0.9, drifting", |sizes| newest_first(sizes, 0.9)),
    ("zipf 0.9, all change", |sizes| all_change(sizes, 0.9)),
];

/// The length of traces.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Blocks that are requested more than once.
    pub keys: usize,
    /// Requests.
    pub requests: usize,
}

impl Sizes {
    /// The sizes of the published figures.
    pub fn full() -> Self {
        Self { keys: 20_000, requests: 600_000 }
    }

    /// A smoke test.
    pub fn short() -> Self {
        Self { keys: 1000, requests: 12_000 }
    }
}

/// A cache policy.
trait Policy {
    /// Requests a block. Returns true if it was cached. It may be cached afterwards.
    fn request(&mut self, key: u64, size: u64) -> bool;
}

/// The ratios as a table: the named traces, or all if none is named, at each memory.
///
/// # Panics
/// If memory for our cache cannot be allocated.
pub fn table(sizes: &Sizes, names: &[&str]) -> String {
    let total: u64 = (0..sizes.keys as u64).map(size_of).sum();
    let mut out = format!(
        "{} blocks of {} KB on average, {} requests.\n\n\
         | trace | memory | LRU | HBase LRU | BucketCache | SIEVE | W-TinyLFU | S3-FIFO | LRU, real | ours |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
        sizes.keys,
        (total >> 10) / sizes.keys as u64,
        sizes.requests
    );
    for (name, trace) in TRACES.iter().filter(|(name, _)| names.is_empty() || names.contains(name)) {
        let trace = trace(sizes);
        for part in MEMORY {
            let ratios = ratios(total / 100 * part, &trace);
            out.push_str(&format!("| {name} | {part}% | {} |\n", ratios.join(" | ")));
        }
    }
    out
}

/// Per cents of hits of each policy, in the table's order.
fn ratios(capacity: u64, trace: &Trace) -> Vec<String> {
    let mut policies: Vec<Box<dyn Policy>> = vec![
        Box::new(Lru::new(capacity)),
        Box::new(HBaseLru::new(capacity)),
        Box::new(StockBucket::new(capacity)),
        Box::new(Sieve::new(capacity)),
        Box::new(TinyLfu::new(capacity)),
        Box::new(S3Fifo::new(capacity, 0.10)),
        Box::new(Engine::new(capacity, Order::Lru)),
        Box::new(Engine::new(capacity, Order::TinyLfu)),
    ];
    policies.iter_mut().map(|policy| format!("{:.1}", run(&mut **policy, trace))).collect()
}

/// Per cent of hits after the first quarter.
fn run(policy: &mut dyn Policy, trace: &Trace) -> f64 {
    let warm = trace.len() / 4;
    let mut hits = 0;
    for (i, key) in trace.iter().enumerate() {
        let hit = policy.request(*key, size_of(*key));
        hits += u64::from(hit && i >= warm);
    }
    100.0 * hits as f64 / (trace.len() - warm) as f64
}
