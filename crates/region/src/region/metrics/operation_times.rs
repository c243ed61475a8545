//! [`OperationTimes`]: latencies of the operations on a table, and [`TableOperationTimes`], which
//! has those of every table and of the server.
//!
//! The regions of a table share one set of histograms. A region looks up its table's set when it
//! opens, so requests need no lookup. The server's figures are the sum of its tables'. A table
//! without an open region on this server is dropped when the figures are next read; its values stay
//! in the server's, which therefore never decrease.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_common::{TableName, clock};
use evenkeel_metrics::histogram::{
    Histogram, HistogramSnapshot, Interval, Intervals, time_units, time_units_of_ns,
};
use evenkeel_metrics::{Meter, MeterRates};
use parking_lot::Mutex;

/// From this number of meters on, those of tables without an open region are dropped.
const METERS_MAX: usize = 1000;

/// The operations that HBase times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A Get, alone or of a batch.
    Get,
    /// A call of a scan.
    Scan,
    /// A Put.
    Put,
    /// The Puts of a batch for one region.
    PutBatch,
    /// A Delete.
    Delete,
    /// The Deletes of a batch for one region.
    DeleteBatch,
    /// An Increment.
    Increment,
    /// An Append.
    Append,
    /// A Put under a condition.
    CheckAndPut,
    /// A Delete under a condition.
    CheckAndDelete,
    /// Any write under a condition.
    CheckAndMutate,
}

impl Operation {
    /// All operations, in the order of their numbers.
    pub const ALL: [Self; 11] = [
        Self::Get,
        Self::Scan,
        Self::Put,
        Self::PutBatch,
        Self::Delete,
        Self::DeleteBatch,
        Self::Increment,
        Self::Append,
        Self::CheckAndPut,
        Self::CheckAndDelete,
        Self::CheckAndMutate,
    ];

    /// The name of its histogram among the server's metrics.
    pub fn server_metric(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Scan => "scanTime",
            Self::Put => "put",
            Self::PutBatch => "putBatch",
            Self::Delete => "delete",
            Self::DeleteBatch => "deleteBatch",
            Self::Increment => "increment",
            Self::Append => "append",
            Self::CheckAndPut => "checkAndPut",
            Self::CheckAndDelete => "checkAndDelete",
            Self::CheckAndMutate => "checkAndMutate",
        }
    }

    /// The name of its histogram among a table's metrics.
    pub fn table_metric(self) -> &'static str {
        match self {
            Self::Get => "getTime",
            Self::Scan => "scanTime",
            Self::Put => "putTime",
            Self::PutBatch => "putBatchTime",
            Self::Delete => "deleteTime",
            Self::DeleteBatch => "deleteBatchTime",
            Self::Increment => "incrementTime",
            Self::Append => "appendTime",
            Self::CheckAndPut => "checkAndPutTime",
            Self::CheckAndDelete => "checkAndDeleteTime",
            Self::CheckAndMutate => "checkAndMutateTime",
        }
    }
}

/// The latencies of a table's operations.
#[derive(Debug, Default)]
pub struct OperationTimes {
    times: [Histogram; Operation::ALL.len()],
    /// Bytes of the cells that each call of a scan returned.
    scan_bytes: Histogram,
}

impl OperationTimes {
    /// Counts an operation.
    #[inline]
    pub fn record(&self, operation: Operation, time: Duration) {
        self.record_batch(operation, time, 1);
    }

    /// Counts an operation that took this number of nanoseconds.
    #[inline]
    pub fn record_ns(&self, operation: Operation, ns: u64) {
        if let Some(histogram) = self.times.get(operation as usize) {
            histogram.record(time_units_of_ns(ns));
        }
    }

    /// Records `count` operations that took `time` together, each with an equal part of it.
    #[inline]
    pub fn record_batch(&self, operation: Operation, time: Duration, count: u32) {
        if count > 0
            && let Some(histogram) = self.times.get(operation as usize)
        {
            histogram.record_n(time_units(time) / u64::from(count), u64::from(count));
        }
    }

    /// Records the bytes that a call of a scan returned.
    pub fn record_scan_bytes(&self, bytes: u64) {
        self.scan_bytes.record(bytes);
    }

    /// Returns the latencies of an operation in the last interval.
    pub fn interval(&self, operation: Operation) -> Interval {
        self.times.get(operation as usize).map_or_else(Interval::default, Histogram::interval)
    }

    /// Returns the bytes that calls of scans returned in the last interval.
    pub fn scan_bytes_interval(&self) -> Interval {
        self.scan_bytes.interval()
    }
}

/// The distributions of a server: one for each operation, and the bytes of scans.
type HistogramTotals = [HistogramSnapshot; Operation::ALL.len() + 1];

