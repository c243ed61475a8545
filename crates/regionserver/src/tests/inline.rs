//! Long and blocking work of one connection, and the calls of others on the same thread.
//!
//! The server has one connection thread. One connection makes calls that take long or must wait.
//! Meanwhile another repeatedly sends a Get and a Put. The calls that take longer than
//! [`LATENCY_MAX`] must take less than half of the total time: if the thread were blocked, the one
//! call that waits for it would take all of that time.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_common::{Durability, KeyValue};
use evenkeel_fs::{Fault, FaultyFileSystem, Latch, MemoryFileSystem, Op};
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::mutation_proto::MutationType;
use evenkeel_region::region::Region;
use evenkeel_rpc::{
    CallClass, CellBlockCodec, CellBlockWriter, CellCodec, Executor, ExecutorConfig, RpcServer,
    RpcServerConfig, RpcServerHandle,
};
use evenkeel_wal::WalConfig;
use parking_lot::{Mutex, MutexGuard};
use prost::Message;

use crate::RegionServerConfig;
use crate::testing::*;

/// The maximum time of another client's Get and Put together. Far longer than a slice of the
/// thread's time, to allow for a busy machine.
const LATENCY_MAX: Duration = Duration::from_millis(50);
/// The pause between two of these pairs.
const PAUSE: Duration = Duration::from_millis(2);
/// A step that would block the thread takes at least this long, on a machine of any speed.
const LONG: Duration = Duration::from_millis(400);
const TIMEOUT: Duration = Duration::from_secs(60);

/// Allows one [`Served`] at a time: the tests of this file would delay each other's clients.
static ALONE: Mutex<()> = Mutex::new(());

/// A server over TCP with one thread for all connections. The disturbing client uses rows before
/// `x`; the other uses the rest.
pub(super) struct Served {
    pub(super) server: TestServer,
    _alone: MutexGuard<'static, ()>,
    pub(super) region: Arc<Region>,
    quiet: Arc<Region>,
    pub(super) executor: Arc<Executor>,
    rpc: Option<RpcServerHandle>,
}

impl Served {
    pub(super) fn start() -> Self {
        Self::over(FaultyFileSystem::new(MemoryFileSystem::new()), WalConfig::default())
    }

    pub(super) fn over(fs: FaultyFileSystem, wal: WalConfig) -> Self {
        Self::with(fs, wal, 1 << 30)
    }

