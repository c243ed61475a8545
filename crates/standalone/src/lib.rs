//! A whole HBase in one process: RegionServer, embedded master and the ZooKeeper endpoint, over one
//! directory.
//!
//! **Start** has nine steps, see `start`.
//!
//! **Death of a thread** ([`evenkeel_common::thread`]) or failure of a WAL stops the process.
//! [`Standalone::stop_with`] then returns the reason as its error.
//!
//! **Stop**: reject calls, finish changes under way, flush and close regions (hbase:meta last),
//! close the WALs, remove their directory.
//!
//! | module | contents |
//! |---|---|
//! | `endpoint` | the ZooKeeper endpoint's thread |
//! | `files` | `hbase.version`, `hbase.id` |
//! | `master_pages` | the master, as the status pages show it |
//! | `master_store` | what a stock master needs to take over the directory |
//! | `ports` | the three ports |
//! | `start` | the nine steps of a start |
//! | `wal_dir` | the directory of the logs: `hbase.wal.dir` |
//!
//! The parts shared with a RegionServer of a cluster are in [`evenkeel_process`].

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::indexing_slicing))]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

mod endpoint;
mod files;
mod master_pages;
mod master_store;
mod ports;
mod start;
mod wal_dir;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_common::{Configuration, HBaseError, Result, ServerName};
use evenkeel_fs::{DirLock, FileSystem};
use evenkeel_master::chore::MasterChore;
use evenkeel_master::{Master, recovery};
use evenkeel_process::info::InfoServers;
use evenkeel_process::memory_trim::MemoryTrim;
use evenkeel_process::memory_use::MemoryMeter;
use evenkeel_process::readiness::Readiness;
use evenkeel_process::wals::Wals;
pub use evenkeel_process::{
    ConfigurationSource, LogLevels, MemoryPlan, MemoryUse, ProcessControl, Settings, StopProgress,
    StopRequest,
};
use evenkeel_process::{FailureReason, security, storage};
use evenkeel_region::region::Region;
use evenkeel_regionserver::RegionServer;
use evenkeel_regionserver::background::chore::Chore;
use evenkeel_rpc::{Executor, RpcServerHandle};
use evenkeel_status_pages::Sampler;

use self::endpoint::ZooKeeperThread;
pub use self::wal_dir::recorded_wal_dir;

/// The time limit for calls under way when the server stops.
const CALLS_GRACE: Duration = Duration::from_secs(5);

/// A running server.
pub struct Standalone {
    settings: Settings,
    name: ServerName,
    master: Arc<Master>,
    regionserver: Arc<RegionServer>,
    wals: Wals,
    /// The URI of the directory of the logs, if that is not the root directory.
    wal_dir: Option<String>,
    memory: MemoryMeter,
    rpc: Vec<RpcServerHandle>,
    executor: Arc<Executor>,
    chore: Chore,
    master_chore: MasterChore,
    memory_trim: MemoryTrim,
    zookeeper: ZooKeeperThread,
    recovered: recovery::Recovered,
    started_in: Duration,
    /// Why the server must stop, if it must.
    failure: FailureReason,
    info: InfoServers,
    /// Maintains the history of the status pages.
    sampler: Sampler,
    readiness: Arc<Readiness>,
    /// The locks of the root directory and of the directory of the logs.
    _locks: Vec<DirLock>,
}

impl Standalone {
    /// Starts a server and returns when it answers.
    ///
    /// # Errors
    /// One line that gives the reason.
    pub fn start(conf: Configuration, stop: StopRequest) -> Result<Self> {
        Self::start_on(storage::root_file_system(&conf)?, conf, stop)
    }

    /// As [`Standalone::start`], on a given file system. `hbase.rootdir` must be a directory of
    /// this and of the file system that it names.
    ///
    /// # Errors
    /// As [`Standalone::start`].
    pub fn start_on(fs: Arc<dyn FileSystem>, conf: Configuration, stop: StopRequest) -> Result<Self> {
        start::start(fs, conf, ProcessControl::fixed(stop))
    }

    /// As [`Standalone::start`], in a process whose settings and log levels can be changed while it
    /// runs.
    ///
    /// # Errors
    /// As [`Standalone::start`].
    pub fn start_with(conf: Configuration, process: ProcessControl) -> Result<Self> {
        start::start(storage::root_file_system(&conf)?, conf, process)
    }

    /// Returns the addresses of the info ports.
    pub fn info_addresses(&self) -> Vec<SocketAddr> {
        self.info.addresses().collect()
    }

    /// Returns one line about the started server.
    pub fn summary(&self) -> String {
        let regions = self.regionserver.regions().len();
        format!("serves {regions} regions of {} as {}", self.settings.root.display(), self.name)
    }

