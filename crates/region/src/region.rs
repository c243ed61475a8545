//! A region: writes become durable and visible here, and rows are read from here.
//!
//! **One Get** ([`Region::get`]): check the row, take a consistent view (read point, MemStore
//! segments, store files), let a [`RegionScanner`] merge it into a [`CellBuffer`]. No lock is
//! taken.
//!
//! **One Put** ([`Region::mutate`], in `write.rs`): row lock -> cells get their timestamps ->
//! *updates lock* shared -> write number and WAL append in one step -> cells into the MemStore's
//! arena -> locks released -> the WAL's group commit calls back -> write number complete -> reply.
//! No thread waits for the disk.
//!
//! **One flush** (`flush.rs`): updates lock exclusive for a pointer swap -> wait until everything
//! in the snapshot is in the WAL -> write files to the temporary directory -> rename -> list them,
//! if the store's files are tracked by a list -> swap the file list.
//!
//! **Lock order**: row locks, the bulk load lock, the flush lock, the updates lock, the MVCC lock
//! of write numbers. No I/O happens under the last two. A secondary replica: the lock of its
//! refreshes (that of compactions), that of its replay, the updates lock.
//!
//! **One in-memory flush** (`flush/in_memory.rs`): a pointer swap without a lock -> wait until the
//! swapped segment is durable -> make it flat -> swap. It never blocks writers or readers.
//!
//! **One bulk load** (`bulk_load.rs`): check the files -> flush -> write a manifest of all moves,
//! which commits the load even across a crash -> rename -> swap the file lists of all families at
//! once.
//!
//! **The row cache** (`row_cache.rs`) answers Gets of tables with `ROW_CACHE_ENABLED` without a
//! scan. Writes update it before they become visible.
//!
//! **A secondary replica** (`secondary.rs`) reads the files of the default replica, and changes
//! nothing on the file system. Its MemStore has the edits that it replays, if the default replica
//! hands it any (`replica_stream.rs`).
//!
//! **Views without registration.** A flush or compaction drops versions that no reader at or above
//! the current read point needs. A reader that takes its read point before the file list is swapped
//! and its file list afterwards would miss them. So every swap makes the *epoch* odd before and
//! even after (a seqlock), and a reader that sees the epoch change takes its view again.

#![forbid(unsafe_code)]

mod abort_on_panic;
mod broken_files;
pub mod bulk_load;
mod compaction;
mod flush;
mod hot_blocks;
mod load;
mod metrics;
mod mob_files;
pub mod mvcc;
pub mod nonce;
mod open;
mod read;
mod replica_stream;
mod row_cache;
pub mod row_lock;
#[cfg(test)]
mod rule_tests;
mod secondary;
pub mod split_policy;
#[cfg(test)]
mod testing;
mod wait_budget;
mod wal_markers;
mod write;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use evenkeel_common::config::values;
use evenkeel_common::length;
use evenkeel_common::{
    CellComparator, ColumnFamilyDescriptor, ErrorKind, HBaseError, RegionInfo, Result, TableDescriptor,
};
use evenkeel_fs::FileSystem;
pub use evenkeel_hfile::ToldBlock;
use evenkeel_wal::{TableAppends, Wal};
use parking_lot::{Mutex, RwLock};

pub use self::broken_files::BrokenFile;
use self::flush::FlushLock;
pub use self::flush::FlushOutcome;
pub use self::flush::policy::FlushPolicyConfig;
use self::flush::policy::FlushSelection;
pub use self::load::{FileAges, RegionLoad};
pub use self::metrics::{
    Operation, OperationTimes, RegionCount, RegionCounters, RegionCounts, TableOperationTimes,
};
pub use self::mob_files::MobCleaner;
use self::mvcc::Mvcc;
use self::nonce::NonceManager;
pub use self::open::{copy_seq_id_file, has_recovered_edits, write_region_info, write_seq_id_file};
pub use self::read::{RegionScanner, RowReader};
pub use self::replica_stream::{
    CATALOG_REPLICATION_ENABLED, FileChange, FileChanges, QUEUED_BYTES_MAX, REPLICATION_ENABLED,
    ReplicaEvent, ReplicaReplication, ReplicaStream, ReplicaStreamReader, SENDER_BYTES_MAX,
};
use self::row_cache::RowCache;
use self::row_lock::RowLocks;
use self::secondary::ReplayState;
use self::split_policy::SplitConfig;
pub use self::write::{
    BatchCompletion, LongWaitExecutor, RowLockWaiter, TryWriteResult, prefetch_write_positions,
};
use crate::memstore::MemStoreSize;
use crate::metrics::{StoreMetrics, TableMetrics};
pub use crate::store::WriteProgressReport;
use crate::store::{Store, StoreConfig, StoreEnv};

