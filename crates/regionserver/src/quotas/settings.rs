//! [`QuotaSettings`]: HBase's settings of quotas.

use std::time::Duration;

use evenkeel_common::config::ConfigError;
use evenkeel_common::{Configuration, TimeUnit};
use evenkeel_protocol::pb;

use super::rate_limiter::{FIXED_INTERVAL_MS_MAX, Refill};

/// The setting that enables quotas.
pub const ENABLED: &str = "hbase.quota.enabled";
const REFRESH_PERIOD: &str = "hbase.quota.refresh.period";
const RATE_LIMITER: &str = "hbase.quota.rate.limiter";
const REFILL_INTERVAL: &str = "hbase.quota.rate.limiter.refill.interval.ms";
const READ_UNIT: &str = "hbase.quota.read.capacity.unit";
const WRITE_UNIT: &str = "hbase.quota.write.capacity.unit";
const USE_RESULT_BYTES: &str = "hbase.quota.use.result.size.bytes";
const USER_OVERRIDE: &str = "hbase.quota.user.override.key";
/// The class of [`Refill::Fixed`].
const FIXED: &str = "org.apache.hadoop.hbase.quotas.FixedIntervalRateLimiter";
/// HBase's default of [`REFRESH_PERIOD`]: 12 hours.
const REFRESH_PERIOD_MS: i64 = 43_200_000;
/// The shortest period of a task of quotas of space.
const PERIOD_MIN: Duration = Duration::from_millis(10);

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct QuotaSettings {
    /// `hbase.quota.rate.limiter` and `hbase.quota.rate.limiter.refill.interval.ms`.
    pub refill: Refill,
    /// `hbase.quota.read.capacity.unit`: the bytes of a capacity unit of reads.
    pub read_unit_bytes: i64,
    /// `hbase.quota.write.capacity.unit`: the bytes of a capacity unit of writes.
    pub write_unit_bytes: i64,
    /// `hbase.quota.use.result.size.bytes`: reads cost the bytes of their results, and not those
    /// of the blocks that they read.
    pub use_result_bytes: bool,
    /// `hbase.quota.user.override.key`: the attribute of a request that names the user whose
    /// quotas apply to it.
    pub user_attribute: Option<String>,
    /// `hbase.quota.default.user.machine.*`: the limits of users without quotas of their own.
    pub default_user: pb::Throttle,
    /// `hbase.regionserver.handler.count`, by which the time of a request is estimated.
    pub handlers: i64,
    /// The user of this process, and those of `hbase.superuser`. Groups are not known here.
    pub superusers: Vec<String>,
}

impl QuotaSettings {
    /// Reads the settings; `None` if quotas are not enabled.
    ///
    /// # Errors
    /// [`ConfigError`] if a value is malformed.
    pub fn from(conf: &Configuration) -> Result<Option<Self>, ConfigError> {
        if !conf.get_bool_or(ENABLED, false)? {
            return Ok(None);
        }
        let is_fixed = conf.get_trimmed(RATE_LIMITER)?.is_some_and(|class| class == FIXED);
        let interval_ms = conf.get_i64_or(REFILL_INTERVAL, FIXED_INTERVAL_MS_MAX)?;
        let interval_ms = interval_ms.clamp(1, FIXED_INTERVAL_MS_MAX);
        Ok(Some(Self {
            refill: if is_fixed { Refill::Fixed(interval_ms) } else { Refill::Average },
            read_unit_bytes: conf.get_i64_or(READ_UNIT, 1024)?.max(1),
            write_unit_bytes: conf.get_i64_or(WRITE_UNIT, 1024)?.max(1),
            use_result_bytes: conf.get_bool_or(USE_RESULT_BYTES, false)?,
            user_attribute: conf.get_trimmed(USER_OVERRIDE)?.filter(|key| !key.is_empty()),
            default_user: default_user(conf)?,
            handlers: conf.get_i64_or("hbase.regionserver.handler.count", 30)?.max(1),
            superusers: superusers(conf)?,
        }))
    }
}

/// Returns how often the quotas are read again, even if no change was reported.
///
/// # Errors
/// [`ConfigError`] if the value is malformed.
pub fn refresh_period(conf: &Configuration) -> Result<Duration, ConfigError> {
    let ms = conf.get_time_or(REFRESH_PERIOD, TimeUnit::Milliseconds, REFRESH_PERIOD_MS)?;
    Ok(Duration::from_millis(ms.max(1).unsigned_abs()))
}

fn superusers(conf: &Configuration) -> Result<Vec<String>, ConfigError> {
    let mut all = conf.get_list("hbase.superuser")?;
    all.retain(|name| !name.starts_with('@'));
    let own = ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    all.extend(own);
    Ok(all)
}

/// When a periodic task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskTimes {
    /// The time before it first runs.
    pub delay: Duration,
    /// The time between two runs.
    pub period: Duration,
}

/// The times of the periodic tasks of quotas of space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceTimes {
    /// A RegionServer reads which policies are in force.
    pub refresh: TaskTimes,
    /// A RegionServer reports the sizes of its regions.
    pub report: TaskTimes,
}

impl SpaceTimes {
    /// Reads the settings.
    ///
    /// # Errors
    /// [`ConfigError`] if a value is malformed.
    pub fn from(conf: &Configuration) -> Result<Self, ConfigError> {
        let refresh = task_times(
            conf,
            "hbase.regionserver.quotas.policy.refresher.chore.delay",
            "hbase.regionserver.quotas.policy.refresher.chore.period",
            "hbase.regionserver.quotas.policy.refresher.chore.timeunit",
            (15_000, 60_000),
        )?;
        let report = task_times(
            conf,
            "hbase.regionserver.quotas.region.size.reporting.chore.delay",
            "hbase.regionserver.quotas.region.size.reporting.chore.period",
            "hbase.regionserver.quotas.region.size.reporting.chore.timeunit",
            (30_000, 60_000),
        )?;
        Ok(Self { refresh, report })
    }
}

