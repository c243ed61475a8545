//! [`Counters`]: a group of counters since the start that change together.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::is_on;
use crate::striped::Striped;

/// `N` counters of one thing, such as a region or a server. The owner assigns meanings to the
/// indices.
///
/// The counters of a thread are adjacent, so a request that adds to several touches one or two
/// cache lines of its thread.
#[derive(Debug)]
pub struct Counters<const N: usize>(Striped<Group<N>>);

/// Aligned to cache lines, so that no thread writes to a line of another.
#[derive(Debug)]
#[repr(align(64))]
struct Group<const N: usize>([AtomicU64; N]);

impl<const N: usize> Default for Group<N> {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; N])
    }
}

impl<const N: usize> Default for Counters<N> {
    fn default() -> Self {
        Self(Striped::default())
    }
}

impl<const N: usize> Counters<N> {
    /// Adds to the counter with this index; ignores an index out of range.
    #[inline]
    pub fn add(&self, number: usize, units: u64) {
        if is_on()
            && let Some(counter) = self.0.mine().0.get(number)
        {
            counter.fetch_add(units, Relaxed);
        }
    }

    /// Returns the sum of each counter over all threads.
    pub fn sums(&self) -> [u64; N] {
        let mut sums = [0; N];
        for group in self.0.all() {
            for (sum, counter) in sums.iter_mut().zip(&group.0) {
                *sum += counter.load(Relaxed);
            }
        }
        sums
    }

    /// Returns the sum of one counter over all threads.
    pub fn sum(&self, number: usize) -> u64 {
        self.0.all().filter_map(|group| group.0.get(number)).map(|counter| counter.load(Relaxed)).sum()
    }
}

/// A single counter.
#[derive(Debug, Default)]
pub struct Counter(Counters<1>);

impl Counter {
    /// Adds to the counter.
    #[inline]
    pub fn add(&self, units: u64) {
        self.0.add(0, units);
    }

    /// Returns the sum over all threads.
    pub fn sum(&self) -> u64 {
        self.0.sum(0)
    }
}
