//! MasterService: the calls of the shell and of `Admin`, each translated to one method of [`Master`].
//!
//! Calls run on the priority handlers, since many read hbase:meta; those that wait for a table's lock or for a disk ([`WAITS`]) on
//! handlers of their own, so that hbase:meta does not wait behind them. What a standalone server has no use for answers with
//! what HBase says when there is nothing (no peers, no decommissioned servers), and what it does not do answers with
//! `DoNotRetryIOException`, so that a shell prints one line and does not retry for minutes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use evenkeel_common::length;
use evenkeel_common::{ColumnFamilyDescriptor, ErrorKind, HBaseError, Result, TableDescriptor, TableName};
use evenkeel_protocol::pb;
use evenkeel_region::filter::java_regex;
use evenkeel_region::region::Region;
use evenkeel_rpc::{Call, CallClass, DetachedResponder, Executor, Respond, Responder, Service};
use prost::Message;
use regex::Regex;

use super::meta::TableState;
use super::{Master, Table};
use evenkeel_regionserver::convert;

/// Every method of MasterService that is answered; rpc answers others.
const METHODS: &[&str] = &[
    "AbortProcedure",
    "AddColumn",
    "AssignRegion",
    "Balance",
    "ClearDeadServers",
    "CreateNamespace",
    "CreateTable",
    "DeleteColumn",
    "DeleteNamespace",
    "DeleteSnapshot",
    "DeleteTable",
    "DisableTable",
    "EnableCatalogJanitor",
    "EnableTable",
    "ExecProcedure",
    "ExecProcedureWithRet",
    "FlushTable",
    "GetClusterStatus",
    "GetCompletedSnapshots",
    "GetLocks",
    "GetNamespaceDescriptor",
    "GetProcedures",
    "GetSchemaAlterStatus",
    "GetTableDescriptors",
    "GetTableNames",
    "GetTableState",
    "IsBalancerEnabled",
    "IsCatalogJanitorEnabled",
    "IsCleanerChoreEnabled",
    "IsMasterInMaintenanceMode",
    "IsMasterRunning",
    "IsNormalizerEnabled",
    "IsProcedureDone",
    "IsSnapshotCleanupEnabled",
    "IsSnapshotDone",
    "IsSplitOrMergeEnabled",
    "ListDecommissionedRegionServers",
    "ListNamespaceDescriptors",
    "ListNamespaces",
    "ListReplicationPeers",
    "ListTableDescriptorsByNamespace",
    "ListTableDescriptorsByState",
    "ListTableNamesByNamespace",
    "ListTableNamesByState",
    "MergeTableRegions",
    "ModifyColumn",
    "ModifyNamespace",
    "ModifyTable",
    "MoveRegion",
    "Normalize",
    "RestoreSnapshot",
    "RunCatalogScan",
    "RunCleanerChore",
    "SetBalancerRunning",
    "SetCleanerChoreRunning",
    "SetNormalizerRunning",
    "SetSplitOrMergeEnabled",
    "Shutdown",
    "Snapshot",
    "SplitRegion",
    "StopMaster",
    "SwitchSnapshotCleanup",
    "UnassignRegion",
    "getLastMajorCompactionTimestamp",
    "getLastMajorCompactionTimestampForRegion",
    "getProcedureResult",
    "getSecurityCapabilities",
    "truncateTable",
];

/// Methods that wait for the lock of a table or for a disk.
const WAITS: [&str; 13] = [
    "AssignRegion",
    "DeleteSnapshot",
    "ExecProcedure",
    "ExecProcedureWithRet",
    "GetCompletedSnapshots",
    "IsProcedureDone",
    "IsSnapshotDone",
    "MoveRegion",
    "RestoreSnapshot",
    "RunCatalogScan",
    "RunCleanerChore",
    "Snapshot",
    "UnassignRegion",
];

/// How 1.x and 2.4 clients ask for a flush.
const FLUSH_PROCEDURE: &str = "flush-table-proc";
/// How they may ask for a snapshot.
const SNAPSHOT_PROCEDURE: &str = "online-snapshot";
/// How long a client should wait for a snapshot (`hbase.snapshot.master.timeout.millis`).
const SNAPSHOT_TIMEOUT_MS: i64 = 300_000;

/// MasterService over a [`Master`].
pub struct MasterService {
    master: Arc<Master>,
    executor: Arc<Executor>,
}

