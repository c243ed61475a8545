//! `hbase.wal.dir`: where logs are, and how no log is lost from sight when it changes.
//!
//! The root directory and the directory of the logs each name the other:
//!
//! - `<hbase.rootdir>/.evenkeel.wal.dir`: the URI of the directory that the last start had its
//!   logs in. It does not exist if logs are below `hbase.rootdir`.
//! - `<hbase.wal.dir>/hbase.id`: the id of the cluster that the logs are of, in the form of the
//!   file of this name in the root directory (`FSUtils.setClusterId`).
//!
//! HBase reads logs below the configured directory only. A change of the setting with unflushed
//! edits in logs would lose acknowledged writes there, without a message. Here:
//!
//! - The setting is new: a start recovers the logs below both directories ([`log_roots`]).
//! - It is removed, or names another directory: a start refuses while the recorded directory holds
//!   logs or recovered edits. Nothing in the settings names that directory any more. Its disk may
//!   be about to go, and no later start would read what is recovered into it. A stop flushes
//!   everything, and the setting can be changed after it. The start copies the `.seqid` files to
//!   the new place: the sequence ids of regions do not go back.
//! - The recorded directory is gone or empty, as when its disk is not mounted: a start refuses.
//! - The directory has the logs of another cluster: a start refuses, because it would take them for
//!   logs of deleted regions.
//! - A root directory with tables has no `WALs`, nor has `hbase.wal.dir`: a start refuses, because
//!   stock HBase had its logs elsewhere. It creates `WALs` below the directory that it writes to.
//!
//! Stock HBase ignores both files, and does not record changes of the setting in its own turns.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_common::{HBaseError, Result, TableName};
use evenkeel_fs::{FileSystem, Location};
use evenkeel_master::reconcile;
use evenkeel_process::server::Process;
use evenkeel_process::{settings, storage};
use evenkeel_region::layout;
use evenkeel_region::region::{WalRoot, copy_seq_id_file};

use crate::files;

/// In the root directory: the URI of the directory of the logs, if they are not below the root.
const RECORD: &str = ".evenkeel.wal.dir";
const RECORD_BYTES_MAX: u64 = 64 << 10;

/// Opens the directory of `hbase.wal.dir`, unless logs are below the root directory, and returns
/// its lock. The root directory must exist. Nothing is created in a directory that a disk should be
/// mounted on: a recorded directory must have its files.
///
/// # Errors
/// One line about an invalid setting or a directory that is in use; errors of the file system.
pub(crate) fn open<L>(process: &mut Process, lock: impl Fn(&Path) -> Result<L>) -> Result<Option<L>> {
    let Some(location) = settings::wal_location(&process.conf)? else { return Ok(None) };
    let logs = wal_root_at(process, &location)?;
    let recorded = recorded(process)?;
    if recorded.as_ref().is_some_and(|uri| *uri == uri_of(&logs)) && !holds_id(&logs)? {
        return Err(not_there(process, &uri_of(&logs)));
    }
    logs.fs.mkdirs(&logs.path).map_err(|e| HBaseError::io(format!("{}: {e}", logs.path.display())))?;
    if is_same_or_below(process, &logs)? {
        return Err(HBaseError::io(format!(
            "hbase.wal.dir: {} is in hbase.rootdir, by a symbolic link",
            logs.path.display()
        )));
    }
    let lock = if logs.fs.is_remote() { None } else { Some(lock(&logs.path)?) };
    tracing::info!(directory = %uri_of(&logs), "the directory of the logs");
    process.wal_root = Some(logs);
    Ok(lock)
}

/// Returns true if a root directory has no tables, hbase:meta included: it never had logs.
///
/// # Errors
/// Errors of the file system.
pub(crate) fn is_new(fs: &dyn FileSystem, root: &Path) -> Result<bool> {
    Ok(reconcile::table_dirs(fs, root)?.is_empty())
}

