//! Filters: what a client asks a region to leave out of a Get or a Scan.
//!
//! A filter arrives as a Java class name and the bytes of that class's message ([`from_proto`]); every class of
//! `org.apache.hadoop.hbase.filter` of HBase 2.6 has its twin here, one file a family:
//!
//! | file | filters |
//! |---|---|
//! | `compare` | RowFilter, FamilyFilter, QualifierFilter, ValueFilter, DependentColumnFilter |
//! | `single_column` | SingleColumnValueFilter, SingleColumnValueExcludeFilter, ColumnValueFilter |
//! | `column` | ColumnPrefixFilter, MultipleColumnPrefixFilter, ColumnRangeFilter, ColumnPaginationFilter, ColumnCountGetFilter |
//! | `row` | PrefixFilter, InclusiveStopFilter, PageFilter, RandomRowFilter, FilterAllFilter |
//! | `fuzzy_row`, `row_range` | FuzzyRowFilter, MultiRowRangeFilter |
//! | `key` | KeyOnlyFilter, FirstKeyOnlyFilter, FirstKeyValueMatchingQualifiersFilter, TimestampsFilter |
//! | `list`, `wrap` | FilterList; SkipFilter, WhileMatchFilter, FilterWrapper |
//! | `comparator`, `decimal`, `java_regex` | what a cell's part is compared with |
//!
//! # How a scanner drives a filter
//!
//! One filter belongs to one region scanner and sees the cells of all its stores. For each row:
//!
//! 1. [`Filter::filter_row_key`] with the row's first cell. `true`: pass over the row, then [`Filter::reset`], and end
//!    the scan if [`Filter::filter_all_remaining`]. There is no call to ask `filter_all_remaining` before it.
//! 2. [`Filter::filter_cell`] for each cell that is visible (deletes, TTL, time range and requested columns are done),
//!    and, when the code [includes](ReturnCode::includes) it, [`Filter::transform`] before the cell is copied out.
//!    `NextRow` and `IncludeAndSeekNextRow` end the row *in the store at hand only*: the filter is asked again for
//!    the first cell of the row's next family. With `SeekNextUsingHint` comes [`Filter::next_cell_hint`]; the hint is
//!    followed only when it lies ahead in the direction of the scan (after the cell, or before it when reversed);
//!    otherwise, and with no hint, the scan goes one cell on.
//! 3. When [`Filter::has_filter_row`]: [`Filter::filter_row_cells`], then, *if any cell is left*,
//!    [`Filter::filter_row`]. Otherwise, *if the row had any cell*, [`Filter::filter_row`] alone. `true` drops the row.
//! 4. [`Filter::reset`], and the scan ends if [`Filter::filter_all_remaining`].
//!
//! A row that is cut by a limit resumes at step 2 with neither `reset` nor `filter_row_key`; a filter with
//! `has_filter_row` must never be cut within a row (`IncompatibleFilterException`). [`Filter::set_reversed`] comes
//! once, before all else.
//!
//! # Odd ways kept, and not kept
//!
//! Return codes, counting, and which wrapper hands on which call are HBase's, also where they surprise: SkipFilter and
//! WhileMatchFilter hand on neither hints nor `set_reversed` nor `filter_row_cells`, and take any code but `Include` for
//! a refusal. What is not kept is reading past the end of a row (PrefixFilter, FuzzyRowFilter,
//! BinaryComponentComparator) and seek hints that jump over matching rows (reversed PrefixFilter and FuzzyRowFilter
//! whose key ends in 0xff, reversed MultiRowRangeFilter with an open end, OR lists of column filters in a reversed scan),
//! or that lead back to the row at hand. A value that a comparator cannot read is an
//! `IllegalArgumentException`, where HBase throws an unchecked exception from the scanner.
//!
//! # Bounds
//!
//! Nesting is at most [`DEPTH_MAX`] deep and [`FILTERS_MAX`] wide in all; compiled regular expressions of one filter
//! share a budget. Nothing is allocated per cell, but for a seek hint, and for text that has to be decoded or
//! lower-cased first.

mod column;
mod comparator;
mod compare;
mod decimal;
mod fuzzy_row;
pub mod java_regex;
mod key;
mod list;
mod parse;
mod row;
mod row_range;
mod single_column;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod wrap;

