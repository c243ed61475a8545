//! Metrics of a WAL, and their record: sub=WAL (`MetricsWALSource`).
//!
//! An append updates its size and its table's counters on its thread: additions to memory that no
//! other core writes. Its time is that of the commit that writes it, which the committing thread
//! measures once for all entries of the batch. So no append reads the clock. The region resolves
//! its table's counters when it opens ([`Wal::table_appends`]), so no append looks up a table.
//!
//! `appendTime` is the time of the write that contains an entry, and `syncTime` that of a commit
//! with its syncs: what a writer waits for, apart from the commit before.
//!
//! Memory: three histograms for each log, and 300 bytes for each table. Tables that no region uses
//! are removed once there are [`TABLES_MAX`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_common::TableName;
use evenkeel_metrics::histogram::time_units;
use evenkeel_metrics::{Counter, Counters, Histogram, HistogramSnapshot, Interval, Ranges, Record};
use parking_lot::Mutex;

use crate::wal::{RollReason, Wal, WalStats};

/// The number of tables from which unused ones are removed.
pub const TABLES_MAX: usize = 1000;

/// The time from which a write counts as slow (`MetricsWAL.postAppend`).
const SLOW_APPEND: Duration = Duration::from_millis(1000);

/// The entries of one table, and their bytes.
#[derive(Debug, Default)]
pub struct TableAppends(Counters<2>);

impl TableAppends {
    fn add(&self, bytes: u64) {
        self.0.add(0, 1);
        self.0.add(1, bytes);
    }

    /// Entries.
    pub fn entries(&self) -> u64 {
        self.0.sum(0)
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.0.sum(1)
    }
}

/// Times and sizes of one log. See the [module](self).
#[derive(Debug, Default)]
pub struct WalMetrics {
    /// For each entry, the time of the write that contained it.
    append_time: Histogram,
    /// Bytes of each entry.
    append_size: Histogram,
    /// The time of each commit.
    sync_time: Histogram,
    slow_appends: Counter,
    tables: Mutex<BTreeMap<TableName, Arc<TableAppends>>>,
}

impl WalMetrics {
    /// Counts an entry.
    #[inline]
    pub(crate) fn appended(&self, bytes: usize, table: Option<&TableAppends>) {
        self.append_size.record(bytes as u64);
        if let Some(table) = table {
            table.add(bytes as u64);
        }
    }

    /// Counts a write of entries.
    pub(crate) fn written(&self, entries: u64, took: Duration) {
        if entries == 0 {
            return;
        }
        self.append_time.record_n(time_units(took), entries);
        if took > SLOW_APPEND {
            self.slow_appends.add(entries);
        }
    }

    /// Counts a commit.
    pub(crate) fn synced(&self, took: Duration) {
        self.sync_time.record_time(took);
    }

    /// Adds the times of all commits since the log was opened.
    pub fn add_sync_times(&self, sum: &mut HistogramSnapshot) {
        self.sync_time.add_to(sum);
    }

    pub(crate) fn of_table(&self, table: &TableName) -> Arc<TableAppends> {
        let mut tables = self.tables.lock();
        if let Some(appends) = tables.get(table) {
            return Arc::clone(appends);
        }
        if tables.len() >= TABLES_MAX {
            tables.retain(|_, appends| Arc::strong_count(appends) > 1);
        }
        Arc::clone(tables.entry(table.clone()).or_default())
    }

    /// Adds the entries of each table, and their bytes.
    pub fn add_tables(&self, sums: &mut BTreeMap<TableName, (u64, u64)>) {
        for (table, appends) in self.tables.lock().iter() {
            let sum = sums.entry(table.clone()).or_default();
            *sum = (sum.0 + appends.entries(), sum.1 + appends.bytes());
        }
    }
}

/// The record of the logs of one server, all together.
pub fn record(wals: &[&Wal]) -> Record {
    let mut record = Record::new("WAL", "regionserver", "name=RegionServer,sub=WAL");
    let of = |pick: fn(&WalMetrics) -> &Histogram| {
        wals.iter().fold(Interval::default(), |mut sum, wal| {
            sum.add(&pick(wal.metrics()).interval());
            sum
        })
    };
    let (time, size) = (Ranges::Time, Ranges::Size);
    record.histogram("appendTime", "The time an append to the log took.", time, &of(|m| &m.append_time));
    record.histogram(
        "appendSize",
        "Size (in bytes) of the data appended to the WAL.",
        size,
        &of(|m| &m.append_size),
    );
    record.histogram("syncTime", "The time it took to sync the WAL to HDFS.", time, &of(|m| &m.sync_time));
    let stats: Vec<WalStats> = wals.iter().map(|wal| wal.stats()).collect();
    let slow = wals.iter().map(|wal| wal.metrics().slow_appends.sum()).sum();
    add_counters(&mut record, &stats, slow);
    add_tables(&mut record, wals);
    record
}

fn add_counters(record: &mut Record, stats: &[WalStats], slow: u64) {
    let sum = |pick: &dyn Fn(&WalStats) -> u64| stats.iter().map(pick).sum();
    let rolls = |reason: RollReason| {
        sum(&|stats| stats.roll_requests.get(reason as usize).copied().unwrap_or_default())
    };
    record.counter("appendCount", "Number of appends to the write ahead log.", sum(&|stats| stats.entries));
    record.counter("slowAppendCount", "Number of appends that were slow.", slow);
    record.counter(
        "rollRequest",
        "How many times a roll has been requested total",
        sum(&|stats| stats.roll_requests.iter().sum()),
    );
    record.counter(
        "errorRollRequest",
        "How many times a roll was requested due to I/O or other errors.",
        rolls(RollReason::Error),
    );
    record.counter(
        "lowReplicaRollRequest",
        "How many times a roll was requested due to too few datanodes in the write pipeline.",
        rolls(RollReason::LowReplication),
    );
    record.counter(
        "slowSyncRollRequest",
        "How many times a roll was requested due to sync too slow on the write pipeline.",
        rolls(RollReason::SlowSync),
    );
    record.counter(
        "sizeRollRequest",
        "How many times a roll was requested due to file size roll threshold.",
        rolls(RollReason::Size),
    );
    record.counter("writtenBytes", "Size (in bytes) of the data written to the WAL.", sum(&|s| s.bytes));
    record.counter("successfulLogRolls", "Number of successful log rolls requests", sum(&|s| s.rolls));
}

fn add_tables(record: &mut Record, wals: &[&Wal]) {
    let mut tables = BTreeMap::new();
    wals.iter().for_each(|wal| wal.metrics().add_tables(&mut tables));
    for (table, (entries, bytes)) in tables {
        let (count, size) = (format!("{table}.appendCount"), format!("{table}.appendSize"));
        record.counter(count, "Number of appends to the write ahead log.", entries);
        record.counter(size, "Size (in bytes) of the data appended to the WAL.", bytes);
    }
}
