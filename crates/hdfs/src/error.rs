//! Errors, and what the exception classes of a NameNode mean.
//!
//! A [`RemoteException`] is an answer: the NameNode has decided. [`HdfsError::Transport`] says that
//! no answer came within the retries. Both convert to [`std::io::Error`] with the kind that callers
//! of a file system expect, and the original stays inside as the source.

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
    /// The other side sent something that the protocol does not allow.
    Protocol(String),
}

/// An exception that a server answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteException {
    /// The Java class, such as `java.io.FileNotFoundException`.
    pub class: String,
    /// The first line of the message; the stack trace that follows it is dropped.
    pub message: String,
}

const HA: &str = "org.apache.hadoop.ipc.";
const NAMENODE: &str = "org.apache.hadoop.hdfs.server.namenode.";
const PROTOCOL: &str = "org.apache.hadoop.hdfs.protocol.";

impl RemoteException {
    /// The class without its package.
    pub fn short_class(&self) -> &str {
        self.class.rsplit('.').next().unwrap_or(&self.class)
    }

    fn is(&self, package: &str, name: &str) -> bool {
        self.class.strip_prefix(package) == Some(name)
    }

    /// The NameNode is not the active one of its pair: the other one should be asked.
    pub fn is_standby(&self) -> bool {
        self.is(HA, "StandbyException") || self.is(HA, "ObserverRetryOnActiveException")
    }

    /// The same NameNode should be asked again.
    pub fn is_retriable(&self) -> bool {
        self.is(HA, "RetriableException")
    }

    /// Another client has taken the file over, closed it or replaced it: its writer is fenced and
    /// must not write on.
    pub fn is_lease_lost(&self) -> bool {
        self.is(NAMENODE, "LeaseExpiredException")
    }

    /// The block before the one that was asked for is not yet replicated: ask again.
    pub fn is_not_replicated_yet(&self) -> bool {
        self.is(NAMENODE, "NotReplicatedYetException")
    }

    /// The NameNode is in safe mode and takes no changes.
    pub fn is_safe_mode(&self) -> bool {
        self.is(NAMENODE, "SafeModeException")
    }

    /// No DataNode could be chosen for a block: all are excluded, full or dead.
    pub fn is_without_target(&self) -> bool {
        self.class == "java.io.IOException" && self.message.contains("could only be written to")
    }

    /// The kind of [`io::Error`] that callers of a file system expect.
    pub fn kind(&self) -> io::ErrorKind {
        match self.short_class() {
            "FileNotFoundException" => io::ErrorKind::NotFound,
            "FileAlreadyExistsException" | "AlreadyBeingCreatedException" | "RecoveryInProgressException" => {
                io::ErrorKind::AlreadyExists
            }
            "ParentNotDirectoryException" => io::ErrorKind::NotADirectory,
            "PathIsNotEmptyDirectoryException" => io::ErrorKind::DirectoryNotEmpty,
            // With permissions, a path below a file is refused in this way.
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
    /// The exception, if the server answered with one.
    pub fn remote(&self) -> Option<&RemoteException> {
        match self {
            Self::Remote(exception) => Some(exception),
            Self::Transport(_) | Self::Protocol(_) => None,
        }
    }

    /// True if the writer of the file has been fenced by another client: see
    /// [`RemoteException::is_lease_lost`].
    pub fn is_fenced(&self) -> bool {
        self.remote().is_some_and(RemoteException::is_lease_lost)
    }

    /// True if the server said that a file is not there.
    pub fn is_not_found(&self) -> bool {
        self.remote().is_some_and(|exception| exception.kind() == io::ErrorKind::NotFound)
    }

    /// The kind of [`io::Error`] that it converts to.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Remote(exception) => exception.kind(),
            Self::Transport(error) => error.kind(),
            Self::Protocol(_) => io::ErrorKind::InvalidData,
        }
    }

    /// Bytes from a socket that the protocol does not allow.
    pub fn protocol(what: impl Into<String>) -> Self {
        Self::Protocol(what.into())
    }
}

impl Display for HdfsError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote(exception) => Display::fmt(exception, f),
            Self::Transport(error) => write!(f, "no answer: {error}"),
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
            HdfsError::Transport(error) => error,
            other => Self::new(other.kind(), other),
        }
    }
}

/// True if an [`io::Error`] comes from a writer that another client has fenced.
pub fn is_fenced(error: &io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<HdfsError>());
    inner.is_some_and(HdfsError::is_fenced)
}
