//! Counters and latencies: [`Tally`], [`Recorder`], and the histograms behind every figure.
//!
//! Latencies are nanoseconds in an HdrHistogram of [`DIGITS`] significant digits up to
//! [`LATENCY_NS_MAX`]: a value read back differs from the recorded one by less than 0.1%. Each load
//! thread has a recorder behind a lock for which only the reporter contends, once per interval. The
//! warm-up is recorded separately.

use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use serde::Serialize;

/// Significant decimal digits of a latency.
pub const DIGITS: u8 = 3;
/// The longest latency that is recorded exactly: one hour.
pub const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
/// The percentiles of every table.
pub const PERCENTILES: [f64; 6] = [50.0, 95.0, 99.0, 99.9, 99.99, 100.0];

/// A histogram of nanoseconds.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS)
        .unwrap_or_else(|_| unreachable!("constant bounds are legal"))
}

/// Records a latency; one beyond the limit counts as the limit.
pub fn record(histogram: &mut Histogram<u64>, latency: Duration) {
    histogram
        .saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX).clamp(1, LATENCY_NS_MAX));
}

/// Sums of the work done. Bytes are those of values, as in HBase's tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tally {
    /// Rows of the test that were run.
    pub rows: u64,
    /// Requests sent: a batch is one.
    pub requests: u64,
    /// Requests that failed after all retries.
    pub errors: u64,
    /// Rows sent in writes.
    pub rows_written: u64,
    /// Cells sent.
    pub cells_written: u64,
    /// Value bytes sent.
    pub bytes_written: u64,
    /// Rows that reads returned.
    pub rows_read: u64,
    /// Cells that reads returned.
    pub cells_read: u64,
    /// Value bytes that reads returned.
    pub bytes_read: u64,
    /// Gets, each of a batch counted.
    pub gets: u64,
    /// Gets that found no row.
    pub gets_empty: u64,
    /// Requests that took `--latencyThreshold` or longer.
    pub over_threshold: u64,
    /// Reads answered by another replica than the first.
    pub stale: u64,
}

impl Tally {
    /// Adds another.
    pub fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.rows, other.rows),
            (&mut self.requests, other.requests),
            (&mut self.errors, other.errors),
            (&mut self.rows_written, other.rows_written),
            (&mut self.cells_written, other.cells_written),
            (&mut self.bytes_written, other.bytes_written),
            (&mut self.rows_read, other.rows_read),
            (&mut self.cells_read, other.cells_read),
            (&mut self.bytes_read, other.bytes_read),
            (&mut self.gets, other.gets),
            (&mut self.gets_empty, other.gets_empty),
            (&mut self.over_threshold, other.over_threshold),
            (&mut self.stale, other.stale),
        ];
        pairs.into_iter().for_each(|(sum, more)| *sum += more);
    }
}

/// Sums and latencies of a period.
#[derive(Clone, Debug)]
pub struct PeriodStats {
    /// Sums.
    pub tally: Tally,
    /// Latencies: from the time a request was due (open loop) or sent (closed loop) to its reply.
    pub latency: Histogram<u64>,
    /// From the send to the reply, in either loop.
    pub service: Histogram<u64>,
}

impl Default for PeriodStats {
    fn default() -> Self {
        Self { tally: Tally::default(), latency: histogram(), service: histogram() }
    }
}

impl PeriodStats {
    /// Adds another.
    pub fn add(&mut self, other: &Self) {
        self.tally.add(&other.tally);
        for (sum, more) in [(&mut self.latency, &other.latency), (&mut self.service, &other.service)] {
            sum.add(more).unwrap_or_else(|_| unreachable!("all histograms have the same bounds"));
        }
    }
}

/// The phase in which a request started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Excluded from the figures.
    Warmup,
    /// Included in the figures.
    Measured,
}

/// The current interval of one load thread, in both phases.
#[derive(Debug, Default)]
pub struct Recorder {
    parts: Mutex<[PeriodStats; 2]>,
}

impl Recorder {
    /// Records in a phase.
    pub fn record(&self, phase: Phase, note: impl FnOnce(&mut PeriodStats)) {
        note(&mut self.parts.lock()[phase as usize]);
    }

    /// Swaps the recorded data with `empty`.
    pub fn drain(&self, phase: Phase, empty: PeriodStats) -> PeriodStats {
        std::mem::replace(&mut self.parts.lock()[phase as usize], empty)
    }
}

