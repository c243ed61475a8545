//! [`NewVersionTracker`]: columns, versions and deletes of a family with NEW_VERSION_BEHAVIOR.
//!
//! With it, the last write wins, regardless of timestamps: a marker hides only cells that were
//! written before it, and a version that newer ones displaced stays hidden even if those are
//! deleted later. So answers do not depend on when compactions run.
//!
//! The state of a column is a set of *spans* by sequence id, one for each marker over a range of
//! timestamps (and one for the open end). A span holds the versions deleted singly in its time. For
//! each *interval* between two of those, it counts the puts that were live then. A put is looked up
//! in every span from its own sequence id on, until one shows that it is deleted.
//!
//! **Bounds.** Memory is proportional to the cells read of the row, about a hundred bytes each, not
//! to markers times puts, because spans keep counts; see [`span`] and [`live_intervals`]. (One
//! exception: a put with the same timestamp as a newer one takes that memory in each later span of
//! a family marker up to the newer put, if that span has version markers.) A cell takes a number of
//! steps proportional to the square root of the column's version markers, and one for each later
//! marker of the family that hides only older timestamps. A span of the family is copied for a
//! column when a put of the column is looked up in it.
//!
//! | module | contents |
//! |---|---|
//! | [`span`] | [`Span`]: the puts that were live, and the versions deleted, before one marker |
//! | [`live_intervals`] | the counts of a span |

mod live_intervals;
mod span;

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use bytes::Bytes;
use evenkeel_common::{CellRef, CellType};

use super::columns::VersionLimits;
use super::deletes::DeleteResult;
use super::matcher::MatchCode;
use live_intervals::OPEN;
use span::Span;

/// The approximate overhead of a B-tree entry.
const ENTRY_BYTES: usize = 48;

/// Spans by the sequence id that ends them.
type Spans = BTreeMap<u64, Span>;

/// How far lookups of a sequence id have passed beyond its own span.
#[derive(Clone, Copy, Debug)]
struct LookupProgress {
    /// How many cells of the column had been read.
    at: u64,
    /// The end of the last span that it passed.
    last: u64,
}

/// The current column.
#[derive(Debug, Default)]
struct Column {
    qualifier: Option<Vec<u8>>,
    /// Spans of the column's markers, and copies of the family's in which a put was looked up.
    spans: Spans,
    /// Sequence ids that passed more than their own span.
    passed: BTreeMap<u64, LookupProgress>,
    /// The number of cells read.
    cells: u64,
}

impl Column {
    fn enter(&mut self, qualifier: &[u8]) {
        self.spans.clear();
        self.passed.clear();
        self.cells = 0;
        let own = self.qualifier.get_or_insert_default();
        own.clear();
        own.extend_from_slice(qualifier);
    }

    /// Returns the first span that ends at `seq_id` or later. It exists, because the family has an
    /// open one.
    fn span_ending_from(&mut self, family: &Spans, seq_id: u64) -> Option<(u64, &mut Span)> {
        let of_column = self.spans.range(seq_id..).next().map(|(end, _)| *end);
        let of_family = family.range(seq_id..).next();
        if let Some((end, span)) = of_family.filter(|(end, _)| of_column.is_none_or(|own| **end < own)) {
            return Some((*end, self.spans.entry(*end).or_insert_with(|| span.clone())));
        }
        of_column.and_then(|end| Some((end, self.spans.get_mut(&end)?)))
    }

    fn was_passed(&self, seq_id: u64, end: u64, made_at: u64) -> bool {
        self.passed.get(&seq_id).is_some_and(|passed| made_at < passed.at && end <= passed.last)
    }

    /// Records that `seq_id` passed the span that ends at `last` and was made at `made_at`. A span
    /// made since the previous record ends all further lookups of older timestamps, so the state
    /// beyond it is no longer needed.
    fn note_passed(&mut self, seq_id: u64, last: u64, made_at: u64) {
        let at = self.cells;
        let passed = self.passed.entry(seq_id).or_insert(LookupProgress { at, last });
        if made_at >= passed.at {
            *passed = LookupProgress { at, last };
        }
        passed.last = passed.last.max(last);
    }
}

/// The tracker of one scan.
#[derive(Debug)]
pub(super) struct NewVersionTracker {
    columns: Option<Vec<Bytes>>,
    index: usize,
    /// The number of versions that the family keeps.
    family_versions_max: u32,
    limits: VersionLimits,
    /// Spans of the family's markers; they count no puts.
    family_spans: Spans,
    has_family_markers: bool,
    column: Column,
    last_put: Option<(i64, u64)>,
    count: u32,
}

impl NewVersionTracker {
    pub(super) fn new(columns: Option<&[Bytes]>, family_versions_max: u32, limits: VersionLimits) -> Self {
        let columns = columns.filter(|columns| !columns.is_empty()).map(<[Bytes]>::to_vec);
        Self {
            columns,
            index: 0,
            family_versions_max,
            limits,
            family_spans: Spans::from([(OPEN, Span::new(i64::MIN, 0))]),
            has_family_markers: false,
            column: Column::default(),
            last_put: None,
            count: 0,
        }
    }

    /// Returns the bytes of the requested columns and of the state of the current row.
    pub(super) fn held_bytes(&self) -> u64 {
        let columns = self.columns.as_deref().map_or(0, size_of_val);
        let spans = self.family_spans.values().chain(self.column.spans.values());
        let spans = spans.map(|span| span.held_bytes() + ENTRY_BYTES).sum::<usize>();
        let passed = self.column.passed.len() * (size_of::<LookupProgress>() + ENTRY_BYTES);
        (size_of::<Self>() + columns + spans + passed) as u64
    }

