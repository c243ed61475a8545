//! Snapshots on disk, in HBase's layout version 2. Those of layout version 0 are read
//! ([`manifest_v1`]).
//!
//! ```text
//! .hbase-snapshot/<name>/.snapshotinfo    SnapshotDescription, bare
//! .hbase-snapshot/<name>/data.manifest    SnapshotDataManifest, bare: descriptor, files
//! .hbase-snapshot/.tmp/<name>/            the same, being created or deleted
//! ```
//! The rename out of `.tmp` publishes a snapshot; the rename into it deletes the snapshot.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use evenkeel_common::{ErrorKind, HBaseError, RegionInfo, Result, TableDescriptor};
use evenkeel_fs::{FileStatus, FileSystem};
use evenkeel_hfile::{HFileLink, StoreFileName};
use evenkeel_protocol::pb;
use prost::Message;

use super::manifest_v1;
use crate::tables::checks::descriptor_bytes;

const DIR: &str = ".hbase-snapshot";
const WORKING_DIR: &str = ".tmp";
const INFO_FILE: &str = ".snapshotinfo";
const MANIFEST_FILE: &str = "data.manifest";
/// The layout version (`SnapshotManifestV2.DESCRIPTOR_VERSION`).
pub const LAYOUT_VERSION: i32 = 2;
/// The largest description that is read. HBase stores the permissions of the table in it.
const INFO_BYTES_MAX: u64 = 1 << 20;
/// The largest description of a new snapshot, in bytes. A list of all snapshots reads each of them.
pub const NEW_INFO_BYTES_MAX: usize = 64 << 10;
/// The largest manifest that is read unless `snapshot.manifest.size.limit` is set.
pub const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// The snapshots below a root directory.
#[derive(Clone, Copy)]
pub struct SnapshotStore<'a> {
    fs: &'a dyn FileSystem,
    root: &'a Path,
    manifest_bytes_max: u64,
}

/// A snapshot read from disk.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Its name, its table and its creation time.
    pub description: pb::SnapshotDescription,
    /// The table's descriptor at that time.
    pub table: TableDescriptor,
    /// Its regions and their files.
    pub regions: Vec<pb::SnapshotRegionManifest>,
}

impl Snapshot {
    /// Returns the bytes of its description, its descriptor and its regions on disk.
    pub(super) fn bytes(&self) -> usize {
        let regions: usize = self.regions.iter().map(Message::encoded_len).sum();
        self.description.encoded_len() + descriptor_bytes(&self.table) + regions
    }
}

impl<'a> SnapshotStore<'a> {
    /// Creates a store of the snapshots below `root`, with a limit on the size of manifests.
    pub fn new(fs: &'a dyn FileSystem, root: &'a Path, manifest_bytes_max: u64) -> Self {
        Self { fs, root, manifest_bytes_max }
    }

    /// Returns the directory of a snapshot.
    pub fn dir(&self, name: &str) -> PathBuf {
        self.root.join(DIR).join(name)
    }

    fn working_dir(&self, name: &str) -> PathBuf {
        self.root.join(DIR).join(WORKING_DIR).join(name)
    }

    /// Returns true if a snapshot exists.
    ///
    /// # Errors
    /// `IOException` from the file system.
    pub fn exists(&self, name: &str) -> Result<bool> {
        Ok(self.fs.exists(&self.dir(name))?)
    }

    /// Calls `visit` with every snapshot's description, ordered by name. One that cannot be read is
    /// logged and skipped.
    ///
    /// # Errors
    /// `IOException` from the file system; errors of `visit`, which end the call.
    pub fn visit(&self, mut visit: impl FnMut(pb::SnapshotDescription) -> Result<()>) -> Result<()> {
        for dir in self.dirs()? {
            if !self.fs.exists(&dir.path.join(INFO_FILE))? {
                continue;
            }
            match self.description_in(&dir.path) {
                Ok(description) => visit(description)?,
                Err(error) => {
                    tracing::warn!(snapshot = dir.name(), %error, "the snapshot cannot be read")
                }
            }
        }
        Ok(())
    }

    /// Returns the directories of published snapshots.
    fn dirs(&self) -> Result<Vec<FileStatus>> {
        let mut dirs = list_or_nothing(self.fs, &self.root.join(DIR))?;
        dirs.retain(|entry| entry.is_dir && entry.name() != WORKING_DIR);
        Ok(dirs)
    }

