//! The status pages of this process: their sources, and the thread that maintains their history.

use std::sync::Arc;

use evenkeel_common::{Configuration, Result};
use evenkeel_info_server::Routes;
use evenkeel_regionserver::RegionServer;
use evenkeel_regionserver::metrics::source::SourceNames;
use evenkeel_status_pages::{
    History, IgnoredSetting, MasterView, MemoryPart, NamedWal, Sampler, Sources, StatusPages,
};

use crate::memory_use::{self, MemoryMeter};
use crate::server::{Process, RpcEndpoint, Storage};
use crate::wals::Wals;
use crate::{MemoryPlan, ignored_settings};

/// The pages, with the sampler that maintains their history.
pub struct Status {
    pages: StatusPages,
    sampler: Sampler,
}

/// What the pages show beside the parts of every process.
pub struct StatusParts<'a> {
    /// The RegionServer.
    pub regionserver: &'a Arc<RegionServer>,
    /// Its port and handlers.
    pub endpoint: RpcEndpoint<'a>,
    /// The cluster's id and ZooKeeper.
    pub names: SourceNames,
    /// The master of this process, if it has one.
    pub master: Option<Arc<dyn MasterView>>,
    /// The memory.
    pub memory: MemoryMeter,
    /// The settings that have no effect.
    pub ignored: Vec<IgnoredSetting>,
    /// All metrics.
    pub registry: Arc<evenkeel_metrics::Registry>,
}

impl Status {
    /// Starts to maintain the history.
    ///
    /// # Errors
    /// I/O error if its thread cannot be started.
    pub fn start(process: &Process, storage: &Storage, parts: StatusParts<'_>) -> Result<Self> {
        let StatusParts { regionserver, endpoint, names, master, memory, ignored, registry } = parts;
        let name = regionserver.name();
        let sources = Arc::new(Sources {
            regionserver: Arc::downgrade(regionserver),
            master,
            server_name: name.to_string(),
            cluster_id: names.cluster_id,
            zookeeper_quorum: names.zookeeper_quorum,
            started_ms: name.start_code,
            env: Arc::clone(&storage.user_env),
            block_cache: process.settings.block_cache.clone(),
            wals: named(&storage.wals),
            rpc: endpoint.rpc.monitor(),
            executor: Arc::clone(endpoint.executor),
            clock: Arc::clone(&process.clock),
            memory: memory_parts(memory, process.settings.memory),
            memory_bytes_max: process.settings.memory.sum(),
            configuration: Arc::clone(&process.current_conf),
            ignored,
            registry,
        });
        let history = Arc::new(History::default());
        let sampler = Sampler::start(&sources, &history)?;
        Ok(Self { pages: StatusPages::new(sources, history), sampler })
    }

    /// Adds the pages to others.
    pub fn add_to(&self, routes: Routes) -> Routes {
        self.pages.add_to(routes)
    }

    /// Returns the history's thread, which the caller keeps as long as the pages answer.
    pub fn into_sampler(self) -> Sampler {
        self.sampler
    }
}

/// Returns the WALs, named by their contents.
fn named(wals: &Wals) -> Vec<NamedWal> {
    let named = |name, log| NamedWal { name, log: Arc::clone(log) };
    vec![named("regions of users", &wals.user), named("hbase:meta", &wals.meta)]
}

/// Returns the settings of a standalone server that have no effect.
pub fn ignored_settings(conf: &Configuration) -> Vec<IgnoredSetting> {
    settings_of(ignored_settings::lines(conf))
}

/// Returns the settings of a RegionServer of a cluster that have no effect.
pub fn ignored_settings_in_cluster(conf: &Configuration) -> Vec<IgnoredSetting> {
    settings_of(ignored_settings::lines_in_cluster(conf))
}

fn settings_of(lines: Vec<(&'static str, String, &'static str)>) -> Vec<IgnoredSetting> {
    let setting = |(key, value, instead)| IgnoredSetting { key, value, instead };
    lines.into_iter().map(setting).collect()
}

/// Returns the use and the limit of each part of the memory.
fn memory_parts(meter: MemoryMeter, plan: MemoryPlan) -> Arc<dyn Fn() -> Vec<MemoryPart> + Send + Sync> {
    Arc::new(move || {
        let parts = meter.read().parts(&plan);
        let part = |((name, used, limit), metric)| MemoryPart { name, metric, used, limit };
        parts.into_iter().zip(memory_use::METRICS).map(part).collect()
    })
}
