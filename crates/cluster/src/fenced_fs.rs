//! [`FencedFileSystem`]: storage that a server may change only while it is alive.
//!
//! HDFS fences a writer by revoking its lease. A local or shared directory has no such mechanism: a
//! server that counts as dead but still runs has its log open, and appends to a file that another
//! server has already read. So every change checks the [`Lease`]:
//!
//! - before a file is created, renamed or deleted: the lease holds
//! - after bytes were flushed or synced: the lease still holds, so they were in the file before
//!   another server could read it. Otherwise the flush fails, and none of it is acknowledged.
//!
//! A master may declare a server dead whose lease holds. Before any server reads the dead one's
//! logs, it renames their directory. So, except on HDFS, a flush or sync of a log looks afterwards
//! whether the file still has its name, which takes about a microsecond on a local disk. If it
//! does, the bytes were in the file before another server could read it. Otherwise the flush fails
//! with `NotFound`, and so does the creation of another log in that directory, which fails the log
//! for good. On a shared file system this machine must see a renamed directory as soon as the
//! master's does: NFS with cached attributes (`actimeo` above 0) may show the old name for seconds.
//!
//! The process may be suspended for long between the check and a change of a name. A rename that
//! late moves a finished output of this server, which no other server looks for.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_fs::{
    AppendFile, CreateOptions, FileHealth, FileKind, FileStatus, FileSystem, RandomAccessFile, ReadStatistics,
};

use crate::lease::Lease;

/// See the module's documentation.
#[derive(Debug)]
pub struct FencedFileSystem {
    inner: Arc<dyn FileSystem>,
    lease: Arc<Lease>,
}

impl FencedFileSystem {
    /// Wraps `inner` for a server with this lease.
    pub fn new(inner: Arc<dyn FileSystem>, lease: Arc<Lease>) -> Self {
        Self { inner, lease }
    }
}

fn check(lease: &Lease) -> io::Result<()> {
    match lease.holds() {
        true => Ok(()),
        false => Err(io::Error::other("the ZooKeeper session may have expired: this server is fenced")),
    }
}

/// A file being written by a server that may be fenced.
#[derive(Debug)]
struct FencedFile {
    inner: Box<dyn AppendFile>,
    lease: Arc<Lease>,
    /// The name that a log must keep, except on HDFS.
    log: Option<LogName>,
}

#[derive(Debug)]
struct LogName {
    fs: Arc<dyn FileSystem>,
    path: PathBuf,
}

impl FencedFile {
    /// Fails if another server may have read the file before the last flush.
    fn check_flushed(&self) -> io::Result<()> {
        check(&self.lease)?;
        self.log.as_ref().map_or(Ok(()), |log| log.fs.status(&log.path).map(drop))
    }
}

impl AppendFile for FencedFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.inner.append(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()?;
        self.check_flushed()
    }

    fn sync(&mut self) -> io::Result<()> {
        self.inner.sync()?;
        self.check_flushed()
    }

    fn write_back(&mut self, should_continue: &dyn Fn() -> bool) -> io::Result<()> {
        self.inner.write_back(should_continue)
    }

    fn position(&self) -> u64 {
        self.inner.position()
    }

    fn health(&self) -> FileHealth {
        self.inner.health()
    }

    fn close(&mut self) -> io::Result<()> {
        self.inner.close()?;
        check(&self.lease)
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        check(&self.lease)?;
        self.inner.truncate(len)
    }
}

impl FileSystem for FencedFileSystem {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn RandomAccessFile>> {
        self.inner.open(path)
    }

