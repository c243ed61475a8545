//! Multi: many actions on many regions in one call.
//!
//! Actions are processed in the order of the request, because their cells have this order in the
//! cell block. Each action fills a *slot*: immediately (a Get, an invalid action), or when the
//! region's write completes on another thread. Filling the last slot sends the response. It lists
//! the results in the order of the request, and its cell block has their cells in the same order.
//!
//! | region action | how |
//! |---|---|
//! | with a condition | checkAndMutate: one outcome; results inside the message |
//! | atomic | all mutations or none: one outcome; results inside the message |
//! | neither | each action separately; consecutive Puts and Deletes as one batch |
//!
//! Consecutive Gets share one buffer of cells ([`GetRun`]), unless an action between them may
//! return cells too.
//!
//! A region that is not found, or whose quotas are used up, fails only its own actions; their cells
//! are skipped. A quota of space, or a cell that is too large, refuses consecutive Puts and Deletes
//! of a region action together.
//!
//! A batch that would have to wait, on a thread that may not, is made on a handler. The batches
//! after it are made there, too, so that the last write to a cell is the one that stays.
//!
//! # Bounds
//! Decoding counts the memory of the request and of its processing ([`crate::convert::multi`]). The
//! reply is counted as it grows: the cells read, charged in steps to the budget for replies, and
//! the other parts of outcomes (exceptions, cells of Increments and Appends, values of services).
//! When the reply reaches [`RegionServer::result_bytes_max`] or exhausts the budget, the remaining
//! actions are not tried. Each fails with the same MultiActionResultTooLarge, at which the client
//! retries it.
//!
//! | module | contents |
//! |---|---|
//! | `read` | requests that only read |
//! | `outcomes` | the outcomes of actions, from which the response is built |
//! | `reply_limits` | limits on the size of the response |

mod outcomes;
mod read;
mod reply_limits;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_common::error::QUOTED_BYTES_MAX;
use evenkeel_common::{
    Binary, CallerState, CellBuffer, HBaseError, Result, TryError, Wait, clock, cpu_slot, quoted,
};
use evenkeel_metrics::RequestDetail;
use evenkeel_metrics::ledger::ActionCounts;
use evenkeel_metrics::waits::PartTimer;
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::mutation_proto::MutationType;
use evenkeel_region::operations::{CheckAndMutateResult, Condition, Mutation, MutationKind, MutationResult};
use evenkeel_region::region::nonce::NonceSource;
use evenkeel_region::region::{self, Operation, OperationTimes, Region, TryWriteResult};
use evenkeel_region::scanner::{ReplyCharge, ScannerContext, TimeSlice};
use evenkeel_rpc::CellBlockReader;

use self::outcomes::{ActionOutcome, OutcomeCollector};
pub use self::read::read;
use self::read::{RowRead, append_row};
use self::reply_limits::ReplyLimits;
use crate::convert::multi::{Action, ActionKind, MultiRequest, MultiResponse, RegionAction};
use crate::convert::service::ServiceCall;
use crate::convert::{condition, mutation};
use crate::coprocessor::endpoint::{self, ServiceCaller};
use crate::limits::memstore;
use crate::quotas::space::SpaceQuotas;
use crate::quotas::{OperationQuota, Request};
use crate::requests::caller::{Caller, Reply};
use crate::requests::get::GetReader;
use crate::requests::inline::{DeferredBatch, RunsOn};
use crate::requests::mutate::check_same_row;
use crate::requests::pending_reply::PendingReply;
use crate::{RegionServer, RequestKind};

/// The maximum bytes of cells reserved for the rows of a request that are expected to be as large
/// as the first one.
const GETS_BYTES_RESERVED_MAX: usize = 1 << 20;

/// The kind of work a request does, as far as it determines where the request runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultiKind {
    /// It only reads rows, or does nothing.
    Reads,
    /// It writes rows without reading them.
    Writes,
    /// It is one atomic write, with or without a condition on a cell.
    Atomic,
    /// It is any other request that reads before it writes, or both reads and writes. It may
    /// compute or wait for long.
    ReadsAndWrites,
    /// It calls coprocessor services, which may take long.
    Services,
}

