//! Nonces: the client's numbers for Increments and Appends, so that a retry of a successful
//! operation is not applied twice.
//!
//! One [`NonceManager`] serves a whole server, because a region may move between a call and its
//! retry only with its WAL, from which nonces are restored. Entries expire after a grace period
//! (`hbase.server.hashNonce.gracePeriod`), counted from the last retry.
//!
//! # Storage
//! A hash with a secret of this process assigns a nonce to one of [`SHARDS`] shards, each with its
//! own lock. A shard has a small table of the latest nonces. When the table is full or old, its
//! keys become a sorted array: 8 bytes per nonce, and 16 for each group in it, where HBase's map
//! takes more than ten times that. A table's size is a fraction of the arrays', so there are few
//! arrays, and a lookup is a few binary searches. An array is dropped as a whole when its latest
//! nonce has expired: at most an eighth of the grace period late.
//!
//! # The bound
//! HBase keeps all nonces, so a client that sends many can exhaust the server's memory. Here they
//! have a bound in bytes ([`NonceManager::within`]). At the bound, the manager drops nonces that
//! are older than the time for which a client retries an operation
//! (`hbase.client.operation.timeout`, 20 minutes), because their clients have given up. If all are
//! younger, it refuses the new operation ([`NonceStart::Full`], a `RegionTooBusyException`), and
//! clients back off and retry. It never drops a younger nonce to free memory: a retry of its
//! operation would be applied twice without notice. Writes without nonces (Put, Delete, and
//! Increments of clients that turned nonces off) are not refused.
//!
//! # Shares
//! One client must not fill the whole bound. Otherwise the operations of all clients would be
//! refused for as long as clients retry operations. So the nonces of an owner, which is the source
//! of its calls ([`NonceSource::owner`]), may take at most as much memory as is left free. A single
//! owner gets half of the bound, two owners get a third each, and later owners find some capacity.
//! An owner is not the nonce group, which is a number that a client can change at will. Nonces
//! restored from the log share one owner.
//!
//! Running operations are not counted: each belongs to a call, which counts among the requests in
//! flight.
//!
//! # An operation that panics
//! Dropping a [`RunningNonce`] ends its operation as failed, so that a retry does not wait forever.

#![allow(clippy::indexing_slicing, reason = "indexes come from the lengths of the arrays")]

use evenkeel_common::length;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use evenkeel_common::clock::Clock;
use parking_lot::Mutex;

/// The number of shards, each with its own lock.
const SHARDS: usize = 64;
/// A table becomes an array when its first nonce is this fraction of the grace period old.
const TABLE_AGE_PART: i64 = 8;
/// A table may have this many nonces, or this fraction of the nonces in the shard's arrays.
const TABLE_NONCES: usize = 4096;
const TABLE_PART: usize = 8;
/// At most this fraction of the shard's bytes, but at least this many nonces.
const TABLE_BYTES_PART: usize = 8;
const TABLE_NONCES_MIN: usize = 28;
/// Bytes of a bucket of a table: a key and a control byte.
const BUCKET_BYTES: usize = size_of::<NonceKey>() + 1;
/// Bytes of a nonce in an array, if it is the only one of its group there.
const NONCE_BYTES_MAX: usize = size_of::<u64>() + size_of::<(u64, usize)>();
/// Bytes of an owner's count, with the spare capacity of the table.
const OWNER_BYTES: usize = 40;

/// A nonce group and a nonce. A nonce of 0 means none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NonceKey {
    /// The client's number.
    pub group: u64,
    /// The operation's number.
    pub nonce: u64,
}

/// The source of an operation with a nonce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NonceSource {
    /// The client's number, which the client chooses.
    pub group: u64,
    /// The owner to whose share its nonce counts: a number for a property that the client cannot
    /// choose at will, such as its address.
    pub owner: u64,
}

impl NonceSource {
    /// The source of an operation without a nonce.
    pub const NONE: Self = Self { group: 0, owner: 0 };
}

/// The result of [`NonceManager::start`].
#[derive(Debug, PartialEq, Eq)]
pub enum NonceStart {
    /// The first time: run the operation, and call [`NonceManager::end`].
    Proceed,
    /// The operation is done; answer from the stored cells.
    Duplicate,
    /// The operation is running; the given waiter runs when it has ended.
    Running,
    /// The memory for nonces is exhausted, so the operation must not run.
    Full,
}

