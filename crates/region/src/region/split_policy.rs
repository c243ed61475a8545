//! When a region is split without a request, and where: HBase's split policies and restrictions.
//!
//! The server calls [`Region::check_split`] after a compaction, and after a flush that it decided
//! on; as in HBase, not after one that a client requests. The table's
//! `SPLIT_POLICY`, or else `hbase.regionserver.region.split.policy`, decides if the region is large
//! enough:
//!
//! | policy, without `RegionSplitPolicy` or `SplitPolicy` | splits a region |
//! |---|---|
//! | `ConstantSize` | above the maximum size |
//! | `Stepping`, the default | above the initial size if alone, otherwise above the maximum |
//! | `IncreasingToUpperBound` | above the lesser of the maximum and the initial size times n³ |
//! | `KeyPrefix` | the same, between prefixes of a length |
//! | `DelimitedKeyPrefix` | the same, between prefixes that end before a delimiter |
//! | `Busy` | the same, or if many of its writes are rejected ([`BlockedWrites`]) |
//! | `Disabled` | never, and rejects requests to split |
//!
//! A region is alone, and n is 1, if the server has no other region of the table.
//!
//! The size is that of the largest store, or of all stores with `hbase.hregion.split.overallfiles`.
//! The maximum is `MAX_FILESIZE` or `hbase.hregion.max.filesize`, changed by a part of it that
//! depends on the region's name (`hbase.hregion.max.filesize.jitter`), so that regions that grow
//! equally do not split at the same time; HBase uses a random number. The initial size is
//! `hbase.increasing.policy.initial.size`, or twice the flush size with which the server started.
//!
//! A region with references is not split: HBase cannot read a reference to a reference.
//!
//! The row is that of [`Region::best_split_row`]: the middle of the largest store, shortened by the
//! policies of prefixes and by `hbase.regionserver.region.split_restriction.type`.
//!
//! A table overrides each of these settings by an attribute of the same name. HBase does not open a
//! region whose policy it cannot load; here the region opens, and is never split by size. A new
//! table with such a policy is rejected, as in HBase.

use std::collections::BTreeMap;

use bytes::Bytes;
use evenkeel_common::config::{ConfigError, values};
use evenkeel_common::length;
use evenkeel_common::{Configuration, HBaseError, RegionInfo, Result, TableDescriptor};
use parking_lot::Mutex;

use super::{Region, RegionCount};

const POLICY: &str = "hbase.regionserver.region.split.policy";
const PACKAGE: &str = "org.apache.hadoop.hbase.regionserver.";
const MAX_BYTES: &str = "hbase.hregion.max.filesize";
const JITTER: &str = "hbase.hregion.max.filesize.jitter";
const OVERALL: &str = "hbase.hregion.split.overallfiles";
const IGNORES_BLOCKING: &str = "hbase.hregion.split.ignore.blocking.enabled";
const INITIAL_BYTES: &str = "hbase.increasing.policy.initial.size";
const RESTRICTION: &str = "hbase.regionserver.region.split_restriction.type";
const RESTRICTION_LENGTH: &str = "hbase.regionserver.region.split_restriction.prefix_length";
const RESTRICTION_DELIMITER: &str = "hbase.regionserver.region.split_restriction.delimiter";
const BUSY_PART: &str = "hbase.busy.policy.blockedRequests";
const BUSY_AGE: &str = "hbase.busy.policy.minAge";
const BUSY_WINDOW: &str = "hbase.busy.policy.aggWindow";
/// The attributes of the policies of prefixes.
const PREFIX_LENGTH: &str = "KeyPrefixRegionSplitPolicy.prefix_length";
const PREFIX_LENGTH_OLD: &str = "prefix_split_key_policy.prefix_length";
const DELIMITER: &str = "DelimitedKeyPrefixRegionSplitPolicy.delimiter";

const MAX_BYTES_DEFAULT: i64 = 10 << 30;
const JITTER_DEFAULT: f64 = 0.25;
const BUSY_PART_DEFAULT: f64 = 0.2;
/// HBase uses the default outside of this range.
const BUSY_PARTS: std::ops::RangeInclusive<f64> = 0.00001..=0.99999;
const BUSY_AGE_DEFAULT_MS: i64 = 600_000;
const BUSY_WINDOW_DEFAULT_MS: i64 = 300_000;

