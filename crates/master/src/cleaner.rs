//! Cleaners: delete unneeded files from the archive and from `oldWALs` (`HFileCleaner`,
//! `LogCleaner`).
//!
//! A cleaner walks a directory tree. It deletes a file if each of its [`Delegate`]s frees it, or if
//! its name does not belong in the tree. It also deletes a directory that becomes empty. As in
//! HBase, the age of a file counts from when it was written, not from when it came to the archive.
//!
//! These keep a file:
//!
//! - `archive`: it is younger than `hbase.master.hfilecleaner.ttl`; a snapshot names it; a link to
//!   it has its back reference beside it
//! - `oldWALs`: it is younger than `hbase.master.logcleaner.ttl`; procedure logs and WALs of the
//!   master's region have separate keys
//! - `MasterData/archive`, `MasterData/oldWALs`: it is younger than
//!   `hbase.master.local.store.hfilecleaner.ttl`, `...walcleaner.ttl`
//!
//! Logs are below `hbase.wal.dir`, and below `hbase.rootdir` from a time before that setting.
//!
//! **Exclusion.** Code that creates links or snapshots pauses the cleaners
//! ([`Cleaners::pause`]) from before it reads the first file until the links or the snapshot
//! exist. A cleaner takes the same lock exclusively for one directory at a time, from before it
//! calls the delegates until the files are deleted. If it cannot take the lock at once, it skips
//! the directory until its next run. A directory is deleted only by a call that fails if it is not
//! empty, because files come to the archive at any time.
//!
//! A delegate named in `hbase.master.hfilecleaner.plugins` or `hbase.master.logcleaner.plugins`
//! that this server does not implement might keep any file. No file is deleted then, and an error
//! is logged.

mod delegates;
mod settings;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use evenkeel_common::Result;
use evenkeel_common::clock::Clock;
use evenkeel_fs::{FileStatus, FileSystem};
use evenkeel_region::region::WalRoot;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use self::delegates::{Delegate, LinkedFiles, SnapshotFiles, TimeToLive};
pub use self::settings::CleanerSettings;
use super::links;

/// How deep a tree is walked: `archive/data/<ns>/<table>/<region>/<family>/.links-<file>` has seven
/// levels.
const LEVELS_MAX: usize = 16;

/// The outcome of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Files deleted.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files kept.
    pub kept: u64,
}

impl Cleaned {
    fn and(self, other: Self) -> Self {
        Self {
            files: self.files + other.files,
            bytes: self.bytes + other.bytes,
            kept: self.kept + other.kept,
        }
    }
}

/// State that all cleaners of a master share.
#[derive(Clone)]
struct Shared {
    fs: Arc<dyn FileSystem>,
    /// See "Exclusion" in the module's documentation. The last in the lock order.
    references: Arc<RwLock<()>>,
    stopping: Arc<AtomicBool>,
}

/// A directory tree, and the delegates that decide about its files.
struct Cleaner {
    shared: Shared,
    name: &'static str,
    dir: PathBuf,
    /// Returns true if a file belongs in the tree.
    belongs: fn(&Path) -> bool,
    delegates: Vec<Box<dyn Delegate>>,
}

impl Cleaner {
    fn clean(&self) -> Result<Cleaned> {
        let cleaned = self.clean_dir(&self.dir, 0)?;
        if cleaned.files > 0 {
            let Cleaned { files, bytes, kept } = cleaned;
            tracing::info!(cleaner = self.name, files, bytes, kept, "unneeded files deleted");
        }
        Ok(cleaned)
    }

    fn clean_dir(&self, dir: &Path, level: usize) -> Result<Cleaned> {
        let entries = match self.shared.fs.list(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Cleaned::default()),
            Err(error) => return Err(error.into()),
        };
        let (dirs, files): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry.is_dir);
        let mut cleaned = self.clean_files(files)?;
        for below in dirs {
            if level >= LEVELS_MAX || self.shared.stopping.load(Ordering::Relaxed) {
                cleaned.kept += 1;
                continue;
            }
            cleaned = cleaned.and(self.clean_dir(&below.path, level + 1)?);
            // Fails without harm if the directory is not empty.
            self.shared.fs.delete_empty_dir(&below.path)?;
        }
        Ok(cleaned)
    }

    fn clean_files(&self, files: Vec<FileStatus>) -> Result<Cleaned> {
        let all = Cleaned { kept: files.len() as u64, ..Cleaned::default() };
        if files.is_empty() {
            return Ok(all);
        }
        let Some(_alone) = self.shared.references.try_write() else { return Ok(all) };
        let (mut deletable, invalid_files): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|file| (self.belongs)(&file.path));
        for delegate in &self.delegates {
            if !deletable.is_empty() {
                deletable = delegate.deletable(deletable)?;
            }
        }
        let mut cleaned = all;
        for file in deletable.into_iter().chain(invalid_files) {
            if self.shared.fs.discard(&file.path)? {
                cleaned = Cleaned {
                    files: cleaned.files + 1,
                    bytes: cleaned.bytes + file.len,
                    kept: cleaned.kept.saturating_sub(1),
                };
            }
        }
        Ok(cleaned)
    }
}

