//! [`Session`]: the ZooKeeper session, by which the master sees that this server is alive, and
//! through which this server finds the rest of the cluster.
//!
//! Two tasks run on the thread of the cluster's connections:
//! - **pings**: reads this server's znode ten times per session timeout. Each response extends the
//!   [`Lease`]. The task aborts the server ([`Abort`]) if the lease ends, the session has expired,
//!   or the znode is gone.
//! - **watches**: reads the master, the RegionServers and the locations of hbase:meta whenever one
//!   of them changes, into a [`ClusterView`] that any thread reads without waiting.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use evenkeel_common::clock;
use evenkeel_common::length;
use evenkeel_common::{HBaseError, RegionInfo, Result, ServerName};
use evenkeel_protocol::{from_magic, pb};
use evenkeel_regionserver::ClusterView;
use evenkeel_zookeeper::znodes::{self, ZnodePaths};
use prost::Message;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError, OneshotWatcher};

use crate::abort::Abort;
use crate::lease::Lease;
use crate::settings::ClusterSettings;

/// How often a start checks whether the cluster is up.
const START_LOOK: Duration = Duration::from_millis(250);
/// How often a start logs what it waits for.
const START_LOG: Duration = Duration::from_secs(10);
/// Everything is read again after this time even if no watch fires.
const READ_AGAIN: Duration = Duration::from_secs(30);
/// The pause after a failed read.
const READ_RETRY: Duration = Duration::from_millis(500);
/// Pings per session timeout.
const PINGS: u32 = 10;
const PING_MIN: Duration = Duration::from_millis(100);
const PING_MAX: Duration = Duration::from_secs(5);
/// How long a stop waits for the removal of its znode; otherwise it is removed when the session
/// expires.
const WITHDRAW_TIMEOUT: Duration = Duration::from_secs(3);
/// The timeout of a request at start.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// An unknown open sequence number (`HConstants.NO_SEQNUM`).
const NO_SEQ_NUM: i64 = -1;

/// A replica of hbase:meta, its server, and its open sequence number.
type MetaLocation = (RegionInfo, Option<ServerName>, i64);

/// See the module's documentation.
pub struct Session {
    client: Client,
    runtime: Handle,
    paths: ZnodePaths,
    lease: Arc<Lease>,
    view: ArcSwap<ClusterView>,
    /// True while this server's znode should exist.
    is_announced: AtomicBool,
    /// The whole cluster is shutting down: `/hbase/running` is gone.
    is_cluster_stopping: AtomicBool,
    changed: Notify,
}

impl Session {
    /// Opens a session. Waits while no server of the quorum responds.
    ///
    /// # Errors
    /// Returns an error if the quorum setting cannot be parsed.
    pub fn open(runtime: &Handle, settings: &ClusterSettings) -> Result<Arc<Self>> {
        let (began, client) = runtime.block_on(connect(settings))?;
        let lease = Arc::new(Lease::new(began, client.session_timeout()));
        tracing::info!(
            session = %client.session_id(),
            timeout_ms = length::whole_ms(client.session_timeout()),
            quorum = settings.quorum,
            "ZooKeeper session"
        );
        Ok(Arc::new(Self {
            client,
            runtime: runtime.clone(),
            paths: settings.znodes.clone(),
            lease,
            view: ArcSwap::default(),
            is_announced: AtomicBool::new(false),
            is_cluster_stopping: AtomicBool::new(false),
            changed: Notify::new(),
        }))
    }

    /// The time until which this server may act.
    pub fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// The rest of the cluster, as last read.
    pub fn view(&self) -> Arc<ClusterView> {
        self.view.load_full()
    }

    /// Returns true if the master has shut down the whole cluster.
    pub fn is_cluster_stopping(&self) -> bool {
        self.is_cluster_stopping.load(Ordering::Acquire)
    }

    /// Returns true unless an operator has switched all throttles off. Waits for ZooKeeper; if it
    /// does not answer, throttles are on, as they are by default.
    pub fn is_rpc_throttle_on(&self) -> bool {
        let path = &self.paths.rpc_throttle;
        let read = async { timeout(REQUEST_TIMEOUT, self.client.get_data(path)).await };
        match self.runtime.block_on(read) {
            Ok(Ok((data, _))) => znodes::is_rpc_throttle_on(&data),
            Ok(Err(ZkError::NoNode)) => true,
            Ok(Err(error)) => {
                tracing::warn!(path, %error, "the switch of throttles could not be read");
                true
            }
            Err(_) => true,
        }
    }

