//! The file system interface.
//!
//! All storage of Evenkeel goes through [`FileSystem`]: local files, HDFS, files in memory for
//! tests, and a wrapper that injects faults. [`Location`] selects one by a path or URI. The
//! interface is small on purpose: positional reads into a caller's buffer, appends with explicit
//! durability, and operations on whole names.
//!
//! Calls block. On the data path only a block that is not cached is read, on a thread that may
//! wait.
//!
//! There are two levels of durability, as in HDFS. Data that is **flushed** (`hflush`) survives a
//! crash of this process and is visible to other readers. Data that is **synced** (`hsync`)
//! survives a crash of the machine.
//!
//! Reads may be **verified** by the storage's checksums ([`RandomAccessFile::read_verified_at`]),
//! to which HBase falls back when its own checksums do not match.
//!
//! | implementation | use |
//! |---|---|
//! | [`LocalFileSystem`] | local files; [`DirLock`] admits one server to a directory |
//! | [`MemoryFileSystem`] | tests and simulation; a crash loses unsynced data |
//! | [`HdfsFileSystem`] | the files of an HDFS name service |
//! | [`FaultyFileSystem`] | tests: wraps another and injects the faults of a script |
//! | [`PowerCutFileSystem`] | tests: the possible disks after a power cut at each step |

#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::indexing_slicing))]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

mod checksum_file;
mod dir_lock;
mod faulty;
mod hdfs;
mod local;
mod locality;
mod location;
mod memory;
pub mod page_cache;
mod power_cut;
mod write_behind;

pub use dir_lock::{DirLock, LOCK_FILE_NAME};
pub use evenkeel_hdfs::{HdfsClient, ReadStatistics, Settings as HdfsSettings};
pub use faulty::{Damage, Fault, FaultyFileSystem, Latch, Op};
pub use hdfs::HdfsFileSystem;
pub use local::{APPEND_BUFFER_BYTES, LocalFileSystem};
pub use locality::{BlockHost, BlocksWeight, LOCALHOST, LocalHost};
pub use location::{Location, bulk_permission};
pub use memory::{MemoryFileSystem, SurvivingData};
pub use power_cut::{PowerCutFileSystem, Recording};
pub use write_behind::WRITE_BEHIND_BYTES;

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A length or an offset as an index of memory.
fn index(value: u64) -> io::Result<usize> {
    usize::try_from(value).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

/// The status of a file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// The full path.
    pub path: PathBuf,
    /// Whether the path is a directory.
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

/// Options of [`FileSystem::create`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreateOptions {
    /// Replaces an existing file; otherwise that is an `AlreadyExists` error.
    pub overwrite: bool,
    /// Creates missing parent directories; otherwise that is a `NotFound` error. The WAL must not
    /// set it: the directory of a fenced server is gone and must not come back.
    pub parents: bool,
    /// What the file is for. It does not change durability.
    pub kind: FileKind,
    /// The number of machines that store the file, on a storage of several; 0 for its default.
    pub replication: u16,
}

/// What a file is for, which decides how it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileKind {
    /// Written once and closed.
    #[default]
    Small,
    /// A write-ahead log: flushed often, by a writer that must not wait long. On HDFS it has one
    /// block, which goes to all DataNodes at once.
    Log,
    /// Large, such as a store file: written sequentially and synced at its end, by a writer that
    /// may wait for the disk. Write-behind applies (see [`LocalFileSystem::with_write_behind`]).
    Bulk,
}

impl CreateOptions {
    /// A new small file, in a directory that exists.
    pub const SMALL: Self = Self { overwrite: false, parents: false, kind: FileKind::Small, replication: 0 };

    /// A new bulk file; missing parent directories are created.
    pub const BULK: Self = Self { parents: true, kind: FileKind::Bulk, ..Self::SMALL };

    /// A new log, in a directory that exists.
    pub const LOG: Self = Self { kind: FileKind::Log, ..Self::SMALL };
}

