//! [`Lease`]: how long this server may count as alive, by its own clock.
//!
//! ZooKeeper's leader expires a session that has been silent for the session timeout. So if it
//! answers a request that this server sent at a time `t`, the session lives until `t` plus the
//! timeout, whatever happens afterwards. The lease ends a tenth of the timeout earlier, because
//! clocks run at different rates, and because a server of ZooKeeper that follows the leader tells
//! it a little later which sessions were used. A server whose lease has ended acknowledges nothing
//! and aborts. It does not wait for a notification, since it may be the one that is unreachable.
//!
//! **The lease proves nothing about the master**, which may declare a server dead while its session
//! lives: after errors of the network, on the request of an operator, or because somebody deletes
//! the znode. It renames the server's log directory first. On HDFS it then revokes the lease of the
//! log; on other storage [`fenced_fs`](crate::fenced_fs) looks whether the log is still there.
//!
//! **The lease ends for good** when the server aborts, and when it has a reason to fail: a log that
//! cannot be written, a thread that has died. A ping that is answered later does not revive it.
//!
//! Time is the monotonic clock, which continues while the process is suspended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use evenkeel_common::clock;
use evenkeel_common::length;
use evenkeel_process::FailureReason;

/// The part of the session's timeout by which a lease ends early: 1/`MARGIN`.
const MARGIN: u32 = 10;

/// See the module's documentation.
#[derive(Debug)]
pub struct Lease {
    began: Instant,
    session_timeout: Duration,
    /// Milliseconds after `began`.
    until_ms: AtomicU64,
    has_ended: AtomicBool,
    /// Why the server must stop, if it must. Then the lease has ended, too.
    failure: FailureReason,
}

impl Lease {
    /// The lease of a session that was opened by a request sent at `began`.
    pub fn new(began: Instant, session_timeout: Duration) -> Self {
        let (until_ms, has_ended, failure) = Default::default();
        let lease = Self { began, session_timeout, until_ms, has_ended, failure };
        lease.extend(began);
        lease
    }

    /// Makes the lease end when `failure` has a reason.
    pub fn ended_by(self, failure: &FailureReason) -> Self {
        Self { failure: Arc::clone(failure), ..self }
    }

    /// Extends the lease: ZooKeeper has answered a request that was sent at `sent`.
    pub fn extend(&self, sent: Instant) {
        let length = self.session_timeout - self.session_timeout / MARGIN;
        let until = sent.saturating_duration_since(self.began) + length;
        self.until_ms.fetch_max(length::whole_ms(until), Ordering::AcqRel);
    }

    /// Ends it for good.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
    }

    /// Returns true if it holds now.
    pub fn holds(&self) -> bool {
        !self.left().is_zero()
    }

    /// Returns the remaining time; zero once it has ended.
    pub fn left(&self) -> Duration {
        if self.has_ended.load(Ordering::Acquire) || self.failure.get().is_some() {
            return Duration::ZERO;
        }
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
        lease.extend(clock::monotonic());
        assert!(!lease.holds(), "a ping that was on its way revives nothing");
    }

    #[test]
    fn a_reason_to_fail_ends_the_lease() {
        let failure = FailureReason::default();
        let lease = Lease::new(clock::monotonic(), Duration::from_secs(600)).ended_by(&failure);
        assert!(lease.holds());
        failure.set("the WAL failed".to_owned()).expect("the first reason");
        lease.extend(clock::monotonic());
        assert!(!lease.holds());
    }
}
