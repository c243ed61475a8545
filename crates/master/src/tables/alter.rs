//! Alters a table. The rename of the new descriptor is the commit point. Regions are closed and
//! opened with the new descriptor before it, and served after it ([`crate::assignment`]).
//!
//! Deleting a family deletes all its data. Edits of the family that only logs hold are replayed
//! before the commit point, while the family still exists, and its files are archived after it. If
//! the archive could not be written to, files may remain; they are archived before a family of that
//! name is added.
//!
//! hbase:meta and hbase:namespace cannot be altered, because the master uses their regions. The
//! number of hbase:meta's replicas can: it needs no region closed but secondary replicas.

use std::collections::HashSet;
use std::sync::Arc;

use evenkeel_common::descriptor::FAMILY_DEFAULTS;
use evenkeel_common::{ColumnFamilyDescriptor, ErrorKind, HBaseError, Result, TableDescriptor, TableName};
use evenkeel_region::store_file_tracker::check_for_modify_table;

use super::{Nonce, checks, with_merge_parents};
use crate::change_intent::ChangeIntent;
use crate::meta::MetaRegion;
use crate::meta::TableState;
use crate::mob::archive_mob_family;
use crate::replicas::replica_count;
use crate::{Master, Table, descriptors, is_built_in, reconcile};

/// The attributes of hbase:meta that can be altered.
const META_ATTRIBUTES: [&str; 2] = ["REGION_REPLICATION", "REGION_MEMSTORE_REPLICATION"];

impl Master {
    /// Replaces a table's descriptor.
    ///
    /// # Errors
    /// Returns `TableNotFoundException`, or an error if the descriptor is invalid.
    pub fn modify_table(
        self: &Arc<Self>,
        name: TableName,
        new: TableDescriptor,
        nonce: Nonce,
    ) -> Result<u64> {
        let bytes = checks::descriptor_bytes(&new);
        self.change(bytes, name, nonce, move |_| Ok(new.clone()))
    }

    /// Adds a family.
    ///
    /// # Errors
    /// `TableNotFoundException`, `InvalidFamilyOperationException`.
    pub fn add_family(
        self: &Arc<Self>,
        name: TableName,
        family: ColumnFamilyDescriptor,
        nonce: Nonce,
    ) -> Result<u64> {
        let bytes = checks::family_bytes(&family);
        self.change(bytes, name, nonce, move |table| match table.family(family.name()) {
            Some(_) => Err(invalid(table, &family.name_text(), "already exists so cannot be added")),
            None => Ok(table.clone().with_family(family.clone())),
        })
    }

    /// Replaces a family.
    ///
    /// # Errors
    /// As [`Master::add_family`].
    pub fn modify_family(
        self: &Arc<Self>,
        name: TableName,
        family: ColumnFamilyDescriptor,
        nonce: Nonce,
    ) -> Result<u64> {
        let bytes = checks::family_bytes(&family);
        self.change(bytes, name, nonce, move |table| match table.family(family.name()) {
            Some(_) => Ok(table.clone().with_family(family.clone())),
            None => Err(invalid(table, &family.name_text(), "does not exist, so it cannot be modified")),
        })
    }

    /// Removes a family; its files go to the archive.
    ///
    /// # Errors
    /// As [`Master::add_family`].
    pub fn delete_family(self: &Arc<Self>, name: TableName, family: Vec<u8>, nonce: Nonce) -> Result<u64> {
        self.change(family.len(), name, nonce, move |table| {
            let mut changed = table.clone();
            let text = String::from_utf8_lossy(&family);
            if !changed.remove_family(&family) {
                return Err(invalid(table, &text, "does not exist, so it cannot be deleted"));
            }
            if changed.families().len() == 0 {
                return Err(invalid(
                    table,
                    &text,
                    "is the only column family in the table, so it cannot be deleted",
                ));
            }
            Ok(changed)
        })
    }

