//! The write path: [`Wal`].
//!
//! # Group commit
//!
//! [`Wal::append`] encodes its entry in memory of its thread, puts the bytes at the end of one pending buffer, under one
//! short lock, and returns a [`Txid`]; the order of appends is the order in the file. Whoever **commits** takes the whole
//! buffer, appends it to the file in one piece, flushes, syncs when someone asked for that, and then runs the callbacks of all whose entries that made durable.
//! Meanwhile others fill the second buffer: the batch is as large as the disk is slow, and nobody ever waits for a
//! batch to fill.
//!
//! The WAL's own thread commits; it sleeps while nobody waits for an entry, and writes made in a row wake it together
//! ([`wakeup`]). A thread in [`Wal::sync`] may do it in its
//! place when the file is idle ([`WalConfig::inline_sync`]): the entry is then on disk after one write and no context
//! switch. `Queue::writing` says that someone commits; the `Output` belongs to that someone.
//!
//! # Failures
//!
//! When a write or flush fails, the file is cut where the last batch ended that was flushed as a whole, and the batch is
//! written to a new file. Only when the new file fails too do the waiting syncs fail; none is ever told that an entry is
//! durable which is not, and an entry whose sync failed is in neither file: the new one is cut and deleted. So what a client
//! was told has failed is not replayed, **unless** the storage refuses to cut as well as to write, and the process dies
//! before it can be written again (what was not cut is then), the file system has no [`cut`](evenkeel_fs::AppendFile::truncate),
//! or the process dies between the failed write and the cut, when nobody was told anything. Then part of the batch may lie
//! behind the last flushed one: its whole entries would be replayed, as after any death whole entries are that nobody was
//! told of.
//!
//! When a sync fails, what was flushed stays in the file, for clients that wait for no more were told; the batch is written
//! again to a new file, in two files under one sequence id, which replay takes once. The file that failed is never synced
//! again, and the stores of entries that were only flushed to it are asked to flush. So it is with the last sync of a file
//! that was rolled, which somebody hears of within a [`TICK`].
//!
//! While no file can be written (no space left, a disk with errors, one that has become read-only), the waiting syncs get
//! that error, and every later commit tries a new file: writes are refused, with the reason, until the fault ends, those
//! that would not have waited too. What these were promised just before is in MemStores only, so all stores are asked to
//! flush once a file can be written again. Only when the directory is gone, as when a master has taken it away, is the WAL **failed** for good, and [`WalListener::abort`] is
//! called.
//!
//! A commit that panics fails the log for good, whichever thread made it: what it wrote is unknown. So does the death of
//! the log's thread. Everybody who waits is told, and [`WalListener::abort`] is called, so that nobody waits for ever.
//!
//! A batch that failed leaves a range of transaction ids that can never be synced; a sync that comes late for one of
//! them gets the error, too.
//!
//! # Rolling and archiving
//!
//! After a commit the committing thread starts a new file when the current one is too long, too old, too slow ([`slow_sync`]), or
//! on request. Writers wait meanwhile, so the file after one that becomes too long is made ahead ([`output`]). The
//! old one gets its trailer and its last sync on the archiver's thread, which also moves files that nobody needs any
//! more to the archive and makes the next one. [`accounting`] knows which those are.
//!
//! # A disk that does not answer
//!
//! A sync that fails is dealt with above; one that does not return is not. A thread of its own sees it, says so, and ends the
//! log after [`WalConfig::sync_timeout`], as HBase does ([`watchdog`]).
//!
//! # Locks, and bounds
//!
//! Order: `output` before `queue`; callbacks and the listener run under neither of the two... except that `output` is
//! held, so they must not wait for a sync or a roll. Memory: two buffers, one that is filled and one that is written, each of at
//! most [`WalConfig::queue_bytes_max`] or one entry that is longer; with compression, one of the compressed entries of a batch beside
//! them; and the entry that each thread appends, of whose memory it keeps [`ENTRY_BYTES_KEPT`] at most.
//! [`WalStats::queue_bytes`] tells what the two buffers take, and [`WalStats::queue_bytes_peak`] what they came to. An entry
//! that is longer than a buffer is written alone, and its buffer freed.

mod accounting;
mod archiver;
mod commit;
mod output;
mod queue;
mod slow_sync;
mod wakeup;
mod watchdog;

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use evenkeel_common::clock::Clock;
use evenkeel_common::thread::{Supervisor, spawn_essential};
use evenkeel_common::{CellRef, ErrorKind, HBaseError, KeyValue, Result, turns};
use evenkeel_fs::FileSystem;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::config::{WalConfig, WalListener};
use crate::entry::{WalEntry, WalKey};
use crate::format::encode;
use archiver::Archiver;
use output::Output;
pub use queue::OnSynced;
use queue::{Completion, Queue, Waiter};
pub use wakeup::{WakeBatch, wake_deferred};
use watchdog::SyncWatchdog;

