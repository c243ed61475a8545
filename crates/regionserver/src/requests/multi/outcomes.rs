//! [`OutcomeCollector`]: collects the outcomes of a Multi's actions and builds the response when
//! all are there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_common::{CellBuffer, Charge, HBaseError, clock, length};
use evenkeel_metrics::waits::{self, Waits};
use evenkeel_protocol::pb;
use evenkeel_region::operations::CheckAndMutateResult;
use evenkeel_rpc::{CallClass, CellBlockWriter, Executor};
use parking_lot::Mutex;
use prost::Message;

use crate::RegionServer;
use crate::background::Background;
use crate::convert::multi::{MultiResponse, RegionAction, ResultEncoder};
use crate::convert::result;
use crate::requests::caller::{Caller, Reply, place_cells};
use crate::requests::inline::{self, Handlers};
use crate::requests::pending_reply::PendingReply;

/// The outcome of an action.
pub(super) enum ActionOutcome {
    Cells(CellBuffer),
    /// A Get that read `count` cells. The first of consecutive Gets holds the cells of all.
    Rows {
        count: usize,
        cells: CellBuffer,
        /// True if a secondary replica was read.
        is_stale: bool,
    },
    Exists {
        exists: bool,
        is_stale: bool,
    },
    Service(pb::NameBytesPair),
    Failed(HBaseError),
    /// Not tried, because the reply is full. All these actions share one error.
    TooLarge,
}

impl ActionOutcome {
    /// Returns the bytes that the outcome adds to the reply. The cells of rows count when they are
    /// read, not here.
    pub fn reply_bytes(&self) -> u64 {
        match self {
            ActionOutcome::Cells(cells) => cells.encoded_len() as u64,
            ActionOutcome::Service(value) => value.encoded_len() as u64,
            ActionOutcome::Failed(error) => result::exception_bytes(error),
            ActionOutcome::Rows { .. } | ActionOutcome::Exists { .. } | ActionOutcome::TooLarge => 0,
        }
    }
}

/// The outcomes of the actions on one region.
enum RegionOutcome {
    /// One outcome per action; `None` until it is known.
    Each(Vec<Option<ActionOutcome>>),
    /// One outcome for all actions.
    Whole { result: CheckAndMutateResult, conditional: bool },
    /// No action was tried, or all failed together.
    Failed(HBaseError),
}

struct Slots {
    regions: Vec<RegionOutcome>,
    /// The number of starts that have not ended; the request itself counts as one.
    open: usize,
    reply: Option<PendingReply<MultiResponse>>,
    /// The charge of the cells against the budget for replies, until the response is sent.
    charge: Option<Charge>,
    /// The [`grown_bytes`](evenkeel_region::operations::MutationResult::grown_bytes) of all writes.
    grown_bytes: u64,
    /// The time of the threads that started the actions, by cause, and until when.
    started: Option<(Waits, Instant)>,
}

/// Notes the waits of a request for the thread that answers it: those of the threads that started
/// its actions, and those of the last action since then.
fn note_waits(started: Option<(Waits, Instant)>) {
    let Some((mut waits, started_at)) = started else { return };
    if let Some(mut of_last) = waits::take() {
        of_last.limit(clock::since(started_at));
        waits.add(&of_last);
    }
    waits::note_all(&waits);
}

/// Collects outcomes until all are there.
pub(super) struct OutcomeCollector {
    /// For each region action: the request's indices of its actions, and whether it has a
    /// condition.
    action_indices: Vec<(Vec<Option<u32>>, bool)>,
    pub caller: Caller,
    global_condition: bool,
    slots: Mutex<Slots>,
    /// Bytes that outcomes have added to the reply so far, apart from the cells of rows.
    pub reply_bytes: AtomicU64,
    /// The error of all actions that were not tried.
    too_large: OnceLock<HBaseError>,
    /// Builds a response that takes long to build: the last action may end on the log's thread.
    responds: Option<Arc<Executor>>,
    /// Holds the response while writers are throttled.
    background: Arc<Background>,
}

