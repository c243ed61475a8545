//! [`StoreScanner`]: the visible cells of one family, row by row.
//!
//! The matcher decides where to go from a cell. This scanner decides how, by cost: the next column
//! or row is usually one or two cells away, so it tries a few steps before a seek. It never skips
//! cells with an empty qualifier, because family markers are among them.
//!
//! Each leaf holds a block. If there are too many blocks outside of the caches, leaves that are not
//! current release theirs ([`heap_blocks`]), only as many as necessary. The leaves keep the keys of
//! their current cells.

use evenkeel_block_cache::heap_blocks;
use evenkeel_common::CellType::{Maximum, Minimum};
use evenkeel_common::cell::{LATEST_TIMESTAMP, OLDEST_TIMESTAMP};
use evenkeel_common::mob::is_reference;
use evenkeel_common::{
    CellBuffer, CellComparator, CellRef, ErrorKind, HBaseError, KeyBuf, Result, TryResult,
};

use super::heap::{KeyValueHeap, SortedRun};
use super::matcher::{FilterSlot, MatchCode, QueryMatcher};
use super::{CellSource, KeyValueScanner, LeafScanner, LimitScope, MobResolver, ScannerContext};
use crate::operations::Scan;

/// Steps tried before a seek to the next column.
const STEPS_TO_COLUMN: usize = 4;
/// Steps tried before a seek to the next row.
const STEPS_TO_ROW: usize = 8;

/// An upper estimate of a leaf's memory, without the blocks it pins.
const LEAF_BYTES: u64 = 1 << 10;

/// Where a scan of a store starts, its direction and its limits.
#[derive(Clone, Copy, Debug)]
pub struct ScanStart<'a> {
    /// The first row; empty for the first row of the store (the last if reversed).
    pub row: &'a [u8],
    /// False if `row` itself is excluded.
    pub include_row: bool,
    /// True if rows are read in descending order.
    pub reversed: bool,
    /// The maximum number of cells of a row; negative for no limit.
    pub limit: i32,
    /// The number of cells to skip in each row.
    pub offset: i32,
    /// `hbase.table.max.rowsize`: the maximum bytes of cells that one call may add.
    pub row_bytes_max: u64,
}

impl<'a> ScanStart<'a> {
    /// The start of a scan.
    pub fn of(scan: &'a Scan) -> Self {
        Self {
            row: &scan.start_row,
            include_row: scan.include_start_row,
            reversed: scan.reversed,
            limit: scan.store_limit,
            offset: scan.store_offset,
            row_bytes_max: u64::MAX,
        }
    }

    /// From the first cell to the last.
    pub const ALL: ScanStart<'static> = ScanStart {
        row: b"",
        include_row: true,
        reversed: false,
        limit: -1,
        offset: 0,
        row_bytes_max: u64::MAX,
    };
}

/// Seeks leaves to the start of a scan.
pub(crate) struct LeafSeeker<'a> {
    start: ScanStart<'a>,
    key: KeyBuf,
    /// Bytes of the cells found so far.
    bytes: u64,
}

impl<'a> LeafSeeker<'a> {
    /// Seeks to `start`. `key` is a buffer to reuse.
    pub fn new(start: ScanStart<'a>, mut key: KeyBuf) -> Self {
        match start.include_row {
            true => set_first_on_row(&mut key, start.row),
            false => set_last_on_row(&mut key, start.row),
        }
        Self { start, key, bytes: 0 }
    }

    /// Seeks the leaf at `at`. The leaves before it must be sought already.
    ///
    /// # Errors
    /// As [`KeyValueScanner::advance`], and `RowTooBigException` if the cells of earlier leaves are
    /// already too large.
    pub fn seek_leaf(&mut self, leaves: &mut [impl LeafScanner], at: usize) -> TryResult<()> {
        let Some((leaf, earlier)) = leaves.get_mut(..=at).and_then(<[_]>::split_last_mut) else {
            return Ok(());
        };
        if heap_blocks::is_over_limit()
            && let Some(last) = earlier.last_mut()
        {
            last.release_block();
        }
        let start = &self.start;
        if self.bytes >= start.row_bytes_max {
            let message =
                format!("Max row size allowed: {}, but row is bigger than that", start.row_bytes_max);
            return Err(HBaseError::new(ErrorKind::RowTooBig, message).into());
        }
        match (start.reversed, start.row.is_empty(), start.include_row) {
            (false, ..) => leaf.seek(&self.key.as_cell())?,
            (true, true, _) => leaf.seek_to_last_row()?,
            (true, false, true) => leaf.backward_seek(&self.key.as_cell())?,
            (true, false, false) => leaf.seek_to_previous_row(start.row)?,
        }
        self.bytes += KeyValueScanner::peek(leaf).map_or(0, |cell| cell.key_value_len() as u64);
        Ok(())
    }
}