    /// Creates a server with a request budget of `bytes`.
    fn with(fs: FaultyFileSystem, wal: WalConfig, request_bytes: u64) -> Self {
        let alone = ALONE.lock();
        let server = TestServer::over(Arc::new(fs), RegionServerConfig::default(), wal);
        let region = server.open(b"", b"x", table());
        let quiet = server.open(b"x", b"", table());
        put(&quiet, &[cell(b"xylem", b"q", b"v")]);
        let executor = Arc::new(Executor::start(&ExecutorConfig::default()).expect("threads"));
        let mut config = RpcServerConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)));
        config.connection_threads = 1;
        config.inflight_bytes_max = request_bytes;
        config.unsent = server.unsent.clone();
        let rpc = RpcServer::bind(config).expect("an address");
        let rpc = rpc.serve(server.server.services(&executor)).expect("threads");
        Self { server, _alone: alone, region, quiet, executor, rpc: Some(rpc) }
    }

    /// The region of the client that is not to be disturbed.
    pub(super) fn quiet(&self) -> &Region {
        &self.quiet
    }

    pub(super) fn client(&self) -> Client {
        self.client_with(None)
    }

    fn client_with(&self, compressor: Option<&str>) -> Client {
        let address = self.rpc.as_ref().expect("serves").local_addr();
        let stream = TcpStream::connect(address).expect("connected");
        stream.set_nodelay(true).expect("set");
        stream.set_read_timeout(Some(TIMEOUT)).expect("set");
        let header = pb::ConnectionHeader {
            service_name: Some("ClientService".to_owned()),
            cell_block_codec_class: Some("org.apache.hadoop.hbase.codec.KeyValueCodec".to_owned()),
            cell_block_compressor_class: compressor.map(str::to_owned),
            version_info: Some(pb::VersionInfo {
                version_major: Some(2),
                version_minor: Some(6),
                ..Default::default()
            }),
            ..Default::default()
        };
        let mut client = Client { stream, calls: 0, timeout_ms: None };
        client.stream.write_all(b"HBas\x00\x50").expect("sent");
        client.write_frame(&[&header.encode_to_vec()]);
        client
    }

    /// Checks how these calls affect other clients.
    #[track_caller]
    fn assert_others_not_blocked(&self, calls: impl Fn()) {
        assert_not_disturbed(|| self.disturbed_by(&calls));
    }

    /// Returns how long the calls of another client took while `disturb` ran.
    fn disturbed_by(&self, disturb: impl FnOnce()) -> Latencies {
        let (over, ready) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut client = self.client();
                for _ in 0..3 {
                    self.get_and_put(&mut client);
                }
                ready.store(true, Ordering::Relaxed);
                let mut latencies = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    std::thread::sleep(PAUSE);
                    let began = Instant::now();
                    self.get_and_put(&mut client);
                    latencies.push(began.elapsed());
                }
                Latencies(latencies)
            });
            while !ready.load(Ordering::Relaxed) && !watch.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let end = Ends(&over);
            disturb();
            drop(end);
            watch.join().expect("every call of the other client is answered")
        })
    }

    /// Sends a Get and a Put that does not wait for the log, as one call each.
    fn get_and_put(&self, client: &mut Client) {
        client.call("Get", &get_request(&self.quiet, b"xylem", None), &[]).expect("read");
        let mut put = put_request(&self.quiet, b"xylem");
        put.mutation.durability = Some(Durability::SkipWal as i32);
        client.call("Mutate", &put, &block_of(&[cell(b"xylem", b"q", b"v")])).expect("written");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.rpc.take());
        self.executor.shutdown();
    }
}

/// Ends the watch even if the test panics.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Latencies(Vec<Duration>);

impl Latencies {
    /// Returns an error if there are too many long latencies.
    fn check(self) -> Result<(), String> {
        let all: Duration = self.0.iter().sum();
        let long: Vec<_> = self.0.iter().filter(|took| **took > LATENCY_MAX).collect();
        let held_up: Duration = long.iter().copied().sum();
        println!("{} calls in {all:?}, {} of them long, {held_up:?}", self.0.len(), long.len());
        let told = || format!("{} calls in {all:?}, of which {long:?} took {held_up:?}", self.0.len());
        if held_up < all / 2 { Ok(()) } else { Err(told()) }
    }
}

/// Checks the latencies of a client on the same thread. A busy machine may cause failures, too, but
/// not in each of three runs.
#[track_caller]
fn assert_not_disturbed(disturb: impl Fn() -> Latencies) {
    let outcomes: Vec<_> = (0..3).map(|_| disturb().check()).take_while(Result::is_err).collect();
    assert!(outcomes.len() < 3, "{outcomes:?}");
}

pub(super) struct Client {
    pub(super) stream: TcpStream,
    calls: u32,
    /// The timeout that it sends with its calls.
    pub(super) timeout_ms: Option<u32>,
}

pub(super) type ReceivedReply = Result<Bytes, pb::ExceptionResponse>;

impl Client {
    fn write_frame(&mut self, parts: &[&[u8]]) {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let mut frame = u32::try_from(bytes).expect("fits").to_be_bytes().to_vec();
        parts.iter().for_each(|part| frame.extend_from_slice(part));
        self.stream.write_all(&frame).expect("sent");
    }

    pub(super) fn send(&mut self, method: &str, param: &[u8], cells: &[u8]) {
        self.calls += 1;
        let header = pb::RequestHeader {
            call_id: Some(self.calls),
            method_name: Some(method.to_owned()),
            request_param: Some(true),
            timeout: self.timeout_ms,
            cell_block_meta: (!cells.is_empty())
                .then(|| pb::CellBlockMeta { length: Some(u32::try_from(cells.len()).expect("fits")) }),
            ..Default::default()
        };
        let mut length = Vec::new();
        prost::encoding::encode_varint(param.len() as u64, &mut length);
        self.write_frame(&[&header.encode_length_delimited_to_vec(), &length, param, cells]);
    }