impl MasterService {
    /// Answers on the priority threads of `executor`.
    pub fn new(master: Arc<Master>, executor: Arc<Executor>) -> Self {
        Self { master, executor }
    }
}

impl Service for MasterService {
    fn name(&self) -> &'static str {
        "MasterService"
    }

    fn methods(&self) -> &'static [&'static str] {
        METHODS
    }

    fn call(&self, call: Call, reply: Responder) {
        let master = Arc::clone(&self.master);
        let class = if WAITS.contains(&call.method) { CallClass::Admin } else { CallClass::Priority };
        self.executor.submit(class, call, reply, move |call, reply| answer(&master, &call, reply));
    }
}

/// One call: its request decoded, the answer of a closure sent.
struct Exchange<'a> {
    call: &'a Call,
    reply: DetachedResponder,
}

impl Exchange<'_> {
    fn with<Q: Message + Default, A: Message>(self, answer: impl FnOnce(Q) -> Result<A>) {
        self.reply.send_result(self.call.decode().and_then(answer));
    }
}

fn answer(master: &Arc<Master>, call: &Call, reply: DetachedResponder) {
    let exchange = Exchange { call, reply };
    match call.method {
        "IsMasterRunning" => {
            exchange.with(|_: pb::IsMasterRunningRequest| {
                Ok(pb::IsMasterRunningResponse { is_master_running: true })
            });
        }
        "GetClusterStatus" => exchange.with(|q: pb::GetClusterStatusRequest| {
            Ok(pb::GetClusterStatusResponse { cluster_status: master.cluster_status(&q.options)? })
        }),
        "getProcedureResult" => {
            exchange.with(|q: pb::GetProcedureResultRequest| Ok(procedure_result(master, q.proc_id)))
        }
        _ => answer_tables(master, exchange),
    }
}

fn answer_tables(master: &Arc<Master>, exchange: Exchange<'_>) {
    match exchange.call.method {
        "CreateTable" => exchange.with(|q: pb::CreateTableRequest| {
            let table = TableDescriptor::try_from(&q.table_schema).map_err(illegal)?;
            let id = master.create_table(table, q.split_keys.clone(), (q.nonce_group(), q.nonce()))?;
            Ok(pb::CreateTableResponse { proc_id: Some(id) })
        }),
        "DeleteTable" => exchange.with(|q: pb::DeleteTableRequest| {
            let id = master.delete_table(name_of(&q.table_name)?, (q.nonce_group(), q.nonce()))?;
            Ok(pb::DeleteTableResponse { proc_id: Some(id) })
        }),
        "truncateTable" => exchange.with(|q: pb::TruncateTableRequest| {
            let (name, preserve) = (name_of(&q.table_name)?, q.preserve_splits());
            let id = master.truncate_table(name, preserve, (q.nonce_group(), q.nonce()))?;
            Ok(pb::TruncateTableResponse { proc_id: Some(id) })
        }),
        "EnableTable" => exchange.with(|q: pb::EnableTableRequest| {
            let id = master.enable_table(name_of(&q.table_name)?, (q.nonce_group(), q.nonce()))?;
            Ok(pb::EnableTableResponse { proc_id: Some(id) })
        }),
        "DisableTable" => exchange.with(|q: pb::DisableTableRequest| {
            let id = master.disable_table(name_of(&q.table_name)?, (q.nonce_group(), q.nonce()))?;
            Ok(pb::DisableTableResponse { proc_id: Some(id) })
        }),
        "ModifyTable" => exchange.with(|q: pb::ModifyTableRequest| {
            let new = TableDescriptor::try_from(&q.table_schema).map_err(illegal)?;
            let id = master.modify_table(name_of(&q.table_name)?, new, (q.nonce_group(), q.nonce()))?;
            Ok(pb::ModifyTableResponse { proc_id: Some(id) })
        }),
        "AddColumn" => exchange.with(|q: pb::AddColumnRequest| {
            let family = ColumnFamilyDescriptor::try_from(&q.column_families).map_err(illegal)?;
            let id = master.add_family(name_of(&q.table_name)?, family, (q.nonce_group(), q.nonce()))?;
            Ok(pb::AddColumnResponse { proc_id: Some(id) })
        }),
        "ModifyColumn" => exchange.with(|q: pb::ModifyColumnRequest| {
            let family = ColumnFamilyDescriptor::try_from(&q.column_families).map_err(illegal)?;
            let id = master.modify_family(name_of(&q.table_name)?, family, (q.nonce_group(), q.nonce()))?;
            Ok(pb::ModifyColumnResponse { proc_id: Some(id) })
        }),
        "DeleteColumn" => exchange.with(|q: pb::DeleteColumnRequest| {
            let family = q.column_name.to_vec();
            let id = master.delete_family(name_of(&q.table_name)?, family, (q.nonce_group(), q.nonce()))?;
            Ok(pb::DeleteColumnResponse { proc_id: Some(id) })
        }),
        "FlushTable" => exchange.with(|q: pb::FlushTableRequest| {
            let id = master.flush_table(
                name_of(&q.table_name)?,
                &q.column_family,
                (q.nonce_group(), q.nonce()),
            )?;
            Ok(pb::FlushTableResponse { proc_id: Some(id) })
        }),
        _ => answer_lists(master, exchange),
    }
}

