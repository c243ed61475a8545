//! A bare echo over Evenkeel's RPC layer, with a client of negligible cost: the fixed cost of a
//! call.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use evenkeel_common::KeyValue;
use evenkeel_protocol::pb;
use evenkeel_rpc::{Call, Respond, Responder, RpcServer, RpcServerConfig, RpcServerHandle, Service};
use prost::Message;

/// Answers every call with its parameter and one cell.
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

/// Serves echoes from one thread on a free port of 127.0.0.1; each reply has one cell with a
/// value of `value_bytes`.
///
/// # Panics
/// If the server cannot start.
pub fn serve(value_bytes: usize) -> RpcServerHandle {
    let mut config = RpcServerConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)));
    config.connection_threads = 1;
    let cell = KeyValue::put(b"row-00001", b"f", b"q", 1, &vec![b'v'; value_bytes]);
    RpcServer::bind(config).expect("bind").serve(vec![Arc::new(Echo(cell))]).expect("serve")
}

/// A blocking connection to a ClientService with HBase's usual codec.
///
/// # Panics
/// If there is no server.
pub fn connect(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("connect");
    stream.set_nodelay(true).expect("nodelay");
    let header = pb::ConnectionHeader {
        user_info: Some(pb::UserInformation { effective_user: "bench".to_owned(), ..Default::default() }),
        service_name: Some("ClientService".to_owned()),
        cell_block_codec_class: Some("org.apache.hadoop.hbase.codec.KeyValueCodec".to_owned()),
        version_info: Some(pb::VersionInfo {
            version: "2.6.4".to_owned(),
            version_major: Some(2),
            version_minor: Some(6),
            ..Default::default()
        }),
        ..Default::default()
    };
    stream.write_all(b"HBas\x00\x50").expect("preamble");
    stream.write_all(&framed(&header.encode_to_vec())).expect("header");
    stream
}

/// The frame of a call.
pub fn request(call_id: u32, method: &str, param: &impl Message) -> Vec<u8> {
    let header = pb::RequestHeader {
        call_id: Some(call_id),
        method_name: Some(method.to_owned()),
        request_param: Some(true),
        priority: Some(0),
        timeout: Some(60_000),
        ..Default::default()
    };
    framed(&[header.encode_length_delimited_to_vec(), param.encode_length_delimited_to_vec()].concat())
}

fn framed(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}

/// Sends a request and reads the reply; returns its length in bytes.
///
/// # Panics
/// If the connection fails.
pub fn reply_bytes(stream: &mut TcpStream, request: &[u8]) -> usize {
    stream.write_all(request).expect("write");
    let mut length = [0; 4];
    stream.read_exact(&mut length).expect("length");
    let mut body = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut body).expect("body");
    length.len() + body.len()
}
