//! Snapshots.

use evenkeel_client::admin::SnapshotDescription;
use evenkeel_common::HBaseError;
use evenkeel_common::clock::{Clock, SystemClock};
use evenkeel_common::names::check_qualifier;

use super::Command;
use super::namespace::anchored;
use crate::args::{self, Args};
use crate::error::{CommandError, CommandResult, RubyError, describe};
use crate::shell::Shell;
use crate::text;
use crate::value::Value;

/// Enables the failsafe snapshot before a restore; false by default (`admin.rb`).
const FAILSAFE_KEY: &str = "hbase.snapshot.restore.take.failsafe.snapshot";

pub(super) const COMMANDS: &[Command] = &[
    Command::new(
        "snapshot",
        (2, 2),
        snapshot,
        "Takes a snapshot of a table: snapshot table, name, and options (SKIP_FLUSH, TTL in seconds, MAX_FILESIZE).\n\n  \
         hbase> snapshot 't1', 'snap1'\n  hbase> snapshot 't1', 'snap1', {SKIP_FLUSH => true}\n  \
         hbase> snapshot 't1', 'snap1', {TTL => 86400}",
    )
    .variadic(),
    Command::new(
        "clone_snapshot",
        (2, 3),
        clone_snapshot,
        "Creates a table from a snapshot: clone_snapshot name, table.\n\n  hbase> clone_snapshot 'snap1', 't2'",
    ),
    Command::new(
        "restore_snapshot",
        (1, 2),
        restore_snapshot,
        "Gives a disabled table the contents and schema of its snapshot.\n\n  hbase> restore_snapshot 'snap1'",
    ),
    Command::new("delete_snapshot", (1, 1), delete_snapshot, "Deletes a snapshot.\n\n  hbase> delete_snapshot 'snap1'"),
    Command::new(
        "delete_all_snapshot",
        (1, 1),
        delete_all_snapshot,
        "Deletes all snapshots whose name matches, after confirmation.\n\n  hbase> delete_all_snapshot 's.*'",
    ),
    Command::new(
        "delete_table_snapshots",
        (1, 2),
        delete_table_snapshots,
        "Deletes all snapshots of the tables that match, after confirmation: delete_table_snapshots tables, names.\n\n  \
         hbase> delete_table_snapshots 't1'\n  hbase> delete_table_snapshots 'ns:.*', 'snap.*'",
    ),
    Command::new(
        "list_snapshots",
        (0, 1),
        list_snapshots,
        "Prints the snapshots whose whole name matches a regular expression.\n\n  hbase> list_snapshots\n  \
         hbase> list_snapshots 'abc.*'",
    ),
    Command::new(
        "list_table_snapshots",
        (1, 2),
        list_table_snapshots,
        "Prints the snapshots of the tables that match: list_table_snapshots tables, names.\n\n  \
         hbase> list_table_snapshots 't1'\n  hbase> list_table_snapshots 'ns:.*', 'snap.*'",
    ),
];

fn name(value: &Value) -> CommandResult<String> {
    match value {
        Value::Str(_) | Value::Symbol(_) => Ok(value.to_text()),
        _ => Err(RubyError::argument("Snapshot name must be of type String").into()),
    }
}

/// Snapshot names follow the rules for table names; checked before the call.
fn check_name(name: &str) -> CommandResult<()> {
    let in_its_words = |error: HBaseError| {
        RubyError::argument(error.message().replace("User-space table qualifiers", "Snapshot qualifiers"))
    };
    check_qualifier(name).map_err(|error| in_its_words(error).into())
}

fn snapshot(shell: &mut Shell, args: Args) -> CommandResult {
    let name = name(args.get(1))?;
    check_name(&name)?;
    let mut snapshot = SnapshotDescription::new(&name, args.table(0)?);
    for options in args.from(2) {
        let Value::Hash(options) = options else {
            return Err(RubyError::argument("Arguments should be a Hash").into());
        };
        if let Some(ttl) = options.option("TTL") {
            snapshot = snapshot.ttl_seconds(args::number("TTL", ttl)?);
        }
        if let Some(bytes) = options.option("MAX_FILESIZE") {
            snapshot.max_file_bytes = args::number("MAX_FILESIZE", bytes)?;
        }
        if options.option("SKIP_FLUSH").is_some_and(args::flag) {
            snapshot = snapshot.skip_flush();
        }
    }
    let admin = shell.cluster.admin()?;
    shell.wait(admin.snapshot(&snapshot))?;
    // The stock shell returns the options, if any.
    Ok(if args.len() > 2 { Value::Array(args.from(2).to_vec()) } else { Value::Nil })
}