/// Checks that no log is in a directory that this start does not read, and records where logs are
/// from now on. `is_new` is [`is_new`] of the root directory when the start begins.
///
/// # Errors
/// One line that names the directory with the logs, and what to do; errors of the file system.
pub(crate) fn check(process: &Process, cluster_id: &str, is_new: bool) -> Result<()> {
    let logs = process.wal_root();
    let current = process.wal_root.as_ref().map(uri_of);
    let recorded = recorded(process)?;
    if let Some(logs) = &process.wal_root {
        if recorded == current && !holds_id(logs)? {
            return Err(not_there(process, &uri_of(logs)));
        }
        check_id(logs, cluster_id)?;
    }
    if recorded == current && recorded.is_some() {
        return Ok(());
    }
    match &recorded {
        Some(recorded) => copy_seq_ids(&check_left_dir(process, recorded)?, process)?,
        None => check_has_logs(process, is_new)?,
    }
    // From here on a start finds a directory of logs where it looks for one.
    logs.fs.mkdirs(&logs.path.join(layout::WALS_DIR))?;
    let record = record_path(process);
    match current {
        Some(uri) => Ok(process.fs.write_atomically(&record, format!("{uri}\n").as_bytes())?),
        None => Ok(process.fs.delete(&record).map(drop)?),
    }
}

/// Returns the directories below which logs of earlier runs may be: that of the logs, and the root
/// directory, if `hbase.wal.dir` was set since they were written.
///
/// # Errors
/// Errors of the file system.
pub(crate) fn log_roots(process: &Process) -> Result<Vec<WalRoot>> {
    let mut roots = vec![process.wal_root()];
    if process.wal_root.is_some() && process.fs.exists(&process.settings.root.join(layout::WALS_DIR))? {
        roots.push(WalRoot { fs: Arc::clone(&process.fs), path: process.settings.root.clone() });
    }
    Ok(roots)
}

/// Removes the root directory's directory of logs once all of them are recovered, so that it looks
/// like that of stock HBase with `hbase.wal.dir`.
///
/// # Errors
/// Errors of the file system.
pub(crate) fn remove_left_dir(process: &Process) -> Result<()> {
    if process.wal_root.is_some() {
        process.fs.delete_empty_dir(&process.settings.root.join(layout::WALS_DIR))?;
    }
    Ok(())
}

fn wal_root_at(process: &Process, location: &Location) -> Result<WalRoot> {
    let is_beside = location.is_beside(&settings::root_location(&process.conf)?);
    let fs = match is_beside {
        true => Arc::clone(&process.fs),
        false => storage::file_system(&process.conf, location)?,
    };
    Ok(WalRoot { fs, path: location.path().to_owned() })
}

/// Returns the URI of a directory: an absolute path without symbolic links. It is the same whether
/// the directory exists or not, unless a link leads to nothing.
pub(crate) fn uri_of(logs: &WalRoot) -> String {
    let path = if logs.fs.is_remote() { Ok(logs.path.clone()) } else { std::path::absolute(&logs.path) };
    let path: PathBuf = path.as_deref().unwrap_or(&logs.path).components().collect();
    let resolved = path.ancestors().find_map(|existing| {
        let resolved = logs.fs.resolve(existing).ok()?;
        Some(resolved.join(path.strip_prefix(existing).ok()?).components().collect::<PathBuf>())
    });
    logs.fs.uri_of(&resolved.unwrap_or(path))
}

/// The error of a start that does not find the directory of the last logs.
fn not_there(process: &Process, uri: &str) -> HBaseError {
    HBaseError::io(format!(
        "{}: the logs are in {uri}, and that directory has no {}: is its disk mounted? To go on without those \
         logs, remove this file and create the directory {}",
        record_path(process).display(),
        files::ID_FILE,
        process.settings.root.join(layout::WALS_DIR).display()
    ))
}

fn record_path(process: &Process) -> PathBuf {
    process.settings.root.join(RECORD)
}

/// Returns the URI of the directory that the last start on a root directory had its logs in; `None`
/// if logs were below the root directory.
///
/// # Errors
/// `IOException` from the file system, and for a record that is not text.
pub fn recorded_wal_dir(fs: &dyn FileSystem, root: &Path) -> Result<Option<String>> {
    let path = root.join(RECORD);
    if !fs.exists(&path)? {
        return Ok(None);
    }
    let text = String::from_utf8(fs.read_all(&path, RECORD_BYTES_MAX)?);
    let text = text.map_err(|_| HBaseError::io(format!("{}: not a URI", path.display())))?;
    Ok(Some(text.trim().to_owned()))
}

fn recorded(process: &Process) -> Result<Option<String>> {
    recorded_wal_dir(&*process.fs, &process.settings.root)
}

fn holds_id(logs: &WalRoot) -> Result<bool> {
    Ok(logs.fs.exists(&logs.path.join(files::ID_FILE))?)
}

