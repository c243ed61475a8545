//! [`Ledger`]: the recent slow requests, with the causes of their time.
//!
//! A request is kept if it took at least [the threshold](LedgerConfig::slow), or if it is one of
//! the slowest of its minute. So the ledger is never empty, and a fast server shows what its
//! slowest requests wait for.
//!
//! # Cost
//! At the end of each request, its time is compared with one number, the *bar*, which changes a few
//! times a minute. Only a request at or above the bar takes the ledger's lock and allocates. The
//! bar rises as the minute's list fills, so a server under load takes the lock about
//! `N log(requests)` times a minute. If all requests are slow, each of them tries the lock; a
//! request that does not get it immediately is not kept, and counted as left out.
//!
//! # Background work
//! A kept request includes the [activities](crate::activity) that overlap it and the
//! [conditions](crate::conditions) during it. The conditions divide time without a recorded wait
//! into computing and waiting for a processor ([`Ledger::collect_context`]), and samples divide the
//! computing of scans.
//!
//! # Bounds
//! Two rings of [`LedgerConfig::kept`] requests, whose texts [are
//! truncated](RequestDetail::truncate) to [`TEXT_BYTES_MAX`] bytes.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use evenkeel_common::clock;
use parking_lot::Mutex;

use crate::activity::{self, ActivityKind};
use crate::conditions::{ConditionHistory, Conditions, EXAMINED_MIN};
use crate::histogram::{Histogram, time_units};
use crate::is_on;
use crate::waits::{self, Cause, SlowRead, Waits};

/// Limit of a text of a kept request.
pub const TEXT_BYTES_MAX: usize = 1024;
/// Limit of the part of a row that is kept.
pub const ROW_BYTES_MAX: usize = 64;
/// Number of slowest requests that are kept per minute.
const SLOWEST_OF_MINUTE: usize = 10;
/// Limit of log lines of slow requests per second.
const LINES_MAX: u32 = 10;
const MINUTE: Duration = Duration::from_secs(60);

/// Settings of a ledger.
#[derive(Clone, Copy, Debug)]
pub struct LedgerConfig {
    /// Requests that take at least this long are kept.
    pub slow: Duration,
    /// Number of requests in each ring.
    pub kept: usize,
}

impl Default for LedgerConfig {
    fn default() -> Self {
        Self { slow: Duration::from_millis(100), kept: 256 }
    }
}

/// Description of a kept request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestDetail {
    /// The operation in the region, as HBase's spans name it: `put`, `checkAndMutate`. Empty if the
    /// method implies it.
    pub operation: &'static str,
    /// The region's name; empty for no region or several.
    pub region: String,
    /// The start of the row.
    pub row: Vec<u8>,
    /// Other details: actions of a batch, the scanner.
    pub text: String,
    /// The actions of a multi.
    pub actions: ActionCounts,
}

impl RequestDetail {
    /// Cuts texts whose length the client decides.
    pub fn truncate(&mut self) {
        self.row.truncate(ROW_BYTES_MAX);
        for text in [&mut self.region, &mut self.text] {
            let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
            text.truncate(end.unwrap_or(0));
        }
    }
}

/// Number of actions of each kind in a multi.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ActionCounts {
    /// Gets.
    pub gets: u32,
    /// Puts, deletes, appends, increments.
    pub mutations: u32,
    /// Calls of coprocessors.
    pub service_calls: u32,
}

/// An activity of the server during a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverlappingActivity {
    /// What it is.
    pub kind: ActivityKind,
    /// The region, file or table.
    pub subject: String,
    /// The overlap with the request's time.
    pub overlap: Duration,
    /// Its duration, up to the end of the request if it is still running.
    pub took: Duration,
    /// Whether it was still running when the request ended.
    pub runs: bool,
    /// Why it failed; empty if it did not.
    pub error: String,
}

/// The concurrent activity of the server during a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerContext {
    /// Background work, the longest overlap first.
    pub activities: Vec<OverlappingActivity>,
    /// Processor time, page faults, evictions.
    pub conditions: Conditions,
    /// The longest file read, if it was slow.
    pub slowest_read: Option<SlowRead>,
}