/// With more regions of a table than this, `IncreasingToUpperBound` uses the maximum size.
const INCREASING_REGIONS_MAX: u64 = 100;

/// HBase's policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SplitPolicy {
    ConstantSize,
    IncreasingToUpperBound,
    Stepping,
    KeyPrefix,
    DelimitedKeyPrefix,
    BusyRegion,
    Disabled,
}

impl SplitPolicy {
    /// Returns the policy of a Java class, or `None` if it is not one of HBase's.
    fn of_class(class: &str) -> Option<Self> {
        Some(match class.strip_prefix(PACKAGE)? {
            "ConstantSizeRegionSplitPolicy" => Self::ConstantSize,
            "IncreasingToUpperBoundRegionSplitPolicy" => Self::IncreasingToUpperBound,
            "SteppingSplitPolicy" => Self::Stepping,
            "KeyPrefixRegionSplitPolicy" => Self::KeyPrefix,
            "DelimitedKeyPrefixRegionSplitPolicy" => Self::DelimitedKeyPrefix,
            "BusyRegionSplitPolicy" => Self::BusyRegion,
            "DisabledRegionSplitPolicy" => Self::Disabled,
            _ => return None,
        })
    }

    /// Returns the size above which a region is split.
    fn bytes_max(self, table_regions: u64, initial: u64, max: u64) -> u64 {
        match self {
            Self::ConstantSize => max,
            Self::Stepping if table_regions == 1 => initial,
            Self::Stepping => max,
            Self::Disabled => u64::MAX,
            Self::IncreasingToUpperBound | Self::KeyPrefix | Self::DelimitedKeyPrefix | Self::BusyRegion => {
                match table_regions {
                    1..=INCREASING_REGIONS_MAX => {
                        max.min(initial.saturating_mul(table_regions.saturating_pow(3)))
                    }
                    _ => max,
                }
            }
        }
    }
}

/// Checks the split policy of a new or altered table.
///
/// # Errors
/// `DoNotRetryIOException` with HBase's message for a class that is none of HBase's policies.
pub fn check_policy(table: &TableDescriptor) -> Result<()> {
    match table.text("SPLIT_POLICY").filter(|class| SplitPolicy::of_class(class).is_none()) {
        None => Ok(()),
        Some(class) => Err(HBaseError::do_not_retry(format!(
            "Unable to load configured region split policy '{class}' for table '{}'",
            table.name()
        ))),
    }
}

/// The settings of the server. A table's attribute overrides the setting of the same name.
#[derive(Clone, Debug, Default)]
pub struct SplitConfig {
    values: BTreeMap<&'static str, String>,
}

impl SplitConfig {
    /// The settings.
    const KEYS: [&str; 12] = [
        POLICY,
        MAX_BYTES,
        JITTER,
        OVERALL,
        IGNORES_BLOCKING,
        INITIAL_BYTES,
        RESTRICTION,
        RESTRICTION_LENGTH,
        RESTRICTION_DELIMITER,
        BUSY_PART,
        BUSY_AGE,
        BUSY_WINDOW,
    ];

    /// Reads HBase's keys.
    ///
    /// # Errors
    /// [`ConfigError`] if a value is malformed, or if the policy is none of HBase's.
    pub fn from_configuration(conf: &Configuration) -> Result<Self, ConfigError> {
        for key in [MAX_BYTES, INITIAL_BYTES, BUSY_AGE, BUSY_WINDOW] {
            conf.get_i64_or(key, 0)?;
        }
        for key in [JITTER, BUSY_PART] {
            conf.get_f64_or(key, 0.0)?;
        }
        for key in [OVERALL, IGNORES_BLOCKING] {
            conf.get_bool_or(key, false)?;
        }
        if conf.get_trimmed(POLICY)?.is_some_and(|class| SplitPolicy::of_class(&class).is_none()) {
            return Err(conf.unusable(POLICY, "a split policy of HBase"));
        }
        let mut values = BTreeMap::new();
        for key in Self::KEYS {
            values.extend(conf.get_trimmed(key)?.map(|value| (key, value)));
        }
        Ok(Self { values })
    }

    /// Returns the value for a table, if it is set.
    fn text<'a>(&'a self, table: &'a TableDescriptor, key: &str) -> Option<&'a str> {
        table.text(key).filter(|text| !text.is_empty()).or_else(|| self.values.get(key).map(String::as_str))
    }

