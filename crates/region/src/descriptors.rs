//! Table descriptors on disk, as HBase keeps them (`FSTableDescriptors`).
//!
//! ```text
//! <table dir>/.tabledesc/.tableinfo.<sequence, 10 digits>.<length of the file>   PBUF TableSchema
//! ```
//! A change writes the next sequence to `<table dir>/.tmp/`, renames it into place, then deletes
//! older ones. A reader takes the highest sequence, so a crash leaves the table before or after the
//! change.
//!
//! ```text
//! <table dir>/.tabledesc/.pending.<encoded region>   the same; valid after hbase:meta has it
//! ```
//! Restoring a snapshot changes descriptor and regions atomically: the write to hbase:meta commits,
//! and [`commit_pending`] makes the descriptor follow. HBase ignores files with that name.

use std::path::{Path, PathBuf};

use evenkeel_common::descriptor::FAMILY_DEFAULTS;
use evenkeel_common::{ColumnFamilyDescriptor, HBaseError, RegionInfo, Result, TableDescriptor, TableName};
use evenkeel_fs::FileSystem;
use evenkeel_protocol::pb;

/// The directory of descriptors within a table's directory.
pub const DESCRIPTOR_DIR: &str = ".tabledesc";
const PREFIX: &str = ".tableinfo.";
/// The attribute that names a table's store file tracker, and its value for tables of the catalog
/// (`StoreFileTrackerFactory`).
const TRACKER_IMPL: &str = "hbase.store.file-tracker.impl";
const DEFAULT_TRACKER: &str = "DEFAULT";
const PENDING_PREFIX: &str = ".pending.";
/// The maximum bytes of a descriptor that is read.
const DESCRIPTOR_BYTES_MAX: u64 = 64 << 20;

/// Reads a table's descriptor; `None` if the directory has none.
///
/// # Errors
/// `IOException` from the file system, and `IOException` for a file that is not a descriptor.
pub fn read(fs: &dyn FileSystem, table_dir: &Path) -> Result<Option<TableDescriptor>> {
    read_or_damage(fs, table_dir)?.map_err(|Damage(error)| error)
}

/// What a file contains that is not a descriptor. Unlike an error of the file system, another
/// attempt to read it finds the same.
#[derive(Debug)]
pub struct Damage(pub HBaseError);

/// As [`read`], but distinguishes a file that is not a descriptor from an unreadable one.
///
/// # Errors
/// `IOException` from the file system.
pub fn read_or_damage(
    fs: &dyn FileSystem,
    table_dir: &Path,
) -> Result<std::result::Result<Option<TableDescriptor>, Damage>> {
    let Some((_, path)) = newest(fs, table_dir)? else { return Ok(Ok(None)) };
    Ok(read_file(fs, &path)?.map(Some))
}

fn read_file(fs: &dyn FileSystem, path: &Path) -> Result<std::result::Result<TableDescriptor, Damage>> {
    let bytes = fs.read_all(path, DESCRIPTOR_BYTES_MAX)?;
    let schema = evenkeel_protocol::from_magic::<pb::TableSchema>(&bytes);
    let schema =
        schema.map_err(|e| HBaseError::io(format!("{}: not a table descriptor: {e}", path.display())));
    Ok(schema.and_then(|schema| TableDescriptor::try_from(&schema)).map_err(Damage))
}

/// Writes a table's descriptor. The rename commits it.
///
/// # Errors
/// `IOException` from the file system; the older descriptor stays valid then.
pub fn write(fs: &dyn FileSystem, table_dir: &Path, table: &TableDescriptor) -> Result<()> {
    let before = newest(fs, table_dir)?;
    let sequence = before.map_or(1, |(sequence, _)| sequence + 1);
    let bytes = evenkeel_protocol::with_magic(&pb::TableSchema::from(table));
    let path = table_dir.join(DESCRIPTOR_DIR).join(format!("{PREFIX}{sequence:010}.{}", bytes.len()));
    fs.mkdirs(&table_dir.join(DESCRIPTOR_DIR))?;
    fs.write_atomically(&path, &bytes)?;
    if let Err(error) = delete_replaced(fs, table_dir, sequence) {
        // The new descriptor is valid; the next change deletes the older ones, too.
        tracing::warn!(table = %table.name(), %error, "an older table descriptor could not be deleted yet");
    }
    Ok(())
}

/// Deletes older descriptors, and all pending ones, which this change makes obsolete.
fn delete_replaced(fs: &dyn FileSystem, table_dir: &Path, sequence: u64) -> Result<()> {
    let old = all(fs, table_dir)?.into_iter().filter(|(s, _)| *s < sequence).map(|(_, path)| path);
    let mut gone = old.chain(pending(fs, table_dir)?.into_iter().map(|(_, path)| path));
    gone.try_for_each(|path| Ok(fs.delete(&path).map(drop)?))
}

