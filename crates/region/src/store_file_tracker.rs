//! Which files a store has: the store file tracker (`hbase.store.file-tracker.impl`).
//!
//! | tracker | the files of a store | a new file takes effect by |
//! |---|---|---|
//! | DEFAULT | those in its directory | the rename into the directory |
//! | FILE | those that its list names ([`list_file`]) | the write of a list that names it |
//! | MIGRATION | those of its source tracker | both |
//!
//! With FILE, a flush or compaction writes its files straight into the store's directory, and a
//! file that no list names is garbage: `hbase.region.broken.storefilecleaner` deletes it later, if
//! it is switched on. MIGRATION keeps a list whichever way it goes. Its new files are written to
//! the temporary directory, and renamed before the list is written, because a later DEFAULT takes
//! every file of the directory. Files of a split, of links and of bulk loads are named like all
//! others.
//!
//! [`StoreFileTracker`] is the one place that distinguishes these. A store asks it for its files
//! when it opens, and tells it every change, after the new files are complete and before readers
//! and the log know them:
//!
//! ```text
//! files in place | commit(removed, added): list is durable | readers see it | the log is trimmed
//! ```
//!
//! **Invariants.** A list on disk never names a file that was deleted or archived: `commit` and
//! `revert` come first. After a failed write either list may be on disk; then the next change, or
//! the `revert` that must precede the deletion of a file, writes one that holds again.

pub mod list_file;
mod settings;
mod validation;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_common::clock::Clock;
use evenkeel_common::{ErrorKind, HBaseError, Result};
use evenkeel_fs::{FileStatus, FileSystem};
use parking_lot::Mutex;

use self::list_file::StoreFileListFile;
pub use self::list_file::{LIST_DIR, ListedFile};
pub use self::settings::{
    MIGRATION_DST_IMPL, MIGRATION_SRC_IMPL, TRACKER_IMPL, TrackerImpl, TrackerKind, TrackerSettings,
};
pub use self::validation::{check_for_create_table, check_for_modify_table, validate_pre_restore_snapshot};

/// How often the files of a list are looked for, if it names one that is gone.
const OBSERVE_ATTEMPTS_MAX: usize = 3;

/// The tracker of one store. One process at a time has it.
pub struct StoreFileTracker {
    fs: Arc<dyn FileSystem>,
    clock: Arc<dyn Clock>,
    /// The family's directory in the region.
    dir: PathBuf,
    kind: TrackerKind,
    /// `None` if no list is kept.
    tracked: Option<Mutex<TrackedFiles>>,
}

/// The files of a store whose list is kept.
struct TrackedFiles {
    lists: StoreFileListFile,
    /// The files, with their lengths in bytes.
    files: BTreeMap<String, u64>,
    /// The names in the list on disk; `None` if a write failed, so that either list may be there.
    on_disk: Option<BTreeSet<String>>,
}

impl StoreFileTracker {
    /// Creates the tracker of a family's directory, which need not exist.
    pub fn new(fs: Arc<dyn FileSystem>, clock: Arc<dyn Clock>, dir: &Path, kind: TrackerKind) -> Self {
        let tracked = kind.writes_list().then(|| {
            let lists = StoreFileListFile::new(dir, kind.reads_list());
            Mutex::new(TrackedFiles { lists, files: BTreeMap::new(), on_disk: None })
        });
        Self { fs, clock, dir: dir.to_owned(), kind, tracked }
    }

    /// Its kind.
    pub fn kind(&self) -> TrackerKind {
        self.kind
    }

    /// Returns the store's files: entries of its directory, among which other files may be if the
    /// kind reads no list. Afterwards [`StoreFileTracker::begin`] must say which of them are
    /// served.
    ///
    /// # Errors
    /// `IOException` from the file system, for a damaged list, and for a file that is listed and
    /// does not exist.
    pub fn load(&self) -> Result<Vec<FileStatus>> {
        let listed = match &self.tracked {
            Some(tracked) if self.kind.reads_list() => tracked.lock().load(&*self.fs, self.clock.now_ms())?,
            _ => return Ok(self.fs.list(&self.dir)?),
        };
        if self.is_in_doubt() {
            let (dir, listed) = (self.dir.display(), listed.len());
            tracing::error!(%dir, listed, "a list of store files is missing or incomplete: files that are in no list are kept, and not served");
        }
        listed.iter().map(|name| Ok(self.fs.status(&self.dir.join(name))?)).collect()
    }

