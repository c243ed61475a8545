//! A server with a test service, and a client that sends raw bytes.

#![allow(dead_code, missing_docs)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_common::{ErrorKind, HBaseError};
use evenkeel_protocol::pb;
use evenkeel_rpc::{
    Call, CallClass, CellBlockReader, ConnectionInfo, ConnectionLease, DetachedResponder, Executor,
    ExecutorConfig, Respond, Responder, RpcServer, RpcServerConfig, RpcServerHandle, Service,
};
use parking_lot::Mutex;
use prost::Message;

pub const KEY_VALUE_CODEC: &str = "org.apache.hadoop.hbase.codec.KeyValueCodec";
const TIMEOUT: Duration = Duration::from_secs(20);

/// A service that answers in every possible way.
pub struct TestService {
    executor: Executor,
    /// With their cells.
    held: Mutex<Vec<(DetachedResponder, CellBlockReader)>>,
    /// The connection of the last held call.
    pub holder: Mutex<Option<Arc<ConnectionInfo>>>,
    leases: Mutex<Vec<ConnectionLease>>,
    pub ran: AtomicUsize,
    /// A value that represents a cached block: references beyond the first are replies that hold
    /// it.
    pub value: Arc<Vec<u8>>,
}

struct Pin(Arc<Vec<u8>>);

impl AsRef<[u8]> for Pin {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Service for TestService {
    fn name(&self) -> &'static str {
        "ClientService"
    }

    fn methods(&self) -> &'static [&'static str] {
        &[
            "Echo", "Hold", "Release", "Sleep", "Fail", "Panic", "Forget", "Big", "Shared", "Who", "Local",
            "Spin", "Lease", "Unlease",
        ]
    }

    fn call(&self, call: Call, reply: Responder) {
        self.ran.fetch_add(1, Ordering::Relaxed);
        match call.method {
            "Echo" => echo(&call, reply),
            "Hold" => match call.cell_reader() {
                Ok(cells) => {
                    *self.holder.lock() = Some(call.connection.clone());
                    self.held.lock().push((reply.detach(), cells));
                }
                Err(error) => reply.send_error(&error),
            },
            "Release" => self.release(reply),
            "Sleep" => self.executor.submit(CallClass::General, call, reply, |call, reply| {
                std::thread::sleep(Duration::from_millis(number(&call)));
                echo(&call, reply);
            }),
            "Fail" => reply.send_error(&HBaseError::new(ErrorKind::RegionTooBusy, "busy")),
            "Panic" => panic!("a panic made for a test"),
            "Big" => reply.send(&message("big", &vec![7; number(&call) as usize])),
            "Shared" => self.shared(&call, reply),
            "Who" => who(&call, reply),
            "Lease" => {
                self.leases.lock().push(call.connection.lease());
                echo(&call, reply);
            }
            "Unlease" => {
                self.leases.lock().clear();
                echo(&call, reply);
            }
            "Local" => local(call, reply),
            "Spin" => {
                let began = Instant::now();
                while began.elapsed() < Duration::from_millis(number(&call)) {}
                echo(&call, reply);
            }
            _ => drop(reply),
        }
    }
}

impl TestService {
    /// Answers with the requested number of cells, each of which shares the value.
    fn shared(&self, call: &Call, reply: Responder) {
        let mut cells = evenkeel_common::CellBuffer::sharing(1);
        for i in 0..number(call) {
            let cell = evenkeel_common::KeyValue::put(b"row", b"f", &i.to_be_bytes(), 1, &self.value);
            cells.push_shared(&cell.as_cell(), Bytes::from_owner(Pin(self.value.clone())));
        }
        let mut writer = reply.cell_block_writer().expect("a codec");
        writer.push_buffer_owned(cells);
        reply.send_cells(&message("shared", b""), Some(writer));
    }

    /// Answers the held calls in reverse order, then this one.
    fn release(&self, reply: Responder) {
        let held = std::mem::take(&mut *self.held.lock());
        std::thread::spawn(move || {
            held.into_iter().rev().for_each(|(reply, _)| reply.send(&message("released", b"")));
        });
        reply.send(&message("release", b""));
    }
}

fn echo(call: &Call, reply: impl Respond) {
    let param: pb::NameBytesPair = match call.decode() {
        Ok(param) => param,
        Err(error) => return reply.send_error(&error),
    };
    let mut writer = reply.cell_block_writer();
    let cells = match call.cell_reader() {
        Ok(cells) => cells,
        Err(error) => return reply.send_error(&error),
    };
    for cell in cells {
        match (cell, &mut writer) {
            (Ok(cell), Some(writer)) => {
                let value = cell.to_bytes().slice_ref(cell.as_cell().value());
                writer.push_shared(&cell.as_cell(), value);
            }
            (Ok(_), None) => {}
            (Err(error), _) => return reply.send_error(&error),
        }
    }
    reply.send_cells(&param, writer);
}

/// Answers later from a task on the same thread.
fn local(call: Call, reply: Responder) {
    tokio::task::spawn_local(async move {
        tokio::time::sleep(Duration::from_millis(number(&call))).await;
        echo(&call, reply);
    });
}

fn who(call: &Call, reply: Responder) {
    let info = &call.connection;
    let text = format!(
        "{:?} {:?} {:?} {:?} {:?}",
        info.user,
        info.client_version,
        call.priority,
        call.attributes(),
        call.deadline.map(|deadline| deadline - call.received_at)
    );
    reply.send(&message(&text, b""));
}

/// The number in a call's parameter.
fn number(call: &Call) -> u64 {
    call.decode::<pb::NameBytesPair>().ok().and_then(|pair| pair.name.parse().ok()).unwrap_or(0)
}