/// Writes a pending descriptor, which becomes valid once hbase:meta has `region`.
///
/// # Errors
/// `IOException` from the file system.
pub fn write_pending(
    fs: &dyn FileSystem,
    table_dir: &Path,
    table: &TableDescriptor,
    region: &RegionInfo,
) -> Result<()> {
    let bytes = evenkeel_protocol::with_magic(&pb::TableSchema::from(table));
    let path = table_dir.join(DESCRIPTOR_DIR).join(format!("{PENDING_PREFIX}{}", region.encoded_name()));
    Ok(fs.write_atomically(&path, &bytes)?)
}

/// Installs the pending descriptor whose region exists, and deletes the others. If it is damaged,
/// all stay as they are.
///
/// # Errors
/// `IOException` from the file system; the next call continues.
pub fn commit_pending(
    fs: &dyn FileSystem,
    table_dir: &Path,
    is_known: impl Fn(&str) -> bool,
) -> Result<std::result::Result<(), Damage>> {
    let pending = pending(fs, table_dir)?;
    if let Some((_, path)) = pending.iter().find(|(region, _)| is_known(region)) {
        match read_file(fs, path)? {
            Ok(descriptor) => write(fs, table_dir, &descriptor)?,
            Err(damage) => return Ok(Err(damage)),
        }
    }
    // A pending descriptor that stayed would be installed again after a later change.
    pending.iter().try_for_each(|(_, path)| fs.delete(path).map(drop))?;
    Ok(Ok(()))
}

/// Returns the pending descriptors, each with the encoded name of its region.
fn pending(fs: &dyn FileSystem, table_dir: &Path) -> Result<Vec<(String, PathBuf)>> {
    let dir = table_dir.join(DESCRIPTOR_DIR);
    if !fs.exists(&dir)? {
        return Ok(Vec::new());
    }
    let region =
        |name: &str| Some(name.strip_prefix(PENDING_PREFIX)?.to_owned()).filter(|r| !r.contains('.'));
    Ok(fs.list(&dir)?.into_iter().filter_map(|f| Some((region(f.name())?, f.path))).collect())
}

fn newest(fs: &dyn FileSystem, table_dir: &Path) -> Result<Option<(u64, PathBuf)>> {
    Ok(all(fs, table_dir)?.into_iter().max())
}

fn all(fs: &dyn FileSystem, table_dir: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let dir = table_dir.join(DESCRIPTOR_DIR);
    if !fs.exists(&dir)? {
        return Ok(Vec::new());
    }
    let files = fs.list(&dir)?;
    Ok(files.into_iter().filter_map(|f| Some((sequence_of(f.name())?, f.path))).collect())
}

/// Returns the sequence in a name; also in names without the length, which HBase wrote before
/// 2.5.3.
fn sequence_of(name: &str) -> Option<u64> {
    let mut parts = name.strip_prefix(PREFIX)?.splitn(2, '.');
    let sequence = parts.next()?.parse().ok()?;
    parts.next().is_none_or(|len| len.parse::<u64>().is_ok()).then_some(sequence)
}

/// A family with every attribute that HBase adds on creation, at its default.
fn family_with_defaults(name: &str) -> Result<ColumnFamilyDescriptor> {
    let family = ColumnFamilyDescriptor::new(name.as_bytes())?;
    Ok(FAMILY_DEFAULTS.iter().fold(family, |family, (key, value)| family.with(key, value)))
}

/// hbase:meta's descriptor (`FSTableDescriptors.createMetaTableDescriptorBuilder`).
///
/// # Errors
/// None in practice: the names are constants.
pub fn meta() -> Result<TableDescriptor> {
    let family = |name| {
        let family = family_with_defaults(name)?.with("IN_MEMORY", "true").with("BLOOMFILTER", "ROWCOL");
        Ok::<_, HBaseError>(family.with("DATA_BLOCK_ENCODING", "ROW_INDEX_V1").with("BLOCKSIZE", "8192"))
    };
    let three = |name| Ok::<_, HBaseError>(family(name)?.with("VERSIONS", "3"));
    let barrier = family("rep_barrier")?.with("VERSIONS", "2147483647").with("BLOCKSIZE", "65536");
    let endpoint = "|org.apache.hadoop.hbase.coprocessor.MultiRowMutationEndpoint|536870911|";
    let table =
        TableDescriptor::new(TableName::meta()).with("IS_META", "true").with("coprocessor$1", endpoint);
    // As `StoreFileTrackerFactory.updateWithTrackerConfigs` does for a new hbase:meta.
    let table = table.with(TRACKER_IMPL, DEFAULT_TRACKER);
    Ok(table.with_family(three("info")?).with_family(three("table")?).with_family(barrier))
}

