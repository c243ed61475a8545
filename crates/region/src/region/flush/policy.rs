//! Which stores a flush in the background writes (`FlushPolicy`).
//!
//! A flush that someone asks for, and that of a close, a snapshot or a bulk load, writes all stores
//! of a region. One that memory, age or the log makes due writes those that its table's
//! `FLUSH_POLICY`, or else `hbase.regionserver.flush.policy`, selects, so that a large family does
//! not make files of a few cells in the small ones:
//!
//! | policy | selects |
//! |---|---|
//! | `FlushAllStoresPolicy` | all |
//! | `FlushAllLargeStoresPolicy`, the default | large or old ones; without one, all |
//! | `FlushNonSloppyStoresFirstPolicy` | the same, first among those without in-memory compaction |
//!
//! A store is large above the flush size divided by the number of families, but not less than
//! `hbase.hregion.percolumnfamilyflush.size.lower.bound.min`. A table sets another bound by the
//! attribute `hbase.hregion.percolumnfamilyflush.size.lower.bound`; as in HBase, the site file does
//! not. A store is old if the server's chore has found it so ([`Region::flush_old_stores`]).
//!
//! A full log needs the flush of certain stores, large or not ([`Region::require_flush`]). These
//! are flushed alone, unless the region is due to be flushed, too.
//!
//! Edits of the other stores stay in memory and in the log: the log counts unflushed edits per
//! store, and a replay skips per store.

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::config::{ConfigError, values};
use evenkeel_common::{Configuration, TableDescriptor};
use parking_lot::Mutex;

use crate::region::Region;
use crate::store::Store;

const POLICY: &str = "hbase.regionserver.flush.policy";
const LOWER_BYTES: &str = "hbase.hregion.percolumnfamilyflush.size.lower.bound";
const LOWER_BYTES_MIN: &str = "hbase.hregion.percolumnfamilyflush.size.lower.bound.min";
const LOWER_BYTES_MIN_DEFAULT: i64 = 16 << 20;

/// HBase's policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FlushPolicy {
    AllStores,
    #[default]
    AllLargeStores,
    NonSloppyStoresFirst,
}

impl FlushPolicy {
    /// Returns the policy of a Java class; the default for one that is not HBase's, as HBase uses
    /// it for one that it cannot load.
    fn of_class(class: &str, table: &TableDescriptor) -> Self {
        match class.strip_prefix("org.apache.hadoop.hbase.regionserver.") {
            Some("FlushAllStoresPolicy") => Self::AllStores,
            Some("FlushAllLargeStoresPolicy") => Self::AllLargeStores,
            Some("FlushNonSloppyStoresFirstPolicy") => Self::NonSloppyStoresFirst,
            _ => {
                let table = table.name();
                tracing::warn!(class, %table, "not a flush policy of HBase; FlushAllLargeStoresPolicy is used");
                Self::default()
            }
        }
    }

    /// Returns the positions of the selected stores.
    fn select(self, stores: &[StoreState], large_bytes: u64) -> Vec<usize> {
        let those = |is_selected: &dyn Fn(&StoreState) -> bool| -> Vec<usize> {
            let selected = stores.iter().enumerate().filter(|(_, store)| is_selected(store));
            selected.map(|(at, _)| at).collect()
        };
        let is_large = |store: &StoreState| store.heap_bytes > large_bytes;
        let is_due = |store: &StoreState| is_large(store) || store.is_old;
        let choices = match self {
            Self::AllStores => Vec::new(),
            Self::AllLargeStores => vec![those(&is_due)],
            Self::NonSloppyStoresFirst => vec![
                those(&|store| !store.is_sloppy && is_due(store)),
                those(&|store| store.is_sloppy && is_large(store)),
            ],
        };
        choices.into_iter().find(|choice| !choice.is_empty()).unwrap_or_else(|| those(&|_| true))
    }
}

/// What a policy knows of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StoreState {
    heap_bytes: u64,
    is_old: bool,
    /// True if the family has in-memory compaction, whose MemStore stays small by itself.
    is_sloppy: bool,
}

/// The settings of the server. A table's attribute overrides the setting of the same name.
#[derive(Clone, Debug, Default)]
pub struct FlushPolicyConfig {
    class: Option<String>,
    large_bytes_min: Option<i64>,
}

impl FlushPolicyConfig {
    /// Reads HBase's keys.
    ///
    /// # Errors
    /// [`ConfigError`] if a number is malformed.
    pub fn from_configuration(conf: &Configuration) -> Result<Self, ConfigError> {
        let large_bytes_min = conf.get_i64_or(LOWER_BYTES_MIN, LOWER_BYTES_MIN_DEFAULT)?;
        Ok(Self { class: conf.get_trimmed(POLICY)?, large_bytes_min: Some(large_bytes_min) })
    }

