//! A call that is answered immediately allocates nothing on its connection's thread once its
//! buffers have grown.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use evenkeel_common::KeyValue;
use evenkeel_protocol::pb;
use evenkeel_rpc::{Call, Respond, Responder, RpcServer, RpcServerConfig, Service};
use prost::Message;
use support::{Client, connection_header, framed, request_cells};

/// Allocations of threads with counting enabled.
static COUNTED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static COUNTING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

struct Counting;

// SAFETY: every call is passed unchanged to the system's allocator; counting does not touch the
// allocated memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTING.try_with(std::cell::Cell::get).unwrap_or(false) {
            COUNTED.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller's promises are System's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are System's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Answers with an empty message and a cell; enables counting on its thread with the first call.
struct OneCell(KeyValue);

impl Service for OneCell {
    fn name(&self) -> &'static str {
        "ClientService"
    }

    fn methods(&self) -> &'static [&'static str] {
        &["Get"]
    }

    fn call(&self, call: Call, reply: Responder) {
        COUNTING.set(true);
        assert_eq!(call.cell_reader().expect("a block").count(), 1);
        let mut cells = reply.cell_block_writer();
        if let Some(writer) = &mut cells {
            writer.push(&self.0.as_cell());
        }
        reply.send_cells(&pb::GetResponse::default(), cells);
    }
}

fn batch() -> Vec<u8> {
    let cell = KeyValue::put(b"row", b"f", b"q", 1, b"value");
    let block = [&(cell.bytes_len() as u32).to_be_bytes()[..], &cell.to_bytes()].concat();
    (0..50).flat_map(|id| request_cells(id, "Get", &pb::GetResponse::default(), &block)).collect()
}

fn round_trip(client: &mut Client, batch: &[u8]) {
    client.send(batch);
    for id in 0..50 {
        assert_eq!(client.response().call_id(), id);
    }
}

#[test]
fn a_call_answered_at_once_does_not_allocate() {
    let mut config = RpcServerConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)));
    config.connection_threads = 1;
    let cell = KeyValue::put(b"row", b"f", b"q", 1, &[b'v'; 1000]);
    let handle = RpcServer::bind(config).unwrap().serve(vec![Arc::new(OneCell(cell))]).unwrap();
    let mut client = Client::raw(handle.local_addr());
    client.send(b"HBas\x00\x50");
    client.send(&framed(&connection_header().encode_to_vec()));
    let batch = batch();
    (0..50).for_each(|_| round_trip(&mut client, &batch));
    let before = COUNTED.load(Ordering::Relaxed);
    (0..200).for_each(|_| round_trip(&mut client, &batch));
    let allocations = COUNTED.load(Ordering::Relaxed) - before;
    // The slowest calls are kept in the ledger, which allocates; on a busy machine there are more.
    assert!(allocations <= 500, "{allocations} allocations for 10,000 calls");
}
