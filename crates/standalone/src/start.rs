//! The start: nine steps in this order, each safe to repeat after a crash.
//!
//! 1. `claim_directories` locks the root directory, and the one of the logs if `hbase.wal.dir`
//!    names another ([`wal_dir`]). It creates `hbase.version` and `hbase.id` in a new root
//!    directory.
//! 2. [`Ports::take`] opens the three ports and the info ports, which answer from now on: `/ready`
//!    reports the current step.
//! 3. `recover_wals` splits the WALs of every earlier run into `recovered.edits` and moves them to
//!    `oldWALs`.
//! 4. [`Storage::open`] opens the environment of regions: the WALs of this run, the caches, the
//!    background threads.
//! 5. `open_meta` opens hbase:meta, or creates it in a new directory, and writes its locations into
//!    `MasterData`, for a stock master that takes over later.
//! 6. `reconcile_tables` makes directories and hbase:meta agree ([`reconcile`]) and opens
//!    hbase:namespace.
//! 7. `open_regions` opens every region of every enabled table, and records the locations of all by
//!    one write to hbase:meta.
//! 8. `start_master` creates the znodes and the master, and registers the RegionServer with it.
//! 9. `serve` lets the ports answer and starts the chores.
//!
//! A locked directory, a taken port or an invalid setting ends the start with one line. Each step
//! uses the results of earlier steps. A failed step needs no explicit cleanup, because every part
//! ends when it is dropped.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_block_cache::BlockCache;
use evenkeel_common::clock;
use evenkeel_common::length;
use evenkeel_common::{Configuration, HBaseError, RegionInfo, Result, ServerName, TableName, TimeUnit};
use evenkeel_fs::{DirLock, FileSystem};
use evenkeel_info_server::LogLevels;
use evenkeel_master::chore::MasterChore;
use evenkeel_master::connection::EmbeddedConnection;
use evenkeel_master::meta::{MetaTable, TableState};
use evenkeel_master::metrics::MasterSource;
use evenkeel_master::namespaces::NamespaceTable;
use evenkeel_master::recovery::{SplitLimits, UnclaimedWal};
use evenkeel_master::service::MasterService;
use evenkeel_master::{Master, MasterParts, Table, reconcile, recovery, regions, to_mirror_state};
use evenkeel_metrics::{Record, Registry};
use evenkeel_process::info::{InfoParts, InfoServers};
use evenkeel_process::memory_trim::MemoryTrim;
use evenkeel_process::memory_use::MemoryMeter;
use evenkeel_process::runtime_settings::RuntimeSettings;
use evenkeel_process::server::{Hooks, Process, RpcEndpoint, Storage, executor_config, registry};
use evenkeel_process::status::{self, Status, StatusParts};
use evenkeel_process::{ProcessControl, Settings, connections, ignored_settings, io_error, security};
use evenkeel_region::region::nonce::NonceManager;
use evenkeel_region::region::{Region, WalRoot};
use evenkeel_regionserver::background::chore::Chore;
use evenkeel_regionserver::metrics::source::SourceNames;
use evenkeel_regionserver::{ClusterView, RegionServer, RegionServerParts};
use evenkeel_rpc::{Executor, RpcMetrics, RpcServer, RpcServerHandle};
use evenkeel_status_pages::Sampler;
use evenkeel_zookeeper::znodes::{ZnodePaths, Znodes};
use evenkeel_zookeeper::{ZkConfig, ZnodeTree};

use crate::endpoint::ZooKeeperThread;
use crate::master_pages::MasterPages;
use crate::ports::Ports;
use crate::{Standalone, files, master_store, wal_dir};

