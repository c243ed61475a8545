//! Get.

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::{CellBuffer, ErrorKind, HBaseError, Result, turns};
use evenkeel_protocol::pb;
use evenkeel_region::region::{Region, RowReader};
use evenkeel_region::scanner::ScannerContext;

use crate::convert::{check_row, read, result};
use crate::requests::caller::{Caller, Reply, place_cells};
use crate::{RegionServer, load};

/// Reads one row.
///
/// # Errors
/// What finding the region, reading the request or reading the row says.
pub fn get(
    server: &RegionServer,
    request: pb::GetRequest,
    caller: &Caller,
) -> Result<Reply<pb::GetResponse>> {
    let (region, row) = (find_region(server, &request)?, request.get.row.clone());
    let mut context = ScannerContext::unlimited();
    one(server, &mut region.row_reader(), (&row, 0), &request.get, caller, &mut context)
        .map(|(reply, _)| reply)
}

/// The region of a Get, which counts as one when there is none.
///
/// # Errors
/// What finding it says.
pub fn find_region(server: &RegionServer, request: &pb::GetRequest) -> Result<Arc<Region>> {
    server.region(&request.region).inspect_err(|_| load::count(&server.counters.gets))
}

/// Reads one row by what reads others of its kind; also returns the bytes of its cells. When `context` says that the read gave
/// up, the outcome is none.
///
/// # Errors
/// What reading the request or reading the row says.
pub fn one(
    server: &RegionServer,
    rows: &mut RowReader<'_>,
    place: (&Bytes, usize),
    get: &pb::Get,
    caller: &Caller,
    context: &mut ScannerContext,
) -> Result<(Reply<pb::GetResponse>, u64)> {
    let mut cells = server.cells_for(caller);
    let read = row_of_batch(server, rows, place, get, &mut cells, context);
    if !turns::was_refused() && !context.gave_up() {
        load::count(&server.counters.gets);
    }
    read?;
    let bytes = cells.encoded_len() as u64;
    // Clients before 1.3 expect the cells of a single Get inside the message, even with a codec.
    let mut block = caller.block().filter(|_| caller.has_version(1, 3));
    let result = match get.existence_only() {
        true => result::existence(!cells.is_empty(), false),
        false => place_cells(cells, block.as_mut()),
    };
    Ok((Reply { message: pb::GetResponse { result: Some(result) }, block }, bytes))
}

/// Adds the cells of a row of a batch whose Gets are of some kinds (see [`crate::convert::multi`]); `context` counts the bytes of
/// the blocks that were looked into.
///
/// # Errors
/// As [`get`]; `cells` may have a part of the row then.
pub fn row_of_batch(
    server: &RegionServer,
    rows: &mut RowReader<'_>,
    (row, kind): (&Bytes, usize),
    get: &pb::Get,
    cells: &mut CellBuffer,
    context: &mut ScannerContext,
) -> Result<()> {
    check_not_closest(get)?;
    check_row(row)?;
    let scan = || read::get(get, row, server.config.load_families_on_demand);
    rows.get_of_kind(kind, row, scan, cells, context)
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
