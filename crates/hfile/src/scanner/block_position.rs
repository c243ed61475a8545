//! [`BlockPosition`]: a block, a cursor in it, and the cell at the cursor.
//!
//! Scanners look at a cell many times before they go on: is it visible, of which row, is its column wanted. So its view is
//! made once, when the cursor comes to it, and kept. It borrows from the block and the cursor beside it, which the
//! compiler cannot express; here it is kept true:
//!
//! * the view is dropped before the cursor moves, and before the block is let go of;
//! * it is handed out for no longer than the place is borrowed.

#![allow(unsafe_code)]

use evenkeel_block_cache::Block;
use evenkeel_common::cache_line::prefetch;
use evenkeel_common::{CellComparator, CellRef};

use crate::context::CellLayout;
use crate::encoding::{CellCursor, Malformed};

/// At a cell of a block, or at none. See the module.
#[derive(Debug)]
pub(crate) struct BlockPosition {
    /// Borrows from `cursor` and `block`, not for `'static`.
    cell: Option<CellRef<'static>>,
    cursor: CellCursor,
    block: Option<Block>,
    /// What its cells' sequence ids are, whatever the block says.
    seq_id: Option<u64>,
}

impl BlockPosition {
    /// At no cell of no block.
    pub fn new(layout: CellLayout) -> Self {
        Self { cell: None, cursor: CellCursor::new(layout), block: None, seq_id: None }
    }

    /// From here on every cell has this sequence id.
    pub fn set_seq_id(&mut self, seq_id: u64) {
        self.leave();
        self.seq_id = Some(seq_id);
    }

    /// The cell.
    #[inline]
    pub fn cell(&self) -> Option<&CellRef<'_>> {
        self.cell.as_ref()
    }

    /// Whether it is at a cell.
    #[inline]
    pub fn is_at_cell(&self) -> bool {
        self.cell.is_some()
    }

    /// The block it is, or last was, in.
    #[inline]
    pub fn block(&self) -> Option<&Block> {
        self.block.as_ref()
    }

    /// The cursor.
    pub fn cursor(&self) -> &CellCursor {
        &self.cursor
    }

    /// Gives the block back.
    pub fn take_block(&mut self) -> Option<Block> {
        self.leave();
        self.block.take()
    }

    /// Is at no cell from here on; the block stays.
    #[inline]
    pub fn leave(&mut self) {
        self.cell = None;
    }

    /// Goes into a block, to where `find` finds the cell; whether it does. Without one, and after an error, it is at no
    /// cell of this block.
    pub fn enter(
        &mut self,
        block: Block,
        find: impl FnOnce(&mut CellCursor, &Block) -> Result<bool, Malformed>,
    ) -> Result<bool, Malformed> {
        self.leave();
        let block = self.block.insert(block);
        let found = find(&mut self.cursor, block)?;
        self.set_cell(found);
        Ok(found)
    }

    /// Goes to the next cell of the block; whether there is one. Must be at a cell.
    #[inline]
    pub fn step(&mut self) -> Result<bool, Malformed> {
        self.leave();
        let Some(block) = &self.block else { return Ok(false) };
        // SAFETY: as in `set_cell`.
        self.cell = self.cursor.step(block)?.map(|cell| unsafe { keep(cell, self.seq_id) });
        // Cells of a value of some length each are too far apart for the processor to see them coming.
        if let Some(offset) = self.cursor.prefetch_offset() {
            prefetch(block.data().as_ptr().wrapping_add(offset));
        }
        Ok(self.cell.is_some())
    }

    /// From its cell on, goes forward to the first of the block that is at or after `key`; whether there is one. Must be
    /// at a cell.
    pub fn seek_forward(&mut self, key: &CellRef<'_>, order: CellComparator) -> Result<bool, Malformed> {
        self.leave();
        let found = match &self.block {
            Some(block) => self.cursor.seek_forward(block, key, order)?,
            None => false,
        };
        self.set_cell(found);
        Ok(found)
    }

    /// Is at the cursor's cell, when it found one.
    #[inline]
    fn set_cell(&mut self, found: bool) {
        self.cell = match &self.block {
            Some(block) if found => {
                // SAFETY: the view borrows from `cursor` and from the bytes that `block` keeps where they are, wherever
                // both are moved to. Every method that changes either drops the view first; `cell` hands it out for as
                // long as `self` is borrowed.
                Some(unsafe { keep(self.cursor.cell(block), self.seq_id) })
            }
            _ => None,
        };
    }
}

/// A view for `BlockPosition::cell`, with the sequence id that its file's cells have.
///
/// # Safety
/// What it borrows from must stay where it is, and as it is, for as long as the view is used.
#[inline]
unsafe fn keep(cell: CellRef<'_>, seq_id: Option<u64>) -> CellRef<'static> {
    let cell = match seq_id {
        Some(seq_id) => cell.with_seq_id(seq_id),
        None => cell,
    };
    // SAFETY: the caller's promise.
    unsafe { std::mem::transmute::<CellRef<'_>, CellRef<'static>>(cell) }
}
