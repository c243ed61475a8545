//! Quotas, with the replies of a master whose `hbase.quota.enabled` is false.

use std::sync::Arc;

use evenkeel_common::{HBaseError, Result};
use evenkeel_protocol::pb;

use super::{Method, methods};
use crate::Master;

pub(super) const METHODS: &[Method<Master>] = methods![
    "GetQuotaStates" => |_: &Arc<Master>, _: pb::GetQuotaStatesRequest| {
        Ok(pb::GetQuotaStatesResponse::default())
    },
    "GetSpaceQuotaRegionSizes" => |_: &Arc<Master>, _: pb::GetSpaceQuotaRegionSizesRequest| {
        Ok(pb::GetSpaceQuotaRegionSizesResponse::default())
    },
    "IsRpcThrottleEnabled" => |_: &Arc<Master>, _: pb::IsRpcThrottleEnabledRequest| {
        Ok(pb::IsRpcThrottleEnabledResponse { rpc_throttle_enabled: false })
    },
    "SetQuota" => set_quota,
    "SwitchExceedThrottleQuota" => |_: &Arc<Master>, _: pb::SwitchExceedThrottleQuotaRequest| {
        Ok(pb::SwitchExceedThrottleQuotaResponse { previous_exceed_throttle_quota_enabled: false })
    },
    "SwitchRpcThrottle" => |_: &Arc<Master>, _: pb::SwitchRpcThrottleRequest| {
        Ok(pb::SwitchRpcThrottleResponse { previous_rpc_throttle_enabled: false })
    },
];

fn set_quota(_: &Arc<Master>, _: pb::SetQuotaRequest) -> Result<pb::SetQuotaResponse> {
    Err(HBaseError::do_not_retry("quota support disabled"))
}
