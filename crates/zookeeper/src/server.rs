//! Accepts connections within limits, and expires sessions that have no connection.

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use evenkeel_common::clock::{Clock, SystemClock};
use evenkeel_common::length;
use evenkeel_common::{ConfigError, Configuration};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::budgets::ConnectionBudgets;
use super::connection;
use super::four_letter_words::ServerStats;
use super::session::Sessions;
use super::tree::ZnodeTree;

/// The default limit of connections in total.
const CONNECTIONS_MAX: usize = 4096;

/// Pause after a failed accept, which usually means that there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Largest session timeout that can be configured: a day.
const SESSION_TIMEOUT_MS_MAX: u64 = 86_400_000;

/// Settings of the endpoint.
#[derive(Clone, Debug)]
pub struct ZkConfig {
    /// ZooKeeper's unit of time (`hbase.zookeeper.property.tickTime`), milliseconds.
    pub tick_ms: u64,
    /// Shortest session timeout granted, milliseconds: 2 ticks.
    pub session_timeout_min_ms: u64,
    /// Longest session timeout granted, milliseconds: 20 ticks, or more if HBase's
    /// `zookeeper.session.timeout` is longer.
    pub session_timeout_max_ms: u64,
    /// Connections from one address (`hbase.zookeeper.property.maxClientCnxns`), 0 for no limit
    /// except that on all.
    pub connections_per_address_max: usize,
    /// Connections in total.
    pub connections_max: usize,
    /// How long a packet may take from its first byte to its last, plus the time that its bytes
    /// take at 64 KiB a second.
    pub receive_timeout: Duration,
    /// The budgets to which bytes of connections are charged.
    pub budgets: ConnectionBudgets,
    /// Longest packet accepted (`jute.maxbuffer`), bytes.
    pub packet_bytes_max: usize,
    /// The secret from which session passwords are derived. It must stay the same across restarts,
    /// or clients lose their sessions.
    pub session_secret: u64,
    /// The source of session ids.
    pub clock: Arc<dyn Clock>,
}

impl Default for ZkConfig {
    fn default() -> Self {
        Self {
            tick_ms: 2_000,
            session_timeout_min_ms: 4_000,
            session_timeout_max_ms: 40_000,
            connections_per_address_max: 300,
            connections_max: CONNECTIONS_MAX,
            receive_timeout: Duration::from_secs(30),
            budgets: ConnectionBudgets::default(),
            packet_bytes_max: 0xF_FFFF,
            session_secret: 0x4576_656E_6B65_656C,
            clock: Arc::new(SystemClock),
        }
    }
}

impl ZkConfig {
    /// Reads the settings of `hbase-site.xml`.
    ///
    /// # Errors
    /// Returns an error if a value is not a number or is out of range.
    pub fn from_configuration(conf: &Configuration) -> Result<Self, ConfigError> {
        const TICK: &str = "hbase.zookeeper.property.tickTime";
        const MIN: &str = "hbase.zookeeper.property.minSessionTimeout";
        const MAX: &str = "hbase.zookeeper.property.maxSessionTimeout";
        const CONNECTIONS: &str = "hbase.zookeeper.property.maxClientCnxns";
        const PACKET: &str = "jute.maxbuffer";
        let tick_ms = in_range(conf, TICK, conf.get_u64_or(TICK, 2_000)?, 1, SESSION_TIMEOUT_MS_MAX / 20)?;
        let asked_ms = conf.get_u64_or("zookeeper.session.timeout", 90_000)?.min(SESSION_TIMEOUT_MS_MAX);
        let min_ms = in_range(conf, MIN, conf.get_u64_or(MIN, 2 * tick_ms)?, 1, SESSION_TIMEOUT_MS_MAX)?;
        let max_ms = conf.get_u64_or(MAX, asked_ms.max(20 * tick_ms).max(min_ms))?;
        let connections = in_range(conf, CONNECTIONS, conf.get_u64_or(CONNECTIONS, 300)?, 0, 1 << 20)?;
        let packet_bytes = in_range(conf, PACKET, conf.get_u64_or(PACKET, 0xF_FFFF)?, 1 << 10, 64 << 20)?;
        Ok(Self {
            tick_ms,
            session_timeout_min_ms: min_ms,
            session_timeout_max_ms: in_range(conf, MAX, max_ms, min_ms, SESSION_TIMEOUT_MS_MAX)?,
            connections_per_address_max: length::index(connections),
            packet_bytes_max: length::index(packet_bytes),
            ..Self::default()
        })
    }
}

fn in_range(conf: &Configuration, key: &str, value: u64, min: u64, max: u64) -> Result<u64, ConfigError> {
    let expected = || format!("an integer from {min} to {max}");
    if (min..=max).contains(&value) { Ok(value) } else { Err(conf.unusable(key, &expected())) }
}

