//! Flushes of some families: what is written, what stays in the log, and what is replayed.

use std::io::ErrorKind as IoKind;
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_fs::{Fault, Latch, Op, SurvivingData};
use evenkeel_protocol::pb::flush_descriptor::FlushAction;
use evenkeel_region::store::BackgroundPriority;
use evenkeel_wal::markers::{self, Marker};
use evenkeel_wal::{WalConfig, WalReader};

use crate::harness::{Cluster, increment, values};

const TWO: &[(&[u8], u32)] = &[(b"a", 3), (b"b", 3)];
/// Heap bytes above which a family is large.
const LARGE: &str = "4000";

struct Urgent;

impl BackgroundPriority for Urgent {
    fn is_urgent(&self) -> bool {
        true
    }

    fn lower_priority(&self) {}
}

/// A cluster with the families `a` and `b`, and attributes of the table.
fn cluster(hsync: bool, attributes: &[(&str, &str)]) -> Cluster {
    let mut cluster = Cluster::with_wal(TWO, WalConfig { hsync, ..WalConfig::default() });
    cluster.alter(&[("hbase.hregion.percolumnfamilyflush.size.lower.bound", LARGE)]);
    cluster.alter(attributes);
    cluster.restart();
    cluster
}

/// Makes the family `a` large, and `b` not.
fn write(cluster: &Cluster, round: usize) {
    for n in 0..12 {
        cluster.put(&format!("r{n:02}"), "a", "q", &"x".repeat(500 + round)).expect("written");
        cluster.clock.advance_ms(1);
    }
    cluster.put(&format!("r{:02}", round % 12), "b", "q", &round.to_string()).expect("written");
    cluster.region().mutate_wait(increment("sum", "b", "q", 1)).expect("added");
    cluster.clock.advance_ms(1);
}

fn flush_in_background(cluster: &Cluster) {
    assert!(cluster.region().flush_in_background(&Urgent).expect("flushed").flushed);
}

/// The numbers of store files of the families `a` and `b`.
fn files(cluster: &Cluster) -> [usize; 2] {
    let files = |at: usize| cluster.region().stores()[at].files().len();
    [files(0), files(1)]
}

/// The first sequence id of a family that is only in memory.
fn first_unflushed(cluster: &Cluster, family: &str) -> Option<u64> {
    let region = cluster.region().info().encoded_name().to_owned();
    cluster.wal().lowest_unflushed(region.as_bytes(), Some(family.as_bytes()))
}

/// The steps of flushes in the log that is open, each with its families.
fn logged_flushes(cluster: &Cluster) -> Vec<(FlushAction, Vec<String>)> {
    let mut reader = WalReader::open(&cluster.memory, &cluster.wal().current_path()).expect("opens");
    let mut found = Vec::new();
    while let Some(entry) = reader.next().expect("read") {
        for cell in &entry.cells {
            if let Some(Marker::Flush(flush)) = markers::parse(&cell.as_cell()).expect("known") {
                let name = |name: &Bytes| String::from_utf8_lossy(name).into_owned();
                let stores = flush.store_flushes.iter().map(|store| name(&store.family_name)).collect();
                found.push((flush.action(), stores));
            }
        }
    }
    found
}

#[test]
fn a_background_flush_writes_only_the_large_family() {
    let cluster = cluster(false, &[]);
    write(&cluster, 0);
    let first = first_unflushed(&cluster, "b").expect("unflushed");
    flush_in_background(&cluster);
    assert_eq!(files(&cluster), [1, 0]);
    assert_eq!((first_unflushed(&cluster, "a"), first_unflushed(&cluster, "b")), (None, Some(first)));
    assert_eq!(cluster.region().max_flushed_seq_id(), first - 1);
    let flushes =
        [FlushAction::StartFlush, FlushAction::CommitFlush].map(|step| (step, vec!["a".to_owned()]));
    assert_eq!(logged_flushes(&cluster), flushes);

    cluster.wal().roll().expect("rolled");
    cluster.wal().wait_for_archiver();
    assert_eq!(cluster.wal().closed_paths().len(), 1, "the log has edits of b");
    cluster.region().flush().expect("flushed");
    assert_eq!(files(&cluster), [1, 1], "a requested flush writes all families");
    assert_eq!(first_unflushed(&cluster, "b"), None);
    cluster.wal().wait_for_archiver();
    assert!(cluster.wal().closed_paths().is_empty());
}

