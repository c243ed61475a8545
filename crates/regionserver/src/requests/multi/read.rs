//! A Multi that only reads: its results are complete when [`read`] returns.
//!
//! The cells of all rows are in one buffer, in the order of the request. Each entry of the response
//! gives the number of its cells. For a client without a codec, each entry contains its cells.

use bytes::Bytes;
use evenkeel_common::{CellBuffer, HBaseError, TryError, TryResult, Wait, clock};
use evenkeel_protocol::pb;
use evenkeel_region::region::Operation;
use evenkeel_region::scanner::{ReplyCharge, ScannerContext, TimeSlice};
use evenkeel_rpc::CellBlockWriter;
use prost::Message;

use super::outcomes::{ActionOutcome, add_entry};
use super::reply_limits::ReplyLimits;
use super::{GETS_BYTES_RESERVED_MAX, check_quota, check_size, no_such_kind, rows_of_kind};
use crate::convert::multi::{ActionKind, MultiRequest, MultiResponse, RegionAction, ResultEncoder};
use crate::convert::result;
use crate::quotas::OperationQuota;
use crate::requests::caller::{Caller, Reply};
use crate::requests::get::GetReader;
use crate::{RegionServer, RequestKind};

/// Reads the rows of a request of [`MultiKind::Reads`](super::MultiKind::Reads). `slice` limits the
/// time that this may take.
///
/// # Errors
/// `RegionServerStoppedException`; `DoNotRetryIOException` if the request has too many actions;
/// `WouldWait` and `TimeSliceOver`, after which the request must be read again elsewhere; the
/// error of a slice that lasts [while a client waits](TimeSlice::while_awaited). The error of a
/// single action goes into the reply.
pub fn read(
    server: &RegionServer,
    request: &MultiRequest,
    caller: &Caller,
    wait: Wait,
    slice: TimeSlice,
) -> TryResult<Reply<MultiResponse>> {
    let checked = server.check_open().and_then(|()| check_size(server, request));
    let actions_left = request.region_actions.iter().map(|action| action.actions.len()).sum();
    let mut rows = Rows {
        limits: ReplyLimits::new(server, caller),
        cells: server.cells_for(caller),
        block: caller.block(),
        caller,
        context: ReplyLimits::context(server, slice),
        actions_left,
        quota: OperationQuota::NONE,
        ended_quotas: Vec::new(),
    };
    let results = checked.map_err(TryError::from).and_then(|()| {
        let actions = request.region_actions.iter();
        actions.map(|action| rows.read_region(server, action, &request.kinds, wait)).collect::<TryResult<_>>()
    });
    match results.as_ref().is_err_and(TryError::is_unfinished) {
        true => rows.give_back_quotas(),
        false => server.counters.count(RequestKind::Multi),
    }
    let message = MultiResponse {
        region_action_result: results?,
        processed: None,
        region_statistics: Some(pb::MultiRegionLoadStats::default()),
    };
    let Rows { cells, mut block, mut context, .. } = rows;
    if let Some(block) = &mut block {
        block.push_buffer_owned(cells);
    }
    Ok(Reply { message, block, charge: context.take_charge().map(ReplyCharge::into_charge) })
}

/// The rows of a request that only reads, while they are read.
struct Rows<'a> {
    limits: ReplyLimits,
    /// The cells of all rows so far, in order. Without a codec, it is empty between rows.
    cells: CellBuffer,
    block: Option<CellBlockWriter>,
    caller: &'a Caller,
    /// Tracks the time slice and the bytes of the blocks read.
    context: ScannerContext,
    /// Actions not yet processed, including those of regions that were not found.
    actions_left: usize,
    /// What the actions on the present region have taken from the quotas.
    quota: OperationQuota,
    /// What those on the regions before it have taken, kept until the request is finished.
    ended_quotas: Vec<OperationQuota>,
}

