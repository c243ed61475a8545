//! A store.
use std::path::PathBuf;
use std::sync::Arc;

use evenkeel_block_cache::BlockCache;
use evenkeel_common::clock::Clock;
use evenkeel_common::{CellComparator, CellRef, ColumnFamilyDescriptor, Configuration, RegionInfo, Result};
use evenkeel_fs::FileSystem;

use crate::memstore::{ChunkPool, MemStoreSize};

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
}

/// Limits of a store; defaults and keys are HBase's.
#[derive(Clone, Debug, Default)]
pub struct StoreConfig {}

impl StoreConfig {
    /// From the server's configuration.
    pub fn from_configuration(conf: &Configuration) -> Self {
        let _ = conf;
        unimplemented!()
    }
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
}

/// Files to compact, chosen by [`Store::select_compaction`].
#[derive(Debug)]
pub struct CompactionRequest {
    /// Whether every file of the store is in it and asked to be: markers are dropped.
    pub is_major: bool,
    /// Whether every file of the store is in it.
    pub is_all_files: bool,
    /// Bytes of the files together.
    pub bytes: u64,
}

/// What a compaction did.
#[derive(Clone, Debug, Default)]
pub struct CompactionResult {
    /// Paths of the files that were compacted, relative to the family's directory: their names.
    pub inputs: Vec<String>,
    /// Names of the files that replace them.
    pub outputs: Vec<String>,
    /// Cells written.
    pub cells: u64,
    /// Bytes written.
    pub bytes: u64,
}

/// One family of one region.
pub struct Store;

impl Store {
    /// Opens the files of a family.
    pub fn open(env: &StoreEnv, family: ColumnFamilyDescriptor, region: &RegionInfo) -> Result<Arc<Self>> {
        let _ = (env, family, region);
        unimplemented!()
    }
    /// The family.
    pub fn family(&self) -> &ColumnFamilyDescriptor {
        unimplemented!()
    }
    /// The order of cells.
    pub fn comparator(&self) -> CellComparator {
        unimplemented!()
    }
    /// Copies a cell, its sequence id set, into the MemStore. Many threads at once.
    pub fn add(&self, cell: &CellRef<'_>) {
        let _ = cell;
        unimplemented!()
    }
    /// Active segment and snapshots together.
    pub fn memstore_size(&self) -> MemStoreSize {
        unimplemented!()
    }
    /// What a flush started now would write, or the one that is under way is writing.
    pub fn snapshot_size(&self) -> MemStoreSize {
        unimplemented!()
    }
    /// The greatest sequence id of its files, 0 without files.
    pub fn max_seq_id(&self) -> u64 {
        unimplemented!()
    }
    /// Freezes the active segment; false when there is nothing to flush. The caller keeps writers out meanwhile.
    pub fn start_flush(&self) -> bool {
        unimplemented!()
    }
    /// Writes the frozen segments to a file beside the family; `None` when nothing of them is worth keeping.
    pub fn flush_snapshot(&self, flush_seq_id: u64, smallest_read_point: u64) -> Result<Option<PathBuf>> {
        let _ = (flush_seq_id, smallest_read_point);
        unimplemented!()
    }
    /// Moves the file into the family's directory, and swaps it for the frozen segments. Gives the files' names.
    pub fn commit_flush(&self, file: Option<PathBuf>) -> Result<Vec<String>> {
        let _ = file;
        unimplemented!()
    }
    /// Gives a flush up: the frozen segments stay readable and are part of the next flush.
    pub fn abort_flush(&self) {
        unimplemented!()
    }
    /// Chooses files to compact; they are marked until the request is compacted or dropped.
    pub fn select_compaction(&self, major: bool) -> Option<CompactionRequest> {
        let _ = major;
        unimplemented!()
    }
    /// Whether there are enough files.
    pub fn needs_compaction(&self) -> bool {
        unimplemented!()
    }
    /// Merges the files of a request into a new one, beside the family. Nothing changes for readers.
    pub fn compact(&self, request: &CompactionRequest, smallest_read_point: u64) -> Result<CompactionResult> {
        let _ = (request, smallest_read_point);
        unimplemented!()
    }
    /// Puts the result in place of the request's files; those are archived when no reader holds them.
    pub fn commit_compaction(&self, request: CompactionRequest, result: &CompactionResult) -> Result<()> {
        let _ = (request, result);
        unimplemented!()
    }
    /// Archives compacted files that no reader holds any more. Returns how many are left.
    pub fn archive_compacted(&self) -> Result<usize> {
        unimplemented!()
    }
    /// Its files, oldest first.
    pub fn files(&self) -> Vec<StoreFileInfo> {
        unimplemented!()
    }
    /// Bytes of its files.
    pub fn file_bytes(&self) -> u64 {
        unimplemented!()
    }
    /// Whether any file is a reference.
    pub fn has_references(&self) -> bool {
        unimplemented!()
    }
    /// The middle row of the largest file; `None` when there is none to split at.
    pub fn split_row(&self) -> Option<bytes::Bytes> {
        unimplemented!()
    }
    /// Ends the store: archives what was compacted, and forgets its blocks when `evict`.
    pub fn close(&self, evict: bool) -> Result<()> {
        let _ = evict;
        unimplemented!()
    }
}
