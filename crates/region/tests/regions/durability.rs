//! Acknowledged writes survive, failed writes are absent, and the region continues.

use std::io::ErrorKind as IoKind;
use std::sync::mpsc;
use std::time::Duration;

use evenkeel_common::clock::Clock;
use evenkeel_common::{CellBuffer, Durability, ErrorKind, KeyValue};
use evenkeel_fs::{Fault, Latch, Op, SurvivingData};
use evenkeel_region::memstore::InMemoryCompaction;
use evenkeel_region::operations::{Mutation, MutationKind, Scan};
use evenkeel_region::region::bulk_load::BulkLoad;
use evenkeel_region::region::nonce::{NonceKey, NonceSource};
use evenkeel_region::region::{RegionScanner, RowLockWaiter};
use evenkeel_region::scanner::ScannerContext;
use evenkeel_wal::WalConfig;

use crate::bulk_load;
use crate::harness::{Cluster, increment, put, scan, values};

const ONE: &[(&[u8], u32)] = &[(b"f", 1)];
const TIMEOUT: Duration = Duration::from_secs(30);

fn delete(row: &str) -> Mutation {
    Mutation::new(MutationKind::Delete, row.as_bytes().to_vec(), Vec::new())
}

/// The disk is full for the log: its file cannot grow and a new one cannot be created.
fn fill_log_disk(cluster: &Cluster) {
    cluster.fs.inject(Fault::on(Op::Append, "/WALs/").always().fails(IoKind::StorageFull));
    cluster.fs.inject(Fault::on(Op::Create, "/WALs/").always().fails(IoKind::StorageFull));
}

#[test]
fn acknowledged_writes_survive_a_process_crash() {
    let mut cluster = Cluster::new(&[(b"a", 1), (b"b", 1)]);
    for round in 0..12 {
        for i in 0..5 {
            let (row, value) = (format!("r{}", (round * 3 + i) % 8), format!("{round}.{i}"));
            let cells = [("a", "q", value.as_str()), ("b", "q", value.as_str())];
            let cells = if i % 2 == 0 { &cells[..] } else { &cells[..1] };
            cluster.region().mutate_wait(put(&row, cells)).expect("written");
            cluster.clock.advance_ms(1);
            if (round + i) % 7 == 3 {
                cluster.region().mutate_wait(delete(&row)).expect("deleted");
                cluster.clock.advance_ms(1);
            }
            if (round + i) % 5 == 2 {
                cluster.region().flush().expect("flushed");
            }
        }
        let before = cluster.all();
        assert!(!before.is_empty());
        let seq_num = cluster.region().open_seq_num();
        cluster.crash(SurvivingData::Flushed);
        assert_eq!(cluster.all(), before, "round {round}");
        assert!(cluster.region().open_seq_num() > seq_num);
    }
}

#[test]
fn synced_writes_survive_a_machine_crash() {
    let mut cluster = Cluster::with_wal(ONE, WalConfig { hsync: true, ..WalConfig::default() });
    cluster.put("r1", "f", "q", "flushed").expect("written");
    cluster.region().flush().expect("flushed");
    cluster.put("r2", "f", "q", "logged").expect("written");
    cluster.crash(SurvivingData::Synced);
    assert_eq!(values(&cluster.all()), ["flushed", "logged"]);
}

#[test]
fn a_full_disk_fails_writes_without_a_trace() {
    let mut cluster = Cluster::new(ONE);
    cluster.put("r", "f", "q", "before").expect("written");
    fill_log_disk(&cluster);
    for _ in 0..3 {
        let error = cluster.put("r", "f", "q", "lost").expect_err("no space");
        assert!(error.message().contains("No space left"), "{error}");
        cluster.region().mutate_wait(increment("n", "f", "q", 1)).expect_err("no space");
        assert_eq!(values(&cluster.row("r")), ["before"]);
        assert!(cluster.row("n").is_empty());
    }
    cluster.fs.clear();
    cluster.put("s", "f", "q", "after").expect("there is space again");
    assert_eq!(values(&cluster.all()), ["before", "after"]);
    cluster.region().flush().expect("flushed");
    assert_eq!(values(&cluster.all()), ["before", "after"]);
    cluster.crash(SurvivingData::Flushed);
    assert_eq!(values(&cluster.all()), ["before", "after"]);
}

