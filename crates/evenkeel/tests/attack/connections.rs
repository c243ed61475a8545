//! Attacks that use connections and their states.

use std::io::Write;
use std::thread::sleep;
use std::time::Duration;

use bytes::Bytes;
use evenkeel_protocol::pb;
use prost::Message;

use super::{Attack, Held, Stage, push};
use crate::common::raw;

/// More than the server has descriptors.
const MANY: usize = 300;
const MIB: usize = 1 << 20;

pub const ATTACKS: &[Attack] = &[
    Attack::new("silent connections", silent),
    Attack::new("half a preamble", half_preamble),
    Attack::new("half a connection header", half_header),
    Attack::new("longest connection headers", longest_headers),
    Attack::new("connection headers of many attributes", many_attributes),
    Attack::new("endless connection headers", endless_headers),
    Attack::new("endless SASL tokens", endless_tokens),
    Attack::new("lengths alone", lengths_alone),
    Attack::new("half requests", half_requests),
    Attack::new("half small requests", half_small_requests),
    Attack::new("endless request headers", endless_request_headers),
    Attack::new("a byte at a time", byte_at_a_time),
    Attack::new("garbage", garbage),
    Attack::new("compressed zeros", compressed_zeros),
    Attack::new("connections that come and go", come_and_go),
    Attack::new("idle connections", idle),
    Attack::new("small requests, replies never read", small_never_read),
    Attack::new("large replies never read", never_read),
];

fn silent(stage: &Stage) -> Held {
    stage.keep(MANY, || stage.connect(stage.regionserver), |_| true)
}

fn sent(stage: &Stage, count: usize, first: &[u8]) -> Held {
    let open = || {
        let mut stream = stage.connect(stage.regionserver)?;
        push(&mut stream, first);
        Some(stream)
    };
    stage.keep(count, open, |_| true)
}

fn half_preamble(stage: &Stage) -> Held {
    sent(stage, MANY, b"HB")
}

fn half_header(stage: &Stage) -> Held {
    sent(stage, MANY, &[b"HBas\0\x50", &200_u32.to_be_bytes()[..], &[0x0a, 0x04]].concat())
}

fn header_with(attribute: Vec<pb::NameBytesPair>) -> Vec<u8> {
    raw::opening(&pb::ConnectionHeader { attribute, ..raw::connection_header("ClientService") })
}

fn attribute(bytes: usize) -> pb::NameBytesPair {
    pb::NameBytesPair { name: String::new(), value: Some(Bytes::from(vec![7; bytes])) }
}

fn longest_headers(stage: &Stage) -> Held {
    sent(stage, MANY, &header_with(vec![attribute(60_000)]))
}

fn many_attributes(stage: &Stage) -> Held {
    sent(stage, MANY, &header_with(vec![attribute(0); 10_000]))
}

/// Sends a length, and then all bytes that the server accepts.
fn endless(stage: &Stage, first: &[u8]) -> Held {
    // At most the maximum request size of this server.
    let begin = [first, &(10 * MIB as u32).to_be_bytes()].concat();
    let more = vec![1; MIB];
    let open = || {
        let mut stream = stage.connect(stage.regionserver)?;
        stream.set_write_timeout(Some(Duration::from_millis(5))).ok()?;
        push(&mut stream, &begin);
        Some(stream)
    };
    stage.keep(100, open, |stream| {
        let _ = stream.write(&more);
        true
    })
}

fn endless_headers(stage: &Stage) -> Held {
    endless(stage, b"HBas\0\x50")
}

fn endless_tokens(stage: &Stage) -> Held {
    endless(stage, b"HBas\0\x51")
}

/// Connections that have sent their header, each followed by these bytes.
fn after_header(stage: &Stage, count: usize, bytes: &[u8]) -> Held {
    let open = || {
        let mut stream = stage.client()?;
        push(&mut stream, bytes);
        Some(stream)
    };
    stage.keep(count, open, |_| true)
}

fn lengths_alone(stage: &Stage) -> Held {
    after_header(stage, MANY, &(8 * MIB as u32).to_be_bytes())
}

/// A request of this length, in bytes.
fn large_get(stage: &Stage, bytes: usize) -> Vec<u8> {
    let get =
        pb::Get { row: Bytes::from_static(b"r"), attribute: vec![attribute(bytes)], ..Default::default() };
    raw::call(1, "Get", &pb::GetRequest { region: stage.target.clone(), get })
}

fn half_requests(stage: &Stage) -> Held {
    let request = large_get(stage, 8 * MIB);
    after_header(stage, 100, &request[..4 * MIB])
}

fn half_small_requests(stage: &Stage) -> Held {
    let request = large_get(stage, 60_000);
    after_header(stage, MANY, &request[..50_000])
}

fn endless_request_headers(stage: &Stage) -> Held {
    // A frame over the limit, with a header of nearly 1 MiB that never ends.
    let begin = [&(100 * MIB as u32).to_be_bytes()[..], &[0xff, 0xff, 0x3f], &vec![0x0a; 1_000_000]].concat();
    after_header(stage, 100, &begin)
}

