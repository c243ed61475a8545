//! [`MobWriter`]: divides the cells of a flush or compaction between a MOB file and store files
//! (`DefaultMobStoreFlusher`, `DefaultMobStoreCompactor`).
//!
//! | cell | flush, compaction | requested major compaction |
//! |---|---|---|
//! | a put with a value above the threshold | to the MOB file, a reference instead | the same |
//! | a reference, value above the threshold | stays | rewritten; `optimized`: of small files |
//! | a reference, value below or at it | stays | replaced by the cell |
//! | any other | stays | stays |
//!
//! A compaction that only makes a region independent of its parent's files, as after a split, is no
//! requested one: it rewrites no MOB file. A family without `IS_MOB` has no threshold: its
//! references are replaced by their cells.
//!
//! The MOB file is written in the region's temporary directory, which each open of the region
//! empties. It is moved to the MOB directory once it and the store files are complete and read
//! back. If it cannot be read back, the caller writes everything again.

use std::path::{Path, PathBuf};

use evenkeel_common::mob::{MobFileName, MobFileRefs, ReferenceWriter, is_reference, mob_family_dir};
use evenkeel_common::{CellRef, CellType, HBaseError, Result, TryError};
use evenkeel_hfile::{
    BloomType, CacheOnWritePolicy, HFileScanner, HFileWriter, StoreFileMeta, WrittenFile, keys,
};

use super::note_reference;
use super::reader::MobLookup;
use super::sources::MobSources;
use crate::store::Store;
use crate::store::file_writer::NewFileOptions;

/// The time of the last day that a MOB file's name can have.
const LAST_DAY_MS: i64 = 253_402_214_400_000;
/// A day, in milliseconds.
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// What a flush or compaction does with MOB files.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct MobJob {
    /// The time of the newest cell, for the names of MOB files.
    pub newest_ms: i64,
    /// True if references are replaced: in a requested major compaction of all files.
    pub rewrites: bool,
    /// True in a flush.
    pub is_flush: bool,
}

/// A finished MOB file in the temporary directory.
pub(in crate::store) struct WrittenMobFile {
    pub path: PathBuf,
    pub name: String,
    pub written: WrittenFile,
}

/// See the module.
pub(in crate::store) struct MobWriter<'a> {
    store: &'a Store,
    job: MobJob,
    file: NewFileOptions,
    meta: StoreFileMeta,
    threshold: u64,
    references: ReferenceWriter,
    sources: MobSources,
    open: Option<OpenMobWriter>,
    /// In the order in which they were written.
    pub finished: Vec<WrittenMobFile>,
    flushed: Moved,
    to_mob: Moved,
    from_mob: Moved,
}

struct OpenMobWriter {
    writer: HFileWriter,
    path: PathBuf,
    name: String,
}

/// Cells, and bytes of their values.
#[derive(Clone, Copy, Default)]
struct Moved {
    cells: u64,
    bytes: u64,
}

impl Moved {
    fn add(&mut self, cell: &CellRef<'_>) {
        self.cells += 1;
        self.bytes += cell.value().len() as u64;
    }
}

impl<'a> MobWriter<'a> {
    /// Creates a writer, which makes a file when there is a cell for one. `file` and `meta` are
    /// those of the store files.
    ///
    /// # Errors
    /// `DoNotRetryIOException` if the table's name does not fit in a tag.
    pub(in crate::store) fn new(
        store: &'a Store,
        job: MobJob,
        file: &NewFileOptions,
        meta: &StoreFileMeta,
    ) -> Result<Self> {
        let mut file = file.clone();
        file.context.bloom = BloomType::None;
        file.context.delete_family_bloom = false;
        file.context.includes_mvcc = true;
        file.context.includes_tags = true;
        file.data = CacheOnWritePolicy::Never;
        Ok(Self {
            store,
            job,
            file,
            meta: meta.clone(),
            threshold: store.mob.threshold.unwrap_or(u64::MAX),
            references: ReferenceWriter::new(store.region.table())?,
            sources: MobSources::default(),
            open: None,
            finished: Vec::new(),
            flushed: Moved::default(),
            to_mob: Moved::default(),
            from_mob: Moved::default(),
        })
    }

