//! [`Session`]: the ZooKeeper session, by which the master sees that this server is alive, and
//! through which this server finds the rest of the cluster.
//!
//! Two tasks run on the thread of the cluster's connections:
//! - **pings**: reads this server's znode ten times per session timeout, after a sync, which
//!   ZooKeeper's leader answers. Each response extends the [`Lease`]. The task aborts the server
//!   ([`Abort`]) if the lease ends, the session has expired, or the znode is gone. While the
//!   start waits for the cluster, which may take arbitrarily long, another task only extends the
//!   lease; if it ends, the start fails at its first write.
//! - **watches**: reads the master, the RegionServers and the locations of hbase:meta whenever one
//!   of them changes, into a [`ClusterView`] that any thread reads without waiting.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use evenkeel_common::clock;
use evenkeel_common::length;
use evenkeel_common::{HBaseError, RegionInfo, Result, ServerName};
use evenkeel_process::FailureReason;
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
/// The timeout of a read of another server's version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(5);
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
    /// True from [`Session::watch`] on.
    is_watched: AtomicBool,
    /// The whole cluster is shutting down: `/hbase/running` is gone.
    is_cluster_stopping: AtomicBool,
    changed: Notify,
}

impl Session {
    /// Opens a session, and begins to extend its lease, which ends when `failure` has a reason.
    /// Waits while no server of the quorum responds.
    ///
    /// # Errors
    /// Returns an error if the quorum setting cannot be parsed.
    pub fn open(runtime: &Handle, settings: &ClusterSettings, failure: &FailureReason) -> Result<Arc<Self>> {
        let (began, client) = runtime.block_on(connect(settings))?;
        let lease = Arc::new(Lease::new(began, client.session_timeout()).ended_by(failure));
        tracing::info!(
            session = %client.session_id(),
            timeout_ms = length::whole_ms(client.session_timeout()),
            quorum = settings.quorum,
            "ZooKeeper session"
        );
        let session = Arc::new(Self {
            client,
            runtime: runtime.clone(),
            paths: settings.znodes.clone(),
            lease,
            view: ArcSwap::default(),
            is_announced: AtomicBool::new(false),
            is_watched: AtomicBool::new(false),
            is_cluster_stopping: AtomicBool::new(false),
            changed: Notify::new(),
        });
        runtime.spawn(Arc::clone(&session).ping_until_watched());
        Ok(session)
    }

