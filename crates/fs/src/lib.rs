//! The file system seam.
//!
//! Everything Evenkeel stores goes through [`FileSystem`]: the local one, one in memory for tests, and one that
//! injects faults into another. HDFS is to come behind the same trait. The seam is small on purpose: positional reads
//! into a caller's buffer, appends that tell how durable they are, and whole-name operations.
//!
//! Calls block. On the data path a read is only made for a block that is not cached, on a thread that may wait.
//!
//! Durability has two words, as in HDFS: **flush** (`hflush`): survives the death of this process and is visible to
//! other readers; **sync** (`hsync`): survives the death of the machine.
//!
//! A third word is for reading: bytes may be **verified** by the storage's own checksums
//! ([`RandomAccessFile::read_verified_at`]), which HBase falls back upon when its own do not agree.
//!
//! | implementation | for |
//! |---|---|
//! | [`LocalFileSystem`] | the machine's files; [`DirLock`] keeps two servers off one directory |
//! | [`MemoryFileSystem`] | tests and simulation; can crash and forget what was not flushed or synced |
//! | [`FaultyFileSystem`] | wraps another and fails, tears, blocks or damages what a script says |
//! | [`PowerCutFileSystem`] | tests: the disks that a power cut may leave at every step of a run |

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

mod checksum_file;
mod dir_lock;
mod faulty;
mod local;
mod memory;
pub mod page_cache;
mod power_cut;
mod write_behind;

pub use dir_lock::{DirLock, LOCK_FILE_NAME};
pub use faulty::{Damage, Fault, FaultyFileSystem, Gate, Op};
pub use local::{APPEND_BUFFER_BYTES, LocalFileSystem};
pub use memory::{Keep, MemoryFileSystem};
pub use power_cut::{PowerCutFileSystem, Recording};
pub use write_behind::WRITE_BEHIND_BYTES;

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// The full path.
    pub path: PathBuf,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Length in bytes; 0 for a directory.
    pub len: u64,
    /// Last change, milliseconds since 1970.
    pub modified_ms: i64,
}

impl FileStatus {
    /// The last part of the path; empty when it is not UTF-8.
    pub fn name(&self) -> &str {
        self.path.file_name().and_then(|n| n.to_str()).unwrap_or("")
    }
}

/// How [`FileSystem::create`] treats what is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreateOptions {
    /// Replace an existing file; otherwise `AlreadyExists`.
    pub overwrite: bool,
    /// Make missing parent directories; otherwise `NotFound`. The WAL must not: a fenced server's directory is gone,
    /// and stays gone.
    pub parents: bool,
    /// Much will be written, front to back and synced at its end, as a store file is, and the writer may wait for the disk
    /// on the way: it is written behind (see [`LocalFileSystem::with_write_behind`]). Not for logs, whose writers may not wait.
    /// Changes nothing about what is durable when.
    pub bulk: bool,
}

impl CreateOptions {
    /// A bulk file whose name is free, in directories that are made if they are missing.
    pub const BULK: Self = Self { overwrite: false, parents: true, bulk: true };
}

/// What storage says of bytes by checksums of its own, such as HDFS keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageChecksum {
    /// It has none for these bytes.
    Absent,
    /// The bytes are those that were written.
    Matches,
    /// The bytes, or the checksums, are not those that were written.
    Differs,
}

/// A file that can be read anywhere, from any thread.
pub trait RandomAccessFile: Send + Sync + Debug {
    /// Reads at most `buf.len()` bytes at `offset`; fewer only at the end of the file.
    ///
    /// # Errors
    /// Whatever the storage says.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// The length in bytes when the file was opened.
    fn len(&self) -> u64;

    /// Whether the file had no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends first.
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        match self.read_at(offset, buf)? {
            n if n == buf.len() => Ok(()),
            n => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{} bytes wanted at {offset}, {n} there", buf.len()),
            )),
        }
    }

    /// Fills `buf` from `offset` if that takes no wait for a disk or a network; else false, and what is in `buf` says nothing.
    /// Storage that cannot tell says false, as does one that meets an error: [`RandomAccessFile::read_exact_at`] has it then.
    fn read_at_nowait(&self, offset: u64, buf: &mut [u8]) -> bool {
        let _ = (offset, buf);
        false
    }

    /// As [`RandomAccessFile::read_exact_at`], past every shortcut, and held against the storage's own checksums. What
    /// was read is in `buf` whatever those say: the caller has better ones, and asks because they did not agree.
    ///
    /// # Errors
    /// As [`RandomAccessFile::read_exact_at`].
    fn read_verified_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<StorageChecksum> {
        self.read_exact_at(offset, buf).map(|()| StorageChecksum::Absent)
    }
}

/// A file being written, front to back.
pub trait AppendFile: Send + Debug {
    /// Appends all of `bytes`; they may stay in a buffer until [`AppendFile::flush`].
    ///
    /// # Errors
    /// After an error the file's end is unknown; the caller gives the file up.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes everything appended survive this process.
    ///
    /// # Errors
    /// As [`AppendFile::append`].
    fn flush(&mut self) -> io::Result<()>;

