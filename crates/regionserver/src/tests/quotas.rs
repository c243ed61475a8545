//! Quotas: which requests are refused, for how long, and what a refusal leaves unchanged.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use evenkeel_common::cell::KeyValueBuilder;
use evenkeel_common::quota::{self, QuotaTarget};
use evenkeel_common::{
    CallerState, CellType, ColumnFamilyDescriptor, Configuration, ErrorKind, HBaseError, Result,
    TableDescriptor, TableName, TryError, Wait,
};
use evenkeel_protocol::pb::mutation_proto::MutationType;
use evenkeel_protocol::{DecodeBudget, pb};
use evenkeel_region::region::Region;
use evenkeel_region::scanner::TimeSlice;
use pb::ThrottleType as Kind;
use prost::Message;

use super::reads_and_writes::{request, write};
use crate::convert::multi::MultiRequest;
use crate::quotas::limits::{ParsedQuotas, QuotaCell, QuotaCells};
use crate::quotas::settings::QuotaSettings;
use crate::quotas::table::LocalQuotaTable;
use crate::quotas::{QuotaUser, RpcQuotas};
use crate::requests::get;
use crate::requests::get_batch::{GetBatch, GetOutcome};
use crate::requests::inline::{RunsOn, SLICE};
use crate::requests::multi;
use crate::requests::scan::scan;
use crate::testing::*;
use crate::{Caller, RegionServerConfig};

/// A server with quotas and one region of the table `t`, which has the rows `a` and `b`.
struct Limited {
    server: TestServer,
    region: Arc<Region>,
}

impl Limited {
    fn start() -> Self {
        Self::with(&[])
    }

    fn with(settings: &[(&str, &str)]) -> Self {
        let mut conf = Configuration::new();
        conf.set("hbase.quota.enabled", "true");
        settings.iter().for_each(|(key, value)| conf.set(*key, *value));
        let quotas = QuotaSettings::from(&conf).expect("valid");
        let server = TestServer::new(RegionServerConfig { quotas, ..RegionServerConfig::default() });
        let region = server.open(b"", b"", table());
        put(&region, &[cell(b"a", b"q", b"1"), cell(b"b", b"q", b"2")][..1]);
        put(&region, &[cell(b"b", b"q", b"2")]);
        Self { server, region }
    }

    fn quotas(&self) -> &RpcQuotas {
        self.server.server.quotas().expect("enabled")
    }

    /// Replaces all quotas.
    fn set(&self, all: &[(QuotaTarget, pb::Quotas)]) {
        self.install(quota_cells(all));
    }

    /// As [`Limited::set`]; limits may be exceeded while the server has free units.
    fn install_exceeding(&self, all: &[(QuotaTarget, pb::Quotas)]) {
        let mut cells = quota_cells(all);
        cells.push(QuotaCell {
            row: Bytes::from_static(quota::EXCEED_ROW),
            qualifier: Bytes::from_static(quota::SETTINGS),
            value: Bytes::from_static(b"\xff"),
        });
        self.install(cells);
    }

    fn install(&self, cells: Vec<QuotaCell>) {
        self.install_shared(cells, 1, &HashMap::new());
    }

    fn install_shared(&self, cells: Vec<QuotaCell>, servers: usize, open: &HashMap<TableName, u64>) {
        let read = self.quotas().begin_read();
        self.quotas().install(&self.server.server, read, &ParsedQuotas::of(cells), (servers, open));
    }

    fn get(&self, user: &str) -> Result<()> {
        let get = pb::Get { row: Bytes::from_static(b"a"), ..Default::default() };
        let request = pb::GetRequest { region: specifier(&self.region), get };
        get::get(&self.server.server, request, &caller_of(user)).map(drop)
    }

    fn put(&self, user: &str) -> Result<()> {
        let request = request(&self.region, MutationType::Put, b"a");
        write(&self.server, &request, &[cell(b"a", b"q", b"v")], caller_of(user)).map(drop)
    }

