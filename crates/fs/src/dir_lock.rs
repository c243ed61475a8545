//! [`DirLock`]: at most one server process per directory.
//!
//! Two servers on one root directory would overwrite each other's files, so a server acquires this
//! lock before it reads anything. The lock is `flock(2)` on a separate file, [`LOCK_FILE_NAME`]:
//! the kernel releases it however the process ends. The file contains the holder's process id, for
//! the error message of a second server. It remains after the lock is released, because removing it
//! would race with the next holder.
//!
//! A process that is killed keeps the lock until the kernel has released its memory and
//! descriptors, which takes seconds for a large one. So a start right after a crash waits for the
//! lock ([`DirLock::acquire_within`]), and then for the process to end, which may still hold its
//! ports.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The lock file in the locked directory.
pub const LOCK_FILE_NAME: &str = ".evenkeel.lock";

/// More than the digits of any process id.
const PID_BYTES_MAX: u64 = 32;
/// The interval of attempts while the lock is held by another process.
const RETRY: Duration = Duration::from_millis(50);
/// How long to wait for the previous holder to end once the lock is free. It takes milliseconds,
/// unless the id already belongs to another process.
const HOLDER_END: Duration = Duration::from_secs(1);

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

    /// As [`DirLock::acquire`], but waits up to `limit` for the holder to end. `waits` is called
    /// once, with the reason, before the first wait.
    ///
    /// # Errors
    /// As [`DirLock::acquire`].
    pub fn acquire_within(dir: &Path, limit: Duration, waits: impl FnOnce(&io::Error)) -> io::Result<Self> {
        let (mut waits, mut holder, mut left) = (Some(waits), None, limit);
        loop {
            match Self::acquire(dir) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && !left.is_zero() => {
                    waits.take().into_iter().for_each(|waits| waits(&error));
                    let lock_file = File::open(dir.join(LOCK_FILE_NAME));
                    holder = lock_file.ok().and_then(|mut file| holder_of(&mut file));
                    pause(&mut left);
                }
                Ok(lock) => {
                    holder.into_iter().for_each(wait_for_end);
                    return Ok(lock);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the process that has locked a directory, 0 if it has not written its id yet; `None`
    /// if there is none. Changes nothing.
    ///
    /// # Errors
    /// An error of the storage.
    pub fn holder(dir: &Path) -> io::Result<Option<u32>> {
        let path = dir.join(LOCK_FILE_NAME);
        let mut file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?,
        };
        Ok(if try_flock(&file)? { None } else { Some(holder_of(&mut file).unwrap_or(0)) })
    }

    /// The locked directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Sleeps until the next attempt, and subtracts the pause from the remaining time.
fn pause(left: &mut Duration) {
    let pause = RETRY.min(*left);
    std::thread::sleep(pause);
    *left -= pause;
}

fn busy(dir: &Path, file: &mut File) -> io::Error {
    let holder = holder_of(file).map_or("another process".to_owned(), |pid| format!("process {pid}"));
    let message =
        format!("{} is in use by {holder}; two servers cannot share a root directory", dir.display());
    io::Error::new(io::ErrorKind::ResourceBusy, message)
}

/// The process id in the lock file; `None` if there is none yet.
fn holder_of(file: &mut File) -> Option<u32> {
    let mut pid = String::new();
    file.rewind().and_then(|()| file.take(PID_BYTES_MAX).read_to_string(&mut pid)).ok()?;
    pid.trim().parse().ok()
}

/// Waits until a process has closed its descriptors, for at most [`HOLDER_END`].
fn wait_for_end(pid: u32) {
    let mut left = HOLDER_END;
    while pid != std::process::id() && is_alive(pid) && !left.is_zero() {
        pause(&mut left);
    }
}

/// Returns true if a process has not ended: in the states `Z` and `X` of proc(5) its descriptors
/// are closed.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !"ZX".contains(state))
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
    fn a_held_lock_is_refused_with_its_holder() {
        let dir = tempfile::tempdir().expect("temp dir");
        let held = DirLock::acquire(dir.path()).expect("free");
        let error = DirLock::acquire(dir.path()).expect_err("taken");
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        assert!(error.to_string().contains(&format!("process {};", std::process::id())), "{error}");
        drop(held);
        assert_eq!(DirLock::acquire(dir.path()).expect("free again").dir(), dir.path());
    }

    #[test]
    fn acquire_within_waits_for_the_holder() {
        let dir = tempfile::tempdir().expect("temp dir");
        let held = DirLock::acquire(dir.path()).expect("free");
        let mut told = 0;
        let error = DirLock::acquire_within(dir.path(), Duration::from_millis(120), |_| told += 1);
        assert_eq!((error.expect_err("held").kind(), told), (io::ErrorKind::ResourceBusy, 1));
        let (tell, waits) = std::sync::mpsc::channel();
        let holder = std::thread::spawn(move || waits.recv().map(|()| drop(held)));
        let limit = Duration::from_secs(60);
        let lock = DirLock::acquire_within(dir.path(), limit, |_| tell.send(()).expect("it listens"));
        assert_eq!(lock.expect("free in time").dir(), dir.path());
        holder.join().expect("ended").expect("was told");
        let mut is_told = false;
        DirLock::acquire_within(&dir.path().join("absent"), limit, |_| is_told = true)
            .expect_err("only a holder is waited for");
        assert!(!is_told);
    }

    #[test]
    fn the_holder_is_the_process_that_has_the_lock() {
        let dir = tempfile::tempdir().expect("temp dir");
        assert_eq!(DirLock::holder(dir.path()).expect("read"), None);
        assert!(!dir.path().join(LOCK_FILE_NAME).exists());
        let held = DirLock::acquire(dir.path()).expect("free");
        assert_eq!(DirLock::holder(dir.path()).expect("read"), Some(std::process::id()));
        drop(held);
        assert_eq!(DirLock::holder(dir.path()).expect("read"), None);
    }

    #[test]
    fn a_missing_directory_is_not_created() {
        let dir = tempfile::tempdir().expect("temp dir");
        let error = DirLock::acquire(&dir.path().join("absent")).expect_err("no such directory");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