    fn policy(&self, table: &TableDescriptor) -> FlushPolicy {
        let of_table = ["FLUSH_POLICY", POLICY].into_iter().find_map(|name| table.text(name));
        let class = of_table.or(self.class.as_deref()).filter(|class| !class.is_empty());
        class.map_or_else(FlushPolicy::default, |class| FlushPolicy::of_class(class.trim(), table))
    }

    /// Returns the size above which a store of a table is large.
    fn large_bytes(&self, table: &TableDescriptor, flush_bytes: u64) -> u64 {
        let number = |name| table.text(name).and_then(|text| values::integer::<i64>(text.trim()));
        let min = number(LOWER_BYTES_MIN).or(self.large_bytes_min).unwrap_or(LOWER_BYTES_MIN_DEFAULT);
        let families = table.families().len().max(1) as u64;
        let not_negative = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
        number(LOWER_BYTES).map_or_else(|| not_negative(min).max(flush_bytes / families), not_negative)
    }
}

/// How a region selects stores, and which ones the next flush in the background must write.
#[derive(Debug, Default)]
pub(in crate::region) struct FlushSelection {
    policy: FlushPolicy,
    config: FlushPolicyConfig,
    requests: Mutex<FlushRequests>,
}

/// Names of families.
#[derive(Clone, Debug, Default)]
struct FlushRequests {
    /// Those that hold a log.
    required: Vec<Bytes>,
    /// Those with old edits.
    old: Vec<Bytes>,
}

impl FlushSelection {
    pub(in crate::region) fn new(config: &FlushPolicyConfig, table: &TableDescriptor) -> Self {
        Self { policy: config.policy(table), config: config.clone(), requests: Default::default() }
    }
}

fn add(families: &mut Vec<Bytes>, family: &Bytes) {
    if !families.contains(family) {
        families.push(family.clone());
    }
}

impl Region {
    /// Makes the next flush in the background write these families, and no others unless the region
    /// is due to be flushed: a log that is not needed otherwise has edits of them.
    pub fn require_flush(&self, families: &[Bytes]) {
        let mut requests = self.flush_selection.requests.lock();
        families.iter().for_each(|family| add(&mut requests.required, family));
    }

    /// Makes the next flush in the background write all families.
    pub fn require_flush_of_all(&self) {
        self.require_flush(&super::family_names(&self.stores));
    }

    /// Makes the next flush in the background count as old each store with edits of before
    /// `before_ms`, or with more than `changes_max` writes of the region since its first unflushed
    /// edit.
    pub fn flush_old_stores(&self, before_ms: i64, changes_max: u64) {
        let read_point = self.mvcc.read_point();
        let is_old = |store: &&Arc<Store>| {
            let family = store.family().name();
            let first = self.env.wal.lowest_unflushed(&self.encoded_name, Some(family));
            store.oldest_edit_ms().is_some_and(|ms| ms < before_ms)
                || first.is_some_and(|first| first.saturating_add(changes_max) < read_point)
        };
        let old: Vec<_> = self.stores.iter().filter(is_old).cloned().collect();
        let mut requests = self.flush_selection.requests.lock();
        super::family_names(&old).iter().for_each(|family| add(&mut requests.old, family));
    }

    /// Forgets requests for families whose MemStores a flush takes.
    pub(super) fn forget_flush_requests(&self, families: &[Bytes]) {
        let mut requests = self.flush_selection.requests.lock();
        let FlushRequests { required, old } = &mut *requests;
        for requested in [required, old] {
            requested.retain(|family| !families.contains(family));
        }
    }

