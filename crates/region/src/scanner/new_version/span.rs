//! [`Span`]: the part of a column's history that ends at one marker over a range of timestamps.
//!
//! For each of its intervals a span counts the distinct sequence ids of the puts that were live at
//! the interval's end. Few numbers per put suffice. A put is counted from its own sequence id up to
//! the last interval in which it was counted (`until`). If a later marker cuts one of these
//! intervals, the put is counted in the new interval if it came before that marker. So the count of
//! a new interval is that of the interval it is cut out of, less the puts that came after the
//! marker. Puts of earlier spans all came before it, so the span keeps the sequence ids of its own
//! puts only.
//!
//! A put with the sequence id of a marker (both came in one batch) is counted in the interval that
//! the marker ends if it is looked up after the marker, but not if it is looked up before it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::live_intervals::{LiveInterval, LiveIntervals, OPEN};

/// The approximate memory of a version marker and of a counted put in their trees.
const MARKER_BYTES: usize = 256;
const PUT_BYTES: usize = 64;

/// A sequence id that the span has counted.
#[derive(Clone, Copy, Debug)]
struct Counted {
    /// The end of the last interval that counts it.
    until: u64,
    /// True if the interval that ends at this sequence id counts it.
    at_own: bool,
}

/// The result of [`Span::count`].
#[derive(Clone, Copy, Debug)]
pub(super) struct CountResult {
    /// Some interval has enough other puts; the put is counted in the intervals before it.
    pub(super) is_full: bool,
    /// The put is counted up to the end of the span.
    pub(super) has_passed: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Span {
    /// The marker's timestamp: at the span's end, everything up to it is deleted.
    pub(super) timestamp: i64,
    /// The number of cells of the column read when its marker came.
    pub(super) made_at: u64,
    /// The sequence ids of version markers, by timestamp.
    version_markers: BTreeMap<i64, BTreeSet<u64>>,
    markers: usize,
    intervals: LiveIntervals,
    counted: BTreeMap<u64, Counted>,
}

impl Span {
    pub(super) fn new(timestamp: i64, made_at: u64) -> Self {
        Self {
            timestamp,
            made_at,
            version_markers: BTreeMap::new(),
            markers: 0,
            intervals: LiveIntervals::new(),
            counted: BTreeMap::new(),
        }
    }

    /// Returns the approximate memory.
    pub(super) fn held_bytes(&self) -> usize {
        let trees = self.markers * MARKER_BYTES + self.counted.len() * PUT_BYTES;
        size_of::<Self>() + trees + self.intervals.held_bytes()
    }

    /// Returns the sequence id of the first version marker of this timestamp that came after the
    /// put.
    pub(super) fn version_marker_after(&self, timestamp: i64, seq_id: u64) -> Option<u64> {
        self.version_markers.get(&timestamp)?.range(seq_id..).next().copied()
    }

    /// Adds a version marker. It cuts the interval in which it came.
    pub(super) fn add_version_marker(&mut self, timestamp: i64, seq_id: u64) {
        self.markers += usize::from(self.version_markers.entry(timestamp).or_default().insert(seq_id));
        let at = self.intervals.ending_from(seq_id);
        let next = self.intervals.get(at);
        if next.end == seq_id {
            if let Some(put) = self.counted.get_mut(&seq_id).filter(|put| put.at_own) {
                put.at_own = false;
                self.intervals.change(at, |interval| interval.live -= 1);
            }
            return;
        }
        let begin = self.intervals.before(at).map(|before| self.intervals.get(before).end);
        let before = self.begun_before(begin, seq_id, next);
        let since = next.begun - before;
        let with_own_end = u32::from(self.counted.get(&next.end).is_some_and(|put| put.at_own));
        let with_marker = u32::from(self.counted.contains_key(&seq_id));
        self.intervals.change(at, |interval| interval.begun = since - with_marker);
        let live = next.live - since - with_own_end;
        self.intervals.insert(at, LiveInterval { end: seq_id, live, begun: before });
    }

    /// Returns the number of counted sequence ids of an interval below `seq_id`. It visits either
    /// these or the others, whichever are fewer, so cutting an interval of n into single ones takes
    /// n log n steps.
    fn begun_before(&self, begin: Option<u64>, seq_id: u64, interval: LiveInterval) -> u32 {
        let begin = begin.map_or(Bound::Unbounded, Bound::Excluded);
        let mut before = self.counted.range((begin, Bound::Excluded(seq_id)));
        let mut since = self.counted.range(seq_id..interval.end);
        let mut count = 0;
        loop {
            match (before.next(), since.next()) {
                (None, _) => return count,
                (_, None) => return interval.begun - count,
                _ => count += 1,
            }
        }
    }

    /// Counts a put in each interval that ends from `seq_id` to `until`, up to the first with
    /// `live_max` others. `is_own` is true if no earlier span ends at or after `seq_id`.
    /// `was_passed` is true if a put with the same sequence id passed the previous span.
    pub(super) fn count(
        &mut self,
        seq_id: u64,
        until: u64,
        live_max: u32,
        is_own: bool,
        was_passed: bool,
    ) -> CountResult {
        let (from, to) = (self.intervals.ending_from(seq_id), self.intervals.ending_after(until));
        let full = if from < to { self.intervals.first_full(from, to, live_max) } else { None };
        let stop = full.unwrap_or(to);
        let is_full = full.is_some();
        let Some(last) = self.intervals.before(stop).filter(|last| *last >= from) else {
            return CountResult { is_full, has_passed: false };
        };
        let last_end = self.intervals.get(last).end;
        let has_passed = last_end == OPEN;
        if !was_passed {
            let known = self.counted.get(&seq_id).copied();
            let at_own = self.intervals.get(from).end == seq_id;
            if at_own && known.is_some_and(|put| !put.at_own) {
                self.intervals.add(from, self.intervals.after(from));
            }
            let fresh = known.map_or(from, |put| self.intervals.ending_after(put.until));
            if fresh < stop {
                self.intervals.add(fresh, stop);
            }
            if is_own || !has_passed {
                self.note(seq_id, last_end, at_own);
            }
        }
        CountResult { is_full, has_passed }
    }

    fn note(&mut self, seq_id: u64, until: u64, at_own: bool) {
        if let Some(put) = self.counted.get_mut(&seq_id) {
            put.until = put.until.max(until);
            put.at_own |= at_own;
            return;
        }
        self.counted.insert(seq_id, Counted { until, at_own });
        if !at_own {
            let at = self.intervals.ending_from(seq_id);
            self.intervals.change(at, |interval| interval.begun += 1);
        }
    }
}
