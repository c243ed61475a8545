//! One connection: the handshake, then requests and replies, all on the thread that owns it.
//!
//! | module | contents |
//! |---|---|
//! | [`frame`] | the length-prefixed frames in the read buffer |
//! | [`input_budget`] | budgets and timeouts of incomplete requests |
//! | [`handshake`] | preamble and ConnectionHeader, and all refusals at that stage |
//! | [`batch`] | [`CallBatch`]: the calls of a turn, as the service takes them |
//! | [`serve`] | the loop: read, run the calls of a turn, write their replies at once |
//!
//! [`ConnectionShared`] is the part that responders share: the outbox and the counts of calls in
//! flight. [`DetachedReplies`] receives replies from other threads.
//!
//! Bounds: the read buffer holds at most one frame plus one read. Running calls, their request
//! bytes and unsent replies are limited per connection and per server (see
//! [`crate::RpcServerConfig`]). The server does not read from a connection that is over a limit,
//! which is backpressure for its client. An idle connection has no read buffer.

mod batch;
pub(crate) mod frame;
pub(crate) mod handshake;
pub(crate) mod input_budget;
mod serve;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

pub use batch::CallBatch;
use evenkeel_common::Budget;
use evenkeel_common::clock::{self, Ticks};
pub use input_budget::{InputBudget, ReceiveDeadline};
use parking_lot::Mutex;
pub(crate) use serve::run;

use crate::call::ConnectionInfo;
use crate::connection_report::{CALLS_OF_A_CONNECTION, ConnectionReport, RunningCall, user_text};
use crate::connection_thread::ConnectionThread;
use crate::gather_buffer::GatherBuffer;
use crate::metrics::RpcMetrics;

/// An outbox, or a reply of a detached call, is counted against the budget only above this size.
/// Small replies leave in the turn that made them, and touch no shared counter.
const UNCOUNTED_BYTES_MAX: usize = 64 * 1024;

/// Replies of detached calls on their way to the connection's thread; at most one per call in
/// flight.
pub(crate) struct DetachedReplies {
    state: Mutex<DetachedRepliesState>,
    unsent: Arc<Budget>,
    metrics: Arc<RpcMetrics>,
}

/// A connection without detached calls keeps the memory for this number of them.
const DETACHED_KEPT: usize = 64;

/// A call that another thread answers.
#[derive(Clone, Copy)]
pub(crate) struct DetachedCall {
    pub call_id: u32,
    pub method: &'static str,
    pub frame_bytes: usize,
    pub received_at: Ticks,
}

/// The reply of a detached call.
pub(crate) struct DetachedReply {
    call_id: u32,
    bytes: GatherBuffer,
    /// Size of the request.
    frame_bytes: usize,
    method: &'static str,
}

#[derive(Default)]
struct DetachedRepliesState {
    replies: Vec<DetachedReply>,
    waker: Option<Waker>,
}

impl DetachedReplies {
    fn new(unsent: Arc<Budget>, metrics: Arc<RpcMetrics>) -> Arc<Self> {
        Arc::new(DetachedReplies { state: Mutex::default(), unsent, metrics })
    }

    /// The metrics that count answered calls.
    pub fn metrics(&self) -> &RpcMetrics {
        &self.metrics
    }

    /// Returns the size limit of a reply.
    pub fn reply_bytes_max(&self) -> u64 {
        self.unsent.free().max(UNCOUNTED_BYTES_MAX as u64)
    }

    /// Charges the budget for a reply that will be [pushed](DetachedReplies::push), unless it is
    /// small. Returns false if it does not fit.
    pub fn try_charge(&self, reply: &GatherBuffer) -> bool {
        reply.len() <= UNCOUNTED_BYTES_MAX || self.unsent.acquire(reply.len() as u64)
    }

