//! One connection: handshake, then calls in and answers out, all on the thread that owns it.
//!
//! | module | noun |
//! |---|---|
//! | [`frame`] | the length-prefixed frames in the read buffer |
//! | [`input`] | what is held of input that is no whole request yet |
//! | [`handshake`] | preamble and ConnectionHeader, with everything that can be refused there |
//! | [`batch`] | [`CallBatch`]: the calls of a turn, as their service takes them |
//! | [`serve`] | the loop: read, run the calls of a turn, write their answers at once |
//!
//! [`Outgoing`] is the part that responders share: the outbox and the counts of calls in flight.
//! [`Inbox`] is where other threads leave answers.
//!
//! Bounds: the read buffer holds one frame at most plus one read; running calls, their request
//! bytes and unsent answers are limited for each connection and for the server (see
//! [`crate::RpcServerConfig`]). A connection over a limit is not read from, so its client feels it
//! as back-pressure. An idle connection has no read buffer.

mod batch;
pub(crate) mod frame;
pub(crate) mod handshake;
pub(crate) mod input;
mod serve;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

pub use batch::CallBatch;
use evenkeel_common::{Budget, clock};
pub use input::{InputBudget, Progress};
use parking_lot::Mutex;
pub(crate) use serve::run;

use crate::call::ConnectionInfo;
use crate::gather::Gather;
use crate::metrics::RpcMetrics;
use crate::report::{ConnectionReport, user_text};
use crate::worker::Worker;

/// Answers counted late: an outbox, or an answer in the inbox, takes from the budget when it holds
/// so much. Small answers leave in the turn that made them, and touch no shared count.
const UNCOUNTED_BYTES_MAX: usize = 64 * 1024;

/// Answers of detached calls on their way to the connection's thread. As many as there are calls in
/// flight, at most.
pub(crate) struct Inbox {
    state: Mutex<InboxState>,
    unsent: Arc<Budget>,
    metrics: Arc<RpcMetrics>,
}

/// The answer of a detached call.
pub(crate) struct Answer {
    bytes: Gather,
    /// Bytes of the request.
    frame_bytes: usize,
    method: &'static str,
}

#[derive(Default)]
struct InboxState {
    answers: Vec<Answer>,
    waker: Option<Waker>,
}

impl Inbox {
    fn new(unsent: Arc<Budget>, metrics: Arc<RpcMetrics>) -> Arc<Self> {
        Arc::new(Inbox { state: Mutex::default(), unsent, metrics })
    }

    /// Where calls that have their reply are counted.
    pub fn metrics(&self) -> &RpcMetrics {
        &self.metrics
    }

    /// The longest answer there is room for.
    pub fn answer_bytes_max(&self) -> u64 {
        self.unsent.free().max(UNCOUNTED_BYTES_MAX as u64)
    }

    /// Takes room for an answer that will be [left](Inbox::push) here, if there is room.
    pub fn has_taken_room(&self, answer: &Gather) -> bool {
        answer.len() <= UNCOUNTED_BYTES_MAX || self.unsent.take(answer.len() as u64)
    }

    /// Leaves the answer of one call (empty if it needs none), for which room was taken, and wakes
    /// the connection.
    pub fn push(&self, bytes: Gather, frame_bytes: usize, method: &'static str) {
        let waker = {
            let mut state = self.state.lock();
            state.answers.push(Answer { bytes, frame_bytes, method });
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// What is taken out is the outbox's to count.
    fn uncount(&self, answer: &Gather) {
        if answer.len() > UNCOUNTED_BYTES_MAX {
            self.unsent.give(answer.len() as u64);
        }
    }

    /// Takes what is there; leaves `waker` to be woken by the next answer if there is nothing.
    fn take(&self, waker: &Waker, into: &mut Vec<Answer>) -> bool {
        let mut state = self.state.lock();
        if state.answers.is_empty() {
            if !state.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
                state.waker = Some(waker.clone());
            }
            return false;
        }
        std::mem::swap(&mut state.answers, into);
        true
    }
}

/// What the watch may want of a connection, each more than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wanted {
    Nothing,
    /// Its empty read buffer given up.
    Buffer,
    /// Its end, if nobody uses it, and so that the client reads all that was sent.
    IdleEnd,
    /// Its place, if nobody uses it.
    IdlePlace,
    /// Its end, whatever it does.
    Gone,
}

/// The connection's side that faces its calls. Lives on the connection's thread.
pub(crate) struct Outgoing {
    info: Arc<ConnectionInfo>,
    worker: Rc<Worker>,
    inbox: Arc<Inbox>,
    outbox: RefCell<Gather>,
    /// Bytes of the outbox that were taken from the budget.
    counted_bytes: Cell<usize>,
    /// When the client last took bytes and left some.
    stalled_at: Cell<Instant>,
    /// Since when the client does not take all that there is.
    blocked_at: Cell<Option<Instant>>,
    /// The method of the last large reply.
    large_reply: Cell<&'static str>,
    /// What the watch wants of the connection's task.
    wanted: Cell<Wanted>,
    /// When bytes last came.
    read_at: Cell<Instant>,
    /// When the watch last found the connection in use.
    busy_at: Cell<Instant>,
    /// How input goes on that is no whole request yet, or that waits.
    input: Cell<Option<Progress>>,
    /// Whether the connection is read from: it is below its limits.
    reads: Cell<bool>,
    /// Whether bytes came since the read buffer was last given back.
    has_buffer: Cell<bool>,
    /// What its ConnectionHeader takes beyond the usual.
    header_bytes: Cell<usize>,
    /// Calls started and not ended.
    calls: Cell<usize>,
    /// Those of them that were detached.
    detached: Cell<usize>,
    /// Request bytes of the calls.
    call_bytes: Cell<usize>,
    /// Wakes the connection's task.
    waker: RefCell<Option<Waker>>,
    /// Set while the connection's own task runs: it needs no waking then.
    running: Cell<bool>,
}

