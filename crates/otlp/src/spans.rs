//! [`Spans`]: the spans of a call, with HBase's names, kinds and attributes (`ServerRpcConnection`,
//! `IpcServerSpanBuilder`, `HRegion`, `AbstractFSWAL`).
//!
//! ```text
//! RpcServer.process                  SERVER, below the client's span: from the call's last byte
//!                                    to its reply
//!   hbase.pb.ClientService/Mutate    SERVER, from the thread that begins it
//!     Region.put                     the region's part, with db.hbase.regions
//!       Region.getRowLock            if the call waited for the row
//!       WAL.append                   from the log's queue ...
//!       WAL.sync                     ... until the write was durable and visible
//! ```
//!
//! Spans are built when the call has its reply, from the times measured for metrics. So the
//! position of the inner spans is approximate: a lock is placed at the beginning of the region's
//! span, and a sync at its end, before replies are held back. HBase's spans of reads within files
//! (`HFileReaderImpl.readBlock`) are not supported.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use evenkeel_metrics::trace::{SpanSink, TraceContext, TracedCall};
use evenkeel_metrics::waits::Cause;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{SpanBuilder, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Array, Context, KeyValue, StringValue, Value};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracer;

/// `db.hbase.wal.impl`: the class that writes HBase's log by default.
const WAL_CLASS: &str = "AsyncFSWAL";

/// See the module's documentation.
pub(crate) struct Spans {
    pub(crate) tracer: SdkTracer,
}

/// The start and end of a span.
#[derive(Clone, Copy)]
struct Times {
    from: SystemTime,
    to: SystemTime,
}

impl SpanSink for Spans {
    fn take(&self, call: &TracedCall<'_>) {
        let begun = call.received + call.queue_time;
        let answered = begun + call.processing_time;
        let whole = Times { from: call.received, to: answered };
        let process =
            self.span("RpcServer.process".into(), SpanKind::Server, whole, &remote(call.context), vec![]);
        if !process.span().is_recording() {
            return;
        }
        let service = format!("hbase.pb.{}", call.service);
        let attributes = vec![
            KeyValue::new("rpc.system", "HBASE_RPC"),
            KeyValue::new("rpc.service", service.clone()),
            KeyValue::new("rpc.method", call.method),
        ];
        let handled = Times { from: begun, ..whole };
        let name = format!("{service}/{}", call.method);
        let handler = self.span(name.into(), SpanKind::Server, handled, &process, attributes);
        self.region(call, handled, &handler);
        for span in [handler, process] {
            end(&span, call.error, answered);
        }
    }
}

impl Spans {
    /// Begins a child span.
    fn span(
        &self,
        name: Cow<'static, str>,
        kind: SpanKind,
        times: Times,
        parent: &Context,
        attributes: Vec<KeyValue>,
    ) -> Context {
        let builder = SpanBuilder::from_name(name).with_kind(kind).with_start_time(times.from);
        let span = self.tracer.build_with_context(builder.with_attributes(attributes), parent);
        parent.with_span(span)
    }

    /// Records a complete child span.
    fn inner(&self, name: &'static str, times: Times, parent: &Context, attributes: Vec<KeyValue>) {
        let span = self.span(name.into(), SpanKind::Internal, times, parent, attributes);
        end(&span, "", times.to);
    }

    fn region(&self, call: &TracedCall<'_>, times: Times, parent: &Context) {
        if call.detail.region.is_empty() {
            return;
        }
        let operation = match call.detail.operation {
            "" if call.method == "Get" => "get",
            "" => return,
            operation => operation,
        };
        let regions = Array::String(vec![StringValue::from(call.detail.region.clone())]);
        let attributes = vec![KeyValue::new("db.hbase.regions", Value::Array(regions))];
        let name = format!("Region.{operation}").into();
        let region = self.span(name, SpanKind::Internal, times, parent, attributes.clone());
        let locked = call.waits.of(Cause::RowLock);
        if !locked.is_zero() {
            let times = Times { to: times.to.min(times.from + locked), ..times };
            self.inner("Region.getRowLock", times, &region, attributes);
        }
        self.wal(call, times, &region);
        end(&region, call.error, times.to);
    }

    fn wal(&self, call: &TracedCall<'_>, within: Times, parent: &Context) {
        let synced = call.waits.of(Cause::LogSync);
        if synced.is_zero() {
            return;
        }
        let before = |at: SystemTime, time: Duration| at.checked_sub(time).unwrap_or(at).max(within.from);
        let to = before(within.to, call.waits.of(Cause::Throttle));
        let sync = Times { from: before(to, synced), to };
        let append = Times { from: before(sync.from, call.waits.of(Cause::LogQueue)), to: sync.from };
        for (name, times) in [("WAL.append", append), ("WAL.sync", sync)] {
            self.inner(name, times, parent, vec![KeyValue::new("db.hbase.wal.impl", WAL_CLASS)]);
        }
    }
}

/// Ends the span of a context, with the class of an exception if there is one.
fn end(context: &Context, error: &'static str, at: SystemTime) {
    let span = context.span();
    if error.is_empty() {
        span.set_status(Status::Ok);
    } else {
        span.set_status(Status::error(""));
        span.add_event_with_timestamp("exception", at, vec![KeyValue::new("exception.type", error)]);
    }
    span.end_with_timestamp(at);
}

/// Returns the context that a client sent: W3C's `traceparent` and `tracestate`.
fn remote(context: &TraceContext) -> Context {
    if context.0.is_empty() {
        return Context::new();
    }
    let headers: HashMap<String, String> =
        context.0.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect();
    TraceContextPropagator::new().extract_with_context(&Context::new(), &headers)
}
