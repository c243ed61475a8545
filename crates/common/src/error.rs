//! Errors, one to one with HBase's exception classes.
//!
//! A client decides what to do by the class name alone: retry, look the region up again, or give up. So an error here
//! is a class ([`ErrorKind`]) and a message; only classes that a stock client can load and build from one string are
//! listed. `do_not_retry` follows HBase's class hierarchy (`DoNotRetryIOException` and what extends it).

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

            /// Whether the class extends `DoNotRetryIOException`: the client gives up at once.
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
    /// Anything that may go better next time.
    Io = "java.io.IOException", retry;
    /// The server hit its own bug or an unreadable file; carries no advice but to retry.
    FileNotFound = "java.io.FileNotFoundException", retry;
    /// The call's time ran out.
    Timeout = "org.apache.hadoop.hbase.exceptions.TimeoutIOException", retry;
    /// The request itself is wrong.
    DoNotRetry = "org.apache.hadoop.hbase.DoNotRetryIOException", fatal;
    /// The region is not here; look it up again.
    NotServingRegion = "org.apache.hadoop.hbase.NotServingRegionException", retry;
    /// The region went to another server, which the message names.
    RegionMoved = "org.apache.hadoop.hbase.exceptions.RegionMovedException", retry;
    /// The region is being opened here; come back.
    RegionOpening = "org.apache.hadoop.hbase.exceptions.RegionOpeningException", retry;
    /// Too much unflushed data or a row lock that was not had in time; back off.
    RegionTooBusy = "org.apache.hadoop.hbase.RegionTooBusyException", retry;
    /// The row is outside the region.
    WrongRegion = "org.apache.hadoop.hbase.regionserver.WrongRegionException", retry;
    /// The call queue is full; back off.
    CallQueueTooBig = "org.apache.hadoop.hbase.CallQueueTooBigException", retry;
    /// The call was dropped from the queue; back off.
    CallDropped = "org.apache.hadoop.hbase.CallDroppedException", retry;
    /// Send these actions again at once, in a smaller batch.
    MultiActionResultTooLarge = "org.apache.hadoop.hbase.MultiActionResultTooLarge", retry;
    /// The request frame exceeds `hbase.ipc.max.request.size`.
    RequestTooBig = "org.apache.hadoop.hbase.exceptions.RequestTooBigException", fatal;
    /// No such scanner, or no longer.
    UnknownScanner = "org.apache.hadoop.hbase.UnknownScannerException", fatal;
    /// A `next` call was lost or repeated.
    OutOfOrderScannerNext = "org.apache.hadoop.hbase.exceptions.OutOfOrderScannerNextException", fatal;
    /// The scanner lost its place; open a new one after the last row.
    ScannerReset = "org.apache.hadoop.hbase.exceptions.ScannerResetException", fatal;
    /// The scanner's lease is in use or gone.
    Lease = "org.apache.hadoop.hbase.regionserver.LeaseException", fatal;
    /// The server is shutting down.
    RegionServerStopped = "org.apache.hadoop.hbase.regionserver.RegionServerStoppedException", retry;
    /// The server is dying.
    RegionServerAborted = "org.apache.hadoop.hbase.regionserver.RegionServerAbortedException", retry;
    /// The server is not up yet.
    ServerNotRunningYet = "org.apache.hadoop.hbase.ipc.ServerNotRunningYetException", retry;
    /// The master is initializing.
    PleaseHold = "org.apache.hadoop.hbase.PleaseHoldException", retry;
    /// The master is stopped.
    MasterStopped = "org.apache.hadoop.hbase.exceptions.MasterStoppedException", fatal;
    /// The table has no such family.
    NoSuchColumnFamily = "org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException", fatal;
    /// The row exceeds `hbase.table.max.rowsize`.
    RowTooBig = "org.apache.hadoop.hbase.regionserver.RowTooBigException", fatal;
    /// The region cannot do that in its state.
    DoNotRetryRegion = "org.apache.hadoop.hbase.client.DoNotRetryRegionException", fatal;
    /// The regions cannot be merged.
    MergeRegion = "org.apache.hadoop.hbase.exceptions.MergeRegionException", fatal;
    /// No such table.
    TableNotFound = "org.apache.hadoop.hbase.TableNotFoundException", fatal;
    /// The table is there already.
    TableExists = "org.apache.hadoop.hbase.TableExistsException", fatal;
    /// The table is disabled.
    TableNotEnabled = "org.apache.hadoop.hbase.TableNotEnabledException", fatal;
    /// The table is not disabled.
    TableNotDisabled = "org.apache.hadoop.hbase.TableNotDisabledException", fatal;
    /// No such namespace.
    NamespaceNotFound = "org.apache.hadoop.hbase.NamespaceNotFoundException", fatal;
    /// The namespace is there already.
    NamespaceExist = "org.apache.hadoop.hbase.NamespaceExistException", fatal;
    /// The change of a family cannot be made.
    InvalidFamilyOperation = "org.apache.hadoop.hbase.InvalidFamilyOperationException", fatal;
    /// No such region.
    UnknownRegion = "org.apache.hadoop.hbase.UnknownRegionException", fatal;
    /// A rule of the master forbids it.
    Constraint = "org.apache.hadoop.hbase.constraint.ConstraintException", fatal;
    /// Not permitted.
    AccessDenied = "org.apache.hadoop.hbase.security.AccessDeniedException", fatal;
    /// A timestamp too far in the future.
    FailedSanityCheck = "org.apache.hadoop.hbase.exceptions.FailedSanityCheckException", fatal;
    /// No such coprocessor service, or a call that no longer exists.
    UnknownProtocol = "org.apache.hadoop.hbase.exceptions.UnknownProtocolException", fatal;
    /// Bytes of a filter or comparator that cannot be read.
    Deserialization = "org.apache.hadoop.hbase.exceptions.DeserializationException", fatal;
    /// A stored file is damaged.
    CorruptHFile = "org.apache.hadoop.hbase.io.hfile.CorruptHFileException", fatal;
    /// The snapshot does not exist.
    SnapshotDoesNotExist = "org.apache.hadoop.hbase.snapshot.SnapshotDoesNotExistException", fatal;
    /// The snapshot exists already.
    SnapshotExists = "org.apache.hadoop.hbase.snapshot.SnapshotExistsException", fatal;
    /// The snapshot cannot be taken.
    SnapshotCreation = "org.apache.hadoop.hbase.snapshot.SnapshotCreationException", fatal;
    /// The snapshot is none that is known.
    UnknownSnapshot = "org.apache.hadoop.hbase.snapshot.UnknownSnapshotException", fatal;
    /// The snapshot, or a file it needs, is damaged or gone.
    CorruptedSnapshot = "org.apache.hadoop.hbase.snapshot.CorruptedSnapshotException", fatal;
    /// The snapshot cannot be restored.
    RestoreSnapshot = "org.apache.hadoop.hbase.snapshot.RestoreSnapshotException", fatal;
    /// The snapshot's time to live is over.
    SnapshotTtlExpired = "org.apache.hadoop.hbase.snapshot.SnapshotTTLExpiredException", fatal;
    /// Something else about a snapshot.
    HBaseSnapshot = "org.apache.hadoop.hbase.snapshot.HBaseSnapshotException", fatal;
    /// The connection's first bytes are not HBase's.
    FatalConnection = "org.apache.hadoop.hbase.ipc.FatalConnectionException", fatal;
    /// The connection's version byte is not 0.
    WrongVersion = "org.apache.hadoop.hbase.ipc.WrongVersionException", fatal;
    /// The connection's authentication byte is unknown.
    BadAuth = "org.apache.hadoop.hbase.ipc.BadAuthException", fatal;
    /// The client asked for security details of a server without security.
    SecurityNotEnabled = "org.apache.hadoop.hbase.ipc.SecurityNotEnabledException", fatal;
    /// A feature that is not supported.
    UnsupportedOperation = "java.lang.UnsupportedOperationException", fatal;
    /// An argument that HBase refuses with an unchecked exception; its RPC server makes an `IOException` of it.
    IllegalArgument = "java.io.IOException", retry;
}