impl Outgoing {
    pub fn new(info: Arc<ConnectionInfo>, worker: Rc<Worker>) -> Rc<Self> {
        let now = clock::monotonic();
        Rc::new(Outgoing {
            info,
            inbox: Inbox::new(worker.config().unsent.clone(), worker.metrics().clone()),
            worker,
            outbox: RefCell::new(Gather::new()),
            counted_bytes: Cell::new(0),
            stalled_at: Cell::new(now),
            blocked_at: Cell::new(None),
            large_reply: Cell::new(""),
            wanted: Cell::new(Wanted::Nothing),
            read_at: Cell::new(now),
            busy_at: Cell::new(now),
            input: Cell::new(None),
            reads: Cell::new(true),
            has_buffer: Cell::new(true),
            header_bytes: Cell::new(0),
            calls: Cell::new(0),
            detached: Cell::new(0),
            call_bytes: Cell::new(0),
            waker: RefCell::new(None),
            running: Cell::new(false),
        })
    }

    pub fn info(&self) -> &Arc<ConnectionInfo> {
        &self.info
    }

    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    pub fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    /// Counts a call whose share of the budgets was taken before.
    pub fn call_started(&self, frame_bytes: usize) {
        self.calls.set(self.calls.get() + 1);
        self.call_bytes.set(self.call_bytes.get() + frame_bytes);
    }

    pub fn call_detached(&self) {
        self.detached.set(self.detached.get() + 1);
        // The task must look at the inbox once to be woken by it.
        self.wake();
    }

    /// Gives the call's share of the budgets back, and wakes the connection if it may be waiting
    /// for that.
    pub fn call_ended(&self, frame_bytes: usize) {
        self.calls.set(self.calls.get().saturating_sub(1));
        self.call_bytes.set(self.call_bytes.get().saturating_sub(frame_bytes));
        self.worker.give_call(frame_bytes);
        self.wake();
    }

    /// Appends an answer to the outbox, unless the socket is gone. Returns its bytes.
    pub fn answer(&self, write: impl FnOnce(&mut Gather)) -> usize {
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

    /// Remembers the method of a reply that may fill the socket, for the ledger.
    #[inline]
    pub fn note_large_reply(&self, method: &'static str, bytes: usize) {
        if bytes > UNCOUNTED_BYTES_MAX {
            self.large_reply.set(method);
        }
    }

    /// Notes whether the client has taken all that there was, and tells the ledger how long it took
    /// if it did not at once.
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
        self.worker.metrics().record_slow_reader(self.large_reply.get(), &self.info, since);
    }

    /// Makes the server's budget know what the outbox holds.
    fn count_unsent(&self, unsent: usize) {
        let before = self.counted_bytes.replace(unsent);
        if unsent > before {
            self.worker.config().unsent.add((unsent - before) as u64);
        } else if unsent < before {
            self.worker.config().unsent.give((before - unsent) as u64);
        }
    }

    /// Ends the connection when its client has not taken a byte since `before`. Returns the bytes
    /// that frees, soon.
    pub fn abandon_if_stalled(&self, before: Instant) -> u64 {
        let counted = self.counted_bytes.get();
        if counted == 0 || self.wanted.get() == Wanted::Gone || self.stalled_at.get() > before {
            return 0;
        }
        self.want(Wanted::Gone);
        counted as u64
    }

    /// Asks the connection's task for something, unless more was asked for already.
    pub fn want(&self, wanted: Wanted) {
        if wanted > self.wanted.get() {
            self.wanted.set(wanted);
            self.wake();
        }
    }

    /// Notes input that is no whole request yet, or that waits, and how long it is.
    pub fn note_input(&self, bytes: usize, now: Instant) {
        let timeout = self.worker.config().receive_timeout;
        let progress = self.input.get().unwrap_or_else(|| Progress::begin(now, timeout));
        self.input.set(Some(progress.with(bytes, now, timeout)));
    }

    /// Whether the input noted takes too long. Time in which the connection is not read from is not
    /// the client's.
    pub fn has_late_input(&self, now: Instant, timeout: Duration, allowed: Duration) -> bool {
        let Some(progress) = self.input.get() else { return false };
        if !self.reads.get() {
            self.input.set(Some(Progress::begin(now, timeout)));
            return false;
        }
        progress.is_late(now, timeout, allowed)
    }

    /// Since when nobody uses the connection; `None` if somebody does: a call runs, a reply or a
    /// request is under way, a scanner is open. To be asked now and then, for it notes when that
    /// was so.
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

    /// What its ConnectionHeader takes of the budget for input.
    pub fn header_bytes(&self) -> usize {
        self.header_bytes.get()
    }

    /// The connection as an operator sees it.
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

    /// Time since bytes last came.
    pub fn silence(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.read_at.get())
    }

    /// Whether there may be a read buffer that is not in use.
    pub fn has_buffer(&self) -> bool {
        self.has_buffer.get()
    }

    /// Makes the connection's task run, if it does not already.
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
