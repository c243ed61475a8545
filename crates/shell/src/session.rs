//! [`Session`]: reads sources line by line, runs their statements and prints results.
//!
//! If the output is not a terminal, lines are echoed after the stock shell's prompt, so that a
//! script's log shows each statement with its output.

use evenkeel_common::console;

use crate::error::{Flow, RubyError};
use crate::interpreter::{Host, Interpreter};
use crate::language::{Expr, SyntaxError};
use crate::output::Output;
use crate::shell::Shell;
use crate::value::Value;

/// A shell and its variables.
pub struct Session {
    /// Runs commands.
    pub shell: Shell,
    /// Evaluates the language.
    pub interpreter: Interpreter,
    /// The number of lines read.
    lines: usize,
    /// True if lines come from the input, not from a script: an error that ends the shell then goes
    /// to standard error.
    from_input: bool,
}

/// The prompt.
pub const BANNER: &str = "HBase Shell\nUse \"help\" to get list of supported commands.\nUse \"exit\" to quit this \
                          interactive shell.\nVersion ";

/// The exit status after a failure.
const FAILED: i32 = 1;

impl Session {
    /// A session without variables.
    pub fn new(shell: Shell) -> Self {
        Self { shell, interpreter: Interpreter::default(), lines: 0, from_input: false }
    }

    /// `hbase:NUMBER:DEPTH>`, with `*` instead of `>` within a statement.
    pub fn prompt(&self, going_on: bool) -> String {
        let (depth, mark) = if going_on { (1, '*') } else { (0, '>') };
        format!("hbase:{:03}:{depth}{mark} ", self.lines + 1)
    }

    /// Counts lines for the prompt.
    pub fn count_lines(&mut self, lines: usize) {
        self.lines += lines;
    }

    /// Runs a whole source; returns the exit status if it ends the shell.
    pub fn run_source(&mut self, source: &str) -> Option<i32> {
        let outcome = match self.interpreter.parse(source) {
            Ok(statements) => self.run_statements(&statements, false),
            Err(error) => self.print_syntax_error(&error, source, 0),
        };
        self.status(outcome)
    }

    /// Runs lines and echoes them after prompts; returns an exit status if they end the shell.
    pub fn run_lines(&mut self, lines: impl Iterator<Item = String>) -> Option<i32> {
        let mut lines = lines;
        let mut source = |_: &mut Shell| lines.next();
        self.echo_all(&mut source)
    }

    /// Runs the lines of the input; returns the exit status.
    pub fn run_input(&mut self, banner: bool) -> i32 {
        if banner && self.print_banner().is_err() {
            return 0;
        }
        self.from_input = true;
        let mut source = |shell: &mut Shell| shell.read_line().ok().flatten();
        self.echo_all(&mut source).unwrap_or(0)
    }

    /// Prints the banner.
    pub fn print_banner(&mut self) -> Result<(), Flow> {
        self.shell.out.line(format!("{BANNER}{}", crate::command::general::VERSION))
    }

    fn echo_all(&mut self, next: &mut dyn FnMut(&mut Shell) -> Option<String>) -> Option<i32> {
        loop {
            let outcome = self.echo_one(next);
            let ended = matches!(outcome, Ok(false));
            let status = self.status(outcome.map(drop));
            if ended || status.is_some() {
                return status;
            }
        }
    }

    /// Reads and runs one statement; returns false at the end of the input.
    fn echo_one(&mut self, next: &mut dyn FnMut(&mut Shell) -> Option<String>) -> Result<bool, Flow> {
        let mut source = String::new();
        let first = self.lines;
        loop {
            let prompt = self.prompt(!source.is_empty());
            self.shell.out.print(prompt.as_bytes())?;
            let Some(line) = next(&mut self.shell) else {
                self.shell.out.line("")?;
                return match self.interpreter.parse(&source) {
                    Err(error) => self.print_syntax_error(&error, &source, first).map(|()| false),
                    Ok(_) => Ok(false),
                };
            };
            self.lines += 1;
            self.shell.out.line(line.trim_end_matches(['\n', '\r']))?;
            source.push_str(&line);
            match self.interpreter.parse(&source) {
                Err(error) if error.incomplete => {}
                Err(error) => return self.print_syntax_error(&error, &source, first).map(|()| true),
                Ok(statements) => return self.run_statements(&statements, true).map(|()| true),
            }
        }
    }

    /// Runs statements, and prints their values as Ruby does if requested.
    pub fn run_statements(&mut self, statements: &[Expr], show: bool) -> Result<(), Flow> {
        for (i, statement) in statements.iter().enumerate() {
            let outcome = self.interpreter.evaluate(&mut self.shell, statement);
            // Only the value of a line's last statement is printed.
            let last = i + 1 == statements.len();
            match outcome {
                Ok(Value::Nil) => {}
                Ok(value) if show && last => self.shell.out.line(format!("=> {}", value.inspect()))?,
                Ok(_) | Err(Flow::Break | Flow::Next) => {}
                Err(Flow::RubyError(failure)) => self.print_failure(&failure)?,
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    /// Prints a failure outside commands and continues, or returns it if failures end the shell.
    fn print_failure(&mut self, failure: &RubyError) -> Result<(), Flow> {
        if !self.shell.continue_on_error {
            return Err(failure.clone().into());
        }
        tell_failure(&mut self.shell.out, failure)
    }

    /// Prints a syntax error: the line, with a mark below the position.
    pub fn print_syntax_error(
        &mut self,
        error: &SyntaxError,
        source: &str,
        first: usize,
    ) -> Result<(), Flow> {
        let (number, line, column) = error.position(source);
        let number = first + number + 1;
        let place = format!("{line}\n{}^", " ".repeat(column));
        let message = format!("(hbase):{number}: syntax error, {}\n{place}", error.message);
        self.print_failure(&RubyError::new("SyntaxError", message))
    }

    /// The exit status of an outcome that ends the shell.
    fn status(&mut self, outcome: Result<(), Flow>) -> Option<i32> {
        let status = match outcome {
            Ok(()) | Err(Flow::Break | Flow::Next) => None,
            Err(Flow::Exit(status)) => Some(status),
            Err(Flow::Closed) => Some(0),
            Err(Flow::Interrupted) => Some(130),
            Err(Flow::RubyError(failure)) if self.from_input => {
                console::print_error(format_args!("{}: {}\n", failure.class, failure.message));
                Some(FAILED)
            }
            Err(Flow::RubyError(failure)) => {
                let _ = self.shell.out.line(format!("ERROR {}: {}", failure.class, failure.message));
                Some(FAILED)
            }
        };
        let flushed = self.shell.out.flush();
        status.or(flushed.is_err().then_some(0))
    }

    /// Fails if the user pressed Ctrl-C; see [`Host::check_interrupt`].
    pub fn check_interrupt(&mut self) -> Result<(), Flow> {
        self.shell.check_interrupt()
    }
}

/// A failure as irb prints it.
fn tell_failure(out: &mut Output, failure: &RubyError) -> Result<(), Flow> {
    out.line("Traceback (most recent call last):")?;
    let mut lines = failure.message.lines();
    out.line(format!("{} ({})", failure.class, lines.next().unwrap_or_default()))?;
    lines.try_for_each(|line| out.line(line))
}
