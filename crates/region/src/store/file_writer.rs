//! The outputs of flushes and compactions: one file, or several among which the cells are divided.
//!
//! If there are several files, only the last one names the files they replace, and it is moved into
//! place last. A crash before that leaves the inputs in service, beside some files with the same
//! cells. A crash after it leaves none of the inputs. Likewise, only the last file of a flush
//! records up to which sequence id all edits are in files: before it is in place, they are
//! replayed.
//!
//! With a tracker that keeps a list, one write of the list makes all of them take effect, so the
//! order does not matter.
//!
//! Every file is read back before it is moved into place ([`ReadBack`],
//! `evenkeel.hfile.verify.writes`). Only then may the log's edits, or the files that a compaction
//! merged, be deleted. A file that differs from what was written is moved below `corrupt` (one for
//! each store, so that a disk that damages every file does not fill up with them). All files are
//! then written again, with blocks neither encoded nor compressed, which preserves a cell that an
//! encoding loses. If these cannot be read back either, the flush or compaction fails, and its
//! inputs stay. Reading back is part of the work: it yields the processors as writing does, and a
//! compaction can be cancelled during it. It waits for the throughput limit of compactions, but its
//! bytes do not count, because they come from the page cache.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use evenkeel_block_cache::{BlockCategory, FileId};
use evenkeel_common::mob::{MobFileRefs, is_reference};
use evenkeel_common::{CellBuffer, CellComparator, CellRef, ErrorKind, HBaseError, Result, TryError};
use evenkeel_hfile::{
    CacheOnWrite, CacheOnWritePolicy, Compression, DataBlockEncoding, HFileContext, HFileWriter,
    InputResidency, ReadBack, StoreFileMeta, WrittenFile, keys,
};

use super::background_priority::{BackgroundWork, run_in_background};
use super::mob::{MobJob, MobWriter, note_reference};
use super::{BackgroundPriority, CompactionThroughputController, Store, StoreLeaf, set_storage_policy};
use crate::layout;
use crate::scanner::{ScannerContext, StoreScanner};

/// Cells taken from a scanner at a time.
const CELLS_PER_STEP: usize = 256;

/// The approximate bytes that a flush writes between two checks of its urgency: less than a
/// millisecond of work.
const SLICE_BYTES: u64 = 64 << 10;

/// How fast files are written, and on which thread.
#[derive(Clone, Copy)]
pub(super) enum WriteSchedule<'a> {
    /// Without a limit, on this thread.
    Unlimited,
    /// As a flush, which yields the processors until it is urgent.
    Flush(&'a dyn BackgroundPriority),
    /// Within the throughput limit that all compactions of the server share; optionally yielding
    /// the processors.
    Compaction(&'a CompactionThroughputController, Option<&'a dyn BackgroundPriority>),
}

/// The format of a new file, and which of its blocks are cached as they are written.
#[derive(Clone)]
pub(super) struct NewFileOptions {
    pub context: HFileContext,
    pub residency: Arc<InputResidency>,
    pub data: CacheOnWritePolicy,
    pub index: CacheOnWritePolicy,
    pub bloom: CacheOnWritePolicy,
}

/// How the cells are divided among files. Rows are never cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum FileSplit {
    /// One file for all cells.
    #[default]
    One,
    /// A file for each stripe; `boundaries` has both ends, empty for open. A stripe without cells
    /// gets no file. If that must not leave a gap (not `is_exact`), the stripe before it is
    /// extended.
    Stripes { boundaries: Vec<Bytes>, is_exact: bool },
    /// New stripes of the rows from `start` to before `end`: once a stripe has `cells_each` cells,
    /// the next row begins a new one, up to `count` stripes.
    NewStripes { start: Bytes, end: Bytes, cells_each: u64, count: usize },
    /// A file for each time window. The windows begin at these times; the first is the earliest
    /// possible time.
    Windows(Vec<i64>),
}

