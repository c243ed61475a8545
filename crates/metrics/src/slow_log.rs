//! [`SlowLog`]: HBase's log of slow and large responses (`SlowLogQueueService`).
//!
//! HBase warns of a call that took longer than one setting, or whose reply is larger than another.
//! If a third setting is on, it keeps these calls in a ring for `get_slowlog_responses` and
//! `get_largelog_responses`. [`crate::Ledger`] is specific to Evenkeel and shows the causes of a
//! request's time; this module is for HBase's tools.
//!
//! The end of a call compares two numbers. Only a call above one of them takes the lock. The ring's
//! capacity is that of the ledger's, and texts are cut as there.
//! Calls that wait to be written to hbase:slowlog, if that is enabled, are in another queue; the
//! oldest leave it when it is full.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::{Mutex, RwLock};

use crate::is_on;
use crate::ledger::SlowRequest;

/// A limit for calls, and one for scans. `None`: no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WarnLimit {
    /// For calls other than scans.
    pub calls: Option<u64>,
    /// For scans.
    pub scans: Option<u64>,
}

impl WarnLimit {
    fn is_exceeded(&self, method: &str, value: u128) -> bool {
        let limit = if method == "Scan" { self.scans } else { self.calls };
        limit.is_some_and(|limit| value > u128::from(limit))
    }

    /// Returns the largest value that exceeds neither limit.
    fn least(&self) -> u64 {
        [self.calls, self.scans].into_iter().flatten().min().unwrap_or(u64::MAX)
    }
}

/// Settings of the slow log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowLogConfig {
    /// `hbase.ipc.warn.response.time`: milliseconds of processing.
    pub time_ms: WarnLimit,
    /// `hbase.ipc.warn.response.size`: bytes of the reply.
    pub bytes: WarnLimit,
    /// `hbase.regionserver.slowlog.buffer.enabled`: whether calls are kept.
    pub is_kept: bool,
    /// `hbase.regionserver.slowlog.ringbuffer.size`: how many calls are kept.
    pub kept: usize,
    /// `hbase.regionserver.slowlog.systable.queue.size`: how many wait for hbase:slowlog; 0 if
    /// calls that are kept are not written there (`hbase.regionserver.slowlog.systable.enabled`).
    pub waiting_for_table: usize,
}

impl Default for SlowLogConfig {
    fn default() -> Self {
        let both = |limit| WarnLimit { calls: Some(limit), scans: Some(limit) };
        Self {
            time_ms: both(10_000),
            bytes: both(100 << 20),
            is_kept: false,
            kept: 256,
            waiting_for_table: 0,
        }
    }
}

/// Why a call is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExceededLimits {
    /// Its processing took too long.
    Slow,
    /// Its reply is too large.
    Large,
    /// Both.
    SlowAndLarge,
}

impl ExceededLimits {
    /// Returns its name in HBase's log.
    pub fn tag(self) -> &'static str {
        match self {
            Self::Slow => "TooSlow",
            Self::Large => "TooLarge",
            Self::SlowAndLarge => "TooLarge & TooSlow",
        }
    }
}

/// The log; see the module's documentation.
#[derive(Debug)]
pub struct SlowLog {
    config: RwLock<SlowLogConfig>,
    /// Calls that exceed neither are skipped; the time is in nanoseconds.
    time_least_ns: AtomicU64,
    bytes_least: AtomicU64,
    /// The newest last.
    calls: Mutex<VecDeque<(SlowRequest, ExceededLimits)>>,
    /// Those that are not in hbase:slowlog yet, the newest last.
    for_table: Mutex<VecDeque<(SlowRequest, ExceededLimits)>>,
}

impl Default for SlowLog {
    fn default() -> Self {
        Self::new(SlowLogConfig::default())
    }
}

impl SlowLog {
    /// An empty log.
    pub fn new(config: SlowLogConfig) -> Self {
        let least = |limit: WarnLimit| AtomicU64::new(limit.least());
        let (time_least_ns, bytes_least) = (AtomicU64::new(least_ns(config.time_ms)), least(config.bytes));
        Self {
            config: RwLock::new(config),
            time_least_ns,
            bytes_least,
            calls: Mutex::default(),
            for_table: Mutex::default(),
        }
    }

    /// Sets the limits for calls that end from now on.
    pub fn set_limits(&self, time_ms: WarnLimit, bytes: WarnLimit) {
        let mut config = self.config.write();
        (config.time_ms, config.bytes) = (time_ms, bytes);
        self.time_least_ns.store(least_ns(time_ms), Relaxed);
        self.bytes_least.store(bytes.least(), Relaxed);
    }

    /// Returns true if a call with this processing time may be slow, or with this reply size large.
    #[inline]
    pub fn may_exceed_limits(&self, processing_ns: u64, reply_bytes: u64) -> bool {
        is_on()
            && (processing_ns > self.time_least_ns.load(Relaxed)
                || reply_bytes > self.bytes_least.load(Relaxed))
    }

    /// Returns which limits a call exceeds. Keeps the call if it exceeds any and calls are kept.
    pub fn keep(&self, request: &SlowRequest) -> Option<ExceededLimits> {
        let config = *self.config.read();
        let is_slow = config.time_ms.is_exceeded(request.method, request.processing_time.as_millis());
        let is_large = config.bytes.is_exceeded(request.method, u128::from(request.reply_bytes));
        let excess = match (is_slow, is_large) {
            (true, true) => ExceededLimits::SlowAndLarge,
            (true, false) => ExceededLimits::Slow,
            (false, true) => ExceededLimits::Large,
            (false, false) => return None,
        };
        if config.is_kept {
            push(&self.calls, config.kept, request, excess);
            push(&self.for_table, config.waiting_for_table, request, excess);
        }
        Some(excess)
    }

