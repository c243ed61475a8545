//! [`JobQueue`]: jobs that wait for a background thread.

use std::collections::{HashSet, VecDeque};

use parking_lot::{Condvar, Mutex};

/// The maximum length of a queue.
const QUEUE_JOBS_MAX: usize = 100_000;
/// The maximum number of jobs that [`JobQueue::waiting`] returns.
pub const WAITING_LISTED_MAX: usize = 200;

/// A queue of jobs; each key is queued at most once.
pub(super) struct JobQueue<T> {
    state: Mutex<State<T>>,
    arrived: Condvar,
}

struct State<T> {
    waiting: VecDeque<(String, T)>,
    /// The keys of `waiting`: a write that requests a flush must not search ten thousand jobs.
    keys: HashSet<String>,
    stopped: bool,
}

impl<T> JobQueue<T> {
    pub fn new() -> Self {
        let state = State { waiting: VecDeque::new(), keys: HashSet::new(), stopped: false };
        Self { state: Mutex::new(state), arrived: Condvar::new() }
    }

    /// Appends a job, unless a job with its key is waiting already. Returns true if the job was
    /// appended.
    pub fn push(&self, key: String, job: T) -> bool {
        let mut state = self.state.lock();
        let is_full = state.waiting.len() >= QUEUE_JOBS_MAX;
        if state.stopped || is_full || !state.keys.insert(key.clone()) {
            return false;
        }
        state.waiting.push_back((key, job));
        self.arrived.notify_one();
        true
    }

    /// Returns the next job; blocks until there is one. Returns `None` once stopped.
    pub fn next(&self) -> Option<T> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some((key, job)) = state.waiting.pop_front() {
                state.keys.remove(&key);
                return Some(job);
            }
            self.arrived.wait(&mut state);
        }
    }

    pub fn clear(&self) -> Vec<T> {
        let mut state = self.state.lock();
        state.keys.clear();
        state.waiting.drain(..).map(|(_, job)| job).collect()
    }

    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        state.waiting.clear();
        state.keys.clear();
        self.arrived.notify_all();
    }

    pub fn len(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Returns the first waiting jobs, mapped by `read`.
    pub fn waiting<R>(&self, read: impl Fn(&T) -> R) -> Vec<R> {
        self.state.lock().waiting.iter().take(WAITING_LISTED_MAX).map(|(_, job)| read(job)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_waits_at_most_once() {
        let queue = JobQueue::new();
        assert!(queue.push("a".to_owned(), 1) && queue.push("b".to_owned(), 2));
        assert!(!queue.push("a".to_owned(), 3));
        assert_eq!((queue.len(), queue.waiting(|job| *job)), (2, vec![1, 2]));
        assert_eq!(queue.next(), Some(1));
        assert!(queue.push("a".to_owned(), 4), "it waits no more");
        assert_eq!(queue.clear(), [2, 4]);
        assert!(queue.push("a".to_owned(), 5) && queue.push("b".to_owned(), 6));
        queue.stop();
        assert_eq!((queue.next(), queue.len()), (None, 0));
        assert!(!queue.push("c".to_owned(), 7));
    }
}
