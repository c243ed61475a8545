//! `create`, `list`, `exists`, `enable`, `disable`, `drop` and related commands.

use bytes::Bytes;
use evenkeel_client::{Admin, Error as ClientError, TableState};
use evenkeel_common::{TableDescriptor, TableName};

use super::{Command, describe, schema};
use crate::args::{self, Args};
use crate::builtin;
use crate::error::{self, CommandError, CommandResult, RubyError};
use crate::shell::Shell;
use crate::text;
use crate::value::{Hash, Value};

pub(super) const COMMANDS: &[Command] = &[
    Command::new(
        "create",
        (1, 1),
        create,
        "Creates a table: create table, and families as names or options, and options of the table (SPLITS, SPLITS_FILE, \
         NUMREGIONS with SPLITALGO, MAX_FILESIZE, CONFIGURATION, METADATA, ...).\n\n  hbase> create 't1', 'f1', 'f2'\n  \
         hbase> create 't1', {NAME => 'f1', VERSIONS => 5, TTL => 86400, COMPRESSION => 'ZSTD'}\n  \
         hbase> create 'ns1:t1', 'f1', SPLITS => ['10', '20', '30']\n  \
         hbase> create 't1', 'f1', {NUMREGIONS => 15, SPLITALGO => 'HexStringSplit'}\n  \
         hbase> create 't1', {NAME => 'f1', CONFIGURATION => {'hbase.hstore.blockingStoreFiles' => '10'}}\n\nReturns a \
         reference to the table; see help 'table_help'.",
    )
    .variadic(),
    Command::new(
        "list",
        (0, 1),
        list,
        "Prints the tables whose whole name matches a regular expression; without an expression, all user tables.\n\n  hbase> list\n  \
         hbase> list 'abc.*'\n  hbase> list 'ns:.*'",
    ),
    Command::new(
        "list_enabled_tables",
        (0, 0),
        list_enabled,
        "Prints the tables that are enabled.\n\n  hbase> list_enabled_tables",
    ),
    Command::new(
        "list_disabled_tables",
        (0, 0),
        list_disabled,
        "Prints the tables that are disabled.\n\n  hbase> list_disabled_tables",
    ),
    Command::new("exists", (1, 1), exists, "Prints whether a table exists.\n\n  hbase> exists 't1'"),
    Command::new("enable", (1, 1), enable, "Enables a table and waits until it is enabled.\n\n  hbase> enable 't1'"),
    Command::new("disable", (1, 1), disable, "Disables a table and waits until it is disabled.\n\n  hbase> disable 't1'"),
    Command::new("drop", (1, 1), drop_table, "Deletes a table, which must be disabled.\n\n  hbase> drop 't1'"),
    Command::new("enable_all", (1, 1), enable_all, "Enables all tables that match, after confirmation.\n\n  hbase> enable_all 't.*'"),
    Command::new("disable_all", (1, 1), disable_all, "Disables all tables that match, after confirmation.\n\n  hbase> disable_all 't.*'"),
    Command::new("drop_all", (1, 1), drop_all, "Deletes all tables that match, after confirmation.\n\n  hbase> drop_all 't.*'"),
    Command::new("is_enabled", (1, 1), is_enabled, "Prints whether a table is enabled.\n\n  hbase> is_enabled 't1'"),
    Command::new("is_disabled", (1, 1), is_disabled, "Prints whether a table is disabled.\n\n  hbase> is_disabled 't1'"),
    Command::new(
        "get_table",
        (1, 1),
        get_table,
        "Returns a reference to a table; see help 'table_help'.\n\n  hbase> t1 = get_table 't1'",
    )
    .variadic(),
    Command::new(
        "clone_table_schema",
        (2, 3),
        clone_table_schema,
        "Creates a table with the families, attributes and, unless false is given, the splits of another one.\n\n  \
         hbase> clone_table_schema 't1', 'new'\n  hbase> clone_table_schema 't1', 'new', false",
    ),
    Command::new(
        "locate_region",
        (2, 2),
        locate_region,
        "Prints the region that holds a row and the server that has it.\n\n  hbase> locate_region 't1', 'row'",
    ),
    Command::new("show_filters", (0, 0), show_filters, "Prints the filters that filter strings can name.\n\n  hbase> show_filters"),
];

