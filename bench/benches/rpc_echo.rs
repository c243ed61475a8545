//! Round trips of an echo call over loopback: one call alone, and 64 calls pipelined in one write.
//!
//! Measures the RPC layer alone: frame, header, dispatch, answer, two socket crossings. The client is a blocking
//! socket that builds its requests beforehand and only counts the bytes of the answers.

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use evenkeel_common::KeyValue;
use evenkeel_protocol::pb;
use evenkeel_rpc::{Call, Respond, Responder, RpcServer, RpcServerConfig, RpcServerHandle, Service};
use prost::Message;

/// Calls in one pipelined batch.
const PIPELINED: u32 = 64;
const VALUE_BYTES: usize = 100;

/// Answers every call at once with its parameter and one cell.
struct Echo(KeyValue);

impl Service for Echo {
    fn name(&self) -> &'static str {
        "ClientService"
    }

    fn methods(&self) -> &'static [&'static str] {
        &["Echo"]
    }

    fn call(&self, call: Call, reply: Responder) {
        match call.decode::<pb::NameBytesPair>() {
            Ok(param) => {
                let mut cells = reply.cell_block_writer();
                if let Some(writer) = &mut cells {
                    writer.push(&self.0.as_cell());
                }
                reply.send_cells(&param, cells);
            }
            Err(error) => reply.send_error(&error),
        }
    }
}

fn server() -> RpcServerHandle {
    let mut config = RpcServerConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)));
    config.connection_threads = 1;
    let cell = KeyValue::put(b"row-00001", b"f", b"q", 1, &[b'v'; VALUE_BYTES]);
    RpcServer::bind(config).expect("bind").serve(vec![Arc::new(Echo(cell))]).expect("serve")
}

fn framed(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}

fn connect(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("connect");
    stream.set_nodelay(true).expect("nodelay");
    let header = pb::ConnectionHeader {
        service_name: Some("ClientService".to_owned()),
        cell_block_codec_class: Some("org.apache.hadoop.hbase.codec.KeyValueCodec".to_owned()),
        ..Default::default()
    };
    stream.write_all(b"HBas\x00\x50").expect("preamble");
    stream.write_all(&framed(&header.encode_to_vec())).expect("header");
    stream
}

fn request(call_id: u32) -> Vec<u8> {
    let header = pb::RequestHeader {
        call_id: Some(call_id),
        method_name: Some("Echo".to_owned()),
        request_param: Some(true),
        priority: Some(0),
        timeout: Some(60_000),
        ..Default::default()
    };
    let param =
        pb::NameBytesPair { name: "row".to_owned(), value: Some(Bytes::from_static(&[7; VALUE_BYTES])) };
    framed(&[header.encode_length_delimited_to_vec(), param.encode_length_delimited_to_vec()].concat())
}

/// Bytes of the answer to `request`.
fn answer_bytes(stream: &mut TcpStream, request: &[u8]) -> usize {
    stream.write_all(request).expect("write");
    let mut length = [0; 4];
    stream.read_exact(&mut length).expect("length");
    let mut body = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut body).expect("body");
    length.len() + body.len()
}

fn round_trips(c: &mut Criterion) {
    let server = server();
    let mut stream = connect(server.local_addr());
    // Call ids of the same encoded length, so that all answers are as long as the first.
    let one = request(1);
    let answer = answer_bytes(&mut stream, &one);
    let batch: Vec<u8> = (1..=PIPELINED).flat_map(request).collect();

    let mut group = c.benchmark_group("rpc_echo");
    group.measurement_time(Duration::from_secs(5));
    for (name, calls, requests) in [("one", 1, one), ("pipelined_64", PIPELINED, batch)] {
        let mut answers = vec![0; answer * calls as usize];
        group.throughput(Throughput::Elements(u64::from(calls)));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                stream.write_all(&requests).expect("write");
                stream.read_exact(&mut answers).expect("read");
                black_box(&answers);
            });
        });
    }
    group.finish();
    drop(stream);
    server.shutdown(Duration::from_secs(1));
}

criterion_group!(benches, round_trips);
criterion_main!(benches);
