//! [`RpcMetrics`]: what a server counts of its calls, and [`CallTimes`] of each.
//!
//! # Times of a call
//! ```text
//!   received            begun                      answered
//!   last byte read      a thread runs it           the reply is in the outbox
//!      |---- queue time ----|---- processing time ----|
//! ```
//! A call that runs on its connection's thread begins when the call before it has its reply: the
//! clock is read once a call, at its end. A call of a handler thread begins when the thread takes
//! it. So a write that waits for the log has its wait in its processing time.

use std::time::{Duration, Instant};

use evenkeel_common::{Binary, ErrorKind};
use evenkeel_metrics::ledger::{ActionCounts, Ledger, RequestDetail, SlowRequest};
use evenkeel_metrics::sink::slow_requests::{causes_line, server_line};
use evenkeel_metrics::slow_log::Excess;
use evenkeel_metrics::waits::{Cause, Waits};
use evenkeel_metrics::{Counters, Histogram, LedgerConfig, SlowLog, SlowLogConfig};

use crate::call::ConnectionInfo;

/// How long a call took. See the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallTimes {
    /// When its last byte had been read.
    pub received_at: Instant,
    /// When a thread began it.
    pub begun_at: Instant,
    /// When its reply was ready.
    pub answered_at: Instant,
}

impl CallTimes {
    /// From its arrival until a thread began it.
    pub fn queue_time(&self) -> Duration {
        self.begun_at.saturating_duration_since(self.received_at)
    }

    /// From its beginning until its reply was ready.
    pub fn processing_time(&self) -> Duration {
        self.answered_at.saturating_duration_since(self.begun_at)
    }

    /// From its arrival until its reply was ready.
    pub fn total_time(&self) -> Duration {
        self.answered_at.saturating_duration_since(self.received_at)
    }
}

/// What a server counts of its calls.
#[derive(Debug, Default)]
pub struct RpcMetrics {
    /// Times, recorded by [`Histogram::record_time`].
    pub queue_time: Histogram,
    /// The same.
    pub processing_time: Histogram,
    /// The same.
    pub total_time: Histogram,
    /// Bytes of requests.
    pub request_bytes: Histogram,
    /// Bytes of replies.
    pub reply_bytes: Histogram,
    /// Replies with an error, by the place of its kind in [`ErrorKind::ALL`].
    exceptions: Counters<{ ErrorKind::ALL.len() }>,
    /// The slow calls.
    pub ledger: Ledger,
    /// HBase's log of slow and large responses.
    pub slow_log: SlowLog,
}

/// One call that has its reply.
pub(crate) struct AnsweredCall<'a> {
    pub method: &'static str,
    pub info: &'a ConnectionInfo,
    pub times: CallTimes,
    pub request_bytes: usize,
    pub reply_bytes: usize,
    pub error: Option<ErrorKind>,
    pub waits: Waits,
}

impl RpcMetrics {
    /// Metrics whose ledger and slow log keep calls by these settings.
    pub fn new(ledger: LedgerConfig, slow_log: SlowLogConfig) -> Self {
        Self { ledger: Ledger::new(ledger), slow_log: SlowLog::new(slow_log), ..Self::default() }
    }

    /// Replies with an error of this kind.
    pub fn exceptions(&self, kind: ErrorKind) -> u64 {
        self.exceptions.sum(kind as usize)
    }

    /// Replies with an error.
    pub fn all_exceptions(&self) -> u64 {
        ErrorKind::ALL.iter().map(|kind| self.exceptions(*kind)).sum()
    }

    /// Counts an error that a reply tells of one of its actions.
    pub fn count_exception(&self, kind: ErrorKind) {
        self.exceptions.add(kind as usize, 1);
    }

    /// Counts a call that has its reply. `detail` is asked only if the call is kept.
    #[inline]
    pub(crate) fn record(&self, call: AnsweredCall<'_>, detail: impl FnOnce() -> RequestDetail) {
        let total = call.times.total_time();
        self.queue_time.record_time(call.times.queue_time());
        self.processing_time.record_time(call.times.processing_time());
        self.total_time.record_time(total);
        self.request_bytes.record(call.request_bytes as u64);
        self.reply_bytes.record(call.reply_bytes as u64);
        if let Some(kind) = call.error {
            self.count_exception(kind);
        }
        let is_long = self.ledger.wants(total);
        if is_long || self.slow_log.wants(call.times.processing_time(), call.reply_bytes as u64) {
            self.keep(call, detail(), is_long);
        }
    }

    /// Keeps what a client that took its replies late made of the last large one, or of several
    /// small ones: from `since` until now they waited in the server.
    pub(crate) fn record_slow_reader(&self, method: &'static str, info: &ConnectionInfo, since: Instant) {
        let took = since.elapsed();
        if !self.ledger.wants(took) {
            return;
        }
        let mut waits = Waits::NONE;
        waits.note(Cause::Socket, took);
        let surroundings = self.ledger.look_around(since, took, &mut waits);
        let request = SlowRequest {
            method,
            received_ms: now_ms() - i64::try_from(took.as_millis()).unwrap_or(i64::MAX),
            queue_time: Duration::ZERO,
            processing_time: took,
            request_bytes: 0,
            reply_bytes: 0,
            client: info.peer.to_string(),
            user: info.user.clone().unwrap_or_default(),
            error: "",
            detail: RequestDetail {
                text: "replies not taken by the client".to_owned(),
                ..Default::default()
            },
            waits,
            surroundings,
        };
        if self.ledger.takes_line(&request) {
            tell(&request);
        }
        self.ledger.keep(request);
    }

    #[cold]
    fn keep(&self, call: AnsweredCall<'_>, mut detail: RequestDetail, is_long: bool) {
        detail.cut();
        let (queue_time, processing_time) = (call.times.queue_time(), call.times.processing_time());
        let mut waits = call.waits;
        waits.note(Cause::Thread, queue_time);
        let total = queue_time + processing_time;
        let surroundings = self.ledger.look_around(call.times.received_at, total, &mut waits);
        let age = call.times.received_at.elapsed();
        let request = SlowRequest {
            method: call.method,
            received_ms: now_ms() - i64::try_from(age.as_millis()).unwrap_or(i64::MAX),
            queue_time,
            processing_time,
            request_bytes: call.request_bytes as u64,
            reply_bytes: call.reply_bytes as u64,
            client: call.info.peer.to_string(),
            user: call.info.user.clone().unwrap_or_default(),
            error: call.error.map_or("", ErrorKind::class_name),
            detail,
            waits,
            surroundings,
        };
        match self.slow_log.keep(&request) {
            Some(excess) => warn(&request, excess),
            None if self.ledger.takes_line(&request) => tell(&request),
            None => {}
        }
        if is_long {
            self.ledger.keep(request);
        }
    }
}

/// HBase's line for a slow or large response.
fn warn(request: &SlowRequest, excess: Excess) {
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

/// The line of a slow request that is not slow enough for HBase's.
fn tell(request: &SlowRequest) {
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
