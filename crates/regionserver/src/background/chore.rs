//! The chore: periodic work. It expires scanner leases, enforces the limit on unflushed bytes of
//! all regions, requests flushes of old or numerous edits, retries failed flushes, requests due
//! compactions, tunes the throughput of both, deletes files that no store lists, and logs the
//! statistics of the caches and the allocator.
//!
//! It also checks unflushed bytes between its periods, when
//! [`Background::notifier`](crate::Background::notifier) is notified.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use evenkeel_common::allocator;
use evenkeel_common::clock;
use evenkeel_common::thread::{catch_and_log, spawn_essential};
use evenkeel_metrics::activity::{self, ActivityKind, RunningActivity};
use evenkeel_region::region::{BrokenFile, Region, RegionCount};
use parking_lot::Mutex;

use crate::RegionServer;
use crate::background::file_discharger::FileDischarger;
use crate::background::notifier::Notifier;
use crate::background::store_file_refresh::StoreFileRefresher;
use crate::config::RegionServerConfig;
use crate::limits::memstore::{FlushDemand, Unflushed};
use crate::requests::scanners::OpenScanner;
use crate::statistics;

/// The period of the chore.
const PERIOD: Duration = Duration::from_millis(200);

/// The period of checks of all regions while no data is written, flushed or compacted, no region is
/// opened or closed, and no work is due: with many regions a check takes milliseconds.
const QUIET_PERIOD: Duration = Duration::from_secs(10);

/// The minimum time between two checks of unflushed bytes, however often it is notified.
const CHECK_PAUSE_MIN: Duration = Duration::from_millis(2);

/// The thread that runs the chore, the one that refreshes the files of secondary replicas, and the
/// one that archives compacted files. Dropping it ends them.
pub struct Chore {
    stopped: Arc<AtomicBool>,
    notifier: Arc<Notifier>,
    thread: Option<JoinHandle<()>>,
    _refresher: Option<StoreFileRefresher>,
    _discharger: FileDischarger,
}

impl Chore {
    /// Starts the threads.
    ///
    /// # Errors
    /// I/O error if one cannot be started.
    pub fn start(server: &Arc<RegionServer>) -> io::Result<Self> {
        let (stopped, notifier) = (Arc::<AtomicBool>::default(), Arc::clone(server.background.notifier()));
        let supervisor = server.background.supervisor().clone();
        let refresher = StoreFileRefresher::start(server)?;
        let discharger = FileDischarger::start(server)?;
        let (server, is_stopped) = (Arc::clone(server), Arc::clone(&stopped));
        let run = move || {
            while !is_stopped.load(Ordering::Acquire) {
                // A round that panics is logged, and the next round tries again.
                catch_and_log("the chore", || server.run_round());
                let next = clock::monotonic() + PERIOD;
                let is_before = || clock::monotonic() < next && !is_stopped.load(Ordering::Acquire);
                while is_before() && server.background.notifier().wait(next) {
                    catch_and_log("the chore", || server.check_memstores(&server.regions.all()));
                    std::thread::sleep(CHECK_PAUSE_MIN);
                }
            }
            Ok(())
        };
        let thread = spawn_essential("chore", &supervisor, run)?;
        let thread = Some(thread);
        Ok(Self { stopped, notifier, thread, _refresher: refresher, _discharger: discharger })
    }
}