    fn increment(&self, user: &str) -> Result<()> {
        let request = request(&self.region, MutationType::Increment, b"n");
        let cells = [cell(b"n", b"q", &1_i64.to_be_bytes())];
        write(&self.server, &request, &cells, caller_of(user)).map(drop)
    }

    fn multi(&self, user: &str, actions: Vec<pb::Action>) -> pb::MultiResponse {
        let region_action =
            vec![pb::RegionAction { region: specifier(&self.region), action: actions, ..Default::default() }];
        let message = pb::MultiRequest { region_action, ..Default::default() };
        let mut none = || None;
        let mut budget = DecodeBudget::new(1 << 30, &mut none);
        let request = MultiRequest::decode(message.encode_to_vec().into(), &mut budget).expect("well-formed");
        let caller = caller_of(user);
        let server = &self.server.server;
        let reply = wait(|reply| match multi::kind(&request) {
            multi::MultiKind::Reads => {
                let read = multi::read(server, &request, &caller, Wait::Allowed, TimeSlice::UNLIMITED);
                reply.send(read.map_err(TryError::into_failure));
            }
            _ => {
                let cells = [cell(b"a", b"q", b"v")];
                let state = CallerState::default();
                let runs_on = RunsOn::Blocking;
                multi::multi(server, &request, block(&cells), (caller, &state), reply, runs_on);
            }
        });
        pb::MultiResponse::decode(&reply.expect("answered").message.encode_to_vec()[..]).expect("well-formed")
    }
}

fn quota_cells(all: &[(QuotaTarget, pb::Quotas)]) -> Vec<QuotaCell> {
    let cell = |(target, quotas): &(QuotaTarget, pb::Quotas)| QuotaCell {
        row: target.row(),
        qualifier: target.qualifier(),
        value: quota::encode(quotas),
    };
    all.iter().map(cell).collect()
}

fn caller_of(user: &str) -> Caller {
    Caller { quota_user: QuotaUser::named(user), ..caller() }
}

fn per(unit: pb::TimeUnit, kind: Kind, units: u64) -> pb::Quotas {
    let limit = pb::TimedQuota { time_unit: unit.into(), soft_limit: Some(units), scope: None, share: None };
    let mut throttle = pb::Throttle::default();
    *quota::throttle_mut(&mut throttle, kind) = Some(limit);
    pb::Quotas { throttle: Some(throttle), ..Default::default() }
}

fn per_second(kind: Kind, units: u64) -> pb::Quotas {
    per(pb::TimeUnit::Seconds, kind, units)
}

fn per_day(kind: Kind, units: u64) -> pb::Quotas {
    per(pb::TimeUnit::Days, kind, units)
}

fn bob() -> QuotaTarget {
    QuotaTarget::User("bob".to_owned())
}

fn of_table() -> QuotaTarget {
    QuotaTarget::Table("t".parse().expect("legal"))
}

/// Returns the message of a request that was throttled.
#[track_caller]
fn refused(outcome: Result<()>) -> String {
    let error: HBaseError = outcome.expect_err("it is throttled");
    assert_eq!(error.kind(), ErrorKind::RpcThrottling, "{error}");
    error.message().to_owned()
}

fn get_action(row: &'static [u8]) -> pb::Action {
    let get = pb::Get { row: Bytes::from_static(row), ..Default::default() };
    pb::Action { index: Some(0), get: Some(get), ..Default::default() }
}

fn put_proto() -> pb::MutationProto {
    pb::MutationProto {
        row: Some(Bytes::from_static(b"a")),
        mutate_type: Some(MutationType::Put as i32),
        associated_cell_count: Some(1),
        ..Default::default()
    }
}

fn put_action() -> pb::Action {
    pb::Action { index: Some(0), mutation: Some(put_proto()), ..Default::default() }
}

