//! [`StoreConfig`]: limits of a store.

use std::ops::RangeInclusive;

use evenkeel_common::{ColumnFamilyDescriptor, ConfigError, Configuration, TableDescriptor};

use evenkeel_hfile::ChecksumType;

use super::cache::StoreCacheConfig;
use super::compaction::engine::EngineSettings;
use super::mob::MobConfig;
use crate::memstore::InMemoryConfig;
use crate::store_file_tracker::TrackerSettings;

/// Limits of a store. `Default` has HBase's values, and a family's configuration may override them.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// `hbase.hstore.compaction.min`: the minimum number of files of a minor compaction.
    pub compaction_files_min: usize,
    /// `hbase.hstore.compaction.max`: the maximum number of files of a minor compaction.
    pub compaction_files_max: usize,
    /// `hbase.hstore.compaction.min.size`: files that are smaller in total are exempt from the
    /// ratio.
    pub compaction_bytes_min: u64,
    /// `hbase.hstore.compaction.max.size`: larger files are not compacted.
    pub compaction_bytes_max: u64,
    /// `hbase.hstore.compaction.ratio`: a file may be at most this many times as large as the
    /// others together.
    pub compaction_ratio: f64,
    /// `hbase.hstore.compaction.ratio.offpeak`: the same, in off-peak hours.
    pub compaction_ratio_off_peak: f64,
    /// `hbase.hstore.compaction.max.size.offpeak`; `compaction_bytes_max` if unset.
    pub compaction_bytes_max_off_peak: u64,
    /// `hbase.hstore.blockingStoreFiles`: with this many files, any selection is better than none.
    pub blocking_files: usize,
    /// `hbase.hregion.majorcompaction`, in milliseconds; 0 for never.
    pub major_period_ms: i64,
    /// `hbase.hregion.majorcompaction.jitter`: the fraction of the period by which it varies.
    pub major_jitter: f64,
    /// `hbase.hstore.min.locality.to.skip.major.compact`: below this locality a periodic major
    /// compaction also rewrites files that need none, so that their blocks become local.
    pub major_locality_min: f32,
    /// `hbase.hstore.time.to.purge.deletes`: younger markers are kept.
    pub time_to_purge_deletes_ms: i64,
    /// `hbase.hstore.compaction.keep.seqId.period`, in milliseconds: older files lose their cells'
    /// sequence ids in a compaction of all files.
    pub keep_seq_id_ms: i64,
    /// True if `hbase.io.compress.zstd.codec` names the codec of hbase-compression-zstd, whose
    /// blocks Hadoop's codec cannot read.
    pub zstd_framed: bool,
    /// `hbase.hstore.checksum.algorithm`: the checksums in new files.
    pub checksum: ChecksumType,
    /// `hbase.hstore.bytes.per.checksum`: bytes of a block per checksum.
    pub bytes_per_checksum: u32,
    /// `hfile.index.block.max.size`: bytes of a full index block.
    pub index_block_bytes: usize,
    /// `io.storefile.bloom.block.size`: bytes of a full chunk of a bloom filter.
    pub bloom_block_bytes: usize,
    /// `hfile.index.block.min.entries`: a root index with at most this many entries has no further
    /// level.
    pub index_block_entries_min: usize,
    /// `io.storefile.bloom.enabled`: new files have their family's bloom filter.
    pub bloom: bool,
    /// `io.storefile.delete.family.bloom.enabled`: new files have a bloom filter of rows with
    /// DeleteFamily markers.
    pub delete_family_bloom: bool,
    /// `io.storefile.bloom.error.rate`: the false positive rate of a full chunk of a bloom filter.
    pub bloom_error_rate: f32,
    /// `hbase.hstore.bulkload.verify`: read a whole file before it is bulk loaded.
    pub verify_bulk_loads: bool,
    /// `evenkeel.hfile.verify.writes`: read the output of a flush or compaction back before it is
    /// used.
    pub verify_writes: bool,
    /// `hbase.hregion.memstore.flush.size`: the approximate size of a new file.
    pub flush_bytes: u64,
    /// `DFS_REPLICATION`, of a table or a family: the number of DataNodes that store a new file; 0
    /// for the default of HDFS.
    pub dfs_replication: u16,
    /// The storage policy of the store's directories, by `STORAGE_POLICY` or else
    /// `hbase.hstore.block.storage.policy`.
    pub storage_policy: StoragePolicy,
    /// `hbase.table.max.rowsize`: a read of a row with more bytes of cells fails, unless a limit
    /// ends it earlier.
    pub row_bytes_max: u64,
    /// Which of the store's blocks are cached, and when.
    pub cache: StoreCacheConfig,
    /// Settings of in-memory flushes.
    pub in_memory: InMemoryConfig,
    /// `hbase.hstore.engine.class`, and the settings of the engines.
    pub engine: EngineSettings,
    /// Compactions of MOB files.
    pub mob: MobConfig,
    /// The store file tracker, of a table or a family. The server's setting is that of new tables.
    pub tracker: TrackerSettings,
}

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// The minimum of `hbase.hstore.compaction.keep.seqId.period`, in days.
const KEEP_SEQ_ID_DAYS_MIN: i64 = 5;

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            compaction_files_min: 3,
            compaction_files_max: 10,
            compaction_bytes_min: 128 << 20,
            compaction_bytes_max: u64::MAX,
            compaction_ratio: 1.2,
            compaction_ratio_off_peak: 5.0,
            compaction_bytes_max_off_peak: u64::MAX,
            blocking_files: 16,
            major_period_ms: 7 * DAY_MS,
            major_jitter: 0.5,
            major_locality_min: 0.0,
            time_to_purge_deletes_ms: 0,
            keep_seq_id_ms: KEEP_SEQ_ID_DAYS_MIN * DAY_MS,
            zstd_framed: false,
            checksum: ChecksumType::Crc32C,
            bytes_per_checksum: 16 << 10,
            index_block_bytes: 128 << 10,
            bloom_block_bytes: 128 << 10,
            index_block_entries_min: 16,
            bloom: true,
            delete_family_bloom: true,
            bloom_error_rate: 0.01,
            verify_bulk_loads: false,
            verify_writes: true,
            flush_bytes: 128 << 20,
            dfs_replication: 0,
            storage_policy: StoragePolicy::default(),
            row_bytes_max: 1 << 30,
            cache: StoreCacheConfig::default(),
            in_memory: InMemoryConfig::default(),
            engine: EngineSettings::default(),
            mob: MobConfig::default(),
            tracker: TrackerSettings::default(),
        }
    }
}

