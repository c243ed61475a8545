//! The records have HBase's names, and their values follow what a server does.

use std::collections::BTreeSet;

use evenkeel_block_cache::CacheStats;
use evenkeel_fs::ReadStatistics;
use evenkeel_metrics::{Record, Value};
use evenkeel_wal::metrics as wal;

use std::time::Duration;

use evenkeel_region::region::Operation;

use super::{
    block_cache, file_system, jvm, memory, regions, reports, requests, stores, table_requests, tables, users,
};
use crate::background::CompactionState;
use crate::load::region_load;
use crate::testing::{TestServer, cell, put};
use crate::user_times::UserTimes;

/// Returns the names of metrics, without the suffixes of histograms.
fn names(record: &Record) -> BTreeSet<String> {
    let all: BTreeSet<String> = record.all_metrics().map(|metric| metric.name().into_owned()).collect();
    assert_eq!(all.len(), record.all_metrics().count(), "no name is there twice");
    let is_of_histogram = |name: &String| {
        let ends = ["_min", "_max", "_mean", "_median", "_percentile"];
        ends.iter().any(|end| name.ends_with(end)) || name.contains("RangeCount_")
    };
    all.into_iter().filter(|name| !is_of_histogram(name)).collect()
}

/// Asserts that a record has exactly these names, each with the prefix.
fn assert_names(record: &Record, prefix: &str, expected: &str) {
    let expected: BTreeSet<String> =
        expected.split_whitespace().map(|name| as_shown(&format!("{prefix}{name}"))).collect();
    let found = names(record);
    let different: Vec<_> = found.symmetric_difference(&expected).collect();
    assert!(different.is_empty(), "{different:?}");
}

/// Names of histograms begin with an upper case letter.
fn as_shown(name: &str) -> String {
    let (first, rest) = name.split_at(1);
    if name.ends_with("_num_ops") { first.to_uppercase() + rest } else { name.to_owned() }
}

fn value(record: &Record, name: &str) -> f64 {
    match record.all_metrics().find(|metric| metric.name() == name).map(|metric| metric.value) {
        Some(Value::Counter(count)) => count as f64,
        Some(Value::Gauge(size)) => size as f64,
        Some(Value::Real(real)) => real,
        None => panic!("{name} is missing"),
    }
}

fn server_record() -> Record {
    Record::new("Server", "regionserver", "name=RegionServer,sub=Server")
}

const FLUSHES_AND_COMPACTIONS: &str = "flushTime_num_ops flushMemstoreSize_num_ops flushOutputSize_num_ops \
    flushedOutputBytes flushedMemstoreBytes compactionTime_num_ops compactionInputFileCount_num_ops \
    compactionInputSize_num_ops compactionOutputFileCount_num_ops compactionOutputSize_num_ops \
    compactedInputBytes compactedOutputBytes majorCompactionTime_num_ops \
    majorCompactionInputFileCount_num_ops majorCompactionInputSize_num_ops \
    majorCompactionOutputFileCount_num_ops majorCompactionOutputSize_num_ops majorCompactedInputBytes \
    majorCompactedOutputBytes splitTime_num_ops splitRequestCount splitSuccessCount";

