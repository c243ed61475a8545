//! `help` and `tools`.

use super::{Command, GROUPS, Group, find, unsupported};
use crate::args::Args;
use crate::command::general::VERSION;
use crate::error::CommandResult;
use crate::shell::Shell;
use crate::value::Value;

pub(super) const COMMANDS: &[Command] = &[
    Command::new(
        "help",
        (0, 1),
        help,
        "Prints what a command or a group of commands does.\n\n  hbase> help 'get'\n  hbase> help 'ddl'",
    )
    .untimed(),
    Command::new("tools", (0, 0), tools, "Prints help for the group tools.\n\n  hbase> tools").untimed(),
];

const USAGE: &str = r##"SHELL USAGE:
Names of tables, rows and columns are strings, in quotes; commas separate arguments. A statement ends with its line,
unless a bracket, a comma or an operator is open. Options are hashes:

  {'key1' => 'value1', 'key2' => 'value2'}

whose keys are mostly constants (NAME, VERSIONS, COMPRESSION, ...), which need no quotes. Braces around a hash that is the
last argument can be left out.

Binary keys and values are written in double quotes:

  hbase> get 't1', "key\x03\x3f\xcd"
  hbase> get 't1', "key\003\023\011"
  hbase> put 't1', "test\xef\xff", 'f1:', "\x01\x33\x40"

The language is the part of Ruby that scripts for the HBase shell use: variables, arithmetic, "#{...}" in strings, each,
times, if, while, begin and rescue. Classes, user-defined methods and other libraries are not supported."##;

fn tools(shell: &mut Shell, _: Args) -> CommandResult {
    group(shell, GROUPS.iter().find(|group| group.name == "tools").unwrap_or(&GROUPS[0]))
}

fn help(shell: &mut Shell, args: Args) -> CommandResult {
    let Some(subject) = args.optional_text(0) else { return overview(shell, true) };
    if let Some(command) = find(&subject) {
        shell.out.line(command.help)?;
        return Ok(Value::Nil);
    }
    if let Some(found) = GROUPS.iter().find(|group| group.name == subject) {
        return group(shell, found);
    }
    if let Some(refusal) = unsupported::refusal(&subject) {
        shell.out.line(refusal.message)?;
        return Ok(Value::Nil);
    }
    shell.out.line(format!("ERROR: Invalid command or command group name: {subject}"))?;
    shell.out.line("")?;
    overview(shell, false)
}

fn group(shell: &mut Shell, group: &Group) -> CommandResult {
    let mut commands: Vec<_> = group.all().collect();
    commands.sort_by_key(|command| command.name);
    for command in commands {
        shell.out.line(format!("Command: {}", command.name))?;
        shell.out.line(command.help)?;
        shell.out.line("")?;
    }
    if let Some(comment) = group.comment {
        shell.out.line("-".repeat(80))?;
        shell.out.line(format!("\n{comment}\n"))?;
    }
    Ok(Value::Nil)
}

fn overview(shell: &mut Shell, usage: bool) -> CommandResult {
    shell.out.line(format!("HBase Shell, version {VERSION}"))?;
    shell.out.line(
        "Type 'help \"COMMAND\"', (e.g. 'help \"get\"' -- the quotes are necessary) for help on a command.",
    )?;
    shell.out.line(
        "Commands are grouped. Type 'help \"GROUP\"', (e.g. 'help \"general\"') for help on a group.",
    )?;
    shell.out.line("\nCOMMAND GROUPS:")?;
    for group in GROUPS {
        let mut names: Vec<_> = group.all().map(|command| command.name).collect();
        names.sort_unstable();
        shell.out.line(format!("  Group name: {}\n  Commands: {}\n", group.name, names.join(", ")))?;
    }
    if usage {
        shell.out.line(USAGE)?;
    }
    Ok(Value::Nil)
}
