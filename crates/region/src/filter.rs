//! Filters: they select what a region drops from a Get or a Scan.
//!
//! A filter arrives as a Java class name and the bytes of that class's message ([`from_proto`]).
//! Every class of `org.apache.hadoop.hbase.filter` of HBase 2.6 has its counterpart here:
//!
//! | module | contents |
//! |---|---|
//! | `compare` | RowFilter, FamilyFilter, QualifierFilter, ValueFilter, DependentColumnFilter |
//! | `single_column` | SingleColumnValueFilter, SingleColumnValueExcludeFilter, ColumnValueFilter |
//! | `column` | ColumnPrefixFilter, MultipleColumnPrefixFilter, ColumnRangeFilter |
//! | `column` | ColumnPaginationFilter, ColumnCountGetFilter |
//! | `row` | PrefixFilter, InclusiveStopFilter, PageFilter, RandomRowFilter, FilterAllFilter |
//! | `fuzzy_row`, `row_range` | FuzzyRowFilter, MultiRowRangeFilter |
//! | `key` | KeyOnlyFilter, FirstKeyOnlyFilter, FirstKeyValueMatchingQualifiersFilter |
//! | `key` | TimestampsFilter |
//! | `mob` | the filter of a scan that asks for references to MOB files only |
//! | `list`, `wrap` | FilterList; SkipFilter, WhileMatchFilter, FilterWrapper |
//! | `parse` | from messages to filters |
//! | `timer` | [`FilterTimer`]: how long a filter's calls take |
//! | `comparator`, `decimal`, `java_regex` | the values to which a cell's part is compared |
//!
//! # How a scanner drives a filter
//!
//! One filter belongs to one region scanner and sees the cells of all its stores. For each row:
//!
//! 1. If [`Filter::filter_all_remaining`], the scan ends, and the row counts as filtered. Then
//!    [`Filter::filter_row_key`] with the row's first cell. `true`: skip the row, then
//!    [`Filter::reset`]. In a forward scan, step 2 runs for the cells that are skipped, without
//!    their results: the filter's hints may lead past further rows.
//! 2. [`Filter::filter_cell`] for each visible cell (after deletes, TTL, time range and requested
//!    columns), and, if the code [includes](ReturnCode::includes) it, [`Filter::transform`] before
//!    the cell is copied out. `NextRow` and `IncludeAndSeekNextRow` end the row *in the current
//!    store only*: the filter is called again for the first cell of the row's next family.
//!    `SeekNextUsingHint` is followed by [`Filter::next_cell_hint`]. The hint is used only if it
//!    lies ahead in the direction of the scan (after the cell, or before it if reversed).
//!    Otherwise, and without a hint, the scan moves to the next cell.
//! 3. If [`Filter::has_filter_row`]: [`Filter::filter_row_cells`], then, *if any cell is left*,
//!    [`Filter::filter_row`]. Otherwise, *if the row had any cell*, [`Filter::filter_row`] alone.
//!    `true` drops the row.
//! 4. [`Filter::reset`]. If the row was not dropped, the scan ends if
//!    [`Filter::filter_all_remaining`].
//!
//! A row that a limit cuts resumes at step 2 with neither `reset` nor `filter_row_key`. A filter
//! with `has_filter_row` must never be cut within a row (`IncompatibleFilterException`).
//! [`Filter::set_reversed`] is called once, before everything else.
//!
//! # Compatibility
//!
//! Return codes, counting, and which wrapper delegates which call are HBase's, even where they are
//! surprising: SkipFilter and WhileMatchFilter delegate neither hints nor `set_reversed` nor
//! `filter_row_cells`, and treat any code but `Include` as a rejection. Some behaviour of HBase is
//! not reproduced: reads past the end of a row (PrefixFilter, FuzzyRowFilter,
//! BinaryComponentComparator); seek hints that skip matching rows (reversed PrefixFilter and
//! FuzzyRowFilter whose key ends in 0xff, reversed MultiRowRangeFilter with an open end, OR lists
//! of column filters in a reversed scan); and seek hints that lead back to the current row. A value
//! that a comparator cannot interpret is an `IllegalArgumentException`, where HBase throws an
//! unchecked exception from the scanner.
//!
//! # Bounds
//!
//! Filters nest at most [`DEPTH_MAX`] deep, and there are at most [`FILTERS_MAX`] in total.
//! Compiled regular expressions of one filter share a budget. There is no allocation per cell,
//! except for a seek hint, and for text that must be decoded or lower-cased first.

#![forbid(unsafe_code)]

mod column;
mod comparator;
mod compare;
mod decimal;
mod fuzzy_row;
pub mod java_regex;
mod key;
mod list;
mod mob;
mod parse;
mod row;
mod row_range;
mod single_column;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod timer;
mod wrap;