/// Limits of a region. Defaults and keys are HBase's.
#[derive(Clone, Debug)]
pub struct RegionConfig {
    /// `hbase.hregion.memstore.flush.size`: MemStore bytes at which a flush is requested.
    pub flush_bytes: u64,
    /// `hbase.hregion.memstore.block.multiplier`: writes are refused at this multiple of
    /// `flush_bytes`.
    pub block_multiplier: u64,
    /// `hbase.rowlock.wait.duration`.
    pub row_lock_wait: Duration,
    /// `hbase.server.keyvalue.maxsize`: the maximum bytes of a cell of a mutation; 0 for no limit.
    /// A table may have its own value.
    pub cell_bytes_max: usize,
    /// `hbase.hregion.keyvalue.timestamp.slop.millisecs`: how far in the future timestamps of Puts
    /// may be; `i64::MAX` for no limit. A table may have its own value.
    pub timestamp_slop_ms: i64,
    /// When regions are split without a request.
    pub split: SplitConfig,
    /// Which stores a flush in the background writes.
    pub flush_policy: FlushPolicyConfig,
    /// `hbase.hregion.preclose.flush.size`: a closing region with more unflushed bytes flushes
    /// before it refuses writes. A table may have its own value.
    pub preclose_flush_bytes: i64,
    /// Which edits are for secondary replicas.
    pub replication: ReplicaReplication,
    /// Limits changed while the server runs. Clones share it.
    pub changed: Arc<DynamicConfig>,
}

/// Limits of regions and stores changed while the server runs. They override the initial ones.
#[derive(Debug, Default)]
pub struct DynamicConfig {
    /// Overrides [`RegionConfig::flush_bytes`]; 0 if unchanged.
    flush_bytes: AtomicU64,
    /// Overrides [`RegionConfig::block_multiplier`]; 0 if unchanged.
    block_multiplier: AtomicU64,
    /// Overrides [`StoreEnv::config`] for the selection of compactions.
    stores: ArcSwapOption<StoreConfig>,
}

impl DynamicConfig {
    /// Changes the limits of all regions that share this. [`Region::apply_changed_config`] applies
    /// `stores` to the stores of an open region.
    pub fn set(&self, region: &RegionConfig, stores: StoreConfig) {
        self.flush_bytes.store(region.flush_bytes, Ordering::Relaxed);
        self.block_multiplier.store(region.block_multiplier, Ordering::Relaxed);
        self.stores.store(Some(Arc::new(stores)));
    }

    /// Returns the changed configuration by which stores select compactions, if there is one.
    fn stores(&self) -> Option<Arc<StoreConfig>> {
        self.stores.load_full()
    }
}

/// The key of [`RegionConfig::preclose_flush_bytes`].
pub const PRECLOSE_FLUSH: &str = "hbase.hregion.preclose.flush.size";
/// The key of [`RegionConfig::cell_bytes_max`] (`HRegion.HBASE_MAX_CELL_SIZE_KEY`).
pub const CELL_BYTES_MAX: &str = "hbase.server.keyvalue.maxsize";
/// The key of [`RegionConfig::timestamp_slop_ms`].
pub const TIMESTAMP_SLOP: &str = "hbase.hregion.keyvalue.timestamp.slop.millisecs";

impl RegionConfig {
    /// Returns the limit of a table: its own value if it has a valid one, or else the server's.
    fn timestamp_slop_ms_of(&self, table: &TableDescriptor) -> i64 {
        let of_table = table.text(TIMESTAMP_SLOP).and_then(|text| values::integer(text.trim()));
        of_table.unwrap_or(self.timestamp_slop_ms)
    }

