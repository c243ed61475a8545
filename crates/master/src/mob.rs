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
//! family is archived, and the file is logged. Files with names of another form are never touched,
//! nor are those of a family that the table's descriptor lacks: its store files were moved to
//! `.hbck`. Store files there count as those of the table do.
//!
//! The list of MOB files is read before the references. A reference that is written later is either
//! to a file that was written later, too, or a copy of one that was there. A bulk loaded file may
//! refer to any file of its table, so the references of served regions are read again before files
//! are archived.
//!
//! The MOB directory of a table that is neither in hbase:meta nor in the data directory, nor in
//! `.hbck`, was left by a change, and is archived once all its files are old enough.
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

use evenkeel_common::mob::{
    MobFileName, is_mob_file_name, mob_archive_dir, mob_family_dir, mob_region, mob_table_dir,
};
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
        let Ok(known) = self.table(table) else { return self.clean_left_mob_files(table) };
        let mut archived = 0;
        for family in reconcile::family_dirs(self.fs(), &mob_region_dir(self.root(), table))? {
            if known.descriptor.family(family.name().as_bytes()).is_none() {
                tracing::debug!(%table, family = family.name(), "MOB files of an unknown family are kept");
                continue;
            }
            match self.clean_mob_family(table, &family) {
                Ok(files) => archived += files,
                Err(error) => {
                    tracing::warn!(%table, family = family.name(), %error, "no MOB file of the family is archived");
                }
            }
        }
        Ok(archived)
    }

    /// Archives the MOB files that a change left which did not reach its commit point, if nothing
    /// else of the table exists and all of them are old enough.
    fn clean_left_mob_files(&self, table: &TableName) -> Result<usize> {
        let is_there = self.fs().exists(&self.table_dir(table))?
            || self.fs().exists(&reconcile::set_aside_dir(self.root(), table))?
            || !self.parts.meta.regions(Some(table))?.is_empty();
        if is_there {
            return Ok(0);
        }
        for family in reconcile::family_dirs(self.fs(), &mob_region_dir(self.root(), table))? {
            let files = self.fs().list(&family.path)?.len();
            if self.mob_candidates(&family)?.len() < files {
                return Ok(0);
            }
        }
        archive_mob_table(self.fs(), self.root(), table)
    }

    fn clean_mob_family(&self, table: &TableName, family: &FileStatus) -> Result<usize> {
        let candidates = self.mob_candidates(family)?;
        if candidates.is_empty() {
            return Ok(0);
        }
        let regions = self.mob_regions(table)?;
        let pending = |name: &str| regions.iter().any(|region| is_pending(region, family.name(), name));
        let free: Vec<_> = candidates.into_iter().filter(|file| !pending(file.name())).collect();
        let mut references = self.mob_references(table, family.name(), &regions)?;
        let set_aside = SetAside::of(self.fs(), self.root(), table);
        // Those that a bulk load brought meanwhile.
        references.extend(&served_references(family.name(), &self.mob_regions(table)?)?);
        if let Some(file) = &references.unknown {
            return Err(HBaseError::io(format!(
                "{file} has tags and no list of MOB files: a major compaction writes one"
            )));
        }
        let mut archived = 0;
        for file in free.iter().filter(|file| !set_aside.keeps(table, file.name())) {
            archived += usize::from(self.archive_if_free(table, family.name(), file, &references)?);
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
        let mut references = served_references(family, served)?;
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
            let Some(link) = link_of(table, region, file.name()) else { continue };
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
        let (of, name) = target_of(table, file.name())?;
        let name = name.as_str();
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
        self.parts.region_env.stores.mob.close(&file.path);
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

/// The MOB files to which store files of a family refer that these regions serve.
fn served_references(family: &str, served: &[Arc<Region>]) -> Result<MobReferences> {
    let mut references = MobReferences::default();
    for region in served {
        for store in region.stores().iter().filter(|store| store.family().name_text() == family) {
            references.extend(&store.mob_references()?);
        }
    }
    Ok(references)
}

/// Returns the table and the name of the MOB file that a name in a table's MOB directory stands
/// for: its own, or that of a link.
fn target_of(table: &TableName, name: &str) -> Result<(TableName, String)> {
    match HFileLink::parse(name) {
        Some(link) => Ok((TableName::new(&link.namespace, &link.table)?, link.hfile)),
        None => Ok((table.clone(), name.to_owned())),
    }
}

/// Returns the store file that a name in a family's directory stands for; `None` for a name of
/// another form.
fn link_of(table: &TableName, region: &str, name: &str) -> Option<HFileLink> {
    match StoreFileName::parse(name)? {
        StoreFileName::Reference { target, region: parent } => Some(links::link_to(table, &parent, &target)),
        _ => Some(links::link_to(table, region, name)),
    }
}

/// The MOB files of a table to which store files refer that were moved to `.hbck`. An operator may
/// move these back.
enum SetAside {
    /// Store files there refer to these.
    Known(MobReferences),
    /// A file there cannot be read, or may refer to any MOB file.
    Unknown,
}

impl SetAside {
    fn of(fs: &dyn FileSystem, root: &Path, table: &TableName) -> Self {
        let mut references = MobReferences::default();
        let dir = reconcile::set_aside_dir(root, table);
        match add_set_aside(fs, root, table, &dir, &mut references) {
            Ok(()) if references.unknown.is_none() => Self::Known(references),
            outcome => {
                let error = outcome.err().map(|error| error.to_string()).or(references.unknown);
                tracing::warn!(%table, path = %dir.display(), ?error, "data there may need any MOB file of its table");
                Self::Unknown
            }
        }
    }

    /// Returns true if a file, or a link, in the table's MOB directory must stay there.
    fn keeps(&self, table: &TableName, name: &str) -> bool {
        match self {
            Self::Unknown => true,
            Self::Known(references) => target_of(table, name)
                .map_or(true, |(of, name)| references.refs.contains(&of.to_string(), &name)),
        }
    }
}

/// Adds the references of the store files in a directory of `.hbck` and in those below it.
fn add_set_aside(
    fs: &dyn FileSystem,
    root: &Path,
    table: &TableName,
    dir: &Path,
    references: &mut MobReferences,
) -> Result<()> {
    if !fs.exists(dir)? {
        return Ok(());
    }
    for entry in fs.list(dir)? {
        if entry.is_dir {
            add_set_aside(fs, root, table, &entry.path, references)?;
            continue;
        }
        match StoreFileName::parse(entry.name()) {
            None => {}
            Some(StoreFileName::Reference { .. } | StoreFileName::Link(_)) => {
                let family = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                let Some(link) = link_of(table, "", entry.name()) else { continue };
                references.add_path(fs, &links::resolve(fs, root, &link, family)?.path)?;
            }
            Some(_) => references.add_path(fs, &entry.path)?,
        }
    }
    Ok(())
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

/// Moves all MOB files of a table to the archive, and removes their directory. Those that store
/// files in `.hbck` name stay. What is no part of a MOB directory goes to `.hbck`. Returns the
/// number of archived files.
///
/// # Errors
/// `IOException` from the file system.
pub fn archive_mob_table(fs: &dyn FileSystem, root: &Path, table: &TableName) -> Result<usize> {
    let mut archived = 0;
    let region_dir = mob_region_dir(root, table);
    for family in reconcile::family_dirs(fs, &region_dir)? {
        archived += archive_mob_family(fs, root, table, family.name())?;
    }
    let is_family = |entry: &FileStatus| entry.is_dir && !entry.name().starts_with('.');
    set_unknown_aside(fs, root, table, &region_dir, is_family)?;
    remove_if_empty(fs, &region_dir)?;
    let dir = mob_table_dir(root, table);
    set_unknown_aside(fs, root, table, &dir, |entry| entry.path == region_dir)?;
    remove_if_empty(fs, &dir)?;
    Ok(archived)
}

/// Moves the MOB files of a family to the archive, and removes their directory. Those that store
/// files in `.hbck` name stay. Anything else in the directory goes to `.hbck`. Returns the number
/// of archived files.
///
/// # Errors
/// `IOException` from the file system.
pub fn archive_mob_family(
    fs: &dyn FileSystem,
    root: &Path,
    table: &TableName,
    family: &str,
) -> Result<usize> {
    let archived = archive_mob_files(fs, root, table, family, is_of_mob_dir)?;
    let dir = mob_family_dir(root, table, family);
    set_unknown_aside(fs, root, table, &dir, |entry| !entry.is_dir && is_of_mob_dir(entry.name()))?;
    remove_if_empty(fs, &dir)?;
    Ok(archived)
}

/// Returns true for the names that a family's MOB directory has: MOB files, links to them, and
/// hidden files, such as those with checksums.
fn is_of_mob_dir(name: &str) -> bool {
    is_mob_file_name(name) || HFileLink::parse(name).is_some() || name.starts_with('.')
}

/// Moves what is no part of a MOB directory that is about to be removed to `.hbck`.
fn set_unknown_aside(
    fs: &dyn FileSystem,
    root: &Path,
    table: &TableName,
    dir: &Path,
    is_known: impl Fn(&FileStatus) -> bool,
) -> Result<()> {
    if !fs.exists(dir)? {
        return Ok(());
    }
    let table_dir = mob_table_dir(root, table);
    for entry in fs.list(dir)?.into_iter().filter(|entry| !is_known(entry)) {
        let below = entry.path.strip_prefix(&table_dir).unwrap_or(Path::new(entry.name()));
        let to = reconcile::sideline(fs, root, table, &entry.path, below)?;
        tracing::error!(%table, path = %entry.path.display(), to = %to.display(), "not a part of a MOB directory: moved aside");
    }
    Ok(())
}

/// Removes a directory, unless something in it stays.
fn remove_if_empty(fs: &dyn FileSystem, dir: &Path) -> Result<()> {
    if fs.exists(dir)? && !fs.delete_empty_dir(dir)? {
        tracing::warn!(path = %dir.display(), "a MOB directory is not empty and stays");
    }
    Ok(())
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
    let set_aside = SetAside::of(fs, root, table);
    for file in fs.list(&dir)?.into_iter().filter(|file| !file.is_dir && is_wanted(file.name())) {
        if !set_aside.keeps(table, file.name()) {
            archive_file(fs, &file.path, &archive, file.modified_ms)?;
            archived += 1;
        }
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
