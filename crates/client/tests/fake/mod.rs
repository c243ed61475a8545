//! A synthetic RegionServer: the registry, hbase:meta with one table of one region, counters that
//! honour nonces, rows to scan. Its responses can be cut or corrupted at any byte.
#![allow(dead_code, reason = "each user takes a part of it")]

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::{Buf, Bytes, BytesMut};
use evenkeel_client::{RegionInfo, ServerName};
use evenkeel_common::KeyValue;
use evenkeel_protocol::{PB_MAGIC, pb};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Rows that a scan of the table finds, by number.
pub const ROWS: usize = 20;
/// Rows of one reply of a scan.
const BATCH: usize = 3;

/// Faults of a server's replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The socket ends after the byte.
    Cut,
    /// From the byte on there is garbage.
    Garbage,
}

/// The state that is kept across sockets.
#[derive(Debug, Default)]
struct Data {
    counters: HashMap<Bytes, i64>,
    /// Nonces that were used, with the counter's value then.
    nonces: HashMap<(u64, u64), i64>,
    /// Scanners: the number of the next row and the next call's sequence.
    scanners: BTreeMap<u64, (usize, u64)>,
    next_scanner: u64,
}

/// See the module documentation. It lives as long as its runtime.
#[derive(Debug)]
pub struct Fake {
    pub address: String,
    port: u16,
    data: Mutex<Data>,
    value: Vec<u8>,
    /// Bytes of responses of ClientService until the fault; negative for none.
    fault_at: AtomicI64,
    fault: Mutex<Fault>,
    /// The address that it reports for hbase:meta, if not its own.
    meta_at: Mutex<Option<String>>,
    /// Bytes of replies of ClientService so far.
    pub replied: AtomicUsize,
    /// Faults that occurred.
    pub faults: AtomicUsize,
}