#[test]
fn requests_beyond_a_limit_are_refused_until_it_is_refilled() {
    let limited = Limited::start();
    limited.set(&[(bob(), per_second(Kind::RequestNumber, 2))]);
    assert_eq!([limited.get("bob"), limited.put("bob")], [Ok(()), Ok(())]);
    assert_eq!(refused(limited.get("bob")), "number of requests exceeded - wait 500ms");
    assert_eq!(refused(limited.put("bob")), "number of requests exceeded - wait 500ms");
    assert_eq!(limited.get("eve"), Ok(()), "another user has no limit");
    limited.server.clock.advance_ms(500);
    assert_eq!(limited.get("bob"), Ok(()));
    refused(limited.get("bob"));
    limited.set(&[]);
    assert_eq!(limited.get("bob"), Ok(()), "the limit is gone");
}

#[test]
fn each_kind_of_target_is_limited() {
    let limited = Limited::start();
    let user = || "bob".to_owned();
    let targets = [
        bob(),
        QuotaTarget::UserTable(user(), "t".parse().expect("legal")),
        QuotaTarget::UserNamespace(user(), "default".to_owned()),
        of_table(),
        QuotaTarget::Namespace("default".to_owned()),
        QuotaTarget::RegionServer("all".to_owned()),
    ];
    for target in targets {
        limited.set(&[]);
        limited.set(&[(target.clone(), per_day(Kind::ReadNumber, 1))]);
        assert_eq!(limited.get("bob"), Ok(()), "{target:?}");
        assert_eq!(refused(limited.get("bob")), "number of read requests exceeded - wait 24hrs, 0ms");
        assert_eq!(limited.put("bob"), Ok(()), "writes are not limited");
    }
    limited.set(&[]);
    limited.set(&[(QuotaTarget::Table("u".parse().expect("legal")), per_day(Kind::ReadNumber, 1))]);
    assert_eq!([limited.get("bob"), limited.get("bob")], [Ok(()), Ok(())], "another table");
}

#[test]
fn each_limit_of_writes_and_increments_applies() {
    let write_kinds = [
        (Kind::WriteNumber, 1, "number of write requests exceeded"),
        (Kind::WriteSize, 20, "write size limit exceeded"),
        (Kind::WriteCapacityUnit, 1, "write capacity unit exceeded"),
        (Kind::RequestSize, 20, "request size limit exceeded"),
        (Kind::RequestCapacityUnit, 1, "request capacity unit exceeded"),
    ];
    let limited = Limited::start();
    for (kind, units, text) in write_kinds {
        limited.set(&[]);
        limited.set(&[(of_table(), per_day(kind, units))]);
        assert_eq!(limited.put("bob"), Ok(()), "{kind:?}");
        assert!(refused(limited.put("bob")).starts_with(text), "{kind:?}");
    }
    for (kind, text) in [
        (Kind::AtomicRequestNumber, "atomic request number exceeded"),
        (Kind::AtomicWriteSize, "atomic write size exceeded"),
        (Kind::AtomicReadSize, "atomic read size exceeded"),
    ] {
        limited.set(&[]);
        limited.set(&[(of_table(), per_day(kind, 2))]);
        assert_eq!(limited.increment("bob"), Ok(()), "{kind:?}");
        assert!(refused(limited.increment("bob")).starts_with(text), "{kind:?}");
        assert_eq!(limited.put("bob"), Ok(()), "it reads nothing");
    }
}

#[test]
fn reads_cost_what_they_found_and_not_the_estimate() {
    let limited = Limited::start();
    // A Get passes while its estimate is left, which is a block of 64 KiB.
    let limit = || limited.set(&[(of_table(), per_day(Kind::ReadSize, 65_536 + 5_000))]);
    let count = || (0..10_000).take_while(|_| limited.get("bob").is_ok()).count();
    limit();
    let of_cells = count();
    assert!((150..300).contains(&of_cells), "{of_cells} Gets of one cell each, from the MemStore");
    limited.region.flush().expect("flushed");
    limited.set(&[]);
    limit();
    let of_blocks = count();
    assert!((2..100).contains(&of_blocks), "{of_blocks} Gets, each of which reads a block");
}