#[test]
fn a_flush_that_fails_keeps_everything() {
    for (op, part) in
        [(Op::Create, ".tmp/a/"), (Op::Sync, ".tmp/b/"), (Op::Rename, ".tmp/a/"), (Op::Rename, ".tmp/b/")]
    {
        let mut cluster = Cluster::new(&[(b"a", 1), (b"b", 1)]);
        cluster.region().mutate_wait(put("r1", &[("a", "q", "1"), ("b", "q", "1")])).expect("written");
        cluster.fs.inject(Fault::on(op, part).fails(IoKind::Other));
        cluster.region().flush().expect_err("the disk says no");
        let hfiles =
            |cluster: &Cluster| cluster.region().stores().iter().map(|s| s.files().len()).sum::<usize>();
        assert_eq!(hfiles(&cluster), 0);
        assert_eq!((cluster.files("/a/"), cluster.files("/b/")), (vec![], vec![]), "{op:?} {part}");
        cluster.put("r2", "a", "q", "2").expect("written");
        assert_eq!(values(&cluster.all()), ["1", "1", "2"]);
        cluster.crash(SurvivingData::Flushed);
        assert_eq!(values(&cluster.all()), ["1", "1", "2"], "{op:?} {part}");
    }
}

/// A stock master splits, merges and snapshots a closed region by a listing of its directory.
#[test]
fn a_closed_region_has_no_compacted_file_in_its_directory() {
    let mut cluster = Cluster::new(ONE);
    cluster.put("x", "f", "q", "deleted").expect("written");
    cluster.put("y", "f", "q", "kept").expect("written");
    cluster.region().flush().expect("flushed");
    cluster.region().mutate_wait(delete("x")).expect("deleted");
    cluster.region().flush().expect("flushed");
    let mut reader = cluster.region().scanner(Scan::get("y")).expect("opened");
    cluster.region().compact(None, true).expect("compacted");
    let listed = |cluster: &Cluster| -> Vec<String> {
        cluster.files("/f/").into_iter().filter(|path| path.starts_with("/hbase/data/")).collect()
    };
    assert_eq!(listed(&cluster).len(), 2, "the reader holds the file of both rows");
    cluster.region().close(false).expect("closed");
    let (served, listed) = (cluster.region().stores()[0].files(), listed(&cluster));
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert!(listed[0].ends_with(&served[0].name));
    let mut cells = CellBuffer::new();
    reader.next(&mut cells, &mut ScannerContext::unlimited()).expect("the open files can be read");
    assert_eq!(cells.len(), 1);
    drop(reader);
    cluster.crash(SurvivingData::Flushed);
    assert_eq!(values(&cluster.all()), ["kept"]);
}

/// A region with two compacted files that a reader holds.
fn cluster_with_compacted_files() -> (Cluster, RegionScanner) {
    let cluster = Cluster::new(ONE);
    for value in ["1", "2"] {
        cluster.put("r", "f", "q", value).expect("written");
        cluster.region().flush().expect("flushed");
    }
    let reader = cluster.region().scanner(Scan::default()).expect("opened");
    cluster.region().compact(None, true).expect("compacted");
    (cluster, reader)
}

/// The files stay for the next attempt, and the region stays open.
#[test]
fn a_region_whose_compacted_files_cannot_be_archived_is_not_closed() {
    let (cluster, reader) = cluster_with_compacted_files();
    cluster.fs.inject(Fault::on(Op::Rename, "/f/").always().fails(IoKind::Other));
    cluster.region().close(false).expect_err("the disk says no");
    cluster.fs.clear();
    cluster.put("r", "f", "q", "3").expect("open");
    assert_eq!(values(&cluster.all()), ["3"]);
    cluster.region().close(false).expect("closed");
    let archived = cluster.files("/archive/");
    assert_eq!(archived.len(), 2, "{archived:?}");
    drop(reader);
}

/// A failed close aborts a RegionServer of a cluster, so a short failure must not fail it.
#[test]
fn a_close_retries_to_archive_compacted_files() {
    let (cluster, reader) = cluster_with_compacted_files();
    cluster.fs.inject(Fault::on(Op::Rename, "/f/").times(3).fails(IoKind::Other));
    cluster.region().close(false).expect("closed");
    let archived = cluster.files("/archive/");
    assert_eq!(archived.len(), 2, "{archived:?}");
    drop(reader);
}

