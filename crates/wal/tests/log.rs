//! The write path: group commit, levels, rolls, archiving, crashes.

mod common;

use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use common::*;
use evenkeel_common::clock::ManualClock;
use evenkeel_fs::{Fault, FileSystem, Latch, MemoryFileSystem, Op, SurvivingData};
use evenkeel_wal::{
    Compression, NoListener, SyncLevel, WakeBatch, Wal, WalCompression, WalConfig, WalEnd, WalReader,
    wake_deferred,
};

#[test]
fn entries_come_back_in_order_and_whole() {
    let fs = MemoryFileSystem::new();
    let wal = open(fs.clone());
    let written: Vec<_> = (1..=50).map(entry).collect();
    let last = written.iter().map(|entry| wal.append(entry).expect("append")).last().expect("some");
    wal.sync(last, SyncLevel::Flush).expect("sync");
    assert_eq!(read_file(&fs, &wal.current_path()).0, written);
    wal.region_closed(&REGION);
    wal.close().expect("close");
    assert!(live_files(&fs).is_empty(), "archived");
    let archived = fs.list(OLD_DIR.as_ref()).expect("list");
    assert_eq!(archived[0].name(), "h%2C1%2C2.1000");
    let mut reader = WalReader::open(&fs, &archived[0].path).expect("open");
    while reader.next().expect("good").is_some() {}
    assert_eq!(reader.end(), Some(WalEnd::Closed));
}

#[test]
fn every_file_of_a_compressed_log_can_be_read_alone() {
    let (memory, fs) = faulty();
    let compression = WalCompression { values: Some(Compression::Zstd), ..WalCompression::default() };
    let config = WalConfig { compression: Some(compression), ..WalConfig::default() };
    let wal = open_with(fs.clone(), config, Arc::new(NoListener));
    for seq_id in 1..=4 {
        append_synced(&wal, seq_id).expect("synced");
    }
    wal.append(&entry(5)).expect("append");
    wal.roll().expect("rolled");
    append_synced(&wal, 6).expect("synced");
    fs.inject(Fault::on(Op::Append, "WALs").fails(ErrorKind::Other));
    append_synced(&wal, 7).expect("in a new file");
    let read = read_dir(&memory, WAL_DIR.as_ref());
    assert_eq!(seq_ids(&read), [1, 2, 3, 4, 5, 6, 7]);
    assert!(read == (1..=7).map(entry).collect::<Vec<_>>());
    assert_eq!(live_files(&memory).len(), 3);
}

#[test]
fn one_idle_sync_is_one_commit() {
    for config in [WalConfig::default(), not_inline()] {
        let wal = open_with(MemoryFileSystem::new(), config, Arc::new(NoListener));
        for seq_id in 1..=100 {
            append_synced(&wal, seq_id).expect("synced");
        }
        assert_eq!(wal.stats().commits, 100);
        assert_eq!(wal.stats().syncs, 0);
    }
}

#[test]
fn try_sync_commits_itself_but_never_waits() {
    let (memory, fs) = faulty();
    let latch = Latch::new();
    let wal = open_with(fs.clone(), not_inline(), Arc::new(NoListener));
    let first = wal.append(&entry(1)).expect("append");
    wal.try_sync(first, SyncLevel::Flush).expect("nobody commits").expect("synced");
    assert_eq!(seq_ids(&read_dir(&memory, WAL_DIR.as_ref())), [1]);
    fs.inject(Fault::on(Op::Append, "WALs").waits_for(&latch));
    let second = wal.append(&entry(2)).expect("append");
    wal.when_synced(second, SyncLevel::Flush, |_| ());
    latch.wait_for_arrival();
    let third = wal.append(&entry(3)).expect("append");
    assert!(wal.try_sync(third, SyncLevel::Flush).is_none(), "the WAL's thread does");
    wal.try_sync(first, SyncLevel::Flush).expect("known").expect("synced");
    latch.open();
    wal.sync(third, SyncLevel::Flush).expect("synced");
}

