//! Compactions: many files become one, or several that divide the rows or times among them
//! ([`Engine`]).
//!
//! ```text
//! select_compaction     marks files busy until the request is dropped
//! compact               merges to .tmp/<family>/<uuid>, reads back     readers continue
//! install_compaction    renames into the family's directory, opens, commits to the tracker
//! swap_compaction       new files in, old files out, at once
//! archive_replaced      archives old files once no reader holds them
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`engine`] | [`Engine`]: how a store arranges its files |
//! | `policy` | which files are compacted together |
//! | `compactor` | one compaction, from the merge to the archive |
//!
//! A compaction of all files with some rows drops markers and the cells they hide. A compaction of
//! only some of these files keeps markers, because they may hide cells in other files. If no cell
//! is left, the output is a file without cells. Its info names the files it replaces and the
//! sequence id up to which all edits are in files, which no other place records.

mod compactor;
pub(super) mod engine;
mod policy;

use evenkeel_common::length;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_fs::BlocksWeight;
use parking_lot::Mutex;

use self::policy::date_tiered::{self, DateTieredFile};
use self::policy::exploring::select;
use self::policy::stripe::{self, StripeFile, Stripes};
use self::policy::{CandidateFile, CompactionPlan, SelectionContext};
use super::file_writer::FileSplit;
use super::{Engine, OffPeakPermit, Store, StoreFile};

/// Which files of a store are compacted, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionKind {
    /// Those that the policy selects.
    Due,
    /// All, so that the store no longer reads files of other regions. As in HBase, which has no
    /// such requests, MOB files stay as they are.
    References,
    /// All, because a client or a chore asked for a major compaction. It rewrites MOB files.
    Major,
}

impl CompactionKind {
    /// Returns true if all files of the store are wanted.
    pub fn is_of_all_files(self) -> bool {
        self != Self::Due
    }
}

/// Files to compact. They are busy until the request is dropped.
#[derive(Debug)]
pub struct CompactionRequest {
    files: Vec<Arc<StoreFile>>,
    is_major: bool,
    is_all_files: bool,
    /// True if a client or a chore asked for a major compaction.
    is_requested: bool,
    drops_deletes: bool,
    split: FileSplit,
    compacting: Arc<Mutex<HashSet<String>>>,
    /// Held if the files were selected by the off-peak ratio.
    off_peak: Option<OffPeakPermit>,
}

impl CompactionRequest {
    /// Returns true for a major compaction: all files, by request.
    pub fn is_major(&self) -> bool {
        self.is_major
    }

    /// Returns true if it includes every file of the store, by request or not.
    pub fn is_all_files(&self) -> bool {
        self.is_all_files
    }

    /// Returns true if no other file has cells of these rows, so that markers may be dropped.
    pub fn drops_deletes(&self) -> bool {
        self.drops_deletes
    }

    /// Returns true if it rewrites the MOB files to which the files refer: all files of the store
    /// are compacted by request.
    pub(super) fn rewrites_mob_files(&self) -> bool {
        self.is_requested && self.is_all_files
    }

    /// Bytes of the files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes()).sum()
    }

    /// Cells of the files, and their bytes without encoding and compression.
    pub fn cells(&self) -> (u64, u64) {
        let of_file = |file: &Arc<StoreFile>| {
            (file.reader().entry_count(), file.reader().trailer().total_uncompressed_bytes)
        };
        self.files.iter().map(of_file).fold((0, 0), |sum, file| (sum.0 + file.0, sum.1 + file.1))
    }

    /// Returns true if the files were selected by the off-peak ratio.
    pub fn is_off_peak(&self) -> bool {
        self.off_peak.is_some()
    }

    /// Names of the files.
    pub fn names(&self) -> Vec<String> {
        self.files.iter().map(|file| file.name().to_owned()).collect()
    }
}

impl Drop for CompactionRequest {
    fn drop(&mut self) {
        let mut compacting = self.compacting.lock();
        for file in &self.files {
            compacting.remove(file.name());
        }
    }
}

/// The output of a compaction.
#[derive(Clone, Debug, Default)]
pub struct CompactionResult {
    /// Names of the files that were compacted.
    pub inputs: Vec<String>,
    /// The files that replace them, not yet in place, in the order in which they are moved into
    /// place; one may have no cells.
    pub outputs: Vec<PathBuf>,
    /// The MOB files to which only they refer, in place.
    pub mob_outputs: Vec<PathBuf>,
    /// Cells written.
    pub cells: u64,
}

impl Store {
    /// Returns true if there are enough files for a minor compaction.
    pub fn needs_compaction(&self) -> bool {
        if self.config.engine.engine != Engine::Default {
            return self.next_compaction_bytes(false) > 0;
        }
        let state = self.state.load();
        let free = state.files.len().saturating_sub(self.compacting.lock().len());
        free >= self.compaction_config.load().compaction_files_min
            || state.files.iter().any(|file| file.is_reference())
    }