/// An Increment reads what nothing counts. The Gets beside it are counted all the same.
#[test]
fn gets_beside_an_increment_cost_their_results() {
    let limited = Limited::start();
    let (large, small) = (vec![b'v'; 200_000], [cell(b"a", b"q", b"1")]);
    put(&limited.region, &[cell(b"large", b"q", &large)]);
    put(&limited.region, &small);
    let limit = |kind, units| {
        limited.set(&[]);
        limited.set(&[(of_table(), per_day(kind, units))]);
    };
    let increment = || {
        let mutation = pb::MutationProto { mutate_type: Some(MutationType::Increment as i32), ..put_proto() };
        pb::Action { index: Some(0), mutation: Some(mutation), ..Default::default() }
    };
    for (kind, units) in [(Kind::ReadSize, 190_000), (Kind::ReadCapacityUnit, 190)] {
        limit(kind, units);
        limited.multi("bob", vec![get_action(b"large"), increment()]);
        refused(limited.get("bob"));
        limit(kind, units);
        limited.multi("bob", vec![get_action(b"a"), increment()]);
        assert_eq!(limited.get("bob"), Ok(()), "the estimate of one block is kept: {kind:?}");
    }
}

#[test]
fn a_region_of_a_multi_is_refused_as_a_whole() {
    let limited = Limited::start();
    limited.set(&[(bob(), per_day(Kind::RequestNumber, 4))]);
    let reads = || vec![get_action(b"a"), get_action(b"b")];
    let exception = |response: &pb::MultiResponse| {
        let [result] = &response.region_action_result[..] else { panic!("one region") };
        result.exception.as_ref().map(|pair| (pair.name.clone(), pair.value.clone().unwrap_or_default()))
    };
    assert_eq!(exception(&limited.multi("bob", reads())), None);
    assert_eq!(exception(&limited.multi("bob", vec![put_action(), get_action(b"b")])), None);
    for actions in [reads(), vec![put_action()]] {
        let (name, text) = exception(&limited.multi("bob", actions)).expect("it is refused");
        assert_eq!(name, "org.apache.hadoop.hbase.quotas.RpcThrottlingException");
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(text.contains("number of requests exceeded - wait "), "{text}");
    }
    assert_eq!(exception(&limited.multi("eve", reads())), None);
    let counted = limited.server.server.rpc_metrics().exceptions(ErrorKind::RpcThrottling);
    assert_eq!(counted, 2);
}

#[test]
fn a_refused_call_of_a_scan_leaves_its_scanner() {
    let limited = Limited::start();
    limited.set(&[(bob(), per_second(Kind::ReadNumber, 1))]);
    let server = &limited.server.server;
    let caller = caller_of("bob");
    let open = pb::ScanRequest {
        region: Some(specifier(&limited.region)),
        scan: Some(pb::Scan::default()),
        number_of_rows: Some(1),
        ..Default::default()
    };
    let first = scan(server, &open, &caller).expect("open").expect("in time");
    let next = pb::ScanRequest {
        scanner_id: first.message.scanner_id,
        number_of_rows: Some(1),
        next_call_seq: Some(0),
        ..Default::default()
    };
    for _ in 0..2 {
        let refusal = refused(scan(server, &next, &caller).map(drop));
        assert_eq!(refusal, "number of read requests exceeded - wait 1sec, 0ms");
        assert_eq!(server.scanners().len(), 1);
    }
    refused(scan(server, &open, &caller).map(drop));
    assert_eq!(server.scanners().len(), 1, "a refused open leaves no scanner");
    limited.server.clock.advance_ms(1000);
    let second = scan(server, &next, &caller).expect("the same call").expect("in time");
    assert_eq!(cells_of(second), ["b/q=2"]);
}

