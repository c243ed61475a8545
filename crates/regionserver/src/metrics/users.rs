//! sub=Users: the times of each user's operations, if they are counted.
//!
//! HBase's `replay` is always 0, because this server replicates nothing. HBase's
//! `blockBytesScannedCount` of users is not counted.

use evenkeel_metrics::{Interval, Ranges, Record};

use crate::user_times::{OPERATIONS, UserTimes};

/// Creates the record; `None` unless users are counted, as in HBase.
pub fn record(times: &UserTimes) -> Option<Record> {
    if !times.is_on() {
        return None;
    }
    let mut record = Record::new("Users", "regionserver", "name=RegionServer,sub=Users");
    let users = times.users();
    record.gauge("numUsers", "Number of users in the metrics system", users.len() as u64);
    for user in users {
        let prefix = format!("User_{}_metric_", user.name());
        for ((_, name), interval) in OPERATIONS.iter().zip(user.intervals()) {
            record.histogram(&format!("{prefix}{name}"), "", Ranges::Time, &interval);
        }
        record.histogram(&format!("{prefix}replay"), "", Ranges::Time, &Interval::default());
    }
    Some(record)
}
