//! The archiver's thread: closes rolled files, moves files that are no longer needed to the
//! archive, and creates, checks and deletes spare ones ([`output`](super::output)), so that neither
//! the committing thread nor a flush waits for these. A rolled file may have tens of megabytes of
//! unsynced data, which take milliseconds of a processor and fill the disk's queue. So it is
//! written back in chunks before its last sync, and requests preempt the thread. The committing
//! thread does wait if entries before those to be synced are in such a file: then the rest of it is
//! synced at once.
//!
//! A rolled file stays open until it is closed here, so rolls must not run ahead of this thread: if
//! [`CLOSING_FILES_MAX`] files wait to be closed, a requested roll waits, and a file that is too
//! long, too old or too slow is written further.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use evenkeel_common::priority;
use evenkeel_common::thread::{Supervisor, catch, spawn_essential};
use evenkeel_fs::{AppendFile, FileSystem};
use parking_lot::Mutex;

use super::output::{Created, FileCreator, NotReady, SpareFile};
use crate::format::TRAILER;

/// The maximum number of open files whose last sync has not ended. Each thread that requests a roll
/// may add one more.
pub(super) const CLOSING_FILES_MAX: usize = 8;

enum Job {
    /// Writes the trailer and syncs.
    Close {
        path: PathBuf,
        file: Box<dyn AppendFile>,
        result: Sender<io::Result<()>>,
        /// Set if a thread waits for the result.
        is_awaited: Arc<AtomicBool>,
    },
    Archive(PathBuf),
    /// Creates a file.
    Create {
        creator: Arc<FileCreator>,
        sync: bool,
        result: Sender<Created>,
    },
    /// Checks a file that was created ahead, and replaces it if it cannot be used.
    Check {
        spare: Box<SpareFile>,
        sync: bool,
        result: Sender<Created>,
    },
    /// Drops the result of an earlier job, which deletes the file.
    Discard(Receiver<Created>),
    /// Signals that all earlier jobs are done.
    Barrier(Sender<()>),
}

/// Sends jobs to the thread, which executes them in order. At most a few files are in progress at
/// any time, so the queue needs no bound.
pub(super) struct Archiver {
    jobs: Option<Sender<Job>>,
    /// Files that are not closed yet.
    closing: Arc<AtomicUsize>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Archiver {
    /// Starts the thread; notifies `supervisor` if it fails.
    pub(super) fn start(
        fs: Arc<dyn FileSystem>,
        old_dir: PathBuf,
        supervisor: &Supervisor,
    ) -> io::Result<Self> {
        let (jobs, inbox) = unbounded();
        let closing = Arc::<AtomicUsize>::default();
        let worker = Worker { fs, old_dir, pending_moves: Vec::new(), closing: Arc::clone(&closing) };
        let thread = spawn_essential("wal-archiver", supervisor, move || {
            worker.run(&inbox);
            Ok(())
        })?;
        Ok(Self { jobs: Some(jobs), closing, thread: Mutex::new(Some(thread)) })
    }

    /// Closes a file; the receiver gets the result of its sync. Once `is_awaited` is set the sync
    /// starts immediately.
    pub(super) fn close(
        &self,
        path: PathBuf,
        file: Box<dyn AppendFile>,
        is_awaited: &Arc<AtomicBool>,
    ) -> Receiver<io::Result<()>> {
        let (result, receiver) = bounded(1);
        self.closing.fetch_add(1, Ordering::Relaxed);
        self.send(Job::Close { path, file, result, is_awaited: Arc::clone(is_awaited) });
        receiver
    }

    /// Creates a file, which the receiver gets. If the receiver was dropped, the file is deleted.
    pub(super) fn create_ahead(&self, creator: &Arc<FileCreator>, sync: bool) -> Receiver<Created> {
        let (result, receiver) = bounded(1);
        self.send(Job::Create { creator: Arc::clone(creator), sync, result });
        receiver
    }

    /// Checks a file that was created ahead ([`SpareFile::check`]).
    pub(super) fn check(&self, spare: Box<SpareFile>, sync: bool) -> Receiver<Created> {
        let (result, receiver) = bounded(1);
        self.send(Job::Check { spare, sync, result });
        receiver
    }

    /// Deletes the file of a job whose result is not needed.
    pub(super) fn discard(&self, created: Receiver<Created>) {
        self.send(Job::Discard(created));
    }

    /// Moves a closed file to the archive.
    pub(super) fn archive(&self, path: PathBuf) {
        self.send(Job::Archive(path));
    }

    /// Returns true if another file may be rolled, because not too many wait to be closed.
    pub(super) fn can_close_another(&self) -> bool {
        self.closing.load(Ordering::Relaxed) < CLOSING_FILES_MAX
    }

    /// Waits until all jobs sent so far are done.
    pub(super) fn wait(&self) {
        let (tell, told) = bounded(1);
        self.send(Job::Barrier(tell));
        let _ = told.recv();
    }

    fn send(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job);
        }
    }
}

impl Drop for Archiver {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

struct Worker {
    fs: Arc<dyn FileSystem>,
    old_dir: PathBuf,
    /// Files whose move failed; it is retried with the next job.
    pending_moves: Vec<PathBuf>,
    closing: Arc<AtomicUsize>,
}

impl Worker {
    fn run(mut self, jobs: &Receiver<Job>) {
        priority::allow_preemption();
        for job in jobs {
            match job {
                Job::Close { path, file, result, is_awaited } => {
                    let closed = catch_panic("closing a WAL file", || close(file, &is_awaited));
                    self.closing.fetch_sub(1, Ordering::Relaxed);
                    if let Err(error) = &closed {
                        tracing::warn!(path = %path.display(), %error, "a WAL file could not be closed");
                    }
                    let _ = result.send(closed);
                }
                Job::Archive(path) => self.pending_moves.push(path),
                Job::Create { creator, sync, result } => {
                    let made = catch_panic("making a WAL file", || creator.create_ahead(sync));
                    drop(result.send(made.map_err(NotReady::failed)));
                }
                Job::Check { spare, sync, result } => {
                    let checked = catch_panic("checking a WAL file", || Ok(spare.check(sync)));
                    drop(result.send(checked.unwrap_or_else(|error| Err(NotReady::failed(error)))));
                }
                Job::Discard(created) => drop(created),
                Job::Barrier(tell) => drop(tell.send(())),
            }
            self.move_files();
        }
    }

    fn move_files(&mut self) {
        for path in std::mem::take(&mut self.pending_moves) {
            if let Err(error) = catch_panic("archiving a WAL file", || self.move_file(&path)) {
                tracing::warn!(path = %path.display(), %error, "a WAL file could not be archived");
                self.pending_moves.push(path);
            }
        }
    }

    fn move_file(&self, path: &std::path::Path) -> io::Result<()> {
        let Some(name) = path.file_name() else { return Ok(()) };
        if !self.fs.exists(path)? {
            return Ok(()); // the master took the whole directory
        }
        self.fs.mkdirs(&self.old_dir)?;
        self.fs.touch(path)?;
        self.fs.rename(path, &self.old_dir.join(name))
    }
}

/// Executes a job; a panic fails only that job.
fn catch_panic<T>(what: &str, job: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    catch(what, || Ok(job())).unwrap_or_else(|error| Err(io::Error::other(error.message())))
}

fn close(mut file: Box<dyn AppendFile>, is_awaited: &AtomicBool) -> io::Result<()> {
    file.append(TRAILER)?;
    file.write_back(&|| !is_awaited.load(Ordering::Relaxed))?;
    file.sync()?;
    file.close()
}
