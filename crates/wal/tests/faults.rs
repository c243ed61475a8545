//! The write path on a failing disk: errors of writes, syncs and rolls, a full disk, a directory
//! that disappears.

mod common;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::*;
use evenkeel_common::clock::ManualClock;
use evenkeel_fs::{
    Fault, FaultyFileSystem, FileHealth, FileSystem, Latch, MemoryFileSystem, Op, SurvivingData,
};
use evenkeel_wal::{NoListener, RollReason, SyncLevel, Wal, WalConfig};

#[test]
fn a_failing_write_goes_to_a_new_file() {
    for op in [Op::Append, Op::Flush] {
        let (memory, fs) = faulty();
        let heard = Arc::new(RecordingListener::default());
        let wal = open_with(fs.clone(), WalConfig::default(), heard.clone());
        append_synced(&wal, 1).expect("synced");
        let first = wal.current_path();
        fs.inject(Fault::on(op, "WALs").fails(ErrorKind::Other));
        append_synced(&wal, 2).expect("in the new file");
        append_synced(&wal, 3).expect("synced");
        memory.crash(SurvivingData::Flushed);
        assert_ne!(wal.current_path(), first);
        assert_eq!(seq_ids(&read_file(&memory, &first).0), [1]);
        assert_eq!(seq_ids(&read_file(&memory, &wal.current_path()).0), [2, 3]);
        assert!(heard.aborts.lock().is_empty());
        assert_eq!(wal.stats().failures, 1);
    }
}

#[test]
fn a_failed_remote_log_requests_no_store_flush() {
    for is_remote in [false, true] {
        let (memory, fs) = faulty();
        let fs = if is_remote { fs.as_remote() } else { fs };
        let heard = Arc::new(RecordingListener::default());
        let wal = open_with(fs.clone(), WalConfig::default(), heard.clone());
        append_synced(&wal, 1).expect("synced");
        fs.inject(Fault::on(Op::Flush, "WALs").fails(ErrorKind::BrokenPipe));
        append_synced(&wal, 2).expect("in the new file");
        assert_eq!(heard.flushes.lock().is_empty(), is_remote);
        assert_eq!(wal.stats().inline_commits == 0, is_remote, "no thread of a caller waits for the network");
        wal.close().expect("closed");
        assert_eq!(seq_ids(&read_dir(&memory, WAL_DIR.as_ref())), [1, 2]);
    }
}

/// One packet flushes and syncs: a flush of its own would be another round trip.
#[test]
fn a_remote_batch_whose_waiters_all_want_a_sync_needs_no_flush() {
    let (memory, fs) = faulty();
    let wal = open_with(fs.clone().as_remote(), WalConfig::default(), Arc::new(NoListener));
    let first = wal.current_path();
    fs.inject(Fault::on(Op::Flush, "WALs").fails(ErrorKind::BrokenPipe));
    for seq_id in [1, 2] {
        let txid = wal.append(&entry(seq_id)).expect("appended");
        wal.sync(txid, SyncLevel::Sync).expect("synced");
    }
    assert_eq!((wal.current_path(), wal.stats().failures, wal.stats().syncs), (first.clone(), 0, 2));
    // A waiter for a flush does not wait for disks.
    append_synced(&wal, 3).expect("in the new file");
    assert_eq!(wal.stats().failures, 1, "its flush was the one that fails");
    memory.crash(SurvivingData::Synced);
    assert_eq!(seq_ids(&read_file(&memory, &first).0), [1, 2]);
}

/// A waiter for a sync may come after a commit has flushed its entry: its batch is empty.
#[test]
fn remote_entries_that_were_flushed_before_are_synced() {
    let (memory, fs) = faulty();
    let wal = open_with(fs.as_remote(), WalConfig::default(), Arc::new(NoListener));
    let first = wal.current_path();
    for seq_id in [1, 2] {
        let txid = wal.append(&entry(seq_id)).expect("appended");
        wal.sync(txid, SyncLevel::Flush).expect("flushed");
        wal.sync(txid, SyncLevel::Sync).expect("synced");
    }
    memory.crash(SurvivingData::Synced);
    assert_eq!(seq_ids(&read_file(&memory, &first).0), [1, 2]);
}

