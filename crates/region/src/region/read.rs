//! Reads: a Get, Gets one after the other, and scanners.
//!
//! Gets of one batch, or of one turn of a connection, are mostly alike but for the row. Making and dropping a scanner
//! (views, leaves, trackers) is the larger part of a cached Get, so a [`RowReader`] keeps the last one and has it read the
//! next row, when that gives what a new one would give: the Get is of the last one's kind, the stores have the same
//! segments and files, and the clock shows the same time. The read point is always taken anew.
//!
//! Who knows the rows that come next says so ([`RowReader::prefetch_rows`]), so that what they need of the memory is asked for
//! together; for those of a scanner that is made anew it is asked for again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use evenkeel_common::{CellBuffer, HBaseError, Result, turns};
use evenkeel_hfile::PREFETCH_ROWS_MAX;

use super::{Region, RegionScanner};
use crate::memstore::Segment;
use crate::ops::Scan;
use crate::scanner::ScannerContext;
use crate::store::{StoreView, StoreViews};

/// A read point at which every write is visible, also those that are not durable yet.
const UNCOMMITTED: u64 = u64::MAX - 1;

/// How often a view is tried before the thread waits for those who change what is in it.
const TRIES_BEFORE_WAIT: u32 = 16;

impl Region {
    /// Reads one row.
    ///
    /// # Errors
    /// `WrongRegionException`, `NoSuchColumnFamilyException`, or what reading files or the filter says.
    pub fn get(&self, scan: Scan) -> Result<CellBuffer> {
        let mut row = CellBuffer::new();
        self.row_reader().get(scan, &mut row, &mut ScannerContext::unlimited())?;
        Ok(row)
    }

    /// For Gets one after the other.
    pub fn row_reader(&self) -> RowReader<'_> {
        RowReader { region: self, last: None, reads: 0 }
    }

    /// Starts a scan of the part of its range that lies in this region.
    ///
    /// # Errors
    /// `NoSuchColumnFamilyException`, or what reading files says.
    pub fn scanner(self: &Arc<Self>, scan: Scan) -> Result<RegionScanner> {
        let read_point = self.read_point_of(&scan);
        self.open_scanner(scan, read_point)
    }

    /// The segments of MemStores that only readers such as this one keep: they were flushed since it began. Each by a number
    /// of its own, with the bytes of its chunks. `is_served`: whether the region is; all segments of one that is not are kept
    /// by readers alone.
    pub fn segments_kept_by(&self, scanner: &RegionScanner, is_served: bool) -> Vec<(usize, u64)> {
        let is_ours = |segment: &Arc<Segment>| self.stores.iter().any(|store| store.has_segment(segment));
        let kept = scanner.segments().filter(|segment| !is_served || !is_ours(segment));
        kept.map(|segment| (Arc::as_ptr(segment).addr(), segment.chunk_bytes())).collect()
    }

    /// Reads one row as it is now, for a write that holds the row's lock alone and has waited for those before it to be
    /// durable.
    pub(super) fn read_row_now(&self, scan: Scan) -> Result<CellBuffer> {
        self.read_row(scan, Some(UNCOMMITTED))
    }

    /// Reads one row; without a read point, what is visible now.
    pub(super) fn read_row(&self, scan: Scan, read_point: Option<u64>) -> Result<CellBuffer> {
        let mut row = CellBuffer::new();
        self.open_scanner(scan, read_point)?.next(&mut row, &mut ScannerContext::unlimited())?;
        Ok(row)
    }

    fn open_scanner(&self, mut scan: Scan, read_point: Option<u64>) -> Result<RegionScanner> {
        self.open_with_views(&mut scan, read_point).map(|open| open.scanner)
    }

    fn open_with_views(&self, scan: &mut Scan, read_point: Option<u64>) -> Result<OpenScanner> {
        scan.families.iter().try_for_each(|f| self.check_family(&f.family).map(drop))?;
        if scan.raw && scan.families.iter().any(|family| family.qualifiers.is_some()) {
            return Err(HBaseError::do_not_retry("Cannot specify any column for a raw scan"));
        }
        let (read_point, views) = self.view(scan, read_point);
        let now_ms = self.env.stores.clock.now_ms();
        let scanner = RegionScanner::new(&views, scan, read_point, self.comparator, now_ms)?;
        Ok(OpenScanner { scanner, views, now_ms })
    }

    fn read_point_of(&self, scan: &Scan) -> Option<u64> {
        if scan.read_uncommitted { Some(UNCOMMITTED) } else { scan.mvcc_read_point }
    }

    /// Has the scanner of a Get read another row; `false` when a new scanner would read something else. After an error it is
    /// of no use.
    fn read_again(&self, last: &mut LastGet, row: &Bytes) -> Result<bool> {
        let LastGet { scan, open, .. } = last;
        if self.env.stores.clock.now_ms() != open.now_ms {
            return Ok(false);
        }
        let read_point = self.view_again(&open.views, self.read_point_of(scan));
        let Some(read_point) = read_point else { return Ok(false) };
        open.scanner.go_to_row(&open.views, scan, row, read_point, open.now_ms).map(|()| true)
    }

    /// A scanner at the row: that of the last Get, or a new one.
    fn scanner_at<'a>(
        &self,
        last: &'a mut Option<LastGet>,
        kind: Option<usize>,
        row: &Bytes,
        scan: impl FnOnce() -> Result<Scan>,
    ) -> Result<&'a mut RegionScanner> {
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
                let kind = kind.filter(|_| scan.is_plain_get());
                let read_point = self.read_point_of(&scan);
                let open = self.open_with_views(&mut scan, read_point)?;
                none.insert(LastGet { kind, scan, open, prefetched: 0 })
            }
        };
        Ok(&mut last.open.scanner)
    }

    /// A read point for views that were taken before, if they are what [`Region::view`] would give now.
    fn view_again(&self, views: &StoreViews, read_point: Option<u64>) -> Option<u64> {
        let epoch = self.epoch.load(Ordering::Acquire);
        let point = read_point.unwrap_or_else(|| self.mvcc.read_point());
        let are_current = epoch.is_multiple_of(2) && views.iter().all(StoreView::is_current);
        (are_current && self.epoch.load(Ordering::Acquire) == epoch).then_some(point)
    }

    /// A read point, and the segments and files of every store asked for that together hold all that it sees.
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
            if tries < TRIES_BEFORE_WAIT {
                std::hint::spin_loop();
            } else {
                // Who changes the lists may have lost the processor, to this very thread.
                drop(self.swapping.lock());
            }
        }
    }
}

