//! WALs of earlier processes: split into `recovered.edits` of their regions, then moved to
//! `oldWALs`.
//!
//! Every directory below `WALs/` belongs to a dead server, since this process holds the lock of the
//! root directory. On HDFS there is no lock, and the server may be alive. So its directory is
//! renamed first, as HBase's master does, which prevents it from creating another log. The lease of
//! each log is recovered before it is read, which prevents further writes. A crash half way loses
//! nothing: a WAL is moved only when all its edits are in finished files, and splitting it again
//! produces the same files.
//!
//! Nonces are restored from every entry, also of regions that were split or merged since, and of
//! edits that are already in store files: a client may retry an Increment at the region that has
//! the row today.
//!
//! A damaged WAL, and anything that is not a WAL, goes to `corrupt` instead, from which no cleaner
//! deletes. Every readable entry of a damaged WAL is recovered, also entries after the damage; the
//! log lists what is lost ([`evenkeel_wal::Gap`]). It stays where it is until hbase:meta is read:
//! rows of hbase:meta may be lost, which a start after a crash must know, too.
//!
//! Edits of a region without a directory are skipped. Usually nothing is lost: the region was
//! split, merged or deleted, and hbase:meta does not list it. If hbase:meta does list it, its
//! directory is lost, and these edits may be all that is left of it. hbase:meta is open only later,
//! so such a WAL stays where it is until [`keep_lost_edits`] decides: it moves the WAL to
//! `oldWALs`, or logs the regions and moves the WAL to `corrupt`. A start that ends before that
//! splits the WAL again.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_common::clock;
use evenkeel_common::length;
use evenkeel_common::{HBaseError, RegionInfo, Result, TableName};
use evenkeel_fs::{FileStatus, FileSystem};
use evenkeel_region::layout::{self, CORRUPT_DIR};
use evenkeel_region::region::nonce::{NonceKey, NonceManager};
use evenkeel_wal::names;
use evenkeel_wal::split::{SplitOptions, SplitOutcome, StoreSeqIds, Unclaimed, split_wal};

use crate::meta::MetaTable;

/// The limit on bytes of edits buffered in memory (`hbase.regionserver.hlog.splitlog.buffersize`).
const BUFFER_BYTES_MAX: usize = 128 << 20;
/// Distinguishes the temporary files of this process from those of other processes.
const WORKER: &str = "standalone";

/// The limit on entries with the same name in `corrupt`.
const SAME_NAME_MAX: u32 = 10_000;

/// The outcome of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Files split.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Entries in them.
    pub entries: u64,
    /// Damaged files; some of their entries are lost.
    pub damaged: u64,
    /// Files that are damaged, or have edits of regions that have no directory. They are still
    /// where their server wrote them.
    pub unclaimed: Vec<UnclaimedWal>,
}

/// A WAL that is damaged, or has edits of regions that have no directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnclaimedWal {
    /// Where the file is.
    pub path: PathBuf,
    /// Whether it is damaged, so that it must be kept.
    pub is_damaged: bool,
    /// The regions.
    pub regions: Vec<Unclaimed>,
}

/// Splits every WAL below `<root>/WALs`, and restores the nonces of all entries.
///
/// # Errors
/// Returns I/O errors of the file system; the next start continues where this one stopped.
pub fn split_wals(fs: &Arc<dyn FileSystem>, root: &Path, nonces: &NonceManager) -> Result<Recovered> {
    let (wals, started) = (root.join(layout::WALS_DIR), clock::monotonic());
    fs.mkdirs(&wals)?;
    fs.mkdirs(&root.join(layout::OLD_WALS_DIR))?;
    let mut recovered = Recovered::default();
    for server in fs.list(&wals)? {
        if server.is_dir {
            split_server(&**fs, root, &server, nonces, &mut recovered)?;
        } else {
            keep_unknown(&**fs, root, &server)?;
        }
    }
    if recovered.files > 0 {
        let ms = length::whole_ms(started.elapsed());
        let Recovered { files, bytes, entries, damaged, .. } = recovered;
        tracing::info!(files, bytes, entries, damaged, ms, "WALs of an earlier process split");
    }
    Ok(recovered)
}

