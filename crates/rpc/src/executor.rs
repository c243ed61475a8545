//! Handler threads for calls that cannot be answered on the connection's thread.
//!
//! There are seven classes, each with its own threads and queue, so that one kind of load cannot
//! starve another. Above all, user load must not delay calls to hbase:meta, nor admin calls that
//! wait for a disk, and reads must not queue behind writes that wait for a lock or the log.
//! Connections take turns in each queue ([`fair_queue`]). Queues are bounded: if one is full, the
//! call is answered with CallQueueTooBigException. Calls whose client has timed out are dropped
//! when they reach the front. Scans and writes have CPU slots, so that they do not take the cores
//! from the connection threads and the log's threads: see [`queue`]. Reads that wait for a disk
//! (General) have no slots: with slots, more replies would be under construction at the same time.
//!
//! The rest of a call that started elsewhere is a [continuation](Executor::submit_continuation). It
//! waits in the same queue as calls, and is never refused: the call is already in flight, and the
//! connections' budgets limit the number of those.

mod fair_queue;
mod queue;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use evenkeel_common::thread::{Supervisor, spawn_essential};
use evenkeel_common::{ErrorKind, HBaseError};
use parking_lot::Mutex;

use crate::call::Call;
use crate::responder::{DetachedResponder, Respond, Responder};
use queue::{Queue, QueuedCall};

/// The class of a call, which selects its threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallClass {
    /// Ordinary reads that wait for a disk.
    General,
    /// Calls to system tables (`hbase:*`) that do not compute for long, and admin calls that do not
    /// wait: priority above 10.
    Priority,
    /// Admin calls that wait for a disk or for a table lock.
    Admin,
    /// Scans and other long computations: aggregations, large requests and replies, costly filters.
    /// As a rule they wait only for disk reads.
    Scan,
    /// Writes too long to be decoded on a connection's thread. They do not wait.
    Decode,
    /// Writes that wait: for a row lock, but not for long, for earlier writes to be durable, for
    /// space in the log. They compute little.
    Write,
    /// Writes that may compute or wait for long, so that they do not take all threads of Write:
    /// with filters or other reads of whole rows, with coprocessor services, and those whose row
    /// stays locked.
    LongWrite,
}

/// Threads and queue lengths.
#[derive(Debug, Clone)]
pub struct ExecutorConfig {
    /// The name of this server in messages.
    pub server_name: String,
    /// `hbase.regionserver.handler.count`.
    pub general_handlers: usize,
    /// `hbase.regionserver.metahandler.count`.
    pub priority_handlers: usize,
    /// Threads for scans.
    pub scan_handlers: usize,
    /// Threads for writes that wait.
    pub write_handlers: usize,
    /// Threads for writes that may compute or wait for long.
    pub long_write_handlers: usize,
    /// Threads for admin calls that wait.
    pub admin_handlers: usize,
    /// Threads for long writes.
    pub decode_handlers: usize,
    /// Limit of calls that compute at once, for each class with CPU slots; the others wait, in the
    /// queue, for a disk or for a lock. Default: the number of cores.
    pub computing_at_once: usize,
    /// How long such a call computes before it yields to waiting calls.
    pub time_slice: Duration,
    /// How long a write waits for a slot after it waited for a lock or the log; then it continues
    /// without one.
    pub resume_wait_max: Duration,
    /// Queue capacity of each class: `hbase.ipc.server.max.callqueue.length`; 0: ten calls per
    /// handler.
    pub queue_calls_max: usize,
    /// Is notified when a handler thread dies.
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
            long_write_handlers: 30,
            admin_handlers: 10,
            decode_handlers: 10,
            computing_at_once: std::thread::available_parallelism().map_or(1, usize::from),
            time_slice: Duration::from_millis(5),
            resume_wait_max: Duration::from_millis(100),
            queue_calls_max: 0,
            supervisor: Supervisor::log_only(),
        }
    }
}

/// The executor; see the module's documentation. Dropping it stops the threads after their running
/// calls.
pub struct Executor {
    server_name: String,
    queues: [Arc<Queue>; 7],
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Executor {
    /// Starts the threads.
    ///
    /// # Errors
    /// Returns `InvalidInput` if a class would have no thread; I/O errors of starting a thread.
    pub fn start(config: &ExecutorConfig) -> io::Result<Executor> {
        let handlers = [
            config.general_handlers,
            config.priority_handlers,
            config.scan_handlers,
            config.write_handlers,
            config.long_write_handlers,
            config.admin_handlers,
            config.decode_handlers,
        ];
        if handlers.contains(&0) || config.computing_at_once == 0 {
            let reason = "calls of each class need a handler thread";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let [general, priority, scan, write, long_write, admin, decode] =
            handlers.map(|handlers| Queue::new(handlers, config.queue_calls_max));
        let [scan, write, long_write, decode] = [scan, write, long_write, decode]
            .map(|queue| queue.with_cpu_slots(config.computing_at_once, config.time_slice));
        let [write, long_write] =
            [write, long_write].map(|queue| queue.with_resume_queue(config.resume_wait_max));
        let queues = [general, priority, scan, write, long_write, admin, decode].map(Arc::new);
        let executor =
            Executor { server_name: config.server_name.clone(), queues, threads: Mutex::default() };
        let names = ["general", "priority", "scan", "write", "long-write", "admin", "decode"];
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

    /// Runs `job` on a thread of `class`, or answers CallQueueTooBigException immediately if its
    /// queue is full.
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

    /// Runs the rest of a call that started elsewhere on a thread of `class`. It waits among the
    /// calls of its connection, `peer`, and is never refused. If the job panics, or is dropped
    /// because the executor stops, its responder is dropped, which answers.
    pub fn submit_continuation(
        &self,
        class: CallClass,
        peer: Option<SocketAddr>,
        job: impl FnOnce() + Send + 'static,
    ) {
        self.queue(class).push_job(peer, Box::new(job));
    }

    /// Calls waiting for a thread of `class`.
    pub fn queued(&self, class: CallClass) -> usize {
        self.queue(class).waiting()
    }

    /// Threads of `class` that run a call, including those whose call waits for a slot.
    pub fn active(&self, class: CallClass) -> usize {
        self.queue(class).active()
    }

    /// Accepts no more calls, waits for running calls to end, and answers queued calls with
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
        let [general, priority, scan, write, long_write, admin, decode] = &self.queues;
        match class {
            CallClass::General => general,
            CallClass::Priority => priority,
            CallClass::Scan => scan,
            CallClass::Write => write,
            CallClass::LongWrite => long_write,
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
