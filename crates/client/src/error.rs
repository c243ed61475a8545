//! [`Error`]: the cause of a failure, and whether a retry can help.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::fmt;
use std::time::Duration;

use evenkeel_common::{ErrorKind, HBaseError, TableName};
use evenkeel_protocol::pb;

/// `Result` with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed. Retries, where they can help, have been made already.
#[derive(Clone, Debug)]
pub enum Error {
    /// The server answered with an exception.
    Remote(Box<RemoteException>),
    /// The socket could not be opened or was lost. A write may or may not have been applied.
    Connection(String),
    /// No reply in time. A write may or may not have been applied.
    Timeout(String),
    /// The server sent malformed bytes.
    Protocol(String),
    /// hbase:meta has no such table.
    TableNotFound(TableName),
    /// The table is disabled.
    TableNotEnabled(TableName),
    /// A region currently has no server.
    NoServer(String),
    /// The operation is invalid and was not sent.
    InvalidArgument(String),
    /// All attempts failed.
    RetriesExhausted {
        /// Attempts made.
        attempts: u32,
        /// The failure of the last attempt.
        last: Box<Error>,
    },
}

/// An exception of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteException {
    /// The fully qualified Java class.
    pub class: String,
    /// The message, without class and stack trace.
    pub message: String,
    /// Whether the server forbids a retry.
    pub do_not_retry: bool,
    /// Whether the server is overloaded.
    pub server_overloaded: bool,
    /// The server to which the region moved.
    pub moved_to: Option<(String, u16)>,
}

impl RemoteException {
    /// An exception from its class and the text that Java prints: `class: message`, then stack
    /// frames.
    pub fn new(class: &str, text: &str) -> Self {
        let kind = kind_of(class);
        Self {
            class: class.to_owned(),
            message: message_of(class, text),
            do_not_retry: kind.is_some_and(ErrorKind::do_not_retry),
            server_overloaded: matches!(kind, Some(ErrorKind::CallQueueTooBig | ErrorKind::CallDropped)),
            moved_to: None,
        }
    }

    /// The class, if it is known to Evenkeel.
    pub fn kind(&self) -> Option<ErrorKind> {
        kind_of(&self.class)
    }

    pub(crate) fn of_header(exception: &pb::ExceptionResponse) -> Self {
        let class = exception.exception_class_name();
        let mut error = Self::new(class, exception.stack_trace());
        error.do_not_retry |= exception.do_not_retry();
        error.server_overloaded |= exception.server_overloaded();
        error.moved_to = exception.hostname.clone().zip(u16::try_from(exception.port()).ok());
        error
    }

    pub(crate) fn of_pair(pair: &pb::NameBytesPair) -> Self {
        Self::new(&pair.name, &String::from_utf8_lossy(pair.value.as_deref().unwrap_or_default()))
    }
}

impl Error {
    pub(crate) fn of_pair(pair: &pb::NameBytesPair) -> Self {
        Self::Remote(Box::new(RemoteException::of_pair(pair)))
    }

    /// The server's exception, including that of the last attempt.
    pub fn remote(&self) -> Option<&RemoteException> {
        match self {
            Self::Remote(exception) => Some(exception),
            Self::RetriesExhausted { last, .. } => last.remote(),
            _ => None,
        }
    }

    /// Returns the class of the server's exception, if it is known to Evenkeel.
    pub fn kind(&self) -> Option<ErrorKind> {
        self.remote().and_then(RemoteException::kind)
    }

    /// Returns true if a retry cannot help.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Remote(exception) => exception.do_not_retry,
            Self::Connection(_) | Self::Timeout(_) | Self::NoServer(_) => false,
            _ => true,
        }
    }

    /// Returns true if no reply came. Such a failure does not depend on the row, and other calls
    /// to the same server would fail now too.
    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Connection(_) | Self::Timeout(_))
    }

    /// Returns true if the cached location may be stale
    /// (`ClientExceptionsUtil.isMetaClearingException`). RegionOpeningException counts, as a
    /// subclass of NotServingRegionException in HBase.
    pub(crate) fn clears_location(&self) -> bool {
        use ErrorKind as K;
        match self.kind() {
            Some(
                K::RegionTooBusy
                | K::MultiActionResultTooLarge
                | K::CallQueueTooBig
                | K::CallDropped
                | K::RequestTooBig
                | K::RpcThrottling,
            ) => false,
            Some(_) => true,
            None => !matches!(self.remote().map(|e| e.class.as_str()), Some(RETRY_IMMEDIATELY)),
        }
    }

    /// Returns true if every cached location on the server may be stale.
    pub(crate) fn clears_server(&self) -> bool {
        matches!(self, Self::Connection(_))
            || matches!(self.kind(), Some(ErrorKind::RegionServerStopped | ErrorKind::RegionServerAborted))
    }

    /// Returns true if the retry needs no pause.
    pub(crate) fn retries_at_once(&self) -> bool {
        self.kind() == Some(ErrorKind::MultiActionResultTooLarge)
            || self.remote().is_some_and(|e| e.class == RETRY_IMMEDIATELY)
    }

    /// The pause that a quota demands.
    pub(crate) fn throttled_for(&self) -> Option<Duration> {
        let remote = self.remote().filter(|_| self.kind() == Some(ErrorKind::RpcThrottling));
        remote.and_then(|e| wait_of(&e.message))
    }
}

