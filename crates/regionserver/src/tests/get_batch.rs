//! Single Gets that arrived together and are read together.

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_block_cache::{BucketCache, BucketCacheConfig};
use evenkeel_common::{KeyValue, Result, TryError};
use evenkeel_fs::{FaultyFileSystem, MemoryFileSystem};
use evenkeel_protocol::pb;
use evenkeel_region::memstore::ChunkPool;
use evenkeel_region::region::{Region, RegionCount};
use evenkeel_wal::WalConfig;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::requests::get;
use crate::requests::get_batch::{GetBatch, GetOutcome, KINDS_COMPARED_MAX};
use crate::requests::inline::SLICE;
use crate::testing::*;
use crate::{Caller, RegionServerConfig, Reply};

/// Returns a Get whose kind is determined by the number of versions.
fn kind(row: &[u8], max_versions: u32) -> pb::Get {
    pb::Get { row: Bytes::copy_from_slice(row), max_versions: Some(max_versions), ..Default::default() }
}

/// Returns the outcome of a Get that need not be read elsewhere.
fn done(outcome: GetOutcome) -> Result<Reply<pb::GetResponse>> {
    match outcome {
        GetOutcome::Tried(Ok(reply)) => Ok(reply),
        GetOutcome::Tried(Err(TryError::Failed(error))) => Err(error),
        GetOutcome::Tried(Err(TryError::WouldWait | TryError::TimeSliceOver)) | GetOutcome::NotTried => {
            panic!("in memory, and short")
        }
    }
}

/// The caller of every request.
fn asks<T>(_: &T) -> Caller {
    caller()
}

#[test]
fn each_get_is_answered_once_grouped_by_kind() {
    let (server, region) = TestServer::with_region();
    let other = server.open(b"m", b"", table());
    put(&region, &[cell(b"a", b"q", b"1"), cell(b"b", b"q", b"22")]);
    put(&other, &[cell(b"m", b"q", b"333")]);
    let mut gets = GetBatch::EMPTY;
    let asked: [(&Arc<Region>, &[u8], u32, &str); 7] = [
        (&region, b"a", 1, "1"),
        (&other, b"m", 1, "333"),
        (&region, b"b", 2, "22"),
        (&region, b"b", 1, "22"),
        (&region, b"zz", 1, ""),
        (&other, b"m", 1, "333"),
        (&region, b"a", 2, "1"),
    ];
    for (number, (region, row, versions, _)) in asked.iter().enumerate() {
        gets.push(Arc::clone(region), kind(row, *versions), number);
    }
    assert_eq!(gets.len(), asked.len());
    let mut order = Vec::new();
    let largest = gets.read(&server.server, asks, |number: usize, (read, row), outcome| {
        let reply = done(outcome).expect("read");
        let values: Vec<_> =
            key_values_of(reply).iter().map(|cell| cell.as_cell().value().to_vec()).collect();
        assert_eq!(values.concat(), asked[number].3.as_bytes(), "{number}");
        assert_eq!((read.info(), row), (asked[number].0.info(), asked[number].1));
        order.push(number);
    });
    assert_eq!(order, [0, 3, 4, 1, 5, 2, 6], "by kind, and in their order");
    assert!((1..100).contains(&largest), "{largest} bytes");
    assert_eq!(gets.len(), 0);
    assert_eq!(gets.read(&server.server, asks, |_, _, _| panic!("there is none")), 0);
    assert_eq!([&region, &other].map(|region| region.load().counts.get(RegionCount::Reads)), [5, 2]);
}

#[test]
fn only_the_latest_kinds_are_compared() {
    let (server, region) = TestServer::with_region();
    put(&region, &[cell(b"a", b"q", b"1")]);
    let mut gets = GetBatch::EMPTY;
    let kinds = KINDS_COMPARED_MAX as u32 + 1;
    // When the first kind recurs, it is one too far back to be found, and becomes a new kind. The
    // last one is found.
    let versions = (1..=kinds).chain([1, kinds]);
    versions
        .enumerate()
        .for_each(|(number, versions)| gets.push(region.clone(), kind(b"a", versions), number));
    let mut order = Vec::new();
    gets.read(&server.server, asks, |number: usize, _, outcome| {
        assert!(done(outcome).is_ok());
        order.push(number);
    });
    let last = kinds as usize - 1;
    let expected: Vec<_> = (0..=last).chain([last + 2, last + 1]).collect();
    assert_eq!(order, expected);
}

#[test]
fn a_failing_get_does_not_affect_its_group() {
    let (server, region) = TestServer::with_region();
    put(&region, &[cell(b"a", b"q", b"1")]);
    let mut gets = GetBatch::EMPTY;
    let dropped = Arc::new(());
    for (number, row) in [b"a".as_slice(), b"", b"a", b"a", b"a"].iter().enumerate() {
        gets.push(region.clone(), kind(row, 1), (number, dropped.clone()));
    }
    let mut answered = Vec::new();
    let holders = Arc::strong_count(&region);
    let who = |(number, _): &(usize, Arc<()>)| match number {
        2 => panic!("on purpose"),
        3 => Caller { version: None, codec: None, ..caller() },
        _ => caller(),
    };
    gets.read(&server.server, who, |(number, _), _, outcome| {
        let outcome = done(outcome);
        assert_eq!(outcome.is_err(), number == 1, "a Get names a row");
        if let Ok(reply) = outcome {
            assert_eq!(reply.block.is_none(), number == 3, "each caller is answered its own way");
        }
        answered.push(number);
        assert!(number != 3, "on purpose");
    });
    assert_eq!(answered, [0, 1, 3, 4]);
    assert_eq!(Arc::strong_count(&dropped), 1, "what the reply would have been given with is dropped");
    assert!(Arc::strong_count(&region) < holders, "nothing holds on to it");
}

