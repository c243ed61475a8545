//! Multi: alignment of cells, order of results, and which errors affect one action or all.

use std::time::Instant;

use bytes::Bytes;
use evenkeel_common::{CallerState, ErrorKind, HBaseError, KeyValue, TryError, Wait};
use evenkeel_protocol::pb::mutation_proto::MutationType;
use evenkeel_protocol::{DecodeBudget, pb};
use evenkeel_region::operations::Scan;
use evenkeel_region::region::Region;
use evenkeel_region::scanner::TimeSlice;
use prost::Message;

use super::chore::near_its_limit;
use crate::convert::multi::MultiRequest;
use crate::limits::write_throttle::HOLD_MAX;
use crate::requests::inline::RunsOn;
use crate::requests::multi::{self, MultiKind, kind};
use crate::testing::*;
use crate::{Caller, RegionServerConfig};

fn run_as(
    server: &TestServer,
    request: &pb::MultiRequest,
    cells: &[KeyValue],
    caller: Caller,
) -> Result<TestReply<pb::MultiResponse>, HBaseError> {
    let request = decoded(request);
    // The same choice as the service's.
    let reply = wait(|reply| match kind(&request) {
        MultiKind::Reads => {
            let read = multi::read(&server.server, &request, &caller, Wait::Allowed, TimeSlice::UNLIMITED);
            reply.send(read.map_err(TryError::into_failure));
        }
        _ => multi::multi(
            &server.server,
            &request,
            block(cells),
            (caller, &CallerState::default()),
            reply,
            RunsOn::Blocking,
        ),
    })?;
    let message = pb::MultiResponse::decode(&reply.message.encode_to_vec()[..]).expect("well-formed");
    Ok(TestReply { message, cells: reply.cells })
}

fn decoded(request: &pb::MultiRequest) -> MultiRequest {
    let mut none = || None;
    let mut budget = DecodeBudget::new(1 << 30, &mut none);
    MultiRequest::decode(request.encode_to_vec().into(), &mut budget).expect("well-formed")
}

pub(super) fn run(
    server: &TestServer,
    actions: Vec<pb::RegionAction>,
    cells: &[KeyValue],
) -> TestReply<pb::MultiResponse> {
    let request = pb::MultiRequest { region_action: actions, ..pb::MultiRequest::default() };
    run_as(server, &request, cells, caller()).expect("answered")
}

pub(super) fn on(region: &Region, action: Vec<pb::Action>) -> pb::RegionAction {
    pb::RegionAction { region: specifier(region), action, ..pb::RegionAction::default() }
}

fn on_nothing(action: Vec<pb::Action>) -> pb::RegionAction {
    let region =
        pb::RegionSpecifier { r#type: 2, value: Bytes::from_static(b"00000000000000000000000000000000") };
    pb::RegionAction { region, action, ..pb::RegionAction::default() }
}

fn mutation(index: u32, kind: MutationType, row: &'static [u8], cells: i32) -> pb::Action {
    let mutation = pb::MutationProto {
        row: Some(Bytes::from_static(row)),
        mutate_type: Some(kind as i32),
        associated_cell_count: Some(cells),
        ..pb::MutationProto::default()
    };
    pb::Action { index: Some(index), mutation: Some(mutation), ..pb::Action::default() }
}

pub(super) fn put_action(index: u32, row: &'static [u8]) -> pb::Action {
    mutation(index, MutationType::Put, row, 1)
}

pub(super) fn get_action(index: u32, row: &'static [u8]) -> pb::Action {
    let get = pb::Get { row: Bytes::from_static(row), ..pb::Get::default() };
    pb::Action { index: Some(index), get: Some(get), ..pb::Action::default() }
}

fn condition(row: &'static [u8], value: &'static [u8]) -> pb::Condition {
    let comparable = pb::ByteArrayComparable { value: Some(Bytes::from_static(value)) };
    pb::Condition {
        row: Bytes::from_static(row),
        family: Some(Bytes::from_static(b"f")),
        qualifier: Some(Bytes::from_static(b"q")),
        compare_type: Some(pb::CompareType::Equal as i32),
        comparator: Some(pb::Comparator {
            name: "org.apache.hadoop.hbase.filter.BinaryComparator".to_owned(),
            serialized_comparator: Some(pb::BinaryComparator { comparable }.encode_to_vec().into()),
        }),
        ..pb::Condition::default()
    }
}

fn name(pair: Option<&pb::NameBytesPair>) -> &str {
    pair.map_or("", |pair| pair.name.rsplit('.').next().unwrap_or_default())
}

fn one() -> &'static [u8] {
    b"\0\0\0\0\0\0\0\x01"
}

