//! `row_cache`: CPU of a Get with the row cache and without. All rows are warm; one process, one
//! thread.
//!
//! `row_cache on|off VALUE_BYTES COLUMNS FILES ASKED` runs one case, to count its instructions:
//!
//! `valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*measured*'
//! .../measure row_cache on 100 1 1 0`
//!
//! Divide the count by the number of Gets that the tool prints.

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_bench::{region_of, thread_cpu};
use evenkeel_block_cache::{BlockCache, LruBlockCache};
use evenkeel_common::cell::LATEST_TIMESTAMP;
use evenkeel_common::{ColumnFamilyDescriptor, KeyValue, Result, TableDescriptor, TableName};
use evenkeel_fs::MemoryFileSystem;
use evenkeel_region::operations::{FamilyColumns, Mutation, MutationKind, Scan};
use evenkeel_region::region::Region;

use crate::Outcome;

const ROWS: u64 = 20_000;
const GETS: u64 = 100_000;
const CACHE_BYTES: usize = 512 << 20;

/// A table and the requested columns.
#[derive(Clone, Copy)]
struct Case {
    value_bytes: usize,
    columns: usize,
    files: u64,
    /// Requested columns; 0 for the row.
    asked: usize,
}

const CASES: &[Case] = &[
    Case { value_bytes: 10, columns: 1, files: 1, asked: 0 },
    Case { value_bytes: 100, columns: 1, files: 1, asked: 0 },
    Case { value_bytes: 1000, columns: 1, files: 1, asked: 0 },
    Case { value_bytes: 100, columns: 1, files: 3, asked: 0 },
    Case { value_bytes: 100, columns: 10, files: 1, asked: 0 },
    Case { value_bytes: 100, columns: 10, files: 3, asked: 2 },
];

fn open(enabled: bool) -> Result<(Arc<Region>, Arc<LruBlockCache>)> {
    let table = TableDescriptor::new(TableName::new("default", "bench")?)
        .with_family(ColumnFamilyDescriptor::new(b"f")?)
        .with("ROW_CACHE_ENABLED", &enabled.to_string());
    let cache = Arc::new(LruBlockCache::new(CACHE_BYTES));
    let region =
        region_of(Arc::new(MemoryFileSystem::new()), "/hbase".into(), table, Arc::clone(&cache) as _)?;
    Ok((region, cache))
}

fn row(number: u64) -> Vec<u8> {
    format!("{number:026}").into_bytes()
}

fn put(case: Case, number: u64) -> Mutation {
    let row = row(number);
    let cell = |column: usize| {
        let qualifier = column.to_string();
        KeyValue::put(&row, b"f", qualifier.as_bytes(), LATEST_TIMESTAMP, &vec![b'v'; case.value_bytes])
    };
    let cells = (0..case.columns).map(cell).collect();
    Mutation::new(MutationKind::Put, row, cells)
}

/// Every file has every row, so that a Get reads all files, whatever their bloom filters.
fn fill(region: &Arc<Region>, case: Case) -> Result<()> {
    for _ in 0..case.files {
        for first in (0..ROWS).step_by(1000) {
            let outcomes = region.batch_mutate_wait((first..first + 1000).map(|n| put(case, n)).collect());
            outcomes.into_iter().collect::<Result<Vec<_>>>()?;
        }
        region.flush()?;
    }
    Ok(())
}

fn get(case: Case, number: u64) -> Scan {
    let qualifiers = (0..case.asked).map(|column| Bytes::from(column.to_string())).collect();
    let asked = FamilyColumns { family: Bytes::from_static(b"f"), qualifiers: Some(qualifiers) };
    let families = if case.asked > 0 { vec![asked] } else { Vec::new() };
    Scan { families: families.into(), ..Scan::get(row(number)) }
}

#[inline(never)]
fn measured(region: &Region, scans: Vec<Scan>) -> Result<usize> {
    let mut bytes = 0;
    for scan in scans {
        bytes += black_box(region.get(scan)?).encoded_len();
    }
    Ok(bytes)
}

/// CPU nanoseconds of a Get.
fn cost(enabled: bool, case: Case, gets: u64) -> Result<f64> {
    let (region, cache) = open(enabled)?;
    fill(&region, case)?;
    (0..ROWS).try_for_each(|number| region.get(get(case, number)).map(drop))?;
    let scans = (0..gets).map(|at| get(case, at * 7919 % ROWS)).collect();
    let before = (thread_cpu(), cache.stats().row_hits);
    black_box(measured(&region, scans)?);
    let ns = (thread_cpu() - before.0).as_nanos() as f64 / gets as f64;
    assert_eq!(cache.stats().row_hits - before.1, if enabled { gets } else { 0 });
    Ok(ns)
}

pub fn run(args: &[String]) -> Outcome {
    if let [enabled, numbers @ ..] = args {
        let numbers: Vec<usize> = numbers.iter().filter_map(|text| text.parse().ok()).collect();
        if let [value_bytes, columns, files, asked] = numbers[..] {
            cost(enabled == "on", Case { value_bytes, columns, files: files as u64, asked }, 10_000)?;
            println!("10000 Gets");
        }
        return Ok(());
    }
    println!("value bytes, columns, files, asked: CPU ns of a Get without the row cache, with it, ratio");
    for case in CASES {
        let (off, on) = (cost(false, *case, GETS)?, cost(true, *case, GETS)?);
        let Case { value_bytes, columns, files, asked } = case;
        println!("{value_bytes:5} {columns:3} {files:2} {asked:2}: {off:7.0} {on:7.0}  {:.1}", off / on);
    }
    Ok(())
}
