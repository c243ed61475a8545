//! [`LocalQuotaTable`]: hbase:quota in the regions of this server, for a server that is alone.

use std::sync::{Arc, Weak};

use evenkeel_common::quota;
use evenkeel_common::{CellBuffer, CellRef, HBaseError, Result, TryError};
use evenkeel_region::operations::Scan;
use evenkeel_region::region::Region;
use evenkeel_region::scanner::{LimitScope, ScannerContext};

use super::QuotaTable;
use super::limits::{QuotaCell, QuotaCells};
use super::space::{TableUseCells, TableUses};
use crate::RegionServer;

/// The bytes of cells that are read at once.
const PART_BYTES: u64 = 1 << 20;

/// See the module's documentation.
pub struct LocalQuotaTable {
    /// The server, which owns this.
    pub server: Weak<RegionServer>,
    /// Returns true if the table exists.
    pub exists: Box<dyn Fn() -> bool + Send + Sync>,
}

/// Returns true if regions, ordered by their start keys, cover all rows.
fn are_whole(regions: &[Arc<Region>]) -> bool {
    let mut end = Some(&[][..]);
    for info in regions.iter().map(|region| region.info()) {
        if end != Some(&info.start_key()[..]) {
            return false;
        }
        end = Some(&info.end_key()[..]).filter(|end| !end.is_empty());
    }
    end.is_none()
}

impl LocalQuotaTable {
    /// Calls `push` with each cell of a family until it returns false.
    ///
    /// # Errors
    /// As [`QuotaTable::cells`].
    pub fn visit(&self, family: &[u8], mut push: impl FnMut(CellRef<'_>) -> bool) -> Result<()> {
        let Some(server) = self.server.upgrade() else { return Ok(()) };
        let regions = server.regions().primaries_of_table(&quota::table_name()?);
        if !are_whole(&regions) {
            return match (self.exists)() {
                true => Err(HBaseError::io("a region of hbase:quota is not open")),
                false => Ok(()),
            };
        }
        for region in regions {
            let mut scanner = region.scanner(Scan::default())?;
            let mut row = CellBuffer::new();
            loop {
                row.clear();
                let (scope, limit) = (LimitScope::BetweenCells, PART_BYTES);
                let mut context = ScannerContext::unlimited().with_size_limit(scope, limit);
                let state = scanner.next(&mut row, &mut context).map_err(TryError::into_failure)?;
                let mut of_family = row.iter().filter(|cell| cell.family() == family);
                if !of_family.all(&mut push) {
                    return Ok(());
                }
                if !state.has_more() {
                    break;
                }
            }
        }
        Ok(())
    }
}

impl QuotaTable for LocalQuotaTable {
    fn cells(&self) -> Result<Vec<QuotaCell>> {
        let mut cells = QuotaCells::default();
        self.visit(quota::FAMILY, |cell| cells.push(cell))?;
        Ok(cells.finish())
    }

    fn table_uses(&self) -> Result<TableUses> {
        let mut cells = TableUseCells::default();
        self.visit(quota::USAGE_FAMILY, |cell| cells.push(cell))?;
        Ok(cells.finish())
    }
}
