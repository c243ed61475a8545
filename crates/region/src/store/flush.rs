//! Flushes: frozen segments become a file.
//!
//! ```text
//! start_flush      pipeline and active segment -> frozen, a new one begins   caller keeps writers out
//! flush_snapshot   frozen segments -> .tmp/<family>/<uuid>                   readers and writers go on
//! install_flush    rename into the family's directory, open
//! swap_flush       frozen segments out, file in, at once
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_block_cache::{BlockCategory, FileId};
use evenkeel_common::{CellBuffer, Result};
use evenkeel_hfile::{
    BloomType, CacheOnWrite, Compression, DataBlockEncoding, DataOnWrite, HFileContext, HFileWriter,
    StoreFileMeta,
};

use super::{CompactionPace, Store, StoreFile, sorted};
use crate::memstore::{Segment, SegmentScanner};
use crate::scanner::matcher::{CompactionMode, QueryMatcher};
use crate::scanner::store_scanner::{Leaf, Start};
use crate::scanner::{ScannerContext, StoreScanner};

/// Cells taken from a scanner at a time.
const CELLS_PER_STEP: usize = 256;

/// How a new file is written, and which of its blocks are kept in the cache as they are written.
pub(super) struct NewFile {
    pub context: HFileContext,
    pub data: DataOnWrite,
    pub index: bool,
    pub bloom: bool,
}

impl Store {
    /// Freezes the pipeline and the active segment; false when there is nothing to flush. The caller keeps writers out
    /// meanwhile.
    pub fn start_flush(&self) -> bool {
        self.in_memory.iter().for_each(|in_memory| in_memory.forget());
        self.replace_state(|state| {
            state.frozen.append(&mut state.pipeline);
            if !state.active.is_empty() {
                let next = Segment::new(self.info.comparator, Arc::clone(&self.env.chunks));
                state.frozen.push(std::mem::replace(&mut state.active, next));
            }
        });
        !self.state.load().frozen.is_empty()
    }

    /// Writes the frozen segments to a file beside the family; `None` when nothing of them is worth keeping.
    ///
    /// `flush_seq_id` is at least the sequence id of each cell, and no reader reads at a point before
    /// `smallest_read_point`.
    ///
    /// # Errors
    /// What the file system says; nothing changed then.
    pub fn flush_snapshot(&self, flush_seq_id: u64, smallest_read_point: u64) -> Result<Option<PathBuf>> {
        let frozen = self.state.load().frozen.clone();
        if frozen.is_empty() {
            return Ok(None);
        }
        let leaves =
            frozen.into_iter().rev().map(|segment| Leaf::Segment(SegmentScanner::new(segment, u64::MAX)));
        let mode =
            CompactionMode { drop_deletes: false, smallest_read_point, earliest_put_timestamp: i64::MIN };
        let scanner = self.compaction_scanner(leaves.collect(), mode)?;
        let context = self.hfile_context(true, true)?;
        let meta = StoreFileMeta { max_seq_id: Some(flush_seq_id), ..StoreFileMeta::default() };
        let cache = self.config.cache;
        let data = if cache.data_on_write { DataOnWrite::Always } else { DataOnWrite::Never };
        let file = NewFile { context, data, index: cache.index_on_write, bloom: cache.bloom_on_write };
        let written = self.write_file(scanner, file, meta, None, None)?.map(|(path, _)| path);
        self.flushed.lock().clone_from(&written);
        Ok(written)
    }

    /// Moves the file of a flush into the family's directory, and swaps it for the frozen segments. Gives the names of
    /// the files.
    ///
    /// # Errors
    /// What the file system says; the frozen segments stay then.
    pub fn commit_flush(&self, file: Option<PathBuf>) -> Result<Vec<String>> {
        let file = self.install_flush(file)?;
        Ok(self.swap_flush(file))
    }

    /// The first half of [`Store::commit_flush`]: all of its I/O. Changes nothing for readers.
    ///
    /// # Errors
    /// As [`Store::commit_flush`].
    pub fn install_flush(&self, file: Option<PathBuf>) -> Result<Option<Arc<StoreFile>>> {
        file.map(|path| self.install(&path)).transpose()
    }

    /// The second half of [`Store::commit_flush`]: replaces the state.
    pub fn swap_flush(&self, file: Option<Arc<StoreFile>>) -> Vec<String> {
        *self.flushed.lock() = None;
        let names = file.iter().map(|file| file.name().to_owned()).collect();
        self.replace_state(|state| {
            state.frozen.clear();
            state.files.extend(file);
            state.files = sorted(std::mem::take(&mut state.files));
        });
        names
    }

    /// Gives a flush up: the frozen segments stay readable and are part of the next flush. Its file goes, also when it
    /// is in the family's directory already: found there by the next start, it would bring back what was deleted since.
    pub fn abort_flush(&self) {
        if let Some(path) = self.flushed.lock().take() {
            self.discard(&path);
        }
    }

    /// Removes a file written by a flush or compaction that readers never saw, from wherever it has come to.
    pub(super) fn discard(&self, path: &Path) {
        self.forget_blocks(path);
        let installed = path.file_name().map(|name| self.dirs.family.join(name));
        for path in std::iter::once(path).chain(installed.as_deref()) {
            if let Err(error) = self.env.fs.delete(path) {
                tracing::warn!(path = %path.display(), %error, "the output of a failed flush or compaction stays");
            }
        }
    }