    /// Submits a change of a table's descriptor; `change` holds `bytes` of the client's.
    fn change(
        self: &Arc<Self>,
        bytes: usize,
        name: TableName,
        nonce: Nonce,
        change: impl Fn(&TableDescriptor) -> Result<TableDescriptor> + Send + 'static,
    ) -> Result<u64> {
        if let Some(id) = self.procedures.find(nonce) {
            return Ok(id);
        }
        let before = self.table(&name)?.descriptor;
        let changed = change(&before)?;
        check_built_in(&before, &changed)?;
        if *changed.name() != name {
            return Err(HBaseError::do_not_retry(format!("{name} cannot become {}", changed.name())));
        }
        checks::check_altered_table(&changed, &before, &self.parts.conf)?;
        let master = Arc::clone(self);
        self.procedures.submit_holding(bytes, "ModifyTableProcedure", nonce, Some(&name.clone()), move || {
            let _lock = master.lock_table(&name)?;
            let table = master.table(&name)?;
            let changed = Arc::new(change(&table.descriptor)?);
            checks::check_size(&changed)?;
            check_built_in(&table.descriptor, &changed)?;
            if name.is_meta() {
                return master.change_meta(&table, changed);
            }
            check_for_modify_table(&table.descriptor, &changed, table.state != TableState::Enabled)?;
            if !missing_in(&changed, &table.descriptor).is_empty() {
                master.take_recovery_snapshot(&name)?;
            }
            master.change_now(&table, changed)
        })
    }

    /// Makes a change of a table whose lock the caller holds.
    pub(super) fn change_now(&self, before: &Table, changed: Arc<TableDescriptor>) -> Result<Vec<u8>> {
        let name = changed.name();
        let regions = self.parts.meta.regions(Some(name))?;
        self.check_migrated(&before.descriptor, &changed, &regions)?;
        let removed_families = missing_in(&changed, &before.descriptor);
        if !removed_families.is_empty() {
            self.replay_all_edits(before, &regions)?;
        }
        self.archive_families(name, &regions, &missing_in(&before.descriptor, &changed))?;
        let names = removed_families.iter().map(|family| String::from_utf8_lossy(family).into_owned());
        let mut intent = match removed_families.is_empty() {
            true => None,
            false => Some(ChangeIntent::write(self.fs(), &self.table_dir(name), [], names)?),
        };
        if before.state == TableState::Enabled {
            self.reopen_as(&changed, before, &regions)?;
        } else {
            self.write_descriptor(before, &changed)?;
            self.store_table(Arc::clone(&changed), before.state);
        }
        self.update_replicas(name);
        let table = name.clone();
        self.run_or_defer(name, "files of a deleted family are archived", move |master| {
            master.archive_families(&table, &regions, &removed_families)?;
            intent.take().into_iter().for_each(|intent| intent.remove(master.fs()));
            Ok(())
        });
        tracing::info!(table = %name, "table altered");
        Ok(Vec::new())
    }

    /// Changes the number of hbase:meta's replicas. The caller holds its lock.
    fn change_meta(&self, before: &Table, changed: Arc<TableDescriptor>) -> Result<Vec<u8>> {
        self.write_descriptor(before, &changed)?;
        let (name, replicas) = (changed.name().clone(), replica_count(&changed));
        self.store_table(changed, before.state);
        self.update_replicas(&name);
        let description = "the number of hbase:meta's replicas is recorded for a stock master";
        self.run_or_defer(&name, description, move |master| (master.parts.record_meta_replicas)(replicas));
        tracing::info!(table = %name, replicas, "table altered");
        Ok(Vec::new())
    }

    /// Closes the regions and opens them with the new descriptor, writes it (the commit point),
    /// then serves them.
    fn reopen_as(
        &self,
        changed: &Arc<TableDescriptor>,
        before: &Table,
        regions: &[MetaRegion],
    ) -> Result<()> {
        let live: Vec<_> = regions.iter().map(|r| &r.info).filter(|r| !r.is_split_parent()).collect();
        let closed = self.close_regions(live.iter().copied())?;
        let opened = self.open_regions(changed, live.into_iter().cloned().collect())?;
        self.parts.meta.commit(opened.changes())?;
        self.write_descriptor(before, changed)?;
        closed.commit();
        self.store_table(Arc::clone(changed), before.state);
        drop(opened.serve());
        Ok(())
    }

