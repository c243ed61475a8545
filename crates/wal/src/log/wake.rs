//! When the log's thread is woken.
//!
//! Waking a thread costs the waker a system call and, where cores are few, the rest of its time slice: the log's thread
//! commits one entry, sleeps again, and is woken for the next. So writes that one thread makes in a row wake it together: at
//! the end of [`together`], or every [`WAKE_AFTER`] within it.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Shared;

/// How long an entry may lie there before the log's thread hears of it.
const WAKE_AFTER: Duration = Duration::from_micros(200);

/// Logs to be woken by this thread.
struct Waiting {
    /// Within [`together`].
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

/// Runs `writes`, and lets logs hear of them together: those that they append to are woken once, or every so often when it
/// takes long. Before it waits for what may wait for a write of this thread, `writes` calls [`wake_waiting`].
pub fn together<T>(writes: impl FnOnce() -> T) -> T {
    /// Wakes also when `writes` panics.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            WAITING.with_borrow_mut(|waiting| {
                waiting.gathers = false;
                waiting.wake();
            });
        }
    }
    if WAITING.with_borrow_mut(|waiting| std::mem::replace(&mut waiting.gathers, true)) {
        return writes();
    }
    let _end = End;
    writes()
}

/// Wakes the logs that wait for the end of [`together`] now.
pub fn wake_waiting() {
    WAITING.with_borrow_mut(Waiting::wake);
}

impl Waiting {
    fn wake(&mut self) {
        self.logs.drain(..).for_each(|log| log.wake());
        self.since = None;
    }
}

/// Wakes a log's thread, now or at the end of [`together`].
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