/// The cells of the other family are read from the MemStore, and from the log after a crash.
#[test]
fn a_requested_flush_writes_the_families_that_it_names() {
    let mut cluster = cluster(false, &[]);
    write(&cluster, 0);
    let flush = |cluster: &Cluster, families: &[&'static [u8]]| {
        let families: Vec<_> = families.iter().map(|name| Bytes::from_static(name)).collect();
        cluster.region().flush_families(&families).expect("flushed").flushed
    };
    let first = first_unflushed(&cluster, "a").expect("unflushed");
    assert!(flush(&cluster, &[b"b"]));
    assert_eq!(files(&cluster), [0, 1]);
    assert_eq!((first_unflushed(&cluster, "a"), first_unflushed(&cluster, "b")), (Some(first), None));
    assert!(!flush(&cluster, &[b"b"]) && !flush(&cluster, &[b"none"]), "nothing to flush");
    cluster.crash(SurvivingData::Flushed);
    assert_eq!(values(&cluster.row("r00")), [&"x".repeat(500), "0"]);
    write(&cluster, 1);
    let before = files(&cluster);
    assert!(flush(&cluster, &[b"b", b"a"]));
    assert_eq!(files(&cluster), before.map(|files| files + 1));
    write(&cluster, 2);
    assert!(flush(&cluster, &[]));
    assert_eq!(files(&cluster), before.map(|files| files + 2), "all if none is named");
}

/// The log may need a flush of families that a requested flush was writing when it failed.
#[test]
fn a_requested_flush_that_fails_is_made_up_by_the_next_one() {
    let cluster = cluster(false, &[]);
    write(&cluster, 0);
    cluster.fs.inject(Fault::on(Op::Rename, "/b/").fails(IoKind::StorageFull));
    cluster.region().flush().expect_err("the disk is full");
    cluster.fs.clear();
    assert_eq!(files(&cluster)[1], 0);
    flush_in_background(&cluster);
    assert_eq!((first_unflushed(&cluster, "a"), first_unflushed(&cluster, "b")), (None, None));
    assert_eq!(files(&cluster)[1], 1, "although b is small");
    write(&cluster, 1);
    flush_in_background(&cluster);
    assert_eq!(files(&cluster)[1], 1, "the policy selects again");
    let region = cluster.region();
    let ids: Vec<_> = region.flushed_seq_ids().into_iter().map(|(_, seq_id)| seq_id).collect();
    let first = first_unflushed(&cluster, "b").expect("unflushed");
    assert!(ids[0] > first && ids[1] == first - 1, "{ids:?}: a is flushed up to the last flush, b is not");
}

#[test]
fn the_other_families_are_replayed_after_a_crash_or_a_power_cut() {
    for (hsync, keep) in [(false, SurvivingData::Flushed), (true, SurvivingData::Synced)] {
        let mut cluster = cluster(hsync, &[]);
        for round in 0..8 {
            write(&cluster, round);
            let files_before = files(&cluster);
            flush_in_background(&cluster);
            assert_eq!(files(&cluster), [files_before[0] + 1, files_before[1]], "round {round}");
            if round % 2 == 0 {
                write(&cluster, round + 100);
                cluster.wal().roll().expect("rolled");
            }
            if round % 3 == 0 {
                flush_in_background(&cluster);
            }
            let before = cluster.all();
            cluster.crash(keep);
            assert_eq!(cluster.all(), before, "{keep:?}, round {round}");
        }
        let sum = cluster.row("sum");
        assert_eq!(values(&sum).len(), 1);
        assert!(values(&sum)[0].ends_with('\u{c}'), "8 rounds, 4 of them twice: {sum:?}");
    }
}