/// The log of a server that was declared dead: a master has renamed its directory.
fn lose_log(cluster: &Cluster) {
    cluster.fs.inject(Fault::on(Op::Flush, "/WALs/").always().fails(IoKind::Other));
    cluster.fs.inject(Fault::on(Op::Create, "/WALs/").always().fails(IoKind::NotFound));
}

/// The sequence ids in its files would make a replay skip the edits of the region's next server.
#[test]
fn a_server_that_lost_its_log_puts_no_file_into_place() {
    for is_slow in [false, true] {
        let mut cluster = Cluster::new(ONE);
        cluster.put("r", "f", "q", "v").expect("written");
        if is_slow {
            // The log has the flush's marker long before the files are written.
            let latch = Latch::new();
            cluster.fs.inject(Fault::on(Op::Sync, "/.tmp/f/").waits_for(&latch));
            std::thread::scope(|scope| {
                let flush = scope.spawn(|| cluster.region().flush());
                latch.wait_for_arrival();
                cluster.put("s", "f", "q", "w").expect("synced behind the marker");
                lose_log(&cluster);
                latch.open();
                flush.join().expect("no panic").expect_err("the server is fenced");
            });
        } else {
            lose_log(&cluster);
            cluster.region().flush().expect_err("the server is fenced");
        }
        assert!(cluster.files("/f/").is_empty(), "{:?}", cluster.files("/f/"));
        assert!(cluster.region().bulk_load(&one_file(&cluster)).is_err());
        assert!(cluster.files("_SeqId_").is_empty());
        cluster.crash(SurvivingData::Flushed);
        assert_eq!(values(&cluster.row("r")), ["v"]);
    }
}

/// A load into an empty MemStore does not flush.
#[test]
fn a_server_that_lost_its_log_loads_no_file() {
    let cluster = Cluster::new(ONE);
    let load = one_file(&cluster);
    lose_log(&cluster);
    cluster.region().bulk_load(&load).expect_err("the server is fenced");
    assert!(cluster.files("_SeqId_").is_empty() && cluster.files(".bulkload-").is_empty());
}

fn one_file(cluster: &Cluster) -> BulkLoad {
    let cell = KeyValue::put(b"loaded", b"f", b"q", 5, b"loaded");
    let path = bulk_load::hfile(cluster, "/hbase/in/1", &[cell]);
    bulk_load::load("token", vec![bulk_load::file("f", path, false)])
}

/// A flush frees the log's files, so it must not wait for space for them.
#[test]
fn a_full_disk_of_the_log_does_not_prevent_a_flush() {
    let mut cluster = Cluster::new(ONE);
    cluster.put("r", "f", "q", "v").expect("written");
    fill_log_disk(&cluster);
    cluster.region().flush().expect("flushed");
    assert_eq!(cluster.files("/f/").len(), 1);
    cluster.crash(SurvivingData::Flushed);
    assert_eq!(values(&cluster.all()), ["v"]);
}

#[test]
fn the_oldest_edit_is_the_first_unflushed_one() {
    let cluster = Cluster::new(ONE);
    let write = || {
        let now_ms = cluster.clock.now_ms();
        cluster.put("r", "f", "q", "v").expect("written");
        cluster.clock.advance_ms(1000);
        Some(now_ms)
    };
    let region = cluster.region();
    cluster.clock.advance_ms(1000);
    assert_eq!(region.oldest_edit_ms(), None);
    let first = write();
    write();
    assert_eq!(region.oldest_edit_ms(), first);
    cluster.fs.inject(Fault::on(Op::Create, ".tmp/f/").fails(IoKind::Other));
    region.flush().expect_err("the disk says no");
    write();
    assert_eq!(region.oldest_edit_ms(), first);
    region.flush().expect("flushed");
    assert_eq!(region.oldest_edit_ms(), None);
    cluster.clock.advance_ms(1000);
    let next = write();
    assert_eq!(region.oldest_edit_ms(), next);
}