    /// Passes the reply of one call (empty if it needs none), already charged to the budget, to
    /// the connection and wakes it.
    pub fn push(&self, bytes: GatherBuffer, (call_id, frame_bytes, method): (u32, usize, &'static str)) {
        let waker = {
            let mut state = self.state.lock();
            state.replies.push(DetachedReply { call_id, bytes, frame_bytes, method });
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Releases the reply's budget; the outbox counts it from here on.
    fn release(&self, reply: &GatherBuffer) {
        if reply.len() > UNCOUNTED_BYTES_MAX {
            self.unsent.release(reply.len() as u64);
        }
    }

    /// Takes all replies. If there are none, returns false, and the next reply wakes `waker`.
    fn take(&self, waker: &Waker, into: &mut Vec<DetachedReply>) -> bool {
        let mut state = self.state.lock();
        if state.replies.is_empty() {
            if !state.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
                state.waker = Some(waker.clone());
            }
            return false;
        }
        std::mem::swap(&mut state.replies, into);
        true
    }
}

/// A request of the monitor to a connection; each value includes the ones before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MonitorRequest {
    Nothing,
    /// Close the connection if its client has closed it, although the server does not read from it.
    CheckPeer,
    /// Release the empty read buffer.
    ReleaseBuffer,
    /// Close the connection if it is idle, gracefully, so that the client can read all replies.
    CloseIdleGracefully,
    /// Close the connection immediately if it is idle.
    CloseIdle,
    /// Close the connection in any case.
    Close,
}

/// The part of a connection that its calls use. Lives on the connection's thread.
pub(crate) struct ConnectionShared {
    info: Arc<ConnectionInfo>,
    thread: Rc<ConnectionThread>,
    detached_replies: Arc<DetachedReplies>,
    outbox: RefCell<GatherBuffer>,
    /// Bytes of the outbox that are charged to the budget.
    counted_bytes: Cell<usize>,
    /// When the client last took bytes but not all of them.
    stalled_at: Cell<Instant>,
    /// Since when the client has not taken all replies.
    blocked_at: Cell<Option<Instant>>,
    /// The method of the last large reply.
    large_reply: Cell<&'static str>,
    /// The pending request of the monitor to the connection's task.
    requested: Cell<MonitorRequest>,
    /// When bytes last arrived.
    read_at: Cell<Instant>,
    /// When the monitor last found the connection in use.
    busy_at: Cell<Instant>,
    /// Progress of an incomplete or waiting request.
    input: Cell<Option<ReceiveDeadline>>,
    /// Whether the server reads from the connection: it is below its limits.
    reads: Cell<bool>,
    /// Whether bytes have arrived since the read buffer was last released.
    has_buffer: Cell<bool>,
    /// Budget of its ConnectionHeader beyond the uncounted size.
    header_bytes: Cell<usize>,
    /// Calls that have started and not ended.
    calls: Cell<usize>,
    /// Those of them that are detached, in the order in which they were.
    detached: RefCell<VecDeque<DetachedCall>>,
    /// Request bytes of the calls.
    call_bytes: Cell<usize>,
    /// Wakes the connection's task.
    waker: RefCell<Option<Waker>>,
    /// Set while the connection's task runs and needs no wake-up.
    running: Cell<bool>,
}

impl ConnectionShared {
    pub fn new(info: Arc<ConnectionInfo>, thread: Rc<ConnectionThread>) -> Rc<Self> {
        let now = clock::monotonic();
        Rc::new(ConnectionShared {
            info,
            detached_replies: DetachedReplies::new(thread.config().unsent.clone(), thread.metrics().clone()),
            thread,
            outbox: RefCell::new(GatherBuffer::new()),
            counted_bytes: Cell::new(0),
            stalled_at: Cell::new(now),
            blocked_at: Cell::new(None),
            large_reply: Cell::new(""),
            requested: Cell::new(MonitorRequest::Nothing),
            read_at: Cell::new(now),
            busy_at: Cell::new(now),
            input: Cell::new(None),
            reads: Cell::new(true),
            has_buffer: Cell::new(true),
            header_bytes: Cell::new(0),
            calls: Cell::new(0),
            detached: RefCell::default(),
            call_bytes: Cell::new(0),
            waker: RefCell::new(None),
            running: Cell::new(false),
        })
    }

    pub fn info(&self) -> &Arc<ConnectionInfo> {
        &self.info
    }

    pub fn thread(&self) -> &ConnectionThread {
        &self.thread
    }

    pub fn detached_replies(&self) -> &Arc<DetachedReplies> {
        &self.detached_replies
    }

    /// Counts a call that is already charged to the budgets.
    pub fn call_started(&self, frame_bytes: usize) {
        self.calls.set(self.calls.get() + 1);
        self.call_bytes.set(self.call_bytes.get() + frame_bytes);
    }

    pub fn call_detached(&self, call: DetachedCall) {
        self.detached.borrow_mut().push_back(call);
        // The task must poll the detached replies once to register its waker.
        self.wake();
    }

    fn has_detached(&self) -> bool {
        !self.detached.borrow().is_empty()
    }

    /// Removes a call whose reply has come. Replies come about in the order of their calls, so it
    /// is found near the front.
    fn detached_answered(&self, call_id: u32) {
        let mut detached = self.detached.borrow_mut();
        if let Some(at) = detached.iter().position(|call| call.call_id == call_id) {
            detached.remove(at);
        }
        if detached.is_empty() && detached.capacity() > DETACHED_KEPT {
            *detached = VecDeque::new();
        }
    }

    /// Releases the call's budgets, and wakes the connection, which may be waiting for that.
    pub fn call_ended(&self, frame_bytes: usize) {
        self.calls.set(self.calls.get().saturating_sub(1));
        self.call_bytes.set(self.call_bytes.get().saturating_sub(frame_bytes));
        self.thread.give_call(frame_bytes);
        self.wake();
    }

    /// Appends a reply to the outbox, unless the socket is closed. Returns the bytes appended.
    pub fn append_reply(&self, write: impl FnOnce(&mut GatherBuffer)) -> usize {
        if self.info.is_closed() {
            return 0;
        }
        let before = self.unsent_bytes();
        write(&mut self.outbox.borrow_mut());
        let unsent = self.unsent_bytes();
        if unsent > self.counted_bytes.get() + UNCOUNTED_BYTES_MAX {
            self.count_unsent(unsent);
        }
        unsent.saturating_sub(before)
    }

