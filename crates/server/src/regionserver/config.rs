//! [`RegionServerConfig`]: HBase's keys that this room obeys.

use evenkeel_common::config::ConfigError;
use evenkeel_common::{Configuration, TimeUnit};

use super::tuning::CompactionTuning;

/// The Java class of the built-in AggregateService.
pub const AGGREGATE_IMPLEMENTATION: &str = "org.apache.hadoop.hbase.coprocessor.AggregateImplementation";

const SHARED_VALUE: &str = "evenkeel.reply.shared.value.size";
/// See [`RegionServerConfig::scanners_max`].
pub const SCANNERS_MAX: &str = "evenkeel.regionserver.scanners.max";
const CACHE_STATISTICS: &str = "evenkeel.blockcache.statistics.period";
const PERIODIC_FLUSH: &str = "hbase.regionserver.optionalcacheflushinterval";

/// Limits and switches of a RegionServer.
#[derive(Clone, Debug)]
pub struct RegionServerConfig {
    /// `hbase.client.scanner.timeout.period`: how long a scanner lives without a call.
    pub scanner_lease_ms: i64,
    /// `evenkeel.regionserver.scanners.max`: open scanners; one too many ends the one that no call took for longest. Unless
    /// set, as many as have their part of the memory, at 64 KiB each ([`MemoryPlan`](crate::standalone::MemoryPlan)).
    pub scanners_max: usize,
    /// `hbase.rpc.timeout`: how long a client that tells no timeout is taken to wait.
    pub rpc_timeout_ms: u64,
    /// `hbase.region.server.rpc.minimum.scan.time.limit.delta`: the least time a scan call may take.
    pub scan_time_min_ms: u64,
    /// `hbase.server.scanner.max.result.size`: bytes of cells in a reply at most.
    pub result_bytes_max: u64,
    /// `evenkeel.reply.shared.value.size`: values of at least so many bytes go from the cached block to the socket without
    /// a copy. Smaller ones than 16 KiB are copied whatever it says.
    pub shared_value_bytes_min: usize,
    /// `hbase.server.keyvalue.maxsize`: bytes of a cell at most; 0 for no limit.
    pub cell_bytes_max: usize,
    /// `hbase.rpc.rows.warning.threshold`: actions of a Multi worth a warning.
    pub multi_actions_warn: usize,
    /// `hbase.rpc.rows.size.threshold.reject`: whether a Multi over the threshold is refused.
    pub multi_actions_reject: bool,
    /// `hbase.hregion.scan.loadColumnFamiliesOnDemand`: for reads that do not say.
    pub load_families_on_demand: bool,
    /// Unflushed bytes of all regions at which writes are refused (`hbase.regionserver.global.memstore.size` of the
    /// memory the server may use).
    pub global_memstore_bytes: u64,
    /// Where flushes begin to work against that (`hbase.regionserver.global.memstore.size.lower.limit`).
    pub global_memstore_low_bytes: u64,
    /// How fast compactions write.
    pub compaction: CompactionTuning,
    /// How often every store is asked whether a compaction is due (`hbase.server.thread.wakefrequency` times
    /// `hbase.server.compactchecker.interval.multiplier`).
    pub compaction_check_ms: i64,
    /// `hbase.regionserver.optionalcacheflushinterval`: how long edits stay unflushed at most; 0 for no limit.
    pub periodic_flush_ms: i64,
    /// `evenkeel.blockcache.statistics.period`: how often the log has a line about the caches; 0 for never. HBase's are five
    /// minutes apart.
    pub cache_statistics_ms: i64,
    /// `hbase.coprocessor.region.classes` names AggregateImplementation: every table has AggregateService.
    pub aggregate_everywhere: bool,
    /// `hbase.compaction.after.bulkload.enable`: whether a load asks for a compaction that is due.
    pub compaction_after_bulk_load: bool,
}

impl Default for RegionServerConfig {
    fn default() -> Self {
        Self {
            scanner_lease_ms: 60_000,
            scanners_max: 10_000,
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
            compaction_check_ms: 10_000_000,
            periodic_flush_ms: 3_600_000,
            cache_statistics_ms: 300_000,
            aggregate_everywhere: false,
            compaction_after_bulk_load: true,
        }
    }
}

impl RegionServerConfig {
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
        let global_memstore_bytes = (memory_bytes as f64 * share) as u64;
        let wake_ms = ms("hbase.server.thread.wakefrequency", 10_000)?;
        let multiplier = conf.get_i64_or("hbase.server.compactchecker.interval.multiplier", 1000)?;
        let classes = conf.get_list("hbase.coprocessor.region.classes")?;
        Ok(Self {
            scanner_lease_ms: ms("hbase.client.scanner.timeout.period", default.scanner_lease_ms)?.max(1),
            scanners_max: conf.get_u64_or(SCANNERS_MAX, default.scanners_max as u64)?.max(1) as usize,
            rpc_timeout_ms: ms("hbase.rpc.timeout", default.rpc_timeout_ms as i64)?.max(0) as u64,
            scan_time_min_ms: ms("hbase.region.server.rpc.minimum.scan.time.limit.delta", 10)?.max(0) as u64,
            result_bytes_max: size("hbase.server.scanner.max.result.size", default.result_bytes_max)?.max(1),
            shared_value_bytes_min: size(SHARED_VALUE, default.shared_value_bytes_min as u64)? as usize,
            cell_bytes_max: size("hbase.server.keyvalue.maxsize", default.cell_bytes_max as u64)? as usize,
            multi_actions_warn: conf.get_u64_or("hbase.rpc.rows.warning.threshold", 5000)? as usize,
            multi_actions_reject: conf.get_bool_or("hbase.rpc.rows.size.threshold.reject", false)?,
            load_families_on_demand: conf
                .get_bool_or("hbase.hregion.scan.loadColumnFamiliesOnDemand", true)?,
            global_memstore_bytes,
            global_memstore_low_bytes: (global_memstore_bytes as f64 * low) as u64,
            compaction: CompactionTuning::from(conf)?,
            compaction_check_ms: wake_ms.max(1).saturating_mul(multiplier.max(1)),
            periodic_flush_ms: ms(PERIODIC_FLUSH, default.periodic_flush_ms)?,
            cache_statistics_ms: ms(CACHE_STATISTICS, default.cache_statistics_ms)?,
            compaction_after_bulk_load: conf.get_bool_or("hbase.compaction.after.bulkload.enable", true)?,
            aggregate_everywhere: classes.iter().any(|class| class == AGGREGATE_IMPLEMENTATION),
        })
    }
}
