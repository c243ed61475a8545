//! The listening socket and the threads that own connections.
//!
//! One thread accepts and hands sockets round-robin to the connection threads, each of which runs a
//! `current_thread` runtime: a connection stays on its thread, so decode, call, encode and write
//! happen on one core. Stopping: no more connections, no more requests; running calls end and their
//! answers leave, for as long as the grace allows.

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
use crate::metrics::RpcMetrics;
use crate::report::ConnectionReport;
use crate::service::{Service, Services};
use crate::worker::{Complaints, Counters, Shared, Worker};

/// Sockets accepted and not yet taken over by their thread.
const HANDOVER_SOCKETS_MAX: usize = 256;
/// Pause after a failed accept, which is a lack of file descriptors usually.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// When running calls must be over, once the server stops.
type Stop = watch::Receiver<Option<Instant>>;
type Accepted = (StdStream, SocketAddr);

/// A server that listens and does not yet serve.
pub struct RpcServer {
    config: RpcServerConfig,
    listener: StdListener,
    address: SocketAddr,
}

impl RpcServer {
    /// Takes the address.
    ///
    /// # Errors
    /// When the address is taken, or the configuration's limits contradict each other
    /// (`InvalidInput`).
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

    /// Where the server listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Has `supervisor` hear of the death of the server's threads.
    pub fn supervised_by(mut self, supervisor: &Supervisor) -> RpcServer {
        self.config.supervisor = supervisor.clone();
        self
    }

    /// Starts the threads that serve connections.
    ///
    /// # Errors
    /// When a thread or its runtime cannot be started.
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
        let mut workers = Vec::new();
        for index in 0..handle.shared.config.connection_threads {
            workers.push(handle.start_worker(index, stopped.clone())?);
        }
        handle.start_acceptor(self.listener, workers, stopped)?;
        Ok(handle)
    }
}

/// A server that serves. Dropping it stops it at once.
pub struct RpcServerHandle {
    address: SocketAddr,
    stop: watch::Sender<Option<Instant>>,
    threads: Vec<JoinHandle<()>>,
    counters: Vec<Arc<Counters>>,
    shared: Arc<Shared>,
}

/// What the server has done and holds, summed over its threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RpcStats {
    /// Connections that are open.
    pub connections_open: u64,
    /// Connections that were ever opened.
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
    /// Bytes held of input that is no whole request yet, of all servers that share the budget;
    /// `inflight_bytes` has them, too.
    pub input_bytes: u64,
    /// Request bytes in flight, with what lies idle in the threads' shares (an eighth of the limit
    /// at most).
    pub inflight_bytes: u64,
    /// Answer bytes that clients have not taken.
    pub unsent_bytes: u64,
}

impl RpcServerHandle {
    /// Where the server listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The counters now.
    pub fn stats(&self) -> RpcStats {
        self.monitor().stats()
    }

    /// What tells of the server's calls while it serves, and after.
    pub fn monitor(&self) -> RpcMonitor {
        RpcMonitor { counters: self.counters.clone(), shared: Arc::clone(&self.shared) }
    }

    /// Stops accepting and reading, lets running calls end and their answers leave for at most
    /// `grace`, and returns when all threads have ended. A service that blocks its connection's
    /// thread delays this.
    pub fn shutdown(mut self, grace: Duration) {
        self.stop_and_join(grace);
    }

    fn stop_and_join(&mut self, grace: Duration) {
        self.stop.send_replace(Some(clock::monotonic() + grace));
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }

