//! Reads from scripted DataNodes.

use std::time::{Duration, Instant};

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
    assert!(error.to_string().contains("does not match its checksums"), "{error}");
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
