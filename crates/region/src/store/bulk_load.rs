//! Files that this server did not write: those of a bulk load, and `recovered.hfiles`, which
//! HBase's log split writes.
//!
//! A bulk loaded file gets a new name, `<32 hex digits>_SeqId_<n>_`. Its cells take the sequence id
//! in the name, so that they are newer than every edit before the load and older than every edit
//! after it, regardless of the order of files. A file without an assigned id has 0: its cells are
//! older than every edit.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use evenkeel_block_cache::NoCache;
use evenkeel_common::{CellRef, ErrorKind, HBaseError, KeyBuf, Result, TryError};
use evenkeel_fs::{CreateOptions, FileStatus, FileSystem, RandomAccessFile};
use evenkeel_hfile::{HFileReader, OpenOptions, ScanOptions};

use super::{Store, StoreFile, listed, sorted};
use crate::layout;

/// Bytes copied at a time.
const COPY_BYTES: usize = 1 << 20;

impl Store {
    /// Returns true if the file may be served here, false if it has rows of other regions. With
    /// [`super::StoreConfig::verify_bulk_loads`] it reads the whole file, otherwise the first and
    /// last key.
    ///
    /// # Errors
    /// `FileNotFoundException`, `CorruptHFileException` for a file that is not an HFile or is out
    /// of order, and `DoNotRetryIOException` for a file without cells or with values in MOB files
    /// of another table.
    pub fn check_bulk_file(&self, path: &Path) -> Result<bool> {
        self.check_bulk_file_of(&*self.env.fs, path)
    }

    /// As [`Store::check_bulk_file`], for a file of another file system.
    ///
    /// # Errors
    /// As [`Store::check_bulk_file`].
    pub fn check_bulk_file_of(&self, fs: &dyn FileSystem, path: &Path) -> Result<bool> {
        if fs.status(path)?.is_dir {
            return Err(HBaseError::io(format!("Path does not reference a file: {}", path.display())));
        }
        let reader = HFileReader::open_path(fs, path, Arc::new(NoCache), &OpenOptions::default())?;
        let (Some(first), Some(last)) = (reader.first_key(), reader.last_key()) else {
            return Err(HBaseError::do_not_retry(format!("{}: First key can not be null", path.display())));
        };
        let fits = |key: &KeyBuf| self.region.contains_row(key.as_cell().row());
        if !fits(first) || !fits(last) {
            return Ok(false);
        }
        self.check_bulk_references(&reader)?;
        if self.config.verify_bulk_loads {
            verify_order(&reader, path)?;
        }
        Ok(true)
    }

    /// Syncs a client's file in a staging directory, and the directories above it. Its writer may
    /// not have synced it, and the load is about to be acknowledged.
    ///
    /// # Errors
    /// `IOException` from the file system.
    pub fn sync_staged(&self, path: &Path) -> Result<()> {
        let staging = self.env.root.join(layout::STAGING_DIR);
        let dirs = path.ancestors().skip(1).take_while(|dir| dir.starts_with(&staging) && **dir != *staging);
        std::iter::once(path).chain(dirs).try_for_each(|path| Ok(self.env.fs.sync_file(path)?))
    }

    /// Copies a file of a file system, or of that of the store, into this store's temporary
    /// directory, under the caller's name. The next open deletes it, unless it is moved.
    ///
    /// # Errors
    /// `IOException` from the file systems; nothing is left then.
    pub fn copy_to_tmp(
        &self,
        of: Option<&dyn FileSystem>,
        from: &Path,
        name: &str,
    ) -> Result<std::path::PathBuf> {
        let to = self.dirs.tmp.join(name);
        match self.copy(of.unwrap_or(&*self.env.fs), from, &to) {
            Ok(()) => Ok(to),
            Err(error) => {
                self.discard_copy(&to);
                Err(error)
            }
        }
    }

