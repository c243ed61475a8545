//! Multi: many actions on many regions in one call.
//!
//! Actions are taken in the order of the request, because that is the order of their cells in the
//! block. Each ends in a *slot*: at once (a Get, an action that cannot be), or when the region's
//! write completes on another thread. The slot that is filled last sends the response, which lists
//! results in the order of the request and puts their cells into one block in the same order.
//!
//! | region action | how |
//! |---|---|
//! | with a condition | checkAndMutate: one outcome; results inside the message |
//! | atomic | all mutations or none: one outcome; results inside the message |
//! | neither | each action by itself; runs of Puts and Deletes together, as one batch |
//!
//! The cells of Gets with nothing between them that may have cells of its own lie in one buffer
//! ([`Gets`]), in their order.
//!
//! A region that cannot be had fails its own actions only; their cells are skipped.
//!
//! # Bounds
//! What a request becomes was counted when it was decoded ([`crate::convert::multi`]). What the
//! answer grows to is counted as it grows: cells that were read, in steps taken from the room for
//! replies, and what actions left to be told (exceptions, cells of Increments and Appends, values
//! of services). When it has come to [`RegionServer::result_bytes_max`], or there is no room, the
//! rest of the actions is not tried: each gets the same MultiActionResultTooLarge, which tells the
//! client to ask again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_common::length;
use evenkeel_common::{CellBuffer, ErrorKind, HBaseError, Result, TryError, TryResult, Wait, quoted, turns};
use evenkeel_protocol::pb;
use evenkeel_region::ops::{CheckAndMutateResult, Condition, Mutation, MutationKind, MutationResult};
use evenkeel_region::region::nonce::NonceSource;
use evenkeel_region::region::{self, Region};
use evenkeel_region::scanner::ScannerContext;
use evenkeel_rpc::{CallClass, CellBlockReader, CellBlockWriter, Charge, Executor};
use parking_lot::Mutex;
use prost::Message;

use crate::convert::multi::{Action, Entries, MultiRequest, MultiResponse, RegionAction, What};
use crate::convert::{condition, mutation, result};
use crate::coprocessor::endpoint;
use crate::limits::memstore;
use crate::requests::caller::{Caller, Reply, place_cells};
use crate::requests::get::GetReader;
use crate::requests::inline::{self, RunsOn};
use crate::requests::mutate::check_same_row;
use crate::requests::pending_reply::PendingReply;
use crate::{RegionServer, load};

/// Room that is made at once for the rows of a request, of which the first tells how large they
/// are.
const GETS_BYTES_RESERVED_MAX: usize = 1 << 20;

/// What a request does, as far as that says where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultiKind {
    /// It reads rows, or does nothing.
    Reads,
    /// It writes rows, without a look at them.
    Writes,
    /// It reads before it writes, makes writes together, or has both reads and writes.
    ReadsFirst,
    /// It calls coprocessor services, which may take long.
    Services,
}

/// What a request does.
pub fn kind(request: &MultiRequest) -> MultiKind {
    let (mut reads, mut writes, mut reads_first) = (false, false, request.condition.is_some());
    for of in &request.region_actions {
        reads_first |= of.atomic || of.condition.is_some();
        for action in &of.actions {
            match &action.what {
                What::Service(_) => return MultiKind::Services,
                What::Get { .. } => reads = true,
                What::Mutation(mutation) => {
                    writes = true;
                    reads_first |= crate::requests::mutate::is_delta(mutation);
                }
                What::Nothing => {}
            }
        }
    }
    match () {
        () if reads_first || (reads && writes) => MultiKind::ReadsFirst,
        () if writes => MultiKind::Writes,
        () => MultiKind::Reads,
    }
}