/// Where HDFS stores the blocks of a store's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoragePolicy {
    of_family: Option<String>,
    setting: Option<String>,
}

impl StoragePolicy {
    /// Returns the policy's name for HDFS; `None` if HDFS decides.
    pub(super) fn name(&self) -> Option<String> {
        let name = self.of_family.as_ref().or(self.setting.as_ref())?.trim().to_uppercase();
        (!name.is_empty() && name != NO_POLICY).then_some(name)
    }
}

const FILES_MIN: &str = "hbase.hstore.compaction.min";
const FILES_MAX: &str = "hbase.hstore.compaction.max";
const BYTES_MIN: &str = "hbase.hstore.compaction.min.size";
const BYTES_MAX: &str = "hbase.hstore.compaction.max.size";
const RATIO: &str = "hbase.hstore.compaction.ratio";
const RATIO_OFF_PEAK: &str = "hbase.hstore.compaction.ratio.offpeak";
const BYTES_MAX_OFF_PEAK: &str = "hbase.hstore.compaction.max.size.offpeak";
const BLOCKING_FILES: &str = "hbase.hstore.blockingStoreFiles";
const MAJOR_PERIOD: &str = "hbase.hregion.majorcompaction";
const MAJOR_JITTER: &str = "hbase.hregion.majorcompaction.jitter";
const MAJOR_LOCALITY_MIN: &str = "hbase.hstore.min.locality.to.skip.major.compact";
const PURGE_DELETES: &str = "hbase.hstore.time.to.purge.deletes";
const KEEP_SEQ_ID_DAYS: &str = "hbase.hstore.compaction.keep.seqId.period";
const VERIFY_BULK_LOADS: &str = "hbase.hstore.bulkload.verify";
const VERIFY_WRITES: &str = "evenkeel.hfile.verify.writes";
const CHECKSUM: &str = "hbase.hstore.checksum.algorithm";
const BYTES_PER_CHECKSUM: &str = "hbase.hstore.bytes.per.checksum";
const INDEX_BLOCK_BYTES: &str = "hfile.index.block.max.size";
const BLOOM_BLOCK_BYTES: &str = "io.storefile.bloom.block.size";
const INDEX_ENTRIES_MIN: &str = "hfile.index.block.min.entries";
const BLOOM: &str = "io.storefile.bloom.enabled";
const DELETE_FAMILY_BLOOM: &str = "io.storefile.delete.family.bloom.enabled";
const BLOOM_ERROR_RATE: &str = "io.storefile.bloom.error.rate";
/// A lower rate costs more hashes per lookup than a block read is worth; a higher one excludes
/// hardly any row.
const BLOOM_ERROR_RATES: RangeInclusive<f32> = 1e-6..=0.5;
const ZSTD_CODEC: &str = "hbase.io.compress.zstd.codec";
/// The package of HBase's codecs; Hadoop's are elsewhere.
const HBASE_CODECS: &str = "org.apache.hadoop.hbase.io.compress.";
const DFS_REPLICATION: &str = "DFS_REPLICATION";
const STORAGE_POLICY: &str = "STORAGE_POLICY";
const BLOCK_STORAGE_POLICY: &str = "hbase.hstore.block.storage.policy";
/// The policy that stands for that of HDFS (`HConstants.DEFER_TO_HDFS_STORAGE_POLICY`).
const NO_POLICY: &str = "NONE";
const ROW_BYTES_MAX: &str = "hbase.table.max.rowsize";
/// The maximum of `BLOCKSIZE` and `hfile.index.block.max.size`, which is that of HBase's check of a
/// table. The check can be switched off, and a block is made in memory.
pub(super) const BLOCK_BYTES_MAX: u32 = 16 << 20;
/// The maximum of `io.storefile.bloom.block.size`. A chunk has this size in memory while it is
/// filled, whatever the number of its keys.
const BLOOM_BLOCK_BYTES_MAX: u32 = 4 << 20;
const FLUSH_BYTES: &str = "hbase.hregion.memstore.flush.size";

