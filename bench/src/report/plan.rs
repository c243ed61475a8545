//! [`Plan`]: the options of a report.

use std::path::PathBuf;

use super::servers::ServerVariant;
use super::{cluster, deploys, scan_flood};

/// Warm-up of the first row on each process of a JVM.
const FIRST_WARMUP_S: f64 = 30.0;
/// The same for a server without a JIT compiler.
const FIRST_WARMUP_NATIVE_S: f64 = 5.0;
/// About the time of a server's start, load, idle wait and stop: for HBase, and for Evenkeel.
const START_AND_LOAD_S: (f64, f64) = (30.0, 12.0);
/// The same for a deploy, which loads four times the cache; HBase's stop may take 20 of the
/// seconds.
const DEPLOY_START_AND_LOAD_S: (f64, f64) = (70.0, 25.0);
/// The same for the report `cluster`, with its cluster and two tables.
const CLUSTER_START_AND_LOAD_S: (f64, f64) = (120.0, 90.0);
/// Seconds to read hit counters around a measurement.
const HITS_S: f64 = 4.0;
/// Measurements of the read path with hit counters.
const HITS_OF_READ_PATH: f64 = 3.0;
/// The part of `--minutes` that is planned for.
const BOUND_PART: f64 = 0.92;
/// The shortest warm-up and measurement of a row of a bounded report.
const ROW_LEAST_S: f64 = 1.5;

/// A report's sizes and paths.
#[derive(Clone, Debug)]
pub struct Plan {
    /// `read-path`, `write-path`, `deploys`, `ycsb`, `scan-flood`, `metrics-switches` or `cluster`.
    pub report: String,
    /// The command line, for the report.
    pub command: String,
    /// A smoke test of seconds, without meaningful figures.
    pub short: bool,
    /// Servers, in the order they run; the first stock one sets the rates of open loops.
    pub servers: Vec<ServerVariant>,
    /// Rows of the main table.
    pub rows: i64,
    /// Seconds that each row of the report is measured.
    pub seconds: f64,
    /// Seconds of warm-up before each.
    pub warmup: f64,
    /// Seconds of warm-up before the first row on each JVM, for its JIT compiler; see
    /// [`Plan::first_warmup`].
    pub first_warmup: f64,
    /// The limit of the report in minutes (`--minutes`).
    pub minutes: Option<f64>,
    /// Seconds of the steady writes of the write path.
    pub steady: f64,
    /// The rate of steady writes on every server. Default: half of the peak of the first stock
    /// server, or of the first server.
    pub steady_rate: Option<f64>,
    /// MiB of a JVM's heap, and the base of Evenkeel's shares of the heap.
    pub heap_mib: u64,
    /// MiB of block cache off the heap.
    pub cache_mib: u64,
    /// Block cache deploys to measure: 1 to 5, and 6 for compressed blocks.
    pub deploys: Vec<usize>,
    /// The servers' core.
    pub server_core: usize,
    /// The load's core.
    pub load_core: usize,
    /// The directory of results.
    pub out: PathBuf,
}

