//! Reads through the files of scripted DataNodes.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};
use tempfile::TempDir;

use super::descriptors::{self, Refusal, Timeouts};
use super::replicas::Known;
use super::{ShortCircuit, ShortCircuitSettings};
use crate::fake::{Behavior, DescriptorAnswer, DescriptorServer, FakeCluster, status};
use crate::hadoop::hdfs::{BlockOpResponseProto, DatanodeIdProto, Status};
use crate::{ChecksumResult, FileReader, HdfsClient, Settings};

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 % 251) as u8).collect()
}

/// DataNodes of which the first passes its files.
struct Test {
    cluster: FakeCluster,
    server: DescriptorServer,
    dir: TempDir,
    stored: Vec<u8>,
}

impl Test {
    /// Starts it with blocks of these lengths.
    fn start(datanodes: usize, answer: DescriptorAnswer, blocks: &[usize]) -> Self {
        let cluster = FakeCluster::healthy(datanodes);
        let dir = tempfile::tempdir().expect("a directory");
        let server = DescriptorServer::start(dir.path(), &cluster.datanodes[0], answer);
        let stored = bytes(blocks.iter().sum());
        let mut at = 0;
        for len in blocks {
            cluster.store(&stored[at..at + len]);
            let block_id = cluster.file.lock().blocks.last().expect("stored").b.block_id;
            server.store(block_id, &stored[at..at + len]);
            at += len;
        }
        Self { cluster, server, dir, stored }
    }

    fn settings(&self) -> ShortCircuitSettings {
        ShortCircuitSettings::at(self.dir.path().join("dn._PORT").to_str().expect("UTF-8"))
    }

    fn open(&self) -> FileReader {
        self.open_with(self.settings())
    }

    fn open_with(&self, short_circuit: ShortCircuitSettings) -> FileReader {
        self.client(short_circuit).open("/f").expect("opened")
    }

    fn client(&self, short_circuit: ShortCircuitSettings) -> HdfsClient {
        let socket_timeout = Duration::from_secs(2);
        let settings = self.cluster.settings();
        HdfsClient::new(Settings { short_circuit: Some(short_circuit), socket_timeout, ..settings })
            .expect("threads")
    }

    fn short_circuit(&self, settings: ShortCircuitSettings) -> ShortCircuit {
        ShortCircuit::new(&Settings { short_circuit: Some(settings), ..self.cluster.settings() })
    }

    /// Returns true if there are files of the first block, whose DataNode is asked if need be.
    fn passes_files(&self, short_circuit: &ShortCircuit) -> bool {
        let block = self.cluster.file.lock().blocks[0].clone();
        short_circuit.replica(&block, &block.locs[0].id).is_some()
    }