/// Checks that the logs are of this cluster. Writes its id into a directory that has none: a new
/// one, or one of stock HBase.
fn check_id(logs: &WalRoot, cluster_id: &str) -> Result<()> {
    let path = logs.path.join(files::ID_FILE);
    match files::read_cluster_id(&*logs.fs, &path)? {
        None => files::write_cluster_id(&*logs.fs, &path, cluster_id),
        Some(id) if id == cluster_id => Ok(()),
        Some(id) => Err(HBaseError::io(format!(
            "hbase.wal.dir: the logs in {} are of the cluster {id}, and hbase.rootdir is of the cluster {cluster_id}",
            logs.path.display()
        ))),
    }
}

/// Returns true if a symbolic link leads from the directory of the logs into the root directory.
fn is_same_or_below(process: &Process, logs: &WalRoot) -> Result<bool> {
    let is_beside = !logs.fs.is_remote() && !process.fs.is_remote();
    Ok(is_beside && logs.fs.resolve(&logs.path)?.starts_with(process.fs.resolve(&process.settings.root)?))
}

/// Checks a directory that an earlier start had its logs in, and returns it.
fn check_left_dir(process: &Process, uri: &str) -> Result<WalRoot> {
    let record = record_path(process);
    let at = |what: String| HBaseError::io(format!("{}: {what}", record.display()));
    let location = Location::parse(uri).map_err(|e| at(e.to_string()))?;
    let logs = wal_root_at(process, &location)?;
    if !holds_id(&logs)? {
        return Err(not_there(process, uri));
    }
    match first_log(&logs)? {
        None => Ok(logs),
        Some((log, table)) => Err(HBaseError::io(format!(
            "hbase.wal.dir was {uri} until now, where {} has edits that may be in no store file: set it to that \
             directory again, start the server, {}and stop it before the setting is changed. For a copy of a \
             root directory that needs no logs, remove {} and create the directory {}",
            log.display(),
            table.map_or(String::new(), |table| format!("enable the table {table} if it is disabled, ")),
            record.display(),
            process.settings.root.join(layout::WALS_DIR).display()
        ))),
    }
}

/// Copies the `.seqid` files of all regions that exist from a directory that is left. They stay
/// there, too: no edits are beside them, so they bound none.
fn copy_seq_ids(left: &WalRoot, process: &Process) -> Result<()> {
    let logs = process.wal_root();
    for (table, dir) in reconcile::table_dirs(&*left.fs, &left.path)? {
        let of_table = |root: &Path| layout::table_dir(root, &table);
        for region in left.fs.list(&dir)? {
            if process.fs.exists(&of_table(&process.settings.root).join(region.name()))? {
                let to = of_table(&logs.path).join(region.name());
                copy_seq_id_file((&*left.fs, &region.path), (&*logs.fs, &to))?;
            }
        }
    }
    Ok(())
}

/// Returns a log, or a file of recovered edits and its table. Those of a disabled table stay until
/// its regions are opened.
fn first_log(logs: &WalRoot) -> Result<Option<(PathBuf, Option<TableName>)>> {
    let (fs, root) = (&*logs.fs, &logs.path);
    let wals = root.join(layout::WALS_DIR);
    let servers = if fs.exists(&wals)? { fs.list(&wals)? } else { Vec::new() };
    for server in servers {
        let below = if server.is_dir { fs.list(&server.path)? } else { vec![server] };
        if let Some(log) = below.into_iter().next() {
            return Ok(Some((log.path, None)));
        }
    }
    for (name, table) in reconcile::table_dirs(fs, root)? {
        for region in fs.list(&table)? {
            let dir = region.path.join(layout::RECOVERED_EDITS_DIR);
            let edits = if fs.exists(&dir)? { fs.list(&dir)? } else { Vec::new() };
            let is_edits = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
            if let Some(edits) = edits.into_iter().find(|file| is_edits(file.name())) {
                return Ok(Some((edits.path, Some(name))));
            }
        }
    }
    Ok(None)
}

/// Checks that the logs of a root directory, which no file names, are not somewhere else.
fn check_has_logs(process: &Process, is_new: bool) -> Result<()> {
    let logs = process.wal_root();
    let root = &process.settings.root;
    let has_logs =
        |fs: &dyn FileSystem, root: &Path| Ok::<_, HBaseError>(fs.exists(&root.join(layout::WALS_DIR))?);
    if is_new || has_logs(&*logs.fs, &logs.path)? || has_logs(&*process.fs, root)? {
        return Ok(());
    }
    Err(HBaseError::io(format!(
        "hbase.wal.dir: {} has tables and no directory {}, so its logs are in another directory: set \
         hbase.wal.dir to it. If the server had none, as in a backup of a stopped server by a tool that \
         leaves empty directories out, create the directory {}",
        root.display(),
        layout::WALS_DIR,
        root.join(layout::WALS_DIR).display()
    )))
}

