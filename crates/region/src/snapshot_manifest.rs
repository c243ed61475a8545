//! The manifest of a region in a snapshot: its files and their locations.
//!
//! A file of the manifest may be a whole file, a link to a file of another table, or a reference to
//! half of a file of the region that was split or merged. The file with the data is where it was
//! written, or in the archive ([`links`](crate::links)).

use std::path::Path;

use evenkeel_common::{ErrorKind, HBaseError, RegionInfo, Result, TableName};
use evenkeel_fs::{FileStatus, FileSystem};
use evenkeel_hfile::StoreFileName;
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::snapshot_region_manifest::{FamilyFiles, StoreFile};

use crate::links;

/// The maximum bytes of a reference file that is read.
const REFERENCE_BYTES_MAX: u64 = 64 << 10;

/// Creates the manifest of a region with these files, by family.
///
/// # Errors
/// `FileNotFoundException` for a file in none of its locations, `CorruptedSnapshotException` for a
/// reference that cannot be read.
pub fn build(
    fs: &dyn FileSystem,
    root: &Path,
    info: &RegionInfo,
    files: Vec<(String, Vec<String>)>,
) -> Result<pb::SnapshotRegionManifest> {
    let mut family_files = Vec::new();
    for (family, names) in files {
        let entry = |name: &String| entry(fs, root, info, &family, name);
        let store_files = names.iter().map(entry).collect::<Result<_>>()?;
        family_files.push(FamilyFiles { family_name: family.into(), store_files });
    }
    Ok(pb::SnapshotRegionManifest { version: None, region_info: info.into(), family_files })
}

fn entry(
    fs: &dyn FileSystem,
    root: &Path,
    region: &RegionInfo,
    family: &str,
    name: &str,
) -> Result<StoreFile> {
    let (reference, status) = match StoreFileName::parse(name) {
        Some(StoreFileName::Reference { target, region: parent }) => {
            let own = resolve_data_file(fs, root, (region.table(), region.encoded_name()), family, name)?;
            let bytes = fs.read_all(&own.path, REFERENCE_BYTES_MAX)?;
            let reference: pb::Reference =
                evenkeel_protocol::from_magic(&bytes).map_err(|e| corrupted(format!("{name}: {e}")))?;
            (Some(reference), resolve_data_file(fs, root, (region.table(), &parent), family, &target)?)
        }
        _ => (None, resolve_data_file(fs, root, (region.table(), region.encoded_name()), family, name)?),
    };
    Ok(StoreFile { name: name.to_owned(), reference, file_size: Some(status.len) })
}

/// Checks that every file of a region's manifest exists and has its length.
///
/// # Errors
/// `CorruptedSnapshotException` if one does not.
/// `CorruptedSnapshotException`.
pub fn verify(
    fs: &dyn FileSystem,
    root: &Path,
    info: &RegionInfo,
    manifest: &pb::SnapshotRegionManifest,
) -> Result<()> {
    for family in &manifest.family_files {
        let name = String::from_utf8_lossy(&family.family_name);
        family.store_files.iter().try_for_each(|file| verify_file(fs, root, info, &name, file))?;
    }
    Ok(())
}

fn verify_file(
    fs: &dyn FileSystem,
    root: &Path,
    info: &RegionInfo,
    family: &str,
    file: &StoreFile,
) -> Result<()> {
    let (region, target) = match StoreFileName::parse(&file.name) {
        Some(StoreFileName::Reference { target, region }) => (region, target),
        Some(_) => (info.encoded_name().to_owned(), file.name.clone()),
        None => return Err(corrupted(format!("{} is not a store file", file.name))),
    };
    let found = resolve_data_file(fs, root, (info.table(), &region), family, &target)
        .map_err(|e| corrupted(format!("Can't find hfile: {}: {e}", file.name)))?;
    match file.file_size {
        Some(expected) if expected != found.len => Err(corrupted(format!(
            "hfile: {} size does not match with the expected one.  found={} expected={expected}",
            file.name, found.len
        ))),
        _ => Ok(()),
    }
}

/// Returns the file with the data for a name in a region.
fn resolve_data_file(
    fs: &dyn FileSystem,
    root: &Path,
    (table, region): (&TableName, &str),
    family: &str,
    name: &str,
) -> Result<FileStatus> {
    let link = links::link_to(table, region, name);
    // The parts of a link's name become parts of a path.
    TableName::new(&link.namespace, &link.table)
        .map_err(|e| corrupted(format!("{name}: {}", e.message())))?;
    links::resolve(fs, root, &link, family)
}

fn corrupted(message: String) -> HBaseError {
    HBaseError::new(ErrorKind::CorruptedSnapshot, message)
}
