//! Secondary replicas on a server: their results are stale, and their files are refreshed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_common::clock::ManualClock;
use evenkeel_common::{CellBuffer, CellType, Configuration, KeyValue, RegionInfo};
use evenkeel_fs::{Fault, FaultyFileSystem, MemoryFileSystem, Op};
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::mutation_proto::MutationType;
use evenkeel_region::descriptors;
use evenkeel_region::operations::{Mutation, MutationKind};
use evenkeel_region::region::{Region, RegionConfig, RegionEnv, ReplicaReplication};
use evenkeel_wal::WalConfig;

use super::multi::{get_action, on, put_action, run};
use super::reads_and_writes::{request, write};
use crate::RegionServerConfig;
use crate::background::chore::Chore;
use crate::background::store_file_refresh::{RefreshTimes, StoreFileRefresh};
use crate::requests::{get, scan};
use crate::testing::*;

const REFRESH: StoreFileRefresh =
    StoreFileRefresh { period_ms: 100, only_meta: false, archive_ttl_ms: 1_000 };

/// A server with a region, whose row `a` is flushed, and a secondary replica of it.
fn with_replica(fs: &FaultyFileSystem, config: RegionServerConfig) -> (TestServer, Arc<Region>, Arc<Region>) {
    let server = TestServer::over(Arc::new(fs.clone()), config, WalConfig::default());
    let primary = server.open(b"", b"", table());
    put_and_flush(&primary, b"a");
    let info = primary.info().replica(1);
    let replica = Region::open(Arc::clone(&server.env), info, Arc::new(table())).expect("opens");
    assert!(server.server.regions().add(Arc::clone(&replica)).is_none());
    (server, primary, replica)
}

fn put_and_flush(region: &Arc<Region>, row: &'static [u8]) {
    put(region, &[cell(row, b"q", b"v")]);
    region.flush().expect("flushed");
}

fn files() -> FaultyFileSystem {
    FaultyFileSystem::new(MemoryFileSystem::new())
}

fn get_of(region: &Region, row: &'static [u8], existence_only: bool) -> pb::GetRequest {
    let get =
        pb::Get { row: Bytes::from_static(row), existence_only: Some(existence_only), ..pb::Get::default() };
    pb::GetRequest { region: specifier(region), get }
}

#[test]
fn results_of_a_replica_are_stale() {
    let (server, primary, replica) = with_replica(&files(), RegionServerConfig::default());
    for (region, is_stale) in [(&primary, false), (&replica, true)] {
        let read = |row, existence_only, caller| {
            let reply = get::get(&server.server, get_of(region, row, existence_only), &caller).expect("read");
            reply.message.result.expect("a result")
        };
        assert_eq!(read(b"a", false, caller()).stale, Some(is_stale));
        assert_eq!(read(b"a", false, caller_without_codec()).stale, Some(is_stale));
        assert_eq!(read(b"none", false, caller()).stale(), is_stale);
        let exists = read(b"a", true, caller());
        assert_eq!((exists.exists, exists.stale()), (Some(true), is_stale));
        let scanned = pb::ScanRequest {
            region: Some(specifier(region)),
            scan: Some(pb::Scan::default()),
            number_of_rows: Some(9),
            ..pb::ScanRequest::default()
        };
        for caller in [caller(), caller_without_codec()] {
            let reply = scan::scan(&server.server, &scanned, &caller).expect("read").expect("a reply");
            assert_eq!(reply.message.stale, Some(is_stale));
            assert!(reply.message.results.iter().all(|result| result.stale == Some(is_stale)));
        }
    }
}

#[test]
fn a_multi_marks_the_results_of_each_region() {
    let (server, primary, replica) = with_replica(&files(), RegionServerConfig::default());
    let gets = || vec![get_action(0, b"a"), get_action(1, b"none")];
    let stale = |response: &pb::MultiResponse| -> Vec<bool> {
        let results = response.region_action_result.iter().flat_map(|region| &region.result_or_exception);
        results.filter_map(|one| one.result.as_ref()).map(pb::Result::stale).collect()
    };
    let reads = run(&server, vec![on(&primary, gets()), on(&replica, gets())], &[]);
    assert_eq!(stale(&reads.message), [false, false, true, true]);
    let put = vec![put_action(0, b"z")];
    let mixed = run(&server, vec![on(&primary, put), on(&replica, gets())], &[cell(b"z", b"q", b"v")]);
    assert_eq!(stale(&mixed.message), [false, true, true]);
}

#[test]
fn a_write_to_a_replica_is_rejected() {
    let (server, _primary, replica) = with_replica(&files(), RegionServerConfig::default());
    let put = request(&replica, MutationType::Put, b"a");
    let error = write(&server, &put, &[cell(b"a", b"q", b"w")], caller()).expect_err("rejected");
    assert!(error.is_do_not_retry() && error.to_string().contains("region is read only"), "{error}");
}

