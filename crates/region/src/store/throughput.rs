//! Throughput limits: [`CompactionThroughputController`] of all compactions of a server together,
//! [`ThroughputController`] in general and of flushes.
//!
//! A compaction without a limit takes the disk and the caches from readers while it runs. HBase
//! limits all compactions of a server to a rate that grows with the need for them
//! (`PressureAwareCompactionThroughputController`): it writes a second's worth of bytes, and then
//! the compaction sleeps for the time it was ahead. Here the same limit is applied after every few
//! cells: the writer sleeps until the server's virtual clock has caught up. So the disk sees an
//! even stream, and a compaction can be cancelled within [`SLEEP_MAX`].
//!
//! The virtual clock is one instant: when everything written so far would be done at the limit. A
//! writer adds its bytes to it and sleeps until then. Unused time is not saved up beyond
//! [`SLEEP_MAX`].
//!
//! HBase counts the bytes that a compaction writes, so one that drops nearly everything it reads
//! (expired or deleted cells) reads without a limit. Here the larger of the bytes read and written
//! counts: a compaction that keeps its cells has HBase's limit, and one that drops them reads no
//! faster.
//!
//! Flushes have no limit unless one is configured (`PressureAwareFlushThroughputController`). That
//! limit works the same way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use evenkeel_common::clock;
use parking_lot::Mutex;

/// The longest sleep between two checks for cancellation.
const SLEEP_MAX: Duration = Duration::from_millis(10);

/// Limits the combined rate of several writers. See the module.
#[derive(Debug)]
pub struct ThroughputController {
    /// `u64::MAX` for no limit.
    bytes_per_s: AtomicU64,
    /// When everything written so far would be done at the limit.
    done_at: Mutex<Instant>,
    waited_us: AtomicU64,
    bytes: AtomicU64,
}

/// Shared by all compactions of a server. See the module.
#[derive(Debug, Default)]
pub struct CompactionThroughputController {
    controller: ThroughputController,
    /// True in the hours in which larger compactions are allowed.
    off_peak: AtomicBool,
    /// True while a compaction uses the larger off-peak ratio, which only one at a time may do.
    off_peak_used: Arc<AtomicBool>,
}

/// Held by the one compaction that was selected by the off-peak ratio. Dropping it releases the
/// permit.
#[derive(Debug)]
pub struct OffPeakPermit(Arc<AtomicBool>);

impl Drop for OffPeakPermit {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl CompactionThroughputController {
    /// The limit that all compactions share.
    pub fn controller(&self) -> &ThroughputController {
        &self.controller
    }

    /// See [`ThroughputController::set_limit`].
    pub fn set_limit(&self, bytes_per_s: Option<u64>) {
        self.controller.set_limit(bytes_per_s);
    }

    /// Sets whether the current hour is off-peak (`hbase.offpeak.start.hour`, `.end.hour`).
    pub fn set_off_peak(&self, off_peak: bool) {
        self.off_peak.store(off_peak, Ordering::Relaxed);
    }

    /// Returns a permit to select files by the off-peak ratio; `None` in peak hours, and while
    /// another compaction holds it.
    pub fn off_peak_permit(&self) -> Option<OffPeakPermit> {
        let free = self.off_peak.load(Ordering::Relaxed) && !self.off_peak_used.swap(true, Ordering::Acquire);
        free.then(|| OffPeakPermit(Arc::clone(&self.off_peak_used)))
    }

    /// Returns true if [`CompactionThroughputController::off_peak_permit`] would return a permit.
    pub fn is_off_peak_permit_free(&self) -> bool {
        self.off_peak.load(Ordering::Relaxed) && !self.off_peak_used.load(Ordering::Relaxed)
    }
}

impl Default for ThroughputController {
    fn default() -> Self {
        Self {
            bytes_per_s: AtomicU64::new(u64::MAX),
            done_at: Mutex::new(clock::monotonic()),
            waited_us: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }
}

impl ThroughputController {
    /// Sets the limit, in bytes per second; `None` for no limit. Current writers continue at the
    /// new limit.
    pub fn set_limit(&self, bytes_per_s: Option<u64>) {
        self.bytes_per_s.store(bytes_per_s.map_or(u64::MAX, |limit| limit.max(1)), Ordering::Relaxed);
    }

