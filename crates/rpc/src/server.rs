//! The listening socket and the threads that own connections.
//!
//! One thread accepts and hands sockets round-robin to the connection threads, each of which runs a
//! `current_thread` runtime. A connection stays on its thread, so decode, call, encode and write
//! happen on one core. On stop the server accepts no connections and no requests; running calls
//! finish and their replies are sent, within the grace period.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use evenkeel_common::clock;
use evenkeel_common::thread::{Supervisor, spawn_essential};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;

use crate::config::RpcServerConfig;
use crate::connection;
use crate::connection_report::{ConnectionReport, RunningCall};
use crate::connection_thread::{ConnectionThread, Counters, RateLimitedLog, Shared};
use crate::metrics::RpcMetrics;
use crate::service::{Service, Services};

/// Limit of accepted sockets that wait for their thread.
const HANDOVER_SOCKETS_MAX: usize = 256;
/// Pause after a failed accept, which usually means a lack of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// The deadline of running calls, once the server stops.
type Stop = watch::Receiver<Option<Instant>>;
type Accepted = (StdStream, SocketAddr);

/// A server that listens but does not serve yet.
pub struct RpcServer {
    config: RpcServerConfig,
    listener: StdListener,
    address: SocketAddr,
}

impl RpcServer {
    /// Binds the address.
    ///
    /// # Errors
    /// Returns `InvalidInput` if the limits of the configuration contradict each other; I/O errors
    /// of the socket, e.g. if the address is in use.
    pub fn bind(config: RpcServerConfig) -> io::Result<RpcServer> {
        config.check().map_err(|reason| io::Error::new(io::ErrorKind::InvalidInput, reason))?;
        let socket = Socket::new(Domain::for_address(config.address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&config.address.into())?;
        socket.listen(i32::try_from(config.listen_backlog).unwrap_or(i32::MAX))?;
        let listener = StdListener::from(socket);
        let address = listener.local_addr()?;
        Ok(RpcServer { config, listener, address })
    }

    /// The address on which the server listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Makes `supervisor` supervise the server's threads.
    pub fn supervised_by(mut self, supervisor: &Supervisor) -> RpcServer {
        self.config.supervisor = supervisor.clone();
        self
    }

    /// Starts the threads that serve connections.
    ///
    /// # Errors
    /// I/O errors of starting a thread or its runtime.
    pub fn serve(self, services: Vec<Arc<dyn Service>>) -> io::Result<RpcServerHandle> {
        let shared = Shared::new(self.config, Services::new(services));
        let (stop, stopped) = watch::channel(None);
        let mut handle = RpcServerHandle {
            address: self.address,
            stop,
            threads: Vec::new(),
            counters: Vec::new(),
            shared,
        };
        let mut threads = Vec::new();
        for index in 0..handle.shared.config.connection_threads {
            threads.push(handle.start_connection_thread(index, stopped.clone())?);
        }
        handle.start_acceptor(self.listener, threads, stopped)?;
        Ok(handle)
    }
}

/// A running server. Dropping it stops it immediately.
pub struct RpcServerHandle {
    address: SocketAddr,
    stop: watch::Sender<Option<Instant>>,
    threads: Vec<JoinHandle<()>>,
    counters: Vec<Arc<Counters>>,
    shared: Arc<Shared>,
}

/// Counters and gauges of the server, summed over its threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RpcStats {
    /// Open connections.
    pub connections_open: u64,
    /// Connections opened since the start.
    pub connections_opened: u64,
    /// Requests received.
    pub calls: u64,
    /// Requests answered with CallQueueTooBigException by this layer.
    pub calls_refused: u64,
    /// Bytes read from sockets after the handshake.
    pub received_bytes: u64,
    /// Bytes written to sockets after the handshake.
    pub sent_bytes: u64,
    /// Write system calls.
    pub writes: u64,
    /// Bytes of incomplete requests, of all servers that share the budget; `inflight_bytes`
    /// includes them.
    pub input_bytes: u64,
    /// Request bytes in flight, including the idle chunks of the threads (at most an eighth of the
    /// limit).
    pub inflight_bytes: u64,
    /// Reply bytes that clients have not taken.
    pub unsent_bytes: u64,
}

