//! [`RpcMetrics`]: counters and distributions over a server's calls, and the [`CallTimes`] of each.
//!
//! # Times of a call
//! ```text
//!   received            begun                      answered
//!   last byte read      a thread runs it           the reply is in the outbox
//!      |---- queue time ----|---- processing time ----|
//! ```
//! A call that runs on its connection's thread begins when the call before it is answered, so the
//! clock is read once per call, at its end. A call on a handler thread begins when the thread takes
//! it. So the processing time of a write includes its wait for the log.

use std::time::{Duration, Instant, SystemTime};

use evenkeel_common::clock::{self, Ticks};
use evenkeel_common::{Binary, ErrorKind};
use evenkeel_metrics::histogram::time_units_of_ns;
use evenkeel_metrics::ledger::{ActionCounts, Ledger, RequestDetail, SlowRequest};
use evenkeel_metrics::sink::slow_requests::{causes_line, server_line};
use evenkeel_metrics::slow_log::ExceededLimits;
use evenkeel_metrics::trace::{self, TraceContext, TracedCall};
use evenkeel_metrics::waits::{Cause, Waits};
use evenkeel_metrics::{
    Counters, HistogramSnapshot, Histograms, Interval, LedgerConfig, SlowLog, SlowLogConfig,
};

use crate::call::ConnectionInfo;
use crate::connection_report::user_text;

/// The times of a call; see the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallTimes {
    /// When its last byte was read.
    pub received_at: Ticks,
    /// When a thread began to run it.
    pub begun_at: Ticks,
    /// When its reply was ready.
    pub answered_at: Ticks,
}

impl CallTimes {
    /// Nanoseconds from the arrival until a thread began to run the call.
    #[inline]
    pub fn queue_ns(&self) -> u64 {
        self.begun_at.ns_since(self.received_at)
    }

    /// Nanoseconds from then until the reply was ready.
    #[inline]
    pub fn processing_ns(&self) -> u64 {
        self.answered_at.ns_since(self.begun_at)
    }

    /// Nanoseconds from the arrival until the reply was ready.
    #[inline]
    pub fn total_ns(&self) -> u64 {
        self.answered_at.ns_since(self.received_at)
    }
}

/// A distribution over all calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallValue {
    /// From the arrival until a thread began to run the call, in the units of
    /// [`Histogram::record_time`](evenkeel_metrics::Histogram::record_time).
    QueueTime,
    /// From then until the reply was ready.
    ProcessingTime,
    /// The sum of both.
    TotalTime,
    /// Bytes of the request.
    RequestBytes,
    /// Bytes of the reply.
    ReplyBytes,
}

/// Metrics of a server's calls.
#[derive(Debug, Default)]
pub struct RpcMetrics {
    /// Indexed by [`CallValue`].
    calls: Histograms<5>,
    /// Replies with an error, by the index of the kind in [`ErrorKind::ALL`].
    exceptions: Counters<{ ErrorKind::ALL.len() }>,
    /// The slow calls.
    pub ledger: Ledger,
    /// HBase's log of slow and large responses.
    pub slow_log: SlowLog,
}

/// One answered call.
pub(crate) struct RepliedCall<'a> {
    pub method: &'static str,
    pub info: &'a ConnectionInfo,
    pub times: CallTimes,
    pub request_bytes: usize,
    pub reply_bytes: usize,
    pub error: Option<ErrorKind>,
    pub waits: Option<&'a Waits>,
}

impl RepliedCall<'_> {
    /// Has the spans of a traced call made.
    pub(crate) fn trace(&self, context: &TraceContext, detail: &RequestDetail) {
        let age = clock::since(self.times.received_at.instant());
        trace::report(&TracedCall {
            context,
            service: self.info.service,
            method: self.method,
            received: SystemTime::UNIX_EPOCH + Duration::from_millis(now_ms().unsigned_abs()) - age,
            queue_time: Duration::from_nanos(self.times.queue_ns()),
            processing_time: Duration::from_nanos(self.times.processing_ns()),
            detail,
            waits: self.waits.copied().unwrap_or(Waits::NONE),
            error: self.error.map_or("", ErrorKind::class_name),
        });
    }
}

impl RpcMetrics {
    /// Metrics with these settings of the ledger and the slow log.
    pub fn new(ledger: LedgerConfig, slow_log: SlowLogConfig) -> Self {
        Self { ledger: Ledger::new(ledger), slow_log: SlowLog::new(slow_log), ..Self::default() }
    }

    /// Returns a distribution over all calls since the start.
    pub fn snapshot(&self, of: CallValue) -> HistogramSnapshot {
        self.calls.snapshot(of as usize)
    }

    /// Returns a distribution over the calls of the last interval.
    pub fn interval(&self, of: CallValue) -> Interval {
        self.calls.interval(of as usize)
    }

    /// Number of replies with an error of this kind.
    pub fn exceptions(&self, kind: ErrorKind) -> u64 {
        self.exceptions.sum(kind as usize)
    }

    /// Number of replies with an error.
    pub fn all_exceptions(&self) -> u64 {
        ErrorKind::ALL.iter().map(|kind| self.exceptions(*kind)).sum()
    }

    /// Counts an error that a reply reports for one of its actions.
    #[cold]
    pub fn count_exception(&self, kind: ErrorKind) {
        self.exceptions.add(kind as usize, 1);
    }

