//! `version`, `whoami`, `table_help`.

use super::Command;
use crate::args::Args;
use crate::error::CommandResult;
use crate::shell::Shell;
use crate::value::Value;

pub(super) const COMMANDS: &[Command] = &[
    Command::new("version", (0, 0), version, "Prints the version of this shell.\n\n  hbase> version"),
    Command::new(
        "whoami",
        (0, 0),
        whoami,
        "Prints the user of the calls, and its groups.\n\n  hbase> whoami",
    ),
    Command::new("table_help", (0, 0), table_help, TABLE_HELP),
];

/// The HBase version whose behaviour and output this shell follows, and the version of this shell.
pub const VERSION: &str = concat!("2.6.4, evenkeel ", env!("CARGO_PKG_VERSION"));

const TABLE_HELP: &str = "\
Prints how to work with a reference to a table (table_help).

`create` and `get_table` return a reference that a variable can keep. Every command whose first argument is a table can
be called on it, without that argument:

  hbase> t = get_table 't1'
  hbase> t.put 'r', 'f:q', 'v'
  hbase> t.get 'r'
  hbase> t.scan LIMIT => 10
  hbase> t.flush
  hbase> t.disable
  hbase> t.drop";

fn version(shell: &mut Shell, _: Args) -> CommandResult {
    shell.out.line(VERSION)?;
    Ok(Value::Nil)
}

fn table_help(shell: &mut Shell, _: Args) -> CommandResult {
    shell.out.line(TABLE_HELP)?;
    Ok(Value::Nil)
}

fn whoami(shell: &mut Shell, _: Args) -> CommandResult {
    let user = crate::config::user();
    shell.out.line(format!("{user} (auth:SIMPLE)"))?;
    let groups = groups(&user);
    if !groups.is_empty() {
        shell.out.line(format!("    groups: {}", groups.join(", ")))?;
    }
    Ok(Value::Nil)
}

/// The groups of a user in `/etc/passwd` and `/etc/group`, the primary one first.
fn groups(user: &str) -> Vec<String> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let (users, groups) = (read("/etc/passwd"), read("/etc/group"));
    let own = users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields[0] == user);
    let own_id = own.and_then(|fields| fields.get(3).map(|id| (*id).to_owned()));
    let mut found = Vec::new();
    for line in groups.lines() {
        let fields: Vec<_> = line.split(':').collect();
        let [name, _, id, members] = fields.as_slice() else { continue };
        if own_id.as_deref() == Some(id) {
            found.insert(0, (*name).to_owned());
        } else if members.split(',').any(|member| member == user) {
            found.push((*name).to_owned());
        }
    }
    found
}
