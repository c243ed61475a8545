//! [`DefaultUsers`]: the limiters of users without quotas of their own, if the settings limit
//! them.
//!
//! A limiter is created at a user's first request. Clients choose the names of users, so a map
//! that is full is emptied, at most once in [`KEEP_MS`]; until then further users share one
//! limiter. The default limits are units per second, so a user whose limiter is forgotten gains at
//! most the units of one second and what it has exceeded its limit by.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use parking_lot::RwLock;

use super::limiter::Limiter;

/// The number of maps. Requests of users in different maps take different locks.
const SHARDS: usize = 16;
/// The maximum number of users in a map: 10,000 in all.
const SHARD_USERS_MAX: usize = 10_000 / SHARDS;
/// The maximum bytes of a name. Users whose names differ behind them share a limiter.
const NAME_BYTES_MAX: usize = 1024;
/// How many milliseconds a map is kept at least.
const KEEP_MS: i64 = 10_000;

#[derive(Debug, Default)]
struct Shard {
    users: HashMap<Box<str>, Arc<Limiter>>,
    /// The limiter of users that have no place in the map.
    others: Option<Arc<Limiter>>,
    emptied_ms: i64,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct DefaultUsers {
    hasher: RandomState,
    shards: [RwLock<Shard>; SHARDS],
}

impl DefaultUsers {
    /// Returns the limiter of a user, made by `new` if there is none.
    pub fn limiter(
        &self,
        user: &str,
        now_ms: i64,
        new: impl FnOnce() -> Option<Limiter>,
    ) -> Option<Arc<Limiter>> {
        let user = cut(user);
        let shard = self.hasher.hash_one(user) % SHARDS as u64;
        let shard = self.shards.get(usize::try_from(shard).ok()?)?;
        if let Some(limiter) = shard.read().users.get(user) {
            return Some(Arc::clone(limiter));
        }
        let mut shard = shard.write();
        if shard.users.len() >= SHARD_USERS_MAX {
            if (0..KEEP_MS).contains(&now_ms.saturating_sub(shard.emptied_ms)) {
                let others = shard.others.take().or_else(|| new().map(Arc::new));
                shard.others.clone_from(&others);
                return others;
            }
            shard.users.clear();
            shard.emptied_ms = now_ms;
        }
        if let Some(limiter) = shard.users.get(user) {
            return Some(Arc::clone(limiter));
        }
        let limiter = Arc::new(new()?);
        shard.users.insert(user.into(), Arc::clone(&limiter));
        Some(limiter)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().users.len()).sum()
    }
}

/// Cuts a name to its maximum length.
fn cut(name: &str) -> &str {
    let mut ends = (0..=NAME_BYTES_MAX.min(name.len())).rev();
    ends.find_map(|end| name.get(..end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use evenkeel_protocol::pb;

    use super::super::rate_limiter::Refill;
    use super::*;

    fn one_a_second() -> Option<Limiter> {
        let limit = pb::TimedQuota {
            time_unit: pb::TimeUnit::Seconds.into(),
            soft_limit: Some(1),
            ..Default::default()
        };
        let throttle = pb::Throttle { req_num: Some(limit), ..Default::default() };
        Limiter::new(&throttle, 1.0, Refill::Average, None)
    }

    #[test]
    fn each_user_has_a_limiter() {
        let users = DefaultUsers::default();
        let of = |user: &str| users.limiter(user, 0, one_a_second).expect("limited");
        assert!(Arc::ptr_eq(&of("bob"), &of("bob")) && !Arc::ptr_eq(&of("bob"), &of("eve")));
        let long = "ä".repeat(40_000);
        assert!(Arc::ptr_eq(&of(&long), &of(&format!("{long}x"))));
        assert_eq!(users.len(), 3);
    }

    #[test]
    fn the_number_of_users_is_bounded() {
        let users = DefaultUsers::default();
        let of =
            |user: usize, now_ms| users.limiter(&user.to_string(), now_ms, one_a_second).expect("limited");
        for user in 0..50_000 {
            drop(of(user, 1_000_000));
        }
        let full = users.len();
        assert!(full <= SHARDS * SHARD_USERS_MAX, "{full}");
        // Users without a place share the limiters of their shards.
        let mut shared: Vec<_> = (60_000..61_000).map(|user| Arc::as_ptr(&of(user, 1_000_001))).collect();
        shared.sort_unstable();
        shared.dedup();
        assert!(shared.len() <= SHARDS + SHARDS * SHARD_USERS_MAX - full, "{}", shared.len());
        // Later the maps are emptied.
        for user in 70_000..71_000 {
            drop(of(user, 1_000_000 + KEEP_MS));
        }
        assert!(users.len() < full, "{}", users.len());
    }
}
