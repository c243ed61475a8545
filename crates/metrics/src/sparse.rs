//! [`SparseHistogram`]: a distribution of values that are recorded rarely.
//!
//! It has the buckets, units and intervals of a [`Histogram`](crate::Histogram), but keeps only the
//! nonempty buckets, behind a lock: 16 bytes each. So a table or a server can have one for
//! everything about its flushes, which happen every few seconds at most.

use std::time::{Duration, Instant};

use evenkeel_common::clock;
use parking_lot::Mutex;

use crate::histogram::{HistogramSnapshot, INTERVAL, Interval, bucket_of, time_units};
use crate::is_on;

/// A histogram; see the module's documentation.
#[derive(Debug, Default)]
pub struct SparseHistogram(Mutex<State>);

/// The nonempty buckets in order, with their counts.
type Buckets = Vec<(usize, u64)>;

#[derive(Debug, Default)]
struct State {
    counts: Buckets,
    past: Option<Box<Past>>,
}

/// State at the end of the last interval.
#[derive(Debug)]
struct Past {
    ended_at: Instant,
    counts: Buckets,
    interval: Buckets,
}

impl SparseHistogram {
    /// Records a value.
    pub fn record(&self, value: u64) {
        if !is_on() {
            return;
        }
        let bucket = bucket_of(value);
        let counts = &mut self.0.lock().counts;
        match counts.binary_search_by_key(&bucket, |(bucket, _)| *bucket) {
            Ok(at) => counts.iter_mut().skip(at).take(1).for_each(|(_, count)| *count += 1),
            Err(at) => counts.insert(at, (bucket, 1)),
        }
    }

    /// Records a time, in units of 128 ns.
    pub fn record_time(&self, time: Duration) {
        self.record(time_units(time));
    }

    /// Returns all values since the start.
    pub fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot::of_buckets(&self.0.lock().counts)
    }

    /// As [`Histogram::interval`](crate::Histogram::interval).
    pub fn interval(&self) -> Interval {
        self.interval_at(clock::monotonic())
    }

    fn interval_at(&self, now: Instant) -> Interval {
        let mut state = self.0.lock();
        let State { counts, past } = &mut *state;
        let total = counts.iter().map(|(_, count)| count).sum();
        if let Some(past) = past.as_ref().filter(|past| now < past.ended_at + INTERVAL) {
            return Interval { total, values: HistogramSnapshot::of_buckets(&past.interval) };
        }
        let interval = match past.as_ref() {
            Some(past) => since(counts, &past.counts),
            None => counts.clone(),
        };
        let values = HistogramSnapshot::of_buckets(&interval);
        if total > 0 {
            *past = Some(Box::new(Past { ended_at: now, counts: counts.clone(), interval }));
        }
        Interval { total, values }
    }
}

/// Returns the values that an earlier state of the same buckets did not contain.
fn since(now: &Buckets, earlier: &Buckets) -> Buckets {
    let before = |bucket: usize| {
        let at = earlier.binary_search_by_key(&bucket, |(bucket, _)| *bucket).ok()?;
        earlier.get(at).map(|(_, count)| *count)
    };
    let newer = now.iter().map(|&(bucket, count)| (bucket, count - before(bucket).unwrap_or(0)));
    newer.filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Histogram;

    #[test]
    fn a_sparse_histogram_equals_a_dense_one() {
        let (sparse, dense) = (SparseHistogram::default(), Histogram::default());
        for value in [5, 0, 7, 1 << 20, 5, u64::MAX, 33] {
            sparse.record(value);
            dense.record(value);
        }
        assert_eq!(sparse.snapshot(), dense.snapshot());
        let (of_sparse, of_dense) = (sparse.interval(), dense.interval());
        assert_eq!((of_sparse.total, of_sparse.values), (of_dense.total, of_dense.values));
        assert_eq!(SparseHistogram::default().interval().values, Histogram::default().interval().values);
    }

    #[test]
    fn an_interval_has_only_its_own_values() {
        let (histogram, start) = (SparseHistogram::default(), clock::monotonic());
        histogram.record(5);
        assert_eq!(histogram.interval_at(start).values.count(), 1);
        [5, 7].iter().for_each(|value| histogram.record(*value));
        let again = histogram.interval_at(start + INTERVAL / 2);
        assert_eq!((again.total, again.values.max()), (3, 5));
        let next = histogram.interval_at(start + INTERVAL);
        assert_eq!((next.values.count(), next.values.min(), next.values.max()), (2, 5, 7));
        assert_eq!(histogram.interval_at(start + 2 * INTERVAL).values.count(), 0);
    }
}
