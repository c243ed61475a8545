//! One connection thread: its runtime, budgets, connections and counters.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use evenkeel_common::Budget;
use evenkeel_common::clock::{self, Ticks};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

use crate::budget::ThreadBudget;
use crate::config::RpcServerConfig;
use crate::connection::{ConnectionShared, InputBudget};
use crate::connection_monitor::PendingHandshake;
use crate::connection_report::{ConnectionReport, Reports, RunningCall};
use crate::metrics::RpcMetrics;
use crate::service::{BatchRunner, ServiceEntry, Services};

/// Bounds of the interval between checks for replies that are not taken.
const STALL_CHECK_MIN: Duration = Duration::from_millis(10);
const STALL_CHECK_MAX: Duration = Duration::from_secs(1);

/// What a call in flight takes beside its frame: its decoded message, its responder, and its place
/// in a queue or a log.
const CALL_BYTES: u64 = 1024;
/// A connection with fewer calls and frame bytes in flight may always start another call.
const CALLS_FREE: usize = 64;
const FRAME_BYTES_FREE: usize = 64 << 10;
/// This fraction (1/`RESERVED_DIVISOR`) of the budgets is reserved for connections with fewer.
const RESERVED_DIVISOR: u64 = 4;

/// Minimum interval between log lines about refused clients.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Log lines about refused clients, at most one a second regardless of the number of refusals.
#[derive(Default)]
pub(crate) struct RateLimitedLog {
    count: u64,
    last: Option<Instant>,
}

impl RateLimitedLog {
    /// Logs the reason, unless the last line is too recent.
    pub fn add(&mut self, reason: &str) {
        self.count += 1;
        if self.last.is_none_or(|last| clock::since(last) >= LOG_INTERVAL) {
            tracing::warn!(times = self.count, "{reason}");
            *self = RateLimitedLog { count: 0, last: Some(clock::monotonic()) };
        }
    }
}

/// Connections of a thread that may keep a large read buffer while idle.
const LARGE_BUFFERS_MAX: usize = 32;

/// Counters of one thread. Only that thread writes them; any thread may read them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub connections_opened: AtomicU64,
    pub connections_closed: AtomicU64,
    pub calls: AtomicU64,
    pub calls_refused: AtomicU64,
    pub received_bytes: AtomicU64,
    pub sent_bytes: AtomicU64,
    pub writes: AtomicU64,
    /// The thread's connections at the last report.
    pub reports: Mutex<Vec<ConnectionReport>>,
    /// The thread's detached calls at the last check of the monitor.
    pub running: Mutex<Vec<RunningCall>>,
}

/// Adds to a counter that only this thread writes, so no locked instruction is needed.
#[inline]
pub(crate) fn count(counter: &AtomicU64, units: u64) {
    counter.store(counter.load(Ordering::Relaxed) + units, Ordering::Relaxed);
}

/// State shared by all connections of the server.
pub(crate) struct Shared {
    pub config: RpcServerConfig,
    pub services: Services,
    pub inflight_bytes: Arc<Budget>,
    pub inflight_calls: Arc<Budget>,
    pub input: Arc<InputBudget>,
    pub open_connections: AtomicU64,
    pub metrics: Arc<RpcMetrics>,
    pub reports: Reports,
}

impl Shared {
    pub fn new(config: RpcServerConfig, services: Services) -> Arc<Self> {
        Arc::new(Shared {
            inflight_bytes: config.inflight.clone().unwrap_or_else(|| Budget::new(config.inflight_bytes_max)),
            inflight_calls: Budget::new(config.inflight_calls_max),
            input: config.input.clone().unwrap_or_else(|| InputBudget::of(config.inflight_bytes_max)),
            open_connections: AtomicU64::new(0),
            metrics: Arc::clone(&config.metrics),
            reports: Reports::default(),
            services,
            config,
        })
    }
}

/// A thread's runner for the batches of one service.
pub(crate) type Runner = Rc<RefCell<Box<dyn BatchRunner>>>;

