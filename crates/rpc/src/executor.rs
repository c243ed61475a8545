//! Handler threads for calls that cannot be answered on the connection's thread.
//!
//! Three classes with their own threads and queues, so that one kind of load cannot starve another: above all, user
//! load must not stand before hbase:meta. Queues are bounded; a full one is answered with CallQueueTooBigException.
//! Calls whose client has given up are dropped when they reach the front.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use evenkeel_common::{ErrorKind, HBaseError};
use parking_lot::{Condvar, Mutex};

use crate::call::Call;
use crate::responder::{DetachedResponder, Respond, Responder};

/// Which threads run a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallClass {
    /// Ordinary reads and writes.
    General,
    /// System tables (`hbase:*`), admin calls: priority above 10.
    Priority,
    /// Scans; run by the general threads when it has none of its own.
    Scan,
}

/// Threads and queue lengths.
#[derive(Debug, Clone)]
pub struct ExecutorConfig {
    /// How this server calls itself in messages.
    pub server_name: String,
    /// `hbase.regionserver.handler.count`.
    pub general_handlers: usize,
    /// `hbase.regionserver.metahandler.count`.
    pub priority_handlers: usize,
    /// Threads for scans alone (from `hbase.ipc.server.callqueue.scan.ratio`); 0: scans go to the general ones.
    pub scan_handlers: usize,
    /// Calls waiting for each class: `hbase.ipc.server.max.callqueue.length`; 0: ten for each of its handlers.
    pub queue_calls_max: usize,
}

impl Default for ExecutorConfig {
    fn default() -> Self {
        ExecutorConfig {
            server_name: String::new(),
            general_handlers: 30,
            priority_handlers: 20,
            scan_handlers: 0,
            queue_calls_max: 0,
        }
    }
}

/// Calls waiting for each handler thread when no queue length is configured.
const QUEUE_CALLS_FOR_EACH_HANDLER: usize = 10;

type Job = Box<dyn FnOnce(Call, DetachedResponder) + Send>;

struct Waiting {
    call: Call,
    reply: DetachedResponder,
    job: Job,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Waiting>,
    idle_handlers: usize,
    stopped: bool,
}

/// One class: a bounded queue and its condition.
struct Queue {
    state: Mutex<QueueState>,
    arrived: Condvar,
    calls_max: usize,
    handlers: usize,
}

/// See the module's documentation. Dropping it stops the threads after their running calls.
pub struct Executor {
    server_name: String,
    queues: [Arc<Queue>; 3],
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Executor {
    /// Starts the threads.
    ///
    /// # Errors
    /// When a thread cannot be started, or there would be none for general or priority calls (`InvalidInput`).
    pub fn start(config: &ExecutorConfig) -> io::Result<Executor> {
        if config.general_handlers == 0 || config.priority_handlers == 0 {
            let reason = "general and priority calls need a handler thread each";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let handlers = [config.general_handlers, config.priority_handlers, config.scan_handlers];
        let queues = handlers.map(|handlers| Arc::new(Queue::new(handlers, config.queue_calls_max)));
        let executor =
            Executor { server_name: config.server_name.clone(), queues, threads: Mutex::default() };
        for (queue, name) in executor.queues.iter().zip(["general", "priority", "scan"]) {
            for i in 0..queue.handlers {
                let own = queue.clone();
                let thread = std::thread::Builder::new().name(format!("{name}-{i}"));
                executor.threads.lock().push(thread.spawn(move || own.handle_calls())?);
            }
        }
        Ok(executor)
    }

    /// Runs `job` on a thread of `class`, or answers CallQueueTooBigException now if its queue is full.
    pub fn submit<F>(&self, class: CallClass, mut call: Call, reply: Responder, job: F)
    where
        F: FnOnce(Call, DetachedResponder) + Send + 'static,
    {
        let queue = self.queue(class);
        if queue.is_full() {
            let message = format!("the call queue of {} is full; try again later", self.server_name);
            return reply.send_error(&HBaseError::new(ErrorKind::CallQueueTooBig, message));
        }
        call.compact();
        queue.push(Waiting { call, reply: reply.detach(), job: Box::new(job) });
    }

    /// Calls waiting for a thread of `class`.
    pub fn queued(&self, class: CallClass) -> usize {
        self.queue(class).state.lock().waiting.len()
    }

    /// Threads of `class` that run a call.
    pub fn active(&self, class: CallClass) -> usize {
        let queue = self.queue(class);
        queue.handlers.saturating_sub(queue.state.lock().idle_handlers)
    }

    /// Takes no more calls, ends those that run, answers those that wait with `RegionServerStoppedException`.
    pub fn shutdown(&self) {
        for queue in &self.queues {
            queue.stop(&self.server_name);
        }
        let own = std::thread::current().id();
        for thread in self.threads.lock().drain(..).filter(|thread| thread.thread().id() != own) {
            if thread.join().is_err() {
                tracing::error!("a handler thread panicked");
            }
        }
    }

    fn queue(&self, class: CallClass) -> &Queue {
        let [general, priority, scan] = &self.queues;
        match class {
            CallClass::General => general,
            CallClass::Priority => priority,
            CallClass::Scan if scan.handlers > 0 => scan,
            CallClass::Scan => general,
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl Queue {
    fn new(handlers: usize, calls_max: usize) -> Self {
        let calls_max = if calls_max > 0 { calls_max } else { handlers * QUEUE_CALLS_FOR_EACH_HANDLER };
        Queue { state: Mutex::default(), arrived: Condvar::new(), calls_max, handlers }
    }

    fn is_full(&self) -> bool {
        let state = self.state.lock();
        state.stopped || state.waiting.len() >= self.calls_max
    }

    /// Appends a call. Several connection threads may have seen the last free place: each passes the limit by one call
    /// at most.
    fn push(&self, waiting: Waiting) {
        let mut state = self.state.lock();
        if state.stopped {
            // Stopped since it was looked at: dropping the responder answers, outside the lock.
            drop(state);
            return drop(waiting);
        }
        state.waiting.push_back(waiting);
        let wake = state.idle_handlers > 0;
        drop(state);
        if wake {
            self.arrived.notify_one();
        }
    }

    fn stop(&self, server_name: &str) {
        let waiting = {
            let mut state = self.state.lock();
            state.stopped = true;
            std::mem::take(&mut state.waiting)
        };
        self.arrived.notify_all();
        let message = format!("server {server_name} is stopping");
        let error = HBaseError::new(ErrorKind::RegionServerStopped, message);
        waiting.into_iter().for_each(|waiting| waiting.reply.send_error(&error));
    }

    fn handle_calls(&self) {
        while let Some(Waiting { call, reply, job }) = self.next() {
            if call.is_abandoned(Instant::now()) {
                reply.silently_dropped();
                continue;
            }
            let method = call.method;
            // A job that panics drops its responder, which answers.
            if catch_unwind(AssertUnwindSafe(|| job(call, reply))).is_err() {
                tracing::error!(method, "a handler panicked");
            }
        }
    }

    /// The next call; `None` once stopped.
    fn next(&self) -> Option<Waiting> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some(waiting) = state.waiting.pop_front() {
                return Some(waiting);
            }
            state.idle_handlers += 1;
            self.arrived.wait(&mut state);
            state.idle_handlers -= 1;
        }
    }
}
