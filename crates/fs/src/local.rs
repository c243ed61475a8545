//! [`LocalFileSystem`], local files.
//!
//! * Reads use `pread(2)`: one open file serves all threads without a lock or a seek.
//! * Appends are collected in a buffer of [`APPEND_BUFFER_BYTES`]. **Flush** passes it to the
//!   kernel with `write(2)`, so that it survives this process. **Sync** also calls `fdatasync(2)`
//!   and, once per file, `fsync` on its directory, so that the name survives the machine together
//!   with the bytes.
//! * A bulk file is written to the disk while it grows; see `write_behind.rs`.
//! * After an error a file that is being written rejects every further call. A kernel that failed
//!   an `fsync` no longer knows which pages were dirty, so a successful retry would prove nothing.
//! * Checksum files of Hadoop (`.NAME.crc`) are moved and removed with their file, and are not
//!   listed; see `checksum_file.rs`.
//! * Renames, deletes and new directories are made durable by an `fsync` of the directories that
//!   contain the names. A thread that finds a directory relies on its durability, so it waits while
//!   another thread is between creating a directory and its `fsync`, and a directory whose `fsync`
//!   failed is removed again. What ended processes left is made durable by one `syncfs(2)`
//!   ([`FileSystem::sync_all`]).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use parking_lot::RwLock;

use crate::page_cache;
use crate::write_behind::{Kernel, WRITE_BEHIND_BYTES, WriteBehind};
use crate::{
    AppendFile, CreateOptions, FileKind, FileStatus, FileSystem, RandomAccessFile, StorageChecksum,
    checksum_file,
};

/// The maximum number of appended bytes that are buffered before they are passed to the kernel.
pub const APPEND_BUFFER_BYTES: usize = 128 << 10;

/// Held exclusively from the creation of a directory until its name is durable.
static MKDIRS_LOCK: RwLock<()> = RwLock::new(());

/// Local files. Paths are the machine's paths.
#[derive(Clone, Copy, Debug)]
pub struct LocalFileSystem {
    /// Bytes of a chunk of write-behind; 0 for no write-behind.
    write_behind_bytes: u64,
    /// Permission bits of bulk files; `None` for those that the process's umask leaves.
    bulk_permission: Option<u32>,
}

impl LocalFileSystem {
    /// Local files, with write-behind in chunks of [`WRITE_BEHIND_BYTES`].
    pub fn new() -> Self {
        Self { write_behind_bytes: WRITE_BEHIND_BYTES, bulk_permission: None }
    }

    /// The same with write-behind in chunks of `bytes`, rounded down to 64 KiB, for bulk files and
    /// [`AppendFile::write_back`]. 0 leaves all writing to the sync at the end.
    pub fn with_write_behind(self, bytes: u64) -> Self {
        Self { write_behind_bytes: bytes, ..self }
    }

    /// Gives bulk files these permission bits, if there are any.
    pub fn with_bulk_permission(self, bulk_permission: Option<u32>) -> Self {
        Self { bulk_permission, ..self }
    }

    fn write_behind(&self) -> Option<WriteBehind> {
        let wanted = self.write_behind_bytes > 0;
        wanted.then(|| WriteBehind::new(Arc::new(Kernel), self.write_behind_bytes))
    }
}

impl Default for LocalFileSystem {
    fn default() -> Self {
        Self::new()
    }
}

impl FileSystem for LocalFileSystem {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn RandomAccessFile>> {
        let file = File::open(path).map_err(|e| with_path(path, e))?;
        let metadata = file.metadata().map_err(|e| with_path(path, e))?;
        if metadata.is_dir() {
            return Err(with_path(path, io::ErrorKind::IsADirectory.into()));
        }
        Ok(Arc::new(LocalFile { path: path.to_owned(), file, len: metadata.len() }))
    }

