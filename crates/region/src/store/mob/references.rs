//! The MOB files that a store refers to, for the cleaner.

use std::path::Path;
use std::sync::Arc;

use evenkeel_block_cache::NoCache;
use evenkeel_common::mob::{MobFileRefs, mob_family_dir, mob_region};
use evenkeel_common::{HBaseError, Result, TableName};
use evenkeel_hfile::{HFileReader, OpenOptions, keys};

use super::references_of;
use crate::links;
use crate::store::{Store, StoreFile};

/// The MOB files that the store files of one or more stores refer to.
#[derive(Clone, Debug, Default)]
pub struct MobReferences {
    /// All files that are named.
    pub refs: MobFileRefs,
    /// The first store file that may refer to files that it does not name. While there is one, no
    /// MOB file may be archived.
    pub unknown: Option<String>,
}

impl MobReferences {
    /// Adds the files to which an open store file refers.
    ///
    /// # Errors
    /// `IOException` if its list is malformed.
    pub fn add(&mut self, file: &HFileReader) -> Result<()> {
        if file.file_info(keys::MOB_FILE_REFS).is_some() {
            self.refs.extend(&references_of(file)?);
        } else if may_refer(file) && self.unknown.is_none() {
            self.unknown = Some(file.name().to_owned());
        }
        Ok(())
    }

    /// Opens a store file and adds the files to which it refers.
    ///
    /// # Errors
    /// `FileNotFoundException`, `CorruptHFileException`, and `IOException`.
    pub fn add_path(&mut self, fs: &dyn evenkeel_fs::FileSystem, path: &Path) -> Result<()> {
        let file = HFileReader::open_path(fs, path, Arc::new(NoCache), &OpenOptions::default())?;
        self.add(&file)
    }

    /// Adds those of other stores.
    pub fn extend(&mut self, other: &Self) {
        self.refs.extend(&other.refs);
        if self.unknown.is_none() {
            self.unknown.clone_from(&other.unknown);
        }
    }
}

/// Returns true if a file has no list and may have references: it has cells, some with tags. Its
/// writer was a client or HBase, which writes lists since 2.5, and only for families with MOB
/// files.
pub(super) fn may_refer(file: &HFileReader) -> bool {
    let has_list = file.file_info(keys::MOB_FILE_REFS).is_some();
    !has_list
        && file.entry_count() > 0
        && file.file_infos().get_i32(keys::MAX_TAGS_LEN).is_some_and(|bytes| bytes > 0)
}

impl Store {
    /// Returns the MOB files to which the store refers: those of its files, and those of replaced
    /// files that a scanner may still read. Files that are [pending](Store::is_mob_file_pending)
    /// are not among them.
    ///
    /// # Errors
    /// `IOException` if the list of a file is malformed.
    pub fn mob_references(&self) -> Result<MobReferences> {
        let mut references = MobReferences::default();
        // The state first: a file is among the replaced ones before it leaves the state.
        let state = self.state.load_full();
        let replaced: Vec<Arc<StoreFile>> = self.replaced.lock().clone();
        for file in state.files.iter().chain(&replaced) {
            references.add(file.reader())?;
        }
        Ok(references)
    }

    /// Returns true if a MOB file was written here and its store file may still be committed. Ask
    /// before [`Store::mob_references`]: a file that is not pending any more is in the references.
    pub fn is_mob_file_pending(&self, name: &str) -> bool {
        self.mob.is_pending(name)
    }

    /// Refuses a file of a client that refers to MOB files of another table, whose cleaner does not
    /// know of it, unless this table has links to them.
    ///
    /// # Errors
    /// `DoNotRetryIOException` for such a file, or one whose list is malformed, and `IOException`.
    pub(in crate::store) fn check_bulk_references(&self, file: &HFileReader) -> Result<()> {
        let refs =
            references_of(file).map_err(|error| HBaseError::do_not_retry(error.message().to_owned()))?;
        let own = self.region.table().to_string();
        for (table, name) in refs.iter().filter(|(table, _)| *table != own) {
            let table: TableName = table.parse()?;
            let link = links::link_to(&table, mob_region(&table).encoded_name(), name);
            let dir = mob_family_dir(&self.env.root, self.region.table(), &self.family.name_text());
            if !self.env.fs.exists(&dir.join(link.name()))? {
                return Err(HBaseError::do_not_retry(format!(
                    "{}: its values are in the MOB file {name} of the table {table}, which may be deleted at any time",
                    file.name()
                )));
            }
        }
        Ok(())
    }
}