    /// Returns the directories of snapshots, including those in progress by this server or a tool.
    ///
    /// # Errors
    /// `IOException` from the file system.
    pub fn all_dirs(&self) -> Result<Vec<FileStatus>> {
        let mut dirs = self.dirs()?;
        dirs.extend(
            list_or_nothing(self.fs, &self.root.join(DIR).join(WORKING_DIR))?
                .into_iter()
                .filter(|e| e.is_dir),
        );
        Ok(dirs)
    }

    /// Returns a snapshot's description.
    ///
    /// # Errors
    /// `SnapshotDoesNotExistException`, `CorruptedSnapshotException`.
    pub fn description(&self, name: &str) -> Result<pb::SnapshotDescription> {
        if !self.exists(name)? {
            let message = format!("Snapshot '{name}' doesn't exist on the filesystem");
            return Err(HBaseError::new(ErrorKind::SnapshotDoesNotExist, message));
        }
        self.description_in(&self.dir(name))
    }

    fn description_in(&self, dir: &Path) -> Result<pb::SnapshotDescription> {
        let path = dir.join(INFO_FILE);
        let unreadable = |why: &dyn std::fmt::Display| {
            corrupted(format!("Couldn't read snapshot info from:{}: {why}", path.display()))
        };
        let bytes = self.fs.read_all(&path, INFO_BYTES_MAX).map_err(|e| unreadable(&e))?;
        let description = pb::SnapshotDescription::decode(Bytes::from(bytes)).map_err(|e| unreadable(&e))?;
        if description.name.is_empty() { Err(unreadable(&"it has no name")) } else { Ok(description) }
    }

    /// Reads a complete snapshot.
    ///
    /// # Errors
    /// `SnapshotDoesNotExistException`, `CorruptedSnapshotException`.
    pub fn read(&self, name: &str) -> Result<Snapshot> {
        let description = self.description(name)?;
        let manifest = self.manifest_in(&self.dir(name), &description)?;
        let table = TableDescriptor::try_from(&manifest.table_schema)
            .map_err(|e| corrupted(format!("Missing Table Descriptor: {}", e.message())))?;
        Ok(Snapshot { description, table, regions: manifest.region_manifests })
    }

    fn manifest_in(
        &self,
        dir: &Path,
        description: &pb::SnapshotDescription,
    ) -> Result<pb::SnapshotDataManifest> {
        match description.version() {
            LAYOUT_VERSION => (),
            manifest_v1::LAYOUT_VERSION => return manifest_v1::read(self.fs, dir, self.manifest_bytes_max),
            other => return Err(corrupted(format!("Invalid Snapshot version: {other}"))),
        }
        let unreadable =
            |why: &dyn std::fmt::Display| corrupted(format!("unable to parse data manifest {why}"));
        let bytes = self
            .fs
            .read_all(&dir.join(MANIFEST_FILE), self.manifest_bytes_max)
            .map_err(|e| unreadable(&e))?;
        pb::SnapshotDataManifest::decode(Bytes::from(bytes)).map_err(|e| unreadable(&e))
    }

    /// Returns the names of all files that the snapshot in `dir` needs
    /// (`SnapshotReferenceUtil.getHFileNames`).
    ///
    /// # Errors
    /// As [`SnapshotStore::read`].
    pub fn file_names(&self, dir: &Path) -> Result<Vec<String>> {
        let manifest = self.manifest_in(dir, &self.description_in(dir)?)?;
        let families = manifest.region_manifests.iter().flat_map(|region| &region.family_files);
        Ok(families
            .flat_map(|family| &family.store_files)
            .flat_map(|file| target_file_names(&file.name))
            .collect())
    }

    /// Returns the status of the manifest in a snapshot's directory, or of the description of a
    /// snapshot in a layout without manifest. Returns `None` if the snapshot names no files yet.
    ///
    /// # Errors
    /// `IOException` from the file system; `CorruptedSnapshotException` if there is no manifest and
    /// the description cannot be read.
    pub fn manifest_status(&self, dir: &Path) -> Result<Option<FileStatus>> {
        if let Some(status) = self.status(&dir.join(MANIFEST_FILE))? {
            return Ok(Some(status));
        }
        match self.status(&dir.join(INFO_FILE))? {
            Some(status) if self.description_in(dir)?.version() == manifest_v1::LAYOUT_VERSION => {
                Ok(Some(status))
            }
            _ => Ok(None),
        }
    }

