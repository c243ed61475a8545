//! The write path: [`Wal`].
//!
//! # Group commit
//!
//! [`Wal::append`] encodes its entry in a thread-local buffer, copies the bytes to the end of one
//! pending buffer, under one short lock, and returns a [`Txid`]. The order of appends is the order
//! in the file. The thread that **commits** takes the whole buffer, appends it to the file in one
//! write, flushes, syncs if a waiter requires it, and then runs the callback of every entry that
//! the commit made durable. Meanwhile other threads fill the second buffer: a slower disk makes
//! larger batches, and no thread waits for a batch to fill.
//!
//! The WAL's thread commits. It sleeps while no thread waits for an entry, and consecutive writes
//! of one thread wake it once ([`wakeup`]). A thread in [`Wal::sync`] may commit in its place if
//! the file is idle ([`WalConfig::inline_sync`]): the entry is then on disk after one write and no
//! context switch. `Queue::writing` is set while a thread commits; that thread owns the `Output`.
//!
//! # Failures
//!
//! If a write or flush fails, the file is truncated to the end of the last batch that was flushed
//! completely, and the batch is written to a new file. Only if the new file fails, too, do the
//! waiting syncs fail. No waiter gets a success for an entry that is not durable, and an entry
//! whose sync failed is in neither file: the new one is truncated and deleted. So an entry that was
//! reported as failed is not replayed, with three exceptions: the storage rejects the truncation as
//! well as the write, and the process dies before the truncation can be retried; the file system
//! does not support [`truncate`](evenkeel_fs::AppendFile::truncate); or the process dies between
//! the failed write and the truncation, when no result was reported yet. Then a part of the batch
//! may follow the last flushed one, and its complete entries are replayed, like all complete
//! entries that were not acknowledged before a crash.
//!
//! If a sync fails, the flushed entries stay in the file, because writers that only wait for a
//! flush were acknowledged. The batch is also written to a new file, so its entries are in two
//! files under one sequence id, which replay applies once. The failed file is never synced again,
//! and the stores of entries that were only flushed to it are asked to flush. The same applies to
//! the last sync of a rolled file, whose result is handled within a [`CHECK_PERIOD`].
//!
//! While no file can be written (no space left, I/O errors, a read-only file system), the waiting
//! syncs get that error, and every later commit tries a new file. Until one succeeds all writes are
//! rejected with the reason, including those that do not wait. Writes that were acknowledged
//! without waiting just before are in MemStores only, so all stores are asked to flush once a file
//! can be written again. Only if the directory is gone, because a master has renamed it, does the
//! WAL **fail** permanently and call [`WalListener::abort`].
//!
//! A commit that panics fails the log permanently, on whichever thread it runs, because the written
//! bytes are unknown. So does the end of the log's thread. All waiters are completed with an error,
//! and [`WalListener::abort`] is called.
//!
//! On HDFS a flush goes to all DataNodes of a file, and a file breaks as soon as one of them fails.
//! Bytes flushed before are on the other DataNodes, so no store needs a flush: the batch is written
//! to a new file, without that DataNode, and the broken file is closed by lease recovery in the
//! background. A batch whose waiters all require a sync is sent in packets that also sync, because
//! a flush and then a sync would be two round trips. A thread in [`Wal::sync`] never commits itself
//! there. A file that breaks while it is idle is rolled within a [`CHECK_PERIOD`], and one that
//! fewer DataNodes have than requested is rolled after a minute ([`output`]).
//!
//! A failed batch leaves a range of transaction ids that can never be synced; a later sync for one
//! of them gets the error, too.
//!
//! # Rolling and archiving
//!
//! After a commit the committing thread starts a new file if the current one is too long, too old,
//! too slow ([`slow_sync`]) or has too few replicas, or on request. Writers wait meanwhile, so the
//! file after one that reaches its length is created ahead, and on HDFS every next file
//! ([`output`]). The archiver's thread writes the old file's
//! trailer and syncs it, moves files that are no longer needed to the archive, and creates the next
//! one. [`accounting`] determines which files are needed.
//!
//! # A disk that does not answer
//!
//! A sync that fails is handled as above. A sync that does not return is detected by a separate
//! thread, which logs it and fails the log after [`WalConfig::sync_timeout`], as HBase does
//! ([`watchdog`]).
//!
//! # Locks, and bounds
//!
//! Lock order: `output` before `queue`. Callbacks and the listener run without `queue` but while
//! `output` is held, so they must not wait for a sync or a roll.
//!
//! Memory: two buffers, which are lists of segments of 1 MiB so that growing copies little; one is
//! being filled and one being written, each of at most [`WalConfig::queue_bytes_max`] or one longer
//! entry; with compression, a buffer of the compressed entries of a batch; and each thread's buffer
//! for encoding an entry, of which it keeps at most [`ENTRY_BYTES_KEPT`] bytes.
//! [`WalStats::queue_bytes`] is the size of the two buffers, and [`WalStats::queue_bytes_peak`] its
//! maximum. An entry longer than a buffer is written alone, and its buffer is freed.

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
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_common::clock::{self, Clock};
use evenkeel_common::thread::{Supervisor, spawn_essential};
use evenkeel_common::{CellRef, ErrorKind, HBaseError, KeyValue, Result, TableName, cpu_slot};
use evenkeel_fs::FileSystem;
use evenkeel_metrics::waits::{self, Cause};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::config::{WalConfig, WalListener};
use crate::entry::{WalEntry, WalKey};
use crate::format::encode;
use crate::metrics::{TableAppends, WalMetrics};
use archiver::Archiver;
use output::Output;
pub use queue::OnSynced;
use queue::{AppendCompletion, Queue, Waiter};
pub use wakeup::{WakeBatch, wake_deferred};
use watchdog::SyncWatchdog;

