//! Two servers in one process, on one file system: a region moves from one to the other.

use std::collections::HashMap;
use std::time::Instant;

use evenkeel_block_cache::{BlockKey, HotBlock, LruBlockCache};
use evenkeel_common::{CellType, KeyValue};
use evenkeel_fs::{FileSystem, MemoryFileSystem};
use evenkeel_region::operations::{Mutation, MutationKind, Scan};
use parking_lot::Mutex;

use super::*;
use crate::transitions::tests::{TestCluster, TestPeers};

const ROWS: usize = 300;
/// The rows that are read often.
const WARM: std::ops::Range<usize> = 50..150;
const TIMEOUT: Duration = Duration::from_secs(20);

/// The servers of this process, and the regions that were told to them.
#[derive(Default)]
struct Neighbours {
    servers: Mutex<HashMap<ServerName, Arc<HotBlocks>>>,
    told: Mutex<Vec<ServerName>>,
}

impl Peers for Neighbours {
    fn takes_lists(&self, server: &ServerName) -> bool {
        self.servers.lock().contains_key(server)
    }

    fn tell(&self, server: &ServerName, request: pb::HotBlocksRequest) -> Result<()> {
        self.told.lock().push(server.clone());
        let server = self.servers.lock().get(server).cloned();
        server.ok_or_else(|| HBaseError::io("it has ended"))?.receive(&request)
    }
}

/// A server with a cache of its own.
struct Node {
    cluster: TestCluster,
    cache: Arc<LruBlockCache>,
}

impl Node {
    fn new(
        fs: &Arc<dyn FileSystem>,
        host: &str,
        neighbours: &Arc<Neighbours>,
        settings: HotBlockSettings,
    ) -> Self {
        let cache = Arc::new(LruBlockCache::new(8 << 20));
        let peers: TestPeers = (Arc::clone(neighbours) as _, settings);
        let node = Self { cluster: TestCluster::on(fs, host, Arc::clone(&cache) as _, Some(peers)), cache };
        neighbours.servers.lock().insert(node.name(), Arc::clone(node.hot_blocks()));
        node
    }

    fn alone(settings: HotBlockSettings) -> Self {
        let fs: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
        Self::new(&fs, "alone", &Arc::default(), settings)
    }

    fn hot_blocks(&self) -> &Arc<HotBlocks> {
        self.cluster.hot_blocks.as_ref().expect("started")
    }

    fn server(&self) -> &Arc<RegionServer> {
        self.cluster.transitions.server()
    }

    fn name(&self) -> ServerName {
        self.server().name().clone()
    }

    fn region(&self) -> Arc<Region> {
        self.server().regions().find(self.cluster.region.encoded_name()).expect("online")
    }

    fn write_rows(&self) {
        let region = self.region();
        for row in 0..ROWS {
            let (row, value) = (self::row(row), value(row));
            let cell = KeyValue::new(row.as_bytes(), b"f", b"q", 1, CellType::Put, value.as_bytes());
            region.mutate_wait(Mutation::new(MutationKind::Put, row.clone(), vec![cell])).expect("written");
        }
        region.flush().expect("flushed");
    }

    /// Reads the warm rows. Returns the number of data blocks that were not cached.
    fn read_rows(&self) -> u64 {
        let before = self.cache.stats().misses[0];
        for row in WARM {
            let found = self.region().get(Scan::get(self::row(row))).expect("read");
            let values: Vec<_> = found.iter().map(|cell| cell.value().to_vec()).collect();
            assert_eq!(values, [value(row).into_bytes()]);
        }
        self.cache.stats().misses[0] - before
    }

    /// Counts of blocks: told, received, fetched, dropped.
    fn counts(&self) -> [u64; 4] {
        let counts = self.server().hot_block_counts();
        [&counts.told, &counts.received, &counts.fetched, &counts.dropped].map(|count| count.load(Relaxed))
    }

