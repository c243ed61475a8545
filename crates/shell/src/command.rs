//! The commands, by group.
//!
//! | group | module |
//! |---|---|
//! | general | [`general`], [`help`], [`status`] |
//! | ddl | [`ddl`], [`alter`]; [`schema`] builds descriptors, [`describe`] prints them |
//! | namespace | [`namespace`] |
//! | dml | [`write`], [`read`]; [`column`] reads columns and their formatters |
//! | quotas | [`quotas`] |
//! | tools | [`tools`], [`slow_log`], [`switches`], [`regions`] |
//! | snapshots | [`snapshots`] |
//! | storefiletracker | [`store_file_tracker`] |
//! | refused commands | [`unsupported`] |
//!
//! A command is an entry of its module's table: its name, its number of arguments, its function and
//! its help.

pub mod alter;
pub mod column;
#[cfg(test)]
mod compatibility;
pub mod ddl;
pub mod describe;
pub mod general;
pub mod help;
pub mod namespace;
pub mod quotas;
pub mod read;
pub mod regions;
pub mod schema;
pub mod slow_log;
pub mod snapshots;
pub mod status;
pub mod store_file_tracker;
pub mod switches;
pub mod tools;
pub mod unsupported;
pub mod write;

use crate::args::Args;
use crate::error::CommandResult;
use crate::shell::Shell;

/// A command.
pub struct Command {
    /// Its name.
    pub name: &'static str,
    /// Its aliases.
    pub aliases: &'static [&'static str],
    /// The least number of arguments and, if limited, the largest.
    pub args: (usize, Option<usize>),
    /// True if its duration is printed, and its errors as those of a command.
    pub timed: bool,
    /// Its function.
    pub run: fn(&mut Shell, Args) -> CommandResult,
    /// The text of `help 'name'`.
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

    /// Takes any number of further arguments.
    const fn variadic(mut self) -> Self {
        self.args.1 = None;
        self
    }

    /// Adds an alias.
    const fn alias(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// Prints no duration.
    const fn untimed(mut self) -> Self {
        self.timed = false;
        self
    }
}

/// A group of commands.
pub struct Group {
    /// Its name in `help`.
    pub name: &'static str,
    /// The tables of its commands.
    pub commands: &'static [&'static [Command]],
    /// The text below its commands.
    pub comment: Option<&'static str>,
}

/// All groups, in the order of `help`.
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
        commands: &[tools::COMMANDS, slow_log::COMMANDS, switches::COMMANDS, regions::COMMANDS],
        comment: Some("These change how a cluster runs. Know what you do."),
    },
    Group { name: "snapshots", commands: &[snapshots::COMMANDS], comment: None },
    Group { name: "storefiletracker", commands: &[store_file_tracker::COMMANDS], comment: None },
    Group { name: "configuration", commands: &[tools::CONFIGURATION], comment: None },
    Group { name: "quotas", commands: &[quotas::COMMANDS], comment: None },
];

impl Group {
    /// Its commands.
    pub fn all(&self) -> impl Iterator<Item = &'static Command> + use<> {
        self.commands.iter().flat_map(|table| table.iter())
    }
}

/// All commands: those of the groups, and `help`, which no group lists.
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
    fn command_names_are_unique_and_have_help() {
        let mut names: Vec<_> = all().flat_map(|c| c.aliases.iter().copied().chain([c.name])).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        for command in all() {
            assert!(command.help.contains(command.name), "{}: {}", command.name, command.help);
            assert!(!command.help.ends_with('\n') && command.help.len() > 20, "{}", command.name);
        }
    }
}
