//! [`History`]: the last minutes of a server, in bounded memory.
//!
//! | what | interval | number | bytes at most |
//! |---|---|---|---|
//! | [`Sample`]: rates, percentiles of all calls | 1 s | [`SAMPLES`] | 80 KiB |
//! | [`Column`](heat::Column): requests of each region | 5 s | [`heat::COLUMNS`] | 1.5 MiB |
//! | [`CacheSnapshot`](cached::CacheSnapshot): bytes of files | 10 s, on demand | 1 | 300 a file |
//! | [`Pause`]: times when the process did not run | | [`PAUSES`] | 2 KiB |
//!
//! The thread `status-history` takes them. It reads counters, and blocks on nothing except the list
//! of regions. It has the priority of background work. It takes that list only for a column of a
//! time with requests, and for a check of the cache: a second of an idle server costs the same with
//! one region and with 10,000. If the thread did not run for a second, the missing sample is a gap
//! in the charts, and is recorded as a pause. So the pauses of a process that was stopped or
//! starved are shown beside its slow requests.

pub mod cached;
pub mod heat;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use evenkeel_common::clock;
use evenkeel_common::priority::{self, REDUCED_NICE};
use evenkeel_common::thread::spawn_restarted;
use evenkeel_metrics::HistogramSnapshot;
use evenkeel_regionserver::RequestKind;
use evenkeel_rpc::CallValue;
use parking_lot::Mutex;

use self::cached::CachedFiles;
use self::heat::{HeatMap, StateVersion};
use crate::sources::Sources;

/// The number of samples that are kept: a little more than ten minutes.
pub const SAMPLES: usize = 640;
/// The number of pauses that are kept.
pub const PAUSES: usize = 64;
const PERIOD: Duration = Duration::from_secs(1);
/// The heat map gets a column once per this number of periods.
const HEAT_PERIODS: u32 = 5;
/// A sample that is late by at least this much indicates a pause.
const PAUSE_MIN: Duration = Duration::from_millis(250);
/// Microseconds per unit of a histogram of times.
const US_PER_UNIT: f64 = 0.128;

/// The measurements of about one second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// When it ended, in milliseconds since 1970.
    pub at_ms: i64,
    /// Requests per second by kind, in the order of [`KINDS`].
    pub requests: [f64; KINDS.len()],
    /// Requests per second that took longer than the ledger's threshold.
    pub slow: f64,
    /// Times of calls, from arrival to reply, in microseconds; `None` if there were none.
    pub times: Option<Percentiles>,
    /// The longest group commit of the WALs, in microseconds; `None` if there was none.
    pub wal_sync_max_us: Option<f64>,
    /// CPU seconds of the process per second.
    pub cpu: f64,
    /// Bytes per second that were received and sent over RPC.
    pub bytes: [f64; 2],
}

/// The kinds of requests that are counted separately.
pub const KINDS: [(RequestKind, &str, &str); 5] = [
    (RequestKind::Get, "Get", "rpcGetRequestCount"),
    (RequestKind::Mutate, "Mutate", "rpcMutateRequestCount"),
    (RequestKind::Multi, "Multi", "rpcMultiRequestCount"),
    (RequestKind::Scan, "Scan", "rpcScanRequestCount"),
    (RequestKind::BulkLoad, "Bulk load", ""),
];

impl Sample {
    /// Returns all requests per second.
    pub fn total(&self) -> f64 {
        self.requests.iter().sum()
    }
}

/// Percentiles of times, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Percentiles {
    /// 50 % of the calls took no longer.
    pub p50: f64,
    /// 99 % of the calls.
    pub p99: f64,
    /// 99.9 % of the calls.
    pub p999: f64,
    /// All calls.
    pub max: f64,
}

impl Percentiles {
    /// Computes the percentiles of a histogram of times; `None` if it is empty.
    pub fn of(times: &HistogramSnapshot) -> Option<Self> {
        let us = |units: u64| units as f64 * US_PER_UNIT;
        (times.count() > 0).then(|| Self {
            p50: us(times.quantile(0.5)),
            p99: us(times.quantile(0.99)),
            p999: us(times.quantile(0.999)),
            max: us(times.max()),
        })
    }
}

