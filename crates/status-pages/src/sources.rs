//! [`Sources`]: where the pages have their numbers from.

use std::sync::{Arc, Weak};

use evenkeel_block_cache::CacheConfig;
use evenkeel_common::Configuration;
use evenkeel_common::clock::Clock;
use evenkeel_master::Master;
use evenkeel_metrics::Registry;
use evenkeel_region::region::RegionEnv;
use evenkeel_regionserver::RegionServer;
use evenkeel_rpc::{Executor, RpcMonitor};
use evenkeel_wal::Wal;

/// A part of the memory, and what it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPart {
    /// What it holds.
    pub name: &'static str,
    /// Bytes now.
    pub used: u64,
    /// Bytes at most.
    pub limit: u64,
}

/// A setting that is set and has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IgnoredSetting {
    /// Its key.
    pub key: &'static str,
    /// Its value.
    pub value: String,
    /// What is done instead.
    pub instead: &'static str,
}

/// A log of the server.
#[derive(Clone)]
pub struct NamedWal {
    /// What is logged in it.
    pub name: &'static str,
    /// The log.
    pub log: Arc<Wal>,
}

/// See the module's documentation.
pub struct Sources {
    /// The RegionServer, as long as it runs.
    pub regionserver: Weak<RegionServer>,
    /// The master of this process, if it has one and as long as it runs.
    pub master: Weak<Master>,
    /// The RegionServer's name: `host,port,startcode`.
    pub server_name: String,
    /// The cluster's id.
    pub cluster_id: String,
    /// Where clients begin, `host:port`.
    pub zookeeper_quorum: String,
    /// When the process started, in milliseconds since 1970.
    pub started_ms: i64,
    /// What user regions are opened with.
    pub env: Arc<RegionEnv>,
    /// How the block caches are set up.
    pub block_cache: CacheConfig,
    /// The logs.
    pub wals: Vec<NamedWal>,
    /// The calls.
    pub rpc: RpcMonitor,
    /// The handlers.
    pub executor: Arc<Executor>,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// What each part of the memory takes and may take.
    pub memory: Arc<dyn Fn() -> Vec<MemoryPart> + Send + Sync>,
    /// What all of the process may take, in bytes.
    pub memory_bytes_max: u64,
    /// The settings.
    pub configuration: Arc<Configuration>,
    /// The settings that have no effect.
    pub ignored: Vec<IgnoredSetting>,
    /// All metrics.
    pub registry: Arc<Registry>,
}

impl Sources {
    /// The RegionServer, unless it has ended.
    pub fn server(&self) -> Option<Arc<RegionServer>> {
        self.regionserver.upgrade()
    }

    /// The time now, in milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }
}
