//! [`MobReader`]: finds the cell that a reference stands for (`HMobStore.resolve`).

use std::cmp::Ordering;
use std::path::PathBuf;
use std::sync::Arc;

use evenkeel_block_cache::BlockCache;
use evenkeel_common::mob::{MobReference, mob_archive_dir, mob_family_dir};
use evenkeel_common::{
    CellRef, ColumnFamilyDescriptor, ErrorKind, HBaseError, Result, TableName, TryError, TryResult, Wait,
};
use evenkeel_fs::FileSystem;
use evenkeel_hfile::{HFileReader, HFileScanner, OpenOptions, ScanOptions};

use super::MobFileCache;
use crate::operations::Scan;
use crate::scanner::{CellSource, MobCell, MobResolver};
use crate::store::StoreEnv;

/// Reads MOB files for one store. See the module.
#[derive(Debug)]
pub(in crate::store) struct MobReader {
    fs: Arc<dyn FileSystem>,
    root: PathBuf,
    blocks: Arc<dyn BlockCache>,
    files: Arc<MobFileCache>,
    family: String,
    table: TableName,
    options: OpenOptions,
}

/// The outcome of looking for a reference's cell.
pub(in crate::store) enum MobLookup<T = Box<HFileScanner>> {
    /// A cursor at the cell.
    Found(T),
    /// The reference names no file or no table.
    Malformed,
    /// The file, or its cell, does not exist. The error is that of a read.
    Missing(HBaseError),
}

impl MobReader {
    pub(super) fn new(env: &StoreEnv, family: &ColumnFamilyDescriptor, table: &TableName) -> Self {
        Self {
            fs: Arc::clone(&env.fs),
            root: env.root.clone(),
            blocks: Arc::clone(&env.cache),
            files: Arc::clone(&env.mob),
            family: family.name_text(),
            table: table.clone(),
            options: OpenOptions { in_memory: family.in_memory(), ..OpenOptions::default() },
        }
    }

    /// The open files of the server.
    pub(super) fn files(&self) -> &MobFileCache {
        &self.files
    }

