//! Errors, and the meaning of a NameNode's exception classes.
//!
//! A [`RemoteException`] is a reply: the outcome is final. [`HdfsError::Transport`] means that no
//! reply arrived within the retries. Both convert to [`std::io::Error`] with the kind that callers
//! of a file system expect; a remote exception stays inside as the source. `NotFound` is always the
//! NameNode's word that a file does not exist: callers take it as final. An error without a reply
//! never has that kind, even if a host name or a socket was not found.

use std::fmt::{self, Display, Formatter};
use std::io;

/// `Result` with [`HdfsError`].
pub type Result<T> = std::result::Result<T, HdfsError>;

/// A failed operation.
#[derive(Debug)]
pub enum HdfsError {
    /// The server answered with an exception.
    Remote(RemoteException),
    /// No server answered in time; the outcome of a change is unknown.
    Transport(io::Error),
    /// The server violated the protocol.
    Protocol(String),
}

/// An exception returned by a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteException {
    /// The Java class, such as `java.io.FileNotFoundException`.
    pub class: String,
    /// The first line of the message; the stack trace after it is dropped.
    pub message: String,
}

const HA: &str = "org.apache.hadoop.ipc.";
const NAMENODE: &str = "org.apache.hadoop.hdfs.server.namenode.";
const PROTOCOL: &str = "org.apache.hadoop.hdfs.protocol.";

impl RemoteException {
    /// Returns the class name without its package.
    pub fn short_class(&self) -> &str {
        self.class.rsplit('.').next().unwrap_or(&self.class)
    }

    fn is(&self, package: &str, name: &str) -> bool {
        self.class.strip_prefix(package) == Some(name)
    }

    /// Returns true if the NameNode is not the active one of its pair: the caller should fail over.
    pub fn is_standby(&self) -> bool {
        self.is(HA, "StandbyException") || self.is(HA, "ObserverRetryOnActiveException")
    }

    /// Returns true if the call should be retried on the same NameNode.
    pub fn is_retriable(&self) -> bool {
        self.is(HA, "RetriableException")
    }

    /// Returns true if another client has taken over, closed or replaced the file: its writer is
    /// fenced and must stop.
    pub fn is_lease_lost(&self) -> bool {
        self.is(NAMENODE, "LeaseExpiredException")
    }

    /// Returns true if the previous block is not yet replicated: the caller should retry.
    pub fn is_not_replicated_yet(&self) -> bool {
        self.is(NAMENODE, "NotReplicatedYetException")
    }

    /// Returns true if the NameNode is in safe mode and rejects changes.
    pub fn is_safe_mode(&self) -> bool {
        self.is(NAMENODE, "SafeModeException")
    }

    /// Returns true if no DataNode could be chosen for a block: all are excluded, full or dead.
    pub fn is_without_target(&self) -> bool {
        self.class == "java.io.IOException" && self.message.contains("could only be written to")
    }

    /// Returns the kind of [`io::Error`] that callers of a file system expect.
    pub fn kind(&self) -> io::ErrorKind {
        match self.short_class() {
            "FileNotFoundException" => io::ErrorKind::NotFound,
            "FileAlreadyExistsException" | "AlreadyBeingCreatedException" | "RecoveryInProgressException" => {
                io::ErrorKind::AlreadyExists
            }
            "ParentNotDirectoryException" => io::ErrorKind::NotADirectory,
            "PathIsNotEmptyDirectoryException" => io::ErrorKind::DirectoryNotEmpty,
            // With permissions enabled, the NameNode rejects a path below a file with this
            // exception.
            "AccessControlException" if self.message.contains("is not a directory") => {
                io::ErrorKind::NotADirectory
            }
            "AccessControlException" | "LeaseExpiredException" => io::ErrorKind::PermissionDenied,
            "SafeModeException" => io::ErrorKind::ResourceBusy,
            "NSQuotaExceededException"
            | "DSQuotaExceededException"
            | "QuotaByStorageTypeExceededException" => io::ErrorKind::StorageFull,
            "RpcNoSuchMethodException" | "RpcNoSuchProtocolException" => io::ErrorKind::Unsupported,
            _ if self.is_without_target() => io::ErrorKind::StorageFull,
            _ if self.class.strip_prefix(PROTOCOL) == Some("QuotaExceededException") => {
                io::ErrorKind::StorageFull
            }
            _ => io::ErrorKind::Other,
        }
    }
}

impl Display for RemoteException {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.short_class(), self.message)
    }
}

impl HdfsError {
    /// Returns the exception, if the server answered with one.
    pub fn remote(&self) -> Option<&RemoteException> {
        match self {
            Self::Remote(exception) => Some(exception),
            Self::Transport(_) | Self::Protocol(_) => None,
        }
    }

    /// Returns true if the writer of the file has been fenced by another client: see
    /// [`RemoteException::is_lease_lost`].
    pub fn is_fenced(&self) -> bool {
        self.remote().is_some_and(RemoteException::is_lease_lost)
    }

    /// Returns true if the server reported that a file does not exist.
    pub fn is_not_found(&self) -> bool {
        self.remote().is_some_and(|exception| exception.kind() == io::ErrorKind::NotFound)
    }

    /// Returns the kind of [`io::Error`] that this error converts to.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Remote(exception) => exception.kind(),
            Self::Transport(error) if error.kind() == io::ErrorKind::NotFound => io::ErrorKind::Other,
            Self::Transport(error) => error.kind(),
            Self::Protocol(_) => io::ErrorKind::InvalidData,
        }
    }

    /// Creates a [`HdfsError::Protocol`].
    pub fn protocol(what: impl Into<String>) -> Self {
        Self::Protocol(what.into())
    }
}

impl Display for HdfsError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote(exception) => Display::fmt(exception, f),
            Self::Transport(error) => write!(f, "no reply: {error}"),
            Self::Protocol(what) => write!(f, "unexpected bytes: {what}"),
        }
    }
}

impl std::error::Error for HdfsError {}

impl From<io::Error> for HdfsError {
    fn from(error: io::Error) -> Self {
        Self::Transport(error)
    }
}

impl From<HdfsError> for io::Error {
    fn from(error: HdfsError) -> Self {
        match error {
            HdfsError::Transport(error) if error.kind() != io::ErrorKind::NotFound => error,
            other => Self::new(other.kind(), other),
        }
    }
}

/// Returns true if an [`io::Error`] comes from a writer that another client has fenced.
pub fn is_fenced(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<HdfsError>());
    inner.is_some_and(HdfsError::is_fenced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_exception_is_not_found() {
        let exception =
            RemoteException { class: "java.io.FileNotFoundException".into(), message: "/f".into() };
        let remote = HdfsError::Remote(exception);
        assert!(remote.is_not_found());
        assert_eq!(remote.kind(), io::ErrorKind::NotFound);
        assert_eq!(io::Error::from(remote).kind(), io::ErrorKind::NotFound);
        let transport = || HdfsError::Transport(io::Error::new(io::ErrorKind::NotFound, "no address"));
        assert!(!transport().is_not_found());
        assert_eq!(transport().kind(), io::ErrorKind::Other);
        let error = io::Error::from(transport());
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (io::ErrorKind::Other, "no reply: no address")
        );
        let timeout = HdfsError::Transport(io::ErrorKind::TimedOut.into());
        assert_eq!(io::Error::from(timeout).kind(), io::ErrorKind::TimedOut);
    }
}
