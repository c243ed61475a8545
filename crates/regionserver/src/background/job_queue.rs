//! [`JobQueue`]: jobs that wait for a background thread.

use std::collections::VecDeque;

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
    stopped: bool,
}

impl<T> JobQueue<T> {
    pub fn new() -> Self {
        let state = State { waiting: VecDeque::new(), stopped: false };
        Self { state: Mutex::new(state), arrived: Condvar::new() }
    }

    /// Appends a job, unless a job with its key is waiting already. Returns true if the job was
    /// appended.
    pub fn push(&self, key: String, job: T) -> bool {
        let mut state = self.state.lock();
        let known = state.waiting.iter().any(|(other, _)| *other == key);
        if known || state.stopped || state.waiting.len() >= QUEUE_JOBS_MAX {
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
            if let Some((_, job)) = state.waiting.pop_front() {
                return Some(job);
            }
            self.arrived.wait(&mut state);
        }
    }

    pub fn clear(&self) -> Vec<T> {
        self.state.lock().waiting.drain(..).map(|(_, job)| job).collect()
    }

    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        state.waiting.clear();
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
