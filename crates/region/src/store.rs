//! A store: one family of one region.
//!
//! Its state is an immutable [`StoreView`] behind one pointer: the active segment, the pipeline
//! behind it, the segments that a flush froze, and the open files, oldest first. Readers load the
//! pointer and keep its target. A flush or a compaction installs a new state. So readers take no
//! lock, and every reader sees every cell once.
//!
//! ```text
//! <family>/<hfile>             served, or listed and served: see [`StoreFileTracker`]
//! .tmp/<family>/<hfile>        output of a flush or compaction, not committed
//! archive/.../<family>/<hfile> replaced by a compaction, and no longer held by a reader, or the
//!                              region was closed
//! ```
//!
//! With a tracker that needs no temporary directory, outputs are in the family's directory from the
//! start, and the list commits them.
//!
//! A compaction commits by renaming its output into place. The output's file info names the files
//! it replaces. If a crash leaves both, the next open recognises the replaced files, does not serve
//! them, and archives them.
//!
//! | module | contents |
//! |---|---|
//! | `config` | [`StoreConfig`]: limits |
//! | `cache` | [`StoreCacheConfig`]; prefetches of files when they are opened |
//! | `file` | [`StoreFile`], an open file, its name, its bloom filter; [`StoreFileScanner`] |
//! | `view` | [`StoreView`], and which of its parts a scan needs |
//! | `load` | [`StoreLoad`]: sizes and counts for reports |
//! | `open_files` | [`OpenFiles`]: the limit above which clients add no files |
//! | `archived_files` | [`ArchivedFiles`]: files that compactions have archived, for a report |
//! | `leaf_scanner` | [`StoreLeaf`]: a scanner of a segment or of a file |
//! | `in_memory_flush` | makes segments flat before a flush |
//! | `flush` | writes frozen segments to a file |
//! | `mob` | MOB files: long values, to which store files refer |
//! | `compaction` | merges files: engines, their policies, and the compactor |
//! | `file_writer` | new files, and how cells are divided among them |
//! | `throughput` | limits how fast all compactions of a server write |
//! | `background_priority` | flushes and compactions that yield the processors |
//! | `bulk_load` | files of other programs: checked, copied, served |
//! | `secondary` | stores of secondary replicas, which read another store's files |
//! | `unlisted` | files in the family's directory that are not the store's |
//!
//! Locks: `changes` serialises updates of the state and is never held during I/O. `archiving` is
//! held while replaced files are moved; no request needs it. `compacting`, `flushed`,
//! `flushed_mob`, `undeleted_outputs` and `replaced` are leaf locks.

#![forbid(unsafe_code)]

mod archived_files;
mod background_priority;
mod bulk_load;
mod cache;
mod compaction;
mod config;
mod file;
mod file_writer;
mod flush;
mod in_memory_flush;
mod leaf_scanner;
mod load;
mod mob;
mod open_files;
mod secondary;
mod throughput;
mod unlisted;
mod view;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use evenkeel_block_cache::BlockCache;
use evenkeel_common::clock::Clock;
use evenkeel_common::{
    CellComparator, CellRef, ColumnFamilyDescriptor, ErrorKind, HBaseError, KeyBuf, RegionInfo, Result,
};
use evenkeel_fs::{FileSystem, LocalHost};
use parking_lot::Mutex;

pub use self::archived_files::{ArchivedFile, ArchivedFiles};
pub use self::background_priority::BackgroundPriority;
pub use self::cache::StoreCacheConfig;
pub use self::compaction::engine::{Engine, EngineSettings, check_classes};
pub use self::compaction::{CompactionKind, CompactionRequest, CompactionResult};
pub use self::config::StoreConfig;
pub use self::file::{StoreFile, StoreFileScanner};
pub use self::in_memory_flush::SegmentReplacement;
pub use self::leaf_scanner::StoreLeaf;
pub use self::load::{StoreLoad, WriteProgressReport};
pub use self::mob::{MobConfig, MobFileCache, MobFileCacheConfig, MobMetrics, MobReferences};
pub use self::open_files::{CountedFiles, OpenFiles};
pub use self::throughput::{CompactionThroughputController, OffPeakPermit, ThroughputController};
pub use self::unlisted::RemovedFile;
pub use self::view::{StoreView, StoreViews};
use crate::archive::archive_file;
use crate::layout;
use crate::memstore::{ChunkPool, MemStoreSize, Segment, SegmentDescent};
use crate::metrics::StoreMetrics;
use crate::scanner::matcher::ScanInfo;
use crate::store_file_tracker::{ListedFile, StoreFileTracker, TrackerKind};

