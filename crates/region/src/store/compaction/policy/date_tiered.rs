//! Time windows: files of recent cells are merged in small windows, files of older cells in larger
//! ones (`DateTieredCompactionPolicy`, `ExponentialCompactionWindowFactory`).
//!
//! ```text
//! | ... 4 windows of 4 | w | w | w | w | now: the incoming window |
//! ```
//!
//! A minor compaction merges files that are neighbours in age and whose newest cells are in one
//! window, the newest window first. If a file's newest cell is older than that of an earlier file,
//! it counts as equally new, so that the order of ages and the order of times agree. A major
//! compaction writes a file for each window, so that a read of a time range, and the end of a time
//! to live, concern few files.
//!
//! Storage policies of windows (`...storage.policy.enable`) are features of HDFS and have no effect
//! here.

#![allow(clippy::indexing_slicing, reason = "indexes come from the lengths of the arrays")]

use super::exploring::{explore, skip_large};
use super::{CandidateFile, CompactionPlan, SelectionContext};
use crate::store::StoreConfig;
use crate::store::file_writer::FileSplit;
use evenkeel_common::length;

/// `hbase.hstore.compaction.date.tiered.*`.
#[derive(Clone, Debug)]
pub(in crate::store) struct DateTieredSettings {
    file_age_max_ms: i64,
    incoming_files_min: usize,
    single_output: bool,
    window_ms: i64,
    windows_per_tier: i64,
    tier_age_max_ms: Option<i64>,
}

impl Default for DateTieredSettings {
    fn default() -> Self {
        Self {
            file_age_max_ms: i64::MAX,
            incoming_files_min: 6,
            single_output: true,
            window_ms: 6 * 60 * 60 * 1000,
            windows_per_tier: 4,
            tier_age_max_ms: None,
        }
    }
}

const FILE_AGE_MAX: &str = "hbase.hstore.compaction.date.tiered.max.storefile.age.millis";
const INCOMING_MIN: &str = "hbase.hstore.compaction.date.tiered.incoming.window.min";
const SINGLE_OUTPUT: &str = "hbase.hstore.compaction.date.tiered.single.output.for.minor.compaction";
const WINDOW: &str = "hbase.hstore.compaction.date.tiered.base.window.millis";
const PER_TIER: &str = "hbase.hstore.compaction.date.tiered.windows.per.tier";
const TIER_AGE_MAX: &str = "hbase.hstore.compaction.date.tiered.max.tier.age.millis";

/// The maximum number of files that a compaction writes. Cells older than that number of windows go
/// to one file.
const OUTPUTS_MAX: usize = 256;
/// The maximum number of windows to consider for a minor compaction.
const WINDOWS_MAX: usize = 100_000;

impl DateTieredSettings {
    pub(in crate::store) const KEYS: [&'static str; 6] =
        [FILE_AGE_MAX, INCOMING_MIN, SINGLE_OUTPUT, WINDOW, PER_TIER, TIER_AGE_MAX];

    /// Applies a setting. Returns true if the key is one of these. An invalid value changes
    /// nothing.
    pub(in crate::store) fn set(&mut self, key: &str, value: &str) -> bool {
        let positive = || value.parse::<i64>().ok().filter(|n| *n > 0);
        let known = match key {
            FILE_AGE_MAX => positive().map(|ms| self.file_age_max_ms = ms),
            INCOMING_MIN => {
                positive().map(|n| self.incoming_files_min = length::index(n.cast_unsigned()).max(2))
            }
            SINGLE_OUTPUT => value.to_ascii_lowercase().parse().ok().map(|is| self.single_output = is),
            WINDOW => positive().map(|ms| self.window_ms = ms),
            PER_TIER => positive().map(|n| self.windows_per_tier = n),
            TIER_AGE_MAX => positive().map(|ms| self.tier_age_max_ms = Some(ms)),
            _ => return false,
        };
        if known.is_none() {
            tracing::warn!(key, value, "invalid setting of date-tiered compaction; it is ignored");
        }
        true
    }

    /// Returns the window of `now_ms` and the earlier ones, the latest first.
    fn windows(&self, now_ms: i64) -> impl Iterator<Item = Window> {
        let tier_age = self.tier_age_max_ms.unwrap_or(self.file_age_max_ms);
        let promote_from = now_ms.checked_sub(tier_age).unwrap_or(i64::MIN);
        let per_tier = self.windows_per_tier;
        let now = Window { ms: self.window_ms, number: now_ms.div_euclid(self.window_ms) };
        std::iter::successors(Some(now), move |window| window.earlier(per_tier, promote_from))
    }

    /// Returns the starts of the windows for which a major compaction writes a file, the earliest
    /// first.
    fn boundaries(&self, earliest: i64, now_ms: i64) -> Vec<i64> {
        let starts = self.windows(now_ms).take_while(|window| window.is_after(earliest));
        let mut starts: Vec<_> = starts.map(|window| window.start()).take(OUTPUTS_MAX - 1).collect();
        starts.push(i64::MIN);
        starts.reverse();
        starts.dedup();
        starts
    }
}

/// The times from `number * ms` to before `(number + 1) * ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    ms: i64,
    number: i64,
}

