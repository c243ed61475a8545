//! [`Patience`]: a flush that nobody waits for yields the processors.
//!
//! A flush takes all that a core can do, and requests wait for what it takes: two flushes beside a compaction leave less than a
//! third of one core to all connections. So its cells are written by a thread of lower priority, in beats of some hundred,
//! until somebody waits for the memory that it gives back; from the next beat on they are written by the thread that began:
//!
//! ```text
//! flusher          snapshot --+                          +-- beat, beat -- end of the file, renames, commit
//!                             |                          |
//! patient thread              +-- beat, beat -- (urgent) +
//! ```
//!
//! There are two threads because one is not enough: whoever lowers its priority needs a privilege to raise it again. (The same holds
//! for `SCHED_IDLE`, and `SCHED_BATCH` changes no share. Sleeping between beats would need none of this, but it would
//! leave idle processors idle.) The patient thread is made for a file and ends with its last beat there. The flusher waits for that
//! meanwhile, so there are no more flushes at once than before; what passes between them is who runs the next beat.
//!
//! # When it ends
//! A lower priority is a smaller share of a core, but a share whatever else runs, so every beat ends. What is not written
//! after [`PATIENCE_MAX`] is urgent, whoever waits.

use std::time::{Duration, Instant};

use evenkeel_common::Result;

/// The longest time that a file of a flush is written patiently.
const PATIENCE_MAX: Duration = Duration::from_secs(10);

/// How a flush shares the processors with what goes on beside it.
pub trait Patience: Sync {
    /// Whether somebody waits for the memory that the flush gives back, or for its end. Asked before each beat, on the thread
    /// that is to run it.
    fn is_urgent(&self) -> bool;

    /// Lowers the priority of the calling thread, which ends with this file.
    fn yield_to_others(&self);
}

/// Runs `beat` until it says that there is no more: on a thread that yields to others as long as nothing is urgent, then on this
/// one.
///
/// # Errors
/// What a beat says; it is the last one then.
pub(super) fn run(patience: &dyn Patience, beat: impl FnMut() -> Result<bool> + Send) -> Result<()> {
    run_until(Instant::now() + PATIENCE_MAX, patience, beat)
}

fn run_until(
    end: Instant,
    patience: &dyn Patience,
    mut beat: impl FnMut() -> Result<bool> + Send,
) -> Result<()> {
    let is_patient = || !patience.is_urgent() && Instant::now() < end;
    if is_patient()
        && !on_another_thread(|| {
            patience.yield_to_others();
            while is_patient() {
                if !beat()? {
                    return Ok(false);
                }
            }
            Ok(true)
        })?
    {
        return Ok(());
    }
    while beat()? {}
    Ok(())
}

/// Runs `beats` on a thread of its own; whether there are more. There are, too, when it cannot be made.
fn on_another_thread(beats: impl FnOnce() -> Result<bool> + Send) -> Result<bool> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("flush-patient".to_owned()).spawn_scoped(scope, beats);
        match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(_) => Ok(true),
        }
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
        fn patient_of_five(&self, end: Instant) -> usize {
            run_until(end, self, || Ok(self.beat() < 5)).expect("no beat fails");
            let (ran, yielding) = (self.ran.lock(), self.yielding.lock());
            assert!(ran.len() == 5 && yielding.len() <= 1 && !yielding.contains(&current().id()));
            let patient = ran.iter().take_while(|thread| yielding.contains(thread)).count();
            assert!(ran[patient..].iter().all(|thread| *thread == current().id()), "{ran:?}");
            patient
        }
    }

    impl Patience for Beats {
        fn is_urgent(&self) -> bool {
            self.done.load(Ordering::Relaxed) >= self.urgent_after
        }

        fn yield_to_others(&self) {
            self.yielding.lock().push(current().id());
        }
    }

    fn late() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    #[test]
    fn beats_change_threads_when_they_become_urgent() {
        for urgent_after in [0, 1, 3, 5, usize::MAX] {
            let beats = Beats::urgent_after(urgent_after);
            assert_eq!(beats.patient_of_five(late()), urgent_after.min(5));
            assert_eq!(beats.yielding.lock().is_empty(), urgent_after == 0, "no thread is made for nothing");
        }
    }

    #[test]
    fn patience_has_an_end() {
        assert_eq!(Beats::urgent_after(usize::MAX).patient_of_five(Instant::now()), 0);
    }

    #[test]
    fn a_beat_that_fails_is_the_last_one() {
        for urgent_after in [0, usize::MAX] {
            let beats = Beats::urgent_after(urgent_after);
            let outcome = run_until(late(), &beats, || match beats.beat() {
                3 => Err(HBaseError::new(ErrorKind::Io, "the disk is full".to_owned())),
                _ => Ok(true),
            });
            assert!(outcome.is_err() && beats.ran.lock().len() == 3);
        }
    }
}