    /// Moves a finished file from `.tmp` into the family's directory and opens it.
    pub(super) fn install(&self, path: &Path) -> Result<Arc<StoreFile>> {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| self.error(format!("{} has no name", path.display())))?;
        self.env.fs.rename(path, &self.dirs.family.join(name))?;
        let file = Arc::new(StoreFile::open_new(self, name)?);
        self.prefetch(&file);
        Ok(file)
    }

    pub(super) fn compaction_scanner(&self, leaves: Vec<Leaf>, mode: CompactionMode) -> Result<StoreScanner> {
        let matcher = QueryMatcher::for_compaction(&self.info, mode, self.env.clock.now_ms());
        StoreScanner::new(leaves, matcher, self.info.comparator, Start::ALL)
    }

    /// Settings of new files, by the family's attributes.
    pub(super) fn hfile_context(&self, includes_mvcc: bool, includes_tags: bool) -> Result<HFileContext> {
        let family = &self.family;
        let prefix =
            family.configuration().get("RowPrefixBloomFilter.prefix_length").and_then(|n| n.parse().ok());
        let unknown = |what: &str, name: &str| self.error(format!("{what} {name} is not known"));
        let encoding = family.data_block_encoding();
        let compression = family.compression();
        let bloom = family.bloom_type();
        Ok(HFileContext {
            encoding: DataBlockEncoding::from_name(encoding)
                .ok_or_else(|| unknown("data block encoding", encoding))?,
            compression: Compression::from_name(compression)
                .ok_or_else(|| unknown("compression", compression))?,
            bloom: BloomType::from_name(bloom, prefix).ok_or_else(|| unknown("bloom filter type", bloom))?,
            block_bytes: family.block_bytes(),
            includes_mvcc,
            includes_tags,
            compress_tags: !family.text("COMPRESS_TAGS").is_some_and(|v| v.eq_ignore_ascii_case("false")),
            comparator: self.info.comparator,
            create_time_ms: self.env.clock.now_ms(),
            zstd_framed: self.config.zstd_framed,
            checksum: self.config.checksum,
            bytes_per_checksum: self.config.bytes_per_checksum,
            ..HFileContext::default()
        })
    }

    /// Writes what a scanner gives to a new file in `.tmp`; `None` when it gives nothing, unless the file is to replace
    /// others. Cells up to `forget_seq_ids_to` lose their sequence ids. A compaction has a `pace`. Gives the file's path and its number of cells.
    pub(super) fn write_file(
        &self,
        scanner: StoreScanner,
        file: NewFile,
        meta: StoreFileMeta,
        forget_seq_ids_to: Option<u64>,
        pace: Option<&CompactionPace>,
    ) -> Result<Option<(PathBuf, u64)>> {
        let path = self.dirs.tmp.join(uuid::Uuid::new_v4().simple().to_string());
        let keeps_empty = !meta.compacted_files.is_empty();
        let written = self.write_file_at(&path, scanner, file, meta, forget_seq_ids_to, pace);
        if written.is_err() {
            self.forget_blocks(&path);
        }
        if !matches!(written, Ok(cells) if cells > 0 || keeps_empty)
            && let Err(error) = self.env.fs.delete(&path)
        {
            tracing::warn!(path = %path.display(), %error, "an unfinished file stays");
        }
        Ok(Some((path, written?)).filter(|(_, cells)| *cells > 0 || keeps_empty))
    }

    fn cache_on_write(&self, path: &Path, file: &NewFile) -> CacheOnWrite {
        let keeps_data = self.env.cache.keeps(BlockCategory::Data) && !self.config.cache.compressed;
        CacheOnWrite {
            cache: Arc::clone(&self.env.cache),
            file: file_id(path),
            in_memory: self.family.in_memory(),
            data: if keeps_data { file.data.clone() } else { DataOnWrite::Never },
            index: file.index,
            bloom: file.bloom,
        }
    }

    /// Makes the cache forget a file that will not be read.
    fn forget_blocks(&self, path: &Path) {
        self.env.cache.evict_file(file_id(path));
    }

    fn write_file_at(
        &self,
        path: &Path,
        mut scanner: StoreScanner,
        file: NewFile,
        meta: StoreFileMeta,
        forget_seq_ids_to: Option<u64>,
        pace: Option<&CompactionPace>,
    ) -> Result<u64> {
        self.env.fs.mkdirs(&self.dirs.tmp)?;
        let kept = self.cache_on_write(path, &file);
        let mut writer = HFileWriter::create(&*self.env.fs, path, file.context)?;
        writer.cache_on_write(kept);
        let mut cells = CellBuffer::new();
        let mut limits = ScannerContext::unlimited().with_batch(CELLS_PER_STEP);
        while !scanner.is_done() {
            limits.start_result();
            scanner.next(&mut cells, &mut limits, &mut None)?;
            for cell in cells.iter() {
                match forget_seq_ids_to {
                    Some(limit) if cell.seq_id() <= limit => writer.append(&cell.with_seq_id(0))?,
                    _ => writer.append(&cell)?,
                }
            }
            if pace.is_some_and(|pace| !pace.wrote(cells.bytes().len() as u64, &self.cancelled)) {
                return Err(self.error("the compaction is cancelled"));
            }
            cells.clear();
        }
        let cells = writer.entries();
        if cells > 0 || !meta.compacted_files.is_empty() {
            writer.finish(meta)?;
        }
        Ok(cells)
    }
}

/// The cache's name of a file.
fn file_id(path: &Path) -> FileId {
    FileId::of_name(path.file_name().and_then(|name| name.to_str()).unwrap_or_default())
}
