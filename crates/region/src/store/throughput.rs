//! [`CompactionThroughputController`]: how fast the compactions of a server write, all together; [`ThroughputController`]: the same of flushes.
//!
//! A compaction that controller as fast as it can takes the disk and the caches from readers for as long as it lasts. HBase
//! holds all compactions of a server under a limit that grows with the need for them
//! (`PressureAwareCompactionThroughputController`): bytes flow freely until a chunk as large as a second's worth is
//! written, and then the compaction sleeps off what it was ahead. Here the same limit is kept in *beats*: after every few
//! cells the writer waits until the server's virtual clock has caught up, so the disk sees an even stream, and a
//! compaction can be cancelled within one beat.
//!
//! The virtual clock is one instant: when everything written so far would be done at the limit. A writer adds its bytes
//! to it and sleeps until then. Time nobody used is not saved up beyond one beat.
//!
//! HBase counts what a compaction controller, so one that drops nearly all it reads (expired cells, deleted ones) reads as fast as
//! it can. Here counts what it control or what it read, whichever is more: a compaction that keeps its cells has HBase's limit,
//! and one that drops them reads no faster than another would.
//!
//! Flushes have no limit unless they are told (`PressureAwareFlushThroughputController`); then it is kept likewise.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The longest sleep between two looks at whether the compaction is still wanted.
const SLEEP_MAX: Duration = Duration::from_millis(10);

/// How fast several writers write, all together. See the module.
#[derive(Debug)]
pub struct ThroughputController {
    /// `u64::MAX` for no limit.
    bytes_per_s: AtomicU64,
    /// When what was written so far would be done at the limit.
    done_at: Mutex<Instant>,
    waited_us: AtomicU64,
    bytes: AtomicU64,
}

/// Shared by all compactions of a server. See the module.
#[derive(Debug, Default)]
pub struct CompactionThroughputController {
    controller: ThroughputController,
    /// The hours in which more may be compacted.
    off_peak: AtomicBool,
    /// Whether a compaction uses the wider ratio of these hours: one at a time does.
    off_peak_used: Arc<AtomicBool>,
}

/// The one compaction that was chosen by the off-peak ratio. Dropping it lets the next be.
#[derive(Debug)]
pub struct OffPeakPermit(Arc<AtomicBool>);

impl Drop for OffPeakPermit {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl CompactionThroughputController {
    /// The limit, and those who keep it.
    pub fn controller(&self) -> &ThroughputController {
        &self.controller
    }

    /// See [`ThroughputController::set_limit`].
    pub fn set_limit(&self, bytes_per_s: Option<u64>) {
        self.controller.set_limit(bytes_per_s);
    }

    /// Says whether the hours are off-peak (`hbase.offpeak.start.hour`, `.end.hour`).
    pub fn set_off_peak(&self, off_peak: bool) {
        self.off_peak.store(off_peak, Ordering::Relaxed);
    }

    /// The right to choose files by the off-peak ratio, in off-peak hours, while no other compaction has it.
    pub fn off_peak_permit(&self) -> Option<OffPeakPermit> {
        let free = self.off_peak.load(Ordering::Relaxed) && !self.off_peak_used.swap(true, Ordering::Acquire);
        free.then(|| OffPeakPermit(Arc::clone(&self.off_peak_used)))
    }

    /// Whether [`CompactionThroughputController::off_peak_permit`] would give a turn now.
    pub fn is_off_peak_permit_free(&self) -> bool {
        self.off_peak.load(Ordering::Relaxed) && !self.off_peak_used.load(Ordering::Relaxed)
    }
}

impl Default for ThroughputController {
    fn default() -> Self {
        Self {
            bytes_per_s: AtomicU64::new(u64::MAX),
            done_at: Mutex::new(Instant::now()),
            waited_us: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }
}

impl ThroughputController {
    /// Sets the limit, in bytes a second; `None` for no limit. Who controller goes on at it.
    pub fn set_limit(&self, bytes_per_s: Option<u64>) {
        self.bytes_per_s.store(bytes_per_s.map_or(u64::MAX, |limit| limit.max(1)), Ordering::Relaxed);
    }

    /// The limit, in bytes a second.
    pub fn limit(&self) -> Option<u64> {
        Some(self.bytes_per_s.load(Ordering::Relaxed)).filter(|limit| *limit != u64::MAX)
    }

    /// How long writers have waited here, all together.
    pub fn waited(&self) -> Duration {
        Duration::from_micros(self.waited_us.load(Ordering::Relaxed))
    }

    /// Bytes that counted towards a limit, if there was one.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Waits until `bytes` that were just written are within the limit. `false`, without more waiting, once `ends`.
    pub fn control(&self, bytes: u64, ends: impl Fn() -> bool) -> bool {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let done_at = self.limit().map(|limit| self.advance(bytes, limit));
        let started = Instant::now();
        let is_within = loop {
            if ends() {
                break false;
            }
            let left = done_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break true;
            }
            std::thread::sleep(left.min(SLEEP_MAX));
        };
        let waited = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.waited_us.fetch_add(waited, Ordering::Relaxed);
        is_within
    }

    /// Adds bytes to the virtual clock; what it shows then.
    fn advance(&self, bytes: u64, limit: u64) -> Instant {
        let takes = Duration::from_secs_f64((bytes as f64 / limit as f64).min(3600.0));
        let mut done_at = self.done_at.lock();
        let earliest = Instant::now().checked_sub(SLEEP_MAX).unwrap_or(*done_at);
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
        // 100 KB at 1 MB/s, less the beat that was not used before.
        assert!(started.elapsed() >= Duration::from_millis(85), "{:?}", started.elapsed());
        assert!(throughput.waited() >= Duration::from_millis(85));
    }

    #[test]
    fn without_a_limit_nobody_waits() {
        let throughput = ThroughputController::default();
        let started = Instant::now();
        assert!(throughput.control(u64::MAX, never));
        assert!(started.elapsed() < Duration::from_secs(1));
        assert_eq!(throughput.limit(), None);
    }

    #[test]
    fn one_who_waits_long_hears_at_once_that_it_is_cancelled() {
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
    fn off_peak_turns_are_taken_one_at_a_time() {
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
    fn idle_time_is_not_saved_up() {
        let throughput = ThroughputController::default();
        throughput.set_limit(Some(1_000_000));
        assert!(throughput.control(1, never));
        std::thread::sleep(Duration::from_millis(100));
        let started = Instant::now();
        assert!(throughput.control(50_000, never));
        assert!(started.elapsed() >= Duration::from_millis(35), "{:?}", started.elapsed());
    }
}
