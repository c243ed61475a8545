//! [`RpcPort`]: an RPC port, bound early in the start; and [`PortBudgets`]: the limits that the
//! connections of all ports share.

use std::net::SocketAddr;
use std::sync::Arc;

use evenkeel_common::length;
use evenkeel_common::{Budget, Configuration, HBaseError, Result};
use evenkeel_rpc::{InputBudget, RpcMetrics, RpcServer, RpcServerConfig};
use evenkeel_zookeeper::ConnectionBudgets;

use crate::connections::{self, DescriptorLimits};
use crate::io_error;
use crate::settings::{self, Settings};

/// The limits that the connections of all ports share.
pub struct PortBudgets {
    /// The budgets of requests and replies.
    pub budgets: ConnectionBudgets,
    /// The parts of the file descriptors.
    pub limits: DescriptorLimits,
    /// The metrics of all RPC ports: clients send calls for the RegionServer to any of them.
    pub rpc_metrics: Arc<RpcMetrics>,
}

impl PortBudgets {
    /// Reads the settings, and raises the limit of open files.
    ///
    /// # Errors
    /// One line that names the key, its value and what was expected.
    pub fn new(settings: &Settings, conf: &Configuration) -> Result<Self> {
        let memory = &settings.memory;
        // An eighth is left for replies that are counted late: small ones, and those that are built
        // concurrently.
        let replies = Budget::new(memory.replies / 8 * 7);
        let budgets = ConnectionBudgets {
            input: InputBudget::of(memory.requests),
            requests: Budget::new(memory.requests),
            replies,
        };
        let limits = DescriptorLimits::new(conf, connections::raise_descriptors(), memory.reserve)?;
        let rpc_metrics = Arc::new(RpcMetrics::new(settings.ledger, settings.slow_log));
        Ok(Self { budgets, limits, rpc_metrics })
    }
}

/// An RPC port to bind.
pub struct RpcPort {
    /// The name of the server on it, for messages.
    pub server: &'static str,
    /// The port number.
    pub port: u16,
    /// The key that sets it.
    pub key: &'static str,
    /// The number of threads of its connections.
    pub threads: usize,
    /// The maximum number of connections.
    pub connections_max: usize,
}

/// Returns the id of the cluster, which a client may request first; `None` while it is unknown.
pub type ClusterId = Arc<dyn Fn() -> Option<String> + Send + Sync>;

impl RpcPort {
    /// The RegionServer's port, with a connection thread for each core.
    pub fn of_regionserver(settings: &Settings, shared: &PortBudgets) -> Self {
        Self {
            server: "RegionServer",
            port: settings.regionserver_port,
            key: "hbase.regionserver.port",
            threads: std::thread::available_parallelism().map_or(1, |n| n.get()),
            connections_max: shared.limits.regionserver,
        }
    }

    /// Binds the port: it listens but does not answer yet.
    ///
    /// # Errors
    /// One line that names the port that is taken, and its key.
    pub fn bind(
        self,
        settings: &Settings,
        conf: &Configuration,
        shared: &PortBudgets,
        cluster_id: ClusterId,
    ) -> Result<RpcServer> {
        let mut config = rpc_config(settings, conf, self.port, &shared.budgets)?;
        config.connection_threads = self.threads;
        config.connections_max = self.connections_max;
        config.metrics = Arc::clone(&shared.rpc_metrics);
        config.cluster_id = cluster_id;
        RpcServer::bind(config).map_err(bind_error(self.server, self.port, self.key))
    }
}

/// Returns the error for a port that cannot be bound.
pub fn bind_error(
    server: &'static str,
    port: u16,
    key: &'static str,
) -> impl FnOnce(std::io::Error) -> HBaseError {
    move |e| HBaseError::io(format!("{server}: cannot listen on port {port} ({key}): {e}"))
}

/// Returns the configuration that all RPC ports have in common.
fn rpc_config(
    settings: &Settings,
    conf: &Configuration,
    port: u16,
    budgets: &ConnectionBudgets,
) -> Result<RpcServerConfig> {
    let mut config = RpcServerConfig::at(SocketAddr::new(settings.bind_address, port));
    config.server_name = format!("{}:{port}", settings.host);
    // A request that can never fit into the input budget is rejected permanently.
    let found_bytes_max = InputBudget::max_of(settings.memory.requests);
    let request_bytes_max = conf.get_size_or("hbase.ipc.max.request.size", 256 << 20).map_err(io_error)?;
    config.request_bytes_max = length::index(request_bytes_max.max(1).unsigned_abs().min(found_bytes_max));
    config.inflight_bytes_max = settings.memory.requests;
    config.inflight = Some(Arc::clone(&budgets.requests));
    config.input = Some(Arc::clone(&budgets.input));
    config.unsent = Arc::clone(&budgets.replies);
    config.unsent_bytes_fatal = settings.memory.replies / 16 * 15;
    let watermark = |key: &str, default: usize| {
        let bytes = conf.get_i64_or(key, 0).map_err(io_error)?;
        Ok::<_, HBaseError>(usize::try_from(bytes).ok().filter(|bytes| *bytes > 0).unwrap_or(default))
    };
    config.connection_unsent_bytes_max =
        watermark("hbase.server.netty.writable.watermark.high", config.connection_unsent_bytes_max)?;
    config.connection_unsent_bytes_fatal =
        watermark("hbase.server.netty.writable.watermark.fatal", config.connection_unsent_bytes_fatal)?
            .max(config.connection_unsent_bytes_max);
    settings::set_sockets(conf, &mut config)?;
    connections::set_connections(conf, &mut config)?;
    Ok(config)
}
