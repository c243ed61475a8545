//! Periodic work, and writers near limits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_common::TableDescriptor;
use evenkeel_protocol::pb::mutation_proto::MutationType;
use evenkeel_region::memstore::{ChunkPool, ChunkSizes, chunk_slack_bytes};
use evenkeel_region::region::Region;

use super::reads_and_writes::{request, write};
use crate::RegionServerConfig;
use crate::background::CompactionState;
use crate::limits::write_throttle::HOLD_MAX;
use crate::testing::*;

const HOUR_MS: i64 = 3_600_000;

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn old_edits_are_flushed_periodically() {
    let (server, region) = TestServer::with_region();
    put(&region, &[cell(b"a", b"q", b"1")]);
    server.clock.advance_ms(HOUR_MS / 2);
    server.server.run_chore();
    assert_eq!(server.server.background().queued().0, 0, "not due yet");
    assert_eq!(region.load().store_files, 0);
    server.clock.advance_ms(HOUR_MS);
    server.server.run_chore();
    until("the edit is not flushed", || region.load().store_files == 1);
    assert_eq!(region.oldest_edit_ms(), None);
}

#[test]
fn system_tables_flush_after_minutes_whatever_is_configured() {
    let server = TestServer::new(RegionServerConfig { periodic_flush_ms: 0, ..Default::default() });
    let named = |name: &str| {
        let family = evenkeel_common::ColumnFamilyDescriptor::new(b"f").expect("legal");
        TableDescriptor::new(name.parse().expect("legal")).with_family(family)
    };
    let [system, of_users] = [named("hbase:s"), named("t")].map(|table| server.open(b"", b"", table));
    [&system, &of_users].into_iter().for_each(|region| put(region, &[cell(b"a", b"q", b"1")]));
    server.clock.advance_ms(HOUR_MS / 13);
    server.server.run_chore();
    assert_eq!(server.server.background().flushers().1, 0, "not due yet");
    server.clock.advance_ms(HOUR_MS / 5);
    server.server.run_chore();
    until("the edit is not flushed", || system.load().store_files == 1);
    until("flushes do not end", || server.server.background().flushers().1 == 0);
    assert_eq!(of_users.load().store_files, 0);
}

/// The flushes of this region request no compaction, as those by a procedure.
#[test]
fn files_that_hold_writes_are_compacted() {
    let server = TestServer::new(RegionServerConfig::default());
    let table = table().with("hbase.hstore.blockingStoreFiles", "4").with("hbase.hstore.compaction.min", "2");
    let region = server.open(b"", b"", table);
    let flush = |files: usize| {
        while region.load().store_files < files {
            put(&region, &[cell(b"a", b"q", b"1")]);
            region.flush().expect("flushed");
        }
    };
    // The first round requests the compactions that are due.
    server.server.run_chore();
    flush(3);
    server.server.run_chore();
    assert_eq!(
        (server.server.background().queued().1, region.load().store_files),
        (0, 3),
        "no write is held"
    );
    flush(6);
    server.server.run_chore();
    until("the files are not compacted", || region.load().store_files == 1);
}

#[test]
fn a_region_flushes_at_its_change_limit() {
    let server = TestServer::new(RegionServerConfig { flush_changes_max: 10, ..Default::default() });
    let region = server.open(b"", b"", table());
    let files_after = |changes: u8| {
        (0..changes).for_each(|n| put(&region, &[cell(&[n], b"q", b"1")]));
        server.clock.advance_ms(10_000);
        server.server.run_chore();
        until("a flush does not end", || server.server.background().flushers().1 == 0);
        region.load().store_files
    };
    assert_eq!([files_after(5), files_after(6), files_after(5), files_after(6)], [0, 1, 1, 2]);
}

