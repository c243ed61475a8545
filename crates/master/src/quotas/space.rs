//! Decides which tables exceed their quotas of space (HBase's `QuotaObserverChore`).
//!
//! The RegionServer reports the sizes of its regions, which are kept here for a while. At intervals
//! the sizes of a table's regions and of its snapshots are added and compared with the quotas of
//! the table and of its namespace. The result is written to hbase:quota, from where the
//! RegionServer reads the policies that it enforces. The quota of a table takes precedence over
//! that of its namespace.
//!
//! A table of which less than a share of the regions is reported counts as within its quota. The
//! policy `DISABLE` of a table's quota disables the table. The sizes that its regions had stay
//! then, since nothing reports them.
//!
//! # Differences from HBase
//! The state of a table or namespace is forgotten with its quota. HBase keeps it, and would not
//! enforce the same quota if it were set again. After a restart the states are those in
//! hbase:quota. So a disabled table whose limit is raised is enabled, which HBase's next master
//! would not do.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_common::config::{ConfigError, Configuration};
use evenkeel_common::quota::space::{self, Policy, SpaceUse, UsageCell};
use evenkeel_common::quota::{self, QuotaTarget};
use evenkeel_common::{ErrorKind, HBaseError, RegionInfo, Result, TableName};
use evenkeel_protocol::pb;
use evenkeel_regionserver::quotas::limits::ParsedQuotas;
use evenkeel_regionserver::quotas::settings::{SpaceTimes, TaskTimes, task_times};
use evenkeel_regionserver::quotas::table::LocalQuotaTable;
use evenkeel_regionserver::quotas::{QuotaTable, space::TableUses};
use parking_lot::Mutex;

use super::rows::Column;
use crate::Master;
use crate::meta::TableState;

/// How long a removal of a quota waits until the table that it had disabled is enabled.
const ENABLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum number of cells of the family `u` that are read; more are ignored.
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
struct States {
    /// Whether those that an earlier process has written were read.
    are_restored: bool,
    tables: BTreeMap<TableName, SpaceUse>,
    namespaces: BTreeMap<String, SpaceUse>,
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
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct SpaceObserver {
    pub(super) settings: SpaceSettings,
    /// By encoded name.
    sizes: Mutex<HashMap<String, RegionSize>>,
    /// Locked after `sizes`.
    states: Mutex<States>,
    /// Held while quotas are compared, and while one is changed. Locked before all others.
    pub(super) observing: Mutex<()>,
}

impl SpaceObserver {
    pub(super) fn new(settings: SpaceSettings) -> Self {
        Self { settings, sizes: Mutex::default(), states: Mutex::default(), observing: Mutex::default() }
    }

    /// Notes the sizes of regions.
    pub(super) fn record(&self, report: Vec<(RegionInfo, u64)>, now_ms: i64) {
        let mut sizes = self.sizes.lock();
        for (region, bytes) in report {
            let size = RegionSize { table: region.table().clone(), bytes, reported_ms: now_ms };
            sizes.insert(region.encoded_name().to_owned(), size);
        }
    }

    /// Forgets a deleted table.
    pub(super) fn forget_table(&self, table: &TableName) {
        self.sizes.lock().retain(|_, size| size.table != *table);
        self.states.lock().tables.remove(table);
    }