    fn create(&self, path: &Path, options: CreateOptions) -> io::Result<Box<dyn AppendFile>> {
        if options.parents
            && let Some(parent) = path.parent()
        {
            self.mkdirs(parent)?;
        }
        if options.overwrite {
            // Readers that have the old file open keep it.
            remove_file(path)?;
        }
        let file =
            OpenOptions::new().write(true).create_new(true).open(path).map_err(|e| with_path(path, e))?;
        if let Some(permission) = self.bulk_permission.filter(|_| options.kind == FileKind::Bulk) {
            file.set_permissions(fs::Permissions::from_mode(permission)).map_err(|e| with_path(path, e))?;
        }
        // Checksums may remain of a file of this name that another program removed.
        checksum_file::remove(path).map_err(|e| with_path(path, e))?;
        Ok(Box::new(LocalAppendFile::new(path, file, options.kind == FileKind::Bulk, self.write_behind())))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        checksum_file::remove(to).map_err(|e| with_path(to, e))?;
        fs::rename(from, to).map_err(|e| with_path(from, e))?;
        checksum_file::rename(from, to).map_err(|e| with_path(from, e))?;
        sync_parent(to)?;
        if from.parent() == to.parent() { Ok(()) } else { sync_parent(from) }
    }

    #[allow(clippy::disallowed_methods, reason = "modification times are those of the machine")]
    fn touch(&self, path: &Path) -> io::Result<()> {
        let touched = File::open(path).and_then(|file| file.set_modified(std::time::SystemTime::now()));
        touched.map_err(|e| with_path(path, e))
    }

    fn delete(&self, path: &Path) -> io::Result<bool> {
        let was_there = self.discard(path)?;
        match if was_there { sync_parent(path) } else { Ok(()) } {
            // The parent directory is gone, too.
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(was_there),
        }
    }

    fn discard(&self, path: &Path) -> io::Result<bool> {
        match fs::symlink_metadata(path) {
            Ok(metadata) if metadata.is_dir() => match fs::remove_dir_all(path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(with_path(path, e)),
                _ => Ok(true),
            },
            Ok(_) => remove_file(path),
            Err(e) if is_absent(&e) => Ok(false),
            Err(e) => Err(with_path(path, e)),
        }
    }

    fn delete_empty_dir(&self, path: &Path) -> io::Result<bool> {
        match fs::remove_dir(path) {
            Ok(()) => Ok(true),
            Err(e) if path.is_file() => Err(with_path(path, e)),
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty || is_absent(&e) => Ok(false),
            Err(e) => Err(with_path(path, e)),
        }
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        File::open(path).and_then(|file| file.sync_all()).map_err(|e| with_path(path, e))?;
        sync_parent(path)
    }

    fn sync_all(&self, root: &Path) -> io::Result<()> {
        let synced = File::open(root).and_then(|root| Ok(rustix::fs::syncfs(root)?));
        synced.map_err(|e| with_path(root, e))
    }

