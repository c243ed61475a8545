//! [`RegionServerConfig`]: the HBase settings of a RegionServer.

use evenkeel_common::config::ConfigError;
use evenkeel_common::length;
use evenkeel_common::{Configuration, TableDescriptor, TimeUnit};

use crate::background::store_file_refresh::StoreFileRefresh;
use crate::background::throughput::{CompactionTuning, FlushTuning};
use crate::coprocessor::Coprocessors;
use crate::quotas::settings::QuotaSettings;
use crate::requests::scanners::SCANNER_BYTES;
use crate::version::HBASE_VERSION;

const SHARED_VALUE: &str = "evenkeel.reply.shared.value.size";
/// See [`RegionServerConfig::scanners_max`].
pub const SCANNERS_MAX: &str = "evenkeel.regionserver.scanners.max";
const CACHE_STATISTICS: &str = "evenkeel.blockcache.statistics.period";
const PERIODIC_FLUSH: &str = "hbase.regionserver.optionalcacheflushinterval";
const PERIODIC_FLUSH_SPREAD: &str = "hbase.regionserver.periodicmemstoreflusher.rangeofdelayseconds";
const FLUSH_PER_CHANGES: &str = "hbase.regionserver.flush.per.changes";
/// `HRegion.MAX_FLUSH_PER_CHANGES`.
const FLUSH_PER_CHANGES_MAX: i64 = 1_000_000_000;

/// The setting for the HBase version that the server reports.
const VERSION: &str = "evenkeel.hbase.version";

/// When files that no store lists are deleted (`BrokenStoreFileCleaner`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BrokenFileCleaning {
    /// `hbase.region.broken.storefilecleaner.ttl`: younger files are kept.
    pub ttl_ms: i64,
    /// `hbase.region.broken.storefilecleaner.period`: the time between two runs.
    pub period_ms: i64,
    /// `hbase.region.broken.storefilecleaner.delay`: the time before the first run.
    pub delay_ms: i64,
    /// `hbase.region.broken.storefilecleaner.delay.jitter`: the fraction of the delay within which
    /// the first runs of the servers vary.
    pub delay_jitter: f64,
}

impl BrokenFileCleaning {
    const ENABLED: &str = "hbase.region.broken.storefilecleaner.enabled";
    const TTL: &str = "hbase.region.broken.storefilecleaner.ttl";
    const PERIOD: &str = "hbase.region.broken.storefilecleaner.period";
    const DELAY: &str = "hbase.region.broken.storefilecleaner.delay";
    const JITTER: &str = "hbase.region.broken.storefilecleaner.delay.jitter";
    const HOUR_MS: i64 = 60 * 60 * 1000;

    fn from(conf: &Configuration) -> Result<Option<Self>, ConfigError> {
        if !conf.get_bool_or(Self::ENABLED, false)? {
            return Ok(None);
        }
        Ok(Some(Self {
            ttl_ms: conf.get_i64_or(Self::TTL, 12 * Self::HOUR_MS)?,
            period_ms: conf.get_i64_or(Self::PERIOD, 6 * Self::HOUR_MS)?.max(1),
            delay_ms: conf.get_i64_or(Self::DELAY, 2 * Self::HOUR_MS)?.max(0),
            delay_jitter: conf.get_f64_or(Self::JITTER, 0.25)?,
        }))
    }

    /// Returns the time before a server's first run. Servers with different `start_code`s differ.
    pub fn first_delay_ms(&self, start_code: i64) -> i64 {
        let spread_ms = length::whole(self.delay_ms as f64 * self.delay_jitter.max(0.0));
        let spread_ms = i64::try_from(spread_ms).unwrap_or(i64::MAX);
        let earliest_ms = self.delay_ms.saturating_sub(spread_ms / 2);
        earliest_ms.saturating_add(spread_ms / 1000 * start_code.rem_euclid(1000))
    }
}

