//! Files in the family's directory that are not the store's, because its list does not name them:
//! outputs of a server that died, and files that a compaction replaced before it died. A store
//! whose tracker reads no list has none, since every file of the directory counts.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use evenkeel_block_cache::NoCache;
use evenkeel_common::{ErrorKind, Result};
use evenkeel_fs::FileStatus;
use evenkeel_hfile::{HFileReader, OpenOptions};

use super::Store;
use super::file::name::FileName;
use crate::archive::archive_file;
use crate::links;
use crate::store_file_tracker::TrackerKind;

/// What [`Store::remove_broken_file`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovedFile {
    /// It could not be opened as a store file, and was deleted.
    Deleted,
    /// It is a whole HFile, or it points to one, and was archived.
    Archived,
    /// It was gone.
    Gone,
}

impl Store {
    /// Archives files that no other call of this store will archive, when its region is opened:
    /// those that the store's files have replaced; and with MIGRATION from FILE all that are not
    /// listed, because the next tracker takes every file of the directory. Returns their number.
    ///
    /// # Errors
    /// `IOException` from the file system; the next open continues. With MIGRATION from FILE also
    /// if a list is missing: its files would be archived.
    pub(crate) fn archive_unlisted(&self) -> Result<usize> {
        let kind = self.tracker.kind();
        let replaced: HashSet<String> = match kind.reads_list() {
            true => self.state.load().files.iter().flat_map(|file| file.replaces()).collect(),
            false => return Ok(0),
        };
        if replaced.is_empty() && kind == TrackerKind::File {
            return Ok(0);
        }
        let mut unlisted = self.unlisted(self.visible_files()?);
        unlisted.retain(|file| match kind {
            TrackerKind::FileToDefault => FileName::parse(file.name()).is_some(),
            _ => replaced.contains(file.name()),
        });
        if !unlisted.is_empty() && kind == TrackerKind::FileToDefault && self.tracker.is_in_doubt() {
            let count = unlisted.len();
            return Err(
                self.error(format!("a list of store files is missing, and {count} files are in none"))
            );
        }
        for file in &unlisted {
            tracing::info!(path = %file.path.display(), "not in the list of store files; archived");
            archive_file(&*self.env.fs, &file.path, &self.dirs.archive, self.env.clock.now_ms())?;
        }
        Ok(unlisted.len())
    }

    /// Returns the visible files of the family's directory.
    ///
    /// # Errors
    /// `IOException` from the file system.
    pub(crate) fn visible_files(&self) -> Result<Vec<FileStatus>> {
        let mut files = self.env.fs.list(&self.dirs.family)?;
        files.retain(|file| !file.is_dir && !file.name().starts_with('.'));
        Ok(files)
    }

    /// Returns those of the visible files that are older than `ttl_ms` and that the list does not
    /// name (`BrokenStoreFileCleaner`); none while a list may be lost. The caller excludes flushes,
    /// compactions and bulk loads, whose files are not listed yet.
    ///
    /// # Errors
    /// `IOException` if the list cannot be written, or an earlier output cannot be deleted.
    pub(crate) fn broken_files(&self, visible: Vec<FileStatus>, ttl_ms: i64) -> Result<Vec<FileStatus>> {
        if self.tracker.kind() != TrackerKind::File || self.tracker.is_in_doubt() {
            return Ok(Vec::new());
        }
        self.discard_leftovers()?;
        // The list on disk may name a file of a change that failed, until it is written again.
        self.tracker.revert(&[], &[])?;
        let before_ms = self.env.clock.now_ms().saturating_sub(ttl_ms);
        let is_old =
            |file: &FileStatus| file.modified_ms < before_ms && links::is_store_file_name(file.name());
        let unlisted = self.unlisted(visible).into_iter();
        Ok(unlisted.filter(is_old).collect())
    }