/// The state of a table that must exist.
pub(super) fn state(shell: &mut Shell, name: &TableName) -> CommandResult<TableState> {
    let admin = shell.cluster.admin()?;
    let state = shell.wait(admin.table_state(name))?;
    state.ok_or_else(|| ClientError::TableNotFound(name.clone()).into())
}

/// The state of a table; the stock shell's error if there is no such table.
pub(super) fn known_state(shell: &mut Shell, name: &TableName) -> CommandResult<TableState> {
    state(shell, name).map_err(|error| match error {
        CommandError::Client(ClientError::TableNotFound(name)) => {
            RubyError::argument(format!("Table {name} does not exist.")).into()
        }
        other => other,
    })
}

fn create(shell: &mut Shell, args: Args) -> CommandResult {
    let name = args.table(0)?;
    let mut table = TableDescriptor::new(name.clone());
    let mut splits = None;
    for arg in builtin::flatten(args.from(1).to_vec()) {
        match &arg {
            Value::Nil => {}
            Value::Str(_) => table = add_family(shell, table, &arg)?,
            Value::Hash(options) if options.option("NAME").is_some() => {
                table = add_family(shell, table, &arg)?
            }
            Value::Hash(options) => {
                let mut options = options.clone();
                table = table_options(shell, table, &mut options, &mut splits)?;
            }
            other => return Err(neither_hash_nor_string(other)),
        }
    }
    if table.families().len() == 0 {
        return Err(RubyError::argument("Table must have at least one column family").into());
    }
    let splits: Vec<Bytes> = splits.unwrap_or_default().into_iter().map(Bytes::from).collect();
    let admin = shell.cluster.admin()?;
    shell.wait(admin.create_table(&table, &splits))?;
    shell.out.line(format!("Created table {name}"))?;
    Ok(Value::Table(name))
}

pub(super) fn neither_hash_nor_string(value: &Value) -> CommandError {
    let message = format!("{} of {} is not of Hash or String type", value.class(), value.inspect());
    RubyError::argument(message).into()
}

fn add_family(shell: &mut Shell, table: TableDescriptor, arg: &Value) -> CommandResult<TableDescriptor> {
    let family = schema::family(&mut shell.out, arg, None)?;
    if table.family(family.name()).is_some() {
        let name = family.name_text();
        shell.out.line(format!("Family '{name}' already exists, the old one will be replaced"))?;
    }
    Ok(table.with_family(family))
}

fn table_options(
    shell: &mut Shell,
    table: TableDescriptor,
    options: &mut Hash,
    splits: &mut Option<Vec<Vec<u8>>>,
) -> CommandResult<TableDescriptor> {
    if options.take("METHOD").is_some_and(|method| !method.is_named("table_att")) {
        return Err(RubyError::argument("table_att is currently the only supported method").into());
    }
    let file = options.option("SPLITS_FILE").map(Value::to_text);
    if let Some(keys) = schema::splits(options)? {
        *splits = Some(keys);
    }
    let mut table = schema::table_attributes(table, options)?;
    if let Some(file) = file {
        table = table.with("SPLITS_FILE", &file);
    }
    for (key, _) in options.pairs() {
        shell.out.line(format!("An argument ignored (unknown or overridden): {}", key.to_text()))?;
    }
    Ok(table)
}

/// Returns the user tables whose names match a regular expression.
fn matching(shell: &mut Shell, regex: &str) -> CommandResult<Vec<TableName>> {
    let admin = shell.cluster.admin()?;
    shell.wait(admin.list_tables_matching(Some(regex), false))
}