/// Returns the kind of work a request does.
pub fn kind(request: &MultiRequest) -> MultiKind {
    let (mut reads, mut writes, mut reads_first) = (false, false, request.condition.is_some());
    for region_action in &request.region_actions {
        reads_first |= region_action.atomic || region_action.condition.is_some();
        for action in &region_action.actions {
            match &action.kind {
                ActionKind::Service(_) => return MultiKind::Services,
                ActionKind::Get { .. } => reads = true,
                ActionKind::Mutation(mutation) => {
                    writes = true;
                    reads_first |= crate::requests::mutate::is_delta(mutation);
                }
                ActionKind::Nothing => {}
            }
        }
    }
    match () {
        () if reads_first && is_one_atomic_write(request) => MultiKind::Atomic,
        () if reads_first || (reads && writes) => MultiKind::ReadsAndWrites,
        () if writes => MultiKind::Writes,
        () => MultiKind::Reads,
    }
}

/// Returns true if a request is one atomic write whose condition, if it has one, reads one cell.
fn is_one_atomic_write(request: &MultiRequest) -> bool {
    let [only] = &request.region_actions[..] else { return false };
    let condition = request.condition.as_ref().or(only.condition.as_ref());
    let examines_row = condition.is_some_and(|condition| condition.filter.is_some());
    (only.atomic || condition.is_some()) && !examines_row
}

/// Returns the details that the ledger keeps of a request.
pub fn detail(request: &MultiRequest) -> RequestDetail {
    let regions = request.region_actions.len();
    let first = request.region_actions.first();
    let mut counts = ActionCounts::default();
    for action in request.region_actions.iter().flat_map(|action| &action.actions) {
        match action.kind {
            ActionKind::Get { .. } => counts.gets += 1,
            ActionKind::Mutation(_) => counts.mutations += 1,
            ActionKind::Service(_) => counts.service_calls += 1,
            ActionKind::Nothing => {}
        }
    }
    let ActionCounts { gets, mutations, service_calls } = counts;
    RequestDetail {
        operation: if mutations > 0 { "batchMutate" } else { "get" },
        region: first.map(|action| region_name(&action.region.value)).unwrap_or_default(),
        row: Vec::new(),
        text: format!("{} actions, {regions} regions", gets + mutations + service_calls),
        actions: counts,
    }
}

/// Formats the region name that a client sent, cut to a maximum length.
fn region_name(name: &[u8]) -> String {
    Binary(name.get(..QUOTED_BYTES_MAX).unwrap_or(name)).to_string()
}

/// Starts all actions of a request. `reply` gets the outcome when the last action has ended.
/// Operations that read before they write may block on any thread. When the client waits no longer,
/// the Gets that are left fail, and the writes are made all the same.
pub fn multi(
    server: &Arc<RegionServer>,
    request: &MultiRequest,
    block: CellBlockReader,
    (caller, state): (Caller, &CallerState),
    reply: PendingReply<MultiResponse>,
    runs_on: RunsOn<'_>,
) {
    let count = || server.counters.count(RequestKind::Multi);
    if let Err(error) = server.check_open().and_then(|()| check_size(server, request)) {
        count();
        return reply.send(Err(error));
    }
    let global = request.condition.as_ref();
    // A condition for the whole request is an old client's checkAndMutate. Only its first region
    // action counts.
    let actions = match global {
        Some(_) => request.region_actions.get(..1).unwrap_or_default(),
        None => &request.region_actions[..],
    };
    let (nonces, limits) = (caller.nonce_source(request.nonce_group), ReplyLimits::new(server, &caller));
    let collector =
        OutcomeCollector::new(server, actions, caller, global.is_some(), reply, runs_on.handlers());
    let mut run = MultiRun {
        runs_on,
        context: ReplyLimits::context(server, TimeSlice::while_awaited(state.clone())),
        kinds: &request.kinds,
        actions_left: actions.iter().map(|action| action.actions.len()).sum(),
        gets: None,
        server,
        collector: &collector,
        block,
        nonces,
        state,
        limits,
        quota: OperationQuota::NONE,
        written_bytes: 0,
        waiting: Vec::new(),
    };
    let timer = PartTimer::start();
    prefetch_write_rows(server, actions);
    for (at, action) in actions.iter().enumerate() {
        let condition = global.or(action.condition.as_ref());
        run.region_action(at, action, condition);
    }
    count();
    run.end_gets();
    collector.count_started(timer.end());
    if let Some(handlers) = runs_on.handlers().filter(|_| !run.waiting.is_empty()) {
        let deferred = collector.start();
        handlers.write_batches(std::mem::take(&mut run.waiting), move |started| {
            deferred.count_started(started);
            deferred.end();
        });
    }
    // The hold is computed here because all written bytes are counted.
    collector.hold_reply_for(hold_for(server, actions, run.written_bytes));
    collector.keep_charge(run.context.take_charge().map(ReplyCharge::into_charge));
    collector.end();
}

