//! A region over files in memory that can crash, fill up and fail, and start again from the
//! remaining files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_block_cache::{BlockCache, NoCache};
use evenkeel_common::clock::{Clock, ManualClock};
use evenkeel_common::{
    CellBuffer, CellRef, CellType, ColumnFamilyDescriptor, KeyValue, RegionInfo, Result, ServerName,
    TableDescriptor,
};
use evenkeel_fs::{FaultyFileSystem, FileStatus, FileSystem, LocalHost, MemoryFileSystem, SurvivingData};
use evenkeel_region::layout;
use evenkeel_region::memstore::{ChunkPool, InMemoryCompaction, InMemoryConfig};
use evenkeel_region::operations::{Mutation, MutationKind, Scan};
use evenkeel_region::region::nonce::NonceManager;
use evenkeel_region::region::{NoEvents, Region, RegionConfig, RegionEnv, ReplicaReplication, WalRoot};
use evenkeel_region::scanner::ScannerContext;
use evenkeel_region::store::{CompactionThroughputController, OpenFiles, StoreConfig, StoreEnv};
use evenkeel_wal::{NoListener, SplitOptions, StoreSeqIds, Wal, WalConfig, WalOptions, split_wal};

use crate::watched::Watch;

pub const ROOT: &str = "/hbase";
pub const NOW_MS: i64 = 1_000_000;

pub struct Cluster {
    pub memory: MemoryFileSystem,
    pub fs: FaultyFileSystem,
    /// The watch on the calls to `fs`.
    pub watch: Watch,
    pub clock: Arc<ManualClock>,
    pub wal_config: WalConfig,
    /// How fast compactions write.
    pub compaction_throughput: Arc<CompactionThroughputController>,
    /// The open store files, used from the next life on.
    pub open_files: Arc<OpenFiles>,
    pub table: TableDescriptor,
    /// The block cache, used from the next life on.
    pub cache: Arc<dyn BlockCache>,
    /// Where recovered edits are, if not below the root: `hbase.wal.dir`, used from the next life
    /// on.
    pub wal_root: Option<PathBuf>,
    /// Which edits are for secondary replicas, used from the next life on.
    pub replication: ReplicaReplication,
    in_memory: InMemoryCompaction,
    /// The regions of the table, in order.
    infos: Vec<RegionInfo>,
    life: i64,
    /// True if a crash has left logs with arbitrary ends.
    torn: bool,
    serving: Option<Serving>,
}

pub struct Serving {
    pub wal: Arc<Wal>,
    pub regions: Vec<Arc<Region>>,
    env: Arc<RegionEnv>,
}

impl Cluster {
    pub fn new(families: &[(&[u8], u32)]) -> Self {
        Self::with_wal(families, WalConfig::default())
    }

    /// A cluster of the rows from `start` to before `end`.
    pub fn of_rows(families: &[(&[u8], u32)], start: &'static [u8], end: &'static [u8]) -> Self {
        Self::with(families, WalConfig::default(), start, end)
    }

    pub fn with_wal(families: &[(&[u8], u32)], wal_config: WalConfig) -> Self {
        Self::with(families, wal_config, b"", b"")
    }

    fn with(
        families: &[(&[u8], u32)],
        wal_config: WalConfig,
        start: &'static [u8],
        end: &'static [u8],
    ) -> Self {
        let memory = MemoryFileSystem::new();
        let mut table = TableDescriptor::new("t".parse().expect("legal"));
        for (name, versions) in families {
            let family = ColumnFamilyDescriptor::new(name).expect("legal");
            table = table.with_family(family.with("VERSIONS", &versions.to_string()));
        }
        let info = RegionInfo::new(table.name().clone(), start.into(), end.into(), 1);
        let mut cluster = Self {
            fs: FaultyFileSystem::new(memory.clone()),
            memory,
            watch: Watch::default(),
            clock: ManualClock::at(NOW_MS),
            wal_config,
            compaction_throughput: Arc::default(),
            open_files: Arc::default(),
            table,
            cache: Arc::new(NoCache),
            wal_root: None,
            replication: ReplicaReplication::default(),
            in_memory: InMemoryCompaction::None,
            infos: vec![info],
            life: 0,
            torn: false,
            serving: None,
        };
        cluster.start();
        cluster
    }

