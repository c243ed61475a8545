//! Namespaces.

use evenkeel_client::Admin;
use evenkeel_client::admin::{NamespaceDescriptor, QuotaFilter};
use regex::Regex;

use super::describe::quota_table;
use super::{Command, ddl, quotas};
use crate::args::Args;
use crate::builtin;
use crate::error::{CommandResult, RubyError};
use crate::shell::Shell;
use crate::value::Value;

pub(super) const COMMANDS: &[Command] = &[
    Command::new(
        "create_namespace",
        (1, 1),
        create,
        "Creates a namespace, with settings if any are given.\n\n  hbase> create_namespace 'ns1'\n  \
         hbase> create_namespace 'ns1', {'hbase.namespace.quota.maxtables' => '5'}",
    )
    .variadic(),
    Command::new(
        "alter_namespace",
        (1, 1),
        alter,
        "Sets or removes settings of a namespace.\n\n  \
         hbase> alter_namespace 'ns1', {METHOD => 'set', 'PROPERTY_NAME' => 'PROPERTY_VALUE'}\n  \
         hbase> alter_namespace 'ns1', {METHOD => 'unset', NAME => 'PROPERTY_NAME'}",
    )
    .variadic(),
    Command::new(
        "describe_namespace",
        (1, 1),
        describe,
        "Prints a namespace's settings.\n\n  hbase> describe_namespace 'ns1'",
    ),
    Command::new(
        "drop_namespace",
        (1, 1),
        drop_namespace,
        "Deletes a namespace, which must be empty.\n\n  hbase> drop_namespace 'ns1'",
    ),
    Command::new(
        "list_namespace",
        (0, 1),
        list,
        "Prints the namespaces whose whole name matches a regular expression.\n\n  hbase> list_namespace\n  \
         hbase> list_namespace 'abc.*'",
    ),
    Command::new(
        "list_namespace_tables",
        (1, 1),
        list_tables,
        "Prints the tables of a namespace.\n\n  hbase> list_namespace_tables 'ns1'",
    ),
];

fn name(args: &Args) -> CommandResult<String> {
    match args.get(0) {
        Value::Str(_) | Value::Symbol(_) => Ok(args.text(0)),
        _ => Err(RubyError::argument("Namespace name must be of type String").into()),
    }
}

fn create(shell: &mut Shell, args: Args) -> CommandResult {
    let mut namespace = NamespaceDescriptor::new(&name(&args)?);
    for arg in builtin::flatten(args.from(1).to_vec()) {
        let Value::Hash(settings) = &arg else { return Err(ddl::neither_hash_nor_string(&arg)) };
        for (key, value) in settings.pairs() {
            namespace = namespace.with(&key.to_text(), &value.to_text());
        }
    }
    let admin = shell.cluster.admin()?;
    shell.wait(admin.create_namespace(&namespace))?;
    Ok(Value::Nil)
}

fn alter(shell: &mut Shell, args: Args) -> CommandResult {
    let admin: Admin = shell.cluster.admin()?;
    let mut namespace = shell.wait(admin.describe_namespace(&name(&args)?))?;
    for arg in builtin::flatten(args.from(1).to_vec()) {
        let Value::Hash(settings) = &arg else { return Err(ddl::neither_hash_nor_string(&arg)) };
        let mut settings = settings.clone();
        match settings.take("METHOD").map(|method| method.to_text()).as_deref() {
            Some("unset") => {
                let name = settings.take("NAME").unwrap_or_default().to_text();
                namespace.configuration.remove(&name);
            }
            Some("set") => {
                let pairs = settings.pairs().iter().map(|(key, value)| (key.to_text(), value.to_text()));
                namespace.configuration.extend(pairs);
            }
            method => {
                return Err(
                    RubyError::argument(format!("Unknown method {}", method.unwrap_or_default())).into()
                );
            }
        }
    }
    shell.wait(admin.modify_namespace(&namespace))?;
    Ok(Value::Nil)
}

fn describe(shell: &mut Shell, args: Args) -> CommandResult {
    let admin = shell.cluster.admin()?;
    let namespace = shell.wait(admin.describe_namespace(&args.text(0)))?;
    let settings: String =
        namespace.configuration.iter().map(|(key, value)| format!(", {key} => '{value}'")).collect();
    shell.out.header(&["DESCRIPTION"])?;
    shell.out.row(&[&format!("{{NAME => '{}'{settings}}}", namespace.name)])?;
    if shell.wait(admin.table_state(&quota_table()))?.is_none() {
        shell.out.line("Quota is disabled")?;
    } else {
        let filter = QuotaFilter { namespace: Some(namespace.name), ..QuotaFilter::default() };
        // The stock shell prints the value of its header.
        quotas::list_of(shell, &filter, &["QUOTAS", "0"])?;
    }
    Ok(Value::Nil)
}

fn drop_namespace(shell: &mut Shell, args: Args) -> CommandResult {
    let admin = shell.cluster.admin()?;
    shell.wait(admin.delete_namespace(&args.text(0)))?;
    Ok(Value::Nil)
}

/// A regular expression that must match the whole name.
pub(super) fn anchored(regex: &str) -> CommandResult<Regex> {
    let pattern = Regex::new(&format!("^(?:{regex})$"));
    pattern.map_err(|_| RubyError::argument(format!("not a regular expression: {regex}")).into())
}

fn list(shell: &mut Shell, args: Args) -> CommandResult {
    let regex = anchored(&args.optional_text(0).unwrap_or_else(|| ".*".to_owned()))?;
    shell.out.header(&["NAMESPACE"])?;
    let admin = shell.cluster.admin()?;
    let all = shell.wait(admin.list_namespaces())?;
    let names: Vec<_> =
        all.into_iter().map(|namespace| namespace.name).filter(|name| regex.is_match(name)).collect();
    for name in &names {
        shell.out.row(&[name])?;
    }
    shell.out.footer(names.len())?;
    Ok(Value::Nil)
}

fn list_tables(shell: &mut Shell, args: Args) -> CommandResult {
    shell.out.header(&["TABLE"])?;
    let admin = shell.cluster.admin()?;
    let tables = shell.wait(admin.list_namespace_tables(&args.text(0)))?;
    let names: Vec<String> = tables.iter().map(|table| table.qualifier().to_owned()).collect();
    for name in &names {
        shell.out.row(&[name])?;
    }
    shell.out.footer(names.len())?;
    Ok(Value::texts(names))
}
