//! Reconciles directories with hbase:meta at start, and moves files to the archive.
//!
//! hbase:meta is authoritative (see [`super`]). A directory that it does not list is one of two
//! things:
//!
//! - an intent record names it ([`change_intent`](super::change_intent)): an interrupted change
//!   prepared it or did not remove it yet, so it goes to the archive
//! - no intent record names it: it is user data that hbase:meta should list, and it stays. Tables
//!   and regions get their rows in hbase:meta back ([`orphans`]); families are moved to `.hbck`,
//!   which no cleaner reads
//!
//! A table whose regions hbase:meta lists, but not its state, mostly comes from HBase 1.x, which
//! keeps states in ZooKeeper. It is enabled, as by HBase 2.6 without a znode of it
//! (`TableStateManager.fixTableStates`).
//!
//! A directory goes to the archive with the files that a table's layout has. Anything else in it
//! goes to `.hbck`, and the log names it.
//!
//! Each case of the second kind is logged as an error. So is a table of hbase:meta without a
//! descriptor: it is disabled, and its families are those that its directories have, until an
//! operator alters and enables it. None of this stops a start.

mod orphans;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_common::{ColumnFamilyDescriptor, HBaseError, RegionInfo, Result, TableDescriptor, TableName};
use evenkeel_fs::{FileStatus, FileSystem};
use evenkeel_region::archive::archive_file;
use evenkeel_region::descriptors::Damage;
use evenkeel_region::layout;
use evenkeel_region::store_file_tracker::LIST_DIR;

use super::change_intent::ChangeIntents;
use super::meta::{MetaChange, MetaTable, TableState};
use super::mob::archive_mob_table;
use super::regions::truncate;
use super::{Table, descriptors};

/// Where data that belongs to no table is moved (`HConstants.HBCK_SIDELINEDIR_NAME`).
const SIDELINE_DIR: &str = ".hbck";
/// The limit on entries with the same name there.
const SIDELINED_MAX: u32 = 10_000;

/// Returns the tables that hbase:meta lists, after it has cleaned up what a dead process left.
/// `edits` are the file systems and root directories below which recovered edits are. If
/// `meta_is_complete` is false, part of a log was lost, and nothing goes to the archive but the
/// files of truncated regions, which records on disk name.
///
/// # Errors
/// `IOException` from the file system or hbase:meta.
pub fn reconcile(
    fs: &dyn FileSystem,
    root: &Path,
    edits: &[(&dyn FileSystem, &Path)],
    meta: &MetaTable,
    meta_is_complete: bool,
) -> Result<BTreeMap<TableName, Table>> {
    let mut tables = BTreeMap::new();
    let regions: HashSet<String> =
        meta.regions(None)?.iter().map(|region| region.info.encoded_name().to_owned()).collect();
    for (name, state) in meta.table_states()? {
        let dir = layout::table_dir(root, &name);
        let descriptor = match descriptors::commit_pending(fs, &dir, |region| regions.contains(region))? {
            Ok(()) => descriptors::read_or_damage(fs, &dir)?,
            Err(damage) => Err(damage),
        };
        // Complete a change of state that had begun.
        let state = match state {
            TableState::Disabling => TableState::Disabled,
            TableState::Enabling => TableState::Enabled,
            settled => settled,
        };
        tables.insert(name.clone(), table_of(fs, &dir, &name, descriptor, state)?);
    }
    write_table_states(meta, &tables)?;
    if !meta_is_complete {
        tracing::error!("a log was damaged: directories that hbase:meta does not list are not archived");
    }
    for (name, dir) in table_dirs(fs, root)?.into_iter().filter(|(name, _)| !name.is_meta()) {
        Reconciler { fs, root, edits, meta, name, dir, meta_is_complete }.run(&mut tables)?;
    }
    Ok(tables)
}

