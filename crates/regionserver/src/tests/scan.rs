//! The scan protocol, step by step.

use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_common::ErrorKind;
use evenkeel_protocol::pb;

use crate::requests::scan::scan;
use crate::testing::*;
use crate::{Caller, RegionServerConfig};

type Response = TestReply<pb::ScanResponse>;

fn call_as(
    server: &TestServer,
    request: &pb::ScanRequest,
    caller: &Caller,
) -> Result<Response, evenkeel_common::HBaseError> {
    let reply = scan(&server.server, request, caller)?.expect("a reply in time");
    let message = reply.message.clone();
    Ok(TestReply { message, cells: cells_of(reply) })
}

fn call(server: &TestServer, request: &pb::ScanRequest) -> Response {
    call_as(server, request, &caller()).expect("answered")
}

fn open(region: &evenkeel_region::region::Region, rows: u32) -> pb::ScanRequest {
    pb::ScanRequest {
        region: Some(specifier(region)),
        scan: Some(pb::Scan::default()),
        number_of_rows: Some(rows),
        client_handles_partials: Some(true),
        client_handles_heartbeats: Some(true),
        ..pb::ScanRequest::default()
    }
}

fn next(response: &Response, seq: u64, rows: u32) -> pb::ScanRequest {
    pb::ScanRequest {
        scanner_id: response.message.scanner_id,
        number_of_rows: Some(rows),
        next_call_seq: Some(seq),
        client_handles_partials: Some(true),
        client_handles_heartbeats: Some(true),
        ..pb::ScanRequest::default()
    }
}

/// Creates a region with the rows `a` to `e`, with one cell each.
fn five_rows() -> (TestServer, std::sync::Arc<evenkeel_region::region::Region>) {
    let (server, region) = TestServer::with_region();
    for row in [b"a", b"b", b"c", b"d", b"e"] {
        put(&region, &[cell(row, b"q", b"v")]);
    }
    (server, region)
}

fn kind(outcome: Result<Response, evenkeel_common::HBaseError>) -> ErrorKind {
    outcome.expect_err("must fail").kind()
}

#[test]
fn a_scan_is_read_page_by_page_and_closes_itself() {
    let (server, region) = five_rows();
    let first = call(&server, &open(&region, 2));
    assert_eq!(first.cells, ["a/q=v", "b/q=v"]);
    let message = &first.message;
    assert_eq!(
        (message.more_results, message.more_results_in_region, message.ttl),
        (Some(true), Some(true), Some(60_000))
    );
    assert_eq!(
        (&message.cells_per_result[..], &message.partial_flag_per_result[..]),
        (&[1, 1][..], &[false, false][..])
    );
    assert!(message.mvcc_read_point() > 0);
    let second = call(&server, &next(&first, 0, 2));
    assert_eq!(second.cells, ["c/q=v", "d/q=v"]);
    assert_eq!((second.message.scanner_id, second.message.ttl), (first.message.scanner_id, None));
    let last = call(&server, &next(&first, 1, 100));
    assert_eq!(last.cells, ["e/q=v"]);
    assert_eq!((last.message.more_results(), last.message.more_results_in_region()), (true, false));
    assert!(server.server.scanners().is_empty(), "the server closed it");
    let after = call(&server, &next(&first, 2, 1));
    assert_eq!(
        after.message,
        pb::ScanResponse { scanner_id: first.message.scanner_id, ..Default::default() }
    );
    assert_eq!(kind(call_as(&server, &next(&first, 7, 1), &caller())), ErrorKind::OutOfOrderScannerNext);
}

#[test]
fn calls_must_come_in_order_if_they_are_numbered() {
    let (server, region) = five_rows();
    let first = call(&server, &open(&region, 1));
    assert_eq!(kind(call_as(&server, &next(&first, 3, 1), &caller())), ErrorKind::OutOfOrderScannerNext);
    assert_eq!(call(&server, &next(&first, 0, 1)).cells, ["b/q=v"], "the refused call took nothing");
    let unnumbered = pb::ScanRequest { next_call_seq: None, ..next(&first, 0, 1) };
    assert_eq!(call(&server, &unnumbered).cells, ["c/q=v"]);
    assert_eq!(call(&server, &next(&first, 1, 1)).cells, ["d/q=v"], "only numbered calls count");
}

#[test]
fn renewing_keeps_a_scanner_alive_and_reads_nothing() {
    let (server, region) = five_rows();
    let first = call(&server, &open(&region, 1));
    server.clock.advance_ms(59_000);
    let renew = pb::ScanRequest { renew: Some(true), ..next(&first, 0, 10) };
    let nothing = pb::ScanResponse { scanner_id: first.message.scanner_id, ..Default::default() };
    assert_eq!(call(&server, &renew).message, nothing);
    server.clock.advance_ms(59_000);
    assert_eq!(server.server.scanners().expire(), 0);
    assert_eq!(call(&server, &next(&first, 1, 1)).cells, ["b/q=v"]);
}

