//! [`ScannerContext`]: how far one call of a scanner may go, and how far it went.

use std::time::{Duration, Instant};

use evenkeel_common::{CellRef, turns};

/// Cells looked at between two looks at the clock within a row, or between two pauses: less than a millisecond, mostly.
const CELLS_PER_TIME_CHECK: u32 = 1000;
/// A cell that is added, or a block that is entered, of more bytes than this counts as several cells looked at.
const BYTES_PER_CELL: u64 = 512;
/// Rows looked at between two looks at the clock.
const ROWS_PER_TIME_CHECK: u64 = 32;

/// Where a limit may end a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitScope {
    /// Only when a row is complete.
    #[default]
    BetweenRows,
    /// Also within a row.
    BetweenCells,
}

/// Why a call of `RegionScanner::next` came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextState {
    /// A row is complete, and there may be more rows. May have added no cell when a filter ended the row.
    MoreRows,
    /// The scan is complete; what was added is its last row.
    NoMoreRows,
    /// As many cells as a result may have; the row has more.
    BatchLimit,
    /// Enough bytes; the row has more.
    SizeLimitMidRow,
    /// Enough bytes; the row (if any cell was added) is complete.
    SizeLimitRowEnd,
    /// Out of time; the row has more.
    TimeLimitMidRow,
    /// Out of time; the row (if any cell was added) is complete.
    TimeLimitRowEnd,
}

impl NextState {
    /// Whether there may be more to read.
    pub fn has_more(self) -> bool {
        self != Self::NoMoreRows
    }

    /// Whether the row goes on in the next call.
    pub fn is_mid_row(self) -> bool {
        matches!(self, Self::BatchLimit | Self::SizeLimitMidRow | Self::TimeLimitMidRow)
    }

    /// Whether a limit of the call as a whole was reached.
    pub fn is_limit(self) -> bool {
        !matches!(self, Self::MoreRows | Self::NoMoreRows | Self::BatchLimit)
    }
}

/// Limits of a call and progress towards them. One context serves all `next` calls of one RPC: bytes and time add up,
/// the cells of a result start anew with each.
#[derive(Clone, Debug)]
pub struct ScannerContext {
    /// Cells of a result at most; 0 for no limit.
    pub batch: usize,
    /// Bytes of cells at most.
    pub size_limit: u64,
    /// Where the size limit may end a call.
    pub size_scope: LimitScope,
    /// Bytes of blocks at most.
    pub block_size_limit: u64,
    /// When the call must come back, at the latest.
    pub deadline: Option<Instant>,
    /// Where the deadline may end a call.
    pub time_scope: LimitScope,
    /// Whether a call comes back at each look at the clock within a row, whatever it has added.
    pub pauses: bool,
    /// How long the calls may compute, beginning with the first look at the clock. Then they give up, wherever they are: what
    /// they have added is of no use, and neither is the scanner. `None` for no limit.
    pub slice: Option<Duration>,
    /// Bytes of cells added so far, as KeyValues.
    pub size: u64,
    /// Bytes of blocks read so far.
    pub block_size: u64,
    /// Rows looked at so far.
    pub rows_scanned: u64,
    /// Rows that a filter left out so far, and rows with no visible cell.
    pub rows_filtered: u64,
    pub(crate) cells: usize,
    cells_until_time_check: u32,
    out_of_time: bool,
    slice_end: Option<Instant>,
    gave_up: bool,
}

impl Default for ScannerContext {
    fn default() -> Self {
        Self::unlimited()
    }
}

impl ScannerContext {
    /// No limits at all.
    pub fn unlimited() -> Self {
        Self {
            batch: 0,
            size_limit: u64::MAX,
            size_scope: LimitScope::BetweenRows,
            block_size_limit: u64::MAX,
            deadline: None,
            time_scope: LimitScope::BetweenRows,
            pauses: false,
            slice: None,
            size: 0,
            block_size: 0,
            rows_scanned: 0,
            rows_filtered: 0,
            cells: 0,
            cells_until_time_check: CELLS_PER_TIME_CHECK,
            out_of_time: false,
            slice_end: None,
            gave_up: false,
        }
    }

    /// For work that must not take long where it is: it gives up after `slice` or a little more, see
    /// [`ScannerContext::slice`]. One context serves all Gets that are read one after the other in the slice.
    pub fn of_slice(slice: Option<Duration>) -> Self {
        Self { slice, ..Self::unlimited() }
    }

