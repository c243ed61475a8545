//! Calls, their replies, their cell blocks and their refusals.

mod support;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_common::KeyValue;
use evenkeel_protocol::pb;
use evenkeel_rpc::{CellBlockCodec, CellBlockReader, CellBlockWriter, CellCodec};
use support::{
    TestServer, connection_header, eventually, framed, message, request, request_cells, request_header,
    request_with,
};

const DO_NOT_RETRY: &str = "org.apache.hadoop.hbase.DoNotRetryIOException";

fn cells() -> Vec<KeyValue> {
    let large = vec![b'l'; 100_000];
    vec![
        KeyValue::put(b"row", b"f", b"a", 1, b"small"),
        KeyValue::put(b"row", b"f", b"b", 2, &large),
        KeyValue::put(b"row", b"f", b"c", 3, b""),
    ]
}

fn block(codec: CellCodec, compressor: Option<CellBlockCodec>) -> Vec<u8> {
    let mut writer = CellBlockWriter::new(codec, compressor);
    cells().iter().for_each(|cell| writer.push(&cell.as_cell()));
    writer.into_bytes().unwrap()
}

#[test]
fn cells_come_back_in_every_codec() {
    let server = TestServer::start();
    for (class, codec) in [
        ("KeyValueCodec", CellCodec::KeyValue),
        ("KeyValueCodecWithTags", CellCodec::KeyValueWithTags),
        ("CellCodec", CellCodec::Cell),
        ("CellCodecWithTags", CellCodec::CellWithTags),
        ("MessageCodec", CellCodec::Message),
    ] {
        let mut header = connection_header();
        header.cell_block_codec_class = Some(format!("org.apache.hadoop.hbase.codec.{class}"));
        let mut client = server.client_with(&header);
        let sent = block(codec, None);
        client.send(&request_cells(1, "Echo", &message("m", b"v"), &sent));
        let response = client.response();
        assert_eq!(response.message(), message("m", b"v"));
        assert_eq!(response.cells(), sent, "{class}");
    }
}

#[test]
fn cells_come_back_through_every_compressor() {
    let server = TestServer::start();
    for (class, compressor) in [
        ("GzipCodec", CellBlockCodec::Gzip),
        ("DefaultCodec", CellBlockCodec::Zlib),
        ("SnappyCodec", CellBlockCodec::Snappy),
        ("Lz4Codec", CellBlockCodec::Lz4),
    ] {
        let mut header = connection_header();
        header.cell_block_compressor_class = Some(format!("org.apache.hadoop.io.compress.{class}"));
        let mut client = server.client_with(&header);
        let sent = block(CellCodec::KeyValue, Some(compressor));
        client.send(&request_cells(1, "Echo", &message("m", b""), &sent));
        let raw = compressor.decompress(&client.response().cells(), 1 << 20).unwrap();
        assert_eq!(raw, block(CellCodec::KeyValue, None), "{class}");
        client.send(&request_cells(2, "Echo", &message("m", b""), b"no stream of this codec"));
        let response = client.response();
        assert_eq!((response.call_id(), response.exception_class()), (2, DO_NOT_RETRY), "{class}");
    }
}

#[test]
fn a_cell_block_that_expands_beyond_the_request_limit_is_refused() {
    let server = TestServer::with(|config| config.request_bytes_max = 1 << 20);
    let mut header = connection_header();
    header.cell_block_compressor_class = Some("org.apache.hadoop.io.compress.GzipCodec".to_owned());
    let mut client = server.client_with(&header);
    let mut bomb = Vec::new();
    CellBlockCodec::Gzip.compress(&vec![0; 64 << 20], &mut bomb).unwrap();
    client.send(&request_cells(1, "Echo", &message("m", b""), &bomb));
    assert_eq!(client.response().exception_class(), DO_NOT_RETRY);
    assert_eq!(client.call(2, "Echo", "after").message().name, "after");
}

#[test]
fn cell_blocks_are_as_long_as_the_header_says() {
    let server = TestServer::start();
    let mut client = server.client();
    let whole = block(CellCodec::KeyValue, None);
    let announcing = |len: usize| {
        let mut header = request_header(1, "Echo");
        header.cell_block_meta = Some(pb::CellBlockMeta { length: Some(len as u32) });
        header
    };
    client.send(&request_with(announcing(whole.len() + 1), &message("m", b""), &whole));
    assert_eq!(client.response().exception_class(), DO_NOT_RETRY);
    // HBase reads what the header announces and ignores what follows.
    let longer = [&whole[..], b"rest"].concat();
    client.send(&request_with(announcing(whole.len()), &message("m", b""), &longer));
    assert_eq!(client.response().cells(), whole);
    client.send(&request_with(announcing(whole.len() - 1), &message("m", b""), &whole));
    assert_eq!(client.response().exception_class(), "java.io.IOException");
    client.send(&request_with(announcing(0), &message("m", b""), &[]));
    assert_eq!(client.response().header.cell_block_meta, None);
}