/// Latencies in microseconds at the usual percentiles.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Latencies {
    /// Requests measured.
    pub count: u64,
    /// The mean.
    pub mean_us: f64,
    /// The shortest.
    pub min_us: f64,
    /// The median.
    pub p50_us: f64,
    /// 95 of 100 are not longer.
    pub p95_us: f64,
    /// 99 of 100 are not longer.
    pub p99_us: f64,
    /// 999 of 1000 are not longer.
    pub p999_us: f64,
    /// 9999 of 10,000 are not longer.
    pub p9999_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl Latencies {
    /// From a histogram of nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        let us = |ns: u64| ns as f64 / 1000.0;
        let [p50_us, p95_us, p99_us, p999_us, p9999_us, _] =
            PERCENTILES.map(|p| us(histogram.value_at_percentile(p)));
        Self {
            count: histogram.len(),
            mean_us: histogram.mean() / 1000.0,
            min_us: us(histogram.min()),
            p50_us,
            p95_us,
            p99_us,
            p999_us,
            p9999_us,
            max_us: us(histogram.max()),
        }
    }
}

/// Points of a percentile plot: (percentile, microseconds), closer together towards 100.
pub fn percentile_curve(histogram: &Histogram<u64>) -> Vec<(f64, f64)> {
    if histogram.is_empty() {
        return Vec::new();
    }
    let quantiles = histogram.iter_quantiles(5);
    quantiles.map(|v| (v.quantile_iterated_to() * 100.0, v.value_iterated_to() as f64 / 1000.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stated precision of a value read back.
    const PRECISION: f64 = 0.001;

    fn near(read: f64, expected: f64) {
        assert!((read / expected - 1.0).abs() <= PRECISION, "{read} for {expected}");
    }

    #[test]
    fn a_known_distribution_comes_back_within_its_precision() {
        let mut uniform = histogram();
        (1..=100_000u64).for_each(|us| record(&mut uniform, Duration::from_micros(us)));
        let read = Latencies::of(&uniform);
        near(read.p50_us, 50_000.0);
        near(read.p99_us, 99_000.0);
        near(read.p999_us, 99_900.0);
        near(read.p9999_us, 99_990.0);
        near(read.max_us, 100_000.0);
        near(read.mean_us, 50_000.5);
        assert_eq!(read.count, 100_000);
    }

    #[test]
    fn precision_holds_at_every_size() {
        for exponent in 3..13u32 {
            for digit in [1u64, 2, 5, 9] {
                let ns = (digit * 10u64.pow(exponent)).min(LATENCY_NS_MAX);
                let mut one = histogram();
                record(&mut one, Duration::from_nanos(ns));
                near(one.value_at_percentile(50.0) as f64, ns as f64);
            }
        }
        let mut long = histogram();
        record(&mut long, Duration::from_secs(100_000));
        near(Latencies::of(&long).max_us, 3.6e9);
    }

    #[test]
    fn exponential_latencies_have_their_percentiles() {
        let (mut exponential, count) = (histogram(), 200_000);
        for i in 0..count {
            let quantile = (f64::from(i) + 0.5) / f64::from(count);
            let ms = -(1.0 - quantile).ln();
            record(&mut exponential, Duration::from_secs_f64(ms / 1000.0));
        }
        let read = Latencies::of(&exponential);
        near(read.p50_us, 1000.0 * 2f64.ln());
        near(read.p99_us, 1000.0 * 100f64.ln());
        near(read.p999_us, 1000.0 * 1000f64.ln());
    }

    #[test]
    fn period_statistics_add_up() {
        let (mut sum, mut one) = (PeriodStats::default(), PeriodStats::default());
        one.tally = Tally { rows: 2, cells_read: 3, ..Tally::default() };
        record(&mut one.latency, Duration::from_millis(5));
        sum.add(&one);
        sum.add(&one);
        assert_eq!((sum.tally.rows, sum.tally.cells_read, sum.latency.len()), (4, 6, 2));
    }

    #[test]
    fn drains_take_one_phase() {
        let recorder = Recorder::default();
        recorder.record(Phase::Warmup, |part| part.tally.rows += 1);
        recorder.record(Phase::Measured, |part| part.tally.rows += 10);
        assert_eq!(recorder.drain(Phase::Measured, PeriodStats::default()).tally.rows, 10);
        assert_eq!(recorder.drain(Phase::Measured, PeriodStats::default()).tally.rows, 0);
        assert_eq!(recorder.drain(Phase::Warmup, PeriodStats::default()).tally.rows, 1);
    }

    #[test]
    fn the_percentile_curve_is_monotonic() {
        let mut uniform = histogram();
        (1..=1000u64).for_each(|us| record(&mut uniform, Duration::from_micros(us)));
        let curve = percentile_curve(&uniform);
        assert!(curve.len() > 10 && curve.windows(2).all(|w| w[0].0 <= w[1].0 && w[0].1 <= w[1].1));
        near(curve.last().expect("a point").1, 1000.0);
        assert!(percentile_curve(&histogram()).is_empty());
    }
}