impl Drop for Chore {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        self.notifier.notify();
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// Returns a region's unflushed bytes, measured by its cells. The bytes of a secondary replica are
/// freed by a flush of its default replica, which runs if it is given.
fn unflushed(region: &Arc<Region>, flushing_primary: Option<&Region>) -> Unflushed {
    let is_flushing = region.is_flushing() || flushing_primary.is_some();
    let flushing = flushing_primary.unwrap_or(region);
    let flushing_bytes = if is_flushing { flushing.snapshot_bytes() } else { 0 };
    let bytes = region.memstore_size().heap_bytes;
    Unflushed { cells: bytes, bytes, flushing_bytes: flushing_bytes.min(bytes), is_flushing }
}

/// Returns a region's unflushed bytes, measured by its chunks.
fn by_chunks(region: &Arc<Region>, unflushed: Unflushed) -> Unflushed {
    let (bytes, frozen) = region.chunk_bytes();
    Unflushed {
        bytes,
        flushing_bytes: if unflushed.is_flushing { frozen.min(bytes) } else { 0 },
        ..unflushed
    }
}

/// Returns the highest compaction pressure of any region.
fn compaction_pressure(regions: &[Arc<Region>]) -> f64 {
    regions.iter().map(|region| region.compaction_pressure()).fold(0.0, f64::max)
}

/// When tasks are next due, in milliseconds since 1970; 0 for immediately.
#[derive(Debug, Default)]
pub struct Schedule {
    tuning_ms: AtomicI64,
    compactions_ms: AtomicI64,
    flushes_ms: AtomicI64,
    refreshes_ms: AtomicI64,
    /// 0 before the first round.
    broken_files_ms: AtomicI64,
    broken_files: Mutex<BrokenFilesLeft>,
    statistics_ms: AtomicI64,
    ledger_ms: AtomicI64,
    conditions_ms: AtomicI64,
    report_ms: AtomicI64,
    /// When the last report was sent, in milliseconds since 1970.
    reported_at_ms: AtomicI64,
    rate_ms: AtomicI64,
    rate: RequestRate,
    /// When all regions were last checked, and the state found then.
    looked: Mutex<Option<(Instant, StateVersion)>>,
    /// `Some` while replies to writes are held.
    watermark: Mutex<Option<RunningActivity>>,
}

impl Schedule {
    /// Returns true if a task is due that checks the regions.
    fn has_regions_due(&self, now_ms: i64) -> bool {
        let of_regions = [&self.tuning_ms, &self.compactions_ms, &self.flushes_ms];
        of_regions.into_iter().any(|next_ms| is_over(next_ms, now_ms)) || !self.broken_files.lock().is_empty()
    }

    /// Makes the next round check the regions and compute the throughput of compactions.
    pub(crate) fn retune_soon(&self) {
        self.tuning_ms.store(0, Ordering::Relaxed);
        self.check_soon();
    }

    /// Makes the next round check the regions.
    pub(crate) fn check_soon(&self) {
        *self.looked.lock() = None;
    }
}

/// What the running deletion of broken files has still to do.
#[derive(Debug, Default)]
struct BrokenFilesLeft {
    /// Regions that were not searched yet.
    regions: Vec<Weak<Region>>,
    /// The files of the region that was searched last.
    found: Vec<(Weak<Region>, BrokenFile)>,
}

impl BrokenFilesLeft {
    fn is_empty(&self) -> bool {
        self.regions.is_empty() && self.found.is_empty()
    }
}

/// A summary of the regions' state: while it is unchanged, a check would find the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StateVersion {
    unflushed_bytes: u64,
    region_changes: u64,
    compaction_changes: u64,
}

/// The rate of reads and writes of rows during the last period
/// (`MetricsRegionServerWrapperImpl.getRequestsPerSecond`).
#[derive(Debug, Default)]
struct RequestRate {
    /// The end of the period, in milliseconds since 1970.
    at_ms: AtomicI64,
    /// The reads and writes of the regions that were open then.
    requests: AtomicU64,
    per_second: AtomicU64,
}

/// How often the rate of requests is measured: the default of `hbase.regionserver.metrics.period`.
const RATE_MS: i64 = 5000;

/// Scanners may pin flushed cells up to this fraction (1/`FLUSHED_DIVISOR`) of the limit on
/// unflushed bytes.
const FLUSHED_DIVISOR: u64 = 8;

/// How often the age of regions' unflushed edits is checked.
const FLUSH_CHECK_MS: i64 = 10_000;
/// How often the files of secondary replicas are looked for while memory is needed.
const REFRESH_MS: i64 = 1_000;
/// How long a round may delete broken files.
const BROKEN_FILES_TIME: Duration = Duration::from_millis(20);
/// How often the ledger of slow requests checks whether a minute has ended.
const LEDGER_TICK_MS: i64 = 5_000;
/// How often the ledger's samples are taken
/// ([`SAMPLE_PERIOD`](evenkeel_metrics::conditions::SAMPLE_PERIOD)).
const CONDITIONS_MS: i64 = 1_000;

