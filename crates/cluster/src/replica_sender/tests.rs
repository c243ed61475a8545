//! Servers in one process, on one file system: a secondary replica is on another server than the
//! default replica, and gets its edits over TCP.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use evenkeel_block_cache::NoCache;
use evenkeel_client::{AdminCaller, Error, RegionLocation};
use evenkeel_common::clock::ManualClock;
use evenkeel_common::{CellType, Durability, KeyValue, RegionInfo, ServerName};
use evenkeel_fs::{FileSystem, MemoryFileSystem};
use evenkeel_protocol::pb;
use evenkeel_region::operations::{Mutation, MutationKind, Scan};
use evenkeel_regionserver::ServerHooks;
use evenkeel_rpc::{Executor, ExecutorConfig, RpcServer, RpcServerConfig, RpcServerHandle};
use tokio::sync::oneshot;

use super::calls::BoxFuture;
use super::entries::ReplayCall;
use super::*;
use crate::transitions::Procedure;
use crate::transitions::tests::{NoHooks, TestCluster, TestParts};

const TIMEOUT: Duration = Duration::from_secs(60);
const REPLICATED: [(&str, &str); 1] = [("REGION_REPLICATION", "3")];

/// The port of a server that never answers.
const SILENT: u16 = 1;

/// Where the secondary replicas are, and what became of the calls.
struct Script {
    found: Mutex<Vec<RegionLocation>>,
    caller: AdminCaller,
    /// The number of calls that will fail.
    failures: AtomicUsize,
    calls: AtomicUsize,
    lookups: AtomicUsize,
}

impl Destinations for Arc<Script> {
    fn locate<'a>(&'a self, _region: &'a RegionInfo) -> BoxFuture<'a, Result<Vec<RegionLocation>, Error>> {
        self.lookups.fetch_add(1, Relaxed);
        Box::pin(async { Ok(self.found.lock().clone()) })
    }

    fn replay<'a>(
        &'a self,
        server: &'a ServerName,
        call: &'a ReplayCall,
    ) -> BoxFuture<'a, Result<(), Error>> {
        self.calls.fetch_add(1, Relaxed);
        Box::pin(async move {
            if server.port == SILENT {
                return std::future::pending().await;
            }
            let fewer = |failures: usize| failures.checked_sub(1);
            if self.failures.fetch_update(Relaxed, Relaxed, fewer).is_ok() {
                return Err(Error::Connection("lost".to_owned()));
            }
            let (address, request, cells) = (server.host_port(), &call.request, &call.cells);
            let call = self.caller.call_with_cells::<pb::ReplicateWalEntryResponse>(
                &address, "Replay", request, cells, TIMEOUT,
            );
            call.await.map(drop)
        })
    }
}

struct SendingHooks(Arc<ReplicaSenders>);

impl ServerHooks for SendingHooks {
    fn roll_wal(&self) -> Result<Vec<Vec<u8>>> {
        NoHooks.roll_wal()
    }

    fn stop(&self, _reason: &str) {}

    fn update_configuration(&self) -> Result<()> {
        Ok(())
    }

    fn replica_sender(&self) -> Option<&dyn ReplicaSender> {
        Some(&*self.0)
    }
}

/// A server with secondary replicas, over TCP.
struct Receiver {
    cluster: TestCluster,
    executor: Arc<Executor>,
    rpc: Option<RpcServerHandle>,
}

impl Receiver {
    fn new(fs: &Arc<dyn FileSystem>, attributes: &[(&'static str, &'static str)]) -> Self {
        let parts = TestParts {
            replication: ReplicaReplication::new(true, false),
            attributes: attributes.to_vec(),
            ..TestParts::default()
        };
        let cluster = TestCluster::with(fs, "receiver", Arc::new(NoCache), None, parts);
        let executor = Arc::new(Executor::start(&ExecutorConfig::default()).expect("threads"));
        let config = RpcServerConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)));
        let rpc = RpcServer::bind(config).expect("an address");
        let rpc = rpc.serve(cluster.transitions.server().services(&executor)).expect("threads");
        Self { cluster, executor, rpc: Some(rpc) }
    }

    fn open(&self, id: i32) -> Arc<Region> {
        let info = self.cluster.region.replica(id);
        self.cluster.transitions.open(&info, Procedure::NONE);
        self.cluster.transitions.server().regions().find(info.encoded_name()).expect("opened")
    }

    fn location(&self, id: i32, seq_num: i64) -> RegionLocation {
        let port = self.rpc.as_ref().expect("serves").local_addr().port();
        let server = ServerName::new("127.0.0.1", port, 1);
        RegionLocation { region: self.cluster.region.replica(id), server, seq_num }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.rpc.take().into_iter().for_each(|rpc| rpc.shutdown(Duration::ZERO));
        self.executor.shutdown();
    }
}

