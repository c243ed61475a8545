//! [`FilterTimer`]: how long a filter's calls take, while a scan is sampled.
//!
//! The timer takes the place of a scan's filter for some rows and delegates to it, so a scan that
//! is not sampled pays nothing. The first [`TIMED_CALLS`] calls are timed. A call of [`SLOW_CALL`]
//! or more is noted as the request's time at once ([`Cause::Filter`]), and has the next calls timed
//! as well, so a costly filter is measured and not estimated. The time of the other calls is
//! extrapolated from those that were timed.

use std::time::Duration;

use evenkeel_common::{CellBuffer, CellRef, KeyBuf, Result, clock};
use evenkeel_metrics::waits::{self, Cause};

use super::{Filter, ReplacedValue, ReturnCode};

/// Calls timed after the start, and after each slow one: those of about two rows.
const TIMED_CALLS: u32 = 8;
/// A call that takes this long is noted at once. Two readings of the clock take 0.1 µs.
const SLOW_CALL: Duration = Duration::from_micros(20);

/// See the module's documentation.
pub struct FilterTimer {
    inner: Box<dyn Filter>,
    /// The next calls to be timed.
    left: u32,
    /// Calls that were not slow.
    calls: u64,
    /// Those of them that were timed, and their time.
    timed: u64,
    timed_ns: u64,
    saw_slow: bool,
}

/// A filter that drops nothing, in a timer whose filter was taken.
struct Nothing;

impl Filter for Nothing {
    fn filter_cell(&mut self, _cell: &CellRef<'_>) -> Result<ReturnCode> {
        Ok(ReturnCode::Include)
    }
}

impl FilterTimer {
    /// Puts a timer around `filter`, if there is a filter; starts its timer again if it has one.
    pub(crate) fn start(filter: &mut Option<Box<dyn Filter>>) {
        if let Some(timer) = filter.as_mut().and_then(|filter| filter.timer()) {
            timer.restart();
        } else if let Some(inner) = filter.take() {
            let timer = Self { inner, left: TIMED_CALLS, calls: 0, timed: 0, timed_ns: 0, saw_slow: false };
            *filter = Some(Box::new(timer));
        }
    }

    /// Takes the timer off, unless a call was slow since its start: then it goes on. Returns the
    /// time of the calls that were not slow, in nanoseconds; 0 without a timer.
    pub(crate) fn stop(filter: &mut Option<Box<dyn Filter>>) -> u64 {
        let Some(timer) = filter.as_mut().and_then(|filter| filter.timer()) else { return 0 };
        let fast_ns = timer.fast_ns();
        match timer.saw_slow {
            true => timer.restart(),
            false => *filter = Some(std::mem::replace(&mut timer.inner, Box::new(Nothing))),
        }
        fast_ns
    }

    fn restart(&mut self) {
        self.left = TIMED_CALLS;
        (self.calls, self.timed, self.timed_ns, self.saw_slow) = (0, 0, 0, false);
    }

    fn fast_ns(&self) -> u64 {
        self.timed_ns.saturating_mul(self.calls).checked_div(self.timed).unwrap_or(0)
    }

    #[inline]
    fn time<T>(&mut self, call: impl FnOnce(&mut dyn Filter) -> T) -> T {
        if self.left == 0 {
            self.calls += 1;
            return call(&mut *self.inner);
        }
        let began_at = clock::ticks();
        let result = call(&mut *self.inner);
        self.count(clock::ticks().ns_since(began_at));
        result
    }

    fn count(&mut self, ns: u64) {
        let took = Duration::from_nanos(ns);
        if took >= SLOW_CALL {
            waits::note(Cause::Filter, took);
            (self.left, self.saw_slow) = (TIMED_CALLS, true);
        } else {
            self.left -= 1;
            self.calls += 1;
            self.timed += 1;
            self.timed_ns = self.timed_ns.saturating_add(ns);
        }
    }
}

impl Filter for FilterTimer {
    fn reset(&mut self) {
        self.inner.reset();
    }

    fn filter_row_key(&mut self, first_cell: &CellRef<'_>) -> Result<bool> {
        self.time(|filter| filter.filter_row_key(first_cell))
    }

