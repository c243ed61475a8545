//! The log against scripted DataNodes.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::fake::{Ack, Behavior, FakeCluster, Written, status};
use crate::hadoop::hdfs::{DeleteRequestProto, RecoverLeaseRequestProto, Status};
use crate::{FlushLevel, HdfsError};

fn written(cluster: &FakeCluster) -> Written {
    Written { log: cluster.log(), bytes: Vec::new() }
}

/// Answers `action` to the packet with this number, and success to all others.
fn on_packet(seqno: i64, action: Ack) -> Behavior {
    let ack = move |packet: &crate::fake::Packet| match packet.header.seqno == seqno {
        true => action,
        false => Ack::Success,
    };
    Behavior { ack: Box::new(ack), ..Behavior::default() }
}

fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn every_datanode_gets_the_same_bytes() {
    let cluster = FakeCluster::healthy(3);
    let mut written = written(&cluster);
    for len in [1, 511, 512, 513, 65536, 100, 0, 13 << 20, 7] {
        written.flush(len).expect("flushed");
        assert_eq!(written.log.acked(), written.bytes.len() as u64, "after {len}");
    }
    assert!(!cluster.file.lock().is_closed);
    let Written { log, bytes } = written;
    assert_eq!(log.close(FlushLevel::Flushed).expect("closed"), bytes.len() as u64);
    assert!(cluster.file.lock().is_closed);
    for node in cluster.datanodes.iter() {
        assert!(node.bytes(1000) == bytes);
        let packets = node.packets();
        assert!(packets.iter().enumerate().all(|(i, packet)| packet.header.seqno == i as i64));
        assert_eq!(packets.iter().filter(|packet| packet.header.is_last).count(), 1);
        let request = &node.requests()[0];
        assert_eq!((request.targets.len(), request.pipeline_size, request.stage), (0, 1, 6));
    }
}

#[test]
fn a_sync_of_flushed_bytes_is_an_empty_packet() {
    let cluster = FakeCluster::healthy(2);
    let mut written = written(&cluster);
    written.flush(700).expect("flushed");
    written.log.flush(FlushLevel::Synced).expect("synced");
    written.append(5).expect("appended");
    written.log.flush(FlushLevel::Synced).expect("synced");
    let packets = cluster.datanodes[1].packets();
    let shape = packets.iter().map(|p| (p.header.offset, p.data.len(), p.header.sync));
    assert_eq!(shape.collect::<Vec<_>>(), [(0, 700, false), (700, 0, true), (512, 193, true)]);
}

#[test]
fn a_flush_waits_for_every_datanode() {
    for slow in 0..3 {
        let ms = 150;
        let behaviors = (0..3).map(|at| if at == slow { late(ms) } else { Behavior::default() });
        let cluster = FakeCluster::start(behaviors.collect());
        let mut written = written(&cluster);
        let start = Instant::now();
        written.flush(100).expect("flushed");
        assert!(start.elapsed() >= Duration::from_millis(ms), "{slow}");
        assert!(cluster.datanodes.iter().all(|node| node.bytes(1000) == written.bytes), "{slow}");
    }
}

#[test]
fn flushes_are_pipelined() {
    let cluster = FakeCluster::healthy(3);
    let mut written = written(&cluster);
    let mut last = None;
    for len in 1..=1000 {
        written.append(len % 700).expect("appended");
        last = Some(written.log.start_flush(FlushLevel::Flushed).expect("sent"));
    }
    written.log.wait(last.expect("one")).expect("flushed");
    assert_eq!(written.log.acked(), written.bytes.len() as u64);
    assert!(cluster.datanodes[2].bytes(1000) == written.bytes);
}

#[test]
fn any_failure_of_one_datanode_breaks_the_log() {
    let actions = [
        Ack::Fail(Status::Error),
        Ack::Fail(Status::ErrorChecksum),
        Ack::Fail(Status::OobRestart),
        Ack::Seqno(7),
        Ack::Seqno(0),
        Ack::Garbage,
        Ack::Half,
        Ack::Close,
        Ack::Silence,
    ];
    for action in actions {
        let cluster =
            FakeCluster::start(vec![Behavior::default(), on_packet(1, action), Behavior::default()]);
        let mut written = Written { log: cluster.impatient_log(), bytes: Vec::new() };
        written.flush(600).expect("the first");
        let start = Instant::now();
        let error = written.flush(600).expect_err("broken");
        assert!(start.elapsed() < Duration::from_secs(15), "{action:?}: {:?}", start.elapsed());
        assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{action:?}: {error}");
        assert_eq!(written.log.acked(), 600, "{action:?}");
        assert!(written.log.append(b"x").is_err(), "{action:?}: it never goes on");
        assert!(written.log.flush(FlushLevel::Flushed).is_err(), "{action:?}");
        eventually("the lease is recovered", || cluster.file.lock().is_closed);
    }
}