/// Adds the families that hbase:meta's descriptor lacks, with the attributes of [`meta`]. Returns
/// `None` if it lacks none. HBase 1.x has only `info`; HBase 2 adds `table` and `rep_barrier`
/// (`HMaster.createMissingCFsInMetaDuringUpgrade`).
///
/// # Errors
/// None in practice: the names are constants.
pub fn with_meta_families(found: &TableDescriptor) -> Result<Option<TableDescriptor>> {
    let is_known = |family: &ColumnFamilyDescriptor| found.families().any(|f| f.name() == family.name());
    let whole = meta()?;
    let missing: Vec<_> = whole.families().filter(|family| !is_known(family)).cloned().collect();
    let add = |table: TableDescriptor, family| table.with_family(family);
    Ok((!missing.is_empty()).then(|| missing.into_iter().fold(found.clone(), add)))
}

/// hbase:namespace's descriptor (`TableDescriptorBuilder.NAMESPACE_TABLEDESC`).
///
/// # Errors
/// None in practice: the names are constants.
pub fn namespace() -> Result<TableDescriptor> {
    let family = family_with_defaults("info")?.with("VERSIONS", "10").with("IN_MEMORY", "true");
    let table = TableDescriptor::new(TableName::namespace_table());
    Ok(table.with_family(family.with("BLOCKSIZE", "8192")).with(TRACKER_IMPL, DEFAULT_TRACKER))
}

#[cfg(test)]
mod tests {
    use evenkeel_fs::MemoryFileSystem;

    use super::*;

    #[test]
    fn the_newest_descriptor_is_read_and_older_ones_deleted() {
        let fs = MemoryFileSystem::new();
        let dir = Path::new("/data/default/t");
        assert_eq!(read(&fs, dir).expect("readable"), None);
        let one = TableDescriptor::new("t".parse().expect("legal")).with_family(meta_family("a"));
        let two = one.clone().with_family(meta_family("b"));
        write(&fs, dir, &one).expect("written");
        write(&fs, dir, &two).expect("written");
        assert_eq!(read(&fs, dir).expect("readable"), Some(two));
        let files = fs.list(&dir.join(DESCRIPTOR_DIR)).expect("listed");
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].name(), format!(".tableinfo.0000000002.{}", files[0].len));
    }

    #[test]
    fn a_pending_descriptor_applies_once_its_region_exists() {
        let fs = MemoryFileSystem::new();
        let dir = Path::new("/data/default/t");
        let name: TableName = "t".parse().expect("legal");
        let region = RegionInfo::new(name.clone(), Default::default(), Default::default(), 1);
        let old = TableDescriptor::new(name).with_family(meta_family("a"));
        let new = old.clone().with_family(meta_family("b"));
        write(&fs, dir, &old).expect("written");
        write_pending(&fs, dir, &new, &region).expect("written");
        commit_pending(&fs, dir, |_| false).expect("dropped").expect("whole");
        commit_pending(&fs, dir, |_| true).expect("nothing to do").expect("whole");
        assert_eq!(read(&fs, dir).expect("readable"), Some(old.clone()));
        write_pending(&fs, dir, &new, &region).expect("written");
        commit_pending(&fs, dir, |known| known == region.encoded_name()).expect("settled").expect("whole");
        assert_eq!(read(&fs, dir).expect("readable"), Some(new.clone()));
        write_pending(&fs, dir, &new, &region).expect("written");
        write(&fs, dir, &old).expect("a later change");
        commit_pending(&fs, dir, |_| true).expect("nothing to do").expect("whole");
        assert_eq!(read(&fs, dir).expect("readable"), Some(old));
    }

    fn meta_family(name: &str) -> ColumnFamilyDescriptor {
        family_with_defaults(name).expect("legal")
    }

    #[test]
    fn families_that_hbase_1_lacks_are_added_to_meta() {
        let info = meta_family("info").with("VERSIONS", "10");
        let found = TableDescriptor::new(TableName::meta()).with("IS_META", "true").with_family(info.clone());
        let whole = with_meta_families(&found).expect("made").expect("families were missing");
        let names: Vec<_> = whole.families().map(ColumnFamilyDescriptor::name_text).collect();
        assert_eq!(names, ["info", "rep_barrier", "table"]);
        assert_eq!(whole.families().next(), Some(&info), "a known family stays as it is");
        let made = meta().expect("made");
        assert!(whole.families().skip(1).eq(made.families().skip(1)));
        assert_eq!(with_meta_families(&whole).expect("made"), None);
    }

    #[test]
    fn names_of_all_ages_are_read() {
        assert_eq!(sequence_of(".tableinfo.0000000007.123"), Some(7));
        assert_eq!(sequence_of(".tableinfo.0000000007"), Some(7));
        for bad in [".tableinfo.x", ".tableinfo.0000000007.123.tmp", "tableinfo.1.2"] {
            assert_eq!(sequence_of(bad), None, "{bad}");
        }
    }
}
