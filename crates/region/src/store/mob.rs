//! MOB files of a store: where they are, how references are resolved, and how they are written.
//!
//! `evenkeel_common::mob` draws the formats. A MOB file is a HFile with whole cells; a store file
//! has a reference in the place of each. MOB files belong to a table, and are in its MOB region's
//! directory, beside those of other regions; the region that wrote a file is in its name.
//!
//! ```text
//! flush, compaction   cells with long values -> MOB file in the region's .tmp, synced, read back
//!                     rename into mobdir, durable                          nobody refers to it yet
//!                     store file with the references, its MOB_FILE_REFS -> committed
//! read                reference -> MOB file in mobdir, else in the archive: of the table in the
//!                     reference, then of the store's own table
//! cleaner             files without a reference, older than hbase.mob.min.age.archive -> archive
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `config` | [`MobConfig`]: settings of compactions |
//! | `file_cache` | [`MobFileCache`]: open MOB files, at most `hbase.mob.file.cache.size` |
//! | `metrics` | [`MobMetrics`]: counts for reports |
//! | `reader` | [`MobReader`]: finds the cell of a reference |
//! | `references` | the MOB files that a store refers to, for the cleaner |
//! | `sources` | the MOB files that a compaction reads |
//! | `writer` | [`MobWriter`]: divides cells between MOB file and store file |
//!
//! # Invariants
//! * A MOB file is complete, durable, read back and in its place before a store file that refers to
//!   it is in its place. A crash or failure before leaves a MOB file that nothing refers to, which
//!   the cleaner archives.
//! * `MOB_FILE_REFS` of a store file that this store writes names every MOB file that a cell of it
//!   refers to. It is collected from the cells that were written, not from the inputs, so it is
//!   also exact for halves, links and bulk loaded files. Files of other families have it, too, if
//!   cells have tags, so that one without it was written elsewhere.
//! * A reference keeps its sequence id when other cells lose theirs, because there may be several
//!   cells of its key in the MOB file.
//! * A MOB file that was written and is not referred to by a file of the store's state is *pending*
//!   ([`MobStore::is_pending`]). The cleaner keeps pending files. If the store file that refers to
//!   it could neither be committed nor deleted, it stays pending until the process ends.
//! * A scanner holds its store files. Files that a compaction replaced stay in the store's list of
//!   replaced files until no scanner holds them, and their references count as long. So a file
//!   that a running scanner may need is not archived.
//!
//! # Differences from HBase
//! * A cell that the MOB file does not have is an error, or an empty value if the reader permits
//!   that. HBase returns the next cell of the file, whatever its key, or an empty value.
//! * If there are several cells of a key in a MOB file (a scanner was open while they were
//!   flushed), each reference gets the cell with its own sequence id. HBase returns the newest one
//!   that the scanner may see.
//! * A family whose `IS_MOB` was switched off resolves the references that its files have, and a
//!   requested major compaction writes their values into store files. HBase then returns the
//!   references themselves.
//! * A malformed reference, which a client may write as a tagged cell, does not stop flushes and
//!   compactions: they copy it. Reads return HBase's empty value.
//!
//! Locks: `pending` and the lock of the file cache are leaf locks, not held during I/O.

mod config;
mod file_cache;
mod metrics;
mod reader;
mod references;
mod sources;
#[cfg(test)]
mod tests;
mod writer;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use evenkeel_common::mob::{MobFileRefs, MobReference};
use evenkeel_common::{CellRef, ColumnFamilyDescriptor, RegionInfo, Result, TableName};
use evenkeel_hfile::{HFileReader, keys};
use parking_lot::Mutex;

pub use self::config::MobConfig;
pub use self::file_cache::{MobFileCache, MobFileCacheConfig};
pub use self::metrics::MobMetrics;
pub(super) use self::reader::{MobReader, MobScan};
pub use self::references::MobReferences;
pub(super) use self::writer::{MobJob, MobWriter};
use super::{Store, StoreEnv, StoreFile};