    /// Removes a file that [`Store::broken_files`] has returned: archives a whole HFile, a link and
    /// a reference, and deletes anything else.
    ///
    /// # Errors
    /// `IOException` from the file system, and for a file that a list may name.
    pub(crate) fn remove_broken_file(&self, path: &Path) -> Result<RemovedFile> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if self.served_names().contains(name) {
            return Err(self.error(format!("{name} is served")));
        }
        let fs = &*self.env.fs;
        let removed = match self.is_whole(path, name) {
            Ok(true) => RemovedFile::Archived,
            Ok(false) => RemovedFile::Deleted,
            Err(error) if !fs.exists(path)? => {
                tracing::debug!(path = %path.display(), %error, "a broken store file is gone");
                return Ok(RemovedFile::Gone);
            }
            Err(error) => return Err(error),
        };
        self.tracker.remove_unlisted(name, || {
            if removed == RemovedFile::Deleted {
                return Ok(fs.delete(path).map(drop)?);
            }
            Ok(archive_file(fs, path, &self.dirs.archive, self.env.clock.now_ms()).map(drop)?)
        })?;
        Ok(removed)
    }

    /// Returns true for a file that a store could serve.
    fn is_whole(&self, path: &Path, name: &str) -> Result<bool> {
        if matches!(FileName::parse(name), Some(FileName::Link(_) | FileName::Reference { .. })) {
            return Ok(true);
        }
        if self.env.fs.status(path)?.len == 0 {
            return Ok(false);
        }
        match HFileReader::open_path(&*self.env.fs, path, Arc::new(NoCache), &OpenOptions::default()) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::CorruptHFile => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The names of the files that are served or waiting for their last reader.
    fn served_names(&self) -> HashSet<String> {
        let (state, replaced) = (self.state.load(), self.replaced.lock());
        state.files.iter().chain(replaced.iter()).map(|file| file.name().to_owned()).collect()
    }

    /// Returns those of the visible files that are neither listed, nor served, nor waiting for
    /// their last reader. What is served and what is listed may differ after a failed change.
    fn unlisted(&self, mut visible: Vec<FileStatus>) -> Vec<FileStatus> {
        let (served, listed) = (self.served_names(), self.tracker.names());
        visible.retain(|file| !served.contains(file.name()) && !listed.contains(file.name()));
        visible
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use evenkeel_common::CellType;

    use super::super::testing::TestStore;
    use super::*;
    use crate::store_file_tracker::{TRACKER_IMPL, list_file};

    /// Every file is older.
    const ALL_OLD: i64 = i64::MIN / 2;

    fn store_with_files(count: usize) -> TestStore {
        let mut test = TestStore::new(&[(TRACKER_IMPL, "FILE")]);
        for _ in 0..count {
            test.add("r", "q", 1, CellType::Put, "v");
            test.flush(u64::MAX);
        }
        test
    }

    fn broken(test: &TestStore) -> Vec<PathBuf> {
        let visible = test.store.visible_files().expect("listed");
        let broken = test.store.broken_files(visible, ALL_OLD).expect("looked");
        broken.into_iter().map(|file| file.path).collect()
    }

    /// As after a compaction whose marker is perhaps logged, and whose log has then failed.
    #[test]
    fn neither_listed_nor_served_files_are_broken() {
        let test = store_with_files(3);
        let request = test.store.select_compaction(true).expect("three files");
        let result = test.store.compact(&request, u64::MAX).expect("written");
        test.store.install_compaction(&result).expect("listed");
        let dir = &test.store.dirs.family;
        let listed = list_file::read(&*test.env.fs, dir).expect("read").expect("there");
        assert_eq!(listed.len(), 1, "the output");
        assert_eq!(test.store.files().len(), 3, "the inputs are served");
        assert!(broken(&test).is_empty());
        test.store.remove_broken_file(&dir.join(&listed[0].name)).expect_err("it is listed");
        test.store.remove_broken_file(&dir.join(&result.inputs[0])).expect_err("it is served");
        assert_eq!(test.store.visible_files().expect("listed").len(), 4);
    }

    /// A list that was lost may have named them.
    #[test]
    fn without_their_list_files_are_kept() {
        let mut test = store_with_files(2);
        let (dir, fs) = (test.store.dirs.family.clone(), Arc::clone(&test.env.fs));
        let lists = dir.join(".filelist");
        for list in fs.list(&lists).expect("lists") {
            fs.delete(&list.path).expect("deleted");
        }
        test.reopen();
        assert!(test.store.files().is_empty() && broken(&test).is_empty());
        test.add("s", "q", 1, CellType::Put, "v");
        test.flush(u64::MAX);
        assert!(broken(&test).is_empty(), "nor after a new list");
        assert_eq!(test.store.visible_files().expect("listed").len(), 3);

        fs.write_atomically(&lists.join("f1.99999999999999"), b"").expect("written");
        test.reopen();
        assert_eq!(test.store.files().len(), 1, "the list before the incomplete one holds");
        assert!(broken(&test).is_empty());
        test.reopen();
        assert_eq!(broken(&test).len(), 0, "until a list is written");
    }

    #[test]
    fn whole_files_are_archived_and_others_deleted() {
        let test = store_with_files(1);
        let fs = &*test.env.fs;
        let (dir, archive) = (&test.store.dirs.family, &test.store.dirs.archive);
        let served = dir.join(&test.store.files()[0].name);
        let whole = fs.read_all(&served, 1 << 20).expect("read");
        let half = &whole[..whole.len() / 2];
        for (name, content) in [("00aa", &whole[..]), ("00bb", half), ("00cc", b""), ("00dd.0123", b"r")] {
            fs.write_atomically(&dir.join(name), content).expect("written");
        }
        let mut found = broken(&test);
        found.sort();
        let removed: Vec<_> =
            found.iter().map(|path| test.store.remove_broken_file(path).expect("removed")).collect();
        let wanted =
            [RemovedFile::Archived, RemovedFile::Deleted, RemovedFile::Deleted, RemovedFile::Archived];
        assert_eq!(removed, wanted);
        assert_eq!(fs.read_all(&archive.join("00aa"), 1 << 20).expect("archived"), whole);
        assert!(fs.exists(&archive.join("00dd.0123")).expect("looked"));
        let left = test.store.visible_files().expect("listed");
        assert_eq!(left.iter().map(|file| &file.path).collect::<Vec<_>>(), [&served]);
        assert_eq!(test.store.remove_broken_file(&found[0]).expect("nothing to do"), RemovedFile::Gone);
    }
}
