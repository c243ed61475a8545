//! [`RegionLoad`]: sizes and counts of a region, for reports.

use std::sync::atomic::Ordering;

use evenkeel_fs::BlocksWeight;

use super::{Region, RegionCount, RegionCounts};
use crate::store::{StoreLoad, WriteProgressReport};

/// Sizes and counts for reports, taken at one moment.
#[derive(Clone, Debug, Default)]
pub struct RegionLoad {
    /// Families.
    pub stores: usize,
    /// Store files.
    pub store_files: usize,
    /// Store files of the store that has the most.
    pub store_files_max: usize,
    /// Store files that reference a part of a parent's file.
    pub reference_files: usize,
    /// Readers of store files.
    pub readers: usize,
    /// The maximum number of readers of a file that a compaction replaced.
    pub replaced_readers_max: usize,
    /// Bytes of store files.
    pub store_file_bytes: u64,
    /// Bytes of the store files that are not references.
    pub hfile_bytes: u64,
    /// Bytes of store files without encoding and compression.
    pub uncompressed_bytes: u64,
    /// Memory of the roots of the data indexes, in bytes.
    pub root_index_bytes: u64,
    /// Bytes of all blocks of the data indexes, uncompressed.
    pub index_bytes: u64,
    /// Bytes of the bloom filters.
    pub bloom_bytes: u64,
    /// The weight of the blocks of the store files, of which a part is on this server's host.
    pub blocks_weight: BlocksWeight,
    /// Ages of the store files.
    pub ages: FileAges,
    /// When the oldest file of a major compaction was created, milliseconds since 1970; 0 if there
    /// is none.
    pub major_compaction_ms: i64,
    /// The running compactions.
    pub compaction: WriteProgressReport,
    /// The running flush.
    pub flush: WriteProgressReport,
    /// Bytes of cells in the MemStore.
    pub memstore_bytes: u64,
    /// Bytes of the MemStore's nodes and records.
    pub memstore_heap_bytes: u64,
    /// Requests and maintenance since the region opened.
    pub counts: RegionCounts,
    /// Mutations since the last flush that skipped the log.
    pub unlogged_mutations: u64,
    /// Bytes of their cells.
    pub unlogged_bytes: u64,
    /// All edits up to this sequence id are in store files.
    pub max_flushed_seq_id: u64,
}

/// Ages of store files that are not references, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileAges {
    /// Files.
    pub files: u64,
    /// The age of the youngest; 0 without files.
    pub min_ms: i64,
    /// The age of the oldest.
    pub max_ms: i64,
    /// The sum of all.
    pub sum_ms: i64,
}

impl FileAges {
    /// Adds the ages of other files.
    pub fn add(&mut self, other: &Self) {
        if other.files == 0 {
            return;
        }
        self.min_ms = if self.files == 0 { other.min_ms } else { self.min_ms.min(other.min_ms) };
        self.max_ms = self.max_ms.max(other.max_ms);
        self.sum_ms = self.sum_ms.saturating_add(other.sum_ms);
        self.files += other.files;
    }

    /// The mean; 0 without files.
    pub fn mean_ms(&self) -> i64 {
        self.sum_ms.checked_div(i64::try_from(self.files).unwrap_or(i64::MAX)).unwrap_or(0)
    }

    fn of(store: &StoreLoad, now_ms: i64) -> Self {
        if store.dated_files == 0 {
            return Self::default();
        }
        let (oldest_ms, newest_ms) = store.created_ms;
        let files = i64::try_from(store.dated_files).unwrap_or(i64::MAX);
        Self {
            files: store.dated_files,
            min_ms: now_ms.saturating_sub(newest_ms),
            max_ms: now_ms.saturating_sub(oldest_ms),
            sum_ms: now_ms.saturating_mul(files).saturating_sub(store.created_ms_sum),
        }
    }
}

impl RegionLoad {
    fn add_store(&mut self, store: &StoreLoad, now_ms: i64) {
        self.stores += 1;
        self.store_files += store.files;
        self.store_files_max = self.store_files_max.max(store.files);
        self.reference_files += store.references;
        self.readers += store.readers;
        self.replaced_readers_max = self.replaced_readers_max.max(store.replaced_readers_max);
        self.store_file_bytes += store.bytes;
        self.hfile_bytes += store.hfile_bytes;
        self.uncompressed_bytes += store.uncompressed_bytes;
        self.root_index_bytes += store.root_index_bytes;
        self.index_bytes += store.index_bytes;
        self.bloom_bytes += store.bloom_bytes;
        self.blocks_weight += store.blocks_weight;
        self.ages.add(&FileAges::of(store, now_ms));
        self.compaction.add(&store.compaction);
        self.flush.add(&store.flush);
        if let Some(ms) = store.major_compaction_ms {
            self.major_compaction_ms =
                if self.major_compaction_ms == 0 { ms } else { ms.min(self.major_compaction_ms) };
        }
    }
}

impl Region {
    /// Returns sizes and counts for reports.
    pub fn load(&self) -> RegionLoad {
        let memstore = self.memstore_size();
        let counts = self.counts.all();
        let unlogged = self.unlogged(&counts);
        let mut load = RegionLoad {
            memstore_bytes: memstore.data_bytes,
            memstore_heap_bytes: memstore.heap_bytes,
            counts,
            unlogged_mutations: unlogged.0,
            unlogged_bytes: unlogged.1,
            max_flushed_seq_id: self.max_flushed_seq_id(),
            ..RegionLoad::default()
        };
        let now_ms = self.env.stores.clock.now_ms();
        self.stores.iter().for_each(|store| load.add_store(&store.load(), now_ms));
        load
    }

    /// Returns the number of mutations since the last flush that skipped the log, and their bytes.
    fn unlogged(&self, counts: &RegionCounts) -> (u64, u64) {
        let [mutations, bytes] =
            [RegionCount::SkippedWal, RegionCount::UnloggedBytes].map(|count| counts.get(count));
        let [flushed, flushed_bytes] = self.unlogged_flushed.each_ref().map(|at| at.load(Ordering::Relaxed));
        (mutations.saturating_sub(flushed), bytes.saturating_sub(flushed_bytes))
    }

    /// Resets the count of mutations that skipped the log, because a flush takes them.
    pub(super) fn forget_unlogged(&self) {
        for (at, count) in
            self.unlogged_flushed.iter().zip([RegionCount::SkippedWal, RegionCount::UnloggedBytes])
        {
            at.store(self.counts.get(count), Ordering::Relaxed);
        }
    }

    /// Returns each family's name, and the sequence id up to which all of its edits are in files.
    /// Queries the log for each family.
    pub fn flushed_seq_ids(&self) -> Vec<(Vec<u8>, u64)> {
        // Read before the log is queried: an edit of a family that the log does not know then is
        // in a file, or came after that flush.
        let last_flush = self.last_flush_seq_id.load(Ordering::Relaxed).max(self.max_flushed_seq_id());
        let of_family = |family: &[u8]| {
            let lowest = self.env.wal.lowest_unflushed(&self.encoded_name, Some(family));
            lowest.map_or(last_flush, |lowest| lowest.saturating_sub(1))
        };
        let families = self.stores.iter().map(|store| store.family().name());
        families.map(|family| (family.to_vec(), of_family(family))).collect()
    }
}
