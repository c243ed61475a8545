//! The priority handlers, which are for calls on system tables.
//!
//! In each test the handlers of users' calls are busy, and the priority handlers are idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor};
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::region_specifier::RegionSpecifierType;
use evenkeel_region::region::Region;
use evenkeel_rpc::{CallClass, ExecutorConfig};
use parking_lot::{Mutex, MutexGuard};
use prost::Message;

use super::inline::{Served, get_request, gets_of, increment, multi, regex_filter};
use crate::testing::*;

const TIMEOUT: Duration = Duration::from_secs(20);

/// Makes all handlers of users' calls wait for a lock.
fn make_handlers_busy<'a>(served: &Served, lock: &'a Arc<Mutex<()>>) -> MutexGuard<'a, ()> {
    let held = lock.lock();
    let config = ExecutorConfig::default();
    let slots = config.computing_at_once;
    let classes = [
        (CallClass::General, config.general_handlers),
        (CallClass::Scan, slots),
        (CallClass::Write, slots),
        (CallClass::LongWrite, slots),
    ];
    for (class, at_once) in classes {
        let started = Arc::new(AtomicUsize::new(0));
        for _ in 0..100 {
            let (lock, started) = (Arc::clone(lock), Arc::clone(&started));
            served.executor.submit_continuation(class, None, move || {
                started.fetch_add(1, Ordering::Relaxed);
                drop(lock.lock());
            });
        }
        wait_until("all are busy", || started.load(Ordering::Relaxed) == at_once);
    }
    held
}

#[track_caller]
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Names a region as if it were one of the table `hbase:x`.
fn forged(region: &Region) -> pb::RegionSpecifier {
    let value = format!("hbase:x,,1.{}.", region.info().encoded_name()).into();
    pb::RegionSpecifier { r#type: RegionSpecifierType::RegionName as i32, value }
}

/// Names hbase:meta, which is not on the server.
fn meta() -> pb::RegionSpecifier {
    let value = Bytes::from_static(b"hbase:meta,,1.1588230740");
    pb::RegionSpecifier { r#type: RegionSpecifierType::RegionName as i32, value }
}

/// Returns a system table.
fn system_table() -> TableDescriptor {
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    TableDescriptor::new("hbase:acl".parse().expect("legal")).with_family(family)
}

fn increment_action(region: &Region) -> pb::Action {
    let mutation = Some(increment(region, b"r").0.mutation);
    pb::Action { index: Some(0), mutation, ..Default::default() }
}

fn sum(region: pb::RegionSpecifier) -> Vec<u8> {
    let call = pb::CoprocessorServiceCall {
        service_name: "AggregateService".to_owned(),
        method_name: "GetSum".to_owned(),
        ..Default::default()
    };
    pb::CoprocessorServiceRequest { region, call }.encode_to_vec()
}

#[test]
fn a_user_region_under_the_name_of_a_system_table_has_no_priority() {
    let served = Served::start();
    let region = &served.region;
    let lock = Arc::default();
    let held = make_handlers_busy(&served, &lock);
    let mut client = served.client();

    let (mut request, cells) = increment(region, b"r");
    request.region = forged(region);
    client.send("Mutate", &request.encode_to_vec(), &cells);
    let mut mixed = multi(region, vec![increment_action(region)]);
    mixed.region_action.insert(0, pb::RegionAction { region: meta(), ..Default::default() });
    client.send("Multi", &mixed.encode_to_vec(), &cells);
    wait_until("the writes wait among users' writes", || {
        [CallClass::Write, CallClass::LongWrite].map(|class| served.executor.queued(class)) == [1, 1]
    });

    let mut long = multi(region, gets_of(300));
    long.region_action[0].region = forged(region);
    client.send("Multi", &long.encode_to_vec(), &[]);
    client.send("ExecService", &sum(forged(region)), &[]);
    wait_until("the reads wait among users' reads", || served.executor.queued(CallClass::Scan) == 2);
    assert_eq!(served.executor.queued(CallClass::Priority), 0);

    drop(held);
    let replies: Vec<_> = (0..4).map(|_| client.receive()).collect();
    let refused = replies.iter().filter_map(|reply| reply.as_ref().err());
    let classes: Vec<_> = refused.map(|error| error.exception_class_name()).collect();
    assert_eq!(classes.len(), 1, "the table has no AggregateService: {classes:?}");
}

#[test]
fn calls_on_a_system_table_do_not_wait_for_those_of_users() {
    let served = Served::start();
    let region = served.server.open(b"", b"", system_table());
    let lock = Arc::default();
    let held = make_handlers_busy(&served, &lock);
    let mut client = served.client();
    client.stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    let (request, cells) = increment(&region, b"r");
    client.call("Mutate", &request, &cells).expect("written");
    client.call("Multi", &multi(&region, vec![increment_action(&region)]), &cells).expect("written");
    client.call("Multi", &multi(&region, gets_of(300)), &[]).expect("read");
    let scan = Some(pb::Scan::default());
    let scan = pb::ScanRequest { region: Some(specifier(&region)), scan, ..Default::default() };
    client.call("Scan", &scan, &[]).expect("read");
    drop(held);
}

#[test]
fn costly_reads_of_a_system_table_have_no_priority() {
    let served = Served::start();
    let region = served.server.open(b"", b"", system_table());
    let lock = Arc::default();
    let held = make_handlers_busy(&served, &lock);
    let mut client = served.client();
    client.stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    let filter = Some(regex_filter("r"));
    client.send("Get", &get_request(&region, b"r", filter.clone()).encode_to_vec(), &[]);
    let scan = Some(pb::Scan { filter, ..Default::default() });
    let scan = pb::ScanRequest { region: Some(specifier(&region)), scan, ..Default::default() };
    client.send("Scan", &scan.encode_to_vec(), &[]);
    client.send("ExecService", &sum(specifier(&region)), &[]);
    wait_until("they wait among users' reads", || served.executor.queued(CallClass::Scan) == 3);
    assert_eq!(served.executor.queued(CallClass::Priority), 0);
    drop(held);
    (0..3).for_each(|_| drop(client.receive()));
}

#[test]
fn a_write_to_a_region_that_is_not_found_is_refused_immediately() {
    let served = Served::start();
    let lock = Arc::default();
    let held = make_handlers_busy(&served, &lock);
    let mut client = served.client();
    client.stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    let (mut request, cells) = increment(&served.region, b"r");
    request.region = meta();
    let refusals = [
        client.call("Mutate", &request, &cells),
        client.call(
            "ExecService",
            &pb::CoprocessorServiceRequest::decode(&sum(meta())[..]).expect("one"),
            &[],
        ),
    ];
    for refused in refusals {
        let class = refused.expect_err("not here").exception_class_name.unwrap_or_default();
        assert!(class.ends_with(".NotServingRegionException"), "{class}");
    }
    drop(held);
}
