//! Filters of the qualifier, and filters that count columns.

use bytes::Bytes;
use evenkeel_common::{CellRef, KeyBuf, Result};
use evenkeel_protocol::pb;

use super::parse::decode;
use super::{Filter, ReturnCode, first_on_qualifier, illegal};

pub(super) fn parse_prefix(bytes: &Bytes) -> Result<Box<dyn Filter>> {
    let proto: pb::ColumnPrefixFilter = decode(bytes, &[(1, "prefix")])?;
    Ok(Box::new(ColumnPrefixFilter { prefix: proto.prefix.to_vec() }))
}

struct ColumnPrefixFilter {
    prefix: Vec<u8>,
}

impl Filter for ColumnPrefixFilter {
    fn filter_row_key(&mut self, _first_cell: &CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode> {
        let qualifier = cell.qualifier();
        if qualifier.starts_with(&self.prefix) {
            return Ok(ReturnCode::Include);
        }
        let before = qualifier < &self.prefix[..];
        Ok(if before { ReturnCode::SeekNextUsingHint } else { ReturnCode::NextRow })
    }

    fn next_cell_hint(&mut self, cell: &CellRef<'_>) -> Result<Option<KeyBuf>> {
        Ok(Some(first_on_qualifier(cell, &self.prefix)))
    }

    fn is_hinting(&self) -> bool {
        true
    }
}

pub(super) fn parse_prefixes(bytes: &Bytes) -> Result<Box<dyn Filter>> {
    let proto: pb::MultipleColumnPrefixFilter = decode(bytes, &[])?;
    let mut prefixes: Vec<Vec<u8>> = proto.sorted_prefixes.iter().map(|p| p.to_vec()).collect();
    prefixes.sort_unstable();
    if prefixes.iter().zip(prefixes.iter().skip(1)).any(|(prefix, next)| prefix == next) {
        return Err(illegal("prefixes must be distinct"));
    }
    Ok(Box::new(MultipleColumnPrefixFilter { prefixes, hint: 0 }))
}

/// Tries only the greatest prefix that is not after the qualifier. If a prefix starts with a
/// shorter one, the shorter one passes only columns that sort before the longer one, as in HBase.
struct MultipleColumnPrefixFilter {
    /// Sorted and distinct.
    prefixes: Vec<Vec<u8>>,
    /// The index of the prefix to seek to.
    hint: usize,
}

impl Filter for MultipleColumnPrefixFilter {
    fn filter_row_key(&mut self, _first_cell: &CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode> {
        let qualifier = cell.qualifier();
        let not_after = self.prefixes.partition_point(|prefix| &prefix[..] <= qualifier);
        match not_after.checked_sub(1).and_then(|last| self.prefixes.get(last)) {
            _ if self.prefixes.is_empty() => return Ok(ReturnCode::Include),
            Some(prefix) if qualifier.starts_with(prefix) => return Ok(ReturnCode::Include),
            _ if not_after == self.prefixes.len() => return Ok(ReturnCode::NextRow),
            _ => {}
        }
        self.hint = not_after;
        Ok(ReturnCode::SeekNextUsingHint)
    }

    fn next_cell_hint(&mut self, cell: &CellRef<'_>) -> Result<Option<KeyBuf>> {
        Ok(self.prefixes.get(self.hint).map(|prefix| first_on_qualifier(cell, prefix)))
    }

    fn is_hinting(&self) -> bool {
        true
    }
}

pub(super) fn parse_range(bytes: &Bytes) -> Result<Box<dyn Filter>> {
    let proto: pb::ColumnRangeFilter = decode(bytes, &[])?;
    Ok(Box::new(ColumnRangeFilter {
        min: proto.min_column.map(|c| c.to_vec()),
        min_inclusive: proto.min_column_inclusive.unwrap_or(false),
        max: proto.max_column.map(|c| c.to_vec()),
        max_inclusive: proto.max_column_inclusive.unwrap_or(false),
    }))
}

struct ColumnRangeFilter {
    min: Option<Vec<u8>>,
    min_inclusive: bool,
    max: Option<Vec<u8>>,
    max_inclusive: bool,
}

impl Filter for ColumnRangeFilter {
    fn filter_row_key(&mut self, _first_cell: &CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode> {
        let qualifier = cell.qualifier();
        match self.min.as_deref() {
            Some(min) if qualifier < min => return Ok(ReturnCode::SeekNextUsingHint),
            Some(min) if qualifier == min && !self.min_inclusive => return Ok(ReturnCode::NextCol),
            _ => {}
        }
        let within = match self.max.as_deref() {
            None => true,
            Some(max) if self.max_inclusive => qualifier <= max,
            Some(max) => qualifier < max,
        };
        Ok(if within { ReturnCode::Include } else { ReturnCode::NextRow })
    }

    fn next_cell_hint(&mut self, cell: &CellRef<'_>) -> Result<Option<KeyBuf>> {
        Ok(Some(first_on_qualifier(cell, self.min.as_deref().unwrap_or_default())))
    }

    fn is_hinting(&self) -> bool {
        true
    }
}

pub(super) fn parse_pagination(bytes: &Bytes) -> Result<Box<dyn Filter>> {
    let proto: pb::ColumnPaginationFilter = decode(bytes, &[(1, "limit")])?;
    let limit = not_negative("limit", proto.limit)?;
    Ok(match proto.column_offset {
        Some(start) => Box::new(ColumnPageFrom { limit, start: start.to_vec(), count: 0 }),
        None => {
            let offset = not_negative("offset", proto.offset.unwrap_or(0))?;
            Box::new(ColumnPage { offset, end: offset.wrapping_add(limit), count: 0 })
        }
    })
}

fn not_negative(what: &str, value: i32) -> Result<i32> {
    if value < 0 { Err(illegal(format!("{what} must be positive {value}"))) } else { Ok(value) }
}

/// ColumnPaginationFilter by number: the columns `offset..end` of each row.
struct ColumnPage {
    offset: i32,
    /// As in Java, offset and limit may overflow to a negative number; then no column passes.
    end: i32,
    count: i32,
}

impl Filter for ColumnPage {
    fn reset(&mut self) {
        self.count = 0;
    }