/// Shared by the stores of a server.
#[derive(Clone, Debug)]
pub struct StoreEnv {
    /// The file system.
    pub fs: Arc<dyn FileSystem>,
    /// `hbase.rootdir`.
    pub root: PathBuf,
    /// Blocks of store files.
    pub cache: Arc<dyn BlockCache>,
    /// Wall-clock time.
    pub clock: Arc<dyn Clock>,
    /// The memory of MemStores.
    pub chunks: Arc<ChunkPool>,
    /// Limits.
    pub config: StoreConfig,
    /// Limits how fast compactions write.
    pub compaction_throughput: Arc<CompactionThroughputController>,
    /// Counts flushes and compactions of each table.
    pub metrics: Arc<StoreMetrics>,
    /// The server's host, for the locality of store files.
    pub host: LocalHost,
    /// Counts and limits open store files.
    pub open_files: Arc<OpenFiles>,
    /// Open MOB files.
    pub mob: Arc<MobFileCache>,
    /// Files that compactions have archived.
    pub archived_files: Arc<ArchivedFiles>,
}

/// The properties of a store file, for reports.
#[derive(Clone, Debug)]
pub struct StoreFileInfo {
    /// Its name in the family's directory.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
    /// Cells.
    pub cells: u64,
    /// Its sequence id.
    pub max_seq_id: u64,
    /// True if it is a reference to a parent's file.
    pub is_reference: bool,
    /// True if a major compaction wrote it.
    pub is_major: bool,
    /// When it was written, milliseconds since 1970.
    pub modified_ms: i64,
}

/// The directories of a store.
#[derive(Clone, Debug)]
struct Dirs {
    family: PathBuf,
    tmp: PathBuf,
    archive: PathBuf,
    /// Where flushes and compactions write: `tmp`, or `family` if the tracker permits that.
    output: PathBuf,
}

impl Dirs {
    fn new(root: &Path, region: &RegionInfo, family: &str, kind: TrackerKind) -> Self {
        let dir = layout::region_dir(root, region);
        let (family_dir, tmp) = (dir.join(family), dir.join(layout::TMP_DIR).join(family));
        let output = if kind.requires_writing_to_tmp_dir_first() { &tmp } else { &family_dir };
        Self {
            output: output.clone(),
            archive: layout::archive_region_dir(root, region).join(family),
            family: family_dir,
            tmp,
        }
    }
}

/// One family of one region. See the module.
pub struct Store {
    env: StoreEnv,
    config: StoreConfig,
    /// The limits for selecting compactions. They may change while the store is open.
    compaction_config: ArcSwap<StoreConfig>,
    family: ColumnFamilyDescriptor,
    region: RegionInfo,
    info: ScanInfo,
    dirs: Dirs,
    tracker: StoreFileTracker,
    state: ArcSwap<view::StoreState>,
    changes: Mutex<()>,
    /// In-memory flushes; `None` if the family has none.
    in_memory: Option<in_memory_flush::InMemoryFlushState>,
    /// Names of files in a running compaction.
    compacting: Arc<Mutex<HashSet<String>>>,
    /// Files of a flush that is not committed yet.
    flushed: Mutex<Vec<PathBuf>>,
    /// The MOB files of that flush.
    flushed_mob: Mutex<Vec<PathBuf>>,
    mob: mob::MobStore,
    /// Outputs of failed flushes and compactions that could not be removed. In each list, the file
    /// to remove first is last.
    undeleted_outputs: Mutex<Vec<Vec<PathBuf>>>,
    /// Files that were compacted away and may still be read.
    replaced: Mutex<Vec<Arc<StoreFile>>>,
    /// Held while files of `replaced` are moved, so that a close waits for a move in progress.
    archiving: Mutex<()>,
    /// True if compactions must stop at their next step.
    cancelled: AtomicBool,
    /// The progress of the running compaction.
    compaction_progress: load::WriteProgress,
    /// The progress of the running flush.
    flush_progress: load::WriteProgress,
    /// The time of the oldest edit that no flush has taken; `i64::MAX` for none. Set under the
    /// region's updates lock.
    oldest_edit_ms: AtomicI64,
}

