//! The metrics of a WAL and their names.

mod common;

use std::io::ErrorKind;
use std::sync::Arc;

use common::{append_synced, entry, faulty, open, open_with, table};
use evenkeel_fs::{Fault, MemoryFileSystem, Op};
use evenkeel_metrics::{Record, Value};
use evenkeel_wal::{NoListener, SyncLevel, Wal, WalConfig, WalKey, metrics};

const NAMES: [&str; 12] = [
    "AppendTime_num_ops",
    "AppendSize_num_ops",
    "SyncTime_num_ops",
    "appendCount",
    "slowAppendCount",
    "rollRequest",
    "errorRollRequest",
    "lowReplicaRollRequest",
    "slowSyncRollRequest",
    "sizeRollRequest",
    "writtenBytes",
    "successfulLogRolls",
];

fn counter(record: &Record, name: &str) -> u64 {
    match record.metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value) {
        Some(Value::Counter(count)) => count,
        other => panic!("{name}: {other:?}"),
    }
}

fn append_counted(wal: &Wal, seq_id: u64) {
    let (entry, appends) = (entry(seq_id), wal.table_appends(&table()));
    let key = WalKey { appends: Some(&appends), ..entry.key() };
    let txid = wal.append_cells(&key, entry.cells.iter().map(|cell| cell.as_cell())).expect("append");
    wal.sync(txid, SyncLevel::Flush).expect("sync");
}

#[test]
fn the_record_sums_both_logs_by_hbase_s_names() {
    let (user, meta) = (open(MemoryFileSystem::new()), open(MemoryFileSystem::new()));
    (1..=3).for_each(|seq_id| append_counted(&user, seq_id));
    append_synced(&meta, 1).expect("synced");
    let record = metrics::record(&[&user, &meta]);
    assert_eq!((&*record.name, &*record.bean), ("WAL", "name=RegionServer,sub=WAL"));
    NAMES.iter().for_each(|name| assert!(counter(&record, name) < u64::MAX));
    let counts = ["appendCount", "AppendTime_num_ops", "AppendSize_num_ops", "SyncTime_num_ops"];
    assert_eq!(counts.map(|name| counter(&record, name)), [4; 4]);
    let bytes = user.stats().bytes;
    assert_eq!(counter(&record, "writtenBytes"), bytes + meta.stats().bytes);
    assert_eq!((counter(&record, "t.appendCount"), counter(&record, "t.appendSize")), (3, bytes));
    assert_eq!(counter(&record, "rollRequest"), 0);
}

#[test]
fn rolls_are_counted_by_their_reason() {
    let config = WalConfig { roll_bytes: 200, ..WalConfig::default() };
    let wal = open_with(MemoryFileSystem::new(), config, Arc::new(NoListener));
    (1..=20).for_each(|seq_id| append_synced(&wal, seq_id).expect("synced"));
    wal.roll().expect("rolled");
    let record = metrics::record(&[&wal]);
    let (size, all) = (counter(&record, "sizeRollRequest"), counter(&record, "rollRequest"));
    assert!(size > 0 && size == all, "{size} of {all}");
    let (files, bytes) = wal.live_files();
    assert!(files > 1 && bytes > 200, "{files} files of {bytes} bytes");
    assert_eq!(counter(&record, "successfulLogRolls"), wal.stats().rolls);
}

#[test]
fn a_failed_write_requests_a_roll() {
    let (_, fs) = faulty();
    let wal = open(fs.clone());
    append_synced(&wal, 1).expect("synced");
    fs.inject(Fault::on(Op::Append, "WALs").fails(ErrorKind::Other));
    append_synced(&wal, 2).expect("synced to the next file");
    let record = metrics::record(&[&wal]);
    assert_eq!((counter(&record, "errorRollRequest"), counter(&record, "rollRequest")), (1, 1));
}
