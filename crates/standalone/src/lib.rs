//! A whole HBase in one process: RegionServer, embedded master and the ZooKeeper endpoint, over one directory.
//!
//! **Start**, in this order, each step safe to repeat after a crash:
//!
//! 1. lock the directory, take the ports (a taken port or a locked directory ends the start with one line)
//! 2. `hbase.version`, `hbase.id`
//! 3. split the WALs of every earlier life into `recovered.edits`, then move them to `oldWALs`
//! 4. open WALs of this life
//! 5. say in `MasterData` where hbase:meta is now, for a stock master that takes over later
//! 6. open hbase:meta, replaying its edits; make it if the directory is new
//! 7. bring directories and hbase:meta together ([`evenkeel_master::reconcile`])
//! 8. open hbase:namespace and every region of every enabled table, replaying edits
//! 9. one write to hbase:meta that says where all regions are; then the znodes and the services
//!
//! **A thread that dies** ([`evenkeel_common::thread`]) asks the process to stop, as a log that fails does;
//! [`Standalone::stop_with`] then gives the reason as its error.
//!
//! **Stop**: refuse calls, end changes under way, flush and close regions (hbase:meta last), close the WALs, remove their
//! directory.
//!
//! | module | noun |
//! |---|---|
//! | `connections` | how many connections each port may have |
//! | `files` | `hbase.version`, `hbase.id` |
//! | `ignored` | settings that have no effect |
//! | `memory_trim` | memory that a quiet server no longer needs |
//! | `memory_plan` | what each part may take of `evenkeel.memory.size` |
//! | `memory_use` | what each part takes now |
//! | `master_store` | what a stock master needs to take the directory over |
//! | `security` | settings that ask for security, and an address beyond loopback |
//! | `settings` | ports, directory and memory from the configuration |

#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

mod connections;
mod files;
mod ignored;
mod master_store;
mod memory_plan;
mod memory_trim;
mod memory_use;
mod security;
mod settings;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use evenkeel_common::clock::{Clock, SystemClock};
use evenkeel_common::thread::{Supervisor, spawn_essential};
use evenkeel_common::{Configuration, HBaseError, RegionInfo, Result, ServerName, TimeUnit, buffer_pool};
use evenkeel_fs::{DirLock, FileSystem, LocalFileSystem};
use evenkeel_region::layout;
use evenkeel_region::memstore::ChunkPool;
use evenkeel_region::region::nonce::NonceManager;
use evenkeel_region::region::{Region, RegionEnv};
use evenkeel_region::store::{StoreConfig, StoreEnv};
use evenkeel_rpc::{
    Budget, Executor, ExecutorConfig, InputBudget, RpcServer, RpcServerConfig, RpcServerHandle,
};
use evenkeel_wal::{Wal, WalConfig, WalListener, WalOptions};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use self::connections::ConnectionLimits;
pub use self::memory_plan::MemoryPlan;
use self::memory_trim::MemoryTrim;
pub use self::memory_use::MemoryUse;
pub use self::settings::Settings;
use evenkeel_master::chore::MasterChore;
use evenkeel_master::connection::EmbeddedConnection;
use evenkeel_master::meta::MetaTable;
use evenkeel_master::namespaces::NamespaceTable;
use evenkeel_master::service::MasterService;
use evenkeel_master::{Master, MasterParts, descriptors, mirrored, reconcile, recovery, regions};
use evenkeel_regionserver::background::BackgroundConfig;
use evenkeel_regionserver::background::chore::Chore;
use evenkeel_regionserver::{Background, ClusterView, RegionServer, RegionServerParts, ServerHooks};
use evenkeel_zookeeper::znodes::{ZnodePaths, Znodes};
use evenkeel_zookeeper::{Room, ZkConfig, ZnodeTree};

/// How long calls under way may take once the server stops.
const CALLS_GRACE: Duration = Duration::from_secs(5);

