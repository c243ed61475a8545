//! `evenkeel shell`: the HBase shell's commands, syntax and output, without a JVM.
//!
//! ```text
//! session   where sources come from: a terminal, a pipe, a script, -e       interactive.rs
//!   language      text to tree                                              completion.rs
//!   interpreter   tree to values; builtin.rs, filter.rs, constant.rs
//!     shell       a command, its time, its errors
//!       command/  the commands, group by group
//!         cluster   the connection, and waits that Ctrl-C ends
//!         output    rows and columns
//! ```
//!
//! The contract is the stock shell: the same input has the same effect and prints the same output.
//! Where the stock shell prints a Java object's address or a Ruby backtrace, this shell prints the
//! underlying data. The stock shell is JRuby and runs any program; this shell runs the part of Ruby
//! that [`language`] describes, and refuses the rest with its position.
//!
//! The shell connects with the first command that needs the cluster, so it starts in milliseconds.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

pub mod args;
pub mod builtin;
pub mod cluster;
pub mod command;
mod completion;
pub mod config;
pub mod constant;
pub mod error;
pub mod filter;
mod interactive;
pub mod interpreter;
pub mod language;
pub mod output;
pub mod session;
pub mod shell;
pub mod text;
pub mod value;

use std::io::IsTerminal;
use std::path::PathBuf;

use evenkeel_common::Configuration;

use crate::output::Output;
use crate::session::Session;

/// The options of the shell.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// A failed command ends the shell with a non-zero status (`-n`).
    pub noninteractive: bool,
    /// A source to run instead of reading any (`-e`).
    pub expression: Option<String>,
    /// A script to run.
    pub script: Option<PathBuf>,
}

/// Runs a shell to its end and returns its exit status.
///
/// # Errors
/// A message, if the shell cannot start.
pub fn run(conf: Configuration, options: &Options) -> Result<i32, String> {
    let terminal = std::io::stdin().is_terminal();
    let continue_on_error = !options.noninteractive && options.expression.is_none();
    let shell = shell::Shell::new(conf, Output::stdout(), continue_on_error, shell::stdin_lines())?;
    let mut session = Session::new(shell);
    if let Some(expression) = &options.expression {
        return Ok(session.run_source(expression).unwrap_or(0));
    }
    if let Some(script) = &options.script {
        let text = std::fs::read(script).map_err(|e| format!("cannot read {}: {e}", script.display()))?;
        let text = String::from_utf8_lossy(&text).into_owned();
        if let Some(status) = session.run_lines(text.lines().map(|line| format!("{line}\n"))) {
            return Ok(status);
        }
        if options.noninteractive {
            return Ok(0);
        }
    }
    match terminal {
        true => interactive::run(session),
        false => Ok(session.run_input(!options.noninteractive)),
    }
}
