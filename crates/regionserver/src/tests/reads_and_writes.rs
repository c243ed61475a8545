//! Get and Mutate, and finding the region.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_block_cache::{BucketCache, BucketCacheConfig, Engine};
use evenkeel_common::{ErrorKind, HBaseError, KeyValue, ServerName};
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::mutation_proto::MutationType;
use evenkeel_region::region::Region;

use crate::requests::get;
use crate::requests::inline::RunsOn;
use crate::requests::mutate;
use crate::testing::*;
use crate::{Caller, RegionServerConfig};

fn get_request(region: &Region, row: &'static [u8]) -> pb::GetRequest {
    pb::GetRequest {
        region: specifier(region),
        get: pb::Get { row: Bytes::from_static(row), ..pb::Get::default() },
    }
}

fn read(
    server: &TestServer,
    request: &pb::GetRequest,
    caller: &Caller,
) -> Result<TestReply<pb::Result>, HBaseError> {
    let reply = get::get(&server.server, request.clone(), caller)?;
    let message = reply.message.result.clone().expect("a result");
    Ok(TestReply { message, cells: cells_of(reply) })
}

pub(super) fn request(region: &Region, kind: MutationType, row: &'static [u8]) -> pb::MutateRequest {
    pb::MutateRequest {
        region: specifier(region),
        mutation: pb::MutationProto {
            row: Some(Bytes::from_static(row)),
            mutate_type: Some(kind as i32),
            associated_cell_count: Some(1),
            ..pb::MutationProto::default()
        },
        ..pb::MutateRequest::default()
    }
}

pub(super) fn write(
    server: &TestServer,
    request: &pb::MutateRequest,
    cells: &[KeyValue],
    caller: Caller,
) -> Result<TestReply<pb::MutateResponse>, HBaseError> {
    let target = mutate::Target { region: server.server.region(&request.region), runs_on: RunsOn::Blocking };
    wait(|done| mutate::mutate(&server.server, target, request, block(cells), caller, done))
}

fn kind<T: std::fmt::Debug>(outcome: Result<T, HBaseError>) -> ErrorKind {
    outcome.expect_err("must fail").kind()
}

#[test]
fn cells_of_a_get_go_to_block_or_message() {
    let (server, region) = TestServer::with_region();
    put(&region, &[cell(b"a", b"q", b"v")]);
    let request = get_request(&region, b"a");
    let reply = read(&server, &request, &caller()).expect("read");
    assert_eq!((&reply.cells[..], reply.message.associated_cell_count), (&["a/q=v".to_owned()][..], Some(1)));
    for other in [
        caller_without_codec(),
        Caller { version: None, ..caller() },
        Caller { version: Some((1, 2)), ..caller() },
    ] {
        let reply = read(&server, &request, &other).expect("read");
        assert_eq!((reply.cells.len(), reply.message.cell.len()), (0, 1), "{other:?}");
    }
}

#[test]
fn an_existence_get_returns_no_cells() {
    let (server, region) = TestServer::with_region();
    put(&region, &[cell(b"a", b"q", b"v")]);
    for (row, exists) in [(&b"a"[..], true), (b"b", false)] {
        let mut request = get_request(&region, row);
        request.get.existence_only = Some(true);
        let reply = read(&server, &request, &caller()).expect("read");
        assert_eq!((reply.message.exists, reply.cells.len()), (Some(exists), 0));
    }
}

#[test]
fn calls_that_no_longer_exist_are_unknown() {
    let (server, region) = TestServer::with_region();
    let mut request = get_request(&region, b"a");
    request.get.closest_row_before = Some(true);
    assert_eq!(kind(read(&server, &request, &caller())), ErrorKind::UnknownProtocol);
}

#[test]
fn puts_and_deletes_return_only_processed() {
    let (server, region) = TestServer::with_region();
    let reply =
        write(&server, &request(&region, MutationType::Put, b"a"), &[cell(b"a", b"q", b"v")], caller())
            .expect("written");
    assert_eq!(reply.message, pb::MutateResponse { processed: Some(true), ..pb::MutateResponse::default() });
    let mut delete = request(&region, MutationType::Delete, b"a");
    delete.mutation.associated_cell_count = None;
    assert_eq!(write(&server, &delete, &[], caller()).expect("written").message.processed, Some(true));
    assert!(read(&server, &get_request(&region, b"a"), &caller()).expect("read").cells.is_empty());
}