/// Reads the rows of a request of [`MultiKind::Reads`]. `slice` is how long that may take here;
/// `None` for no limit.
///
/// The [`Charge`] is the room for replies that the cells take. It must be kept until the reply is
/// sent, or replies that are being sent are not counted.
///
/// # Errors
/// `RegionServerStoppedException`; `DoNotRetryIOException` for a request of more actions than are
/// allowed. `WouldWait` and `TimeSliceOver`: the request has to be read again elsewhere. An action
/// that fails has its error in the reply.
pub fn read(
    server: &RegionServer,
    request: &MultiRequest,
    caller: &Caller,
    wait: Wait,
    slice: Option<Duration>,
) -> TryResult<(Reply<MultiResponse>, Charge)> {
    let checked = server.check_open().and_then(|()| check_size(server, request));
    let actions_left = request.region_actions.iter().map(|of| of.actions.len()).sum();
    let mut rows = Rows {
        limits: ReplyLimits::new(server, caller),
        cells: server.cells_for(caller),
        block: caller.block(),
        caller,
        context: ScannerContext::within(slice),
        actions_left,
    };
    let results = checked.map_err(TryError::from).and_then(|()| {
        let actions = request.region_actions.iter();
        actions.map(|of| rows.of_region(server, of, &request.kinds, wait)).collect::<TryResult<_>>()
    });
    if !results.as_ref().is_err_and(TryError::is_unfinished) {
        load::count(&server.counters.multis);
    }
    let message = MultiResponse {
        region_action_result: results?,
        processed: None,
        region_statistics: Some(pb::MultiRegionLoadStats::default()),
    };
    let Rows { cells, mut block, limits, .. } = rows;
    if let Some(block) = &mut block {
        block.push_buffer_owned(cells);
    }
    Ok((Reply { message, block }, limits.room))
}

/// The rows of a request that only reads.
struct Rows<'a> {
    limits: ReplyLimits,
    /// The cells of all rows so far, one row behind the other; without a codec, of none.
    cells: CellBuffer,
    block: Option<CellBlockWriter>,
    caller: &'a Caller,
    /// How long was read, and the bytes of the blocks that were looked into.
    context: ScannerContext,
    /// Actions not yet looked at; those of regions that cannot be had, too.
    actions_left: usize,
}

impl Rows<'_> {
    /// Reads the rows of a region action; a pb::RegionActionResult.
    fn of_region(
        &mut self,
        server: &RegionServer,
        of: &RegionAction,
        kinds: &[pb::Get],
        wait: Wait,
    ) -> TryResult<Bytes> {
        let region = match server.region(&of.region) {
            Ok(region) => region,
            Err(error) => {
                self.actions_left -= of.actions.len();
                self.limits.told_bytes += result::exception_bytes(&error);
                let exception = Some(result::exception(&error));
                let failed = pb::RegionActionResult { exception, ..Default::default() };
                return Ok(failed.encode_to_vec().into());
            }
        };
        let mut reader = GetReader::new(server, &region, wait);
        let mut entries = Entries::with_capacity(of.actions.len());
        for (slot, action) in of.actions.iter().enumerate() {
            let index = action.index.unwrap_or(0);
            let outcome = match (self.limits.too_large(self.caller, &self.context), &action.what) {
                (Some(error), _) => Err(error.into()),
                (None, What::Get { row, kind }) => {
                    let upcoming = rows_of_kind(&of.actions[slot..], *kind);
                    self.row(&mut reader, (&kinds[*kind], *kind), row, upcoming)
                }
                (None, _) => Err(HBaseError::io("Unexpected Action type").into()),
            };
            let outcome = match outcome {
                Ok(outcome) => outcome,
                Err(TryError::Failed(error)) => Outcome::Failed(error),
                Err(unfinished) => {
                    reader.forget();
                    return Err(unfinished);
                }
            };
            self.actions_left -= 1;
            self.limits.told_bytes += outcome.told_bytes();
            match outcome {
                Outcome::Rows { count, .. } if self.block.is_some() => entries.push_counted(index, count),
                outcome => add_entry(&mut entries, index, Some(outcome), None),
            }
        }
        Ok(entries.finish())
    }

    /// Reads a row to the end of those before it.
    fn row<'r>(
        &mut self,
        reader: &mut GetReader<'_>,
        (get, kind): (&pb::Get, usize),
        row: &Bytes,
        upcoming: impl Iterator<Item = &'r [u8]> + Clone,
    ) -> TryResult<Outcome> {
        let (cells_before, bytes_before) = (self.cells.len(), self.cells.encoded_len());
        let read = reader.read(kind, get, row, upcoming, &mut self.cells, &mut self.context);
        let count = self.cells.len() - cells_before;
        let bytes = self.cells.encoded_len() - bytes_before;
        if read.is_err() || get.existence_only() {
            self.cells.truncate(cells_before);
        }
        read?;
        if get.existence_only() {
            self.limits.add_cells(bytes as u64);
            return Ok(Outcome::Exists(count > 0));
        }
        let is_first_row = self.limits.result_bytes == 0;
        if !self.limits.add_cells(bytes as u64) {
            // The row would be copied into a reply that is refused.
            match cells_before {
                0 => self.cells = CellBuffer::new(),
                _ => self.cells.truncate(cells_before),
            }
            // A client that got rows asks for the rest at once. One that got none must back off.
            return Err(match self.limits.too_large(self.caller, &self.context) {
                Some(error) if !is_first_row => error.into(),
                _ => no_room_for(bytes).into(),
            });
        }
        let is_first = cells_before == 0 && self.actions_left > 1;
        match self.block {
            // The cells lie beside the message, with those of all other rows.
            Some(_) => {
                if is_first {
                    self.cells.reserve_alike(self.actions_left - 1, GETS_BYTES_RESERVED_MAX);
                }
                Ok(Outcome::Rows { count, cells: CellBuffer::new() })
            }
            None => Ok(Outcome::Rows { count, cells: std::mem::take(&mut self.cells) }),
        }
    }
}