    pub(super) fn receive(&mut self) -> ReceivedReply {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).expect("answered in time");
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.stream.read_exact(&mut frame).expect("answered");
        let mut frame = Bytes::from(frame);
        let header = pb::ResponseHeader::decode_length_delimited(&mut frame).expect("well-formed");
        header.exception.map_or(Ok(frame), Err)
    }

    pub(super) fn call(&mut self, method: &str, param: &impl Message, cells: &[u8]) -> ReceivedReply {
        self.call_bytes(method, &param.encode_to_vec(), cells)
    }

    fn call_bytes(&mut self, method: &str, param: &[u8], cells: &[u8]) -> ReceivedReply {
        self.send(method, param, cells);
        self.receive()
    }

    /// Repeats the same call until it has run for [`LONG`].
    fn call_for_long(&mut self, method: &str, param: &[u8], cells: &[u8]) -> ReceivedReply {
        let began = Instant::now();
        loop {
            let reply = self.call_bytes(method, param, cells);
            if began.elapsed() >= LONG || reply.is_err() {
                return reply;
            }
        }
    }
}

pub(super) fn block_of(cells: &[KeyValue]) -> Vec<u8> {
    compressed_block(cells, None)
}

fn compressed_block(cells: &[KeyValue], compressor: Option<CellBlockCodec>) -> Vec<u8> {
    let mut writer = CellBlockWriter::new(CellCodec::KeyValue, compressor);
    cells.iter().for_each(|cell| writer.push(&cell.as_cell()));
    writer.into_bytes().expect("written")
}

pub(super) fn get_request(region: &Region, row: &[u8], filter: Option<pb::Filter>) -> pb::GetRequest {
    let get = pb::Get { row: Bytes::copy_from_slice(row), filter, ..Default::default() };
    pb::GetRequest { region: specifier(region), get }
}

fn mutation(kind: MutationType, row: &[u8], cells: i32) -> pb::MutationProto {
    pb::MutationProto {
        row: Some(Bytes::copy_from_slice(row)),
        mutate_type: Some(kind as i32),
        associated_cell_count: Some(cells),
        ..Default::default()
    }
}

pub(super) fn put_request(region: &Region, row: &[u8]) -> pb::MutateRequest {
    pb::MutateRequest {
        region: specifier(region),
        mutation: mutation(MutationType::Put, row, 1),
        ..Default::default()
    }
}

pub(super) fn increment(region: &Region, row: &'static [u8]) -> (pb::MutateRequest, Vec<u8>) {
    let mut request = put_request(region, row);
    request.mutation.mutate_type = Some(MutationType::Increment as i32);
    (request, block_of(&[cell(row, b"n", &1u64.to_be_bytes())]))
}

pub(super) fn multi(region: &Region, actions: Vec<pb::Action>) -> pb::MultiRequest {
    let of_region = pb::RegionAction { region: specifier(region), action: actions, ..Default::default() };
    pb::MultiRequest { region_action: vec![of_region], ..Default::default() }
}

pub(super) fn gets_of(rows: u32) -> Vec<pb::Action> {
    let get = |index: u32| pb::Get { row: row_name(index % 1000).into(), ..Default::default() };
    (0..rows)
        .map(|index| pb::Action { index: Some(index), get: Some(get(index)), ..Default::default() })
        .collect()
}

pub(super) fn row_name(number: u32) -> Vec<u8> {
    format!("row{number:06}").into_bytes()
}

