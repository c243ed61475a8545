//! Background work of the master: its switches, and RPCs that run the catalog janitor, the cleaners
//! and the normalizer at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use evenkeel_common::{HBaseError, Result, length};
use evenkeel_protocol::pb;
use prost::Message;

use super::{Method, methods, name_of, tables};
use crate::Master;

pub(super) const METHODS: &[Method<Master>] = methods![
    "Balance" => balance,
    "EnableCatalogJanitor" => enable_catalog_janitor,
    "GetLogEntries" => log_entries,
    "IsBalancerEnabled" => is_balancer_enabled,
    "IsCatalogJanitorEnabled" => is_catalog_janitor_enabled,
    "IsCleanerChoreEnabled" => is_cleaner_chore_enabled,
    "IsNormalizerEnabled" => is_normalizer_enabled,
    "IsSnapshotCleanupEnabled" => is_snapshot_cleanup_enabled,
    "IsSplitOrMergeEnabled" => is_split_or_merge_enabled,
    "Normalize" => normalize,
    waits "RunCatalogScan" => run_catalog_scan,
    waits "RunCleanerChore" => run_cleaner_chore,
    "SetBalancerRunning" => set_balancer_running,
    "SetCleanerChoreRunning" => set_cleaner_chore_running,
    "SetNormalizerRunning" => set_normalizer_running,
    "SetSplitOrMergeEnabled" => set_split_or_merge_enabled,
    "SwitchSnapshotCleanup" => switch_snapshot_cleanup,
];

/// The decisions and rejections of the balancer: always empty, as in HBase unless a setting records
/// them.
fn log_entries(_: &Arc<Master>, request: pb::LogRequest) -> Result<pb::LogEntry> {
    const PROTOS: &str = "org.apache.hadoop.hbase.shaded.protobuf.generated.MasterProtos";
    let (class, log_message) = match &request.log_class_name {
        name if name.contains("BalancerDecisionsRequest") => {
            ("BalancerDecisionsResponse", pb::BalancerDecisionsResponse::default().encode_to_vec())
        }
        name if name.contains("BalancerRejectionsRequest") => {
            ("BalancerRejectionsResponse", pb::BalancerRejectionsResponse::default().encode_to_vec())
        }
        _ => return Err(HBaseError::io("Invalid request params")),
    };
    Ok(pb::LogEntry { log_class_name: format!("{PROTOS}${class}"), log_message: log_message.into() })
}

fn is_on(switch: &AtomicBool) -> bool {
    switch.load(Ordering::Relaxed)
}

/// Sets a switch; returns its previous value.
fn set_switch(switch: &AtomicBool, on: bool) -> bool {
    switch.swap(on, Ordering::Relaxed)
}

fn balance(master: &Arc<Master>, _: pb::BalanceRequest) -> Result<pb::BalanceResponse> {
    let balancer_ran = is_on(&master.switches.balancer);
    Ok(pb::BalanceResponse { balancer_ran, moves_calculated: Some(0), moves_executed: Some(0) })
}

fn set_balancer_running(
    master: &Arc<Master>,
    q: pb::SetBalancerRunningRequest,
) -> Result<pb::SetBalancerRunningResponse> {
    let prev_balance_value = Some(set_switch(&master.switches.balancer, q.on));
    Ok(pb::SetBalancerRunningResponse { prev_balance_value })
}

fn is_balancer_enabled(
    master: &Arc<Master>,
    _: pb::IsBalancerEnabledRequest,
) -> Result<pb::IsBalancerEnabledResponse> {
    Ok(pb::IsBalancerEnabledResponse { enabled: is_on(&master.switches.balancer) })
}

/// Queues the tables; replies before they are normalized, as HBase does.
fn normalize(master: &Arc<Master>, q: pb::NormalizeRequest) -> Result<pb::NormalizeResponse> {
    let names = q.table_names.iter().map(name_of).collect::<Result<Vec<_>>>()?;
    let matching = || tables::matching(master, &names, q.regex.as_deref(), q.namespace.as_deref());
    Ok(pb::NormalizeResponse { normalizer_ran: master.normalize_regions(matching, true)? })
}

