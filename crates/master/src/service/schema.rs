//! Creates, alters and deletes tables. Each RPC starts a procedure and returns its id.

use std::sync::Arc;

use evenkeel_common::{ColumnFamilyDescriptor, Result, TableDescriptor};
use evenkeel_protocol::pb;

use super::{Method, illegal, methods, name_of};
use crate::Master;

pub(super) const METHODS: &[Method<Master>] = methods![
    "AddColumn" => add_column,
    "CreateTable" => create_table,
    "DeleteColumn" => delete_column,
    "DeleteTable" => delete_table,
    "DisableTable" => disable_table,
    "EnableTable" => enable_table,
    "FlushTable" => flush_table,
    "ModifyColumn" => modify_column,
    "ModifyColumnStoreFileTracker" => modify_tracker_of_family,
    "ModifyTable" => modify_table,
    "ModifyTableStoreFileTracker" => modify_tracker,
    "truncateTable" => truncate_table,
];

fn create_table(master: &Arc<Master>, q: pb::CreateTableRequest) -> Result<pb::CreateTableResponse> {
    let table = TableDescriptor::try_from(&q.table_schema).map_err(illegal)?;
    let id = master.create_table(table, q.split_keys.clone(), (q.nonce_group(), q.nonce()))?;
    Ok(pb::CreateTableResponse { proc_id: Some(id) })
}

fn delete_table(master: &Arc<Master>, q: pb::DeleteTableRequest) -> Result<pb::DeleteTableResponse> {
    let id = master.delete_table(name_of(&q.table_name)?, (q.nonce_group(), q.nonce()))?;
    Ok(pb::DeleteTableResponse { proc_id: Some(id) })
}

fn truncate_table(master: &Arc<Master>, q: pb::TruncateTableRequest) -> Result<pb::TruncateTableResponse> {
    let (name, preserve) = (name_of(&q.table_name)?, q.preserve_splits());
    let id = master.truncate_table(name, preserve, (q.nonce_group(), q.nonce()))?;
    Ok(pb::TruncateTableResponse { proc_id: Some(id) })
}

fn enable_table(master: &Arc<Master>, q: pb::EnableTableRequest) -> Result<pb::EnableTableResponse> {
    let id = master.enable_table_by_client(name_of(&q.table_name)?, (q.nonce_group(), q.nonce()))?;
    Ok(pb::EnableTableResponse { proc_id: Some(id) })
}

fn disable_table(master: &Arc<Master>, q: pb::DisableTableRequest) -> Result<pb::DisableTableResponse> {
    let id = master.disable_table(name_of(&q.table_name)?, (q.nonce_group(), q.nonce()))?;
    Ok(pb::DisableTableResponse { proc_id: Some(id) })
}

fn modify_table(master: &Arc<Master>, q: pb::ModifyTableRequest) -> Result<pb::ModifyTableResponse> {
    let new = TableDescriptor::try_from(&q.table_schema).map_err(illegal)?;
    let id = master.modify_table(name_of(&q.table_name)?, new, (q.nonce_group(), q.nonce()))?;
    Ok(pb::ModifyTableResponse { proc_id: Some(id) })
}

fn modify_tracker(
    master: &Arc<Master>,
    q: pb::ModifyTableStoreFileTrackerRequest,
) -> Result<pb::ModifyTableStoreFileTrackerResponse> {
    let nonce = (q.nonce_group(), q.nonce());
    let id = master.modify_tracker(name_of(&q.table_name)?, None, &q.dst_sft, nonce)?;
    Ok(pb::ModifyTableStoreFileTrackerResponse { proc_id: Some(id) })
}

fn modify_tracker_of_family(
    master: &Arc<Master>,
    q: pb::ModifyColumnStoreFileTrackerRequest,
) -> Result<pb::ModifyColumnStoreFileTrackerResponse> {
    let (nonce, family) = ((q.nonce_group(), q.nonce()), Some(q.family.to_vec()));
    let id = master.modify_tracker(name_of(&q.table_name)?, family, &q.dst_sft, nonce)?;
    Ok(pb::ModifyColumnStoreFileTrackerResponse { proc_id: Some(id) })
}

fn add_column(master: &Arc<Master>, q: pb::AddColumnRequest) -> Result<pb::AddColumnResponse> {
    let family = ColumnFamilyDescriptor::try_from(&q.column_families).map_err(illegal)?;
    let id = master.add_family(name_of(&q.table_name)?, family, (q.nonce_group(), q.nonce()))?;
    Ok(pb::AddColumnResponse { proc_id: Some(id) })
}

fn modify_column(master: &Arc<Master>, q: pb::ModifyColumnRequest) -> Result<pb::ModifyColumnResponse> {
    let family = ColumnFamilyDescriptor::try_from(&q.column_families).map_err(illegal)?;
    let id = master.modify_family(name_of(&q.table_name)?, family, (q.nonce_group(), q.nonce()))?;
    Ok(pb::ModifyColumnResponse { proc_id: Some(id) })
}

fn delete_column(master: &Arc<Master>, q: pb::DeleteColumnRequest) -> Result<pb::DeleteColumnResponse> {
    let family = q.column_name.to_vec();
    let id = master.delete_family(name_of(&q.table_name)?, family, (q.nonce_group(), q.nonce()))?;
    Ok(pb::DeleteColumnResponse { proc_id: Some(id) })
}

fn flush_table(master: &Arc<Master>, q: pb::FlushTableRequest) -> Result<pb::FlushTableResponse> {
    let nonce = (q.nonce_group(), q.nonce());
    let id = master.flush_table(name_of(&q.table_name)?, &q.column_family, nonce)?;
    Ok(pb::FlushTableResponse { proc_id: Some(id) })
}
