//! The ledger of slow requests says what a request computed: decoding, MemStore, filter, encoding.
//! No request waits here, so the tests compare these causes only with each other and with
//! `computing`: on a busy machine each of them may also wait for a processor.

use evenkeel_client::{
    CellBlockCodec, ClientConfig, Comparator, CompareOp, Connection, Filter, Get, Put, Scan, Table,
};
use serde_json::Value;

use crate::common::config;
use crate::faulty_server::{FaultyServer, table_name};

const COMPUTING: [&str; 5] = ["decode", "memStore", "filter", "encode", "computing"];

fn cause_ms(request: &Value, cause: &str) -> f64 {
    let causes = request["causes"].as_array().expect("causes");
    causes.iter().find(|of| of["cause"] == cause).map_or(0.0, |of| of["ms"].as_f64().expect("a number"))
}

/// The share of a cause in what a request computed.
fn share(request: &Value, cause: &str) -> f64 {
    cause_ms(request, cause) / COMPUTING.iter().map(|cause| cause_ms(request, cause)).sum::<f64>()
}

/// The slowest request of a method.
fn slowest(server: &FaultyServer, method: &str) -> Value {
    let ledger = server.ledger();
    let requests = ledger["slow"].as_array().expect("requests");
    let total = |request: &&Value| request["totalMs"].as_f64().expect("a number");
    let of_method = requests.iter().filter(|request| request["method"] == method);
    let slowest = of_method.max_by(|a, b| total(a).total_cmp(&total(b))).cloned();
    slowest.unwrap_or_else(|| panic!("no {method} was slow: {ledger:#}"))
}

fn put_rows(server: &FaultyServer, table: &Table, rows: usize) {
    let puts = (0..rows).map(|i| Put::new(format!("{i:06}")).column("f", "q", "v"));
    server.runtime.block_on(table.put_all(puts)).expect("written");
}

/// Scans the table; no row is returned.
fn scan_all(server: &FaultyServer, table: &Table, scan: Scan) {
    server.runtime.block_on(async {
        let mut scanner = table.scan(scan.caching(1_000_000));
        while scanner.next_batch().await.expect("rows").is_some() {}
    });
}

/// A regular expression that takes long for each value.
fn costly() -> Filter {
    let pattern = "(.*)(.*)(.*)(.*)(.*)(x{1,50}){1,20}y";
    Filter::value(CompareOp::Equal, Comparator::regex(pattern))
}

#[test]
fn a_costly_filter_is_named() {
    let server = FaultyServer::started(&[("evenkeel.slow.request.ms", "2")], &[]);
    let table = server.table();
    for i in 0..4 {
        server.put(&table, format!("{i}"), 3_000_000);
    }
    scan_all(&server, &table, Scan::new().filter(costly()));
    let scan = slowest(&server, "Scan");
    assert!(share(&scan, "filter") > 0.9, "{scan:#}");
    server.runtime.block_on(table.get(Get::new("1").filter(costly()))).expect("read");
    let get = slowest(&server, "Get");
    // The regular expression is compiled as well.
    assert!(share(&get, "filter") > 0.5, "{get:#}");
}

#[test]
fn reads_of_the_memstore_are_named_and_a_cheap_filter_is_estimated() {
    let server = FaultyServer::started(&[("evenkeel.slow.request.ms", "5")], &[]);
    let table = server.table();
    put_rows(&server, &table, 200_000);
    let of_no_row = || Scan::new().column("f", "absent");
    scan_all(&server, &table, of_no_row());
    let request = slowest(&server, "Scan");
    assert!(share(&request, "memStore") > 0.8, "{request:#}");

    let dropping = Filter::value(CompareOp::Equal, Comparator::substring("absent"));
    scan_all(&server, &table, Scan::new().filter(dropping));
    let ledger = server.ledger();
    let requests = ledger["slow"].as_array().expect("requests");
    let filtered = requests.iter().find(|request| cause_ms(request, "filter") > 0.0);
    let filtered = filtered.unwrap_or_else(|| panic!("no filter was sampled: {ledger:#}"));
    assert!(share(filtered, "filter") > 0.05 && share(filtered, "memStore") > 0.2, "{filtered:#}");

    server.flush();
    let slow_scans = |ledger: &Value| {
        let requests = ledger["slow"].as_array().expect("requests").clone();
        requests.into_iter().filter(|request| request["method"] == "Scan").collect::<Vec<_>>()
    };
    let before = slow_scans(&server.ledger()).len();
    scan_all(&server, &table, of_no_row());
    let after = slow_scans(&server.ledger());
    assert!(after.len() > before, "the newest is first: {after:#?}");
    assert_eq!(cause_ms(&after[0], "memStore"), 0.0, "{:#}", after[0]);
}

#[test]
fn decoding_and_memstore_of_a_large_batch_are_named() {
    let server = FaultyServer::started(&[("evenkeel.slow.request.ms", "5")], &[]);
    let table = server.table();
    put_rows(&server, &table, 50_000);
    let request = slowest(&server, "Multi");
    assert!(cause_ms(&request, "decode") > 0.0 && cause_ms(&request, "memStore") > 0.0, "{request:#}");
    // A batch that was preempted may have a part without an explanation.
    let unexplained = |of: &Value| cause_ms(of, "unexplained") / of["totalMs"].as_f64().expect("a number");
    let is_explained = |ledger: &Value| {
        let requests = ledger["slow"].as_array().expect("requests");
        let mut batches = requests.iter().filter(|request| request["method"] == "Multi");
        batches.any(|batch| unexplained(batch) < 0.01)
    };
    let mut ledger = server.ledger();
    for _ in 0..20 {
        if is_explained(&ledger) {
            break;
        }
        put_rows(&server, &table, 50_000);
        ledger = server.ledger();
    }
    assert!(is_explained(&ledger), "{ledger:#}");
    for request in ledger["slow"].as_array().expect("requests") {
        let causes = request["causes"].as_array().expect("causes");
        let sum: f64 = causes.iter().map(|of| of["ms"].as_f64().expect("a number")).sum();
        let total = request["totalMs"].as_f64().expect("a number");
        assert!(sum < total + 0.1, "more than its time: {request:#}");
    }
}

#[test]
fn compressing_a_reply_is_named() {
    let server = FaultyServer::started(&[("evenkeel.slow.request.ms", "2")], &[]);
    let table = server.table();
    let mut random = 1_u64;
    let bytes = std::iter::repeat_with(|| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 60) as u8
    });
    let value: Vec<u8> = bytes.take(4_000_000).collect();
    server.runtime.block_on(table.put(Put::new("r").column("f", "q", value))).expect("written");
    let bootstrap = format!("127.0.0.1:{}", server.ports[1]);
    let config = ClientConfig { compressor: Some(CellBlockCodec::Gzip), ..config(&bootstrap) };
    let get = async {
        let connection = Connection::connect(config).await?;
        connection.table(table_name()).get(Get::new("r")).await
    };
    server.runtime.block_on(get).expect("read");
    let request = slowest(&server, "Get");
    assert!(share(&request, "encode") > 0.8, "{request:#}");
}
