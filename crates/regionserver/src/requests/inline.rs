//! Limits on the work that runs on a connection's thread, and where the rest runs.
//!
//! All connections of a thread share it, so work on it must neither block nor take long. A call
//! begins there only if it [looks short](looks_short), and gets one [`SLICE`] of time. A call that
//! would block or exceeds the slice continues on a handler thread.
//!
//! | work | on the connection's thread | else |
//! |---|---|---|
//! | decoding a frame | up to [`FRAME_BYTES_MAX`] | Mutate and Multi: Decode, else: Scan |
//! | decompressing a cell block | up to [`COMPRESSED_BYTES_MAX`] | the same |
//! | a Get without [costly filters](is_cheap) | for a slice of the turn | restarts, class Scan |
//! | a Get of blocks not in memory | | restarts, class General |
//! | a Multi | up to [`ACTIONS_MAX`] actions; Gets for a slice | class Scan |
//! | a Put or Delete that need not wait | for a slice of the turn's writes | class Write |
//! | a write that waits for a row lock, flush or full log | | continues, class Write |
//! | a write that waits for a row lock for long | | continues, class LongWrite |
//! | a write that reads cells first | | class Write |
//! | a write that evaluates a filter first; a Multi that reads and writes | | class LongWrite |
//!
//! Calls on system tables run in class Priority instead of General, Write and Scan, except those
//! that may compute for long: a Get that exceeds its slice or has a costly filter, a scan with a
//! costly filter, an aggregation. The priority handlers have no CPU slots.
//!
//! Handlers of Scan, Decode, Write and LongWrite have CPU slots: in each class, one per core
//! computes at a time. Scan handlers compute for long and must not wait for writes, which would
//! delay the scans behind them; so writes that would wait continue in class Write. Long writes are
//! decoded and started in class Decode, because all Scan handlers may be busy with scans that take
//! seconds. Writes that may compute or wait for long have a class of their own, because they hold a
//! thread meanwhile, and an Increment of another row needs one.
//!
//! [`RunsOn`] is the kind of thread that a request runs on.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_metrics::waits::{PartTimer, Waits};
use evenkeel_protocol::pb;
use evenkeel_region::operations::{Completion, Mutation, MutationResult};
use evenkeel_region::region::nonce::NonceSource;
use evenkeel_region::region::{BatchCompletion, LongWaitExecutor, Region, RowLockWaiter, TryWriteResult};
use evenkeel_rpc::{Call, CallClass, Executor};

use crate::convert::multi::MultiRequest;

/// Handlers decode longer frames. A frame of this size takes 0.1 ms to copy, and 1 ms to decode if
/// it consists of small parts.
pub const FRAME_BYTES_MAX: usize = 128 << 10;
/// Handlers decompress longer cell blocks: one byte may expand to a thousand.
pub const COMPRESSED_BYTES_MAX: usize = 1 << 10;
/// Handlers run requests of more actions.
pub const ACTIONS_MAX: usize = 256;
/// How long reads may compute on a connection's thread, and also writes. Long enough that a thread
/// that is preempted for a while has mostly not used it up.
pub const SLICE: Duration = Duration::from_millis(2);
/// Handlers run reads with longer filters.
pub const FILTER_BYTES_MAX: usize = 1 << 10;

/// Comparators whose cost for one value grows faster than its length, or that take long to
/// construct. The names of the `Substring` and `Regex` comparators end alike.
const COSTLY: [&[u8]; 2] = [b"tringComparator", b"BigDecimalComparator"];

/// Returns true if a call may begin on its connection's thread, judged by its lengths only.
pub fn looks_short(call: &Call) -> bool {
    call.frame_bytes <= FRAME_BYTES_MAX
        && !(call.is_compressed() && call.cell_block_bytes() > COMPRESSED_BYTES_MAX)
}

/// Returns true if the cost of a filter is bounded by the cells that it examines.
pub fn is_cheap(filter: Option<&pb::Filter>) -> bool {
    let Some(filter) = filter else { return true };
    let bytes = filter.serialized_filter.as_deref().unwrap_or_default();
    let has = |name: &&[u8]| bytes.windows(name.len()).any(|part| part == *name);
    bytes.len() <= FILTER_BYTES_MAX && !COSTLY.iter().any(has)
}

/// Returns true if a Multi may begin on its connection's thread.
pub fn is_short(request: &MultiRequest) -> bool {
    let actions: usize = request.region_actions.iter().map(|action| action.actions.len() + 1).sum();
    actions <= ACTIONS_MAX && request.kinds.iter().all(|get| is_cheap(get.filter.as_ref()))
}

/// The handler threads, for what is left of a request.
#[derive(Clone, Copy)]
pub struct Handlers<'a> {
    executor: &'a Arc<Executor>,
    /// The connection of the request; it waits in turn with the other calls of it.
    peer: Option<SocketAddr>,
}

impl<'a> Handlers<'a> {
    /// The handlers, for the rest of a call.
    pub fn for_call(executor: &'a Arc<Executor>, call: &Call) -> Self {
        Self { executor, peer: Some(call.connection.peer) }
    }

