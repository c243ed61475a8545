//! Checks that the MOB files exist to which a store file refers: option `-i` of `evenkeel hfile`.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_common::mob::{MobReference, is_reference, mob_archive_dir, mob_family_dir};
use evenkeel_common::{CellRef, TableName};
use evenkeel_fs::FileSystem;

use super::text::Key;

/// The names of MOB files that are remembered.
const NAMES_MAX: usize = 1000;

/// See the module. It remembers the files that it has looked for.
pub(super) struct MobChecker {
    fs: Arc<dyn FileSystem>,
    root: PathBuf,
    /// The table of the store file, where reads look, too.
    own: Option<TableName>,
    known: HashMap<(TableName, String), bool>,
}

impl MobChecker {
    /// For a store file, whose path leads to the root directory: `ROOT[/archive]/data/<namespace>/
    /// <table>/<region>/<family>/<file>`. `None` for any other path.
    pub(super) fn for_file(fs: Arc<dyn FileSystem>, file: &Path) -> Option<Self> {
        let data = file.ancestors().nth(5)?;
        let above = data.parent().filter(|_| data.file_name().is_some_and(|name| name == "data"))?;
        let is_archive = above.file_name().is_some_and(|name| name == "archive");
        let root = if is_archive { above.parent()? } else { above };
        let part = |above: usize| file.ancestors().nth(above)?.file_name()?.to_str();
        let own = part(4).zip(part(3)).and_then(|(namespace, table)| TableName::new(namespace, table).ok());
        Some(Self { fs, root: root.to_owned(), own, known: HashMap::new() })
    }

    /// Returns an error line for a cell whose MOB file is missing, in HBase's words.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(super) fn check(&mut self, cell: &CellRef<'_>) -> io::Result<Option<String>> {
        if !is_reference(cell) {
            return Ok(None);
        }
        let Ok(reference) = MobReference::of(cell) else {
            return Ok(Some(format!("ERROR, wrong value format in mob reference cell {}", Key(cell))));
        };
        let Ok(table) = reference.table_name(cell) else {
            return Ok(Some(format!("ERROR, wrong tag format in mob reference cell {}", Key(cell))));
        };
        let family = String::from_utf8_lossy(cell.family());
        let exists = self.exists(table, reference.file, &family)?;
        Ok((!exists).then(|| {
            format!("ERROR, the mob file [{}] is missing referenced by cell {}", reference.file, Key(cell))
        }))
    }

    fn exists(&mut self, table: TableName, file: &str, family: &str) -> io::Result<bool> {
        let key = (table, file.to_owned());
        if let Some(exists) = self.known.get(&key) {
            return Ok(*exists);
        }
        let mut exists = false;
        for table in std::iter::once(&key.0).chain(&self.own) {
            for dir in [mob_family_dir(&self.root, table, family), mob_archive_dir(&self.root, table, family)]
            {
                exists = exists || self.fs.exists(&dir.join(file))?;
            }
        }
        if self.known.len() >= NAMES_MAX {
            self.known.clear();
        }
        self.known.insert(key, exists);
        Ok(exists)
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_common::KeyValue;
    use evenkeel_common::mob::ReferenceWriter;
    use evenkeel_fs::MemoryFileSystem;

    use super::*;

    #[test]
    fn missing_files_are_reported_by_cell() {
        let fs = MemoryFileSystem::new();
        let table: TableName = "ns:t".parse().expect("legal");
        let root = Path::new("/hbase");
        let name = |digit: char| format!("{}20201127{}", "d".repeat(32), digit.to_string().repeat(32));
        let (there, lost, moved) = (name('1'), name('2'), name('3'));
        fs.write_atomically(&mob_archive_dir(root, &table, "f").join(&there), b"x").expect("written");
        // A reference of another table to a file that is in the own one.
        fs.write_atomically(&mob_family_dir(root, &table, "f").join(&moved), b"x").expect("written");
        let file = Path::new("/hbase/archive/data/ns/t/7850876c347591f3fe2a2d4a6c38ce7c/f/00ff");
        let mut checker = MobChecker::for_file(Arc::new(fs), file).expect("a store file");
        let cell = KeyValue::put(b"r", b"f", b"q", 5, &[7; 300]);
        let cell = cell.as_cell();
        assert_eq!(checker.check(&cell).expect("looked"), None);
        let mut writer = ReferenceWriter::new(&table).expect("short");
        let there = KeyValue::copy_of(&writer.reference(&cell, &there).expect("fits"));
        assert_eq!(checker.check(&there.as_cell()).expect("looked"), None);
        let mut of_other = ReferenceWriter::new(&"other".parse().expect("legal")).expect("short");
        let moved = KeyValue::copy_of(&of_other.reference(&cell, &moved).expect("fits"));
        assert_eq!(checker.check(&moved.as_cell()).expect("looked"), None);
        let reference = KeyValue::copy_of(&writer.reference(&cell, &lost).expect("fits"));
        for _ in 0..2 {
            let error = checker.check(&reference.as_cell()).expect("looked").expect("missing");
            let expected = format!("ERROR, the mob file [{lost}] is missing referenced by cell r/f:q");
            assert!(error.starts_with(&expected), "{error}");
        }
        assert!(MobChecker::for_file(Arc::new(MemoryFileSystem::new()), Path::new("/tmp/00ff")).is_none());
    }
}