impl Window {
    fn start(&self) -> i64 {
        self.ms.checked_mul(self.number).unwrap_or(i64::MIN)
    }

    /// Returns true if the whole window is after a time.
    fn is_after(&self, time_ms: i64) -> bool {
        self.number > time_ms.div_euclid(self.ms)
    }

    fn is_before(&self, time_ms: i64) -> bool {
        self.number < time_ms.div_euclid(self.ms)
    }

    /// Returns the window before this one. After the number of windows of a tier, it is a larger
    /// one, unless that would reach beyond `promote_from`. `None` at the beginning of time.
    fn earlier(&self, per_tier: i64, promote_from: i64) -> Option<Self> {
        let larger = self.ms.checked_mul(per_tier);
        let reaches = larger.and_then(|ms| self.start().checked_sub(ms)).unwrap_or(i64::MIN);
        if self.number % per_tier > 0 || reaches < promote_from {
            return Some(Self { number: self.number.checked_sub(1)?, ..*self });
        }
        Some(Self { ms: larger?, number: (self.number / per_tier).checked_sub(1)? })
    }
}

/// The properties of a file that the policy needs.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::store) struct DateTieredFile {
    pub base: CandidateFile,
    /// The smallest and the greatest timestamp; `None` without cells.
    pub times: Option<(i64, i64)>,
    /// True if a major compaction wrote it and it was not bulk loaded.
    pub is_major: bool,
}

/// Selects among files that are not busy, oldest first.
pub(in crate::store) fn select(
    files: &[DateTieredFile],
    config: &StoreConfig,
    context: SelectionContext,
    now_ms: i64,
    oldest_unexpired: i64,
) -> Option<CompactionPlan> {
    let settings = &config.engine.date_tiered;
    let bases: Vec<_> = files.iter().map(|file| file.base).collect();
    let all: Vec<usize> = (0..files.len()).collect();
    let forced = context.major && context.busy == 0;
    let candidates = if forced { all } else { skip_large(&bases, config, all, context.off_peak) };
    let is_all = context.busy == 0 && candidates.len() == files.len();
    let has_effect = || context.is_remote || has_effect(files, settings, now_ms, oldest_unexpired);
    let is_due = || context.major_is_due && is_all && has_effect();
    let is_trying = forced || (candidates.len() < config.compaction_files_max && is_due());
    let after_split = candidates.iter().any(|at| bases[*at].is_reference);
    let mut plan = if is_trying || after_split {
        let earliest = candidates.iter().filter_map(|at| files[*at].times).map(|(min, _)| min).min();
        let split = FileSplit::Windows(settings.boundaries(earliest.unwrap_or(i64::MAX), now_ms));
        CompactionPlan { files: candidates, split, ..CompactionPlan::default() }
    } else {
        minor(files, &bases, &candidates, config, context, now_ms)?
    };
    if !forced {
        plan.files.truncate(config.compaction_files_max);
    }
    let is_whole = context.busy == 0 && plan.files.len() == files.len();
    (plan.is_major, plan.drops_deletes) = (is_trying && is_whole, is_whole);
    Some(plan).filter(|plan| !plan.files.is_empty())
}

/// Returns true if a major compaction would have an effect: cells have expired, or there is not
/// exactly one file per window.
fn has_effect(
    files: &[DateTieredFile],
    settings: &DateTieredSettings,
    now_ms: i64,
    oldest_unexpired: i64,
) -> bool {
    let earliest = files.iter().filter_map(|file| file.times).map(|(min, _)| min).min();
    let boundaries = settings.boundaries(earliest.unwrap_or(i64::MAX), now_ms);
    let window_of = |time: i64| boundaries.partition_point(|start| *start <= time);
    let mut seen = Vec::new();
    files.iter().any(|file| {
        let (min, max) = file.times.unwrap_or((i64::MAX, i64::MAX));
        let window = window_of(max);
        let is_new = !seen.contains(&window);
        seen.push(window);
        !file.is_major || min < oldest_unexpired || window_of(min) != window || !is_new
    })
}