/// Reads a store for one scan, flush or compaction. See the module.
pub struct StoreScanner<L> {
    heap: KeyValueHeap<L>,
    matcher: QueryMatcher,
    comparator: CellComparator,
    reversed: bool,
    limit: i64,
    offset: i64,
    row_bytes_max: u64,
    cells_in_row: i64,
    done: bool,
    key: KeyBuf,
    /// `None` if references are not resolved, which most stores do not have.
    mob: Option<Box<dyn MobResolver>>,
}

impl<L: LeafScanner> StoreScanner<L> {
    /// Creates a scanner over leaves at any position, the newest first.
    ///
    /// # Errors
    /// As [`KeyValueScanner::advance`].
    pub fn new(
        mut leaves: Vec<L>,
        matcher: QueryMatcher,
        comparator: CellComparator,
        start: ScanStart<'_>,
    ) -> TryResult<Self> {
        let mut seek = LeafSeeker::new(start, KeyBuf::default());
        (0..leaves.len()).try_for_each(|at| seek.seek_leaf(&mut leaves, at))?;
        Ok(Self::at(leaves, matcher, comparator, seek))
    }

    /// Creates a scanner over leaves that are already at its start.
    pub(crate) fn at(
        leaves: Vec<L>,
        matcher: QueryMatcher,
        comparator: CellComparator,
        seek: LeafSeeker<'_>,
    ) -> Self {
        let start = seek.start;
        Self {
            heap: KeyValueHeap::new(leaves, comparator, start.reversed),
            matcher,
            comparator,
            reversed: start.reversed,
            limit: start.limit.into(),
            offset: start.offset.max(0).into(),
            row_bytes_max: start.row_bytes_max,
            cells_in_row: 0,
            done: false,
            key: seek.key,
            mob: None,
        }
    }

    /// Resolves references to MOB files from here on; see [`MobResolver`].
    pub(crate) fn resolve_references(&mut self, mob: Box<dyn MobResolver>) {
        self.mob = Some(mob);
    }

    /// Makes a Get's scanner read another row. `arrange` seeks the leaves that may hold a part of
    /// it, adds missing ones, and rewinds the others to no cell. Do not use the scanner after an
    /// error.
    ///
    /// # Errors
    /// Errors of `arrange`.
    pub(crate) fn go_to_row(
        &mut self,
        row: &[u8],
        arrange: impl FnOnce(&mut Vec<L>, &mut LeafSeeker<'_>) -> TryResult<()>,
    ) -> TryResult<()> {
        let start = ScanStart { row, row_bytes_max: self.row_bytes_max, ..ScanStart::ALL };
        let mut seek = LeafSeeker::new(start, std::mem::take(&mut self.key));
        self.heap.reposition_runs(|leaves| arrange(leaves, &mut seek))?;
        self.key = seek.key;
        self.matcher.restart();
        (self.cells_in_row, self.done) = (0, false);
        Ok(())
    }

    /// Prefetches rows that a Get's scanner will read soon. The position does not change.
    pub(crate) fn prefetch_rows<'a>(&mut self, rows: impl Iterator<Item = &'a [u8]> + Clone) {
        self.heap.runs_mut().iter_mut().for_each(|leaf| leaf.prefetch_rows(rows.clone()));
    }

    /// Returns true if it has read any delete marker.
    pub fn saw_markers(&self) -> bool {
        self.matcher.saw_markers()
    }