    /// Records the method of a large reply, which may fill the socket, for the ledger.
    #[inline]
    pub fn note_large_reply(&self, method: &'static str, bytes: usize) {
        if bytes > UNCOUNTED_BYTES_MAX {
            self.large_reply.set(method);
        }
    }

    /// Records whether the client has taken all replies, and reports the duration to the ledger if
    /// it did not at once.
    #[inline]
    fn note_flushed(&self, unsent: usize) {
        match self.blocked_at.get() {
            None if unsent == 0 => {}
            None => self.blocked_at.set(Some(clock::monotonic())),
            Some(since) if unsent == 0 => self.note_unblocked(since),
            Some(_) => {}
        }
    }

    #[cold]
    fn note_unblocked(&self, since: Instant) {
        self.blocked_at.set(None);
        self.thread.metrics().record_slow_reader(self.large_reply.get(), &self.info, since);
    }

    /// Charges the size of the outbox to the server's budget.
    fn count_unsent(&self, unsent: usize) {
        let before = self.counted_bytes.replace(unsent);
        if unsent > before {
            self.thread.config().unsent.add((unsent - before) as u64);
        } else if unsent < before {
            self.thread.config().unsent.release((before - unsent) as u64);
        }
    }

    /// Closes the connection if its client has not taken a byte since `before`. Returns the number
    /// of bytes that this will free.
    pub fn close_if_stalled(&self, before: Instant) -> u64 {
        let counted = self.counted_bytes.get();
        if counted == 0 || self.requested.get() == MonitorRequest::Close || self.stalled_at.get() > before {
            return 0;
        }
        self.request(MonitorRequest::Close);
        counted as u64
    }

    /// Requests something of the connection's task, unless more is already requested.
    pub fn request(&self, request: MonitorRequest) {
        if request > self.requested.get() {
            self.requested.set(request);
            self.wake();
        }
    }

    /// Records the length of an incomplete or waiting request.
    pub fn note_input(&self, bytes: usize, now: Instant) {
        let timeout = self.thread.config().receive_timeout;
        let progress = self.input.get().unwrap_or_else(|| ReceiveDeadline::begin(now, timeout));
        self.input.set(Some(progress.advance(bytes, now, timeout)));
    }

    /// Returns true if the recorded input takes too long. Time in which the server does not read
    /// from the connection does not count.
    pub fn has_late_input(&self, now: Instant, timeout: Duration, allowed: Duration) -> bool {
        let Some(progress) = self.input.get() else { return false };
        if !self.reads.get() {
            self.input.set(Some(ReceiveDeadline::begin(now, timeout)));
            return false;
        }
        progress.is_late(now, timeout, allowed)
    }

    /// Returns since when the connection is idle, or `None` if it is in use: a call runs, a reply
    /// or a request is in flight, or a scanner is open. Call this regularly, because it records
    /// when the connection was last in use.
    pub fn idle_since(&self, now: Instant) -> Option<Instant> {
        let is_busy = self.calls.get() > 0
            || self.unsent_bytes() > 0
            || self.input.get().is_some()
            || self.info.is_leased();
        if is_busy {
            self.busy_at.set(now);
            return None;
        }
        Some(self.read_at.get().max(self.busy_at.get()))
    }

    /// Bytes of the input budget that its ConnectionHeader takes.
    pub fn header_bytes(&self) -> usize {
        self.header_bytes.get()
    }

    /// A report of the connection for operators.
    pub fn report(&self, now: Instant) -> ConnectionReport {
        ConnectionReport {
            peer: self.info.peer,
            user: user_text(self.info.user.as_deref()),
            service: self.info.service,
            client_version: self.info.client_version,
            silent_for: self.silence(now),
            calls: self.calls.get(),
            call_bytes: self.call_bytes.get(),
            unsent_bytes: self.unsent_bytes(),
        }
    }

    /// Appends the detached calls for operators, up to `calls_max` in all.
    pub fn list_running(&self, to: &mut Vec<RunningCall>, calls_max: usize) {
        let calls_max = CALLS_OF_A_CONNECTION.min(calls_max.saturating_sub(to.len()));
        for call in self.detached.borrow().iter().take(calls_max) {
            let received_at = call.received_at.instant();
            to.push(RunningCall {
                peer: self.info.peer,
                user: user_text(self.info.user.as_deref()),
                service: self.info.service,
                method: call.method,
                request_bytes: call.frame_bytes,
                received_at,
                ran_for: clock::since(received_at),
            });
        }
    }

    /// Time since bytes last arrived.
    pub fn silence(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.read_at.get())
    }

    /// Returns true if the server reads from the connection, and so notices when the client closes
    /// it.
    pub fn is_read(&self) -> bool {
        self.reads.get()
    }

    /// Whether there may be an unused read buffer.
    pub fn has_buffer(&self) -> bool {
        self.has_buffer.get()
    }

    /// Makes the connection's task run, unless it is running.
    pub fn wake(&self) {
        if self.running.get() {
            return;
        }
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    fn unsent_bytes(&self) -> usize {
        self.outbox.borrow().len()
    }
}