/// A scanner, and what it reads.
struct OpenScanner {
    scanner: RegionScanner,
    views: StoreViews,
    now_ms: i64,
}

/// Reads rows of a region one after the other. See the module.
pub struct RowReader<'a> {
    region: &'a Region,
    last: Option<LastGet>,
    /// Rows read so far.
    reads: u64,
}

/// A Get, and what read its row.
struct LastGet {
    /// Its kind, when it is one that can be read again.
    kind: Option<usize>,
    /// As it was made: of the first row that it read.
    scan: Scan,
    open: OpenScanner,
    /// So many of the rows that come next have been looked for.
    prefetched: usize,
}

impl RowReader<'_> {
    /// Counts what was read so far as reads of the region. What was not counted yet is when it is dropped.
    pub fn count(&mut self) {
        let reads = std::mem::take(&mut self.reads);
        self.region.counts.reads.fetch_add(reads, Ordering::Relaxed);
    }

    /// Forgets what was read and not counted: it will be read anew.
    pub fn forget(&mut self) {
        self.reads = 0;
    }

    /// As [`Region::get`], to the end of `out`, which may share values with blocks; `context` tells how much was read.
    ///
    /// # Errors
    /// As [`Region::get`]; `out` may have a part of the row then, and so it may when `context` says that the read gave up.
    pub fn get(&mut self, scan: Scan, out: &mut CellBuffer, context: &mut ScannerContext) -> Result<()> {
        let row = scan.start_row.clone();
        self.read(None, &row, || Ok(scan), out, context)
    }

    /// As [`RowReader::get`], for a Get of a kind: Gets of one kind differ in nothing but the row. `scan` makes it, unless
    /// it can do without.
    ///
    /// # Errors
    /// As [`RowReader::get`], and what `scan` says.
    pub fn get_of_kind(
        &mut self,
        kind: usize,
        row: &Bytes,
        scan: impl FnOnce() -> Result<Scan>,
        out: &mut CellBuffer,
        context: &mut ScannerContext,
    ) -> Result<()> {
        self.read(Some(kind), row, scan, out, context)
    }

    /// Looks for the rows that will be read next, which are of this kind as the last one read was; does nothing when it
    /// looked for the first of them before, nor where a row cache may have them.
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
    ) -> Result<()> {
        let Self { region, last, reads } = self;
        region.check_row(row, "Get")?;
        *reads += 1;
        let Some(rows) = &region.row_cache else {
            return region.scanner_at(last, kind, row, scan)?.next(out, context).map(drop);
        };
        let scan = scan()?;
        let Some(cached) = rows.slot_of(&scan) else {
            return region.scanner_at(last, kind, row, || Ok(scan))?.next(out, context).map(drop);
        };
        if cached.find(&scan, out) {
            return Ok(());
        }
        let requested = cached.requested(&scan);
        // What is kept is copied anyway.
        let mut read = CellBuffer::new();
        let scanner = region.scanner_at(last, kind, row, || Ok(scan))?;
        scanner.next(&mut read, context)?;
        if context.gave_up() {
            return Ok(());
        }
        cached.fill(&read, requested, scanner.read_point(), scanner.saw_markers());
        out.append(read);
        Ok(())
    }
}

impl Drop for RowReader<'_> {
    /// Counts what was read, unless it is to be read anew. Of a batch of which a later region has to wait, the regions before it
    /// are counted twice.
    fn drop(&mut self) {
        if self.reads > 0 && !turns::was_refused() {
            self.count();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::region::testing::region;

    /// What this thread has used of a processor, in the kernel's hundredths of a second.
    fn used() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("linux");
        let after_name = stat.rsplit(") ").next().expect("fields");
        after_name.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
    }

    #[test]
    fn a_reader_does_not_spin_while_somebody_slow_changes_the_lists() {
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
