//! A store over an in-memory file system, for tests.

use std::path::PathBuf;
use std::sync::Arc;

use evenkeel_block_cache::NoCache;
use evenkeel_common::clock::ManualClock;
use evenkeel_common::{
    CellBuffer, CellComparator, CellType, ColumnFamilyDescriptor, KeyValue, RegionInfo, Result, TryError,
};
use evenkeel_fs::{FileSystem, LocalHost, MemoryFileSystem};

use super::{Store, StoreConfig, StoreEnv};
use crate::memstore::ChunkPool;
use crate::operations::Scan;
use crate::region::RegionScanner;
use crate::scanner::{NextState, ScannerContext};

/// The current time in tests.
pub(crate) const NOW_MS: i64 = 1_000_000;

pub(crate) fn env() -> (StoreEnv, Arc<ManualClock>) {
    let clock = ManualClock::at(NOW_MS);
    let env = StoreEnv {
        compaction_throughput: std::sync::Arc::default(),
        metrics: Arc::default(),
        host: LocalHost::default(),
        open_files: Arc::default(),
        mob: Arc::default(),
        archived_files: Arc::default(),
        fs: Arc::new(MemoryFileSystem::new()) as Arc<dyn FileSystem>,
        root: PathBuf::from("/hbase"),
        cache: Arc::new(NoCache),
        clock: Arc::clone(&clock) as _,
        chunks: ChunkPool::new(1),
        config: StoreConfig::default(),
    };
    (env, clock)
}

pub(crate) fn region() -> RegionInfo {
    RegionInfo::new("t".parse().expect("legal"), bytes::Bytes::new(), bytes::Bytes::new(), 1)
}

pub(crate) fn family(name: &[u8], attributes: &[(&str, &str)]) -> ColumnFamilyDescriptor {
    let family = ColumnFamilyDescriptor::new(name).expect("legal");
    attributes.iter().fold(family, |family, (key, value)| family.with(key, value))
}

/// Engines, with settings that make the small stores of tests use them.
pub(crate) const ENGINES: [&[(&str, &str)]; 4] = [
    &[],
    &[
        ("hbase.hstore.engine.class", "org.apache.hadoop.hbase.regionserver.StripeStoreEngine"),
        ("hbase.store.stripe.initialStripeCount", "2"),
        ("hbase.store.stripe.compaction.minFilesL0", "2"),
        ("hbase.store.stripe.compaction.minFiles", "2"),
        ("hbase.store.stripe.compaction.maxFiles", "2"),
        ("hbase.store.stripe.sizeToSplit", "14000"),
    ],
    &[
        ("hbase.hstore.engine.class", "org.apache.hadoop.hbase.regionserver.DateTieredStoreEngine"),
        ("hbase.hstore.compaction.date.tiered.base.window.millis", "2000"),
        ("hbase.hstore.compaction.date.tiered.windows.per.tier", "2"),
        ("hbase.hstore.compaction.date.tiered.incoming.window.min", "2"),
        ("hbase.hstore.compaction.min", "2"),
    ],
    &[
        ("hbase.hstore.engine.class", "org.apache.hadoop.hbase.regionserver.DateTieredStoreEngine"),
        ("hbase.hstore.compaction.date.tiered.base.window.millis", "1000"),
        ("hbase.hstore.compaction.date.tiered.single.output.for.minor.compaction", "false"),
        ("hbase.hstore.compaction.min", "2"),
    ],
];

/// A store and the last sequence id assigned.
pub(crate) struct TestStore {
    pub env: StoreEnv,
    pub clock: Arc<ManualClock>,
    pub store: Arc<Store>,
    pub seq_id: u64,
}

impl TestStore {
    pub(crate) fn new(attributes: &[(&str, &str)]) -> Self {
        let (env, clock) = env();
        let store = Store::open(&env, family(b"f", attributes), &region()).expect("opens");
        Self { env, clock, store, seq_id: 0 }
    }