/// The maximum age of unflushed edits of system tables, regardless of the settings
/// (`HRegion.SYSTEM_CACHE_FLUSH_INTERVAL`).
const SYSTEM_FLUSH_MS: i64 = 300_000;

fn log_statistics(of: &str, line: Option<String>) {
    line.into_iter().for_each(|line| tracing::info!("{of}: {line}"));
}

/// Returns true if a task is due.
fn is_over(next_ms: &AtomicI64, now_ms: i64) -> bool {
    now_ms >= next_ms.load(Ordering::Relaxed)
}

/// Returns true if a task is due; it is due again after `period_ms`.
fn is_due(next_ms: &AtomicI64, now_ms: i64, period_ms: i64) -> bool {
    let due = is_over(next_ms, now_ms);
    if due {
        next_ms.store(now_ms.saturating_add(period_ms), Ordering::Relaxed);
    }
    due
}

impl RegionServer {
    /// Runs a round of the thread. Checks the regions only if their state may have changed.
    pub(crate) fn run_round(&self) {
        match self.is_quiet() {
            true => self.run_timers(self.clock.now_ms()),
            false => {
                let now = clock::monotonic();
                self.run_chore();
                *self.schedule.looked.lock() = Some((now, self.stamp()));
            }
        }
    }

    /// Returns true if a check of the regions would find what the last one found.
    pub(crate) fn is_quiet(&self) -> bool {
        let looked = *self.schedule.looked.lock();
        looked.is_some_and(|(at, stamp)| clock::monotonic() < at + QUIET_PERIOD && stamp == self.stamp())
            && self.is_background_idle()
            && !self.schedule.has_regions_due(self.clock.now_ms())
    }

    fn stamp(&self) -> StateVersion {
        StateVersion {
            unflushed_bytes: self.memory.bytes(),
            region_changes: self.regions.changes(),
            compaction_changes: self.background.compaction_changes(),
        }
    }

    fn is_background_idle(&self) -> bool {
        let background = &self.background;
        !self.may_throttle()
            && background.flushers().1 == 0
            && background.queued() == (0, 0)
            && !background.has_flushes_to_retry()
    }

    /// Runs all periodic work once.
    pub fn run_chore(&self) {
        let now_ms = self.clock.now_ms();
        self.run_timers(now_ms);
        self.check_regions(now_ms);
    }

    /// Runs the tasks whose cost grows with the number of regions.
    fn check_regions(&self, now_ms: i64) {
        let regions = self.regions.all();
        self.check_memstores(&regions);
        self.close_scanners_pinning_flushed(&regions);
        self.background.set_compaction_pressure(compaction_pressure(&regions));
        if self.throttling.load(Ordering::Relaxed) {
            self.compact_files_that_hold_writes(&regions);
        }
        self.background.retry_flushes(clock::monotonic());
        self.check_replica_streams(&regions);
        let config = self.chore_config.load();
        let low_bytes = config.global_memstore_low_bytes.max(1);
        let flush_pressure = self.memory.bytes() as f64 / low_bytes as f64;
        self.background.flush_throughput().set_limit(config.flush.limit(flush_pressure));
        if is_due(&self.schedule.tuning_ms, now_ms, config.compaction.period_ms) {
            self.tune_compactions(&regions, now_ms);
        }
        if is_due(&self.schedule.compactions_ms, now_ms, config.compaction_check_ms) {
            self.check_compactions(&regions);
        }
        if is_due(&self.schedule.flushes_ms, now_ms, FLUSH_CHECK_MS) {
            self.flush_old_or_many_edits(&regions, now_ms);
        }
        self.delete_broken_files();
    }

