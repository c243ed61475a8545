//! Requested flushes and compactions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_common::ColumnFamilyDescriptor;
use evenkeel_common::priority::{BACKGROUND_NICE, REDUCED_NICE, nice_above_process};
use evenkeel_fs::{Fault, FaultyFileSystem, Latch, MemoryFileSystem, Op};
use evenkeel_region::region::Region;
use evenkeel_region::store::ThroughputController;
use evenkeel_wal::WalConfig;

use crate::RegionServerConfig;
use crate::background::{Background, BackgroundConfig, CompactionState};
use crate::testing::*;

/// Creates queues without threads.
fn idle() -> Arc<Background> {
    Background::start(&BackgroundConfig {
        flushers: 0,
        small_compactors: 0,
        large_compactors: 0,
        in_memory_flushers: 0,
        ..BackgroundConfig::default()
    })
    .expect("no threads")
}

#[test]
fn a_region_is_queued_once_per_kind_of_work() {
    let (_server, region) = TestServer::with_region();
    let background = idle();
    assert!(background.request_flush(&region) && !background.request_flush(&region));
    assert!(
        background.request_compaction(&region, None, false)
            && !background.request_compaction(&region, None, false)
    );
    assert!(background.request_compaction(&region, Some(b"f"), false));
    assert_eq!(background.queued(), (1, 2));
}

#[test]
fn the_compaction_state_reflects_the_queue() {
    let (_server, region) = TestServer::with_region();
    let background = idle();
    let state = || background.compaction_state(region.info().encoded_name());
    assert_eq!(state(), CompactionState::None);
    background.request_compaction(&region, None, false);
    background.request_compaction(&region, None, false);
    assert_eq!(state(), CompactionState::Minor);
    background.request_compaction(&region, None, true);
    assert_eq!(state(), CompactionState::MajorAndMinor);
    background.clear_compactions();
    assert_eq!((state(), background.queued()), (CompactionState::None, (0, 0)));
    background.request_compaction(&region, None, true);
    assert_eq!(state(), CompactionState::Major);
}

#[test]
fn disabled_compactions_are_not_queued() {
    let (_server, region) = TestServer::with_region();
    let background = idle();
    assert!(background.switch_compactions(false));
    assert!(!background.request_compaction(&region, None, true));
    assert_eq!(background.compaction_state(region.info().encoded_name()), CompactionState::None);
    assert!(!background.switch_compactions(true));
    assert!(background.request_compaction(&region, None, true));
}

#[test]
fn a_table_can_disable_its_compactions() {
    let server = TestServer::new(RegionServerConfig::default());
    let region = server.open(b"", b"", table().with("COMPACTION_ENABLED", "false"));
    let background = idle();
    assert!(!background.request_compaction(&region, None, true));
    assert_eq!(background.queued(), (0, 0));
}

