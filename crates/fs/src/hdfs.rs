//! [`HdfsFileSystem`], the files of an HDFS name service.
//!
//! | call | on HDFS |
//! |---|---|
//! | `create`, of a log | one block, on all DataNodes at once, flushed or synced |
//! | `create`, of other files | blocks through a pipeline of DataNodes; none for an empty file |
//! | `close` | gives the NameNode the length; **a file dropped without it has no known length** |
//! | `rename`, `mkdirs`, `delete` | one call, atomic and durable: the NameNode logs it |
//! | `recover` | revokes the lease of a writer that did not close, and ends its file |
//!
//! Differences from a local file system:
//! * The status of an open file has the length 0, even after flushes. `open` sees the bytes flushed
//!   up to that moment, and its reader does not grow.
//! * A file cannot be truncated.
//! * A reader of a file that was deleted or replaced fails some seconds later, except for blocks
//!   that it reads through the files of a local DataNode.
//! * A closed file that this client did not sync cannot be synced afterwards: `sync_file` only
//!   checks that it exists. Bulk files are synced when they are closed.
//! * Names are UTF-8 without `:`.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_common::clock::{self, Clock, SystemClock};
use evenkeel_hdfs::hadoop::hdfs::{HdfsFileStatusProto, LocatedBlockProto, hdfs_file_status_proto::FileType};
use evenkeel_hdfs::{
    BulkWriter, ChecksumResult, FileReader, FlushLevel, HdfsClient, HdfsError, LogWriter, NewFile,
    ReadStatistics,
};

use crate::{
    AppendFile, BlockHost, BlocksWeight, CreateOptions, FileHealth, FileKind, FileStatus, FileSystem,
    LocalHost, RandomAccessFile, StorageChecksum,
};

/// Bytes of a bulk file that are buffered before they are passed to its writer.
const BULK_BUFFER_BYTES: usize = 64 << 10;

/// The number of appended bytes of a log after which they are sent without a flush.
const LOG_BUFFER_BYTES: u64 = 4 << 20;

/// `StorageTypeProto.SSD`.
const STORAGE_TYPE_SSD: i32 = 2;

/// The files of a name service.
#[derive(Clone, Debug)]
pub struct HdfsFileSystem {
    client: HdfsClient,
    /// The name service, or the `host:port` of its NameNode, as URIs name it.
    authority: String,
    /// Readers that have checksums of their own read without those of HDFS.
    trusts_callers: bool,
    /// Permission bits of bulk files; `None` for those of other files.
    bulk_permission: Option<u32>,
}

impl HdfsFileSystem {
    /// Creates a file system of the files that `client` reaches. Their URIs begin with
    /// `hdfs://<authority>/`.
    pub fn new(client: HdfsClient, authority: impl Into<String>) -> Self {
        Self { client, authority: authority.into(), trusts_callers: true, bulk_permission: None }
    }

    /// Compares also those bytes with the checksums of HDFS which a reader compares with checksums
    /// of its own (`hbase.regionserver.checksum.verify` is false).
    #[must_use]
    pub fn verify_all(self) -> Self {
        Self { trusts_callers: false, ..self }
    }

    /// Gives bulk files these permission bits, if there are any.
    #[must_use]
    pub fn with_bulk_permission(self, bulk_permission: Option<u32>) -> Self {
        Self { bulk_permission, ..self }
    }

    /// The client behind it.
    pub fn client(&self) -> &HdfsClient {
        &self.client
    }

    fn stat(&self, path: &Path) -> io::Result<Option<HdfsFileStatusProto>> {
        Ok(self.client.namenode().file_info(name_of(path)?)?)
    }

    /// Returns true for a directory, false for a file; `None` if there is neither or the request
    /// fails.
    fn is_dir(&self, path: &Path) -> Option<bool> {
        self.stat(path).ok().flatten().map(|status| is_dir(&status))
    }

