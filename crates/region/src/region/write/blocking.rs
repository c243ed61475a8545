//! Blocking forms of the writes, for tests, benchmarks and the embedded master.

use std::sync::Arc;
use std::sync::mpsc;

use evenkeel_common::{HBaseError, Result};

use crate::operations::{CheckAndMutateResult, Completion, Condition, Mutation, MutationResult};
use crate::region::nonce::NonceSource;
use crate::region::{Region, RowLockWaiter};

fn wait<T: Send + 'static>(start: impl FnOnce(Completion<T>)) -> Result<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    start(Box::new(move |outcome| drop(sender.send(outcome))));
    receiver.recv().unwrap_or_else(|_| Err(HBaseError::io("the write was dropped unanswered")))
}

impl Region {
    /// As [`Region::mutate`], but blocks until the write is complete.
    ///
    /// # Errors
    /// `NotServingRegionException`, `RegionTooBusyException`, or `IOException` from the log.
    pub fn mutate_wait(self: &Arc<Self>, mutation: Mutation) -> Result<MutationResult> {
        wait(|done| self.mutate(mutation, NonceSource::NONE, RowLockWaiter::CallingThread, done))
    }

    /// As [`Region::mutate_rows`], but blocks until the writes are complete.
    ///
    /// # Errors
    /// As [`Region::mutate_wait`].
    pub fn mutate_rows_wait(
        self: &Arc<Self>,
        mutations: Vec<Mutation>,
        conditions: Vec<Condition>,
    ) -> Result<CheckAndMutateResult> {
        wait(|done| {
            self.mutate_rows(mutations, conditions, NonceSource::NONE, RowLockWaiter::CallingThread, done)
        })
    }

    /// As [`Region::check_and_mutate`], but blocks until the write is complete.
    ///
    /// # Errors
    /// As [`Region::mutate_wait`].
    pub fn check_and_mutate_wait(
        self: &Arc<Self>,
        condition: Condition,
        mutations: Vec<Mutation>,
    ) -> Result<CheckAndMutateResult> {
        wait(|done| {
            self.check_and_mutate(condition, mutations, NonceSource::NONE, RowLockWaiter::CallingThread, done)
        })
    }

    /// As [`Region::batch_mutate`], but blocks until the batch is complete.
    pub fn batch_mutate_wait(self: &Arc<Self>, mutations: Vec<Mutation>) -> Vec<Result<MutationResult>> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let count = mutations.len();
        self.batch_mutate(
            mutations,
            RowLockWaiter::CallingThread,
            Box::new(move |outcomes| drop(sender.send(outcomes))),
        );
        let unanswered = || Err(HBaseError::io("the write was dropped unanswered"));
        receiver.recv().unwrap_or_else(|_| (0..count).map(|_| unanswered()).collect())
    }
}