fn stored(region: &std::sync::Arc<Region>, row: &'static [u8]) -> Vec<String> {
    let cells = region.get(evenkeel_region::operations::Scan::get(row)).expect("read");
    cells.iter().map(|cell| text(&KeyValue::copy_of(&cell))).collect()
}

/// Only read-only requests may be restarted.
#[test]
fn the_actions_of_a_request_decide_where_it_runs() {
    let (_server, region) = TestServer::with_region();
    let service =
        pb::Action { service_call: Some(pb::CoprocessorServiceCall::default()), ..pb::Action::default() };
    let (get, put) = (|| get_action(1, b"a"), || put_action(2, b"b"));
    let increment = || mutation(3, MutationType::Increment, b"n", 1);
    let kind_of = |region_action: pb::RegionAction, condition| {
        let request =
            pb::MultiRequest { region_action: vec![region_action], condition, ..pb::MultiRequest::default() };
        kind(&decoded(&request))
    };
    let each = |actions| kind_of(on(&region, actions), None);
    assert_eq!([each(vec![]), each(vec![get(), get()])], [MultiKind::Reads; 2]);
    assert_eq!(each(vec![put(), put()]), MultiKind::Writes);
    assert_eq!([each(vec![put(), get()]), each(vec![put(), increment()])], [MultiKind::ReadsAndWrites; 2]);
    assert_eq!(each(vec![get(), increment(), service]), MultiKind::Services);
    let together = pb::RegionAction { atomic: Some(true), ..on(&region, vec![put()]) };
    let conditional = pb::RegionAction { condition: Some(condition(b"a", b"v")), ..on(&region, vec![put()]) };
    assert_eq!([kind_of(together.clone(), None), kind_of(conditional, None)], [MultiKind::Atomic; 2]);
    assert_eq!(kind_of(on(&region, vec![put()]), Some(condition(b"a", b"v"))), MultiKind::Atomic);
    let filter = Some(pb::Filter::default());
    let filtered = pb::Condition { filter, ..condition(b"a", b"v") };
    assert_eq!(kind_of(on(&region, vec![put()]), Some(filtered)), MultiKind::ReadsAndWrites);
    let twice = pb::MultiRequest { region_action: vec![together.clone(), together], ..Default::default() };
    assert_eq!(kind(&decoded(&twice)), MultiKind::ReadsAndWrites, "the second may wait for the first");
}

