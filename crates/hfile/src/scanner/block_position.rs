//! [`BlockPosition`]: a block, a cursor in it, and the current cell.
//!
//! A scanner inspects a cell several times before it moves: visibility, row, column. So the view of
//! the cell is made once, when the cursor reaches the cell, and kept. The view borrows from the
//! block and the cursor in the same struct, which the type system cannot express. This module
//! maintains two invariants instead:
//!
//! * the view is dropped before the cursor moves, and before the block is dropped;
//! * the view is borrowed for no longer than the position.
//!
//! A position may *release* its block ([`BlockPosition::release`]). It stays at its cell and keeps
//! the key; value and tags are empty until the block is loaded again ([`BlockPosition::restore`]).

#![allow(unsafe_code)]

use evenkeel_block_cache::Block;
use evenkeel_common::cache_line::prefetch;
use evenkeel_common::{CellComparator, CellRef};

use crate::context::CellLayout;
use crate::encoding::{CellCursor, Malformed};

/// At a cell of a block, or unset. See the module.
#[derive(Debug)]
pub(crate) struct BlockPosition {
    /// Borrows from `cursor` and `block`, or from `released_key`, not for `'static`.
    cell: Option<CellRef<'static>>,
    cursor: CellCursor,
    /// `None` at a cell means that the block is released.
    block: Option<Block>,
    /// The key of the current cell if the block is released.
    released_key: Vec<u8>,
    seq_ids: SeqIds,
}

/// The sequence ids of a scanner's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeqIds {
    /// Those of the file.
    OfFile,
    /// Those of the file, or this one if they are above it.
    AtMost(u64),
    /// This one for every cell.
    All(u64),
}

impl BlockPosition {
    /// An unset position, without a block.
    pub fn new(layout: CellLayout) -> Self {
        Self {
            cell: None,
            cursor: CellCursor::new(layout),
            block: None,
            released_key: Vec::new(),
            seq_ids: SeqIds::OfFile,
        }
    }

    /// Gives every cell the sequence id that `seq_ids` defines, from this call on.
    pub fn set_seq_ids(&mut self, seq_ids: SeqIds) {
        self.unset();
        self.seq_ids = seq_ids;
    }

    /// The current cell.
    #[inline]
    pub fn cell(&self) -> Option<&CellRef<'_>> {
        self.cell.as_ref()
    }

    /// Returns true if the position is at a cell.
    #[inline]
    pub fn is_at_cell(&self) -> bool {
        self.cell.is_some()
    }

    /// The current block, or the last one.
    #[inline]
    pub fn block(&self) -> Option<&Block> {
        self.block.as_ref()
    }

    /// Releases the block if it is outside of the caches. A current cell stays, without its value
    /// and tags. Returns true if the position is then at a cell of a released block.
    pub fn release(&mut self) -> bool {
        if self.block.as_ref().is_none_or(Block::is_pinned) {
            return false;
        }
        let Some(cell) = self.cell.take() else {
            self.block = None;
            return false;
        };
        self.released_key.clear();
        self.released_key.extend_from_slice(cell.key());
        let cell = CellRef::from_checked(&self.released_key, &[], &[], cell.seq_id());
        // SAFETY: the view borrows from `released_key`, whose bytes stay in place until the next
        // release, which is after the view was dropped.
        self.cell = Some(unsafe { keep(cell, self.seq_ids) });
        self.block = None;
        true
    }

    /// Returns true if the position is at a cell of a released block.
    #[inline]
    pub fn is_released(&self) -> bool {
        self.block.is_none() && self.cell.is_some()
    }

    /// Moves to the cell at which the block was released. `block` is the same block, loaded again.
    ///
    /// # Errors
    /// [`Malformed`] if the block has no cell there: it is another block.
    pub fn restore(&mut self, block: Block) -> Result<(), Malformed> {
        let end = self.cursor.cell_end();
        let find = |cursor: &mut CellCursor, block: &Block| {
            cursor.first(block)?;
            while cursor.cell_end() < end {
                cursor.step(block)?.ok_or(Malformed)?;
            }
            if cursor.cell_end() == end { Ok(true) } else { Err(Malformed) }
        };
        self.enter(block, find).map(drop)
    }

    /// The cursor.
    pub fn cursor(&self) -> &CellCursor {
        &self.cursor
    }

    /// Returns the block, and unsets the position.
    pub fn take_block(&mut self) -> Option<Block> {
        self.unset();
        self.block.take()
    }

    /// Unsets the position. The block stays.
    #[inline]
    pub fn unset(&mut self) {
        self.cell = None;
    }

    /// Enters a block and moves to the cell that `find` finds. Returns false if it finds none. The
    /// position is unset then, and also after an error.
    pub fn enter(
        &mut self,
        block: Block,
        find: impl FnOnce(&mut CellCursor, &Block) -> Result<bool, Malformed>,
    ) -> Result<bool, Malformed> {
        self.unset();
        let block = self.block.insert(block);
        let found = find(&mut self.cursor, block)?;
        self.set_cell(found);
        Ok(found)
    }

    /// Moves to the next cell of the block. Returns false if there is none. Requires a current
    /// cell.
    #[inline]
    pub fn step(&mut self) -> Result<bool, Malformed> {
        self.unset();
        let Some(block) = &self.block else { return Ok(false) };
        // SAFETY: as in `set_cell`.
        self.cell = self.cursor.step(block)?.map(|cell| unsafe { keep(cell, self.seq_ids) });
        // Cells with long values are too far apart for the hardware prefetcher.
        if let Some(offset) = self.cursor.prefetch_offset() {
            prefetch(block.data().as_ptr().wrapping_add(offset));
        }
        Ok(self.cell.is_some())
    }

    /// Moves forward from the current cell to the first cell of the block at or after `key`.
    /// Returns false if there is none. Requires a current cell.
    pub fn seek_forward(&mut self, key: &CellRef<'_>, order: CellComparator) -> Result<bool, Malformed> {
        self.unset();
        let found = match &self.block {
            Some(block) => self.cursor.seek_forward(block, key, order)?,
            None => false,
        };
        self.set_cell(found);
        Ok(found)
    }

    /// Sets the current cell from the cursor, if `found`.
    #[inline]
    fn set_cell(&mut self, found: bool) {
        self.cell = match &self.block {
            Some(block) if found => {
                // SAFETY: the view borrows from `cursor` and from bytes that `block` keeps at a
                // fixed address, even if both are moved. Every method that changes either drops the
                // view first, and `cell` lends it for as long as `self` is borrowed.
                Some(unsafe { keep(self.cursor.cell(block), self.seq_ids) })
            }
            _ => None,
        };
    }
}

/// Makes the view for `BlockPosition::cell`, with the sequence id of the file's cells.
///
/// # Safety
/// The memory that the view borrows from must stay unchanged and in place while the view is used.
#[inline]
unsafe fn keep(cell: CellRef<'_>, seq_ids: SeqIds) -> CellRef<'static> {
    let cell = match seq_ids {
        SeqIds::OfFile => cell,
        SeqIds::AtMost(seq_id) => cell.with_seq_id(cell.seq_id().min(seq_id)),
        SeqIds::All(seq_id) => cell.with_seq_id(seq_id),
    };
    // SAFETY: the caller guarantees it.
    unsafe { std::mem::transmute::<CellRef<'_>, CellRef<'static>>(cell) }
}
