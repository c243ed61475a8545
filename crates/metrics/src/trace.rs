//! Traced calls: a sink receives each with its client's trace context, its times and its waits, and
//! makes the spans. Without a sink, tracing is off.
//!
//! When the header of a call is read, the flag [`is_on`] is checked once; it is constant after the
//! start, so its cache line stays shared. A traced call carries its context to its end, where
//! [`report`] makes the sink build all spans at once, from times that are measured anyway. So the
//! code that runs the call contains no tracing.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

use crate::ledger::RequestDetail;
use crate::waits::Waits;

/// The trace context of a call: the headers that the client sent, such as `traceparent`; empty
/// without a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceContext(pub Vec<(String, String)>);

/// A traced call that has its reply.
#[derive(Debug)]
pub struct TracedCall<'a> {
    /// The trace context from its client.
    pub context: &'a TraceContext,
    /// The service without its package: `ClientService`.
    pub service: &'static str,
    /// The method: `Get`. Empty if the method is unknown.
    pub method: &'static str,
    /// The time at which its last byte was read.
    pub received: SystemTime,
    /// The time from then until a thread began the call.
    pub queue_time: Duration,
    /// The time from then until the reply was ready.
    pub processing_time: Duration,
    /// The operation and its region.
    pub detail: &'a RequestDetail,
    /// Its waits.
    pub waits: Waits,
    /// The class of the exception in its reply, or "".
    pub error: &'static str,
}

/// Makes spans of calls. It runs on the call's thread, so it must not block.
pub trait SpanSink: Send + Sync {
    /// Makes the spans of a call.
    fn take(&self, call: &TracedCall<'_>);
}

static SINK: OnceLock<Box<dyn SpanSink>> = OnceLock::new();
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Installs the sink and enables tracing. Returns false, and keeps the first sink, if there is one
/// already.
pub fn install(sink: Box<dyn SpanSink>) -> bool {
    let is_first = SINK.set(sink).is_ok();
    IS_ON.store(true, Relaxed);
    is_first
}

/// Returns true if calls are traced.
#[inline]
pub fn is_on() -> bool {
    IS_ON.load(Relaxed)
}

/// Passes a call to the sink.
pub fn report(call: &TracedCall<'_>) {
    if let Some(sink) = SINK.get() {
        sink.take(call);
    }
}
