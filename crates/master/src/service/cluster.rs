//! The cluster and its servers: status, dead and decommissioned servers, peers, stop.

use std::sync::Arc;

use evenkeel_common::Result;
use evenkeel_protocol::pb;

use super::{Method, methods};
use crate::Master;

pub(super) const METHODS: &[Method<Master>] = methods![
    "ClearDeadServers" => clear_dead_servers,
    "GetClusterStatus" => status,
    "IsMasterInMaintenanceMode" => is_in_maintenance_mode,
    "IsMasterRunning" => is_running,
    "ListDecommissionedRegionServers" => |_: &Arc<Master>, _: pb::ListDecommissionedRegionServersRequest| {
        Ok(pb::ListDecommissionedRegionServersResponse::default())
    },
    "ListReplicationPeers" => |_: &Arc<Master>, _: pb::ListReplicationPeersRequest| {
        Ok(pb::ListReplicationPeersResponse::default())
    },
    "Shutdown" => shut_down,
    "StopMaster" => stop_master,
    "getSecurityCapabilities" => |_: &Arc<Master>, _: pb::SecurityCapabilitiesRequest| {
        Ok(pb::SecurityCapabilitiesResponse::default())
    },
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

fn stop_master(master: &Arc<Master>, _: pb::StopMasterRequest) -> Result<pb::StopMasterResponse> {
    (master.parts.stop)("a client asked the master to stop");
    Ok(pb::StopMasterResponse {})
}

fn shut_down(master: &Arc<Master>, _: pb::ShutdownRequest) -> Result<pb::ShutdownResponse> {
    (master.parts.stop)("a client asked the cluster to shut down");
    Ok(pb::ShutdownResponse {})
}
