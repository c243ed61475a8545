//! One class of calls: a bounded queue, and the threads that serve it.
//!
//! Connections with queued calls take turns ([`fair_queue`](super::fair_queue)), so one client
//! cannot delay the calls of others by a long queue of its own.
//!
//! A class may have *CPU slots*: a limited number of its calls, one per core, compute at once, in
//! order of arrival. A call of two milliseconds then waits only for the calls before it. With one
//! runnable thread per call, the kernel would interleave them all, and some replies would be late
//! by a hundred milliseconds. Four rules:
//!
//! * A thread takes a call from the queue when a slot is free, and the next call when that one
//!   ends. As long as no call waits for a disk, one thread per core does all the work, without
//!   wake-ups.
//! * A call that waits for a disk releases its slot, and continues immediately after the wait, even
//!   if this exceeds the limit for a while: it may hold a lock that other calls wait for.
//! * A call that waited for something that many calls wait for (a row lock, a commit of the log)
//!   waits for a slot, ahead of the whole queue ([`Queue::with_resume_queue`]). If all these
//!   calls continued at once, they would take the cores from the connection threads and the log's
//!   threads. The call may hold a lock that the computing calls wait for, so after a bounded wait
//!   it continues without a slot.
//! * A call that has computed for a whole time slice, or that exceeds the limit, goes to the end of
//!   the queue if other calls wait, at a point where it holds no lock. Its thread sleeps until the
//!   call has a slot again.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use evenkeel_common::clock::{self, Ticks};
use evenkeel_common::cpu_slot::{self, CpuSlot};
use evenkeel_common::{ErrorKind, HBaseError};
use evenkeel_metrics::waits::{self, Cause};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::fair_queue::{FairQueue, Peer};
use crate::call::Call;
use crate::responder::{DetachedResponder, Respond};

/// Queue capacity per handler thread when no queue length is configured.
const CALLS_PER_HANDLER: usize = 10;

/// A call that has not started.
pub(super) struct QueuedCall {
    pub call: Call,
    pub reply: DetachedResponder,
    pub job: Box<dyn FnOnce(Call, DetachedResponder) + Send>,
}

/// The continuation of a call that started elsewhere.
pub(super) type Continuation = Box<dyn FnOnce() + Send>;

/// A continuation that waits for a thread.
struct QueuedJob {
    job: Continuation,
    queued_at: Instant,
}

/// What a handler thread runs next.
enum HandlerTask {
    Call(Box<QueuedCall>),
    Job(QueuedJob),
}

/// An entry of the queue.
enum QueueEntry {
    Call(Box<QueuedCall>),
    /// Does not count towards the capacity.
    Job(QueuedJob),
    /// A thread whose call yielded.
    Thread(Arc<ParkedThread>),
}

/// A thread that waits until its call has a slot again.
struct ParkedThread {
    thread: Thread,
    is_woken: AtomicBool,
}

impl ParkedThread {
    fn wake(&self) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }

    fn sleep(&self) {
        while !self.is_woken.load(Ordering::Acquire) {
            std::thread::park();
        }
    }

    /// Sleeps for `time` at most. Returns true if it was woken.
    fn sleep_for(&self, time: Duration) -> bool {
        let deadline = clock::monotonic() + time;
        loop {
            if self.is_woken.load(Ordering::Acquire) {
                return true;
            }
            let left = deadline.saturating_duration_since(clock::monotonic());
            if left.is_zero() {
                return false;
            }
            std::thread::park_timeout(left);
        }
    }
}

#[derive(Default)]
struct State {
    queue: FairQueue<QueueEntry>,
    /// Threads whose calls wait for a slot after another wait. They go ahead of `queue`.
    resuming: VecDeque<Arc<ParkedThread>>,
    /// Calls in `queue` that have not started.
    calls: usize,
    idle_handlers: usize,
    /// Calls that compute.
    running: usize,
    stopped: bool,
}

impl State {
    /// Returns true if the next free slot goes to a thread whose call has started.
    fn next_is_thread(&self) -> bool {
        !self.resuming.is_empty() || matches!(self.queue.front(), Some(QueueEntry::Thread(_)))
    }
}

/// A queue and its CPU slots; see the module's documentation.
pub(super) struct Queue {
    state: Mutex<State>,
    arrived: Condvar,
    calls_max: usize,
    handlers: usize,
    /// Limit of calls that compute at once.
    running_max: usize,
    time_slice: Duration,
    /// How long a call waits for a slot after another wait; `None`: it continues immediately.
    resume_wait_max: Option<Duration>,
    /// Whether anything is queued; a hint, so that a call can check it often without the lock.
    has_queued: AtomicBool,
}

impl Queue {
    /// Returns a queue for `handlers` threads, each of which must run [`Queue::handle_calls`]. A
    /// `calls_max` of 0 stands for ten calls per thread.
    pub fn new(handlers: usize, calls_max: usize) -> Self {
        let calls_max = if calls_max > 0 { calls_max } else { handlers * CALLS_PER_HANDLER };
        Queue {
            state: Mutex::default(),
            arrived: Condvar::new(),
            calls_max,
            handlers,
            running_max: usize::MAX,
            time_slice: Duration::MAX,
            resume_wait_max: None,
            has_queued: AtomicBool::new(false),
        }
    }

