//! Handler threads for calls that cannot be answered on the connection's thread.
//!
//! Six classes with their own threads and queues, so that one kind of load cannot starve another:
//! above all, user load must not stand before hbase:meta, nor admin calls that wait for a disk, and
//! reads not behind writes that wait for a lock or the log. Queues are bounded; a full one is
//! answered with CallQueueTooBigException. Calls whose client has given up are dropped when they
//! reach the front. Scans, long writes and writes that wait take turns, so that they do not take
//! the cores from the threads of connections and of the log: see [`queue`]. Reads that wait for a
//! disk (General) do not: with turns, more replies are in the making at once.
//!
//! The rest of a call that began elsewhere is a [job](Executor::run_rest). It waits in the same
//! queue as calls, and is never refused: it is of a call in flight, of which there are as many as
//! the connections' budgets allow.

mod queue;

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use evenkeel_common::thread::{Supervisor, spawn_essential};
use evenkeel_common::{ErrorKind, HBaseError};
use parking_lot::Mutex;

use crate::call::Call;
use crate::responder::{DetachedResponder, Respond, Responder};
use queue::{Queue, QueuedCall};

/// Which threads run a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallClass {
    /// Ordinary reads that wait for a disk.
    General,
    /// System tables (`hbase:*`), admin calls that do not wait: priority above 10.
    Priority,
    /// Admin calls that wait: for a disk, or for the lock of a table.
    Admin,
    /// Scans, and what else computes for long: large requests and replies, costly filters. As a
    /// rule it waits for nothing but a disk that it reads.
    Scan,
    /// Writes too long to be decoded on a connection's thread. It waits for nothing.
    Decode,
    /// Writes that wait: for a row's lock, for earlier writes to be durable, for room in the log.
    Write,
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
    /// Threads for scans.
    pub scan_handlers: usize,
    /// Threads for writes that wait.
    pub write_handlers: usize,
    /// Threads for admin calls that wait.
    pub admin_handlers: usize,
    /// Threads for long writes.
    pub decode_handlers: usize,
    /// Calls of a class that compute at once, where the class takes turns. The others wait in line,
    /// for a disk or for a lock. As many as there are cores.
    pub computing_at_once: usize,
    /// How long such a call computes before others that wait go first.
    pub turn: Duration,
    /// How long a write that waited for a lock or the log waits for a turn before it goes on
    /// without one.
    pub resume_wait_max: Duration,
    /// Calls waiting for each class: `hbase.ipc.server.max.callqueue.length`; 0: ten for each of
    /// its handlers.
    pub queue_calls_max: usize,
    /// Hears of the death of a handler thread.
    pub supervisor: Supervisor,
}

impl Default for ExecutorConfig {
    fn default() -> Self {
        ExecutorConfig {
            server_name: String::new(),
            general_handlers: 30,
            priority_handlers: 20,
            scan_handlers: 30,
            write_handlers: 30,
            admin_handlers: 10,
            decode_handlers: 10,
            computing_at_once: std::thread::available_parallelism().map_or(1, usize::from),
            turn: Duration::from_millis(5),
            resume_wait_max: Duration::from_millis(100),
            queue_calls_max: 0,
            supervisor: Supervisor::log_only(),
        }
    }
}

/// See the module's documentation. Dropping it stops the threads after their running calls.
pub struct Executor {
    server_name: String,
    queues: [Arc<Queue>; 6],
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Executor {
    /// Starts the threads.
    ///
    /// # Errors
    /// When a thread cannot be started, or a class would have none (`InvalidInput`).
    pub fn start(config: &ExecutorConfig) -> io::Result<Executor> {
        let handlers = [
            config.general_handlers,
            config.priority_handlers,
            config.scan_handlers,
            config.write_handlers,
            config.admin_handlers,
            config.decode_handlers,
        ];
        if handlers.contains(&0) || config.computing_at_once == 0 {
            let reason = "calls of each class need a handler thread";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let [general, priority, scan, write, admin, decode] =
            handlers.map(|handlers| Queue::new(handlers, config.queue_calls_max));
        let [scan, write, decode] =
            [scan, write, decode].map(|queue| queue.with_turns(config.computing_at_once, config.turn));
        let write = write.with_line_after_waits(config.resume_wait_max);
        let queues = [general, priority, scan, write, admin, decode].map(Arc::new);
        let executor =
            Executor { server_name: config.server_name.clone(), queues, threads: Mutex::default() };
        let names = ["general", "priority", "scan", "write", "admin", "decode"];
        for (queue, name) in executor.queues.iter().zip(names) {
            for i in 0..queue.handlers() {
                let own = queue.clone();
                let handle_calls = move || {
                    own.handle_calls();
                    Ok(())
                };
                let thread = spawn_essential(format!("{name}-{i}"), &config.supervisor, handle_calls)?;
                executor.threads.lock().push(thread);
            }
        }
        Ok(executor)
    }

    /// Runs `job` on a thread of `class`, or answers CallQueueTooBigException now if its queue is
    /// full.
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
        queue.push(QueuedCall { call, reply: reply.detach(), job: Box::new(job) });
    }

    /// Runs the rest of a call that began elsewhere, on a thread of `class`. Never refuses it. One
    /// that panics, or that is dropped because the executor stops, answers as its responder is
    /// dropped.
    pub fn run_rest(&self, class: CallClass, job: impl FnOnce() + Send + 'static) {
        self.queue(class).push_job(Box::new(job));
    }

    /// Calls waiting for a thread of `class`.
    pub fn queued(&self, class: CallClass) -> usize {
        self.queue(class).waiting()
    }

    /// Threads of `class` that run a call, those whose call waits for its turn included.
    pub fn active(&self, class: CallClass) -> usize {
        self.queue(class).active()
    }

    /// Takes no more calls, ends those that run, answers those that wait with
    /// `RegionServerStoppedException`.
    pub fn shutdown(&self) {
        for queue in &self.queues {
            queue.stop(&self.server_name);
        }
        let own = std::thread::current().id();
        for thread in self.threads.lock().drain(..).filter(|thread| thread.thread().id() != own) {
            drop(thread.join());
        }
    }

    fn queue(&self, class: CallClass) -> &Queue {
        let [general, priority, scan, write, admin, decode] = &self.queues;
        match class {
            CallClass::General => general,
            CallClass::Priority => priority,
            CallClass::Scan => scan,
            CallClass::Write => write,
            CallClass::Admin => admin,
            CallClass::Decode => decode,
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.shutdown();
    }
}