/// The result of comparing bytes with the storage's checksums, such as those of HDFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageChecksum {
    /// The storage has no checksums for these bytes.
    Absent,
    /// The bytes match their checksums.
    Matches,
    /// The bytes or the checksums have changed since they were written.
    Differs,
}

/// A file that can be read at any offset, from any thread.
pub trait RandomAccessFile: Send + Sync + Debug {
    /// Reads up to `buf.len()` bytes at `offset`; fewer only at the end of the file.
    ///
    /// # Errors
    /// An error of the storage.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// The length in bytes when the file was opened.
    fn len(&self) -> u64;

    /// Returns true if the file was empty when it was opened.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// Returns `UnexpectedEof` if the file ends first.
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        match self.read_at(offset, buf)? {
            n if n == buf.len() => Ok(()),
            n => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{} bytes requested at {offset}, {n} available", buf.len()),
            )),
        }
    }

    /// Fills `buf` from `offset` if that does not wait for a disk or a network. Otherwise returns
    /// false, and the contents of `buf` are unspecified. Storage that cannot determine this returns
    /// false, as it does after an error, which [`RandomAccessFile::read_exact_at`] then reports.
    ///
    /// `caller_verifies` states that the caller compares the bytes with checksums of its own, as
    /// for [`RandomAccessFile::read_checked_by_caller_at`]. Without it the storage compares them
    /// with its checksums, as for [`RandomAccessFile::read_exact_at`].
    fn read_at_nowait(&self, offset: u64, buf: &mut [u8], caller_verifies: bool) -> bool {
        let _ = (offset, buf, caller_verifies);
        false
    }

    /// As [`RandomAccessFile::read_exact_at`], for a caller that compares the bytes with checksums
    /// of its own, such as those of HBase's blocks. The storage need not compare them with its
    /// checksums.
    ///
    /// # Errors
    /// As [`RandomAccessFile::read_exact_at`].
    fn read_checked_by_caller_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(offset, buf)
    }

    /// As [`RandomAccessFile::read_exact_at`], without shortcuts, and compared with the storage's
    /// checksums. `buf` is filled even if they differ: the caller reads again because its own,
    /// stronger checksums did not match.
    ///
    /// # Errors
    /// As [`RandomAccessFile::read_exact_at`].
    fn read_verified_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<StorageChecksum> {
        self.read_exact_at(offset, buf).map(|()| StorageChecksum::Absent)
    }

    /// Returns the weight of the blocks that overlap a range of the file, by the locations that are
    /// known since it was opened; asks no other machine. A file without blocks is one block on
    /// [`LOCALHOST`], of its whole length for any range of it, as for Hadoop's local file system.
    fn blocks_weight(&self, range: Range<u64>, host: &LocalHost) -> BlocksWeight {
        let overlaps = range.start < self.len();
        let block = overlaps.then(|| (self.len(), std::iter::once(BlockHost::LOCAL)));
        BlocksWeight::of_blocks(host, block.into_iter())
    }
}

/// Whether a file being written is as durable as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileHealth {
    /// It is, or the storage cannot tell.
    Sound,
    /// Fewer DataNodes have it than were requested. What is flushed is on each of these.
    FewReplicas,
    /// Nothing can be written any more: the next call fails. What was flushed is kept.
    Broken,
}

/// A file that is being written sequentially.
pub trait AppendFile: Send + Debug {
    /// Appends `bytes`, which may stay in a buffer until [`AppendFile::flush`].
    ///
    /// # Errors
    /// After an error the length of the file is unknown; the caller abandons the file.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes all appended bytes survive a crash of this process.
    ///
    /// # Errors
    /// As [`AppendFile::append`].
    fn flush(&mut self) -> io::Result<()>;

    /// Makes all appended bytes survive a crash of this machine.
    ///
    /// # Errors
    /// As [`AppendFile::append`].
    fn sync(&mut self) -> io::Result<()>;

