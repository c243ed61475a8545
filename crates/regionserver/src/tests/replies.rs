//! Sizes of replies: values that share their block with the cache, and replies that are cut while
//! others wait to be sent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_block_cache::{
    Admission, BlockCache, BlockKey, BucketCache, BucketCacheConfig, CacheHint, CacheStats, FileId, LoadBlock,
};
use evenkeel_common::{ErrorKind, TryResult};
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::mutation_proto::MutationType;
use evenkeel_region::region::Region;
use evenkeel_rpc::{CellBlockCodec, CellCodec};

use super::chore::near_its_limit;
use super::reads_and_writes::{request, write};

use crate::requests::get;
use crate::requests::scan;
use crate::testing::*;
use crate::{Caller, RegionServerConfig, Reply};

const VALUE_BYTES: usize = 40_000;
const ROWS: u8 = 20;

/// A cache whose pins a test can count, and which overwrites blocks that it frees.
#[derive(Debug)]
struct Watched(BucketCache);

impl Watched {
    fn new() -> Arc<Self> {
        let config = BucketCacheConfig { poison: true, ..BucketCacheConfig::in_memory(4 << 20) };
        Arc::new(Self(BucketCache::open(&config).expect("memory")))
    }
}

impl BlockCache for Watched {
    fn get(&self, key: &BlockKey) -> Option<evenkeel_block_cache::Block> {
        self.0.get(key)
    }

    fn insert(&self, key: BlockKey, block: evenkeel_block_cache::Block, admission: Admission) {
        self.0.insert(key, block, admission);
    }

    fn evict_file(&self, file: FileId) -> usize {
        self.0.evict_file(file)
    }

    fn stats(&self) -> CacheStats {
        self.0.stats()
    }

    fn get_or_load(
        &self,
        key: &BlockKey,
        hint: CacheHint,
        load: LoadBlock<'_>,
    ) -> TryResult<evenkeel_block_cache::Block> {
        self.0.get_or_load(key, hint, load)
    }
}

