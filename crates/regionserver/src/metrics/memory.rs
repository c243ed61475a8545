//! sub=Memory. HBase's tuner moves memory between MemStores and the block cache. Here both sizes
//! are fixed, so the tuner's metrics are 0.

use evenkeel_block_cache::CacheStats;
use evenkeel_metrics::{Interval, Ranges, Record};

const HISTOGRAMS: [(&str, &str); 6] = [
    ("blockedFlushes", "Histogram for the number of blocked flushes in the memstore"),
    ("unblockedFlushes", "Histogram for the number of unblocked flushes in the memstore"),
    (
        "increaseMemStoreSize",
        "Histogram for the heap memory tuner expanding memstore global size limit in bytes",
    ),
    (
        "decreaseMemStoreSize",
        "Histogram for the heap memory tuner shrinking memstore global size limit in bytes",
    ),
    (
        "increaseBlockCacheSize",
        "Histogram for the heap memory tuner expanding blockcache max heap size in bytes",
    ),
    (
        "decreaseBlockCacheSize",
        "Histogram for the heap memory tuner shrinking blockcache max heap size in bytes",
    ),
];

/// Creates the record: unflushed bytes of cells, the memory of MemStores, and the block cache.
pub fn record(memstore_bytes: u64, memstore_heap_bytes: u64, cache: &CacheStats) -> Record {
    let mut record = Record::new("Memory", "regionserver", "name=RegionServer,sub=Memory");
    for (name, description) in HISTOGRAMS {
        record.histogram(name, description, Ranges::Size, &Interval::default());
    }
    record
        .gauge("blockedFlushGauge", "Gauge for the blocked flush count before tuning", 0)
        .gauge("unblockedFlushGauge", "Gauge for the unblocked flush count before tuning", 0)
        .gauge("memStoreSize", "Global MemStore used in bytes by the RegionServer", memstore_bytes)
        .gauge(
            "memStoreOnHeapSize",
            "Global MemStore On-heap size in bytes by the RegionServer",
            memstore_heap_bytes,
        )
        .gauge("memStoreOffHeapSize", "Global MemStore Off-heap size in bytes by the RegionServer", 0)
        .gauge("blockCacheSize", "BlockCache used in bytes by the RegionServer", cache.bytes)
        .counter(
            "tunerDoNothingCounter",
            "The number of times that tuner neither expands memstore global size limit nor expands blockcache max size",
            0,
        )
        .counter(
            "aboveHeapOccupancyLowWaterMarkCounter",
            "The number of times that heap occupancy percent is above low watermark",
            0,
        );
    record
}