    fn mkdirs(&self, path: &Path) -> io::Result<()> {
        {
            let _none_is_being_made = MKDIRS_LOCK.read();
            if path.is_dir() {
                return Ok(());
            }
        }
        let _alone = MKDIRS_LOCK.write();
        make_dirs(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<FileStatus>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(dir).map_err(|e| with_path(dir, e))? {
            let path = entry.map_err(|e| with_path(dir, e))?.path();
            if path.file_name().and_then(|name| name.to_str()).is_some_and(checksum_file::is_checksum_name) {
                continue;
            }
            match self.status(&path) {
                Ok(status) => found.push(status),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {} // gone since
                Err(e) => return Err(e),
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    fn status(&self, path: &Path) -> io::Result<FileStatus> {
        let metadata =
            fs::metadata(path).map_err(|e| if is_absent(&e) { absent(path) } else { with_path(path, e) })?;
        let modified =
            metadata.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        Ok(FileStatus {
            path: path.to_owned(),
            is_dir: metadata.is_dir(),
            len: if metadata.is_dir() { 0 } else { metadata.len() },
            modified_ms: i64::try_from(modified.as_millis()).unwrap_or(i64::MAX),
        })
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let resolved = fs::canonicalize(path)
            .map_err(|e| if is_absent(&e) { absent(path) } else { with_path(path, e) })?;
        let metadata = fs::metadata(&resolved).map_err(|e| with_path(path, e))?;
        match metadata.is_file() || metadata.is_dir() {
            true => Ok(resolved),
            false => Err(with_path(path, io::ErrorKind::InvalidInput.into())),
        }
    }
}

/// Adds the path to the message and keeps the kind.
fn with_path(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn absent(path: &Path) -> io::Error {
    with_path(path, io::ErrorKind::NotFound.into())
}

/// A path below a file does not exist, just as one below a missing directory.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn remove_file(path: &Path) -> io::Result<bool> {
    checksum_file::remove(path).map_err(|e| with_path(path, e))?;
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(e) if is_absent(&e) => Ok(false),
        Err(e) => Err(with_path(path, e)),
    }
}

/// Creates a directory and its missing parents. The caller holds [`MKDIRS_LOCK`].
fn make_dirs(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Ok(()) => sync_parent(path).inspect_err(|_| {
            if let Err(error) = fs::remove_dir(path) {
                tracing::warn!(path = %path.display(), %error, "a directory may not be durable");
            }
        }),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => {
                make_dirs(parent)?;
                make_dirs(path)
            }
            _ => Err(with_path(path, e)),
        },
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
            Err(with_path(path, io::ErrorKind::AlreadyExists.into()))
        }
        Err(e) => Err(with_path(path, e)),
    }
}

fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    #[cfg(test)]
    tests::note_sync(parent)?;
    File::open(parent).and_then(|dir| dir.sync_all()).map_err(|e| with_path(parent, e))
}

#[derive(Debug)]
struct LocalFile {
    path: PathBuf,
    file: File,
    len: u64,
}

impl RandomAccessFile for LocalFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest @ [_, ..]) = buf.get_mut(filled..) {
            match self.file.read_at(rest, offset + filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(filled)
    }

    fn read_at_nowait(&self, offset: u64, buf: &mut [u8], _caller_verifies: bool) -> bool {
        page_cache::read(&self.file, offset, buf)
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn read_verified_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<StorageChecksum> {
        checksum_file::read(&self.file, self.len, &self.path, offset, buf)
    }
}

#[derive(Debug)]
struct LocalAppendFile {
    path: PathBuf,
    file: File,
    /// Appended bytes that are not yet passed to the kernel.
    buffer: Vec<u8>,
    position: u64,
    /// Whether write-behind applies to every append.
    is_bulk: bool,
    write_behind: Option<WriteBehind>,
    /// Whether the directory that contains the file's name was synced.
    name_synced: bool,
    failed: bool,
}

impl LocalAppendFile {
    fn new(path: &Path, file: File, is_bulk: bool, write_behind: Option<WriteBehind>) -> Self {
        Self {
            path: path.to_owned(),
            file,
            buffer: Vec::new(),
            position: 0,
            is_bulk,
            write_behind,
            name_synced: false,
            failed: false,
        }
    }

    /// Runs a step. After an error, now or earlier, every call fails.
    fn step(&mut self, step: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        if self.failed {
            return Err(with_path(&self.path, io::Error::other("an earlier write failed")));
        }
        step(self).map_err(|e| {
            self.failed = true;
            with_path(&self.path, e)
        })
    }

