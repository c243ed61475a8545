//! Stalls: one DataNode of a log does not acknowledge a packet that all others have.
//!
//! The writers of a log wait for its slowest DataNode, so a DataNode that pauses for ten seconds
//! stops a server for ten seconds. A log with [`REPLICAS_MIN`] DataNodes or more, and with all that
//! were requested, therefore breaks after `Settings::stall_timeout`, as by any other failure: its
//! writer continues in a new log without that DataNode. Unlike a failed DataNode, a stalled one is
//! excluded for [`EXCLUSION`] only, since most pauses are short.
//!
//! **A sync may take longer**, and so may the packets behind it, because it depends on the disk of
//! each DataNode. Disks of one cluster are alike, so the limit of such a packet grows by
//! [`DISK_FACTOR`] times what the other DataNodes needed for it. The end of a log is synced, too,
//! but no writer waits for it, so a log does not break there.
//!
//! **A log with few replicas waits.** The new log may have a replica less than requested, if the
//! cluster has no other DataNode. It does not break by a second stall, so that a write is never on
//! fewer DataNodes than one less than requested because of stalls.
//!
//! **[`StallBudget`] bounds the number of logs.** DataNodes that pause again and again would
//! otherwise leave a broken log at each pause.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_common::clock;
use parking_lot::Mutex;

/// The minimum number of DataNodes of a log that breaks by a stall: two keep its entries.
pub(crate) const REPLICAS_MIN: usize = 3;

/// How long a DataNode that stalled is excluded.
pub(crate) const EXCLUSION: Duration = Duration::from_secs(30);

/// The number of logs that may break by stalls within [`WINDOW`].
const BREAKS_MAX: usize = 3;

/// The window in which those logs count.
const WINDOW: Duration = Duration::from_secs(600);

/// Unacknowledged bytes per second that a DataNode may be behind.
const BEHIND_BYTES_PER_SECOND: usize = 20 << 20;

/// How much longer than the other disks a disk may need for a sync, as a factor.
const DISK_FACTOR: u32 = 10;

/// The logs of a client that broke by stalls.
#[derive(Debug, Default)]
pub(crate) struct StallBudget {
    /// Their times, oldest first.
    breaks: Mutex<VecDeque<Instant>>,
}

impl StallBudget {
    /// Returns true if another log may break now, which then counts.
    fn take(&self, now: Instant) -> bool {
        let mut breaks = self.breaks.lock();
        while breaks.front().is_some_and(|at| now.duration_since(*at) >= WINDOW) {
            breaks.pop_front();
        }
        let may_break = breaks.len() < BREAKS_MAX;
        if may_break {
            breaks.push_back(now);
        }
        may_break
    }
}

/// When a log breaks by a stall.
#[derive(Clone, Debug)]
pub(crate) struct StallLimit {
    /// How long all other DataNodes may be ahead.
    timeout: Duration,
    budget: Arc<StallBudget>,
}

impl StallLimit {
    pub(crate) fn new(timeout: Duration, budget: &Arc<StallBudget>) -> Self {
        Self { timeout, budget: Arc::clone(budget) }
    }

    /// Returns how long the last DataNode may still take for a packet that all others acknowledged
    /// at `others_acked`, while `bytes` are unacknowledged. `disk_time` is what the others needed
    /// for a packet that waits for disks, zero for any other.
    pub(crate) fn time_left(&self, others_acked: Instant, disk_time: Duration, bytes: usize) -> Duration {
        let ms = u64::try_from(bytes / (BEHIND_BYTES_PER_SECOND / 1000)).unwrap_or(u64::MAX);
        let allowed = self.timeout.saturating_add(Duration::from_millis(ms));
        let allowed = allowed.saturating_add(disk_time.saturating_mul(DISK_FACTOR));
        allowed.saturating_sub(clock::since(others_acked))
    }

    /// Returns true if the log may break now, which then counts.
    pub(crate) fn take(&self) -> bool {
        self.budget.take(clock::monotonic())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_that_may_break_are_limited() {
        let (budget, start) = (StallBudget::default(), Instant::now());
        assert!((0..BREAKS_MAX).all(|_| budget.take(start)));
        assert!(!budget.take(start + WINDOW - Duration::from_secs(1)));
        assert!((0..BREAKS_MAX).all(|_| budget.take(start + WINDOW)));
        assert!(!budget.take(start + WINDOW));
    }

    #[test]
    fn many_bytes_may_take_longer() {
        let limit = StallLimit::new(Duration::from_millis(50), &Arc::default());
        let left = |bytes| limit.time_left(Instant::now(), Duration::ZERO, bytes);
        assert!(left(1000) <= Duration::from_millis(50));
        assert!((Duration::from_millis(900)..Duration::from_millis(1100)).contains(&left(20 << 20)));
        let long_ago = Instant::now().checked_sub(Duration::from_secs(1)).expect("after the boot");
        assert_eq!(limit.time_left(long_ago, Duration::ZERO, 1000), Duration::ZERO);
    }

    #[test]
    fn a_sync_may_take_longer_as_the_other_disks_do() {
        let limit = StallLimit::new(Duration::from_millis(50), &Arc::default());
        let left = |disk_ms| limit.time_left(Instant::now(), Duration::from_millis(disk_ms), 1000);
        assert!(left(1) <= Duration::from_millis(60));
        assert!((Duration::from_millis(300)..=Duration::from_millis(350)).contains(&left(30)));
    }
}
