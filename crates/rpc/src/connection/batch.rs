//! [`CallBatch`]: the calls in a connection's read buffer, as the service takes them.
//!
//! A frame becomes a call when the service asks for the next one, so the connection's limits hold
//! between any two calls. A batch ends when the buffer has no whole frame, when its turn is over
//! and the thread's other connections must run, when the connection reaches its limit of calls or
//! unsent bytes, or when the batch's replies should be sent. The remaining frames form the next
//! batch. A refused request is answered here and is not part of the batch.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_common::{ErrorKind, HBaseError, length};
use evenkeel_metrics::trace;

use super::frame::Frame;
use super::input_budget::HEADER_BYTES_FREE;
use super::serve::{CloseReason, Connection};
use crate::call::Call;
use crate::connection_thread::count;
use crate::reply::write_exception;
use crate::request::{RequestHead, split_body, split_header, trace_context};
use crate::responder::{Respond, Responder};

/// A batch ends when it has this many bytes of replies, so that they are sent.
const BATCH_REPLY_BYTES_MAX: usize = 256 * 1024;
/// Longest header that is parsed in a frame that is refused for its length.
const REFUSED_HEADER_BYTES_MAX: usize = 1024 * 1024;

/// The calls of one turn of a connection. See the module's documentation.
pub struct CallBatch<'a> {
    connection: &'a mut Connection,
    /// Unsent bytes of the connection at which the batch ends.
    unsent_bytes_max: usize,
    /// `Some` once the batch has ended; `Err` if the connection must be closed.
    ended: Option<Result<(), CloseReason>>,
}

impl<'a> CallBatch<'a> {
    pub(super) fn new(connection: &'a mut Connection) -> Self {
        connection.unfinished = true;
        let unsent_bytes_max = connection.shared.unsent_bytes() + BATCH_REPLY_BYTES_MAX;
        Self { connection, unsent_bytes_max, ended: None }
    }

    /// Returns the next call and its responder; `None` at the end of the batch.
    pub fn next_call(&mut self) -> Option<(Call, Responder)> {
        while self.ended.is_none() {
            match self.next_frame() {
                Ok(Some(call)) => return Some(call),
                Ok(None) => {}
                Err(fatal) => self.ended = Some(Err(fatal)),
            }
        }
        None
    }

    /// Returns how the batch ended. The remaining frames form the next batch.
    pub(super) fn end(self) -> Result<(), CloseReason> {
        self.ended.unwrap_or(Ok(()))
    }

    /// Takes a frame, or ends the batch. Returns `None` if the frame yields no call.
    fn next_frame(&mut self) -> Result<Option<(Call, Responder)>, CloseReason> {
        let connection = &mut *self.connection;
        if connection.turn_is_over() {
            self.ended = Some(Ok(()));
            return Ok(None);
        }
        // Before the check of the replies: a connection that accepts no calls may have no turn
        // soon, so its buffered input must be counted here.
        if !connection.has_capacity() {
            self.ended = Some(connection.charge_waiting());
            return Ok(None);
        }
        if connection.shared.unsent_bytes() > self.unsent_bytes_max {
            self.ended = Some(Ok(()));
            return Ok(None);
        }
        match connection.frames.next_frame() {
            Frame::Whole(frame) => {
                connection.count_call();
                return connection.request(frame);
            }
            Frame::Partial(_) => {
                connection.unfinished = false;
                self.ended = Some(connection.charge_partial());
            }
            Frame::TooLong(bytes) => {
                connection.unfinished = false;
                self.ended = Some(connection.reject_too_long(bytes));
            }
        }
        Ok(None)
    }
}

impl Connection {
    fn count_call(&mut self) {
        if self.calls_in_row == 0 {
            self.row_began_at = self.turn_ticks;
        }
        self.calls_in_row += 1;
    }

    /// Charges buffered input to the budget. Returns false if it does not fit.
    fn charge_buffered(&mut self) -> bool {
        let bytes = self.frames.buffered().len();
        if bytes == 0 {
            return true;
        }
        self.shared.note_input(bytes, self.turn_at);
        self.held.grow_to(bytes)
    }

    /// Charges an incomplete frame to the budget, and refuses the request if it does not fit.
    fn charge_partial(&mut self) -> Result<(), CloseReason> {
        if self.charge_buffered() {
            return Ok(());
        }
        let Some(call_id) = self.partial_call_id()? else {
            // It is refused when its header has arrived.
            let is_short = self.frames.buffered().len() <= HEADER_BYTES_FREE;
            return if is_short {
                Ok(())
            } else {
                Err(CloseReason("the budget of requests has no space for the rest of a request"))
            };
        };
        count(&self.thread.counters.calls, 1);
        self.reject(call_id, "hbase.ipc.server.max.callqueue.size");
        self.release_held();
        self.frames.skip_frame();
        Ok(())
    }

