//! [`BackgroundPriority`]: flushes and compactions yield the processors while no caller waits for
//! them.
//!
//! A flush or a compaction uses a whole core, and requests wait: two flushes beside a compaction
//! leave less than a third of one core to all connections. So a thread of lower priority writes its
//! cells, in slices (64 KiB of a flush, a row of a compaction), until a caller waits for the memory
//! of the flush or for fewer files. From the next slice on, the original thread writes them:
//!
//! ```text
//! flusher             snapshot --+                            +-- slice, slice -- file's end
//!                                |                            |
//! low-priority thread            +-- slice, slice -- (urgent) +
//! ```
//!
//! There are two threads because a thread that lowers its priority needs a privilege to raise it
//! again. (The same holds for `SCHED_IDLE`, and `SCHED_BATCH` changes no share. Sleeping between
//! slices would need none of this, but would leave idle processors idle.) The low-priority thread
//! is started for the files of one flush or compaction and ends with its last slice there. The
//! original thread waits for it meanwhile, so the number of running threads does not grow.
//!
//! # When it becomes urgent
//! A thread of lower priority has a smaller share of a core, but always a share, so every slice
//! ends. A flush that is not finished after ten seconds becomes urgent. A compaction has no such
//! limit: until files pile up, no caller waits for it.

use std::time::{Duration, Instant};

use evenkeel_common::Result;
use evenkeel_common::clock;
use evenkeel_common::thread::spawn_scoped;

/// Smaller flushes and compactions do not justify a separate thread.
pub(super) const BACKGROUND_BYTES_MIN: u64 = 1 << 20;

/// The kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackgroundWork {
    Flush,
    Compaction,
}

impl BackgroundWork {
    /// The maximum time at low priority.
    fn background_time_max(self) -> Option<Duration> {
        (self == Self::Flush).then_some(Duration::from_secs(10))
    }

    /// The name of the low-priority thread. (Linux shows 15 bytes of it.)
    fn thread_name(self) -> &'static str {
        match self {
            Self::Flush => "flush-lowprio",
            Self::Compaction => "compact-lowprio",
        }
    }
}

/// How a flush or a compaction shares the processors with requests.
pub trait BackgroundPriority: Sync {
    /// Returns true if a caller waits for the memory of a flush, for fewer files, or for the end of
    /// the work. Called before each slice, on the thread that would run it.
    fn is_urgent(&self) -> bool;

    /// Lowers the priority of the calling thread, which ends with this work.
    fn lower_priority(&self);

    /// Reports the bytes of a flush just written. May block the writer until `is_urgent`.
    fn throttle(&self, _bytes: u64, _is_urgent: &dyn Fn() -> bool) {}
}

/// Calls `slice` until it returns false: on a low-priority thread until the work is urgent, then on
/// this thread.
///
/// # Errors
/// The error of the first slice that fails; no slice runs after it.
pub(super) fn run_in_background(
    work: BackgroundWork,
    priority: &dyn BackgroundPriority,
    slice: impl FnMut() -> Result<bool> + Send,
) -> Result<()> {
    run_until(work.background_time_max().map(|max| clock::monotonic() + max), work, priority, slice)
}

fn run_until(
    end: Option<Instant>,
    work: BackgroundWork,
    priority: &dyn BackgroundPriority,
    mut slice: impl FnMut() -> Result<bool> + Send,
) -> Result<()> {
    let in_background = || !priority.is_urgent() && end.is_none_or(|end| clock::monotonic() < end);
    if in_background()
        && !on_another_thread(work.thread_name(), || {
            priority.lower_priority();
            while in_background() {
                if !slice()? {
                    return Ok(false);
                }
            }
            Ok(true)
        })?
    {
        return Ok(());
    }
    while slice()? {}
    Ok(())
}

/// Runs `slices` on a new thread. Returns true if there are more, or if the thread cannot be
/// started.
fn on_another_thread(name: &str, slices: impl FnOnce() -> Result<bool> + Send) -> Result<bool> {
    std::thread::scope(|scope| match spawn_scoped(scope, name, slices) {
        Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        Err(_) => Ok(true),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::{ThreadId, current};

    use evenkeel_common::{ErrorKind, HBaseError};
    use parking_lot::Mutex;

    use super::*;

    /// Becomes urgent after some slices, and records which thread ran which.
    struct Slices {
        urgent_after: usize,
        done: AtomicUsize,
        ran: Mutex<Vec<ThreadId>>,
        yielding: Mutex<Vec<ThreadId>>,
    }

    impl Slices {
        fn urgent_after(slices: usize) -> Self {
            Self {
                urgent_after: slices,
                done: AtomicUsize::new(0),
                ran: Mutex::default(),
                yielding: Mutex::default(),
            }
        }

        fn slice(&self) -> usize {
            self.ran.lock().push(current().id());
            self.done.fetch_add(1, Ordering::Relaxed) + 1
        }

        /// Returns how many of five slices ran on the low-priority thread, before those that ran
        /// here.
        fn low_priority_of_five(&self, end: Option<Instant>) -> usize {
            run_until(end, BackgroundWork::Flush, self, || Ok(self.slice() < 5)).expect("no slice fails");
            let (ran, yielding) = (self.ran.lock(), self.yielding.lock());
            assert!(ran.len() == 5 && yielding.len() <= 1 && !yielding.contains(&current().id()));
            let lowered = ran.iter().take_while(|thread| yielding.contains(thread)).count();
            assert!(ran[lowered..].iter().all(|thread| *thread == current().id()), "{ran:?}");
            lowered
        }
    }

    impl BackgroundPriority for Slices {
        fn is_urgent(&self) -> bool {
            self.done.load(Ordering::Relaxed) >= self.urgent_after
        }

        fn lower_priority(&self) {
            self.yielding.lock().push(current().id());
        }
    }

    #[test]
    fn slices_change_threads_when_they_become_urgent() {
        for urgent_after in [0, 1, 3, 5, usize::MAX] {
            let slices = Slices::urgent_after(urgent_after);
            assert_eq!(slices.low_priority_of_five(None), urgent_after.min(5));
            assert_eq!(slices.yielding.lock().is_empty(), urgent_after == 0, "no thread is made for nothing");
        }
    }

    #[test]
    fn low_priority_ends_after_the_maximum_time() {
        assert_eq!(Slices::urgent_after(usize::MAX).low_priority_of_five(Some(Instant::now())), 0);
        let long =
            [BackgroundWork::Flush, BackgroundWork::Compaction].map(BackgroundWork::background_time_max);
        assert!(long[0].is_some_and(|long| long > Duration::from_secs(1)) && long[1].is_none());
    }

    #[test]
    fn a_failed_slice_ends_the_work() {
        for urgent_after in [0, usize::MAX] {
            let slices = Slices::urgent_after(urgent_after);
            let outcome = run_until(None, BackgroundWork::Compaction, &slices, || match slices.slice() {
                3 => Err(HBaseError::new(ErrorKind::Io, "the disk is full".to_owned())),
                _ => Ok(true),
            });
            assert!(outcome.is_err() && slices.ran.lock().len() == 3);
        }
    }
}
