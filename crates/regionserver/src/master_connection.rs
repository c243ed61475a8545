//! [`MasterConnection`]: what a RegionServer tells its master and asks of it, and nothing else does
//! it know of a master.
//!
//! The calls are those of HBase's `RegionServerStatusService`, with its messages, and the few facts
//! that a RegionServer reads from ZooKeeper. The embedded master implements them as calls within
//! the process (`evenkeel_master::EmbeddedConnection`). An implementation for a cluster sends the
//! messages as they are to the active master and keeps a ZooKeeper session; its callers here stay
//! the same.
//!
//! ```text
//! start   report_for_duty -> region_server_startup -> announce    then the server is online
//! serving region_server_report                                    every report_interval
//!         report_region_state_transition, report_procedure_done   outcomes of ExecuteProcedures
//! abort   report_fatal_error, once, best effort
//! ```
//!
//! **Waiting.** Calls that return a [`Result`] may wait for the network, so they are made on
//! background threads and never on a connection's thread. [`MasterConnection::cluster_view`] and
//! [`MasterConnection::region_server_report`] return at once.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_common::{HBaseError, RegionInfo, Result, ServerName};
use evenkeel_protocol::pb;

use crate::{RegionServer, version_info};

/// The host name by which the master calls this server, in the answer to `RegionServerStartup`.
pub const SEEN_HOSTNAME: &str = "hbase.regionserver.hostname.seen.by.master";

/// Where things are in the cluster, as this server knows.
#[derive(Clone, Debug, Default)]
pub struct ClusterView {
    /// The cluster's id: the znode `/hbase/hbaseid`.
    pub cluster_id: String,
    /// The active master, once there is one: the znode `/hbase/master`.
    pub active_master: Option<ServerName>,
    /// Masters that stand by: the znodes below `/hbase/backup-masters`.
    pub backup_masters: Vec<ServerName>,
    /// Live RegionServers, to which clients are sent next: `GetLiveRegionServers`.
    pub region_servers: Vec<ServerName>,
    /// The regions of hbase:meta, where each is, and its open sequence number: the znode
    /// `/hbase/meta-region-server`.
    pub meta: Vec<(RegionInfo, Option<ServerName>, i64)>,
}

/// See the module's documentation.
pub trait MasterConnection: Send + Sync {
    /// `RegionServerStartup`: registers this server. The answer has settings that override this
    /// server's own, and [`SEEN_HOSTNAME`].
    ///
    /// # Errors
    /// `ServerNotRunningYetException` while the master starts, and what the network says: the
    /// caller tries again. `ClockOutOfSyncException`, `YouAreDeadException`: this server cannot
    /// join.
    fn region_server_startup(
        &self,
        request: pb::RegionServerStartupRequest,
    ) -> Result<pb::RegionServerStartupResponse>;

    /// Makes the ephemeral znode `/hbase/rs/<server>`, by which a master sees that this server
    /// lives. After [`MasterConnection::region_server_startup`]: a server with a znode that is not
    /// registered is not used.
    ///
    /// # Errors
    /// What ZooKeeper says.
    fn announce(&self, server: &ServerName, info: pb::RegionServerInfo) -> Result<()>;

    /// How often the master wants [`MasterConnection::region_server_report`]
    /// (`hbase.regionserver.msginterval`); `None` for one that reads this server's load itself.
    fn report_interval(&self) -> Option<Duration>;

    /// `RegionServerReport`: the heartbeat, with the load of every online region. Returns at once:
    /// an implementation over RPC sends from a thread of its own, where the latest report replaces
    /// one not yet sent. After an error it finds the master again and waits for the next report;
    /// after `YouAreDeadException` it stops the process.
    fn region_server_report(&self, request: pb::RegionServerReportRequest);

    /// `ReportRegionStateTransition`: a region was opened, could not be opened or was closed, or
    /// this server wants it to be split (`READY_TO_SPLIT` with the parent and both daughters). An
    /// `error_message` in the answer means that the master does not accept it.
    ///
    /// # Errors
    /// `PleaseHoldException`, `ServerNotRunningYetException`, and what the network says: the caller
    /// reports again until the master has answered.
    fn report_region_state_transition(
        &self,
        request: pb::ReportRegionStateTransitionRequest,
    ) -> Result<pb::ReportRegionStateTransitionResponse>;

    /// `ReportProcedureDone`: outcomes of remote procedures that the master sent by
    /// `ExecuteProcedures`.
    ///
    /// # Errors
    /// As [`MasterConnection::report_region_state_transition`].
    fn report_procedure_done(&self, request: pb::ReportProcedureDoneRequest) -> Result<()>;

    /// `GetLastFlushedSequenceId`: up to which sequence id the edits of a region are in files, by
    /// its encoded name. The splitter of a WAL leaves out edits up to it. `NO_SEQNUM` (all bits
    /// set) when it is unknown.
    ///
    /// # Errors
    /// What the network says: the splitter takes it as unknown.
    fn last_flushed_sequence_id(&self, region: &[u8]) -> Result<pb::GetLastFlushedSequenceIdResponse>;

    /// `ReportRSFatalError`: this server is about to end, and why. Best effort: it does not try
    /// again.
    fn report_fatal_error(&self, request: pb::ReportRsFatalErrorRequest);

    /// Where things are in the cluster now. Cheap: a reference to what is known already.
    fn cluster_view(&self) -> Arc<ClusterView>;
}

/// Registers a server with its master, and returns the settings that the master has for it.
///
/// # Errors
/// As [`MasterConnection::region_server_startup`]; also when the master knows this server by
/// another host name than its own, at which HBase's RegionServer ends, too.
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
    let seen = response.map_entries.iter().find(|entry| entry.name == SEEN_HOSTNAME);
    if let Some(seen) = seen.filter(|seen| seen.value != name.host) {
        let message = format!("the master knows this server as {}, not as {}", seen.value, name.host);
        return Err(HBaseError::do_not_retry(message));
    }
    Ok(response.map_entries)
}

impl RegionServer {
    /// Registers this server with its master and makes its znode (`HRegionServer.reportForDuty`).
    /// The RPC server listens already.
    ///
    /// # Errors
    /// As [`register`] and [`RegionServer::announce`].
    pub fn report_for_duty(&self) -> Result<()> {
        register(&*self.master, &self.name, self.clock.now_ms())?;
        self.announce()
    }

    /// Makes the znode of a registered server.
    ///
    /// # Errors
    /// As [`MasterConnection::announce`].
    pub fn announce(&self) -> Result<()> {
        let info_port = Some(i32::from(self.info_port));
        let info = pb::RegionServerInfo { info_port, version_info: Some(version_info(&self.config.version)) };
        self.master.announce(&self.name, info)
    }

    /// Tells the master that this server ends, and why. The caller ends it.
    pub fn report_fatal_error(&self, reason: &str) {
        let (server, error_message) = ((&self.name).into(), reason.to_owned());
        self.master.report_fatal_error(pb::ReportRsFatalErrorRequest { server, error_message });
    }

    /// Sends the heartbeat for the time from `since_ms` to `now_ms`, in which `requests` came in.
    pub(crate) fn report_load(&self, since_ms: i64, now_ms: i64, requests: u64) {
        let seconds = now_ms.saturating_sub(since_ms).unsigned_abs().div_ceil(1000).max(1);
        let load = Some(self.server_load(since_ms, now_ms, requests / seconds));
        self.master.region_server_report(pb::RegionServerReportRequest { server: (&self.name).into(), load });
    }

    /// Where the rest of the cluster is.
    pub fn cluster_view(&self) -> Arc<ClusterView> {
        self.master.cluster_view()
    }
}