/// Starts a server; see [`Standalone::start_on`].
pub(crate) fn start(
    fs: Arc<dyn FileSystem>,
    conf: Configuration,
    ProcessControl { stop, log_levels, settings }: ProcessControl,
) -> Result<Standalone> {
    let began = clock::monotonic();
    let mut process = Process::new(fs, conf, stop)?;
    security::reject_open_master(&process.conf, process.settings.bind_address)?;
    ignored_settings::warn(&process.conf);
    let runtime_settings = RuntimeSettings::new(
        &process.current_conf,
        settings,
        Arc::clone(&log_levels),
        &process.settings.region,
    );
    let (locks, cluster_id) = claim_directories(&mut process)?;
    let (ports, info_ports) = Ports::take(&process.settings, &process.conf, &cluster_id)?;
    let pages_of_start = info_parts(&process, &log_levels, &ports.shared.rpc_metrics);
    let info = InfoServers::start(info_ports, &pages_of_start, &process.supervisor)?;
    let begins = |step| process.readiness.set_starting(step);
    begins("replaying the write-ahead logs");
    let recovery = recover_wals(&process)?;
    begins("opening the write-ahead logs and caches");
    let storage = Storage::open(&process, &recovery.name, &recovery.nonces, &ports.shared.limits)?;
    begins("opening hbase:meta");
    let meta = open_meta(&process, &storage)?;
    begins("comparing directories and hbase:meta");
    let catalog = reconcile_tables(&process, &storage, meta, &recovery)?;
    let names = (cluster_id, recovery.name.clone());
    let identity = Identity::new(&process.settings, names, ports.info.master);
    begins("opening regions");
    let (regionserver, connection) =
        open_regions(&process, &storage, &recovery, &catalog, &identity, (&ports, &runtime_settings))?;
    runtime_settings.serve(&regionserver);
    begins("starting the master");
    let master = start_master(&process, &storage, catalog, &identity, &regionserver, &connection)?;
    begins("starting to answer");
    let parts = StartedParts {
        storage: &storage,
        recovery: &recovery,
        identity: &identity,
        master: &master,
        regionserver: &regionserver,
    };
    let serving = serve(&process, parts, (ports, &info), log_levels)?;
    finish_start(&process, &storage, &master)?;
    Ok(Standalone {
        readiness: process.readiness,
        name: identity.name,
        master,
        regionserver,
        wals: storage.wals,
        wal_dir: process.wal_root.as_ref().map(wal_dir::uri_of),
        memory: serving.memory,
        rpc: serving.rpc,
        executor: serving.executor,
        chore: serving.chore,
        master_chore: serving.master_chore,
        memory_trim: serving.memory_trim,
        zookeeper: serving.zookeeper,
        info,
        sampler: serving.sampler,
        recovered: recovery.recovered,
        started_in: clock::since(began),
        settings: process.settings,
        failure: process.failure,
        _locks: locks,
    })
}

/// Starts the work that the master does while clients are served, and reports that they are.
fn finish_start(process: &Process, storage: &Storage, master: &Arc<Master>) -> Result<()> {
    master.start_background_recovery()?;
    master.ensure_slow_log_table()?;
    master.ensure_quota_table()?;
    let of_master = Arc::downgrade(master);
    let unfinished = move || of_master.upgrade().map(|master| master.pending_problems()).unwrap_or_default();
    process.readiness.set_serving(&storage.wals, unfinished);
    Ok(())
}

/// Step 1. Returns the locks and the cluster's id. What an earlier process left is made durable
/// before anything relies on it. A directory on HDFS has no lock: there the next step ends the logs
/// of an earlier server, which can then write no more.
fn claim_directories(process: &mut Process) -> Result<(Vec<DirLock>, String)> {
    let (fs, root) = (Arc::clone(&process.fs), process.settings.root.clone());
    fs.mkdirs(&root).map_err(|e| HBaseError::io(format!("{}: {e}", root.display())))?;
    let wait = process.settings.lock_wait;
    let waits = |error: &std::io::Error| {
        tracing::warn!(%error, wait_ms = length::whole_ms(wait), "waits for the other process to end");
    };
    let lock = |dir: &Path| Ok::<_, HBaseError>(DirLock::acquire_within(dir, wait, waits)?);
    let of_root = if fs.is_remote() { None } else { Some(lock(&root)?) };
    let of_logs = wal_dir::open(process, lock)?;
    process.sync_storage()?;
    let is_new = wal_dir::is_new(&*fs, &root)?;
    let cluster_id = files::prepare_root(&*fs, &root)?;
    wal_dir::check(process, &cluster_id, is_new)?;
    Ok((of_root.into_iter().chain(of_logs).collect(), cluster_id))
}