    fn write_buffer(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            self.file.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    fn append_step(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.buffer.len() + bytes.len() > APPEND_BUFFER_BYTES {
            self.write_buffer()?;
        }
        if bytes.len() >= APPEND_BUFFER_BYTES {
            self.file.write_all(bytes)?;
        } else {
            self.buffer.extend_from_slice(bytes);
        }
        self.position += bytes.len() as u64;
        self.write_behind()
    }

    fn write_behind(&mut self) -> io::Result<()> {
        let written = self.position - self.buffer.len() as u64;
        match &mut self.write_behind {
            Some(write_behind) if self.is_bulk => write_behind.advance(&self.file, written),
            _ => Ok(()),
        }
    }

    fn write_back_step(&mut self, should_continue: &dyn Fn() -> bool) -> io::Result<()> {
        self.write_buffer()?;
        self.write_behind.as_mut().map_or(Ok(()), |write_behind| {
            write_behind.write_back(&self.file, self.position, should_continue)
        })
    }

    fn sync_step(&mut self) -> io::Result<()> {
        self.write_buffer()?;
        self.file.sync_data()?;
        if !self.name_synced {
            sync_parent(&self.path)?;
            self.name_synced = true;
        }
        Ok(())
    }
}

impl AppendFile for LocalAppendFile {
    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.failed = true;
        self.buffer.clear();
        let now = self.file.metadata().map_err(|e| with_path(&self.path, e))?.len();
        if len < now { self.file.set_len(len).map_err(|e| with_path(&self.path, e)) } else { Ok(()) }
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.step(|file| file.append_step(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.step(Self::write_buffer)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.step(Self::sync_step)
    }

    fn write_back(&mut self, should_continue: &dyn Fn() -> bool) -> io::Result<()> {
        self.step(|file| file.write_back_step(should_continue))
    }

    fn position(&self) -> u64 {
        self.position
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::ops::Range;

    use super::*;
    use crate::write_behind::Writeback;

    thread_local! {
        /// The directories that this thread has synced.
        static SYNCED: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
        /// The directory whose syncs fail on this thread.
        static BROKEN: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
    }

    /// Called for each sync of a directory.
    pub(super) fn note_sync(dir: &Path) -> io::Result<()> {
        SYNCED.with_borrow_mut(|synced| synced.push(dir.to_owned()));
        match BROKEN.with_borrow(|broken| broken.as_deref() == Some(dir)) {
            true => Err(io::Error::other("a sync that fails for a test")),
            false => Ok(()),
        }
    }

    /// The directories below `root` that `work` syncs, in order.
    fn synced(root: &Path, work: impl FnOnce()) -> Vec<String> {
        SYNCED.take();
        work();
        let name = |dir: PathBuf| dir.strip_prefix(root).expect("below").to_str().expect("UTF-8").to_owned();
        SYNCED.take().into_iter().map(name).collect()
    }

    #[test]
    fn a_directory_whose_sync_failed_is_made_again() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (fs, path) = (LocalFileSystem::new(), dir.path().join("a/b/c"));
        BROKEN.set(Some(dir.path().join("a")));
        fs.mkdirs(&path).expect_err("not durable");
        BROKEN.set(None);
        let synced = synced(dir.path(), || fs.mkdirs(&path).expect("made"));
        assert_eq!(synced, ["a", "a/b"], "`a` is durable; `a/b` was not");
        fs.sync_all(dir.path()).expect("synced");
        fs.sync_all(&dir.path().join("none")).expect_err("there is no such directory");
    }

    #[test]
    fn each_change_of_names_syncs_its_directories() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (fs, root) = (LocalFileSystem::new(), dir.path());
        let path = |name: &str| root.join(name);
        let synced = |work: &dyn Fn()| synced(root, work);
        assert_eq!(synced(&|| fs.mkdirs(&path("a/b/c")).expect("made")), ["", "a", "a/b"]);
        assert!(synced(&|| fs.mkdirs(&path("a/b")).expect("there")).is_empty());
        let write = |name: &str, syncs: usize| {
            let mut file =
                fs.create(&path(name), CreateOptions { parents: true, ..Default::default() }).expect("new");
            file.append(b"x").expect("appended");
            file.flush().expect("flushed");
            (0..syncs).for_each(|_| file.sync().expect("synced"));
        };
        assert_eq!(synced(&|| write("a/f", 2)), ["a"], "with the first sync");
        assert!(synced(&|| write("a/g", 0)).is_empty());
        assert_eq!(synced(&|| fs.sync_file(&path("a/g")).expect("synced")), ["a"]);
        assert_eq!(synced(&|| fs.rename(&path("a/f"), &path("a/b/f")).expect("moved")), ["a/b", "a"]);
        assert_eq!(synced(&|| fs.rename(&path("a/b/f"), &path("a/b/h")).expect("moved")), ["a/b"]);
        assert_eq!(synced(&|| fs.write_atomically(&path("a/w"), b"w").expect("written")), ["a", "a"]);
        assert_eq!(synced(&|| assert!(fs.delete(&path("a/b/h")).expect("deleted"))), ["a/b"]);
        assert!(synced(&|| assert!(!fs.delete(&path("a/b/h")).expect("gone"))).is_empty());
        assert!(synced(&|| assert!(fs.discard(&path("a/g")).expect("gone"))).is_empty());
        assert_eq!(synced(&|| assert!(fs.delete(&path("a")).expect("deleted"))), [""]);
    }

