//! [`UserTimes`]: the times of each user's operations, shown as sub=Users, and the requests of each
//! of its hosts, which reports to the master have.
//!
//! `hbase.regionserver.user.metrics.enabled` switches them on; they are off by default, as in
//! HBase. A request gets the id of its connection's user when it begins, by one look-up of the
//! name. Without the setting, a request has no id, and nothing is counted.
//!
//! The first [`USERS_MAX`] users are counted, and the first [`HOSTS_MAX`] hosts of each. HBase
//! keeps about as many, those with the most requests (lossy counting). HBase names a host by a
//! look-up of its address in the DNS; here it is the address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use evenkeel_metrics::histogram::{time_units, time_units_of_ns};
use evenkeel_metrics::{Histogram, Interval};
use evenkeel_protocol::pb;
use evenkeel_region::region::Operation;
use parking_lot::RwLock;

/// The maximum number of users that are counted.
pub const USERS_MAX: usize = 50;

/// The maximum number of hosts of a user that are counted.
pub const HOSTS_MAX: usize = 50;

/// The operations of which users' times are counted, with their names in metrics.
pub const OPERATIONS: [(Operation, &str); 6] = [
    (Operation::Get, "get"),
    (Operation::Scan, "scanTime"),
    (Operation::Put, "put"),
    (Operation::Delete, "delete"),
    (Operation::Increment, "increment"),
    (Operation::Append, "append"),
];

/// The id of a user that is counted, and of the host that it calls from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserId {
    user: usize,
    host: Option<usize>,
}

/// The requests of one user from one host (`ClientMetrics`).
#[derive(Debug, Default)]
pub struct RequestsOfHost {
    reads: AtomicU64,
    writes: AtomicU64,
    filtered: AtomicU64,
}

/// The times of one user's operations.
#[derive(Debug)]
pub struct TimesOfUser {
    name: String,
    times: [Histogram; OPERATIONS.len()],
    hosts: RwLock<Vec<(IpAddr, Arc<RequestsOfHost>)>>,
}

/// A user at a host, whose operations are counted.
#[derive(Clone, Debug)]
pub struct CountedUser {
    user: Arc<TimesOfUser>,
    host: Option<Arc<RequestsOfHost>>,
}

impl CountedUser {
    /// Records an operation that took this number of nanoseconds.
    pub fn record_ns(&self, operation: Operation, ns: u64) {
        self.record_units(operation, time_units_of_ns(ns), 1);
    }

    fn record_units(&self, operation: Operation, units: u64, count: u64) {
        let at = OPERATIONS.iter().position(|(counted, _)| *counted == operation);
        if let Some(histogram) = at.and_then(|at| self.user.times.get(at)) {
            histogram.record_n(units, count);
        }
        if let Some(host) = &self.host {
            match operation {
                Operation::Get => host.reads.fetch_add(count, Relaxed),
                // The rows of a scan are reads.
                Operation::Scan => 0,
                _ => host.writes.fetch_add(count, Relaxed),
            };
        }
    }
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

    /// Returns the number of a host; `None` if it is not counted.
    fn host(&self, address: IpAddr) -> Option<usize> {
        let address = address.to_canonical();
        let find = |hosts: &[(IpAddr, _)]| hosts.iter().position(|(known, _)| *known == address);
        {
            let hosts = self.hosts.read();
            let at = find(&hosts);
            if at.is_some() || hosts.len() >= HOSTS_MAX {
                return at;
            }
        }
        let mut hosts = self.hosts.write();
        let at = find(&hosts);
        if at.is_some() || hosts.len() >= HOSTS_MAX {
            return at;
        }
        hosts.push((address, Arc::default()));
        Some(hosts.len() - 1)
    }

    /// Returns the user's report (`HRegionServer.createUserLoad`).
    fn load(&self) -> pb::UserLoad {
        let of_host = |(address, requests): &(IpAddr, Arc<RequestsOfHost>)| pb::ClientMetrics {
            host_name: address.to_string(),
            read_requests_count: Some(requests.reads.load(Relaxed)),
            write_requests_count: Some(requests.writes.load(Relaxed)),
            filtered_requests_count: Some(requests.filtered.load(Relaxed)),
        };
        let client_metrics = self.hosts.read().iter().map(of_host).collect();
        pb::UserLoad { user_name: self.name.clone(), client_metrics }
    }
}

#[derive(Debug, Default)]
struct Users {
    ids: HashMap<String, usize>,
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

    /// Returns the id of the user of a connection from `host`: `user`, `user@REALM` or
    /// `user/host@REALM`. `None` if it is not counted.
    #[inline]
    pub fn id_of(&self, user: Option<&str>, host: IpAddr) -> Option<UserId> {
        if !self.is_on {
            return None;
        }
        let user = self.find_or_add(user?.split(['/', '@']).next().unwrap_or_default())?;
        let times = self.users.read().times.get(user).map(Arc::clone)?;
        Some(UserId { user, host: times.host(host) })
    }

