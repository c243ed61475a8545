//! Truncates one region: its cells are removed, its name and its boundaries stay.
//!
//! 1. The region is closed. The close flushes it, so all its cells are in store files.
//! 2. Each family gets a file without cells ([`Region::write_empty_files`]). Its sequence id makes
//!    a later replay skip the edits that logs still hold, also one by stock HBase.
//! 3. A *truncation record* of the files of step 1 is written. This is the commit point.
//! 4. These files are removed from the lists of stores that read one, and archived, and the record
//!    is deleted.
//! 5. The region is opened and served again.
//!
//! ```text
//! <table dir>/.tabledesc/.truncate.<encoded name>      text, a line each:
//!   file <family>/<file name>
//!   end
//! ```
//! After a crash the next start archives the files of a complete record ([`finish_all`]); so does
//! the offline compaction, which would otherwise copy their cells. The record names files and not
//! the region, so it cannot remove cells that are written after step 5. It is deleted before the
//! region is served and before any other change of the table, so that none sees files that are
//! archived in part. If the record cannot be written, it is deleted before the region is served
//! again, because it may exist nonetheless.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_block_cache::FileId;
use evenkeel_common::{ErrorKind, HBaseError, RegionInfo, Result, TableDescriptor, TableName};
use evenkeel_fs::FileSystem;
use evenkeel_region::archive::archive_file;
use evenkeel_region::layout;
use evenkeel_region::region::Region;
use evenkeel_region::store_file_tracker::{self, TrackerKind, TrackerSettings};

use crate::descriptors::DESCRIPTOR_DIR;
use crate::meta::TableState;
use crate::replicas::check_primary;
use crate::tables::Nonce;
use crate::{Master, descriptors, is_built_in, reconcile};

const PREFIX: &str = ".truncate.";
const FILE: &str = "file ";
const END: &str = "end";
/// The largest record that is read: more than a hundred thousand files.
const RECORD_BYTES_MAX: u64 = 64 << 20;

impl Master {
    /// Removes all cells of a region.
    ///
    /// # Errors
    /// Returns `TableNotFoundException`, `TableNotEnabledException`, or `DoNotRetryIOException` for
    /// a table that the master itself uses. The procedure fails with `UnknownRegionException` or
    /// `DoNotRetryRegionException` if the region is not served, and with errors of the close and of
    /// the file system. The region is then unchanged, unless the process ends before it has deleted
    /// a record that it could not write: then the region may be truncated.
    pub fn truncate_region(self: &Arc<Self>, info: RegionInfo, nonce: Nonce) -> Result<u64> {
        if let Some(id) = self.procedures.find(nonce) {
            return Ok(id);
        }
        let table = info.table().clone();
        if is_built_in(&table) {
            return Err(HBaseError::do_not_retry(format!("the region of {table} must be served")));
        }
        let message =
            "Can't truncate replicas directly. Replicas are auto-truncated when their primary is truncated.";
        check_primary(&info, ErrorKind::IllegalArgument, message)?;
        if self.table(&table)?.state != TableState::Enabled {
            return Err(HBaseError::new(ErrorKind::TableNotEnabled, table.to_string()));
        }
        let (master, encoded) = (Arc::clone(self), info.encoded_name().to_owned());
        self.procedures.submit("TruncateRegionProcedure", nonce, Some(&table.clone()), move || {
            let _lock = master.lock_table(&table)?;
            master.online_in(&table, &encoded)?;
            master.take_recovery_snapshot(&table)?;
            master.truncate_region_now(&master.online_in(&table, &encoded)?)?;
            Ok(Vec::new())
        })
    }

    /// Returns a served region of a table, or the error that HBase has for one that is not served
    /// (`AbstractStateMachineTableProcedure.checkOnline`).
    fn online_in(&self, table: &TableName, encoded: &str) -> Result<Arc<Region>> {
        if let Some(region) = self.parts.regionserver.regions().find(encoded)
            && region.info().table() == table
        {
            return Ok(region);
        }
        let known = self.parts.meta.regions(Some(table))?;
        let Some(region) = known.into_iter().find(|region| region.info.encoded_name() == encoded) else {
            let message = format!("No RegionState found for {encoded}");
            return Err(HBaseError::new(ErrorKind::UnknownRegion, message));
        };
        let state = if region.info.is_split_parent() { "SPLIT" } else { &region.state };
        let message = format!("{encoded} is not OPEN; state={state}");
        Err(HBaseError::new(ErrorKind::DoNotRetryRegion, message))
    }