    /// Runs the tasks whose cost does not depend on the number of regions.
    fn run_timers(&self, now_ms: i64) {
        self.memory.expire_nonces();
        let expired = self.scanners.expire();
        if expired > 0 {
            tracing::info!(expired, "scanner leases expired");
        }
        let period_ms = self.chore_config.load().cache_statistics_ms;
        if period_ms > 0 && is_due(&self.schedule.statistics_ms, now_ms, period_ms) {
            log_statistics("block cache", statistics::line(&self.cache.stats()));
            log_statistics("allocator", statistics::allocator_line(allocator::stats()));
        }
        self.begin_deleting_broken_files(now_ms);
        if is_due(&self.schedule.ledger_ms, now_ms, LEDGER_TICK_MS) {
            self.rpc_metrics.ledger.tick();
        }
        if is_due(&self.schedule.conditions_ms, now_ms, CONDITIONS_MS) {
            self.rpc_metrics.ledger.conditions().sample();
        }
        if is_due(&self.schedule.rate_ms, now_ms, RATE_MS) {
            self.measure_request_rate(now_ms);
        }
        let interval_ms = self.master.report_interval().map(|interval| interval.as_millis());
        let interval_ms = interval_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
        if interval_ms.is_some_and(|ms| is_due(&self.schedule.report_ms, now_ms, ms)) {
            self.report_to_master(now_ms);
        }
    }

    /// Begins a run of the deletion of broken files, if one is due. The first is due some time
    /// after the start.
    fn begin_deleting_broken_files(&self, now_ms: i64) {
        let Some(cleaning) = self.config.broken_files else { return };
        let next_ms = &self.schedule.broken_files_ms;
        if next_ms.load(Ordering::Relaxed) == 0 {
            let first_ms = now_ms.saturating_add(cleaning.first_delay_ms(self.name.start_code));
            next_ms.store(first_ms, Ordering::Relaxed);
        }
        if is_due(next_ms, now_ms, cleaning.period_ms) {
            let regions = self.regions.all();
            let with_list = regions.iter().filter(|region| region.may_have_broken_files());
            self.schedule.broken_files.lock().regions = with_list.map(Arc::downgrade).collect();
        }
    }

    /// Deletes the next broken files, for a short time.
    fn delete_broken_files(&self) {
        let Some(cleaning) = self.config.broken_files else { return };
        let until = clock::monotonic() + BROKEN_FILES_TIME;
        while clock::monotonic() < until && self.delete_broken_file(cleaning.ttl_ms) {}
    }

    /// Deletes one broken file, or searches one region for them. Returns false if nothing is left.
    fn delete_broken_file(&self, ttl_ms: i64) -> bool {
        let next = self.schedule.broken_files.lock().found.pop();
        if let Some((region, file)) = next {
            if let Some(region) = region.upgrade()
                && let Err(error) = region.remove_broken_file(&file)
            {
                tracing::warn!(region = %region.info().name_text(), ?file, %error, "a broken store file could not be deleted");
            }
            return true;
        }
        let next = self.schedule.broken_files.lock().regions.pop();
        let Some(region) = next else { return false };
        let Some(region) = region.upgrade() else { return true };
        match region.find_broken_files(ttl_ms) {
            Ok(found) => {
                let found = found.into_iter().flatten();
                let found = found.map(|file| (Arc::downgrade(&region), file));
                self.schedule.broken_files.lock().found.extend(found);
            }
            Err(error) => {
                tracing::warn!(region = %region.info().name_text(), %error, "broken store files could not be searched for");
            }
        }
        true
    }

    /// Sends the master the load since the last report.
    fn report_to_master(&self, now_ms: i64) {
        let since_ms = self.schedule.reported_at_ms.swap(now_ms, Ordering::Relaxed);
        let since_ms = if since_ms == 0 { self.name.start_code } else { since_ms };
        self.report_load(since_ms, now_ms);
    }

