//! The cluster and its servers: status, dead and decommissioned servers, stop.

use std::sync::Arc;

use evenkeel_common::{HBaseError, Result};
use evenkeel_protocol::pb;

use super::{Method, methods};
use crate::Master;

pub(super) const METHODS: &[Method<Master>] = methods![
    "ClearDeadServers" => clear_dead_servers,
    "DecommissionRegionServers" => decommission,
    "FlushMasterStore" => |_: &Arc<Master>, _: pb::FlushMasterStoreRequest| {
        // This master has no store of its own.
        Ok(pb::FlushMasterStoreResponse {})
    },
    "GetClusterStatus" => status,
    "IsMasterInMaintenanceMode" => is_in_maintenance_mode,
    "IsMasterRunning" => is_running,
    "ListDecommissionedRegionServers" => |_: &Arc<Master>, _: pb::ListDecommissionedRegionServersRequest| {
        Ok(pb::ListDecommissionedRegionServersResponse::default())
    },
    "RecommissionRegionServer" => |_: &Arc<Master>, _: pb::RecommissionRegionServerRequest| {
        Ok(pb::RecommissionRegionServerResponse {})
    },
    "Shutdown" => shut_down,
    "StopMaster" => stop_master,
    "getSecurityCapabilities" => security_capabilities,
];

fn status(master: &Arc<Master>, q: pb::GetClusterStatusRequest) -> Result<pb::GetClusterStatusResponse> {
    Ok(pb::GetClusterStatusResponse { cluster_status: master.cluster_status(&q.options)? })
}

fn is_running(_: &Arc<Master>, _: pb::IsMasterRunningRequest) -> Result<pb::IsMasterRunningResponse> {
    Ok(pb::IsMasterRunningResponse { is_master_running: true })
}

fn is_in_maintenance_mode(
    _: &Arc<Master>,
    _: pb::IsInMaintenanceModeRequest,
) -> Result<pb::IsInMaintenanceModeResponse> {
    Ok(pb::IsInMaintenanceModeResponse { in_maintenance_mode: false })
}

fn clear_dead_servers(
    _: &Arc<Master>,
    q: pb::ClearDeadServersRequest,
) -> Result<pb::ClearDeadServersResponse> {
    Ok(pb::ClearDeadServersResponse { server_name: q.server_name })
}

/// There is no other server that could take the regions.
fn decommission(
    _: &Arc<Master>,
    q: pb::DecommissionRegionServersRequest,
) -> Result<pb::DecommissionRegionServersResponse> {
    if q.server_name.is_empty() {
        return Ok(pb::DecommissionRegionServersResponse {});
    }
    Err(HBaseError::do_not_retry("the only server of a standalone master cannot be decommissioned"))
}

fn security_capabilities(
    _: &Arc<Master>,
    _: pb::SecurityCapabilitiesRequest,
) -> Result<pb::SecurityCapabilitiesResponse> {
    let capabilities = vec![pb::security_capabilities_response::Capability::SimpleAuthentication.into()];
    Ok(pb::SecurityCapabilitiesResponse { capabilities })
}

fn stop_master(master: &Arc<Master>, _: pb::StopMasterRequest) -> Result<pb::StopMasterResponse> {
    (master.parts.stop)("a client asked the master to stop");
    Ok(pb::StopMasterResponse {})
}

fn shut_down(master: &Arc<Master>, _: pb::ShutdownRequest) -> Result<pb::ShutdownResponse> {
    (master.parts.stop)("a client asked the cluster to shut down");
    Ok(pb::ShutdownResponse {})
}
