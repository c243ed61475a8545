//! Clones a snapshot to a new table, or restores the snapshot's table.
//!
//! Both create new regions beside the existing ones ([`super::layout`]). The commit point is one
//! write to hbase:meta, as for every change of a table (see [`crate`]):
//!
//! ```text
//! clone    directories, descriptor     | hbase:meta: regions, ENABLED | served
//! restore  directories, new descriptor | hbase:meta: old regions out, | descriptor into place,
//!                                      | new ones in, DISABLED        | old regions to the archive
//! ```
//! A crash before the commit point leaves directories that hbase:meta does not list. A crash after
//! it leaves a descriptor to put in place and directories to archive. The next start handles both.
//! The cleaners are held off throughout.

use std::sync::Arc;

use evenkeel_common::{ErrorKind, HBaseError, RegionInfo, Result, TableDescriptor, TableName};
use evenkeel_protocol::pb;
use evenkeel_region::store_file_tracker::{TRACKER_IMPL, TrackerImpl, validate_pre_restore_snapshot};

use super::layout::Layout;
use super::store::Snapshot;
use super::verify::verify;
use super::{check_name, check_not_expired, is_running, table_of, text_of, timed};
use crate::change_intent::ChangeIntent;
use crate::meta::{MetaChange, MetaRegion, TableState};
use crate::tables::{Nonce, changed, checks, with_merge_parents};
use crate::{Master, Table, descriptors, is_built_in, reconcile};

impl Master {
    /// Restores an existing table, or clones a snapshot to a new one. `tracker` is a store file
    /// tracker for the clone.
    ///
    /// # Errors
    /// `SnapshotDoesNotExistException`, `CorruptedSnapshotException`, `RestoreSnapshotException`,
    /// `NamespaceNotFoundException`, `UnsupportedOperationException` for a table that is enabled.
    pub fn restore_or_clone_snapshot(
        self: &Arc<Self>,
        wanted: &pb::SnapshotDescription,
        tracker: Option<&str>,
        nonce: Nonce,
    ) -> Result<u64> {
        self.check_snapshot_support()?;
        if let Some(id) = self.procedures.find(nonce) {
            return Ok(id);
        }
        check_name(&wanted.name)?;
        let name = table_of(wanted)?;
        self.parts.namespaces.get(name.namespace())?;
        let snapshot = self.snapshots().read(&wanted.name)?;
        checks::check_table(&snapshot.table, &self.parts.conf)?;
        verify(self.fs(), self.root(), &snapshot)?;
        let mut restoring = self.snapshot_procedures.restoring.lock();
        if is_running(&mut restoring, &name, &self.procedures) {
            return Err(restore_error(format!("Restore already in progress on the table={name}")));
        }
        let id = match self.table(&name) {
            Ok(table) => self.submit_restore(snapshot, &table, nonce)?,
            Err(_) => self.submit_clone(snapshot, name.clone(), tracker, nonce)?,
        };
        restoring.insert(name, id);
        Ok(id)
    }

    fn submit_clone(
        self: &Arc<Self>,
        snapshot: Snapshot,
        name: TableName,
        tracker: Option<&str>,
        nonce: Nonce,
    ) -> Result<u64> {
        if let Some(tracker) = tracker.filter(|tracker| !tracker.is_empty()) {
            TrackerImpl::parse(tracker)?;
        }
        let descriptor = clone_of(&snapshot.table, &name, tracker)?;
        checks::check_new_table(&descriptor, &self.parts.conf)?;
        let master = Arc::clone(self);
        let bytes = snapshot.bytes();
        self.procedures.submit_holding(
            bytes,
            "CloneSnapshotProcedure",
            nonce,
            Some(&name.clone()),
            move || {
                let _lock = master.lock_table(&name)?;
                let _namespace = master.namespace_lock.read();
                master.parts.namespaces.revert_failed_writes()?;
                master.parts.namespaces.get(name.namespace())?;
                master.check_absent(&name)?;
                let _planned = master.plan_new_table(&name, snapshot.regions.len())?;
                let _files_stay = master.cleaners.pause();
                timed(&master.snapshot_procedures.times.cloned, || {
                    master.clone_now(&snapshot, Arc::new(descriptor))
                })
            },
        )
    }

    fn clone_now(self: &Arc<Self>, snapshot: &Snapshot, table: Arc<TableDescriptor>) -> Result<Vec<u8>> {
        self.check_usable(snapshot)?;
        let name = table.name();
        // Archive what a change left that did not reach its commit point.
        reconcile::archive_table(self.fs(), self.root(), name)?;
        let layout = Layout::plan(snapshot, name, self.new_region_ids(snapshot.regions.len()))?;
        let whole = self.prepared_dirs(name, vec![self.table_dir(name)]);
        let made = layout.all().map(|region| &region.info);
        let whole = whole.with_intent(ChangeIntent::write(self.fs(), &self.table_dir(name), made, [])?);
        let prepared = descriptors::write(self.fs(), &self.table_dir(name), &table)
            .and_then(|()| layout.write(&self.parts.region_env.stores, &table))
            .and_then(|()| self.open_regions(&table, layout.live_infos()));
        let regions = prepared.map_err(|error| {
            restore_error(format!("clone snapshot={} failed because {error}", text_of(&snapshot.description)))
        })?;
        let mut changes = regions.changes();
        changes.extend(parents(&layout)?);
        changes.push(MetaChange::State(name.clone(), TableState::Enabled));
        self.parts.meta.commit(changes)?;
        whole.commit().into_iter().for_each(|intent| intent.remove(self.fs()));
        let regions = regions.serve();
        tracing::info!(snapshot = snapshot.description.name, table = %name, regions = regions.len(), "snapshot cloned");
        let name = table.name().clone();
        self.store_table(table, TableState::Enabled);
        self.update_replicas(&name);
        self.compact_references(&regions);
        Ok(Vec::new())
    }

