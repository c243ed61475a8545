//! [`StoreMetrics`]: flushes, compactions and splits, of each table and of the server.
//!
//! These events are rare and long, so each is recorded when it ends, for its table and for the
//! server. The server's totals include deleted tables. Memory: about 1 KiB for each table, and 16
//! bytes for each bucket of a histogram that has values. Tables that no region uses are removed
//! once there are [`TABLES_MAX`].

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use evenkeel_common::{TableName, clock};
use evenkeel_metrics::{Interval, Meter, MeterRates, Ranges, Record, SparseHistogram};
use parking_lot::Mutex;

/// From this number of tables on, those that no region uses are removed.
pub const TABLES_MAX: usize = 1000;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct StoreMetrics {
    server: TableMetrics,
    /// In microseconds, as HBase's timers.
    bulk_load_us: SparseHistogram,
    bulk_loads: OnceLock<Meter>,
    tables: Mutex<BTreeMap<TableName, Arc<TableMetrics>>>,
}

impl StoreMetrics {
    /// The totals of all tables.
    pub fn server(&self) -> &TableMetrics {
        &self.server
    }

    /// The metrics of one table. A region takes them when it opens.
    pub fn of_table(&self, table: &TableName) -> Arc<TableMetrics> {
        let mut tables = self.tables.lock();
        if let Some(metrics) = tables.get(table) {
            return Arc::clone(metrics);
        }
        if tables.len() >= TABLES_MAX {
            tables.retain(|_, metrics| Arc::strong_count(metrics) > 1);
        }
        Arc::clone(tables.entry(table.clone()).or_default())
    }

    /// Counts a completed bulk load.
    pub(crate) fn bulk_loaded(&self, took: Duration) {
        self.bulk_load_us.record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    /// Returns the times of bulk loads in microseconds, and their rates since the first call.
    pub fn bulk_loads(&self) -> (Interval, MeterRates) {
        let (times, now) = (self.bulk_load_us.interval(), clock::monotonic());
        let rates = self.bulk_loads.get_or_init(|| Meter::new(now)).rates(times.total, now);
        (times, rates)
    }

    /// Counts a requested split.
    pub fn split_requested(&self, table: &TableName) {
        for metrics in [&self.server, &*self.of_table(table)] {
            metrics.split_requests.fetch_add(1, Relaxed);
        }
    }

    /// Counts a completed split.
    pub fn split_done(&self, table: &TableName, took: Duration) {
        for metrics in [&self.server, &*self.of_table(table)] {
            metrics.splits.fetch_add(1, Relaxed);
            metrics.split_time.record_time(took);
        }
    }
}

/// A flush that has ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlushEnd {
    /// How long it took.
    pub took: Duration,
    /// Cells in the snapshot.
    pub cells: u64,
    /// Their bytes.
    pub memstore_bytes: u64,
    /// Bytes of the files.
    pub output_bytes: u64,
}

/// A compaction of one store that has ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompactionEnd {
    /// True if it was major.
    pub is_major: bool,
    /// How long it took.
    pub took: Duration,
    /// Files that it compacted.
    pub input_files: u64,
    /// Bytes of these files.
    pub input_bytes: u64,
    /// Cells of these files.
    pub cells: u64,
    /// Bytes of these files without encoding and compression.
    pub cell_bytes: u64,
    /// Files that replace them.
    pub output_files: u64,
    /// Bytes of the files that replace them.
    pub output_bytes: u64,
}

/// Flushes, compactions and splits of one table, or of all.
#[derive(Debug, Default)]
pub struct TableMetrics {
    flush_time: SparseHistogram,
    flush_memstore_size: SparseHistogram,
    flush_output_size: SparseHistogram,
    flushed_cells: AtomicU64,
    flushed_memstore_bytes: AtomicU64,
    flushed_output_bytes: AtomicU64,
    compactions: Compactions,
    major_compactions: Compactions,
    split_time: SparseHistogram,
    split_requests: AtomicU64,
    splits: AtomicU64,
}

#[derive(Debug, Default)]
struct Compactions {
    time: SparseHistogram,
    input_files: SparseHistogram,
    output_files: SparseHistogram,
    input_size: SparseHistogram,
    output_size: SparseHistogram,
    cells: AtomicU64,
    cell_bytes: AtomicU64,
    input_bytes: AtomicU64,
    output_bytes: AtomicU64,
}

impl TableMetrics {
    /// Counts a flush.
    pub(crate) fn flushed(&self, end: &FlushEnd) {
        self.flush_time.record_time(end.took);
        self.flush_memstore_size.record(end.memstore_bytes);
        self.flush_output_size.record(end.output_bytes);
        self.flushed_cells.fetch_add(end.cells, Relaxed);
        self.flushed_memstore_bytes.fetch_add(end.memstore_bytes, Relaxed);
        self.flushed_output_bytes.fetch_add(end.output_bytes, Relaxed);
    }

    /// Counts a compaction. Major compactions also count among all compactions.
    pub(crate) fn compacted(&self, end: &CompactionEnd) {
        self.compactions.add(end);
        if end.is_major {
            self.major_compactions.add(end);
        }
    }

