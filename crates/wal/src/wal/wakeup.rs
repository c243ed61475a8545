//! Wake-ups of the log's thread.
//!
//! Waking a thread costs a system call and, on a machine with few cores, the rest of the caller's
//! time slice: the log's thread commits one entry, sleeps again, and is woken for the next. So
//! consecutive writes of one thread wake it once: at the end of a [`WakeBatch`], or every
//! [`DEFER_MAX`] within it.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Shared;
use evenkeel_common::clock;

/// The longest time that the wake-up for an entry is deferred.
const DEFER_MAX: Duration = Duration::from_micros(200);

/// The logs that this thread has to wake.
struct DeferredWakeups {
    /// Whether a [`WakeBatch`] of this thread exists.
    is_batching: bool,
    logs: Vec<Arc<Shared>>,
    /// When the first wake-up was deferred.
    since: Option<Instant>,
}

thread_local! {
    /// The list keeps its capacity, so that a batch allocates nothing.
    static DEFERRED: RefCell<DeferredWakeups> =
        const { RefCell::new(DeferredWakeups { is_batching: false, logs: Vec::new(), since: None }) };
}

/// Defers the wake-ups of the logs that this thread appends to: each log is woken once, when the
/// batch is dropped, and every 200 microseconds before that. The thread calls [`wake_deferred`]
/// before it waits for another thread that may wait for one of its appends.
#[derive(Debug)]
pub struct WakeBatch {
    /// Not `Send`: the batch belongs to the thread that began it.
    _thread: PhantomData<*const ()>,
}

impl WakeBatch {
    /// Begins a batch on this thread. Dropping a nested batch ends the outer one, too.
    pub fn begin() -> Self {
        DEFERRED.with_borrow_mut(|deferred| deferred.is_batching = true);
        Self { _thread: PhantomData }
    }
}

impl Drop for WakeBatch {
    fn drop(&mut self) {
        DEFERRED.with_borrow_mut(|deferred| {
            deferred.is_batching = false;
            deferred.wake();
        });
    }
}

/// Wakes the logs whose wake-ups are deferred.
pub fn wake_deferred() {
    DEFERRED.with_borrow_mut(DeferredWakeups::wake);
}

impl DeferredWakeups {
    fn wake(&mut self) {
        self.logs.drain(..).for_each(|log| log.wake());
        self.since = None;
    }
}

/// Wakes a log's thread, now or at the end of a [`WakeBatch`].
pub(super) fn wake_or_defer(log: &Arc<Shared>) {
    DEFERRED.with_borrow_mut(|deferred| {
        if !deferred.is_batching {
            return log.wake();
        }
        if !deferred.logs.iter().any(|known| Arc::ptr_eq(known, log)) {
            deferred.logs.push(Arc::clone(log));
        }
        if clock::since(*deferred.since.get_or_insert_with(clock::monotonic)) >= DEFER_MAX {
            deferred.wake();
        }
    });
}
