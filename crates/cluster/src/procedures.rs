//! [`Procedures`]: queues and executes the requests of `ExecuteProcedures`, and reports their
//! outcomes.
//!
//! The RPC is answered as soon as everything in it is queued. Regions are opened and closed by
//! [`Transitions`], which reports each transition itself. The outcome of any other procedure,
//! including an unknown one, is sent by `ReportProcedureDone` until the master accepts it: a
//! procedure without an outcome hangs on the master forever.
//!
//! | procedure | action |
//! |---|---|
//! | `SplitWALCallable` | [`split_wal`](crate::split_wal) |
//! | `FlushRegionCallable` | flushes a region, or some of its families |
//! | `SnapshotRegionCallable`, `SnapshotVerifyCallable` | [`snapshot`](crate::snapshot) |
//! | `ReloadQuotasCallable`, `SwitchRpcThrottleRemoteCallable` | [`quotas`](crate::quotas) |
//! | `RefreshPeerCallable` | none: this server replicates nothing |
//! | `ClaimReplicationQueueCallable` | none, after a pause of 5 s |
//!
//! **Replication queues.** When a server of HBase that replicates has died, the master asks random
//! servers to claim its queues. This server replicates nothing, so it claims no queue. It reports
//! success: after an error the master would repeat the procedure on this server forever. After a
//! success the master asks random servers to claim the remaining queues. Without a live server of
//! HBase it repeats this, so a separate thread delays each answer.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use evenkeel_common::thread::{Supervisor, catch, spawn_essential};
use evenkeel_common::{ErrorKind, HBaseError, RegionInfo, Result, ServerName};
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::remote_procedure_result::Status;
use evenkeel_regionserver::convert;
use prost::Message;

use crate::pools::Pool;
use crate::settings::ClusterSettings;
use crate::submitted_procedures::{NO_PROCEDURE, Submitted};
use crate::transitions::{Procedure, Transitions};
use crate::{quotas, snapshot, split_wal};

/// The limit on outcomes that wait for the master; beyond it a thread with another outcome blocks.
const RESULTS_MAX: usize = 10_000;
/// The limit on outcomes in one report (`RemoteProcedureResultReporter.MAX_BATCH`).
const BATCH_MAX: usize = 100;
/// The pause between attempts of a report.
const REPORT_PAUSE: Duration = Duration::from_secs(1);
/// Threads for procedures other than log splits.
const PROCEDURE_THREADS: usize = 3;
/// The time before a queue of replication counts as claimed.
const CLAIM_PAUSE: Duration = Duration::from_secs(5);

/// See the module's documentation.
pub struct Procedures {
    transitions: Arc<Transitions>,
    submitted: Arc<Submitted>,
    openers: Pool,
    priority_openers: Pool,
    meta: Pool,
    closers: Pool,
    splitters: Pool,
    claims: Pool,
    others: Pool,
    results: Sender<pb::RemoteProcedureResult>,
    /// The maximum bytes of edits in memory of each log that is split.
    split_buffer_bytes: usize,
}

impl Procedures {
    /// Starts the threads. `split_buffer_bytes` is the maximum bytes of edits in memory while logs
    /// are split, all threads together.
    ///
    /// # Errors
    /// Returns an error if a thread cannot be started.
    pub fn start(
        transitions: Arc<Transitions>,
        settings: &ClusterSettings,
        split_buffer_bytes: u64,
        supervisor: &Supervisor,
    ) -> io::Result<Arc<Self>> {
        let (results, outcomes) = bounded(RESULTS_MAX);
        let reporter = Arc::clone(&transitions);
        let report = move || {
            report_outcomes(&reporter, &outcomes);
            Ok(())
        };
        drop(spawn_essential("procedure-results", supervisor, report)?);
        let pool = |name, threads| Pool::start(name, threads, supervisor);
        let split_buffer_bytes = usize::try_from(split_buffer_bytes).unwrap_or(usize::MAX);
        Ok(Arc::new(Self {
            split_buffer_bytes: split_buffer_bytes / settings.splitter_threads.max(1),
            submitted: Submitted::new(Arc::clone(transitions.clock())),
            transitions,
            openers: pool("open-region", settings.opener_threads)?,
            priority_openers: pool("open-priority-region", settings.priority_opener_threads)?,
            meta: pool("open-meta", 1)?,
            closers: pool("close-region", settings.closer_threads)?,
            splitters: pool("split-wal", settings.splitter_threads)?,
            claims: pool("claim-queue", 1)?,
            others: pool("remote-procedure", PROCEDURE_THREADS)?,
            results,
        }))
    }

