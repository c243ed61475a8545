//! [`WriteThrottle`]: writers slow down smoothly before memory or files run out.
//!
//! HBase lets writes in at full speed up to a limit (unflushed bytes of a region or of the server,
//! files of a store) and then refuses them, or holds flushes back, until the limit is cleared: a
//! cliff, and the cause of its longest write spikes. Here the answer to a write is held for a time
//! that grows with the third power of how far its region has come into the *approach* to a limit: a
//! thousandth of the way costs nothing, half of it an eighth of a second. Writers that wait for
//! answers so come down to the pace of flushes and compactions before the limit is reached; beyond
//! it the refusals are HBase's own.
//!
//! - unflushed bytes of a region: approach begins: half of the limit; limit: flush size times
//!   `hbase.hregion.memstore.block.multiplier`: refused
//! - unflushed bytes of the server: approach begins: one flush before the limit, see
//!   [`memstore`](crate::limits::memstore); limit: `...global.memstore.size`: refused, and told
//!   after [`HOLD_MAX`]
//! - files of a store: approach begins: `hbase.hstore.blockingStoreFiles`; limit: twice that: held
//!   for [`HOLD_MAX`], never refused
//!
//! A write is durable and visible when its answer is held; nothing of the server waits with it but
//! the answer itself. There are no more held answers than calls in flight, which the connections'
//! budgets bound.

use std::collections::BinaryHeap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use evenkeel_common::clock;
use evenkeel_common::thread::{Supervisor, catch_and_log, spawn_essential};
use parking_lot::{Condvar, Mutex};

/// The longest time that an answer is held.
pub const HOLD_MAX: Duration = Duration::from_secs(1);

/// Shorter holds are none: a timer is not that exact.
const HOLD_MIN: Duration = Duration::from_millis(1);

/// How long to hold an answer when this part of the approach to a limit is used up: 0 for none of
/// it, 1 for all. `share` is the part of that which a call has to bear, 1 for all of it.
pub fn hold_for(used: f64, share: f64) -> Duration {
    let used = used.clamp(0.0, 1.0);
    let hold = HOLD_MAX.mul_f64(used * used * used * share.clamp(0.0, 1.0));
    if hold < HOLD_MIN { Duration::ZERO } else { hold }
}

/// Which part of the way from `start` to `limit` has been gone; more than 1 beyond.
pub fn used(now: u64, start: u64, limit: u64) -> f64 {
    if now <= start { 0.0 } else { (now - start) as f64 / limit.saturating_sub(start).max(1) as f64 }
}

type Answer = Box<dyn FnOnce() + Send>;

struct Held {
    until: Instant,
    /// Answers held until the same instant leave in order.
    number: u64,
    answer: Answer,
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        (self.until, self.number) == (other.until, other.number)
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    /// The heap's greatest is the one that leaves first.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.until, other.number).cmp(&(self.until, self.number))
    }
}

#[derive(Default)]
struct State {
    held: BinaryHeap<Held>,
    count: u64,
    /// The holds of all of them together.
    total: Duration,
    stopped: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Holds answers. Dropping it lets all of them go.
pub struct WriteThrottle {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl WriteThrottle {
    /// Starts its thread, which sleeps while nothing is held.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(supervisor: &Supervisor) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = shared.clone();
        let thread = spawn_essential("write-throttle", supervisor, move || {
            of_thread.run();
            Ok(())
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Runs `answer` after `hold`, at once when that is nothing.
    pub fn hold(&self, hold: Duration, answer: impl FnOnce() + Send + 'static) {
        if hold.is_zero() {
            return answer();
        }
        let mut state = self.shared.state.lock();
        if state.stopped {
            drop(state);
            return answer();
        }
        state.count += 1;
        state.total += hold;
        let number = state.count;
        state.held.push(Held { until: clock::monotonic() + hold, number, answer: Box::new(answer) });
        self.shared.changed.notify_one();
    }

    /// Answers held so far, those that left again included.
    pub fn count(&self) -> u64 {
        self.shared.state.lock().count
    }

    /// How long they were held, or will be, together: `updatesBlockedTime`.
    pub fn total(&self) -> Duration {
        self.shared.state.lock().total
    }
}

impl Drop for WriteThrottle {
    fn drop(&mut self) {
        self.shared.state.lock().stopped = true;
        self.shared.changed.notify_one();
        drop(self.thread.take().map(JoinHandle::join));
    }
}

impl Shared {
    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            let due = |held: &Held| state.stopped || held.until <= clock::monotonic();
            if state.held.peek().is_some_and(due) {
                let answer = state.held.pop().map(|held| held.answer);
                parking_lot::MutexGuard::unlocked(&mut state, || {
                    // A responder that is dropped answers.
                    catch_and_log("an answer that was held", || {
                        answer.into_iter().for_each(|answer| answer())
                    });
                });
                continue;
            }
            if state.stopped {
                return;
            }
            match state.held.peek().map(|held| held.until) {
                Some(until) => drop(self.changed.wait_until(&mut state, until)),
                None => self.changed.wait(&mut state),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hold_grows_with_the_third_power() {
        assert_eq!(hold_for(0.0, 1.0), Duration::ZERO);
        assert_eq!(hold_for(0.09, 1.0), Duration::ZERO, "less than a timer can tell");
        assert_eq!(hold_for(0.5, 1.0), HOLD_MAX / 8);
        assert_eq!(hold_for(7.0, 1.0), HOLD_MAX);
        assert_eq!((hold_for(0.5, 0.5), hold_for(0.5, 7.0)), (HOLD_MAX / 16, HOLD_MAX / 8));
        assert_eq!(hold_for(0.5, 0.001), Duration::ZERO);
        assert_eq!((used(5, 10, 20), used(15, 10, 20), used(30, 10, 20)), (0.0, 0.5, 2.0));
        assert!(used(u64::MAX, 10, 10) > 1.0, "a limit that has no approach");
    }

    #[test]
    fn answers_leave_when_their_time_has_come_and_in_order() {
        let throttle = WriteThrottle::start(&Supervisor::log_only()).expect("thread");
        let (tell, told) = crossbeam_channel::unbounded();
        let started = Instant::now();
        for (ms, name) in [(60, "late"), (20, "soon"), (0, "now")] {
            let tell = tell.clone();
            throttle.hold(Duration::from_millis(ms), move || {
                tell.send((name, started.elapsed())).expect("the test waits")
            });
        }
        let answers: Vec<_> = told.iter().take(3).collect();
        assert_eq!(answers.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["now", "soon", "late"]);
        assert!(answers[1].1 >= Duration::from_millis(20) && answers[2].1 >= Duration::from_millis(60));
        assert_eq!((throttle.count(), throttle.total()), (2, Duration::from_millis(80)));
    }

    #[test]
    fn nothing_is_kept_when_it_ends() {
        let throttle = WriteThrottle::start(&Supervisor::log_only()).expect("thread");
        let (tell, told) = crossbeam_channel::bounded(1);
        throttle.hold(Duration::from_secs(3600), move || tell.send(()).expect("the test waits"));
        drop(throttle);
        assert_eq!(told.recv(), Ok(()));
    }
}