/// State shared by the connections of one thread.
pub(crate) struct ConnectionThread {
    pub shared: Arc<Shared>,
    pub counters: Arc<Counters>,
    bytes: ThreadBudget,
    calls: ThreadBudget,
    draining: Cell<bool>,
    drain: Notify,
    pub(crate) connections: RefCell<HashMap<u64, Weak<ConnectionShared>>>,
    /// Connections whose ConnectionHeader has not arrived.
    pub(crate) pending_handshakes: RefCell<HashMap<u64, Rc<PendingHandshake>>>,
    /// Held by the connection whose ConnectionHeader is being decoded.
    pub handshakes: Semaphore,
    refusals: RefCell<RateLimitedLog>,
    /// This thread's runners, for each service with a connection.
    runners: RefCell<Vec<(&'static str, Runner)>>,
    next_connection: Cell<u64>,
    /// When the thread's last call was answered or left the thread, which is when the next one
    /// begins.
    call_began_at: Cell<Ticks>,
    open: Cell<usize>,
    last_closed: Notify,
}

/// Counts one connection while it is open.
pub(crate) struct OpenConnection(Rc<ConnectionThread>);

impl OpenConnection {
    pub fn new(thread: Rc<ConnectionThread>) -> Self {
        thread.open.set(thread.open.get() + 1);
        count(&thread.counters.connections_opened, 1);
        OpenConnection(thread)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let thread = &self.0;
        thread.open.set(thread.open.get() - 1);
        thread.shared.open_connections.fetch_sub(1, Ordering::Relaxed);
        count(&thread.counters.connections_closed, 1);
        if thread.open.get() == 0 {
            thread.last_closed.notify_waiters();
        }
    }
}

impl ConnectionThread {
    /// Returns this thread's runner for the batches of a service.
    pub fn runner(&self, service: &ServiceEntry) -> Runner {
        let name = service.service.name();
        let mut runners = self.runners.borrow_mut();
        if let Some((_, runner)) = runners.iter().find(|(known, _)| *known == name) {
            return Rc::clone(runner);
        }
        let runner = Rc::new(RefCell::new(service.batch_runner()));
        runners.push((name, Rc::clone(&runner)));
        runner
    }

    pub fn new(shared: Arc<Shared>, counters: Arc<Counters>) -> Rc<Self> {
        let threads = shared.config.connection_threads;
        Rc::new(ConnectionThread {
            bytes: ThreadBudget::new(shared.inflight_bytes.clone(), threads),
            calls: ThreadBudget::new(shared.inflight_calls.clone(), threads),
            counters,
            shared,
            draining: Cell::new(false),
            drain: Notify::new(),
            connections: RefCell::default(),
            pending_handshakes: RefCell::default(),
            handshakes: Semaphore::new(1),
            refusals: RefCell::default(),
            runners: RefCell::default(),
            next_connection: Cell::new(0),
            call_began_at: Cell::new(clock::ticks()),
            open: Cell::new(0),
            last_closed: Notify::new(),
        })
    }

    /// When the current call of this thread began.
    pub fn call_began_at(&self) -> Ticks {
        self.call_began_at.get()
    }

    /// Records that the next call of this thread begins.
    pub fn next_call_begins(&self, now: Ticks) {
        self.call_began_at.set(now);
    }

    pub fn metrics(&self) -> &Arc<RpcMetrics> {
        &self.shared.metrics
    }

    pub fn reports(&self) -> &Reports {
        &self.shared.reports
    }

    pub fn config(&self) -> &RpcServerConfig {
        &self.shared.config
    }

    /// Charges a call of `frame_bytes`, and [`CALL_BYTES`], to the budgets. Returns the key of the
    /// exceeded limit as error.
    #[inline]
    pub fn take_call(&self, frame_bytes: usize) -> Result<(), &'static str> {
        let bytes = CALL_BYTES + frame_bytes as u64;
        if !self.bytes.acquire(bytes) {
            return Err("hbase.ipc.server.max.callqueue.size");
        }
        if !self.calls.acquire(1) {
            self.bytes.release(bytes);
            return Err("hbase.ipc.server.max.callqueue.length");
        }
        Ok(())
    }

    /// Returns a call's budgets.
    #[inline]
    pub fn give_call(&self, frame_bytes: usize) {
        self.bytes.release(CALL_BYTES + frame_bytes as u64);
        self.calls.release(1);
    }