/// How long [`Wal::write_failure`] reports an attempt at which no file could be written.
const OBSTACLE_AGE_MAX: Duration = Duration::from_secs(30);

/// The position of an entry in the order of appends, across files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Txid(u64);

impl Txid {
    /// Creates it from its number. Only those that an append has returned mean anything.
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number: 1 for the first entry of a [`Wal`].
    pub fn get(self) -> u64 {
        self.0
    }
}

/// The durability of an entry that its writer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SyncLevel {
    /// The writer does not wait (`ASYNC_WAL`): the entry is written soon.
    None,
    /// The entry survives a crash of this process (`SYNC_WAL`, `hflush`). With [`WalConfig::hsync`]
    /// the same as [`SyncLevel::Sync`].
    Flush,
    /// The entry survives a crash of this machine (`FSYNC_WAL`, `hsync`).
    Sync,
}

/// The location and settings of a [`Wal`].
pub struct WalOptions {
    /// The file system of the WAL root.
    pub fs: Arc<dyn FileSystem>,
    /// `WALs/<server name>`. It must exist: a server creates it once, when it starts. A WAL never
    /// creates it, because a directory that a master has renamed must not come back.
    pub wal_dir: PathBuf,
    /// `oldWALs`.
    pub old_dir: PathBuf,
    /// The prefix of file names: [`crate::names::prefix`] or [`crate::names::meta_prefix`].
    pub prefix: String,
    /// The suffix of file names: empty, or [`crate::names::META_SUFFIX`].
    pub suffix: String,
    /// Settings.
    pub config: WalConfig,
    /// The clock for the names and the age of files.
    pub clock: Arc<dyn Clock>,
    /// Receives failures and requests for flushes.
    pub listener: Arc<dyn WalListener>,
}

/// Counters of a [`Wal`] since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalStats {
    /// Entries appended.
    pub entries: u64,
    /// Bytes of these entries.
    pub bytes: u64,
    /// Batches written.
    pub commits: u64,
    /// Batches written by a thread in [`Wal::sync`], among `commits`.
    pub inline_commits: u64,
    /// Syncs to the disk.
    pub syncs: u64,
    /// Commits whose writes and syncs took longer than [`WalConfig::slow_sync`].
    pub slow_syncs: u64,
    /// Commits that were in progress for longer than [`WalConfig::roll_on_sync`], whether they have
    /// ended or not.
    pub stuck_syncs: u64,
    /// Times that a new file was started.
    pub rolls: u64,
    /// Rolls that became due, by [`RollReason`].
    pub roll_requests: [u64; RollReason::COUNT],
    /// Writes, flushes and syncs that failed.
    pub failures: u64,
    /// Appends that had to wait for free capacity in the queue.
    pub full_queue_waits: u64,
    /// Bytes of the queue's buffers, including the one being written.
    pub queue_bytes: usize,
    /// The maximum of `queue_bytes`.
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
    roll_requests: [AtomicU64; RollReason::COUNT],
    failures: AtomicU64,
    full_queue_waits: AtomicU64,
}