/// While no NameNode answers no file can be created, and the current one can be written.
#[test]
fn remote_writers_do_not_wait_for_the_next_file() {
    let (memory, fs) = faulty();
    let fs = fs.as_remote();
    let config = WalConfig { roll_bytes: 1000, ..WalConfig::default() };
    let wal = open_with(fs.clone(), config, Arc::new(NoListener));
    let first = wal.current_path();
    let latch = Latch::new();
    fs.inject(Fault::on(Op::Create, "WALs").waits_for(&latch));
    let written = 1..=50;
    written.clone().for_each(|seq_id| append_synced(&wal, seq_id).expect("in the long file"));
    assert_eq!((wal.current_path(), wal.stats().rolls), (first.clone(), 0));
    latch.open();
    let mut last = *written.end();
    while wal.current_path() == first {
        last += 1;
        assert!(last < 10_000, "the file is rolled once the next one is there");
        append_synced(&wal, last).expect("synced");
        std::thread::sleep(Duration::from_millis(1));
    }
    wal.close().expect("closed");
    assert_eq!(seq_ids(&read_dir(&memory, WAL_DIR.as_ref())), (1..=last).collect::<Vec<_>>());
}

/// Runs `work` and `and_then`, which ends what `work` must not wait for. Returns true if `work`
/// ended within some seconds, before `and_then` began.
fn ends_before(work: impl FnOnce() + Send, and_then: impl FnOnce()) -> bool {
    std::thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        scope.spawn(move || {
            work();
            let _ = tell.send(());
        });
        let has_ended = told.recv_timeout(Duration::from_secs(10)).is_ok();
        and_then();
        has_ended
    })
}

/// A remote log that rolls after 8000 bytes, filled so far that the next file was created.
fn with_next_file(fs: &FaultyFileSystem, clock: &Arc<ManualClock>) -> (Arc<Wal>, u64) {
    fs.mkdirs(WAL_DIR.as_ref()).expect("mkdirs");
    let config = WalConfig { roll_bytes: 8000, ..WalConfig::default() };
    let (remote, listener) = (Arc::new(fs.clone().as_remote()), Arc::new(NoListener));
    let wal = open_in(remote, WAL_DIR.as_ref(), OLD_DIR.as_ref(), config, listener, Arc::clone(clock));
    let mut seq_id = 0;
    while fs.status(&wal.current_path()).expect("there").len <= 7000 {
        seq_id += 1;
        append_synced(&wal, seq_id).expect("synced");
    }
    wal.wait_for_archiver();
    assert_eq!((live_files(fs).len(), wal.stats().rolls), (2, 0));
    (wal, seq_id)
}

/// Appends entries until the log has rolled. Returns the last sequence id.
fn append_until_rolled(wal: &Wal, mut seq_id: u64) -> u64 {
    while wal.stats().rolls == 0 {
        seq_id += 1;
        assert!(seq_id < 10_000, "the next file is there: {:?}", wal.stats());
        append_synced(wal, seq_id).expect("synced");
        std::thread::sleep(Duration::from_millis(1));
    }
    seq_id
}

/// While no NameNode answers, it is unknown whether the next file is still at its path.
#[test]
fn remote_writers_do_not_wait_for_the_check_of_the_next_file() {
    let (memory, fs) = faulty();
    let (wal, seq_id) = with_next_file(&fs, &ManualClock::at(1000));
    let files = live_files(&memory);
    let latch = Latch::new();
    fs.inject(Fault::on(Op::Status, "WALs").waits_for(&latch));
    let last = seq_id + 100;
    let work = || (seq_id + 1..=last).for_each(|seq_id| append_synced(&wal, seq_id).expect("synced"));
    assert!(ends_before(work, || latch.open()), "writers wait for the file system");
    let last = append_until_rolled(&wal, last);
    assert_eq!((wal.current_path(), live_files(&memory)), (files[1].clone(), files));
    wal.close().expect("closed");
    assert_eq!(seq_ids(&read_dir(&memory, WAL_DIR.as_ref())), (1..=last).collect::<Vec<_>>());
}