#[test]
fn deleted_cells_stay_deleted_after_a_half_failed_flush() {
    let mut cluster = Cluster::new(&[(b"a", 1), (b"b", 1)]);
    cluster.region().mutate_wait(put("r", &[("a", "q", "1"), ("b", "q", "1")])).expect("written");
    cluster.fs.inject(Fault::on(Op::Rename, ".tmp/b/").fails(IoKind::Other));
    cluster.region().flush().expect_err("the second family's file cannot be put into place");
    cluster.clock.advance_ms(1);
    cluster.region().mutate_wait(delete("r")).expect("deleted");
    cluster.put("s", "a", "q", "stays").expect("written");
    cluster.flush_and_roll();
    cluster.region().compact(None, true).expect("compacted");
    assert_eq!(values(&cluster.all()), ["stays"]);
    cluster.restart();
    assert_eq!(values(&cluster.all()), ["stays"]);
}

#[test]
fn deleted_cells_stay_deleted_when_readers_hold_files() {
    let mut cluster = Cluster::new(ONE);
    cluster.put("r", "f", "q", "old").expect("written");
    cluster.put("s", "f", "q", "stays").expect("written");
    cluster.flush_and_roll();
    let scanner = cluster.region().scanner(Scan::default()).expect("opens");
    cluster.clock.advance_ms(1);
    cluster.region().mutate_wait(delete("r")).expect("deleted");
    for row in ["t", "u"] {
        cluster.put(row, "f", "q", "stays").expect("written");
        cluster.flush_and_roll();
        cluster.region().compact(None, true).expect("compacted");
    }
    cluster.crash(SurvivingData::Flushed);
    assert_eq!(values(&cluster.all()), ["stays"; 3]);
    drop(scanner);
}

#[test]
fn deleted_cells_stay_deleted_after_an_empty_compaction() {
    let mut cluster = Cluster::new(ONE);
    cluster.put("r", "f", "q", "old").expect("written");
    cluster.flush_and_roll();
    let scanner = cluster.region().scanner(Scan::default()).expect("opens");
    cluster.clock.advance_ms(1);
    cluster.region().mutate_wait(delete("r")).expect("deleted");
    cluster.flush_and_roll();
    cluster.region().compact(None, true).expect("compacted");
    assert!(cluster.all().is_empty());
    cluster.crash(SurvivingData::Flushed);
    assert!(cluster.all().is_empty());
    drop(scanner);
}

/// A region that becomes three stripes, in two files of nine rows each. The third file of a
/// compaction is moved into place, but the move reports an error.
fn striped() -> Cluster {
    let mut cluster = Cluster::new(ONE);
    cluster.alter(&[
        ("hbase.hstore.engine.class", "org.apache.hadoop.hbase.regionserver.StripeStoreEngine"),
        ("hbase.store.stripe.initialStripeCount", "3"),
        ("hbase.store.stripe.compaction.flushToL0", "true"),
    ]);
    cluster.restart();
    for half in 0..2 {
        (0..9).for_each(|i| cluster.put(&format!("r{i}{half}"), "f", "q", "v").expect("written"));
        cluster.flush_and_roll();
    }
    let third = Fault::on(Op::Rename, ".tmp/f/").after(2);
    cluster.fs.inject(third.fails_after_effect(IoKind::Other));
    cluster
}

/// A fault that fails the deletion of an installed file.
fn removal(cluster: &Cluster, family: &str) -> Fault {
    Fault::on(Op::Delete, &format!("{}/{family}/", cluster.region().info().encoded_name()))
}

/// The last of three outputs names the files they replace. The disk refuses to delete one of them,
/// the last or another.
#[test]
fn a_compaction_that_cannot_be_undone_either_loses_no_row() {
    for kept in [1, 2, 3] {
        let mut cluster = striped();
        let (before, files) = (cluster.all(), cluster.files("/data/default/t/").len());
        cluster.fs.inject(removal(&cluster, "f").after(3 - kept).fails(IoKind::Other));
        cluster.region().compact(None, true).expect_err("the disk says no");
        assert_eq!(cluster.files("/data/default/t/").len(), files + kept as usize);
        assert_eq!(cluster.all(), before);
        cluster.crash(SurvivingData::Flushed);
        assert_eq!(cluster.all(), before, "{kept} outputs are left");
        assert_eq!(before.len(), 18);
    }
}

