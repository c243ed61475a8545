//! Hits of data blocks in the block cache, from each server's counters.
//!
//! Both use HBase's metric names. A stock server writes them to a metrics file, since the published
//! jars have no info server; Evenkeel logs them every second (`bench/conf/server.properties`).
//! Index and bloom blocks are excluded: they are in a separate L1, and nearly every lookup of one
//! hits.
//!
//! HBase 2.6 counts a miss in its combined cache twice: the reader looks up the block again under
//! its lock, and `CombinedBlockCache.getBlock` counts both lookups. So half of its misses are
//! taken. The bytes read from files confirm this: misses and bytes read have the same ratio between
//! the two servers.
//!
//! The counters are read before and after the measured time. So a row's warm-up is a separate run,
//! except for [`SETTLE_S`] in which connections are opened and regions located.

use std::time::{Duration, Instant};

use evenkeel_pe::Options;
use interop::java;

use super::output::Results;
use super::servers::Session;

const HITS: &str = "blockCacheDataHitCount";
const MISSES: &str = "blockCacheDataMissCount";
/// The number of times a stock server counts one miss.
const MISS_COUNTED_STOCK: f64 = 2.0;
/// Seconds of warm-up besides the separate run.
const SETTLE_S: f64 = 0.2;
/// The timeout for a line of counters in Evenkeel's log, which is due each second.
const LINE_WAIT: Duration = Duration::from_secs(20);
/// The largest age of a stock server's metrics (`interop/conf/hadoop-metrics2-hbase.properties`).
const METRICS_AGE: Duration = Duration::from_secs(1);

/// A row: its id, title and options.
pub(super) type Line<'a> = (&'a str, String, String);

/// Lookups of data blocks since the server's start.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CacheLookups {
    hits: f64,
    misses: f64,
}

impl CacheLookups {
    fn percent_since(self, before: Self) -> f64 {
        let (hits, misses) = (self.hits - before.hits, self.misses - before.misses);
        100.0 * hits / (hits + misses)
    }
}

/// Measures rows concurrently, and the hit ratio of all their data blocks.
///
/// # Errors
/// The first error of the load, or a server without counters.
pub(super) fn measure(session: &Session<'_>, results: &mut Results, rows: &[Line<'_>]) -> Result<(), String> {
    let options = rows.iter().map(|(.., line)| session.options(line)).collect::<Result<Vec<_>, _>>()?;
    rows.iter().for_each(|(_, title, line)| eprintln!("{}: {title}: {line}", session.variant.title()));
    let timed = session.timed(options[0].clone(), session.context.plan.seconds);
    let for_time = |warmup: f64, duration: f64| {
        let of = |options: &Options| Options { warmup, duration, ..options.clone() };
        session.run_all(&options.iter().map(of).collect::<Vec<_>>())
    };
    for_time(0.0, timed.warmup)?;
    let before = lookups(session)?;
    let reports = for_time(SETTLE_S, timed.duration)?;
    let hits = lookups(session)?.percent_since(before);
    for ((row, title, line), report) in rows.iter().zip(reports) {
        results.add(row, title, line, session.variant, report);
        results.hits(row, session.variant, hits);
    }
    Ok(())
}

/// The server's counters now.
fn lookups(session: &Session<'_>) -> Result<CacheLookups, String> {
    let text = if session.variant.is_jvm() { metrics_of_jvm(session)? } else { next_line(session)? };
    let counted = if session.variant.is_jvm() { MISS_COUNTED_STOCK } else { 1.0 };
    read(&text, counted)
        .ok_or_else(|| format!("{}: no {HITS} and {MISSES} in: {text}", session.variant.title()))
}

fn metrics_of_jvm(session: &Session<'_>) -> Result<String, String> {
    std::thread::sleep(METRICS_AGE);
    let args = [session.pid().to_string(), HITS.to_owned(), MISSES.to_owned()];
    let run = java("evenkeel.interop.metrics.ServerMetrics", &args).deadline_secs(60).run()?;
    if run.success { Ok(run.stdout) } else { Err(format!("metrics of the server: {}", run.failures())) }
}

/// The next line about caches in Evenkeel's log.
fn next_line(session: &Session<'_>) -> Result<String, String> {
    let lines = |log: &str| log.lines().filter(|line| line.contains(HITS)).count();
    let (had, start) = (lines(&session.log()), Instant::now());
    while start.elapsed() < LINE_WAIT {
        std::thread::sleep(Duration::from_millis(50));
        let log = session.log();
        if lines(&log) > had {
            return Ok(log.lines().rfind(|line| line.contains(HITS)).unwrap_or_default().to_owned());
        }
    }
    Err(format!("Evenkeel's log has no line about its caches for {} s", LINE_WAIT.as_secs()))
}

/// Parses counters in which each miss was counted `miss_counts` times.
fn read(text: &str, counted: f64) -> Option<CacheLookups> {
    let value = |name: &str| {
        let rest = text.split_once(&format!("{name}="))?.1;
        rest.split(|c: char| !c.is_ascii_digit() && c != '.').next()?.parse().ok()
    };
    Some(CacheLookups { hits: value(HITS)?, misses: value(MISSES)? / counted })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_servers_are_read() {
        let stock = "blockCacheDataHitCount=90\nblockCacheDataMissCount=10\n";
        let ours = "{\"level\":\"INFO\",\"message\":\"block cache: totalSize=5, hits=99, blockCacheDataHitCount=290, \
            blockCacheDataMissCount=110\",\"target\":\"chore\"}";
        let (before, after) = (read(stock, 2.0).expect("reads"), read(ours, 1.0).expect("reads"));
        assert_eq!((before, after.misses), (CacheLookups { hits: 90.0, misses: 5.0 }, 110.0));
        assert!((after.percent_since(before) - 20_000.0 / 305.0).abs() < 1e-9);
        assert_eq!(read("blockCacheDataHitCount=90", 1.0), None);
    }
}
