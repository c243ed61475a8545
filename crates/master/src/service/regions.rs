//! Regions: split, merge, truncate, assign; last major compactions.

use std::sync::Arc;

use evenkeel_common::{ErrorKind, HBaseError, RegionInfo, Result};
use evenkeel_protocol::pb;
use evenkeel_region::region::Region;
use evenkeel_rpc::{DetachedResponder, Respond};
use prost::Message;

use super::{Method, encoded, illegal, methods, name_of};
use crate::Master;

pub(super) const METHODS: &[Method<Master>] = methods![
    replies "AssignRegion" => assign,
    "MergeTableRegions" => merge,
    replies "MoveRegion" => move_region,
    "SplitRegion" => split,
    "TruncateRegion" => truncate,
    replies "UnassignRegion" => unassign,
    "getLastMajorCompactionTimestamp" => last_major_compaction_of_table,
    "getLastMajorCompactionTimestampForRegion" => last_major_compaction_of_region,
];

fn split(master: &Arc<Master>, q: pb::SplitTableRegionRequest) -> Result<pb::SplitTableRegionResponse> {
    let region = RegionInfo::try_from(&q.region_info).map_err(illegal)?;
    let nonce = (q.nonce_group(), q.nonce());
    let id = master.split_region(region.encoded_name(), q.split_row.clone(), nonce)?;
    Ok(pb::SplitTableRegionResponse { proc_id: Some(id) })
}

fn merge(master: &Arc<Master>, q: pb::MergeTableRegionsRequest) -> Result<pb::MergeTableRegionsResponse> {
    let regions = q.region.iter().map(encoded).collect::<Result<_>>()?;
    let id = master.merge_regions(regions, q.forcible(), (q.nonce_group(), q.nonce()))?;
    Ok(pb::MergeTableRegionsResponse { proc_id: Some(id) })
}

fn truncate(master: &Arc<Master>, q: pb::TruncateRegionRequest) -> Result<pb::TruncateRegionResponse> {
    let region = RegionInfo::try_from(&q.region_info).map_err(illegal)?;
    let id = master.truncate_region(region, (q.nonce_group(), q.nonce()))?;
    Ok(pb::TruncateRegionResponse { proc_id: Some(id) })
}

/// There is no other server to move the region to, so it is closed and opened here.
fn move_region(master: &Arc<Master>, q: pb::MoveRegionRequest, reply: DetachedResponder) {
    transit(master, &q.region, reply, pb::MoveRegionResponse {}, Master::reopen_region);
}

/// A region that is served cannot be assigned, as in HBase.
fn assign(master: &Arc<Master>, q: pb::AssignRegionRequest, reply: DetachedResponder) {
    let served = encoded(&q.region).ok().and_then(|name| master.parts.regionserver.regions().find(&name));
    if let Some(region) = served {
        let message = format!("Unexpected state for {}: state=OPEN", region.info().encoded_name());
        return reply.send_error(&HBaseError::new(ErrorKind::DoNotRetryRegion, message));
    }
    transit(master, &q.region, reply, pb::AssignRegionResponse {}, Master::assign_region);
}

fn unassign(master: &Arc<Master>, q: pb::UnassignRegionRequest, reply: DetachedResponder) {
    transit(master, &q.region, reply, pb::UnassignRegionResponse {}, Master::unassign_region);
}

/// Changes a region in a procedure and replies with its outcome.
fn transit<M: Message + 'static>(
    master: &Arc<Master>,
    region: &pb::RegionSpecifier,
    reply: DetachedResponder,
    response: M,
    change: fn(&Master, &str) -> Result<()>,
) {
    let submitted = encoded(region).and_then(|region| master.submit_transit(&region, change));
    match submitted {
        Ok(id) => {
            master.procedures().on_outcome(id, move |outcome| reply.send_result(outcome.map(|_| response)));
        }
        Err(error) => reply.send_error(&error),
    }
}

fn last_major_compaction_of_table(
    master: &Arc<Master>,
    q: pb::MajorCompactionTimestampRequest,
) -> Result<pb::MajorCompactionTimestampResponse> {
    let regions = master.parts.regionserver.regions().of_table(&name_of(&q.table_name)?);
    Ok(last_major_compaction(regions.iter()))
}

fn last_major_compaction_of_region(
    master: &Arc<Master>,
    q: pb::MajorCompactionTimestampForRegionRequest,
) -> Result<pb::MajorCompactionTimestampResponse> {
    let region = master.parts.regionserver.regions().find(&encoded(&q.region)?);
    Ok(last_major_compaction(region.iter()))
}

/// Returns the time of the latest major compaction of the regions.
fn last_major_compaction<'a>(
    regions: impl Iterator<Item = &'a Arc<Region>>,
) -> pb::MajorCompactionTimestampResponse {
    let compaction_timestamp = regions.map(|region| region.last_major_compaction_ms()).max().unwrap_or(0);
    pb::MajorCompactionTimestampResponse { compaction_timestamp }
}
