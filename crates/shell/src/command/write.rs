//! `put`, `delete`, `deleteall`, `incr`, `append`, `truncate`: commands that change data.

use evenkeel_client::{Action, Append, Delete, Increment, Put, Scan, TableState};
use evenkeel_common::TableName;
use evenkeel_common::cell::LATEST_TIMESTAMP;

use super::Command;
use super::column::Column;
use super::ddl;
use crate::args::{self, Args};
use crate::error::{CommandResult, RubyError};
use crate::shell::Shell;
use crate::text;
use crate::value::{Hash, Value};

/// Rows that `deleteall` with a prefix deletes in one call, by default (`CACHE`).
const DELETES_PER_CALL: usize = 100;

/// The attribute that carries a mutation's time to live in milliseconds
/// (`Mutation.OP_ATTRIBUTE_TTL`).
const TTL_ATTRIBUTE: &str = "_ttl";

pub(super) const COMMANDS: &[Command] = &[
    Command::new(
        "put",
        (4, 6),
        put,
        "Writes a cell: put table, row, column, value, and a timestamp in milliseconds or options (ATTRIBUTES, TTL in \
         milliseconds).\n\n  hbase> put 't1', 'r1', 'f:q', 'value'\n  hbase> put 't1', 'r1', 'f:q', 'value', 1700000000000\n  \
         hbase> put 't1', 'r1', 'f:q', 'value', {TTL => 5000}\n  hbase> t.put 'r1', 'f:q', 'value'",
    ),
    Command::new(
        "delete",
        (3, 5),
        delete,
        "Deletes the newest version of a column, or the version of a timestamp: delete table, row, column, timestamp.\n\n  \
         hbase> delete 't1', 'r1', 'f:q'\n  hbase> delete 't1', 'r1', 'f:q', 1700000000000",
    ),
    Command::new(
        "deleteall",
        (2, 5),
        deleteall,
        "Deletes a row, a family or all versions of a column, up to a timestamp if one is given; or all rows of a prefix: \
         deleteall table, row, column, timestamp.\n\n  hbase> deleteall 't1', 'r1'\n  hbase> deleteall 't1', 'r1', 'f:q'\n  \
         hbase> deleteall 't1', 'r1', 'f:q', 1700000000000\n  hbase> deleteall 't1', {ROWPREFIXFILTER => 'prefix'}\n  \
         hbase> deleteall 't1', {ROWPREFIXFILTER => 'prefix', CACHE => 1000}, 'f:q'",
    ),
    Command::new(
        "incr",
        (3, 5),
        incr,
        "Adds to a counter, 1 unless a number is given, and prints it: incr table, row, column, number.\n\n  \
         hbase> incr 't1', 'r1', 'f:q'\n  hbase> incr 't1', 'r1', 'f:q', -10",
    ),
    Command::new(
        "append",
        (4, 5),
        append,
        "Appends to a value and prints it: append table, row, column, value.\n\n  hbase> append 't1', 'r1', 'f:q', 'more'",
    ),
    Command::new(
        "truncate",
        (1, 1),
        truncate,
        "Empties a table, which loses its split points: it is disabled, truncated and enabled.\n\n  hbase> truncate 't1'",
    ),
    Command::new(
        "truncate_preserve",
        (1, 1),
        truncate_preserve,
        "Empties a table and keeps its split points.\n\n  hbase> truncate_preserve 't1'",
    ),
];

/// The column of an argument, without a formatter.
fn column(value: &Value) -> Column {
    Column::parse(&value.to_bytes()).0
}

/// The attributes in the options of a mutation.
fn attributes(options: &Hash) -> CommandResult<Vec<(String, Vec<u8>)>> {
    if options.option("VISIBILITY").is_some() {
        return Err(RubyError::runtime("VISIBILITY is not supported by this shell").into());
    }
    let mut all = attributes_of(options.option("ATTRIBUTES"))?;
    if let Some(ttl) = options.option("TTL") {
        all.push((TTL_ATTRIBUTE.to_owned(), args::number("TTL", ttl)?.to_be_bytes().to_vec()));
    }
    Ok(all)
}

