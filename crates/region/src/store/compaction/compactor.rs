//! One compaction: merges its files, replaces them by the result, and archives them.

use std::collections::HashSet;
use std::sync::Arc;

use evenkeel_block_cache::BlockCategory;
use evenkeel_common::Result;
use evenkeel_hfile::{CacheOnWritePolicy, HFileContext, InputResidency, ScanOptions, StoreFileMeta, keys};

use super::{CompactionRequest, CompactionResult};
use crate::scanner::matcher::CompactionMode;
use crate::store::background_priority::BACKGROUND_BYTES_MIN;
use crate::store::file_writer::{NewFileOptions, WriteJob, WriteSchedule, WrittenFiles};
use crate::store::mob::MobJob;
use crate::store::{BackgroundPriority, Store, StoreFile, StoreFileScanner, StoreLeaf, listed, sorted};

/// Combined properties of the files of a request.
struct InputSummary {
    max_seq_id: u64,
    includes_mvcc: bool,
    includes_tags: bool,
    earliest_put_timestamp: i64,
    /// Cells up to this sequence id may lose their sequence ids.
    forget_seq_ids_to: Option<u64>,
    /// The largest timestamp.
    newest_ms: i64,
}

impl Store {
    /// Merges the files of a request into new files in the temporary directory. Readers are not
    /// affected. No reader reads at a point below `smallest_read_point`, now or later.
    ///
    /// # Errors
    /// `IOException` or `CorruptHFileException` if a file cannot be read or written, or if an
    /// earlier output cannot be deleted; nothing has changed then.
    pub fn compact(&self, request: &CompactionRequest, smallest_read_point: u64) -> Result<CompactionResult> {
        self.compact_in_background(request, smallest_read_point, None)
    }

    /// As [`Store::compact`]. With a priority, it yields the processors until a caller waits for
    /// fewer files.
    ///
    /// # Errors
    /// As [`Store::compact`].
    pub fn compact_in_background(
        &self,
        request: &CompactionRequest,
        smallest_read_point: u64,
        priority: Option<&dyn BackgroundPriority>,
    ) -> Result<CompactionResult> {
        self.discard_leftovers()?;
        let summary = self.summarize(request, smallest_read_point);
        let options =
            ScanOptions { cache_blocks: false, pread: false, is_compaction: true, ..ScanOptions::default() };
        let residency = Arc::<InputResidency>::default();
        let leaf = |file: &Arc<StoreFile>| {
            StoreLeaf::File(Box::new(
                StoreFileScanner::new(Arc::clone(file), options, u64::MAX).track_residency(&residency),
            ))
        };
        let mode = CompactionMode {
            drop_deletes: request.drops_deletes,
            smallest_read_point,
            earliest_put_timestamp: summary.earliest_put_timestamp,
        };
        let scanner = || self.compaction_scanner(request.files.iter().rev().map(leaf).collect(), mode);
        let context = HFileContext {
            compression: self.compaction_compression(request.is_major)?,
            ..self.hfile_context(summary.includes_mvcc, summary.includes_tags)?
        };
        let meta = StoreFileMeta {
            max_seq_id: Some(summary.max_seq_id),
            major_compaction: request.is_major,
            compacted_files: self.replaced_by(request),
            stripe: None,
        };
        let file = self.compacted_file(context, request.bytes(), Arc::clone(&residency));
        let (split, forget_seq_ids_to) = (request.split.clone(), summary.forget_seq_ids_to);
        let mob = self.mob_job(MobJob {
            newest_ms: summary.newest_ms,
            rewrites: request.rewrites_mob_files(),
            is_flush: false,
        });
        let job = WriteJob { file, meta, split, max_seq_id_of_parts: None, forget_seq_ids_to, mob };
        let priority = priority.filter(|_| request.bytes() >= BACKGROUND_BYTES_MIN);
        let _running = self.compaction_progress.begin(request.cells().0);
        let schedule = WriteSchedule::Compaction(&self.env.compaction_throughput, priority);
        let WrittenFiles { paths, cells, mob } = self.write_files(&scanner, job, schedule)?;
        Ok(CompactionResult { inputs: request.names(), outputs: paths, mob_outputs: mob, cells })
    }

    /// Returns the format of the output of a compaction of `bytes` bytes. Blocks that replace
    /// cached ones are cached, with the index blocks and bloom chunks that lead to them, because
    /// the blocks they replace leave the cache soon. If data blocks are not cached at all, it is
    /// unknown which of the others are in use, so all of them are cached.
    fn compacted_file(
        &self,
        context: HFileContext,
        bytes: u64,
        residency: Arc<InputResidency>,
    ) -> NewFileOptions {
        let cache = self.config.cache;
        let all = cache.compacted_on_write && bytes <= cache.compacted_bytes_max;
        let keeps_data = cache.data_on_read && self.env.cache.caches_category(BlockCategory::Data);
        let (warm, leading) = match keeps_data {
            true => (CacheOnWritePolicy::IfInputsCached, CacheOnWritePolicy::IfInputsCached),
            false => (CacheOnWritePolicy::Never, CacheOnWritePolicy::Always),
        };
        NewFileOptions {
            context,
            residency,
            data: CacheOnWritePolicy::when(all, warm),
            index: CacheOnWritePolicy::when(all || cache.index_on_write, leading),
            bloom: CacheOnWritePolicy::when(all || cache.bloom_on_write, leading),
        }
    }