impl Rows<'_> {
    fn begin_quota(&mut self, quota: OperationQuota) {
        self.limits.limit_by_quota(quota.reply_bytes_max());
        let before = std::mem::replace(&mut self.quota, quota);
        if before.is_limited() {
            self.ended_quotas.push(before);
        }
    }

    /// Gives back what all actions have taken, because the request will be read again.
    fn give_back_quotas(&mut self) {
        let last = std::mem::take(&mut self.quota);
        self.ended_quotas.drain(..).chain([last]).for_each(OperationQuota::give_back);
    }

    /// Reads the rows of a region action. Returns the encoded pb::RegionActionResult.
    fn read_region(
        &mut self,
        server: &RegionServer,
        region_action: &RegionAction,
        kinds: &[pb::Get],
        wait: Wait,
    ) -> TryResult<Bytes> {
        let found = server.region(&region_action.region).and_then(|region| {
            let quota = check_quota(server, self.caller, &region, (region_action, false))?;
            Ok((region, quota))
        });
        let (region, quota) = match found {
            Ok(found) => found,
            Err(error) => {
                self.actions_left -= region_action.actions.len();
                self.limits.reply_bytes += result::exception_bytes(&error);
                let exception = Some(result::exception(&error));
                let failed = pb::RegionActionResult { exception, ..Default::default() };
                return Ok(failed.encode_to_vec().into());
            }
        };
        self.begin_quota(quota);
        let blocks_before = self.context.block_size;
        let (began_at, mut gets) = (clock::monotonic(), 0);
        let mut reader = GetReader::new(server, &region, wait);
        let mut entries = ResultEncoder::with_capacity(region_action.actions.len());
        for (slot, action) in region_action.actions.iter().enumerate() {
            let index = action.index.unwrap_or(0);
            let outcome = match (self.limits.too_large(self.caller, &self.context), &action.kind) {
                (Some(error), _) => Err(error.into()),
                (None, ActionKind::Get { row, kind }) => {
                    gets += 1;
                    let upcoming = rows_of_kind(region_action.actions.get(slot..).unwrap_or_default(), *kind);
                    match kinds.get(*kind) {
                        Some(get) => self.row(&mut reader, (get, *kind), row, upcoming),
                        None => Err(no_such_kind().into()),
                    }
                }
                (None, _) => Err(HBaseError::io("Unexpected Action type").into()),
            };
            let outcome = match outcome {
                Ok(outcome) => outcome,
                // Nobody waits for the other rows, either.
                Err(abandoned) if self.context.slice.is_abandoned() => {
                    self.quota.add_block_bytes(self.context.block_size - blocks_before);
                    return Err(abandoned);
                }
                Err(TryError::Failed(error)) => ActionOutcome::Failed(error),
                Err(unfinished) => {
                    reader.discard();
                    return Err(unfinished);
                }
            };
            self.actions_left -= 1;
            self.limits.reply_bytes += outcome.reply_bytes();
            match outcome {
                ActionOutcome::Rows { count, is_stale, .. } if self.block.is_some() => {
                    entries.push_counted(index, count, is_stale)
                }
                outcome => add_entry(&mut entries, index, Some(outcome), None),
            }
        }
        self.quota.add_block_bytes(self.context.block_size - blocks_before);
        // The check of the next region must not find the estimate of this one.
        self.quota.settle();
        let time = clock::since(began_at);
        region.operation_times().record_batch(Operation::Get, time, gets);
        server.user_times().record_batch(self.caller.user, Operation::Get, time, gets);
        Ok(entries.finish())
    }

    /// Reads a row and appends its cells to those of the rows before it.
    fn row<'r>(
        &mut self,
        reader: &mut GetReader<'_>,
        get: (&pb::Get, usize),
        row: &Bytes,
        upcoming: impl Iterator<Item = &'r [u8]> + Clone,
    ) -> TryResult<ActionOutcome> {
        let is_first = self.cells.is_empty() && self.actions_left > 1;
        let bytes_before = self.cells.encoded_len();
        let to = (&mut self.cells, &mut self.context, &mut self.limits);
        let is_stale = reader.is_stale();
        let count = match append_row(reader, get, row, upcoming, to)? {
            RowRead::Exists(exists) => return Ok(ActionOutcome::Exists { exists, is_stale }),
            RowRead::Cells(count) => count,
        };
        self.quota.add_result(count, self.cells.encoded_len() - bytes_before);
        match self.block {
            // The cells travel in the cell block, with those of all other rows.
            Some(_) => {
                if is_first {
                    self.cells.reserve_times(self.actions_left - 1, GETS_BYTES_RESERVED_MAX);
                }
                Ok(ActionOutcome::Rows { count, cells: CellBuffer::new(), is_stale })
            }
            None => {
                let cells = std::mem::take(&mut self.cells);
                Ok(ActionOutcome::Rows { count, cells, is_stale })
            }
        }
    }
}

/// What a Get of a Multi has found.
pub(super) enum RowRead {
    /// For a Get that only checks existence: true if the row has cells.
    Exists(bool),
    /// The number of cells that were appended.
    Cells(usize),
}

/// Reads the row of a Get of a Multi, and appends its cells to those before, which stay as they are
/// after an error. `get` comes with its kind.
///
/// # Errors
/// As [`GetReader::read`] and [`ReplyLimits::add_cells`], by [`ReplyLimits::row_error`].
#[inline]
pub(super) fn append_row<'r>(
    reader: &mut GetReader<'_>,
    (get, kind): (&pb::Get, usize),
    row: &Bytes,
    upcoming: impl Iterator<Item = &'r [u8]> + Clone,
    (cells, context, limits): (&mut CellBuffer, &mut ScannerContext, &mut ReplyLimits),
) -> TryResult<RowRead> {
    let (cells_before, bytes_before) = (cells.len(), cells.encoded_len());
    let read = reader.read(kind, get, row, upcoming, (&mut *cells, &mut *context));
    let count = cells.len() - cells_before;
    let bytes = cells.encoded_len() - bytes_before;
    if read.is_err() || get.existence_only() {
        cells.truncate(cells_before);
    }
    read.map_err(|error| limits.row_error(error))?;
    if get.existence_only() {
        return Ok(RowRead::Exists(count > 0));
    }
    if let Err(error) = limits.add_cells(bytes as u64, context) {
        cells.truncate(cells_before);
        return Err(limits.row_error(error.into()));
    }
    Ok(RowRead::Cells(count))
}
