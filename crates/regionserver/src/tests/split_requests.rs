//! Splits that the server requests from its master.

use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_common::{ColumnFamilyDescriptor, HBaseError, RegionInfo, TableDescriptor};
use evenkeel_protocol::pb::region_state_transition::TransitionCode;
use evenkeel_region::region::Region;

use crate::RegionServerConfig;
use crate::testing::*;

/// A table whose regions are split above 10 kB.
fn small_regions() -> TableDescriptor {
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal").with("BLOCKSIZE", "1024");
    TableDescriptor::new("t".parse().expect("legal"))
        .with_family(family)
        .with("SPLIT_POLICY", "org.apache.hadoop.hbase.regionserver.ConstantSizeRegionSplitPolicy")
        .with("MAX_FILESIZE", "10000")
}

fn server(config: RegionServerConfig) -> (TestServer, Arc<Region>) {
    let test = TestServer::new(config);
    let region = test.open(b"", b"s", small_regions());
    (test, region)
}

/// Writes 20 kB and flushes them as the server does by itself.
fn grow(test: &TestServer, region: &Arc<Region>) {
    let start = region.info().start_key();
    for row in 0..100 {
        let row = [start, format!("row{row:02}").as_bytes()].concat();
        put(region, &[cell(&row, b"q", &[b'v'; 150])]);
    }
    test.server.background().request_flush(region);
    wait_until("the flush ends", || test.server.background().flushers().1 == 0);
}

/// As [`grow`], and waits until the master has rejected the request `number`.
fn grow_and_be_rejected(test: &TestServer, region: &Arc<Region>, number: usize) {
    grow(test, region);
    wait_until("a request", || requests(test) == number);
    wait_until("the reply is handled", || !test.server.background().has_requested_split(region));
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn requests(test: &TestServer) -> usize {
    test.master.transitions.lock().len()
}

#[test]
fn a_region_that_is_due_is_requested_once() {
    let (test, region) = server(RegionServerConfig::default());
    grow(&test, &region);
    wait_until("a request", || requests(&test) == 1);
    let request = test.master.transitions.lock()[0].clone();
    assert_eq!(request.transition_code(), TransitionCode::ReadyToSplit);
    let regions: Vec<_> =
        request.region_info.iter().map(|info| RegionInfo::try_from(info).expect("legal")).collect();
    let [parent, left, right] = &regions[..] else { panic!("{regions:?}") };
    assert_eq!(parent, region.info());
    assert_eq!((left.start_key(), right.end_key()), (parent.start_key(), parent.end_key()));
    assert_eq!(left.end_key(), right.start_key());
    assert!((&b"row30"[..]..b"row70").contains(&&left.end_key()[..]), "{left:?}: the middle row");
    assert!(left.region_id() > parent.region_id(), "the daughters are newer");

    grow(&test, &region);
    assert!(test.server.due_split(&region).is_some());
    // One thread sends all requests in their order, so a second one would come before that of
    // another region.
    let other = test.open(b"s", b"", small_regions());
    grow(&test, &other);
    wait_until("the next request", || requests(&test) > 1);
    let next = RegionInfo::try_from(&test.master.transitions.lock()[1].region_info[0]).expect("legal");
    assert_eq!(&next, other.info(), "the master is splitting the first region");
}

#[test]
fn a_rejected_request_is_repeated_by_the_next_flush() {
    let (test, region) = server(RegionServerConfig::default());
    let outcomes = [Ok("Split switch is off!".to_owned()), Err(HBaseError::io("no route to the master"))];
    for (number, outcome) in (1..).zip(outcomes) {
        *test.master.transition_outcome.lock() = Some(outcome);
        grow_and_be_rejected(&test, &region, number);
    }
    *test.master.transition_outcome.lock() = None;
    grow(&test, &region);
    wait_until("a request that is accepted", || requests(&test) == 3);
    assert!(test.server.background().has_requested_split(&region));
}

#[test]
fn no_split_is_requested_at_the_limit_of_regions_or_by_a_server_that_stops() {
    let (test, region) = server(RegionServerConfig { regions_split_max: 1, ..RegionServerConfig::default() });
    grow(&test, &region);
    assert_eq!((test.server.due_split(&region), requests(&test)), (None, 0));

    let (test, region) = server(RegionServerConfig { regions_split_max: 2, ..RegionServerConfig::default() });
    test.server.start_stopping();
    grow(&test, &region);
    assert_eq!((test.server.due_split(&region), requests(&test)), (None, 0));
}

/// A split would leave each daughter with as many files.
#[test]
fn a_region_whose_files_block_flushes_is_not_split() {
    for (ignores_blocking, requested) in [("false", 3), ("true", 4)] {
        let table = small_regions()
            .with("hbase.hstore.blockingStoreFiles", "4")
            .with("COMPACTION_ENABLED", "false")
            .with("hbase.hregion.split.ignore.blocking.enabled", ignores_blocking);
        let test = TestServer::new(RegionServerConfig::default());
        let region = test.open(b"", b"", table);
        *test.master.transition_outcome.lock() = Some(Ok("Split switch is off!".to_owned()));
        (1..=3).for_each(|number| grow_and_be_rejected(&test, &region, number));
        grow(&test, &region);
        assert_eq!(region.load().store_files, 4);
        assert_eq!(test.server.due_split(&region).is_some(), requested == 4, "{ignores_blocking}");
        wait_until("all requests", || requests(&test) == requested);
    }
}
