//! Reads: single Gets, sequences of Gets, and scanners.
//!
//! The Gets of one batch, or of one turn of a connection, usually differ only in the row. Making
//! and dropping a scanner (views, leaves, trackers) is the larger part of a cached Get. So a
//! [`RowReader`] keeps its last scanner and reuses it for the next row if a new one would read the
//! same: the Get is of the same kind, the stores have the same segments and files, and the clock
//! shows the same millisecond. Every Get takes a new read point.
//!
//! A caller that has the next rows announces them ([`RowReader::prefetch_rows`]), so that their
//! memory accesses overlap. A new scanner prefetches them again.

mod region_scanner;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use evenkeel_common::{CellBuffer, HBaseError, Result, TryError, TryResult, Wait};
use evenkeel_hfile::PREFETCH_ROWS_MAX;

pub use self::region_scanner::RegionScanner;
use super::{Region, RegionCount};
use crate::memstore::Segment;
use crate::operations::Scan;
use crate::scanner::ScannerContext;
use crate::store::{StoreView, StoreViews};

/// A read point at which every write is visible, including writes that are not durable yet.
const UNCOMMITTED: u64 = u64::MAX - 1;

/// Attempts at a consistent view before the thread blocks on the lock of the updater.
const SPINS_BEFORE_BLOCK: u32 = 16;

impl Region {
    /// Reads one row.
    ///
    /// # Errors
    /// `WrongRegionException`, `NoSuchColumnFamilyException`, `RowTooBigException`, `IOException`
    /// from store files, and `DoNotRetryIOException` or `IllegalArgumentException` if the filter
    /// cannot be applied.
    pub fn get(&self, scan: Scan) -> Result<CellBuffer> {
        let mut row = CellBuffer::new();
        let read = self.row_reader(Wait::Allowed).get(scan, &mut row, &mut ScannerContext::unlimited());
        read.map(|()| row).map_err(TryError::into_failure)
    }