/// Sets the storage policy that a store's settings ask for. HBase, too, only warns about a failure:
/// the files are stored by the policy of HDFS then.
fn set_storage_policy(fs: &dyn FileSystem, dir: &Path, config: &StoreConfig) {
    let Some(policy) = config.storage_policy.name() else { return };
    if let Err(error) = fs.set_storage_policy(dir, &policy) {
        tracing::warn!(dir = %dir.display(), policy, %error, "the storage policy is not set");
    }
}

impl Store {
    /// Opens a family: creates its directory if missing, deletes unfinished outputs, opens its
    /// files, and archives those that a compaction had replaced. For a secondary replica it only
    /// opens the files.
    ///
    /// # Errors
    /// `IOException` from the file system and for an unknown store file tracker, and
    /// `CorruptHFileException`.
    pub fn open(env: &StoreEnv, family: ColumnFamilyDescriptor, region: &RegionInfo) -> Result<Arc<Self>> {
        let comparator = if region.is_meta() { CellComparator::Meta } else { CellComparator::Default };
        let mut config = env.config.for_family(&family);
        if family.is_mob() {
            // As in HBase (`MobStoreEngine`), whatever the settings say.
            config.engine.engine = Engine::Default;
        }
        let kind = TrackerKind::of(&config.tracker)?;
        let dirs = Dirs::new(&env.root, region, &family.name_text(), kind);
        let tracker = StoreFileTracker::new(Arc::clone(&env.fs), Arc::clone(&env.clock), &dirs.family, kind);
        if region.is_primary() {
            env.fs.mkdirs(&dirs.family)?;
            env.fs.delete(&dirs.tmp)?;
            set_storage_policy(&*env.fs, &dirs.family, &config);
        }
        let info = ScanInfo::new(&family, comparator, config.time_to_purge_deletes_ms);
        let segment = Segment::new(comparator, (&[], &[]), Arc::clone(&env.chunks));
        let mob = mob::MobStore::new(env, &family, region);
        let in_memory = config.in_memory.for_family(&family, region.table().is_system());
        let store = Self {
            env: env.clone(),
            compaction_config: ArcSwap::from_pointee(config.clone()),
            config,
            family,
            region: region.clone(),
            info,
            dirs,
            tracker,
            mob,
            state: ArcSwap::from_pointee(view::StoreState::new(segment)),
            changes: Mutex::new(()),
            in_memory: in_memory_flush::InMemoryFlushState::new(in_memory),
            compacting: Arc::default(),
            flushed: Mutex::default(),
            flushed_mob: Mutex::default(),
            undeleted_outputs: Mutex::default(),
            replaced: Mutex::default(),
            archiving: Mutex::default(),
            cancelled: AtomicBool::new(false),
            compaction_progress: load::WriteProgress::default(),
            flush_progress: load::WriteProgress::default(),
            oldest_edit_ms: AtomicI64::new(i64::MAX),
        };
        store.check_formats()?;
        match store.is_secondary() {
            true => store.load_files_of_primary()?,
            false => store.load_files()?,
        }
        Ok(Arc::new(store))
    }