#[test]
fn requested_flushes_and_compactions_run() {
    let (server, region) = TestServer::with_region();
    let background = server.server.background();
    for value in [b"1", b"2"] {
        put(&region, &[cell(b"a", b"q", value)]);
        assert!(background.flush(&region).expect("flushed").flushed);
    }
    assert!(!background.flush(&region).expect("nothing to do").flushed);
    assert_eq!(region.load().store_files, 2);
    background.request_compaction(&region, None, true);
    let deadline = Instant::now() + Duration::from_secs(30);
    while background.compaction_state(region.info().encoded_name()) != CompactionState::None {
        assert!(Instant::now() < deadline, "the compaction does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(region.load().store_files, 1);
    put(&region, &[cell(b"b", b"q", b"3")]);
    background.request_flush(&region);
    while region.load().store_files != 2 {
        assert!(Instant::now() < deadline, "the flush does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Two threads compact. One is busy for long with a region for which another compaction is
/// requested: the other thread continues with other regions.
#[test]
fn compactions_of_one_region_do_not_hold_up_those_of_others() {
    let fs = FaultyFileSystem::new(MemoryFileSystem::new());
    let server = TestServer::over(Arc::new(fs.clone()), RegionServerConfig::default(), WalConfig::default());
    let regions = [server.open(b"", b"m", table()), server.open(b"m", b"", table())];
    for (region, row) in regions.iter().zip([b"a", b"n"]) {
        for value in [b"1", b"2"] {
            put(region, &[cell(row, b"q", value)]);
            region.flush().expect("flushed");
        }
    }
    let background =
        Background::start(&BackgroundConfig { small_compactors: 2, ..BackgroundConfig::default() })
            .expect("threads");
    let deadline = Instant::now() + Duration::from_secs(30);
    let until = |holds: &dyn Fn() -> bool| {
        while !holds() {
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let [long, other] = &regions;
    let state = || background.compaction_state(long.info().encoded_name());
    let latch = Latch::new();
    fs.inject(Fault::on(Op::Create, &format!("{}/.tmp/", long.info().encoded_name())).waits_for(&latch));
    background.request_compaction(long, None, true);
    latch.wait_for_arrival();
    for _ in 0..2 {
        background.request_compaction(long, Some(b"f"), false);
        background.request_compaction(other, None, true);
        until(&|| background.compaction_state(other.info().encoded_name()) == CompactionState::None);
    }
    assert_eq!((long.load().store_files, other.load().store_files), (2, 1));
    assert_eq!((state(), background.queued()), (CompactionState::MajorAndMinor, (0, 1)), "once deferred");
    background.clear_compactions();
    assert_eq!((state(), background.queued()), (CompactionState::Major, (0, 0)));
    background.request_compaction(long, Some(b"f"), false);
    latch.open();
    until(&|| state() == CompactionState::None);
    assert_eq!(long.load().store_files, 1);
    background.stop();
}

#[test]
fn in_memory_segments_are_flattened_in_the_background() {
    let server = TestServer::new(RegionServerConfig::default());
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal").with("IN_MEMORY_COMPACTION", "BASIC");
    let region = server.open(b"", b"", table().with_family(family));
    for n in 0..3000_u32 {
        put(&region, &[cell(format!("{n:05}").as_bytes(), b"q", &[7; 1000])]);
    }
    // A skip list node has a header of 16 bytes and at least one link of 8 bytes. A flat record and
    // its entry have 16 bytes together.
    let is_flat = || {
        let size = region.memstore_size();
        size.cells == 3000 && size.heap_bytes - size.data_bytes < 24 * size.cells
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_flat() {
        assert!(Instant::now() < deadline, "{:?}", region.memstore_size());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(region.load().store_files, 0);
}

/// Returns the nice values of this process's threads with a name.
fn nice_values(name: &str) -> Vec<i32> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("linux").flatten();
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    let of_name = stats.filter(|stat| stat.contains(&format!("({name})")));
    let nice = |stat: String| stat.rsplit(") ").next()?.split(' ').nth(16)?.parse().ok();
    of_name.filter_map(nice).collect()
}

/// Waits until a thread of this name has this value. A list of threads may miss one while others
/// start and end.
fn wait_for_nice(name: &str, nice: i32) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !nice_values(name).contains(&nice) {
        assert!(Instant::now() < deadline, "{name}: {:?}", nice_values(name));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Creates a server over a file system with faults, and a region whose MemStore is flushed at 2 MiB
/// and whose writers are held from 4 MiB on.
fn with_small_region() -> (FaultyFileSystem, TestServer, Arc<Region>) {
    let fs = FaultyFileSystem::new(MemoryFileSystem::new());
    let server = TestServer::over(Arc::new(fs.clone()), RegionServerConfig::default(), WalConfig::default());
    let region = server.open(b"", b"", table().with("MEMSTORE_FLUSHSIZE", "2097152"));
    (fs, server, region)
}

/// A latch that opens when its test fails, because dropping the server waits for its threads.
struct OpenAtLast(Latch);

impl Drop for OpenAtLast {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Blocks a flush where it creates its file, and where it writes some blocks.
fn gates_of_a_flush(fs: &FaultyFileSystem) -> [OpenAtLast; 2] {
    let latches = [Latch::new(), Latch::new()];
    fs.inject(Fault::on(Op::Create, "/.tmp/").waits_for(&latches[0]));
    fs.inject(Fault::on(Op::Append, "/.tmp/").after(8).waits_for(&latches[1]));
    latches.map(OpenAtLast)
}

fn put_kib(region: &Arc<Region>, kib: u32) {
    let cells: Vec<_> = (0..kib).map(|n| cell(format!("{n:05}").as_bytes(), b"q", &[7; 1024])).collect();
    cells.iter().for_each(|cell| put(region, std::slice::from_ref(cell)));
}

/// Waits for all flushes, also for one that was requested while the first had hardly begun.
fn wait_for_flushes(server: &TestServer) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while server.server.background().flushers().1 > 0 {
        assert!(Instant::now() < deadline, "a flush does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_running_flush_stops_yielding_when_memory_is_short() {
    let (fs, server, region) = with_small_region();
    let [made, written] = gates_of_a_flush(&fs);
    put_kib(&region, 2100);
    assert_eq!(made.0.wait_for_arrival(), "flush-lowprio");
    wait_for_nice("flush-lowprio", nice_above_process(BACKGROUND_NICE));
    server.server.memory.note(server.server.config().global_memstore_low_bytes);
    made.0.open();
    assert!(["flush-0", "flush-1"].contains(&&*written.0.wait_for_arrival()));
    written.0.open();
    wait_for_flushes(&server);
    server.server.run_chore();
    let [made, written] = gates_of_a_flush(&fs);
    put_kib(&region, 2100);
    made.0.open();
    assert_eq!(written.0.wait_for_arrival(), "flush-lowprio", "there is room again");
    written.0.open();
}

#[test]
fn flushes_stop_yielding_when_writers_to_a_region_are_held() {
    let (fs, server, region) = with_small_region();
    let [made, written] = gates_of_a_flush(&fs);
    put_kib(&region, 4500);
    assert_eq!(made.0.wait_for_arrival(), "flush-lowprio", "nobody has looked");
    server.server.run_chore();
    made.0.open();
    assert!(["flush-0", "flush-1"].contains(&&*written.0.wait_for_arrival()));
    written.0.open();
}

#[test]
fn flushes_stop_yielding_when_a_close_waits() {
    let (fs, _server, region) = with_small_region();
    let [made, written] = gates_of_a_flush(&fs);
    put_kib(&region, 2100);
    assert_eq!(made.0.wait_for_arrival(), "flush-lowprio");
    std::thread::scope(|scope| {
        let close = scope.spawn(|| region.close(false));
        let deadline = Instant::now() + Duration::from_secs(30);
        while !region.is_flush_wanted() {
            assert!(Instant::now() < deadline, "nobody waits");
            std::thread::sleep(Duration::from_millis(1));
        }
        made.0.open();
        assert!(["flush-0", "flush-1"].contains(&&*written.0.wait_for_arrival()));
        written.0.open();
        close.join().expect("no panic").expect("closed");
    });
}

#[test]
fn small_flushes_need_no_thread() {
    let (fs, server, region) = with_small_region();
    let [made, _] = gates_of_a_flush(&fs);
    put_kib(&region, 100);
    server.server.background().request_flush(&region);
    assert!(["flush-0", "flush-1"].contains(&&*made.0.wait_for_arrival()));
    made.0.open();
}

/// Makes two flushes of 1.5 MiB, and a compaction of them that is blocked where it creates its file
/// and where it writes some blocks.
fn compaction_of_two_files(
    server: &TestServer,
    region: &Arc<Region>,
    fs: &FaultyFileSystem,
) -> [OpenAtLast; 2] {
    for _ in 0..2 {
        put_kib(region, 1500);
        server.server.background().flush(region).expect("flushed");
    }
    let latches = gates_of_a_flush(fs);
    assert!(server.server.background().request_compaction(region, None, true));
    latches
}

#[test]
fn a_running_compaction_yields_less_as_files_accumulate() {
    let (fs, server, region) = with_small_region();
    let [made, written] = compaction_of_two_files(&server, &region, &fs);
    assert_eq!(made.0.wait_for_arrival(), "compact-lowprio");
    wait_for_nice("compact-lowprio", nice_above_process(BACKGROUND_NICE));
    server.server.background().set_compaction_pressure(0.25);
    made.0.open();
    assert_eq!(written.0.wait_for_arrival(), "compact-small-0");
    written.0.open();
}

#[test]
fn a_compaction_without_pressure_yields_to_its_end() {
    let (fs, server, region) = with_small_region();
    let [made, written] = compaction_of_two_files(&server, &region, &fs);
    server.server.background().set_compaction_pressure(0.24);
    made.0.open();
    assert_eq!(written.0.wait_for_arrival(), "compact-lowprio");
    written.0.open();
}

/// Returns the name of the thread that compacts a store of `files` files, after a run of the chore.
fn compacts(files: u8) -> String {
    let (fs, server, region) = with_small_region();
    let background = server.server.background();
    background.switch_compactions(false);
    for n in 0..files - 2 {
        put(&region, &[cell(&[n], b"q", b"v")]);
        background.flush(&region).expect("flushed");
    }
    for _ in 0..2 {
        put_kib(&region, 1500);
        background.flush(&region).expect("flushed");
    }
    background.switch_compactions(true);
    server.server.run_chore();
    let [made, _] = gates_of_a_flush(&fs);
    background.request_compaction(&region, None, true);
    made.0.wait_for_arrival().to_string()
}

#[test]
fn a_compaction_yields_less_from_a_quarter_of_blocking_files() {
    assert_eq!([compacts(6), compacts(7)], ["compact-lowprio", "compact-small-0"]);
}

#[test]
fn compactions_yield_the_processor_and_flushers_do_not() {
    let background = Background::start(&BackgroundConfig::default()).expect("threads");
    let deadline = Instant::now() + Duration::from_secs(10);
    let compact = || ["compact-small-0", "compact-large-0"].map(nice_values);
    // A thread sets its name, and then its priority, when it first runs.
    while !compact().iter().all(|values| values.contains(&nice_above_process(REDUCED_NICE)))
        || nice_values("flush-0").is_empty()
    {
        assert!(Instant::now() < deadline, "{:?}", nice_values("compact-small-0"));
        std::thread::sleep(Duration::from_millis(1));
    }
    let own = nice_values("flush-0");
    assert!(!own.is_empty() && own.iter().all(|nice| *nice == nice_above_process(0)), "{own:?}");
    background.stop();
}

/// Removes the limit when a test fails, so that it does not wait for the flush.
struct NoLimitAtLast<'a>(&'a ThroughputController);

impl Drop for NoLimitAtLast<'_> {
    fn drop(&mut self) {
        self.0.set_limit(None);
    }
}

/// The limit allows a beat per half second, then one per minute, until memory is short.
#[test]
fn a_flush_keeps_its_limit_until_memory_is_short() {
    let (_fs, server, region) = with_small_region();
    let background = server.server.background();
    let throughput = background.flush_throughput();
    throughput.set_limit(Some(128 << 10));
    put_kib(&region, 2100);
    let deadline = Instant::now() + Duration::from_secs(30);
    while throughput.waited() < Duration::from_millis(300) {
        assert!(Instant::now() < deadline, "the flush does not wait");
        std::thread::sleep(Duration::from_millis(1));
    }
    throughput.set_limit(Some(1 << 10));
    let _at_last = NoLimitAtLast(throughput);
    assert_eq!(region.load().store_files, 0);
    server.server.memory.note(server.server.config().global_memstore_low_bytes);
    wait_for_flushes(&server);
    // Cells written after the flush began may be flushed, too, because memory is short.
    assert!((1..=2).contains(&region.load().store_files), "{}", region.load().store_files);
}

#[test]
fn a_failed_flush_is_retried_with_pauses_and_a_limit() {
    let fs = FaultyFileSystem::new(MemoryFileSystem::new());
    let server = TestServer::over(Arc::new(fs.clone()), RegionServerConfig::default(), WalConfig::default());
    let region = server.open(b"", b"", table());
    let background = server.server.background();
    let flush = |failures: u64| {
        let before = Instant::now();
        background.request_flush(&region);
        wait_for_flushes(&server);
        assert_eq!(background.flush_failures(), failures);
        before
    };
    let retry = |now: Instant| {
        background.retry_flushes(now);
        wait_for_flushes(&server);
        (background.flush_failures(), region.load().store_files)
    };
    let later = || Instant::now() + Duration::from_secs(2);
    put(&region, &[cell(b"a", b"q", b"1")]);
    fs.inject(Fault::on(Op::Create, "/.tmp/").times(2));
    let before = flush(1);
    assert_eq!(retry(before), (1, 0), "not at once");
    assert_eq!(retry(later()), (2, 0));
    assert_eq!((retry(later()), retry(later())), ((2, 1), (2, 1)));
    put(&region, &[cell(b"a", b"q", b"2")]);
    fs.inject(Fault::on(Op::Create, "/.tmp/").times(11));
    flush(3);
    let tries: Vec<_> = (0..11).map(|_| retry(later()).0).collect();
    assert_eq!(tries, [4, 5, 6, 7, 8, 9, 10, 11, 12, 12, 12], "ten in all");
    flush(13);
    assert_eq!(retry(later()), (13, 2), "the next one is tried as often");
}

/// Every flush finds the compaction due, but only one that a user requests runs before the pause
/// ends.
#[test]
fn a_failed_compaction_is_retried_after_a_pause() {
    let fs = FaultyFileSystem::new(MemoryFileSystem::new());
    let server = TestServer::over(Arc::new(fs.clone()), RegionServerConfig::default(), WalConfig::default());
    let region = server.open(b"", b"", table());
    let background = server.server.background();
    let deadline = Instant::now() + Duration::from_secs(30);
    let settle = || {
        while background.compaction_state(region.info().encoded_name()) != CompactionState::None {
            assert!(Instant::now() < deadline, "the compaction does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let flush = |row: &[u8]| {
        put(&region, &[cell(row, b"q", b"1")]);
        background.flush(&region).expect("flushed");
        settle();
    };
    background.switch_compactions(false);
    (0..3).for_each(|row| flush(&[row]));
    let damaged = region.stores()[0].files()[0].name.clone();
    fs.inject(Fault::on(Op::Read, &damaged).always());
    background.switch_compactions(true);
    assert!(background.request_due_compaction(&region, Instant::now()));
    settle();
    let inputs =
        |region: &Arc<Region>| region.stores()[0].files().iter().map(|f| f.name.clone()).collect::<Vec<_>>();
    assert_eq!((inputs(&region).len(), inputs(&region)[0].clone()), (3, damaged), "the inputs stay");
    flush(b"a");
    assert!(!background.request_due_compaction(&region, Instant::now()));
    let after = |seconds| Instant::now() + Duration::from_secs(seconds);
    assert!(
        !background.request_due_compaction(&region, after(9))
            && background.request_due_compaction(&region, after(11))
    );
    settle();
    assert!(!background.request_due_compaction(&region, after(11)), "the pause is longer the second time");
    fs.clear();
    assert!(background.request_compaction(&region, None, true), "a user need not wait");
    settle();
    assert_eq!(region.load().store_files, 1);
    (0..2).for_each(|row| flush(&[row]));
    assert_eq!(region.load().store_files, 1, "what succeeded needs no pause");
}