/// Asks the process to stop, with the reason.
pub type StopRequest = Arc<dyn Fn(&str) + Send + Sync>;

/// Why the server cannot go on: the first reason counts.
type Failure = Arc<OnceLock<String>>;

/// How far a stop has come, for those who wait for it. Clones are one.
#[derive(Clone, Debug, Default)]
pub struct StopProgress(Arc<Mutex<String>>);

impl StopProgress {
    /// What is under way; empty before the first step and after the last.
    pub fn step(&self) -> String {
        self.0.lock().clone()
    }

    fn begin(&self, step: impl Into<String>) {
        *self.0.lock() = step.into();
    }
}

/// A running server.
pub struct Standalone {
    settings: Settings,
    name: ServerName,
    master: Arc<Master>,
    regionserver: Arc<RegionServer>,
    wals: Wals,
    chunks: Arc<ChunkPool>,
    rpc: Vec<RpcServerHandle>,
    executor: Arc<Executor>,
    chore: Chore,
    master_chore: MasterChore,
    memory_trim: MemoryTrim,
    zookeeper: ZooKeeperThread,
    znode_tree: Arc<ZnodeTree>,
    nonces: Arc<NonceManager>,
    recovered: recovery::Recovered,
    started_in: Duration,
    /// Why the server cannot go on, once it cannot.
    failure: Failure,
    _lock: DirLock,
}

/// The two logs: hbase:meta has its own, so that it can be recovered first.
#[derive(Clone)]
struct Wals {
    user: Arc<Wal>,
    meta: Arc<Wal>,
    dir: PathBuf,
}

/// Ports taken before anything else is done.
struct Ports {
    zookeeper: TcpListener,
    master: RpcServer,
    regionserver: RpcServer,
}

impl Standalone {
    /// Starts a server and returns when it answers.
    ///
    /// # Errors
    /// One line that says what is in the way.
    pub fn start(conf: Configuration, stop: StopRequest) -> Result<Self> {
        let fs = LocalFileSystem::new().with_write_behind(settings::write_behind_bytes(&conf)?);
        Self::start_on(Arc::new(fs), conf, stop)
    }