    /// Enables in-memory flushes with a threshold that every active segment exceeds. The cluster
    /// must be empty.
    pub fn compacting(mut self, in_memory: InMemoryCompaction) -> Self {
        self.in_memory = in_memory;
        self.restart();
        self
    }

    /// Divides the rows into two regions at `row`. The cluster must be empty.
    pub fn split_at(mut self, row: &'static [u8]) -> Self {
        let of_rows = |start: &'static [u8], end: &'static [u8]| {
            RegionInfo::new(self.table.name().clone(), start.into(), end.into(), 1)
        };
        self.infos = vec![of_rows(b"", row), of_rows(row, b"")];
        self.restart();
        self
    }

    /// The first region.
    pub fn region(&self) -> &Arc<Region> {
        &self.regions()[0]
    }

    pub fn regions(&self) -> &[Arc<Region>] {
        &self.serving.as_ref().expect("started").regions
    }

    /// Opens a secondary replica of the first region.
    pub fn open_secondary(&self) -> Result<Arc<Region>> {
        let serving = self.serving.as_ref().expect("started");
        let table = Arc::new(self.table.clone());
        Region::open(Arc::clone(&serving.env), self.region().info().replica(1), table)
    }

    /// The region that a row is in.
    pub fn region_of(&self, row: &str) -> &Arc<Region> {
        let at = self.infos.iter().rposition(|info| info.start_key() <= row.as_bytes());
        &self.regions()[at.unwrap_or(0)]
    }

    pub fn wal(&self) -> &Arc<Wal> {
        &self.serving.as_ref().expect("started").wal
    }

    /// Sets attributes of a family. They have an effect from the next start on.
    pub fn alter_family(&mut self, family: &str, attributes: &[(&str, &str)]) {
        let described = self.table.family(family.as_bytes()).expect("there").clone();
        let altered = attributes.iter().fold(described, |family, (key, value)| family.with(key, value));
        self.table = self.table.clone().with_family(altered);
    }

    /// Adds these attributes to the table when it is next opened.
    pub fn alter(&mut self, attributes: &[(&str, &str)]) {
        let altered =
            attributes.iter().fold(self.table.clone(), |table, (key, value)| table.with(key, value));
        self.table = altered;
    }

    /// Splits the logs of earlier lives and opens the region.
    pub fn start(&mut self) {
        self.try_start().expect("starts");
    }

    /// As [`Cluster::start`], but returns an error, for tests with faults.
    pub fn try_start(&mut self) -> Result<()> {
        self.life += 1;
        self.clock.advance_ms(1);
        self.split_logs()?;
        let server = ServerName::new("h", 16020, self.life);
        let fs = self.watch.over(self.fs.clone());
        let (wal_dir, old_dir) = (root("WALs").join(server.to_string()), root("oldWALs"));
        fs.mkdirs(&wal_dir)?;
        fs.mkdirs(&old_dir)?;
        let wal = Wal::open(WalOptions {
            fs: Arc::clone(&fs),
            wal_dir,
            old_dir,
            prefix: evenkeel_wal::names::prefix(&server),
            suffix: String::new(),
            config: self.wal_config.clone(),
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            listener: Arc::new(NoListener),
        })?;
        let clock: Arc<dyn Clock> = Arc::clone(&self.clock) as _;
        let wal_root = self.wal_root.clone().map(|path| WalRoot { fs: Arc::clone(&fs), path });
        let in_memory = InMemoryConfig {
            compaction: self.in_memory,
            threshold_factor: f64::MIN_POSITIVE,
            ..InMemoryConfig::default()
        };
        let env = RegionEnv {
            stores: StoreEnv {
                compaction_throughput: Arc::clone(&self.compaction_throughput),
                metrics: Arc::default(),
                host: LocalHost::default(),
                open_files: Arc::clone(&self.open_files),
                mob: Arc::default(),
                archived_files: Arc::default(),
                fs,
                root: PathBuf::from(ROOT),
                cache: Arc::clone(&self.cache),
                clock: Arc::clone(&clock),
                chunks: ChunkPool::new(2),
                config: StoreConfig { in_memory, ..StoreConfig::default() },
            },
            operation_times: Arc::default(),
            wal: Arc::clone(&wal),
            wal_root,
            config: RegionConfig { replication: self.replication.clone(), ..RegionConfig::default() },
            server,
            nonces: Arc::new(NonceManager::new(clock, 1000)),
            events: Arc::new(NoEvents),
        };
        let env = Arc::new(env);
        let regions = self.open_regions(&env)?;
        self.serving = Some(Serving { wal, regions, env });
        Ok(())
    }

