//! Answers a call, on the connection's thread or from another one.
//!
//! A [`Responder`] belongs to the connection's thread. It encodes the reply into the connection's
//! outbox: without a lock, a channel, or an allocation other than the outbox's growth. One vectored
//! write sends all replies of a turn. [`Responder::detach`] makes a [`DetachedResponder`] that may
//! move to another thread; the reply is encoded there and passed to the connection through its
//! [detached replies](crate::connection::DetachedReplies).
//!
//! A call is always answered: a responder that is dropped answers with an exception, unless it was
//! [`silently_dropped`](Respond::silently_dropped) because no client waits for the reply.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_common::clock::{self, Ticks};
use evenkeel_common::{ErrorKind, HBaseError, Result};
use evenkeel_metrics::RequestDetail;
use evenkeel_metrics::trace::TraceContext;
use evenkeel_metrics::waits::{self, Cause, Waits};
use prost::Message;

use crate::call::{ConnectionInfo, LARGE_BYTES_MIN};
use crate::cell_block::CellBlockWriter;
use crate::connection::{ConnectionShared, DetachedCall, DetachedReplies};
use crate::gather_buffer::GatherBuffer;
use crate::metrics::{CallTimes, RepliedCall, RpcMetrics};
use crate::reply::{over_budget, write_exception, write_result};

/// The operations of both kinds of responder.
pub trait Respond: Sized {
    /// The connection the reply goes to.
    fn connection(&self) -> &Arc<ConnectionInfo>;

    /// The call id, which the client chose.
    fn call_id(&self) -> u32;

    /// Answers with a message, and with a cell block if `cells` is not empty. Returns how long the
    /// call took. `detail` describes the call if it was slow.
    fn send_detailed<M: Message>(
        self,
        message: &M,
        cells: Option<CellBlockWriter>,
        detail: impl FnOnce() -> RequestDetail,
    ) -> CallTimes;

    /// Answers with an exception. Returns how long the call took. `detail` describes the call if it
    /// was slow.
    fn send_error_detailed(self, error: &HBaseError, detail: impl FnOnce() -> RequestDetail) -> CallTimes;

    /// Ends the call without a reply: it has timed out, or its socket is closed.
    fn silently_dropped(self);

    /// Returns a writer of cell blocks in the client's codec; `None` if cells are part of the
    /// messages.
    fn cell_block_writer(&self) -> Option<CellBlockWriter> {
        self.connection().cell_block_writer()
    }

    /// Answers with a message, and with a cell block if `cells` is not empty.
    fn send_cells<M: Message>(self, message: &M, cells: Option<CellBlockWriter>) {
        self.send_detailed(message, cells, RequestDetail::default);
    }

    /// Answers with an exception.
    fn send_error(self, error: &HBaseError) {
        self.send_error_detailed(error, RequestDetail::default);
    }

    /// Answers with only a message.
    fn send<M: Message>(self, message: &M) {
        self.send_cells(message, None);
    }

    /// Answers with a message or an exception.
    fn send_result<M: Message>(self, result: Result<M>) {
        match result {
            Ok(message) => self.send(&message),
            Err(error) => self.send_error(&error),
        }
    }
}

/// The exception of a call that its service did not answer.
fn unanswered() -> HBaseError {
    HBaseError::io("the server ended the call without a reply")
}

/// Appends the frame of a result, or of an error that prevents it. Returns the kind of that error.
fn encode_result<M: Message>(
    out: &mut GatherBuffer,
    call_id: u32,
    message: &M,
    cells: Option<CellBlockWriter>,
    bytes_max: u64,
) -> Option<ErrorKind> {
    let is_large = cells.as_ref().is_some_and(|cells| cells.bytes() >= LARGE_BYTES_MIN);
    let written = waits::time_if(is_large, Cause::Encode, || {
        let block = cells.map(CellBlockWriter::finish).transpose()?;
        write_result(out, call_id, message, block, bytes_max)
    });
    match written {
        Ok(()) => None,
        Err(error) => encode_error(out, call_id, &error),
    }
}

fn encode_error(out: &mut GatherBuffer, call_id: u32, error: &HBaseError) -> Option<ErrorKind> {
    write_exception(out, call_id, error);
    Some(error.kind())
}

/// The part of a call that its responder needs.
#[derive(Clone, Copy)]
struct CallHead {
    call_id: u32,
    method: &'static str,
    frame_bytes: usize,
    received_at: Ticks,
}

