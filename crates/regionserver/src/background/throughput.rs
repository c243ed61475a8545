//! [`CompactionTuning`]: the throughput limit of compactions, by pressure and hour
//! (`PressureAwareCompactionThroughputController`, `NoLimitThroughputController`); [`FlushTuning`]:
//! that of flushes (`PressureAwareFlushThroughputController`).

use chrono::Timelike;
use evenkeel_common::config::ConfigError;
use evenkeel_common::length;
use evenkeel_common::{Configuration, TimeUnit};

/// The suffix of the class name of HBase's controller without a limit.
const NO_LIMIT: &str = "NoLimitThroughputController";

/// The suffix of the class name of HBase's flush controller with a limit.
const FLUSH_LIMIT: &str = "PressureAwareFlushThroughputController";

/// Hours of the day with little load from clients, in the machine's time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffPeakHours {
    /// The first off-peak hour, 0 to 23.
    pub start: u32,
    /// The first hour after them; less than `start` if they span midnight.
    pub end: u32,
}

impl OffPeakHours {
    /// From `hbase.offpeak.start.hour` and `hbase.offpeak.end.hour`; `None` if these are not set or
    /// invalid.
    fn new(start: i64, end: i64) -> Option<Self> {
        let hour = |hour: i64| u32::try_from(hour).ok().filter(|hour| *hour < 24);
        let hours = hour(start).zip(hour(end)).map(|(start, end)| Self { start, end });
        if hours.is_none() && (start, end) != (-1, -1) {
            tracing::warn!(start, end, "off-peak hours must be from 0 to 23; ignored");
        }
        hours.filter(|hours| hours.start != hours.end)
    }