    /// Returns the store's files as [`StoreFileTracker::load`] does, for a reader of a store that
    /// another process writes. Changes nothing. A directory that does not exist has no files.
    ///
    /// # Errors
    /// As [`StoreFileTracker::load`].
    pub(crate) fn observe(&self) -> Result<Vec<FileStatus>> {
        for _ in 1..OBSERVE_ATTEMPTS_MAX {
            match self.try_observe() {
                // A file of the list was archived after the list was read: there is a newer one.
                Err(error) if error.kind() == ErrorKind::FileNotFound => {}
                observed => return observed,
            }
        }
        self.try_observe()
    }

    fn try_observe(&self) -> Result<Vec<FileStatus>> {
        match listed_names(&*self.fs, &self.dir, self.kind)? {
            Some(listed) => listed.iter().map(|name| Ok(self.fs.status(&self.dir.join(name))?)).collect(),
            None => match self.fs.list(&self.dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
                files => Ok(files?),
            },
        }
    }

    /// Sets the files of the store, and writes their list if it is another one. For an opened
    /// store, before files that it does not serve are archived; and for the directory of a new
    /// region, once its files are in place.
    ///
    /// # Errors
    /// `IOException` from the file system.
    pub fn begin(&self, files: impl IntoIterator<Item = ListedFile>) -> Result<()> {
        self.change(|tracked| {
            tracked.files = files.into_iter().map(|file| (file.name, file.bytes)).collect();
            None
        })
    }

    /// Removes and adds files. Afterwards the change survives a crash.
    ///
    /// # Errors
    /// `IOException` from the file system: the store's files are those before the change, and the
    /// list on disk may name those after it, until the next call succeeds.
    pub fn commit(&self, removed: &[String], added: &[ListedFile]) -> Result<()> {
        self.change(|tracked| {
            let before = tracked.files.clone();
            tracked.replace(removed, added);
            Some(before)
        })
    }

    /// Takes a change back, whether or not it was made: `removed` are in no list afterwards, and
    /// may be deleted.
    ///
    /// # Errors
    /// `IOException` from the file system: the store's files are as wanted, and a list on disk may
    /// name the `removed`, until the next call succeeds.
    pub fn revert(&self, removed: &[String], restored: &[ListedFile]) -> Result<()> {
        self.change(|tracked| {
            tracked.replace(removed, restored);
            None
        })
    }

    /// Continues with these files, which the store serves, after a change that was not made.
    /// Another tracker may have written lists meanwhile: the next list is newer than those.
    pub(crate) fn resume(&self, files: impl IntoIterator<Item = ListedFile>) {
        if let Some(tracked) = &self.tracked {
            let mut tracked = tracked.lock();
            tracked.files = files.into_iter().map(|file| (file.name, file.bytes)).collect();
            tracked.lists = StoreFileListFile::new(&self.dir, self.kind.reads_list());
            tracked.on_disk = None;
        }
    }

    /// Returns true if files of the directory may have been in a list that is lost, so that they
    /// must be kept.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.tracked.as_ref().is_some_and(|tracked| tracked.lock().lists.is_in_doubt())
    }

    /// Returns the names of the files, and of those that the list on disk names nonetheless.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        let Some(tracked) = &self.tracked else { return BTreeSet::new() };
        let tracked = tracked.lock();
        tracked.files.keys().chain(tracked.on_disk.iter().flatten()).cloned().collect()
    }

    /// Calls `remove`, which deletes or archives a file, while no list can come to name the file.
    ///
    /// # Errors
    /// `IOException`, without a call, if a list may name the file; and the errors of `remove`.
    pub(crate) fn remove_unlisted<T>(&self, name: &str, remove: impl FnOnce() -> Result<T>) -> Result<T> {
        let refuse = |why: &str| Err(HBaseError::io(format!("{}: {why}", self.dir.join(name).display())));
        let Some(tracked) = &self.tracked else { return refuse("the store has no list of its files") };
        let tracked = tracked.lock();
        match &tracked.on_disk {
            None => refuse("it is unknown which list of store files is on disk"),
            Some(on_disk) if on_disk.contains(name) || tracked.files.contains_key(name) => {
                refuse("a list names it")
            }
            Some(_) => remove(),
        }
    }

    /// Changes the files and writes their list. If that fails, the files are those that `change`
    /// returns, if any.
    fn change(&self, change: impl FnOnce(&mut TrackedFiles) -> Option<BTreeMap<String, u64>>) -> Result<()> {
        let Some(tracked) = &self.tracked else { return Ok(()) };
        let mut tracked = tracked.lock();
        let before = change(&mut tracked);
        let written = tracked.write(&*self.fs, self.clock.now_ms());
        if let (Err(_), Some(before)) = (&written, before) {
            tracked.files = before;
        }
        written
    }
}

