//! Reads: a Get, and scanners.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use evenkeel_common::{CellBuffer, HBaseError, Result};

use super::Region;
use crate::ops::Scan;
use crate::scanner::{RegionScanner, ScannerContext};
use crate::store::StoreViews;

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
        self.get_into(scan, &mut row, &mut ScannerContext::unlimited())?;
        Ok(row)
    }

    /// As [`Region::get`], to the end of `out`, which may share values with blocks; `context` tells how much was read.
    ///
    /// # Errors
    /// As [`Region::get`]; `out` may have a part of the row then.
    pub fn get_into(&self, scan: Scan, out: &mut CellBuffer, context: &mut ScannerContext) -> Result<()> {
        self.check_row(&scan.start_row, "Get")?;
        self.counts.reads.fetch_add(1, Ordering::Relaxed);
        let Some(cached) = self.row_cache.as_ref().and_then(|cache| cache.place(&scan)) else {
            let read_point = self.read_point_of(&scan);
            return self.open_scanner(scan, read_point)?.next(out, context).map(drop);
        };
        if cached.find(&scan, out) {
            return Ok(());
        }
        let shape = cached.shape(&scan);
        // What is kept is copied anyway.
        let mut read = CellBuffer::new();
        let mut scanner = self.open_scanner(scan, None)?;
        scanner.next(&mut read, context)?;
        cached.keep(&read, shape, scanner.read_point(), scanner.saw_markers());
        out.append(read);
        Ok(())
    }

    /// Starts a scan of the part of its range that lies in this region.
    ///
    /// # Errors
    /// `NoSuchColumnFamilyException`, or what reading files says.
    pub fn scanner(self: &Arc<Self>, scan: Scan) -> Result<RegionScanner> {
        let read_point = self.read_point_of(&scan);
        self.open_scanner(scan, read_point)
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

    fn open_scanner(&self, scan: Scan, read_point: Option<u64>) -> Result<RegionScanner> {
        scan.families.iter().try_for_each(|f| self.check_family(&f.family).map(drop))?;
        if scan.raw && scan.families.iter().any(|family| family.qualifiers.is_some()) {
            return Err(HBaseError::do_not_retry("Cannot specify any column for a raw scan"));
        }
        let (read_point, views) = self.view(&scan, read_point);
        RegionScanner::new(views, scan, read_point, self.comparator, self.env.stores.clock.now_ms())
    }

    fn read_point_of(&self, scan: &Scan) -> Option<u64> {
        if scan.read_uncommitted { Some(UNCOMMITTED) } else { scan.mvcc_read_point }
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