    /// Returns a reader for a sequence of Gets. `wait` allows or forbids it to wait for I/O.
    pub fn row_reader(&self, wait: Wait) -> RowReader<'_> {
        RowReader { region: self, wait, last: None, reads: 0, filtered: 0 }
    }

    /// Starts a scan of the part of its range that lies in this region.
    ///
    /// # Errors
    /// `NoSuchColumnFamilyException`, and `IOException` from store files.
    pub fn scanner(self: &Arc<Self>, scan: Scan) -> Result<RegionScanner> {
        let read_point = self.read_point_of(&scan);
        let scanner = self.open_scanner(scan, read_point).map_err(TryError::into_failure)?;
        Ok(scanner.counted_in(&self.counts))
    }

    /// Returns the MemStore segments that only scanners keep alive, because they were flushed since
    /// this scanner began: an identifier and the bytes of the chunks of each. If the region is not
    /// served (`is_served` is false), returns all segments of the scanner.
    pub fn segments_kept_by(&self, scanner: &RegionScanner, is_served: bool) -> Vec<(usize, u64)> {
        let is_ours = |segment: &Arc<Segment>| self.stores.iter().any(|store| store.has_segment(segment));
        let kept = scanner.segments().filter(|segment| !is_served || !is_ours(segment));
        kept.map(|segment| (Arc::as_ptr(segment).addr(), segment.chunk_bytes())).collect()
    }

    /// Reads the current row for a write. The write holds the row's exclusive lock and has waited
    /// until earlier writes are durable.
    pub(super) fn read_row_now(&self, scan: Scan) -> Result<CellBuffer> {
        self.read_row(scan, Some(UNCOMMITTED))
    }

    /// Reads one row for a write that holds the row's lock, at the current read point unless one is
    /// given. Counts it as a read, as HBase counts what a write reads.
    pub(super) fn read_row(&self, scan: Scan, read_point: Option<u64>) -> Result<CellBuffer> {
        let mut row = CellBuffer::new();
        let mut context = ScannerContext::unlimited().without_yielding();
        let mut scanner = self.open_scanner(scan, read_point).map_err(TryError::into_failure)?;
        let read = scanner.next(&mut row, &mut context);
        self.counts.add(RegionCount::Reads, 1);
        if context.rows_filtered > 0 {
            self.counts.add(RegionCount::FilteredReads, context.rows_filtered);
        }
        read.map(|_| row).map_err(TryError::into_failure)
    }

    fn open_scanner(&self, mut scan: Scan, read_point: Option<u64>) -> TryResult<RegionScanner> {
        self.open_with_views(&mut scan, read_point).map(|open| open.scanner)
    }

    fn open_with_views(&self, scan: &mut Scan, read_point: Option<u64>) -> TryResult<OpenScanner> {
        self.check_reads_enabled()?;
        scan.families.iter().try_for_each(|f| self.check_family(&f.family).map(drop))?;
        if scan.raw && scan.families.iter().any(|family| family.qualifiers.is_some()) {
            return Err(HBaseError::do_not_retry("Cannot specify any column for a raw scan").into());
        }
        let (read_point, views) = self.view(scan, read_point);
        let now_ms = self.env.stores.clock.now_ms();
        let scanner = RegionScanner::new(&views, scan, read_point, self.comparator, now_ms)?;
        Ok(OpenScanner { scanner, views, now_ms })
    }

    fn read_point_of(&self, scan: &Scan) -> Option<u64> {
        if scan.read_uncommitted { Some(UNCOMMITTED) } else { scan.mvcc_read_point }
    }

    /// Reuses the scanner of a Get for another row. Returns false if a new scanner would read other
    /// segments or files, or see another clock time. Do not use the scanner after an error.
    fn read_again(&self, last: &mut LastGet, row: &Bytes) -> TryResult<bool> {
        let LastGet { scan, open, .. } = last;
        if self.env.stores.clock.now_ms() != open.now_ms {
            return Ok(false);
        }
        let read_point = self.revalidate_views(&open.views, self.read_point_of(scan));
        let Some(read_point) = read_point else { return Ok(false) };
        open.scanner.go_to_row(&open.views, scan, row, read_point, open.now_ms).map(|()| true)
    }

    /// Returns a scanner at the row: the last Get's, or a new one.
    fn scanner_at<'a>(
        &self,
        last: &'a mut Option<LastGet>,
        kind: Option<usize>,
        row: &Bytes,
        wait: Wait,
        scan: impl FnOnce() -> Result<Scan>,
    ) -> TryResult<&'a mut RegionScanner> {
        let alike = last.as_mut().filter(|last| kind.is_some() && last.kind == kind);
        let is_there = alike.map_or(Ok(false), |last| self.read_again(last, row));
        if !matches!(is_there, Ok(true)) {
            *last = None;
        }
        is_there?;
        let last = match last {
            Some(last) => last,
            none => {
                let mut scan = scan()?;
                scan.wait = wait;
                let kind = kind.filter(|_| scan.is_plain_get());
                let read_point = self.read_point_of(&scan);
                let open = self.open_with_views(&mut scan, read_point)?;
                none.insert(LastGet { kind, scan, open, prefetched: 0 })
            }
        };
        Ok(&mut last.open.scanner)
    }

    /// Returns a read point for existing views, if [`Region::view`] would return the same views.
    fn revalidate_views(&self, views: &StoreViews, read_point: Option<u64>) -> Option<u64> {
        let epoch = self.epoch.load(Ordering::Acquire);
        let point = read_point.unwrap_or_else(|| self.mvcc.read_point());
        let are_current = epoch.is_multiple_of(2) && views.iter().all(StoreView::is_current);
        (are_current && self.epoch.load(Ordering::Acquire) == epoch).then_some(point)
    }

    /// Returns a read point and the views of the requested stores, which together hold everything
    /// visible at that point.
    fn view(&self, scan: &Scan, read_point: Option<u64>) -> (u64, StoreViews) {
        let mut tries = 0;
        loop {
            let epoch = self.epoch.load(Ordering::Acquire);
            let point = read_point.unwrap_or_else(|| self.mvcc.read_point());
            let wanted = self.stores.iter().filter(|s| scan.columns_of(s.family().name()).is_some());
            let views = wanted.map(|s| s.view()).collect();
            if epoch.is_multiple_of(2) && self.epoch.load(Ordering::Acquire) == epoch {
                return (point, views);
            }
            tries += 1;
            if tries < SPINS_BEFORE_BLOCK {
                std::hint::spin_loop();
            } else {
                // The updater may have been preempted by this thread, so block instead of spinning.
                drop(self.swapping.lock());
            }
        }
    }
}