/// A region of three stripes with a file each, and nine rows.
fn in_stripes() -> Cluster {
    let mut cluster = Cluster::new(ONE);
    cluster.alter(&[
        ("hbase.hstore.engine.class", "org.apache.hadoop.hbase.regionserver.StripeStoreEngine"),
        ("hbase.store.stripe.initialStripeCount", "3"),
    ]);
    cluster.restart();
    (0..9).for_each(|i| cluster.put(&format!("r{i}"), "f", "q", "old").expect("written"));
    cluster.flush_and_roll();
    assert_eq!(store_files(&cluster), 3, "one for each stripe");
    cluster.clock.advance_ms(1);
    cluster
}

fn store_files(cluster: &Cluster) -> u64 {
    cluster.files(&format!("{}/f/", cluster.region().info().encoded_name())).len() as u64
}

/// Flushes; the server dies when this many files are in place.
fn die_in_flush(cluster: &mut Cluster, in_place: u64) {
    let files = store_files(cluster);
    cluster.fs.inject(Fault::on(Op::Rename, ".tmp/f/").after(in_place).fails(IoKind::Other));
    cluster.fs.inject(removal(cluster, "f").times(3).fails(IoKind::Other));
    cluster.region().flush().expect_err("the disk says no");
    assert_eq!(store_files(cluster) - files, in_place, "files of the flush in place");
    cluster.crash(SurvivingData::Flushed);
}

#[test]
fn a_crash_between_the_files_of_a_flush_loses_no_row() {
    for in_place in 0..3 {
        let mut cluster = in_stripes();
        (0..9).for_each(|i| cluster.put(&format!("r{i}"), "f", "q", "new").expect("written"));
        cluster.clock.advance_ms(1);
        cluster.region().mutate_wait(delete("r8")).expect("deleted");
        die_in_flush(&mut cluster, in_place);
        assert_eq!(values(&cluster.all()), ["new"; 8], "{in_place} files in place");
        cluster.put("r0", "f", "q", "newer").expect("written");
        cluster.flush_and_roll();
        cluster.region().compact(None, true).expect("compacted");
        cluster.restart();
        let expected = ["newer", "new", "new", "new", "new", "new", "new", "new"];
        assert_eq!(values(&cluster.all()), expected, "{in_place} files in place");
    }
}

/// Edits that are in no log exist only in the files that were moved into place. They are visible at
/// once, and older than what is written later.
#[test]
fn unlogged_cells_of_a_partial_flush_survive_a_crash() {
    let mut cluster = in_stripes();
    for i in 0..9 {
        let mut write = put(&format!("r{i}"), &[("f", "q", "new")]);
        write.durability = Durability::SkipWal;
        cluster.region().mutate_wait(write).expect("written");
    }
    die_in_flush(&mut cluster, 1);
    assert_eq!(values(&cluster.all()), ["new", "new", "new", "old", "old", "old", "old", "old", "old"]);
    cluster.put("r0", "f", "q", "newer").expect("written");
    assert_eq!(values(&cluster.all())[..2], ["newer", "new"]);
}

#[test]
fn deleted_cells_stay_deleted_after_a_half_undone_compaction() {
    let mut cluster = striped();
    cluster.fs.inject(removal(&cluster, "f").after(1).times(3).fails(IoKind::Other));
    for _ in 0..3 {
        cluster.region().compact(None, true).expect_err("the disk says no");
    }
    cluster.fs.clear();
    cluster.clock.advance_ms(1);
    cluster.region().mutate_wait(delete("r00")).expect("deleted");
    cluster.flush_and_roll();
    assert!(cluster.region().compact(None, true).expect("compacted"));
    assert_eq!(cluster.all().len(), 17);
    cluster.restart();
    assert_eq!(cluster.all().len(), 17);
}

#[test]
fn deleted_cells_stay_deleted_after_a_half_undone_flush() {
    let mut cluster = Cluster::new(&[(b"a", 1), (b"b", 1)]);
    cluster.region().mutate_wait(put("r", &[("a", "q", "1"), ("b", "q", "1")])).expect("written");
    cluster.fs.inject(Fault::on(Op::Rename, ".tmp/b/").fails(IoKind::Other));
    cluster.fs.inject(removal(&cluster, "a").fails(IoKind::Other));
    cluster.region().flush().expect_err("the second family's file cannot be put into place");
    cluster.clock.advance_ms(1);
    cluster.region().mutate_wait(delete("r")).expect("deleted");
    cluster.put("s", "a", "q", "stays").expect("written");
    cluster.flush_and_roll();
    cluster.region().compact(None, true).expect("compacted");
    cluster.restart();
    assert_eq!(values(&cluster.all()), ["stays"]);
}

