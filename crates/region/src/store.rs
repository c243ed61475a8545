//! A store: one family of one region.
//!
//! Its state is an immutable [`StoreView`] behind one pointer: the segment that takes writes, those behind it in memory,
//! the segments that a flush froze, and the open files, oldest first. Readers take the pointer and keep what it points to; a flush or a
//! compaction puts a new state in its place. So readers take no lock, and whoever reads sees every cell once.
//!
//! ```text
//! <family>/<hfile>             served
//! .tmp/<family>/<hfile>        written by a flush or compaction, not committed yet; left over after a crash
//! archive/.../<family>/<hfile> replaced by a compaction, and no reader holds it any more
//! ```
//!
//! A compaction commits by renaming its output into place; the output's file info names what it replaces, so that after
//! a crash in between, those files are recognized, not served, and archived.
//!
//! | module | noun |
//! |---|---|
//! | `config` | [`StoreConfig`]: limits |
//! | `cache` | [`StoreCacheConfig`]; files read into the cache when they are opened |
//! | `file` | [`StoreFile`], an open file, its name and its bloom filter; [`StoreFileScanner`] |
//! | `view` | [`StoreView`], and which of its parts a scan needs |
//! | `leaf` | [`StoreLeaf`]: a scanner of a segment or of a file |
//! | `in_memory_flush` | segments to flat ones, before a flush |
//! | `flush` | frozen segments to a file |
//! | `compaction` | many files to one or few: the engines, their policies, and a compaction from choice to archive |
//! | `file_writer` | new files, and how cells are divided among them |
//! | `throughput` | [`CompactionThroughputController`]: how fast all compactions of a server write |
//! | `background_priority` | [`BackgroundPriority`]: flushes and compactions that nobody waits for yield the processors |
//! | `bulk_load` | files made elsewhere: checked, copied, served |
//!
//! Locks: `changes` orders those who replace the state; it is never held during I/O. `compacting`, `flushed`,
//! `leftovers` and `replaced` are leaves.

mod background_priority;
mod bulk_load;
mod cache;
mod compaction;
mod config;
mod file;
mod file_writer;
mod flush;
mod in_memory_flush;
mod leaf;
mod throughput;
mod view;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use evenkeel_block_cache::BlockCache;
use evenkeel_common::clock::Clock;
use evenkeel_common::{
    CellComparator, CellRef, ColumnFamilyDescriptor, HBaseError, KeyBuf, RegionInfo, Result,
};
use evenkeel_fs::FileSystem;
use parking_lot::Mutex;

pub use self::background_priority::BackgroundPriority;
pub use self::cache::StoreCacheConfig;
pub use self::compaction::engine::{Engine, EngineSettings, check_classes};
pub use self::compaction::{CompactionRequest, CompactionResult};
pub use self::config::StoreConfig;
pub use self::file::{StoreFile, StoreFileScanner};
pub use self::in_memory_flush::SegmentReplacement;
pub use self::leaf::StoreLeaf;
pub use self::throughput::{CompactionThroughputController, OffPeakPermit, ThroughputController};
pub use self::view::{StoreView, StoreViews};
use crate::archive::archive_file;
use crate::layout;
use crate::memstore::{ChunkPool, MemStoreSize, Segment, SegmentDescent};
use crate::scanner::matcher::ScanInfo;

/// What the stores of a server share.
#[derive(Clone, Debug)]
pub struct StoreEnv {
    /// Where files are.
    pub fs: Arc<dyn FileSystem>,
    /// `hbase.rootdir`.
    pub root: PathBuf,
    /// Blocks of store files.
    pub cache: Arc<dyn BlockCache>,
    /// Wall-clock time.
    pub clock: Arc<dyn Clock>,
    /// Memory of MemStores.
    pub chunks: Arc<ChunkPool>,
    /// Limits.
    pub config: StoreConfig,
    /// How fast compactions write.
    pub compaction_throughput: Arc<CompactionThroughputController>,
}

/// A file of a store, as others see it.
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
    /// Whether it is a reference to a parent's file.
    pub is_reference: bool,
    /// Whether a major compaction wrote it.
    pub is_major: bool,
    /// When it was written, milliseconds since 1970.
    pub modified_ms: i64,
}

/// Where a store's files are.
#[derive(Clone, Debug)]
struct Dirs {
    family: PathBuf,
    tmp: PathBuf,
    archive: PathBuf,
}