    /// As [`SplitConfig::text`], or the default if a value cannot be read.
    fn integer(&self, table: &TableDescriptor, key: &str, default: i64) -> i64 {
        self.text(table, key).and_then(|text| values::integer(text.trim())).unwrap_or(default)
    }

    fn float(&self, table: &TableDescriptor, key: &str, default: f64) -> f64 {
        self.text(table, key).and_then(|text| values::float(text.trim())).unwrap_or(default)
    }

    fn is_on(&self, table: &TableDescriptor, key: &str) -> bool {
        self.text(table, key).and_then(|text| values::boolean(text.trim())).unwrap_or(false)
    }

    fn policy(&self, table: &TableDescriptor) -> Option<SplitPolicy> {
        let class = table.text("SPLIT_POLICY").or_else(|| self.text(table, POLICY));
        class.map_or(Some(SplitPolicy::Stepping), SplitPolicy::of_class)
    }

    /// Returns the maximum size of a region, with its jitter.
    fn bytes_max(&self, table: &TableDescriptor, region: &RegionInfo) -> u64 {
        let positive = |bytes: &i64| *bytes > 0;
        let of_table =
            table.text("MAX_FILESIZE").and_then(|text| values::integer(text.trim())).filter(positive);
        let bytes = of_table.unwrap_or_else(|| self.integer(table, MAX_BYTES, MAX_BYTES_DEFAULT));
        let part = (position_of(region) - 0.5) * self.float(table, JITTER, JITTER_DEFAULT);
        let bytes = bytes.max(0).unsigned_abs();
        bytes.saturating_add_signed(length::integer_part(bytes as f64 * part))
    }

    fn initial_bytes(&self, table: &TableDescriptor, flush_bytes: u64) -> u64 {
        match self.integer(table, INITIAL_BYTES, -1) {
            bytes @ 1.. => bytes.unsigned_abs(),
            _ => flush_bytes.saturating_mul(2),
        }
    }

    /// Shortens a split row to what the policy and the restriction allow.
    fn shorten(&self, table: &TableDescriptor, row: Bytes) -> Bytes {
        let row = match self.policy(table) {
            Some(SplitPolicy::KeyPrefix) => {
                let length = table.text(PREFIX_LENGTH).or_else(|| table.text(PREFIX_LENGTH_OLD));
                first_bytes(row, length)
            }
            Some(SplitPolicy::DelimitedKeyPrefix) => before(row, table.text(DELIMITER)),
            _ => row,
        };
        self.restrict(table, row)
    }

    /// Shortens a split row to what the restriction allows.
    fn restrict(&self, table: &TableDescriptor, row: Bytes) -> Bytes {
        match self.text(table, RESTRICTION) {
            Some("KeyPrefix") => first_bytes(row, self.text(table, RESTRICTION_LENGTH)),
            Some("DelimitedKeyPrefix") => before(row, self.text(table, RESTRICTION_DELIMITER)),
            _ => row,
        }
    }
}

/// Returns a number from 0 to 1 that depends on a region's name, the same for each region.
fn position_of(region: &RegionInfo) -> f64 {
    let digits = region.encoded_name().get(..8).and_then(|hex| u32::from_str_radix(hex, 16).ok());
    f64::from(digits.unwrap_or(u32::MAX / 2)) / f64::from(u32::MAX)
}

/// Returns the first bytes of a row, or the row if their number is not set, or not positive.
fn first_bytes(row: Bytes, length: Option<&str>) -> Bytes {
    match length.and_then(|text| text.trim().parse::<usize>().ok()) {
        Some(length @ 1..) => row.slice(..length.min(row.len())),
        _ => row,
    }
}

/// Returns the bytes of a row before a delimiter, or the row if it does not contain it.
fn before(row: Bytes, delimiter: Option<&str>) -> Bytes {
    let delimiter = delimiter.unwrap_or_default().as_bytes();
    if delimiter.is_empty() {
        return row;
    }
    match row.windows(delimiter.len()).position(|bytes| bytes == delimiter) {
        Some(at) => row.slice(..at),
        None => row,
    }
}

/// The rejected writes of a region over time, for `BusyRegionSplitPolicy`.
#[derive(Debug)]
pub(super) struct BlockedWrites(Mutex<Window>);

