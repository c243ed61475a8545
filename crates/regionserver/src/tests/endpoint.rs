//! Coprocessor services.

use bytes::Bytes;
use evenkeel_common::{CallerState, ErrorKind, HBaseError, TableDescriptor};
use evenkeel_protocol::pb::mutation_proto::column_value::QualifierValue;
use evenkeel_protocol::pb::mutation_proto::{ColumnValue, MutationType};
use evenkeel_protocol::{DecodeBudget, pb};
use evenkeel_region::region::Region;
use prost::Message;

use super::chore::near_its_limit;
use crate::RegionServerConfig;
use crate::convert::service::{ServiceCall, ServiceRequest};
use crate::coprocessor::endpoint::{ServiceCaller, exec};
use crate::coprocessor::{BuiltIn, Coprocessors};
use crate::testing::*;

fn call(
    server: &TestServer,
    region: &std::sync::Arc<Region>,
    service: &str,
    method: &str,
    request: &impl Message,
) -> Result<Bytes, HBaseError> {
    let call = pb::CoprocessorServiceCall {
        row: Bytes::new(),
        service_name: service.to_owned(),
        method_name: method.to_owned(),
        request: request.encode_to_vec().into(),
    };
    let call = ServiceCall::decode(call, &mut DecodeBudget::new(1 << 30, &mut || None)).expect("room");
    let request = ServiceRequest { region: specifier(region), call };
    let caller = ServiceCaller { nonce_owner: 1, state: &CallerState::default() };
    let reply = wait(|done| exec(&server.server, region, request, caller, done))?;
    assert_eq!(reply.message.region, specifier(region));
    Ok(reply.message.value.value.expect("a value"))
}

fn aggregate_everywhere() -> RegionServerConfig {
    let coprocessors = Coprocessors::everywhere(BuiltIn::Aggregate);
    RegionServerConfig { coprocessors, ..RegionServerConfig::default() }
}

fn multi_row_table() -> TableDescriptor {
    table().with("coprocessor$1", "|org.apache.hadoop.hbase.coprocessor.MultiRowMutationEndpoint|536870911|")
}

fn put_proto(row: &'static [u8]) -> pb::MutationProto {
    let value = QualifierValue {
        qualifier: Some(Bytes::from_static(b"q")),
        value: Some(Bytes::from_static(b"v")),
        ..QualifierValue::default()
    };
    pb::MutationProto {
        row: Some(Bytes::from_static(row)),
        mutate_type: Some(MutationType::Put as i32),
        column_value: vec![ColumnValue { family: Bytes::from_static(b"f"), qualifier_value: vec![value] }],
        ..pb::MutationProto::default()
    }
}

