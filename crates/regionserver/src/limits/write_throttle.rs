//! [`WriteThrottle`]: slows writers down smoothly before memory or files run out.
//!
//! HBase accepts writes at full speed up to a limit (unflushed bytes of a region or of the server,
//! files of a store). At the limit it abruptly rejects them, or delays flushes, which causes its
//! longest write latencies. Here the reply to a write is held for a time that grows with the third
//! power of the used part of the *approach* to a limit: a tenth of the approach costs 1 ms, half of
//! it 125 ms. This backpressure slows writers to the pace of flushes and compactions before they
//! reach the limit. At the limit, writes are rejected as in HBase.
//!
//! - unflushed bytes of a region: the approach begins at half of the limit; limit: flush size times
//!   `hbase.hregion.memstore.block.multiplier`: rejected
//! - unflushed bytes of the server: the approach begins one flush before the limit, see
//!   [`memstore`](crate::limits::memstore); limit: `...global.memstore.size`: rejected, and the
//!   reply is held for [`HOLD_MAX`]
//! - files of a store: the approach begins at `hbase.hstore.blockingStoreFiles`; limit: twice that:
//!   held for [`HOLD_MAX`], never rejected
//!
//! A write is already durable and visible while its reply is held; the held reply blocks no thread.
//! There are at most as many held replies as calls in flight, which the connections' budgets bound.

use std::collections::BinaryHeap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use evenkeel_common::clock;
use evenkeel_common::thread::{Supervisor, catch_and_log, spawn_essential};
use parking_lot::{Condvar, Mutex};

/// The longest time that a reply is held.
pub const HOLD_MAX: Duration = Duration::from_secs(1);

/// Shorter holds are skipped: timers are not that precise.
const HOLD_MIN: Duration = Duration::from_millis(1);

/// Returns how long to hold a reply if the fraction `used` of the approach to a limit is used.
/// `share` is the fraction of that hold that the call bears.
pub fn hold_for(used: f64, share: f64) -> Duration {
    let used = used.clamp(0.0, 1.0);
    let hold = HOLD_MAX.mul_f64(used * used * used * share.clamp(0.0, 1.0));
    if hold < HOLD_MIN { Duration::ZERO } else { hold }
}

/// Returns the used fraction of the approach from `start` to `limit`; more than 1 beyond the limit.
pub fn pressure(now: u64, start: u64, limit: u64) -> f64 {
    if now <= start { 0.0 } else { (now - start) as f64 / limit.saturating_sub(start).max(1) as f64 }
}

struct HeldReply {
    until: Instant,
    /// Replies held until the same instant are sent in order.
    number: u64,
    send: Box<dyn FnOnce() + Send>,
}

impl PartialEq for HeldReply {
    fn eq(&self, other: &Self) -> bool {
        (self.until, self.number) == (other.until, other.number)
    }
}

impl Eq for HeldReply {}

impl PartialOrd for HeldReply {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for HeldReply {
    /// Inverted, so that the heap's greatest element is the one to send first.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.until, other.number).cmp(&(self.until, self.number))
    }
}

#[derive(Default)]
struct State {
    held: BinaryHeap<HeldReply>,
    count: u64,
    /// The sum of all holds.
    total: Duration,
    stopped: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Holds replies. Dropping it sends all of them.
pub struct WriteThrottle {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl WriteThrottle {
    /// Starts its thread, which sleeps while no reply is held.
    ///
    /// # Errors
    /// I/O error if the thread cannot be started.
    pub fn start(supervisor: &Supervisor) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = shared.clone();
        let thread = spawn_essential("write-throttle", supervisor, move || {
            of_thread.run();
            Ok(())
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Runs `send` after `hold`, or immediately if `hold` is zero.
    pub fn hold(&self, hold: Duration, send: impl FnOnce() + Send + 'static) {
        if hold.is_zero() {
            return send();
        }
        let mut state = self.shared.state.lock();
        if state.stopped {
            drop(state);
            return send();
        }
        state.count += 1;
        state.total += hold;
        let number = state.count;
        state.held.push(HeldReply { until: clock::monotonic() + hold, number, send: Box::new(send) });
        self.shared.changed.notify_one();
    }

    /// Returns the number of replies held so far, including those already sent.
    pub fn count(&self) -> u64 {
        self.shared.state.lock().count
    }

    /// Returns the sum of all holds, including those that have not ended: `updatesBlockedTime`.
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
            let due = |held: &HeldReply| state.stopped || held.until <= clock::monotonic();
            if state.held.peek().is_some_and(due) {
                let send = state.held.pop().map(|held| held.send);
                parking_lot::MutexGuard::unlocked(&mut state, || {
                    // If this panics, the responder is dropped, which answers with an error.
                    catch_and_log("a delayed reply", || send.into_iter().for_each(|send| send()));
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
    fn the_hold_grows_with_the_cube_of_pressure() {
        assert_eq!(hold_for(0.0, 1.0), Duration::ZERO);
        assert_eq!(hold_for(0.09, 1.0), Duration::ZERO, "less than a timer can tell");
        assert_eq!(hold_for(0.5, 1.0), HOLD_MAX / 8);
        assert_eq!(hold_for(7.0, 1.0), HOLD_MAX);
        assert_eq!((hold_for(0.5, 0.5), hold_for(0.5, 7.0)), (HOLD_MAX / 16, HOLD_MAX / 8));
        assert_eq!(hold_for(0.5, 0.001), Duration::ZERO);
        assert_eq!((pressure(5, 10, 20), pressure(15, 10, 20), pressure(30, 10, 20)), (0.0, 0.5, 2.0));
        assert!(pressure(u64::MAX, 10, 10) > 1.0, "a limit that has no approach");
    }

    #[test]
    fn held_responses_leave_in_order_of_their_time() {
        let throttle = WriteThrottle::start(&Supervisor::log_only()).expect("thread");
        let (tell, told) = crossbeam_channel::unbounded();
        let started = Instant::now();
        for (ms, name) in [(60, "late"), (20, "soon"), (0, "now")] {
            let tell = tell.clone();
            throttle.hold(Duration::from_millis(ms), move || {
                tell.send((name, started.elapsed())).expect("the test waits")
            });
        }
        let sent: Vec<_> = told.iter().take(3).collect();
        assert_eq!(sent.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["now", "soon", "late"]);
        assert!(sent[1].1 >= Duration::from_millis(20) && sent[2].1 >= Duration::from_millis(60));
        assert_eq!((throttle.count(), throttle.total()), (2, Duration::from_millis(80)));
    }

    #[test]
    fn dropping_the_throttle_releases_held_responses() {
        let throttle = WriteThrottle::start(&Supervisor::log_only()).expect("thread");
        let (tell, told) = crossbeam_channel::bounded(1);
        throttle.hold(Duration::from_secs(3600), move || tell.send(()).expect("the test waits"));
        drop(throttle);
        assert_eq!(told.recv(), Ok(()));
    }
}