impl Plan {
    /// Parses a command line.
    ///
    /// # Errors
    /// A message for the user.
    pub fn of_words(words: &[String]) -> Result<Self, String> {
        let report = words.first().filter(|word| !word.starts_with("--")).ok_or_else(usage)?;
        let mut plan = Self::full(report);
        let words = joined(words);
        if words.iter().any(|word| word == "--short") {
            plan.shorten();
        }
        plan.command = format!("cargo run --release -p evenkeel-bench --bin report -- {}", words.join(" "));
        let others = words.iter().skip(1).filter(|word| *word != "--short");
        let split = |word: &'_ String| -> Result<(String, String), String> {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("{word}\n{}", usage()))?;
            Ok((key.to_owned(), value.to_owned()))
        };
        let mut pairs = others.map(split).collect::<Result<Vec<_>, _>>()?;
        // Bounded sizes depend on the servers; other options override them.
        pairs.sort_by_key(|(key, _)| match key.as_str() {
            "--servers" | "--first-warmup" | "--deploys" => 0,
            "--minutes" => 1,
            _ => 2,
        });
        if pairs.iter().any(|(key, _)| key == "--minutes") {
            plan.servers = vec![ServerVariant::StockG1, ServerVariant::Evenkeel];
        }
        for (key, value) in &pairs {
            plan.set(key, value)?;
        }
        Ok(plan)
    }

    /// Sizes and durations with which the report takes at most `minutes` on an idle machine. Rows
    /// that start too late are cut, see [`super::servers::Session::measure`].
    fn bound(&mut self, minutes: f64) -> Result<(), String> {
        // The number of rows on each server, and of its starts.
        let (rows, starts) = match self.report.as_str() {
            "read-path" => (12.0, 2.0),
            "write-path" => (4.0, 2.0),
            "deploys" => {
                let sum = |of: fn(usize) -> usize| self.deploys.iter().map(|n| of(*n)).sum::<usize>() as f64;
                (sum(deploys::rows_of), sum(|n| deploys::STARTS[n - 1]))
            }
            "scan-flood" => scan_flood::MEASUREMENTS,
            "cluster" => (cluster::MEASUREMENTS, 1.0),
            _ => (6.0, 1.0),
        };
        let begin = |variant: &ServerVariant| {
            starts * (self.first_warmup_of(*variant) + self.start_and_load_s(*variant))
        };
        let hits = match self.report.as_str() {
            "read-path" => HITS_OF_READ_PATH * HITS_S,
            "deploys" if self.deploys.contains(&6) => deploys::rows_of(6) as f64 * HITS_S,
            _ => 0.0,
        };
        let fixed = if self.report == "cluster" { cluster::stop_row_s(false) } else { 0.0 };
        let begins: f64 = self.servers.iter().map(|variant| begin(variant) + hits + fixed).sum();
        let measured = (minutes * 60.0 * BOUND_PART - begins) / self.servers.len().max(1) as f64;
        let steady = if self.report == "write-path" { measured * 0.4 } else { 0.0 };
        let row = (measured - steady) / rows;
        if row < ROW_LEAST_S {
            return Err(format!("--minutes={minutes} is too short for {} servers", self.servers.len()));
        }
        (self.seconds, self.warmup, self.steady) = (row * 0.6, row * 0.4, steady);
        (self.rows, self.heap_mib, self.cache_mib) =
            (262_144, 1024, if self.report == "deploys" { 128 } else { 256 });
        self.minutes = Some(minutes);
        Ok(())
    }

    fn start_and_load_s(&self, variant: ServerVariant) -> f64 {
        let of = match self.report.as_str() {
            "deploys" => DEPLOY_START_AND_LOAD_S,
            "cluster" => CLUSTER_START_AND_LOAD_S,
            _ => START_AND_LOAD_S,
        };
        if variant.is_jvm() { of.0 } else { of.1 }
    }

    /// Seconds of warm-up before the first row on a server process.
    pub fn first_warmup_of(&self, variant: ServerVariant) -> f64 {
        let native = self.first_warmup.min(FIRST_WARMUP_NATIVE_S);
        if variant.is_jvm() { self.first_warmup } else { native }.max(self.warmup)
    }

    fn full(report: &str) -> Self {
        Self {
            report: report.to_owned(),
            command: String::new(),
            short: false,
            servers: vec![ServerVariant::StockG1, ServerVariant::StockZgc, ServerVariant::Evenkeel],
            rows: 1_000_000,
            seconds: 20.0,
            warmup: 10.0,
            first_warmup: FIRST_WARMUP_S,
            minutes: None,
            steady: 1800.0,
            steady_rate: None,
            heap_mib: 2048,
            cache_mib: 1024,
            deploys: (1..=deploys::STARTS.len()).collect(),
            server_core: 0,
            load_core: 1,
            out: PathBuf::from("docs/benchmarks"),
        }
    }

    fn shorten(&mut self) {
        self.short = true;
        self.servers = vec![ServerVariant::StockG1, ServerVariant::Evenkeel];
        (self.rows, self.seconds, self.warmup, self.steady) = (2000, 0.6, 0.3, 2.0);
        (self.heap_mib, self.cache_mib, self.first_warmup) = (512, 64, self.warmup);
        self.deploys = vec![1, 4, 5, 6];
        self.out = std::env::temp_dir().join("evenkeel-report-short");
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let bad = || format!("{key}={value} is not valid");
        match key {
            "--servers" => {
                self.servers =
                    value.split(',').map(ServerVariant::of_name).collect::<Option<_>>().ok_or_else(bad)?;
            }
            "--rows" => self.rows = value.parse().map_err(|_| bad())?,
            "--seconds" => self.seconds = value.parse().map_err(|_| bad())?,
            "--warmup" => self.warmup = value.parse().map_err(|_| bad())?,
            "--minutes" => self.bound(value.parse().map_err(|_| bad())?)?,
            "--first-warmup" => self.first_warmup = value.parse().map_err(|_| bad())?,
            "--steady" => self.steady = value.parse().map_err(|_| bad())?,
            "--steady-rate" => {
                let rate = value.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate >= 1.0);
                self.steady_rate = Some(rate.ok_or_else(bad)?);
            }
            "--heap-mib" => self.heap_mib = value.parse().map_err(|_| bad())?,
            "--cache-mib" => self.cache_mib = value.parse().map_err(|_| bad())?,
            "--deploys" => {
                let known = |n: &str| n.parse().ok().filter(|n| (1..=deploys::STARTS.len()).contains(n));
                self.deploys = value.split(',').map(known).collect::<Option<_>>().ok_or_else(bad)?;
            }
            "--server-core" => self.server_core = value.parse().map_err(|_| bad())?,
            "--load-core" => self.load_core = value.parse().map_err(|_| bad())?,
            "--out" => self.out = value.into(),
            _ => return Err(format!("{key} is unknown\n{}", usage())),
        }
        Ok(())
    }
}

