//! Flushes: write the MemStore's cells to store files.
//!
//! ```text
//! updates lock exclusive:  take a sequence id | FLUSH start | freeze every MemStore's segments
//! then, no lock:           wait until every write up to that id is durable and visible
//!                          write a file a store, below .tmp
//! epoch odd:               rename into place | swap file lists | drop snapshots
//! then:                    FLUSH commit | notify the WAL which edits need no replay
//! ```
//! A flush while the region opens logs no markers, because the region's log has not begun. A
//! failure before the renames leaves the snapshots in place: they stay readable and are part of the
//! next flush.

pub(super) mod in_memory;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use evenkeel_common::thread::catch;
use evenkeel_common::{Result, clock, length};
use evenkeel_metrics::activity::{self, ActivityKind};
use evenkeel_protocol::pb::flush_descriptor::FlushAction;
use parking_lot::{Mutex, MutexGuard};

use super::abort_on_panic::AbortOnPanic;
use super::{Phase, Region, RegionCount};
use crate::memstore::MemStoreSize;
use crate::metrics::FlushEnd;
use crate::store::{BackgroundPriority, CountedFiles, StoreFile};

/// The files of each store's snapshot, below `.tmp`.
type FlushedFiles = Vec<Vec<PathBuf>>;

/// The sequence id that a flush writes into its files as "every edit up to here".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushSeqId {
    /// A new one, after all writes so far.
    Next,
    /// The last one replayed. The next edit may already have the following number.
    Current,
}

/// The result of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushOutcome {
    /// False if there was nothing to flush.
    pub flushed: bool,
    /// The sequence id up to which every edit is in store files.
    pub seq_id: u64,
}

/// Serialises the flushes of a region, and counts the callers that wait for it.
#[derive(Debug, Default)]
pub(super) struct FlushLock {
    lock: Mutex<()>,
    waiting: AtomicUsize,
}

impl FlushLock {
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let guard = self.lock.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// As [`FlushLock::lock`], but does not count as waiting: a flusher that took the region's next
    /// flush while another one runs is not urgent.
    fn lock_in_turn(&self) -> MutexGuard<'_, ()> {
        self.lock.lock()
    }

    pub(super) fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

/// A background priority that ends when a close, a bulk load or a user waits for the flush.
struct PriorityUntilAwaited<'a> {
    priority: &'a dyn BackgroundPriority,
    lock: &'a FlushLock,
}

impl BackgroundPriority for PriorityUntilAwaited<'_> {
    fn is_urgent(&self) -> bool {
        self.lock.is_awaited() || self.priority.is_urgent()
    }

    fn lower_priority(&self) {
        self.priority.lower_priority();
    }

    fn throttle(&self, bytes: u64, is_urgent: &dyn Fn() -> bool) {
        self.priority.throttle(bytes, is_urgent);
    }
}

impl Region {
    /// Writes everything in the MemStore to files. Blocks on the disk.
    ///
    /// # Errors
    /// `NotServingRegionException`, and `IOException` from the file system; no cell is lost then.
    pub fn flush(self: &Arc<Self>) -> Result<FlushOutcome> {
        self.flush_with(None)
    }

    /// Counts the files of a flush that a client requests, until the value is dropped.
    ///
    /// # Errors
    /// `RegionTooBusyException` if too many store files are open.
    pub fn admit_flush(&self) -> Result<CountedFiles> {
        let files = if self.is_memstore_empty() { 0 } else { self.stores.len() };
        self.env.stores.open_files.admit(files)
    }

    /// As [`Region::flush`], but yields the processors until a caller waits for the memory or for
    /// the end of the flush.
    ///
    /// # Errors
    /// As [`Region::flush`].
    pub fn flush_in_background(self: &Arc<Self>, priority: &dyn BackgroundPriority) -> Result<FlushOutcome> {
        self.flush_with(Some(priority))
    }

    fn flush_with(self: &Arc<Self>, priority: Option<&dyn BackgroundPriority>) -> Result<FlushOutcome> {
        let _one = match priority {
            Some(_) => self.flushing.lock_in_turn(),
            None => self.flushing.lock(),
        };
        if *self.updates.read() == Phase::Closed {
            return Err(self.not_serving());
        }
        let until_awaited = priority.map(|priority| PriorityUntilAwaited { priority, lock: &self.flushing });
        self.flush_locked(
            FlushSeqId::Next,
            until_awaited.as_ref().map(|priority| priority as &dyn BackgroundPriority),
        )
    }

