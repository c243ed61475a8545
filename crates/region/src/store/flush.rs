//! Flushes: frozen segments become a file, or one for each stripe.
//!
//! ```text
//! start_flush      pipeline and active segment -> frozen, with a new one   caller excludes writers
//! flush_snapshot   frozen segments -> .tmp/<family>/<uuid>, read back      writers continue
//! install_flush    rename into the family's directory, open, commit to the tracker
//! swap_flush       frozen segments out, files in, at once
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_common::mob::NO_REFS;
use evenkeel_common::{Result, TryError};
use evenkeel_hfile::{
    BloomType, CacheOnWritePolicy, Compression, DataBlockEncoding, HFileContext, HFileWriter, StoreFileMeta,
    check_compression_supported, keys,
};

use super::background_priority::BACKGROUND_BYTES_MIN;
use super::config::BLOCK_BYTES_MAX;
use super::file_writer::{NewFileOptions, WriteJob, WriteSchedule};
use super::mob::MobJob;
use super::{BackgroundPriority, Store, StoreFile, StoreLeaf, listed, sorted};
use crate::memstore::SegmentScanner;
use crate::scanner::StoreScanner;
use crate::scanner::matcher::{CompactionMode, QueryMatcher};
use crate::scanner::store_scanner::ScanStart;
use crate::store_file_tracker::ListedFile;

impl Store {
    /// Freezes the pipeline and the active segment. Returns false if there is nothing to flush. The
    /// caller excludes writers meanwhile.
    pub fn start_flush(&self) -> bool {
        self.in_memory.iter().for_each(|in_memory| in_memory.reset_strategy());
        self.replace_state(|state| {
            state.frozen.append(&mut state.pipeline);
            if !state.active.is_empty() {
                let next = state.active.next();
                state.frozen.push(std::mem::replace(&mut state.active, next));
            }
        });
        !self.state.load().frozen.is_empty()
    }

    /// Writes the frozen segments to files in the temporary directory, in the order in which they
    /// must be moved into place. Writes no file if no cell must be kept.
    ///
    /// `flush_seq_id` is at least the sequence id of each cell, and no reader reads at a point
    /// below `smallest_read_point`.
    ///
    /// # Errors
    /// `IOException` from the file system, and `CorruptHFileException` if the files cannot be read
    /// back; the store is unchanged then.
    pub fn flush_snapshot(
        &self,
        flush_seq_id: u64,
        smallest_read_point: u64,
        priority: Option<&dyn BackgroundPriority>,
    ) -> Result<Vec<PathBuf>> {
        let state = self.state.load();
        let (frozen, size) = (state.frozen.clone(), self.snapshot_size());
        if frozen.is_empty() {
            return Ok(Vec::new());
        }
        let split = self.split_of_flush(&state.files, size.cells);
        drop(state);
        let scanner = || {
            let leaf =
                |segment: &Arc<_>| StoreLeaf::Segment(SegmentScanner::new(Arc::clone(segment), u64::MAX));
            let mode =
                CompactionMode { drop_deletes: false, smallest_read_point, earliest_put_timestamp: i64::MIN };
            self.compaction_scanner(frozen.iter().rev().map(leaf).collect(), mode)
        };
        let context = self.hfile_context(true, true)?;
        let meta = StoreFileMeta { max_seq_id: Some(flush_seq_id), ..StoreFileMeta::default() };
        let file = self.flushed_file(context);
        let max_seq_id_of_parts = Some(self.max_seq_id());
        let newest_ms = frozen.iter().map(|segment| segment.max_timestamp()).max().unwrap_or(0);
        let mob = self.mob_job(MobJob { newest_ms, rewrites: false, is_flush: true });
        let job = WriteJob { file, meta, split, max_seq_id_of_parts, forget_seq_ids_to: None, mob };
        let schedule = match priority {
            Some(priority) if size.data_bytes >= BACKGROUND_BYTES_MIN => WriteSchedule::Flush(priority),
            _ => WriteSchedule::Unlimited,
        };
        let running = self.flush_progress.begin(size.cells);
        let written = self.write_files(&scanner, job, schedule)?;
        drop(running);
        self.flushed.lock().clone_from(&written.paths);
        *self.flushed_mob.lock() = written.mob;
        Ok(written.paths)
    }

    fn flushed_file(&self, context: HFileContext) -> NewFileOptions {
        let cache = self.config.cache;
        NewFileOptions {
            context,
            residency: Arc::default(),
            data: CacheOnWritePolicy::when(cache.data_on_write, CacheOnWritePolicy::Never),
            index: CacheOnWritePolicy::when(cache.index_on_write, CacheOnWritePolicy::Never),
            bloom: CacheOnWritePolicy::when(cache.bloom_on_write, CacheOnWritePolicy::Never),
        }
    }