    /// Queues everything that an RPC requests.
    ///
    /// # Errors
    /// Returns `DoNotRetryIOException` if the RPC is meant for an earlier server of this address,
    /// or cannot be parsed: nothing is queued then, and the master takes it for that.
    /// `IOException` if a queue is full, where a part may be queued: the master repeats the RPC,
    /// and a retry does not queue again what is already queued.
    pub fn execute(&self, request: pb::ExecuteProceduresRequest) -> Result<()> {
        let (opens, closes) = (&request.open_region, &request.close_region);
        let codes = opens.iter().map(|open| open.server_start_code);
        codes
            .chain(closes.iter().map(|close| close.server_start_code))
            .try_for_each(|code| self.check_start_code(code))?;
        let opens = opens.iter().flat_map(|open| {
            open.open_info.iter().map(|info| Open::from(info, open.initiating_master_active_time))
        });
        let (opens, closes) =
            (opens.collect::<Result<Vec<_>>>()?, closes.iter().map(Close::from).collect::<Result<Vec<_>>>()?);
        opens.into_iter().try_for_each(|open| self.queue_open(open))?;
        closes.into_iter().try_for_each(|close| self.queue_close(close))?;
        request.proc.into_iter().try_for_each(|procedure| self.queue_procedure(procedure))
    }

    /// Queues the close of a region that is open here.
    ///
    /// # Errors
    /// Returns `NotServingRegionException`, or an error as [`Procedures::execute`] does.
    pub fn close_region(&self, request: pb::CloseRegionRequest) -> Result<()> {
        self.check_start_code(request.server_start_code)?;
        self.transitions.server().region(&request.region)?;
        self.queue_close(Close::from(&request)?)
    }

    fn check_start_code(&self, wanted: Option<u64>) -> Result<()> {
        let name = self.transitions.server().name();
        match wanted {
            Some(code) if code != name.start_code.unsigned_abs() => Err(HBaseError::do_not_retry(format!(
                "This RPC was intended for a different server with startcode: {code}, this server is: {name}"
            ))),
            _ => Ok(()),
        }
    }

    fn queue_open(&self, Open { info, procedure }: Open) -> Result<()> {
        let pool = match (info.is_meta(), info.table().is_system()) {
            (true, _) => &self.meta,
            (_, true) => &self.priority_openers,
            _ => &self.openers,
        };
        let transitions = Arc::clone(&self.transitions);
        self.submitted.transition(pool, procedure.id, move || transitions.open(&info, procedure))
    }

    fn queue_close(&self, Close { name, destination, procedure }: Close) -> Result<()> {
        let pool = if name == RegionInfo::meta().encoded_name() { &self.meta } else { &self.closers };
        let transitions = Arc::clone(&self.transitions);
        self.submitted
            .transition(pool, procedure.id, move || transitions.close(&name, destination, procedure))
    }

