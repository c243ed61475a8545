//! Settings of the RPC server, each with the HBase key it comes from.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_common::Budget;
use evenkeel_common::thread::Supervisor;

use crate::connection::InputBudget;
use crate::metrics::RpcMetrics;

/// Answers the cluster id for the registry preamble; `None` while it is not known yet.
pub type ClusterId = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Limits and addresses of one RPC server. Every limit is finite; [`RpcServerConfig::check`]
/// refuses a set of limits under which no call could run.
#[derive(Clone)]
pub struct RpcServerConfig {
    /// Where to listen; port 0 takes any free port.
    pub address: SocketAddr,
    /// How this server calls itself in messages to clients, `host:port` usually.
    pub server_name: String,
    /// Threads that own connections; default: one for each core.
    pub connection_threads: usize,
    /// Longest request frame: `hbase.ipc.max.request.size`.
    pub request_bytes_max: usize,
    /// Bytes of requests being received or running, of all connections:
    /// `hbase.ipc.server.max.callqueue.size`. Beyond it calls are answered with
    /// CallQueueTooBigException.
    pub inflight_bytes_max: u64,
    /// Where these bytes are counted; servers that share it have its limit together. One of
    /// `inflight_bytes_max` when `None`.
    pub inflight: Option<Arc<Budget>>,
    /// Where input is counted that is no whole request yet; servers that share it have its limit
    /// together. One of `inflight_bytes_max` when `None`.
    pub input: Option<Arc<InputBudget>>,
    /// Calls running or queued, of all connections. Beyond it: CallQueueTooBigException.
    pub inflight_calls_max: u64,
    /// Calls of one connection that run at the same time; then its requests wait in the socket.
    pub connection_calls_max: usize,
    /// Request bytes of one connection that are in flight before its further requests wait in the
    /// socket.
    pub connection_inflight_bytes_max: usize,
    /// Replies of one connection not yet taken by its client; then its requests wait in the socket:
    /// `hbase.server.netty.writable.watermark.high`.
    pub connection_unsent_bytes_max: usize,
    /// Replies of one connection not yet taken by its client; beyond it the connection is closed.
    /// It can pass the limit above only by calls that were running already:
    /// `hbase.server.netty.writable.watermark.fatal`.
    pub connection_unsent_bytes_fatal: usize,
    /// Replies not yet taken by clients, of all connections; servers may share one. A connection
    /// whose client does not take its replies may hold an eighth of what the others leave, and one
    /// reply more; a reply that finds no room becomes a CallQueueTooBigException. So however many
    /// such clients there are, there is room for small replies to others.
    pub unsent: Arc<Budget>,
    /// Small replies find room beyond that, and so do some that are made at the same time. A
    /// connection whose client does not take a reply that brings all of them beyond this is closed.
    pub unsent_bytes_fatal: u64,
    /// When less than a quarter of `unsent` is free, a connection whose client has not taken a byte
    /// of its replies for so long is closed.
    pub unsent_stall_max: Duration,
    /// Open connections; further ones are closed on arrival. Idle ones are closed before that, the
    /// longest idle first, once all but a 16th of these are open.
    pub connections_max: usize,
    /// When connections that nobody uses are closed.
    pub idle: IdleConfig,
    /// A client's timeout is raised to this: `hbase.ipc.min.client.request.timeout`.
    pub client_timeout_min: Duration,
    /// How long a connection may take until its ConnectionHeader is there.
    pub handshake_timeout: Duration,
    /// How long a request may take from its first byte to its last, beside what its bytes take at
    /// 64 KiB a second.
    pub receive_timeout: Duration,
    /// Connections waiting to be accepted: `hbase.ipc.server.listen.queue.size`.
    pub listen_backlog: u32,
    /// `hbase.ipc.server.tcpnodelay`.
    pub tcp_no_delay: bool,
    /// `hbase.ipc.server.tcpkeepalive`.
    pub tcp_keep_alive: bool,
    /// The cluster id, for clients that ask before they authenticate.
    pub cluster_id: ClusterId,
    /// Where calls are counted; servers may share one.
    pub metrics: Arc<RpcMetrics>,
    /// Hears of the death of the server's threads.
    pub supervisor: Supervisor,
}

/// When connections are closed that nobody uses: without a call, an unfinished request, an unread
/// reply or an open scanner. Nothing is closed as long as few are open. HBase's keys, those of its
/// SimpleRpcServer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleConfig {
    /// Fewer open connections are left alone: `hbase.ipc.client.idlethreshold`.
    pub threshold: usize,
    /// How long one may be idle: twice `hbase.ipc.client.connection.maxidletime`.
    pub time_max: Duration,
    /// Connections closed in one scan at most: `hbase.ipc.client.kill.max`.
    pub closed_max: usize,
    /// Time between scans: `hbase.ipc.client.connection.idle-scan-interval.ms`.
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
    /// HBase's defaults, listening at `address`.
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

    /// Refuses limits under which nothing could run, or that contradict each other.
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
            return Err("request_bytes_max passes what a frame's length can say".to_owned());
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