    fn copy(&self, of: &dyn FileSystem, from: &Path, to: &Path) -> Result<()> {
        let source = of.open(from)?;
        let mut target = self.env.fs.create(to, CreateOptions { overwrite: true, ..CreateOptions::BULK })?;
        let mut buffer = vec![0; COPY_BYTES.min(usize::try_from(source.len()).unwrap_or(COPY_BYTES)).max(1)];
        let mut at = 0;
        loop {
            let count = source.read_at(at, &mut buffer)?;
            if count == 0 {
                break;
            }
            target.append(buffer.get(..count).unwrap_or_default())?;
            at += count as u64;
        }
        if at != source.len() {
            return Err(HBaseError::io(format!("{}: {at} bytes of {}", from.display(), source.len())));
        }
        target.sync()?;
        target.close()?;
        self.check_copy(&*source, to)
    }

    /// Reads a copy back, because the source may be deleted once the load is acknowledged.
    fn check_copy(&self, source: &dyn RandomAccessFile, to: &Path) -> Result<()> {
        let copy = self.env.fs.open(to)?;
        let differs =
            || HBaseError::new(ErrorKind::CorruptHFile, format!("{}: not what was copied", to.display()));
        if copy.len() != source.len() {
            return Err(differs());
        }
        let len = COPY_BYTES.min(usize::try_from(source.len()).unwrap_or(COPY_BYTES));
        let (mut is, mut was) = (vec![0; len], vec![0; len]);
        let mut at = 0;
        while at < source.len() {
            let here = usize::try_from(source.len() - at).unwrap_or(len).min(len);
            was.truncate(here);
            is.truncate(here);
            source.read_exact_at(at, &mut was)?;
            copy.read_exact_at(at, &mut is)?;
            if is != was {
                return Err(differs());
            }
            at += here as u64;
        }
        Ok(())
    }

    /// Deletes a copy made by [`Store::copy_to_tmp`].
    pub fn discard_copy(&self, path: &Path) {
        if let Err(error) = self.env.fs.delete(path) {
            tracing::warn!(path = %path.display(), %error, "a copy for a bulk load could not be deleted");
        }
    }

    /// Returns the path of a served file of this name.
    pub fn file_path(&self, name: &str) -> std::path::PathBuf {
        self.dirs.family.join(name)
    }

    /// Returns true if a file whose name begins with `stem` is served or archived.
    ///
    /// # Errors
    /// `IOException` from the file system.
    pub fn was_loaded(&self, stem: &str) -> Result<bool> {
        if self.state.load().files.iter().any(|file| file.name().starts_with(stem)) {
            return Ok(true);
        }
        if !self.env.fs.exists(&self.dirs.archive)? {
            return Ok(false);
        }
        Ok(self.env.fs.list(&self.dirs.archive)?.iter().any(|file| file.name().starts_with(stem)))
    }

    /// Opens a file that was moved into the family's directory. Readers are not affected.
    ///
    /// # Errors
    /// `IOException` or `CorruptHFileException`.
    pub fn open_file(&self, name: &str) -> Result<Arc<StoreFile>> {
        StoreFile::open_new(self, name).map(Arc::new)
    }

    /// Makes loaded files a part of the store, for all later opens. They are in the family's
    /// directory.
    ///
    /// # Errors
    /// `IOException` from the file system; [`Store::untrack_loaded`] takes it back.
    pub(crate) fn track_loaded(&self, files: &[Arc<StoreFile>]) -> Result<()> {
        self.tracker.commit(&[], &listed(files))
    }

    /// Takes [`Store::track_loaded`] back, before the files are moved.
    ///
    /// # Errors
    /// `IOException` from the file system: the files must stay where they are.
    pub(crate) fn untrack_loaded(&self, names: &[String]) -> Result<()> {
        self.tracker.revert(names, &[])
    }

