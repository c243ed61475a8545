//! A panic in a transition: the master gets an outcome, or the server ends. The clock of the
//! regions panics on request, so the panic is inside `Region::open` or `Region::close`.

use std::path::PathBuf;
use std::sync::mpsc;

use evenkeel_block_cache::{BlockCache, NoCache};
use evenkeel_common::clock::ManualClock;
use evenkeel_common::{Budget, ColumnFamilyDescriptor, TableDescriptor};
use evenkeel_fs::{FileSystem, LocalHost, MemoryFileSystem};
use evenkeel_region::memstore::ChunkPool;
use evenkeel_region::region::nonce::NonceManager;
use evenkeel_region::region::{NoEvents, RegionConfig, ReplicaReplication};
use evenkeel_region::store::{StoreConfig, StoreEnv};
use evenkeel_regionserver::background::BackgroundConfig;
use evenkeel_regionserver::{Background, ClusterView, RegionServerConfig, RegionServerParts, ServerHooks};
use evenkeel_wal::{NoListener, Wal, WalConfig, WalOptions};

use super::*;
use crate::hot_blocks::{HotBlockSettings, Peers};
use crate::lease::Lease;

/// A clock that panics while `fails` is true.
#[derive(Debug, Default)]
struct FailingClock {
    fails: AtomicBool,
}

impl Clock for FailingClock {
    fn now_ms(&self) -> i64 {
        assert!(!self.fails.load(Ordering::Relaxed), "a bug");
        1_000_000
    }
}

/// A master that accepts every report, or panics when it gets one.
#[derive(Default)]
struct RecordingMaster {
    fails: AtomicBool,
    codes: Mutex<Vec<TransitionCode>>,
}

impl MasterConnection for RecordingMaster {
    fn region_server_startup(
        &self,
        _request: pb::RegionServerStartupRequest,
    ) -> Result<pb::RegionServerStartupResponse> {
        Ok(pb::RegionServerStartupResponse::default())
    }

    fn announce(&self, _server: &ServerName, _info: pb::RegionServerInfo) -> Result<()> {
        Ok(())
    }

    fn report_interval(&self) -> Option<Duration> {
        None
    }

    fn region_server_report(&self, _request: pb::RegionServerReportRequest) {}

    fn report_region_state_transition(
        &self,
        request: pb::ReportRegionStateTransitionRequest,
    ) -> Result<pb::ReportRegionStateTransitionResponse> {
        assert!(!self.fails.load(Ordering::Relaxed), "a bug");
        self.codes.lock().extend(request.transition.iter().map(pb::RegionStateTransition::transition_code));
        Ok(pb::ReportRegionStateTransitionResponse::default())
    }

    fn report_procedure_done(&self, _request: pb::ReportProcedureDoneRequest) -> Result<()> {
        Ok(())
    }

    fn last_flushed_sequence_id(&self, _region: &[u8]) -> Result<pb::GetLastFlushedSequenceIdResponse> {
        Ok(pb::GetLastFlushedSequenceIdResponse::default())
    }

    fn report_fatal_error(&self, _request: pb::ReportRsFatalErrorRequest) {}

    fn cluster_view(&self) -> Arc<ClusterView> {
        Arc::default()
    }
}

pub(crate) struct NoHooks;

impl ServerHooks for NoHooks {
    fn roll_wal(&self) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn stop(&self, _reason: &str) {}

    fn update_configuration(&self) -> Result<()> {
        Ok(())
    }
}

/// A server of a cluster in memory, and a region that is not open.
pub(crate) struct TestCluster {
    pub(crate) transitions: Arc<Transitions>,
    clock: Arc<FailingClock>,
    master: Arc<RecordingMaster>,
    pub(crate) region: RegionInfo,
    pub(crate) hot_blocks: Option<Arc<HotBlocks>>,
    stopped: mpsc::Receiver<String>,
}

/// What differs between the servers of tests.
pub(crate) struct TestParts {
    pub(crate) hooks: Arc<dyn ServerHooks>,
    pub(crate) replication: ReplicaReplication,
    /// Those of the table.
    pub(crate) attributes: Vec<(&'static str, &'static str)>,
}