    /// Waits until a master is active and the cluster is up.
    ///
    /// # Errors
    /// Returns an `IOException` if the cluster has no id, or ZooKeeper ends the session.
    pub fn wait_for_cluster(&self) -> Result<()> {
        let mut said = None;
        loop {
            self.runtime.block_on(self.read()).map_err(|e| zk("the cluster's znodes", &e))?;
            let view = self.view();
            let missing = match (&view.active_master, self.is_cluster_stopping()) {
                (None, _) => "a master",
                (_, true) => "the cluster to be up",
                _ => break,
            };
            let is_time = said.is_none_or(|at: std::time::Instant| clock::since(at) >= START_LOG);
            if is_time {
                tracing::info!(znodes = self.paths.parent, "waiting for {missing}");
                said = Some(clock::monotonic());
            }
            std::thread::sleep(START_LOOK);
        }
        match self.view().cluster_id.is_empty() {
            false => Ok(()),
            true => {
                Err(HBaseError::io(format!("the cluster has no id: {} is missing", self.paths.cluster_id)))
            }
        }
    }

    /// Starts the two tasks for a server that is about to announce itself.
    pub fn watch(
        self: &Arc<Self>,
        server: &ServerName,
        abort: &Arc<Abort>,
        on_stop: Arc<dyn Fn() + Send + Sync>,
    ) {
        let ping = Arc::clone(self).ping(self.path_of(server), Arc::clone(abort));
        abort.run_task(&self.runtime, "ping of ZooKeeper", ping);
        let changes = Arc::clone(self).read_changes(on_stop);
        abort.run_task(&self.runtime, "watches of ZooKeeper", changes);
    }

    /// Creates this server's ephemeral znode.
    ///
    /// # Errors
    /// Returns ZooKeeper's error.
    pub fn announce(&self, server: &ServerName, info: &pb::RegionServerInfo) -> Result<()> {
        let data = znodes::frame(&format!("regionserver:{}", server.port), info);
        let path = self.path_of(server);
        let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        let create = async { timeout(REQUEST_TIMEOUT, self.client.create(&path, &data, &options)).await };
        match self.runtime.block_on(create) {
            Ok(made) => made.map(drop).map_err(|e| zk(&path, &e))?,
            Err(_) => return Err(HBaseError::io(format!("ZooKeeper: {path}: no reply in time"))),
        }
        self.is_announced.store(true, Ordering::Release);
        Ok(())
    }

    /// Removes this server's znode, so that the master declares it gone at once. Best effort.
    pub fn withdraw(&self, server: &ServerName) {
        self.is_announced.store(false, Ordering::Release);
        let path = self.path_of(server);
        let delete = async { timeout(WITHDRAW_TIMEOUT, self.client.delete(&path, None)).await };
        let gone = self.runtime.block_on(delete);
        if let Ok(Err(error)) = gone {
            tracing::warn!(path, %error, "this server's znode could not be removed; it expires with the session");
        }
    }

    /// Makes the watching task read again soon, because the active master may have changed.
    pub fn read_again(&self) {
        self.changed.notify_one();
    }

    fn path_of(&self, server: &ServerName) -> String {
        format!("{}/{server}", self.paths.rs)
    }

    async fn ping(self: Arc<Self>, own: String, abort: Arc<Abort>) {
        let interval = (self.client.session_timeout() / PINGS).clamp(PING_MIN, PING_MAX);
        loop {
            let sent = clock::monotonic();
            let left = self.lease.left();
            match timeout(left.min(interval * 2), self.client.check_stat(&own)).await {
                Ok(Ok(found)) => {
                    self.lease.extend(sent);
                    if found.is_none() && self.is_announced.load(Ordering::Acquire) {
                        return abort.now("this server's znode is gone: other servers consider it dead");
                    }
                }
                Ok(Err(ZkError::SessionExpired)) => return abort.now("the ZooKeeper session has expired"),
                Ok(Err(error)) => tracing::warn!(%error, left_ms = length::whole_ms(left), "ZooKeeper"),
                Err(_) => tracing::warn!(left_ms = length::whole_ms(left), "ZooKeeper does not answer"),
            }
            if !self.lease.holds() {
                return abort.now("ZooKeeper could not be reached: the session may have expired");
            }
            sleep(interval.min(self.lease.left())).await;
        }
    }

    async fn read_changes(self: Arc<Self>, on_stop: Arc<dyn Fn() + Send + Sync>) {
        loop {
            match self.read().await {
                Ok(watchers) => {
                    if self.is_cluster_stopping() && self.is_announced.load(Ordering::Acquire) {
                        on_stop();
                    }
                    self.next_change(watchers).await;
                }
                Err(ZkError::SessionExpired | ZkError::ClientClosed) => return,
                Err(error) => {
                    tracing::warn!(%error, "ZooKeeper");
                    sleep(READ_RETRY).await;
                }
            }
        }
    }

    async fn next_change(&self, watchers: Watchers) {
        tokio::select! {
            _ = watchers.master.changed() => {}
            _ = watchers.running.changed() => {}
            _ = watchers.servers.changed() => {}
            _ = watchers.parent.changed() => {}
            () = any_changed(watchers.meta) => {}
            () = self.changed.notified() => {}
            () = sleep(READ_AGAIN) => {}
        }
    }