#[test]
fn a_next_file_that_cannot_be_checked_is_kept() {
    let (memory, fs) = faulty();
    let clock = ManualClock::at(1000);
    let (wal, mut seq_id) = with_next_file(&fs, &clock);
    let files = live_files(&memory);
    fs.inject(Fault::on(Op::Status, "WALs").fails(ErrorKind::TimedOut));
    while wal.stats().failures == 0 {
        seq_id += 1;
        assert!(seq_id < 10_000, "the file is checked");
        append_synced(&wal, seq_id).expect("in the current file");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!((wal.current_path(), live_files(&memory)), (files[0].clone(), files.clone()));
    clock.advance_ms(1001);
    let last = append_until_rolled(&wal, seq_id);
    assert_eq!((wal.current_path(), live_files(&memory)), (files[1].clone(), files));
    assert_eq!(seq_ids(&read_dir(&memory, WAL_DIR.as_ref())), (1..=last).collect::<Vec<_>>());
}

#[test]
fn remote_writers_do_not_wait_for_a_requested_roll() {
    let (memory, fs) = faulty();
    let wal = open_with(fs.clone().as_remote(), WalConfig::default(), Arc::new(NoListener));
    append_synced(&wal, 1).expect("synced");
    let first = wal.current_path();
    let latch = Latch::new();
    fs.inject(Fault::on(Op::Create, "WALs").waits_for(&latch));
    std::thread::scope(|scope| {
        let roll = scope.spawn(|| wal.roll());
        latch.wait_for_arrival();
        let work = || append_synced(&wal, 2).expect("in the current file");
        assert!(ends_before(work, || latch.open()), "a writer waits for the roll");
        roll.join().expect("no panic").expect("rolled");
    });
    append_synced(&wal, 3).expect("in the new file");
    assert_eq!(seq_ids(&read_file(&memory, &first).0), [1, 2]);
    assert_eq!(seq_ids(&read_file(&memory, &wal.current_path()).0), [3]);
    // A roll that still waits when the log is closed gets an error.
    let latch = Latch::new();
    fs.inject(Fault::on(Op::Create, "WALs").waits_for(&latch));
    std::thread::scope(|scope| {
        let roll = scope.spawn(|| wal.roll());
        latch.wait_for_arrival();
        let close = scope.spawn(|| wal.close());
        roll.join().expect("no panic").expect_err("closed");
        latch.open();
        close.join().expect("no panic").expect("closed");
    });
}

/// The current file fails, and with it the order of the spare one, which is deleted.
#[test]
fn remote_writers_do_not_wait_for_the_deletion_of_the_spare_file() {
    let (memory, fs) = faulty();
    let (wal, seq_id) = with_next_file(&fs, &ManualClock::at(1000));
    let latch = Latch::new();
    fs.inject(Fault::on(Op::Delete, "WALs").waits_for(&latch));
    fs.inject(Fault::on(Op::Flush, "WALs").fails(ErrorKind::BrokenPipe));
    let work = || append_synced(&wal, seq_id + 1).expect("in a new file");
    assert!(ends_before(work, || latch.open()), "a writer waits for the deletion");
    wal.close().expect("closed");
    assert_eq!(live_files(&memory).len(), 2);
    assert_eq!(seq_ids(&read_dir(&memory, WAL_DIR.as_ref())), (1..=seq_id + 1).collect::<Vec<_>>());
}

/// Waits until the WAL has rolled `rolls` times for few replicas.
fn wait_for_low_replication_rolls(wal: &Wal, rolls: u64) {
    let of_reason = || wal.stats().roll_requests[RollReason::LowReplication as usize];
    for _ in 0..500 {
        if of_reason() >= rolls && wal.stats().rolls >= rolls {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!((of_reason(), wal.stats().rolls), (rolls, rolls), "{:?}", wal.stats());
}

/// No writer makes a call after the DataNode has died.
#[test]
fn an_idle_file_that_breaks_is_rolled() {
    let (memory, fs) = faulty();
    let wal = open_with(fs.clone().as_remote(), WalConfig::default(), Arc::new(NoListener));
    append_synced(&wal, 1).expect("synced");
    let broken = wal.current_path();
    fs.report_health(broken.to_str().expect("UTF-8"), FileHealth::Broken);
    wait_for_low_replication_rolls(&wal, 1);
    append_synced(&wal, 2).expect("in the new file");
    assert_ne!(wal.current_path(), broken);
    assert_eq!(wal.stats().failures, 0, "no writer met the broken file");
    wal.close().expect("closed");
    assert_eq!(seq_ids(&read_dir(&memory, WAL_DIR.as_ref())), [1, 2]);
}

#[test]
fn a_file_with_few_replicas_is_rolled_after_a_minute_and_the_next_one_later() {
    let (memory, fs) = faulty();
    memory.mkdirs(WAL_DIR.as_ref()).expect("mkdirs");
    fs.report_health("WALs", FileHealth::FewReplicas);
    let (clock, config) = (ManualClock::at(1000), WalConfig::default());
    let remote = Arc::new(fs.clone().as_remote());
    let (wal_dir, old_dir) = (Path::new(WAL_DIR), Path::new(OLD_DIR));
    let wal = open_in(remote, wal_dir, old_dir, config, Arc::new(NoListener), Arc::clone(&clock));
    let mut seq_id = 0;
    let mut after_ms = |ms: i64, rolls: u64| {
        seq_id += 1;
        append_synced(&wal, seq_id).expect("synced");
        clock.advance_ms(ms);
        if wal.stats().rolls == rolls {
            std::thread::sleep(Duration::from_millis(1200));
        }
        wait_for_low_replication_rolls(&wal, rolls);
    };
    after_ms(59_000, 0);
    after_ms(1_000, 1);
    after_ms(119_000, 1);
    after_ms(1_000, 2);
    fs.clear();
    after_ms(600_000, 2);
}

#[test]
fn writes_reported_as_failed_are_not_replayed() {
    let torn = || Fault::on(Op::Append, "WALs").writes_half(ErrorKind::StorageFull);
    let whole = || Fault::on(Op::Append, "WALs").fails_after_effect(ErrorKind::StorageFull);
    let unflushed = || Fault::on(Op::Flush, "WALs").fails_after_effect(ErrorKind::StorageFull);
    for fault in [torn, whole, unflushed] as [fn() -> Fault; 3] {
        let (memory, fs) = faulty();
        let wal = open(fs.clone());
        append_synced(&wal, 1).expect("synced");
        let batch = [2, 3, 4].map(|seq_id| wal.append(&entry(seq_id)).expect("append"));
        fs.inject(fault());
        fs.inject(Fault::on(Op::Create, "WALs").fails(ErrorKind::StorageFull));
        wal.sync(batch[2], SyncLevel::Flush).expect_err("neither file");
        append_synced(&wal, 5).expect("space again");
        memory.crash(SurvivingData::Flushed);
        assert_eq!(seq_ids(&read_dir(&memory, WAL_DIR.as_ref())), [1, 5]);
    }
}

#[test]
fn an_entry_may_be_in_two_files_but_never_in_none() {
    let (memory, fs) = faulty();
    let wal = open(fs.clone());
    fs.inject(Fault::on(Op::Flush, "WALs").fails_after_effect(ErrorKind::Other));
    fs.inject(Fault::on(Op::Truncate, "WALs").fails(ErrorKind::Unsupported));
    append_synced(&wal, 1).expect("synced");
    assert_eq!(seq_ids(&read_dir(&memory, WAL_DIR.as_ref())), [1, 1]);
    fs.inject(Fault::on(Op::Append, "WALs").writes_half(ErrorKind::Other));
    append_synced(&wal, 2).expect("synced");
    assert_eq!(seq_ids(&read_dir(&memory, WAL_DIR.as_ref())), [1, 1, 2], "the torn one is cut");
}

#[test]
fn a_full_disk_fails_the_sync_and_is_waited_out() {
    for config in [WalConfig::default(), not_inline()] {
        let (memory, fs) = faulty();
        let heard = Arc::new(RecordingListener::default());
        let wal = open_with(fs.clone(), config, heard.clone());
        append_synced(&wal, 1).expect("synced");
        for op in [Op::Append, Op::Create] {
            fs.inject(Fault::on(op, "WALs").always().fails(ErrorKind::StorageFull));
        }
        let late = wal.append(&entry(2)).expect("append");
        for seq_id in 3..=5 {
            let error = append_synced(&wal, seq_id).expect_err("full");
            assert_eq!(error.kind(), evenkeel_common::ErrorKind::Io);
            assert!(error.message().contains("No space left on device"), "{error}");
        }
        assert_eq!(wal.write_failure().as_deref(), Some("no WAL file can be written"));
        fs.clear();
        append_synced(&wal, 6).expect("space again");
        assert_eq!(wal.write_failure(), None);
        wal.sync(late, SyncLevel::Flush).expect_err("it is not in the log");
        append_synced(&wal, 7).expect("synced");
        assert_eq!(seq_ids(&read_dir(&memory, WAL_DIR.as_ref())), [1, 6, 7]);
        assert!(heard.aborts.lock().is_empty());
    }
}

/// Writes that do not wait are not acknowledged while no file can be written, and stores with
/// earlier ones flush as soon as a file can be written again.
#[test]
fn a_refusing_log_refuses_unsynced_writes_too() {
    for heal_by_roll in [false, true] {
        let (memory, fs) = faulty();
        let heard = Arc::new(RecordingListener::default());
        let wal = open_with(fs.clone(), WalConfig::default(), heard.clone());
        append_synced(&wal, 1).expect("synced");
        for op in [Op::Append, Op::Create] {
            fs.inject(Fault::on(op, "WALs").always().fails(ErrorKind::Other));
        }
        let trusted = wal.append(&entry(2)).expect("append");
        wal.sync(trusted, SyncLevel::None).expect("nothing is known of the fault");
        append_synced(&wal, 3).expect_err("no file");
        let refused = wal.append(&entry(4)).expect("append");
        wal.sync(refused, SyncLevel::None).expect_err("it would be in no file");
        let (tell, told) = mpsc::channel();
        let refused = wal.append(&entry(5)).expect("append");
        wal.when_synced(refused, SyncLevel::None, move |result| tell.send(result).expect("the test waits"));
        told.recv().expect("told").expect_err("nor with a callback");
        fs.clear();
        heard.flushes.lock().clear();
        if heal_by_roll {
            wal.roll().expect("a new file");
        } else {
            append_synced(&wal, 6).expect("the disk works");
        }
        assert_eq!(*heard.flushes.lock(), [(REGION, vec![Bytes::from_static(b"f")])]);
        let taken = wal.append(&entry(7)).expect("append");
        wal.sync(taken, SyncLevel::None).expect("on trust again");
        wal.close().expect("closed");
        memory.crash(SurvivingData::Flushed);
        let kept = seq_ids(&read_dir(&memory, WAL_DIR.as_ref()));
        assert_eq!(kept, if heal_by_roll { vec![1, 7] } else { vec![1, 6, 7] });
    }
}

/// A roll that ends a period of rejections truncates the bytes of rejected writes, as a write does.
#[test]
fn a_roll_truncates_the_bytes_of_refused_writes() {
    let (memory, fs) = faulty();
    let wal = open(fs.clone());
    append_synced(&wal, 1).expect("synced");
    fs.inject(Fault::on(Op::Flush, "WALs").always().fails_after_effect(ErrorKind::Other));
    fs.inject(Fault::on(Op::Create, "WALs").always().fails(ErrorKind::Other));
    fs.inject(Fault::on(Op::Truncate, "WALs").always().fails(ErrorKind::Other));
    append_synced(&wal, 2).expect_err("neither file");
    assert_eq!(seq_ids(&read_dir(&memory, WAL_DIR.as_ref())), [1, 2], "it could not be cut");
    fs.clear();
    wal.roll().expect("a new file");
    memory.crash(SurvivingData::Flushed);
    assert_eq!(seq_ids(&read_dir(&memory, WAL_DIR.as_ref())), [1]);
}

/// The sync of a rolled file fails on the archiver's thread while a write to the next one fails: no
/// entry of either counts as synced.
#[test]
fn two_failing_files_leave_no_entry_synced() {
    let (_, fs) = faulty();
    let wal = open(fs.clone());
    let in_first = wal.append(&entry(1)).expect("append");
    wal.sync(in_first, SyncLevel::Flush).expect("flushed");
    let name = wal.current_path().file_name().expect("named").to_string_lossy().into_owned();
    fs.inject(Fault::on(Op::Sync, &name).always().fails(ErrorKind::Other));
    wal.roll().expect("a new file");
    let in_second = wal.append(&entry(2)).expect("append");
    wal.sync(in_second, SyncLevel::Flush).expect("flushed");
    fs.inject(Fault::on(Op::Append, "WALs").fails(ErrorKind::Other));
    let in_third = wal.append(&entry(3)).expect("append");
    wal.sync(in_third, SyncLevel::Sync).expect("in a third file");
    wal.sync(in_first, SyncLevel::Sync).expect_err("its file could not be synced");
    wal.sync(in_second, SyncLevel::Sync).expect_err("its file was left without a sync");
}

#[test]
fn a_full_disk_leaves_no_litter() {
    let (memory, fs) = faulty();
    let wal = open(fs.clone());
    fs.inject(Fault::on(Op::Append, "WALs").always().fails(ErrorKind::StorageFull));
    for seq_id in 1..=10 {
        append_synced(&wal, seq_id).expect_err("full");
    }
    assert_eq!(live_files(&memory).len(), 1);
}

#[test]
fn a_disk_with_errors_refuses_writes_until_it_has_none() {
    for op in [Op::Append, Op::Flush] {
        let (memory, fs) = faulty();
        let heard = Arc::new(RecordingListener::default());
        let wal = open_with(fs.clone(), WalConfig::default(), heard.clone());
        append_synced(&wal, 1).expect("synced");
        fs.inject(Fault::on(op, "WALs").times(6).fails(ErrorKind::Other));
        for seq_id in 2..=4 {
            let error = append_synced(&wal, seq_id).expect_err("old and new file failed");
            assert!(error.message().contains("the WAL cannot be written"), "{error}");
        }
        assert!((0..10).any(|_| append_synced(&wal, 5).is_ok()), "the faults have ended");
        wal.roll().expect("a new file");
        memory.crash(SurvivingData::Flushed);
        assert_eq!(seq_ids(&read_dir(&memory, WAL_DIR.as_ref())), [1, 5], "{op:?}");
        assert!(heard.aborts.lock().is_empty());
    }
}

#[test]
fn a_failed_truncation_is_repeated_once_the_disk_recovers() {
    let (memory, fs) = faulty();
    let wal = open(fs.clone());
    append_synced(&wal, 1).expect("synced");
    for op in [Op::Append, Op::Create, Op::Truncate] {
        let fault = Fault::on(op, "WALs").always();
        fs.inject(if op == Op::Append {
            fault.writes_half(ErrorKind::Other)
        } else {
            fault.fails(ErrorKind::Other)
        });
    }
    let batch = [2, 3, 4].map(|seq_id| wal.append(&entry(seq_id)).expect("append"));
    wal.sync(batch[2], SyncLevel::Flush).expect_err("neither file");
    append_synced(&wal, 5).expect_err("still");
    assert!(seq_ids(&read_file(&memory, &live_files(&memory)[0]).0).contains(&2), "half of it is there");
    fs.clear();
    append_synced(&wal, 6).expect("the disk works");
    memory.crash(SurvivingData::Flushed);
    assert_eq!(seq_ids(&read_dir(&memory, WAL_DIR.as_ref())), [1, 6]);
}

/// A file whose sync fails is not synced again: its entries go to another file, and the stores of
/// entries that were only flushed flush.
#[test]
fn no_file_is_synced_again_after_a_failed_sync() {
    for config in [WalConfig::default(), not_inline()] {
        let (memory, fs) = faulty();
        let wal = open_with(fs.clone(), WalConfig { hsync: true, ..config }, Arc::new(NoListener));
        append_synced(&wal, 1).expect("synced");
        let first = wal.current_path();
        let name = first.file_name().expect("named").to_string_lossy().into_owned();
        fs.inject(Fault::on(Op::Sync, &name).fails(ErrorKind::Other));
        append_synced(&wal, 2).expect("in the new file");
        // A second sync of the first file would succeed, although the kernel has dropped the data.
        let counted = Fault::on(Op::Sync, &name).fails(ErrorKind::Other);
        fs.inject(counted);
        append_synced(&wal, 3).expect("synced");
        assert_ne!(wal.current_path(), first);
        wal.close().expect("nobody met the second fault");
        memory.crash(SurvivingData::Synced);
        assert_eq!(seq_ids(&read_dir(&memory, WAL_DIR.as_ref())), [1, 2, 3]);
    }
}

#[test]
fn a_failed_write_leaves_no_entry_synced() {
    let (_, fs) = faulty();
    let heard = Arc::new(RecordingListener::default());
    let wal = open_with(fs.clone(), WalConfig::default(), heard.clone());
    let flushed = wal.append(&entry(1)).expect("append");
    wal.sync(flushed, SyncLevel::Flush).expect("flushed");
    fs.inject(Fault::on(Op::Append, "WALs").fails(ErrorKind::Other));
    let txid = wal.append(&entry(2)).expect("append");
    wal.sync(txid, SyncLevel::Sync).expect("in the new file");
    wal.sync(flushed, SyncLevel::Sync).expect_err("its file was left without a sync");
    assert_eq!(*heard.flushes.lock(), [(REGION, vec![Bytes::from_static(b"f")])]);
}

#[test]
fn a_wal_without_its_directory_aborts() {
    let memory = MemoryFileSystem::new();
    let heard = Arc::new(RecordingListener::default());
    let wal = open_with(memory.clone(), WalConfig::default(), heard.clone());
    append_synced(&wal, 1).expect("synced");
    memory.rename(WAL_DIR.as_ref(), "/WALs/h,1,2-splitting".as_ref()).expect("fence");
    wal.roll().expect_err("no directory");
    assert_eq!(heard.aborts.lock().len(), 1);
    append_synced(&wal, 2).expect_err("fenced");
    assert!(!memory.exists(WAL_DIR.as_ref()).expect("exists"), "it must not come back");
    assert_eq!(seq_ids(&read_dir(&memory, Path::new("/WALs/h,1,2-splitting"))), [1]);
}

#[test]
fn a_roll_that_fails_keeps_the_old_file() {
    let (memory, fs) = faulty();
    let wal = open(fs.clone());
    fs.inject(Fault::on(Op::Create, "WALs").fails(ErrorKind::StorageFull));
    wal.roll().expect_err("no space");
    append_synced(&wal, 1).expect("synced");
    wal.roll().expect("roll");
    append_synced(&wal, 2).expect("synced");
    assert_eq!(seq_ids(&read_dir(&memory, WAL_DIR.as_ref())).len(), 2);
}

#[test]
fn a_failed_disk_sync_is_never_acknowledged_as_one() {
    let (memory, fs) = faulty();
    let heard = Arc::new(RecordingListener::default());
    let wal = open_with(fs.clone(), WalConfig::default(), heard.clone());
    let flushed = wal.append(&entry(1)).expect("append");
    wal.sync(flushed, SyncLevel::Flush).expect("flushed");
    fs.inject(Fault::on(Op::Sync, "WALs").fails(ErrorKind::Other));
    let txid = wal.append(&entry(2)).expect("append");
    wal.sync(txid, SyncLevel::Sync).expect("in the new file");
    wal.sync(flushed, SyncLevel::Sync).expect_err("its file could not be synced");
    wal.sync(flushed, SyncLevel::Flush).expect("that held");
    assert_eq!(
        *heard.flushes.lock(),
        [(REGION, vec![Bytes::from_static(b"f")])],
        "so it had better be flushed"
    );
    memory.crash(SurvivingData::Synced);
    assert_eq!(seq_ids(&read_dir(&memory, WAL_DIR.as_ref())), [2]);
}

/// The kernel reports a failed write once, here before the file's sync, which would not report it.
#[test]
fn a_write_back_error_of_a_rolled_file_fails_its_sync() {
    let (_, fs) = faulty();
    let wal = open_with(fs.clone(), WalConfig::default(), Arc::new(NoListener));
    let flushed = wal.append(&entry(1)).expect("append");
    wal.sync(flushed, SyncLevel::Flush).expect("flushed");
    fs.inject(Fault::on(Op::WriteBack, "WALs").fails(ErrorKind::Other));
    wal.roll().expect("rolled");
    wal.sync(flushed, SyncLevel::Sync).expect_err("its file lost a write");
    append_synced(&wal, 2).expect("in the new file");
}

#[test]
fn a_failed_sync_of_a_rolled_file_requests_flushes() {
    let (_, fs) = faulty();
    let heard = Arc::new(RecordingListener::default());
    let wal = open_with(fs.clone(), WalConfig::default(), heard.clone());
    let acknowledged = wal.append(&entry(1)).expect("append");
    wal.sync(acknowledged, SyncLevel::Flush).expect("flushed");
    fs.inject(Fault::on(Op::Sync, "WALs").fails(ErrorKind::Other));
    wal.roll().expect("a new file");
    let deadline = Instant::now() + Duration::from_secs(30);
    while heard.flushes.lock().is_empty() {
        assert!(Instant::now() < deadline, "nobody was asked, though nothing else is to be done");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(*heard.flushes.lock(), [(REGION, vec![Bytes::from_static(b"f")])]);
    assert_eq!(wal.closed_paths().len(), 1, "needed until they have flushed");
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Opens the latch, however the test ends.
struct Opened(Latch);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.open();
    }
}

#[test]
fn a_hanging_sync_is_reported_while_it_hangs() {
    for inline_sync in [false, true] {
        let (_memory, fs) = faulty();
        let [slow_sync, roll_on_sync] = [10, 20].map(Duration::from_millis);
        let config = WalConfig { hsync: true, inline_sync, slow_sync, roll_on_sync, ..WalConfig::default() };
        let wal = open_with(fs.clone(), config, Arc::new(NoListener));
        let latch = Latch::new();
        fs.inject(Fault::on(Op::Sync, "WALs").waits_for(&latch));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| append_synced(&wal, 1));
            let _opened = Opened(latch.clone());
            latch.wait_for_arrival();
            until("nobody sees it", || wal.stats().stuck_syncs == 1);
            // After several checks of the watchdog.
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(
                (wal.stats().stuck_syncs, wal.stats().slow_syncs, writer.is_finished()),
                (1, 0, false)
            );
            latch.open();
            writer.join().expect("no panic").expect("synced after all");
        });
        until("the file stays", || wal.stats().rolls == 1);
        append_synced(&wal, 2).expect("synced");
        assert_eq!(wal.stats().stuck_syncs, 1, "once a sync");
    }
}