fn rows(region: &std::sync::Arc<Region>, names: &[&'static [u8]]) -> usize {
    names
        .iter()
        .filter(|row| !region.get(evenkeel_region::operations::Scan::get(**row)).expect("read").is_empty())
        .count()
}

#[test]
fn unregistered_services_are_unknown_protocols() {
    let (server, region) = TestServer::with_region();
    for service in
        ["NoSuchService", "MultiRowMutationService", "AggregateService", "hbase.pb.AggregateService"]
    {
        let error =
            call(&server, &region, service, "X", &pb::AggregateRequest::default()).expect_err("unknown");
        assert_eq!(error.kind(), ErrorKind::UnknownProtocol);
        assert!(
            error
                .message()
                .starts_with(&format!("No registered coprocessor service found for {service} in region t,,"))
        );
    }
}

#[test]
fn multi_row_mutations_apply_together() {
    let server = TestServer::new(RegionServerConfig::default());
    let region = server.open(b"", b"m", multi_row_table());
    let request = |rows: &[&'static [u8]]| pb::MutateRowsRequest {
        mutation_request: rows.iter().map(|row| put_proto(row)).collect(),
        ..pb::MutateRowsRequest::default()
    };
    for service in ["MultiRowMutationService", "hbase.pb.MultiRowMutationService"] {
        let value = call(&server, &region, service, "MutateRows", &request(&[b"a", b"b"])).expect("made");
        assert_eq!(pb::MutateRowsResponse::decode(value).expect("a response").processed, Some(true));
    }
    assert_eq!(rows(&region, &[b"a", b"b"]), 2);
    let outside = call(&server, &region, "MultiRowMutationService", "MutateRows", &request(&[b"c", b"z"]));
    assert_eq!(outside.expect_err("not in the region").kind(), ErrorKind::WrongRegion);
    assert_eq!(rows(&region, &[b"c"]), 0, "none of them was made");
    let method = call(&server, &region, "MultiRowMutationService", "X", &request(&[]));
    assert_eq!(method.expect_err("unknown").kind(), ErrorKind::UnknownProtocol);
}

#[test]
fn multi_row_mutations_are_counted_and_limited() {
    let (server, region) = near_its_limit(multi_row_table());
    let request = pb::MutateRowsRequest {
        mutation_request: vec![put_proto(b"a"), put_proto(b"b")],
        ..pb::MutateRowsRequest::default()
    };
    let mutate = || call(&server, &region, "MultiRowMutationService", "MutateRows", &request);
    mutate().expect("made");
    let bytes = server.server.memory.bytes();
    assert!((2 * 30..2 * 100).contains(&bytes), "{bytes}");
    put(&region, &[cell(b"c", b"q", &vec![7; 1 << 20])]);
    server.server.run_chore();
    assert_eq!(mutate().expect_err("no room").kind(), ErrorKind::RegionTooBusy);
    assert_eq!(server.server.background().write_throttle().count(), 1, "the refusal waited");
}

fn aggregate(interpreter: &str, column: &[&'static [u8]]) -> pb::AggregateRequest {
    let column = pb::Column {
        family: Bytes::from_static(b"f"),
        qualifier: column.iter().map(|qualifier| Bytes::from_static(qualifier)).collect(),
    };
    pb::AggregateRequest {
        interpreter_class_name: format!("org.apache.hadoop.hbase.client.coprocessor.{interpreter}"),
        scan: pb::Scan { column: vec![column], ..pb::Scan::default() },
        interpreter_specific_bytes: None,
    }
}

#[test]
fn long_columns_are_aggregated() {
    let server = TestServer::new(aggregate_everywhere());
    let region = server.open(b"", b"", table());
    for (row, value) in [(b"a", 3i64), (b"b", -5), (b"c", 4)] {
        put(&region, &[cell(row, b"q", &value.to_be_bytes()), cell(row, b"w", &1i64.to_be_bytes())]);
    }
    put(&region, &[cell(b"d", b"q", b"no number")]);
    let run = |method: &str, columns: &[&'static [u8]]| {
        let value =
            call(&server, &region, "AggregateService", method, &aggregate("LongColumnInterpreter", columns));
        pb::AggregateResponse::decode(value.expect("answered")).expect("a response")
    };
    let long = |bytes: &Bytes| pb::LongMsg::decode(bytes.clone()).expect("a long").long_msg;
    let first = |method: &str| run(method, &[b"q"]).first_part.iter().map(long).collect::<Vec<_>>();
    assert_eq!((first("GetMax"), first("GetMin"), first("GetSum")), (vec![4], vec![-5], vec![2]));
    assert_eq!(first("GetStd"), [2, 9 + 25 + 16]);
    let average = run("GetAvg", &[b"q"]);
    assert_eq!(
        (long(&average.first_part[0]), average.second_part.as_deref()),
        (2, Some(&4i64.to_be_bytes()[..]))
    );
    let median = run("GetMedian", &[b"q", b"w"]);
    assert_eq!(median.first_part.iter().map(long).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(run("GetRowNum", &[]).first_part, [Bytes::copy_from_slice(&4i64.to_be_bytes())]);
    assert_eq!(run("GetMax", &[b"absent"]), pb::AggregateResponse::default());
}

#[test]
fn interpreters_and_families_are_checked() {
    let server = TestServer::new(aggregate_everywhere());
    let region = server.open(b"", b"", table());
    let run = |request: &pb::AggregateRequest| call(&server, &region, "AggregateService", "GetMax", request);
    assert!(run(&aggregate("MyInterpreter", &[b"q"])).expect_err("not built in").is_do_not_retry());
    let no_family =
        pb::AggregateRequest { scan: pb::Scan::default(), ..aggregate("LongColumnInterpreter", &[]) };
    assert!(run(&no_family).expect_err("no family").is_do_not_retry());
}

#[test]
fn sums_follow_their_column_interpreters() {
    let server = TestServer::new(aggregate_everywhere());
    let region = server.open(b"", b"", table());
    put(&region, &[cell(b"a", b"q", &1.5f64.to_be_bytes()), cell(b"a", b"d", &[0, 0, 0, 1, 15])]);
    put(&region, &[cell(b"b", b"q", &2.25f64.to_be_bytes()), cell(b"b", b"d", &[0, 0, 0, 3, 0x04, 0xd3])]);
    let sum = |interpreter: &str, column| {
        let value = call(&server, &region, "AggregateService", "GetSum", &aggregate(interpreter, &[column]))
            .expect("answered");
        pb::AggregateResponse::decode(value).expect("a response").first_part.remove(0)
    };
    let double = pb::DoubleMsg::decode(sum("DoubleColumnInterpreter", b"q")).expect("a double").double_msg;
    assert_eq!(double.to_bits(), 3.75f64.to_bits());
    // 1.5 and 1.235, which is rounded to 1.24.
    let decimal = pb::BigDecimalMsg::decode(sum("BigDecimalColumnInterpreter", b"d"))
        .expect("a decimal")
        .bigdecimal_msg;
    assert_eq!(decimal[..], [0, 0, 0, 2, 0x01, 0x12]);
}