#[test]
fn a_close_that_fails_leaves_the_region_open() {
    let mut cluster = Cluster::new(ONE);
    cluster.put("r", "f", "q", "1").expect("written");
    cluster.fs.inject(Fault::on(Op::Create, ".tmp/f/").times(2).fails(IoKind::StorageFull));
    for _ in 0..2 {
        cluster.region().close(false).expect_err("cannot flush");
        assert!(!cluster.region().is_closed());
    }
    cluster.put("r", "f", "q", "2").expect("still served");
    cluster.region().close(false).expect("closed");
    let error = cluster.put("r", "f", "q", "3").expect_err("closed");
    assert_eq!(error.kind(), ErrorKind::NotServingRegion);
    assert_eq!(cluster.region().close(false).expect_err("twice").kind(), ErrorKind::NotServingRegion);
    cluster.crash(SurvivingData::Flushed);
    assert_eq!(values(&cluster.all()), ["2"]);
}

#[test]
fn a_close_whose_log_is_full_leaves_the_region_open() {
    let mut cluster = Cluster::new(ONE);
    cluster.put("r", "f", "q", "1").expect("written");
    fill_log_disk(&cluster);
    cluster.region().close(false).expect_err("cannot log its end");
    cluster.fs.clear();
    cluster.put("s", "f", "q", "2").expect("still served");
    cluster.restart();
    assert_eq!(values(&cluster.all()), ["1", "2"]);
}

#[test]
fn a_log_is_not_kept_for_cells_that_an_in_memory_flush_has_dropped() {
    let mut cluster = Cluster::new(ONE);
    let family = cluster.table.families().next().expect("one").clone().with("TTL", "1");
    cluster.table = cluster.table.clone().with_family(family);
    let mut cluster = cluster.compacting(InMemoryCompaction::Eager);
    cluster.put("r", "f", "q", "short").expect("written");
    cluster.clock.advance_ms(1001);
    cluster.region().flush_in_memory().expect("flushed");
    assert_eq!(cluster.region().memstore_bytes(), 0, "it has expired");
    cluster.wal().roll().expect("rolled");
    assert_eq!(cluster.wal().closed_paths().len(), 1);
    assert!(!cluster.region().flush().expect("nothing to flush").flushed);
    cluster.wal().wait_for_archiver();
    assert!(cluster.wal().closed_paths().is_empty());
    cluster.put("s", "f", "q", "later").expect("written");
    cluster.crash(SurvivingData::Flushed);
    assert_eq!(values(&cluster.all()), ["later"]);
}

/// A write that waits for space in the log's queue must not keep the log's thread from completing
/// earlier writes.
#[test]
fn a_full_queue_blocks_writers_but_not_the_log() {
    let cluster =
        Cluster::with_wal(ONE, WalConfig { queue_bytes_max: 1, inline_sync: false, ..WalConfig::default() });
    let latch = Latch::new();
    cluster.fs.inject(Fault::on(Op::Flush, "/WALs/").waits_for(&latch));
    let (sender, receiver) = mpsc::channel();
    let write = |i: usize| {
        let (sender, region) = (sender.clone(), cluster.region().clone());
        std::thread::spawn(move || {
            let done =
                Box::new(move |outcome: evenkeel_common::Result<_>| drop(sender.send(outcome.map(drop))));
            region.mutate(
                put(&format!("r{i}"), &[("f", "q", "v")]),
                NonceSource::NONE,
                RowLockWaiter::CallingThread,
                done,
            );
        })
    };
    let mut writers = vec![write(0)];
    latch.wait_for_arrival();
    writers.push(write(1));
    writers.push(write(2));
    let started = std::time::Instant::now();
    while cluster.wal().stats().full_queue_waits == 0 && started.elapsed() < TIMEOUT {
        std::thread::yield_now();
    }
    latch.open();
    for _ in 0..3 {
        receiver.recv_timeout(TIMEOUT).expect("no writer is stuck").expect("written");
    }
    writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
    assert_eq!(cluster.all().len(), 3);
}