/// Prefetches the positions of the rows that will be written into the CPU cache.
fn prefetch_write_rows(server: &RegionServer, actions: &[RegionAction]) {
    let written = actions.iter().filter(|action| written_rows(action).next().is_some());
    let regions: Vec<_> =
        written.filter_map(|action| Some((server.region(&action.region).ok()?, action))).collect();
    region::prefetch_write_positions(
        regions.iter().flat_map(|(region, action)| written_rows(action).map(|row| (&**region, row))),
    );
}

fn written_rows(action: &RegionAction) -> impl Iterator<Item = &[u8]> {
    let mutations = action.actions.iter().filter_map(Action::mutation);
    mutations.filter_map(|mutation| mutation.row.as_deref())
}

/// The error for a Get of a kind that the request does not have, which decoding rules out.
fn no_such_kind() -> HBaseError {
    HBaseError::io("a Get without its attributes")
}

/// Returns the rows of the leading Gets of a kind.
fn rows_of_kind(actions: &[Action], wanted: usize) -> impl Iterator<Item = &[u8]> + Clone {
    actions.iter().map_while(move |action| match &action.kind {
        ActionKind::Get { row, kind } if *kind == wanted => Some(&row[..]),
        _ => None,
    })
}

/// Returns how long to hold the reply to a request that writes `bytes`. Replies to rejected
/// requests are held, too.
fn hold_for(server: &RegionServer, actions: &[RegionAction], bytes: u64) -> Duration {
    if !server.may_throttle() {
        return Duration::ZERO;
    }
    let writes = |action: &&RegionAction| action.actions.iter().any(|action| action.mutation().is_some());
    let regions = actions.iter().filter(writes).filter_map(|action| server.region(&action.region).ok());
    server.hold_for(regions.collect::<Vec<_>>().iter().map(|region| &**region), bytes)
}

/// Checks the actions on a region, which may have a condition, against the quotas. A refusal counts
/// as an exception, although it is only a part of the reply.
fn check_quota(
    server: &RegionServer,
    caller: &Caller,
    region: &Region,
    (action, has_condition): (&RegionAction, bool),
) -> Result<OperationQuota> {
    if server.quotas().is_none() {
        return Ok(OperationQuota::NONE);
    }
    let (mut writes, mut reads, mut is_atomic) = (0, 0, false);
    for action in &action.actions {
        match &action.kind {
            ActionKind::Get { .. } => reads += 1,
            ActionKind::Mutation(mutation) => {
                writes += 1;
                if has_condition || crate::requests::mutate::is_delta(mutation) {
                    reads += 1;
                    is_atomic = true;
                }
            }
            ActionKind::Service(_) | ActionKind::Nothing => {}
        }
    }
    let checked = server.check_quota(caller, region, Request::Batch { writes, reads, is_atomic });
    checked.inspect_err(|error| server.rpc_metrics.count_exception(error.kind()))
}

fn check_size(server: &RegionServer, request: &MultiRequest) -> Result<()> {
    let actions: usize = request.region_actions.iter().map(|action| action.actions.len()).sum();
    let limit = server.config.multi_actions_warn;
    if actions <= limit {
        return Ok(());
    }
    tracing::warn!(actions, limit, "large batch operation");
    match server.config.multi_actions_reject {
        false => Ok(()),
        true => Err(HBaseError::do_not_retry(format!(
            "Rejecting large batch operation for current batch with firstRegionName: {} , Requested Number of Rows: \
             {actions} , Size Threshold: {limit}",
            request
                .region_actions
                .first()
                .map(|action| quoted(&action.region.value).to_string())
                .unwrap_or_default()
        ))),
    }
}