#[test]
fn waiters_of_one_batch_share_a_commit_in_order() {
    let (_, fs) = faulty();
    let latch = Latch::new();
    let wal = open_with(fs.clone(), not_inline(), Arc::new(NoListener));
    fs.inject(Fault::on(Op::Append, "WALs").waits_for(&latch));
    let (tell, told) = mpsc::channel();
    let wait_for = |seq_id, level| {
        let (txid, tell) = (wal.append(&entry(seq_id)).expect("append"), tell.clone());
        wal.when_synced(txid, level, move |result| {
            let _ = tell.send((seq_id, result.is_ok()));
        });
    };
    wait_for(1, SyncLevel::Flush);
    latch.wait_for_arrival();
    for seq_id in 2..=9 {
        wait_for(seq_id, if seq_id == 4 { SyncLevel::Sync } else { SyncLevel::Flush });
    }
    wait_for(10, SyncLevel::None);
    assert_eq!(told.recv(), Ok((10, true)), "at once");
    latch.open();
    let rest: Vec<_> = (1..=9).map(|_| told.recv().expect("told")).collect();
    let order = [1, 2, 3, 5, 6, 7, 8, 9, 4].map(|seq_id| (seq_id, true));
    assert_eq!(rest, order, "those who wait for the disk come after those who do not");
    assert_eq!((wal.stats().commits, wal.stats().syncs), (2, 1));
}

#[test]
fn acknowledged_entries_survive_the_crash_of_their_level() {
    for (level, keep) in
        [(SyncLevel::Flush, SurvivingData::Flushed), (SyncLevel::Sync, SurvivingData::Synced)]
    {
        for config in [WalConfig::default(), not_inline()] {
            let fs = MemoryFileSystem::new();
            let wal = open_with(fs.clone(), config, Arc::new(NoListener));
            for seq_id in 1..=10 {
                let txid = wal.append(&entry(seq_id)).expect("append");
                wal.sync(txid, level).expect("sync");
            }
            fs.crash(keep);
            assert_eq!(seq_ids(&read_dir(&fs, WAL_DIR.as_ref())), (1..=10).collect::<Vec<_>>(), "{level:?}");
        }
    }
}

#[test]
fn hsync_makes_a_sync_survive_a_machine_crash() {
    let fs = MemoryFileSystem::new();
    let wal = open_with(fs.clone(), WalConfig { hsync: true, ..WalConfig::default() }, Arc::new(NoListener));
    append_synced(&wal, 1).expect("synced");
    fs.crash(SurvivingData::Synced);
    assert_eq!(seq_ids(&read_dir(&fs, WAL_DIR.as_ref())), [1]);
}

#[test]
fn a_sync_across_a_roll_covers_the_old_file() {
    let fs = MemoryFileSystem::new();
    let wal = open(fs.clone());
    append_synced(&wal, 1).expect("flushed only");
    let unsynced = wal.append(&entry(2)).expect("append");
    wal.roll().expect("roll");
    let last = wal.append(&entry(3)).expect("append");
    wal.sync(unsynced, SyncLevel::Sync).expect("sync");
    wal.sync(last, SyncLevel::Sync).expect("sync");
    fs.crash(SurvivingData::Synced);
    assert_eq!(seq_ids(&read_dir(&fs, WAL_DIR.as_ref())), [1, 2, 3]);
}

