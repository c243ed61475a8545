//! Requests of sub=Server: counts by method, times of operations, queues and scanners.

use evenkeel_metrics::histogram::TIME_UNITS_PER_MS;
use evenkeel_metrics::{Interval, Ranges, Record};
use evenkeel_region::region::{Operation, TableOperationTimes};

use crate::{RegionServer, RequestKind};

/// Operations that take at least this long count as slow (`hbase.ipc.slow.metric.time`).
const SLOW_MS: u64 = 1000;

/// The counters of slow operations.
const SLOW: [(&str, &str, Operation); 5] = [
    (
        "slowPutCount",
        "The number of batches containing puts that took over 1000ms to complete",
        Operation::Put,
    ),
    (
        "slowDeleteCount",
        "The number of batches containing delete(s) that took over 1000ms to complete",
        Operation::Delete,
    ),
    ("slowGetCount", "The number of Gets that took over 1000ms to complete", Operation::Get),
    (
        "slowIncrementCount",
        "The number of Increments that took over 1000ms to complete",
        Operation::Increment,
    ),
    ("slowAppendCount", "The number of Appends that took over 1000ms to complete", Operation::Append),
];

/// Counters of features that do not exist here or are not counted: pauses of a garbage collector.
const ZERO: [&str; 3] =
    ["pauseInfoThresholdExceeded", "pauseWarnThresholdExceeded", "blockBytesScannedCount"];

/// Gauges of such features.
const ZERO_GAUGES: [&str; 4] = [
    "ByteBuffAllocatorHeapAllocationBytes",
    "ByteBuffAllocatorPoolAllocationBytes",
    "ByteBuffAllocatorTotalBufferCount",
    "ByteBuffAllocatorUsedBufferCount",
];

/// The same, of ratios and percentages.
const ZERO_RATIOS: [&str; 1] = ["ByteBuffAllocatorHeapAllocationRatio"];

/// Appends the metrics.
pub fn append(record: &mut Record, server: &RegionServer, times: &TableOperationTimes) {
    append_counts(record, server);
    append_queues(record, server);
    append_times(record, times);
    for name in ZERO {
        record.counter(name, "Always 0", 0);
    }
    for name in ZERO_GAUGES {
        record.gauge(name, "Always 0", 0);
    }
    for name in ZERO_RATIOS {
        record.real(name, "Always 0", 0.0);
    }
}

fn append_counts(record: &mut Record, server: &RegionServer) {
    let counters = server.counters();
    record.counter(
        "totalRequestCount",
        "Total number of requests this RegionServer has answered",
        counters.total(),
    );
    let counts = [
        ("rpcGetRequestCount", "Number of rpc get requests this RegionServer has answered", RequestKind::Get),
        (
            "rpcScanRequestCount",
            "Number of rpc scan requests this RegionServer has answered",
            RequestKind::Scan,
        ),
        (
            "rpcFullScanRequestCount",
            "Number of rpc full scan requests of whole regions",
            RequestKind::FullScan,
        ),
        (
            "rpcMultiRequestCount",
            "Number of rpc multi requests this RegionServer has answered",
            RequestKind::Multi,
        ),
        (
            "rpcMutateRequestCount",
            "Number of rpc mutation requests this RegionServer has answered",
            RequestKind::Mutate,
        ),
    ];
    for (name, description, kind) in counts {
        record.counter(name, description, counters.of(kind));
    }
    record
        .counter(
            "scannerLeaseExpiredCount",
            "Count of scanners which were expired due to scanner lease timeout",
            server.scanners().leases_expired(),
        )
        .gauge("activeScanners", "Gauge of currently active scanners", server.scanners().len() as u64)
        .gauge("regionServerStartTime", "RegionServer Start Time", server.name().start_code.unsigned_abs());
}

fn append_queues(record: &mut Record, server: &RegionServer) {
    let (small, large) = server.background().queued_compactions();
    let (_, waiting) = server.background().flushers();
    let held_ms = u64::try_from(server.background().write_throttle().total().as_millis());
    record
        .counter(
            "updatesBlockedTime",
            "Number of MS updates have been blocked so that the memstore can be flushed",
            held_ms.unwrap_or(u64::MAX),
        )
        .gauge("compactionQueueLength", "Length of the queue for compactions", (small + large) as u64)
        .gauge(
            "smallCompactionQueueLength",
            "Length of the queue for compactions with input size smaller than throttle threshold",
            small as u64,
        )
        .gauge(
            "largeCompactionQueueLength",
            "Length of the queue for compactions with input size larger than throttle threshold",
            large as u64,
        )
        .gauge("flushQueueLength", "Length of the queue for region flushes", waiting as u64)
        .gauge(
            "splitQueueLength",
            "Length of the queue for splits",
            server.background().queued_splits() as u64,
        );
}

fn append_times(record: &mut Record, times: &TableOperationTimes) {
    let (operations, scan_bytes) = times.server();
    for (operation, interval) in &operations {
        record.histogram(operation.server_metric(), "", Ranges::Time, interval);
    }
    record.histogram("scanSize", "", Ranges::Size, &scan_bytes);
    for (name, description, operation) in SLOW {
        let all = times.server_total(operation);
        let slow = all.count() - all.count_upto(SLOW_MS * TIME_UNITS_PER_MS);
        record.counter(name, description, slow);
    }
    for name in ["replay", "pauseTimeWithGc", "pauseTimeWithoutGc"] {
        record.histogram(name, "Always empty", Ranges::Time, &Interval::default());
    }
}