impl CallHead {
    /// What [`DetachedReplies::push`] needs.
    fn pushed(&self) -> (u32, usize, &'static str) {
        (self.call_id, self.frame_bytes, self.method)
    }

    /// Counts the call, whose reply is ready, and reports it if it is traced. Inlined, so that
    /// every call pays only for reading the clock and for [`RpcMetrics::record`].
    #[inline(always)]
    fn answered(
        &self,
        (metrics, info): (&RpcMetrics, &ConnectionInfo),
        (begun_at, waits, trace): (Ticks, Option<&Waits>, Option<Box<TraceContext>>),
        (reply_bytes, error): (usize, Option<ErrorKind>),
        detail: impl FnOnce() -> RequestDetail,
    ) -> CallTimes {
        let times = CallTimes {
            received_at: self.received_at,
            begun_at: begun_at.max(self.received_at),
            answered_at: clock::ticks(),
        };
        if let Some(kind) = error {
            metrics.count_exception(kind);
        }
        let is_kept = metrics.record(&times, self.frame_bytes, reply_bytes);
        if is_kept || trace.is_some() {
            self.keep((metrics, info), (&times, waits), (reply_bytes, error), (is_kept, trace), detail);
        }
        times
    }

    #[cold]
    #[inline(never)]
    fn keep(
        &self,
        (metrics, info): (&RpcMetrics, &ConnectionInfo),
        (times, waits): (&CallTimes, Option<&Waits>),
        (reply_bytes, error): (usize, Option<ErrorKind>),
        (is_kept, trace): (bool, Option<Box<TraceContext>>),
        detail: impl FnOnce() -> RequestDetail,
    ) {
        let Self { method, frame_bytes: request_bytes, .. } = *self;
        let call = RepliedCall { method, info, times: *times, request_bytes, reply_bytes, error, waits };
        let detail = detail();
        if let Some(context) = trace {
            call.trace(&context, &detail);
        }
        if is_kept {
            metrics.keep(call, detail);
        }
    }
}

/// Answers a call on the connection's thread. See the module's documentation.
pub struct Responder {
    connection: Rc<ConnectionShared>,
    head: CallHead,
    /// The context of a traced call.
    trace: Option<Box<TraceContext>>,
    open: bool,
}

impl Responder {
    pub(crate) fn new(
        connection: Rc<ConnectionShared>,
        call_id: u32,
        frame_bytes: usize,
        received_at: Ticks,
    ) -> Self {
        connection.call_started(frame_bytes);
        let head = CallHead { call_id, method: "", frame_bytes, received_at };
        Responder { connection, head, trace: None, open: true }
    }

    /// Has the call traced.
    pub(crate) fn set_trace(&mut self, context: TraceContext) {
        self.trace = Some(Box::new(context));
    }

    /// Sets the method, once it is known.
    pub(crate) fn set_method(&mut self, method: &'static str) {
        self.head.method = method;
    }

    /// Makes the responder independent of this thread.
    pub fn detach(mut self) -> DetachedResponder {
        self.open = false;
        let CallHead { call_id, method, frame_bytes, received_at } = self.head;
        self.connection.call_detached(DetachedCall { call_id, method, frame_bytes, received_at });
        let thread = self.connection.thread();
        let begun_at = thread.call_began_at();
        thread.next_call_begins(clock::ticks());
        DetachedResponder {
            info: self.connection.info().clone(),
            detached_replies: self.connection.detached_replies().clone(),
            head: self.head,
            trace: self.trace.take(),
            begun_at,
            waits: waits::take().map(Box::new),
            open: true,
        }
    }

    fn finish(
        &mut self,
        write: impl FnOnce(&mut GatherBuffer, u32) -> Option<ErrorKind>,
        detail: impl FnOnce() -> RequestDetail,
    ) -> CallTimes {
        self.open = false;
        let mut error = None;
        let reply_bytes = self.connection.append_reply(|out| error = write(out, self.head.call_id));
        let thread = self.connection.thread();
        let waits = waits::take();
        let times = self.head.answered(
            (thread.metrics(), self.connection.info()),
            (thread.call_began_at(), waits.as_ref(), self.trace.take()),
            (reply_bytes, error),
            detail,
        );
        thread.next_call_begins(times.answered_at);
        self.connection.note_large_reply(self.head.method, reply_bytes);
        self.connection.call_ended(self.head.frame_bytes);
        times
    }
}

