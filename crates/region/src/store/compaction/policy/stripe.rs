//! Stripes: ranges of a store's rows that are compacted separately (`StripeCompactionPolicy`).
//!
//! The file info of a stripe's file holds the range, `STRIPE_START_KEY` and `STRIPE_END_KEY`, empty
//! for open. Files without it are in *level 0* and hold any rows: bulk loaded files, flushes if so
//! configured, and files that do not fit the other stripes. Only the files define the stripes, so
//! each selection derives the stripes from them. A store that HBase or another engine wrote needs
//! no conversion.
//!
//! A flush writes a file for each stripe for which it has cells, or starts the first stripes. Its
//! files are moved into place in turn, and only the last one records that all edits up to the flush
//! are in files. So a crash after some of the moves loses no edit: edits are replayed, and some
//! cells exist twice. In HBase it can lose edits, because each file of a flush records that.
//!
//! In the order of preference: level 0 is compacted into the stripes; stripes whose cells have all
//! expired are merged into one; the best selection within one stripe is compacted. A stripe that is
//! compacted as a whole while level 0 is empty drops its delete markers, and is split if it has
//! grown too large.
//!
//! Differences from HBase: a user's major compaction compacts all files, where HBase selects as
//! usual, and it splits a stripe only if it is the only one; level 0 is not compacted together with
//! one stripe.

#![allow(clippy::indexing_slicing, reason = "indexes come from the lengths of the arrays")]

use evenkeel_common::length;
use std::collections::BTreeMap;

use bytes::Bytes;

use super::exploring::explore;
use super::{CandidateFile, CompactionPlan, SelectionContext};
use crate::store::StoreConfig;
use crate::store::file_writer::FileSplit;

/// `hbase.store.stripe.*`; `None` is derived from other settings.
#[derive(Clone, Debug)]
pub(in crate::store) struct StripeSettings {
    flushes_to_level0: bool,
    level0_files_min: usize,
    files_min: Option<usize>,
    files_max: Option<usize>,
    initial_count: usize,
    split_bytes: Option<u64>,
    split_parts: f64,
    region_imbalance_max: f64,
}

impl Default for StripeSettings {
    fn default() -> Self {
        Self {
            flushes_to_level0: false,
            level0_files_min: 4,
            files_min: None,
            files_max: None,
            initial_count: 1,
            split_bytes: None,
            split_parts: 2.0,
            region_imbalance_max: 1.5,
        }
    }
}

const FLUSH_TO_LEVEL0: &str = "hbase.store.stripe.compaction.flushToL0";
const LEVEL0_FILES_MIN: &str = "hbase.store.stripe.compaction.minFilesL0";
const FILES_MIN: &str = "hbase.store.stripe.compaction.minFiles";
const FILES_MAX: &str = "hbase.store.stripe.compaction.maxFiles";
const INITIAL_COUNT: &str = "hbase.store.stripe.initialStripeCount";
const SPLIT_BYTES: &str = "hbase.store.stripe.sizeToSplit";
const SPLIT_PARTS: &str = "hbase.store.stripe.splitPartCount";
const REGION_IMBALANCE: &str = "hbase.store.stripe.region.split.max.imbalance";

/// The maximum number of initial stripes.
const INITIAL_COUNT_MAX: usize = 1000;
/// The minimum number of files for a compaction within a stripe.
const FILES_MIN_DEFAULT: usize = 3;

impl StripeSettings {
    pub(in crate::store) const KEYS: [&'static str; 8] = [
        FLUSH_TO_LEVEL0,
        LEVEL0_FILES_MIN,
        FILES_MIN,
        FILES_MAX,
        INITIAL_COUNT,
        SPLIT_BYTES,
        SPLIT_PARTS,
        REGION_IMBALANCE,
    ];

