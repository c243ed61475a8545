//! [`Ports`]: the three ports, taken before anything else is done, and what all their connections
//! together may take.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use evenkeel_common::length;
use evenkeel_common::{Configuration, HBaseError, Result};
use evenkeel_rpc::{Budget, InputBudget, RpcMetrics, RpcServer, RpcServerConfig};
use evenkeel_zookeeper::ConnectionBudgets;

use crate::bad;
use crate::connections::{self, ConnectionLimits};
use crate::info::InfoPorts;
use crate::settings::{self, Settings};

/// Ports that listen and do not answer yet.
pub(crate) struct Ports {
    pub zookeeper: TcpListener,
    pub master: RpcServer,
    pub regionserver: RpcServer,
    pub info: InfoPorts,
    /// What connections of all ports share.
    pub shared: Shared,
}

/// What connections of all ports share.
pub(crate) struct Shared {
    /// Bytes of requests and replies.
    pub budgets: ConnectionBudgets,
    pub limits: ConnectionLimits,
    /// Calls of both RPC ports: clients send those for the RegionServer to either.
    pub rpc_metrics: Arc<RpcMetrics>,
}

impl Shared {
    fn new(settings: &Settings, conf: &Configuration) -> Result<Self> {
        let memory = &settings.memory;
        // An eighth is for what is counted late: small replies, and those that are made at the same
        // time.
        let replies = Budget::new(memory.replies / 8 * 7);
        let budgets = ConnectionBudgets {
            input: InputBudget::of(memory.requests),
            requests: Budget::new(memory.requests),
            replies,
        };
        let limits = ConnectionLimits::new(conf, connections::raise_descriptors(), memory.reserve)?;
        let rpc_metrics = Arc::new(RpcMetrics::new(settings.ledger, settings.slow_log));
        Ok(Self { budgets, limits, rpc_metrics })
    }
}

impl Ports {
    /// Takes all three.
    ///
    /// # Errors
    /// One line that names the port that is taken, and its key.
    pub(crate) fn take(settings: &Settings, conf: &Configuration, cluster_id: &str) -> Result<Self> {
        let shared = Shared::new(settings, conf)?;
        let (zk, master, rs) = (settings.zookeeper_port, settings.master_port, settings.regionserver_port);
        let zookeeper = TcpListener::bind(SocketAddr::new(settings.bind_address, zk))
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(taken("ZooKeeper endpoint", zk, "hbase.zookeeper.property.clientPort"))?;
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let bind = |what, port, key, threads, connections_max| {
            let mut config = rpc_config(settings, conf, port, &shared.budgets)?;
            config.connection_threads = threads;
            config.connections_max = connections_max;
            config.metrics = Arc::clone(&shared.rpc_metrics);
            let id = cluster_id.to_owned();
            config.cluster_id = Arc::new(move || Some(id.clone()));
            RpcServer::bind(config).map_err(taken(what, port, key))
        };
        let limits = &shared.limits;
        Ok(Self {
            zookeeper,
            master: bind("master", master, "hbase.master.port", 1, limits.master)?,
            regionserver: bind("RegionServer", rs, "hbase.regionserver.port", cores, limits.regionserver)?,
            info: InfoPorts::take(settings, conf)?,
            shared,
        })
    }
}

/// The error of a port that cannot be listened on.
fn taken(what: &'static str, port: u16, key: &'static str) -> impl FnOnce(std::io::Error) -> HBaseError {
    move |e| HBaseError::io(format!("{what}: cannot listen on port {port} ({key}): {e}"))
}

/// What both RPC ports have in common.
fn rpc_config(
    settings: &Settings,
    conf: &Configuration,
    port: u16,
    budgets: &ConnectionBudgets,
) -> Result<RpcServerConfig> {
    let mut config = RpcServerConfig::at(SocketAddr::new(settings.bind_address, port));
    config.server_name = format!("{}:{port}", settings.host);
    // A request that never finds room is refused for good.
    let found_bytes_max = InputBudget::max_of(settings.memory.requests);
    let request_bytes_max = conf.get_size_or("hbase.ipc.max.request.size", 256 << 20).map_err(bad)?;
    config.request_bytes_max = length::index(request_bytes_max.max(1).unsigned_abs().min(found_bytes_max));
    config.inflight_bytes_max = settings.memory.requests;
    config.inflight = Some(Arc::clone(&budgets.requests));
    config.input = Some(Arc::clone(&budgets.input));
    config.unsent = Arc::clone(&budgets.replies);
    config.unsent_bytes_fatal = settings.memory.replies / 16 * 15;
    let watermark = |key: &str, default: usize| {
        let bytes = conf.get_i64_or(key, 0).map_err(bad)?;
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
