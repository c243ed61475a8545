//! Procedures through ZooKeeper, in which every RegionServer takes part: flushes of tables by
//! clients before 2.6 (`flush-table-proc`), and snapshots by clients that send no nonce
//! (`online-snapshot`).
//!
//! ```text
//! master: creates /hbase/<kind>/acquired/<name>, with the request
//! server: prepares, creates                     /hbase/<kind>/acquired/<name>/<server>
//! master: once all have,    creates             /hbase/<kind>/reached/<name>
//! server: commits, creates                      /hbase/<kind>/reached/<name>/<server>
//! any:    on an error, creates                  /hbase/<kind>/abort/<name>, with the error
//! master: deletes all of them
//! ```
//!
//! (HBase's `ZKProcedureMemberRpcs` and `Subprocedure`.) A flush is done when it prepares, a
//! snapshot when it commits. A server without a region of the table takes part, too: the master
//! waits for every server that had one when the procedure began. Without an answer it waits for
//! minutes.
//!
//! A procedure is known by the creation id of its node, so it runs once, and a later one of the
//! same name runs again, after the run of the first one has ended here. A run joins a barrier, or
//! sends its error, only while the node of that id exists. One with an `abort` node does not begin.
//! The number of procedures of a kind that run at a time is limited; the others begin when one
//! ends.

use std::collections::{HashMap, HashSet};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_common::thread::{Supervisor, catch};
use evenkeel_common::{Configuration, HBaseError, Result, ServerName, TableName, TimeUnit};
use evenkeel_process::io_error;
use evenkeel_protocol::{PB_MAGIC, pb};
use evenkeel_zookeeper::znodes;
use parking_lot::Mutex;
use prost::Message;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::{sleep, timeout};
use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError, OneshotWatcher};

use crate::abort::Abort;
use crate::pools::Pool;
use crate::procedures::foreign;
use crate::session::Session;
use crate::snapshot;
use crate::transitions::Transitions;

/// Threads of each kind. Each flushes or snapshots one region at a time, as in HBase
/// (`hbase.flush.procedure.region.concurrentTasks`, `hbase.snapshot.region.concurrentTasks`).
const THREADS: usize = 3;
/// The limit on procedures of one kind that run at a time. HBase's coordinator runs one.
const RUNNING_MAX: usize = 16;
/// The nodes are read again after this time even if no watch fires.
const READ_AGAIN: Duration = Duration::from_secs(30);
/// The pause after a failed read.
const READ_RETRY: Duration = Duration::from_millis(500);

/// A piece of work on one region.
type Task = Box<dyn FnOnce() -> Result<()> + Send>;

/// What a server does in a procedure. `data` is the request.
pub(crate) trait Work: Send + Sync {
    /// The work before this server reports that it is ready.
    ///
    /// # Errors
    /// The request cannot be read. As an error of a task, it fails the whole procedure.
    fn prepare(&self, name: &str, data: &[u8]) -> Result<Vec<Task>>;

    /// The work after all servers have reported that they are ready.
    ///
    /// # Errors
    /// As of [`Work::prepare`].
    fn commit(&self, name: &str, data: &[u8]) -> Result<Vec<Task>>;
}

/// The outcome of a write to ZooKeeper.
type Written<'a> = Pin<Box<dyn Future<Output = Result<(), ZkError>> + Send + 'a>>;

/// Creates nodes: by a session, or, in tests, in the tree of an endpoint that clients only read.
trait CreateNode: Send + Sync {
    /// Creates a persistent node.
    fn create_node<'a>(&'a self, path: &'a str, data: &'a [u8]) -> Written<'a>;
}

impl CreateNode for Client {
    fn create_node<'a>(&'a self, path: &'a str, data: &'a [u8]) -> Written<'a> {
        Box::pin(async move {
            let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
            self.create(path, data, &options).await.map(drop)
        })
    }
}