impl TrackedFiles {
    fn load(&mut self, fs: &dyn FileSystem, now_ms: i64) -> Result<BTreeSet<String>> {
        let listed = self.lists.load(fs, now_ms)?.unwrap_or_default();
        let count = listed.len();
        let names: BTreeSet<String> = listed.into_iter().map(|file| file.name).collect();
        if names.len() < count {
            let dir = self.lists.dir().display();
            tracing::warn!(%dir, "a list of store files has a name more than once");
        }
        self.on_disk = Some(names.clone());
        Ok(names)
    }

    fn replace(&mut self, removed: &[String], added: &[ListedFile]) {
        for name in removed {
            self.files.remove(name);
        }
        self.files.extend(added.iter().map(|file| (file.name.clone(), file.bytes)));
    }

    /// Writes the list, unless it is on disk.
    fn write(&mut self, fs: &dyn FileSystem, now_ms: i64) -> Result<()> {
        if self.on_disk.as_ref().is_some_and(|on_disk| on_disk.iter().eq(self.files.keys())) {
            return Ok(());
        }
        self.on_disk = None;
        let listed = |(name, bytes): (&String, &u64)| ListedFile { name: name.clone(), bytes: *bytes };
        self.lists.write(fs, &self.files.iter().map(listed).collect::<Vec<_>>(), now_ms)?;
        self.on_disk = Some(self.files.keys().cloned().collect());
        Ok(())
    }
}

impl std::fmt::Debug for StoreFileTracker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreFileTracker")
            .field("dir", &self.dir)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// Returns the names of a store's files, for a reader that changes nothing: those of its list, or
/// `None` if every file of the directory counts.
///
/// # Errors
/// `IOException` from the file system, and for a damaged list.
pub fn listed_names(
    fs: &dyn FileSystem,
    family_dir: &Path,
    kind: TrackerKind,
) -> Result<Option<BTreeSet<String>>> {
    if !kind.reads_list() {
        return Ok(None);
    }
    let listed = list_file::read(fs, family_dir)?.unwrap_or_default();
    Ok(Some(listed.into_iter().map(|file| file.name).collect()))
}

/// Removes names from the list of a family's directory, if it has one. For files of a store that is
/// not open, before they are archived. A list that `kind` does not read stays as it is: the next
/// open that needs one writes a new one.
///
/// # Errors
/// `IOException` from the file system, and for a damaged list.
pub fn forget(
    fs: &dyn FileSystem,
    family_dir: &Path,
    kind: TrackerKind,
    names: &BTreeSet<&str>,
) -> Result<()> {
    // Its list is newer than those before it at any time of the clock.
    const NOW_MS: i64 = 0;
    if !kind.reads_list() || !fs.exists(&family_dir.join(LIST_DIR))? {
        return Ok(());
    }
    let mut lists = StoreFileListFile::new(family_dir, true);
    let Some(mut listed) = lists.load(fs, NOW_MS)? else { return Ok(()) };
    let before = listed.len();
    listed.retain(|file| !names.contains(&*file.name));
    if listed.len() == before { Ok(()) } else { lists.write(fs, &listed, NOW_MS) }
}

#[cfg(test)]
mod tests {
    use evenkeel_common::clock::ManualClock;
    use evenkeel_fs::{Fault, FaultyFileSystem, MemoryFileSystem, Op};

    use super::*;

    const DIR: &str = "/data/default/t/r/f";

    struct TestDirectory {
        fs: FaultyFileSystem,
        clock: Arc<ManualClock>,
    }

    impl TestDirectory {
        fn new(files: &[&str]) -> Self {
            let memory = MemoryFileSystem::new();
            memory.mkdirs(Path::new(DIR)).expect("made");
            let place = Self { fs: FaultyFileSystem::new(memory), clock: ManualClock::at(1000) };
            files.iter().for_each(|name| place.put(name));
            place
        }

