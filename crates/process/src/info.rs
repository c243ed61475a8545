//! The info ports: HTTP for operators and monitoring, one port for the RegionServer and one for the
//! master, as in HBase.
//!
//! A port of -1 is not opened. A port that is set must be free. Otherwise the default is used, or
//! any free port if the default is taken or the RPC port is any free port
//! (`hbase.regionserver.info.port.auto`), so that a second server on a machine has pages, too. The
//! default address is that of the RPC ports, which is loopback; HBase's default is all addresses.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use evenkeel_common::clock::{Clock, SystemClock};
use evenkeel_common::thread::Supervisor;
use evenkeel_common::{Configuration, CurrentConfiguration, Result, length};
use evenkeel_info_server::{
    InfoServer, InfoServerHandle, Limits, LogLevels, Request, Response, Routes, StandardPages,
    UNSENT_BYTES_MAX,
};
use evenkeel_metrics::Registry;
use evenkeel_metrics::sink::{PeriodicSinks, slow_requests};
use evenkeel_rpc::RpcMetrics;

use crate::settings::Settings;
use crate::{io_error, metrics_sinks, security};

/// The responses of an info port that were not read yet have this fraction (1/`UNSENT_DIVISOR`) of
/// the memory.
const UNSENT_DIVISOR: u64 = 64;

/// Whether a free port is used if the configured one is taken.
const AUTO: &str = "hbase.regionserver.info.port.auto";

/// The settings of an info port.
struct Keys {
    port: &'static str,
    address: &'static str,
}

const REGIONSERVER: Keys =
    Keys { port: "hbase.regionserver.info.port", address: "hbase.regionserver.info.bindAddress" };
const MASTER: Keys = Keys { port: "hbase.master.info.port", address: "hbase.master.info.bindAddress" };

/// Info ports that listen but do not answer yet. `None` for a port that is switched off.
pub struct InfoPorts {
    regionserver: Option<InfoServer>,
    master: Option<InfoServer>,
}

/// The numbers of the info ports; 0 for none.
#[derive(Clone, Copy, Debug)]
pub struct InfoPortNumbers {
    /// The RegionServer's port.
    pub regionserver: u16,
    /// The master's port.
    pub master: u16,
}

impl InfoPorts {
    /// Binds both ports.
    ///
    /// # Errors
    /// One line that names the port that is taken and its key, or a value that is no port number.
    pub fn take(settings: &Settings, conf: &Configuration) -> Result<Self> {
        Ok(Self {
            regionserver: bind(&REGIONSERVER, settings.regionserver_port == 0, settings, conf)?,
            master: bind(&MASTER, settings.master_port == 0, settings, conf)?,
        })
    }

    /// Binds only the RegionServer's port.
    ///
    /// # Errors
    /// As [`InfoPorts::take`].
    pub fn take_regionserver(settings: &Settings, conf: &Configuration) -> Result<Self> {
        let regionserver = bind(&REGIONSERVER, settings.regionserver_port == 0, settings, conf)?;
        Ok(Self { regionserver, master: None })
    }

    /// Returns the RegionServer's port; 0 for none.
    pub fn regionserver_port(&self) -> u16 {
        self.numbers().regionserver
    }

    /// Returns the numbers of both ports.
    pub fn numbers(&self) -> InfoPortNumbers {
        let number = |port: &Option<InfoServer>| port.as_ref().map_or(0, |port| port.address().port());
        InfoPortNumbers { regionserver: number(&self.regionserver), master: number(&self.master) }
    }
}

fn bind(keys: &Keys, is_any: bool, settings: &Settings, conf: &Configuration) -> Result<Option<InfoServer>> {
    let port = conf.get_i64_or(keys.port, 0).map_err(io_error)?;
    if port == -1 {
        return Ok(None);
    }
    let port =
        u16::try_from(port).map_err(|_| io_error(conf.unusable(keys.port, "a port, or -1 for none")))?;
    let ip = address(keys, settings, conf)?;
    if let Some(exposure) = security::page_exposure(ip, settings.bind_address) {
        tracing::warn!("{exposure}");
    }
    let is_set = conf.is_set(keys.port) && !conf.get_bool_or(AUTO, false).map_err(io_error)?;
    let bound = match is_any && !is_set {
        true => InfoServer::bind(SocketAddr::new(ip, 0)),
        false => InfoServer::bind(SocketAddr::new(ip, port)),
    };
    let bound = match bound {
        Err(error) if !is_set => {
            tracing::info!(port, %error, "the info port is in use; another one is used");
            InfoServer::bind(SocketAddr::new(ip, 0))
        }
        bound => bound,
    };
    let unsent_bytes = length::index(settings.memory.memory / UNSENT_DIVISOR).min(UNSENT_BYTES_MAX);
    let limits = Limits { unsent_bytes, ..Limits::default() };
    bound
        .map(|bound| Some(bound.with_limits(limits)))
        .map_err(|e| io_error(format!("info server: cannot listen on port {port} ({}): {e}", keys.port)))
}

