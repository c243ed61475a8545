//! A server that stops for 200 ms once a second: a fixed rate shows it where it is, a closed loop hides it. One that stops
//! while the warm-up ends: what waits then is the warm-up's.
//!
//! The server is a small one of our own that speaks HBase's RPC: registry, hbase:meta and one table of one region whose
//! every Get is answered with one cell, but not while it stalls.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_client::ClientConfig;
use evenkeel_common::{ColumnFamilyDescriptor, KeyValue, RegionInfo, ServerName, TableDescriptor, TableName};
use evenkeel_pe::{Failure, Options, Report, Target, run, run_together};
use evenkeel_protocol::{PB_MAGIC, pb};
use evenkeel_rpc::{Call, Respond, Responder, RpcServer, RpcServerConfig, RpcServerHandle, Service};
use prost::Message;

const PERIOD: Duration = Duration::from_secs(1);
const STALL: Duration = Duration::from_millis(200);
const TABLE: &str = "TestTable";

/// When the server's only thread is held.
enum Stalls {
    Never,
    /// For [`STALL`] at the begin of each [`PERIOD`].
    EachPeriod,
    /// Between these times after the first Get.
    Once(Range<Duration>),
}

/// What all services of the fake know.
struct Fake {
    address: ServerName,
    start: Instant,
    first_get: OnceLock<Instant>,
    stalls: Stalls,
}

impl Fake {
    /// Holds the server's only thread until the stall is over, when there is one now.
    fn stall(&self) {
        let since_first = self.first_get.get_or_init(Instant::now).elapsed();
        let left = match &self.stalls {
            Stalls::Never => None,
            Stalls::EachPeriod => {
                let into = Duration::from_nanos((self.start.elapsed().as_nanos() % PERIOD.as_nanos()) as u64);
                STALL.checked_sub(into)
            }
            Stalls::Once(times) => times.contains(&since_first).then(|| times.end - since_first),
        };
        left.into_iter().for_each(std::thread::sleep);
    }

    fn table(&self) -> TableName {
        TABLE.parse().expect("legal")
    }

    fn region(&self) -> RegionInfo {
        RegionInfo::new(self.table(), Bytes::new(), Bytes::new(), 1)
    }

    fn meta_row(&self) -> Vec<KeyValue> {
        let region = self.region();
        let info = [&PB_MAGIC[..], &pb::RegionInfo::from(&region).encode_to_vec()].concat();
        let server = self.address.host_port();
        let cell =
            |qualifier: &[u8], value: &[u8]| KeyValue::put(region.name(), b"info", qualifier, 1, value);
        vec![
            cell(b"regioninfo", &info),
            cell(b"seqnumDuringOpen", &2u64.to_be_bytes()),
            cell(b"server", server.as_bytes()),
            cell(b"serverstartcode", &1u64.to_be_bytes()),
            cell(b"state", b"OPEN"),
        ]
    }
}

macro_rules! service {
    ($type:ident, $name:literal, $methods:expr) => {
        struct $type(Arc<Fake>);
        impl Service for $type {
            fn name(&self) -> &'static str {
                $name
            }
            fn methods(&self) -> &'static [&'static str] {
                $methods
            }
            fn call(&self, call: Call, reply: Responder) {
                self.answer(&call, reply);
            }
        }
    };
}

service!(Registry, "ClientMetaService", &["GetClusterId", "GetActiveMaster", "GetMetaRegionLocations"]);
service!(Master, "MasterService", &["GetTableDescriptors"]);
service!(Region, "ClientService", &["Get", "Scan"]);

impl Registry {
    fn answer(&self, call: &Call, reply: Responder) {
        let server = pb::ServerName::from(&self.0.address);
        match call.method {
            "GetClusterId" => reply.send(&pb::GetClusterIdResponse { cluster_id: Some("fake".into()) }),
            "GetActiveMaster" => reply.send(&pb::GetActiveMasterResponse { server_name: Some(server) }),
            _ => {
                let meta = pb::RegionInfo::from(&RegionInfo::meta());
                let location =
                    pb::RegionLocation { region_info: meta, server_name: Some(server), seq_num: 1 };
                reply.send(&pb::GetMetaRegionLocationsResponse { meta_locations: vec![location] });
            }
        }
    }
}