    /// Applies a setting. Returns true if the key is one of these. An invalid value changes
    /// nothing.
    pub(in crate::store) fn set(&mut self, key: &str, value: &str) -> bool {
        let count = || value.parse::<usize>().ok().filter(|n| *n > 0);
        // 1/x stands for x.
        let factor = || {
            let given = value.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.001)?;
            Some(if given < 1.0 { 1.0 / given } else { given })
        };
        let known = match key {
            FLUSH_TO_LEVEL0 => {
                value.to_ascii_lowercase().parse().ok().map(|to_level0| self.flushes_to_level0 = to_level0)
            }
            LEVEL0_FILES_MIN => count().map(|n| self.level0_files_min = n),
            FILES_MIN => count().map(|n| self.files_min = Some(n.max(2))),
            FILES_MAX => count().map(|n| self.files_max = Some(n.max(2))),
            INITIAL_COUNT => count().map(|n| self.initial_count = n.min(INITIAL_COUNT_MAX)),
            SPLIT_BYTES => value.parse().ok().map(|n| self.split_bytes = Some(n)),
            SPLIT_PARTS => factor().filter(|parts| *parts >= 1.001).map(|parts| self.split_parts = parts),
            REGION_IMBALANCE => factor().map(|ratio| self.region_imbalance_max = ratio),
            _ => return false,
        };
        if known.is_none() {
            tracing::warn!(key, value, "invalid setting of stripes; it is ignored");
        }
        true
    }

    fn split_bytes(&self, config: &StoreConfig) -> u64 {
        let flushes = self.level0_files_min as f64 * 4.0 * self.split_parts;
        self.split_bytes.unwrap_or(length::whole(config.flush_bytes as f64 * flushes)).max(1)
    }

    /// Returns the limits of a selection within one stripe, or in level 0.
    fn within(&self, config: &StoreConfig) -> StoreConfig {
        let files_min = self.files_min.unwrap_or(FILES_MIN_DEFAULT.max(config.compaction_files_min));
        let files_max = self.files_max.unwrap_or(config.compaction_files_max).max(files_min);
        StoreConfig { compaction_files_min: files_min, compaction_files_max: files_max, ..config.clone() }
    }

    /// Returns the number of cells of a new stripe, and the maximum number of new stripes, such
    /// that no stripe is much larger than one part.
    fn new_stripes(&self, files: &[&StripeFile], parts: f64, config: &StoreConfig) -> (u64, usize) {
        let bytes: u64 = files.iter().map(|file| file.base.bytes).sum();
        let cells: u64 = files.iter().map(|file| file.cells).sum();
        let part_bytes = (self.split_bytes(config) as f64 / self.split_parts).max(1.0);
        let ratio_of = |parts: f64| bytes as f64 / (parts * part_bytes);
        let (mut parts, mut ratio) = (parts, ratio_of(parts));
        while ratio > 1.0 && parts < INITIAL_COUNT_MAX as f64 {
            let next = ratio_of(parts + 1.0);
            if next < 1.0 && 1.0 / next >= ratio {
                break;
            }
            (parts, ratio) = (parts + 1.0, next);
        }
        (length::whole(cells as f64 / parts).max(1), length::index(length::whole(parts.ceil())))
    }
}

/// The properties of a file that the policy needs.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct StripeFile {
    pub base: CandidateFile,
    pub cells: u64,
    /// The greatest timestamp of its cells; `None` without cells.
    pub max_timestamp: Option<i64>,
    /// The stripe's range in its file info, if its cells are within it.
    pub rows: Option<(Bytes, Bytes)>,
}

impl StripeFile {
    /// Returns true if all its cells have expired; always false if cells do not expire.
    fn has_expired(&self, oldest_unexpired: Option<i64>) -> bool {
        let newest = self.max_timestamp.unwrap_or(i64::MIN);
        oldest_unexpired.is_some_and(|oldest| newest < oldest)
    }
}

/// A range of rows, from `start` to before `end`. Either is open if it is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct Stripe {
    pub start: Bytes,
    pub end: Bytes,
    /// Indexes, the oldest first.
    pub files: Vec<usize>,
}

/// The stripes of a store's files, and the files of level 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::store) struct Stripes {
    pub level0: Vec<usize>,
    /// In the order of rows, from open end to open end without a gap. Either empty, or each stripe
    /// has at least one file.
    pub stripes: Vec<Stripe>,
}