/// The state recovered from the WALs of earlier runs, and the name of this run.
struct Recovery {
    nonces: Arc<NonceManager>,
    recovered: recovery::Recovered,
    /// The WALs that are still where their server wrote them, by their root directory.
    unclaimed: Vec<(WalRoot, Vec<UnclaimedWal>)>,
    /// Its start code is later than every recovered edit.
    name: ServerName,
}

/// Limits of splits of logs at start, while MemStores are empty.
fn split_limits(settings: &Settings) -> SplitLimits {
    SplitLimits::new(settings.splitter_threads, settings.split_buffer_bytes, settings.memory.memstore)
}

/// Step 3.
fn recover_wals(process: &Process) -> Result<Recovery> {
    let (settings, clock) = (&process.settings, &process.clock);
    let nonces = process.nonces();
    let (limits, regions) = (split_limits(settings), (&*process.fs, &*settings.root));
    let (mut recovered, mut unclaimed) = (recovery::Recovered::default(), Vec::new());
    for logs in wal_dir::log_roots(process)? {
        let of_root = recovery::split_wals_of(&logs, regions, &nonces, limits)?;
        unclaimed.push((logs, of_root.unclaimed.clone()));
        recovered.add(of_root);
    }
    let name = ServerName::new(&settings.host, settings.regionserver_port, clock.now_ms());
    Ok(Recovery { nonces, recovered, unclaimed, name })
}

/// hbase:meta, open.
struct OpenMeta {
    region: Arc<Region>,
    table: MetaTable,
}

/// Step 5.
fn open_meta(process: &Process, storage: &Storage) -> Result<OpenMeta> {
    let limits = split_limits(&process.settings);
    let configured = regions::configured_meta_replicas(&process.conf).map_err(io_error)?;
    let replicas = regions::meta_replicas(&*process.fs, &process.settings.root, configured)?;
    master_store::record_meta_locations(&storage.meta_env, limits, replicas)?;
    let region = regions::open_meta(&storage.meta_env, configured)?;
    let table = MetaTable::new(Arc::clone(&region), Arc::clone(&process.clock))?;
    master_store::remove_old_procedures(&storage.meta_env)?;
    Ok(OpenMeta { region, table })
}

/// The tables, and the two regions that describe them.
struct Catalog {
    meta: OpenMeta,
    namespace_region: Arc<Region>,
    namespaces: NamespaceTable,
    tables: BTreeMap<TableName, Table>,
}

/// Step 6.
fn reconcile_tables(
    process: &Process,
    storage: &Storage,
    meta: OpenMeta,
    recovery: &Recovery,
) -> Result<Catalog> {
    let is_whole = recovery.recovered.damaged == 0;
    let (fs, root) = (&*process.fs, &process.settings.root);
    let edits: Vec<_> = storage.user_env.edit_roots().map(|(fs, root)| (&**fs, root)).collect();
    let mut tables = reconcile::reconcile(fs, root, &edits, &meta.table, is_whole)?;
    let is_whole = is_whole && !recovery.recovered.unclaimed.iter().any(UnclaimedWal::is_of_meta);
    for (logs, unclaimed) in &recovery.unclaimed {
        recovery::keep_lost_edits(&*logs.fs, &logs.path, &meta.table, is_whole, unclaimed)?;
    }
    wal_dir::remove_left_dir(process)?;
    let namespace_region = regions::open_namespace(&storage.user_env, &meta.table, &mut tables)?;
    let namespaces = NamespaceTable::new(Arc::clone(&namespace_region), Arc::clone(&process.clock));
    namespaces.ensure_built_in()?;
    namespaces.ensure_namespaces_of(tables.keys())?;
    Ok(Catalog { meta, namespace_region, namespaces, tables })
}