    /// Finds the cell of a reference.
    ///
    /// # Errors
    /// `CorruptHFileException` and `IOException` if a file cannot be read; `WouldWait`.
    pub(in crate::store) fn find(
        &self,
        reference: &CellRef<'_>,
        options: ScanOptions,
    ) -> TryResult<MobLookup> {
        let Ok(parsed) = MobReference::of(reference) else { return Ok(MobLookup::Malformed) };
        let Ok(table) = parsed.table_name(reference) else { return Ok(MobLookup::Malformed) };
        let locations = self.locations(&table, parsed.file);
        for path in &locations {
            match self.find_in(path, reference, options) {
                Ok(found) => return Ok(found),
                Err(TryError::Failed(error)) => {
                    self.files.close(path);
                    if error.kind() != ErrorKind::FileNotFound {
                        return Err(error.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(MobLookup::Missing(lost_file(parsed.file, &locations)))
    }

    /// Returns a scanner of a MOB file for a compaction. A file that is not open is opened for it
    /// alone. An error is that of a read if the file is in none of its places.
    ///
    /// # Errors
    /// `CorruptHFileException` and `IOException` if the file cannot be opened.
    pub(super) fn scanner(
        &self,
        table: &TableName,
        file: &str,
    ) -> Result<std::result::Result<HFileScanner, HBaseError>> {
        let locations = self.locations(table, file);
        for path in &locations {
            let reader = match self.files.get(path).map_or_else(|| self.open(path), Ok) {
                Ok(reader) => reader,
                Err(error) if error.kind() == ErrorKind::FileNotFound => continue,
                Err(error) => return Err(error),
            };
            return Ok(Ok(reader.scanner(COMPACTION)));
        }
        Ok(Err(lost_file(file, &locations)))
    }

    /// Closes a MOB file wherever it is.
    pub(super) fn close(&self, table: &TableName, file: &str) {
        self.locations(table, file).iter().for_each(|path| self.files.close(path));
    }

    /// Where a MOB file may be, in lookup order: a file moves from the first directory of a table
    /// to its second one.
    pub(super) fn locations(&self, table: &TableName, file: &str) -> Vec<PathBuf> {
        let own = (*table != self.table).then_some(&self.table);
        let tables = std::iter::once(table).chain(own);
        let dirs = |table: &TableName| {
            let family = &self.family;
            [mob_family_dir(&self.root, table, family), mob_archive_dir(&self.root, table, family)]
        };
        tables.flat_map(dirs).map(|dir| dir.join(file)).collect()
    }

    fn find_in(
        &self,
        path: &std::path::Path,
        reference: &CellRef<'_>,
        options: ScanOptions,
    ) -> TryResult<MobLookup> {
        let reader = self.files.open(path, options.wait, || self.open(path))?;
        let mut scanner = reader.scanner(options);
        match seek_cell(&mut scanner, reference)? {
            true => Ok(MobLookup::Found(Box::new(scanner))),
            false => Ok(MobLookup::Missing(lost_cell(reference, path))),
        }
    }

    fn open(&self, path: &std::path::Path) -> Result<Arc<HFileReader>> {
        HFileReader::open_path(&*self.fs, path, Arc::clone(&self.blocks), &self.options)
    }
}

/// The error of a read whose MOB file is in none of its places.
fn lost_file(file: &str, locations: &[PathBuf]) -> HBaseError {
    HBaseError::do_not_retry(format!(
        "java.io.FileNotFoundException: the MOB file {file} could not be found in the locations {locations:?}"
    ))
}

/// The error of a read whose MOB file does not have its cell.
pub(super) fn lost_cell(reference: &CellRef<'_>, path: &std::path::Path) -> HBaseError {
    HBaseError::do_not_retry(format!("the MOB file {} has no cell {reference:?}", path.display()))
}

/// Moves to the cell with the reference's key and sequence id; if there is none, to the first one
/// of the key. Returns false if there is no cell of the key. A scanner before the cell does not
/// read its block again.
pub(super) fn seek_cell(scanner: &mut HFileScanner, reference: &CellRef<'_>) -> TryResult<bool> {
    let first = reference.with_seq_id(u64::MAX);
    let order = scanner.reader().comparator();
    let is_before = scanner.cell().is_some_and(|cell| order.compare(&cell, &first) == Ordering::Less);
    let mut versions = 0;
    if !(if is_before { scanner.reseek(&first)? } else { scanner.seek(&first)? }) {
        return Ok(false);
    }
    while let Some(cell) = scanner.cell().filter(|cell| cell.key() == reference.key()) {
        if cell.seq_id() <= reference.seq_id() {
            if cell.seq_id() == reference.seq_id() || versions == 0 {
                return Ok(true);
            }
            break;
        }
        versions += 1;
        scanner.next()?;
    }
    if versions == 0 {
        return Ok(false);
    }
    scanner.seek(&first)
}

/// The reader's options of one scan, and its current cell.
pub(in crate::store) struct MobScan {
    reader: Arc<MobReader>,
    options: ScanOptions,
    empty_on_miss: bool,
    current: Option<Box<HFileScanner>>,
}

impl MobScan {
    /// For one scan. Blocks of MOB files are cached only if the scan asks for that.
    pub(in crate::store) fn new(reader: &Arc<MobReader>, scan: &Scan) -> Self {
        let options = ScanOptions {
            cache_blocks: scan.mob.cache_blocks,
            pread: true,
            is_compaction: false,
            wait: scan.wait,
        };
        let empty_on_miss = scan.mob.empty_on_miss;
        Self { reader: Arc::clone(reader), options, empty_on_miss, current: None }
    }
}

impl MobResolver for MobScan {
    fn resolve<'a>(&'a mut self, reference: &CellRef<'a>) -> TryResult<MobCell<'a>> {
        let metrics = self.reader.files().metrics();
        self.current = match self.reader.find(reference, self.options) {
            Ok(MobLookup::Found(scanner)) => Some(scanner),
            Ok(MobLookup::Malformed) => None,
            Ok(MobLookup::Missing(_)) if self.empty_on_miss => None,
            Err(TryError::Failed(error)) if self.empty_on_miss && error.kind() == ErrorKind::CorruptHFile => {
                None
            }
            Ok(MobLookup::Missing(error)) => return Err(error.into()),
            Err(error) => return Err(error),
        };
        let found = self.current.as_ref().and_then(|scanner| Some((scanner, scanner.cell()?)));
        let Some((scanner, cell)) = found else {
            metrics.count_scanned(0);
            let cell = reference.with_value(&[]);
            return Ok(MobCell { cell, shared_value: None, source: CellSource::default() });
        };
        metrics.count_scanned(cell.value().len() as u64);
        let source = CellSource::of_block(scanner.reader().encoding());
        let cell = cell.with_seq_id(reference.seq_id());
        Ok(MobCell { cell, shared_value: scanner.share_value(), source })
    }

    fn release(&mut self) {
        self.current = None;
    }
}

/// The options of compactions, which may wait and cache nothing.
pub(super) const COMPACTION: ScanOptions =
    ScanOptions { cache_blocks: false, pread: true, is_compaction: true, wait: Wait::Allowed };
