//! [`MasterConnection`]: the interface between a RegionServer and its master. A RegionServer has no
//! other access to a master.
//!
//! The calls are those of HBase's `RegionServerStatusService`, with its messages, and the few facts
//! that a RegionServer reads from ZooKeeper. The embedded master implements them as calls within
//! the process (`evenkeel_master::EmbeddedConnection`). `evenkeel_cluster` sends the messages
//! unchanged to the active master and keeps a ZooKeeper session.
//!
//! ```text
//! start   report_for_duty -> region_server_startup -> announce    then the server is online
//! serving region_server_report                                    every report_interval
//!         report_region_state_transition, report_procedure_done   outcomes of ExecuteProcedures
//! abort   report_fatal_error, once, best effort
//! ```
//!
//! **Blocking.** Calls that return a [`Result`] may wait for the network, so they are made on
//! background threads, never on a connection's thread. [`MasterConnection::cluster_view`] and
//! [`MasterConnection::region_server_report`] return immediately.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_common::{HBaseError, RegionInfo, Result, ServerName};
use evenkeel_protocol::pb;

use crate::{RegionServer, version_info};

/// The setting in the reply to `RegionServerStartup` with the master's host name for this server.
pub const HOSTNAME_SEEN_BY_MASTER: &str = "hbase.regionserver.hostname.seen.by.master";

/// The members of the cluster, as this server last read them.
#[derive(Clone, Debug, Default)]
pub struct ClusterView {
    /// The cluster's id: the znode `/hbase/hbaseid`.
    pub cluster_id: String,
    /// The active master, if there is one: the znode `/hbase/master`.
    pub active_master: Option<ServerName>,
    /// The backup masters: the znodes below `/hbase/backup-masters`.
    pub backup_masters: Vec<ServerName>,
    /// Live RegionServers, which clients may contact next: `GetLiveRegionServers`.
    pub region_servers: Vec<ServerName>,
    /// The replicas of hbase:meta with their servers and open sequence numbers, the default replica
    /// first: the znodes `/hbase/meta-region-server`, `/hbase/meta-region-server-1` and so on.
    pub meta: Vec<(RegionInfo, Option<ServerName>, i64)>,
}

/// See the module's documentation.
pub trait MasterConnection: Send + Sync {
    /// `RegionServerStartup`: registers this server. The reply has settings that override those of
    /// this server, and [`HOSTNAME_SEEN_BY_MASTER`].
    ///
    /// # Errors
    /// `ServerNotRunningYetException` while the master starts, and network errors: the caller
    /// retries. `ClockOutOfSyncException`, `YouAreDeadException`: this server cannot join.
    fn region_server_startup(
        &self,
        request: pb::RegionServerStartupRequest,
    ) -> Result<pb::RegionServerStartupResponse>;

    /// Creates the ephemeral znode `/hbase/rs/<server>`, which shows masters that this server is
    /// alive. Called after [`MasterConnection::region_server_startup`]: masters ignore a server
    /// with a znode that is not registered.
    ///
    /// # Errors
    /// Errors of ZooKeeper.
    fn announce(&self, server: &ServerName, info: pb::RegionServerInfo) -> Result<()>;

    /// Returns the interval of [`MasterConnection::region_server_report`]
    /// (`hbase.regionserver.msginterval`); `None` if the master reads this server's load directly.
    fn report_interval(&self) -> Option<Duration>;

    /// `RegionServerReport`: the heartbeat, with the load of every online region. Returns
    /// immediately: an implementation over RPC sends from a separate thread, where the latest
    /// report replaces one that is not sent yet. After an error it locates the master again and
    /// waits for the next report. After `YouAreDeadException` it stops the process.
    fn region_server_report(&self, request: pb::RegionServerReportRequest);

    /// `ReportRegionStateTransition`: a region was opened, failed to open or was closed, or this
    /// server requests a split of it (`READY_TO_SPLIT` with the parent and both daughters). An
    /// `error_message` in the reply means that the master rejects the transition.
    ///
    /// # Errors
    /// `PleaseHoldException`, `ServerNotRunningYetException`, and network errors: the caller
    /// retries until the master replies.
    fn report_region_state_transition(
        &self,
        request: pb::ReportRegionStateTransitionRequest,
    ) -> Result<pb::ReportRegionStateTransitionResponse>;