    /// Forgets sizes that were reported before the retention.
    fn prune(&self, now_ms: i64) {
        let oldest_ms = now_ms.saturating_sub(self.settings.retention_ms);
        let mut sizes = self.sizes.lock();
        let states = self.states.lock();
        sizes.retain(|_, size| size.reported_ms >= oldest_ms || states.is_disabled(&size.table));
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
    fn state_of(&self, table: &TableName) -> Option<SpaceUse> {
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
    /// Cells that cannot be decoded, and the first of their errors.
    failed: usize,
    error: Option<HBaseError>,
}

impl SpaceUsage {
    /// Adds a cell. Returns false if it and those after it are ignored.
    fn push(&mut self, row: &[u8], qualifier: &[u8], value: &[u8]) -> bool {
        let Some(cell) = UsageCell::parse(row, qualifier) else { return true };
        self.cells += 1;
        if let Err(error) = self.add(cell, value) {
            self.failed += 1;
            self.error.get_or_insert(error);
        }
        self.cells < USAGE_CELLS_MAX
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
        self.snapshots.get(table).map_or(0, |sizes| sizes.values().sum())
    }
}

/// The quotas of space.
#[derive(Debug, Default)]
pub(super) struct SpaceQuotas {
    pub(super) tables: BTreeMap<TableName, pb::SpaceQuota>,
    pub(super) namespaces: BTreeMap<String, pb::SpaceQuota>,
}

/// What a removed quota of space leaves to do.
#[derive(Debug, Default)]
pub(super) struct Freed {
    /// Whether the use of a table was deleted.
    pub(super) is_changed: bool,
    /// A table that the quota had disabled.
    disabled: Option<TableName>,
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
    /// Errors of the table's regions.
    pub(super) fn read_space_quotas(&self) -> Result<SpaceQuotas> {
        let mut quotas = SpaceQuotas::default();
        for (target, found) in ParsedQuotas::of(self.own_quota_table().cells()?).into_quotas() {
            match (target, found.space) {
                (QuotaTarget::Table(table), Some(space)) => drop(quotas.tables.insert(table, space)),
                (QuotaTarget::Namespace(name), Some(space)) => drop(quotas.namespaces.insert(name, space)),
                _ => {}
            }
        }
        Ok(quotas)
    }

    /// Reads the use of space of tables and snapshots.
    ///
    /// # Errors
    /// Errors of the table's regions.
    pub(super) fn read_space_usage(&self) -> Result<SpaceUsage> {
        let mut usage = SpaceUsage::default();
        let table = self.own_quota_table();
        table.visit(quota::USAGE_FAMILY, |cell| usage.push(cell.row(), cell.qualifier(), cell.value()))?;
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
        let _alone = observer.observing.lock();
        let seen = Observation {
            quotas: self.read_space_quotas()?,
            usage: self.read_space_usage()?,
            sizes: observer.sizes_of_tables(),
        };
        self.restore_states(&seen);
        observer.prune(self.clock().now_ms());
        let mut in_namespaces = self.tables_of_namespaces(&seen.quotas);
        let mut unknown = BTreeSet::new();
        for table in seen.quotas.tables.keys().chain(in_namespaces.values().flatten()) {
            if !unknown.contains(table) && !self.is_known(table, &seen)? {
                unknown.insert(table.clone());
            }
        }
        unknown.iter().try_for_each(|table| self.count_as_observed(table))?;
        for (table, quota) in seen.quotas.tables.iter().filter(|(table, _)| !unknown.contains(table)) {
            self.observe_table(table, quota, &seen)?;
        }
        in_namespaces.values_mut().for_each(|tables| tables.retain(|table| !unknown.contains(table)));
        in_namespaces.retain(|_, tables| !tables.is_empty());
        for (name, tables) in in_namespaces {
            self.observe_namespace(&name, &tables, &seen)?;
        }
        self.delete_unlimited_use(&seen)
    }

    /// Deletes the use of space of tables without a quota: those of HBase's master stay there if a
    /// limit of another kind remains.
    fn delete_unlimited_use(&self, seen: &Observation) -> Result<()> {
        let Observation { quotas, usage, .. } = seen;
        let has_quota = |table: &TableName| {
            quotas.tables.contains_key(table) || quotas.namespaces.contains_key(table.namespace())
        };
        for table in usage.tables.keys().filter(|table| !has_quota(table)) {
            let row = QuotaTarget::Table(table.clone()).row();
            let mut last_ms = self.quotas.last_write_ms.lock();
            self.delete_column(Column::of_usage(&row, space::POLICY), &mut last_ms)?;
        }
        Ok(())
    }

    /// Forgets the states of what has no quota. The first time, takes those of tables that an
    /// earlier process has written.
    fn restore_states(&self, seen: &Observation) {
        let mut states = self.quotas.space.states.lock();
        states.tables.retain(|table, _| seen.quotas.tables.contains_key(table));
        states.namespaces.retain(|name, _| seen.quotas.namespaces.contains_key(name));
        if std::mem::replace(&mut states.are_restored, true) {
            return;
        }
        for table in seen.quotas.tables.keys() {
            if let Some(stored) = seen.usage.tables.get(table) {
                states.tables.entry(table.clone()).or_insert(*stored);
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

    /// Returns true if the sizes of enough regions of a table are known.
    fn is_known(&self, table: &TableName, seen: &Observation) -> Result<bool> {
        let regions = self.live_regions(table)?.len();
        let reported = seen.sizes.get(table).map_or(0, |size| size.regions);
        let is_reported = reported as f64 / regions as f64 >= self.quotas.space.settings.reported_share;
        Ok(regions > 0 && (is_reported || self.is_disabled_by_quota(table)))
    }

    fn is_disabled_by_quota(&self, table: &TableName) -> bool {
        let is_disabled = self.table(table).is_ok_and(|table| table.state == TableState::Disabled);
        is_disabled && self.quotas.space.states.lock().policy_of(table) == Some(Policy::Disable)
    }

    /// Ends the violation of a quota by a table whose size is not known.
    fn count_as_observed(self: &Arc<Self>, table: &TableName) -> Result<()> {
        match self.quotas.space.state_of(table) {
            Some(state) if state.violated.is_some() => self.set_state(table, state.in_observance()),
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
        self.set_state(table, SpaceUse::of(quota, used))
    }

    /// Writes the state of a table with a quota of its own if it has changed, and disables or
    /// enables the table. An unchanged state is not written again: that of the namespace may have
    /// been written over it.
    fn set_state(self: &Arc<Self>, table: &TableName, target: SpaceUse) -> Result<()> {
        let before = self.quotas.space.state_of(table);
        if before != Some(target) {
            self.write_use(table, target)?;
            self.quotas.space.states.lock().tables.insert(table.clone(), target);
        }
        match (before.and_then(|state| state.violated), target.violated) {
            (_, Some(Policy::Disable)) => self.disable_for_quota(table),
            (Some(Policy::Disable), _) => drop(self.enable_for_quota(table)),
            _ => {}
        }
        Ok(())
    }

    fn observe_namespace(&self, name: &str, tables: &BTreeSet<TableName>, seen: &Observation) -> Result<()> {
        let Some(quota) = seen.quotas.namespaces.get(name) else { return Ok(()) };
        let sizes = seen.sizes.iter().filter(|(table, _)| table.namespace() == name);
        let snapshots = seen.usage.namespaces.get(name).copied().unwrap_or(0);
        let used = sizes.fold(snapshots, |sum, (_, size)| sum.saturating_add(size.bytes));
        let target = SpaceUse::of(quota, used);
        let before = self.quotas.space.states.lock().namespaces.insert(name.to_owned(), target);
        if target.violated.is_none() && before == Some(target) {
            return Ok(());
        }
        for table in tables {
            // The policy of the table itself takes precedence.
            if self.quotas.space.states.lock().policy_of(table).is_none() {
                self.write_use(table, target)?;
            }
        }
        Ok(())
    }

    /// Writes the use of space of a table, unless it is stored already.
    fn write_use(&self, table: &TableName, target: SpaceUse) -> Result<()> {
        let row = QuotaTarget::Table(table.clone()).row();
        let column = Column::of_usage(&row, space::POLICY);
        let mut last_ms = self.quotas.last_write_ms.lock();
        let value = target.encode();
        match self.read_cell(column)? {
            Some(stored) if stored == value => Ok(()),
            _ => self.write_cell(column, &value, &mut last_ms),
        }
    }

    /// Disables a table that exceeds its quota, if it is enabled. System tables stay enabled, as
    /// in HBase, whose master refuses to disable them.
    fn disable_for_quota(self: &Arc<Self>, table: &TableName) {
        let is_enabled = self.table(table).is_ok_and(|table| table.state == TableState::Enabled);
        if !is_enabled || table.is_system() {
            return;
        }
        match self.submit_disable(table.clone(), (0, 0)) {
            Ok(_) => tracing::warn!(%table, "the table exceeds its quota of space: it is disabled"),
            Err(error) => tracing::error!(%table, %error, "a table that exceeds its quota is not disabled"),
        }
    }

    /// Enables a table that a quota had disabled. The procedure fails if it is not disabled, or
    /// does not exist.
    fn enable_for_quota(self: &Arc<Self>, table: &TableName) -> Option<u64> {
        let procedure = self.submit_enable(table.clone(), (0, 0));
        match &procedure {
            Ok(_) => tracing::info!(%table, "no quota of space disables the table: it is enabled"),
            Err(error) => tracing::error!(%table, %error, "a table that no quota disables is not enabled"),
        }
        procedure.ok()
    }

    /// Deletes the use of space of a table, or of the tables of a namespace that have no quota of
    /// space of their own. The caller holds the lock of writes.
    ///
    /// # Errors
    /// Errors of the table's regions.
    pub(super) fn free_space(&self, target: &QuotaTarget, last_ms: &mut i64) -> Result<Freed> {
        match target {
            QuotaTarget::Table(table) => self.free_table(table, last_ms),
            QuotaTarget::Namespace(name) => {
                if self.read_quotas(target)?.is_none_or(|quotas| quotas.space.is_none()) {
                    return Ok(Freed::default());
                }
                let is_changed = self.free_namespace(name, last_ms)?;
                self.quotas.space.states.lock().namespaces.remove(name);
                Ok(Freed { is_changed, disabled: None })
            }
            _ => Ok(Freed::default()),
        }
    }

    fn free_table(&self, table: &TableName, last_ms: &mut i64) -> Result<Freed> {
        let row = QuotaTarget::Table(table.clone()).row();
        let column = Column::of_usage(&row, space::POLICY);
        self.quotas.space.states.lock().tables.remove(table);
        let Some(value) = self.read_cell(column)? else { return Ok(Freed::default()) };
        self.delete_column(column, last_ms)?;
        let policy = SpaceUse::decode(&value).ok().and_then(|state| state.violated);
        let disabled = (policy == Some(Policy::Disable)).then(|| table.clone());
        Ok(Freed { is_changed: true, disabled })
    }

    fn free_namespace(&self, name: &str, last_ms: &mut i64) -> Result<bool> {
        let quotas = self.read_space_quotas()?;
        let mut is_changed = false;
        for table in self.read_space_usage()?.tables.into_keys() {
            if table.namespace() == name && !quotas.tables.contains_key(&table) {
                let row = QuotaTarget::Table(table).row();
                self.delete_column(Column::of_usage(&row, space::POLICY), last_ms)?;
                is_changed = true;
            }
        }
        Ok(is_changed)
    }

    /// Lifts the policies of a quota that was removed, and waits until the table that it had
    /// disabled is enabled.
    pub(super) fn finish_freeing(self: &Arc<Self>, freed: Freed) {
        if freed.is_changed {
            self.reload_space_quotas();
        }
        let Some(table) = freed.disabled else { return };
        let Some(procedure) = self.enable_for_quota(&table) else { return };
        let (done, ended) = crossbeam_channel::bounded(1);
        self.procedures.on_outcome(procedure, move |_| done.send(()).unwrap_or_default());
        // Clients see the state of the table in any case.
        _ = ended.recv_timeout(ENABLE_TIMEOUT);
    }

    /// Checks that no quota of space has disabled a table that a client enables.
    ///
    /// # Errors
    /// `AccessDeniedException`.
    pub(crate) fn check_enable_by_client(&self, table: &TableName) -> Result<()> {
        let space = self.parts.regionserver.space_quotas();
        if space.and_then(|space| space.policy_of(table)) != Some(Policy::Disable) {
            return Ok(());
        }
        let message = format!("Enabling the table '{table}' is disallowed due to a violated space quota.");
        Err(HBaseError::new(ErrorKind::AccessDenied, message))
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
