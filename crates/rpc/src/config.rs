//! Configuration of the RPC server, with the HBase keys.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_common::Budget;
use evenkeel_common::thread::Supervisor;

use crate::connection::InputBudget;
use crate::metrics::RpcMetrics;

/// Returns the cluster id for the registry preamble; `None` while it is unknown.
pub type ClusterId = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Limits and addresses of one RPC server. Every limit is finite; [`RpcServerConfig::check`]
/// refuses limits under which no call could run.
#[derive(Clone)]
pub struct RpcServerConfig {
    /// The address to listen on; port 0 takes any free port.
    pub address: SocketAddr,
    /// The name of this server in messages to clients, usually `host:port`.
    pub server_name: String,
    /// Threads that own connections; default: one per core.
    pub connection_threads: usize,
    /// Size limit of a request frame: `hbase.ipc.max.request.size`.
    pub request_bytes_max: usize,
    /// Limit of the bytes of requests that are being received or run, and of what the server keeps
    /// for each, over all connections: `hbase.ipc.server.max.callqueue.size`. Above it calls are
    /// answered with CallQueueTooBigException. A connection with many requests is not read while it
    /// has more of the budget than is free beyond a quarter.
    pub inflight_bytes_max: u64,
    /// The budget for these bytes, which servers may share. `None`: a budget of
    /// `inflight_bytes_max`.
    pub inflight: Option<Arc<Budget>>,
    /// The budget for incomplete requests, which servers may share. `None`: that of
    /// `inflight_bytes_max`.
    pub input: Option<Arc<InputBudget>>,
    /// Limit of running or queued calls, over all connections; above it: CallQueueTooBigException.
    /// A connection with many is not read while it has more of them than are free beyond a quarter.
    pub inflight_calls_max: u64,
    /// Limit of running calls of one connection; above it, its requests wait in the socket.
    pub connection_calls_max: usize,
    /// Limit of request bytes in flight of one connection; above it, its requests wait in the
    /// socket.
    pub connection_inflight_bytes_max: usize,
    /// Limit of unsent reply bytes of one connection; above it, its requests wait in the socket:
    /// `hbase.server.netty.writable.watermark.high`.
    pub connection_unsent_bytes_max: usize,
    /// Unsent reply bytes of one connection above which it is closed:
    /// `hbase.server.netty.writable.watermark.fatal`. Only calls that are already running can raise
    /// it above the previous limit.
    pub connection_unsent_bytes_fatal: usize,
    /// Budget of unsent replies, over all connections; servers may share one. A connection whose
    /// client does not take its replies may hold an eighth of the free part, plus one reply. A
    /// reply that does not fit becomes a CallQueueTooBigException. So small replies to other
    /// clients fit, however many such clients there are.
    pub unsent: Arc<Budget>,
    /// Small replies, and some replies that are made at the same time, can exceed `unsent`. If the
    /// total of all connections exceeds this value, a connection that cannot send its replies
    /// immediately is closed.
    pub unsent_bytes_fatal: u64,
    /// If less than a quarter of `unsent` is free, a connection is closed when its client has not
    /// taken a byte of its replies for this long.
    pub unsent_stall_max: Duration,
    /// Limit of open connections; further ones are closed on arrival. Once all but a 16th of the
    /// places are taken, idle connections are closed, those that are idle longest first.
    pub connections_max: usize,
    /// When idle connections are closed.
    pub idle: IdleConfig,
    /// Lower bound of a client's timeout: `hbase.ipc.min.client.request.timeout`.
    pub client_timeout_min: Duration,
    /// Time limit for the ConnectionHeader to arrive.
    pub handshake_timeout: Duration,
    /// Time limit from the first to the last byte of a request, plus the transfer time of its bytes
    /// at 64 KiB a second.
    pub receive_timeout: Duration,
    /// Connections that wait to be accepted: `hbase.ipc.server.listen.queue.size`.
    pub listen_backlog: u32,
    /// `hbase.ipc.server.tcpnodelay`.
    pub tcp_no_delay: bool,
    /// `hbase.ipc.server.tcpkeepalive`.
    pub tcp_keep_alive: bool,
    /// The cluster id, for clients that request it before they authenticate.
    pub cluster_id: ClusterId,
    /// The metrics that count calls; servers may share them.
    pub metrics: Arc<RpcMetrics>,
    /// Is notified when a thread of the server dies.
    pub supervisor: Supervisor,
}

