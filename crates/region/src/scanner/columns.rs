//! Column trackers: which columns are wanted, and how many of their versions were returned.

use std::cmp::Ordering;

use bytes::Bytes;
use evenkeel_common::cell::is_delete_code;
use evenkeel_common::{CellRef, HBaseError, Result};

use super::matcher::MatchCode;
use crate::operations::Columns;

/// How many versions of a column are returned.
#[derive(Clone, Copy, Debug)]
pub(super) struct VersionLimits {
    /// The maximum.
    pub max: u32,
    /// The minimum, kept even if expired.
    pub min: u32,
    /// Versions with a timestamp below this have expired.
    pub oldest_unexpired: i64,
}

impl VersionLimits {
    fn is_expired(&self, timestamp: i64) -> bool {
        timestamp < self.oldest_unexpired
    }

    /// Returns true if neither a version with this timestamp nor an older one can be returned.
    fn ends_at(&self, timestamp: i64) -> bool {
        self.min == 0 && self.is_expired(timestamp)
    }
}

/// Tracks either explicitly requested columns or all columns.
#[derive(Debug)]
pub(super) enum ColumnTracker {
    Explicit(ExplicitColumnTracker),
    Wildcard(WildcardColumnTracker),
}

impl ColumnTracker {
    pub(super) fn new(columns: Option<&[Bytes]>, limits: VersionLimits) -> Self {
        match columns {
            Some(columns) if !columns.is_empty() => {
                Self::Explicit(ExplicitColumnTracker::new(columns, limits))
            }
            _ => Self::Wildcard(WildcardColumnTracker::new(limits)),
        }
    }

    /// Returns the bytes of the requested columns, or of the current one.
    pub(super) fn held_bytes(&self) -> u64 {
        match self {
            Self::Explicit(tracker) => size_of_val(&tracker.columns[..]) as u64,
            Self::Wildcard(tracker) => tracker.qualifier.capacity() as u64,
        }
    }

    pub(super) fn reset(&mut self) {
        match self {
            Self::Explicit(tracker) => tracker.reset(),
            Self::Wildcard(tracker) => tracker.reset(),
        }
    }

    /// Returns true if every wanted column was served.
    pub(super) fn done(&self) -> bool {
        matches!(self, Self::Explicit(tracker) if tracker.wanted().is_none())
    }

    /// Returns true if a cell with this timestamp ends its column.
    pub(super) fn ends_column(&self, timestamp: i64) -> bool {
        match self {
            Self::Explicit(tracker) => tracker.limits.ends_at(timestamp),
            Self::Wildcard(tracker) => tracker.limits.ends_at(timestamp),
        }
    }

    /// Returns the next column to seek; `None` if all columns are wanted, or no more are.
    pub(super) fn hint(&self) -> Option<&[u8]> {
        match self {
            Self::Explicit(tracker) => tracker.wanted().map(|column| &column[..]),
            Self::Wildcard(_) => None,
        }
    }

    /// Returns `Include` if the cell's column is wanted, otherwise where to seek.
    #[inline(always)]
    pub(super) fn check_column(&mut self, cell: &CellRef<'_>) -> MatchCode {
        match self {
            Self::Explicit(tracker) => tracker.check_column(cell),
            Self::Wildcard(_) => MatchCode::Include,
        }
    }

    /// Returns whether the cell's version is wanted, and counts it unless `ignore_count`.
    #[inline(always)]
    pub(super) fn check_versions(&mut self, cell: &CellRef<'_>, ignore_count: bool) -> Result<MatchCode> {
        match self {
            Self::Explicit(tracker) => Ok(tracker.check_versions(cell, ignore_count)),
            Self::Wildcard(tracker) => tracker.check_versions(cell, ignore_count),
        }
    }

    /// Marks the cell's column as served.
    pub(super) fn done_with_column(&mut self, cell: &CellRef<'_>) {
        if let Self::Explicit(tracker) = self {
            tracker.done_with_column(cell);
        }
    }

    /// Returns where to seek from a cell whose column is served.
    pub(super) fn next_row_or_column(&mut self, cell: &CellRef<'_>) -> MatchCode {
        self.done_with_column(cell);
        if self.done() { MatchCode::SeekNextRow } else { MatchCode::SeekNextCol }
    }
}

/// Tracks a sorted list of wanted columns.
#[derive(Debug)]
pub(super) struct ExplicitColumnTracker {
    columns: Columns,
    /// Index of the next column to serve.
    index: usize,
    count: u32,
    last_timestamp: Option<i64>,
    limits: VersionLimits,
}