/// Reads the times of a task: two numbers, which have the unit of a third setting, milliseconds by
/// default, and their defaults.
///
/// # Errors
/// [`ConfigError`] if a value is malformed.
pub fn task_times(
    conf: &Configuration,
    delay: &str,
    period: &str,
    unit: &str,
    defaults: (i64, i64),
) -> Result<TaskTimes, ConfigError> {
    let name = conf.get_trimmed(unit)?.unwrap_or_else(|| "MILLISECONDS".to_owned());
    let invalid = |value: String| ConfigError::Value {
        key: unit.to_owned(),
        value,
        source: "the settings".to_owned(),
        expected: "a java.util.concurrent.TimeUnit, such as MILLISECONDS".to_owned(),
    };
    let Some(unit) = TimeUnit::by_name(&name) else { return Err(invalid(name)) };
    let time = |key, default| {
        let ns = unit.convert(conf.get_i64_or(key, default)?.max(0), TimeUnit::Nanoseconds);
        Ok::<_, ConfigError>(Duration::from_nanos(ns.unsigned_abs()))
    };
    let (delay, period) = (time(delay, defaults.0)?, time(period, defaults.1)?);
    Ok(TaskTimes { delay, period: period.max(PERIOD_MIN) })
}

fn default_user(conf: &Configuration) -> Result<pb::Throttle, ConfigError> {
    let limit = |key: &str| {
        let limit = conf.get_i64_or(key, -1)?;
        let quota = |limit| pb::TimedQuota {
            time_unit: pb::TimeUnit::Seconds.into(),
            soft_limit: Some(limit),
            scope: Some(pb::QuotaScope::Machine.into()),
            share: None,
        };
        Ok::<_, ConfigError>(u64::try_from(limit).ok().map(quota))
    };
    Ok(pb::Throttle {
        req_num: limit("hbase.quota.default.user.machine.request.num")?,
        req_size: limit("hbase.quota.default.user.machine.request.size")?,
        write_num: limit("hbase.quota.default.user.machine.write.num")?,
        write_size: limit("hbase.quota.default.user.machine.write.size")?,
        read_num: limit("hbase.quota.default.user.machine.read.num")?,
        read_size: limit("hbase.quota.default.user.machine.read.size")?,
        atomic_read_size: limit("hbase.quota.default.user.machine.atomic.read.size")?,
        atomic_req_num: limit("hbase.quota.default.user.machine.atomic.request.num")?,
        atomic_write_size: limit("hbase.quota.default.user.machine.atomic.write.size")?,
        req_handler_usage_ms: limit("hbase.quota.default.user.machine.request.handler.usage.ms")?,
        ..Default::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_hbases() {
        let mut conf = Configuration::new();
        assert!(QuotaSettings::from(&conf).expect("valid").is_none());
        conf.set(ENABLED, "true");
        let settings = QuotaSettings::from(&conf).expect("valid").expect("enabled");
        assert_eq!((settings.refill, settings.read_unit_bytes), (Refill::Average, 1024));
        assert_eq!(settings.default_user, pb::Throttle::default());
        assert_eq!(refresh_period(&conf), Ok(Duration::from_secs(12 * 3600)));
        conf.set(RATE_LIMITER, FIXED);
        conf.set(REFILL_INTERVAL, "5000");
        conf.set("hbase.quota.default.user.machine.read.num", "7");
        let settings = QuotaSettings::from(&conf).expect("valid").expect("enabled");
        assert_eq!(settings.refill, Refill::Fixed(1000), "as HBase, never longer");
        let limit =
            settings.default_user.read_num.as_ref().map(|limit| (limit.soft_limit(), limit.time_unit()));
        assert_eq!(limit, Some((7, pb::TimeUnit::Seconds)));
    }

    #[test]
    fn superusers_are_named_by_the_setting_or_are_the_process_itself() {
        let mut conf = Configuration::new();
        conf.set("hbase.superuser", "ann, @admins ,bob");
        let all = superusers(&conf).expect("valid");
        assert_eq!(all[..2], ["ann", "bob"]);
        assert_eq!(
            all[2..],
            std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).into_iter().collect::<Vec<_>>()
        );
    }

    #[test]
    fn times_of_tasks_have_a_unit_of_their_own() {
        let mut conf = Configuration::new();
        let times = SpaceTimes::from(&conf).expect("valid");
        let is = |times: TaskTimes| (times.delay.as_secs(), times.period.as_secs());
        assert_eq!((is(times.refresh), is(times.report)), ((15, 60), (30, 60)));
        conf.set("hbase.regionserver.quotas.policy.refresher.chore.timeunit", "MINUTES");
        conf.set("hbase.regionserver.quotas.policy.refresher.chore.delay", "0");
        conf.set("hbase.regionserver.quotas.policy.refresher.chore.period", "2");
        conf.set("hbase.regionserver.quotas.region.size.reporting.chore.period", "0");
        let times = SpaceTimes::from(&conf).expect("valid");
        assert_eq!((is(times.refresh), times.report.period), ((0, 120), PERIOD_MIN));
        conf.set("hbase.regionserver.quotas.policy.refresher.chore.timeunit", "FORTNIGHTS");
        assert!(SpaceTimes::from(&conf).is_err());
    }
}
