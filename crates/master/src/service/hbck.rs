//! HbckService: repairs that an operator makes with HBCK2.
//!
//! Regions are assigned and unassigned as by MasterService. There is one server, so no server has
//! crashed beside this master, and a procedure cannot be stuck in another process. The state of a
//! region is whether it is served, so it cannot be set. `override` has no effect, since no other
//! procedure can hold a region.

use std::sync::Arc;

use evenkeel_common::{HBaseError, Result};
use evenkeel_protocol::pb;
use evenkeel_rpc::{DetachedResponder, Respond};

use super::{Method, encoded, methods, name_of};
use crate::Master;

pub(super) const METHODS: &[Method<Master>] = methods![
    waits "Assigns" => assigns,
    "BypassProcedure" => bypass,
    waits "FixMeta" => fix_meta,
    "RunHbckChore" => |_: &Arc<Master>, _: pb::RunHbckChoreRequest| {
        Ok(pb::RunHbckChoreResponse { ran: true })
    },
    "ScheduleSCPsForUnknownServers" => |_: &Arc<Master>, _: pb::ScheduleScPsForUnknownServersRequest| {
        Ok(pb::ScheduleScPsForUnknownServersResponse::default())
    },
    "ScheduleServerCrashProcedure" => schedule_crash_procedures,
    "SetRegionStateInMeta" => set_region_states,
    replies "SetTableStateInMeta" => set_table_state,
    waits "Unassigns" => unassigns,
];

/// The id of a procedure that was not submitted (`Procedure.NO_PROC_ID`).
const NO_PROCEDURE: u64 = -1_i64 as u64;
/// The maximum number of regions in a request.
const REGIONS_MAX: usize = 10_000;

/// Submits a change of each region. HBase, too, leaves unknown regions out.
fn submit(
    master: &Arc<Master>,
    regions: &[pb::RegionSpecifier],
    change: fn(&Master, &str) -> Result<()>,
) -> Result<Vec<u64>> {
    if regions.len() > REGIONS_MAX {
        return Err(HBaseError::do_not_retry(format!("{} regions, {REGIONS_MAX} allowed", regions.len())));
    }
    let names: Vec<_> = regions.iter().filter_map(|region| encoded(region).ok()).collect();
    let ids = master.submit_transits(&names, change)?;
    Ok(ids.into_iter().map(|id| id.unwrap_or(NO_PROCEDURE)).collect())
}

fn assigns(master: &Arc<Master>, q: pb::AssignsRequest) -> Result<pb::AssignsResponse> {
    Ok(pb::AssignsResponse { pid: submit(master, &q.region, Master::assign_region)? })
}

fn unassigns(master: &Arc<Master>, q: pb::UnassignsRequest) -> Result<pb::UnassignsResponse> {
    Ok(pb::UnassignsResponse { pid: submit(master, &q.region, Master::unassign_region)? })
}

fn bypass(_: &Arc<Master>, q: pb::BypassProcedureRequest) -> Result<pb::BypassProcedureResponse> {
    Ok(pb::BypassProcedureResponse { bypassed: vec![false; q.proc_id.len()] })
}

fn schedule_crash_procedures(
    _: &Arc<Master>,
    q: pb::ScheduleServerCrashProcedureRequest,
) -> Result<pb::ScheduleServerCrashProcedureResponse> {
    Ok(pb::ScheduleServerCrashProcedureResponse { pid: vec![NO_PROCEDURE; q.server_name.len()] })
}

fn set_region_states(
    _: &Arc<Master>,
    _: pb::SetRegionStateInMetaRequest,
) -> Result<pb::SetRegionStateInMetaResponse> {
    Err(HBaseError::do_not_retry(
        "the state of a region is whether this server serves it; use assigns or unassigns",
    ))
}

/// A start has compared directories and hbase:meta already, so there is nothing to repair.
fn fix_meta(_: &Arc<Master>, _: pb::FixMetaRequest) -> Result<pb::FixMetaResponse> {
    Ok(pb::FixMetaResponse {})
}

fn set_table_state(master: &Arc<Master>, q: pb::SetTableStateInMetaRequest, reply: DetachedResponder) {
    let submitted =
        name_of(&q.table_name).and_then(|name| master.set_table_state(&name, q.table_state.state()));
    let response = |previous: Vec<u8>| pb::GetTableStateResponse {
        table_state: pb::TableState { state: previous.first().copied().unwrap_or_default().into() },
    };
    match submitted {
        Ok(id) => master.procedures().on_outcome(id, move |outcome| reply.send_result(outcome.map(response))),
        Err(error) => reply.send_error(&error),
    }
}
