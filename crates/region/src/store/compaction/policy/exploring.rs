//! Selects files to compact: HBase's `ExploringCompactionPolicy`.
//!
//! Files are in the order of their age. Only neighbours may be merged, or a newer cell could end up
//! in an older file. A range of neighbours is *in ratio* if no file is much larger than the others
//! together, so that no large file is rewritten for a few small ones. Among all ranges in ratio,
//! the one with the most files wins, then the smallest.

#![allow(clippy::indexing_slicing, reason = "indexes come from the lengths of the arrays")]

use super::{CandidateFile, SelectionContext};
use crate::store::StoreConfig;

/// Indexes of the selected candidates, and whether this is a major compaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::store) struct Selection {
    pub files: Vec<usize>,
    pub is_major: bool,
}

/// Selects among files that are not busy, oldest first.
pub(in crate::store) fn select(
    files: &[CandidateFile],
    config: &StoreConfig,
    context: SelectionContext,
) -> Selection {
    let all: Vec<usize> = (0..files.len()).collect();
    let forced = context.major && context.busy == 0;
    let candidates = if forced { all } else { skip_large(files, config, all, context.off_peak) };
    let is_all = context.busy == 0 && candidates.len() == files.len();
    let trying_major =
        forced || (context.major_is_due && is_all && candidates.len() < config.compaction_files_max);
    let after_split = candidates.iter().any(|i| files[*i].is_reference);
    let mut chosen = candidates;
    if !trying_major && !after_split {
        chosen.retain(|i| !files[*i].is_excluded);
        chosen = explore(files, config, &chosen, context);
        if chosen.len() < config.compaction_files_min {
            chosen.clear();
        }
    }
    if !forced {
        chosen.truncate(config.compaction_files_max);
    }
    let is_major = trying_major && context.busy == 0 && chosen.len() == files.len();
    Selection { files: chosen, is_major }
}

/// Skips large files at the old end of the list.
pub(in crate::store) fn skip_large(
    files: &[CandidateFile],
    config: &StoreConfig,
    mut candidates: Vec<usize>,
    off_peak: bool,
) -> Vec<usize> {
    let bytes_max = if off_peak { config.compaction_bytes_max_off_peak } else { config.compaction_bytes_max };
    let is_large = |i: &usize| !files[*i].is_reference && files[*i].bytes > bytes_max;
    let large = candidates.iter().take_while(|i| is_large(i)).count();
    candidates.drain(..large);
    candidates
}

/// Returns the best range of neighbours among the candidates; empty if there is none. If the store
/// may be stuck, any range is better than none.
pub(in crate::store) fn explore(
    files: &[CandidateFile],
    config: &StoreConfig,
    candidates: &[usize],
    context: SelectionContext,
) -> Vec<usize> {
    let is_blocking = context.is_blocking;
    let ratio = if context.off_peak { config.compaction_ratio_off_peak } else { config.compaction_ratio };
    let bytes_max =
        if context.off_peak { config.compaction_bytes_max_off_peak } else { config.compaction_bytes_max };
    let sizes: Vec<u64> = candidates.iter().map(|i| files[*i].bytes).collect();
    let (mut best, mut smallest) = (None::<FileRange>, None::<FileRange>);
    for start in 0..sizes.len() {
        let longest = sizes.len().min(start.saturating_add(config.compaction_files_max));
        for end in start.saturating_add(config.compaction_files_min)..=longest {
            let run = FileRange { start, end, bytes: sizes[start..end].iter().sum() };
            if is_blocking && smallest.is_none_or(|smallest| run.bytes < smallest.bytes) {
                smallest = Some(run);
            }
            if run.may_be_chosen(&sizes, config.compaction_bytes_min, bytes_max, ratio)
                && best.is_none_or(|best| run.is_better(&best, is_blocking))
            {
                best = Some(run);
            }
        }
    }
    best.or(smallest).map_or_else(Vec::new, |run| candidates[run.start..run.end].to_vec())
}

/// A range of neighbours among the candidates.
#[derive(Clone, Copy, Debug)]
struct FileRange {
    start: usize,
    end: usize,
    bytes: u64,
}

/// The factor by which the files per byte must improve.
const IMPROVEMENT_FACTOR: f64 = 1.05;

impl FileRange {
    fn len(&self) -> usize {
        self.end - self.start
    }

