//! [`SegmentScanner`]: a cursor over a segment.

use std::sync::Arc;

use evenkeel_common::{CellRef, KeyBuf, TryResult};

use super::Segment;
use super::segment::Cursor;
use crate::scanner::{KeyValueScanner, LeafScanner};

/// Steps that [`SegmentScanner::reseek`] tries before it searches from the top of the list.
const STEPS_BEFORE_DESCENT: usize = 4;

/// A cursor over a segment that skips cells above its read point.
pub struct SegmentScanner {
    segment: Arc<Segment>,
    at: Cursor,
    /// The cell at `at`. It borrows from `segment`, not for `'static`: only
    /// [`SegmentScanner::peek`] returns it, for no longer than `self` is borrowed.
    cell: Option<CellRef<'static>>,
    read_point: u64,
}

// SAFETY: `at` and `cell` point into memory that `segment` keeps alive, which is Sync.
unsafe impl Send for SegmentScanner {}

impl SegmentScanner {
    /// Creates a cursor without a current cell; seek before use.
    pub fn new(segment: Arc<Segment>, read_point: u64) -> Self {
        Self { segment, at: Cursor::NONE, cell: None, read_point }
    }

    /// Returns true if it scans this segment.
    pub fn is_of(&self, segment: &Arc<Segment>) -> bool {
        Arc::ptr_eq(&self.segment, segment)
    }

    /// The segment.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Moves to no cell. The next seek reads at `read_point`.
    pub fn rewind(&mut self, read_point: u64) {
        (self.at, self.cell) = (Cursor::NONE, None);
        self.read_point = read_point;
    }

    /// Moves to `at`, or to the first visible cell after it.
    fn skip_invisible(&mut self, mut at: Cursor) {
        let mut cell = self.segment.cell(at);
        while cell.is_some_and(|cell| cell.seq_id() > self.read_point) || self.segment.is_hidden(at) {
            at = self.segment.after(at);
            cell = self.segment.cell(at);
        }
        self.at = at;
        // SAFETY: the cell's bytes live as long as `self.segment`, which `self` keeps alive; see
        // `cell`.
        self.cell = cell.map(|cell| unsafe { std::mem::transmute::<CellRef<'_>, CellRef<'static>>(cell) });
    }

    /// Moves to the first visible cell of the row of `last`, or of an earlier row.
    fn seek_visible_row_start(&mut self, mut last: Cursor) {
        let mut key = KeyBuf::default();
        loop {
            let segment = Arc::clone(&self.segment);
            let Some(cell) = segment.cell(last) else {
                return self.skip_invisible(Cursor::NONE);
            };
            key.set_to(&KeyBuf::first_on_row(cell.row()).as_cell());
            self.skip_invisible(segment.at_or_after(&key.as_cell()));
            if self.cell.is_some_and(|found| found.row() == cell.row()) {
                return;
            }
            last = segment.before(&key.as_cell());
        }
    }
}

impl KeyValueScanner for SegmentScanner {
    #[inline]
    fn peek(&self) -> Option<&CellRef<'_>> {
        self.cell.as_ref()
    }

    #[inline]
    fn is_at_end(&self) -> bool {
        self.cell.is_none()
    }

    #[inline]
    fn advance(&mut self) -> TryResult<()> {
        if !self.at.is_none() {
            self.skip_invisible(self.segment.after(self.at));
        }
        Ok(())
    }

    fn seek(&mut self, key: &CellRef<'_>) -> TryResult<()> {
        self.skip_invisible(self.segment.at_or_after(key));
        Ok(())
    }

    fn reseek(&mut self, key: &CellRef<'_>) -> TryResult<()> {
        let comparator = self.segment.comparator();
        for _ in 0..STEPS_BEFORE_DESCENT {
            match self.peek() {
                Some(cell) if comparator.compare(cell, key).is_lt() => self.advance()?,
                _ => return Ok(()),
            }
        }
        if self.peek().is_some_and(|cell| comparator.compare(cell, key).is_lt()) {
            self.seek(key)?;
        }
        Ok(())
    }

    fn seek_to_previous_row(&mut self, row: &[u8]) -> TryResult<()> {
        let last = self.segment.before(&KeyBuf::first_on_row(row).as_cell());
        self.seek_visible_row_start(last);
        Ok(())
    }

    fn seek_to_last_row(&mut self) -> TryResult<()> {
        self.seek_visible_row_start(self.segment.last_cursor());
        Ok(())
    }
}

impl LeafScanner for SegmentScanner {}