    /// Returns the bytes that the next compaction would read; 0 if none is due. It marks no files
    /// busy.
    pub fn next_compaction_bytes(&self, major: bool) -> u64 {
        let files = self.state.load().files.clone();
        let busy = busy_files(&files, &self.compacting.lock());
        let off_peak = !major && self.env.compaction_throughput.is_off_peak_permit_free();
        let plan = self.plan(&files, busy, major, off_peak);
        let bytes = |i: usize| files.get(busy + i).map_or(0, |file| file.bytes());
        plan.map_or(0, |plan| plan.files.iter().map(|i| bytes(*i)).sum())
    }

    /// Selects files to compact: all if `major` and none is busy, otherwise the selection of the
    /// policy.
    pub fn select_compaction(&self, major: bool) -> Option<CompactionRequest> {
        self.select(if major { CompactionKind::Major } else { CompactionKind::Due })
    }

    /// As [`Store::select_compaction`].
    pub fn select(&self, kind: CompactionKind) -> Option<CompactionRequest> {
        let major = kind.is_of_all_files();
        let files = self.state.load().files.clone();
        let mut compacting = self.compacting.lock();
        let busy = busy_files(&files, &compacting);
        let turn = if major { None } else { self.env.compaction_throughput.off_peak_permit() };
        let plan = self.plan(&files, busy, major, turn.is_some())?;
        let chosen: Vec<_> = plan.files.iter().filter_map(|i| files.get(busy + i).cloned()).collect();
        compacting.extend(chosen.iter().map(|file| file.name().to_owned()));
        let is_all_files = chosen.len() == files.len();
        Some(CompactionRequest {
            is_major: plan.is_major,
            is_all_files,
            is_requested: kind == CompactionKind::Major,
            drops_deletes: plan.drops_deletes || is_all_files,
            split: plan.split,
            files: chosen,
            compacting: Arc::clone(&self.compacting),
            off_peak: turn,
        })
    }

    /// Selects from the store's files, oldest first, excluding the first `busy`. The indexes of the
    /// plan start after those.
    fn plan(
        &self,
        files: &[Arc<StoreFile>],
        busy: usize,
        major: bool,
        off_peak: bool,
    ) -> Option<CompactionPlan> {
        let free = files.get(busy..).unwrap_or_default();
        let context = SelectionContext {
            major,
            major_is_due: self.is_major_due(free),
            is_remote: self.is_remote(free),
            is_blocking: free.len() + usize::from(busy > 0) >= self.compaction_config.load().blocking_files,
            busy,
            off_peak,
        };
        self.select_by_engine(free, context)
    }

    /// Returns the selection of the store's engine, among files that are not busy, oldest first.
    fn select_by_engine(
        &self,
        files: &[Arc<StoreFile>],
        context: SelectionContext,
    ) -> Option<CompactionPlan> {
        let (now_ms, config) = (self.env.clock.now_ms(), self.compaction_config.load());
        match self.config.engine.engine {
            Engine::Default => {
                let candidates: Vec<_> = files.iter().map(candidate).collect();
                let selection = select(&candidates, &config, context);
                let (files, is_major) = (selection.files, selection.is_major);
                (!files.is_empty()).then(|| CompactionPlan { files, is_major, ..CompactionPlan::default() })
            }
            Engine::Stripe => {
                let files: Vec<_> = files.iter().map(stripe_file).collect();
                stripe::select(&files, &config, context, self.oldest_unexpired_of_files(now_ms))
            }
            Engine::DateTiered => {
                let files: Vec<_> = files.iter().map(date_tiered_file).collect();
                let oldest_unexpired = self.oldest_unexpired_of_files(now_ms).unwrap_or(i64::MIN);
                date_tiered::select(&files, &config, context, now_ms, oldest_unexpired)
            }
        }
    }

    /// Returns the timestamp below which cells may be dropped. `None` if cells do not expire, or if
    /// some versions are kept regardless of age.
    fn oldest_unexpired_of_files(&self, now_ms: i64) -> Option<i64> {
        let expires = self.info.ttl_ms != i64::MAX && self.info.min_versions == 0;
        expires.then(|| self.info.oldest_unexpired(now_ms))
    }

    /// Returns HBase's compaction pressure: 0 with few files, 1 if the number of files blocks
    /// flushes, more beyond.
    pub fn compaction_pressure(&self) -> f64 {
        let state = self.state.load();
        let config = self.compaction_config.load();
        let (files, min) = (self.files_per_read(&state.files), config.compaction_files_min);
        let blocking = config.blocking_files.max(min + 1);
        if self.config.engine.engine == Engine::Stripe && files <= blocking {
            let files: Vec<_> = state.files.iter().map(stripe_file).collect();
            return Stripes::of(&files).pressure(&config);
        }
        files.saturating_sub(min) as f64 / (blocking - min) as f64
    }

