//! Regions on disk that hbase:meta does not list and no intent record names: rows of hbase:meta
//! were lost, or an operator copied directories here. Their data is never deleted.
//!
//! A region that has its `.regioninfo` and overlaps no other gets its row back, as by HBCK2's
//! `addFsRegionsMissingInMeta`. If regions overlap, the newest gets its row back: a region that
//! was split or merged is older than its daughters or its merged region. Every other
//! region stays in place, because other regions may hold references to its files, and is logged as
//! an error.
//!
//! A region that cannot be served and holds no data (no store file other than references, no
//! recovered edits, no bulk load in progress) was prepared by a split or merge. It goes to the
//! archive.

use std::path::Path;

use bytes::Bytes;
use evenkeel_common::{RegionInfo, Result, TableName};
use evenkeel_fs::{FileStatus, FileSystem};
use evenkeel_protocol::{PB_MAGIC, pb};
use evenkeel_region::layout;
use evenkeel_region::store_file_tracker::LIST_DIR;
use prost::Message;

use super::{archive_region_dir, family_dirs, is_reference};

/// The largest `.regioninfo` that is read.
const REGION_INFO_BYTES_MAX: u64 = 1 << 20;
/// The prefix of the intent records of bulk loads in progress, in a region's `.tmp`.
const BULK_LOAD_PREFIX: &str = ".bulkload-";

/// Where regions are, and their recovered edits.
#[derive(Clone, Copy)]
pub(super) struct RegionRoots<'a> {
    pub(super) fs: &'a dyn FileSystem,
    pub(super) root: &'a Path,
    /// The file systems and root directories below which recovered edits are.
    pub(super) edits: &'a [(&'a dyn FileSystem, &'a Path)],
}

/// A region's directory that hbase:meta does not list.
struct Orphan {
    dir: FileStatus,
    info: Option<RegionInfo>,
}

/// Returns the regions among these directories that can be served beside the `known` ones, and
/// archives those without data. If `meta_is_complete` is false, nothing is archived.
///
/// # Errors
/// `IOException` from the file system.
pub(super) fn adopt(
    roots: RegionRoots<'_>,
    table: &TableName,
    dirs: Vec<FileStatus>,
    known: &[RegionInfo],
    meta_is_complete: bool,
) -> Result<Vec<RegionInfo>> {
    let RegionRoots { fs, root, .. } = roots;
    let mut orphans: Vec<_> =
        dirs.into_iter().map(|dir| Orphan { info: region_info(fs, &dir, table), dir }).collect();
    orphans.sort_by_key(|orphan| std::cmp::Reverse(orphan.info.as_ref().map(RegionInfo::region_id)));
    let mut adopted: Vec<RegionInfo> = Vec::new();
    for Orphan { dir, info } in orphans {
        let other =
            info.as_ref().and_then(|info| known.iter().chain(&adopted).find(|other| overlap(info, other)));
        let why = match (&info, other) {
            (Some(info), None) => {
                tracing::error!(%table, region = %info.name_text(), "region was not in hbase:meta: its row is written again");
                adopted.push(info.clone());
                continue;
            }
            (Some(_), Some(other)) => format!("it overlaps {}", other.name_text()),
            (None, _) => "it has no readable .regioninfo".to_owned(),
        };
        if meta_is_complete && !holds_data(roots, table, &dir)? {
            tracing::warn!(%table, region = dir.name(), why, "region without data, not in hbase:meta; archived");
            archive_region_dir(fs, root, table, dir.name())?;
        } else {
            tracing::error!(path = %dir.path.display(), why, "region is not in hbase:meta and is not served; its files stay here");
        }
    }
    Ok(adopted)
}

/// Reads a region's `.regioninfo`; returns `None` if it is missing, damaged, or of another region.
fn region_info(fs: &dyn FileSystem, dir: &FileStatus, table: &TableName) -> Option<RegionInfo> {
    let bytes = fs.read_all(&dir.path.join(layout::REGION_INFO_FILE), REGION_INFO_BYTES_MAX).ok()?;
    let message = pb::RegionInfo::decode_length_delimited(bytes.strip_prefix(PB_MAGIC)?).ok()?;
    let info = RegionInfo::try_from(&message).ok()?.with_flags(false, false);
    (info.encoded_name() == dir.name() && info.table() == table && info.replica_id() == 0).then_some(info)
}

/// Returns true if some row belongs to both regions.
fn overlap(a: &RegionInfo, b: &RegionInfo) -> bool {
    let is_below = |start: &Bytes, end: &Bytes| end.is_empty() || start < end;
    is_below(a.start_key(), b.end_key()) && is_below(b.start_key(), a.end_key())
}

/// Logs each range of rows of a table that no region covers.
pub(super) fn log_holes(table: &TableName, regions: &[RegionInfo]) {
    let mut regions: Vec<_> = regions.iter().collect();
    regions.sort_by(|a, b| a.start_key().cmp(b.start_key()));
    let mut end = Some(Bytes::new());
    let ends = regions.iter().map(|region| (region.start_key(), Some(region.end_key().clone())));
    let empty = Bytes::new();
    for (start, next) in ends.chain([(&empty, None)]) {
        let is_hole = match (&end, &next) {
            (Some(end), Some(_)) => end < start,
            (Some(end), None) => regions.is_empty() || !end.is_empty(),
            (None, _) => false,
        };
        if is_hole {
            let from = end.as_ref().map(|end| end.escape_ascii().to_string());
            tracing::error!(%table, from, to = %start.escape_ascii(), "rows of the table belong to no region");
        }
        end = next.filter(|end| !end.is_empty());
        if end.is_none() {
            break;
        }
    }
}

/// Returns true if a region's directory holds anything but references and lists of files, or if the
/// region has recovered edits. Links count as data: the files that they point to may be in use
/// nowhere else.
fn holds_data(
    RegionRoots { fs, edits, .. }: RegionRoots<'_>,
    table: &TableName,
    region: &FileStatus,
) -> Result<bool> {
    for family in family_dirs(fs, &region.path)? {
        let is_data = |entry: &FileStatus| entry.is_dir || !is_reference(entry.name());
        if fs.list(&family.path)?.iter().any(|entry| entry.name() != LIST_DIR && is_data(entry)) {
            return Ok(true);
        }
    }
    let has = |fs: &dyn FileSystem, dir: &Path, is_data: &dyn Fn(&FileStatus) -> bool| -> Result<bool> {
        Ok(fs.exists(dir)? && fs.list(dir)?.iter().any(is_data))
    };
    let is_edits = |file: &FileStatus| !file.is_dir && file.name().bytes().all(|byte| byte.is_ascii_digit());
    for (fs, root) in edits {
        let dir = layout::table_dir(root, table).join(region.name()).join(layout::RECOVERED_EDITS_DIR);
        if has(*fs, &dir, &is_edits)? {
            return Ok(true);
        }
    }
    let is_load = |file: &FileStatus| file.name().starts_with(BULK_LOAD_PREFIX);
    has(fs, &region.path.join(layout::TMP_DIR), &is_load)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: &'static str, end: &'static str, id: i64) -> RegionInfo {
        RegionInfo::new("t".parse().expect("legal"), Bytes::from(start), Bytes::from(end), id)
    }

    #[test]
    fn regions_overlap_where_a_row_is_in_both() {
        let (all, low, high) = (region("", "", 1), region("", "m", 2), region("m", "", 3));
        assert!(overlap(&all, &low) && overlap(&high, &all) && overlap(&low, &low));
        assert!(!overlap(&low, &high) && !overlap(&high, &low));
        assert!(overlap(&region("a", "n", 4), &high));
    }
}
