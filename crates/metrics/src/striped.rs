//! [`Striped`]: one value for each of some threads, summed when it is read.
//!
//! A counter that all threads add to is a cache line that all cores fight for. Here each thread
//! adds to the value of its own stripe. Threads are numbered when they first ask, and the number
//! picks the stripe, so the threads of connections, which are the first and the busiest, share no
//! stripe until there are more than [`STRIPES`] of them. Threads that do share one still count
//! right: the values are atomic.
//!
//! A stripe is allocated when its first thread comes. A counter of a region that nobody reads costs
//! its array of pointers.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// The number of stripes.
pub const STRIPES: usize = 16;

/// See the module's documentation.
#[derive(Debug)]
pub struct Striped<T>([OnceLock<Box<T>>; STRIPES]);

impl<T> Default for Striped<T> {
    fn default() -> Self {
        Self([const { OnceLock::new() }; STRIPES])
    }
}

impl<T: Default> Striped<T> {
    /// The stripe of this thread. Allocates once for each stripe.
    #[inline]
    pub fn mine(&self) -> &T {
        // The remainder tells the compiler that it is in bounds.
        self.0[stripe_of_thread() % STRIPES].get_or_init(Box::default)
    }

    /// The stripe of this thread, if there is one.
    #[inline]
    pub fn existing(&self) -> Option<&T> {
        self.0[stripe_of_thread() % STRIPES].get().map(|boxed| &**boxed)
    }

    /// The stripes that there are.
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