/// A place in the order of appends, across files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Txid(u64);

impl Txid {
    /// The number: 1 for the first entry of a [`Wal`].
    pub fn get(self) -> u64 {
        self.0
    }
}

/// How durable an entry should be before its writer is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SyncLevel {
    /// Not at all (`ASYNC_WAL`): written soon, acknowledged now.
    None,
    /// It survives this process (`SYNC_WAL`, `hflush`). With [`WalConfig::hsync`] the same as [`SyncLevel::Sync`].
    Flush,
    /// It survives this machine (`FSYNC_WAL`, `hsync`).
    Sync,
}

/// Where and how a [`Wal`] writes.
pub struct WalOptions {
    /// The file system of the WAL root.
    pub fs: Arc<dyn FileSystem>,
    /// `WALs/<server name>`. Must be there: a server makes it once, when it starts. A WAL never does, for a directory
    /// that a master has renamed must not come back.
    pub wal_dir: PathBuf,
    /// `oldWALs`.
    pub old_dir: PathBuf,
    /// Of file names: [`crate::names::prefix`] or [`crate::names::meta_prefix`].
    pub prefix: String,
    /// Of file names: empty, or [`crate::names::META_SUFFIX`].
    pub suffix: String,
    /// Settings.
    pub config: WalConfig,
    /// Names the files and tells their age.
    pub clock: Arc<dyn Clock>,
    /// Hears of failures and of stores that should flush.
    pub listener: Arc<dyn WalListener>,
}

/// How much a [`Wal`] has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalStats {
    /// Entries appended.
    pub entries: u64,
    /// Bytes of these entries.
    pub bytes: u64,
    /// Batches written.
    pub commits: u64,
    /// Of these, written by a thread that waited in [`Wal::sync`].
    pub inline_commits: u64,
    /// Syncs to the disk.
    pub syncs: u64,
    /// Commits whose writes and syncs took longer than [`WalConfig::slow_sync`].
    pub slow_syncs: u64,
    /// Of commits that were under way for longer than [`WalConfig::roll_on_sync`], whether they have ended since or not.
    pub stuck_syncs: u64,
    /// Times that a new file was started.
    pub rolls: u64,
    /// Writes, flushes and syncs that failed.
    pub failures: u64,
    /// Times that an append had to wait for room in the queue.
    pub full_queue_waits: u64,
    /// Bytes of memory that the queue's buffers take now, the one being written among them.
    pub queue_bytes: usize,
    /// The most that they took.
    pub queue_bytes_peak: usize,
}

#[derive(Debug, Default)]
struct Counters {
    commits: AtomicU64,
    inline_commits: AtomicU64,
    syncs: AtomicU64,
    slow_syncs: AtomicU64,
    stuck_syncs: AtomicU64,
    rolls: AtomicU64,
    failures: AtomicU64,
    full_queue_waits: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A write-ahead log. See the [module](self).
pub struct Wal {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    watch: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    config: WalConfig,
    queue: Mutex<Queue>,
    /// The WAL's thread waits here for work.
    work: Condvar,
    /// Appends wait here for room in the queue.
    space: Condvar,
    /// Belongs to whoever set `Queue::writing`.
    output: Mutex<Output>,
    archiver: Archiver,
    listener: Arc<dyn WalListener>,
    counters: Counters,
    watchdog: SyncWatchdog,
}

/// Whether an append waits for room in the queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WhenFull {
    /// As long as it takes.
    Wait,
    /// It does not.
    ReturnNone,
}

/// How long an entry may stay in memory that nobody asked to sync, and how often a file's age is looked at.
const TICK: Duration = Duration::from_millis(500);

/// A thread keeps the memory in which it encodes entries up to so many bytes.
const ENTRY_BYTES_KEPT: usize = 256 << 10;

