//! [`Plan`]: what a report is asked to do.

use std::path::PathBuf;

use super::servers::Kind;

/// A report's sizes and places.
#[derive(Clone, Debug)]
pub struct Plan {
    /// `read-path`, `write-path`, `deploys` or `ycsb`.
    pub report: String,
    /// The command line, for the report.
    pub command: String,
    /// Seconds instead of minutes: shows that the command works, not what servers do.
    pub short: bool,
    /// Servers, in the order they run; the first stock one sets the rates of open loops.
    pub servers: Vec<Kind>,
    /// Rows of the main table.
    pub rows: i64,
    /// Seconds that each row of the report is measured.
    pub seconds: f64,
    /// Seconds of warm-up before each.
    pub warmup: f64,
    /// Seconds of the steady writes of the write path.
    pub steady: f64,
    /// MiB of a JVM's heap, and what Evenkeel counts HBase's shares of the heap from.
    pub heap_mib: u64,
    /// MiB of block cache off the heap.
    pub cache_mib: u64,
    /// The servers' core.
    pub server_core: usize,
    /// The load's core.
    pub load_core: usize,
    /// Where results go.
    pub out: PathBuf,
}

impl Plan {
    /// Reads a command line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of_words(words: &[String]) -> Result<Self, String> {
        let report = words.first().filter(|word| !word.starts_with("--")).ok_or_else(usage)?;
        let mut plan = Self::full(report);
        if words.iter().any(|word| word == "--short") {
            plan.shorten();
        }
        plan.command = format!("cargo run --release -p evenkeel-bench --bin report -- {}", words.join(" "));
        for word in words.iter().skip(1).filter(|word| *word != "--short") {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("{word}\n{}", usage()))?;
            plan.set(key, value)?;
        }
        Ok(plan)
    }

    fn full(report: &str) -> Self {
        Self {
            report: report.to_owned(),
            command: String::new(),
            short: false,
            servers: vec![Kind::StockG1, Kind::StockZgc, Kind::Evenkeel],
            rows: 1_000_000,
            seconds: 20.0,
            warmup: 10.0,
            steady: 1800.0,
            heap_mib: 2048,
            cache_mib: 1024,
            server_core: 0,
            load_core: 1,
            out: PathBuf::from("docs/benchmarks"),
        }
    }

    fn shorten(&mut self) {
        self.short = true;
        self.servers = vec![Kind::StockG1, Kind::Evenkeel];
        (self.rows, self.seconds, self.warmup, self.steady) = (2000, 0.6, 0.3, 2.0);
        (self.heap_mib, self.cache_mib) = (512, 64);
        self.out = std::env::temp_dir().join("evenkeel-report-short");
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let bad = || format!("{key}={value} cannot be read");
        match key {
            "--servers" => {
                self.servers = value.split(',').map(Kind::of_name).collect::<Option<_>>().ok_or_else(bad)?;
            }
            "--rows" => self.rows = value.parse().map_err(|_| bad())?,
            "--seconds" => self.seconds = value.parse().map_err(|_| bad())?,
            "--warmup" => self.warmup = value.parse().map_err(|_| bad())?,
            "--steady" => self.steady = value.parse().map_err(|_| bad())?,
            "--heap-mib" => self.heap_mib = value.parse().map_err(|_| bad())?,
            "--cache-mib" => self.cache_mib = value.parse().map_err(|_| bad())?,
            "--server-core" => self.server_core = value.parse().map_err(|_| bad())?,
            "--load-core" => self.load_core = value.parse().map_err(|_| bad())?,
            "--out" => self.out = value.into(),
            _ => return Err(format!("{key} is unknown\n{}", usage())),
        }
        Ok(())
    }
}

fn usage() -> String {
    "report read-path|write-path|deploys|ycsb [--short] [--servers=stock-g1,stock-zgc,evenkeel] [--rows=N] [--seconds=S] \
     [--warmup=S] [--steady=S] [--heap-mib=N] [--cache-mib=N] [--server-core=N] [--load-core=N] [--out=DIR]"
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
        assert!(plan.short && plan.rows == 9 && plan.servers == [Kind::Evenkeel]);
        assert_eq!(of("ycsb").expect("reads").servers.len(), 3);
        assert!(of("").is_err() && of("ycsb --no=1").is_err() && of("ycsb --servers=x").is_err());
    }
}