    /// As [`Region::flush`], for a caller that holds the flush lock.
    pub(super) fn flush_locked(
        self: &Arc<Self>,
        number: FlushSeqId,
        priority: Option<&dyn BackgroundPriority>,
    ) -> Result<FlushOutcome> {
        if self.is_memstore_empty() {
            self.mark_all_flushed();
            return Ok(FlushOutcome { flushed: false, seq_id: self.max_flushed_seq_id() });
        }
        let _unless_done = AbortOnPanic(self);
        let started = clock::monotonic();
        let activity = activity::begin(ActivityKind::Flush, self.info.name_text());
        let (seq_id, oldest_edit_ms) = self.take_snapshots(number);
        self.mvcc.wait_for(seq_id);
        let size: MemStoreSize = self.stores.iter().map(|store| store.snapshot_size()).sum();
        let MemStoreSize { cells, heap_bytes, data_bytes: memstore_bytes } = size;
        let write = || self.write_snapshots(seq_id, priority).and_then(|files| self.install_snapshots(files));
        match catch(format_args!("the flush of {}", self.info.encoded_name()), write) {
            Ok(files) => {
                let output_bytes = files.iter().flatten().map(|file| file.bytes()).sum();
                self.commit_snapshots(seq_id, files, number);
                let took = clock::since(started);
                self.count_flush(&FlushEnd { took, cells, memstore_bytes, output_bytes });
                let ms = length::whole_ms(took);
                tracing::info!(region = %self.info.name_text(), seq_id, ms, cells, heap_bytes, "flushed");
                Ok(FlushOutcome { flushed: true, seq_id })
            }
            Err(error) => {
                activity.fail(&error);
                tracing::error!(region = %self.info.name_text(), seq_id, %error, "flush failed; cells stay in memory");
                self.abort_snapshots(seq_id, number);
                self.oldest_edit_ms.fetch_min(oldest_edit_ms, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    fn count_flush(&self, end: &FlushEnd) {
        self.counts.add(RegionCount::Flushes, 1);
        self.metrics.flushed(end);
        self.env.stores.metrics.server().flushed(end);
    }

    /// Flushes the MemStore and returns a sequence id that no edit has: every edit below it is in
    /// store files, every edit above it came later. The caller holds the flush lock.
    pub(super) fn flush_at_barrier(self: &Arc<Self>) -> Result<u64> {
        loop {
            if let Some(seq_id) = self.seq_id_if_empty() {
                self.mvcc.wait_for(seq_id);
                return Ok(seq_id);
            }
            let outcome = self.flush_locked(FlushSeqId::Next, None)?;
            if outcome.flushed {
                return Ok(outcome.seq_id);
            }
        }
    }

    /// Returns a new sequence id, if no edit is in the MemStore.
    fn seq_id_if_empty(&self) -> Option<u64> {
        let _updates = self.updates.write();
        self.is_memstore_empty().then(|| {
            let (seq_id, ()) = self.mvcc.begin(|_| ());
            self.mvcc.complete(seq_id);
            seq_id
        })
    }

    /// Records, also in the log, that the region has no edit only in memory. The MemStore can be
    /// empty without a flush if an in-memory flush found all its cells expired.
    fn mark_all_flushed(&self) {
        let _updates = self.updates.write();
        if self.is_memstore_empty() {
            let families = self.family_names();
            self.env.wal.start_flush(&self.encoded_name, &families);
            self.env.wal.complete_flush(&self.encoded_name, &families, self.mvcc.write_point());
            self.oldest_edit_ms.store(i64::MAX, Ordering::Relaxed);
        }
    }

    fn is_memstore_empty(&self) -> bool {
        self.stores.iter().all(|s| s.memstore_size().cells == 0)
    }

    fn family_names(&self) -> Vec<Bytes> {
        self.stores.iter().map(|s| s.family().name().to_vec().into()).collect()
    }

    /// Freezes every MemStore's segments. Returns the flush's sequence id, and when the oldest edit
    /// in the snapshots was made.
    fn take_snapshots(&self, number: FlushSeqId) -> (u64, i64) {
        let _updates = self.updates.write();
        self.env.wal.start_flush(&self.encoded_name, &self.family_names());
        let seq_id = match number {
            FlushSeqId::Next => self.mvcc.begin(|_| ()).0,
            FlushSeqId::Current => self.mvcc.write_point(),
        };
        if number == FlushSeqId::Next {
            self.log_flush(FlushAction::StartFlush, seq_id, &[]);
        }
        self.with_new_epoch(|| {
            for store in &self.stores {
                store.start_flush();
            }
        });
        self.forget_unlogged();
        let oldest_edit_ms = self.oldest_edit_ms.swap(i64::MAX, Ordering::Relaxed);
        self.mvcc.complete(seq_id);
        (seq_id, oldest_edit_ms)
    }

    fn write_snapshots(
        &self,
        seq_id: u64,
        priority: Option<&dyn BackgroundPriority>,
    ) -> Result<FlushedFiles> {
        let read_point = self.mvcc.read_point();
        self.stores.iter().map(|store| store.flush_snapshot(seq_id, read_point, priority)).collect()
    }

    /// Swaps every store's lists at once. It cannot fail.
    fn commit_snapshots(&self, seq_id: u64, files: Vec<Vec<Arc<StoreFile>>>, number: FlushSeqId) {
        let swap = || self.stores.iter().zip(files).map(|(store, files)| store.swap_flush(files)).collect();
        let names: Vec<Vec<String>> = self.with_new_epoch(swap);
        self.first_flush_jitter_bytes.store(0, Ordering::Relaxed);
        self.max_flushed_seq_id.store(seq_id, Ordering::Relaxed);
        if number == FlushSeqId::Next {
            self.log_flush(FlushAction::CommitFlush, seq_id, &names);
        }
        self.env.wal.complete_flush(&self.encoded_name, &self.family_names(), seq_id);
    }

    fn abort_snapshots(&self, seq_id: u64, number: FlushSeqId) {
        self.stores.iter().for_each(|s| s.abort_flush());
        if number == FlushSeqId::Next {
            self.log_flush(FlushAction::AbortFlush, seq_id, &[]);
        }
        self.env.wal.abort_flush(&self.encoded_name);
    }

    /// Moves the files into place.
    fn install_snapshots(&self, files: FlushedFiles) -> Result<Vec<Vec<Arc<StoreFile>>>> {
        self.stores.iter().zip(files).map(|(store, files)| store.install_flush(&files)).collect()
    }
}