    /// Moves the files of a flush into the family's directory, and swaps them for the frozen
    /// segments. Returns their names.
    ///
    /// # Errors
    /// `IOException` from the file system; the frozen segments stay then.
    pub fn commit_flush(&self, files: &[PathBuf]) -> Result<Vec<String>> {
        let files = self.install_flush(files)?;
        Ok(self.swap_flush(files))
    }

    /// The first half of [`Store::commit_flush`]: all of its I/O. It does not affect readers.
    ///
    /// # Errors
    /// As [`Store::commit_flush`].
    pub fn install_flush(&self, files: &[PathBuf]) -> Result<Vec<Arc<StoreFile>>> {
        let installed = files.iter().map(|path| self.install(path)).collect::<Result<Vec<_>>>()?;
        self.tracker.commit(&[], &listed(&installed))?;
        Ok(installed)
    }

    /// The second half of [`Store::commit_flush`]: replaces the state.
    pub fn swap_flush(&self, files: Vec<Arc<StoreFile>>) -> Vec<String> {
        self.flushed.lock().clear();
        self.flushed_mob.lock().clear();
        let names = files.iter().map(|file| file.name().to_owned()).collect();
        let committed = files.clone();
        self.replace_state(|state| {
            state.frozen.clear();
            state.files.extend(files);
            state.files = sorted(std::mem::take(&mut state.files));
        });
        self.settle_mob_files(&committed);
        names
    }

    /// Abandons a flush: the frozen segments stay readable and are part of the next flush. Deletes
    /// its files, even those already in the family's directory, because a later start would find
    /// them and bring back cells deleted since.
    pub fn abort_flush(&self) {
        let flushed = std::mem::take(&mut *self.flushed.lock());
        let mob = std::mem::take(&mut *self.flushed_mob.lock());
        self.discard_outputs(flushed, &mob, &[]);
    }

    /// Deletes the outputs of a flush or compaction that readers never saw, wherever they are, the
    /// last one first. `restored` are the files that they were to replace. If one cannot be
    /// deleted, it stays with those before it until [`Store::discard_leftovers`]. `mob` are MOB
    /// files to which only the outputs refer. They are deleted once all outputs are; otherwise they
    /// are left to the cleaner of a later process.
    pub(super) fn discard_outputs(
        &self,
        mut outputs: Vec<PathBuf>,
        mob: &[PathBuf],
        restored: &[ListedFile],
    ) {
        match self.discard(&mut outputs, restored) {
            Ok(()) => self.discard_mob_files(mob),
            Err(error) => {
                tracing::warn!(store = %self.label(), %error, "the output of a failed flush or compaction could not be deleted yet");
                self.undeleted_outputs.lock().push(outputs);
            }
        }
    }

    /// What a flush or compaction does with MOB files; `None` if the store has nothing to do with
    /// them.
    pub(super) fn mob_job(&self, job: MobJob) -> Option<MobJob> {
        self.mob.resolves().then_some(job)
    }

    /// Deletes the files that [`Store::discard_outputs`] could not delete.
    ///
    /// # Errors
    /// `IOException` from the file system; the rest is kept for the next call.
    pub(super) fn discard_leftovers(&self) -> Result<()> {
        let mut leftovers = self.undeleted_outputs.lock();
        while let Some(outputs) = leftovers.last_mut() {
            self.discard(outputs, &[])?;
            leftovers.pop();
        }
        Ok(())
    }

    /// Deletes from the end of the list, and removes the deleted entries.
    fn discard(&self, outputs: &mut Vec<PathBuf>, restored: &[ListedFile]) -> Result<()> {
        let names: Vec<_> =
            outputs.iter().filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect();
        self.tracker.revert(&names, restored)?;
        while let Some(path) = outputs.last() {
            self.evict_blocks(path);
            if let Some(name) = path.file_name() {
                self.env.fs.delete(&self.dirs.family.join(name))?;
            }
            self.env.fs.delete(path)?;
            outputs.pop();
        }
        Ok(())
    }

