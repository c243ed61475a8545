//! [`ClusterConnection`]: RPCs to the active master, as a
//! [`MasterConnection`](evenkeel_regionserver::MasterConnection).
//!
//! The active master is the one in ZooKeeper at the time of the RPC. After an RPC fails the session
//! reads it again, so that the caller's retry goes to a new master. A separate task sends
//! heartbeats; a newer report replaces one that is not sent yet.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_client::StatusCaller;
use evenkeel_client::{ClientConfig, Error};
use evenkeel_common::{ErrorKind, HBaseError, RegionInfo, Result, ServerName};
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::file_archive_notification_request::FileWithSize;
use evenkeel_protocol::pb::region_state_transition::TransitionCode;
use evenkeel_region::store::ArchivedFile;
use evenkeel_regionserver::{ClusterView, MasterConnection};
use parking_lot::Mutex;
use prost::Message;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::abort::Abort;
use crate::session::Session;
use crate::settings::ClusterSettings;

/// The timeout of the report of a fatal error: the server ends with or without it.
const FATAL_TIMEOUT: Duration = Duration::from_secs(2);
/// The timeout of a request to split a region. It is made again after the region's next flush.
const SPLIT_TIMEOUT: Duration = Duration::from_secs(5);
/// The exception of a master that has declared this server dead.
const YOU_ARE_DEAD: &str = "YouAreDeadException";

/// See the module's documentation.
pub struct ClusterConnection {
    session: Arc<Session>,
    caller: StatusCaller,
    runtime: Handle,
    report_interval: Duration,
    rpc_timeout: Duration,
    reports: Arc<Reports>,
}

/// The report to send next.
#[derive(Default)]
struct Reports {
    latest: Mutex<Option<pb::RegionServerReportRequest>>,
    there_is_one: Notify,
}

impl ClusterConnection {
    /// Creates a connection whose reports carry `version`.
    pub fn new(
        session: &Arc<Session>,
        runtime: &Handle,
        settings: &ClusterSettings,
        version: &str,
    ) -> Arc<Self> {
        let config = ClientConfig { version: version.to_owned(), ..ClientConfig::new(Vec::<String>::new()) };
        Arc::new(Self {
            session: Arc::clone(session),
            caller: StatusCaller::new(config),
            runtime: runtime.clone(),
            report_interval: settings.report_interval,
            rpc_timeout: settings.rpc_timeout,
            reports: Arc::default(),
        })
    }

    /// Starts the task that sends heartbeats; aborts the server if the master has declared it dead.
    pub fn send_reports(self: &Arc<Self>, abort: &Arc<Abort>) {
        let (connection, aborts) = (Arc::clone(self), Arc::clone(abort));
        abort.run_task(&self.runtime, "reports to the master", async move {
            loop {
                connection.reports.there_is_one.notified().await;
                let Some(report) = connection.reports.latest.lock().take() else { continue };
                let sent = connection.call::<pb::RegionServerReportResponse>("RegionServerReport", &report);
                match sent.await {
                    Err(error) if is_of(&error, YOU_ARE_DEAD) => return aborts.now(&error.to_string()),
                    Err(error) => tracing::warn!(%error, "the master did not accept the report"),
                    Ok(_) => {}
                }
            }
        });
    }

    /// `ReportRegionSpaceUse`: the sizes of the regions of this server, in bytes.
    ///
    /// # Errors
    /// Errors of the connection or of the master; the caller reports again later.
    pub(crate) async fn report_region_space_use(&self, sizes: Vec<(RegionInfo, u64)>) -> Result<(), Error> {
        let size = |(region, bytes): (RegionInfo, u64)| pb::RegionSpaceUse {
            region_info: Some((&region).into()),
            region_size: Some(bytes),
        };
        let report = pb::RegionSpaceUseReportRequest { space_use: sizes.into_iter().map(size).collect() };
        self.call::<pb::RegionSpaceUseReportResponse>("ReportRegionSpaceUse", &report).await.map(drop)
    }

    /// `ReportFileArchival`: files that compactions here have archived. Their bytes count for the
    /// snapshots that have them.
    ///
    /// # Errors
    /// Errors of the connection or of the master, which computes the sizes of snapshots itself,
    /// later.
    pub(crate) async fn report_archived_files(&self, files: Vec<ArchivedFile>) -> Result<(), Error> {
        let file = |file: ArchivedFile| FileWithSize {
            table_name: Some((&file.table).into()),
            name: Some(file.name),
            size: Some(file.bytes),
        };
        let report =
            pb::FileArchiveNotificationRequest { archived_files: files.into_iter().map(file).collect() };
        self.call::<pb::FileArchiveNotificationResponse>("ReportFileArchival", &report).await.map(drop)
    }