#[test]
fn entries_without_a_waiter_are_written() {
    let fs = MemoryFileSystem::new();
    let wal = open(fs.clone());
    let txid = wal.append(&entry(1)).expect("append");
    wal.sync(txid, SyncLevel::None).expect("nothing to wait for");
    wal.append(&entry(2)).expect("append");
    for _ in 0..500 {
        if read_dir(&fs, WAL_DIR.as_ref()).len() == 2 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("not written");
}

#[test]
fn appends_wait_for_room_in_the_queue() {
    let (memory, fs) = faulty();
    let latch = Latch::new();
    let config = WalConfig { queue_bytes_max: 1000, ..not_inline() };
    let wal = open_with(fs.clone(), config, Arc::new(NoListener));
    fs.inject(Fault::on(Op::Append, "WALs").waits_for(&latch));
    let first = wal.append(&entry(1)).expect("append");
    let entry_bytes = wal.stats().bytes as usize;
    wal.when_synced(first, SyncLevel::Flush, |_| ());
    latch.wait_for_arrival();
    let appended = Arc::new(AtomicU64::new(1));
    let appender = {
        let (wal, appended) = (Arc::clone(&wal), Arc::clone(&appended));
        std::thread::spawn(move || {
            for seq_id in 2..=100 {
                wal.append(&entry(seq_id)).expect("append");
                appended.store(seq_id, Ordering::SeqCst);
            }
        })
    };
    while wal.stats().full_queue_waits == 0 {
        std::thread::yield_now();
    }
    assert!(appended.load(Ordering::SeqCst) < 100);
    let peak = wal.stats().queue_bytes_peak;
    assert!(
        peak <= entry_bytes + 1000,
        "{peak} bytes, for one entry of {entry_bytes} and a full queue of 1000"
    );
    latch.open();
    appender.join().expect("no panic");
    append_synced(&wal, 101).expect("synced");
    assert_eq!(seq_ids(&read_dir(&memory, WAL_DIR.as_ref())), (1..=101).collect::<Vec<_>>());
}

#[test]
fn an_entry_above_the_limit_is_refused_and_one_above_the_queue_is_not() {
    let fs = MemoryFileSystem::new();
    let config = WalConfig { queue_bytes_max: 100, entry_bytes_max: 5000, ..WalConfig::default() };
    let wal = open_with(fs.clone(), config, Arc::new(NoListener));
    let error = wal.append(&entry_of(REGION, 1, 5000)).expect_err("too long");
    assert!(error.is_do_not_retry());
    let txid = wal.append(&entry_of(REGION, 2, 4000)).expect("longer than the queue");
    wal.sync(txid, SyncLevel::Flush).expect("sync");
    assert_eq!(seq_ids(&read_dir(&fs, WAL_DIR.as_ref())), [2]);
    wal.roll().expect("the batch before it is done with");
    let stats = wal.stats();
    assert!(
        stats.queue_bytes_peak >= 4000 && stats.queue_bytes <= 2 * 100,
        "its buffer is not kept: {stats:?}"
    );
}

#[test]
fn concurrent_appends_and_rolls_lose_nothing() {
    let fs = MemoryFileSystem::new();
    let config = WalConfig { roll_bytes: 4000, ..WalConfig::default() };
    let wal = open_with(fs.clone(), config, Arc::new(NoListener));
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let wal = &wal;
            scope.spawn(move || {
                let region = Bytes::from(vec![b'a' + thread; 32]);
                for seq_id in 1..=300 {
                    let txid = wal.append(&entry_of(region.clone(), seq_id, 30)).expect("append");
                    if seq_id % 3 != 0 {
                        wal.sync(txid, SyncLevel::Flush).expect("sync");
                    }
                    if seq_id % 50 == 0 {
                        wal.roll().expect("roll");
                    }
                }
            });
        }
    });
    append_synced(&wal, 1).expect("the last");
    wal.close().expect("close");
    assert!(wal.stats().rolls >= 24);
    let entries = read_dir(&fs, WAL_DIR.as_ref());
    for thread in 0..4u8 {
        let of_region = |entry: &&evenkeel_wal::WalEntry| entry.region[0] == b'a' + thread;
        let found: Vec<_> = entries.iter().filter(of_region).map(|entry| entry.seq_id).collect();
        assert_eq!(found, (1..=300).collect::<Vec<_>>());
    }
}

