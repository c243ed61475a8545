//! [`Process`] and [`Storage`]: the context of all steps of a start, and the environment of
//! regions.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use evenkeel_block_cache::heap_blocks;
use evenkeel_common::clock::{self, Clock, SystemClock};
use evenkeel_common::length;
use evenkeel_common::thread::Supervisor;
use evenkeel_common::{Configuration, CurrentConfiguration, HBaseError, Result, ServerName, buffer_pool};
use evenkeel_fs::{FileSystem, LocalHost, Location};
use evenkeel_info_server::platform::PlatformBeans;
use evenkeel_metrics::Registry;
use evenkeel_region::region::nonce::NonceManager;
use evenkeel_region::region::{RegionEnv, WalRoot};
use evenkeel_region::store::{MobFileCache, MobFileCacheConfig, OpenFiles, StoreConfig, StoreEnv};
use evenkeel_regionserver::background::BackgroundConfig;
use evenkeel_regionserver::metrics::source::{ServerSource, SourceNames};
use evenkeel_regionserver::{Background, RegionServer, ServerHooks};
use evenkeel_rpc::{Executor, ExecutorConfig, RpcServerHandle};
use evenkeel_wal::Wal;

use crate::connections::DescriptorLimits;
use crate::readiness::Readiness;
use crate::runtime_settings::RuntimeSettings;
use crate::wals::{RegionServerCell, WalEvents, Wals};
use crate::{FailureReason, Settings, StopRequest, io_error, security, storage};

/// A sync of the storage that takes longer is logged.
const SLOW_SYNC: Duration = Duration::from_secs(1);

/// The context of all steps of a start.
pub struct Process {
    /// The file system that stores all data.
    pub fs: Arc<dyn FileSystem>,
    /// Where logs are, if that is not the root directory.
    pub wal_root: Option<WalRoot>,
    /// All settings, as they were at the start.
    pub conf: Arc<Configuration>,
    /// The settings in force.
    pub current_conf: Arc<CurrentConfiguration>,
    /// The settings that a process reads at its start.
    pub settings: Settings,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Requests that this process stops.
    pub stop: StopRequest,
    /// Why the server must stop, if it must.
    pub failure: FailureReason,
    /// Stops the server when one of its threads dies.
    pub supervisor: Supervisor,
    /// Whether clients are served, and why not.
    pub readiness: Arc<Readiness>,
}

impl Process {
    /// Reads the settings and rejects those that require missing features.
    ///
    /// # Errors
    /// One line that names the setting, its value and what was expected.
    pub fn new(fs: Arc<dyn FileSystem>, conf: Configuration, stop: StopRequest) -> Result<Self> {
        security::reject_unsupported(&conf)?;
        let settings = Settings::from(&conf)?;
        if let Some(exposure) = security::exposure(settings.bind_address) {
            tracing::warn!("{exposure}");
        }
        tracing::info!("{}", settings.memory.line());
        buffer_pool::set_capacity(length::index(settings.memory.buffer_pool));
        heap_blocks::set_limit(settings.memory.heap_blocks());
        let failure = Arc::new(OnceLock::new());
        let supervisor = supervisor(&failure, &stop);
        let clock = Arc::new(SystemClock);
        let readiness = Readiness::new(&failure);
        let current_conf = Arc::new(CurrentConfiguration::new(conf.clone()));
        let (conf, wal_root) = (Arc::new(conf), None);
        Ok(Self { fs, wal_root, conf, current_conf, settings, clock, stop, failure, supervisor, readiness })
    }

    /// Where logs are.
    pub fn wal_root(&self) -> WalRoot {
        let beside = || WalRoot { fs: Arc::clone(&self.fs), path: self.settings.root.clone() };
        self.wal_root.clone().unwrap_or_else(beside)
    }