fn list(shell: &mut Shell, args: Args) -> CommandResult {
    let regex = args.optional_text(0).unwrap_or_else(|| ".*".to_owned());
    shell.out.header(&["TABLE"])?;
    let names = matching(shell, &regex)?;
    show_names(shell, &names)
}

fn list_enabled(shell: &mut Shell, _: Args) -> CommandResult {
    list_by_state(shell, true)
}

fn list_disabled(shell: &mut Shell, _: Args) -> CommandResult {
    list_by_state(shell, false)
}

fn list_by_state(shell: &mut Shell, enabled: bool) -> CommandResult {
    shell.out.header(&["TABLE"])?;
    let admin = shell.cluster.admin()?;
    let names = shell.wait(admin.list_tables_by_state(enabled))?;
    show_names(shell, &names)
}

fn show_names(shell: &mut Shell, names: &[TableName]) -> CommandResult {
    let names: Vec<String> = names.iter().map(TableName::to_string).collect();
    for name in &names {
        shell.out.row(&[name])?;
    }
    shell.out.footer(names.len())?;
    Ok(Value::texts(names))
}

fn exists(shell: &mut Shell, args: Args) -> CommandResult {
    let name = args.table(0)?;
    let admin = shell.cluster.admin()?;
    let exists = shell.wait(admin.table_state(&name))?.is_some();
    shell.out.row(&[&format!("Table {name} {}", if exists { "does exist" } else { "does not exist" })])?;
    Ok(Value::Bool(exists))
}

fn enable(shell: &mut Shell, args: Args) -> CommandResult {
    let name = args.table(0)?;
    if known_state(shell, &name)? != TableState::Enabled {
        let admin = shell.cluster.admin()?;
        shell.wait(admin.enable_table(&name))?;
    }
    Ok(Value::Nil)
}

fn disable(shell: &mut Shell, args: Args) -> CommandResult {
    let name = args.table(0)?;
    if known_state(shell, &name)? != TableState::Disabled {
        let admin = shell.cluster.admin()?;
        shell.wait(admin.disable_table(&name))?;
    }
    Ok(Value::Nil)
}

fn drop_table(shell: &mut Shell, args: Args) -> CommandResult {
    let name = args.table(0)?;
    if known_state(shell, &name)? == TableState::Enabled {
        return Err(RubyError::argument(format!("Table {name} is enabled. Disable it first.")).into());
    }
    let admin = shell.cluster.admin()?;
    shell.wait(admin.delete_table(&name))?;
    Ok(Value::Nil)
}

/// A command on many tables: its function and its messages.
struct BulkOperation {
    verb: &'static str,
    done: &'static str,
    act: for<'a> fn(&'a Shell, &'a Admin, &'a TableName) -> CommandResult<()>,
}

fn enable_all(shell: &mut Shell, args: Args) -> CommandResult {
    let act = |shell: &Shell, admin: &Admin, name: &TableName| shell.cluster.wait(admin.enable_table(name));
    for_all(shell, &args, &BulkOperation { verb: "Enable", done: "enabled", act })
}

fn disable_all(shell: &mut Shell, args: Args) -> CommandResult {
    let act = |shell: &Shell, admin: &Admin, name: &TableName| shell.cluster.wait(admin.disable_table(name));
    for_all(shell, &args, &BulkOperation { verb: "Disable", done: "disabled", act })
}

fn drop_all(shell: &mut Shell, args: Args) -> CommandResult {
    let act = |shell: &Shell, admin: &Admin, name: &TableName| shell.cluster.wait(admin.delete_table(name));
    for_all(shell, &args, &BulkOperation { verb: "Drop", done: "dropped", act })
}

