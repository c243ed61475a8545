//! Filters that test the value of one column: SingleColumnValueFilter and
//! SingleColumnValueExcludeFilter decide about the row by it, ColumnValueFilter serves only its
//! cells.

use bytes::Bytes;
use evenkeel_common::{CellBuffer, CellRef, Result};
use evenkeel_protocol::pb::{self, CompareType};

use super::compare::Comparison;
use super::parse::{Parser, compare_op, decode, field, missing};
use super::{Filter, ReturnCode, illegal};

const COMPARATOR: (u32, &str) = (4, "comparator");

pub(super) fn parse(parser: &mut Parser, bytes: &Bytes) -> Result<Box<dyn Filter>> {
    Ok(Box::new(SingleColumnValueFilter::parse(parser, bytes)?))
}

pub(super) fn parse_exclude(parser: &mut Parser, bytes: &Bytes) -> Result<Box<dyn Filter>> {
    decode::<pb::SingleColumnValueExcludeFilter>(bytes, &[])?;
    let inner = field(bytes, 1).ok_or_else(|| missing("single_column_value_filter"))?;
    let inner = SingleColumnValueFilter::parse(parser, &bytes.slice_ref(inner))?;
    Ok(Box::new(SingleColumnValueExcludeFilter(inner)))
}

struct Column {
    family: Vec<u8>,
    qualifier: Vec<u8>,
}

impl Column {
    fn matches(&self, cell: &CellRef<'_>) -> bool {
        cell.qualifier() == self.qualifier && cell.family() == self.family
    }
}

/// Passes a row if the value of one of its columns satisfies a comparison.
struct SingleColumnValueFilter {
    column: Column,
    comparison: Comparison,
    filter_if_missing: bool,
    latest_version_only: bool,
    found: bool,
    matched: bool,
}

impl SingleColumnValueFilter {
    fn parse(parser: &mut Parser, bytes: &Bytes) -> Result<Self> {
        let proto: pb::SingleColumnValueFilter = decode(bytes, &[COMPARATOR])?;
        let op = compare_op(bytes, 3, proto.compare_op, "compare_op")?;
        Ok(Self {
            column: Column {
                family: proto.column_family.unwrap_or_default().to_vec(),
                qualifier: proto.column_qualifier.unwrap_or_default().to_vec(),
            },
            comparison: Comparison { op, comparator: Some(parser.comparator(&proto.comparator)?) },
            filter_if_missing: proto.filter_if_missing.unwrap_or(false),
            latest_version_only: proto.latest_version_only.unwrap_or(false),
            found: false,
            matched: false,
        })
    }

    fn value_excluded(&self, value: &[u8]) -> Result<bool> {
        if self.comparison.op == CompareType::NoOp {
            return Err(illegal("Unknown Compare op NO_OP"));
        }
        self.comparison.excludes(value)
    }
}

impl Filter for SingleColumnValueFilter {
    fn reset(&mut self) {
        self.found = false;
        self.matched = false;
    }

    fn filter_row_key(&mut self, _first_cell: &CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode> {
        if self.matched {
            return Ok(ReturnCode::Include);
        }
        if self.latest_version_only && self.found {
            return Ok(ReturnCode::NextRow);
        }
        if !self.column.matches(cell) {
            return Ok(ReturnCode::Include);
        }
        self.found = true;
        self.matched = !self.value_excluded(cell.value())?;
        let give_up = !self.matched && self.latest_version_only;
        Ok(if give_up { ReturnCode::NextRow } else { ReturnCode::Include })
    }

    fn has_filter_row(&self) -> bool {
        true
    }

    fn filter_row(&mut self) -> Result<bool> {
        Ok(if self.found { !self.matched } else { self.filter_if_missing })
    }

    fn is_family_essential(&self, family: &[u8]) -> bool {
        !self.filter_if_missing || family == self.column.family
    }
}

/// As [`SingleColumnValueFilter`], but does not serve the tested column.
struct SingleColumnValueExcludeFilter(SingleColumnValueFilter);

impl Filter for SingleColumnValueExcludeFilter {
    fn reset(&mut self) {
        self.0.reset();
    }

    fn filter_row_key(&mut self, _first_cell: &CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode> {
        self.0.filter_cell(cell)
    }

    fn filter_row_cells(&mut self, cells: &mut CellBuffer, from: usize) -> Result<()> {
        cells.retain_from(from, |cell| !self.0.column.matches(cell));
        Ok(())
    }

    fn has_filter_row(&self) -> bool {
        true
    }

    fn filter_row(&mut self) -> Result<bool> {
        self.0.filter_row()
    }

    fn is_family_essential(&self, family: &[u8]) -> bool {
        self.0.is_family_essential(family)
    }
}

pub(super) fn parse_column_value(parser: &mut Parser, bytes: &Bytes) -> Result<Box<dyn Filter>> {
    let proto: pb::ColumnValueFilter = decode(bytes, &[(1, "family"), (2, "qualifier"), COMPARATOR])?;
    let op = compare_op(bytes, 3, proto.compare_op, "compare_op")?;
    Ok(Box::new(ColumnValueFilter {
        column: Column { family: proto.family.to_vec(), qualifier: proto.qualifier.to_vec() },
        comparison: Comparison { op, comparator: Some(parser.comparator(&proto.comparator)?) },
        found: false,
    }))
}

/// Serves only the cells of one column whose value satisfies a comparison.
struct ColumnValueFilter {
    column: Column,
    comparison: Comparison,
    found: bool,
}

impl Filter for ColumnValueFilter {
    fn reset(&mut self) {
        self.found = false;
    }

    fn filter_row_key(&mut self, _first_cell: &CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode> {
        if !self.column.matches(cell) {
            return Ok(if self.found { ReturnCode::NextRow } else { ReturnCode::NextCol });
        }
        self.found = true;
        Ok(if self.comparison.excludes(cell.value())? { ReturnCode::Skip } else { ReturnCode::Include })
    }

    fn is_family_essential(&self, family: &[u8]) -> bool {
        family == self.column.family
    }
}