/// Called with true if the awaited operation succeeded. It runs on the thread that ended the
/// operation, which may be the WAL's. It must not run the operation itself, because that may wait
/// for a row lock or for the WAL.
pub type NonceWaiter = Box<dyn FnOnce(bool) + Send>;

/// The nonces of one server.
pub struct NonceManager {
    clock: Arc<dyn Clock>,
    grace_ms: i64,
    /// Younger nonces are never dropped to free memory.
    kept_ms: i64,
    shard_bytes_max: usize,
    hasher: RandomState,
    shards: Box<[Mutex<Shard>]>,
}

/// The owner of all restored nonces.
const RESTORED: u64 = u64::MAX;

#[derive(Default)]
struct Shard {
    running: HashMap<NonceKey, Running>,
    table: HashSet<NonceKey>,
    /// When the first and the latest operation in the table ended.
    table_ms: (i64, i64),
    table_owners: Owners,
    /// The oldest first.
    arrays: VecDeque<SortedNonces>,
    /// Bytes of all arrays, and the number of their nonces.
    array_bytes: usize,
    array_nonces: usize,
    /// Owners of the nonces in the table, in the arrays and of running operations.
    owners: Owners,
}

struct Running {
    owner: u64,
    waiting: Vec<NonceWaiter>,
}

/// The number of nonces of each owner.
#[derive(Default)]
struct Owners {
    counts: HashMap<u64, u64>,
    total: u64,
}

impl Owners {
    fn count(&self, owner: u64) -> u64 {
        self.counts.get(&owner).copied().unwrap_or(0)
    }

    fn add(&mut self, owner: u64) {
        *self.counts.entry(owner).or_default() += 1;
        self.total += 1;
    }

    fn remove(&mut self, owner: u64, nonces: u64) {
        self.total -= nonces;
        if let Some(count) = self.counts.get_mut(&owner) {
            *count -= nonces;
            if *count == 0 {
                self.counts.remove(&owner);
            }
        }
    }

    /// The approximate bytes.
    fn bytes(&self) -> usize {
        self.counts.len() * OWNER_BYTES
    }
}

/// The sorted nonces of a former table.
struct SortedNonces {
    /// Groups in order, each with the end of its nonces.
    groups: Box<[(u64, usize)]>,
    /// The nonces of each group, in order.
    nonces: Box<[u64]>,
    owners: Box<[(u64, u64)]>,
    /// When the latest of its operations ended.
    latest_ms: i64,
}

impl SortedNonces {
    fn of(keys: impl Iterator<Item = NonceKey>, owners: Owners, latest_ms: i64) -> Self {
        let mut keys: Vec<_> = keys.collect();
        keys.sort_unstable();
        let mut groups: Vec<(u64, usize)> = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            match groups.last_mut() {
                Some((group, end)) if *group == key.group => *end = at + 1,
                _ => groups.push((key.group, at + 1)),
            }
        }
        let nonces = keys.iter().map(|key| key.nonce).collect();
        Self { groups: groups.into(), nonces, owners: owners.counts.into_iter().collect(), latest_ms }
    }

    fn has(&self, key: NonceKey) -> bool {
        let Ok(at) = self.groups.binary_search_by_key(&key.group, |(group, _)| *group) else { return false };
        let start = at.checked_sub(1).map_or(0, |before| self.groups[before].1);
        self.nonces[start..self.groups[at].1].binary_search(&key.nonce).is_ok()
    }

    fn bytes(&self) -> usize {
        let parts = size_of_val(&*self.groups) + size_of_val(&*self.nonces) + size_of_val(&*self.owners);
        parts + size_of::<Self>()
    }
}

impl NonceManager {
    /// Creates an empty manager without a bound.
    pub fn new(clock: Arc<dyn Clock>, grace_ms: i64) -> Self {
        let shards = std::iter::repeat_with(Mutex::default).take(SHARDS).collect();
        let hasher = RandomState::new();
        Self { clock, grace_ms, kept_ms: grace_ms, shard_bytes_max: usize::MAX, hasher, shards }
    }

    /// Sets a bound of about `bytes_max` bytes. Restored nonces may exceed it if they are younger
    /// than `kept_ms`.
    #[must_use]
    pub fn within(self, bytes_max: u64, kept_ms: i64) -> Self {
        let shard_bytes_max = usize::try_from(bytes_max / SHARDS as u64).unwrap_or(usize::MAX);
        Self { shard_bytes_max, kept_ms: kept_ms.min(self.grace_ms), ..self }
    }