    /// Returns the limit of a table, as [`RegionConfig::timestamp_slop_ms_of`] does.
    fn cell_bytes_max_of(&self, table: &TableDescriptor) -> usize {
        let of_table = table.text(CELL_BYTES_MAX).and_then(|text| values::integer::<i64>(text.trim()));
        of_table.map_or(self.cell_bytes_max, |bytes| length::index(bytes.max(0).unsigned_abs()))
    }

    /// Returns the limit of a table, as [`RegionConfig::timestamp_slop_ms_of`] does.
    fn preclose_flush_bytes_of(&self, table: &TableDescriptor) -> u64 {
        let of_table = table.text(PRECLOSE_FLUSH).and_then(|text| values::integer(text.trim()));
        u64::try_from(of_table.unwrap_or(self.preclose_flush_bytes)).unwrap_or(0)
    }

    /// Returns the limit in force: the changed one, or else [`RegionConfig::flush_bytes`].
    fn current_flush_bytes(&self) -> u64 {
        match self.changed.flush_bytes.load(Ordering::Relaxed) {
            0 => self.flush_bytes,
            changed => changed,
        }
    }

    /// Returns the limit in force: the changed one, or else [`RegionConfig::block_multiplier`].
    fn current_block_multiplier(&self) -> u64 {
        match self.changed.block_multiplier.load(Ordering::Relaxed) {
            0 => self.block_multiplier,
            changed => changed,
        }
    }
}

impl Default for RegionConfig {
    fn default() -> Self {
        Self {
            flush_bytes: 128 << 20,
            block_multiplier: 4,
            row_lock_wait: Duration::from_secs(30),
            cell_bytes_max: 10 << 20,
            timestamp_slop_ms: i64::MAX,
            split: SplitConfig::default(),
            flush_policy: FlushPolicyConfig::default(),
            preclose_flush_bytes: 5 << 20,
            replication: ReplicaReplication::default(),
            changed: Arc::default(),
        }
    }
}

/// Events that a region reports to its server. Called on the write path: an implementation must
/// only record the event.
pub trait RegionEvents: Send + Sync {
    /// The MemStore is large enough to flush.
    fn flush_wanted(&self, region: &Arc<Region>);

    /// A part of the MemStore is large enough for an in-memory flush ([`Region::flush_in_memory`]).
    /// Reported once until that flush begins. A server that ignores it does no in-memory flushes.
    fn in_memory_flush_wanted(&self, _region: &Arc<Region>) {}

    /// The region's [`ReplicaStream`] has events. A server that ignores it replicates no edits.
    fn replica_events(&self, _region: &Arc<Region>) {}

    /// An Increment or Append has added `bytes` to the MemStore beyond those of its mutation: the
    /// old value and tags. Called before the write is durable.
    fn write_grew(&self, _bytes: u64) {}

    /// A panic left a write or a flush of the region half done, so later ones would wait forever.
    /// The server must abort; every acknowledged write is in the log.
    fn abort_server(&self, _region: &Region, _reason: &str) {}
}

/// Ignores every event.
#[derive(Debug, Default, Clone, Copy)]
pub struct NoEvents;

impl RegionEvents for NoEvents {
    fn flush_wanted(&self, _: &Arc<Region>) {}
}

/// Where logs are, and what is recovered from them: `hbase.wal.dir`.
#[derive(Clone, Debug)]
pub struct WalRoot {
    /// Its file system.
    pub fs: Arc<dyn FileSystem>,
    /// Its path there.
    pub path: PathBuf,
}

/// Shared by the regions of one server.
pub struct RegionEnv {
    /// File system, root directory, block cache and clock, which stores need.
    pub stores: StoreEnv,
    /// The log of user regions, or the log of hbase:meta for that region.
    pub wal: Arc<Wal>,
    /// Where logs are; `None` if they are below the root directory of the stores.
    pub wal_root: Option<WalRoot>,
    /// Limits.
    pub config: RegionConfig,
    /// This server's name, for log markers and messages.
    pub server: evenkeel_common::ServerName,
    /// Nonces of the whole server.
    pub nonces: Arc<NonceManager>,
    /// Receives the regions' events.
    pub events: Arc<dyn RegionEvents>,
    /// Latencies of the operations on each table.
    pub operation_times: Arc<TableOperationTimes>,
}