    fn open_regions(&self, env: &Arc<RegionEnv>) -> Result<Vec<Arc<Region>>> {
        let table = Arc::new(self.table.clone());
        let open = |info: &RegionInfo| Region::open(Arc::clone(env), info.clone(), Arc::clone(&table));
        self.infos.iter().map(open).collect()
    }

    /// Closes the regions and opens them again in the same life, with the current table descriptor.
    pub fn reopen(&mut self) {
        let Serving { wal, regions, env } = self.serving.take().expect("started");
        regions.iter().for_each(|region| region.close(false).expect("closed"));
        let regions = self.open_regions(&env).expect("opened");
        self.serving = Some(Serving { wal, regions, env });
    }

    /// Removes a family and its files, as a master does.
    pub fn delete_family(&mut self, family: &str) {
        assert!(self.table.remove_family(family.as_bytes()), "{family} is there");
        self.reopen();
        for info in &self.infos {
            let dir = layout::region_dir(Path::new(ROOT), info).join(family);
            assert!(self.fs.delete(&dir).expect("deleted"), "{family} has a directory");
        }
    }

    /// Adds a family.
    pub fn add_family(&mut self, family: &str, versions: u32) {
        let added = ColumnFamilyDescriptor::new(family.as_bytes()).expect("legal");
        self.table = self.table.clone().with_family(added.with("VERSIONS", &versions.to_string()));
        self.reopen();
    }

    /// The process or the machine dies, and the server starts again.
    pub fn crash(&mut self, keep: SurvivingData) {
        self.fs.clear();
        self.memory.crash(keep);
        self.serving = None;
        self.start();
    }

    /// As [`Cluster::crash`], but does not start the server again.
    pub fn die(&mut self, keep: SurvivingData) {
        self.torn |= matches!(keep, SurvivingData::Torn(_));
        self.end_threads();
        self.fs.clear();
        self.memory.crash(keep);
    }

    /// Stops threads that must not continue in the next life: the log's owner waits for its
    /// threads, and here the owner is not one of them.
    fn end_threads(&mut self) {
        let Some(Serving { wal, regions, env }) = self.serving.take() else { return };
        drop((regions, env));
        while Arc::strong_count(&wal) > 1 {
            std::thread::yield_now();
        }
    }

    /// Closes the region and opens it again.
    pub fn restart(&mut self) {
        let serving = self.serving.take().expect("started");
        serving.regions.iter().for_each(|region| region.close(false).expect("closed"));
        serving.wal.close().expect("closed");
        self.start();
    }

    /// Flushes, and starts a new log file, so that no log contains flushed edits.
    pub fn flush_and_roll(&self) {
        self.region().flush().expect("flushed");
        self.wal().roll().expect("rolled");
        self.wal().wait_for_archiver();
        assert!(self.wal().closed_paths().is_empty());
    }

    fn split_logs(&self) -> Result<()> {
        let fs = &*self.watch.over(self.fs.clone());
        for server in self.servers_with_logs()? {
            for file in fs.list(&server.path)? {
                let outcome = split_wal(SplitOptions {
                    fs,
                    wal: &file.path,
                    worker: "test",
                    last_flushed: &mut |_| Ok(StoreSeqIds::default()),
                    region_dir: &mut |region, table| {
                        let root = self.wal_root.as_deref().unwrap_or(Path::new(ROOT));
                        Ok(Some(layout::table_dir(root, table).join(&*String::from_utf8_lossy(region))))
                    },
                    on_entry: &mut |_| (),
                    should_continue: &mut || true,
                    buffer_bytes_max: 1 << 20,
                })?;
                assert!(outcome.corrupt.is_none() || self.torn, "{:?}", outcome.corrupt);
                fs.rename(&file.path, &root("oldWALs").join(file.name()))?;
            }
            fs.delete(&server.path)?;
        }
        Ok(())
    }

