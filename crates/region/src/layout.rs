//! Where things are below the root directory, as HBase 2.6 lays them out.
//!
//! ```text
//! <root>/data/<namespace>/<table>/.tabledesc/.tableinfo.<seq>.<length>
//! <root>/data/<namespace>/<table>/<encoded region>/.regioninfo
//! <root>/data/<namespace>/<table>/<encoded region>/<family>/<hfile>
//! <root>/data/<namespace>/<table>/<encoded region>/.tmp/<family>/         outputs before they are committed
//! <root>/data/<namespace>/<table>/<encoded region>/.tmp/.bulkload-<id>    a bulk load under way (`region::bulk_load::manifest`)
//! <root>/data/<namespace>/<table>/<encoded region>/recovered.edits/       split WALs, and <n>.seqid
//! <root>/data/<namespace>/<table>/<encoded region>/<family>/recovered.hfiles/   split WALs, as store files
//! <root>/archive/data/<namespace>/<table>/<encoded region>/<family>/      files no longer served
//! <root>/staging/<user>__<table>__<random>/                               a client's bulk load
//! <root>/corrupt/                                                         damaged WALs, and files that did not read back
//! <root>/WALs/<server>/   <root>/oldWALs/   <root>/.tmp/   <root>/hbase.id   <root>/hbase.version
//! ```

use std::path::{Path, PathBuf};

use evenkeel_common::{RegionInfo, TableName};

/// Below a region's directory: flush and compaction outputs that are not committed yet.
pub const TMP_DIR: &str = ".tmp";
/// How notes of bulk loads under way are named, below a region's [`TMP_DIR`]. A family's name cannot begin with a dot.
pub const BULK_LOAD_MANIFEST_PREFIX: &str = ".bulkload-";
/// Below a region's directory: edits that were split out of a dead server's WALs.
pub const RECOVERED_EDITS_DIR: &str = "recovered.edits";
/// Below a family's directory: edits that HBase split out of a dead server's WALs into store files
/// (`hbase.wal.split.to.hfile`).
pub const RECOVERED_HFILES_DIR: &str = "recovered.hfiles";
/// Below the root: a directory for each bulk load of a client (`HConstants.BULKLOAD_STAGING_DIR_NAME`).
pub const STAGING_DIR: &str = "staging";
/// In a region's directory: its [`RegionInfo`].
pub const REGION_INFO_FILE: &str = ".regioninfo";
/// Live WALs, a directory a server.
pub const WALS_DIR: &str = "WALs";
/// WALs whose edits are all flushed.
pub const OLD_WALS_DIR: &str = "oldWALs";
/// What is damaged and kept for somebody to look at; no cleaner does (`HConstants.CORRUPT_DIR_NAME`).
pub const CORRUPT_DIR: &str = "corrupt";

/// The directory of a namespace.
pub fn namespace_dir(root: &Path, namespace: &str) -> PathBuf {
    root.join("data").join(namespace)
}

/// The directory of a table.
pub fn table_dir(root: &Path, table: &TableName) -> PathBuf {
    namespace_dir(root, table.namespace()).join(table.qualifier())
}

/// The directory of a region.
pub fn region_dir(root: &Path, region: &RegionInfo) -> PathBuf {
    table_dir(root, region.table()).join(region.encoded_name())
}

/// Where a table's files go when they are no longer served.
pub fn archive_table_dir(root: &Path, table: &TableName) -> PathBuf {
    table_dir(&root.join("archive"), table)
}

/// Where a region's files go when they are no longer served.
pub fn archive_region_dir(root: &Path, region: &RegionInfo) -> PathBuf {
    region_dir(&root.join("archive"), region)
}