/// Takes part in procedures of both kinds from now on.
///
/// # Errors
/// A setting that cannot be parsed, or a thread that cannot be started.
pub(crate) fn start(
    session: &Session,
    abort: &Arc<Abort>,
    transitions: &Arc<Transitions>,
    conf: &Configuration,
    supervisor: &Supervisor,
) -> Result<()> {
    let limit = |key: &str, default_ms: i64| {
        let ms = conf.get_time_or(key, TimeUnit::Milliseconds, default_ms).map_err(io_error)?;
        let ms = u64::try_from(ms).map_err(|_| io_error(conf.unusable(key, "0 or more")))?;
        Ok::<_, HBaseError>(Duration::from_millis(ms))
    };
    let kinds: [(&'static str, Duration, Arc<dyn Work>); 2] = [
        (
            "flush-table-proc",
            limit("hbase.flush.procedure.region.timeout", 60_000)?,
            Arc::new(FlushTable(Arc::clone(transitions))),
        ),
        (
            "online-snapshot",
            limit("hbase.snapshot.region.timeout", 300_000)?,
            Arc::new(TakeSnapshot(Arc::clone(transitions))),
        ),
    ];
    for (kind, limit, work) in kinds {
        let pool = Arc::new(start_pool(supervisor)?);
        let client = session.client();
        let member = Member::new(
            (client.clone(), Arc::new(client.clone())),
            &format!("{}/{kind}", session.parent()),
            transitions.server().name(),
            (limit, work, pool),
        );
        abort.run_task(session.runtime(), kind, Arc::new(member).take_part(session.runtime().clone()));
    }
    Ok(())
}

fn start_pool(supervisor: &Supervisor) -> io::Result<Pool> {
    Pool::start("zookeeper-procedure", THREADS, supervisor)
}

/// This server in the procedures of one kind.
struct Member {
    client: Client,
    writer: Arc<dyn CreateNode>,
    base: String,
    acquired: String,
    reached: String,
    abort: String,
    server: ServerName,
    limit: Duration,
    work: Arc<dyn Work>,
    pool: Arc<Pool>,
    /// The names of the procedures that run.
    running: Mutex<HashSet<String>>,
    ended: Notify,
}

/// A procedure of the master.
struct Procedure {
    name: String,
    data: Bytes,
    /// The id of the transaction that created its node.
    id: i64,
    /// It was given up: no further region is begun.
    is_over: AtomicBool,
}

impl Member {
    fn new(
        (client, writer): (Client, Arc<dyn CreateNode>),
        base: &str,
        server: &ServerName,
        (limit, work, pool): (Duration, Arc<dyn Work>, Arc<Pool>),
    ) -> Self {
        Self {
            client,
            writer,
            base: base.to_owned(),
            acquired: format!("{base}/acquired"),
            reached: format!("{base}/reached"),
            abort: format!("{base}/abort"),
            server: server.clone(),
            limit,
            work,
            pool,
            running: Mutex::default(),
            ended: Notify::new(),
        }
    }

    /// Runs each procedure of the master, until the session ends.
    async fn take_part(self: Arc<Self>, runtime: Handle) {
        let mut begun = HashMap::new();
        loop {
            match self.begin_new(&runtime, &mut begun).await {
                Ok(watcher) => {
                    tokio::select! {
                        _ = watcher.changed() => {}
                        () = self.ended.notified() => {}
                        () = sleep(READ_AGAIN) => {}
                    }
                }
                Err(ZkError::SessionExpired | ZkError::ClientClosed) => return,
                Err(error) => {
                    tracing::warn!(znode = self.acquired, %error, "ZooKeeper");
                    sleep(READ_RETRY).await;
                }
            }
        }
    }

    /// Begins the procedures that have not begun yet. `begun` has the creation ids of the others,
    /// by name. Returns a watch for further ones.
    async fn begin_new(
        self: &Arc<Self>,
        runtime: &Handle,
        begun: &mut HashMap<String, i64>,
    ) -> Result<OneshotWatcher, ZkError> {
        let (names, watcher) = match self.client.list_and_watch_children(&self.acquired).await {
            Err(ZkError::NoNode) => {
                self.create_parents().await?;
                self.client.list_and_watch_children(&self.acquired).await?
            }
            other => other?,
        };
        begun.retain(|name, _| names.contains(name));
        for name in names {
            let (data, stat) = match self.client.get_data(&format!("{}/{name}", self.acquired)).await {
                Err(ZkError::NoNode) => continue,
                other => other?,
            };
            if begun.get(&name) == Some(&stat.czxid) {
                continue;
            }
            if !self.may_run(&name) {
                continue;
            }
            begun.insert(name.clone(), stat.czxid);
            // The master creates a node without a message before it removes what is left of an
            // earlier procedure.
            let data = znodes::unframe(&data).and_then(|data| data.strip_prefix(PB_MAGIC));
            let Some(data) = data.map(Bytes::copy_from_slice) else { continue };
            self.running.lock().insert(name.clone());
            let procedure = Procedure { name, data, id: stat.czxid, is_over: AtomicBool::new(false) };
            let member = Arc::clone(self);
            runtime.spawn(async move {
                let procedure = Arc::new(procedure);
                member.run(&procedure).await;
                procedure.is_over.store(true, Ordering::Relaxed);
                member.running.lock().remove(&procedure.name);
                member.ended.notify_one();
            });
        }
        Ok(watcher)
    }

    /// Returns false for a name that runs already, and if as many run as may.
    fn may_run(&self, name: &str) -> bool {
        let running = self.running.lock();
        running.len() < RUNNING_MAX && !running.contains(name)
    }

    /// Creates the nodes of this kind, as every server and master does.
    async fn create_parents(&self) -> Result<(), ZkError> {
        for node in [&self.base, &self.acquired, &self.reached, &self.abort] {
            match self.writer.create_node(node, &[]).await {
                Err(ZkError::NodeExists) => {}
                other => other?,
            }
        }
        Ok(())
    }

    async fn run(&self, procedure: &Arc<Procedure>) {
        let name = &procedure.name;
        let outcome = match timeout(self.limit, self.steps(procedure)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(HBaseError::io(format!("{name}: not done within {:?}", self.limit))),
        };
        if let Err(error) = outcome {
            tracing::warn!(procedure = name, znode = self.acquired, %error, "a procedure through ZooKeeper failed");
            if let Err(error) =
                timeout(self.limit, self.send_abort(procedure, &error)).await.unwrap_or(Ok(()))
            {
                tracing::warn!(procedure = name, %error, "the error could not be sent");
            }
        }
    }

    /// Runs a procedure to its end, or until another server or the master gives it up.
    async fn steps(&self, procedure: &Arc<Procedure>) -> Result<()> {
        if !self.is_wanted(procedure).await? {
            return Ok(());
        }
        self.work(procedure, self.work.prepare(&procedure.name, &procedure.data)?).await?;
        if !self.join(&self.acquired, procedure).await? || !self.wait_for_all(procedure).await? {
            return Ok(());
        }
        self.work(procedure, self.work.commit(&procedure.name, &procedure.data)?).await?;
        self.join(&self.reached, procedure).await.map(drop)
    }

    /// Does work on threads that may wait for the disk. Returns the first error.
    async fn work(&self, procedure: &Arc<Procedure>, tasks: Vec<Task>) -> Result<()> {
        let mut outcomes = Vec::with_capacity(tasks.len());
        for task in tasks {
            let (tell, told) = oneshot::channel();
            let procedure = Arc::clone(procedure);
            self.pool.submit(move || {
                let outcome = match procedure.is_over.load(Ordering::Relaxed) {
                    true => Err(HBaseError::io("the procedure was given up")),
                    false => catch(format_args!("the procedure {}", procedure.name), task),
                };
                // Nobody waits any more if the time has passed.
                let _ = tell.send(outcome);
            })?;
            outcomes.push(told);
        }
        for told in outcomes {
            told.await.unwrap_or_else(|_| Err(HBaseError::io("the thread of the procedure has ended")))?;
        }
        Ok(())
    }

    /// Returns false if the procedure was given up: an error was sent, or its node is gone, or is
    /// that of a later procedure.
    async fn is_wanted(&self, procedure: &Procedure) -> Result<bool> {
        let name = &procedure.name;
        let look = async |parent: &str| {
            let found = self.client.check_stat(&format!("{parent}/{name}")).await;
            found.map_err(|error| failed(name, &error))
        };
        let is_aborted = look(&self.abort).await?.is_some();
        let own = look(&self.acquired).await?.filter(|stat| stat.czxid == procedure.id);
        Ok(!is_aborted && own.is_some())
    }

    /// Creates this server's node below that of a procedure. Returns false if the procedure was
    /// given up.
    async fn join(&self, barrier: &str, procedure: &Procedure) -> Result<bool> {
        if !self.is_wanted(procedure).await? {
            return Ok(false);
        }
        let path = format!("{barrier}/{}/{}", procedure.name, self.server);
        match self.writer.create_node(&path, &znodes::frame(&self.source(), &())).await {
            Ok(()) | Err(ZkError::NodeExists) => Ok(true),
            Err(ZkError::NoNode) => Ok(false),
            Err(error) => Err(failed(&procedure.name, &error)),
        }
    }

    /// Waits until all servers are ready. Returns false if the procedure was given up.
    async fn wait_for_all(&self, procedure: &Procedure) -> Result<bool> {
        let name = &procedure.name;
        let [acquired, reached, abort] =
            [&self.acquired, &self.reached, &self.abort].map(|parent| format!("{parent}/{name}"));
        loop {
            let watch = async |path: &str| {
                self.client.check_and_watch_stat(path).await.map_err(|error| failed(name, &error))
            };
            let (is_aborted, aborts) = watch(&abort).await?;
            let (is_reached, all_ready) = watch(&reached).await?;
            let (own, gone) = watch(&acquired).await?;
            let is_own = own.is_some_and(|stat| stat.czxid == procedure.id);
            match (is_aborted, is_reached) {
                (Some(_), _) => return Ok(false),
                _ if !is_own => return Ok(false),
                (None, Some(_)) => return Ok(true),
                (None, None) => {}
            }
            tokio::select! {
                _ = aborts.changed() => {}
                _ = all_ready.changed() => {}
                _ = gone.changed() => {}
            }
        }
    }

    /// Tells the master and the other servers, unless the procedure was given up already: the node
    /// would then fail the next procedure of that name. The first error counts.
    async fn send_abort(&self, procedure: &Procedure, error: &HBaseError) -> Result<()> {
        if !self.is_wanted(procedure).await? {
            return Ok(());
        }
        let path = format!("{}/{}", self.abort, procedure.name);
        let data = znodes::frame(&self.source(), &foreign(&self.server, error));
        match self.writer.create_node(&path, &data).await {
            Ok(()) | Err(ZkError::NodeExists) => Ok(()),
            Err(error) => Err(failed(&procedure.name, &error)),
        }
    }

    /// What HBase writes into a znode's metadata.
    fn source(&self) -> String {
        format!("regionserver:{}", self.server.port)
    }
}

fn failed(name: &str, error: &ZkError) -> HBaseError {
    HBaseError::io(format!("ZooKeeper: {name}: {error}"))
}

/// `flush-table-proc`: the name is the table's. The request has the families, separated by commas,
/// or is empty for all.
struct FlushTable(Arc<Transitions>);

impl Work for FlushTable {
    fn prepare(&self, name: &str, data: &[u8]) -> Result<Vec<Task>> {
        let table: TableName = name.parse()?;
        let families: Vec<Bytes> = match data {
            [] => Vec::new(),
            data => {
                let pair: pb::NameStringPair = decode(data)?;
                pair.value.split(',').map(|family| Bytes::copy_from_slice(family.as_bytes())).collect()
            }
        };
        let server = self.0.server();
        let tasks = server.regions().of_table(&table).into_iter().map(|region| -> Task {
            let (server, families) = (Arc::clone(server), families.clone());
            Box::new(move || server.background().flush_only(&region, &families).map(drop))
        });
        Ok(tasks.collect())
    }

    fn commit(&self, _name: &str, _data: &[u8]) -> Result<Vec<Task>> {
        Ok(Vec::new())
    }
}

/// `online-snapshot`: the name is the snapshot's, and the request its description. The master finds
/// regions that no server took.
struct TakeSnapshot(Arc<Transitions>);

impl Work for TakeSnapshot {
    fn prepare(&self, _name: &str, _data: &[u8]) -> Result<Vec<Task>> {
        Ok(Vec::new())
    }

    fn commit(&self, _name: &str, data: &[u8]) -> Result<Vec<Task>> {
        let description: pb::SnapshotDescription = decode(data)?;
        let table: TableName = description.table().parse()?;
        let regions = self.0.server().regions().of_table(&table).into_iter();
        let tasks = regions.filter(|region| !region.is_secondary()).map(|region| -> Task {
            let (transitions, snapshot) = (Arc::clone(&self.0), description.clone());
            let region = region.info().into();
            Box::new(move || snapshot::take(&transitions, &pb::SnapshotRegionParameter { region, snapshot }))
        });
        Ok(tasks.collect())
    }
}

fn decode<M: Message + Default>(data: &[u8]) -> Result<M> {
    M::decode(data).map_err(|e| HBaseError::do_not_retry(format!("the request cannot be read: {e}")))
}

#[cfg(test)]
mod tests;
