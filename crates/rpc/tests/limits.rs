//! Budgets and backpressure: no client can make the server grow without bound.

mod support;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use evenkeel_common::Budget;

use support::{TestServer, connection_header, eventually, message, request, request_header, request_with};

const TOO_BIG: &str = "org.apache.hadoop.hbase.CallQueueTooBigException";

#[test]
fn a_frame_over_the_limit_is_reported_and_closes() {
    let server = TestServer::with(|config| config.request_bytes_max = 10_000);
    for (version, class) in [
        (Some(support::version(2, 6)), "org.apache.hadoop.hbase.exceptions.RequestTooBigException"),
        (Some(support::version(1, 2)), "org.apache.hadoop.hbase.DoNotRetryIOException"),
        (None, "org.apache.hadoop.hbase.DoNotRetryIOException"),
    ] {
        let mut header = connection_header();
        header.version_info = version;
        let mut client = server.client_with(&header);
        client.send(&request(77, "Echo", &message("m", &vec![1; 200_000])));
        let response = client.response();
        assert_eq!((response.call_id(), response.exception_class()), (77, class));
        assert_eq!(response.exception().do_not_retry, Some(true));
        client.assert_closed();
    }
    assert_eq!(server.service.ran.load(Ordering::Relaxed), 0);
}

#[test]
fn a_frame_over_the_limit_is_reported_at_its_header() {
    let server = TestServer::with(|config| config.request_bytes_max = 10_000);
    let mut client = server.client();
    let frame = request(78, "Echo", &message("m", &vec![1; 20_000]));
    for byte in &frame[..30] {
        client.send(&[*byte]);
    }
    assert_eq!(client.response().call_id(), 78);
    client.assert_closed();
}

#[test]
fn a_frame_of_exactly_the_limit_is_served() {
    let frame = request(1, "Echo", &message("m", &vec![1; 5000]));
    let server = TestServer::with(|config| config.request_bytes_max = frame.len() - 4);
    let mut client = server.client();
    client.send(&frame);
    assert_eq!(client.response().message().name, "m");
}

#[test]
fn request_bytes_in_flight_are_limited_for_the_server() {
    let server = TestServer::with(|config| config.inflight_bytes_max = 105_000);
    // Each connection has few calls, so the server keeps reading from it.
    let mut clients: Vec<_> = (0..8).map(|_| server.client()).collect();
    for id in 0..40 {
        clients[id as usize % 8].send(&request(id, "Hold", &message("", &vec![0; 10_000])));
    }
    // Only refused calls are answered while the others are held.
    let refused = || server.handle.stats().calls_refused;
    eventually("all calls arrived", || server.handle.stats().calls == 40);
    assert!((31..=35).contains(&refused()), "{} of 40 refused", refused());
    let held = 40 - refused();
    for client in &mut clients {
        client.send(&request(1000, "Release", &message("", b"")));
    }
    let mut responses = Vec::new();
    for client in &mut clients {
        responses.extend((0..6).map(|_| client.response()));
    }
    let too_big = responses.iter().filter(|response| response.header.exception.is_some());
    assert_eq!(too_big.clone().count() as u64, 40 - held);
    assert!(too_big.into_iter().all(|response| response.exception_class() == TOO_BIG));
    eventually("the budget came back", || server.handle.stats().inflight_bytes <= 105_000 / 8);
    server.assert_alive();
}

#[test]
fn calls_in_flight_are_limited_for_the_server() {
    let server = TestServer::with(|config| config.inflight_calls_max = 10);
    let mut client = server.client();
    let calls: Vec<u8> = (0..15).flat_map(|id| request(id, "Hold", &message("", b""))).collect();
    client.send(&calls);
    for id in 10..15 {
        let response = client.response();
        assert_eq!((response.call_id(), response.exception_class()), (id, TOO_BIG));
    }
}

#[test]
fn connections_with_many_calls_leave_capacity_to_others() {
    let server = TestServer::with(|config| config.inflight_calls_max = 2000);
    let mut clients = [server.client(), server.client(), server.client()];
    let calls: Vec<u8> = (0..2000).flat_map(|id| request(id, "Hold", &message("", b""))).collect();
    clients.iter_mut().for_each(|client| client.send(&calls));
    let ran = || server.service.ran.load(Ordering::Relaxed);
    // Each takes at most half of what the earlier ones left of 1500. The threads keep some in
    // reserve.
    eventually("the connections are read up to their shares", || ran() >= 1000);
    std::thread::sleep(Duration::from_millis(100));
    assert!(ran() <= 1500, "{} run", ran());
    assert_eq!(server.handle.stats().calls_refused, 0);
    server.assert_alive();
}

