//! Reads and writes of files are counted, and lookups in a cache are not.

mod support;

use std::sync::Arc;

use evenkeel_block_cache::{BlockCache, LruBlockCache};
use evenkeel_hfile::{HFileContext, HFileReader, OpenOptions, ScanOptions, io_metrics};
use evenkeel_metrics::{Record, Value};
use support::{Random, Shape, random_cells, write};

fn counter(record: &Record, name: &str) -> u64 {
    match record.metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value) {
        Some(Value::Counter(count)) => count,
        other => panic!("{name}: {other:?}"),
    }
}

/// Counts of stream reads, positioned reads, writes and slow reads.
fn counts() -> [u64; 4] {
    let record = io_metrics::get().record();
    assert_eq!((&*record.name, &*record.bean), ("IO", "name=RegionServer,sub=IO"));
    assert_eq!(counter(&record, "fsChecksumFailureCount"), 0);
    ["FsReadTime_num_ops", "FsPReadTime_num_ops", "FsWriteTime_num_ops", "fsSlowReadsCount"]
        .map(|name| counter(&record, name))
}

#[test]
fn reads_of_files_are_counted_and_those_of_caches_are_not() {
    let shape = Shape {
        cells: 500,
        tags: false,
        mvcc: true,
        deletes: false,
        value_bytes_max: 60,
        negative_timestamps: false,
    };
    let cells = random_cells(&mut Random::new(7), shape);
    let written = write(&cells, &HFileContext { block_bytes: 1024, ..HFileContext::default() });
    let of_write = counts();
    assert!(of_write[2] > 10 && of_write[..2] == [0, 0], "{of_write:?}");
    let cache: Arc<dyn BlockCache> = Arc::new(LruBlockCache::new(16 << 20));
    let options = OpenOptions::default();
    let reader = HFileReader::open_path(&written.fs, &written.path, cache, &options).expect("opened");
    let opened = counts();
    assert!(opened[0] > 0 && opened[1] == 0, "{opened:?}");
    let scan = |options: ScanOptions| {
        let mut scanner = reader.scanner(options);
        let mut more = scanner.seek_to_first().expect("read");
        while more {
            more = scanner.next().expect("read");
        }
    };
    scan(ScanOptions { cache_blocks: false, is_compaction: true, ..ScanOptions::default() });
    let streamed = counts();
    assert!(streamed[0] > opened[0] + 10 && streamed[1] <= 2, "{streamed:?}");
    scan(ScanOptions::default());
    let first = counts();
    assert!(first[1] > streamed[1] + 10, "{first:?}");
    scan(ScanOptions::default());
    assert_eq!(counts(), first, "every block is cached");
}