/// The files of one flush or compaction.
#[derive(Debug, Default)]
pub(super) struct WrittenFiles {
    /// In the directory for outputs, in the order in which they are moved into place.
    pub paths: Vec<PathBuf>,
    /// The MOB files to which they refer, in place.
    pub mob: Vec<PathBuf>,
    pub cells: u64,
}

/// Why files could not be written.
enum WriteFailure {
    /// The files could not be written, or their input could not be read.
    Write(HBaseError),
    /// This file differs from what was written.
    ReadBack(PathBuf, HBaseError),
}

impl From<HBaseError> for WriteFailure {
    fn from(error: HBaseError) -> Self {
        Self::Write(error)
    }
}

/// The files to write: format, file info, and how the cells are divided.
#[derive(Clone)]
pub(super) struct WriteJob {
    pub file: NewFileOptions,
    pub meta: StoreFileMeta,
    pub split: FileSplit,
    /// `max_seq_id` for the file info of all files but the last: the sequence id up to which all
    /// edits were in files before.
    pub max_seq_id_of_parts: Option<u64>,
    /// Cells up to this sequence id lose their sequence ids.
    pub forget_seq_ids_to: Option<u64>,
    /// What is done with MOB files; `None` for a store that has nothing to do with them.
    pub mob: Option<MobJob>,
}

impl Store {
    /// Writes a scanner's cells to new files in the directory for outputs. Without cells it writes
    /// no file, unless the files replace others: then it writes one without cells. `scanner`
    /// returns the same cells on each call, except those that expired meanwhile. A failure leaves
    /// no file behind.
    ///
    /// # Errors
    /// Errors of the scanner, `IOException` from the file system, and `CorruptHFileException` if
    /// the files cannot be read back.
    pub(super) fn write_files(
        &self,
        scanner: &dyn Fn() -> Result<StoreScanner<StoreLeaf>>,
        mut job: WriteJob,
        schedule: WriteSchedule<'_>,
    ) -> Result<WrittenFiles> {
        self.env.fs.mkdirs(&self.dirs.output)?;
        // The blocks are stored by the policy of the directory in which they are written.
        if self.dirs.output != self.dirs.family {
            set_storage_policy(&*self.env.fs, &self.dirs.output, &self.config);
        }
        match self.write_and_read_back(scanner()?, job.clone(), schedule) {
            Ok(written) => return Ok(written),
            Err(WriteFailure::Write(error)) => return Err(error),
            Err(WriteFailure::ReadBack(path, error)) => self.quarantine(&path, &error),
        }
        job.file.disable_encoding();
        match self.write_and_read_back(scanner()?, job, schedule) {
            Ok(written) => Ok(written),
            Err(WriteFailure::Write(error)) => Err(error),
            Err(WriteFailure::ReadBack(path, error)) => {
                self.quarantine(&path, &error);
                Err(error)
            }
        }
    }

    fn write_and_read_back(
        &self,
        scanner: StoreScanner<StoreLeaf>,
        job: WriteJob,
        schedule: WriteSchedule<'_>,
    ) -> Result<WrittenFiles, WriteFailure> {
        let mob = job.mob.map(|mob| MobWriter::new(self, mob, &job.file, &job.meta)).transpose()?;
        let mut outputs = MultiFileWriter {
            store: self,
            job,
            mob,
            open: Vec::new(),
            written: WrittenFiles::default(),
            unread: Vec::new(),
        };
        let done = outputs.write_all(scanner, schedule).and_then(|()| outputs.finish());
        let read_back = done.map_err(WriteFailure::Write).and_then(|()| outputs.read_back(schedule));
        match read_back.and_then(|()| Ok(outputs.commit_mob_files()?)) {
            Ok(()) => Ok(outputs.written),
            Err(failure) => {
                if let WriteFailure::ReadBack(path, _) = &failure {
                    outputs.keep_for_quarantine(path);
                    self.evict_blocks(path);
                }
                outputs.discard();
                Err(failure)
            }
        }
    }

