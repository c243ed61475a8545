//! A file system that records in which call the power was cut, and can run other work in the middle
//! of a file.
//!
//! It wraps the one that cuts the power ([`FaultyFileSystem`]). While enabled, it lets modifying
//! calls through one at a time, so that with two threads it is certain whose call was cut.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use evenkeel_fs::{AppendFile, CreateOptions, FaultyFileSystem, FileStatus, FileSystem, RandomAccessFile};
use parking_lot::Mutex;

/// The purpose of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Directory {
    /// Live logs.
    Logs,
    /// Logs that are no longer needed.
    OldLogs,
    /// Edits of a dead server's logs, being split to a region.
    RecoveredEdits,
    /// Files of flushes and compactions that are not complete.
    Tmp,
    /// Lists of store files.
    Lists,
    /// A region and its store files.
    Region,
    /// Store files that were replaced.
    Archive,
}

fn directory_of(path: &Path) -> Directory {
    let path = path.to_string_lossy();
    let has = |part: &str| path.contains(part);
    match () {
        () if has("/oldWALs") => Directory::OldLogs,
        () if has("/WALs") => Directory::Logs,
        () if has("/recovered.edits") => Directory::RecoveredEdits,
        () if has("/.filelist") => Directory::Lists,
        () if has("/.tmp") => Directory::Tmp,
        () if has("/archive") => Directory::Archive,
        () => Directory::Region,
    }
}

/// A call: the operation, its place, and the target of a rename.
pub type Call = (&'static str, Directory, Option<Directory>);

/// Runs once, on the thread that writes the file.
type Meanwhile = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    watches: AtomicBool,
    turn: Mutex<()>,
    cuts: Mutex<BTreeMap<Call, u64>>,
    /// The number of calls on files of a region to wait for, and the work to run then.
    meanwhile: Mutex<Option<(u64, Meanwhile)>>,
}

/// The record of the calls to a file system. Clones share it.
#[derive(Clone, Default)]
pub struct Watch(Arc<State>);

impl Watch {
    /// From here on, modifying calls run one at a time, and those in which the power is cut are
    /// counted.
    pub fn begin(&self) {
        self.0.watches.store(true, Ordering::Relaxed);
    }

    /// Returns how often the power was cut in each call.
    pub fn cuts(&self) -> BTreeMap<Call, u64> {
        self.0.cuts.lock().clone()
    }

    /// Runs `work` after this many more calls have written to unfinished files, before the next
    /// one.
    pub fn in_the_middle(&self, calls: u64, work: Meanwhile) {
        *self.0.meanwhile.lock() = Some((calls, work));
    }

    /// Drops work that has not begun.
    pub fn forget_work(&self) {
        *self.0.meanwhile.lock() = None;
    }

    /// Wraps a file system in this watch.
    pub fn over(&self, fs: FaultyFileSystem) -> Arc<dyn FileSystem> {
        Arc::new(Watched { fs, watch: self.clone() })
    }

    /// Takes the work of this call, if there is any.
    fn due(&self, call: Call) -> Option<Meanwhile> {
        let mut meanwhile = self.0.meanwhile.lock();
        let is_unfinished = matches!(call.1, Directory::Tmp | Directory::Region) && call.2.is_none();
        let (calls, _) = meanwhile.as_mut().filter(|_| is_unfinished)?;
        *calls = calls.saturating_sub(1);
        if *calls > 0 {
            return None;
        }
        meanwhile.take().map(|(_, work)| work)
    }

    fn change<T>(
        &self,
        fs: &FaultyFileSystem,
        call: Call,
        change: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        if !self.0.watches.load(Ordering::Relaxed) {
            return change();
        }
        if let Some(work) = self.due(call) {
            work();
        }
        let _turn = self.0.turn.lock();
        let was_powered_off = fs.is_powered_off();
        let outcome = change();
        if !was_powered_off && fs.is_powered_off() {
            *self.0.cuts.lock().entry(call).or_default() += 1;
        }
        outcome
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watch")
    }
}

#[derive(Debug)]
struct Watched {
    fs: FaultyFileSystem,
    watch: Watch,
}

impl Watched {
    fn change<T>(
        &self,
        op: &'static str,
        path: &Path,
        change: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        self.watch.change(&self.fs, (op, directory_of(path), None), change)
    }
}

impl FileSystem for Watched {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn RandomAccessFile>> {
        self.fs.open(path)
    }

    fn create(&self, path: &Path, options: CreateOptions) -> io::Result<Box<dyn AppendFile>> {
        let inner = self.change("create", path, || self.fs.create(path, options))?;
        let (fs, watch) = (self.fs.clone(), self.watch.clone());
        Ok(Box::new(WatchedFile { inner, place: directory_of(path), fs, watch }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let call = ("rename", directory_of(from), Some(directory_of(to)));
        self.watch.change(&self.fs, call, || self.fs.rename(from, to))
    }

    fn touch(&self, path: &Path) -> io::Result<()> {
        self.change("touch", path, || self.fs.touch(path))
    }

    fn delete(&self, path: &Path) -> io::Result<bool> {
        self.change("delete", path, || self.fs.delete(path))
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.change("sync", path, || self.fs.sync_file(path))
    }

    fn sync_all(&self, root: &Path) -> io::Result<()> {
        self.change("sync", root, || self.fs.sync_all(root))
    }

    fn delete_empty_dir(&self, path: &Path) -> io::Result<bool> {
        self.change("delete", path, || self.fs.delete_empty_dir(path))
    }

    fn mkdirs(&self, path: &Path) -> io::Result<()> {
        self.change("mkdirs", path, || self.fs.mkdirs(path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<FileStatus>> {
        self.fs.list(dir)
    }

    fn status(&self, path: &Path) -> io::Result<FileStatus> {
        self.fs.status(path)
    }
}

#[derive(Debug)]
struct WatchedFile {
    inner: Box<dyn AppendFile>,
    place: Directory,
    fs: FaultyFileSystem,
    watch: Watch,
}

impl WatchedFile {
    fn change(
        &mut self,
        op: &'static str,
        change: impl FnOnce(&mut dyn AppendFile) -> io::Result<()>,
    ) -> io::Result<()> {
        let Self { inner, place, fs, watch } = self;
        watch.change(fs, (op, *place, None), || change(&mut **inner))
    }
}

impl AppendFile for WatchedFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.change("append", |file| file.append(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.change("flush", |file| file.flush())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.change("sync", |file| file.sync())
    }

    fn write_back(&mut self, should_continue: &dyn Fn() -> bool) -> io::Result<()> {
        self.inner.write_back(should_continue)
    }

    fn position(&self) -> u64 {
        self.inner.position()
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.change("truncate", |file| file.truncate(len))
    }

    fn close(&mut self) -> io::Result<()> {
        self.inner.close()
    }
}
