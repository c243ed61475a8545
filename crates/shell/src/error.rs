//! Errors, and their messages in the stock shell's words.

use std::fmt;

use evenkeel_client::Error as ClientError;
use evenkeel_common::HBaseError;

/// The ways in which an expression ends without a value.
#[derive(Debug)]
pub enum Flow {
    /// An error.
    RubyError(RubyError),
    /// `exit`, with its status.
    Exit(i32),
    /// The user pressed Ctrl-C.
    Interrupted,
    /// `break`
    Break,
    /// `next`
    Next,
    /// The output is closed.
    Closed,
}

/// An error: a Ruby class and a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RubyError {
    /// `NameError`, `ArgumentError`, `RuntimeError`, ...
    pub class: &'static str,
    /// The message.
    pub message: String,
}

impl RubyError {
    /// A failure with a class.
    pub fn new(class: &'static str, message: impl Into<String>) -> Self {
        Self { class, message: message.into() }
    }

    /// The error of commands.
    pub fn runtime(message: impl Into<String>) -> Self {
        Self::new("RuntimeError", message)
    }

    /// Invalid arguments.
    pub fn argument(message: impl Into<String>) -> Self {
        Self::new("ArgumentError", message)
    }
}

impl From<RubyError> for Flow {
    fn from(failure: RubyError) -> Self {
        Self::RubyError(failure)
    }
}

impl fmt::Display for RubyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The reason why a command failed.
#[derive(Debug)]
pub enum CommandError {
    /// An error of the cluster or the client.
    Client(ClientError),
    /// An error of the command, or a jump, exit or interrupt through it.
    Flow(Flow),
}

/// The result of commands.
pub type CommandResult<T = crate::value::Value> = Result<T, CommandError>;

impl CommandError {
    /// The class of a server's exception, without its package; empty for other errors.
    pub fn remote_class(&self) -> &str {
        let Self::Client(client) = self else { return "" };
        client.remote().and_then(|remote| remote.class.rsplit('.').next()).unwrap_or_default()
    }

    /// The message for the user; `subject` is the command's first argument.
    pub fn into_flow(self, subject: &str) -> Flow {
        match self {
            Self::Flow(flow) => flow,
            Self::Client(error) => RubyError::runtime(describe(&error, subject)).into(),
        }
    }
}

/// An error as the stock shell prints it (`translate_hbase_exceptions` of its `commands.rb`).
pub fn describe(error: &ClientError, subject: &str) -> String {
    if let Some(remote) = error.remote() {
        return describe_remote(&remote.class, &remote.message, subject);
    }
    match error {
        ClientError::TableNotFound(table) => format!("Unknown table {table}!"),
        ClientError::TableNotEnabled(_) => format!("Table {subject} is disabled!"),
        ClientError::InvalidArgument(message) => message.clone(),
        ClientError::RetriesExhausted { attempts, last } => {
            format!("{} (after {attempts} attempts)", unreachable(last))
        }
        other => unreachable(other),
    }
}

fn unreachable(error: &ClientError) -> String {
    match error {
        ClientError::Connection(why) => format!("Cannot reach the cluster: {why}"),
        ClientError::Timeout(what) => format!("No reply in time: {what}"),
        ClientError::NoServer(what) => format!("No server: {what}"),
        other => other.to_string(),
    }
}

fn describe_remote(class: &str, message: &str, subject: &str) -> String {
    let first_line = message.lines().next().unwrap_or_default();
    let short = class.rsplit('.').next().unwrap_or(class);
    match short {
        "TableNotFoundException" => format!("Unknown table {}!", one_word(message).unwrap_or(subject)),
        "TableNotEnabledException" => format!("Table {subject} is disabled!"),
        "TableNotDisabledException" => format!("Table {message} should be disabled!"),
        "TableExistsException" => format!("Table already exists: {}!", one_word(message).unwrap_or(subject)),
        "UnknownRegionException" => message.to_owned(),
        "MergeRegionException" | "QuotaExceededException" => first_line.to_owned(),
        "NamespaceNotFoundException" => format!("Unknown namespace {first_line}!"),
        "SnapshotDoesNotExistException" => format!("Unknown snapshot {subject}!"),
        "DoNotRetryIOException" if message.contains("quota support disabled") => {
            "Quota Support disabled. Please enable in configuration.".to_owned()
        }
        _ if message.is_empty() => class.to_owned(),
        _ => format!("{class}: {message}"),
    }
}

fn one_word(message: &str) -> Option<&str> {
    let mut words = message.split_whitespace();
    words.next().filter(|_| words.next().is_none())
}

impl From<ClientError> for CommandError {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<Flow> for CommandError {
    fn from(flow: Flow) -> Self {
        Self::Flow(flow)
    }
}

impl From<RubyError> for CommandError {
    fn from(failure: RubyError) -> Self {
        Self::Flow(failure.into())
    }
}

impl From<HBaseError> for CommandError {
    /// Names and descriptors that are refused before the call.
    fn from(error: HBaseError) -> Self {
        RubyError::argument(error.message()).into()
    }
}
