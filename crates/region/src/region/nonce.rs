//! Nonces: the client's numbers for Increments and Appends, so that a retry of one that succeeded is not applied twice.
//!
//! One [`NonceManager`] serves a whole server, since a region may move between a call and its retry only with its WAL,
//! from which nonces are restored. Entries go after a grace period (`hbase.server.hashNonce.gracePeriod`).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use evenkeel_common::clock::Clock;
use parking_lot::Mutex;

/// A nonce group and a nonce; a nonce of 0 is none at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
}

/// Hears whether the operation it waited for was done. Runs on the thread that ended it, which may be the WAL's: it must
/// not make the operation itself, for that may wait for a row lock or for the WAL.
pub type NonceWaiter = Box<dyn FnOnce(bool) + Send>;

enum State {
    Running(Vec<NonceWaiter>),
    Done,
}

/// The nonces of one server.
pub struct NonceManager {
    clock: Arc<dyn Clock>,
    grace_ms: i64,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    states: HashMap<NonceKey, State>,
    /// Finished ones with the time they may be forgotten, oldest first.
    finished: VecDeque<(i64, NonceKey)>,
}

impl NonceManager {
    /// An empty one.
    pub fn new(clock: Arc<dyn Clock>, grace_ms: i64) -> Self {
        Self { clock, grace_ms, inner: Mutex::default() }
    }

    /// Asks to start an operation. `waiter` is only made when the answer is [`NonceStart::Running`].
    pub fn start(&self, key: NonceKey, waiter: impl FnOnce() -> NonceWaiter) -> NonceStart {
        if key.nonce == 0 {
            return NonceStart::Proceed;
        }
        let mut inner = self.inner.lock();
        inner.forget(self.clock.now_ms());
        match inner.states.get_mut(&key) {
            None => {
                inner.states.insert(key, State::Running(Vec::new()));
                NonceStart::Proceed
            }
            Some(State::Done) => NonceStart::Duplicate,
            Some(State::Running(waiting)) => {
                waiting.push(waiter());
                NonceStart::Running
            }
        }
    }

    /// Tells how a started operation ended; a failed one may be started again.
    pub fn end(&self, key: NonceKey, success: bool) {
        if key.nonce == 0 {
            return;
        }
        let mut inner = self.inner.lock();
        let before = if success {
            inner.finished.push_back((self.clock.now_ms().saturating_add(self.grace_ms), key));
            inner.states.insert(key, State::Done)
        } else {
            inner.states.remove(&key)
        };
        drop(inner);
        if let Some(State::Running(waiting)) = before {
            waiting.into_iter().for_each(|waiter| waiter(success));
        }
    }

    /// Restores a nonce from the WAL.
    pub fn restore(&self, key: NonceKey, written_ms: i64) {
        let until_ms = written_ms.saturating_add(self.grace_ms);
        if key.nonce != 0 && until_ms > self.clock.now_ms() {
            let mut inner = self.inner.lock();
            inner.states.insert(key, State::Done);
            inner.finished.push_back((until_ms, key));
        }
    }
}

impl Inner {
    fn forget(&mut self, now_ms: i64) {
        while self.finished.front().is_some_and(|(until, _)| *until <= now_ms) {
            let Some((_, key)) = self.finished.pop_front() else { return };
            // One that was forgotten and is being done again stays.
            if matches!(self.states.get(&key), Some(State::Done)) {
                self.states.remove(&key);
            }
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
}