/// Returns a table with its descriptor, or if it has none or a damaged one, a disabled table with
/// the families of its directories. A descriptor that cannot be read now is not such a case: it
/// fails the start, because the state of the table would be lost.
fn table_of(
    fs: &dyn FileSystem,
    dir: &Path,
    name: &TableName,
    descriptor: std::result::Result<Option<TableDescriptor>, Damage>,
    state: TableState,
) -> Result<Table> {
    let error = match descriptor {
        Ok(Some(descriptor)) => return Ok(Table { descriptor: Arc::new(descriptor), state }),
        Ok(None) => HBaseError::io("there is none"),
        Err(Damage(error)) => error,
    };
    tracing::error!(
        table = %name, path = %dir.display(), %error,
        "the table has no readable descriptor: it is disabled, with the families of its directories; alter it, then enable it"
    );
    Ok(Table { descriptor: Arc::new(descriptor_of_dirs(fs, dir, name)?), state: TableState::Disabled })
}

/// Builds a descriptor of the families for which the table's regions have directories.
fn descriptor_of_dirs(fs: &dyn FileSystem, dir: &Path, name: &TableName) -> Result<TableDescriptor> {
    let mut descriptor = TableDescriptor::new(name.clone());
    for region in region_dirs(fs, dir)? {
        for family in family_dirs(fs, &region.path)? {
            if let Ok(family) = ColumnFamilyDescriptor::new(family.name().as_bytes()) {
                descriptor = descriptor.with_family(family);
            }
        }
    }
    Ok(descriptor)
}

/// Writes the table states that [`reconcile`] decided to hbase:meta.
fn write_table_states(meta: &MetaTable, tables: &BTreeMap<TableName, Table>) -> Result<()> {
    let told = meta.table_states()?;
    let differs = |name: &TableName, state: &TableState| {
        tables.get(name).filter(|t| t.state != *state).map(|t| t.state)
    };
    let mut changes = Vec::new();
    for (name, settled) in told.iter().filter_map(|(name, state)| Some((name, differs(name, state)?))) {
        changes.push(MetaChange::State(name.clone(), settled));
        let closed = meta
            .regions(Some(name))?
            .into_iter()
            .filter(|r| !r.info.is_split_parent() && r.state != "CLOSED");
        if settled == TableState::Disabled {
            changes.extend(closed.map(|region| MetaChange::Put(region.info, "CLOSED")));
        }
    }
    meta.commit(changes)
}

/// Reconciles one table's directory with hbase:meta.
struct Reconciler<'a> {
    fs: &'a dyn FileSystem,
    root: &'a Path,
    /// Where recovered edits are.
    edits: &'a [(&'a dyn FileSystem, &'a Path)],
    meta: &'a MetaTable,
    name: TableName,
    dir: PathBuf,
    /// True if hbase:meta holds every row that was written to it.
    meta_is_complete: bool,
}

