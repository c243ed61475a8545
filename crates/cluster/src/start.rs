//! The start: eight steps in this order.
//!
//! - 1: `Connections::start`: starts the thread of all connections that this server opens
//! - 2: [`Session::open`], [`Session::wait_for_cluster`]: opens the session with its lease, which
//!   pings extend from then on, and waits for an active master and the cluster's id
//! - 3: `take_ports`: the RPC port listens; the info port answers and shows the progress
//! - 4: `register`: registers the server with the master, which returns the root directory
//! - 5: [`MasterConnection::announce`]: creates the ephemeral znode, by which masters see that the
//!   server is alive
//! - 6: `open_file_systems` opens the file system of the root directory; `open_storage` creates
//!   `WALs/<server>`, which must not exist before; caches, background threads
//! - 7: `open_server`: creates the RegionServer and the executor of procedures
//! - 8: `serve`: the ports answer, the chore runs and reports the load
//!
//! **The znode exists before the log directory, and for as long as the directory is in use.** A
//! master that becomes active declares each server dead that has a directory and no znode. And a
//! master learns only from the znode that a registered server is gone: with the znode first, a
//! start that dies anywhere leaves nothing that no master looks at. A start that fails removes the
//! znode, so that nobody waits for the session to expire.
//!
//! The master may send regions as soon as step 4 is done; its RPCs wait in the port's backlog until
//! step 8.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use evenkeel_common::clock;
use evenkeel_common::thread::spawn_essential;
use evenkeel_common::{Configuration, HBaseError, Result, ServerName};
use evenkeel_fs::{FileSystem, Location};
use evenkeel_metrics::{Record, Registry};
use evenkeel_process::connections::DescriptorLimits;
use evenkeel_process::info::{InfoParts, InfoPorts, InfoServers};
use evenkeel_process::memory_trim::MemoryTrim;
use evenkeel_process::memory_use::MemoryMeter;
use evenkeel_process::ports::{PortBudgets, RpcPort};
use evenkeel_process::runtime_settings::RuntimeSettings;
use evenkeel_process::server::{Hooks, Process, RpcEndpoint, Storage, executor_config, registry};
use evenkeel_process::status::{self, Status, StatusParts};
use evenkeel_process::{
    ConfigurationSource, LogLevels, ProcessControl, Settings, ignored_settings, settings, storage,
};
use evenkeel_protocol::pb;
use evenkeel_region::layout;
use evenkeel_region::region::WalRoot;
use evenkeel_region::region::nonce::NonceManager;
use evenkeel_regionserver::background::chore::Chore;
use evenkeel_regionserver::background::mob_cleaner::{MobFileCleaner, MobFileCleanup};
use evenkeel_regionserver::master_connection;
use evenkeel_regionserver::metrics::source::SourceNames;
use evenkeel_regionserver::replica_sender::ReplicaSender;
use evenkeel_regionserver::{MasterConnection, RegionServer, RegionServerParts, ServerHooks};
use evenkeel_rpc::{Executor, RpcMetrics, RpcServer, RpcServerHandle};
use evenkeel_status_pages::Sampler;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::ClusterServer;
use crate::abort::Abort;
use crate::fenced_fs::FencedFileSystem;
use crate::hot_blocks::{ClusterPeers, HotBlocks};
use crate::lease::Lease;
use crate::master::ClusterConnection;
use crate::procedures::Procedures;
use crate::quotas;
use crate::replica_flush;
use crate::replica_sender::ReplicaSenders;
use crate::session::Session;
use crate::settings::ClusterSettings;
use crate::slow_log_table;
use crate::transitions::{TransitionParts, Transitions};
use crate::zookeeper_procedures;

/// The first pause between attempts to register; each pause doubles the previous one.
const REGISTER_PAUSE: Duration = Duration::from_millis(500);
const REGISTER_PAUSE_MAX: Duration = Duration::from_secs(10);
/// The locations of the cluster's files, as reported by the master.
const STORAGE_KEYS: [&str; 2] = ["hbase.rootdir", "fs.defaultFS"];

/// The thread of all connections that this server opens, and its runtime. It ends when this is
/// dropped.
pub(crate) struct Connections {
    pub(crate) runtime: Handle,
    _stop: oneshot::Sender<()>,
}