/// Returns the number of files of the fullest window. A file belongs to the window of its newest
/// cell. Files too old to be merged do not count.
pub(in crate::store) fn files_of_fullest_window(
    files: &[DateTieredFile],
    config: &StoreConfig,
    now_ms: i64,
) -> usize {
    let settings = &config.engine.date_tiered;
    let too_old = now_ms.checked_sub(settings.file_age_max_ms).unwrap_or(i64::MIN);
    let newest = files.iter().filter_map(|file| file.times).map(|(_, newest)| newest);
    let newest: Vec<_> = newest.filter(|newest| *newest >= too_old).collect();
    let earliest = newest.iter().min().copied().unwrap_or(i64::MAX);
    let boundaries = settings.boundaries(earliest, now_ms);
    let mut files_of_window = vec![0; boundaries.len() + 1];
    newest.iter().for_each(|time| files_of_window[boundaries.partition_point(|start| start <= time)] += 1);
    files_of_window.into_iter().max().unwrap_or(0)
}

/// Returns the files of the newest window with enough files.
fn minor(
    files: &[DateTieredFile],
    bases: &[CandidateFile],
    candidates: &[usize],
    config: &StoreConfig,
    context: SelectionContext,
    now_ms: i64,
) -> Option<CompactionPlan> {
    let settings = &config.engine.date_tiered;
    let too_old = now_ms.checked_sub(settings.file_age_max_ms).unwrap_or(i64::MIN);
    let mut newest_so_far = i64::MIN;
    let dated = candidates.iter().map(|at| {
        newest_so_far = newest_so_far.max(files[*at].times.map_or(i64::MIN, |(_, max)| max));
        (*at, newest_so_far)
    });
    // The newest last, because it is taken first.
    let mut left: Vec<_> = dated.collect();
    let mut files_min = settings.incoming_files_min;
    for window in settings.windows(now_ms).take(WINDOWS_MAX) {
        if left.is_empty() || window.is_before(too_old) {
            return None;
        }
        // Future times belong to the incoming window, too.
        let in_window = left.iter().rev().take_while(|(_, newest)| !window.is_after(*newest)).count();
        let of_window: Vec<_> = left.drain(left.len() - in_window..).map(|(at, _)| at).collect();
        if of_window.len() >= files_min
            && let Some(plan) = within(&window, bases, &of_window, files_min, config, context)
        {
            return Some(plan);
        }
        files_min = config.compaction_files_min;
    }
    None
}

