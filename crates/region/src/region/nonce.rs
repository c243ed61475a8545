//! Nonces: the client's numbers for Increments and Appends, so that a retry of one that succeeded is not applied twice.
//!
//! One [`NonceManager`] serves a whole server, since a region may move between a call and its retry only with its WAL,
//! from which nonces are restored. Entries go after a grace period (`hbase.server.hashNonce.gracePeriod`), counted from the last
//! retry.
//!
//! # How they are kept
//! By a hash with a secret of this process, a nonce belongs to one of [`SHARDS`] shards, each with a lock of its own. A shard has a
//! small table of the latest nonces; when that is full, or old, its keys become a sorted array: 16 bytes a nonce, where HBase's
//! map takes more than ten times that. Arrays are few, since the table is a part of what the arrays have, so finding a nonce is
//! some binary searches. An array goes as a whole when its latest nonce may go: at most an eighth of the grace period late.
//!
//! # The bound
//! HBase keeps all nonces, so a client that sends many takes the server down. Here they have a bound in bytes
//! ([`NonceManager::within`]). At the bound nonces go that are older than the time for which a client repeats an operation
//! (`hbase.client.operation.timeout`, 20 minutes): whoever sent them has given up. When all are younger, the new operation is
//! refused ([`NonceStart::Full`], a `RegionTooBusyException`), at which clients wait and ask again. A younger nonce is never
//! forgotten to make room: its retry would be applied twice, and nobody would know. Writes without nonces (Put, Delete, and
//! Increments of clients that turned nonces off) are not refused.
//!
//! Operations under way are not in the bound: each belongs to a call, which has its place among the requests in flight.
//!
//! # An operation that ends in a panic
//! [`RunningNonce`] ends its operation as failed when it is dropped, so a retry is not answered by waiting for ever.

use evenkeel_common::length;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use evenkeel_common::clock::Clock;
use parking_lot::Mutex;

/// Parts of the whole, each with its own lock.
const SHARDS: usize = 64;
/// A table becomes an array when its first nonce is this part of the grace period old.
const TABLE_AGE_PART: i64 = 8;
/// A table may have so many nonces, or this part of what the shard's arrays have.
const TABLE_NONCES: usize = 4096;
const TABLE_PART: usize = 8;
/// But no more than this part of the shard's bytes, and so many in any case.
const TABLE_BYTES_PART: usize = 4;
const TABLE_NONCES_MIN: usize = 28;
/// Bytes of a bucket of a table: a key and a control byte.
const BUCKET_BYTES: usize = size_of::<NonceKey>() + 1;

/// A nonce group and a nonce; a nonce of 0 is none at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NonceKey {
    /// The client's number.
    pub group: u64,
    /// The operation's number.
    pub nonce: u64,
}

/// What [`NonceManager::start`] says.
#[derive(Debug, PartialEq, Eq)]
pub enum NonceStart {
    /// The first time: go on, and call [`NonceManager::end`].
    Proceed,
    /// It was done; answer from what is stored.
    Duplicate,
    /// It is being done; the waiter given along runs when it has ended.
    Running,
    /// There is no room to remember it: it must not be done now.
    Full,
}

/// Hears whether the operation it waited for was done. Runs on the thread that ended it, which may be the WAL's: it must
/// not make the operation itself, for that may wait for a row lock or for the WAL.
pub type NonceWaiter = Box<dyn FnOnce(bool) + Send>;

/// The nonces of one server.
pub struct NonceManager {
    clock: Arc<dyn Clock>,
    grace_ms: i64,
    /// No nonce that is younger goes for want of room.
    kept_ms: i64,
    shard_bytes_max: usize,
    hasher: RandomState,
    shards: Box<[Mutex<Shard>]>,
}

#[derive(Default)]
struct Shard {
    running: HashMap<NonceKey, Vec<NonceWaiter>>,
    table: HashSet<NonceKey>,
    /// When the first and the latest of the table were done.
    table_ms: (i64, i64),
    /// The oldest first.
    arrays: VecDeque<Array>,
}

struct Array {
    /// Sorted.
    keys: Box<[NonceKey]>,
    /// When the latest of them was done.
    latest_ms: i64,
}

impl NonceManager {
    /// An empty one without a bound.
    pub fn new(clock: Arc<dyn Clock>, grace_ms: i64) -> Self {
        let shards = std::iter::repeat_with(Mutex::default).take(SHARDS).collect();
        let hasher = RandomState::new();
        Self { clock, grace_ms, kept_ms: grace_ms, shard_bytes_max: usize::MAX, hasher, shards }
    }

    /// The same with at most about `bytes_max` bytes, unless more nonces are younger than `kept_ms` when they are restored.
    #[must_use]
    pub fn within(self, bytes_max: u64, kept_ms: i64) -> Self {
        let shard_bytes_max = usize::try_from(bytes_max / SHARDS as u64).unwrap_or(usize::MAX);
        Self { shard_bytes_max, kept_ms: kept_ms.min(self.grace_ms), ..self }
    }