    fn submit_restore(self: &Arc<Self>, snapshot: Snapshot, table: &Table, nonce: Nonce) -> Result<u64> {
        let name = table.descriptor.name().clone();
        if is_built_in(&name) || name.is_system() {
            return Err(HBaseError::do_not_retry(format!("{name} cannot be restored here")));
        }
        validate_pre_restore_snapshot(&table.descriptor, &snapshot.table)?;
        check_restorable(table)?;
        let master = Arc::clone(self);
        let bytes = snapshot.bytes();
        self.procedures.submit_holding(
            bytes,
            "RestoreSnapshotProcedure",
            nonce,
            Some(&name.clone()),
            move || {
                let _lock = master.lock_table(&name)?;
                let table = master.table(&name)?;
                check_restorable(&table)?;
                let _planned = master.plan_restored_table(&name, snapshot.regions.len())?;
                let _files_stay = master.cleaners.pause();
                timed(&master.snapshot_procedures.times.restored, || master.restore_now(&snapshot, &table))
            },
        )
    }

    fn restore_now(&self, snapshot: &Snapshot, table: &Table) -> Result<Vec<u8>> {
        self.check_usable(snapshot)?;
        let name = table.descriptor.name();
        let before = self.parts.meta.regions(Some(name))?;
        let layout = Layout::plan(snapshot, name, self.new_region_ids(snapshot.regions.len()))?;
        let restored = Arc::new(clone_of(&snapshot.table, name, None)?);
        let first = layout.live_infos().into_iter().next();
        let first = first.ok_or_else(|| restore_error("the snapshot has no regions".to_owned()))?;
        let dirs = layout.all().map(|region| self.region_dir(&region.info)).collect();
        let changed = with_merge_parents(&before).chain(layout.all().map(|region| &region.info));
        let intent = ChangeIntent::write(self.fs(), &self.table_dir(name), changed, [])?;
        let whole = self.prepared_dirs(name, dirs).with_intent(intent);
        layout
            .write(&self.parts.region_env.stores, &restored)
            .and_then(|()| descriptors::write_pending(self.fs(), &self.table_dir(name), &restored, &first))
            .map_err(|error| {
                let snapshot = text_of(&snapshot.description);
                restore_error(format!("restore snapshot={snapshot} failed in on-disk restore: {error}"))
            })?;
        self.parts.meta.commit(replacement_changes(name, &before, &layout)?)?;
        // From here on the table counts as restored, even if a later step fails.
        let intent = whole.commit();
        self.quotas.forget_sizes(name);
        self.store_table(restored, TableState::Disabled);
        self.run_or_defer(name, "the restored descriptor is activated", move |master| {
            let dir = master.table_dir(first.table());
            let is_restored = |region: &str| region == first.encoded_name();
            let settled = descriptors::commit_pending(master.fs(), &dir, is_restored)?;
            settled.map_err(|descriptors::Damage(error)| error)
        });
        self.archive_replaced(name, before, intent);
        tracing::info!(snapshot = snapshot.description.name, table = %name, "snapshot restored");
        Ok(Vec::new())
    }

    /// Checks again under the locks: files may have been deleted since.
    fn check_usable(&self, snapshot: &Snapshot) -> Result<()> {
        check_not_expired(&snapshot.description, self.clock().now_ms())?;
        verify(self.fs(), self.root(), snapshot)
    }
}

/// The commit point of a restore: removes the old regions and adds the new ones.
fn replacement_changes(
    name: &TableName,
    before: &[MetaRegion],
    layout: &Layout<'_>,
) -> Result<Vec<MetaChange>> {
    let mut changes: Vec<_> = before.iter().map(|region| MetaChange::Delete(region.info.clone())).collect();
    changes.extend(layout.live_infos().into_iter().map(|info| MetaChange::Put(info, "CLOSED")));
    changes.extend(parents(layout)?);
    changes.push(MetaChange::State(name.clone(), TableState::Disabled));
    Ok(changes)
}

fn parents(layout: &Layout<'_>) -> Result<impl Iterator<Item = MetaChange>> {
    let families = layout.split_parents()?;
    Ok(families
        .into_iter()
        .map(|(parent, daughters): (RegionInfo, _)| MetaChange::SplitParent(parent, daughters)))
}

/// Copies a table's descriptor under another name. `tracker` replaces those of the table and its
/// families (`CloneSnapshotProcedure.updateTableDescriptorWithSFT`).
///
/// # Errors
/// None in practice.
fn clone_of(table: &TableDescriptor, name: &TableName, tracker: Option<&str>) -> Result<TableDescriptor> {
    let empty = TableDescriptor::new(name.clone()).with_attributes(table.attributes().clone());
    let mut clone = table.families().cloned().fold(empty, TableDescriptor::with_family);
    if let Some(tracker) = tracker.filter(|tracker| !tracker.is_empty()) {
        for family in table.families() {
            clone = changed(&clone, Some(family.name()), &[(TRACKER_IMPL, None)])?;
        }
        clone = clone.with(TRACKER_IMPL, tracker);
    }
    Ok(clone)
}

fn check_restorable(table: &Table) -> Result<()> {
    if table.state == TableState::Disabled {
        return Ok(());
    }
    let message = format!(
        "Table '{}' must be disabled in order to perform a restore operation.",
        table.descriptor.name()
    );
    Err(HBaseError::new(ErrorKind::UnsupportedOperation, message))
}

fn restore_error(message: String) -> HBaseError {
    HBaseError::new(ErrorKind::RestoreSnapshot, message)
}