pub fn message(name: &str, value: &[u8]) -> pb::NameBytesPair {
    pb::NameBytesPair { name: name.to_owned(), value: Some(Bytes::copy_from_slice(value)) }
}

pub struct TestServer {
    pub handle: RpcServerHandle,
    pub service: Arc<TestService>,
}

impl TestServer {
    pub fn start() -> Self {
        Self::with(|_| ())
    }

    pub fn with(adjust: impl FnOnce(&mut RpcServerConfig)) -> Self {
        let executor = ExecutorConfig {
            general_handlers: 1,
            priority_handlers: 1,
            queue_calls_max: 5,
            ..Default::default()
        };
        let service = Arc::new(TestService {
            executor: Executor::start(&executor).unwrap(),
            held: Mutex::default(),
            holder: Mutex::default(),
            leases: Mutex::default(),
            ran: AtomicUsize::new(0),
            value: Arc::new((0..100_000u32).map(|i| (i * 7 % 251) as u8).collect()),
        });
        let mut config = RpcServerConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)));
        config.connection_threads = 2;
        adjust(&mut config);
        let handle = RpcServer::bind(config).unwrap().serve(vec![service.clone()]).unwrap();
        TestServer { handle, service }
    }

    pub fn address(&self) -> SocketAddr {
        self.handle.local_addr()
    }

    /// A raw connection.
    pub fn raw(&self) -> Client {
        Client::raw(self.address())
    }

    /// A connection after its handshake.
    pub fn client(&self) -> Client {
        self.client_with(&connection_header())
    }

    pub fn client_with(&self, header: &pb::ConnectionHeader) -> Client {
        let mut client = self.raw();
        client.send(b"HBas\x00\x50");
        client.send(&framed(&header.encode_to_vec()));
        client
    }

    /// Checks that the server still serves.
    pub fn assert_alive(&self) {
        let mut client = self.client();
        client.send(&request(5, "Echo", &message("alive", b"")));
        assert_eq!(client.response().message().name, "alive");
    }
}

pub fn connection_header() -> pb::ConnectionHeader {
    pb::ConnectionHeader {
        user_info: Some(pb::UserInformation { effective_user: "tester".to_owned(), real_user: None }),
        service_name: Some("ClientService".to_owned()),
        cell_block_codec_class: Some(KEY_VALUE_CODEC.to_owned()),
        version_info: Some(version(2, 6)),
        ..Default::default()
    }
}

pub fn version(major: u32, minor: u32) -> pb::VersionInfo {
    pb::VersionInfo { version_major: Some(major), version_minor: Some(minor), ..Default::default() }
}

pub fn framed(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}

pub fn request_header(call_id: u32, method: &str) -> pb::RequestHeader {
    pb::RequestHeader {
        call_id: Some(call_id),
        method_name: Some(method.to_owned()),
        request_param: Some(true),
        ..Default::default()
    }
}

/// The frame of a call without cells.
pub fn request(call_id: u32, method: &str, param: &impl Message) -> Vec<u8> {
    request_with(request_header(call_id, method), param, &[])
}

/// The frame of a call with the given cell block.
pub fn request_with(header: pb::RequestHeader, param: &impl Message, cells: &[u8]) -> Vec<u8> {
    let body = [&header.encode_length_delimited_to_vec()[..], &param.encode_length_delimited_to_vec(), cells];
    framed(&body.concat())
}

/// The frame of a call with a cell block of the announced length.
pub fn request_cells(call_id: u32, method: &str, param: &impl Message, cells: &[u8]) -> Vec<u8> {
    let mut header = request_header(call_id, method);
    header.cell_block_meta = Some(pb::CellBlockMeta { length: Some(cells.len() as u32) });
    request_with(header, param, cells)
}

#[derive(Debug)]
pub struct Response {
    pub header: pb::ResponseHeader,
    pub body: Bytes,
}

impl Response {
    pub fn call_id(&self) -> u32 {
        self.header.call_id.unwrap()
    }

    pub fn exception(&self) -> &pb::ExceptionResponse {
        self.header.exception.as_ref().expect("an exception")
    }

    pub fn exception_class(&self) -> &str {
        let exception = self.exception();
        assert!(exception.stack_trace.is_some());
        exception.exception_class_name.as_deref().unwrap()
    }

    pub fn message(&self) -> pb::NameBytesPair {
        assert_eq!(self.header.exception, None);
        pb::NameBytesPair::decode_length_delimited(self.body.clone()).unwrap()
    }

    /// The bytes after the message, exactly as announced.
    pub fn cells(&self) -> Bytes {
        let mut rest = self.body.clone();
        pb::NameBytesPair::decode_length_delimited(&mut rest).unwrap();
        let announced = self.header.cell_block_meta.and_then(|meta| meta.length).unwrap_or(0);
        assert_eq!(rest.len(), announced as usize);
        rest
    }
}

pub struct Client(pub TcpStream);

impl Client {
    pub fn raw(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        Client(stream)
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    pub fn read(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub fn response(&mut self) -> Response {
        let len = u32::from_be_bytes(self.read(4).try_into().unwrap());
        let mut body = Bytes::from(self.read(len as usize));
        let header = pb::ResponseHeader::decode_length_delimited(&mut body).unwrap();
        Response { header, body }
    }

    /// Checks that the server closed without sending more.
    pub fn assert_closed(&mut self) {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => assert!(rest.is_empty(), "{rest:?} before the end"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
        }
    }

    /// One call and its reply.
    pub fn call(&mut self, call_id: u32, method: &str, name: &str) -> Response {
        self.send(&request(call_id, method, &message(name, b"")));
        let response = self.response();
        assert_eq!(response.call_id(), call_id);
        response
    }
}

/// Waits until `condition` holds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + TIMEOUT;
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
