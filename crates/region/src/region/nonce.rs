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
    /// It is being done; the retry given along runs when it has ended.
    Running,
}

enum State {
    Running(Vec<Box<dyn FnOnce() + Send>>),
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

    /// Asks to start an operation. `retry` is only kept when the answer is [`NonceStart::Running`].
    pub fn start(&self, key: NonceKey, retry: impl FnOnce() -> Box<dyn FnOnce() + Send>) -> NonceStart {
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
                waiting.push(retry());
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
            inner.finished.push_back((self.clock.now_ms() + self.grace_ms, key));
            inner.states.insert(key, State::Done)
        } else {
            inner.states.remove(&key)
        };
        drop(inner);
        if let Some(State::Running(waiting)) = before {
            waiting.into_iter().for_each(|retry| retry());
        }
    }

    /// Restores a nonce from the WAL.
    pub fn restore(&self, key: NonceKey, written_ms: i64) {
        if key.nonce != 0 && written_ms + self.grace_ms > self.clock.now_ms() {
            let mut inner = self.inner.lock();
            inner.states.insert(key, State::Done);
            inner.finished.push_back((written_ms + self.grace_ms, key));
        }
    }
}

impl Inner {
    fn forget(&mut self, now_ms: i64) {
        while self.finished.front().is_some_and(|(until, _)| *until <= now_ms) {
            if let Some((_, key)) = self.finished.pop_front() {
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

    fn no_retry() -> Box<dyn FnOnce() + Send> {
        Box::new(|| ())
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
    fn a_failure_lets_the_retry_through() {
        let nonces = NonceManager::new(ManualClock::at(0), 100);
        assert_eq!(nonces.start(KEY, no_retry), NonceStart::Proceed);
        let woken = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&woken);
        let retry = || Box::new(move || flag.store(true, Ordering::Relaxed)) as Box<dyn FnOnce() + Send>;
        assert_eq!(nonces.start(KEY, retry), NonceStart::Running);
        nonces.end(KEY, false);
        assert!(woken.load(Ordering::Relaxed));
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