/// The error of a row that finds no room at all, at which clients back off.
fn no_room_for(bytes: usize) -> HBaseError {
    let message =
        format!("a row of {bytes} bytes finds no room beside replies that clients have not taken yet");
    HBaseError::new(ErrorKind::CallQueueTooBig, message)
}

/// How large a reply may become, and how large it is.
struct ReplyLimits {
    /// Bytes of cells after which the rest is not read.
    result_bytes_max: u64,
    /// As many bytes of blocks may be looked into as the settings say: a reply does not hold them.
    block_bytes_max: u64,
    /// Bytes of cells read so far.
    result_bytes: u64,
    /// What actions have left to be told so far.
    told_bytes: u64,
    /// The room for replies that the cells take.
    room: Charge,
    /// There was none for more.
    has_no_room: bool,
}

impl ReplyLimits {
    fn new(server: &RegionServer, caller: &Caller) -> Self {
        Self {
            result_bytes_max: match caller.has_version(1, 2) {
                true => server.result_bytes_max(),
                false => server.result_bytes_max_uncut(),
            },
            block_bytes_max: server.config.result_bytes_max,
            result_bytes: 0,
            told_bytes: 0,
            room: Charge::none(Arc::clone(&server.unsent)),
            has_no_room: false,
        }
    }

    /// Counts cells that were read; false if there is no room for them. Small replies touch no
    /// count that others share.
    fn add_cells(&mut self, bytes: u64) -> bool {
        self.result_bytes += bytes;
        if self.result_bytes > self.room.units() + ROOM_STEP {
            self.has_no_room |= !self.room.take(self.result_bytes - self.room.units());
        }
        !self.has_no_room
    }

    /// The error of actions for which the reply has no room. Clients that do not know it get as
    /// much as there is room for.
    fn too_large(&self, caller: &Caller, context: &ScannerContext) -> Option<HBaseError> {
        let is_full = self.has_no_room
            || self.result_bytes > self.result_bytes_max
            || self.told_bytes > self.result_bytes_max
            || (caller.has_version(1, 2) && context.block_size + self.told_bytes > self.block_bytes_max);
        is_full.then(|| {
            let message = format!(
                "Max size exceeded CellSize: {} BlockSize: {}",
                self.result_bytes, context.block_size
            );
            HBaseError::new(ErrorKind::MultiActionResultTooLarge, message)
        })
    }
}

/// Starts all actions of a request; `done` gets the outcome when the last has ended. What reads
/// before it writes waits wherever it runs.
pub fn multi(
    server: &Arc<RegionServer>,
    request: &MultiRequest,
    block: CellBlockReader,
    caller: Caller,
    reply: PendingReply<MultiResponse>,
    runs_on: RunsOn<'_>,
) {
    let count = || load::count(&server.counters.multis);
    if let Err(error) = server.check_open().and_then(|()| check_size(server, request)) {
        count();
        return reply.send(Err(error));
    }
    let global = request.condition.as_ref();
    // A condition for the whole request is an old client's checkAndMutate: it has one region action
    // that counts.
    let actions = match global {
        Some(_) => request.region_actions.get(..1).unwrap_or_default(),
        None => &request.region_actions[..],
    };
    let gathering = Gathering::new(actions, caller, global.is_some(), reply, runs_on.handlers());
    let mut run = MultiRun {
        runs_on,
        context: ScannerContext::unlimited(),
        kinds: &request.kinds,
        actions_left: actions.iter().map(|of| of.actions.len()).sum(),
        gets: None,
        server,
        gathering: &gathering,
        block,
        nonces: caller.nonce_source(request.nonce_group),
        limits: ReplyLimits::new(server, &caller),
        written_bytes: 0,
    };
    look_ahead(server, actions);
    for (at, action) in actions.iter().enumerate() {
        let condition = global.or(action.condition.as_ref());
        run.region_action(at, action, condition);
    }
    count();
    run.end_gets();
    // Now that all that it writes is counted.
    gathering.answer_after(server, hold_for(server, actions, run.written_bytes));
    gathering.end();
}

