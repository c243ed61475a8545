//! sub=IPC: the RPC server's calls, queues and connections.
//!
//! HBase has a queue for each kind of handler. Here most calls run on their connection's thread and
//! are never queued. Calls that wait for a handler are reported under the HBase queue for the same
//! work: General includes General, Admin and Decode;
//! Write includes Write and LongWrite.

use evenkeel_common::ErrorKind;
use evenkeel_metrics::{Ranges, Record};
use evenkeel_rpc::{CallClass, CallValue, Executor, RpcMetrics, RpcStats};

/// Exceptions with a separate counter, and the suffix of its name.
const EXCEPTIONS: [(&str, &str, ErrorKind); 14] = [
    (
        "OutOfOrderScannerNextException",
        "Number of requests that resulted in an OutOfOrderScannerNextException",
        ErrorKind::OutOfOrderScannerNext,
    ),
    (
        "RegionTooBusyException",
        "Number of requests that resulted in a RegionTooBusyException",
        ErrorKind::RegionTooBusy,
    ),
    (
        "UnknownScannerException",
        "Number of requests that resulted in an UnknownScannerException",
        ErrorKind::UnknownScanner,
    ),
    (
        "ScannerResetException",
        "Number of requests that resulted in a ScannerResetException",
        ErrorKind::ScannerReset,
    ),
    (
        "FailedSanityCheckException",
        "Number of requests that resulted in a FailedSanityCheckException",
        ErrorKind::FailedSanityCheck,
    ),
    (
        "RegionMovedException",
        "Number of requests that resulted in a RegionMovedException",
        ErrorKind::RegionMoved,
    ),
    (
        "NotServingRegionException",
        "Number of requests that resulted in a NotServingRegionException",
        ErrorKind::NotServingRegion,
    ),
    (
        "multiResponseTooLarge",
        "Number of requests that were asked for too many rows",
        ErrorKind::MultiActionResultTooLarge,
    ),
    ("callQueueTooBig", "Number of requests refused because the server was full", ErrorKind::CallQueueTooBig),
    ("callDropped", "Number of requests dropped from a queue", ErrorKind::CallDropped),
    ("callTimedOut", "Number of requests that timed out", ErrorKind::Timeout),
    ("requestTooBig", "Number of requests that were too large", ErrorKind::RequestTooBig),
    ("quotaExceeded", "Number of requests that exceeded a quota", ErrorKind::SpaceLimiting),
    ("rpcThrottling", "Number of requests that were throttled by a quota", ErrorKind::RpcThrottling),
];

/// Counters of events that do not happen here: no call is reordered in a queue or authenticated.
const ZERO: [(&str, &str); 7] = [
    (
        "numGeneralCallsDropped",
        "Total number of calls in general queue which were dropped by CoDel RPC executor",
    ),
    (
        "numLifoModeSwitches",
        "Total number of calls in general queue which were served from the tail of the queue",
    ),
    ("authorizationSuccesses", "Number of authorization successes"),
    ("authorizationFailures", "Number of authorization failures"),
    ("authenticationSuccesses", "Number of authentication successes"),
    ("authenticationFailures", "Number of authentication failures"),
    ("authenticationFallbacks", "Number of fallbacks to insecure authentication"),
];

/// Creates the record of a server; `of` in the bean's name is `RegionServer` or `Master`.
pub fn record(
    (of, context): (&'static str, &'static str),
    metrics: &RpcMetrics,
    stats: &RpcStats,
    executor: &Executor,
) -> Record {
    let mut record = Record::new(of, context, format!("name={of},sub=IPC"));
    append_queues(&mut record, stats, executor);
    append_handlers(&mut record, executor);
    append_connections(&mut record, stats);
    append_exceptions(&mut record, metrics);
    append_times(&mut record, metrics);
    record
}