    /// The limit, in bytes per second.
    pub fn limit(&self) -> Option<u64> {
        Some(self.bytes_per_s.load(Ordering::Relaxed)).filter(|limit| *limit != u64::MAX)
    }

    /// The total time that writers have waited.
    pub fn waited(&self) -> Duration {
        Duration::from_micros(self.waited_us.load(Ordering::Relaxed))
    }

    /// Bytes counted so far, with or without a limit.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Counts `bytes` just written, and sleeps until they are within the limit. Returns false,
    /// without further sleep, once `ends` returns true.
    pub fn control(&self, bytes: u64, ends: impl Fn() -> bool) -> bool {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let done_at = self.limit().map(|limit| self.advance(bytes, limit));
        let started = clock::monotonic();
        let is_within = loop {
            if ends() {
                break false;
            }
            let left = done_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(clock::monotonic()));
            if left.is_zero() {
                break true;
            }
            std::thread::sleep(left.min(SLEEP_MAX));
        };
        let waited = u64::try_from(clock::since(started).as_micros()).unwrap_or(u64::MAX);
        self.waited_us.fetch_add(waited, Ordering::Relaxed);
        is_within
    }

    /// Adds bytes to the virtual clock and returns its new value.
    fn advance(&self, bytes: u64, limit: u64) -> Instant {
        let takes = Duration::from_secs_f64((bytes as f64 / limit as f64).min(3600.0));
        let mut done_at = self.done_at.lock();
        let earliest = clock::monotonic().checked_sub(SLEEP_MAX).unwrap_or(*done_at);
        *done_at = (*done_at).max(earliest) + takes;
        *done_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn never() -> bool {
        false
    }

    #[test]
    fn two_writers_share_one_limit() {
        let throughput = ThroughputController::default();
        throughput.set_limit(Some(1_000_000));
        let started = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..10).for_each(|_| assert!(throughput.control(5_000, never))));
            }
        });
        // 100 KB at 1 MB/s, less the credit of one longest sleep.
        assert!(started.elapsed() >= Duration::from_millis(85), "{:?}", started.elapsed());
        assert!(throughput.waited() >= Duration::from_millis(85));
    }

    #[test]
    fn writes_without_a_limit_do_not_wait() {
        let throughput = ThroughputController::default();
        let started = Instant::now();
        assert!(throughput.control(u64::MAX, never));
        assert!(started.elapsed() < Duration::from_secs(1));
        assert_eq!(throughput.limit(), None);
    }

    #[test]
    fn cancellation_ends_a_throttled_wait_at_once() {
        let throughput = ThroughputController::default();
        throughput.set_limit(Some(1));
        let cancelled = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| throughput.control(1_000_000, || cancelled.load(Ordering::Relaxed)));
            std::thread::sleep(Duration::from_millis(20));
            let told = Instant::now();
            cancelled.store(true, Ordering::Relaxed);
            assert!(!waiter.join().expect("no panic"));
            assert!(told.elapsed() < Duration::from_secs(1), "{:?}", told.elapsed());
        });
    }

    #[test]
    fn the_off_peak_permit_is_exclusive() {
        let throughput = CompactionThroughputController::default();
        assert!(throughput.off_peak_permit().is_none(), "in peak hours");
        throughput.set_off_peak(true);
        assert!(
            throughput.is_off_peak_permit_free() && throughput.is_off_peak_permit_free(),
            "to ask is not to take"
        );
        let turn = throughput.off_peak_permit();
        assert!(
            turn.is_some() && throughput.off_peak_permit().is_none() && !throughput.is_off_peak_permit_free()
        );
        drop(turn);
        assert!(throughput.off_peak_permit().is_some());
    }

    #[test]
    fn idle_time_does_not_accumulate() {
        let throughput = ThroughputController::default();
        throughput.set_limit(Some(1_000_000));
        assert!(throughput.control(1, never));
        std::thread::sleep(Duration::from_millis(100));
        let started = Instant::now();
        assert!(throughput.control(50_000, never));
        assert!(started.elapsed() >= Duration::from_millis(35), "{:?}", started.elapsed());
    }
}
