//! Keys of the site file and of tables.
//!
//! A table overrides keys of the site file by attributes of the same names. A negative number (of
//! the least count of regions also 0) counts as not set.

use std::time::Duration;

use evenkeel_common::config::ConfigError;
use evenkeel_common::{Configuration, TableDescriptor};

const SPLITS: &str = "hbase.normalizer.split.enabled";
const MERGES: &str = "hbase.normalizer.merge.enabled";
const MERGE_COUNT_MIN: &str = "hbase.normalizer.merge.min.region.count";
/// The older name of the same.
const MERGE_COUNT_MIN_BEFORE: &str = "hbase.normalizer.min.region.count";
const MERGE_AGE_MIN: &str = "hbase.normalizer.merge.min_region_age.days";
const MERGE_SIZE_MIN: &str = "hbase.normalizer.merge.min_region_size.mb";
const MERGE_REGIONS_MAX: &str = "hbase.normalizer.merge.merge_request_max_number_of_regions";
const THROUGHPUT: &str = "hbase.normalizer.throughput.max_bytes_per_sec";
const DAY_MS: i64 = 24 * 3600 * 1000;
/// The unit of the rate, in bytes.
const MB: i64 = 1_000_000;
/// A rate that limits nothing: 1 TB per second.
const MB_PER_S_MAX: i64 = 1_000_000;

/// The settings of the normalizer. Keys and defaults are HBase's.
#[derive(Clone, Debug)]
pub struct NormalizerSettings {
    /// `hbase.normalizer.period`; `None` if it is 0 or less: never.
    pub every: Option<Duration>,
    /// `hbase.normalizer.throughput.max_bytes_per_sec` in MB.
    pub mb_per_s: u64,
    /// `hbase.normalizer.plans_size_limit.mb`.
    pub plans_mib_max: Option<u64>,
    /// `hbase.table.normalization.enabled`.
    is_on: bool,
    /// The rules of a table that overrides none.
    rules: Rules,
}

/// What the plans of a table depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// True if regions are split.
    pub(super) splits: bool,
    /// True if regions are merged.
    pub(super) merges: bool,
    /// Fewer regions are not merged.
    pub(super) merge_count_min: usize,
    /// Younger regions are not merged.
    pub(super) merge_age_ms_min: i64,
    /// Smaller regions are not merged.
    pub(super) merge_mib_min: u64,
    /// The limit on the regions of one merge, 2 or more.
    pub(super) merge_regions_max: usize,
    /// The table's `NORMALIZER_TARGET_REGION_COUNT`.
    pub(super) target_count: Option<u64>,
    /// The table's `NORMALIZER_TARGET_REGION_SIZE_MB`, or `NORMALIZER_TARGET_REGION_SIZE`, its
    /// older name, which is in MiB too.
    pub(super) target_mib: Option<u64>,
}

impl NormalizerSettings {
    /// Reads HBase's keys.
    ///
    /// # Errors
    /// Returns an error if a value cannot be parsed.
    pub fn from(conf: &Configuration) -> Result<Self, ConfigError> {
        let period_ms = conf.get_i32("hbase.normalizer.period")?;
        let plans_mib_max = conf.get_i64_or("hbase.normalizer.plans_size_limit.mb", i64::MAX)?;
        Ok(Self {
            every: u64::try_from(period_ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis),
            mb_per_s: rate(conf)?,
            plans_mib_max: (plans_mib_max < i64::MAX).then(|| u64::try_from(plans_mib_max).unwrap_or(0)),
            is_on: conf.get_bool("hbase.table.normalization.enabled")?,
            rules: Rules {
                splits: conf.get_bool(SPLITS)?,
                merges: conf.get_bool(MERGES)?,
                merge_count_min: to_count(at_least(conf, MERGE_COUNT_MIN, 1)?),
                merge_age_ms_min: days_to_ms(at_least(conf, MERGE_AGE_MIN, 0)?),
                merge_mib_min: at_least(conf, MERGE_SIZE_MIN, 0)?.unsigned_abs(),
                merge_regions_max: to_count(at_least(conf, MERGE_REGIONS_MAX, 2)?),
                target_count: None,
                target_mib: None,
            },
        })
    }

    /// Returns true if the normalizer plans changes of a table.
    pub(super) fn is_on_for(&self, table: &TableDescriptor) -> bool {
        flag(table, "NORMALIZATION_ENABLED").unwrap_or(self.is_on)
    }

    /// Returns the rules of a table.
    ///
    /// # Errors
    /// Returns a message if an attribute of the table cannot be parsed.
    pub(super) fn rules_of(&self, table: &TableDescriptor) -> Result<Rules, String> {
        let rules = &self.rules;
        let count_min = match number(table, MERGE_COUNT_MIN)? {
            None => number(table, MERGE_COUNT_MIN_BEFORE)?,
            of_table => of_table,
        };
        let target_mib = match number(table, "NORMALIZER_TARGET_REGION_SIZE_MB")? {
            None | Some(-1) => number(table, "NORMALIZER_TARGET_REGION_SIZE")?,
            of_table => of_table,
        };
        let not_negative = |value: Option<i64>| value.filter(|value| *value >= 0);
        let positive = |value: Option<i64>| value.filter(|value| *value > 0);
        let mib_min = not_negative(number(table, MERGE_SIZE_MIN)?);
        Ok(Rules {
            splits: flag(table, SPLITS).unwrap_or(rules.splits),
            merges: flag(table, MERGES).unwrap_or(rules.merges),
            merge_count_min: positive(count_min).map_or(rules.merge_count_min, to_count),
            merge_age_ms_min: not_negative(number(table, MERGE_AGE_MIN)?)
                .map_or(rules.merge_age_ms_min, days_to_ms),
            merge_mib_min: mib_min.map_or(rules.merge_mib_min, i64::unsigned_abs),
            merge_regions_max: rules.merge_regions_max,
            target_count: positive(number(table, "NORMALIZER_TARGET_REGION_COUNT")?).map(i64::unsigned_abs),
            target_mib: positive(target_mib).map(i64::unsigned_abs),
        })
    }
}

/// Returns the rate in MB per second. One below 1 counts as not set.
fn rate(conf: &Configuration) -> Result<u64, ConfigError> {
    let rate = conf.get_size_or(THROUGHPUT, MB_PER_S_MAX * MB)?;
    if rate < MB {
        tracing::warn!(key = THROUGHPUT, value = rate, "a rate below 1 MB per second counts as not set");
        return Ok(MB_PER_S_MAX.unsigned_abs());
    }
    Ok((rate / MB).unsigned_abs())
}

/// Returns a number that is raised to `min` if it is smaller.
fn at_least(conf: &Configuration, key: &str, min: i64) -> Result<i64, ConfigError> {
    let value = conf.get_i64(key)?;
    if value < min {
        tracing::warn!(key, value, min, "the value is too small: the least value is used");
    }
    Ok(value.max(min))
}

fn to_count(value: i64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

fn days_to_ms(days: i64) -> i64 {
    days.saturating_mul(DAY_MS)
}

/// Returns a flag of a table: true only for `true`, in any case.
fn flag(table: &TableDescriptor, name: &str) -> Option<bool> {
    table.text(name).map(|value| value.eq_ignore_ascii_case("true"))
}

fn number(table: &TableDescriptor, name: &str) -> Result<Option<i64>, String> {
    let Some(text) = table.text(name) else { return Ok(None) };
    let parsed = text.trim().parse().map(Some);
    parsed.map_err(|_| format!("{name} of the table is not a number: {text}"))
}
