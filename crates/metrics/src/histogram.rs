//! [`Histogram`]: how often each value was recorded, to about 1.6 %; and [`Histograms`], several
//! that are recorded together.
//!
//! # Buckets
//! As in HdrHistogram, each power of two is divided into [`SUB_BUCKETS`] equal buckets, and the
//! values below `SUB_BUCKETS` have a bucket each. A bucket is at most a 32nd of its values wide, so
//! its middle is off by at most one part in 64. Values of [`VALUE_MAX`] and more share the last
//! bucket.
//!
//! # Units
//! A histogram has no unit. Times are recorded in units of 128 ns ([`Histogram::record_time`]):
//! fine enough for a Get of 10 µs, with a range of 4.9 hours.
//!
//! # Cost
//! Recording finds this thread's stripe, executes one `leading_zeros`, and makes one addition to an
//! atomic that no other core writes. Histograms that are recorded together share the look-up of the
//! stripe. Minimum, maximum and mean are derived from the buckets. A stripe has 8 KiB of counts and
//! is allocated when its thread first records.
//!
//! # Intervals
//! HBase's histograms show the values since they were last collected. Here several sinks read one
//! histogram, and one reader must not take the values of another. So readers get the distribution
//! of the last interval that has ended, of at least [`INTERVAL`], and all readers get the same one.
//! Nothing is reset: an interval is the difference of two sums.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use evenkeel_common::clock;
use evenkeel_common::length;
use parking_lot::Mutex;

use crate::is_on;
use crate::striped::Striped;

/// Buckets per power of two.
pub const SUB_BUCKETS: usize = 1 << SUB_BITS;
const SUB_BITS: u32 = 5;
/// Number of powers of two that have their own buckets.
const VALUE_BITS: u32 = 37;
/// Values from this one on share the last bucket.
pub const VALUE_MAX: u64 = (1 << VALUE_BITS) - 1;
const BUCKETS: usize = (VALUE_BITS - SUB_BITS + 1) as usize * SUB_BUCKETS;

/// log2 of the nanoseconds in a unit of time.
const TIME_SHIFT: u32 = 7;
/// Time units per millisecond, rounded down by 0.006 %.
pub const TIME_UNITS_PER_MS: u64 = 1_000_000 >> TIME_SHIFT;

/// Minimum length of an interval: the default period of metrics2.
pub const INTERVAL: Duration = Duration::from_secs(10);

/// A histogram; see the module's documentation.
#[derive(Debug, Default)]
pub struct Histogram(Histograms<1>);

/// `N` histograms that record one value each at the same time. The owner assigns meanings to the
/// indices.
#[derive(Debug)]
pub struct Histograms<const N: usize> {
    stripes: Striped<Stripe<N>>,
    intervals: [Intervals; N],
}

impl<const N: usize> Default for Histograms<N> {
    fn default() -> Self {
        Self { stripes: Striped::default(), intervals: std::array::from_fn(|_| Intervals::default()) }
    }
}

/// The counts of some threads: the buckets of each histogram.
#[derive(Debug)]
struct Stripe<const N: usize>([Buckets; N]);

#[derive(Debug)]
struct Buckets([AtomicU64; BUCKETS]);

impl<const N: usize> Default for Stripe<N> {
    fn default() -> Self {
        Self([const { Buckets([const { AtomicU64::new(0) }; BUCKETS]) }; N])
    }
}

impl Buckets {
    #[inline]
    fn add(&self, value: u64, n: u64) {
        if let Some(bucket) = self.0.get(bucket_of(value)) {
            bucket.fetch_add(n, Relaxed);
        }
    }
}

impl<const N: usize> Histograms<N> {
    /// Records one value in each histogram.
    #[inline]
    pub fn record(&self, values: [u64; N]) {
        if is_on() {
            let stripe = self.stripes.mine();
            stripe.0.iter().zip(values).for_each(|(buckets, value)| buckets.add(value, 1));
        }
    }

    /// As [`Histograms::record`], but does not allocate. If the thread's stripe does not exist,
    /// returns false and records nothing. A caller that makes no other call saves no registers.
    #[inline]
    pub fn try_record(&self, values: [u64; N]) -> bool {
        if !is_on() {
            return true;
        }
        let Some(stripe) = self.stripes.existing() else { return false };
        stripe.0.iter().zip(values).for_each(|(buckets, value)| buckets.add(value, 1));
        true
    }

    /// Returns all values of one histogram since the start; none if the index is out of range.
    pub fn snapshot(&self, number: usize) -> HistogramSnapshot {
        let mut sum = HistogramSnapshot::default();
        self.add_to(number, &mut sum);
        sum
    }

    /// Adds all values of one histogram since the start to `sum`.
    pub fn add_to(&self, number: usize, sum: &mut HistogramSnapshot) {
        for buckets in self.stripes.all().filter_map(|stripe| stripe.0.get(number)) {
            sum.counts.resize(BUCKETS, 0);
            for (to, from) in sum.counts.iter_mut().zip(&buckets.0) {
                *to += from.load(Relaxed);
            }
        }
    }