/// The names by which clients know the cluster.
struct Identity {
    cluster_id: String,
    name: ServerName,
    master_name: ServerName,
    /// The port of the master's pages; 0 for none.
    master_info_port: u16,
}

impl Identity {
    fn new(settings: &Settings, (cluster_id, name): (String, ServerName), master_info_port: u16) -> Self {
        let master_name = ServerName::new(&settings.host, settings.master_port, name.start_code);
        Self { cluster_id, name, master_name, master_info_port }
    }

    fn cluster_view(&self) -> ClusterView {
        ClusterView {
            cluster_id: self.cluster_id.clone(),
            active_master: Some(self.master_name.clone()),
            backup_masters: Vec::new(),
            region_servers: vec![self.name.clone()],
            meta: vec![(RegionInfo::meta(), Some(self.name.clone()), -1)],
        }
    }
}

/// Step 7. Returns the RegionServer, and its connection to the master, which does not exist yet.
fn open_regions(
    process: &Process,
    storage: &Storage,
    recovery: &Recovery,
    catalog: &Catalog,
    identity: &Identity,
    (ports, runtime_settings): (&Ports, &Arc<RuntimeSettings>),
) -> Result<(Arc<RegionServer>, Arc<EmbeddedConnection>)> {
    let settings = &process.settings;
    let connection = EmbeddedConnection::new(identity.cluster_view());
    let regionserver = RegionServer::new(RegionServerParts {
        name: identity.name.clone(),
        info_port: ports.info.regionserver,
        root: settings.root.clone(),
        config: settings.regionserver.clone(),
        clock: Arc::clone(&process.clock),
        cache: Arc::clone(&storage.stores.cache),
        unsent: Arc::clone(&ports.shared.budgets.replies),
        rpc_metrics: Arc::clone(&ports.shared.rpc_metrics),
        chunks: Arc::clone(&storage.stores.chunks),
        nonces: Arc::clone(&recovery.nonces),
        background: Arc::clone(&storage.background),
        hooks: Arc::new(Hooks {
            wals: storage.wals.clone(),
            stop: Arc::clone(&process.stop),
            settings: Arc::clone(runtime_settings),
            conf: Arc::clone(&process.conf),
        }),
        master: Arc::clone(&connection) as _,
    });
    drop(storage.regionserver.set(Arc::downgrade(&regionserver)));
    drop(regionserver.regions().add(Arc::clone(&catalog.meta.region)));
    drop(regionserver.regions().add(Arc::clone(&catalog.namespace_region)));
    regions::open_all(&storage.user_env, &catalog.meta.table, &catalog.tables, &regionserver)?;
    Ok((regionserver, connection))
}

/// Step 8.
fn start_master(
    process: &Process,
    storage: &Storage,
    catalog: Catalog,
    identity: &Identity,
    regionserver: &Arc<RegionServer>,
    connection: &Arc<EmbeddedConnection>,
) -> Result<Arc<Master>> {
    let Catalog { meta, namespaces, mut tables, .. } = catalog;
    let meta_table = Table { descriptor: Arc::clone(meta.region.table()), state: TableState::Enabled };
    tables.insert(TableName::meta(), meta_table);
    let znodes = make_znodes(process, identity, &tables, &namespaces)?;
    let stop = Arc::clone(&process.stop);
    let (meta_env, limits) = (Arc::clone(&storage.meta_env), split_limits(&process.settings));
    let parts = MasterParts {
        region_env: Arc::clone(&storage.user_env),
        conf: Arc::clone(&process.conf),
        server: identity.name.clone(),
        master_name: identity.master_name.clone(),
        info_port: identity.master_info_port,
        cluster_id: identity.cluster_id.clone(),
        regionserver: Arc::clone(regionserver),
        connection: Arc::clone(connection),
        meta: meta.table,
        namespaces,
        znodes,
        record_meta_replicas: Box::new(move |replicas| {
            master_store::record_meta_locations(&meta_env, limits, replicas)
        }),
        stop: Box::new(move |reason| stop(reason)),
    };
    let master = Master::new(parts, tables)?;
    connection.connect(&master);
    regionserver.report_for_duty()?;
    master.discard_unfinished_snapshots()?;
    master.connect_quotas();
    Ok(master)
}

