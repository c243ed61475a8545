//! MOB files of tables: archived with their table or family, and cleaned when nothing refers to
//! them (`RSMobFileCleanerChore`, `MobFileCleanerChore`, `ExpiredMobFileCleaner`).
//!
//! `evenkeel_region::store::mob` explains how MOB files are written and read.
//!
//! # The cleaner
//! It runs every `hbase.master.mob.cleaner.period` seconds. For each table with a MOB directory it
//! holds the table's lock, so that no split, merge, alteration, snapshot or clone runs meanwhile,
//! and archives each file
//!
//! - whose modification is at least `hbase.mob.min.age.archive` ago,
//! - to which no store file of the table refers, in any directory of a region: served or not, split
//!   or merged, and also no file that was compacted away and that a scanner still reads,
//! - which no running flush or compaction has written, and
//! - to which no link of a cloned table refers.
//!
//! A link in the table's own MOB directory is archived if no store file refers to its target.
//!
//! If a store file cannot be read, or may have references that it does not name, nothing of the
//! table is archived, and the file is logged. Files with names of another form are never touched.
//!
//! The list of MOB files is read before the references. A reference that is written later is either
//! to a file that was written later, too, or a copy of one that was there.
//!
//! HBase has a cleaner in each RegionServer, which looks at the files of regions that it serves,
//! and one in the master, for other regions. The latter also archives files by their date once
//! `TTL` has passed, whether cells refer to them or not, and archives files of regions that were
//! split, although their daughters refer to them. Here only files without references are archived;
//! compactions drop expired cells and their references.
//!
//! # The archive
//! Readers look for a file in the MOB directory, and then in the archive. There the cleaner of the
//! archive keeps it while a snapshot or a link names it ([`crate::cleaner`]).

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_common::mob::{MobFileName, mob_archive_dir, mob_family_dir, mob_region, mob_table_dir};
use evenkeel_common::{ConfigError, Configuration, HBaseError, RegionInfo, Result, TableName};
use evenkeel_fs::{FileStatus, FileSystem};
use evenkeel_hfile::{HFileLink, StoreFileName};
use evenkeel_region::archive::archive_file;
use evenkeel_region::region::Region;
use evenkeel_region::store::MobReferences;

use super::{Master, links, reconcile};
use crate::meta::TableState;

const CLEANER_PERIOD: &str = "hbase.master.mob.cleaner.period";
const MIN_AGE: &str = "hbase.mob.min.age.archive";
const COMPACTION_PERIOD: &str = "hbase.mob.compaction.chore.period";

/// When the cleaner and the compactions of MOB files run.
#[derive(Clone, Copy, Debug)]
pub struct MobSettings {
    /// `hbase.master.mob.cleaner.period`; `None` if it is not positive.
    pub clean_every: Option<Duration>,
    /// `hbase.mob.min.age.archive`, in milliseconds: younger files are kept.
    pub min_age_ms: i64,
    /// `hbase.mob.compaction.chore.period`: how often families with MOB files have a major
    /// compaction; `None` if it is not positive.
    pub compact_every: Option<Duration>,
}

impl MobSettings {
    /// Reads HBase's keys.
    ///
    /// # Errors
    /// A value that cannot be parsed.
    pub fn from(conf: &Configuration) -> Result<Self, ConfigError> {
        const DAY_S: i64 = 24 * 60 * 60;
        let period = |key, default| -> Result<Option<Duration>, ConfigError> {
            let seconds = u64::try_from(conf.get_i64_or(key, default)?).unwrap_or(0);
            Ok(Some(Duration::from_secs(seconds)).filter(|every| !every.is_zero()))
        };
        Ok(Self {
            clean_every: period(CLEANER_PERIOD, DAY_S)?,
            min_age_ms: conf.get_i64_or(MIN_AGE, 60 * 60 * 1000)?,
            compact_every: period(COMPACTION_PERIOD, 7 * DAY_S)?,
        })
    }
}

impl Master {
    /// Runs the cleaner for all tables. Returns the number of archived files. A table that cannot
    /// be cleaned is logged.
    ///
    /// # Errors
    /// `IOException` if the MOB directories cannot be listed.
    pub fn clean_mob_files(&self) -> Result<usize> {
        let mut archived = 0;
        for table in tables_with_mob_files(self.fs(), self.root())? {
            match self.clean_mob_files_of(&table) {
                Ok(0) => {}
                Ok(files) => {
                    archived += files;
                    tracing::info!(%table, files, "MOB files without references archived");
                }
                Err(error) => tracing::warn!(%table, %error, "no MOB file is archived"),
            }
        }
        Ok(archived)
    }

