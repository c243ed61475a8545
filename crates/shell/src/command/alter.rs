//! `alter`, `alter_async`, `alter_status`.

use std::collections::BTreeMap;

use evenkeel_client::admin::ClusterOption;
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};

use super::ddl::neither_hash_nor_string;
use super::{Command, schema};
use crate::args::Args;
use crate::error::{CommandResult, RubyError};
use crate::output::Output;
use crate::shell::Shell;
use crate::value::{Hash, Value};

pub(super) const COMMANDS: &[Command] = &[
    Command::new(
        "alter",
        (1, 1),
        alter,
        "Changes a table and waits until all its regions have the change: alter table, and families as names or options, \
         families to delete, and options of the table.\n\n  hbase> alter 't1', NAME => 'f1', VERSIONS => 5\n  \
         hbase> alter 't1', 'f1', {NAME => 'f2', IN_MEMORY => true}\n  hbase> alter 't1', NAME => 'f1', METHOD => 'delete'\n  \
         hbase> alter 't1', 'delete' => 'f1'\n  hbase> alter 't1', MAX_FILESIZE => '134217728'\n  \
         hbase> alter 't1', METHOD => 'table_att_unset', NAME => 'MAX_FILESIZE'\n  \
         hbase> alter 't1', CONFIGURATION => {'hbase.hregion.scan.loadColumnFamiliesOnDemand' => 'true'}\n  \
         hbase> alter 't1', METHOD => 'table_conf_unset', NAME => 'hbase.hregion.majorcompaction'\n  \
         hbase> alter 't1', 'coprocessor' => 'hdfs:///foo.jar|com.foo.Observer|1001|arg1=1'",
    )
    .variadic(),
    Command::new(
        "alter_async",
        (1, 1),
        alter_async,
        "Changes a table as alter does, without watching its regions.\n\n  hbase> alter_async 't1', NAME => 'f1', VERSIONS => 5",
    )
    .variadic(),
    Command::new(
        "alter_status",
        (1, 1),
        alter_status,
        "Prints how many regions of a table are up to date, until all are.\n\n  hbase> alter_status 't1'",
    ),
];

fn alter(shell: &mut Shell, args: Args) -> CommandResult {
    if let Some(name) = change(shell, &args)? {
        shell.out.line("Updating all regions with the new schema...")?;
        watch(shell, &name)?;
    }
    Ok(Value::Nil)
}

fn alter_async(shell: &mut Shell, args: Args) -> CommandResult {
    change(shell, &args)?;
    Ok(Value::Nil)
}

fn alter_status(shell: &mut Shell, args: Args) -> CommandResult {
    let name = existing(shell, &args)?;
    watch(shell, &name)?;
    Ok(Value::Nil)
}

fn existing(shell: &mut Shell, args: &Args) -> CommandResult<TableName> {
    let name = args.table(0)?;
    let admin = shell.cluster.admin()?;
    match shell.wait(admin.table_state(&name))? {
        Some(_) => Ok(name),
        None => Err(RubyError::argument(format!("Can't find a table: {name}")).into()),
    }
}

/// Changes the table; returns its name if there was a change.
fn change(shell: &mut Shell, args: &Args) -> CommandResult<Option<TableName>> {
    let name = existing(shell, args)?;
    if args.len() == 1 {
        return Err(RubyError::argument("There should be at least one argument but the table name").into());
    }
    let admin = shell.cluster.admin()?;
    let mut table = shell.wait(admin.describe(&name))?;
    for arg in args.from(1) {
        table = apply(&mut shell.out, table, arg)?;
    }
    shell.out.flush()?;
    shell.wait(admin.modify_table(&table))?;
    Ok(Some(name))
}

fn apply(out: &mut Output, table: TableDescriptor, arg: &Value) -> CommandResult<TableDescriptor> {
    let mut options = match arg {
        Value::Str(_) => return set_family(out, table, arg),
        Value::Hash(options) => options.clone(),
        other => return Err(neither_hash_nor_string(other)),
    };
    if let Some(family) = options.take("delete") {
        return Ok(without_family(table, &family));
    }
    let method = options.take("METHOD").map(|method| method.to_text());
    match method.as_deref() {
        None if options.option("NAME").is_some() => set_family(out, table, &Value::Hash(options)),
        None | Some("table_att") => set_table(out, table, options),
        Some(method) => unset(out, table, method, options),
    }
}