    /// Moves a finished file into the family's directory, unless it is there, and opens it.
    pub(super) fn install(&self, path: &Path) -> Result<Arc<StoreFile>> {
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| self.error(format!("{} has no name", path.display())))?;
        self.move_into_place(path, name)?;
        let file = Arc::new(StoreFile::open_new(self, name)?);
        self.prefetch(&file);
        Ok(file)
    }

    fn move_into_place(&self, path: &Path, name: &str) -> Result<()> {
        let place = self.dirs.family.join(name);
        if path == place { Ok(()) } else { Ok(self.env.fs.rename(path, &place)?) }
    }

    /// Writes a file without cells into the family's directory. It states that every edit up to
    /// `max_seq_id` is in a file or was deleted, so that a later replay skips these edits. This
    /// store does not read it.
    ///
    /// # Errors
    /// `IOException` from the file system. The file may then exist; it changes no read.
    /// `CorruptHFileException` if it cannot be read back; it is deleted then.
    pub fn write_empty_file(&self, max_seq_id: u64) -> Result<()> {
        let (fs, name) = (&*self.env.fs, uuid::Uuid::new_v4().simple().to_string());
        let path = self.dirs.output.join(&name);
        let mut writer = HFileWriter::create(fs, &path, self.hfile_context(false, false)?)?;
        if self.family.is_mob() {
            writer.append_file_info(keys::MOB_FILE_REFS, NO_REFS.to_vec());
        }
        let written =
            writer.finish(StoreFileMeta { max_seq_id: Some(max_seq_id), ..StoreFileMeta::default() })?;
        let bytes = fs.status(&path)?.len;
        if self.config.verify_writes {
            let verified = self.read_back(&path, written, WriteSchedule::Unlimited);
            verified.inspect_err(|_| drop(fs.delete(&path)))?;
        }
        self.move_into_place(&path, &name)?;
        self.tracker.commit(&[], &[ListedFile { name, bytes }])
    }

    pub(super) fn compaction_scanner(
        &self,
        leaves: Vec<StoreLeaf>,
        mode: CompactionMode,
    ) -> Result<StoreScanner<StoreLeaf>> {
        let matcher = QueryMatcher::for_compaction(&self.info, mode, self.env.clock.now_ms());
        let scanner = StoreScanner::new(leaves, matcher, self.info.comparator, ScanStart::ALL);
        scanner.map_err(TryError::into_failure)
    }

    /// Checks that this server can write files of the family. HBase opens no region of another
    /// family either, such as one with PREFIX_TREE of HBase 1.
    ///
    /// # Errors
    /// `IOException` or `UnsupportedOperationException`.
    pub(super) fn check_formats(&self) -> Result<()> {
        self.hfile_context(false, false)?;
        [false, true].into_iter().try_for_each(|is_major| self.compaction_compression(is_major).map(drop))
    }

    fn encoding(&self) -> Result<DataBlockEncoding> {
        let name = self.family.data_block_encoding();
        let known = DataBlockEncoding::from_name(name);
        let known = known.ok_or_else(|| self.error(format!("unknown data block encoding {name}")));
        self.or_for_system_tables(known, DataBlockEncoding::None)
    }

    fn compression(&self, name: &str) -> Result<Compression> {
        let known =
            Compression::from_name(name).ok_or_else(|| self.error(format!("unknown compression {name}")));
        let supported = known.and_then(|known| check_compression_supported(known).map(|()| known));
        self.or_for_system_tables(supported, Compression::None)
    }

    /// Returns the compression of the files of a compaction.
    ///
    /// # Errors
    /// As [`Store::check_formats`].
    pub(super) fn compaction_compression(&self, is_major: bool) -> Result<Compression> {
        self.compression(self.family.compaction_compression(is_major))
    }

    fn bloom(&self, name: &str, prefix_bytes: Option<u32>) -> Result<BloomType> {
        let known = BloomType::from_name(name, prefix_bytes)
            .ok_or_else(|| self.error(format!("unknown bloom filter type {name}, or without a length")));
        self.or_for_system_tables(known, BloomType::None)
    }

    /// Writes system tables in a format that is always there if theirs is not: without hbase:meta
    /// and hbase:namespace nothing is served.
    fn or_for_system_tables<T>(&self, format: Result<T>, plain: T) -> Result<T> {
        match format {
            Err(error) if self.region.table().is_system() => {
                tracing::error!(region = %self.region.name_text(), %error, "new files are written without it");
                Ok(plain)
            }
            format => format,
        }
    }

    /// The settings of new files, from the family's attributes. Compactions may have another
    /// compression.
    pub(super) fn hfile_context(&self, includes_mvcc: bool, includes_tags: bool) -> Result<HFileContext> {
        let family = &self.family;
        let prefix = family.row_prefix_bloom_length().and_then(|length| length.trim().parse().ok());
        let bloom = if self.config.bloom { family.bloom_type() } else { "NONE" };
        Ok(HFileContext {
            encoding: self.encoding()?,
            compression: self.compression(family.compression())?,
            bloom: self.bloom(bloom, prefix)?,
            block_bytes: family.block_bytes().min(BLOCK_BYTES_MAX as usize),
            includes_mvcc,
            includes_tags,
            compress_tags: !family.text("COMPRESS_TAGS").is_some_and(|v| v.eq_ignore_ascii_case("false")),
            comparator: self.info.comparator,
            create_time_ms: self.env.clock.now_ms(),
            zstd_framed: self.config.zstd_framed,
            checksum: self.config.checksum,
            bytes_per_checksum: self.config.bytes_per_checksum,
            index_block_bytes_max: self.config.index_block_bytes,
            index_block_entries_min: self.config.index_block_entries_min,
            bloom_block_bytes: self.config.bloom_block_bytes,
            bloom_error_rate: self.config.bloom_error_rate,
            delete_family_bloom: self.config.delete_family_bloom,
            dfs_replication: self.config.dfs_replication,
            ..HFileContext::default()
        })
    }
}