impl StoreConfig {
    /// Reads the server's configuration.
    ///
    /// # Errors
    /// A value that cannot be parsed.
    pub fn from_configuration(conf: &Configuration) -> Result<Self, ConfigError> {
        let flush_bytes = conf.get_size_or(FLUSH_BYTES, 128 << 20)?.max(0) as u64;
        let mut config = Self { compaction_bytes_min: flush_bytes, flush_bytes, ..Self::default() };
        let keys = [
            BLOCK_STORAGE_POLICY,
            FILES_MIN,
            FILES_MAX,
            BYTES_MIN,
            BYTES_MAX,
            RATIO,
            RATIO_OFF_PEAK,
            // After BYTES_MAX, which sets both.
            BYTES_MAX_OFF_PEAK,
            BLOCKING_FILES,
            MAJOR_PERIOD,
            MAJOR_JITTER,
            MAJOR_LOCALITY_MIN,
            PURGE_DELETES,
            KEEP_SEQ_ID_DAYS,
            VERIFY_BULK_LOADS,
            VERIFY_WRITES,
            CHECKSUM,
            BYTES_PER_CHECKSUM,
            INDEX_BLOCK_BYTES,
            BLOOM_BLOCK_BYTES,
            INDEX_ENTRIES_MIN,
            BLOOM,
            DELETE_FAMILY_BLOOM,
            BLOOM_ERROR_RATE,
            ROW_BYTES_MAX,
        ];
        for key in keys.into_iter().chain(MobConfig::KEYS).chain(EngineSettings::keys()) {
            if let Some(value) = conf.get_trimmed(key)? {
                config.set(key, &value);
            }
        }
        config.cache = StoreCacheConfig::from_configuration(conf)?;
        config.in_memory = InMemoryConfig::from_configuration(conf)?;
        config.zstd_framed =
            conf.get_trimmed(ZSTD_CODEC)?.is_some_and(|class| class.starts_with(HBASE_CODECS));
        Ok(config)
    }

