//! Mutate: one write, with or without a condition.

use std::sync::Arc;

use evenkeel_common::Result;
use evenkeel_protocol::pb;
use evenkeel_region::operations::{CheckAndMutateResult, Condition, Mutation, MutationKind, MutationResult};
use evenkeel_region::region::{Operation, Region};
use evenkeel_rpc::CellBlockReader;

use crate::convert::{condition, mutation};
use crate::limits::memstore;
use crate::quotas::{OperationQuota, Request};
use crate::requests::caller::{Caller, Reply, place_cells};
use crate::requests::inline::RunsOn;
use crate::requests::pending_reply::PendingReply;
use crate::requests::request_target::RequestTarget;
use crate::{RegionServer, RequestKind};

/// The region of a write, if it is online here, and the thread that the write runs on.
pub struct Target<'a> {
    /// The region that the request names.
    pub region: Result<Arc<Region>>,
    /// The kind of thread that the write runs on.
    pub runs_on: RunsOn<'a>,
}

/// A Mutate request in the form that the region takes.
struct Parsed {
    region: Arc<Region>,
    mutation: Mutation,
    condition: Option<Condition>,
    quota: OperationQuota,
}

/// Returns true if a mutation reads the row before it writes.
pub fn is_delta(mutation: &pb::MutationProto) -> bool {
    use pb::mutation_proto::MutationType;
    matches!(mutation.mutate_type(), MutationType::Increment | MutationType::Append)
}

/// Returns true if a request reads the row before it writes.
pub fn reads_first(request: &pb::MutateRequest) -> bool {
    request.condition.is_some() || is_delta(&request.mutation)
}

/// Returns true if a write may compute for long before it writes.
pub fn may_compute_for_long(request: &pb::MutateRequest) -> bool {
    request.condition.as_ref().is_some_and(|condition| condition.filter.is_some())
}

/// Starts a write to the region that the request names. `reply` is sent when the write is durable.
/// A write that [reads first](reads_first) may block on any thread.
pub fn mutate(
    server: &RegionServer,
    Target { region, runs_on }: Target<'_>,
    request: &pb::MutateRequest,
    mut block: CellBlockReader,
    caller: Caller,
    mut reply: PendingReply<pb::MutateResponse>,
) {
    server.counters.count(RequestKind::Mutate);
    let nonces = caller.nonce_source(request.nonce_group);
    let parsed = parse(server, region, request, &mut block, &caller);
    let Parsed { region, mutation, condition, quota } = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            reply.hold_for(server.hold_for_error(&error), &server.background);
            return reply.send(Err(error));
        }
    };
    let kind = mutation.kind;
    let is_conditional = condition.is_some();
    reply.set_subject(RequestTarget::new(
        &region,
        (operation(kind, is_conditional), is_conditional),
        &mutation.row,
        server.user_times().of(caller.user),
    ));
    reply.hold_for(server.begin_write(&region, memstore::bytes_of(&mutation)), &server.background);
    match (condition, kind) {
        (None, MutationKind::Put | MutationKind::Delete) => {
            let done = Box::new(move |outcome: Result<_>| {
                drop(quota);
                reply.send(outcome.map(|result| written(kind, result, &caller)));
            });
            runs_on.write(&region, mutation, done);
        }
        (None, MutationKind::Increment | MutationKind::Append) => {
            let background = Arc::clone(&server.background);
            let done = Box::new(move |outcome: Result<MutationResult>| {
                let grown_bytes = outcome.as_ref().map_or(0, |result| result.grown_bytes);
                reply.extend_hold(grown_bytes, &background);
                drop(quota);
                reply.send(outcome.map(|result| written(kind, result, &caller)));
            });
            region.mutate(mutation, nonces, runs_on.row_lock_waiter(), done);
        }
        (Some(condition), _) => {
            let background = Arc::clone(&server.background);
            let done = Box::new(move |outcome: Result<CheckAndMutateResult>| {
                let grown_bytes = outcome.as_ref().map_or(0, |result| result.grown_bytes);
                reply.extend_hold(grown_bytes, &background);
                drop(quota);
                reply.send(outcome.map(|result| checked(result, &caller)));
            });
            region.check_and_mutate(condition, vec![mutation], nonces, runs_on.row_lock_waiter(), done);
        }
    }
}

/// Returns the operation under which the time of a write is recorded.
fn operation(kind: MutationKind, is_conditional: bool) -> Operation {
    match kind {
        MutationKind::Put if is_conditional => Operation::CheckAndPut,
        MutationKind::Put => Operation::Put,
        MutationKind::Delete if is_conditional => Operation::CheckAndDelete,
        MutationKind::Delete => Operation::Delete,
        MutationKind::Increment => Operation::Increment,
        MutationKind::Append => Operation::Append,
    }
}

fn parse(
    server: &RegionServer,
    region: Result<Arc<Region>>,
    request: &pb::MutateRequest,
    block: &mut CellBlockReader,
    caller: &Caller,
) -> Result<Parsed> {
    let region = region?;
    let is_atomic = reads_first(request);
    let kind = if is_atomic { Request::ATOMIC_WRITE } else { Request::WRITE };
    let mut quota = server.check_quota(caller, &region, kind)?;
    if is_atomic {
        quota.keep_read_estimate();
    }
    server.check_memstore_limit(&region)?;
    let condition = request.condition.as_ref().map(condition::read).transpose()?;
    let mutation = mutation::read(&request.mutation, block, region.cell_bytes_max())?;
    server.check_space(&region, mutation.kind)?;
    let mutation = server.with_reply_budget(mutation);
    quota.add_mutation(&mutation.cells);
    condition.iter().try_for_each(|condition| check_same_row(condition, &mutation))?;
    Ok(Parsed { region, mutation, condition, quota })
}

/// Checks that the row of a conditional write is the row of its condition.
///
/// # Errors
/// `DoNotRetryIOException` if it is not.
pub fn check_same_row(condition: &Condition, mutation: &Mutation) -> Result<()> {
    if condition.row == mutation.row {
        return Ok(());
    }
    Err(evenkeel_common::HBaseError::do_not_retry(format!(
        "The row of the action ({:?}) <{}> doesn't match the original one <{}>",
        mutation.kind,
        mutation.row.escape_ascii(),
        condition.row.escape_ascii()
    )))
}

fn written(kind: MutationKind, result: MutationResult, caller: &Caller) -> Reply<pb::MutateResponse> {
    if matches!(kind, MutationKind::Put | MutationKind::Delete) {
        return Reply::plain(pb::MutateResponse { processed: Some(true), ..pb::MutateResponse::default() });
    }
    let (mut block, result_charge) = (caller.block(), result.charge);
    let result = place_cells(result.cells.unwrap_or_default(), block.as_mut(), false);
    Reply {
        message: pb::MutateResponse { result: Some(result), ..pb::MutateResponse::default() },
        block,
        charge: result_charge,
    }
}

fn checked(result: CheckAndMutateResult, caller: &Caller) -> Reply<pb::MutateResponse> {
    let mut block = caller.block();
    let cells = result.cells.map(|cells| place_cells(cells, block.as_mut(), false));
    let message = pb::MutateResponse { result: cells, processed: Some(result.success), metrics: None };
    Reply { message, block, charge: result.charge }
}