/// Settings with which a log breaks by a stall of 100 ms.
fn of_stalls(cluster: &FakeCluster) -> crate::Settings {
    let stall_timeout = Some(Duration::from_millis(100));
    crate::Settings { stall_timeout, ..cluster.settings() }
}

#[test]
fn a_datanode_that_stalls_is_left() {
    for stalled in 0..3 {
        let behavior = |at| if at == stalled { on_packet(1, Ack::Silence) } else { Behavior::default() };
        let cluster = FakeCluster::start((0..3).map(behavior).collect());
        let client = crate::HdfsClient::new(of_stalls(&cluster)).expect("threads");
        let log = client.create_log("/log", client.new_file()).expect("created");
        let mut written = Written { log, bytes: Vec::new() };
        written.flush(600).expect("the first");
        let start = Instant::now();
        let error = written.flush(600).expect_err("broken");
        let took = start.elapsed();
        assert!((Duration::from_millis(100)..Duration::from_secs(5)).contains(&took), "{took:?}");
        assert_eq!((error.kind(), written.log.acked()), (ErrorKind::BrokenPipe, 600), "{error}");
        eventually("the lease is recovered", || cluster.file.lock().is_closed);
        // The next log has few replicas, so it waits for a DataNode that stalls.
        let next = client.create_log("/next", client.new_file()).expect("created");
        let bad = format!("127.0.0.1:{}", cluster.datanodes[stalled].port);
        assert!(next.has_few_replicas() && !next.datanodes().contains(&bad), "{:?}", next.datanodes());
    }
}

/// Delays the acknowledgement of each packet.
fn late(ms: u64) -> Behavior {
    let ack = move |_: &crate::fake::Packet| {
        std::thread::sleep(Duration::from_millis(ms));
        Ack::Success
    };
    Behavior { ack: Box::new(ack), ..Behavior::default() }
}

#[test]
fn a_log_waits_for_datanodes_that_are_slow_together_and_for_one_of_two() {
    let cases = [vec![Behavior::default(), late(400), late(450)], vec![Behavior::default(), late(400)]];
    for behaviors in cases {
        let cluster = FakeCluster::start(behaviors);
        let replication = u16::try_from(cluster.datanodes.len()).expect("few");
        let client = crate::HdfsClient::new(of_stalls(&cluster)).expect("threads");
        let file = crate::NewFile { replication, ..client.new_file() };
        let log = client.create_log("/log", file).expect("created");
        let mut written = Written { log, bytes: Vec::new() };
        written.flush(600).expect("acknowledged late");
        assert_eq!(written.log.acked(), 600);
    }
}

#[test]
fn a_sync_may_take_longer_as_the_other_disks_do() {
    let cluster = FakeCluster::start(vec![late(60), late(360), late(60)]);
    let client = crate::HdfsClient::new(of_stalls(&cluster)).expect("threads");
    let mut log = client.create_log("/log", client.new_file()).expect("created");
    log.append(&[7; 600]).expect("buffered");
    log.flush(FlushLevel::Synced).expect("synced late");
    assert_eq!(log.acked(), 600);
    assert!(client.shared.excluded.list().is_empty());
}

#[test]
fn a_sync_that_stalls_on_one_datanode_breaks_the_log() {
    let cluster =
        FakeCluster::start(vec![Behavior::default(), on_packet(0, Ack::Silence), Behavior::default()]);
    let client = crate::HdfsClient::new(of_stalls(&cluster)).expect("threads");
    let mut log = client.create_log("/log", client.new_file()).expect("created");
    log.append(&[7; 600]).expect("buffered");
    let start = Instant::now();
    let error = log.flush(FlushLevel::Synced).expect_err("broken");
    let took = start.elapsed();
    assert!((Duration::from_millis(100)..Duration::from_secs(5)).contains(&took), "{took:?}");
    assert_eq!((error.kind(), log.acked()), (ErrorKind::BrokenPipe, 0), "{error}");
}

#[test]
fn the_end_of_a_log_may_take_its_time() {
    let cluster = FakeCluster::start(vec![Behavior::default(), late(300), Behavior::default()]);
    let client = crate::HdfsClient::new(of_stalls(&cluster)).expect("threads");
    let mut log = client.create_log("/log", client.new_file()).expect("created");
    log.append(&[8; 600]).expect("buffered");
    assert_eq!(log.close(FlushLevel::Synced).expect("closed late"), 600);
    assert!(client.shared.excluded.list().is_empty());
}

