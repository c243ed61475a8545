//! `change_sft`, `change_sft_all`: change the store file tracker of tables and families.

use super::Command;
use super::ddl::confirmed;
use crate::args::Args;
use crate::error::{CommandResult, RubyError};
use crate::shell::Shell;
use crate::value::Value;

pub(super) const COMMANDS: &[Command] = &[
    Command::new(
        "change_sft",
        (0, 0),
        change_sft,
        "Changes the store file tracker of a table, or of a family of it.\n\n  hbase> change_sft 't1', 'FILE'\n  \
         hbase> change_sft 't1', 'f1', 'FILE'",
    )
    .variadic(),
    Command::new(
        "change_sft_all",
        (0, 0),
        change_sft_all,
        "Changes the store file tracker of all tables that match, after confirmation.\n\n  \
         hbase> change_sft_all 't.*', 'FILE'\n  hbase> change_sft_all 'ns:.*', 'FILE'",
    )
    .variadic(),
];

fn change_sft(shell: &mut Shell, args: Args) -> CommandResult {
    match args.len() {
        2 => {
            let (table, tracker) = (args.table(0)?, args.text(1));
            let admin = shell.cluster.admin()?;
            shell.wait(admin.modify_table_store_file_tracker(&table, &tracker))?;
        }
        3 => {
            let (table, family, tracker) = (args.table(0)?, args.bytes(1), args.text(2));
            let admin = shell.cluster.admin()?;
            shell.wait(admin.modify_family_store_file_tracker(&table, &family, &tracker))?;
        }
        _ => return Err(RubyError::argument("Argument length should be two or three.").into()),
    }
    Ok(Value::Nil)
}

fn change_sft_all(shell: &mut Shell, args: Args) -> CommandResult {
    if args.len() != 2 {
        return Err(RubyError::argument("Argument length should be two.").into());
    }
    let (regex, tracker) = (args.text(0), args.text(1));
    let question = |count| format!("\nChange the above {count} tables's sft (y/n)?");
    let names = confirmed(shell, &regex, question)?;
    if names.is_empty() {
        return Ok(Value::Nil);
    }
    let admin = shell.cluster.admin()?;
    for name in &names {
        shell.wait(admin.modify_table_store_file_tracker(name, &tracker))?;
    }
    Ok(Value::Nil)
}
