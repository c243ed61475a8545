//! [`PendingWrite`]: a write of a region on its way from the MemStore to its answer.
//!
//! ```text
//!            entry in the log's queue,         entry as durable           all earlier writes
//!            cells in the MemStore             as was asked               of the region complete
//!   begun ----------------------------> logged ----------------> durable -----------------------> visible -> answered
//!                                         |                                                                    ^
//!                                         +-- the log failed --> taken back: cells hidden, number complete ----+
//! ```
//!
//! No thread waits for a write in any of these states. The write itself is the callback of both waits: the log owns it
//! while it is *logged* ([`OnSynced`]), and [`Mvcc`](super::mvcc::Mvcc) owns it while it is *durable* ([`OnVisible`]).
//! It lies in one allocation until it is answered. A write that is not logged (`SKIP_WAL`) is durable at once.
//!
//! The answer goes to the caller of the region ([`WriteAnswer`]), on whatever thread made the write visible: mostly the
//! log's. What happens to an answer after that (the server may hold it back to slow writers down) is the caller's.

use std::sync::Arc;

use evenkeel_common::{HBaseError, KeyValue, Result};
use evenkeel_wal::{OnSynced, SyncLevel, Txid};

use super::Region;
use super::mvcc::OnVisible;
use super::nonce::RunningNonce;
use super::row_cache::HeldRows;
use crate::ops::{CheckAndMutateResult, Completion, MutationResult};

/// Called once with the outcome of each mutation of a batch, in order.
pub type BatchCompletion = Box<dyn FnOnce(Vec<Result<MutationResult>>) + Send>;

/// A write whose cells are in the MemStore, under a write number that is not complete.
pub(super) struct Applied {
    /// The write number.
    pub number: u64,
    /// The log entry and how durable it must become; `None` when the write is not logged.
    pub logged: Option<(Txid, SyncLevel)>,
    /// The cells as they were written.
    pub cells: Vec<KeyValue>,
    /// Rows of the row cache that the write keeps from being filled.
    pub held: HeldRows,
}

/// Where the outcome of a write goes.
pub(super) enum WriteAnswer {
    /// A mutation alone.
    Mutation(Completion<MutationResult>),
    /// Mutations that are made together, under conditions or none.
    Checked(Completion<CheckAndMutateResult>),
    /// Mutations that stand alone, of which some may have failed already.
    Batch(Vec<Result<MutationResult>>, BatchCompletion),
}

impl WriteAnswer {
    /// Gives the outcome of what was written. In a batch, an error is that of every mutation that had none of its own.
    pub fn give(self, outcome: Result<CheckAndMutateResult>) {
        match (self, outcome) {
            (Self::Mutation(done), outcome) => {
                done(outcome.map(|result| MutationResult { cells: result.cells }));
            }
            (Self::Checked(done), outcome) => done(outcome),
            (Self::Batch(outcomes, done), Ok(_)) => done(outcomes),
            (Self::Batch(outcomes, done), Err(error)) => {
                let failed = outcomes.into_iter().map(|outcome| outcome.and_then(|_| Err(error.clone())));
                done(failed.collect());
            }
        }
    }
}

/// See the module's documentation.
pub(super) struct PendingWrite {
    region: Arc<Region>,
    applied: Applied,
    /// What the write is answered with when it is visible.
    result: CheckAndMutateResult,
    /// The nonce of an operation that must not be made twice.
    nonce: Option<RunningNonce>,
    answer: WriteAnswer,
}

impl PendingWrite {
    pub fn new(
        region: &Arc<Region>,
        applied: Applied,
        result: CheckAndMutateResult,
        answer: WriteAnswer,
    ) -> Self {
        Self { region: Arc::clone(region), applied, result, nonce: None, answer }
    }

    /// The operation ends with the write.
    pub fn with_nonce(self, nonce: RunningNonce) -> Self {
        Self { nonce: Some(nonce), ..self }
    }

    /// Goes on with a write that has just been applied.
    pub fn start(self) {
        let region = Arc::clone(&self.region);
        match self.applied.logged {
            Some((txid, level)) => region.env.wal.notify_synced(txid, level, Box::new(self)),
            None => Box::new(self).durable(&region),
        }
    }

    fn durable(self: Box<Self>, region: &Region) {
        region.mvcc.complete_then(self.applied.number, Some(self));
    }

    fn failed(self, error: HBaseError) {
        let Self { region, applied, nonce, answer, .. } = self;
        region.take_back(&applied.cells);
        region.mvcc.complete(applied.number);
        if let Some(nonce) = nonce {
            nonce.end(false);
        }
        answer.give(Err(error));
    }
}

impl OnSynced for PendingWrite {
    fn synced(self: Box<Self>, outcome: Result<()>) {
        match outcome {
            Ok(()) => {
                let region = Arc::clone(&self.region);
                self.durable(&region);
            }
            Err(error) => self.failed(error),
        }
    }
}

impl OnVisible for PendingWrite {
    fn visible(self: Box<Self>) {
        let Self { applied, result, nonce, answer, .. } = *self;
        applied.held.settle();
        if let Some(nonce) = nonce {
            nonce.end(true);
        }
        answer.give(Ok(result));
    }
}