    /// Writes all appended bytes to the disk chunk by chunk, so that a later sync has little to do.
    /// It is for callers that should not occupy the disk and a processor. `continues` is called
    /// before each chunk and ends the call if it returns false. This makes nothing durable.
    ///
    /// # Errors
    /// As [`AppendFile::append`].
    fn write_back(&mut self, _should_continue: &dyn Fn() -> bool) -> io::Result<()> {
        Ok(())
    }

    /// Bytes appended so far.
    fn position(&self) -> u64;

    /// Returns whether the file is as durable as it should be, without waiting. It may change while
    /// nothing is written: a DataNode of an idle log dies.
    fn health(&self) -> FileHealth {
        FileHealth::Sound
    }

    /// Flushes the rest and closes the file, which is as durable as the last flush or sync made it.
    /// A file must be closed before it is renamed or relied on: on HDFS a file that is dropped
    /// instead has the length 0 until its lease is recovered. Nothing can be appended afterwards.
    ///
    /// # Errors
    /// As [`AppendFile::append`].
    fn close(&mut self) -> io::Result<()> {
        self.flush()
    }

    /// Truncates the file to `len`, also after an error, to remove bytes that were never
    /// acknowledged. Nothing can be appended afterwards.
    ///
    /// # Errors
    /// `Unsupported` where files cannot be truncated, or an error of the storage.
    fn truncate(&mut self, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A file system. Paths are absolute within it.
pub trait FileSystem: Send + Sync + Debug {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// `NotFound`, or an error of the storage.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn RandomAccessFile>>;

    /// Creates a new file.
    ///
    /// # Errors
    /// `AlreadyExists`, `NotFound` (no parent), `StorageFull`, or another error of the storage.
    fn create(&self, path: &Path, options: CreateOptions) -> io::Result<Box<dyn AppendFile>>;

    /// Renames a file or directory, atomically and durably. An existing file at `to` is replaced;
    /// an existing directory that is not empty is an error.
    ///
    /// # Errors
    /// `NotFound`, or an error of the storage.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Sets a file's modification time to now: archived files are retained from that time on.
    ///
    /// # Errors
    /// `NotFound`, or an error of the storage.
    fn touch(&self, path: &Path) -> io::Result<()>;

    /// Removes a file, or a directory with its contents, durably. Returns true if it existed. If
    /// the machine crashes during the removal of a directory, a part of it may remain.
    ///
    /// # Errors
    /// An error of the storage.
    fn delete(&self, path: &Path) -> io::Result<bool>;

    /// As [`FileSystem::delete`], but not durable: for files that do no harm if they reappear after
    /// a crash of the machine, such as unneeded files of an archive and unfinished files. It does
    /// not wait for the disk.
    ///
    /// # Errors
    /// As [`FileSystem::delete`].
    fn discard(&self, path: &Path) -> io::Result<bool> {
        self.delete(path)
    }

    /// Makes a file that another writer has closed durable, with its name; or a directory's
    /// entries, with its own name.
    ///
    /// # Errors
    /// `NotFound`, or an error of the storage.
    fn sync_file(&self, path: &Path) -> io::Result<()>;

    /// Makes durable what processes that have ended left below `root`: names, and bytes that were
    /// flushed. A server calls it before it relies on what it finds, because a process may have
    /// ended between a change and its sync.
    ///
    /// # Errors
    /// `NotFound`, or an error of the storage.
    fn sync_all(&self, root: &Path) -> io::Result<()>;

    /// Removes an empty directory. Returns true if this call removed it, false if it is not empty
    /// or does not exist. An entry that another thread creates concurrently is never removed with
    /// it.
    ///
    /// # Errors
    /// `NotADirectory`, or an error of the storage.
    fn delete_empty_dir(&self, path: &Path) -> io::Result<bool>;

    /// Creates a directory and its missing parents, durably.
    ///
    /// # Errors
    /// `AlreadyExists` if the path or a parent is a file, or an error of the storage.
    fn mkdirs(&self, path: &Path) -> io::Result<()>;

    /// Sets the policy by which HDFS chooses disks for the blocks of a file, or of the files in a
    /// directory (such as `ONE_SSD`). Does nothing on storage without policies.
    ///
    /// # Errors
    /// `NotFound`, or an error of the storage, also for an unknown policy.
    fn set_storage_policy(&self, path: &Path, policy: &str) -> io::Result<()> {
        let _ = (path, policy);
        Ok(())
    }

    /// The entries of a directory, ordered by name.
    ///
    /// # Errors
    /// `NotFound`, or an error of the storage.
    fn list(&self, dir: &Path) -> io::Result<Vec<FileStatus>>;

    /// The status of a file or directory.
    ///
    /// # Errors
    /// `NotFound`, or an error of the storage.
    fn status(&self, path: &Path) -> io::Result<FileStatus>;

    /// The path of a file or directory with all symbolic links resolved, so that equal files have
    /// equal paths.
    ///
    /// # Errors
    /// `NotFound`; `InvalidInput` if the path is neither a file nor a directory (a pipe, a device);
    /// or an error of the storage.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.status(path).map(|status| status.path)
    }

    /// Ends a file that another process may have open, or left without closing it: its writer can
    /// write no more, and its length is final. A process that takes over the files of a dead server
    /// calls it for each of them before it reads them. Local files need no recovery.
    ///
    /// # Errors
    /// `NotFound`; `Interrupted` if `should_continue` returns false; `TimedOut`; an error of the
    /// storage.
    fn recover(&self, _path: &Path, _should_continue: &dyn Fn() -> bool) -> io::Result<()> {
        Ok(())
    }

    /// Returns true if files are on other machines, as on HDFS. A flush then waits for the network,
    /// and flushed bytes survive the failure of a later flush. The directory has no [`DirLock`]: a
    /// process that takes it over ends the files of others by [`FileSystem::recover`].
    fn is_remote(&self) -> bool {
        false
    }

    /// The path that a URI names here, or a path without a scheme; `None` if it is relative or of
    /// another file system.
    fn path_of(&self, uri: &str) -> Option<PathBuf> {
        let path = uri.strip_prefix("file:").map_or(uri, |rest| rest.strip_prefix("//").unwrap_or(rest));
        path.starts_with('/').then(|| PathBuf::from(path))
    }

    /// The URI of a path, by which other processes find it.
    fn uri_of(&self, path: &Path) -> String {
        format!("file:{}", path.display())
    }

    /// Returns how much was read from HDFS, and by which ways. Local files are not counted.
    fn read_statistics(&self) -> ReadStatistics {
        ReadStatistics::default()
    }

    /// Returns true if the path exists.
    ///
    /// # Errors
    /// An error of the storage other than `NotFound`.
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
    /// `InvalidData` if it is longer than `limit`; otherwise as [`FileSystem::open`].
    fn read_all(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        let file = self.open(path)?;
        if file.len() > limit {
            let message = format!("{}: {} bytes, at most {limit} expected", path.display(), file.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let mut bytes = vec![0; index(file.len())?];
        file.read_exact_at(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes a small file so that a reader sees either the previous contents or all of `bytes`:
    /// writes a temporary file beside it, syncs it, reads it back, and renames it.
    ///
    /// # Errors
    /// As [`FileSystem::create`] and [`FileSystem::rename`]; `InvalidData` if other bytes are read
    /// back than were written. `path` is then unchanged.
    fn write_atomically(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".tmp");
        let temporary = path.with_file_name(name);
        let mut file = self
            .create(&temporary, CreateOptions { overwrite: true, parents: true, ..CreateOptions::SMALL })?;
        file.append(bytes)?;
        file.sync()?;
        file.close()?;
        if self.read_all(&temporary, bytes.len() as u64)? != bytes {
            let message = format!("{}: the bytes read back differ from those written", temporary.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        self.rename(&temporary, path)
    }
}
