//! Reads from scripted DataNodes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::fake::{Behavior, FakeCluster};
use crate::{ChecksumResult, HdfsClient, Settings};

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 % 251) as u8).collect()
}

fn corrupt() -> Behavior {
    Behavior { is_corrupt: true, ..Behavior::default() }
}

#[test]
fn ranges_are_read_at_any_offset_and_length() {
    let cluster = FakeCluster::healthy(1);
    let stored = bytes(10_000);
    cluster.store(&stored[..6000]);
    cluster.store(&stored[6000..]);
    let file = cluster.client().open("/f").expect("opened");
    assert_eq!(file.len(), 10_000);
    for (offset, len) in [
        (0, 10_000),
        (0, 1),
        (511, 2),
        (512, 512),
        (1000, 3000),
        (5999, 2),
        (6000, 1),
        (9999, 1),
        (100, 2047),
    ] {
        let mut buf = vec![0xee; len];
        assert_eq!(file.read_at(offset as u64, &mut buf).expect("read"), len);
        assert!(buf == stored[offset..offset + len], "{offset}, {len}");
    }
    let mut buf = [0xee; 10];
    assert_eq!(file.read_at(9995, &mut buf).expect("across the end"), 5);
    assert_eq!(buf[5..], [0xee; 5], "nothing beyond is touched");
    assert_eq!(file.read_at(10_000, &mut buf).expect("at the end"), 0);
    assert_eq!(file.read_at(1 << 40, &mut buf).expect("far beyond"), 0);
}

#[test]
fn the_blocks_of_a_range_are_those_that_overlap_it() {
    let cluster = FakeCluster::healthy(2);
    cluster.store(&bytes(6000));
    cluster.store(&bytes(4000));
    let file = cluster.client().open("/f").expect("opened");
    let lens = |range| -> Vec<u64> {
        file.blocks(range).iter().map(|block| block.b.num_bytes.expect("a length")).collect()
    };
    assert_eq!(lens(0..10_000), [6000, 4000]);
    assert_eq!(
        (lens(0..5000), lens(5999..6001), lens(6000..7000)),
        (vec![6000], vec![6000, 4000], vec![4000])
    );
    assert_eq!((lens(3..3), lens(10_000..20_000)), (vec![], vec![]));
    assert_eq!(file.blocks(0..1)[0].locs.len(), 2);
}

#[test]
fn connections_are_reused() {
    let cluster = FakeCluster::healthy(1);
    cluster.store(&bytes(3000));
    let file = cluster.client().open("/f").expect("opened");
    let mut buf = [0; 100];
    for offset in 0..20 {
        file.read_at(offset * 100, &mut buf).expect("read");
    }
    assert_eq!(cluster.datanodes[0].connections(), 1);
}

/// Nothing is read any more, from any DataNode.
#[test]
fn connections_that_are_not_reused_are_closed() {
    let cluster = FakeCluster::healthy(1);
    cluster.store(&bytes(1000));
    let file = cluster.client().open("/f").expect("opened");
    file.read_at(0, &mut [0; 100]).expect("read");
    let idle = || file.shared.pool.idle.lock().len();
    assert_eq!(idle(), 1);
    let start = Instant::now();
    while idle() > 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "a connection leaks");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_corrupt_replica_is_skipped() {
    let cluster = FakeCluster::start(vec![corrupt(), Behavior::default()]);
    let stored = bytes(3000);
    cluster.store(&stored);
    let file = cluster.client().open("/f").expect("opened");
    let mut buf = [0; 700];
    let read = file.read_verified_at(600, &mut buf).expect("read");
    assert_eq!(read, (700, ChecksumResult::Matches));
    assert_eq!(buf, stored[600..1300]);
    file.read_at(600, &mut buf).expect("read");
    assert_eq!(cluster.datanodes[0].reads().len(), 1, "it is asked last from then on");
}

#[test]
fn bytes_without_a_correct_replica_are_an_error() {
    let cluster = FakeCluster::start(vec![corrupt(), corrupt()]);
    cluster.store(&bytes(512));
    let file = cluster.client().open("/f").expect("opened");
    let mut buf = [0; 512];
    let error = file.read_at(0, &mut buf).expect_err("corrupt");
    assert!(error.to_string().contains("do not match their checksums"), "{error}");
    // The fake sends checksums all the same, so that the second read fails as well.
    assert!(cluster.datanodes[0].reads().iter().all(|read| read.send_checksums == Some(true)));
    let _ = file.read_verified_at(0, &mut buf);
    assert!(cluster.datanodes[0].reads().iter().any(|read| read.send_checksums == Some(false)));
}

#[test]
fn a_missing_replica_is_skipped_and_locations_are_refreshed() {
    let cluster = FakeCluster::healthy(2);
    cluster.store(&bytes(1000));
    let file = cluster.client().open("/f").expect("opened");
    cluster.datanodes[0].forget();
    let mut buf = [0; 1000];
    file.read_at(0, &mut buf).expect("from the other");
    assert!(buf == bytes(1000)[..]);
    cluster.datanodes[1].forget();
    assert!(file.read_at(0, &mut buf).is_err());
    let asked = cluster.namenode.methods().iter().filter(|name| *name == "getBlockLocations").count();
    assert_eq!(asked, 3, "at the opening, and twice when all had failed");
}

