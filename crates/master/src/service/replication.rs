//! Replication peers. There are none, and none can be added: a call that names one gets HBase's
//! error for a peer that does not exist.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use evenkeel_common::{ErrorKind, HBaseError, Result};
use evenkeel_protocol::pb;

use super::{Method, methods};
use crate::Master;

pub(super) const METHODS: &[Method<Master>] = methods![
    "AddReplicationPeer" => add,
    "DisableReplicationPeer" => |_: &Arc<Master>, q: pb::DisableReplicationPeerRequest| {
        absent::<pb::DisableReplicationPeerResponse>(&q.peer_id)
    },
    "EnableReplicationPeer" => |_: &Arc<Master>, q: pb::EnableReplicationPeerRequest| {
        absent::<pb::EnableReplicationPeerResponse>(&q.peer_id)
    },
    "GetReplicationPeerConfig" => |_: &Arc<Master>, q: pb::GetReplicationPeerConfigRequest| {
        absent::<pb::GetReplicationPeerConfigResponse>(&q.peer_id)
    },
    "GetReplicationPeerModificationProcedures" => modification_procedures,
    "IsReplicationPeerEnabled" => is_enabled,
    "IsReplicationPeerModificationEnabled" => is_modification_enabled,
    "ListReplicationPeers" => |_: &Arc<Master>, _: pb::ListReplicationPeersRequest| {
        Ok(pb::ListReplicationPeersResponse::default())
    },
    "RemoveReplicationPeer" => |_: &Arc<Master>, q: pb::RemoveReplicationPeerRequest| {
        absent::<pb::RemoveReplicationPeerResponse>(&q.peer_id)
    },
    "ReplicationPeerModificationSwitch" => switch_modification,
    "UpdateReplicationPeerConfig" => update,
];

fn does_not_exist(id: &str) -> String {
    format!("Replication peer {id} does not exist")
}

fn absent<M>(id: &str) -> Result<M> {
    Err(HBaseError::new(ErrorKind::ReplicationPeerNotFound, does_not_exist(id)))
}

fn add(_: &Arc<Master>, _: pb::AddReplicationPeerRequest) -> Result<pb::AddReplicationPeerResponse> {
    Err(HBaseError::do_not_retry("this server does not replicate"))
}

fn update(
    _: &Arc<Master>,
    q: pb::UpdateReplicationPeerConfigRequest,
) -> Result<pb::UpdateReplicationPeerConfigResponse> {
    Err(HBaseError::do_not_retry(does_not_exist(&q.peer_id)))
}

/// HBase answers with an `IOException` here.
fn is_enabled(
    _: &Arc<Master>,
    q: pb::GetReplicationPeerStateRequest,
) -> Result<pb::GetReplicationPeerStateResponse> {
    Err(HBaseError::io(does_not_exist(&q.peer_id)))
}

fn switch_modification(
    master: &Arc<Master>,
    q: pb::ReplicationPeerModificationSwitchRequest,
) -> Result<pb::ReplicationPeerModificationSwitchResponse> {
    let previous_value = master.switches.peer_modification.swap(q.on, Ordering::Relaxed);
    Ok(pb::ReplicationPeerModificationSwitchResponse { previous_value })
}

fn is_modification_enabled(
    master: &Arc<Master>,
    _: pb::IsReplicationPeerModificationEnabledRequest,
) -> Result<pb::IsReplicationPeerModificationEnabledResponse> {
    let enabled = master.switches.peer_modification.load(Ordering::Relaxed);
    Ok(pb::IsReplicationPeerModificationEnabledResponse { enabled })
}

fn modification_procedures(
    _: &Arc<Master>,
    _: pb::GetReplicationPeerModificationProceduresRequest,
) -> Result<pb::GetReplicationPeerModificationProceduresResponse> {
    Ok(pb::GetReplicationPeerModificationProceduresResponse::default())
}
