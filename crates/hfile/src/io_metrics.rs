//! [`IoMetrics`]: the durations of reads and writes of store files, and the record that reports
//! them: sub=IO (`MetricsIOSource`).
//!
//! The counts are those of the process, as in HBase. A block found in a cache needs no read of a
//! file, so it is not counted.

use std::sync::LazyLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use evenkeel_block_cache::CacheHint;
use evenkeel_common::clock;
use evenkeel_metrics::waits;
use evenkeel_metrics::{Counter, Histogram, Ranges, Record};

use crate::block::checksum_failures_count;

/// The two kinds of read that HBase distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadPattern {
    /// Sequential blocks: compactions, scans that keep no block, and the blocks read when a file is
    /// opened.
    Stream,
    /// A single block that a Get or a scan needs.
    Positioned,
}

impl ReadPattern {
    pub fn of(hint: CacheHint) -> Self {
        if hint.insert { Self::Positioned } else { Self::Stream }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct IoMetrics {
    read_time: Histogram,
    pread_time: Histogram,
    write_time: Histogram,
    slow_reads: Counter,
    slow_read_ms: AtomicU64,
}

/// The reads and writes of this process.
pub fn get() -> &'static IoMetrics {
    static IO: LazyLock<IoMetrics> = LazyLock::new(|| IoMetrics {
        read_time: Histogram::default(),
        pread_time: Histogram::default(),
        write_time: Histogram::default(),
        slow_reads: Counter::default(),
        slow_read_ms: AtomicU64::new(u64::MAX),
    });
    &IO
}

impl IoMetrics {
    /// Sets the duration from which a read counts as slow: `hbase.fs.reader.warn.time.ms`, by
    /// default none.
    pub fn set_slow_read_ms(&self, ms: Option<u64>) {
        self.slow_read_ms.store(ms.unwrap_or(u64::MAX), Relaxed);
    }

    /// Counts a read of `file` that started at `began_at` and just ended.
    pub(crate) fn read(&self, pattern: ReadPattern, file: &str, began_at: Instant) {
        let took = clock::since(began_at);
        let times = match pattern {
            ReadPattern::Stream => &self.read_time,
            ReadPattern::Positioned => &self.pread_time,
        };
        times.record_time(took);
        waits::note_read(file, began_at, took);
        if took.as_millis() > u128::from(self.slow_read_ms.load(Relaxed)) {
            self.slow_reads.add(1);
        }
    }

    pub(crate) fn wrote(&self, took: Duration) {
        self.write_time.record_time(took);
    }

    /// The record, with HBase's names.
    pub fn record(&self) -> Record {
        let mut record = Record::new("IO", "regionserver", "name=RegionServer,sub=IO");
        let mut times = |name, description, of: &Histogram| {
            record.histogram(name, description, Ranges::Time, &of.interval());
        };
        times(
            "fsReadTime",
            "Latency of HFile's sequential reads on this region server in milliseconds",
            &self.read_time,
        );
        times(
            "fsPReadTime",
            "Latency of HFile's positional reads on this region server in milliseconds",
            &self.pread_time,
        );
        times(
            "fsWriteTime",
            "Latency of HFile's writes on this region server in milliseconds",
            &self.write_time,
        );
        record.counter(
            "fsChecksumFailureCount",
            "Number of checksum failures for the HBase HFile checksums at the HBase level (separate from HDFS checksums)",
            checksum_failures_count(),
        );
        record.counter(
            "fsSlowReadsCount",
            "Number of HFile reads which were slower than a configured threshold",
            self.slow_reads.sum(),
        );
        record
    }
}