fn reject_acl(args: &Args, at: usize) -> CommandResult<()> {
    match args.hash(at)?.option("RESTORE_ACL").is_some_and(args::flag) {
        true => Err(RubyError::runtime("RESTORE_ACL is not supported by this shell").into()),
        false => Ok(()),
    }
}

fn clone_snapshot(shell: &mut Shell, args: Args) -> CommandResult {
    reject_acl(&args, 2)?;
    let table = args.table(1)?;
    let admin = shell.cluster.admin()?;
    shell
        .wait(admin.clone_snapshot(&name(args.get(0))?, &table))
        .map_err(|error| clone_error(error, &args))?;
    Ok(Value::Nil)
}

/// The table is the second argument of these commands.
fn clone_error(error: CommandError, args: &Args) -> CommandError {
    let table = args.text(1);
    match error.remote_class() {
        "TableExistsException" => RubyError::runtime(format!("Table already exists: {table}!")).into(),
        "NamespaceNotFoundException" => {
            let namespace = table.split(':').next().unwrap_or_default();
            RubyError::runtime(format!("Unknown namespace: {namespace}!")).into()
        }
        _ => error,
    }
}

fn restore_snapshot(shell: &mut Shell, args: Args) -> CommandResult {
    reject_acl(&args, 1)?;
    let failsafe = shell.cluster.conf().get_bool_or(FAILSAFE_KEY, false).unwrap_or(false);
    let admin = shell.cluster.admin()?;
    let name = name(args.get(0))?;
    let restored = shell.wait(admin.restore_snapshot(&name, failsafe));
    restored.map_err(|error| match error.remote_class() {
        "SnapshotDoesNotExistException" => {
            RubyError::runtime(format!("Unable to find the table name for snapshot={name}")).into()
        }
        _ => error,
    })?;
    Ok(Value::Nil)
}

fn delete_snapshot(shell: &mut Shell, args: Args) -> CommandResult {
    let admin = shell.cluster.admin()?;
    shell.wait(admin.delete_snapshot(&name(args.get(0))?))?;
    Ok(Value::Nil)
}

/// Snapshots whose tables and names match.
fn matching(shell: &mut Shell, tables: &str, names: &str) -> CommandResult<Vec<SnapshotDescription>> {
    let (tables, names) = (anchored(tables)?, anchored(names)?);
    let admin = shell.cluster.admin()?;
    let all = shell.wait(admin.list_snapshots())?;
    Ok(all.into_iter().filter(|s| tables.is_match(&s.table.to_string()) && names.is_match(&s.name)).collect())
}

fn show(shell: &mut Shell, snapshots: &[SnapshotDescription]) -> CommandResult<()> {
    shell.out.header(&["SNAPSHOT", "TABLE + CREATION TIME"])?;
    for snapshot in snapshots {
        shell.out.row(&[&snapshot.name, &table_and_time(snapshot)])?;
    }
    Ok(())
}

fn list(shell: &mut Shell, tables: &str, names: &str) -> CommandResult {
    let snapshots = matching(shell, tables, names)?;
    show(shell, &snapshots)?;
    shell.out.footer(snapshots.len())?;
    Ok(Value::texts(snapshots.iter().map(|snapshot| &snapshot.name)))
}

fn regex(args: &Args, at: usize) -> String {
    args.optional_text(at).unwrap_or_else(|| ".*".to_owned())
}

