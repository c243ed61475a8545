//! WALs of earlier processes: split into `recovered.edits` of their regions, then moved to
//! `oldWALs`.
//!
//! With `hbase.wal.dir`, logs are below another root directory than regions. Everything that comes
//! from a log stays below the root directory of that log: the recovered edits, `oldWALs`,
//! `corrupt`. A server with that setting splits the logs below both, because the logs below
//! `hbase.rootdir` are of a time before the setting.
//!
//! Every directory below `WALs/` belongs to a dead server, since this process holds the lock of the
//! root directory. On HDFS there is no lock, and the server may be alive. So its directory is
//! renamed first, as HBase's master does, which prevents it from creating another log. The lease of
//! each log is recovered before it is read, which prevents further writes. A crash half way loses
//! nothing: a WAL is moved only when all its edits are in finished files, and splitting it again
//! produces the same files.
//!
//! Several threads split WALs side by side, because each split waits for its syncs. Each WAL is
//! split by one thread, and WALs of the same name by the same thread. Those of hbase:meta come
//! first. No region is open before all are split. After an error no further WAL is started, and
//! those in progress are completed.
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
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use evenkeel_common::clock;
use evenkeel_common::length;
use evenkeel_common::thread::{catch, spawn_scoped};
use evenkeel_common::{HBaseError, RegionInfo, Result, TableName};
use evenkeel_fs::{FileStatus, FileSystem};
use evenkeel_region::layout::{self, CORRUPT_DIR};
use evenkeel_region::region::WalRoot;
use evenkeel_region::region::nonce::{NonceKey, NonceManager};
use evenkeel_wal::names;
use evenkeel_wal::split::{SplitOptions, SplitOutcome, StoreSeqIds, Unclaimed, split_wal};
use parking_lot::Mutex;

use crate::meta::MetaTable;

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

impl Recovered {
    /// Adds the outcome of another recovery.
    pub fn add(&mut self, other: Self) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.entries += other.entries;
        self.damaged += other.damaged;
        self.unclaimed.extend(other.unclaimed);
    }
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

impl UnclaimedWal {
    /// Returns true if it has edits of hbase:meta. Without the directory of hbase:meta, all its
    /// rows but those of later logs are lost.
    pub fn is_of_meta(&self) -> bool {
        self.regions.iter().any(|region| region.table.is_meta())
    }
}

/// How many WALs are split at a time, and in how much memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitLimits {
    /// The number of threads, at least 1: `hbase.regionserver.wal.max.splitters`.
    pub threads: usize,
    /// The maximum bytes of edits in memory, of all threads together:
    /// `hbase.regionserver.hlog.splitlog.buffersize`.
    pub buffer_bytes_max: usize,
}

impl SplitLimits {
    /// Limits of a process without a MemStore in use: edits take no more than the part of the
    /// memory that MemStores have later.
    pub fn new(threads: usize, buffer_bytes_max: u64, memstore_bytes_max: u64) -> Self {
        let buffer_bytes_max = buffer_bytes_max.min(memstore_bytes_max);
        Self {
            threads: threads.max(1),
            buffer_bytes_max: usize::try_from(buffer_bytes_max).unwrap_or(usize::MAX),
        }
    }
}

/// Splits every WAL below `<root>/WALs`, and restores the nonces of all entries.
///
/// # Errors
/// Returns I/O errors of the file system, those of the first WAL in order that has one, and
/// `DoNotRetryIOException` if a thread hits a bug. The next start continues where this one stopped.
pub fn split_wals(
    fs: &Arc<dyn FileSystem>,
    root: &Path,
    nonces: &NonceManager,
    limits: SplitLimits,
) -> Result<Recovered> {
    split_wals_of(&WalRoot { fs: Arc::clone(fs), path: root.to_owned() }, (&**fs, root), nonces, limits)
}

/// As [`split_wals`], for logs below `logs` of regions below another root directory.
///
/// # Errors
/// As [`split_wals`].
pub fn split_wals_of(
    logs: &WalRoot,
    regions: (&dyn FileSystem, &Path),
    nonces: &NonceManager,
    limits: SplitLimits,
) -> Result<Recovered> {
    let WalRoot { fs, path: root } = logs;
    let (wals, started) = (root.join(layout::WALS_DIR), clock::monotonic());
    fs.mkdirs(&wals)?;
    fs.mkdirs(&root.join(layout::OLD_WALS_DIR))?;
    let (mut dirs, mut files) = (Vec::new(), Vec::new());
    for server in fs.list(&wals)? {
        if server.is_dir {
            let dir = fence(&**fs, &server)?;
            files.extend(take_wals(&**fs, root, &dir)?);
            dirs.push(dir);
        } else {
            keep_unknown(&**fs, root, &server)?;
        }
    }
    let recovered = Splitter { fs: &**fs, root, regions, nonces, limits }.split_all(files)?;
    dirs.iter().try_for_each(|dir| remove_split_dir(&**fs, dir, &recovered))?;
    if recovered.files > 0 {
        let ms = length::whole_ms(clock::since(started));
        let Recovered { files, bytes, entries, damaged, .. } = recovered;
        let threads = limits.threads;
        tracing::info!(files, bytes, entries, damaged, threads, ms, "WALs of an earlier process split");
    }
    Ok(recovered)
}