fn set_family(out: &mut Output, table: TableDescriptor, arg: &Value) -> CommandResult<TableDescriptor> {
    let name = match arg {
        Value::Hash(options) => options.option("NAME").cloned().unwrap_or_default().to_bytes(),
        other => other.to_bytes(),
    };
    let old: Option<ColumnFamilyDescriptor> = table.family(&name).cloned();
    let family = match (arg, &old) {
        (Value::Str(_), Some(old)) => old.clone(),
        _ => schema::family(out, arg, old.as_ref())?,
    };
    Ok(table.with_family(family))
}

fn without_family(mut table: TableDescriptor, family: &Value) -> TableDescriptor {
    table.remove_family(&family.to_bytes());
    table
}

fn unset(
    out: &mut Output,
    table: TableDescriptor,
    method: &str,
    mut options: Hash,
) -> CommandResult<TableDescriptor> {
    let what = match method {
        "delete" => "",
        "table_att_unset" | "table_remove_coprocessor" => "attribute",
        "table_conf_unset" => "configuration",
        other => return Err(RubyError::argument(format!("Unknown method: {other}")).into()),
    };
    let Some(name) = options.take("NAME") else {
        return Err(RubyError::argument(format!("NAME parameter missing for {method} method")).into());
    };
    let changed = match method {
        "delete" => without_family(table, &name),
        _ => remove(table, &name, what)?,
    };
    for (key, _) in options.pairs() {
        out.line(format!("Unknown argument ignored: {}", key.to_text()))?;
    }
    Ok(changed)
}

/// Removes attributes; a table's configuration is stored among them.
fn remove(table: TableDescriptor, name: &Value, what: &str) -> CommandResult<TableDescriptor> {
    let names = crate::builtin::flatten(vec![name.clone()]);
    let mut attributes = table.attributes().clone();
    for name in names {
        if attributes.remove(&name.to_bytes()).is_none() {
            return Err(RubyError::argument(format!("Could not find {what}: {}", name.to_text())).into());
        }
    }
    Ok(table.with_attributes(attributes))
}

fn set_table(out: &mut Output, table: TableDescriptor, mut options: Hash) -> CommandResult<TableDescriptor> {
    let mut table = schema::table_attributes(table, &mut options)?;
    for (key, value) in options.pairs() {
        let key = key.to_text();
        match key.to_lowercase().contains("coprocessor") {
            true => table = with_coprocessor(table, value.to_text().trim())?,
            false => out.line(format!("Unknown argument ignored: {key}"))?,
        }
    }
    Ok(table)
}

/// Adds a coprocessor under the next number (`coprocessor$N`).
fn with_coprocessor(table: TableDescriptor, spec: &str) -> CommandResult<TableDescriptor> {
    if spec.split('|').count() < 2 {
        let message = format!("{spec:?} is not a coprocessor: expected path|class|priority|arguments");
        return Err(RubyError::argument(message).into());
    }
    let numbers: BTreeMap<u32, ()> = table
        .attributes()
        .keys()
        .filter_map(|key| std::str::from_utf8(key).ok()?.strip_prefix("coprocessor$")?.parse().ok())
        .map(|number| (number, ()))
        .collect();
    let next = numbers.keys().last().map_or(1, |last| last.saturating_add(1));
    Ok(table.with(&format!("coprocessor${next}"), spec))
}

/// Prints the number of up-to-date regions each second, until none is in transition.
fn watch(shell: &mut Shell, name: &TableName) -> CommandResult<()> {
    let admin = shell.cluster.admin()?;
    loop {
        let metrics = shell.wait(admin.cluster_metrics(&[ClusterOption::TableToRegionsCount]))?;
        let counts = metrics.tables.get(name).copied().unwrap_or_default();
        match counts.total {
            0 => shell.out.line("All regions updated.")?,
            total => {
                let updated = total.saturating_sub(counts.in_transition).saturating_sub(counts.closed);
                shell.out.line(format!("{updated}/{total} regions updated."))?;
            }
        }
        shell.out.flush()?;
        if counts.in_transition == 0 {
            break;
        }
        shell.cluster.sleep(1.0)?;
    }
    shell.out.line("Done.")?;
    Ok(())
}
