//! [`RegionServerConfig`]: HBase's keys that this room obeys.

use evenkeel_common::config::ConfigError;
use evenkeel_common::length;
use evenkeel_common::{Configuration, TableDescriptor, TimeUnit};

use crate::background::throughput::{CompactionTuning, FlushTuning};
use crate::coprocessor::Coprocessors;
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

/// The HBase version that the server reports.
const VERSION: &str = "evenkeel.hbase.version";

/// Limits and switches of a RegionServer.
#[derive(Clone, Debug)]
pub struct RegionServerConfig {
    /// `evenkeel.hbase.version`: the HBase version that the master is told. A master keeps system
    /// tables off servers whose version is not the highest one, to the letter.
    pub version: String,
    /// `hbase.client.scanner.timeout.period`: how long a scanner lives without a call.
    pub scanner_lease_ms: i64,
    /// `evenkeel.regionserver.scanners.max`: open scanners of users' tables; what one too many
    /// ends, [`scanners`](crate::requests::scanners) says. Unless set, as many as have their part
    /// of the memory, at 64 KiB each (`evenkeel_process::MemoryPlan`).
    pub scanners_max: usize,
    /// Bytes that open scanners of users' tables may hold: their part of the memory.
    pub scanner_bytes_max: u64,
    /// The same of HBase's own tables.
    pub system_scanner_bytes_max: u64,
    /// `hbase.rpc.timeout`: how long a client that tells no timeout is taken to wait.
    pub rpc_timeout_ms: u64,
    /// `hbase.region.server.rpc.minimum.scan.time.limit.delta`: the least time a scan call may
    /// take.
    pub scan_time_min_ms: u64,
    /// `hbase.server.scanner.max.result.size`: bytes of cells in a reply at most.
    pub result_bytes_max: u64,
    /// `evenkeel.reply.shared.value.size`: values of at least this many bytes go from the cached
    /// block to the socket without a copy. Smaller ones than 16 KiB are copied whatever it says.
    pub shared_value_bytes_min: usize,
    /// `hbase.server.keyvalue.maxsize`: bytes of a cell at most; 0 for no limit.
    pub cell_bytes_max: usize,
    /// `hbase.rpc.rows.warning.threshold`: actions of a Multi worth a warning.
    pub multi_actions_warn: usize,
    /// `hbase.rpc.rows.size.threshold.reject`: whether a Multi over the threshold is refused.
    pub multi_actions_reject: bool,
    /// `hbase.hregion.scan.loadColumnFamiliesOnDemand`: for reads that do not say.
    pub load_families_on_demand: bool,
    /// Unflushed bytes of all regions at which writes are refused
    /// (`hbase.regionserver.global.memstore.size` of the memory the server may use).
    pub global_memstore_bytes: u64,
    /// Where flushes begin to work against that
    /// (`hbase.regionserver.global.memstore.size.lower.limit`).
    pub global_memstore_low_bytes: u64,
    /// How fast compactions write.
    pub compaction: CompactionTuning,
    /// How fast flushes write.
    pub flush: FlushTuning,
    /// How often every store is asked whether a compaction is due
    /// (`hbase.server.thread.wakefrequency` times
    /// `hbase.server.compactchecker.interval.multiplier`).
    pub compaction_check_ms: i64,
    /// `hbase.regionserver.optionalcacheflushinterval`: how long edits of users' tables stay
    /// unflushed at most; 0 for no limit.
    pub periodic_flush_ms: i64,
    /// `hbase.regionserver.periodicmemstoreflusher.rangeofdelayseconds`: a region that is due
    /// flushes within this time, at a moment that depends on the region: not all of them at once.
    pub periodic_flush_spread_ms: i64,
    /// `hbase.regionserver.flush.per.changes`: a region is flushed that has had more writes since.
    pub flush_changes_max: u64,
    /// `evenkeel.blockcache.statistics.period`: how often the log has a line about the caches; 0
    /// for never. HBase's are five minutes apart.
    pub cache_statistics_ms: i64,
    /// Which coprocessors regions have (`hbase.coprocessor.*`).
    pub coprocessors: Coprocessors,
    /// `hbase.compaction.after.bulkload.enable`: whether a load asks for a compaction that is due.
    pub compaction_after_bulk_load: bool,
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
            cell_bytes_max: 10 << 20,
            multi_actions_warn: 5000,
            multi_actions_reject: false,
            load_families_on_demand: true,
            global_memstore_bytes: 1 << 30,
            global_memstore_low_bytes: (1 << 30) / 100 * 95,
            compaction: CompactionTuning::default(),
            flush: FlushTuning::default(),
            compaction_check_ms: 10_000_000,
            periodic_flush_ms: 3_600_000,
            periodic_flush_spread_ms: 300_000,
            flush_changes_max: 30_000_000,
            cache_statistics_ms: 300_000,
            coprocessors: Coprocessors::default(),
            compaction_after_bulk_load: true,
        }
    }
}

/// The keys of [`RegionServerConfig`] that may be changed while the server runs, but for those of
/// [`throughput`](crate::background::throughput).
const CHANGEABLE_KEYS: [&str; 4] =
    [PERIODIC_FLUSH, PERIODIC_FLUSH_SPREAD, FLUSH_PER_CHANGES, CACHE_STATISTICS];

impl RegionServerConfig {
    /// The keys that [`RegionServer::change_config`](crate::RegionServer::change_config) takes new
    /// values of.
    pub fn changeable_keys() -> impl Iterator<Item = &'static str> {
        CHANGEABLE_KEYS.into_iter().chain(CompactionTuning::KEYS).chain(FlushTuning::KEYS)
    }

    /// This configuration with the changeable parts of another.
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

    /// Reads HBase's keys; `memory_bytes` is what the server may use in all.
    ///
    /// # Errors
    /// When a value is not of its key's form.
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
            cell_bytes_max: length::index(size(
                "hbase.server.keyvalue.maxsize",
                default.cell_bytes_max as u64,
            )?),
            multi_actions_warn: length::index(conf.get_u64_or("hbase.rpc.rows.warning.threshold", 5000)?),
            multi_actions_reject: conf.get_bool_or("hbase.rpc.rows.size.threshold.reject", false)?,
            load_families_on_demand: conf
                .get_bool_or("hbase.hregion.scan.loadColumnFamiliesOnDemand", true)?,
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
            cache_statistics_ms: ms(CACHE_STATISTICS, default.cache_statistics_ms)?,
            compaction_after_bulk_load: conf.get_bool_or("hbase.compaction.after.bulkload.enable", true)?,
            coprocessors: Coprocessors::from(conf)?,
        })
    }
}

impl RegionServerConfig {
    /// [`RegionServerConfig::flush_changes_max`] of a table, which may have a value of its own; one
    /// that cannot be is none.
    pub fn flush_changes_max_of(&self, table: &TableDescriptor) -> u64 {
        number_of(table, FLUSH_PER_CHANGES)
            .filter(|changes| (0..=FLUSH_PER_CHANGES_MAX).contains(changes))
            .map_or(self.flush_changes_max, |changes| changes as u64)
    }

    /// [`RegionServerConfig::periodic_flush_ms`] of a table, which may have a value of its own.
    pub fn periodic_flush_ms_of(&self, table: &TableDescriptor) -> i64 {
        number_of(table, PERIODIC_FLUSH).unwrap_or(self.periodic_flush_ms)
    }
}

/// What a table has set under the name of a setting, as HBase's regions take it.
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
    fn flushes_by_time_and_by_changes_are_hbases() {
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