    fn filter_row_key(&mut self, _first_cell: &CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, _cell: &CellRef<'_>) -> Result<ReturnCode> {
        if self.count >= self.end {
            return Ok(ReturnCode::NextRow);
        }
        self.count += 1;
        Ok(if self.count <= self.offset { ReturnCode::NextCol } else { ReturnCode::IncludeAndNextCol })
    }
}

/// ColumnPaginationFilter by name: `limit` columns of each row, from the first that is not before
/// `start`.
struct ColumnPageFrom {
    limit: i32,
    start: Vec<u8>,
    count: i32,
}

impl Filter for ColumnPageFrom {
    fn reset(&mut self) {
        self.count = 0;
    }

    fn filter_row_key(&mut self, _first_cell: &CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode> {
        if self.count >= self.limit {
            return Ok(ReturnCode::NextRow);
        }
        if self.count == 0 && cell.qualifier() < &self.start[..] {
            return Ok(ReturnCode::SeekNextUsingHint);
        }
        self.count += 1;
        Ok(ReturnCode::IncludeAndNextCol)
    }

    fn next_cell_hint(&mut self, cell: &CellRef<'_>) -> Result<Option<KeyBuf>> {
        Ok(Some(first_on_qualifier(cell, &self.start)))
    }
}

pub(super) fn parse_count(bytes: &Bytes) -> Result<Box<dyn Filter>> {
    let proto: pb::ColumnCountGetFilter = decode(bytes, &[(1, "limit")])?;
    if proto.limit < 0 {
        return Err(illegal(format!("limit be positive {}", proto.limit)));
    }
    Ok(Box::new(ColumnCountGetFilter { limit: i64::from(proto.limit), count: 0 }))
}

/// Passes the first `limit` columns; meant for Gets. Within a row it reports that all later rows
/// are done, and `reset` revokes that.
struct ColumnCountGetFilter {
    limit: i64,
    count: i64,
}

impl Filter for ColumnCountGetFilter {
    fn reset(&mut self) {
        self.count = 0;
    }

    fn filter_all_remaining(&self) -> bool {
        self.count > self.limit
    }

    fn filter_cell(&mut self, _cell: &CellRef<'_>) -> Result<ReturnCode> {
        self.count += 1;
        Ok(if self.filter_all_remaining() { ReturnCode::NextCol } else { ReturnCode::IncludeAndNextCol })
    }
}