/// One family of one region. See the module.
pub struct Store {
    env: StoreEnv,
    config: StoreConfig,
    family: ColumnFamilyDescriptor,
    region: RegionInfo,
    info: ScanInfo,
    dirs: Dirs,
    state: ArcSwap<view::StoreState>,
    changes: Mutex<()>,
    /// In-memory flushes; `None` for families without.
    in_memory: Option<in_memory_flush::InMemoryFlushState>,
    /// Names of files that a compaction is working on.
    compacting: Arc<Mutex<HashSet<String>>>,
    /// What a flush wrote and has not committed.
    flushed: Mutex<Vec<PathBuf>>,
    /// What flushes and compactions that failed wrote and could not remove; of each, the file that goes first is last.
    leftovers: Mutex<Vec<Vec<PathBuf>>>,
    /// Files that were compacted away and may still be read.
    replaced: Mutex<Vec<Arc<StoreFile>>>,
    /// Compactions are to stop at their next step.
    cancelled: AtomicBool,
}

impl Store {
    /// Opens a family: makes its directory when it is not there, forgets unfinished outputs, opens its files, and
    /// archives those that a compaction had replaced.
    ///
    /// # Errors
    /// What the file system says, or `CorruptHFileException`.
    pub fn open(env: &StoreEnv, family: ColumnFamilyDescriptor, region: &RegionInfo) -> Result<Arc<Self>> {
        let comparator = if region.is_meta() { CellComparator::Meta } else { CellComparator::Default };
        let config = env.config.for_family(&family);
        let name = family.name_text();
        let dirs = Dirs {
            family: layout::region_dir(&env.root, region).join(&name),
            tmp: layout::region_dir(&env.root, region).join(layout::TMP_DIR).join(&name),
            archive: layout::archive_region_dir(&env.root, region).join(&name),
        };
        env.fs.mkdirs(&dirs.family)?;
        env.fs.delete(&dirs.tmp)?;
        let info = ScanInfo::new(&family, comparator, config.time_to_purge_deletes_ms);
        let segment = Segment::new(comparator, (&[], &[]), Arc::clone(&env.chunks));
        let in_memory = config.in_memory.for_family(&family, region.table().is_system());
        let store = Self {
            env: env.clone(),
            config,
            family,
            region: region.clone(),
            info,
            dirs,
            state: ArcSwap::from_pointee(view::StoreState::new(segment)),
            changes: Mutex::new(()),
            in_memory: in_memory_flush::InMemoryFlushState::new(in_memory),
            compacting: Arc::default(),
            flushed: Mutex::default(),
            leftovers: Mutex::default(),
            replaced: Mutex::default(),
            cancelled: AtomicBool::new(false),
        };
        store.load_files()?;
        Ok(Arc::new(store))
    }

