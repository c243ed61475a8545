//! When the log's thread is woken.
//!
//! Waking a thread costs the waker a system call and, where cores are few, the rest of its time slice: the log's thread
//! commits one entry, sleeps again, and is woken for the next. So writes that one thread makes in a row wake it together: at
//! the end of a [`WakeBatch`], or every [`WAKE_AFTER`] within it.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Shared;

/// How long an entry may lie there before the log's thread hears of it.
const WAKE_AFTER: Duration = Duration::from_micros(200);

/// Logs to be woken by this thread.
struct Waiting {
    /// A [`WakeBatch`] of this thread lives.
    gathers: bool,
    logs: Vec<Arc<Shared>>,
    /// When the first of them was to be woken.
    since: Option<Instant>,
}

thread_local! {
    /// Its list stays, so that a turn allocates nothing.
    static WAITING: RefCell<Waiting> =
        const { RefCell::new(Waiting { gathers: false, logs: Vec::new(), since: None }) };
}

/// While it lives, logs hear together of what this thread appends: those that it appends to are woken once, when it is
/// dropped, and every 200 microseconds if it lives longer. Before the thread waits for what may wait for its own
/// appends, it calls [`wake_waiting`].
#[derive(Debug)]
pub struct WakeBatch {
    /// It belongs to the thread that made it.
    _thread: PhantomData<*const ()>,
}

impl WakeBatch {
    /// Begins a batch on this thread. A batch within another one ends the outer one, too, when it is dropped.
    pub fn begin() -> Self {
        WAITING.with_borrow_mut(|waiting| waiting.gathers = true);
        Self { _thread: PhantomData }
    }
}

impl Drop for WakeBatch {
    fn drop(&mut self) {
        WAITING.with_borrow_mut(|waiting| {
            waiting.gathers = false;
            waiting.wake();
        });
    }
}

/// Wakes the logs that wait for the end of a [`WakeBatch`] now.
pub fn wake_waiting() {
    WAITING.with_borrow_mut(Waiting::wake);
}

impl Waiting {
    fn wake(&mut self) {
        self.logs.drain(..).for_each(|log| log.wake());
        self.since = None;
    }
}

/// Wakes a log's thread, now or at the end of a [`WakeBatch`].
pub(super) fn wake_soon(log: &Arc<Shared>) {
    WAITING.with_borrow_mut(|waiting| {
        if !waiting.gathers {
            return log.wake();
        }
        if !waiting.logs.iter().any(|known| Arc::ptr_eq(known, log)) {
            waiting.logs.push(Arc::clone(log));
        }
        if waiting.since.get_or_insert_with(Instant::now).elapsed() >= WAKE_AFTER {
            waiting.wake();
        }
    });
}
