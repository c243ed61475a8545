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
//! | `FlushRegionCallable` | flushes a region |
//! | `SnapshotRegionCallable`, `SnapshotVerifyCallable` | [`snapshot`](crate::snapshot) |
//! | `ReloadQuotasCallable`, `SwitchRpcThrottleRemoteCallable` | [`quotas`](crate::quotas) |
//! | `RefreshPeerCallable` | none: this server replicates nothing |
//! | `ClaimReplicationQueueCallable` | rejected: no thread would read the queue |

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

/// See the module's documentation.
pub struct Procedures {
    transitions: Arc<Transitions>,
    submitted: Arc<Submitted>,
    openers: Pool,
    priority_openers: Pool,
    meta: Pool,
    closers: Pool,
    splitters: Pool,
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
            others: pool("remote-procedure", PROCEDURE_THREADS)?,
            results,
        }))
    }

    /// Queues everything that an RPC requests.
    ///
    /// # Errors
    /// Returns `DoNotRetryIOException` if the RPC is meant for an earlier server of this address,
    /// or cannot be parsed; `CallQueueTooBigException` if a queue is full. A retry does not queue
    /// again what is already queued.
    pub fn execute(&self, request: pb::ExecuteProceduresRequest) -> Result<()> {
        for open in request.open_region {
            self.check_start_code(open.server_start_code)?;
            open.open_info
                .iter()
                .try_for_each(|info| self.queue_open(info, open.initiating_master_active_time))?;
        }
        for close in request.close_region {
            self.check_start_code(close.server_start_code)?;
            self.queue_close(close)?;
        }
        request.proc.into_iter().try_for_each(|procedure| self.queue_procedure(procedure))
    }

    /// Queues the close of a region that is open here.
    ///
    /// # Errors
    /// Returns `NotServingRegionException`, or an error as [`Procedures::execute`] does.
    pub fn close_region(&self, request: pb::CloseRegionRequest) -> Result<()> {
        self.check_start_code(request.server_start_code)?;
        self.transitions.server().region(&request.region)?;
        self.queue_close(request)
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

    fn queue_open(
        &self,
        open: &pb::open_region_request::RegionOpenInfo,
        master_active_ms: Option<i64>,
    ) -> Result<()> {
        let info = RegionInfo::try_from(&open.region)?;
        let pool = match (info.is_meta(), info.table().is_system()) {
            (true, _) => &self.meta,
            (_, true) => &self.priority_openers,
            _ => &self.openers,
        };
        let procedure = Procedure { id: open.open_proc_id(), master_active_ms };
        let transitions = Arc::clone(&self.transitions);
        self.submitted.transition(pool, procedure.id, move || transitions.open(&info, procedure))
    }

    fn queue_close(&self, close: pb::CloseRegionRequest) -> Result<()> {
        let name = convert::region::encoded_name(&close.region)?.into_owned();
        let procedure =
            Procedure { id: close.close_proc_id(), master_active_ms: close.initiating_master_active_time };
        let destination = close.destination_server.as_ref().map(ServerName::from);
        let pool = if name == RegionInfo::meta().encoded_name() { &self.meta } else { &self.closers };
        let transitions = Arc::clone(&self.transitions);
        self.submitted
            .transition(pool, procedure.id, move || transitions.close(&name, destination, procedure))
    }

    fn queue_procedure(&self, request: pb::RemoteProcedureRequest) -> Result<()> {
        let id = i64::try_from(request.proc_id).unwrap_or(NO_PROCEDURE);
        let kind = request.proc_class.rsplit('.').next().unwrap_or_default();
        let pool = if kind == "SplitWALCallable" { &self.splitters } else { &self.others };
        let class = request.proc_class;
        let work = {
            let (transitions, class) = (Arc::clone(&self.transitions), class.clone());
            let data = request.proc_data.unwrap_or_default();
            let split_buffer_bytes = self.split_buffer_bytes;
            move || catch(&class, || run(&transitions, &class, &data, split_buffer_bytes))
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

fn run(transitions: &Transitions, class: &str, data: &[u8], split_buffer_bytes: usize) -> Result<()> {
    match class.rsplit('.').next().unwrap_or_default() {
        "SplitWALCallable" => split_wal::run(transitions, &decode(data)?, split_buffer_bytes),
        "FlushRegionCallable" => flush(transitions, &decode(data)?),
        "SnapshotRegionCallable" => snapshot::take(transitions, &decode(data)?),
        "SnapshotVerifyCallable" => snapshot::verify(transitions, &decode(data)?),
        "ReloadQuotasCallable" => quotas::report_change(transitions.server()),
        "SwitchRpcThrottleRemoteCallable" => quotas::switch(transitions.server(), &decode(data)?),
        "RefreshPeerCallable" => Ok(()),
        "ClaimReplicationQueueCallable" => {
            Err(HBaseError::do_not_retry("this server does not replicate and claims no replication queue"))
        }
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
    server.background().flush(&region).map(drop)
}

/// Encodes an error as the master reads it.
fn foreign(server: &ServerName, error: &HBaseError) -> pb::ForeignExceptionMessage {
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
