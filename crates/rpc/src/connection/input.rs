//! What connections hold of input that is no whole request yet, and the watch on those that hold it
//! for long.
//!
//! Every such byte is taken from two budgets, from the first byte after accept on: that of all
//! requests, so that they and it share one part of the memory; and [`InputBudget`], a part of that,
//! so that however many clients begin requests and do not end them, whole requests of others find
//! room. Input that finds no room is refused. The read buffer's room for more is given back when
//! nothing comes for a while (`watch.rs`).
//!
//! | input | beyond its limit |
//! |---|---|
//! | preamble, token, header: [`CONNECTION_HEADER_BYTES_MAX`] | the connection is closed |
//! | a header in use, beyond [`HEADER_BYTES_UNCOUNTED`] | the connection is closed |
//! | a request being received | CallQueueTooBigException, or before its header is there: closed |
//! | whole requests that wait because their connection has too many | the connection is closed |
//!
//! A request that has begun must go on: [`Progress`] says when its connection is closed for that.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::worker::Worker;
use evenkeel_common::{Budget, clock};

/// Longest preamble, SASL token or ConnectionHeader. Those of HBase's clients have some hundred
/// bytes.
pub(crate) const CONNECTION_HEADER_BYTES_MAX: usize = 64 << 10;
/// What of a ConnectionHeader, or of a request whose header is not there, belongs to the cost of
/// every connection.
pub(crate) const HEADER_BYTES_UNCOUNTED: usize = 1 << 10;
/// A request that arrives no slower than this is never late.
const RATE_BYTES_PER_SECOND: f64 = 65_536.0;
/// While room is short, a request that has begun has this long.
const PRESSED_TIMEOUT: Duration = Duration::from_secs(1);
/// Room is short for this long after some input found none.
const PRESSED_FOR_MS: u64 = 5000;

/// Room for input that is no whole request yet: 13/16 of that for requests. One of 256 MiB and more
/// has so room for the largest cell by default; what is left is more than lies idle in the threads'
/// shares (an eighth).
#[derive(Debug)]
pub struct InputBudget {
    bytes: Arc<Budget>,
    made_at: Instant,
    /// When input last found no room, in milliseconds after `made_at`, and one more; 0 for never.
    refused_ms: AtomicU64,
}

impl InputBudget {
    /// The part of `requests` bytes.
    pub fn of(requests: u64) -> Arc<Self> {
        Arc::new(InputBudget {
            bytes: Budget::new(Self::max_of(requests)),
            made_at: clock::monotonic(),
            refused_ms: AtomicU64::new(0),
        })
    }

    /// Bytes of that part; no request can be longer.
    pub fn max_of(requests: u64) -> u64 {
        (requests / 16 * 13).max(1)
    }

    /// Bytes taken.
    pub fn used(&self) -> u64 {
        self.bytes.used()
    }

    /// Takes `bytes` if they are there; else room is short for a while.
    pub fn take(&self, bytes: u64) -> bool {
        let taken = self.bytes.take(bytes);
        if !taken {
            self.refused_ms.store(self.now_ms() + 1, Ordering::Relaxed);
        }
        taken
    }

    /// Gives back what was taken.
    pub fn give(&self, bytes: u64) {
        self.bytes.give(bytes);
    }

    /// Whether room is short: some input found none a moment ago, or less than a quarter is left.
    pub fn is_pressed(&self) -> bool {
        let refused_ms = self.refused_ms.load(Ordering::Relaxed);
        let was_pressed = refused_ms > 0 && self.now_ms() < refused_ms + PRESSED_FOR_MS;
        was_pressed || self.bytes.free() < self.bytes.max() / 4
    }

    /// How long input may take that has `timeout` while there is room.
    pub fn timeout(&self, timeout: Duration) -> Duration {
        if self.is_pressed() { timeout.min(PRESSED_TIMEOUT) } else { timeout }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.made_at.elapsed().as_millis()).unwrap_or(u64::MAX / 2)
    }
}