    fn measure_request_rate(&self, now_ms: i64) {
        let requests_of = |region: &Arc<Region>| {
            let counts = region.counts();
            counts.get(RegionCount::Reads) + counts.get(RegionCount::Writes)
        };
        let requests: u64 = self.regions.all().iter().map(requests_of).sum();
        let rate = &self.schedule.rate;
        let since_ms = rate.at_ms.swap(now_ms, Ordering::Relaxed);
        let before = rate.requests.swap(requests, Ordering::Relaxed);
        let ms = now_ms.saturating_sub(since_ms).unsigned_abs();
        // The first round begins the first period. A region that was closed has taken its counts
        // away, so the rate of that period is lower, but not below 0.
        if since_ms > 0 && ms > 0 {
            let per_second = requests.saturating_sub(before).saturating_mul(1000) / ms;
            rate.per_second.store(per_second, Ordering::Relaxed);
        }
    }

    /// Returns the requests per second of the last complete period.
    pub(crate) fn requests_per_second(&self) -> u64 {
        self.schedule.rate.per_second.load(Ordering::Relaxed)
    }

    /// Measures unflushed bytes, and requests the flushes that are needed
    /// ([`memstore`](crate::limits::memstore)).
    fn check_memstores(&self, regions: &[Arc<Region>]) {
        let (mut unflushed, need) = self.memory.measure(clock::monotonic(), || self.unflushed(regions));
        let throttling = regions.iter().any(|region| region.write_pressure() > 0.0);
        self.throttling.store(throttling, Ordering::Relaxed);
        self.background
            .region_is_throttled(throttling && regions.iter().any(|region| region.memory_pressure() > 0.0));
        self.note_watermark(regions);
        self.refresh_instead_of_flush(regions, &mut unflushed, &need);
        let (flushers, open) = self.background.flushers();
        let request = |at| regions.get(at).is_some_and(|region| self.request_flush_of(region));
        need.request_flushes(&unflushed, flushers, open, request);
    }

    /// Requests to find the files of secondary replicas whose bytes no flush here frees, if memory
    /// is needed. Counts them as empty, so that other regions are flushed in their place.
    fn refresh_instead_of_flush(
        &self,
        regions: &[Arc<Region>],
        unflushed: &mut [Unflushed],
        need: &FlushDemand,
    ) {
        let is_needed = need.all_flushers || need.bytes > 0;
        let refreshes = is_needed && is_due(&self.schedule.refreshes_ms, self.clock.now_ms(), REFRESH_MS);
        for (region, unflushed) in regions.iter().zip(unflushed) {
            if unflushed.bytes > 0 && self.is_flushed_elsewhere(region) {
                *unflushed = Unflushed::default();
                if refreshes {
                    self.request_flush_of(region);
                }
            }
        }
    }

    /// Requests compactions of regions whose number of files holds replies to writes. Flushes that
    /// clients request by procedures do not request compactions, as in HBase, so without this a
    /// region could hold writes until the check of all regions after hours.
    fn compact_files_that_hold_writes(&self, regions: &[Arc<Region>]) {
        let holds = |region: &&Arc<Region>| {
            region.write_pressure() > region.memory_pressure()
                && self.background.compactions_of(region.info().encoded_name()) == 0
                && region.next_compaction_bytes(None, false) > 0
        };
        for region in regions.iter().filter(holds) {
            self.background.request_due_compaction(region, clock::monotonic());
        }
    }

    /// Records in the ledger while replies to writes are held.
    fn note_watermark(&self, regions: &[Arc<Region>]) {
        let mut watermark = self.schedule.watermark.lock();
        match (self.may_throttle(), watermark.is_some()) {
            (true, false) => {
                *watermark = Some(activity::begin(ActivityKind::Watermark, self.watermark_subject(regions)));
            }
            (false, true) => *watermark = None,
            _ => {}
        }
    }

    /// Returns the reason why replies to writes are held.
    fn watermark_subject(&self, regions: &[Arc<Region>]) -> String {
        if self.memory.is_throttling() {
            return "unflushed bytes of the server".to_owned();
        }
        let neediest = regions.iter().max_by(|a, b| a.write_pressure().total_cmp(&b.write_pressure()));
        let Some(region) = neediest else { return String::new() };
        let what = if region.memory_pressure() > 0.0 { "unflushed bytes" } else { "store files" };
        format!("{what} of {}", region.info().name_text())
    }

