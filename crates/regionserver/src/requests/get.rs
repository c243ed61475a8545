//! Get: reads one row, or the rows of many Gets in turn.

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::{
    CallerState, CellBuffer, Charge, ErrorKind, HBaseError, Result, TryError, TryResult, Wait,
};
use evenkeel_protocol::pb;
use evenkeel_region::region::{Region, RowReader};
use evenkeel_region::scanner::{ReplyCharge, ScannerContext, TimeSlice};

use crate::convert::{check_row, read, result};
use crate::quotas::{OperationQuota, Request};
use crate::requests::caller::{Caller, Reply, place_cells};
use crate::{RegionServer, RequestKind};

/// A reply up to this size takes nothing from the reply budget while it is built.
const UNCHARGED_BYTES_MAX: u64 = 256 << 10;

/// Reads one row. The thread may block.
///
/// # Errors
/// As [`find_region`] and [`get_of`].
pub fn get(
    server: &RegionServer,
    request: pb::GetRequest,
    caller: &Caller,
) -> Result<Reply<pb::GetResponse>> {
    let state = CallerState::new(None, caller.deadline);
    get_of(server, &*find_region(server, &request)?, &request.get, (caller, state))
}

/// Reads one row of a region. The thread may block. `state` tells whether the caller still waits.
///
/// # Errors
/// `RpcThrottlingException`, `DoNotRetryIOException` for a malformed Get,
/// `CallQueueTooBigException` if the reply exceeds the budget for replies, the errors of
/// [`CallerState::check`], and those of [`Region::get`].
pub fn get_of(
    server: &RegionServer,
    region: &Region,
    get: &pb::Get,
    (caller, state): (&Caller, CallerState),
) -> Result<Reply<pb::GetResponse>> {
    let mut quota = check_quota(server, region, caller)?;
    let mut reader = GetReader::new(server, region, Wait::Allowed);
    let mut context = ScannerContext::within(TimeSlice::while_awaited(state));
    let reply = reader.reply(0, get, &get.row, std::iter::empty(), (caller, &mut quota), &mut context);
    reply.map(|(reply, _)| reply).map_err(TryError::into_failure)
}

/// Returns the region of a Get. If the region is not found, the Get is counted all the same.
///
/// # Errors
/// As [`RegionServer::region`].
pub fn find_region(server: &RegionServer, request: &pb::GetRequest) -> Result<Arc<Region>> {
    server.region(&request.region).inspect_err(|_| server.counters.count(RequestKind::Get))
}

/// Checks a Get against the quotas. If it is refused, it is counted all the same.
///
/// # Errors
/// `RpcThrottlingException`.
pub fn check_quota(server: &RegionServer, region: &Region, caller: &Caller) -> Result<OperationQuota> {
    let checked = server.check_quota(caller, region, Request::GET);
    checked.inspect_err(|_| server.counters.count(RequestKind::Get))
}

/// Reads rows of one region in turn: the rows of single Gets that arrived together, and of a Multi.
///
/// Gets that differ only in the row are of one *kind*, which the caller numbers. A Get of the same
/// kind as the Get before it reuses the scanner of that Get (see [`RowReader`]). The reader pins
/// files and blocks, so it must not outlive the Gets at hand.
pub struct GetReader<'a> {
    server: &'a RegionServer,
    rows: RowReader<'a>,
    /// True if the region is a secondary replica.
    is_stale: bool,
    /// Single Gets read so far. They are counted when the reader is dropped.
    gets: u64,
}

impl Drop for GetReader<'_> {
    fn drop(&mut self) {
        if self.gets > 0 {
            self.server.counters.count_n(RequestKind::Get, self.gets);
        }
    }
}

impl<'a> GetReader<'a> {
    /// Creates a reader. `wait` determines whether it may block.
    pub fn new(server: &'a RegionServer, region: &'a Region, wait: Wait) -> Self {
        Self { server, rows: region.row_reader(wait), is_stale: region.is_secondary(), gets: 0 }
    }

    /// Returns true if the results are of a secondary replica, which may lag behind.
    pub fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Reads a row and appends its cells to `cells`. `context` counts the bytes of the blocks read
    /// and holds the charge of the reply. `upcoming` lists the next rows of this kind, beginning
    /// with `row`; the reader prefetches them.
    ///
    /// # Errors
    /// `DoNotRetryIOException` for a malformed Get; those of [`Region::get`]; `WouldWait` and
    /// `TimeSliceOver`; `CallQueueTooBigException` if the reply exceeds the budget for replies.
    /// After an error, `cells` may contain part of the row.
    pub fn read<'r>(
        &mut self,
        kind: usize,
        get: &pb::Get,
        row: &Bytes,
        upcoming: impl Iterator<Item = &'r [u8]> + Clone,
        (cells, context): (&mut CellBuffer, &mut ScannerContext),
    ) -> TryResult<()> {
        self.rows.prefetch_rows(kind, upcoming);
        check_not_closest(get)?;
        check_row(row)?;
        let scan = || read::get(get, row, self.server.config.load_families_on_demand);
        self.rows.get_of_kind(kind, row, scan, cells, context)
    }

    /// Reads the row of a single Get, and counts what it costs. Also returns the size of its cells
    /// in bytes.
    ///
    /// # Errors
    /// As [`GetReader::read`].
    #[inline(always)]
    pub fn reply<'r>(
        &mut self,
        kind: usize,
        get: &pb::Get,
        row: &Bytes,
        upcoming: impl Iterator<Item = &'r [u8]> + Clone,
        (caller, quota): (&Caller, &mut OperationQuota),
        context: &mut ScannerContext,
    ) -> TryResult<(Reply<pb::GetResponse>, u64)> {
        let mut cells = self.server.cells_for(caller);
        let unsent = Charge::none(Arc::clone(&self.server.unsent));
        context.set_charge(ReplyCharge::new(unsent, UNCHARGED_BYTES_MAX));
        let blocks_before = context.block_size;
        let read = self.read(kind, get, row, upcoming, (&mut cells, context));
        quota.add_block_bytes(context.block_size - blocks_before);
        let charge = context.take_charge().map(ReplyCharge::into_charge);
        if !read.as_ref().is_err_and(TryError::is_unfinished) {
            self.gets += 1;
        }
        read?;
        let bytes = cells.encoded_len() as u64;
        if !get.existence_only() {
            quota.add_cells(&cells);
        }
        // For a single Get, clients before 1.3 expect the cells inside the message, even with a
        // codec.
        let mut block = caller.block().filter(|_| caller.has_version(1, 3));
        let result = match get.existence_only() {
            true => result::existence(!cells.is_empty(), self.is_stale),
            false => place_cells(cells, block.as_mut(), self.is_stale),
        };
        let message = pb::GetResponse { result: Some(result) };
        Ok((Reply { message, block, charge }, bytes))
    }

    /// Drops the reader without counting its rows: the caller reads all of them again elsewhere.
    pub fn discard(mut self) {
        self.rows.discard_uncounted();
    }
}

fn check_not_closest(get: &pb::Get) -> Result<()> {
    match get.closest_row_before() {
        false => Ok(()),
        true => Err(HBaseError::new(
            ErrorKind::UnknownProtocol,
            "Is this a pre-hbase-1.0.0 or asynchbase client? Client is invoking getClosestRowBefore removed in \
             hbase-2.0.0 replaced by reverse Scan.",
        )),
    }
}
