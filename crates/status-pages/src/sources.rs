//! [`Sources`]: the sources of the pages' numbers.

use std::sync::{Arc, Weak};

use evenkeel_block_cache::CacheConfig;
use evenkeel_common::clock::Clock;
use evenkeel_common::{CurrentConfiguration, Result, TableDescriptor, TableName};
use evenkeel_metrics::Registry;
use evenkeel_region::region::RegionEnv;
use evenkeel_regionserver::RegionServer;
use evenkeel_rpc::{Executor, RpcMonitor};
use evenkeel_wal::Wal;

/// A part of the memory, with its use and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPart {
    /// Its name.
    pub name: &'static str,
    /// What its metrics in sub=MemoryParts begin with.
    pub metric: &'static str,
    /// Current bytes.
    pub used: u64,
    /// The limit in bytes.
    pub limit: u64,
}

/// A setting that is set and has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoredSetting {
    /// Its key.
    pub key: &'static str,
    /// Its value.
    pub value: String,
    /// What the server does instead.
    pub instead: &'static str,
}

/// A WAL of the server.
#[derive(Clone)]
pub struct NamedWal {
    /// What is logged in it.
    pub name: &'static str,
    /// The WAL.
    pub log: Arc<Wal>,
}

/// The master of this process.
pub trait MasterView: Send + Sync {
    /// When it became active, in milliseconds since 1970.
    fn started_ms(&self) -> i64;
    /// The tables, those of the system included.
    fn tables(&self) -> Vec<MasterTable>;
    /// The procedures that wait, run, or ended in the last minutes, with their ids.
    fn procedures(&self) -> Vec<(u64, MasterProcedure)>;
}

/// A table as the master knows it.
#[derive(Clone, Debug)]
pub struct MasterTable {
    /// Its descriptor.
    pub descriptor: Arc<TableDescriptor>,
    /// HBase's name of its state.
    pub state: String,
}

/// A procedure of the master.
#[derive(Clone, Debug)]
pub struct MasterProcedure {
    /// HBase's name of its kind.
    pub kind: &'static str,
    /// The table that it changes.
    pub table: Option<TableName>,
    /// When a client requested it, in milliseconds since 1970.
    pub submitted_ms: i64,
    /// When its state changed last.
    pub updated_ms: i64,
    /// True if it has its table and a thread.
    pub has_begun: bool,
    /// The outcome if it has ended.
    pub outcome: Option<Result<()>>,
}

/// See the module's documentation.
pub struct Sources {
    /// The RegionServer; the pages do not keep it alive.
    pub regionserver: Weak<RegionServer>,
    /// The master of this process, if it has one.
    pub master: Option<Arc<dyn MasterView>>,
    /// The RegionServer's name: `host,port,startcode`.
    pub server_name: String,
    /// The cluster's id.
    pub cluster_id: String,
    /// The ZooKeeper address that clients use, `host:port`.
    pub zookeeper_quorum: String,
    /// When the process started, in milliseconds since 1970.
    pub started_ms: i64,
    /// The environment that user regions are opened with.
    pub env: Arc<RegionEnv>,
    /// The configuration of the block caches.
    pub block_cache: CacheConfig,
    /// The WALs.
    pub wals: Vec<NamedWal>,
    /// The monitor of calls.
    pub rpc: RpcMonitor,
    /// The handler threads.
    pub executor: Arc<Executor>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Returns the use and the limit of each part of the memory.
    pub memory: Arc<dyn Fn() -> Vec<MemoryPart> + Send + Sync>,
    /// The memory limit of the process, in bytes.
    pub memory_bytes_max: u64,
    /// The settings.
    pub configuration: Arc<CurrentConfiguration>,
    /// The settings that have no effect.
    pub ignored: Vec<IgnoredSetting>,
    /// All metrics.
    pub registry: Arc<Registry>,
}

impl Sources {
    /// Returns the RegionServer, unless it has ended.
    pub fn server(&self) -> Option<Arc<RegionServer>> {
        self.regionserver.upgrade()
    }

    /// Returns the current time, in milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }
}