fn has_row(region: &Region, row: &'static [u8]) -> bool {
    let scan = evenkeel_region::operations::Scan::get(row);
    region.get(scan).is_ok_and(|cells| !cells.is_empty())
}

#[test]
fn reads_are_disabled_while_the_files_are_too_old() {
    let fs = files();
    let (server, primary, replica) = with_replica(&fs, RegionServerConfig::default());
    let mut times = RefreshTimes::default();
    let mut refresh = |clock: &ManualClock, ms: i64| {
        clock.advance_ms(ms);
        server.server.refresh_secondaries(REFRESH, &mut times);
    };
    put_and_flush(&primary, b"b");
    refresh(&server.clock, 0);
    assert!(has_row(&replica, b"b"));
    put_and_flush(&primary, b"c");
    fs.inject(Fault::on(Op::List, "/data/default/t/").always());
    refresh(&server.clock, 900);
    assert!(has_row(&replica, b"b") && !has_row(&replica, b"c"), "not too old yet");
    refresh(&server.clock, 1);
    let error = replica.get(evenkeel_region::operations::Scan::get("b")).expect_err("too old").to_string();
    assert!(error.contains("reads are disabled"), "{error}");
    assert!(has_row(&primary, b"b"), "the default replica is read as before");
    fs.clear();
    refresh(&server.clock, 1);
    assert!(has_row(&replica, b"b") && has_row(&replica, b"c"));
}