    fn may_be_chosen(&self, sizes: &[u64], bytes_min: u64, bytes_max: u64, ratio: f64) -> bool {
        self.bytes <= bytes_max && (self.bytes < bytes_min || self.is_in_ratio(sizes, ratio))
    }

    fn is_in_ratio(&self, sizes: &[u64], ratio: f64) -> bool {
        let in_ratio = |bytes: u64| bytes as f64 <= (self.bytes - bytes) as f64 * ratio;
        self.len() < 2 || sizes[self.start..self.end].iter().all(|bytes| in_ratio(*bytes))
    }

    fn is_better(&self, best: &Self, is_blocking: bool) -> bool {
        if is_blocking && best.bytes > 0 && self.bytes > 0 {
            let files_per_byte = |run: &Self| run.len() as f64 / run.bytes as f64;
            return files_per_byte(best) * IMPROVEMENT_FACTOR < files_per_byte(self);
        }
        self.len() > best.len() || (self.len() == best.len() && self.bytes < best.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(sizes: &[u64], min_bytes: u64, context: SelectionContext) -> Vec<u64> {
        let config = StoreConfig {
            compaction_bytes_min: min_bytes,
            compaction_files_max: 5,
            compaction_ratio: 1.0,
            ..StoreConfig::default()
        };
        let files: Vec<_> =
            sizes.iter().map(|bytes| CandidateFile { bytes: *bytes, ..CandidateFile::default() }).collect();
        select(&files, &config, context).files.into_iter().map(|i| sizes[i]).collect()
    }

    #[test]
    fn neighbours_in_ratio_are_chosen() {
        let none: &[u64] = &[];
        let cases: &[(&[u64], u64, &[u64])] = &[
            (&[100, 50, 23, 12, 12], 10, &[23, 12, 12]),
            (&[100, 50, 25, 12, 12], 10, none),
            (&[100, 50, 12, 12], 10, none),
            (&[12, 12], 10, none),
            (&[7, 6, 5, 4, 3, 2, 1], 10, &[5, 4, 3, 2, 1]),
            (&[5, 5, 5], 100, &[5, 5, 5]),
            (&[1000, 5, 5, 5], 10, &[5, 5, 5]),
            (none, 10, none),
        ];
        for (sizes, min_bytes, expected) in cases {
            assert_eq!(choose(sizes, *min_bytes, SelectionContext::default()), *expected, "{sizes:?}");
        }
    }

    #[test]
    fn a_blocked_store_compacts_the_smallest_run() {
        let context = SelectionContext { is_blocking: true, ..SelectionContext::default() };
        assert_eq!(choose(&[1000, 100, 10, 1], 0, context), [100, 10, 1]);
    }

    #[test]
    fn requested_and_due_majors_select_every_file() {
        let sizes = [9, 8, 7, 6, 5, 4];
        assert_eq!(
            choose(&sizes, 10, SelectionContext { major: true, ..SelectionContext::default() }),
            sizes
        );
        assert_eq!(
            choose(&[900, 1], 10, SelectionContext { major_is_due: true, ..SelectionContext::default() }),
            [900, 1]
        );
        let busy = SelectionContext { major: true, busy: 1, ..SelectionContext::default() };
        assert!(choose(&[900, 1], 10, busy).is_empty(), "not while others are busy");
    }

    #[test]
    fn off_peak_hours_have_their_own_ratio() {
        let sizes = [100, 50, 25, 12, 12];
        assert!(choose(&sizes, 10, SelectionContext::default()).is_empty());
        assert_eq!(
            choose(&sizes, 10, SelectionContext { off_peak: true, ..SelectionContext::default() }),
            sizes
        );
    }

    #[test]
    fn references_go_first_whatever_the_ratio() {
        let config = StoreConfig::default();
        let reference = CandidateFile { bytes: 1 << 40, is_reference: true, is_excluded: false };
        let selection = select(&[reference], &config, SelectionContext::default());
        assert_eq!((selection.files, selection.is_major), (vec![0], false));
    }

    #[test]
    fn minor_compactions_leave_out_what_is_excluded_or_too_large() {
        let config = StoreConfig { compaction_bytes_max: 50, ..StoreConfig::default() };
        let plain = CandidateFile { bytes: 5, ..CandidateFile::default() };
        let files = [
            CandidateFile { bytes: 60, ..plain },
            plain,
            CandidateFile { is_excluded: true, ..plain },
            plain,
            plain,
        ];
        assert_eq!(select(&files, &config, SelectionContext::default()).files, [1, 3, 4]);
    }
}