/// The state of a request while its actions are started.
struct MultiRun<'a> {
    /// The kinds of its Gets.
    kinds: &'a [pb::Get],
    server: &'a Arc<RegionServer>,
    collector: &'a Arc<OutcomeCollector>,
    block: CellBlockReader,
    /// Actions not yet processed, including those of regions that were not found.
    actions_left: usize,
    /// The open run of Gets, if the last action was a Get.
    gets: Option<GetRun>,
    nonces: NonceSource,
    state: &'a CallerState,
    runs_on: RunsOn<'a>,
    /// Counts the bytes of the blocks read and holds the charge of the reply.
    context: ScannerContext,
    limits: ReplyLimits,
    /// What the actions on the present region have taken from the quotas.
    quota: OperationQuota,
    /// Bytes that the mutations begun so far add to the MemStores.
    written_bytes: u64,
    /// The first batch that would have to wait, and all batches after it: they may write the same
    /// rows.
    waiting: Vec<DeferredBatch>,
}

impl MultiRun<'_> {
    fn region_action(&mut self, at: usize, action: &RegionAction, condition: Option<&pb::Condition>) {
        let found = self.server.region(&action.region).and_then(|region| {
            let caller = &self.collector.caller;
            let quota = check_quota(self.server, caller, &region, (action, condition.is_some()))?;
            Ok((region, quota))
        });
        let region = match found {
            Ok((region, quota)) => {
                self.limits.limit_by_quota(quota.reply_bytes_max());
                self.quota = quota;
                region
            }
            Err(error) => {
                action.actions.iter().for_each(|action| self.skip(action));
                return self.collector.fail_region(at, error);
            }
        };
        let blocks_before = self.context.block_size;
        if condition.is_some() || action.atomic {
            self.end_gets();
            self.run_atomic(at, &region, action, condition);
        } else {
            self.run_separately(at, &region, action);
        }
        self.quota.add_block_bytes(self.context.block_size - blocks_before);
        // The mutations may not have ended, but their cost is known.
        self.quota = OperationQuota::NONE;
    }

    fn count_written(&mut self, bytes: u64) {
        self.written_bytes += bytes;
        self.server.count_written(bytes);
    }

    fn skip(&mut self, action: &Action) {
        action.mutation().into_iter().for_each(|proto| mutation::skip(proto, &mut self.block));
    }

    fn run_atomic(
        &mut self,
        at: usize,
        region: &Arc<Region>,
        action: &RegionAction,
        proto: Option<&pb::Condition>,
    ) {
        // All cells are taken from the block before anything else is checked.
        let mutations = self.mutations(action, region.cell_bytes_max());
        if let Some(error) = self.too_large() {
            return self.collector.fail_region(at, error);
        }
        let parsed = proto.map(condition::read).transpose().and_then(|condition| {
            let mutations = mutations?;
            mutations.iter().try_for_each(|mutation| self.server.check_space(region, mutation.kind))?;
            self.server.check_memstore_limit(region)?;
            check_rows(condition.as_ref(), &mutations)?;
            Ok((condition, mutations))
        });
        let (condition, mutations) = match parsed {
            Ok(parsed) => parsed,
            Err(error) => return self.collector.fail_region(at, error),
        };
        self.count_written(mutations.iter().map(memstore::bytes_of).sum());
        mutations.iter().for_each(|mutation| self.quota.add_mutation(&mutation.cells));
        let is_delta = |m: &Mutation| matches!(m.kind, MutationKind::Increment | MutationKind::Append);
        if condition.is_some() || mutations.iter().any(is_delta) {
            self.quota.keep_read_estimate();
        }
        let collector = self.collector.start();
        let done = Box::new(move |outcome: Result<CheckAndMutateResult>| {
            match outcome {
                Ok(mut result) => {
                    collector.count_grown(result.grown_bytes);
                    collector.keep_charge(result.charge.take());
                    collector.set_whole(at, result);
                }
                Err(error) => collector.fail_region(at, error),
            }
            collector.end();
        });
        let waits = self.runs_on.row_lock_waiter();
        match condition {
            Some(condition) => region.check_and_mutate(condition, mutations, self.nonces, waits, done),
            None => region.mutate_rows(mutations, Vec::new(), self.nonces, waits, done),
        }
    }

    /// Converts the mutations of a region action that may contain nothing else. Takes the cells of
    /// all of them from the block, even after an error. `max` is the maximum size of a cell.
    fn mutations(&mut self, action: &RegionAction, max: usize) -> Result<Vec<Mutation>> {
        let read: Vec<_> = action
            .actions
            .iter()
            .map(|action| match action.mutation() {
                Some(proto) => {
                    let read = mutation::read(proto, &mut self.block, max);
                    read.map(|mutation| self.server.with_reply_budget(mutation))
                }
                None => Err(HBaseError::do_not_retry("Atomic put and/or delete only, not a Get")),
            })
            .collect();
        read.into_iter().collect()
    }

    fn run_separately(&mut self, at: usize, region: &Arc<Region>, region_action: &RegionAction) {
        let busy = self.server.check_memstore_limit(region);
        let mut allowed = Allowed { batch: self.check_batch(region, &region_action.actions), busy };
        let mut batch = Batch::default();
        let mut reader = GetReader::new(self.server, region, Wait::Allowed);
        for (slot, action) in region_action.actions.iter().enumerate() {
            if matches!(action.kind, ActionKind::Mutation(_) | ActionKind::Service(_)) {
                self.end_gets();
            }
            if let Some(error) = self.too_large() {
                self.skip(action);
                self.collector.set_too_large(at, slot, error);
            } else {
                match &action.kind {
                    ActionKind::Mutation(proto) => {
                        self.mutation(at, slot, region, proto, &allowed, &mut batch)
                    }
                    ActionKind::Service(call) => self.service(at, slot, region, call),
                    ActionKind::Get { row, kind } => {
                        let upcoming =
                            rows_of_kind(region_action.actions.get(slot..).unwrap_or_default(), *kind);
                        let outcome = self.get((at, slot), (region, &mut reader), row, *kind, upcoming);
                        self.collector.set(at, slot, outcome.unwrap_or_else(ActionOutcome::Failed));
                    }
                    ActionKind::Nothing => {
                        let error = HBaseError::io("Unexpected Action type");
                        self.collector.set(at, slot, ActionOutcome::Failed(error));
                    }
                }
            }
            if ends_batch(action) {
                let rest = region_action.actions.get(slot + 1..).unwrap_or_default();
                allowed.batch = self.check_batch(region, rest);
            }
            self.actions_left -= 1;
        }
        self.flush(at, region, &mut batch);
    }

    /// Checks what refuses the Puts and Deletes before the first Increment or Append together. In
    /// HBase they are one batch, which is checked before any of it is applied
    /// (`RSRpcServices.doBatchOp`).
    fn check_batch(&self, region: &Region, actions: &[Action]) -> Result<()> {
        check_batch_sizes(region, actions, &self.block)?;
        check_batch_space(self.server, region, actions)
    }

    fn mutation(
        &mut self,
        at: usize,
        slot: usize,
        region: &Arc<Region>,
        proto: &pb::MutationProto,
        allowed: &Allowed,
        batch: &mut Batch,
    ) {
        let read = mutation::read(proto, &mut self.block, region.cell_bytes_max());
        read.iter().for_each(|mutation| self.quota.add_mutation(&mutation.cells));
        let checked = allowed.check(self.server, region, proto).and(read).and_then(|mutation| {
            allowed.busy.clone()?;
            Ok(mutation)
        });
        match checked {
            Err(error) => self.collector.set(at, slot, ActionOutcome::Failed(error)),
            Ok(mutation) if matches!(mutation.kind, MutationKind::Put | MutationKind::Delete) => {
                batch.bytes += memstore::bytes_of(&mutation);
                batch.slots.push(slot);
                batch.mutations.push(mutation);
                if batch.slots.len() >= BATCH_MUTATIONS_MAX || batch.bytes >= BATCH_BYTES_MAX {
                    self.flush(at, region, batch);
                }
            }
            Ok(mutation) => {
                // The mutations before it in the request must happen before it.
                self.flush(at, region, batch);
                self.quota.keep_read_estimate();
                self.count_written(memstore::bytes_of(&mutation));
                let collector = self.collector.start();
                let done = Box::new(move |outcome: Result<MutationResult>| {
                    let cells = outcome.map(|result| {
                        collector.count_grown(result.grown_bytes);
                        collector.keep_charge(result.charge);
                        ActionOutcome::Cells(result.cells.unwrap_or_default())
                    });
                    collector.set(at, slot, cells.unwrap_or_else(ActionOutcome::Failed));
                    collector.end();
                });
                let mutation = self.server.with_reply_budget(mutation);
                region.mutate(mutation, self.nonces, self.runs_on.row_lock_waiter(), done);
            }
        }
    }

    fn flush(&mut self, at: usize, region: &Arc<Region>, batch: &mut Batch) {
        let Batch { slots, mutations, bytes } = std::mem::take(batch);
        if slots.is_empty() {
            return;
        }
        cpu_slot::yield_if_due();
        self.count_written(bytes);
        let collector = self.collector.start();
        let timed = BatchTime::start(region, &mutations);
        let done = Box::new(move |outcomes: Vec<Result<MutationResult>>| {
            timed.end();
            for (slot, outcome) in slots.into_iter().zip(outcomes) {
                collector.set(
                    at,
                    slot,
                    outcome.map_or_else(ActionOutcome::Failed, |_| ActionOutcome::Cells(CellBuffer::new())),
                );
            }
            collector.end();
        });
        let batch = DeferredBatch { region: Arc::clone(region), mutations, done };
        if self.waiting.is_empty() {
            let DeferredBatch { region, mutations, done } = batch;
            let made = self.runs_on.write_batch(&region, mutations, done);
            let TryWriteResult::WouldWait((mutations, done)) = made else { return };
            self.waiting.push(DeferredBatch { region, mutations, done });
        } else {
            self.waiting.push(batch);
        }
    }

    /// Reads a row and appends its cells to those of the open run of Gets.
    fn get<'r>(
        &mut self,
        (at, slot): (usize, usize),
        (region, reader): (&Region, &mut GetReader<'_>),
        row: &Bytes,
        kind: usize,
        upcoming: impl Iterator<Item = &'r [u8]> + Clone,
    ) -> Result<ActionOutcome> {
        if self.context.slice.is_abandoned() {
            return Err(self.context.slice.error().into_failure());
        }
        let get = self.kinds.get(kind).ok_or_else(no_such_kind)?;
        let caller = &self.collector.caller;
        if caller.codec.is_none() {
            self.end_gets();
        }
        let gets = self.gets.get_or_insert_with(|| GetRun {
            first: (at, slot),
            count: 0,
            cells: self.server.cells_for(caller),
        });
        let bytes_before = gets.cells.encoded_len();
        let to = (&mut gets.cells, &mut self.context, &mut self.limits);
        let (began_at, is_stale) = (clock::monotonic(), reader.is_stale());
        let read = append_row(reader, (get, kind), row, upcoming, to);
        let time = clock::since(began_at);
        region.operation_times().record(Operation::Get, time);
        self.server.user_times().record_batch(caller.user, Operation::Get, time, 1);
        let count = match read.map_err(TryError::into_failure)? {
            RowRead::Exists(exists) => return Ok(ActionOutcome::Exists { exists, is_stale }),
            RowRead::Cells(count) => count,
        };
        self.quota.add_result(count, gets.cells.encoded_len() - bytes_before);
        if gets.count == 0 {
            gets.first = (at, slot);
            if caller.codec.is_some() {
                gets.cells.reserve_times(self.actions_left - 1, GETS_BYTES_RESERVED_MAX);
            }
        }
        gets.count += 1;
        Ok(ActionOutcome::Rows { count, cells: CellBuffer::new(), is_stale })
    }

    /// Closes the open run of Gets: hands all its cells to its first Get.
    fn end_gets(&mut self) {
        if let Some(GetRun { first: (at, slot), count: 1.., cells }) = self.gets.take() {
            self.collector.set_cells(at, slot, cells);
        }
    }

    fn service(&mut self, at: usize, slot: usize, region: &Arc<Region>, call: &ServiceCall) {
        let collector = self.collector.start();
        let value = PendingReply::to_function(move |value: Result<Reply<pb::NameBytesPair>>| {
            let outcome =
                value.map_or_else(ActionOutcome::Failed, |value| ActionOutcome::Service(value.message));
            collector.set(at, slot, outcome);
            collector.end();
        });
        let caller = ServiceCaller { nonce_owner: self.nonces.owner, state: self.state };
        endpoint::call(self.server, region, call, caller, value);
    }

    /// Returns the error for the remaining actions if the reply is full.
    fn too_large(&mut self) -> Option<HBaseError> {
        self.limits.reply_bytes = self.collector.reply_bytes.load(Ordering::Relaxed);
        self.limits.too_large(&self.collector.caller, &self.context)
    }
}

