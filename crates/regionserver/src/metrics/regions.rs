//! sub=Regions: sizes and counts of each region.
//!
//! HBase's metrics of each store, `memstoreOnlyRowReadsCount` and `mixedRowReadsCount`, are not
//! counted, because counting them would make every read of a row slower.

use evenkeel_metrics::{Aggregate, Record, Value};
use evenkeel_region::region::RegionCount;

use super::{RegionReport, table_prefix, unsigned};

/// The metrics of each region; [`values`] has their values in the same order.
const METRICS: [(&str, &str); 30] = [
    ("storeCount", "Number of Stores"),
    ("storeFileCount", "Number of Store Files"),
    ("storeRefCount", "storeRefCount"),
    ("maxCompactedStoreFileRefCount", "maxCompactedStoreFileRefCount"),
    ("memStoreSize", "Size of the memstore"),
    ("maxStoreFileAge", "Max age of store files hosted on this RegionServer"),
    ("minStoreFileAge", "Min age of store files hosted on this RegionServer"),
    ("avgStoreFileAge", "Average age of store files hosted on this RegionServer"),
    ("numReferenceFiles", "Number of reference file on this RegionServer"),
    ("storeFileSize", "Size of storefiles being served."),
    ("currentRegionCacheRatio", "The percentage of caching completed for this region."),
    ("compactionsCompletedCount", "Number of compactions that have completed."),
    ("compactionsFailedCount", "Number of compactions that have failed."),
    ("lastMajorCompactionAge", "Age of the last major compaction in milliseconds."),
    (
        "numBytesCompactedCount",
        "Sum of filesize on all files entering a finished, successful or aborted, compaction",
    ),
    (
        "numFilesCompactedCount",
        "Number of files that were input for finished, successful or aborted, compactions",
    ),
    ("compactionsQueuedCount", "Number of compactions that are queued/running for this region"),
    ("flushesQueuedCount", "Number flushes requested/queued for this region"),
    ("maxCompactionQueueSize", "Max number of compactions queued for this region"),
    ("maxFlushQueueSize", "Max number of flushes queued for this region"),
    (
        "readRequestCount",
        "Number of read requests with non-empty Results that this RegionServer has answered.",
    ),
    ("filteredReadRequestCount", "Number of read requests this region server has answered."),
    ("writeRequestCount", "Number of mutation requests this RegionServer has answered."),
    ("putCount", ""),
    ("deleteCount", ""),
    ("incrementCount", ""),
    ("appendCount", ""),
    ("getCount", ""),
    ("scanCount", ""),
    ("replicaid", "The replica ID of a region. 0 is primary, otherwise is secondary"),
];

/// Creates the record.
pub fn record(reports: &[RegionReport], now_ms: i64) -> Record {
    let mut regions = Aggregate::new(&METRICS);
    regions.reserve(reports.len());
    for report in reports {
        let info = report.region.info();
        let prefix = format!("{}_region_{}_metric_", table_prefix(info.table()), info.encoded_name());
        regions.add(prefix, &values(report, now_ms));
    }
    let record = Record::new("Regions", "regionserver", "name=RegionServer,sub=Regions");
    Record { aggregate: Some(regions), ..record }
}

fn values(report: &RegionReport, now_ms: i64) -> [Value; METRICS.len()] {
    let (load, ages) = (&report.load, &report.load.ages);
    let count = |count| Value::Counter(load.counts.get(count));
    [
        Value::gauge(load.stores as u64),
        Value::gauge(load.store_files as u64),
        Value::gauge(load.readers as u64),
        Value::gauge(load.replaced_readers_max as u64),
        Value::gauge(load.memstore_bytes),
        Value::gauge(unsigned(ages.max_ms)),
        Value::gauge(unsigned(ages.min_ms)),
        Value::gauge(unsigned(ages.mean_ms())),
        Value::gauge(load.reference_files as u64),
        Value::gauge(load.store_file_bytes),
        Value::Real(0.0),
        count(RegionCount::Compactions),
        count(RegionCount::FailedCompactions),
        Value::Counter(unsigned(now_ms.saturating_sub(load.major_compaction_ms))),
        count(RegionCount::CompactedBytes),
        count(RegionCount::CompactedFiles),
        Value::Counter(report.compactions),
        Value::Counter(report.flushes),
        Value::Counter(report.compactions),
        Value::Counter(report.flushes),
        count(RegionCount::Reads),
        count(RegionCount::FilteredReads),
        count(RegionCount::Writes),
        count(RegionCount::Puts),
        count(RegionCount::Deletes),
        count(RegionCount::Increments),
        count(RegionCount::Appends),
        count(RegionCount::Gets),
        count(RegionCount::Scans),
        Value::Counter(unsigned(i64::from(report.region.info().replica_id()))),
    ]
}
