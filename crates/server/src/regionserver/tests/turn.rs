//! Gets of one turn.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_block_cache::{BucketCache, BucketCacheConfig};
use evenkeel_common::{HBaseError, KeyValue, turns};
use evenkeel_fs::{FaultyFileSystem, MemoryFileSystem};
use evenkeel_protocol::pb;
use evenkeel_region::memstore::ChunkPool;
use evenkeel_region::region::Region;
use evenkeel_wal::WalConfig;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::regionserver::testing::*;
use crate::regionserver::turn::{Alike, KINDS_MAX, read_alike, turn};
use crate::regionserver::{RegionServerConfig, get};

/// A Get of a kind, by the number of versions.
fn kind(max_versions: u32) -> pb::Get {
    pb::Get { max_versions: Some(max_versions), ..Default::default() }
}

/// Whether such a Get finds a reader: a new one holds on to the region once more. (It may do so in place of another one.)
fn finds(region: &Arc<Region>, versions: u32) -> bool {
    let holders = Arc::strong_count(region);
    let now = |_: &mut Alike| Ok(Arc::strong_count(region));
    read_alike(region.clone(), kind(versions), now).expect("nothing is read") == holders
}

#[test]
fn what_read_a_get_reads_the_next_one_of_its_kind_in_the_same_turn() {
    let (server, region) = TestServer::with_region();
    let other = server.open(b"m", b"", table());
    let holders = Arc::strong_count(&region);
    turn(&server.server, &mut || {
        assert!(!finds(&region, 1) && finds(&region, 1));
        assert!(!finds(&region, 2) && !finds(&other, 1), "of another kind, of another region");
        assert!(finds(&region, 1) && finds(&region, 2) && finds(&other, 1));
        let failed: Result<(), _> =
            read_alike(region.clone(), kind(1), |_| Err(HBaseError::io("on purpose")));
        assert!(failed.is_err() && !finds(&region, 1), "it is not kept after an error");
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            read_alike(region.clone(), kind(1), |_| -> Result<(), _> { panic!("on purpose") })
        }));
        assert!(panicked.is_err() && !finds(&region, 1), "nor after a panic");
        for versions in 3..100 {
            finds(&region, versions);
            assert!(Arc::strong_count(&region) <= holders + KINDS_MAX);
        }
        assert_eq!(Arc::strong_count(&region), holders + KINDS_MAX, "so many are kept");
        assert!(!finds(&other, 7) && finds(&other, 7), "the last ones");
    });
    assert_eq!(Arc::strong_count(&region), holders, "the turn is over");
    assert!(!finds(&region, 1) && !finds(&region, 1), "there is no turn");
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        turn(&server.server, &mut || {
            assert!(!finds(&region, 1) && finds(&region, 1));
            panic!("on purpose");
        });
    }));
    assert!(panicked.is_err());
    assert_eq!(Arc::strong_count(&region), holders, "the turn is over");
    assert!(!finds(&region, 1) && !finds(&region, 1), "there is none");
}

#[test]
fn gets_of_a_turn_read_what_is_there_when_they_are_made() {
    const ROWS: [&[u8]; 5] = [b"a", b"b", b"m", b"n", b"z"];
    // A file system that cannot read without waiting, and a cache.
    let fs = Arc::new(FaultyFileSystem::new(MemoryFileSystem::new()));
    let cache = Arc::new(BucketCache::open(&BucketCacheConfig::in_memory(1 << 20)).expect("memory"));
    let (config, wal) = (RegionServerConfig::default(), WalConfig::default());
    let server = TestServer::of(fs, config, wal, (cache, ChunkPool::new(2)));
    let regions = [server.open(b"", b"m", table()), server.open(b"m", b"", table())];
    let region_of = |row: &[u8]| &regions[usize::from(row >= b"m".as_slice())];
    let mut random = SmallRng::seed_from_u64(7);
    let (mut gets, mut refused, mut found) = ([0, 0], 0, 0);
    for turns in 0..60 {
        turn(&server.server, &mut || {
            for step in 0..40 {
                let row = ROWS[random.random_range(0..ROWS.len())];
                let region = region_of(row);
                match random.random_range(0..20) {
                    0..4 => {
                        put(region, &[cell(row, &[b'p' + step % 3], format!("{turns} {step}").as_bytes())])
                    }
                    4 => drop(region.flush().expect("flushed")),
                    5 if step % 4 == 0 => drop(region.compact(None, true).expect("compacted")),
                    6 => server.clock.advance_ms(1),
                    _ => {
                        let qualifier =
                            [vec![], vec![Bytes::from_static(b"q")]][random.random_range(0..2)].clone();
                        let column = pb::Column { family: Bytes::from_static(b"f"), qualifier };
                        let get = pb::Get {
                            row: Bytes::from_static(row),
                            column: vec![column],
                            ..Default::default()
                        };
                        let request = pb::GetRequest { region: specifier(region), get };
                        let read = || get::get(&server.server, request.clone(), &caller());
                        let reply = turns::without_waiting(read).unwrap_or_else(|| {
                            refused += 1;
                            read()
                        });
                        let cells = cells_of(reply.expect("answered"));
                        // By a scanner of its own.
                        let get =
                            crate::convert::read::get(&request.get, &request.get.row, false).expect("legal");
                        let expected = region.get(get).expect("read");
                        let expected: Vec<_> =
                            (0..expected.len()).map(|i| text(&KeyValue::copy_of(&expected.get(i)))).collect();
                        assert_eq!(cells, expected, "turn {turns}, step {step}");
                        found += cells.len();
                        gets[usize::from(row >= b"m".as_slice())] += 2;
                    }
                }
            }
        });
    }
    assert!(found > 500 && refused > 0, "{found} {refused}");
    // Every Get is counted once, whether it had to be made anew or not.
    let counted = regions.each_ref().map(|region| region.load().reads);
    assert_eq!(counted, gets, "{refused} refused");
}
