//! `hbase.version` and `hbase.id` in the root directory: each is PBUF followed by a message
//! (`FSUtils`, `ClusterId`).

use std::path::Path;

use evenkeel_common::{HBaseError, Result};
use evenkeel_fs::FileSystem;
use evenkeel_protocol::{PB_MAGIC, pb};

/// The layout version that HBase 2 writes (`HConstants.FILE_SYSTEM_VERSION`).
const LAYOUT_VERSION: &str = "8";
const VERSION_FILE: &str = "hbase.version";
/// The cluster's id (`HConstants.CLUSTER_ID_FILE_NAME`).
pub const ID_FILE: &str = "hbase.id";
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Creates or checks both files. Returns the cluster's id.
///
/// # Errors
/// `IOException` for another layout version or for files that cannot be read.
pub fn prepare_root(fs: &dyn FileSystem, root: &Path) -> Result<String> {
    check_version(fs, &root.join(VERSION_FILE))?;
    let path = root.join(ID_FILE);
    if let Some(id) = read_cluster_id(fs, &path)? {
        return Ok(id);
    }
    let id = uuid::Uuid::new_v4().to_string();
    write_cluster_id(fs, &path, &id)?;
    Ok(id)
}

fn check_version(fs: &dyn FileSystem, path: &Path) -> Result<()> {
    if !fs.exists(path)? {
        let version = pb::HBaseVersionFileContent { version: LAYOUT_VERSION.into() };
        return Ok(fs.write_atomically(path, &evenkeel_protocol::with_magic(&version))?);
    }
    let found: pb::HBaseVersionFileContent =
        evenkeel_protocol::from_magic(&fs.read_all(path, FILE_BYTES_MAX)?)
            .map_err(|e| HBaseError::io(format!("{}: {e}", path.display())))?;
    if found.version == LAYOUT_VERSION {
        return Ok(());
    }
    let message =
        format!("{}: layout version {}, this server reads {LAYOUT_VERSION}", path.display(), found.version);
    Err(HBaseError::io(message))
}

/// Reads a cluster's id; `None` if the file does not exist.
///
/// # Errors
/// `IOException` for a file that cannot be read.
pub fn read_cluster_id(fs: &dyn FileSystem, path: &Path) -> Result<Option<String>> {
    if !fs.exists(path)? {
        return Ok(None);
    }
    let bytes = fs.read_all(path, FILE_BYTES_MAX)?;
    // Very old clusters wrote plain text.
    if !bytes.starts_with(PB_MAGIC) {
        let id = String::from_utf8(bytes);
        return id.map(Some).map_err(|_| HBaseError::io(format!("{}: not a cluster id", path.display())));
    }
    let id: pb::ClusterId = evenkeel_protocol::from_magic(&bytes)
        .map_err(|e| HBaseError::io(format!("{}: {e}", path.display())))?;
    Ok(Some(id.cluster_id))
}

/// Writes a cluster's id.
///
/// # Errors
/// `IOException` from the file system.
pub fn write_cluster_id(fs: &dyn FileSystem, path: &Path, id: &str) -> Result<()> {
    let id = pb::ClusterId { cluster_id: id.to_owned() };
    Ok(fs.write_atomically(path, &evenkeel_protocol::with_magic(&id))?)
}

#[cfg(test)]
mod tests {
    use evenkeel_fs::MemoryFileSystem;

    use super::*;

    #[test]
    fn the_cluster_id_persists_and_other_layouts_are_refused() {
        let fs = MemoryFileSystem::new();
        let root = Path::new("/root");
        let id = prepare_root(&fs, root).expect("made");
        assert_eq!(prepare_root(&fs, root).expect("read"), id);
        let other = pb::HBaseVersionFileContent { version: "7".into() };
        fs.write_atomically(&root.join(VERSION_FILE), &evenkeel_protocol::with_magic(&other))
            .expect("written");
        assert!(prepare_root(&fs, root).expect_err("refused").message().contains("layout version 7"));
    }
}
