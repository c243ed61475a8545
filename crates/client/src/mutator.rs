//! [`BufferedMutator`]: gathers writes into batches.
//!
//! When the buffered mutations reach `write_buffer_bytes`, or the flush interval has passed, a task
//! writes them as one batch, and the next ones are buffered meanwhile. Buffered and in-flight
//! mutations together hold at most twice `write_buffer_bytes`; beyond that
//! [`BufferedMutator::mutate`] waits. Mutations that failed are kept with their errors, up to
//! [`FAILURES_MAX`], until the caller takes them.
//!
//! ```no_run
//! # async fn example(table: evenkeel_client::Table) -> evenkeel_client::Result<()> {
//! use evenkeel_client::Put;
//! let mutator = table.buffered_mutator();
//! for i in 0..1_000_000 {
//!     mutator.mutate(Put::new(format!("{i:08}")).column("f", "q", "v")).await?;
//! }
//! for failure in mutator.close().await {
//!     println!("{:?}: {}", failure.mutation.row(), failure.error);
//! }
//! # Ok(()) }
//! ```

use evenkeel_common::length;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::interval;

use crate::error::{Error, Result};
use crate::operation::{Action, Mutation};
use crate::table::Table;

/// The number of failures that are kept; further ones are counted.
pub const FAILURES_MAX: usize = 10_000;
/// The memory of a mutation besides its cells.
const MUTATION_BYTES: usize = 128;

/// A mutation that failed, or whose outcome is unknown.
#[derive(Clone, Debug)]
pub struct FailedMutation {
    /// The mutation.
    pub mutation: Mutation,
    /// Why.
    pub error: Error,
}

#[derive(Debug, Default)]
struct Buffer {
    mutations: Vec<(Mutation, OwnedSemaphorePermit)>,
    bytes: usize,
    in_flight: usize,
    failures: Vec<FailedMutation>,
    failures_dropped: usize,
}

#[derive(Debug)]
struct Inner {
    table: Table,
    flush_bytes: usize,
    /// Permits for the bytes that may be held.
    capacity: Arc<Semaphore>,
    capacity_bytes: usize,
    buffer: Mutex<Buffer>,
    batch_done: Notify,
}

/// Gathers mutations of a table into batches. Dropping it loses the mutations buffered since the
/// last [`BufferedMutator::flush`] or [`BufferedMutator::close`]; batches in flight are still
/// written.
#[derive(Debug)]
pub struct BufferedMutator {
    inner: Arc<Inner>,
    timer: Option<JoinHandle<()>>,
}

impl Drop for BufferedMutator {
    fn drop(&mut self) {
        self.timer.iter().for_each(JoinHandle::abort);
    }
}

impl BufferedMutator {
    pub(crate) fn new(table: Table) -> Self {
        let bytes = table.connection().config().write_buffer_bytes;
        Self::with_bytes(table, bytes)
    }

    fn with_bytes(table: Table, bytes: usize) -> Self {
        let flush_bytes = bytes.clamp(1, (u32::MAX / 2) as usize);
        let capacity_bytes = 2 * flush_bytes;
        let capacity = Arc::new(Semaphore::new(capacity_bytes));
        let (buffer, batch_done) = Default::default();
        Self {
            inner: Arc::new(Inner { table, flush_bytes, capacity, capacity_bytes, buffer, batch_done }),
            timer: None,
        }
    }

    /// Sets the bytes that are buffered before a batch is written.
    pub fn buffer_bytes(self, bytes: usize) -> Self {
        Self::with_bytes(self.inner.table.clone(), bytes)
    }

    /// Also writes a batch whenever an interval has passed
    /// (`hbase.client.write.buffer.periodicflush.timeout.ms`).
    pub fn flush_interval(mut self, every: Duration) -> Self {
        let inner = Arc::downgrade(&self.inner);
        self.timer.iter().for_each(JoinHandle::abort);
        self.timer = Some(tokio::spawn(async move {
            let mut ticks = interval(every.max(Duration::from_millis(1)));
            loop {
                ticks.tick().await;
                let Some(inner) = inner.upgrade() else { return };
                send(&inner);
            }
        }));
        self
    }