    fn truncate_region_now(&self, region: &Arc<Region>) -> Result<()> {
        let (info, table) = (region.info().clone(), Arc::clone(region.table()));
        let name = info.table();
        let record = record_path(&self.table_dir(name), info.encoded_name());
        let closed = self.close_regions(std::iter::once(&info))?;
        let files = store_files(self.fs(), &self.region_dir(&info))?;
        region.write_empty_files()?;
        let closed = closed.with_record(record.clone());
        write_record(self.fs(), &record, &files)?;
        closed.commit();
        tracing::info!(region = %info.name_text(), files = files.len(), "region truncated");
        let encoded = info.encoded_name().to_owned();
        self.run_or_defer(name, "files of a truncated region are archived", {
            let name = name.clone();
            move |master| {
                master.evict_files(&files);
                archive_files(master.fs(), master.root(), &name, &encoded, &files)?;
                master.fs().delete(&record)?;
                master.refresh_replicas(&name);
                Ok(())
            }
        });
        self.serve_truncated(&info, &table).unwrap_or_else(|error| {
            tracing::warn!(region = %info.name_text(), %error, "a truncated region is not served yet; its open will be retried");
            self.wake_assignment();
        });
        Ok(())
    }

    /// Opens and serves the region, unless its files are not archived yet.
    fn serve_truncated(&self, info: &RegionInfo, table: &Arc<TableDescriptor>) -> Result<()> {
        self.run_deferred(info.table())?;
        let opened = self.open_regions(table, vec![info.clone()])?;
        self.parts.meta.commit(opened.changes())?;
        drop(opened.serve());
        Ok(())
    }

    /// Evicts the blocks of store files from the block cache. Other regions still read the files
    /// that references stand for.
    fn evict_files(&self, files: &[PathBuf]) {
        let cache = &self.parts.region_env.stores.cache;
        let names = files.iter().filter_map(|file| file.file_name()?.to_str());
        for name in names.filter(|name| !reconcile::is_reference(name)) {
            cache.evict_file(FileId::of_name(name));
        }
    }
}

/// Archives the files of every complete record of a table. An incomplete record was never written:
/// it is logged and kept.
///
/// # Errors
/// `IOException` from the file system.
pub fn finish_all(fs: &dyn FileSystem, root: &Path, table: &TableName) -> Result<()> {
    let dir = layout::table_dir(root, table).join(DESCRIPTOR_DIR);
    if !fs.exists(&dir)? {
        return Ok(());
    }
    for record in fs.list(&dir)? {
        let Some(encoded) =
            record.name().strip_prefix(PREFIX).filter(|name| reconcile::is_encoded_name(name))
        else {
            continue;
        };
        let Some(files) = parse(&fs.read_all(&record.path, RECORD_BYTES_MAX)?) else {
            tracing::error!(record = %record.path.display(), "the record of a truncated region cannot be read");
            continue;
        };
        tracing::warn!(%table, region = encoded, files = files.len(), "the truncation of a region was interrupted; it is completed");
        archive_files(fs, root, table, encoded, &files)?;
        fs.delete(&record.path)?;
    }
    Ok(())
}

fn record_path(table_dir: &Path, encoded: &str) -> PathBuf {
    table_dir.join(DESCRIPTOR_DIR).join(format!("{PREFIX}{encoded}"))
}

/// Returns the files in a region's family directories, as `<family>/<file name>`. Names that are
/// not text are not those of store files.
fn store_files(fs: &dyn FileSystem, region_dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for family in reconcile::family_dirs(fs, region_dir)? {
        let listed = fs.list(&family.path)?.into_iter().filter(|file| !file.is_dir);
        let below = listed.map(|file| Path::new(family.name()).join(file.name()));
        files.extend(below.filter(|file| file.to_str().is_some_and(is_legal)));
    }
    Ok(files)
}

fn write_record(fs: &dyn FileSystem, record: &Path, files: &[PathBuf]) -> Result<()> {
    let lines = files.iter().map(|file| format!("{FILE}{}\n", file.display()));
    let text = lines.collect::<String>() + END;
    if text.len() as u64 > RECORD_BYTES_MAX {
        return Err(HBaseError::do_not_retry(format!(
            "the region has too many store files: {}",
            files.len()
        )));
    }
    Ok(fs.write_atomically(record, text.as_bytes())?)
}

/// Parses a record; `None` if it is incomplete or names anything but files of families.
fn parse(record: &[u8]) -> Option<Vec<PathBuf>> {
    let text = std::str::from_utf8(record).ok()?.strip_suffix(END)?;
    let file = |line: &str| line.strip_prefix(FILE).filter(|file| is_legal(file)).map(PathBuf::from);
    text.lines().map(file).collect()
}

/// Returns true for `<family>/<file name>`, none of them hidden.
fn is_legal(file: &str) -> bool {
    let is_name =
        |name: &str| !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\n', '\r']);
    file.split_once('/').is_some_and(|(family, name)| is_name(family) && is_name(name))
}

