//! MultiRowRangeFilter: rows within any of several ranges.

use std::cmp::Ordering;

use bytes::Bytes;
use evenkeel_common::{CellRef, KeyBuf, Result};
use evenkeel_protocol::pb;

use super::parse::decode;
use super::{Filter, ReturnCode, first_on_row, illegal};

pub(super) fn parse(bytes: &Bytes) -> Result<Box<dyn Filter>> {
    let proto: pb::MultiRowRangeFilter = decode(bytes, &[])?;
    let ranges: Vec<_> = proto.row_range_list.iter().map(RowRange::of).collect();
    Ok(Box::new(MultiRowRangeFilter {
        ranges: sort_and_merge(ranges)?,
        position: None,
        done: false,
        reversed: false,
    }))
}

/// A range of rows. An empty stop row is no bound.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RowRange {
    start: Vec<u8>,
    start_inclusive: bool,
    stop: Vec<u8>,
    stop_inclusive: bool,
}

impl RowRange {
    fn of(proto: &pb::RowRange) -> Self {
        Self {
            start: proto.start_row.as_deref().unwrap_or_default().to_vec(),
            start_inclusive: proto.start_row_inclusive.unwrap_or(false),
            stop: proto.stop_row.as_deref().unwrap_or_default().to_vec(),
            stop_inclusive: proto.stop_row_inclusive.unwrap_or(false),
        }
    }

    fn is_valid(&self) -> bool {
        let order = self.start.cmp(&self.stop);
        self.start.is_empty()
            || self.stop.is_empty()
            || order.is_lt()
            || (order.is_eq() && self.stop_inclusive)
    }

    /// Returns true if the whole range is before the row.
    fn is_before(&self, row: &[u8]) -> bool {
        self.is_bounded() && (&self.stop[..] < row || (self.stop == row && !self.stop_inclusive))
    }

    /// Returns true if the whole range is after the row.
    fn is_after(&self, row: &[u8]) -> bool {
        &self.start[..] > row || (self.start == row && !self.start_inclusive)
    }

    fn is_bounded(&self) -> bool {
        !self.stop.is_empty()
    }

    /// Returns true if the next range overlaps or adjoins this one.
    fn touches(&self, next: &Self) -> bool {
        !self.is_bounded()
            || match self.stop.cmp(&next.start) {
                Ordering::Greater => true,
                Ordering::Equal => self.stop_inclusive || next.start_inclusive,
                Ordering::Less => false,
            }
    }

    fn extend(&mut self, next: Self) {
        let later = |a: &Self, b: &Self| match (a.is_bounded(), b.is_bounded()) {
            (false, _) => false,
            (true, false) => true,
            (true, true) => (&b.stop, b.stop_inclusive) > (&a.stop, a.stop_inclusive),
        };
        if later(self, &next) {
            self.stop = next.stop;
            self.stop_inclusive = next.stop_inclusive;
        }
    }
}

/// Sorts the ranges and merges those that touch.
fn sort_and_merge(mut ranges: Vec<RowRange>) -> Result<Vec<RowRange>> {
    if ranges.is_empty() {
        return Err(illegal("No ranges found."));
    }
    if let Some(bad) = ranges.iter().find(|range| !range.is_valid()) {
        let (start, stop) = (bad.start.escape_ascii(), bad.stop.escape_ascii());
        return Err(illegal(format!("Invalid range: start row => {start}, stop row => {stop}")));
    }
    ranges.sort_by(|a, b| a.start.cmp(&b.start).then(b.start_inclusive.cmp(&a.start_inclusive)));
    let mut merged: Vec<RowRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if last.touches(&range) => last.extend(range),
            _ => merged.push(range),
        }
    }
    Ok(merged)
}

/// The position of the current row relative to the ranges.
#[derive(Clone, Copy)]
enum RangePosition {
    Within,
    /// On the excluded bound of a range: the next row may be within the range.
    OnBound,
    /// Before the range at this index.
    Before(usize),
    PastAll,
}

struct MultiRowRangeFilter {
    /// Sorted, disjoint, at least one.
    ranges: Vec<RowRange>,
    /// Set by `filter_row_key`.
    position: Option<RangePosition>,
    done: bool,
    reversed: bool,
}

impl MultiRowRangeFilter {
    fn position(&self, row: &[u8]) -> RangePosition {
        let ahead = if self.reversed {
            self.ranges.partition_point(|range| !range.is_after(row)).checked_sub(1)
        } else {
            Some(self.ranges.partition_point(|range| range.is_before(row)))
        };
        let Some((i, range)) = ahead.and_then(|i| Some((i, self.ranges.get(i)?))) else {
            return RangePosition::PastAll;
        };
        if !range.is_before(row) && !range.is_after(row) {
            return RangePosition::Within;
        }
        let bound = if self.reversed { &range.stop } else { &range.start };
        if bound == row { RangePosition::OnBound } else { RangePosition::Before(i) }
    }
}

impl Filter for MultiRowRangeFilter {
    fn filter_row_key(&mut self, first_cell: &CellRef<'_>) -> Result<bool> {
        if self.done {
            return Ok(true);
        }
        let position = self.position(first_cell.row());
        self.done = matches!(position, RangePosition::PastAll);
        self.position = Some(position);
        Ok(false)
    }

    fn filter_all_remaining(&self) -> bool {
        self.done
    }

    fn filter_cell(&mut self, _cell: &CellRef<'_>) -> Result<ReturnCode> {
        Ok(match self.position {
            Some(RangePosition::Within) => ReturnCode::Include,
            Some(RangePosition::Before(_)) => ReturnCode::SeekNextUsingHint,
            Some(RangePosition::OnBound | RangePosition::PastAll) => ReturnCode::NextRow,
            None => return Err(illegal("a MultiRowRangeFilter cannot be within a SkipFilter")),
        })
    }

    fn next_cell_hint(&mut self, _cell: &CellRef<'_>) -> Result<Option<KeyBuf>> {
        let Some(RangePosition::Before(i)) = self.position else { return Ok(None) };
        let bound = |range: &RowRange| first_on_row(if self.reversed { &range.stop } else { &range.start });
        Ok(self.ranges.get(i).and_then(bound))
    }

    fn set_reversed(&mut self, reversed: bool) {
        self.reversed = reversed;
    }

    fn is_hinting(&self) -> bool {
        true
    }
}
