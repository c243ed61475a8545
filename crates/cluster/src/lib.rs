//! A RegionServer under a stock master: with HBase's HMaster and ZooKeeper, and beside any number
//! of HBase's RegionServers.
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
//! **Authority.** The location of a region is the last transition report that the master has
//! accepted ([`transitions`]). ZooKeeper decides which servers are alive; this server measures with
//! its own clock how long it may rely on that ([`lease`]), and its storage changes nothing
//! afterwards ([`fenced_fs`]).
//!
//! **An abort** ([`abort`]) writes nothing and ends the process: another server splits the log. **A
//! stop** moves regions to other servers, closes the rest, and leaves no log behind ([`stop`]).
//!
//! **Region replicas** (`REGION_REPLICATION` above 1), also of hbase:meta, are opened as HBase
//! opens them: a secondary replica reads the files of the default replica.
//!
//! | module | contents |
//! |---|---|
//! | [`abort`] | ends a server that must not continue |
//! | [`fenced_fs`] | storage that a server changes only while it is alive |
//! | [`hot_blocks`] | tells another Evenkeel server which blocks of a region that moves are hot |
//! | [`lease`] | how long the server may count as alive |
//! | [`master`] | RPCs to the active master |
//! | [`pools`] | thread pools for the master's requests |
//! | [`procedures`] | executes the requests of ExecuteProcedures |
//! | `quotas` | reads the quotas from hbase:quota |
//! | `replica_flush` | requests flushes of default replicas for secondary replicas here |
//! | `replica_sender` | sends edits to secondary replicas on other servers |
//! | [`session`] | the ZooKeeper session and the state read from ZooKeeper |
//! | [`settings`] | settings of a cluster |
//! | `slow_log_table` | writes slow calls to hbase:slowlog |
//! | [`snapshot`] | a region's part of a snapshot |
//! | [`split_wal`] | splits logs of dead servers |
//! | [`start`] | the start, in eight steps |
//! | [`stop`] | the stop |
//! | [`submitted_procedures`] | detects procedures that the master sends twice |
//! | [`transitions`] | opens and closes regions |
//! | `zookeeper_procedures` | takes part in flushes and snapshots of older clients |

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::indexing_slicing))]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

pub mod abort;
pub mod fenced_fs;
pub mod hot_blocks;
pub mod lease;
pub mod master;
pub mod pools;
pub mod procedures;
mod quotas;
mod replica_flush;
mod replica_sender;
pub mod session;
pub mod settings;
mod slow_log_table;
pub mod snapshot;
pub mod split_wal;
pub mod start;
pub mod stop;
pub mod submitted_procedures;
pub mod transitions;
mod zookeeper_procedures;

use std::sync::Arc;
use std::time::Duration;

use evenkeel_common::{Configuration, Result, ServerName};
use evenkeel_process::ProcessControl;
use evenkeel_process::info::InfoServers;
use evenkeel_process::memory_trim::MemoryTrim;
use evenkeel_process::server::{Process, Storage};
use evenkeel_regionserver::RegionServer;
use evenkeel_regionserver::background::chore::Chore;
use evenkeel_regionserver::background::mob_cleaner::MobFileCleaner;
use evenkeel_rpc::{Executor, RpcServerHandle};
use evenkeel_status_pages::Sampler;

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
    mob_cleaner: Option<MobFileCleaner>,
    memory_trim: MemoryTrim,
    info: InfoServers,
    /// Maintains the history of the status pages.
    sampler: Sampler,
    started_in: Duration,
}

impl ClusterServer {
    /// Starts a server; returns once it is registered with the master. Waits for ZooKeeper and a
    /// master.
    ///
    /// # Errors
    /// Returns a one-line error that names the obstacle.
    pub fn start(conf: Configuration, process: ProcessControl) -> Result<Self> {
        start::start(conf, process)
    }

    /// This server's name.
    pub fn name(&self) -> &ServerName {
        &self.name
    }

    /// Returns a summary of the start, in one line.
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