    /// Counts an answered call, without its error. Returns true if the ledger or the slow log must
    /// [keep](RpcMetrics::keep) it.
    ///
    /// Every call pays for this function. It calls no other function except in a thread's first
    /// call, so it saves no registers.
    #[inline(never)]
    #[must_use]
    pub(crate) fn record(&self, times: &CallTimes, request_bytes: usize, reply_bytes: usize) -> bool {
        let (processing_ns, total_ns) = (times.processing_ns(), times.total_ns());
        let [queue, processing, total] = [times.queue_ns(), processing_ns, total_ns].map(time_units_of_ns);
        let values = [queue, processing, total, request_bytes as u64, reply_bytes as u64];
        if !self.calls.try_record(values) {
            return self.record_first(times, request_bytes, reply_bytes);
        }
        self.ledger.exceeds_threshold(total_ns)
            || self.slow_log.may_exceed_limits(processing_ns, reply_bytes as u64)
    }

    /// Counts the first call of a thread.
    #[cold]
    fn record_first(&self, times: &CallTimes, request_bytes: usize, reply_bytes: usize) -> bool {
        let [queue, processing, total] =
            [times.queue_ns(), times.processing_ns(), times.total_ns()].map(time_units_of_ns);
        self.calls.record([queue, processing, total, request_bytes as u64, reply_bytes as u64]);
        self.ledger.exceeds_threshold(times.total_ns())
            || self.slow_log.may_exceed_limits(times.processing_ns(), reply_bytes as u64)
    }

    /// Records that a client took its replies late: from `since` until now, its last large reply,
    /// or several small ones, waited in the server.
    pub(crate) fn record_slow_reader(&self, method: &'static str, info: &ConnectionInfo, since: Instant) {
        let took = clock::since(since);
        if !self.ledger.exceeds_threshold(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)) {
            return;
        }
        let mut waits = Waits::NONE;
        waits.note(Cause::Socket, took);
        let surroundings = self.ledger.collect_context(since, took, &mut waits);
        let request = SlowRequest {
            method,
            received_ms: now_ms() - i64::try_from(took.as_millis()).unwrap_or(i64::MAX),
            queue_time: Duration::ZERO,
            processing_time: took,
            request_bytes: 0,
            reply_bytes: 0,
            client: info.peer.to_string(),
            user: user_text(info.user.as_deref()),
            error: "",
            detail: RequestDetail { text: "replies not read by the client".to_owned(), ..Default::default() },
            waits,
            surroundings,
        };
        if self.ledger.may_log(&request) {
            log_slow_request(&request);
        }
        self.ledger.keep(request);
    }

    /// Keeps a call for which [`RpcMetrics::record`] returned true.
    #[cold]
    pub(crate) fn keep(&self, call: RepliedCall<'_>, mut detail: RequestDetail) {
        let is_long = self.ledger.exceeds_threshold(call.times.total_ns());
        detail.truncate();
        let [queue_time, processing_time] =
            [call.times.queue_ns(), call.times.processing_ns()].map(Duration::from_nanos);
        let received_at = call.times.received_at.instant();
        let mut waits = call.waits.copied().unwrap_or(Waits::NONE);
        waits.note(Cause::Thread, queue_time);
        let total = queue_time + processing_time;
        let surroundings = self.ledger.collect_context(received_at, total, &mut waits);
        let age = clock::since(received_at);
        let request = SlowRequest {
            method: call.method,
            received_ms: now_ms() - i64::try_from(age.as_millis()).unwrap_or(i64::MAX),
            queue_time,
            processing_time,
            request_bytes: call.request_bytes as u64,
            reply_bytes: call.reply_bytes as u64,
            client: call.info.peer.to_string(),
            user: user_text(call.info.user.as_deref()),
            error: call.error.map_or("", ErrorKind::class_name),
            detail,
            waits,
            surroundings,
        };
        match self.slow_log.keep(&request) {
            Some(excess) => warn(&request, excess),
            None if self.ledger.may_log(&request) => log_slow_request(&request),
            None => {}
        }
        if is_long {
            self.ledger.keep(request);
        }
    }
}

/// Logs HBase's line for a slow or large response.
fn warn(request: &SlowRequest, excess: ExceededLimits) {
    let ActionCounts { gets, mutations, service_calls } = request.detail.actions;
    tracing::warn!(
        method = request.method,
        client = request.client,
        user = request.user,
        region = request.detail.region,
        row = %Binary(&request.detail.row),
        detail = request.detail.text,
        gets,
        mutations,
        service_calls,
        queue_time = ?request.queue_time,
        processing_time = ?request.processing_time,
        response_bytes = request.reply_bytes,
        error = request.error,
        waits = causes_line(&request.waits),
        server = server_line(request),
        "(response{})",
        excess.tag()
    );
}

/// Logs a slow request that is below the threshold of HBase's line.
fn log_slow_request(request: &SlowRequest) {
    tracing::info!(
        method = request.method,
        client = request.client,
        user = request.user,
        region = request.detail.region,
        row = %Binary(&request.detail.row),
        detail = request.detail.text,
        total_time = ?request.total_time(),
        causes = causes_line(&request.waits),
        server = server_line(request),
        "slow request"
    );
}

fn now_ms() -> i64 {
    use evenkeel_common::clock::{Clock, SystemClock};
    SystemClock.now_ms()
}