    /// Returns the values of one histogram in the last interval that has ended. See [`Intervals`].
    pub fn interval(&self, number: usize) -> Interval {
        let intervals = self.intervals.get(number);
        intervals.map_or_else(Interval::default, |intervals| intervals.of(self.snapshot(number)))
    }
}

/// State at the end of the last interval.
#[derive(Debug)]
struct LastInterval {
    ended_at: Instant,
    sum: HistogramSnapshot,
    interval: HistogramSnapshot,
}

/// The values of an interval, and the count of all values.
#[derive(Clone, Debug, Default)]
pub struct Interval {
    /// Number of values since the start.
    pub total: u64,
    /// The values of the interval.
    pub values: HistogramSnapshot,
}

impl Interval {
    /// Adds the values of another histogram.
    pub fn add(&mut self, other: &Self) {
        self.total += other.total;
        self.values.add(&other.values);
    }
}

impl Histogram {
    /// Records a value.
    #[inline]
    pub fn record(&self, value: u64) {
        self.record_n(value, 1);
    }

    /// Records a value `n` times.
    #[inline]
    pub fn record_n(&self, value: u64, n: u64) {
        if is_on() {
            self.0.stripes.mine().0.iter().for_each(|buckets| buckets.add(value, n));
        }
    }

    /// Records a time, in units of 128 ns.
    #[inline]
    pub fn record_time(&self, time: Duration) {
        self.record(time_units(time));
    }

    /// Returns all values since the start.
    pub fn snapshot(&self) -> HistogramSnapshot {
        self.0.snapshot(0)
    }

    /// Adds all values since the start to `sum`.
    pub fn add_to(&self, sum: &mut HistogramSnapshot) {
        self.0.add_to(0, sum);
    }

    /// Returns the values of the last interval that has ended. See [`Intervals`].
    pub fn interval(&self) -> Interval {
        self.0.interval(0)
    }
}

/// Divides the values of a histogram, or of a sum of several, into intervals.
///
/// The first interval begins with the first value. Until it has ended, it contains all values so
/// far.
#[derive(Debug, Default)]
pub struct Intervals(Mutex<Option<Box<LastInterval>>>);

impl Intervals {
    /// Returns the last interval that has ended; `sum` contains all values so far.
    pub fn of(&self, sum: HistogramSnapshot) -> Interval {
        self.at(sum, clock::monotonic())
    }

    fn at(&self, sum: HistogramSnapshot, now: Instant) -> Interval {
        let mut last = self.0.lock();
        let total = sum.count();
        if let Some(last) = last.as_ref().filter(|last| now < last.ended_at + INTERVAL) {
            return Interval { total, values: last.interval.clone() };
        }
        let values = match last.as_ref() {
            Some(last) => sum.since(&last.sum),
            None => sum.clone(),
        };
        if total > 0 {
            *last = Some(Box::new(LastInterval { ended_at: now, sum, interval: values.clone() }));
        }
        Interval { total, values }
    }
}

/// Converts a time to the units of [`Histogram::record_time`].
#[inline]
pub fn time_units(time: Duration) -> u64 {
    time_units_of_ns(time.as_secs() * 1_000_000_000 + u64::from(time.subsec_nanos()))
}

/// Converts nanoseconds to the units of [`Histogram::record_time`].
#[inline]
pub fn time_units_of_ns(ns: u64) -> u64 {
    ns >> TIME_SHIFT
}

/// Returns the bucket of a value, below [`BUCKETS`].
#[inline]
pub(crate) fn bucket_of(value: u64) -> usize {
    // The number of powers of two above those whose values have a bucket each.
    let shift = (value | (2 * SUB_BUCKETS as u64 - 1)).ilog2() - SUB_BITS;
    (shift as usize * SUB_BUCKETS + length::index(value >> shift)).min(BUCKETS - 1)
}

/// Returns the least and the greatest value of a bucket.
fn bounds_of(bucket: usize) -> (u64, u64) {
    let Some(shift) = (bucket / SUB_BUCKETS).checked_sub(1) else { return (bucket as u64, bucket as u64) };
    let low = ((bucket - shift * SUB_BUCKETS) as u64) << shift;
    (low, low + (1 << shift) - 1)
}

/// How often each value was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// One count per bucket; empty if there are no values.
    counts: Vec<u64>,
}

impl HistogramSnapshot {
    /// Makes a snapshot from the nonempty buckets.
    pub(crate) fn of_buckets(buckets: &[(usize, u64)]) -> Self {
        let mut counts = if buckets.is_empty() { Vec::new() } else { vec![0; BUCKETS] };
        for &(bucket, count) in buckets {
            counts.iter_mut().skip(bucket).take(1).for_each(|to| *to = count);
        }
        Self { counts }
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds the values of another snapshot.
    pub fn add(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(to, from)| *to += from);
    }