/// A request that has ended.
#[derive(Clone, Debug)]
pub struct SlowRequest {
    /// The method: `Get`.
    pub method: &'static str,
    /// When its last byte arrived, in milliseconds since 1970.
    pub received_ms: i64,
    /// From then until a thread began to run it.
    pub queue_time: Duration,
    /// From then until its reply was ready.
    pub processing_time: Duration,
    /// Bytes of the request.
    pub request_bytes: u64,
    /// Bytes of the reply.
    pub reply_bytes: u64,
    /// The client's address.
    pub client: String,
    /// The client's user.
    pub user: String,
    /// The Java class of its error; empty if it succeeded.
    pub error: &'static str,
    /// Description of the request.
    pub detail: RequestDetail,
    /// The causes of its time; the sum is `queue_time + processing_time`.
    pub waits: Waits,
    /// The concurrent activity of the server.
    pub surroundings: ServerContext,
}

impl SlowRequest {
    /// From the arrival of its last byte until its reply was ready.
    pub fn total_time(&self) -> Duration {
        self.queue_time + self.processing_time
    }
}

/// The ledger; see the module's documentation.
#[derive(Debug)]
pub struct Ledger {
    kept: usize,
    /// Time in nanoseconds from which a request is slow.
    slow_ns: AtomicU64,
    /// Time in nanoseconds below which a request is not kept.
    threshold_ns: AtomicU64,
    rings: Mutex<Rings>,
    slow: AtomicU64,
    skipped: AtomicU64,
    /// Waiting times of the slow requests by cause.
    causes: [Histogram; Cause::ALL.len()],
    conditions: ConditionHistory,
    lines: Mutex<LinesOfSecond>,
}

/// Number of log lines in the second that began at `began_at`.
#[derive(Debug)]
struct LinesOfSecond {
    began_at: Instant,
    lines: u32,
}

#[derive(Debug)]
struct Rings {
    /// Above the threshold, the newest last.
    slow: VecDeque<SlowRequest>,
    /// The slowest of earlier minutes, the newest last.
    slowest: VecDeque<SlowRequest>,
    /// The slowest of this minute, the slowest first.
    minute: Vec<SlowRequest>,
    minute_began_at: Instant,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new(LedgerConfig::default())
    }
}

impl Ledger {
    /// An empty ledger.
    pub fn new(config: LedgerConfig) -> Self {
        let rings = Rings {
            slow: VecDeque::new(),
            slowest: VecDeque::new(),
            minute: Vec::new(),
            minute_began_at: clock::monotonic(),
        };
        Self {
            kept: config.kept,
            slow_ns: AtomicU64::new(ns(config.slow)),
            threshold_ns: AtomicU64::new(0),
            rings: Mutex::new(rings),
            slow: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            causes: std::array::from_fn(|_| Histogram::default()),
            conditions: ConditionHistory::default(),
            lines: Mutex::new(LinesOfSecond { began_at: clock::monotonic(), lines: 0 }),
        }
    }

    /// The samples of the machine and the process. One must be taken every second.
    pub fn conditions(&self) -> &ConditionHistory {
        &self.conditions
    }

    /// Returns what else the server did since `received_at`, for a request that ends now on this
    /// thread and took `total`. Assigns causes to the part of `total` that `waits` does not
    /// explain.
    pub fn collect_context(&self, received_at: Instant, total: Duration, waits: &mut Waits) -> ServerContext {
        let now = clock::monotonic();
        let unexplained = total.saturating_sub(waits.sum());
        let conditions = match total < EXAMINED_MIN {
            true => Conditions::default(),
            false => self.conditions.since(received_at),
        };
        let (computed, waited) = conditions.divide(unexplained);
        waits.divide_computing(computed);
        waits.note(Cause::Processor, waited);
        waits.note(Cause::Unexplained, unexplained.saturating_sub(computed + waited));
        let activities =
            activity::overlapping(received_at, now).into_iter().map(|activity| OverlappingActivity {
                overlap: activity.overlap(received_at, now),
                took: activity.ended_at.unwrap_or(now).saturating_duration_since(activity.began_at),
                runs: activity.ended_at.is_none(),
                kind: activity.kind,
                subject: activity.subject,
                error: activity.error,
            });
        let activities = activities.collect();
        ServerContext { activities, conditions, slowest_read: waits::slowest_read(received_at) }
    }

    /// Returns true if a request that took this number of nanoseconds must be kept.
    #[inline]
    pub fn exceeds_threshold(&self, total_ns: u64) -> bool {
        is_on() && total_ns >= self.threshold_ns.load(Relaxed)
    }

    /// Keeps a request for which [`Ledger::exceeds_threshold`] returned true.
    pub fn keep(&self, request: SlowRequest) {
        let is_slow = request.total_time() >= self.config().slow;
        if is_slow {
            self.slow.fetch_add(1, Relaxed);
            for (cause, histogram) in Cause::ALL.into_iter().zip(&self.causes) {
                let time = request.waits.of(cause);
                if !time.is_zero() {
                    histogram.record(time_units(time));
                }
            }
        }
        let Some(mut rings) = self.rings.try_lock() else {
            self.skipped.fetch_add(1, Relaxed);
            return;
        };
        if is_slow {
            push(&mut rings.slow, request.clone(), self.kept);
        }
        let bar = rings.add_to_minute(request, clock::monotonic(), self.kept);
        self.threshold_ns.store(ns(bar.min(self.config().slow)), Relaxed);
    }