    /// Returns the kept calls, the newest first.
    pub fn calls(&self) -> Vec<(SlowRequest, ExceededLimits)> {
        self.calls.lock().iter().rev().cloned().collect()
    }

    /// Takes the oldest calls that are not in hbase:slowlog yet.
    pub fn take_for_table(&self, most: usize) -> Vec<(SlowRequest, ExceededLimits)> {
        let mut waiting = self.for_table.lock();
        let count = most.min(waiting.len());
        waiting.drain(..count).collect()
    }

    /// Removes all calls, except those that wait for hbase:slowlog. Returns true if calls are kept.
    pub fn clear(&self) -> bool {
        self.calls.lock().clear();
        self.config.read().is_kept
    }
}

/// Adds a call to those that are kept, of which there are `most`.
fn push(
    to: &Mutex<VecDeque<(SlowRequest, ExceededLimits)>>,
    most: usize,
    request: &SlowRequest,
    excess: ExceededLimits,
) {
    if most == 0 {
        return;
    }
    let mut calls = to.lock();
    if calls.len() >= most {
        calls.pop_front();
    }
    calls.push_back((request.clone(), excess));
}

/// Returns the largest time in nanoseconds that exceeds neither limit.
fn least_ns(time_ms: WarnLimit) -> u64 {
    time_ms.least().saturating_mul(1_000_000)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ledger::RequestDetail;
    use crate::waits::Waits;

    fn call(method: &'static str, ms: u64, reply_bytes: u64) -> SlowRequest {
        SlowRequest {
            method,
            received_ms: 0,
            queue_time: Duration::from_secs(100),
            processing_time: Duration::from_millis(ms),
            request_bytes: 0,
            reply_bytes,
            client: String::new(),
            user: String::new(),
            error: "",
            detail: RequestDetail::default(),
            waits: Waits::NONE,
            surroundings: Default::default(),
        }
    }

    fn config() -> SlowLogConfig {
        let time_ms = WarnLimit { calls: Some(10), scans: Some(50) };
        let bytes = WarnLimit { calls: Some(100), scans: None };
        SlowLogConfig { time_ms, bytes, is_kept: true, kept: 3, waiting_for_table: 2 }
    }

    #[test]
    fn calls_above_a_limit_are_kept_with_their_excess() {
        let log = SlowLog::new(config());
        for (method, ms, bytes, excess) in [
            ("Get", 10, 100, None),
            ("Get", 11, 100, Some(ExceededLimits::Slow)),
            ("Get", 0, 101, Some(ExceededLimits::Large)),
            ("Multi", 11, 101, Some(ExceededLimits::SlowAndLarge)),
            ("Scan", 50, 1 << 40, None),
            ("Scan", 51, 0, Some(ExceededLimits::Slow)),
        ] {
            let call = call(method, ms, bytes);
            assert_eq!(log.keep(&call), excess, "{method} {ms} {bytes}");
            assert!(log.may_exceed_limits(ms * 1_000_000, bytes) || excess.is_none());
        }
        let kept: Vec<_> = log.calls().into_iter().map(|(call, excess)| (call.method, excess)).collect();
        assert_eq!(
            kept,
            [
                ("Scan", ExceededLimits::Slow),
                ("Multi", ExceededLimits::SlowAndLarge),
                ("Get", ExceededLimits::Large)
            ],
            "the newest first, and as many as the setting says"
        );
        assert!(log.clear() && log.calls().is_empty());
        let waiting =
            |most| log.take_for_table(most).into_iter().map(|(call, _)| call.method).collect::<Vec<_>>();
        assert_eq!(
            [waiting(1), waiting(5), waiting(5)],
            [vec!["Multi"], vec!["Scan"], vec![]],
            "the oldest first"
        );
    }

    #[test]
    fn limits_that_are_off_and_a_log_that_is_off() {
        let off = WarnLimit { calls: None, scans: None };
        let none = SlowLog::new(SlowLogConfig { time_ms: off, bytes: off, ..config() });
        assert!(!none.may_exceed_limits(u64::MAX, u64::MAX));
        assert_eq!(none.keep(&call("Get", 1 << 40, u64::MAX)), None);
        let silent = SlowLog::new(SlowLogConfig { is_kept: false, ..config() });
        assert_eq!(silent.keep(&call("Get", 11, 0)), Some(ExceededLimits::Slow));
        assert!(silent.calls().is_empty() && !silent.clear());
    }

    #[test]
    fn limits_may_be_changed() {
        let log = SlowLog::new(config());
        let both = |limit| WarnLimit { calls: Some(limit), scans: Some(limit) };
        log.set_limits(both(20), both(1000));
        assert!(!log.may_exceed_limits(20_000_000, 1000) && log.may_exceed_limits(20_000_001, 0));
        assert_eq!(log.keep(&call("Get", 11, 101)), None);
        assert_eq!(log.keep(&call("Scan", 21, 1001)), Some(ExceededLimits::SlowAndLarge));
    }
}
