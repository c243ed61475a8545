//! Procedures: changes in progress and their outcomes, and the procedures that older clients
//! request by name.

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::{HBaseError, Result, TableName};
use evenkeel_protocol::pb;

use super::{Method, illegal, methods, snapshots};
use crate::Master;

pub(super) const METHODS: &[Method<Master>] = methods![
    "AbortProcedure" => abort,
    waits "ExecProcedure" => exec,
    waits "ExecProcedureWithRet" => exec_with_result,
    "GetLocks" => |_: &Arc<Master>, _: pb::GetLocksRequest| Ok(pb::GetLocksResponse::default()),
    "GetProcedures" => |_: &Arc<Master>, _: pb::GetProceduresRequest| Ok(pb::GetProceduresResponse::default()),
    waits "IsProcedureDone" => is_done,
    "getProcedureResult" => result,
];

/// The name of the procedure with which 1.x and 2.4 clients request a flush.
const FLUSH_PROCEDURE: &str = "flush-table-proc";
/// The name of the procedure with which they may request a snapshot.
const SNAPSHOT_PROCEDURE: &str = "online-snapshot";
/// The argument of a flush that names families (`HConstants.FAMILY_KEY_STR`).
const FAMILIES: &str = "family";

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

/// Executes a procedure. Clients then ask [`is_done`] until the expected time has passed, so that
/// time must not be 0.
fn exec(master: &Arc<Master>, q: pb::ExecProcedureRequest) -> Result<pb::ExecProcedureResponse> {
    let procedure = &q.procedure;
    match procedure.signature.as_str() {
        SNAPSHOT_PROCEDURE => drop(master.take_snapshot(snapshot_of(procedure), (0, 0))?),
        FLUSH_PROCEDURE => master.flush_by_procedure(&flushed_table(procedure)?, families_of(procedure))?,
        unknown => return Err(HBaseError::do_not_retry(not_registered(unknown))),
    }
    Ok(pb::ExecProcedureResponse { expected_timeout: Some(snapshots::TIMEOUT_MS), return_data: None })
}

/// As [`exec`], but HBase's response has the returned data only. An unknown procedure is an
/// `IOException`.
fn exec_with_result(master: &Arc<Master>, q: pb::ExecProcedureRequest) -> Result<pb::ExecProcedureResponse> {
    check_registered(&q.procedure)?;
    exec(master, q).map(|_| pb::ExecProcedureResponse::default())
}

fn is_done(master: &Arc<Master>, q: pb::IsProcedureDoneRequest) -> Result<pb::IsProcedureDoneResponse> {
    let procedure = q.procedure.unwrap_or_default();
    check_registered(&procedure)?;
    let done = match procedure.signature == SNAPSHOT_PROCEDURE {
        true => master.is_snapshot_done(&snapshot_of(&procedure))?,
        false => master.was_flushed_by_procedure(&flushed_table(&procedure)?),
    };
    Ok(pb::IsProcedureDoneResponse { done: Some(done), snapshot: None })
}

fn check_registered(procedure: &pb::ProcedureDescription) -> Result<()> {
    match procedure.signature.as_str() {
        SNAPSHOT_PROCEDURE | FLUSH_PROCEDURE => Ok(()),
        unknown => Err(HBaseError::io(not_registered(unknown))),
    }
}

fn not_registered(signature: &str) -> String {
    format!("The procedure is not registered: {signature}")
}

/// Returns the table that a procedure of [`FLUSH_PROCEDURE`] flushes.
fn flushed_table(procedure: &pb::ProcedureDescription) -> Result<TableName> {
    procedure.instance().parse().map_err(illegal)
}

/// Returns the families that a procedure of [`FLUSH_PROCEDURE`] names, which commas separate.
fn families_of(procedure: &pb::ProcedureDescription) -> Vec<Bytes> {
    let value = procedure.configuration.iter().filter(|pair| pair.name == FAMILIES).map(|pair| &pair.value);
    let names = value.flat_map(|value| value.split(',')).filter(|name| !name.is_empty());
    names.map(|name| Bytes::copy_from_slice(name.as_bytes())).collect()
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