/// As long as the DataNodes of a block are down, the NameNode gives it no locations. The file
/// exists: a reader that takes `NotFound` for a file that was deleted would lose it.
#[test]
fn a_block_without_live_datanodes_is_not_a_missing_file() {
    let cluster = FakeCluster::healthy(1);
    cluster.store(&bytes(1000));
    let datanodes = std::mem::take(&mut cluster.file.lock().blocks[0].locs);
    let file = cluster.client().open("/f").expect("opened");
    assert_eq!(file.len(), 1000);
    let error = std::io::Error::from(file.read_at(0, &mut [0; 1000]).expect_err("unreadable"));
    assert_ne!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
    cluster.file.lock().blocks[0].locs = datanodes;
    file.refresh().expect("the locations");
    assert_eq!(file.read_at(0, &mut [0; 1000]).expect("read"), 1000);
}

#[test]
fn a_slow_replica_is_hedged() {
    let slow = Behavior { read_delay: Duration::from_secs(5), ..Behavior::default() };
    let cluster = FakeCluster::start(vec![slow, Behavior::default()]);
    cluster.store(&bytes(1000));
    let hedged =
        Settings { hedged_reads_max: 2, hedged_threshold: Duration::from_millis(30), ..cluster.settings() };
    let client = HdfsClient::new(hedged).expect("threads");
    let file = client.open("/f").expect("opened");
    let mut buf = [0; 1000];
    let start = Instant::now();
    for _ in 0..3 {
        file.read_at(0, &mut buf).expect("read");
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert!(buf == bytes(1000)[..]);
    assert_eq!(cluster.datanodes[1].reads().len(), 3);
    let found = client.read_statistics();
    assert_eq!((found.hedged_reads, found.hedged_read_wins, found.hedged_reads_refused), (3, 3, 0));
}

/// The first DataNode is slow and sound. The second one, which is asked too, has lost the block or
/// has damaged it.
#[test]
fn a_hedge_that_fails_leaves_the_first_replica() {
    for second in [Behavior::default(), corrupt()] {
        let is_lost = !second.is_corrupt;
        let slow = Behavior { read_delay: Duration::from_millis(500), ..Behavior::default() };
        let cluster = FakeCluster::start(vec![slow, second]);
        cluster.store(&bytes(1000));
        if is_lost {
            cluster.datanodes[1].forget();
        }
        let (hedged_reads_max, hedged_threshold) = (1, Duration::from_millis(30));
        let hedged = Settings { hedged_reads_max, hedged_threshold, ..cluster.settings() };
        let client = HdfsClient::new(hedged).expect("threads");
        let file = client.open("/f").expect("opened");
        let mut buf = [0; 1000];
        assert_eq!(file.read_at(0, &mut buf).expect("from the first"), 1000);
        assert!(buf == bytes(1000)[..]);
        assert_eq!([0, 1].map(|node: usize| cluster.datanodes[node].reads().len()), [1, 1]);
        let address = |node: usize| format!("127.0.0.1:{}", cluster.datanodes[node].port);
        assert!(!file.shared.pool.is_dead(&address(0)), "it is sound");
        assert!(file.shared.pool.is_dead(&address(1)));
        let found = client.read_statistics();
        assert_eq!((found.hedged_reads, found.hedged_read_wins), (1, 0));
    }
}

#[test]
fn hedged_reads_are_bounded() {
    let gate = Arc::new(Mutex::new(()));
    let slow = Behavior { read_gate: Arc::clone(&gate), ..Behavior::default() };
    let cluster = FakeCluster::start(vec![slow, Behavior::default()]);
    cluster.store(&bytes(1000));
    let hedged =
        Settings { hedged_reads_max: 1, hedged_threshold: Duration::from_millis(30), ..cluster.settings() };
    let client = HdfsClient::new(hedged).expect("threads");
    let file = client.open("/f").expect("opened");
    assert!(file.shared.pool.acquire_hedge(), "another read takes the only permit");
    let closed = gate.lock();
    std::thread::scope(|scope| {
        scope.spawn(|| file.read_at(0, &mut [0; 1000]).expect("from the slow one"));
        // The gate opens once the read was refused a permit.
        while client.read_statistics().hedged_reads_refused == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(closed);
    });
    assert_eq!([0, 1].map(|node: usize| cluster.datanodes[node].reads().len()), [1, 0]);
    file.shared.pool.release_hedge();
    let closed = gate.lock();
    file.read_at(0, &mut [0; 1000]).expect("from the other");
    drop(closed);
    let found = client.read_statistics();
    assert_eq!((found.hedged_reads, found.hedged_read_wins, found.hedged_reads_refused), (1, 1, 1));
    assert_eq!((found.bytes, found.local_bytes), (2000, 2000));
}

#[test]
fn threads_read_one_file_concurrently() {
    let cluster = FakeCluster::healthy(2);
    let stored = bytes(50_000);
    cluster.store(&stored);
    let file = cluster.client().open("/f").expect("opened");
    std::thread::scope(|scope| {
        for at in 0..8 {
            let (file, stored) = (&file, &stored);
            scope.spawn(move || {
                let mut buf = vec![0; 6000];
                file.read_at(at * 5000, &mut buf).expect("read");
                let start = at as usize * 5000;
                assert!(buf == stored[start..start + 6000]);
            });
        }
    });
}

#[test]
fn only_the_last_block_of_a_file_may_be_growing() {
    let cluster = FakeCluster::healthy(1);
    [10, 20].into_iter().for_each(|len| cluster.store(&bytes(len)));
    let blocks = cluster.file.lock().blocks.clone();
    let finished = |is_growing| {
        let located = super::BlockLocations { blocks: blocks.clone(), len: 30, is_growing };
        blocks.iter().map(|block| located.is_finished(block)).collect::<Vec<_>>()
    };
    assert_eq!((finished(false), finished(true)), (vec![true, true], vec![true, false]));
}