/// Splits every WAL of one server, and removes its directory.
fn split_server(
    fs: &dyn FileSystem,
    root: &Path,
    server: &FileStatus,
    nonces: &NonceManager,
    recovered: &mut Recovered,
) -> Result<()> {
    let dir = fence(fs, server)?;
    let is_wal = |entry: &FileStatus| !entry.is_dir && names::is_wal_name(entry.name());
    let (files, unknown): (Vec<_>, Vec<_>) = fs.list(&dir)?.into_iter().partition(is_wal);
    unknown.iter().try_for_each(|entry| keep_unknown(fs, root, entry))?;
    // Takes all files from their writer without waiting: their recoveries run side by side.
    files.iter().for_each(|file| drop(fs.recover(&file.path, &|| false)));
    for file in &files {
        split_one(fs, root, file, nonces, recovered)?;
    }
    let holds_unclaimed = recovered.unclaimed.iter().any(|wal| wal.path.starts_with(&dir));
    if !fs.delete_empty_dir(&dir)? && !holds_unclaimed {
        tracing::warn!(path = %dir.display(), "the server's log directory is not empty; the next start reads it again");
    }
    Ok(())
}

/// Renames the directory of a server that may live, so that it can create no file there. Returns
/// where it is now.
fn fence(fs: &dyn FileSystem, server: &FileStatus) -> Result<PathBuf> {
    if !fs.is_remote() || server.name().ends_with(names::SPLITTING_SUFFIX) {
        return Ok(server.path.clone());
    }
    let dir = server.path.with_file_name(format!("{}{}", server.name(), names::SPLITTING_SUFFIX));
    fs.rename(&server.path, &dir)?;
    Ok(dir)
}

fn split_one(
    fs: &dyn FileSystem,
    root: &Path,
    file: &FileStatus,
    nonces: &NonceManager,
    recovered: &mut Recovered,
) -> Result<()> {
    let outcome = split_wal(SplitOptions {
        fs,
        wal: &file.path,
        worker: WORKER,
        last_flushed: &mut |_| Ok(StoreSeqIds::default()),
        region_dir: &mut |region: &[u8], table: &TableName| {
            let dir = layout::table_dir(root, table).join(&*String::from_utf8_lossy(region));
            Ok(if fs.exists(&dir)? { Some(dir) } else { None })
        },
        on_entry: &mut |entry| {
            let key = NonceKey { group: entry.nonce_group, nonce: entry.nonce };
            nonces.restore(key, entry.write_time_ms);
        },
        should_continue: &mut || true,
        buffer_bytes_max: BUFFER_BYTES_MAX,
    })?;
    recovered.files += 1;
    recovered.damaged += u64::from(outcome.corrupt.is_some());
    recovered.bytes += file.len;
    recovered.entries += outcome.entries;
    let is_damaged = outcome.corrupt.is_some();
    if let Some(damage) = &outcome.corrupt {
        log_damage(file, &outcome, damage);
    }
    if is_damaged || !outcome.unclaimed.is_empty() {
        let (path, regions) = (file.path.clone(), outcome.unclaimed);
        recovered.unclaimed.push(UnclaimedWal { path, is_damaged, regions });
        return Ok(());
    }
    remove_split_wal(fs, root, &file.path, false)?;
    Ok(())
}

/// Moves a WAL whose edits are in finished files to `oldWALs`, or to `corrupt` if it must be kept.
/// Returns its new path.
fn remove_split_wal(fs: &dyn FileSystem, root: &Path, wal: &Path, keeps: bool) -> Result<PathBuf> {
    if keeps {
        return keep(fs, root, wal);
    }
    let to = root.join(layout::OLD_WALS_DIR).join(wal.file_name().unwrap_or_default());
    fs.touch(wal)?;
    fs.rename(wal, &to)?;
    Ok(to)
}

