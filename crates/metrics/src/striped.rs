//! [`Striped`]: one value per group of threads, summed when it is read.
//!
//! All cores contend for the cache line of a shared counter. Here each thread adds to the value of
//! its stripe. A thread gets a number on first use, and the number selects the stripe. The
//! connection threads, which are the first and the busiest ones, share no stripe until there are
//! more than [`STRIPES`] of them. Threads that share a stripe still count correctly, because the
//! values are atomic.
//!
//! A stripe is allocated on first use. A counter of a region without reads takes only its array of
//! pointers.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// The number of stripes.
pub const STRIPES: usize = 16;

/// One value per stripe; see the module's documentation.
#[derive(Debug)]
pub struct Striped<T>([OnceLock<Box<T>>; STRIPES]);

impl<T> Default for Striped<T> {
    fn default() -> Self {
        Self([const { OnceLock::new() }; STRIPES])
    }
}

impl<T: Default> Striped<T> {
    /// Returns the stripe of this thread. Allocates it on first use.
    #[inline]
    pub fn mine(&self) -> &T {
        // The remainder proves to the compiler that the index is in bounds.
        self.0[stripe_of_thread() % STRIPES].get_or_init(Box::default)
    }

    /// Returns the stripe of this thread, if it is allocated.
    #[inline]
    pub fn existing(&self) -> Option<&T> {
        self.0[stripe_of_thread() % STRIPES].get().map(|boxed| &**boxed)
    }

    /// Returns the allocated stripes.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().filter_map(|stripe| stripe.get().map(|boxed| &**boxed))
    }
}

#[inline]
fn stripe_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static MINE: Cell<usize> = const { Cell::new(usize::MAX) });
    MINE.with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(NEXT.fetch_add(1, Relaxed) % STRIPES);
        }
        mine.get()
    })
}
