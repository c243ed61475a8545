//! The loop of an established connection.
//!
//! In one turn, the service runs the calls of the read buffer as one [`CallBatch`] (at most
//! [`CALLS_PER_TURN`]), then all replies are written at once, then the loop reads. A call whose
//! data is in memory is answered within its turn; other calls answer later, which wakes the loop.
//! After [`CALLS_PER_TURN`] calls, or [`TURN_NS_MAX`], the thread's other connections have their
//! turns: a client with large batches must not delay a client with small reads, however fast it
//! sends.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Instant;

use evenkeel_common::clock::{self, Ticks};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;

use super::batch::CallBatch;
use super::frame::FrameReader;
use super::handshake::{Established, handshake, linger};
use super::input_budget::{CONNECTION_HEADER_BYTES_MAX, InputCharge};
use super::{ConnectionShared, DetachedReply, MonitorRequest};
use crate::connection_thread::{ConnectionThread, OpenConnection, Runner, count};
use crate::gather_buffer::{GatherBuffer, SLICES_MAX};
use crate::service::ServiceEntry;
use crate::wire::Malformed;

/// Calls run before their replies are written and the thread's other connections get a turn.
const CALLS_PER_TURN: usize = 128;
/// Duration of a turn, after which the thread's other connections have theirs, whatever the calls
/// were.
const TURN_NS_MAX: u64 = 1_000_000;
/// Bytes written before the thread's other connections have a turn. A client that reads as fast as
/// the server writes could keep the thread busy for long.
const FLUSH_BYTES_MAX: usize = 1024 * 1024;
/// A connection whose client does not take its replies may hold one part in this number of the free
/// budget.
const UNSENT_DIVISOR: u64 = 8;

/// Serves one connection from its first byte until its last call has ended.
pub(crate) async fn run(mut stream: TcpStream, peer: SocketAddr, thread: Rc<ConnectionThread>) {
    let _open = OpenConnection::new(thread.clone());
    let request_bytes_max = thread.config().request_bytes_max;
    let mut frames = FrameReader::new(request_bytes_max.min(CONNECTION_HEADER_BYTES_MAX));
    let (id, pending) = thread.register_handshake();
    let established = tokio::select! {
        result = tokio::time::timeout(
            thread.config().handshake_timeout,
            handshake(&mut stream, &mut frames, &thread, peer),
        ) => result.ok().flatten(),
        () = pending.ended() => None,
        () = thread.drained() => None,
    };
    thread.unregister_handshake(id);
    let Some(established) = established else { return };
    frames.set_frame_bytes_max(request_bytes_max);
    let shared = ConnectionShared::new(established.info.clone(), thread.clone());
    shared.header_bytes.set(established.header.bytes());
    let id = thread.register(&shared);
    Connection::new(stream, frames, shared, thread.clone(), established).serve().await;
    thread.unregister(id);
}

/// The reason for the next iteration of the loop.
enum Event {
    /// There may be frames to run.
    Turn,
    /// The read brought this many bytes.
    Read(usize),
    /// All replies were sent.
    Done,
    /// The socket is closed.
    Gone,
}

