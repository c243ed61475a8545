//! Intent records of changes in progress: the regions that a change creates and removes, and the
//! families that it removes.
//!
//! ```text
//! <table dir>/.tabledesc/.change.<32 hex digits>      text, a line each:
//!   region <encoded name>      created or removed by the change
//!   family <name>              removed by it
//!   end
//! ```
//! An intent record is durable before the first directory of a change is created and before its
//! commit point. It is removed when the change is complete. So at a start it explains directories
//! that hbase:meta does not list: a region that an intent record names was prepared or not yet
//! removed by an interrupted change, and goes to the archive. A region that no intent record names
//! is user data ([`super::reconcile`]). An intent record that names only what hbase:meta lists has
//! no effect. HBase ignores files of that name.
//!
//! The truncation of a region has a record of another kind ([`super::regions::truncate`]): it names
//! files, and the region stays.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use evenkeel_common::{RegionInfo, Result};
use evenkeel_fs::FileSystem;

use super::descriptors::DESCRIPTOR_DIR;

const PREFIX: &str = ".change.";
const REGION: &str = "region ";
const FAMILY: &str = "family ";
const END: &str = "end";
/// The largest intent record that is read: more than a million regions.
const INTENT_BYTES_MAX: u64 = 64 << 20;

/// An intent record on disk.
#[derive(Debug)]
#[must_use = "an intent record that is not removed excuses the directories that it names until the next start"]
pub struct ChangeIntent(PathBuf);

/// The union of all intent records of a table.
#[derive(Debug, Default)]
pub struct ChangeIntents {
    /// Encoded names of regions.
    pub regions: HashSet<String>,
    /// Names of families.
    pub families: HashSet<String>,
    paths: Vec<PathBuf>,
}

impl ChangeIntent {
    /// Writes an intent record into a table's directory, and creates the directory if needed.
    ///
    /// # Errors
    /// Returns I/O errors of the file system. There may then be no intent record, or one that names
    /// directories that were never created.
    pub fn write<'a>(
        fs: &dyn FileSystem,
        table_dir: &Path,
        regions: impl IntoIterator<Item = &'a RegionInfo>,
        families: impl IntoIterator<Item = String>,
    ) -> Result<Self> {
        let regions = regions.into_iter().map(|region| format!("{REGION}{}\n", region.encoded_name()));
        let families = families.into_iter().map(|family| format!("{FAMILY}{family}\n"));
        let text = regions.chain(families).collect::<String>() + END;
        let name = format!("{PREFIX}{}", uuid::Uuid::new_v4().simple());
        let path = table_dir.join(DESCRIPTOR_DIR).join(name);
        fs.mkdirs(&table_dir.join(DESCRIPTOR_DIR))?;
        fs.write_atomically(&path, text.as_bytes())?;
        Ok(Self(path))
    }

    /// Removes the record of a finished change. A record that cannot be removed has no effect:
    /// hbase:meta lists the regions that it names, or they no longer exist on disk.
    pub fn remove(self, fs: &dyn FileSystem) {
        if let Err(error) = fs.delete(&self.0) {
            tracing::warn!(intent = %self.0.display(), %error, "the intent record of a finished change could not be removed; the next start removes it");
        }
    }
}

impl ChangeIntents {
    /// Reads every intent record of a table. One that cannot be read explains nothing, and is kept.
    ///
    /// # Errors
    /// `IOException` from listing the directory.
    pub fn read(fs: &dyn FileSystem, table_dir: &Path) -> Result<Self> {
        let (dir, mut intents) = (table_dir.join(DESCRIPTOR_DIR), Self::default());
        if !fs.exists(&dir)? {
            return Ok(intents);
        }
        for file in fs.list(&dir)?.into_iter().filter(|file| is_intent(file.name())) {
            match fs.read_all(&file.path, INTENT_BYTES_MAX) {
                Ok(bytes) if intents.add(&bytes) => intents.paths.push(file.path),
                outcome => {
                    let error = outcome.err();
                    tracing::error!(intent = %file.path.display(), ?error, "the intent record of a change cannot be read");
                }
            }
        }
        Ok(intents)
    }

    /// Adds an intent record; returns false if it is incomplete.
    fn add(&mut self, bytes: &[u8]) -> bool {
        let Some(text) = std::str::from_utf8(bytes).ok().and_then(|text| text.strip_suffix(END)) else {
            return false;
        };
        for line in text.lines() {
            if let Some(region) = line.strip_prefix(REGION) {
                self.regions.insert(region.to_owned());
            } else if let Some(family) = line.strip_prefix(FAMILY) {
                self.families.insert(family.to_owned());
            }
        }
        true
    }

    /// Removes the intent records, once the directories that they name are archived.
    ///
    /// # Errors
    /// `IOException` from the file system.
    pub fn remove(&self, fs: &dyn FileSystem) -> Result<()> {
        self.paths.iter().try_for_each(|path| Ok(fs.delete(path).map(drop)?))
    }
}

/// Returns true for a complete name; temporary files have other names.
fn is_intent(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|id| id.len() == 32)
}

#[cfg(test)]
mod tests {
    use evenkeel_fs::MemoryFileSystem;

    use super::*;

    #[test]
    fn change_intents_accumulate_until_removed() {
        let (fs, dir) = (MemoryFileSystem::new(), Path::new("/data/default/t"));
        let region =
            |id| RegionInfo::new("t".parse().expect("legal"), Default::default(), Default::default(), id);
        let first = ChangeIntent::write(&fs, dir, [&region(1)], ["f".to_owned()]).expect("written");
        let second = ChangeIntent::write(&fs, dir, [&region(2)], []).expect("written");
        fs.write_atomically(&dir.join(".tabledesc/.change.0123456789abcdef0123456789abcdef"), b"region x")
            .expect("written");
        let intents = ChangeIntents::read(&fs, dir).expect("read");
        let names = [1, 2].map(|id| region(id).encoded_name().to_owned());
        assert_eq!(
            (intents.regions, intents.families.len()),
            (names.into(), 1),
            "not those of an intent record cut short"
        );
        first.remove(&fs);
        assert!(ChangeIntents::read(&fs, dir).expect("read").families.is_empty());
        ChangeIntents::read(&fs, dir).expect("read").remove(&fs).expect("removed");
        assert!(ChangeIntents::read(&fs, dir).expect("read").regions.is_empty());
        second.remove(&fs);
    }
}
