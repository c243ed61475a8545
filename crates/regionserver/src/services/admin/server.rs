//! The server itself: its name, settings, WAL, stop.

use std::sync::Arc;

use evenkeel_common::Result;
use evenkeel_protocol::pb;
use evenkeel_rpc::{Call, CallClass, DetachedResponder, Respond};

use crate::services::method_table::Method;
use crate::{RegionServer, methods};

pub(super) const METHODS: &[Method<RegionServer>] = methods![
    "GetServerInfo" => server_info,
    "GetSpaceQuotaSnapshots" => |server: &Arc<RegionServer>, _: pb::GetSpaceQuotaSnapshotsRequest| {
        Ok(server.space_quota_snapshots())
    },
    waits "RollWALWriter" => roll_wal,
    waits "UpdateConfiguration" => update_configuration,
    "UpdateFavoredNodes" => |_: &Arc<RegionServer>, _: pb::UpdateFavoredNodesRequest| {
        Ok(pb::UpdateFavoredNodesResponse { response: Some(0) })
    },
];

/// StopServer is answered before the server stops.
pub(super) static STOP: [Method<RegionServer>; 1] =
    [Method { name: "StopServer", class: CallClass::Priority, answer: stop }];

fn server_info(server: &Arc<RegionServer>, _: pb::GetServerInfoRequest) -> Result<pb::GetServerInfoResponse> {
    let webui_port = (server.info_port > 0).then_some(u32::from(server.info_port));
    Ok(pb::GetServerInfoResponse {
        server_info: pb::ServerInfo { server_name: (&server.name).into(), webui_port },
    })
}

fn roll_wal(server: &Arc<RegionServer>, _: pb::RollWalWriterRequest) -> Result<pb::RollWalWriterResponse> {
    let regions = server.hooks.roll_wal()?;
    Ok(pb::RollWalWriterResponse { region_to_flush: regions.into_iter().map(Into::into).collect() })
}

fn update_configuration(
    server: &Arc<RegionServer>,
    _: pb::UpdateConfigurationRequest,
) -> Result<pb::UpdateConfigurationResponse> {
    server.hooks.update_configuration()?;
    Ok(pb::UpdateConfigurationResponse {})
}

fn stop(server: &Arc<RegionServer>, call: &Call, reply: DetachedResponder) {
    match call.decode::<pb::StopServerRequest>() {
        Err(error) => reply.send_error(&error),
        Ok(request) => {
            reply.send(&pb::StopServerResponse {});
            server.hooks.stop(&request.reason);
        }
    }
}