    /// Serves files that an interrupted load has moved into the family's directory, unless they are
    /// served. A file that a compaction has replaced since is not served again. If the directory's
    /// files are those of the store, it serves them already.
    ///
    /// # Errors
    /// `IOException` or `CorruptHFileException`.
    pub(crate) fn adopt_loaded<'a>(&self, names: impl Iterator<Item = &'a str>) -> Result<()> {
        if !self.tracker.kind().reads_list() {
            return Ok(());
        }
        let known: HashSet<String> = {
            let (state, replaced) = (self.state.load_full(), self.replaced.lock());
            let of_file = |file: &Arc<StoreFile>| file.replaces().into_iter().chain([file.name().to_owned()]);
            state.files.iter().chain(replaced.iter()).flat_map(of_file).collect()
        };
        let mut files = Vec::new();
        for name in names {
            if !known.contains(name) && self.env.fs.exists(&self.dirs.family.join(name))? {
                files.push(self.open_file(name)?);
            }
        }
        self.track_loaded(&files)?;
        self.add_files(files);
        Ok(())
    }

    /// Adds files to the store's state; new readers read them.
    pub fn add_files(&self, files: Vec<Arc<StoreFile>>) {
        self.replace_state(|state| {
            state.files.extend(files);
            state.files = sorted(std::mem::take(&mut state.files));
        });
    }

    /// Puts a file of `recovered.hfiles` into the family's directory. If it takes effect only by a
    /// list, it is copied: a crash before the list is written must leave it where the next open
    /// finds it.
    fn place_recovered_file(&self, file: &FileStatus) -> Result<()> {
        let place = self.dirs.family.join(file.name());
        if self.tracker.kind().reads_list() {
            return self.copy(&*self.env.fs, &file.path, &place);
        }
        self.env.fs.sync_file(&file.path)?;
        Ok(self.env.fs.rename(&file.path, &place)?)
    }

    /// Serves the files in `recovered.hfiles`, after the edits in `recovered.edits`. Returns their
    /// greatest sequence id, or 0. If a file is empty, its writer died before its first block, and
    /// a finished file exists beside it.
    ///
    /// # Errors
    /// `WrongRegionException` for a file with rows of another region, and `IOException` from the
    /// file system. No file is lost; the next open continues.
    pub(crate) fn load_recovered_files(&self) -> Result<u64> {
        let dir = self.dirs.family.join(layout::RECOVERED_HFILES_DIR);
        if !self.env.fs.exists(&dir)? {
            return Ok(0);
        }
        let mut files = Vec::new();
        for status in self.env.fs.list(&dir)?.into_iter().filter(|status| !status.is_dir) {
            if status.len == 0 {
                self.env.fs.delete(&status.path)?;
                continue;
            }
            if !self.check_bulk_file(&status.path)? {
                let message = format!("Recovered hfile {} does not fit inside region", status.path.display());
                return Err(HBaseError::new(ErrorKind::WrongRegion, message));
            }
            if self.state.load().files.iter().all(|file| file.name() != status.name()) {
                self.place_recovered_file(&status)?;
                files.push(self.open_file(status.name())?);
            }
        }
        self.track_loaded(&files)?;
        let seq_id = files.iter().map(|file| file.max_seq_id()).max().unwrap_or(0);
        if !files.is_empty() {
            tracing::info!(store = %self.label(), files = files.len(), seq_id, "recovered store files are served");
        }
        self.add_files(files);
        self.env.fs.delete(&dir)?;
        Ok(seq_id)
    }
}

/// Reads a file from end to end and checks that rows ascend and all cells are of one family.
fn verify_order(reader: &Arc<HFileReader>, path: &Path) -> Result<()> {
    let options =
        ScanOptions { cache_blocks: false, pread: false, is_compaction: true, ..ScanOptions::default() };
    let mut scanner = reader.scanner(options);
    let mut before: Option<(Vec<u8>, Vec<u8>)> = None;
    let mut more = scanner.seek_to_first().map_err(TryError::into_failure)?;
    while let Some(cell) = scanner.cell().filter(|_| more) {
        if let Some((row, family)) = &before {
            check_next(row, family, &cell, path)?;
        }
        match &mut before {
            Some((row, _)) => {
                row.clear();
                row.extend_from_slice(cell.row());
            }
            None => before = Some((cell.row().to_vec(), cell.family().to_vec())),
        }
        more = scanner.next().map_err(TryError::into_failure)?;
    }
    Ok(())
}

fn check_next(row: &[u8], family: &[u8], cell: &CellRef<'_>, path: &Path) -> Result<()> {
    let invalid = |what: &str| {
        let message = format!("{}: {what}, at row {}", path.display(), cell.row().escape_ascii());
        Err(HBaseError::new(ErrorKind::CorruptHFile, message))
    };
    if row > cell.row() {
        return invalid("Previous row is greater than current row");
    }
    if family != cell.family() {
        return invalid("Previous key had different family compared to current key");
    }
    Ok(())
}
