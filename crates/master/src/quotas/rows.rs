//! Reads and writes the rows of hbase:quota, in the regions of this process. Writes are durable on
//! return.

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::cell::KeyValueBuilder;
use evenkeel_common::quota::{self, QuotaTarget};
use evenkeel_common::{CellType, Durability, HBaseError, Result};
use evenkeel_protocol::pb;
use evenkeel_region::operations::{Mutation, MutationKind, Scan};
use evenkeel_region::region::Region;

use crate::Master;

/// A row, a family and a qualifier.
#[derive(Clone, Copy)]
pub(super) struct Column<'a> {
    pub(super) row: &'a [u8],
    pub(super) family: &'a [u8],
    pub(super) qualifier: &'a [u8],
}

impl<'a> Column<'a> {
    /// A column of the quotas.
    pub(super) fn of_quotas(row: &'a [u8], qualifier: &'a [u8]) -> Self {
        Self { row, family: quota::FAMILY, qualifier }
    }

    /// A column of the use of space.
    pub(super) fn of_usage(row: &'a [u8], qualifier: &'a [u8]) -> Self {
        Self { row, family: quota::USAGE_FAMILY, qualifier }
    }

    fn cell(&self, timestamp: i64, kind: CellType, value: &[u8]) -> Result<evenkeel_common::KeyValue> {
        let Self { row, family, qualifier } = *self;
        KeyValueBuilder { row, family, qualifier, timestamp, kind, value, tags: &[] }.try_build()
    }
}

impl Master {
    fn quota_region(&self, row: &[u8]) -> Result<Arc<Region>> {
        let regions = self.parts.regionserver.regions().primaries_of_table(&quota::table_name()?);
        let is_in = |region: &Arc<Region>| {
            let (start, end) = (region.info().start_key(), region.info().end_key());
            row >= &start[..] && (end.is_empty() || row < &end[..])
        };
        let found = regions.into_iter().find(is_in);
        found.ok_or_else(|| HBaseError::io("Quota manager is uninitialized, please retry later."))
    }

    pub(super) fn read_cell(&self, column: Column<'_>) -> Result<Option<Bytes>> {
        let cells = self.quota_region(column.row)?.get(Scan::get(column.row.to_vec()))?;
        let is_wanted =
            |family: &[u8], qualifier: &[u8]| (family, qualifier) == (column.family, column.qualifier);
        let wanted = cells.iter().find(|cell| is_wanted(cell.family(), cell.qualifier()));
        Ok(wanted.map(|cell| Bytes::copy_from_slice(cell.value())))
    }

    pub(crate) fn read_quotas(&self, target: &QuotaTarget) -> Result<Option<pb::Quotas>> {
        let value = self.read_cell(Column::of_quotas(&target.row(), &target.qualifier()))?;
        value.map(|value| quota::decode(&value)).transpose()
    }

    /// Writes the quotas of a target. `None` deletes them: as in HBase, the whole row of a user
    /// without further quotas of its own, with those on tables and namespaces, and that of a table
    /// with its use of space.
    pub(super) fn write_quotas(
        &self,
        target: &QuotaTarget,
        quotas: Option<&pb::Quotas>,
        last_ms: &mut i64,
    ) -> Result<()> {
        let (row, qualifier) = (target.row(), target.qualifier());
        let column = Column::of_quotas(&row, &qualifier);
        match (quotas, target) {
            (Some(quotas), _) => self.write_cell(column, &quota::encode(quotas), last_ms),
            (None, QuotaTarget::UserTable(..) | QuotaTarget::UserNamespace(..)) => {
                self.delete_column(column, last_ms)
            }
            (None, _) => self.delete_row(&row, last_ms),
        }
    }

    pub(super) fn write_cell(&self, column: Column<'_>, value: &[u8], last_ms: &mut i64) -> Result<()> {
        let cell = column.cell(self.next_write_ms(last_ms), CellType::Put, value)?;
        self.write(Mutation::new(MutationKind::Put, column.row.to_vec(), vec![cell]))
    }

    pub(super) fn delete_column(&self, column: Column<'_>, last_ms: &mut i64) -> Result<()> {
        let timestamp = self.next_write_ms(last_ms);
        let cells = vec![column.cell(timestamp, CellType::DeleteColumn, &[])?];
        self.write(Mutation { timestamp, ..Mutation::new(MutationKind::Delete, column.row.to_vec(), cells) })
    }

    pub(super) fn delete_row(&self, row: &[u8], last_ms: &mut i64) -> Result<()> {
        let timestamp = self.next_write_ms(last_ms);
        self.write(Mutation { timestamp, ..Mutation::new(MutationKind::Delete, row.to_vec(), Vec::new()) })
    }

    fn write(&self, mutation: Mutation) -> Result<()> {
        let region = self.quota_region(&mutation.row)?;
        region.mutate_wait(Mutation { durability: Durability::FsyncWal, ..mutation }).map(drop)
    }

    fn next_write_ms(&self, last_ms: &mut i64) -> i64 {
        *last_ms = self.clock().now_ms().max(last_ms.saturating_add(1));
        *last_ms
    }
}
