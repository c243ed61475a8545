//! Connections that hold resources that others need: incomplete requests, and places of idle
//! connections.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_protocol::pb;
use evenkeel_rpc::{IdleConfig, RpcServerConfig};
use prost::Message;
use support::{Client, TestServer, connection_header, eventually, framed, message, request};

const TOO_BIG: &str = "org.apache.hadoop.hbase.CallQueueTooBigException";
const REQUESTS: u64 = 1 << 20;
/// The input budget of that.
const INPUT: u64 = REQUESTS / 16 * 13;

fn server(adjust: impl FnOnce(&mut RpcServerConfig)) -> TestServer {
    TestServer::with(|config| {
        config.inflight_bytes_max = REQUESTS;
        adjust(config);
    })
}

/// Sends as much as the server accepts. Returns true if the connection is still open.
fn pushes(client: &mut Client, bytes: &[u8]) -> bool {
    client.0.write_all(bytes).is_ok()
}

/// Returns true if the server closed the connection, possibly after the reply to a refused
/// request.
fn is_ended(client: &mut Client) -> bool {
    client.0.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    match client.0.read(&mut [0; 4096]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

fn ended(clients: &mut [Client]) -> usize {
    clients.iter_mut().filter_map(|client| is_ended(client).then_some(())).count()
}

/// Checks that the bytes of closed connections were returned, except the idle chunks of the
/// threads.
fn assert_given_back(server: &TestServer) {
    eventually("input is given back", || server.handle.stats().input_bytes == 0);
    eventually("requests are given back", || server.handle.stats().inflight_bytes <= REQUESTS / 8);
}

#[test]
fn frames_before_the_connection_header_are_limited() {
    let server = server(|_| ());
    for preamble in [&b"HBas\x00\x50"[..], b"HBas\x00\x51"] {
        let mut client = server.raw();
        client.send(preamble);
        client.send(&(1u32 << 20).to_be_bytes());
        eventually("it is closed", || is_ended(&mut client));
    }
    let mut header = connection_header();
    header.attribute.push(message("k", &[7; 60_000]));
    assert_eq!(server.client_with(&header).call(1, "Echo", "x").message().name, "x");
    header.attribute.push(message("k", &[7; 10_000]));
    let too_long = header.clone();
    header.attribute = (0..1001).map(|_| message("", b"")).collect();
    let mut client = server.client_with(&header);
    eventually("it is closed", || is_ended(&mut client));
    let header = too_long;
    let mut client = server.client_with(&header);
    eventually("it is closed", || is_ended(&mut client));
}

#[test]
fn bytes_before_the_connection_header_are_counted_and_bounded() {
    let server = server(|_| ());
    let mut other = server.client();
    other.call(0, "Echo", "x");
    let mut clients: Vec<_> = (0..60).map(|_| server.raw()).collect();
    for client in &mut clients {
        pushes(client, &[b"HBas\x00\x50", &60_000u32.to_be_bytes()[..], &[1; 59_000]].concat());
    }
    eventually("some find no room", || ended(&mut clients) >= 40);
    let stats = server.handle.stats();
    assert!(stats.input_bytes <= INPUT && stats.input_bytes > INPUT / 2, "{stats:?}");
    assert_eq!(other.call(1, "Echo", "y").message().name, "y");
    drop(clients);
    assert_given_back(&server);
}

#[test]
fn long_connection_headers_are_counted_as_long_as_the_connection_lives() {
    let server = server(|_| ());
    let mut header = connection_header();
    header.attribute = (0..500).map(|_| message("", &[1; 40])).collect();
    let mut clients: Vec<_> = (0..60).map(|_| server.client_with(&header)).collect();
    eventually("some find no room", || ended(&mut clients) >= 10);
    let held = server.handle.stats().input_bytes;
    assert!(held <= INPUT && held > INPUT / 2, "{held}");
    assert_eq!(server.client().call(1, "Echo", "y").message().name, "y");
    eventually("those that nobody uses go", || ended(&mut clients) == clients.len());
    assert_given_back(&server);
}

#[test]
fn partial_requests_leave_room_for_whole_ones() {
    let server = server(|_| ());
    let mut other = server.client();
    let mut clients: Vec<_> = (0..40).map(|_| server.client()).collect();
    let half = &request(7, "Echo", &message("m", &[1; 100_000]))[..60_000];
    clients.iter_mut().for_each(|client| client.send(half));
    eventually("the rest is refused", || server.handle.stats().calls_refused >= 20);
    assert!(server.handle.stats().input_bytes > INPUT / 2);
    for id in 0..100 {
        let response = other.call(id, "Echo", "small");
        assert_eq!(response.message().name, "small", "{:?}", server.handle.stats());
    }
    assert!(server.handle.stats().input_bytes <= INPUT);
    eventually("who does not go on is closed", || server.handle.stats().input_bytes == 0);
    assert_eq!(other.call(1000, "Echo", "small").message().name, "small");
    let mut large = server.client();
    large.send(&request(1, "Echo", &message("large", &[1; 700_000])));
    assert_eq!(large.response().message().name, "large");
    assert_given_back(&server);
}

#[test]
fn a_refused_request_leaves_its_connection_usable() {
    let server = server(|_| ());
    let mut holder = server.client();
    holder.send(&request(7, "Echo", &message("m", &[1; 900_000]))[..800_000]);
    eventually("it is held", || server.handle.stats().input_bytes > 700_000);
    let mut client = server.client();
    client.send(&request(1, "Echo", &message("m", &[1; 200_000])));
    let response = client.response();
    assert_eq!((response.call_id(), response.exception_class()), (1, TOO_BIG));
    assert_eq!(client.call(2, "Echo", "after").message().name, "after");
}

#[test]
fn a_trickled_request_times_out() {
    let server = server(|config| config.receive_timeout = Duration::from_millis(200));
    let frame = request(1, "Echo", &message("slow", &[1; 1000]));
    let mut slow = server.client();
    let began = Instant::now();
    let closed = frame.iter().position(|byte| {
        std::thread::sleep(Duration::from_millis(20));
        !pushes(&mut slow, &[*byte]) || is_ended(&mut slow)
    });
    assert!(closed.is_some() && began.elapsed() < Duration::from_secs(5), "{closed:?}");
    let mut steady = server.client();
    for part in frame.chunks(300) {
        std::thread::sleep(Duration::from_millis(20));
        steady.send(part);
    }
    assert_eq!(steady.response().message().name, "slow");
    assert_given_back(&server);
}

/// Time in which the server does not read does not count against the client.
#[test]
fn a_request_behind_running_ones_does_not_time_out() {
    let server = server(|config| {
        config.receive_timeout = Duration::from_millis(100);
        config.connection_calls_max = 1;
    });
    let mut client = server.client();
    let calls = [request(1, "Hold", &message("", b"")), request(2, "Echo", &message("second", &[1; 100]))];
    client.send(&calls.concat()[..calls[0].len() + 50]);
    eventually("the first runs", || server.service.ran.load(Ordering::Relaxed) == 1);
    std::thread::sleep(Duration::from_millis(500));
    client.send(&calls[1][50..]);
    server.client().call(9, "Release", "");
    assert_eq!(client.response().message().name, "released");
    assert_eq!(client.response().message().name, "second");
}

fn idle_after(time_max: Duration) -> IdleConfig {
    IdleConfig { threshold: 0, time_max, closed_max: 1000, scan_interval: Duration::from_millis(100) }
}

#[test]
fn unused_connections_close_by_hbases_settings() {
    let server = server(|config| config.idle = idle_after(Duration::from_millis(1500)));
    let (mut idle, mut calling, mut used) = (server.client(), server.client(), server.client());
    idle.call(1, "Echo", "x");
    calling.send(&request(1, "Hold", &message("", b"")));
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        used.call(1, "Echo", "x");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(is_ended(&mut idle));
    used.call(1, "Release", "x");
    calling.0.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert_eq!(calling.response().message().name, "released");

    let few = TestServer::with(|config| {
        config.idle = IdleConfig { threshold: 4, ..idle_after(Duration::from_millis(100)) };
    });
    let mut client = few.client();
    client.call(1, "Echo", "x");
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(client.call(2, "Echo", "still").message().name, "still");
}

#[test]
fn a_connection_with_a_lease_is_in_use() {
    let server = server(|config| config.idle = idle_after(Duration::from_millis(100)));
    let mut client = server.client();
    client.call(1, "Lease", "");
    std::thread::sleep(Duration::from_millis(2000));
    assert_eq!(client.call(2, "Unlease", "still").message().name, "still");
    eventually("it is idle then", || is_ended(&mut client));
}

#[test]
fn idle_connections_are_closed_for_new_ones() {
    let server = server(|config| config.connections_max = 32);
    let mut silent: Vec<_> = (0..10).map(|_| server.raw()).collect();
    let mut idle: Vec<_> = (0..22).map(|_| server.client()).collect();
    idle.iter_mut().for_each(|client| drop(client.call(1, "Echo", "x")));
    server.raw().assert_closed();
    eventually("there is a place", || {
        let mut client = server.raw();
        pushes(&mut client, b"HBas\x00\x50");
        pushes(&mut client, &framed(&connection_header().encode_to_vec()));
        pushes(&mut client, &request(1, "Echo", &message("x", b"")));
        client.0.read(&mut [0; 100]).is_ok_and(|count| count > 0)
    });
    assert!(ended(&mut silent) > 0, "those that said nothing go first");
    assert_eq!(ended(&mut idle), 0);
}

/// A request that races with the end of its connection is either run and answered, or not run.
#[test]
fn no_request_runs_unanswered_on_a_closing_connection() {
    let server = server(|config| {
        config.idle = IdleConfig { scan_interval: Duration::ZERO, ..idle_after(Duration::ZERO) };
        config.connections_max = 1;
        config.receive_timeout = Duration::from_millis(20);
    });
    let (mut answered, mut closed) = (0, 0);
    let until = Instant::now() + Duration::from_secs(8);
    while closed < 3 && Instant::now() < until {
        let mut client = server.raw();
        client.0.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        pushes(&mut client, b"HBas\x00\x50");
        pushes(&mut client, &framed(&connection_header().encode_to_vec()));
        let mut pause = Duration::from_millis(900);
        loop {
            pushes(&mut client, &request(1, "Echo", &message("x", b"")));
            match client.0.read(&mut [0; 1000]) {
                Ok(1..) => answered += 1,
                Ok(0) | Err(_) => break closed += 1,
            }
            std::thread::sleep(pause);
            pause += Duration::from_millis(20);
        }
    }
    eventually("all are over", || server.handle.stats().connections_open == 0);
    assert!(closed > 0 && answered > 0);
    assert_eq!(server.service.ran.load(Ordering::Relaxed), answered);
}

#[test]
fn attributes_do_not_keep_the_buffer_they_came_in() {
    let value = Bytes::from(vec![1; 10]);
    let header = pb::ConnectionHeader {
        attribute: vec![pb::NameBytesPair { name: "k".to_owned(), value: Some(value) }],
        ..connection_header()
    };
    let server = TestServer::start();
    assert_eq!(server.client_with(&header).call(1, "Echo", "x").message().name, "x");
    assert_eq!(server.handle.stats().input_bytes, 0, "a short header is no connection's own");
}