    /// Returns true if an hour is off-peak.
    pub fn contains(&self, hour: u32) -> bool {
        match self.start < self.end {
            true => (self.start..self.end).contains(&hour),
            false => hour >= self.start || hour < self.end,
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct CompactionTuning {
    /// `hbase.hstore.compaction.throughput.lower.bound`: bytes per second at no compaction
    /// pressure.
    pub lower: u64,
    /// `hbase.hstore.compaction.throughput.higher.bound`: bytes per second just before the number
    /// of files blocks flushes.
    pub higher: u64,
    /// `hbase.hstore.compaction.throughput.offpeak`: bytes per second in off-peak hours.
    pub off_peak: u64,
    /// `hbase.hstore.compaction.throughput.tune.period`.
    pub period_ms: i64,
    /// `hbase.offpeak.start.hour`, `hbase.offpeak.end.hour`.
    pub off_peak_hours: Option<OffPeakHours>,
    /// `hbase.regionserver.throughput.controller` names the controller without a limit.
    pub unlimited: bool,
}

impl Default for CompactionTuning {
    fn default() -> Self {
        Self {
            lower: 50 << 20,
            higher: 100 << 20,
            off_peak: i64::MAX as u64,
            period_ms: 60_000,
            off_peak_hours: None,
            unlimited: false,
        }
    }
}

impl CompactionTuning {
    /// The keys that it reads.
    pub(crate) const KEYS: [&str; 7] = [
        "hbase.hstore.compaction.throughput.lower.bound",
        "hbase.hstore.compaction.throughput.higher.bound",
        "hbase.hstore.compaction.throughput.offpeak",
        "hbase.hstore.compaction.throughput.tune.period",
        "hbase.offpeak.start.hour",
        "hbase.offpeak.end.hour",
        "hbase.regionserver.throughput.controller",
    ];

    /// Reads HBase's keys.
    ///
    /// # Errors
    /// [`ConfigError`] if a value is malformed.
    pub fn from(conf: &Configuration) -> Result<Self, ConfigError> {
        let default = Self::default();
        let bytes = |key: &str, default: u64| Ok(conf.get_i64_or(key, default as i64)?.max(1) as u64);
        let hour = |key: &str| conf.get_i64_or(key, -1);
        let period = "hbase.hstore.compaction.throughput.tune.period";
        let controller = conf.get_trimmed("hbase.regionserver.throughput.controller")?;
        Ok(Self {
            lower: bytes("hbase.hstore.compaction.throughput.lower.bound", default.lower)?,
            higher: bytes("hbase.hstore.compaction.throughput.higher.bound", default.higher)?,
            off_peak: bytes("hbase.hstore.compaction.throughput.offpeak", default.off_peak)?,
            period_ms: conf.get_time_or(period, TimeUnit::Milliseconds, default.period_ms)?.max(1),
            off_peak_hours: OffPeakHours::new(
                hour("hbase.offpeak.start.hour")?,
                hour("hbase.offpeak.end.hour")?,
            ),
            unlimited: controller.is_some_and(|class| class.ends_with(NO_LIMIT)),
        })
    }

    /// Returns true if it is an off-peak hour, in the machine's time zone.
    pub fn is_off_peak(&self, now_ms: i64) -> bool {
        let hour = || {
            chrono::DateTime::from_timestamp_millis(now_ms)
                .map(|now| now.with_timezone(&chrono::Local).hour())
        };
        self.off_peak_hours.is_some_and(|hours| hour().is_some_and(|hour| hours.contains(hour)))
    }

    /// Returns the limit in bytes per second for compactions. `None` for no limit: when files block
    /// flushes, throttling saves nothing. `pressure` is the highest compaction pressure of any
    /// region.
    pub fn limit(&self, pressure: f64, off_peak: bool) -> Option<u64> {
        if self.unlimited || pressure > 1.0 {
            return None;
        }
        if off_peak {
            return Some(self.off_peak).filter(|limit| *limit < i64::MAX as u64);
        }
        let span = self.higher.saturating_sub(self.lower) as f64;
        Some(self.lower + length::whole(span * pressure.max(0.0)))
    }
}

/// The throughput limits of flushes that no caller waits for.
#[derive(Clone, Debug)]
pub struct FlushTuning {
    /// `hbase.regionserver.flush.throughput.controller` names the controller with a limit.
    pub limited: bool,
    /// `hbase.hstore.flush.throughput.lower.bound`: bytes per second while little is unflushed.
    pub lower: u64,
    /// `hbase.hstore.flush.throughput.upper.bound`: bytes per second just before the lower limit of
    /// unflushed bytes.
    pub upper: u64,
}

impl Default for FlushTuning {
    fn default() -> Self {
        Self { limited: false, lower: 100 << 20, upper: 200 << 20 }
    }
}

impl FlushTuning {
    /// The keys that it reads.
    pub(crate) const KEYS: [&str; 3] = [
        "hbase.regionserver.flush.throughput.controller",
        "hbase.hstore.flush.throughput.lower.bound",
        "hbase.hstore.flush.throughput.upper.bound",
    ];

    /// Reads HBase's keys.
    ///
    /// # Errors
    /// [`ConfigError`] if a value is malformed.
    pub fn from(conf: &Configuration) -> Result<Self, ConfigError> {
        let default = Self::default();
        let bytes = |key, default: u64| Ok(conf.get_i64_or(key, default as i64)?.max(1) as u64);
        let controller = conf.get_trimmed("hbase.regionserver.flush.throughput.controller")?;
        Ok(Self {
            limited: controller.is_some_and(|class| class.ends_with(FLUSH_LIMIT)),
            lower: bytes("hbase.hstore.flush.throughput.lower.bound", default.lower)?,
            upper: bytes("hbase.hstore.flush.throughput.upper.bound", default.upper)?,
        })
    }

    /// Returns the limit in bytes per second for flushes; `None` for no limit. `pressure` is the
    /// fraction of the lower limit that is unflushed.
    pub fn limit(&self, pressure: f64) -> Option<u64> {
        let span = self.upper.saturating_sub(self.lower) as f64;
        (self.limited && pressure < 1.0).then(|| self.lower + length::whole(span * pressure.max(0.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_are_throttled_only_when_configured() {
        let mut conf = Configuration::new();
        let limit = |conf: &Configuration, pressure| FlushTuning::from(conf).expect("read").limit(pressure);
        assert_eq!(limit(&conf, 0.0), None);
        conf.set("hbase.regionserver.flush.throughput.controller", format!("org.example.{FLUSH_LIMIT}"));
        assert_eq!((limit(&conf, 0.0), limit(&conf, 0.5)), (Some(100 << 20), Some(150 << 20)));
        conf.set("hbase.hstore.flush.throughput.lower.bound", "10");
        conf.set("hbase.hstore.flush.throughput.upper.bound", "20");
        assert_eq!((limit(&conf, 0.1), limit(&conf, 1.0)), (Some(11), None));
    }

    #[test]
    fn the_limit_rises_with_pressure_and_ends_above_one() {
        let tuning = CompactionTuning { lower: 100, higher: 300, off_peak: 1000, ..Default::default() };
        assert_eq!(tuning.limit(0.0, false), Some(100));
        assert_eq!(tuning.limit(0.5, false), Some(200));
        assert_eq!(tuning.limit(1.0, false), Some(300));
        assert_eq!(tuning.limit(1.1, false), None);
        assert_eq!(tuning.limit(0.5, true), Some(1000));
        assert_eq!(CompactionTuning::default().limit(0.5, true), None);
        assert_eq!(CompactionTuning { unlimited: true, ..tuning }.limit(0.0, false), None);
    }

    #[test]
    fn off_peak_hours_may_pass_midnight() {
        let night = OffPeakHours::new(22, 5).expect("hours");
        let in_it: Vec<u32> = (0..24).filter(|hour| night.contains(*hour)).collect();
        assert_eq!(in_it, [0, 1, 2, 3, 4, 22, 23]);
        let morning = OffPeakHours::new(1, 3).expect("hours");
        assert_eq!((0..24).filter(|hour| morning.contains(*hour)).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(OffPeakHours::new(4, 4), None);
        assert_eq!(OffPeakHours::new(-1, 24), None);
    }

    #[test]
    fn throughput_keys_are_hbases() {
        let mut conf = Configuration::new();
        conf.set("hbase.hstore.compaction.throughput.lower.bound", "1");
        conf.set("hbase.hstore.compaction.throughput.higher.bound", "2");
        conf.set("hbase.hstore.compaction.throughput.offpeak", "3");
        conf.set("hbase.offpeak.start.hour", "0");
        conf.set("hbase.offpeak.end.hour", "23");
        conf.set("hbase.regionserver.throughput.controller", "org.example.NoLimitThroughputController");
        let tuning = CompactionTuning::from(&conf).expect("read");
        assert_eq!((tuning.lower, tuning.higher, tuning.off_peak), (1, 2, 3));
        assert_eq!(tuning.off_peak_hours, Some(OffPeakHours { start: 0, end: 23 }));
        assert!(tuning.unlimited);
    }
}
