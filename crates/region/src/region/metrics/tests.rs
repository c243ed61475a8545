//! Checks that every count of a region changes.

use std::sync::Arc;

use evenkeel_common::{CellBuffer, CellRef, Durability, KeyValue, Result};
use evenkeel_metrics::{Record, Value};

use crate::filter::{Filter, ReturnCode};
use crate::operations::{Condition, ConditionTest, Mutation, MutationKind, Scan, TimeRange};
use crate::region::testing::{region, region_with};
use crate::region::{NoEvents, Region, RegionCount};
use crate::scanner::ScannerContext;

fn put(row: &str) -> Mutation {
    let cell = KeyValue::put(row.as_bytes(), b"f", b"q", 5, &[7; 100]);
    Mutation::new(MutationKind::Put, row.as_bytes().to_vec(), vec![cell])
}

fn count<const N: usize>(region: &Region, what: [RegionCount; N]) -> [u64; N] {
    what.map(|what| region.counts().get(what))
}

/// Rejects the rows that begin with `x`.
struct WithoutX;

impl Filter for WithoutX {
    fn filter_row_key(&mut self, cell: &CellRef<'_>) -> Result<bool> {
        Ok(cell.row().starts_with(b"x"))
    }

    fn filter_cell(&mut self, _cell: &CellRef<'_>) -> Result<ReturnCode> {
        Ok(ReturnCode::Include)
    }
}

#[test]
fn reads_are_counted_with_the_rows_that_filters_leave_out() {
    let region = region();
    for row in ["a", "x1", "x2", "z"] {
        region.mutate_wait(put(row)).expect("written");
    }
    region.get(Scan::get("a")).expect("read");
    region.get(Scan { filter: Some(Box::new(WithoutX)), ..Scan::get("x1") }).expect("read");
    let counts = [RegionCount::Gets, RegionCount::Reads, RegionCount::FilteredReads];
    assert_eq!(count(&region, counts), [2, 2, 1]);
    let scan = Scan { filter: Some(Box::new(WithoutX)), ..Scan::default() };
    let mut scanner = region.scanner(scan).expect("opened");
    let mut rows = CellBuffer::new();
    for _ in 0..3 {
        scanner.next(&mut rows, &mut ScannerContext::unlimited()).expect("read");
    }
    assert_eq!((rows.len(), count(&region, counts)), (2, [2, 2, 1]), "not counted yet");
    let read = scanner.count_reads();
    assert_eq!((read, count(&region, counts)), ((3, 2), [2, 5, 3]));
    assert_eq!(scanner.count_reads(), (0, 0));
    drop(scanner);
    let loaded = region.load().counts;
    assert_eq!(counts.map(|what| loaded.get(what)), [2, 5, 3]);
}

#[test]
fn writes_are_counted_by_kind_and_unlogged_until_flush() {
    let region = region();
    region.batch_mutate_wait(vec![put("a"), put("b")]);
    let cell = KeyValue::put(b"n", b"f", b"q", i64::MAX, &1_u64.to_be_bytes());
    region.mutate_wait(Mutation::new(MutationKind::Increment, "n", vec![cell])).expect("written");
    let unlogged = Mutation { durability: Durability::SkipWal, ..put("c") };
    region.mutate_wait(unlogged).expect("written");
    let kinds = [RegionCount::Writes, RegionCount::Puts, RegionCount::Increments, RegionCount::Appends];
    assert_eq!(count(&region, kinds), [4, 2, 1, 0]);
    let load = region.load();
    assert!(load.unlogged_mutations == 1 && load.unlogged_bytes > 100, "{load:?}");
    region.flush().expect("flushed");
    assert_eq!((region.load().unlogged_mutations, region.load().unlogged_bytes), (0, 0));
    let appends = region.env.wal.table_appends(region.table().name());
    assert!(appends.entries() >= 2 && appends.bytes() > 200);
}

#[test]
fn conditions_and_refusals_are_counted() {
    let region = region();
    let condition = |qualifier: &str| Condition {
        row: b"r".to_vec().into(),
        test: ConditionTest::Column {
            family: b"f".to_vec().into(),
            qualifier: qualifier.as_bytes().to_vec().into(),
            op: evenkeel_protocol::pb::CompareType::Equal,
            comparator: crate::filter::comparator_from_proto(&evenkeel_protocol::pb::Comparator {
                name: "org.apache.hadoop.hbase.filter.NullComparator".to_owned(),
                serialized_comparator: None,
            })
            .expect("legal"),
        },
        time_range: TimeRange::ALL,
    };
    let check = || region.check_and_mutate_wait(condition("q"), vec![put("r")]).expect("made").success;
    assert!(check() && !check());
    let checks = [RegionCount::ChecksPassed, RegionCount::ChecksFailed];
    assert_eq!(count(&region, checks), [1, 1]);
    let reads = [RegionCount::Gets, RegionCount::Reads];
    assert_eq!(count(&region, reads), [0, 2], "what a check reads is no Get");
    // The multiplier of the test's regions is so large that this is a limit of 0 bytes.
    let full = region_with(Arc::new(NoEvents), 0);
    full.mutate_wait(put("a")).expect("the first is taken");
    assert!(full.mutate_wait(put("b")).is_err());
    assert_eq!(count(&full, [RegionCount::Blocked]), [1]);
}

fn counter(record: &Record, name: &str) -> u64 {
    match record.metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value) {
        Some(Value::Counter(count)) => count,
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn flushes_and_compactions_are_counted_at_every_level() {
    let region = region();
    for row in ["a", "b"] {
        region.mutate_wait(put(row)).expect("written");
        assert!(region.flush().expect("flushed").flushed);
    }
    let load = region.load();
    assert_eq!((load.stores, load.store_files, load.ages.files), (1, 2, 2));
    assert!(load.uncompressed_bytes > 0 && load.index_bytes > 0 && load.root_index_bytes > 0);
    assert!(load.bloom_bytes > 0 && load.hfile_bytes == load.store_file_bytes);
    assert_eq!(load.major_compaction_ms, 0);
    assert!(region.compact(None, true).expect("compacted"));
    let counts = [
        RegionCount::Flushes,
        RegionCount::Compactions,
        RegionCount::FailedCompactions,
        RegionCount::CompactedFiles,
        RegionCount::CompactedBytes,
    ];
    assert_eq!(count(&region, counts), [2, 1, 0, 2, load.store_file_bytes]);
    assert_eq!(region.load().major_compaction_ms, crate::store::testing::NOW_MS);
    let metrics = &region.env.stores.metrics;
    for of in [metrics.server(), &*metrics.of_table(region.table().name())] {
        let mut record = Record::new("Server", "regionserver", "name=RegionServer,sub=Server");
        of.append_to(&mut record, "t_");
        of.append_cells_to(&mut record);
        let ops = ["T_flushTime_num_ops", "T_compactionTime_num_ops", "T_majorCompactionInputSize_num_ops"];
        assert_eq!(ops.map(|name| counter(&record, name)), [2, 1, 1]);
        assert_eq!(counter(&record, "t_compactedInputBytes"), load.store_file_bytes);
        assert_eq!(counter(&record, "t_majorCompactedOutputBytes"), region.load().store_file_bytes);
        let cells = ["flushedCellsCount", "compactedCellsCount", "majorCompactedCellsCount"];
        assert_eq!(cells.map(|name| counter(&record, name)), [2, 0, 2], "a major one is no minor one");
    }
}