impl ExplicitColumnTracker {
    fn new(columns: &[Bytes], limits: VersionLimits) -> Self {
        debug_assert!(columns.is_sorted());
        Self { columns: columns.into(), index: 0, count: 0, last_timestamp: None, limits }
    }

    fn reset(&mut self) {
        self.index = 0;
        self.start_column();
    }

    fn start_column(&mut self) {
        self.count = 0;
        self.last_timestamp = None;
    }

    fn wanted(&self) -> Option<&Bytes> {
        self.columns.get(self.index)
    }

    fn next_column(&mut self) {
        self.index += 1;
        self.start_column();
    }

    #[inline(always)]
    fn check_column(&mut self, cell: &CellRef<'_>) -> MatchCode {
        while let Some(wanted) = self.wanted() {
            match cell.qualifier().cmp(&wanted[..]) {
                Ordering::Equal => return MatchCode::Include,
                Ordering::Less => return MatchCode::SeekNextCol,
                Ordering::Greater => self.next_column(),
            }
        }
        MatchCode::SeekNextRow
    }

    #[inline(always)]
    fn check_versions(&mut self, cell: &CellRef<'_>, ignore_count: bool) -> MatchCode {
        let timestamp = cell.timestamp();
        if ignore_count {
            return MatchCode::Include;
        }
        if self.last_timestamp == Some(timestamp) {
            return MatchCode::Skip;
        }
        self.count += 1;
        let is_last_expired = self.count >= self.limits.min && self.limits.is_expired(timestamp);
        if self.count < self.limits.max && !is_last_expired {
            self.last_timestamp = Some(timestamp);
            return MatchCode::Include;
        }
        self.next_column();
        if self.wanted().is_none() {
            MatchCode::IncludeAndSeekNextRow
        } else {
            MatchCode::IncludeAndSeekNextCol
        }
    }

    fn done_with_column(&mut self, cell: &CellRef<'_>) {
        while let Some(wanted) = self.wanted() {
            match cell.qualifier().cmp(&wanted[..]) {
                Ordering::Less => return,
                Ordering::Equal => return self.next_column(),
                Ordering::Greater => self.next_column(),
            }
        }
    }
}

/// Tracks the current column if all columns are wanted.
#[derive(Debug)]
pub(super) struct WildcardColumnTracker {
    in_column: bool,
    /// The qualifier of the last cell, if `in_column`.
    qualifier: Vec<u8>,
    count: u32,
    last: Option<(i64, u8)>,
    limits: VersionLimits,
}

impl WildcardColumnTracker {
    fn new(limits: VersionLimits) -> Self {
        Self { in_column: false, qualifier: Vec::new(), count: 0, last: None, limits }
    }

    fn reset(&mut self) {
        self.in_column = false;
        self.last = None;
    }

    #[inline(always)]
    fn check_versions(&mut self, cell: &CellRef<'_>, ignore_count: bool) -> Result<MatchCode> {
        let (timestamp, type_code) = (cell.timestamp(), cell.type_code());
        let same = self.in_column && cell.qualifier() == self.qualifier;
        if !same {
            self.start_column(cell)?;
        }
        if ignore_count {
            return Ok(MatchCode::Include);
        }
        if same && self.last == Some((timestamp, type_code)) {
            return Ok(MatchCode::Skip);
        }
        Ok(self.count_version(timestamp, type_code))
    }

    fn start_column(&mut self, cell: &CellRef<'_>) -> Result<()> {
        if self.in_column && cell.qualifier() < &self.qualifier[..] {
            return Err(HBaseError::io(format!("{cell:?} comes after a later column")));
        }
        self.in_column = true;
        self.qualifier.clear();
        self.qualifier.extend_from_slice(cell.qualifier());
        self.count = 0;
        self.last = None;
        Ok(())
    }

    /// Keeps markers as long as the put before them. They do not count as versions.
    fn count_version(&mut self, timestamp: i64, type_code: u8) -> MatchCode {
        self.count += u32::from(!is_delete_code(type_code));
        let kept = self.count <= self.limits.min || !self.limits.is_expired(timestamp);
        if self.count > self.limits.max || !kept {
            return MatchCode::SeekNextCol;
        }
        self.last = Some((timestamp, type_code));
        MatchCode::Include
    }
}
