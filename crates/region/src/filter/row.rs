//! Filters that decide about whole rows, by their key or their number.

use std::cmp::Ordering;
use std::hash::{BuildHasher, Hasher, RandomState};

use bytes::Bytes;
use evenkeel_common::{CellRef, KeyBuf, Result};
use evenkeel_protocol::pb;

use super::parse::decode;
use super::{Filter, ReturnCode, first_on_row, illegal, row_after_prefix};

pub(super) fn parse_prefix(bytes: &Bytes) -> Result<Box<dyn Filter>> {
    let proto: pb::PrefixFilter = decode(bytes, &[])?;
    Ok(match proto.prefix {
        Some(prefix) => Box::new(PrefixFilter::new(&prefix)),
        None => Box::new(NoPrefixFilter),
    })
}

/// A PrefixFilter without a prefix: drops every row, and continues to the last.
struct NoPrefixFilter;

impl Filter for NoPrefixFilter {
    fn filter_row_key(&mut self, _first_cell: &CellRef<'_>) -> Result<bool> {
        Ok(true)
    }

    fn filter_cell(&mut self, _cell: &CellRef<'_>) -> Result<ReturnCode> {
        Ok(ReturnCode::NextRow)
    }

    fn filter_row(&mut self) -> Result<bool> {
        Ok(true)
    }

    fn is_hinting(&self) -> bool {
        true
    }
}

struct PrefixFilter {
    prefix: Vec<u8>,
    forward_hint: Option<KeyBuf>,
    /// The first row after those with the prefix.
    reversed_hint: Option<KeyBuf>,
    reversed: bool,
    passed: bool,
    filter_row: bool,
    provide_hint: bool,
}

impl PrefixFilter {
    fn new(prefix: &[u8]) -> Self {
        Self {
            prefix: prefix.to_vec(),
            forward_hint: first_on_row(prefix),
            reversed_hint: row_after_prefix(prefix).and_then(|row| first_on_row(&row)),
            reversed: false,
            passed: false,
            filter_row: true,
            provide_hint: false,
        }
    }

    /// Returns the position of a row relative to the rows with the prefix, in the direction of the
    /// scan.
    fn compare_to_prefix(&self, row: &[u8]) -> Ordering {
        let order = row.get(..self.prefix.len()).unwrap_or(row).cmp(&self.prefix[..]);
        if self.reversed { order.reverse() } else { order }
    }
}

impl Filter for PrefixFilter {
    fn reset(&mut self) {
        self.filter_row = true;
    }

    /// Keeps a row before the prefix, so that `filter_cell` can request a seek.
    fn filter_row_key(&mut self, first_cell: &CellRef<'_>) -> Result<bool> {
        if self.passed {
            return Ok(true);
        }
        let place = self.compare_to_prefix(first_cell.row());
        self.passed = place.is_gt();
        self.filter_row = place.is_ne();
        self.provide_hint = place.is_lt();
        Ok(self.passed)
    }

    fn filter_all_remaining(&self) -> bool {
        self.passed
    }

    fn filter_cell(&mut self, _cell: &CellRef<'_>) -> Result<ReturnCode> {
        Ok(match (self.provide_hint, self.filter_row) {
            (true, _) => ReturnCode::SeekNextUsingHint,
            (false, true) => ReturnCode::NextRow,
            (false, false) => ReturnCode::Include,
        })
    }

    fn filter_row(&mut self) -> Result<bool> {
        Ok(self.filter_row)
    }

    fn next_cell_hint(&mut self, cell: &CellRef<'_>) -> Result<Option<KeyBuf>> {
        let hint = if self.reversed { &self.reversed_hint } else { &self.forward_hint };
        // A reversed seek to the current row would not move.
        Ok(hint.as_ref().filter(|hint| hint.as_cell().row() != cell.row()).cloned())
    }

    fn set_reversed(&mut self, reversed: bool) {
        self.reversed = reversed;
    }

    fn is_hinting(&self) -> bool {
        true
    }
}

pub(super) fn parse_inclusive_stop(bytes: &Bytes) -> Result<Box<dyn Filter>> {
    let proto: pb::InclusiveStopFilter = decode(bytes, &[])?;
    let stop_row = proto.stop_row_key.map(|row| row.to_vec());
    Ok(Box::new(InclusiveStopFilter { stop_row, reversed: false, done: false }))
}

