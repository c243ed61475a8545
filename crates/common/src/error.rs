//! Errors, which map one to one to HBase's exception classes.
//!
//! A client decides by the class name alone whether to retry, to locate the region again, or to
//! give up. So an error is a class ([`ErrorKind`]) and a message. The list has only classes that a
//! stock client can load and construct from one string. `do_not_retry` follows HBase's class
//! hierarchy (`DoNotRetryIOException` and its subclasses).

use std::fmt;

/// `Result` with [`HBaseError`].
pub type Result<T, E = HBaseError> = std::result::Result<T, E>;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $class:literal, $retry:ident;)*) => {
        /// An exception class of HBase.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorKind { $($(#[$doc])* $name,)* }

        impl ErrorKind {
            /// The fully qualified Java class name.
            pub fn class_name(self) -> &'static str {
                match self { $(Self::$name => $class,)* }
            }

            /// Returns true if the class extends `DoNotRetryIOException`: the client does not
            /// retry.
            pub fn do_not_retry(self) -> bool {
                match self { $(Self::$name => kinds!(@ $retry),)* }
            }

            /// Every class, for tests and tables.
            pub const ALL: &'static [ErrorKind] = &[$(Self::$name,)*];
        }
    };
    (@ fatal) => { true };
    (@ retry) => { false };
}