/// Returns the WALs of a server, and moves everything else away. Takes all files from their writer
/// without waiting, so that their recoveries run side by side.
fn take_wals(fs: &dyn FileSystem, root: &Path, dir: &Path) -> Result<Vec<FileStatus>> {
    let is_wal = |entry: &FileStatus| !entry.is_dir && names::is_wal_name(entry.name());
    let (files, unknown): (Vec<_>, Vec<_>) = fs.list(dir)?.into_iter().partition(is_wal);
    unknown.iter().try_for_each(|entry| keep_unknown(fs, root, entry))?;
    files.iter().for_each(|file| drop(fs.recover(&file.path, &|| false)));
    Ok(files)
}

/// Removes the directory of a server whose WALs are split.
fn remove_split_dir(fs: &dyn FileSystem, dir: &Path, recovered: &Recovered) -> Result<()> {
    let holds_unclaimed = recovered.unclaimed.iter().any(|wal| wal.path.starts_with(dir));
    if !fs.delete_empty_dir(dir)? && !holds_unclaimed {
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

/// Splits WALs on several threads.
struct Splitter<'a> {
    /// The file system and the root directory of the logs.
    fs: &'a dyn FileSystem,
    root: &'a Path,
    /// Those of the regions.
    regions: (&'a dyn FileSystem, &'a Path),
    nonces: &'a NonceManager,
    limits: SplitLimits,
}

impl Splitter<'_> {
    /// Returns the sum of all outcomes, or the first error in the order of the WALs.
    fn split_all(&self, mut files: Vec<FileStatus>) -> Result<Recovered> {
        files.sort_by(|a, b| order_of(a).cmp(&order_of(b)));
        // The temporary files of WALs with the same name have the same name, too.
        let groups: Vec<_> = files.chunk_by(|a, b| a.name() == b.name()).collect();
        let threads = self.limits.threads.min(groups.len());
        let buffer_bytes_max = self.limits.buffer_bytes_max / threads.max(1);
        let (next, has_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let outcomes = Mutex::new(BTreeMap::new());
        // The threads log where the caller logs.
        let log = tracing::dispatcher::get_default(Clone::clone);
        let split = || {
            while !has_failed.load(Ordering::Relaxed) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(group) = groups.get(number) else { break };
                let outcome = self.split_group(group, buffer_bytes_max);
                has_failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
                outcomes.lock().insert(number, outcome);
            }
        };
        std::thread::scope(|scope| {
            (0..threads).try_for_each(|at| {
                let run = || tracing::dispatcher::with_default(&log, split);
                spawn_scoped(scope, format!("split-wal-{at}"), run).map(drop)
            })
        })?;
        let mut recovered = Recovered::default();
        outcomes.into_inner().into_values().try_for_each(|of_group| of_group.map(|of| recovered.add(of)))?;
        Ok(recovered)
    }

    fn split_group(&self, group: &[FileStatus], buffer_bytes_max: usize) -> Result<Recovered> {
        let mut recovered = Recovered::default();
        for file in group {
            let split = || self.split_one(file, buffer_bytes_max);
            recovered.add(catch(format_args!("splitting {}", file.path.display()), split)?);
        }
        Ok(recovered)
    }

    fn split_one(&self, file: &FileStatus, buffer_bytes_max: usize) -> Result<Recovered> {
        let Self { fs, root, regions: (regions_fs, regions_root), nonces, .. } = *self;
        let outcome = split_wal(SplitOptions {
            fs,
            wal: &file.path,
            worker: WORKER,
            last_flushed: &mut |_| Ok(StoreSeqIds::default()),
            region_dir: &mut |region: &[u8], table: &TableName| {
                let below =
                    |root: &Path| layout::table_dir(root, table).join(&*String::from_utf8_lossy(region));
                Ok(if regions_fs.exists(&below(regions_root))? { Some(below(root)) } else { None })
            },
            on_entry: &mut |entry| {
                let key = NonceKey { group: entry.nonce_group, nonce: entry.nonce };
                nonces.restore(key, entry.write_time_ms);
            },
            should_continue: &mut || true,
            buffer_bytes_max,
        })?;
        let is_damaged = outcome.corrupt.is_some();
        let (files, bytes, entries) = (1, file.len, outcome.entries);
        let mut recovered =
            Recovered { files, bytes, entries, damaged: u64::from(is_damaged), ..Recovered::default() };
        if let Some(damage) = &outcome.corrupt {
            log_damage(file, &outcome, damage);
        }
        if is_damaged || !outcome.unclaimed.is_empty() {
            let (path, regions) = (file.path.clone(), outcome.unclaimed);
            recovered.unclaimed.push(UnclaimedWal { path, is_damaged, regions });
        } else {
            remove_split_wal(fs, root, &file.path, false)?;
        }
        Ok(recovered)
    }
}

/// The order of WALs: those of hbase:meta first, as in HBase, then by name.
fn order_of(file: &FileStatus) -> (bool, &str, &Path) {
    (!names::is_meta(file.name()), file.name(), &file.path)
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
/// `corrupt`. The other WALs go to `oldWALs`. Both are below `root`, the root directory of the
/// logs. If `meta_is_complete` is false, a region that hbase:meta does not list may have lost its
/// row, and counts as listed. Returns the entries by encoded name of the region.
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
    let meta_is_complete = meta_is_complete && !unclaimed.iter().any(UnclaimedWal::is_of_meta);
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