    /// Bytes of the nonces that are kept.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().bytes() as u64).sum()
    }

    fn shard(&self, key: NonceKey) -> &Mutex<Shard> {
        &self.shards[length::index(self.hasher.hash_one(key)) % SHARDS]
    }

    /// Asks to start an operation. `waiter` is only made when the answer is [`NonceStart::Running`].
    pub fn start(&self, key: NonceKey, waiter: impl FnOnce() -> NonceWaiter) -> NonceStart {
        if key.nonce == 0 {
            return NonceStart::Proceed;
        }
        let now_ms = self.clock.now_ms();
        let mut shard = self.shard(key).lock();
        shard.forget(now_ms, self.grace_ms);
        if let Some(waiting) = shard.running.get_mut(&key) {
            waiting.push(waiter());
            return NonceStart::Running;
        }
        if shard.has(key) {
            // The client may ask once more.
            if shard.has_room(self.shard_bytes_max) {
                shard.add(key, now_ms, self);
            }
            return NonceStart::Duplicate;
        }
        if !shard.make_room(now_ms, self) {
            return NonceStart::Full;
        }
        shard.running.insert(key, Vec::new());
        NonceStart::Proceed
    }

    /// Tells how a started operation ended; a failed one may be started again.
    pub fn end(&self, key: NonceKey, success: bool) {
        if key.nonce == 0 {
            return;
        }
        let mut shard = self.shard(key).lock();
        let waiting = shard.running.remove(&key).unwrap_or_default();
        if success {
            shard.add(key, self.clock.now_ms(), self);
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
        if shard.make_room(now_ms, self) || !may_go {
            shard.add(key, written_ms, self);
        }
    }
}

impl Shard {
    fn bytes(&self) -> usize {
        self.array_bytes() + table_bytes(self.table.capacity())
    }

    fn array_bytes(&self) -> usize {
        self.arrays.iter().map(|array| size_of_val(&*array.keys) + size_of::<Array>()).sum()
    }

    fn has(&self, key: NonceKey) -> bool {
        let is_in = |array: &Array| array.keys.binary_search(&key).is_ok();
        self.table.contains(&key) || self.arrays.iter().any(is_in)
    }

    /// Whether what runs and one more can be kept.
    fn has_room(&self, bytes_max: usize) -> bool {
        let nonces = self.table.len() + self.running.len() + 1;
        self.array_bytes() + table_bytes(nonces.max(self.table.capacity())) <= bytes_max
    }

    /// Forgets what may go for want of room; whether there is room for one more.
    fn make_room(&mut self, now_ms: i64, of: &NonceManager) -> bool {
        while !self.has_room(of.shard_bytes_max) {
            let oldest = self.arrays.front();
            if oldest.is_none_or(|array| array.latest_ms.saturating_add(of.kept_ms) > now_ms) {
                return false;
            }
            self.arrays.pop_front();
        }
        true
    }

    fn add(&mut self, key: NonceKey, done_ms: i64, of: &NonceManager) {
        if self.table.is_empty() {
            self.table_ms = (done_ms, done_ms);
        }
        self.table_ms.1 = self.table_ms.1.max(done_ms);
        self.table.insert(key);
        let in_arrays: usize = self.arrays.iter().map(|array| array.keys.len()).sum();
        let affordable = of.shard_bytes_max / TABLE_BYTES_PART / (2 * BUCKET_BYTES);
        let most = TABLE_NONCES.max(in_arrays / TABLE_PART).min(affordable).max(TABLE_NONCES_MIN);
        if self.table.len() >= most || self.is_table_old(done_ms, of.grace_ms) {
            self.sort_table();
        }
    }

    fn is_table_old(&self, now_ms: i64, grace_ms: i64) -> bool {
        now_ms.saturating_sub(self.table_ms.0) >= (grace_ms / TABLE_AGE_PART).max(1)
    }

    /// Makes an array of the table.
    fn sort_table(&mut self) {
        let mut keys: Box<[NonceKey]> = std::mem::take(&mut self.table).into_iter().collect();
        keys.sort_unstable();
        self.arrays.push_back(Array { keys, latest_ms: self.table_ms.1 });
    }

    /// Forgets what is older than the grace period.
    fn forget(&mut self, now_ms: i64, grace_ms: i64) {
        let is_over = |latest_ms: i64| latest_ms.saturating_add(grace_ms) <= now_ms;
        while self.arrays.front().is_some_and(|array| is_over(array.latest_ms)) {
            self.arrays.pop_front();
        }
        if !self.table.is_empty() && is_over(self.table_ms.1) {
            self.table = HashSet::new();
        }
    }
}

/// Bytes of a table with room for so many.
fn table_bytes(nonces: usize) -> usize {
    if nonces == 0 { 0 } else { (nonces * 8).div_ceil(7).next_power_of_two() * BUCKET_BYTES }
}

