//! [`Report`]: the results of a run, as text, JSON, a page with plots, and HdrHistogram's files.
//!
//! All forms are made from one structure, so they agree.

use std::time::Instant;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::host::{CoreTimes, HostShares};
use crate::options::Options;
use crate::server::{ServerProcess, Usage};
use crate::stats::{Latencies, PeriodStats, Tally};

mod files;
pub mod page;
pub mod plot;
mod progress;
mod text;

pub use files::{write_hgrm, write_hlog, write_json};
pub use progress::Progress;
pub use text::summary;

/// One run on one cluster.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The cluster's name.
    pub target: String,
    /// The start time of the load.
    pub began_unix_s: f64,
    /// The options.
    pub options: Options,
    /// Notes.
    pub notes: Vec<String>,
    /// Latencies of the warm-up, if any.
    pub warmup: Option<Latencies>,
    /// Requests of the warm-up.
    pub warmup_requests: u64,
    /// Seconds of the measured part.
    pub seconds: f64,
    /// Its sums.
    pub tally: Tally,
    /// Requests a second.
    pub requests_per_s: f64,
    /// Rows of the test a second.
    pub rows_per_s: f64,
    /// Latencies from the due time (open loop) or the send (closed loop).
    pub latency: Latencies,
    /// Latencies from the send.
    pub service: Latencies,
    /// CPU seconds of this process.
    pub own_cpu_s: f64,
    /// The server's side, if it runs on this machine.
    pub server: Option<ServerReport>,
    /// The measured part over time.
    pub intervals: Vec<Interval>,
    /// The first failures.
    pub failures: Vec<String>,
    /// The latencies, in nanoseconds.
    #[serde(skip)]
    pub histogram: Histogram<u64>,
}

/// The server's side of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerReport {
    /// Its process.
    pub pid: i32,
    /// True if it is a JVM.
    pub jvm: bool,
    /// CPU seconds.
    pub cpu_s: f64,
    /// The largest observed resident bytes.
    pub rss_bytes: u64,
    /// Bytes that it wrote to storage.
    pub disk_written_bytes: u64,
    /// Bytes that it read, see [`Usage::read_bytes`].
    pub read_bytes: u64,
    /// CPU seconds of collector threads.
    pub gc_cpu_s: Option<f64>,
    /// Seconds of collections, see [`Usage::gc_time_s`].
    pub gc_time_s: Option<f64>,
    /// Collections.
    pub gc_count: Option<u64>,
    /// Seconds of the allocator, see [`Usage::allocator_s`].
    pub allocator_s: Option<f64>,
    /// Calls of the allocator.
    pub allocator_calls: Option<u64>,
}

impl ServerReport {
    pub(crate) fn new(server: &ServerProcess, before: &Usage, after: &Usage, rss_bytes: u64) -> Self {
        let difference = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| b - a);
        let more = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| b.saturating_sub(a));
        Self {
            pid: server.pid(),
            jvm: server.is_jvm(),
            cpu_s: after.cpu_s - before.cpu_s,
            rss_bytes,
            disk_written_bytes: after.disk_written_bytes.saturating_sub(before.disk_written_bytes),
            read_bytes: after.read_bytes.saturating_sub(before.read_bytes),
            gc_cpu_s: difference(before.gc_cpu_s, after.gc_cpu_s),
            gc_time_s: difference(before.gc_time_s, after.gc_time_s),
            gc_count: more(before.gc_count, after.gc_count),
            allocator_s: difference(before.allocator_s, after.allocator_s).map(|s| s.max(0.0)),
            allocator_calls: more(before.allocator_calls, after.allocator_calls),
        }
    }
}

/// One point of the time series.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Interval {
    /// Seconds since the start of the phase.
    pub at_s: f64,
    /// Its length.
    pub seconds: f64,
    /// Rows of the test.
    pub rows: u64,
    /// Requests.
    pub requests: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Latencies.
    pub latency: Latencies,
    /// Latencies from the send, without the load generator's lateness.
    pub service: Latencies,
    /// Cores that this process used.
    pub own_cores: f64,
    /// Cores that the server used.
    pub server_cores: Option<f64>,
    /// The server's resident bytes.
    pub server_rss_bytes: Option<u64>,
    /// Seconds of collections.
    pub server_gc_s: Option<f64>,
    /// The host's shares of this machine's cores; `None` if unknown.
    pub host: Option<HostShares>,
    #[serde(skip)]
    pub(crate) histogram: Histogram<u64>,
}