    fn wait_for(&self, what: &str, reached: impl Fn([u64; 4]) -> bool) -> [u64; 4] {
        let began = Instant::now();
        while !reached(self.counts()) {
            assert!(began.elapsed() < TIMEOUT, "{what}: {:?}", self.counts());
            std::thread::sleep(Duration::from_millis(2));
        }
        self.counts()
    }

    fn receive(&self, region: &str, groups: &[list::Group]) -> Result<()> {
        self.hot_blocks().receive(&pb::HotBlocksRequest {
            region: region.to_owned().into_bytes().into(),
            blocks: list::encode(groups).into(),
        })
    }
}

fn row(number: usize) -> String {
    format!("row{number:05}")
}

fn value(number: usize) -> String {
    format!("{number:05}").repeat(50)
}

/// Two servers; the region is open on the first, and warm there.
fn pair() -> (Node, Node, Arc<Neighbours>) {
    let fs: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
    let neighbours = Arc::default();
    let node = |host| Node::new(&fs, host, &neighbours, HotBlockSettings::default());
    let (old, new) = (node("old"), node("new"));
    old.cluster.open();
    old.write_rows();
    assert!(old.read_rows() > 10, "cold at first");
    assert_eq!(old.read_rows(), 0);
    (old, new, neighbours)
}

/// A list of blocks at the start of one file.
fn list_of(file: FileId, blocks: u64) -> Vec<list::Group> {
    let hot = |at| {
        let key = BlockKey { file, offset: at * 1100 };
        HotBlock { heat: 5, key, on_disk_bytes: 1100 }
    };
    list::group(&(0..blocks).map(hot).collect::<Vec<_>>(), u64::MAX)
}

#[test]
fn a_region_that_moves_is_warm_on_its_new_server() {
    let (old, new, _) = pair();
    old.cluster.close_for(Some(new.name()));
    new.cluster.open();
    let [told, ..] = old.wait_for("told", |[told, ..]| told > 0);
    let counts = new.wait_for("fetched", |[_, _, fetched, dropped]| fetched + dropped >= told);
    assert_eq!(counts, [0, told, told, 0]);
    assert_eq!(new.read_rows(), 0, "every warm row is cached");
}

#[test]
fn a_list_that_comes_late_is_fetched_too() {
    let (old, new, neighbours) = pair();
    neighbours.servers.lock().clear();
    let hottest = old.cache.hot_blocks(&old.region().file_ids(), 1000);
    old.cluster.close_for(Some(new.name()));
    new.cluster.open();
    new.receive(new.cluster.region.encoded_name(), &list::group(&hottest, u64::MAX)).expect("taken");
    let all = hottest.len() as u64;
    assert_eq!(new.wait_for("fetched", |[_, _, fetched, _]| fetched > 0 && fetched == all), [0, all, all, 0]);
    assert_eq!(new.read_rows(), 0);
    assert_eq!(old.counts(), [0; 4], "a server that takes no lists was told");
}

#[test]
fn only_moves_to_other_servers_are_told() {
    let (old, new, neighbours) = pair();
    for destination in [None, Some(old.name()), Some(ServerName::new("java", 16020, 1)), Some(new.name())] {
        old.cluster.close_for(destination);
        old.cluster.open();
    }
    old.wait_for("told", |[told, ..]| told > 0);
    assert_eq!(*neighbours.told.lock(), [new.name()]);
}