struct InclusiveStopFilter {
    stop_row: Option<Vec<u8>>,
    reversed: bool,
    done: bool,
}

impl Filter for InclusiveStopFilter {
    fn filter_row_key(&mut self, first_cell: &CellRef<'_>) -> Result<bool> {
        if !self.done {
            let stop =
                self.stop_row.as_deref().ok_or_else(|| illegal("an InclusiveStopFilter without a row"))?;
            self.done = if self.reversed { first_cell.row() < stop } else { first_cell.row() > stop };
        }
        Ok(self.done)
    }

    fn filter_all_remaining(&self) -> bool {
        self.done
    }

    fn filter_cell(&mut self, _cell: &CellRef<'_>) -> Result<ReturnCode> {
        Ok(if self.done { ReturnCode::NextRow } else { ReturnCode::Include })
    }

    fn set_reversed(&mut self, reversed: bool) {
        self.reversed = reversed;
    }
}

pub(super) fn parse_page(bytes: &Bytes) -> Result<Box<dyn Filter>> {
    let proto: pb::PageFilter = decode(bytes, &[(1, "page_size")])?;
    if proto.page_size < 0 {
        return Err(illegal(format!("must be positive {}", proto.page_size)));
    }
    Ok(Box::new(PageFilter { page_size: proto.page_size, rows: 0 }))
}

/// Passes a number of rows for each region. A row counts if [`Filter::filter_row`] is called for
/// it. So it does not count if a filter before it in an AND list rejects it.
struct PageFilter {
    page_size: i64,
    rows: i64,
}

impl Filter for PageFilter {
    fn filter_all_remaining(&self) -> bool {
        self.rows >= self.page_size
    }

    fn filter_cell(&mut self, _cell: &CellRef<'_>) -> Result<ReturnCode> {
        Ok(ReturnCode::Include)
    }

    fn has_filter_row(&self) -> bool {
        true
    }

    fn filter_row(&mut self) -> Result<bool> {
        self.rows += 1;
        Ok(self.rows > self.page_size)
    }
}

pub(super) fn parse_random(bytes: &Bytes) -> Result<Box<dyn Filter>> {
    let proto: pb::RandomRowFilter = decode(bytes, &[(1, "chance")])?;
    // The standard library's hash seeds are random enough for a sample of rows.
    let seed = RandomState::new().build_hasher().finish();
    Ok(Box::new(RandomRowFilter { chance: proto.chance, state: seed | 1, filter_out_row: false }))
}

struct RandomRowFilter {
    chance: f32,
    /// Never zero.
    state: u64,
    filter_out_row: bool,
}

impl RandomRowFilter {
    /// A number in `0.0..1.0` with 24 random bits (xorshift64*).
    fn next_float(&mut self) -> f32 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40) as f32 / (1u32 << 24) as f32
    }
}

impl Filter for RandomRowFilter {
    fn reset(&mut self) {
        self.filter_out_row = false;
    }

    fn filter_row_key(&mut self, _first_cell: &CellRef<'_>) -> Result<bool> {
        // NaN as a chance drops every row.
        self.filter_out_row = self.chance.is_nan() || self.next_float() >= self.chance;
        Ok(self.filter_out_row)
    }

    fn filter_cell(&mut self, _cell: &CellRef<'_>) -> Result<ReturnCode> {
        Ok(if self.filter_out_row { ReturnCode::NextRow } else { ReturnCode::Include })
    }

    fn has_filter_row(&self) -> bool {
        true
    }

    fn filter_row(&mut self) -> Result<bool> {
        Ok(self.filter_out_row)
    }
}

pub(super) fn parse_all(bytes: &Bytes) -> Result<Box<dyn Filter>> {
    decode::<pb::FilterAllFilter>(bytes, &[])?;
    Ok(Box::new(FilterAllFilter))
}

/// Reads all rows and serves none. HBase's benchmarks scan with it.
struct FilterAllFilter;

impl Filter for FilterAllFilter {
    fn filter_cell(&mut self, _cell: &CellRef<'_>) -> Result<ReturnCode> {
        Ok(ReturnCode::Skip)
    }

    fn has_filter_row(&self) -> bool {
        true
    }

    fn filter_row(&mut self) -> Result<bool> {
        Ok(true)
    }
}