    /// Determines the reason why a rename failed, which the NameNode does not report.
    fn rename_error(&self, error: HdfsError, from: &Path, to: &Path) -> io::Error {
        let kind = match (error.kind(), self.is_dir(from), self.is_dir(to)) {
            (io::ErrorKind::NotFound, ..) => io::ErrorKind::NotFound,
            (_, Some(false), Some(true)) => io::ErrorKind::IsADirectory,
            (_, Some(true), Some(false)) => io::ErrorKind::NotADirectory,
            (_, Some(true), Some(true)) => io::ErrorKind::DirectoryNotEmpty,
            (kind, ..) => kind,
        };
        io::Error::new(kind, error)
    }

    fn new_file(&self, options: CreateOptions) -> NewFile {
        let file = match options.kind {
            FileKind::Log => self.client.new_log(),
            FileKind::Small | FileKind::Bulk => self.client.new_file(),
        };
        let permission = match options.kind {
            FileKind::Bulk => self.bulk_permission.unwrap_or(file.permission),
            FileKind::Small | FileKind::Log => file.permission,
        };
        let replication = if options.replication == 0 { file.replication } else { options.replication };
        NewFile { overwrite: options.overwrite, parents: options.parents, permission, replication, ..file }
    }
}

/// Returns the path in the form that HDFS accepts.
fn name_of(path: &Path) -> io::Result<&str> {
    let invalid = || {
        let what = format!("{} is not a path of HDFS: absolute, UTF-8, without `:`", path.display());
        io::Error::new(io::ErrorKind::InvalidInput, what)
    };
    let name =
        path.to_str().filter(|name| name.starts_with('/') && !name.contains(':')).ok_or_else(invalid)?;
    Ok(if name.len() > 1 { name.trim_end_matches('/') } else { name })
}

fn is_dir(status: &HdfsFileStatusProto) -> bool {
    status.file_type() == FileType::IsDir
}

fn status_of(path: PathBuf, status: &HdfsFileStatusProto) -> FileStatus {
    let modified_ms = i64::try_from(status.modification_time).unwrap_or(i64::MAX);
    FileStatus { path, is_dir: is_dir(status), len: status.length, modified_ms }
}

fn not_found(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{} does not exist", path.display()))
}

impl FileSystem for HdfsFileSystem {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn RandomAccessFile>> {
        let reader = self.client.open(name_of(path)?)?;
        Ok(Arc::new(HdfsReader { reader, trusts_callers: self.trusts_callers }))
    }

    fn create(&self, path: &Path, options: CreateOptions) -> io::Result<Box<dyn AppendFile>> {
        let (name, file) = (name_of(path)?, self.new_file(options));
        let created: Result<Box<dyn AppendFile>, HdfsError> = match options.kind {
            FileKind::Small | FileKind::Bulk => self.client.create_bulk(name, file).map(|writer| {
                Box::new(HdfsBulkFile { writer: Some(writer), buffer: Vec::new(), closed_bytes: 0 })
                    as Box<dyn AppendFile>
            }),
            FileKind::Log => self.client.create_log(name, file).map(|writer| {
                Box::new(HdfsLogFile { writer: Some(writer), unsent_bytes: 0, closed_bytes: 0 })
                    as Box<dyn AppendFile>
            }),
        };
        created.map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists if options.overwrite && self.is_dir(path) == Some(true) => {
                io::Error::new(io::ErrorKind::IsADirectory, e)
            }
            _ => e.into(),
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        if from == to {
            return self.status(from).map(drop);
        }
        let renamed = self.client.namenode().rename(name_of(from)?, name_of(to)?);
        renamed.map_err(|e| self.rename_error(e, from, to))
    }

    fn touch(&self, path: &Path) -> io::Result<()> {
        let now_ms = u64::try_from(SystemClock.now_ms()).unwrap_or(0);
        Ok(self.client.namenode().set_modification_time(name_of(path)?, now_ms)?)
    }

    fn delete(&self, path: &Path) -> io::Result<bool> {
        match self.client.namenode().delete(name_of(path)?, true) {
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => Ok(false),
            deleted => Ok(deleted?),
        }
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.status(path).map(drop)
    }