/// Prints the tables whose names match, and asks whether to change that number of them. Returns
/// none if none matches or the answer is no.
pub(super) fn confirmed(
    shell: &mut Shell,
    regex: &str,
    question: impl FnOnce(usize) -> String,
) -> CommandResult<Vec<TableName>> {
    let names = matching(shell, regex)?;
    for name in &names {
        shell.out.row(&[&name.to_string()])?;
    }
    if names.is_empty() {
        shell.out.line(format!("No tables matched the regex {regex}"))?;
        return Ok(names);
    }
    Ok(if shell.confirm(&question(names.len()))? { names } else { Vec::new() })
}

fn for_all(shell: &mut Shell, args: &Args, what: &BulkOperation) -> CommandResult {
    let question = |count| format!("\n{} the above {count} tables (y/n)?", what.verb);
    let names = confirmed(shell, &args.text(0), question)?;
    if names.is_empty() {
        return Ok(Value::Nil);
    }
    let admin = shell.cluster.admin()?;
    let mut failed = Vec::new();
    for name in &names {
        match (what.act)(shell, &admin, name) {
            Ok(()) => {}
            Err(CommandError::Client(error)) => {
                shell
                    .out
                    .line(format!("table:{name}, error:{}", error::describe(&error, &name.to_string())))?;
                failed.push(name.to_string());
            }
            Err(other) => return Err(other),
        }
    }
    shell.out.line(format!("{} tables successfully {}", names.len() - failed.len(), what.done))?;
    if !failed.is_empty() {
        let (count, names) = (failed.len(), failed.join(","));
        shell.out.line(format!("{count} tables not {} due to an exception: {names}", what.done))?;
    }
    Ok(Value::Nil)
}

fn is_enabled(shell: &mut Shell, args: Args) -> CommandResult {
    let enabled = state(shell, &args.table(0)?)? == TableState::Enabled;
    shell.out.row(&[&enabled.to_string()])?;
    Ok(Value::Bool(enabled))
}

fn is_disabled(shell: &mut Shell, args: Args) -> CommandResult {
    let disabled = state(shell, &args.table(0)?)? == TableState::Disabled;
    shell.out.row(&[&disabled.to_string()])?;
    Ok(Value::Bool(disabled))
}

fn get_table(_: &mut Shell, args: Args) -> CommandResult {
    Ok(Value::Table(args.table(0)?))
}

fn clone_table_schema(shell: &mut Shell, args: Args) -> CommandResult {
    let (from, to) = (args.table(0)?, args.table(1)?);
    let preserve_splits = *args.get(2) == Value::Nil || args::flag(args.get(2));
    let admin = shell.cluster.admin()?;
    state(shell, &from)?;
    let old = shell.wait(admin.describe(&from))?;
    let fresh = TableDescriptor::new(to).with_attributes(old.attributes().clone());
    let fresh = old.families().cloned().fold(fresh, TableDescriptor::with_family);
    let regions = match preserve_splits {
        true => shell.wait(admin.regions(&from))?,
        false => Vec::new(),
    };
    let starts = regions.iter().map(|state| state.region.start_key().clone());
    let splits: Vec<Bytes> = starts.filter(|start| !start.is_empty()).collect();
    shell.wait(admin.create_table(&fresh, &splits))?;
    Ok(Value::Nil)
}

fn locate_region(shell: &mut Shell, args: Args) -> CommandResult {
    let (name, row) = (args.table(0)?, text::from_binary(&args.bytes(1)));
    let connection = shell.cluster.connection()?;
    let location = shell.wait(connection.locate(&name, &row, true))?;
    shell.out.header(&["HOST", "REGION"])?;
    shell.out.row(&[&location.server.host_port(), &text::region(&location.region)])?;
    shell.out.footer(1)?;
    Ok(Value::Java(format!("#<HRegionLocation: {}>", location.server)))
}

fn show_filters(shell: &mut Shell, _: Args) -> CommandResult {
    let names = describe::java_map_order(evenkeel_client::filter::supported().iter().copied());
    for name in &names {
        shell.out.row(&[name])?;
    }
    Ok(Value::Java(format!("#<Java::JavaUtil::HashMap::KeySet: {}>", Value::texts(names).inspect())))
}