#[test]
fn a_table_can_override_flush_changes_and_period() {
    let config =
        RegionServerConfig { flush_changes_max: 10, periodic_flush_ms: 0, ..RegionServerConfig::default() };
    let of = |key, value| config.flush_changes_max_of(&table().with(key, value));
    let key = "hbase.regionserver.flush.per.changes";
    assert_eq!([of(key, " 3 "), of(key, "0"), of(key, "1000000000")], [3, 0, 1_000_000_000]);
    assert_eq!([of(key, "x"), of(key, "-1"), of(key, "1000000001"), of("else", "3")], [10; 4]);

    let server = TestServer::new(config);
    let named = |name: &str, key, value| {
        let family = evenkeel_common::ColumnFamilyDescriptor::new(b"f").expect("legal");
        TableDescriptor::new(name.parse().expect("legal")).with_family(family).with(key, value)
    };
    let tables = [
        named("changes", key, "3"),
        named("age", "hbase.regionserver.optionalcacheflushinterval", "60000"),
        named("neither", "else", "3"),
    ];
    let regions = tables.map(|table| server.open(b"", b"", table));
    regions.iter().for_each(|region| (0..4).for_each(|n| put(region, &[cell(&[n], b"q", b"1")])));
    let files_after = |ms| {
        server.clock.advance_ms(ms);
        server.server.run_chore();
        until("a flush does not end", || server.server.background().flushers().1 == 0);
        regions.each_ref().map(|region| region.load().store_files)
    };
    assert_eq!(files_after(10_000), [1, 0, 0]);
    assert_eq!(files_after(HOUR_MS), [1, 1, 0]);
}

#[test]
fn the_flush_limit_follows_the_unflushed_bytes() {
    let flush = crate::background::throughput::FlushTuning { limited: true, lower: 1000, upper: 2000 };
    let server = TestServer::new(RegionServerConfig { flush, ..Default::default() });
    let limit = || {
        server.server.run_chore();
        server.server.background().flush_throughput().limit()
    };
    assert_eq!(limit(), Some(1000));
    let region = server.open(b"", b"", table().with("MEMSTORE_FLUSHSIZE", "2147483648"));
    put(&region, &[cell(b"a", b"q", &vec![7; 1 << 20])]);
    let higher = limit();
    let part = server.server.memory.bytes() as f64 / server.server.config().global_memstore_low_bytes as f64;
    assert_eq!(higher, Some(1000 + (1000.0 * part) as u64));
    assert_ne!(higher, Some(1000));
}

#[test]
fn a_due_periodic_compaction_needs_no_write() {
    let (server, region) = TestServer::with_region();
    for value in [b"1", b"2"] {
        put(&region, &[cell(b"a", b"q", value)]);
        region.flush().expect("flushed");
    }
    server.server.run_chore();
    assert_eq!(region.load().store_files, 2, "neither many nor old");
    server.clock.advance_ms(24 * 14 * HOUR_MS);
    server.server.run_chore();
    until("the files are not compacted", || region.load().store_files == 1);
    let name = region.info().encoded_name();
    until("the compaction does not end", || {
        server.server.background().compaction_state(name) == CompactionState::None
    });
}

#[test]
fn regions_are_not_checked_while_the_server_is_idle() {
    let (server, region) = TestServer::with_region();
    let is_quiet = || server.server.is_quiet();
    let look = || {
        until("the server does not come to rest", || {
            server.server.run_round();
            server.server.is_quiet()
        });
    };
    assert!(!is_quiet(), "nobody has looked yet");
    look();
    put(&region, &[cell(b"a", b"q", b"1")]);
    // A check counts cells that no request wrote.
    server.server.run_chore();
    assert!(!is_quiet(), "a write");
    look();
    server.server.background().flush(&region).expect("flushed");
    server.server.run_chore();
    assert!(!is_quiet(), "a flush");
    look();
    server.server.background().request_compaction(&region, None, true);
    assert!(!is_quiet(), "a compaction that was asked for");
    until("the compaction does not end", || {
        server.server.background().compactions_of(region.info().encoded_name()) == 0
    });
    assert!(!is_quiet(), "a compaction that has ended");
    look();
    let _other = server.open(
        b"",
        b"",
        TableDescriptor::new("other".parse().expect("legal"))
            .with_family(evenkeel_common::ColumnFamilyDescriptor::new(b"f").expect("legal")),
    );
    assert!(!is_quiet(), "a region that came");
    look();
    server.clock.advance_ms(10_000);
    assert!(!is_quiet(), "old edits are due to be looked for");
    look();
    server.clock.advance_ms(9_999);
    assert!(is_quiet());
}