    /// Does nothing: a NameNode logs each change of names before it answers, and the bytes of a log
    /// whose writer has ended are those that its recovery finds.
    fn sync_all(&self, _root: &Path) -> io::Result<()> {
        Ok(())
    }

    fn delete_empty_dir(&self, path: &Path) -> io::Result<bool> {
        // Without this, the call would delete a file.
        match self.is_dir(path) {
            Some(true) => {}
            Some(false) => {
                let what = format!("{} is a file", path.display());
                return Err(io::Error::new(io::ErrorKind::NotADirectory, what));
            }
            None => return self.stat(path).map(|_| false),
        }
        match self.client.namenode().delete(name_of(path)?, false) {
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
            deleted => Ok(deleted?),
        }
    }

    fn mkdirs(&self, path: &Path) -> io::Result<()> {
        self.client.namenode().mkdirs(name_of(path)?).map_err(|e| match e.kind() {
            io::ErrorKind::NotADirectory => io::Error::new(io::ErrorKind::AlreadyExists, e),
            _ => e.into(),
        })
    }

    fn set_storage_policy(&self, path: &Path, policy: &str) -> io::Result<()> {
        Ok(self.client.namenode().set_storage_policy(name_of(path)?, policy)?)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<FileStatus>> {
        let name = name_of(dir)?;
        let found = match self.client.namenode().list(name) {
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => None,
            found => found?,
        };
        let entries = found.ok_or_else(|| not_found(dir))?;
        if entries.iter().any(|entry| entry.path.is_empty()) {
            let what = format!("{} is a file", dir.display());
            return Err(io::Error::new(io::ErrorKind::NotADirectory, what));
        }
        let entry = |status: &HdfsFileStatusProto| {
            let name = std::str::from_utf8(&status.path);
            let name = name.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
            Ok(status_of(dir.join(name), status))
        };
        entries.iter().map(entry).collect()
    }

    fn status(&self, path: &Path) -> io::Result<FileStatus> {
        let status = self.stat(path)?.ok_or_else(|| not_found(path))?;
        Ok(status_of(path.to_owned(), &status))
    }

    fn recover(&self, path: &Path, should_continue: &dyn Fn() -> bool) -> io::Result<()> {
        let deadline = clock::monotonic() + self.client.settings().recovery_timeout;
        Ok(self.client.recover(name_of(path)?, deadline, should_continue)?)
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn path_of(&self, uri: &str) -> Option<PathBuf> {
        let below = uri.strip_prefix("hdfs://").map(|rest| rest.strip_prefix(&*self.authority));
        let path = below.unwrap_or(Some(uri))?;
        path.starts_with('/').then(|| PathBuf::from(path))
    }

    fn uri_of(&self, path: &Path) -> String {
        format!("hdfs://{}{}", self.authority, path.display())
    }

    fn read_statistics(&self) -> ReadStatistics {
        self.client.read_statistics()
    }
}

#[derive(Debug)]
struct HdfsReader {
    reader: FileReader,
    trusts_callers: bool,
}

impl RandomAccessFile for HdfsReader {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        Ok(self.reader.read_at(offset, buf)?)
    }

    fn read_at_nowait(&self, offset: u64, buf: &mut [u8], caller_verifies: bool) -> bool {
        let verify = !(self.trusts_callers && caller_verifies);
        self.reader.read_cached_at(offset, buf, verify)
    }

    fn read_checked_by_caller_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if !self.trusts_callers {
            return self.read_exact_at(offset, buf);
        }
        let read = self.reader.read_unverified_at(offset, buf)?;
        if read < buf.len() { Err(ends_before(offset, buf.len(), read)) } else { Ok(()) }
    }

    fn len(&self) -> u64 {
        self.reader.len()
    }

    fn read_verified_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<StorageChecksum> {
        let (read, verified) = self.reader.read_verified_at(offset, buf)?;
        if read < buf.len() {
            return Err(ends_before(offset, buf.len(), read));
        }
        Ok(match verified {
            ChecksumResult::Matches => StorageChecksum::Matches,
            ChecksumResult::Differs => StorageChecksum::Differs,
        })
    }