    /// As [`Standalone::start`], on a file system that stands for the local one: `hbase.rootdir` is a directory of both.
    ///
    /// # Errors
    /// As [`Standalone::start`].
    pub fn start_on(fs: Arc<dyn FileSystem>, conf: Configuration, stop: StopRequest) -> Result<Self> {
        let began = Instant::now();
        security::refuse_what_is_missing(&conf)?;
        let settings = Settings::from(&conf)?;
        ignored::warn(&conf);
        if let Some(exposure) = security::exposure(settings.bind_address) {
            tracing::warn!("{exposure}");
        }
        let conf = Arc::new(conf);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        fs.mkdirs(&settings.root).map_err(|e| HBaseError::io(format!("{}: {e}", settings.root.display())))?;
        let lock = DirLock::acquire(&settings.root)?;
        let cluster_id = files::prepare_root(&*fs, &settings.root)?;
        tracing::info!("{}", settings.memory.line());
        // An eighth is for what is counted late: small replies, and those that are made at the same time.
        let unsent = Budget::new(settings.memory.replies / 8 * 7);
        buffer_pool::set_capacity(settings.memory.buffer_pool as usize);
        let descriptors = connections::raise_descriptors();
        let limits = ConnectionLimits::new(&conf, descriptors, settings.memory.reserve)?;
        let room = Room {
            input: InputBudget::of(settings.memory.requests),
            requests: Budget::new(settings.memory.requests),
            replies: Arc::clone(&unsent),
        };
        let ports = take_ports(&settings, &conf, &cluster_id, &room, &limits)?;
        let nonces = NonceManager::new(Arc::clone(&clock), settings.nonce_grace_ms);
        let nonces = Arc::new(nonces.within(settings.nonce_bytes_max(), settings.nonce_kept_ms));
        let recovered = recovery::split_wals(&fs, &settings.root, &nonces)?;
        let name = ServerName::new(&settings.host, settings.regionserver_port, clock.now_ms());

        let failure = Arc::new(OnceLock::new());
        let supervisor = supervisor(&failure, &stop);
        let supervised = |config| BackgroundConfig { supervisor: supervisor.clone(), ..config };
        let background = Background::start(&supervised(BackgroundConfig::from(&conf).map_err(bad)?))?;
        let online = Arc::new(OnceLock::new());
        let wals = open_wals(
            &fs,
            &settings,
            &conf,
            &name,
            &clock,
            &online,
            &(Arc::clone(&failure), Arc::clone(&stop)),
        )?;
        let cache = settings.block_cache.open()?;
        let stores = StoreEnv {
            fs: Arc::clone(&fs),
            root: settings.root.clone(),
            cache: cache.clone(),
            clock: Arc::clone(&clock),
            chunks: settings.chunks.pool(),
            config: StoreConfig::from_configuration(&conf).map_err(bad)?,
            compaction_throughput: Arc::clone(background.compaction_throughput()),
        };
        background.keep_chunks_ready(&stores.chunks).map_err(|e| HBaseError::io(format!("a thread: {e}")))?;
        let env = |wal: &Arc<Wal>| {
            Arc::new(RegionEnv {
                stores: stores.clone(),
                wal: Arc::clone(wal),
                config: settings.region.clone(),
                server: name.clone(),
                nonces: Arc::clone(&nonces),
                events: background.clone(),
            })
        };
        let (user_env, meta_env) = (env(&wals.user), env(&wals.meta));

        master_store::take_over(&meta_env)?;
        let meta_region = regions::open_meta(&meta_env)?;
        let meta = MetaTable::new(Arc::clone(&meta_region), Arc::clone(&clock))?;
        let mut tables = reconcile::reconcile(&*fs, &settings.root, &meta, recovered.damaged == 0)?;
        let namespace_region = regions::open_namespace(&user_env, &meta, &mut tables)?;
        let namespaces = NamespaceTable::new(Arc::clone(&namespace_region), Arc::clone(&clock));
        namespaces.ensure_built_in()?;
        namespaces.ensure_those_of(tables.keys())?;

        let master_name = ServerName::new(&settings.host, settings.master_port, name.start_code);
        let connection = EmbeddedConnection::new(cluster_view(&cluster_id, &master_name, &name));
        let regionserver = RegionServer::new(RegionServerParts {
            name: name.clone(),
            info_port: 0,
            config: settings.regionserver.clone(),
            clock: Arc::clone(&clock),
            cache,
            unsent,
            chunks: Arc::clone(&user_env.stores.chunks),
            nonces: Arc::clone(&nonces),
            background: Arc::clone(&background),
            hooks: Arc::new(Hooks { wals: wals.clone(), stop: Arc::clone(&stop) }),
            master: Arc::clone(&connection) as _,
            root: settings.root.clone(),
        });
        drop(online.set(Arc::downgrade(&regionserver)));
        drop(regionserver.regions().add(meta_region));
        drop(regionserver.regions().add(namespace_region));
        regions::open_all(&user_env, &meta, &tables, &regionserver)?;
        tables.insert(
            evenkeel_common::TableName::meta(),
            evenkeel_master::Table {
                descriptor: Arc::new(descriptors::meta()?),
                state: evenkeel_master::meta::TableState::Enabled,
            },
        );

        let tree = ZnodeTree::with_clock(Arc::clone(&clock)).within(settings.memory.zookeeper);
        let znodes = announce(&conf, tree, &clock, &cluster_id, &master_name, &name, &tables, &namespaces)?;
        let tree = Arc::clone(znodes.tree());
        let stop_master = Arc::clone(&stop);
        let parts = MasterParts {
            region_env: user_env,
            conf: Arc::clone(&conf),
            server: name.clone(),
            master_name,
            cluster_id,
            regionserver: Arc::clone(&regionserver),
            meta,
            namespaces,
            znodes,
            stop: Box::new(move |reason| stop_master(reason)),
        };
        let master = Master::new(parts, tables)?;
        connection.connect(&master);
        regionserver.report_for_duty()?;
        master.discard_unfinished_snapshots()?;
        let executor = Arc::new(Executor::start(&executor_config(&conf, &name, &supervisor)?)?);
        let chore = Chore::start(&regionserver)?;
        let ports = (
            ports.master.supervised_by(&supervisor),
            ports.regionserver.supervised_by(&supervisor),
            ports.zookeeper,
        );
        let rpc = serve(ports.0, ports.1, &master, &regionserver, &executor)?;
        let janitor = conf.get_time_or("hbase.catalogjanitor.interval", TimeUnit::Milliseconds, 300_000);
        let janitor_every = Duration::from_millis(janitor.map_err(bad)?.max(1) as u64);
        let master_chore = MasterChore::start(&master, janitor_every)?;
        let zookeeper = ZkConfig {
            connections_max: limits.zookeeper,
            receive_timeout: connections::timeouts(&conf)?.1,
            room,
            ..ZkConfig::from_configuration(&conf).map_err(bad)?
        };
        let zookeeper = ZooKeeperThread::start(ports.2, Arc::clone(&tree), zookeeper, &supervisor)?;
        let memory_trim =
            MemoryTrim::start(settings.memory_trim_period, &regionserver, &stores.cache, &stores.chunks)?;
        master.tidy_up()?;
        let started_in = began.elapsed();
        Ok(Self {
            settings,
            name,
            master,
            regionserver,
            wals,
            chunks: stores.chunks,
            rpc,
            executor,
            chore,
            master_chore,
            memory_trim,
            zookeeper,
            znode_tree: tree,
            nonces,
            recovered,
            started_in,
            failure,
            _lock: lock,
        })
    }

