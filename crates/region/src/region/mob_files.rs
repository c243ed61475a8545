//! Archives MOB files that this region has written and that nothing refers to
//! (`RSMobFileCleanerChore`).
//!
//! A region that is served was neither split nor merged, so only its own store files may refer to
//! the files that it wrote, and those of clones, which keep links. Files of other regions are left
//! to the master.

use std::path::Path;
use std::sync::Arc;

use evenkeel_common::mob::{MobFileName, mob_archive_dir, mob_family_dir};
use evenkeel_common::{HBaseError, Result};
use evenkeel_fs::FileSystem;

use super::Region;
use crate::archive::archive_file;
use crate::links;
use crate::store::Store;

impl Region {
    /// Archives MOB files that are older than `min_age_ms`, by their modification, and without
    /// references. Returns their number. A secondary replica has none.
    ///
    /// # Errors
    /// `IOException` from the file system, and if a store file may have references that it does
    /// not name; nothing of that family is archived then.
    pub fn archive_unreferenced_mob_files(&self, min_age_ms: i64) -> Result<usize> {
        if !self.info.is_primary() {
            return Ok(0);
        }
        let mut archived = 0;
        for store in self.stores.iter().filter(|store| store.family().is_mob()) {
            archived += self.archive_mob_files_of(store, min_age_ms)?;
        }
        Ok(archived)
    }

    fn archive_mob_files_of(&self, store: &Arc<Store>, min_age_ms: i64) -> Result<usize> {
        let env = &self.env.stores;
        let (table, family) = (self.info.table(), store.family().name_text());
        let dir = mob_family_dir(&env.root, table, &family);
        if !env.fs.exists(&dir)? {
            return Ok(0);
        }
        let youngest_ms = env.clock.now_ms().saturating_sub(min_age_ms);
        let is_own = |name: &str| {
            MobFileName::parse(name).is_some_and(|parsed| parsed.region() == self.info.encoded_name())
        };
        let mut files = env.fs.list(&dir)?;
        // Pending files before the references: a file that is not pending any more is in these.
        files.retain(|file| {
            let may_be_free = !file.is_dir && file.modified_ms < youngest_ms && is_own(file.name());
            may_be_free && !store.is_mob_file_pending(file.name())
        });
        if files.is_empty() {
            return Ok(0);
        }
        let references = store.mob_references()?;
        if let Some(file) = &references.unknown {
            return Err(HBaseError::io(format!("{file} has tags and no list of MOB files")));
        }
        let archive = mob_archive_dir(&env.root, table, &family);
        let mut archived = 0;
        for file in files {
            let is_referenced = references.refs.contains(&table.to_string(), file.name());
            if is_referenced || is_linked(&*env.fs, &env.root, &archive.join(file.name()))? {
                continue;
            }
            archive_file(&*env.fs, &file.path, &archive, env.clock.now_ms())?;
            archived += 1;
        }
        Ok(archived)
    }
}

/// Returns true if a link of another table names the file that would be archived here.
fn is_linked(fs: &dyn FileSystem, root: &Path, archived: &Path) -> Result<bool> {
    let Some(dir) = links::back_references_dir(archived) else { return Ok(false) };
    if !fs.exists(&dir)? {
        return Ok(false);
    }
    for back_reference in fs.list(&dir)? {
        if links::is_referenced(fs, root, &back_reference.path)? {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use evenkeel_common::{KeyValue, TableName};

    use super::*;
    use crate::operations::{Mutation, MutationKind};
    use crate::region::testing::region_with_family;

    #[test]
    fn a_region_archives_only_old_files_of_its_own_without_references() {
        let region = region_with_family(&[("IS_MOB", "true"), ("MOB_THRESHOLD", "0")]);
        let put = |row: &str| {
            let cells = vec![KeyValue::put(row.as_bytes(), b"f", b"q", 5, b"value")];
            region.mutate_wait(Mutation::new(MutationKind::Put, row.to_owned(), cells)).expect("written");
            region.flush().expect("flushed");
        };
        put("a");
        put("b");
        let (fs, table) = (&region.env.stores.fs, region.info.table().clone());
        let dir = mob_family_dir(Path::new("/hbase"), &table, "f");
        let names = || {
            let listed = fs.list(&dir).expect("listed");
            listed.iter().map(|file| file.name().to_owned()).collect::<Vec<_>>()
        };
        let written = names();
        assert_eq!(written.len(), 2);
        let other = written[0].replace(region.info.encoded_name(), "77aa");
        fs.write_atomically(&dir.join(&other), b"x").expect("written");
        assert_eq!(region.archive_unreferenced_mob_files(-1_000_000).expect("looked"), 0);
        region.compact(None, true).expect("compacted");
        region.archive_compacted().expect("archived");
        assert_eq!(region.archive_unreferenced_mob_files(1_000_000).expect("looked"), 0, "too young");
        // A link of a clone keeps the first one.
        let clone: TableName = "clone".parse().expect("legal");
        let mob_region = evenkeel_common::mob::mob_region(&table);
        let link = links::link_to(&table, mob_region.encoded_name(), &written[0]);
        let clone_dir = mob_family_dir(Path::new("/hbase"), &clone, "f");
        let clone_region = evenkeel_common::mob::mob_region(&clone);
        links::create(&**fs, Path::new("/hbase"), &clone_dir, (&clone, clone_region.encoded_name()), &link)
            .expect("made");
        assert_eq!(region.archive_unreferenced_mob_files(-1_000_000).expect("looked"), 1);
        assert!(names().contains(&written[0]) && names().contains(&other) && !names().contains(&written[1]));
        fs.delete(&clone_dir).expect("deleted");
        assert_eq!(region.archive_unreferenced_mob_files(-1_000_000).expect("looked"), 1);
    }
}