/// The calls read the MemStore, so no block. They are checked all the same, but not those that
/// renew or close the scanner.
#[test]
fn calls_of_a_scan_that_read_no_block_are_checked() {
    for kind in [Kind::ReadNumber, Kind::ReadSize, Kind::ReadCapacityUnit] {
        let limited = Limited::start();
        put(&limited.region, &[cell(b"c", b"q", b"3")]);
        put(&limited.region, &[cell(b"d", b"q", b"4")]);
        let (server, caller) = (&limited.server.server, caller_of("bob"));
        let open = pb::ScanRequest {
            region: Some(specifier(&limited.region)),
            scan: Some(pb::Scan::default()),
            number_of_rows: Some(1),
            ..Default::default()
        };
        let first = scan(server, &open, &caller).expect("open").expect("in time");
        let next = pb::ScanRequest {
            scanner_id: first.message.scanner_id,
            number_of_rows: Some(1),
            next_call_seq: Some(0),
            ..Default::default()
        };
        assert!(scan(server, &next, &caller).is_ok_and(|reply| reply.is_some()), "{kind:?}");
        limited.set(&[(bob(), per_day(kind, 1))]);
        assert_eq!(limited.get("bob"), Ok(()), "it uses up the limit");
        let next = pb::ScanRequest { next_call_seq: Some(1), ..next };
        refused(scan(server, &next, &caller).map(drop));
        let renew = pb::ScanRequest { renew: Some(true), ..next.clone() };
        assert!(scan(server, &renew, &caller).is_ok_and(|reply| reply.is_some()), "{kind:?}");
        assert_eq!(server.scanners().len(), 1);
        let close = pb::ScanRequest {
            close_scanner: Some(true),
            number_of_rows: Some(0),
            next_call_seq: Some(2),
            ..next
        };
        assert!(scan(server, &close, &caller).is_ok_and(|reply| reply.is_some()), "{kind:?}");
        assert_eq!(server.scanners().len(), 0);
    }
}

#[test]
fn limits_of_all_servers_are_divided() {
    let limited = Limited::start();
    let shared = |target: &QuotaTarget| {
        let mut quotas = per_day(Kind::ReadNumber, 8);
        let throttle = quotas.throttle.as_mut().expect("set");
        throttle.read_num.as_mut().expect("set").scope = Some(pb::QuotaScope::Cluster.into());
        vec![QuotaCell { row: target.row(), qualifier: target.qualifier(), value: quota::encode(&quotas) }]
    };
    let gets = || (0..20).take_while(|_| limited.get("bob").is_ok()).count();
    let of = |regions| HashMap::from([("t".parse().expect("legal"), regions)]);
    let (user, table) = (bob(), of_table());
    // A limit of a table is divided by regions, one of a user by servers.
    for (target, servers, open, wanted) in
        [(&table, 3, of(4), 2), (&table, 3, of(1), 8), (&table, 3, HashMap::new(), 8), (&user, 4, of(9), 2)]
    {
        limited.set(&[]);
        limited.install_shared(shared(target), servers, &open);
        assert_eq!(gets(), wanted, "{target:?} {servers} {open:?}");
    }
    // The shares change while the quotas stay: what was consumed stays consumed.
    limited.set(&[]);
    limited.install_shared(shared(&table), 1, &of(4));
    assert_eq!(gets(), 2);
    limited.install_shared(shared(&table), 1, &of(2));
    assert_eq!(gets(), 2);
    // A server without regions of the table has no small limit when the first one opens.
    let other = QuotaTarget::Table("elsewhere".parse().expect("legal"));
    let of_other = HashMap::from([("elsewhere".parse().expect("legal"), 7)]);
    limited.install_shared(shared(&other), 1, &of_other);
    let region = limited.server.open(
        b"",
        b"",
        TableDescriptor::new("elsewhere".parse().expect("legal"))
            .with_family(ColumnFamilyDescriptor::new(b"f").expect("legal")),
    );
    let get = || pb::Get { row: Bytes::from_static(b"a"), ..Default::default() };
    for _ in 0..8 {
        let request = pb::GetRequest { region: specifier(&region), get: get() };
        assert!(get::get(&limited.server.server, request, &caller_of("bob")).is_ok());
    }
    let request = pb::GetRequest { region: specifier(&region), get: get() };
    refused(get::get(&limited.server.server, request, &caller_of("bob")).map(drop));
}

