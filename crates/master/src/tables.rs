//! Creates, deletes, enables, disables, truncates and flushes tables.

mod alter;
pub(crate) mod checks;
mod slow_log_table;
mod tracker;

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_block_cache::FileId;
use evenkeel_common::quota::QuotaTarget;
use evenkeel_common::{ErrorKind, HBaseError, RegionInfo, Result, TableDescriptor, TableName};
use evenkeel_region::layout;

use super::change_intent::ChangeIntent;
use super::meta::{MetaChange, MetaRegion, TableState};
use super::mob::archive_mob_files_of;
use super::{Master, Table, descriptors, reconcile};

pub(crate) use self::tracker::changed;

/// A client's nonce: group and number; a number of 0 is none.
pub type Nonce = (u64, u64);

impl Master {
    /// Creates a table with one region more than there are split keys.
    ///
    /// # Errors
    /// Returns `TableExistsException`, `NamespaceNotFoundException`, or an error if the descriptor
    /// is invalid.
    pub fn create_table(
        self: &Arc<Self>,
        table: TableDescriptor,
        splits: Vec<Bytes>,
        nonce: Nonce,
    ) -> Result<u64> {
        if let Some(id) = self.procedures.find(nonce) {
            return Ok(id);
        }
        let table = checks::with_master_defaults(table, &self.parts.conf)?;
        checks::check_new_table(&table, &self.parts.conf)?;
        let splits = checks::sorted_splits(&splits)?;
        checks::check_region_names(&regions_between(table.name(), &splits, self.clock().now_ms()))?;
        self.parts.namespaces.get(table.name().namespace())?;
        self.check_absent(table.name())?;
        let master = Arc::clone(self);
        let name = table.name().clone();
        let bytes = checks::descriptor_bytes(&table) + checks::split_bytes(&splits);
        self.procedures.submit_holding(bytes, "CreateTableProcedure", nonce, Some(&name.clone()), move || {
            let _lock = master.lock_table(table.name())?;
            let _namespace = master.namespace_lock.read();
            master.parts.namespaces.revert_failed_writes()?;
            master.parts.namespaces.get(table.name().namespace())?;
            master.check_absent(table.name())?;
            let _planned = master.plan_new_table(&name, splits.len() + 1)?;
            master.create_now(Arc::new(table), &splits)
        })
    }

    pub(super) fn check_absent(&self, name: &TableName) -> Result<()> {
        match self.table(name) {
            Ok(_) => Err(HBaseError::new(ErrorKind::TableExists, name.to_string())),
            Err(_) => Ok(()),
        }
    }

    fn create_now(&self, table: Arc<TableDescriptor>, splits: &[Bytes]) -> Result<Vec<u8>> {
        let dir = self.table_dir(table.name());
        // Archive what a change left that did not reach its commit point.
        reconcile::archive_table(self.fs(), self.root(), table.name())?;
        let infos = regions_between(table.name(), splits, self.new_region_ids(1));
        let prepared = self.prepared_dirs(table.name(), vec![dir.clone()]);
        let prepared = prepared.with_intent(ChangeIntent::write(self.fs(), &dir, &infos, [])?);
        descriptors::write(self.fs(), &dir, &table)?;
        let regions = self.open_regions(&table, infos)?;
        let mut changes = regions.changes();
        changes.push(MetaChange::State(table.name().clone(), TableState::Enabled));
        self.parts.meta.commit(changes)?;
        prepared.commit().into_iter().for_each(|intent| intent.remove(self.fs()));
        let regions = regions.serve();
        tracing::info!(table = %table.name(), regions = regions.len(), "table created");
        let name = table.name().clone();
        self.store_table(table, TableState::Enabled);
        self.update_replicas(&name);
        Ok(Vec::new())
    }

    /// Deletes a disabled table; its files go to the archive.
    ///
    /// # Errors
    /// `TableNotFoundException`, `TableNotDisabledException`.
    pub fn delete_table(self: &Arc<Self>, name: TableName, nonce: Nonce) -> Result<u64> {
        if let Some(id) = self.procedures.find(nonce) {
            return Ok(id);
        }
        self.check_disabled(&name)?;
        let master = Arc::clone(self);
        self.procedures.submit("DeleteTableProcedure", nonce, Some(&name.clone()), move || {
            let _lock = master.lock_table(&name)?;
            master.check_disabled(&name)?;
            master.take_recovery_snapshot(&name)?;
            let regions = master.parts.meta.regions(Some(&name))?;
            // The intent record is removed with the table's directory.
            let _note =
                ChangeIntent::write(master.fs(), &master.table_dir(&name), with_merge_parents(&regions), [])?;
            let mut changes: Vec<_> = regions.into_iter().map(|r| MetaChange::Delete(r.info)).collect();
            changes.push(MetaChange::DeleteState(name.clone()));
            master.parts.meta.commit(changes)?;
            master.tables.write().remove(&name);
            master.update_replicas(&name);
            master.flushed_by_procedure.lock().remove(&name);
            master.mirror_state(&name, None);
            master.forget_blocks(&name);
            let gone = name.clone();
            master.run_or_defer(&name, "files of a deleted table are archived", move |master| {
                reconcile::archive_table(master.fs(), master.root(), &gone)
            });
            tracing::info!(table = %name, "table deleted");
            master.remove_quotas_of_deleted(&QuotaTarget::Table(name));
            Ok(Vec::new())
        })
    }