impl Reconciler<'_> {
    fn run(&self, tables: &mut BTreeMap<TableName, Table>) -> Result<()> {
        truncate::finish_all(self.fs, self.root, &self.name)?;
        let intents = ChangeIntents::read(self.fs, &self.dir)?;
        if !tables.contains_key(&self.name) {
            let only_state_is_missing = !self.meta.regions(Some(&self.name))?.is_empty();
            if !only_state_is_missing && self.is_interrupted_change(&intents)? {
                return self.archive_table();
            }
            tables.insert(self.name.clone(), self.adopt_table(only_state_is_missing)?);
        }
        let Some(table) = tables.get(&self.name) else { return Ok(()) };
        self.reconcile_regions(&intents)?;
        for region in region_dirs(self.fs, &self.dir)? {
            self.reconcile_families(table, &region, &intents)?;
        }
        if self.meta_is_complete { intents.remove(self.fs) } else { Ok(()) }
    }

    /// Returns true if an interrupted change explains why hbase:meta does not list this table:
    /// intent records name each of its regions.
    fn is_interrupted_change(&self, intents: &ChangeIntents) -> Result<bool> {
        let regions = region_dirs(self.fs, &self.dir)?;
        Ok(regions.iter().all(|region| intents.regions.contains(region.name())))
    }

    fn archive_table(&self) -> Result<()> {
        let (table, archived) = (&self.name, self.meta_is_complete);
        tracing::warn!(%table, archived, "not in hbase:meta: left by an interrupted change");
        if archived { archive_table(self.fs, self.root, table) } else { Ok(()) }
    }

    /// Writes the state of a table that hbase:meta has lost, or never had.
    fn adopt_table(&self, only_state_is_missing: bool) -> Result<Table> {
        let descriptor = descriptors::read_or_damage(self.fs, &self.dir)?;
        let table = table_of(self.fs, &self.dir, &self.name, descriptor, TableState::Enabled)?;
        if only_state_is_missing {
            // HBase 1 has no states there.
            tracing::error!(table = %self.name, state = ?table.state, "table has no readable state in hbase:meta: it gets one");
        } else {
            tracing::error!(table = %self.name, path = %self.dir.display(), "table was not in hbase:meta: its rows are written again");
        }
        self.meta.commit(vec![MetaChange::State(self.name.clone(), table.state)])?;
        Ok(table)
    }

    fn reconcile_regions(&self, intents: &ChangeIntents) -> Result<()> {
        let known = self.meta.regions(Some(&self.name))?;
        let mut names: HashSet<&str> = HashSet::new();
        for region in &known {
            names.insert(region.info.encoded_name());
            names.extend(region.merge_parents.iter().map(RegionInfo::encoded_name));
        }
        let unknown = region_dirs(self.fs, &self.dir)?.into_iter().filter(|dir| !names.contains(dir.name()));
        let (explained, orphans): (Vec<_>, Vec<_>) =
            unknown.partition(|dir| intents.regions.contains(dir.name()));
        for region in explained.iter().filter(|_| self.meta_is_complete) {
            tracing::warn!(table = %self.name, region = region.name(), "region left by an interrupted change; archived");
            archive_region_dir(self.fs, self.root, &self.name, region.name())?;
        }
        if orphans.is_empty() {
            return Ok(());
        }
        let mut live: Vec<_> =
            known.iter().map(|region| region.info.clone()).filter(|info| !info.is_split_parent()).collect();
        let roots = orphans::RegionRoots { fs: self.fs, root: self.root, edits: self.edits };
        let adopted = orphans::adopt(roots, &self.name, orphans, &live, self.meta_is_complete)?;
        if !adopted.is_empty() {
            live.extend(adopted.iter().cloned());
            orphans::log_holes(&self.name, &live);
        }
        self.meta.commit(adopted.into_iter().map(|info| MetaChange::Put(info, "CLOSED")).collect())
    }

    fn reconcile_families(&self, table: &Table, region: &FileStatus, intents: &ChangeIntents) -> Result<()> {
        let known: HashSet<_> = table.descriptor.families().map(ColumnFamilyDescriptor::name_text).collect();
        for family in family_dirs(self.fs, &region.path)? {
            if known.contains(family.name()) {
                continue;
            }
            let (name, region) = (&self.name, region.name());
            let below = Path::new(region).join(family.name());
            if self.meta_is_complete && intents.families.contains(family.name()) {
                tracing::warn!(table = %name, region, family = family.name(), "family left by an interrupted change; archived");
                archive_files(self.fs, self.root, name, &below)?;
            } else if self.fs.list(&family.path)?.iter().all(is_list_dir) {
                // A deleted family may leave a list of files that are archived.
                let archive = layout::archive_table_dir(self.root, name).join(&below);
                archive_lists(self.fs, &family.path, &archive)?;
                self.fs.delete_empty_dir(&family.path)?;
            } else {
                let to = sideline(self.fs, self.root, name, &family.path, &below)?;
                tracing::error!(table = %name, region, family = family.name(), path = %to.display(), "family is not in the table's descriptor; its files are moved aside");
            }
        }
        Ok(())
    }
}