/// Why a file is rolled, unless an operator requests it or it is old (`RollRequestReason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RollReason {
    /// It is too long.
    Size,
    /// Its syncs are too slow.
    SlowSync,
    /// A write, flush or sync failed.
    Error,
    /// Fewer DataNodes have it than were requested, or it has broken while it was idle.
    LowReplication,
}

impl RollReason {
    /// The number of reasons.
    pub const COUNT: usize = 4;
}

impl Counters {
    #[inline]
    fn request_roll(&self, reason: RollReason) {
        if let Some(counter) = self.roll_requests.get(reason as usize) {
            count(counter);
        }
    }
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
    /// The files are on other machines: see [`FileSystem::is_remote`].
    is_remote: bool,
    queue: Mutex<Queue>,
    /// The WAL's thread waits here for work.
    work: Condvar,
    /// Appends wait here for free capacity in the queue.
    capacity_freed: Condvar,
    /// Owned by the thread that set `Queue::writing`.
    output: Mutex<Output>,
    archiver: Archiver,
    listener: Arc<dyn WalListener>,
    counters: Counters,
    metrics: WalMetrics,
    watchdog: SyncWatchdog,
}

/// The behaviour of an append if the queue is full.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WhenFull {
    /// It waits for free capacity.
    Wait,
    /// It returns `None`.
    ReturnNone,
}

/// The longest time that an entry stays in memory if no thread waits for it, and the interval of
/// checks of a file's age.
const CHECK_PERIOD: Duration = Duration::from_millis(500);

/// The limit of the memory that a thread keeps for encoding entries.
const ENTRY_BYTES_KEPT: usize = 256 << 10;

