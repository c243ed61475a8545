//! [`PendingWrite`]: a write of a region on its way from the MemStore to its reply.
//!
//! ```text
//!          entry in the log's queue,   entry as durable    all earlier writes
//!          cells in the MemStore       as requested        of the region complete
//!   begun ----------------> logged -------------> durable --------> visible -> answered
//!                              |                                                  ^
//!                              +-- the log failed --> hidden ---------------------+
//!                                   (no reader sees the cells, number complete)
//! ```
//! No thread waits for a write in any of these states. The write itself is the callback of both
//! waits: the log owns it while it is *logged* ([`OnSynced`]), and
//! [`Mvcc`](crate::region::mvcc::Mvcc) owns it while it is *durable* ([`OnVisible`]). It stays in
//! one allocation until it is answered. A write that is not logged (`SKIP_WAL`) is durable at once.
//!
//! The outcome goes to the region's caller ([`WriteResponder`]), on the thread that made the write
//! visible, usually the log's. The caller decides what to do with it (the server may delay it to
//! throttle writers).

use std::sync::Arc;
use std::time::Instant;

use evenkeel_common::{CellBuffer, HBaseError, KeyValue, Result, clock};
use evenkeel_metrics::waits::{self, Cause, Waits};
use evenkeel_wal::{OnSynced, SyncLevel, Txid};

use crate::operations::{CheckAndMutateResult, Completion, MutationResult};
use crate::region::Region;
use crate::region::mvcc::OnVisible;
use crate::region::nonce::RunningNonce;
use crate::region::row_cache::SuspendedEntries;

/// Called once with the outcome of each mutation of a batch, in order.
pub type BatchCompletion = Box<dyn FnOnce(Vec<Result<MutationResult>>) + Send>;

/// A write whose cells are in the MemStore, under a write number that is not complete.
pub(in crate::region) struct Applied {
    /// The write number.
    pub number: u64,
    /// The log entry and how durable it must become; `None` if the write is not logged.
    pub logged: Option<(Txid, SyncLevel)>,
    /// The cells as they were written.
    pub cells: Vec<KeyValue>,
    /// Entries of the row cache that are not served until the write is visible.
    pub suspended: SuspendedEntries,
}

/// The receiver of a write's outcome.
pub(in crate::region) enum WriteResponder {
    /// A single mutation.
    Mutation(Completion<MutationResult>),
    /// Mutations made together, possibly under conditions.
    Checked(Completion<CheckAndMutateResult>),
    /// Independent mutations, some of which may have failed already.
    Batch(Vec<Result<MutationResult>>, BatchCompletion),
}

impl WriteResponder {
    /// Reports the outcome of the write. In a batch, an error applies to every mutation that has no
    /// error yet.
    pub fn respond(self, outcome: Result<CheckAndMutateResult>) {
        match (self, outcome) {
            (Self::Mutation(done), outcome) => {
                done(outcome.map(|CheckAndMutateResult { success: _, cells, grown_bytes, charge }| {
                    MutationResult { cells, grown_bytes, charge }
                }));
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
pub(in crate::region) struct PendingWrite {
    region: Arc<Region>,
    applied: Applied,
    /// The result to reply with once the write is visible.
    result: CheckAndMutateResult,
    /// The nonce of an operation that must be applied once only.
    nonce: Option<RunningNonce>,
    responder: WriteResponder,
    /// A copy of the cells for secondary replicas, once the write is durable.
    streamed: Option<CellBuffer>,
    /// The waits of the write on the thread that made it, unless they count for its request
    /// already ([`waits::take_part`]).
    waits: Option<Box<Waits>>,
    /// When it was logged.
    logged_at: Instant,
}

impl PendingWrite {
    pub fn new(
        region: &Arc<Region>,
        applied: Applied,
        result: CheckAndMutateResult,
        responder: WriteResponder,
    ) -> Self {
        let (waits, logged_at) = (waits::take_part().map(Box::new), clock::monotonic());
        let region = Arc::clone(region);
        Self { region, applied, result, nonce: None, responder, streamed: None, waits, logged_at }
    }

    /// Ends the nonce's operation with the write.
    pub fn with_nonce(self, nonce: RunningNonce) -> Self {
        Self { nonce: Some(nonce), ..self }
    }

    /// Continues a write that is in the MemStore.
    pub fn start(self) {
        let region = Arc::clone(&self.region);
        match self.applied.logged {
            Some((txid, level)) => region.env.wal.notify_synced(txid, level, Box::new(self)),
            None => Box::new(self).durable(&region),
        }
    }

    /// Records the write's waits for the thread that answers it.
    fn note_waits(&self) {
        if let Some(waits) = &self.waits {
            waits::note_all(waits);
        }
        waits::note(Cause::LogSync, clock::since(self.logged_at));
    }

    fn durable(mut self: Box<Self>, region: &Region) {
        if let Some(stream) = &region.replica_stream
            && self.applied.logged.is_some()
        {
            self.streamed = stream.copy(&self.applied.cells);
        }
        region.mvcc.complete_then(self.applied.number, Some(self));
    }

    fn failed(self, error: HBaseError) {
        waits::aside(|| self.answer_failed(error));
    }

    fn answer_failed(self, error: HBaseError) {
        self.note_waits();
        let Self { region, applied, nonce, responder, .. } = self;
        region.hide_failed_cells(&applied.cells);
        region.mvcc.complete(applied.number);
        if let Some(nonce) = nonce {
            nonce.end(false);
        }
        responder.respond(Err(error));
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
    fn in_order(&mut self) {
        if let (Some(cells), Some(stream)) = (self.streamed.take(), &self.region.replica_stream) {
            let visible_early = self.applied.logged.filter(|(_, level)| *level == SyncLevel::None);
            stream.push_edits(self.applied.number, visible_early.map(|(txid, _)| txid), cells);
        }
    }

    fn visible(self: Box<Self>) {
        // The thread may be making another write.
        waits::aside(|| self.answer());
    }
}

impl PendingWrite {
    fn answer(self: Box<Self>) {
        self.note_waits();
        let Self { region, applied, result, nonce, responder, .. } = *self;
        if let Some(stream) = &region.replica_stream {
            region.announce_events(stream);
        }
        applied.suspended.publish_entries();
        if let Some(nonce) = nonce {
            nonce.end(true);
        }
        responder.respond(Ok(result));
    }
}
