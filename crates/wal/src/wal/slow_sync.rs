//! Detection of slow syncs, which may cause a roll.
//!
//! The thresholds are HBase's (`AbstractFSWAL`): one very slow sync, or many slow ones within an
//! interval. HBase decides at the end of the interval; here the sync that reaches the threshold
//! decides. On a local disk a new file may be no faster, but it abandons a slow file, and on
//! replicated storage a slow pipeline.

use std::time::Duration;

use crate::config::WalConfig;

/// The slow syncs of the current file.
#[derive(Debug, Default)]
pub(super) struct SlowSyncs {
    /// The time of the first sync that is counted.
    since_ms: i64,
    count: u32,
    /// Whether the file should be rolled.
    is_too_slow: bool,
}

impl SlowSyncs {
    /// Records a sync that just ended. Returns true if it was slow. The clock is read only in that
    /// case.
    pub(super) fn record(
        &mut self,
        elapsed: Duration,
        config: &WalConfig,
        now_ms: impl FnOnce() -> i64,
    ) -> bool {
        if elapsed <= config.slow_sync {
            return false;
        }
        let now_ms = now_ms();
        if self.count == 0 || now_ms - self.since_ms >= config.slow_sync_roll_interval_ms {
            (self.since_ms, self.count) = (now_ms, 0);
        }
        self.count += 1;
        self.is_too_slow |= elapsed > config.roll_on_sync || self.count >= config.slow_sync_roll_threshold;
        true
    }

    /// Returns true if the file should be rolled.
    pub(super) fn is_too_slow(&self) -> bool {
        self.is_too_slow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> WalConfig {
        WalConfig { slow_sync_roll_threshold: 3, slow_sync_roll_interval_ms: 1000, ..WalConfig::default() }
    }

    fn slow_at(times_ms: &[i64]) -> bool {
        let mut slow = SlowSyncs::default();
        times_ms
            .iter()
            .for_each(|now_ms| assert!(slow.record(Duration::from_millis(101), &config(), || *now_ms)));
        slow.is_too_slow()
    }

    #[test]
    fn one_very_slow_sync_is_too_slow() {
        let mut slow = SlowSyncs::default();
        assert!(slow.record(Duration::from_millis(10_001), &config(), || 0) && slow.is_too_slow());
    }

    #[test]
    fn many_slow_syncs_count_only_when_they_come_together() {
        assert!(!slow_at(&[0, 1]));
        assert!(slow_at(&[0, 1, 999]));
        assert!(!slow_at(&[0, 1, 1000, 1001]));
        assert!(slow_at(&[0, 1, 1000, 1001, 1002]));
    }

    #[test]
    fn a_fast_sync_does_not_read_the_clock() {
        let mut slow = SlowSyncs::default();
        assert!(!slow.record(Duration::from_millis(100), &config(), || panic!("asked")));
    }
}