impl Stripes {
    /// Derives the stripes from the ranges of files, oldest first. A file that does not begin where
    /// the previous stripe ends is in level 0. If the stripes do not cover all rows then, all files
    /// are in level 0.
    pub(in crate::store) fn of(files: &[StripeFile]) -> Self {
        // By end; the open end sorts last.
        let mut by_end: BTreeMap<(bool, &Bytes), Vec<usize>> = BTreeMap::new();
        for (at, file) in files.iter().enumerate() {
            if let Some((start, end)) = &file.rows
                && (start.is_empty() || end.is_empty() || start < end)
            {
                by_end.entry((end.is_empty(), end)).or_default().push(at);
            }
        }
        let start_of =
            |at: usize| files[at].rows.as_ref().map(|(start, _)| start).cloned().unwrap_or_default();
        let mut stripes: Vec<Stripe> = Vec::new();
        for ((_, end), mut members) in by_end {
            let newest = *members.last().unwrap_or(&0);
            let start = stripes.last().map_or_else(|| start_of(newest), |before| before.end.clone());
            members.retain(|at| start_of(*at) == start);
            if !members.is_empty() {
                stripes.push(Stripe { start, end: end.clone(), files: members });
            }
        }
        let is_whole = stripes.first().is_some_and(|first| first.start.is_empty())
            && stripes.last().is_some_and(|last| last.end.is_empty());
        if !is_whole {
            stripes.clear();
        }
        let is_in_stripe = |at: &usize| stripes.iter().any(|stripe| stripe.files.contains(at));
        let level0 = (0..files.len()).filter(|at| !is_in_stripe(at)).collect();
        Self { level0, stripes }
    }

    /// Returns the rows at which stripes meet, between two open ends.
    fn boundaries(&self) -> Vec<Bytes> {
        let ends = self.stripes.iter().map(|stripe| stripe.end.clone());
        std::iter::once(Bytes::new()).chain(ends).collect()
    }

    /// Returns the maximum number of files that may hold a row. It is at least one file per stripe.
    pub(in crate::store) fn files_of_a_row(&self) -> usize {
        self.level0.len() + self.stripes.iter().map(|stripe| stripe.files.len()).max().unwrap_or(0)
    }

    /// Returns the compaction pressure (`StripeStoreFileManager.getCompactionPressure`).
    pub(in crate::store) fn pressure(&self, config: &StoreConfig) -> f64 {
        let files_min = config.engine.stripe.within(config).compaction_files_min as f64;
        let per_stripe = (config.blocking_files / self.stripes.len().max(1)) as f64;
        let of_level0 = usize::from(!self.level0.is_empty());
        let of_stripe = |stripe: &Stripe| {
            let over = (stripe.files.len() + of_level0) as f64 - files_min;
            if per_stripe > files_min {
                over / (per_stripe - files_min)
            } else {
                f64::from(u8::from(over > 0.0))
            }
        };
        self.stripes.iter().map(of_stripe).fold(0.0, f64::max).min(1.0)
    }

    /// Returns the row between two stripes that divides the bytes best, if it does so evenly
    /// enough.
    pub(in crate::store) fn split_row(&self, files: &[StripeFile], config: &StoreConfig) -> Option<Bytes> {
        let bytes_of = |stripe: &Stripe| stripe.files.iter().map(|at| files[*at].base.bytes).sum::<u64>();
        let all: u64 = self.stripes.iter().map(bytes_of).sum();
        let mut left = 0;
        let cuts = self.stripes.iter().map(|stripe| {
            left += bytes_of(stripe);
            let (less, more) = (left.min(all - left), left.max(all - left));
            (more as f64 / less.max(1) as f64, &stripe.end)
        });
        let (ratio, row) = cuts.filter(|(_, end)| !end.is_empty()).min_by(|(a, _), (b, _)| a.total_cmp(b))?;
        (ratio < config.engine.stripe.region_imbalance_max).then(|| row.clone())
    }
}

/// Selects among files in the order of their age, none of which is busy. Cells older than
/// `oldest_unexpired` may be dropped.
pub(in crate::store) fn select(
    files: &[StripeFile],
    config: &StoreConfig,
    context: SelectionContext,
    oldest_unexpired: Option<i64>,
) -> Option<CompactionPlan> {
    if context.busy > 0 || files.is_empty() {
        return None;
    }
    let stripes = Stripes::of(files);
    let selection = StripeSelection { files, stripes: &stripes, config, context, oldest_unexpired };
    if context.major || files.iter().any(|file| file.base.is_reference) {
        return Some(selection.all());
    }
    let expired = |at: &usize| files[*at].has_expired(oldest_unexpired);
    let level0 = &stripes.level0;
    if level0.len() >= config.engine.stripe.level0_files_min
        || (!level0.is_empty() && level0.iter().all(expired))
    {
        let plan = selection.level0();
        if plan.is_some() {
            return plan;
        }
    }
    selection.expired().or_else(|| selection.within_a_stripe())
}