    /// What a person should know who has just started it.
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
             \x20 data                 {root}\n\
             \x20 opened               {tables} tables, {regions} regions in {ms} ms{replay}\n\
             \n\
             \x20 connect              hbase shell            (finds {host}:{zk} by default when that is 2181)\n\
             \x20                      or set hbase.zookeeper.quorum={host}, hbase.zookeeper.property.clientPort={zk}\n\
             \x20 stop                 Ctrl-C, or kill {pid}\n{exposure}",
            version = env!("CARGO_PKG_VERSION"),
            hbase = evenkeel_regionserver::HBASE_VERSION,
            host = s.host,
            zk = s.zookeeper_port,
            master = s.master_port,
            rs = s.regionserver_port,
            root = s.root.display(),
            ms = self.started_in.as_millis(),
            pid = std::process::id(),
            exposure = security::exposure(s.bind_address)
                .map_or_else(String::new, |what| format!("\n\x20 WARNING              {what}\n")),
        )
    }

    /// This server's name.
    pub fn name(&self) -> &ServerName {
        &self.name
    }

    /// What each part may take of the memory.
    pub fn memory_plan(&self) -> &MemoryPlan {
        &self.settings.memory
    }

    /// What each part takes now. For who looks now and then: it takes the locks of the logs and of the caches.
    pub fn memory_use(&self) -> MemoryUse {
        let cache = self.regionserver.cache_stats();
        MemoryUse {
            caches: cache.memory_bytes,
            chunks: self.chunks.bytes() as u64,
            logs: (self.wals.user.stats().queue_bytes + self.wals.meta.stats().queue_bytes) as u64,
            requests: self.rpc.first().map_or(0, |server| server.stats().inflight_bytes),
            replies: self.rpc.first().map_or(0, |server| server.stats().unsent_bytes),
            buffer_pool: buffer_pool::pooled_bytes() as u64,
            scanners: self.regionserver.scanners().bytes(),
            system_scanners: self.regionserver.scanners().system_bytes(),
            zookeeper: self.znode_tree.client_bytes(),
            nonces: self.nonces.bytes(),
        }
    }

    /// As [`Standalone::stop_with`], where nobody asks how far it has come.
    ///
    /// # Errors
    /// As [`Standalone::stop_with`].
    pub fn stop(self) -> Result<()> {
        self.stop_with(&StopProgress::default())
    }

    /// Stops: everything acknowledged is in store files when this returns. It takes as long as the disk does, for ever
    /// where a sync never returns: a caller that cannot wait ends the process, and the next start replays the WAL.
    ///
    /// # Errors
    /// What flushing or closing says; what could not be flushed is in the WAL. The reason, where the server stops because
    /// it could not go on.
    pub fn stop_with(self, progress: &StopProgress) -> Result<()> {
        tracing::info!("stopping");
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
        closed.and(logs)?;
        recovery::remove_if_empty(self.master.file_system(), &self.wals.dir)?;
        progress.begin("");
        tracing::info!("stopped");
        self.failure.get().map_or(Ok(()), |reason| Err(HBaseError::io(reason)))
    }

    /// How long a stop may take (`evenkeel.shutdown.timeout.ms`).
    pub fn shutdown_timeout(&self) -> Duration {
        self.settings.shutdown_timeout
    }
}

