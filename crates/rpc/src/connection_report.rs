//! [`ConnectionReport`] and [`RunningCall`]: a connection and a call as operators see them.
//!
//! A connection belongs to its thread, and other threads have no access to it. So the monitor of
//! each thread lists its connections for [`REPORT_FOR`] after a request for reports
//! ([`Reports::request`]). The list is at most one interval of the monitor old. Without requests no
//! lists are made.
//!
//! The calls that run on other threads than their connection's are listed at every check of the
//! monitor, so that a first request shows them. The others end within microseconds.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use evenkeel_common::clock;
use parking_lot::Mutex;

/// Limit of listed connections per thread.
pub const REPORTED_MAX: usize = 512;
/// Limit of listed calls per connection, so that one connection does not hide the calls of others.
pub const CALLS_OF_A_CONNECTION: usize = 16;
/// How long lists are made after a request.
const REPORT_FOR: Duration = Duration::from_secs(10);
/// Limit of a listed user name, in bytes.
const USER_BYTES_MAX: usize = 128;

/// A connection; see the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionReport {
    /// The client's address.
    pub peer: SocketAddr,
    /// The client's user; empty if it did not name one.
    pub user: String,
    /// The service of its calls.
    pub service: &'static str,
    /// The client's version, if it sent one.
    pub client_version: Option<(u32, u32)>,
    /// Time since bytes last arrived.
    pub silent_for: Duration,
    /// Running calls.
    pub calls: usize,
    /// Bytes of their requests.
    pub call_bytes: usize,
    /// Reply bytes that the client has not taken.
    pub unsent_bytes: usize,
}

/// A call that has left its connection's thread: it waits for a handler, for a disk, for a lock or
/// for the log, or a handler runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningCall {
    /// The client's address.
    pub peer: SocketAddr,
    /// The client's user; empty if it did not name one.
    pub user: String,
    /// The service of the call.
    pub service: &'static str,
    /// The method.
    pub method: &'static str,
    /// Size of the request in bytes.
    pub request_bytes: usize,
    /// When the request had arrived.
    pub received_at: Instant,
    /// From then until the call was listed.
    pub ran_for: Duration,
}

/// Whether reports were requested recently.
#[derive(Debug, Default)]
pub(crate) struct Reports(Mutex<Option<Instant>>);

impl Reports {
    /// Requests lists.
    pub fn request(&self) {
        *self.0.lock() = Some(clock::monotonic());
    }

    /// Returns true if a list must be made.
    pub fn are_wanted(&self, now: Instant) -> bool {
        self.0.lock().is_some_and(|asked_at| now.saturating_duration_since(asked_at) < REPORT_FOR)
    }
}

/// Returns the user's name, truncated.
pub(crate) fn user_text(user: Option<&str>) -> String {
    let user = user.unwrap_or_default();
    let end = (0..=USER_BYTES_MAX.min(user.len())).rev().find(|at| user.is_char_boundary(*at));
    user.get(..end.unwrap_or(0)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_collected_for_a_while_after_a_request() {
        let (reports, now) = (Reports::default(), clock::monotonic());
        assert!(!reports.are_wanted(now));
        reports.request();
        assert!(reports.are_wanted(clock::monotonic()));
        assert!(!reports.are_wanted(clock::monotonic() + REPORT_FOR));
    }

    #[test]
    fn long_client_names_are_truncated() {
        assert_eq!(user_text(Some(&"ä".repeat(500))).len(), USER_BYTES_MAX);
        assert_eq!((user_text(Some("me")), user_text(None)), ("me".to_owned(), String::new()));
    }
}