#[cfg(test)]
mod tests {
    use evenkeel_common::{Configuration, RegionInfo};
    use evenkeel_fs::{LocalFileSystem, MemoryFileSystem};

    use super::*;

    const ROOT: &str = "/hbase";
    const LOG: &str = "WALs/h,1,2/h%2C1%2C2.17";

    /// Does what the first step of a start does, on a disk in memory.
    fn start(fs: &MemoryFileSystem, wal_dir: &str) -> Result<Process> {
        let mut conf = Configuration::new();
        conf.set("hbase.rootdir", format!("file:{ROOT}"));
        conf.set("hbase.wal.dir", wal_dir);
        let mut process = Process::new(Arc::new(fs.clone()), conf, Arc::new(|_: &str| {}))?;
        fs.mkdirs(Path::new(ROOT))?;
        open(&mut process, |_| Ok(()))?;
        let is_new = is_new(fs, Path::new(ROOT))?;
        let cluster_id = files::prepare_root(fs, Path::new(ROOT))?;
        check(&process, &cluster_id, is_new)?;
        fs.mkdirs(&layout::region_dir(Path::new(ROOT), &RegionInfo::meta()))?;
        Ok(process)
    }

    fn write(fs: &MemoryFileSystem, path: &str) {
        fs.write_atomically(Path::new(path), b"x").expect("written");
    }

    #[track_caller]
    fn refused(fs: &MemoryFileSystem, wal_dir: &str, parts: &[&str]) {
        let error = start(fs, wal_dir).err().expect("refused");
        assert!(parts.iter().all(|part| error.message().contains(part)), "{error}");
    }

    fn roots(process: &Process) -> Vec<PathBuf> {
        log_roots(process).expect("listed").into_iter().map(|root| root.path).collect()
    }

    #[test]
    fn logs_below_both_directories_are_read_after_the_setting_is_new() {
        let fs = MemoryFileSystem::new();
        assert_eq!(roots(&start(&fs, "").expect("started")), [Path::new(ROOT)]);
        write(&fs, &format!("{ROOT}/{LOG}"));
        let process = start(&fs, "/wals").expect("started");
        assert_eq!(process.wal_root().path, Path::new("/wals"));
        assert_eq!(roots(&process), [Path::new("/wals"), Path::new(ROOT)]);
        remove_left_dir(&process).expect("looked");
        assert_eq!(roots(&process).len(), 2, "there is a log");
        fs.delete(&Path::new(ROOT).join("WALs/h,1,2")).expect("split");
        remove_left_dir(&process).expect("removed");
        assert_eq!(roots(&process), [Path::new("/wals")]);
        assert_eq!(roots(&start(&fs, "/wals").expect("started")), [Path::new("/wals")]);
    }

    #[test]
    fn a_directory_with_logs_is_not_left() {
        for left in
            [LOG, "data/default/t/0123456789abcdef0123456789abcdef/recovered.edits/0000000000000000007"]
        {
            let fs = MemoryFileSystem::new();
            start(&fs, "/wals").expect("started");
            write(&fs, &format!("/wals/{left}"));
            for other in ["", "/other"] {
                let advice =
                    if left == LOG { "server, and stop" } else { "enable the table t if it is disabled" };
                refused(&fs, other, &["hbase.wal.dir was file:/wals", left, advice]);
            }
            start(&fs, "file:///wals").expect("the same directory");
            fs.delete(&Path::new("/wals").join(left)).expect("deleted");
            for other in ["/other", "", "", "/wals"] {
                start(&fs, other).expect("no log is left");
            }
        }
    }

    /// A directory in the root directory is made for no region that is gone.
    #[test]
    fn sequence_ids_do_not_go_back_when_a_directory_is_left() {
        let fs = MemoryFileSystem::new();
        start(&fs, "/wals").expect("started");
        let [live, gone] = ["1", "2"].map(|name| format!("data/default/t/{}", name.repeat(32)));
        fs.mkdirs(&Path::new(ROOT).join(&live)).expect("made");
        let meta = "data/hbase/meta/1588230740".to_owned();
        for region in [&live, &meta, &gone] {
            write(&fs, &format!("/wals/{region}/recovered.edits/17.seqid"));
        }
        for (other, root) in [("/other", "/other"), ("", ROOT)] {
            start(&fs, other).expect("changed");
            let exists = |path: &str| fs.exists(&Path::new(root).join(path)).expect("looked");
            for region in [&live, &meta] {
                assert!(exists(&format!("{region}/recovered.edits/17.seqid")), "{root}/{region}");
            }
            assert!(!exists(&gone), "{root}");
        }
    }

