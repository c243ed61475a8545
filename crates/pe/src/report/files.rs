//! Reports as files: JSON, and HdrHistogram's percentile table (`.hgrm`) and interval log
//! (`.hlog`).

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use serde::Serialize;

use super::Report;

/// Points in each halving of the distance to 100 %, as in HdrHistogram's tools.
const TICKS_PER_HALVING: u32 = 5;
/// Nanoseconds in the unit of the percentile table, a microsecond.
const NS_PER_UNIT: f64 = 1000.0;
/// Nanoseconds in the unit of the interval log's maximum, a millisecond.
const NS_PER_MS: f64 = 1_000_000.0;

/// Writes reports as JSON.
///
/// # Errors
/// If the file cannot be written.
pub fn write_json(path: &Path, reports: &impl Serialize) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    serde_json::to_writer_pretty(&mut out, reports)?;
    writeln!(out)?;
    out.flush()
}

/// Writes latencies as a percentile table in microseconds, which HdrHistogram's plotters read.
///
/// # Errors
/// If the file cannot be written.
pub fn write_hgrm(path: &Path, histogram: &Histogram<u64>) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    out.write_all(hgrm(histogram).as_bytes())?;
    out.flush()
}

fn hgrm(histogram: &Histogram<u64>) -> String {
    let mut text =
        format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    let mut count = 0;
    for value in histogram.iter_quantiles(TICKS_PER_HALVING) {
        count += value.count_since_last_iteration();
        let (us, quantile) = (value.value_iterated_to() as f64 / NS_PER_UNIT, value.quantile_iterated_to());
        match quantile < 1.0 {
            true => text.push_str(&format!(
                "{us:>12.3} {quantile:>14.12} {count:>10} {:>14.2}\n",
                1.0 / (1.0 - quantile)
            )),
            false => text.push_str(&format!("{us:>12.3} {quantile:>14.12} {count:>10}\n")),
        }
    }
    let (mean, deviation) = (histogram.mean() / NS_PER_UNIT, histogram.stdev() / NS_PER_UNIT);
    let max = histogram.max() as f64 / NS_PER_UNIT;
    text.push_str(&format!("#[Mean    = {mean:>12.3}, StdDeviation   = {deviation:>12.3}]\n"));
    text.push_str(&format!("#[Max     = {max:>12.3}, Total count    = {:>12}]\n", histogram.len()));
    text.push_str(&format!(
        "#[Buckets = {:>12}, SubBuckets     = {:>12}]\n",
        histogram.buckets(),
        2 * 10usize.pow(u32::from(histogram.sigfig())).next_power_of_two()
    ));
    text
}

/// Writes the latencies of each interval, in nanoseconds, as HdrHistogram's interval log.
///
/// # Errors
/// If the file cannot be written.
pub fn write_hlog(path: &Path, reports: &[Report]) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    let mut serializer = V2DeflateSerializer::new();
    let began = reports.first().map_or(0.0, |report| report.began_unix_s);
    let mut builder = IntervalLogWriterBuilder::new();
    builder
        .add_comment("[Logged by evenkeel pe]")
        .with_start_time(SystemTime::UNIX_EPOCH + Duration::from_secs_f64(began))
        .with_base_time(SystemTime::UNIX_EPOCH + Duration::from_secs_f64(began))
        .with_max_value_divisor(NS_PER_MS);
    let mut log = builder.begin_log_with(&mut out, &mut serializer)?;
    for report in reports {
        let warmup = report.options.warmup + report.began_unix_s - began;
        let tag = Tag::new(&report.target);
        for interval in &report.intervals {
            let at = Duration::from_secs_f64((warmup + interval.at_s).max(0.0));
            let length = Duration::from_secs_f64(interval.seconds);
            log.write_histogram(&interval.histogram, at, length, tag)
                .map_err(|e| io::Error::other(format!("{e:?}")))?;
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{histogram, record};

    #[test]
    fn percentile_tables_have_their_form() {
        let mut known = histogram();
        (1..=1000u64).for_each(|us| record(&mut known, Duration::from_micros(us)));
        let text = hgrm(&known);
        let rows: Vec<Vec<f64>> = text
            .lines()
            .skip(2)
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split_whitespace().map(|n| n.parse().expect("a number")).collect())
            .collect();
        let half = rows.iter().find(|row| row[1] == 0.5).expect("the median");
        assert!((half[0] - 500.0).abs() < 1.0 && half[2] == 500.0 && half[3] == 2.0, "{half:?}");
        let last = rows.last().expect("a row");
        assert!((last[0] - 1000.0).abs() < 2.0 && last[1] == 1.0 && last[2] == 1000.0 && last.len() == 3);
        assert!(text.contains("Total count    =         1000"));
    }
}
