//! [`MobSources`]: the MOB files that a compaction reads.
//!
//! References come in the order of their keys, so each MOB file is read from its start to its end.
//! The scanners of the files that were read last stay at their cells: a block is read once for all
//! values in it that follow each other.

use evenkeel_common::{CellRef, ErrorKind, Result, TableName, TryError, mob::MobReference};
use evenkeel_hfile::HFileScanner;

use super::MobReader;
use super::reader::{COMPACTION, MobLookup, lost_cell, seek_cell};

/// Files that stay open.
const FILES_MAX: usize = 32;
/// A scanner keeps its block if it is not larger, in bytes.
const BLOCK_BYTES_MAX: u64 = 1 << 20;

/// See the module. The file that was used last is the last one.
#[derive(Default)]
pub(super) struct MobSources {
    files: Vec<MobSource>,
}

/// A file, and a scanner of it.
pub(super) struct MobSource {
    table: TableName,
    name: String,
    pub scanner: HFileScanner,
}

impl MobSources {
    /// Returns the file of a reference, with its scanner at the cell. [`MobSources::put_back`]
    /// keeps it for the next references.
    ///
    /// # Errors
    /// `CorruptHFileException` and `IOException` if it cannot be read.
    pub(super) fn find(&mut self, reader: &MobReader, cell: &CellRef<'_>) -> Result<MobLookup<MobSource>> {
        let Ok(parsed) = MobReference::of(cell) else { return Ok(MobLookup::Malformed) };
        let Ok(table) = parsed.table_name(cell) else { return Ok(MobLookup::Malformed) };
        let is_wanted = |source: &MobSource| source.name == parsed.file && source.table == table;
        if let Some(at) = self.files.iter().rposition(is_wanted) {
            match seek(self.files.remove(at), cell) {
                Err(error) if error.kind() == ErrorKind::FileNotFound => reader.close(&table, parsed.file),
                found => return found,
            }
        }
        match reader.scanner(&table, parsed.file)? {
            Ok(scanner) => seek(MobSource { table, name: parsed.file.to_owned(), scanner }, cell),
            Err(lost) => Ok(MobLookup::Missing(lost)),
        }
    }

    /// Keeps a file, and closes the one that was used longest ago if there are too many.
    pub(super) fn put_back(&mut self, mut source: MobSource) {
        if source.scanner.held_bytes() > BLOCK_BYTES_MAX {
            source.scanner = source.scanner.reader().scanner(COMPACTION);
        }
        if self.files.len() >= FILES_MAX {
            self.files.remove(0);
        }
        self.files.push(source);
    }
}

fn seek(mut source: MobSource, cell: &CellRef<'_>) -> Result<MobLookup<MobSource>> {
    match seek_cell(&mut source.scanner, cell).map_err(TryError::into_failure)? {
        true => Ok(MobLookup::Found(source)),
        false => Ok(MobLookup::Missing(lost_cell(cell, std::path::Path::new(&source.name)))),
    }
}