fn append_queues(record: &mut Record, stats: &RpcStats, executor: &Executor) {
    let queued = |classes: &[CallClass]| classes.iter().map(|class| executor.queued(*class) as u64).sum();
    let general = queued(&[CallClass::General, CallClass::Admin, CallClass::Decode]);
    record
        .gauge("queueSize", "Number of bytes in the call queues", stats.inflight_bytes)
        .gauge("numCallsInGeneralQueue", "Number of calls in the general call queue", general)
        .gauge("numCallsInReplicationQueue", "Number of calls in the replication call queue", 0)
        .gauge("numCallsInBulkLoadQueue", "Number of calls in the bulkload call queue", 0)
        .gauge(
            "numCallsInPriorityQueue",
            "Number of calls in the priority call queue",
            queued(&[CallClass::Priority]),
        )
        .gauge("numCallsInMetaPriorityQueue", "Number of calls in the priority call queue", 0)
        .gauge(
            "numCallsInWriteQueue",
            "Number of calls in the write call queue",
            queued(&[CallClass::Write, CallClass::LongWrite]),
        )
        .gauge("numCallsInReadQueue", "Number of calls in the read call queue", 0)
        .gauge("numCallsInScanQueue", "Number of calls in the scan call queue", queued(&[CallClass::Scan]));
}

fn append_handlers(record: &mut Record, executor: &Executor) {
    let active =
        |classes: &[CallClass]| classes.iter().map(|class| executor.active(*class) as u64).sum::<u64>();
    let general = active(&[CallClass::General, CallClass::Admin, CallClass::Decode]);
    let priority = active(&[CallClass::Priority]);
    let write = active(&[CallClass::Write, CallClass::LongWrite]);
    let scan = active(&[CallClass::Scan]);
    record
        .gauge("numActiveHandler", "Total number of active rpc handlers", general + priority + write + scan)
        .gauge("numActiveGeneralHandler", "Number of active general rpc handlers", general)
        .gauge("numActivePriorityHandler", "Number of active priority rpc handlers", priority)
        .gauge("numActiveReplicationHandler", "Number of active replication rpc handlers", 0)
        .gauge("numActiveBulkLoadHandler", "Number of active bulkload rpc handlers", 0)
        .gauge("numActiveWriteHandler", "Number of active write rpc handlers", write)
        .gauge("numActiveReadHandler", "Number of active read rpc handlers", 0)
        .gauge("numActiveScanHandler", "Number of active scan rpc handlers", scan);
}

fn append_connections(record: &mut Record, stats: &RpcStats) {
    record
        .gauge("numOpenConnections", "Number of open connections", stats.connections_open)
        .gauge("nettyDirectMemoryUsage", "Current Netty direct memory usage", 0)
        .gauge(
            "nettyTotalPendingOutboundBytes",
            "Total pending outbound bytes of all connections",
            stats.unsent_bytes,
        )
        .gauge("nettyMaxPendingOutboundBytes", "Always 0: not known by connection", 0)
        .counter("sentBytes", "Number of bytes sent", stats.sent_bytes)
        .counter("receivedBytes", "Number of bytes received", stats.received_bytes)
        .counter("maxOutboundBytesExceeded", "Always 0: see callQueueTooBig", 0);
}

fn append_exceptions(record: &mut Record, metrics: &RpcMetrics) {
    for (name, description) in ZERO {
        record.counter(name, description, 0);
    }
    let mut known = 0;
    for (name, description, kind) in EXCEPTIONS {
        let count = metrics.exceptions(kind);
        known += count;
        record.counter(format!("exceptions.{name}"), description, count);
    }
    let all = metrics.all_exceptions();
    record.counter("exceptions", "Exceptions caused by requests", all).counter(
        "exceptions.otherExceptions",
        "Number of requests that resulted in an exception without a counter of its own",
        all.saturating_sub(known),
    );
}

fn append_times(record: &mut Record, metrics: &RpcMetrics) {
    let times = [
        ("queueCallTime", "Queue Call Time", CallValue::QueueTime),
        ("processCallTime", "Processing call time", CallValue::ProcessingTime),
        ("totalCallTime", "Total call time, including both queued and processing time", CallValue::TotalTime),
    ];
    for (name, description, value) in times {
        record.histogram(name, description, Ranges::Time, &metrics.interval(value));
    }
    record.histogram(
        "unwritableTime",
        "Always empty: a connection that is full is not read",
        Ranges::Time,
        &Default::default(),
    );
    let sizes = [
        ("requestSize", "Request size in bytes", CallValue::RequestBytes),
        ("responseSize", "Response size in bytes", CallValue::ReplyBytes),
    ];
    for (name, description, value) in sizes {
        record.histogram(name, description, Ranges::Size, &metrics.interval(value));
    }
}