#[test]
fn regions_tables_and_stores_have_hbase_s_names_and_move() {
    let (test, region) = TestServer::with_region();
    put(&region, &[cell(b"a", b"q", b"v")]);
    region.flush().expect("flushed");
    put(&region, &[cell(b"b", b"q", b"v")]);
    let reports = reports(test.server.regions().all(), test.server.background());
    let metrics = &test.env.stores.metrics;

    let record = regions::record(&reports, crate::testing::START_MS);
    let prefix = format!("Namespace_default_table_t_region_{}_metric_", region.info().encoded_name());
    let of_region = "storeCount storeFileCount storeRefCount maxCompactedStoreFileRefCount memStoreSize \
        maxStoreFileAge minStoreFileAge avgStoreFileAge numReferenceFiles storeFileSize \
        currentRegionCacheRatio compactionsCompletedCount compactionsFailedCount lastMajorCompactionAge \
        numBytesCompactedCount numFilesCompactedCount readRequestCount filteredReadRequestCount \
        writeRequestCount replicaid compactionsQueuedCount flushesQueuedCount maxCompactionQueueSize \
        maxFlushQueueSize putCount deleteCount incrementCount appendCount getCount scanCount";
    assert_names(&record, &prefix, of_region);
    let moved = ["storeFileCount", "putCount", "writeRequestCount"];
    assert_eq!(moved.map(|name| value(&record, &format!("{prefix}{name}"))), [1.0, 2.0, 2.0]);

    let mut record = tables::record(&tables::sizes(&reports), metrics);
    assert_eq!(value(&record, "numTables"), 1.0);
    record.metrics.retain(|metric| metric.name != "numTables");
    let of_table = "readRequestCount filteredReadRequestCount writeRequestCount totalRequestCount \
        memStoreSize storeFileCount maxStoreFileCount storeFileSize tableSize averageRegionSize \
        regionCount storeCount maxStoreFileAge minStoreFileAge avgStoreFileAge staticBloomSize \
        staticIndexSize numReferenceFiles";
    let prefix = "Namespace_default_table_t_metric_";
    assert_names(&record, prefix, &format!("{of_table} {FLUSHES_AND_COMPACTIONS}"));
    assert_eq!(value(&record, &format!("{prefix}flushTime_num_ops")), 1.0);
    assert!(value(&record, &format!("{prefix}tableSize")) > 1000.0);

    let mut record = server_record();
    stores::append(&mut record, &stores::Sizes::of(&reports), metrics, &[&test.env.wal]);
    let of_server = "regionCount storeCount storeFileCount maxStoreFileCount memStoreSize \
        memStoreHeapSize memStoreOffHeapSize storeFileSize averageRegionSize storeFileIndexSize \
        staticIndexSize staticBloomSize numReferenceFiles mutationsWithoutWALCount \
        mutationsWithoutWALSize maxStoreFileAge minStoreFileAge avgStoreFileAge percentFilesLocal \
        percentFilesLocalPrimaryRegions percentFilesLocalSecondaryRegions \
        totalRowActionRequestCount readRequestCount filteredReadRequestCount writeRequestCount \
        checkMutateFailedCount checkMutatePassedCount blockedRequestCount hlogFileCount hlogFileSize \
        flushedCellsCount flushedCellsSize compactedCellsCount compactedCellsSize \
        majorCompactedCellsCount majorCompactedCellsSize";
    assert_names(&record, "", &format!("{of_server} {FLUSHES_AND_COMPACTIONS}"));
    let moved = ["regionCount", "storeFileCount", "flushedCellsCount", "hlogFileCount"];
    assert_eq!(moved.map(|name| value(&record, name)), [1.0; 4]);
    assert_eq!(value(&record, "percentFilesLocal"), 100.0);
    assert_eq!(value(&record, "percentFilesLocalSecondaryRegions"), 0.0);
    assert!(value(&record, "staticBloomSize") > 0.0 && value(&record, "memStoreSize") > 0.0);
    let record = wal::record(&[&test.env.wal]);
    assert!(value(&record, "t.appendCount") >= 2.0);
}

#[test]
fn the_block_cache_has_hbase_s_names_and_ratios() {
    let level = |hits, misses| CacheStats {
        hits: [hits, 0, 1, 0],
        misses: [misses, 2, 0, 0],
        blocks: 5,
        rows: 1,
        bytes: 100,
        capacity_bytes: 300,
        ..CacheStats::default()
    };
    let mut record = server_record();
    block_cache::append(&mut record, &[level(0, 0), level(8, 1)]);
    let types = "Data LeafIndex BloomChunk Meta RootIndex IntermediateIndex FileInfo GeneralBloomMeta \
        DeleteFamilyBloom Trailer";
    let of_types: Vec<_> = types
        .split_whitespace()
        .flat_map(|kind| [format!("blockCache{kind}HitCount"), format!("blockCache{kind}MissCount")])
        .collect();
    let of_levels: Vec<_> = ["l1", "l2"]
        .iter()
        .flat_map(|level| {
            "Size FreeSize Count EvictionCount HitCount MissCount HitRatio MissRatio"
                .split_whitespace()
                .map(move |name| format!("{level}Cache{name}"))
        })
        .collect();
    let rest = "blockCacheFreeSize blockCacheCount blockCacheDataBlockCount blockCacheSize \
        blockCacheCountHitPercent blockCacheExpressHitPercent blockCacheHitCount \
        blockCacheHitCountPrimary blockCacheHitCachingCount blockCacheMissCount \
        blockCacheMissCountPrimary blockCacheMissCachingCount blockCacheEvictionCount \
        blockCacheEvictionCountPrimary blockCacheFailedInsertionCount";
    assert_names(&record, "", &format!("{rest} {} {}", of_types.join(" "), of_levels.join(" ")));
    assert_eq!(value(&record, "blockCacheHitCount"), 10.0);
    assert_eq!(value(&record, "blockCacheDataHitCount"), 8.0);
    assert_eq!(value(&record, "blockCacheLeafIndexMissCount"), 4.0);
    assert_eq!(value(&record, "l2CacheHitRatio"), 0.75);
    assert!((value(&record, "blockCacheCountHitPercent") - 1000.0 / 15.0).abs() < 1e-9);
    assert_eq!([value(&record, "blockCacheFreeSize"), value(&record, "l1CacheSize")], [400.0, 100.0]);
}

