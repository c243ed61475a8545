//! Secondary replicas of regions (`REGION_REPLICATION` above 1).
//!
//! A secondary replica reads the files of its region and has no state of its own, so no change of a
//! table depends on it: a change is made with the default replicas alone. Afterwards
//! [`Master::update_replicas`] compares the secondary replicas that are served with those that the
//! table has now, closes and opens what differs, and writes the columns of hbase:meta. If a step
//! fails, the change stays made, and the assignment thread tries again ([`crate::assignment`]). It
//! also opens the secondary replicas after a start.
//!
//! All replicas of a region are on this server, the only one, where HBase spreads them over servers
//! if it can.
//!
//! **Replicas of hbase:meta** are not recorded in hbase:meta. Clients find them through the znodes
//! `meta-region-server-1` and so on, and through the registry of the RPC ports
//! ([`Master::publish_replicas`]), which have those that are served.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

use evenkeel_common::thread::catch;
use evenkeel_common::{ErrorKind, HBaseError, RegionInfo, Result, TableDescriptor, TableName};
use evenkeel_region::region::Region;

use crate::meta::{MetaChange, MetaRegion, TableState};
use crate::{Master, MasterParts, is_built_in};

/// The greatest number of replicas of a region (`CreateTableProcedure.MAX_REGION_REPLICATION`).
pub(crate) const REPLICAS_MAX: u32 = 0x10000;

/// Returns true if a table can have secondary replicas here.
fn may_have_replicas(table: &TableName) -> bool {
    !is_built_in(table) || table.is_meta()
}

/// Returns the number of replicas of a table's regions. A descriptor on the disk may ask for any
/// number.
pub(crate) fn replica_count(table: &TableDescriptor) -> u32 {
    table.region_replication().min(REPLICAS_MAX)
}

/// Returns the ids of the secondary replicas of a table's regions.
fn secondary_ids(table: &TableDescriptor) -> Range<i32> {
    1..i32::try_from(replica_count(table)).unwrap_or(1)
}

impl Master {
    /// Serves the secondary replicas that a table has, and no others. If that fails, the assignment
    /// thread tries again, and later changes of the table are made nonetheless. The caller holds
    /// the table's lock.
    pub(super) fn update_replicas(&self, table: &TableName) {
        if !self.try_update_replicas(table) {
            self.wake_assignment();
        }
    }

    /// As [`Master::update_replicas`]; returns false if it fails.
    fn try_update_replicas(&self, table: &TableName) -> bool {
        let assigned = catch(format_args!("the replicas of {table}"), || self.assign_replicas(table));
        let is_known = self.assignment.has_failed_replicas(table);
        self.assignment.note_replicas(table, &assigned);
        if let (Err(error), false) = (&assigned, is_known) {
            tracing::warn!(%table, %error, "not all secondary replicas are served; will be retried until they are");
        }
        assigned.is_ok()
    }

    /// Serves the secondary replicas that a table has, and no others. The caller holds the table's
    /// lock.
    ///
    /// # Errors
    /// `IOException` from hbase:meta or the file system: of the first replica that cannot be
    /// opened. The others are served.
    fn assign_replicas(&self, name: &TableName) -> Result<()> {
        let served = self.served_replicas(name);
        let Ok(table) = self.table(name) else {
            served.iter().for_each(|region| self.stop_serving_replica(region));
            return Ok(());
        };
        let is_enabled = table.state == TableState::Enabled && may_have_replicas(name);
        if !is_enabled {
            // Even if hbase:meta cannot be read.
            served.iter().for_each(|region| self.stop_serving_replica(region));
        }
        let rows = self.parts.meta.regions(Some(name))?;
        let ids = secondary_ids(&table.descriptor);
        let wanted: Vec<RegionInfo> = match is_enabled {
            true => primaries_of(name, &rows).flat_map(|info| replicas_of(info, &ids)).collect(),
            false => Vec::new(),
        };
        let names: HashSet<&str> = wanted.iter().map(RegionInfo::encoded_name).collect();
        let is_current = |region: &Arc<Region>| {
            names.contains(region.info().encoded_name()) && *region.table() == table.descriptor
        };
        if is_enabled {
            let outdated = served.iter().filter(|region| !is_current(region));
            outdated.for_each(|region| self.stop_serving_replica(region));
        }
        self.parts.meta.commit(closed_changes(&rows, ids.end, is_enabled))?;
        let mut failed = Ok(());
        for info in &wanted {
            // Each is tried, whatever became of those before it.
            failed = failed.and(self.open_replica(info, &table.descriptor));
        }
        failed.and(self.publish_replicas(name))
    }

    /// Shows clients the secondary replicas of hbase:meta that are served. Does nothing for another
    /// table, whose replicas hbase:meta has.
    ///
    /// # Errors
    /// `IOException` if the path of the znodes is invalid.
    pub(super) fn publish_replicas(&self, table: &TableName) -> Result<()> {
        if !table.is_meta() {
            return Ok(());
        }
        let served = self.served_replicas(table);
        let ids: BTreeSet<i32> = served.iter().map(|region| region.info().replica_id()).collect();
        let MasterParts { connection, server, znodes, .. } = &self.parts;
        connection.set_meta_replicas(server, &ids);
        znodes.set_meta_replicas(server, &ids).map_err(|error| HBaseError::io(error.to_string()))
    }

