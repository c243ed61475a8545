//! Reads that take long, and whose client does not wait for them: they end, and their handler
//! threads are free again.

use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_common::{ErrorKind, TableDescriptor};
use evenkeel_protocol::pb;
use evenkeel_region::region::Region;
use evenkeel_rpc::{CallClass, Executor};
use prost::Message;

use super::inline::{Client, Served, block_of, multi, put_request, regex_filter};
use crate::Caller;
use crate::requests::get;
use crate::testing::*;

/// A read of all rows takes several times as long.
const READ_MAX: Duration = Duration::from_secs(5);
const ROWS: u32 = 6000;
/// The number of calls at once.
const CALLS: usize = 4;

/// A server with a region that takes long to read with [`slow_filter`].
fn served() -> (Served, std::sync::Arc<Region>) {
    let served = Served::start();
    let class = "|org.apache.hadoop.hbase.coprocessor.AggregateImplementation|536870911|";
    let slow: TableDescriptor = table().with("coprocessor$1", class);
    let region = served.server.open(b"y", b"", slow);
    let value = b"ab".repeat(1000);
    (0..ROWS).for_each(|row| put(&region, &[cell(format!("y{row:06}").as_bytes(), b"q", &value)]));
    (served, region)
}

/// A filter that rejects all cells, and takes milliseconds for each.
fn slow_filter() -> pb::Filter {
    regex_filter("(a.{0,60}b){9}c")
}

/// A scan whose client takes no heartbeats.
fn scan(region: &Region) -> Vec<u8> {
    let scan = Some(pb::Scan { filter: Some(slow_filter()), ..Default::default() });
    pb::ScanRequest { region: Some(specifier(region)), scan, ..Default::default() }.encode_to_vec()
}

fn row_count(region: &Region) -> pb::CoprocessorServiceCall {
    let column = pb::Column { family: Bytes::from_static(b"f"), qualifier: Vec::new() };
    let scan = pb::Scan { filter: Some(slow_filter()), column: vec![column], ..Default::default() };
    let request = pb::AggregateRequest {
        interpreter_class_name: "org.apache.hadoop.hbase.client.coprocessor.LongColumnInterpreter".to_owned(),
        scan,
        interpreter_specific_bytes: None,
    };
    pb::CoprocessorServiceCall {
        row: region.info().start_key().clone(),
        service_name: "AggregateService".to_owned(),
        method_name: "GetRowNum".to_owned(),
        request: request.encode_to_vec().into(),
    }
}

fn aggregation(region: &Region) -> Vec<u8> {
    let (region, call) = (specifier(region), row_count(region));
    pb::CoprocessorServiceRequest { region, call }.encode_to_vec()
}

fn gets() -> Vec<pb::Action> {
    let get = |row: u32| pb::Get {
        row: format!("y{row:06}").into(),
        filter: Some(slow_filter()),
        ..Default::default()
    };
    (0..ROWS).map(|row| pb::Action { index: Some(row), get: Some(get(row)), ..Default::default() }).collect()
}

/// Calls that take long: the class of their handlers, method and parameter.
fn long_calls(region: &Region) -> [(CallClass, &'static str, Vec<u8>); 4] {
    let service = pb::Action { service_call: Some(row_count(region)), ..Default::default() };
    [
        (CallClass::Scan, "Scan", scan(region)),
        (CallClass::Scan, "ExecService", aggregation(region)),
        (CallClass::Scan, "Multi", multi(region, gets()).encode_to_vec()),
        (CallClass::LongWrite, "Multi", multi(region, vec![service]).encode_to_vec()),
    ]
}

#[track_caller]
fn wait_for_active(executor: &Executor, class: CallClass, within: Duration, wanted: impl Fn(usize) -> bool) {
    let until = Instant::now() + within;
    while !wanted(executor.active(class)) {
        assert!(Instant::now() < until, "{class:?}: {} calls are running", executor.active(class));
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn start_calls(served: &Served, client: &mut Client, (class, method, param): &(CallClass, &str, Vec<u8>)) {
    wait_for_active(&served.executor, *class, READ_MAX, |active| active == 0);
    (0..CALLS).for_each(|_| client.send(method, param, &[]));
    wait_for_active(&served.executor, *class, READ_MAX, |active| active > 0);
}

#[test]
fn reads_end_when_their_client_disconnects() {
    let (served, region) = served();
    for call in long_calls(&region) {
        let mut client = served.client();
        start_calls(&served, &mut client, &call);
        drop(client);
        wait_for_active(&served.executor, call.0, READ_MAX, |active| active == 0);
    }
    assert!(served.server.server.scanners().is_empty());
}

#[test]
fn reads_end_when_their_deadline_passes() {
    let (served, region) = served();
    let mut client = served.client();
    client.timeout_ms = Some(500);
    for call in long_calls(&region) {
        start_calls(&served, &mut client, &call);
        wait_for_active(&served.executor, call.0, READ_MAX, |active| active == 0);
    }
    assert!(served.server.server.scanners().is_empty());
}

#[test]
fn a_late_read_is_answered_with_a_timeout() {
    let (server, region) = TestServer::with_region();
    let past = Instant::now() - Duration::from_millis(1);
    let late = Caller { received_at: past, deadline: Some(past), ..caller() };
    let get = pb::Get { row: Bytes::from_static(b"r"), ..Default::default() };
    let outcome = get::get(&server.server, pb::GetRequest { region: specifier(&region), get }, &late);
    assert_eq!(outcome.map(|reply| reply.message).expect_err("late").kind(), ErrorKind::Timeout);
}

/// The Gets of a request that also writes end, and its writes are made.
#[test]
fn the_writes_beside_abandoned_reads_are_made() {
    let (served, region) = served();
    let mut actions = gets();
    let written = pb::Action {
        index: Some(ROWS),
        mutation: Some(put_request(&region, b"z").mutation),
        ..Default::default()
    };
    actions.push(written);
    let request = multi(&region, actions).encode_to_vec();
    let mut client = served.client();
    client.send("Multi", &request, &block_of(&[cell(b"z", b"q", b"v")]));
    wait_for_active(&served.executor, CallClass::LongWrite, READ_MAX, |active| active > 0);
    drop(client);
    let until = Instant::now() + READ_MAX;
    while region.get(evenkeel_region::operations::Scan::get("z")).expect("read").is_empty() {
        assert!(Instant::now() < until, "not written");
        std::thread::sleep(Duration::from_millis(1));
    }
}