/// Has the places of rows that will be written near the processor.
fn look_ahead(server: &RegionServer, actions: &[RegionAction]) {
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

/// The rows of the Gets of a kind that some actions begin with.
fn rows_of_kind(actions: &[Action], wanted: usize) -> impl Iterator<Item = &[u8]> + Clone {
    actions.iter().map_while(move |action| match &action.what {
        What::Get { row, kind } if *kind == wanted => Some(&row[..]),
        _ => None,
    })
}

/// How long to hold the reply to a request that writes `bytes`. Replies to refused requests are
/// held, too.
fn hold_for(server: &RegionServer, actions: &[RegionAction], bytes: u64) -> Duration {
    if !server.may_throttle() {
        return Duration::ZERO;
    }
    let writes = |action: &&RegionAction| action.actions.iter().any(|action| action.mutation().is_some());
    let regions = actions.iter().filter(writes).filter_map(|action| server.region(&action.region).ok());
    server.hold_for(regions.collect::<Vec<_>>().iter().map(|region| &**region), bytes)
}

fn check_size(server: &RegionServer, request: &MultiRequest) -> Result<()> {
    let actions: usize = request.region_actions.iter().map(|of| of.actions.len()).sum();
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

/// One request while its actions are started.
struct MultiRun<'a> {
    /// The kinds of its Gets.
    kinds: &'a [pb::Get],
    server: &'a Arc<RegionServer>,
    gathering: &'a Arc<Gathering>,
    block: CellBlockReader,
    /// Actions not yet looked at; of regions that cannot be had, too.
    actions_left: usize,
    /// The Gets at hand, if the last action was one.
    gets: Option<Gets>,
    nonces: NonceSource,
    runs_on: RunsOn<'a>,
    /// The bytes of the blocks that it looked into.
    context: ScannerContext,
    limits: ReplyLimits,
    /// What the mutations begun so far add to MemStores.
    written_bytes: u64,
}

impl MultiRun<'_> {
    fn region_action(&mut self, at: usize, action: &RegionAction, condition: Option<&pb::Condition>) {
        let region = match self.server.region(&action.region) {
            Ok(region) => region,
            Err(error) => {
                action.actions.iter().for_each(|action| self.skip(action));
                return self.gathering.fail_region(at, error);
            }
        };
        if condition.is_some() || action.atomic {
            self.end_gets();
            self.all_or_nothing(at, &region, action, condition);
        } else {
            self.one_by_one(at, &region, action);
        }
    }

    fn note_written(&mut self, bytes: u64) {
        self.written_bytes += bytes;
        self.server.note_written(bytes);
    }

    fn skip(&mut self, action: &Action) {
        action.mutation().into_iter().for_each(|proto| mutation::skip(proto, &mut self.block));
    }

    fn all_or_nothing(
        &mut self,
        at: usize,
        region: &Arc<Region>,
        action: &RegionAction,
        proto: Option<&pb::Condition>,
    ) {
        // All cells are taken before anything else is judged.
        let mutations = self.mutations(action);
        if let Some(error) = self.too_large() {
            return self.gathering.fail_region(at, error);
        }
        let parsed = proto.map(condition::read).transpose().and_then(|condition| {
            let mutations = mutations?;
            self.server.check_memstore_limit(region)?;
            check_rows(condition.as_ref(), &mutations)?;
            Ok((condition, mutations))
        });
        let (condition, mutations) = match parsed {
            Ok(parsed) => parsed,
            Err(error) => return self.gathering.fail_region(at, error),
        };
        self.note_written(mutations.iter().map(memstore::bytes_of).sum());
        let gathering = self.gathering.start();
        let done = Box::new(move |outcome: Result<CheckAndMutateResult>| {
            match outcome {
                Ok(result) => gathering.set_whole(at, result),
                Err(error) => gathering.fail_region(at, error),
            }
            gathering.end();
        });
        match condition {
            Some(condition) => region.check_and_mutate(condition, mutations, self.nonces, done),
            None => region.mutate_rows(mutations, Vec::new(), self.nonces, done),
        }
    }

    /// The mutations of a region action that knows nothing else. Takes the cells of all, also after
    /// an error.
    fn mutations(&mut self, action: &RegionAction) -> Result<Vec<Mutation>> {
        let max = self.server.config.cell_bytes_max;
        let read: Vec<_> = action
            .actions
            .iter()
            .map(|action| match action.mutation() {
                Some(proto) => mutation::read(proto, &mut self.block, max),
                None => Err(HBaseError::do_not_retry("Atomic put and/or delete only, not a Get")),
            })
            .collect();
        read.into_iter().collect()
    }

    fn one_by_one(&mut self, at: usize, region: &Arc<Region>, of_region: &RegionAction) {
        let busy = self.server.check_memstore_limit(region);
        let mut batch = Batch::default();
        let mut reader = GetReader::new(self.server, region, Wait::Allowed);
        for (slot, action) in of_region.actions.iter().enumerate() {
            if matches!(action.what, What::Mutation(_) | What::Service(_)) {
                self.end_gets();
            }
            if let Some(error) = self.too_large() {
                self.skip(action);
                self.gathering.set_too_large(at, slot, error);
            } else {
                match &action.what {
                    What::Mutation(proto) => self.mutation(at, slot, region, proto, &busy, &mut batch),
                    What::Service(call) => self.service(at, slot, region, call),
                    What::Get { row, kind } => {
                        let upcoming = rows_of_kind(&of_region.actions[slot..], *kind);
                        let outcome = self.get((at, slot), &mut reader, row, *kind, upcoming);
                        self.gathering.set(at, slot, outcome.unwrap_or_else(Outcome::Failed));
                    }
                    What::Nothing => {
                        let error = HBaseError::io("Unexpected Action type");
                        self.gathering.set(at, slot, Outcome::Failed(error));
                    }
                }
            }
            self.actions_left -= 1;
        }
        self.flush(at, region, &mut batch);
    }

    fn mutation(
        &mut self,
        at: usize,
        slot: usize,
        region: &Arc<Region>,
        proto: &pb::MutationProto,
        busy: &Result<()>,
        batch: &mut Batch,
    ) {
        let read = mutation::read(proto, &mut self.block, self.server.config.cell_bytes_max);
        match read.and_then(|mutation| busy.clone().map(|()| mutation)) {
            Err(error) => self.gathering.set(at, slot, Outcome::Failed(error)),
            Ok(mutation) if matches!(mutation.kind, MutationKind::Put | MutationKind::Delete) => {
                batch.bytes += memstore::bytes_of(&mutation);
                batch.slots.push(slot);
                batch.mutations.push(mutation);
                if batch.slots.len() >= BATCH_MUTATIONS_MAX || batch.bytes >= BATCH_BYTES_MAX {
                    self.flush(at, region, batch);
                }
            }
            Ok(mutation) => {
                // What came before it in the request happens before it.
                self.flush(at, region, batch);
                self.note_written(memstore::bytes_of(&mutation));
                let gathering = self.gathering.start();
                let done = Box::new(move |outcome: Result<MutationResult>| {
                    let cells = outcome.map(|result| Outcome::Cells(result.cells.unwrap_or_default()));
                    gathering.set(at, slot, cells.unwrap_or_else(Outcome::Failed));
                    gathering.end();
                });
                region.mutate(mutation, self.nonces, done);
            }
        }
    }

    fn flush(&mut self, at: usize, region: &Arc<Region>, batch: &mut Batch) {
        let Batch { slots, mutations, bytes } = std::mem::take(batch);
        if slots.is_empty() {
            return;
        }
        turns::pass();
        self.note_written(bytes);
        let gathering = self.gathering.start();
        let done = Box::new(move |outcomes: Vec<Result<MutationResult>>| {
            for (slot, outcome) in slots.into_iter().zip(outcomes) {
                gathering.set(
                    at,
                    slot,
                    outcome.map_or_else(Outcome::Failed, |_| Outcome::Cells(CellBuffer::new())),
                );
            }
            gathering.end();
        });
        self.runs_on.write_batch(region, mutations, done);
    }

    /// Reads a row to the end of those before it.
    fn get<'r>(
        &mut self,
        (at, slot): (usize, usize),
        reader: &mut GetReader<'_>,
        row: &Bytes,
        kind: usize,
        upcoming: impl Iterator<Item = &'r [u8]> + Clone,
    ) -> Result<Outcome> {
        let get = &self.kinds[kind];
        let caller = &self.gathering.caller;
        if caller.codec.is_none() {
            self.end_gets();
        }
        let gets = self.gets.get_or_insert_with(|| Gets {
            first: (at, slot),
            count: 0,
            cells: self.server.cells_for(caller),
        });
        let (cells_before, bytes_before) = (gets.cells.len(), gets.cells.encoded_len());
        let read = reader.read(kind, get, row, upcoming, &mut gets.cells, &mut self.context);
        let count = gets.cells.len() - cells_before;
        let bytes = gets.cells.encoded_len() - bytes_before;
        if read.is_err() || get.existence_only() {
            gets.cells.truncate(cells_before);
        }
        read.map_err(TryError::into_failure)?;
        self.limits.add_cells(bytes as u64);
        if get.existence_only() {
            return Ok(Outcome::Exists(count > 0));
        }
        if gets.count == 0 {
            gets.first = (at, slot);
            if caller.codec.is_some() {
                gets.cells.reserve_alike(self.actions_left - 1, GETS_BYTES_RESERVED_MAX);
            }
        }
        gets.count += 1;
        Ok(Outcome::Rows { count, cells: CellBuffer::new() })
    }

    /// Gives the first of the Gets at hand the cells of all.
    fn end_gets(&mut self) {
        if let Some(Gets { first: (at, slot), count: 1.., cells }) = self.gets.take() {
            self.gathering.set_cells(at, slot, cells);
        }
    }

    fn service(&mut self, at: usize, slot: usize, region: &Arc<Region>, call: &pb::CoprocessorServiceCall) {
        let gathering = self.gathering.start();
        let done = Box::new(move |value: Result<pb::NameBytesPair>| {
            gathering.set(at, slot, value.map_or_else(Outcome::Failed, Outcome::Service));
            gathering.end();
        });
        endpoint::call(self.server, region, call, self.nonces.owner, done);
    }

    /// The error of actions for which the reply has no room.
    fn too_large(&mut self) -> Option<HBaseError> {
        self.limits.told_bytes = self.gathering.told_bytes.load(Ordering::Relaxed);
        self.limits.too_large(&self.gathering.caller, &self.context)
    }
}