    /// Returns the text that is shown to the operator after a start.
    pub fn screen(&self) -> String {
        let s = &self.settings;
        let regions = self.regionserver.regions().len();
        let tables = self.master.tables().iter().filter(|t| !t.descriptor.name().is_system()).count();
        let replay = match self.recovered.entries {
            0 => String::new(),
            n => format!(", {n} log entries of {} bytes replayed", self.recovered.bytes),
        };
        format!(
            "Evenkeel {version}, standalone, as HBase {hbase}\n\
             \n\
             \x20 ZooKeeper endpoint   {host}:{zk}\n\
             \x20 master               {host}:{master}\n\
             \x20 RegionServer         {host}:{rs}\n\
             {info}\x20 data                 {root}\n{logs}\
             \x20 opened               {tables} tables, {regions} regions in {ms} ms{replay}\n\
             \n\
             \x20 connect              hbase shell            (finds {host}:{zk} by default when that is 2181)\n\
             \x20                      or set hbase.zookeeper.quorum={host}, hbase.zookeeper.property.clientPort={zk}\n\
             \x20 stop                 Ctrl-C, or kill {pid}\n{exposure}",
            version = env!("CARGO_PKG_VERSION"),
            hbase = evenkeel_regionserver::HBASE_VERSION,
            host = s.host,
            info = self.info_lines(),
            zk = s.zookeeper_port,
            master = s.master_port,
            rs = s.regionserver_port,
            root = s.root.display(),
            logs = self
                .wal_dir
                .iter()
                .map(|dir| format!("\x20 logs                 {dir}\n"))
                .collect::<String>(),
            ms = self.started_in.as_millis(),
            pid = std::process::id(),
            exposure = self.exposures(),
        )
    }

    fn exposures(&self) -> String {
        let bound = self.settings.bind_address;
        let pages = self.info.addresses().filter_map(|at| security::page_exposure(at.ip(), bound));
        let warnings = security::exposure(bound).into_iter().chain(pages);
        warnings.map(|what| format!("\n\x20 WARNING              {what}\n")).collect()
    }

    fn info_lines(&self) -> String {
        self.info.addresses().map(|at| format!("\x20 pages                http://{at}/\n")).collect()
    }

    /// Returns the server's name.
    pub fn name(&self) -> &ServerName {
        &self.name
    }

    /// Returns the limits of each part of the memory.
    pub fn memory_plan(&self) -> &MemoryPlan {
        &self.settings.memory
    }

    /// Returns the current memory use of each part. Expensive: it takes the locks of the WALs and
    /// of the caches.
    pub fn memory_use(&self) -> MemoryUse {
        self.memory.read()
    }

    /// As [`Standalone::stop_with`], without progress.
    ///
    /// # Errors
    /// As [`Standalone::stop_with`].
    pub fn stop(self) -> Result<()> {
        self.stop_with(&StopProgress::default())
    }

    /// Stops the server. All acknowledged writes are in store files when this returns. It takes as
    /// long as the disk does, forever if a sync never returns. A caller that cannot wait ends the
    /// process, and the next start replays the WAL.
    ///
    /// # Errors
    /// Errors of flushing or closing regions; cells that were not flushed are in the WAL. If the
    /// server stops because of a failure, the reason.
    pub fn stop_with(self, progress: &StopProgress) -> Result<()> {
        tracing::info!("stopping");
        self.readiness.set_stopping(progress);
        self.regionserver.start_stopping();
        progress.begin("the ZooKeeper endpoint");
        self.zookeeper.stop();
        progress.begin("the master's procedures");
        self.master.stop();
        progress.begin("calls on connections' threads");
        self.rpc.into_iter().for_each(|server| server.shutdown(CALLS_GRACE));
        progress.begin("chores");
        drop(self.memory_trim);
        drop(self.master_chore);
        drop(self.chore);
        progress.begin("flushes and compactions");
        self.regionserver.background().stop();
        progress.begin("calls on handlers' threads");
        self.executor.shutdown();
        let closed = close_regions(&self.regionserver, progress);
        progress.begin("the write-ahead logs");
        let logs = self.wals.user.close().and(self.wals.meta.close());
        progress.begin("the info pages");
        drop(self.info);
        drop(self.sampler);
        closed.and(logs)?;
        recovery::remove_if_empty(&*self.wals.fs, &self.wals.dir)?;
        progress.begin("");
        tracing::info!("stopped");
        self.failure.get().map_or(Ok(()), |reason| Err(HBaseError::io(reason)))
    }

    /// Returns the time limit of a stop (`evenkeel.shutdown.timeout.ms`).
    pub fn shutdown_timeout(&self) -> Duration {
        self.settings.shutdown_timeout
    }
}

/// Closes user regions, then system regions, hbase:meta last. Continues after an error, and returns
/// the first one.
fn close_regions(regionserver: &RegionServer, progress: &StopProgress) -> Result<()> {
    let rank = |region: &Arc<Region>| (region.info().table().is_system(), region.info().is_meta());
    let mut regions = regionserver.regions().all();
    regions.sort_by_key(rank);
    let mut outcome = Ok(());
    for region in regions {
        progress.begin(format!("closing region {}", region.info().name_text()));
        drop(regionserver.regions().remove(region.info().encoded_name(), None));
        outcome = outcome.and(region.close(false));
    }
    outcome
}