/// Creates the znodes that clients read first.
fn make_znodes(
    process: &Process,
    identity: &Identity,
    tables: &BTreeMap<TableName, Table>,
    namespaces: &NamespaceTable,
) -> Result<Arc<Znodes>> {
    let tree = ZnodeTree::with_clock(Arc::clone(&process.clock))
        .with_memory_limit(process.settings.memory.zookeeper);
    let paths = ZnodePaths::from_configuration(&process.conf).map_err(io_error)?;
    let master = &identity.master_name;
    let znodes = Arc::new(Znodes::new(Arc::new(tree), paths, &format!("master:{}", master.port)));
    znodes.create_base_nodes().map_err(io_error)?;
    znodes.set_cluster_id(&identity.cluster_id).map_err(io_error)?;
    znodes.set_running(Some(&process.clock.now_ms().to_string())).map_err(io_error)?;
    znodes.set_master(Some((master, identity.master_info_port.into()))).map_err(io_error)?;
    znodes.set_meta_region_server(Some(&identity.name)).map_err(io_error)?;
    for (name, table) in tables {
        znodes.set_table_state(name, Some(to_mirror_state(table.state))).map_err(io_error)?;
    }
    namespaces.publish(&znodes)?;
    Ok(znodes)
}

/// The parts that answer calls, and the threads beside them.
struct Serving {
    rpc: Vec<RpcServerHandle>,
    executor: Arc<Executor>,
    chore: Chore,
    master_chore: MasterChore,
    memory_trim: MemoryTrim,
    zookeeper: ZooKeeperThread,
    sampler: Sampler,
    memory: MemoryMeter,
}

/// Returns the contents of the info ports before clients are served.
fn info_parts(
    process: &Process,
    log_levels: &Arc<dyn LogLevels>,
    rpc_metrics: &Arc<RpcMetrics>,
) -> InfoParts {
    InfoParts {
        registry: Registry::new(),
        conf: Arc::clone(&process.current_conf),
        log_levels: Arc::clone(log_levels),
        rpc_metrics: Arc::clone(rpc_metrics),
        hostname: process.settings.host.clone(),
        readiness: Arc::clone(&process.readiness) as _,
    }
}

/// The results of the steps before the last.
struct StartedParts<'a> {
    storage: &'a Storage,
    recovery: &'a Recovery,
    identity: &'a Identity,
    master: &'a Arc<Master>,
    regionserver: &'a Arc<RegionServer>,
}