    /// Returns true if the request is slow and may be logged: at most [`LINES_MAX`] are per second.
    pub fn may_log(&self, request: &SlowRequest) -> bool {
        if request.total_time() < self.config().slow {
            return false;
        }
        let (now, mut second) = (clock::monotonic(), self.lines.lock());
        if now >= second.began_at + Duration::from_secs(1) {
            *second = LinesOfSecond { began_at: now, lines: 0 };
        }
        second.lines += 1;
        second.lines <= LINES_MAX
    }

    /// Starts a new minute if the current one is over, so that the bar of a busy minute does not
    /// apply in a quiet one. Must be called regularly.
    pub fn tick(&self) {
        let mut rings = self.rings.lock();
        if rings.end_minute(clock::monotonic(), self.kept) {
            self.threshold_ns.store(0, Relaxed);
        }
    }

    /// Returns the requests above the threshold, the newest first.
    pub fn slow_requests(&self) -> Vec<SlowRequest> {
        self.rings.lock().slow.iter().rev().cloned().collect()
    }

    /// Returns the slowest requests of this minute, the slowest first, then those of earlier
    /// minutes.
    pub fn slowest_requests(&self) -> Vec<SlowRequest> {
        let rings = self.rings.lock();
        rings.minute.iter().chain(rings.slowest.iter().rev()).cloned().collect()
    }

    /// Removes the requests above the threshold.
    pub fn clear(&self) {
        self.rings.lock().slow.clear();
    }

    /// Returns the number of requests above the threshold, and of those left out because other
    /// requests were being kept.
    pub fn counts(&self) -> (u64, u64) {
        (self.slow.load(Relaxed), self.skipped.load(Relaxed))
    }

    /// Returns the waiting times of slow requests by cause, without zeros.
    pub fn causes(&self) -> impl Iterator<Item = (Cause, &Histogram)> {
        Cause::ALL.into_iter().zip(&self.causes)
    }

    /// Returns the current settings.
    pub fn config(&self) -> LedgerConfig {
        LedgerConfig { slow: Duration::from_nanos(self.slow_ns.load(Relaxed)), kept: self.kept }
    }

    /// Sets the threshold for requests that end from now on.
    pub fn set_slow(&self, slow: Duration) {
        self.slow_ns.store(ns(slow), Relaxed);
        // The next kept request raises the bar, at most to the threshold.
        self.threshold_ns.store(0, Relaxed);
    }
}

impl Rings {
    /// Adds a request to the slowest of this minute if it is one of them. Returns the new bar of
    /// this list.
    fn add_to_minute(&mut self, request: SlowRequest, now: Instant, kept: usize) -> Duration {
        self.end_minute(now, kept);
        let at = self.minute.partition_point(|other| other.total_time() >= request.total_time());
        self.minute.insert(at, request);
        self.minute.truncate(SLOWEST_OF_MINUTE);
        match self.minute.len() < SLOWEST_OF_MINUTE {
            true => Duration::ZERO,
            false => self.minute.last().map_or(Duration::ZERO, SlowRequest::total_time),
        }
    }

    fn end_minute(&mut self, now: Instant, kept: usize) -> bool {
        if now < self.minute_began_at + MINUTE {
            return false;
        }
        self.minute_began_at = now;
        let minute = std::mem::take(&mut self.minute);
        minute.into_iter().rev().for_each(|request| push(&mut self.slowest, request, kept));
        true
    }
}