    /// Returns how many of these files a read of one row or time may have to search: all, or those
    /// of one stripe and level 0, or those of one time window. HBase counts all files with any
    /// engine, so a store of many stripes or windows is near its limit when idle.
    pub(super) fn files_per_read(&self, files: &[Arc<StoreFile>]) -> usize {
        match self.config.engine.engine {
            Engine::Default => files.len(),
            Engine::Stripe => {
                let files: Vec<_> = files.iter().map(stripe_file).collect();
                Stripes::of(&files).files_of_a_row()
            }
            Engine::DateTiered => {
                let files: Vec<_> = files.iter().map(date_tiered_file).collect();
                date_tiered::files_of_fullest_window(
                    &files,
                    &self.compaction_config.load(),
                    self.env.clock.now_ms(),
                )
            }
        }
    }

    /// Returns how a flush of `cells` cells is divided among files.
    pub(super) fn split_of_flush(&self, files: &[Arc<StoreFile>], cells: u64) -> FileSplit {
        if self.config.engine.engine != Engine::Stripe {
            return FileSplit::One;
        }
        let files: Vec<_> = files.iter().map(stripe_file).collect();
        stripe::split_of_flush(&files, cells, &self.compaction_config.load())
    }

    /// Returns the row between two stripes at which the region is best split; `None` if there is
    /// none.
    pub(super) fn split_row_of_stripes(&self, files: &[Arc<StoreFile>]) -> Option<Bytes> {
        if self.config.engine.engine != Engine::Stripe {
            return None;
        }
        let files: Vec<_> = files.iter().map(stripe_file).collect();
        Stripes::of(&files).split_row(&files, &self.compaction_config.load())
    }

    /// Returns true if the oldest file is older than the period of major compactions, and a major
    /// compaction would have an effect.
    fn is_major_due(&self, files: &[Arc<StoreFile>]) -> bool {
        let Some(oldest_ms) = files.iter().map(|file| file.modified_ms()).min() else { return false };
        let period_ms = self.major_period_ms(files);
        let now_ms = self.env.clock.now_ms();
        if period_ms <= 0 || oldest_ms <= 0 || oldest_ms >= now_ms.saturating_sub(period_ms) {
            return false;
        }
        let [only] = files else { return true };
        let oldest_unexpired = self.info.oldest_unexpired(now_ms);
        let has_expired = only.reader().time_range().is_some_and(|(min, _)| min < oldest_unexpired);
        !only.reader().is_major_compaction() || has_expired || self.is_remote(files)
    }

    /// Returns true if too few blocks of the files are local (HBASE-11195).
    fn is_remote(&self, files: &[Arc<StoreFile>]) -> bool {
        let mut blocks = BlocksWeight::default();
        files.iter().for_each(|file| blocks += file.blocks_weight());
        blocks.locality() < self.compaction_config.load().major_locality_min
    }

    /// Returns the period with jitter. The jitter is a hash of the files' names, so that stores
    /// that were created together do not compact together, and the result is repeatable.
    pub(super) fn major_period_ms(&self, files: &[Arc<StoreFile>]) -> i64 {
        let config = self.compaction_config.load();
        let period = config.major_period_ms as f64;
        let hash = files
            .iter()
            .flat_map(|file| file.name().bytes())
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        let part = (hash >> 11) as f64 / (1_u64 << 53) as f64;
        let jitter = period * config.major_jitter.max(0.0);
        length::whole(period + jitter - 2.0 * jitter * part).cast_signed()
    }
}

/// Returns how many files are excluded: busy files, and all that are older than one of them,
/// because only neighbours may be merged.
fn busy_files(files: &[Arc<StoreFile>], compacting: &HashSet<String>) -> usize {
    files.iter().rposition(|file| compacting.contains(file.name())).map_or(0, |last| last + 1)
}

fn candidate(file: &Arc<StoreFile>) -> CandidateFile {
    CandidateFile {
        bytes: file.bytes(),
        is_reference: file.is_reference(),
        is_excluded: file.is_excluded_from_minor(),
    }
}

fn stripe_file(file: &Arc<StoreFile>) -> StripeFile {
    StripeFile {
        base: candidate(file),
        cells: file.reader().entry_count(),
        max_timestamp: file.reader().time_range().map(|(_, max)| max),
        rows: file.stripe(),
    }
}

fn date_tiered_file(file: &Arc<StoreFile>) -> DateTieredFile {
    DateTieredFile {
        base: candidate(file),
        times: file.reader().time_range(),
        is_major: file.reader().is_major_compaction() && !file.is_bulk_loaded(),
    }
}
