//! [`MobCleaner`]: archives MOB files that a server's regions have written and that nothing refers
//! to (`RSMobFileCleanerChore`).
//!
//! A region that is served was neither split nor merged, so only its own store files may refer to
//! the files that it wrote, and those of clones, which keep links. Files of other regions are left
//! to the master.
//!
//! A file is archived in the second pass in a row that finds it old and without references. A
//! snapshot that another master takes lists store files first and MOB files afterwards; none of
//! those that it needs is archived in between, unless it takes longer than a period. Whether the
//! region is served is asked again, and its references are read again, just before files are
//! archived.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_common::mob::{MobFileName, mob_archive_dir, mob_family_dir};
use evenkeel_common::{HBaseError, Result};
use evenkeel_fs::{FileStatus, FileSystem};

use super::Region;
use crate::archive::archive_file;
use crate::links;
use crate::store::Store;

/// See the module.
#[derive(Debug, Default)]
pub struct MobCleaner {
    /// Files without references that the last pass found.
    free: HashSet<PathBuf>,
}

impl MobCleaner {
    /// Archives MOB files of these regions that are older than `min_age_ms`, by their modification,
    /// and without references, if the last pass has found them, too. Returns their number. A family
    /// that cannot be cleaned is logged: a store file may have references that it does not name, or
    /// the file system failed. Secondary replicas, closed regions and those for which `is_served`
    /// is false have none.
    pub fn clean(
        &mut self,
        mut regions: Vec<Arc<Region>>,
        min_age_ms: i64,
        is_served: &dyn Fn(&Arc<Region>) -> bool,
    ) -> usize {
        regions.sort_by(|a, b| a.info.table().cmp(b.info.table()));
        let mut pass = Pass { before: std::mem::take(&mut self.free), min_age_ms, ..Pass::default() };
        let is_served = |region: &Arc<Region>| !region.is_closed() && is_served(region);
        for regions in regions.chunk_by(|a, b| a.info.table() == b.info.table()) {
            pass.listed.clear();
            for region in regions.iter().filter(|region| region.info.is_primary()) {
                for store in region.stores.iter().filter(|store| store.family().is_mob()) {
                    if let Err(error) = pass.clean(region, store, &is_served) {
                        let family = store.family().name_text();
                        tracing::warn!(region = %region.info.name_text(), family, %error, "no MOB file is archived");
                    }
                }
            }
        }
        self.free = pass.found;
        pass.archived
    }
}

/// One pass of the cleaner.
#[derive(Default)]
struct Pass {
    min_age_ms: i64,
    /// Files without references that the pass before found.
    before: HashSet<PathBuf>,
    /// Those that this one found.
    found: HashSet<PathBuf>,
    /// The MOB files of the families of one table.
    listed: HashMap<PathBuf, Arc<Vec<FileStatus>>>,
    archived: usize,
}

impl Pass {
    fn clean(
        &mut self,
        region: &Arc<Region>,
        store: &Arc<Store>,
        is_served: &dyn Fn(&Arc<Region>) -> bool,
    ) -> Result<()> {
        if !is_served(region) {
            return Ok(());
        }
        let env = &region.env.stores;
        let (table, family) = (region.info.table(), store.family().name_text());
        // The list before the pending files, and these before the references: a file that is not
        // pending any more is in the references.
        let files = self.files_of(&*env.fs, mob_family_dir(&env.root, table, &family))?;
        let youngest_ms = env.clock.now_ms().saturating_sub(self.min_age_ms);
        let may_be_free = |file: &&FileStatus| {
            let is_old = !file.is_dir && file.modified_ms < youngest_ms;
            is_old && is_of(region, file.name()) && !store.is_mob_file_pending(file.name())
        };
        let mut free: Vec<_> = files.iter().filter(may_be_free).collect();
        if free.is_empty() {
            return Ok(());
        }
        retain_unreferenced(&mut free, region, store)?;
        let (known, new): (Vec<_>, Vec<_>) =
            free.into_iter().partition(|file| self.before.contains(&file.path));
        self.found.extend(new.into_iter().map(|file| file.path.clone()));
        self.archive(known, region, store, is_served)
    }

    /// Archives files that the pass before found, too.
    fn archive(
        &mut self,
        mut files: Vec<&FileStatus>,
        region: &Arc<Region>,
        store: &Arc<Store>,
        is_served: &dyn Fn(&Arc<Region>) -> bool,
    ) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        let env = &region.env.stores;
        let archive = mob_archive_dir(&env.root, region.info.table(), &store.family().name_text());
        retain_unreferenced(&mut files, region, store)?;
        for file in files {
            if is_linked(&*env.fs, &env.root, &archive.join(file.name()))? {
                continue;
            }
            if !is_served(region) {
                return Ok(());
            }
            archive_file(&*env.fs, &file.path, &archive, env.clock.now_ms())?;
            env.mob.close(&file.path);
            self.archived += 1;
        }
        Ok(())
    }

    fn files_of(&mut self, fs: &dyn FileSystem, dir: PathBuf) -> Result<Arc<Vec<FileStatus>>> {
        if let Some(files) = self.listed.get(&dir) {
            return Ok(Arc::clone(files));
        }
        let files = Arc::new(if fs.exists(&dir)? { fs.list(&dir)? } else { Vec::new() });
        self.listed.insert(dir, Arc::clone(&files));
        Ok(files)
    }
}