impl Default for TestParts {
    fn default() -> Self {
        Self { hooks: Arc::new(NoHooks), replication: ReplicaReplication::default(), attributes: Vec::new() }
    }
}

/// Other servers, to which one tells hot blocks.
pub(crate) type TestPeers = (Arc<dyn Peers>, HotBlockSettings);

impl TestCluster {
    pub(crate) fn new() -> Self {
        let fs: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
        Self::on(&fs, "h", Arc::new(NoCache), None)
    }

    /// A server of this host, on a file system that it may share with others.
    pub(crate) fn on(
        fs: &Arc<dyn FileSystem>,
        host: &str,
        cache: Arc<dyn BlockCache>,
        peers: Option<TestPeers>,
    ) -> Self {
        Self::with(fs, host, cache, peers, TestParts::default())
    }

    /// As [`TestCluster::on`], with other settings and hooks.
    pub(crate) fn with(
        fs: &Arc<dyn FileSystem>,
        host: &str,
        cache: Arc<dyn BlockCache>,
        peers: Option<TestPeers>,
        parts: TestParts,
    ) -> Self {
        let (clock, master) = (Arc::<FailingClock>::default(), Arc::<RecordingMaster>::default());
        let name = ServerName::new(host, 16020, 1);
        let background = Background::start(&BackgroundConfig::default()).expect("threads");
        let env = region_env(fs, &clock, &name, &cache, parts.replication);
        let server = RegionServer::new(RegionServerParts {
            name,
            info_port: 0,
            root: env.stores.root.clone(),
            config: RegionServerConfig::default(),
            clock: Arc::clone(&clock) as _,
            cache: Arc::clone(&cache),
            unsent: Budget::new(1 << 30),
            rpc_metrics: Arc::default(),
            chunks: Arc::clone(&env.stores.chunks),
            nonces: Arc::clone(&env.nonces),
            background,
            hooks: parts.hooks,
            master: Arc::clone(&master) as _,
        });
        let hot_blocks = peers
            .map(|(peers, settings)| HotBlocks::start(&server, &cache, peers, settings).expect("threads"));
        let (tell, stopped) = mpsc::channel();
        let lease = Arc::new(Lease::new(clock::monotonic(), Duration::from_secs(600)));
        let stop = Arc::new(move |reason: &str| drop(tell.send(reason.to_owned())));
        let transitions = Transitions::new(TransitionParts {
            server,
            master: Arc::clone(&master) as _,
            abort: Abort::new(Arc::default(), stop, lease),
            clock: Arc::clone(&clock) as _,
            user_env: Arc::clone(&env),
            meta_env: Arc::clone(&env),
            hot_blocks: hot_blocks.clone(),
        });
        let region = region_on_disk(&env, &parts.attributes);
        Self { transitions, clock, master, region, hot_blocks, stopped }
    }

    pub(crate) fn open(&self) {
        self.transitions.open(&self.region, Procedure::NONE);
    }

    fn close(&self) {
        self.close_for(None);
    }

    /// Closes the region, which opens on another server next.
    pub(crate) fn close_for(&self, destination: Option<ServerName>) {
        self.transitions.close(self.region.encoded_name(), destination, Procedure::NONE);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.transitions.server().regions().find(self.region.encoded_name()).is_some()
    }

    fn reported(&self) -> Vec<TransitionCode> {
        std::mem::take(&mut *self.master.codes.lock())
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        self.transitions.server().background().stop();
    }
}