impl RpcServerHandle {
    /// The address on which the server listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The current counters.
    pub fn stats(&self) -> RpcStats {
        self.monitor().stats()
    }

    /// Returns a monitor of the server, which stays valid after the server has stopped.
    pub fn monitor(&self) -> RpcMonitor {
        RpcMonitor { counters: self.counters.clone(), shared: Arc::clone(&self.shared) }
    }

    /// Stops accepting and reading, gives running calls and their replies at most `grace` to
    /// finish, and returns when all threads have ended. A service that blocks its connection's
    /// thread delays this.
    pub fn shutdown(mut self, grace: Duration) {
        self.stop_and_join(grace);
    }

    fn stop_and_join(&mut self, grace: Duration) {
        self.stop.send_replace(Some(clock::monotonic() + grace));
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }

    fn start_connection_thread(&mut self, index: usize, stop: Stop) -> io::Result<mpsc::Sender<Accepted>> {
        let (sender, sockets) = mpsc::channel(HANDOVER_SOCKETS_MAX);
        let counters = Arc::new(Counters::default());
        self.counters.push(counters.clone());
        let (runtime, shared) = (runtime()?, self.shared.clone());
        let work = move || {
            let local = LocalSet::new();
            runtime.block_on(local.run_until(serve_connections(
                ConnectionThread::new(shared, counters),
                sockets,
                stop,
            )));
            Ok(())
        };
        let supervisor = &self.shared.config.supervisor;
        self.threads.push(spawn_essential(format!("rpc-conn-{index}"), supervisor, work)?);
        Ok(sender)
    }

    fn start_acceptor(
        &mut self,
        listener: StdListener,
        threads: Vec<mpsc::Sender<Accepted>>,
        stop: Stop,
    ) -> io::Result<()> {
        let runtime = runtime()?;
        let listener = {
            let _entered = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let shared = self.shared.clone();
        let work = move || {
            runtime.block_on(accept_connections(listener, threads, shared, stop));
            Ok(())
        };
        self.threads.push(spawn_essential("rpc-accept", &self.shared.config.supervisor, work)?);
        Ok(())
    }
}

/// Access to a server's metrics. It does not keep the server running.
#[derive(Clone)]
pub struct RpcMonitor {
    counters: Vec<Arc<Counters>>,
    shared: Arc<Shared>,
}

impl RpcMonitor {
    /// Times and sizes of calls, and the slow calls.
    pub fn metrics(&self) -> &RpcMetrics {
        &self.shared.metrics
    }

    /// The recent connections. The first call after a pause returns none: it requests lists from
    /// the connection threads.
    pub fn connections(&self) -> Vec<ConnectionReport> {
        self.shared.reports.request();
        self.counters.iter().flat_map(|counters| counters.reports.lock().clone()).collect()
    }

    /// Returns the calls that run on other threads than their connections', the oldest first, as
    /// they were a moment ago: a limited number for each connection thread.
    pub fn running_calls(&self) -> Vec<RunningCall> {
        let mut all: Vec<RunningCall> =
            self.counters.iter().flat_map(|counters| counters.running.lock().clone()).collect();
        all.sort_by_key(|call| call.received_at);
        all
    }