        fn put(&self, name: &str) {
            self.fs.write_atomically(&Path::new(DIR).join(name), b"cells").expect("written");
        }

        fn tracker(&self, kind: TrackerKind) -> StoreFileTracker {
            StoreFileTracker::new(
                Arc::new(self.fs.clone()),
                Arc::clone(&self.clock) as _,
                Path::new(DIR),
                kind,
            )
        }

        /// Overwrites each list with bytes that are none.
        fn damage_lists(&self) {
            let lists = self.fs.list(&Path::new(DIR).join(LIST_DIR)).expect("listed");
            assert!(!lists.is_empty());
            lists.iter().for_each(|list| self.fs.write_atomically(&list.path, b"garbage!").expect("written"));
        }

        /// Opens the store again, and serves what it finds.
        fn open(&self, kind: TrackerKind) -> (StoreFileTracker, Vec<String>) {
            self.clock.advance_ms(1);
            let tracker = self.tracker(kind);
            let found = tracker.load().expect("loaded");
            let found: Vec<_> =
                found.iter().filter(|file| !file.is_dir).map(|file| file.name().to_owned()).collect();
            tracker.begin(found.iter().map(|name| file(name))).expect("begun");
            (tracker, found)
        }
    }

    fn file(name: &str) -> ListedFile {
        ListedFile { name: name.to_owned(), bytes: 5 }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn only_listed_files_count() {
        let place = TestDirectory::new(&["aa", "bb", "cc"]);
        let (tracker, found) = place.open(TrackerKind::File);
        assert_eq!(found, names(&[]));
        tracker.commit(&[], &[file("aa"), file("bb")]).expect("listed");
        tracker.commit(&names(&["aa"]), &[file("cc")]).expect("listed");
        assert_eq!(place.open(TrackerKind::File).1, names(&["bb", "cc"]));
        assert_eq!(place.open(TrackerKind::Default).1, names(&["aa", "bb", "cc"]));
        place.fs.delete(&Path::new(DIR).join("bb")).expect("deleted");
        place.tracker(TrackerKind::File).load().expect_err("a listed file is missing");
    }

    #[test]
    fn a_migration_lists_what_its_source_has() {
        let place = TestDirectory::new(&["aa", "bb"]);
        let (tracker, found) = place.open(TrackerKind::DefaultToFile);
        assert_eq!(found, names(&["aa", "bb"]));
        place.put("cc");
        tracker.commit(&names(&["aa"]), &[file("cc")]).expect("listed");
        let (_, found) = place.open(TrackerKind::File);
        assert_eq!(found, names(&["bb", "cc"]), "the directory has aa, too");
        let (tracker, found) = place.open(TrackerKind::FileToDefault);
        assert_eq!(found, names(&["bb", "cc"]));
        tracker.commit(&names(&["bb"]), &[]).expect("listed");
        assert_eq!(place.open(TrackerKind::FileToDefault).1, names(&["cc"]));
    }

    #[test]
    fn a_stale_list_is_replaced_when_a_migration_begins() {
        let place = TestDirectory::new(&["aa"]);
        place.open(TrackerKind::File).0.commit(&[], &[file("aa")]).expect("listed");
        place.put("bb");
        place.open(TrackerKind::DefaultToFile);
        assert_eq!(place.open(TrackerKind::File).1, names(&["aa", "bb"]));
    }

    #[test]
    fn a_migration_from_the_directory_replaces_a_damaged_list() {
        let place = TestDirectory::new(&["aa"]);
        place.open(TrackerKind::File).0.commit(&[], &[file("aa")]).expect("listed");
        place.damage_lists();
        place.tracker(TrackerKind::File).load().expect_err("damaged");
        place.open(TrackerKind::DefaultToFile);
        assert_eq!(place.open(TrackerKind::File).1, names(&["aa"]));
        assert_eq!(place.fs.list(&Path::new(DIR).join(LIST_DIR)).expect("listed").len(), 1);
    }

    #[test]
    fn a_name_that_is_listed_twice_is_one_file() {
        let place = TestDirectory::new(&["aa"]);
        let bytes = list_file::encode(&[file("aa"), file("aa")], 1).expect("short");
        let list = Path::new(DIR).join(LIST_DIR).join("f1.1");
        place.fs.write_atomically(&list, &bytes).expect("written");
        assert_eq!(place.open(TrackerKind::File).1, names(&["aa"]));
    }

    #[test]
    fn a_file_that_a_list_may_name_is_not_removed() {
        let place = TestDirectory::new(&["aa", "bb"]);
        let (tracker, _) = place.open(TrackerKind::File);
        tracker.commit(&[], &[file("aa")]).expect("listed");
        tracker.remove_unlisted("aa", || Ok(())).expect_err("it is listed");
        tracker.remove_unlisted("bb", || Ok(())).expect("it is not");
        place.fs.inject(Fault::on(Op::Rename, LIST_DIR).fails_after_effect(io::ErrorKind::Other));
        tracker.commit(&names(&["aa"]), &[file("bb")]).expect_err("an error");
        tracker.remove_unlisted("bb", || Ok(())).expect_err("the list is in doubt");
        place.tracker(TrackerKind::Default).remove_unlisted("bb", || Ok(())).expect_err("there is no list");
    }

    #[test]
    fn a_failed_commit_is_corrected_before_a_file_is_deleted() {
        let place = TestDirectory::new(&["aa", "bb"]);
        let (tracker, _) = place.open(TrackerKind::File);
        tracker.commit(&[], &[file("aa")]).expect("listed");
        // The list is in place, and the writer is not told.
        place.fs.inject(Fault::on(Op::Rename, LIST_DIR).fails_after_effect(io::ErrorKind::Other));
        tracker.commit(&names(&["aa"]), &[file("bb")]).expect_err("an error");
        let on_disk = || {
            let listed = list_file::read(&place.fs, Path::new(DIR)).expect("read").expect("there");
            listed.into_iter().map(|file| file.name).collect::<Vec<_>>()
        };
        assert_eq!(on_disk(), names(&["bb"]));
        place.fs.inject(Fault::on(Op::Rename, LIST_DIR).fails(io::ErrorKind::Other));
        tracker.revert(&names(&["bb"]), &[file("aa")]).expect_err("not written");
        assert_eq!(on_disk(), names(&["bb"]));
        tracker.revert(&names(&["bb"]), &[]).expect("written");
        assert_eq!(on_disk(), names(&["aa"]));
        assert_eq!(place.open(TrackerKind::File).1, names(&["aa"]));
        let before = place.fs.list(&Path::new(DIR).join(LIST_DIR)).expect("listed");
        tracker.revert(&names(&["never there"]), &[]).expect("nothing to do");
        assert_eq!(place.fs.list(&Path::new(DIR).join(LIST_DIR)).expect("listed"), before);
    }

    #[test]
    fn a_resumed_tracker_writes_newer_lists() {
        let place = TestDirectory::new(&["aa", "bb"]);
        let (closed, _) = place.open(TrackerKind::File);
        closed.commit(&[], &[file("aa")]).expect("listed");
        place.open(TrackerKind::File).0.commit(&[], &[file("bb")]).expect("listed by another instance");
        closed.resume([file("aa")]);
        closed.commit(&[], &[]).expect("listed");
        assert_eq!(place.open(TrackerKind::File).1, names(&["aa"]));
    }

    #[test]
    fn files_are_forgotten_for_an_archive() {
        let place = TestDirectory::new(&["aa", "bb"]);
        let dir = Path::new(DIR);
        let kind = TrackerKind::File;
        forget(&place.fs, dir, kind, &BTreeSet::from(["aa"])).expect("there is no list");
        assert!(!place.fs.exists(&dir.join(LIST_DIR)).expect("looked"));
        place.open(TrackerKind::File).0.commit(&[], &[file("aa"), file("bb")]).expect("listed");
        forget(&place.fs, dir, kind, &BTreeSet::from(["aa", "zz"])).expect("forgotten");
        let left = listed_names(&place.fs, dir, TrackerKind::File).expect("read").expect("by its list");
        assert_eq!(left, BTreeSet::from(["bb".to_owned()]));
        assert_eq!(listed_names(&place.fs, dir, TrackerKind::Default).expect("nothing to read"), None);
        place.damage_lists();
        for kind in [TrackerKind::Default, TrackerKind::DefaultToFile] {
            forget(&place.fs, dir, kind, &BTreeSet::from(["bb"])).expect("the list is not read");
        }
        forget(&place.fs, dir, kind, &BTreeSet::from(["bb"])).expect_err("the list is damaged");
    }
}