    /// Returns the bytes of the scanner and of the blocks it pins.
    pub fn held_bytes(&self) -> u64 {
        let leaves = self.leaves().iter().map(|leaf| LEAF_BYTES + leaf.held_bytes()).sum::<u64>();
        leaves + self.matcher.held_bytes() + size_of::<Self>() as u64
    }

    /// The leaves that it merges, the newest first.
    pub(crate) fn leaves(&self) -> &[L] {
        self.heap.runs()
    }

    /// Returns true if there are no more cells.
    pub fn is_done(&self) -> bool {
        self.is_at_end()
    }

    /// Appends the visible cells of the current row: all of them, or until a limit of `context`
    /// ends the call. Returns true if the scanner has left the row.
    ///
    /// # Errors
    /// As [`KeyValueScanner::advance`], errors of the filter, `RowTooBigException`, and
    /// `CallQueueTooBigException` if the reply's budget has no capacity for a cell; those of
    /// [`MobResolver::resolve`].
    pub fn next(
        &mut self,
        out: &mut CellBuffer,
        context: &mut ScannerContext,
        filter: &mut FilterSlot,
    ) -> TryResult<bool> {
        match self.mob.is_some() {
            false => self.next_cells::<false>(out, context, filter),
            true => self.next_cells::<true>(out, context, filter),
        }
    }

    fn next_cells<const RESOLVES: bool>(
        &mut self,
        out: &mut CellBuffer,
        context: &mut ScannerContext,
        filter: &mut FilterSlot,
    ) -> TryResult<bool> {
        if self.done {
            return Ok(true);
        }
        let mut enters = true;
        let row_size_limit = context.size.saturating_add(self.row_bytes_max);
        loop {
            self.enter_block(context)?;
            let Some(cell) = self.heap.peek() else {
                self.done = true;
                return Ok(true);
            };
            let is_first = std::mem::take(&mut enters) && !self.matcher.is_on_row(cell.row());
            if is_first {
                self.matcher.set_row(cell.row());
                self.cells_in_row = 0;
            }
            let code = self.matcher.matches(cell, is_first, filter)?;
            if code.includes() {
                self.cells_in_row += 1;
                if self.cells_in_row > self.offset && !context.discards {
                    match self.mob.as_deref_mut() {
                        Some(mob) if RESOLVES && is_reference(cell) => {
                            let leaf = self.heap.current();
                            push_resolved(out, cell, filter, (leaf, mob), context)?;
                        }
                        _ => push(out, cell, filter, self.heap.current(), context)?,
                    }
                    if context.size > row_size_limit {
                        return Err(row_too_big(self.row_bytes_max, cell).into());
                    }
                }
            }
            if !self.follow(code, filter)? {
                let is_finished = filter.as_ref().is_some_and(|filter| filter.filter_all_remaining());
                self.done |= is_finished && self.looks_ahead(code, context);
                return Ok(true);
            }
            if context.size_reached(LimitScope::BetweenCells)
                || (code.includes() && context.batch_reached())
                || context.time_reached_at_cell(filter, || self.reads_memstore())
            {
                return Ok(false);
            }
        }
    }

    /// Returns true if the current cell is in a MemStore.
    pub(crate) fn reads_memstore(&self) -> bool {
        self.heap.current().is_some_and(|leaf| leaf.source() == CellSource::MemStore)
    }

    /// Makes the current cell readable, and releases blocks of other leaves if too many are held.
    #[inline]
    fn enter_block(&mut self, context: &mut ScannerContext) -> TryResult<()> {
        let entered_bytes = self.heap.current_mut().map_or(Ok(0), L::enter_block)?;
        context.count_block(entered_bytes);
        if entered_bytes > 0 {
            self.heap.for_each_other(|leaf| {
                let is_over_limit = heap_blocks::is_over_limit();
                if is_over_limit {
                    leaf.release_block();
                }
                is_over_limit
            });
        }
        Ok(())
    }

    /// Releases the blocks of all leaves that are outside of the caches; see
    /// [`LeafScanner::release_block`].
    pub fn release_blocks(&mut self) {
        self.heap.runs_mut().iter_mut().for_each(L::release_block);
    }