    /// Limits the calls that compute at once to `at_once`. Each yields after `time_slice` if others
    /// wait.
    pub fn with_cpu_slots(self, at_once: usize, time_slice: Duration) -> Self {
        Queue { running_max: at_once, time_slice, ..self }
    }

    /// Makes a call wait for a slot after a wait that many calls share, for `resume_wait_max` at
    /// most; then it continues without a slot.
    pub fn with_resume_queue(self, resume_wait_max: Duration) -> Self {
        Queue { resume_wait_max: Some(resume_wait_max), ..self }
    }

    pub fn handlers(&self) -> usize {
        self.handlers
    }

    /// Calls that have not started.
    pub fn waiting(&self) -> usize {
        self.state.lock().calls
    }

    /// Threads that run a call.
    pub fn active(&self) -> usize {
        self.handlers.saturating_sub(self.state.lock().idle_handlers)
    }

    pub fn is_full(&self) -> bool {
        let state = self.state.lock();
        state.stopped || state.calls >= self.calls_max
    }

    /// Appends a call. The capacity is checked before ([`Queue::is_full`]), without the lock in
    /// between, so each connection thread can exceed it by one call at most.
    pub fn push(&self, waiting: QueuedCall) {
        let mut state = self.state.lock();
        if state.stopped {
            // Stopped after the caller's check. Dropping the responder answers, outside the lock.
            drop(state);
            return drop(waiting);
        }
        state.calls += 1;
        let peer = Some(waiting.call.connection.peer);
        self.append(&mut state, peer, QueueEntry::Call(Box::new(waiting)));
        self.wake_next(state);
    }

    /// Appends the rest of a call, or drops it if the queue is stopped.
    pub fn push_job(&self, peer: Peer, job: Continuation) {
        let mut state = self.state.lock();
        if state.stopped {
            drop(state);
            return drop(job);
        }
        let job = QueuedJob { job, queued_at: clock::monotonic() };
        self.append(&mut state, peer, QueueEntry::Job(job));
        self.wake_next(state);
    }

    /// Accepts no more calls and answers those that have not started. All others finish without
    /// slots.
    pub fn stop(&self, server_name: &str) {
        let (resuming, queued) = {
            let mut state = self.state.lock();
            state.stopped = true;
            state.calls = 0;
            let queued: Vec<_> = std::mem::take(&mut state.queue).collect();
            let asleep = queued.iter().filter(|next| matches!(next, QueueEntry::Thread(_))).count();
            state.running += asleep + state.resuming.len();
            self.has_queued.store(false, Ordering::Relaxed);
            (std::mem::take(&mut state.resuming), queued)
        };
        resuming.iter().for_each(|sleeper| sleeper.wake());
        self.arrived.notify_all();
        let message = format!("server {server_name} is stopping");
        let error = HBaseError::new(ErrorKind::RegionServerStopped, message);
        for next in queued {
            match next {
                QueueEntry::Call(waiting) => waiting.reply.send_error(&error),
                QueueEntry::Job(job) => drop(job),
                QueueEntry::Thread(sleeper) => sleeper.wake(),
            }
        }
    }

    /// Runs calls until the queue is stopped. This is the main function of a handler thread.
    pub fn handle_calls(self: Arc<Self>) {
        let slot = Rc::new(HandlerSlot {
            queue: Arc::clone(&self),
            began_at: Cell::new(clock::monotonic()),
            peer: Cell::new(None),
        });
        if self.running_max < usize::MAX {
            cpu_slot::install(Rc::clone(&slot) as Rc<dyn CpuSlot>);
        }
        let mut next = self.next(self.state.lock());
        while let Some((peer, task)) = next {
            let now = clock::monotonic();
            slot.began_at.set(now);
            slot.peer.set(peer);
            match task {
                HandlerTask::Call(waiting) => run(*waiting, now),
                HandlerTask::Job(job) => run_job(job, now),
            }
            let mut state = self.state.lock();
            state.running -= 1;
            next = self.next(state);
        }
    }

    /// Waits for the next call; `None` if the queue is stopped.
    fn next(&self, mut state: MutexGuard<'_, State>) -> Option<(Peer, HandlerTask)> {
        loop {
            if state.stopped {
                return None;
            }
            match self.take(&mut state) {
                Some((peer, QueueEntry::Call(waiting))) => return Some((peer, HandlerTask::Call(waiting))),
                Some((peer, QueueEntry::Job(job))) => return Some((peer, HandlerTask::Job(job))),
                Some((_, QueueEntry::Thread(sleeper))) => sleeper.wake(),
                None => {
                    state.idle_handlers += 1;
                    self.arrived.wait(&mut state);
                    state.idle_handlers -= 1;
                }
            }
        }
    }

