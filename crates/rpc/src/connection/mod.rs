//! One connection: handshake, then calls in and answers out, all on the thread that owns it.
//!
//! | module | noun |
//! |---|---|
//! | [`frame`] | the length-prefixed frames in the read buffer |
//! | [`handshake`] | preamble and ConnectionHeader, with everything that can be refused there |
//! | [`serve`] | the loop: read, run the calls of a turn, write their answers at once |
//!
//! [`Outgoing`] is the part that responders share: the outbox and the counts of calls in flight. [`Inbox`] is where
//! other threads leave answers.
//!
//! Bounds: the read buffer holds one frame at most plus one read; running calls, their request bytes and unsent answers
//! are limited for each connection and for the server (see [`crate::RpcServerConfig`]). A connection over a limit is not
//! read from, so its client feels it as back-pressure.

pub(crate) mod frame;
pub(crate) mod handshake;
mod serve;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;

use parking_lot::Mutex;
pub(crate) use serve::run;

use crate::call::ConnectionInfo;
use crate::gather::Gather;
use crate::worker::Worker;

/// Answers of detached calls on their way to the connection's thread. As many as there are calls in flight, at most.
#[derive(Default)]
pub(crate) struct Inbox {
    state: Mutex<InboxState>,
}

#[derive(Default)]
struct InboxState {
    answers: Vec<(Gather, usize)>,
    waker: Option<Waker>,
}

impl Inbox {
    /// Leaves the answer of one call (empty if it needs none) and wakes the connection.
    pub fn push(&self, answer: Gather, frame_bytes: usize) {
        let waker = {
            let mut state = self.state.lock();
            state.answers.push((answer, frame_bytes));
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes what is there; leaves `waker` to be woken by the next answer if there is nothing.
    fn take(&self, waker: &Waker, into: &mut Vec<(Gather, usize)>) -> bool {
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

/// The connection's side that faces its calls. Lives on the connection's thread.
pub(crate) struct Outgoing {
    info: Arc<ConnectionInfo>,
    worker: Rc<Worker>,
    inbox: Arc<Inbox>,
    outbox: RefCell<Gather>,
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
        Rc::new(Outgoing {
            info,
            worker,
            inbox: Arc::default(),
            outbox: RefCell::new(Gather::new()),
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

    pub fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    /// Counts a call whose share of the budgets was taken before.
    pub fn call_started(&self, frame_bytes: usize) {
        self.calls.set(self.calls.get() + 1);
        self.call_bytes.set(self.call_bytes.get() + frame_bytes);
    }

    /// Counts further bytes of a call.
    pub fn call_grew(&self, bytes: usize) {
        self.call_bytes.set(self.call_bytes.get() + bytes);
    }

    pub fn call_detached(&self) {
        self.detached.set(self.detached.get() + 1);
        // The task must look at the inbox once to be woken by it.
        self.wake();
    }

    /// Gives the call's share of the budgets back, and wakes the connection if it may be waiting for that.
    pub fn call_ended(&self, frame_bytes: usize) {
        self.calls.set(self.calls.get().saturating_sub(1));
        self.call_bytes.set(self.call_bytes.get().saturating_sub(frame_bytes));
        self.worker.give_call(frame_bytes);
        self.wake();
    }

    /// Appends an answer to the outbox, unless the socket is gone.
    pub fn answer(&self, write: impl FnOnce(&mut Gather)) {
        if !self.info.is_closed() {
            write(&mut self.outbox.borrow_mut());
        }
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
