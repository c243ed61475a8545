//! [`UserTimes`]: the times of each user's operations, shown as sub=Users.
//!
//! `hbase.regionserver.user.metrics.enabled` switches them on; they are off by default, as in
//! HBase. A request gets the id of its connection's user when it begins, by one look-up of the
//! name. Without the setting, a request has no id, and nothing is counted.
//!
//! The first [`USERS_MAX`] users are counted. HBase keeps about as many, those with the most
//! requests (lossy counting).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_metrics::histogram::{time_units, time_units_of_ns};
use evenkeel_metrics::{Histogram, Interval};
use evenkeel_region::region::Operation;
use parking_lot::RwLock;

/// The maximum number of users that are counted.
pub const USERS_MAX: usize = 50;

/// The operations of which users' times are counted, with their names in metrics.
pub const OPERATIONS: [(Operation, &str); 6] = [
    (Operation::Get, "get"),
    (Operation::Scan, "scanTime"),
    (Operation::Put, "put"),
    (Operation::Delete, "delete"),
    (Operation::Increment, "increment"),
    (Operation::Append, "append"),
];

/// The id of a user that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserId(usize);

/// The times of one user's operations.
#[derive(Debug)]
pub struct TimesOfUser {
    name: String,
    times: [Histogram; OPERATIONS.len()],
}

impl TimesOfUser {
    /// Returns the user's name, without host and realm.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the times of the last interval, in the order of [`OPERATIONS`].
    pub fn intervals(&self) -> impl Iterator<Item = Interval> {
        self.times.iter().map(Histogram::interval)
    }

    /// Records an operation that took this number of nanoseconds.
    pub fn record_ns(&self, operation: Operation, ns: u64) {
        self.record_units(operation, time_units_of_ns(ns), 1);
    }

    fn record_units(&self, operation: Operation, units: u64, count: u64) {
        let at = OPERATIONS.iter().position(|(counted, _)| *counted == operation);
        if let Some(histogram) = at.and_then(|at| self.times.get(at)) {
            histogram.record_n(units, count);
        }
    }
}

#[derive(Debug, Default)]
struct Users {
    ids: HashMap<String, UserId>,
    times: Vec<Arc<TimesOfUser>>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct UserTimes {
    is_on: bool,
    users: RwLock<Users>,
}

impl UserTimes {
    /// Creates it without users. If it is not on, it counts nothing.
    pub fn new(is_on: bool) -> Self {
        Self { is_on, users: RwLock::default() }
    }

    /// Returns true if users' times are counted.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns the id of the user of a connection: `user`, `user@REALM` or `user/host@REALM`.
    /// `None` if it is not counted.
    #[inline]
    pub fn id_of(&self, user: Option<&str>) -> Option<UserId> {
        if !self.is_on {
            return None;
        }
        self.find_or_add(user?.split(['/', '@']).next().unwrap_or_default())
    }

    fn find_or_add(&self, name: &str) -> Option<UserId> {
        {
            let users = self.users.read();
            let id = users.ids.get(name).copied();
            // Requests of users that are not counted must not wait for each other.
            if id.is_some() || name.is_empty() || users.times.len() >= USERS_MAX {
                return id;
            }
        }
        let mut users = self.users.write();
        let Users { ids, times } = &mut *users;
        if let Some(id) = ids.get(name) {
            return Some(*id);
        }
        if times.len() >= USERS_MAX {
            return None;
        }
        let id = UserId(times.len());
        ids.insert(name.to_owned(), id);
        times.push(Arc::new(TimesOfUser { name: name.to_owned(), times: Default::default() }));
        Some(id)
    }

    /// Returns the times of a user.
    #[inline]
    pub fn of(&self, user: Option<UserId>) -> Option<Arc<TimesOfUser>> {
        let UserId(at) = user?;
        self.users.read().times.get(at).map(Arc::clone)
    }

    /// Records an operation that took this number of nanoseconds.
    #[inline]
    pub fn record_ns(&self, user: Option<UserId>, operation: Operation, ns: u64) {
        if let Some(times) = self.of(user) {
            times.record_ns(operation, ns);
        }
    }

    /// Records `count` operations that took `time` together, each with an equal part of it.
    #[inline]
    pub fn record_batch(&self, user: Option<UserId>, operation: Operation, time: Duration, count: u32) {
        if let Some(times) = self.of(user)
            && count > 0
        {
            times.record_units(operation, time_units(time) / u64::from(count), u64::from(count));
        }
    }

    /// Returns all users that are counted.
    pub fn users(&self) -> Vec<Arc<TimesOfUser>> {
        self.users.read().times.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_counted_by_their_short_names() {
        let times = UserTimes::new(true);
        let bob = times.id_of(Some("bob"));
        assert!(bob.is_some());
        assert_eq!([Some("bob@REALM"), Some("bob/host@REALM")].map(|user| times.id_of(user)), [bob, bob]);
        assert_eq!([None, Some(""), Some("@REALM")].map(|user| times.id_of(user)), [None; 3]);
        times.record_ns(bob, Operation::Get, 1_000_000);
        times.record_batch(bob, Operation::Get, Duration::from_millis(4), 2);
        times.record_batch(bob, Operation::Get, Duration::from_millis(4), 0);
        times.record_ns(bob, Operation::PutBatch, 1);
        times.record_ns(times.id_of(Some("eve")), Operation::Append, 1);
        let counts = |user: &TimesOfUser| user.intervals().map(|interval| interval.total).collect::<Vec<_>>();
        let all: Vec<_> = times.users().iter().map(|user| (user.name().to_owned(), counts(user))).collect();
        assert_eq!(
            all,
            [("bob".to_owned(), vec![3, 0, 0, 0, 0, 0]), ("eve".to_owned(), vec![0, 0, 0, 0, 0, 1])]
        );
    }

    #[test]
    fn further_users_are_not_counted() {
        let times = UserTimes::new(true);
        for number in 0..2 * USERS_MAX {
            assert_eq!(times.id_of(Some(&format!("user-{number}"))).is_some(), number < USERS_MAX);
        }
        assert!(times.id_of(Some("user-0")).is_some());
        assert_eq!(times.users().len(), USERS_MAX);
    }

    #[test]
    fn nothing_is_counted_when_it_is_off() {
        let times = UserTimes::new(false);
        assert_eq!(times.id_of(Some("bob")), None);
        times.record_ns(None, Operation::Get, 1);
        assert!(times.users().is_empty());
    }
}
