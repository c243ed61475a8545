//! [`StoreLoad`]: sizes and counts of a store, for reports; and the progress of a compaction.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

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
    /// Files whose creation time is known.
    pub dated_files: u64,
    /// When the oldest and the newest of them were created, milliseconds since 1970; 0 without any.
    pub created_ms: (i64, i64),
    /// The sum of their creation times, milliseconds since 1970.
    pub created_ms_sum: i64,
    /// When the oldest file of a major compaction was created, milliseconds since 1970.
    pub major_compaction_ms: Option<i64>,
    /// Cells of the running compactions, and how many of them are done.
    pub compacting_cells: (u64, u64),
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

/// The progress of the compactions of a store.
#[derive(Debug, Default)]
pub(super) struct CompactionProgress {
    cells: AtomicU64,
    done: AtomicU64,
}

impl CompactionProgress {
    /// Starts a compaction of `cells` cells.
    pub(super) fn begin(&self, cells: u64) {
        self.done.store(0, Relaxed);
        self.cells.store(cells, Relaxed);
    }

    /// Counts cells written.
    pub(super) fn advance(&self, cells: u64) {
        self.done.fetch_add(cells, Relaxed);
    }

    /// Ends the compaction.
    pub(super) fn end(&self) {
        self.begin(0);
    }

    fn get(&self) -> (u64, u64) {
        let cells = self.cells.load(Relaxed);
        (cells, self.done.load(Relaxed).min(cells))
    }
}

impl Store {
    /// Sizes and counts for reports.
    pub fn load(&self) -> StoreLoad {
        let state = self.state.load();
        let mut load = StoreLoad { compacting_cells: self.progress.get(), ..StoreLoad::default() };
        state.files.iter().for_each(|file| load.add_file(file));
        let replaced = self.replaced.lock();
        let readers = replaced.iter().map(|file| std::sync::Arc::strong_count(file).saturating_sub(1));
        (load.replaced_readers_max, load.readers) =
            readers.fold((0, 0), |(max, sum), readers| (max.max(readers), sum + readers));
        load
    }
}