    /// The current counters.
    pub fn stats(&self) -> RpcStats {
        let sum = |field: fn(&Counters) -> &std::sync::atomic::AtomicU64| {
            self.counters.iter().map(|counters| field(counters).load(Ordering::Relaxed)).sum()
        };
        let opened: u64 = sum(|counters| &counters.connections_opened);
        let closed: u64 = sum(|counters| &counters.connections_closed);
        RpcStats {
            connections_open: opened.saturating_sub(closed),
            connections_opened: opened,
            calls: sum(|counters| &counters.calls),
            calls_refused: sum(|counters| &counters.calls_refused),
            received_bytes: sum(|counters| &counters.received_bytes),
            sent_bytes: sum(|counters| &counters.sent_bytes),
            writes: sum(|counters| &counters.writes),
            input_bytes: self.shared.input.used(),
            inflight_bytes: self.shared.inflight_bytes.used(),
            unsent_bytes: self.shared.config.unsent.used(),
        }
    }
}

impl Drop for RpcServerHandle {
    fn drop(&mut self) {
        self.stop_and_join(Duration::ZERO);
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_io().enable_time().build()
}

async fn accept_connections(
    listener: TcpListener,
    threads: Vec<mpsc::Sender<Accepted>>,
    shared: Arc<Shared>,
    mut stop: Stop,
) {
    let mut next = 0usize;
    let mut log = RateLimitedLog::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.changed() => return,
        };
        match accepted.and_then(|(stream, peer)| Ok((configured(stream, &shared.config)?, peer))) {
            Ok(socket) => {
                next = next.wrapping_add(1);
                if !hand_over(socket, &threads, next, &shared) {
                    log.add("too many connections; new ones are closed");
                }
            }
            Err(error) => {
                log.add(&format!("accept failed: {error}"));
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// Sets the socket's options and removes it from the acceptor's runtime.
fn configured(stream: TcpStream, config: &RpcServerConfig) -> io::Result<StdStream> {
    let socket = SockRef::from(&stream);
    socket.set_tcp_nodelay(config.tcp_no_delay)?;
    socket.set_keepalive(config.tcp_keep_alive)?;
    stream.into_std()
}

/// Passes the socket to the next thread with a free place in its channel. If there is none, or too
/// many connections are open, closes the socket and returns false.
fn hand_over(mut socket: Accepted, threads: &[mpsc::Sender<Accepted>], next: usize, shared: &Shared) -> bool {
    let open = shared.open_connections.fetch_add(1, Ordering::Relaxed);
    if open < shared.config.connections_max as u64 {
        for i in 0..threads.len() {
            let Some(thread) = threads.get((next + i) % threads.len()) else { break };
            match thread.try_send(socket) {
                Ok(()) => return true,
                Err(mpsc::error::TrySendError::Full(back) | mpsc::error::TrySendError::Closed(back)) => {
                    socket = back;
                }
            }
        }
    }
    shared.open_connections.fetch_sub(1, Ordering::Relaxed);
    false
}

async fn serve_connections(
    thread: std::rc::Rc<ConnectionThread>,
    mut sockets: mpsc::Receiver<Accepted>,
    mut stop: Stop,
) {
    let watched = thread.clone();
    let watch = tokio::task::spawn_local(async move {
        tokio::join!(watched.watch_unsent(), watched.monitor_connections());
    });
    loop {
        tokio::select! {
            socket = sockets.recv() => match socket {
                Some((stream, peer)) => start_connection(&thread, stream, peer),
                None => break,
            },
            _ = stop.changed() => break,
        }
    }
    watch.abort();
    let _ = stop.wait_for(Option::is_some).await;
    let deadline = stop.borrow().unwrap_or_else(clock::monotonic);
    thread.start_draining();
    let _ = tokio::time::timeout_at(deadline.into(), thread.all_closed()).await;
}

fn start_connection(thread: &std::rc::Rc<ConnectionThread>, stream: StdStream, peer: SocketAddr) {
    match TcpStream::from_std(stream) {
        Ok(stream) => {
            tokio::task::spawn_local(connection::run(stream, peer, thread.clone()));
        }
        Err(error) => {
            thread.shared.open_connections.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!(%peer, %error, "a socket cannot be watched");
        }
    }
}
