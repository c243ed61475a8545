//! [`DirLock`]: at most one server process per directory.
//!
//! Two servers on one root directory would overwrite each other's files, so a server acquires this
//! lock before it reads anything. The lock is `flock(2)` on a separate file, [`LOCK_FILE_NAME`]:
//! the kernel releases it however the process ends. The file contains the holder's process id, for
//! the error message of a second server. It remains after the lock is released, because removing it
//! would race with the next holder.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The lock file in the locked directory.
pub const LOCK_FILE_NAME: &str = ".evenkeel.lock";

/// More than the digits of any process id.
const PID_BYTES_MAX: u64 = 32;

/// Locks a directory for this process until dropped.
#[derive(Debug)]
pub struct DirLock {
    dir: PathBuf,
    _file: File,
}

impl DirLock {
    /// Locks the directory, which must exist.
    ///
    /// # Errors
    /// `ResourceBusy`, naming the holder, if another process holds the lock; otherwise an error of
    /// the storage.
    pub fn acquire(dir: &Path) -> io::Result<Self> {
        let path = dir.join(LOCK_FILE_NAME);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        if !try_flock(&file)? {
            return Err(busy(dir, &mut file));
        }
        crate::checksum_file::remove(&path)?;
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(Self { dir: dir.to_owned(), _file: file })
    }

    /// The locked directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

fn busy(dir: &Path, file: &mut File) -> io::Error {
    let mut pid = String::new();
    let read = file.rewind().and_then(|()| file.take(PID_BYTES_MAX).read_to_string(&mut pid));
    let holder = match (read, pid.trim()) {
        (Ok(_), pid) if !pid.is_empty() => format!("process {pid}"),
        _ => "another process".to_owned(),
    };
    let message =
        format!("{} is in use by {holder}; two servers cannot share a root directory", dir.display());
    io::Error::new(io::ErrorKind::ResourceBusy, message)
}

/// Tries to acquire the lock without waiting. Returns true if it succeeded.
#[allow(unsafe_code, reason = "a system call")]
fn try_flock(file: &File) -> io::Result<bool> {
    loop {
        // SAFETY: a system call on a descriptor that `file` keeps open.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock => return Ok(false),
            io::ErrorKind::Interrupted => {}
            _ => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holder_at_a_time_and_the_second_learns_who() {
        let dir = tempfile::tempdir().expect("temp dir");
        let held = DirLock::acquire(dir.path()).expect("free");
        let error = DirLock::acquire(dir.path()).expect_err("taken");
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        assert!(error.to_string().contains(&format!("process {};", std::process::id())), "{error}");
        drop(held);
        assert_eq!(DirLock::acquire(dir.path()).expect("free again").dir(), dir.path());
    }

    #[test]
    fn a_missing_directory_is_not_made() {
        let dir = tempfile::tempdir().expect("temp dir");
        let error = DirLock::acquire(&dir.path().join("absent")).expect_err("no such directory");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