/// When idle connections are closed. A connection is idle if it has no call, incomplete request,
/// unread reply or open scanner. No connection is closed while few are open. The keys are those of
/// HBase's SimpleRpcServer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleConfig {
    /// With fewer open connections none is closed: `hbase.ipc.client.idlethreshold`.
    pub threshold: usize,
    /// How long a connection may be idle: twice `hbase.ipc.client.connection.maxidletime`.
    pub time_max: Duration,
    /// Limit of connections closed in one scan: `hbase.ipc.client.kill.max`.
    pub closed_max: usize,
    /// Interval between scans: `hbase.ipc.client.connection.idle-scan-interval.ms`.
    pub scan_interval: Duration,
}

impl Default for IdleConfig {
    fn default() -> Self {
        IdleConfig {
            threshold: 4000,
            time_max: Duration::from_secs(20),
            closed_max: 10,
            scan_interval: Duration::from_secs(10),
        }
    }
}

impl RpcServerConfig {
    /// HBase's defaults, listening on `address`.
    pub fn at(address: SocketAddr) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        RpcServerConfig {
            address,
            server_name: address.to_string(),
            connection_threads: cores,
            request_bytes_max: 256 << 20,
            inflight_bytes_max: 1 << 30,
            inflight: None,
            input: None,
            inflight_calls_max: 64 << 10,
            connection_calls_max: 4096,
            connection_inflight_bytes_max: 256 << 20,
            connection_unsent_bytes_max: 16 << 20,
            connection_unsent_bytes_fatal: 1 << 30,
            unsent: Budget::new(2 << 30),
            unsent_bytes_fatal: 3 << 30,
            unsent_stall_max: Duration::from_secs(10),
            connections_max: 64 << 10,
            idle: IdleConfig::default(),
            client_timeout_min: Duration::from_millis(20),
            handshake_timeout: Duration::from_secs(20),
            receive_timeout: Duration::from_secs(30),
            listen_backlog: 128,
            tcp_no_delay: true,
            tcp_keep_alive: true,
            cluster_id: Arc::new(|| None),
            metrics: Arc::default(),
            supervisor: Supervisor::log_only(),
        }
    }

    /// Refuses limits that contradict each other or under which no call could run.
    pub fn check(&self) -> Result<(), String> {
        let positive = [
            ("connection_threads", self.connection_threads as u64),
            ("request_bytes_max", self.request_bytes_max as u64),
            ("inflight_bytes_max", self.inflight_bytes_max),
            ("inflight_calls_max", self.inflight_calls_max),
            ("connection_calls_max", self.connection_calls_max as u64),
            ("connection_inflight_bytes_max", self.connection_inflight_bytes_max as u64),
            ("connection_unsent_bytes_max", self.connection_unsent_bytes_max as u64),
            ("connections_max", self.connections_max as u64),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(format!("{name} must be positive"));
        }
        if self.request_bytes_max > i32::MAX as usize {
            return Err("request_bytes_max exceeds what a frame's length can be".to_owned());
        }
        if self.connection_unsent_bytes_fatal < self.connection_unsent_bytes_max {
            return Err("connection_unsent_bytes_fatal is below connection_unsent_bytes_max".to_owned());
        }
        Ok(())
    }
}

impl fmt::Debug for RpcServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RpcServerConfig")
            .field("address", &self.address)
            .field("connection_threads", &self.connection_threads)
            .field("request_bytes_max", &self.request_bytes_max)
            .field("inflight_bytes_max", &self.inflight_bytes_max)
            .finish_non_exhaustive()
    }
}
