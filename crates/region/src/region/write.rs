//! Writes.
//!
//! There are two paths. The *atomic* path takes any mutations, conditions and reads-before-writes:
//! all or nothing, with one write number and one WAL entry. The *batch* path takes independent puts
//! and deletes: each succeeds or fails independently, and those that succeed share one write number
//! and one WAL entry.
//!
//! # Waiting
//! A write may have to wait for a row's lock (behind a write that reads first and waits for the
//! disk), for the updates lock (behind a flush's swap or a close), for its turn to take a number,
//! and for space in the log's queue. A caller that must not wait uses [`Region::try_mutate`] and
//! [`Region::try_batch_mutate`]. If they would have to wait, they do nothing and return the write,
//! so that the caller can hand it to a thread that may wait. They do wait for locks that are held
//! only for a computation, but [within a budget](super::wait_budget). The other methods wait; for a
//! row that stays locked, they wait [here or elsewhere](row_lock_waiter).

mod atomic;
mod blocking;
mod pending_write;
mod prefetch;
mod prepare;
mod row_lock_waiter;

use std::sync::Arc;

use evenkeel_common::cell::ROW_BYTES_MAX;
use evenkeel_common::{
    CellBuffer, CellRef, Durability, ErrorKind, HBaseError, KeyValue, Result, TryError, Wait, cpu_slot,
};
use evenkeel_metrics::waits::{self, Cause};
use evenkeel_wal::{SyncLevel, Txid, WalKey};
use parking_lot::RwLockReadGuard;

pub use self::pending_write::BatchCompletion;
use self::pending_write::{Applied, PendingWrite, WriteResponder};
pub use self::prefetch::prefetch_write_positions;
use self::prepare::PreparedCells;
pub use self::row_lock_waiter::{LongWaitExecutor, RowLockWaiter};
use super::abort_on_panic::AbortOnPanic;
use super::nonce::NonceKey;
use super::row_lock::{LockMode, RowLockTimeout};
use super::{Phase, Region, RegionCount, wait_budget};
use crate::operations::{CheckAndMutateResult, Mutation, MutationKind, MutationResult};

/// Adding at least this many cells to the MemStore is timed.
const LARGE_CELLS_MIN: usize = 64;

/// The result of starting a write that must not wait.
#[must_use]
pub enum TryWriteResult<T> {
    /// The write was started or has failed; its completion reports the outcome.
    Started,
    /// The write would have to wait. Nothing was done; the write is returned.
    WouldWait(T),
}

/// A started write number. If it is dropped before all of its cells are in the MemStore, by an
/// error or a panic, the cells are hidden and the number is completed, because the region's
/// other writes wait for it.
struct StartedWrite<'a> {
    region: &'a Region,
    number: u64,
    cells: Vec<KeyValue>,
    is_applied: bool,
}

impl StartedWrite<'_> {
    fn add_to_memstores(&mut self) {
        for cell in &mut self.cells {
            cell.set_seq_id(self.number);
            if let Some(store) = self.region.store_of(cell.as_cell().family()) {
                store.add(&cell.as_cell());
                store.note_edit();
            }
        }
    }

    fn applied(mut self) -> Vec<KeyValue> {
        self.is_applied = true;
        std::mem::take(&mut self.cells)
    }
}

impl Drop for StartedWrite<'_> {
    fn drop(&mut self) {
        if !self.is_applied {
            // Cells without the number are not in the MemStore yet.
            self.cells.retain(|cell| cell.as_cell().seq_id() == self.number);
            self.region.hide_failed_cells(&self.cells);
            self.region.mvcc.complete(self.number);
        }
    }
}

impl Region {
    /// Makes independent puts and deletes.
    pub fn batch_mutate(
        self: &Arc<Self>,
        mutations: Vec<Mutation>,
        waits: RowLockWaiter<'_>,
        done: BatchCompletion,
    ) {
        let TryWriteResult::WouldWait((mutations, done)) = self.make_batch(mutations, done, waits.here())
        else {
            return;
        };
        match waits {
            RowLockWaiter::LongWaitThreads(threads) => {
                let region = Arc::clone(self);
                row_lock_waiter::run_on(threads, move || {
                    region.batch_mutate(mutations, RowLockWaiter::CallingThread, done)
                });
            }
            // A write that waits on this thread does not return `WouldWait`. If it did, that would
            // be an internal error, and each mutation needs an outcome.
            RowLockWaiter::CallingThread => {
                done(mutations.iter().map(|_| Err(TryError::WouldWait.into_failure())).collect());
            }
        }
    }

    /// As [`Region::batch_mutate`], but returns instead of waiting.
    pub fn try_batch_mutate(
        self: &Arc<Self>,
        mutations: Vec<Mutation>,
        done: BatchCompletion,
    ) -> TryWriteResult<(Vec<Mutation>, BatchCompletion)> {
        self.make_batch(mutations, done, RowLockTimeout::Never)
    }