    fn queue_procedure(&self, request: pb::RemoteProcedureRequest) -> Result<()> {
        let id = i64::try_from(request.proc_id).unwrap_or(NO_PROCEDURE);
        let kind = request.proc_class.rsplit('.').next().unwrap_or_default();
        let (pool, pause) = match kind {
            "SplitWALCallable" => (&self.splitters, Duration::ZERO),
            "ClaimReplicationQueueCallable" => (&self.claims, CLAIM_PAUSE),
            _ => (&self.others, Duration::ZERO),
        };
        let class = request.proc_class;
        let work = {
            let (transitions, class) = (Arc::clone(&self.transitions), class.clone());
            let data = request.proc_data.unwrap_or_default();
            let split_buffer_bytes = self.split_buffer_bytes;
            move || {
                std::thread::sleep(pause);
                catch(&class, || run(&transitions, &class, &data, split_buffer_bytes))
            }
        };
        let (name, results) = (self.transitions.server().name().clone(), self.results.clone());
        let report = move |outcome: Result<()>| {
            if let Err(error) = &outcome {
                tracing::warn!(procedure = request.proc_id, class, %error, "a procedure failed");
            }
            let result = pb::RemoteProcedureResult {
                proc_id: request.proc_id,
                status: if outcome.is_ok() { Status::Success } else { Status::Error }.into(),
                error: outcome.err().map(|error| foreign(&name, &error)),
                initiating_master_active_time: request.initiating_master_active_time,
            };
            drop(results.send(result));
        };
        self.submitted.remote_procedure(pool, id, work, report)
    }
}

/// A region to open.
struct Open {
    info: RegionInfo,
    procedure: Procedure,
}

impl Open {
    fn from(open: &pb::open_region_request::RegionOpenInfo, master_active_ms: Option<i64>) -> Result<Self> {
        let procedure = Procedure { id: open.open_proc_id(), master_active_ms };
        Ok(Self { info: RegionInfo::try_from(&open.region)?, procedure })
    }
}

/// A region to close.
struct Close {
    /// The encoded name.
    name: String,
    destination: Option<ServerName>,
    procedure: Procedure,
}

impl Close {
    fn from(close: &pb::CloseRegionRequest) -> Result<Self> {
        let master_active_ms = close.initiating_master_active_time;
        Ok(Self {
            name: convert::region::encoded_name(&close.region)?.into_owned(),
            destination: close.destination_server.as_ref().map(ServerName::from),
            procedure: Procedure { id: close.close_proc_id(), master_active_ms },
        })
    }
}

fn run(transitions: &Transitions, class: &str, data: &[u8], split_buffer_bytes: usize) -> Result<()> {
    match class.rsplit('.').next().unwrap_or_default() {
        "SplitWALCallable" => split_wal::run(transitions, &decode(data)?, split_buffer_bytes),
        "FlushRegionCallable" => flush(transitions, &decode(data)?),
        "SnapshotRegionCallable" => snapshot::take(transitions, &decode(data)?),
        "SnapshotVerifyCallable" => snapshot::verify(transitions, &decode(data)?),
        "ReloadQuotasCallable" => quotas::report_change(transitions.server()),
        "SwitchRpcThrottleRemoteCallable" => quotas::switch(transitions.server(), &decode(data)?),
        "RefreshPeerCallable" | "ClaimReplicationQueueCallable" => Ok(()),
        _ => Err(HBaseError::do_not_retry(format!("{class} is unknown"))),
    }
}

fn decode<M: Message + Default>(data: &[u8]) -> Result<M> {
    M::decode(data).map_err(|e| HBaseError::do_not_retry(format!("the procedure's data cannot be read: {e}")))
}

fn flush(transitions: &Transitions, request: &pb::FlushRegionParameter) -> Result<()> {
    let info = RegionInfo::try_from(&request.region)?;
    let server = transitions.server();
    let region = server.regions().get(info.encoded_name(), info.name())?;
    server.background().flush_only(&region, &request.column_family).map(drop)
}

/// Encodes an error as the master reads it.
pub(crate) fn foreign(server: &ServerName, error: &HBaseError) -> pb::ForeignExceptionMessage {
    pb::ForeignExceptionMessage {
        source: Some(server.to_string()),
        generic_exception: Some(pb::GenericExceptionMessage {
            class_name: Some(error.kind().class_name().to_owned()),
            message: Some(error.message().to_owned()),
            error_info: None,
            trace: Vec::new(),
        }),
    }
}

/// Reports outcomes to the master, in batches, until all senders are dropped.
fn report_outcomes(transitions: &Transitions, outcomes: &Receiver<pb::RemoteProcedureResult>) {
    while let Ok(first) = outcomes.recv() {
        let mut result = vec![first];
        result.extend(outcomes.try_iter().take(BATCH_MAX - 1));
        let request = pb::ReportProcedureDoneRequest { result };
        while let Err(error) = transitions.master().report_procedure_done(request.clone()) {
            if transitions.abort().is_aborting() {
                return;
            }
            tracing::warn!(%error, outcomes = request.result.len(), "outcomes could not be reported to the master; retrying");
            std::thread::sleep(REPORT_PAUSE);
        }
    }
}