/// A table whose regions are not open is not one without quotas.
#[test]
fn a_read_of_a_table_that_is_not_open_keeps_the_limits() {
    let limited = Limited::start();
    let server = &limited.server.server;
    let exists = Arc::new(AtomicBool::new(true));
    let says = Arc::clone(&exists);
    limited.quotas().connect(Arc::new(LocalQuotaTable {
        server: Arc::downgrade(server),
        exists: Box::new(move || says.load(Ordering::Relaxed)),
    }));
    limited.set(&[(bob(), per_day(Kind::ReadNumber, 1))]);
    assert_eq!(limited.get("bob"), Ok(()));
    assert!(server.reload_quotas().is_err() && limited.quotas().is_stale());
    refused(limited.get("bob"));
    let first = limited.server.open(b"", b"t.", quota::descriptor().expect("legal"));
    assert!(server.reload_quotas().is_err(), "one of its regions is open");
    let last = limited.server.open(b"t.", b"", quota::descriptor().expect("legal"));
    let value = quota::encode(&per_day(Kind::ReadNumber, 1));
    let cell = KeyValueBuilder {
        row: &bob().row(),
        family: quota::FAMILY,
        qualifier: &bob().qualifier(),
        timestamp: 1,
        kind: CellType::Put,
        value: &value,
        tags: &[],
    };
    put(&last, &[cell.try_build().expect("legal")]);
    assert_eq!((server.reload_quotas(), limited.quotas().is_stale()), (Ok(()), false));
    refused(limited.get("bob"));
    drop(server.regions().remove(last.info().encoded_name(), None));
    assert!(server.reload_quotas().is_err() && limited.quotas().is_stale());
    refused(limited.get("bob"));
    drop(server.regions().remove(first.info().encoded_name(), None));
    exists.store(false, Ordering::Relaxed);
    assert_eq!(server.reload_quotas(), Ok(()));
    assert_eq!(limited.get("bob"), Ok(()), "the table is gone");
}

#[test]
fn a_get_that_is_not_finished_is_not_counted() {
    let limited = Limited::start();
    let wide: Vec<_> = (0..5000).map(|at| cell(b"w", format!("{at:04}").as_bytes(), b"1")).collect();
    put(&limited.region, &wide);
    limited.set(&[(bob(), per_day(Kind::ReadNumber, 3))]);
    let server = &limited.server.server;
    let mut gets = GetBatch::EMPTY;
    for row in [b"w", b"w", b"a"] {
        let get = pb::Get { row: Bytes::from_static(row), ..Default::default() };
        gets.push(Arc::clone(&limited.region), get, ());
    }
    // The wide rows use up the slice of the batch, and the Gets behind are tried again elsewhere.
    let mut outcomes = Vec::new();
    gets.read(
        server,
        |(): &()| caller_of("bob"),
        |(), _, outcome| {
            let is_read = matches!(outcome, GetOutcome::Tried(Ok(_)));
            if is_read {
                std::thread::sleep(2 * SLICE);
            }
            outcomes.push(is_read);
        },
    );
    let read = outcomes.iter().filter(|is_read| **is_read).count();
    assert!(outcomes.len() == 3 && read < 3, "{outcomes:?}");
    let left = (0..9).take_while(|_| limited.get("bob").is_ok()).count();
    assert_eq!(read + left, 3, "{outcomes:?}");
}

#[test]
fn what_is_given_back_is_available_again() {
    let limited = Limited::start();
    limited.set(&[(bob(), per_day(Kind::ReadSize, 1 << 20))]);
    let check = || get::check_quota(&limited.server.server, &limited.region, &caller_of("bob"));
    let mut quota = check().expect("free");
    quota.add_block_bytes(100);
    quota.settle();
    quota.give_back();
    assert_eq!(check().expect("free").reply_bytes_max(), Some(1 << 20));
}

