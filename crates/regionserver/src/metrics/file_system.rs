//! The part of sub=Server about reads of the file system. The values are 0 on a local file system,
//! as in HBase.

use evenkeel_fs::ReadStatistics;
use evenkeel_metrics::Record;

/// Appends bytes read from HDFS, and hedged reads.
pub fn append(record: &mut Record, reads: &ReadStatistics) {
    record
        .gauge("totalBytesRead", "The total number of bytes read from HDFS", reads.bytes)
        .gauge("localBytesRead", "The number of bytes read from the local HDFS DataNode", reads.local_bytes)
        .gauge(
            "shortCircuitBytesRead",
            "The number of bytes read through HDFS short circuit read",
            reads.short_circuit_bytes,
        )
        .gauge("zeroCopyBytesRead", "The number of bytes read through HDFS zero copy", 0);
    record
        .counter("hedgedReads", "The number of times we started a hedged read", reads.hedged_reads)
        .counter(
            "hedgedReadWins",
            "The number of times we started a hedged read and a hedged read won",
            reads.hedged_read_wins,
        )
        .counter(
            "hedgedReadOpsInCurThread",
            "The number of times we execute a hedged read in current thread as a fallback for task rejection",
            reads.hedged_reads_refused,
        );
}