impl RegionEnv {
    /// Where logs are, and recovered edits.
    pub fn wal_root(&self) -> (&Arc<dyn FileSystem>, &Path) {
        match &self.wal_root {
            Some(root) => (&root.fs, &root.path),
            None => (&self.stores.fs, &self.stores.root),
        }
    }

    /// Every directory below which recovered edits may be: [`RegionEnv::wal_root`] first, then the
    /// root directory of the stores, which has those of logs that were written before
    /// `hbase.wal.dir` was set (`HRegion.replayRecoveredEditsIfAny`).
    pub fn edit_roots(&self) -> impl Iterator<Item = (&Arc<dyn FileSystem>, &Path)> {
        let beside = self.wal_root.as_ref().map(|root| (&root.fs, &*root.path));
        beside.into_iter().chain([(&self.stores.fs, &*self.stores.root)])
    }
}

/// Whether a region accepts requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Closed,
}

/// A region that is being served.
pub struct Region {
    env: Arc<RegionEnv>,
    info: RegionInfo,
    /// The encoded name in the form that the log needs.
    encoded_name: Bytes,
    table: Arc<TableDescriptor>,
    comparator: CellComparator,
    /// True if the table is read-only, or the region is a secondary replica.
    is_read_only: bool,
    /// True while a secondary replica's view of the files is too old to read.
    reads_disabled: AtomicBool,
    /// What a secondary replica has replayed.
    replayed: Mutex<ReplayState>,
    /// What a default replica hands to the others, if it does.
    replica_stream: Option<Arc<ReplicaStream>>,
    /// In the order of their families' names.
    stores: Vec<Arc<Store>>,
    mvcc: Arc<Mvcc>,
    row_locks: RowLocks,
    /// Cached answers of Gets, if the table enables the row cache.
    row_cache: Option<Arc<RowCache>>,
    /// Held shared by writes while they take a number and fill the MemStore; held exclusively by a
    /// flush's swap and by a close.
    updates: RwLock<Phase>,
    in_memory: flush::in_memory::InMemoryFlushSchedule,
    /// Serialises flushes and commits of bulk loads.
    flushing: FlushLock,
    /// Serialises compactions.
    compacting: Mutex<()>,
    /// Serialises bulk loads.
    bulk_loading: Mutex<()>,
    /// The unfinished part of the last bulk load, if it failed midway. Changed under the flush
    /// lock.
    unfinished: Mutex<bulk_load::UnfinishedLoad>,
    /// Odd while the lists that readers take are being swapped.
    epoch: AtomicU64,
    /// Held while the epoch is odd.
    swapping: Mutex<()>,
    open_seq_num: AtomicU64,
    max_flushed_seq_id: AtomicU64,
    /// The sequence id of the last flush, perhaps of some stores only.
    last_flush_seq_id: AtomicU64,
    /// The first flush is requested this many bytes below the flush size; 0 after that flush.
    first_flush_jitter_bytes: AtomicU64,
    flush_selection: FlushSelection,
    counts: Arc<RegionCounters>,
    /// The rejected writes over time.
    blocked_writes: split_policy::BlockedWrites,
    /// The maximum bytes of a cell of a mutation; 0 for no limit.
    cell_bytes_max: usize,
    /// How far in the future timestamps of Puts may be; `i64::MAX` for no limit.
    timestamp_slop_ms: i64,
    /// The number of mutations that are in no log, and their bytes, when the last flush began.
    unlogged_flushed: [AtomicU64; 2],
    /// Counts of the table's flushes and compactions.
    metrics: Arc<TableMetrics>,
    /// The log's counts of the table.
    appends: Arc<TableAppends>,
    operation_times: Arc<OperationTimes>,
}

impl Region {
    /// The region's name and range.
    pub fn info(&self) -> &RegionInfo {
        &self.info
    }

    /// Returns the latencies of operations on the table, over all its regions on this server.
    pub fn operation_times(&self) -> &Arc<OperationTimes> {
        &self.operation_times
    }

    /// The table's descriptor.
    pub fn table(&self) -> &Arc<TableDescriptor> {
        &self.table
    }

