//! Logs of slow and large calls; there are none.

use std::sync::Arc;

use evenkeel_common::Result;
use evenkeel_protocol::pb;
use prost::Message;

use crate::services::method_table::Method;
use crate::{RegionServer, methods};

/// The class whose message GetLogEntries answers with.
const RESPONSES_CLASS: &str =
    "org.apache.hadoop.hbase.shaded.protobuf.generated.AdminProtos$SlowLogResponses";

pub(super) const METHODS: &[Method<RegionServer>] = methods![
    "ClearSlowLogsResponses" => |_: &Arc<RegionServer>, _: pb::ClearSlowLogResponseRequest| {
        Ok(pb::ClearSlowLogResponses { is_cleaned: true })
    },
    "GetLargeLogResponses" => responses,
    "GetLogEntries" => entries,
    "GetSlowLogResponses" => responses,
];

fn responses(_: &Arc<RegionServer>, _: pb::SlowLogResponseRequest) -> Result<pb::SlowLogResponses> {
    Ok(pb::SlowLogResponses::default())
}

fn entries(_: &Arc<RegionServer>, _: pb::LogRequest) -> Result<pb::LogEntry> {
    let log_message = pb::SlowLogResponses::default().encode_to_vec().into();
    Ok(pb::LogEntry { log_class_name: RESPONSES_CLASS.to_owned(), log_message })
}
