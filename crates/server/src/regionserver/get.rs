//! Get.

use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::{CellBuffer, ErrorKind, HBaseError, Result, turns};
use evenkeel_protocol::pb;
use evenkeel_region::region::{Region, RowReader};
use evenkeel_region::scanner::ScannerContext;

use super::caller::{Caller, Reply, place_cells};
use super::turn::{self, Alike};
use super::{RegionServer, load};
use crate::convert::{check_row, read, result};

/// Reads one row.
///
/// # Errors
/// What finding the region, reading the request or reading the row says.
pub fn get(
    server: &RegionServer,
    request: pb::GetRequest,
    caller: &Caller,
) -> Result<Reply<pb::GetResponse>> {
    let region = server.region(&request.region);
    let existence_only = request.get.existence_only();
    let mut cells = server.cells_for(caller);
    let read = region.and_then(|region| row(server, region, request.get, &mut cells));
    if !turns::was_refused() {
        load::count(&server.counters.gets);
    }
    read?;
    // Clients before 1.3 expect the cells of a single Get inside the message, even with a codec.
    let mut block = caller.block().filter(|_| caller.has_version(1, 3));
    let result = match existence_only {
        true => result::existence(!cells.is_empty(), false),
        false => place_cells(cells, block.as_mut()),
    };
    Ok(Reply { message: pb::GetResponse { result: Some(result) }, block })
}

/// Adds the cells of the row a Get asks for to `cells`, by what read a row for a Get of its kind before in this turn, if
/// something did.
///
/// # Errors
/// As [`get`]; `cells` may have a part of the row then.
fn row(server: &RegionServer, region: Arc<Region>, mut get: pb::Get, cells: &mut CellBuffer) -> Result<()> {
    let row = std::mem::take(&mut get.row);
    turn::read_alike(region, get, |Alike { get, reader, .. }| {
        row_of_batch(server, reader, (&row, 0), get, cells)?;
        reader.count();
        Ok(())
    })
}

/// Adds the cells of a row of a batch whose Gets are of some kinds (see [`crate::convert::multi`]); returns the bytes of the
/// blocks that were looked into.
///
/// # Errors
/// As [`get`]; `cells` may have a part of the row then.
pub fn row_of_batch<R: Deref<Target = Region>>(
    server: &RegionServer,
    rows: &mut RowReader<R>,
    (row, kind): (&Bytes, usize),
    get: &pb::Get,
    cells: &mut CellBuffer,
) -> Result<u64> {
    check_not_closest(get)?;
    check_row(row)?;
    let mut context = ScannerContext::unlimited();
    let scan = || read::get(get, row, server.config.load_families_on_demand);
    rows.get_of_kind(kind, row, scan, cells, &mut context)?;
    Ok(context.block_size)
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
