//! A budget of brief waits for a thread that must not wait.
//!
//! A write on the thread of a connection waits a moment for locks that are held for a computation only: going elsewhere would be
//! slower. But such a lock may be held for longer after all, by a thread that waits for room in the log or was preempted, and
//! then every write of the thread's connections would wait for its moment. So a thread spends [`BUDGET`] of each
//! [`WINDOW`] in such waits, whatever they are for. Once that is spent, it does not wait.
//!
//! A lock that is free costs nothing of this.

use std::cell::Cell;
use std::time::{Duration, Instant};

use evenkeel_common::clock;

/// What a thread spends in brief waits, at most...
const BUDGET: Duration = Duration::from_millis(1);
/// ... of each such time.
const WINDOW: Duration = Duration::from_millis(20);

thread_local! {
    /// When this thread's window began, and what it spent since.
    static SPENT: Cell<Option<(Instant, Duration)>> = const { Cell::new(None) };
}

/// Lets `attempt` wait for as long as this thread still may; `None` without an attempt when it may not.
pub(super) fn spend<T>(attempt: impl FnOnce(Duration) -> Option<T>) -> Option<T> {
    let began = clock::monotonic();
    let (since, spent) = SPENT
        .get()
        .filter(|(since, _)| began.saturating_duration_since(*since) < WINDOW)
        .unwrap_or((began, Duration::ZERO));
    let left = BUDGET.checked_sub(spent).filter(|left| !left.is_zero())?;
    let got = attempt(left);
    SPENT.set(Some((since, spent + began.elapsed())));
    got
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_waits_for_a_part_of_its_time_however_often_it_has_to() {
        let began = Instant::now();
        let mut waits = 0_u32;
        let mut wait_in_vain = || {
            spend(|time| {
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
    fn a_new_window_allows_more() {
        for _ in 0..3 {
            let _ = spend(|time| {
                std::thread::sleep(time);
                None::<()>
            });
            std::thread::sleep(WINDOW);
            assert_eq!(spend(|_| Some(2)), Some(2));
        }
    }
}