#[test]
fn gets_that_arrive_together_are_checked_one_by_one() {
    let limited = Limited::start();
    // The estimate of a Get is a block of 64 KiB, and its row is in memory.
    limited.set(&[(bob(), per_day(Kind::ReadSize, 100_000))]);
    let mut gets = GetBatch::EMPTY;
    for number in 0..20 {
        let get = pb::Get { row: Bytes::from_static(b"a"), ..Default::default() };
        gets.push(Arc::clone(&limited.region), get, number);
    }
    let mut refused = 0;
    gets.read(
        &limited.server.server,
        |_: &i32| caller_of("bob"),
        |_, _, outcome| {
            refused += usize::from(matches!(outcome, GetOutcome::Tried(Err(_))));
        },
    );
    assert_eq!(refused, 0);
}

#[test]
fn exceeded_limits_are_refilled() {
    let limited = Limited::start();
    let all = [
        (bob(), per_second(Kind::RequestNumber, 10)),
        (QuotaTarget::RegionServer("all".to_owned()), per_second(Kind::RequestNumber, 100)),
    ];
    limited.install_exceeding(&all);
    for _ in 0..30 {
        (0..5).for_each(|_| assert_eq!(limited.get("bob"), Ok(())));
        limited.server.clock.advance_ms(1000);
    }
    limited.set(&all);
    assert_eq!(limited.get("bob"), Ok(()), "bob was within the limit");
}

#[test]
fn cells_that_are_no_quotas_do_not_displace_quotas() {
    let mut cells = QuotaCells::default();
    let cell_of = |row: &[u8], qualifier: &[u8], value: &[u8]| {
        let (family, kind) = (quota::FAMILY, CellType::Put);
        let built = KeyValueBuilder { row, family, qualifier, timestamp: 1, kind, value, tags: &[] };
        built.try_build().expect("legal")
    };
    for junk in 0..200_000 {
        assert!(cells.push(cell_of(format!("junk {junk}").as_bytes(), b"x", b"").as_cell()));
    }
    let value = quota::encode(&per_day(Kind::ReadNumber, 1));
    assert!(cells.push(cell_of(&bob().row(), &bob().qualifier(), &value).as_cell()));
    let large = cell_of(b"u.eve", quota::SETTINGS, &[0; 1 << 20]);
    let taken = (0..100).take_while(|_| cells.push(large.as_cell())).count();
    assert_eq!(taken, 63, "the bytes are limited");
    let cells = cells.finish();
    assert_eq!(cells.len(), 64);
    let limited = Limited::start();
    limited.install(cells);
    assert_eq!(limited.get("bob"), Ok(()));
    refused(limited.get("bob"));
}

#[test]
fn system_tables_and_switched_off_throttles_are_not_limited() {
    let limited = Limited::start();
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    let system = TableDescriptor::new("hbase:x".parse().expect("legal")).with_family(family);
    let of_system = limited.server.open(b"", b"", system);
    limited.set(&[(QuotaTarget::RegionServer("all".to_owned()), per_day(Kind::RequestNumber, 1))]);
    let get = pb::Get { row: Bytes::from_static(b"a"), ..Default::default() };
    for _ in 0..3 {
        let request = pb::GetRequest { region: specifier(&of_system), get: get.clone() };
        assert!(get::get(&limited.server.server, request, &caller_of("bob")).is_ok());
    }
    assert_eq!(limited.get("bob"), Ok(()));
    refused(limited.get("bob"));
    limited.quotas().set_on(false);
    assert_eq!([limited.get("bob"), limited.get("bob")], [Ok(()), Ok(())]);
    limited.quotas().set_on(true);
    refused(limited.get("bob"));
}