/// A thread with a runtime. It ends when the sender is dropped.
fn runtime() -> (Handle, oneshot::Sender<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (stop, stopped) = oneshot::channel();
    let handle = runtime.handle().clone();
    drop(std::thread::spawn(move || drop(runtime.block_on(stopped))));
    (handle, stop)
}

/// A server with a default replica, and one with a secondary replica.
struct Scene {
    runtime: Handle,
    _stop: oneshot::Sender<()>,
    script: Arc<Script>,
    senders: Arc<ReplicaSenders>,
    sender: TestCluster,
    receiver: Receiver,
}

impl Scene {
    fn new(attributes: &[(&'static str, &'static str)]) -> Self {
        Self::with(attributes, |_| ())
    }

    fn with(attributes: &[(&'static str, &'static str)], set: impl FnOnce(&mut Shared)) -> Self {
        let (runtime, stop) = runtime();
        let config = ClientConfig { tags: true, ..ClientConfig::new(Vec::<String>::new()) };
        let script = Arc::new(Script {
            found: Mutex::default(),
            caller: AdminCaller::new(config),
            failures: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            lookups: AtomicUsize::new(0),
        });
        let replication = ReplicaReplication::new(true, false);
        let mut shared = Shared {
            destinations: Box::new(Arc::clone(&script)),
            budget: SendBudget::new(SENDER_BYTES_MAX),
            clock: ManualClock::at(7),
            retries: 1,
            pause: Duration::from_millis(1),
            repeat_max: MARKER_AGE_MAX,
            lookups: Semaphore::new(LOOKUPS_MAX),
            server: Mutex::default(),
        };
        set(&mut shared);
        let senders = ReplicaSenders::with(shared, replication.clone(), &runtime);
        let fs: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
        let hooks = Arc::new(SendingHooks(Arc::clone(&senders)));
        let parts = TestParts { hooks, replication, attributes: attributes.to_vec() };
        let sender = TestCluster::with(&fs, "sender", Arc::new(NoCache), None, parts);
        sender.open();
        let receiver = Receiver::new(&fs, attributes);
        senders.start(sender.transitions.server());
        Self { runtime, _stop: stop, script, senders, sender, receiver }
    }

    /// With replica 1 on the receiver, which has the row `a`.
    fn replaying() -> (Self, Arc<Region>) {
        Self::new(&REPLICATED).with_replica()
    }

    fn with_replica(self) -> (Self, Arc<Region>) {
        let scene = self;
        put(&scene.primary(), "a");
        let replica = scene.receiver.open(1);
        scene.find(&[scene.receiver.location(1, 1)]);
        scene.until("the edit of before the open is seen", || has_row(&replica, "a"));
        (scene, replica)
    }

    fn primary(&self) -> Arc<Region> {
        let regions = self.sender.transitions.server().regions();
        regions.find(self.sender.region.encoded_name()).expect("open")
    }

    /// Sets where the secondary replicas are, and looks them up.
    fn find(&self, found: &[RegionLocation]) {
        *self.script.found.lock() = found.to_vec();
        self.look_up();
    }

    fn look_up(&self) {
        let known = || self.senders.of(&self.primary());
        self.until("the region is known", || known().is_some());
        let region = known().expect("known");
        self.runtime.block_on(Arc::clone(&self.senders).look_up(&region));
    }