#[test]
fn a_cell_block_without_a_codec_is_refused() {
    let server = TestServer::start();
    let mut header = connection_header();
    header.cell_block_codec_class = Some(String::new());
    let mut client = server.client_with(&header);
    client.send(&request_cells(1, "Echo", &message("m", b""), &block(CellCodec::KeyValue, None)));
    assert_eq!(client.response().exception_class(), DO_NOT_RETRY);
}

#[test]
fn refused_calls_leave_the_connection_usable() {
    let server = TestServer::start();
    let mut client = server.client();
    let response = client.call(1, "NoSuchMethod", "");
    assert_eq!(response.exception_class(), DO_NOT_RETRY);
    assert_eq!(response.exception().do_not_retry, Some(true));
    assert!(response.exception().stack_trace.as_ref().unwrap().contains("UnsupportedOperationException"));
    let mut header = request_header(2, "Echo");
    header.request_param = None;
    client.send(&request_with(header, &message("m", b""), &[]));
    assert_eq!(client.response().exception_class(), DO_NOT_RETRY);
    let response = client.call(3, "Fail", "");
    assert_eq!(response.exception_class(), "org.apache.hadoop.hbase.RegionTooBusyException");
    assert_eq!(response.exception().do_not_retry, Some(false));
    assert_eq!(client.call(4, "Panic", "").exception_class(), "java.io.IOException");
    assert_eq!(client.call(5, "Forget", "").exception_class(), "java.io.IOException");
    client.send(&framed(&[2, 8, 6, 0xff]));
    assert_eq!(client.response().exception_class(), DO_NOT_RETRY);
    assert_eq!(client.call(7, "Echo", "fine").message().name, "fine");
}

#[test]
fn an_unreadable_request_header_closes() {
    let server = TestServer::start();
    for frame in [&[][..], &[0xff; 30], &[200, 1, 2], &[1, 8]] {
        let mut client = server.client();
        client.send(&framed(frame));
        client.assert_closed();
    }
    server.assert_alive();
}

#[test]
fn a_frame_cut_off_by_the_client_ends_quietly() {
    let server = TestServer::start();
    let frame = request(1, "Echo", &message("m", b"v"));
    for cut in 0..frame.len() {
        let mut client = server.client();
        client.send(&frame[..cut]);
        client.0.shutdown(std::net::Shutdown::Write).unwrap();
        client.assert_closed();
    }
    assert_eq!(server.service.ran.load(Ordering::Relaxed), 0);
    server.assert_alive();
}

#[test]
fn a_thousand_held_calls_are_answered_in_another_order() {
    let server = TestServer::start();
    let mut client = server.client();
    let calls: Vec<u8> = (0..1000).flat_map(|id| request(id, "Hold", &message("", b""))).collect();
    client.send(&calls);
    client.send(&request(5000, "Release", &message("", b"")));
    assert_eq!(client.response().call_id(), 5000);
    let order: Vec<u32> = (0..1000).map(|_| client.response().call_id()).collect();
    assert!(order.iter().copied().eq((0..1000).rev()), "the service answered the last call first");
}

#[test]
fn calls_answered_from_tasks_of_the_same_thread_overtake_each_other() {
    let server = TestServer::start();
    let mut client = server.client();
    for (id, delay_ms) in [(1, "300"), (2, "20"), (3, "0")] {
        client.send(&request(id, "Local", &message(delay_ms, b"")));
    }
    let order: Vec<u32> = (0..3).map(|_| client.response().call_id()).collect();
    assert_eq!(order, [3, 2, 1]);
}

#[test]
fn responses_to_pipelined_calls_are_written_together() {
    let server = TestServer::start();
    let mut client = server.client();
    client.call(0, "Echo", "warm");
    let before = server.handle.stats().writes;
    let calls: Vec<u8> = (0..1000).flat_map(|id| request(id, "Echo", &message("m", b"v"))).collect();
    client.send(&calls);
    for id in 0..1000 {
        assert_eq!(client.response().call_id(), id);
    }
    let writes = server.handle.stats().writes - before;
    assert!(writes <= 100, "{writes} writes for 1000 replies");
}

#[test]
fn large_frames_and_replies_pass() {
    let server = TestServer::start();
    let mut client = server.client();
    let param = message("large", &vec![3; 20 << 20]);
    client.send(&request(1, "Echo", &param));
    assert_eq!(client.response().message(), param);
    let sent = CellBlockReader::new(CellCodec::KeyValue, Bytes::from(block(CellCodec::KeyValue, None)));
    assert_eq!(sent.count(), 3);
}

