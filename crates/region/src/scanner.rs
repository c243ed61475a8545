//! Scanners: from the sorted cells of MemStore segments and store files to the visible cells of a
//! store.
//!
//! ```text
//! RegionScanner      rows: filter, limits, essential families    one a Get or Scan (in `region`)
//!   StoreScanner     columns and versions: deletes, TTL, seeks   one a family
//!     KeyValueHeap   merges sorted runs
//!       leaf         SegmentScanner, StoreFileScanner            one a segment or file
//! ```
//!
//! A cell is a [`CellRef`] borrowed from its leaf. It is copied once, into the reply's
//! [`CellBuffer`](evenkeel_common::CellBuffer), if it is part of the answer. There is no allocation
//! per cell: a matcher keeps its state (a row, a qualifier) in buffers that it reuses.
//!
//! | module | contents |
//! |---|---|
//! | [`cell_source`] | [`CellSource`]: the heap bytes that HBase counts for a cell |
//! | [`context`] | [`ScannerContext`]: limits of a call and progress towards them; [`NextState`] |
//! | [`heap`] | [`KeyValueHeap`], in both directions |
//! | [`matcher`] | which cells of a store are visible, or kept by a flush or a compaction |
//! | [`mob`] | [`MobResolver`]: values of MOB files in place of references |
//! | [`reply_charge`] | [`ReplyCharge`]: what a reply's cells take from the budget of replies |
//! | [`store_scanner`] | [`StoreScanner`] |
//! | [`time_slice`] | [`TimeSlice`]: how long reads may compute, and for whom |
//! | `columns`, `deletes`, `new_version` | a matcher's trackers of columns and of delete markers |
//! | `profile` | samples of what a call computes, for the ledger of slow requests |
//!
//! **Views.** A scanner holds the segments and files that its stores had when it was made. A later
//! flush or compaction does not affect it. Files that a compaction replaced are archived once no
//! scanner holds them.
//!
//! **Read point.** Leaves skip cells whose sequence id is above the scanner's read point, so
//! everything above them sees one state of the region.

#![forbid(unsafe_code)]

pub mod cell_source;
pub mod context;
pub mod heap;
pub mod matcher;
pub mod mob;
pub mod reply_charge;
pub mod store_scanner;
pub mod time_slice;

mod columns;
mod deletes;
mod new_version;
mod profile;

use bytes::Bytes;
use evenkeel_common::{CellRef, TryResult};

pub use cell_source::CellSource;
pub use context::{LimitScope, NextState, ScannerContext};
pub use heap::KeyValueHeap;
pub use mob::{MobCell, MobResolver};
pub use reply_charge::ReplyCharge;
pub use store_scanner::StoreScanner;
pub use time_slice::TimeSlice;

/// A cursor over one sorted run of cells.
///
/// "Before" and "after" follow the comparator's order, in which rows ascend. A cursor past either
/// end has no current cell.
pub trait KeyValueScanner: Send {
    /// The current cell.
    fn peek(&self) -> Option<&CellRef<'_>>;

    /// Returns true if there is no current cell. Cheaper than `peek`.
    fn is_at_end(&self) -> bool {
        self.peek().is_none()
    }

    /// Moves to the next cell.
    ///
    /// # Errors
    /// `IOException` or `CorruptHFileException` if a block cannot be read.
    fn advance(&mut self) -> TryResult<()>;

    /// Moves to the first cell that is not before `key`.
    ///
    /// # Errors
    /// As [`KeyValueScanner::advance`].
    fn seek(&mut self, key: &CellRef<'_>) -> TryResult<()>;

    /// As [`KeyValueScanner::seek`], but only forward. Cheap if `key` is near.
    ///
    /// # Errors
    /// As [`KeyValueScanner::advance`].
    fn reseek(&mut self, key: &CellRef<'_>) -> TryResult<()>;

    /// Moves to the first cell of the last row before `row`.
    ///
    /// # Errors
    /// As [`KeyValueScanner::advance`].
    fn seek_to_previous_row(&mut self, row: &[u8]) -> TryResult<()>;

    /// Moves to the first cell of the last row.
    ///
    /// # Errors
    /// As [`KeyValueScanner::advance`].
    fn seek_to_last_row(&mut self) -> TryResult<()>;

    /// Moves to the first cell of `key`'s row that is not before `key`; if there is none, to the
    /// first cell of the previous row.
    ///
    /// # Errors
    /// As [`KeyValueScanner::advance`].
    fn backward_seek(&mut self, key: &CellRef<'_>) -> TryResult<()> {
        self.seek(key)?;
        match self.peek() {
            Some(cell) if cell.same_row(key) => Ok(()),
            _ => self.seek_to_previous_row(key.row()),
        }
    }
}

/// A scanner at the bottom of a [`KeyValueHeap`], over one MemStore segment or one store file. The
/// scanners of this folder depend on this trait only.
pub trait LeafScanner: KeyValueScanner {
    /// Prefetches rows that will be sought soon. The position does not change.
    fn prefetch_rows<'a>(&mut self, _rows: impl Iterator<Item = &'a [u8]> + Clone) {}

    /// Returns the current cell's value without a copy, if its block can be shared.
    fn share_value(&self) -> Option<Bytes> {
        None
    }

    /// Returns where its cells come from.
    #[inline]
    fn source(&self) -> CellSource {
        CellSource::MemStore
    }

    /// Returns the bytes of the blocks it pins. Cells of a segment belong to the MemStore and do
    /// not count.
    fn held_bytes(&self) -> u64 {
        0
    }

    /// Makes the current cell's value and tags readable: loads its block again if it was released.
    /// Returns the bytes of the current block if it was entered since the last call, otherwise 0.
    ///
    /// # Errors
    /// As [`KeyValueScanner::advance`].
    #[inline]
    fn enter_block(&mut self) -> TryResult<u64> {
        Ok(0)
    }

    /// Releases the current block if it is outside of the caches. The position and the current
    /// cell's key stay; its value and tags are empty until [`LeafScanner::enter_block`].
    fn release_block(&mut self) {}
}