#[test]
fn logs_that_break_by_stalls_are_limited() {
    let cluster = FakeCluster::start(vec![Behavior::default(), late(300), Behavior::default()]);
    let client = crate::HdfsClient::new(of_stalls(&cluster)).expect("threads");
    let mut broken = 0;
    loop {
        client.shared.excluded.clear();
        let log = client.create_log("/log", client.new_file()).expect("created");
        let mut written = Written { log, bytes: Vec::new() };
        match written.flush(600) {
            Ok(()) => break,
            Err(_) => broken += 1,
        }
        assert!(broken < 100, "it waits at last");
    }
    assert_eq!(broken, 3);
}

#[test]
fn acknowledgements_may_come_in_pieces() {
    let pieces = || Behavior { ack: Box::new(|_| Ack::InPieces), ..Behavior::default() };
    let cluster = FakeCluster::start(vec![pieces(), pieces()]);
    let mut written = written(&cluster);
    (0..5).for_each(|_| written.flush(300).expect("flushed"));
    let Written { log, .. } = written;
    assert_eq!(log.close(FlushLevel::Synced).expect("closed"), 1500);
}

#[test]
fn acknowledgements_before_a_connection_ends_count() {
    // A second DataNode might acknowledge only after the end of the first connection.
    let cluster = FakeCluster::start(vec![on_packet(0, Ack::ThenClose)]);
    let mut written = written(&cluster);
    let first = written.flush(100);
    // The end of the connection may be seen together with the acknowledgement or after it.
    assert!(first.is_ok() || written.log.acked() == 100, "{first:?}");
    assert!(written.flush(100).is_err());
    assert_eq!(written.log.acked(), 100);
}

#[test]
fn a_datanode_that_refuses_is_avoided() {
    let refusing = || Behavior { reply: Some(status(Status::Error)), ..Behavior::default() };
    let silent = || Behavior { reply: None, ..Behavior::default() };
    for bad in [refusing(), silent()] {
        let cluster = FakeCluster::start(vec![Behavior::default(), bad, Behavior::default()]);
        let mut written = written(&cluster);
        assert_eq!(written.log.replicas(), 2);
        written.flush(10).expect("flushed");
        assert_eq!(cluster.file.lock().abandoned, 1, "the block was given back");
        assert_eq!(cluster.namenode.methods().iter().filter(|name| *name == "create").count(), 1);
    }
}

#[test]
fn the_next_log_avoids_the_datanode_that_broke_the_last() {
    let cluster =
        FakeCluster::start(vec![Behavior::default(), on_packet(0, Ack::Close), Behavior::default()]);
    let client = cluster.client();
    let mut log = client.create_log("/log", client.new_file()).expect("created");
    log.append(b"entry").expect("appended");
    assert!(log.flush(FlushLevel::Flushed).is_err());
    let next = client.create_log("/next", client.new_file()).expect("created");
    let bad = format!("127.0.0.1:{}", cluster.datanodes[1].port);
    assert_eq!(next.datanodes().len(), 2);
    assert!(!next.datanodes().contains(&bad));
}

/// As when a rack has lost its power: the NameNode still offers all of its DataNodes.
#[test]
fn more_datanodes_may_fail_than_are_excluded_for_long() {
    let refusing = || Behavior { reply: Some(status(Status::Error)), ..Behavior::default() };
    let mut behaviors: Vec<Behavior> = (0..5).map(|_| refusing()).collect();
    behaviors.extend([Behavior::default(), Behavior::default()]);
    let cluster = FakeCluster::start(behaviors);
    let mut written = written(&cluster);
    written.flush(10).expect("flushed");
    assert_eq!((written.log.replicas(), cluster.file.lock().abandoned), (2, 1));
}

#[test]
fn a_previous_block_that_is_not_replicated_lifts_no_exclusion() {
    let cluster =
        FakeCluster::start(vec![on_packet(0, Ack::Close), Behavior::default(), Behavior::default()]);
    let client = cluster.client();
    let mut log = client.create_log("/log", client.new_file()).expect("created");
    log.append(b"entry").expect("appended");
    assert!(log.flush(FlushLevel::Flushed).is_err());
    cluster.file.lock().not_replicated = 1;
    let next = client.create_log("/next", client.new_file()).expect("created");
    assert_eq!(next.datanodes().len(), 2, "{:?}", next.datanodes());
}

#[test]
fn exclusions_are_lifted_without_another_datanode() {
    let attempts = AtomicUsize::new(0);
    let cluster = FakeCluster::healthy(1);
    cluster.datanodes[0].behave(Behavior { reply: Some(status(Status::Error)), ..Behavior::default() });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            eventually("it was tried", || cluster.datanodes[0].connections() > 0);
            cluster.datanodes[0].behave(Behavior::default());
            attempts.store(cluster.datanodes[0].connections(), Ordering::SeqCst);
        });
        let mut written = written(&cluster);
        written.flush(10).expect("flushed");
    });
    assert!(attempts.load(Ordering::SeqCst) > 0);
}

