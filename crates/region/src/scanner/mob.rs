//! [`MobResolver`]: puts the value of a MOB file in place of the reference that a scanner selected.
//!
//! As in HBase (`MobStoreScanner`), matcher and filter see the reference: its key, which is that of
//! the cell, and the value and tags of the reference. The cell from the MOB file takes its place
//! when it is added to the result. So the cell counts towards the limits and the charge of a reply
//! with its real size, and a filter that sees whole rows sees it. A filter that replaces values
//! ([`crate::filter::Filter::transform`]) makes a read of the MOB file unnecessary.
//!
//! A scanner without a resolver does not look for references: the choice is made once for each
//! call, at compile time for each cell.

use bytes::Bytes;
use evenkeel_common::{CellRef, TryResult};

use super::CellSource;

/// Finds the cells that references stand for.
pub trait MobResolver: Send {
    /// Returns the cell that a reference stands for.
    ///
    /// # Errors
    /// `DoNotRetryIOException` if the MOB file or its cell does not exist,
    /// `CorruptHFileException`, `IOException`, and `WouldWait` if waiting is forbidden and the file
    /// must be opened or read.
    fn resolve<'a>(&'a mut self, reference: &CellRef<'a>) -> TryResult<MobCell<'a>>;

    /// Releases the block of the last cell.
    fn release(&mut self);
}

/// A cell from a MOB file, with the sequence id of its reference.
pub struct MobCell<'a> {
    /// The cell.
    pub cell: CellRef<'a>,
    /// Its value without a copy, if its block can be shared.
    pub shared_value: Option<Bytes>,
    /// Where it was read from.
    pub source: CellSource,
}