fn check_rows(condition: Option<&Condition>, mutations: &[Mutation]) -> Result<()> {
    if mutations.is_empty() {
        return Err(HBaseError::do_not_retry("no mutations to make together"));
    }
    let Some(condition) = condition else { return Ok(()) };
    mutations.iter().try_for_each(|mutation| check_same_row(condition, mutation))
}

/// Gets that were read one after the other, of one region or several.
struct Gets {
    /// Region action and slot of the first.
    first: (usize, usize),
    /// How many.
    count: usize,
    /// The cells of all.
    cells: CellBuffer,
}

/// Puts and Deletes that go to the region together.
#[derive(Default)]
struct Batch {
    slots: Vec<usize>,
    mutations: Vec<Mutation>,
    /// What they add to the MemStore.
    bytes: u64,
}

/// Mutations of a batch, and their bytes, after which another begins: a batch is one entry of the
/// log, and other writes to the region wait while it is made.
const BATCH_MUTATIONS_MAX: usize = 1000;
const BATCH_BYTES_MAX: u64 = 1 << 20;

/// What a reply grows by before it takes more room.
const ROOM_STEP: u64 = 64 << 10;

/// How an action ended.
enum Outcome {
    Cells(CellBuffer),
    /// A Get's row of `count` cells; the first of several Gets has the cells of all.
    Rows {
        count: usize,
        cells: CellBuffer,
    },
    Exists(bool),
    Service(pb::NameBytesPair),
    Failed(HBaseError),
    /// It was not tried, as the reply has no room. All have one error.
    TooLarge,
}