fn answer_lists(master: &Arc<Master>, exchange: Exchange<'_>) {
    match exchange.call.method {
        "GetTableDescriptors" => {
            exchange.with(|q: pb::GetTableDescriptorsRequest| get_table_descriptors(master, &q))
        }
        "GetTableNames" => exchange.with(|q: pb::GetTableNamesRequest| {
            let tables = select(master, q.regex.as_deref(), q.include_sys_tables(), q.namespace.as_deref())?;
            Ok(pb::GetTableNamesResponse { table_names: names(&tables) })
        }),
        "ListTableDescriptorsByState" => exchange.with(|q: pb::ListTableDescriptorsByStateRequest| {
            Ok(pb::ListTableDescriptorsByStateResponse {
                table_schema: schemas(&by_state(master, q.is_enabled)),
            })
        }),
        "ListTableNamesByState" => exchange.with(|q: pb::ListTableNamesByStateRequest| {
            Ok(pb::ListTableNamesByStateResponse { table_names: names(&by_state(master, q.is_enabled)) })
        }),
        "ListTableDescriptorsByNamespace" => {
            exchange.with(|q: pb::ListTableDescriptorsByNamespaceRequest| {
                let tables = in_namespace(master, &q.namespace_name)?;
                Ok(pb::ListTableDescriptorsByNamespaceResponse { table_schema: schemas(&tables) })
            })
        }
        "ListTableNamesByNamespace" => exchange.with(|q: pb::ListTableNamesByNamespaceRequest| {
            Ok(pb::ListTableNamesByNamespaceResponse {
                table_name: names(&in_namespace(master, &q.namespace_name)?),
            })
        }),
        "GetTableState" => exchange.with(|q: pb::GetTableStateRequest| {
            let state = master.table(&name_of(&q.table_name)?)?.state;
            Ok(pb::GetTableStateResponse { table_state: pb::TableState { state: state.into() } })
        }),
        "GetSchemaAlterStatus" => exchange.with(|q: pb::GetSchemaAlterStatusRequest| {
            let total = length::must_u32(master.served(&name_of(&q.table_name)?));
            Ok(pb::GetSchemaAlterStatusResponse {
                yet_to_update_regions: Some(0),
                total_regions: Some(total),
            })
        }),
        _ => answer_namespaces(master, exchange),
    }
}

fn answer_namespaces(master: &Arc<Master>, exchange: Exchange<'_>) {
    match exchange.call.method {
        "CreateNamespace" => exchange.with(|q: pb::CreateNamespaceRequest| {
            let nonce = (q.nonce_group(), q.nonce());
            let id = master.create_namespace(q.namespace_descriptor, nonce)?;
            Ok(pb::CreateNamespaceResponse { proc_id: Some(id) })
        }),
        "ModifyNamespace" => exchange.with(|q: pb::ModifyNamespaceRequest| {
            let nonce = (q.nonce_group(), q.nonce());
            let id = master.modify_namespace(q.namespace_descriptor, nonce)?;
            Ok(pb::ModifyNamespaceResponse { proc_id: Some(id) })
        }),
        "DeleteNamespace" => exchange.with(|q: pb::DeleteNamespaceRequest| {
            let nonce = (q.nonce_group(), q.nonce());
            let id = master.delete_namespace(q.namespace_name, nonce)?;
            Ok(pb::DeleteNamespaceResponse { proc_id: Some(id) })
        }),
        "GetNamespaceDescriptor" => exchange.with(|q: pb::GetNamespaceDescriptorRequest| {
            Ok(pb::GetNamespaceDescriptorResponse {
                namespace_descriptor: master.namespaces().get(&q.namespace_name)?,
            })
        }),
        "ListNamespaceDescriptors" => exchange.with(|_: pb::ListNamespaceDescriptorsRequest| {
            Ok(pb::ListNamespaceDescriptorsResponse { namespace_descriptor: master.namespaces().list()? })
        }),
        "ListNamespaces" => exchange.with(|_: pb::ListNamespacesRequest| {
            let name = |n: pb::NamespaceDescriptor| String::from_utf8_lossy(&n.name).into_owned();
            let namespace_name = master.namespaces().list()?.into_iter().map(name).collect();
            Ok(pb::ListNamespacesResponse { namespace_name })
        }),
        _ => answer_regions(master, exchange),
    }
}