#[test]
fn memory_and_the_process_have_hbase_s_names() {
    let record = memory::record(10, 20, &CacheStats { bytes: 30, ..CacheStats::default() });
    let of_memory = "BlockedFlushes_num_ops UnblockedFlushes_num_ops IncreaseMemStoreSize_num_ops \
        DecreaseMemStoreSize_num_ops IncreaseBlockCacheSize_num_ops DecreaseBlockCacheSize_num_ops \
        blockedFlushGauge unblockedFlushGauge memStoreSize memStoreOnHeapSize memStoreOffHeapSize \
        blockCacheSize tunerDoNothingCounter aboveHeapOccupancyLowWaterMarkCounter";
    assert_names(&record, "", of_memory);
    let sizes = ["memStoreSize", "memStoreOnHeapSize", "blockCacheSize"];
    assert_eq!(sizes.map(|name| value(&record, name)), [10.0, 20.0, 30.0]);

    let facts = jvm::ProcessFacts { process_name: "RegionServer", memory_bytes_max: 64 << 20 };
    let record = jvm::record(facts);
    let of_jvm = "MemNonHeapUsedM MemNonHeapCommittedM MemNonHeapMaxM MemHeapUsedM MemHeapCommittedM \
        MemHeapMaxM MemMaxM GcCount GcTimeMillis ThreadsNew ThreadsRunnable ThreadsBlocked \
        ThreadsWaiting ThreadsTimedWaiting ThreadsTerminated";
    assert_names(&record, "", of_jvm);
    assert!(value(&record, "MemHeapUsedM") > 0.5 && value(&record, "ThreadsWaiting") >= 0.0);
    assert_eq!(value(&record, "MemHeapMaxM"), 64.0);
    assert!(record.tags.contains(&("ProcessName".into(), "RegionServer".to_owned())));
}

#[test]
fn a_region_reports_what_hbase_s_regions_report() {
    let (_test, region) = TestServer::with_region();
    assert_eq!(region_load(&region, CompactionState::None, 0).data_locality, Some(0.0), "without files");
    put(&region, &[cell(b"a", b"q", &[7; 3000])]);
    region.flush().expect("flushed");
    region.compact(None, true).expect("compacted");
    put(&region, &[cell(b"b", b"q", b"v")]);
    let load = region_load(&region, CompactionState::None, 2 << 20);
    assert_eq!(load.current_region_cached_ratio, Some(2.0), "2 MiB of what counts as 1 MiB");
    assert_eq!((load.stores, load.storefiles), (Some(1), Some(1)));
    let of_one = [load.storefile_size_mb, load.store_uncompressed_size_mb, load.root_index_size_kb];
    assert_eq!(of_one, [Some(1); 3], "what is there is not 0");
    assert_eq!((load.total_static_index_size_kb, load.mem_store_size_mb), (Some(1), Some(1)));
    assert!(load.total_static_bloom_size_kb.is_some_and(|kib| kib > 0));
    assert_eq!((load.write_requests_count, load.region_size_mb), (Some(2), Some(1)));
    assert_eq!(load.last_major_compaction_ts, Some(crate::testing::START_MS as u64));
    let [store] = &load.store_complete_sequence_id[..] else { panic!("{load:?}") };
    assert_eq!(&store.family_name[..], b"f");
    assert!(store.sequence_id >= load.complete_sequence_id.expect("known"), "{load:?}");
    // The one file of the region is local, as a file of a local file system is.
    let blocks = [load.blocks_local_weight, load.blocks_total_weight].map(|weight| weight.expect("known"));
    assert!(blocks[0] > 0 && blocks[0] == blocks[1], "{load:?}");
    assert_eq!((load.data_locality, load.data_locality_for_ssd), (Some(1.0), Some(0.0)));
    assert_eq!(load.blocks_local_with_ssd_weight, Some(0));
}