    /// Writes a cell of the store. `append` adds the cell that takes its place in the store file,
    /// whose references `refs` collects. Returns the bytes that were read or written beside the
    /// store file.
    ///
    /// # Errors
    /// `IOException` from the file system, and those of a read of a MOB file.
    pub(in crate::store) fn write(
        &mut self,
        cell: &CellRef<'_>,
        refs: &mut MobFileRefs,
        append: &mut dyn FnMut(&CellRef<'_>) -> Result<()>,
    ) -> Result<u64> {
        if cell.cell_type() != Some(CellType::Put) {
            return append(cell).map(|()| 0);
        }
        match is_reference(cell) {
            false if cell.value().len() as u64 <= self.threshold => append(cell).map(|()| 0),
            false => self.move_to_mob_file(cell, refs, append),
            true if self.job.rewrites => self.rewrite(cell, refs, append),
            true => self.keep(cell, refs, append).map(|()| 0),
        }
    }

    /// Writes a value of a store file, or of the MemStore, to the MOB file.
    fn move_to_mob_file(
        &mut self,
        cell: &CellRef<'_>,
        refs: &mut MobFileRefs,
        append: &mut dyn FnMut(&CellRef<'_>) -> Result<()>,
    ) -> Result<u64> {
        let moved = self.write_to_mob_file(cell, refs, append)?;
        if moved {
            if self.job.is_flush { self.flushed.add(cell) } else { self.to_mob.add(cell) }
        }
        Ok(if moved { cell.value().len() as u64 } else { 0 })
    }

    /// Copies a reference.
    fn keep(
        &self,
        cell: &CellRef<'_>,
        refs: &mut MobFileRefs,
        append: &mut dyn FnMut(&CellRef<'_>) -> Result<()>,
    ) -> Result<()> {
        note_reference(cell, self.store.region.table(), refs);
        append(cell)
    }

    /// Replaces a reference by its cell, or by a reference to the new MOB file.
    fn rewrite(
        &mut self,
        cell: &CellRef<'_>,
        refs: &mut MobFileRefs,
        append: &mut dyn FnMut(&CellRef<'_>) -> Result<()>,
    ) -> Result<u64> {
        let mut source = match self.sources.find(self.store.mob.reader(), cell)? {
            MobLookup::Found(source) => source,
            MobLookup::Malformed => return self.keep(cell, refs, append).map(|()| 0),
            MobLookup::Missing(_) if self.store.config.mob.discards_misses => {
                tracing::warn!(store = %self.store.label(), ?cell, "a cell whose MOB file is lost is dropped");
                return Ok(0);
            }
            MobLookup::Missing(error) => return Err(error.context("Mob compaction failed")),
        };
        let mut bytes = source.scanner.enter_block().map_err(TryError::into_failure)?;
        let found = current_cell(&source.scanner)?.with_seq_id(cell.seq_id());
        let value_bytes = found.value().len() as u64;
        if value_bytes <= self.threshold {
            self.from_mob.add(&found);
            append(&found)?;
        } else if self.is_large(&source.scanner) {
            self.keep(cell, refs, append)?;
        } else if self.write_to_mob_file(&found, refs, append)? {
            bytes += value_bytes;
        }
        self.sources.put_back(source);
        Ok(bytes)
    }

    /// Returns true if the file of this cursor is large enough to stay as it is.
    fn is_large(&self, scanner: &HFileScanner) -> bool {
        let config = self.store.config.mob;
        config.is_optimized && scanner.reader().len() >= config.file_bytes_max
    }

    /// Writes a cell to the MOB file, and a reference to the store file. Returns false if the tags
    /// of the reference would be too long: then the cell is in the store file.
    fn write_to_mob_file(
        &mut self,
        cell: &CellRef<'_>,
        refs: &mut MobFileRefs,
        append: &mut dyn FnMut(&CellRef<'_>) -> Result<()>,
    ) -> Result<bool> {
        if self.open.is_none() {
            self.open = Some(self.create()?);
        }
        let Some(file) = self.open.as_mut() else { return Ok(false) };
        let Ok(reference) = self.references.reference(cell, &file.name) else {
            return append(cell).map(|()| false);
        };
        file.writer.append(cell)?;
        append(&reference)?;
        refs.insert(&self.store.region.table().to_string(), &file.name);
        let config = self.store.config.mob;
        if config.is_optimized && !self.job.is_flush && file.writer.bytes_written() > config.file_bytes_max {
            self.finish()?;
        }
        Ok(true)
    }

    fn create(&self) -> Result<OpenMobWriter> {
        let store = self.store;
        let uuid = uuid::Uuid::new_v4().simple().to_string();
        let name = MobFileName::new(&store.region, &date_of(self.job.newest_ms), &uuid).to_string();
        let path = store.dirs.tmp.join(&name);
        store.env.fs.mkdirs(&store.dirs.tmp)?;
        let mut writer = HFileWriter::create(&*store.env.fs, &path, self.file.context.clone())?;
        if store.config.verify_writes {
            writer.digest_cells();
        }
        writer.cache_on_write(store.cache_on_write(&path, &self.file));
        store.mob.begin_file(&name);
        Ok(OpenMobWriter { writer, path, name })
    }

    /// Finishes the open MOB file, if there is one with cells.
    ///
    /// # Errors
    /// `IOException` from the file system.
    pub(in crate::store) fn finish(&mut self) -> Result<()> {
        let Some(OpenMobWriter { mut writer, path, name }) = self.open.take() else { return Ok(()) };
        if writer.entries() == 0 {
            drop(writer);
            self.store.discard_mob_files(&[path]);
            return Ok(());
        }
        // HBase writes no COMPACTION_EVENT_KEY here, so these are not in the meta of `finish`.
        let cells = i64::try_from(writer.entries()).unwrap_or(i64::MAX);
        let seq_id = self.meta.max_seq_id.unwrap_or(0);
        let is_major = if self.meta.major_compaction { u8::MAX } else { 0 };
        writer.append_file_info(keys::MAX_SEQ_ID, seq_id.to_be_bytes().to_vec());
        writer.append_file_info(keys::MAJOR_COMPACTION, vec![is_major]);
        writer.append_file_info(keys::MOB_CELLS_COUNT, cells.to_be_bytes().to_vec());
        match writer.finish(StoreFileMeta::default()) {
            Ok(written) => self.finished.push(WrittenMobFile { path, name, written }),
            Err(error) => {
                self.store.discard_mob_files(&[path]);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Moves the finished files to the MOB directory. Returns where they are. After an error, those
    /// that were moved are deleted with the others ([`MobWriter::discard`]).
    ///
    /// # Errors
    /// `IOException` from the file system.
    pub(in crate::store) fn commit(&mut self) -> Result<Vec<PathBuf>> {
        let store = self.store;
        if self.finished.is_empty() {
            self.count();
            return Ok(Vec::new());
        }
        let dir = mob_family_dir(&store.env.root, store.region.table(), &store.family.name_text());
        store.env.fs.mkdirs(&dir)?;
        for file in &mut self.finished {
            let place = dir.join(&file.name);
            store.env.fs.rename(&file.path, &place)?;
            file.path = place;
        }
        self.count();
        Ok(self.finished.drain(..).map(|file| file.path).collect())
    }

    /// Leaves a file that could not be read back where it is.
    pub(in crate::store) fn keep_for_quarantine(&mut self, path: &Path) {
        self.finished.retain(|file| file.path != path);
        self.store.mob.forget(&[path.to_owned()]);
    }

    fn count(&self) {
        let metrics = self.store.env.mob.metrics();
        if self.flushed.cells > 0 {
            metrics.count_flush(self.flushed.cells, self.flushed.bytes);
        }
        let pair = |moved: Moved| (moved.cells, moved.bytes);
        metrics.count_compacted(pair(self.to_mob), pair(self.from_mob));
    }

    /// Deletes all files, finished or not.
    pub(in crate::store) fn discard(&mut self) {
        let unfinished = self.open.take().map(|file| file.path);
        let paths: Vec<_> = self.finished.drain(..).map(|file| file.path).chain(unfinished).collect();
        self.store.discard_mob_files(&paths);
    }
}

fn current_cell(scanner: &HFileScanner) -> Result<CellRef<'_>> {
    scanner.cell().ok_or_else(|| HBaseError::io("a cursor of a MOB file without a cell"))
}

/// Returns the day of a time as `yyyyMMdd`, in the time zone of the server, as HBase does. A time
/// that has no such form is replaced by the nearest one that has.
fn date_of(ms: i64) -> String {
    let time = chrono::DateTime::from_timestamp_millis(ms.clamp(DAY_MS, LAST_DAY_MS - DAY_MS));
    let local = time.unwrap_or_default().with_timezone(&chrono::Local);
    local.format("%Y%m%d").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_has_a_day_of_eight_digits() {
        for ms in [i64::MIN, -1, 0, 1_764_201_600_000, LAST_DAY_MS, i64::MAX] {
            let date = date_of(ms);
            assert!(date.len() == 8 && date.bytes().all(|b| b.is_ascii_digit()), "{ms}: {date}");
        }
        let noon_utc = 1_764_244_800_000;
        assert!(date_of(noon_utc).starts_with("202511"), "{}", date_of(noon_utc));
    }
}