/// Step 9.
fn serve(
    process: &Process,
    parts: StartedParts<'_>,
    (ports, info): (Ports, &InfoServers),
    log_levels: Arc<dyn LogLevels>,
) -> Result<Serving> {
    let StartedParts { storage, recovery, identity, master, regionserver } = parts;
    let Process { conf, settings, supervisor, .. } = process;
    let executor = Arc::new(Executor::start(&executor_config(conf, &identity.name, supervisor)?)?);
    let chore = Chore::start(regionserver)?;
    let rpc_ports = (ports.master.supervised_by(supervisor), ports.regionserver.supervised_by(supervisor));
    let rpc = serve_rpc(rpc_ports, master, regionserver, &executor)?;
    let [master_rpc, regionserver_rpc] = &rpc;
    let endpoint = RpcEndpoint { rpc: regionserver_rpc, executor: &executor };
    let zookeeper_quorum = format!("{}:{}", settings.host, settings.zookeeper_port);
    let names = SourceNames { zookeeper_quorum, cluster_id: identity.cluster_id.clone() };
    let registry = registry(process, storage, regionserver, Some(endpoint), names.clone());
    register_master(&registry, master, RpcEndpoint { rpc: master_rpc, executor: &executor }, names.clone());
    let memory = MemoryMeter {
        regionserver: Arc::downgrade(regionserver),
        chunks: Arc::clone(&storage.stores.chunks),
        wals: storage.wals.clone(),
        rpc: vec![master_rpc.monitor(), regionserver_rpc.monitor()],
        znode_tree: Some(Arc::clone(master.znodes().tree())),
        nonces: Arc::clone(&recovery.nonces),
    };
    let (meter, plan) = (memory.clone(), settings.memory);
    registry.register(Arc::new(move |records: &mut Vec<Record>| records.push(meter.record(&plan))));
    let status = StatusParts {
        regionserver,
        endpoint: RpcEndpoint { rpc: regionserver_rpc, executor: &executor },
        names,
        master: Some(Arc::new(MasterPages(Arc::downgrade(master)))),
        memory: memory.clone(),
        ignored: status::ignored_settings(conf),
        registry: Arc::clone(&registry),
    };
    let status = Status::start(process, storage, status)?;
    let info_parts = InfoParts { registry, ..info_parts(process, &log_levels, &ports.shared.rpc_metrics) };
    info.serve(&info_parts, |routes| status.add_to(routes))?;
    let master_chore = MasterChore::start(master, janitor_period(conf)?)?;
    let zookeeper = ZkConfig {
        connections_max: ports.shared.limits.zookeeper,
        receive_timeout: connections::timeouts(conf)?.1,
        budgets: ports.shared.budgets,
        ..ZkConfig::from_configuration(conf).map_err(io_error)?
    };
    let tree = Arc::clone(master.znodes().tree());
    let zookeeper = ZooKeeperThread::start(ports.zookeeper, tree, zookeeper, supervisor)?;
    let (cache, chunks): (&Arc<dyn BlockCache>, _) = (&storage.stores.cache, &storage.stores.chunks);
    let trim = (settings.memory_trim_period, settings.memory.sum());
    let memory_trim = MemoryTrim::start(trim, regionserver, cache, chunks)?;
    let (rpc, sampler) = (rpc.into(), status.into_sampler());
    Ok(Serving { rpc, executor, chore, master_chore, memory_trim, zookeeper, sampler, memory })
}

/// Registers the metrics of the master, whose port is the first.
fn register_master(
    registry: &Registry,
    master: &Arc<Master>,
    RpcEndpoint { rpc, executor }: RpcEndpoint<'_>,
    names: SourceNames,
) {
    registry.register(Arc::new(MasterSource {
        master: Arc::downgrade(master),
        rpc: rpc.monitor(),
        executor: Arc::clone(executor),
        zookeeper_quorum: names.zookeeper_quorum,
    }));
}

fn janitor_period(conf: &Configuration) -> Result<Duration> {
    let ms = conf.get_time_or("hbase.catalogjanitor.interval", TimeUnit::Milliseconds, 300_000);
    Ok(Duration::from_millis(ms.map_err(io_error)?.max(1).unsigned_abs()))
}

/// Serves the master's port, then the RegionServer's. The master's port also answers the
/// RegionServer's calls, because clients use either port for the registry.
fn serve_rpc(
    (master_port, regionserver_port): (RpcServer, RpcServer),
    master: &Arc<Master>,
    regionserver: &Arc<RegionServer>,
    executor: &Arc<Executor>,
) -> Result<[RpcServerHandle; 2]> {
    let mut master_services = regionserver.services(executor);
    master_services.extend(MasterService::all(master, executor));
    let services = regionserver.services(executor);
    Ok([master_port.serve(master_services)?, regionserver_port.serve(services)?])
}