impl Interval {
    pub(crate) fn new(
        start: Instant,
        (from, to): (Instant, Instant),
        part: &PeriodStats,
        (before, after): (&Snapshot, &Snapshot),
    ) -> Self {
        let usage = before.server.zip(after.server);
        let seconds = to.saturating_duration_since(from).as_secs_f64();
        Self {
            at_s: from.saturating_duration_since(start).as_secs_f64(),
            seconds,
            rows: part.tally.rows,
            requests: part.tally.requests,
            errors: part.tally.errors,
            latency: Latencies::of(&part.latency),
            service: Latencies::of(&part.service),
            own_cores: (after.own_cpu_s - before.own_cpu_s) / seconds,
            server_cores: usage.map(|(before, after)| (after.cpu_s - before.cpu_s) / seconds),
            server_rss_bytes: usage.map(|(_, after)| after.rss_bytes),
            server_gc_s: usage.and_then(|(before, after)| Some(after.gc_time_s? - before.gc_time_s?)),
            host: before.cores.zip(after.cores).and_then(|(before, after)| after.since(&before)),
            histogram: part.latency.clone(),
        }
    }
}

/// The observations between two intervals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshot {
    pub(crate) server: Option<Usage>,
    pub(crate) own_cpu_s: f64,
    pub(crate) cores: Option<CoreTimes>,
}

impl Report {
    /// The options as one line.
    pub fn title(&self) -> String {
        let loop_ = self.options.rate.map_or("closed loop".to_owned(), |rate| format!("{rate} requests/s"));
        format!("{} {}, {loop_}", self.options.command, self.options.clients)
    }

    /// Warnings about misleading figures: most Gets found no row, so they are faster than Gets of
    /// rows.
    pub(crate) fn warnings(tally: &Tally, options: &Options) -> Vec<String> {
        let Tally { gets, gets_empty, .. } = *tally;
        // With this filter no Get returns a row.
        if options.filter_all || gets_empty * 2 <= gets {
            return Vec::new();
        }
        let Options { rows, clients, total_rows, table, .. } = options;
        let keys = match rows * *clients as i64 == *total_rows {
            true => format!("--rows={rows} times {clients} clients is {total_rows} rows"),
            false => format!("--size={} is {total_rows} rows", options.size),
        };
        vec![format!(
            "{gets_empty} of {gets} Gets found no row: {keys}, and {table} has fewer of them. A Get of an absent row \
             is not what is measured. Load the table by sequentialWrite with the same --rows and number of clients, \
             or give --rows (for each client) or --size (of the table) for the rows that it has"
        )]
    }

    /// The rows that requests moved: read; if none, written; if none, run.
    pub fn moved_rows(&self) -> u64 {
        let tally = &self.tally;
        [tally.rows_read, tally.rows_written, tally.rows].into_iter().find(|n| *n > 0).unwrap_or_default()
    }

    /// The server's CPU microseconds for each request.
    pub fn server_us_per_request(&self) -> Option<f64> {
        Some(self.server.as_ref()?.cpu_s * 1e6 / self.tally.requests.max(1) as f64)
    }

    /// This process's CPU microseconds for each request.
    pub fn own_us_per_request(&self) -> f64 {
        self.own_cpu_s * 1e6 / self.tally.requests.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_empty_gets_are_warned_about() {
        let options = Options { rows: 100, clients: 4, total_rows: 400, ..Options::default() };
        let tally = |gets, gets_empty| Tally { gets, gets_empty, ..Tally::default() };
        let warnings = |tally: &Tally| Report::warnings(tally, &options);
        assert!(warnings(&tally(1000, 500)).is_empty() && warnings(&tally(0, 0)).is_empty());
        let told = warnings(&tally(1000, 750));
        assert_eq!(told.len(), 1);
        let begins =
            "750 of 1000 Gets found no row: --rows=100 times 4 clients is 400 rows, and TestTable has fewer";
        assert!(told[0].starts_with(begins), "{}", told[0]);
        let filtered = Options { filter_all: true, ..options.clone() };
        assert!(Report::warnings(&tally(1000, 1000), &filtered).is_empty());
        let sized = Options { size: 2.5, ..options };
        let sized = Options { total_rows: 2_500_000, ..sized };
        assert!(Report::warnings(&tally(9, 9), &sized)[0].contains("--size=2.5 is 2500000 rows"));
    }
}