/// The pairs of the option `ATTRIBUTES`.
pub(super) fn attributes_of(value: Option<&Value>) -> CommandResult<Vec<(String, Vec<u8>)>> {
    match value {
        None | Some(Value::Nil) => Ok(Vec::new()),
        Some(Value::Hash(pairs)) => {
            Ok(pairs.pairs().iter().map(|(key, value)| (key.to_text(), value.to_bytes())).collect())
        }
        Some(_) => Err(RubyError::argument("Attributes must be a Hash type").into()),
    }
}

/// The timestamp and the options after a mutation's fixed arguments. Options may stand in the
/// timestamp's position.
fn timestamp_and_options(args: &Args, at: usize) -> CommandResult<(Option<i64>, Hash)> {
    if let Value::Hash(options) = args.get(at) {
        return Ok((None, options.clone()));
    }
    let timestamp = match args.get(at) {
        Value::Nil => None,
        value => Some(args::number("TIMESTAMP", value)?),
    };
    Ok((timestamp, args.hash(at + 1)?))
}

fn put(shell: &mut Shell, args: Args) -> CommandResult {
    let (table, column) = (args.table(0)?, column(args.get(2)));
    let (timestamp, options) = timestamp_and_options(&args, 4)?;
    let (row, value) = (row(args.get(1))?, args.bytes(3));
    let mut put = Put::new(row);
    for (name, value) in attributes(&options)? {
        put = put.attribute(&name, value);
    }
    put = match timestamp {
        Some(timestamp) => put.column_at(&column.family, column.qualifier(), timestamp, value),
        None => put.column(&column.family, column.qualifier(), value),
    };
    let table = shell.cluster.table(table)?;
    shell.wait(table.put(put))?;
    Ok(Value::Nil)
}

/// The row of an argument; must not be empty.
pub(super) fn row(value: &Value) -> CommandResult<Vec<u8>> {
    let row = value.to_bytes();
    match row.is_empty() {
        true => Err(RubyError::argument("Row length is 0").into()),
        false => Ok(row),
    }
}

/// The cells of a row to delete.
struct DeleteTarget {
    column: Option<Column>,
    timestamp: Option<i64>,
    /// All versions, or only one.
    all: bool,
}

impl DeleteTarget {
    fn of(args: &Args, all: bool) -> CommandResult<Self> {
        let column = match args.get(2) {
            Value::Nil => None,
            value if value.to_bytes().is_empty() => None,
            value => Some(column(value)),
        };
        let (timestamp, options) = timestamp_and_options(args, 3)?;
        attributes(&options)?;
        Ok(Self { column, timestamp, all })
    }

    fn delete(&self, row: &[u8]) -> Delete {
        let delete = Delete::new(row);
        let timestamp = self.timestamp.unwrap_or(LATEST_TIMESTAMP);
        let Some(Column { family, qualifier }) = &self.column else {
            return match self.timestamp {
                Some(timestamp) => delete.up_to(timestamp),
                None => delete,
            };
        };
        match (qualifier, self.all) {
            (Some(qualifier), true) => delete.column_up_to(family, qualifier, timestamp),
            (Some(qualifier), false) => delete.version(family, qualifier, timestamp),
            (None, true) => delete.family_up_to(family, timestamp),
            (None, false) => delete.family_version(family, timestamp),
        }
    }
}

fn delete(shell: &mut Shell, args: Args) -> CommandResult {
    let doomed = DeleteTarget::of(&args, false)?;
    delete_row(shell, &args, &doomed)
}

fn deleteall(shell: &mut Shell, args: Args) -> CommandResult {
    let doomed = DeleteTarget::of(&args, true)?;
    let Value::Hash(options) = args.get(1) else { return delete_row(shell, &args, &doomed) };
    let name = args.table(0)?;
    if name.is_meta() {
        return Err(
            RubyError::argument("deleteall with ROWPREFIXFILTER in hbase:meta is not allowed.").into()
        );
    }
    let Some(prefix) = options.option("ROWPREFIXFILTER") else {
        return Err(RubyError::argument("ROWPREFIXFILTER is missing").into());
    };
    let per_call = options.option("CACHE").map(|cache| args::natural("CACHE", cache)).transpose()?;
    let per_call = per_call.map_or(DELETES_PER_CALL, |rows| rows.clamp(1, 100_000) as usize);
    delete_prefix(shell, name, &prefix.to_bytes(), per_call, &doomed)
}