    /// Makes everything appended survive this machine.
    ///
    /// # Errors
    /// As [`AppendFile::append`].
    fn sync(&mut self) -> io::Result<()>;

    /// Has everything appended written to the disk bit by bit, ahead of a sync that will find little to do: for who has time,
    /// and would rather not take all of the disk and a processor; `continues` is asked before each bit. Nothing is durable by it.
    ///
    /// # Errors
    /// As [`AppendFile::append`].
    fn write_back(&mut self, _continues: &dyn Fn() -> bool) -> io::Result<()> {
        Ok(())
    }

    /// Bytes appended so far.
    fn position(&self) -> u64;

    /// Ends the file at `len`, also after an error: bytes behind it, which nobody was promised, are gone. The file is given
    /// up by that; nothing more can be appended.
    ///
    /// # Errors
    /// `Unsupported` where files cannot be cut, or whatever the storage says.
    fn truncate(&mut self, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A file system. Paths are whole paths within it.
pub trait FileSystem: Send + Sync + Debug {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// `NotFound`, or whatever the storage says.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn RandomAccessFile>>;

    /// Starts a new file.
    ///
    /// # Errors
    /// `AlreadyExists`, `NotFound` (no parent), `StorageFull`, or whatever the storage says.
    fn create(&self, path: &Path, options: CreateOptions) -> io::Result<Box<dyn AppendFile>>;

    /// Renames a file or directory, atomically, and makes that survive the machine. An existing file at `to` is
    /// replaced; an existing directory that is not empty is an error.
    ///
    /// # Errors
    /// `NotFound`, or whatever the storage says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Sets a file's modification time to now: what is put away is kept from that moment on.
    ///
    /// # Errors
    /// `NotFound`, or whatever the storage says.
    fn touch(&self, path: &Path) -> io::Result<()>;

    /// Removes a file, or a directory with all in it, and makes that survive the machine. Returns whether it was there. A
    /// directory of which the machine dies in the removal may be there in part.
    ///
    /// # Errors
    /// Whatever the storage says.
    fn delete(&self, path: &Path) -> io::Result<bool>;

    /// As [`FileSystem::delete`], for what does no harm if it is there again after the machine has died: unneeded files of an
    /// archive, files that were never finished. Spares the wait for the disk.
    ///
    /// # Errors
    /// As [`FileSystem::delete`].
    fn discard(&self, path: &Path) -> io::Result<bool> {
        self.delete(path)
    }

    /// Makes a file that somebody else has written survive the machine, with its name; or a directory's entries, with its own
    /// name.
    ///
    /// # Errors
    /// `NotFound`, or whatever the storage says.
    fn sync_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory in which nothing is. Returns whether it is gone by this call: false when something is in it, or
    /// it was not there. What another thread puts into it meanwhile is never removed with it.
    ///
    /// # Errors
    /// `NotADirectory`, or whatever the storage says.
    fn delete_empty_dir(&self, path: &Path) -> io::Result<bool>;

    /// Makes a directory and its missing parents, and makes them survive the machine.
    ///
    /// # Errors
    /// `AlreadyExists` when a file is in the way, or whatever the storage says.
    fn mkdirs(&self, path: &Path) -> io::Result<()>;

    /// What is in a directory, ordered by name.
    ///
    /// # Errors
    /// `NotFound`, or whatever the storage says.
    fn list(&self, dir: &Path) -> io::Result<Vec<FileStatus>>;

    /// What a path names.
    ///
    /// # Errors
    /// `NotFound`, or whatever the storage says.
    fn status(&self, path: &Path) -> io::Result<FileStatus>;

    /// The path of a file or directory with every symbolic link resolved, so that two paths of one file are the same.
    ///
    /// # Errors
    /// `NotFound`; `InvalidInput` for what is neither file nor directory (a pipe, a device); whatever the storage says.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.status(path).map(|status| status.path)
    }

    /// Whether a path names anything.
    ///
    /// # Errors
    /// Whatever the storage says, but `NotFound`.
    fn exists(&self, path: &Path) -> io::Result<bool> {
        match self.status(path) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Reads a whole file of at most `limit` bytes.
    ///
    /// # Errors
    /// `InvalidData` when it is longer than `limit`; otherwise as [`FileSystem::open`].
    fn read_all(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        let file = self.open(path)?;
        if file.len() > limit {
            let message = format!("{}: {} bytes, at most {limit} expected", path.display(), file.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let mut bytes = vec![0; file.len() as usize];
        file.read_exact_at(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes a small file so that a reader sees either what was there before or all of `bytes`: to a temporary name
    /// beside it, synced, read back, then renamed.
    ///
    /// # Errors
    /// As [`FileSystem::create`] and [`FileSystem::rename`]; `InvalidData` when other bytes are read back than were
    /// written: `path` is as it was before then.
    fn write_atomically(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".tmp");
        let temporary = path.with_file_name(name);
        let mut file =
            self.create(&temporary, CreateOptions { overwrite: true, parents: true, bulk: false })?;
        file.append(bytes)?;
        file.sync()?;
        drop(file);
        if self.read_all(&temporary, bytes.len() as u64)? != bytes {
            let message = format!("{}: other bytes are read back than were written", temporary.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        self.rename(&temporary, path)
    }
}
