//! The orders of cells.
//!
//! The default order compares row, family and qualifier ascending by unsigned bytes, then
//! timestamp, type code and sequence id descending (`CellComparatorImpl`). A key with neither
//! family nor qualifier and of the type Minimum sorts after its whole row.
//!
//! hbase:meta compares rows differently (`MetaCellComparator`): a meta row is `table,start
//! key,tail`, and the three parts are compared one by one, because a start key may contain commas.

use std::cmp::Ordering;

use crate::cell::{CellRef, CellType};

/// One of HBase's two orders of cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CellComparator {
    /// The order of every table but hbase:meta.
    #[default]
    Default,
    /// The order of hbase:meta.
    Meta,
}

impl CellComparator {
    /// Compares two cells, sequence ids included.
    #[inline]
    pub fn compare(self, a: &CellRef<'_>, b: &CellRef<'_>) -> Ordering {
        self.compare_keys(a, b).then_with(|| b.seq_id().cmp(&a.seq_id()))
    }

    /// Compares two cells without their sequence ids.
    #[inline]
    pub fn compare_keys(self, a: &CellRef<'_>, b: &CellRef<'_>) -> Ordering {
        self.compare_rows(a.row(), b.row()).then_with(|| compare_without_row(a, b))
    }

    /// Compares two rows.
    #[inline]
    pub fn compare_rows(self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Self::Default => a.cmp(b),
            Self::Meta => compare_meta_rows(a, b),
        }
    }
}

/// Compares family, qualifier, timestamp and type.
#[inline]
pub fn compare_without_row(a: &CellRef<'_>, b: &CellRef<'_>) -> Ordering {
    if is_last_on_row(a) {
        return Ordering::Greater;
    }
    if is_last_on_row(b) {
        return Ordering::Less;
    }
    compare_columns(a, b)
        .then_with(|| b.timestamp().cmp(&a.timestamp()))
        .then_with(|| b.type_code().cmp(&a.type_code()))
}

/// Compares family and qualifier.
#[inline]
pub fn compare_columns(a: &CellRef<'_>, b: &CellRef<'_>) -> Ordering {
    a.family().cmp(b.family()).then_with(|| a.qualifier().cmp(b.qualifier()))
}

fn is_last_on_row(cell: &CellRef<'_>) -> bool {
    cell.type_code() == CellType::Minimum as u8 && cell.family().is_empty() && cell.qualifier().is_empty()
}

const DELIMITER: u8 = b',';

fn compare_meta_rows(a: &[u8], b: &[u8]) -> Ordering {
    let (a_table, a_rest) = split_first(a);
    let (b_table, b_rest) = split_first(b);
    a_table.cmp(b_table).then_with(|| match (a_rest, b_rest) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(a), Some(b)) => compare_meta_rest(a, b),
    })
}

fn compare_meta_rest(a: &[u8], b: &[u8]) -> Ordering {
    let (a_start, a_tail) = split_last(a);
    let (b_start, b_tail) = split_last(b);
    a_start.cmp(b_start).then_with(|| match (a_tail, b_tail) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(a), Some(b)) => a.cmp(b),
    })
}

fn split_first(row: &[u8]) -> (&[u8], Option<&[u8]>) {
    split_at(row, row.iter().position(|b| *b == DELIMITER))
}

fn split_last(row: &[u8]) -> (&[u8], Option<&[u8]>) {
    split_at(row, row.iter().rposition(|b| *b == DELIMITER))
}

#[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "the offset is that of a byte of the row"))]
fn split_at(row: &[u8], at: Option<usize>) -> (&[u8], Option<&[u8]>) {
    at.map_or((row, None), |i| (&row[..i], Some(&row[i + 1..])))
}