impl OutcomeCollector {
    pub fn new(
        server: &RegionServer,
        actions: &[RegionAction],
        caller: Caller,
        global_condition: bool,
        reply: PendingReply<MultiResponse>,
        handlers: Option<Handlers<'_>>,
    ) -> Arc<Self> {
        let count: usize = actions.iter().map(|of| of.actions.len() + 1).sum();
        let responds =
            handlers.filter(|_| count > inline::ACTIONS_MAX).map(|handlers| Arc::clone(handlers.executor()));
        let indices = |of: &RegionAction| of.actions.iter().map(|action| action.index).collect();
        let action_indices =
            actions.iter().map(|a| (indices(a), global_condition || a.condition.is_some())).collect();
        let regions =
            actions.iter().map(|a| RegionOutcome::Each(a.actions.iter().map(|_| None).collect())).collect();
        let (charge, grown_bytes, started) = (None, 0, None);
        let slots = Mutex::new(Slots { regions, open: 1, reply: Some(reply), charge, grown_bytes, started });
        let (reply_bytes, too_large) = (AtomicU64::new(0), OnceLock::new());
        let background = Arc::clone(&server.background);
        Arc::new(Self {
            action_indices,
            caller,
            global_condition,
            slots,
            reply_bytes,
            too_large,
            responds,
            background,
        })
    }

    /// Sets the hold of the response. The request calls this before its own
    /// [`OutcomeCollector::end`].
    pub fn hold_reply_for(&self, hold: Duration) {
        if !hold.is_zero() {
            let mut slots = self.slots.lock();
            if let Some(reply) = &mut slots.reply {
                reply.hold_for(hold, &self.background);
            }
        }
    }

    /// Records what a thread that has started actions did, by cause, and until when.
    pub fn count_started(&self, (waits, until): (Waits, Instant)) {
        let mut slots = self.slots.lock();
        let (all, last) = slots.started.get_or_insert((Waits::NONE, until));
        all.add(&waits);
        *last = until.max(*last);
    }

    /// Counts bytes by which a write has grown. They extend the hold of the response.
    pub fn count_grown(&self, bytes: u64) {
        if bytes > 0 {
            self.slots.lock().grown_bytes += bytes;
        }
    }

    /// Keeps a charge of cells until the response is sent.
    pub fn keep_charge(&self, charge: Option<Charge>) {
        let Some(charge) = charge else { return };
        let mut slots = self.slots.lock();
        match &mut slots.charge {
            None => slots.charge = Some(charge),
            Some(all) => all.merge(charge),
        }
    }

    /// Registers the start of an operation that ends with [`OutcomeCollector::end`].
    pub fn start(self: &Arc<Self>) -> Arc<Self> {
        self.slots.lock().open += 1;
        Arc::clone(self)
    }

    pub fn set_too_large(&self, at: usize, slot: usize, error: HBaseError) {
        self.too_large.get_or_init(|| error);
        self.set(at, slot, ActionOutcome::TooLarge);
    }

    pub fn set(&self, at: usize, slot: usize, outcome: ActionOutcome) {
        let reply_bytes = outcome.reply_bytes();
        if reply_bytes > 0 {
            self.reply_bytes.fetch_add(reply_bytes, Ordering::Relaxed);
        }
        let mut slots = self.slots.lock();
        let Some(RegionOutcome::Each(outcomes)) = slots.regions.get_mut(at) else { return };
        if let Some(place) = outcomes.get_mut(slot) {
            *place = Some(outcome);
        }
    }

    /// Hands the cells of consecutive Gets to the first of them, whose outcome is set.
    pub fn set_cells(&self, at: usize, slot: usize, all: CellBuffer) {
        let mut slots = self.slots.lock();
        let Some(RegionOutcome::Each(outcomes)) = slots.regions.get_mut(at) else { return };
        if let Some(Some(ActionOutcome::Rows { cells, .. })) = outcomes.get_mut(slot) {
            *cells = all;
        }
    }

    fn set_region(&self, at: usize, outcome: RegionOutcome) {
        if let Some(place) = self.slots.lock().regions.get_mut(at) {
            *place = outcome;
        }
    }