    /// The number of this process's descriptors of the files of blocks.
    fn open_files(&self) -> usize {
        let links = std::fs::read_dir("/proc/self/fd").expect("listed");
        let targets = links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok());
        targets.filter(|target| target.starts_with(self.dir.path().join("blocks"))).count()
    }

    /// Waits until this many descriptors are open: the server and the closing thread close theirs a
    /// little later.
    fn wait_for_open_files(&self, wanted: usize) {
        let start = Instant::now();
        while self.open_files() != wanted {
            assert!(start.elapsed() < Duration::from_secs(30), "{} files are open", self.open_files());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Reads a range, and asserts that its bytes are right.
    fn check(&self, file: &FileReader, offset: usize, len: usize) {
        let mut buf = vec![0xee; len];
        assert_eq!(file.read_at(offset as u64, &mut buf).expect("read"), len);
        assert!(buf == self.stored[offset..offset + len], "{offset}, {len}");
    }

    /// The number of reads that the DataNodes answered.
    fn ordinary_reads(&self) -> Vec<usize> {
        self.cluster.datanodes.iter().map(|node| node.reads().len()).collect()
    }
}

#[test]
fn ranges_are_read_through_the_files() {
    for answer in [DescriptorAnswer::Files, DescriptorAnswer::FilesWithoutReceipt] {
        let receipts = usize::from(matches!(answer, DescriptorAnswer::Files)) * 2;
        let test = Test::start(1, answer, &[6000, 4000]);
        let file = test.open();
        for (offset, len) in [(0, 10_000), (0, 1), (511, 2), (1000, 3000), (5999, 2), (6000, 1), (9999, 1)] {
            test.check(&file, offset, len);
        }
        assert_eq!(test.ordinary_reads(), [0]);
        assert_eq!(test.server.requests(), 2, "one a block");
        assert!(test.server.has_receipts(receipts));
    }
}

#[test]
fn a_deleted_replica_stays_readable() {
    let test = Test::start(1, DescriptorAnswer::Files, &[3000]);
    let file = test.open();
    test.check(&file, 0, 10);
    std::fs::remove_file(test.server.data_file(1000)).expect("removed");
    test.cluster.datanodes[0].forget();
    test.check(&file, 10, 2990);
}

#[test]
fn changed_bytes_are_read_from_another_datanode() {
    let test = Test::start(2, DescriptorAnswer::Files, &[3000]);
    let mut changed = test.stored.clone();
    changed[700] ^= 1;
    std::fs::write(test.server.data_file(1000), &changed).expect("written");
    let file = test.open();
    test.check(&file, 0, 512);
    assert_eq!(test.ordinary_reads(), [0, 0]);
    test.check(&file, 600, 700);
    assert_eq!(test.ordinary_reads(), [0, 1]);
    test.check(&file, 600, 700);
    assert_eq!((test.ordinary_reads(), test.server.requests()), (vec![0, 2], 1), "it is remembered");
}

#[test]
fn a_damaged_block_diverts_no_other_block_of_its_datanode() {
    let test = Test::start(2, DescriptorAnswer::Files, &[3000, 3000]);
    let mut changed = test.stored[..3000].to_vec();
    changed[700] ^= 1;
    std::fs::write(test.server.data_file(1000), &changed).expect("written");
    let file = test.open();
    test.check(&file, 600, 700);
    assert_eq!(test.ordinary_reads(), [0, 1]);
    test.check(&file, 3100, 700);
    assert_eq!(test.ordinary_reads(), [0, 1], "through the files");
}

#[test]
fn a_mismatch_over_the_network_diverts_no_other_block_of_the_local_datanode() {
    let test = Test::start(2, DescriptorAnswer::Files, &[3000, 3000]);
    test.cluster.datanodes[0].behave(Behavior { is_corrupt: true, ..Behavior::default() });
    let file = test.open();
    let mut buf = [0; 100];
    for reads in 1..3 {
        let read = file.read_verified_at(650, &mut buf).expect("read");
        assert_eq!((read, &buf[..]), ((100, ChecksumResult::Matches), &test.stored[650..750]));
        assert_eq!(test.ordinary_reads(), [1, reads], "the damage is remembered");
    }
    test.check(&file, 3100, 700);
    assert_eq!(test.ordinary_reads(), [1, 2], "through the files");
}

#[test]
fn unverified_reads_return_the_bytes_of_the_file() {
    let test = Test::start(1, DescriptorAnswer::Files, &[3000]);
    let mut changed = test.stored.clone();
    changed[700] ^= 1;
    std::fs::write(test.server.data_file(1000), &changed).expect("written");
    let mut buf = [0; 100];
    let file = test.open();
    assert_eq!(file.read_unverified_at(650, &mut buf).expect("read"), 100);
    assert_eq!(buf, changed[650..750]);
    // The other way to the bytes is the DataNode, which has a good copy.
    let read = file.read_verified_at(650, &mut buf).expect("read");
    assert_eq!((read, &buf[..]), ((100, ChecksumResult::Matches), &test.stored[650..750]));
    assert_eq!(test.ordinary_reads(), [1]);
}

#[test]
fn a_remote_read_without_verification_asks_for_no_checksums() {
    let cluster = FakeCluster::healthy(1);
    cluster.store(&bytes(3000));
    let file = cluster.client().open("/f").expect("opened");
    let mut buf = [0; 100];
    file.read_unverified_at(0, &mut buf).expect("read");
    file.read_at(0, &mut buf).expect("read");
    let asked: Vec<_> = cluster.datanodes[0].reads().iter().map(|read| read.send_checksums).collect();
    assert_eq!(asked, [Some(false), Some(true)]);
}

fn reply(code: Status, version: Option<u32>) -> DescriptorAnswer {
    DescriptorAnswer::Reply(BlockOpResponseProto { short_circuit_access_version: version, ..status(code) })
}

#[test]
fn a_refusal_leads_to_an_ordinary_read() {
    // With the number of requests for four reads of two blocks.
    let refusals = [
        (reply(Status::ErrorUnsupported, None), 1),
        (reply(Status::ErrorUnsupported, Some(2)), 2),
        (reply(Status::ErrorAccessToken, None), 4),
        // The DataNode does not have the replica.
        (reply(Status::Error, None), 2),
        (reply(Status::ErrorInvalid, None), 1),
        (DescriptorAnswer::Garbage, 1),
        (DescriptorAnswer::Close, 1),
        (DescriptorAnswer::NoByte, 1),
        (DescriptorAnswer::Descriptors(0), 2),
        (DescriptorAnswer::Descriptors(1), 2),
        (DescriptorAnswer::Pipe, 2),
    ];
    for (answer, requests) in refusals {
        let test = Test::start(1, answer.clone(), &[3000, 2000]);
        let file = test.open();
        for _ in 0..2 {
            test.check(&file, 100, 500);
            test.check(&file, 4000, 500);
        }
        assert_eq!((test.ordinary_reads(), test.server.requests()), (vec![4], requests), "{answer:?}");
    }
}

#[test]
fn three_descriptors_are_refused_and_closed() {
    let test = Test::start(1, DescriptorAnswer::Descriptors(3), &[3000]);
    let file = test.open();
    test.check(&file, 0, 3000);
    // It is not known which two are the files of the block. All are closed.
    assert_eq!((test.ordinary_reads(), test.server.requests()), (vec![1], 1));
    test.wait_for_open_files(0);
}

#[test]
fn a_silent_socket_costs_one_timeout() {
    let test = Test::start(1, DescriptorAnswer::Silence, &[3000]);
    let file = test.open();
    let start = Instant::now();
    for _ in 0..3 {
        test.check(&file, 0, 500);
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!((test.ordinary_reads(), test.server.requests()), (vec![3], 1));
}

#[test]
fn without_a_socket_the_datanode_is_asked() {
    let test = Test::start(1, DescriptorAnswer::Files, &[3000]);
    for path in ["/nonexistent/dn._PORT".to_owned(), format!("/{}", "x".repeat(200))] {
        let file = test.open_with(ShortCircuitSettings::at(path));
        test.check(&file, 0, 3000);
    }
    assert_eq!((test.ordinary_reads(), test.server.requests()), (vec![2], 0));
}

#[test]
fn a_damaged_meta_file_leads_to_an_ordinary_read() {
    let test = Test::start(1, DescriptorAnswer::Files, &[3000]);
    let meta = test.server.meta_file(1000);
    for header in [&[][..], &[0, 9, 2, 0, 0, 2, 0], &[0, 1, 2, 0, 0, 2, 0]] {
        std::fs::write(&meta, header).expect("written");
        test.check(&test.open(), 0, 3000);
    }
    assert_eq!((test.ordinary_reads(), test.server.requests()), (vec![3], 3));
}

#[test]
fn a_socket_that_failed_is_tried_again_after_the_interval() {
    let test = Test::start(1, DescriptorAnswer::Close, &[3000]);
    let short_circuit = test.short_circuit(test.settings());
    assert!(!test.passes_files(&short_circuit) && !test.passes_files(&short_circuit));
    test.server.answer(DescriptorAnswer::Files);
    assert!(!test.passes_files(&short_circuit));
    assert_eq!(test.server.requests(), 1);
    short_circuit.disabled.lock().values_mut().for_each(|until| *until = Instant::now());
    assert!(test.passes_files(&short_circuit));
    assert_eq!(test.server.requests(), 2);
}

#[test]
fn a_full_queue_disables_no_socket() {
    let test = Test::start(1, DescriptorAnswer::Files, &[3000]);
    let path = test.dir.path().join("full");
    let listener = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
    listener.bind(&SockAddr::unix(&path).expect("an address")).expect("bound");
    listener.listen(0).expect("listens");
    let mut waiting = Vec::new();
    loop {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        socket.set_nonblocking(true).expect("set");
        match socket.connect(&SockAddr::unix(&path).expect("an address")) {
            Ok(()) => waiting.push(socket),
            Err(e) => break assert_eq!(e.kind(), ErrorKind::WouldBlock),
        }
    }
    let settings = ShortCircuitSettings::at(path.to_str().expect("UTF-8"));
    let short_circuit = test.short_circuit(settings);
    let start = Instant::now();
    assert!(!test.passes_files(&short_circuit));
    assert!(start.elapsed() >= Duration::from_millis(100), "it waits for room: {:?}", start.elapsed());
    assert!(short_circuit.disabled.lock().is_empty());
    // The block is not tried again, so that its reads do not wait.
    let block = test.cluster.file.lock().blocks[0].clone();
    let known = short_circuit.replicas.lock().get(&block.b, Instant::now());
    assert!(matches!(known, Some(Known::Refused)), "{known:?}");
}

#[test]
fn a_queue_that_gets_room_is_waited_for() {
    let test = Test::start(1, DescriptorAnswer::Files, &[3000]);
    let path = test.dir.path().join("full");
    let listener = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
    listener.bind(&SockAddr::unix(&path).expect("an address")).expect("bound");
    listener.listen(0).expect("listens");
    let _first = UnixStream::connect(&path).expect("one has room");
    let block = test.cluster.file.lock().blocks[0].clone();
    let timeouts = Timeouts { queue: Duration::from_secs(60), reply: Duration::from_secs(60) };
    let accepting = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        // The second connection is closed, so that the request fails after it was made.
        [listener.accept().is_ok(), listener.accept().is_ok()]
    });
    let refusal = descriptors::request(path.to_str().expect("UTF-8"), &block, timeouts);
    let refusal = refusal.expect_err("the connection is closed");
    assert!(matches!(refusal, Refusal::Path(_)), "not a full queue: {refusal:?}");
    assert_eq!(accepting.join().expect("ended"), [true, true]);
}