/// Returns how a flush of `cells` cells is divided among files, given the existing ones
/// (`StripeCompactionPolicy.selectFlush`).
pub(in crate::store) fn split_of_flush(files: &[StripeFile], cells: u64, config: &StoreConfig) -> FileSplit {
    let settings = &config.engine.stripe;
    if settings.flushes_to_level0 {
        return FileSplit::One;
    }
    let stripes = Stripes::of(files);
    if stripes.stripes.is_empty() {
        let (start, end, count) = (Bytes::new(), Bytes::new(), settings.initial_count);
        return FileSplit::NewStripes { start, end, cells_each: (cells / count as u64).max(1), count };
    }
    FileSplit::Stripes { boundaries: stripes.boundaries(), is_exact: true }
}

struct StripeSelection<'a> {
    files: &'a [StripeFile],
    stripes: &'a Stripes,
    config: &'a StoreConfig,
    context: SelectionContext,
    oldest_unexpired: Option<i64>,
}

impl StripeSelection<'_> {
    fn settings(&self) -> &StripeSettings {
        &self.config.engine.stripe
    }

    fn all(&self) -> CompactionPlan {
        let files: Vec<_> = (0..self.files.len()).collect();
        let split = match self.stripes.stripes.len() {
            0 => self.first_stripes(&files),
            1 if self.bytes(&files) >= self.settings().split_bytes(self.config) => {
                self.new_stripes(&files, self.settings().split_parts, Bytes::new(), Bytes::new())
            }
            _ => FileSplit::Stripes { boundaries: self.stripes.boundaries(), is_exact: false },
        };
        CompactionPlan { files, is_major: self.context.major, drops_deletes: true, split }
    }

    /// Compacts level 0 into the stripes, or into the first ones.
    fn level0(&self) -> Option<CompactionPlan> {
        let level0 = &self.stripes.level0;
        let within = self.settings().within(self.config);
        let bytes = self.bytes(level0);
        let files = match level0.len() > within.compaction_files_max || bytes > within.compaction_bytes_max {
            // Up to the limit of files, regardless of their ratio.
            true => self.explore(level0, SelectionContext { is_blocking: true, ..self.context }),
            false => level0.clone(),
        };
        if files.is_empty() {
            return None;
        }
        let is_all = files.len() == self.files.len();
        let split = if self.stripes.stripes.is_empty() {
            self.first_stripes(&files)
        } else {
            FileSplit::Stripes { boundaries: self.stripes.boundaries(), is_exact: true }
        };
        Some(CompactionPlan { files, is_major: false, drops_deletes: is_all, split })
    }

    fn first_stripes(&self, files: &[usize]) -> FileSplit {
        let initial = self.settings().initial_count as f64;
        self.new_stripes(files, initial, Bytes::new(), Bytes::new())
    }

    fn new_stripes(&self, files: &[usize], parts: f64, start: Bytes, end: Bytes) -> FileSplit {
        let files: Vec<_> = files.iter().map(|at| &self.files[*at]).collect();
        let (cells_each, count) = self.settings().new_stripes(&files, parts, self.config);
        FileSplit::NewStripes { start, end, cells_each, count }
    }

    /// Merges the longest sequence of stripes whose cells have all expired. If it is a single
    /// stripe, merges it with its neighbour.
    fn expired(&self) -> Option<CompactionPlan> {
        let stripes = &self.stripes.stripes;
        let expired = |stripe: &Stripe| {
            stripe.files.iter().all(|at| self.files[*at].has_expired(self.oldest_unexpired))
        };
        let runs = stripes.chunk_by(|a, b| expired(a) && expired(b)).filter(|run| expired(&run[0]));
        // The first of the longest.
        let best = runs.rev().max_by_key(|run| run.len())?;
        let first = stripes.iter().position(|stripe| stripe.start == best[0].start)?;
        let last = (first + best.len() - 1).max(first + 1);
        let run = stripes.get(first..=last)?;
        let mut files: Vec<_> = run.iter().flat_map(|stripe| stripe.files.iter().copied()).collect();
        files.sort_unstable();
        let split = one_stripe(run[0].start.clone(), run[run.len() - 1].end.clone());
        Some(CompactionPlan { files, is_major: false, drops_deletes: self.stripes.level0.is_empty(), split })
    }

    /// Selects within each stripe and returns the selection with the most files, then with the
    /// fewest bytes. The number of files of the whole store does not matter for one stripe: eight
    /// quiet stripes have many files, too.
    fn within_a_stripe(&self) -> Option<CompactionPlan> {
        let bytes = |files: &[usize]| self.bytes(files);
        let context = SelectionContext { is_blocking: false, ..self.context };
        let choices =
            self.stripes.stripes.iter().map(|stripe| (stripe, self.explore(&stripe.files, context)));
        let (stripe, files) = choices
            .filter(|(_, files)| !files.is_empty())
            .min_by_key(|(_, files)| (std::cmp::Reverse(files.len()), bytes(files)))?;
        let is_whole = files.len() == stripe.files.len();
        let (start, end) = (stripe.start.clone(), stripe.end.clone());
        let split = if is_whole && bytes(&files) >= self.settings().split_bytes(self.config) {
            self.new_stripes(&files, self.settings().split_parts, start, end)
        } else {
            one_stripe(start, end)
        };
        let drops_deletes = is_whole && self.stripes.level0.is_empty();
        Some(CompactionPlan { files, is_major: false, drops_deletes, split })
    }

    fn bytes(&self, files: &[usize]) -> u64 {
        files.iter().map(|at| self.files[*at].base.bytes).sum()
    }

    fn explore(&self, candidates: &[usize], context: SelectionContext) -> Vec<usize> {
        let bases: Vec<_> = self.files.iter().map(|file| file.base).collect();
        let mut chosen = explore(&bases, &self.settings().within(self.config), candidates, context);
        chosen.truncate(self.settings().within(self.config).compaction_files_max);
        chosen
    }
}