    fn load_files(&self) -> Result<()> {
        let mut files = Vec::new();
        for status in self.tracker.load()? {
            match StoreFile::open_listed(self, &status)? {
                Some(file) => files.push(Arc::new(file)),
                None if self.tracker.kind().reads_list() => {
                    let path = status.path.display();
                    return Err(HBaseError::new(
                        ErrorKind::CorruptHFile,
                        format!("{path}: listed as a store file, but empty or without the name of one"),
                    ));
                }
                None => {}
            }
        }
        let replaced: HashSet<String> = files.iter().flat_map(|file| file.replaces()).collect();
        let (replaced, files): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|file| replaced.contains(file.name()));
        self.tracker.begin(listed(&files))?;
        let (low, high) = self.ends(&files);
        let active = Segment::new(self.info.comparator, (&low, &high), Arc::clone(&self.env.chunks));
        self.replace_state(|state| {
            *state = view::StoreState { files: sorted(files), ..view::StoreState::new(active) }
        });
        self.replaced.lock().extend(replaced);
        self.state.load().files.iter().for_each(|file| self.prefetch(file));
        self.archive_replaced().map(drop)
    }

    /// Returns the region's start and end row; where it has none, those of its files. Empty if
    /// unknown.
    fn ends(&self, files: &[Arc<StoreFile>]) -> (Bytes, Bytes) {
        let row = |key: &KeyBuf| Bytes::copy_from_slice(key.as_cell().row());
        let (mut low, mut high) = (self.region.start_key().clone(), self.region.end_key().clone());
        if low.is_empty() {
            low = files.iter().filter_map(|f| f.reader().first_key().map(row)).min().unwrap_or_default();
        }
        if high.is_empty() {
            high = files.iter().filter_map(|f| f.reader().last_key().map(row)).max().unwrap_or_default();
        }
        (low, high)
    }

    /// Changes the limits for selecting compactions: numbers and sizes of files, ratios, periods.
    /// `of_table` has a table's limits; the family's limits override them. The engine stays.
    pub(crate) fn change_compaction_config(&self, of_table: &StoreConfig) {
        let mut config = of_table.for_family(&self.family);
        config.engine.engine = self.config.engine.engine;
        self.compaction_config.store(Arc::new(config));
    }

    /// The family.
    pub fn family(&self) -> &ColumnFamilyDescriptor {
        &self.family
    }

    /// How the store's files are tracked.
    pub fn tracker_kind(&self) -> TrackerKind {
        self.tracker.kind()
    }

    /// The order of cells.
    pub fn comparator(&self) -> CellComparator {
        self.info.comparator
    }

    /// Copies a cell with its sequence id into the MemStore. Many threads may call it at once.
    #[inline]
    pub fn add(&self, cell: &CellRef<'_>) {
        self.state.load().active.add(cell);
    }

    /// Notes the time of an edit, if it is the oldest.
    #[inline]
    pub(crate) fn note_edit(&self) {
        if self.oldest_edit_ms.load(Ordering::Relaxed) == i64::MAX {
            self.oldest_edit_ms.fetch_min(self.env.clock.now_ms(), Ordering::Relaxed);
        }
    }

    /// Returns the time of the oldest edit that is only in memory and in no running flush, in
    /// milliseconds since 1970; `None` if there is none.
    pub(crate) fn oldest_edit_ms(&self) -> Option<i64> {
        let oldest_ms = Some(self.oldest_edit_ms.load(Ordering::Relaxed)).filter(|ms| *ms != i64::MAX);
        oldest_ms.filter(|_| self.memstore_size().cells > 0)
    }

    /// Returns the time of the oldest edit, which a flush takes; `i64::MAX` for none.
    pub(crate) fn take_oldest_edit_ms(&self) -> i64 {
        self.oldest_edit_ms.swap(i64::MAX, Ordering::Relaxed)
    }

    /// Restores the time that a failed flush has taken.
    pub(crate) fn restore_oldest_edit_ms(&self, oldest_ms: i64) {
        self.oldest_edit_ms.fetch_min(oldest_ms, Ordering::Relaxed);
    }

    /// Starts a descent to where a row would be added; `None` if that does not pay.
    pub(crate) fn begin_descent(&self, row: &[u8]) -> Option<SegmentDescent> {
        self.state.load().active.begin_descent(row)
    }

    /// Hides an added cell with this key and sequence id permanently, because its write failed
    /// later.
    pub fn hide_failed_cell(&self, cell: &CellRef<'_>) {
        self.state.load().segments().for_each(|segment| segment.hide(cell));
    }

    /// Returns the segments and files for a new reader.
    #[inline]
    pub fn view(self: &Arc<Self>) -> StoreView {
        StoreView::new(Arc::clone(self), self.state.load_full())
    }

    /// Returns true if `state` is the current state.
    #[inline]
    fn has_state(&self, state: &Arc<view::StoreState>) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.state.load()), Arc::as_ptr(state))
    }

    /// Returns true if a new reader would read this segment.
    pub(crate) fn has_segment(&self, segment: &Arc<Segment>) -> bool {
        self.state.load().segments().any(|own| Arc::ptr_eq(own, segment))
    }

    /// The sizes of all segments together.
    pub fn memstore_size(&self) -> MemStoreSize {
        self.state.load().segments().map(|segment| segment.size()).sum()
    }

    /// The sizes of the frozen segments, which a running flush writes.
    pub fn snapshot_size(&self) -> MemStoreSize {
        self.state.load().frozen.iter().map(|segment| segment.size()).sum()
    }

    /// Bytes of the chunks of all segments, including free space, and of the frozen ones among
    /// them.
    pub fn chunk_bytes(&self) -> (u64, u64) {
        let state = self.state.load();
        let sum = |segments: &mut dyn Iterator<Item = &Arc<Segment>>| {
            segments.map(|segment| segment.chunk_bytes()).sum()
        };
        (sum(&mut state.segments()), sum(&mut state.frozen.iter()))
    }

    /// The greatest sequence id of its files; 0 without files.
    pub fn max_seq_id(&self) -> u64 {
        self.state.load().files.iter().map(|file| file.max_seq_id()).max().unwrap_or(0)
    }

    /// The greatest sequence id of a cell in its files. It is above [`Store::max_seq_id`] if a
    /// server died while it moved the files of a flush into place.
    pub fn max_cell_seq_id(&self) -> u64 {
        self.state.load().files.iter().map(|file| file.max_cell_seq_id()).max().unwrap_or(0)
    }

    /// Its files, oldest first.
    pub fn files(&self) -> Vec<StoreFileInfo> {
        self.state.load().files.iter().map(|file| file.info()).collect()
    }

    /// Bytes of its files.
    pub fn file_bytes(&self) -> u64 {
        self.state.load().files.iter().map(|file| file.bytes()).sum()
    }

    /// Bytes of its files that are neither references nor links: those that count against quotas of
    /// space (`HStore.getHFilesSize`).
    pub fn own_file_bytes(&self) -> u64 {
        let state = self.state.load();
        let is_own = |file: &&Arc<StoreFile>| !file.is_reference() && !file.is_link();
        state.files.iter().filter(is_own).map(|file| file.bytes()).sum()
    }

    /// Returns true if any file is a reference.
    pub fn has_references(&self) -> bool {
        self.state.load().files.iter().any(|file| file.is_reference())
    }

    /// Returns true if the family's directory contains a reference, because a file is one or
    /// because a reader still holds one that was compacted (`HStore.hasReferences`). The region
    /// cannot be split or merged then.
    pub fn has_references_on_disk(&self) -> bool {
        // The state first: a file is among the replaced ones before it leaves the state.
        self.has_references() || self.replaced.lock().iter().any(|file| file.is_reference())
    }

    /// Returns the row at which a split cuts: the middle row of the largest file, or a row between
    /// stripes. `None` without files, with references, or if the middle is the first or the last
    /// row.
    pub fn split_row(&self) -> Option<Bytes> {
        let state = self.state.load_full();
        if state.files.iter().any(|file| file.is_reference()) {
            return None;
        }
        let between_stripes = self.split_row_of_stripes(&state.files);
        if let Some(row) = between_stripes.filter(|row| self.region.contains_row(row)) {
            return Some(row);
        }
        let largest = state.files.iter().max_by_key(|file| file.bytes())?;
        let middle = largest.reader().mid_key().ok().flatten()?;
        let row = middle.as_cell().row();
        let first = largest.reader().first_key()?;
        let last = largest.reader().last_key()?;
        let cuts = row != first.as_cell().row() && row != last.as_cell().row();
        cuts.then(|| Bytes::copy_from_slice(row))
    }

    /// Archives replaced files that no reader holds; a secondary replica only releases them.
    /// Returns how many are left.
    ///
    /// # Errors
    /// `IOException` from the file system; the rest is kept for the next call.
    pub fn archive_replaced(&self) -> Result<usize> {
        let _one = self.archiving.lock();
        let mut replaced = self.replaced.lock();
        let (free, held): (Vec<_>, Vec<_>) =
            replaced.drain(..).partition(|file| Arc::strong_count(file) == 1);
        *replaced = held;
        drop(replaced);
        let mut free = free.into_iter();
        while let Some(file) = free.next() {
            if let Err(error) = self.archive(&file) {
                let mut replaced = self.replaced.lock();
                replaced.push(file);
                replaced.extend(free);
                return Err(error);
            }
        }
        Ok(self.replaced.lock().len())
    }

    /// Archives all replaced files, including those that readers hold, because the region is being
    /// closed: a master that splits, merges or snapshots it next takes every file of the directory
    /// for a served one. Readers continue with their open files, and references from held files to
    /// MOB files still count.
    ///
    /// # Errors
    /// `IOException` from the file system; another call archives the rest.
    pub(crate) fn archive_all_replaced(&self) -> Result<()> {
        let _one = self.archiving.lock();
        let replaced = self.replaced.lock().clone();
        replaced.iter().try_for_each(|file| self.archive(file))?;
        drop(replaced);
        self.replaced.lock().retain(|file| Arc::strong_count(file) > 1);
        Ok(())
    }

    fn archive(&self, file: &StoreFile) -> Result<()> {
        file.evict();
        if self.is_secondary() {
            return Ok(());
        }
        let path = self.dirs.family.join(file.name());
        let moved = archive_file(&*self.env.fs, &path, &self.dirs.archive, self.env.clock.now_ms())?;
        if moved && !file.is_reference() && !file.is_link() {
            self.env.archived_files.add(|| ArchivedFile {
                table: self.region.table().clone(),
                name: file.name().to_owned(),
                bytes: file.bytes(),
            });
        }
        Ok(())
    }

    /// Stops compactions at their next step, and prevents new ones while `cancel` holds. A stopped
    /// compaction fails with `IOException` and leaves nothing behind.
    pub fn cancel_compactions(&self, cancel: bool) {
        self.cancelled.store(cancel, Ordering::Relaxed);
    }

    /// Returns the pressure of the number of files: 0 up to `hbase.hstore.blockingStoreFiles`, 1 at
    /// twice that. For stripes and windows, the fullest one counts.
    pub fn blocking_pressure(&self) -> f64 {
        let (state, blocking) = (self.state.load(), self.compaction_config.load().blocking_files.max(1));
        if state.files.len() <= blocking {
            return 0.0;
        }
        self.files_per_read(&state.files).saturating_sub(blocking) as f64 / blocking as f64
    }

    /// Closes the store: archives compacted files, and evicts its blocks if `evict`. Files that
    /// readers still hold are archived when the region is next opened.
    ///
    /// # Errors
    /// `IOException` from the file system.
    pub fn close(&self, evict: bool) -> Result<()> {
        self.archive_replaced()?;
        if evict || self.config.cache.evict_on_close {
            self.state.load().files.iter().for_each(|file| file.evict());
        }
        Ok(())
    }

    /// Continues a closed store whose files another instance may have listed since.
    pub(crate) fn resume(&self) {
        self.tracker.resume(listed(&self.state.load().files));
    }

    fn replace_state(&self, change: impl FnOnce(&mut view::StoreState)) {
        let _changes = self.changes.lock();
        let mut state = view::StoreState::clone(&self.state.load());
        change(&mut state);
        self.state.store(Arc::new(state));
    }

    fn label(&self) -> String {
        format!("{}/{}", self.region.encoded_name(), self.family.name_text())
    }

    fn error(&self, what: impl std::fmt::Display) -> HBaseError {
        HBaseError::io(format!("{}: {what}", self.label()))
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("of", &self.label())
            .field("files", &self.files())
            .finish_non_exhaustive()
    }
}

/// The entries of a list for these files.
fn listed(files: &[Arc<StoreFile>]) -> Vec<ListedFile> {
    files.iter().map(|file| file.listed()).collect()
}

/// Sorts files by the age of their data, the newest last.
fn sorted(mut files: Vec<Arc<StoreFile>>) -> Vec<Arc<StoreFile>> {
    files.sort_by(|a, b| a.compare_age(b));
    files
}
