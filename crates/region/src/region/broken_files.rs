//! Removes files that no store lists (`BrokenStoreFileCleaner`), in two steps: a search, which
//! needs the region's locks for a moment, and the removal of one file at a time. A file that was
//! found stays unlisted, because new files have new names: but for those of bulk loads, which the
//! removal excludes.

use std::path::PathBuf;

use evenkeel_common::Result;
use evenkeel_fs::FileStatus;

use super::Region;
use super::bulk_load::UnfinishedLoad;
use crate::store::RemovedFile;
use crate::store_file_tracker::TrackerKind;

/// A file that no store lists.
#[derive(Debug)]
pub struct BrokenFile {
    /// The index of its store.
    store: usize,
    path: PathBuf,
    modified_ms: i64,
}

impl Region {
    /// Returns true if a file in the directory of a store may belong to none.
    pub fn may_have_broken_files(&self) -> bool {
        self.info.is_primary() && self.stores.iter().any(|store| store.tracker_kind() == TrackerKind::File)
    }

    /// Returns files in the directories of stores with the FILE tracker that their lists do not
    /// name and that are older than `ttl_ms`. Returns `None` while the region is flushed,
    /// compacted, bulk loaded or closed: the files of these are not listed yet.
    ///
    /// # Errors
    /// `IOException` from the file system.
    pub fn find_broken_files(&self, ttl_ms: i64) -> Result<Option<Vec<BrokenFile>>> {
        let with_list = self.stores.iter().enumerate();
        let with_list = with_list.filter(|(_, store)| store.tracker_kind() == TrackerKind::File);
        // Before the locks: what is new since then is not among these.
        let visible = with_list
            .map(|(at, store)| Ok((at, store, store.visible_files()?)))
            .collect::<Result<Vec<_>>>()?;
        let Some(_no_load) = self.bulk_loading.try_lock() else { return Ok(None) };
        let Some(_no_compaction) = self.compacting.try_lock() else { return Ok(None) };
        let Some(_no_flush) = self.flushing.try_lock() else { return Ok(None) };
        if self.is_closed() || !matches!(*self.unfinished.lock(), UnfinishedLoad::Nothing) {
            return Ok(None);
        }
        let mut found = Vec::new();
        for (at, store, visible) in visible {
            if self.flushing.is_awaited() {
                return Ok(None);
            }
            let broken = store.broken_files(visible, ttl_ms)?;
            let file =
                |file: FileStatus| BrokenFile { store: at, path: file.path, modified_ms: file.modified_ms };
            found.extend(broken.into_iter().map(file));
        }
        Ok(Some(found))
    }

    /// Removes a file that [`Region::find_broken_files`] has found: archives it if a store could
    /// serve it, and otherwise deletes it. Does nothing if the region is closed, or while it is
    /// bulk loaded: a repeated load has files of the same names.
    ///
    /// # Errors
    /// `IOException` from the file system, and for a file that a list may name.
    pub fn remove_broken_file(&self, file: &BrokenFile) -> Result<()> {
        let Some(store) = self.stores.get(file.store).filter(|_| !self.is_closed()) else { return Ok(()) };
        let Some(_no_load) = self.bulk_loading.try_lock() else { return Ok(()) };
        let modified = self.env.stores.fs.status(&file.path).map(|status| status.modified_ms);
        if modified.is_ok_and(|modified_ms| modified_ms != file.modified_ms) {
            return Ok(());
        }
        let path = file.path.display();
        match store.remove_broken_file(&file.path)? {
            RemovedFile::Deleted => tracing::info!(%path, "a broken store file was deleted"),
            RemovedFile::Archived => tracing::warn!(%path, "not in the list of store files; archived"),
            RemovedFile::Gone => {}
        }
        Ok(())
    }
}
