//! Quotas.

use std::sync::Arc;

use evenkeel_common::Result;
use evenkeel_protocol::pb;

use super::{Method, methods};
use crate::Master;

pub(super) const METHODS: &[Method<Master>] = methods![
    "GetQuotaStates" => |master: &Arc<Master>, _: pb::GetQuotaStatesRequest| Ok(master.quota_states()),
    "GetSpaceQuotaRegionSizes" => |master: &Arc<Master>, _: pb::GetSpaceQuotaRegionSizesRequest| {
        Ok(master.space_quota_region_sizes())
    },
    "IsRpcThrottleEnabled" => |master: &Arc<Master>, _: pb::IsRpcThrottleEnabledRequest| {
        Ok(pb::IsRpcThrottleEnabledResponse { rpc_throttle_enabled: master.is_rpc_throttle_on() })
    },
    waits "SetQuota" => set_quota,
    waits "SwitchExceedThrottleQuota" => switch_exceed_throttle_quota,
    "SwitchRpcThrottle" => |master: &Arc<Master>, request: pb::SwitchRpcThrottleRequest| {
        let before = master.switch_rpc_throttle(request.rpc_throttle_enabled);
        Ok(pb::SwitchRpcThrottleResponse { previous_rpc_throttle_enabled: before })
    },
];

fn set_quota(master: &Arc<Master>, request: pb::SetQuotaRequest) -> Result<pb::SetQuotaResponse> {
    master.set_quota(&request).map(|()| pb::SetQuotaResponse {})
}

fn switch_exceed_throttle_quota(
    master: &Arc<Master>,
    request: pb::SwitchExceedThrottleQuotaRequest,
) -> Result<pb::SwitchExceedThrottleQuotaResponse> {
    let before = master.switch_exceed_throttle_quota(request.exceed_throttle_quota_enabled)?;
    Ok(pb::SwitchExceedThrottleQuotaResponse { previous_exceed_throttle_quota_enabled: before })
}
