//! [`Comparison`]: alternating runs on two clusters, and the ratios of the rounds.
//!
//! Rounds alternate in order (A B, B A, A B ...), so drift of the machine affects both targets. The
//! ratio is computed within each round; its median and spread are more informative than two
//! averages.

use std::fmt::Write;

use serde::Serialize;

use crate::error::PeError;
use crate::options::Options;
use crate::report::Report;
use crate::run::{Target, run};
use crate::stats::Latencies;

/// The rounds of two targets.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// The targets' names.
    pub names: [String; 2],
    /// Each round's reports, in the targets' order.
    pub rounds: Vec<[Report; 2]>,
    /// Ratios of the first to the second.
    pub ratios: Vec<Ratio>,
}

/// One figure of both targets over the rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ratio {
    /// The figure.
    pub name: &'static str,
    /// The median over the rounds, of each target.
    pub medians: [f64; 2],
    /// The median of the rounds' ratios, first to second.
    pub median: f64,
    /// The smallest of them.
    pub min: f64,
    /// The largest of them.
    pub max: f64,
}

/// The compared figures: name, and value in a report.
type Figure = (&'static str, fn(&Report) -> Option<f64>);

const FIGURES: [Figure; 10] = [
    ("requests/s", |r| Some(r.requests_per_s)),
    ("rows/s", |r| Some(r.rows_per_s)),
    ("mean us", |r| Some(r.latency.mean_us)),
    ("P50 us", |r| Some(r.latency.p50_us)),
    ("P99 us", |r| Some(r.latency.p99_us)),
    ("P99.9 us", |r| Some(r.latency.p999_us)),
    ("max us", |r| Some(r.latency.max_us)),
    ("server CPU us/request", Report::server_us_per_request),
    ("server MiB", |r| Some((r.server.as_ref()?.rss_bytes >> 20) as f64)),
    ("own CPU us/request", |r| Some(r.own_us_per_request())),
];

/// Runs both targets `rounds` times; calls `each` with every report.
///
/// # Errors
/// The failure of the first run that fails.
pub fn compare(
    targets: &[Target; 2],
    options: &Options,
    rounds: usize,
    mut each: impl FnMut(&Report),
) -> Result<Comparison, PeError> {
    let mut done = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let first = round % 2;
        let mut one = |at: usize| run(&targets[at], options).inspect(&mut each);
        let (a, b) = (one(first)?, one(1 - first)?);
        done.push(if first == 0 { [a, b] } else { [b, a] });
    }
    Ok(Comparison::new(targets.clone().map(|target| target.name), done))
}

impl Comparison {
    /// Compares finished rounds.
    pub fn new(names: [String; 2], rounds: Vec<[Report; 2]>) -> Self {
        let ratios = FIGURES.iter().filter_map(|figure| ratio(figure, &rounds)).collect();
        Self { names, rounds, ratios }
    }

    /// The ratios as a table.
    pub fn text(&self) -> String {
        let [a, b] = &self.names;
        let mut out = format!(
            "{:<22} {a:>12} {b:>12} {:>9}   spread over {} rounds\n",
            "median",
            "A/B",
            self.rounds.len()
        );
        for r in &self.ratios {
            let [first, second] = r.medians;
            let _ = writeln!(
                out,
                "{:<22} {first:>12.1} {second:>12.1} {:>9.3}   {:.3} to {:.3}",
                r.name, r.median, r.min, r.max
            );
        }
        out
    }

    /// The rounds of each target as one report: sums, merged histograms, concatenated time series.
    pub fn merged(&self) -> Vec<Report> {
        [0, 1].into_iter().filter_map(|at| merge(self.rounds.iter().map(|round| &round[at]))).collect()
    }
}

fn ratio((name, figure): &Figure, rounds: &[[Report; 2]]) -> Option<Ratio> {
    let pairs: Vec<(f64, f64)> =
        rounds.iter().map(|[a, b]| figure(a).zip(figure(b))).collect::<Option<_>>()?;
    let ratios: Vec<f64> = pairs.iter().map(|(a, b)| a / b).collect();
    let medians =
        [median(pairs.iter().map(|p| p.0).collect())?, median(pairs.iter().map(|p| p.1).collect())?];
    let (min, max) = ratios.iter().fold((f64::INFINITY, 0.0), |(min, max), r| (r.min(min), r.max(max)));
    Some(Ratio { name, medians, median: median(ratios)?, min, max })
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some((low + high) / 2.0)
}

fn merge<'a>(mut rounds: impl Iterator<Item = &'a Report>) -> Option<Report> {
    let mut sum = rounds.next()?.clone();
    for report in rounds {
        let shift = sum.seconds;
        sum.seconds += report.seconds;
        sum.tally.add(&report.tally);
        sum.own_cpu_s += report.own_cpu_s;
        let _ = sum.histogram.add(&report.histogram);
        sum.intervals.extend(report.intervals.iter().map(|i| {
            let mut later = i.clone();
            later.at_s += shift;
            later
        }));
        if let (Some(sum), Some(one)) = (&mut sum.server, &report.server) {
            sum.cpu_s += one.cpu_s;
            sum.rss_bytes = sum.rss_bytes.max(one.rss_bytes);
        }
    }
    sum.latency = Latencies::of(&sum.histogram);
    sum.requests_per_s = sum.tally.requests as f64 / sum.seconds;
    sum.rows_per_s = sum.tally.rows as f64 / sum.seconds;
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_value() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(vec![]), None);
    }
}