/// Limits and switches of a RegionServer.
#[derive(Clone, Debug)]
pub struct RegionServerConfig {
    /// `evenkeel.hbase.version`: the HBase version reported to the master. A master moves system
    /// tables away from servers whose version differs from the highest one.
    pub version: String,
    /// `hbase.client.scanner.timeout.period`: the lease of a scanner between two calls.
    pub scanner_lease_ms: i64,
    /// `evenkeel.regionserver.scanners.max`: the maximum number of open scanners of user tables;
    /// for what happens beyond it see [`scanners`](crate::requests::scanners). The default is the
    /// scanners' share of the memory at 64 KiB each (`evenkeel_process::MemoryPlan`).
    pub scanners_max: usize,
    /// The maximum memory of open scanners of user tables, in bytes.
    pub scanner_bytes_max: u64,
    /// The maximum memory of open scanners of system tables, in bytes.
    pub system_scanner_bytes_max: u64,
    /// `hbase.rpc.timeout`: the assumed timeout of a client that sends none.
    pub rpc_timeout_ms: u64,
    /// `hbase.region.server.rpc.minimum.scan.time.limit.delta`: the minimum time limit of a scan
    /// call.
    pub scan_time_min_ms: u64,
    /// `hbase.server.scanner.max.result.size`: the maximum size of the cells in a reply, in bytes.
    pub result_bytes_max: u64,
    /// `evenkeel.reply.shared.value.size`: values of at least this many bytes are sent from the
    /// cached block without a copy. Values below 16 KiB are always copied.
    pub shared_value_bytes_min: usize,
    /// `hbase.rpc.rows.warning.threshold`: a Multi with more actions logs a warning.
    pub multi_actions_warn: usize,
    /// `hbase.rpc.rows.size.threshold.reject`: whether a Multi over the threshold is rejected.
    pub multi_actions_reject: bool,
    /// `hbase.hregion.scan.loadColumnFamiliesOnDemand`: the default for reads that do not set it.
    pub load_families_on_demand: bool,
    /// The memory limit of the process in bytes, for reports.
    pub memory_bytes_max: u64,
    /// The unflushed bytes of all regions at which writes are rejected
    /// (`hbase.regionserver.global.memstore.size` of the memory the server may use).
    pub global_memstore_bytes: u64,
    /// The unflushed bytes at which flushes start to reduce them
    /// (`hbase.regionserver.global.memstore.size.lower.limit`).
    pub global_memstore_low_bytes: u64,
    /// The throughput limits of compactions.
    pub compaction: CompactionTuning,
    /// The throughput limits of flushes.
    pub flush: FlushTuning,
    /// How often all stores are checked for compactions that are due
    /// (`hbase.server.thread.wakefrequency` times
    /// `hbase.server.compactchecker.interval.multiplier`).
    pub compaction_check_ms: i64,
    /// `hbase.regionserver.optionalcacheflushinterval`: the maximum age of unflushed edits of user
    /// tables; 0 for no limit.
    pub periodic_flush_ms: i64,
    /// `hbase.regionserver.periodicmemstoreflusher.rangeofdelayseconds`: a region that is due
    /// flushes within this time, at a moment that depends on the region, so that not all flush at
    /// the same time.
    pub periodic_flush_spread_ms: i64,
    /// `hbase.regionserver.flush.per.changes`: a region with more unflushed writes is flushed.
    pub flush_changes_max: u64,
    /// Deletion of files that no store lists; `None` if it is off.
    pub broken_files: Option<BrokenFileCleaning>,
    /// Refreshes of the store files of secondary replicas; `None` if there are none.
    pub store_file_refresh: Option<StoreFileRefresh>,
    /// `evenkeel.blockcache.statistics.period`: the interval of the caches' log line; 0 for never.
    /// HBase's interval is five minutes.
    pub cache_statistics_ms: i64,
    /// The coprocessors of regions (`hbase.coprocessor.*`).
    pub coprocessors: Coprocessors,
    /// `hbase.compaction.after.bulkload.enable`: whether a bulk load requests a compaction that is
    /// due.
    pub compaction_after_bulk_load: bool,
    /// `hbase.regionserver.regionSplitLimit`: with this number of regions, none is split without a
    /// request.
    pub regions_split_max: usize,
    /// `hbase.regionserver.user.metrics.enabled`: whether the times of each user's operations are
    /// counted.
    pub user_metrics: bool,
    /// `hbase.quota.*`; `None` unless quotas are enabled.
    pub quotas: Option<QuotaSettings>,
}

impl Default for RegionServerConfig {
    fn default() -> Self {
        Self {
            version: HBASE_VERSION.to_owned(),
            scanner_lease_ms: 60_000,
            scanners_max: 10_000,
            scanner_bytes_max: 10_000 * SCANNER_BYTES,
            system_scanner_bytes_max: 1_000 * SCANNER_BYTES,
            rpc_timeout_ms: 60_000,
            scan_time_min_ms: 10,
            result_bytes_max: 100 << 20,
            shared_value_bytes_min: 16 << 10,
            multi_actions_warn: 5000,
            multi_actions_reject: false,
            load_families_on_demand: true,
            memory_bytes_max: 4 << 30,
            global_memstore_bytes: 1 << 30,
            global_memstore_low_bytes: (1 << 30) / 100 * 95,
            compaction: CompactionTuning::default(),
            flush: FlushTuning::default(),
            compaction_check_ms: 10_000_000,
            periodic_flush_ms: 3_600_000,
            periodic_flush_spread_ms: 300_000,
            flush_changes_max: 30_000_000,
            broken_files: None,
            store_file_refresh: None,
            cache_statistics_ms: 300_000,
            coprocessors: Coprocessors::default(),
            compaction_after_bulk_load: true,
            regions_split_max: 1000,
            user_metrics: false,
            quotas: None,
        }
    }
}