/// An operation that was started. Ends as failed when it is dropped.
pub struct RunningNonce {
    nonces: Arc<NonceManager>,
    key: Option<NonceKey>,
}

impl RunningNonce {
    /// Of an operation that [`NonceManager::start`] let proceed.
    pub fn new(nonces: &Arc<NonceManager>, key: NonceKey) -> Self {
        Self { nonces: Arc::clone(nonces), key: Some(key) }
    }

    /// Tells how the operation ended.
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

    fn no_retry() -> NonceWaiter {
        Box::new(|_| ())
    }

    #[test]
    fn a_success_is_remembered_for_the_grace_period() {
        let clock = ManualClock::at(0);
        let nonces = NonceManager::new(clock.clone(), 100);
        assert_eq!(nonces.start(KEY, no_retry), NonceStart::Proceed);
        nonces.end(KEY, true);
        assert_eq!(nonces.start(KEY, no_retry), NonceStart::Duplicate);
        clock.advance_ms(100);
        assert_eq!(nonces.start(KEY, no_retry), NonceStart::Proceed);
    }

    #[test]
    fn a_nonce_of_the_end_of_time_is_restored() {
        let nonces = NonceManager::new(ManualClock::at(0), 100);
        nonces.restore(KEY, i64::MAX);
        assert_eq!(nonces.start(KEY, no_retry), NonceStart::Duplicate);
    }

    #[test]
    fn those_who_wait_hear_how_it_ended_and_a_failure_lets_the_next_through() {
        let nonces = NonceManager::new(ManualClock::at(0), 100);
        assert_eq!(nonces.start(KEY, no_retry), NonceStart::Proceed);
        let failed = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&failed);
        let waiter = || Box::new(move |success: bool| flag.store(!success, Ordering::Relaxed)) as NonceWaiter;
        assert_eq!(nonces.start(KEY, waiter), NonceStart::Running);
        nonces.end(KEY, false);
        assert!(failed.load(Ordering::Relaxed));
        assert_eq!(nonces.start(KEY, no_retry), NonceStart::Proceed);
    }

    #[test]
    fn no_nonce_is_never_a_duplicate() {
        let nonces = NonceManager::new(ManualClock::at(0), 100);
        let none = NonceKey { group: 1, nonce: 0 };
        nonces.end(none, true);
        assert_eq!(nonces.start(none, no_retry), NonceStart::Proceed);
    }

    fn key(nonce: u64) -> NonceKey {
        NonceKey { group: nonce % 3, nonce: nonce + 1 }
    }

    fn make(nonces: &NonceManager, key: NonceKey) -> NonceStart {
        let start = nonces.start(key, no_retry);
        if start == NonceStart::Proceed {
            nonces.end(key, true);
        }
        start
    }

    #[test]
    fn nonces_stay_within_their_bound_and_none_that_may_be_retried_is_forgotten() {
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
        // Those that nobody repeats any more make room.
        clock.advance_ms(1_200_000 + 225_000);
        assert_eq!(make(&nonces, key(1_000_000)), NonceStart::Proceed);
        let made_now =
            (0..40_000).filter(|nonce| make(&nonces, key(2_000_000 + nonce)) == NonceStart::Proceed).count();
        assert!(made_now > 20_000, "{made_now}");
        assert!(nonces.bytes() <= BOUND, "{} bytes", nonces.bytes());
        clock.advance_ms(1_800_000 + 225_000);
        let start = |nonce: u64| nonces.start(key(3_000_000 + nonce), no_retry) == NonceStart::Proceed;
        assert_eq!((0..10_000).filter(|nonce| start(*nonce)).count(), 10_000);
        assert!(nonces.bytes() < BOUND / 64, "{} bytes are left", nonces.bytes());
    }

    #[test]
    fn a_retry_that_was_seen_keeps_its_nonce() {
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
    fn what_is_restored_is_known_also_beyond_the_bound() {
        let clock = ManualClock::at(1_800_000);
        let nonces = NonceManager::new(clock.clone(), 1_800_000).within(64 << 10, 1_200_000);
        (0..40_000).for_each(|nonce| nonces.restore(key(nonce), nonce as i64 * 45));
        let young = 40_000 / 3 + 1..40_000;
        assert!(young.clone().all(|nonce| nonces.start(key(nonce), no_retry) == NonceStart::Duplicate));
        assert_eq!(nonces.start(key(50_000), no_retry), NonceStart::Full);
    }

    #[test]
    fn an_operation_that_is_dropped_has_failed() {
        let nonces = Arc::new(NonceManager::new(ManualClock::at(0), 100));
        assert_eq!(nonces.start(KEY, no_retry), NonceStart::Proceed);
        drop(RunningNonce::new(&nonces, KEY));
        assert_eq!(nonces.start(KEY, no_retry), NonceStart::Proceed);
        RunningNonce::new(&nonces, KEY).end(true);
        assert_eq!(nonces.start(KEY, no_retry), NonceStart::Duplicate);
    }
}