/// The cleaners of a root directory.
pub struct Cleaners {
    shared: Shared,
    hfiles: Vec<Cleaner>,
    logs: Vec<Cleaner>,
    /// Allows one run at a time.
    running: Mutex<()>,
}

impl Cleaners {
    /// Creates the cleaners below `root`, and those of logs below `wal_root`, too, if logs are not
    /// below `root`.
    pub fn new(
        fs: Arc<dyn FileSystem>,
        root: &Path,
        wal_root: Option<&WalRoot>,
        clock: Arc<dyn Clock>,
        settings: &CleanerSettings,
    ) -> Self {
        let shared = Shared { fs, references: Arc::default(), stopping: Arc::default() };
        let below = |fs: &Arc<dyn FileSystem>, root: &Path, (name, dir): (_, &str), belongs, delegates| {
            let (shared, dir) = (Shared { fs: Arc::clone(fs), ..shared.clone() }, root.join(dir));
            Cleaner { shared, name, dir, belongs, delegates }
        };
        let of_any_name =
            |ttl_ms| -> Vec<Box<dyn Delegate>> { vec![Box::new(TimeToLive::new(&clock, ttl_ms, |_| true))] };
        let snapshots = SnapshotFiles::new(Arc::clone(&shared.fs), root, settings.manifest_bytes_max);
        let mut of_archive = settings.hfile_delegates(&clock);
        of_archive.push(Box::new(LinkedFiles::new(Arc::clone(&shared.fs), root)));
        of_archive.push(Box::new(snapshots));
        let of_hfiles =
            |dir, belongs, delegates| below(&shared.fs, root, ("HFileCleaner", dir), belongs, delegates);
        let hfiles = vec![
            of_hfiles("archive", belongs_to_archive, of_archive),
            of_hfiles("MasterData/archive", |_| true, of_any_name(settings.local_hfile_ttl_ms)),
        ];
        let beside = wal_root.map(|logs| (&logs.fs, &*logs.path));
        let logs = beside.into_iter().chain([(&shared.fs, root)]).flat_map(|(fs, root)| {
            let of_logs = |dir, belongs, delegates| below(fs, root, ("LogCleaner", dir), belongs, delegates);
            let local = of_any_name(settings.local_wal_ttl_ms);
            [
                of_logs("oldWALs", belongs_to_old_logs, settings.log_delegates(&clock)),
                of_logs("MasterData/oldWALs", |_| true, local),
            ]
        });
        let logs = logs.collect();
        Self { shared, hfiles, logs, running: Mutex::new(()) }
    }

    /// Runs every cleaner once. Waits for a run in progress.
    ///
    /// # Errors
    /// Returns I/O errors of the file system, after every cleaner has run.
    pub fn run(&self) -> Result<Cleaned> {
        let _one = self.running.lock();
        let runs: Vec<_> = self.hfiles.iter().chain(&self.logs).map(Cleaner::clean).collect();
        runs.into_iter().try_fold(Cleaned::default(), |sum, run| Ok(sum.and(run?)))
    }

    /// While the guard is held, no file is deleted. Hold it while creating links or snapshots.
    pub fn pause(&self) -> RwLockReadGuard<'_, ()> {
        self.shared.references.read()
    }

    /// Ends a run in progress after its current directory.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
    }
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Store files, links, references and back references (`HFileCleaner.validate`).
fn belongs_to_archive(path: &Path) -> bool {
    let parent = path.parent().map(file_name).unwrap_or_default();
    links::is_back_references_dir(parent)
        || links::is_store_file_name(file_name(path))
        || is_local_hfile(path)
}

/// Logs of region servers, of procedures, and of the master's own region (`LogCleaner.validate`).
fn belongs_to_old_logs(path: &Path) -> bool {
    is_wal(path) || is_procedure_log(path) || is_local_wal(path)
}

/// `.*\.\d*(.meta)*` (`AbstractFSWALProvider.validateWALFilename`).
fn is_wal(path: &Path) -> bool {
    let mut name = file_name(path);
    while let Some(stem) = name.strip_suffix(".meta") {
        name = stem;
    }
    name.rsplit_once('.').is_some_and(|(_, number)| number.bytes().all(|b| b.is_ascii_digit()))
}

/// `pv2-` and twenty digits, `.log` (`MasterProcedureUtil.validateProcedureWALFilename`).
fn is_procedure_log(path: &Path) -> bool {
    let number = file_name(path).strip_suffix(".log").and_then(|stem| stem.rsplit_once("pv2-"));
    number.is_some_and(|(_, number)| number.len() == 20 && number.bytes().all(|b| b.is_ascii_digit()))
}

/// Store files that a stock master archives from its region (`MasterRegionFactory`).
fn is_local_hfile(path: &Path) -> bool {
    file_name(path).ends_with("$-masterlocalhfile-$")
}

fn is_local_wal(path: &Path) -> bool {
    file_name(path).ends_with("$masterlocalwal$")
}