/// A period in which this process did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// When it ended, in milliseconds since 1970.
    pub ended_ms: i64,
    /// Its known length, in milliseconds.
    pub ms: i64,
}

/// The samples and pauses that are kept.
#[derive(Debug, Default)]
struct RecentHistory {
    samples: VecDeque<Sample>,
    pauses: VecDeque<Pause>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct History {
    recent: Mutex<RecentHistory>,
    heat: Mutex<HeatMap>,
    cached: CachedFiles,
}

impl History {
    /// Returns the samples, the oldest first.
    pub fn samples(&self) -> Vec<Sample> {
        self.recent.lock().samples.iter().cloned().collect()
    }

    /// Returns the newest sample.
    pub fn last(&self) -> Sample {
        self.recent.lock().samples.back().cloned().unwrap_or_default()
    }

    /// Returns the pauses, the oldest first.
    pub fn pauses(&self) -> Vec<Pause> {
        self.recent.lock().pauses.iter().copied().collect()
    }

    /// Reads the heat map.
    pub fn with_heat<R>(&self, read: impl FnOnce(&HeatMap) -> R) -> R {
        read(&self.heat.lock())
    }

    /// Returns the cached part of each store file.
    pub fn cached_files(&self) -> &CachedFiles {
        &self.cached
    }

    fn add(&self, sample: Sample, pause: Option<Pause>) {
        let mut recent = self.recent.lock();
        push(&mut recent.samples, sample, SAMPLES);
        if let Some(pause) = pause {
            push(&mut recent.pauses, pause, PAUSES);
        }
    }
}

/// Appends to a ring of at most `kept` items.
fn push<T>(ring: &mut VecDeque<T>, item: T, kept: usize) {
    if ring.len() >= kept {
        ring.pop_front();
    }
    ring.push_back(item);
}

/// The thread that takes samples; it ends when this is dropped.
#[derive(Debug)]
pub struct Sampler {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Starts the thread.
    ///
    /// # Errors
    /// I/O error if it cannot be started.
    pub fn start(sources: &Arc<Sources>, history: &Arc<History>) -> io::Result<Self> {
        let (stop, stopped) = bounded(0);
        let (sources, history) = (Arc::clone(sources), Arc::clone(history));
        let thread = spawn_restarted("status-history", move || sample_until(&stopped, &sources, &history))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        drop(self.stop.take());
        drop(self.thread.take().map(JoinHandle::join));
    }
}

fn sample_until(stopped: &Receiver<()>, sources: &Sources, history: &History) {
    if let Err(error) = priority::lower(REDUCED_NICE) {
        tracing::debug!(%error, "cannot lower the priority of the status pages' history");
    }
    let mut before = Totals::read(sources);
    let mut rounds: u32 = 0;
    while matches!(stopped.recv_timeout(PERIOD), Err(RecvTimeoutError::Timeout)) {
        let now = Totals::read(sources);
        let (sample, pause) = now.since(&before, sources.clock.now_ms());
        history.add(sample, pause);
        before = now;
        rounds = rounds.wrapping_add(1);
        let now_ms = sources.now_ms();
        let Some(server) = sources.server() else { continue };
        if rounds.is_multiple_of(HEAT_PERIODS) {
            let stamp =
                StateVersion { requests: server.counters().total(), regions: server.regions().changes() };
            history.heat.lock().add(now_ms, stamp, || server.regions().all());
        }
        if history.cached.is_due(now_ms) {
            history.cached.scan_cache(now_ms, &*sources.env.stores.cache, &server.regions().all());
        }
    }
}

/// The counters at one moment.
struct Totals {
    at: Instant,
    requests: [u64; KINDS.len()],
    slow: u64,
    times: HistogramSnapshot,
    syncs: HistogramSnapshot,
    cpu_ns: u64,
    bytes: [u64; 2],
}

impl Totals {
    fn read(sources: &Sources) -> Self {
        let (stats, metrics) = (sources.rpc.stats(), sources.rpc.metrics());
        let mut syncs = HistogramSnapshot::default();
        sources.wals.iter().for_each(|wal| wal.log.metrics().add_sync_times(&mut syncs));
        let counters = sources.server();
        Self {
            at: clock::monotonic(),
            requests: KINDS
                .map(|(kind, ..)| counters.as_ref().map_or(0, |server| server.counters().of(kind))),
            slow: metrics.ledger.counts().0,
            times: metrics.snapshot(CallValue::TotalTime),
            syncs,
            cpu_ns: evenkeel_info_server::platform::cpu_ns(),
            bytes: [stats.received_bytes, stats.sent_bytes],
        }
    }

