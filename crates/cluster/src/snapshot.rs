//! `SnapshotRegionCallable` and `SnapshotVerifyCallable`: a region's part of a snapshot that the
//! master takes.
//!
//! ```text
//! <root>/.hbase-snapshot/.tmp/<snapshot>/region-manifest.<encoded region>   SnapshotRegionManifest
//! <root>/.hbase-snapshot/.tmp/<snapshot>/data.manifest    all of them
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_common::{ErrorKind, HBaseError, RegionInfo, Result};
use evenkeel_fs::{CreateOptions, FileSystem};
use evenkeel_metrics::activity::{self, ActivityKind};
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::snapshot_description::Type;
use evenkeel_region::region::Region;
use evenkeel_region::snapshot_manifest;
use evenkeel_region::store::Store;
use prost::Message;

use crate::procedures::not_serving;
use crate::transitions::Transitions;

const SNAPSHOT_DIR: &str = ".hbase-snapshot";
const WORKING_DIR: &str = ".tmp";
const REGION_MANIFEST: &str = "region-manifest.";
const DATA_MANIFEST: &str = "data.manifest";
/// The largest manifest that is read (`snapshot.manifest.size.limit`).
const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// Flushes a region, unless the snapshot skips the flush, and writes its manifest.
///
/// # Errors
/// Returns `NotServingRegionException`, or I/O errors of the flush or the file system.
pub(crate) fn take(transitions: &Transitions, request: &pb::SnapshotRegionParameter) -> Result<()> {
    let info = RegionInfo::try_from(&request.region)?;
    let server = transitions.server();
    let region =
        server.regions().find(info.encoded_name()).ok_or_else(|| not_serving(&info, server.name()))?;
    let subject = format!("{} of {}", request.snapshot.name, region.info().name_text());
    let activity = activity::begin(ActivityKind::Snapshot, subject);
    take_region(transitions, request, &region).inspect_err(|error| activity.fail(error))
}

fn take_region(
    transitions: &Transitions,
    request: &pb::SnapshotRegionParameter,
    region: &Arc<Region>,
) -> Result<()> {
    if request.snapshot.r#type() != Type::Skipflush {
        transitions.server().background().flush_only(region, &[])?;
    }
    let of_store = |store: &Arc<Store>| {
        (store.family().name_text(), store.files().into_iter().map(|file| file.name).collect())
    };
    let stores = &transitions.env().stores;
    let files = region.stores().iter().map(of_store).collect();
    let manifest = snapshot_manifest::build(&*stores.fs, &stores.root, region.info(), files)?;
    let path = working_dir(&stores.root, &request.snapshot)?
        .join(format!("{REGION_MANIFEST}{}", region.info().encoded_name()));
    // The master creates the directory, and removes it if it gives up the snapshot.
    let options = CreateOptions { overwrite: true, parents: false, ..CreateOptions::SMALL };
    let mut file = stores.fs.create(&path, options)?;
    file.append(&manifest.encode_to_vec())?;
    file.sync()?;
    Ok(file.close()?)
}

/// Checks that every file of a region exists where the manifest says, with its recorded length.
///
/// # Errors
/// Returns `CorruptedSnapshotException` otherwise.
pub(crate) fn verify(transitions: &Transitions, request: &pb::SnapshotVerifyParameter) -> Result<()> {
    let info = RegionInfo::try_from(&request.region)?;
    let stores = &transitions.env().stores;
    let dir = working_dir(&stores.root, &request.snapshot)?;
    let manifest = manifest_of(&*stores.fs, &dir, &info)?;
    snapshot_manifest::verify(&*stores.fs, &stores.root, &info, &manifest)
}

/// Reads a region's manifest, from its separate file or from the master's manifest.
fn manifest_of(fs: &dyn FileSystem, dir: &Path, info: &RegionInfo) -> Result<pb::SnapshotRegionManifest> {
    let own = dir.join(format!("{REGION_MANIFEST}{}", info.encoded_name()));
    if fs.exists(&own)? {
        return read(fs, &own);
    }
    let all: pb::SnapshotDataManifest = read(fs, &dir.join(DATA_MANIFEST))?;
    let is_wanted = |manifest: &pb::SnapshotRegionManifest| {
        RegionInfo::try_from(&manifest.region_info).is_ok_and(|of| of.encoded_name() == info.encoded_name())
    };
    let missing = || corrupted(format!("No region manifest for {}", info.encoded_name()));
    all.region_manifests.into_iter().find(is_wanted).ok_or_else(missing)
}

fn read<M: Message + Default>(fs: &dyn FileSystem, path: &Path) -> Result<M> {
    let bytes = fs.read_all(path, MANIFEST_BYTES_MAX)?;
    M::decode(&bytes[..]).map_err(|e| corrupted(format!("{}: {e}", path.display())))
}

/// Rejects a name that is more than one path component.
fn working_dir(root: &Path, snapshot: &pb::SnapshotDescription) -> Result<PathBuf> {
    let name = &snapshot.name;
    if name.is_empty() || name.starts_with('.') || name.contains('/') {
        return Err(HBaseError::do_not_retry(format!("{name} is not the name of a snapshot")));
    }
    Ok(root.join(SNAPSHOT_DIR).join(WORKING_DIR).join(name))
}

fn corrupted(message: String) -> HBaseError {
    HBaseError::new(ErrorKind::CorruptedSnapshot, message)
}