#[test]
fn a_scanner_lease_expires() {
    let (server, region) = five_rows();
    let first = call(&server, &open(&region, 1));
    server.clock.advance_ms(59_999);
    assert_eq!(server.server.scanners().expire(), 0);
    server.clock.advance_ms(1);
    assert_eq!(server.server.scanners().expire(), 1);
    assert_eq!(kind(call_as(&server, &next(&first, 0, 1), &caller())), ErrorKind::UnknownScanner);
}

#[test]
fn a_scanner_in_use_cannot_be_used_twice() {
    let (server, region) = five_rows();
    let first = call(&server, &open(&region, 1));
    let id = first.message.scanner_id();
    let taken = server.server.scanners().take(id).expect("idle");
    assert_eq!(kind(call_as(&server, &next(&first, 0, 1), &caller())), ErrorKind::Lease);
    server.server.scanners().put_back(id, taken);
    assert_eq!(call(&server, &next(&first, 0, 1)).cells, ["b/q=v"]);
}

#[test]
fn a_scan_of_a_moved_region_is_refused() {
    let (server, region) = five_rows();
    let first = call(&server, &open(&region, 1));
    server.server.regions().remove(region.info().encoded_name(), None);
    assert_eq!(kind(call_as(&server, &next(&first, 0, 1), &caller())), ErrorKind::NotServingRegion);
    assert_eq!(kind(call_as(&server, &next(&first, 0, 1), &caller())), ErrorKind::UnknownScanner);
}

#[test]
fn a_limit_of_rows_ends_the_whole_scan() {
    let (server, region) = five_rows();
    let request = pb::ScanRequest { limit_of_rows: Some(2), ..open(&region, 100) };
    let response = call(&server, &request);
    assert_eq!(response.cells, ["a/q=v", "b/q=v"]);
    assert_eq!(
        (response.message.more_results, response.message.more_results_in_region),
        (Some(false), Some(true))
    );
    assert!(server.server.scanners().is_empty());
}

#[test]
fn a_full_reply_cuts_rows_for_clients_that_take_partial_results() {
    let (server, region) = TestServer::with_region();
    put(&region, &[cell(b"a", b"1", b"v"), cell(b"a", b"2", b"v")]);
    put(&region, &[cell(b"b", b"1", b"v")]);
    let small = |request: pb::ScanRequest| pb::ScanRequest {
        scan: Some(pb::Scan { max_result_size: Some(1), ..pb::Scan::default() }),
        ..request
    };
    let first = call(&server, &small(open(&region, 10)));
    assert_eq!(
        (&first.cells[..], &first.message.partial_flag_per_result[..]),
        (&["a/1=v".to_owned()][..], &[true][..])
    );
    let second = call(&server, &next(&first, 0, 10));
    assert_eq!(
        (&second.cells[..], &second.message.partial_flag_per_result[..]),
        (&["a/2=v".to_owned()][..], &[false][..])
    );
    assert_eq!(call(&server, &next(&first, 1, 10)).cells, ["b/1=v"]);
    let whole = pb::ScanRequest { client_handles_partials: None, ..small(open(&region, 10)) };
    let whole = call(&server, &whole);
    assert_eq!(
        (&whole.cells[..], &whole.message.cells_per_result[..]),
        (&["a/1=v".to_owned(), "a/2=v".to_owned()][..], &[2][..])
    );
}

#[test]
fn a_limit_of_rows_counts_a_row_that_was_cut_once() {
    let (server, region) = TestServer::with_region();
    put(&region, &[cell(b"a", b"1", b"v"), cell(b"a", b"2", b"v")]);
    put(&region, &[cell(b"b", b"1", b"v")]);
    let batch = pb::Scan { batch_size: Some(1), ..pb::Scan::default() };
    let request = pb::ScanRequest { scan: Some(batch), limit_of_rows: Some(1), ..open(&region, 10) };
    let response = call(&server, &request);
    assert_eq!(response.cells, ["a/1=v", "a/2=v"]);
    assert_eq!(response.message.more_results, Some(false));
}

#[test]
fn without_a_codec_results_are_messages() {
    let (server, region) = five_rows();
    let response = call_as(&server, &open(&region, 2), &caller_without_codec()).expect("answered");
    assert!(response.cells.is_empty() && response.message.cells_per_result.is_empty());
    let rows: Vec<_> = response.message.results.iter().map(|result| result.cell[0].row.clone()).collect();
    assert_eq!(rows, [Some(Bytes::from_static(b"a")), Some(Bytes::from_static(b"b"))]);
}

