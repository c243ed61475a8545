//! Once there are too many blocks outside of the caches, scans over many store files hold few of
//! them, and their results do not change.
//!
//! The limit is per process, so this test has its own binary.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evenkeel_block_cache::{NoCache, heap_blocks};
use evenkeel_common::clock::{Clock, SystemClock};
use evenkeel_common::{
    CellBuffer, CellType, ColumnFamilyDescriptor, KeyValue, RegionInfo, ServerName, TableDescriptor,
    TryError, Wait,
};
use evenkeel_fs::{FileSystem, LocalHost, MemoryFileSystem};
use evenkeel_metrics::waits::{self, Cause};
use evenkeel_region::memstore::ChunkPool;
use evenkeel_region::operations::{Mutation, MutationKind, Scan};
use evenkeel_region::region::nonce::NonceManager;
use evenkeel_region::region::{NoEvents, Region, RegionConfig, RegionEnv};
use evenkeel_region::scanner::{NextState, ScannerContext};
use evenkeel_region::store::{StoreConfig, StoreEnv};
use evenkeel_wal::{NoListener, Wal, WalConfig, WalOptions};

const FILES: usize = 40;
/// Each file has a cell of each row, and each cell has its own block.
const ROWS: usize = 3;
const VALUE_BYTES: usize = 70_000;
/// A value, its key, header and checksums.
const BLOCK_BYTES: u64 = 71_000;
/// What a merge holds above the limit: the block that it reads, and the one that it loads.
const ABOVE_LIMIT: u64 = 2 * BLOCK_BYTES;

/// The limit belongs to one test at a time.
static LIMIT: Mutex<()> = Mutex::new(());

fn open() -> Arc<Region> {
    open_with(&[])
}

/// A region whose family has these attributes.
fn open_with(attributes: &[(&str, &str)]) -> Arc<Region> {
    let fs: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
    let (root, server) = (PathBuf::from("/hbase"), ServerName::new("here", 1, 1));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let wal_dir = root.join("WALs").join(server.to_string());
    fs.mkdirs(&wal_dir).expect("made");
    let wal = Wal::open(WalOptions {
        fs: Arc::clone(&fs),
        wal_dir,
        old_dir: root.join("oldWALs"),
        prefix: "w".into(),
        suffix: String::new(),
        config: WalConfig::default(),
        clock: Arc::clone(&clock),
        listener: Arc::new(NoListener),
    });
    let stores = StoreEnv {
        compaction_throughput: Arc::default(),
        metrics: Arc::default(),
        host: LocalHost::default(),
        open_files: Arc::default(),
        mob: Arc::default(),
        archived_files: Arc::default(),
        fs,
        root,
        cache: Arc::new(NoCache),
        clock: Arc::clone(&clock),
        chunks: ChunkPool::new(64),
        config: StoreConfig::default(),
    };
    let env = RegionEnv {
        stores,
        wal: wal.expect("opens"),
        wal_root: None,
        config: RegionConfig::default(),
        server,
        nonces: Arc::new(NonceManager::new(clock, 60_000)),
        events: Arc::new(NoEvents),
        operation_times: Arc::default(),
    };
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal").with("VERSIONS", "100");
    let family = attributes.iter().fold(family, |family, (key, value)| family.with(key, value));
    let table = TableDescriptor::new("t".parse().expect("legal")).with_family(family);
    let info = RegionInfo::new(table.name().clone(), Default::default(), Default::default(), 1);
    Region::open(Arc::new(env), info, Arc::new(table)).expect("opens")
}

/// A region of many files. Each value holds its file and row.
fn region_of_many_files() -> Arc<Region> {
    let region = open();
    for file in 0..FILES {
        for row in 0..ROWS {
            let value = value(file, row);
            let row = format!("r{row}");
            let cell = KeyValue::new(row.as_bytes(), b"f", b"q", file as i64 + 1, CellType::Put, &value);
            region.mutate_wait(Mutation::new(MutationKind::Put, row.clone(), vec![cell])).expect("written");
        }
        region.flush().expect("flushed");
    }
    region
}

fn value(file: usize, row: usize) -> Vec<u8> {
    format!("{file:05}/{row:05}").bytes().cycle().take(VALUE_BYTES).collect()
}

/// Scans all versions. Returns the values' first bytes in order, and the maximum bytes of blocks
/// held between two results.
fn scan(region: &Arc<Region>, reversed: bool) -> (Vec<String>, u64) {
    let scan = Scan { max_versions: u32::MAX, reversed, ..Scan::default() };
    let mut scanner = region.scanner(scan).expect("opens");
    let (mut values, mut most) = (Vec::new(), heap_blocks::bytes());
    loop {
        let mut out = CellBuffer::new();
        let state = scanner.next(&mut out, &mut ScannerContext::unlimited().with_batch(1)).expect("read");
        values.extend(out.iter().map(|cell| String::from_utf8_lossy(&cell.value()[..11]).into_owned()));
        assert!(out.iter().all(|cell| cell.value().len() == VALUE_BYTES));
        most = most.max(heap_blocks::bytes());
        if state == NextState::NoMoreRows {
            return (values, most);
        }
    }
}

