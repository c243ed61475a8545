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
//! The process may be suspended for long between the check and a change of a name. A rename that
//! late moves a finished output of this server, which no other server looks for.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_fs::{
    AppendFile, CreateOptions, FileHealth, FileStatus, FileSystem, RandomAccessFile, ReadStatistics,
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
}

impl AppendFile for FencedFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.inner.append(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()?;
        check(&self.lease)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.inner.sync()?;
        check(&self.lease)
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
        Ok(Box::new(FencedFile { inner, lease: Arc::clone(&self.lease) }))
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

    use evenkeel_common::clock;
    use evenkeel_fs::MemoryFileSystem;

    use super::*;

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
