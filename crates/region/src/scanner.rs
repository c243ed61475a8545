//! Scanners: from the sorted cells of MemStore segments and store files to the rows a client asked for.
//!
//! ```text
//! RegionScanner      rows: filter, limits, essential families       one a Get or Scan (`region::region_scanner`)
//!   StoreScanner     columns and versions: deletes, TTL, seeks      one a family
//!     KeyValueHeap   the least of many sorted runs
//!       leaf         SegmentScanner, StoreFileScanner               one a segment or file
//! ```
//!
//! A cell is looked at through a [`CellRef`] borrowed from the leaf it lies in, and copied once, into the reply's
//! [`CellBuffer`](evenkeel_common::CellBuffer), when it is part of the answer. Nothing is allocated per cell: what a
//! matcher remembers (a row, a qualifier) goes into buffers that are reused.
//!
//! | module | noun |
//! |---|---|
//! | [`context`] | [`ScannerContext`]: how far one call may go, and how far it went; [`NextState`] |
//! | [`heap`] | [`KeyValueHeap`], in both directions |
//! | [`matcher`] | which cells of a store are visible, kept by a flush, or kept by a compaction |
//! | [`store_scanner`] | [`StoreScanner`] |
//!
//! **Views.** A scanner holds the segments and files that its stores had when it was made. A flush or a compaction in
//! the meantime changes nothing for it; files that a compaction replaced are archived when no scanner holds them.
//!
//! **Read point.** Leaves pass over cells whose sequence id is beyond the scanner's read point, so everything above
//! them sees one state of the region.

pub mod context;
pub mod heap;
pub mod matcher;
pub mod store_scanner;

mod columns;
mod deletes;
mod new_version;

use bytes::Bytes;
use evenkeel_common::{CellRef, Result};

pub use context::{LimitScope, NextState, ScannerContext};
pub use heap::KeyValueHeap;
pub use store_scanner::StoreScanner;

/// A cursor over one sorted run of cells.
///
/// Rows go up; "before" and "after" are in the order of the comparator. A cursor past either end stands at no cell.
pub trait KeyValueScanner: Send {
    /// The cell it stands at.
    fn peek(&self) -> Option<&CellRef<'_>>;

    /// Whether it stands at no cell; cheaper than looking at the cell.
    fn is_at_end(&self) -> bool {
        self.peek().is_none()
    }

    /// Goes to the next cell.
    ///
    /// # Errors
    /// When a block cannot be read.
    fn advance(&mut self) -> Result<()>;

    /// Goes to the first cell that is not before `key`.
    ///
    /// # Errors
    /// As [`KeyValueScanner::advance`].
    fn seek(&mut self, key: &CellRef<'_>) -> Result<()>;

    /// As [`KeyValueScanner::seek`], but never back: cheap when `key` is near.
    ///
    /// # Errors
    /// As [`KeyValueScanner::advance`].
    fn reseek(&mut self, key: &CellRef<'_>) -> Result<()>;

    /// Goes to the first cell of the last row that is before `row`.
    ///
    /// # Errors
    /// As [`KeyValueScanner::advance`].
    fn seek_to_previous_row(&mut self, row: &[u8]) -> Result<()>;

    /// Goes to the first cell of the last row.
    ///
    /// # Errors
    /// As [`KeyValueScanner::advance`].
    fn seek_to_last_row(&mut self) -> Result<()>;

    /// Goes to the first cell of `key`'s row that is not before `key`; when there is none, to the first cell of the
    /// row before.
    ///
    /// # Errors
    /// As [`KeyValueScanner::advance`].
    fn backward_seek(&mut self, key: &CellRef<'_>) -> Result<()> {
        self.seek(key)?;
        match self.peek() {
            Some(cell) if cell.same_row(key) => Ok(()),
            _ => self.seek_to_previous_row(key.row()),
        }
    }
}

/// A scanner at the bottom of a [`KeyValueHeap`], of one MemStore segment or one store file: all that this folder knows of
/// either.
pub trait LeafScanner: KeyValueScanner {
    /// Looks for rows that will be sought soon.
    fn prefetch_rows<'a>(&mut self, _rows: impl Iterator<Item = &'a [u8]> + Clone) {}

    /// The value of the cell it stands at without a copy, when its block can be shared.
    fn share_value(&self) -> Option<Bytes> {
        None
    }

    /// Bytes of the blocks that it holds on to; cells of a segment are the MemStore's.
    fn held_bytes(&self) -> u64 {
        0
    }

    /// Bytes of the block it stands in, when that was entered since this was last asked; else 0.
    #[inline]
    fn take_entered_bytes(&mut self) -> u64 {
        0
    }
}