/// The keys of [`RegionServerConfig`] that may change while the server runs, apart from those of
/// [`throughput`](crate::background::throughput).
const CHANGEABLE_KEYS: [&str; 4] =
    [PERIODIC_FLUSH, PERIODIC_FLUSH_SPREAD, FLUSH_PER_CHANGES, CACHE_STATISTICS];

impl RegionServerConfig {
    /// The keys whose values [`RegionServer::update_config`](crate::RegionServer::update_config)
    /// applies.
    pub fn changeable_keys() -> impl Iterator<Item = &'static str> {
        CHANGEABLE_KEYS.into_iter().chain(CompactionTuning::KEYS).chain(FlushTuning::KEYS)
    }

    /// Returns this configuration with the changeable settings of another.
    #[must_use]
    pub(crate) fn with_changes_of(&self, other: &Self) -> Self {
        Self {
            compaction: other.compaction.clone(),
            flush: other.flush.clone(),
            periodic_flush_ms: other.periodic_flush_ms,
            periodic_flush_spread_ms: other.periodic_flush_spread_ms,
            flush_changes_max: other.flush_changes_max,
            cache_statistics_ms: other.cache_statistics_ms,
            ..self.clone()
        }
    }

    /// Reads HBase's keys; `memory_bytes` is the memory that the server may use in total.
    ///
    /// # Errors
    /// [`ConfigError`] if a value is malformed.
    pub fn from(conf: &Configuration, memory_bytes: u64) -> Result<Self, ConfigError> {
        let default = Self::default();
        let size = |key: &str, default: u64| Ok(conf.get_size_or(key, default as i64)?.max(0) as u64);
        let ms = |key: &str, default: i64| conf.get_time_or(key, TimeUnit::Milliseconds, default);
        let share = conf.get_f64_or("hbase.regionserver.global.memstore.size", 0.4)?;
        let share = if share > 0.0 && share <= 0.8 { share } else { 0.4 };
        let low = conf.get_f64_or("hbase.regionserver.global.memstore.size.lower.limit", 0.95)?;
        let low = if low > 0.0 && low <= 1.0 { low } else { 0.95 };
        let global_memstore_bytes = length::whole(memory_bytes as f64 * share);
        let wake_ms = ms("hbase.server.thread.wakefrequency", 10_000)?;
        let multiplier = conf.get_i64_or("hbase.server.compactchecker.interval.multiplier", 1000)?;
        Ok(Self {
            version: conf.get_trimmed(VERSION)?.filter(|v| !v.is_empty()).unwrap_or(default.version),
            scanner_lease_ms: ms("hbase.client.scanner.timeout.period", default.scanner_lease_ms)?.max(1),
            scanners_max: length::index(conf.get_u64_or(SCANNERS_MAX, default.scanners_max as u64)?.max(1)),
            scanner_bytes_max: default.scanner_bytes_max,
            system_scanner_bytes_max: default.system_scanner_bytes_max,
            rpc_timeout_ms: ms("hbase.rpc.timeout", default.rpc_timeout_ms as i64)?.max(0) as u64,
            scan_time_min_ms: ms("hbase.region.server.rpc.minimum.scan.time.limit.delta", 10)?.max(0) as u64,
            result_bytes_max: size("hbase.server.scanner.max.result.size", default.result_bytes_max)?.max(1),
            shared_value_bytes_min: length::index(size(SHARED_VALUE, default.shared_value_bytes_min as u64)?),
            multi_actions_warn: length::index(conf.get_u64_or("hbase.rpc.rows.warning.threshold", 5000)?),
            multi_actions_reject: conf.get_bool_or("hbase.rpc.rows.size.threshold.reject", false)?,
            load_families_on_demand: conf
                .get_bool_or("hbase.hregion.scan.loadColumnFamiliesOnDemand", true)?,
            memory_bytes_max: memory_bytes,
            global_memstore_bytes,
            global_memstore_low_bytes: length::whole(global_memstore_bytes as f64 * low),
            compaction: CompactionTuning::from(conf)?,
            flush: FlushTuning::from(conf)?,
            compaction_check_ms: wake_ms.max(1).saturating_mul(multiplier.max(1)),
            periodic_flush_ms: ms(PERIODIC_FLUSH, default.periodic_flush_ms)?,
            periodic_flush_spread_ms: conf
                .get_i64_or(PERIODIC_FLUSH_SPREAD, 300)?
                .saturating_mul(1000)
                .max(0),
            flush_changes_max: flush_changes_max(conf)?,
            broken_files: BrokenFileCleaning::from(conf)?,
            store_file_refresh: StoreFileRefresh::from(conf)?,
            cache_statistics_ms: ms(CACHE_STATISTICS, default.cache_statistics_ms)?,
            compaction_after_bulk_load: conf.get_bool_or("hbase.compaction.after.bulkload.enable", true)?,
            coprocessors: Coprocessors::from(conf)?,
            regions_split_max: length::index(
                conf.get_i64_or("hbase.regionserver.regionSplitLimit", 1000)?.max(0).unsigned_abs(),
            ),
            user_metrics: conf.get_bool_or("hbase.regionserver.user.metrics.enabled", false)?,
            quotas: QuotaSettings::from(conf)?,
        })
    }
}

