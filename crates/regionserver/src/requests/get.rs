//! Get.

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::{CellBuffer, Charge, ErrorKind, HBaseError, Result, TryError, TryResult, Wait};
use evenkeel_protocol::pb;
use evenkeel_region::region::{Region, RowReader};
use evenkeel_region::scanner::{ReplyCharge, ScannerContext};

use crate::convert::{check_row, read, result};
use crate::requests::caller::{Caller, Reply, place_cells};
use crate::{RegionServer, RequestKind};

/// A row of up to this many bytes takes no room before it is a reply.
const UNCHARGED_BYTES_MAX: u64 = 256 << 10;

/// Reads one row, on a thread that may wait.
///
/// # Errors
/// What finding the region, reading the request or reading the row says.
pub fn get(
    server: &RegionServer,
    request: pb::GetRequest,
    caller: &Caller,
) -> Result<Reply<pb::GetResponse>> {
    get_of(server, &*find_region(server, &request)?, &request.get, caller)
}

/// Reads one row of a region, on a thread that may wait.
///
/// # Errors
/// What reading the request or reading the row says.
pub fn get_of(
    server: &RegionServer,
    region: &Region,
    get: &pb::Get,
    caller: &Caller,
) -> Result<Reply<pb::GetResponse>> {
    let mut reader = GetReader::new(server, region, Wait::Allowed);
    let mut context = ScannerContext::unlimited();
    let reply = reader.reply(0, get, &get.row, std::iter::empty(), caller, &mut context);
    reply.map(|(reply, _)| reply).map_err(TryError::into_failure)
}

/// The region of a Get, which counts as one when there is none.
///
/// # Errors
/// What finding it says.
pub fn find_region(server: &RegionServer, request: &pb::GetRequest) -> Result<Arc<Region>> {
    server.region(&request.region).inspect_err(|_| server.counters.count(RequestKind::Get))
}

/// Reads rows of one region one after the other: those of single Gets that came together, and those
/// of a Multi.
///
/// Gets that differ in nothing but the row are of one *kind*, which the caller numbers. The row of
/// a Get is read by what read the row before, when that was of the same kind (see [`RowReader`]).
/// The reader holds on to files and blocks, so it should live no longer than the Gets at hand.
pub struct GetReader<'a> {
    server: &'a RegionServer,
    rows: RowReader<'a>,
    /// Single Gets that were read, and are counted with the last one.
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
    /// A reader that may wait, or may not.
    pub fn new(server: &'a RegionServer, region: &'a Region, wait: Wait) -> Self {
        Self { server, rows: region.row_reader(wait), gets: 0 }
    }

    /// Reads a row to the end of `cells`; `context` counts the bytes of the blocks that were looked
    /// into, and has the room of the reply. `upcoming` are the rows that are read next of this
    /// kind, this one first: they are prefetched.
    ///
    /// # Errors
    /// What reading the request or reading the row says; `WouldWait` and `TimeSliceOver`;
    /// `CallQueueTooBigException` if the reply has no room. `cells` may have a part of the row
    /// then.
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

    /// Reads the row of a single Get; also returns the bytes of its cells.
    ///
    /// # Errors
    /// As [`GetReader::read`].
    pub fn reply<'r>(
        &mut self,
        kind: usize,
        get: &pb::Get,
        row: &Bytes,
        upcoming: impl Iterator<Item = &'r [u8]> + Clone,
        caller: &Caller,
        context: &mut ScannerContext,
    ) -> TryResult<(Reply<pb::GetResponse>, u64)> {
        let mut cells = self.server.cells_for(caller);
        let unsent = Charge::none(Arc::clone(&self.server.unsent));
        context.set_charge(ReplyCharge::new(unsent, UNCHARGED_BYTES_MAX));
        let read = self.read(kind, get, row, upcoming, (&mut cells, context));
        let room = context.take_charge().map(ReplyCharge::into_charge);
        if !read.as_ref().is_err_and(TryError::is_unfinished) {
            self.gets += 1;
        }
        read?;
        let bytes = cells.encoded_len() as u64;
        // Clients before 1.3 expect the cells of a single Get inside the message, even with a
        // codec.
        let mut block = caller.block().filter(|_| caller.has_version(1, 3));
        let result = match get.existence_only() {
            true => result::existence(!cells.is_empty(), false),
            false => place_cells(cells, block.as_mut()),
        };
        let message = pb::GetResponse { result: Some(result) };
        Ok((Reply { message, block, room }, bytes))
    }

    /// Does not count the rows that were read so far: all of them are read again elsewhere.
    pub fn forget(mut self) {
        self.rows.forget();
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
