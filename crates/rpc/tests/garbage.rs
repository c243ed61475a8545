//! Garbage input: whatever arrives, no thread panics, nothing hangs, and a well-behaved client is
//! served afterwards.
//!
//! `EVENKEEL_FUZZ_SECONDS` is the duration of [`mutated_streams`]; 2 by default, longer in CI.

mod support;

use std::io::Read;
use std::net::Shutdown;
use std::panic::PanicHookInfo;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_common::KeyValue;
use evenkeel_rpc::{CellBlockCodec, CellBlockReader, CellBlockWriter, CellCodec};
use proptest::prelude::*;
use prost::Message;
use support::{TestServer, connection_header, eventually, framed, message, request, request_cells};

const CODECS: [(&str, CellCodec); 5] = [
    ("KeyValueCodec", CellCodec::KeyValue),
    ("KeyValueCodecWithTags", CellCodec::KeyValueWithTags),
    ("CellCodec", CellCodec::Cell),
    ("CellCodecWithTags", CellCodec::CellWithTags),
    ("MessageCodec", CellCodec::Message),
];
const COMPRESSORS: [(&str, CellBlockCodec); 4] = [
    ("GzipCodec", CellBlockCodec::Gzip),
    ("DefaultCodec", CellBlockCodec::Zlib),
    ("SnappyCodec", CellBlockCodec::Snappy),
    ("Lz4Codec", CellBlockCodec::Lz4),
];

/// Panics on the server's threads. Its tasks swallow them, so they are counted here.
static SERVER_PANICS: AtomicUsize = AtomicUsize::new(0);
static COUNT_PANICS: Once = Once::new();

fn count_server_panics() {
    COUNT_PANICS.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
            let on_server = std::thread::current().name().is_some_and(|name| name.starts_with("rpc-"));
            let meant =
                info.payload().downcast_ref::<&str>().is_some_and(|text| text.contains("made for a test"));
            SERVER_PANICS.fetch_add(usize::from(on_server && !meant), Ordering::Relaxed);
            usual(info);
        }));
    });
}

fn small_server() -> TestServer {
    count_server_panics();
    TestServer::with(|config| config.request_bytes_max = 1 << 20)
}

fn assert_unharmed(server: &TestServer) {
    server.assert_alive();
    eventually("all connections end", || server.handle.stats().connections_open == 0);
    assert_eq!(server.handle.stats().unsent_bytes, 0);
    assert_eq!(SERVER_PANICS.load(Ordering::Relaxed), 0);
}

/// Sends bytes, shuts down writing, and reads until the server closes.
fn throw(server: &TestServer, bytes: &[u8]) {
    let mut client = server.raw();
    // The server may close in the middle; the failed write is fine.
    let _ = std::io::Write::write_all(&mut client.0, bytes);
    let _ = client.0.shutdown(Shutdown::Write);
    let mut reply = Vec::new();
    if let Err(error) = client.0.read_to_end(&mut reply) {
        assert_eq!(
            error.kind(),
            std::io::ErrorKind::ConnectionReset,
            "the server neither answers nor closes"
        );
    }
}

fn block(codec: CellCodec, compressor: Option<CellBlockCodec>) -> Vec<u8> {
    let mut writer = CellBlockWriter::new(codec, compressor);
    for i in 0..4u8 {
        let value = vec![i; 40 * usize::from(i)];
        writer.push(&KeyValue::put(&[b'r', i], b"f", b"q", i64::from(i), &value).as_cell());
    }
    writer.into_bytes().unwrap()
}

/// A complete valid connection: preamble, header, some calls.
fn good_stream(codec: usize, compressor: Option<usize>) -> Vec<u8> {
    let (class, codec) = CODECS[codec % CODECS.len()];
    let compressor = compressor.map(|i| COMPRESSORS[i % COMPRESSORS.len()]);
    let mut header = connection_header();
    header.cell_block_codec_class = Some(format!("org.apache.hadoop.hbase.codec.{class}"));
    header.cell_block_compressor_class =
        compressor.map(|(class, _)| format!("org.apache.hadoop.io.compress.{class}"));
    let cells = block(codec, compressor.map(|(_, compressor)| compressor));
    let mut attributed = support::request_header(3, "Who");
    attributed.attribute.push(message("k", b"v"));
    attributed.timeout = Some(60_000);
    [
        b"HBas\x00\x50".to_vec(),
        framed(&header.encode_to_vec()),
        request(1, "Echo", &message("name", b"value")),
        request_cells(2, "Echo", &message("cells", b""), &cells),
        support::request_with(attributed, &message("", b""), &[]),
        request(4, "Big", &message("100000", b"")),
    ]
    .concat()
}