/// The MOB files of one store. See the module.
#[derive(Debug)]
pub(super) struct MobStore {
    reader: Arc<MobReader>,
    /// `MOB_THRESHOLD` in bytes; `None` if the family has no MOB files.
    threshold: Option<u64>,
    /// True if scanners look for references.
    resolves: AtomicBool,
    /// Names of written files that no file of the store's state refers to yet.
    pending: Mutex<HashSet<String>>,
}

impl MobStore {
    pub(super) fn new(env: &StoreEnv, family: &ColumnFamilyDescriptor, region: &RegionInfo) -> Self {
        let is_mob = family.is_mob();
        Self {
            reader: Arc::new(MobReader::new(env, family, region.table())),
            threshold: is_mob.then(|| family.mob_threshold()),
            resolves: AtomicBool::new(is_mob),
            pending: Mutex::default(),
        }
    }

    /// True if scanners and compactions look for references.
    #[inline]
    pub(super) fn resolves(&self) -> bool {
        self.resolves.load(Ordering::Relaxed)
    }

    /// The reader of references.
    pub(super) fn reader(&self) -> &Arc<MobReader> {
        &self.reader
    }

    /// Notes a file of the store before readers see it: if it has references, or may have some,
    /// scanners resolve them, although the family may have no MOB files any more.
    pub(super) fn note_file(&self, reader: &HFileReader) {
        if has_references(reader) || references::may_refer(reader) {
            self.resolves.store(true, Ordering::Relaxed);
        }
    }

    /// Returns true if a file was written here and its store file may still be committed.
    pub(super) fn is_pending(&self, name: &str) -> bool {
        self.pending.lock().contains(name)
    }

    fn begin_file(&self, name: &str) {
        self.pending.lock().insert(name.to_owned());
    }

    /// Ends the wait of files that are deleted.
    fn forget(&self, files: &[PathBuf]) {
        let mut pending = self.pending.lock();
        for name in files.iter().filter_map(|path| path.file_name()?.to_str()) {
            pending.remove(name);
        }
    }
}

impl Store {
    /// Ends the wait of the MOB files to which these files refer, which are in the store's state
    /// now.
    pub(super) fn settle_mob_files(&self, committed: &[Arc<StoreFile>]) {
        if !self.mob.resolves() || self.mob.pending.lock().is_empty() {
            return;
        }
        for refs in committed.iter().filter_map(|file| references_of(file.reader()).ok()) {
            let mut pending = self.mob.pending.lock();
            for (_, name) in refs.iter() {
                pending.remove(name);
            }
        }
    }

    /// Deletes MOB files to which no store file refers. A file that cannot be deleted is left to
    /// the cleaner.
    pub(super) fn discard_mob_files(&self, files: &[PathBuf]) {
        for path in files {
            self.evict_blocks(path);
            if let Err(error) = self.env.fs.delete(path) {
                tracing::warn!(path = %path.display(), %error, "a MOB file without references could not be deleted");
            }
        }
        self.mob.forget(files);
    }
}

/// Returns true if cells of a file refer to MOB files.
fn has_references(file: &HFileReader) -> bool {
    file.file_info(keys::MOB_FILE_REFS).is_some_and(|refs| refs.len() > 1)
}

/// Adds the file to which a cell refers, if it is a well-formed reference. `own` is the table of
/// the cell.
pub(super) fn note_reference(cell: &CellRef<'_>, own: &TableName, refs: &mut MobFileRefs) {
    if let Ok(reference) = MobReference::of(cell) {
        // A reference of HBase before the tag is to a file of its own table.
        let table = reference.table_name(cell).unwrap_or_else(|_| own.clone());
        refs.insert(&table.to_string(), reference.file);
    }
}

/// Returns the MOB files that a store file names.
///
/// # Errors
/// `IOException` if they are malformed.
fn references_of(file: &HFileReader) -> Result<MobFileRefs> {
    let refs = file.file_info(keys::MOB_FILE_REFS).map_or(Ok(MobFileRefs::default()), MobFileRefs::parse);
    refs.map_err(|error| error.context(file.name()))
}