    /// Takes the next entry, with a slot, if one is free.
    fn take(&self, state: &mut State) -> Option<(Peer, QueueEntry)> {
        if state.running >= self.running_max {
            return None;
        }
        let next = match state.resuming.pop_front() {
            Some(sleeper) => (None, QueueEntry::Thread(sleeper)),
            None => state.queue.pop()?,
        };
        state.running += 1;
        state.calls -= usize::from(matches!(next.1, QueueEntry::Call(_)));
        self.note_line(state);
        Some(next)
    }

    fn note_line(&self, state: &State) {
        self.has_queued.store(!state.queue.is_empty() || !state.resuming.is_empty(), Ordering::Relaxed);
    }

    fn append(&self, state: &mut State, peer: Peer, next: QueueEntry) {
        state.queue.push(peer, next);
        self.has_queued.store(true, Ordering::Relaxed);
    }

    /// Waits for a slot for `wait_max` at most, then continues without one. On return the call is
    /// counted in `running`.
    fn resume(&self, wait_max: Duration) {
        let mut state = self.state.lock();
        if state.stopped || state.running < self.running_max {
            state.running += 1;
            return;
        }
        let sleeper =
            Arc::new(ParkedThread { thread: std::thread::current(), is_woken: AtomicBool::new(false) });
        state.resuming.push_back(Arc::clone(&sleeper));
        self.has_queued.store(true, Ordering::Relaxed);
        drop(state);
        if !sleeper.sleep_for(wait_max) {
            let mut state = self.state.lock();
            // If the entry is not in the list, the thread that took it out has counted it.
            if let Some(at) = state.resuming.iter().position(|other| Arc::ptr_eq(other, &sleeper)) {
                state.resuming.remove(at);
                state.running += 1;
                self.note_line(&state);
            }
        }
    }

    /// If a slot is free, makes sure that a thread is awake for the first entry.
    fn wake_next(&self, mut state: MutexGuard<'_, State>) {
        if state.running >= self.running_max {
            return;
        }
        match state.queue.front() {
            _ if state.next_is_thread() => {
                if let Some((_, QueueEntry::Thread(sleeper))) = self.take(&mut state) {
                    sleeper.wake();
                }
            }
            Some(QueueEntry::Call(_) | QueueEntry::Job(_)) if state.idle_handlers > 0 => {
                drop(state);
                self.arrived.notify_one();
            }
            _ => {}
        }
    }
}

fn run(QueuedCall { call, mut reply, job }: QueuedCall, now: Instant) {
    reply.begin(Ticks::of(now));
    if call.is_abandoned(now) {
        return reply.silently_dropped();
    }
    let method = call.method;
    // If the job panics, its responder is dropped, which answers.
    if catch_unwind(AssertUnwindSafe(|| job(call, reply))).is_err() {
        tracing::error!(method, "a handler panicked");
    }
}

fn run_job(QueuedJob { job, queued_at }: QueuedJob, now: Instant) {
    // Waits that another call left on this thread do not belong to this one.
    waits::take();
    waits::note(Cause::Thread, now.saturating_duration_since(queued_at));
    // If the job panics, its responder is dropped, which answers.
    if catch_unwind(AssertUnwindSafe(job)).is_err() {
        tracing::error!("a handler panicked");
    }
}

/// The CPU slot of one handler thread.
struct HandlerSlot {
    queue: Arc<Queue>,
    /// When the current time slice began.
    began_at: Cell<Instant>,
    /// The connection of the current call.
    peer: Cell<Peer>,
}

impl CpuSlot for HandlerSlot {
    fn yield_if_due(&self) {
        let queue = &*self.queue;
        if !queue.has_queued.load(Ordering::Relaxed) {
            return;
        }
        let mut state = queue.state.lock();
        let is_due =
            state.running > queue.running_max || clock::since(self.began_at.get()) >= queue.time_slice;
        // A call at the front needs an idle thread; without one it waits for the next thread that
        // finishes.
        let has_heir = state.next_is_thread() || (!state.queue.is_empty() && state.idle_handlers > 0);
        if !is_due || !has_heir {
            return;
        }
        let sleeper =
            Arc::new(ParkedThread { thread: std::thread::current(), is_woken: AtomicBool::new(false) });
        queue.append(&mut state, self.peer.get(), QueueEntry::Thread(Arc::clone(&sleeper)));
        state.running -= 1;
        queue.wake_next(state);
        waits::time(Cause::Thread, || sleeper.sleep());
        self.began_at.set(clock::monotonic());
    }

    fn release(&self) {
        let mut state = self.queue.state.lock();
        state.running -= 1;
        self.queue.wake_next(state);
    }

    fn reacquire_now(&self) {
        self.queue.state.lock().running += 1;
    }

    fn requeue(&self) {
        let Some(wait_max) = self.queue.resume_wait_max else { return self.reacquire_now() };
        self.queue.resume(wait_max);
        self.began_at.set(clock::monotonic());
    }
}