    /// `ReportProcedureDone`: outcomes of remote procedures that the master sent in
    /// `ExecuteProcedures`.
    ///
    /// # Errors
    /// As [`MasterConnection::report_region_state_transition`].
    fn report_procedure_done(&self, request: pb::ReportProcedureDoneRequest) -> Result<()>;

    /// `GetLastFlushedSequenceId`: the sequence id up to which the edits of a region are flushed.
    /// The region is given by its encoded name. The splitter of a WAL skips edits up to this id. It
    /// is `NO_SEQNUM` (all bits set) if unknown.
    ///
    /// # Errors
    /// Network errors: the splitter treats the id as unknown.
    fn last_flushed_sequence_id(&self, region: &[u8]) -> Result<pb::GetLastFlushedSequenceIdResponse>;

    /// `ReportRSFatalError`: this server is about to exit, and why. Best effort: no retries.
    fn report_fatal_error(&self, request: pb::ReportRsFatalErrorRequest);

    /// Returns the current view of the cluster. Cheap: no I/O.
    fn cluster_view(&self) -> Arc<ClusterView>;
}

/// Registers a server with its master, and returns the settings that the master sends.
///
/// # Errors
/// As [`MasterConnection::region_server_startup`]; also if the master's host name for this server
/// differs from its own, at which HBase's RegionServer exits, too.
pub fn register(
    master: &dyn MasterConnection,
    name: &ServerName,
    now_ms: i64,
) -> Result<Vec<pb::NameStringPair>> {
    let response = master.region_server_startup(pb::RegionServerStartupRequest {
        port: u32::from(name.port),
        server_start_code: name.start_code.unsigned_abs(),
        server_current_time: now_ms.unsigned_abs(),
        use_this_hostname_instead: Some(name.host.clone()),
    })?;
    let seen = response.map_entries.iter().find(|entry| entry.name == HOSTNAME_SEEN_BY_MASTER);
    if let Some(seen) = seen.filter(|seen| seen.value != name.host) {
        let message = format!("the master knows this server as {}, not as {}", seen.value, name.host);
        return Err(HBaseError::do_not_retry(message));
    }
    Ok(response.map_entries)
}

/// Creates the znode of a registered server, which reports `version`.
///
/// # Errors
/// As [`MasterConnection::announce`].
pub fn announce(
    master: &dyn MasterConnection,
    name: &ServerName,
    info_port: u16,
    version: &str,
) -> Result<()> {
    let (info_port, version_info) = (Some(i32::from(info_port)), Some(version_info(version)));
    master.announce(name, pb::RegionServerInfo { info_port, version_info })
}

impl RegionServer {
    /// Registers this server with its master and creates its znode (`HRegionServer.reportForDuty`).
    /// The RPC server must be listening already.
    ///
    /// # Errors
    /// As [`register`] and [`announce`].
    pub fn report_for_duty(&self) -> Result<()> {
        register(&*self.master, &self.name, self.clock.now_ms())?;
        announce(&*self.master, &self.name, self.info_port, &self.config.version)
    }

    /// Reports to the master that this server exits, and why. The caller ends the process.
    pub fn report_fatal_error(&self, reason: &str) {
        let (server, error_message) = ((&self.name).into(), reason.to_owned());
        self.master.report_fatal_error(pb::ReportRsFatalErrorRequest { server, error_message });
    }

    /// Sends the heartbeat for the time from `since_ms` to `now_ms`.
    pub(crate) fn report_load(&self, since_ms: i64, now_ms: i64) {
        let load = Some(self.server_load(since_ms, now_ms));
        self.master.region_server_report(pb::RegionServerReportRequest { server: (&self.name).into(), load });
    }

    /// Returns the current view of the cluster.
    pub fn cluster_view(&self) -> Arc<ClusterView> {
        self.master.cluster_view()
    }
}
