//! [`RegionScanner`]: the rows of a Get or Scan, from all stores of a region.
//!
//! For each row, in this order: the filter sees the row's key; the stores that the filter needs add
//! their cells; the filter sees the whole row, if it requires that; stores that were deferred
//! (`load_families_on_demand`) add their cells; the filter is reset. A limit may end a call within
//! a row, unless the filter needs whole rows. The next call resumes there, without a reset and
//! without showing the row's key again.
//!
//! A Get's row is read in one call ([`RegionScanner::next_row`]).

use std::cmp::Ordering;
use std::sync::Arc;

use evenkeel_common::{CellBuffer, CellComparator, HBaseError, KeyBuf, TryResult};
use smallvec::SmallVec;

use crate::filter::MobReferencesOnly;
use crate::memstore::Segment;
use crate::operations::Scan;
use crate::region::{RegionCount, RegionCounters};
use crate::scanner::heap::KeyValueHeap;
use crate::scanner::matcher::FilterSlot;
use crate::scanner::{LimitScope, NextState, ScannerContext, StoreScanner};
use crate::store::{StoreLeaf, StoreView, StoreViews};

/// Reads rows for one Get or Scan. It sees the region's state at its read point, regardless of
/// later changes.
pub struct RegionScanner {
    stores: KeyValueHeap<StoreScanner<StoreLeaf>>,
    /// Stores that are read only for rows that the filter accepted.
    joined: KeyValueHeap<StoreScanner<StoreLeaf>>,
    filter: FilterSlot,
    comparator: CellComparator,
    /// True if the filter must see whole rows.
    whole_rows: bool,
    read_point: u64,
    stop: StopRow,
    /// True if the current cell is known to be before the stop row.
    before_stop: bool,
    batch: usize,
    /// The current row, or the last one.
    row: Vec<u8>,
    position: RowPosition,
    /// The counters of a scan's reads; `None` for a Get, whose reads the `RowReader` counts.
    reads: Option<PendingReadCounts>,
}

/// Stop rows up to this length in bytes are stored inline, without an allocation.
const ROW_BYTES_IN_PLACE: usize = 64;

/// Where a scan ends.
struct StopRow {
    /// Empty for the end of the table, or for its beginning if reversed.
    row: SmallVec<[u8; ROW_BYTES_IN_PLACE]>,
    include_row: bool,
    reversed: bool,
    comparator: CellComparator,
}

impl StopRow {
    fn is_before(&self, row: &[u8]) -> bool {
        if self.row.is_empty() {
            return false;
        }
        let order = self.comparator.compare_rows(row, &self.row);
        match if self.reversed { order.reverse() } else { order } {
            Ordering::Less => false,
            Ordering::Equal => !self.include_row,
            Ordering::Greater => true,
        }
    }
}

/// Where in a row the last call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowPosition {
    RowStart,
    /// In the stores that the filter needs.
    InStores,
    /// In the deferred stores: the filter accepted the row.
    InJoined,
}

/// The maximum number of results that a scanner accumulates before it adds them to the region's
/// counts.
const RESULTS_UNCOUNTED_MAX: u64 = 4096;

/// Reads of a scanner that are not in the region's counts yet. Adding them one at a time would cost
/// as much as a part of a row.
struct PendingReadCounts {
    counts: Arc<RegionCounters>,
    results: u64,
    rows_filtered: u64,
    /// What was added since the last [`RegionScanner::count_reads`]: results and filtered rows.
    counted: (u64, u64),
}

impl PendingReadCounts {
    /// Adds a result, and the number of rows that a filter dropped before it.
    #[inline]
    fn add(&mut self, rows_filtered: u64) {
        self.results += 1;
        self.rows_filtered += rows_filtered;
        if self.results >= RESULTS_UNCOUNTED_MAX {
            self.count();
        }
    }

    fn count(&mut self) {
        self.counted.0 += self.results;
        self.counted.1 += self.rows_filtered;
        let counts =
            [(RegionCount::Reads, &mut self.results), (RegionCount::FilteredReads, &mut self.rows_filtered)];
        for (count, uncounted) in counts {
            if *uncounted > 0 {
                self.counts.add(count, std::mem::take(uncounted));
            }
        }
    }
}

impl Drop for PendingReadCounts {
    fn drop(&mut self) {
        self.count();
    }
}

/// The outcome of reading a row.
enum RowOutcome {
    /// Its cells are in the buffer.
    Read,
    Filtered,
    /// A limit ended the call within it.
    LimitReached(NextState),
}