    pub fn set_whole(&self, at: usize, result: CheckAndMutateResult) {
        let conditional = self.action_indices.get(at).is_some_and(|action_indices| action_indices.1);
        let bytes = result.cells.as_ref().map_or(0, CellBuffer::encoded_len);
        self.reply_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.set_region(at, RegionOutcome::Whole { result, conditional });
    }

    pub fn fail_region(&self, at: usize, error: HBaseError) {
        self.reply_bytes.fetch_add(result::exception_bytes(&error), Ordering::Relaxed);
        self.set_region(at, RegionOutcome::Failed(error));
    }

    /// Ends one start. The last end sends the response.
    pub fn end(self: &Arc<Self>) {
        let mut slots = self.slots.lock();
        slots.open -= 1;
        if slots.open > 0 {
            return;
        }
        let (regions, reply) = (std::mem::take(&mut slots.regions), slots.reply.take());
        let (charge, grown_bytes, started) = (slots.charge.take(), slots.grown_bytes, slots.started.take());
        drop(slots);
        let Some(mut reply) = reply else { return };
        note_waits(started);
        reply.extend_hold(grown_bytes, &self.background);
        let own = Arc::clone(self);
        match &self.responds {
            None => reply.send(Ok(own.reply(regions, charge))),
            Some(executor) => {
                reply.leave_thread();
                let respond = move || reply.send(Ok(own.reply(regions, charge)));
                executor.submit_continuation(CallClass::Scan, self.caller.peer, respond);
            }
        }
    }

    fn reply(&self, regions: Vec<RegionOutcome>, charge: Option<Charge>) -> Reply<MultiResponse> {
        let mut block = self.caller.block();
        let processed = self.processed(&regions);
        let results = self.action_indices.iter().zip(regions);
        let results =
            results.map(|((indices, _), outcome)| self.region_result(indices, outcome, block.as_mut()));
        let message = MultiResponse {
            region_action_result: results.collect(),
            processed,
            region_statistics: (!self.global_condition).then(pb::MultiRegionLoadStats::default),
        };
        Reply { message, block, charge }
    }

    /// Returns the `processed` flag of the response: the outcome of a global condition, or true if
    /// an atomic action succeeded.
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
                // An old client reads the outcome from the response instead.
                let processed = (!self.global_condition).then_some(!conditional || result.success);
                let entries = whole_entries(indices.len(), result.cells, conditional);
                pb::RegionActionResult { result_or_exception: entries, exception: None, processed }
            }
            RegionOutcome::Each(outcomes) => {
                let mut entries = ResultEncoder::with_capacity(outcomes.len());
                for (index, outcome) in indices.iter().zip(outcomes) {
                    let outcome = match (outcome, self.too_large.get()) {
                        (Some(ActionOutcome::TooLarge), Some(error)) => {
                            Some(ActionOutcome::Failed(error.clone()))
                        }
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

/// Creates the entries of an all-or-nothing action. The first entry has all cells.
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

pub(super) fn add_entry(
    entries: &mut ResultEncoder,
    index: u32,
    outcome: Option<ActionOutcome>,
    block: Option<&mut CellBlockWriter>,
) {
    let mut entry = pb::ResultOrException { index: Some(index), ..Default::default() };
    match (outcome, block) {
        (Some(ActionOutcome::Rows { count, cells, is_stale }), Some(block)) => {
            block.push_buffer_owned(cells);
            return entries.push_counted(index, count, is_stale);
        }
        (Some(ActionOutcome::Rows { cells, is_stale, .. }), None) => {
            entry.result = Some(place_cells(cells, None, is_stale));
        }
        (Some(ActionOutcome::Cells(cells)), block) => {
            entry.result = Some(place_cells(cells, block, false));
        }
        (Some(ActionOutcome::Exists { exists, is_stale }), _) => {
            entry.result = Some(result::existence(exists, is_stale));
        }
        (Some(ActionOutcome::Service(value)), _) => {
            entry.service_result = Some(pb::CoprocessorServiceResult { value: Some(value) });
        }
        (Some(ActionOutcome::Failed(error)), _) => entry.exception = Some(result::exception(&error)),
        (None | Some(ActionOutcome::TooLarge), _) => {
            entry.exception = Some(result::exception(&HBaseError::io("the action was dropped unanswered")))
        }
    }
    entries.push(&entry);
}
