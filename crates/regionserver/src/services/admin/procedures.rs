//! Calls by which a master opens and closes regions and runs procedures. The process around the
//! server implements them ([`ServerHooks`](crate::ServerHooks)).

use std::sync::Arc;

use evenkeel_common::Result;
use evenkeel_protocol::pb;

use crate::services::method_table::Method;
use crate::{RegionServer, methods};

pub(super) const METHODS: &[Method<RegionServer>] = methods![
    "CloseRegion" => close,
    "ExecuteProcedures" => execute,
];

fn close(server: &Arc<RegionServer>, request: pb::CloseRegionRequest) -> Result<pb::CloseRegionResponse> {
    server.hooks.close_region(request)?;
    Ok(pb::CloseRegionResponse { closed: true })
}

fn execute(
    server: &Arc<RegionServer>,
    request: pb::ExecuteProceduresRequest,
) -> Result<pb::ExecuteProceduresResponse> {
    server.hooks.execute_procedures(request)?;
    Ok(pb::ExecuteProceduresResponse {})
}
