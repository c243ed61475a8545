//! The clocks. The wall clock is behind a trait, so that a test or a simulation can set it; the
//! monotonic clock is one function. A lint denies reading the system's clocks elsewhere.
//!
//! [`Ticks`] are readings of the monotonic clock for measurements in every request: the difference
//! of two is one subtraction, whereas that of two [`Instant`]s is a call of 36 instructions.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of wall-clock time.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Milliseconds since 1970.
    fn now_ms(&self) -> i64;
}

/// The machine's clock.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    fn now_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }
}

/// The time of the monotonic clock, to measure durations and to keep deadlines.
#[inline]
#[allow(clippy::disallowed_methods, reason = "the one place that reads the monotonic clock")]
pub fn monotonic() -> Instant {
    Instant::now()
}

/// The time since an earlier reading of the monotonic clock; zero if `at` is later.
#[inline]
pub fn since(at: Instant) -> Duration {
    monotonic().saturating_duration_since(at)
}

/// A reading of the monotonic clock, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticks(u64);

/// Reads the monotonic clock, for measurements in every request.
#[inline]
#[allow(clippy::disallowed_methods, reason = "the one place that reads ticks")]
pub fn ticks() -> Ticks {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // Both parts are positive: the clock counts from the start of the machine.
    Ticks((now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64))
}

/// Returns how long the calling thread has run on a processor, up to now.
#[allow(clippy::disallowed_methods, reason = "the one place that reads the clock of a thread")]
pub fn thread_ran() -> Duration {
    let ran = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(ran.tv_sec).unwrap_or(0), u32::try_from(ran.tv_nsec).unwrap_or(0))
}

impl Ticks {
    /// Nanoseconds from `earlier` until this; 0 if it is not earlier.
    #[inline]
    pub fn ns_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The same reading as an [`Instant`], to the time that a reading takes.
    pub fn instant(self) -> Instant {
        let (ticks, instant) = *both();
        match self >= ticks {
            true => instant + Duration::from_nanos(self.ns_since(ticks)),
            false => instant.checked_sub(Duration::from_nanos(ticks.ns_since(self))).unwrap_or(instant),
        }
    }

    /// The reading of an [`Instant`], to the time that a reading takes.
    pub fn of(at: Instant) -> Self {
        let (ticks, instant) = *both();
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        match at >= instant {
            true => Self(ticks.0.saturating_add(ns(at - instant))),
            false => Self(ticks.0.saturating_sub(ns(instant - at))),
        }
    }
}

/// The first reading, in both forms.
fn both() -> &'static (Ticks, Instant) {
    static BOTH: OnceLock<(Ticks, Instant)> = OnceLock::new();
    BOTH.get_or_init(|| (ticks(), monotonic()))
}

/// A clock that changes only when it is set or advanced.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that shows `now_ms`.
    pub fn at(now_ms: i64) -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(now_ms)))
    }

    /// Moves the clock forward.
    pub fn advance_ms(&self, by_ms: i64) {
        self.0.fetch_add(by_ms, Ordering::Relaxed);
    }

    /// Sets the clock.
    pub fn set_ms(&self, now_ms: i64) {
        self.0.store(now_ms, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_those_of_the_monotonic_clock() {
        let (before, instant) = (ticks(), monotonic());
        std::thread::sleep(Duration::from_millis(3));
        let (after, took) = (ticks(), instant.elapsed());
        let ns = after.ns_since(before);
        assert!(ns >= 3_000_000 && u128::from(ns) <= took.as_nanos() + 1_000_000_000, "{ns} {took:?}");
        assert_eq!(before.ns_since(after), 0);
        let between = after.instant() - before.instant();
        assert_eq!(between, Duration::from_nanos(ns));
        assert_eq!((Ticks::of(before.instant()), Ticks::of(after.instant())), (before, after));
    }
}
