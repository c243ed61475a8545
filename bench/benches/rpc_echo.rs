//! Round trips of an echo call over loopback: one call alone, and 64 calls pipelined in one write.
//!
//! Measures the RPC layer alone: frame, header, dispatch, reply, two socket crossings. The client
//! is a blocking socket that builds its requests in advance and only counts the bytes of the
//! replies.

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::io::{Read, Write};
use std::time::Duration;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use evenkeel_bench::echo;
use evenkeel_protocol::pb;

/// Calls in one pipelined batch.
const PIPELINED: u32 = 64;
const VALUE_BYTES: usize = 100;

fn request(call_id: u32) -> Vec<u8> {
    let param =
        pb::NameBytesPair { name: "row".to_owned(), value: Some(Bytes::from_static(&[7; VALUE_BYTES])) };
    echo::request(call_id, "Echo", &param)
}

fn round_trips(c: &mut Criterion) {
    let server = echo::serve(VALUE_BYTES);
    let mut stream = echo::connect(server.local_addr());
    // Call ids of the same encoded length, so that all replies have the length of the first.
    let one = request(1);
    let reply = echo::reply_bytes(&mut stream, &one);
    let batch: Vec<u8> = (1..=PIPELINED).flat_map(request).collect();

    let mut group = c.benchmark_group("rpc_echo");
    group.measurement_time(Duration::from_secs(5));
    for (name, calls, requests) in [("one", 1, one), ("pipelined_64", PIPELINED, batch)] {
        let mut replies = vec![0; reply * calls as usize];
        group.throughput(Throughput::Elements(u64::from(calls)));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                stream.write_all(&requests).expect("write");
                stream.read_exact(&mut replies).expect("read");
                black_box(&replies);
            });
        });
    }
    group.finish();
    drop(stream);
    server.shutdown(Duration::from_secs(1));
}

criterion_group!(benches, round_trips);
criterion_main!(benches);