thread_local! {
    /// The entry that this thread appends, encoded before the queue's lock is taken.
    static ENTRY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The pending bytes from which a commit is requested although no thread waits.
const COMMIT_BYTES: usize = 256 << 10;

impl Wal {
    /// Creates a new file in `wal_dir`, and starts the threads.
    ///
    /// # Errors
    /// `FileNotFoundException` if `wal_dir` does not exist; otherwise an `IOException` of the
    /// storage.
    pub fn open(options: WalOptions) -> Result<Arc<Self>> {
        let WalOptions { fs, wal_dir, old_dir, prefix, suffix, config, clock, listener } = options;
        let is_remote = fs.is_remote();
        let config = WalConfig { inline_sync: config.inline_sync && !is_remote, ..config };
        let output = Output::open(Arc::clone(&fs), wal_dir, prefix, suffix, clock, config.compression)?;
        let aborting = Arc::clone(&listener);
        let supervisor = Supervisor::new(move |death| aborting.abort(&death.to_string()));
        let archiver = Archiver::start(fs, old_dir, &supervisor)?;
        let shared = Arc::new(Shared {
            config,
            is_remote,
            queue: Mutex::new(Queue::default()),
            work: Condvar::new(),
            capacity_freed: Condvar::new(),
            output: Mutex::new(output),
            archiver,
            listener,
            counters: Counters::default(),
            metrics: WalMetrics::default(),
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

    /// Adds an entry to the end of the queue: the order of calls is the order in the file. The
    /// caller holds its region's append lock, so that the sequence ids of one region ascend.
    ///
    /// Does not wait for the disk unless [`WalConfig::queue_bytes_max`] bytes are pending.
    ///
    /// # Errors
    /// `IOException` if the WAL is closed or has failed; `DoNotRetryIOException` if the entry is
    /// longer than [`WalConfig::entry_bytes_max`].
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
        appended.ok_or_else(|| HBaseError::io("no space in the queue for an append that may wait"))
    }

    /// As [`Wal::append_cells`], but never waits: returns `None` if the queue has no capacity, or
    /// if other appends wait for capacity.
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
        queue.push(entry, self.shared.config.queue_bytes_max);
        queue.accounting.appended(key.region, key.seq_id, cells);
        let txid = queue.next_txid(entry.len());
        if queue.pending_bytes() > COMMIT_BYTES {
            self.shared.request_commit(&mut queue);
        }
        drop(queue);
        self.shared.metrics.appended(entry.len(), key.appends);
        Ok(Some(txid))
    }

    /// Calls `done` once, when all entries up to `txid` are durable at `level`, or can no longer
    /// become so. It runs on the committing thread, in order of transaction ids within a level, or
    /// immediately on this thread if there is nothing to wait for. It must be cheap and must not
    /// wait for the WAL.
    pub fn when_synced(&self, txid: Txid, level: SyncLevel, done: impl FnOnce(Result<()>) + Send + 'static) {
        self.notify_synced(txid, level, Box::new(done));
    }

    /// As [`Wal::when_synced`], for a callback that is boxed already.
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
                queue.waiters.push(Waiter { txid, level, completion: AppendCompletion::Callback(done) });
                let sleeps = queue.wants_commit();
                drop(queue);
                if sleeps {
                    wakeup::wake_or_defer(&self.shared);
                }
            }
        }
    }

    /// Waits until all entries up to `txid` are durable at `level`.
    ///
    /// # Errors
    /// `IOException` if they cannot become durable; the entry may or may not be in the log then.
    pub fn sync(&self, txid: Txid, level: SyncLevel) -> Result<()> {
        self.shared.sync(txid, level)
    }

    /// Returns what [`Wal::sync`] would return at once, without writing to the log; `None` if it
    /// would wait.
    pub fn settled(&self, txid: Txid, level: SyncLevel) -> Option<Result<()>> {
        let queue = self.shared.queue.lock();
        let level = self.shared.effective(&queue, level);
        queue.sync_result(txid, level)
    }

    /// Makes all entries up to `txid` durable at `level` on this thread, unless another thread
    /// commits; returns `None` then, and the caller uses [`Wal::when_synced`]. It is for a thread
    /// that may execute one write but must not wait for another thread's: at [`SyncLevel::Flush`]
    /// on a local disk it costs less than waking the WAL's thread. Callbacks of other writers may
    /// run in it, so the caller should hold no lock that they take.
    pub fn try_sync(&self, txid: Txid, level: SyncLevel) -> Option<Result<()>> {
        self.shared.try_sync(txid, level)
    }

    /// Starts a new file after all entries appended so far are in the old one. Waits for earlier
    /// rolled files if too many of them are not closed yet.
    ///
    /// # Errors
    /// `IOException` if no new file can be created; the old one stays in use if possible.
    pub fn roll(&self) -> Result<()> {
        if !self.shared.archiver.can_close_another() {
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

    /// Begins a flush of these families; the caller prevents appends of the region meanwhile.
    /// Returns the lowest unflushed sequence id of the region's other families, if any.
    pub fn start_flush(&self, region: &[u8], families: &[Bytes]) -> Option<u64> {
        self.shared.queue.lock().accounting.start_flush(region, families)
    }

    /// Completes a flush: every edit of these families up to `flushed_seq_id` is in store files.
    pub fn complete_flush(&self, region: &[u8], families: &[Bytes], flushed_seq_id: u64) {
        self.shared.queue.lock().accounting.complete_flush(region, families, flushed_seq_id);
        self.shared.archive_flushed();
    }

    /// Aborts a flush.
    pub fn abort_flush(&self, region: &[u8]) {
        self.shared.queue.lock().accounting.abort_flush(region);
    }

    /// Removes a region that is closed on this server, with everything flushed.
    pub fn region_closed(&self, region: &[u8]) {
        self.shared.queue.lock().accounting.region_closed(region);
        self.shared.archive_flushed();
    }

    /// The lowest sequence id of the region, or of one of its families, that is in no store file
    /// yet.
    pub fn lowest_unflushed(&self, region: &[u8], family: Option<&[u8]>) -> Option<u64> {
        let queue = self.shared.queue.lock();
        match family {
            Some(family) => queue.accounting.lowest_of(region, family),
            None => queue.accounting.lowest(region),
        }
    }

    /// The file being written, or the last one written.
    pub fn current_path(&self) -> PathBuf {
        self.shared.output.lock().path().to_owned()
    }

    /// Closed files that are not archived yet, oldest first.
    pub fn closed_paths(&self) -> Vec<PathBuf> {
        self.shared.queue.lock().closed.iter().map(|file| file.path.clone()).collect()
    }

    /// Waits until the archiver has executed all jobs so far.
    pub fn wait_for_archiver(&self) {
        self.shared.archiver.wait();
    }

    /// The number and the bytes of the files that are not archived: the closed ones, and among the
    /// number the one being written, as HBase counts (`getNumLogFiles`, `getLogFileSize`).
    pub fn live_files(&self) -> (usize, u64) {
        let queue = self.shared.queue.lock();
        (queue.closed.len() + 1, queue.closed.iter().map(|file| file.bytes).sum())
    }

    /// Times and sizes of appends and syncs.
    pub fn metrics(&self) -> &WalMetrics {
        &self.shared.metrics
    }

    /// The counts of a table's entries. A region takes them when it opens, and passes them with its
    /// appends.
    pub fn table_appends(&self, table: &TableName) -> Arc<TableAppends> {
        self.shared.metrics.of_table(table)
    }

    /// Returns why no write can be logged at present, in one line; `None` if writes can be logged.
    /// Either the log has failed, or no file could be written at an attempt in the last 30 s. Only
    /// the next write tries again, so an older result is not reported.
    pub fn write_failure(&self) -> Option<String> {
        let queue = self.shared.queue.lock();
        let is_new = |at: Instant| clock::monotonic().saturating_duration_since(at) < OBSTACLE_AGE_MAX;
        match queue.failure() {
            Some(failure) => Some(failure.message().to_owned()),
            None if queue.is_rejecting && queue.rejected_at.is_some_and(is_new) => {
                Some("no WAL file can be written".to_owned())
            }
            None => None,
        }
    }

    /// The counters.
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
            roll_requests: counters.roll_requests.each_ref().map(get),
            failures: get(&counters.failures),
            full_queue_waits: get(&counters.full_queue_waits),
            queue_bytes: queue.bytes(),
            queue_bytes_peak: queue.bytes_peak,
        }
    }

    /// Writes the pending entries and the trailer, syncs, and archives files that are no longer
    /// needed. Files with unflushed edits stay, for the master to split. Later appends and syncs
    /// fail. A second call does nothing.
    ///
    /// # Errors
    /// The `IOException` of the last writes of the file. `TimeoutIOException` if a sync does not
    /// return: the sync and the file are abandoned.
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
    /// As a crash, except that the threads end: unsynced entries may not be in the file. The last
    /// owner may be a callback on the WAL's thread, which then ends without being joined.
    fn drop(&mut self) {
        let thread = self.shared.begin_close(&self.thread).filter(|_| !self.shared.watchdog.has_timed_out());
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
        self.join_watchdog();
    }
}

