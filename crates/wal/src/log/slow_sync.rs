//! The disk watch: which syncs are slow, and when that is reason enough to go on in a new file.
//!
//! The thresholds are HBase's (`AbstractFSWAL`): one sync that takes very long, or many slow ones in a short time. HBase
//! counts until the time is over and then decides; here the sync that makes the number full decides. On a local disk a new
//! file may be no faster, but it leaves a sick file, and on replicated storage a sick pipeline, behind.

use std::time::Duration;

use crate::config::WalConfig;

/// Slow syncs of the current file.
#[derive(Debug, Default)]
pub(super) struct SlowSyncs {
    /// When the first of those counted was.
    since_ms: i64,
    count: u32,
    /// The file should be followed by another.
    is_too_slow: bool,
}

impl SlowSyncs {
    /// Takes note of a sync that ended just now; whether it was slow. The clock is read only then.
    pub(super) fn record(
        &mut self,
        took: Duration,
        config: &WalConfig,
        now_ms: impl FnOnce() -> i64,
    ) -> bool {
        if took <= config.slow_sync {
            return false;
        }
        let now_ms = now_ms();
        if self.count == 0 || now_ms - self.since_ms >= config.slow_sync_roll_interval_ms {
            (self.since_ms, self.count) = (now_ms, 0);
        }
        self.count += 1;
        self.is_too_slow |= took > config.roll_on_sync || self.count >= config.slow_sync_roll_threshold;
        true
    }

    /// Whether the file should be followed by another.
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
    fn one_very_slow_sync_will_do() {
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
    fn what_is_not_slow_costs_no_look_at_the_clock() {
        let mut slow = SlowSyncs::default();
        assert!(!slow.record(Duration::from_millis(100), &config(), || panic!("asked")));
    }
}