    /// Reads a newly written file back.
    pub(super) fn read_back(
        &self,
        path: &Path,
        written: WrittenFile,
        schedule: WriteSchedule<'_>,
    ) -> Result<()> {
        let mut file = ReadBack::open(&*self.env.fs, path, written)?;
        let mut slice = || -> Result<bool> {
            let mut bytes = 0;
            while bytes < SLICE_BYTES {
                match file.step()? {
                    Some(more) => bytes += more,
                    None => return Ok(false),
                }
            }
            Ok(true)
        };
        match schedule {
            WriteSchedule::Unlimited => {
                while slice()? {}
                Ok(())
            }
            WriteSchedule::Flush(priority) => run_in_background(BackgroundWork::Flush, priority, slice),
            WriteSchedule::Compaction(throughput, priority) => {
                let mut throttled = || match slice()? {
                    true if throughput.controller().control(0, || self.cancelled.load(Ordering::Relaxed)) => {
                        Ok(true)
                    }
                    true => Err(self.error("the compaction is cancelled")),
                    false => Ok(false),
                };
                match priority {
                    Some(priority) => run_in_background(BackgroundWork::Compaction, priority, throttled),
                    None => {
                        while throttled()? {}
                        Ok(())
                    }
                }
            }
        }
    }

    /// Moves a file that could not be read back to the directory of corrupt files. Keeps only the
    /// first of a store.
    fn quarantine(&self, path: &Path, error: &HBaseError) {
        let dir = self.env.root.join(layout::CORRUPT_DIR);
        let kept = dir.join(format!("{}-{}", self.region.encoded_name(), self.family.name_text()));
        let fs = &self.env.fs;
        let moved = fs.exists(&kept).and_then(|is_there| match is_there {
            true => fs.delete(path).map(drop),
            false => fs.mkdirs(&dir).and_then(|()| fs.rename(path, &kept)),
        });
        let (store, kept) = (self.label(), kept.display());
        tracing::error!(
            %store, %error, %kept,
            "a newly written file could not be read back; it is not used, and its inputs stay"
        );
        if let Err(error) = moved {
            tracing::warn!(%store, path = %path.display(), %error, "the corrupt file could not be moved");
        }
    }

    pub(super) fn cache_on_write(&self, path: &Path, file: &NewFileOptions) -> CacheOnWrite {
        let keeps_data = self.env.cache.caches_category(BlockCategory::Data);
        CacheOnWrite {
            cache: Arc::clone(&self.env.cache),
            file: file_id(path),
            in_memory: self.family.in_memory(),
            residency: Arc::clone(&file.residency),
            data: if keeps_data { file.data } else { CacheOnWritePolicy::Never },
            compressed_data: self.config.cache.compressed,
            index: file.index,
            bloom: file.bloom,
        }
    }

    /// Evicts the blocks of a file that will not be read.
    pub(super) fn evict_blocks(&self, path: &Path) {
        self.env.cache.evict_file(file_id(path));
    }
}

/// The file's identifier in the cache.
fn file_id(path: &Path) -> FileId {
    FileId::of_name(path.file_name().and_then(|name| name.to_str()).unwrap_or_default())
}

impl NewFileOptions {
    /// Writes blocks without encoding and compression.
    fn disable_encoding(&mut self) {
        self.context.encoding = DataBlockEncoding::None;
        self.context.compression = Compression::None;
    }
}

struct MultiFileWriter<'a> {
    store: &'a Store,
    job: WriteJob,
    mob: Option<MobWriter<'a>>,
    /// The last stripe, or all windows that have cells.
    open: Vec<OpenFile>,
    written: WrittenFiles,
    /// The expected contents of the files of `written`; empty once those are read back.
    unread: Vec<WrittenFile>,
}

/// A file being written.
struct OpenFile {
    writer: HFileWriter,
    path: PathBuf,
    /// The index of its stripe or window.
    at: usize,
    /// The rows of its stripe.
    start: Bytes,
    end: Bytes,
    /// The row after which the next stripe begins, once this one has enough cells.
    last_row: Option<Bytes>,
    /// The MOB files to which its cells refer.
    refs: MobFileRefs,
}

