//! Budgets and timeouts of incomplete requests.
//!
//! Every byte of incomplete input, from the first after accept, is charged to two budgets: that of
//! all requests, so that both share one part of the memory; and [`InputBudget`], a fraction of
//! that, so that whole requests of other clients still fit, however many clients begin requests
//! without finishing them. Input that does not fit is refused. Unused capacity of the read buffer
//! is released when no bytes arrive for a while (`connection_monitor.rs`).
//!
//! | input | when the limit is exceeded |
//! |---|---|
//! | preamble, token, header: [`CONNECTION_HEADER_BYTES_MAX`] | the connection is closed |
//! | a decoded header, above [`HEADER_BYTES_FREE`] | the connection is closed |
//! | a request being received | CallQueueTooBigException; before its header has arrived: closed |
//! | whole requests that wait because their connection has too many | the connection is closed |
//!
//! A request that has begun must make progress: [`ReceiveDeadline`] decides when its connection is
//! closed.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::connection_thread::ConnectionThread;
use evenkeel_common::{Budget, clock};

/// Limit of a preamble, SASL token or ConnectionHeader. Those of HBase's clients have some hundred
/// bytes.
pub(crate) const CONNECTION_HEADER_BYTES_MAX: usize = 64 << 10;
/// Bytes of a ConnectionHeader, or of a request whose header is incomplete, that are not counted:
/// they belong to the fixed cost of a connection.
pub(crate) const HEADER_BYTES_FREE: usize = 1 << 10;
/// A request that arrives at this rate or faster is never late.
const RATE_BYTES_PER_SECOND: f64 = 65_536.0;
/// Timeout of a request that has begun, while the budget is short.
const SHORT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the budget counts as short after input did not fit.
const SHORT_FOR_MS: u64 = 5000;

/// Budget of incomplete requests: 13/16 of the budget of all requests. With a budget of 256 MiB or
/// more, the largest cell of the default configuration fits. The remainder is more than the idle
/// chunks of the threads, which are at most an eighth.
#[derive(Debug)]
pub struct InputBudget {
    bytes: Arc<Budget>,
    made_at: Instant,
    /// When input last did not fit, in milliseconds after `made_at` plus one; 0 for never.
    refused_ms: AtomicU64,
}

impl InputBudget {
    /// Returns the input budget for a budget of `requests` bytes.
    pub fn of(requests: u64) -> Arc<Self> {
        Arc::new(InputBudget {
            bytes: Budget::new(Self::max_of(requests)),
            made_at: clock::monotonic(),
            refused_ms: AtomicU64::new(0),
        })
    }

    /// Returns the size of that budget, which is also the limit of a request.
    pub fn max_of(requests: u64) -> u64 {
        (requests / 16 * 13).max(1)
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.bytes.used()
    }

    /// Takes `bytes` if they fit; otherwise the budget counts as short for a while.
    pub fn acquire(&self, bytes: u64) -> bool {
        let taken = self.bytes.acquire(bytes);
        if !taken {
            self.refused_ms.store(self.now_ms() + 1, Ordering::Relaxed);
        }
        taken
    }

    /// Returns bytes to the budget.
    pub fn release(&self, bytes: u64) {
        self.bytes.release(bytes);
    }

    /// Returns true if the budget is short: input did not fit recently, or less than a quarter is
    /// free.
    pub fn is_short(&self) -> bool {
        let refused_ms = self.refused_ms.load(Ordering::Relaxed);
        let was_short = refused_ms > 0 && self.now_ms() < refused_ms + SHORT_FOR_MS;
        was_short || self.bytes.free() < self.bytes.max() / 4
    }

    /// Returns the timeout of input: `timeout`, or less while the budget is short.
    pub fn timeout(&self, timeout: Duration) -> Duration {
        if self.is_short() { timeout.min(SHORT_TIMEOUT) } else { timeout }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(clock::since(self.made_at).as_millis()).unwrap_or(u64::MAX / 2)
    }
}