/// An Increment is retried while the first attempt is in flight to the disk, which then fails.
#[test]
fn a_waiting_retry_fails_and_the_next_applies_once() {
    let cluster = Cluster::new(ONE);
    let latch = Latch::new();
    cluster.fs.inject(Fault::on(Op::Append, "/WALs/").waits_for(&latch));
    let nonce = NonceKey { group: 7, nonce: 9 };
    let (sender, receiver) = mpsc::channel();
    let start = || {
        let sender = sender.clone();
        let done = Box::new(move |outcome: evenkeel_common::Result<_>| drop(sender.send(outcome.map(drop))));
        cluster.region().mutate(
            Mutation { nonce: nonce.nonce, ..increment("r", "f", "q", 5) },
            NonceSource { group: nonce.group, owner: 1 },
            RowLockWaiter::CallingThread,
            done,
        );
    };
    start();
    latch.wait_for_arrival();
    start();
    cluster.fs.clear();
    cluster.fs.inject(Fault::on(Op::Flush, "/WALs/").times(1).fails(IoKind::StorageFull));
    cluster.fs.inject(Fault::on(Op::Create, "/WALs/").times(1).fails(IoKind::StorageFull));
    latch.open();
    for _ in 0..2 {
        receiver.recv_timeout(TIMEOUT).expect("answered").expect_err("failed");
    }
    for _ in 0..2 {
        start();
        receiver.recv_timeout(TIMEOUT).expect("answered").expect("made, and then known to be made");
    }
    let cells = cluster.region().get(Scan::get("r")).expect("read");
    assert_eq!(cells.get(0).value(), 5i64.to_be_bytes());
}

/// A Delete of the newest version arrives while a Put is in flight to the log, which then fails the
/// Put and accepts the Delete: the Delete applies to the newest version that a reader could see.
#[test]
fn a_delete_of_the_newest_version_skips_failed_puts() {
    let newest = || {
        let latest = evenkeel_common::cell::LATEST_TIMESTAMP;
        let marker = KeyValue::new(b"r", b"f", b"q", latest, evenkeel_common::CellType::Delete, b"");
        Mutation::new(MutationKind::Delete, "r", vec![marker])
    };
    for in_batch in [false, true] {
        let cluster = Cluster::with_wal(ONE, WalConfig { inline_sync: false, ..WalConfig::default() });
        cluster.put("r", "f", "q", "old").expect("written");
        cluster.clock.advance_ms(1);
        let latch = Latch::new();
        cluster.fs.inject(Fault::on(Op::Append, "/WALs/").waits_for(&latch));
        let (sender, receiver) = mpsc::channel();
        let tell = |what: &'static str| {
            let sender = sender.clone();
            move |outcome: evenkeel_common::Result<_>| drop(sender.send((what, outcome.map(drop))))
        };
        cluster.region().mutate(
            put("r", &[("f", "q", "failed")]),
            NonceSource::NONE,
            RowLockWaiter::CallingThread,
            Box::new(tell("put")),
        );
        latch.wait_for_arrival();
        cluster.fs.clear();
        cluster.fs.inject(Fault::on(Op::Flush, "/WALs/").times(1).fails(IoKind::StorageFull));
        cluster.fs.inject(Fault::on(Op::Create, "/WALs/").times(1).fails(IoKind::StorageFull));
        if in_batch {
            let tell = tell("delete");
            cluster.region().batch_mutate(
                vec![newest()],
                RowLockWaiter::CallingThread,
                Box::new(move |mut all| tell(all.remove(0))),
            );
        } else {
            cluster.region().mutate(
                newest(),
                NonceSource::NONE,
                RowLockWaiter::CallingThread,
                Box::new(tell("delete")),
            );
        }
        latch.open();
        for _ in 0..2 {
            let (what, outcome) = receiver.recv_timeout(TIMEOUT).expect("answered");
            assert_eq!(outcome.is_ok(), what == "delete", "{what}: {outcome:?}");
        }
        assert!(cluster.row("r").is_empty(), "{:?}", cluster.row("r"));
    }
}

#[test]
fn replaying_twice_changes_nothing() {
    let mut cluster = Cluster::new(&[(b"a", 3), (b"b", 3)]);
    for i in 0..4 {
        cluster.put("r", if i % 2 == 0 { "a" } else { "b" }, "q", &i.to_string()).expect("written");
        cluster.clock.advance_ms(1);
        if i == 1 {
            cluster.region().flush().expect("flushed");
        }
    }
    let versions = |cluster: &Cluster| scan(cluster.region(), Scan { max_versions: 10, ..Scan::default() });
    let before = versions(&cluster);
    assert_eq!(before.len(), 4);
    for _ in 0..3 {
        cluster.crash(SurvivingData::Flushed);
        assert_eq!(versions(&cluster), before);
    }
}