    /// Charges requests that wait until the connection is below its limits.
    fn charge_waiting(&mut self) -> Result<(), CloseReason> {
        if self.charge_buffered() {
            Ok(())
        } else {
            Err(CloseReason("the budget of requests has no space for requests that wait"))
        }
    }

    /// Releases the held budget: a request is complete, or dropped.
    pub(super) fn release_held(&mut self) {
        self.held.clear();
        self.shared.input.set(None);
    }

    /// Returns the call id of the frame at the front, if its header has arrived.
    fn partial_call_id(&self) -> Result<Option<u32>, CloseReason> {
        let mut rest = self.frames.partial_frame();
        let Ok(header_bytes) = crate::wire::take_varint(&mut rest) else { return Ok(None) };
        if header_bytes > REFUSED_HEADER_BYTES_MAX as u64 {
            return Err(CloseReason("a request header is too long"));
        }
        match rest.get(..length::index(header_bytes)) {
            Some(header) => Ok(Some(RequestHead::parse(header)?.call_id)),
            None => Ok(None),
        }
    }

    /// Answers a frame above the size limit when its header has arrived, then closes the
    /// connection.
    fn reject_too_long(&mut self, bytes: u32) -> Result<(), CloseReason> {
        let Some(call_id) = self.partial_call_id()? else { return self.charge_waiting() };
        let info = self.shared.info();
        let message = format!(
            "a request of {bytes} bytes from {} exceeds this server's hbase.ipc.max.request.size of {} bytes",
            info.peer.ip(),
            self.thread.config().request_bytes_max
        );
        let kind = if info.has_version(1, 3) { ErrorKind::RequestTooBig } else { ErrorKind::DoNotRetry };
        tracing::warn!(peer = %info.peer, message);
        self.answer_error(call_id, &HBaseError::new(kind, message));
        self.closing = true;
        Ok(())
    }

    fn answer_error(&self, call_id: u32, error: &HBaseError) {
        self.thread.metrics().count_exception(error.kind());
        self.shared.append_reply(|out| write_exception(out, call_id, error));
    }

    fn reject(&self, call_id: u32, limit: &str) {
        count(&self.thread.counters.calls_refused, 1);
        let server = &self.thread.config().server_name;
        let message = format!("{server} has as many calls in flight as {limit} allows; try again later");
        self.answer_error(call_id, &HBaseError::new(ErrorKind::CallQueueTooBig, message));
    }

    /// Returns the call of a frame; `None` if it was answered here.
    fn request(&mut self, mut frame: Bytes) -> Result<Option<(Call, Responder)>, CloseReason> {
        if self.shared.input.get().is_some() {
            self.release_held();
        }
        let frame_bytes = frame.len();
        let header = split_header(&mut frame)?;
        let head = RequestHead::parse(&header)?;
        count(&self.thread.counters.calls, 1);
        if let Err(limit) = self.thread.take_call(frame_bytes) {
            self.reject(head.call_id, limit);
            return Ok(None);
        }
        let mut reply = Responder::new(self.shared.clone(), head.call_id, frame_bytes, self.read_ticks);
        if trace::is_on() {
            reply.set_trace(trace_context(&header));
        }
        match self.call(&head, &header, frame, frame_bytes) {
            Ok(call) if call.is_abandoned(self.turn_at) => reply.silently_dropped(),
            Ok(call) => {
                reply.set_method(call.method);
                return Ok(Some((call, reply)));
            }
            Err(error) => {
                reply.send_error(&error);
            }
        }
        Ok(None)
    }

    fn call(
        &self,
        head: &RequestHead<'_>,
        header: &Bytes,
        body: Bytes,
        frame_bytes: usize,
    ) -> Result<Call, HBaseError> {
        if !head.request_param {
            return Err(HBaseError::do_not_retry("the request header does not announce a parameter"));
        }
        let (method, method_index) = self.service.method(head.method).ok_or_else(|| {
            let method = head.method;
            HBaseError::do_not_retry(format!("java.lang.UnsupportedOperationException: {method}"))
        })?;
        let (param, cells) = split_body(body, head.cell_block_bytes)?;
        Ok(Call {
            connection: self.shared.info().clone(),
            id: head.call_id,
            method,
            method_index,
            param,
            cells,
            priority: head.priority,
            received_at: self.read_at,
            deadline: self.deadline(head.timeout_ms),
            frame_bytes,
            header: header.clone(),
            decoded: RefCell::new(None),
        })
    }

    fn deadline(&self, timeout_ms: u32) -> Option<Instant> {
        let timeout =
            Duration::from_millis(u64::from(timeout_ms)).max(self.thread.config().client_timeout_min);
        (timeout_ms > 0).then(|| self.read_at + timeout)
    }
}
