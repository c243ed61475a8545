//! Changing a table's description. The rename of the new descriptor is the moment; regions are reopened after it.

use std::sync::Arc;

use evenkeel_common::{ColumnFamilyDescriptor, ErrorKind, HBaseError, Result, TableDescriptor, TableName};

use super::change_note::ChangeNote;
use super::meta::TableState;
use super::tables::Nonce;
use super::{Master, Table, checks, descriptors, is_built_in, reconcile};

impl Master {
    /// Gives a table a new description.
    ///
    /// # Errors
    /// `TableNotFoundException`, or what is wrong with the description.
    pub fn modify_table(
        self: &Arc<Self>,
        name: TableName,
        new: TableDescriptor,
        nonce: Nonce,
    ) -> Result<u64> {
        self.change(name, nonce, move |_| Ok(new.clone()))
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
        self.change(name, nonce, move |table| match table.family(family.name()) {
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
        self.change(name, nonce, move |table| match table.family(family.name()) {
            Some(_) => Ok(table.clone().with_family(family.clone())),
            None => Err(invalid(table, &family.name_text(), "does not exist, so it cannot be modified")),
        })
    }

    /// Removes a family; its files go to the archive.
    ///
    /// # Errors
    /// As [`Master::add_family`].
    pub fn delete_family(self: &Arc<Self>, name: TableName, family: Vec<u8>, nonce: Nonce) -> Result<u64> {
        self.change(name, nonce, move |table| {
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

    fn change(
        self: &Arc<Self>,
        name: TableName,
        nonce: Nonce,
        change: impl Fn(&TableDescriptor) -> Result<TableDescriptor> + Send + 'static,
    ) -> Result<u64> {
        if let Some(id) = self.procedures.find(nonce) {
            return Ok(id);
        }
        if is_built_in(&name) {
            return Err(HBaseError::do_not_retry(format!("{name} cannot be altered here")));
        }
        let changed = change(&self.table(&name)?.descriptor)?;
        if *changed.name() != name {
            return Err(HBaseError::do_not_retry(format!("{name} cannot become {}", changed.name())));
        }
        checks::check_table(&changed, &self.parts.conf)?;
        let master = Arc::clone(self);
        self.procedures.submit(nonce, move || {
            let _lock = master.locks.lock(&name);
            let table = master.table(&name)?;
            let changed = Arc::new(change(&table.descriptor)?);
            master.change_now(&table, changed)
        })
    }

    fn change_now(&self, before: &Table, changed: Arc<TableDescriptor>) -> Result<Vec<u8>> {
        let name = changed.name();
        let gone = || before.descriptor.families().filter(|f| changed.family(f.name()).is_none());
        let note = match gone().next() {
            Some(_) => {
                let families = gone().map(ColumnFamilyDescriptor::name_text);
                Some(ChangeNote::write(self.fs(), &self.table_dir(name), [], families)?)
            }
            None => None,
        };
        descriptors::write(self.fs(), &self.table_dir(name), &changed)?;
        self.remember(Arc::clone(&changed), before.state);
        if before.state == TableState::Enabled {
            let regions = self.live_regions(name)?;
            self.close_regions(regions.iter())?;
            let regions = self.open_regions(&changed, regions)?;
            self.parts.meta.commit(self.opened(&regions))?;
            self.serve(regions);
        }
        for gone in gone() {
            for region in self.live_regions(name)? {
                reconcile::archive_family(self.fs(), self.root(), &region, gone.name())?;
            }
        }
        note.into_iter().for_each(|note| note.forget(self.fs()));
        tracing::info!(table = %name, "table altered");
        Ok(Vec::new())
    }
}

fn invalid(table: &TableDescriptor, family: &str, why: &str) -> HBaseError {
    let message = format!("Column family '{family}' in table '{}' {why}", table.name());
    HBaseError::new(ErrorKind::InvalidFamilyOperation, message)
}
