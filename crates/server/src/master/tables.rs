//! Making, removing, enabling, disabling and truncating tables.

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::{ErrorKind, HBaseError, RegionInfo, Result, TableDescriptor, TableName};
use evenkeel_region::layout;
use evenkeel_region::region::Region;

use super::change_note::ChangeNote;
use super::meta::{MetaChange, MetaRegion, TableState};
use super::{Master, Table, checks, descriptors, reconcile};

/// A client's nonce: group and number; a number of 0 is none.
pub type Nonce = (u64, u64);

impl Master {
    /// Makes a table, with one region more than there are split keys.
    ///
    /// # Errors
    /// `TableExistsException`, `NamespaceNotFoundException`, or what is wrong with the description.
    pub fn create_table(
        self: &Arc<Self>,
        table: TableDescriptor,
        splits: Vec<Bytes>,
        nonce: Nonce,
    ) -> Result<u64> {
        if let Some(id) = self.procedures.find(nonce) {
            return Ok(id);
        }
        let table = checks::with_master_defaults(table);
        checks::check_new_table(&table, &self.parts.conf)?;
        let splits = checks::sorted_splits(splits)?;
        checks::check_region_names(&regions_between(table.name(), &splits, self.clock().now_ms()))?;
        self.parts.namespaces.get(table.name().namespace())?;
        self.check_absent(table.name())?;
        let master = Arc::clone(self);
        self.procedures.submit(nonce, move || {
            let _lock = master.locks.lock(table.name());
            let _namespace = master.namespace_lock.read();
            master.parts.namespaces.get(table.name().namespace())?;
            master.check_absent(table.name())?;
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
        // What a change that did not come to its moment left behind.
        reconcile::archive_table(self.fs(), self.root(), table.name())?;
        let infos = regions_between(table.name(), splits, self.clock().now_ms());
        let note = ChangeNote::write(self.fs(), &dir, &infos, [])?;
        descriptors::write(self.fs(), &dir, &table)?;
        let regions = self.open_regions(&table, infos)?;
        let mut changes = self.opened(&regions);
        changes.push(MetaChange::State(table.name().clone(), TableState::Enabled));
        if let Err(error) = self.parts.meta.commit(changes) {
            regions.iter().for_each(|region| drop(region.close(true)));
            return Err(error);
        }
        note.forget(self.fs());
        tracing::info!(table = %table.name(), regions = regions.len(), "table created");
        self.serve(regions);
        self.remember(table, TableState::Enabled);
        Ok(Vec::new())
    }

    pub(super) fn opened(&self, regions: &[Arc<Region>]) -> Vec<MetaChange> {
        let server = &self.parts.server;
        let opened = |r: &Arc<Region>| MetaChange::Opened(r.info().clone(), server.clone(), r.open_seq_num());
        regions.iter().map(opened).collect()
    }

    /// Removes a disabled table; its files go to the archive.
    ///
    /// # Errors
    /// `TableNotFoundException`, `TableNotDisabledException`.
    pub fn delete_table(self: &Arc<Self>, name: TableName, nonce: Nonce) -> Result<u64> {
        if let Some(id) = self.procedures.find(nonce) {
            return Ok(id);
        }
        self.check_disabled(&name)?;
        let master = Arc::clone(self);
        self.procedures.submit(nonce, move || {
            let _lock = master.locks.lock(&name);
            master.check_disabled(&name)?;
            let regions = master.parts.meta.regions(Some(&name))?;
            // It goes with the table's directory.
            let _note =
                ChangeNote::write(master.fs(), &master.table_dir(&name), with_merge_parents(&regions), [])?;
            let mut changes: Vec<_> = regions.into_iter().map(|r| MetaChange::Delete(r.info)).collect();
            changes.push(MetaChange::DeleteState(name.clone()));
            master.parts.meta.commit(changes)?;
            master.tables.write().remove(&name);
            master.mirror_state(&name, None);
            reconcile::archive_table(master.fs(), master.root(), &name)?;
            tracing::info!(table = %name, "table deleted");
            Ok(Vec::new())
        })
    }

    pub(super) fn check_disabled(&self, name: &TableName) -> Result<Table> {
        let table = self.table(name)?;
        if table.state == TableState::Disabled {
            return Ok(table);
        }
        let message = format!("Not DISABLED; tableName={name}, state={}", state_name(table.state));
        Err(HBaseError::new(ErrorKind::TableNotDisabled, message))
    }

    fn check_enabled(&self, name: &TableName) -> Result<Table> {
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
        let master = Arc::clone(self);
        self.procedures.submit(nonce, move || {
            let _lock = master.locks.lock(&name);
            let table = master.check_enabled(&name)?;
            master.parts.meta.commit(vec![MetaChange::State(name.clone(), TableState::Disabling)])?;
            let regions = master.live_regions(&name)?;
            if let Err(error) = master.close_regions(regions.iter()) {
                master.parts.meta.commit(vec![MetaChange::State(name.clone(), TableState::Enabled)])?;
                return Err(error);
            }
            let mut changes: Vec<_> = regions.into_iter().map(|r| MetaChange::Put(r, "CLOSED")).collect();
            changes.push(MetaChange::State(name.clone(), TableState::Disabled));
            master.parts.meta.commit(changes)?;
            master.remember(table.descriptor, TableState::Disabled);
            tracing::info!(table = %name, "table disabled");
            Ok(Vec::new())
        })
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
        let master = Arc::clone(self);
        self.procedures.submit(nonce, move || {
            let _lock = master.locks.lock(&name);
            let table = master.check_disabled(&name)?;
            let regions = master.open_regions(&table.descriptor, master.live_regions(&name)?)?;
            let mut changes = master.opened(&regions);
            changes.push(MetaChange::State(name.clone(), TableState::Enabled));
            master.parts.meta.commit(changes)?;
            master.serve(regions.clone());
            master.remember(table.descriptor, TableState::Enabled);
            master.compact_references(regions);
            tracing::info!(table = %name, "table enabled");
            Ok(Vec::new())
        })
    }

    /// Empties a disabled table and serves it again; `preserve_splits` keeps its regions' borders.
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
        self.procedures.submit(nonce, move || {
            let _lock = master.locks.lock(&name);
            let table = master.check_disabled(&name)?;
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
        let newest = before.iter().map(|r| r.info.region_id()).max().unwrap_or(0);
        let id = self.clock().now_ms().max(newest + 1);
        let infos = regions_between(name, &splits, id);
        let changed = with_merge_parents(&before).chain(&infos);
        let note = ChangeNote::write(self.fs(), &self.table_dir(name), changed, [])?;
        let regions = self.open_regions(&table.descriptor, infos)?;
        let mut changes: Vec<_> = before.iter().map(|r| MetaChange::Delete(r.info.clone())).collect();
        changes.extend(self.opened(&regions));
        changes.push(MetaChange::State(name.clone(), TableState::Enabled));
        self.parts.meta.commit(changes)?;
        self.serve(regions);
        self.remember(Arc::clone(&table.descriptor), TableState::Enabled);
        for region in with_merge_parents(&before) {
            reconcile::archive_region(self.fs(), self.root(), region)?;
        }
        note.forget(self.fs());
        tracing::info!(table = %name, preserve_splits, "table truncated");
        Ok(Vec::new())
    }

    /// Flushes every region of a table.
    ///
    /// # Errors
    /// `TableNotFoundException`, `TableNotEnabledException`.
    pub fn flush_table(self: &Arc<Self>, name: TableName, families: &[Bytes], nonce: Nonce) -> Result<u64> {
        if let Some(id) = self.procedures.find(nonce) {
            return Ok(id);
        }
        let unknown = match name.is_meta() {
            true => Vec::new(),
            false => unknown_families(&self.check_enabled(&name)?.descriptor, families),
        };
        let master = Arc::clone(self);
        self.procedures.submit(nonce, move || {
            if !unknown.is_empty() {
                let message = format!("Column families [{}] don't exist in table {name}", unknown.join(", "));
                return Err(HBaseError::new(ErrorKind::NoSuchColumnFamily, message));
            }
            for region in master.parts.regionserver.regions().of_table(&name) {
                match region.flush() {
                    Err(error) if error.kind() == ErrorKind::NotServingRegion => {}
                    other => drop(other?),
                }
            }
            Ok(Vec::new())
        })
    }

    /// The directory of a region.
    pub(super) fn region_dir(&self, region: &RegionInfo) -> std::path::PathBuf {
        layout::region_dir(self.root(), region)
    }
}

/// Regions, and those that they were merged from whose files may still be there.
pub(super) fn with_merge_parents(regions: &[MetaRegion]) -> impl Iterator<Item = &RegionInfo> {
    regions.iter().flat_map(|region| std::iter::once(&region.info).chain(&region.merge_parents))
}

/// Those of `families` that a table does not have.
fn unknown_families(table: &TableDescriptor, families: &[Bytes]) -> Vec<String> {
    let unknown = families.iter().filter(|name| table.family(name).is_none());
    unknown.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

/// A state as HBase prints it.
pub fn state_name(state: TableState) -> &'static str {
    match state {
        TableState::Enabled => "ENABLED",
        TableState::Disabled => "DISABLED",
        TableState::Disabling => "DISABLING",
        TableState::Enabling => "ENABLING",
    }
}

/// Regions that cover every row, cut at the sorted split keys.
fn regions_between(table: &TableName, splits: &[Bytes], region_id: i64) -> Vec<RegionInfo> {
    let starts = std::iter::once(Bytes::new()).chain(splits.iter().cloned());
    let ends = splits.iter().cloned().chain(std::iter::once(Bytes::new()));
    starts.zip(ends).map(|(start, end)| RegionInfo::new(table.clone(), start, end, region_id)).collect()
}