    /// Runs the chore of the sender until a condition holds.
    fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let deadline = clock::monotonic() + TIMEOUT;
        while !holds() {
            assert!(clock::monotonic() < deadline, "{what}");
            self.sender.transitions.server().run_chore();
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn elsewhere(&self) -> ReplicasElsewhere {
        self.senders.replicas_elsewhere(&self.primary())
    }
}

fn put(region: &Arc<Region>, row: &str) {
    let cell = KeyValue::new(row.as_bytes(), b"f", b"q", 5, CellType::Put, b"v");
    region.mutate_wait(Mutation::new(MutationKind::Put, row.to_owned(), vec![cell])).expect("put");
}

fn has_row(region: &Region, row: &'static str) -> bool {
    region.get(Scan::get(row)).is_ok_and(|cells| !cells.is_empty())
}

#[test]
fn edits_reach_a_replica_on_another_server() {
    let (scene, replica) = Scene::replaying();
    let primary = scene.primary();
    put(&primary, "b");
    scene.until("an edit is seen", || has_row(&replica, "b"));
    assert!(primary.memstore_bytes() > 0 && replica.memstore_bytes() > 0, "without a flush");
    let delete = vec![KeyValue::new(b"b", b"f", b"q", 5, CellType::DeleteColumn, b"")];
    primary.mutate_wait(Mutation::new(MutationKind::Delete, "b", delete)).expect("deleted");
    scene.until("a delete is seen", || !has_row(&replica, "b"));
    primary.flush().expect("flushed");
    scene.until("a flush frees the replica's memory", || replica.memstore_bytes() == 0);
    assert!(has_row(&replica, "a") && !has_row(&replica, "b"));
    put(&primary, "c");
    scene.until("edits after a flush are seen", || has_row(&replica, "c"));
    primary.flush().expect("flushed");
    assert!(primary.compact(None, true).expect("compacted"));
    let files = |region: &Region| region.stores().iter().map(|store| store.files().len()).sum::<usize>();
    scene.until("a compaction is seen", || files(&replica) == 1 && replica.memstore_bytes() == 0);
    assert!(has_row(&replica, "a") && has_row(&replica, "c"));
    scene.until("nothing is left to send", || scene.senders.shared.budget.used() == 0);
}

#[test]
fn without_memstore_replication_a_flush_is_seen() {
    let scene = Scene::new(&[("REGION_REPLICATION", "2"), ("REGION_MEMSTORE_REPLICATION", "false")]);
    let replica = scene.receiver.open(1);
    scene.find(&[scene.receiver.location(1, 1)]);
    scene.until("it reads the stream", || scene.elsewhere().read);
    put(&scene.primary(), "b");
    (0..20).for_each(|_| scene.sender.transitions.server().run_chore());
    assert!(!has_row(&replica, "b") && scene.primary().memstore_bytes() > 0);
    scene.primary().flush().expect("flushed");
    scene.until("the flush is seen", || has_row(&replica, "b"));
    assert_eq!(replica.memstore_bytes(), 0);
}

#[test]
fn a_call_that_fails_once_is_repeated() {
    let (scene, replica) = Scene::replaying();
    scene.script.failures.store(1, Relaxed);
    let flushed = scene.primary().max_flushed_seq_id();
    put(&scene.primary(), "b");
    scene.until("the edit is sent again", || has_row(&replica, "b"));
    assert_eq!((scene.script.failures.load(Relaxed), scene.primary().max_flushed_seq_id()), (0, flushed));
}

#[test]
fn after_calls_that_failed_a_flush_fills_the_gap() {
    let (scene, replica) = Scene::replaying();
    let primary = scene.primary();
    scene.script.failures.store(usize::MAX, Relaxed);
    put(&primary, "b");
    scene.until("the replica is given up", || !scene.elsewhere().read);
    assert_eq!(scene.senders.shared.budget.used(), 0);
    scene.script.failures.store(0, Relaxed);
    put(&primary, "c");
    scene.look_up();
    assert!(scene.elsewhere().wait);
    put(&primary, "d");
    assert!(!has_row(&replica, "b") && !has_row(&replica, "d"), "no edit without an earlier one");
    primary.flush().expect("flushed");
    put(&primary, "e");
    scene.until("the edits are seen", || has_row(&replica, "e"));
    assert!(["a", "b", "c", "d"].into_iter().all(|row| has_row(&replica, row)));
}

/// Files in the call may be deleted after a while.
#[test]
fn calls_are_repeated_for_a_limited_time() {
    let scene = Scene::with(&REPLICATED, |shared| {
        (shared.retries, shared.repeat_max) = (u32::MAX, Duration::from_millis(50));
    });
    let (scene, _replica) = scene.with_replica();
    scene.script.failures.store(usize::MAX, Relaxed);
    let (calls, begun) = (scene.script.calls.load(Relaxed), clock::monotonic());
    put(&scene.primary(), "b");
    scene.until("the replica is given up", || !scene.elsewhere().read);
    assert!(clock::since(begun) >= Duration::from_millis(50));
    assert!(scene.script.calls.load(Relaxed) > calls + 1, "more than once");
}

#[test]
fn edits_with_async_wal_are_sent() {
    let (scene, replica) = Scene::replaying();
    let cell = KeyValue::new(b"b", b"f", b"q", 5, CellType::Put, b"v");
    let mut mutation = Mutation::new(MutationKind::Put, "b", vec![cell]);
    mutation.durability = Durability::AsyncWal;
    scene.primary().mutate_wait(mutation).expect("put");
    scene.until("the edit is seen", || has_row(&replica, "b"));
    assert!(replica.memstore_bytes() > 0, "without a flush");
}

#[test]
fn a_replica_that_opens_again_is_filled_at_once() {
    let (scene, replica) = Scene::replaying();
    let primary = scene.primary();
    put(&primary, "b");
    scene.until("an edit is seen", || has_row(&replica, "b"));
    scene.receiver.cluster.transitions.close(replica.info().encoded_name(), None, Procedure::NONE);
    put(&primary, "c");
    scene.until("it is missed", || scene.script.lookups.load(Relaxed) > 1);
    let again = scene.receiver.open(1);
    scene.find(&[scene.receiver.location(1, 2)]);
    scene.until("the edits are seen", || has_row(&again, "b") && has_row(&again, "c"));
    put(&primary, "d");
    scene.until("an edit is seen", || has_row(&again, "d"));
}

#[test]
fn a_silent_server_does_not_hold_back_others() {
    let (scene, replica) = Scene::replaying();
    let primary = scene.primary();
    let silent = RegionLocation {
        region: primary.info().replica(2),
        server: ServerName::new("silent", SILENT, 1),
        seq_num: 1,
    };
    scene.find(&[scene.receiver.location(1, 1), silent]);
    primary.flush().expect("flushed");
    for row in ["b", "c", "d"] {
        put(&primary, row);
        scene.until("an edit is seen", || has_row(&replica, row));
    }
    assert!(scene.senders.shared.budget.used() > 0, "edits for the other one");
}

#[test]
fn a_region_that_opens_again_leaves_no_task() {
    let (scene, replica) = Scene::replaying();
    let before = Arc::downgrade(&scene.senders.of(&scene.primary()).expect("known"));
    scene.sender.close_for(None);
    scene.sender.open();
    // Both between two looks at the regions.
    let online = scene.sender.transitions.server().regions().all();
    let look = async { scene.senders.look(&online, clock::monotonic()) };
    scene.runtime.block_on(look);
    scene.until("the tasks of before end", || before.upgrade().is_none());
    put(&scene.primary(), "b");
    scene.until("the edits are seen", || has_row(&replica, "a") && has_row(&replica, "b"));
}

#[test]
fn a_region_that_closes_leaves_no_task() {
    let (scene, _replica) = Scene::replaying();
    let primary = scene.primary();
    let sent = Arc::downgrade(&scene.senders.of(&primary).expect("known"));
    let region = Arc::downgrade(&primary);
    drop(primary);
    scene.sender.close_for(None);
    scene.until("the tasks end", || sent.upgrade().is_none());
    scene.until("the region is gone", || region.upgrade().is_none());
    assert_eq!(scene.senders.shared.budget.used(), 0);
}