thread_local! {
    /// The entry that this thread appends: encoded before the queue's lock is taken.
    static ENTRY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Above this many pending bytes the WAL's thread writes without being asked.
const COMMIT_BYTES: usize = 256 << 10;

impl Wal {
    /// Starts a new file in `wal_dir`, and the threads.
    ///
    /// # Errors
    /// `FileNotFoundException` when `wal_dir` is not there; otherwise whatever the storage says.
    pub fn open(options: WalOptions) -> Result<Arc<Self>> {
        let WalOptions { fs, wal_dir, old_dir, prefix, suffix, config, clock, listener } = options;
        let output = Output::open(Arc::clone(&fs), wal_dir, prefix, suffix, clock, config.compression)?;
        let aborting = Arc::clone(&listener);
        let supervisor = Supervisor::new(move |death| aborting.abort(&death.to_string()));
        let archiver = Archiver::start(fs, old_dir, &supervisor)?;
        let shared = Arc::new(Shared {
            config,
            queue: Mutex::new(Queue::default()),
            work: Condvar::new(),
            space: Condvar::new(),
            output: Mutex::new(output),
            archiver,
            listener,
            counters: Counters::default(),
            watchdog: SyncWatchdog::default(),
        });
        let (of_thread, dying) = (Arc::clone(&shared), Arc::downgrade(&shared));
        let fails_log = Supervisor::new(move |death| {
            dying.upgrade().into_iter().for_each(|shared| shared.fail_now(&death.to_string()));
        });
        let thread = spawn_essential("wal", &fails_log, move || {
            of_thread.run();
            Ok(())
        })?;
        let of_watchdog = Arc::clone(&shared);
        let watch = spawn_essential("wal-watch", &supervisor, move || {
            of_watchdog.run_watchdog();
            Ok(())
        });
        let wal = Self { shared, thread: Mutex::new(Some(thread)), watch: Mutex::default() };
        *wal.watch.lock() = Some(watch?);
        Ok(Arc::new(wal))
    }

    /// Puts an entry at the end of the queue: the order of calls is the order in the file. The caller holds its region's
    /// append lock, so that the sequence ids of one region are in order.
    ///
    /// Never waits for the disk, except while [`WalConfig::queue_bytes_max`] bytes wait before it.
    ///
    /// # Errors
    /// `IOException` when the WAL is closed or failed; `DoNotRetryIOException` when the entry is longer than
    /// [`WalConfig::entry_bytes_max`].
    pub fn append(&self, entry: &WalEntry) -> Result<Txid> {
        self.append_cells(&entry.key(), entry.cells.iter().map(KeyValue::as_cell))
    }

    /// As [`Wal::append`], from a borrowed key and views of the cells.
    ///
    /// # Errors
    /// As [`Wal::append`].
    pub fn append_cells<'a>(
        &self,
        key: &WalKey<'_>,
        cells: impl Iterator<Item = CellRef<'a>> + Clone,
    ) -> Result<Txid> {
        let appended = self.append_entry(key, cells, WhenFull::Wait)?;
        appended.ok_or_else(|| HBaseError::io("an append that may wait found no room"))
    }

    /// As [`Wal::append_cells`], but never waits: `None` when the queue has no room, or others wait for room.
    ///
    /// # Errors
    /// As [`Wal::append`].
    pub fn try_append_cells<'a>(
        &self,
        key: &WalKey<'_>,
        cells: impl Iterator<Item = CellRef<'a>> + Clone,
    ) -> Result<Option<Txid>> {
        self.append_entry(key, cells, WhenFull::ReturnNone)
    }

    fn append_entry<'a>(
        &self,
        key: &WalKey<'_>,
        cells: impl Iterator<Item = CellRef<'a>> + Clone,
        when_full: WhenFull,
    ) -> Result<Option<Txid>> {
        let size = encode::measure(key, cells.clone());
        if size.total > self.shared.config.entry_bytes_max {
            let (bytes, max) = (size.total, self.shared.config.entry_bytes_max);
            let message = format!("WAL entry of {bytes} bytes; at most {max} are allowed");
            return Err(HBaseError::do_not_retry(message));
        }
        ENTRY.with_borrow_mut(|entry| {
            entry.clear();
            encode::write(entry, size, key, cells.clone());
            let txid = self.append_encoded(entry, key, cells, when_full);
            if entry.capacity() > ENTRY_BYTES_KEPT {
                *entry = Vec::new();
            }
            txid
        })
    }

    fn append_encoded<'a>(
        &self,
        entry: &[u8],
        key: &WalKey<'_>,
        cells: impl Iterator<Item = CellRef<'a>>,
        when_full: WhenFull,
    ) -> Result<Option<Txid>> {
        let Some(mut queue) = self.shared.lock_with_room(entry.len(), when_full)? else { return Ok(None) };
        queue.reserve(entry.len(), self.shared.config.queue_bytes_max);
        queue.pending.extend_from_slice(entry);
        queue.accounting.appended(key.region, key.seq_id, cells);
        let txid = queue.next_txid(entry.len());
        if queue.pending.len() > COMMIT_BYTES {
            self.shared.request_commit(&mut queue);
        }
        Ok(Some(txid))
    }

    /// Calls `done` once, when everything up to `txid` is durable at `level`, or cannot be any more. It runs on the
    /// committing thread, in order of transaction ids within a level, or at once on this thread when there is nothing
    /// to wait for. It must be cheap and must not wait for the WAL.
    pub fn when_synced(&self, txid: Txid, level: SyncLevel, done: impl FnOnce(Result<()>) + Send + 'static) {
        self.notify_synced(txid, level, Box::new(done));
    }

    /// As [`Wal::when_synced`], for a callback that lies in memory of its own already.
    pub fn notify_synced(&self, txid: Txid, level: SyncLevel, done: Box<dyn OnSynced>) {
        let mut queue = self.shared.queue.lock();
        let level = self.shared.effective(&queue, level);
        match queue.sync_result(txid, level) {
            Some(verdict) => {
                let is_to_come = level == SyncLevel::None && queue.flushed < txid.0;
                let sleeps = is_to_come && queue.wants_commit();
                drop(queue);
                if sleeps {
                    wakeup::wake_or_defer(&self.shared);
                }
                done.synced(verdict);
            }
            None => {
                queue.waiters.push(Waiter { txid, level, completion: Completion::Callback(done) });
                let sleeps = queue.wants_commit();
                drop(queue);
                if sleeps {
                    wakeup::wake_or_defer(&self.shared);
                }
            }
        }
    }

    /// Waits until everything up to `txid` is durable at `level`.
    ///
    /// # Errors
    /// `IOException` when that cannot be; the entry may or may not be in the log then.
    pub fn sync(&self, txid: Txid, level: SyncLevel) -> Result<()> {
        self.shared.sync(txid, level)
    }

    /// Makes everything up to `txid` durable at `level` on this thread, if nobody else commits just now; `None` when
    /// somebody does, and then [`Wal::when_synced`] is the way. For a thread that may spend one write, but may not wait
    /// for another's: at [`SyncLevel::Flush`] on a local disk it costs less than waking the WAL's thread. Callbacks of
    /// others may run in it, so the caller should hold no lock that they take.
    pub fn try_sync(&self, txid: Txid, level: SyncLevel) -> Option<Result<()>> {
        self.shared.try_sync(txid, level)
    }

    /// Starts a new file, once everything appended so far is in the old one. Waits for files that were rolled before when
    /// many of them are not closed yet.
    ///
    /// # Errors
    /// `IOException` when no new file can be made; the old one stays in use if it can.
    pub fn roll(&self) -> Result<()> {
        if !self.shared.archiver.takes_another() {
            self.shared.archiver.wait();
        }
        let (tell, told) = crossbeam_channel::bounded(1);
        {
            let mut queue = self.shared.queue.lock();
            queue.check_open()?;
            queue.rolls.push(tell);
            self.shared.request_commit(&mut queue);
        }
        told.recv().unwrap_or_else(|_| Err(closed()))
    }

    /// A flush of these families begins; the caller lets no append of the region happen meanwhile. Returns the lowest
    /// sequence id that the region's other families hold unflushed, if any.
    pub fn start_flush(&self, region: &[u8], families: &[Bytes]) -> Option<u64> {
        self.shared.queue.lock().accounting.start_flush(region, families)
    }

    /// The flush is done: every edit of these families up to `flushed_seq_id` is in files.
    pub fn complete_flush(&self, region: &[u8], families: &[Bytes], flushed_seq_id: u64) {
        self.shared.queue.lock().accounting.complete_flush(region, families, flushed_seq_id);
        self.shared.archive_flushed();
    }

    /// The flush did not happen.
    pub fn abort_flush(&self, region: &[u8]) {
        self.shared.queue.lock().accounting.abort_flush(region);
    }

    /// The region is closed here, with everything flushed.
    pub fn region_closed(&self, region: &[u8]) {
        self.shared.queue.lock().accounting.region_closed(region);
        self.shared.archive_flushed();
    }

    /// The lowest sequence id of the region, or of one family of it, that is in no file of a store yet.
    pub fn lowest_unflushed(&self, region: &[u8], family: Option<&[u8]>) -> Option<u64> {
        let queue = self.shared.queue.lock();
        match family {
            Some(family) => queue.accounting.lowest_of(region, family),
            None => queue.accounting.lowest(region),
        }
    }

    /// The file being written, or the last one that was.
    pub fn current_path(&self) -> PathBuf {
        self.shared.output.lock().path().to_owned()
    }

    /// Closed files that are not archived yet, oldest first.
    pub fn closed_paths(&self) -> Vec<PathBuf> {
        self.shared.queue.lock().closed.iter().map(|file| file.path.clone()).collect()
    }

    /// Waits until the archiver has done all it was told so far.
    pub fn wait_for_archiver(&self) {
        self.shared.archiver.wait();
    }

    /// What was done so far.
    pub fn stats(&self) -> WalStats {
        let queue = self.shared.queue.lock();
        let counters = &self.shared.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WalStats {
            entries: queue.last_txid,
            bytes: queue.appended_bytes,
            commits: get(&counters.commits),
            inline_commits: get(&counters.inline_commits),
            syncs: get(&counters.syncs),
            slow_syncs: get(&counters.slow_syncs),
            stuck_syncs: get(&counters.stuck_syncs),
            rolls: get(&counters.rolls),
            failures: get(&counters.failures),
            full_queue_waits: get(&counters.full_queue_waits),
            queue_bytes: queue.bytes(),
            queue_bytes_peak: queue.bytes_peak,
        }
    }

    /// Writes what is pending and the trailer, syncs, and archives what nobody needs. Files with edits that are not
    /// flushed stay, for the master to split. Later appends and syncs fail. Closing again does nothing.
    ///
    /// # Errors
    /// What the last writes of the file met. `TimeoutIOException` where a sync does not end: it and the file are left alone.
    pub fn close(&self) -> Result<()> {
        let Some(thread) = self.shared.begin_close(&self.thread) else { return Ok(()) };
        if self.shared.watchdog.has_timed_out() {
            return self.shared.queue.lock().check_open();
        }
        drop(thread.join());
        self.join_watchdog();
        let result = self.shared.finish_close();
        self.shared.archive_flushed();
        self.shared.archiver.wait();
        result
    }
}

