//! [`Options`]: PerformanceEvaluation's options, by its names and rules, and further ones.
//!
//! Facts of HBase's tool: `--key=value` before the command, flags as `--flag` or
//! `--flag=true|false`, then the command and the number of clients. `--rows` counts a client's
//! rows, `--size` the table's gigabytes (more than 1) at 1,048,576,000 bytes of values each. Sums
//! use the same arithmetic, in single precision where HBase does, so that the same options mean the
//! same rows.

use evenkeel_common::length;
use serde::Serialize;

use crate::command::Command;

mod parse;

pub use parse::{Parsed, parse, usage};

/// Bytes of values that HBase's tool calls a gigabyte (`ONE_GB`).
const GB_BYTES: i64 = 1024 * 1024 * 1000;
/// The default of `--rows`: a gigabyte of values of 1000 bytes.
const ROWS_DEFAULT: i64 = GB_BYTES / 1000;

/// The options of one run. Fields are named as the options; [`usage`] explains them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Options {
    /// The command's name.
    pub command: String,
    /// Clients: loops with one request in flight each.
    pub clients: usize,
    /// Rows that each client runs.
    pub rows: i64,
    /// Rows of the table, from `rows` and `clients` or from `size`.
    pub total_rows: i64,
    /// Gigabytes of values in the table.
    pub size: f32,
    /// The first row of a client, if not 0.
    pub start_row: i64,
    /// The number of times that each client runs its rows.
    pub cycles: u32,
    /// The sampled part of the rows.
    pub sample_rate: f32,
    /// Rows of each client that are not measured.
    pub measure_after: i64,
    /// The table.
    pub table: String,
    /// Columns of a family in each row.
    pub columns: usize,
    /// Families, named `info0`, `info1`, ...
    pub families: usize,
    /// Bytes of a value, or their limit.
    pub value_size: usize,
    /// Uniform lengths below `value_size`.
    pub value_random: bool,
    /// Zipf-distributed lengths below `value_size`.
    pub value_zipf: bool,
    /// Gets in one call; 0: single Gets.
    pub multi_get: usize,
    /// Puts in one call; 0: single Puts.
    pub multi_put: usize,
    /// Each Put is sent immediately.
    pub auto_flush: bool,
    /// Bytes of Puts that are buffered without `auto_flush`.
    pub buffer_size: usize,
    /// Puts go to the WAL.
    pub write_to_wal: bool,
    /// Durability of mutations; overrides `write_to_wal`: `SKIP_WAL`, `ASYNC_WAL`, `SYNC_WAL` or
    /// `FSYNC_WAL`.
    pub durability: Option<String>,
    /// Tags on the cells of Puts; the connection's codec then carries tags.
    pub use_tags: bool,
    /// Tags a cell.
    pub no_of_tags: usize,
    /// Regions of a new table; 0: an existing table's, or one.
    pub presplit: usize,
    /// The split policy's class.
    pub split_policy: Option<String>,
    /// Replicas of a region.
    pub replicas: u32,
    /// Compression of the families.
    pub compress: String,
    /// Encryption of the families.
    pub encryption: Option<String>,
    /// Data block encoding of the families.
    pub block_encoding: String,
    /// Bloom filter of the families.
    pub bloom_filter: String,
    /// Block bytes of the families.
    pub block_size: usize,
    /// IN_MEMORY of the families.
    pub inmemory: bool,
    /// In-memory compaction of the families.
    pub inmemory_compaction: String,
    /// One connection for all clients.
    pub one_con: bool,
    /// Connections; `None`: one for each client.
    pub conn_count: Option<usize>,
    /// Rows of one call of a scan.
    pub caching: u32,
    /// Reads name their columns.
    pub add_columns: bool,
    /// Reads return nothing: the server filters all rows.
    pub filter_all: bool,
    /// The part of the rows that scans return; the server filters the others, at random.
    pub return_part: Option<f32>,
    /// Blocks that scans read go into the cache.
    pub cache_blocks: bool,
    /// `DEFAULT`, `STREAM` or `PREAD`.
    pub scan_read_type: String,
    /// Largest pause in ms before a random Get.
    pub random_sleep: u64,
    /// Print each client's latencies.
    pub latency: bool,
    /// Count requests that took this many ms; 0: do not.
    pub latency_threshold: u64,
    /// Rows of a client between two progress reports.
    pub period: i64,
    /// Arrivals a second over all clients; `None`: closed loop.
    pub rate: Option<f64>,
    /// Arrivals at random times (Poisson) instead of even ones.
    pub poisson: bool,
    /// Seconds of warm-up.
    pub warmup: f64,
    /// Measured seconds, regardless of the rows; 0: until the rows are done.
    pub duration: f64,
    /// Load threads; 0: half of the cores.
    pub threads: usize,
    /// Seconds of one interval of the time series.
    pub interval: f64,
    /// The server's process id; `None`: found by its port.
    pub server_pid: Option<i32>,
    /// Show a line of progress.
    pub progress: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            command: String::new(),
            clients: 1,
            rows: ROWS_DEFAULT,
            total_rows: ROWS_DEFAULT,
            size: 1.0,
            start_row: 0,
            cycles: 1,
            sample_rate: 1.0,
            measure_after: 0,
            table: "TestTable".to_owned(),
            columns: 1,
            families: 1,
            value_size: 1000,
            value_random: false,
            value_zipf: false,
            multi_get: 0,
            multi_put: 0,
            auto_flush: false,
            buffer_size: 2 << 20,
            write_to_wal: true,
            durability: None,
            use_tags: false,
            no_of_tags: 1,
            presplit: 0,
            split_policy: None,
            replicas: 1,
            compress: "NONE".to_owned(),
            encryption: None,
            block_encoding: "NONE".to_owned(),
            bloom_filter: "ROW".to_owned(),
            block_size: 65_536,
            inmemory: false,
            inmemory_compaction: "NONE".to_owned(),
            one_con: false,
            conn_count: None,
            caching: 30,
            add_columns: true,
            filter_all: false,
            return_part: None,
            cache_blocks: true,
            scan_read_type: "DEFAULT".to_owned(),
            random_sleep: 0,
            latency: false,
            latency_threshold: 0,
            period: ROWS_DEFAULT / 10,
            rate: None,
            poisson: false,
            warmup: 0.0,
            duration: 0.0,
            threads: 0,
            interval: 1.0,
            server_pid: None,
            progress: false,
        }
    }
}

