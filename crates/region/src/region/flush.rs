//! Flushes: write the MemStores' cells to store files.
//!
//! A flush writes the stores of its region that a client names, or all; in the background, those
//! that its `policy` selects.
//!
//! ```text
//! updates lock exclusive:  take a sequence id | FLUSH start | freeze the stores' segments
//! then, no lock:           wait until every write up to that id is durable and visible
//!                          write a file a store, below .tmp
//!                          write to the log, which fails if this server was declared dead
//!                          rename into place | the stores' trackers list the files, durably
//! epoch odd:               swap file lists | drop snapshots
//! then:                    FLUSH commit | notify the WAL which edits need no replay
//! ```
//! A flush while the region opens logs no markers, because the region's log has not begun. A
//! failure before the renames leaves the snapshots in place: they stay readable and are part of the
//! next flush of their stores.
//!
//! **Stores that are not flushed** keep their edits in memory and in the log, which counts
//! unflushed edits per family. Every edit of a flushed store up to the flush's sequence id is in
//! its files; of the region, only every edit below the first unflushed one of the other stores
//! ([`Region::max_flushed_seq_id`]).
//!
//! | module | contents |
//! |---|---|
//! | `in_memory` | in-memory flushes |
//! | `policy` | which stores a flush in the background writes |

pub(super) mod in_memory;
pub(super) mod policy;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use evenkeel_common::thread::catch;
use evenkeel_common::{Result, clock, length};
use evenkeel_metrics::activity::{self, ActivityKind};
use evenkeel_protocol::pb::flush_descriptor::FlushAction;
use evenkeel_wal::Txid;
use parking_lot::{Mutex, MutexGuard};

