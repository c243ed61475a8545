//! [`Pool`]: threads that execute the master's requests. Each kind of work has a separate pool, so
//! that none delays another: a region of hbase:meta opens while thousands of regions of user tables
//! wait.

use std::io;

use crossbeam_channel::{Sender, TrySendError, bounded};
use evenkeel_common::thread::{Supervisor, catch_and_log, spawn_essential};
use evenkeel_common::{HBaseError, Result};

/// The limit on waiting jobs of one pool. Beyond it the master gets an error, and repeats the RPC.
const QUEUE_MAX: usize = 100_000;

type Job = Box<dyn FnOnce() + Send>;

/// Threads with one queue. They end when the pool is dropped and the queue is empty.
pub struct Pool {
    name: &'static str,
    jobs: Sender<Job>,
}

impl Pool {
    /// Starts threads called `name-N`.
    ///
    /// # Errors
    /// Returns an error if a thread cannot be started.
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

    /// Queues a job.
    ///
    /// # Errors
    /// Returns `IOException` if the queue is full. It is not `CallQueueTooBigException`, which
    /// tells the master that no part of the RPC was executed.
    pub fn submit(&self, job: impl FnOnce() + Send + 'static) -> Result<()> {
        let full = |error| match error {
            TrySendError::Full(_) => format!("the queue of {} is full", self.name),
            TrySendError::Disconnected(_) => format!("{} has ended", self.name),
        };
        self.jobs.try_send(Box::new(job)).map_err(|error| HBaseError::io(full(error)))
    }
}