impl RegionScanner {
    /// Creates a scanner over views of stores, sorted by family. Requested families that the region
    /// does not have contribute nothing. Takes the scan's filter.
    ///
    /// # Errors
    /// `IOException` from store files; `DoNotRetryIOException` for a reversed scan that loads
    /// families on demand.
    pub fn new(
        stores: &StoreViews,
        scan: &mut Scan,
        read_point: u64,
        comparator: CellComparator,
        now_ms: i64,
    ) -> TryResult<Self> {
        if scan.mob.references_only {
            keep_references_only(stores, scan);
        }
        if let Some(filter) = &mut scan.filter {
            filter.set_reversed(scan.reversed);
        }
        let (mut needed, mut joined) = (Vec::with_capacity(stores.len()), Vec::new());
        for view in stores {
            let family = view.store().family().name();
            let Some(columns) = scan.columns_of(family) else { continue };
            let scanner = view.scanner(scan, columns, read_point, now_ms)?;
            let essential = scan.filter.as_ref().is_none_or(|filter| filter.is_family_essential(family));
            if essential || !scan.load_families_on_demand {
                needed.push(scanner);
            } else {
                joined.push(scanner);
            }
        }
        if scan.reversed && !joined.is_empty() {
            let message = "Reverse scan with loading CFs on demand is not supported";
            return Err(HBaseError::do_not_retry(message).into());
        }
        Ok(Self {
            stores: KeyValueHeap::new(needed, comparator, scan.reversed),
            joined: KeyValueHeap::new(joined, comparator, scan.reversed),
            whole_rows: scan.filter.as_ref().is_some_and(|filter| filter.has_filter_row()),
            filter: scan.filter.take(),
            comparator,
            read_point,
            before_stop: false,
            stop: StopRow {
                row: SmallVec::from_slice(&scan.stop_row),
                include_row: scan.include_stop_row,
                reversed: scan.reversed,
                comparator,
            },
            batch: usize::try_from(scan.batch).unwrap_or(0),
            row: Vec::new(),
            position: RowPosition::RowStart,
            reads: None,
        })
    }

    /// Adds what is read from here on to `counts`.
    pub(in crate::region) fn counted_in(mut self, counts: &Arc<RegionCounters>) -> Self {
        self.reads = Some(PendingReadCounts {
            counts: Arc::clone(counts),
            results: 0,
            rows_filtered: 0,
            counted: (0, 0),
        });
        self
    }

    /// Reads another row. `scan` is the plain Get ([`Scan::is_plain_get`]) for which the scanner
    /// was made, over the same views and at the same clock time. Do not use the scanner after an
    /// error.
    ///
    /// # Errors
    /// `IOException` from store files.
    pub fn go_to_row(
        &mut self,
        views: &StoreViews,
        scan: &Scan,
        row: &[u8],
        read_point: u64,
        now_ms: i64,
    ) -> TryResult<()> {
        let asked = |view: &&StoreView| scan.columns_of(view.store().family().name()).is_some();
        self.stores.reposition_runs(|stores| {
            views.iter().filter(asked).zip(stores).try_for_each(|(view, store)| {
                let columns = scan.columns_of(view.store().family().name()).flatten();
                view.go_to_row(store, scan, row, columns, read_point, now_ms)
            })
        })?;
        self.stop.row.clear();
        self.stop.row.extend_from_slice(row);
        (self.read_point, self.position, self.before_stop) = (read_point, RowPosition::RowStart, false);
        Ok(())
    }