    /// Makes durable what ended processes left in the root directory and in that of the logs,
    /// before anything relies on it. This may wait for what other programs have written to the same
    /// file system, which is logged if it takes long.
    ///
    /// # Errors
    /// `IOException`.
    pub fn sync_storage(&self) -> Result<()> {
        let began = clock::monotonic();
        self.fs.sync_all(&self.settings.root)?;
        if let Some(logs) = &self.wal_root {
            logs.fs.sync_all(&logs.path)?;
        }
        let took = clock::since(began);
        if took >= SLOW_SYNC {
            tracing::warn!(ms = length::whole_ms(took), "the start waited for a sync of the file system");
        }
        Ok(())
    }

    /// Creates an empty nonce manager.
    pub fn nonces(&self) -> Arc<NonceManager> {
        let settings = &self.settings;
        let nonces = NonceManager::new(Arc::clone(&self.clock), settings.nonce_grace_ms);
        Arc::new(nonces.within(settings.nonce_bytes_max(), settings.nonce_kept_ms))
    }
}

/// Creates the supervisor, which stops the server when one of its threads dies.
fn supervisor(failure: &FailureReason, stop: &StopRequest) -> Supervisor {
    let (failure, stop) = (Arc::clone(failure), Arc::clone(stop));
    Supervisor::new(move |death| {
        drop(failure.set(death.to_string()));
        stop(&death.to_string());
    })
}

/// The environment that regions are opened with.
pub struct Storage {
    /// The WALs of this run.
    pub wals: Wals,
    /// Flush and compaction threads.
    pub background: Arc<Background>,
    /// The environment that all stores share.
    pub stores: StoreEnv,
    /// The environment of all regions except hbase:meta.
    pub user_env: Arc<RegionEnv>,
    /// The environment of hbase:meta.
    pub meta_env: Arc<RegionEnv>,
    /// The RegionServer, once it exists.
    pub regionserver: RegionServerCell,
}

impl Storage {
    /// Opens WALs and caches for a server of this name, and starts the background threads.
    ///
    /// # Errors
    /// `IOException` from the file system; one line about an invalid setting.
    pub fn open(
        process: &Process,
        name: &ServerName,
        nonces: &Arc<NonceManager>,
        limits: &DescriptorLimits,
    ) -> Result<Self> {
        let Process { fs, conf, settings, clock, .. } = process;
        let background = BackgroundConfig::from(conf).map_err(io_error)?;
        let background =
            Background::start(&BackgroundConfig { supervisor: process.supervisor.clone(), ..background })?;
        let regionserver = RegionServerCell::default();
        let events = WalEvents {
            regionserver: Arc::clone(&regionserver),
            failure: Arc::clone(&process.failure),
            stop: Arc::clone(&process.stop),
        };
        let wals = Wals::open(&process.wal_root(), (settings, conf), name, clock, events)?;
        let open_files =
            if fs.is_remote() { OpenFiles::default() } else { OpenFiles::new(limits.store_files) };
        let mob = MobFileCacheConfig::from_configuration(conf).map_err(io_error)?;
        let mob = if fs.is_remote() { mob } else { mob.at_most(limits.mob_files) };
        let stores = StoreEnv {
            fs: Arc::clone(fs),
            root: settings.root.clone(),
            cache: settings.block_cache.open()?,
            clock: Arc::clone(clock),
            chunks: settings.chunks.pool(),
            config: StoreConfig::from_configuration(conf).map_err(io_error)?,
            compaction_throughput: Arc::clone(background.compaction_throughput()),
            metrics: Arc::default(),
            host: LocalHost::new(&name.host),
            open_files: Arc::new(open_files),
            mob: Arc::new(MobFileCache::new(mob)),
            archived_files: Arc::default(),
        };
        background.keep_chunks_ready(&stores.chunks).map_err(|e| HBaseError::io(format!("a thread: {e}")))?;
        let operation_times = Arc::default();
        let env = |wal: &Arc<Wal>| {
            Arc::new(RegionEnv {
                stores: stores.clone(),
                wal: Arc::clone(wal),
                wal_root: process.wal_root.clone(),
                config: settings.region.clone(),
                server: name.clone(),
                nonces: Arc::clone(nonces),
                events: background.clone(),
                operation_times: Arc::clone(&operation_times),
            })
        };
        let (user_env, meta_env) = (env(&wals.user), env(&wals.meta));
        Ok(Self { wals, background, stores, user_env, meta_env, regionserver })
    }
}