kinds! {
    /// Any failure that a retry may overcome.
    Io = "java.io.IOException", retry;
    /// The server hit a bug of its own or an unreadable file. The client retries.
    FileNotFound = "java.io.FileNotFoundException", retry;
    /// The call timed out.
    Timeout = "org.apache.hadoop.hbase.exceptions.TimeoutIOException", retry;
    /// The request itself is wrong.
    DoNotRetry = "org.apache.hadoop.hbase.DoNotRetryIOException", fatal;
    /// The region is not on this server; the client locates it again.
    NotServingRegion = "org.apache.hadoop.hbase.NotServingRegionException", retry;
    /// The region moved to another server, which the message names.
    RegionMoved = "org.apache.hadoop.hbase.exceptions.RegionMovedException", retry;
    /// The region is opening on this server; the client retries.
    RegionOpening = "org.apache.hadoop.hbase.exceptions.RegionOpeningException", retry;
    /// Too much unflushed data, or a row lock not acquired in time; the client backs off.
    RegionTooBusy = "org.apache.hadoop.hbase.RegionTooBusyException", retry;
    /// The row is outside the region.
    WrongRegion = "org.apache.hadoop.hbase.regionserver.WrongRegionException", retry;
    /// The call queue is full; the client backs off.
    CallQueueTooBig = "org.apache.hadoop.hbase.CallQueueTooBigException", retry;
    /// The call was dropped from the queue; the client backs off.
    CallDropped = "org.apache.hadoop.hbase.CallDroppedException", retry;
    /// The client disconnected while the call ran. No client sees it.
    CallerDisconnected = "org.apache.hadoop.hbase.ipc.CallerDisconnectedException", retry;
    /// The client retries these actions immediately, in a smaller batch.
    MultiActionResultTooLarge = "org.apache.hadoop.hbase.MultiActionResultTooLarge", retry;
    /// A quota is used up; the client waits for the time that the message ends with.
    RpcThrottling = "org.apache.hadoop.hbase.quotas.RpcThrottlingException", retry;
    /// The limit of a namespace on tables or regions does not allow the change.
    QuotaExceeded = "org.apache.hadoop.hbase.quotas.QuotaExceededException", fatal;
    /// The policy of an exceeded quota of space does not allow the write. The message begins with
    /// the name of the policy.
    SpaceLimiting = "org.apache.hadoop.hbase.quotas.SpaceLimitingException", fatal;
    /// The request frame exceeds `hbase.ipc.max.request.size`.
    RequestTooBig = "org.apache.hadoop.hbase.exceptions.RequestTooBigException", fatal;
    /// The scanner does not exist, or no longer.
    UnknownScanner = "org.apache.hadoop.hbase.UnknownScannerException", fatal;
    /// A `next` call was lost or repeated.
    OutOfOrderScannerNext = "org.apache.hadoop.hbase.exceptions.OutOfOrderScannerNextException", fatal;
    /// The scanner lost its position; the client opens a new one after the last row.
    ScannerReset = "org.apache.hadoop.hbase.exceptions.ScannerResetException", fatal;
    /// The scanner's lease is in use or expired.
    Lease = "org.apache.hadoop.hbase.regionserver.LeaseException", fatal;
    /// The server is shutting down.
    RegionServerStopped = "org.apache.hadoop.hbase.regionserver.RegionServerStoppedException", retry;
    /// The server is aborting.
    RegionServerAborted = "org.apache.hadoop.hbase.regionserver.RegionServerAbortedException", retry;
    /// The server is still starting.
    ServerNotRunningYet = "org.apache.hadoop.hbase.ipc.ServerNotRunningYetException", retry;
    /// The master is initializing.
    PleaseHold = "org.apache.hadoop.hbase.PleaseHoldException", retry;
    /// The master is stopped.
    MasterStopped = "org.apache.hadoop.hbase.exceptions.MasterStoppedException", fatal;
    /// The table has no such family.
    NoSuchColumnFamily = "org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException", fatal;
    /// The row exceeds `hbase.table.max.rowsize`.
    RowTooBig = "org.apache.hadoop.hbase.regionserver.RowTooBigException", fatal;
    /// The region's state does not allow the operation.
    DoNotRetryRegion = "org.apache.hadoop.hbase.client.DoNotRetryRegionException", fatal;
    /// The regions cannot be merged.
    MergeRegion = "org.apache.hadoop.hbase.exceptions.MergeRegionException", fatal;
    /// No such table.
    TableNotFound = "org.apache.hadoop.hbase.TableNotFoundException", fatal;
    /// The table exists already.
    TableExists = "org.apache.hadoop.hbase.TableExistsException", fatal;
    /// The table is disabled.
    TableNotEnabled = "org.apache.hadoop.hbase.TableNotEnabledException", fatal;
    /// The table is not disabled.
    TableNotDisabled = "org.apache.hadoop.hbase.TableNotDisabledException", fatal;
    /// No such replication peer.
    ReplicationPeerNotFound = "org.apache.hadoop.hbase.ReplicationPeerNotFoundException", fatal;
    /// No such namespace.
    NamespaceNotFound = "org.apache.hadoop.hbase.NamespaceNotFoundException", fatal;
    /// The namespace exists already.
    NamespaceExist = "org.apache.hadoop.hbase.NamespaceExistException", fatal;
    /// The change of a column family is not allowed.
    InvalidFamilyOperation = "org.apache.hadoop.hbase.InvalidFamilyOperationException", fatal;
    /// No such region.
    UnknownRegion = "org.apache.hadoop.hbase.UnknownRegionException", fatal;
    /// A constraint of the master is violated.
    Constraint = "org.apache.hadoop.hbase.constraint.ConstraintException", fatal;
    /// The user lacks the permission.
    AccessDenied = "org.apache.hadoop.hbase.security.AccessDeniedException", fatal;
    /// A timestamp too far in the future.
    FailedSanityCheck = "org.apache.hadoop.hbase.exceptions.FailedSanityCheckException", fatal;
    /// The coprocessor service does not exist, or the call no longer exists.
    UnknownProtocol = "org.apache.hadoop.hbase.exceptions.UnknownProtocolException", fatal;
    /// A serialized filter or comparator cannot be parsed.
    Deserialization = "org.apache.hadoop.hbase.exceptions.DeserializationException", fatal;
    /// A stored file is corrupt.
    CorruptHFile = "org.apache.hadoop.hbase.io.hfile.CorruptHFileException", fatal;
    /// The snapshot does not exist.
    SnapshotDoesNotExist = "org.apache.hadoop.hbase.snapshot.SnapshotDoesNotExistException", fatal;
    /// The snapshot exists already.
    SnapshotExists = "org.apache.hadoop.hbase.snapshot.SnapshotExistsException", fatal;
    /// The snapshot cannot be taken.
    SnapshotCreation = "org.apache.hadoop.hbase.snapshot.SnapshotCreationException", fatal;
    /// The snapshot is unknown.
    UnknownSnapshot = "org.apache.hadoop.hbase.snapshot.UnknownSnapshotException", fatal;
    /// The snapshot, or a file it needs, is corrupt or missing.
    CorruptedSnapshot = "org.apache.hadoop.hbase.snapshot.CorruptedSnapshotException", fatal;
    /// The snapshot cannot be restored.
    RestoreSnapshot = "org.apache.hadoop.hbase.snapshot.RestoreSnapshotException", fatal;
    /// The snapshot's TTL has expired.
    SnapshotTtlExpired = "org.apache.hadoop.hbase.snapshot.SnapshotTTLExpiredException", fatal;
    /// Any other failure of a snapshot.
    HBaseSnapshot = "org.apache.hadoop.hbase.snapshot.HBaseSnapshotException", fatal;
    /// The connection's first bytes are not HBase's.
    FatalConnection = "org.apache.hadoop.hbase.ipc.FatalConnectionException", fatal;
    /// The connection's version byte is not 0.
    WrongVersion = "org.apache.hadoop.hbase.ipc.WrongVersionException", fatal;
    /// The connection's authentication byte is unknown.
    BadAuth = "org.apache.hadoop.hbase.ipc.BadAuthException", fatal;
    /// The client requested security details of a server without security.
    SecurityNotEnabled = "org.apache.hadoop.hbase.ipc.SecurityNotEnabledException", fatal;
    /// A feature that is not supported.
    UnsupportedOperation = "java.lang.UnsupportedOperationException", fatal;
    /// An argument that HBase rejects with an unchecked exception, which its RPC server converts to
    /// an `IOException`.
    IllegalArgument = "java.io.IOException", retry;
}