impl Respond for Responder {
    fn connection(&self) -> &Arc<ConnectionInfo> {
        self.connection.info()
    }

    fn call_id(&self) -> u32 {
        self.head.call_id
    }

    fn send_detailed<M: Message>(
        mut self,
        message: &M,
        cells: Option<CellBlockWriter>,
        detail: impl FnOnce() -> RequestDetail,
    ) -> CallTimes {
        let bytes_max = self.connection.detached_replies().reply_bytes_max();
        self.finish(|out, call_id| encode_result(out, call_id, message, cells, bytes_max), detail)
    }

    fn send_error_detailed(
        mut self,
        error: &HBaseError,
        detail: impl FnOnce() -> RequestDetail,
    ) -> CallTimes {
        self.finish(|out, call_id| encode_error(out, call_id, error), detail)
    }

    fn silently_dropped(mut self) {
        self.open = false;
        self.connection.call_ended(self.head.frame_bytes);
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if self.open {
            self.finish(|out, call_id| encode_error(out, call_id, &unanswered()), RequestDetail::default);
        }
    }
}

/// Answers a call from any thread. See the module's documentation.
pub struct DetachedResponder {
    info: Arc<ConnectionInfo>,
    detached_replies: Arc<DetachedReplies>,
    head: CallHead,
    /// The context of a traced call.
    trace: Option<Box<TraceContext>>,
    /// When a thread began to run the call.
    begun_at: Ticks,
    /// The waits of the call on the threads that it has left, if any.
    waits: Option<Box<Waits>>,
    open: bool,
}

impl DetachedResponder {
    /// Records that a handler thread begins to run the call. Its time on the connection's thread,
    /// and the wait for this thread, count as queue time.
    pub(crate) fn begin(&mut self, now: Ticks) {
        self.begun_at = now;
        self.waits = None;
        waits::take();
    }

    /// Records a wait of the call while no thread ran it.
    pub fn note_wait(&mut self, cause: Cause, time: Duration) {
        self.waits.get_or_insert_default().note(cause, time);
    }

    /// Collects the call's waits on this thread before another thread continues it.
    pub fn leave_thread(&mut self) {
        if let Some(noted) = waits::take() {
            self.waits.get_or_insert_default().add(&noted);
        }
    }

    fn finish(
        &mut self,
        write: impl FnOnce(&mut GatherBuffer, u32) -> Option<ErrorKind>,
        detail: impl FnOnce() -> RequestDetail,
    ) -> CallTimes {
        self.open = false;
        let mut reply = GatherBuffer::new();
        let mut error = None;
        if !self.info.is_closed() {
            error = write(&mut reply, self.head.call_id);
        }
        if !self.detached_replies.try_charge(&reply) {
            // Other replies took the free budget.
            let refused = over_budget(reply.len());
            reply = GatherBuffer::new();
            error = encode_error(&mut reply, self.head.call_id, &refused);
        }
        self.leave_thread();
        let times = self.head.answered(
            (self.detached_replies.metrics(), &self.info),
            (self.begun_at, self.waits.as_deref(), self.trace.take()),
            (reply.len(), error),
            detail,
        );
        self.detached_replies.push(reply, self.head.pushed());
        times
    }
}

impl Respond for DetachedResponder {
    fn connection(&self) -> &Arc<ConnectionInfo> {
        &self.info
    }

    fn call_id(&self) -> u32 {
        self.head.call_id
    }

    fn send_detailed<M: Message>(
        mut self,
        message: &M,
        cells: Option<CellBlockWriter>,
        detail: impl FnOnce() -> RequestDetail,
    ) -> CallTimes {
        let bytes_max = self.detached_replies.reply_bytes_max();
        self.finish(|out, call_id| encode_result(out, call_id, message, cells, bytes_max), detail)
    }

    fn send_error_detailed(
        mut self,
        error: &HBaseError,
        detail: impl FnOnce() -> RequestDetail,
    ) -> CallTimes {
        self.finish(|out, call_id| encode_error(out, call_id, error), detail)
    }

    fn silently_dropped(mut self) {
        self.open = false;
        self.detached_replies.push(GatherBuffer::new(), self.head.pushed());
    }
}

impl Drop for DetachedResponder {
    fn drop(&mut self) {
        if self.open {
            self.finish(|out, call_id| encode_error(out, call_id, &unanswered()), RequestDetail::default);
        }
    }
}
