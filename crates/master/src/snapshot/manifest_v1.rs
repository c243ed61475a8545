//! Snapshots of HBase 0.98 (`SnapshotManifestV1`), whose directories stand for a manifest. They are
//! read, not written.
//!
//! ```text
//! <snapshot>/.tabledesc/.tableinfo.*           the table's descriptor
//! <snapshot>/<region>/.regioninfo              the region
//! <snapshot>/<region>/<family>/<store file>    empty, or the content of a reference file
//! ```

use std::path::Path;

use bytes::Bytes;
use evenkeel_common::{HBaseError, RegionInfo, Result};
use evenkeel_fs::FileSystem;
use evenkeel_protocol::pb::snapshot_region_manifest::{FamilyFiles, StoreFile};
use evenkeel_protocol::{PB_MAGIC, pb};
use evenkeel_region::layout;
use prost::Message;

use super::store::corrupted;
use crate::{descriptors, reconcile};

/// The layout version (`SnapshotManifestV1.DESCRIPTOR_VERSION`).
pub(super) const LAYOUT_VERSION: i32 = 0;
/// The largest file that is read: a region's info, or a reference.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads the snapshot in a directory, up to a size of its manifest in the current layout.
///
/// # Errors
/// `CorruptedSnapshotException`, `IOException` from the file system.
pub(super) fn read(fs: &dyn FileSystem, dir: &Path, bytes_max: u64) -> Result<pb::SnapshotDataManifest> {
    let table = descriptors::read(fs, dir)?.ok_or_else(|| corrupted("Missing Table Descriptor"))?;
    let table_schema = pb::TableSchema::from(&table);
    let mut manifest = pb::SnapshotDataManifest { table_schema, region_manifests: Vec::new() };
    let mut bytes = 0;
    for region in reconcile::region_dirs(fs, dir)? {
        let region = region_manifest(fs, &region.path)?;
        bytes += region.encoded_len() as u64;
        if bytes > bytes_max {
            return Err(corrupted(format!("{}: more than {bytes_max} bytes of files", dir.display())));
        }
        manifest.region_manifests.push(region);
    }
    Ok(manifest)
}

fn region_manifest(fs: &dyn FileSystem, dir: &Path) -> Result<pb::SnapshotRegionManifest> {
    let region_info = region_info(fs, dir)?;
    let name = RegionInfo::try_from(&region_info)?;
    if Some(name.encoded_name()) != dir.file_name().and_then(|name| name.to_str()) {
        return Err(corrupted(format!("{} describes region {}", dir.display(), name.encoded_name())));
    }
    let mut manifest = pb::SnapshotRegionManifest { region_info, ..Default::default() };
    for family in reconcile::family_dirs(fs, dir)? {
        let mut files = FamilyFiles {
            family_name: Bytes::copy_from_slice(family.name().as_bytes()),
            store_files: Vec::new(),
        };
        let listed = fs.list(&family.path)?;
        for file in listed.iter().filter(|file| !file.is_dir && !file.name().starts_with('.')) {
            let reference = match file.len {
                0 => None,
                _ => {
                    let read = evenkeel_protocol::from_magic(&fs.read_all(&file.path, FILE_BYTES_MAX)?);
                    if let Err(error) = &read {
                        tracing::warn!(path = %file.path.display(), %error, "not a reference; that of the table is used");
                    }
                    read.ok()
                }
            };
            files.store_files.push(StoreFile { name: file.name().to_owned(), reference, file_size: None });
        }
        manifest.family_files.push(files);
    }
    Ok(manifest)
}

fn region_info(fs: &dyn FileSystem, dir: &Path) -> Result<pb::RegionInfo> {
    let path = dir.join(layout::REGION_INFO_FILE);
    if !fs.exists(&path)? {
        return Err(corrupted(format!("{} does not exist", path.display())));
    }
    let bytes = fs.read_all(&path, FILE_BYTES_MAX)?;
    let message = bytes.strip_prefix(PB_MAGIC).and_then(|m| pb::RegionInfo::decode_length_delimited(m).ok());
    message.ok_or_else(|| -> HBaseError { corrupted(format!("{}: not a region info", path.display())) })
}
