//! Calls that are traced: a sink takes each with the context that its client sent, its times and
//! what it waited for. Spans are the sink's business; without one, nothing is done.
//!
//! A call asks once whether it is traced ([`is_on`], a load of a flag that nobody writes), when its
//! header is read. One that is carries its context to its end, where [`report`] has the sink make
//! all its spans at once, from times that are measured anyway. So no room below knows of spans.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

use crate::ledger::RequestDetail;
use crate::waits::Waits;

/// The context of a call: the headers by which the client passed it on, such as `traceparent`; none
/// if it passed none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceContext(pub Vec<(String, String)>);

/// A call that has its reply.
#[derive(Debug)]
pub struct TracedCall<'a> {
    /// What its client sent.
    pub context: &'a TraceContext,
    /// The service without its package: `ClientService`.
    pub service: &'static str,
    /// The method: `Get`. Empty if there is none of the name.
    pub method: &'static str,
    /// When its last byte had been read.
    pub received: SystemTime,
    /// From then until a thread began it.
    pub queue_time: Duration,
    /// From then until its reply was ready.
    pub processing_time: Duration,
    /// What it was.
    pub detail: &'a RequestDetail,
    /// What its time went to.
    pub waits: Waits,
    /// The class of the exception that is its reply, or "".
    pub error: &'static str,
}

/// Makes spans of calls. It is called on the call's thread, so it must not wait.
pub trait SpanSink: Send + Sync {
    /// Takes a call.
    fn take(&self, call: &TracedCall<'_>);
}

static SINK: OnceLock<Box<dyn SpanSink>> = OnceLock::new();
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Has calls traced from now on. Returns false if there is a sink already, which stays.
pub fn install(sink: Box<dyn SpanSink>) -> bool {
    let is_first = SINK.set(sink).is_ok();
    IS_ON.store(true, Relaxed);
    is_first
}

/// Whether calls are traced.
#[inline]
pub fn is_on() -> bool {
    IS_ON.load(Relaxed)
}

/// Has the sink make the spans of a call.
pub fn report(call: &TracedCall<'_>) {
    if let Some(sink) = SINK.get() {
        sink.take(call);
    }
}
