//! Regions: split, merge, assign; last major compactions.

use std::sync::Arc;

use evenkeel_common::{RegionInfo, Result};
use evenkeel_protocol::pb;
use evenkeel_region::region::Region;

use super::{Method, encoded, illegal, methods, name_of};
use crate::Master;

pub(super) const METHODS: &[Method<Master>] = methods![
    waits "AssignRegion" => assign,
    "MergeTableRegions" => merge,
    waits "MoveRegion" => move_region,
    "SplitRegion" => split,
    waits "UnassignRegion" => unassign,
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

/// There is no other server to move the region to, so it is closed and opened here.
fn move_region(master: &Arc<Master>, q: pb::MoveRegionRequest) -> Result<pb::MoveRegionResponse> {
    master.reopen_region(&encoded(&q.region)?).map(|()| pb::MoveRegionResponse {})
}

fn assign(master: &Arc<Master>, q: pb::AssignRegionRequest) -> Result<pb::AssignRegionResponse> {
    master.assign_region(&encoded(&q.region)?).map(|()| pb::AssignRegionResponse {})
}

fn unassign(master: &Arc<Master>, q: pb::UnassignRegionRequest) -> Result<pb::UnassignRegionResponse> {
    master.unassign_region(&encoded(&q.region)?).map(|()| pb::UnassignRegionResponse {})
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