#[test]
fn increments_return_their_cells_unless_disabled() {
    let (server, region) = TestServer::with_region();
    let mut increment = request(&region, MutationType::Increment, b"n");
    let cells = [cell(b"n", b"q", b"\0\0\0\0\0\0\0\x05")];
    let reply = write(&server, &increment, &cells, caller()).expect("written");
    assert_eq!(reply.cells, ["n/q=\0\0\0\0\0\0\0\x05"]);
    let result = reply.message.result.expect("a result");
    assert_eq!((result.associated_cell_count, reply.message.processed), (Some(1), None));
    let inside = write(&server, &increment, &cells, caller_without_codec()).expect("written").message;
    assert_eq!(inside.result.expect("a result").cell[0].value.as_deref(), Some(&b"\0\0\0\0\0\0\0\x0a"[..]));
    increment.mutation.attribute =
        vec![pb::NameBytesPair { name: "_rr_".into(), value: Some(Bytes::from_static(&[0])) }];
    let silent = write(&server, &increment, &cells, caller()).expect("written");
    assert_eq!((silent.message.result, silent.cells.len()), (Some(pb::Result::default()), 0));
}

#[test]
fn conditional_writes_report_whether_they_applied() {
    let (server, region) = TestServer::with_region();
    put(&region, &[cell(b"a", b"q", b"v")]);
    let filter = |name: &str| pb::Filter {
        name: format!("org.apache.hadoop.hbase.filter.{name}"),
        serialized_filter: Some(Bytes::new()),
    };
    let mut request = request(&region, MutationType::Put, b"a");
    let condition = |row: &'static [u8], filter| pb::Condition {
        row: Bytes::from_static(row),
        filter: Some(filter),
        ..pb::Condition::default()
    };
    request.condition = Some(condition(b"b", filter("FirstKeyOnlyFilter")));
    assert_eq!(
        kind(write(&server, &request, &[cell(b"a", b"q", b"w")], caller())),
        ErrorKind::DoNotRetry,
        "another row"
    );
    request.condition = Some(condition(b"a", filter("NoSuchFilter")));
    assert!(
        write(&server, &request, &[cell(b"a", b"q", b"w")], caller())
            .expect_err("unknown filter")
            .is_do_not_retry()
    );
    request.condition = Some(pb::Condition {
        row: Bytes::from_static(b"a"),
        compare_type: Some(99),
        ..pb::Condition::default()
    });
    assert_eq!(kind(write(&server, &request, &[cell(b"a", b"q", b"w")], caller())), ErrorKind::DoNotRetry);
}

#[test]
fn rows_and_families_outside_the_region_are_refused() {
    let server = TestServer::new(RegionServerConfig::default());
    let region = server.open(b"b", b"d", table());
    let put = request(&region, MutationType::Put, b"x");
    assert_eq!(kind(write(&server, &put, &[cell(b"x", b"q", b"v")], caller())), ErrorKind::WrongRegion);
    assert_eq!(kind(read(&server, &get_request(&region, b"a"), &caller())), ErrorKind::WrongRegion);
    let put = request(&region, MutationType::Put, b"c");
    let foreign = KeyValue::put(b"c", b"none", b"q", 5, b"v");
    assert_eq!(kind(write(&server, &put, &[foreign], caller())), ErrorKind::NoSuchColumnFamily);
}

#[test]
fn absent_regions_report_their_new_location() {
    let (server, region) = TestServer::with_region();
    let (regions, name) = (server.server.regions(), region.info().encoded_name().to_owned());
    let asked = || kind(read(&server, &get_request(&region, b"a"), &caller()));
    assert!(regions.serves(&region));
    assert!(regions.remove(&name, Some((ServerName::new("other", 1, 2), 3))).is_some());
    assert!(!regions.serves(&region));
    assert_eq!(asked(), ErrorKind::RegionMoved);
    server.clock.advance_ms(120_000);
    assert_eq!(asked(), ErrorKind::NotServingRegion);
    regions.set_opening(&name, true);
    assert_eq!(asked(), ErrorKind::RegionOpening);
    assert!(regions.add(region.clone()).is_none());
    assert!(read(&server, &get_request(&region, b"a"), &caller()).is_ok());
    assert_eq!(regions.of_table(region.info().table()).len(), 1);
}

