//! Writes that wait for a row that stays locked.
//!
//! A row stays locked for long if a write's condition examines megabytes, or if many writes to it
//! wait for a slow disk one after the other. Each of these writes holds a thread while it waits. If
//! they held all threads, writes to other rows would wait, too. So a write waits briefly on a
//! thread that other writes need, and then on a thread of its own kind
//! ([`RowLockWaiter::LongWaitThreads`]).

use evenkeel_metrics::waits;

use crate::region::row_lock::RowLockTimeout;

/// Runs writes whose row stays locked.
pub trait LongWaitExecutor {
    /// Runs the rest of a write on a thread where it may wait for long. If the rest is dropped, its
    /// completion is.
    fn run(&self, rest: Box<dyn FnOnce() + Send>);
}

/// Where a write waits for row locks that are not free soon.
#[derive(Clone, Copy)]
pub enum RowLockWaiter<'a> {
    /// On the calling thread, for `hbase.rowlock.wait.duration`.
    CallingThread,
    /// On the calling thread briefly, then on the threads of the executor.
    LongWaitThreads(&'a dyn LongWaitExecutor),
}

impl RowLockWaiter<'_> {
    /// Returns how long the write waits on the calling thread.
    pub(super) fn here(self) -> RowLockTimeout {
        match self {
            Self::CallingThread => RowLockTimeout::Full,
            Self::LongWaitThreads(_) => RowLockTimeout::Brief,
        }
    }
}

/// Runs the rest of a write on threads where it may wait for long. The waits of a single write so
/// far count there; those of a part of a request have been counted.
pub(super) fn run_on(threads: &dyn LongWaitExecutor, rest: impl FnOnce() + Send + 'static) {
    let waited = waits::take_part();
    threads.run(Box::new(move || {
        if let Some(waited) = &waited {
            waits::note_all(waited);
        }
        rest();
    }));
}
