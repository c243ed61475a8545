//! [`RegionScanner`].

use std::sync::Arc;

use evenkeel_common::{CellBuffer, CellComparator, Result};

use super::{NextState, ScannerContext};
use crate::ops::Scan;
use crate::store::Store;

/// Reads the rows of a Get or Scan from all stores of a region.
pub struct RegionScanner {
    read_point: u64,
}

impl RegionScanner {
    /// A scanner over stores sorted by family.
    pub fn new(stores: &[Arc<Store>], scan: Scan, read_point: u64, comparator: CellComparator, now_ms: i64) -> Result<Self> {
        let _ = (stores, scan, comparator, now_ms);
        Ok(Self { read_point })
    }

    /// Appends the next result (a row, or a part of one) to `out`.
    pub fn next(&mut self, out: &mut CellBuffer, context: &mut ScannerContext) -> Result<NextState> {
        let _ = (out, context);
        unimplemented!()
    }

    /// What the scanner sees: cells whose sequence ids are not beyond this.
    pub fn read_point(&self) -> u64 {
        self.read_point
    }

    /// Whether the filter wants no more rows.
    pub fn is_filter_done(&self) -> bool {
        unimplemented!()
    }

    /// The row of the cell that was looked at last: the cursor of a scan that found nothing yet.
    pub fn peeked_row(&self) -> Option<&[u8]> {
        unimplemented!()
    }
}
