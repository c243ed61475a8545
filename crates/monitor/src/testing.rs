//! A server's documents for tests.

use std::time::Duration;

use evenkeel_common::clock;

use crate::beans::Beans;
use crate::snapshot::Snapshot;

/// Returns the snapshot of a server after this number of requests, `ms` milliseconds after the
/// first one.
pub fn snapshot(requests: u64, ms: u64) -> Snapshot {
    static BEGAN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let began = *BEGAN.get_or_init(clock::monotonic);
    let beans = Beans::parse(document(requests).as_bytes()).expect("a document");
    Snapshot::of(&beans, Vec::new(), began + Duration::from_millis(ms))
}

/// Returns the document of `/jmx` after this number of requests.
pub fn document(requests: u64) -> String {
    let bean = |name: &str, attributes: &str| {
        format!(r#"{{"name": "Hadoop:service=HBase,name={name}", "modelerType": "x", {attributes}}}"#)
    };
    let region = "Namespace_default_table_trail_region_0123456789abcdef0123456789abcdef_metric_";
    let beans = [
        bean(
            "RegionServer,sub=Server",
            &format!(
                r#""tag.serverName": "rs1,16020,1700000000000", "regionServerStartTime": 1700000000000,
                "totalRequestCount": {}, "readRequestCount": {}, "writeRequestCount": {},
                "memStoreSize": 1048576, "blockCacheSize": 900, "blockCacheFreeSize": 100,
                "blockCacheHitCount": {}, "blockCacheMissCount": {}, "blockCacheEvictionCount": 5,
                "flushQueueLength": 1, "compactionQueueLength": 2, "hlogFileCount": 3, "hlogFileSize": 2097152"#,
                requests * 11,
                requests * 10,
                requests,
                requests * 9,
                requests,
            ),
        ),
        bean(
            "RegionServer,sub=IPC",
            r#""TotalCallTime_99th_percentile": 7, "QueueCallTime_99th_percentile": 1, "numOpenConnections": 4,
            "numActiveHandler": 2, "numCallsInGeneralQueue": 1, "numCallsInPriorityQueue": 0"#,
        ),
        bean("RegionServer,sub=WAL", r#""SyncTime_99th_percentile": 12"#),
        bean("RegionServer,sub=Ledger", r#""slowRequestCount": 3"#),
        bean("JvmMetrics", r#""MemHeapCommittedM": 512.5, "MemHeapMaxM": 2048.0"#),
        bean(
            "RegionServer,sub=Tables",
            &format!(
                r#""numTables": 2, "Namespace_default_table_trail_metric_readRequestCount": {},
                "Namespace_default_table_trail_metric_writeRequestCount": {requests},
                "Namespace_default_table_trail_metric_regionCount": 1,
                "Namespace_default_table_trail_metric_storeFileSize": 5000000,
                "Namespace_ns_table_a_table_b_metric_regionCount": 1"#,
                requests * 10,
            ),
        ),
        bean(
            "RegionServer,sub=TableRequests_Namespace_default_table_trail",
            &format!(
                r#""GetTime_num_ops": {}, "GetTime_99th_percentile": 4, "PutTime_num_ops": {requests},
                "PutTime_99th_percentile": 9, "ScanTime_num_ops": 0, "ScanTime_99th_percentile": 0"#,
                requests * 10,
            ),
        ),
        bean(
            "RegionServer,sub=Regions",
            &format!(
                r#""{region}readRequestCount": {}, "{region}writeRequestCount": {requests},
                "{region}storeFileCount": 2, "{region}storeFileSize": 5000000, "{region}memStoreSize": 1048576"#,
                requests * 10,
            ),
        ),
    ];
    format!(r#"{{"beans": [{}]}}"#, beans.join(","))
}