    fn load_files(&self) -> Result<()> {
        let mut files = Vec::new();
        for status in self.env.fs.list(&self.dirs.family)? {
            if let Some(file) = StoreFile::open_listed(self, &status)? {
                files.push(Arc::new(file));
            }
        }
        let replaced: HashSet<String> = files.iter().flat_map(|file| file.replaces()).collect();
        let (replaced, files): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|file| replaced.contains(file.name()));
        let (low, high) = self.ends(&files);
        let active = Segment::new(self.info.comparator, (&low, &high), Arc::clone(&self.env.chunks));
        self.replace_state(|state| {
            *state = view::StoreState { files: sorted(files), ..view::StoreState::new(active) }
        });
        self.replaced.lock().extend(replaced);
        self.state.load().files.iter().for_each(|file| self.prefetch(file));
        self.archive_replaced().map(drop)
    }

    /// The ends of the region, and where it has none those of its files; empty for none.
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

    /// The family.
    pub fn family(&self) -> &ColumnFamilyDescriptor {
        &self.family
    }

    /// The order of cells.
    pub fn comparator(&self) -> CellComparator {
        self.info.comparator
    }

    /// Copies a cell, its sequence id set, into the MemStore. Many threads at once.
    #[inline]
    pub fn add(&self, cell: &CellRef<'_>) {
        self.state.load().active.add(cell);
    }

    /// Begins to look where a row would be added; `None` when that would not pay.
    pub(crate) fn begin_descent(&self, row: &[u8]) -> Option<SegmentDescent> {
        self.state.load().active.begin_descent(row)
    }

    /// Hides a cell that was added, key and sequence id alike, for ever. For a write that failed later.
    pub fn take_back(&self, cell: &CellRef<'_>) {
        self.state.load().segments().for_each(|segment| segment.take_back(cell));
    }

    /// What a reader that starts now reads.
    #[inline]
    pub fn view(self: &Arc<Self>) -> StoreView {
        StoreView::new(Arc::clone(self), self.state.load_full())
    }

    /// Whether this is its state, and not one from before.
    #[inline]
    fn has_state(&self, state: &Arc<view::StoreState>) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.state.load()), Arc::as_ptr(state))
    }

    /// Whether readers that start now would read this segment.
    pub(crate) fn has_segment(&self, segment: &Arc<Segment>) -> bool {
        self.state.load().segments().any(|own| Arc::ptr_eq(own, segment))
    }

    /// All segments together.
    pub fn memstore_size(&self) -> MemStoreSize {
        self.state.load().segments().map(|segment| segment.size()).sum()
    }

    /// The frozen segments: what a flush that is under way writes.
    pub fn snapshot_size(&self) -> MemStoreSize {
        self.state.load().frozen.iter().map(|segment| segment.size()).sum()
    }

    /// Bytes of the memory that all segments take, chunks that are not full among them; and of it, that of the frozen ones.
    pub fn chunk_bytes(&self) -> (u64, u64) {
        let state = self.state.load();
        let sum = |segments: &mut dyn Iterator<Item = &Arc<Segment>>| {
            segments.map(|segment| segment.chunk_bytes()).sum()
        };
        (sum(&mut state.segments()), sum(&mut state.frozen.iter()))
    }

    /// The greatest sequence id of its files, 0 without files.
    pub fn max_seq_id(&self) -> u64 {
        self.state.load().files.iter().map(|file| file.max_seq_id()).max().unwrap_or(0)
    }

    /// The greatest sequence id of a cell in its files: beyond [`Store::max_seq_id`] when a server died while it put the files
    /// of a flush in place.
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

    /// Whether any file is a reference; then the region cannot be split again yet.
    pub fn has_references(&self) -> bool {
        self.state.load().files.iter().any(|file| file.is_reference())
    }

    /// The row in the middle of the largest file, or between stripes, where a split would cut; `None` when there is no file, when there are
    /// references, and when the file holds one row only.
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
        let cuts = row != first.as_cell().row() || row != last.as_cell().row();
        (cuts && row != first.as_cell().row()).then(|| Bytes::copy_from_slice(row))
    }

    /// Moves files that a compaction replaced and no reader holds any more to the archive. Returns how many are left.
    ///
    /// # Errors
    /// What the file system says; the rest stays for the next call.
    pub fn archive_replaced(&self) -> Result<usize> {
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

    fn archive(&self, file: &StoreFile) -> Result<()> {
        file.evict();
        let path = self.dirs.family.join(file.name());
        Ok(archive_file(&*self.env.fs, &path, &self.dirs.archive, self.env.clock.now_ms())?)
    }

    /// Stops compactions at their next step, and lets none start while `cancel` holds. A compaction that is stopped fails
    /// with `InterruptedIOException` and leaves nothing behind.
    pub fn cancel_compactions(&self, cancel: bool) {
        self.cancelled.store(cancel, Ordering::Relaxed);
    }

    /// How far its files are on the way from `hbase.hstore.blockingStoreFiles` to twice as many; of stripes and windows,
    /// the files of the fullest.
    pub fn blocking_pressure(&self) -> f64 {
        let (state, blocking) = (self.state.load(), self.config.blocking_files.max(1));
        if state.files.len() <= blocking {
            return 0.0;
        }
        self.piled_files(&state.files).saturating_sub(blocking) as f64 / blocking as f64
    }

    /// Ends the store: archives what was compacted, and forgets its blocks when `evict`. What readers still hold is
    /// archived when the region is next opened.
    ///
    /// # Errors
    /// What the file system says.
    pub fn close(&self, evict: bool) -> Result<()> {
        self.archive_replaced()?;
        if evict || self.config.cache.evict_on_close {
            self.state.load().files.iter().for_each(|file| file.evict());
        }
        Ok(())
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

/// Files in the order of their data: the newest last.
fn sorted(mut files: Vec<Arc<StoreFile>>) -> Vec<Arc<StoreFile>> {
    files.sort_by(|a, b| a.compare_age(b));
    files
}