    /// Whether the slice was used up, and a call gave up.
    pub fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// At most `cells` cells a result; 0 for no limit.
    pub fn with_batch(mut self, cells: usize) -> Self {
        self.batch = cells;
        self
    }

    /// At most about `bytes` bytes of cells.
    pub fn with_size_limit(mut self, scope: LimitScope, bytes: u64) -> Self {
        (self.size_scope, self.size_limit) = (scope, bytes);
        self
    }

    /// No longer than until `deadline`.
    pub fn with_deadline(mut self, scope: LimitScope, deadline: Instant) -> Self {
        (self.time_scope, self.deadline) = (scope, Some(deadline));
        self
    }

    /// Comes back also within a row of which nothing was added for long, so that its reader can be told to end. Of use to
    /// who reads a store alone: it says no more than that the row goes on.
    pub fn with_pauses(mut self) -> Self {
        self.pauses = true;
        self
    }

    /// A result begins: its cells count from nothing.
    pub(crate) fn start_result(&mut self) {
        self.cells = 0;
    }

    pub(crate) fn count(&mut self, cell: &CellRef<'_>) {
        self.cells += 1;
        let bytes = cell.key_value_len() as u64;
        self.size += bytes;
        if bytes >= BYTES_PER_CELL {
            self.hasten_time_check(bytes);
        }
    }

    /// Bytes of a block that the scan has just come to.
    #[inline]
    pub(crate) fn count_block(&mut self, bytes: u64) {
        self.block_size += bytes;
        if bytes >= BYTES_PER_CELL {
            self.hasten_time_check(bytes);
        }
    }

    /// The next look at the clock comes sooner: bytes take time as cells do.
    fn hasten_time_check(&mut self, bytes: u64) {
        let cells = u32::try_from(bytes / BYTES_PER_CELL).unwrap_or(u32::MAX);
        self.cells_until_time_check = self.cells_until_time_check.saturating_sub(cells).max(1);
    }

    /// Whether the result has as many cells as it may.
    pub(crate) fn batch_reached(&self) -> bool {
        self.batch > 0 && self.cells >= self.batch
    }

    /// Whether the size limit is reached and may end the call at a place of this kind.
    pub fn size_reached(&self, at: LimitScope) -> bool {
        self.size_scope >= at && (self.size >= self.size_limit || self.block_size >= self.block_size_limit)
    }

    /// Whether time is up and may end the call at a place of this kind. Looks at the clock.
    pub fn time_reached(&mut self, at: LimitScope) -> bool {
        if self.slice_is_over() {
            return true;
        }
        if self.time_scope < at {
            return false;
        }
        self.out_of_time |= self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        self.out_of_time
    }

    /// Whether the slice is used up. The first look begins it.
    fn slice_is_over(&mut self) -> bool {
        let Some(slice) = self.slice else { return false };
        let now = Instant::now();
        self.gave_up |= now >= *self.slice_end.get_or_insert(now + slice);
        self.gave_up
    }

    /// As [`ScannerContext::time_reached`] between rows; looks at the clock before the first, and once in many. Others
    /// may have a turn then, whose time counts too.
    #[inline]
    pub(crate) fn time_reached_at_row(&mut self) -> bool {
        let looks = self.rows_scanned.is_multiple_of(ROWS_PER_TIME_CHECK);
        if looks { self.pass(LimitScope::BetweenRows) } else { self.out_of_time || self.gave_up }
    }

    #[inline(never)]
    fn pass(&mut self, at: LimitScope) -> bool {
        turns::pass();
        self.time_reached(at)
    }

    /// As [`ScannerContext::time_reached`], but does not look at the clock again.
    pub(crate) fn time_was_reached(&self, at: LimitScope) -> bool {
        self.gave_up || (self.time_scope >= at && self.out_of_time)
    }

    /// As [`ScannerContext::time_reached`] within a row, or whether the call is to pause there; looks at the clock once in
    /// many calls.
    pub(crate) fn time_reached_at_cell(&mut self) -> bool {
        self.cells_until_time_check -= 1;
        if self.cells_until_time_check > 0 {
            return false;
        }
        self.cells_until_time_check = CELLS_PER_TIME_CHECK;
        self.pass(LimitScope::BetweenCells) || self.pauses
    }
}
