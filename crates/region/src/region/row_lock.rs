//! Row locks: shared for puts and deletes, exclusive for writes that read first.
//!
//! The locks are a table of fixed size, indexed by a hash of the row: no allocation, no map to
//! grow, no clean-up. Two rows may share a lock, which costs a wait but never correctness. A lock
//! is held while a write is prepared and applied, not while the WAL is synced. Several rows are
//! locked in the order of the table, so two writes cannot deadlock.

#![allow(clippy::indexing_slicing, reason = "indexes come from the lengths of the arrays")]

use evenkeel_common::clock;
use evenkeel_common::length;
use evenkeel_metrics::waits::{Cause, Timer};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::time::{Duration, Instant};

use evenkeel_common::{ErrorKind, HBaseError, Result, cpu_slot};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;

/// The number of locks of a region.
const LOCKS: usize = 512;

/// The mode of a row lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockMode {
    /// Held by any number of writes that do not read.
    Shared,
    /// Held by one write.
    Exclusive,
}

/// The row locks of one region.
pub struct RowLocks {
    locks: Box<[RwLock<()>]>,
    wait_max: Duration,
}

/// Held locks, released together.
pub struct RowGuard<'a> {
    _held: SmallVec<[HeldLock<'a>; 1]>,
}

enum HeldLock<'a> {
    Shared { _guard: RwLockReadGuard<'a, ()> },
    Exclusive { _guard: RwLockWriteGuard<'a, ()> },
}

impl RowLocks {
    /// Creates the locks. `wait_max` is `hbase.rowlock.wait.duration`.
    pub fn new(wait_max: Duration) -> Self {
        Self { locks: (0..LOCKS).map(|_| RwLock::new(())).collect(), wait_max }
    }

    /// Locks rows, given in any order.
    ///
    /// # Errors
    /// `RegionTooBusyException` if a lock is not free within `wait_max`.
    pub fn lock<'r>(&self, rows: impl Iterator<Item = &'r [u8]>, mode: LockMode) -> Result<RowGuard<'_>> {
        let mut slots: SmallVec<[usize; 1]> = rows.map(slot_of).collect();
        slots.sort_unstable();
        slots.dedup();
        let mut deadline = None;
        let held = slots
            .into_iter()
            .map(|slot| self.lock_slot(&self.locks[slot], mode, &mut deadline))
            .collect::<Result<_>>()?;
        Ok(RowGuard { _held: held })
    }

    /// As [`RowLocks::lock`], without waiting. Returns `None` if another write holds one of the
    /// locks.
    pub fn try_lock<'r>(&self, rows: impl Iterator<Item = &'r [u8]>, mode: LockMode) -> Option<RowGuard<'_>> {
        let mut slots: SmallVec<[usize; 1]> = rows.map(slot_of).collect();
        slots.sort_unstable();
        slots.dedup();
        let held = slots.into_iter().map(|slot| try_slot(&self.locks[slot], mode)).collect::<Option<_>>()?;
        Some(RowGuard { _held: held })
    }

    fn lock_slot<'l>(
        &self,
        lock: &'l RwLock<()>,
        mode: LockMode,
        deadline: &mut Option<Instant>,
    ) -> Result<HeldLock<'l>> {
        if let Some(held) = try_slot(lock, mode) {
            return Ok(held);
        }
        // The holder may wait until a write of this thread is durable.
        evenkeel_wal::wake_deferred();
        let deadline = *deadline.get_or_insert_with(|| clock::monotonic() + self.wait_max);
        let _timer = Timer::start(Cause::RowLock);
        let held = cpu_slot::release_and_requeue(|| match mode {
            LockMode::Shared => lock.try_read_until(deadline).map(|guard| HeldLock::Shared { _guard: guard }),
            LockMode::Exclusive => {
                lock.try_write_until(deadline).map(|guard| HeldLock::Exclusive { _guard: guard })
            }
        });
        held.ok_or_else(|| HBaseError::new(ErrorKind::RegionTooBusy, "Timed out waiting for a row lock"))
    }
}

fn try_slot(lock: &RwLock<()>, mode: LockMode) -> Option<HeldLock<'_>> {
    match mode {
        LockMode::Shared => lock.try_read().map(|guard| HeldLock::Shared { _guard: guard }),
        LockMode::Exclusive => lock.try_write().map(|guard| HeldLock::Exclusive { _guard: guard }),
    }
}

fn slot_of(row: &[u8]) -> usize {
    length::index(BuildHasherDefault::<DefaultHasher>::default().hash_one(row)) % LOCKS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one<'a>(locks: &'a RowLocks, row: &[u8], mode: LockMode) -> Result<RowGuard<'a>> {
        locks.lock(std::iter::once(row), mode)
    }

    #[test]
    fn shared_locks_coexist_and_exclusive_locks_exclude() {
        let locks = RowLocks::new(Duration::from_millis(1));
        let shared = one(&locks, b"r", LockMode::Shared).expect("free");
        assert!(one(&locks, b"r", LockMode::Shared).is_ok());
        let refused = one(&locks, b"r", LockMode::Exclusive).err().expect("held");
        assert_eq!(refused.kind(), ErrorKind::RegionTooBusy);
        let try_one = |mode| locks.try_lock(std::iter::once(&b"r"[..]), mode);
        assert!(try_one(LockMode::Shared).is_some() && try_one(LockMode::Exclusive).is_none());
        drop(shared);
        let _alone = one(&locks, b"r", LockMode::Exclusive).expect("free again");
        assert!(one(&locks, b"r", LockMode::Shared).is_err());
        assert!(try_one(LockMode::Shared).is_none());
    }

    #[test]
    fn the_same_row_twice_is_locked_once() {
        let locks = RowLocks::new(Duration::from_millis(1));
        let rows = [&b"b"[..], b"a", b"b"];
        assert!(locks.lock(rows.into_iter(), LockMode::Exclusive).is_ok());
    }
}