    /// Adds a mutation; waits while the buffer is full.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the mutation is invalid. [`BufferedMutator::flush`] returns
    /// failures of the write.
    pub async fn mutate(&self, mutation: impl Into<Mutation>) -> Result<()> {
        let mutation = mutation.into();
        self.inner.table.check(&mutation)?;
        let bytes = mutation.bytes() + MUTATION_BYTES;
        // A mutation that exceeds the capacity takes all of it.
        let permits = length::must_u32(bytes.min(self.inner.capacity_bytes));
        let capacity = match self.inner.capacity.clone().try_acquire_many_owned(permits) {
            Ok(capacity) => capacity,
            Err(_) => {
                send(&self.inner);
                let closed = |_| Error::Connection("the mutator is closed".to_owned());
                self.inner.capacity.clone().acquire_many_owned(permits).await.map_err(closed)?
            }
        };
        let full = {
            let mut buffer = self.inner.buffer.lock();
            buffer.mutations.push((mutation, capacity));
            buffer.bytes += bytes;
            buffer.bytes >= self.inner.flush_bytes
        };
        if full {
            send(&self.inner);
        }
        Ok(())
    }

    /// Writes the buffered mutations and waits until every batch has been answered. Returns the
    /// failures since the last call.
    pub async fn flush(&self) -> Vec<FailedMutation> {
        send(&self.inner);
        loop {
            let batch_done = self.inner.batch_done.notified();
            if self.inner.buffer.lock().in_flight == 0 {
                return self.take_failures();
            }
            batch_done.await;
        }
    }

    /// Takes the failures since the last call. If there were more than [`FAILURES_MAX`], a warning
    /// is logged with the number that was dropped.
    pub fn take_failures(&self) -> Vec<FailedMutation> {
        let mut buffer = self.inner.buffer.lock();
        let dropped = std::mem::take(&mut buffer.failures_dropped);
        if dropped > 0 {
            tracing::warn!(dropped, "failed writes beyond the limit were dropped");
        }
        std::mem::take(&mut buffer.failures)
    }

    /// Flushes and closes the mutator. Returns the failures since the last call.
    pub async fn close(self) -> Vec<FailedMutation> {
        self.flush().await
    }
}

/// Spawns a task that writes the buffered mutations.
fn send(inner: &Arc<Inner>) {
    let mutations = {
        let mut buffer = inner.buffer.lock();
        if buffer.mutations.is_empty() {
            return;
        }
        buffer.bytes = 0;
        buffer.in_flight += 1;
        std::mem::take(&mut buffer.mutations)
    };
    let batch = InFlightBatch(inner.clone());
    tokio::spawn(async move {
        let (mutations, capacity): (Vec<_>, Vec<_>) = mutations.into_iter().unzip();
        let actions = mutations.iter().cloned().map(Action::Mutation).collect();
        let outcomes = batch.0.table.batch(actions).await;
        let failed = mutations.into_iter().zip(outcomes);
        let failed =
            failed.filter_map(|(mutation, o)| o.err().map(|error| FailedMutation { mutation, error }));
        keep(&batch.0, failed);
        drop(capacity);
    });
}

fn keep(inner: &Inner, failures: impl Iterator<Item = FailedMutation>) {
    let mut buffer = inner.buffer.lock();
    for failure in failures {
        match buffer.failures.len() < FAILURES_MAX {
            true => buffer.failures.push(failure),
            false => buffer.failures_dropped += 1,
        }
    }
}

/// A batch in flight. Its drop counts it as done, even if its task is aborted.
struct InFlightBatch(Arc<Inner>);

impl Drop for InFlightBatch {
    fn drop(&mut self) {
        self.0.buffer.lock().in_flight -= 1;
        self.0.batch_done.notify_waiters();
    }
}
