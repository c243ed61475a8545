//! [`Shell`]: runs commands on a cluster and prints their output and errors.

use std::io::BufRead;
use std::time::Instant;

use evenkeel_common::Configuration;
use evenkeel_common::clock;

use crate::args::Args;
use crate::cluster::Cluster;
use crate::command::{self, Command};
use crate::error::{CommandError, CommandResult, Flow};
use crate::interpreter::Host;
use crate::output::Output;
use crate::value::Value;

/// The colour of errors on a terminal.
const RED: u8 = 31;

/// Reads one line; `None` at the end of the input.
pub type ReadLine = Box<dyn FnMut() -> std::io::Result<Option<String>>>;

/// The environment of commands.
pub struct Shell {
    /// The cluster.
    pub cluster: Cluster,
    /// The output.
    pub out: Output,
    /// True if a failed command is printed and the next one runs; otherwise it ends the shell.
    pub continue_on_error: bool,
    read_line: ReadLine,
}

impl Shell {
    /// A shell; `read_line` reads answers to its questions.
    ///
    /// # Errors
    /// As [`Cluster::new`].
    pub fn new(
        conf: Configuration,
        out: Output,
        continue_on_error: bool,
        read_line: ReadLine,
    ) -> Result<Self, String> {
        Ok(Self { cluster: Cluster::new(conf)?, out, continue_on_error, read_line })
    }

    /// The next line of the input.
    pub fn read_line(&mut self) -> std::io::Result<Option<String>> {
        (self.read_line)()
    }

    /// Asks for confirmation: an answer that begins with `y`.
    pub fn confirm(&mut self, question: &str) -> CommandResult<bool> {
        self.out.line(question)?;
        self.out.flush()?;
        let answer = self.read_line().ok().flatten().unwrap_or_default();
        Ok(answer.trim_start().starts_with(['y', 'Y']))
    }

    /// Flushes the output, then waits for an operation of the client.
    pub fn wait<T>(
        &mut self,
        work: impl Future<Output = Result<T, evenkeel_client::Error>>,
    ) -> CommandResult<T> {
        self.cluster.wait(work)
    }

    fn run(&mut self, command: &'static Command, args: Vec<Value>) -> Result<Value, Flow> {
        let began = clock::monotonic();
        let subject = args.first().map(Value::to_text).unwrap_or_default();
        let outcome = self.checked(command, args).map_err(|error| error.into_flow(&subject));
        self.print_outcome(command.name, began, outcome)
    }

    /// Prints an error, unless errors end the shell, and the duration of the command.
    fn print_outcome(
        &mut self,
        name: &str,
        began: Instant,
        outcome: Result<Value, Flow>,
    ) -> Result<Value, Flow> {
        match outcome {
            Err(Flow::RubyError(failure)) if self.continue_on_error => {
                self.out.line("")?;
                self.out.coloured(RED, &format!("ERROR: {}", failure.message))?;
                self.out.line("")?;
                self.out.line(format!("For usage try 'help \"{name}\"'"))?;
                self.out.line("")?;
                self.took(began)?;
                Ok(Value::Nil)
            }
            told => {
                self.took(began)?;
                told
            }
        }
    }

    fn took(&mut self, began: Instant) -> Result<(), Flow> {
        self.out.line(format!("Took {:.4} seconds", clock::since(began).as_secs_f64()))
    }

    fn checked(&mut self, command: &'static Command, args: Vec<Value>) -> CommandResult {
        let (least, most) = command.args;
        if args.len() < least || most.is_some_and(|most| args.len() > most) {
            let expected = match most {
                Some(most) if most == least => least.to_string(),
                Some(most) => format!("{least}..{most}"),
                None => format!("{least}+"),
            };
            let message = format!("wrong number of arguments (given {}, expected {expected})", args.len());
            return Err(crate::error::RubyError::argument(message).into());
        }
        (command.run)(self, Args::new(args))
    }
}

impl Host for Shell {
    fn command(&mut self, name: &str, args: Vec<Value>) -> Option<Result<Value, Flow>> {
        match command::find(name) {
            Some(command) if command.timed => Some(self.run(command, args)),
            Some(command) => {
                Some(self.checked(command, args).map_err(|error: CommandError| error.into_flow("")))
            }
            None => {
                let refusal = command::unsupported::refusal(name)?;
                Some(self.print_outcome(name, clock::monotonic(), Err(refusal.into())))
            }
        }
    }

    fn print(&mut self, bytes: &[u8]) -> Result<(), Flow> {
        self.out.print(bytes)
    }

    fn check_interrupt(&mut self) -> Result<(), Flow> {
        self.cluster.check_interrupt()
    }

    fn sleep(&mut self, seconds: f64) -> Result<(), Flow> {
        self.out.flush()?;
        self.cluster.sleep(seconds)
    }

    fn names(&self) -> Vec<String> {
        command::all().map(|command| command.name.to_owned()).collect()
    }
}

/// Lines of standard input.
pub fn stdin_lines() -> ReadLine {
    let mut stdin = std::io::BufReader::new(std::io::stdin());
    Box::new(move || {
        let mut line = Vec::new();
        let read = stdin.read_until(b'\n', &mut line)?;
        Ok((read > 0).then(|| String::from_utf8_lossy(&line).into_owned()))
    })
}