    /// Adds a cell with the next sequence id.
    pub(crate) fn add(
        &mut self,
        row: &str,
        qualifier: &str,
        timestamp: i64,
        kind: CellType,
        value: &str,
    ) -> u64 {
        let cell =
            KeyValue::new(row.as_bytes(), b"f", qualifier.as_bytes(), timestamp, kind, value.as_bytes());
        self.add_cell(cell)
    }

    pub(crate) fn add_cell(&mut self, mut cell: KeyValue) -> u64 {
        self.seq_id += 1;
        cell.set_seq_id(self.seq_id);
        self.store.add(&cell.as_cell());
        self.seq_id
    }

    pub(crate) fn flush(&mut self, smallest_read_point: u64) {
        self.seq_id += 1;
        if self.store.start_flush() {
            let files = self.store.flush_snapshot(self.seq_id, smallest_read_point, None).expect("written");
            self.store.commit_flush(&files).expect("committed");
        }
    }

    /// Returns true if cells may have been dropped.
    pub(crate) fn flush_in_memory(&self, smallest_read_point: u64) -> bool {
        self.store.push_active();
        let change = self.store.plan_in_memory(smallest_read_point).expect("in memory");
        change.is_some_and(|change| {
            let drops = change.drops_cells();
            assert!(self.store.swap_in_memory(change), "nobody else changes it");
            drops
        })
    }

    /// Returns the inputs, and whether markers were dropped.
    pub(crate) fn compact(&self, major: bool, smallest_read_point: u64) -> Option<(Vec<String>, bool)> {
        let request = self.store.select_compaction(major)?;
        let drops_deletes = request.drops_deletes();
        let result = self.store.compact(&request, smallest_read_point).expect("compacted");
        self.store.commit_compaction(request, &result).expect("committed");
        Some((result.inputs, drops_deletes))
    }

    pub(crate) fn reopen(&mut self) {
        self.store.close(true).expect("closed");
        let family = self.store.family().clone();
        self.store = Store::open(&self.env, family, &region()).expect("opens");
    }

    pub(crate) fn scanner(&self, mut scan: Scan, read_point: u64) -> RegionScanner {
        let now_ms = self.env.clock.now_ms();
        RegionScanner::new(
            &[self.store.view()].into(),
            &mut scan,
            read_point,
            CellComparator::Default,
            now_ms,
        )
        .expect("opens")
    }

    pub(crate) fn scan(&self, scan: Scan) -> Vec<String> {
        drain(&mut self.scanner(scan, u64::MAX - 1)).expect("scanned").concat()
    }
}

/// Reads all results: the cells of each as text.
pub(crate) fn drain(scanner: &mut RegionScanner) -> Result<Vec<Vec<String>>> {
    drain_with(scanner, ScannerContext::unlimited, |_| ())
}

/// As [`drain`], with these limits for each call. Calls a closure with the scanner before each.
pub(crate) fn drain_with(
    scanner: &mut RegionScanner,
    limits: impl Fn() -> ScannerContext,
    mut act: impl FnMut(&mut RegionScanner),
) -> Result<Vec<Vec<String>>> {
    let mut results = Vec::new();
    for _ in 0..100_000 {
        act(scanner);
        let mut out = CellBuffer::new();
        let state = scanner.next(&mut out, &mut limits()).map_err(TryError::into_failure)?;
        if !out.is_empty() {
            results.push(out.iter().map(|cell| text(&cell)).collect());
        }
        if state == NextState::NoMoreRows {
            return Ok(results);
        }
    }
    panic!("a scan that never ends")
}

/// `row/qualifier/timestamp/value`, or the type of a marker instead of the value.
pub(crate) fn text(cell: &evenkeel_common::CellRef<'_>) -> String {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let last = match cell.cell_type() {
        Some(CellType::Put) => lossy(cell.value()),
        other => format!("{:?}", other.expect("known")),
    };
    format!("{}/{}/{}/{last}", lossy(cell.row()), lossy(cell.qualifier()), cell.timestamp())
}