#[test]
fn the_seed_streams_are_valid() {
    let server = small_server();
    for codec in 0..CODECS.len() {
        for compressor in [None, Some(0), Some(1), Some(2), Some(3)] {
            let mut client = server.raw();
            client.send(&good_stream(codec, compressor));
            for id in 1..=4 {
                let response = client.response();
                assert_eq!((response.call_id(), &response.header.exception), (id, &None));
            }
        }
    }
}

/// A mutation of the kind that finds length mistakes.
fn mutate(bytes: &mut Vec<u8>, kind: u8, at: usize, with: u32) {
    if bytes.is_empty() {
        return;
    }
    let at = at % bytes.len();
    match kind % 7 {
        0 => bytes[at] ^= 1 << (with % 8),
        1 => bytes[at] = with as u8,
        2 => bytes.truncate(at),
        3 => bytes.insert(at, with as u8),
        4 => drop(bytes.remove(at)),
        5 => {
            let edges =
                [0, 1, 0x7f, 0x80, 0xff, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 20, with];
            let value: u32 = edges[with as usize % edges.len()];
            bytes.iter_mut().skip(at).zip(value.to_be_bytes()).for_each(|(byte, new)| *byte = new);
        }
        _ => {
            let end = (at + with as usize % 64).min(bytes.len());
            let part = bytes[at..end].to_vec();
            bytes.splice(at..at, part);
        }
    }
}

/// A small random generator, so that a seed identifies a failing run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[test]
fn mutated_streams() {
    let seconds = std::env::var("EVENKEEL_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    let server = small_server();
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut streams = 0u64;
    while Instant::now() < end {
        streams += 1;
        let mut random = Random(streams.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let compressor = random.next().is_multiple_of(2).then(|| random.next() as usize);
        let mut stream = good_stream(random.next() as usize, compressor);
        for _ in 0..=random.next() % 4 {
            mutate(&mut stream, random.next() as u8, random.next() as usize, random.next() as u32);
        }
        throw(&server, &stream);
        assert_eq!(SERVER_PANICS.load(Ordering::Relaxed), 0, "stream {streams}");
    }
    println!("{streams} streams");
    assert_unharmed(&server);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_on_a_new_connection(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let server = small_server();
        throw(&server, &bytes);
        assert_unharmed(&server);
    }

    #[test]
    fn random_bytes_after_the_handshake(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let server = small_server();
        let header = framed(&connection_header().encode_to_vec());
        throw(&server, &[b"HBas\x00\x50", &header[..], &bytes].concat());
        throw(&server, &[b"HBas\x00\x50", &header[..], &framed(&bytes)].concat());
        assert_unharmed(&server);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_cell_blocks_never_give_more_than_they_hold(
        codec in 0usize..CODECS.len(),
        changes in prop::collection::vec((any::<u8>(), any::<usize>(), any::<u32>()), 0..4),
    ) {
        let mut bytes = block(CODECS[codec].1, None);
        changes.iter().for_each(|(kind, at, with)| mutate(&mut bytes, *kind, *at, *with));
        let mut held = 0;
        for cell in CellBlockReader::new(CODECS[codec].1, Bytes::from(bytes.clone())) {
            let Ok(cell) = cell else { break };
            held += cell.as_cell().row().len() + cell.as_cell().value().len();
        }
        prop_assert!(held <= bytes.len());
    }

    #[test]
    fn mutated_compressed_blocks_never_pass_the_limit(
        which in 0usize..COMPRESSORS.len(),
        changes in prop::collection::vec((any::<u8>(), any::<usize>(), any::<u32>()), 0..4),
        limit in 0usize..2000,
    ) {
        let compressor = COMPRESSORS[which].1;
        let mut bytes = block(CellCodec::KeyValue, Some(compressor));
        changes.iter().for_each(|(kind, at, with)| mutate(&mut bytes, *kind, *at, *with));
        if let Ok(raw) = compressor.decompress(&bytes, limit) {
            prop_assert!(raw.len() <= limit);
        }
    }

    #[test]
    fn random_cell_blocks_never_panic(codec in 0usize..CODECS.len(), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let cells = CellBlockReader::new(CODECS[codec].1, Bytes::from(bytes)).take_while(Result::is_ok).count();
        prop_assert!(cells <= 200);
    }
}
