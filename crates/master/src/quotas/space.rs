//! Decides which tables exceed their quotas of space (HBase's `QuotaObserverChore`).
//!
//! The RegionServer reports the sizes of its regions, which are kept here for a while. At intervals
//! the sizes of a table's regions and of its snapshots are added and compared with the quotas of
//! the table and of its namespace. The result is written to hbase:quota, from where the
//! RegionServer reads the policies that it enforces. The quota of a table takes precedence over
//! that of its namespace.
//!
//! A table of which less than a share of the regions is reported counts as within its quota. But
//! a state that an earlier process has stored stays until enough regions were reported once. The
//! policy `DISABLE` of a table's quota disables the table ([`super::disable`]). The sizes that its
//! regions had stay then, since nothing reports them.
//!
//! Quotas and sizes are read without a lock. Each state is written under the lock of writes, if
//! its quota is still the one that was compared.
//!
//! # Differences from HBase
//! The state of a table or namespace is forgotten with its quota. HBase keeps it, and would not
//! enforce the same quota if it were set again. After a restart the states of tables with quotas
//! are those in hbase:quota. So a disabled table whose limit is raised is enabled, which HBase's
//! next master would not do. The state of a namespace is computed when a size of one of its tables
//! is known; until then its policy stays in force.
//!
//! Quotas that cannot be read, or are too many, end a comparison: no policy changes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use evenkeel_common::config::{ConfigError, Configuration};
use evenkeel_common::quota::space::{self, Policy, SpaceUse, UsageCell};
use evenkeel_common::quota::{self, QuotaTarget};
use evenkeel_common::{HBaseError, RegionInfo, Result, TableName};
use evenkeel_protocol::pb;
use evenkeel_regionserver::quotas::limits::{ParsedQuotas, QuotaCells, TABLE_BYTES_MAX};
use evenkeel_regionserver::quotas::settings::{SpaceTimes, TaskTimes, task_times};
use evenkeel_regionserver::quotas::space::TableUses;
use evenkeel_regionserver::quotas::table::LocalQuotaTable;
use parking_lot::Mutex;

use super::rows::Column;
use crate::Master;
use crate::meta::TableState;

/// The maximum number of cells of the family `u` that are read.
const USAGE_CELLS_MAX: usize = 1_000_000;

/// The settings of quotas of space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpaceSettings {
    /// When the RegionServer reports sizes and reads policies.
    pub(super) server: SpaceTimes,
    /// When quotas are compared with sizes.
    pub(super) observe: TaskTimes,
    /// When the sizes of snapshots are computed.
    pub(super) snapshots: TaskTimes,
    /// The share of a table's regions that must be reported.
    reported_share: f64,
    /// How long the size of a region that is no longer reported counts.
    retention_ms: i64,
}

impl SpaceSettings {
    /// Reads the settings.
    ///
    /// # Errors
    /// [`ConfigError`] if a value is malformed.
    pub(super) fn from(conf: &Configuration) -> Result<Self, ConfigError> {
        Ok(Self {
            server: SpaceTimes::from(conf)?,
            observe: task_times(
                conf,
                "hbase.master.quotas.observer.chore.delay",
                "hbase.master.quotas.observer.chore.period",
                "hbase.master.quotas.observer.chore.timeunit",
                (15_000, 60_000),
            )?,
            snapshots: task_times(
                conf,
                "hbase.master.quotas.snapshot.chore.delay",
                "hbase.master.quotas.snapshot.chore.period",
                "hbase.master.quotas.snapshot.chore.timeunit",
                (60_000, 300_000),
            )?,
            reported_share: conf.get_f64_or("hbase.master.quotas.observer.report.percent", 0.95)?,
            retention_ms: conf.get_i64_or("hbase.master.quotas.region.report.retention.millis", 600_000)?,
        })
    }
}

/// The size of a region, as it was last reported.
#[derive(Debug)]
struct RegionSize {
    table: TableName,
    bytes: u64,
    reported_ms: i64,
}

/// The reported regions of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct TableSize {
    regions: usize,
    bytes: u64,
}

