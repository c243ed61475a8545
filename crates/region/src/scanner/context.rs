//! [`ScannerContext`]: the limits of one scanner call, and the progress towards them.

use std::time::Instant;

use evenkeel_common::clock;
use evenkeel_common::{CellBuffer, CellRef, Result, cpu_slot};

use super::matcher::FilterSlot;
use super::profile::ScanProfile;
use super::reply_charge::ReplyCharge;
use super::time_slice::TimeSlice;

/// Cells between two clock checks within a row, or between two pauses: mostly less than a
/// millisecond of work.
const CELLS_PER_TIME_CHECK: u32 = 1000;
/// A cell or a block of more bytes than this counts as several cells.
const BYTES_PER_CELL: u64 = 512;
/// Rows between two clock checks.
const ROWS_PER_TIME_CHECK: u64 = 32;

/// Where a limit may end a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitScope {
    /// Only at the end of a row.
    #[default]
    BetweenRows,
    /// Also within a row.
    BetweenCells,
}

/// Why a call of `RegionScanner::next` returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextState {
    /// A row is complete, and there may be more rows. No cell was added if a filter ended the row.
    MoreRows,
    /// The scan is complete; its last row was added.
    NoMoreRows,
    /// The result has as many cells as allowed; the row has more.
    BatchLimit,
    /// The size limit is reached; the row has more.
    SizeLimitMidRow,
    /// The size limit is reached; the row (if any cell was added) is complete.
    SizeLimitRowEnd,
    /// The deadline has passed; the row has more.
    TimeLimitMidRow,
    /// The deadline has passed; the row (if any cell was added) is complete.
    TimeLimitRowEnd,
}

impl NextState {
    /// Returns true if there may be more to read.
    pub fn has_more(self) -> bool {
        self != Self::NoMoreRows
    }

    /// Returns true if the next call continues the row.
    pub fn is_mid_row(self) -> bool {
        matches!(self, Self::BatchLimit | Self::SizeLimitMidRow | Self::TimeLimitMidRow)
    }

    /// Returns true if a limit of the whole call was reached.
    pub fn is_limit(self) -> bool {
        !matches!(self, Self::MoreRows | Self::NoMoreRows | Self::BatchLimit)
    }
}

/// Limits of a call and progress towards them. One context serves all `next` calls of one RPC:
/// bytes and time add up, while the cells of a result count from zero in each call.
#[derive(Debug)]
pub struct ScannerContext {
    /// The maximum number of cells of a result; 0 for no limit.
    pub batch: usize,
    /// The maximum heap bytes of cells; see [`CellSource`].
    pub size_limit: u64,
    /// Where the size limit may end a call.
    pub size_scope: LimitScope,
    /// The maximum bytes of blocks.
    pub block_size_limit: u64,
    /// When the call must return at the latest.
    pub deadline: Option<Instant>,
    /// Where the deadline may end a call.
    pub time_scope: LimitScope,
    /// True if a call returns at each clock check within a row, whether it has added cells or not.
    pub pauses: bool,
    /// Whether the call yields its CPU slot to others at clock checks.
    yields: bool,
    /// How long the calls may compute on this thread.
    pub slice: TimeSlice,
    /// Bytes of cells added so far, as KeyValues.
    pub size: u64,
    /// Heap bytes of cells added so far, as HBase counts them; 0 in a call without a size limit.
    /// Those of a row that a filter dropped count until the next row starts, unless the filter saw
    /// the whole row.
    pub heap_size: u64,
    /// True while a row is read whose key the filter rejected: its cells are not results.
    pub(crate) discards: bool,
    /// Bytes of blocks read so far.
    pub block_size: u64,
    /// Rows read to their end so far. A row counts once more for its deferred stores, as in HBase.
    pub rows_scanned: u64,
    /// Rows dropped so far, by a filter or for lack of a visible cell.
    pub rows_filtered: u64,
    /// The charge of the reply that the cells belong to.
    charge: Option<ReplyCharge>,
    /// `size` at the start of the row that is charged; in a scan, at the start of the call.
    charged_from: u64,
    /// The value of `size` above which the reply must be charged again.
    charged_up_to: u64,
    pub(crate) cells: usize,
    cells_until_time_check: u32,
    out_of_time: bool,
    profile: ScanProfile,
}

impl Default for ScannerContext {
    fn default() -> Self {
        Self::unlimited()
    }
}