/// An error as the client will see it: an HBase exception class and a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HBaseError {
    kind: ErrorKind,
    message: String,
    moved_to: Option<Box<(String, u16)>>,
}

/// Bytes of a message at most: it may repeat what a client sent, in each of many answers.
const MESSAGE_BYTES_MAX: usize = 8 << 10;

impl HBaseError {
    /// An error of a class. What a message has beyond 8 KiB is left out of its middle: the first cause may stand last.
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

    /// `RegionMovedException`; the message is in the only form that clients can parse.
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

    /// Where the region went, for [`ErrorKind::RegionMoved`].
    pub fn moved_to(&self) -> Option<(&str, u16)> {
        self.moved_to.as_deref().map(|(host, port)| (host.as_str(), *port))
    }

    /// Whether the client should give up at once.
    pub fn is_do_not_retry(&self) -> bool {
        self.kind.do_not_retry()
    }

    /// Whether the class is of the `HBaseServerException` family, which tells the client to slow down.
    pub fn is_server_overloaded(&self) -> bool {
        matches!(self.kind, ErrorKind::CallQueueTooBig | ErrorKind::CallDropped)
    }

    /// The same error with words put before its message.
    pub fn context(mut self, what: impl fmt::Display) -> Self {
        self.message = Self::new(self.kind, format!("{what}: {}", self.message)).message;
        self
    }
}

impl fmt::Display for HBaseError {
    /// As Java prints a throwable: `class: message`.
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

/// Bytes as errors quote them: escaped, and no more than the first [`QUOTED_BYTES_MAX`].
pub fn quoted(bytes: &[u8]) -> impl fmt::Display {
    let shown = bytes.get(..QUOTED_BYTES_MAX).unwrap_or(bytes).escape_ascii();
    format!("{shown}{}", if bytes.len() > QUOTED_BYTES_MAX { "..." } else { "" })
}

/// Bytes that an error quotes at most, of what a client sent.
pub const QUOTED_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_sent_is_repeated_within_bounds() {
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
