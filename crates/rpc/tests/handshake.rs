//! The server's reactions to the first bytes of a connection.

mod support;

use std::sync::Arc;

use evenkeel_protocol::pb;
use prost::Message;
use support::{Client, TestServer, connection_header, framed, message, request, version};

const PREAMBLE_CALL_ID: u32 = u32::MAX;

fn refused_preamble(server: &TestServer, preamble: &[u8]) -> (String, String) {
    let mut client = server.raw();
    client.send(preamble);
    let response = client.response();
    assert_eq!(response.call_id(), PREAMBLE_CALL_ID);
    assert!(response.body.is_empty());
    client.assert_closed();
    (response.exception_class().to_owned(), response.exception().stack_trace.clone().unwrap())
}

#[test]
fn wrong_preambles_get_a_reason_and_are_closed() {
    let server = TestServer::start();
    let (class, text) = refused_preamble(&server, b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(class, "org.apache.hadoop.hbase.ipc.FatalConnectionException");
    assert!(text.starts_with("Expected HEADER="), "{text}");
    let (class, text) = refused_preamble(&server, b"HBas\x01\x50");
    assert_eq!(class, "org.apache.hadoop.hbase.ipc.WrongVersionException");
    assert!(text.contains("speaks version 1"), "{text}");
    let (class, _) = refused_preamble(&server, b"HBas\x00\x4f");
    assert_eq!(class, "org.apache.hadoop.hbase.ipc.BadAuthException");
    server.assert_alive();
}

#[test]
fn a_preamble_may_come_byte_by_byte() {
    let server = TestServer::start();
    let mut client = server.raw();
    let bytes = [&b"HBas\x00\x50"[..], &framed(&connection_header().encode_to_vec())].concat();
    for byte in bytes {
        client.send(&[byte]);
    }
    assert_eq!(client.call(0, "Echo", "x").message().name, "x");
}

#[test]
fn the_registry_preamble_answers_the_cluster_id_and_closes() {
    let server = TestServer::with(|config| config.cluster_id = Arc::new(|| Some("cluster-7".to_owned())));
    let mut client = server.raw();
    client.send(b"Regist");
    let response = client.response();
    assert_eq!(response.call_id(), PREAMBLE_CALL_ID);
    let registry = pb::GetConnectionRegistryResponse::decode_length_delimited(response.body).unwrap();
    assert_eq!(registry.cluster_id, "cluster-7");
    client.assert_closed();
}

#[test]
fn without_a_cluster_id_the_registry_preamble_is_a_wrong_header() {
    let server = TestServer::start();
    let (class, text) = refused_preamble(&server, b"Regist");
    assert_eq!(class, "org.apache.hadoop.hbase.ipc.FatalConnectionException");
    assert!(text.starts_with("Expected HEADER="), "{text}");
}

#[test]
fn the_security_preamble_is_answered_and_another_preamble_follows() {
    let server = TestServer::start();
    let mut client = server.raw();
    client.send(b"Securi");
    let response = client.response();
    assert_eq!(response.call_id(), PREAMBLE_CALL_ID);
    assert_eq!(response.exception_class(), "org.apache.hadoop.hbase.ipc.SecurityNotEnabledException");
    client.send(b"HBas\x00\x50");
    client.send(&framed(&connection_header().encode_to_vec()));
    assert_eq!(client.call(0, "Echo", "x").message().name, "x");
}

#[test]
fn secure_clients_are_switched_to_simple_and_their_first_token_is_dropped() {
    let server = TestServer::start();
    for auth in [81, 82] {
        let mut client = server.raw();
        client.send(&[b'H', b'B', b'a', b's', 0, auth]);
        client.send(&framed(b"a SASL token that means nothing"));
        assert_eq!(client.read(8), [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xa8]);
        client.send(&framed(&connection_header().encode_to_vec()));
        assert_eq!(client.call(0, "Echo", "x").message().name, "x");
    }
}

fn assert_header_closes(server: &TestServer, header: &pb::ConnectionHeader) {
    let mut client = server.client_with(header);
    client.assert_closed();
}

#[test]
fn headers_that_cannot_be_served_close_without_a_reply() {
    let server = TestServer::start();
    let with = |change: fn(&mut pb::ConnectionHeader)| {
        let mut header = connection_header();
        change(&mut header);
        header
    };
    assert_header_closes(&server, &with(|header| header.service_name = None));
    assert_header_closes(&server, &with(|header| header.service_name = Some("MasterService".to_owned())));
    assert_header_closes(&server, &with(|header| header.cell_block_codec_class = Some("a.b.C".to_owned())));
    assert_header_closes(
        &server,
        &with(|header| header.cell_block_compressor_class = Some("a.b.C".to_owned())),
    );
    let mut client = server.raw();
    client.send(b"HBas\x00\x50");
    client.send(&framed(&[0xff; 20]));
    client.assert_closed();
    server.assert_alive();
}

#[test]
fn a_compressor_without_a_codec_is_ignored() {
    let server = TestServer::start();
    let mut header = connection_header();
    header.cell_block_codec_class = None;
    header.cell_block_compressor_class = Some("a.b.C".to_owned());
    assert_eq!(server.client_with(&header).call(0, "Echo", "x").message().name, "x");
}

#[test]
fn a_frame_over_the_limit_before_the_header_closes() {
    let server = TestServer::with(|config| config.request_bytes_max = 1000);
    for length in [1001u32, u32::MAX] {
        let mut client = server.raw();
        client.send(b"HBas\x00\x50");
        client.send(&length.to_be_bytes());
        client.assert_closed();
    }
    server.assert_alive();
}

#[test]
fn user_version_and_attributes_reach_the_service() {
    let server = TestServer::start();
    let mut header = connection_header();
    header.version_info = Some(version(1, 4));
    header.attribute.push(message("connection", b"attribute"));
    let mut client = server.client_with(&header);
    let mut call = support::request_header(9, "Who");
    call.attribute.push(message("k", b"v"));
    call.trace_info = Some(pb::RpctInfo { trace_id: Some(4), ..Default::default() });
    call.priority = Some(200);
    call.timeout = Some(7);
    client.send(&support::request_with(call, &message("", b""), &[]));
    let text = client.response().message().name;
    assert_eq!(text, "Some(\"tester\") Some((1, 4)) Some(200) [(\"k\", b\"v\")] Some(20ms)");
}

#[test]
fn minimal_connection_headers_are_accepted() {
    let server = TestServer::start();
    let header =
        pb::ConnectionHeader { service_name: Some("ClientService".to_owned()), ..Default::default() };
    let text = server.client_with(&header).call(1, "Who", "").message().name;
    assert_eq!(text, "None None None [] None");
}

#[test]
fn a_silent_connection_times_out() {
    let server = TestServer::with(|config| config.handshake_timeout = std::time::Duration::from_millis(100));
    let mut client = server.raw();
    client.send(b"HBas");
    client.assert_closed();
}

#[test]
fn a_taken_port_is_an_error() {
    let server = TestServer::start();
    let config = evenkeel_rpc::RpcServerConfig::at(server.address());
    let error = evenkeel_rpc::RpcServer::bind(config).err().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
}

#[test]
fn connections_over_the_limit_are_closed() {
    let server = TestServer::with(|config| config.connections_max = 2);
    let (mut one, mut two) = (server.client(), server.client());
    one.call(0, "Echo", "x");
    two.call(0, "Echo", "x");
    Client::raw(server.address()).assert_closed();
    drop(one);
    support::eventually("a place is free again", || server.handle.stats().connections_open == 1);
    let mut three = server.client();
    three.send(&request(0, "Echo", &message("x", b"")));
    assert_eq!(three.response().message().name, "x");
}
