//! [`PeError`]: the reason of a failed run, and its exit status.

use std::fmt;

use evenkeel_client::Error;

/// The reason why there is no report.
#[derive(Clone, Debug)]
pub enum PeError {
    /// The options are wrong.
    Options(String),
    /// No server of the cluster answers.
    Cluster(String),
    /// The table does not exist or does not fit the options.
    Table(String),
    /// Requests failed.
    Requests(String),
    /// A file of the report, or another error of this machine.
    Local(String),
}

impl PeError {
    /// The status that `evenkeel pe` exits with.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Requests(_) | Self::Local(_) => 1,
            Self::Options(_) => 2,
            Self::Cluster(_) => 3,
            Self::Table(_) => 4,
        }
    }
}

impl fmt::Display for PeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster(why) => write!(f, "no cluster answers: {why}"),
            Self::Options(why) | Self::Table(why) | Self::Requests(why) | Self::Local(why) => {
                f.write_str(why)
            }
        }
    }
}

impl std::error::Error for PeError {}

impl From<Error> for PeError {
    fn from(error: Error) -> Self {
        match error {
            Error::Connection(why) | Error::Timeout(why) | Error::NoServer(why) => Self::Cluster(why),
            Error::TableNotFound(name) => Self::Table(format!("there is no table {name}")),
            Error::TableNotEnabled(name) => Self::Table(format!("table {name} is disabled")),
            other => Self::Requests(other.to_string()),
        }
    }
}

impl From<std::io::Error> for PeError {
    fn from(error: std::io::Error) -> Self {
        Self::Local(error.to_string())
    }
}