fn answer_regions(master: &Arc<Master>, exchange: Exchange<'_>) {
    match exchange.call.method {
        "SplitRegion" => exchange.with(|q: pb::SplitTableRegionRequest| {
            let region = evenkeel_common::RegionInfo::try_from(&q.region_info).map_err(illegal)?;
            let id = master.split_region(
                region.encoded_name(),
                q.split_row.clone(),
                (q.nonce_group(), q.nonce()),
            )?;
            Ok(pb::SplitTableRegionResponse { proc_id: Some(id) })
        }),
        "MergeTableRegions" => exchange.with(|q: pb::MergeTableRegionsRequest| {
            let regions = q.region.iter().map(encoded).collect::<Result<_>>()?;
            let id = master.merge_regions(regions, q.forcible(), (q.nonce_group(), q.nonce()))?;
            Ok(pb::MergeTableRegionsResponse { proc_id: Some(id) })
        }),
        "MoveRegion" => exchange.with(|q: pb::MoveRegionRequest| {
            master.reopen_region(&encoded(&q.region)?).map(|()| pb::MoveRegionResponse {})
        }),
        "AssignRegion" => exchange.with(|q: pb::AssignRegionRequest| {
            master.assign_region(&encoded(&q.region)?).map(|()| pb::AssignRegionResponse {})
        }),
        "UnassignRegion" => exchange.with(|q: pb::UnassignRegionRequest| {
            master.unassign_region(&encoded(&q.region)?).map(|()| pb::UnassignRegionResponse {})
        }),
        "RunCatalogScan" => exchange.with(|_: pb::RunCatalogScanRequest| {
            Ok(pb::RunCatalogScanResponse {
                scan_result: Some(length::must_i32(master.run_catalog_janitor()?)),
            })
        }),
        _ => answer_switches(master, exchange),
    }
}