/// Returns a filter on values: a regular expression with many states.
pub(super) fn regex_filter(pattern: &str) -> pb::Filter {
    let comparator = pb::RegexStringComparator {
        pattern: pattern.to_owned(),
        charset: "UTF-8".to_owned(),
        pattern_flags: 0,
        engine: None,
    };
    let comparator = pb::Comparator {
        name: "org.apache.hadoop.hbase.filter.RegexStringComparator".to_owned(),
        serialized_comparator: Some(comparator.encode_to_vec().into()),
    };
    let compare =
        pb::CompareFilter { compare_op: pb::CompareType::Equal as i32, comparator: Some(comparator) };
    let filter = pb::ValueFilter { compare_filter: compare };
    pb::Filter {
        name: "org.apache.hadoop.hbase.filter.ValueFilter".to_owned(),
        serialized_filter: Some(filter.encode_to_vec().into()),
    }
}

#[test]
fn many_gets_in_one_call_do_not_block_others() {
    let served = Served::start();
    (0..1000).for_each(|row| put(&served.region, &[cell(&row_name(row), b"q", b"v")]));
    let request = multi(&served.region, gets_of(100_000)).encode_to_vec();
    served.assert_others_not_blocked(|| {
        drop(served.client().call_for_long("Multi", &request, &[]).expect("read"))
    });
}

#[test]
fn many_gets_in_medium_calls_do_not_block_others() {
    let served = Served::start();
    // Each row takes so long that few rows exceed the slice.
    let cells: Vec<_> = (0..3000u32).map(|q| cell(b"row000000", &q.to_be_bytes(), b"v")).collect();
    put(&served.region, &cells);
    let mut actions = gets_of(200);
    actions.iter_mut().for_each(|action| {
        if let Some(get) = &mut action.get {
            get.row = row_name(0).into();
        }
    });
    let request = multi(&served.region, actions).encode_to_vec();
    served.assert_others_not_blocked(|| {
        drop(served.client().call_for_long("Multi", &request, &[]).expect("read"))
    });
}

#[test]
fn many_puts_in_one_call_do_not_block_others() {
    let served = Served::start();
    let rows = 0..50_000u32;
    let action = |index| pb::Action {
        index: Some(index),
        mutation: Some(mutation(MutationType::Put, &row_name(index), 1)),
        ..Default::default()
    };
    let request = multi(&served.region, rows.clone().map(action).collect()).encode_to_vec();
    let cells: Vec<_> = rows.map(|row| cell(&row_name(row), b"q", b"v")).collect();
    let block = block_of(&cells);
    served.assert_others_not_blocked(|| {
        drop(served.client().call_for_long("Multi", &request, &block).expect("written"))
    });
}

#[test]
fn a_get_of_a_huge_row_does_not_block_others() {
    let served = Served::start();
    for part in 0..20u32 {
        let cells: Vec<_> =
            (0..10_000u32).map(|q| cell(b"huge", &(part * 10_000 + q).to_be_bytes(), b"v")).collect();
        put(&served.region, &cells);
    }
    let request = get_request(&served.region, b"huge", None).encode_to_vec();
    served.assert_others_not_blocked(|| {
        drop(served.client().call_for_long("Get", &request, &[]).expect("read"))
    });
}

#[test]
fn a_costly_regular_expression_does_not_block_others() {
    let served = Served::start();
    let value = b"ab".repeat(60_000);
    put(&served.region, &[cell(b"r", b"q", &value)]);
    // One is slow to search with, the other slow to compile.
    for pattern in ["(a.{0,60}b){9}c", "((\\w{30}|x{0,90}){40}){9}"] {
        let request = get_request(&served.region, b"r", Some(regex_filter(pattern))).encode_to_vec();
        served.assert_others_not_blocked(|| drop(served.client().call_for_long("Get", &request, &[])));
    }
}

#[test]
fn a_message_of_many_parts_does_not_block_others() {
    let served = Served::start();
    let mut request = put_request(&served.region, b"r");
    request.mutation.associated_cell_count = None;
    let mut bytes = request.mutation.encode_to_vec();
    // Empty column values, of two bytes each.
    bytes.extend([0x1a, 0].repeat(4 << 20));
    let mut param = pb::MutateRequest { mutation: Default::default(), ..request }.encode_to_vec();
    param.push(2 << 3 | 2);
    prost::encoding::encode_varint(bytes.len() as u64, &mut param);
    param.extend(bytes);
    served.assert_others_not_blocked(|| drop(served.client().call_for_long("Mutate", &param, &[])));
}

