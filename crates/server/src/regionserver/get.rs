//! Get.

use evenkeel_common::{CellBuffer, ErrorKind, HBaseError, Result};
use evenkeel_protocol::pb;
use evenkeel_region::region::RowReader;
use evenkeel_region::scanner::ScannerContext;

use super::caller::{Caller, Reply, place_cells};
use super::{RegionServer, load};
use crate::convert::{read, result};

/// Reads one row.
///
/// # Errors
/// What finding the region, reading the request or reading the row says.
pub fn get(
    server: &RegionServer,
    request: &pb::GetRequest,
    caller: &Caller,
) -> Result<Reply<pb::GetResponse>> {
    load::count(&server.counters.gets);
    let region = server.region(&request.region)?;
    let mut cells = server.cells_for(caller);
    row(server, &mut region.row_reader(), &request.get, &mut cells)?;
    // Clients before 1.3 expect the cells of a single Get inside the message, even with a codec.
    let mut block = caller.block().filter(|_| caller.has_version(1, 3));
    let result = match request.get.existence_only() {
        true => result::existence(!cells.is_empty(), false),
        false => place_cells(cells, block.as_mut()),
    };
    Ok(Reply { message: pb::GetResponse { result: Some(result) }, block })
}

/// Adds the cells of the row a Get asks for to `cells`; returns the bytes of the blocks that were looked into.
///
/// # Errors
/// As [`get`]; `cells` may have a part of the row then.
pub fn row(
    server: &RegionServer,
    rows: &mut RowReader<'_>,
    get: &pb::Get,
    cells: &mut CellBuffer,
) -> Result<u64> {
    if get.closest_row_before() {
        return Err(HBaseError::new(
            ErrorKind::UnknownProtocol,
            "Is this a pre-hbase-1.0.0 or asynchbase client? Client is invoking getClosestRowBefore removed in \
             hbase-2.0.0 replaced by reverse Scan.",
        ));
    }
    let mut context = ScannerContext::unlimited();
    rows.get(read::get(get, server.config.load_families_on_demand)?, cells, &mut context)?;
    Ok(context.block_size)
}
