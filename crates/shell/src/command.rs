//! The commands, by group.
//!
//! | group | module |
//! |---|---|
//! | general | [`general`], [`help`], [`status`] |
//! | ddl | [`ddl`], [`alter`]; [`schema`] makes descriptors of arguments, [`describe`] shows them |
//! | namespace | [`namespace`] |
//! | dml | [`write`], [`read`]; [`column`] reads columns and their formatters |
//! | tools | [`tools`], [`switches`], [`regions`] |
//! | snapshots | [`snapshots`] |
//! | those that are refused | [`unsupported`] |
//!
//! A command is an entry of its module's table: its name, how many arguments it takes, its function and its help.

pub mod alter;
pub mod column;
pub mod ddl;
pub mod describe;
pub mod general;
pub mod help;
pub mod namespace;
pub mod read;
pub mod regions;
pub mod schema;
pub mod snapshots;
pub mod status;
pub mod switches;
pub mod tools;
pub mod unsupported;
pub mod write;

use crate::args::Args;
use crate::error::CommandResult;
use crate::shell::Shell;

/// A command.
pub struct Command {
    /// What the user types.
    pub name: &'static str,
    /// Other names for it.
    pub aliases: &'static [&'static str],
    /// How many arguments it takes: the least and, if there is a limit, the most.
    pub args: (usize, Option<usize>),
    /// Whether the time that it took is told, and errors are told as a command's.
    pub timed: bool,
    /// What it does.
    pub run: fn(&mut Shell, Args) -> CommandResult,
    /// What `help 'name'` says.
    pub help: &'static str,
}

impl Command {
    /// A command that takes from `least` to `most` arguments.
    const fn new(
        name: &'static str,
        (least, most): (usize, usize),
        run: fn(&mut Shell, Args) -> CommandResult,
        help: &'static str,
    ) -> Self {
        Self { name, aliases: &[], args: (least, Some(most)), timed: true, run, help }
    }

    /// With any number of arguments more.
    const fn and_more(mut self) -> Self {
        self.args.1 = None;
        self
    }

    /// With another name.
    const fn or(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// Without a word about time.
    const fn untimed(mut self) -> Self {
        self.timed = false;
        self
    }
}

/// A group of commands.
pub struct Group {
    /// What `help` takes.
    pub name: &'static str,
    /// The tables of its commands.
    pub commands: &'static [&'static [Command]],
    /// What is said below its commands.
    pub comment: Option<&'static str>,
}

/// All groups, in the order that `help` shows them.
pub const GROUPS: &[Group] = &[
    Group { name: "general", commands: &[general::COMMANDS, status::COMMANDS], comment: None },
    Group {
        name: "ddl",
        commands: &[ddl::COMMANDS, alter::COMMANDS, describe::COMMANDS, regions::LISTS],
        comment: None,
    },
    Group { name: "namespace", commands: &[namespace::COMMANDS], comment: None },
    Group { name: "dml", commands: &[write::COMMANDS, read::COMMANDS], comment: None },
    Group {
        name: "tools",
        commands: &[tools::COMMANDS, switches::COMMANDS, regions::COMMANDS],
        comment: Some("These change how a cluster runs. Know what you do."),
    },
    Group { name: "snapshots", commands: &[snapshots::COMMANDS], comment: None },
    Group { name: "configuration", commands: &[tools::CONFIGURATION], comment: None },
];

impl Group {
    /// Its commands.
    pub fn all(&self) -> impl Iterator<Item = &'static Command> + use<> {
        self.commands.iter().flat_map(|table| table.iter())
    }
}

/// All commands: those of the groups, and help itself, which no group lists.
pub fn all() -> impl Iterator<Item = &'static Command> {
    GROUPS.iter().flat_map(Group::all).chain(help::COMMANDS)
}

/// A command by one of its names.
pub fn find(name: &str) -> Option<&'static Command> {
    all().find(|command| command.name == name || command.aliases.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_helped() {
        let mut names: Vec<_> = all().flat_map(|c| c.aliases.iter().copied().chain([c.name])).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        for command in all() {
            assert!(command.help.contains(command.name), "{}: {}", command.name, command.help);
            assert!(!command.help.ends_with('\n') && command.help.len() > 20, "{}", command.name);
        }
    }
}