#[test]
fn an_expanding_cell_block_does_not_block_others() {
    assert_not_disturbed(|| {
        let served = Served::start();
        let block = compressed_block(&[cell(b"r", b"q", &vec![0; 120 << 20])], Some(CellBlockCodec::Gzip));
        let param = put_request(&served.region, b"r").encode_to_vec();
        served.disturbed_by(|| {
            let mut client = served.client_with(Some("org.apache.hadoop.io.compress.GzipCodec"));
            let began = Instant::now();
            while began.elapsed() < LONG {
                assert!(client.call_bytes("Mutate", &param, &block).is_err(), "the cell is too long");
            }
        })
    });
}

/// Returns a filter list with a filter of this many ranges, of two bytes each.
fn ranges(count: usize) -> pb::Filter {
    let of_class = |class: &str, bytes: Vec<u8>| pb::Filter {
        name: format!("org.apache.hadoop.hbase.filter.{class}"),
        serialized_filter: Some(bytes.into()),
    };
    let ranges = of_class("MultiRowRangeFilter", [0x0a, 0].repeat(count));
    of_class("FilterList", pb::FilterList { operator: 1, filters: vec![ranges] }.encode_to_vec())
}

fn filtered_get(region: &Region, filter: pb::Filter) -> pb::GetRequest {
    let get = pb::Get { row: Bytes::from_static(b"r"), filter: Some(filter), ..Default::default() };
    pb::GetRequest { region: specifier(region), get }
}

fn filtered_scan(region: &Region, filter: pb::Filter) -> pb::ScanRequest {
    let scan = Some(pb::Scan { filter: Some(filter), ..Default::default() });
    pb::ScanRequest { region: Some(specifier(region)), scan, ..Default::default() }
}

fn filtered_put(region: &Region, filter: pb::Filter) -> pb::MutateRequest {
    let row = Bytes::from_static(b"r");
    let condition = Some(pb::Condition { row, filter: Some(filter), ..Default::default() });
    pb::MutateRequest { condition, ..put_request(region, b"r") }
}

fn filtered_multi(region: &Region, filter: pb::Filter) -> pb::MultiRequest {
    let get = Some(filtered_get(region, filter).get);
    let action = vec![pb::Action { get, ..Default::default() }];
    let region_action = vec![pb::RegionAction { region: specifier(region), action, ..Default::default() }];
    pb::MultiRequest { region_action, ..Default::default() }
}

