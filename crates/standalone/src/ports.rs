//! [`Ports`]: the three ports, bound early in the start.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use evenkeel_common::{Configuration, Result};
use evenkeel_process::Settings;
use evenkeel_process::info::{InfoPortNumbers, InfoPorts};
use evenkeel_process::ports::{PortBudgets, RpcPort, bind_error};
use evenkeel_rpc::RpcServer;

/// Ports that listen and do not answer yet.
pub(crate) struct Ports {
    pub zookeeper: TcpListener,
    pub master: RpcServer,
    pub regionserver: RpcServer,
    pub info: InfoPortNumbers,
    /// The limits that the connections of all ports share.
    pub shared: PortBudgets,
}

impl Ports {
    /// Binds all three, and the info ports.
    ///
    /// # Errors
    /// One line that names the port that is taken, and its key.
    pub(crate) fn take(
        settings: &Settings,
        conf: &Configuration,
        cluster_id: &str,
    ) -> Result<(Self, InfoPorts)> {
        let shared = PortBudgets::new(settings, conf)?;
        let zk = settings.zookeeper_port;
        let zookeeper = TcpListener::bind(SocketAddr::new(settings.bind_address, zk))
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(bind_error("ZooKeeper endpoint", zk, "hbase.zookeeper.property.clientPort"))?;
        let id = cluster_id.to_owned();
        let bind = |port: RpcPort| {
            let id = id.clone();
            port.bind(settings, conf, &shared, Arc::new(move || Some(id.clone())))
        };
        let master = bind(RpcPort {
            server: "master",
            port: settings.master_port,
            key: "hbase.master.port",
            threads: 1,
            connections_max: shared.limits.master,
        })?;
        let regionserver = bind(RpcPort::of_regionserver(settings, &shared))?;
        let info = InfoPorts::take(settings, conf)?;
        Ok((Self { zookeeper, master, regionserver, info: info.numbers(), shared }, info))
    }
}
