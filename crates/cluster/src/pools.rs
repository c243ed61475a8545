//! [`Pool`]: threads that do what the master asks for, each kind of work on its own, so that one
//! cannot hold up another: a region of hbase:meta is opened while thousands of users' regions wait.

use std::io;

use crossbeam_channel::{Sender, TrySendError, bounded};
use evenkeel_common::thread::{Supervisor, catch_and_log, spawn_essential};
use evenkeel_common::{ErrorKind, HBaseError, Result};

/// Work that waits in one pool at most. A master that sends more is told to try again.
const QUEUE_MAX: usize = 100_000;

type Job = Box<dyn FnOnce() + Send>;

/// Some threads with one queue. They end when this is dropped and the queue is empty.
pub struct Pool {
    name: &'static str,
    jobs: Sender<Job>,
}

impl Pool {
    /// Starts threads called `name-N`.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(name: &'static str, threads: usize, supervisor: &Supervisor) -> io::Result<Self> {
        let (jobs, queue) = bounded::<Job>(QUEUE_MAX);
        for number in 0..threads {
            let queue = queue.clone();
            let work = move || {
                queue.iter().for_each(|job| catch_and_log(name, job));
                Ok(())
            };
            drop(spawn_essential(format!("{name}-{number}"), supervisor, work)?);
        }
        Ok(Self { name, jobs })
    }

    /// Puts work into the queue.
    ///
    /// # Errors
    /// `CallQueueTooBigException` when it is full.
    pub fn submit(&self, job: impl FnOnce() + Send + 'static) -> Result<()> {
        let full = |error| match error {
            TrySendError::Full(_) => format!("{QUEUE_MAX} wait in {}", self.name),
            TrySendError::Disconnected(_) => format!("{} has ended", self.name),
        };
        self.jobs.try_send(Box::new(job)).map_err(|e| HBaseError::new(ErrorKind::CallQueueTooBig, full(e)))
    }
}