    fn servers_with_logs(&self) -> Result<Vec<FileStatus>> {
        let dir = root("WALs");
        Ok(if self.fs.exists(&dir)? { self.fs.list(&dir)? } else { Vec::new() })
    }

    pub fn put(&self, row: &str, family: &str, qualifier: &str, value: &str) -> Result<()> {
        self.region().mutate_wait(put(row, &[(family, qualifier, value)])).map(drop)
    }

    /// Returns the region's files whose paths contain `part`.
    pub fn files(&self, part: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut dirs = vec![PathBuf::from(ROOT)];
        while let Some(dir) = dirs.pop() {
            for entry in self.memory.list(&dir).expect("listed") {
                let path = entry.path.display().to_string();
                if entry.is_dir {
                    dirs.push(entry.path);
                } else if path.contains(part) {
                    found.push(path);
                }
            }
        }
        found.sort();
        found
    }

    pub fn row(&self, row: &str) -> Vec<String> {
        texts(&self.region_of(row).get(Scan::get(row.as_bytes().to_vec())).expect("read"))
    }

    pub fn all(&self) -> Vec<String> {
        scan(self.region(), Scan::default())
    }
}

pub const IN_MEMORY_COMPACTIONS: [InMemoryCompaction; 4] = [
    InMemoryCompaction::None,
    InMemoryCompaction::Basic,
    InMemoryCompaction::Eager,
    InMemoryCompaction::Adaptive,
];

pub fn root(below: &str) -> PathBuf {
    PathBuf::from(ROOT).join(below)
}

pub fn put(row: &str, cells: &[(&str, &str, &str)]) -> Mutation {
    let cell = |(family, qualifier, value): &(&str, &str, &str)| {
        let (f, q, v) = (family.as_bytes(), qualifier.as_bytes(), value.as_bytes());
        KeyValue::put(row.as_bytes(), f, q, evenkeel_common::cell::LATEST_TIMESTAMP, v)
    };
    Mutation::new(MutationKind::Put, row.as_bytes().to_vec(), cells.iter().map(cell).collect())
}

pub fn increment(row: &str, family: &str, qualifier: &str, by: i64) -> Mutation {
    let mut mutation = put(row, &[]);
    mutation.kind = MutationKind::Increment;
    let (f, q) = (family.as_bytes(), qualifier.as_bytes());
    let latest = evenkeel_common::cell::LATEST_TIMESTAMP;
    mutation.cells = vec![KeyValue::put(row.as_bytes(), f, q, latest, &by.to_be_bytes())];
    mutation
}

pub fn scan(region: &Arc<Region>, scan: Scan) -> Vec<String> {
    let mut scanner = region.scanner(scan).expect("opens");
    let (mut row, mut all) = (CellBuffer::new(), Vec::new());
    loop {
        row.clear();
        let state = scanner.next(&mut row, &mut ScannerContext::unlimited()).expect("read");
        all.extend(texts(&row));
        if !state.has_more() {
            return all;
        }
    }
}

pub fn texts(cells: &CellBuffer) -> Vec<String> {
    cells.iter().map(|cell| text(&cell)).collect()
}

/// `row/family:qualifier/timestamp=value`, with the type of a marker instead of the value.
pub fn text(cell: &CellRef<'_>) -> String {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let value = match cell.cell_type() {
        Some(CellType::Put) => lossy(cell.value()),
        other => format!("{other:?}"),
    };
    let (row, family, qualifier) = (lossy(cell.row()), lossy(cell.family()), lossy(cell.qualifier()));
    format!("{row}/{family}:{qualifier}/{}={value}", cell.timestamp())
}

pub fn values(cells: &[String]) -> Vec<&str> {
    cells.iter().map(|cell| cell.split_once('=').expect("a value").1).collect()
}