impl Master {
    fn answer(&self, _: &Call, reply: Responder) {
        let family = ColumnFamilyDescriptor::new(b"info0").expect("legal");
        let table = TableDescriptor::new(self.0.table()).with_family(family);
        reply.send(&pb::GetTableDescriptorsResponse { table_schema: vec![pb::TableSchema::from(&table)] });
    }
}

impl Region {
    fn answer(&self, call: &Call, reply: Responder) {
        if call.method == "Scan" {
            let cells = self.0.meta_row();
            let response =
                pb::ScanResponse { cells_per_result: vec![cells.len() as u32], ..Default::default() };
            return send(reply, &response, &cells);
        }
        let request: pb::GetRequest = call.decode().expect("a Get");
        let cells = match &request.get.row[..] {
            // hbase:meta's row of the table's state: ENABLED.
            row if row == TABLE.as_bytes() => {
                vec![KeyValue::put(row, b"table", b"state", 1, &pb::TableState { state: 0 }.encode_to_vec())]
            }
            row => {
                self.0.stall();
                vec![KeyValue::put(row, b"info0", b"0", 1, &[b'v'; 100])]
            }
        };
        let result = pb::Result { associated_cell_count: Some(cells.len() as i32), ..Default::default() };
        send(reply, &pb::GetResponse { result: Some(result) }, &cells);
    }
}

fn send(reply: Responder, message: &impl Message, cells: &[KeyValue]) {
    let mut writer = reply.cell_block_writer();
    cells.iter().for_each(|cell| writer.as_mut().expect("a client with a codec").push(&cell.as_cell()));
    reply.send_cells(message, writer);
}

fn fake(stalls: Stalls) -> (RpcServerHandle, Target) {
    let mut config = RpcServerConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)));
    config.connection_threads = 1;
    let server = RpcServer::bind(config).expect("bound");
    let port = server.local_addr().port();
    let start = Instant::now();
    let (address, first_get) = (ServerName::new("127.0.0.1", port, 1), OnceLock::new());
    let fake = Arc::new(Fake { address, start, first_get, stalls });
    let services: Vec<Arc<dyn Service>> =
        vec![Arc::new(Registry(fake.clone())), Arc::new(Master(fake.clone())), Arc::new(Region(fake))];
    let handle = server.serve(services).expect("serves");
    (handle, Target { name: "fake".into(), client: ClientConfig::new([format!("127.0.0.1:{port}")]) })
}

fn measured(target: &Target, line: &str) -> Report {
    let options = Options::of_line(line).expect("parses");
    run(target, &options).unwrap_or_else(|failure| panic!("{line}: {failure}"))
}

#[test]
fn a_fixed_rate_shows_a_stall_that_a_closed_loop_hides() {
    let (server, target) = fake(Stalls::EachPeriod);
    let open = measured(&target, "--rows=9000 --rate=500 --warmup=1 --duration=5 randomRead 1");
    let closed = measured(&target, "--rows=1000 --warmup=1 --duration=5 randomRead 1");
    server.shutdown(Duration::from_secs(1));

    // A fifth of all requests is due while the server stalls and waits up to 200 ms: one in a hundred waits 190 or more.
    let late = open.latency.p99_us;
    assert!((150_000.0..400_000.0).contains(&late), "at a fixed rate: {:?}", open.latency);
    // Every arrival is measured, but for the first row, as in HBase's tool.
    assert!((2499..=2500).contains(&open.latency.count), "{:?}", open.latency);
    assert!(open.latency.count + 1 >= open.tally.requests);
    // In a closed loop one request a second meets the stall, among thousands.
    assert!(closed.latency.count > 2000, "{:?}", closed.latency);
    assert!(closed.latency.p99_us < 50_000.0, "in a closed loop: {:?}", closed.latency);
    assert!(closed.latency.max_us > 150_000.0, "{:?}", closed.latency);
    // The warm-up is told apart, and time is divided into intervals.
    assert!(open.warmup.as_ref().is_some_and(|warmup| warmup.count > 300));
    assert!((5..=7).contains(&open.intervals.len()), "{}", open.intervals.len());
    assert_eq!(open.intervals.iter().map(|i| i.requests).sum::<u64>(), open.tally.requests);
    assert_eq!(open.tally.cells_read, open.tally.requests);
    assert_eq!(open.tally.bytes_read, 100 * open.tally.requests);
}

const MS: fn(u64) -> Duration = Duration::from_millis;

