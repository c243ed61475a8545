//! [`ThreadBudget`]: a thread's access to a [`Budget`].
//!
//! A budget is one number shared by all connection threads. Each thread takes from it in chunks
//! through its own [`ThreadBudget`], so that an ordinary call touches no shared cache line. Each
//! thread holds at most two idle chunks; the chunk size is chosen so that all of them together are
//! at most an eighth of the budget.

use std::cell::Cell;
use std::sync::Arc;

use evenkeel_common::Budget;

/// Largest chunk that a thread takes at once.
const CHUNK_MAX: u64 = 256 * 1024;

/// One thread's access to a [`Budget`].
#[derive(Debug)]
pub struct ThreadBudget {
    whole: Arc<Budget>,
    chunk: u64,
    idle: Cell<u64>,
}

impl ThreadBudget {
    /// Access for one of `threads` threads.
    pub fn new(whole: Arc<Budget>, threads: usize) -> Self {
        let chunk = (whole.max() / (16 * threads.max(1) as u64)).min(CHUNK_MAX);
        ThreadBudget { whole, chunk, idle: Cell::new(0) }
    }

    /// Takes `units` if they are free.
    #[inline]
    pub fn acquire(&self, units: u64) -> bool {
        let idle = self.idle.get();
        if units <= idle {
            self.idle.set(idle - units);
            return true;
        }
        self.acquire_from_whole(units - idle)
    }

    #[cold]
    fn acquire_from_whole(&self, missing: u64) -> bool {
        if self.whole.acquire(missing.saturating_add(self.chunk)) {
            self.idle.set(self.chunk);
            return true;
        }
        let taken = self.whole.acquire(missing);
        if taken {
            self.idle.set(0);
        }
        taken
    }

    /// Returns `units` to the budget.
    #[inline]
    pub fn release(&self, units: u64) {
        let idle = self.idle.get() + units;
        self.idle.set(idle);
        if idle > 2 * self.chunk {
            self.whole.release(idle - self.chunk);
            self.idle.set(self.chunk);
        }
    }
}

impl Drop for ThreadBudget {
    fn drop(&mut self) {
        self.whole.release(self.idle.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_never_exceeded_and_fully_returned() {
        let whole = Budget::new(1000);
        let cores = [ThreadBudget::new(whole.clone(), 2), ThreadBudget::new(whole.clone(), 2)];
        let mut taken = 0;
        for i in 0..10_000u64 {
            if cores[i as usize % 2].acquire(7) {
                taken += 7;
            }
            assert!(taken <= 1000 && whole.used() <= 1000);
        }
        assert!(taken > 850, "an idle chunk hid too much: {taken}");
        assert!(!cores[0].acquire(100));
        cores[0].release(taken);
        drop(cores);
        assert_eq!(whole.used(), 0);
    }

    #[test]
    fn small_charges_stay_on_their_thread() {
        let whole = Budget::new(1 << 30);
        let core = ThreadBudget::new(whole.clone(), 2);
        assert!(core.acquire(100));
        let used = whole.used();
        for _ in 0..1000 {
            core.release(100);
            assert!(core.acquire(100));
        }
        assert_eq!(whole.used(), used);
    }
}
