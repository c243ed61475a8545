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
//! A procedure is known by the znode's creation id, so it runs once, and a procedure of the same
//! name runs again. One with an `abort` node does not begin. The number of procedures of a kind
//! that run at a time is limited; the others begin when one ends.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use evenkeel_common::thread::{Supervisor, catch};
use evenkeel_common::{Configuration, HBaseError, Result, ServerName, TableName, TimeUnit};
use evenkeel_process::io_error;
use evenkeel_protocol::{PB_MAGIC, pb};
use evenkeel_zookeeper::znodes;
use prost::Message;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};
use zookeeper_client::{Acls, Client, CreateMode, Error as ZkError, OneshotWatcher};

use crate::abort::Abort;
use crate::pools::Pool;
use crate::procedures::foreign;
use crate::session::Session;
use crate::snapshot;
use crate::transitions::Transitions;

/// Threads for both kinds.
const THREADS: usize = 2;
/// The limit on procedures of one kind that run at a time. HBase's coordinator runs one.
const RUNNING_MAX: usize = 16;
/// The nodes are read again after this time even if no watch fires.
const READ_AGAIN: Duration = Duration::from_secs(30);
/// The pause after a failed read.
const READ_RETRY: Duration = Duration::from_millis(500);

/// What a server does in a procedure. `data` is the request.
pub(crate) trait Work: Send + Sync {
    /// The work before this server reports that it is ready.
    ///
    /// # Errors
    /// Fails the whole procedure.
    fn prepare(&self, name: &str, data: &[u8]) -> Result<()>;