#[test]
fn what_waits_when_an_open_loops_warm_up_ends_is_the_warm_ups() {
    let (server, target) = fake(Stalls::Once(MS(500)..MS(1200)));
    let report = measured(&target, "--rows=1000 --rate=500 --warmup=1 --duration=2 randomRead 1");
    server.shutdown(Duration::from_secs(1));

    // Due from 1 s to 3 s: no arrival of the warm-up's last half second, of which the longest waited 0.7 s.
    assert!((999..=1000).contains(&report.latency.count), "{:?}", report.latency);
    assert!(
        (100_000.0..450_000.0).contains(&report.latency.max_us),
        "the stall's rest: {:?}",
        report.latency
    );
    let warmup = report.warmup.expect("a warm-up");
    assert!((499..=501).contains(&warmup.count), "sent or not, they are counted: {warmup:?}");
    assert!(warmup.max_us > 600_000.0, "{warmup:?}");
}

#[test]
fn a_closed_loop_is_measured_when_the_warm_up_has_ended() {
    let (server, target) = fake(Stalls::Once(MS(500)..MS(1600)));
    let line = "--rows=1000 --warmup=1 --duration=1 --interval=0.25 randomRead 3";
    let report = measured(&target, line);
    server.shutdown(Duration::from_secs(1));

    assert!(report.warmup.as_ref().is_some_and(|w| w.max_us > 1_000_000.0), "{:?}", report.warmup);
    // The measured second begins after the stall: there are rows in all of it.
    assert!(report.intervals.iter().take(4).all(|i| i.requests > 0), "{:?}", report.intervals);
    assert!(
        (1.0..1.4).contains(&report.seconds) && report.latency.max_us < 400_000.0,
        "{:?}",
        report.latency
    );
}

#[test]
fn runs_that_go_together_are_measured_together() {
    let (stalling, slow) = fake(Stalls::Once(MS(500)..MS(1600)));
    let (server, quick) = fake(Stalls::Never);
    let options = |line| Options::of_line(line).expect("parses");
    let warm = options("--rows=1000 --warmup=1 --duration=1 randomRead 2");
    let other = options("--rows=1000 --warmup=0.5 --duration=1 randomRead 2");
    let absent = options("--families=2 randomRead 1");
    let (begun, tests) = (Instant::now(), [(&slow, &warm), (&quick, &other), (&quick, &absent)]);
    let reports = run_together(&tests);
    let took = begun.elapsed().as_secs_f64();
    stalling.shutdown(Duration::from_secs(1));
    server.shutdown(Duration::from_secs(1));

    let [Ok(a), Ok(b), Err(Failure::Table(_))] = &reports[..] else { panic!("{reports:?}") };
    assert!((a.began_unix_s - b.began_unix_s).abs() < 0.1);
    assert!(
        (1.0..1.4).contains(&a.seconds) && (1.0..1.4).contains(&b.seconds),
        "{} {}",
        a.seconds,
        b.seconds
    );
    // Had the quick one been measured after its own warm-up of 0.5 s, it would have ended long before; it is bounded by the
    // stall of the other.
    assert!(took < 5.0 && a.intervals[0].requests > 0 && b.intervals[0].requests > 0);
}

#[test]
fn rows_are_run_and_measured_as_hbases_tool_does() {
    let (server, target) = fake(Stalls::Never);
    let report =
        measured(&target, "--rows=300 --cycles=2 --sampleRate=0.5 --measureAfter=9 sequentialRead 4");
    server.shutdown(Duration::from_secs(1));
    assert_eq!(report.tally.rows, 4 * 2 * 150);
    assert_eq!((report.tally.requests, report.tally.errors), (1200, 0));
    // Of each client and cycle rows 0, 2, 4, 6 and 8 are not measured.
    assert_eq!(report.latency.count, 4 * 2 * (150 - 5));
}

#[test]
fn an_absent_cluster_and_a_missing_table_are_told_apart() {
    let (server, target) = fake(Stalls::Never);
    let other = Options::of_line("--families=2 randomRead 1").expect("parses");
    let failure = run(&target, &other).expect_err("other families");
    assert!(matches!(failure, Failure::Table(_)) && failure.exit_status() == 4, "{failure}");
    server.shutdown(Duration::from_secs(1));

    let mut client = target.client.clone();
    client.pause = Duration::from_millis(1);
    let absent = Target { name: "absent".into(), client };
    let failure = run(&absent, &Options::of_line("randomRead 1").expect("parses")).expect_err("nobody");
    assert!(matches!(failure, Failure::Cluster(_)) && failure.exit_status() == 3, "{failure}");
}
