//! Filters that compare one part of a cell: RowFilter, FamilyFilter, QualifierFilter, ValueFilter,
//! and DependentColumnFilter, which compares values to pick timestamps.

use std::cmp::Ordering;
use std::collections::HashSet;

use bytes::Bytes;
use evenkeel_common::{CellBuffer, CellRef, Result};
use evenkeel_protocol::pb::{self, CompareType};

use super::comparator::ByteArrayComparable;
use super::parse::{Parser, decode};
use super::{Filter, ReturnCode, illegal};

/// Returns true if `cell OP comparator` is false, given the order of the *comparator* relative to
/// the cell. `NoOp` excludes everything.
pub fn excludes(op: CompareType, comparator_to_cell: Ordering) -> bool {
    match op {
        CompareType::Less => comparator_to_cell.is_le(),
        CompareType::LessOrEqual => comparator_to_cell.is_lt(),
        CompareType::Equal => comparator_to_cell.is_ne(),
        CompareType::NotEqual => comparator_to_cell.is_eq(),
        CompareType::GreaterOrEqual => comparator_to_cell.is_gt(),
        CompareType::Greater => comparator_to_cell.is_ge(),
        CompareType::NoOp => true,
    }
}

/// An operator and the comparator.
pub(super) struct Comparison {
    pub(super) op: CompareType,
    pub(super) comparator: Option<Box<dyn ByteArrayComparable>>,
}

impl Comparison {
    /// Returns true if a part of a cell is excluded.
    pub(super) fn excludes(&self, part: &[u8]) -> Result<bool> {
        if self.op == CompareType::NoOp {
            return Ok(true);
        }
        let comparator =
            self.comparator.as_deref().ok_or_else(|| illegal("a compare filter without a comparator"))?;
        Ok(excludes(self.op, comparator.compare_to(part)?))
    }
}

pub(super) fn parse(parser: &mut Parser, class: &str, bytes: &Bytes) -> Result<Box<dyn Filter>> {
    // The four messages have the same single field.
    let proto: pb::RowFilter = decode(bytes, &[])?;
    let comparison = parser.comparison(bytes, &proto.compare_filter)?;
    Ok(match class {
        "RowFilter" => Box::new(RowFilter { comparison, filter_out_row: false }),
        "FamilyFilter" => Box::new(FamilyFilter(comparison)),
        "QualifierFilter" => Box::new(QualifierFilter(comparison)),
        _ => Box::new(ValueFilter(comparison)),
    })
}

struct RowFilter {
    comparison: Comparison,
    filter_out_row: bool,
}

impl Filter for RowFilter {
    fn reset(&mut self) {
        self.filter_out_row = false;
    }

    fn filter_row_key(&mut self, first_cell: &CellRef<'_>) -> Result<bool> {
        self.filter_out_row |= self.comparison.excludes(first_cell.row())?;
        Ok(self.filter_out_row)
    }

    fn filter_cell(&mut self, _cell: &CellRef<'_>) -> Result<ReturnCode> {
        Ok(if self.filter_out_row { ReturnCode::NextRow } else { ReturnCode::Include })
    }

    fn filter_row(&mut self) -> Result<bool> {
        Ok(self.filter_out_row)
    }
}

struct FamilyFilter(Comparison);

impl Filter for FamilyFilter {
    fn filter_row_key(&mut self, _first_cell: &CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode> {
        let refused = !cell.family().is_empty() && self.0.excludes(cell.family())?;
        Ok(if refused { ReturnCode::NextRow } else { ReturnCode::Include })
    }
}

struct QualifierFilter(Comparison);

impl Filter for QualifierFilter {
    fn filter_row_key(&mut self, _first_cell: &CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode> {
        Ok(if self.0.excludes(cell.qualifier())? { ReturnCode::Skip } else { ReturnCode::Include })
    }
}

struct ValueFilter(Comparison);

impl Filter for ValueFilter {
    fn filter_row_key(&mut self, _first_cell: &CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode> {
        Ok(if self.0.excludes(cell.value())? { ReturnCode::Skip } else { ReturnCode::Include })
    }
}

pub(super) fn parse_dependent(parser: &mut Parser, bytes: &Bytes) -> Result<Box<dyn Filter>> {
    let proto: pb::DependentColumnFilter = decode(bytes, &[])?;
    Ok(Box::new(DependentColumnFilter {
        comparison: parser.comparison(bytes, &proto.compare_filter)?,
        family: proto.column_family.unwrap_or_default().to_vec(),
        qualifier: proto.column_qualifier.unwrap_or_default().to_vec(),
        drop_dependent_column: proto.drop_dependent_column.unwrap_or(false),
        timestamps: HashSet::new(),
    }))
}

/// Keeps the cells of a row whose timestamp equals that of an accepted cell of one column.
struct DependentColumnFilter {
    comparison: Comparison,
    family: Vec<u8>,
    qualifier: Vec<u8>,
    drop_dependent_column: bool,
    timestamps: HashSet<i64>,
}

impl Filter for DependentColumnFilter {
    fn reset(&mut self) {
        self.timestamps.clear();
    }

    fn filter_row_key(&mut self, _first_cell: &CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode> {
        if cell.family() != self.family || cell.qualifier() != self.qualifier {
            return Ok(ReturnCode::Include);
        }
        if self.comparison.comparator.is_some() && self.comparison.excludes(cell.value())? {
            return Ok(ReturnCode::Skip);
        }
        self.timestamps.insert(cell.timestamp());
        Ok(if self.drop_dependent_column { ReturnCode::Skip } else { ReturnCode::Include })
    }

    fn filter_row_cells(&mut self, cells: &mut CellBuffer, from: usize) -> Result<()> {
        cells.retain_from(from, |cell| self.timestamps.contains(&cell.timestamp()));
        Ok(())
    }

    fn has_filter_row(&self) -> bool {
        true
    }
}