#[derive(Clone, Copy, Debug)]
struct Window {
    opened_ms: i64,
    /// When the window began, and the counts then.
    began_ms: i64,
    writes: u64,
    blocked: u64,
    /// The part of writes that was rejected in the window before.
    part_before: f64,
}

impl BlockedWrites {
    /// Begins to count.
    pub(super) fn new(now_ms: i64) -> Self {
        Self(Mutex::new(Window {
            opened_ms: now_ms,
            began_ms: now_ms,
            writes: 0,
            blocked: 0,
            part_before: 0.0,
        }))
    }

    /// Returns the part of writes that was rejected over the last window, whose beginning counts
    /// less as this window goes on (`BusyRegionSplitPolicy.updateRate`). 0 in the first window.
    fn part(&self, now_ms: i64, window_ms: i64, (writes, blocked): (u64, u64)) -> f64 {
        let mut window = self.0.lock();
        let of_window = blocked.saturating_sub(window.blocked) as f64
            / (writes.saturating_sub(window.writes) as f64 + 0.00001);
        let elapsed_ms = now_ms.saturating_sub(window.began_ms);
        if elapsed_ms >= window_ms {
            *window = Window { began_ms: now_ms, writes, blocked, part_before: of_window, ..*window };
            of_window
        } else if now_ms.saturating_sub(window.opened_ms) >= window_ms {
            let share = elapsed_ms as f64 / window_ms as f64;
            (1.0 - share) * window.part_before + share * of_window
        } else {
            0.0
        }
    }

    fn age_ms(&self, now_ms: i64) -> i64 {
        now_ms.saturating_sub(self.0.lock().opened_ms)
    }
}

impl Region {
    /// Returns the row at which the region should be split now, without a request; `None` if it
    /// should not. `table_regions` is the number of the table's regions on this server.
    pub fn check_split(&self, table_regions: usize) -> Option<Bytes> {
        let is_user_region = !self.info.table().is_system();
        (is_user_region && self.is_splittable() && self.is_due_to_split(table_regions as u64))
            .then(|| self.best_split_row())?
    }

    /// Returns true if the region may be split: it has compacted and archived all references to
    /// files of its parent, its policy is not `DisabledRegionSplitPolicy`, and it is neither of
    /// hbase:meta or hbase:namespace nor a secondary replica.
    pub fn is_splittable(&self) -> bool {
        let is_namespaces = self.info.table().is_system() && self.info.table().qualifier() == "namespace";
        !self.info.is_meta()
            && self.info.is_primary()
            && !is_namespaces
            && !self.is_closed()
            && self.policy_permits_split()
            && !self.stores.iter().any(|store| store.has_references_on_disk())
    }

    /// Returns false if the policy is `DisabledRegionSplitPolicy`.
    pub fn policy_permits_split(&self) -> bool {
        self.env.config.split.policy(&self.table) != Some(SplitPolicy::Disabled)
    }

    /// Returns true if the region is split even if its files block flushes
    /// (`hbase.hregion.split.ignore.blocking.enabled`).
    pub fn is_split_before_compaction(&self) -> bool {
        self.env.config.split.is_on(&self.table, IGNORES_BLOCKING)
    }

    /// Shortens a split row that a user gives to what the table's restriction allows.
    pub fn restricted_split_row(&self, row: Bytes) -> Bytes {
        self.env.config.split.restrict(&self.table, row)
    }

    fn is_due_to_split(&self, table_regions: u64) -> bool {
        let (config, table) = (&self.env.config.split, &*self.table);
        let Some(policy) = config.policy(table) else { return false };
        let max = config.bytes_max(table, &self.info);
        let flush_bytes = table.memstore_flush_bytes().unwrap_or(self.env.config.flush_bytes);
        let initial = config.initial_bytes(table, flush_bytes);
        let bytes = self.stores.iter().map(|store| store.file_bytes());
        let size = match config.is_on(table, OVERALL) {
            true => bytes.sum(),
            false => bytes.max().unwrap_or(0),
        };
        let is_busy = policy == SplitPolicy::BusyRegion && self.is_busy();
        is_busy || size > policy.bytes_max(table_regions, initial, max)
    }

