//! Settings of HBase that have no effect here: each that is set is named in the log once, at start, with what is done instead.
//!
//! A setting that nobody reads is worse than one that is refused: its user takes it to be in force. A key that Evenkeel does not
//! know at all is named by [`Configuration::unknown_keys`]; here are those of the write path that it knows and does not obey.

use evenkeel_common::Configuration;

/// A key without an effect.
struct Ignored {
    key: &'static str,
    /// Values that ask for what is done anyway; of a class name, the part behind the last dot.
    same: &'static [&'static str],
    /// What is done, and what to set in its place.
    instead: &'static str,
}

impl Ignored {
    const fn new(key: &'static str, same: &'static [&'static str], instead: &'static str) -> Self {
        Self { key, same, instead }
    }

    fn is_same(&self, value: &str) -> bool {
        let class = value.rsplit('.').next().unwrap_or(value);
        self.same.iter().any(|same| same.eq_ignore_ascii_case(value) || *same == class)
    }
}

const ALL_FAMILIES: &str =
    "a flush writes all families of a region; hbase.hregion.memstore.flush.size is how much that is";
const ONE_LOG: &str =
    "all regions write one log and hbase:meta another, in HBase's format, whatever the provider";
const BEATS: &str = "the limit is kept every 64 KiB";
const LIMITS_OF_WRITERS: &str = "answers of writers are held instead, from half of a region's limit and hbase.hstore.blockingStoreFiles on";

/// Every key without an effect.
const IGNORED: &[Ignored] = &[
    Ignored::new("hbase.regionserver.flush.policy", &["FlushAllStoresPolicy"], ALL_FAMILIES),
    Ignored::new("hbase.hregion.percolumnfamilyflush.size.lower.bound", &[], ALL_FAMILIES),
    Ignored::new("hbase.hregion.percolumnfamilyflush.size.lower.bound.min", &[], ALL_FAMILIES),
    Ignored::new(
        "hbase.regionserver.flush.throughput.controller",
        &["NoLimitThroughputController", "PressureAwareFlushThroughputController"],
        "flushes have no limit; PressureAwareFlushThroughputController has one",
    ),
    Ignored::new("hbase.hstore.flush.throughput.control.check.interval", &[], BEATS),
    Ignored::new(
        "hbase.hstore.flush.throughput.tune.period",
        &[],
        "the limit follows unflushed bytes five times a second",
    ),
    Ignored::new(
        "hbase.regionserver.throughput.controller",
        &["NoLimitThroughputController", "PressureAwareCompactionThroughputController"],
        "compactions have the limit of PressureAwareCompactionThroughputController; NoLimitThroughputController has none",
    ),
    Ignored::new(
        "hbase.hstore.compaction.throughput.control.check.interval",
        &[],
        "the limit is kept after every row, or every 256 cells of one",
    ),
    Ignored::new(
        "hbase.hstore.blockingWaitTime",
        &[],
        "flushes never wait for compactions; from hbase.hstore.blockingStoreFiles on, answers of writers are held, by a second at most",
    ),
    Ignored::new(
        "hbase.hregion.preclose.flush.size",
        &[],
        "a region that closes flushes before it refuses writes, whatever its size",
    ),
    Ignored::new("hbase.region.store.parallel.put.limit", &["0"], LIMITS_OF_WRITERS),
    Ignored::new("hbase.region.store.parallel.put.limit.min.column.count", &[], LIMITS_OF_WRITERS),
    Ignored::new("hbase.region.store.parallel.prepare.put.multiplier", &[], LIMITS_OF_WRITERS),
    Ignored::new("hbase.wal.provider", &["asyncfs", "filesystem", "defaultProvider"], ONE_LOG),
    Ignored::new("hbase.wal.meta_provider", &["asyncfs", "filesystem", "defaultProvider"], ONE_LOG),
    Ignored::new("hbase.wal.dir", &[], "logs are below hbase.rootdir"),
    Ignored::new(
        "hbase.regionserver.logroll.errors.tolerated",
        &[],
        "any number is: a roll that failed is tried again after a second, in the old file until then",
    ),
    Ignored::new("hbase.hstore.compaction.kv.max", &[], "compactions take up to 256 cells at a time"),
    Ignored::new("hbase.hstore.min.locality.to.skip.major.compact", &["0", "0.0"], "all files are local"),
];

/// The settings that are set to something that has no effect: key, value, and what is done instead.
fn lines(conf: &Configuration) -> Vec<(&'static str, String, &'static str)> {
    let line = |ignored: &Ignored| {
        let value =
            conf.is_set(ignored.key).then(|| conf.get_trimmed(ignored.key).ok().flatten()).flatten()?;
        (!ignored.is_same(&value)).then_some((ignored.key, value, ignored.instead))
    };
    IGNORED.iter().filter_map(line).collect()
}

/// Names them in the log.
pub(super) fn warn(conf: &Configuration) {
    for (key, value, instead) in lines(conf) {
        tracing::warn!(key, value, instead, "a setting has no effect");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_effect_is_named_unless_it_is_done_anyway() {
        let mut conf = Configuration::new();
        assert_eq!(lines(&conf), []);
        conf.set("hbase.wal.provider", "asyncfs");
        conf.set(
            "hbase.regionserver.flush.policy",
            "org.apache.hadoop.hbase.regionserver.FlushAllStoresPolicy",
        );
        assert_eq!(lines(&conf), []);
        conf.set("hbase.wal.provider", "multiwal");
        conf.set("hbase.hstore.blockingWaitTime", "5");
        conf.set("hbase.regionserver.flush.policy", "FlushAllLargeStoresPolicy");
        let keys: Vec<_> = lines(&conf).iter().map(|(key, value, _)| format!("{key} {value}")).collect();
        let policy = "hbase.regionserver.flush.policy FlushAllLargeStoresPolicy";
        assert_eq!(keys, [policy, "hbase.hstore.blockingWaitTime 5", "hbase.wal.provider multiwal"]);
    }

    #[test]
    fn keys_without_an_effect_are_known_and_listed_once() {
        let mut conf = Configuration::new();
        for ignored in IGNORED {
            conf.set(ignored.key, "unheard of");
        }
        assert_eq!(conf.unknown_keys(), [""; 0], "a key that is not known is named by another line already");
        assert_eq!(lines(&conf).len(), IGNORED.len());
        assert_eq!(conf.set_properties().len(), IGNORED.len());
    }
}