/// What the state of a region, the quota of its table and the sizes of cells allow.
struct Allowed {
    /// The error if there is no memory for writes.
    busy: Result<()>,
    /// The error if the quota of space, or the size of a cell, does not allow the Puts and Deletes
    /// up to the next Increment or Append.
    batch: Result<()>,
}

impl Allowed {
    /// Checks what may refuse a valid mutation, except the memory for writes.
    fn check(&self, server: &RegionServer, region: &Region, proto: &pb::MutationProto) -> Result<()> {
        match mutation::kind(proto)? {
            MutationKind::Put | MutationKind::Delete => self.batch.clone(),
            kind => server.check_space(region, kind),
        }
    }
}

/// Checks the Puts and Deletes before the first Increment or Append against the quota of space of
/// their table.
fn check_batch_space(server: &RegionServer, region: &Region, actions: &[Action]) -> Result<()> {
    if !server.space_quotas().is_some_and(SpaceQuotas::is_enforcing) {
        return Ok(());
    }
    let mut kinds = batch_of(actions).map(|mutation| match mutation.mutate_type() {
        MutationType::Delete => MutationKind::Delete,
        _ => MutationKind::Put,
    });
    kinds.try_for_each(|kind| server.check_space(region, kind))
}

/// Checks the sizes of the cells of the Puts and Deletes before the first Increment or Append. The
/// cells are read twice only if the request is long enough for one of them to be too large.
fn check_batch_sizes(region: &Region, actions: &[Action], block: &CellBlockReader) -> Result<()> {
    let max = region.cell_bytes_max();
    if !batch_of(actions).any(|proto| mutation::may_exceed(proto, block, max)) {
        return Ok(());
    }
    let mut block = block.clone();
    batch_of(actions).try_for_each(|proto| mutation::check_sizes(proto, &mut block, max))
}

