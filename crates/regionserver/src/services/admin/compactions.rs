//! Compactions: requests, switches, queues.

use std::sync::Arc;

use evenkeel_common::Result;
use evenkeel_protocol::pb;

use crate::services::method_table::Method;
use crate::{RegionServer, methods};

pub(super) const METHODS: &[Method<RegionServer>] = methods![
    "ClearCompactionQueues" => clear_queues,
    "CompactRegion" => compact,
    "CompactionSwitch" => switch,
];

fn compact(
    server: &Arc<RegionServer>,
    request: pb::CompactRegionRequest,
) -> Result<pb::CompactRegionResponse> {
    let region = server.region(&request.region)?;
    server.background.request_compaction(&region, request.family.as_deref(), request.major());
    Ok(pb::CompactRegionResponse {})
}

fn switch(
    server: &Arc<RegionServer>,
    request: pb::CompactionSwitchRequest,
) -> Result<pb::CompactionSwitchResponse> {
    let prev_state = server.background.switch_compactions(request.enabled);
    Ok(pb::CompactionSwitchResponse { prev_state })
}

fn clear_queues(
    server: &Arc<RegionServer>,
    _: pb::ClearCompactionQueuesRequest,
) -> Result<pb::ClearCompactionQueuesResponse> {
    server.background.clear_compactions();
    Ok(pb::ClearCompactionQueuesResponse {})
}
