//! Directories and hbase:meta brought together at start, and files moved to the archive.
//!
//! hbase:meta decides (see [`super`]): a table or region directory that it does not speak of is what a change prepared
//! or had not yet removed when the process died. It is moved to the archive, never deleted, and the log says so.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use evenkeel_common::{HBaseError, RegionInfo, Result, TableName};
use evenkeel_fs::{FileStatus, FileSystem};
use evenkeel_region::archive::archive_file;
use evenkeel_region::layout;

use super::meta::{MetaChange, MetaTable, TableState};
use super::{Table, descriptors};

/// The tables that hbase:meta speaks of, with what a dead process left behind put right. With `meta_is_whole` false, part
/// of hbase:meta's log was lost: what it does not speak of stays where it is, for a person to judge.
///
/// # Errors
/// What the file system says, or `IOException` when a table's descriptor is missing.
pub fn reconcile(
    fs: &dyn FileSystem,
    root: &Path,
    meta: &MetaTable,
    meta_is_whole: bool,
) -> Result<BTreeMap<TableName, Table>> {
    let mut tables = BTreeMap::new();
    let regions: HashSet<String> =
        meta.regions(None)?.iter().map(|region| region.info.encoded_name().to_owned()).collect();
    for (name, state) in meta.table_states()? {
        descriptors::settle(fs, &layout::table_dir(root, &name), |region| regions.contains(region))?;
        let descriptor = descriptors::read(fs, &layout::table_dir(root, &name))?
            .ok_or_else(|| HBaseError::io(format!("table {name} is in hbase:meta and has no descriptor")))?;
        // A change of state that had begun is taken as made.
        let state = match state {
            TableState::Disabling => TableState::Disabled,
            TableState::Enabling => TableState::Enabled,
            settled => settled,
        };
        tables.insert(name, Table { descriptor: Arc::new(descriptor), state });
    }
    settle(meta, &tables)?;
    if meta_is_whole {
        archive_unknown(fs, root, meta, &tables)?;
    } else {
        tracing::error!(
            "a log was damaged: directories that hbase:meta does not speak of are left as they are"
        );
    }
    Ok(tables)
}

/// Makes hbase:meta tell of every table what [`reconcile`] took its state to be.
fn settle(meta: &MetaTable, tables: &BTreeMap<TableName, Table>) -> Result<()> {
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

fn archive_unknown(
    fs: &dyn FileSystem,
    root: &Path,
    meta: &MetaTable,
    tables: &BTreeMap<TableName, Table>,
) -> Result<()> {
    let mut known: HashSet<String> = HashSet::new();
    for region in meta.regions(None)? {
        known.insert(region.info.encoded_name().to_owned());
        known.extend(region.merge_parents.iter().map(|parent| parent.encoded_name().to_owned()));
    }
    for (name, dir) in table_dirs(fs, root)?.into_iter().filter(|(name, _)| !name.is_meta()) {
        match tables.get(&name) {
            None => {
                tracing::warn!(table = %name, "not in hbase:meta: left by a change that was cut short; archived");
                archive_table(fs, root, &name)?;
            }
            Some(table) => archive_unknown_regions(fs, root, &dir, table, &known)?,
        }
    }
    Ok(())
}

fn archive_unknown_regions(
    fs: &dyn FileSystem,
    root: &Path,
    table_dir: &Path,
    table: &Table,
    known: &HashSet<String>,
) -> Result<()> {
    let name = table.descriptor.name();
    for region in region_dirs(fs, table_dir)? {
        if !known.contains(region.name()) {
            tracing::warn!(table = %name, region = region.name(), "region not in hbase:meta; archived");
            archive_region_dir(fs, &region.path, &layout::archive_table_dir(root, name).join(region.name()))?;
            continue;
        }
        for family in family_dirs(fs, &region.path)? {
            if table.descriptor.family(family.name().as_bytes()).is_none() {
                tracing::warn!(table = %name, region = region.name(), family = family.name(), "family not in the table; archived");
                let target = layout::archive_table_dir(root, name).join(region.name()).join(family.name());
                archive_files(fs, &family.path, &target)?;
            }
        }
    }
    Ok(())
}

/// Whether a region's directory holds files that stand for those of another region.
///
/// # Errors
/// What the file system says.
pub fn has_references(fs: &dyn FileSystem, root: &Path, region: &RegionInfo) -> Result<bool> {
    for family in family_dirs(fs, &layout::region_dir(root, region))? {
        if fs.list(&family.path)?.iter().any(|file| is_reference(file.name())) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `<file>.<encoded name of the region it is in>`.
fn is_reference(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, region)| is_encoded_name(region))
}

fn is_encoded_name(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Every table directory below the root.
///
/// # Errors
/// What the file system says.
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

/// Every region directory of a table.
///
/// # Errors
/// What the file system says.
pub fn region_dirs(fs: &dyn FileSystem, table_dir: &Path) -> Result<Vec<FileStatus>> {
    let mut regions = directories(fs, table_dir)?;
    regions.retain(|dir| is_encoded_name(dir.name()));
    Ok(regions)
}

fn family_dirs(fs: &dyn FileSystem, region_dir: &Path) -> Result<Vec<FileStatus>> {
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

/// Moves all files of a table to the archive and removes its directory.
///
/// # Errors
/// What the file system says.
pub fn archive_table(fs: &dyn FileSystem, root: &Path, table: &TableName) -> Result<()> {
    let dir = layout::table_dir(root, table);
    for region in region_dirs(fs, &dir)? {
        archive_region_dir(fs, &region.path, &layout::archive_table_dir(root, table).join(region.name()))?;
    }
    fs.delete(&dir)?;
    Ok(())
}

/// Moves all files of a region to the archive and removes its directory.
///
/// # Errors
/// What the file system says.
pub fn archive_region(fs: &dyn FileSystem, root: &Path, region: &RegionInfo) -> Result<()> {
    archive_region_dir(fs, &layout::region_dir(root, region), &layout::archive_region_dir(root, region))
}

fn archive_region_dir(fs: &dyn FileSystem, dir: &Path, archive: &Path) -> Result<()> {
    for family in family_dirs(fs, dir)? {
        archive_files(fs, &family.path, &archive.join(family.name()))?;
    }
    fs.delete(dir)?;
    Ok(())
}

/// Moves all files of one family of a region to the archive.
///
/// # Errors
/// What the file system says.
pub fn archive_family(fs: &dyn FileSystem, root: &Path, region: &RegionInfo, family: &[u8]) -> Result<()> {
    let name = String::from_utf8_lossy(family).into_owned();
    let archive = layout::archive_region_dir(root, region).join(&name);
    archive_files(fs, &layout::region_dir(root, region).join(&name), &archive)
}

fn archive_files(fs: &dyn FileSystem, dir: &Path, archive: &Path) -> Result<()> {
    if !fs.exists(dir)? {
        return Ok(());
    }
    for file in fs.list(dir)?.into_iter().filter(|f| !f.is_dir) {
        archive_file(fs, &file.path, archive, file.modified_ms)?;
    }
    fs.delete(dir)?;
    Ok(())
}