/// The connection must be closed immediately.
pub(super) struct CloseReason(pub &'static str);

impl From<Malformed> for CloseReason {
    fn from(_: Malformed) -> Self {
        CloseReason("a request header cannot be read")
    }
}

/// An established connection.
pub(super) struct Connection {
    stream: TcpStream,
    pub(super) frames: FrameReader,
    pub(super) shared: Rc<ConnectionShared>,
    pub(super) thread: Rc<ConnectionThread>,
    pub(super) service: Arc<ServiceEntry>,
    /// This thread's runner for the service's batches.
    runner: Runner,
    /// When the last read returned.
    pub(super) read_at: Instant,
    /// The same in ticks.
    pub(super) read_ticks: Ticks,
    /// When the current turn began.
    pub(super) turn_at: Instant,
    /// The same in ticks.
    pub(super) turn_ticks: Ticks,
    /// Budget of incomplete or waiting requests.
    pub(super) held: InputCharge,
    /// Budget of the ConnectionHeader.
    _header: InputCharge,
    /// Whether the last turn ended before the read buffer was empty.
    pub(super) unfinished: bool,
    /// Calls run since other connections last had a turn.
    pub(super) calls_in_row: usize,
    /// When the first of them began.
    pub(super) row_began_at: Ticks,
    /// Whether reading has ended; the connection is closed once its replies are sent.
    pub(super) closing: bool,
    /// Swapped with the list of detached replies.
    replies: Vec<DetachedReply>,
}

impl Connection {
    fn new(
        stream: TcpStream,
        frames: FrameReader,
        shared: Rc<ConnectionShared>,
        thread: Rc<ConnectionThread>,
        established: Established,
    ) -> Self {
        let ticks = clock::ticks();
        let now = ticks.instant();
        Connection {
            stream,
            frames,
            shared,
            held: InputCharge::new(thread.clone()),
            _header: established.header,
            runner: thread.runner(&established.service),
            thread,
            service: established.service,
            read_at: now,
            read_ticks: ticks,
            turn_at: now,
            turn_ticks: ticks,
            // The handshake's last read may already have brought calls.
            unfinished: true,
            calls_in_row: 0,
            row_began_at: ticks,
            closing: false,
            replies: Vec::new(),
        }
    }

    async fn serve(mut self) {
        loop {
            match poll_fn(|cx| self.poll_event(cx)).await {
                Event::Turn => self.begin_turn(clock::ticks()),
                Event::Read(bytes) => {
                    count(&self.thread.counters.received_bytes, bytes as u64);
                    self.frames.received(bytes);
                    self.read_ticks = clock::ticks();
                    self.begin_turn(self.read_ticks);
                    self.read_at = self.turn_at;
                    self.shared.read_at.set(self.read_at);
                    self.shared.has_buffer.set(true);
                }
                Event::Done => {
                    linger(&mut self.stream).await;
                    break;
                }
                Event::Gone => break,
            }
            if let Err(CloseReason(reason)) = self.turn() {
                tracing::warn!(peer = %self.shared.info().peer, reason, "connection closed");
                break;
            }
            if self.turn_is_over() {
                self.write_and_yield().await;
            }
        }
        self.close().await;
    }

    fn begin_turn(&mut self, now: Ticks) {
        (self.turn_at, self.turn_ticks) = (now.instant(), now);
        self.thread.next_call_begins(now);
    }

    /// Sends the available replies and lets the thread's other connections run.
    async fn write_and_yield(&mut self) {
        self.calls_in_row = 0;
        // The next event finds a failed write again and handles it.
        let _ = poll_fn(|cx| Poll::Ready(self.poll_flush(cx))).await;
        tokio::task::yield_now().await;
    }

    /// Returns true if the thread's other connections must have a turn.
    pub(super) fn turn_is_over(&self) -> bool {
        self.calls_in_row >= CALLS_PER_TURN
            || (self.calls_in_row > 0
                && self.thread.call_began_at().ns_since(self.row_began_at) >= TURN_NS_MAX)
    }

    /// Returns true if another call may run.
    pub(super) fn has_capacity(&self) -> bool {
        let config = self.thread.config();
        let unsent = self.shared.unsent_bytes();
        !self.closing
            && !self.thread.is_draining()
            && self.shared.calls.get() < config.connection_calls_max
            && self.shared.call_bytes.get() < config.connection_inflight_bytes_max
            && self.thread.may_start_call(self.shared.calls.get(), self.shared.call_bytes.get())
            && unsent < config.connection_unsent_bytes_max
            && (unsent == 0 || (unsent as u64) < config.unsent.free() / UNSENT_DIVISOR)
    }

    /// Lets the service run the calls of the read buffer.
    fn turn(&mut self) -> Result<(), CloseReason> {
        self.shared.running.set(true);
        let runner = self.runner.clone();
        let mut calls = CallBatch::new(self);
        runner.borrow_mut().run(&mut calls);
        let outcome = calls.end();
        self.shared.running.set(false);
        outcome
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        take_replies(&self.shared, &mut self.replies, cx);
        if self.shared.requested.get() > MonitorRequest::Nothing
            && let Some(end) = self.handle_monitor_request()
        {
            return Poll::Ready(end);
        }
        if self.poll_flush(cx).is_err() {
            return Poll::Ready(Event::Gone);
        }
        let all_sent = self.shared.unsent_bytes() == 0;
        if all_sent && self.closing {
            return Poll::Ready(Event::Done);
        }
        if all_sent && self.thread.is_draining() && self.shared.calls.get() == 0 {
            return Poll::Ready(Event::Done);
        }
        let accepts = self.has_capacity();
        self.shared.reads.set(accepts);
        if !accepts {
            return Poll::Pending;
        }
        if self.unfinished {
            return Poll::Ready(Event::Turn);
        }
        if !self.frames.has_buffer() && self.stream.poll_read_ready(cx).is_pending() {
            return Poll::Pending;
        }
        let read = pin!(self.stream.read_buf(self.frames.spare_capacity()));
        match read.poll(cx) {
            Poll::Ready(Ok(0)) | Poll::Ready(Err(_)) => Poll::Ready(Event::Gone),
            Poll::Ready(Ok(bytes)) => Poll::Ready(Event::Read(bytes)),
            Poll::Pending => {
                self.calls_in_row = 0;
                if self.frames.has_large_buffer() && self.thread.has_many_connections() {
                    self.frames.release();
                }
                Poll::Pending
            }
        }
    }

    /// Handles the monitor's request, if that is still possible. Returns how the connection ends,
    /// or `None` if it continues.
    fn handle_monitor_request(&mut self) -> Option<Event> {
        let request = self.shared.requested.replace(MonitorRequest::Nothing);
        let is_unused = self.shared.idle_since(clock::monotonic()).is_some()
            && self.frames.buffered().is_empty()
            && !self.has_unread();
        match request {
            MonitorRequest::CheckPeer if self.is_closed_by_client() => return Some(Event::Gone),
            MonitorRequest::CheckPeer => return None,
            MonitorRequest::Close => return Some(Event::Gone),
            MonitorRequest::CloseIdle if is_unused => return Some(Event::Gone),
            MonitorRequest::CloseIdleGracefully if is_unused => return Some(Event::Done),
            _ => {}
        }
        self.frames.release();
        self.shared.has_buffer.set(false);
        None
    }

    /// Returns true if the socket has unread bytes or its end of stream.
    fn has_unread(&self) -> bool {
        SockRef::from(&self.stream).peek(&mut [MaybeUninit::uninit(); 1]).is_ok()
    }

    /// Returns true if the client has closed its side, whether or not there are unread bytes before
    /// the end of its stream.
    fn is_closed_by_client(&self) -> bool {
        let mut socket = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        let now = Timespec::default();
        matches!(poll(&mut socket, Some(&now)), Ok(1..))
    }

    /// Writes as much as the socket accepts.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let mut outbox = self.shared.outbox.borrow_mut();
        let before = outbox.len();
        while !outbox.is_empty() {
            if before.saturating_sub(outbox.len()) >= FLUSH_BYTES_MAX {
                cx.waker().wake_by_ref();
                break;
            }
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let filled = outbox.fill_slices(&mut slices);
            let slices = slices.get(..filled).unwrap_or_default();
            match Pin::new(&mut self.stream).poll_write_vectored(cx, slices) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(written)) => {
                    count(&self.thread.counters.writes, 1);
                    count(&self.thread.counters.sent_bytes, written as u64);
                    outbox.consume(written);
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => break,
            }
        }
        let unsent = outbox.len();
        drop(outbox);
        // An outbox that was not counted before has filled just now.
        if unsent > 0 && (unsent < before || self.shared.counted_bytes.get() == 0) {
            self.shared.stalled_at.set(clock::monotonic());
        }
        self.shared.count_unsent(unsent);
        self.shared.note_flushed(unsent);
        let config = self.thread.config();
        let is_too_much = unsent > 0 && config.unsent.used() > config.unsent_bytes_fatal;
        if is_too_much || unsent > config.connection_unsent_bytes_fatal {
            tracing::warn!(peer = %self.shared.info().peer, unsent, "client does not read its responses");
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    /// Closes the socket and waits for running calls, which hold their budgets until they end.
    async fn close(mut self) {
        self.shared.info().closed.store(true, Ordering::Relaxed);
        self.release_held();
        self.shared.count_unsent(0);
        self.shared.note_flushed(0);
        self.shared.outbox.replace(GatherBuffer::default());
        let Connection { stream, frames, shared, mut replies, .. } = self;
        drop((stream, frames));
        poll_fn(|cx| {
            take_replies(&shared, &mut replies, cx);
            if shared.calls.get() == 0 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Moves the replies of detached calls into the outbox, and registers this task to be woken by
/// later ones.
fn take_replies(shared: &ConnectionShared, replies: &mut Vec<DetachedReply>, cx: &mut Context<'_>) {
    if !shared.waker.borrow().as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
        shared.waker.replace(Some(cx.waker().clone()));
    }
    shared.running.set(true);
    while shared.has_detached() && shared.detached_replies.take(cx.waker(), replies) {
        for DetachedReply { call_id, bytes, frame_bytes, method } in replies.drain(..) {
            shared.detached_answered(call_id);
            shared.detached_replies.release(&bytes);
            let reply_bytes = shared.append_reply(|out| out.append(bytes));
            shared.note_large_reply(method, reply_bytes);
            shared.call_ended(frame_bytes);
        }
    }
    shared.running.set(false);
}