#[test]
fn a_long_frame_over_the_budget_is_refused_while_it_arrives() {
    let server = TestServer::with(|config| config.inflight_bytes_max = 1 << 20);
    let mut client = server.client();
    client.send(&request(1, "Echo", &message("m", &vec![1; 8 << 20])));
    let response = client.response();
    assert_eq!((response.call_id(), response.exception_class()), (1, TOO_BIG));
    assert_eq!(client.call(2, "Echo", "after").message().name, "after");
    eventually("the budget came back", || server.handle.stats().inflight_bytes <= (1 << 20) / 8);
}

#[test]
fn long_frames_return_their_budget() {
    let server = TestServer::with(|config| config.inflight_bytes_max = 3 << 20);
    let mut client = server.client();
    for id in 0..6 {
        client.send(&request(id, "Echo", &message("m", &vec![1; 2 << 20])));
        assert_eq!(client.response().message().name, "m");
    }
    client.send(&(3u32 << 20).to_be_bytes());
    client.send(&vec![1; 1 << 20]);
    drop(client);
    eventually("the connection ended", || server.handle.stats().connections_open == 0);
    assert!(server.handle.stats().inflight_bytes <= (3 << 20) / 8, "{:?}", server.handle.stats());
}

#[test]
fn a_connection_with_many_calls_waits_in_its_socket() {
    let server = TestServer::with(|config| config.connection_calls_max = 10);
    let mut client = server.client();
    let calls: Vec<u8> = (0..100).flat_map(|id| request(id, "Hold", &message("", b""))).collect();
    client.send(&calls);
    eventually("the first calls run", || server.service.ran.load(Ordering::Relaxed) == 10);
    server.assert_alive();
    assert_eq!(server.service.ran.load(Ordering::Relaxed), 11, "the eleventh is the other client's");
    let mut other = server.client();
    let mut answered = 0;
    while answered < 100 {
        other.call(0, "Release", "");
        let held = server.service.ran.load(Ordering::Relaxed);
        while answered < 100 && client.0.peek_ready() {
            client.response();
            answered += 1;
        }
        assert!(held <= 400, "no progress");
    }
}

#[test]
fn the_close_of_a_connection_at_its_limit_is_noticed() {
    let server = TestServer::with(|config| config.connection_calls_max = 10);
    let mut client = server.client();
    let calls: Vec<u8> = (0..100).flat_map(|id| request(id, "Hold", &message("", b""))).collect();
    client.send(&calls);
    eventually("the first calls run", || server.service.ran.load(Ordering::Relaxed) == 10);
    let holder = server.service.holder.lock().clone().expect("a held call");
    std::thread::sleep(std::time::Duration::from_millis(600));
    assert!(!holder.is_closed(), "the client is there");
    drop(client);
    eventually("the calls know that their client is gone", || holder.is_closed());
    assert_eq!(server.service.ran.load(Ordering::Relaxed), 10, "no call ran for nobody");
    server.client().call(0, "Release", "");
    eventually("the connection ended", || server.handle.stats().connections_open == 0);
}

trait PeekReady {
    fn peek_ready(&self) -> bool;
}

impl PeekReady for std::net::TcpStream {
    /// Returns true if a reply has arrived, after a short wait.
    fn peek_ready(&self) -> bool {
        self.set_read_timeout(Some(std::time::Duration::from_millis(50))).unwrap();
        let ready = self.peek(&mut [0; 1]).is_ok_and(|count| count > 0);
        self.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        ready
    }
}

#[test]
fn requests_of_a_slow_reader_are_not_read() {
    let server = TestServer::with(|config| config.connection_unsent_bytes_max = 4 << 20);
    let mut client = server.client();
    let calls: Vec<u8> = (0..300).flat_map(|id| request(id, "Big", &message("1000000", b""))).collect();
    client.send(&calls);
    eventually("replies pile up", || server.handle.stats().unsent_bytes >= 4 << 20);
    std::thread::sleep(std::time::Duration::from_millis(200));
    let stats = server.handle.stats();
    assert!(stats.unsent_bytes <= 6 << 20, "{} bytes unsent", stats.unsent_bytes);
    assert!(stats.calls < 100, "{} calls ran for a client that reads nothing", stats.calls);
    for id in 0..300 {
        let response = client.response();
        assert_eq!(response.call_id(), id);
        assert_eq!(response.message().value.unwrap().len(), 1_000_000);
    }
    eventually("everything was sent", || server.handle.stats().unsent_bytes == 0);
}

