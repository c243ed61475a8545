//! Why something did not go through, and how it is said in the stock shell's words.

use std::fmt;

use evenkeel_client::Error as ClientError;
use evenkeel_common::HBaseError;

/// What leaves an expression other than by a value.
#[derive(Debug)]
pub enum Flow {
    /// Something went wrong.
    Failure(Failure),
    /// `exit`, with its status.
    Exit(i32),
    /// The user pressed Ctrl-C.
    Interrupted,
    /// `break`
    Break,
    /// `next`
    Next,
    /// Nobody reads the output any more.
    Closed,
}

/// Something that went wrong: a Ruby class and a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// `NameError`, `ArgumentError`, `RuntimeError`, ...
    pub class: &'static str,
    /// What is wrong.
    pub message: String,
}

impl Failure {
    /// A failure of a class.
    pub fn new(class: &'static str, message: impl Into<String>) -> Self {
        Self { class, message: message.into() }
    }

    /// What commands fail with.
    pub fn runtime(message: impl Into<String>) -> Self {
        Self::new("RuntimeError", message)
    }

    /// Arguments that make no sense.
    pub fn argument(message: impl Into<String>) -> Self {
        Self::new("ArgumentError", message)
    }
}

impl From<Failure> for Flow {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Why a command did not go through.
#[derive(Debug)]
pub enum CommandError {
    /// The cluster or the client refuses.
    Client(ClientError),
    /// The command itself refuses, or something that passes through it.
    Flow(Flow),
}

/// What commands return.
pub type CommandResult<T = crate::value::Value> = Result<T, CommandError>;

impl CommandError {
    /// The exception that a server answered with, without its package; empty when none did.
    pub fn remote_class(&self) -> &str {
        let Self::Client(client) = self else { return "" };
        client.remote().and_then(|remote| remote.class.rsplit('.').next()).unwrap_or_default()
    }

    /// What the user is told; `subject` is the command's first argument, which many messages name.
    pub fn into_flow(self, subject: &str) -> Flow {
        match self {
            Self::Flow(flow) => flow,
            Self::Client(error) => Failure::runtime(describe(&error, subject)).into(),
        }
    }
}

/// An error in the stock shell's words (`translate_hbase_exceptions` of its `commands.rb`).
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
        ClientError::Timeout(what) => format!("No answer in time: {what}"),
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
        "MergeRegionException" => first_line.to_owned(),
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

impl From<Failure> for CommandError {
    fn from(failure: Failure) -> Self {
        Self::Flow(failure.into())
    }
}

impl From<HBaseError> for CommandError {
    /// Names and descriptors that are refused before anything is sent.
    fn from(error: HBaseError) -> Self {
        Failure::argument(error.message()).into()
    }
}