#[test]
fn all_records_of_a_server_have_each_name_once_and_the_names_of_dashboards() {
    let (test, _) = TestServer::with_region();
    let mut of_server = server_record();
    let background = test.server.background();
    let all = reports(test.server.regions().all(), background);
    requests::append(&mut of_server, &test.server, &test.env.operation_times);
    let reads = ReadStatistics { hedged_read_wins: 3, short_circuit_bytes: 7, ..ReadStatistics::default() };
    file_system::append(&mut of_server, &reads);
    stores::append(&mut of_server, &stores::Sizes::of(&all), &test.env.stores.metrics, &[&test.env.wal]);
    block_cache::append(&mut of_server, &test.server.cache_levels());
    // Section 12 of the contract: the metrics that common dashboards and exporters read.
    let wanted = "regionCount storeFileCount storeFileSize memStoreSize readRequestCount writeRequestCount \
        totalRequestCount blockCacheCountHitPercent blockCacheExpressHitPercent blockCacheHitCount \
        blockCacheMissCount blockCacheEvictionCount blockCacheSize blockCacheFreeSize l1CacheHitRatio \
        l2CacheHitRatio l2CacheSize compactionQueueLength flushQueueLength splitQueueLength hlogFileCount \
        hlogFileSize percentFilesLocal updatesBlockedTime blockedRequestCount slowPutCount slowDeleteCount \
        slowGetCount slowIncrementCount slowAppendCount Get_num_ops Put_num_ops ScanTime_num_ops \
        PutBatch_num_ops Delete_num_ops Append_num_ops Increment_num_ops PauseTimeWithGc_num_ops \
        hedgedReads hedgedReadWins hedgedReadOpsInCurThread totalBytesRead localBytesRead \
        shortCircuitBytesRead zeroCopyBytesRead percentFilesLocalSecondaryRegions";
    let found = names(&of_server);
    assert_eq!([value(&of_server, "hedgedReadWins"), value(&of_server, "shortCircuitBytesRead")], [3.0, 7.0]);
    let missing: Vec<_> = wanted.split_whitespace().filter(|name| !found.contains(*name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// HBase creates the bean only if the setting is set.
#[test]
fn operations_are_timed_by_user_if_it_is_set() {
    let (test, _) = TestServer::with_region();
    assert!(users::record(test.server.user_times()).is_none());
    let times = UserTimes::new(true);
    times.record_ns(times.id_of(Some("bob"), [127, 0, 0, 1].into()), Operation::Get, 7_000_000);
    let record = users::record(&times).expect("a record");
    let operations = ["get", "scanTime", "put", "delete", "increment", "append", "replay"];
    let expected = operations.map(|name| format!("User_bob_metric_{name}_num_ops")).join(" ");
    assert_names(&record, "", &format!("numUsers {expected}"));
    assert_eq!(value(&record, "User_bob_metric_get_num_ops"), 1.0);
    assert_eq!(value(&record, "User_bob_metric_get_TimeRangeCount_3-10"), 1.0);
}

#[test]
fn operations_are_timed_by_table_and_for_the_server() {
    let (test, region) = TestServer::with_region();
    region.operation_times().record(Operation::Get, Duration::from_millis(7));
    let mut of_server = server_record();
    requests::append(&mut of_server, &test.server, &test.env.operation_times);
    assert_eq!(value(&of_server, "Get_num_ops"), 1.0);
    assert!((6.0..=7.0).contains(&value(&of_server, "Get_median")));
    let tables = table_requests::records(&test.env.operation_times, &Default::default());
    let of_table = tables.iter().find(|record| record.name.ends_with("_table_t")).expect("the table's");
    assert_eq!(value(of_table, "GetTime_num_ops"), 1.0);
    assert!(value(of_table, "GetTime_max") <= 7.0);
}