#[test]
fn files_are_archived_only_once_fully_flushed() {
    let fs = MemoryFileSystem::new();
    let wal = open(fs.clone());
    let family = [Bytes::from_static(b"f")];
    let other = Bytes::from_static(b"other region");
    append_synced(&wal, 1).expect("synced");
    let txid = wal.append(&entry_of(other.clone(), 1, 5)).expect("append");
    wal.sync(txid, SyncLevel::Flush).expect("sync");
    wal.roll().expect("roll");
    assert_eq!(wal.closed_paths().len(), 1);

    assert_eq!(wal.lowest_unflushed(&REGION, Some(b"f")), Some(1));
    wal.start_flush(&REGION, &family);
    append_synced(&wal, 2).expect("during the flush");
    wal.abort_flush(&REGION);
    wal.start_flush(&REGION, &family);
    wal.complete_flush(&REGION, &family, 2);
    assert_eq!(wal.closed_paths().len(), 1, "the other region holds it");
    wal.region_closed(&other);
    wal.wait_for_archiver();
    assert!(wal.closed_paths().is_empty());
    assert_eq!(seq_ids(&read_dir(&fs, OLD_DIR.as_ref())), [1, 1]);
    assert_eq!(seq_ids(&read_dir(&fs, WAL_DIR.as_ref())), [2]);
}

#[test]
fn a_close_with_unflushed_edits_leaves_the_file_for_the_master() {
    let fs = MemoryFileSystem::new();
    let wal = open(fs.clone());
    append_synced(&wal, 1).expect("synced");
    wal.close().expect("close");
    wal.close().expect("again");
    assert_eq!(seq_ids(&read_dir(&fs, WAL_DIR.as_ref())), [1]);
    wal.append(&entry(2)).expect_err("closed");
    wal.roll().expect_err("closed");
}

#[test]
fn too_many_files_ask_for_flushes_of_the_oldest() {
    let heard = Arc::new(RecordingListener::default());
    let config = WalConfig { logs_max: 2, ..WalConfig::default() };
    let wal = open_with(MemoryFileSystem::new(), config, heard.clone());
    append_synced(&wal, 1).expect("synced");
    wal.roll().expect("roll");
    assert!(heard.flushes.lock().is_empty());
    let txid = wal.append(&entry_of(Bytes::from_static(b"other"), 1, 5)).expect("append");
    wal.sync(txid, SyncLevel::Flush).expect("sync");
    wal.roll().expect("roll");
    assert_eq!(*heard.flushes.lock(), [(REGION, vec![Bytes::from_static(b"f")])]);
}