    /// Prefetches rows that a plain Get's scanner will read soon. The scanner's position does not
    /// change.
    pub fn prefetch_rows<'a>(&mut self, rows: impl Iterator<Item = &'a [u8]> + Clone) {
        self.stores.runs_mut().iter_mut().for_each(|store| store.prefetch_rows(rows.clone()));
    }

    /// The highest sequence id that the scanner sees.
    pub fn read_point(&self) -> u64 {
        self.read_point
    }

    /// Returns the bytes of the scanner and of the blocks it pins, without the filter.
    pub fn held_bytes(&self) -> u64 {
        let stores = self.stores.runs().iter().chain(self.joined.runs());
        let own = size_of::<Self>() + self.row.capacity() + self.stop.row.len();
        stores.map(StoreScanner::held_bytes).sum::<u64>() + own as u64
    }

    /// Releases the scanner's blocks that are outside of the caches. The scanner loads them again
    /// when it continues.
    pub fn release_blocks(&mut self) {
        let stores = self.stores.runs_mut().iter_mut().chain(self.joined.runs_mut());
        stores.for_each(StoreScanner::release_blocks);
    }

    /// The MemStore segments that it reads.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.stores.runs().iter().chain(self.joined.runs()).flat_map(StoreScanner::segments)
    }

    /// Returns true if it has read any delete marker.
    pub fn saw_markers(&self) -> bool {
        self.stores.runs().iter().chain(self.joined.runs()).any(StoreScanner::saw_markers)
    }

    /// Returns true if the filter ends the scan.
    pub fn is_filter_done(&self) -> bool {
        self.filter.as_ref().is_some_and(|filter| filter.filter_all_remaining())
    }

    /// Adds the uncounted reads to the region's counts. This also happens when the scanner is
    /// dropped and after every [`RESULTS_UNCOUNTED_MAX`] results. Returns the results and the
    /// filtered rows since the last call.
    pub fn count_reads(&mut self) -> (u64, u64) {
        let Some(reads) = &mut self.reads else { return (0, 0) };
        reads.count();
        std::mem::take(&mut reads.counted)
    }

    /// The row at the scanner's position: the cursor of a scan without results so far.
    pub fn peeked_row(&self) -> Option<&[u8]> {
        self.stores.peek().map(|cell| cell.row())
    }

    /// Appends the next result (a row or a part of one) to `out`. A scan's batch is a limit, too.
    ///
    /// # Errors
    /// `IOException` from store files, errors of the filter, and `DoNotRetryIOException` if a batch
    /// would cut a row that the filter needs whole. `CallQueueTooBigException` if the charge of
    /// `context` exceeds the budget of replies. `WouldWait` if [`Scan::wait`] forbids waiting, and
    /// [`TimeSlice::error`](crate::scanner::TimeSlice::error) if the time slice of `context` is
    /// used up; the caller must then discard the results and the scanner.
    pub fn next(&mut self, out: &mut CellBuffer, context: &mut ScannerContext) -> TryResult<NextState> {
        if self.batch > 0 {
            context.batch = self.batch;
        }
        if self.whole_rows {
            (context.size_scope, context.time_scope) = (LimitScope::BetweenRows, LimitScope::BetweenRows);
        }
        let filtered_before = context.rows_filtered;
        let state = self.next_result(out, out.len(), context)?;
        if context.slice.is_over() {
            return Err(context.slice.error());
        }
        if let Some(reads) = &mut self.reads {
            reads.add(context.rows_filtered.saturating_sub(filtered_before));
        }
        if !state.is_mid_row() {
            self.reset_filter();
        }
        Ok(if self.is_filter_done() { NextState::NoMoreRows } else { state })
    }

    /// Appends the whole row of a Get to `out`. The only limits of `context` are its time slice and
    /// the budget of the reply.
    ///
    /// # Errors
    /// As [`RegionScanner::next`].
    pub fn next_row(&mut self, out: &mut CellBuffer, context: &mut ScannerContext) -> TryResult<()> {
        context.start_row(&mut self.filter);
        self.next(out, context).map(drop)
    }

    /// Reads to the end of a result whose cells start at `from`, or until a limit ends it.
    fn next_result(
        &mut self,
        out: &mut CellBuffer,
        from: usize,
        context: &mut ScannerContext,
    ) -> TryResult<NextState> {
        let heap_before = context.heap_size;
        loop {
            (context.cells, context.heap_size) = (0, heap_before);
            let reads_memstore = || self.stores.current().is_some_and(StoreScanner::reads_memstore);
            if context.time_reached_at_row(&mut self.filter, reads_memstore) {
                return Ok(self.cut_by_time());
            }
            if self.position == RowPosition::RowStart && !self.enter_row(out)? {
                return Ok(NextState::NoMoreRows);
            }
            match self.read_row(out, from, heap_before, context)? {
                RowOutcome::LimitReached(state) => return Ok(state),
                RowOutcome::Read => return Ok(self.state_after_row(context)),
                RowOutcome::Filtered => context.rows_filtered += 1,
            }
            self.reset_filter();
            // As in HBase, the limit counts between cells here, unless the filter needs whole rows.
            let scope = if self.whole_rows { LimitScope::BetweenRows } else { LimitScope::BetweenCells };
            if context.size_reached(scope) {
                return Ok(NextState::SizeLimitRowEnd);
            }
        }
    }

    fn cut_by_time(&self) -> NextState {
        if self.position == RowPosition::RowStart {
            NextState::TimeLimitRowEnd
        } else {
            NextState::TimeLimitMidRow
        }
    }

    /// Moves to the next row. Returns false if there is none.
    fn enter_row(&mut self, out: &mut CellBuffer) -> TryResult<bool> {
        let known = std::mem::take(&mut self.before_stop);
        if let Some(cell) = self.stores.peek()
            && (known || !self.stop.is_before(cell.row()))
        {
            self.row.clear();
            self.row.extend_from_slice(cell.row());
            return Ok(true);
        }
        if self.whole_rows
            && let Some(filter) = &mut self.filter
        {
            filter.filter_row_cells(out, out.len())?;
        }
        Ok(false)
    }

    /// Reads the current row, from its start or from where the last call ended. The result's cells
    /// start at `from`.
    fn read_row(
        &mut self,
        out: &mut CellBuffer,
        from: usize,
        heap_before: u64,
        context: &mut ScannerContext,
    ) -> TryResult<RowOutcome> {
        context.discards = self.position == RowPosition::RowStart && self.is_row_key_filtered()?;
        if context.discards {
            if self.is_filter_done() {
                context.rows_filtered += 1;
                return Ok(RowOutcome::LimitReached(NextState::NoMoreRows));
            }
            if self.stop.reversed {
                context.rows_scanned += 1;
                self.skip_row()?;
                return Ok(RowOutcome::Filtered);
            }
            // As in HBase, the filter of a forward scan sees the cells of a row whose key it
            // rejected, and its hints may lead past further rows.
        }
        if self.position != RowPosition::InJoined {
            let had_cells = self.position == RowPosition::InStores;
            self.position = RowPosition::InStores;
            let limit = loop {
                let limit = populate(&mut self.stores, &mut self.filter, &self.row, out, context)?;
                if limit.is_none() || !context.discards || context.slice.is_over() {
                    break limit;
                }
            };
            if let Some(state) = limit {
                return self.cut(state, context);
            }
            self.position = RowPosition::RowStart;
            if context.discards {
                return Ok(RowOutcome::Filtered);
            }
            // As in HBase, a limit that is reached exactly at the end of a row ends the result
            // before the filter sees the row, and asks for another call after the last row.
            if self.joined.has_no_runs() && context.size_reached(LimitScope::BetweenCells) {
                return Ok(RowOutcome::LimitReached(NextState::SizeLimitRowEnd));
            }
            if self.joined.has_no_runs() && context.batch_reached() {
                return Ok(RowOutcome::LimitReached(NextState::MoreRows));
            }
            let is_empty = out.len() == from && !had_cells;
            if is_empty || self.is_row_filtered(out, from, heap_before, context)? {
                return Ok(RowOutcome::Filtered);
            }
        }
        if self.seek_joined()? {
            self.position = RowPosition::InJoined;
            let limit = populate(&mut self.joined, &mut self.filter, &self.row, out, context)?;
            sort_from(out, from, self.comparator);
            if let Some(state) = limit {
                return self.cut(state, context);
            }
        }
        let was_joined =
            std::mem::replace(&mut self.position, RowPosition::RowStart) == RowPosition::InJoined;
        Ok(if out.len() == from && !was_joined { RowOutcome::Filtered } else { RowOutcome::Read })
    }

    fn cut(&self, state: NextState, context: &ScannerContext) -> TryResult<RowOutcome> {
        // At the end of the time slice, the whole result is discarded.
        if self.whole_rows && !context.slice.is_over() {
            return Err(HBaseError::do_not_retry(
                "Filter whose hasFilterRow() returns true is incompatible with scans that must stop mid-row because of a limit",
            )
            .into());
        }
        Ok(RowOutcome::LimitReached(state))
    }

    fn is_row_key_filtered(&mut self) -> TryResult<bool> {
        match (&mut self.filter, self.stores.peek()) {
            (Some(filter), Some(cell)) => Ok(filter.filter_all_remaining() || filter.filter_row_key(cell)?),
            _ => Ok(false),
        }
    }

    /// Shows the filter the row's cells, which start at `from`. Returns true if the filter rejects
    /// the row.
    fn is_row_filtered(
        &mut self,
        out: &mut CellBuffer,
        from: usize,
        heap_before: u64,
        context: &mut ScannerContext,
    ) -> TryResult<bool> {
        let Some(filter) = &mut self.filter else { return Ok(false) };
        if self.whole_rows {
            let (cells, bytes) = (out.len(), bytes_from(out, from));
            filter.filter_row_cells(out, from)?;
            let removed = bytes.saturating_sub(bytes_from(out, from));
            context.size = context.size.saturating_sub(removed);
            if removed > 0 || out.len() != cells {
                context.recount(out, from, heap_before);
            }
            if out.len() == from {
                return Ok(false);
            }
        }
        let refused = filter.filter_row()?;
        if refused {
            context.size = context.size.saturating_sub(bytes_from(out, from));
            out.truncate(from);
            // As in HBase, the heap bytes of a row that such a filter dropped do not count.
            if self.whole_rows {
                (context.cells, context.heap_size) = (0, heap_before);
            }
        }
        Ok(refused)
    }

    /// Leaves the current row without reading its cells.
    fn skip_row(&mut self) -> TryResult<()> {
        while let Some(store) = self.stores.current_mut() {
            store.skip_row()?;
            let is_last = self.stores.is_last_run();
            self.stores.sift_current();
            if is_last || self.stores.peek().is_none_or(|cell| cell.row() != self.row.as_slice()) {
                break;
            }
        }
        Ok(())
    }

    /// Seeks the deferred stores to the current row. Returns true if they have cells there.
    fn seek_joined(&mut self) -> TryResult<bool> {
        if self.joined.has_no_runs() {
            return Ok(false);
        }
        if self.joined.peek().is_some_and(|cell| cell.row() != self.row.as_slice()) {
            let key = KeyBuf::first_on_row(&self.row);
            while self.joined.is_before(&key.as_cell()) {
                if let Some(store) = self.joined.current_mut() {
                    store.seek_to_row(&self.row)?;
                }
                self.joined.sift_current();
            }
        }
        Ok(self.joined.peek().is_some_and(|cell| cell.row() == self.row.as_slice()))
    }

    fn state_after_row(&mut self, context: &ScannerContext) -> NextState {
        self.before_stop = self.stores.peek().is_some_and(|cell| !self.stop.is_before(cell.row()));
        if !self.before_stop {
            NextState::NoMoreRows
        } else if context.size_reached(LimitScope::BetweenRows) {
            NextState::SizeLimitRowEnd
        } else {
            NextState::MoreRows
        }
    }

    fn reset_filter(&mut self) {
        if let Some(filter) = &mut self.filter {
            filter.reset();
        }
    }
}