fn answer_switches(master: &Arc<Master>, exchange: Exchange<'_>) {
    let switches = &master.switches;
    let is = |switch: &AtomicBool| switch.load(Ordering::Relaxed);
    let set = |switch: &AtomicBool, on: bool| switch.swap(on, Ordering::Relaxed);
    match exchange.call.method {
        "Balance" => exchange.with(|_: pb::BalanceRequest| {
            let ran = is(&switches.balancer);
            Ok(pb::BalanceResponse { balancer_ran: ran, moves_calculated: Some(0), moves_executed: Some(0) })
        }),
        "SetBalancerRunning" => exchange.with(|q: pb::SetBalancerRunningRequest| {
            Ok(pb::SetBalancerRunningResponse { prev_balance_value: Some(set(&switches.balancer, q.on)) })
        }),
        "IsBalancerEnabled" => exchange.with(|_: pb::IsBalancerEnabledRequest| {
            Ok(pb::IsBalancerEnabledResponse { enabled: is(&switches.balancer) })
        }),
        "Normalize" => {
            exchange.with(|_: pb::NormalizeRequest| {
                Ok(pb::NormalizeResponse { normalizer_ran: is(&switches.normalizer) })
            });
        }
        "SetNormalizerRunning" => exchange.with(|q: pb::SetNormalizerRunningRequest| {
            Ok(pb::SetNormalizerRunningResponse {
                prev_normalizer_value: Some(set(&switches.normalizer, q.on)),
            })
        }),
        "IsNormalizerEnabled" => exchange.with(|_: pb::IsNormalizerEnabledRequest| {
            Ok(pb::IsNormalizerEnabledResponse { enabled: is(&switches.normalizer) })
        }),
        "SetSplitOrMergeEnabled" => exchange.with(|q: pb::SetSplitOrMergeEnabledRequest| {
            let switch = |kind: &i32| {
                if *kind == pb::MasterSwitchType::Split as i32 { &switches.split } else { &switches.merge }
            };
            let prev_value = q.switch_types.iter().map(|kind| set(switch(kind), q.enabled)).collect();
            Ok(pb::SetSplitOrMergeEnabledResponse { prev_value })
        }),
        "IsSplitOrMergeEnabled" => exchange.with(|q: pb::IsSplitOrMergeEnabledRequest| {
            let split = q.switch_type() == pb::MasterSwitchType::Split;
            let enabled = if split { is(&switches.split) } else { is(&switches.merge) };
            Ok(pb::IsSplitOrMergeEnabledResponse { enabled })
        }),
        "EnableCatalogJanitor" => exchange.with(|q: pb::EnableCatalogJanitorRequest| {
            Ok(pb::EnableCatalogJanitorResponse {
                prev_value: Some(set(&switches.catalog_janitor, q.enable)),
            })
        }),
        "IsCatalogJanitorEnabled" => exchange.with(|_: pb::IsCatalogJanitorEnabledRequest| {
            Ok(pb::IsCatalogJanitorEnabledResponse { value: is(&switches.catalog_janitor) })
        }),
        "SetCleanerChoreRunning" => exchange.with(|q: pb::SetCleanerChoreRunningRequest| {
            Ok(pb::SetCleanerChoreRunningResponse { prev_value: Some(set(&switches.cleaner, q.on)) })
        }),
        "IsCleanerChoreEnabled" => exchange.with(|_: pb::IsCleanerChoreEnabledRequest| {
            Ok(pb::IsCleanerChoreEnabledResponse { value: is(&switches.cleaner) })
        }),
        "SwitchSnapshotCleanup" => exchange.with(|q: pb::SetSnapshotCleanupRequest| {
            Ok(pb::SetSnapshotCleanupResponse {
                prev_snapshot_cleanup: set(&switches.snapshot_cleanup, q.enabled),
            })
        }),
        "IsSnapshotCleanupEnabled" => exchange.with(|_: pb::IsSnapshotCleanupEnabledRequest| {
            Ok(pb::IsSnapshotCleanupEnabledResponse { enabled: is(&switches.snapshot_cleanup) })
        }),
        _ => answer_snapshots(master, exchange),
    }
}

fn answer_snapshots(master: &Arc<Master>, exchange: Exchange<'_>) {
    match exchange.call.method {
        "Snapshot" => exchange.with(|q: pb::SnapshotRequest| {
            let (has_nonce, nonce) =
                (q.nonce_group.is_some() && q.nonce.is_some(), (q.nonce_group(), q.nonce()));
            let id = master.take_snapshot(q.snapshot, nonce)?;
            Ok(pb::SnapshotResponse {
                expected_timeout: SNAPSHOT_TIMEOUT_MS,
                proc_id: has_nonce.then_some(id as i64),
            })
        }),
        "IsSnapshotDone" => exchange.with(|q: pb::IsSnapshotDoneRequest| {
            let done = master.is_snapshot_done(&q.snapshot.unwrap_or_default())?;
            Ok(pb::IsSnapshotDoneResponse { done: Some(done), snapshot: None })
        }),
        "GetCompletedSnapshots" => exchange.with(|_: pb::GetCompletedSnapshotsRequest| {
            Ok(pb::GetCompletedSnapshotsResponse { snapshots: master.completed_snapshots()? })
        }),
        "DeleteSnapshot" => exchange.with(|q: pb::DeleteSnapshotRequest| {
            master.delete_snapshot(&q.snapshot.name).map(|()| pb::DeleteSnapshotResponse {})
        }),
        "RestoreSnapshot" => exchange.with(|q: pb::RestoreSnapshotRequest| {
            let nonce = (q.nonce_group(), q.nonce());
            let proc_id = master.restore_or_clone_snapshot(&q.snapshot, q.custom_sft.as_deref(), nonce)?;
            Ok(pb::RestoreSnapshotResponse { proc_id })
        }),
        _ => answer_rest(master, exchange),
    }
}