#[test]
fn a_rolled_back_cell_does_not_hide_an_older_one() {
    let cluster = Cluster::new(&[(b"f", 3)]);
    let cell = |value: &str| KeyValue::put(b"r", b"f", b"q", 5, value.as_bytes());
    let mutation = |value: &str| Mutation::new(MutationKind::Put, "r", vec![cell(value)]);
    cluster.region().mutate_wait(mutation("kept")).expect("written");
    fill_log_disk(&cluster);
    cluster.region().mutate_wait(mutation("lost")).expect_err("no space");
    cluster.region().mutate_wait(delete("r")).expect_err("no space");
    assert_eq!(values(&cluster.row("r")), ["kept"]);
    cluster.fs.clear();
    cluster.region().flush().expect("flushed");
    assert_eq!(values(&cluster.row("r")), ["kept"]);
}

/// The observable properties of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// It is acknowledged only once it is in the log's file.
    waits: bool,
    /// It survives the death of the process, once the log has written its queue.
    logged: bool,
    /// It survives the death of the machine.
    synced: bool,
}

const SKIP: Seen = Seen { waits: false, logged: false, synced: false };
const ASYNC: Seen = Seen { logged: true, ..SKIP };
const SYNC: Seen = Seen { waits: true, ..ASYNC };
const FSYNC: Seen = Seen { synced: true, ..SYNC };

/// Writes to a region whose log is blocked, then lets all writes finish and kills the server.
fn acknowledged_early_and_survives(
    of_table: Option<&str>,
    given: Durability,
    keep: SurvivingData,
) -> (bool, bool) {
    let mut cluster = Cluster::new(ONE);
    if let Some(durability) = of_table {
        cluster.alter(&[("DURABILITY", durability)]);
        cluster.restart();
    }
    let latch = Latch::new();
    for op in [Op::Flush, Op::Sync] {
        cluster.fs.inject(Fault::on(op, "/WALs/").always().waits_for(&latch));
    }
    let mut write = put("r", &[("f", "q", "v")]);
    write.durability = given;
    let (sender, outcome) = mpsc::channel();
    cluster.region().mutate(
        write,
        NonceSource::NONE,
        RowLockWaiter::CallingThread,
        Box::new(move |result| sender.send(result.is_ok()).expect("heard")),
    );
    let early = outcome.try_recv().ok();
    latch.open();
    let written = early.unwrap_or_else(|| outcome.recv_timeout(TIMEOUT).expect("an answer"));
    assert!(written, "{of_table:?}, {given:?}");
    // It follows the other in the log.
    let mut next = put("s", &[("f", "q", "v")]);
    next.durability = Durability::SyncWal;
    cluster.region().mutate_wait(next).expect("written");
    cluster.crash(keep);
    (early.is_some(), !cluster.row("r").is_empty())
}

#[test]
fn write_durability_overrides_table_durability() {
    use Durability::{AsyncWal, FsyncWal, SkipWal, SyncWal, UseDefault};
    for (of_table, given, seen) in [
        (None, SkipWal, SKIP),
        (None, AsyncWal, ASYNC),
        (None, SyncWal, SYNC),
        (None, FsyncWal, FSYNC),
        (None, UseDefault, SYNC),
        (Some("SKIP_WAL"), UseDefault, SKIP),
        (Some("ASYNC_WAL"), UseDefault, ASYNC),
        (Some("SYNC_WAL"), UseDefault, SYNC),
        (Some("FSYNC_WAL"), UseDefault, FSYNC),
        (Some("USE_DEFAULT"), UseDefault, SYNC),
        (Some("SKIP_WAL"), FsyncWal, FSYNC),
        (Some("FSYNC_WAL"), AsyncWal, ASYNC),
    ] {
        let (early, logged) = acknowledged_early_and_survives(of_table, given, SurvivingData::Flushed);
        let (_, synced) = acknowledged_early_and_survives(of_table, given, SurvivingData::Synced);
        assert_eq!(Seen { waits: !early, logged, synced }, seen, "{of_table:?}, {given:?}");
    }
}