fn set_normalizer_running(
    master: &Arc<Master>,
    q: pb::SetNormalizerRunningRequest,
) -> Result<pb::SetNormalizerRunningResponse> {
    let prev_normalizer_value = Some(set_switch(&master.switches.normalizer, q.on));
    Ok(pb::SetNormalizerRunningResponse { prev_normalizer_value })
}

fn is_normalizer_enabled(
    master: &Arc<Master>,
    _: pb::IsNormalizerEnabledRequest,
) -> Result<pb::IsNormalizerEnabledResponse> {
    Ok(pb::IsNormalizerEnabledResponse { enabled: is_on(&master.switches.normalizer) })
}

fn set_split_or_merge_enabled(
    master: &Arc<Master>,
    q: pb::SetSplitOrMergeEnabledRequest,
) -> Result<pb::SetSplitOrMergeEnabledResponse> {
    let switches = &master.switches;
    let switch = |kind: &i32| {
        if *kind == pb::MasterSwitchType::Split as i32 { &switches.split } else { &switches.merge }
    };
    let prev_value = q.switch_types.iter().map(|kind| set_switch(switch(kind), q.enabled)).collect();
    Ok(pb::SetSplitOrMergeEnabledResponse { prev_value })
}

fn is_split_or_merge_enabled(
    master: &Arc<Master>,
    q: pb::IsSplitOrMergeEnabledRequest,
) -> Result<pb::IsSplitOrMergeEnabledResponse> {
    let switches = &master.switches;
    let is_split = q.switch_type() == pb::MasterSwitchType::Split;
    let enabled = is_on(if is_split { &switches.split } else { &switches.merge });
    Ok(pb::IsSplitOrMergeEnabledResponse { enabled })
}

fn enable_catalog_janitor(
    master: &Arc<Master>,
    q: pb::EnableCatalogJanitorRequest,
) -> Result<pb::EnableCatalogJanitorResponse> {
    let prev_value = Some(set_switch(&master.switches.catalog_janitor, q.enable));
    Ok(pb::EnableCatalogJanitorResponse { prev_value })
}

fn is_catalog_janitor_enabled(
    master: &Arc<Master>,
    _: pb::IsCatalogJanitorEnabledRequest,
) -> Result<pb::IsCatalogJanitorEnabledResponse> {
    Ok(pb::IsCatalogJanitorEnabledResponse { value: is_on(&master.switches.catalog_janitor) })
}

fn run_catalog_scan(
    master: &Arc<Master>,
    _: pb::RunCatalogScanRequest,
) -> Result<pb::RunCatalogScanResponse> {
    let scan_result = Some(length::must_i32(master.run_catalog_janitor()?));
    Ok(pb::RunCatalogScanResponse { scan_result })
}

fn set_cleaner_chore_running(
    master: &Arc<Master>,
    q: pb::SetCleanerChoreRunningRequest,
) -> Result<pb::SetCleanerChoreRunningResponse> {
    let prev_value = Some(set_switch(&master.switches.cleaner, q.on));
    Ok(pb::SetCleanerChoreRunningResponse { prev_value })
}

fn is_cleaner_chore_enabled(
    master: &Arc<Master>,
    _: pb::IsCleanerChoreEnabledRequest,
) -> Result<pb::IsCleanerChoreEnabledResponse> {
    Ok(pb::IsCleanerChoreEnabledResponse { value: is_on(&master.switches.cleaner) })
}

fn run_cleaner_chore(
    master: &Arc<Master>,
    _: pb::RunCleanerChoreRequest,
) -> Result<pb::RunCleanerChoreResponse> {
    Ok(pb::RunCleanerChoreResponse { cleaner_chore_ran: master.run_cleaners()? })
}

fn switch_snapshot_cleanup(
    master: &Arc<Master>,
    q: pb::SetSnapshotCleanupRequest,
) -> Result<pb::SetSnapshotCleanupResponse> {
    let prev_snapshot_cleanup = set_switch(&master.switches.snapshot_cleanup, q.enabled);
    Ok(pb::SetSnapshotCleanupResponse { prev_snapshot_cleanup })
}

fn is_snapshot_cleanup_enabled(
    master: &Arc<Master>,
    _: pb::IsSnapshotCleanupEnabledRequest,
) -> Result<pb::IsSnapshotCleanupEnabledResponse> {
    Ok(pb::IsSnapshotCleanupEnabledResponse { enabled: is_on(&master.switches.snapshot_cleanup) })
}