    /// Evicts the files of a deleted table from the block cache. A directory that cannot be listed
    /// is skipped: its blocks are evicted when others need the memory.
    fn forget_blocks(&self, table: &TableName) {
        let cache = &self.parts.region_env.stores.cache;
        for region in reconcile::region_dirs(self.fs(), &self.table_dir(table)).unwrap_or_default() {
            for family in reconcile::family_dirs(self.fs(), &region.path).unwrap_or_default() {
                for file in self.fs().list(&family.path).unwrap_or_default() {
                    cache.evict_file(FileId::of_name(file.name().split('.').next().unwrap_or_default()));
                }
            }
        }
    }

    pub(super) fn check_disabled(&self, name: &TableName) -> Result<Table> {
        let table = self.table(name)?;
        if table.state == TableState::Disabled {
            return Ok(table);
        }
        let message = format!("Not DISABLED; tableName={name}, state={}", state_name(table.state));
        Err(HBaseError::new(ErrorKind::TableNotDisabled, message))
    }

    pub(super) fn check_enabled(&self, name: &TableName) -> Result<Table> {
        let table = self.table(name)?;
        if table.state == TableState::Enabled {
            return Ok(table);
        }
        let message = format!("tableName={name}, state={}", state_name(table.state));
        Err(HBaseError::new(ErrorKind::TableNotEnabled, message))
    }

    /// Stops serving a table.
    ///
    /// # Errors
    /// `TableNotFoundException`, `TableNotEnabledException`.
    pub fn disable_table(self: &Arc<Self>, name: TableName, nonce: Nonce) -> Result<u64> {
        if let Some(id) = self.procedures.find(nonce) {
            return Ok(id);
        }
        self.check_enabled(&name)?;
        if name.is_system() {
            return Err(HBaseError::new(
                ErrorKind::Constraint,
                format!("Cannot disable system table {name}"),
            ));
        }
        self.submit_disable(name, nonce)
    }

    /// As [`Master::disable_table`], whose checks of the table fail the procedure.
    pub(crate) fn submit_disable(self: &Arc<Self>, name: TableName, nonce: Nonce) -> Result<u64> {
        let master = Arc::clone(self);
        self.procedures.submit("DisableTableProcedure", nonce, Some(&name.clone()), move || {
            let _lock = master.lock_table(&name)?;
            let table = master.check_enabled(&name)?;
            master.disable_now(&table)?;
            tracing::info!(table = %name, "table disabled");
            Ok(Vec::new())
        })
    }

    fn disable_now(&self, table: &Table) -> Result<()> {
        let name = table.descriptor.name();
        let disabled = self.disable_regions(name);
        if disabled.is_err() {
            let name = name.clone();
            self.run_or_defer(
                &name.clone(),
                "a table that could not be disabled is enabled",
                move |master| {
                    master.parts.meta.commit(vec![MetaChange::State(name.clone(), TableState::Enabled)])
                },
            );
        }
        disabled?;
        self.store_table(Arc::clone(&table.descriptor), TableState::Disabled);
        self.update_replicas(name);
        Ok(())
    }

    fn disable_regions(&self, name: &TableName) -> Result<()> {
        self.parts.meta.commit(vec![MetaChange::State(name.clone(), TableState::Disabling)])?;
        let regions = self.live_regions(name)?;
        let closed = self.close_regions(regions.iter())?;
        let mut changes: Vec<_> = regions.into_iter().map(|r| MetaChange::Put(r, "CLOSED")).collect();
        changes.push(MetaChange::State(name.clone(), TableState::Disabled));
        self.parts.meta.commit(changes)?;
        closed.commit();
        Ok(())
    }

    /// Serves a disabled table again.
    ///
    /// # Errors
    /// `TableNotFoundException`, `TableNotDisabledException`.
    pub fn enable_table(self: &Arc<Self>, name: TableName, nonce: Nonce) -> Result<u64> {
        if let Some(id) = self.procedures.find(nonce) {
            return Ok(id);
        }
        self.check_disabled(&name)?;
        self.submit_enable(name, nonce)
    }