impl Connections {
    fn start(process: &Process) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let handle = runtime.handle().clone();
        let run = move || {
            drop(runtime.block_on(stopped));
            Ok(())
        };
        drop(spawn_essential("cluster", &process.supervisor, run)?);
        Ok(Self { runtime: handle, _stop: stop })
    }
}

/// Starts a server; see [`ClusterServer::start`].
pub(crate) fn start(
    conf: Configuration,
    ProcessControl { stop, log_levels, settings: source }: ProcessControl,
) -> Result<ClusterServer> {
    let began = clock::monotonic();
    let cluster = ClusterSettings::from(&conf)?;
    let mut process = Process::new(storage::root_file_system(&conf)?, conf, stop)?;
    ignored_settings::warn_in_cluster(&process.conf);
    let connections = Connections::start(&process)?;
    let session = Session::open(&connections.runtime, &cluster, &process.failure)?;
    session.wait_for_cluster()?;
    let settings = &process.settings;
    let name = ServerName::new(&settings.host, settings.regionserver_port, process.clock.now_ms());
    let joined = join(&mut process, &name, (&cluster, &connections.runtime, &session), (source, &log_levels));
    // The end of the lease is a reason to fail, too: the first reason is read before.
    let joined = joined.map_err(|error| reason(&process, error));
    let Joined { storage, regionserver, transitions, abort, serving } =
        joined.inspect_err(|_| session.abandon(&name))?;
    tracing::info!(server = %name, "joined the cluster");
    Ok(ClusterServer {
        process,
        cluster,
        name,
        storage,
        regionserver,
        transitions,
        session,
        abort,
        connections,
        rpc: serving.rpc,
        executor: serving.executor,
        chore: serving.chore,
        mob_cleaner: serving.mob_cleaner,
        memory_trim: serving.memory_trim,
        info: serving.info,
        sampler: serving.sampler,
        started_in: clock::since(began),
    })
}

/// A server that has a reason to fail may fail to start by its consequences.
fn reason(process: &Process, error: HBaseError) -> HBaseError {
    process.failure.get().map_or(error, HBaseError::io)
}

/// The parts of a server that has joined.
struct Joined {
    storage: Storage,
    regionserver: Arc<RegionServer>,
    transitions: Arc<Transitions>,
    abort: Arc<Abort>,
    serving: Serving,
}

/// Steps 3 to 8. After an error nothing of the server is left but what it has written, and perhaps
/// its znode.
fn join(
    process: &mut Process,
    name: &ServerName,
    (cluster, runtime, session): (&ClusterSettings, &Handle, &Arc<Session>),
    (source, log_levels): (ConfigurationSource, &Arc<dyn LogLevels>),
) -> Result<Joined> {
    let abort =
        Abort::new(Arc::clone(&process.failure), Arc::clone(&process.stop), Arc::clone(session.lease()));
    session.watch(name, &abort, on_cluster_stop(process));
    let ports = take_ports(process, session, log_levels)?;
    let version = process.settings.regionserver.version.clone();
    let master = ClusterConnection::new(session, runtime, cluster, &version);
    let nonces = process.nonces();
    let limits = &ports.shared.limits;
    let storage = enter(process, &*master, (name, ports.info_port), session.lease(), (&nonces, limits))?;
    let runtime_settings =
        RuntimeSettings::new(&process.current_conf, source, Arc::clone(log_levels), &process.settings.region);
    let parts = (&*process, &storage, &abort, &runtime_settings);
    let peers = ClusterPeers::new(session, runtime, &version);
    let senders = ReplicaSenders::new(runtime, session, &process.clock, &process.conf)?;
    let others = (&master, peers, &senders);
    let (regionserver, transitions) = open_server(parts, cluster, &ports, name, others, &nonces)?;
    runtime_settings.serve(&regionserver);
    process.readiness.set_starting("starting to answer");
    let serving = serve((process, &storage), ports, (session, &nonces), &regionserver, log_levels)?;
    process.readiness.set_serving(&storage.wals, Vec::new);
    master.send_reports(&abort);
    slow_log_table::start(runtime, &regionserver, &process.conf, &process.clock)?;
    let archived = &storage.stores.archived_files;
    quotas::start(runtime, &regionserver, &process.conf, (session, &master), archived)?;
    replica_flush::start(runtime, &regionserver, &process.conf)?;
    senders.iter().for_each(|senders| senders.start(&regionserver));
    zookeeper_procedures::start(session, &abort, &transitions, &process.conf, &process.supervisor)?;
    match process.failure.get() {
        None => Ok(Joined { storage, regionserver, transitions, abort, serving }),
        Some(reason) => Err(HBaseError::io(reason)),
    }
}