    /// The time until which this server may act.
    pub fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// The client of the session.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The runtime of the session's tasks.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// The parent of all znodes of this cluster.
    pub(crate) fn parent(&self) -> &str {
        &self.paths.parent
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

    /// Starts the two tasks for a server that is about to register and announce itself.
    pub fn watch(
        self: &Arc<Self>,
        server: &ServerName,
        abort: &Arc<Abort>,
        on_stop: Arc<dyn Fn() + Send + Sync>,
    ) {
        self.is_watched.store(true, Ordering::Release);
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

    /// Ends the lease of a server whose start has failed, and removes its znode, which it may have
    /// created.
    pub fn abandon(self: &Arc<Self>, server: &ServerName) {
        self.lease.end();
        self.withdraw(server);
    }

    /// Removes this server's znode, if it exists, so that the master declares it gone at once. Best
    /// effort.
    pub fn withdraw(self: &Arc<Self>, server: &ServerName) {
        self.is_announced.store(false, Ordering::Release);
        let (session, path, (tell, told)) = (Arc::clone(self), self.path_of(server), channel());
        // The thread of the connections may have died, which drops the task.
        self.runtime.spawn(async move {
            match session.client.delete(&path, None).await {
                Ok(()) | Err(ZkError::NoNode) => {}
                Err(error) => tracing::warn!(path, %error, "this server's znode could not be removed; it expires with the session"),
            }
            let _ = tell.send(());
        });
        let _ = told.recv_timeout(WITHDRAW_TIMEOUT);
    }

    /// Returns the version in the znode of a RegionServer; `None` if the znode cannot be read.
    /// Waits for ZooKeeper.
    pub(crate) fn version_of(&self, server: &ServerName) -> Option<pb::VersionInfo> {
        let path = self.path_of(server);
        let read = self.message::<pb::RegionServerInfo>(&path);
        let read = async { timeout(VERSION_TIMEOUT, read).await };
        self.runtime.block_on(read).ok()?.ok()??.version_info
    }

    /// Makes the watching task read again soon, because the active master may have changed.
    pub fn read_again(&self) {
        self.changed.notify_one();
    }

    fn path_of(&self, server: &ServerName) -> String {
        format!("{}/{server}", self.paths.rs)
    }

    /// Extends the lease while the start waits for the cluster.
    async fn ping_until_watched(self: Arc<Self>) {
        let interval = self.ping_interval();
        while self.lease.holds() && !self.is_watched.load(Ordering::Acquire) {
            if self.ping_once(&self.paths.rs, interval).await.is_err() {
                return tracing::error!("the ZooKeeper session has expired during the start");
            }
            sleep(interval.min(self.lease.left())).await;
        }
    }

    async fn ping(self: Arc<Self>, own: String, abort: Arc<Abort>) {
        let interval = self.ping_interval();
        loop {
            // A ping that began before the znode was created proves nothing.
            let was_announced = self.is_announced.load(Ordering::Acquire);
            match self.ping_once(&own, interval).await {
                Ok(Some(false)) if was_announced && self.is_announced.load(Ordering::Acquire) => {
                    return abort.now("this server's znode is gone: other servers consider it dead");
                }
                Ok(_) => {}
                Err(_) => return abort.now("the ZooKeeper session has expired"),
            }
            if !self.lease.holds() {
                return abort.now("ZooKeeper could not be reached: the session may have expired");
            }
            sleep(interval.min(self.lease.left())).await;
        }
    }

    fn ping_interval(&self) -> Duration {
        (self.client.session_timeout() / PINGS).clamp(PING_MIN, PING_MAX)
    }

    /// Reads a znode, and extends the lease if ZooKeeper's leader answers: a server that follows it
    /// would answer the read alone, even for a session that the leader has expired. Returns whether
    /// the znode exists, or `None` without an answer.
    ///
    /// # Errors
    /// The session has expired.
    async fn ping_once(&self, path: &str, interval: Duration) -> Result<Option<bool>, ZkError> {
        let (sent, left) = (clock::monotonic(), self.lease.left());
        let ping = async {
            self.client.sync(path).await?;
            self.client.check_stat(path).await
        };
        match timeout(left.min(interval * 2), ping).await {
            Ok(Ok(found)) => {
                self.lease.extend(sent);
                return Ok(Some(found.is_some()));
            }
            Ok(Err(error @ ZkError::SessionExpired)) => return Err(error),
            Ok(Err(error)) => tracing::warn!(%error, left_ms = length::whole_ms(left), "ZooKeeper"),
            Err(_) => tracing::warn!(left_ms = length::whole_ms(left), "ZooKeeper does not answer"),
        }
        Ok(None)
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

#[cfg(test)]
pub(crate) mod tests {
    use std::net::TcpListener;

    use evenkeel_common::Configuration;
    use evenkeel_zookeeper::{ZkConfig, ZnodeTree};
    use parking_lot::Mutex;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
    use tokio::runtime::Builder;
    use tokio::sync::oneshot;

    use super::*;

    /// The operation of a sync in a packet of ZooKeeper's protocol (`ZooDefs.OpCode.sync`).
    const SYNC: [u8; 4] = 9_u32.to_be_bytes();
    /// `ZooDefs.OpCode.delete`.
    const DELETE: [u8; 4] = 2_u32.to_be_bytes();

    /// Returns true for a packet that is passed on.
    type PacketFilter = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

    /// Passes on a client's packets of which `passes` is true.
    async fn pass(
        passes: PacketFilter,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
    ) -> std::io::Result<()> {
        // The first packet, which opens the session, has no operation.
        for number in 0.. {
            let len = from.read_u32().await?;
            let mut body = vec![0; len as usize];
            from.read_exact(&mut body).await?;
            if number == 0 || passes(&body) {
                to.write_u32(len).await?;
                to.write_all(&body).await?;
            }
        }
        Ok(())
    }

    /// Serves as a server of ZooKeeper that gets a part of the packets.
    async fn serve_proxy(listener: TcpListener, zookeeper: u16, passes: PacketFilter) -> std::io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        loop {
            let (client, _) = listener.accept().await?;
            let server = TcpStream::connect(("127.0.0.1", zookeeper)).await?;
            let ((from_client, mut to_client), (mut from_server, to_server)) =
                (client.into_split(), server.into_split());
            tokio::spawn(pass(Arc::clone(&passes), from_client, to_server));
            tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
        }
    }

    /// A runtime with a thread, which ends when the sender is dropped.
    pub(crate) fn runtime() -> (Handle, oneshot::Sender<()>) {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (stop, stopped) = oneshot::channel();
        let handle = runtime.handle().clone();
        std::thread::spawn(move || drop(runtime.block_on(stopped)));
        (handle, stop)
    }

    pub(crate) fn port() -> (TcpListener, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let port = listener.local_addr().expect("bound").port();
        (listener, port)
    }

    /// Serves a tree with sessions of a second, and returns its port.
    pub(crate) fn serve_zookeeper(runtime: &Handle, tree: Arc<ZnodeTree>) -> u16 {
        let (listener, port) = port();
        let config = ZkConfig { session_timeout_min_ms: 1, tick_ms: 100, ..ZkConfig::default() };
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            evenkeel_zookeeper::serve(listener, tree, config, std::future::pending()).await
        });
        port
    }

    pub(crate) fn settings(port: u16) -> ClusterSettings {
        let mut conf = Configuration::new();
        conf.set("hbase.zookeeper.quorum", format!("127.0.0.1:{port}"));
        conf.set("zookeeper.session.timeout", "1000");
        ClusterSettings::from(&conf).expect("legal")
    }

    #[test]
    fn the_lease_holds_while_a_start_waits_for_longer_than_a_session() {
        let (runtime, _stop) = runtime();
        let settings = settings(serve_zookeeper(&runtime, Arc::default()));
        let failure = FailureReason::default();
        let session = Session::open(&runtime, &settings, &failure).expect("a session");
        assert!(session.client.session_timeout() <= Duration::from_secs(1));
        std::thread::sleep(Duration::from_millis(2500));
        assert!(session.lease().holds());
        failure.set("a failure".to_owned()).expect("the first reason");
        assert!(!session.lease().holds());
    }

    #[test]
    fn a_start_that_failed_changes_nothing_afterwards() {
        let (runtime, _stop) = runtime();
        let (listener, port) = port();
        // The server refuses deletes of clients.
        let zookeeper = serve_zookeeper(&runtime, Arc::default());
        let deleted = Arc::new(Mutex::new(Vec::new()));
        let of_proxy = Arc::clone(&deleted);
        let record = move |body: &[u8]| {
            if body.get(4..8) == Some(&DELETE[..]) {
                of_proxy.lock().push(String::from_utf8_lossy(&body[8..]).into_owned());
            }
            true
        };
        runtime.spawn(serve_proxy(listener, zookeeper, Arc::new(record)));
        let session = Session::open(&runtime, &settings(port), &Arc::default()).expect("a session");
        session.is_announced.store(true, Ordering::Release);
        session.abandon(&ServerName::new("host", 16020, 7));
        assert!(!session.lease().holds());
        assert!(!session.is_announced.load(Ordering::Acquire), "the ping does not expect the znode");
        let deleted = deleted.lock();
        assert!(deleted.len() == 1 && deleted[0].contains("/hbase/rs/host,16020,7"), "{deleted:?}");
    }

    #[test]
    fn a_server_that_has_lost_its_leader_does_not_extend_the_lease() {
        let (runtime, _stop) = runtime();
        let (listener, follower) = port();
        let zookeeper = serve_zookeeper(&runtime, Arc::default());
        // It answers reads, and its leader does not answer.
        let passes = Arc::new(|body: &[u8]| body.get(4..8) != Some(&SYNC[..]));
        runtime.spawn(serve_proxy(listener, zookeeper, passes));
        let session = Session::open(&runtime, &settings(follower), &Arc::default()).expect("a session");
        let read = async { session.client.check_stat("/").await };
        runtime.block_on(read).expect("it answers reads").expect("the root");
        std::thread::sleep(Duration::from_millis(1500));
        assert!(!session.lease().holds());
    }
}