/// An error as the client sees it: an HBase exception class and a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HBaseError {
    kind: ErrorKind,
    message: String,
    moved_to: Option<Box<(String, u16)>>,
}

/// The longest message, in bytes. A message may quote input of a client, in each of many replies.
const MESSAGE_BYTES_MAX: usize = 8 << 10;

impl HBaseError {
    /// An error of a class. A message of more than 8 KiB is shortened in its middle, because the
    /// first cause may be at its end.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.len() > MESSAGE_BYTES_MAX {
            let is_boundary = |at: &usize| message.is_char_boundary(*at);
            let head = (0..=MESSAGE_BYTES_MAX / 2).rev().find(is_boundary).unwrap_or(0);
            let tail = (message.len() - MESSAGE_BYTES_MAX / 2..).find(is_boundary).unwrap_or(message.len());
            message = [&message[..head], "...", &message[tail..]].concat();
        }
        Self { kind, message, moved_to: None }
    }

    /// `java.io.IOException`.
    pub fn io(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Io, message)
    }

    /// `DoNotRetryIOException`.
    pub fn do_not_retry(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::DoNotRetry, message)
    }

    /// `NotServingRegionException` for a region that is not online here.
    pub fn not_serving(region: &str, server: &str) -> Self {
        Self::new(ErrorKind::NotServingRegion, format!("{region} is not online on {server}"))
    }

    /// `RegionMovedException`, with the message in the only form that clients can parse.
    pub fn region_moved(host: &str, port: u16, start_code: i64, location_seq_num: i64) -> Self {
        let message = format!(
            "Region moved to: hostname={host} port={port} startCode={start_code}. As of locationSeqNum={location_seq_num}."
        );
        Self { kind: ErrorKind::RegionMoved, message, moved_to: Some(Box::new((host.to_owned(), port))) }
    }

    /// The class.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The message, without the class name.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Host and port of the region's new server, for [`ErrorKind::RegionMoved`].
    pub fn moved_to(&self) -> Option<(&str, u16)> {
        self.moved_to.as_deref().map(|(host, port)| (host.as_str(), *port))
    }

    /// Returns true if the client should not retry.
    pub fn is_do_not_retry(&self) -> bool {
        self.kind.do_not_retry()
    }

    /// Returns true if the class extends `HBaseServerException`, which tells the client to back
    /// off.
    pub fn is_server_overloaded(&self) -> bool {
        matches!(self.kind, ErrorKind::CallQueueTooBig | ErrorKind::CallDropped)
    }

    /// The same error with `what` before its message.
    pub fn context(mut self, what: impl fmt::Display) -> Self {
        self.message = Self::new(self.kind, format!("{what}: {}", self.message)).message;
        self
    }
}

impl fmt::Display for HBaseError {
    /// Writes `class: message`, as Java prints a throwable.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.class_name(), self.message)
    }
}

impl std::error::Error for HBaseError {}

impl From<std::io::Error> for HBaseError {
    fn from(error: std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::FileNotFound,
            _ => ErrorKind::Io,
        };
        Self::new(kind, error.to_string())
    }
}

/// Bytes as errors quote them: escaped, and at most the first [`QUOTED_BYTES_MAX`].
pub fn quoted(bytes: &[u8]) -> impl fmt::Display {
    let shown = bytes.get(..QUOTED_BYTES_MAX).unwrap_or(bytes).escape_ascii();
    format!("{shown}{}", if bytes.len() > QUOTED_BYTES_MAX { "..." } else { "" })
}

/// The maximum bytes of a client's input that an error quotes.
pub const QUOTED_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_quote_client_bytes_within_bounds() {
        let error = HBaseError::io("\u{e9}".repeat(100_000) + "cause");
        assert!(error.message().len() <= MESSAGE_BYTES_MAX + 3 && error.message().ends_with("cause"));
        assert!(error.context("more").message().len() <= MESSAGE_BYTES_MAX + 3);
        assert_eq!(quoted(b"a\x00").to_string(), "a\\x00");
        assert_eq!(quoted(&[0; 1 << 20]).to_string().len(), 4 * QUOTED_BYTES_MAX + 3);
    }

    #[test]
    fn moved_regions_read_as_clients_parse_them() {
        let error = HBaseError::region_moved("h", 16020, 17, 5);
        assert_eq!(
            error.message(),
            "Region moved to: hostname=h port=16020 startCode=17. As of locationSeqNum=5."
        );
        assert_eq!(error.moved_to(), Some(("h", 16020)));
        assert!(!error.is_do_not_retry());
    }

    #[test]
    fn class_names_are_distinct() {
        let checked = || ErrorKind::ALL.iter().filter(|kind| **kind != ErrorKind::IllegalArgument);
        let names: std::collections::HashSet<_> = checked().map(|k| k.class_name()).collect();
        assert_eq!(names.len(), checked().count());
    }
}