#[test]
fn files_that_cannot_be_read_are_not_requested_again() {
    let test = Test::start(1, DescriptorAnswer::Files, &[3000, 3000]);
    let file = test.open();
    test.check(&file, 0, 10);
    test.check(&file, 3000, 10);
    std::fs::write(test.server.data_file(1000), b"short").expect("written");
    for reads in 1..4 {
        test.check(&file, 1000, 500);
        assert_eq!((test.ordinary_reads(), test.server.requests()), (vec![reads], 2));
    }
    test.check(&file, 4000, 500);
    assert_eq!(test.ordinary_reads(), [3], "the other block is read through its files");
}

#[test]
fn descriptors_are_bounded_in_number() {
    let test = Test::start(1, DescriptorAnswer::Files, &[512, 512, 512]);
    let client = test.client(ShortCircuitSettings { replicas_max: 2, ..test.settings() });
    let file = client.open("/f").expect("opened");
    let read = |block: usize| test.check(&file, block * 512, 10);
    [0, 1, 0, 1].into_iter().for_each(read);
    assert_eq!(test.server.requests(), 2);
    [2, 1, 2].into_iter().for_each(read);
    assert_eq!(test.server.requests(), 3, "the first one was used least recently");
    read(0);
    assert_eq!(test.server.requests(), 4);
    test.wait_for_open_files(4);

    let none = Test::start(1, DescriptorAnswer::Files, &[512]);
    let client = none.client(ShortCircuitSettings { replicas_max: 0, ..none.settings() });
    let file = client.open("/f").expect("opened");
    none.check(&file, 0, 10);
    none.check(&file, 0, 10);
    assert_eq!((none.server.requests(), none.ordinary_reads()), (2, vec![0]), "nothing is kept");
    none.wait_for_open_files(0);
}

