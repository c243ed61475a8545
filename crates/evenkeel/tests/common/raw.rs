//! Requests in their wire format, for clients that misbehave in ways that the client library
//! prevents.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use bytes::Bytes;
use evenkeel_protocol::pb;
use prost::Message;

/// Bytes with a length prefix.
pub fn frame(bytes: &[u8]) -> Vec<u8> {
    let len = u32::try_from(bytes.len()).expect("a frame");
    [&len.to_be_bytes()[..], bytes].concat()
}

/// A request.
pub fn call(id: u32, method: &str, param: &impl Message) -> Vec<u8> {
    call_with_cells(id, method, param, &[])
}

/// A request with a cell block, unless that is empty.
pub fn call_with_cells(id: u32, method: &str, param: &impl Message, block: &[u8]) -> Vec<u8> {
    let length = Some(u32::try_from(block.len()).expect("a block"));
    let header = pb::RequestHeader {
        call_id: Some(id),
        method_name: Some(method.to_owned()),
        request_param: Some(true),
        cell_block_meta: (!block.is_empty()).then_some(pb::CellBlockMeta { length }),
        ..Default::default()
    };
    let message = [header.encode_length_delimited_to_vec(), param.encode_length_delimited_to_vec()].concat();
    frame(&[&message[..], block].concat())
}

/// A connection to a RegionServer that accepts cell blocks.
pub fn connect(port: u16) -> TcpStream {
    connect_with(port, "org.apache.hadoop.hbase.codec.KeyValueCodec")
}

/// As [`connect`], with this cell codec.
pub fn connect_with(port: u16, codec: &str) -> TcpStream {
    let header = pb::ConnectionHeader {
        cell_block_codec_class: Some(codec.to_owned()),
        ..connection_header("ClientService")
    };
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connects");
    stream.write_all(&opening(&header)).expect("sent");
    stream
}

/// As [`connect`], for another service.
pub fn connect_to(port: u16, service: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connects");
    stream.write_all(&opening(&connection_header(service))).expect("sent");
    stream
}

/// A request whose parameter is arbitrary bytes.
pub fn call_of_bytes(id: u32, method: &str, param: &[u8]) -> Vec<u8> {
    let header = pb::RequestHeader {
        call_id: Some(id),
        method_name: Some(method.to_owned()),
        request_param: Some(true),
        ..Default::default()
    };
    let mut length = Vec::new();
    prost::encoding::encode_varint(param.len() as u64, &mut length);
    frame(&[&header.encode_length_delimited_to_vec(), &length, param].concat())
}

/// A ConnectionHeader of a client that accepts cell blocks.
pub fn connection_header(service: &str) -> pb::ConnectionHeader {
    pb::ConnectionHeader {
        service_name: Some(service.to_owned()),
        cell_block_codec_class: Some("org.apache.hadoop.hbase.codec.KeyValueCodec".to_owned()),
        version_info: Some(pb::VersionInfo {
            version_major: Some(2),
            version_minor: Some(6),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// The first bytes that a client sends.
pub fn opening(header: &pb::ConnectionHeader) -> Vec<u8> {
    [&b"HBas\0\x50"[..], &frame(&header.encode_to_vec())].concat()
}

/// Reads a reply: its header, and the bytes after it.
pub fn reply(stream: &mut TcpStream) -> io::Result<(pb::ResponseHeader, Bytes)> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut body = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut body)?;
    let mut body = Bytes::from(body);
    let header = pb::ResponseHeader::decode_length_delimited(&mut body).map_err(io::Error::other)?;
    Ok((header, body))
}

/// Gets of these rows.
pub fn gets(region: &pb::RegionSpecifier, rows: impl Iterator<Item = String>) -> Vec<u8> {
    let get = |(id, row)| {
        let get = pb::Get { row: Bytes::from(row), ..Default::default() };
        call(id, "Get", &pb::GetRequest { region: region.clone(), get })
    };
    (0_u32..).zip(rows).flat_map(get).collect()
}

/// Scans of a whole region, each with the maximum for one call.
pub fn scans(region: &pb::RegionSpecifier, count: u32) -> Vec<u8> {
    let scan = |id: u32| {
        let request = pb::ScanRequest {
            region: Some(region.clone()),
            scan: Some(pb::Scan { max_result_size: Some(100 << 20), ..Default::default() }),
            number_of_rows: Some(1000),
            client_handles_partials: Some(true),
            ..Default::default()
        };
        call(id, "Scan", &request)
    };
    (0..count).flat_map(scan).collect()
}
