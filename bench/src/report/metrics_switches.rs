//! What stock HBase's metrics cost, by its own switches: the server's CPU for each row with all of
//! them on, as by default, and with all of them off.
//!
//! Two servers of the same kind run at the same time on the server's core, one with the switches on
//! and one with them off. Loads alternate between them, so that both meet the same machine: a
//! difference of some per cent is smaller than what two runs at different times differ by. The
//! reported cost is the median over the rounds of the ratio of two loads that follow each other.
//!
//! HBase can switch off its meters of queries and the latencies of each table, and no other metric.
//! Evenkeel's metrics are measured by `bench/instructions` instead, against a build without them.

use std::fmt::Write as _;

use evenkeel_pe::Options;

use super::output::Results;
use super::read_path::{fitting_buckets, load};
use super::servers::{ReportContext, ServerVariant, Session, Settings, settings};

/// The switches that HBase has for metrics of requests; all are on by default.
const SWITCHES: [&str; 3] = [
    "hbase.regionserver.enable.server.query.meter",
    "hbase.regionserver.enable.table.query.meter",
    "hbase.regionserver.enable.table.latencies",
];
/// Loads of each server. Odd, so that the median is a measured ratio.
const ROUNDS: usize = 7;
const ROUNDS_SHORT: usize = 1;

/// Measures stock servers; others are left out.
///
/// # Errors
/// The error of the first failure, or a message if no stock server is requested.
pub fn measure(context: &ReportContext, results: &mut Results) -> Result<(), String> {
    let stock: Vec<_> = context.plan.servers.iter().copied().filter(|variant| variant.is_jvm()).collect();
    if stock.is_empty() {
        return Err("metrics-switches measures stock servers: --servers=zgc or g1".to_owned());
    }
    let names = SWITCHES.map(|name| format!("`{name}`"));
    results.add_header_line(&format!("Switches: {}.", names.join(", ")));
    for variant in stock {
        let table = measure_one(context, variant, &fitting_buckets(results))?;
        results.section(&format!("{}: server CPU by switches", variant.title()), table);
        results.write(context)?;
    }
    Ok(())
}

/// The measured loads: title and options.
fn loads(rows: i64) -> [(&'static str, String); 4] {
    let table = "--table=Small --valueSize=200 --compress=SNAPPY --presplit=8";
    [
        ("single Get, cached", format!("--rows={} --oneCon {table} randomRead 5", rows / 5)),
        (
            "row of a multi-get of 100",
            format!("--rows={} --oneCon --multiGet=100 {table} randomRead 1", rows),
        ),
        ("row of a scan, all returned", format!("--rows={rows} --caching=1000 {table} scan 1")),
        ("single Put", format!("--rows={} --oneCon --autoFlush=true {table} randomWrite 5", rows / 5)),
    ]
}

fn measure_one(context: &ReportContext, variant: ServerVariant, own: &Settings) -> Result<String, String> {
    let off = SWITCHES.map(|name| (name, "false"));
    let off: Settings = own.iter().cloned().chain(settings(&off)).collect();
    let rows = context.plan.rows / 4;
    let start = |own: &Settings| -> Result<Session<'_>, String> {
        let session = context.start(variant, context.plan.cache_mib, own)?;
        let table = "--table=Small --valueSize=200 --compress=SNAPPY --presplit=8";
        load(&session, "Small", &format!("--rows={} {table}", rows / 4))?;
        Ok(session)
    };
    let sessions = [start(own)?, start(&off)?];
    let mut text =
        "| request | on, CPU µs a row | off | on / off, median | least | most |\n|---|---|---|---|---|---|\n"
            .to_owned();
    let rounds = if context.plan.short { ROUNDS_SHORT } else { ROUNDS };
    for (title, line) in loads(rows) {
        let mut pairs = Vec::new();
        // The first round of a load compiles its code.
        for round in 0..=rounds {
            let mut cpu_us = [0.0; 2];
            for (session, us) in sessions.iter().zip(&mut cpu_us) {
                *us = cpu_of(session, title, &line, round == 0)?;
            }
            if round > 0 {
                pairs.push(cpu_us);
            }
        }
        let [on, off] = [0, 1].map(|at| median(pairs.iter().map(|pair| pair[at])));
        let ratios: Vec<f64> = pairs.iter().map(|[on, off]| on / off).collect();
        let [least, most] =
            [f64::min, f64::max].map(|pick| ratios.iter().copied().reduce(pick).unwrap_or(f64::NAN));
        let middle = median(ratios.iter().copied());
        let _ = writeln!(text, "| {title} | {on:.2} | {off:.2} | {middle:.3} | {least:.3} | {most:.3} |");
    }
    let _ = write!(text, "\n{rounds} rounds of {} s on each server.\n", context.plan.seconds);
    Ok(text)
}

/// Runs a load and returns the server's CPU for each row.
fn cpu_of(session: &Session<'_>, title: &str, line: &str, is_warmup: bool) -> Result<f64, String> {
    eprintln!("{}: {title}: {line}", session.variant.title());
    let plan = &session.context.plan;
    let warmup = if is_warmup { plan.first_warmup_of(session.variant) } else { plan.warmup.min(2.0) };
    let options = Options { warmup, duration: plan.seconds, ..session.options(line)? };
    let report = session.run(options)?;
    let server = report.server.as_ref().ok_or("no CPU time of the server")?;
    let rows = report.moved_rows().max(1);
    Ok(server.cpu_s * 1e6 / rows as f64)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert!(median(std::iter::empty()).is_nan());
    }
}