/// The operations that operators request of a process, as far as all processes share them.
pub struct Hooks {
    /// The WALs to roll.
    pub wals: Wals,
    /// Requests that this process stops.
    pub stop: StopRequest,
    /// The settings that may be changed.
    pub settings: Arc<RuntimeSettings>,
    /// The settings by which other file systems are read.
    pub conf: Arc<Configuration>,
}

impl ServerHooks for Hooks {
    fn roll_wal(&self) -> Result<Vec<Vec<u8>>> {
        self.wals.user.roll()?;
        self.wals.meta.roll()?;
        Ok(Vec::new())
    }

    fn stop(&self, reason: &str) {
        (self.stop)(reason);
    }

    fn update_configuration(&self) -> Result<()> {
        self.settings.update().map(drop)
    }

    fn is_own_file_system(&self, location: &Location) -> Result<bool> {
        let is_own = storage::is_root_file_system(&self.conf, location);
        is_own.map_err(|error| HBaseError::do_not_retry(error.message()))
    }

    fn file_system(&self, location: &Location) -> Result<Arc<dyn FileSystem>> {
        let fs = storage::other_file_system(&self.conf, location);
        fs.map_err(|error| HBaseError::do_not_retry(error.message()))
    }
}

/// The port that serves calls, and the handlers behind it.
#[derive(Clone, Copy)]
pub struct RpcEndpoint<'a> {
    /// The port, of the RegionServer or the master.
    pub rpc: &'a RpcServerHandle,
    /// Its handlers.
    pub executor: &'a Arc<Executor>,
}

/// Returns the metrics sources of a process; none before its RegionServer answers.
pub fn registry(
    process: &Process,
    storage: &Storage,
    regionserver: &Arc<RegionServer>,
    endpoint: Option<RpcEndpoint<'_>>,
    names: SourceNames,
) -> Arc<Registry> {
    let registry = Registry::new();
    let settings = &process.settings;
    let Some(RpcEndpoint { rpc, executor }) = endpoint else { return registry };
    registry.register(Arc::new(ServerSource {
        server: Arc::downgrade(regionserver),
        env: Arc::clone(&storage.user_env),
        wals: vec![Arc::clone(&storage.wals.user), Arc::clone(&storage.wals.meta)],
        rpc: rpc.monitor(),
        executor: Arc::clone(executor),
        clock: Arc::clone(&process.clock),
        names,
        memory_bytes_max: settings.memory.sum(),
    }));
    registry.register(Arc::new(PlatformBeans::new(Arc::clone(&process.clock), settings.host.clone())));
    registry
}

/// Returns the configuration of a server's handlers.
///
/// # Errors
/// One line that names the key, its value and what was expected.
pub fn executor_config(
    conf: &Configuration,
    name: &ServerName,
    supervisor: &Supervisor,
) -> Result<ExecutorConfig> {
    let count = |key: &str, default: u64| {
        Ok::<_, HBaseError>(length::index(conf.get_u64_or(key, default).map_err(io_error)?.max(1)))
    };
    let general_handlers = count("hbase.regionserver.handler.count", 30)?;
    Ok(ExecutorConfig {
        server_name: name.host_port(),
        general_handlers,
        priority_handlers: count("hbase.regionserver.metahandler.count", 20)?,
        scan_handlers: general_handlers,
        write_handlers: general_handlers,
        long_write_handlers: general_handlers,
        queue_calls_max: count("hbase.ipc.server.max.callqueue.length", 10 * general_handlers as u64)?,
        supervisor: supervisor.clone(),
        ..ExecutorConfig::default()
    })
}
