//! Stores of secondary replicas: the files of a store that another one writes, and a MemStore of
//! replayed edits, which is the active segment alone.
//!
//! The listing of a directory is not atomic: a file may be renamed into it, and others out of it,
//! while it is read. A compaction renames its output into the directory before it archives its
//! inputs, so a listing that begins when the inputs are gone has the output. [`Store::find_files`]
//! lists until two listings agree, or until one agrees with the files that are served already.

use std::collections::BTreeSet;
use std::sync::Arc;

use evenkeel_common::{KeyBuf, Result};
use evenkeel_fs::FileStatus;

use super::file::name::FileName;
use super::{Store, StoreFile, sorted, view};
use crate::memstore::{Segment, SegmentScanner};
use crate::scanner::KeyValueScanner;

/// Listings of a directory that differ, after which a refresh gives up until the next one.
const LISTINGS_MAX: usize = 8;

impl Store {
    /// Returns true if this is a store of a secondary replica.
    pub(super) fn is_secondary(&self) -> bool {
        !self.region.is_primary()
    }

    /// Opens the store's files: those of the default replica.
    pub(super) fn load_files_of_primary(&self) -> Result<()> {
        let files = self.open_found(&self.list_files()?)?;
        self.replace_state(|state| state.files = files);
        self.state.load().files.iter().for_each(|file| self.prefetch(file));
        Ok(())
    }

    /// Returns the store's files, with the new ones opened; `None` if they are those that it has.
    ///
    /// # Errors
    /// `IOException` from the file system, for a damaged list of store files, and if the directory
    /// changes too fast; `CorruptHFileException`.
    pub(crate) fn find_files(&self) -> Result<Option<Vec<Arc<StoreFile>>>> {
        let files = self.open_found(&self.list_files()?)?;
        let is_same = {
            let state = self.state.load();
            let names = state.files.iter().map(|file| file.name());
            names.eq(files.iter().map(|file| file.name()))
        };
        Ok((!is_same).then_some(files))
    }

    /// Returns a segment with the cells of the MemStore above a sequence id, to which they are in
    /// files, and up to `through`; `None` if the MemStore is empty. The caller excludes writers.
    pub(crate) fn kept_segment(&self, in_files: u64, through: u64) -> Option<Arc<Segment>> {
        let active = Arc::clone(&self.state.load().active);
        if active.is_empty() {
            return None;
        }
        let kept = active.next();
        if through > in_files {
            let mut scanner = SegmentScanner::new(active, u64::MAX);
            // A segment is in memory: neither call fails.
            let mut found = scanner.seek(&KeyBuf::first_on_row(b"").as_cell());
            while let (Ok(()), Some(cell)) = (&found, scanner.peek()) {
                if cell.seq_id() > in_files && cell.seq_id() <= through {
                    kept.add(cell);
                }
                found = scanner.advance();
            }
        }
        Some(kept)
    }

    /// Serves these files from now on, and this segment, if they are given. Readers release the
    /// files that are served no longer.
    pub(crate) fn swap_found(&self, files: Option<Vec<Arc<StoreFile>>>, segment: Option<Arc<Segment>>) {
        let mut dropped = Vec::new();
        self.replace_state(|state| {
            if let Some(files) = files {
                let is_kept = |file: &Arc<StoreFile>| files.iter().any(|kept| Arc::ptr_eq(kept, file));
                dropped = state.files.iter().filter(|file| !is_kept(file)).cloned().collect();
                state.files = files;
            }
            state.active = segment.unwrap_or_else(|| Arc::clone(&state.active));
        });
        self.replaced.lock().extend(dropped);
    }

    /// Makes the views of earlier readers differ from new ones.
    pub(crate) fn renew_views(&self) {
        self.replace_state(|_: &mut view::StoreState| ());
    }

    /// Lists the files until two listings agree.
    fn list_files(&self) -> Result<Vec<FileStatus>> {
        let served = self.state.load().files.iter().map(|file| file.name().to_owned()).collect();
        let mut before: BTreeSet<String> = served;
        for _ in 0..LISTINGS_MAX {
            let mut found = self.tracker.observe()?;
            found.retain(|file| !file.is_dir && FileName::parse(file.name()).is_some());
            let names: BTreeSet<String> = found.iter().map(|file| file.name().to_owned()).collect();
            if names == before {
                return Ok(found);
            }
            before = names;
        }
        Err(self.error("the files of the default replica change too fast"))
    }

    /// Returns the files of a listing, oldest first, without those that a compaction has replaced.
    fn open_found(&self, found: &[FileStatus]) -> Result<Vec<Arc<StoreFile>>> {
        let state = self.state.load_full();
        let mut files = Vec::with_capacity(found.len());
        // Replaced files stay in the directory while the default replica reads them. A file that is
        // gone replaces nothing: the default replica deletes the output of a compaction that fails.
        let listed: BTreeSet<&str> = found.iter().map(FileStatus::name).collect();
        let served = state.files.iter().filter(|file| listed.contains(file.name()));
        let replaced: BTreeSet<String> = served.flat_map(|file| file.replaces()).collect();
        for status in found.iter().filter(|status| !replaced.contains(status.name())) {
            match state.files.iter().find(|file| file.name() == status.name()) {
                Some(open) => files.push(Arc::clone(open)),
                None => files.extend(StoreFile::open_listed(self, status)?.map(Arc::new)),
            }
        }
        let replaced: BTreeSet<String> = files.iter().flat_map(|file| file.replaces()).collect();
        files.retain(|file| !replaced.contains(file.name()));
        Ok(sorted(files))
    }
}