/// Opens the latch when the log is closed: no thread waits for the disk.
#[test]
fn a_sync_that_does_not_end_fails_the_log() {
    let (memory, fs) = faulty();
    let heard = Arc::new(RecordingListener::default());
    let config = WalConfig { hsync: true, sync_timeout: Duration::from_millis(100), ..not_inline() };
    let wal = open_with(fs.clone(), config, heard.clone());
    append_synced(&wal, 1).expect("synced");
    let latch = Latch::new();
    fs.inject(Fault::on(Op::Sync, "WALs").waits_for(&latch));
    let (tell, told) = mpsc::channel();
    let waits = |seq_id: u64| {
        let (txid, tell) = (wal.append(&entry(seq_id)).expect("append"), tell.clone());
        wal.when_synced(txid, SyncLevel::Flush, move |result| {
            tell.send((seq_id, result)).expect("the test waits")
        });
    };
    waits(2);
    assert_eq!(latch.wait_for_arrival(), "wal");
    waits(3);
    let opened = Opened(latch.clone());
    std::thread::scope(|scope| {
        let roll = scope.spawn(|| wal.roll());
        let opened_early = Opened(latch.clone());
        for seq_id in [2, 3] {
            let (of, result) = told.recv_timeout(Duration::from_secs(30)).expect("told");
            let error = result.expect_err("no sync");
            assert_eq!((of, error.kind()), (seq_id, evenkeel_common::ErrorKind::Timeout));
            assert!(error.message().contains("Failed to get sync result after 100 ms for txid=2"), "{error}");
        }
        roll.join().expect("no panic").expect_err("no roll");
        std::mem::forget(opened_early);
    });
    until("nobody stops the server", || !heard.aborts.lock().is_empty());
    assert!(heard.aborts.lock()[0].contains("WAL sync timeout"));
    wal.append(&entry(4)).expect_err("the log has failed");
    let closed = wal.close().expect_err("not written to its end");
    assert_eq!((closed.kind(), heard.aborts.lock().len()), (evenkeel_common::ErrorKind::Timeout, 1));
    drop((opened, wal));
    memory.crash(SurvivingData::Flushed);
    assert_eq!(seq_ids(&read_dir(&memory, WAL_DIR.as_ref()))[..2], [1, 2], "it may be there");
}

/// An entry whose writer only waited for a flush has no further guarantee.
#[test]
fn a_hanging_sync_does_not_fail_flushed_entries() {
    let (_memory, fs) = faulty();
    let heard = Arc::new(RecordingListener::default());
    let config = WalConfig { sync_timeout: Duration::from_millis(100), ..not_inline() };
    let wal = open_with(fs.clone(), config, heard.clone());
    let latch = Latch::new();
    fs.inject(Fault::on(Op::Sync, "WALs").waits_for(&latch));
    let flushed = wal.append(&entry(1)).expect("append");
    let synced = wal.append(&entry(2)).expect("append");
    let (tell, told) = mpsc::channel();
    wal.when_synced(synced, SyncLevel::Sync, move |result| tell.send(result).expect("the test waits"));
    wal.sync(flushed, SyncLevel::Flush).expect("flushed");
    let _opened = Opened(latch);
    told.recv_timeout(Duration::from_secs(30)).expect("told").expect_err("not synced");
    wal.sync(flushed, SyncLevel::Flush).expect("still flushed");
}