/// Moves a directory of a table to `.hbck`, which no cleaner reads, and returns its new path.
/// `below` is its path relative to the table's directory.
pub(super) fn sideline(
    fs: &dyn FileSystem,
    root: &Path,
    table: &TableName,
    dir: &Path,
    below: &Path,
) -> Result<PathBuf> {
    let place = set_aside_dir(root, table).join(below);
    let mut to = place.clone();
    for attempt in 1..=SIDELINED_MAX {
        if !fs.exists(&to)? {
            break;
        }
        to = place.with_extension(attempt.to_string());
    }
    if let Some(parent) = to.parent() {
        fs.mkdirs(parent)?;
    }
    fs.rename(dir, &to)?;
    Ok(to)
}

/// Returns where data of a table is moved that does not belong to it.
pub(super) fn set_aside_dir(root: &Path, table: &TableName) -> PathBuf {
    layout::table_dir(&root.join(SIDELINE_DIR), table)
}

/// Returns true if a region's directory holds references to files of another region.
///
/// # Errors
/// `IOException` from the file system.
pub fn has_references(fs: &dyn FileSystem, root: &Path, region: &RegionInfo) -> Result<bool> {
    for family in family_dirs(fs, &layout::region_dir(root, region))? {
        if fs.list(&family.path)?.iter().any(|file| is_reference(file.name())) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// True for `<file>.<encoded name of the region that the file is in>`.
pub(super) fn is_reference(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, region)| is_encoded_name(region))
}