    /// The maximum bytes of a cell of a mutation; 0 for no limit.
    pub fn cell_bytes_max(&self) -> usize {
        self.cell_bytes_max
    }

    /// The order of its cells.
    pub fn comparator(&self) -> CellComparator {
        self.comparator
    }

    /// The stores, ordered by family.
    pub fn stores(&self) -> &[Arc<Store>] {
        &self.stores
    }

    /// Bytes of its store files that are neither references nor links to files of other regions.
    pub fn own_file_bytes(&self) -> u64 {
        self.stores.iter().map(|store| store.own_file_bytes()).sum()
    }

    /// The sequence id with which the region opened.
    pub fn open_seq_num(&self) -> u64 {
        self.open_seq_num.load(Ordering::Relaxed)
    }

    /// Every edit up to here is in store files.
    pub fn max_flushed_seq_id(&self) -> u64 {
        self.max_flushed_seq_id.load(Ordering::Relaxed)
    }

    /// The sequence id up to which readers currently see edits.
    pub fn read_point(&self) -> u64 {
        self.mvcc.read_point()
    }

    /// The counts of requests.
    pub fn counts(&self) -> &Arc<RegionCounters> {
        &self.counts
    }

    /// The counts of flushes, compactions and splits, shared by the regions of a server.
    pub fn store_metrics(&self) -> &Arc<StoreMetrics> {
        &self.env.stores.metrics
    }

    /// Bytes of cells in the MemStore, snapshots included.
    pub fn memstore_bytes(&self) -> u64 {
        self.memstore_size().data_bytes
    }

    /// Sizes of the MemStore, snapshots included. Limits apply to `heap_bytes`, as HBase's apply to
    /// the sum of heap and off-heap size; reports show `data_bytes`.
    pub fn memstore_size(&self) -> MemStoreSize {
        self.stores.iter().map(|s| s.memstore_size()).sum()
    }

    /// Bytes of the segments that a flush has frozen, in the unit of the limits.
    pub fn snapshot_bytes(&self) -> u64 {
        self.stores.iter().map(|s| s.snapshot_size().heap_bytes).sum()
    }

    /// Returns the bytes of the MemStore's chunks, partly filled ones included, and how many of
    /// them belong to segments frozen by a flush. It walks every chunk, so call it only for
    /// periodic measurement.
    pub fn chunk_bytes(&self) -> (u64, u64) {
        let of_stores = self.stores.iter().map(|store| store.chunk_bytes());
        of_stores.fold((0, 0), |(all, frozen), (more, more_frozen)| (all + more, frozen + more_frozen))
    }

    /// The file system that holds the region's files.
    pub fn file_system(&self) -> &Arc<dyn evenkeel_fs::FileSystem> {
        &self.env.stores.fs
    }

    /// Returns true if the MemStore is large enough to flush.
    ///
    /// The first flush after an open is requested up to a quarter earlier, by a hash of the
    /// region's name. Otherwise regions that are written evenly, such as those of a new table,
    /// would all reach the limit at the same moment again and again.
    pub fn needs_flush(&self) -> bool {
        self.memstore_size().heap_bytes
            >= self.flush_bytes().saturating_sub(self.first_flush_jitter_bytes.load(Ordering::Relaxed))
    }

    /// Returns how close the region is to a limit on writes: 0 is far from any limit, 1 is at one.
    /// Unflushed bytes count from half of the size at which writes are refused; the files of a
    /// store count from `hbase.hstore.blockingStoreFiles` to twice as many.
    pub fn write_pressure(&self) -> f64 {
        if !self.info.is_primary() {
            return 0.0;
        }
        let of_files = self.stores.iter().map(|store| store.blocking_pressure()).fold(0.0, f64::max);
        self.memory_pressure().max(of_files)
    }

    /// The part of [`Region::write_pressure`] that a flush relieves: the unflushed bytes.
    pub fn memory_pressure(&self) -> f64 {
        let limit = self.flush_bytes().saturating_mul(self.env.config.current_block_multiplier());
        let over = self.memstore_size().heap_bytes.saturating_sub(limit / 2);
        over as f64 / (limit / 2).max(1) as f64
    }