    /// As [`Master::enable_table`], whose checks of the table fail the procedure.
    pub(crate) fn submit_enable(self: &Arc<Self>, name: TableName, nonce: Nonce) -> Result<u64> {
        let master = Arc::clone(self);
        self.procedures.submit("EnableTableProcedure", nonce, Some(&name.clone()), move || {
            let _lock = master.lock_table(&name)?;
            let table = master.check_disabled(&name)?;
            let regions = master.open_regions(&table.descriptor, master.live_regions(&name)?)?;
            let mut changes = regions.changes();
            changes.push(MetaChange::State(name.clone(), TableState::Enabled));
            master.parts.meta.commit(changes)?;
            let regions = regions.serve();
            master.store_table(table.descriptor, TableState::Enabled);
            master.update_replicas(&name);
            master.compact_references(&regions);
            tracing::info!(table = %name, "table enabled");
            Ok(Vec::new())
        })
    }

    /// Truncates a disabled table and serves it again; `preserve_splits` keeps its region
    /// boundaries.
    ///
    /// # Errors
    /// `TableNotFoundException`, `TableNotDisabledException`.
    pub fn truncate_table(
        self: &Arc<Self>,
        name: TableName,
        preserve_splits: bool,
        nonce: Nonce,
    ) -> Result<u64> {
        if let Some(id) = self.procedures.find(nonce) {
            return Ok(id);
        }
        self.check_disabled(&name)?;
        let master = Arc::clone(self);
        self.procedures.submit("TruncateTableProcedure", nonce, Some(&name.clone()), move || {
            let _lock = master.lock_table(&name)?;
            let table = master.check_disabled(&name)?;
            master.take_recovery_snapshot(&name)?;
            master.truncate_now(&table, preserve_splits)
        })
    }

    fn truncate_now(&self, table: &Table, preserve_splits: bool) -> Result<Vec<u8>> {
        let name = table.descriptor.name();
        let before = self.parts.meta.regions(Some(name))?;
        let live = before.iter().map(|r| &r.info).filter(|r| !r.is_split_parent());
        let splits: Vec<Bytes> = match preserve_splits {
            true => live.map(|r| r.start_key().clone()).filter(|key| !key.is_empty()).collect(),
            false => Vec::new(),
        };
        let infos = regions_between(name, &splits, self.new_region_ids(1));
        let dirs = infos.iter().map(|info| self.region_dir(info)).collect();
        let changed = with_merge_parents(&before).chain(&infos);
        let intent = ChangeIntent::write(self.fs(), &self.table_dir(name), changed, [])?;
        let prepared = self.prepared_dirs(name, dirs).with_intent(intent);
        let regions = self.open_regions(&table.descriptor, infos)?;
        let mut changes: Vec<_> = before.iter().map(|r| MetaChange::Delete(r.info.clone())).collect();
        changes.extend(regions.changes());
        changes.push(MetaChange::State(name.clone(), TableState::Enabled));
        self.parts.meta.commit(changes)?;
        let intent = prepared.commit();
        drop(regions.serve());
        self.quotas.forget_sizes(name);
        self.store_table(Arc::clone(&table.descriptor), TableState::Enabled);
        self.update_replicas(name);
        let (table, gone) = (name.clone(), before.clone());
        self.run_or_defer(name, "MOB files of regions that were truncated are archived", move |master| {
            archive_mob_files_of(master.fs(), master.root(), &table, with_merge_parents(&gone))
        });
        self.archive_replaced(name, before, intent);
        tracing::info!(table = %name, preserve_splits, "table truncated");
        Ok(Vec::new())
    }

    /// Archives regions that hbase:meta no longer lists, and those that they were merged from; then
    /// removes the intent record of the change.
    pub(super) fn archive_replaced(
        &self,
        table: &TableName,
        gone: Vec<MetaRegion>,
        mut intent: Option<ChangeIntent>,
    ) {
        self.run_or_defer(table, "files of regions that were replaced are archived", move |master| {
            let (fs, root) = (master.fs(), master.root());
            with_merge_parents(&gone).try_for_each(|info| reconcile::archive_region(fs, root, info))?;
            intent.take().into_iter().for_each(|intent| intent.remove(fs));
            Ok(())
        });
    }

    /// Flushes every region of a table: the named families, or all if none is named.
    ///
    /// # Errors
    /// `TableNotFoundException`, `TableNotEnabledException`.
    pub fn flush_table(self: &Arc<Self>, name: TableName, families: &[Bytes], nonce: Nonce) -> Result<u64> {
        if let Some(id) = self.procedures.find(nonce) {
            return Ok(id);
        }
        let families_exist = match name.is_meta() {
            true => Ok(()),
            false => check_families(&self.check_enabled(&name)?.descriptor, families),
        };
        let (master, families) = (Arc::clone(self), families.to_vec());
        self.procedures.submit("FlushTableProcedure", nonce, Some(&name.clone()), move || {
            families_exist?;
            master.flush_regions(&name, &families)?;
            Ok(Vec::new())
        })
    }