    /// Returns the stores that a flush in the background writes, in order.
    pub(super) fn select_stores(&self) -> Vec<Arc<Store>> {
        let FlushRequests { required, old } = std::mem::take(&mut *self.flush_selection.requests.lock());
        let is_in = |names: &[Bytes], store: &Store| names.iter().any(|name| name == store.family().name());
        let mut selected: Vec<bool> = self.stores.iter().map(|store| is_in(&required, store)).collect();
        if !selected.contains(&true) || !old.is_empty() || self.needs_flush() {
            let state = |store: &Arc<Store>| StoreState {
                heap_bytes: store.memstore_size().heap_bytes,
                is_old: is_in(&old, store),
                is_sloppy: store.compacts_in_memory(),
            };
            let states: Vec<_> = self.stores.iter().map(state).collect();
            let FlushSelection { policy, config, .. } = &self.flush_selection;
            let large_bytes = config.large_bytes(&self.table, self.flush_bytes());
            for at in policy.select(&states, large_bytes) {
                selected.get_mut(at).into_iter().for_each(|selected| *selected = true);
            }
        }
        let stores = self.stores.iter().zip(selected).filter(|(_, selected)| *selected);
        stores.map(|(store, _)| Arc::clone(store)).collect()
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_common::ColumnFamilyDescriptor;

    use super::*;

    const MIB: u64 = 1 << 20;
    const PACKAGE: &str = "org.apache.hadoop.hbase.regionserver.";

    fn stores(mib: &[u64]) -> Vec<StoreState> {
        let state = |mib: &u64| StoreState { heap_bytes: mib * MIB, is_old: false, is_sloppy: false };
        mib.iter().map(state).collect()
    }

    fn table(attributes: &[(&str, &str)]) -> TableDescriptor {
        let mut table = TableDescriptor::new("t".parse().expect("legal"));
        for name in [b"a", b"b", b"c", b"d"] {
            table = table.with_family(ColumnFamilyDescriptor::new(name).expect("legal"));
        }
        attributes.iter().fold(table, |table, (key, value)| table.with(key, value))
    }

    #[test]
    fn all_stores_is_all_of_them() {
        assert_eq!(FlushPolicy::AllStores.select(&stores(&[0, 90, 1]), 16 * MIB), [0, 1, 2]);
    }

    #[test]
    fn large_and_old_stores_are_flushed_or_else_all() {
        let policy = FlushPolicy::AllLargeStores;
        assert_eq!(policy.select(&stores(&[17, 16, 90, 1]), 16 * MIB), [0, 2]);
        assert_eq!(policy.select(&stores(&[16, 16, 1]), 16 * MIB), [0, 1, 2]);
        let mut aged = stores(&[17, 1, 1]);
        aged[2].is_old = true;
        assert_eq!(policy.select(&aged, 16 * MIB), [0, 2]);
        assert_eq!(policy.select(&stores(&[1]), 16 * MIB), [0]);
    }

    #[test]
    fn stores_without_in_memory_compaction_are_flushed_first() {
        let policy = FlushPolicy::NonSloppyStoresFirst;
        let mut mixed = stores(&[40, 20, 1, 1]);
        mixed[0].is_sloppy = true;
        mixed[3].is_sloppy = true;
        assert_eq!(policy.select(&mixed, 16 * MIB), [1]);
        mixed[1].heap_bytes = 0;
        assert_eq!(policy.select(&mixed, 16 * MIB), [0]);
        mixed[2].is_old = true;
        assert_eq!(policy.select(&mixed, 16 * MIB), [2]);
        mixed[2].is_old = false;
        mixed[0].heap_bytes = 0;
        assert_eq!(policy.select(&mixed, 16 * MIB), [0, 1, 2, 3]);
    }

    #[test]
    fn the_bound_is_a_part_of_the_flush_size_or_set() {
        let mut conf = Configuration::new();
        let bytes = |conf: &Configuration, attributes: &[(&str, &str)], flush_mib: u64| {
            let config = FlushPolicyConfig::from_configuration(conf).expect("legal");
            config.large_bytes(&table(attributes), flush_mib * MIB)
        };
        assert_eq!(bytes(&conf, &[], 128), 32 * MIB);
        assert_eq!(bytes(&conf, &[], 40), 16 * MIB);
        assert_eq!(bytes(&conf, &[(LOWER_BYTES, "5")], 128), 5);
        assert_eq!(bytes(&conf, &[(LOWER_BYTES, "many")], 128), 32 * MIB);
        assert_eq!(bytes(&conf, &[(LOWER_BYTES_MIN, "99999999")], 128), 99_999_999);
        conf.set(LOWER_BYTES_MIN, "1000");
        conf.set(LOWER_BYTES, "7");
        assert_eq!(bytes(&conf, &[], 4), MIB, "the bound itself is set by tables only");
    }

    #[test]
    fn a_table_overrides_the_policy_and_an_unknown_class_is_the_default() {
        let mut conf = Configuration::new();
        let policy = |conf: &Configuration, attributes: &[(&str, &str)]| {
            FlushPolicyConfig::from_configuration(conf).expect("legal").policy(&table(attributes))
        };
        let class = |name: &str| format!("{PACKAGE}{name}");
        assert_eq!(policy(&conf, &[]), FlushPolicy::AllLargeStores);
        conf.set(POLICY, class("FlushAllStoresPolicy"));
        assert_eq!(policy(&conf, &[]), FlushPolicy::AllStores);
        let sloppy = class("FlushNonSloppyStoresFirstPolicy");
        for name in ["FLUSH_POLICY", POLICY] {
            assert_eq!(policy(&conf, &[(name, &sloppy)]), FlushPolicy::NonSloppyStoresFirst, "{name}");
        }
        assert_eq!(policy(&conf, &[("FLUSH_POLICY", "org.example.Mine")]), FlushPolicy::AllLargeStores);
    }
}