impl ScannerContext {
    /// A context without limits.
    pub fn unlimited() -> Self {
        Self {
            batch: 0,
            size_limit: u64::MAX,
            size_scope: LimitScope::BetweenRows,
            block_size_limit: u64::MAX,
            deadline: None,
            time_scope: LimitScope::BetweenRows,
            pauses: false,
            yields: true,
            slice: TimeSlice::UNLIMITED,
            size: 0,
            heap_size: 0,
            discards: false,
            block_size: 0,
            rows_scanned: 0,
            rows_filtered: 0,
            charge: None,
            charged_from: 0,
            charged_up_to: u64::MAX,
            cells: 0,
            cells_until_time_check: CELLS_PER_TIME_CHECK,
            out_of_time: false,
            profile: ScanProfile::default(),
        }
    }

    /// A context with a time slice, shared by all rows that are read in it.
    pub fn within(slice: TimeSlice) -> Self {
        Self { slice, ..Self::unlimited() }
    }

    /// Limits a result to `cells` cells; 0 for no limit.
    pub fn with_batch(mut self, cells: usize) -> Self {
        self.batch = cells;
        self
    }

    /// Limits the heap bytes of cells to about `bytes`.
    pub fn with_size_limit(mut self, scope: LimitScope, bytes: u64) -> Self {
        (self.size_scope, self.size_limit) = (scope, bytes);
        self
    }

    /// Limits the time to `deadline`.
    pub fn with_deadline(mut self, scope: LimitScope, deadline: Instant) -> Self {
        (self.time_scope, self.deadline) = (scope, Some(deadline));
        self
    }

    /// Makes calls return at each clock check within a row, even if they have added nothing, so
    /// that the caller can cancel the scan. Only for callers that read a store directly: the return
    /// value states only that the row continues.
    pub fn with_pauses(mut self) -> Self {
        self.pauses = true;
        self
    }

    /// Keeps the CPU slot. For a read under a row lock: if it yielded, writes that wait for the
    /// lock could occupy all threads, and none would be left to take the slot over.
    pub(crate) fn without_yielding(mut self) -> Self {
        self.yields = false;
        self
    }

    /// Charges the cells added from here on, each before it is copied.
    pub fn set_charge(&mut self, charge: ReplyCharge) {
        self.charge = Some(charge);
        self.start_charged_row();
    }

    /// Takes the charge that was set, including what the cells have taken.
    pub fn take_charge(&mut self) -> Option<ReplyCharge> {
        self.charged_up_to = u64::MAX;
        self.charge.take()
    }

    /// Returns the charge that was set.
    pub fn charge_mut(&mut self) -> Option<&mut ReplyCharge> {
        self.charge.as_mut()
    }

    /// Starts a row of a reply: it is charged from its first cell on. If it has a filter, which
    /// only this row has, the filter's calls are timed.
    pub(crate) fn start_row(&mut self, filter: &mut FilterSlot) {
        if filter.is_some() {
            self.profile = ScanProfile::of_row(filter);
        }
        self.start_charged_row();
    }

    fn start_charged_row(&mut self) {
        if let Some(charge) = &self.charge {
            self.charged_from = self.size;
            self.charged_up_to = self.size.saturating_add(charge.row_bytes_uncharged());
        }
    }

    /// Charges a cell that is about to be added.
    ///
    /// # Errors
    /// `CallQueueTooBigException` if the budget of replies has no capacity for it.
    #[inline]
    pub(crate) fn charge_cell(&mut self, cell: &CellRef<'_>) -> Result<()> {
        let size = self.size + cell.key_value_len() as u64;
        if size <= self.charged_up_to { Ok(()) } else { self.charge_to(size) }
    }

    #[cold]
    fn charge_to(&mut self, size: u64) -> Result<()> {
        let Some(charge) = &mut self.charge else { return Ok(()) };
        charge.grow_to(size.saturating_sub(self.charged_from))?;
        self.charged_up_to = self.charged_from.saturating_add(charge.row_bytes_uncharged());
        Ok(())
    }

    /// Starts a result: the count of its cells returns to zero.
    pub(crate) fn start_result(&mut self) {
        self.cells = 0;
    }

    /// Counts a cell that was added.
    #[inline]
    pub(crate) fn count(&mut self, cell: &CellRef<'_>) {
        self.cells += 1;
        let bytes = cell.key_value_len() as u64;
        self.size += bytes;
        if bytes >= BYTES_PER_CELL {
            self.advance_time_check(bytes);
        }
    }