#[test]
fn gets_behind_a_long_one_are_not_tried() {
    let (server, region) = TestServer::with_region();
    let wide: Vec<_> = (0..5000).map(|at| cell(b"b", format!("{at:04}").as_bytes(), b"1")).collect();
    put(&region, &wide);
    put(&region, &[cell(b"a", b"q", b"1")]);
    let mut gets = GetBatch::EMPTY;
    let rows = [b"b", b"b", b"a", b"a"];
    rows.iter().enumerate().for_each(|(number, row)| gets.push(region.clone(), kind(*row, 1), number));
    let mut not_tried = Vec::new();
    gets.read(&server.server, asks, |number: usize, (_, row), outcome| {
        assert_eq!(row, rows[number]);
        match outcome {
            GetOutcome::Tried(Ok(_)) => std::thread::sleep(2 * SLICE),
            GetOutcome::Tried(Err(TryError::TimeSliceOver)) => assert_eq!(row, b"b"),
            GetOutcome::Tried(Err(error)) => panic!("{error:?}"),
            GetOutcome::NotTried => not_tried.push(number),
        }
    });
    assert!(not_tried.ends_with(&[2, 3]), "{not_tried:?}");
}

#[test]
fn grouped_gets_see_data_current_at_their_read() {
    const ROWS: [&[u8]; 5] = [b"a", b"b", b"m", b"n", b"z"];
    // A file system that cannot read without blocking, and a cache.
    let fs = Arc::new(FaultyFileSystem::new(MemoryFileSystem::new()));
    let cache = Arc::new(BucketCache::open(&BucketCacheConfig::in_memory(1 << 20)).expect("memory"));
    let (config, wal) = (RegionServerConfig::default(), WalConfig::default());
    let server = TestServer::of(fs, config, wal, (cache.clone(), ChunkPool::new(2)));
    let regions = [server.open(b"", b"m", table()), server.open(b"m", b"", table())];
    let region_of = |row: &[u8]| &regions[usize::from(row >= b"m".as_slice())];
    let mut random = SmallRng::seed_from_u64(7);
    let (mut gets, mut together) = ([0, 0], GetBatch::EMPTY);
    let (mut refused, mut found) = (0, 0);
    for step in 0..2400 {
        let row = ROWS[random.random_range(0..ROWS.len())];
        let region = region_of(row);
        match random.random_range(0..20) {
            0..4 => put(region, &[cell(row, &[b'p' + (step % 3) as u8], format!("{step}").as_bytes())]),
            4 => drop(region.flush().expect("flushed")),
            5 if step % 4 == 0 => drop(region.compact(None, true).expect("compacted")),
            6 => server.clock.advance_ms(1),
            7..10 => {
                let read_anew = |request: &pb::GetRequest| {
                    get::get(&server.server, request.clone(), &caller()).expect("answered")
                };
                together.read(&server.server, asks, |request: pb::GetRequest, _, outcome| {
                    let reply = match outcome {
                        GetOutcome::Tried(Ok(reply)) => reply,
                        GetOutcome::Tried(Err(TryError::Failed(error))) => panic!("{error}"),
                        GetOutcome::Tried(Err(TryError::WouldWait | TryError::TimeSliceOver))
                        | GetOutcome::NotTried => {
                            refused += 1;
                            read_anew(&request)
                        }
                    };
                    let cells = cells_of(reply);
                    // With a separate scanner.
                    let get =
                        crate::convert::read::get(&request.get, &request.get.row, false).expect("legal");
                    let expected = region_of(&request.get.row).get(get).expect("read");
                    let expected: Vec<_> =
                        (0..expected.len()).map(|i| text(&KeyValue::copy_of(&expected.get(i)))).collect();
                    assert_eq!(cells, expected, "step {step}");
                    found += cells.len();
                    gets[usize::from(request.get.row >= b"m".as_slice())] += 2;
                });
                assert_eq!(cache.pins(), 0, "nothing is held when they were read");
            }
            _ => {
                let qualifier = [vec![], vec![Bytes::from_static(b"q")]][random.random_range(0..2)].clone();
                let column = pb::Column { family: Bytes::from_static(b"f"), qualifier };
                let get =
                    pb::Get { row: Bytes::from_static(row), column: vec![column], ..Default::default() };
                let request = pb::GetRequest { region: specifier(region), get: get.clone() };
                together.push(region.clone(), get, request);
            }
        }
    }
    let left = together.len();
    assert!(found > 500 && refused > 0, "{found} {refused}");
    // Every Get is counted once, whether it had to be repeated or not.
    let counted = regions.each_ref().map(|region| region.load().counts.get(RegionCount::Reads));
    assert_eq!(counted, gets, "{refused} refused, {left} left");
}