    fn make_batch(
        self: &Arc<Self>,
        mutations: Vec<Mutation>,
        done: BatchCompletion,
        wait: RowLockTimeout,
    ) -> TryWriteResult<(Vec<Mutation>, BatchCompletion)> {
        let mut outcomes: Vec<_> =
            mutations.iter().map(|m| self.check_whole(m).map(|()| MutationResult::default())).collect();
        let writes = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        let applied = self.apply_batch(&mutations, &mut outcomes, wait);
        let applied = match applied {
            Ok(applied) => Ok(applied),
            Err(TryError::Failed(error)) => Err(error),
            Err(TryError::WouldWait | TryError::TimeSliceOver) => {
                return TryWriteResult::WouldWait((mutations, done));
            }
        };
        self.count_writes(writes as u64, &mutations);
        match applied {
            Ok(None) => done(outcomes),
            Ok(Some(applied)) => {
                if applied.logged.is_none() {
                    self.count_unlogged(writes, &applied.cells);
                }
                let (result, responder) =
                    (CheckAndMutateResult::default(), WriteResponder::Batch(outcomes, done));
                PendingWrite::new(self, applied, result, responder).start();
            }
            Err(error) => WriteResponder::Batch(outcomes, done).respond(Err(error)),
        }
        TryWriteResult::Started
    }

    fn apply_batch(
        self: &Arc<Self>,
        mutations: &[Mutation],
        outcomes: &mut [Result<MutationResult>],
        wait: RowLockTimeout,
    ) -> Result<Option<Applied>, TryError> {
        self.check_resources()?;
        let good = || mutations.iter().zip(outcomes.iter()).filter(|(_, o)| o.is_ok()).map(|(m, _)| m);
        let guard = self.row_locks.lock(good().map(|m| &m.row[..]), LockMode::Shared, wait)?;
        let wait = if wait == RowLockTimeout::Never { Wait::Never } else { Wait::Allowed };
        let now_ms = self.env.stores.clock.now_ms();
        let mut prepared = PreparedCells::of(mutations);
        let mut durability = Durability::SkipWal;
        for (mutation, outcome) in mutations.iter().zip(outcomes.iter_mut()).filter(|(_, o)| o.is_ok()) {
            match self.prepare(mutation, (now_ms, now_ms), &mut prepared, &mut CellBuffer::new()) {
                Ok(()) => durability = stronger(durability, self.durability_of(mutation)),
                Err(error) => *outcome = Err(error),
            }
        }
        let applied = if prepared.cells.is_empty() {
            None
        } else {
            Some(self.apply(prepared.cells, durability, NonceKey { group: 0, nonce: 0 }, wait)?)
        };
        drop(guard);
        Ok(applied)
    }