#[test]
fn without_any_datanode_the_creation_fails_with_a_reason() {
    let cluster = FakeCluster::healthy(0);
    let client = cluster.client();
    let file = client.new_file();
    let settings = crate::Settings { create_attempts_max: 3, ..cluster.settings() };
    let client = crate::HdfsClient::new(settings).expect("threads");
    let error = client.create_log("/log", file).expect_err("no DataNode");
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert!(matches!(error, HdfsError::Remote(_)));
    eventually("the empty file is deleted", || client.broken_files().is_empty());
    let calls = cluster.namenode.calls();
    let deleted: DeleteRequestProto = calls.last().expect("one").decode();
    assert_eq!(
        (calls[calls.len() - 1].method.as_str(), deleted.src.as_str()),
        ("delete", "/.reserved/.inodes/77")
    );
}

/// The NameNode creates the file, and none of its replies arrives.
#[test]
fn a_file_whose_creation_got_no_reply_is_recovered() {
    let cluster = FakeCluster::healthy(1);
    let client = cluster.client();
    let lose = |replies: usize| cluster.file.lock().lost_creates = replies;
    lose(usize::MAX);
    let error = client.create_log("/log", client.new_file()).expect_err("no reply");
    assert!(matches!(error, HdfsError::Transport(_)), "{error}");
    eventually("it is recovered", || cluster.file.lock().recoveries == 1 && client.broken_files().is_empty());
    let calls = cluster.namenode.calls();
    let recovered = calls.iter().find(|call| call.method == "recoverLease").expect("one");
    assert_eq!(recovered.decode::<RecoverLeaseRequestProto>().src, "/log");
    // A file that is created at the same path soon after is not taken from its writer.
    let settings = crate::Settings { recovery_delay: Duration::from_secs(30), ..cluster.settings() };
    let client = crate::HdfsClient::new(settings).expect("threads");
    client.create_bulk("/f", client.new_file()).expect_err("no reply");
    lose(0);
    assert_eq!(client.broken_files(), ["/f"]);
    let file = client.create_bulk("/f", client.new_file()).expect("created");
    assert!(client.broken_files().is_empty());
    file.close(FlushLevel::Flushed).expect("closed");
}

#[test]
fn complete_is_retried_until_true() {
    let cluster = FakeCluster::healthy(1);
    cluster.file.lock().incomplete = 4;
    let mut written = written(&cluster);
    written.flush(10).expect("flushed");
    let Written { log, .. } = written;
    assert_eq!(log.close(FlushLevel::Flushed).expect("closed"), 10);
    assert_eq!(cluster.namenode.methods().iter().filter(|name| *name == "complete").count(), 5);
}

#[test]
fn a_dropped_log_is_recovered() {
    let cluster = FakeCluster::healthy(1);
    let client = cluster.client();
    let mut log = client.create_log("/log", client.new_file()).expect("created");
    log.append(b"entry").expect("appended");
    log.flush(FlushLevel::Flushed).expect("flushed");
    cluster.file.lock().unrecovered = 1;
    drop(log);
    assert_eq!(client.broken_files(), ["/log"]);
    eventually("it is recovered", || client.broken_files().is_empty());
    assert!(cluster.file.lock().is_closed);
}

/// The writer makes no call: the thread of the heartbeats sees the end of the connection.
#[test]
fn an_idle_log_that_breaks_is_recovered() {
    let cluster = FakeCluster::start(vec![on_packet(0, Ack::CloseLater), Behavior::default()]);
    let client = cluster.client();
    let file = crate::NewFile { replication: 2, ..client.new_file() };
    let mut log = client.create_log("/log", file).expect("created");
    assert!(!log.has_few_replicas());
    log.append(b"entry").expect("appended");
    log.flush(FlushLevel::Flushed).expect("flushed");
    eventually("it is noticed", || log.is_broken());
    eventually("it is recovered", || cluster.file.lock().is_closed && client.broken_files().is_empty());
    assert_eq!(log.acked(), 5);
    let next = client.create_log("/next", file).expect("created");
    assert_eq!(next.datanodes(), [format!("127.0.0.1:{}", cluster.datanodes[1].port)]);
    assert!(next.has_few_replicas());
    drop(log);
    assert_eq!(cluster.file.lock().recoveries, 1, "it is recovered once");
}

#[test]
fn an_empty_log_is_closed() {
    let cluster = FakeCluster::healthy(2);
    let log = cluster.log();
    assert_eq!(log.close(FlushLevel::Flushed).expect("closed"), 0);
}
