//! MOB files in sub=Server.

use evenkeel_metrics::Record;
use evenkeel_region::store::MobFileCache;

/// Appends the metrics.
pub(super) fn append(record: &mut Record, files: &MobFileCache) {
    let metrics = files.metrics();
    let cells = [
        ("mobFlushedCellsCount", "mobFlushedCellsSize", "that flushes wrote to MOB files", metrics.flushed()),
        ("mobScanCellsCount", "mobScanCellsSize", "that reads found in MOB files", metrics.scanned()),
        (
            "cellsCountCompactedToMob",
            "cellsSizeCompactedToMob",
            "that compactions moved to MOB files",
            metrics.compacted_to(),
        ),
        (
            "cellsCountCompactedFromMob",
            "cellsSizeCompactedFromMob",
            "that compactions moved from MOB files to store files",
            metrics.compacted_from(),
        ),
    ];
    record.counter("mobFlushCount", "Number of flushes that wrote a MOB file", metrics.flushes());
    for (count, size, what, (number, bytes)) in cells {
        record.counter(count, format!("Number of cells {what}"), number);
        record.counter(size, format!("Bytes of the values of cells {what}"), bytes);
    }
    let (accesses, misses) = (files.accesses(), files.misses());
    record.counter("mobFileCacheAccessCount", "Number of reads of a MOB file", accesses);
    record.counter("mobFileCacheMissCount", "Number of reads that opened a MOB file", misses);
    record.counter(
        "mobFileCacheEvictedCount",
        "Number of MOB files closed for others, or after an error",
        files.evicted(),
    );
    record.gauge("mobFileCacheCount", "Number of open MOB files", files.len() as u64);
    let hits = accesses.saturating_sub(misses) as f64;
    let percent = if accesses == 0 { 0.0 } else { 100.0 * hits / accesses as f64 };
    record.real("mobFileCacheHitPercent", "Percentage of reads whose MOB file was open", percent);
}