    /// The work after all servers have reported that they are ready.
    ///
    /// # Errors
    /// Fails the whole procedure.
    fn commit(&self, name: &str, data: &[u8]) -> Result<()>;
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
    let pool = Arc::new(start_pool(supervisor)?);
    for (kind, limit, work) in kinds {
        let client = session.client();
        let member = Member::new(
            (client.clone(), Arc::new(client.clone())),
            &format!("{}/{kind}", session.parent()),
            transitions.server().name(),
            (limit, work, Arc::clone(&pool)),
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
    running: Arc<Semaphore>,
}

#[derive(Clone, Copy)]
enum Step {
    Prepare,
    Commit,
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
            running: Arc::new(Semaphore::new(RUNNING_MAX)),
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
                        // One that has ended makes room for another.
                        () = self.has_ended() => {}
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

    /// Waits until a procedure ends, if as many run as may.
    async fn has_ended(&self) {
        match self.running.available_permits() {
            0 => drop(self.running.acquire().await),
            _ => std::future::pending().await,
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
            let Ok(permit) = Arc::clone(&self.running).try_acquire_owned() else { break };
            begun.insert(name.clone(), stat.czxid);
            // The master creates a node without a message before it removes what is left of an
            // earlier procedure.
            let Some(data) = znodes::unframe(&data).and_then(|data| data.strip_prefix(PB_MAGIC)) else {
                continue;
            };
            let (member, data) = (Arc::clone(self), data.to_vec());
            runtime.spawn(async move {
                member.run(&name, data).await;
                drop(permit);
            });
        }
        Ok(watcher)
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

    async fn run(&self, name: &str, data: Vec<u8>) {
        let outcome = match timeout(self.limit, self.steps(name, data.into())).await {
            Ok(outcome) => outcome,
            Err(_) => Err(HBaseError::io(format!("{name}: not done within {:?}", self.limit))),
        };
        if let Err(error) = outcome {
            tracing::warn!(procedure = name, znode = self.acquired, %error, "a procedure through ZooKeeper failed");
            self.send_abort(name, &error).await;
        }
    }

    /// Runs a procedure to its end, or until another server or the master gives it up.
    async fn steps(&self, name: &str, data: Bytes) -> Result<()> {
        let is_aborted = self.client.check_stat(&format!("{}/{name}", self.abort)).await;
        if is_aborted.map_err(|e| failed(name, &e))?.is_some() {
            return Ok(());
        }
        self.work(Step::Prepare, name, &data).await?;
        if !self.join(&self.acquired, name).await? || !self.wait_for_all(name).await? {
            return Ok(());
        }
        self.work(Step::Commit, name, &data).await?;
        self.join(&self.reached, name).await.map(drop)
    }

    /// Does a step of the work on a thread that may wait for the disk.
    async fn work(&self, step: Step, name: &str, data: &Bytes) -> Result<()> {
        let (tell, told) = oneshot::channel();
        let (work, name, data) = (Arc::clone(&self.work), name.to_owned(), data.clone());
        self.pool.submit(move || {
            let outcome = catch(format_args!("the procedure {name}"), || match step {
                Step::Prepare => work.prepare(&name, &data),
                Step::Commit => work.commit(&name, &data),
            });
            // Nobody waits any more if the time has passed.
            drop(tell.send(outcome));
        })?;
        told.await.unwrap_or_else(|_| Err(HBaseError::io("the thread of the procedure has ended")))
    }

    /// Creates this server's node below that of a procedure. Returns false if the procedure is
    /// gone.
    async fn join(&self, barrier: &str, name: &str) -> Result<bool> {
        let path = format!("{barrier}/{name}/{}", self.server);
        match self.writer.create_node(&path, &znodes::frame(&self.source(), &())).await {
            Ok(()) | Err(ZkError::NodeExists) => Ok(true),
            Err(ZkError::NoNode) => Ok(false),
            Err(error) => Err(failed(name, &error)),
        }
    }

    /// Waits until all servers are ready. Returns false if the procedure was given up.
    async fn wait_for_all(&self, name: &str) -> Result<bool> {
        let [acquired, reached, abort] =
            [&self.acquired, &self.reached, &self.abort].map(|parent| format!("{parent}/{name}"));
        loop {
            let watch = async |path: &str| {
                self.client.check_and_watch_stat(path).await.map_err(|error| failed(name, &error))
            };
            let (is_aborted, aborts) = watch(&abort).await?;
            let (is_reached, all_ready) = watch(&reached).await?;
            let (is_there, gone) = watch(&acquired).await?;
            match (is_aborted, is_reached, is_there) {
                (Some(_), ..) | (_, _, None) => return Ok(false),
                (_, Some(_), _) => return Ok(true),
                _ => {}
            }
            tokio::select! {
                _ = aborts.changed() => {}
                _ = all_ready.changed() => {}
                _ = gone.changed() => {}
            }
        }
    }

    /// Tells the master and the other servers. The first error counts.
    async fn send_abort(&self, name: &str, error: &HBaseError) {
        let path = format!("{}/{name}", self.abort);
        let data = znodes::frame(&self.source(), &foreign(&self.server, error));
        match timeout(self.limit, self.writer.create_node(&path, &data)).await {
            Ok(Ok(()) | Err(ZkError::NodeExists)) => {}
            Ok(Err(error)) => tracing::warn!(path, %error, "the error could not be sent"),
            Err(_) => tracing::warn!(path, "the error could not be sent: no reply in time"),
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
    fn prepare(&self, name: &str, data: &[u8]) -> Result<()> {
        let table: TableName = name.parse()?;
        let families: Vec<Bytes> = match data {
            [] => Vec::new(),
            data => {
                let pair: pb::NameStringPair = decode(data)?;
                pair.value.split(',').map(|family| Bytes::copy_from_slice(family.as_bytes())).collect()
            }
        };
        let server = self.0.server();
        let mut regions = server.regions().of_table(&table).into_iter();
        regions.try_for_each(|region| server.background().flush_only(&region, &families).map(drop))
    }

    fn commit(&self, _name: &str, _data: &[u8]) -> Result<()> {
        Ok(())
    }
}

/// `online-snapshot`: the name is the snapshot's, and the request its description. The master finds
/// regions that no server took.
struct TakeSnapshot(Arc<Transitions>);

impl Work for TakeSnapshot {
    fn prepare(&self, _name: &str, _data: &[u8]) -> Result<()> {
        Ok(())
    }

    fn commit(&self, _name: &str, data: &[u8]) -> Result<()> {
        let description: pb::SnapshotDescription = decode(data)?;
        let table: TableName = description.table().parse()?;
        let regions = self.0.server().regions().of_table(&table);
        let mut regions = regions.iter().filter(|region| !region.is_secondary());
        regions.try_for_each(|region| {
            let (region, snapshot) = (region.info().into(), description.clone());
            snapshot::take(&self.0, &pb::SnapshotRegionParameter { region, snapshot })
        })
    }
}

fn decode<M: Message + Default>(data: &[u8]) -> Result<M> {
    M::decode(data).map_err(|e| HBaseError::do_not_retry(format!("the request cannot be read: {e}")))
}

#[cfg(test)]
mod tests;