impl Options {
    /// The options of one command line without a target: `options("--rows=10 randomRead 4")`.
    ///
    /// # Errors
    /// As [`parse`].
    pub fn of_line(line: &str) -> Result<Self, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&words)?.options.ok_or_else(|| "no command".to_owned())
    }

    /// The command.
    pub fn kind(&self) -> Command {
        Command::of_name(&self.command).unwrap_or(Command::RandomRead)
    }

    /// Connections over all clients.
    pub fn connections(&self) -> usize {
        match self.one_con {
            true => 1,
            false => self.conn_count.unwrap_or(self.clients).max(1),
        }
    }

    /// The sampling interval in rows: a sample rate of 0.3 runs every third row (`1 / sampleRate`,
    /// truncated).
    pub fn sampling_interval(&self) -> i64 {
        length::integer_part(f64::from(1.0 / self.sample_rate)).max(1)
    }

    /// The rows of a client: first, and last plus one.
    pub fn range(&self, client: usize) -> (i64, i64) {
        match (self.kind().shares_rows(), self.start_row) {
            (true, _) => (0, self.rows),
            (false, 0) => (client as i64 * self.rows, (client as i64 + 1) * self.rows),
            (false, start) => (start, start + self.rows),
        }
    }

    /// The split keys of a new table.
    pub fn splits(&self) -> Vec<[u8; crate::data::ROW_BYTES]> {
        let regions = self.presplit as i64;
        let jump = if regions > 0 { self.total_rows / regions } else { 0 };
        (1..regions).map(|i| crate::data::row_key(jump * i)).collect()
    }

    /// Computes the rows of a client and of the table from the other options
    /// (`calculateRowsAndSize`).
    ///
    /// # Errors
    /// If values have no bytes, so that a size is undefined.
    pub fn resolve_rows(&mut self) -> Result<(), String> {
        let value = if self.value_random { self.value_size / 2 } else { self.value_size };
        let row = (value * self.families * self.columns) as i64;
        let rows_per_gb = GB_BYTES.checked_div(row).ok_or("values must have more than one byte")?;
        let sized = (f64::from(self.size) - 1.0).abs() > f64::EPSILON;
        if sized {
            self.total_rows = length::integer_part(f64::from(self.size * rows_per_gb as f32));
            let both = self.kind().reads_within_size() && self.rows != ROWS_DEFAULT;
            if !both {
                self.rows = self.total_rows / self.clients as i64;
            }
        } else {
            self.total_rows = self.rows * self.clients as i64;
            self.size = (self.total_rows / rows_per_gb.max(1)) as f32;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Options {
        Options::of_line(line).unwrap_or_else(|why| panic!("{line}: {why}"))
    }

    #[test]
    fn rows_and_size_are_hbases() {
        let rows = |line| (of(line).rows, of(line).total_rows);
        assert_eq!(rows("sequentialWrite 1"), (1_048_576, 1_048_576));
        assert_eq!(rows("sequentialWrite 10"), (1_048_576, 10_485_760));
        assert_eq!(rows("--size=10 sequentialWrite 10"), (1_048_576, 10_485_760));
        assert_eq!(rows("--size=10 --valueSize=100 randomWrite 2"), (52_428_800, 104_857_600));
        assert_eq!(rows("--size=2 --rows=500 randomRead 4"), (500, 2_097_152));
        assert_eq!(rows("--size=2 --rows=500 sequentialRead 4"), (524_288, 2_097_152));
        assert_eq!(rows("--rows=100 --size=1.5 scan 3"), (524_288, 1_572_864));
        assert_eq!(rows("--valueRandom --size=2 randomWrite 1"), (4_194_304, 4_194_304));
        // The options of the published block cache comparison.
        assert_eq!(rows("--valueSize=110000 --size=32 --cycles=1000000 randomRead 25").1, 305_024);
    }

    #[test]
    fn clients_divide_the_row_range() {
        let options = of("--rows=50 sequentialWrite 4");
        assert_eq!((options.range(0), options.range(3)), ((0, 50), (150, 200)));
        assert_eq!(of("--rows=50 increment 4").range(3), (0, 50));
        assert_eq!(of("--rows=50 --startRow=7 sequentialWrite 4").range(3), (7, 57));
    }

    #[test]
    fn presplits_divide_the_rows() {
        let keys = of("--rows=100 --presplit=4 sequentialWrite 2").splits();
        let keys: Vec<_> =
            keys.iter().map(|k| String::from_utf8_lossy(k).trim_start_matches('0').to_owned()).collect();
        assert_eq!(keys, ["50", "100", "150"]);
        assert!(of("sequentialWrite 1").splits().is_empty());
    }

    #[test]
    fn samples_and_connections() {
        assert_eq!(of("--sampleRate=0.3 randomRead 1").sampling_interval(), 3);
        assert_eq!(of("randomRead 1").sampling_interval(), 1);
        assert_eq!(of("randomRead 5").connections(), 5);
        assert_eq!(of("--oneCon randomRead 5").connections(), 1);
        assert_eq!(of("--connCount=2 randomRead 5").connections(), 2);
    }
}