#[test]
fn a_user_may_bypass_other_limits() {
    let limited = Limited::start();
    let bypass = pb::Quotas { bypass_globals: Some(true), ..per_day(Kind::RequestNumber, 3) };
    limited.set(&[(bob(), bypass), (of_table(), per_day(Kind::RequestNumber, 1))]);
    assert_eq!(limited.get("eve"), Ok(()));
    refused(limited.get("eve"));
    for _ in 0..3 {
        assert_eq!(limited.get("bob"), Ok(()));
    }
    refused(limited.get("bob"));
}

#[test]
fn limits_may_be_exceeded_while_the_server_has_free_units() {
    let limited = Limited::start();
    let all = [
        (bob(), per_day(Kind::RequestNumber, 1)),
        (QuotaTarget::RegionServer("all".to_owned()), per_second(Kind::RequestNumber, 4)),
    ];
    limited.install_exceeding(&all);
    for _ in 0..4 {
        assert_eq!(limited.get("bob"), Ok(()));
    }
    assert_eq!(refused(limited.get("bob")), "number of requests exceeded - wait 250ms");
    limited.set(&all);
    limited.server.clock.advance_ms(1000);
    let refusal = refused(limited.get("bob"));
    assert!(
        refusal.ends_with("hrs, 0ms") || refusal.contains("hrs, "),
        "the user's limit applies: {refusal}"
    );
}

#[test]
fn users_without_quotas_have_the_default_limits() {
    let limited = Limited::with(&[("hbase.quota.default.user.machine.read.num", "1")]);
    for user in ["bob", "eve"] {
        assert_eq!(limited.get(user), Ok(()));
        assert_eq!(refused(limited.get(user)), "number of read requests exceeded - wait 1sec, 0ms");
    }
    limited.set(&[(bob(), per_day(Kind::ReadNumber, 5))]);
    assert_eq!(limited.get("bob"), Ok(()), "bob has limits of his own");
    refused(limited.get("eve"));
}

#[test]
fn the_fixed_rate_limiter_can_be_chosen() {
    let class = "org.apache.hadoop.hbase.quotas.FixedIntervalRateLimiter";
    let limited = Limited::with(&[("hbase.quota.rate.limiter", class)]);
    limited.set(&[(bob(), per_second(Kind::RequestNumber, 2))]);
    assert_eq!([limited.get("bob"), limited.get("bob")], [Ok(()), Ok(())]);
    limited.server.clock.advance_ms(300);
    assert_eq!(refused(limited.get("bob")), "number of requests exceeded - wait 700ms");
}

#[test]
fn refusals_are_counted_by_limit_user_and_table() {
    let limited = Limited::start();
    limited.set(&[(of_table(), per_day(Kind::RequestNumber, 1))]);
    assert_eq!(limited.get("bob"), Ok(()));
    for user in ["bob", "bob", "eve"] {
        refused(limited.get(user));
    }
    let of = |user: &str| ("NumRequestsExceeded", user.to_owned(), "t".to_owned());
    assert_eq!(limited.quotas().refusals(), [(of("bob"), 2), (of("eve"), 1)]);
}

/// A read that began earlier must not replace what a later one has found.
#[test]
fn the_latest_read_of_the_table_applies() {
    let limited = Limited::start();
    let earlier = limited.quotas().begin_read();
    limited.set(&[(bob(), per_day(Kind::RequestNumber, 1))]);
    let stale = ParsedQuotas::of(Vec::new());
    limited.quotas().install(&limited.server.server, earlier, &stale, (1, &HashMap::new()));
    assert_eq!(limited.get("bob"), Ok(()));
    refused(limited.get("bob"));
}

#[test]
fn without_quotas_nothing_is_checked() {
    let (server, region) = TestServer::with_region();
    assert!(server.server.quotas().is_none());
    assert_eq!(server.server.reload_quotas(), Ok(()));
    let quota = get::check_quota(&server.server, &region, &caller_of("bob")).expect("unlimited");
    assert!(!quota.is_limited() && quota.reply_bytes_max().is_none());
}