    /// Moves as `code` directs. Returns true if the row continues.
    fn follow(&mut self, code: MatchCode, filter: &mut FilterSlot) -> TryResult<bool> {
        if code.includes() && self.is_at_limit() {
            return self.end_row();
        }
        match code {
            MatchCode::Include | MatchCode::Skip => self.heap.advance()?,
            MatchCode::IncludeAndSeekNextCol | MatchCode::SeekNextCol => {
                self.seek_or_skip_to_next_column()?
            }
            MatchCode::IncludeAndSeekNextRow | MatchCode::SeekNextRow => return self.end_row(),
            MatchCode::SeekNextUsingHint => self.seek_hint(filter)?,
            MatchCode::Done => {
                self.done = !self.matcher.more_rows_may_exist();
                self.matcher.clear_row();
                return Ok(false);
            }
            MatchCode::DoneScan => {
                self.done = true;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns true if HBase asks the filter about the first cell of the next row before it
    /// returns this one: it seeks there and goes on. A filter that is finished only until its reset
    /// then ends the scan of the family.
    fn looks_ahead(&self, code: MatchCode, context: &ScannerContext) -> bool {
        let ends_row = matches!(code, MatchCode::SeekNextRow | MatchCode::IncludeAndSeekNextRow);
        ends_row
            && !context.size_reached(LimitScope::BetweenCells)
            && !(code.includes() && (context.batch_reached() || self.is_at_limit()))
    }

    /// Returns true if the row has as many cells as the scan takes of each family.
    fn is_at_limit(&self) -> bool {
        self.limit >= 0 && self.cells_in_row >= self.limit + self.offset && self.cells_in_row > self.offset
    }

    fn end_row(&mut self) -> TryResult<bool> {
        self.matcher.clear_row();
        if self.matcher.more_rows_may_exist() {
            self.seek_or_skip_to_next_row()?;
        } else {
            self.done = true;
        }
        Ok(false)
    }

    /// Leaves the current row without reading the rest of it.
    ///
    /// # Errors
    /// As [`KeyValueScanner::advance`].
    pub fn skip_row(&mut self) -> TryResult<()> {
        if let Some(cell) = self.heap.peek() {
            self.matcher.pass_row(cell.row());
            self.cells_in_row = 0;
        }
        self.end_row().map(drop)
    }

    /// Leaves the current row. The current cell must be in the matcher's row.
    fn seek_or_skip_to_next_row(&mut self) -> TryResult<()> {
        if self.reversed {
            return self.heap.leave_row_backwards(self.matcher.row());
        }
        for _ in 0..STEPS_TO_ROW {
            self.heap.advance()?;
            if self.heap.peek().is_none_or(|cell| cell.row() != self.matcher.row()) {
                return Ok(());
            }
        }
        set_last_on_row(&mut self.key, self.matcher.row());
        self.heap.reseek(&self.key.as_cell())
    }

    fn seek_or_skip_to_next_column(&mut self) -> TryResult<()> {
        let Some(cell) = self.heap.peek() else { return Ok(()) };
        if cell.qualifier().is_empty() {
            return self.heap.advance();
        }
        set_next_column(&mut self.key, cell, self.matcher.column_hint());
        for _ in 0..STEPS_TO_COLUMN {
            self.heap.advance()?;
            if !self.heap.is_before(&self.key.as_cell()) {
                return Ok(());
            }
        }
        self.heap.reseek(&self.key.as_cell())
    }

    fn seek_hint(&mut self, filter: &mut FilterSlot) -> TryResult<()> {
        let (Some(cell), Some(filter)) = (self.heap.peek(), filter) else { return self.heap.advance() };
        let Some(hint) = filter.next_cell_hint(cell)? else { return self.heap.advance() };
        let order = self.comparator.compare(&hint.as_cell(), cell);
        let ahead = if self.reversed { order.is_lt() } else { order.is_gt() };
        if ahead { self.heap.reseek(&hint.as_cell()) } else { self.heap.advance() }
    }

    /// Moves, in the scan's direction, to `row`, or past it if it does not exist.
    ///
    /// # Errors
    /// As [`KeyValueScanner::advance`].
    pub fn seek_to_row(&mut self, row: &[u8]) -> TryResult<()> {
        self.matcher.clear_row();
        set_first_on_row(&mut self.key, row);
        self.heap.reseek(&self.key.as_cell())
    }
}

impl<L: LeafScanner> SortedRun for StoreScanner<L> {
    #[inline]
    fn peek(&self) -> Option<&CellRef<'_>> {
        if self.done { None } else { self.heap.peek() }
    }

    #[inline]
    fn is_at_end(&self) -> bool {
        self.done || self.heap.is_at_end()
    }
}

/// As [`KeyBuf::first_on_row`], reusing the buffer.
fn set_first_on_row(key: &mut KeyBuf, row: &[u8]) {
    key.set(row, b"", b"", LATEST_TIMESTAMP, Maximum);
}

/// As [`KeyBuf::last_on_row`], reusing the buffer.
fn set_last_on_row(key: &mut KeyBuf, row: &[u8]) {
    key.set(row, b"", b"", OLDEST_TIMESTAMP, Minimum);
}

/// Sets `key` to the first key of the next column to read.
fn set_next_column(key: &mut KeyBuf, cell: &CellRef<'_>, hint: Option<&[u8]>) {
    match hint {
        Some(column) if column > cell.qualifier() => {
            key.set(cell.row(), cell.family(), column, LATEST_TIMESTAMP, Maximum);
        }
        _ => key.set(cell.row(), cell.family(), cell.qualifier(), OLDEST_TIMESTAMP, Minimum),
    }
}

fn push<L: LeafScanner>(
    out: &mut CellBuffer,
    cell: &CellRef<'_>,
    filter: &FilterSlot,
    leaf: Option<&L>,
    context: &mut ScannerContext,
) -> Result<()> {
    if let Some(value) = filter.as_ref().and_then(|filter| filter.transform(cell)) {
        out.push(&cell.with_value(value.as_bytes()));
        count(out, cell, leaf, context, CellSource::key_only_heap_bytes);
        return Ok(());
    }
    context.charge_cell(cell)?;
    let wanted = out.shares(cell.value().len());
    match leaf.filter(|_| wanted).and_then(L::share_value) {
        Some(value) => out.push_shared(cell, value),
        None => out.push(cell),
    }
    count(out, cell, leaf, context, CellSource::heap_bytes);
    Ok(())
}

/// Adds the cell that a reference stands for.
#[inline(never)]
fn push_resolved<L: LeafScanner>(
    out: &mut CellBuffer,
    reference: &CellRef<'_>,
    filter: &FilterSlot,
    (leaf, mob): (Option<&L>, &mut dyn MobResolver),
    context: &mut ScannerContext,
) -> TryResult<()> {
    if filter.as_ref().is_some_and(|filter| filter.transform(reference).is_some()) {
        return Ok(push(out, reference, filter, leaf, context)?);
    }
    let found = mob.resolve(reference)?;
    context.charge_cell(&found.cell)?;
    match found.shared_value.filter(|value| out.shares(value.len())) {
        Some(value) => out.push_shared(&found.cell, value),
        None => out.push(&found.cell),
    }
    context.count(&found.cell);
    if context.is_size_limited() {
        let heap_bytes = found.source.heap_bytes(&found.cell);
        out.set_heap_bytes(heap_bytes);
        context.count_heap(heap_bytes);
    }
    mob.release();
    Ok(())
}

/// Counts a cell that was added to `out`, and records its heap bytes there if they are counted.
#[inline]
fn count<L: LeafScanner>(
    out: &mut CellBuffer,
    cell: &CellRef<'_>,
    leaf: Option<&L>,
    context: &mut ScannerContext,
    heap_bytes: impl Fn(CellSource, &CellRef<'_>) -> u64,
) {
    context.count(cell);
    if context.is_size_limited() {
        let source = leaf.map(L::source).unwrap_or_default();
        let heap_bytes = heap_bytes(source, cell);
        out.set_heap_bytes(heap_bytes);
        context.count_heap(heap_bytes);
    }
}

fn row_too_big(max: u64, cell: &CellRef<'_>) -> HBaseError {
    let message = format!(
        "Max row size allowed: {max}, but the row is bigger than that, the row info: {}",
        cell.row().escape_ascii()
    );
    HBaseError::new(ErrorKind::RowTooBig, message)
}