    /// Returns true if the size of the cells is limited. Otherwise, their heap bytes are not
    /// counted.
    #[inline]
    pub(crate) fn is_size_limited(&self) -> bool {
        self.size_limit != u64::MAX
    }

    /// Counts the heap bytes of a cell that was added.
    #[inline]
    pub(crate) fn count_heap(&mut self, heap_bytes: u64) {
        self.heap_size += heap_bytes;
    }

    /// Counts the cells of a result again, which start at `from`, after a filter changed the whole
    /// row. `heap_before` are the heap bytes before the result.
    pub(crate) fn recount(&mut self, out: &CellBuffer, from: usize, heap_before: u64) {
        self.cells = out.len() - from;
        if self.is_size_limited() {
            self.heap_size = heap_before + out.heap_bytes_from(from);
        }
    }

    /// Counts the bytes of a block that the scan has entered.
    #[inline]
    pub(crate) fn count_block(&mut self, bytes: u64) {
        self.block_size += bytes;
        if bytes >= BYTES_PER_CELL {
            self.advance_time_check(bytes);
        }
    }

    /// Moves the next clock check forward, because bytes take time as cells do.
    fn advance_time_check(&mut self, bytes: u64) {
        let cells = u32::try_from(bytes / BYTES_PER_CELL).unwrap_or(u32::MAX);
        self.cells_until_time_check = self.cells_until_time_check.saturating_sub(cells).max(1);
    }

    /// Returns true if the result has as many cells as allowed.
    pub(crate) fn batch_reached(&self) -> bool {
        self.batch > 0 && self.cells >= self.batch
    }

    /// Returns true if the size limit is reached and may end the call at this kind of place.
    pub fn size_reached(&self, at: LimitScope) -> bool {
        self.size_scope >= at
            && (self.heap_size >= self.size_limit || self.block_size >= self.block_size_limit)
    }

    /// Returns true if the deadline has passed and may end the call at this kind of place. Reads
    /// the clock.
    pub fn time_reached(&mut self, at: LimitScope) -> bool {
        if self.slice.check() {
            return true;
        }
        if self.time_scope < at {
            return false;
        }
        self.out_of_time |= self.deadline.is_some_and(|deadline| clock::monotonic() >= deadline);
        self.out_of_time
    }

    /// As [`ScannerContext::time_reached`] between rows. Checks the clock before the first row and
    /// then every [`ROWS_PER_TIME_CHECK`] rows. It also yields its CPU slot to other scans, and
    /// that time counts, too. The check samples the scan, whose filter is `filter`; see
    /// [`ScanProfile::look`].
    #[inline]
    pub(crate) fn time_reached_at_row(
        &mut self,
        filter: &mut FilterSlot,
        reads_memstore: impl FnOnce() -> bool,
    ) -> bool {
        let looks = self.rows_scanned.is_multiple_of(ROWS_PER_TIME_CHECK);
        if looks {
            self.profile.look(filter, reads_memstore);
            self.yield_and_check(LimitScope::BetweenRows)
        } else {
            self.out_of_time || self.slice.is_over()
        }
    }

    #[inline(never)]
    fn yield_and_check(&mut self, at: LimitScope) -> bool {
        if self.yields {
            cpu_slot::yield_if_due();
        }
        self.time_reached(at)
    }

    /// As [`ScannerContext::time_reached`], but without reading the clock.
    pub(crate) fn time_was_reached(&self, at: LimitScope) -> bool {
        self.slice.is_over() || (self.time_scope >= at && self.out_of_time)
    }

    /// As [`ScannerContext::time_reached`] within a row; also true if the call pauses there. Checks
    /// the clock about every [`CELLS_PER_TIME_CHECK`] cells, and samples the scan.
    pub(crate) fn time_reached_at_cell(
        &mut self,
        filter: &mut FilterSlot,
        reads_memstore: impl FnOnce() -> bool,
    ) -> bool {
        self.cells_until_time_check -= 1;
        if self.cells_until_time_check > 0 {
            return false;
        }
        self.cells_until_time_check = CELLS_PER_TIME_CHECK;
        self.profile.look(filter, reads_memstore);
        self.yield_and_check(LimitScope::BetweenCells) || self.pauses
    }
}