    /// Returns the values that an earlier snapshot did not contain.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut counts = self.counts.clone();
        counts.iter_mut().zip(&earlier.counts).for_each(|(to, from)| *to = to.saturating_sub(*from));
        Self { counts }
    }

    /// Returns the lower bound of the least value's bucket; 0 without values.
    pub fn min(&self) -> u64 {
        self.counts.iter().position(|&count| count > 0).map_or(0, |bucket| bounds_of(bucket).0)
    }

    /// Returns the upper bound of the greatest value's bucket; 0 without values.
    pub fn max(&self) -> u64 {
        self.counts.iter().rposition(|&count| count > 0).map_or(0, |bucket| bounds_of(bucket).1)
    }

    /// Returns the mean, computed from the middles of the buckets; 0 without values.
    pub fn mean(&self) -> f64 {
        let count = self.count();
        if count == 0 {
            return 0.0;
        }
        let sum: f64 = self.filled().map(|(bucket, count)| middle_of(bucket) * count as f64).sum();
        sum / count as f64
    }

    /// Returns the value that a fraction (0 to 1) of all values does not exceed, as the middle of
    /// its bucket; 0 without values.
    pub fn quantile(&self, part: f64) -> u64 {
        let wanted = length::whole((self.count() as f64 * part).ceil().max(1.0));
        let mut seen = 0;
        for (bucket, count) in self.filled() {
            seen += count;
            if seen >= wanted {
                return length::whole(middle_of(bucket));
            }
        }
        0
    }

    /// Returns the number of values that do not exceed `value`. The bucket of `value` counts if its
    /// middle does not exceed `value`.
    pub fn count_upto(&self, value: u64) -> u64 {
        self.filled().filter(|(bucket, _)| middle_of(*bucket) <= value as f64).map(|(_, count)| count).sum()
    }

    fn filled(&self) -> impl Iterator<Item = (usize, u64)> {
        self.counts.iter().copied().enumerate().filter(|(_, count)| *count > 0)
    }
}

fn middle_of(bucket: usize) -> f64 {
    let (low, high) = bounds_of(bucket);
    (low + high) as f64 / 2.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        let mut next = 0;
        for bucket in 0..BUCKETS {
            let (low, high) = bounds_of(bucket);
            assert_eq!(low, next, "bucket {bucket}");
            assert_eq!((bucket_of(low), bucket_of(high)), (bucket, bucket));
            next = high + 1;
        }
        assert_eq!(next, VALUE_MAX + 1);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_within_a_part_in_sixty_four() {
        let histogram = Histogram::default();
        (1..=100_000).for_each(|value| histogram.record(value));
        let values = histogram.snapshot();
        assert_eq!(values.count(), 100_000);
        for (part, expected) in [(0.5, 50_000.0), (0.99, 99_000.0), (0.999, 99_900.0)] {
            let off = values.quantile(part) as f64 / expected - 1.0;
            assert!(off.abs() < 1.0 / 64.0, "{part}: {off}");
        }
        assert!((values.mean() / 50_000.5 - 1.0).abs() < 1.0 / 64.0);
        assert_eq!(values.min(), 1);
    }

    fn at(histogram: &Histogram, now: Instant) -> Interval {
        histogram.0.intervals[0].at(histogram.snapshot(), now)
    }

    #[test]
    fn an_interval_is_the_same_for_every_reader() {
        let (histogram, start) = (Histogram::default(), clock::monotonic());
        assert_eq!(at(&histogram, start).total, 0);
        histogram.record(5);
        assert_eq!(at(&histogram, start).values.count(), 1);
        histogram.record(7);
        let again = at(&histogram, start + INTERVAL / 2);
        assert_eq!((again.total, again.values.max()), (2, 5));
        let next = at(&histogram, start + INTERVAL);
        assert_eq!((next.total, next.values.count(), next.values.max()), (2, 1, 7));
        let quiet = at(&histogram, start + 2 * INTERVAL);
        assert_eq!((quiet.total, quiet.values.count(), quiet.values.quantile(0.5)), (2, 0, 0));
    }

    #[test]
    fn histograms_recorded_together_stay_separate() {
        let both = Histograms::<2>::default();
        both.record([1, 1_000]);
        both.record([2, 2_000]);
        let [first, second] = [both.snapshot(0), both.snapshot(1)];
        assert_eq!((first.count(), first.min(), first.max()), (2, 1, 2));
        assert!(second.count() == 2 && second.min() >= 960 && second.max() < 2_048);
        assert!(both.try_record([3, 3]) && !Histograms::<2>::default().try_record([3, 3]));
        assert_eq!((both.interval(1).total, both.interval(2).total, both.snapshot(2).count()), (3, 0, 0));
    }

    #[test]
    fn values_of_all_threads_are_counted() {
        let histogram = Histogram::default();
        std::thread::scope(|scope| {
            for thread in 0..40 {
                let histogram = &histogram;
                scope.spawn(move || (0..100).for_each(|_| histogram.record(thread)));
            }
        });
        let values = histogram.snapshot();
        assert_eq!((values.count(), values.quantile(0.5)), (4_000, 19));
    }

    proptest! {
        #[test]
        fn a_value_lies_in_its_bucket(value in 0..=VALUE_MAX) {
            let (low, high) = bounds_of(bucket_of(value));
            prop_assert!(low <= value && value <= high);
            prop_assert!((high - low) as f64 <= value as f64 / 32.0);
        }
    }
}
