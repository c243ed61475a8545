//! Lists of tables, their descriptors and their states.

use std::collections::HashSet;
use std::sync::Arc;

use evenkeel_common::{HBaseError, Result, TableName, length};
use evenkeel_protocol::pb;
use evenkeel_region::filter::java_regex;
use regex::Regex;

use super::{Method, methods, name_of};
use crate::meta::TableState;
use crate::{Master, Table};

pub(super) const METHODS: &[Method<Master>] = methods![
    "GetSchemaAlterStatus" => get_schema_alter_status,
    "GetTableDescriptors" => get_table_descriptors,
    "GetTableNames" => get_table_names,
    "GetTableState" => get_table_state,
    "ListTableDescriptorsByNamespace" => list_table_descriptors_by_namespace,
    "ListTableDescriptorsByState" => list_table_descriptors_by_state,
    "ListTableNamesByNamespace" => list_table_names_by_namespace,
    "ListTableNamesByState" => list_table_names_by_state,
];

fn get_table_names(master: &Arc<Master>, q: pb::GetTableNamesRequest) -> Result<pb::GetTableNamesResponse> {
    let tables = select(master, q.regex.as_deref(), q.include_sys_tables(), q.namespace.as_deref())?;
    Ok(pb::GetTableNamesResponse { table_names: names(&tables) })
}

fn list_table_descriptors_by_state(
    master: &Arc<Master>,
    q: pb::ListTableDescriptorsByStateRequest,
) -> Result<pb::ListTableDescriptorsByStateResponse> {
    let table_schema = schemas(master, &by_state(master, q.is_enabled))?;
    Ok(pb::ListTableDescriptorsByStateResponse { table_schema })
}

fn list_table_names_by_state(
    master: &Arc<Master>,
    q: pb::ListTableNamesByStateRequest,
) -> Result<pb::ListTableNamesByStateResponse> {
    Ok(pb::ListTableNamesByStateResponse { table_names: names(&by_state(master, q.is_enabled)) })
}

fn list_table_descriptors_by_namespace(
    master: &Arc<Master>,
    q: pb::ListTableDescriptorsByNamespaceRequest,
) -> Result<pb::ListTableDescriptorsByNamespaceResponse> {
    let tables = in_namespace(master, &q.namespace_name)?;
    Ok(pb::ListTableDescriptorsByNamespaceResponse { table_schema: schemas(master, &tables)? })
}

fn list_table_names_by_namespace(
    master: &Arc<Master>,
    q: pb::ListTableNamesByNamespaceRequest,
) -> Result<pb::ListTableNamesByNamespaceResponse> {
    let table_name = names(&in_namespace(master, &q.namespace_name)?);
    Ok(pb::ListTableNamesByNamespaceResponse { table_name })
}

fn get_table_state(master: &Arc<Master>, q: pb::GetTableStateRequest) -> Result<pb::GetTableStateResponse> {
    let state = master.table(&name_of(&q.table_name)?)?.state;
    Ok(pb::GetTableStateResponse { table_state: pb::TableState { state: state.into() } })
}

fn get_schema_alter_status(
    master: &Arc<Master>,
    q: pb::GetSchemaAlterStatusRequest,
) -> Result<pb::GetSchemaAlterStatusResponse> {
    let total = length::must_u32(master.served_region_count(&name_of(&q.table_name)?));
    Ok(pb::GetSchemaAlterStatusResponse { yet_to_update_regions: Some(0), total_regions: Some(total) })
}

pub(crate) fn get_table_descriptors(
    master: &Arc<Master>,
    q: pb::GetTableDescriptorsRequest,
) -> Result<pb::GetTableDescriptorsResponse> {
    let tables = if q.table_names.is_empty() {
        select(master, q.regex.as_deref(), q.include_sys_tables(), q.namespace.as_deref())?
    } else {
        let mut names = q.table_names.iter().map(name_of).collect::<Result<Vec<_>>>()?;
        let mut seen = HashSet::new();
        names.retain(|name| seen.insert(name.clone()));
        names.iter().filter_map(|name| master.table(name).ok()).collect()
    };
    Ok(pb::GetTableDescriptorsResponse { table_schema: schemas(master, &tables)? })
}

/// Returns those of the named tables whose whole name matches an expression. Without names, those
/// of users, of one namespace or of all.
pub(crate) fn matching(
    master: &Master,
    names: &[TableName],
    regex: Option<&str>,
    namespace: Option<&str>,
) -> Result<Vec<Table>> {
    if names.is_empty() {
        return select(master, regex, false, namespace);
    }
    let matches = name_filter(regex)?;
    Ok(names.iter().filter(|name| matches(name)).filter_map(|name| master.table(name).ok()).collect())
}

/// Returns the tables whose whole name matches an expression, of one namespace or of all.
fn select(master: &Master, regex: Option<&str>, system: bool, namespace: Option<&str>) -> Result<Vec<Table>> {
    let matches = name_filter(regex)?;
    let namespace = namespace.filter(|n| !n.is_empty());
    namespace.map_or(Ok(()), |n| master.namespaces().get(n).map(drop))?;
    let wanted = |table: &Table| {
        let name = table.descriptor.name();
        (system || !name.is_system()) && namespace.is_none_or(|n| n == name.namespace()) && matches(name)
    };
    Ok(master.tables().into_iter().filter(wanted).collect())
}

/// Returns whether an expression matches the whole name of a table, with or without the default
/// namespace.
fn name_filter(regex: Option<&str>) -> Result<impl Fn(&TableName) -> bool> {
    let regex = regex.map(anchored).transpose()?;
    Ok(move |name: &TableName| {
        regex.as_ref().is_none_or(|r| {
            r.is_match(&name.to_string()) || r.is_match(&format!("{}:{}", name.namespace(), name.qualifier()))
        })
    })
}

fn anchored(regex: &str) -> Result<Regex> {
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

fn schemas(master: &Master, tables: &[Table]) -> Result<Vec<pb::TableSchema>> {
    let mut schemas = master.reply_list();
    tables.iter().try_for_each(|table| schemas.push(pb::TableSchema::from(&*table.descriptor)))?;
    Ok(schemas.into_messages())
}