/// Returns true if a region has written the MOB file of this name.
fn is_of(region: &Region, name: &str) -> bool {
    MobFileName::parse(name).is_some_and(|parsed| parsed.region() == region.info.encoded_name())
}

fn retain_unreferenced(files: &mut Vec<&FileStatus>, region: &Region, store: &Store) -> Result<()> {
    let references = store.mob_references()?;
    if let Some(file) = &references.unknown {
        return Err(HBaseError::io(format!("{file} has tags and no list of MOB files")));
    }
    let table = region.info.table().to_string();
    files.retain(|file| !references.refs.contains(&table, file.name()));
    Ok(())
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

    fn mob_region() -> Arc<Region> {
        region_with_family(&[("IS_MOB", "true"), ("MOB_THRESHOLD", "0")])
    }

    fn put(region: &Arc<Region>, row: &str) {
        let cells = vec![KeyValue::put(row.as_bytes(), b"f", b"q", 5, b"value")];
        region.mutate_wait(Mutation::new(MutationKind::Put, row.to_owned(), cells)).expect("written");
        region.flush().expect("flushed");
    }

    fn dir_of(region: &Region) -> PathBuf {
        mob_family_dir(Path::new("/hbase"), region.info.table(), "f")
    }

    fn names(region: &Region) -> Vec<String> {
        let listed = region.env.stores.fs.list(&dir_of(region)).expect("listed");
        listed.iter().map(|file| file.name().to_owned()).collect()
    }

    fn compact(region: &Arc<Region>) {
        region.compact(None, true).expect("compacted");
        region.archive_compacted().expect("archived");
    }

    /// The archived files of a pass, whatever the age of the files.
    fn clean(cleaner: &mut MobCleaner, region: &Arc<Region>) -> usize {
        cleaner.clean(vec![Arc::clone(region)], -1_000_000, &|_| true)
    }

    #[test]
    fn only_old_files_of_the_region_without_references_are_archived() {
        let region = mob_region();
        let mut cleaner = MobCleaner::default();
        put(&region, "a");
        put(&region, "b");
        let (fs, table) = (&region.env.stores.fs, region.info.table().clone());
        let written = names(&region);
        assert_eq!(written.len(), 2);
        let other = written[0].replace(region.info.encoded_name(), "77aa");
        fs.write_atomically(&dir_of(&region).join(&other), b"x").expect("written");
        for _ in 0..2 {
            assert_eq!(clean(&mut cleaner, &region), 0);
        }
        compact(&region);
        for _ in 0..3 {
            assert_eq!(cleaner.clean(vec![Arc::clone(&region)], 1_000_000, &|_| true), 0, "too young");
        }
        // A link of a clone keeps the first one.
        let clone: TableName = "clone".parse().expect("legal");
        let mob_region = evenkeel_common::mob::mob_region(&table);
        let link = links::link_to(&table, mob_region.encoded_name(), &written[0]);
        let clone_dir = mob_family_dir(Path::new("/hbase"), &clone, "f");
        let clone_region = evenkeel_common::mob::mob_region(&clone);
        links::create(&**fs, Path::new("/hbase"), &clone_dir, (&clone, clone_region.encoded_name()), &link)
            .expect("made");
        assert_eq!(clean(&mut cleaner, &region), 0, "found for the first time");
        assert_eq!(clean(&mut cleaner, &region), 1);
        let left = names(&region);
        assert!(left.contains(&written[0]) && left.contains(&other) && !left.contains(&written[1]));
        fs.delete(&clone_dir).expect("deleted");
        assert_eq!(clean(&mut cleaner, &region), 0);
        assert_eq!(clean(&mut cleaner, &region), 1);
    }

    #[test]
    fn an_archived_file_is_closed() {
        let region = mob_region();
        put(&region, "a");
        let mob = &region.env.stores.mob;
        let scan = crate::operations::Scan::default();
        let mut scanner = region.scanner(scan).expect("opens");
        let mut context = crate::scanner::ScannerContext::unlimited();
        scanner.next(&mut evenkeel_common::CellBuffer::new(), &mut context).expect("read");
        drop(scanner);
        assert_eq!(mob.len(), 1);
        compact(&region);
        assert_eq!(mob.len(), 1, "the compaction opens no other for reads");
        let mut cleaner = MobCleaner::default();
        clean(&mut cleaner, &region);
        assert_eq!((clean(&mut cleaner, &region), mob.len()), (1, 0));
    }

    #[test]
    fn files_of_a_region_that_is_not_served_are_kept() {
        let region = mob_region();
        put(&region, "a");
        compact(&region);
        let before = names(&region);
        let mut cleaner = MobCleaner::default();
        for _ in 0..2 {
            assert_eq!(cleaner.clean(vec![Arc::clone(&region)], -1_000_000, &|_| false), 0);
        }
        clean(&mut cleaner, &region);
        // It moves away between the look at its references and the move of the file.
        let asked = std::cell::Cell::new(0);
        let moves = |_: &Arc<Region>| {
            asked.set(asked.get() + 1);
            asked.get() < 2
        };
        assert_eq!(cleaner.clean(vec![Arc::clone(&region)], -1_000_000, &moves), 0);
        assert_eq!(asked.get(), 2);
        region.close(true).expect("closed");
        for _ in 0..2 {
            assert_eq!(clean(&mut cleaner, &region), 0);
        }
        assert_eq!(names(&region), before);
    }
}