fn within(
    window: &Window,
    bases: &[CandidateFile],
    of_window: &[usize],
    files_min: usize,
    config: &StoreConfig,
    context: SelectionContext,
) -> Option<CompactionPlan> {
    let limits = StoreConfig { compaction_files_min: files_min, ..config.clone() };
    let files = match context.is_blocking {
        true => of_window.to_vec(),
        false => explore(bases, &limits, of_window, context),
    };
    let is_one = files.len() != of_window.len() || config.engine.date_tiered.single_output;
    let split = if is_one { FileSplit::One } else { FileSplit::Windows(vec![i64::MIN, window.start()]) };
    (!files.is_empty()).then(|| CompactionPlan { files, split, ..CompactionPlan::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows of 6, four of which make a larger one.
    fn config(settings: &[(&str, &str)]) -> StoreConfig {
        let mut config =
            StoreConfig { compaction_ratio: 1.2, compaction_bytes_min: 0, ..StoreConfig::default() };
        let basics = [(WINDOW, "6"), (PER_TIER, "4"), (FILE_AGE_MAX, "100"), (INCOMING_MIN, "3")];
        let all = basics.iter().chain(settings);
        all.for_each(|(key, value)| assert!(config.engine.set(key, value)));
        config.compaction_files_min = 2;
        config.compaction_files_max = 12;
        config
    }

    fn files(times: &[(i64, i64)], bytes: &[u64]) -> Vec<DateTieredFile> {
        let file = |(times, bytes): (&(i64, i64), &u64)| DateTieredFile {
            base: CandidateFile { bytes: *bytes, ..CandidateFile::default() },
            times: Some(*times),
            is_major: false,
        };
        times.iter().zip(bytes).map(file).collect()
    }

    fn to(max: &[i64]) -> Vec<(i64, i64)> {
        max.iter().map(|max| (0, *max)).collect()
    }

    fn choose(files: &[DateTieredFile], now_ms: i64) -> Option<Vec<usize>> {
        select(files, &config(&[]), SelectionContext::default(), now_ms, i64::MIN).map(|plan| plan.files)
    }

    #[test]
    fn windows_grow_with_age() {
        let config = config(&[(FILE_AGE_MAX, "1000")]);
        let starts = |now_ms| config.engine.date_tiered.boundaries(0, now_ms);
        assert_eq!(
            starts(194),
            [i64::MIN, 96, 120, 144, 168, 192],
            "a whole tier is before the incoming one"
        );
        assert_eq!(starts(207), [i64::MIN, 96, 120, 144, 168, 192, 198, 204]);
    }

    #[test]
    fn the_incoming_window_comes_first_and_needs_more_files() {
        let recent = files(&to(&[2, 3, 4, 12, 14, 16, 17]), &[50, 51, 52, 40, 41, 42, 7]);
        assert_eq!(choose(&recent, 16), Some(vec![3, 4, 5, 6]), "those of 12 to 17");
        assert_eq!(choose(&files(&to(&[12, 13]), &[10, 11]), 17), None, "two are not enough");
        assert_eq!(
            choose(&files(&to(&[12, 13]), &[10, 11]), 19),
            Some(vec![0, 1]),
            "a window later they are"
        );
    }

    #[test]
    fn out_of_order_files_count_as_their_predecessors() {
        let late = files(&to(&[1, 13, 5, 2, 14]), &[20; 5]);
        assert_eq!(choose(&late, 15), Some(vec![1, 2, 3, 4]), "the third and fourth came after a 13");
    }

    #[test]
    fn files_beyond_the_greatest_age_are_left_alone() {
        let old = files(&to(&[1, 2, 3]), &[10, 10, 10]);
        assert_eq!(choose(&old, 90), Some(vec![0, 1, 2]));
        assert_eq!(choose(&old, 160), None);
    }

    #[test]
    fn files_pile_up_in_a_window_not_over_all_of_them() {
        let fullest = |files: &[DateTieredFile]| files_of_fullest_window(files, &config(&[]), 119);
        let one_a_window: Vec<_> = (14..20).map(|n| (6 * n, 6 * n + 5)).collect();
        assert_eq!(fullest(&files(&one_a_window, &[10; 6])), 2, "[72, 96) is one window");
        assert_eq!(fullest(&files(&to(&[115, 116, 117, 118]), &[10; 4])), 4);
        assert_eq!(fullest(&files(&to(&[1, 2, 3, 116]), &[10; 4])), 1, "too old to be merged");
        assert_eq!(fullest(&[]), 0);
    }

    #[test]
    fn a_major_compaction_writes_a_file_a_window() {
        let three = files(&[(0, 5), (20, 60), (150, 190)], &[1, 1, 1]);
        let major = SelectionContext { major: true, ..SelectionContext::default() };
        let plan = select(&three, &config(&[]), major, 194, i64::MIN).expect("all");
        assert!(plan.is_major && plan.drops_deletes && plan.files == [0, 1, 2]);
        let FileSplit::Windows(starts) = plan.split else { panic!("{:?}", plan.split) };
        assert!(starts[0] == i64::MIN && starts.is_sorted() && starts.contains(&192));
    }

    #[test]
    fn a_due_major_compaction_without_effect_is_skipped() {
        let due = SelectionContext { major_is_due: true, ..SelectionContext::default() };
        let plan = |files: &[DateTieredFile], unexpired| select(files, &config(&[]), due, 17, unexpired);
        let mut two = files(&[(7, 10), (12, 14)], &[100, 1]);
        assert!(plan(&two, i64::MIN).is_some_and(|plan| plan.is_major), "no major compaction wrote them");
        two.iter_mut().for_each(|file| file.is_major = true);
        assert_eq!(plan(&two, i64::MIN), None);
        let is_remote = SelectionContext { is_remote: true, ..due };
        let remote = select(&two, &config(&[]), is_remote, 17, i64::MIN);
        assert!(remote.is_some_and(|plan| plan.is_major), "its blocks become local");
        assert!(plan(&two, 8).is_some_and(|plan| plan.is_major), "something has expired");
        two[1].times = Some((10, 14));
        assert!(plan(&two, i64::MIN).is_some_and(|plan| plan.is_major), "a file of two windows");
    }

    #[test]
    fn two_outputs_when_the_whole_window_is_merged_and_asked_for() {
        let three = files(&to(&[12, 13, 14]), &[10, 10, 10]);
        let config = config(&[(SINGLE_OUTPUT, "false")]);
        let plan = select(&three, &config, SelectionContext::default(), 17, i64::MIN).expect("three");
        assert_eq!(plan.split, FileSplit::Windows(vec![i64::MIN, 12]));
    }

    #[test]
    fn extreme_timestamps_end_the_window_search() {
        for (min, max) in [(i64::MIN, i64::MIN), (i64::MIN, i64::MAX), (i64::MAX, i64::MAX), (-5, -1)] {
            for settings in
                [&[][..], &[(WINDOW, "1"), (PER_TIER, "1")], &[(FILE_AGE_MAX, "9223372036854775807")]]
            {
                let (three, config) = (files(&[(min, max); 3], &[10; 3]), config(settings));
                for context in [
                    SelectionContext::default(),
                    SelectionContext { major: true, ..SelectionContext::default() },
                ] {
                    for now_ms in [0, 17, 1_800_000_000_000] {
                        let plan = select(&three, &config, context, now_ms, i64::MIN);
                        assert!(!context.major || plan.is_some_and(|plan| plan.files.len() == 3));
                    }
                }
            }
        }
    }
}