fn push(ring: &mut VecDeque<SlowRequest>, request: SlowRequest, kept: usize) {
    if ring.len() >= kept {
        ring.pop_front();
    }
    ring.push_back(request);
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(ms: u64) -> SlowRequest {
        let mut waits = Waits::NONE;
        waits.note(Cause::RowLock, Duration::from_millis(ms));
        SlowRequest {
            method: "Get",
            received_ms: 0,
            queue_time: Duration::ZERO,
            processing_time: Duration::from_millis(ms),
            request_bytes: 1,
            reply_bytes: 2,
            client: "c".into(),
            user: "u".into(),
            error: "",
            detail: RequestDetail {
                region: "ä".repeat(TEXT_BYTES_MAX),
                row: vec![1; 500],
                ..RequestDetail::default()
            },
            waits,
            surroundings: ServerContext::default(),
        }
    }

    fn times(requests: &[SlowRequest]) -> Vec<u128> {
        requests.iter().map(|request| request.total_time().as_millis()).collect()
    }

    #[test]
    fn slow_requests_and_the_slowest_of_a_minute_are_kept() {
        let ledger = Ledger::new(LedgerConfig { slow: Duration::from_millis(100), kept: 3 });
        assert!(ledger.exceeds_threshold(ns(Duration::ZERO)));
        (1..=20).for_each(|ms| ledger.keep(request(ms)));
        assert!(ledger.slow_requests().is_empty());
        assert_eq!(times(&ledger.slowest_requests()), (11..=20).rev().collect::<Vec<_>>());
        assert!(
            !ledger.exceeds_threshold(ns(Duration::from_millis(10)))
                && ledger.exceeds_threshold(ns(Duration::from_millis(11)))
        );
        (101..=120).for_each(|ms| ledger.keep(request(ms)));
        assert_eq!(times(&ledger.slow_requests()), [120, 119, 118]);
        assert!(
            ledger.exceeds_threshold(ns(Duration::from_millis(100))),
            "the threshold holds in a slow minute"
        );
        assert!(!ledger.exceeds_threshold(ns(Duration::from_millis(99))));
        assert_eq!(ledger.counts(), (20, 0));
        let locks = ledger.causes().find(|(cause, _)| *cause == Cause::RowLock).unwrap().1.snapshot();
        assert_eq!(locks.count(), 20);
        ledger.clear();
        assert!(ledger.slow_requests().is_empty());
    }

    #[test]
    fn logged_slow_requests_are_limited_per_second() {
        let ledger = Ledger::default();
        assert!(!ledger.may_log(&request(99)));
        let told = (0..100).filter(|_| ledger.may_log(&request(100))).count();
        assert!((10..=20).contains(&told), "{told}");
    }

    #[test]
    fn the_slow_threshold_can_be_changed() {
        let ledger = Ledger::new(LedgerConfig { slow: Duration::from_millis(100), kept: 3 });
        (101..=120).for_each(|ms| ledger.keep(request(ms)));
        ledger.set_slow(Duration::from_millis(50));
        assert_eq!(ledger.config().slow, Duration::from_millis(50));
        assert!(ledger.exceeds_threshold(ns(Duration::from_millis(50))));
        ledger.keep(request(60));
        assert_eq!(times(&ledger.slow_requests()), [60, 120, 119]);
        assert!(
            !ledger.exceeds_threshold(ns(Duration::from_millis(49)))
                && ledger.exceeds_threshold(ns(Duration::from_millis(50)))
        );
    }

    #[test]
    fn a_new_minute_resets_the_slowest_threshold() {
        let ledger = Ledger::default();
        (1..=20).for_each(|ms| ledger.keep(request(ms)));
        let later = clock::monotonic() + MINUTE;
        assert!(ledger.rings.lock().end_minute(later, 256));
        assert_eq!(times(&ledger.slowest_requests()), (11..=20).rev().collect::<Vec<_>>());
        ledger.keep(request(2));
        assert_eq!(times(&ledger.slowest_requests())[0], 2);
    }

    #[test]
    fn all_time_of_a_request_has_a_cause() {
        let ledger = Ledger::default();
        ledger.conditions().sample();
        let (received_at, total) = (clock::monotonic(), Duration::from_millis(20));
        let flush = activity::begin(ActivityKind::Flush, "of the ledger's test");
        std::thread::sleep(total);
        let mut waits = Waits::NONE;
        waits.note(Cause::RowLock, Duration::from_millis(5));
        let around = ledger.collect_context(received_at, total, &mut waits);
        drop(flush);
        assert_eq!(waits.sum(), total);
        // On a busy machine the thread also waits for a processor after its sleep.
        let unexplained = waits.of(Cause::Unexplained) + waits.of(Cause::Processor);
        assert!(unexplained > total / 2, "it slept: {waits:?}");
        let beside = around.activities.iter().find(|a| a.subject == "of the ledger's test").unwrap();
        assert!(beside.runs && beside.overlap >= total && beside.kind == ActivityKind::Flush);
        assert!(around.conditions.window >= total);
    }

    #[test]
    fn details_sent_by_clients_are_truncated() {
        let mut detail = request(200).detail;
        detail.truncate();
        assert_eq!((detail.region.len(), detail.row.len()), (TEXT_BYTES_MAX, ROW_BYTES_MAX));
    }
}