    /// A disk that fails writes at or after an offset.
    #[derive(Debug)]
    struct FailingFrom(u64);

    impl Writeback for FailingFrom {
        fn begin(&self, _file: &File, range: Range<u64>) -> io::Result<()> {
            if range.end > self.0 { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
        }

        fn wait(&self, _file: &File, _range: Range<u64>) -> io::Result<()> {
            Ok(())
        }
    }

    /// A file on a disk that fails writes after the first mebibyte.
    fn on_a_bad_disk(dir: &tempfile::TempDir, is_bulk: bool) -> LocalAppendFile {
        let path = dir.path().join("f");
        let write_behind = WriteBehind::new(Arc::new(FailingFrom(1 << 20)), 256 << 10);
        LocalAppendFile::new(&path, File::create(&path).expect("created"), is_bulk, Some(write_behind))
    }

    fn assert_ended(file: &mut LocalAppendFile, error: &io::Error) {
        assert!(error.to_string().contains("Input/output error"), "{error}");
        let error = file.sync().expect_err("no sync makes it good");
        assert!(error.to_string().contains("an earlier write failed"), "{error}");
    }

    #[test]
    fn an_error_of_write_behind_ends_the_file() {
        let dir = tempfile::tempdir().expect("temp dir");
        let mut file = on_a_bad_disk(&dir, true);
        for _ in 0..1024 {
            file.append(&[1; 1024]).expect("a good part of the disk");
        }
        let error = (0..512).find_map(|_| file.append(&[2; 1024]).err()).expect("told before the sync");
        assert_ended(&mut file, &error);
    }

    #[test]
    fn other_files_are_written_behind_only_on_request() {
        let dir = tempfile::tempdir().expect("temp dir");
        let mut file = on_a_bad_disk(&dir, false);
        file.append(&[1; 1 << 20]).expect("not asked for");
        file.write_back(&|| true).expect("a good part of the disk");
        file.append(&[2; 512 << 10]).expect("not asked for");
        let error = file.write_back(&|| true).expect_err("a bad one");
        assert_ended(&mut file, &error);
        assert!(LocalFileSystem::new().write_behind().is_some());
        assert!(LocalFileSystem::new().with_write_behind(0).write_behind().is_none());
    }

    #[test]
    fn a_full_disk_is_storage_full_and_ends_the_file() {
        let path = Path::new("/dev/full");
        let device = OpenOptions::new().write(true).open(path).expect("linux has it");
        let mut file = LocalAppendFile::new(path, device, false, None);
        file.append(b"buffered").expect("not written yet");
        let error = file.flush().expect_err("full");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(error.to_string().contains("No space left on device"), "{error}");
        assert!(file.append(b"x").expect_err("given up").to_string().contains("an earlier write failed"));
        assert!(file.flush().is_err() && file.sync().is_err());
    }
}
