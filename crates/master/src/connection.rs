//! [`EmbeddedConnection`]: the connection of the RegionServer of this process to the master.
//!
//! The RegionServer is created before the master, since the master opens regions in it. So the
//! connection is created before both, and [`EmbeddedConnection::connect`] gives it the master. The
//! master opens and closes regions in the RegionServer directly and sends it no procedures, so
//! reports of either are rejected. It reads the server's load when a client requests the cluster's
//! status, so it needs no heartbeats.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use evenkeel_common::{ErrorKind, HBaseError, RegionInfo, Result, ServerName};
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::region_state_transition::TransitionCode;
use evenkeel_regionserver::master_connection::{ClusterView, HOSTNAME_SEEN_BY_MASTER, MasterConnection};
use parking_lot::RwLock;

use crate::Master;

/// The sequence id that stands for "unknown" (`HConstants.NO_SEQNUM`).
const UNKNOWN: i64 = -1;
/// The same as an unsigned number.
const NO_SEQNUM: u64 = u64::MAX;
/// Splits that a RegionServer asks for have no nonce.
const NO_NONCE: (u64, u64) = (0, 0);
/// With this number of waiting procedures of a table, no further split of it is accepted.
const WAITING_SPLITS_MAX: usize = 8;

/// See the module's documentation.
pub struct EmbeddedConnection {
    view: RwLock<Arc<ClusterView>>,
    master: OnceLock<Weak<Master>>,
}

impl EmbeddedConnection {
    /// Creates a connection without a master, in a cluster that stays as `view` describes it, but
    /// for the replicas of hbase:meta.
    pub fn new(view: ClusterView) -> Arc<Self> {
        Arc::new(Self { view: RwLock::new(Arc::new(view)), master: OnceLock::new() })
    }

    /// Sets the secondary replicas of hbase:meta that `server` has open.
    pub(crate) fn set_meta_replicas(&self, server: &ServerName, open: &BTreeSet<i32>) {
        let mut view = self.view.write();
        let replica = |id: &i32| (RegionInfo::meta().replica(*id), Some(server.clone()), UNKNOWN);
        let mut meta = view.meta.clone();
        meta.retain(|(region, ..)| region.is_primary());
        meta.extend(open.iter().map(replica));
        *view = Arc::new(ClusterView { meta, ..ClusterView::clone(&view) });
    }

    /// Sets the master. Only the first call has an effect.
    pub fn connect(&self, master: &Arc<Master>) {
        drop(self.master.set(Arc::downgrade(master)));
    }

    fn master(&self) -> Result<Arc<Master>> {
        let master = self.master.get().and_then(Weak::upgrade);
        master.ok_or_else(|| HBaseError::new(ErrorKind::ServerNotRunningYet, "Server is not running yet"))
    }
}

impl MasterConnection for EmbeddedConnection {
    fn region_server_startup(
        &self,
        request: pb::RegionServerStartupRequest,
    ) -> Result<pb::RegionServerStartupResponse> {
        let master = self.master()?;
        let seen = request.use_this_hostname_instead.unwrap_or_else(|| master.parts.server.host.clone());
        let entry = |name: &str, value| pb::NameStringPair { name: name.to_owned(), value };
        let root = master.root().display().to_string();
        let map_entries = vec![entry("hbase.rootdir", root), entry(HOSTNAME_SEEN_BY_MASTER, seen)];
        Ok(pb::RegionServerStartupResponse { map_entries })
    }

    fn announce(&self, server: &ServerName, info: pb::RegionServerInfo) -> Result<()> {
        let (port, version) = (info.info_port(), info.version_info.unwrap_or_default());
        let added = self.master()?.parts.znodes.add_region_server(server, port, version);
        added.map_err(|error| HBaseError::io(error.to_string()))
    }

    fn report_interval(&self) -> Option<Duration> {
        None
    }

    fn region_server_report(&self, _request: pb::RegionServerReportRequest) {}

    fn report_region_state_transition(
        &self,
        request: pb::ReportRegionStateTransitionRequest,
    ) -> Result<pb::ReportRegionStateTransitionResponse> {
        let master = self.master()?;
        let outcome = request.transition.iter().try_for_each(|transition| accept(&master, transition));
        let error_message = outcome.err().map(|error| error.message().to_owned());
        Ok(pb::ReportRegionStateTransitionResponse { error_message })
    }

    fn report_procedure_done(&self, _request: pb::ReportProcedureDoneRequest) -> Result<()> {
        Err(HBaseError::do_not_retry("the embedded master sends no remote procedures"))
    }

    fn last_flushed_sequence_id(&self, _region: &[u8]) -> Result<pb::GetLastFlushedSequenceIdResponse> {
        Ok(pb::GetLastFlushedSequenceIdResponse {
            last_flushed_sequence_id: NO_SEQNUM,
            store_last_flushed_sequence_id: Vec::new(),
        })
    }

    fn report_fatal_error(&self, request: pb::ReportRsFatalErrorRequest) {
        tracing::error!(error = request.error_message, "the RegionServer reported a fatal error");
    }

    fn cluster_view(&self) -> Arc<ClusterView> {
        Arc::clone(&self.view.read())
    }
}

/// Starts what a transition requests. Only a split is ever requested; see the module's
/// documentation.
fn accept(master: &Arc<Master>, transition: &pb::RegionStateTransition) -> Result<()> {
    match (transition.transition_code(), &*transition.region_info) {
        (TransitionCode::ReadyToSplit, [parent, _, upper]) => {
            let (parent, upper) = (RegionInfo::try_from(parent)?, RegionInfo::try_from(upper)?);
            // Splits of many regions would fill the table's queue, and users' changes of the table
            // would wait behind them.
            let waiting = master.procedures.waiting_of(parent.table());
            if waiting >= WAITING_SPLITS_MAX {
                return Err(HBaseError::io(format!(
                    "{waiting} procedures of table {} are waiting",
                    parent.table()
                )));
            }
            let row = bytes::Bytes::copy_from_slice(upper.start_key());
            master.split_region(parent.encoded_name(), Some(row), NO_NONCE).map(drop)
        }
        (TransitionCode::ReadyToSplit, _) => {
            Err(HBaseError::do_not_retry("READY_TO_SPLIT names a parent and two daughters"))
        }
        (code, _) => {
            let message =
                format!("{} is unexpected: the master opens and closes regions itself", code.as_str_name());
            Err(HBaseError::do_not_retry(message))
        }
    }
}