fn answer_rest(master: &Arc<Master>, exchange: Exchange<'_>) {
    match exchange.call.method {
        "ExecProcedure" | "ExecProcedureWithRet" => {
            exchange.with(|q: pb::ExecProcedureRequest| exec_procedure(master, &q.procedure));
        }
        "IsProcedureDone" => exchange.with(|q: pb::IsProcedureDoneRequest| is_procedure_done(master, q)),
        "AbortProcedure" => exchange.with(|_: pb::AbortProcedureRequest| {
            Ok(pb::AbortProcedureResponse { is_procedure_aborted: false })
        }),
        "GetProcedures" => {
            exchange.with(|_: pb::GetProceduresRequest| Ok(pb::GetProceduresResponse::default()))
        }
        "GetLocks" => exchange.with(|_: pb::GetLocksRequest| Ok(pb::GetLocksResponse::default())),
        "ListDecommissionedRegionServers" => {
            exchange.with(|_: pb::ListDecommissionedRegionServersRequest| {
                Ok(pb::ListDecommissionedRegionServersResponse::default())
            })
        }
        "ListReplicationPeers" => {
            exchange
                .with(|_: pb::ListReplicationPeersRequest| Ok(pb::ListReplicationPeersResponse::default()));
        }
        "ClearDeadServers" => exchange.with(|q: pb::ClearDeadServersRequest| {
            Ok(pb::ClearDeadServersResponse { server_name: q.server_name })
        }),
        "RunCleanerChore" => {
            exchange.with(|_: pb::RunCleanerChoreRequest| {
                Ok(pb::RunCleanerChoreResponse { cleaner_chore_ran: master.run_cleaners()? })
            });
        }
        "IsMasterInMaintenanceMode" => exchange.with(|_: pb::IsInMaintenanceModeRequest| {
            Ok(pb::IsInMaintenanceModeResponse { in_maintenance_mode: false })
        }),
        "getSecurityCapabilities" => {
            exchange
                .with(|_: pb::SecurityCapabilitiesRequest| Ok(pb::SecurityCapabilitiesResponse::default()));
        }
        "getLastMajorCompactionTimestamp" => exchange.with(|q: pb::MajorCompactionTimestampRequest| {
            let regions = master.parts.regionserver.regions().of_table(&name_of(&q.table_name)?);
            Ok(last_major_compaction(regions.iter()))
        }),
        "getLastMajorCompactionTimestampForRegion" => {
            exchange.with(|q: pb::MajorCompactionTimestampForRegionRequest| {
                let region = master.parts.regionserver.regions().find(&encoded(&q.region)?);
                Ok(last_major_compaction(region.iter()))
            });
        }
        "StopMaster" => exchange.with(|_: pb::StopMasterRequest| {
            (master.parts.stop)("a client asked the master to stop");
            Ok(pb::StopMasterResponse {})
        }),
        "Shutdown" => exchange.with(|_: pb::ShutdownRequest| {
            (master.parts.stop)("a client asked the cluster to shut down");
            Ok(pb::ShutdownResponse {})
        }),
        other => exchange.reply.send_error(&HBaseError::do_not_retry(format!("{other} is not supported"))),
    }
}

/// The latest of the regions' last major compactions.
fn last_major_compaction<'a>(
    regions: impl Iterator<Item = &'a Arc<Region>>,
) -> pb::MajorCompactionTimestampResponse {
    let compaction_timestamp = regions.map(|region| region.last_major_compaction_ms()).max().unwrap_or(0);
    pb::MajorCompactionTimestampResponse { compaction_timestamp }
}

fn illegal(error: HBaseError) -> HBaseError {
    HBaseError::do_not_retry(error.message())
}

fn name_of(name: &pb::TableName) -> Result<TableName> {
    TableName::try_from(name).map_err(illegal)
}

fn encoded(specifier: &pb::RegionSpecifier) -> Result<String> {
    let unknown = |_| HBaseError::new(ErrorKind::UnknownRegion, specifier.value.escape_ascii().to_string());
    convert::region::encoded_name(specifier).map(str::to_owned).map_err(unknown)
}