fn list_snapshots(shell: &mut Shell, args: Args) -> CommandResult {
    let snapshots = matching(shell, ".*", &regex(&args, 0))?;
    shell.out.header(&["SNAPSHOT", "TABLE + CREATION TIME + TTL(Sec)"])?;
    let now_ms = SystemClock.now_ms();
    for snapshot in &snapshots {
        let shown = format!("{} {}", table_and_time(snapshot), ttl(snapshot, now_ms));
        shell.out.row(&[&snapshot.name, &shown])?;
    }
    shell.out.footer(snapshots.len())?;
    Ok(Value::texts(snapshots.iter().map(|snapshot| &snapshot.name)))
}

/// `FOREVER`, or the time to live in seconds, and true if it has expired.
fn ttl(snapshot: &SnapshotDescription, now_ms: i64) -> String {
    let seconds = snapshot.ttl_seconds;
    let end_ms = seconds.checked_mul(1000).and_then(|ms| snapshot.creation_ms.checked_add(ms));
    match seconds {
        0 => "FOREVER".to_owned(),
        _ if seconds > 0 && end_ms.is_some_and(|end| end < now_ms) => format!("{seconds} (Expired) "),
        _ => seconds.to_string(),
    }
}

/// `TABLE (TIME)`
fn table_and_time(snapshot: &SnapshotDescription) -> String {
    format!("{} ({})", snapshot.table, text::ruby_time(snapshot.creation_ms / 1000))
}

fn list_table_snapshots(shell: &mut Shell, args: Args) -> CommandResult {
    list(shell, &regex(&args, 0), &regex(&args, 1))
}

fn delete_all_snapshot(shell: &mut Shell, args: Args) -> CommandResult {
    let names = regex(&args, 0);
    let none = format!("No snapshots matched the regex {names}");
    delete_all(shell, ".*", &names, &none)
}

fn delete_table_snapshots(shell: &mut Shell, args: Args) -> CommandResult {
    let (tables, names) = (regex(&args, 0), regex(&args, 1));
    let none = format!(
        "No snapshots matched the table name regular expression {tables} and the snapshot name regular expression {names}"
    );
    delete_all(shell, &tables, &names, &none)
}

fn delete_all(shell: &mut Shell, tables: &str, names: &str, none: &str) -> CommandResult {
    let snapshots = matching(shell, tables, names)?;
    show(shell, &snapshots)?;
    if snapshots.is_empty() {
        shell.out.line(none)?;
        return Ok(Value::Nil);
    }
    if !shell.confirm(&format!("\nDelete the above {} snapshots (y/n)?", snapshots.len()))? {
        return Ok(Value::Nil);
    }
    let admin = shell.cluster.admin()?;
    let mut deleted = 0;
    for snapshot in &snapshots {
        match shell.wait(admin.delete_snapshot(&snapshot.name)) {
            Ok(()) => deleted += 1,
            Err(CommandError::Client(error)) => {
                let why = describe(&error, &snapshot.name);
                shell.out.line(format!(
                    "Failed to delete snapshot: {}, due to below exception,\n{why}",
                    snapshot.name
                ))?;
            }
            Err(other) => return Err(other),
        }
    }
    shell.out.line(format!("{deleted} snapshots successfully deleted."))?;
    Ok(Value::Nil)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_ttls_are_printed() {
        let taken = |ttl: i64| {
            let mut snapshot = SnapshotDescription::new("s", "t".parse().expect("legal")).ttl_seconds(ttl);
            snapshot.creation_ms = 5_000;
            snapshot
        };
        assert_eq!(ttl(&taken(0), i64::MAX), "FOREVER");
        assert_eq!((ttl(&taken(10), 15_000), ttl(&taken(10), 15_001)), ("10".into(), "10 (Expired) ".into()));
        assert_eq!(ttl(&taken(i64::MAX), i64::MAX), i64::MAX.to_string());
    }

    #[test]
    fn names_are_refused_before_anything_is_sent() {
        assert!(check_name("s-1.x_y").is_ok());
        let Err(CommandError::Flow(crate::error::Flow::RubyError(failure))) = check_name("a b") else {
            panic!("a blank was taken");
        };
        assert!(
            failure.message.contains("32, < > at 1. Snapshot qualifiers may only"),
            "{}",
            failure.message
        );
    }
}