/// The operation times of all tables. See the module's documentation.
#[derive(Debug, Default)]
pub struct TableOperationTimes {
    state: Mutex<Tables>,
    /// Meters of reads and of writes: of the server (`None`) and of tables.
    meters: Mutex<BTreeMap<Option<TableName>, [Meter; 2]>>,
    intervals: [Intervals; Operation::ALL.len() + 1],
}

#[derive(Debug, Default)]
struct Tables {
    open: BTreeMap<TableName, Arc<OperationTimes>>,
    /// The values of tables that no longer have an open region.
    closed_tables: HistogramTotals,
}

impl TableOperationTimes {
    /// Returns the histograms of a table, for a region that opens.
    pub fn of_table(&self, table: &TableName) -> Arc<OperationTimes> {
        let mut state = self.state.lock();
        Arc::clone(state.open.entry(table.clone()).or_default())
    }

    /// Returns the tables with an open region, and their histograms.
    pub fn tables(&self) -> Vec<(TableName, Arc<OperationTimes>)> {
        let mut state = self.state.lock();
        state.fold_closed_tables();
        state.open.iter().map(|(table, times)| (table.clone(), Arc::clone(times))).collect()
    }

    /// Returns the rates of the reads and the writes of a table, or of the server (`None`), from
    /// their `counts`. The first call starts the measurement.
    pub fn rates(&self, table: Option<&TableName>, counts: [u64; 2]) -> [MeterRates; 2] {
        let now = clock::monotonic();
        let mut meters = self.meters.lock();
        if meters.len() > METERS_MAX {
            let state = self.state.lock();
            meters.retain(|table, _| table.as_ref().is_none_or(|table| state.open.contains_key(table)));
        }
        let [reads, writes] =
            meters.entry(table.cloned()).or_insert_with(|| [Meter::new(now), Meter::new(now)]);
        [reads.rates(counts[0], now), writes.rates(counts[1], now)]
    }

    /// Returns all latencies of an operation since the start, over all tables.
    pub fn server_total(&self, operation: Operation) -> HistogramSnapshot {
        let state = self.state.lock();
        let mut sum = state.closed_tables.get(operation as usize).cloned().unwrap_or_default();
        for times in state.open.values() {
            if let Some(histogram) = times.times.get(operation as usize) {
                histogram.add_to(&mut sum);
            }
        }
        sum
    }

    /// Returns the server's latencies of each operation in the last interval, and the bytes of
    /// scans.
    pub fn server(&self) -> (Vec<(Operation, Interval)>, Interval) {
        let mut sums = {
            let mut state = self.state.lock();
            state.fold_closed_tables();
            let mut sums = state.closed_tables.clone();
            state.open.values().for_each(|times| times.add_to(&mut sums));
            sums
        };
        let mut intervals = self.intervals.iter().zip(&mut sums).map(|(of, sum)| of.of(std::mem::take(sum)));
        let times = Operation::ALL.into_iter().zip(intervals.by_ref()).collect();
        let scan_bytes = intervals.next().unwrap_or_default();
        (times, scan_bytes)
    }
}

impl OperationTimes {
    fn add_to(&self, sums: &mut HistogramTotals) {
        let all = self.times.iter().chain([&self.scan_bytes]);
        all.zip(sums).for_each(|(histogram, sum)| histogram.add_to(sum));
    }
}

impl Tables {
    /// Adds the values of tables without an open region to `closed_tables`.
    fn fold_closed_tables(&mut self) {
        let Self { open, closed_tables } = self;
        open.retain(|_, times| {
            let is_open = Arc::strong_count(times) > 1;
            if !is_open {
                times.add_to(closed_tables);
            }
            is_open
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &TableOperationTimes) -> (u64, u64) {
        let (times, scan_bytes) = of.server();
        (times.iter().find(|(op, _)| *op == Operation::Get).unwrap().1.total, scan_bytes.total)
    }

    #[test]
    fn server_totals_keep_the_values_of_dropped_tables() {
        let all = TableOperationTimes::default();
        let (t, u): (TableName, TableName) = ("t".parse().unwrap(), "u".parse().unwrap());
        let (of_t, of_u) = (all.of_table(&t), all.of_table(&u));
        of_t.record(Operation::Get, Duration::from_micros(20));
        of_u.record_batch(Operation::Get, Duration::from_micros(300), 3);
        of_u.record_scan_bytes(7);
        assert!(Arc::ptr_eq(&of_t, &all.of_table(&t)));
        assert_eq!((counts(&all), all.tables().len()), ((4, 1), 2));
        let mean = of_u.interval(Operation::Get).values.mean() * 128.0 / 1000.0;
        assert!((95.0..105.0).contains(&mean), "{mean} µs");
        drop(of_u);
        assert_eq!((counts(&all), all.tables().len()), ((4, 1), 1));
        assert_eq!(counts(&all), (4, 1));
    }

    #[test]
    fn operation_numbers_match_their_order() {
        for (number, operation) in Operation::ALL.into_iter().enumerate() {
            assert_eq!(operation as usize, number);
        }
    }
}