use evenkeel_common::{CellBuffer, CellRef, ErrorKind, HBaseError, KeyBuf, Result};

pub use comparator::{ByteArrayComparable, comparator_from_proto};
pub use compare::excludes;
pub use parse::{DEPTH_MAX, FILTERS_MAX, bytes_to_read, from_proto, from_proto_sized};

/// What a filter says of a cell (`Filter.ReturnCode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReturnCode {
    /// Take the cell.
    Include,
    /// Take the cell and pass over the other versions of its column.
    IncludeAndNextCol,
    /// Leave the cell out.
    Skip,
    /// Leave out the cell and the other versions of its column.
    NextCol,
    /// Leave out the cell and the rest of the row in its store.
    NextRow,
    /// Leave the cell out and go to where [`Filter::next_cell_hint`] says.
    SeekNextUsingHint,
    /// Take the cell and leave out the rest of the row in its store.
    IncludeAndSeekNextRow,
}

impl ReturnCode {
    /// Whether the cell is taken.
    pub fn includes(self) -> bool {
        matches!(self, Self::Include | Self::IncludeAndNextCol | Self::IncludeAndSeekNextRow)
    }
}

/// A value that is served in place of a cell's own; such a cell is served without its tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplacedValue {
    /// No bytes.
    Empty,
    /// The length of the value that it replaces, in bytes, as a big-endian `u32`.
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

/// One filter, with the state of one scan. The module's header says who calls what, and when.
///
/// Defaults are those of HBase's `FilterBase`: a filter that leaves nothing out.
pub trait Filter: Send {
    /// Forgets the row; comes after each.
    fn reset(&mut self) {}

    /// Whether to leave out the whole row, told by its first cell.
    fn filter_row_key(&mut self, _first_cell: &CellRef<'_>) -> Result<bool> {
        Ok(self.filter_all_remaining())
    }

    /// Whether no later row can pass.
    fn filter_all_remaining(&self) -> bool {
        false
    }

    /// What to do with a cell.
    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode>;

    /// A value to serve in place of the cell's; `None` for its own. Only for the cell that
    /// [`Filter::filter_cell`] just included.
    fn transform(&self, _cell: &CellRef<'_>) -> Option<ReplacedValue> {
        None
    }

    /// The row is complete: `cells[from..]` are its cells, and the filter may drop some.
    fn filter_row_cells(&mut self, _cells: &mut CellBuffer, _from: usize) -> Result<()> {
        Ok(())
    }

    /// Whether the filter must see a whole row before any of it may be served.
    fn has_filter_row(&self) -> bool {
        false
    }

    /// Whether to leave out the row whose cells were all seen.
    fn filter_row(&mut self) -> Result<bool> {
        Ok(false)
    }

    /// Where to go on after `SeekNextUsingHint` for this cell.
    fn next_cell_hint(&mut self, _cell: &CellRef<'_>) -> Result<Option<KeyBuf>> {
        Ok(None)
    }

    /// Whether the filter needs the cells of a family to decide; other families may be read for accepted rows only.
    fn is_family_essential(&self, _family: &[u8]) -> bool {
        true
    }

    /// Tells the direction of the scan.
    fn set_reversed(&mut self, _reversed: bool) {}

    /// Whether a list should ask this filter for a hint even about a cell that another member refused
    /// (`HintingFilter`).
    fn is_hinting(&self) -> bool {
        false
    }
}

/// An argument, or a value read by a comparator, that HBase refuses.
fn illegal(message: impl Into<String>) -> HBaseError {
    HBaseError::new(ErrorKind::IllegalArgument, message)
}

/// The first key of a column of the cell's row and family.
fn first_on_qualifier(cell: &CellRef<'_>, qualifier: &[u8]) -> KeyBuf {
    KeyBuf::first_on_column(cell.row(), cell.family(), qualifier)
}

/// The smallest row greater than every row that starts with `prefix`; `None` when there is none.
fn row_after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut row = prefix[..=last].to_vec();
    row[last] += 1;
    Some(row)
}

/// The first key of a row that came from the wire; `None` for one longer than any row can be.
fn first_on_row(row: &[u8]) -> Option<KeyBuf> {
    (row.len() <= evenkeel_common::cell::ROW_BYTES_MAX).then(|| KeyBuf::first_on_row(row))
}
