//! [`BackgroundPriority`]: a flush or a compaction that nobody waits for yields the processors.
//!
//! Either takes all that a core can do, and requests wait for what it takes: two flushes beside a compaction leave less than a
//! third of one core to all connections. So its cells are written by a thread of lower priority, in beats (64 KiB of a
//! flush, a row of a compaction), until somebody waits: for the memory that a flush gives back, or for fewer files. From the next
//! beat on they are written by the thread that began:
//!
//! ```text
//! flusher          snapshot --+                          +-- beat, beat -- end of the file, renames, commit
//!                             |                          |
//! patient thread              +-- beat, beat -- (urgent) +
//! ```
//!
//! There are two threads because one is not enough: whoever lowers its priority needs a privilege to raise it again. (The same holds
//! for `SCHED_IDLE`, and `SCHED_BATCH` changes no share. Sleeping between beats would need none of this, but it would
//! leave idle processors idle.) The patient thread is made for the files of one flush or compaction and ends with its last beat there. The
//! thread that began waits for that meanwhile, so there are no more of them at once than before; what passes between them is who runs
//! the next beat.
//!
//! # When it ends
//! A lower priority is a smaller share of a core, but a share whatever else runs, so every beat ends. What a flush has not written
//! after ten seconds is urgent, whoever waits. A compaction has no such end: until files pile up nobody waits for one.

use std::time::{Duration, Instant};

use evenkeel_common::Result;
use evenkeel_common::thread::spawn_scoped;

/// What reads or writes fewer bytes is over before a thread of its own would be worth it.
pub(super) const BACKGROUND_BYTES_MIN: u64 = 1 << 20;

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackgroundWork {
    Flush,
    Compaction,
}

impl BackgroundWork {
    /// The longest time that it is written patiently.
    fn background_time_max(self) -> Option<Duration> {
        (self == Self::Flush).then_some(Duration::from_secs(10))
    }

    /// The name of the thread that yields. (Linux shows 15 bytes of it.)
    fn thread_name(self) -> &'static str {
        match self {
            Self::Flush => "flush-lowprio",
            Self::Compaction => "compact-lowprio",
        }
    }
}

/// How a flush or a compaction shares the processors with what goes on beside it.
pub trait BackgroundPriority: Sync {
    /// Whether somebody waits: for the memory that a flush gives back, for fewer files, for the end. Asked before each
    /// beat, on the thread that is to run it.
    fn is_urgent(&self) -> bool;

    /// Lowers the priority of the calling thread, which ends with what it writes.
    fn lower_priority(&self);

    /// Hears how many bytes of a flush were just written, and may hold the writer until `is_urgent`.
    fn throttle(&self, _bytes: u64, _is_urgent: &dyn Fn() -> bool) {}
}

/// Runs `beat` until it says that there is no more: on a thread that yields to others as long as nothing is urgent, then on this
/// one.
///
/// # Errors
/// What a beat says; it is the last one then.
pub(super) fn run_in_background(
    work: BackgroundWork,
    priority: &dyn BackgroundPriority,
    slice: impl FnMut() -> Result<bool> + Send,
) -> Result<()> {
    run_until(work.background_time_max().map(|max| Instant::now() + max), work, priority, slice)
}

fn run_until(
    end: Option<Instant>,
    work: BackgroundWork,
    priority: &dyn BackgroundPriority,
    mut slice: impl FnMut() -> Result<bool> + Send,
) -> Result<()> {
    let in_background = || !priority.is_urgent() && end.is_none_or(|end| Instant::now() < end);
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

/// Runs `beats` on a thread of its own; whether there are more. There are, too, when it cannot be made.
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

    /// Is urgent after some beats; remembers which thread ran which.
    struct Beats {
        urgent_after: usize,
        done: AtomicUsize,
        ran: Mutex<Vec<ThreadId>>,
        yielding: Mutex<Vec<ThreadId>>,
    }

    impl Beats {
        fn urgent_after(beats: usize) -> Self {
            Self {
                urgent_after: beats,
                done: AtomicUsize::new(0),
                ran: Mutex::default(),
                yielding: Mutex::default(),
            }
        }

        fn beat(&self) -> usize {
            self.ran.lock().push(current().id());
            self.done.fetch_add(1, Ordering::Relaxed) + 1
        }

        /// How many of five beats ran on the thread that yields, before those that ran here.
        fn patient_of_five(&self, end: Option<Instant>) -> usize {
            run_until(end, BackgroundWork::Flush, self, || Ok(self.beat() < 5)).expect("no beat fails");
            let (ran, yielding) = (self.ran.lock(), self.yielding.lock());
            assert!(ran.len() == 5 && yielding.len() <= 1 && !yielding.contains(&current().id()));
            let patient = ran.iter().take_while(|thread| yielding.contains(thread)).count();
            assert!(ran[patient..].iter().all(|thread| *thread == current().id()), "{ran:?}");
            patient
        }
    }

    impl BackgroundPriority for Beats {
        fn is_urgent(&self) -> bool {
            self.done.load(Ordering::Relaxed) >= self.urgent_after
        }

        fn lower_priority(&self) {
            self.yielding.lock().push(current().id());
        }
    }

    #[test]
    fn beats_change_threads_when_they_become_urgent() {
        for urgent_after in [0, 1, 3, 5, usize::MAX] {
            let beats = Beats::urgent_after(urgent_after);
            assert_eq!(beats.patient_of_five(None), urgent_after.min(5));
            assert_eq!(beats.yielding.lock().is_empty(), urgent_after == 0, "no thread is made for nothing");
        }
    }

    #[test]
    fn patience_has_an_end() {
        assert_eq!(Beats::urgent_after(usize::MAX).patient_of_five(Some(Instant::now())), 0);
        let long =
            [BackgroundWork::Flush, BackgroundWork::Compaction].map(BackgroundWork::background_time_max);
        assert!(long[0].is_some_and(|long| long > Duration::from_secs(1)) && long[1].is_none());
    }

    #[test]
    fn a_beat_that_fails_is_the_last_one() {
        for urgent_after in [0, usize::MAX] {
            let beats = Beats::urgent_after(urgent_after);
            let outcome = run_until(None, BackgroundWork::Compaction, &beats, || match beats.beat() {
                3 => Err(HBaseError::new(ErrorKind::Io, "the disk is full".to_owned())),
                _ => Ok(true),
            });
            assert!(outcome.is_err() && beats.ran.lock().len() == 3);
        }
    }
}