#[test]
fn a_client_that_never_reads_is_closed_at_the_fatal_limit() {
    let server = TestServer::with(|config| {
        config.connection_unsent_bytes_max = 1 << 20;
        config.connection_unsent_bytes_fatal = 8 << 20;
    });
    let mut client = server.client();
    client.send(&request(1, "Big", &message("60000000", b"")));
    eventually("the connection is closed", || server.handle.stats().connections_open == 0);
    assert_eq!(server.handle.stats().unsent_bytes, 0);
    server.assert_alive();
}

/// Calls for 1 MB each, none of which is answered completely while the client does not read.
fn ask_and_never_read(server: &TestServer, clients: usize) -> Vec<support::Client> {
    let calls: Vec<u8> = (0..50).flat_map(|id| request(id, "Big", &message("1000000", b""))).collect();
    let ask = |_| {
        let mut client = server.client();
        client.send(&calls);
        client
    };
    (0..clients).map(ask).collect()
}

#[test]
fn unread_responses_block_only_their_clients() {
    const BUDGET: u64 = 40 << 20;
    let server = TestServer::with(|config| config.unsent = Budget::new(BUDGET));
    let mut slow = ask_and_never_read(&server, 64);
    eventually("replies pile up", || server.handle.stats().unsent_bytes > BUDGET / 2);
    std::thread::sleep(Duration::from_millis(200));
    let stats = server.handle.stats();
    // A reply of 64 KiB always fits, in particular a refusal.
    assert!(stats.unsent_bytes <= BUDGET + 64 * (64 << 10), "{stats:?}");
    let mut worst = Duration::ZERO;
    let mut other = server.client();
    for id in 0..200 {
        let asked_at = Instant::now();
        assert_eq!(other.call(id, "Echo", "small").message().name, "small");
        worst = worst.max(asked_at.elapsed());
    }
    assert!(worst < Duration::from_secs(1), "{worst:?}");
    for client in &mut slow {
        for id in 0..50 {
            let response = client.response();
            assert_eq!(response.call_id(), id);
            // A call whose reply did not fit was refused, and the client could retry.
            let refused = response.header.exception.is_some();
            assert!(!refused || response.exception_class() == TOO_BIG);
        }
    }
    eventually("the budget came back", || server.handle.stats().unsent_bytes == 0);
}

#[test]
fn a_response_without_room_is_refused() {
    let server = TestServer::with(|config| config.unsent = Budget::new(1 << 20));
    let mut client = server.client();
    client.send(&request(1, "Big", &message("3000000", b"")));
    let response = client.response();
    assert_eq!((response.call_id(), response.exception_class()), (1, TOO_BIG));
    client.send(&request(2, "Big", &message("900000", b"")));
    assert_eq!(client.response().message().value.unwrap().len(), 900_000);
}

#[test]
fn clients_that_stall_are_closed_when_their_room_is_needed() {
    const BUDGET: u64 = 40 << 20;
    let server = TestServer::with(|config| {
        config.unsent = Budget::new(BUDGET);
        config.unsent_stall_max = Duration::from_millis(300);
    });
    let few = ask_and_never_read(&server, 2);
    std::thread::sleep(Duration::from_millis(900));
    assert_eq!(server.handle.stats().connections_open, 2, "nobody needs their room");
    let many = ask_and_never_read(&server, 64);
    eventually("there is room again", || {
        let stats = server.handle.stats();
        stats.connections_open < 66 && stats.unsent_bytes <= BUDGET / 4 * 3
    });
    assert!(server.handle.stats().connections_open > 0, "only as many as it takes");
    server.assert_alive();
    drop((few, many));
}

#[test]
fn small_unread_responses_stay_within_the_budget() {
    const FATAL: u64 = 512 << 10;
    // Uncounted replies of the connection threads.
    const COUNTED_LATE: u64 = 1 << 20;
    let server = TestServer::with(|config| {
        config.unsent = Budget::new(FATAL / 2);
        config.unsent_bytes_fatal = FATAL;
        config.unsent_stall_max = Duration::from_secs(3600);
    });
    let calls: Vec<u8> = (0..200).flat_map(|id| request(id, "Big", &message("60000", b""))).collect();
    let mut clients: Vec<_> = (0..48).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| client.send(&calls));
    let mut most = 0;
    eventually("who does not take a reply is closed", || {
        let stats = server.handle.stats();
        most = most.max(stats.unsent_bytes);
        stats.connections_opened == 48 && stats.connections_open < 40
    });
    assert!(most <= FATAL + COUNTED_LATE, "{most} bytes");
    server.assert_alive();
    drop(clients);
    eventually("the budget came back", || server.handle.stats().unsent_bytes == 0);
}