#[test]
fn the_files_are_refreshed_periodically() {
    let refresh = StoreFileRefresh { period_ms: 1, only_meta: false, archive_ttl_ms: 300_000 };
    let config = RegionServerConfig { store_file_refresh: Some(refresh), ..RegionServerConfig::default() };
    let (server, primary, replica) = with_replica(&files(), config);
    let _chore = Chore::start(&server.server).expect("threads");
    put_and_flush(&primary, b"b");
    let deadline = Instant::now() + Duration::from_secs(30);
    while !has_row(&replica, b"b") {
        assert!(Instant::now() < deadline, "the replica is never refreshed");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_period_is_at_most_half_of_the_archives() {
    let mut conf = Configuration::new();
    assert_eq!(StoreFileRefresh::from(&conf), Ok(None));
    conf.set("hbase.regionserver.storefile.refresh.period", "150000");
    let read = StoreFileRefresh { period_ms: 150_000, only_meta: false, archive_ttl_ms: 300_000 };
    assert_eq!(StoreFileRefresh::from(&conf), Ok(Some(read)));
    conf.set("hbase.master.hfilecleaner.ttl", "299999");
    let error = StoreFileRefresh::from(&conf).expect_err("too long").to_string();
    assert!(error.contains("hbase.regionserver.storefile.refresh.period"), "{error}");
}

#[test]
fn the_period_of_meta_counts_if_there_is_no_other() {
    const KEY: &str = "hbase.regionserver.meta.storefile.refresh.period";
    let mut conf = Configuration::new();
    conf.set(KEY, "1000");
    let read = StoreFileRefresh { period_ms: 1_000, only_meta: true, archive_ttl_ms: 300_000 };
    assert_eq!(StoreFileRefresh::from(&conf), Ok(Some(read)));
    conf.set(KEY, "150001");
    let error = StoreFileRefresh::from(&conf).expect_err("too long").to_string();
    assert!(error.contains(KEY), "{error}");
    conf.set("hbase.regionserver.storefile.refresh.period", "500");
    let read = StoreFileRefresh { period_ms: 500, only_meta: false, archive_ttl_ms: 300_000 };
    assert_eq!(StoreFileRefresh::from(&conf), Ok(Some(read)));
}

#[test]
fn only_replicas_of_meta_are_refreshed_with_its_period() {
    let (server, primary, replica) = with_replica(&files(), RegionServerConfig::default());
    let table = Arc::new(descriptors::meta().expect("made"));
    let open = |info| {
        let region = Region::open(Arc::clone(&server.env), info, Arc::clone(&table)).expect("opens");
        assert!(server.server.regions().add(Arc::clone(&region)).is_none());
        region
    };
    let meta = open(RegionInfo::meta());
    let meta_replica = open(RegionInfo::meta().replica(1));
    put_and_flush(&primary, b"b");
    put(&meta, &[KeyValue::put(b"t,,1", b"info", b"state", 1, b"OPEN")]);
    meta.flush().expect("flushed");
    let mut times = RefreshTimes::default();
    server.server.refresh_secondaries(StoreFileRefresh { only_meta: true, ..REFRESH }, &mut times);
    assert!(has_row(&meta_replica, b"t,,1") && !has_row(&replica, b"b"));
    server.server.refresh_secondaries(REFRESH, &mut times);
    assert!(has_row(&replica, b"b"));
    // Each is found by its full name.
    for region in [&meta, &meta_replica] {
        let found = server.server.region(&specifier(region)).expect("served");
        assert!(Arc::ptr_eq(&found, region));
    }
}

#[test]
fn a_table_has_as_many_regions_as_primaries() {
    let (server, primary, _replica) = with_replica(&files(), RegionServerConfig::default());
    let regions = server.server.regions();
    let table = primary.info().table();
    assert_eq!((regions.count_of(table), regions.of_table(table).len(), regions.len()), (1, 2, 2));
    let primaries = regions.primaries_of_table(table);
    assert!(primaries.len() == 1 && Arc::ptr_eq(&primaries[0], &primary));
}

/// A server whose default replica hands its edits to a secondary replica. The row `a` is flushed.
fn with_replication(attributes: &[(&str, &str)]) -> (TestServer, Arc<Region>, Arc<Region>) {
    with_replication_over(&files(), attributes)
}

fn with_replication_over(
    fs: &FaultyFileSystem,
    attributes: &[(&str, &str)],
) -> (TestServer, Arc<Region>, Arc<Region>) {
    let server = TestServer::over(Arc::new(fs.clone()), RegionServerConfig::default(), WalConfig::default());
    let shared = &server.env;
    let env = Arc::new(RegionEnv {
        stores: shared.stores.clone(),
        wal: Arc::clone(&shared.wal),
        wal_root: None,
        config: RegionConfig { replication: ReplicaReplication::new(true, false), ..RegionConfig::default() },
        server: shared.server.clone(),
        nonces: Arc::clone(&shared.nonces),
        events: Arc::clone(&shared.events),
        operation_times: Arc::clone(&shared.operation_times),
    });
    let table = attributes.iter().fold(table(), |table, (key, value)| table.with(key, value));
    let table = Arc::new(table.with_region_replication(3));
    let open = |info| {
        let region = Region::open(Arc::clone(&env), info, Arc::clone(&table)).expect("opens");
        assert!(server.server.regions().add(Arc::clone(&region)).is_none());
        region
    };
    let primary = open(RegionInfo::new(table.name().clone(), Bytes::new(), Bytes::new(), 1));
    put_and_flush(&primary, b"a");
    let replica = open(primary.info().replica(1));
    (server, primary, replica)
}

/// Runs the chore until a condition holds.
fn until(server: &TestServer, what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        server.server.run_chore();
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn edits_in_the_memstore_reach_the_replica() {
    let (server, primary, replica) = with_replication(&[]);
    put(&primary, &[cell(b"b", b"q", b"v")]);
    until(&server, "the edit of before the open is seen", || has_row(&replica, b"b"));
    put(&primary, &[cell(b"c", b"q", b"v")]);
    until(&server, "an edit is seen", || has_row(&replica, b"c"));
    assert!(primary.memstore_bytes() > 0 && replica.memstore_bytes() > 0, "without a flush");
    let delete = vec![KeyValue::new(b"c", b"f", b"q", 5, CellType::DeleteColumn, b"")];
    primary.mutate_wait(Mutation::new(MutationKind::Delete, "c", delete)).expect("deleted");
    until(&server, "a delete is seen", || !has_row(&replica, b"c"));
    primary.flush().expect("flushed");
    until(&server, "a flush frees the replica's memory", || replica.memstore_bytes() == 0);
    assert!(has_row(&replica, b"b") && !has_row(&replica, b"c"));
    put(&primary, &[cell(b"d", b"q", b"v")]);
    until(&server, "edits after a flush are seen", || has_row(&replica, b"d"));
}

#[test]
fn a_replica_that_opens_later_is_filled_by_a_flush() {
    let (server, primary, replica) = with_replication(&[]);
    put(&primary, &[cell(b"b", b"q", b"v")]);
    until(&server, "the edit is seen", || has_row(&replica, b"b"));
    server.server.regions().remove(replica.info().encoded_name(), None).expect("was open");
    replica.close(false).expect("closed");
    put(&primary, &[cell(b"c", b"q", b"v")]);
    let table = Arc::clone(replica.table());
    let again = Region::open(Arc::clone(&server.env), replica.info().clone(), table).expect("opens");
    assert!(server.server.regions().add(Arc::clone(&again)).is_none());
    until(&server, "the edits are seen", || has_row(&again, b"b") && has_row(&again, b"c"));
}

#[test]
fn without_memstore_replication_a_flush_is_seen() {
    let (server, primary, replica) = with_replication(&[("REGION_MEMSTORE_REPLICATION", "false")]);
    put(&primary, &[cell(b"b", b"q", b"v")]);
    (0..20).for_each(|_| server.server.run_chore());
    assert!(!has_row(&replica, b"b") && primary.memstore_bytes() > 0);
    primary.flush().expect("flushed");
    until(&server, "the flush is seen", || has_row(&replica, b"b"));
    assert_eq!(replica.memstore_bytes(), 0);
}

/// A second replica opens beside one that reads the stream already.
#[test]
fn without_memstore_replication_a_new_replica_sees_a_flush_of_its_open() {
    let (server, primary, replica) = with_replication(&[("REGION_MEMSTORE_REPLICATION", "false")]);
    put_and_flush(&primary, b"b");
    until(&server, "the flush is seen", || has_row(&replica, b"b"));
    let env = Arc::clone(&server.env);
    let later = Region::open(env, primary.info().replica(2), Arc::clone(primary.table())).expect("opens");
    put_and_flush(&primary, b"c");
    until(&server, "the flush is seen", || has_row(&replica, b"c"));
    assert!(!has_row(&later, b"c"));
    assert!(server.server.regions().add(Arc::clone(&later)).is_none());
    until(&server, "the flush is seen", || has_row(&later, b"c"));
}

#[test]
fn a_failed_refresh_is_tried_again() {
    let fs = files();
    let (server, primary, replica) = with_replication_over(&fs, &[]);
    put(&primary, &[cell(b"b", b"q", b"v")]);
    until(&server, "the edit is seen", || has_row(&replica, b"b"));
    put(&primary, &[cell(b"c", b"q", b"v")]);
    until(&server, "the edit is seen", || has_row(&replica, b"c"));
    fs.inject(Fault::on(Op::List, "/data/default/t/").always());
    primary.flush().expect("flushed");
    until(&server, "the refresh fails", || replica.is_replay_blocked());
    let bytes = replica.memstore_bytes();
    assert!(has_row(&replica, b"c") && bytes > 0, "the files are not read");
    for _ in 0..20 {
        put(&primary, &[cell(b"d", b"q", b"v")]);
        server.server.run_chore();
    }
    primary.flush().expect("flushed");
    put(&primary, &[cell(b"e", b"q", b"v")]);
    (0..20).for_each(|_| server.server.run_chore());
    server.server.replicate(&primary);
    assert_eq!(replica.memstore_bytes(), bytes, "nothing is replayed that no refresh would free");
    fs.clear();
    until(&server, "the files are read", || replica.memstore_bytes() == 0);
    assert!(has_row(&replica, b"b") && has_row(&replica, b"c") && has_row(&replica, b"d"));
    assert!(!replica.is_replay_blocked());
    primary.flush().expect("flushed");
    until(&server, "edits are replayed again", || has_row(&replica, b"e"));
}

/// A secondary replica whose files cannot be found does not keep memory that others need.
#[test]
fn a_replica_that_is_blocked_gives_its_memory_up() {
    let fs = files();
    let (server, primary, replica) = with_replication_over(&fs, &[("MEMSTORE_FLUSHSIZE", "16384")]);
    put(&primary, &[cell(b"b", b"q", b"v")]);
    until(&server, "the edit is seen", || has_row(&replica, b"b"));
    // More than the flush size times the multiplier.
    let mut large = CellBuffer::new();
    large.push(&KeyValue::put(b"c", b"f", b"q", 1, &[7; 100_000]).as_cell());
    assert!(replica.replay_entry(primary.read_point() + 1, &large).expect("replayed"));
    assert!(has_row(&replica, b"c") && replica.memory_pressure() >= 1.0);
    fs.inject(Fault::on(Op::List, "/data/default/t/").always());
    primary.flush().expect("flushed");
    until(&server, "the replica's memory is freed", || replica.memstore_bytes() == 0);
    assert!(has_row(&replica, b"a") && !has_row(&replica, b"c"), "the files of before are shown");
    fs.clear();
    until(&server, "the files are read", || has_row(&replica, b"b"));
}

/// The unflushed bytes of a secondary replica are freed by a flush of its default replica.
#[test]
fn a_replicas_memory_is_freed_by_a_flush_of_its_default_replica() {
    let (server, primary, replica) = with_replication(&[]);
    put(&primary, &[cell(b"b", b"q", b"v")]);
    until(&server, "the edit is seen", || has_row(&replica, b"b"));
    put(&primary, &[cell(b"c", b"q", b"v")]);
    until(&server, "the edit is seen", || has_row(&replica, b"c"));
    assert!(server.server.request_flush_of(&replica));
    until(&server, "both are flushed", || primary.memstore_bytes() == 0 && replica.memstore_bytes() == 0);
    assert!(has_row(&replica, b"c"));
}
