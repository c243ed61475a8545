//! Hit ratios of eviction policies at equal memory, on zipf and zipf-plus-scan traces; ours by the real engine.
//!
//! `cargo run --release -p evenkeel-bench --bin measure -- hit_ratio` prints all of it; the read-path report has its main rows.
//!
//! | module | noun |
//! |---|---|
//! | `trace` | which blocks are asked for, and how large each is |
//! | `stock` | LRU, and what stock HBase does |
//! | `modern` | SIEVE, W-TinyLFU, S3-FIFO |
//! | `engine` | our cache itself, by each of its policies |

mod engine;
mod modern;
mod stock;
mod trace;

use engine::Engine;
use evenkeel_block_cache::bucket::Policy as Order;
use modern::{S3Fifo, Sieve, TinyLfu};
use stock::{HBaseLru, Lru, StockBucket};
use trace::{Trace, all_change, newest_first, size_of, zipf, zipf_and_scans};

/// Memory as per cents of all blocks.
const MEMORY: [u64; 2] = [5, 20];

/// How a trace is made.
type Make = fn(&Sizes) -> Trace;

const TRACES: [(&str, Make); 5] = [
    ("zipf 0.9", |sizes| zipf(sizes, 0.9)),
    ("zipf 0.7", |sizes| zipf(sizes, 0.7)),
    ("zipf 0.9 and scans", |sizes| zipf_and_scans(sizes, 0.9)),
    ("zipf 0.9, drifting", |sizes| newest_first(sizes, 0.9)),
    ("zipf 0.9, all change", |sizes| all_change(sizes, 0.9)),
];

/// How long traces are.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Blocks that are asked for more than once.
    pub keys: usize,
    /// Requests.
    pub requests: usize,
}

impl Sizes {
    /// Those of the figures in the docs.
    pub fn full() -> Self {
        Self { keys: 20_000, requests: 600_000 }
    }

    /// Shows that it works.
    pub fn short() -> Self {
        Self { keys: 1000, requests: 12_000 }
    }
}

/// What is asked for a block and says whether it had it.
trait Policy {
    /// Whether it was there; it is kept now.
    fn ask(&mut self, key: u64, size: u64) -> bool;
}

/// The ratios as a table: each trace that is named, or all when none is, at each memory.
///
/// # Panics
/// When there is no memory for our cache.
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
        let hit = policy.ask(*key, size_of(*key));
        hits += u64::from(hit && i >= warm);
    }
    100.0 * hits as f64 / (trace.len() - warm) as f64
}