    /// Writes a descriptor. After an error the previous one holds: if the new one is in place
    /// nonetheless, a deferred step reverts it.
    fn write_descriptor(&self, before: &Table, changed: &TableDescriptor) -> Result<()> {
        let written = descriptors::write(self.fs(), &self.table_dir(changed.name()), changed);
        written.inspect_err(|_| {
            let old = Arc::clone(&before.descriptor);
            self.run_or_defer(
                changed.name(),
                "the descriptor before the failed change is restored",
                move |master| {
                    let dir = master.table_dir(old.name());
                    match descriptors::read(master.fs(), &dir)?.as_ref() == Some(&*old) {
                        true => Ok(()),
                        false => descriptors::write(master.fs(), &dir, &old),
                    }
                },
            );
        })
    }

    /// Replays edits that only logs of a dead server hold into store files, for regions that have
    /// not been opened since.
    fn replay_all_edits(&self, table: &Table, regions: &[MetaRegion]) -> Result<()> {
        let online = self.parts.regionserver.regions();
        let live = regions.iter().map(|region| &region.info).filter(|info| !info.is_split_parent());
        let mut closed = live.filter(|info| online.find(info.encoded_name()).is_none());
        closed.try_for_each(|info| self.replay_edits(table, info))
    }

    /// Archives families of regions, and of those that they were merged from: a start would move
    /// what is left there aside, and snapshots would miss it. Their MOB files follow.
    fn archive_families(
        &self,
        table: &TableName,
        regions: &[MetaRegion],
        families: &[Vec<u8>],
    ) -> Result<()> {
        for family in families {
            for region in with_merge_parents(regions) {
                reconcile::archive_family(self.fs(), self.root(), region, family)?;
            }
            archive_mob_family(self.fs(), self.root(), table, &String::from_utf8_lossy(family))?;
        }
        Ok(())
    }
}

/// A descriptor without the attributes of hbase:meta that can be altered. Families have every
/// attribute: HBase's client adds those that a stored descriptor lacks.
fn without_replicas(table: &TableDescriptor) -> TableDescriptor {
    let mut attributes = table.attributes().clone();
    META_ATTRIBUTES.iter().for_each(|attribute| drop(attributes.remove(attribute.as_bytes())));
    let with_default = |family: ColumnFamilyDescriptor, (key, value): &(&str, &str)| match family.text(key) {
        Some(_) => family,
        None => family.with(key, value),
    };
    let families = table.families().map(|family| FAMILY_DEFAULTS.iter().fold(family.clone(), with_default));
    families.fold(table.clone().with_attributes(attributes), TableDescriptor::with_family)
}

/// Rejects a change of a table that the master itself uses, but for the number of hbase:meta's
/// replicas.
fn check_built_in(before: &TableDescriptor, changed: &TableDescriptor) -> Result<()> {
    let name = before.name();
    if !is_built_in(name) || (name.is_meta() && without_replicas(before) == without_replicas(changed)) {
        return Ok(());
    }
    let other = if name.is_meta() { ", except REGION_REPLICATION" } else { "" };
    Err(HBaseError::do_not_retry(format!("{name} cannot be altered here{other}")))
}

/// The families of `table` whose directory `other` does not have. Tables that HBase made may have
/// families that share a directory: their names are not UTF-8.
fn missing_in(other: &TableDescriptor, table: &TableDescriptor) -> Vec<Vec<u8>> {
    let known: HashSet<_> = other.families().map(ColumnFamilyDescriptor::name_text).collect();
    let missing = table.families().filter(|family| !known.contains(&family.name_text()));
    missing.map(|family| family.name().to_vec()).collect()
}

fn invalid(table: &TableDescriptor, family: &str, why: &str) -> HBaseError {
    let message = format!("Column family '{family}' in table '{}' {why}", table.name());
    HBaseError::new(ErrorKind::InvalidFamilyOperation, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_replicas_of_meta_can_be_altered_with_attributes_that_a_client_adds() {
        let family = |name: &[u8]| ColumnFamilyDescriptor::new(name).expect("legal");
        let found = TableDescriptor::new(TableName::meta()).with_family(family(b"info"));
        let whole =
            FAMILY_DEFAULTS.iter().fold(family(b"info"), |family, (key, value)| family.with(key, value));
        let altered = |family| found.clone().with_family(family).with_region_replication(3);
        assert_eq!(check_built_in(&found, &altered(whole.clone())), Ok(()));
        assert!(check_built_in(&found, &altered(whole.with("VERSIONS", "9"))).is_err());
        assert!(check_built_in(&found, &altered(family(b"other"))).is_err());
    }
}
