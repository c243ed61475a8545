//! Paths below the root directory, as in HBase 2.6.
//!
//! ```text
//! <root>/data/<namespace>/<table>/      below it:
//!   .tabledesc/.tableinfo.<seq>.<length>
//!   <encoded region>/.regioninfo
//!   <encoded region>/<family>/<hfile>
//!   <encoded region>/<family>/recovered.hfiles/   split WALs, as store files
//!   <encoded region>/recovered.edits/             split WALs, and <n>.seqid
//!   <encoded region>/.tmp/<family>/               outputs before they are committed
//!   <encoded region>/.tmp/.bulkload-<id>          manifest of a running bulk load
//! <root>/archive/data/<namespace>/<table>/<encoded region>/<family>/   files no longer served
//! <root>/staging/<user>__<table>__<random>/       a client's bulk load
//! <root>/corrupt/                                 damaged WALs, and files that did not read back
//! <root>/WALs/<server>/   <root>/oldWALs/   <root>/.tmp/   <root>/hbase.id   <root>/hbase.version
//! ```

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use evenkeel_common::{RegionInfo, TableName};

/// In a region's directory: uncommitted outputs of flushes and compactions.
pub const TMP_DIR: &str = ".tmp";
/// The prefix of manifests of running bulk loads, in a region's [`TMP_DIR`]. A family's name cannot
/// begin with a dot.
pub const BULK_LOAD_MANIFEST_PREFIX: &str = ".bulkload-";
/// In a region's directory: edits that were split from a dead server's WALs.
pub const RECOVERED_EDITS_DIR: &str = "recovered.edits";
/// In a family's directory: edits that HBase split from a dead server's WALs into store files
/// (`hbase.wal.split.to.hfile`).
pub const RECOVERED_HFILES_DIR: &str = "recovered.hfiles";
/// In the root directory: a directory for each bulk load of a client
/// (`HConstants.BULKLOAD_STAGING_DIR_NAME`).
pub const STAGING_DIR: &str = "staging";
/// In a region's directory: its [`RegionInfo`].
pub const REGION_INFO_FILE: &str = ".regioninfo";
/// In the root directory: live WALs, a directory for each server.
pub const WALS_DIR: &str = "WALs";
/// In the root directory: WALs whose edits are all flushed.
pub const OLD_WALS_DIR: &str = "oldWALs";
/// In the root directory: damaged files kept for inspection, which no cleaner deletes
/// (`HConstants.CORRUPT_DIR_NAME`).
pub const CORRUPT_DIR: &str = "corrupt";

/// The directory of a namespace.
pub fn namespace_dir(root: &Path, namespace: &str) -> PathBuf {
    root.join("data").join(namespace)
}

/// The directory of a table.
pub fn table_dir(root: &Path, table: &TableName) -> PathBuf {
    namespace_dir(root, table.namespace()).join(table.qualifier())
}

/// The directory of a region, which is that of its default replica.
pub fn region_dir(root: &Path, region: &RegionInfo) -> PathBuf {
    let table_dir = table_dir(root, region.table());
    match region.is_primary() {
        true => table_dir.join(region.encoded_name()),
        false => table_dir.join(region.replica(0).encoded_name()),
    }
}

/// The archive directory of a table.
pub fn archive_table_dir(root: &Path, table: &TableName) -> PathBuf {
    table_dir(&root.join("archive"), table)
}

/// The archive directory of a region.
pub fn archive_region_dir(root: &Path, region: &RegionInfo) -> PathBuf {
    region_dir(&root.join("archive"), region)
}