    #[test]
    fn a_directory_whose_disk_is_not_mounted_is_refused() {
        let fs = MemoryFileSystem::new();
        start(&fs, "/wals").expect("started");
        fs.rename(Path::new("/wals"), Path::new("/elsewhere")).expect("unmounted");
        for setting in ["/wals", "/wals/", "file:///wals/./", "", "/other"] {
            refused(&fs, setting, &["/hbase/.evenkeel.wal.dir", "file:/wals", "mounted"]);
            assert!(!fs.exists(Path::new("/wals")).expect("looked"), "nothing is written to the mount point");
        }
        fs.delete(&Path::new(ROOT).join(RECORD)).expect("deleted");
        refused(&fs, "/wals", &["no directory WALs"]);
        fs.mkdirs(&Path::new(ROOT).join("WALs")).expect("made");
        start(&fs, "/wals").expect("the operator has given those logs up");
    }

    /// Also if a setting names the directory by a link that the start sees only once it is made.
    #[test]
    fn a_mount_point_gets_no_id() {
        let fs = MemoryFileSystem::new();
        let process = start(&fs, "/wals").expect("started");
        fs.delete(&Path::new("/wals").join(files::ID_FILE)).expect("deleted");
        let id = files::prepare_root(&fs, Path::new(ROOT)).expect("read");
        let error = check(&process, &id, false).expect_err("refused");
        assert!(error.message().contains("is its disk mounted"), "{error}");
        assert!(!fs.exists(&Path::new("/wals").join(files::ID_FILE)).expect("looked"));
    }

    #[test]
    fn a_directory_has_one_uri() {
        let folder = tempfile::tempdir().expect("made");
        let real = folder.path().canonicalize().expect("resolved");
        std::fs::create_dir(real.join("disk")).expect("made");
        std::os::unix::fs::symlink(real.join("disk"), real.join("link")).expect("made");
        let expected = format!("file:{}/disk/wals/logs", real.display());
        let up = "../".repeat(std::env::current_dir().expect("known").components().count());
        let relative = Path::new(&up).join(real.strip_prefix("/").expect("absolute")).join("disk/wals/logs");
        for exists in [false, true] {
            for path in ["disk/wals/logs", "disk/wals/logs/", "disk/./wals//logs", "link/wals/logs"] {
                let logs = WalRoot { fs: Arc::new(LocalFileSystem::new()), path: real.join(path) };
                assert_eq!(uri_of(&logs), expected, "{path}");
            }
            let logs = WalRoot { fs: Arc::new(LocalFileSystem::new()), path: relative.clone() };
            assert_eq!(uri_of(&logs), expected, "exists: {exists}");
            std::fs::create_dir_all(real.join("disk/wals/logs")).expect("made");
        }
    }

    #[test]
    fn logs_of_another_cluster_are_refused() {
        let fs = MemoryFileSystem::new();
        start(&fs, "/wals").expect("started");
        fs.rename(Path::new(ROOT), Path::new("/first")).expect("moved");
        refused(&fs, "/wals", &["hbase.wal.dir", "are of the cluster"]);
        start(&fs, "/other").expect("a directory of its own");
    }

    /// Stock HBase with `hbase.wal.dir` creates no `WALs` in the root directory.
    #[test]
    fn a_root_directory_of_stock_hbase_needs_the_setting_that_it_had() {
        // The second directory has lost that of hbase:meta, which a start would make again.
        let meta = layout::region_dir(Path::new(ROOT), &RegionInfo::meta());
        for dir in [meta, Path::new(ROOT).join("data/default/t")] {
            needs_the_setting_that_it_had(&dir);
        }
    }

    fn needs_the_setting_that_it_had(dir: &Path) {
        let fs = MemoryFileSystem::new();
        fs.mkdirs(dir).expect("made");
        write(&fs, &format!("/wals/{LOG}"));
        for other in ["", "/other"] {
            let advice =
                ["set hbase.wal.dir", "leaves empty directories out, create the directory /hbase/WALs"];
            refused(&fs, other, &[&["/hbase has tables and no directory WALs"], &advice[..]].concat());
        }
        let process = start(&fs, "/wals").expect("started");
        assert_eq!(roots(&process), [Path::new("/wals")]);
    }
}