/// The states of the tables and namespaces with quotas.
#[derive(Debug, Default)]
pub(super) struct States {
    /// Whether those that an earlier process has written were read.
    are_restored: bool,
    /// Tables whose states an earlier process has written, and whose sizes were not known since.
    restored: BTreeSet<TableName>,
    tables: BTreeMap<TableName, SpaceUse>,
    pub(super) namespaces: BTreeMap<String, SpaceUse>,
    /// Tables that a removal of their quotas enables.
    pub(super) freeing: BTreeSet<TableName>,
    /// The procedures that last disabled or enabled tables for their quotas.
    pub(super) procedures: BTreeMap<TableName, u64>,
}

impl States {
    fn policy_of(&self, table: &TableName) -> Option<Policy> {
        self.tables.get(table).and_then(|state| state.violated)
    }

    /// Returns true if the regions of a table report nothing because a quota has disabled it.
    fn is_disabled(&self, table: &TableName) -> bool {
        let of_namespace = self.namespaces.get(table.namespace()).and_then(|state| state.violated);
        [self.policy_of(table), of_namespace].contains(&Some(Policy::Disable))
    }

    fn forget(&mut self, table: &TableName) {
        self.tables.remove(table);
        self.restored.remove(table);
        self.procedures.remove(table);
    }
}

/// The regions of a table in hbase:meta.
#[derive(Debug, Default)]
struct TableRegions {
    /// The number of those that are not split parents.
    live: usize,
    /// The encoded names of all.
    names: HashSet<String>,
}

