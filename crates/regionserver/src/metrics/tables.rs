//! sub=Tables: sizes and counts of each table with regions here, and of its flushes and
//! compactions.

use std::collections::BTreeMap;

use evenkeel_common::TableName;
use evenkeel_metrics::Record;
use evenkeel_region::metrics::StoreMetrics;

use super::stores::Sizes;
use super::{RegionReport, table_prefix, unsigned};

/// Sums the sizes of regions for each table.
pub(super) fn sizes(reports: &[RegionReport]) -> BTreeMap<&TableName, Sizes> {
    let mut tables = BTreeMap::<&TableName, Sizes>::new();
    for report in reports {
        tables.entry(report.region.info().table()).or_default().add(report);
    }
    tables
}

/// Creates the record.
pub(super) fn record(tables: &BTreeMap<&TableName, Sizes>, metrics: &StoreMetrics) -> Record {
    let mut record = Record::new("Tables", "regionserver", "name=RegionServer,sub=Tables");
    record.gauge("numTables", "Number of tables in the metrics system", tables.len() as u64);
    for (table, sizes) in tables {
        let prefix = format!("{}_metric_", table_prefix(table));
        append_requests(&mut record, &prefix, sizes);
        append_sizes(&mut record, &prefix, sizes);
        append_ages(&mut record, &prefix, sizes);
        metrics.of_table(table).append_to(&mut record, &prefix);
    }
    record
}

fn append_requests(record: &mut Record, prefix: &str, sizes: &Sizes) {
    let name = |rest: &str| format!("{prefix}{rest}");
    record
        .counter(
            name("readRequestCount"),
            "Number of read requests with non-empty Results that this RegionServer has answered.",
            sizes.reads,
        )
        .counter(
            name("filteredReadRequestCount"),
            "Number of read requests this region server has answered.",
            sizes.filtered_reads,
        )
        .counter(
            name("writeRequestCount"),
            "Number of mutation requests this RegionServer has answered.",
            sizes.writes,
        )
        .counter(
            name("totalRequestCount"),
            "Total number of requests this RegionServer has answered",
            sizes.reads + sizes.writes,
        );
}

fn append_sizes(record: &mut Record, prefix: &str, sizes: &Sizes) {
    let mut add = |name: &str, description: &'static str, value: u64| {
        record.gauge(format!("{prefix}{name}"), description, value);
    };
    add("regionCount", "Number of regions", sizes.regions);
    add("storeCount", "Number of Stores", sizes.stores);
    add("memStoreSize", "Size of the memstore", sizes.memstore_bytes);
    add("storeFileCount", "Number of Store Files", sizes.store_files);
    add("maxStoreFileCount", "Max store file count across all regions", sizes.store_files_max);
    add("storeFileSize", "Size of storefiles being served.", sizes.store_file_bytes);
    add("tableSize", "Total size of the table in the region server", sizes.bytes());
    add(
        "averageRegionSize",
        "Average region size over the RegionServer including memstore and storefile sizes.",
        sizes.mean_region_bytes(),
    );
    add("staticBloomSize", "Uncompressed size of the static bloom filters.", sizes.bloom_bytes);
    add("staticIndexSize", "staticIndexSize", sizes.index_bytes);
    add("numReferenceFiles", "Number of reference file on this RegionServer", sizes.reference_files);
}

fn append_ages(record: &mut Record, prefix: &str, sizes: &Sizes) {
    let mut add = |name: &str, description: &'static str, ms: i64| {
        record.gauge(format!("{prefix}{name}"), description, unsigned(ms));
    };
    add("maxStoreFileAge", "Max age of store files hosted on this RegionServer", sizes.ages.max_ms);
    add("minStoreFileAge", "Min age of store files hosted on this RegionServer", sizes.ages.min_ms);
    add("avgStoreFileAge", "Average age of store files hosted on this RegionServer", sizes.ages.mean_ms());
}
