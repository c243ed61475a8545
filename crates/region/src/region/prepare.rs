//! Turning a [`Mutation`] into the cells that are stored: timestamps, time-to-live tags, the versions that a Delete
//! means, the sums and joins of Increment and Append. Runs under the row's lock.

use evenkeel_common::cell::{KeyValueBuilder, LATEST_TIMESTAMP, tag_type};
use evenkeel_common::{CellBuffer, CellRef, CellType, HBaseError, KeyValue, Result};

use super::Region;
use crate::ops::{FamilyColumns, Mutation, MutationKind, Scan, TimeRange};

/// Bytes of an Increment's number.
const LONG_BYTES: usize = 8;

impl Region {
    /// Adds the cells to store for a mutation to `cells`, all or none. Cells that an Increment or Append returns go to
    /// `results`.
    pub(super) fn prepare(
        &self,
        mutation: &Mutation,
        (now_ms, put_timestamp): (i64, i64),
        cells: &mut Vec<KeyValue>,
        results: &mut CellBuffer,
    ) -> Result<()> {
        match mutation.kind {
            MutationKind::Put => {
                let put = mutation.cells.iter();
                cells.extend(put.map(|cell| prepare_put_cell(cell, put_timestamp, mutation.ttl_ms)));
            }
            MutationKind::Delete => cells.append(&mut self.prepare_delete(mutation, now_ms)?),
            MutationKind::Increment | MutationKind::Append => {
                cells.append(&mut self.prepare_delta(mutation, now_ms, results)?);
            }
        }
        Ok(())
    }

    fn prepare_delete(&self, delete: &Mutation, now_ms: i64) -> Result<Vec<KeyValue>> {
        if delete.cells.is_empty() {
            return Ok(self.delete_every_family(delete, now_ms));
        }
        let mut cells = Vec::with_capacity(delete.cells.len());
        for (at, key_value) in delete.cells.iter().enumerate() {
            let cell = key_value.as_cell();
            if cell.timestamp() != LATEST_TIMESTAMP {
                cells.push(key_value.clone());
            } else if cell.type_code() == CellType::Delete as u8 {
                let earlier =
                    delete.cells[..at].iter().filter(|k| names_latest_of_same_column(k, &cell)).count();
                let timestamp = self.timestamp_of_version(&cell, earlier as u32 + 1)?.unwrap_or(now_ms);
                cells.push(key_value.with_timestamp(timestamp));
            } else {
                cells.push(key_value.with_timestamp(now_ms));
            }
        }
        Ok(cells)
    }

    fn delete_every_family(&self, delete: &Mutation, now_ms: i64) -> Vec<KeyValue> {
        let timestamp = if delete.timestamp == LATEST_TIMESTAMP { now_ms } else { delete.timestamp };
        let marker =
            |family: &[u8]| KeyValue::new(&delete.row, family, b"", timestamp, CellType::DeleteFamily, b"");
        self.table.families().map(|family| marker(family.name())).collect()
    }

    /// The timestamp of the `version`th newest put of a column that readers see, if there are so many. A write that is on its
    /// way to the log comes after this one: it may fail still, and then nobody has seen what the marker would be for.
    fn timestamp_of_version(&self, cell: &CellRef<'_>, version: u32) -> Result<Option<i64>> {
        let mut scan = column_scan(cell.row(), cell.family(), vec![cell.qualifier()], TimeRange::ALL);
        scan.max_versions = version;
        let found = self.read_row(scan, None)?;
        Ok((found.len() >= version as usize).then(|| found.get(version as usize - 1).timestamp()))
    }

    fn prepare_delta(
        &self,
        mutation: &Mutation,
        now_ms: i64,
        results: &mut CellBuffer,
    ) -> Result<Vec<KeyValue>> {
        let mut deltas: Vec<&KeyValue> = mutation.cells.iter().collect();
        deltas.sort_by(|a, b| self.comparator.compare_keys(&a.as_cell(), &b.as_cell()));
        let mut cells = Vec::with_capacity(deltas.len());
        for family_deltas in deltas.chunk_by(|a, b| a.as_cell().family() == b.as_cell().family()) {
            let current = self.current_values(mutation, family_deltas)?;
            for delta in family_deltas {
                let delta = delta.as_cell();
                let old = current.iter().find(|c| c.qualifier() == delta.qualifier());
                cells.push(self.apply_delta(mutation, &delta, old, now_ms)?);
            }
        }
        if mutation.return_results {
            cells.iter().for_each(|cell| results.push(&cell.as_cell()));
        }
        Ok(cells)
    }

    fn current_values(&self, mutation: &Mutation, deltas: &[&KeyValue]) -> Result<CellBuffer> {
        let Some(first) = deltas.first() else { return Ok(CellBuffer::new()) };
        let mut qualifiers: Vec<_> = deltas.iter().map(|d| d.as_cell().qualifier()).collect();
        qualifiers.dedup();
        self.read_row_now(column_scan(
            &mutation.row,
            first.as_cell().family(),
            qualifiers,
            mutation.time_range,
        ))
    }