fn region_env(
    fs: &Arc<dyn FileSystem>,
    clock: &Arc<FailingClock>,
    server: &ServerName,
    cache: &Arc<dyn BlockCache>,
    replication: ReplicaReplication,
) -> Arc<RegionEnv> {
    let root = PathBuf::from("/hbase");
    let (wal_dir, old_dir) = (root.join("WALs").join(&server.host), root.join("oldWALs"));
    for dir in [&wal_dir, &old_dir] {
        fs.mkdirs(dir).expect("a directory");
    }
    let wal = Wal::open(WalOptions {
        fs: Arc::clone(fs),
        wal_dir,
        old_dir,
        prefix: "h".to_owned(),
        suffix: String::new(),
        config: WalConfig::default(),
        // The threads of the log do not fail.
        clock: ManualClock::at(1_000_000),
        listener: Arc::new(NoListener),
    });
    let stores = StoreEnv {
        compaction_throughput: Arc::default(),
        metrics: Arc::default(),
        open_files: Arc::default(),
        mob: Arc::default(),
        archived_files: Arc::default(),
        fs: Arc::clone(fs),
        root,
        cache: Arc::clone(cache),
        clock: Arc::clone(clock) as _,
        chunks: ChunkPool::new(2),
        config: StoreConfig::default(),
        host: LocalHost::default(),
    };
    Arc::new(RegionEnv {
        stores,
        wal: wal.expect("a log"),
        wal_root: None,
        config: RegionConfig { replication, ..RegionConfig::default() },
        server: server.clone(),
        nonces: Arc::new(NonceManager::new(ManualClock::at(1_000_000), 60_000)),
        events: Arc::new(NoEvents),
        operation_times: Arc::default(),
    })
}

/// Makes the directories of a table and its region, as the master does.
fn region_on_disk(env: &RegionEnv, attributes: &[(&str, &str)]) -> RegionInfo {
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal").with("BLOCKSIZE", "1024");
    let table = TableDescriptor::new("t".parse().expect("legal")).with_family(family);
    let table = attributes.iter().fold(table, |table, (key, value)| table.with(key, value));
    let region = RegionInfo::new(table.name().clone(), "".into(), "".into(), 1);
    let (fs, root) = (&*env.stores.fs, &env.stores.root);
    let dir = layout::region_dir(root, &region);
    if fs.exists(&dir).expect("known") {
        return region;
    }
    fs.mkdirs(&dir).expect("a directory");
    descriptors::write(fs, &layout::table_dir(root, table.name()), &table).expect("written");
    region
}

#[test]
fn a_panic_in_an_open_is_reported_and_the_next_open_succeeds() {
    let cluster = TestCluster::new();
    cluster.clock.fails.store(true, Ordering::Relaxed);
    cluster.open();
    assert_eq!(cluster.reported(), [TransitionCode::FailedOpen]);
    assert!(!cluster.is_open() && !cluster.transitions.abort().is_aborting());
    cluster.clock.fails.store(false, Ordering::Relaxed);
    cluster.open();
    assert_eq!(cluster.reported(), [TransitionCode::Opened]);
    assert!(cluster.is_open());
}

#[test]
fn a_panic_in_a_close_ends_the_server() {
    let cluster = TestCluster::new();
    cluster.open();
    assert_eq!(cluster.reported(), [TransitionCode::Opened]);
    cluster.clock.fails.store(true, Ordering::Relaxed);
    cluster.close();
    assert_eq!(cluster.reported(), [], "nobody may believe that the region is closed");
    let reason = cluster.stopped.try_recv().expect("the process is told");
    assert!(reason.contains("cannot be closed"), "{reason}");
}

#[test]
fn a_panic_in_a_report_ends_the_server() {
    let cluster = TestCluster::new();
    cluster.master.fails.store(true, Ordering::Relaxed);
    cluster.open();
    let reason = cluster.stopped.try_recv().expect("the process is told");
    assert!(reason.contains("has no outcome"), "{reason}");
    assert!(!cluster.is_open());
}

#[test]
fn replicas_of_meta_are_opened_beside_it() {
    let cluster = TestCluster::new();
    let (meta, env) = (RegionInfo::meta(), &cluster.transitions.meta_env);
    let (fs, root) = (&*env.stores.fs, &env.stores.root);
    fs.mkdirs(&layout::region_dir(root, &meta)).expect("a directory");
    let table = descriptors::meta().expect("made");
    descriptors::write(fs, &layout::table_dir(root, meta.table()), &table).expect("written");
    for id in 0..3 {
        cluster.transitions.open(&meta.replica(id), Procedure::NONE);
        assert_eq!(cluster.reported(), [TransitionCode::Opened], "{id}");
    }
    cluster.transitions.close(meta.replica(1).encoded_name(), None, Procedure::NONE);
    assert_eq!(cluster.reported(), [TransitionCode::Closed]);
    let online = cluster.transitions.server().regions();
    let served = [0, 1, 2].map(|id| online.find(meta.replica(id).encoded_name()).is_some());
    assert_eq!(served, [true, false, true]);
}
