//! The delegates that decide whether a file may be deleted.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_common::Result;
use evenkeel_common::clock::Clock;
use evenkeel_fs::{FileStatus, FileSystem};
use evenkeel_hfile::HFileLink;
use parking_lot::Mutex;

use super::{file_name, links};
use crate::snapshot::store::SnapshotStore;

/// Decides which files may be deleted.
pub(super) trait Delegate: Send + Sync {
    /// Returns those of the files, all of one directory, that this delegate does not keep.
    fn deletable(&self, files: Vec<FileStatus>) -> Result<Vec<FileStatus>>;
}

/// Keeps files until they are older than the TTL (`BaseTimeToLiveFileCleaner`); frees files of
/// other kinds.
pub(super) struct TimeToLive {
    clock: Arc<dyn Clock>,
    ttl_ms: i64,
    is_own: fn(&Path) -> bool,
}

impl TimeToLive {
    pub(super) fn new(clock: &Arc<dyn Clock>, ttl_ms: i64, is_own: fn(&Path) -> bool) -> Self {
        Self { clock: Arc::clone(clock), ttl_ms, is_own }
    }
}

impl Delegate for TimeToLive {
    fn deletable(&self, mut files: Vec<FileStatus>) -> Result<Vec<FileStatus>> {
        let now_ms = self.clock.now_ms();
        // A file from the future counts as young: the clock went back, or the file is from another
        // machine.
        files.retain(|file| {
            !(self.is_own)(&file.path) || now_ms.saturating_sub(file.modified_ms) > self.ttl_ms
        });
        Ok(files)
    }
}

/// Keeps everything. Stands in for a delegate that this server does not implement.
pub(super) struct KeepAll;

impl Delegate for KeepAll {
    fn deletable(&self, _: Vec<FileStatus>) -> Result<Vec<FileStatus>> {
        Ok(Vec::new())
    }
}

/// Keeps files that links point to, and back references whose link exists (`HFileLinkCleaner`).
pub(super) struct LinkedFiles {
    fs: Arc<dyn FileSystem>,
    root: PathBuf,
}

impl LinkedFiles {
    pub(super) fn new(fs: Arc<dyn FileSystem>, root: &Path) -> Self {
        Self { fs, root: root.to_owned() }
    }

    fn is_free(&self, path: &Path) -> Result<bool> {
        if HFileLink::parse(file_name(path)).is_some() {
            return Ok(true);
        }
        if path.parent().is_some_and(|dir| links::is_back_references_dir(file_name(dir))) {
            return Ok(!links::is_referenced(&*self.fs, &self.root, path)?);
        }
        let Some(back_references) = links::back_references_dir(path) else { return Ok(false) };
        let found = match self.fs.list(&back_references) {
            Ok(found) => found,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        for back_reference in found {
            if links::is_referenced(&*self.fs, &self.root, &back_reference.path)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Delegate for LinkedFiles {
    fn deletable(&self, files: Vec<FileStatus>) -> Result<Vec<FileStatus>> {
        let mut free = Vec::with_capacity(files.len());
        for file in files {
            if self.is_free(&file.path)? {
                free.push(file);
            }
        }
        Ok(free)
    }
}

/// Identifies what names were read from: the manifest, or in layout 0 the description. Its
/// modification time and its length.
type ManifestVersion = (i64, u64);
type Names = Arc<HashSet<String>>;

/// Keeps files that a snapshot names (`SnapshotHFileCleaner`), also one in progress. While a
/// snapshot cannot be read, keeps all files.
pub(super) struct SnapshotFiles {
    fs: Arc<dyn FileSystem>,
    root: PathBuf,
    manifest_bytes_max: u64,
    known: Mutex<BTreeMap<PathBuf, (ManifestVersion, Names)>>,
}

impl SnapshotFiles {
    pub(super) fn new(fs: Arc<dyn FileSystem>, root: &Path, manifest_bytes_max: u64) -> Self {
        Self { fs, root: root.to_owned(), manifest_bytes_max, known: Mutex::default() }
    }

    /// Returns the names of every snapshot's files. Manifests that have not changed since they were
    /// read are not read again.
    fn names(&self) -> Result<Vec<Names>> {
        let store = SnapshotStore::new(&*self.fs, &self.root, self.manifest_bytes_max);
        let mut known = self.known.lock();
        let mut now = BTreeMap::new();
        for dir in store.all_dirs()? {
            let Some(status) = store.manifest_status(&dir.path)? else { continue };
            let stamp = (status.modified_ms, status.len);
            let names = match known.get(&dir.path) {
                Some((before, names)) if *before == stamp => Arc::clone(names),
                _ => Arc::new(store.file_names(&dir.path)?.into_iter().collect()),
            };
            now.insert(dir.path, (stamp, names));
        }
        *known = now;
        Ok(known.values().map(|(_, names)| Arc::clone(names)).collect())
    }
}

impl Delegate for SnapshotFiles {
    fn deletable(&self, mut files: Vec<FileStatus>) -> Result<Vec<FileStatus>> {
        match self.names() {
            Ok(snapshots) => {
                files.retain(|file| !snapshots.iter().any(|names| names.contains(file.name())));
                Ok(files)
            }
            Err(error) => {
                tracing::error!(%error, "a snapshot cannot be read: no file of the archive is deleted until it is repaired or deleted");
                Ok(Vec::new())
            }
        }
    }
}