fn procedure_result(master: &Master, id: u64) -> pb::GetProcedureResultResponse {
    use pb::get_procedure_result_response::State;
    let Some(procedure) = master.procedures.state(id) else {
        return pb::GetProcedureResultResponse { state: State::NotFound.into(), ..Default::default() };
    };
    let mut response = pb::GetProcedureResultResponse {
        state: State::Running.into(),
        submitted_time: Some(procedure.submitted_ms as u64),
        last_update: Some(procedure.updated_ms as u64),
        ..Default::default()
    };
    match procedure.outcome {
        None => return response,
        Some(Ok(result)) => response.result = (!result.is_empty()).then(|| result.into()),
        Some(Err(error)) => {
            response.exception = Some(foreign_exception(&error, &master.parts.server.to_string()))
        }
    }
    response.state = State::Finished.into();
    response
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

fn exec_procedure(
    master: &Arc<Master>,
    procedure: &pb::ProcedureDescription,
) -> Result<pb::ExecProcedureResponse> {
    if procedure.signature == SNAPSHOT_PROCEDURE {
        master.take_snapshot(snapshot_of(procedure), (0, 0))?;
        return Ok(pb::ExecProcedureResponse {
            expected_timeout: Some(SNAPSHOT_TIMEOUT_MS),
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

fn is_procedure_done(master: &Master, q: pb::IsProcedureDoneRequest) -> Result<pb::IsProcedureDoneResponse> {
    let snapshot = q.procedure.as_ref().filter(|p| p.signature == SNAPSHOT_PROCEDURE).map(snapshot_of);
    let done = snapshot.map_or(Ok(true), |snapshot| master.is_snapshot_done(&snapshot))?;
    Ok(pb::IsProcedureDoneResponse { done: Some(done), snapshot: q.procedure })
}

/// The snapshot that a procedure of [`SNAPSHOT_PROCEDURE`] asks for.
fn snapshot_of(procedure: &pb::ProcedureDescription) -> pb::SnapshotDescription {
    let table = procedure.configuration.iter().find(|pair| pair.name.eq_ignore_ascii_case("table"));
    pb::SnapshotDescription {
        name: procedure.instance().to_owned(),
        table: table.map(|pair| pair.value.clone()),
        ..pb::SnapshotDescription::default()
    }
}

fn get_table_descriptors(
    master: &Master,
    q: &pb::GetTableDescriptorsRequest,
) -> Result<pb::GetTableDescriptorsResponse> {
    let tables = if q.table_names.is_empty() {
        select(master, q.regex.as_deref(), q.include_sys_tables(), q.namespace.as_deref())?
    } else {
        let names = q.table_names.iter().map(name_of).collect::<Result<Vec<_>>>()?;
        names.iter().filter_map(|name| master.table(name).ok()).collect()
    };
    Ok(pb::GetTableDescriptorsResponse { table_schema: schemas(&tables) })
}

/// Tables of a namespace, or of all, whose whole name matches an expression.
fn select(master: &Master, regex: Option<&str>, system: bool, namespace: Option<&str>) -> Result<Vec<Table>> {
    let regex = regex.map(whole).transpose()?;
    let namespace = namespace.filter(|n| !n.is_empty());
    namespace.map_or(Ok(()), |n| master.namespaces().get(n).map(drop))?;
    let matches = |name: &TableName| {
        regex.as_ref().is_none_or(|r| {
            r.is_match(&name.to_string()) || r.is_match(&format!("{}:{}", name.namespace(), name.qualifier()))
        })
    };
    let wanted = |table: &Table| {
        let name = table.descriptor.name();
        (system || !name.is_system()) && namespace.is_none_or(|n| n == name.namespace()) && matches(name)
    };
    Ok(master.tables().into_iter().filter(wanted).collect())
}

fn whole(regex: &str) -> Result<Regex> {
    let translated = java_regex::translate(regex, 0)
        .and_then(|pattern| Regex::new(&format!("^(?:{pattern})$")).map_err(|e| e.to_string()));
    translated.map_err(|e| HBaseError::do_not_retry(format!("not an expression: {regex}: {e}")))
}

fn by_state(master: &Master, enabled: bool) -> Vec<Table> {
    let state = if enabled { TableState::Enabled } else { TableState::Disabled };
    master.tables().into_iter().filter(|t| t.state == state && !t.descriptor.name().is_meta()).collect()
}

fn in_namespace(master: &Master, namespace: &str) -> Result<Vec<Table>> {
    master.namespaces().get(namespace)?;
    let tables = master.tables().into_iter();
    Ok(tables.filter(|t| t.descriptor.name().namespace() == namespace).collect())
}

fn names(tables: &[Table]) -> Vec<pb::TableName> {
    tables.iter().map(|t| t.descriptor.name().into()).collect()
}

fn schemas(tables: &[Table]) -> Vec<pb::TableSchema> {
    tables.iter().map(|t| pb::TableSchema::from(&*t.descriptor)).collect()
}