/// A scanner and the views it reads.
struct OpenScanner {
    scanner: RegionScanner,
    views: StoreViews,
    now_ms: i64,
}

/// Reads rows of a region in sequence. See the module.
pub struct RowReader<'a> {
    region: &'a Region,
    wait: Wait,
    last: Option<LastGet>,
    /// Rows read so far.
    reads: u64,
    /// The rows among them that a filter dropped.
    filtered: u64,
}

/// A Get and the scanner that read its row.
struct LastGet {
    /// The Get's kind; `None` if its scanner cannot be reused.
    kind: Option<usize>,
    /// The scan of the first row that the scanner read.
    scan: Scan,
    open: OpenScanner,
    /// The number of next rows that are already prefetched.
    prefetched: usize,
}

impl RowReader<'_> {
    /// Discards the reads that are not counted yet, because they will be repeated.
    pub fn discard_uncounted(&mut self) {
        (self.reads, self.filtered) = (0, 0);
    }

    /// As [`Region::get`], but appends to `out`, which may share values with blocks. `context`
    /// reports how much was read.
    ///
    /// # Errors
    /// As [`Region::get`]; `WouldWait` if waiting is forbidden, and `TimeSliceOver`. After an error
    /// `out` may hold a part of the row. Failed reads are counted.
    pub fn get(&mut self, scan: Scan, out: &mut CellBuffer, context: &mut ScannerContext) -> TryResult<()> {
        let row = scan.start_row.clone();
        self.read(None, &row, || Ok(scan), out, context)
    }

    /// As [`RowReader::get`], for a Get of a kind: the Gets of one kind differ only in the row.
    /// Calls `scan` only if it needs a new scanner.
    ///
    /// # Errors
    /// As [`RowReader::get`], and errors of `scan`.
    pub fn get_of_kind(
        &mut self,
        kind: usize,
        row: &Bytes,
        scan: impl FnOnce() -> Result<Scan>,
        out: &mut CellBuffer,
        context: &mut ScannerContext,
    ) -> TryResult<()> {
        self.read(Some(kind), row, scan, out, context)
    }

    /// Prefetches the rows that will be read next, if the last Get was of this kind. Does nothing
    /// if the first of them is already prefetched, or if the table has a row cache.
    pub fn prefetch_rows<'a>(&mut self, kind: usize, rows: impl Iterator<Item = &'a [u8]> + Clone) {
        if self.region.row_cache.is_some() {
            return;
        }
        let Some(last) = self.last.as_mut().filter(|last| last.kind == Some(kind)) else { return };
        last.prefetched = match last.prefetched.checked_sub(1) {
            Some(left) => left,
            None => {
                let rows = rows.take(PREFETCH_ROWS_MAX);
                last.open.scanner.prefetch_rows(rows.clone());
                rows.count().saturating_sub(1)
            }
        };
    }

    fn read(
        &mut self,
        kind: Option<usize>,
        row: &Bytes,
        scan: impl FnOnce() -> Result<Scan>,
        out: &mut CellBuffer,
        context: &mut ScannerContext,
    ) -> TryResult<()> {
        self.region.check_row(row, "Get")?;
        let filtered_before = context.rows_filtered;
        let outcome = self.read_checked(kind, row, scan, out, context);
        match &outcome {
            Ok(()) => {
                self.reads += 1;
                self.filtered += context.rows_filtered.saturating_sub(filtered_before);
            }
            Err(error) => {
                self.reads += u64::from(!error.is_unfinished());
                // After an error, the position of the scanner is undefined.
                self.last = None;
            }
        }
        outcome
    }

    #[inline]
    fn read_checked(
        &mut self,
        kind: Option<usize>,
        row: &Bytes,
        scan: impl FnOnce() -> Result<Scan>,
        out: &mut CellBuffer,
        context: &mut ScannerContext,
    ) -> TryResult<()> {
        let Self { region, last, wait, .. } = self;
        let Some(rows) = &region.row_cache else {
            return region.scanner_at(last, kind, row, *wait, scan)?.next_row(out, context);
        };
        let scan = scan()?;
        let Some(cached) = rows.slot_of(&scan) else {
            return region.scanner_at(last, kind, row, *wait, || Ok(scan))?.next_row(out, context);
        };
        if cached.find(&scan, out) {
            return Ok(());
        }
        let requested = cached.requested(&scan);
        // The cache copies what it keeps, so this copy costs nothing extra.
        let mut read = CellBuffer::new();
        let scanner = region.scanner_at(last, kind, row, *wait, || Ok(scan))?;
        scanner.next_row(&mut read, context)?;
        cached.fill(&read, requested, scanner.read_point(), scanner.saw_markers());
        out.append(read);
        Ok(())
    }
}

