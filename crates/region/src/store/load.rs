//! [`StoreLoad`]: sizes and counts of a store, for reports, and the progress of flushes and
//! compactions.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use evenkeel_fs::BlocksWeight;

use super::{Store, StoreFile};

/// Sizes and counts of a store's files at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreLoad {
    /// Files.
    pub files: usize,
    /// Files that reference a part of another region's file.
    pub references: usize,
    /// Readers of all files together, without the store itself.
    pub readers: usize,
    /// The maximum number of readers of a file that a compaction replaced.
    pub replaced_readers_max: usize,
    /// Bytes of files.
    pub bytes: u64,
    /// Bytes of the files that are not references (`getHFilesSize`).
    pub hfile_bytes: u64,
    /// Bytes of files without encoding and compression.
    pub uncompressed_bytes: u64,
    /// Memory of the roots of the data indexes, in bytes.
    pub root_index_bytes: u64,
    /// Bytes of all blocks of the data indexes, uncompressed.
    pub index_bytes: u64,
    /// Bytes of the bloom filters.
    pub bloom_bytes: u64,
    /// The weight of the blocks of the files.
    pub blocks_weight: BlocksWeight,
    /// Files whose creation time is known.
    pub dated_files: u64,
    /// When the oldest and the newest of them were created, milliseconds since 1970; 0 without any.
    pub created_ms: (i64, i64),
    /// The sum of their creation times, milliseconds since 1970.
    pub created_ms_sum: i64,
    /// When the oldest file of a major compaction was created, milliseconds since 1970.
    pub major_compaction_ms: Option<i64>,
    /// The running compaction.
    pub compaction: WriteProgressReport,
    /// The running flush.
    pub flush: WriteProgressReport,
}

impl StoreLoad {
    fn add_file(&mut self, file: &StoreFile) {
        let (reader, trailer) = (file.reader(), file.reader().trailer());
        self.files += 1;
        self.references += usize::from(file.is_reference());
        self.bytes += file.bytes();
        self.hfile_bytes += if file.is_reference() { 0 } else { file.bytes() };
        self.uncompressed_bytes += trailer.total_uncompressed_bytes;
        self.root_index_bytes += reader.root_index_bytes();
        self.index_bytes += trailer.uncompressed_data_index_bytes;
        self.bloom_bytes += reader.bloom_bytes();
        self.blocks_weight += file.blocks_weight();
        let created_ms = reader.create_time_ms().unwrap_or_else(|| file.modified_ms());
        if reader.is_major_compaction() {
            let oldest = self.major_compaction_ms.unwrap_or(created_ms);
            self.major_compaction_ms = Some(oldest.min(created_ms));
        }
        if file.is_reference() {
            return;
        }
        let (oldest, newest) = if self.dated_files == 0 { (created_ms, created_ms) } else { self.created_ms };
        self.created_ms = (oldest.min(created_ms), newest.max(created_ms));
        self.created_ms_sum = self.created_ms_sum.saturating_add(created_ms);
        self.dated_files += 1;
    }
}

/// The progress of the flush or the compaction of a store.
#[derive(Debug, Default)]
pub(super) struct WriteProgress {
    cells: AtomicU64,
    done: AtomicU64,
    is_limited: AtomicBool,
}

/// A flush or compaction whose progress is reported until this is dropped.
pub(super) struct RunningWrite<'a>(&'a WriteProgress);

impl Drop for RunningWrite<'_> {
    fn drop(&mut self) {
        self.0.set(0);
    }
}

/// How much of the flushes or compactions of a store, or of a region, is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteProgressReport {
    /// Their cells; 0 if none runs.
    pub cells: u64,
    /// How many have been written. Cells that are dropped are not counted.
    pub done: u64,
    /// Whether one waits for the limit of its throughput.
    pub is_limited: bool,
}

impl WriteProgressReport {
    /// Adds the progress of another store.
    pub fn add(&mut self, other: &Self) {
        self.cells += other.cells;
        self.done += other.done;
        self.is_limited |= other.is_limited;
    }
}

impl WriteProgress {
    /// Starts to write `cells` cells, until the guard is dropped.
    pub(super) fn begin(&self, cells: u64) -> RunningWrite<'_> {
        self.set(cells);
        RunningWrite(self)
    }

    fn set(&self, cells: u64) {
        self.is_limited.store(false, Relaxed);
        self.done.store(0, Relaxed);
        self.cells.store(cells, Relaxed);
    }

    /// Runs `wait`, which waits for the limit of the throughput.
    pub(super) fn wait_for_limit<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.is_limited.store(true, Relaxed);
        let waited = wait();
        self.is_limited.store(false, Relaxed);
        waited
    }

    /// Counts cells written.
    pub(super) fn advance(&self, cells: u64) {
        self.done.fetch_add(cells, Relaxed);
    }

    fn report(&self) -> WriteProgressReport {
        let cells = self.cells.load(Relaxed);
        let is_limited = cells > 0 && self.is_limited.load(Relaxed);
        WriteProgressReport { cells, done: self.done.load(Relaxed).min(cells), is_limited }
    }
}

impl Store {
    /// Sizes and counts for reports.
    pub fn load(&self) -> StoreLoad {
        let state = self.state.load();
        let mut load = StoreLoad {
            compaction: self.compaction_progress.report(),
            flush: self.flush_progress.report(),
            ..StoreLoad::default()
        };
        state.files.iter().for_each(|file| load.add_file(file));
        let replaced = self.replaced.lock();
        let readers = replaced.iter().map(|file| std::sync::Arc::strong_count(file).saturating_sub(1));
        (load.replaced_readers_max, load.readers) =
            readers.fold((0, 0), |(max, sum), readers| (max.max(readers), sum + readers));
        load
    }
}