    fn clean_mob_files_of(&self, table: &TableName) -> Result<usize> {
        // A table with a change or a snapshot in progress is left to the next run.
        let Some(_lock) = self.locks.try_lock(table) else { return Ok(0) };
        self.run_deferred(table)?;
        if self.table(table).is_err() {
            // Left by a change that did not reach its commit point.
            return archive_mob_table(self.fs(), self.root(), table);
        }
        let mut archived = 0;
        for family in reconcile::family_dirs(self.fs(), &mob_region_dir(self.root(), table))? {
            let candidates = self.mob_candidates(&family)?;
            if candidates.is_empty() {
                continue;
            }
            let regions = self.mob_regions(table)?;
            let pending = |name: &str| regions.iter().any(|region| is_pending(region, family.name(), name));
            let free: Vec<_> = candidates.into_iter().filter(|file| !pending(file.name())).collect();
            let references = self.mob_references(table, family.name(), &regions)?;
            if let Some(file) = &references.unknown {
                return Err(HBaseError::io(format!(
                    "{file} has tags and no list of MOB files: a major compaction writes one"
                )));
            }
            for file in free {
                archived += usize::from(self.archive_if_free(table, family.name(), &file, &references)?);
            }
        }
        Ok(archived)
    }

    /// The files of a MOB directory that are old enough.
    fn mob_candidates(&self, family: &FileStatus) -> Result<Vec<FileStatus>> {
        let youngest_ms = self.clock().now_ms().saturating_sub(self.mob_settings.min_age_ms);
        let mut files = self.fs().list(&family.path)?;
        files.retain(|file| !file.is_dir && file.modified_ms < youngest_ms);
        Ok(files)
    }

    /// The served regions of a table, secondary replicas included.
    fn mob_regions(&self, table: &TableName) -> Result<Vec<Arc<Region>>> {
        let mut regions = self.parts.regionserver.regions().all();
        regions.retain(|region| region.info().table() == table);
        Ok(regions)
    }

    /// The MOB files to which store files of a family refer.
    fn mob_references(
        &self,
        table: &TableName,
        family: &str,
        served: &[Arc<Region>],
    ) -> Result<MobReferences> {
        let mut references = MobReferences::default();
        for region in served {
            for store in region.stores().iter().filter(|store| store.family().name_text() == family) {
                references.extend(&store.mob_references()?);
            }
        }
        let is_served = |name: &str| {
            served.iter().any(|region| !region.is_secondary() && region.info().encoded_name() == name)
        };
        for dir in reconcile::region_dirs(self.fs(), &self.table_dir(table))? {
            if !is_served(dir.name()) {
                self.add_references_on_disk(table, dir.name(), family, &mut references)?;
            }
        }
        Ok(references)
    }

    /// Adds the references of a region that is not served: closed, split or merged.
    fn add_references_on_disk(
        &self,
        table: &TableName,
        region: &str,
        family: &str,
        references: &mut MobReferences,
    ) -> Result<()> {
        let dir = self.table_dir(table).join(region).join(family);
        if !self.fs().exists(&dir)? {
            return Ok(());
        }
        for file in self.fs().list(&dir)?.into_iter().filter(|file| !file.is_dir) {
            let link = match StoreFileName::parse(file.name()) {
                Some(StoreFileName::Reference { target, region: parent }) => {
                    links::link_to(table, &parent, &target)
                }
                Some(_) => links::link_to(table, region, file.name()),
                None => continue,
            };
            let path = links::resolve(self.fs(), self.root(), &link, family)?.path;
            references.add_path(self.fs(), &path)?;
        }
        Ok(())
    }

    fn archive_if_free(
        &self,
        table: &TableName,
        family: &str,
        file: &FileStatus,
        references: &MobReferences,
    ) -> Result<bool> {
        let link = HFileLink::parse(file.name());
        let (of, name) = match &link {
            Some(link) => (TableName::new(&link.namespace, &link.table)?, link.hfile.as_str()),
            None => (table.clone(), file.name()),
        };
        let is_mob_file = MobFileName::parse(name).is_some();
        if !is_mob_file || references.refs.contains(&of.to_string(), name) {
            return Ok(false);
        }
        let archive = mob_archive_dir(self.root(), table, family);
        if self.is_linked(&archive.join(file.name()))? {
            return Ok(false);
        }
        tracing::debug!(%table, family, file = file.name(), "a MOB file without references is archived");
        archive_file(self.fs(), &file.path, &archive, self.clock().now_ms())?;
        Ok(true)
    }