    fn status(&self, path: &Path) -> Result<Option<FileStatus>> {
        match self.fs.status(path) {
            Ok(status) => Ok(Some(status)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes a snapshot to `.tmp`; [`SnapshotStore::publish`] publishes it.
    ///
    /// # Errors
    /// `IOException` from the file system.
    pub fn prepare(&self, snapshot: &Snapshot) -> Result<()> {
        let dir = self.working_dir(&snapshot.description.name);
        self.fs.delete(&dir)?;
        self.fs.mkdirs(&dir)?;
        self.fs.write_atomically(&dir.join(INFO_FILE), &snapshot.description.encode_to_vec())?;
        let manifest = pb::SnapshotDataManifest {
            table_schema: pb::TableSchema::from(&snapshot.table),
            region_manifests: snapshot.regions.clone(),
        };
        Ok(self.fs.write_atomically(&dir.join(MANIFEST_FILE), &manifest.encode_to_vec())?)
    }

    /// Publishes a prepared snapshot.
    ///
    /// # Errors
    /// `IOException` from the file system.
    pub fn publish(&self, name: &str) -> Result<()> {
        Ok(self.fs.rename(&self.working_dir(name), &self.dir(name))?)
    }

    /// Discards a snapshot that was not published.
    ///
    /// # Errors
    /// `IOException` from the file system.
    pub fn discard(&self, name: &str) -> Result<()> {
        self.fs.delete(&self.working_dir(name))?;
        Ok(())
    }

    /// Deletes a snapshot: completely or not at all.
    ///
    /// # Errors
    /// Returns `SnapshotDoesNotExistException`, or errors of the file system.
    pub fn delete(&self, name: &str) -> Result<()> {
        self.description(name).map(drop).or_else(|error| match error.kind() {
            ErrorKind::SnapshotDoesNotExist => Err(error),
            _ => Ok(()),
        })?;
        // No snapshot's name starts with a hyphen.
        let deleting_dir = self.working_dir(&format!("-{name}"));
        self.fs.mkdirs(&self.root.join(DIR).join(WORKING_DIR))?;
        self.fs.delete(&deleting_dir)?;
        self.fs.rename(&self.dir(name), &deleting_dir)?;
        self.fs.delete(&deleting_dir)?;
        Ok(())
    }

    /// Removes snapshots that a dead process was creating or deleting.
    ///
    /// # Errors
    /// `IOException` from the file system.
    pub fn discard_unfinished(&self) -> Result<()> {
        for entry in list_or_nothing(self.fs, &self.root.join(DIR).join(WORKING_DIR))? {
            tracing::info!(snapshot = entry.name(), "unfinished snapshot removed");
            self.fs.delete(&entry.path)?;
        }
        Ok(())
    }
}

/// Returns a `CorruptedSnapshotException`.
pub fn corrupted(message: impl Into<String>) -> HBaseError {
    HBaseError::new(ErrorKind::CorruptedSnapshot, message)
}

/// Parses a region of a manifest.
///
/// # Errors
/// Returns `CorruptedSnapshotException` if it is invalid.
pub fn region_of(manifest: &pb::SnapshotRegionManifest) -> Result<RegionInfo> {
    RegionInfo::try_from(&manifest.region_info).map_err(|e| corrupted(e.message()))
}

/// Returns the names under which the file of a manifest's entry may be in a directory: the name of
/// the entry, and those of the files that it refers to.
fn target_file_names(name: &str) -> Vec<String> {
    let of_link = |link: &HFileLink| link.hfile.clone();
    match StoreFileName::parse(name) {
        Some(StoreFileName::Link(link)) => vec![of_link(&link)],
        Some(StoreFileName::Reference { target, .. }) => {
            let linked = HFileLink::parse(&target).as_ref().map(of_link);
            [name.to_owned(), target].into_iter().chain(linked).collect()
        }
        _ => vec![name.to_owned()],
    }
}

fn list_or_nothing(fs: &dyn FileSystem, dir: &Path) -> Result<Vec<FileStatus>> {
    match fs.list(dir) {
        Ok(entries) => Ok(entries),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}