    fn create(&self, path: &Path, options: CreateOptions) -> io::Result<Box<dyn AppendFile>> {
        check(&self.lease)?;
        let inner = self.inner.create(path, options)?;
        let needs_name = options.kind == FileKind::Log && !self.inner.is_remote();
        let name = || LogName { fs: Arc::clone(&self.inner), path: path.to_owned() };
        Ok(Box::new(FencedFile { inner, lease: Arc::clone(&self.lease), log: needs_name.then(name) }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        check(&self.lease)?;
        self.inner.rename(from, to)
    }

    fn touch(&self, path: &Path) -> io::Result<()> {
        check(&self.lease)?;
        self.inner.touch(path)
    }

    fn delete(&self, path: &Path) -> io::Result<bool> {
        check(&self.lease)?;
        self.inner.delete(path)
    }

    fn discard(&self, path: &Path) -> io::Result<bool> {
        check(&self.lease)?;
        self.inner.discard(path)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.inner.sync_file(path)?;
        check(&self.lease)
    }

    fn sync_all(&self, root: &Path) -> io::Result<()> {
        self.inner.sync_all(root)?;
        check(&self.lease)
    }

    fn delete_empty_dir(&self, path: &Path) -> io::Result<bool> {
        check(&self.lease)?;
        self.inner.delete_empty_dir(path)
    }

    fn mkdirs(&self, path: &Path) -> io::Result<()> {
        check(&self.lease)?;
        self.inner.mkdirs(path)
    }

    fn set_storage_policy(&self, path: &Path, policy: &str) -> io::Result<()> {
        check(&self.lease)?;
        self.inner.set_storage_policy(path, policy)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<FileStatus>> {
        self.inner.list(dir)
    }

    fn status(&self, path: &Path) -> io::Result<FileStatus> {
        self.inner.status(path)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.resolve(path)
    }

    fn recover(&self, path: &Path, should_continue: &dyn Fn() -> bool) -> io::Result<()> {
        check(&self.lease)?;
        self.inner.recover(path, should_continue)
    }

    fn is_remote(&self) -> bool {
        self.inner.is_remote()
    }

    fn path_of(&self, uri: &str) -> Option<PathBuf> {
        self.inner.path_of(uri)
    }

    fn uri_of(&self, path: &Path) -> String {
        self.inner.uri_of(path)
    }

    fn read_statistics(&self) -> ReadStatistics {
        self.inner.read_statistics()
    }

    fn read_all(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        self.inner.read_all(path, limit)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use evenkeel_common::clock::{self, ManualClock};
    use evenkeel_common::{KeyValue, TableName};
    use evenkeel_fs::{FaultyFileSystem, MemoryFileSystem};
    use evenkeel_wal::{SyncLevel, Wal, WalConfig, WalEntry, WalListener, WalOptions};
    use parking_lot::Mutex;

    use super::*;

    const DIR: &str = "/WALs/a";

    fn hour() -> Arc<Lease> {
        Arc::new(Lease::new(clock::monotonic(), Duration::from_secs(3600)))
    }

    /// Renames the directory of a log as a master does for a dead server.
    fn rename_dir(fs: &MemoryFileSystem) {
        fs.rename(Path::new(DIR), Path::new("/WALs/a-splitting")).expect("renamed");
    }

    #[test]
    fn a_log_whose_directory_was_renamed_acknowledges_nothing() {
        let memory = MemoryFileSystem::new();
        memory.mkdirs(Path::new(DIR)).expect("made");
        let fs = FencedFileSystem::new(Arc::new(memory.clone()), hour());
        let mut log = fs.create(&Path::new(DIR).join("log"), CreateOptions::LOG).expect("alive");
        let mut other = fs.create(Path::new("/data"), CreateOptions::BULK).expect("alive");
        log.append(b"acknowledged").and_then(|()| log.flush()).expect("alive");
        rename_dir(&memory);
        log.append(b"late").expect("nobody is told");
        for outcome in [log.flush(), log.sync()] {
            assert_eq!(outcome.expect_err("fenced").kind(), io::ErrorKind::NotFound);
        }
        other.append(b"x").and_then(|()| other.sync()).expect("no log");
    }

    /// There the recovery of the log's lease fences its writer, and a look would be a call to the
    /// NameNode.
    #[test]
    fn the_name_of_a_log_on_hdfs_is_not_looked_up() {
        let memory = MemoryFileSystem::new();
        memory.mkdirs(Path::new(DIR)).expect("made");
        let remote = FaultyFileSystem::new(memory.clone()).as_remote();
        let fs = FencedFileSystem::new(Arc::new(remote), hour());
        let mut log = fs.create(&Path::new(DIR).join("log"), CreateOptions::LOG).expect("alive");
        rename_dir(&memory);
        log.append(b"x").and_then(|()| log.flush()).expect("not asked");
    }

    #[derive(Default)]
    struct Failures(Mutex<Vec<String>>);

    impl WalListener for Failures {
        fn abort(&self, reason: &str) {
            self.0.lock().push(reason.to_owned());
        }

        fn request_flush(&self, _stores: &[(Bytes, Vec<Bytes>)]) {}
    }

    #[test]
    fn the_log_of_a_server_that_was_declared_dead_fails_for_good() {
        let memory = MemoryFileSystem::new();
        memory.mkdirs(Path::new(DIR)).expect("made");
        let failures = Arc::<Failures>::default();
        let wal = Wal::open(WalOptions {
            fs: Arc::new(FencedFileSystem::new(Arc::new(memory.clone()), hour())),
            wal_dir: PathBuf::from(DIR),
            old_dir: PathBuf::from("/oldWALs"),
            prefix: "a".to_owned(),
            suffix: String::new(),
            config: WalConfig::default(),
            clock: ManualClock::at(1_000_000),
            listener: Arc::clone(&failures) as _,
        })
        .expect("a log");
        let write = |seq_id| {
            let cell = KeyValue::put(b"row", b"f", b"q", 1, b"value");
            let table: TableName = "t".parse().expect("legal");
            let entry = WalEntry::new(Bytes::from_static(b"region"), table, seq_id, 1, vec![cell]);
            wal.append(&entry).and_then(|txid| wal.sync(txid, SyncLevel::Flush))
        };
        write(1).expect("acknowledged");
        rename_dir(&memory);
        write(2).expect_err("another server may have read the log");
        write(3).expect_err("and no other log is begun");
        assert_eq!(failures.0.lock().len(), 1);
        assert!(!memory.exists(Path::new(DIR)).expect("looked"));
    }

    #[test]
    fn an_expired_lease_fences_changes_and_acknowledgements() {
        let lease = Arc::new(Lease::new(clock::monotonic(), Duration::from_secs(3600)));
        let fs = FencedFileSystem::new(Arc::new(MemoryFileSystem::new()), Arc::clone(&lease));
        let (log, other) = (Path::new("/WALs/a/log"), Path::new("/WALs/a/other"));
        let options = CreateOptions { parents: true, ..CreateOptions::default() };
        let mut file = fs.create(log, options).expect("alive");
        file.append(b"acknowledged").and_then(|()| file.flush()).expect("alive");
        file.append(b"late").expect("nobody is told");
        lease.end();
        for outcome in [file.flush(), file.sync(), fs.rename(log, other), fs.mkdirs(other)] {
            assert!(outcome.expect_err("fenced").to_string().contains("fenced"));
        }
        assert!(fs.create(other, options).is_err() && fs.delete(log).is_err());
        assert!(fs.exists(log).expect("reads go on") && !fs.exists(other).expect("reads go on"));
    }
}