/// The input of files: a scanner, and the cells read from it.
struct InputCursor {
    scanner: StoreScanner<StoreLeaf>,
    /// Empty between two steps.
    cells: CellBuffer,
    limits: ScannerContext,
    /// Bytes of cells written so far.
    written: u64,
    /// Bytes counted by the throughput limit.
    throttled: u64,
}

impl MultiFileWriter<'_> {
    fn write_all(&mut self, scanner: StoreScanner<StoreLeaf>, schedule: WriteSchedule<'_>) -> Result<()> {
        let mut input = InputCursor {
            scanner,
            cells: CellBuffer::new(),
            limits: ScannerContext::unlimited().with_batch(CELLS_PER_STEP).with_pauses(),
            written: 0,
            throttled: 0,
        };
        match schedule {
            WriteSchedule::Unlimited => {
                while self.write_slice(&mut input)?.1 {}
                Ok(())
            }
            WriteSchedule::Flush(priority) => run_in_background(BackgroundWork::Flush, priority, || {
                let (bytes, is_more) = self.write_slice(&mut input)?;
                let progress = &self.store.flush_progress;
                progress.wait_for_limit(|| priority.throttle(bytes, &|| priority.is_urgent()));
                Ok(is_more)
            }),
            WriteSchedule::Compaction(throughput, None) => {
                while self.write_throttled(&mut input, throughput)? {}
                Ok(())
            }
            WriteSchedule::Compaction(throughput, Some(priority)) => {
                run_in_background(BackgroundWork::Compaction, priority, || {
                    self.write_throttled(&mut input, throughput)
                })
            }
        }
    }

    /// Writes a step of a compaction, and waits for the throughput limit. Returns false at the end.
    fn write_throttled(
        &mut self,
        input: &mut InputCursor,
        throughput: &CompactionThroughputController,
    ) -> Result<bool> {
        let (progress, before) = (&self.store.compaction_progress, self.written.cells);
        let Some(bytes) = self.write_step(input)? else { return Ok(false) };
        progress.advance(self.written.cells - before);
        input.written += bytes;
        let so_far = input.written.max(input.limits.block_size);
        let bytes = so_far - std::mem::replace(&mut input.throttled, so_far);
        let is_cancelled = || self.store.cancelled.load(Ordering::Relaxed);
        match progress.wait_for_limit(|| throughput.controller().control(bytes, is_cancelled)) {
            true => Ok(true),
            false => Err(self.store.error("the compaction is cancelled")),
        }
    }

    /// Writes about [`SLICE_BYTES`]. Returns the bytes written, and whether there is more.
    fn write_slice(&mut self, input: &mut InputCursor) -> Result<(u64, bool)> {
        let (mut bytes, before) = (0, self.written.cells);
        let is_more = loop {
            match self.write_step(input)? {
                Some(more) => bytes += more,
                None => break false,
            }
            if bytes >= SLICE_BYTES {
                break true;
            }
        };
        self.store.flush_progress.advance(self.written.cells - before);
        Ok((bytes, is_more))
    }

    /// Writes a row or a part of it; all of its cells may have been dropped. Returns the bytes, or
    /// `None` at the end.
    fn write_step(&mut self, input: &mut InputCursor) -> Result<Option<u64>> {
        let InputCursor { scanner, cells, limits, .. } = input;
        if scanner.is_done() {
            return Ok(None);
        }
        limits.start_result();
        scanner.next(cells, limits, &mut None).map_err(TryError::into_failure)?;
        let mob_bytes =
            if self.mob.is_some() { self.write_mob_cells(cells)? } else { self.write_cells(cells)? };
        self.written.cells += cells.len() as u64;
        let bytes = cells.encoded_len() as u64 + mob_bytes;
        cells.clear();
        Ok(Some(bytes))
    }

    fn write_cells(&mut self, cells: &CellBuffer) -> Result<u64> {
        for cell in cells.iter() {
            let part = self.output_index_of(&cell)?;
            let Some(OpenFile { writer, refs, .. }) = self.open.get_mut(part) else {
                return Err(self.store.error("a cell of no open file"));
            };
            if is_reference(&cell) {
                note_reference(&cell, self.store.region.table(), refs);
            }
            match self.job.forget_seq_ids_to {
                Some(limit) if cell.seq_id() <= limit => writer.append(&cell.with_seq_id(0))?,
                _ => writer.append(&cell)?,
            }
        }
        Ok(0)
    }

    /// As `write_cells`, of a store with MOB files. Returns the bytes of values that were read from
    /// or written to them.
    fn write_mob_cells(&mut self, cells: &CellBuffer) -> Result<u64> {
        let (mut bytes, limit) = (0, self.job.forget_seq_ids_to);
        for cell in cells.iter() {
            let part = self.output_index_of(&cell)?;
            let (Some(OpenFile { writer, refs, .. }), Some(mob)) = (self.open.get_mut(part), &mut self.mob)
            else {
                return Err(self.store.error("a cell of no open file"));
            };
            bytes += mob.write(&cell, refs, &mut |cell| match limit {
                Some(limit) if cell.seq_id() <= limit && !is_reference(cell) => {
                    writer.append(&cell.with_seq_id(0))
                }
                _ => writer.append(cell),
            })?;
        }
        Ok(bytes)
    }

    /// Returns the index in `open` of the file that a cell belongs to.
    fn output_index_of(&mut self, cell: &CellRef<'_>) -> Result<usize> {
        match &self.job.split {
            FileSplit::One if !self.open.is_empty() => Ok(0),
            FileSplit::One => self.begin(0, Bytes::new(), Bytes::new()),
            FileSplit::Windows(starts) => {
                let at = starts.partition_point(|start| *start <= cell.timestamp()).saturating_sub(1);
                match self.open.iter().position(|part| part.at == at) {
                    Some(part) => Ok(part),
                    None => self.begin(at, Bytes::new(), Bytes::new()),
                }
            }
            FileSplit::Stripes { .. } => self.stripe_of(cell),
            FileSplit::NewStripes { .. } => self.new_stripe_of(cell),
        }
    }

    fn stripe_of(&mut self, cell: &CellRef<'_>) -> Result<usize> {
        let FileSplit::Stripes { boundaries, is_exact } = &self.job.split else { return Ok(0) };
        let comparator = self.store.info.comparator;
        let ends = boundaries.get(1..).unwrap_or_default();
        if let Some(part) = self.open.last()
            && ends.get(part.at).is_some_and(|end| is_before(comparator, cell.row(), end))
        {
            return Ok(0);
        }
        let from = self.open.last().map_or(0, |part| part.at + 1);
        let mut rest = ends.iter().skip(from);
        let at = rest.position(|end| is_before(comparator, cell.row(), end));
        let at = at.map_or(ends.len(), |at| from + at);
        let (Some(start), Some(end)) = (boundaries.get(at).cloned(), ends.get(at).cloned()) else {
            return Err(self.store.error("a row behind the last stripe"));
        };
        let is_first = !*is_exact && self.open.is_empty();
        let start = if is_first { boundaries.first().cloned().unwrap_or(start) } else { start };
        let is_exact = *is_exact;
        if let Some(before) = self.open.last_mut().filter(|_| !is_exact) {
            before.end = start.clone();
        }
        self.end_part(false)?;
        self.begin(at, start, end)
    }

    fn new_stripe_of(&mut self, cell: &CellRef<'_>) -> Result<usize> {
        let FileSplit::NewStripes { start, end, cells_each, count } = &self.job.split else { return Ok(0) };
        let (cells_each, count, end) = (*cells_each, *count, end.clone());
        let finished = self.written.paths.len();
        let Some(part) = self.open.last_mut() else {
            let start = start.clone();
            return self.begin(0, start, end);
        };
        match &part.last_row {
            Some(row) if *row != cell.row() => {
                let start = Bytes::copy_from_slice(cell.row());
                part.end = start.clone();
                self.end_part(false)?;
                return self.begin(finished + 1, start, end);
            }
            None if part.writer.entries() + 1 >= cells_each && finished + 1 < count => {
                part.last_row = Some(Bytes::copy_from_slice(cell.row()));
            }
            _ => {}
        }
        Ok(0)
    }

    fn begin(&mut self, at: usize, start: Bytes, end: Bytes) -> Result<usize> {
        let store = self.store;
        let path = store.dirs.output.join(uuid::Uuid::new_v4().simple().to_string());
        let file = &self.job.file;
        let mut writer = HFileWriter::create(&*store.env.fs, &path, file.context.clone())?;
        if store.config.verify_writes {
            writer.digest_cells();
        }
        writer.cache_on_write(store.cache_on_write(&path, file));
        self.open.push(OpenFile {
            writer,
            path,
            at,
            start,
            end,
            last_row: None,
            refs: MobFileRefs::default(),
        });
        Ok(self.open.len() - 1)
    }

    /// Finishes the oldest open file.
    fn end_part(&mut self, is_last: bool) -> Result<()> {
        if self.open.is_empty() {
            return Ok(());
        }
        let mut part = self.open.remove(0);
        if self.store.family.is_mob() || part.writer.has_tags() {
            part.writer.append_file_info(keys::MOB_FILE_REFS, part.refs.encode());
        }
        let mut meta = self.job.meta.clone();
        if !is_last {
            meta.compacted_files.clear();
            meta.max_seq_id = self.job.max_seq_id_of_parts.or(meta.max_seq_id);
        }
        if matches!(self.job.split, FileSplit::Stripes { .. } | FileSplit::NewStripes { .. }) {
            meta.stripe = Some((part.start, part.end));
        }
        self.written.paths.push(part.path);
        self.unread.push(part.writer.finish(meta)?);
        Ok(())
    }

    /// Reads the files back, unless that is disabled.
    fn read_back(&mut self, schedule: WriteSchedule<'_>) -> Result<(), WriteFailure> {
        let unread = std::mem::take(&mut self.unread);
        let mob = self.mob.as_ref().map(|mob| &mob.finished[..]).unwrap_or_default();
        if !self.store.config.verify_writes {
            return Ok(());
        }
        let store_files = self.written.paths.iter().zip(unread);
        let mob_files = mob.iter().map(|file| (&file.path, file.written.clone()));
        for (path, written) in store_files.chain(mob_files) {
            self.store.read_back(path, written, schedule).map_err(|error| match error.kind() {
                ErrorKind::CorruptHFile => WriteFailure::ReadBack(path.clone(), error),
                _ => WriteFailure::Write(error),
            })?;
        }
        Ok(())
    }

    /// Moves the MOB files into place, before a store file that refers to them can be.
    fn commit_mob_files(&mut self) -> Result<()> {
        if let Some(mob) = &mut self.mob {
            self.written.mob = mob.commit()?;
        }
        Ok(())
    }

    /// Excludes a file from those that are deleted.
    fn keep_for_quarantine(&mut self, path: &Path) {
        self.written.paths.retain(|other| other != path);
        if let Some(mob) = &mut self.mob {
            mob.keep_for_quarantine(path);
        }
    }

    fn finish(&mut self) -> Result<()> {
        self.mob.as_mut().map_or(Ok(()), MobWriter::finish)?;
        if self.open.is_empty() && !self.job.meta.compacted_files.is_empty() {
            let (start, end) = self.rows_of_empty_file();
            self.begin(0, start, end)?;
        }
        if let (FileSplit::Stripes { boundaries, is_exact: false }, Some(part)) =
            (&self.job.split, self.open.last_mut())
        {
            part.end = boundaries.last().cloned().unwrap_or_default();
        }
        self.open.sort_by_key(|part| part.at);
        while !self.open.is_empty() {
            self.end_part(self.open.len() == 1)?;
        }
        Ok(())
    }

    /// Returns the rows of a file without cells, which must still be those of a stripe.
    fn rows_of_empty_file(&self) -> (Bytes, Bytes) {
        let nth = |boundaries: &[Bytes], at: usize| boundaries.get(at).cloned().unwrap_or_default();
        match &self.job.split {
            FileSplit::NewStripes { start, end, .. } => (start.clone(), end.clone()),
            FileSplit::Stripes { boundaries, is_exact: true } => {
                let last = boundaries.len().saturating_sub(2);
                (nth(boundaries, last), nth(boundaries, last + 1))
            }
            _ => (Bytes::new(), Bytes::new()),
        }
    }

    /// Deletes all files, finished or not.
    fn discard(&mut self) {
        self.mob.iter_mut().for_each(MobWriter::discard);
        let unfinished = self.open.drain(..).map(|part| part.path);
        let paths: Vec<_> = self.written.paths.drain(..).chain(unfinished).collect();
        for path in paths {
            self.store.evict_blocks(&path);
            if let Err(error) = self.store.env.fs.delete(&path) {
                tracing::warn!(path = %path.display(), %error, "an unfinished file could not be deleted");
            }
        }
    }
}

