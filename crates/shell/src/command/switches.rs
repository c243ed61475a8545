//! Switches of the master: balancer, normalizer, catalog janitor, cleaners, splits and merges,
//! snapshot clean-up.

use super::Command;
use crate::args::{self, Args};
use crate::error::{CommandResult, RubyError};
use crate::shell::Shell;
use crate::value::Value;

pub(super) const COMMANDS: &[Command] = &[
    Command::new(
        "balancer",
        (0, 1),
        balancer,
        "Moves regions so that servers have equal numbers; 'force' also while regions are in transition. Prints whether \
         it ran.\n\n  hbase> balancer\n  hbase> balancer 'force'",
    ),
    Command::new(
        "balance_switch",
        (1, 1),
        balance_switch,
        "Turns the balancer on or off and prints its previous state.\n\n  hbase> balance_switch true",
    ),
    Command::new("balancer_enabled", (0, 0), balancer_enabled, "Prints whether the balancer is on.\n\n  hbase> balancer_enabled"),
    Command::new(
        "normalize",
        (0, 0),
        normalize,
        "Splits and merges regions of tables with normalization enabled, all or those chosen. Prints whether it ran.\n\n  hbase> normalize\n  \
         hbase> normalize TABLE_NAME => 't1'\n  hbase> normalize TABLE_NAMES => ['t1', 't2']\n  hbase> normalize REGEX => 't.*'\n  \
         hbase> normalize NAMESPACE => 'ns'",
    )
    .variadic(),
    Command::new(
        "normalizer_switch",
        (1, 1),
        normalizer_switch,
        "Turns the normalizer on or off and prints its previous state.\n\n  hbase> normalizer_switch true",
    ),
    Command::new("normalizer_enabled", (0, 0), normalizer_enabled, "Prints whether the normalizer is on.\n\n  hbase> normalizer_enabled"),
    Command::new("catalogjanitor_run", (0, 0), catalogjanitor_run, "Runs the catalog janitor now.\n\n  hbase> catalogjanitor_run"),
    Command::new(
        "catalogjanitor_switch",
        (1, 1),
        catalogjanitor_switch,
        "Turns the catalog janitor on or off and prints its previous state.\n\n  hbase> catalogjanitor_switch true",
    ),
    Command::new(
        "catalogjanitor_enabled",
        (0, 0),
        catalogjanitor_enabled,
        "Prints whether the catalog janitor is on.\n\n  hbase> catalogjanitor_enabled",
    ),
    Command::new("cleaner_chore_run", (0, 0), cleaner_chore_run, "Runs the cleaners of old files now.\n\n  hbase> cleaner_chore_run"),
    Command::new(
        "cleaner_chore_switch",
        (1, 1),
        cleaner_chore_switch,
        "Turns the cleaners on or off and prints their previous state.\n\n  hbase> cleaner_chore_switch true",
    ),
    Command::new(
        "cleaner_chore_enabled",
        (0, 0),
        cleaner_chore_enabled,
        "Prints whether the cleaners are on.\n\n  hbase> cleaner_chore_enabled",
    ),
    Command::new(
        "splitormerge_switch",
        (2, 2),
        splitormerge_switch,
        "Allows or forbids splits or merges and prints the previous state: splitormerge_switch 'SPLIT' or 'MERGE', flag.\n\n  \
         hbase> splitormerge_switch 'SPLIT', false",
    ),
    Command::new(
        "splitormerge_enabled",
        (1, 1),
        splitormerge_enabled,
        "Prints whether splits or merges are allowed.\n\n  hbase> splitormerge_enabled 'MERGE'",
    ),
    Command::new(
        "snapshot_cleanup_switch",
        (1, 1),
        snapshot_cleanup_switch,
        "Turns the deletion of expired snapshots on or off and prints its previous state.\n\n  hbase> snapshot_cleanup_switch true",
    ),
    Command::new(
        "snapshot_cleanup_enabled",
        (0, 0),
        snapshot_cleanup_enabled,
        "Prints whether expired snapshots are deleted.\n\n  hbase> snapshot_cleanup_enabled",
    ),
    Command::new(
        "is_in_maintenance_mode",
        (0, 0),
        is_in_maintenance_mode,
        "Prints whether the master is in maintenance mode.\n\n  hbase> is_in_maintenance_mode",
    ),
];

/// Prints a flag and returns it.
fn print_flag(shell: &mut Shell, flag: bool) -> CommandResult {
    shell.out.row(&[&flag.to_string()])?;
    Ok(Value::Bool(flag))
}

/// A command that queries the master and prints the reply.
macro_rules! query_command {
    ($($command:ident = $method:ident;)*) => { $(
        fn $command(shell: &mut Shell, _: Args) -> CommandResult {
            let admin = shell.cluster.admin()?;
            let flag = shell.wait(admin.$method())?;
            print_flag(shell, flag)
        }
    )* };
}