    fn blocks_weight(&self, range: Range<u64>, host: &LocalHost) -> BlocksWeight {
        let blocks = self.reader.blocks(range);
        let weights = blocks.iter().map(|block| (block.b.num_bytes.unwrap_or(0), hosts_of(block)));
        BlocksWeight::of_blocks(host, weights)
    }
}

fn ends_before(offset: u64, wanted: usize, read: usize) -> io::Error {
    let what = format!("{wanted} bytes requested at {offset}, {read} available");
    io::Error::new(io::ErrorKind::UnexpectedEof, what)
}

fn hosts_of(block: &LocatedBlockProto) -> impl Iterator<Item = BlockHost<'_>> {
    block.locs.iter().enumerate().map(|(index, node)| BlockHost {
        name: &node.id.host_name,
        address: &node.id.ip_addr,
        is_ssd: block.storage_types.get(index) == Some(&STORAGE_TYPE_SSD),
    })
}

#[derive(Debug)]
struct HdfsLogFile {
    /// `None` once the file is closed.
    writer: Option<LogWriter>,
    /// Bytes appended since the last packet was sent.
    unsent_bytes: u64,
    /// The length when it was closed.
    closed_bytes: u64,
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the file is closed")
}

impl HdfsLogFile {
    fn writer(&mut self) -> io::Result<&mut LogWriter> {
        self.writer.as_mut().ok_or_else(closed)
    }
}

impl AppendFile for HdfsLogFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer()?.append(bytes)?;
        self.unsent_bytes += bytes.len() as u64;
        if self.unsent_bytes >= LOG_BUFFER_BYTES {
            self.unsent_bytes = 0;
            self.writer()?.start_flush(FlushLevel::Flushed)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.unsent_bytes = 0;
        self.writer()?.flush(FlushLevel::Flushed)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.unsent_bytes = 0;
        self.writer()?.flush(FlushLevel::Synced)
    }

    fn position(&self) -> u64 {
        self.writer.as_ref().map_or(self.closed_bytes, LogWriter::position)
    }

    fn health(&self) -> FileHealth {
        match &self.writer {
            Some(writer) if writer.is_broken() => FileHealth::Broken,
            Some(writer) if writer.has_few_replicas() => FileHealth::FewReplicas,
            _ => FileHealth::Sound,
        }
    }

    fn close(&mut self) -> io::Result<()> {
        self.closed_bytes = self.writer.take().ok_or_else(closed)?.close(FlushLevel::Flushed)?;
        Ok(())
    }
}

#[derive(Debug)]
struct HdfsBulkFile {
    /// `None` once the file is closed.
    writer: Option<BulkWriter>,
    /// Appended bytes that the writer does not have yet.
    buffer: Vec<u8>,
    /// The length when it was closed.
    closed_bytes: u64,
}

impl HdfsBulkFile {
    /// Passes all appended bytes to the writer, and returns it.
    fn flush_to_writer(&mut self) -> io::Result<&mut BulkWriter> {
        let writer = self.writer.as_mut().ok_or_else(closed)?;
        writer.append(&self.buffer)?;
        self.buffer.clear();
        Ok(writer)
    }
}

impl AppendFile for HdfsBulkFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BULK_BUFFER_BYTES { self.flush_to_writer().map(drop) } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flush_to_writer()?.flush(FlushLevel::Flushed)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.flush_to_writer()?.flush(FlushLevel::Synced)
    }

    fn position(&self) -> u64 {
        self.writer.as_ref().map_or(self.closed_bytes, BulkWriter::position) + self.buffer.len() as u64
    }

    fn close(&mut self) -> io::Result<()> {
        self.flush_to_writer()?;
        self.closed_bytes = self.writer.take().ok_or_else(closed)?.close(FlushLevel::Synced)?;
        Ok(())
    }
}