    pub(super) fn reset(&mut self) {
        if std::mem::take(&mut self.has_family_markers) {
            self.family_spans = Spans::from([(OPEN, Span::new(i64::MIN, 0))]);
        }
        self.column.spans.clear();
        self.column.passed.clear();
        self.column.qualifier = None;
        self.last_put = None;
        self.index = 0;
        self.count = 0;
    }

    /// Enters the cell's column. Returns the sequence id of a newer put of the same version.
    fn enter(&mut self, cell: &CellRef<'_>) -> Option<u64> {
        let put = (cell.type_code() == CellType::Put.code()).then(|| (cell.timestamp(), cell.seq_id()));
        if self.column.qualifier.as_deref() != Some(cell.qualifier()) {
            self.column.enter(cell.qualifier());
            self.count = 0;
        } else if let (Some((timestamp, seq_id)), Some(last)) = (self.last_put, put)
            && timestamp == last.0
        {
            return Some(seq_id);
        }
        self.last_put = put;
        None
    }

    /// Adds a marker. A family's marker belongs to the empty qualifier, too.
    pub(super) fn add(&mut self, cell: &CellRef<'_>) {
        self.enter(cell);
        let (column, family) = (&mut self.column, &mut self.family_spans);
        column.cells += 1;
        let (timestamp, seq_id) = (cell.timestamp(), cell.seq_id());
        match cell.cell_type() {
            Some(CellType::DeleteFamily) => {
                self.has_family_markers = true;
                family.insert(seq_id, Span::new(timestamp, 0));
                column.spans.insert(seq_id, Span::new(timestamp, column.cells));
            }
            Some(CellType::DeleteColumn) => {
                column.spans.insert(seq_id, Span::new(timestamp, column.cells));
            }
            Some(CellType::DeleteFamilyVersion) => {
                self.has_family_markers = true;
                if let Some((end, span)) = family.range_mut(seq_id..).next() {
                    // The column's own span may end earlier. The column's copy of this span stays
                    // as it is then.
                    column.spans.entry(*end).or_insert_with(|| span.clone());
                    span.add_version_marker(timestamp, seq_id);
                }
                if let Some((_, span)) = column.span_ending_from(family, seq_id) {
                    span.add_version_marker(timestamp, seq_id);
                }
            }
            _ => {
                if let Some((_, span)) = column.span_ending_from(family, seq_id) {
                    span.add_version_marker(timestamp, seq_id);
                }
            }
        }
    }

    /// Returns which marker, if any, hides a put. Cells of a column must come in order, each once.
    pub(super) fn is_deleted(&mut self, cell: &CellRef<'_>) -> DeleteResult {
        let newer = self.enter(cell);
        self.column.cells += 1;
        let (timestamp, seq_id) = (cell.timestamp(), cell.seq_id());
        let mut passed = None;
        let result = self.look_up(timestamp, seq_id, newer, &mut passed);
        if let Some((last, made_at)) = passed {
            self.column.note_passed(seq_id, last, made_at);
        }
        result
    }

    /// Looks a put up in each span, and counts it. Sets `passed` to the end of the last span beyond
    /// its own that it passed, and when that span was made.
    fn look_up(
        &mut self,
        timestamp: i64,
        seq_id: u64,
        newer: Option<u64>,
        passed: &mut Option<(u64, u64)>,
    ) -> DeleteResult {
        let (mut next, mut is_own) = (Some(seq_id), true);
        while let Some(from) = next {
            let Some((end, span)) = self.column.span_ending_from(&self.family_spans, from) else { break };
            let made_at = span.made_at;
            let was_passed = !is_own && self.column.was_passed(seq_id, end, made_at);
            let Some(span) = self.column.spans.get_mut(&end) else { break };
            let marker = span.version_marker_after(timestamp, seq_id);
            let until = newer.unwrap_or(OPEN).min(marker.unwrap_or(OPEN));
            let visit = span.count(seq_id, until, self.family_versions_max, is_own, was_passed);
            if visit.has_passed && !is_own {
                *passed = Some((end, made_at));
            }
            if visit.is_full {
                return DeleteResult::VersionMasked;
            }
            if marker.is_some() {
                return DeleteResult::VersionDeleted;
            }
            if timestamp <= span.timestamp {
                return DeleteResult::ColumnDeleted;
            }
            (next, is_own) = (end.checked_add(1), false);
        }
        if newer.is_some() { DeleteResult::VersionMasked } else { DeleteResult::NotDeleted }
    }

    pub(super) fn done(&self) -> bool {
        self.columns.as_ref().is_some_and(|columns| self.index >= columns.len())
    }

    pub(super) fn hint(&self) -> Option<&[u8]> {
        self.columns.as_ref()?.get(self.index).map(|column| &column[..])
    }

    pub(super) fn check_column(&mut self, cell: &CellRef<'_>) -> MatchCode {
        let Some(columns) = &self.columns else { return MatchCode::Include };
        while let Some(wanted) = columns.get(self.index) {
            match cell.qualifier().cmp(&wanted[..]) {
                Ordering::Less => return MatchCode::SeekNextCol,
                Ordering::Equal => return MatchCode::Include,
                Ordering::Greater => self.index += 1,
            }
        }
        MatchCode::SeekNextRow
    }

    pub(super) fn check_versions(&mut self, cell: &CellRef<'_>, ignore_count: bool) -> MatchCode {
        if ignore_count {
            return MatchCode::Include;
        }
        self.count += 1;
        let mut limit = self.limits.max;
        if cell.timestamp() < self.limits.oldest_unexpired {
            limit = limit.min(self.limits.min);
        }
        match self.count.cmp(&limit) {
            Ordering::Less => MatchCode::Include,
            Ordering::Equal => MatchCode::IncludeAndSeekNextCol,
            Ordering::Greater => MatchCode::SeekNextCol,
        }
    }
}