fn log_damage(file: &FileStatus, outcome: &SplitOutcome, damage: &str) {
    let bytes: u64 = outcome.gaps.iter().map(|gap| gap.to - gap.from).sum();
    tracing::error!(
        wal = %file.path.display(),
        damage,
        gaps = outcome.gaps.len(),
        bytes,
        "a WAL is damaged: its edits are recovered except those in the gaps; the file is kept in {CORRUPT_DIR}"
    );
}

fn keep_unknown(fs: &dyn FileSystem, root: &Path, entry: &FileStatus) -> Result<()> {
    let to = keep(fs, root, &entry.path)?;
    tracing::warn!(path = %entry.path.display(), kept = %to.display(), "not a WAL; kept in {CORRUPT_DIR}");
    Ok(())
}

/// Moves a file or directory to `corrupt`, and returns its new path. Nothing there is replaced.
fn keep(fs: &dyn FileSystem, root: &Path, path: &Path) -> Result<PathBuf> {
    let dir = root.join(CORRUPT_DIR);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    fs.mkdirs(&dir)?;
    let names = (1..SAME_NAME_MAX).map(|attempt| format!("{name}.{attempt}"));
    for name in std::iter::once(name.to_string()).chain(names) {
        let to = dir.join(name);
        if !fs.exists(&to)? {
            fs.rename(path, &to)?;
            return Ok(to);
        }
    }
    Err(HBaseError::io(format!("{}: too many entries of this name in {CORRUPT_DIR}", path.display())))
}

/// Logs edits of regions that hbase:meta lists but that have no directory, and moves their WALs to
/// `corrupt`. The other WALs go to `oldWALs`. If `meta_is_complete` is false, a region that
/// hbase:meta does not list may have lost its row, and counts as listed. Returns the entries by
/// encoded name of the region.
///
/// # Errors
/// `IOException` from the file system or hbase:meta.
pub fn keep_lost_edits(
    fs: &dyn FileSystem,
    root: &Path,
    meta: &MetaTable,
    meta_is_complete: bool,
    unclaimed: &[UnclaimedWal],
) -> Result<BTreeMap<String, u64>> {
    let mut lost = BTreeMap::new();
    if unclaimed.is_empty() {
        return Ok(lost);
    }
    let listed = listed_regions(meta)?;
    let name_of = |region: &Unclaimed| String::from_utf8_lossy(&region.region).into_owned();
    // Without the directory of hbase:meta, all its rows but those of later logs are lost.
    let of_meta = |region: &Unclaimed| region.table.is_meta();
    let meta_is_complete = meta_is_complete && !unclaimed.iter().any(|wal| wal.regions.iter().any(of_meta));
    for wal in unclaimed {
        let is_lost = |region: &&Unclaimed| !meta_is_complete || listed.contains(&name_of(region));
        let regions: Vec<_> = wal.regions.iter().filter(is_lost).collect();
        let kept = remove_split_wal(fs, root, &wal.path, wal.is_damaged || !regions.is_empty())?;
        if let Some(dir) = wal.path.parent() {
            fs.delete_empty_dir(dir)?;
        }
        for region in regions {
            tracing::error!(
                table = %region.table, region = name_of(region), entries = region.entries, wal = %kept.display(),
                "the region's directory is missing: its edits are not recovered; the WAL is kept in {CORRUPT_DIR}"
            );
            *lost.entry(name_of(region)).or_default() += region.entries;
        }
    }
    Ok(lost)
}

/// Returns the encoded names of the regions that should have a directory. A split parent's edits
/// are in files, because the parent was closed.
fn listed_regions(meta: &MetaTable) -> Result<HashSet<String>> {
    let live =
        meta.regions(None)?.into_iter().map(|region| region.info).filter(|info| !info.is_split_parent());
    Ok(live.chain([RegionInfo::meta()]).map(|info| info.encoded_name().to_owned()).collect())
}

/// Removes a directory if it is empty.
///
/// # Errors
/// `IOException` from the file system.
pub fn remove_if_empty(fs: &dyn FileSystem, dir: &Path) -> Result<()> {
    if fs.exists(dir)? && fs.list(dir)?.is_empty() {
        fs.delete(dir)?;
    }
    Ok(())
}