use evenkeel_common::{CellBuffer, CellRef, ErrorKind, HBaseError, KeyBuf, Result};

pub use comparator::{ByteArrayComparable, comparator_from_proto};
pub use compare::excludes;
pub use mob::MobReferencesOnly;
pub use parse::{DEPTH_MAX, FILTERS_MAX, bytes_to_read, from_proto, from_proto_sized};
pub use timer::FilterTimer;

/// A filter's decision about a cell (`Filter.ReturnCode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReturnCode {
    /// Take the cell.
    Include,
    /// Take the cell and skip the other versions of its column.
    IncludeAndNextCol,
    /// Drop the cell.
    Skip,
    /// Drop the cell and the other versions of its column.
    NextCol,
    /// Drop the cell and the rest of the row in its store.
    NextRow,
    /// Drop the cell and seek to [`Filter::next_cell_hint`].
    SeekNextUsingHint,
    /// Take the cell and drop the rest of the row in its store.
    IncludeAndSeekNextRow,
}

impl ReturnCode {
    /// Returns true if the cell is taken.
    pub fn includes(self) -> bool {
        matches!(self, Self::Include | Self::IncludeAndNextCol | Self::IncludeAndSeekNextRow)
    }
}

/// A value that replaces a cell's value. The cell is then served without its tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplacedValue {
    /// No bytes.
    Empty,
    /// The length of the replaced value, in bytes, as a big-endian `u32`.
    Length([u8; 4]),
}

impl ReplacedValue {
    /// The value to serve.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Empty => &[],
            Self::Length(bytes) => bytes,
        }
    }
}

/// One filter, with the state of one scan. The module's header defines the order of calls.
///
/// The defaults are those of HBase's `FilterBase`: a filter that drops nothing.
pub trait Filter: Send {
    /// Resets the row's state; called after each row.
    fn reset(&mut self) {}

    /// Returns true to drop the whole row, given its first cell.
    fn filter_row_key(&mut self, _first_cell: &CellRef<'_>) -> Result<bool> {
        Ok(self.filter_all_remaining())
    }

    /// Returns true if no later row can pass.
    fn filter_all_remaining(&self) -> bool {
        false
    }

    /// Decides about a cell.
    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode>;

    /// Returns a value to serve instead of the cell's; `None` to keep it. Called only for the cell
    /// that [`Filter::filter_cell`] just included.
    fn transform(&self, _cell: &CellRef<'_>) -> Option<ReplacedValue> {
        None
    }

    /// Called with a complete row: `cells[from..]` are its cells, and the filter may drop some.
    fn filter_row_cells(&mut self, _cells: &mut CellBuffer, _from: usize) -> Result<()> {
        Ok(())
    }

    /// Returns true if the filter must see a whole row before any of its cells is served.
    fn has_filter_row(&self) -> bool {
        false
    }

    /// Returns true to drop the row, after all its cells were seen.
    fn filter_row(&mut self) -> Result<bool> {
        Ok(false)
    }

    /// Returns where to seek after `SeekNextUsingHint` for this cell.
    fn next_cell_hint(&mut self, _cell: &CellRef<'_>) -> Result<Option<KeyBuf>> {
        Ok(None)
    }

    /// Returns true if the filter needs the cells of a family to decide. Other families may be read
    /// for accepted rows only.
    fn is_family_essential(&self, _family: &[u8]) -> bool {
        true
    }

    /// Sets the direction of the scan.
    fn set_reversed(&mut self, _reversed: bool) {}

    /// Returns true if a list must call this filter for a hint even about a cell that another
    /// member rejected (`HintingFilter`).
    fn is_hinting(&self) -> bool {
        false
    }

    /// Returns this filter as a [`FilterTimer`], if it is one.
    fn timer(&mut self) -> Option<&mut FilterTimer> {
        None
    }
}

/// Returns an error for an argument, or a compared value, that HBase rejects.
fn illegal(message: impl Into<String>) -> HBaseError {
    HBaseError::new(ErrorKind::IllegalArgument, message)
}

/// Returns the first key of a column of the cell's row and family.
fn first_on_qualifier(cell: &CellRef<'_>, qualifier: &[u8]) -> KeyBuf {
    KeyBuf::first_on_column(cell.row(), cell.family(), qualifier)
}

/// Returns the smallest row greater than every row that starts with `prefix`; `None` if there is
/// none.
fn row_after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let end = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut row = prefix.get(..=end)?.to_vec();
    *row.last_mut()? += 1;
    Some(row)
}

/// Returns the first key of a row from the wire; `None` if the row is longer than the limit.
fn first_on_row(row: &[u8]) -> Option<KeyBuf> {
    (row.len() <= evenkeel_common::cell::ROW_BYTES_MAX).then(|| KeyBuf::first_on_row(row))
}