impl Outcome {
    /// Bytes that it adds to the reply, beside the cells of rows, which are counted when they are
    /// read.
    fn told_bytes(&self) -> u64 {
        match self {
            Outcome::Cells(cells) => cells.encoded_len() as u64,
            Outcome::Service(value) => value.encoded_len() as u64,
            Outcome::Failed(error) => result::exception_bytes(error),
            Outcome::Rows { .. } | Outcome::Exists(_) | Outcome::TooLarge => 0,
        }
    }
}

/// How the actions of one region ended.
enum RegionOutcome {
    /// Each by itself; `None` until known.
    Each(Vec<Option<Outcome>>),
    /// All together.
    Whole { result: CheckAndMutateResult, conditional: bool },
    /// None was tried, or all failed together.
    Failed(HBaseError),
}

struct Slots {
    regions: Vec<RegionOutcome>,
    /// Starts that have not ended, the request's own among them.
    open: usize,
    reply: Option<PendingReply<MultiResponse>>,
}

/// Collects outcomes until all are there.
struct Gathering {
    /// For each region the indices that its actions have in the request, and whether it has a
    /// condition.
    asked: Vec<(Vec<Option<u32>>, bool)>,
    caller: Caller,
    global_condition: bool,
    slots: Mutex<Slots>,
    /// What actions have left to be told so far.
    told_bytes: AtomicU64,
    /// The error of actions that were not tried.
    too_large: OnceLock<HBaseError>,
    /// Makes the response, if that takes long: the last action may end on the log's thread.
    responds: Option<Arc<Executor>>,
}