/// Ends the server when one of its threads has died.
fn supervisor(failure: &Failure, stop: &StopRequest) -> Supervisor {
    let (failure, stop) = (Arc::clone(failure), Arc::clone(stop));
    Supervisor::new(move |death| {
        drop(failure.set(death.to_string()));
        stop(&death.to_string());
    })
}

fn cluster_view(cluster_id: &str, master: &ServerName, regionserver: &ServerName) -> ClusterView {
    ClusterView {
        cluster_id: cluster_id.to_owned(),
        active_master: Some(master.clone()),
        backup_masters: Vec::new(),
        region_servers: vec![regionserver.clone()],
        meta: vec![(RegionInfo::meta(), Some(regionserver.clone()), -1)],
    }
}

fn bad(error: impl std::fmt::Display) -> HBaseError {
    HBaseError::io(error.to_string())
}

fn take_ports(
    settings: &Settings,
    conf: &Configuration,
    cluster_id: &str,
    room: &Room,
    limits: &ConnectionLimits,
) -> Result<Ports> {
    let address = |port| SocketAddr::new(settings.bind_address, port);
    let taken = |what: &'static str, port: u16, key: &'static str| {
        move |e: std::io::Error| HBaseError::io(format!("{what}: cannot listen on port {port} ({key}): {e}"))
    };
    let rpc = |port, threads, connections_max| {
        let mut config = RpcServerConfig::at(address(port));
        config.server_name = format!("{}:{port}", settings.host);
        config.connection_threads = threads;
        // A request that never finds room is refused for good.
        let found_bytes_max = InputBudget::max_of(settings.memory.requests);
        config.request_bytes_max =
            conf.get_size_or("hbase.ipc.max.request.size", 256 << 20)
                .map_err(bad)?
                .clamp(1, i64::try_from(found_bytes_max).unwrap_or(i64::MAX)) as usize;
        config.inflight_bytes_max = settings.memory.requests;
        config.inflight = Some(Arc::clone(&room.requests));
        config.input = Some(Arc::clone(&room.input));
        config.unsent = Arc::clone(&room.replies);
        config.connections_max = connections_max;
        config.unsent_bytes_fatal = settings.memory.replies / 16 * 15;
        let watermark = |key: &str, default: usize| {
            let bytes = conf.get_i64_or(key, 0).map_err(bad)?;
            Ok::<_, HBaseError>(if bytes > 0 { bytes as usize } else { default })
        };
        config.connection_unsent_bytes_max =
            watermark("hbase.server.netty.writable.watermark.high", config.connection_unsent_bytes_max)?;
        config.connection_unsent_bytes_fatal =
            watermark("hbase.server.netty.writable.watermark.fatal", config.connection_unsent_bytes_fatal)?
                .max(config.connection_unsent_bytes_max);
        settings::set_sockets(conf, &mut config)?;
        connections::set_connections(conf, &mut config)?;
        let id = cluster_id.to_owned();
        config.cluster_id = Arc::new(move || Some(id.clone()));
        Ok::<_, HBaseError>(config)
    };
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let (zk, master, rs) = (settings.zookeeper_port, settings.master_port, settings.regionserver_port);
    let zookeeper = TcpListener::bind(address(zk))
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
        .map_err(taken("ZooKeeper endpoint", zk, "hbase.zookeeper.property.clientPort"))?;
    Ok(Ports {
        zookeeper,
        master: RpcServer::bind(rpc(master, 1, limits.master)?).map_err(taken(
            "master",
            master,
            "hbase.master.port",
        ))?,
        regionserver: RpcServer::bind(rpc(rs, cores, limits.regionserver)?).map_err(taken(
            "RegionServer",
            rs,
            "hbase.regionserver.port",
        ))?,
    })
}

