//! [`QuotaSettings`]: HBase's settings of quotas.

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
        }))
    }
}

/// Returns how often the quotas are read again, even if no change was reported.
///
/// # Errors
/// [`ConfigError`] if the value is malformed.
pub fn refresh_period(conf: &Configuration) -> Result<std::time::Duration, ConfigError> {
    let ms = conf.get_time_or(REFRESH_PERIOD, TimeUnit::Milliseconds, REFRESH_PERIOD_MS)?;
    Ok(std::time::Duration::from_millis(ms.max(1).unsigned_abs()))
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
        assert_eq!(refresh_period(&conf), Ok(std::time::Duration::from_secs(12 * 3600)));
        conf.set(RATE_LIMITER, FIXED);
        conf.set(REFILL_INTERVAL, "5000");
        conf.set("hbase.quota.default.user.machine.read.num", "7");
        let settings = QuotaSettings::from(&conf).expect("valid").expect("enabled");
        assert_eq!(settings.refill, Refill::Fixed(1000), "as HBase, never longer");
        let limit =
            settings.default_user.read_num.as_ref().map(|limit| (limit.soft_limit(), limit.time_unit()));
        assert_eq!(limit, Some((7, pb::TimeUnit::Seconds)));
    }
}