#[test]
fn a_server_that_fails_to_take_a_list_delays_no_close() {
    let (old, _, neighbours) = pair();
    let gone = ServerName::new("gone", 16020, 1);
    // It takes lists, and refuses this one.
    let refuses = Node::alone(HotBlockSettings { bytes_per_second: 0, ..HotBlockSettings::default() });
    neighbours.servers.lock().insert(gone.clone(), Arc::clone(refuses.hot_blocks()));
    old.cluster.close_for(Some(gone.clone()));
    old.cluster.open();
    assert_eq!(old.read_rows(), 0, "open again, and warm");
    let began = Instant::now();
    while neighbours.told.lock().is_empty() {
        assert!(began.elapsed() < TIMEOUT);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!((old.counts(), refuses.counts()), ([0; 4], [0; 4]));
}

#[test]
fn blocks_that_the_region_does_not_have_are_dropped() {
    let node = Node::alone(HotBlockSettings::default());
    node.cluster.open();
    node.write_rows();
    let region = node.cluster.region.encoded_name();
    node.receive(region, &list_of(FileId::of_name("another"), 10)).expect("taken");
    let counts = node.wait_for("dropped", |[.., dropped]| dropped > 0);
    assert_eq!(counts, [0, 10, 0, 10]);
    // Positions in its file without a block.
    let wrong = list_of(node.region().file_ids()[0], 50);
    node.receive(region, &wrong).expect("taken");
    let counts = node.wait_for("dropped", |[_, _, fetched, dropped]| fetched + dropped >= 60);
    assert_eq!(counts, [0, 60, 0, 60]);
    assert!(node.read_rows() > 0 && node.read_rows() == 0, "all rows are read, from the right blocks");
}

#[test]
fn what_is_no_list_is_refused() {
    let node = Node::alone(HotBlockSettings::default());
    let refused = |region: Vec<u8>, blocks: Vec<u8>| {
        let request = pb::HotBlocksRequest { region: region.into(), blocks: blocks.into() };
        node.hot_blocks().receive(&request).expect_err("refused").is_do_not_retry()
    };
    let right = list::encode(&list_of(FileId::from_bits(1), 3));
    assert!(refused(b"region".to_vec(), b"garbage".to_vec()));
    assert!(refused(vec![0xff; 8], right.clone()), "no name");
    assert!(refused(vec![b'a'; 10_000], right.clone()), "a long name");
    assert!(refused(b"region".to_vec(), vec![0; 64 << 20]));
    assert_eq!((node.hot_blocks().arrivals.held(), node.counts()), ((0, 0), [0; 4]));
    let request = pb::HotBlocksRequest { region: b"region".to_vec().into(), blocks: right.into() };
    node.hot_blocks().receive(&request).expect("taken");
    assert_eq!(node.hot_blocks().arrivals.held().0, 1);
}

#[test]
fn the_lists_that_wait_are_bounded_and_expire() {
    let node = Node::alone(HotBlockSettings::default());
    let small = list_of(FileId::from_bits(1), 1);
    for n in 0..1500 {
        node.receive(&format!("region{n}"), &small).expect("taken");
    }
    assert_eq!(node.hot_blocks().arrivals.held().0, 1000);
    assert_eq!(node.counts(), [0, 1500, 0, 500]);

    let node = Node::alone(HotBlockSettings::default());
    let large = list_of(FileId::from_bits(1), list::BLOCKS_MAX as u64);
    for n in 0..100 {
        node.receive(&format!("region{n}"), &large).expect("taken");
    }
    let (lists, bytes) = node.hot_blocks().arrivals.held();
    assert!(lists > 10 && lists < 100 && bytes <= 4 << 20, "{lists} lists, {bytes} bytes");

    let settings = HotBlockSettings { wait: Duration::ZERO, ..HotBlockSettings::default() };
    let node = Node::alone(settings);
    for n in 0..10 {
        node.receive(&format!("region{n}"), &small).expect("taken");
    }
    assert_eq!((node.hot_blocks().arrivals.held().0, node.counts()), (1, [0, 10, 0, 9]));
}

#[test]
fn settings_are_read_and_limited() {
    let mut conf = Configuration::new();
    assert_eq!(HotBlockSettings::from(&conf).expect("defaults"), HotBlockSettings::default());
    conf.set("evenkeel.regionserver.hot.blocks.max", "1000000000000");
    conf.set("evenkeel.regionserver.hot.blocks.size.max", "5");
    conf.set("evenkeel.regionserver.hot.blocks.throughput", "0");
    let settings = HotBlockSettings::from(&conf).expect("valid");
    assert_eq!(
        (settings.blocks_max, settings.bytes_max, settings.bytes_per_second),
        (list::BLOCKS_MAX, 5, 0)
    );
    conf.set("evenkeel.regionserver.hot.blocks.throughput", "fast");
    assert!(HotBlockSettings::from(&conf).is_err());
}
