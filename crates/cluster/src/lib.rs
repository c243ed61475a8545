//! A RegionServer under a stock master: HBase's own HMaster and ZooKeeper, and as many of HBase's
//! RegionServers beside it as there are.
//!
//! ```text
//!            ZooKeeper                              HMaster
//!        session: znode, watches     status service |    | AdminService
//!                    |               reports, results    | ExecuteProcedures
//!   lease <- session + <- master (ClusterConnection)     v
//!     |                        ^                    procedures -> transitions, split_wal, snapshot
//!     v                        |                                      |
//!   fenced_fs (all storage)    +----------- RegionServer <------------+
//! ```
//!
//! **Who is believed.** The master has a region where the last report of a transition says
//! ([`transitions`]). ZooKeeper says who is alive; this server counts by its own clock how long
//! that may be taken to hold ([`lease`]), and its storage changes nothing afterwards
//! ([`fenced_fs`]).
//!
//! **An abort** ([`abort`]) writes nothing and ends the process: the log is split by another
//! server. **A stop** gives regions to others, closes the rest, and leaves no log behind
//! ([`stop`]).
//!
//! **Replicas of regions** (`REGION_REPLICATION` above 1): only the first is opened here; the open
//! of another fails with the reason in this server's log, and the master tries another server.
//!
//! | module | contents |
//! |---|---|
//! | [`abort`] | the end of a server that must not go on |
//! | [`duplicates`] | procedures that the master sends twice |
//! | [`fenced_fs`] | storage that a server changes only while it is alive |
//! | [`lease`] | until when it may be taken to be alive |
//! | [`master`] | calls to the active master |
//! | [`pools`] | threads for what the master asks |
//! | [`procedures`] | what the master asks by ExecuteProcedures |
//! | [`session`] | the ZooKeeper session and what is read there |
//! | [`settings`] | settings of a cluster |
//! | [`snapshot`] | a region's part of a snapshot |
//! | [`split_wal`] | logs of dead servers |
//! | [`start`] | the start, in eight steps |
//! | [`stop`] | the stop |
//! | [`transitions`] | regions opened and closed |

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

pub mod abort;
pub mod duplicates;
pub mod fenced_fs;
pub mod lease;
pub mod master;
pub mod pools;
pub mod procedures;
pub mod session;
pub mod settings;
pub mod snapshot;
pub mod split_wal;
pub mod start;
pub mod stop;
pub mod transitions;

use std::sync::Arc;
use std::time::Duration;

use evenkeel_common::{Configuration, Result, ServerName};
use evenkeel_process::ProcessControl;
use evenkeel_process::info::InfoServers;
use evenkeel_process::memory_trim::MemoryTrim;
use evenkeel_process::server::{Process, Storage};
use evenkeel_regionserver::RegionServer;
use evenkeel_regionserver::background::chore::Chore;
use evenkeel_rpc::{Executor, RpcServerHandle};

use crate::abort::Abort;
use crate::session::Session;
use crate::settings::ClusterSettings;
use crate::start::Connections;
use crate::transitions::Transitions;

/// A running RegionServer of a cluster.
pub struct ClusterServer {
    process: Process,
    cluster: ClusterSettings,
    name: ServerName,
    storage: Storage,
    regionserver: Arc<RegionServer>,
    transitions: Arc<Transitions>,
    session: Arc<Session>,
    abort: Arc<Abort>,
    connections: Connections,
    rpc: RpcServerHandle,
    executor: Arc<Executor>,
    chore: Chore,
    memory_trim: MemoryTrim,
    info: InfoServers,
    started_in: Duration,
}

impl ClusterServer {
    /// Starts a server; returns when the master knows it. Waits for ZooKeeper and a master.
    ///
    /// # Errors
    /// One line that names the obstacle.
    pub fn start(conf: Configuration, process: ProcessControl) -> Result<Self> {
        start::start(conf, process)
    }

    /// This server's name.
    pub fn name(&self) -> &ServerName {
        &self.name
    }

    /// What was started, in one line.
    pub fn summary(&self) -> String {
        format!("joined the cluster as {}", self.name)
    }

    /// The text shown to the operator after a start.
    pub fn screen(&self) -> String {
        let master =
            self.session.view().active_master.as_ref().map_or("none".to_owned(), ServerName::host_port);
        let pages: String =
            self.info.addresses().map(|at| format!("\x20 pages                http://{at}/\n")).collect();
        format!(
            "Evenkeel {version}, RegionServer, as HBase {hbase}\n\
             \n\
             \x20 server               {name}\n\
             \x20 ZooKeeper            {zk}\n\
             \x20 master               {master}\n\
             {pages}\x20 data                 {root}\n\
             \x20 joined in            {ms} ms\n\
             \n\
             \x20 stop                 Ctrl-C, or kill {pid}\n",
            version = env!("CARGO_PKG_VERSION"),
            hbase = self.regionserver.config().version,
            name = self.name,
            zk = self.cluster.quorum,
            root = self.process.settings.root.display(),
            ms = self.started_in.as_millis(),
            pid = std::process::id(),
        )
    }

    /// How long a stop may take (`evenkeel.shutdown.timeout.ms`).
    pub fn shutdown_timeout(&self) -> Duration {
        self.process.settings.shutdown_timeout
    }
}