    /// Makes changes of hbase:meta that are about regions of a table. None for regions of
    /// hbase:meta itself.
    pub(super) fn commit_regions(&self, table: &TableName, changes: Vec<MetaChange>) -> Result<()> {
        if table.is_meta() { Ok(()) } else { self.parts.meta.commit(changes) }
    }

    /// Opens and serves a secondary replica that is not served, unless an operator has unassigned
    /// it.
    fn open_replica(&self, info: &RegionInfo, table: &Arc<TableDescriptor>) -> Result<()> {
        if self.parts.regionserver.regions().find(info.encoded_name()).is_some()
            || self.assignment.is_unassigned(info)
        {
            return Ok(());
        }
        let opened = self.open_regions(table, vec![info.clone()])?;
        self.commit_regions(info.table(), opened.changes())?;
        drop(opened.serve());
        Ok(())
    }

    fn served_replicas(&self, table: &TableName) -> Vec<Arc<Region>> {
        let mut served = self.parts.regionserver.regions().of_table(table);
        served.retain(|region| region.is_secondary());
        served
    }

    fn stop_serving_replica(&self, region: &Arc<Region>) {
        drop(self.parts.regionserver.regions().remove(region.info().encoded_name(), None));
        if let Err(error) = region.close(false) {
            tracing::debug!(region = %region.info().name_text(), %error, "a secondary replica was closed already");
        }
    }

    /// Shows the files that a change has given a region in its secondary replicas.
    pub(super) fn refresh_replicas(&self, table: &TableName) {
        for region in self.served_replicas(table) {
            if let Err(error) = region.refresh_store_files() {
                tracing::warn!(region = %region.info().name_text(), %error, "store files are not refreshed");
            }
        }
    }

    /// Serves the secondary replicas of all tables. Skips tables that a change has locked. Returns
    /// true if nothing is left.
    pub(super) fn assign_all_replicas(&self) -> bool {
        let Ok(leftovers) = self.tables_with_replicas_in_meta() else { return false };
        let has_replicas = |table: &Arc<TableDescriptor>| {
            (table.region_replication() > 1
                || self.assignment.has_failed_replicas(table.name())
                || leftovers.contains(table.name()))
                && may_have_replicas(table.name())
        };
        let tables = self.tables().into_iter().map(|table| table.descriptor).filter(has_replicas);
        let is_done = tables.fold(true, |is_done, table| {
            let locked = self.locks.try_lock(table.name());
            locked.is_some_and(|_lock| self.try_update_replicas(table.name())) && is_done
        });
        if is_done {
            self.assignment.note_replica_rows_updated();
        }
        is_done
    }

    /// Returns the tables whose rows of hbase:meta have columns of secondary replicas, until all of
    /// them have been updated once since the start; none later. An earlier process may have ended
    /// before it deleted them.
    fn tables_with_replicas_in_meta(&self) -> Result<HashSet<TableName>> {
        if self.assignment.are_replica_rows_updated() {
            return Ok(HashSet::new());
        }
        let rows = self.parts.meta.regions(None)?;
        let has_replicas = rows.iter().filter(|row| !row.replica_states.is_empty());
        Ok(has_replicas.map(|row| row.info.table().clone()).collect())
    }

    /// Returns the secondary replica with an encoded name, if its table has it.
    pub(super) fn replica_in_meta(&self, encoded: &str) -> Result<Option<RegionInfo>> {
        for table in self.tables() {
            let ids = secondary_ids(&table.descriptor);
            if ids.is_empty() {
                continue;
            }
            let rows = self.parts.meta.regions(Some(table.descriptor.name()))?;
            let mut replicas =
                primaries_of(table.descriptor.name(), &rows).flat_map(|info| replicas_of(info, &ids));
            if let Some(found) = replicas.find(|info| info.encoded_name() == encoded) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

/// Returns the regions of a table that are not split parents. `rows` are those of hbase:meta, which
/// has none of itself.
fn primaries_of(table: &TableName, rows: &[MetaRegion]) -> impl Iterator<Item = RegionInfo> {
    let live = rows.iter().map(|row| &row.info).filter(|info| !info.is_split_parent());
    live.cloned().chain(table.is_meta().then(RegionInfo::meta))
}

fn replicas_of(info: RegionInfo, ids: &Range<i32>) -> impl Iterator<Item = RegionInfo> + use<> {
    ids.clone().map(move |id| info.replica(id))
}

/// Returns the changes of hbase:meta that record which secondary replicas are closed, where it says
/// something else: those of a table that is not enabled. Replicas with ids from `end` on do not
/// exist, nor do those of split parents.
fn closed_changes(rows: &[MetaRegion], end: i32, is_enabled: bool) -> Vec<MetaChange> {
    let mut changes = Vec::new();
    for row in rows {
        for (id, state) in &row.replica_states {
            if *id >= end || row.info.is_split_parent() {
                changes.push(MetaChange::DeleteReplica(row.info.replica(*id)));
            } else if !is_enabled && state != "CLOSED" {
                changes.push(MetaChange::Put(row.info.replica(*id), "CLOSED"));
            }
        }
    }
    changes
}

/// Rejects a change that only default replicas permit.
///
/// # Errors
/// An exception of this kind with this message.
pub(crate) fn check_primary(info: &RegionInfo, kind: ErrorKind, message: &str) -> Result<()> {
    if info.is_primary() { Ok(()) } else { Err(HBaseError::new(kind, message)) }
}