/// Returns true if a state may be that of a quota.
pub(super) fn is_of_quota(state: SpaceUse, quota: &pb::SpaceQuota) -> bool {
    let is_policy = |policy| policy == quota.violation_policy();
    state.limit_bytes == quota.soft_limit() && state.violated.is_none_or(is_policy)
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct SpaceObserver {
    pub(super) settings: SpaceSettings,
    /// By encoded name.
    sizes: Mutex<HashMap<String, RegionSize>>,
    /// Locked after `sizes`.
    pub(super) states: Mutex<States>,
}

impl SpaceObserver {
    pub(super) fn new(settings: SpaceSettings) -> Self {
        Self { settings, sizes: Mutex::default(), states: Mutex::default() }
    }

    /// Notes the sizes of regions.
    pub(super) fn record(&self, report: Vec<(RegionInfo, u64)>, now_ms: i64) {
        let mut sizes = self.sizes.lock();
        for (region, bytes) in report {
            let size = RegionSize { table: region.table().clone(), bytes, reported_ms: now_ms };
            sizes.insert(region.encoded_name().to_owned(), size);
        }
    }

    /// Forgets the sizes of a table's regions.
    pub(super) fn forget_sizes(&self, table: &TableName) {
        self.sizes.lock().retain(|_, size| size.table != *table);
    }

    /// Forgets the state of a table.
    pub(super) fn forget_state(&self, table: &TableName) {
        self.states.lock().forget(table);
    }

    /// Forgets sizes that were reported before the retention. Those of a table that a quota has
    /// disabled stay while hbase:meta has the regions.
    fn prune(&self, now_ms: i64, regions: &BTreeMap<TableName, TableRegions>) {
        let oldest_ms = now_ms.saturating_sub(self.settings.retention_ms);
        let mut sizes = self.sizes.lock();
        let states = self.states.lock();
        let exists = |name: &String, table: &TableName| {
            regions.get(table).is_some_and(|regions| regions.names.contains(name))
        };
        sizes.retain(|name, RegionSize { table, reported_ms, .. }| {
            *reported_ms >= oldest_ms || (states.is_disabled(table) && exists(name, table))
        });
    }

    fn sizes_of_tables(&self) -> BTreeMap<TableName, TableSize> {
        let mut tables = BTreeMap::<_, TableSize>::new();
        for RegionSize { table, bytes, .. } in self.sizes.lock().values() {
            let size = tables.entry(table.clone()).or_default();
            size.regions += 1;
            size.bytes = size.bytes.saturating_add(*bytes);
        }
        tables
    }

    /// Returns the state of a table.
    pub(super) fn state_of(&self, table: &TableName) -> Option<SpaceUse> {
        self.states.lock().tables.get(table).copied()
    }
}

/// The cells of the family `u` of hbase:quota.
#[derive(Debug, Default)]
pub(super) struct SpaceUsage {
    pub(super) tables: TableUses,
    pub(super) snapshots: BTreeMap<TableName, BTreeMap<String, u64>>,
    pub(super) namespaces: BTreeMap<String, u64>,
    cells: usize,
    bytes: usize,
    /// Cells that cannot be decoded, and the first of their errors.
    failed: usize,
    error: Option<HBaseError>,
    is_cut_off: bool,
}

impl SpaceUsage {
    /// Adds a cell. Returns false if it and those after it are not read: there are too many.
    fn push(&mut self, row: &[u8], qualifier: &[u8], value: &[u8]) -> bool {
        let Some(cell) = UsageCell::parse(row, qualifier) else { return true };
        self.cells += 1;
        self.bytes = self.bytes.saturating_add(row.len()).saturating_add(qualifier.len());
        self.is_cut_off |= self.cells > USAGE_CELLS_MAX || self.bytes > TABLE_BYTES_MAX;
        if self.is_cut_off {
            return false;
        }
        if let Err(error) = self.add(cell, value) {
            self.failed += 1;
            self.error.get_or_insert(error);
        }
        true
    }

    fn add(&mut self, cell: UsageCell, value: &[u8]) -> Result<()> {
        match cell {
            UsageCell::Table(table) => drop(self.tables.insert(table, SpaceUse::decode(value)?)),
            UsageCell::Snapshot(table, snapshot) => {
                let bytes = space::decode_size(value)?;
                self.snapshots.entry(table).or_default().insert(snapshot, bytes);
            }
            UsageCell::Namespace(name) => drop(self.namespaces.insert(name, space::decode_size(value)?)),
        }
        Ok(())
    }

    fn snapshot_bytes_of(&self, table: &TableName) -> u64 {
        let sizes = self.snapshots.get(table).into_iter().flat_map(BTreeMap::values);
        sizes.fold(0, |sum: u64, bytes| sum.saturating_add(*bytes))
    }
}

/// The quotas of space.
#[derive(Debug, Default)]
pub(super) struct SpaceQuotas {
    pub(super) tables: BTreeMap<TableName, pb::SpaceQuota>,
    pub(super) namespaces: BTreeMap<String, pb::SpaceQuota>,
}

/// What one comparison uses.
struct Observation {
    quotas: SpaceQuotas,
    usage: SpaceUsage,
    sizes: BTreeMap<TableName, TableSize>,
}

impl Master {
    fn own_quota_table(&self) -> LocalQuotaTable {
        // It is only read with quotas, for which the table is created.
        LocalQuotaTable { server: Arc::downgrade(&self.parts.regionserver), exists: Box::new(|| true) }
    }

    /// Reads the quotas of space.
    ///
    /// # Errors
    /// Errors of the table's regions; `IOException` if there are too many quotas, or one cannot be
    /// decoded.
    pub(super) fn read_space_quotas(&self) -> Result<SpaceQuotas> {
        let mut cells = QuotaCells::default();
        self.own_quota_table().visit(quota::FAMILY, |cell| cells.push(cell))?;
        let is_cut_off = cells.is_cut_off();
        let parsed = ParsedQuotas::of(cells.finish());
        if is_cut_off {
            return Err(HBaseError::io("hbase:quota has too many cells"));
        }
        if parsed.failed() > 0 {
            return Err(HBaseError::io(format!("{} quotas cannot be decoded", parsed.failed())));
        }
        let mut quotas = SpaceQuotas::default();
        for (target, found) in parsed.into_quotas() {
            let Some(space) = found.space else { continue };
            if space.violation_policy.is_none_or(|policy| Policy::try_from(policy).is_err()) {
                return Err(HBaseError::io(format!("the violation policy of {target:?} is unknown")));
            }
            match target {
                QuotaTarget::Table(table) => drop(quotas.tables.insert(table, space)),
                QuotaTarget::Namespace(name) => drop(quotas.namespaces.insert(name, space)),
                _ => {}
            }
        }
        Ok(quotas)
    }

    /// Reads the use of space of tables and snapshots. Cells that cannot be decoded are logged and
    /// skipped.
    ///
    /// # Errors
    /// Errors of the table's regions; `IOException` if there are too many cells.
    pub(super) fn read_space_usage(&self) -> Result<SpaceUsage> {
        let mut usage = SpaceUsage::default();
        let table = self.own_quota_table();
        table.visit(quota::USAGE_FAMILY, |cell| usage.push(cell.row(), cell.qualifier(), cell.value()))?;
        if usage.is_cut_off {
            return Err(HBaseError::io("hbase:quota has too many cells of the use of space"));
        }
        if let Some(error) = &usage.error {
            tracing::warn!(cells = usage.failed, %error, "cells of hbase:quota are ignored");
        }
        Ok(usage)
    }

    /// Makes the RegionServer read the policies that are in force. If it fails, they stay as they
    /// are until the next time.
    pub(crate) fn reload_space_quotas(&self) {
        if let Err(error) = self.parts.regionserver.reload_space_quotas() {
            tracing::warn!(%error, "the policies of quotas of space could not be read");
        }
    }

    /// Notes the sizes of the regions that are open.
    pub(crate) fn report_region_sizes(self: &Arc<Self>) {
        self.quotas.space.record(self.parts.regionserver.region_sizes(), self.clock().now_ms());
    }

    /// Compares all quotas of space with the space that is used. A failure is logged; the next
    /// time compares all again.
    pub(crate) fn observe_space(self: &Arc<Self>) {
        if let Err(error) = self.observe_space_now() {
            tracing::warn!(%error, "the quotas of space could not be compared with the space that is used");
        }
        self.reload_space_quotas();
    }

    fn observe_space_now(self: &Arc<Self>) -> Result<()> {
        let observer = &self.quotas.space;
        let (quotas, usage) = (self.read_space_quotas()?, self.read_space_usage()?);
        self.restore_states(&quotas, &usage);
        let in_namespaces = self.tables_of_namespaces(&quotas);
        let mut regions = BTreeMap::new();
        for table in quotas.tables.keys().chain(in_namespaces.values().flatten()) {
            if !regions.contains_key(table) {
                regions.insert(table.clone(), self.regions_in_meta(table)?);
            }
        }
        observer.prune(self.clock().now_ms(), &regions);
        let seen = Observation { quotas, usage, sizes: observer.sizes_of_tables() };
        regions.retain(|table, regions| self.is_known(table, regions.live, &seen));
        for (table, quota) in &seen.quotas.tables {
            match regions.contains_key(table) {
                true => self.observe_table(table, quota, &seen)?,
                false => self.count_as_observed(table, quota)?,
            }
        }
        for (name, mut tables) in in_namespaces {
            tables.retain(|table| regions.contains_key(table));
            if !tables.is_empty() {
                self.observe_namespace(&name, &tables, &seen)?;
            }
        }
        self.delete_unlimited_use(&seen)
    }

    fn regions_in_meta(&self, table: &TableName) -> Result<TableRegions> {
        let mut found = TableRegions::default();
        for region in self.parts.meta.regions(Some(table))? {
            found.live += usize::from(!region.info.is_split_parent());
            found.names.insert(region.info.encoded_name().to_owned());
        }
        Ok(found)
    }

    /// Deletes the use of space of tables without a quota: those of HBase's master stay there if a
    /// limit of another kind remains.
    fn delete_unlimited_use(&self, seen: &Observation) -> Result<()> {
        let Observation { quotas, usage, .. } = seen;
        let has_quota = |table: &TableName| {
            quotas.tables.contains_key(table) || quotas.namespaces.contains_key(table.namespace())
        };
        for table in usage.tables.keys().filter(|table| !has_quota(table)) {
            let mut last_ms = self.quotas.last_write_ms.lock();
            let namespace = QuotaTarget::Namespace(table.namespace().to_owned());
            if self.space_quota_of(&QuotaTarget::Table(table.clone()))?.is_none()
                && self.space_quota_of(&namespace)?.is_none()
            {
                self.delete_use(table, &mut last_ms)?;
            }
        }
        Ok(())
    }

    /// Forgets the states of what has no quota. The first time, takes those of tables that an
    /// earlier process has written. A state that is not of the table's quota is that of its
    /// namespace, or of an earlier limit: it is taken only if it may have disabled the table.
    fn restore_states(&self, quotas: &SpaceQuotas, usage: &SpaceUsage) {
        let mut states = self.quotas.space.states.lock();
        let has_quota = |table: &TableName| quotas.tables.contains_key(table);
        states.tables.retain(|table, _| has_quota(table));
        states.restored.retain(has_quota);
        states.procedures.retain(|table, _| has_quota(table));
        states.namespaces.retain(|name, _| quotas.namespaces.contains_key(name));
        if std::mem::replace(&mut states.are_restored, true) {
            return;
        }
        for (table, quota) in &quotas.tables {
            let Some(stored) = usage.tables.get(table) else { continue };
            let has_disabled = || stored.violated == Some(Policy::Disable) && self.is_table_disabled(table);
            if !states.tables.contains_key(table) && (is_of_quota(*stored, quota) || has_disabled()) {
                states.tables.insert(table.clone(), *stored);
                states.restored.insert(table.clone());
            }
        }
    }

    fn tables_of_namespaces(&self, quotas: &SpaceQuotas) -> BTreeMap<String, BTreeSet<TableName>> {
        let mut found = BTreeMap::<_, BTreeSet<_>>::new();
        for table in self.tables().iter().map(|table| table.descriptor.name()) {
            if quotas.namespaces.contains_key(table.namespace()) {
                found.entry(table.namespace().to_owned()).or_default().insert(table.clone());
            }
        }
        found
    }

    /// Returns true if the sizes of enough of a table's regions are known.
    fn is_known(&self, table: &TableName, regions: usize, seen: &Observation) -> bool {
        let reported = seen.sizes.get(table).map_or(0, |size| size.regions);
        let is_reported = reported as f64 / regions as f64 >= self.quotas.space.settings.reported_share;
        regions > 0 && (is_reported || self.is_disabled_by_quota(table))
    }

    fn is_disabled_by_quota(&self, table: &TableName) -> bool {
        self.is_table_disabled(table)
            && self.quotas.space.states.lock().policy_of(table) == Some(Policy::Disable)
    }

    fn is_table_disabled(&self, table: &TableName) -> bool {
        self.table(table).is_ok_and(|table| table.state == TableState::Disabled)
    }

    /// Ends the violation of a quota by a table whose size is not known, unless the violation is
    /// one of before a restart.
    fn count_as_observed(self: &Arc<Self>, table: &TableName, quota: &pb::SpaceQuota) -> Result<()> {
        if self.quotas.space.states.lock().restored.contains(table) {
            return Ok(());
        }
        match self.quotas.space.state_of(table) {
            Some(state) if state.violated.is_some() => self.set_state(table, quota, state.in_observance()),
            _ => Ok(()),
        }
    }

    fn observe_table(
        self: &Arc<Self>,
        table: &TableName,
        quota: &pb::SpaceQuota,
        seen: &Observation,
    ) -> Result<()> {
        let used = match (seen.sizes.get(table), self.quotas.space.state_of(table)) {
            (Some(size), _) => size.bytes.saturating_add(seen.usage.snapshot_bytes_of(table)),
            // An earlier process has disabled it: its size is what it was then.
            (None, Some(state)) => state.used_bytes,
            (None, None) => 0,
        };
        self.quotas.space.states.lock().restored.remove(table);
        self.set_state(table, quota, SpaceUse::of(quota, used))
    }

    /// Writes the state of a table with a quota of its own if it has changed, and disables or
    /// enables the table. An unchanged state is not written again: that of the namespace may have
    /// been written over it.
    fn set_state(
        self: &Arc<Self>,
        table: &TableName,
        quota: &pb::SpaceQuota,
        target: SpaceUse,
    ) -> Result<()> {
        let before = self.quotas.space.state_of(table);
        let is_disabling = |state: SpaceUse| state.violated == Some(Policy::Disable);
        if before.is_some_and(is_disabling) && !is_disabling(target) && !self.is_enabled_again(table) {
            return Ok(());
        }
        let mut last_ms = self.quotas.last_write_ms.lock();
        let of_table = QuotaTarget::Table(table.clone());
        let is_freed = self.quotas.space.states.lock().freeing.contains(table);
        // The quota, or the table, may be gone or changed.
        if is_freed || self.space_quota_of(&of_table)?.as_ref() != Some(quota) || self.table(table).is_err() {
            return Ok(());
        }
        if before != Some(target) {
            self.write_use(table, target, &mut last_ms)?;
            self.quotas.space.states.lock().tables.insert(table.clone(), target);
        }
        if is_disabling(target) {
            self.disable_for_quota(table);
        }
        Ok(())
    }

    fn observe_namespace(&self, name: &str, tables: &BTreeSet<TableName>, seen: &Observation) -> Result<()> {
        let Some(quota) = seen.quotas.namespaces.get(name) else { return Ok(()) };
        let sizes = seen.sizes.iter().filter(|(table, _)| table.namespace() == name);
        let snapshots = seen.usage.namespaces.get(name).copied().unwrap_or(0);
        let used = sizes.fold(snapshots, |sum, (_, size)| sum.saturating_add(size.bytes));
        let target = SpaceUse::of(quota, used);
        let before = self.quotas.space.states.lock().namespaces.get(name).copied();
        let is_changed = target.violated.is_some() || before != Some(target);
        // One whose size was not known when a violation ended, or whose write failed.
        let is_violated =
            |table: &TableName| seen.usage.tables.get(table).is_some_and(|stored| stored.violated.is_some());
        let of_namespace = QuotaTarget::Namespace(name.to_owned());
        for table in tables.iter().filter(|table| is_changed || is_violated(table)) {
            let mut last_ms = self.quotas.last_write_ms.lock();
            if self.space_quota_of(&of_namespace)?.as_ref() != Some(quota) {
                return Ok(());
            }
            // The policy of the table itself takes precedence.
            let has_own = self.quotas.space.states.lock().policy_of(table).is_some();
            if !has_own && self.table(table).is_ok() {
                self.write_use(table, target, &mut last_ms)?;
            }
        }
        let _changing = self.quotas.last_write_ms.lock();
        if self.space_quota_of(&of_namespace)?.as_ref() == Some(quota) {
            self.quotas.space.states.lock().namespaces.insert(name.to_owned(), target);
        }
        Ok(())
    }

    /// Writes the use of space of a table, unless it is stored already.
    pub(super) fn write_use(&self, table: &TableName, target: SpaceUse, last_ms: &mut i64) -> Result<()> {
        let row = QuotaTarget::Table(table.clone()).row();
        let column = Column::of_usage(&row, space::POLICY);
        let value = target.encode();
        match self.read_cell(column)? {
            Some(stored) if stored == value => Ok(()),
            _ => self.write_cell(column, &value, last_ms),
        }
    }

    /// Returns the reply to GetSpaceQuotaRegionSizes: the reported sizes of all tables.
    pub(crate) fn space_quota_region_sizes(&self) -> pb::GetSpaceQuotaRegionSizesResponse {
        let sizes = self.quotas.space.sizes_of_tables().into_iter();
        let size =
            |(table, size): (TableName, TableSize)| pb::get_space_quota_region_sizes_response::RegionSizes {
                table_name: Some((&table).into()),
                size: Some(size.bytes),
            };
        pb::GetSpaceQuotaRegionSizesResponse { sizes: sizes.map(size).collect() }
    }

    /// Returns the reply to GetQuotaStates: the states of tables and namespaces with quotas.
    pub(crate) fn quota_states(&self) -> pb::GetQuotaStatesResponse {
        use pb::get_quota_states_response::{NamespaceQuotaSnapshot, TableQuotaSnapshot};
        let states = self.quotas.space.states.lock();
        let table = |(table, state): (&TableName, &SpaceUse)| TableQuotaSnapshot {
            table_name: Some(table.into()),
            snapshot: Some(state.to_message()),
        };
        let namespace = |(name, state): (&String, &SpaceUse)| NamespaceQuotaSnapshot {
            namespace: Some(name.clone()),
            snapshot: Some(state.to_message()),
        };
        pb::GetQuotaStatesResponse {
            table_snapshots: states.tables.iter().map(table).collect(),
            ns_snapshots: states.namespaces.iter().map(namespace).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_use_of_space_that_is_read_is_limited_in_bytes() {
        let row = [b"t.", &[b'a'; 30_000][..]].concat();
        let (mut usage, value) = (SpaceUsage::default(), space::encode_size(1));
        let limit = TABLE_BYTES_MAX / (row.len() + 3);
        assert!((0..limit).all(|_| usage.push(&row, b"sss", &value)));
        assert!(!usage.is_cut_off);
        assert!(!usage.push(&row, b"sss", &value) && usage.is_cut_off);
    }

    #[test]
    fn the_sizes_of_snapshots_do_not_overflow() {
        let mut usage = SpaceUsage::default();
        let table: TableName = "t".parse().expect("legal");
        for snapshot in [&b"ssa"[..], b"ssb"] {
            assert!(usage.push(b"t.t", snapshot, &space::encode_size(u64::MAX)));
        }
        assert_eq!(usage.snapshot_bytes_of(&table), u64::MAX);
    }
}