/// Steps 4 to 6.
fn enter(
    process: &mut Process,
    master: &dyn MasterConnection,
    (name, info_port): (&ServerName, u16),
    lease: &Arc<Lease>,
    (nonces, limits): (&Arc<NonceManager>, &DescriptorLimits),
) -> Result<Storage> {
    process.readiness.set_starting("registering with the master");
    register(process, master, name, lease)?;
    master_connection::announce(master, name, info_port, &process.settings.regionserver.version)?;
    process.readiness.set_starting("opening the write-ahead logs and caches");
    open_file_systems(process, lease)?;
    open_storage(process, name, nonces, limits)
}

fn on_cluster_stop(process: &Process) -> Arc<dyn Fn() + Send + Sync> {
    let stop = Arc::clone(&process.stop);
    Arc::new(move || stop("the master shuts the cluster down"))
}

/// An RPC port that listens but does not answer yet, and an info port that reports the progress of
/// the start.
struct Ports {
    rpc: RpcServer,
    info: InfoServers,
    info_port: u16,
    shared: PortBudgets,
}

/// Step 3.
fn take_ports(process: &Process, session: &Arc<Session>, log_levels: &Arc<dyn LogLevels>) -> Result<Ports> {
    let Process { settings, conf, supervisor, .. } = process;
    let shared = PortBudgets::new(settings, conf)?;
    let session = Arc::downgrade(session);
    let cluster_id = move || {
        let id = session.upgrade().map(|session| session.view().cluster_id.clone());
        id.filter(|id| !id.is_empty())
    };
    let rpc =
        RpcPort::of_regionserver(settings, &shared).bind(settings, conf, &shared, Arc::new(cluster_id))?;
    let info = InfoPorts::take_regionserver(settings, conf)?;
    let info_port = info.regionserver_port();
    let parts = info_parts(process, Registry::new(), log_levels, &shared.rpc_metrics);
    let info = InfoServers::start(info, &parts, supervisor)?;
    Ok(Ports { rpc, info, info_port, shared })
}

/// Returns the contents of the info port.
fn info_parts(
    process: &Process,
    registry: Arc<Registry>,
    log_levels: &Arc<dyn LogLevels>,
    rpc_metrics: &Arc<RpcMetrics>,
) -> InfoParts {
    InfoParts {
        registry,
        conf: Arc::clone(&process.current_conf),
        log_levels: Arc::clone(log_levels),
        hostname: process.settings.host.clone(),
        rpc_metrics: Arc::clone(rpc_metrics),
        readiness: Arc::clone(&process.readiness) as _,
    }
}

