//! [`ConnectionReport`]: a connection as an operator sees it.
//!
//! A connection belongs to its thread, and no other thread may look at it. So the watch of each
//! thread lists its connections after somebody has asked ([`Reports::want`]), for [`WANTED`]; the
//! list is up to a round of the watch old. Nobody asks, nobody lists.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use evenkeel_common::clock;
use parking_lot::Mutex;

/// Connections of one thread that are listed.
pub const REPORTED_MAX: usize = 512;
/// Lists are made so long after somebody asked.
const WANTED: Duration = Duration::from_secs(10);
/// The longest user's name that is listed, in bytes.
const USER_BYTES_MAX: usize = 128;

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionReport {
    /// The client's address.
    pub peer: SocketAddr,
    /// The client's user; empty if it named none.
    pub user: String,
    /// The service that its calls go to.
    pub service: &'static str,
    /// The client's version, as far as it tells.
    pub client_version: Option<(u32, u32)>,
    /// Time since bytes last came.
    pub silent_for: Duration,
    /// Calls that run.
    pub calls: usize,
    /// Bytes of their requests.
    pub call_bytes: usize,
    /// Bytes of replies that the client has not taken.
    pub unsent_bytes: usize,
}

/// Whether somebody asked for lists not long ago.
#[derive(Debug, Default)]
pub(crate) struct Reports(Mutex<Option<Instant>>);

impl Reports {
    /// Asks for lists.
    pub fn want(&self) {
        *self.0.lock() = Some(clock::monotonic());
    }

    /// Whether to make a list.
    pub fn are_wanted(&self, now: Instant) -> bool {
        self.0.lock().is_some_and(|asked_at| now.saturating_duration_since(asked_at) < WANTED)
    }
}

/// The beginning of a user's name.
pub(crate) fn user_text(user: Option<&str>) -> String {
    let user = user.unwrap_or_default();
    let end = (0..=USER_BYTES_MAX.min(user.len())).rev().find(|at| user.is_char_boundary(*at));
    user.get(..end.unwrap_or(0)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_made_for_a_while_after_somebody_asked() {
        let (reports, now) = (Reports::default(), clock::monotonic());
        assert!(!reports.are_wanted(now));
        reports.want();
        assert!(reports.are_wanted(clock::monotonic()));
        assert!(!reports.are_wanted(clock::monotonic() + WANTED));
    }

    #[test]
    fn names_that_clients_make_long_are_cut() {
        assert_eq!(user_text(Some(&"ä".repeat(500))).len(), USER_BYTES_MAX);
        assert_eq!((user_text(Some("me")), user_text(None)), ("me".to_owned(), String::new()));
    }
}
