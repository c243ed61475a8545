//! Byte and call budgets of the whole server, cheap to take from on every core.
//!
//! A [`Budget`] is one number shared by all connection threads. Each thread takes from it in chunks
//! through its own [`CoreBudget`], so that an ordinary call touches no shared cache line. At most
//! two chunks lie idle on each thread; a chunk is chosen so that all of them together are at most
//! an eighth of the whole.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Largest chunk a thread takes at once.
const CHUNK_MAX: u64 = 256 * 1024;

/// One limit of the whole server.
#[derive(Debug)]
pub struct Budget {
    max: u64,
    used: AtomicU64,
}

impl Budget {
    /// A budget of `max` units.
    pub fn new(max: u64) -> Arc<Self> {
        Arc::new(Budget { max, used: AtomicU64::new(0) })
    }

    /// Units taken, with those that lie idle on the threads.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Units that may be taken at all.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Units not taken; 0 when the limit was passed, which only [`Budget::add`] can do.
    pub fn free(&self) -> u64 {
        self.max.saturating_sub(self.used())
    }

    /// Takes `units` if they are there.
    pub fn take(&self, units: u64) -> bool {
        let within = |used: u64| used.checked_add(units).filter(|sum| *sum <= self.max);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
    }

    /// Takes `units` even beyond the limit.
    pub fn add(&self, units: u64) {
        self.used.fetch_add(units, Ordering::Relaxed);
    }

    /// Gives back what was taken.
    pub fn give(&self, units: u64) {
        let before = self.used.fetch_sub(units, Ordering::Relaxed);
        debug_assert!(before >= units, "gave back {units} of {before}");
    }
}

/// Units of a [`Budget`], given back when it is dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    units: u64,
}

impl Charge {
    /// No units of `budget` yet.
    pub fn none(budget: Arc<Budget>) -> Self {
        Charge { budget, units: 0 }
    }

    /// Takes further units, if they are there.
    pub fn take(&mut self, units: u64) -> bool {
        let taken = self.budget.take(units);
        self.units += if taken { units } else { 0 };
        taken
    }

    /// Units taken.
    pub fn units(&self) -> u64 {
        self.units
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.give(self.units);
    }
}

/// One thread's access to a [`Budget`].
#[derive(Debug)]
pub struct CoreBudget {
    whole: Arc<Budget>,
    chunk: u64,
    idle: Cell<u64>,
}

impl CoreBudget {
    /// Access for one of `threads` threads.
    pub fn new(whole: Arc<Budget>, threads: usize) -> Self {
        let chunk = (whole.max / (16 * threads.max(1) as u64)).min(CHUNK_MAX);
        CoreBudget { whole, chunk, idle: Cell::new(0) }
    }

    /// Takes `units` if they are there.
    #[inline]
    pub fn take(&self, units: u64) -> bool {
        let idle = self.idle.get();
        if units <= idle {
            self.idle.set(idle - units);
            return true;
        }
        self.take_from_whole(units - idle)
    }

    #[cold]
    fn take_from_whole(&self, missing: u64) -> bool {
        if self.whole.take(missing.saturating_add(self.chunk)) {
            self.idle.set(self.chunk);
            return true;
        }
        let taken = self.whole.take(missing);
        if taken {
            self.idle.set(0);
        }
        taken
    }

    /// Gives back what was taken.
    #[inline]
    pub fn give(&self, units: u64) {
        let idle = self.idle.get() + units;
        self.idle.set(idle);
        if idle > 2 * self.chunk {
            self.whole.give(idle - self.chunk);
            self.idle.set(self.chunk);
        }
    }
}

impl Drop for CoreBudget {
    fn drop(&mut self) {
        self.whole.give(self.idle.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_never_passed_and_comes_back_whole() {
        let whole = Budget::new(1000);
        let cores = [CoreBudget::new(whole.clone(), 2), CoreBudget::new(whole.clone(), 2)];
        let mut taken = 0;
        for i in 0..10_000u64 {
            if cores[i as usize % 2].take(7) {
                taken += 7;
            }
            assert!(taken <= 1000 && whole.used() <= 1000);
        }
        assert!(taken > 850, "an idle chunk hid too much: {taken}");
        assert!(!cores[0].take(100));
        cores[0].give(taken);
        drop(cores);
        assert_eq!(whole.used(), 0);
    }

    #[test]
    fn a_charge_comes_back_when_it_is_dropped() {
        let whole = Budget::new(100);
        let mut charge = Charge::none(whole.clone());
        assert!(charge.take(60) && charge.take(30) && !charge.take(20) && charge.take(10));
        assert_eq!((charge.units(), whole.used()), (100, 100));
        drop(charge);
        assert_eq!(whole.used(), 0);
    }

    #[test]
    fn small_takes_stay_on_their_thread() {
        let whole = Budget::new(1 << 30);
        let core = CoreBudget::new(whole.clone(), 2);
        assert!(core.take(100));
        let used = whole.used();
        for _ in 0..1000 {
            core.give(100);
            assert!(core.take(100));
        }
        assert_eq!(whole.used(), used);
    }
}
