//! The same writes for callers who may wait: tests, benchmarks, the embedded master.

use std::sync::Arc;
use std::sync::mpsc;

use evenkeel_common::{HBaseError, Result};

use super::Region;
use super::nonce::NonceSource;
use crate::ops::{CheckAndMutateResult, Completion, Condition, Mutation, MutationResult};

fn wait<T: Send + 'static>(start: impl FnOnce(Completion<T>)) -> Result<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    start(Box::new(move |outcome| drop(sender.send(outcome))));
    receiver.recv().unwrap_or_else(|_| Err(HBaseError::io("the write was dropped unanswered")))
}

impl Region {
    /// [`Region::mutate`], waited for.
    ///
    /// # Errors
    /// Whatever the write ends with.
    pub fn mutate_wait(self: &Arc<Self>, mutation: Mutation) -> Result<MutationResult> {
        wait(|done| self.mutate(mutation, NonceSource::NONE, done))
    }

    /// [`Region::mutate_rows`], waited for.
    ///
    /// # Errors
    /// Whatever the write ends with.
    pub fn mutate_rows_wait(
        self: &Arc<Self>,
        mutations: Vec<Mutation>,
        conditions: Vec<Condition>,
    ) -> Result<CheckAndMutateResult> {
        wait(|done| self.mutate_rows(mutations, conditions, NonceSource::NONE, done))
    }

    /// [`Region::check_and_mutate`], waited for.
    ///
    /// # Errors
    /// Whatever the write ends with.
    pub fn check_and_mutate_wait(
        self: &Arc<Self>,
        condition: Condition,
        mutations: Vec<Mutation>,
    ) -> Result<CheckAndMutateResult> {
        wait(|done| self.check_and_mutate(condition, mutations, NonceSource::NONE, done))
    }

    /// [`Region::batch_mutate`], waited for.
    pub fn batch_mutate_wait(self: &Arc<Self>, mutations: Vec<Mutation>) -> Vec<Result<MutationResult>> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let count = mutations.len();
        self.batch_mutate(mutations, Box::new(move |outcomes| drop(sender.send(outcomes))));
        let unanswered = || Err(HBaseError::io("the write was dropped unanswered"));
        receiver.recv().unwrap_or_else(|_| (0..count).map(|_| unanswered()).collect())
    }
}
