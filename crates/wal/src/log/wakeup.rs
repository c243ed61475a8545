//! When the log's thread is woken.
//!
//! Waking a thread costs the waker a system call and, where cores are few, the rest of its time slice: the log's thread
//! commits one entry, sleeps again, and is woken for the next. So writes that one thread makes in a row wake it together: at
//! the end of a [`WakeBatch`], or every [`DEFER_MAX`] within it.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Shared;

/// How long an entry may lie there before the log's thread hears of it.
const DEFER_MAX: Duration = Duration::from_micros(200);

/// Logs to be woken by this thread.
struct DeferredWakeups {
    /// A [`WakeBatch`] of this thread lives.
    is_batching: bool,
    logs: Vec<Arc<Shared>>,
    /// When the first of them was to be woken.
    since: Option<Instant>,
}

thread_local! {
    /// Its list stays, so that a turn allocates nothing.
    static DEFERRED: RefCell<DeferredWakeups> =
        const { RefCell::new(DeferredWakeups { is_batching: false, logs: Vec::new(), since: None }) };
}

/// While it lives, logs hear together of what this thread appends: those that it appends to are woken once, when it is
/// dropped, and every 200 microseconds if it lives longer. Before the thread waits for what may wait for its own
/// appends, it calls [`wake_deferred`].
#[derive(Debug)]
pub struct WakeBatch {
    /// It belongs to the thread that made it.
    _thread: PhantomData<*const ()>,
}

impl WakeBatch {
    /// Begins a batch on this thread. A batch within another one ends the outer one, too, when it is dropped.
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

/// Wakes the logs that wait for the end of a [`WakeBatch`] now.
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
        if deferred.since.get_or_insert_with(Instant::now).elapsed() >= DEFER_MAX {
            deferred.wake();
        }
    });
}