#[test]
fn a_scan_above_the_block_limit_holds_few_blocks() {
    let _limit = LIMIT.lock();
    let region = region_of_many_files();
    for reversed in [false, true] {
        heap_blocks::set_limit(u64::MAX);
        let (expected, unlimited) = scan(&region, reversed);
        assert_eq!(expected.len(), FILES * ROWS);
        assert!(unlimited > (FILES as u64 - 2) * 70_000, "{unlimited} bytes: a block of each file");
        for limit in [0, 5 * BLOCK_BYTES] {
            heap_blocks::set_limit(limit);
            let (values, most) = scan(&region, reversed);
            assert_eq!(values, expected, "limit {limit}, reversed {reversed}");
            assert!(most <= limit + ABOVE_LIMIT, "{most} bytes with a limit of {limit}");
        }
    }
    assert_eq!(heap_blocks::bytes(), 0, "every block was given back");
}

/// A row of many versions, in many files, of which every third version is deleted: by a marker of
/// its version, of its column, or of its family's version.
fn hot_row_of_many_files(attributes: &[(&str, &str)]) -> Arc<Region> {
    let region = open_with(attributes);
    let markers = [CellType::Delete, CellType::DeleteFamilyVersion, CellType::DeleteColumn];
    let write = |kind, cell| {
        region.mutate_wait(Mutation::new(kind, "hot", vec![cell])).expect("written");
    };
    for file in 0..FILES {
        let timestamp = file as i64 + 1;
        let value = value(file, 0);
        write(MutationKind::Put, KeyValue::new(b"hot", b"f", b"q", timestamp, CellType::Put, &value));
        if file % 3 == 2 {
            let marker = if file == 5 { markers[2] } else { markers[file / 3 % 2] };
            let qualifier: &[u8] = if marker == CellType::DeleteFamilyVersion { b"" } else { b"q" };
            let cell = KeyValue::new(b"hot", b"f", qualifier, timestamp - 1, marker, b"");
            write(MutationKind::Delete, cell);
        }
        region.flush().expect("flushed");
    }
    region
}

/// Reads a row in one piece. Returns the number of its cells and the maximum bytes of blocks held
/// meanwhile, sampled.
fn get(region: &Arc<Region>) -> (usize, u64) {
    let (scan, mut out) = (Scan { max_versions: u32::MAX, ..Scan::get("hot") }, CellBuffer::new());
    let (done, most) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                most.fetch_max(heap_blocks::bytes(), Ordering::Relaxed);
                std::thread::yield_now();
            }
        });
        let read = region.row_reader(Wait::Allowed).get(scan, &mut out, &mut ScannerContext::unlimited());
        done.store(true, Ordering::Relaxed);
        read.map(drop).expect("read");
    });
    (out.len(), most.into_inner())
}

#[test]
fn a_get_and_a_scan_of_a_hot_row_with_new_version_behavior_hold_few_blocks() {
    let _limit = LIMIT.lock();
    for attributes in [&[][..], &[("NEW_VERSION_BEHAVIOR", "true")]] {
        let region = hot_row_of_many_files(attributes);
        for reversed in [false, true] {
            heap_blocks::set_limit(u64::MAX);
            let (expected, unlimited) = scan(&region, reversed);
            assert!(expected.len() > FILES / 2 && expected.len() < FILES, "{} versions", expected.len());
            assert!(unlimited > FILES as u64 / 2 * 70_000, "{unlimited} bytes: a block of each file");
            for limit in [0, 5 * BLOCK_BYTES] {
                heap_blocks::set_limit(limit);
                let (values, most) = scan(&region, reversed);
                assert_eq!(values, expected, "limit {limit}, reversed {reversed}, {attributes:?}");
                assert!(most <= limit + ABOVE_LIMIT, "{most} bytes with a limit of {limit}, {attributes:?}");
                let (cells, most) = get(&region);
                assert_eq!(cells, expected.len(), "a Get, limit {limit}, {attributes:?}");
                // A seek also holds the block that it leaves.
                let above = ABOVE_LIMIT + BLOCK_BYTES;
                assert!(most <= limit + above, "a Get: {most} bytes, limit {limit}, {attributes:?}");
            }
        }
        assert_eq!(heap_blocks::bytes(), 0, "every block was given back, {attributes:?}");
    }
}

#[test]
fn a_wait_for_large_block_memory_is_recorded() {
    const WAIT: Duration = Duration::from_millis(200);
    let _limit = LIMIT.lock();
    let region = open();
    let value = vec![b'v'; usize::try_from(heap_blocks::LARGE_BYTES).expect("fits") + 1];
    let cell = KeyValue::new(b"r", b"f", b"q", 1, CellType::Put, &value);
    region.mutate_wait(Mutation::new(MutationKind::Put, "r", vec![cell])).expect("written");
    region.flush().expect("flushed");
    let get_without_wait = || {
        let (scan, mut row) = (Scan::get("r"), CellBuffer::new());
        region.row_reader(Wait::Never).get(scan, &mut row, &mut ScannerContext::unlimited())
    };
    heap_blocks::set_limit(u64::MAX);
    get_without_wait().expect("there is memory");
    heap_blocks::set_limit(1);
    let others = heap_blocks::reserve(1).expect("the first is admitted");
    let holder = std::thread::spawn(move || {
        std::thread::sleep(WAIT);
        drop(others);
    });
    assert!(matches!(get_without_wait(), Err(TryError::WouldWait)));
    waits::take();
    let mut scanner = region.scanner(Scan::default()).expect("opens");
    let mut out = CellBuffer::new();
    scanner.next(&mut out, &mut ScannerContext::unlimited()).expect("read");
    assert_eq!(out.len(), 1);
    let waited = waits::take().expect("there are waits").of(Cause::BlockMemory);
    assert!(waited >= WAIT / 2, "{waited:?}");
    holder.join().expect("ends");
}