/// The deadline for an incomplete request. It starts at the timeout, and each byte that arrives
/// extends it by its transfer time at 64 KiB a second, up to the full timeout from then on. A
/// steady stream is therefore never late, and a client that sends one byte a second is late after
/// little more than the timeout, however much it sent before.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveDeadline {
    due: Instant,
    bytes: usize,
}

impl ReceiveDeadline {
    /// Returns the progress of input that begins at `now`.
    pub fn begin(now: Instant, timeout: Duration) -> Self {
        ReceiveDeadline { due: now + timeout, bytes: 0 }
    }

    /// Returns the progress with a total of `bytes` at `now`.
    pub fn advance(self, bytes: usize, now: Instant, timeout: Duration) -> Self {
        let more = bytes.saturating_sub(self.bytes);
        let earned = Duration::from_secs_f64(more as f64 / RATE_BYTES_PER_SECOND);
        ReceiveDeadline { due: (self.due + earned).min(now + timeout), bytes }
    }

    /// Returns true if the input is late at `now`, where only `allowed` of the `timeout` may be
    /// used.
    pub fn is_late(self, now: Instant, timeout: Duration, allowed: Duration) -> bool {
        now + timeout.saturating_sub(allowed) > self.due
    }
}

/// Input bytes that one connection has taken from the budgets. Dropping it returns them.
pub(crate) struct InputCharge {
    thread: Rc<ConnectionThread>,
    bytes: usize,
}

impl InputCharge {
    pub fn new(thread: Rc<ConnectionThread>) -> Self {
        InputCharge { thread, bytes: 0 }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Raises the held bytes to at least `bytes`. Returns false, without a change, if they do not
    /// fit.
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return true;
        }
        let input = self.thread.input();
        if !input.acquire(more as u64) {
            return false;
        }
        if !self.thread.acquire_bytes(more) {
            input.release(more as u64);
            return false;
        }
        self.bytes += more;
        true
    }

    /// Returns all held bytes.
    pub fn clear(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.thread.release_bytes(bytes);
        self.thread.input().release(bytes as u64);
    }
}

impl Drop for InputCharge {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trickle_times_out_and_a_steady_stream_does_not() {
        let (began, timeout) = (Instant::now(), Duration::from_secs(30));
        let after = |seconds: u64| began + Duration::from_secs(seconds);
        let late_at = |first: usize, each_second: usize| {
            let mut progress = ReceiveDeadline::begin(began, timeout);
            (0..4000_u64).find(|second| {
                let is_late = progress.is_late(after(*second), timeout, timeout);
                let bytes = first + each_second * *second as usize;
                progress = progress.advance(bytes, after(*second), timeout);
                is_late
            })
        };
        assert_eq!(late_at(4, 0), Some(31), "a length alone");
        assert_eq!(late_at(4, 1), Some(31));
        assert_eq!(late_at(100 << 20, 1), Some(31), "what came at once earns no more");
        assert_eq!(late_at(4, 32 << 10), Some(60), "half of the rate");
        assert_eq!(late_at(4, 64 << 10), None);
        let progress = ReceiveDeadline::begin(began, timeout);
        let short = Duration::from_secs(1);
        assert!(!progress.is_late(after(1), timeout, short) && progress.is_late(after(2), timeout, short));
    }

    #[test]
    fn the_timeout_is_short_while_the_budget_is() {
        let (budget, timeout) = (InputBudget::of(1600), Duration::from_secs(30));
        assert!(budget.acquire(900));
        assert_eq!(budget.timeout(timeout), timeout);
        assert!(!budget.acquire(500), "13 of 16 parts are all there is");
        assert_eq!(budget.timeout(timeout), SHORT_TIMEOUT);
        budget.refused_ms.store(0, Ordering::Relaxed);
        assert_eq!(budget.timeout(timeout), timeout);
        assert!(budget.acquire(400));
        assert_eq!(budget.timeout(timeout), SHORT_TIMEOUT, "nothing is left");
        budget.release(1300);
        assert_eq!((budget.used(), budget.timeout(timeout)), (0, timeout));
    }
}
