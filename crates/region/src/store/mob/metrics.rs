//! [`MobMetrics`]: what a server has done with MOB files, since its start.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Counts of cells, and bytes of their values. HBase's names of the metrics are in
/// `MetricsRegionServerSource`.
#[derive(Debug, Default)]
pub struct MobMetrics {
    flushes: AtomicU64,
    flushed: Cells,
    scanned: Cells,
    compacted_to: Cells,
    compacted_from: Cells,
}

#[derive(Debug, Default)]
struct Cells {
    count: AtomicU64,
    bytes: AtomicU64,
}

impl Cells {
    fn add(&self, count: u64, bytes: u64) {
        self.count.fetch_add(count, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    fn get(&self) -> (u64, u64) {
        (self.count.load(Relaxed), self.bytes.load(Relaxed))
    }
}

impl MobMetrics {
    /// Flushes that wrote a MOB file (`mobFlushCount`).
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Relaxed)
    }

    /// Cells that flushes wrote to MOB files, and bytes (`mobFlushedCells*`).
    pub fn flushed(&self) -> (u64, u64) {
        self.flushed.get()
    }

    /// Cells that scanners read from MOB files, and bytes (`mobScanCells*`).
    pub fn scanned(&self) -> (u64, u64) {
        self.scanned.get()
    }

    /// Cells that compactions moved from store files to MOB files, and bytes
    /// (`cells*CompactedToMob`).
    pub fn compacted_to(&self) -> (u64, u64) {
        self.compacted_to.get()
    }

    /// Cells that compactions moved from MOB files to store files, and bytes
    /// (`cells*CompactedFromMob`).
    pub fn compacted_from(&self) -> (u64, u64) {
        self.compacted_from.get()
    }

    pub(super) fn count_flush(&self, cells: u64, bytes: u64) {
        self.flushes.fetch_add(1, Relaxed);
        self.flushed.add(cells, bytes);
    }

    pub(super) fn count_scanned(&self, bytes: u64) {
        self.scanned.add(1, bytes);
    }

    pub(super) fn count_compacted(&self, to: (u64, u64), from: (u64, u64)) {
        self.compacted_to.add(to.0, to.1);
        self.compacted_from.add(from.0, from.1);
    }
}