/// Creates a region with a limit of 1 MiB whose approach begins at the first byte, and whose
/// MemStore is never flushed.
pub(super) fn near_its_limit(table: TableDescriptor) -> (TestServer, Arc<Region>) {
    let limits = RegionServerConfig {
        global_memstore_low_bytes: 1,
        global_memstore_bytes: 1 << 20,
        ..RegionServerConfig::default()
    };
    let server = TestServer::new(limits);
    server.server.background().stop();
    let region = server.open(b"", b"", table);
    (server, region)
}

#[test]
fn writes_are_held_near_the_limit_and_refused_at_it() {
    let (server, region) = near_its_limit(table());
    let throttle = server.server.background().write_throttle();
    let put = request(&region, MutationType::Put, b"a");
    let write = |bytes: usize| {
        let started = Instant::now();
        let outcome = write(&server, &put, &[cell(b"a", b"q", &vec![7; bytes])], caller());
        (outcome.map(drop), started.elapsed())
    };
    write(1000).0.expect("written");
    assert_eq!(throttle.count(), 0, "a thousandth of the way costs nothing");
    let (outcome, took) = write(600_000);
    outcome.expect("written, and told later");
    assert!(throttle.count() == 1 && took >= HOLD_MAX / 8, "a call feels its own bytes: {took:?}");
    write(500_000).0.expect("there was room before it, and then none");
    server.server.run_chore();
    let bytes = server.server.memory.bytes();
    assert!((1_101_000..1_102_000).contains(&bytes), "{bytes}");
    let (outcome, took) = write(100_000);
    assert!(outcome.expect_err("no room").message().contains("Over global memstore limit"));
    assert!(took >= HOLD_MAX, "who is refused does not come again at once: {took:?}");
    assert_eq!(
        (server.server.memory.bytes(), throttle.count()),
        (bytes, 3),
        "what is refused is not counted"
    );
}

#[test]
fn an_append_counts_the_value_that_it_writes() {
    let (server, region) = near_its_limit(table());
    put(&region, &[cell(b"a", b"q", &vec![7; 400_000])]);
    server.server.run_chore();
    let append = request(&region, MutationType::Append, b"a");
    let started = Instant::now();
    write(&server, &append, &[cell(b"a", b"q", b"1")], caller()).expect("written");
    let (took, bytes) = (started.elapsed(), server.server.memory.bytes());
    assert!((800_000..802_000).contains(&bytes), "{bytes}");
    assert!(took >= HOLD_MAX / 4, "{took:?}");
    assert_eq!(server.server.background().write_throttle().count(), 1);
}

#[test]
fn chunks_of_idle_regions_are_flushed_before_they_pass_the_limit() {
    const LIMIT: u64 = 16 << 20;
    let bytes_max = LIMIT + chunk_slack_bytes(LIMIT);
    let chunks = ChunkPool::within(ChunkSizes::default(), 0, 0, bytes_max as usize);
    let limits = RegionServerConfig {
        global_memstore_bytes: LIMIT,
        global_memstore_low_bytes: LIMIT / 100 * 95,
        ..RegionServerConfig::default()
    };
    let server = TestServer::with_chunks(limits, chunks.clone());
    let key = |n: usize| format!("{n:03}").leak().as_bytes();
    let regions: Vec<_> = (0..60).map(|n| server.open(key(n), key(n + 1), table())).collect();
    regions.iter().enumerate().for_each(|(n, region)| put(region, &[cell(key(n), b"q", b"v")]));
    let cells: u64 = regions.iter().map(|region| region.memstore_size().heap_bytes).sum();
    assert!(cells < LIMIT / 100 && chunks.out_bytes() as u64 > LIMIT / 10 * 9, "{}", chunks.out_bytes());
    assert!(!server.server.memory.is_throttling());
    server.server.run_chore();
    assert!(server.server.memory.is_throttling(), "writers are slowed down by what is taken");
    let flushed = || regions.iter().filter(|region| region.load().store_files > 0).count();
    until("no region is flushed", || {
        server.server.run_chore();
        !server.server.memory.is_throttling()
    });
    assert!(chunks.out_bytes() as u64 <= LIMIT / 4 * 3 + chunk_slack_bytes(LIMIT), "{}", chunks.out_bytes());
    assert!((1..30).contains(&flushed()), "{} of 60, as many as was needed", flushed());
}