#[test]
fn expired_descriptors_are_closed_without_a_read() {
    let test = Test::start(1, DescriptorAnswer::Files, &[512]);
    let client = test.client(test.settings());
    test.check(&client.open("/f").expect("opened"), 0, 10);
    test.wait_for_open_files(2);

    let expiring = Test::start(1, DescriptorAnswer::Files, &[512]);
    let unused_for = Duration::ZERO;
    let client = expiring.client(ShortCircuitSettings { unused_for, ..expiring.settings() });
    expiring.check(&client.open("/f").expect("opened"), 0, 10);
    expiring.wait_for_open_files(0);
    assert_eq!(expiring.server.requests(), 1);
    assert_eq!(test.open_files(), 2, "those that are not expired stay open");
}

#[test]
fn a_replica_that_is_read_is_closed_after_the_read() {
    let test = Test::start(1, DescriptorAnswer::Files, &[512]);
    let short_circuit = test.short_circuit(test.settings());
    let block = test.cluster.file.lock().blocks[0].clone();
    let read = short_circuit.replica(&block, &block.locs[0].id).expect("its files");
    short_circuit.refuse(&block.b, None);
    let weak = Arc::downgrade(&read);
    short_circuit.close_expired();
    assert_eq!((weak.strong_count(), short_circuit.removed.lock().len()), (2, 1), "it is read");
    drop(read);
    assert_eq!(weak.strong_count(), 1, "the end of a read closes nothing");
    short_circuit.close_expired();
    assert_eq!((weak.strong_count(), short_circuit.removed.lock().len()), (0, 0));
}