/// Requests that expand to many times their size: they are rejected first, and the memory they took
/// from the budget is returned.
#[test]
fn requests_that_expand_beyond_the_budget_are_refused() {
    const BUDGET: u64 = 32 << 20;
    let fs = FaultyFileSystem::new(MemoryFileSystem::new());
    let served = Served::with(fs, WalConfig::default(), BUDGET);
    let region = specifier(&served.region).encode_to_vec();
    let of_region = |tag: u8, part: &[u8], times: usize| {
        let mut bytes =
            pb::RegionAction { region: specifier(&served.region), ..Default::default() }.encode_to_vec();
        bytes.extend(
            std::iter::repeat_n([&[tag << 3 | 2][..], &[part.len() as u8], part].concat(), times).flatten(),
        );
        bytes
    };
    let field = |tag: u8, payload: &[u8]| {
        let mut bytes = vec![tag << 3 | 2];
        prost::encoding::encode_varint(payload.len() as u64, &mut bytes);
        [&bytes[..], payload].concat()
    };
    const MANY: usize = 2 << 20;
    let mutate_rows = |request: &[u8]| {
        let call = pb::CoprocessorServiceCall {
            service_name: "hbase.pb.MultiRowMutationService".to_owned(),
            method_name: "MutateRows".to_owned(),
            request: Bytes::copy_from_slice(request),
            ..Default::default()
        };
        call.encode_to_vec()
    };
    let multi_service = pb::Action {
        service_call: pb::CoprocessorServiceCall::decode(&mutate_rows(&[0x0a, 0].repeat(MANY))[..]).ok(),
        ..Default::default()
    };
    let one_of_many_parts = [0x12, 0].repeat(MANY);
    let bombs = [
        ("Multi", field(1, &of_region(3, b"", MANY))),
        ("Multi", [0x0a, 0].repeat(MANY)),
        ("Multi", field(1, &of_region(3, &[0x12, 0], MANY))),
        ("Mutate", [field(1, &region), field(2, &[0x1a, 0].repeat(MANY))].concat()),
        ("Get", [field(1, &region), field(2, &[0x12, 0].repeat(MANY))].concat()),
        ("Scan", [field(1, &region), field(2, &[0x0a, 0].repeat(MANY))].concat()),
        ("Scan", field(2, &field(1, &[0x12, 0].repeat(MANY)))),
        ("BulkLoadHFile", [field(1, &region), [0x12, 0].repeat(MANY)].concat()),
        ("ExecService", one_of_many_parts.clone()),
        ("ExecService", [field(1, &region), field(2, &mutate_rows(&[0x0a, 0].repeat(MANY)))].concat()),
        ("ExecService", [field(1, &region), field(2, &mutate_rows(&[0x2a, 0].repeat(MANY)))].concat()),
        ("Multi", field(1, &[field(1, &region), field(3, &multi_service.encode_to_vec())].concat())),
        ("Get", filtered_get(&served.region, ranges(MANY)).encode_to_vec()),
        ("Scan", filtered_scan(&served.region, ranges(MANY)).encode_to_vec()),
        ("Mutate", filtered_put(&served.region, ranges(MANY)).encode_to_vec()),
        ("Multi", filtered_multi(&served.region, ranges(MANY)).encode_to_vec()),
    ];
    let mut client = served.client_with(Some("org.apache.hadoop.io.compress.GzipCodec"));
    for (at, (method, param)) in bombs.iter().enumerate() {
        match client.call_bytes(method, param, &[]) {
            // If a message repeats a singular field, its occurrences are merged into one.
            Ok(_) => panic!("{method} {at}"),
            Err(error) => {
                let class = error.exception_class_name.unwrap_or_default();
                let is_refused =
                    class.ends_with("CallQueueTooBigException") || class.ends_with("RequestTooBigException");
                assert!(is_refused || *param == one_of_many_parts, "{method} {at}: {class}");
            }
        }
    }
    let block = compressed_block(&[cell(b"r", b"q", &vec![0; 120 << 20])], Some(CellBlockCodec::Gzip));
    let error = client.call_bytes("Mutate", &put_request(&served.region, b"r").encode_to_vec(), &block);
    let class = error.expect_err("too large").exception_class_name.unwrap_or_default();
    assert!(class.ends_with("CallQueueTooBigException"), "{class}");
    served.get_and_put(&mut served.client());
    let used = served.rpc.as_ref().expect("serves").stats().inflight_bytes;
    assert!(used <= BUDGET / 8, "{used} bytes are not given back");
}

#[test]
fn a_put_behind_a_row_lock_does_not_block_others() {
    assert_not_disturbed(|| {
        let (fs, latch) = (FaultyFileSystem::new(MemoryFileSystem::new()), Latch::new());
        let served = Served::over(fs.clone(), WalConfig::default());
        put(&served.region, &[cell(b"r", b"n", &1u64.to_be_bytes())]);
        fs.inject(Fault::on(Op::Flush, "/WALs/").always().waits_for(&latch));
        served.disturbed_by(|| {
            let mut client = served.client();
            let (request, block) = increment(&served.region, b"r");
            // The second Increment holds the row lock while it waits for the first to be durable.
            (0..2).for_each(|_| client.send("Mutate", &request.encode_to_vec(), &block));
            std::thread::sleep(Duration::from_millis(50));
            let put = put_request(&served.region, b"r").encode_to_vec();
            client.send("Mutate", &put, &block_of(&[cell(b"r", b"q", b"v")]));
            std::thread::sleep(LONG);
            latch.open();
            (0..3).for_each(|_| drop(client.receive().expect("written")));
        })
    });
}