impl Gathering {
    fn new(
        actions: &[RegionAction],
        caller: Caller,
        global_condition: bool,
        reply: PendingReply<MultiResponse>,
        handlers: Option<&Arc<Executor>>,
    ) -> Arc<Self> {
        let count: usize = actions.iter().map(|of| of.actions.len() + 1).sum();
        let responds = handlers.filter(|_| count > inline::ACTIONS_MAX).cloned();
        let indices = |of: &RegionAction| of.actions.iter().map(|action| action.index).collect();
        let asked = actions.iter().map(|a| (indices(a), global_condition || a.condition.is_some())).collect();
        let regions =
            actions.iter().map(|a| RegionOutcome::Each(a.actions.iter().map(|_| None).collect())).collect();
        let slots = Mutex::new(Slots { regions, open: 1, reply: Some(reply) });
        let (told_bytes, too_large) = (AtomicU64::new(0), OnceLock::new());
        Arc::new(Self { asked, caller, global_condition, slots, told_bytes, too_large, responds })
    }

    /// Holds the response. For the request itself, before its own end.
    fn answer_after(&self, server: &RegionServer, hold: Duration) {
        if !hold.is_zero() {
            let mut slots = self.slots.lock();
            if let Some(reply) = &mut slots.reply {
                reply.hold_for(hold, &server.background);
            }
        }
    }

    /// Something was started whose end will be told by [`Gathering::end`].
    fn start(self: &Arc<Self>) -> Arc<Self> {
        self.slots.lock().open += 1;
        Arc::clone(self)
    }

    fn set_too_large(&self, at: usize, slot: usize, error: HBaseError) {
        self.too_large.get_or_init(|| error);
        self.set(at, slot, Outcome::TooLarge);
    }

    fn set(&self, at: usize, slot: usize, outcome: Outcome) {
        let told_bytes = outcome.told_bytes();
        if told_bytes > 0 {
            self.told_bytes.fetch_add(told_bytes, Ordering::Relaxed);
        }
        let mut slots = self.slots.lock();
        let Some(RegionOutcome::Each(outcomes)) = slots.regions.get_mut(at) else { return };
        if let Some(place) = outcomes.get_mut(slot) {
            *place = Some(outcome);
        }
    }

    /// Adds the cells of some Gets to the first of them, which is set.
    fn set_cells(&self, at: usize, slot: usize, all: CellBuffer) {
        let mut slots = self.slots.lock();
        let Some(RegionOutcome::Each(outcomes)) = slots.regions.get_mut(at) else { return };
        if let Some(Some(Outcome::Rows { cells, .. })) = outcomes.get_mut(slot) {
            *cells = all;
        }
    }

    fn set_region(&self, at: usize, outcome: RegionOutcome) {
        if let Some(place) = self.slots.lock().regions.get_mut(at) {
            *place = outcome;
        }
    }

    fn set_whole(&self, at: usize, result: CheckAndMutateResult) {
        let conditional = self.asked.get(at).is_some_and(|asked| asked.1);
        let bytes = result.cells.as_ref().map_or(0, CellBuffer::encoded_len);
        self.told_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.set_region(at, RegionOutcome::Whole { result, conditional });
    }

    fn fail_region(&self, at: usize, error: HBaseError) {
        self.told_bytes.fetch_add(result::exception_bytes(&error), Ordering::Relaxed);
        self.set_region(at, RegionOutcome::Failed(error));
    }

