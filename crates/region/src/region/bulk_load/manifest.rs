//! The commit point of a bulk load: a manifest of which file goes where, written atomically before
//! the first file moves.
//!
//! ```text
//! <region>/.tmp/.bulkload-<32 hex digits>
//!   "PBUF"
//!   BulkLoadHFileRequest   length-delimited; family_path: where each file is
//!   BulkLoadDescriptor     length-delimited; stores: the new names, in the same order;
//!                          also the log's marker
//! ```
//! Before the manifest exists, no file is touched. Once it exists, the load is committed: the next
//! open of the region moves the files that are not in place yet ([`finish_all`]). A file is in
//! place if it is no longer at its source; it may have been compacted since. The manifest is
//! deleted once the load is in the log.
//!
//! HBase has no such manifest and clears `.tmp` when it opens a region. If an HBase server dies
//! during a load, only some of the files are loaded.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::path::{Path, PathBuf};

use bytes::Bytes;
use evenkeel_common::{HBaseError, Result};
use evenkeel_fs::FileSystem;
use evenkeel_protocol::{PB_MAGIC, pb};
use prost::Message;

use crate::layout::{self, BULK_LOAD_MANIFEST_PREFIX as PREFIX};

/// The maximum bytes of a manifest that is read back.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// A file and its destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::region) struct FileMove {
    pub family: Bytes,
    pub from: PathBuf,
    pub name: String,
}

/// A manifest, on disk or still to be written.
#[derive(Clone, Debug)]
pub(in crate::region) struct Manifest {
    region_dir: PathBuf,
    path: PathBuf,
    pub moves: Vec<FileMove>,
    pub marker: pb::BulkLoadDescriptor,
}

impl Manifest {
    /// Creates a manifest for the region in `region_dir`. The marker's stores list the moves in the
    /// same order.
    pub fn new(region_dir: PathBuf, moves: Vec<FileMove>, marker: pb::BulkLoadDescriptor) -> Self {
        let name = format!("{PREFIX}{}", uuid::Uuid::new_v4().simple());
        Self { path: region_dir.join(layout::TMP_DIR).join(name), region_dir, moves, marker }
    }

    /// Writes the manifest, which commits the load.
    ///
    /// # Errors
    /// `IOException` from the file system. The manifest may exist then, unless [`Manifest::delete`]
    /// succeeds.
    pub fn write(&self, fs: &dyn FileSystem) -> Result<()> {
        let family_path = |one: &FileMove| -> Result<pb::bulk_load_h_file_request::FamilyPath> {
            let path = one.from.to_str().ok_or_else(|| not_text(&one.from))?.to_owned();
            Ok(pb::bulk_load_h_file_request::FamilyPath { family: one.family.clone(), path })
        };
        let sources = pb::BulkLoadHFileRequest {
            family_path: self.moves.iter().map(family_path).collect::<Result<_>>()?,
            ..Default::default()
        };
        let mut bytes = PB_MAGIC.to_vec();
        bytes.extend(sources.encode_length_delimited_to_vec());
        bytes.extend(self.marker.encode_length_delimited_to_vec());
        Ok(fs.write_atomically(&self.path, &bytes)?)
    }

    fn read(fs: &dyn FileSystem, region_dir: &Path, path: PathBuf) -> Result<Self> {
        let bytes = fs.read_all(&path, MANIFEST_BYTES_MAX)?;
        let bad = |what: &dyn std::fmt::Display| HBaseError::io(format!("{}: {what}", path.display()));
        let mut rest = bytes.strip_prefix(PB_MAGIC).ok_or_else(|| bad(&"not a bulk load manifest"))?;
        let sources = pb::BulkLoadHFileRequest::decode_length_delimited(&mut rest).map_err(|e| bad(&e))?;
        let marker = pb::BulkLoadDescriptor::decode_length_delimited(&mut rest).map_err(|e| bad(&e))?;
        let names = marker.stores.iter().flat_map(|store| &store.store_file);
        if names.clone().count() != sources.family_path.len() || names.clone().any(|name| name.contains('/'))
        {
            return Err(bad(&"its two halves differ"));
        }
        let to_move = |(source, name): (pb::bulk_load_h_file_request::FamilyPath, &String)| FileMove {
            family: source.family,
            from: source.path.into(),
            name: name.clone(),
        };
        let moves = sources.family_path.into_iter().zip(names).map(to_move).collect();
        Ok(Self { region_dir: region_dir.to_owned(), path, moves, marker })
    }

    /// Moves every file that is still at its source.
    ///
    /// # Errors
    /// `IOException` from the file system. Call it again, or [`Manifest::undo`].
    pub fn apply(&self, fs: &dyn FileSystem) -> Result<()> {
        for one in self.moves.iter() {
            if fs.exists(&one.from)? {
                let to = self.target(one);
                if let Some(dir) = to.parent() {
                    fs.mkdirs(dir)?;
                }
                fs.rename(&one.from, &to)?;
            }
        }
        Ok(())
    }

    /// Moves every file back and deletes the manifest.
    ///
    /// # Errors
    /// `IOException` from the file system. While the manifest exists, the next open applies it.
    pub fn undo(&self, fs: &dyn FileSystem) -> Result<()> {
        for one in &self.moves {
            if !fs.exists(&one.from)? {
                fs.rename(&self.target(one), &one.from)?;
            }
        }
        self.delete(fs)
    }

    /// Deletes the manifest.
    ///
    /// # Errors
    /// `IOException` from the file system.
    pub fn delete(&self, fs: &dyn FileSystem) -> Result<()> {
        Ok(fs.delete(&self.path).map(drop)?)
    }

    /// Returns the new names of a family's files.
    pub fn names_of(&self, family: &[u8]) -> impl Iterator<Item = &str> {
        self.moves.iter().filter(move |one| one.family == family).map(|one| &*one.name)
    }

    fn target(&self, one: &FileMove) -> PathBuf {
        self.region_dir.join(&*String::from_utf8_lossy(&one.family)).join(&one.name)
    }
}

/// Applies every load that was interrupted when the region's last server died. The manifests stay
/// until the loads are in the log.
///
/// # Errors
/// `IOException` from the file system, or for an unreadable manifest.
pub(in crate::region) fn finish_all(fs: &dyn FileSystem, region_dir: &Path) -> Result<Vec<Manifest>> {
    let dir = region_dir.join(layout::TMP_DIR);
    if !fs.exists(&dir)? {
        return Ok(Vec::new());
    }
    let is_whole = |name: &str| name.strip_prefix(PREFIX).is_some_and(|id| id.len() == 32);
    let notes = fs.list(&dir)?.into_iter().filter(|entry| !entry.is_dir && entry.name().starts_with(PREFIX));
    let mut finished = Vec::new();
    for note in notes {
        if !is_whole(note.name()) {
            fs.delete(&note.path)?;
            continue;
        }
        let manifest = Manifest::read(fs, region_dir, note.path)?;
        manifest.apply(fs)?;
        tracing::info!(note = %manifest.path.display(), "an interrupted bulk load was finished");
        finished.push(manifest);
    }
    Ok(finished)
}

fn not_text(path: &Path) -> HBaseError {
    HBaseError::io(format!("{} is not UTF-8", path.display()))
}