#[test]
fn calls_whose_time_is_up_are_dropped_from_the_queue() {
    let server = TestServer::start();
    let mut client = server.client();
    client.send(&request(1, "Sleep", &message("300", b"")));
    let mut hurried = request_header(2, "Sleep");
    hurried.timeout = Some(30);
    client.send(&request_with(hurried, &message("0", b""), &[]));
    client.send(&request(3, "Sleep", &message("0", b"")));
    let order: Vec<u32> = (0..2).map(|_| client.response().call_id()).collect();
    assert_eq!(order, [1, 3]);
    assert_eq!(client.call(4, "Echo", "x").call_id(), 4);
}

#[test]
fn calls_of_a_dead_socket_do_not_run() {
    let server = TestServer::start();
    let mut blocker = server.client();
    blocker.send(&request(1, "Sleep", &message("400", b"")));
    eventually("the handler is taken", || server.service.ran.load(Ordering::Relaxed) == 1);
    let mut client = server.client();
    client.send(&request(2, "Sleep", &message("10000", b"")));
    eventually("the call is queued", || server.service.ran.load(Ordering::Relaxed) == 2);
    drop(client);
    let start = Instant::now();
    assert_eq!(blocker.response().call_id(), 1);
    assert_eq!(blocker.call(3, "Sleep", "0").call_id(), 3);
    assert!(start.elapsed() < Duration::from_secs(8), "the dead client's call ran");
}

#[test]
fn a_client_with_long_calls_does_not_starve_others() {
    let server = TestServer::with(|config| config.connection_threads = 1);
    let (mut greedy, mut modest) = (server.client(), server.client());
    assert_eq!(modest.call(1, "Echo", "x").call_id(), 1);
    let calls: Vec<u8> = (0..100).flat_map(|id| request(id, "Spin", &message("5", b""))).collect();
    greedy.send(&calls);
    eventually("the first runs", || server.service.ran.load(Ordering::Relaxed) > 1);
    assert_eq!(modest.call(2, "Echo", "x").call_id(), 2);
    let ran = server.service.ran.load(Ordering::Relaxed);
    assert!(ran < 50, "{ran} calls ran before the other client's");
    (0..100).for_each(|_| drop(greedy.response()));
}

#[test]
fn a_full_queue_is_reported_at_once() {
    let server = TestServer::start();
    let mut client = server.client();
    for id in 0..20 {
        client.send(&request(id, "Sleep", &message("20", b"")));
    }
    let responses: Vec<_> = (0..20).map(|_| client.response()).collect();
    let refused: Vec<_> = responses.iter().filter(|response| response.header.exception.is_some()).collect();
    assert!(refused.len() >= 13, "{} refused: 1 runs and 5 wait", refused.len());
    for response in refused {
        assert_eq!(response.exception_class(), "org.apache.hadoop.hbase.CallQueueTooBigException");
        assert_eq!(response.exception().server_overloaded, Some(true));
    }
}

#[test]
fn stopping_lets_running_calls_end() {
    let server = TestServer::start();
    let mut client = server.client();
    client.send(&request(1, "Sleep", &message("300", b"")));
    eventually("the call runs", || server.service.ran.load(Ordering::Relaxed) == 1);
    let address = server.address();
    let start = Instant::now();
    let stopping = std::thread::spawn(move || server.handle.shutdown(Duration::from_secs(10)));
    assert_eq!(client.response().call_id(), 1);
    client.assert_closed();
    drop(client);
    stopping.join().unwrap();
    assert!(start.elapsed() < Duration::from_secs(8));
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn stopping_does_not_wait_beyond_the_grace() {
    let server = TestServer::start();
    let mut client = server.client();
    client.send(&request(1, "Hold", &message("", b"")));
    eventually("the call is held", || server.service.ran.load(Ordering::Relaxed) == 1);
    let start = Instant::now();
    server.handle.shutdown(Duration::from_millis(200));
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn calls_that_run_on_other_threads_are_listed() {
    let server = TestServer::start();
    let mut client = server.client();
    client.send(&request(1, "Hold", &message("held", b"")));
    client.send(&request(2, "Hold", &message("held too", b"")));
    let monitor = server.handle.monitor();
    eventually("both calls are listed", || monitor.running_calls().len() == 2);
    let calls = monitor.running_calls();
    assert!(calls[0].received_at <= calls[1].received_at, "the oldest is the first: {calls:?}");
    for call in &calls {
        assert_eq!((call.method, call.service, call.user.as_str()), ("Hold", "ClientService", "tester"));
        assert!(call.request_bytes > 0 && call.peer.ip().is_loopback(), "{call:?}");
    }
    client.send(&request(3, "Release", &message("", b"")));
    (0..3).for_each(|_| drop(client.response()));
    eventually("no call is listed", || monitor.running_calls().is_empty());
}