impl Fake {
    pub async fn start(value_bytes: usize) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let fake = Arc::new(Self {
            address: format!("127.0.0.1:{port}"),
            port,
            data: Mutex::default(),
            value: vec![b'v'; value_bytes],
            fault_at: AtomicI64::new(-1),
            fault: Mutex::new(Fault::Cut),
            meta_at: Mutex::default(),
            replied: AtomicUsize::new(0),
            faults: AtomicUsize::new(0),
        });
        let server = fake.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let server = server.clone();
                tokio::spawn(async move { server.serve(socket).await });
            }
        });
        fake
    }

    /// Breaks the responses once, after a number of bytes.
    pub fn break_after(&self, bytes: usize, fault: Fault) {
        *self.fault.lock().expect("no panic") = fault;
        self.fault_at.store(bytes as i64, Ordering::SeqCst);
    }

    /// Reports hbase:meta at another `host:port` from now on.
    pub fn move_meta_to(&self, address: &str) {
        *self.meta_at.lock().expect("no panic") = Some(address.to_owned());
    }

    pub fn counter(&self, row: &str) -> i64 {
        self.data.lock().expect("no panic").counters.get(row.as_bytes()).copied().unwrap_or_default()
    }

    async fn serve(&self, mut socket: TcpStream) {
        let _ = socket.set_nodelay(true);
        let mut start = [0; 10];
        if socket.read_exact(&mut start).await.is_err() {
            return;
        }
        let len = u32::from_be_bytes([start[6], start[7], start[8], start[9]]);
        let mut header = vec![0; len as usize];
        if socket.read_exact(&mut header).await.is_err() {
            return;
        }
        let header = pb::ConnectionHeader::decode(&header[..]).expect("a connection header");
        let breaks = header.service_name() == "ClientService";
        let mut input = BytesMut::with_capacity(1 << 16);
        let mut out = Vec::new();
        while socket.read_buf(&mut input).await.is_ok_and(|n| n > 0) {
            while let Some(frame) = take_frame(&mut input) {
                self.answer(frame, &mut out);
            }
            if !self.send(&mut socket, &mut out, breaks).await {
                return;
            }
            input.reserve(1 << 14);
        }
    }

    /// Sends responses; returns whether the socket stays open.
    async fn send(&self, socket: &mut TcpStream, out: &mut Vec<u8>, breaks: bool) -> bool {
        let mut go_on = true;
        if breaks {
            self.replied.fetch_add(out.len(), Ordering::SeqCst);
            let at = self.fault_at.fetch_sub(out.len() as i64, Ordering::SeqCst);
            if at < 0 {
                self.fault_at.store(-1, Ordering::SeqCst);
            } else if (at as usize) < out.len() {
                self.fault_at.store(-1, Ordering::SeqCst);
                self.faults.fetch_add(1, Ordering::SeqCst);
                go_on = false;
                match *self.fault.lock().expect("no panic") {
                    Fault::Cut => out.truncate(at as usize),
                    Fault::Garbage => out[at as usize..].iter_mut().for_each(|b| *b = !*b ^ 0x55),
                }
            }
        }
        let sent = socket.write_all(out).await.is_ok();
        out.clear();
        sent && go_on
    }

    fn answer(&self, mut frame: Bytes, out: &mut Vec<u8>) {
        let header = pb::RequestHeader::decode(take_message(&mut frame)).expect("a request header");
        let param = take_message(&mut frame);
        let (message, cells) = match header.method_name() {
            "GetClusterId" => {
                (pb::GetClusterIdResponse { cluster_id: Some("fake".into()) }.encode_to_vec(), vec![])
            }
            "GetMetaRegionLocations" => (self.meta_locations(), vec![]),
            "Get" => self.get(&pb::GetRequest::decode(param).expect("a Get")),
            "Mutate" => self.mutate(&pb::MutateRequest::decode(param).expect("a Mutate"), frame),
            "Multi" => self.multi(&pb::MultiRequest::decode(param).expect("a Multi"), frame),
            "Scan" => match self.scan(&pb::ScanRequest::decode(param).expect("a Scan")) {
                Some(response) => response,
                None => return reject_call(out, header.call_id()),
            },
            other => panic!("{other}"),
        };
        reply(out, header.call_id(), &message, &cells);
    }

    fn server(&self) -> ServerName {
        ServerName::new("127.0.0.1", self.port, 1)
    }

    fn meta_locations(&self) -> Vec<u8> {
        let moved = self.meta_at.lock().expect("no panic").clone();
        let port = moved.and_then(|at| at.rsplit(':').next()?.parse().ok()).unwrap_or(self.port);
        let location = pb::RegionLocation {
            region_info: (&RegionInfo::meta()).into(),
            server_name: Some((&ServerName::new("127.0.0.1", port, 1)).into()),
            seq_num: 1,
        };
        pb::GetMetaRegionLocationsResponse { meta_locations: vec![location] }.encode_to_vec()
    }

    fn get(&self, request: &pb::GetRequest) -> (Vec<u8>, Vec<u8>) {
        let is_meta = request.region.value.starts_with(b"hbase:meta");
        let cell = match is_meta {
            true => KeyValue::put(b"t", b"table", b"state", 1, &pb::TableState { state: 0 }.encode_to_vec()),
            false => KeyValue::put(&request.get.row, b"f", b"q", 1, &self.value),
        };
        let result = pb::Result { associated_cell_count: Some(1), ..Default::default() };
        (pb::GetResponse { result: Some(result) }.encode_to_vec(), block(&[cell]))
    }

    fn mutate(&self, request: &pb::MutateRequest, cells: Bytes) -> (Vec<u8>, Vec<u8>) {
        let cell = self.count(request.nonce_group(), &request.mutation, cells);
        let result = pb::Result { associated_cell_count: Some(1), ..Default::default() };
        let response =
            pb::MutateResponse { result: Some(result), processed: Some(true), ..Default::default() };
        (response.encode_to_vec(), block(&[cell]))
    }

    /// Adds to the counter of a row, once for each nonce.
    fn count(&self, nonce_group: u64, mutation: &pb::MutationProto, cells: Bytes) -> KeyValue {
        let cell = KeyValue::parse(cells.slice(4..)).expect("a cell");
        let amount = i64::from_be_bytes(cell.as_cell().value().try_into().expect("8 bytes"));
        let mut data = self.data.lock().expect("no panic");
        let nonce = (nonce_group, mutation.nonce());
        let value = match data.nonces.get(&nonce) {
            Some(value) => *value,
            None => {
                let counter = data.counters.entry(mutation.row.clone().expect("a row")).or_default();
                *counter += amount;
                *counter
            }
        };
        data.nonces.insert(nonce, value);
        KeyValue::put(mutation.row(), b"f", b"n", 1, &value.to_be_bytes())
    }

    fn multi(&self, request: &pb::MultiRequest, mut cells: Bytes) -> (Vec<u8>, Vec<u8>) {
        let (mut results, mut out) = (Vec::new(), Vec::new());
        for action in &request.region_action[0].action {
            let mutation = action.mutation.as_ref().expect("a mutation");
            let len = u32::from_be_bytes(cells[..4].try_into().expect("4 bytes")) as usize;
            let cell = self.count(request.nonce_group(), mutation, cells.split_to(4 + len));
            out.extend(block(&[cell]));
            let result = pb::Result { associated_cell_count: Some(1), ..Default::default() };
            results.push(pb::ResultOrException {
                index: action.index,
                result: Some(result),
                ..Default::default()
            });
        }
        let region = pb::RegionActionResult { result_or_exception: results, ..Default::default() };
        (pb::MultiResponse { region_action_result: vec![region], ..Default::default() }.encode_to_vec(), out)
    }

    fn scan(&self, request: &pb::ScanRequest) -> Option<(Vec<u8>, Vec<u8>)> {
        if request.region.as_ref().is_some_and(|region| region.value.starts_with(b"hbase:meta")) {
            return Some(self.scan_meta());
        }
        let mut data = self.data.lock().expect("no panic");
        let (id, from, seq) = match request.scanner_id {
            Some(id) => {
                let (from, seq) = data.scanners.remove(&id)?;
                if request.close_scanner() || request.next_call_seq != Some(seq) {
                    return None;
                }
                (id, from, seq + 1)
            }
            None => {
                data.next_scanner += 1;
                (data.next_scanner, start_of(request), 0)
            }
        };
        let to = (from + BATCH).min(ROWS);
        let cells: Vec<_> =
            (from..to).map(|i| KeyValue::put(row(i).as_bytes(), b"f", b"q", 1, &self.value)).collect();
        if to < ROWS {
            data.scanners.insert(id, (to, seq));
        }
        let response = pb::ScanResponse {
            scanner_id: Some(id),
            cells_per_result: vec![1; cells.len()],
            partial_flag_per_result: vec![false; cells.len()],
            more_results: Some(true),
            more_results_in_region: Some(to < ROWS),
            ..Default::default()
        };
        Some((response.encode_to_vec(), block(&cells)))
    }

    fn scan_meta(&self) -> (Vec<u8>, Vec<u8>) {
        let region = RegionInfo::new("t".parse().expect("legal"), Bytes::new(), Bytes::new(), 1);
        let info = [&PB_MAGIC[..], &pb::RegionInfo::from(&region).encode_to_vec()].concat();
        let put = |q: &str, v: &[u8]| KeyValue::put(region.name(), b"info", q.as_bytes(), 1, v);
        let cells = [
            put("regioninfo", &info),
            put("seqnumDuringOpen", &1i64.to_be_bytes()),
            put("server", self.address.as_bytes()),
            put("serverstartcode", &1i64.to_be_bytes()),
        ];
        let response = pb::ScanResponse {
            cells_per_result: vec![cells.len() as u32],
            more_results: Some(false),
            more_results_in_region: Some(false),
            ..Default::default()
        };
        (response.encode_to_vec(), block(&cells))
    }
}