    /// Returns true if a link of another table names the file that would be archived here.
    fn is_linked(&self, archived: &Path) -> Result<bool> {
        let Some(dir) = links::back_references_dir(archived) else { return Ok(false) };
        if !self.fs().exists(&dir)? {
            return Ok(false);
        }
        for back_reference in self.fs().list(&dir)? {
            if links::is_referenced(self.fs(), self.root(), &back_reference.path)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Requests a major compaction of every family with MOB files of enabled tables
    /// (`MobFileCompactionChore`).
    pub fn compact_mob_families(&self) {
        for table in self.tables().into_iter().filter(|table| table.state == TableState::Enabled) {
            for family in table.descriptor.families().filter(|family| family.is_mob()) {
                for region in self.mob_regions(table.descriptor.name()).unwrap_or_default() {
                    if !region.is_secondary() {
                        let background = self.parts.regionserver.background();
                        background.request_compaction(&region, Some(family.name()), true);
                    }
                }
            }
        }
    }
}

fn is_pending(region: &Region, family: &str, name: &str) -> bool {
    let mut stores = region.stores().iter().filter(|store| store.family().name_text() == family);
    stores.any(|store| store.is_mob_file_pending(name))
}

fn mob_region_dir(root: &Path, table: &TableName) -> std::path::PathBuf {
    mob_table_dir(root, table).join(mob_region(table).encoded_name())
}

/// Returns the tables that have a MOB directory, whether they exist or not.
fn tables_with_mob_files(fs: &dyn FileSystem, root: &Path) -> Result<Vec<TableName>> {
    let mut tables = Vec::new();
    for namespace in reconcile::family_dirs(fs, &root.join(evenkeel_common::mob::MOB_DIR).join("data"))? {
        for table in reconcile::family_dirs(fs, &namespace.path)? {
            tables.extend(TableName::new(namespace.name(), table.name()).ok());
        }
    }
    Ok(tables)
}

/// Moves all MOB files of a table to the archive, and removes their directory. Returns the number
/// of files.
///
/// # Errors
/// `IOException` from the file system.
pub fn archive_mob_table(fs: &dyn FileSystem, root: &Path, table: &TableName) -> Result<usize> {
    let mut archived = 0;
    for family in reconcile::family_dirs(fs, &mob_region_dir(root, table))? {
        archived += archive_mob_family(fs, root, table, family.name())?;
    }
    fs.delete(&mob_table_dir(root, table))?;
    Ok(archived)
}

/// Moves the MOB files of a family to the archive, and removes their directory. Returns the number
/// of files.
///
/// # Errors
/// `IOException` from the file system.
pub fn archive_mob_family(
    fs: &dyn FileSystem,
    root: &Path,
    table: &TableName,
    family: &str,
) -> Result<usize> {
    let archived = archive_mob_files(fs, root, table, family, |_| true)?;
    fs.delete(&mob_family_dir(root, table, family))?;
    Ok(archived)
}

/// Moves the MOB files that these regions have written to the archive. No other region of the table
/// may refer to them.
///
/// # Errors
/// `IOException` from the file system.
pub fn archive_mob_files_of<'a>(
    fs: &dyn FileSystem,
    root: &Path,
    table: &TableName,
    regions: impl Iterator<Item = &'a RegionInfo>,
) -> Result<()> {
    let gone: Vec<&str> = regions.map(RegionInfo::encoded_name).collect();
    let is_gone = |name: &str| MobFileName::parse(name).is_some_and(|name| gone.contains(&name.region()));
    for family in reconcile::family_dirs(fs, &mob_region_dir(root, table))? {
        archive_mob_files(fs, root, table, family.name(), is_gone)?;
    }
    Ok(())
}

fn archive_mob_files(
    fs: &dyn FileSystem,
    root: &Path,
    table: &TableName,
    family: &str,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<usize> {
    let dir = mob_family_dir(root, table, family);
    let archive = mob_archive_dir(root, table, family);
    let mut archived = 0;
    if !fs.exists(&dir)? {
        return Ok(0);
    }
    for file in fs.list(&dir)?.into_iter().filter(|file| !file.is_dir && is_wanted(file.name())) {
        archive_file(fs, &file.path, &archive, file.modified_ms)?;
        archived += 1;
    }
    Ok(archived)
}

/// Returns the MOB files of a table for the manifest of a snapshot, by family
/// (`SnapshotManifest.addMobRegion`).
///
/// # Errors
/// `IOException` from the file system.
pub fn files_of_mob_region(
    fs: &dyn FileSystem,
    root: &Path,
    table: &TableName,
) -> Result<Vec<(String, Vec<String>)>> {
    let mut families = Vec::new();
    for family in reconcile::family_dirs(fs, &mob_region_dir(root, table))? {
        let files = fs.list(&family.path)?.into_iter().filter(|file| !file.is_dir);
        let names = files.map(|file| file.name().to_owned());
        let names: Vec<_> = names.filter(|name| StoreFileName::parse(name).is_some()).collect();
        families.push((family.name().to_owned(), names));
    }
    Ok(families)
}
