//! [`Budget`]: a limit of bytes or of calls that the whole server shares, and [`Charge`]: the share
//! of one request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A limit of the whole server.
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

    /// Units in use, including those that lie idle on threads.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The limit.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Free units; 0 if the limit is exceeded, which only [`Budget::add`] can do.
    pub fn free(&self) -> u64 {
        self.max.saturating_sub(self.used())
    }

    /// Takes `units` if they are free.
    pub fn acquire(&self, units: u64) -> bool {
        let within = |used: u64| used.checked_add(units).filter(|sum| *sum <= self.max);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
    }

    /// Takes `units` even beyond the limit.
    pub fn add(&self, units: u64) {
        self.used.fetch_add(units, Ordering::Relaxed);
    }

    /// Returns `units` to the budget.
    pub fn release(&self, units: u64) {
        let before = self.used.fetch_sub(units, Ordering::Relaxed);
        debug_assert!(before >= units, "gave back {units} of {before}");
    }
}

/// Units of a [`Budget`]. Dropping it returns them.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    units: u64,
}

impl Charge {
    /// A charge of no units.
    pub fn none(budget: Arc<Budget>) -> Self {
        Charge { budget, units: 0 }
    }

    /// Takes further units if they are free.
    pub fn acquire(&mut self, units: u64) -> bool {
        let taken = self.budget.acquire(units);
        self.units += if taken { units } else { 0 };
        taken
    }

    /// Adds the units of another charge of the same budget.
    ///
    /// # Panics
    /// If the budgets differ.
    pub fn merge(&mut self, mut other: Charge) {
        assert!(Arc::ptr_eq(&self.budget, &other.budget), "charges of different budgets");
        self.units += std::mem::take(&mut other.units);
    }

    /// Units taken.
    pub fn units(&self) -> u64 {
        self.units
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.release(self.units);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_comes_back_when_it_is_dropped() {
        let whole = Budget::new(100);
        let mut charge = Charge::none(whole.clone());
        assert!(charge.acquire(60) && charge.acquire(30) && !charge.acquire(20) && charge.acquire(10));
        assert_eq!((charge.units(), whole.used()), (100, 100));
        drop(charge);
        assert_eq!(whole.used(), 0);
    }

    #[test]
    fn merged_charges_come_back_together() {
        let whole = Budget::new(100);
        let [mut first, mut second] = [(); 2].map(|()| Charge::none(whole.clone()));
        assert!(first.acquire(30) && second.acquire(20));
        first.merge(second);
        assert_eq!((first.units(), whole.used()), (50, 50));
        drop(first);
        assert_eq!(whole.used(), 0);
    }
}