#[test]
fn results_and_their_cells_come_in_the_order_of_the_request() {
    let (server, region) = TestServer::with_region();
    put(&region, &[cell(b"g", b"q", b"old")]);
    let actions = vec![
        put_action(1, b"a"),
        get_action(2, b"g"),
        mutation(3, MutationType::Increment, b"n", 1),
        get_action(4, b"none"),
        put_action(5, b"b"),
        get_action(6, b"g"),
    ];
    let cells = [cell(b"a", b"q", b"1"), cell(b"n", b"q", one()), cell(b"b", b"q", b"2")];
    let reply = run(&server, vec![on(&region, actions)], &cells);
    let result = &reply.message.region_action_result[0];
    assert!(result.exception.is_none() && result.processed.is_none());
    let entries = &result.result_or_exception;
    assert_eq!(entries.iter().map(|entry| entry.index()).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    let counts: Vec<_> = entries
        .iter()
        .map(|entry| entry.result.as_ref().expect("a result").associated_cell_count())
        .collect();
    assert_eq!(counts, [0, 1, 1, 0, 0, 1]);
    assert_eq!(
        reply.cells,
        ["g/q=old".to_owned(), format!("n/q={}", String::from_utf8_lossy(one())), "g/q=old".to_owned()]
    );
    assert_eq!(
        (stored(&region, b"a"), stored(&region, b"b")),
        (vec!["a/q=1".to_owned()], vec!["b/q=2".to_owned()])
    );
    assert_eq!(reply.message.region_statistics, Some(pb::MultiRegionLoadStats::default()));
}

#[test]
fn an_increment_sees_the_puts_before_it() {
    let (server, region) = TestServer::with_region();
    let actions = vec![put_action(0, b"n"), mutation(1, MutationType::Increment, b"n", 1)];
    run(&server, vec![on(&region, actions)], &[cell(b"n", b"q", one()), cell(b"n", b"q", one())]);
    assert_eq!(stored(&region, b"n"), ["n/q=\0\0\0\0\0\0\0\x02"]);
}

#[test]
fn cells_of_a_region_that_is_not_here_are_skipped() {
    let (server, region) = TestServer::with_region();
    let away = on_nothing(vec![
        put_action(1, b"x"),
        get_action(2, b"x"),
        mutation(3, MutationType::Delete, b"x", 1),
    ]);
    let delete = KeyValue::new(b"x", b"f", b"q", 9, evenkeel_common::CellType::DeleteColumn, b"");
    let cells = [cell(b"x", b"q", b"lost"), delete, cell(b"a", b"q", b"kept")];
    let reply = run(&server, vec![away, on(&region, vec![put_action(4, b"a")])], &cells);
    let results = &reply.message.region_action_result;
    assert_eq!(name(results[0].exception.as_ref()), "NotServingRegionException");
    assert!(results[0].result_or_exception.is_empty(), "a failed region has no entries");
    assert_eq!(results[1].result_or_exception[0].index(), 4);
    assert_eq!(stored(&region, b"a"), ["a/q=kept"]);
}

#[test]
fn a_bad_mutation_fails_alone_and_takes_its_cells() {
    let (server, _) = TestServer::with_region();
    let low = server.open(
        b"",
        b"m",
        evenkeel_common::TableDescriptor::new("low".parse().expect("legal"))
            .with_family(evenkeel_common::ColumnFamilyDescriptor::new(b"f").expect("legal")),
    );
    let actions = vec![put_action(1, b"a"), put_action(2, b"b"), put_action(3, b"z"), put_action(4, b"c")];
    let cells =
        [cell(b"a", b"q", b"1"), cell(b"other", b"q", b"2"), cell(b"z", b"q", b"3"), cell(b"c", b"q", b"4")];
    let reply = run(&server, vec![on(&low, actions)], &cells);
    let entries = &reply.message.region_action_result[0].result_or_exception;
    let errors: Vec<_> = entries.iter().map(|entry| name(entry.exception.as_ref())).collect();
    assert_eq!(errors, ["", "DoNotRetryIOException", "WrongRegionException", ""]);
    assert_eq!((stored(&low, b"a").len(), stored(&low, b"b").len(), stored(&low, b"c").len()), (1, 0, 1));
}

/// HBase checks the sizes of a batch before it applies any of it. Gets do not divide a batch, and
/// Increments do.
#[test]
fn a_cell_that_is_too_large_fails_the_puts_and_deletes_around_it() {
    let (server, _) = TestServer::with_region();
    let table = evenkeel_common::TableDescriptor::new("small".parse().expect("legal"))
        .with_family(evenkeel_common::ColumnFamilyDescriptor::new(b"f").expect("legal"))
        .with("hbase.server.keyvalue.maxsize", "100");
    let region = server.open(b"", b"", table);
    let increment = |index, row| mutation(index, MutationType::Increment, row, 1);
    let actions = vec![
        put_action(1, b"a"),
        increment(2, b"i"),
        put_action(3, b"b"),
        get_action(4, b"a"),
        put_action(5, b"c"),
        put_action(6, b"d"),
        increment(7, b"i"),
        put_action(8, b"e"),
    ];
    let cells = [
        cell(b"a", b"q", b"1"),
        cell(b"i", b"q", one()),
        cell(b"b", b"q", b"2"),
        cell(b"c", b"q", &[7; 100]),
        cell(b"d", b"q", b"3"),
        cell(b"i", b"q", one()),
        cell(b"e", b"q", b"4"),
    ];
    let reply = run(&server, vec![on(&region, actions)], &cells);
    let entries = &reply.message.region_action_result[0].result_or_exception;
    let errors: Vec<_> = entries.iter().map(|entry| name(entry.exception.as_ref())).collect();
    let refused = "DoNotRetryIOException";
    assert_eq!(errors, ["", "", refused, "", refused, refused, "", ""]);
    for index in [2, 4, 5] {
        let error = entries[index].exception.as_ref().expect("refused");
        let text = String::from_utf8_lossy(error.value.as_deref().unwrap_or_default());
        assert!(text.contains("exceeds limit of 100 bytes"), "{text}");
    }
    for (row, cells) in [(&b"a"[..], 1), (b"b", 0), (b"c", 0), (b"d", 0), (b"e", 1)] {
        assert_eq!(stored(&region, row).len(), cells, "{}", String::from_utf8_lossy(row));
    }
    assert_eq!(stored(&region, b"i"), ["i/q=\0\0\0\0\0\0\0\u{2}"]);
}

#[test]
fn an_atomic_action_applies_as_a_whole() {
    let (server, region) = TestServer::with_region();
    let actions = vec![put_action(7, b"a"), mutation(8, MutationType::Increment, b"a", 1)];
    let atomic = pb::RegionAction { atomic: Some(true), ..on(&region, actions) };
    let reply = run(&server, vec![atomic], &[cell(b"a", b"p", b"1"), cell(b"a", b"n", one())]);
    assert_eq!(reply.message.processed, Some(true));
    let result = &reply.message.region_action_result[0];
    assert_eq!(result.processed, Some(true));
    assert!(reply.cells.is_empty(), "results of a whole are inside the message");
    let cells: Vec<_> = result
        .result_or_exception
        .iter()
        .map(|entry| entry.result.as_ref().expect("a result").cell.len())
        .collect();
    assert_eq!(cells, [1, 0]);
    assert_eq!(stored(&region, b"a").len(), 2);
}

#[test]
fn a_get_in_an_atomic_action_fails_it_and_nothing_else() {
    let (server, region) = TestServer::with_region();
    let atomic = pb::RegionAction {
        atomic: Some(true),
        ..on(&region, vec![get_action(0, b"a"), put_action(1, b"a")])
    };
    let cells = [cell(b"a", b"q", b"no"), cell(b"b", b"q", b"yes")];
    let reply = run(&server, vec![atomic, on(&region, vec![put_action(2, b"b")])], &cells);
    let results = &reply.message.region_action_result;
    assert_eq!(name(results[0].exception.as_ref()), "DoNotRetryIOException");
    assert_eq!((stored(&region, b"a").len(), stored(&region, b"b")), (0, vec!["b/q=yes".to_owned()]));
}

#[test]
fn a_condition_applies_to_its_region_action() {
    let (server, region) = TestServer::with_region();
    put(&region, &[cell(b"a", b"q", b"right")]);
    let conditional =
        |value, actions| pb::RegionAction { condition: Some(condition(b"a", value)), ..on(&region, actions) };
    let cells = [cell(b"a", b"x", b"1"), cell(b"a", b"y", b"2"), cell(b"a", b"z", b"3")];
    let actions = vec![
        conditional(b"wrong", vec![put_action(5, b"a")]),
        conditional(b"right", vec![put_action(6, b"a"), put_action(7, b"a")]),
    ];
    let reply = run(&server, actions, &cells);
    let results = &reply.message.region_action_result;
    assert_eq!(results.iter().map(|result| result.processed).collect::<Vec<_>>(), [Some(false), Some(true)]);
    assert_eq!(results[1].result_or_exception.len(), 2);
    assert_eq!(reply.message.processed, None);
    assert_eq!(stored(&region, b"a"), ["a/q=right", "a/y=2", "a/z=3"]);
    let elsewhere = conditional(b"right", vec![put_action(0, b"b")]);
    let reply = run(&server, vec![elsewhere], &[cell(b"b", b"q", b"1")]);
    assert_eq!(name(reply.message.region_action_result[0].exception.as_ref()), "DoNotRetryIOException");
}

#[test]
fn old_clients_put_the_condition_on_the_request() {
    let (server, region) = TestServer::with_region();
    put(&region, &[cell(b"a", b"q", b"right")]);
    for (value, processed) in [(&b"right"[..], true), (b"wrong", false)] {
        let action = pb::RegionAction {
            atomic: Some(true),
            ..on(&region, vec![put_action(0, b"a"), put_action(0, b"a")])
        };
        let request = pb::MultiRequest {
            region_action: vec![action],
            condition: Some(condition(b"a", value)),
            ..pb::MultiRequest::default()
        };
        let cells = [cell(b"a", b"x", b"1"), cell(b"a", b"y", b"1")];
        let reply = run_as(&server, &request, &cells, caller()).expect("answered");
        assert_eq!(reply.message.processed, Some(processed));
        assert_eq!(reply.message.region_action_result[0].result_or_exception.len(), 2);
    }
    let empty = pb::MultiRequest { condition: Some(condition(b"a", b"")), ..pb::MultiRequest::default() };
    assert_eq!(run_as(&server, &empty, &[], caller()).expect("answered").message.processed, Some(true));
}

#[test]
fn a_full_reply_rejects_the_remaining_actions() {
    let server = TestServer::new(RegionServerConfig { result_bytes_max: 1, ..RegionServerConfig::default() });
    let region = server.open(b"", b"", table());
    put(&region, &[cell(b"a", b"q", b"v")]);
    let actions = || vec![get_action(0, b"a"), put_action(1, b"x"), get_action(2, b"a")];
    let after = || vec![put_action(3, b"y")];
    let request = pb::MultiRequest {
        region_action: vec![on(&region, actions()), on_nothing(after())],
        ..pb::MultiRequest::default()
    };
    let cells = [cell(b"x", b"q", b"1"), cell(b"y", b"q", b"2")];
    let errors = |reply: &TestReply<pb::MultiResponse>| {
        let entries = reply.message.region_action_result[0].result_or_exception.clone();
        entries.iter().map(|entry| name(entry.exception.as_ref()).to_owned()).collect::<Vec<_>>()
    };
    let reply = run_as(&server, &request, &cells, caller()).expect("answered");
    assert_eq!(errors(&reply), ["", "MultiActionResultTooLarge", "MultiActionResultTooLarge"]);
    assert!(stored(&region, b"x").is_empty());
    let old = Caller { version: None, ..caller() };
    let reply = run_as(&server, &request, &cells, old).expect("answered");
    assert_eq!(errors(&reply), ["", "", ""], "an old client would not understand");
}

#[test]
fn write_results_and_errors_count_toward_the_reply() {
    let config = RegionServerConfig { result_bytes_max: 150_000, ..RegionServerConfig::default() };
    let server = TestServer::new(config);
    let region = server.open(b"", b"", table());
    put(&region, &[cell(b"a", b"q", &[7; 100_000])]);
    let append = |index| mutation(index, MutationType::Append, b"a", 1);
    let too_large = |reply: &TestReply<pb::MultiResponse>| -> Vec<bool> {
        let entries = reply.message.region_action_result.iter().flat_map(|of| &of.result_or_exception);
        entries.map(|entry| name(entry.exception.as_ref()) == "MultiActionResultTooLarge").collect()
    };
    let appends = on(&region, (0..50).map(append).collect());
    let reply = run(&server, vec![appends], &vec![cell(b"a", b"q", b"x"); 50]);
    let (made, refused): (Vec<_>, Vec<_>) = too_large(&reply).into_iter().partition(|too_large| !too_large);
    // An Append may begin before the last one has reported its bytes.
    assert!(made.len() >= 2 && refused.len() >= 30, "{} made, {} refused", made.len(), refused.len());
    let value_bytes = region.get(Scan::get("a")).expect("read").get(0).value().len();
    assert_eq!(value_bytes, 100_000 + made.len(), "what is refused is not made");
    // Puts without a row.
    let nameless = pb::MutationProto { mutate_type: Some(MutationType::Put as i32), ..Default::default() };
    let wrong =
        |index| pb::Action { index: Some(index), mutation: Some(nameless.clone()), ..Default::default() };
    let failing = |count| {
        let of_region = on(&region, (0..count).map(wrong).collect());
        let reply = run(&server, vec![of_region], &[]);
        (too_large(&reply), reply.message.encoded_len())
    };
    let (told, _) = failing(3000);
    assert!(!told[0] && told[2999], "the first are told why");
    let reply_bytes = failing(6000).1 - failing(3000).1;
    assert!(reply_bytes < 3000 * 250, "{reply_bytes} bytes for 3000 more");
}

#[test]
fn a_reply_to_an_old_client_leaves_room_for_others() {
    let (server, region) = TestServer::with_region();
    put(&region, &[cell(b"a", b"q", &[7; 60_000])]);
    let nearly_all = server.unsent.max() - 900_000;
    server.unsent.add(nearly_all);
    let request = pb::MultiRequest {
        region_action: vec![on(&region, (0..20).map(|index| get_action(index, b"a")).collect())],
        ..pb::MultiRequest::default()
    };
    let old = Caller { version: None, ..caller() };
    let reply = run_as(&server, &request, &[], old).expect("answered");
    server.unsent.release(nearly_all);
    assert_eq!(server.unsent.used(), 0, "everything is given back");
    let entries = &reply.message.region_action_result[0].result_or_exception;
    let failed = entries.iter().filter(|entry| entry.exception.is_some()).count();
    assert!((10..18).contains(&failed) && reply.cells.len() == 20 - failed, "{failed} failed");
}

/// A client that gets some rows immediately requests the rest; one that gets none must back off.
#[test]
fn a_row_without_room_is_left_out() {
    let (server, region) = TestServer::with_region();
    put(&region, &[cell(b"a", b"q", &[7; 200_000])]);
    let request = pb::MultiRequest {
        region_action: vec![on(&region, (0..4).map(|index| get_action(index, b"a")).collect())],
        ..pb::MultiRequest::default()
    };
    for (room, rows, first_error) in
        [(500_000, 1, ErrorKind::MultiActionResultTooLarge), (1000, 0, ErrorKind::CallQueueTooBig)]
    {
        for caller in [caller(), caller_without_codec()] {
            let nearly_all = server.unsent.max() - room;
            server.unsent.add(nearly_all);
            let reply = run_as(&server, &request, &[], caller).expect("answered");
            server.unsent.release(nearly_all);
            let entries = &reply.message.region_action_result[0].result_or_exception;
            let errors: Vec<_> =
                entries.iter().filter_map(|e| e.exception.as_ref()).map(|e| e.name.as_str()).collect();
            assert_eq!(errors.len(), 4 - rows, "{room} bytes of room");
            assert_eq!(errors[0], first_error.class_name(), "{room} bytes of room");
            assert_eq!(server.unsent.used(), 0, "everything is given back");
        }
    }
}

#[test]
fn large_blocks_do_not_cut_a_small_reply_while_others_wait_for_their_clients() {
    const ROWS: [&[u8]; 8] = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"];
    let (server, region) = TestServer::with_region();
    for row in ROWS {
        put(&region, &[cell(row, b"large", &[7; 40_000]), cell(row, b"q", b"v")]);
    }
    region.flush().expect("flushed");
    let nearly_all = server.unsent.max() - 1000;
    server.unsent.add(nearly_all);
    let column = pb::Column { family: Bytes::from_static(b"f"), qualifier: vec![Bytes::from_static(b"q")] };
    let actions = ROWS.iter().zip(0..).map(|(row, index)| {
        let mut action = get_action(index, row);
        action.get.as_mut().expect("a Get").column = vec![column.clone()];
        action
    });
    let reply = run(&server, vec![on(&region, actions.collect())], &[]);
    assert_eq!(reply.cells.len(), ROWS.len(), "{:?}", reply.message.region_action_result);
    server.unsent.release(nearly_all);
}

#[test]
fn without_a_codec_cells_are_inside_results() {
    let (server, region) = TestServer::with_region();
    put(&region, &[cell(b"a", b"q", b"v")]);
    let request = pb::MultiRequest {
        region_action: vec![on(&region, vec![get_action(1, b"a")])],
        ..Default::default()
    };
    let reply = run_as(&server, &request, &[], caller_without_codec()).expect("answered");
    let result =
        reply.message.region_action_result[0].result_or_exception[0].result.clone().expect("a result");
    assert_eq!((result.cell.len(), result.associated_cell_count), (1, None));
}

#[test]
fn large_batches_are_refused_only_when_configured() {
    for reject in [false, true] {
        let config =
            RegionServerConfig { multi_actions_warn: 1, multi_actions_reject: reject, ..Default::default() };
        let server = TestServer::new(config);
        let region = server.open(b"", b"", table());
        let actions = vec![get_action(0, b"a"), get_action(1, b"b")];
        let request = pb::MultiRequest { region_action: vec![on(&region, actions)], ..Default::default() };
        let outcome = run_as(&server, &request, &[], caller());
        assert_eq!(outcome.err().map(|error| error.is_do_not_retry()), reject.then_some(true));
    }
}

#[test]
fn empty_actions_fail_alone() {
    let (server, region) = TestServer::with_region();
    let reply =
        run(&server, vec![on(&region, vec![pb::Action { index: Some(1), ..pb::Action::default() }])], &[]);
    let entry = &reply.message.region_action_result[0].result_or_exception[0];
    assert_eq!((entry.index(), name(entry.exception.as_ref())), (1, "IOException"));
}

#[test]
fn large_and_refused_requests_are_held() {
    let (server, region) = near_its_limit(table());
    let throttle = server.server.background().write_throttle();
    let multi = |bytes: usize| {
        let started = Instant::now();
        let cells = [cell(b"a", b"q", &vec![7; bytes]), cell(b"b", b"q", b"1")];
        let actions = vec![put_action(1, b"a"), get_action(2, b"a"), put_action(3, b"b")];
        let reply = run(&server, vec![on(&region, actions)], &cells);
        let entries = &reply.message.region_action_result[0].result_or_exception;
        let failed: Vec<_> = entries.iter().map(|entry| name(entry.exception.as_ref()).to_owned()).collect();
        (failed, started.elapsed())
    };
    assert_eq!((multi(1000).0, throttle.count()), (vec![String::new(); 3], 0));
    let (failed, took) = multi(600_000);
    assert!(failed == ["", "", ""] && throttle.count() == 1 && took >= HOLD_MAX / 8, "{failed:?} {took:?}");
    assert_eq!(multi(500_000).0, ["", "", ""], "there was room before it");
    let bytes = server.server.memory.bytes();
    let (failed, took) = multi(100_000);
    assert_eq!(failed, ["RegionTooBusyException", "", "RegionTooBusyException"], "reads go on");
    assert!(took >= HOLD_MAX, "{took:?}");
    assert_eq!(
        (server.server.memory.bytes(), throttle.count()),
        (bytes, 3),
        "what is refused is not counted"
    );
    let reads = run(&server, vec![on(&region, vec![get_action(1, b"b")])], &[]);
    assert_eq!((reads.cells, throttle.count()), (vec!["b/q=1".to_owned()], 3), "reads are not held");
}

#[test]
fn appends_are_held_for_the_values_that_they_write() {
    let (server, region) = near_its_limit(table());
    put(&region, &[cell(b"a", b"q", &vec![7; 200_000]), cell(b"b", b"q", &vec![7; 200_000])]);
    server.server.run_chore();
    let append = |index, row| mutation(index, MutationType::Append, row, 1);
    let started = Instant::now();
    let actions = vec![append(1, b"a"), append(2, b"b")];
    run(&server, vec![on(&region, actions)], &[cell(b"a", b"q", b"1"), cell(b"b", b"q", b"1")]);
    let (took, bytes) = (started.elapsed(), server.server.memory.bytes());
    assert!((800_000..802_000).contains(&bytes), "{bytes}");
    assert!(took >= HOLD_MAX / 4, "{took:?}");
    assert_eq!(server.server.background().write_throttle().count(), 1);
}
