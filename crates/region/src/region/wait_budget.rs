//! A budget of short waits for a thread that must not wait.
//!
//! A write on the thread of a connection briefly waits for locks that are held only for a
//! computation, because moving to another thread would take longer. But a thread may hold such a
//! lock longer, because it waits for space in the log's queue or was preempted. Then every write of
//! the waiting thread's connections would wait. So a thread spends at most [`BUDGET`] of each
//! [`WINDOW`] in these waits, for all locks together. After that it does not wait.
//!
//! A free lock spends none of the budget.

use std::cell::Cell;
use std::time::{Duration, Instant};

use evenkeel_common::clock;

/// The time within which a lock that is held only for a computation usually becomes free.
pub(super) const SHORT_WAIT_MAX: Duration = Duration::from_millis(1);
/// The maximum time that a thread spends in short waits in each window.
const BUDGET: Duration = SHORT_WAIT_MAX;
/// The length of a window.
const WINDOW: Duration = Duration::from_millis(20);

thread_local! {
    /// The start of this thread's window, and the time it has spent since.
    static SPENT: Cell<Option<(Instant, Duration)>> = const { Cell::new(None) };
}

/// Calls `attempt` with the time that this thread may still wait. Returns `None`, without an
/// attempt, if that is zero.
pub(super) fn try_within_budget<T>(attempt: impl FnOnce(Duration) -> Option<T>) -> Option<T> {
    let began = clock::monotonic();
    let (since, spent) = SPENT
        .get()
        .filter(|(since, _)| began.saturating_duration_since(*since) < WINDOW)
        .unwrap_or((began, Duration::ZERO));
    let left = BUDGET.checked_sub(spent).filter(|left| !left.is_zero())?;
    let got = attempt(left);
    SPENT.set(Some((since, spent + clock::since(began))));
    got
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_waits_once_per_window() {
        let began = Instant::now();
        let mut waits = 0_u32;
        let mut wait_in_vain = || {
            try_within_budget(|time| {
                assert!(time <= BUDGET);
                waits += 1;
                std::thread::sleep(time);
                None::<()>
            })
        };
        assert!((0..1000).all(|_| wait_in_vain().is_none()));
        let windows = began.elapsed().as_nanos() / WINDOW.as_nanos() + 1;
        assert!(u128::from(waits) <= windows, "{waits} waits in {windows} windows");
    }

    #[test]
    fn a_new_window_renews_the_wait_budget() {
        for _ in 0..3 {
            let _ = try_within_budget(|time| {
                std::thread::sleep(time);
                None::<()>
            });
            std::thread::sleep(WINDOW);
            assert_eq!(try_within_budget(|_| Some(2)), Some(2));
        }
    }
}