/// Waits until this many blocks are pinned. Blocks that were prefetched for a scan stay pinned for
/// a moment after it.
fn until_pins_are(cache: &Watched, pins: usize, why: &str) {
    let began = Instant::now();
    while cache.0.pins() != pins {
        assert!(began.elapsed() < Duration::from_secs(10), "{why}: {} pins, not {pins}", cache.0.pins());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn value(row: u8) -> Vec<u8> {
    (0..VALUE_BYTES).map(|i| (i as u8).wrapping_mul(row + 3)).collect()
}

/// Creates a region with a file of large values, each in a separate block or with one other value.
fn large_values(cache: &Arc<Watched>) -> (TestServer, Arc<Region>) {
    let server = TestServer::with_cache(RegionServerConfig::default(), cache.clone());
    let region = server.open(b"", b"", table());
    (0..ROWS).for_each(|row| put(&region, &[cell(&[row], b"q", &value(row))]));
    region.flush().expect("flushed");
    (server, region)
}

fn get_row(server: &TestServer, region: &Region, row: u8, caller: &Caller) -> Reply<pb::GetResponse> {
    let get = pb::Get { row: Bytes::copy_from_slice(&[row]), ..Default::default() };
    get::get(&server.server, pb::GetRequest { region: specifier(region), get }, caller).expect("answered")
}

fn scan_request(region: &Region) -> pb::ScanRequest {
    pb::ScanRequest {
        region: Some(specifier(region)),
        scan: Some(pb::Scan::default()),
        number_of_rows: Some(1000),
        client_handles_partials: Some(true),
        ..Default::default()
    }
}

fn scan_all(server: &TestServer, region: &Region, caller: &Caller) -> Reply<pb::ScanResponse> {
    scan::scan(&server.server, &scan_request(region), caller).expect("answered").expect("in time")
}

fn values<M>(reply: Reply<M>) -> Vec<Vec<u8>> {
    key_values_of(reply).iter().map(|cell| cell.as_cell().value().to_vec()).collect()
}

#[test]
fn values_in_replies_pin_their_blocks() {
    let cache = Watched::new();
    let (server, region) = large_values(&cache);
    drop(scan_all(&server, &region, &caller()));
    until_pins_are(&cache, 0, "all is quiet");
    let gets: Vec<_> = (0..ROWS).map(|row| get_row(&server, &region, row, &caller())).collect();
    let page = scan_all(&server, &region, &caller());
    until_pins_are(&cache, 2 * usize::from(ROWS), "a pin for each value");
    // The blocks are evicted and replaced by others, repeatedly.
    for round in 0..30 {
        region.flush().expect("flushed");
        let other = FileId::of_name(&format!("other-{round}"));
        let blocks = |i: u64| BlockKey { file: other, offset: i };
        let body: Box<[u8]> = vec![round; 200_000].into();
        for i in 0..20 {
            let block = evenkeel_block_cache::Block::new(evenkeel_block_cache::BlockParts {
                kind: evenkeel_block_cache::BlockType::Data,
                offset: i,
                on_disk_bytes: 200_000,
                prev_offset: -1,
                bytes: body.clone(),
                body: 0..200_000,
                seek_points: Box::default(),
                seek_keys: Box::default(),
                compressed: false,
            });
            cache.0.insert(blocks(i), block, Admission::New);
        }
    }
    for (row, reply) in (0..ROWS).zip(gets) {
        assert!(values(reply) == [value(row)], "row {row}");
    }
    assert!(values(page) == (0..ROWS).map(value).collect::<Vec<_>>());
    until_pins_are(&cache, 0, "all is quiet again");
    assert_eq!(cache.0.pending_free(), 0, "and what was forgotten is free");
}

#[test]
fn clients_with_other_codecs_get_copies() {
    let cache = Watched::new();
    let (server, region) = large_values(&cache);
    let compressed = Caller { codec: Some((CellCodec::KeyValue, Some(CellBlockCodec::Gzip))), ..caller() };
    let other_codec = Caller { codec: Some((CellCodec::Cell, None)), ..caller() };
    for caller in [compressed, other_codec, caller_without_codec()] {
        let reply = get_row(&server, &region, 3, &caller);
        assert_eq!(cache.0.pins(), 0);
        drop(reply);
    }
    let full = server.unsent.max() / 2 + 1;
    server.unsent.add(full);
    let reply = get_row(&server, &region, 3, &caller());
    assert_eq!(cache.0.pins(), 0, "copied while replies wait for their clients");
    assert!(values(reply) == [value(3)]);
    server.unsent.release(full);
}

#[test]
fn replies_are_cut_while_others_wait_for_their_clients() {
    let (server, region) = TestServer::with_region();
    (0..ROWS).for_each(|row| put(&region, &[cell(&[row], b"q", &value(row))]));
    assert_eq!(values(scan_all(&server, &region, &caller())).len(), usize::from(ROWS));
    let nearly_all = server.unsent.max() - 1000;
    server.unsent.add(nearly_all);
    let reply = scan_all(&server, &region, &caller());
    assert_eq!(reply.message.more_results_in_region, Some(true));
    let cut = values(reply).len();
    assert!((1..=3).contains(&cut), "64 KiB at least: {cut} values");
    server.unsent.release(nearly_all);
}

#[test]
fn a_large_value_is_copied_only_if_there_is_room_for_it() {
    const BYTES: u64 = 1 << 20;
    let (server, region) = TestServer::with_region();
    put(&region, &[cell(&[0], b"q", &vec![7; BYTES as usize])]);
    for caller in [caller(), caller_without_codec()] {
        let reply = get_row(&server, &region, 0, &caller);
        assert!(server.unsent.used() >= BYTES, "{} bytes are charged", server.unsent.used());
        drop(reply);
        assert_eq!(server.unsent.used(), 0);
        let nearly_all = server.unsent.max() - 1000;
        server.unsent.add(nearly_all);
        let get = pb::Get { row: Bytes::from_static(&[0]), ..Default::default() };
        let get = get::get(&server.server, pb::GetRequest { region: specifier(&region), get }, &caller);
        let scan = scan::scan(&server.server, &scan_request(&region), &caller);
        for refused in [get.map(drop), scan.map(drop)] {
            assert_eq!(refused.expect_err("no room").kind(), ErrorKind::CallQueueTooBig);
        }
        assert_eq!(server.unsent.used(), nearly_all, "everything is given back");
        server.unsent.release(nearly_all);
    }
}

#[test]
fn what_an_append_returns_is_charged_until_it_is_sent() {
    const VALUE_BYTES: u64 = 400_000;
    let (server, region) = near_its_limit(table());
    put(&region, &[cell(b"a", b"q", &[7; VALUE_BYTES as usize])]);
    server.server.run_chore();
    let append = request(&region, MutationType::Append, b"a");
    let appended = || write(&server, &append, &[cell(b"a", b"q", b"1")], caller());
    // Less than a third of what is free: the write is not made.
    let taken = server.unsent.max() - 3 * VALUE_BYTES;
    server.unsent.add(taken);
    assert_eq!(appended().expect_err("no budget").kind(), ErrorKind::CallQueueTooBig);
    server.unsent.release(taken);
    // The reply is held, and it is charged meanwhile.
    let held = std::thread::scope(|scope| {
        let held = scope.spawn(|| {
            let deadline = Instant::now() + Duration::from_secs(10);
            while Instant::now() < deadline && server.unsent.used() < VALUE_BYTES {
                std::thread::yield_now();
            }
            server.unsent.used()
        });
        assert_eq!(appended().expect("written").cells.len(), 1);
        held.join().expect("looked")
    });
    assert!((VALUE_BYTES..VALUE_BYTES + 1000).contains(&held), "{held}");
    assert_eq!(server.unsent.used(), 0);
}