fn archive_files(
    fs: &dyn FileSystem,
    root: &Path,
    table: &TableName,
    encoded: &str,
    files: &[PathBuf],
) -> Result<()> {
    let region = layout::table_dir(root, table).join(encoded);
    let archive = layout::archive_table_dir(root, table).join(encoded);
    forget_files(fs, root, table, (region.as_path(), files))?;
    for file in files {
        let path = region.join(file);
        if !fs.exists(&path)? {
            continue;
        }
        let dir = file.parent().map_or_else(|| archive.clone(), |family| archive.join(family));
        archive_file(fs, &path, &dir, fs.status(&path)?.modified_ms)?;
    }
    Ok(())
}

/// Removes files of a region from the lists of its stores. A store that reads no list may have one
/// that is out of date or damaged: it stays.
fn forget_files(
    fs: &dyn FileSystem,
    root: &Path,
    table: &TableName,
    (region, files): (&Path, &[PathBuf]),
) -> Result<()> {
    let descriptor = descriptors::read_or_damage(fs, &layout::table_dir(root, table))?.ok().flatten();
    let mut by_family: BTreeMap<&Path, BTreeSet<&str>> = BTreeMap::new();
    for file in files {
        if let (Some(family), Some(name)) = (file.parent(), file.file_name().and_then(|name| name.to_str())) {
            by_family.entry(family).or_default().insert(name);
        }
    }
    by_family.iter().try_for_each(|(family, names)| {
        let kind = tracker_of(descriptor.as_ref(), family);
        store_file_tracker::forget(fs, &region.join(family), kind, names)
    })
}

/// Returns the tracker of a family, by its directory; FILE if it is unknown, so that a list is
/// changed if there is one.
fn tracker_of(table: Option<&TableDescriptor>, family_dir: &Path) -> TrackerKind {
    let kind = table.and_then(|table| {
        let mut families = table.families();
        let family = families.find(|family| Path::new(&family.name_text()) == family_dir)?;
        TrackerKind::of(&TrackerSettings::of(table, family)).ok()
    });
    kind.unwrap_or(TrackerKind::File)
}

#[cfg(test)]
mod tests {
    use evenkeel_common::ColumnFamilyDescriptor;
    use evenkeel_fs::MemoryFileSystem;
    use evenkeel_region::store_file_tracker::{LIST_DIR, TRACKER_IMPL};

    use super::*;

    const REGION: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn a_start_archives_the_files_of_complete_records_only() {
        let (fs, root) = (MemoryFileSystem::new(), Path::new("/hbase"));
        let table: TableName = "t".parse().expect("legal");
        let region = layout::table_dir(root, &table).join(REGION);
        for file in ["f/00aa", "f/00bb", "g/00cc"] {
            fs.write_atomically(&region.join(file), b"cells").expect("written");
        }
        let record = record_path(&layout::table_dir(root, &table), REGION);
        let left = || {
            let mut left = store_files(&fs, &region).expect("listed");
            left.sort();
            left.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" ")
        };
        for incomplete in
            ["file f/00aa\n", "file ../x/y\nend", "file f/../00aa\nend", "file f\nend", "f/00aa\nend"]
        {
            fs.write_atomically(&record, incomplete.as_bytes()).expect("written");
            finish_all(&fs, root, &table).expect("read");
            assert_eq!(left(), "f/00aa f/00bb g/00cc", "{incomplete}");
            assert!(fs.exists(&record).expect("looked"), "{incomplete}: it is kept");
        }
        write_record(&fs, &record, &["f/00aa".into(), "f/gone".into(), "g/00cc".into()]).expect("written");
        finish_all(&fs, root, &table).expect("archived");
        assert_eq!(left(), "f/00bb");
        assert!(!fs.exists(&record).expect("looked"));
        let archived = layout::archive_table_dir(root, &table).join(REGION);
        assert_eq!(fs.read_all(&archived.join("g/00cc"), 9).expect("there"), b"cells");
    }

    #[test]
    fn a_damaged_list_that_no_store_reads_does_not_prevent_a_truncation() {
        let (fs, root) = (MemoryFileSystem::new(), Path::new("/hbase"));
        let name: TableName = "t".parse().expect("legal");
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
        let dir = layout::table_dir(root, &name);
        let file = dir.join(REGION).join("f/00aa");
        fs.write_atomically(&file, b"cells").expect("written");
        let list = dir.join(REGION).join("f").join(LIST_DIR).join("f1.1");
        fs.write_atomically(&list, b"garbage!").expect("written");
        write_record(&fs, &record_path(&dir, REGION), &["f/00aa".into()]).expect("written");
        let table = TableDescriptor::new(name.clone()).with_family(family);
        descriptors::write(&fs, &dir, &table.clone().with(TRACKER_IMPL, "FILE")).expect("written");
        finish_all(&fs, root, &name).expect_err("its list is damaged");
        assert!(fs.exists(&file).expect("looked"));
        descriptors::write(&fs, &dir, &table.with(TRACKER_IMPL, "DEFAULT")).expect("written");
        finish_all(&fs, root, &name).expect("archived");
        assert!(!fs.exists(&file).expect("looked"));
    }
}