fn byte_at_a_time(stage: &Stage) -> Held {
    let request = large_get(stage, MIB);
    let open = || {
        let mut stream = stage.client()?;
        push(&mut stream, &request[..100_000]);
        Some(stream)
    };
    stage.keep(100, open, |stream| push(stream, &[0]))
}

fn garbage(stage: &Stage) -> Held {
    let mut seed = 7_u64;
    let mut random = |bytes: usize| -> Vec<u8> {
        let next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as u8
        };
        std::iter::repeat_with(next).take(bytes).collect()
    };
    let beginnings = [
        Vec::new(),
        b"HBas\0\x50".to_vec(),
        raw::opening(&raw::connection_header("ClientService")),
        raw::opening(&raw::connection_header("AdminService")),
    ];
    let mut streams = Vec::new();
    let mut turn = 0;
    while stage.runs() {
        let port = if turn % 2 == 0 { stage.regionserver } else { stage.master };
        if let Some(mut stream) = stage.connect(port) {
            push(&mut stream, &beginnings[turn % beginnings.len()]);
            let bytes = random(2000);
            // Half of them in separate frames.
            if turn % 3 == 0 {
                push(&mut stream, &bytes)
            } else {
                push(&mut stream, &raw::frame(&bytes))
            };
            streams.push(stream);
        }
        turn += 1;
        if streams.len() > 100 {
            streams.clear();
        }
        sleep(Duration::from_millis(1));
    }
    Box::new(streams)
}

/// Cell blocks that are short on the wire and large when decompressed.
fn compressed_zeros(stage: &Stage) -> Held {
    let header = pb::ConnectionHeader {
        cell_block_compressor_class: Some("org.apache.hadoop.io.compress.SnappyCodec".to_owned()),
        ..raw::connection_header("ClientService")
    };
    // 64 MiB of snappy copies of the preceding byte, 64 at a time.
    let raw_bytes = 64 * MIB as u32;
    let mut packed = Vec::new();
    prost::encoding::encode_varint(u64::from(raw_bytes), &mut packed);
    packed.extend([0x00, 0x00]);
    packed.extend([0xfe, 0x01, 0x00].repeat((raw_bytes / 64) as usize));
    let block = [&raw_bytes.to_be_bytes()[..], &(packed.len() as u32).to_be_bytes(), &packed].concat();
    let head = pb::RequestHeader {
        call_id: Some(1),
        method_name: Some("Mutate".to_owned()),
        request_param: Some(true),
        cell_block_meta: Some(pb::CellBlockMeta { length: Some(block.len() as u32) }),
        ..Default::default()
    };
    let param = super::put_request(&stage.target, "r", Vec::new());
    let request =
        [head.encode_length_delimited_to_vec(), param.encode_length_delimited_to_vec(), block].concat();
    let (opening, request) = (raw::opening(&header), raw::frame(&request));
    let open = || {
        let mut stream = stage.connect(stage.regionserver)?;
        push(&mut stream, &opening);
        Some(stream)
    };
    stage.keep(4, open, |stream| push(stream, &request))
}

fn come_and_go(stage: &Stage) -> Held {
    while stage.runs() {
        for port in [stage.regionserver, stage.master, stage.zookeeper] {
            drop(stage.connect(port));
        }
    }
    Box::new(())
}

/// Idle connections, each after one call.
fn idle(stage: &Stage) -> Held {
    let get = raw::gets(&stage.target, std::iter::once("r0001".to_owned()));
    let ports = [stage.regionserver, stage.regionserver, stage.regionserver, stage.master];
    let mut next = 0;
    let open = || {
        next += 1;
        let mut stream = stage.service(ports[next % ports.len()], "ClientService")?;
        push(&mut stream, &get);
        raw::reply(&mut stream).ok()?;
        Some(stream)
    };
    stage.keep(MANY, open, |_| true)
}

fn never_read(stage: &Stage) -> Held {
    let big = raw::gets(&stage.target, (0..50).map(|n| format!("b{}", n % super::BIG_ROWS)));
    let scans = raw::scans(&stage.target, 50);
    let mut turn = 0;
    let open = || {
        turn += 1;
        let mut stream = stage.client()?;
        push(&mut stream, if turn % 2 == 0 { &big } else { &scans });
        Some(stream)
    };
    stage.keep(stage.sized(60, 120), open, |_| true)
}

/// All requests that the server accepts; it holds those that it has read and has not run.
fn small_never_read(stage: &Stage) -> Held {
    let gets = raw::gets(&stage.target, (0..2000).map(|n| format!("r{n:04}")));
    let open = || {
        let stream = stage.client()?;
        stream.set_write_timeout(Some(Duration::from_millis(5))).ok()?;
        Some(stream)
    };
    stage.keep(12, open, |stream| {
        // A request that is cut off when the server stops reading is never completed; the bytes
        // after it are garbage.
        let _ = stream.write(&gets);
        true
    })
}
