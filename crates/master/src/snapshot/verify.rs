//! Checks that every file of a snapshot exists (`SnapshotReferenceUtil.verifySnapshot`), before the
//! snapshot is cloned or restored.

use std::path::Path;

use evenkeel_common::{Result, TableName};
use evenkeel_fs::FileSystem;
use evenkeel_hfile::{HFileLink, StoreFileName};
use evenkeel_protocol::pb::snapshot_region_manifest::StoreFile;

use super::store::{Snapshot, corrupted, region_of};
use crate::links;

/// An entry of a manifest: the file that it refers to, and the file's region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// A whole file, directly or through a link.
    File(HFileLink),
    /// Half of a file of a region that was split or merged.
    Half {
        /// The file.
        file: HFileLink,
        /// The encoded name of the region that was split or merged.
        parent: String,
    },
}

impl Entry {
    /// Parses an entry of a manifest. `region` is the encoded name of the region that lists it.
    ///
    /// # Errors
    /// Returns `CorruptedSnapshotException` if the name is not one of a store file.
    pub(super) fn of(table: &TableName, region: &str, name: &str) -> Result<Self> {
        let entry = match StoreFileName::parse(name) {
            Some(StoreFileName::Reference { target, region: parent }) => {
                Self::Half { file: links::link_to(table, &parent, &target), parent }
            }
            Some(_) => Self::File(links::link_to(table, region, name)),
            None => return Err(corrupted(format!("{name} is not a store file"))),
        };
        let file = entry.file();
        // The parts of a link's name become path components.
        TableName::new(&file.namespace, &file.table)
            .map_err(|e| corrupted(format!("{name}: {}", e.message())))?;
        Ok(entry)
    }

    /// Returns the file that it refers to.
    pub(super) fn file(&self) -> &HFileLink {
        match self {
            Self::File(file) | Self::Half { file, .. } => file,
        }
    }
}

/// Checks that every file exists and has the recorded length.
///
/// # Errors
/// Returns `CorruptedSnapshotException` otherwise.
pub(super) fn verify(fs: &dyn FileSystem, root: &Path, snapshot: &Snapshot) -> Result<()> {
    for region in &snapshot.regions {
        let info = region_of(region)?;
        for family in &region.family_files {
            let name = std::str::from_utf8(&family.family_name).unwrap_or_default();
            if snapshot.table.family(&family.family_name).is_none() {
                return Err(corrupted(format!("family {name} is not in the table")));
            }
            for file in &family.store_files {
                let entry = Entry::of(info.table(), info.encoded_name(), &file.name)?;
                verify_file(fs, root, name, file, &entry)?;
            }
        }
    }
    Ok(())
}

fn verify_file(
    fs: &dyn FileSystem,
    root: &Path,
    family: &str,
    file: &StoreFile,
    entry: &Entry,
) -> Result<()> {
    let found = links::resolve(fs, root, entry.file(), family).map_err(|e| {
        corrupted(format!(
            "Can't find hfile: {} in the real or archive directory for the primary table: {e}",
            file.name
        ))
    })?;
    match file.file_size {
        Some(expected) if expected != found.len => Err(corrupted(format!(
            "hfile: {} size does not match with the expected one.  found={} expected={expected}",
            file.name, found.len
        ))),
        _ => Ok(()),
    }
}