    /// Returns true if a connection that has this many calls of this many bytes in flight may start
    /// another one: if it has few, or if a quarter of the budgets is free and as much again as it
    /// has. So a connection takes at most half of what the earlier ones left of three quarters, and
    /// a new client finds the last quarter, however many such connections there are.
    #[inline]
    pub fn may_start_call(&self, calls: usize, frame_bytes: usize) -> bool {
        (calls < CALLS_FREE && frame_bytes < FRAME_BYTES_FREE) || self.is_within_share(calls, frame_bytes)
    }

    #[cold]
    fn is_within_share(&self, calls: usize, frame_bytes: usize) -> bool {
        let (calls, frame_bytes) = (calls as u64, frame_bytes as u64);
        let is_within = |budget: &Budget, own: u64| own + budget.max() / RESERVED_DIVISOR <= budget.free();
        is_within(&self.shared.inflight_calls, calls)
            && is_within(&self.shared.inflight_bytes, frame_bytes + calls * CALL_BYTES)
    }

    /// The budget of incomplete requests.
    pub fn input(&self) -> &InputBudget {
        &self.shared.input
    }

    /// Takes bytes for a frame that is being received.
    pub fn acquire_bytes(&self, bytes: usize) -> bool {
        self.bytes.acquire(bytes as u64)
    }

    /// Returns these bytes.
    pub fn release_bytes(&self, bytes: usize) {
        self.bytes.release(bytes as u64);
    }

    /// Logs that a ConnectionHeader was refused.
    pub fn log_refusal(&self, peer: SocketAddr, reason: &str) {
        self.refusals.borrow_mut().add(&format!("connection header of {peer} refused: {reason}"));
    }

    /// Returns true if too many connections are open for idle ones to keep large read buffers.
    pub fn has_many_connections(&self) -> bool {
        self.open.get() > LARGE_BUFFERS_MAX
    }

    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Resolves when the server begins to stop.
    pub async fn drained(&self) {
        let notified = self.drain.notified();
        if !self.is_draining() {
            notified.await;
        }
    }

    /// Makes every connection finish its running calls and close.
    pub fn start_draining(&self) {
        self.draining.set(true);
        self.drain.notify_waiters();
        for connection in self.connections.borrow().values().filter_map(Weak::upgrade) {
            connection.wake();
        }
    }

    /// Resolves when this thread has no connections.
    pub async fn all_closed(&self) {
        let notified = self.last_closed.notified();
        if self.open.get() > 0 {
            notified.await;
        }
    }

    /// Closes connections whose clients do not take their replies, while the budget for replies is
    /// short. Runs until it is dropped.
    pub async fn watch_unsent(&self) {
        let config = self.config();
        let stall_max = config.unsent_stall_max;
        loop {
            tokio::time::sleep((stall_max / 10).clamp(STALL_CHECK_MIN, STALL_CHECK_MAX)).await;
            let wanted = (config.unsent.max() / 4).saturating_sub(config.unsent.free());
            let Some(before) = clock::monotonic().checked_sub(stall_max).filter(|_| wanted > 0) else {
                continue;
            };
            let connections = self.connections.borrow();
            let mut freed = 0;
            for connection in connections.values().filter_map(Weak::upgrade) {
                if freed >= wanted {
                    break;
                }
                freed += connection.close_if_stalled(before);
            }
            if freed > 0 {
                tracing::warn!(
                    bytes = freed,
                    "closing connections whose clients do not read their responses"
                );
            }
        }
    }

    fn new_id(&self) -> u64 {
        let id = self.next_connection.get();
        self.next_connection.set(id + 1);
        id
    }

    /// Registers a connection whose ConnectionHeader has not arrived.
    pub fn register_handshake(&self) -> (u64, Rc<PendingHandshake>) {
        let (id, pending) = (self.new_id(), PendingHandshake::now());
        self.pending_handshakes.borrow_mut().insert(id, pending.clone());
        (id, pending)
    }

    pub fn unregister_handshake(&self, id: u64) {
        self.pending_handshakes.borrow_mut().remove(&id);
    }

    /// Registers a connection, so that draining wakes it.
    pub fn register(&self, connection: &Rc<ConnectionShared>) -> u64 {
        let id = self.new_id();
        self.connections.borrow_mut().insert(id, Rc::downgrade(connection));
        id
    }

    pub fn unregister(&self, id: u64) {
        self.connections.borrow_mut().remove(&id);
    }
}