    /// Appends the metrics of flushes, compactions and splits in sub=Server and sub=Tables, with a
    /// prefix to each name.
    pub fn append_to(&self, record: &mut Record, prefix: &str) {
        let name = |rest: &str| format!("{prefix}{rest}");
        let (time, size) = (Ranges::Time, Ranges::Size);
        record
            .histogram(
                &name("flushTime"),
                "Histogram for the time in millis for memstore flush",
                time,
                &self.flush_time.interval(),
            )
            .histogram(
                &name("flushMemstoreSize"),
                "Histogram for number of bytes in the memstore for a flush",
                size,
                &self.flush_memstore_size.interval(),
            )
            .histogram(
                &name("flushOutputSize"),
                "Histogram for number of bytes in the resulting file for a flush",
                size,
                &self.flush_output_size.interval(),
            )
            .counter(
                name("flushedOutputBytes"),
                "Total number of bytes written from flush",
                get(&self.flushed_output_bytes),
            )
            .counter(
                name("flushedMemstoreBytes"),
                "Total number of bytes of cells in memstore from flush",
                get(&self.flushed_memstore_bytes),
            );
        self.compactions.append_to(record, prefix, &COMPACTIONS);
        self.major_compactions.append_to(record, prefix, &MAJOR_COMPACTIONS);
        record
            .histogram(&name("splitTime"), "", time, &self.split_time.interval())
            .counter(name("splitRequestCount"), "Number of splits requested", get(&self.split_requests))
            .counter(name("splitSuccessCount"), "Number of successfully executed splits", get(&self.splits));
    }

    /// Appends the counts of cells, which only sub=Server has.
    pub fn append_cells_to(&self, record: &mut Record) {
        let (all, major) = (&self.compactions, &self.major_compactions);
        let minor = |of: fn(&Compactions) -> &AtomicU64| get(of(all)).saturating_sub(get(of(major)));
        record
            .counter("flushedCellsCount", "The number of cells flushed to disk", get(&self.flushed_cells))
            .counter(
                "flushedCellsSize",
                "The total amount of data flushed to disk, in bytes",
                get(&self.flushed_memstore_bytes),
            )
            .counter(
                "compactedCellsCount",
                "The number of cells processed during minor compactions",
                minor(|compactions| &compactions.cells),
            )
            .counter(
                "compactedCellsSize",
                "The total amount of data processed during minor compactions, in bytes",
                minor(|compactions| &compactions.cell_bytes),
            )
            .counter(
                "majorCompactedCellsCount",
                "The number of cells processed during major compactions",
                get(&major.cells),
            )
            .counter(
                "majorCompactedCellsSize",
                "The total amount of data processed during major compactions, in bytes",
                get(&major.cell_bytes),
            );
    }
}

/// Names of the metrics of compactions.
struct CompactionNames {
    time: &'static str,
    input_files: &'static str,
    input_size: &'static str,
    output_files: &'static str,
    output_size: &'static str,
    input_bytes: &'static str,
    output_bytes: &'static str,
}

const COMPACTIONS: CompactionNames = CompactionNames {
    time: "compactionTime",
    input_files: "compactionInputFileCount",
    input_size: "compactionInputSize",
    output_files: "compactionOutputFileCount",
    output_size: "compactionOutputSize",
    input_bytes: "compactedInputBytes",
    output_bytes: "compactedOutputBytes",
};

const MAJOR_COMPACTIONS: CompactionNames = CompactionNames {
    time: "majorCompactionTime",
    input_files: "majorCompactionInputFileCount",
    input_size: "majorCompactionInputSize",
    output_files: "majorCompactionOutputFileCount",
    output_size: "majorCompactionOutputSize",
    input_bytes: "majorCompactedInputBytes",
    output_bytes: "majorCompactedOutputBytes",
};

impl Compactions {
    fn add(&self, end: &CompactionEnd) {
        self.time.record_time(end.took);
        self.input_files.record(end.input_files);
        self.output_files.record(end.output_files);
        self.input_size.record(end.input_bytes);
        self.output_size.record(end.output_bytes);
        self.cells.fetch_add(end.cells, Relaxed);
        self.cell_bytes.fetch_add(end.cell_bytes, Relaxed);
        self.input_bytes.fetch_add(end.input_bytes, Relaxed);
        self.output_bytes.fetch_add(end.output_bytes, Relaxed);
    }

    fn append_to(&self, record: &mut Record, prefix: &str, names: &CompactionNames) {
        let name = |rest: &str| format!("{prefix}{rest}");
        let (time, size) = (Ranges::Time, Ranges::Size);
        record
            .histogram(
                &name(names.time),
                "Histogram for the time in millis for compaction",
                time,
                &self.time.interval(),
            )
            .histogram(
                &name(names.input_files),
                "Histogram for the compaction input number of files",
                Ranges::None,
                &self.input_files.interval(),
            )
            .histogram(
                &name(names.input_size),
                "Histogram for the compaction total input file sizes",
                size,
                &self.input_size.interval(),
            )
            .histogram(
                &name(names.output_files),
                "Histogram for the compaction output number of files",
                Ranges::None,
                &self.output_files.interval(),
            )
            .histogram(
                &name(names.output_size),
                "Histogram for the compaction total output file sizes",
                size,
                &self.output_size.interval(),
            )
            .counter(
                name(names.input_bytes),
                "Total number of bytes that is read for compaction",
                get(&self.input_bytes),
            )
            .counter(
                name(names.output_bytes),
                "Total number of bytes that is output from compaction",
                get(&self.output_bytes),
            );
    }
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Relaxed)
}