impl Wal {
    /// Ends the watchdog, whose thread may be the last owner of the log: in a callback, or in the
    /// listener.
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
    /// The level that a writer has to wait for. While no file can be written, no entry is
    /// acknowledged before it is in the log.
    fn effective(&self, queue: &Queue, level: SyncLevel) -> SyncLevel {
        match level {
            SyncLevel::Flush if self.config.hsync => SyncLevel::Sync,
            SyncLevel::None if queue.is_rejecting => SyncLevel::Flush,
            _ => level,
        }
    }

    /// Locks the queue with capacity for `bytes`: an entry is added if the queue is empty or if it
    /// fits. `None` if that would wait.
    fn lock_with_room(&self, bytes: usize, when_full: WhenFull) -> Result<Option<MutexGuard<'_, Queue>>> {
        let mut queue = self.queue.lock();
        queue.check_open()?;
        if when_full == WhenFull::ReturnNone && queue.blocked > 0 {
            return Ok(None);
        }
        while !queue.is_empty() && !queue.has_capacity(bytes, self.config.queue_bytes_max) {
            self.request_commit(&mut queue);
            if when_full == WhenFull::ReturnNone {
                return Ok(None);
            }
            count(&self.counters.full_queue_waits);
            queue.blocked += 1;
            waits::time(Cause::LogQueue, || {
                cpu_slot::release_during(|| self.capacity_freed.wait(&mut queue))
            });
            queue.blocked -= 1;
            queue.check_open()?;
        }
        Ok(Some(queue))
    }

    /// Requests a commit by the WAL's thread. A thread that is committing checks again when it is
    /// done.
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