    fn start_worker(&mut self, index: usize, stop: Stop) -> io::Result<mpsc::Sender<Accepted>> {
        let (sender, sockets) = mpsc::channel(HANDOVER_SOCKETS_MAX);
        let counters = Arc::new(Counters::default());
        self.counters.push(counters.clone());
        let (runtime, shared) = (runtime()?, self.shared.clone());
        let work = move || {
            let local = LocalSet::new();
            runtime.block_on(local.run_until(serve_connections(
                Worker::new(shared, counters),
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
        workers: Vec<mpsc::Sender<Accepted>>,
        stop: Stop,
    ) -> io::Result<()> {
        let runtime = runtime()?;
        let listener = {
            let _entered = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let shared = self.shared.clone();
        let work = move || {
            runtime.block_on(accept_connections(listener, workers, shared, stop));
            Ok(())
        };
        self.threads.push(spawn_essential("rpc-accept", &self.shared.config.supervisor, work)?);
        Ok(())
    }
}

/// Tells what a server has done. It does not keep the server running.
#[derive(Clone)]
pub struct RpcMonitor {
    counters: Vec<Arc<Counters>>,
    shared: Arc<Shared>,
}

impl RpcMonitor {
    /// Times and sizes of calls, and the slow ones.
    pub fn metrics(&self) -> &RpcMetrics {
        &self.shared.metrics
    }

    /// The connections as they were a moment ago. The first call for a while finds none: it asks
    /// the connections' threads to list theirs.
    pub fn connections(&self) -> Vec<ConnectionReport> {
        self.shared.reports.want();
        self.counters.iter().flat_map(|counters| counters.reports.lock().clone()).collect()
    }

    /// The counters now.
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
    workers: Vec<mpsc::Sender<Accepted>>,
    shared: Arc<Shared>,
    mut stop: Stop,
) {
    let mut next = 0usize;
    let mut complaints = Complaints::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.changed() => return,
        };
        match accepted.and_then(|(stream, peer)| Ok((configured(stream, &shared.config)?, peer))) {
            Ok(socket) => {
                next = next.wrapping_add(1);
                if !hand_over(socket, &workers, next, &shared) {
                    complaints.add("too many connections; new ones are closed");
                }
            }
            Err(error) => {
                complaints.add(&format!("accept failed: {error}"));
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// The socket with its options set, taken off the acceptor's runtime.
fn configured(stream: TcpStream, config: &RpcServerConfig) -> io::Result<StdStream> {
    let socket = SockRef::from(&stream);
    socket.set_tcp_nodelay(config.tcp_no_delay)?;
    socket.set_keepalive(config.tcp_keep_alive)?;
    stream.into_std()
}

/// Gives the socket to the next thread that has room; closes it, and returns false, when there is
/// none or too many are open.
fn hand_over(mut socket: Accepted, workers: &[mpsc::Sender<Accepted>], next: usize, shared: &Shared) -> bool {
    let open = shared.open_connections.fetch_add(1, Ordering::Relaxed);
    if open < shared.config.connections_max as u64 {
        for i in 0..workers.len() {
            let Some(worker) = workers.get((next + i) % workers.len()) else { break };
            match worker.try_send(socket) {
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
    worker: std::rc::Rc<Worker>,
    mut sockets: mpsc::Receiver<Accepted>,
    mut stop: Stop,
) {
    let watched = worker.clone();
    let watch = tokio::task::spawn_local(async move {
        tokio::join!(watched.watch_unsent(), watched.watch_connections());
    });
    loop {
        tokio::select! {
            socket = sockets.recv() => match socket {
                Some((stream, peer)) => start_connection(&worker, stream, peer),
                None => break,
            },
            _ = stop.changed() => break,
        }
    }
    watch.abort();
    let _ = stop.wait_for(Option::is_some).await;
    let deadline = stop.borrow().unwrap_or_else(clock::monotonic);
    worker.start_draining();
    let _ = tokio::time::timeout_at(deadline.into(), worker.all_closed()).await;
}

fn start_connection(worker: &std::rc::Rc<Worker>, stream: StdStream, peer: SocketAddr) {
    match TcpStream::from_std(stream) {
        Ok(stream) => {
            tokio::task::spawn_local(connection::run(stream, peer, worker.clone()));
        }
        Err(error) => {
            worker.shared.open_connections.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!(%peer, %error, "a socket cannot be watched");
        }
    }
}