use super::abort_on_panic::AbortOnPanic;
use super::replica_stream::FileChange;
use super::{Phase, Region, RegionCount};
use crate::memstore::MemStoreSize;
use crate::metrics::FlushEnd;
use crate::store::{BackgroundPriority, CountedFiles, Store, StoreFile};

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

    /// Returns the lock if it is free.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, ()>> {
        self.lock.try_lock()
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
        self.flush_with(&[], None)
    }

    /// As [`Region::flush`], for the MemStores of some families only; of all if none is named.
    /// Families that the table does not have are ignored.
    ///
    /// # Errors
    /// As [`Region::flush`].
    pub fn flush_families(self: &Arc<Self>, families: &[Bytes]) -> Result<FlushOutcome> {
        self.flush_with(families, None)
    }

    /// Counts the files of a flush that a client requests, until the value is dropped.
    ///
    /// # Errors
    /// `RegionTooBusyException` if too many store files are open.
    pub fn admit_flush(&self) -> Result<CountedFiles> {
        let files = if self.is_memstore_empty() { 0 } else { self.stores.len() };
        self.env.stores.open_files.admit(files)
    }

    /// Writes the MemStores of the stores that the table's policy selects, or that
    /// [`Region::require_flush`] names. Yields the processors until a caller waits for the memory
    /// or for the end of the flush.
    ///
    /// # Errors
    /// As [`Region::flush`].
    pub fn flush_in_background(self: &Arc<Self>, priority: &dyn BackgroundPriority) -> Result<FlushOutcome> {
        self.flush_with(&[], Some(priority))
    }

    fn flush_with(
        self: &Arc<Self>,
        families: &[Bytes],
        priority: Option<&dyn BackgroundPriority>,
    ) -> Result<FlushOutcome> {
        if !self.info.is_primary() {
            self.check_serving()?;
            return Ok(FlushOutcome { flushed: false, seq_id: self.max_flushed_seq_id() });
        }
        let _one = match priority {
            Some(_) => self.flushing.lock_in_turn(),
            None => self.flushing.lock(),
        };
        if *self.updates.read() == Phase::Closed {
            return Err(self.not_serving());
        }
        let Some(priority) = priority else {
            return self.flush_stores(&self.stores_of(families), FlushSeqId::Next, None);
        };
        let until_awaited = PriorityUntilAwaited { priority, lock: &self.flushing };
        self.flush_stores(&self.select_stores(), FlushSeqId::Next, Some(&until_awaited))
    }

    /// Returns the stores of some families, or of all if none is named.
    fn stores_of(&self, families: &[Bytes]) -> Vec<Arc<Store>> {
        let is_named = |store: &&Arc<Store>| families.iter().any(|name| name == store.family().name());
        self.stores.iter().filter(|store| families.is_empty() || is_named(store)).cloned().collect()
    }

    /// As [`Region::flush`], for a caller that holds the flush lock.
    pub(super) fn flush_locked(self: &Arc<Self>, number: FlushSeqId) -> Result<FlushOutcome> {
        self.flush_stores(&self.stores, number, None)
    }

    /// Flushes some stores, for a caller that holds the flush lock.
    fn flush_stores(
        self: &Arc<Self>,
        stores: &[Arc<Store>],
        number: FlushSeqId,
        priority: Option<&dyn BackgroundPriority>,
    ) -> Result<FlushOutcome> {
        if are_memstores_empty(stores) {
            if let Some(seq_id) = self.mark_flushed(stores) {
                self.stream_files(seq_id, Vec::new);
                self.announce_files();
            }
            return Ok(FlushOutcome { flushed: false, seq_id: self.max_flushed_seq_id() });
        }
        let _unless_done = AbortOnPanic(self);
        let started = clock::monotonic();
        let activity = activity::begin(ActivityKind::Flush, self.info.name_text());
        let snapshot = self.take_snapshots(stores, number);
        let seq_id = snapshot.seq_id;
        self.mvcc.wait_for(seq_id);
        let size: MemStoreSize = stores.iter().map(|store| store.snapshot_size()).sum();
        let MemStoreSize { cells, heap_bytes, data_bytes: memstore_bytes } = size;
        let write = || {
            let files = snapshot.write(self.mvcc.read_point(), priority)?;
            self.check_log_of_flush(&snapshot)?;
            snapshot.install(files)
        };
        match catch(format_args!("the flush of {}", self.info.encoded_name()), write) {
            Ok(files) => {
                let output_bytes = files.iter().flatten().map(|file| file.bytes()).sum();
                self.commit_snapshots(&snapshot, files);
                self.announce_files();
                let took = clock::since(started);
                self.count_flush(&FlushEnd { took, cells, memstore_bytes, output_bytes });
                let (ms, stores) = (length::whole_ms(took), stores.len());
                tracing::info!(region = %self.info.name_text(), seq_id, ms, stores, cells, heap_bytes, "flushed");
                Ok(FlushOutcome { flushed: true, seq_id: snapshot.region_seq_id })
            }
            Err(error) => {
                activity.fail(&error);
                tracing::error!(region = %self.info.name_text(), seq_id, %error, "flush failed; cells stay in memory");
                self.abort_snapshots(&snapshot);
                // The log may have asked for a flush of these stores while they were flushed.
                self.require_flush(&family_names(stores));
                Err(error)
            }
        }
    }

    /// Fails if the log of this flush has failed permanently. While the region opens its log has
    /// not begun, and the sequence id is that of a replayed edit, which belongs to no other edit.
    fn check_log_of_flush(&self, snapshot: &Snapshot<'_>) -> Result<()> {
        if snapshot.number == FlushSeqId::Current {
            return Ok(());
        }
        let Snapshot { stores, seq_id, marked, .. } = snapshot;
        self.check_log(*marked, |_| self.flush_marker(FlushAction::StartFlush, *seq_id, stores, &[]))
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
                self.check_log_without_flush()?;
                return Ok(seq_id);
            }
            let outcome = self.flush_locked(FlushSeqId::Next)?;
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

    /// Records, also in the log, that stores have no edit only in memory. A MemStore can be empty
    /// without a flush if an in-memory flush found all its cells expired. Returns the sequence id
    /// up to which the region's edits are in files, if none is only in memory.
    fn mark_flushed(&self, stores: &[Arc<Store>]) -> Option<u64> {
        let _updates = self.updates.write();
        if are_memstores_empty(stores) {
            let families = family_names(stores);
            self.env.wal.start_flush(&self.encoded_name, &families);
            self.env.wal.complete_flush(&self.encoded_name, &families, self.mvcc.write_point());
            for store in stores {
                store.take_oldest_edit_ms();
            }
        }
        let seq_id = self.is_memstore_empty().then(|| self.flushed_seq_id())?;
        self.stream_flush(seq_id, true, &[]);
        Some(seq_id)
    }

    fn is_memstore_empty(&self) -> bool {
        are_memstores_empty(&self.stores)
    }

    /// Freezes the segments of the stores' MemStores.
    fn take_snapshots<'a>(&self, stores: &'a [Arc<Store>], number: FlushSeqId) -> Snapshot<'a> {
        let _updates = self.updates.write();
        let families = family_names(stores);
        let first_of_others = self.env.wal.start_flush(&self.encoded_name, &families);
        self.forget_flush_requests(&families);
        let seq_id = match number {
            FlushSeqId::Next => self.mvcc.begin(|_| ()).0,
            FlushSeqId::Current => self.mvcc.write_point(),
        };
        let marked = match number {
            FlushSeqId::Next => self.log_flush(FlushAction::StartFlush, seq_id, stores, &[]),
            FlushSeqId::Current => None,
        };
        self.with_new_epoch(|| {
            for store in stores {
                store.start_flush();
            }
        });
        self.stream_flush(seq_id, stores.len() == self.stores.len(), &families);
        self.forget_unlogged();
        let oldest_edits_ms = stores.iter().map(|store| store.take_oldest_edit_ms()).collect();
        self.mvcc.complete(seq_id);
        let first_of_others = first_of_others.filter(|_| stores.len() < self.stores.len());
        let region_seq_id = first_of_others.map_or(seq_id, |first| seq_id.min(first.saturating_sub(1)));
        Snapshot { stores, number, marked, seq_id, region_seq_id, oldest_edits_ms }
    }

    /// Swaps the lists of all stores of the flush at once. It cannot fail.
    fn commit_snapshots(&self, snapshot: &Snapshot<'_>, files: Vec<Vec<Arc<StoreFile>>>) {
        let Snapshot { stores, seq_id, .. } = *snapshot;
        let swap = || stores.iter().zip(files).map(|(store, files)| store.swap_flush(files)).collect();
        let names: Vec<Vec<String>> = self.with_new_epoch_then(swap, |names: &Vec<_>| {
            self.stream_files(snapshot.region_seq_id, || vec![snapshot.change(names)]);
        });
        self.first_flush_jitter_bytes.store(0, Ordering::Relaxed);
        self.max_flushed_seq_id.store(snapshot.region_seq_id, Ordering::Relaxed);
        self.last_flush_seq_id.store(seq_id, Ordering::Relaxed);
        if snapshot.number == FlushSeqId::Next {
            self.log_flush(FlushAction::CommitFlush, seq_id, stores, &names);
        }
        self.env.wal.complete_flush(&self.encoded_name, &family_names(stores), seq_id);
    }

    fn abort_snapshots(&self, snapshot: &Snapshot<'_>) {
        snapshot.stores.iter().for_each(|s| s.abort_flush());
        if snapshot.number == FlushSeqId::Next {
            self.log_flush(FlushAction::AbortFlush, snapshot.seq_id, snapshot.stores, &[]);
        }
        self.env.wal.abort_flush(&self.encoded_name);
        for (store, oldest_ms) in snapshot.stores.iter().zip(&snapshot.oldest_edits_ms) {
            store.restore_oldest_edit_ms(*oldest_ms);
        }
    }
}