/// Returns true if a row is before an end, which is open if it is empty.
fn is_before(comparator: CellComparator, row: &[u8], end: &[u8]) -> bool {
    end.is_empty() || comparator.compare_rows(row, end).is_lt()
}

#[cfg(test)]
mod tests {
    use evenkeel_block_cache::{BlockCache, CacheStats, LruBlockCache};
    use evenkeel_common::{CellType, Configuration};

    use super::super::testing::{TestStore, env, family, region};
    use super::super::{Store, StoreCacheConfig};
    use super::*;
    use crate::operations::Scan;

    /// The cache's statistics after a flush, and after a compaction of two cached files; nothing is
    /// read after either.
    fn kept_by_flush_and_compaction(compressed: &str) -> [CacheStats; 2] {
        let (mut env, clock) = env();
        let cache = Arc::new(LruBlockCache::new(8 << 20));
        env.cache = Arc::clone(&cache) as _;
        let mut conf = Configuration::new();
        conf.set("hbase.rs.cacheblocksonwrite", "true");
        conf.set("hbase.block.data.cachecompressed", compressed);
        env.config.cache = StoreCacheConfig::from_configuration(&conf).expect("read");
        let family = family(b"f", &[("BLOCKSIZE", "1024"), ("COMPRESSION", "SNAPPY")]);
        let store = Store::open(&env, family, &region()).expect("opens");
        let mut test = TestStore { env, clock, store, seq_id: 0 };
        let fill = |test: &mut TestStore| {
            let value = "v".repeat(60);
            for row in 0..300 {
                test.add(&format!("row{row:05}"), "q", 1, CellType::Put, &value);
            }
            test.flush(u64::MAX);
            assert_eq!(test.scan(Scan::default()).len(), 300);
            cache.stats()
        };
        let (flushed, _) = (fill(&mut test), fill(&mut test));
        test.compact(true, u64::MAX).expect("compacted");
        assert_eq!((test.scan(Scan::default()).len(), test.store.files().len()), (300, 1));
        [flushed, cache.stats()]
    }

    #[test]
    fn packed_blocks_are_kept_as_they_are_written() {
        let [plain, packed] = ["false", "true"].map(kept_by_flush_and_compaction);
        for (plain, packed) in plain.into_iter().zip(packed) {
            assert_eq!((packed.misses[0], packed.blocks), (0, plain.blocks));
            assert!(packed.blocks > 10 && packed.bytes < plain.bytes * 3 / 4, "{packed:?}, {plain:?}");
        }
    }
}
