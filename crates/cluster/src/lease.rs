//! [`Lease`]: how long this server may count as alive, by its own clock.
//!
//! ZooKeeper expires a session that has been silent for the session timeout. Only then does the
//! master declare the server dead, split its logs and assign its regions to others. So a response
//! to a request that this server sent at a time `t` proves that it counts as alive until `t` plus
//! the timeout, whatever happens afterwards. The lease ends a tenth of the timeout earlier, because
//! clocks run at different rates. A server whose lease has ended acknowledges nothing and aborts.
//! It does not wait for a notification, since it may be the one that is unreachable.
//!
//! Time is the monotonic clock, which continues while the process is suspended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use evenkeel_common::clock;
use evenkeel_common::length;

/// The part of the session's timeout by which a lease ends early: 1/`MARGIN`.
const MARGIN: u32 = 10;

/// See the module's documentation.
#[derive(Debug)]
pub struct Lease {
    began: Instant,
    session_timeout: Duration,
    /// Milliseconds after `began`.
    until_ms: AtomicU64,
}

impl Lease {
    /// The lease of a session that was opened by a request sent at `began`.
    pub fn new(began: Instant, session_timeout: Duration) -> Self {
        let lease = Self { began, session_timeout, until_ms: AtomicU64::new(0) };
        lease.extend(began);
        lease
    }

    /// Extends the lease: ZooKeeper has answered a request that was sent at `sent`.
    pub fn extend(&self, sent: Instant) {
        let length = self.session_timeout - self.session_timeout / MARGIN;
        let until = sent.saturating_duration_since(self.began) + length;
        self.until_ms.fetch_max(length::whole_ms(until), Ordering::AcqRel);
    }

    /// Ends it now, unless it is extended later.
    pub fn end(&self) {
        self.until_ms.store(0, Ordering::Release);
    }

    /// Returns true if it holds now.
    pub fn holds(&self) -> bool {
        !self.left().is_zero()
    }

    /// Returns the remaining time; zero once it has ended.
    pub fn left(&self) -> Duration {
        let until = Duration::from_millis(self.until_ms.load(Ordering::Acquire));
        until.saturating_sub(clock::monotonic().saturating_duration_since(self.began))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_counts_from_when_the_request_was_sent() {
        let long_ago = clock::monotonic().checked_sub(Duration::from_secs(95)).expect("an uptime");
        let lease = Lease::new(long_ago, Duration::from_secs(100));
        assert!(!lease.holds(), "90 of 100 s are over");
        lease.extend(long_ago + Duration::from_secs(20));
        assert!(lease.holds() && lease.left() <= Duration::from_secs(15));
        lease.extend(long_ago + Duration::from_secs(10));
        assert!(lease.left() > Duration::from_secs(10), "an older reply takes nothing away");
        lease.end();
        assert!(!lease.holds());
    }
}