fn open_wals(
    fs: &Arc<dyn FileSystem>,
    settings: &Settings,
    conf: &Configuration,
    name: &ServerName,
    clock: &Arc<dyn Clock>,
    online: &Online,
    (failure, stop): &(Failure, StopRequest),
) -> Result<Wals> {
    let dir = settings.root.join(layout::WALS_DIR).join(name.to_string());
    fs.mkdirs(&dir)?;
    let listener: Arc<dyn WalListener> = Arc::new(WalEvents {
        online: Arc::clone(online),
        failure: Arc::clone(failure),
        stop: Arc::clone(stop),
    });
    let open = |prefix: String, suffix: &str, buffer: u64, hsync: bool| {
        let config = settings::wal_config(conf, settings.memory.memstore)?;
        let hsync = hsync || config.hsync;
        Wal::open(WalOptions {
            fs: Arc::clone(fs),
            wal_dir: dir.clone(),
            old_dir: settings.root.join(layout::OLD_WALS_DIR),
            prefix,
            suffix: suffix.to_owned(),
            config: WalConfig { queue_bytes_max: buffer as usize, hsync, ..config },
            clock: Arc::clone(clock),
            listener: Arc::clone(&listener),
        })
    };
    let (plan, names) =
        (&settings.memory, (evenkeel_wal::names::prefix(name), evenkeel_wal::names::meta_prefix(name)));
    let user = open(names.0, "", plan.log_buffer, false)?;
    // What is written to hbase:meta survives the machine, whoever writes it: directories are made and removed by it.
    let meta = open(names.1, evenkeel_wal::names::META_SUFFIX, plan.meta_log_buffer, true)?;
    Ok(Wals { user, meta, dir })
}

/// The RegionServer, once there is one: the WALs are opened before it.
type Online = Arc<OnceLock<Weak<RegionServer>>>;

/// Hears the WALs.
struct WalEvents {
    online: Online,
    failure: Failure,
    stop: StopRequest,
}

impl WalListener for WalEvents {
    fn abort(&self, reason: &str) {
        tracing::error!(reason, "the WAL failed; stopping");
        drop(self.failure.set(format!("the WAL failed: {reason}")));
        if let Some(server) = self.online.get().and_then(Weak::upgrade) {
            server.report_fatal_error(&format!("the WAL failed: {reason}"));
        }
        (self.stop)(reason);
    }

    fn request_flush(&self, stores: &[(bytes::Bytes, Vec<bytes::Bytes>)]) {
        let Some(server) = self.online.get().and_then(Weak::upgrade) else { return };
        for (region, _) in stores {
            if let Some(region) = server.regions().find(&String::from_utf8_lossy(region)) {
                server.background().request_flush(&region);
            }
        }
    }
}