    /// The threads themselves.
    pub fn executor(self) -> &'a Arc<Executor> {
        self.executor
    }

    /// Continues the request on a thread of `class`.
    pub fn continue_on(self, class: CallClass, job: impl FnOnce() + Send + 'static) {
        self.executor.submit_continuation(class, self.peer, job);
    }

    /// Makes batches of one request, in this order. `started` gets what the thread did that started
    /// them, by cause, and until when.
    pub fn write_batches(
        self,
        batches: Vec<DeferredBatch>,
        started: impl FnOnce((Waits, Instant)) + Send + 'static,
    ) {
        let class = match &batches[..] {
            [] => return,
            [only] => class_of_writes(&only.region),
            all if all.iter().all(|batch| batch.region.info().table().is_system()) => CallClass::Priority,
            // Later batches wait for the row locks of earlier ones.
            _ => CallClass::LongWrite,
        };
        self.continue_writing(class, move |runs_on| {
            let timer = PartTimer::start();
            for DeferredBatch { region, mutations, done } in batches {
                region.batch_mutate(mutations, runs_on.row_lock_waiter(), done);
            }
            started(timer.end());
        });
    }

    /// Continues a write on a thread of `class`. `job` gets the [`RunsOn`] of that thread.
    pub fn continue_writing(self, class: CallClass, job: impl FnOnce(RunsOn<'_>) + Send + 'static) {
        let (executor, peer) = (Arc::clone(self.executor), self.peer);
        self.continue_on(class, move || job(runs_on(class, Handlers { executor: &executor, peer })));
    }
}

impl LongWaitExecutor for Handlers<'_> {
    fn run(&self, rest: Box<dyn FnOnce() + Send>) {
        self.continue_on(CallClass::LongWrite, rest);
    }
}

/// The kind of thread that a request runs on, which limits what it may do there.
#[derive(Clone, Copy)]
pub enum RunsOn<'a> {
    /// A connection's thread: the request may neither block nor take long.
    Connection(Handlers<'a>),
    /// A handler for long computations: the request may block only on disk reads.
    Computing(Handlers<'a>),
    /// A handler for short writes: the request may block, but not for long on a row lock.
    Writing(Handlers<'a>),
    /// A thread that may block.
    Blocking,
}

impl<'a> RunsOn<'a> {
    /// Returns the threads that run writes that would block. `None`: such writes block here.
    pub fn handlers(self) -> Option<Handlers<'a>> {
        match self {
            RunsOn::Connection(handlers) | RunsOn::Computing(handlers) => Some(handlers),
            RunsOn::Writing(_) | RunsOn::Blocking => None,
        }
    }

    /// Returns where a write waits for a row lock that is not free soon.
    pub fn row_lock_waiter(&self) -> RowLockWaiter<'_> {
        match self {
            RunsOn::Writing(handlers) => RowLockWaiter::LongWaitThreads(handlers),
            RunsOn::Connection(_) | RunsOn::Computing(_) | RunsOn::Blocking => RowLockWaiter::CallingThread,
        }
    }

    /// Makes a Put or Delete: here if it need not wait, else on a handler.
    pub fn write(self, region: &Arc<Region>, mutation: Mutation, done: Completion<MutationResult>) {
        let Some(handlers) = self.handlers() else {
            return region.mutate(mutation, NonceSource::NONE, self.row_lock_waiter(), done);
        };
        if let TryWriteResult::WouldWait((mutation, done)) = region.try_mutate(mutation, done) {
            let region = Arc::clone(region);
            handlers.continue_writing(class_of_writes(&region), move |runs_on| {
                region.mutate(mutation, NonceSource::NONE, runs_on.row_lock_waiter(), done);
            });
        }
    }

    /// Makes a batch of Puts and Deletes here. Returns it if it would have to wait and may not.
    pub fn write_batch(
        self,
        region: &Arc<Region>,
        mutations: Vec<Mutation>,
        done: BatchCompletion,
    ) -> TryWriteResult<(Vec<Mutation>, BatchCompletion)> {
        if self.handlers().is_some() {
            return region.try_batch_mutate(mutations, done);
        }
        region.batch_mutate(mutations, self.row_lock_waiter(), done);
        TryWriteResult::Started
    }
}

/// A batch of Puts and Deletes that would have to wait.
pub struct DeferredBatch {
    /// The region of all its rows.
    pub region: Arc<Region>,
    /// The Puts and Deletes.
    pub mutations: Vec<Mutation>,
    /// Gets their outcomes.
    pub done: BatchCompletion,
}

/// Returns what a request may do on a handler thread of a class.
pub fn runs_on(class: CallClass, handlers: Handlers<'_>) -> RunsOn<'_> {
    match class {
        CallClass::Scan | CallClass::Decode => RunsOn::Computing(handlers),
        CallClass::Write => RunsOn::Writing(handlers),
        CallClass::General | CallClass::Priority | CallClass::Admin | CallClass::LongWrite => {
            RunsOn::Blocking
        }
    }
}

/// Returns the class of the threads that make a region's writes that wait.
pub fn class_of_writes(region: &Region) -> CallClass {
    if region.info().table().is_system() { CallClass::Priority } else { CallClass::Write }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(bytes: &[u8]) -> pb::Filter {
        pb::Filter { name: "F".to_owned(), serialized_filter: Some(bytes.to_vec().into()) }
    }

    #[test]
    fn filters_with_costly_comparators_anywhere_in_them_are_not_cheap() {
        assert!(is_cheap(None) && is_cheap(Some(&pb::Filter::default())));
        assert!(is_cheap(Some(&filter(b"\x0a\x12org.apache.hadoop.hbase.filter.BinaryComparator"))));
        for costly in ["Substring", "RegexString", "BigDecimal"] {
            let bytes = format!("\x0a\x22org.apache.hadoop.hbase.filter.{costly}Comparator\x12\x01");
            assert!(!is_cheap(Some(&filter(bytes.as_bytes()))), "{costly}");
        }
        assert!(!is_cheap(Some(&filter(&[0; FILTER_BYTES_MAX + 1]))));
    }
}
