//! `memstore_bytes`: memory of a cell in the MemStore, by `MemStoreSize`, which counts nodes,
//! records and entries exactly.
//!
//! One family `f`, one qualifier `q`, keys of 10 to 32 bytes in random order. *KeyValue* is the
//! cell in HBase's form; *in all* adds the overhead; *chunks* is the memory that the segments hold
//! of the chunk pool, used or not.

use std::path::PathBuf;
use std::sync::Arc;

use evenkeel_block_cache::NoCache;
use evenkeel_common::clock::SystemClock;
use evenkeel_common::{ColumnFamilyDescriptor, HBaseError, KeyValue, RegionInfo, Result};
use evenkeel_fs::{LocalHost, MemoryFileSystem};
use evenkeel_region::memstore::{CHUNK_BYTES, ChunkPool};
use evenkeel_region::store::{Store, StoreConfig, StoreEnv};

use crate::Outcome;

const CELLS: u64 = 50_000;
const VALUE_BYTES: [usize; 4] = [8, 100, 200, 1000];
const KINDS: [&str; 2] = ["NONE", "BASIC"];

fn row(n: u64) -> Vec<u8> {
    let mixed = (n ^ (n >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let text = format!("{mixed:016x}{n:016x}");
    text.as_bytes()[..10 + (n % 23) as usize].to_vec()
}

/// Fills a store and prints a line of it.
fn fill(kind: &str, value_bytes: usize) -> Result<()> {
    let chunks = ChunkPool::new(0);
    let env = StoreEnv {
        host: LocalHost::default(),
        fs: Arc::new(MemoryFileSystem::new()),
        root: PathBuf::from("/hbase"),
        cache: Arc::new(NoCache),
        clock: Arc::new(SystemClock),
        chunks: Arc::clone(&chunks),
        config: StoreConfig::default(),
        compaction_throughput: Arc::default(),
        metrics: Arc::default(),
        open_files: Arc::default(),
        mob: Arc::default(),
        archived_files: Arc::default(),
    };
    let family = ColumnFamilyDescriptor::new(b"f")?.with("IN_MEMORY_COMPACTION", kind);
    let name = "t".parse().map_err(|error| HBaseError::io(format!("{error:?}")))?;
    let region = RegionInfo::new(name, Default::default(), Default::default(), 1);
    let store = Store::open(&env, family, &region)?;
    let value = vec![7; value_bytes];
    for n in 1..=CELLS {
        let mut cell = KeyValue::put(&row(n), b"f", b"q", 1_700_000_000_000, &value);
        cell.set_seq_id(n);
        store.add(&cell.as_cell());
        if store.wants_in_memory_flush(CHUNK_BYTES as u64) {
            store.push_active();
            if let Some(change) = store.plan_in_memory(n)? {
                store.swap_in_memory(change);
            }
        }
    }
    let size = store.memstore_size();
    let a_cell = |bytes: u64| bytes as f64 / size.cells as f64;
    println!(
        "| {value_bytes} | {kind} | {:.1} | {:.1} | {:.1} | {:.0} |",
        a_cell(size.data_bytes),
        a_cell(size.heap_bytes),
        a_cell(size.heap_bytes - size.data_bytes),
        a_cell(chunks.out_bytes() as u64)
    );
    Ok(())
}

pub fn run(_: &[String]) -> Outcome {
    println!("| value bytes | in memory | KeyValue | in all | over it | chunks |");
    println!("|---|---|---|---|---|---|");
    for value_bytes in VALUE_BYTES {
        KINDS.iter().try_for_each(|kind| fill(kind, value_bytes))?;
    }
    Ok(())
}