    /// Returns true if enough writes are rejected to split the region.
    fn is_busy(&self) -> bool {
        let (config, table, now_ms) = (&self.env.config.split, &*self.table, self.env.stores.clock.now_ms());
        let part_min = Some(config.float(table, BUSY_PART, BUSY_PART_DEFAULT));
        let part_min = part_min.filter(|part| BUSY_PARTS.contains(part)).unwrap_or(BUSY_PART_DEFAULT);
        let window_ms = Some(config.integer(table, BUSY_WINDOW, BUSY_WINDOW_DEFAULT_MS));
        let window_ms = window_ms.filter(|ms| *ms > 0).unwrap_or(BUSY_WINDOW_DEFAULT_MS);
        let counts = (self.counts.get(RegionCount::Writes), self.counts.get(RegionCount::Blocked));
        let part = self.blocked_writes.part(now_ms, window_ms, counts);
        let age_min_ms = config.integer(table, BUSY_AGE, BUSY_AGE_DEFAULT_MS);
        part >= part_min && self.blocked_writes.age_ms(now_ms) >= age_min_ms
    }

    /// Returns the row at which a split cuts: the middle row of the largest store that has one,
    /// shortened to a prefix if the table's policy or restriction requires it. `None` if no store
    /// can be split, or if that row is outside of the region or its first one: a bulk loaded file
    /// may have such rows, and so may a prefix.
    pub fn best_split_row(&self) -> Option<Bytes> {
        let rows = self.stores.iter().filter_map(|store| Some((store.file_bytes(), store.split_row()?)));
        let (_, row) = rows.max_by_key(|(bytes, _)| *bytes)?;
        let row = self.env.config.split.shorten(&self.table, row);
        (self.info.contains_row(&row) && row != *self.info.start_key()).then_some(row)
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_common::{ColumnFamilyDescriptor, TableName};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn table(attributes: &[(&str, &str)]) -> TableDescriptor {
        let table = TableDescriptor::new("t".parse::<TableName>().expect("legal"))
            .with_family(ColumnFamilyDescriptor::new(b"f").expect("legal"));
        attributes.iter().fold(table, |table, (key, value)| table.with(key, value))
    }

    fn config(pairs: &[(&str, &str)]) -> Result<SplitConfig, ConfigError> {
        let mut conf = Configuration::with_system_properties(Default::default());
        pairs.iter().for_each(|(key, value)| conf.set(*key, *value));
        SplitConfig::from_configuration(&conf)
    }

    fn class(name: &str) -> String {
        format!("{PACKAGE}{name}")
    }

    #[test]
    fn each_policy_has_its_limit() {
        let limits = |name: &str| {
            let policy = SplitPolicy::of_class(&class(name)).expect("known");
            [0, 1, 2, 3, 100, 101].map(|regions| policy.bytes_max(regions, 256 * MIB, 10_240 * MIB) / MIB)
        };
        let max = 10_240;
        assert_eq!(limits("ConstantSizeRegionSplitPolicy"), [max; 6]);
        assert_eq!(limits("SteppingSplitPolicy"), [max, 256, max, max, max, max]);
        let increasing = [max, 256, 2048, 6912, max, max];
        for name in [
            "IncreasingToUpperBoundRegionSplitPolicy",
            "KeyPrefixRegionSplitPolicy",
            "DelimitedKeyPrefixRegionSplitPolicy",
            "BusyRegionSplitPolicy",
        ] {
            assert_eq!(limits(name), increasing, "{name}");
        }
        assert_eq!(limits("DisabledRegionSplitPolicy"), [u64::MAX / MIB; 6]);
        assert_eq!(SplitPolicy::of_class("SteppingSplitPolicy"), None, "a class has a package");
    }

    #[test]
    fn a_table_overrides_the_settings_of_the_server() {
        let server =
            config(&[(POLICY, &class("ConstantSizeRegionSplitPolicy")), (MAX_BYTES, "1000"), (JITTER, "0")])
                .expect("valid");
        let region = RegionInfo::new("t".parse().expect("legal"), Bytes::new(), Bytes::new(), 1);
        let own = table(&[("SPLIT_POLICY", &class("DisabledRegionSplitPolicy")), ("MAX_FILESIZE", "5000")]);
        assert_eq!(server.policy(&table(&[])), Some(SplitPolicy::ConstantSize));
        assert_eq!(server.policy(&own), Some(SplitPolicy::Disabled));
        assert_eq!(server.policy(&table(&[("SPLIT_POLICY", "org.example.Mine")])), None);
        assert_eq!(server.bytes_max(&table(&[]), &region), 1000);
        assert_eq!(server.bytes_max(&own, &region), 5000);
        assert_eq!(server.bytes_max(&table(&[(MAX_BYTES, "0x70")]), &region), 0x70);
        assert!(server.is_on(&table(&[(OVERALL, "TRUE")]), OVERALL) && !server.is_on(&own, OVERALL));
        assert_eq!(server.initial_bytes(&own, 9), 18);
        assert_eq!(server.initial_bytes(&table(&[(INITIAL_BYTES, "7")]), 9), 7);
        assert_eq!(SplitConfig::default().policy(&table(&[])), Some(SplitPolicy::Stepping));
        assert!(check_policy(&table(&[("SPLIT_POLICY", "org.example.Mine")])).is_err());
        assert_eq!(check_policy(&own), Ok(()));
        assert!(config(&[(POLICY, "org.example.Mine")]).is_err() && config(&[(MAX_BYTES, "x")]).is_err());
    }

    #[test]
    fn regions_have_different_maximum_sizes() {
        let config = SplitConfig::default();
        let sizes: Vec<u64> = (0..1000)
            .map(|id| {
                let region = RegionInfo::new("t".parse().expect("legal"), Bytes::new(), Bytes::new(), id);
                config.bytes_max(&table(&[("MAX_FILESIZE", "1000000")]), &region)
            })
            .collect();
        assert!(sizes.iter().all(|size| (875_000..=1_125_000).contains(size)));
        let mean = sizes.iter().sum::<u64>() / 1000;
        assert!((990_000..=1_010_000).contains(&mean), "{mean}");
        assert!(sizes.iter().any(|size| *size < 890_000) && sizes.iter().any(|size| *size > 1_110_000));
    }

    #[test]
    fn policies_and_restrictions_shorten_the_row() {
        let server = config(&[(RESTRICTION, "KeyPrefix"), (RESTRICTION_LENGTH, "6")]).expect("valid");
        let shorten = |attributes: &[(&str, &str)]| {
            server.shorten(&table(attributes), Bytes::from_static(b"user_42_event_7")).to_vec()
        };
        let none = (RESTRICTION, "None");
        let prefix = class("KeyPrefixRegionSplitPolicy");
        let delimited = class("DelimitedKeyPrefixRegionSplitPolicy");
        let whole = b"user_42_event_7".to_vec();
        assert_eq!(shorten(&[]), b"user_4");
        assert_eq!(shorten(&[none]), whole);
        assert_eq!(shorten(&[none, ("SPLIT_POLICY", &prefix), (PREFIX_LENGTH, "5")]), b"user_");
        assert_eq!(shorten(&[none, ("SPLIT_POLICY", &prefix), (PREFIX_LENGTH_OLD, "5")]), b"user_");
        assert_eq!(shorten(&[none, ("SPLIT_POLICY", &prefix), (PREFIX_LENGTH, "100")]), whole);
        assert_eq!(shorten(&[none, ("SPLIT_POLICY", &prefix), (PREFIX_LENGTH, "0")]), whole);
        assert_eq!(shorten(&[none, ("SPLIT_POLICY", &prefix)]), whole);
        assert_eq!(shorten(&[none, ("SPLIT_POLICY", &delimited), (DELIMITER, "_e")]), b"user_42");
        assert_eq!(shorten(&[none, ("SPLIT_POLICY", &delimited), (DELIMITER, "/")]), whole);
        assert_eq!(
            shorten(&[(RESTRICTION, "DelimitedKeyPrefix"), (RESTRICTION_DELIMITER, "_")]),
            b"user",
            "the table's restriction"
        );
    }

    #[test]
    fn blocked_writes_are_counted_by_window() {
        let blocked = BlockedWrites::new(0);
        let near = |part: f64, expected: f64| assert!((part - expected).abs() < 0.001, "{part}, {expected}");
        near(blocked.part(50, 100, (100, 90)), 0.0);
        near(blocked.part(100, 100, (100, 50)), 0.5);
        near(blocked.part(150, 100, (200, 150)), 0.5 * 0.5 + 0.5);
        near(blocked.part(200, 100, (300, 150)), 0.5);
        near(blocked.part(290, 100, (400, 150)), 0.1 * 0.5);
        assert_eq!(blocked.age_ms(290), 290);
    }
}
