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

use evenkeel_common::{ErrorKind, HBaseError, TryError, TryResult, cpu_slot};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;

/// The number of locks of a region.
const LOCKS: usize = 512;
/// How long a write waits on a thread that writes to other rows need. Ordinary writes hold a lock
/// for less, and the sync of a log on a fast disk takes less.
pub const BRIEF_WAIT: Duration = Duration::from_millis(10);

/// How long a write may wait for row locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowLockTimeout {
    /// It may not wait.
    Never,
    /// For [`BRIEF_WAIT`], all its locks together.
    Brief,
    /// For `hbase.rowlock.wait.duration`, all its locks together.
    Full,
}

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
    /// `WouldWait` if a lock is not free and `wait` is `Never`, or not free within [`BRIEF_WAIT`]
    /// and `wait` is `Brief`. `RegionTooBusyException` if a lock is not free within `wait_max`.
    pub fn lock<'r>(
        &self,
        rows: impl Iterator<Item = &'r [u8]>,
        mode: LockMode,
        wait: RowLockTimeout,
    ) -> TryResult<RowGuard<'_>> {
        let mut slots: SmallVec<[usize; 1]> = rows.map(slot_of).collect();
        slots.sort_unstable();
        slots.dedup();
        let mut deadline = None;
        let held = slots
            .into_iter()
            .map(|slot| self.lock_slot(&self.locks[slot], mode, wait, &mut deadline))
            .collect::<TryResult<_>>()?;
        Ok(RowGuard { _held: held })
    }

    fn lock_slot<'l>(
        &self,
        lock: &'l RwLock<()>,
        mode: LockMode,
        wait: RowLockTimeout,
        deadline: &mut Option<Instant>,
    ) -> TryResult<HeldLock<'l>> {
        if let Some(held) = try_slot(lock, mode) {
            return Ok(held);
        }
        let wait_max = match wait {
            RowLockTimeout::Never => return Err(TryError::WouldWait),
            RowLockTimeout::Brief => self.wait_max.min(BRIEF_WAIT),
            RowLockTimeout::Full => self.wait_max,
        };
        // The holder may wait until a write of this thread is durable.
        evenkeel_wal::wake_deferred();
        let deadline = *deadline.get_or_insert_with(|| clock::monotonic() + wait_max);
        let _timer = Timer::start(Cause::RowLock);
        let held = cpu_slot::release_and_requeue(|| match mode {
            LockMode::Shared => lock.try_read_until(deadline).map(|guard| HeldLock::Shared { _guard: guard }),
            LockMode::Exclusive => {
                lock.try_write_until(deadline).map(|guard| HeldLock::Exclusive { _guard: guard })
            }
        });
        held.ok_or_else(|| match wait {
            RowLockTimeout::Never | RowLockTimeout::Brief => TryError::WouldWait,
            RowLockTimeout::Full => {
                HBaseError::new(ErrorKind::RegionTooBusy, "Timed out waiting for a row lock").into()
            }
        })
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

    fn one<'a>(locks: &'a RowLocks, mode: LockMode, wait: RowLockTimeout) -> TryResult<RowGuard<'a>> {
        locks.lock(std::iter::once(&b"r"[..]), mode, wait)
    }

    /// Returns true if a write may neither lock the row immediately nor within its wait.
    fn is_locked(locks: &RowLocks, mode: LockMode) -> bool {
        let (never, full) = (one(locks, mode, RowLockTimeout::Never), one(locks, mode, RowLockTimeout::Full));
        assert_eq!(never.is_err(), full.is_err());
        matches!(never, Err(TryError::WouldWait))
            && matches!(full, Err(TryError::Failed(error)) if error.kind() == ErrorKind::RegionTooBusy)
    }

    #[test]
    fn shared_locks_coexist_and_exclusive_locks_exclude() {
        let locks = RowLocks::new(Duration::from_millis(1));
        let shared = one(&locks, LockMode::Shared, RowLockTimeout::Full).expect("free");
        assert!(!is_locked(&locks, LockMode::Shared) && is_locked(&locks, LockMode::Exclusive));
        drop(shared);
        let _alone = one(&locks, LockMode::Exclusive, RowLockTimeout::Full).expect("free again");
        assert!(is_locked(&locks, LockMode::Shared) && is_locked(&locks, LockMode::Exclusive));
    }

    #[test]
    fn a_brief_wait_ends_before_the_full_one() {
        let locks = RowLocks::new(Duration::from_secs(600));
        let _held = one(&locks, LockMode::Exclusive, RowLockTimeout::Full).expect("free");
        let began_at = clock::monotonic();
        for mode in [LockMode::Shared, LockMode::Exclusive] {
            assert!(matches!(one(&locks, mode, RowLockTimeout::Brief), Err(TryError::WouldWait)));
        }
        assert!(clock::since(began_at) >= 2 * BRIEF_WAIT);
    }

    #[test]
    fn the_same_row_twice_is_locked_once() {
        let locks = RowLocks::new(Duration::from_millis(1));
        let rows = [&b"b"[..], b"a", b"b"];
        assert!(locks.lock(rows.into_iter(), LockMode::Exclusive, RowLockTimeout::Full).is_ok());
    }
}