#[test]
fn a_stopping_server_refuses_calls() {
    let (server, region) = TestServer::with_region();
    server.server.start_stopping();
    assert_eq!(kind(read(&server, &get_request(&region, b"a"), &caller())), ErrorKind::RegionServerStopped);
}

#[test]
fn too_many_unflushed_bytes_hold_up_writes_but_not_reads() {
    let config = RegionServerConfig {
        global_memstore_bytes: 1,
        global_memstore_low_bytes: u64::MAX,
        ..Default::default()
    };
    let server = TestServer::new(config);
    let region = server.open(b"", b"", table());
    let put = request(&region, MutationType::Put, b"a");
    server.server.run_chore();
    assert!(write(&server, &put, &[cell(b"a", b"q", b"v")], caller()).is_ok());
    server.server.run_chore();
    assert_eq!(kind(write(&server, &put, &[cell(b"a", b"q", b"w")], caller())), ErrorKind::RegionTooBusy);
    assert_eq!(read(&server, &get_request(&region, b"a"), &caller()).expect("read").cells, ["a/q=v"]);
}

#[test]
fn server_loads_count_regions_and_requests() {
    let (server, region) = TestServer::with_region();
    put(&region, &[cell(b"a", b"q", b"v")]);
    server.server.run_chore();
    let reads = 20;
    for _ in 0..reads {
        read(&server, &get_request(&region, b"a"), &caller()).expect("read");
    }
    assert_eq!(server.server.server_load(1, 2).number_of_requests(), 0, "no period is over");
    server.clock.advance_ms(5000);
    server.server.run_chore();
    let load = server.server.server_load(1, 2);
    assert_eq!(
        (load.region_loads.len(), load.number_of_requests(), load.total_number_of_requests()),
        (1, reads / 5, reads)
    );
    assert!(load.user_loads.is_empty() && load.region_cached_info.is_empty());
    assert!(load.used_heap_mb() > 0, "the memory of this process");
    assert_eq!(load.max_heap_mb(), 4 << 10);
    let region_load = &load.region_loads[0];
    assert_eq!(region_load.region_specifier, specifier(&region));
    assert_eq!(
        (region_load.stores(), region_load.mem_store_size_mb(), region_load.compaction_state),
        (1, 1, Some(0))
    );
}

#[test]
fn the_load_has_the_cached_part_of_each_region_if_the_cache_is_persistent() {
    let dir = tempfile::tempdir().expect("a directory");
    let persistent = BucketCacheConfig {
        engine: Engine::Mapped(dir.path().join("cache")),
        ..BucketCacheConfig::in_memory(16 << 20)
    };
    let in_memory = BucketCacheConfig::in_memory(16 << 20);
    for (config, cached_mib) in [(persistent, Some(1)), (in_memory, None)] {
        let cache = Arc::new(BucketCache::open(&config).expect("a cache"));
        let server = TestServer::with_cache(RegionServerConfig::default(), cache);
        let region = server.open(b"", b"", table());
        put(&region, &[cell(b"a", b"q", b"v")]);
        region.flush().expect("flushed");
        read(&server, &get_request(&region, b"a"), &caller()).expect("read");
        // The first report starts the count; a later one has it.
        let deadline = Instant::now() + Duration::from_secs(10);
        while server.server.cached_bytes().is_empty() && cached_mib.is_some() {
            assert!(Instant::now() < deadline, "no cached region");
            std::thread::sleep(Duration::from_millis(5));
        }
        let load = server.server.server_load(1, 2);
        let name = region.info().encoded_name();
        assert_eq!(load.region_cached_info.get(name).copied(), cached_mib);
        let ratio = load.region_loads[0].current_region_cached_ratio();
        assert_eq!(ratio, cached_mib.map_or(0.0, |_| 1.0));
    }
}