impl Drop for Wal {
    /// As a crash would, but for the threads, which end: what was not synced may not be in the file. The last owner may be
    /// a callback on the WAL's own thread, which then ends by itself.
    fn drop(&mut self) {
        let thread = self.shared.begin_close(&self.thread).filter(|_| !self.shared.watchdog.has_timed_out());
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
        self.join_watchdog();
    }
}

impl Wal {
    /// Ends the watch, which may be the last owner of the log: in a callback, or in the listener.
    fn join_watchdog(&self) {
        self.shared.watchdog.stop();
        let watch = self.watch.lock().take();
        if let Some(watch) = watch.filter(|watch| watch.thread().id() != std::thread::current().id()) {
            let _ = watch.join();
        }
    }
}

impl std::fmt::Debug for Wal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wal").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

fn closed() -> HBaseError {
    HBaseError::new(ErrorKind::Io, "the WAL is closed")
}

impl Shared {
    /// What a writer really has to wait for. While no file can be written, nobody is told that something is in the log which
    /// may never be there.
    fn effective(&self, queue: &Queue, level: SyncLevel) -> SyncLevel {
        match level {
            SyncLevel::Flush if self.config.hsync => SyncLevel::Sync,
            SyncLevel::None if queue.is_rejecting => SyncLevel::Flush,
            _ => level,
        }
    }