    /// Returns the time of the oldest write that is only in memory and in no running flush, in
    /// milliseconds since 1970; `None` if there is none.
    pub fn oldest_edit_ms(&self) -> Option<i64> {
        self.stores.iter().filter_map(|store| store.oldest_edit_ms()).min()
    }

    /// Returns the number of writes since the last flush, or since the open if there was none; 0 if
    /// the MemStore is empty. It counts sequence ids, some of which belong to markers in the log.
    pub fn changes_since_flush(&self) -> u64 {
        let has_edits = self.stores.iter().any(|store| store.memstore_size().cells > 0);
        let changes = self.mvcc.read_point().saturating_sub(self.max_flushed_seq_id());
        if has_edits { changes } else { 0 }
    }

    /// Returns true if a flush is running.
    pub fn is_flushing(&self) -> bool {
        self.flushing.is_locked()
    }

    /// Returns true if a caller waits for the end of a flush.
    pub fn is_flush_wanted(&self) -> bool {
        self.flushing.is_awaited()
    }

    /// Applies the changed configuration, if there is one, to how the stores select compactions.
    pub fn apply_changed_config(&self) {
        if let Some(changed) = self.env.config.changed.stores() {
            let of_table = changed.for_table(&self.table);
            self.stores.iter().for_each(|store| store.change_compaction_config(&of_table));
        }
    }

    fn flush_bytes(&self) -> u64 {
        self.table.memstore_flush_bytes().unwrap_or_else(|| self.env.config.current_flush_bytes())
    }

    fn store_of(&self, family: &[u8]) -> Option<&Arc<Store>> {
        let at = self.stores.binary_search_by(|s| s.family().name().cmp(family)).ok()?;
        self.stores.get(at)
    }

    fn check_family(&self, family: &[u8]) -> Result<&ColumnFamilyDescriptor> {
        self.table.family(family).ok_or_else(|| {
            let message = format!(
                "Column family {} does not exist in region {} in table '{}'",
                String::from_utf8_lossy(family),
                self.info.name_text(),
                self.table.name()
            );
            HBaseError::new(ErrorKind::NoSuchColumnFamily, message)
        })
    }

    fn check_row(&self, row: &[u8], operation: &str) -> Result<()> {
        if self.info.contains_row(row) {
            return Ok(());
        }
        let message = format!(
            "Requested row out of range for {operation} on HRegion {}, startKey='{}', getEndKey()='{}', row='{}'",
            self.info.name_text(),
            self.info.start_key().escape_ascii(),
            self.info.end_key().escape_ascii(),
            row.escape_ascii()
        );
        Err(HBaseError::new(ErrorKind::WrongRegion, message))
    }

    fn not_serving(&self) -> HBaseError {
        HBaseError::not_serving(&self.info.name_text(), &self.env.server.to_string())
    }

    /// Invalidates every cached row, because reads may change without a write.
    fn invalidate_row_cache(&self) {
        if let Some(rows) = &self.row_cache {
            rows.invalidate_all();
        }
    }

    /// Evicts every cached row and returns how many there were.
    pub fn evict_rows(&self) -> usize {
        self.row_cache.as_ref().map_or(0, |rows| rows.evict_all())
    }

    /// Runs `swap` with the epoch odd, so that readers that overlap it take their view again.
    fn with_new_epoch<T>(&self, swap: impl FnOnce() -> T) -> T {
        self.with_new_epoch_then(swap, |_| ())
    }

    /// As [`Region::with_new_epoch`]. Then runs `then`, for which readers do not wait; the `then`
    /// of each swap comes before that of the next one.
    fn with_new_epoch_then<T>(&self, swap: impl FnOnce() -> T, then: impl FnOnce(&T)) -> T {
        /// Makes the epoch even again, also if `swap` panics. Otherwise readers would wait forever.
        struct EpochGuard<'a>(&'a AtomicU64);
        impl Drop for EpochGuard<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::AcqRel);
            }
        }
        let _one = self.swapping.lock();
        self.epoch.fetch_add(1, Ordering::AcqRel);
        let guard = EpochGuard(&self.epoch);
        let swapped = swap();
        drop(guard);
        then(&swapped);
        swapped
    }
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.info.name_text())
    }
}
