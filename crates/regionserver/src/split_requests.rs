//! Splits that nobody requests: a region that is large or busy, by the table's policy
//! ([`evenkeel_region::region::split_policy`]).
//!
//! ```text
//! flush, compaction ends     RegionServer::due_split          the policy, and the row
//!                            Background queues the region     a region is queued once
//! thread "split"             RegionServer::request_split      READY_TO_SPLIT to the master
//! ```
//! If the master accepts, the same region is not requested again for [`REQUEST_PAUSE`], since a
//! split takes a while. If it rejects the request, or cannot be reached, the region's next flush or
//! compaction requests it again, as in HBase.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use evenkeel_common::{HBaseError, RegionInfo, Result};
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::region_state_transition::TransitionCode;
use evenkeel_region::region::Region;

use crate::RegionServer;

/// The time from a request to the next one for the same region.
pub(crate) const REQUEST_PAUSE: Duration = Duration::from_secs(60);

impl RegionServer {
    /// Returns the row at which a region should be split now; `None` if it should not. A region
    /// whose files block flushes must be compacted first, unless
    /// `hbase.hregion.split.ignore.blocking.enabled` is set. A server that stops splits none, nor
    /// does one with `hbase.regionserver.regionSplitLimit` regions.
    pub(crate) fn due_split(&self, region: &Region) -> Option<Bytes> {
        let is_blocked = region.compaction_pressure() >= 1.0 && !region.is_split_before_compaction();
        if is_blocked || self.regions.len() >= self.config.regions_split_max || self.check_open().is_err() {
            return None;
        }
        region.check_split(self.regions.count_of(region.info().table()))
    }

    /// Requests a split from the master. Blocks on the network.
    ///
    /// # Errors
    /// Errors of the connection; `IOException` with the master's reason if it rejects the split.
    pub(crate) fn request_split(&self, region: &Arc<Region>, row: &Bytes) -> Result<()> {
        let info = region.info();
        let id = self.clock.now_ms();
        let daughter = |start: &Bytes, end: &Bytes| {
            RegionInfo::new(info.table().clone(), start.clone(), end.clone(), id)
        };
        let regions = [info.clone(), daughter(info.start_key(), row), daughter(row, info.end_key())];
        region.store_metrics().split_requested(info.table());
        let reply = self.master.report_region_state_transition(pb::ReportRegionStateTransitionRequest {
            server: (&self.name).into(),
            transition: vec![pb::RegionStateTransition {
                transition_code: TransitionCode::ReadyToSplit.into(),
                region_info: regions.iter().map(Into::into).collect(),
                ..Default::default()
            }],
        })?;
        reply.error_message.map_or(Ok(()), |reason| Err(HBaseError::io(reason)))
    }
}