const RETRY_IMMEDIATELY: &str = "org.apache.hadoop.hbase.RetryImmediatelyException";

fn kind_of(class: &str) -> Option<ErrorKind> {
    ErrorKind::ALL.iter().copied().find(|kind| kind.class_name() == class)
}

/// The message in a Java throwable's text: without the class and the stack frames.
fn message_of(class: &str, text: &str) -> String {
    let text = text.split("\n\tat ").next().unwrap_or_default();
    let text = text.strip_prefix(class).map_or(text, |rest| rest.trim_start_matches(':').trim_start());
    text.trim_end().to_owned()
}

/// The wait at the end of a throttling message: `- wait 1hr, 2mins, 3sec, 4ms`, any part absent.
fn wait_of(message: &str) -> Option<Duration> {
    let wait = message.rsplit_once("wait ")?.1;
    let mut total = Duration::ZERO;
    for part in wait.split([',', ' ']).map(|p| p.trim_matches(['.', ' '])).filter(|p| !p.is_empty()) {
        let digits = part.find(|c: char| !c.is_ascii_digit())?;
        let (number, unit) = part.split_at(digits);
        let number: u64 = number.parse().ok()?;
        total = total.saturating_add(match unit {
            "hr" | "hrs" => Duration::from_secs(number.saturating_mul(3600)),
            "min" | "mins" => Duration::from_secs(number.saturating_mul(60)),
            "sec" | "secs" => Duration::from_secs(number),
            "ms" => Duration::from_millis(number),
            _ => return None,
        });
    }
    Some(total)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote(e) => write!(f, "{}: {}", e.class, e.message),
            Self::Connection(message) => write!(f, "connection: {message}"),
            Self::Timeout(message) => write!(f, "timeout: {message}"),
            Self::Protocol(message) => write!(f, "protocol: {message}"),
            Self::TableNotFound(table) => write!(f, "no such table: {table}"),
            Self::TableNotEnabled(table) => write!(f, "the table is disabled: {table}"),
            Self::NoServer(message) => write!(f, "no server: {message}"),
            Self::InvalidArgument(message) => write!(f, "invalid argument: {message}"),
            Self::RetriesExhausted { attempts, last } => write!(f, "after {attempts} tries: {last}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<HBaseError> for Error {
    /// Converts errors of names, descriptors and cells that this process built or parsed.
    fn from(error: HBaseError) -> Self {
        match error.kind() {
            ErrorKind::IllegalArgument => Self::InvalidArgument(error.message().to_owned()),
            _ => Self::Protocol(error.to_string()),
        }
    }
}

impl From<prost::DecodeError> for Error {
    fn from(error: prost::DecodeError) -> Self {
        Self::Protocol(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(class: &str, text: &str) -> Error {
        Error::Remote(Box::new(RemoteException::new(class, text)))
    }

    #[test]
    fn java_text_loses_class_and_frames() {
        let e = RemoteException::new("a.B", "a.B: what: it was\nmore\n\tat x.y(Z.java:1)\n\tat z");
        assert_eq!(e.message, "what: it was\nmore");
        assert_eq!(RemoteException::new("a.B", "a.B").message, "");
        assert_eq!(RemoteException::new("a.B", "other").message, "other");
    }

    #[test]
    fn exception_classes_decide_location_invalidation() {
        let p = "org.apache.hadoop.hbase.";
        for (class, clears, last) in [
            ("NotServingRegionException", true, false),
            ("exceptions.RegionMovedException", true, false),
            ("exceptions.RegionOpeningException", true, false),
            ("RegionTooBusyException", false, false),
            ("CallQueueTooBigException", false, false),
            ("RetryImmediatelyException", false, false),
            ("quotas.RpcThrottlingException", false, false),
            ("regionserver.NoSuchColumnFamilyException", true, true),
            ("unheard.OfException", true, false),
        ] {
            let e = remote(&format!("{p}{class}"), "");
            assert_eq!((e.clears_location(), e.is_final()), (clears, last), "{class}");
        }
    }

    #[test]
    fn throttling_errors_carry_the_wait() {
        let e = |m: &str| remote(ErrorKind::RpcThrottling.class_name(), m).throttled_for();
        assert_eq!(e("limit - wait 1hr, 1min, 1sec, 5ms"), Some(Duration::from_millis(3_661_005)));
        assert_eq!(e("requests limit exceeded - wait 1mins, 2sec"), Some(Duration::from_secs(62)));
        assert_eq!(e("limit - wait 70ms"), Some(Duration::from_millis(70)));
        assert_eq!(e("limit - wait 99999999999999999999sec"), None);
        assert_eq!(e("limit"), None);
    }
}