    /// Reads everything, and sets watches.
    async fn read(&self) -> Result<Watchers, ZkError> {
        let paths = &self.paths;
        let (_, master) = self.client.check_and_watch_stat(&paths.master).await?;
        let (is_running, running) = self.client.check_and_watch_stat(&paths.running).await?;
        let (children, servers) = self.list_and_watch(&paths.rs).await?;
        let (nodes, parent) = self.list_and_watch(&paths.parent).await?;
        let (meta_locations, meta) = self.meta_locations(&nodes).await?;
        let view = ClusterView {
            cluster_id: self
                .message(&paths.cluster_id)
                .await?
                .map_or_else(String::new, |m: pb::ClusterId| m.cluster_id),
            active_master: self.message(&paths.master).await?.map(|m: pb::Master| (&m.master).into()),
            backup_masters: self.backup_masters().await?,
            region_servers: children.iter().filter_map(|name| name.parse().ok()).collect(),
            meta: meta_locations,
        };
        self.view.store(Arc::new(view));
        self.is_cluster_stopping.store(is_running.is_none(), Ordering::Release);
        Ok(Watchers { master, running, servers, parent, meta })
    }

    /// Lists the children of a node, none while it does not exist, and watches for a change.
    async fn list_and_watch(&self, path: &str) -> Result<(Vec<String>, OneshotWatcher), ZkError> {
        match self.client.list_and_watch_children(path).await {
            // The first master has not created it yet.
            Err(ZkError::NoNode) => Ok((Vec::new(), self.client.check_and_watch_stat(path).await?.1)),
            other => other,
        }
    }

    /// Reads and watches the locations of hbase:meta's replicas, the default replica first. `nodes`
    /// are the children of the parent of all nodes. Like HBase, does not look at the states.
    async fn meta_locations(
        &self,
        nodes: &[String],
    ) -> Result<(Vec<MetaLocation>, Vec<OneshotWatcher>), ZkError> {
        let ids: BTreeSet<i32> = nodes.iter().filter_map(|node| self.paths.meta_replica_id(node)).collect();
        let (mut locations, mut watchers) = (Vec::new(), Vec::new());
        for id in std::iter::once(0).chain(ids.into_iter().filter(|id| *id != 0)) {
            let path = self.paths.meta_replica(id);
            watchers.push(self.client.check_and_watch_stat(&path).await?.1);
            let found: Option<pb::MetaRegionServer> = self.message(&path).await?;
            let server = found.map(|found| ServerName::from(&found.server));
            if id == 0 || server.is_some() {
                locations.push((RegionInfo::meta().replica(id), server, NO_SEQ_NUM));
            }
        }
        Ok((locations, watchers))
    }

    async fn backup_masters(&self) -> Result<Vec<ServerName>, ZkError> {
        match self.client.list_children(&self.paths.backup_masters).await {
            Err(ZkError::NoNode) => Ok(Vec::new()),
            names => Ok(names?.iter().filter_map(|name| name.parse().ok()).collect()),
        }
    }

    /// Reads the message in a node; `None` if the node is missing or holds no message.
    async fn message<M: Message + Default>(&self, path: &str) -> Result<Option<M>, ZkError> {
        let data = match self.client.get_data(path).await {
            Ok((data, _)) => data,
            Err(ZkError::NoNode) => return Ok(None),
            Err(error) => return Err(error),
        };
        let message = znodes::unframe(&data).and_then(|message| from_magic(message).ok());
        if message.is_none() && !data.is_empty() {
            tracing::warn!(path, "the znode holds no HBase message");
        }
        Ok(message)
    }
}

/// One watch for each znode whose change causes a new read.
struct Watchers {
    master: OneshotWatcher,
    running: OneshotWatcher,
    servers: OneshotWatcher,
    /// A replica of hbase:meta was added or removed.
    parent: OneshotWatcher,
    /// One for each replica of hbase:meta.
    meta: Vec<OneshotWatcher>,
}

/// Waits until one of the znodes changes.
async fn any_changed(watchers: Vec<OneshotWatcher>) {
    let mut changes: Vec<_> = watchers.into_iter().map(|watcher| Box::pin(watcher.changed())).collect();
    let poll = |context: &mut Context<'_>| {
        let is_changed = changes.iter_mut().any(|change| change.as_mut().poll(context).is_ready());
        if is_changed { Poll::Ready(()) } else { Poll::Pending }
    };
    poll_fn(poll).await;
}

async fn connect(settings: &ClusterSettings) -> Result<(std::time::Instant, Client)> {
    loop {
        let began = clock::monotonic();
        let connector = Client::connector().with_session_timeout(settings.session_timeout);
        match connector.connect(&settings.quorum).await {
            Ok(client) => return Ok((began, client)),
            Err(error @ ZkError::BadArguments(_)) => return Err(zk(&settings.quorum, &error)),
            Err(error) => {
                tracing::warn!(quorum = settings.quorum, %error, "ZooKeeper cannot be reached; retrying");
                sleep(READ_RETRY).await;
            }
        }
    }
}

fn zk(what: &str, error: &ZkError) -> HBaseError {
    HBaseError::io(format!("ZooKeeper: {what}: {error}"))
}