    /// Returns the bytes of the stored nonces.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().bytes() as u64).sum()
    }

    /// Drops nonces older than the grace period. An operation expires only its own shard, so a
    /// server without operations would keep its nonces.
    pub fn expire(&self) {
        let now_ms = self.clock.now_ms();
        self.shards.iter().for_each(|shard| shard.lock().forget(now_ms, self.grace_ms));
    }

    fn shard(&self, key: NonceKey) -> &Mutex<Shard> {
        &self.shards[length::index(self.hasher.hash_one(key)) % SHARDS]
    }

    /// Requests to start an operation. Calls `waiter` only if the result is
    /// [`NonceStart::Running`].
    pub fn start(&self, key: NonceKey, owner: u64, waiter: impl FnOnce() -> NonceWaiter) -> NonceStart {
        if key.nonce == 0 {
            return NonceStart::Proceed;
        }
        let now_ms = self.clock.now_ms();
        let mut shard = self.shard(key).lock();
        shard.forget(now_ms, self.grace_ms);
        if let Some(running) = shard.running.get_mut(&key) {
            running.waiting.push(waiter());
            return NonceStart::Running;
        }
        if shard.has(key) {
            // The client may retry.
            if shard.has_capacity(Some(owner), self.shard_bytes_max) {
                shard.add(key, owner, now_ms, self);
            }
            return NonceStart::Duplicate;
        }
        if !shard.evict_until_fits(Some(owner), now_ms, self) {
            return NonceStart::Full;
        }
        shard.running.insert(key, Running { owner, waiting: Vec::new() });
        shard.owners.add(owner);
        NonceStart::Proceed
    }

    /// Reports the end of a started operation. A failed one may be started again.
    pub fn end(&self, key: NonceKey, success: bool) {
        if key.nonce == 0 {
            return;
        }
        let mut shard = self.shard(key).lock();
        let Some(Running { owner, waiting }) = shard.running.remove(&key) else { return };
        shard.owners.remove(owner, 1);
        if success {
            shard.add(key, owner, self.clock.now_ms(), self);
        }
        drop(shard);
        waiting.into_iter().for_each(|waiter| waiter(success));
    }

    /// Restores a nonce from the WAL.
    pub fn restore(&self, key: NonceKey, written_ms: i64) {
        let now_ms = self.clock.now_ms();
        if key.nonce == 0 || written_ms.saturating_add(self.grace_ms) <= now_ms {
            return;
        }
        let mut shard = self.shard(key).lock();
        let may_go = written_ms.saturating_add(self.kept_ms) <= now_ms;
        if shard.evict_until_fits(None, now_ms, self) || !may_go {
            shard.add(key, RESTORED, written_ms, self);
        }
    }
}

impl Shard {
    fn bytes(&self) -> usize {
        self.kept_bytes() + table_bytes(self.table.capacity())
    }

    /// Returns the bytes of everything except the table.
    fn kept_bytes(&self) -> usize {
        self.array_bytes + self.owners.bytes() + self.table_owners.bytes()
    }

    /// Returns the bytes that count as used with `nonces` nonces in the table or running: the
    /// largest table and the arrays they will be in. So the result does not jump when the table
    /// becomes an array.
    fn used_bytes(&self, nonces: usize, bytes_max: usize) -> usize {
        let table = table_bytes(self.table.capacity().max(self.table_nonces_max(bytes_max)));
        self.kept_bytes() + table + nonces * NONCE_BYTES_MAX
    }

    /// Returns the number of nonces at which the table becomes an array.
    fn table_nonces_max(&self, bytes_max: usize) -> usize {
        let affordable = bytes_max / TABLE_BYTES_PART / (2 * BUCKET_BYTES);
        TABLE_NONCES.max(self.array_nonces / TABLE_PART).min(affordable).max(TABLE_NONCES_MIN)
    }

    fn has(&self, key: NonceKey) -> bool {
        self.table.contains(&key) || self.arrays.iter().any(|array| array.has(key))
    }

    /// Returns true if there is capacity for the running operations and one more; for an owner,
    /// within its share.
    fn has_capacity(&self, owner: Option<u64>, bytes_max: usize) -> bool {
        let used = self.used_bytes(self.table.len() + self.running.len() + 1, bytes_max);
        let Some(free) = bytes_max.checked_sub(used) else { return false };
        let own = owner.map_or(0, |owner| self.owners.count(owner));
        // The owner's part of the used bytes is at most the free bytes.
        used as u128 * u128::from(own) <= free as u128 * u128::from(self.owners.total)
    }