/// Serves `tree` on `listener` until `shutdown` completes; then every connection is dropped and the
/// port is free. Runs on any tokio runtime with network and time.
///
/// # Errors
/// Returns an error if the listener has no local address. Errors of one connection, or of accepting
/// one, affect nothing else.
pub async fn serve(
    listener: TcpListener,
    tree: Arc<ZnodeTree>,
    config: ZkConfig,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let server = Arc::new(Server::new(tree, config, listener.local_addr()?.port()));
    let mut tasks = JoinSet::new();
    let mut tick = tokio::time::interval(Duration::from_millis(server.config.tick_ms.max(1)));
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            _ = tick.tick() => server.sessions.expire(Instant::now()),
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => start(&server, &mut tasks, stream, peer),
                Err(error) => {
                    tracing::warn!(%error, "ZooKeeper endpoint: accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    tasks.shutdown().await;
    Ok(())
}

fn start(server: &Arc<Server>, tasks: &mut JoinSet<()>, stream: TcpStream, peer: SocketAddr) {
    let Some(guard) = ConnectionGuard::take(server, peer) else {
        let refused = server.refused.fetch_add(1, Ordering::Relaxed) + 1;
        // Log at powers of two only: clients must not fill the log.
        if refused.is_power_of_two() {
            tracing::warn!(%peer, refused, "ZooKeeper endpoint: too many connections");
        }
        return;
    };
    tasks.spawn(async move {
        if let Err(error) = connection::serve(&guard.server, stream).await {
            tracing::debug!(%peer, %error, "ZooKeeper endpoint: connection ended");
        }
    });
}

/// State that connections share.
#[derive(Debug)]
pub(super) struct Server {
    tree: Arc<ZnodeTree>,
    config: ZkConfig,
    sessions: Sessions,
    /// Connections by address, each with a number: a port may be reused before its previous
    /// connection is removed.
    peers: Mutex<BTreeSet<(SocketAddr, u64)>>,
    accepted: AtomicU64,
    refused: AtomicU64,
    packets: AtomicU64,
    started: Instant,
    port: u16,
}

impl Server {
    fn new(tree: Arc<ZnodeTree>, config: ZkConfig, port: u16) -> Self {
        let sessions = Sessions::new(config.clock.now_ms(), config.session_secret, tree.client_bytes_max());
        let (peers, accepted, refused) = (Mutex::default(), AtomicU64::new(0), AtomicU64::new(0));
        let (packets, started) = (AtomicU64::new(0), Instant::now());
        Self { tree, config, sessions, peers, accepted, refused, packets, started, port }
    }

    pub(super) fn tree(&self) -> &ZnodeTree {
        &self.tree
    }

    pub(super) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    pub(super) fn packet_bytes_max(&self) -> usize {
        self.config.packet_bytes_max
    }

    pub(super) fn receive_timeout(&self) -> Duration {
        self.config.receive_timeout
    }

    pub(super) fn budgets(&self) -> &ConnectionBudgets {
        &self.config.budgets
    }

    pub(super) fn count_packet(&self) {
        self.packets.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the session timeout granted, in milliseconds.
    pub(super) fn negotiate(&self, asked_ms: i32) -> u64 {
        let asked_ms = u64::try_from(asked_ms).unwrap_or(0);
        asked_ms.min(self.config.session_timeout_max_ms).max(self.config.session_timeout_min_ms)
    }

    /// Returns the figures for four-letter words.
    pub(super) fn stats(&self) -> ServerStats {
        let packets = self.packets.load(Ordering::Relaxed);
        ServerStats {
            clients: self.peers.lock().iter().map(|(peer, _)| peer.to_string()).collect(),
            packets_received: packets,
            packets_sent: packets,
            zxid: self.tree.zxid(),
            nodes: self.tree.node_count(),
            watches: self.tree.watch_count(),
            data_bytes: self.tree.data_bytes(),
            sessions: self.sessions.count(),
            uptime_ms: self.started.elapsed().as_millis(),
            client_port: self.port,
            tick_ms: self.config.tick_ms,
            session_timeout_min_ms: self.config.session_timeout_min_ms,
            session_timeout_max_ms: self.config.session_timeout_max_ms,
            connections_per_address_max: self.config.connections_per_address_max,
        }
    }
}

/// A connection's place among the limits, released on drop.
struct ConnectionGuard {
    server: Arc<Server>,
    peer: (SocketAddr, u64),
}

impl ConnectionGuard {
    fn take(server: &Arc<Server>, peer: SocketAddr) -> Option<Self> {
        let mut peers = server.peers.lock();
        let per_address = match server.config.connections_per_address_max {
            0 => usize::MAX,
            limit => limit,
        };
        if peers.len() >= server.config.connections_max || count_of(&peers, peer.ip()) >= per_address {
            return None;
        }
        let peer = (peer, server.accepted.fetch_add(1, Ordering::Relaxed));
        peers.insert(peer);
        Some(Self { server: server.clone(), peer })
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.server.peers.lock().remove(&self.peer);
    }
}

fn count_of(peers: &BTreeSet<(SocketAddr, u64)>, address: IpAddr) -> usize {
    let (first, last) = (SocketAddr::new(address, 0), SocketAddr::new(address, u16::MAX));
    peers.range((first, 0)..=(last, u64::MAX)).count()
}