    /// Ends one start; the last sends the response.
    fn end(self: &Arc<Self>) {
        let mut slots = self.slots.lock();
        slots.open -= 1;
        if slots.open > 0 {
            return;
        }
        let (regions, reply) = (std::mem::take(&mut slots.regions), slots.reply.take());
        drop(slots);
        let Some(reply) = reply else { return };
        let own = Arc::clone(self);
        let respond = move || reply.send(Ok(own.reply(regions)));
        match &self.responds {
            None => respond(),
            Some(executor) => executor.run_rest(CallClass::Scan, respond),
        }
    }

    fn reply(&self, regions: Vec<RegionOutcome>) -> Reply<MultiResponse> {
        let mut block = self.caller.block();
        let processed = self.processed(&regions);
        let results = self.asked.iter().zip(regions);
        let results =
            results.map(|((indices, _), outcome)| self.region_result(indices, outcome, block.as_mut()));
        let message = MultiResponse {
            region_action_result: results.collect(),
            processed,
            region_statistics: (!self.global_condition).then(pb::MultiRegionLoadStats::default),
        };
        Reply { message, block }
    }

    /// The response's own flag: the outcome of a global condition, or true once an atomic action
    /// was made.
    fn processed(&self, regions: &[RegionOutcome]) -> Option<bool> {
        let whole = |outcome: &RegionOutcome| match outcome {
            RegionOutcome::Whole { result, conditional } => Some((result.success, *conditional)),
            _ => None,
        };
        match self.global_condition {
            true if regions.is_empty() => Some(true),
            true => regions.first().and_then(whole).map(|(success, _)| success),
            false => regions.iter().filter_map(whole).any(|(_, conditional)| !conditional).then_some(true),
        }
    }

    fn region_result(
        &self,
        indices: &[Option<u32>],
        outcome: RegionOutcome,
        mut block: Option<&mut CellBlockWriter>,
    ) -> Bytes {
        let result = match outcome {
            RegionOutcome::Failed(error) => {
                pb::RegionActionResult { exception: Some(result::exception(&error)), ..Default::default() }
            }
            RegionOutcome::Whole { result, conditional } => {
                // An old client looks for the outcome in the response, not here.
                let processed = (!self.global_condition).then_some(!conditional || result.success);
                let entries = whole_entries(indices.len(), result.cells, conditional);
                pb::RegionActionResult { result_or_exception: entries, exception: None, processed }
            }
            RegionOutcome::Each(outcomes) => {
                let mut entries = Entries::with_capacity(outcomes.len());
                for (index, outcome) in indices.iter().zip(outcomes) {
                    let outcome = match (outcome, self.too_large.get()) {
                        (Some(Outcome::TooLarge), Some(error)) => Some(Outcome::Failed(error.clone())),
                        (outcome, _) => outcome,
                    };
                    add_entry(&mut entries, index.unwrap_or(0), outcome, block.as_deref_mut());
                }
                return entries.finish();
            }
        };
        result.encode_to_vec().into()
    }
}

/// Results of an all-or-nothing action: the first entry has the cells of all.
fn whole_entries(
    count: usize,
    mut cells: Option<CellBuffer>,
    conditional: bool,
) -> Vec<pb::ResultOrException> {
    let mut entry = |index: usize| {
        let cells = cells.take().map(|cells| result::with_cells(cells, false, false));
        let result = if conditional { cells } else { Some(cells.unwrap_or_default()) };
        pb::ResultOrException { index: Some(length::must_u32(index)), result, ..Default::default() }
    };
    (0..count).map(&mut entry).collect()
}

fn add_entry(
    entries: &mut Entries,
    index: u32,
    outcome: Option<Outcome>,
    block: Option<&mut CellBlockWriter>,
) {
    let mut entry = pb::ResultOrException { index: Some(index), ..Default::default() };
    match (outcome, block) {
        (Some(Outcome::Rows { count, cells }), Some(block)) => {
            block.push_buffer_owned(cells);
            return entries.push_counted(index, count);
        }
        (Some(Outcome::Rows { cells, .. } | Outcome::Cells(cells)), block) => {
            entry.result = Some(place_cells(cells, block));
        }
        (Some(Outcome::Exists(exists)), _) => entry.result = Some(result::existence(exists, false)),
        (Some(Outcome::Service(value)), _) => {
            entry.service_result = Some(pb::CoprocessorServiceResult { value: Some(value) });
        }
        (Some(Outcome::Failed(error)), _) => entry.exception = Some(result::exception(&error)),
        (None | Some(Outcome::TooLarge), _) => {
            entry.exception = Some(result::exception(&HBaseError::io("the action was dropped unanswered")))
        }
    }
    entries.push(&entry);
}