    /// Closes scanners that pin too many flushed bytes; see
    /// [`scanners`](crate::requests::scanners).
    fn close_scanners_pinning_flushed(&self, regions: &[Arc<Region>]) {
        let bytes_max = self.config.global_memstore_bytes / FLUSHED_DIVISOR;
        let out_bytes = self.memory.chunks_out();
        // Usually this cheap check suffices, and no chunks need to be examined.
        if out_bytes <= bytes_max {
            return;
        }
        let of_regions: u64 = regions.iter().map(|region| region.chunk_bytes().0).sum();
        if out_bytes.saturating_sub(of_regions) <= bytes_max {
            return;
        }
        let kept = |open: &OpenScanner| {
            let is_served = self.regions.serves(&open.region);
            open.region.segments_kept_by(&open.scanner, is_served)
        };
        let ended = self.scanners.close_scanners_pinning_flushed(bytes_max, kept);
        if ended > 0 {
            tracing::warn!(ended, "closed scanners that held flushed MemStores");
        }
    }

    /// Measures all regions by their cells, or by their chunks if these are closer to the limit.
    fn unflushed(&self, regions: &[Arc<Region>]) -> Vec<Unflushed> {
        let of_region = |region| unflushed(region, self.flushing_primary_of(region).as_deref());
        let by_cells: Vec<_> = regions.iter().map(of_region).collect();
        match by_cells.iter().map(|region| region.cells).sum::<u64>() < self.memory.chunk_bytes() {
            true => regions.iter().zip(by_cells).map(|(region, cells)| by_chunks(region, cells)).collect(),
            false => by_cells,
        }
    }

    fn tune_compactions(&self, regions: &[Arc<Region>], now_ms: i64) {
        let pressure = compaction_pressure(regions);
        let config = self.chore_config.load();
        let off_peak = config.compaction.is_off_peak(now_ms);
        let throughput = self.background.compaction_throughput();
        throughput.set_off_peak(off_peak);
        throughput.set_limit(config.compaction.limit(pressure, off_peak));
    }

    /// Requests compactions that are due by time: a region without writes is not flushed, so no
    /// flush checks it.
    fn check_compactions(&self, regions: &[Arc<Region>]) {
        let due = |region: &&Arc<Region>| {
            region.needs_compaction() || region.next_compaction_bytes(None, false) > 0
        };
        for region in regions.iter().filter(due) {
            self.background.request_due_compaction(region, clock::monotonic());
        }
    }

    fn flush_old_or_many_edits(&self, regions: &[Arc<Region>], now_ms: i64) {
        let config = self.chore_config.load();
        for region in regions {
            let changes_max = config.flush_changes_max_of(region.table());
            let before_ms = flushed_before_ms(&config, region, now_ms);
            let has_old_edits = region.oldest_edit_ms().is_some_and(|edit_ms| edit_ms < before_ms);
            if has_old_edits || region.changes_since_flush() > changes_max {
                region.flush_old_stores(before_ms, changes_max);
                self.background.request_flush(region);
            }
        }
    }
}

/// Returns the time before which all edits of a region should have been flushed by now.
fn flushed_before_ms(config: &RegionServerConfig, region: &Region, now_ms: i64) -> i64 {
    let is_system = region.info().table().is_system();
    let period_ms = match is_system {
        true => SYSTEM_FLUSH_MS,
        false => config.periodic_flush_ms_of(region.table()),
    };
    if period_ms <= 0 {
        return i64::MIN;
    }
    // An encoded name is a hash, so regions that were written to at the same time flush at
    // different times.
    let spread_ms = config.periodic_flush_spread_ms.max(1);
    let of_name = |sum: i64, byte: u8| (sum.wrapping_mul(31) + i64::from(byte)).rem_euclid(spread_ms);
    let spread = region.info().encoded_name().bytes().fold(0_i64, of_name);
    now_ms.saturating_sub(period_ms.saturating_add(spread))
}