    async fn call<R: Message + Default>(
        &self,
        method: &'static str,
        request: &impl Message,
    ) -> Result<R, Error> {
        self.call_within(method, request, self.rpc_timeout).await
    }

    async fn call_within<R: Message + Default>(
        &self,
        method: &'static str,
        request: &impl Message,
        limit: Duration,
    ) -> Result<R, Error> {
        let master = self.session.view().active_master.as_ref().map(ServerName::host_port);
        let Some(master) = master else {
            self.session.read_again();
            return Err(Error::Connection("no master is active".to_owned()));
        };
        let outcome = self.caller.call(&master, method, request, limit).await;
        if outcome.is_err() {
            self.session.read_again();
        }
        outcome
    }

    /// Makes an RPC on a thread that may wait.
    fn call_wait<R: Message + Default>(&self, method: &'static str, request: &impl Message) -> Result<R> {
        let outcome = self.runtime.block_on(self.call(method, request));
        outcome.map_err(|error| hbase_error(method, &error))
    }
}

/// Returns true if a master's exception is of a class, by its simple name.
fn is_of(error: &Error, simple_name: &str) -> bool {
    error.remote().is_some_and(|e| e.class.rsplit(['.', '$']).next() == Some(simple_name))
}

/// Exceptions at which a server that is joining gives up.
const REFUSALS: [&str; 3] = ["ClockOutOfSyncException", "DecommissionedHostRejectedException", YOU_ARE_DEAD];

fn hbase_error(method: &str, error: &Error) -> HBaseError {
    let kind = match error.kind() {
        _ if REFUSALS.iter().any(|refusal| is_of(error, refusal)) => ErrorKind::DoNotRetry,
        Some(kind) => kind,
        None => ErrorKind::Io,
    };
    HBaseError::new(kind, format!("{method}: {error}"))
}

impl MasterConnection for ClusterConnection {
    fn region_server_startup(
        &self,
        request: pb::RegionServerStartupRequest,
    ) -> Result<pb::RegionServerStartupResponse> {
        self.call_wait("RegionServerStartup", &request)
    }

    fn announce(&self, server: &ServerName, info: pb::RegionServerInfo) -> Result<()> {
        self.session.announce(server, &info)
    }

    fn report_interval(&self) -> Option<Duration> {
        Some(self.report_interval)
    }

    fn region_server_report(&self, request: pb::RegionServerReportRequest) {
        *self.reports.latest.lock() = Some(request);
        self.reports.there_is_one.notify_one();
    }

    fn report_region_state_transition(
        &self,
        request: pb::ReportRegionStateTransitionRequest,
    ) -> Result<pb::ReportRegionStateTransitionResponse> {
        let is_split = |transition: &pb::RegionStateTransition| {
            transition.transition_code() == TransitionCode::ReadyToSplit
        };
        // A stop waits for the thread that requests splits.
        let limit = match request.transition.iter().any(is_split) {
            true => self.rpc_timeout.min(SPLIT_TIMEOUT),
            false => self.rpc_timeout,
        };
        let call = self.call_within("ReportRegionStateTransition", &request, limit);
        self.runtime.block_on(call).map_err(|error| hbase_error("ReportRegionStateTransition", &error))
    }

    fn report_procedure_done(&self, request: pb::ReportProcedureDoneRequest) -> Result<()> {
        self.call_wait::<pb::ReportProcedureDoneResponse>("ReportProcedureDone", &request).map(drop)
    }

    fn last_flushed_sequence_id(&self, region: &[u8]) -> Result<pb::GetLastFlushedSequenceIdResponse> {
        let region_name = region.to_vec().into();
        self.call_wait("GetLastFlushedSequenceId", &pb::GetLastFlushedSequenceIdRequest { region_name })
    }

    fn report_fatal_error(&self, request: pb::ReportRsFatalErrorRequest) {
        let call =
            self.call_within::<pb::ReportRsFatalErrorResponse>("ReportRSFatalError", &request, FATAL_TIMEOUT);
        if let Err(error) = self.runtime.block_on(call) {
            tracing::warn!(%error, "the fatal error could not be reported to the master");
        }
    }

    fn cluster_view(&self) -> Arc<ClusterView> {
        self.session.view()
    }
}

#[cfg(test)]
mod tests;
