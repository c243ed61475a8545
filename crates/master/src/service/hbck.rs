//! HbckService: repairs that an operator makes with HBCK2.
//!
//! Regions are assigned and unassigned as by MasterService. There is one server, so no server has
//! crashed beside this master, and a procedure cannot be stuck in another process. The state of a
//! region is whether it is served, so it cannot be set.

use std::sync::Arc;

use evenkeel_common::{ErrorKind, HBaseError, Result};
use evenkeel_protocol::pb;

use super::{Method, encoded, methods, name_of};
use crate::Master;

pub(super) const METHODS: &[Method<Master>] = methods![
    "Assigns" => assigns,
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
    waits "SetTableStateInMeta" => set_table_state,
    "Unassigns" => unassigns,
];

/// The id of a procedure that was not submitted (`Procedure.NO_PROC_ID`).
const NO_PROCEDURE: u64 = -1_i64 as u64;

/// Submits a change of each region. A region that is unknown has no procedure, as in HBase.
fn submit(
    master: &Arc<Master>,
    regions: &[pb::RegionSpecifier],
    change: fn(&Master, &str) -> Result<()>,
) -> Result<Vec<u64>> {
    let submit = |region: &pb::RegionSpecifier| {
        let submitted = encoded(region).and_then(|encoded| master.submit_transit(&encoded, change));
        match submitted {
            Err(error) if error.kind() == ErrorKind::UnknownRegion => Ok(NO_PROCEDURE),
            other => other,
        }
    };
    regions.iter().map(submit).collect()
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

fn set_table_state(
    master: &Arc<Master>,
    q: pb::SetTableStateInMetaRequest,
) -> Result<pb::GetTableStateResponse> {
    let previous = master.set_table_state(&name_of(&q.table_name)?, q.table_state.state())?;
    Ok(pb::GetTableStateResponse { table_state: pb::TableState { state: previous.into() } })
}