    /// The queue, with room for so many bytes: an entry goes in when nothing is before it, or when it fits. `None` when that
    /// would take a wait.
    fn lock_with_room(&self, bytes: usize, when_full: WhenFull) -> Result<Option<MutexGuard<'_, Queue>>> {
        let mut queue = self.queue.lock();
        queue.check_open()?;
        if when_full == WhenFull::ReturnNone && queue.blocked > 0 {
            return Ok(None);
        }
        while !queue.pending.is_empty() && queue.pending.len() + bytes > self.config.queue_bytes_max {
            self.request_commit(&mut queue);
            if when_full == WhenFull::ReturnNone {
                return Ok(None);
            }
            count(&self.counters.full_queue_waits);
            queue.blocked += 1;
            turns::lend(|| self.space.wait(&mut queue));
            queue.blocked -= 1;
            queue.check_open()?;
        }
        Ok(Some(queue))
    }

    /// Sees to it that the WAL's thread commits. Whoever commits now looks again when it is done.
    fn request_commit(&self, queue: &mut Queue) {
        if queue.wants_commit() {
            self.wake();
        }
    }

    fn wake(&self) {
        self.work.notify_one();
    }

    fn archive_flushed(&self) {
        let mut queue = self.queue.lock();
        let files = queue.take_flushed();
        drop(queue);
        for file in files {
            self.archiver.archive(file);
        }
    }
}