/// Makes the scan's filter drop cells whose values are not in MOB files.
fn keep_references_only(stores: &StoreViews, scan: &mut Scan) {
    let mut families = stores.iter().map(|view| view.store().family());
    let first = families.find(|family| family.is_mob() && scan.columns_of(family.name()).is_some());
    if let Some(first) = first {
        scan.filter = Some(Box::new(MobReferencesOnly::new(scan.filter.take(), first.name())));
    }
}

/// Appends a row's cells from a heap, until the row is complete (`None`) or a limit cuts it.
#[inline]
fn populate(
    heap: &mut KeyValueHeap<StoreScanner<StoreLeaf>>,
    filter: &mut FilterSlot,
    row: &[u8],
    out: &mut CellBuffer,
    context: &mut ScannerContext,
) -> TryResult<Option<NextState>> {
    while let Some(store) = heap.current_mut() {
        let left = store.next(out, context, filter)?;
        let is_last = left && heap.is_last_run();
        heap.sift_current();
        if is_last || heap.peek().is_none_or(|cell| cell.row() != row) {
            break;
        }
        if context.batch_reached() {
            return Ok(Some(NextState::BatchLimit));
        }
        if context.size_reached(LimitScope::BetweenCells) {
            return Ok(Some(NextState::SizeLimitMidRow));
        }
        if context.time_was_reached(LimitScope::BetweenCells) {
            return Ok(Some(NextState::TimeLimitMidRow));
        }
    }
    context.rows_scanned += 1;
    Ok(None)
}

fn bytes_from(cells: &CellBuffer, from: usize) -> u64 {
    (from..cells.len()).map(|i| cells.get(i).key_value_len() as u64).sum()
}

/// Sorts the cells from `from` on: cells of deferred stores belong between the others.
fn sort_from(cells: &mut CellBuffer, from: usize, comparator: CellComparator) {
    let is_sorted =
        (from + 1..cells.len()).all(|i| comparator.compare(&cells.get(i - 1), &cells.get(i)).is_le());
    if is_sorted {
        return;
    }
    let mut order: Vec<usize> = (from..cells.len()).collect();
    order.sort_by(|a, b| comparator.compare(&cells.get(*a), &cells.get(*b)));
    cells.keep_in_order(from, &order);
}
