//! Bulk files against scripted DataNodes.

use std::io::ErrorKind;
use std::time::Duration;

use crate::block::output::CHAIN_IN_FLIGHT_BYTES_MAX;
use crate::fake::{Ack, Behavior, FakeCluster, status};
use crate::hadoop::hdfs::{BlockOpResponseProto, Status};
use crate::{BulkWriter, FlushLevel, HdfsClient, NewFile, Settings};

fn create(client: &HdfsClient) -> BulkWriter {
    let file = NewFile { block_bytes: 1 << 20, ..client.new_file() };
    client.create_bulk("/f", file).expect("created")
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 % 251) as u8).collect()
}

#[test]
fn a_file_of_several_blocks_goes_through_chains() {
    let cluster = FakeCluster::healthy(3);
    let client = cluster.client();
    let mut file = create(&client);
    let written = bytes((2 << 20) + 12_345);
    for part in written.chunks(70_001) {
        file.append(part).expect("appended");
    }
    assert_eq!(file.position(), written.len() as u64);
    assert_eq!(file.close(FlushLevel::Synced).expect("closed"), written.len() as u64);
    assert!(cluster.file.lock().is_closed);
    let first = &cluster.datanodes[0];
    let stored: Vec<u8> = (1000..1003).flat_map(|block| first.bytes(block)).collect();
    assert!(stored == written);
    assert!(first.requests().iter().all(|request| request.targets.len() == 2 && request.pipeline_size == 3));
    assert_eq!(cluster.datanodes[1].connections(), 0, "the first DataNode passes packets on");
    assert!(first.packets().iter().filter(|packet| packet.header.is_last).all(|packet| packet.header.sync));
    let reader = client.open("/f").expect("opened");
    let mut buf = vec![0; written.len()];
    assert_eq!(reader.read_at(0, &mut buf).expect("read"), written.len());
    assert!(buf == written);
}

#[test]
fn a_datanode_blamed_by_the_first_is_avoided() {
    let cluster = FakeCluster::healthy(3);
    let bad = cluster.datanodes[2].port;
    let blame =
        BlockOpResponseProto { first_bad_link: Some(format!("127.0.0.1:{bad}")), ..status(Status::Error) };
    cluster.datanodes[0].behave(Behavior { reply: Some(blame), ..Behavior::default() });
    let client = cluster.client();
    let mut file = create(&client);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while cluster.file.lock().abandoned == 0 {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            cluster.datanodes[0].behave(Behavior::default());
        });
        file.append(b"bytes").expect("appended");
    });
    assert_eq!(file.close(FlushLevel::Flushed).expect("closed"), 5);
    let request = cluster.datanodes[0].requests().pop().expect("one");
    assert_eq!(request.targets.len(), 1);
    assert_ne!(request.targets[0].id.xfer_port, u32::from(bad));
}

/// The first DataNode tries to connect to the second one, which has no power, and is silent
/// meanwhile.
#[test]
fn a_dead_datanode_behind_a_silent_one_is_avoided() {
    let trying = Behavior {
        set_up_delay: |request| Duration::from_secs(if request.targets.len() == 2 { 30 } else { 0 }),
        ..Behavior::default()
    };
    let cluster = FakeCluster::start(vec![trying, Behavior::default(), Behavior::default()]);
    let dead = cluster.datanodes[1].port;
    cluster.datanodes[1].stop();
    while std::net::TcpStream::connect(("127.0.0.1", dead)).is_ok() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let settings = Settings { ack_timeout: Duration::from_millis(300), ..cluster.settings() };
    let client = HdfsClient::new(settings).expect("threads");
    let mut file = create(&client);
    file.append(b"bytes").expect("appended");
    assert_eq!(file.close(FlushLevel::Flushed).expect("closed"), 5);
    let requests = cluster.datanodes[0].requests();
    assert_eq!((requests.len(), requests[1].targets.len()), (2, 1));
    assert_eq!(requests[1].targets[0].id.xfer_port, u32::from(cluster.datanodes[2].port));
}

#[test]
fn a_failure_within_a_block_fails_the_file() {
    let failing = Behavior { ack: Box::new(|_| Ack::Fail(Status::Error)), ..Behavior::default() };
    let cluster = FakeCluster::start(vec![failing, Behavior::default()]);
    let client = cluster.client();
    let mut file = create(&client);
    file.append(b"bytes").expect("in the buffer");
    assert_eq!(file.flush(FlushLevel::Flushed).expect_err("failed").kind(), ErrorKind::BrokenPipe);
    assert!(file.append(b"more").is_err());
    assert!(file.close(FlushLevel::Flushed).is_err(), "a file that lacks bytes is never closed");
    assert!(!cluster.namenode.methods().contains(&"complete".to_owned()));
}

/// Each packet is queued behind the others for much longer than a log may wait.
#[test]
fn a_slow_chain_that_makes_progress_is_not_broken() {
    let slow = Behavior {
        ack: Box::new(|_| {
            std::thread::sleep(Duration::from_millis(50));
            Ack::Success
        }),
        ..Behavior::default()
    };
    let cluster = FakeCluster::start(vec![slow, Behavior::default()]);
    let settings = Settings { ack_timeout: Duration::from_millis(300), ..cluster.settings() };
    let client = HdfsClient::new(settings).expect("threads");
    let mut file = create(&client);
    let written = bytes((1 << 20) + 100_000);
    file.append(&written).expect("appended");
    assert_eq!(file.close(FlushLevel::Synced).expect("closed"), written.len() as u64);
    assert!(cluster.file.lock().abandoned == 0 && cluster.file.lock().is_closed);
}

#[test]
fn a_chain_without_progress_breaks_and_blames_nobody() {
    let silent = Behavior { ack: Box::new(|_| Ack::Silence), ..Behavior::default() };
    let cluster = FakeCluster::start(vec![silent, Behavior::default()]);
    let (socket_timeout, chain_timeout_extension) = (Duration::from_secs(2), Duration::ZERO);
    let settings = Settings { socket_timeout, chain_timeout_extension, ..cluster.settings() };
    let client = HdfsClient::new(settings).expect("threads");
    let file = NewFile { block_bytes: 64 << 20, ..client.new_file() };
    let mut file = client.create_bulk("/f", file).expect("created");
    let error = file.append(&bytes(8 << 20)).expect_err("no acknowledgement");
    assert!(error.to_string().contains("no progress"), "{error}");
    let sent: usize = cluster.datanodes[0].packets().iter().map(|packet| packet.data.len()).sum();
    assert!(sent <= CHAIN_IN_FLIGHT_BYTES_MAX + (64 << 10), "{sent}");
    let next = client.create_log("/next", client.new_file()).expect("created");
    assert_eq!(next.datanodes().len(), 2, "nobody is excluded");
}

#[test]
fn an_empty_file_has_no_block() {
    let cluster = FakeCluster::healthy(1);
    assert_eq!(create(&cluster.client()).close(FlushLevel::Synced).expect("closed"), 0);
    assert!(!cluster.namenode.methods().contains(&"addBlock".to_owned()));
}