    /// Drops nonces older than `kept_ms` until there is capacity for one more. Returns true if
    /// there is.
    fn evict_until_fits(&mut self, owner: Option<u64>, now_ms: i64, of: &NonceManager) -> bool {
        while !self.has_capacity(owner, of.shard_bytes_max) {
            let oldest = self.arrays.front();
            if oldest.is_none_or(|array| array.latest_ms.saturating_add(of.kept_ms) > now_ms) {
                return false;
            }
            self.forget_oldest();
        }
        true
    }

    fn forget_oldest(&mut self) {
        let Some(array) = self.arrays.pop_front() else { return };
        self.array_bytes -= array.bytes();
        self.array_nonces -= array.nonces.len();
        array.owners.iter().for_each(|(owner, nonces)| self.owners.remove(*owner, *nonces));
    }

    fn add(&mut self, key: NonceKey, owner: u64, done_ms: i64, of: &NonceManager) {
        if self.table.is_empty() {
            self.table_ms = (done_ms, done_ms);
        }
        self.table_ms.1 = self.table_ms.1.max(done_ms);
        if self.table.insert(key) {
            self.table_owners.add(owner);
            self.owners.add(owner);
        }
        if self.table.len() >= self.table_nonces_max(of.shard_bytes_max)
            || self.is_table_old(done_ms, of.grace_ms)
        {
            self.sort_table();
        }
    }

    fn is_table_old(&self, now_ms: i64, grace_ms: i64) -> bool {
        now_ms.saturating_sub(self.table_ms.0) >= (grace_ms / TABLE_AGE_PART).max(1)
    }

    /// Turns the table into an array.
    fn sort_table(&mut self) {
        let keys = std::mem::take(&mut self.table);
        let owners = std::mem::take(&mut self.table_owners);
        let array = SortedNonces::of(keys.into_iter(), owners, self.table_ms.1);
        self.array_bytes += array.bytes();
        self.array_nonces += array.nonces.len();
        self.arrays.push_back(array);
    }

    /// Drops nonces older than the grace period.
    fn forget(&mut self, now_ms: i64, grace_ms: i64) {
        let is_over = |latest_ms: i64| latest_ms.saturating_add(grace_ms) <= now_ms;
        while self.arrays.front().is_some_and(|array| is_over(array.latest_ms)) {
            self.forget_oldest();
        }
        if !self.table.is_empty() && is_over(self.table_ms.1) {
            self.sort_table();
            if let Some(array) = self.arrays.pop_back() {
                self.arrays.push_front(array);
            }
            self.forget_oldest();
        }
    }
}

/// Returns the bytes of a table with capacity for `nonces` nonces.
fn table_bytes(nonces: usize) -> usize {
    if nonces == 0 { 0 } else { (nonces * 8).div_ceil(7).next_power_of_two() * BUCKET_BYTES }
}

/// A started operation. Dropping it ends it as failed.
pub struct RunningNonce {
    nonces: Arc<NonceManager>,
    key: Option<NonceKey>,
}

impl RunningNonce {
    /// Wraps an operation that [`NonceManager::start`] let proceed.
    pub fn new(nonces: &Arc<NonceManager>, key: NonceKey) -> Self {
        Self { nonces: Arc::clone(nonces), key: Some(key) }
    }

    /// Reports the end of the operation.
    pub fn end(mut self, success: bool) {
        if let Some(key) = self.key.take() {
            self.nonces.end(key, success);
        }
    }
}