pub(super) fn is_encoded_name(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Returns every table directory below the root.
///
/// # Errors
/// `IOException` from the file system.
pub fn table_dirs(fs: &dyn FileSystem, root: &Path) -> Result<Vec<(TableName, std::path::PathBuf)>> {
    let mut tables = Vec::new();
    for namespace in directories(fs, &root.join("data"))? {
        for table in directories(fs, &namespace.path)? {
            if let Ok(name) = TableName::new(namespace.name(), table.name()) {
                tables.push((name, table.path));
            }
        }
    }
    Ok(tables)
}

/// Returns every region directory of a table.
///
/// # Errors
/// `IOException` from the file system.
pub fn region_dirs(fs: &dyn FileSystem, table_dir: &Path) -> Result<Vec<FileStatus>> {
    let mut regions = directories(fs, table_dir)?;
    regions.retain(|dir| is_encoded_name(dir.name()));
    Ok(regions)
}

pub(super) fn family_dirs(fs: &dyn FileSystem, region_dir: &Path) -> Result<Vec<FileStatus>> {
    let mut families = directories(fs, region_dir)?;
    families.retain(|dir| !dir.name().starts_with('.') && dir.name() != layout::RECOVERED_EDITS_DIR);
    Ok(families)
}

fn directories(fs: &dyn FileSystem, dir: &Path) -> Result<Vec<FileStatus>> {
    if !fs.exists(dir)? {
        return Ok(Vec::new());
    }
    let mut entries = fs.list(dir)?;
    entries.retain(|entry| entry.is_dir);
    Ok(entries)
}

/// Moves all files of a table to the archive and removes its directory. Archives its regions first,
/// in turn. So after a power failure, the regions that remain are those that the intent records
/// name, or the directory holds nothing. What is no part of a table's layout goes to `.hbck`.
///
/// # Errors
/// `IOException` from the file system.
pub fn archive_table(fs: &dyn FileSystem, root: &Path, table: &TableName) -> Result<()> {
    let dir = layout::table_dir(root, table);
    for region in region_dirs(fs, &dir)? {
        archive_region_dir(fs, root, table, region.name())?;
    }
    // While the table's directory exists, a start continues here.
    archive_mob_table(fs, root, table)?;
    if fs.exists(&dir)? {
        sideline_unknown(fs, root, table, Path::new(""), is_hidden)?;
    }
    fs.delete(&dir)?;
    Ok(())
}

/// Moves all files of a region to the archive and removes its directory. What is no part of a
/// region's layout goes to `.hbck`.
///
/// # Errors
/// `IOException` from the file system.
pub fn archive_region(fs: &dyn FileSystem, root: &Path, region: &RegionInfo) -> Result<()> {
    archive_region_dir(fs, root, region.table(), region.encoded_name())
}

/// Like [`archive_region`], for the region of this encoded name.
fn archive_region_dir(fs: &dyn FileSystem, root: &Path, table: &TableName, region: &str) -> Result<()> {
    let dir = layout::table_dir(root, table).join(region);
    for family in family_dirs(fs, &dir)? {
        archive_files(fs, root, table, &Path::new(region).join(family.name()))?;
    }
    if fs.exists(&dir)? {
        sideline_unknown(fs, root, table, Path::new(region), |entry| entry.is_dir || is_hidden(entry))?;
    }
    fs.delete(&dir)?;
    Ok(())
}

/// Moves all files of one family of a region to the archive and removes its directory.
/// Subdirectories go to `.hbck`.
///
/// # Errors
/// `IOException` from the file system.
pub fn archive_family(fs: &dyn FileSystem, root: &Path, region: &RegionInfo, family: &[u8]) -> Result<()> {
    let below = Path::new(region.encoded_name()).join(&*String::from_utf8_lossy(family));
    archive_files(fs, root, region.table(), &below)
}

/// Like [`archive_family`]; `below` is the family's directory relative to the table's.
fn archive_files(fs: &dyn FileSystem, root: &Path, table: &TableName, below: &Path) -> Result<()> {
    let dir = layout::table_dir(root, table).join(below);
    if !fs.exists(&dir)? {
        return Ok(());
    }
    let archive = layout::archive_table_dir(root, table).join(below);
    for file in fs.list(&dir)?.into_iter().filter(|entry| !entry.is_dir) {
        archive_file(fs, &file.path, &archive, file.modified_ms)?;
    }
    archive_lists(fs, &dir, &archive)?;
    sideline_unknown(fs, root, table, below, |entry| !entry.is_dir)?;
    if fs.delete_empty_dir(&dir)? || !fs.exists(&dir)? {
        return Ok(());
    }
    Err(HBaseError::io(format!("{} cannot be removed: it is not empty", dir.display())))
}

/// Moves the lists of a family's files to the archive, as HBase does, and removes their directory.
fn archive_lists(fs: &dyn FileSystem, family_dir: &Path, archive: &Path) -> Result<()> {
    let dir = family_dir.join(LIST_DIR);
    if !fs.exists(&dir)? {
        return Ok(());
    }
    for file in fs.list(&dir)?.into_iter().filter(|entry| !entry.is_dir) {
        archive_file(fs, &file.path, &archive.join(LIST_DIR), file.modified_ms)?;
    }
    Ok(fs.delete_empty_dir(&dir).map(drop)?)
}

fn is_list_dir(entry: &FileStatus) -> bool {
    entry.is_dir && entry.name() == LIST_DIR
}

fn is_hidden(entry: &FileStatus) -> bool {
    entry.name().starts_with('.')
}

/// Moves the unknown entries of a directory that is about to be removed to `.hbck`, and logs their
/// names. `below` is the directory relative to the table's.
fn sideline_unknown(
    fs: &dyn FileSystem,
    root: &Path,
    table: &TableName,
    below: &Path,
    is_known: impl Fn(&FileStatus) -> bool,
) -> Result<()> {
    let dir = layout::table_dir(root, table).join(below);
    for entry in fs.list(&dir)?.into_iter().filter(|entry| !is_known(entry)) {
        let to = sideline(fs, root, table, &entry.path, &below.join(entry.name()))?;
        tracing::error!(%table, path = %entry.path.display(), to = %to.display(), "not a part of a table's layout: moved aside");
    }
    Ok(())
}