/// Step 4. Retries until a master accepts; gives up if the master rejects the server permanently,
/// or the lease ends.
fn register(
    process: &mut Process,
    master: &dyn MasterConnection,
    name: &ServerName,
    lease: &Lease,
) -> Result<()> {
    let mut pause = REGISTER_PAUSE;
    let told = loop {
        match master_connection::register(master, name, process.clock.now_ms()) {
            Ok(told) => break told,
            Err(error) if error.is_do_not_retry() || !lease.holds() => return Err(error),
            Err(error) => tracing::warn!(%error, "the master did not register this server; retrying"),
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(REGISTER_PAUSE_MAX);
    };
    take_over(process, &told)
}

/// The master's root directory overrides the local setting.
fn take_over(process: &mut Process, told: &[pb::NameStringPair]) -> Result<()> {
    let mut conf = (*process.conf).clone();
    for entry in told.iter().filter(|entry| STORAGE_KEYS.contains(&&*entry.name)) {
        conf.set(&*entry.name, &*entry.value);
    }
    let root = settings::root_location(&conf)
        .map_err(|e| HBaseError::io(format!("the master's root directory: {}", e.message())))?;
    tracing::info!(root = %root, "the root directory of the cluster");
    process.settings = Settings { root: root.path().to_owned(), ..process.settings.clone() };
    process.conf = Arc::new(conf);
    Ok(())
}

/// Step 6. The file systems of the root directory and of the logs, which may be changed while the
/// lease holds. What processes of this machine left there is made durable.
fn open_file_systems(process: &mut Process, lease: &Arc<Lease>) -> Result<()> {
    let fenced = |fs| -> Arc<dyn FileSystem> { Arc::new(FencedFileSystem::new(fs, Arc::clone(lease))) };
    process.fs = fenced(storage::root_file_system(&process.conf)?);
    if let Some(location) = settings::wal_location(&process.conf)? {
        tracing::info!(directory = %location, "the directory of the cluster's logs");
        let is_beside = location.is_beside(&settings::root_location(&process.conf)?);
        let fs = match is_beside {
            true => Arc::clone(&process.fs),
            false => fenced(storage::file_system(&process.conf, &location)?),
        };
        process.wal_root = Some(WalRoot { fs, path: location.path().to_owned() });
    }
    process.sync_storage()
}

/// Step 6.
fn open_storage(
    process: &Process,
    name: &ServerName,
    nonces: &Arc<NonceManager>,
    limits: &DescriptorLimits,
) -> Result<Storage> {
    let root = process.wal_root();
    let logs = root.path.join(layout::WALS_DIR).join(name.to_string());
    if root.fs.exists(&logs)? {
        return Err(HBaseError::io(format!("{} exists: another server has this name", logs.display())));
    }
    Storage::open(process, name, nonces, limits)
}

/// Step 7.
fn open_server(
    (process, storage, abort, runtime_settings): (&Process, &Storage, &Arc<Abort>, &Arc<RuntimeSettings>),
    cluster: &ClusterSettings,
    ports: &Ports,
    name: &ServerName,
    (master, peers, senders): (&Arc<ClusterConnection>, Arc<ClusterPeers>, &Option<Arc<ReplicaSenders>>),
    nonces: &Arc<NonceManager>,
) -> Result<(Arc<RegionServer>, Arc<Transitions>)> {
    let hooks = Arc::new(ClusterHooks {
        process: Hooks {
            wals: storage.wals.clone(),
            stop: Arc::clone(&process.stop),
            settings: Arc::clone(runtime_settings),
            conf: Arc::clone(&process.conf),
        },
        procedures: OnceLock::new(),
        hot_blocks: OnceLock::new(),
        senders: senders.clone(),
    });
    let settings = &process.settings;
    let server = RegionServer::new(RegionServerParts {
        name: name.clone(),
        info_port: ports.info_port,
        root: settings.root.clone(),
        config: settings.regionserver.clone(),
        clock: Arc::clone(&process.clock),
        cache: Arc::clone(&storage.stores.cache),
        unsent: Arc::clone(&ports.shared.budgets.replies),
        rpc_metrics: Arc::clone(&ports.shared.rpc_metrics),
        chunks: Arc::clone(&storage.stores.chunks),
        nonces: Arc::clone(nonces),
        background: Arc::clone(&storage.background),
        hooks: Arc::clone(&hooks) as _,
        master: Arc::clone(master) as _,
    });
    drop(storage.regionserver.set(Arc::downgrade(&server)));
    abort.connect(&server);
    let hot_blocks = HotBlocks::start(&server, &storage.stores.cache, peers, cluster.hot_blocks)?;
    drop(hooks.hot_blocks.set(Arc::clone(&hot_blocks)));
    let transitions = Transitions::new(TransitionParts {
        server: Arc::clone(&server),
        master: Arc::clone(master) as _,
        abort: Arc::clone(abort),
        clock: Arc::clone(&process.clock),
        user_env: Arc::clone(&storage.user_env),
        meta_env: Arc::clone(&storage.meta_env),
        hot_blocks: Some(hot_blocks),
    });
    let split_buffer_bytes = settings.memory.split_buffers(settings.split_buffer_bytes);
    let procedures =
        Procedures::start(Arc::clone(&transitions), cluster, split_buffer_bytes, &process.supervisor)?;
    drop(hooks.procedures.set(procedures));
    Ok((server, transitions))
}

/// Handles requests of the master and of operators to the process.
struct ClusterHooks {
    process: Hooks,
    procedures: OnceLock<Arc<Procedures>>,
    hot_blocks: OnceLock<Arc<HotBlocks>>,
    senders: Option<Arc<ReplicaSenders>>,
}

impl ClusterHooks {
    fn procedures(&self) -> Result<&Arc<Procedures>> {
        self.procedures.get().ok_or_else(not_running_yet)
    }
}

fn not_running_yet() -> HBaseError {
    HBaseError::new(evenkeel_common::ErrorKind::ServerNotRunningYet, "Server is not running yet")
}

impl ServerHooks for ClusterHooks {
    fn roll_wal(&self) -> Result<Vec<Vec<u8>>> {
        self.process.roll_wal()
    }

    fn stop(&self, reason: &str) {
        self.process.stop(reason);
    }

    fn update_configuration(&self) -> Result<()> {
        self.process.update_configuration()
    }

    fn execute_procedures(&self, request: pb::ExecuteProceduresRequest) -> Result<()> {
        self.procedures()?.execute(request)
    }

    fn close_region(&self, request: pb::CloseRegionRequest) -> Result<()> {
        self.procedures()?.close_region(request)
    }

    fn is_own_file_system(&self, location: &Location) -> Result<bool> {
        self.process.is_own_file_system(location)
    }

    fn file_system(&self, location: &Location) -> Result<Arc<dyn FileSystem>> {
        self.process.file_system(location)
    }

    fn hot_blocks(&self, request: pb::HotBlocksRequest) -> Result<()> {
        self.hot_blocks.get().ok_or_else(not_running_yet)?.receive(&request)
    }

    fn replica_sender(&self) -> Option<&dyn ReplicaSender> {
        self.senders.as_deref().map(|senders| senders as _)
    }
}

/// The running ports, and the threads beside them.
struct Serving {
    rpc: RpcServerHandle,
    executor: Arc<Executor>,
    chore: Chore,
    mob_cleaner: Option<MobFileCleaner>,
    memory_trim: MemoryTrim,
    info: InfoServers,
    sampler: Sampler,
}

/// Step 8.
fn serve(
    (process, storage): (&Process, &Storage),
    ports: Ports,
    (session, nonces): (&Session, &Arc<NonceManager>),
    regionserver: &Arc<RegionServer>,
    log_levels: &Arc<dyn LogLevels>,
) -> Result<Serving> {
    let Process { conf, settings, supervisor, .. } = process;
    let executor = Arc::new(Executor::start(&executor_config(conf, regionserver.name(), supervisor)?)?);
    let rpc = ports.rpc.supervised_by(supervisor).serve(regionserver.services(&executor))?;
    let endpoint = RpcEndpoint { rpc: &rpc, executor: &executor };
    let names = SourceNames {
        zookeeper_quorum: conf.get_str_or("hbase.zookeeper.quorum", String::new()).unwrap_or_default(),
        cluster_id: session.view().cluster_id.clone(),
    };
    let registry = registry(process, storage, regionserver, Some(endpoint), names.clone());
    let memory = MemoryMeter {
        regionserver: Arc::downgrade(regionserver),
        chunks: Arc::clone(&storage.stores.chunks),
        wals: storage.wals.clone(),
        rpc: vec![rpc.monitor()],
        znode_tree: None,
        nonces: Arc::clone(nonces),
    };
    let (meter, plan) = (memory.clone(), settings.memory);
    registry.register(Arc::new(move |records: &mut Vec<Record>| records.push(meter.record(&plan))));
    let status = StatusParts {
        regionserver,
        endpoint,
        names,
        master: None,
        memory,
        ignored: status::ignored_settings_in_cluster(conf),
        registry: Arc::clone(&registry),
    };
    let status = Status::start(process, storage, status)?;
    let info = ports.info;
    info.serve(&info_parts(process, registry, log_levels, &ports.shared.rpc_metrics), |routes| {
        status.add_to(routes)
    })?;
    let chore = Chore::start(regionserver)?;
    let mob_cleanup = MobFileCleanup::from(conf).map_err(|error| HBaseError::io(error.to_string()))?;
    let mob_cleaner = mob_cleanup.map(|cleanup| MobFileCleaner::start(regionserver, cleanup)).transpose()?;
    let (cache, chunks) = (&storage.stores.cache, &storage.stores.chunks);
    let trim = (settings.memory_trim_period, settings.memory.sum());
    let memory_trim = MemoryTrim::start(trim, regionserver, cache, chunks)?;
    Ok(Serving { rpc, executor, chore, mob_cleaner, memory_trim, info, sampler: status.into_sampler() })
}

#[cfg(test)]
mod tests;