/// Joins `--minutes N` into one word.
fn joined(words: &[String]) -> Vec<String> {
    let mut joined: Vec<String> = Vec::with_capacity(words.len());
    for word in words {
        match joined.last_mut().filter(|last| *last == "--minutes") {
            Some(last) => *last = format!("{last}={word}"),
            None => joined.push(word.clone()),
        }
    }
    joined
}

fn usage() -> String {
    "report read-path|write-path|deploys|ycsb|scan-flood|metrics-switches|cluster [--short | --minutes=N] [--servers=g1,zgc,evenkeel] [--rows=N] [--seconds=S] \
     [--warmup=S] [--first-warmup=S] [--steady=S] [--steady-rate=N] [--heap-mib=N] [--cache-mib=N] [--deploys=1,2,3,4,5,6] \
     [--server-core=N] [--load-core=N] [--out=DIR]"
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Plan, String> {
        Plan::of_words(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn lines_are_read() {
        let plan = of("read-path --short --servers=evenkeel --rows=9").expect("reads");
        assert!(plan.short && plan.rows == 9 && plan.servers == [ServerVariant::Evenkeel]);
        assert_eq!(of("ycsb").expect("reads").servers.len(), 3);
        assert_eq!(of("deploys --deploys=2,4").expect("reads").deploys, [2, 4]);
        assert!(of("deploys --deploys=7").is_err() && of("deploys --deploys=0").is_err());
        assert!(of("ycsb --minutes=x").is_err() && of("ycsb --minutes").is_err());
        assert_eq!(of("write-path --steady-rate=37500").expect("reads").steady_rate, Some(37_500.0));
        assert!(of("write-path --steady-rate=0").is_err() && of("write-path --steady-rate=inf").is_err());
        assert!(of("").is_err() && of("ycsb --no=1").is_err() && of("ycsb --servers=x").is_err());
    }

    #[test]
    fn minutes_bound_the_lengths() {
        for (report, minutes, rows, starts) in
            [("read-path", 8.0, 12.0, 2.0), ("write-path", 8.0, 4.0, 2.0), ("deploys", 30.0, 30.0, 9.0)]
        {
            let plan = of(&format!("{report} --minutes {minutes} --cache-mib=99")).expect("reads");
            assert_eq!((plan.servers.len(), plan.cache_mib, plan.minutes), (2, 99, Some(minutes)));
            assert!(plan.first_warmup_of(ServerVariant::StockG1) >= 30.0 && plan.seconds >= 1.0, "{plan:?}");
            let each = rows * (plan.seconds + plan.warmup) + plan.steady;
            let loads = if report == "deploys" { 70.0 + 25.0 } else { 30.0 + 12.0 };
            let first = loads
                + plan.first_warmup_of(ServerVariant::StockG1)
                + plan.first_warmup_of(ServerVariant::Evenkeel);
            assert!(each * 2.0 + starts * first < minutes * 60.0, "{report}: {plan:?}");
        }
        let cluster = of("cluster --minutes=30 --servers=g1,zgc,evenkeel").expect("reads");
        assert!(cluster.seconds > 10.0 && cluster.seconds < 30.0, "{cluster:?}");
        assert!(of("cluster --minutes=6 --servers=g1,zgc,evenkeel").is_err(), "starting takes longer");
        assert!(of("deploys --minutes=30").expect("reads").seconds > 4.0);
        assert!(of("deploys --minutes=20 --deploys=1,2,3,5").expect("reads").seconds > 10.0);
        let three = of("deploys --minutes=30 --servers=g1,zgc,evenkeel").expect_err("loading takes longer");
        assert!(three.contains("too short"), "{three}");
        let three = of("read-path --minutes=8 --servers=g1,stock-zgc,evenkeel").expect("reads");
        assert!(
            three.servers.len() == 3 && three.seconds < of("read-path --minutes=8").expect("reads").seconds
        );
        assert!(of("read-path --minutes=2").expect_err("too short").contains("too short"));
    }
}