impl RegionServerConfig {
    /// Returns [`RegionServerConfig::flush_changes_max`] for a table, which may override it. An
    /// override out of range is ignored.
    pub fn flush_changes_max_of(&self, table: &TableDescriptor) -> u64 {
        number_of(table, FLUSH_PER_CHANGES)
            .filter(|changes| (0..=FLUSH_PER_CHANGES_MAX).contains(changes))
            .map_or(self.flush_changes_max, |changes| changes as u64)
    }

    /// Returns [`RegionServerConfig::periodic_flush_ms`] for a table, which may override it.
    pub fn periodic_flush_ms_of(&self, table: &TableDescriptor) -> i64 {
        number_of(table, PERIODIC_FLUSH).unwrap_or(self.periodic_flush_ms)
    }
}

/// Returns a table's override of a numeric setting, parsed as HBase's regions parse it.
fn number_of(table: &TableDescriptor, key: &str) -> Option<i64> {
    table.text(key)?.trim().parse().ok()
}

fn flush_changes_max(conf: &Configuration) -> Result<u64, ConfigError> {
    let changes = conf.get_i64_or(FLUSH_PER_CHANGES, 30_000_000)?;
    match u64::try_from(changes) {
        Ok(max) if changes <= FLUSH_PER_CHANGES_MAX => Ok(max),
        _ => Err(conf.unusable(FLUSH_PER_CHANGES, "0 to 1000000000")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_files_are_deleted_if_that_is_switched_on() {
        let mut conf = Configuration::new();
        assert_eq!(BrokenFileCleaning::from(&conf).expect("read"), None);
        conf.set("hbase.region.broken.storefilecleaner.enabled", "true");
        let hour_ms = 3_600_000;
        let default = BrokenFileCleaning {
            ttl_ms: 12 * hour_ms,
            period_ms: 6 * hour_ms,
            delay_ms: 2 * hour_ms,
            delay_jitter: 0.25,
        };
        assert_eq!(BrokenFileCleaning::from(&conf).expect("read"), Some(default));
        assert_eq!(default.first_delay_ms(500), default.delay_ms);
        assert_eq!(default.first_delay_ms(1_000), default.delay_ms - default.delay_ms / 8);
        conf.set("hbase.region.broken.storefilecleaner.ttl", "1");
        assert_eq!(BrokenFileCleaning::from(&conf).expect("read").map(|cleaning| cleaning.ttl_ms), Some(1));
    }

    #[test]
    fn periodic_and_change_count_flush_settings_are_hbases() {
        let mut conf = Configuration::new();
        let read = |conf: &Configuration| {
            let config = RegionServerConfig::from(conf, 1 << 30)?;
            Ok((config.periodic_flush_ms, config.periodic_flush_spread_ms, config.flush_changes_max))
        };
        assert_eq!(read(&conf), Ok((3_600_000, 300_000, 30_000_000)));
        conf.set(PERIODIC_FLUSH, "7");
        conf.set(PERIODIC_FLUSH_SPREAD, "2");
        conf.set(FLUSH_PER_CHANGES, "1000000000");
        assert_eq!(read(&conf), Ok((7, 2000, 1_000_000_000)));
        conf.set(FLUSH_PER_CHANGES, "1000000001");
        assert!(read(&conf).is_err_and(|error: ConfigError| error.to_string().contains(FLUSH_PER_CHANGES)));
    }
}