/// Number of replies that hold the test's value.
fn pins(server: &TestServer) -> usize {
    std::sync::Arc::strong_count(&server.service.value) - 1
}

#[test]
fn shared_values_are_released_once_written() {
    let server = TestServer::start();
    let mut client = server.client();
    for cells in [1usize, 7, 150] {
        let count = cells.to_string();
        let response = client.call(cells as u32, "Shared", &count);
        let cells: Vec<_> =
            evenkeel_rpc::CellBlockReader::new(evenkeel_rpc::CellCodec::KeyValue, response.cells())
                .map(|cell| cell.expect("a cell"))
                .collect();
        assert_eq!(cells.len().to_string(), count);
        assert!(cells.iter().all(|cell| cell.as_cell().value() == &server.service.value[..]));
        eventually("no pin is left", || pins(&server) == 0);
    }
}

#[test]
fn shared_values_are_released_when_the_connection_dies() {
    let server = TestServer::start();
    let mut client = server.client();
    let calls: Vec<u8> = (0..20).flat_map(|id| request(id, "Shared", &message("150", b""))).collect();
    client.send(&calls);
    eventually("replies pile up", || pins(&server) > 100);
    assert!(pins(&server) <= 400, "{} pins by one client that does not read", pins(&server));
    drop(client);
    eventually("no pin is left", || pins(&server) == 0);
    assert_eq!(server.handle.stats().unsent_bytes, 0);
}

#[test]
fn a_call_whose_time_is_up_before_its_turn_does_not_run() {
    let server = TestServer::with(|config| config.connection_calls_max = 1);
    let mut client = server.client();
    let mut hurried = request_header(2, "Echo");
    hurried.timeout = Some(30);
    let calls = [
        request(1, "Hold", &message("", b"")),
        request_with(hurried, &message("late", b""), &[]),
        request(3, "Echo", &message("patient", b"")),
    ];
    client.send(&calls.concat());
    eventually("the first call is held", || server.service.ran.load(Ordering::Relaxed) == 1);
    std::thread::sleep(std::time::Duration::from_millis(100));
    server.client().call(0, "Release", "");
    assert_eq!(client.response().call_id(), 1);
    assert_eq!(client.response().call_id(), 3);
    assert_eq!(server.service.ran.load(Ordering::Relaxed), 3, "held, released, patient");
}

#[test]
fn decompressed_bytes_count_as_in_flight() {
    let server = TestServer::with(|config| config.inflight_bytes_max = 1 << 20);
    let mut header = connection_header();
    header.cell_block_compressor_class = Some("org.apache.hadoop.io.compress.GzipCodec".to_owned());
    let mut client = server.client_with(&header);
    let mut packed = Vec::new();
    evenkeel_rpc::CellBlockCodec::Gzip.compress(&vec![0; 600_000], &mut packed).unwrap();
    client.send(&support::request_cells(1, "Hold", &message("", b""), &packed));
    client.send(&support::request_cells(2, "Hold", &message("", b""), &packed));
    let response = client.response();
    assert_eq!((response.call_id(), response.exception_class()), (2, TOO_BIG));
    client.call(3, "Release", "");
    assert_eq!(client.response().call_id(), 1);
    eventually("the budget came back", || server.handle.stats().inflight_bytes <= (1 << 20) / 8);
}

#[test]
fn a_huge_announced_length_is_not_charged() {
    let server = TestServer::with(|config| config.inflight_bytes_max = 1 << 20);
    let liars: Vec<_> = (0..50)
        .map(|_| {
            let mut client = server.client();
            client.send(&(200u32 << 20).to_be_bytes());
            client.send(&[5, 8, 1]);
            client
        })
        .collect();
    server.assert_alive();
    drop(liars);
    let mut client = server.client();
    client.send(&request_with(request_header(1, "Echo"), &message("m", &vec![0; 500_000]), &[]));
    assert_eq!(client.response().message().name, "m");
}