    /// Returns the files that the output replaces: its inputs, and files that were replaced earlier
    /// and still exist because a reader holds them. Their replacement may be an input of this
    /// compaction. Then only the output can prevent the next start from serving them.
    fn replaced_by(&self, request: &CompactionRequest) -> Vec<String> {
        let mut names = request.names();
        names.extend(self.replaced.lock().iter().map(|file| file.name().to_owned()));
        names
    }

    fn summarize(&self, request: &CompactionRequest, smallest_read_point: u64) -> InputSummary {
        let readers = || request.files.iter().map(|file| file.reader());
        let kept_from = self.env.clock.now_ms().saturating_sub(self.config.keep_seq_id_ms);
        let old = request.files.iter().filter(|file| file.modified_ms() < kept_from);
        let forget = old.map(|file| file.max_cell_seq_id()).max().filter(|_| request.is_all_files);
        let may_forget = !self.info.new_version_behavior;
        let earliest = readers().map(|reader| reader.earliest_put_timestamp().unwrap_or(i64::MIN)).min();
        InputSummary {
            max_seq_id: request.files.iter().map(|file| file.max_seq_id()).max().unwrap_or(0),
            includes_mvcc: request.files.iter().any(|file| file.max_cell_seq_id() > 0),
            newest_ms: readers()
                .filter_map(|reader| reader.time_range())
                .map(|(_, max)| max)
                .max()
                .unwrap_or(0),
            includes_tags: self.mob.resolves()
                || readers()
                    .any(|reader| reader.file_infos().get_i32(keys::MAX_TAGS_LEN).is_some_and(|n| n > 0)),
            earliest_put_timestamp: earliest.filter(|_| request.drops_deletes).unwrap_or(i64::MAX),
            forget_seq_ids_to: forget.filter(|_| may_forget).map(|seq_id| seq_id.min(smallest_read_point)),
        }
    }

    /// Replaces the request's files by the result. They are archived once no reader holds them.
    ///
    /// # Errors
    /// `IOException` from the file system; the files stay as they were then.
    pub fn commit_compaction(&self, request: CompactionRequest, result: &CompactionResult) -> Result<()> {
        let files = self.install_compaction(result)?;
        self.swap_compaction(request, files);
        self.archive_or_warn();
        Ok(())
    }

    /// The first part of [`Store::commit_compaction`]: all I/O that can fail. Readers are not
    /// affected.
    ///
    /// # Errors
    /// As [`Store::commit_compaction`].
    pub fn install_compaction(&self, result: &CompactionResult) -> Result<Vec<Arc<StoreFile>>> {
        let installed = result.outputs.iter().map(|path| self.install(path)).collect::<Result<Vec<_>>>();
        let committed = installed.and_then(|files| {
            self.tracker.commit(&result.inputs, &listed(&files))?;
            Ok(files)
        });
        committed.inspect_err(|_| self.abort_compaction(result))
    }

    /// The second part: replaces the state. [`Store::archive_replaced`] does the rest.
    pub fn swap_compaction(&self, request: CompactionRequest, files: Vec<Arc<StoreFile>>) {
        let is_input = |file: &Arc<StoreFile>| request.files.iter().any(|input| Arc::ptr_eq(input, file));
        // Before they leave the state, so that `mob_references` finds them in one of the two.
        self.replaced.lock().extend(request.files.iter().cloned());
        let committed = files.clone();
        self.replace_state(|state| {
            state.files.retain(|file| !is_input(file));
            state.files.extend(files);
            state.files = sorted(std::mem::take(&mut state.files));
        });
        self.settle_mob_files(&committed);
    }

    /// Abandons the output of a compaction, wherever its files are; readers never saw it. It
    /// deletes the last file first: that file prevents a start from serving the inputs, which is
    /// correct only while the other outputs exist. If it cannot be deleted, the others stay, too: a
    /// start then serves either all outputs or the inputs, and has every row. The next compaction
    /// deletes them first, because they would bring back the cells that it drops.
    pub fn abort_compaction(&self, result: &CompactionResult) {
        let state = self.state.load();
        let inputs = state.files.iter().filter(|file| result.inputs.iter().any(|name| name == file.name()));
        let inputs: Vec<_> = inputs.map(|file| file.listed()).collect();
        self.discard_outputs(result.outputs.clone(), &result.mob_outputs, &inputs);
    }

    /// Removes files that a compaction had replaced before an earlier server died, by the names in
    /// its logged marker, and archives them. Its output was in place before the marker: it is among
    /// the files here, or was compacted since. Returns the number of files removed.
    ///
    /// # Errors
    /// `IOException` from the file system.
    pub fn replay_compaction(&self, inputs: &[String]) -> Result<usize> {
        let names: HashSet<&str> =
            inputs.iter().map(|input| input.rsplit('/').next().unwrap_or(input)).collect();
        let files = self.state.load().files.clone();
        let (replaced, kept): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|file| names.contains(file.name()));
        if replaced.is_empty() {
            return Ok(0);
        }
        let count = replaced.len();
        let gone: Vec<_> = replaced.iter().map(|file| file.name().to_owned()).collect();
        self.tracker.commit(&gone, &[])?;
        self.replace_state(|state| state.files = kept);
        self.replaced.lock().extend(replaced);
        self.archive_replaced().map(|_| count)
    }

    fn archive_or_warn(&self) {
        if let Err(error) = self.archive_replaced() {
            tracing::warn!(store = %self.label(), %error, "compacted files are not archived yet");
        }
    }
}