/// Returns the Puts and Deletes before the first Increment or Append.
fn batch_of(actions: &[Action]) -> impl Iterator<Item = &pb::MutationProto> {
    actions.iter().take_while(|action| !ends_batch(action)).filter_map(Action::mutation)
}

/// Returns true for an Increment or Append, before which HBase applies the Puts and Deletes that
/// it has collected (`RSRpcServices.doNonAtomicRegionMutation`).
fn ends_batch(action: &Action) -> bool {
    action.mutation().is_some_and(|mutation| {
        matches!(mutation.mutate_type(), MutationType::Increment | MutationType::Append)
    })
}

fn check_rows(condition: Option<&Condition>, mutations: &[Mutation]) -> Result<()> {
    if mutations.is_empty() {
        return Err(HBaseError::do_not_retry("no mutations to apply"));
    }
    let Some(condition) = condition else { return Ok(()) };
    mutations.iter().try_for_each(|mutation| check_same_row(condition, mutation))
}

/// A run of Gets that were read in turn, on one region or several.
struct GetRun {
    /// Region action and slot of the first.
    first: (usize, usize),
    /// The number of Gets.
    count: usize,
    /// The cells of all of them.
    cells: CellBuffer,
}

/// Times a batch of Puts and Deletes on a region.
struct BatchTime {
    of_table: Arc<OperationTimes>,
    began_at: Instant,
    has_puts: bool,
    has_deletes: bool,
}

impl BatchTime {
    fn start(region: &Region, mutations: &[Mutation]) -> Self {
        let has = |kind| mutations.iter().any(|mutation| mutation.kind == kind);
        Self {
            of_table: Arc::clone(region.operation_times()),
            began_at: clock::monotonic(),
            has_puts: has(MutationKind::Put),
            has_deletes: has(MutationKind::Delete),
        }
    }

    fn end(&self) {
        let time = clock::since(self.began_at);
        if self.has_puts {
            self.of_table.record(Operation::PutBatch, time);
        }
        if self.has_deletes {
            self.of_table.record(Operation::DeleteBatch, time);
        }
    }
}

/// Puts and Deletes that go to the region as one batch.
#[derive(Default)]
struct Batch {
    slots: Vec<usize>,
    mutations: Vec<Mutation>,
    /// Bytes that they add to the MemStore.
    bytes: u64,
}

/// The maximum number of mutations in a batch, and of their bytes. A batch is one log entry, and
/// delays other writes to the region.
const BATCH_MUTATIONS_MAX: usize = 1000;
const BATCH_BYTES_MAX: u64 = 1 << 20;