/// The row with a number.
pub fn row(number: usize) -> String {
    format!("{number:04}")
}

/// Returns the number of the first row of a scan.
fn start_of(request: &pb::ScanRequest) -> usize {
    let scan = request.scan.as_ref().expect("a scan to open");
    let start = String::from_utf8_lossy(scan.start_row()).into_owned();
    let after = usize::from(!scan.include_start_row());
    start.parse::<usize>().map_or(0, |number| number + after)
}

fn block(cells: &[KeyValue]) -> Vec<u8> {
    let mut out = Vec::new();
    for cell in cells {
        out.extend((cell.bytes_len() as u32).to_be_bytes());
        out.extend_from_slice(&cell.to_bytes());
    }
    out
}

fn reply(out: &mut Vec<u8>, call_id: u32, message: &[u8], cells: &[u8]) {
    let meta = pb::CellBlockMeta { length: Some(cells.len() as u32) };
    let cell_block_meta = (!cells.is_empty()).then_some(meta);
    let header = pb::ResponseHeader { call_id: Some(call_id), cell_block_meta, ..Default::default() };
    let mut body = header.encode_length_delimited_to_vec();
    prost::encode_length_delimiter(message.len(), &mut body).expect("room");
    body.extend_from_slice(message);
    body.extend_from_slice(cells);
    out.extend((body.len() as u32).to_be_bytes());
    out.extend(body);
}

fn reject_call(out: &mut Vec<u8>, call_id: u32) {
    let exception = pb::ExceptionResponse {
        exception_class_name: Some("org.apache.hadoop.hbase.UnknownScannerException".into()),
        do_not_retry: Some(true),
        ..Default::default()
    };
    let header =
        pb::ResponseHeader { call_id: Some(call_id), exception: Some(exception), ..Default::default() };
    let body = header.encode_length_delimited_to_vec();
    out.extend((body.len() as u32).to_be_bytes());
    out.extend(body);
}

fn take_frame(input: &mut BytesMut) -> Option<Bytes> {
    let len = u32::from_be_bytes(*input.first_chunk::<4>()?) as usize;
    if input.len() < 4 + len {
        return None;
    }
    input.advance(4);
    Some(input.split_to(len).freeze())
}

fn take_message(frame: &mut Bytes) -> Bytes {
    let len = prost::decode_length_delimiter(&mut *frame).expect("a length");
    frame.split_to(len)
}