    fn apply_delta(
        &self,
        mutation: &Mutation,
        delta: &CellRef<'_>,
        old: Option<CellRef<'_>>,
        now_ms: i64,
    ) -> Result<KeyValue> {
        let value = match (mutation.kind, old) {
            (MutationKind::Increment, old) => add(delta, old)?,
            (_, Some(old)) => [old.value(), delta.value()].concat(),
            (_, None) => delta.value().to_vec(),
        };
        let timestamp = match old {
            Some(old) => old.timestamp().saturating_add(1).max(now_ms),
            None if delta.timestamp() == LATEST_TIMESTAMP => now_ms,
            None => delta.timestamp(),
        };
        let mut tags = delta.tags().to_vec();
        tags.extend_from_slice(old.map_or(&[], |old| old.tags()));
        let tags = with_ttl(tags, mutation.ttl_ms);
        let (row, family, qualifier) = (&mutation.row[..], delta.family(), delta.qualifier());
        let kind = CellType::Put;
        let cell =
            KeyValueBuilder { row, family, qualifier, timestamp, kind, value: &value, tags: &tags }.build();
        self.check_cell_bytes(&cell)?;
        Ok(cell)
    }

    fn check_cell_bytes(&self, cell: &KeyValue) -> Result<()> {
        let (bytes, max) = (cell.bytes_len(), self.env.config.cell_bytes_max);
        if max == 0 || bytes <= max {
            return Ok(());
        }
        let region = self.info.name_text();
        Err(HBaseError::do_not_retry(format!(
            "Cell with size {bytes} exceeds limit of {max} bytes in region {region}"
        )))
    }
}

/// A read of one version of some columns of one row.
fn column_scan(row: &[u8], family: &[u8], qualifiers: Vec<&[u8]>, time_range: TimeRange) -> Scan {
    let qualifiers = qualifiers.into_iter().map(|q| q.to_vec().into()).collect();
    let families = [FamilyColumns { family: family.to_vec().into(), qualifiers: Some(qualifiers) }].into();
    Scan { families, time_range, ..Scan::get(row.to_vec()) }
}

fn names_latest_of_same_column(other: &KeyValue, cell: &CellRef<'_>) -> bool {
    let other = other.as_cell();
    other.timestamp() == LATEST_TIMESTAMP && other.type_code() == cell.type_code() && other.same_column(cell)
}

fn prepare_put_cell(key_value: &KeyValue, now: i64, ttl_ms: Option<i64>) -> KeyValue {
    let cell = key_value.as_cell();
    let latest = cell.timestamp() == LATEST_TIMESTAMP;
    if ttl_ms.is_none() {
        return if latest { key_value.with_timestamp(now) } else { key_value.clone() };
    }
    let tags = with_ttl(cell.tags().to_vec(), ttl_ms);
    let timestamp = if latest { now } else { cell.timestamp() };
    let (row, family, qualifier, kind) = (cell.row(), cell.family(), cell.qualifier(), CellType::Put);
    KeyValueBuilder { row, family, qualifier, timestamp, kind, value: cell.value(), tags: &tags }.build()
}

/// Raw tags with the mutation's time to live in place of any there.
fn with_ttl(tags: Vec<u8>, ttl_ms: Option<i64>) -> Vec<u8> {
    let Some(ttl_ms) = ttl_ms else { return tags };
    let view = CellRef::from_checked(&[0; 12], &[], &tags, 0);
    let mut out = Vec::with_capacity(tags.len() + 3 + LONG_BYTES);
    for (kind, value) in view.tag_iter().filter(|(kind, _)| *kind != tag_type::TTL) {
        push_tag(&mut out, kind, value);
    }
    push_tag(&mut out, tag_type::TTL, &ttl_ms.to_be_bytes());
    out
}

fn push_tag(out: &mut Vec<u8>, kind: u8, value: &[u8]) {
    out.extend_from_slice(&(value.len() as u16 + 1).to_be_bytes());
    out.push(kind);
    out.extend_from_slice(value);
}

fn add(delta: &CellRef<'_>, old: Option<CellRef<'_>>) -> Result<Vec<u8>> {
    let amount = long_value(delta)?;
    let sum = old.map_or(Ok(amount), |old| long_value(&old).map(|old| old.wrapping_add(amount)))?;
    Ok(sum.to_be_bytes().to_vec())
}

fn long_value(cell: &CellRef<'_>) -> Result<i64> {
    cell.value().try_into().map(i64::from_be_bytes).map_err(|_| {
        HBaseError::do_not_retry(format!("Field is not a long, it's {} bytes wide", cell.value().len()))
    })
}