    fn wait_for_updates_lock(&self) -> RwLockReadGuard<'_, Phase> {
        let brief = self.updates.try_read_for(wait_budget::SHORT_WAIT_MAX);
        brief.unwrap_or_else(|| cpu_slot::release_during(|| self.updates.read()))
    }

    /// Takes a write number, appends the cells to the log and adds them to the MemStore.
    fn apply(
        self: &Arc<Self>,
        cells: Vec<KeyValue>,
        durability: Durability,
        nonce: NonceKey,
        wait: Wait,
    ) -> Result<Applied, TryError> {
        let level = sync_level(durability);
        let rows = self.row_cache.as_ref().map(|cache| cache.rows_of(&cells));
        let updates = match wait {
            Wait::Allowed => self
                .updates
                .try_read()
                .unwrap_or_else(|| waits::time(Cause::RegionLock, || self.wait_for_updates_lock())),
            Wait::Never => self
                .updates
                .try_read()
                .or_else(|| wait_budget::try_within_budget(|time| self.updates.try_read_for(time)))
                .ok_or(TryError::WouldWait)?,
        };
        if *updates != Phase::Open {
            return Err(self.not_serving().into());
        }
        let _unless_done = AbortOnPanic(self);
        let in_order = |number| {
            rows.iter().for_each(|rows| rows.record_write(number));
            let Some(level) = level else { return Ok(None) };
            let appended = self.append_to_log(number, cells.iter().map(KeyValue::as_cell), nonce, wait);
            appended.map(|txid| Some((txid, level)))
        };
        let (number, logged) = match wait {
            Wait::Allowed => self.mvcc.begin(in_order),
            Wait::Never => self.mvcc.try_begin(in_order).ok_or(TryError::WouldWait)?,
        };
        let mut begun = StartedWrite { region: self, number, cells, is_applied: false };
        let logged = logged?;
        let is_large = begun.cells.len() >= LARGE_CELLS_MIN;
        waits::time_if(is_large, Cause::MemStore, || begun.add_to_memstores());
        drop(updates);
        let suspended = rows.map(|rows| rows.suspend_entries(number, &begun.cells)).unwrap_or_default();
        // The cells of a running flush still count. Another request would only flush the few cells
        // written since it began.
        if self.needs_flush() && !self.is_flushing() {
            self.env.events.flush_wanted(self);
        }
        self.request_in_memory_flush();
        Ok(Applied { number, logged, cells: begun.applied(), suspended })
    }

    /// Hides cells whose log entry failed, before their number becomes visible.
    pub(super) fn hide_failed_cells(&self, cells: &[KeyValue]) {
        for cell in cells {
            if let Some(store) = self.store_of(cell.as_cell().family()) {
                store.hide_failed_cell(&cell.as_cell());
            }
        }
    }

    fn append_to_log<'a>(
        &self,
        seq_id: u64,
        cells: impl Iterator<Item = CellRef<'a>> + Clone,
        nonce: NonceKey,
        wait: Wait,
    ) -> Result<Txid, TryError> {
        match wait {
            Wait::Allowed => Ok(self.log(seq_id, cells, nonce)?),
            Wait::Never => {
                let appended = self.env.wal.try_append_cells(&self.wal_key(seq_id, nonce), cells)?;
                appended.ok_or(TryError::WouldWait)
            }
        }
    }

    fn wal_key(&self, seq_id: u64, nonce: NonceKey) -> WalKey<'_> {
        let now_ms = self.env.stores.clock.now_ms();
        let key = WalKey::new(&self.encoded_name, self.info.table(), seq_id, now_ms);
        WalKey { nonce_group: nonce.group, nonce: nonce.nonce, appends: Some(&self.appends), ..key }
    }

    /// Appends cells to the log's queue, as one entry.
    pub(super) fn log<'a>(
        &self,
        seq_id: u64,
        cells: impl Iterator<Item = CellRef<'a>> + Clone,
        nonce: NonceKey,
    ) -> Result<Txid> {
        self.env.wal.append_cells(&self.wal_key(seq_id, nonce), cells)
    }

    fn check_whole(&self, mutation: &Mutation) -> Result<()> {
        self.check_target(mutation)?;
        self.check_cells(mutation)
    }

    fn check_target(&self, mutation: &Mutation) -> Result<()> {
        if mutation.row.len() > ROW_BYTES_MAX {
            let len = mutation.row.len();
            return Err(HBaseError::do_not_retry(format!("Row length {len} is > {ROW_BYTES_MAX}")));
        }
        self.check_row(&mutation.row, "batchMutate")?;
        if self.is_read_only {
            return Err(HBaseError::do_not_retry("region is read only"));
        }
        Ok(())
    }

    /// Checks the cells of a mutation. Called only if the conditions hold, as in HBase.
    fn check_cells(&self, mutation: &Mutation) -> Result<()> {
        for cell in mutation.cells.iter().map(KeyValue::as_cell) {
            self.check_family(cell.family())?;
            cell.check()?;
        }
        Ok(())
    }

    /// Counts a write of `mutations`, of which `writes` succeed. Each kind counts once.
    fn count_writes(&self, writes: u64, mutations: &[Mutation]) {
        self.counts.add(RegionCount::Writes, writes);
        let mut counted = [false; 4];
        for mutation in mutations {
            let (at, count) = match mutation.kind {
                MutationKind::Put => (0, RegionCount::Puts),
                MutationKind::Delete => (1, RegionCount::Deletes),
                MutationKind::Increment => (2, RegionCount::Increments),
                MutationKind::Append => (3, RegionCount::Appends),
            };
            if counted.get_mut(at).is_some_and(|counted| !std::mem::replace(counted, true)) {
                self.counts.add(count, 1);
            }
        }
    }

    /// Counts mutations that skip the log.
    #[cold]
    fn count_unlogged(&self, mutations: usize, cells: &[KeyValue]) {
        let bytes = cells.iter().map(|cell| cell.as_cell().key_value_len() as u64).sum();
        self.counts.add(RegionCount::SkippedWal, mutations as u64);
        self.counts.add(RegionCount::UnloggedBytes, bytes);
    }

    fn check_resources(self: &Arc<Self>) -> Result<()> {
        let max = self.flush_bytes().saturating_mul(self.env.config.current_block_multiplier());
        if self.info.is_meta() || self.memstore_size().heap_bytes <= max {
            return Ok(());
        }
        self.counts.add(RegionCount::Blocked, 1);
        self.env.events.flush_wanted(self);
        let message = format!(
            "Over memstore limit={max}, regionName={}, server={}",
            self.info.encoded_name(),
            self.env.server
        );
        Err(HBaseError::new(ErrorKind::RegionTooBusy, message))
    }

    fn durability_of(&self, mutation: &Mutation) -> Durability {
        match mutation.durability {
            Durability::UseDefault => self.table.durability(),
            given => given,
        }
    }
}

/// Returns the stronger durability. `UseDefault` counts as sync here.
fn stronger(a: Durability, b: Durability) -> Durability {
    let rank = |d| match d {
        Durability::SkipWal => 0,
        Durability::AsyncWal => 1,
        Durability::UseDefault | Durability::SyncWal => 2,
        Durability::FsyncWal => 3,
    };
    if rank(b) > rank(a) { b } else { a }
}

fn sync_level(durability: Durability) -> Option<SyncLevel> {
    match durability {
        Durability::SkipWal => None,
        Durability::AsyncWal => Some(SyncLevel::None),
        Durability::SyncWal | Durability::UseDefault => Some(SyncLevel::Flush),
        Durability::FsyncWal => Some(SyncLevel::Sync),
    }
}