impl Drop for RowReader<'_> {
    /// Counts the reads. If a later region of a batch has to wait, the regions before it are
    /// counted twice.
    fn drop(&mut self) {
        if self.reads > 0 {
            self.region.counts.add(RegionCount::Reads, self.reads);
            self.region.counts.add(RegionCount::Gets, self.reads);
        }
        if self.filtered > 0 {
            self.region.counts.add(RegionCount::FilteredReads, self.filtered);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    use evenkeel_common::cpu_slot::{self, CpuSlot};
    use evenkeel_common::{Budget, CallerConnection, CallerState, Charge, ErrorKind, KeyValue};

    use super::*;
    use crate::filter;
    use crate::operations::{Mutation, MutationKind};
    use crate::region::testing::region;
    use crate::scanner::{ReplyCharge, TimeSlice};

    /// Processor time that this thread has used, in the kernel's hundredths of a second.
    fn used() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("linux");
        let after_name = stat.rsplit(") ").next().expect("fields");
        after_name.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
    }

    /// Counts how often the work on this thread offers its slot.
    #[derive(Default)]
    struct CountedSlot {
        yields: Cell<u32>,
    }

    impl CpuSlot for CountedSlot {
        fn yield_if_due(&self) {
            self.yields.set(self.yields.get() + 1);
        }

        fn release(&self) {}

        fn reacquire_now(&self) {}

        fn requeue(&self) {}
    }

    /// A connection that is closed after it was asked for its state this many times.
    #[derive(Debug)]
    struct ClosesAfter(AtomicU32);

    impl CallerConnection for ClosesAfter {
        fn is_closed(&self) -> bool {
            let left = self.0.load(Ordering::Relaxed);
            self.0.store(left.saturating_sub(1), Ordering::Relaxed);
            left == 0
        }
    }

    /// Returns a context for a caller whose connection is closed at the second check.
    fn closing_context() -> ScannerContext {
        let state = CallerState::new(Some(Arc::new(ClosesAfter(AtomicU32::new(1)))), None);
        ScannerContext::within(TimeSlice::while_awaited(state))
    }

    fn failure(error: TryError) -> ErrorKind {
        let TryError::Failed(error) = error else { panic!("it may wait") };
        error.kind()
    }

    #[test]
    fn a_scan_ends_when_its_caller_is_gone() {
        let region = region();
        let rows: Vec<_> = (0..100_u32).map(|row| format!("row{row:03}")).collect();
        for row in &rows {
            let cells = vec![KeyValue::put(row.as_bytes(), b"f", b"q", 5, b"v")];
            region.mutate_wait(Mutation::new(MutationKind::Put, row.clone(), cells)).expect("written");
        }
        let (mut scanner, mut context) = (region.scanner(Scan::default()).expect("open"), closing_context());
        let mut out = CellBuffer::new();
        let error = loop {
            if let Err(error) = scanner.next(&mut out, &mut context) {
                break error;
            }
        };
        assert_eq!((failure(error), out.len()), (ErrorKind::CallerDisconnected, 32));
    }

    #[test]
    fn a_read_of_a_whole_row_ends_when_its_caller_is_gone() {
        let region = region();
        let cell = |n: u32| KeyValue::put(b"r", b"f", &n.to_be_bytes(), 5, b"v");
        let cells: Vec<_> = (0..5000).map(cell).collect();
        region.mutate_wait(Mutation::new(MutationKind::Put, "r", cells)).expect("written");
        // The filter of the second must see whole rows, which no limit of a scan may cut.
        let page = evenkeel_protocol::pb::Filter {
            name: "org.apache.hadoop.hbase.filter.PageFilter".to_owned(),
            serialized_filter: Some(Bytes::from_static(&[8, 9])),
        };
        for filter in [None, Some(filter::from_proto(&page).expect("legal"))] {
            let scan = Scan { filter, ..Scan::get("r") };
            let (mut out, mut context) = (CellBuffer::new(), closing_context());
            let read = region.row_reader(Wait::Allowed).get(scan, &mut out, &mut context);
            assert_eq!(failure(read.expect_err("abandoned")), ErrorKind::CallerDisconnected);
        }
    }

    #[test]
    fn a_read_under_a_row_lock_does_not_yield() {
        let region = region();
        let cell = |value: &[u8]| vec![KeyValue::put(b"r", b"f", b"q", 5, value)];
        region.mutate_wait(Mutation::new(MutationKind::Put, "r", cell(&[0; 8]))).expect("written");
        let slot = Rc::new(CountedSlot::default());
        cpu_slot::install(Rc::clone(&slot) as Rc<dyn CpuSlot>);
        let add = Mutation::new(MutationKind::Increment, "r", cell(&1_i64.to_be_bytes()));
        region.mutate_wait(add).expect("incremented");
        assert_eq!(slot.yields.get(), 0);
        region.get(Scan::get("r")).expect("read");
        assert!(slot.yields.get() > 0, "a Get does");
    }

    #[test]
    fn a_row_read_fails_when_its_room_is_spent() {
        let region = region();
        let cell = |n: u32| KeyValue::put(b"r", b"f", format!("q{n:02}").as_bytes(), 5, &[7; 40]);
        let cells: Vec<_> = (0..20).map(cell).collect();
        let cell_bytes = cells[0].as_cell().key_value_len() as u64;
        region.mutate_wait(Mutation::new(MutationKind::Put, "r", cells)).expect("written");
        let mut reader = region.row_reader(Wait::Never);
        let mut read = |room: u64| {
            let budget = Budget::new(room);
            let (mut out, mut context) = (CellBuffer::new(), ScannerContext::unlimited());
            context.set_charge(ReplyCharge::new(Charge::none(Arc::clone(&budget)), cell_bytes));
            let row = Bytes::from_static(b"r");
            let read = reader.get_of_kind(0, &row, || Ok(Scan::get("r")), &mut out, &mut context);
            let used = budget.used();
            (read, out.len() as u64, used)
        };
        let (whole, cells, used) = read(1 << 20);
        whole.expect("read");
        assert_eq!((cells, used), (20, 20 * cell_bytes));
        for room in [cell_bytes - 1, 5 * cell_bytes] {
            let (refused, cells, used) = read(room);
            let TryError::Failed(refused) = refused.expect_err("no room") else { panic!("it may wait") };
            assert_eq!(refused.kind(), ErrorKind::CallQueueTooBig);
            assert!(cells * cell_bytes <= room + cell_bytes && used <= room, "{cells} cells, {used} bytes");
        }
        read(20 * cell_bytes).0.expect("the reader begins again");
    }

    #[test]
    fn a_reader_does_not_spin_during_a_slow_change() {
        let region = region();
        let (changing, is_changing) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                region.with_new_epoch(|| {
                    changing.send(()).expect("heard");
                    std::thread::sleep(Duration::from_millis(400));
                });
            });
            is_changing.recv().expect("told");
            let before = used();
            assert!(region.get(Scan::get("r")).expect("read").is_empty());
            assert!(region.epoch.load(Ordering::Relaxed).is_multiple_of(2));
            assert!(used() - before < 10, "{} hundredths of a second", used() - before);
        });
    }
}
