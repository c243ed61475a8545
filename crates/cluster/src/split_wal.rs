//! `SplitWALCallable`: splits the log of a dead server into `recovered.edits` of its regions.
//!
//! The log may be from any server, including HBase's. Edits that the master reports as flushed are
//! skipped. So are edits of regions without a directory, which were split, merged or deleted, or
//! whose directory is lost: the log names them. On success the master moves the log to `oldWALs`. A
//! damaged log is moved to `corrupt` first, where no cleaner deletes it; its readable entries are
//! recovered.
//!
//! The dead server may still be running: the storage first revokes its access to the file
//! ([`FileSystem::recover`]), so that the file's length is final.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use evenkeel_common::{HBaseError, Result, TableName};
use evenkeel_fs::{FileSystem, Location};
use evenkeel_protocol::pb;
use evenkeel_region::layout;
use evenkeel_wal::names;
use evenkeel_wal::split::{SplitOptions, StoreSeqIds, split_wal};

use crate::transitions::Transitions;

/// "Unknown", as a sequence id (`HConstants.NO_SEQNUM`, -1).
const NO_SEQNUM: u64 = u64::MAX;

/// Splits the log that a procedure names, with at most `buffer_bytes_max` bytes of edits in memory.
///
/// # Errors
/// Returns I/O errors of the file system, or `DoNotRetryIOException` for a path that is not a log
/// of this cluster: the master tries another server, or checks the file.
pub(crate) fn run(
    transitions: &Transitions,
    request: &pb::SplitWalParameter,
    buffer_bytes_max: usize,
) -> Result<()> {
    let env = transitions.env();
    let (fs, root) = env.wal_root();
    let (fs, wal) = (&**fs, wal_path(root, &request.wal_path)?);
    let goes_on = || !transitions.abort().is_aborting();
    let worker = names::prefix(transitions.server().name());
    let outcome = split_wal(SplitOptions {
        fs,
        wal: &wal,
        worker: &worker,
        last_flushed: &mut |region| Ok(last_flushed(transitions, region)),
        region_dir: &mut |region: &[u8], table: &TableName| {
            let below = |root: &Path| layout::table_dir(root, table).join(&*String::from_utf8_lossy(region));
            Ok(env.stores.fs.exists(&below(&env.stores.root))?.then(|| below(root)))
        },
        on_entry: &mut |_| {},
        should_continue: &mut || goes_on(),
        buffer_bytes_max,
    })?;
    tracing::info!(
        wal = %wal.display(),
        entries = outcome.entries,
        skipped = outcome.skipped,
        files = outcome.files.len(),
        "log of a dead server split"
    );
    for region in &outcome.unclaimed {
        tracing::warn!(
            table = %region.table, region = %String::from_utf8_lossy(&region.region),
            entries = region.entries, wal = %wal.display(),
            "the region has no directory: its edits are skipped"
        );
    }
    match outcome.corrupt {
        None => Ok(()),
        Some(damage) => keep_damaged(fs, root, &wal, &damage),
    }
}

/// Returns the log's path below the logs' root directory; the master sends a relative or an
/// absolute path.
fn wal_path(root: &Path, text: &str) -> Result<PathBuf> {
    let path = Location::parse(text).map(|location| root.join(location.path())).unwrap_or_default();
    let below = path.strip_prefix(root.join(layout::WALS_DIR)).ok();
    let is_log = below.is_some_and(|below| {
        below.components().all(|part| matches!(part, std::path::Component::Normal(_)))
            && below.file_name().and_then(|name| name.to_str()).is_some_and(names::is_wal_name)
    });
    if is_log {
        Ok(path)
    } else {
        Err(HBaseError::do_not_retry(format!("{text} is not a log of this cluster")))
    }
}

fn last_flushed(transitions: &Transitions, region: &[u8]) -> StoreSeqIds {
    let known = |id: u64| (id != NO_SEQNUM).then_some(id);
    match transitions.master().last_flushed_sequence_id(region) {
        Ok(ids) => StoreSeqIds {
            region: known(ids.last_flushed_sequence_id),
            stores: ids.store_last_flushed_sequence_id.into_iter().filter_map(of_store).collect(),
        },
        Err(error) => {
            tracing::warn!(%error, "flushed sequence ids are unknown: all edits are recovered");
            StoreSeqIds::default()
        }
    }
}

fn of_store(store: pb::StoreSequenceId) -> Option<(Bytes, u64)> {
    (store.sequence_id != NO_SEQNUM).then_some((store.family_name, store.sequence_id))
}

fn keep_damaged(fs: &dyn FileSystem, root: &Path, wal: &Path, damage: &str) -> Result<()> {
    let dir = root.join(layout::CORRUPT_DIR);
    tracing::error!(wal = %wal.display(), damage, "the log is damaged; it is kept in {}", dir.display());
    fs.mkdirs(&dir)?;
    Ok(fs.rename(wal, &dir.join(wal.file_name().unwrap_or_default()))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_logs_of_the_cluster_are_split() {
        let root = Path::new("/hbase");
        let log = "WALs/h,1,2-splitting/h%2C1%2C2.1700000000000";
        let whole = root.join(log);
        assert_eq!(wal_path(root, log).expect("a log"), whole);
        assert_eq!(wal_path(root, &format!("/hbase/{log}")).expect("a log"), whole);
        assert_eq!(wal_path(root, &format!("file:///hbase/{log}")).expect("a log"), whole);
        assert_eq!(wal_path(root, &format!("hdfs://ns/hbase/{log}")).expect("a log"), whole);
        for bad in ["WALs/../data/x", "data/default/t/x", "/etc/passwd", "", "WALs"] {
            assert!(wal_path(root, bad).is_err(), "{bad}");
        }
    }
}