impl Drop for RunningNonce {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.nonces.end(key, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use evenkeel_common::clock::ManualClock;

    use super::*;

    const KEY: NonceKey = NonceKey { group: 1, nonce: 2 };
    const OWNER: u64 = 9;

    fn no_retry() -> NonceWaiter {
        Box::new(|_| ())
    }

    #[test]
    fn a_success_is_remembered_for_the_grace_period() {
        let clock = ManualClock::at(0);
        let nonces = NonceManager::new(clock.clone(), 100);
        assert_eq!(nonces.start(KEY, OWNER, no_retry), NonceStart::Proceed);
        nonces.end(KEY, true);
        assert_eq!(nonces.start(KEY, OWNER, no_retry), NonceStart::Duplicate);
        clock.advance_ms(100);
        assert_eq!(nonces.start(KEY, OWNER, no_retry), NonceStart::Proceed);
    }

    #[test]
    fn nonces_expire_after_the_grace_period_without_other_operations() {
        let clock = ManualClock::at(0);
        let nonces = NonceManager::new(clock.clone(), 100);
        for nonce in 1..1000 {
            let key = NonceKey { nonce, ..KEY };
            assert_eq!(nonces.start(key, OWNER, no_retry), NonceStart::Proceed);
            nonces.end(key, true);
        }
        clock.advance_ms(99);
        nonces.expire();
        assert!(nonces.bytes() >= 999 * 8, "{}", nonces.bytes());
        clock.advance_ms(1);
        nonces.expire();
        assert_eq!(nonces.bytes(), 0);
    }

    #[test]
    fn a_nonce_of_the_end_of_time_is_restored() {
        let nonces = NonceManager::new(ManualClock::at(0), 100);
        nonces.restore(KEY, i64::MAX);
        assert_eq!(nonces.start(KEY, OWNER, no_retry), NonceStart::Duplicate);
    }

    #[test]
    fn waiters_get_the_outcome_and_a_failure_admits_another() {
        let nonces = NonceManager::new(ManualClock::at(0), 100);
        assert_eq!(nonces.start(KEY, OWNER, no_retry), NonceStart::Proceed);
        let failed = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&failed);
        let waiter = || Box::new(move |success: bool| flag.store(!success, Ordering::Relaxed)) as NonceWaiter;
        assert_eq!(nonces.start(KEY, OWNER, waiter), NonceStart::Running);
        nonces.end(KEY, false);
        assert!(failed.load(Ordering::Relaxed));
        assert_eq!(nonces.start(KEY, OWNER, no_retry), NonceStart::Proceed);
    }

    #[test]
    fn a_zero_nonce_is_never_a_duplicate() {
        let nonces = NonceManager::new(ManualClock::at(0), 100);
        let none = NonceKey { group: 1, nonce: 0 };
        nonces.end(none, true);
        assert_eq!(nonces.start(none, OWNER, no_retry), NonceStart::Proceed);
    }

    fn key(nonce: u64) -> NonceKey {
        NonceKey { group: nonce % 3, nonce: nonce + 1 }
    }

    fn make(nonces: &NonceManager, key: NonceKey) -> NonceStart {
        make_for(nonces, key, OWNER)
    }

    fn make_for(nonces: &NonceManager, key: NonceKey, owner: u64) -> NonceStart {
        let start = nonces.start(key, owner, no_retry);
        if start == NonceStart::Proceed {
            nonces.end(key, true);
        }
        start
    }

    #[test]
    fn nonces_stay_bounded_and_retryable_ones_are_kept() {
        const BOUND: u64 = 1 << 20;
        let clock = ManualClock::at(0);
        let nonces = NonceManager::new(clock.clone(), 1_800_000).within(BOUND, 1_200_000);
        let mut made = Vec::new();
        let mut refused = 0_u64;
        for nonce in 0..100_000 {
            clock.advance_ms(1);
            match make(&nonces, key(nonce)) {
                NonceStart::Proceed => made.push(nonce),
                other => {
                    assert_eq!(other, NonceStart::Full);
                    refused += 1;
                }
            }
        }
        assert!(nonces.bytes() <= BOUND, "{} bytes", nonces.bytes());
        assert!(refused > 0 && made.len() as u64 * 20 > BOUND / 2, "{refused} refused, {} made", made.len());
        assert!(made.iter().all(|nonce| make(&nonces, key(*nonce)) == NonceStart::Duplicate));
        assert!(nonces.bytes() <= BOUND + BOUND / 4, "{} bytes", nonces.bytes());
        // Nonces that clients no longer retry are dropped.
        clock.advance_ms(1_200_000 + 225_000);
        assert_eq!(make(&nonces, key(1_000_000)), NonceStart::Proceed);
        let made_now =
            (0..40_000).filter(|nonce| make(&nonces, key(2_000_000 + nonce)) == NonceStart::Proceed).count();
        assert!(made_now > 20_000, "{made_now}");
        assert!(nonces.bytes() <= BOUND, "{} bytes", nonces.bytes());
        clock.advance_ms(1_800_000 + 225_000);
        let start = |nonce: u64| nonces.start(key(3_000_000 + nonce), OWNER, no_retry) == NonceStart::Proceed;
        assert_eq!((0..10_000).filter(|nonce| start(*nonce)).count(), 10_000);
        assert!(nonces.bytes() < BOUND / 64, "{} bytes are left", nonces.bytes());
    }