/// The time that a client has to end what it has begun. It has a timeout, from which the time is
/// taken that its bytes do not earn: each is worth what it takes at 64 KiB a second, and none earns
/// more than the timeout. So a steady stream is never late; one byte a second is after little more
/// than the timeout, however much came before.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    due: Instant,
    bytes: usize,
}

impl Progress {
    /// Input that begins at `now`.
    pub fn begin(now: Instant, timeout: Duration) -> Self {
        Progress { due: now + timeout, bytes: 0 }
    }

    /// As it is with `bytes` there, at `now`.
    pub fn with(self, bytes: usize, now: Instant, timeout: Duration) -> Self {
        let more = bytes.saturating_sub(self.bytes);
        let earned = Duration::from_secs_f64(more as f64 / RATE_BYTES_PER_SECOND);
        Progress { due: (self.due + earned).min(now + timeout), bytes }
    }

    /// Whether it is late at `now`, when only `allowed` of the `timeout` may be used up.
    pub fn is_late(self, now: Instant, timeout: Duration, allowed: Duration) -> bool {
        now + timeout.saturating_sub(allowed) > self.due
    }
}

/// Input bytes that one connection has taken from the budgets. Gives them back when dropped.
pub(crate) struct HeldInput {
    worker: Rc<Worker>,
    bytes: usize,
}

impl HeldInput {
    pub fn new(worker: Rc<Worker>) -> Self {
        HeldInput { worker, bytes: 0 }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Holds `bytes` at least; false, and as before, when there is no room for them.
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return true;
        }
        let input = self.worker.input();
        if !input.take(more as u64) {
            return false;
        }
        if !self.worker.take_bytes(more) {
            input.give(more as u64);
            return false;
        }
        self.bytes += more;
        true
    }

    /// Gives all of them back.
    pub fn clear(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.worker.give_bytes(bytes);
        self.worker.input().give(bytes as u64);
    }
}

impl Drop for HeldInput {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_a_second_is_late_and_a_steady_stream_is_not() {
        let (began, timeout) = (Instant::now(), Duration::from_secs(30));
        let after = |seconds: u64| began + Duration::from_secs(seconds);
        let late_at = |first: usize, each_second: usize| {
            let mut progress = Progress::begin(began, timeout);
            (0..4000_u64).find(|second| {
                let is_late = progress.is_late(after(*second), timeout, timeout);
                let bytes = first + each_second * *second as usize;
                progress = progress.with(bytes, after(*second), timeout);
                is_late
            })
        };
        assert_eq!(late_at(4, 0), Some(31), "a length alone");
        assert_eq!(late_at(4, 1), Some(31));
        assert_eq!(late_at(100 << 20, 1), Some(31), "what came at once earns no more");
        assert_eq!(late_at(4, 32 << 10), Some(60), "half of the rate");
        assert_eq!(late_at(4, 64 << 10), None);
        let progress = Progress::begin(began, timeout);
        let short = Duration::from_secs(1);
        assert!(!progress.is_late(after(1), timeout, short) && progress.is_late(after(2), timeout, short));
    }

    #[test]
    fn time_is_short_while_room_is() {
        let (budget, timeout) = (InputBudget::of(1600), Duration::from_secs(30));
        assert!(budget.take(900));
        assert_eq!(budget.timeout(timeout), timeout);
        assert!(!budget.take(500), "13 of 16 parts are all there is");
        assert_eq!(budget.timeout(timeout), PRESSED_TIMEOUT);
        budget.refused_ms.store(0, Ordering::Relaxed);
        assert_eq!(budget.timeout(timeout), timeout);
        assert!(budget.take(400));
        assert_eq!(budget.timeout(timeout), PRESSED_TIMEOUT, "nothing is left");
        budget.give(1300);
        assert_eq!((budget.used(), budget.timeout(timeout)), (0, timeout));
    }
}