#[test]
fn a_failed_flush_of_one_family_loses_nothing_and_is_made_up() {
    let mut cluster = cluster(false, &[]);
    write(&cluster, 0);
    cluster.fs.inject(Fault::on(Op::Rename, ".tmp/a/").fails(IoKind::Other));
    cluster.region().flush_in_background(&Urgent).expect_err("the disk says no");
    assert!(first_unflushed(&cluster, "a").is_some());
    write(&cluster, 1);
    flush_in_background(&cluster);
    assert_eq!(files(&cluster), [1, 0]);
    assert_eq!(first_unflushed(&cluster, "a"), None);
    let before = cluster.all();
    cluster.crash(SurvivingData::Flushed);
    assert_eq!(cluster.all(), before);
}

#[test]
fn families_that_hold_a_log_are_flushed_though_small() {
    let cluster = cluster(false, &[]);
    write(&cluster, 0);
    cluster.region().require_flush(&[Bytes::from("b")]);
    flush_in_background(&cluster);
    assert_eq!(files(&cluster), [0, 1]);
    flush_in_background(&cluster);
    assert_eq!(files(&cluster), [1, 1], "the request was for one flush");
}

#[test]
fn old_families_are_flushed_with_the_large_ones() {
    let cluster = cluster(false, &[]);
    cluster.put("r", "b", "q", "old").expect("written");
    let first = cluster.region().oldest_edit_ms().expect("an edit");
    cluster.clock.advance_ms(10);
    cluster.put("r", "a", "q", "new").expect("written");
    cluster.region().flush_old_stores(first + 1, u64::MAX);
    flush_in_background(&cluster);
    assert_eq!(files(&cluster), [0, 1]);
    assert_eq!(cluster.region().oldest_edit_ms(), Some(first + 10), "the edit of the other family");
    cluster.put("r", "b", "q", "again").expect("written");
    for _ in 0..3 {
        cluster.put("s", "b", "q", "again").expect("written");
    }
    cluster.region().flush_old_stores(0, 4);
    flush_in_background(&cluster);
    assert_eq!(files(&cluster), [1, 1], "the first edit of a is more than four writes ago");
}

#[test]
fn without_a_large_family_or_by_the_tables_policy_all_are_flushed() {
    let small = cluster(false, &[]);
    small.put("r", "a", "q", "v").expect("written");
    small.put("r", "b", "q", "v").expect("written");
    flush_in_background(&small);
    assert_eq!(files(&small), [1, 1]);
    let policy = "org.apache.hadoop.hbase.regionserver.FlushAllStoresPolicy";
    let all = cluster(false, &[("FLUSH_POLICY", policy)]);
    write(&all, 0);
    flush_in_background(&all);
    assert_eq!(files(&all), [1, 1]);
}

/// Closes a region whose flush waits for the disk; returns true if a write is accepted meanwhile.
fn accepts_writes_during_the_flush_of_a_close(preclose: &str) -> bool {
    let cluster = cluster(false, &[("hbase.hregion.preclose.flush.size", preclose)]);
    write(&cluster, 0);
    let latch = Latch::new();
    cluster.fs.inject(Fault::on(Op::Create, ".tmp/a/").waits_for(&latch));
    let region = Arc::clone(cluster.region());
    let close = std::thread::spawn(move || region.close(false));
    latch.wait_for_arrival();
    let is_accepted = cluster.put("late", "a", "q", "v").is_ok();
    latch.open();
    close.join().expect("no panic").expect("closed");
    is_accepted
}

#[test]
fn a_close_flushes_a_large_memstore_before_it_refuses_writes() {
    assert!(accepts_writes_during_the_flush_of_a_close("1000"));
    assert!(!accepts_writes_during_the_flush_of_a_close("1000000"));
}