    #[test]
    fn one_owner_cannot_exhaust_the_nonces() {
        const BOUND: u64 = 1 << 20;
        let clock = ManualClock::at(0);
        let nonces = NonceManager::new(clock.clone(), 1_800_000).within(BOUND, 1_200_000);
        // Each nonce in its own group, as an attacker would send them, until no more is accepted.
        let of = |owner: u64, nonce: u64| NonceKey { group: owner << 32 | nonce, nonce: nonce + 1 };
        let fill = |owner: u64| {
            let taken = |nonce: &u64| make_for(&nonces, of(owner, *nonce), owner) == NonceStart::Proceed;
            (0..100_000).filter(taken).count()
        };
        let taken: Vec<usize> = (1..=3).map(fill).collect();
        assert!(taken[0] > 10_000, "{taken:?}");
        // Each owner gets a part of what the earlier ones left, though they keep sending requests.
        assert!(taken.windows(2).all(|two| two[1] > two[0] / 4), "{taken:?}");
        assert!(nonces.bytes() <= BOUND, "{} bytes", nonces.bytes());
        // A client with few operations is never refused.
        let few = (0..500).filter(|nonce| make_for(&nonces, of(77, *nonce), 77) == NonceStart::Proceed);
        assert_eq!(few.count(), 500);
        // Shares are returned with the nonces.
        clock.advance_ms(1_800_000 + 225_000);
        assert!(fill(1).abs_diff(taken[0]) <= taken[0] / 10, "{taken:?}");
    }

    #[test]
    fn failed_operations_leave_no_share_of_their_owner() {
        let nonces = NonceManager::new(ManualClock::at(0), 100).within(1 << 20, 100);
        for nonce in 0..10_000 {
            assert_eq!(nonces.start(key(nonce), OWNER, no_retry), NonceStart::Proceed);
            nonces.end(key(nonce), false);
        }
        let shards = || nonces.shards.iter().map(|shard| shard.lock());
        assert!(shards().all(|shard| shard.owners.total == 0 && shard.owners.counts.is_empty()));
        (0..300).for_each(|nonce| assert_eq!(make(&nonces, key(nonce)), NonceStart::Proceed));
        assert_eq!(shards().map(|shard| shard.owners.count(OWNER)).sum::<u64>(), 300);
    }

    #[test]
    fn a_retry_extends_the_life_of_its_nonce() {
        let clock = ManualClock::at(0);
        let nonces = NonceManager::new(clock.clone(), 100);
        make(&nonces, KEY);
        for _ in 0..10 {
            clock.advance_ms(60);
            assert_eq!(make(&nonces, KEY), NonceStart::Duplicate);
        }
        clock.advance_ms(120);
        assert_eq!(make(&nonces, KEY), NonceStart::Proceed);
    }

    #[test]
    fn restored_nonces_are_kept_beyond_the_bound() {
        let clock = ManualClock::at(1_800_000);
        let nonces = NonceManager::new(clock.clone(), 1_800_000).within(64 << 10, 1_200_000);
        (0..40_000).for_each(|nonce| nonces.restore(key(nonce), nonce as i64 * 45));
        let young = 40_000 / 3 + 1..40_000;
        assert!(
            young.clone().all(|nonce| nonces.start(key(nonce), OWNER, no_retry) == NonceStart::Duplicate)
        );
        assert_eq!(nonces.start(key(50_000), OWNER, no_retry), NonceStart::Full);
    }

    #[test]
    fn a_dropped_operation_counts_as_failed() {
        let nonces = Arc::new(NonceManager::new(ManualClock::at(0), 100));
        assert_eq!(nonces.start(KEY, OWNER, no_retry), NonceStart::Proceed);
        drop(RunningNonce::new(&nonces, KEY));
        assert_eq!(nonces.start(KEY, OWNER, no_retry), NonceStart::Proceed);
        RunningNonce::new(&nonces, KEY).end(true);
        assert_eq!(nonces.start(KEY, OWNER, no_retry), NonceStart::Duplicate);
    }
}
