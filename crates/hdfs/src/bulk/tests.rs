//! Bulk files against scripted DataNodes.

use std::io::ErrorKind;

use crate::fake::{Ack, Behavior, FakeCluster, status};
use crate::hadoop::hdfs::{BlockOpResponseProto, Status};
use crate::{BulkWriter, FlushLevel, HdfsClient, NewFile};

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

#[test]
fn an_empty_file_has_no_block() {
    let cluster = FakeCluster::healthy(1);
    assert_eq!(create(&cluster.client()).close(FlushLevel::Synced).expect("closed"), 0);
    assert!(!cluster.namenode.methods().contains(&"addBlock".to_owned()));
}