    /// As [`Master::flush_table`], at the request of a client before 2.6 (procedure
    /// `flush-table-proc`). As in HBase, the master remembers the tables that it has flushed in
    /// this way. A table that does not exist has no region.
    ///
    /// # Errors
    /// `NoSuchColumnFamilyException`, or errors of a flush.
    pub fn flush_by_procedure(&self, name: &TableName, families: Vec<Bytes>) -> Result<()> {
        if let Ok(table) = self.table(name) {
            check_families(&table.descriptor, &families)?;
            self.flush_regions(name, &families)?;
            self.flushed_by_procedure.lock().insert(name.clone());
        }
        Ok(())
    }

    /// Returns true if [`Master::flush_by_procedure`] has flushed a table since the server's start.
    pub fn was_flushed_by_procedure(&self, name: &TableName) -> bool {
        self.flushed_by_procedure.lock().contains(name)
    }

    /// Sets a table's state in hbase:meta, and nothing else, to repair a wrong one. The outcome of
    /// the procedure is the number of the previous state.
    ///
    /// A disabled table has no served region: changes of disabled tables rely on that, since they
    /// move files. So a table with served regions cannot be set to `DISABLED`, and the states in
    /// between cannot be set. HBase sets any state.
    ///
    /// # Errors
    /// `TableNotFoundException`, and `DoNotRetryIOException` for a state that cannot be set.
    pub fn set_table_state(self: &Arc<Self>, name: &TableName, state: TableState) -> Result<u64> {
        self.table(name)?;
        if crate::is_built_in(name) || !matches!(state, TableState::Enabled | TableState::Disabled) {
            return Err(HBaseError::do_not_retry(format!(
                "the state of {name} cannot be set to {}",
                state_name(state)
            )));
        }
        let (master, table) = (Arc::clone(self), name.clone());
        let work = move || master.set_table_state_now(&table, state);
        self.procedures.submit("SetTableState", (0, 0), Some(name), work)
    }

    fn set_table_state_now(&self, name: &TableName, state: TableState) -> Result<Vec<u8>> {
        let _lock = self.lock_table(name)?;
        let table = self.table(name)?;
        if state == TableState::Disabled && self.served_region_count(name) > 0 {
            return Err(HBaseError::do_not_retry(format!("regions of {name} are served: disable the table")));
        }
        self.parts.meta.commit(vec![MetaChange::State(name.clone(), state)])?;
        self.store_table(Arc::clone(&table.descriptor), state);
        if state == TableState::Enabled {
            self.wake_assignment();
        }
        Ok(vec![table.state as u8])
    }

    fn flush_regions(&self, name: &TableName, families: &[Bytes]) -> Result<()> {
        for region in self.parts.regionserver.regions().of_table(name) {
            match region.admit_flush().and_then(|_admitted| region.flush_families(families)) {
                Err(error) if error.kind() == ErrorKind::NotServingRegion => {}
                other => drop(other?),
            }
        }
        Ok(())
    }

    /// Returns the directory of a region.
    pub(super) fn region_dir(&self, region: &RegionInfo) -> std::path::PathBuf {
        layout::region_dir(self.root(), region)
    }
}

/// Returns the regions, and those that they were merged from, whose files may still exist.
pub(super) fn with_merge_parents(regions: &[MetaRegion]) -> impl Iterator<Item = &RegionInfo> {
    regions.iter().flat_map(|region| std::iter::once(&region.info).chain(&region.merge_parents))
}

/// Checks that a table has all of `families`.
fn check_families(table: &TableDescriptor, families: &[Bytes]) -> Result<()> {
    let unknown = families.iter().filter(|name| table.family(name).is_none());
    let unknown: Vec<_> = unknown.map(|name| String::from_utf8_lossy(name)).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let (unknown, name) = (unknown.join(", "), table.name());
    let message = format!("Column families [{unknown}] don't exist in table {name}");
    Err(HBaseError::new(ErrorKind::NoSuchColumnFamily, message))
}

/// Returns a state's name in HBase.
pub fn state_name(state: TableState) -> &'static str {
    match state {
        TableState::Enabled => "ENABLED",
        TableState::Disabled => "DISABLED",
        TableState::Disabling => "DISABLING",
        TableState::Enabling => "ENABLING",
    }
}

/// Returns regions that cover every row, with boundaries at the sorted split keys.
fn regions_between(table: &TableName, splits: &[Bytes], region_id: i64) -> Vec<RegionInfo> {
    let starts = std::iter::once(Bytes::new()).chain(splits.iter().cloned());
    let ends = splits.iter().cloned().chain(std::iter::once(Bytes::new()));
    starts.zip(ends).map(|(start, end)| RegionInfo::new(table.clone(), start, end, region_id)).collect()
}