#[test]
fn replicas_beyond_the_list_of_removed_ones_are_closed_at_once() {
    let test = Test::start(1, DescriptorAnswer::Files, &[512]);
    let short_circuit = test.short_circuit(ShortCircuitSettings { replicas_max: 0, ..test.settings() });
    for _ in 0..super::REMOVED_MAX + 10 {
        let replica = Arc::new(super::replica::LocalReplica::of_bytes(b"x"));
        short_circuit.close_later([replica]);
        assert!(short_circuit.removed.lock().len() <= super::REMOVED_MAX);
    }
}

#[test]
fn replicas_take_a_quarter_of_the_descriptors() {
    assert_eq!(super::possible_replicas(256, Some(1 << 20)), 256);
    assert_eq!(super::possible_replicas(256, Some(1024)), 128);
    assert_eq!(super::possible_replicas(usize::MAX, None), usize::MAX);
}

#[test]
fn cached_bytes_are_read_without_waiting() {
    let test = Test::start(1, DescriptorAnswer::Files, &[3000, 3000]);
    let client = test.client(test.settings());
    let file = client.open("/f").expect("opened");
    let mut buf = [0; 1000];
    assert!(!file.read_cached_at(2500, &mut buf, true), "no descriptor is here");
    assert_eq!(test.server.requests(), 0, "and none is requested");
    test.check(&file, 0, 1);
    assert!(!file.read_cached_at(2500, &mut buf, true), "only that of the first block is here");
    test.check(&file, 3000, 1);
    if file.read_cached_at(2500, &mut buf, true) {
        assert!(buf == test.stored[2500..3500]);
        assert_eq!(client.read_statistics().short_circuit_bytes, 1002);
    } else {
        // A file system without support refuses every such read.
        assert!(!file.read_cached_at(0, &mut buf, false));
    }
    assert!(!file.read_cached_at(5500, &mut buf, false), "beyond the end");
}

#[test]
fn cached_bytes_that_do_not_match_are_returned_only_without_verification() {
    let test = Test::start(1, DescriptorAnswer::Files, &[3000]);
    let file = test.open();
    test.check(&file, 0, 1);
    let mut buf = [0; 100];
    let is_supported = file.read_cached_at(650, &mut buf, true);
    let mut changed = test.stored.clone();
    changed[700] ^= 1;
    std::fs::write(test.server.data_file(1000), &changed).expect("written");
    assert!(!file.read_cached_at(650, &mut buf, true), "a mismatch");
    assert_eq!(file.read_cached_at(650, &mut buf, false), is_supported);
    assert!(!is_supported || buf == changed[650..750]);
}

#[test]
fn bytes_are_counted_by_the_way_of_the_read() {
    let test = Test::start(1, DescriptorAnswer::Files, &[3000]);
    let client = test.client(test.settings());
    let file = client.open("/f").expect("opened");
    test.check(&file, 0, 100);
    file.read_verified_at(0, &mut [0; 50]).expect("read");
    let found = client.read_statistics();
    assert_eq!((found.bytes, found.local_bytes, found.short_circuit_bytes), (150, 150, 100));
}

#[test]
fn only_addresses_of_this_machine_are_local() {
    let test = Test::start(1, DescriptorAnswer::Files, &[512]);
    let short_circuit = test.short_circuit(test.settings());
    let is_local = |ip_addr: &str| {
        short_circuit.is_local(&DatanodeIdProto { ip_addr: ip_addr.to_owned(), ..Default::default() })
    };
    assert!(is_local("127.0.0.1") && is_local("::1"));
    assert!(!is_local("192.0.2.1") && !is_local("2001:db8::1") && !is_local("localhost") && !is_local(""));
}