/// The frozen segments of a flush.
struct Snapshot<'a> {
    stores: &'a [Arc<Store>],
    number: FlushSeqId,
    /// The flush's first marker, if it could be logged.
    marked: Option<Txid>,
    /// Every edit of the stores up to here is in the segments.
    seq_id: u64,
    /// Every edit of the region up to here is in the segments or in files.
    region_seq_id: u64,
    /// For each store, when the oldest edit in its segments was made.
    oldest_edits_ms: Vec<i64>,
}

impl Snapshot<'_> {
    /// Writes the files.
    fn write(&self, read_point: u64, priority: Option<&dyn BackgroundPriority>) -> Result<FlushedFiles> {
        self.stores.iter().map(|store| store.flush_snapshot(self.seq_id, read_point, priority)).collect()
    }

    /// The change of store files, once they are served.
    fn change(&self, names: &[Vec<String>]) -> FileChange {
        let files = family_names(self.stores).into_iter().zip(names.iter().cloned()).collect();
        FileChange::Flushed { seq_id: self.seq_id, files }
    }

    /// Moves the files into place.
    fn install(&self, files: FlushedFiles) -> Result<Vec<Vec<Arc<StoreFile>>>> {
        self.stores.iter().zip(files).map(|(store, files)| store.install_flush(&files)).collect()
    }
}

fn are_memstores_empty(stores: &[Arc<Store>]) -> bool {
    stores.iter().all(|store| store.memstore_size().cells == 0)
}

fn family_names(stores: &[Arc<Store>]) -> Vec<Bytes> {
    stores.iter().map(|store| Bytes::copy_from_slice(store.family().name())).collect()
}
