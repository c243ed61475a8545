//! Filters around another one: SkipFilter, WhileMatchFilter, FilterWrapper.
//!
//! They delegate the same calls as in HBase: SkipFilter and WhileMatchFilter delegate neither hints
//! nor `filter_row_cells` nor the direction of the scan, and both treat any code but `Include` as a
//! rejection.

use bytes::Bytes;
use evenkeel_common::{CellBuffer, CellRef, KeyBuf, Result};
use evenkeel_protocol::pb;

use super::parse::{Parser, decode};
use super::{Filter, ReplacedValue, ReturnCode};

const FILTER: (u32, &str) = (1, "filter");

pub(super) fn parse_skip(parser: &mut Parser, bytes: &Bytes) -> Result<Box<dyn Filter>> {
    let proto: pb::SkipFilter = decode(bytes, &[FILTER])?;
    Ok(Box::new(SkipFilter { inner: parser.nested(&proto.filter)?, filter_row: false }))
}

/// Drops a row if the inner filter rejects any of its cells.
struct SkipFilter {
    inner: Box<dyn Filter>,
    filter_row: bool,
}

impl Filter for SkipFilter {
    fn reset(&mut self) {
        self.inner.reset();
        self.filter_row = false;
    }

    fn filter_row_key(&mut self, _first_cell: &CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode> {
        let code = self.inner.filter_cell(cell)?;
        self.filter_row |= code != ReturnCode::Include;
        Ok(code)
    }

    fn transform(&self, cell: &CellRef<'_>) -> Option<ReplacedValue> {
        self.inner.transform(cell)
    }

    fn has_filter_row(&self) -> bool {
        true
    }

    fn filter_row(&mut self) -> Result<bool> {
        Ok(self.filter_row)
    }

    fn is_family_essential(&self, family: &[u8]) -> bool {
        self.inner.is_family_essential(family)
    }
}

pub(super) fn parse_while_match(parser: &mut Parser, bytes: &Bytes) -> Result<Box<dyn Filter>> {
    let proto: pb::WhileMatchFilter = decode(bytes, &[FILTER])?;
    Ok(Box::new(WhileMatchFilter { inner: parser.nested(&proto.filter)?, done: false }))
}

/// Ends the scan once the inner filter rejects a row or a cell.
struct WhileMatchFilter {
    inner: Box<dyn Filter>,
    done: bool,
}

impl Filter for WhileMatchFilter {
    fn reset(&mut self) {
        self.inner.reset();
    }

    fn filter_row_key(&mut self, first_cell: &CellRef<'_>) -> Result<bool> {
        if self.filter_all_remaining() {
            return Ok(true);
        }
        let refused = self.inner.filter_row_key(first_cell)?;
        self.done |= refused;
        Ok(refused)
    }

    fn filter_all_remaining(&self) -> bool {
        self.done || self.inner.filter_all_remaining()
    }

    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode> {
        let code = self.inner.filter_cell(cell)?;
        self.done |= code != ReturnCode::Include;
        Ok(code)
    }

    fn transform(&self, cell: &CellRef<'_>) -> Option<ReplacedValue> {
        self.inner.transform(cell)
    }

    fn has_filter_row(&self) -> bool {
        true
    }

    fn filter_row(&mut self) -> Result<bool> {
        let refused = self.inner.filter_row()?;
        self.done |= refused;
        Ok(refused)
    }

    fn is_family_essential(&self, family: &[u8]) -> bool {
        self.inner.is_family_essential(family)
    }
}

pub(super) fn parse_wrapper(parser: &mut Parser, bytes: &Bytes) -> Result<Box<dyn Filter>> {
    let proto: pb::FilterWrapper = decode(bytes, &[FILTER])?;
    Ok(Box::new(FilterWrapper { inner: parser.nested(&proto.filter)? }))
}

/// HBase's region scanner wraps every filter in it; here it exists only for clients that send it.
/// It drops the cells of a rejected row already in `filter_row_cells`, so the inner filter may be
/// called twice for a row.
struct FilterWrapper {
    inner: Box<dyn Filter>,
}

impl Filter for FilterWrapper {
    fn reset(&mut self) {
        self.inner.reset();
    }

    fn filter_row_key(&mut self, first_cell: &CellRef<'_>) -> Result<bool> {
        Ok(self.inner.filter_all_remaining() || self.inner.filter_row_key(first_cell)?)
    }

    fn filter_all_remaining(&self) -> bool {
        self.inner.filter_all_remaining()
    }

    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode> {
        self.inner.filter_cell(cell)
    }

    fn transform(&self, cell: &CellRef<'_>) -> Option<ReplacedValue> {
        self.inner.transform(cell)
    }

    fn filter_row_cells(&mut self, cells: &mut CellBuffer, from: usize) -> Result<()> {
        self.inner.filter_row_cells(cells, from)?;
        if cells.len() > from && self.inner.filter_row()? {
            cells.truncate(from);
        }
        Ok(())
    }

    fn has_filter_row(&self) -> bool {
        self.inner.has_filter_row()
    }

    fn filter_row(&mut self) -> Result<bool> {
        self.inner.filter_row()
    }

    fn next_cell_hint(&mut self, cell: &CellRef<'_>) -> Result<Option<KeyBuf>> {
        self.inner.next_cell_hint(cell)
    }

    fn is_family_essential(&self, family: &[u8]) -> bool {
        self.inner.is_family_essential(family)
    }
}
