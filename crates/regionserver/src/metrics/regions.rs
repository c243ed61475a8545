//! sub=Regions: sizes and counts of each region.
//!
//! HBase's metrics of each store, `memstoreOnlyRowReadsCount` and `mixedRowReadsCount`, are not
//! counted, because counting them would make every read of a row slower.

use evenkeel_metrics::Record;
use evenkeel_region::region::RegionCount;

use super::{RegionReport, table_prefix, unsigned};

/// Metrics of each region.
const METRICS: usize = 30;

/// Creates the record.
pub fn record(reports: &[RegionReport], now_ms: i64) -> Record {
    let mut record = Record::new("Regions", "regionserver", "name=RegionServer,sub=Regions");
    record.metrics.reserve(reports.len() * METRICS);
    for report in reports {
        let info = report.region.info();
        let prefix = format!("{}_region_{}_metric_", table_prefix(info.table()), info.encoded_name());
        append_gauges(&mut record, &prefix, report);
        append_work(&mut record, &prefix, report, now_ms);
        append_requests(&mut record, &prefix, report);
    }
    record
}

fn append_gauges(record: &mut Record, prefix: &str, report: &RegionReport) {
    let (load, ages) = (&report.load, &report.load.ages);
    let name = |rest: &str| [prefix, rest].concat();
    record
        .gauge(name("storeCount"), "Number of Stores", load.stores as u64)
        .gauge(name("storeFileCount"), "Number of Store Files", load.store_files as u64)
        .gauge(name("storeRefCount"), "storeRefCount", load.readers as u64)
        .gauge(
            name("maxCompactedStoreFileRefCount"),
            "maxCompactedStoreFileRefCount",
            load.replaced_readers_max as u64,
        )
        .gauge(name("memStoreSize"), "Size of the memstore", load.memstore_bytes)
        .gauge(
            name("maxStoreFileAge"),
            "Max age of store files hosted on this RegionServer",
            unsigned(ages.max_ms),
        )
        .gauge(
            name("minStoreFileAge"),
            "Min age of store files hosted on this RegionServer",
            unsigned(ages.min_ms),
        )
        .gauge(
            name("avgStoreFileAge"),
            "Average age of store files hosted on this RegionServer",
            unsigned(ages.mean_ms()),
        )
        .gauge(
            name("numReferenceFiles"),
            "Number of reference file on this RegionServer",
            load.reference_files as u64,
        )
        .gauge(name("storeFileSize"), "Size of storefiles being served.", load.store_file_bytes)
        .real(name("currentRegionCacheRatio"), "The percentage of caching completed for this region.", 0.0);
}

/// Appends the metrics of flushes and compactions.
fn append_work(record: &mut Record, prefix: &str, report: &RegionReport, now_ms: i64) {
    let counts = report.region.counts();
    let mut add = |name: &str, description: &'static str, value: u64| {
        record.counter([prefix, name].concat(), description, value);
    };
    let major_age_ms = unsigned(now_ms.saturating_sub(report.load.major_compaction_ms));
    let compactions = "Number of compactions that are queued/running for this region";
    add(
        "compactionsCompletedCount",
        "Number of compactions that have completed.",
        counts.get(RegionCount::Compactions),
    );
    add(
        "compactionsFailedCount",
        "Number of compactions that have failed.",
        counts.get(RegionCount::FailedCompactions),
    );
    add("lastMajorCompactionAge", "Age of the last major compaction in milliseconds.", major_age_ms);
    add(
        "numBytesCompactedCount",
        "Sum of filesize on all files entering a finished, successful or aborted, compaction",
        counts.get(RegionCount::CompactedBytes),
    );
    add(
        "numFilesCompactedCount",
        "Number of files that were input for finished, successful or aborted, compactions",
        counts.get(RegionCount::CompactedFiles),
    );
    add("compactionsQueuedCount", compactions, report.compactions);
    add("flushesQueuedCount", "Number flushes requested/queued for this region", report.flushes);
    add("maxCompactionQueueSize", "Max number of compactions queued for this region", report.compactions);
    add("maxFlushQueueSize", "Max number of flushes queued for this region", report.flushes);
}

/// The request counters of a region.
const REQUESTS: [(&str, &str, RegionCount); 9] = [
    (
        "readRequestCount",
        "Number of read requests with non-empty Results that this RegionServer has answered.",
        RegionCount::Reads,
    ),
    (
        "filteredReadRequestCount",
        "Number of read requests this region server has answered.",
        RegionCount::FilteredReads,
    ),
    ("writeRequestCount", "Number of mutation requests this RegionServer has answered.", RegionCount::Writes),
    ("putCount", "", RegionCount::Puts),
    ("deleteCount", "", RegionCount::Deletes),
    ("incrementCount", "", RegionCount::Increments),
    ("appendCount", "", RegionCount::Appends),
    ("getCount", "", RegionCount::Gets),
    ("scanCount", "", RegionCount::Scans),
];

fn append_requests(record: &mut Record, prefix: &str, report: &RegionReport) {
    let region = &report.region;
    for (name, description, count) in REQUESTS {
        record.counter([prefix, name].concat(), description, region.counts().get(count));
    }
    let replica = unsigned(i64::from(region.info().replica_id()));
    let description = "The replica ID of a region. 0 is primary, otherwise is secondary";
    record.counter(format!("{prefix}replicaid"), description, replica);
}
