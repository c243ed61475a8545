//! The chore: what goes by time. Leases of scanners, the limit on unflushed bytes of all regions, flushes of what has been
//! in memory for long, compactions that are due, and how fast they may write.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use evenkeel_region::region::Region;
use parking_lot::{Condvar, Mutex};

use super::RegionServer;

/// How often the chore looks.
const PERIOD: Duration = Duration::from_millis(200);

/// The thread that runs the chore. Dropping it ends the thread.
pub struct Chore {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Chore {
    /// Starts the thread.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(server: &Arc<RegionServer>) -> io::Result<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let (server, stopped) = (Arc::clone(server), stop.clone());
        let thread = std::thread::Builder::new().name("chore".to_owned()).spawn(move || {
            let mut stopped_now = stopped.0.lock();
            while !*stopped_now {
                parking_lot::MutexGuard::unlocked(&mut stopped_now, || server.run_chore());
                if !*stopped_now {
                    stopped.1.wait_for(&mut stopped_now, PERIOD);
                }
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Chore {
    fn drop(&mut self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the chore panicked");
        }
    }
}

/// How many periods ahead the chore looks for whether the lower mark will be passed.
const LEAD_PERIODS: u64 = 10;

/// What a region has not flushed.
struct Unflushed<'a> {
    region: &'a Arc<Region>,
    bytes: u64,
    /// Of these, what a flush that runs is writing.
    going: u64,
}

impl<'a> Unflushed<'a> {
    fn of(region: &'a Arc<Region>) -> Self {
        let going = if region.is_flushing() { region.snapshot_bytes() } else { 0 };
        let bytes = region.memstore_size().heap_bytes;
        Self { region, bytes, going: going.min(bytes) }
    }
}

/// When things are next due, milliseconds since 1970; 0 for at once.
#[derive(Debug, Default)]
pub struct Schedule {
    tuning_ms: AtomicI64,
    compactions_ms: AtomicI64,
    flushes_ms: AtomicI64,
}

/// How often regions are asked for how long they hold edits.
const FLUSH_CHECK_MS: i64 = 10_000;

/// A region that is due flushes within this time, at a moment that depends on the region: not all of them at once.
const FLUSH_SPREAD_MS: i64 = 300_000;

/// Whether something is due, and then not before `period_ms` again.
fn is_due(next_ms: &AtomicI64, now_ms: i64, period_ms: i64) -> bool {
    let due = now_ms >= next_ms.load(Ordering::Relaxed);
    if due {
        next_ms.store(now_ms.saturating_add(period_ms), Ordering::Relaxed);
    }
    due
}

impl RegionServer {
    /// Looks once at everything that goes by time.
    pub fn run_chore(&self) {
        let expired = self.scanners.expire();
        if expired > 0 {
            tracing::info!(expired, "scanner leases ran out");
        }
        let (regions, now_ms) = (self.regions.all(), self.clock.now_ms());
        self.check_memstores(&regions);
        if is_due(&self.schedule.tuning_ms, now_ms, self.config.compaction.period_ms) {
            self.tune_compactions(&regions, now_ms);
        }
        if is_due(&self.schedule.compactions_ms, now_ms, self.config.compaction_check_ms) {
            self.check_compactions(&regions);
        }
        if self.config.periodic_flush_ms > 0 && is_due(&self.schedule.flushes_ms, now_ms, FLUSH_CHECK_MS) {
            self.flush_old_edits(&regions, now_ms);
        }
    }

    /// Flushes the largest MemStores so that the lower mark is not passed, or as few as get below it again; lets writes in
    /// only below the upper, and slows them before.
    fn check_memstores(&self, regions: &[Arc<Region>]) {
        let mut unflushed: Vec<_> = regions.iter().map(Unflushed::of).collect();
        let total: u64 = unflushed.iter().map(|one| one.bytes).sum();
        let expected = self.expected_bytes(total);
        let over = total >= self.config.global_memstore_bytes;
        if over != self.over_memstore_limit.swap(over, Ordering::Relaxed) {
            tracing::warn!(over, total, limit = self.config.global_memstore_bytes, "global memstore limit");
        }
        let braking = regions.iter().any(|region| region.write_pressure() > 0.0);
        self.braking.store(braking, Ordering::Relaxed);
        // What is being flushed is as good as gone; flushing such a region again would only make a small file.
        let going: u64 = unflushed.iter().map(|one| one.going).sum();
        let mut excess = expected.saturating_sub(going).saturating_sub(self.config.global_memstore_low_bytes);
        unflushed.sort_by_key(|one| std::cmp::Reverse(one.bytes - one.going));
        for one in unflushed.iter().take_while(|one| one.bytes > one.going) {
            if excess == 0 {
                return;
            }
            excess = excess.saturating_sub(one.bytes - one.going);
            self.background.request_flush(one.region);
        }
    }

    /// The unflushed bytes to expect when a flush that begins now has got somewhere: at the pace of the last period, for
    /// [`LEAD_PERIODS`] more. No more than a quarter of the lower mark ahead, so that files do not get small.
    fn expected_bytes(&self, total: u64) -> u64 {
        let counted = self.memstore_bytes.swap(total, Ordering::Relaxed);
        let written = counted.saturating_sub(self.memstore_bytes_seen.swap(total, Ordering::Relaxed));
        let lead = written.saturating_mul(LEAD_PERIODS);
        total.saturating_add(lead.min(self.config.global_memstore_low_bytes / 4))
    }

    fn tune_compactions(&self, regions: &[Arc<Region>], now_ms: i64) {
        let pressure = regions.iter().map(|region| region.compaction_pressure()).fold(0.0, f64::max);
        let off_peak = self.config.compaction.is_off_peak(now_ms);
        let pace = self.background.pace();
        pace.set_off_peak(off_peak);
        pace.set_limit(self.config.compaction.limit(pressure, off_peak));
    }

    /// Asks for compactions that are due by time: a region that is not written to is not flushed either, and nothing else
    /// would look.
    fn check_compactions(&self, regions: &[Arc<Region>]) {
        let due = |region: &&Arc<Region>| {
            region.needs_compaction() || region.next_compaction_bytes(None, false) > 0
        };
        for region in regions.iter().filter(due) {
            self.background.request_compaction(region, None, false);
        }
    }

    fn flush_old_edits(&self, regions: &[Arc<Region>], now_ms: i64) {
        for region in regions {
            let Some(since_ms) = region.oldest_edit_ms() else { continue };
            // An encoded name is a hash: regions that were written to at once flush one after the other.
            let spread = region
                .info()
                .encoded_name()
                .bytes()
                .fold(0_i64, |sum, byte| (sum * 31 + i64::from(byte)) % FLUSH_SPREAD_MS);
            if now_ms.saturating_sub(since_ms) > self.config.periodic_flush_ms.saturating_add(spread) {
                self.background.request_flush(region);
            }
        }
    }
}