fn address(keys: &Keys, settings: &Settings, conf: &Configuration) -> Result<IpAddr> {
    let set =
        if conf.is_set(keys.address) { conf.get_trimmed(keys.address).map_err(io_error)? } else { None };
    match set.as_deref() {
        None => Ok(settings.bind_address),
        Some("localhost") => Ok(IpAddr::from([127, 0, 0, 1])),
        Some(address) => address.parse().map_err(|_| io_error(conf.unusable(keys.address, "an IP address"))),
    }
}

/// The contents of the pages on both ports.
pub struct InfoParts {
    /// The sources of metrics.
    pub registry: Arc<Registry>,
    /// The settings in force.
    pub conf: Arc<CurrentConfiguration>,
    /// The interface to change log levels.
    pub log_levels: Arc<dyn LogLevels>,
    /// The server's host name.
    pub hostname: String,
    /// The metrics of the RPC ports' calls, with the slow ones.
    pub rpc_metrics: Arc<RpcMetrics>,
    /// The source of `/ready`.
    pub readiness: Arc<dyn evenkeel_info_server::Readiness>,
}

impl InfoParts {
    fn routes(&self, home: &str) -> Routes {
        let pages = StandardPages {
            registry: Arc::clone(&self.registry),
            hostname: self.hostname.clone(),
            configuration: Arc::clone(&self.conf),
            log_levels: Arc::clone(&self.log_levels),
            readiness: Arc::clone(&self.readiness),
            home: home.to_owned(),
        };
        let rpc_metrics = Arc::clone(&self.rpc_metrics);
        let slow = move |_: &Request| {
            let document = slow_requests::document(&rpc_metrics.ledger);
            Response::ok("application/json;charset=utf-8", document)
        };
        pages.routes().page("/slow.json", Arc::new(slow))
    }
}

/// The info servers of a process, each with the path of its home page, and the sinks that export
/// its metrics. All of them end when this is dropped.
pub struct InfoServers {
    servers: Vec<(InfoServerHandle, &'static str)>,
    sinks: OnceLock<PeriodicSinks>,
}

impl InfoServers {
    /// Starts to answer before the process serves clients, with the pages that every process has,
    /// so that `/ready` reports the progress of the start.
    ///
    /// # Errors
    /// I/O error if a thread cannot be started.
    pub fn start(ports: InfoPorts, parts: &InfoParts, supervisor: &Supervisor) -> Result<Self> {
        let ports = [(ports.regionserver, "/rs-status"), (ports.master, "/master-status")];
        let servers = ports.into_iter().filter_map(|(port, home)| Some((port?, home)));
        let routes = || parts.routes("/ready");
        let started = servers.map(|(port, home)| Ok((port.serve(routes(), supervisor)?, home)));
        Ok(Self { servers: started.collect::<std::io::Result<_>>()?, sinks: OnceLock::new() })
    }

    /// Serves all pages from here on, and starts the sinks. `pages` are added to both ports.
    ///
    /// # Errors
    /// I/O error if a thread of a sink cannot be started.
    pub fn serve(&self, parts: &InfoParts, pages: impl Fn(Routes) -> Routes) -> Result<()> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let sinks = metrics_sinks::start(&parts.conf.get(), &parts.registry, &parts.hostname, &clock)?;
        drop(self.sinks.set(sinks));
        self.servers.iter().for_each(|(server, home)| server.set_routes(pages(parts.routes(home))));
        Ok(())
    }

    /// Returns the addresses of the info servers.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.servers.iter().map(|(server, _)| server.address())
    }
}