/// Returns the error of a procedure for a region that is not here; the master locates the region
/// again.
pub(crate) fn not_serving(info: &RegionInfo, server: &ServerName) -> HBaseError {
    HBaseError::new(ErrorKind::NotServingRegion, format!("{} is not online on {server}", info.name_text()))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use evenkeel_common::Configuration;

    use super::*;
    use crate::transitions::tests::TestCluster;

    fn procedures(cluster: &TestCluster) -> Arc<Procedures> {
        let mut conf = Configuration::new();
        conf.set("hbase.regionserver.executor.openregion.threads", "1");
        let settings = ClusterSettings::from(&conf).expect("legal");
        let transitions = Arc::clone(&cluster.transitions);
        Procedures::start(transitions, &settings, 1 << 20, &Supervisor::log_only()).expect("threads")
    }

    /// A request to open a region, with the procedure 1, and a second one.
    fn opens(cluster: &TestCluster, second: pb::RegionInfo) -> pb::ExecuteProceduresRequest {
        let open = |(region, id): (pb::RegionInfo, i64)| pb::OpenRegionRequest {
            open_info: vec![pb::open_region_request::RegionOpenInfo {
                region,
                open_proc_id: Some(id),
                ..Default::default()
            }],
            ..Default::default()
        };
        let open_region = [((&cluster.region).into(), 1), (second, 2)].map(open).to_vec();
        pb::ExecuteProceduresRequest { open_region, ..Default::default() }
    }

    /// Waits until the thread that opens regions has nothing to do.
    fn drain(procedures: &Procedures) {
        let (done, ended) = channel();
        procedures.openers.submit(move || done.send(()).expect("the test waits")).expect("room");
        ended.recv_timeout(Duration::from_secs(30)).expect("the thread is free");
    }

    /// The master takes such an error for a request of which nothing was executed.
    #[test]
    fn a_request_that_cannot_be_parsed_executes_nothing() {
        let cluster = TestCluster::new();
        let procedures = procedures(&cluster);
        let nameless =
            pb::RegionInfo { table_name: pb::TableName::default(), ..pb::RegionInfo::from(&cluster.region) };
        let request = opens(&cluster, nameless);
        procedures.execute(request).expect_err("no table has that name");
        let mut request = opens(&cluster, (&cluster.region).into());
        request.open_region[1].server_start_code = Some(99);
        let error = procedures.execute(request).expect_err("for an earlier server");
        assert!(error.is_do_not_retry());
        drain(&procedures);
        assert!(!cluster.is_open());
        procedures.execute(opens(&cluster, (&cluster.region).into())).expect("queued");
        drain(&procedures);
        assert!(cluster.is_open());
    }

    /// The master gives up a request that fails with `CallQueueTooBigException` and opens the
    /// regions elsewhere, although a part of it may be queued here.
    #[test]
    fn a_full_queue_is_reported_as_an_error_that_the_master_retries() {
        let cluster = TestCluster::new();
        let procedures = procedures(&cluster);
        let (go, gate) = channel::<()>();
        let job = move || {
            let _ended = gate.recv();
        };
        procedures.openers.submit(job).expect("room");
        while procedures.openers.submit(|| {}).is_ok() {}
        let error = procedures.execute(opens(&cluster, (&cluster.region).into())).expect_err("full");
        assert_eq!(error.kind(), ErrorKind::Io);
        drop(go);
    }

    #[test]
    fn a_queue_of_replication_counts_as_claimed() {
        let cluster = TestCluster::new();
        let class = "org.apache.hadoop.hbase.replication.regionserver.ClaimReplicationQueueCallable";
        assert_eq!(run(&cluster.transitions, class, &[], 0), Ok(()));
        assert!(run(&cluster.transitions, "UnknownCallable", &[], 0).is_err());
    }
}
