//! Procedures: changes in progress and their outcomes, and the procedures that older clients
//! request by name.

use std::sync::Arc;

use evenkeel_common::{HBaseError, Result, TableName};
use evenkeel_protocol::pb;

use super::{Method, illegal, methods, snapshots};
use crate::Master;

pub(super) const METHODS: &[Method<Master>] = methods![
    "AbortProcedure" => abort,
    waits "ExecProcedure" => exec,
    waits "ExecProcedureWithRet" => exec,
    "GetLocks" => |_: &Arc<Master>, _: pb::GetLocksRequest| Ok(pb::GetLocksResponse::default()),
    "GetProcedures" => |_: &Arc<Master>, _: pb::GetProceduresRequest| Ok(pb::GetProceduresResponse::default()),
    waits "IsProcedureDone" => is_done,
    "getProcedureResult" => result,
];

/// The name of the procedure with which 1.x and 2.4 clients request a flush.
const FLUSH_PROCEDURE: &str = "flush-table-proc";
/// The name of the procedure with which they may request a snapshot.
const SNAPSHOT_PROCEDURE: &str = "online-snapshot";

fn abort(_: &Arc<Master>, _: pb::AbortProcedureRequest) -> Result<pb::AbortProcedureResponse> {
    Ok(pb::AbortProcedureResponse { is_procedure_aborted: false })
}

fn result(master: &Arc<Master>, q: pb::GetProcedureResultRequest) -> Result<pb::GetProcedureResultResponse> {
    use pb::get_procedure_result_response::State;
    let Some(procedure) = master.procedures.state(q.proc_id) else {
        return Ok(pb::GetProcedureResultResponse { state: State::NotFound.into(), ..Default::default() });
    };
    let mut response = pb::GetProcedureResultResponse {
        state: State::Running.into(),
        submitted_time: Some(procedure.submitted_ms as u64),
        last_update: Some(procedure.updated_ms as u64),
        ..Default::default()
    };
    match procedure.outcome {
        None => return Ok(response),
        Some(Ok(result)) => response.result = (!result.is_empty()).then(|| result.into()),
        Some(Err(error)) => {
            response.exception = Some(foreign_exception(&error, &master.parts.server.to_string()))
        }
    }
    response.state = State::Finished.into();
    Ok(response)
}

fn foreign_exception(error: &HBaseError, source: &str) -> pb::ForeignExceptionMessage {
    pb::ForeignExceptionMessage {
        source: Some(source.to_owned()),
        generic_exception: Some(pb::GenericExceptionMessage {
            class_name: Some(error.kind().class_name().to_owned()),
            message: Some(error.message().to_owned()),
            error_info: None,
            trace: Vec::new(),
        }),
    }
}

fn exec(master: &Arc<Master>, q: pb::ExecProcedureRequest) -> Result<pb::ExecProcedureResponse> {
    let procedure = &q.procedure;
    if procedure.signature == SNAPSHOT_PROCEDURE {
        master.take_snapshot(snapshot_of(procedure), (0, 0))?;
        return Ok(pb::ExecProcedureResponse {
            expected_timeout: Some(snapshots::TIMEOUT_MS),
            return_data: None,
        });
    }
    if procedure.signature != FLUSH_PROCEDURE {
        let message = format!("The procedure is not registered: {}", procedure.signature);
        return Err(HBaseError::do_not_retry(message));
    }
    let name: TableName = procedure.instance().parse().map_err(illegal)?;
    for region in master.parts.regionserver.regions().of_table(&name) {
        region.flush()?;
    }
    Ok(pb::ExecProcedureResponse { expected_timeout: Some(0), return_data: None })
}

fn is_done(master: &Arc<Master>, q: pb::IsProcedureDoneRequest) -> Result<pb::IsProcedureDoneResponse> {
    let snapshot = q.procedure.as_ref().filter(|p| p.signature == SNAPSHOT_PROCEDURE).map(snapshot_of);
    let done = snapshot.map_or(Ok(true), |snapshot| master.is_snapshot_done(&snapshot))?;
    Ok(pb::IsProcedureDoneResponse { done: Some(done), snapshot: q.procedure })
}

/// Returns the snapshot that a procedure of [`SNAPSHOT_PROCEDURE`] requests.
fn snapshot_of(procedure: &pb::ProcedureDescription) -> pb::SnapshotDescription {
    let table = procedure.configuration.iter().find(|pair| pair.name.eq_ignore_ascii_case("table"));
    pb::SnapshotDescription {
        name: procedure.instance().to_owned(),
        table: table.map(|pair| pair.value.clone()),
        ..pb::SnapshotDescription::default()
    }
}