fn one_stripe(start: Bytes, end: Bytes) -> FileSplit {
    FileSplit::NewStripes { start, end, cells_each: u64::MAX, count: 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: u64, rows: Option<(&'static str, &'static str)>) -> StripeFile {
        StripeFile {
            base: CandidateFile { bytes, ..CandidateFile::default() },
            cells: bytes,
            max_timestamp: Some(1000),
            rows: rows.map(|(start, end)| (start.into(), end.into())),
        }
    }

    fn config(settings: &[(&str, &str)]) -> StoreConfig {
        let mut config = StoreConfig::default();
        settings.iter().for_each(|(key, value)| assert!(config.engine.set(key, value)));
        config
    }

    fn choose(files: &[StripeFile], config: &StoreConfig) -> Option<CompactionPlan> {
        select(files, config, SelectionContext::default(), None)
    }

    fn shape(files: &[StripeFile]) -> (Vec<usize>, Vec<Vec<usize>>) {
        let stripes = Stripes::of(files);
        (stripes.level0, stripes.stripes.into_iter().map(|stripe| stripe.files).collect())
    }

    #[test]
    fn stripes_are_formed_from_adjacent_files() {
        let (left, right) = (Some(("", "m")), Some(("m", "")));
        assert_eq!(shape(&[]), (vec![], vec![]));
        assert_eq!(shape(&[file(1, None), file(1, right), file(1, left)]), (vec![0], vec![vec![2], vec![1]]));
        // The right one was split meanwhile; a flush for it is left over.
        let split = [file(1, left), file(1, right), file(1, Some(("m", "t"))), file(1, Some(("t", "")))];
        assert_eq!(shape(&split), (vec![1], vec![vec![0], vec![2], vec![3]]));
        assert_eq!((Stripes::of(&split).files_of_a_row(), Stripes::of(&[]).files_of_a_row()), (2, 0));
        // A gap, an invalid range, half of the rows.
        for odd in [Some(("n", "")), Some(("z", "a")), None] {
            assert_eq!(shape(&[file(1, left), file(1, odd)]), (vec![0, 1], vec![]));
        }
    }

    #[test]
    fn level_0_splits_into_stripes_at_its_minimum() {
        let config = config(&[(INITIAL_COUNT, "3"), (LEVEL0_FILES_MIN, "2"), (SPLIT_BYTES, "1000000")]);
        assert_eq!(choose(&[file(90, None)], &config), None);
        let plan = choose(&[file(90, None), file(90, None)], &config).expect("two files");
        let (start, end) = (Bytes::new(), Bytes::new());
        assert_eq!(plan.split, FileSplit::NewStripes { start, end, cells_each: 60, count: 3 });
        assert!(plan.drops_deletes && !plan.is_major);

        let files = [file(9, Some(("", "m"))), file(9, Some(("m", ""))), file(1, None), file(1, None)];
        let plan = choose(&files, &config).expect("two files in level 0");
        assert_eq!((plan.files, plan.drops_deletes), (vec![2, 3], false));
        let boundaries = vec![Bytes::new(), "m".into(), Bytes::new()];
        assert_eq!(plan.split, FileSplit::Stripes { boundaries, is_exact: true });
    }

    #[test]
    fn a_flush_writes_to_existing_or_initial_stripes() {
        let begun = config(&[(INITIAL_COUNT, "3")]);
        let (start, end) = (Bytes::new(), Bytes::new());
        let first = FileSplit::NewStripes { start, end, cells_each: 33, count: 3 };
        assert_eq!(split_of_flush(&[file(9, None)], 100, &begun), first);
        let files = [file(9, Some(("", "m"))), file(9, Some(("m", ""))), file(1, None)];
        let boundaries = vec![Bytes::new(), "m".into(), Bytes::new()];
        assert_eq!(split_of_flush(&files, 100, &begun), FileSplit::Stripes { boundaries, is_exact: true });
        for (value, to_level0) in [("TRUE", true), ("false", false), ("yes", false)] {
            let split = split_of_flush(&files, 100, &config(&[(FLUSH_TO_LEVEL0, value)]));
            assert_eq!(split == FileSplit::One, to_level0, "{value}");
        }
    }

    #[test]
    fn a_stripe_is_compacted_alone_and_split_when_it_is_large() {
        let right = || file(60, Some(("m", "")));
        let files = [file(9, Some(("", "m"))), right(), right(), right()];
        let small = choose(&files, &config(&[(SPLIT_BYTES, "10000")])).expect("three files");
        assert_eq!((small.files, small.drops_deletes), (vec![1, 2, 3], true));
        assert_eq!(small.split, one_stripe("m".into(), Bytes::new()));
        // 180 bytes in parts of 60: three parts, not the two that were configured.
        let large = choose(&files, &config(&[(SPLIT_BYTES, "120")])).expect("three files");
        let (start, end) = ("m".into(), Bytes::new());
        assert_eq!(large.split, FileSplit::NewStripes { start, end, cells_each: 60, count: 3 });

        let files = [file(9, Some(("", "m"))), right(), right(), right(), file(1, None)];
        let plan = choose(&files, &config(&[])).expect("three files");
        assert_eq!(
            (plan.files, plan.drops_deletes),
            (vec![1, 2, 3], false),
            "level 0 may hold what they hide"
        );
    }

    #[test]
    fn a_large_file_is_not_rewritten_for_small_ones() {
        let stuck = SelectionContext { is_blocking: true, ..SelectionContext::default() };
        let mut files = vec![file(2 << 30, Some(("", "b"))), file(9, Some(("b", "")))];
        files.extend([file(5 << 20, Some(("", "b"))), file(5 << 20, Some(("", "b")))]);
        let config = StoreConfig { compaction_bytes_min: 1 << 20, ..config(&[]) };
        assert_eq!(select(&files, &config, stuck, None), None);
        files.push(file(5 << 20, Some(("", "b"))));
        let plan = select(&files, &config, stuck, None).expect("three small ones");
        assert_eq!(plan.files, [2, 3, 4]);
    }

    #[test]
    fn empty_stripes_are_kept_without_a_ttl() {
        let empty = StripeFile { max_timestamp: None, cells: 0, ..file(5, Some(("b", "c"))) };
        let files = [file(9 << 30, Some(("", "b"))), empty, file(9 << 30, Some(("c", "")))];
        assert_eq!(choose(&files, &config(&[])), None);
        let level0 = [StripeFile { max_timestamp: None, cells: 0, ..file(5, None) }];
        assert_eq!(choose(&level0, &config(&[])), None);
    }

    #[test]
    fn stripes_that_have_expired_become_one() {
        let old = |rows| StripeFile { max_timestamp: Some(10), ..file(5, Some(rows)) };
        let empty = |rows| StripeFile { max_timestamp: None, cells: 0, ..file(5, Some(rows)) };
        let files = [old(("", "b")), file(5, Some(("b", "d"))), old(("d", "f")), empty(("f", ""))];
        let plan =
            select(&files, &config(&[]), SelectionContext::default(), Some(500)).expect("two have expired");
        assert_eq!((plan.files, plan.drops_deletes), (vec![2, 3], true));
        assert_eq!(plan.split, one_stripe("d".into(), Bytes::new()));
        let with_level0 = [&files[..], &[file(1, None)]].concat();
        let plan =
            select(&with_level0, &config(&[]), SelectionContext::default(), Some(500)).expect("the same two");
        assert_eq!((plan.files, plan.drops_deletes), (vec![2, 3], false), "level 0 may hold what they hide");
        let plan = select(&files[..2], &config(&[]), SelectionContext::default(), Some(500));
        assert_eq!(plan, None, "they do not cover all rows");
        let files = [old(("", "b")), file(5, Some(("b", "")))];
        let plan =
            select(&files, &config(&[]), SelectionContext::default(), Some(500)).expect("with its neighbour");
        assert_eq!((plan.files, plan.split), (vec![0, 1], one_stripe(Bytes::new(), Bytes::new())));
        let files = [file(5, Some(("", "b"))), old(("b", ""))];
        assert_eq!(
            select(&files, &config(&[]), SelectionContext::default(), Some(500)),
            None,
            "the last has no neighbour"
        );
    }

    #[test]
    fn requested_and_reference_compactions_include_every_file() {
        let files = [file(9, Some(("", "m"))), file(9, Some(("m", ""))), file(1, None)];
        let major = SelectionContext { major: true, ..SelectionContext::default() };
        let plan = select(&files, &config(&[]), major, None).expect("all");
        assert!(plan.is_major && plan.drops_deletes && plan.files == [0, 1, 2]);
        assert_eq!(select(&files, &config(&[]), SelectionContext { busy: 1, ..major }, None), None);
        // If there is only one, it is split when it is large: all rows are in it.
        let alone = [file(80, Some(("", ""))), file(20, None)];
        for (split_bytes, splits) in [("100", true), ("101", false)] {
            let plan = select(&alone, &config(&[(SPLIT_BYTES, split_bytes)]), major, None).expect("all");
            let (start, end) = (Bytes::new(), Bytes::new());
            let new = FileSplit::NewStripes { start, end, cells_each: 50, count: 2 };
            assert_eq!(plan.split == new, splits, "{:?}", plan.split);
        }
        let mut half = file(9, None);
        half.base.is_reference = true;
        let plan = choose(&[half], &config(&[])).expect("a reference");
        assert!(plan.drops_deletes && !plan.is_major);
    }

    #[test]
    fn a_region_splits_at_a_balanced_stripe_boundary() {
        let of = |left, right| {
            let files = [file(left, Some(("", "m"))), file(right, Some(("m", "")))];
            Stripes::of(&files).split_row(&files, &config(&[]))
        };
        assert_eq!(of(10, 14), Some("m".into()));
        assert_eq!(of(10, 16), None);
    }

    #[test]
    fn invalid_stripe_settings_are_replaced() {
        let odd = [(INITIAL_COUNT, "0"), (SPLIT_PARTS, "1"), (SPLIT_PARTS, "x"), (LEVEL0_FILES_MIN, "-3")];
        let settings = config(&odd).engine.stripe;
        assert_eq!((settings.initial_count, settings.split_parts, settings.level0_files_min), (1, 2.0, 4));
        assert_eq!(config(&[(SPLIT_PARTS, "0.25")]).engine.stripe.split_parts, 4.0);
    }
}