    /// The keys for selecting compactions. They may change while a store is open.
    pub fn compaction_keys() -> impl Iterator<Item = &'static str> {
        let keys = [
            FILES_MIN,
            FILES_MAX,
            BYTES_MIN,
            BYTES_MAX,
            RATIO,
            RATIO_OFF_PEAK,
            BYTES_MAX_OFF_PEAK,
            BLOCKING_FILES,
            MAJOR_PERIOD,
            MAJOR_JITTER,
            MAJOR_LOCALITY_MIN,
        ];
        keys.into_iter().chain(EngineSettings::number_keys())
    }

    /// Applies a table's attributes.
    pub fn for_table(&self, table: &TableDescriptor) -> Self {
        let mut config = self.clone();
        config.set_attributes(table.attributes().iter().map(|(key, value)| (&key[..], &value[..])));
        config.tracker = TrackerSettings::of_table(table);
        config
    }

    /// Applies a family's configuration.
    pub fn for_family(&self, family: &ColumnFamilyDescriptor) -> Self {
        let mut config = self.clone();
        config.cache = config.cache.for_family(family);
        config.set_attributes(family.attributes().iter().map(|(key, value)| (&key[..], &value[..])));
        family.configuration().iter().for_each(|(key, value)| config.set(key, value.trim()));
        config.tracker.apply_family(family);
        config
    }

    fn set_attributes<'a>(&mut self, attributes: impl Iterator<Item = (&'a [u8], &'a [u8])>) {
        for (key, value) in attributes {
            if let (Ok(key), Ok(value)) = (std::str::from_utf8(key), std::str::from_utf8(value)) {
                self.set(key, value.trim());
            }
        }
    }

    /// Applies one setting. An unknown key or an invalid value changes nothing.
    fn set(&mut self, key: &str, value: &str) {
        match key {
            DFS_REPLICATION => parse(value, |n| self.dfs_replication = n),
            STORAGE_POLICY => self.storage_policy.of_family = Some(value.to_owned()),
            BLOCK_STORAGE_POLICY => self.storage_policy.setting = Some(value.to_owned()),
            FILES_MIN => parse(value, |n: usize| self.compaction_files_min = n.max(2)),
            FILES_MAX => parse(value, |n: usize| self.compaction_files_max = n.max(2)),
            BYTES_MIN => parse(value, |n| self.compaction_bytes_min = n),
            BYTES_MAX => parse(value, |n| {
                self.compaction_bytes_max = n;
                self.compaction_bytes_max_off_peak = n;
            }),
            BYTES_MAX_OFF_PEAK => parse(value, |n| self.compaction_bytes_max_off_peak = n),
            RATIO_OFF_PEAK => parse(value, |n| self.compaction_ratio_off_peak = n),
            RATIO => parse(value, |n| self.compaction_ratio = n),
            BLOCKING_FILES => parse(value, |n| self.blocking_files = n),
            MAJOR_PERIOD => parse(value, |n| self.major_period_ms = n),
            MAJOR_JITTER => parse(value, |n| self.major_jitter = n),
            MAJOR_LOCALITY_MIN => parse(value, |n| self.major_locality_min = n),
            PURGE_DELETES => parse(value, |n: i64| self.time_to_purge_deletes_ms = n.max(0)),
            KEEP_SEQ_ID_DAYS => {
                parse(value, |n: i64| self.keep_seq_id_ms = n.max(KEEP_SEQ_ID_DAYS_MIN) * DAY_MS)
            }
            CHECKSUM => match ChecksumType::from_name(value) {
                Some(kind) => self.checksum = kind,
                None => tracing::warn!(value, "unknown checksum algorithm; the setting is ignored"),
            },
            BYTES_PER_CHECKSUM => {
                parse(value, |n: u32| self.bytes_per_checksum = n.clamp(1, i32::MAX as u32))
            }
            INDEX_BLOCK_BYTES => {
                parse(value, |n: u32| self.index_block_bytes = n.clamp(1, BLOCK_BYTES_MAX) as usize);
            }
            BLOOM_BLOCK_BYTES => {
                parse(value, |n: u32| self.bloom_block_bytes = n.clamp(1, BLOOM_BLOCK_BYTES_MAX) as usize);
            }
            INDEX_ENTRIES_MIN => parse(value, |n: u32| self.index_block_entries_min = n.max(1) as usize),
            BLOOM => parse_switch(value, |bloom| self.bloom = bloom),
            DELETE_FAMILY_BLOOM => parse_switch(value, |bloom| self.delete_family_bloom = bloom),
            BLOOM_ERROR_RATE => match value.parse() {
                Ok(rate) if BLOOM_ERROR_RATES.contains(&rate) => self.bloom_error_rate = rate,
                _ => tracing::warn!(
                    value,
                    "the error rate of bloom filters is not from 1e-6 to 0.5; the setting is ignored"
                ),
            },
            ROW_BYTES_MAX => parse(value, |n| self.row_bytes_max = n),
            VERIFY_BULK_LOADS => parse_switch(value, |verify| self.verify_bulk_loads = verify),
            VERIFY_WRITES => parse_switch(value, |verify| self.verify_writes = verify),
            "MEMSTORE_FLUSHSIZE" => parse(value, |n| self.flush_bytes = n),
            _ => drop(self.mob.set(key, value) || self.engine.set(key, value)),
        }
    }
}

/// Parses a boolean in any case, as HBase does.
fn parse_switch(value: &str, set: impl FnOnce(bool)) {
    parse(&value.to_ascii_lowercase(), set);
}

fn parse<T: std::str::FromStr>(value: &str, set: impl FnOnce(T)) {
    match value.parse() {
        Ok(value) => set(value),
        Err(_) => tracing::warn!(value, "a store's limit is invalid and is ignored"),
    }
}