    fn since(&self, before: &Self, at_ms: i64) -> (Sample, Option<Pause>) {
        let took = self.at.saturating_duration_since(before.at);
        let seconds = took.as_secs_f64().max(0.001);
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let mut requests = [0.0; KINDS.len()];
        for ((rate_of, now), before) in requests.iter_mut().zip(self.requests).zip(before.requests) {
            *rate_of = rate(now, before);
        }
        let ([received, sent], [received_before, sent_before]) = (self.bytes, before.bytes);
        let late = took.saturating_sub(PERIOD);
        let pause = (late >= PAUSE_MIN)
            .then(|| Pause { ended_ms: at_ms, ms: i64::try_from(late.as_millis()).unwrap_or(i64::MAX) });
        let sample = Sample {
            at_ms,
            requests,
            slow: rate(self.slow, before.slow),
            times: Percentiles::of(&self.times.since(&before.times)),
            wal_sync_max_us: Percentiles::of(&self.syncs.since(&before.syncs)).map(|times| times.max),
            cpu: rate(self.cpu_ns, before.cpu_ns) / 1e9,
            bytes: [rate(received, received_before), rate(sent, sent_before)],
        };
        (sample, pause)
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_metrics::Histogram;

    use super::*;

    fn totals(at: Instant, gets: u64, times: HistogramSnapshot) -> Totals {
        let requests = [gets, 0, 0, 0, 0];
        Totals {
            at,
            requests,
            slow: 0,
            times,
            syncs: HistogramSnapshot::default(),
            cpu_ns: 0,
            bytes: [0, gets],
        }
    }

    #[test]
    fn a_sample_covers_only_its_period() {
        let (start, times) = (clock::monotonic(), Histogram::default());
        times.record_time(Duration::from_secs(9));
        let before = totals(start, 100, times.snapshot());
        (0..100).for_each(|_| times.record_time(Duration::from_micros(500)));
        let now = totals(start + 2 * PERIOD, 300, times.snapshot());
        let (sample, pause) = now.since(&before, 5_000);
        assert_eq!((sample.total(), sample.bytes), (100.0, [0.0, 100.0]));
        let of_calls = sample.times.expect("calls");
        assert!((of_calls.p50 / 500.0 - 1.0).abs() < 0.02 && of_calls.max < 520.0, "{of_calls:?}");
        assert_eq!(pause, Some(Pause { ended_ms: 5_000, ms: 1_000 }));
        let quiet = totals(start + 3 * PERIOD, 300, times.snapshot());
        let (sample, pause) = quiet.since(&now, 6_000);
        assert_eq!((sample.times, pause, sample.total()), (None, None, 0.0));
    }

    #[test]
    fn the_history_is_bounded() {
        let history = History::default();
        for at_ms in 0..2_000 {
            history.add(Sample { at_ms, ..Sample::default() }, Some(Pause { ended_ms: at_ms, ms: 1 }));
        }
        assert_eq!((history.samples().len(), history.pauses().len()), (SAMPLES, PAUSES));
        assert_eq!(history.last().at_ms, 1_999);
    }
}