/// A command that sets a switch and prints its previous state.
macro_rules! switches {
    ($($command:ident = $method:ident;)*) => { $(
        fn $command(shell: &mut Shell, args: Args) -> CommandResult {
            let admin = shell.cluster.admin()?;
            let before = shell.wait(admin.$method(args.flag(0)))?;
            print_flag(shell, before)
        }
    )* };
}

query_command! {
    balancer_enabled = is_balancer_enabled;
    normalizer_enabled = is_normalizer_enabled;
    catalogjanitor_enabled = is_catalog_janitor_enabled;
    cleaner_chore_enabled = is_cleaner_chore_enabled;
    snapshot_cleanup_enabled = is_snapshot_cleanup_enabled;
    is_in_maintenance_mode = is_master_in_maintenance_mode;
}

switches! {
    normalizer_switch = set_normalizer;
    catalogjanitor_switch = set_catalog_janitor;
    cleaner_chore_switch = set_cleaner_chore;
}

fn balancer(shell: &mut Shell, args: Args) -> CommandResult {
    let force = match args.optional_text(0).as_deref() {
        None => false,
        Some("force") => true,
        Some(other) => return Err(RubyError::argument(format!("Invalid argument {other}.")).into()),
    };
    let admin = shell.cluster.admin()?;
    let balance = shell.wait(admin.balance(false, force))?;
    print_flag(shell, balance.ran)
}

fn balance_switch(shell: &mut Shell, args: Args) -> CommandResult {
    let admin = shell.cluster.admin()?;
    let before = shell.wait(admin.set_balancer(args.flag(0)))?;
    shell.out.row(&[&format!("Previous balancer state : {before}")])?;
    Ok(Value::Bool(before))
}

fn snapshot_cleanup_switch(shell: &mut Shell, args: Args) -> CommandResult {
    let admin = shell.cluster.admin()?;
    let before = shell.wait(admin.set_snapshot_cleanup(args.flag(0)))?;
    shell.out.row(&[&format!("Previous snapshot cleanup state : {before}")])?;
    Ok(Value::Bool(before))
}

fn normalize(shell: &mut Shell, args: Args) -> CommandResult {
    let admin = shell.cluster.admin()?;
    let mut tables = Vec::new();
    for arg in args.from(0) {
        let Value::Hash(options) = arg else { return Err(super::ddl::neither_hash_nor_string(arg)) };
        let option = |name: &str| options.option(name);
        if let Some(table) = option("TABLE_NAME") {
            tables.push(args::table_name(table)?);
        } else if let Some(Value::Array(names)) = option("TABLE_NAMES") {
            tables.extend(names.iter().map(args::table_name).collect::<CommandResult<Vec<_>>>()?);
        } else if let Some(regex) = option("REGEX") {
            tables.extend(shell.wait(admin.list_tables_matching(Some(&regex.to_text()), false))?);
        } else if let Some(namespace) = option("NAMESPACE") {
            tables.extend(shell.wait(admin.list_namespace_tables(&namespace.to_text()))?);
        } else {
            return Err(RubyError::argument(format!("Unrecognized argument {}", arg.inspect())).into());
        }
    }
    let ran = match tables.is_empty() && !args.is_empty() {
        // No table matches. The master would interpret an empty list as all tables.
        true => false,
        false => shell.wait(admin.normalize(&tables))?,
    };
    print_flag(shell, ran)
}

fn catalogjanitor_run(shell: &mut Shell, _: Args) -> CommandResult {
    let admin = shell.cluster.admin()?;
    Ok(Value::Int(shell.wait(admin.run_catalog_janitor())?.into()))
}

fn cleaner_chore_run(shell: &mut Shell, _: Args) -> CommandResult {
    let admin = shell.cluster.admin()?;
    Ok(Value::Bool(shell.wait(admin.run_cleaner_chore())?))
}

/// Returns true for the switch of splits, false for that of merges.
fn is_split(args: &Args) -> CommandResult<bool> {
    match args.text(0).as_str() {
        "SPLIT" => Ok(true),
        "MERGE" => Ok(false),
        _ => Err(RubyError::argument("only SPLIT or MERGE accepted for type!").into()),
    }
}

fn splitormerge_switch(shell: &mut Shell, args: Args) -> CommandResult {
    let (split, on) = (is_split(&args)?, args.flag(1));
    let admin = shell.cluster.admin()?;
    let before = match split {
        true => shell.wait(admin.set_split(on))?,
        false => shell.wait(admin.set_merge(on))?,
    };
    print_flag(shell, before)
}

fn splitormerge_enabled(shell: &mut Shell, args: Args) -> CommandResult {
    let split = is_split(&args)?;
    let admin = shell.cluster.admin()?;
    let on = match split {
        true => shell.wait(admin.is_split_enabled())?,
        false => shell.wait(admin.is_merge_enabled())?,
    };
    print_flag(shell, on)
}