    fn find_or_add(&self, name: &str) -> Option<usize> {
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
        let id = times.len();
        ids.insert(name.to_owned(), id);
        let added =
            TimesOfUser { name: name.to_owned(), times: Default::default(), hosts: RwLock::default() };
        times.push(Arc::new(added));
        Some(id)
    }

    /// Returns the counts of a user and its host.
    #[inline]
    pub fn of(&self, user: Option<UserId>) -> Option<CountedUser> {
        let UserId { user, host } = user?;
        let user = self.users.read().times.get(user).map(Arc::clone)?;
        let host = host.and_then(|at| user.hosts.read().get(at).map(|(_, requests)| Arc::clone(requests)));
        Some(CountedUser { user, host })
    }

    /// Counts rows that a scan returned, and rows that its filter dropped.
    #[inline]
    pub fn count_rows(&self, user: Option<UserId>, returned: u64, filtered: u64) {
        if let Some(host) = self.of(user).and_then(|user| user.host) {
            host.reads.fetch_add(returned, Relaxed);
            host.filtered.fetch_add(filtered, Relaxed);
        }
    }

    /// Returns the reports of all users.
    pub fn loads(&self) -> Vec<pb::UserLoad> {
        self.users().iter().map(|user| user.load()).collect()
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

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn users_are_counted_by_their_short_names() {
        let times = UserTimes::new(true);
        let id_of = |user| times.id_of(user, HOST);
        let bob = id_of(Some("bob"));
        assert!(bob.is_some());
        assert_eq!([Some("bob@REALM"), Some("bob/host@REALM")].map(id_of), [bob, bob]);
        assert_eq!([None, Some(""), Some("@REALM")].map(id_of), [None; 3]);
        times.record_ns(bob, Operation::Get, 1_000_000);
        times.record_batch(bob, Operation::Get, Duration::from_millis(4), 2);
        times.record_batch(bob, Operation::Get, Duration::from_millis(4), 0);
        times.record_ns(bob, Operation::PutBatch, 1);
        times.record_ns(id_of(Some("eve")), Operation::Append, 1);
        let counts = |user: &TimesOfUser| user.intervals().map(|interval| interval.total).collect::<Vec<_>>();
        let all: Vec<_> = times.users().iter().map(|user| (user.name().to_owned(), counts(user))).collect();
        assert_eq!(
            all,
            [("bob".to_owned(), vec![3, 0, 0, 0, 0, 0]), ("eve".to_owned(), vec![0, 0, 0, 0, 0, 1])]
        );
    }

    #[test]
    fn requests_are_counted_by_host() {
        let times = UserTimes::new(true);
        let other = IpAddr::from([10, 0, 0, 1]);
        let [here, there] = [HOST, other].map(|host| times.id_of(Some("bob"), host));
        assert_eq!(times.id_of(Some("bob"), "::ffff:10.0.0.1".parse().expect("an address")), there);
        times.record_ns(here, Operation::Get, 1);
        times.record_batch(here, Operation::Get, Duration::from_millis(4), 2);
        times.record_ns(there, Operation::Put, 1);
        times.record_ns(there, Operation::Append, 1);
        times.record_batch(there, Operation::Scan, Duration::from_millis(1), 1);
        times.count_rows(there, 5, 7);
        let [load] = &times.loads()[..] else { panic!("{:?}", times.loads()) };
        let of_host = |host: &pb::ClientMetrics| {
            let counts = [host.read_requests_count, host.write_requests_count, host.filtered_requests_count];
            (host.host_name.clone(), counts.map(|count| count.expect("counted")))
        };
        let hosts: Vec<_> = load.client_metrics.iter().map(of_host).collect();
        assert_eq!(load.user_name, "bob");
        assert_eq!(hosts, [("127.0.0.1".to_owned(), [3, 0, 0]), ("10.0.0.1".to_owned(), [5, 2, 7])]);
    }

    #[test]
    fn further_users_and_hosts_are_not_counted() {
        let times = UserTimes::new(true);
        for number in 0..2 * USERS_MAX {
            assert_eq!(times.id_of(Some(&format!("user-{number}")), HOST).is_some(), number < USERS_MAX);
        }
        assert!(times.id_of(Some("user-0"), HOST).is_some());
        assert_eq!(times.users().len(), USERS_MAX);
        for number in 1..2 * HOSTS_MAX {
            let host = IpAddr::from([10, 0, 0, u8::try_from(number).expect("small")]);
            let id = times.id_of(Some("user-0"), host).expect("a known user");
            assert_eq!(id.host.is_some(), number < HOSTS_MAX);
            times.record_ns(Some(id), Operation::Get, 1);
        }
        assert_eq!(times.loads()[0].client_metrics.len(), HOSTS_MAX);
    }

    #[test]
    fn nothing_is_counted_when_it_is_off() {
        let times = UserTimes::new(false);
        assert_eq!(times.id_of(Some("bob"), HOST), None);
        times.record_ns(None, Operation::Get, 1);
        assert!(times.users().is_empty() && times.loads().is_empty());
    }
}