/// What operators ask of the process.
struct Hooks {
    wals: Wals,
    stop: StopRequest,
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
        Err(HBaseError::do_not_retry("settings are read at start only"))
    }
}

fn executor_config(
    conf: &Configuration,
    name: &ServerName,
    supervisor: &Supervisor,
) -> Result<ExecutorConfig> {
    let count = |key: &str, default: u64| {
        Ok::<_, HBaseError>(conf.get_u64_or(key, default).map_err(bad)?.max(1) as usize)
    };
    let general_handlers = count("hbase.regionserver.handler.count", 30)?;
    Ok(ExecutorConfig {
        server_name: name.host_port(),
        general_handlers,
        priority_handlers: count("hbase.regionserver.metahandler.count", 20)?,
        scan_handlers: general_handlers,
        write_handlers: general_handlers,
        queue_calls_max: count("hbase.ipc.server.max.callqueue.length", 10 * general_handlers as u64)?,
        supervisor: supervisor.clone(),
        ..ExecutorConfig::default()
    })
}

#[allow(clippy::too_many_arguments)]
fn announce(
    conf: &Configuration,
    tree: ZnodeTree,
    clock: &Arc<dyn Clock>,
    cluster_id: &str,
    master: &ServerName,
    regionserver: &ServerName,
    tables: &std::collections::BTreeMap<evenkeel_common::TableName, evenkeel_master::Table>,
    namespaces: &NamespaceTable,
) -> Result<Arc<Znodes>> {
    let paths = ZnodePaths::from_configuration(conf).map_err(bad)?;
    let znodes = Arc::new(Znodes::new(Arc::new(tree), paths, &format!("master:{}", master.port)));
    znodes.create_base_nodes().map_err(bad)?;
    znodes.set_cluster_id(cluster_id).map_err(bad)?;
    znodes.set_running(Some(&clock.now_ms().to_string())).map_err(bad)?;
    znodes.set_master(Some((master, 0))).map_err(bad)?;
    znodes.set_meta_region_server(Some(regionserver)).map_err(bad)?;
    for (name, table) in tables {
        znodes.set_table_state(name, Some(mirrored(table.state))).map_err(bad)?;
    }
    for namespace in namespaces.list()? {
        znodes.set_namespace(&String::from_utf8_lossy(&namespace.name), &namespace).map_err(bad)?;
    }
    Ok(znodes)
}

fn serve(
    master_port: RpcServer,
    regionserver_port: RpcServer,
    master: &Arc<Master>,
    regionserver: &Arc<RegionServer>,
    executor: &Arc<Executor>,
) -> Result<Vec<RpcServerHandle>> {
    let mut master_services = regionserver.services(executor);
    master_services.push(Arc::new(MasterService::new(Arc::clone(master), Arc::clone(executor))));
    let services = regionserver.services(executor);
    Ok(vec![master_port.serve(master_services)?, regionserver_port.serve(services)?])
}

/// Closes user regions, then hbase's own, hbase:meta last. Goes on at an error and tells of the first.
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

/// The ZooKeeper endpoint's thread.
struct ZooKeeperThread {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl ZooKeeperThread {
    fn start(
        listener: TcpListener,
        tree: Arc<ZnodeTree>,
        config: ZkConfig,
        supervisor: &Supervisor,
    ) -> Result<Self> {
        let (stop, stopped) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let run = move || {
            let served = runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                evenkeel_zookeeper::serve(listener, tree, config, async { drop(stopped.await) }).await
            });
            served.map_err(|error| error.to_string())
        };
        let thread = spawn_essential("zookeeper", supervisor, run)?;
        Ok(Self { stop, thread })
    }

    fn stop(self) {
        let _already_gone = self.stop.send(());
        drop(self.thread.join());
    }
}