#[test]
fn a_close_reads_rows_only_if_requested() {
    let (server, region) = five_rows();
    let first = call(&server, &open(&region, 0));
    assert_eq!((first.cells.len(), first.message.more_results_in_region), (0, Some(true)));
    let close = pb::ScanRequest { close_scanner: Some(true), number_of_rows: None, ..next(&first, 0, 0) };
    assert!(call(&server, &close).cells.is_empty());
    assert!(server.server.scanners().is_empty());
    let small = call(&server, &pb::ScanRequest { close_scanner: Some(true), ..open(&region, 3) });
    assert_eq!(small.cells.len(), 3, "open, read and close in one call");
    assert!(server.server.scanners().is_empty());
    let one = call(&server, &pb::ScanRequest { number_of_rows: None, ..open(&region, 0) });
    assert_eq!(one.cells, ["a/q=v"], "one row when nothing is said");
}

#[test]
fn a_call_that_runs_out_of_time_answers_with_a_heartbeat() {
    let config =
        RegionServerConfig { scanner_lease_ms: 0, scan_time_min_ms: 0, ..RegionServerConfig::default() };
    let server = TestServer::new(config);
    let region = server.open(b"", b"", table());
    for row in [b"a", b"b"] {
        put(&region, &[cell(row, b"q", b"v")]);
    }
    let with_cursor = pb::Scan { need_cursor_result: Some(true), ..pb::Scan::default() };
    let response = call(&server, &pb::ScanRequest { scan: Some(with_cursor), ..open(&region, 10) });
    assert_eq!(response.message.heartbeat_message, Some(true));
    assert!(response.message.cursor.is_some() && response.message.more_results_in_region());
    let patient = pb::ScanRequest { client_handles_heartbeats: None, ..open(&region, 10) };
    assert_eq!(
        call(&server, &patient).cells,
        ["a/q=v", "b/q=v"],
        "a client that takes no heartbeats gets all"
    );
}

#[test]
fn a_scan_past_its_deadline_is_dropped_and_closed() {
    let (server, region) = five_rows();
    let past = Instant::now() - Duration::from_millis(1);
    let late = Caller { received_at: past, deadline: Some(past), ..caller() };
    assert!(scan(&server.server, &open(&region, 1), &late).expect("no error").is_none());
    assert!(server.server.scanners().is_empty());
}

#[test]
fn scan_metrics_are_returned_on_request() {
    let (server, region) = five_rows();
    let tracked = call(&server, &pb::ScanRequest { track_scan_metrics: Some(true), ..open(&region, 2) });
    let metrics = tracked.message.scan_metrics.expect("metrics").metrics;
    let scanned = metrics.iter().find(|metric| metric.name() == "ROWS_SCANNED").expect("told");
    assert_eq!(scanned.value(), 2);
    assert!(call(&server, &open(&region, 1)).message.scan_metrics.is_none());
}

#[test]
fn scans_of_unknown_targets_are_refused() {
    let (server, region) = five_rows();
    assert_eq!(kind(call_as(&server, &pb::ScanRequest::default(), &caller())), ErrorKind::DoNotRetry);
    let unknown = pb::ScanRequest { scanner_id: Some(99), ..pb::ScanRequest::default() };
    assert_eq!(kind(call_as(&server, &unknown, &caller())), ErrorKind::UnknownScanner);
    let family = pb::Column { family: Bytes::from_static(b"none"), qualifier: Vec::new() };
    let scan = pb::Scan { column: vec![family], ..pb::Scan::default() };
    let no_family = pb::ScanRequest { scan: Some(scan), ..open(&region, 1) };
    assert_eq!(kind(call_as(&server, &no_family, &caller())), ErrorKind::NoSuchColumnFamily);
    assert!(server.server.scanners().is_empty());
}

#[test]
fn ids_differ_between_scanners_and_between_lives_of_a_server() {
    use evenkeel_common::ServerName;
    use evenkeel_common::clock::ManualClock;
    let scanners = |start| {
        let limits = crate::ScannerLimits::of(&RegionServerConfig::default());
        crate::Scanners::new(&ServerName::new("h", 1, start), 1, limits, ManualClock::at(0))
    };
    let (first, second) = (scanners(1), scanners(2));
    let mut ids = vec![first.new_id(), first.new_id(), second.new_id(), second.new_id()];
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4);
    assert!(!ids.contains(&0));
}

#[test]
fn a_scanner_over_the_limit_closes_the_stalest() {
    let config = RegionServerConfig { scanners_max: 3, ..RegionServerConfig::default() };
    let server = TestServer::new(config);
    let region = server.open(b"", b"", table());
    for row in [b"a", b"b", b"c", b"d", b"e"] {
        put(&region, &[cell(row, b"q", b"v")]);
    }
    let open_one = || {
        server.clock.advance_ms(1);
        call(&server, &open(&region, 1))
    };
    let (first, second) = (open_one(), open_one());
    server.clock.advance_ms(1);
    call(&server, &next(&first, 0, 1));
    let later = [open_one(), open_one()];
    assert_eq!(server.server.scanners().len(), 3);
    assert_eq!(kind(call_as(&server, &next(&second, 0, 1), &caller())), ErrorKind::UnknownScanner);
    call(&server, &next(&first, 1, 1));
    later.iter().for_each(|scanner| drop(call(&server, &next(scanner, 0, 1))));
}
