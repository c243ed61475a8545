//! Benchmarks of a region in process: a cached Get, a Put, a scan of 10,000 rows, returned or all
//! filtered out by their keys.
//!
//! `cargo bench -p evenkeel-bench --bench region`

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use evenkeel_bench::region_in;
use evenkeel_common::cell::LATEST_TIMESTAMP;
use evenkeel_common::{CellBuffer, KeyValue};
use evenkeel_fs::{FileSystem, LocalFileSystem};
use evenkeel_protocol::pb;
use evenkeel_region::filter;
use evenkeel_region::operations::{Mutation, MutationKind, Scan};
use evenkeel_region::region::Region;
use evenkeel_region::scanner::{LimitScope, NextState, ScannerContext};

const ROWS: u64 = 10_000;
const VALUE_BYTES: usize = 100;

fn row(number: u64) -> Vec<u8> {
    format!("row{number:010}").into_bytes()
}

fn put(number: u64) -> Mutation {
    let row = row(number);
    let cell = KeyValue::put(&row, b"f", b"q", LATEST_TIMESTAMP, &[b'v'; VALUE_BYTES]);
    Mutation::new(MutationKind::Put, row, vec![cell])
}

fn filled(dir: PathBuf) -> Arc<Region> {
    let fs: Arc<dyn FileSystem> = Arc::new(LocalFileSystem::new());
    let region = region_in(fs, dir).expect("opens");
    let outcomes = region.batch_mutate_wait((0..ROWS).map(put).collect());
    assert!(outcomes.iter().all(Result::is_ok));
    region
}

fn scan_all(region: &Arc<Region>) -> usize {
    let mut scanner = region.scanner(Scan::default()).expect("opens");
    let (mut out, mut context) = (CellBuffer::new(), ScannerContext::unlimited());
    while scanner.next(&mut out, &mut context).expect("reads").has_more() {}
    out.len()
}

/// Reads every row and returns none, with a deadline as in a server; returns the number of rows
/// scanned.
#[inline(never)]
fn scan_filtered(region: &Arc<Region>) -> u64 {
    let name = "org.apache.hadoop.hbase.filter.FilterAllFilter".to_owned();
    let filter = filter::from_proto(&pb::Filter { name, serialized_filter: None }).expect("a filter");
    let mut scanner = region.scanner(Scan { filter: Some(filter), ..Scan::default() }).expect("opens");
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut context = ScannerContext::unlimited().with_deadline(LimitScope::BetweenCells, deadline);
    let state = scanner.next(&mut CellBuffer::new(), &mut context).expect("reads");
    assert_eq!(state, NextState::NoMoreRows);
    context.rows_scanned
}

#[inline(never)]
fn get(region: &Region, number: u64) -> CellBuffer {
    region.get(Scan::get(row(number))).expect("reads")
}

fn benches(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let region = filled(dir.path().join("memstore"));
    let mut number = 0;
    let mut next = move || {
        number = (number + 7919) % ROWS;
        number
    };
    c.bench_function("get/memstore", |b| b.iter(|| black_box(get(&region, next()))));

    let files = filled(dir.path().join("files"));
    files.flush().expect("flushes");
    assert_eq!(scan_all(&files), ROWS as usize);
    c.bench_function("get/cached block", |b| b.iter(|| black_box(get(&files, next()))));

    let mut group = c.benchmark_group("scan");
    group.throughput(Throughput::Elements(ROWS)).sample_size(20);
    group.bench_function("10,000 rows/memstore", |b| b.iter(|| black_box(scan_all(&region))));
    group.bench_function("10,000 rows/cached blocks", |b| b.iter(|| black_box(scan_all(&files))));
    group.bench_function("10,000 rows/filtered", |b| {
        b.iter(|| assert_eq!(black_box(scan_filtered(&files)), ROWS));
    });
    group.finish();

    let written = region_in(Arc::new(LocalFileSystem::new()), dir.path().join("puts")).expect("opens");
    let mut group = c.benchmark_group("put");
    group.bench_function("one, durable", |b| b.iter(|| written.mutate_wait(put(next())).expect("writes")));
    group.throughput(Throughput::Elements(100));
    group.bench_function("100 in a batch, durable", |b| {
        b.iter(|| black_box(written.batch_mutate_wait((0..100).map(|_| put(next())).collect())));
    });
    group.finish();
}

criterion_group!(region, benches);
criterion_main!(region);