#[test]
fn files_roll_by_length_and_by_age() {
    let fs = MemoryFileSystem::new();
    fs.mkdirs(WAL_DIR.as_ref()).expect("mkdirs");
    let clock = ManualClock::at(1000);
    let config = WalConfig { roll_bytes: 1000, roll_period_ms: 60_000, ..WalConfig::default() };
    let wal = open_in(
        Arc::new(fs.clone()),
        WAL_DIR.as_ref(),
        OLD_DIR.as_ref(),
        config,
        Arc::new(NoListener),
        Arc::clone(&clock),
    );
    let rolls_to = |rolls: u64| {
        for _ in 0..500 {
            if wal.stats().rolls == rolls {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{:?}", wal.stats());
    };
    let txid = wal.append(&entry_of(REGION, 1, 2000)).expect("append");
    wal.sync(txid, SyncLevel::Flush).expect("sync");
    rolls_to(1);
    clock.advance_ms(61_000);
    std::thread::sleep(Duration::from_millis(1200));
    rolls_to(1); // nothing in it
    append_synced(&wal, 2).expect("synced");
    clock.advance_ms(61_000);
    rolls_to(2);
    assert_eq!(live_files(&fs).len(), 3);
}

/// Waits until the WAL has rolled exactly `rolls` times.
fn wait_for_rolls(wal: &Wal, rolls: u64) {
    for _ in 0..500 {
        if wal.stats().rolls >= rolls {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(wal.stats().rolls, rolls, "{:?}", wal.stats());
}

#[test]
fn one_very_slow_sync_rolls_without_loss() {
    for (op, hsync) in [(Op::Append, false), (Op::Flush, false), (Op::Sync, true)] {
        for config in [WalConfig::default(), not_inline()] {
            let (memory, fs) = faulty();
            let (slow_sync, roll_on_sync) = (Duration::from_millis(5), Duration::from_millis(50));
            let config = WalConfig { slow_sync, roll_on_sync, hsync, ..config };
            let wal = open_with(fs.clone(), config, Arc::new(NoListener));
            append_synced(&wal, 1).expect("synced");
            let slow = wal.current_path();
            fs.inject(Fault::on(op, "WALs").delays(Duration::from_millis(60)));
            append_synced(&wal, 2).expect("slow, but sound");
            wait_for_rolls(&wal, 1);
            append_synced(&wal, 3).expect("synced");
            assert_ne!(wal.current_path(), slow);
            assert!(wal.stats().slow_syncs >= 1 && wal.stats().failures == 0);
            memory.crash(if hsync { SurvivingData::Synced } else { SurvivingData::Flushed });
            assert_eq!(seq_ids(&read_dir(&memory, WAL_DIR.as_ref())), [1, 2, 3], "{op:?}");
        }
    }
}

#[test]
fn some_slow_syncs_roll_only_when_there_are_many() {
    let (_, fs) = faulty();
    let config = WalConfig {
        slow_sync: Duration::from_millis(5),
        slow_sync_roll_threshold: 3,
        ..WalConfig::default()
    };
    let wal = open_with(fs.clone(), config, Arc::new(NoListener));
    for (seq_id, rolls) in [(1, 0), (2, 0), (3, 1), (4, 1), (5, 1), (6, 2)] {
        fs.inject(Fault::on(Op::Flush, "WALs").delays(Duration::from_millis(10)));
        append_synced(&wal, seq_id).expect("synced");
        wait_for_rolls(&wal, rolls);
    }
    assert_eq!(wal.stats().slow_syncs, 6);
}

#[test]
fn writers_do_not_wait_for_a_rolled_files_sync() {
    let (_, fs) = faulty();
    let wal = open_with(fs.clone(), WalConfig { hsync: true, ..WalConfig::default() }, Arc::new(NoListener));
    append_synced(&wal, 1).expect("synced");
    let latch = Latch::new();
    fs.inject(Fault::on(Op::Sync, "WALs").waits_for(&latch));
    wal.roll().expect("rolled");
    latch.wait_for_arrival();
    append_synced(&wal, 2).expect("though the old file is being closed");
    latch.open();
    wal.close().expect("closed");
}

#[test]
fn rolls_do_not_run_ahead_of_the_files_that_are_being_closed() {
    const ROLLERS: u64 = 4;
    const ROLLS: u64 = 25;
    // Each file that waits to be closed is open: a few, and one for each thread that requests a
    // roll.
    const OPEN_MAX: u64 = 8 + ROLLERS;
    let (_, fs) = faulty();
    let wal = open_with(fs.clone(), WalConfig::default(), Arc::new(NoListener));
    let latch = Latch::new();
    fs.inject(Fault::on(Op::Sync, "WALs").always().waits_for(&latch));
    std::thread::scope(|scope| {
        for _ in 0..ROLLERS {
            scope.spawn(|| (0..ROLLS).for_each(|_| wal.roll().expect("rolled")));
        }
        latch.wait_for_arrival();
        let (mut rolls, mut looks) = (0, 0);
        while looks < 20 {
            std::thread::sleep(Duration::from_millis(10));
            let now = wal.stats().rolls;
            (rolls, looks) = if now == rolls { (rolls, looks + 1) } else { (now, 0) };
        }
        latch.open();
        assert!(rolls <= OPEN_MAX, "{rolls} files are open");
        // Threads that wait for a roll do not delay the log.
        append_synced(&wal, 1).expect("synced");
    });
    wal.close().expect("closed");
}

#[test]
fn a_panicking_callback_does_not_stop_the_log() {
    let wal = open_with(MemoryFileSystem::new(), not_inline(), Arc::new(NoListener));
    let txid = wal.append(&entry(1)).expect("append");
    wal.when_synced(txid, SyncLevel::Flush, |_| panic!("on purpose"));
    append_synced(&wal, 2).expect("synced");
}

#[test]
fn a_missing_directory_is_not_created() {
    let fs = MemoryFileSystem::new();
    let options = evenkeel_wal::WalOptions {
        fs: Arc::new(fs.clone()),
        wal_dir: WAL_DIR.into(),
        old_dir: OLD_DIR.into(),
        prefix: "p".into(),
        suffix: String::new(),
        config: WalConfig::default(),
        clock: ManualClock::at(0),
        listener: Arc::new(NoListener),
    };
    let error = Wal::open(options).expect_err("no directory");
    assert_eq!(error.kind(), evenkeel_common::ErrorKind::FileNotFound);
    assert!(!fs.exists(WAL_DIR.as_ref()).expect("exists"));
}

/// Batched writes wake the log once, at the end of the batch; earlier if their thread is about to
/// wait, or if the batch takes long.
///
/// The log also checks twice a second, and a busy machine delays both threads: so each claim must
/// hold in a quarter of the rounds, while a log that is not woken would meet it in a twelfth.
#[test]
fn batched_writes_wake_the_log_once() {
    let memory = MemoryFileSystem::new();
    let wal = open_with(memory, not_inline(), Arc::new(NoListener));
    let seq_ids = std::cell::Cell::new(0);
    let write = || {
        seq_ids.set(seq_ids.get() + 1);
        let (tell, told) = mpsc::channel();
        let txid = wal.append(&entry(seq_ids.get())).expect("append");
        wal.when_synced(txid, SyncLevel::Flush, move |result| {
            let _ = tell.send(result);
        });
        told
    };
    let a_while = Duration::from_millis(20);
    let soon = |told: &mpsc::Receiver<evenkeel_common::Result<()>>| {
        told.recv_timeout(Duration::from_millis(40)).is_ok_and(|result| result.is_ok())
    };
    let claim = |claim: &str, round: &dyn Fn() -> bool| {
        let held = (0..40).filter(|_| {
            // The log's thread sleeps again.
            std::thread::sleep(a_while);
            round()
        });
        assert_eq!(held.take(10).count(), 10, "{claim}");
    };
    claim("heard of at the end and not before", &|| {
        let batch = WakeBatch::begin();
        let told = write();
        let early = told.recv_timeout(a_while);
        drop(batch);
        early.is_err() && soon(&told)
    });
    claim("woken before the end", &|| {
        let _batch = WakeBatch::begin();
        let told = write();
        wake_deferred();
        soon(&told)
    });
    claim("it took long enough", &|| {
        let _batch = WakeBatch::begin();
        let told = write();
        std::thread::sleep(a_while);
        write();
        soon(&told)
    });
    claim("unwound", &|| {
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _batch = WakeBatch::begin();
            let told = write();
            std::panic::resume_unwind(Box::new(told));
        }));
        let told = unwound.expect_err("unwound").downcast::<mpsc::Receiver<evenkeel_common::Result<()>>>();
        soon(&told.expect("its own"))
    });
}

/// A log that rolls after a few entries of some hundred bytes.
fn short_files(hsync: bool) -> WalConfig {
    WalConfig { roll_bytes: 8000, hsync, ..WalConfig::default() }
}

/// Appends entries after `seq_id` until the file is longer than `bytes`. Returns the last sequence
/// id.
fn fill(wal: &Wal, fs: &dyn FileSystem, mut seq_id: u64, bytes: u64) -> u64 {
    let path = wal.current_path();
    while fs.status(&path).expect("there").len <= bytes {
        seq_id += 1;
        append_synced(wal, seq_id).expect("synced");
    }
    seq_id
}

#[test]
fn the_next_file_is_created_before_the_roll() {
    for hsync in [false, true] {
        let (memory, fs) = faulty();
        let heard = Arc::new(RecordingListener::default());
        let wal = open_with(fs.clone(), short_files(hsync), heard.clone());
        let latch = Latch::new();
        fs.inject(Fault::on(Op::Create, "WALs").waits_for(&latch));
        let mut seq_id = fill(&wal, &memory, 0, 7000);
        assert_eq!(latch.wait_for_arrival(), "wal-archiver");
        latch.open();
        wal.wait_for_archiver();
        let files = live_files(&memory);
        assert_eq!((files.len(), wal.current_path()), (2, files[0].clone()));
        fs.inject(Fault::on(Op::Create, "WALs").always());
        seq_id = fill(&wal, &memory, seq_id, 8000);
        wait_for_rolls(&wal, 1);
        append_synced(&wal, seq_id + 1).expect("synced");
        assert_eq!((wal.current_path(), wal.stats().failures), (files[1].clone(), 0));
        assert_eq!(seq_ids(&read_dir(&memory, WAL_DIR.as_ref())), (1..=seq_id + 1).collect::<Vec<_>>());
        assert!(heard.aborts.lock().is_empty());
    }
}

#[test]
fn a_next_file_left_by_a_crash_is_empty() {
    let keeps = [
        (false, SurvivingData::Flushed, 2),
        (true, SurvivingData::Synced, 2),
        (false, SurvivingData::Synced, 0),
    ];
    for (hsync, keep, files) in keeps {
        let memory = MemoryFileSystem::new();
        let wal = open_with(memory.clone(), short_files(hsync), Arc::new(NoListener));
        let seq_id = fill(&wal, &memory, 0, 7000);
        wal.wait_for_archiver();
        memory.crash(keep);
        assert_eq!(live_files(&memory).len(), files, "with hsync its name is on the disk");
        let kept: Vec<_> = (1..=seq_id).filter(|_| files > 0).collect();
        assert_eq!(seq_ids(&read_dir(&memory, WAL_DIR.as_ref())), kept);
    }
}

/// The archiver waits for the disk when the roll is due: the committing thread creates a file, and
/// the late one is deleted.
#[test]
fn a_next_file_created_too_late_is_deleted() {
    for closes in [false, true] {
        let (memory, fs) = faulty();
        let wal = open_with(fs.clone(), short_files(false), Arc::new(NoListener));
        let latch = Latch::new();
        fs.inject(Fault::on(Op::Create, "WALs").waits_for(&latch));
        let mut seq_id = fill(&wal, &memory, 0, 7000);
        latch.wait_for_arrival();
        let rolls = u64::from(!closes);
        if !closes {
            seq_id = fill(&wal, &memory, seq_id, 8000);
            wait_for_rolls(&wal, 1);
        }
        let opens = std::thread::spawn({
            let latch = latch.clone();
            move || latch.open()
        });
        if closes {
            wal.close().expect("closed");
        }
        opens.join().expect("opened");
        wal.wait_for_archiver();
        assert_eq!(live_files(&memory).len() as u64, 1 + rolls);
        assert_eq!(seq_ids(&read_dir(&memory, WAL_DIR.as_ref())), (1..=seq_id).collect::<Vec<_>>());
    }
}

/// As after a master has fenced the server: entries in a file that was moved would not be replayed.
#[test]
fn a_next_file_in_a_renamed_directory_is_not_used() {
    let (memory, fs) = faulty();
    let heard = Arc::new(RecordingListener::default());
    let wal = open_with(fs.clone(), short_files(false), heard.clone());
    let first = fill(&wal, &memory, 0, 7000) + 1;
    wal.wait_for_archiver();
    memory.rename(WAL_DIR.as_ref(), "/WALs/h,1,2-splitting".as_ref()).expect("renamed");
    let fails = |seq_id: &u64| {
        // The log's thread rolls asynchronously.
        std::thread::sleep(Duration::from_millis(1));
        append_synced(&wal, *seq_id).is_err()
    };
    let failed = (first..10_000).find(fails);
    assert!(failed.is_some() && wal.stats().rolls == 0, "{:?}", wal.stats());
    assert_eq!(heard.aborts.lock().len(), 1);
}