#[test]
fn puts_waiting_for_a_full_log_do_not_block_others() {
    assert_not_disturbed(|| {
        let (fs, latch) = (FaultyFileSystem::new(MemoryFileSystem::new()), Latch::new());
        let wal = WalConfig { queue_bytes_max: 256 << 10, ..WalConfig::default() };
        let served = Served::over(fs.clone(), wal);
        fs.inject(Fault::on(Op::Flush, "/WALs/").always().waits_for(&latch));
        const PUTS: usize = 100;
        served.disturbed_by(|| {
            let mut client = served.client();
            let put = put_request(&served.region, b"r").encode_to_vec();
            let block = block_of(&[cell(b"r", b"q", &[7; 20_000])]);
            (0..PUTS).for_each(|_| client.send("Mutate", &put, &block));
            let request = multi(
                &served.region,
                (0..20)
                    .map(|index| pb::Action {
                        index: Some(index),
                        mutation: Some(mutation(MutationType::Put, b"r", 1)),
                        ..Default::default()
                    })
                    .collect(),
            );
            client.send(
                "Multi",
                &request.encode_to_vec(),
                &block_of(&vec![cell(b"r", b"q", &[7; 2000]); 20]),
            );
            std::thread::sleep(LONG);
            latch.open();
            (0..PUTS + 1).for_each(|_| drop(client.receive().expect("written")));
        })
    });
}

/// Each batch names its region repeatedly; each occurrence is a separate write, which finds the
/// region's locks taken.
#[test]
fn batches_waiting_for_a_full_log_do_not_block_others() {
    const BATCHES: usize = 10;
    assert_not_disturbed(|| {
        let (fs, latch) = (FaultyFileSystem::new(MemoryFileSystem::new()), Latch::new());
        let wal = WalConfig { queue_bytes_max: 256 << 10, ..WalConfig::default() };
        let served = Served::over(fs.clone(), wal);
        fs.inject(Fault::on(Op::Flush, "/WALs/").always().waits_for(&latch));
        let action = || pb::Action {
            index: Some(0),
            mutation: Some(mutation(MutationType::Put, b"r", 1)),
            ..Default::default()
        };
        let regions = (0..100).map(|_| multi(&served.region, vec![action()]).region_action.remove(0));
        let batch = pb::MultiRequest { region_action: regions.collect(), ..Default::default() };
        let (batch, cells) = (batch.encode_to_vec(), block_of(&vec![cell(b"r", b"q", b"v"); 100]));
        served.disturbed_by(|| {
            let mut filling = served.client();
            let put = put_request(&served.region, b"r").encode_to_vec();
            let block = block_of(&[cell(b"r", b"q", &[7; 100_000])]);
            (0..5).for_each(|_| filling.send("Mutate", &put, &block));
            std::thread::sleep(Duration::from_millis(50));
            let mut client = served.client();
            (0..BATCHES).for_each(|_| client.send("Multi", &batch, &cells));
            std::thread::sleep(LONG);
            latch.open();
            (0..5).for_each(|_| drop(filling.receive().expect("written")));
            (0..BATCHES).for_each(|_| drop(client.receive().expect("written")));
        })
    });
}

/// All handlers of scans and costly Gets are busy here.
#[test]
fn large_writes_do_not_wait_for_scans() {
    let served = Served::start();
    let busy = Arc::new(Mutex::new(()));
    let held = busy.lock();
    for _ in 0..100 {
        let busy = Arc::clone(&busy);
        served.executor.submit_continuation(CallClass::Scan, None, move || drop(busy.lock()));
    }
    let mut client = served.client();
    client.stream.set_read_timeout(Some(TIMEOUT / 3)).expect("set");
    let large = block_of(&[cell(b"r", b"q", &vec![7; 1 << 20])]);
    client.call("Mutate", &put_request(&served.region, b"r"), &large).expect("written");
    let action = pb::Action {
        index: Some(0),
        mutation: Some(mutation(MutationType::Put, b"r", 1)),
        ..Default::default()
    };
    client.call("Multi", &multi(&served.region, vec![action]), &large).expect("written");
    drop(held);
}