    fn filter_all_remaining(&self) -> bool {
        self.inner.filter_all_remaining()
    }

    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode> {
        self.time(|filter| filter.filter_cell(cell))
    }

    fn transform(&self, cell: &CellRef<'_>) -> Option<ReplacedValue> {
        self.inner.transform(cell)
    }

    fn filter_row_cells(&mut self, cells: &mut CellBuffer, from: usize) -> Result<()> {
        self.time(|filter| filter.filter_row_cells(cells, from))
    }

    fn has_filter_row(&self) -> bool {
        self.inner.has_filter_row()
    }

    fn filter_row(&mut self) -> Result<bool> {
        self.time(|filter| filter.filter_row())
    }

    fn next_cell_hint(&mut self, cell: &CellRef<'_>) -> Result<Option<KeyBuf>> {
        self.time(|filter| filter.next_cell_hint(cell))
    }

    fn is_family_essential(&self, family: &[u8]) -> bool {
        self.inner.is_family_essential(family)
    }

    fn set_reversed(&mut self, reversed: bool) {
        self.inner.set_reversed(reversed);
    }

    fn is_hinting(&self) -> bool {
        self.inner.is_hinting()
    }

    fn timer(&mut self) -> Option<&mut FilterTimer> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_common::KeyValue;

    use super::*;

    /// Rejects rows; the calls with these numbers, from 0 on, take a millisecond.
    struct Sleeper {
        calls: usize,
        slow: &'static [usize],
    }

    impl Filter for Sleeper {
        fn filter_row_key(&mut self, _first_cell: &CellRef<'_>) -> Result<bool> {
            if self.slow.contains(&self.calls) {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.calls += 1;
            Ok(true)
        }

        fn filter_cell(&mut self, _cell: &CellRef<'_>) -> Result<ReturnCode> {
            Ok(ReturnCode::Skip)
        }
    }

    fn call(filter: &mut Option<Box<dyn Filter>>, times: usize) {
        let cell = KeyValue::put(b"r", b"f", b"q", 1, b"v");
        let filter = filter.as_mut().expect("a filter");
        for _ in 0..times {
            assert!(filter.filter_row_key(&cell.as_cell()).expect("an answer"));
        }
    }

    fn is_timed(filter: &mut Option<Box<dyn Filter>>) -> bool {
        filter.as_mut().is_some_and(|filter| filter.timer().is_some())
    }

    #[test]
    fn calls_of_a_cheap_filter_are_extrapolated() {
        waits::take();
        let mut filter: Option<Box<dyn Filter>> = Some(Box::new(Sleeper { calls: 0, slow: &[] }));
        FilterTimer::start(&mut filter);
        assert!(is_timed(&mut filter));
        call(&mut filter, 80);
        let timer = filter.as_mut().and_then(|filter| filter.timer()).expect("a timer");
        // A preempted call looks slow, and is noted then.
        if timer.saw_slow {
            assert!(timer.calls < 80 && waits::take().is_some());
        } else {
            assert_eq!((timer.left, timer.calls, timer.timed), (0, 80, u64::from(TIMED_CALLS)));
            assert_eq!(timer.fast_ns(), timer.timed_ns * 10);
        }
        FilterTimer::stop(&mut filter);
        FilterTimer::stop(&mut filter);
        assert!(!is_timed(&mut filter));
        call(&mut filter, 1);
        assert_eq!((FilterTimer::stop(&mut filter), FilterTimer::stop(&mut None)), (0, 0));
    }

    #[test]
    fn calls_of_a_costly_filter_are_noted_at_once() {
        waits::take();
        let slow = &[1, 3, 11, 30];
        let mut filter: Option<Box<dyn Filter>> = Some(Box::new(Sleeper { calls: 0, slow }));
        FilterTimer::start(&mut filter);
        call(&mut filter, 40);
        let noted = waits::take().expect("time").of(Cause::Filter);
        // The last one comes too late after the one before.
        let ms = Duration::from_millis;
        assert!(noted >= ms(3), "{noted:?}");
        FilterTimer::stop(&mut filter);
        assert!(is_timed(&mut filter), "the timer goes on");
        FilterTimer::stop(&mut filter);
        assert!(!is_timed(&mut filter));
    }
}