fn delete_row(shell: &mut Shell, args: &Args, doomed: &DeleteTarget) -> CommandResult {
    let delete = doomed.delete(&row(args.get(1))?);
    let table = shell.cluster.table(args.table(0)?)?;
    shell.wait(table.delete(delete))?;
    Ok(Value::Nil)
}

fn delete_prefix(
    shell: &mut Shell,
    name: TableName,
    prefix: &[u8],
    per_call: usize,
    doomed: &DeleteTarget,
) -> CommandResult {
    let table = shell.cluster.table(name)?;
    let mut scanner = table.scan(prefix_scan(Scan::new(), prefix));
    let mut waiting: Vec<Action> = Vec::new();
    loop {
        let row = shell.wait(scanner.next())?;
        let done = row.is_none();
        waiting.extend(row.and_then(|row| row.row().map(|row| doomed.delete(row).into())));
        if waiting.len() >= per_call || done {
            let batch = std::mem::take(&mut waiting);
            let results = shell.wait(async { Ok(table.batch(batch).await) })?;
            results.into_iter().collect::<Result<Vec<_>, _>>()?;
        }
        if done {
            return Ok(Value::Nil);
        }
    }
}

/// The rows with a prefix: from the prefix up to the next one of its length.
pub(super) fn prefix_scan(scan: Scan, prefix: &[u8]) -> Scan {
    let kept = prefix.iter().rposition(|byte| *byte != 0xff).map_or(0, |at| at + 1);
    let mut stop = prefix[..kept].to_vec();
    if let Some(last) = stop.last_mut() {
        *last += 1;
    }
    scan.from(prefix).to(stop)
}

fn incr(shell: &mut Shell, args: Args) -> CommandResult {
    let column = column(args.get(2));
    let (amount, options) = match args.get(3) {
        Value::Hash(options) => (1, options.clone()),
        Value::Nil => (1, args.hash(4)?),
        amount => (args::number("VALUE", amount)?, args.hash(4)?),
    };
    let mut increment = Increment::new(row(args.get(1))?);
    for (name, value) in attributes(&options)? {
        increment = increment.attribute(&name, value);
    }
    increment = increment.column(&column.family, column.qualifier(), amount);
    let table = shell.cluster.table(args.table(0)?)?;
    let result = shell.wait(table.increment(increment))?;
    match result.counter(&column.family, column.qualifier()) {
        Some(count) => shell.out.line(format!("COUNTER VALUE = {count}"))?,
        None => shell.out.line("No counter found at specified coordinates")?,
    }
    Ok(Value::Nil)
}

fn append(shell: &mut Shell, args: Args) -> CommandResult {
    let column = column(args.get(2));
    let mut append = Append::new(row(args.get(1))?);
    for (name, value) in attributes(&args.hash(4)?)? {
        append = append.attribute(&name, value);
    }
    append = append.column(&column.family, column.qualifier(), args.bytes(3));
    let table = shell.cluster.table(args.table(0)?)?;
    let result = shell.wait(table.append(append))?;
    if let Some(value) = result.value(&column.family, column.qualifier()) {
        shell.out.line(format!("CURRENT VALUE = {}", text::binary(value)))?;
    }
    Ok(Value::Nil)
}

fn truncate(shell: &mut Shell, args: Args) -> CommandResult {
    empty(shell, &args, false)
}

fn truncate_preserve(shell: &mut Shell, args: Args) -> CommandResult {
    empty(shell, &args, true)
}

fn empty(shell: &mut Shell, args: &Args, preserve_splits: bool) -> CommandResult {
    let name = args.table(0)?;
    shell.out.line(format!("Truncating '{name}' table (it may take a while):"))?;
    let admin = shell.cluster.admin()?;
    if ddl::state(shell, &name)? == TableState::Enabled {
        shell.out.line("Disabling table...")?;
        shell.out.flush()?;
        shell.wait(admin.disable_table(&name))?;
    }
    shell.out.line("Truncating table...")?;
    shell.out.flush()?;
    shell.wait(admin.truncate_table(&name, preserve_splits))?;
    Ok(Value::Nil)
}
