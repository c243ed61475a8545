//! Turns a [`Mutation`] into the cells to store: timestamps, time-to-live tags, the versions that a
//! Delete names, the sums of Increments and the concatenations of Appends. Runs under the row's
//! lock.
//!
//! The input is already validated. A result may be longer (joined values and tags, an added tag),
//! so its length is checked again.

use std::borrow::Cow;

use bytes::BytesMut;
use evenkeel_common::cell::{
    KEY_VALUE_PREFIX_BYTES, KeyValueBuilder, LATEST_TIMESTAMP, check_key_value_bytes, check_tags,
    tags_with_ttl, whole_tags,
};
use evenkeel_common::length;
use evenkeel_common::{CellBuffer, CellRef, CellType, ErrorKind, HBaseError, KeyValue, Result};

use crate::operations::{FamilyColumns, Mutation, MutationKind, Scan, TimeRange};
use crate::region::Region;

/// HBase measures a cell with the length field before its KeyValue: these bytes.
const CELL_LENGTH_BYTES: usize = 4;

/// The cells to store of one write or of a batch.
pub(in crate::region) struct PreparedCells {
    pub(in crate::region) cells: Vec<KeyValue>,
    /// Memory for the keys of Puts that get their timestamps here; without capacity each has its
    /// own.
    keys: BytesMut,
}

impl PreparedCells {
    /// Memory for the cells of these mutations.
    pub(in crate::region) fn of(mutations: &[Mutation]) -> Self {
        let count = mutations.iter().map(|mutation| mutation.cells.len()).sum();
        let puts = mutations.iter().filter(|m| m.kind == MutationKind::Put && m.ttl_ms.is_none());
        let stamped = puts.flat_map(|put| &put.cells).filter(|cell| needs_timestamp(cell));
        let key_bytes = if count > 1 { stamped.map(|cell| cell.as_cell().key().len()).sum() } else { 0 };
        Self { cells: Vec::with_capacity(count), keys: BytesMut::with_capacity(key_bytes) }
    }
}

impl Region {
    /// Appends a mutation's cells to `prepared`, all or none. Cells that an Increment or Append
    /// returns go to `results`.
    pub(in crate::region) fn prepare(
        &self,
        mutation: &Mutation,
        (now_ms, put_timestamp): (i64, i64),
        prepared: &mut PreparedCells,
        results: &mut CellBuffer,
    ) -> Result<()> {
        let PreparedCells { cells, keys } = prepared;
        if mutation.kind == MutationKind::Put && self.timestamp_slop_ms != i64::MAX {
            self.check_timestamps(mutation, now_ms)?;
        }
        match mutation.kind {
            MutationKind::Put if mutation.ttl_ms.is_none() => {
                cells.extend(mutation.cells.iter().map(|cell| match needs_timestamp(cell) {
                    true if keys.capacity() > 0 => cell.with_timestamp_in(put_timestamp, keys),
                    true => cell.with_timestamp(put_timestamp),
                    false => cell.clone(),
                }));
            }
            MutationKind::Put => cells.append(&mut self.prepare_put_with_ttl(mutation, put_timestamp)?),
            MutationKind::Delete => cells.append(&mut self.prepare_delete(mutation, now_ms)?),
            MutationKind::Increment | MutationKind::Append => {
                cells.append(&mut self.prepare_delta(mutation, now_ms, results)?);
            }
        }
        Ok(())
    }

    fn check_timestamps(&self, put: &Mutation, now_ms: i64) -> Result<()> {
        let (slop, max) = (self.timestamp_slop_ms, now_ms.saturating_add(self.timestamp_slop_ms));
        let is_late = |cell: &CellRef<'_>| cell.timestamp() != LATEST_TIMESTAMP && cell.timestamp() > max;
        match put.cells.iter().map(KeyValue::as_cell).find(is_late) {
            None => Ok(()),
            Some(cell) => Err(HBaseError::new(
                ErrorKind::FailedSanityCheck,
                format!("Timestamp for KV out of range {cell:?} (too.new={slop})"),
            )),
        }
    }

    /// Prepares a Put with a time to live. The tag makes cells longer, so their length is checked
    /// again.
    fn prepare_put_with_ttl(&self, put: &Mutation, timestamp: i64) -> Result<Vec<KeyValue>> {
        let with_ttl = |key_value: &KeyValue| {
            let cell = match needs_timestamp(key_value) {
                true => key_value.with_timestamp(timestamp),
                false => key_value.clone(),
            };
            let tags = with_ttl(cell.as_cell().tags(), put.ttl_ms)?;
            let cell = KeyValue::copy_of(&cell.as_cell().with_tags(&tags)?);
            cell.as_cell().check()?;
            Ok(cell)
        };
        put.cells.iter().map(with_ttl).collect()
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
                let before = delete.cells.iter().take(at);
                let earlier = before.filter(|k| names_latest_of_same_column(k, &cell)).count();
                let timestamp =
                    self.timestamp_of_version(&cell, length::must_u32(earlier + 1))?.unwrap_or(now_ms);
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

    /// Returns the timestamp of the `version`th newest visible put of a column, if the column has
    /// that many. Writes that are not durable yet are ordered after this one: they may still fail,
    /// so the marker must not name them.
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
        let old_tags = old.map_or(&[][..], |old| whole_tags(old.tags()));
        let tags = [delta.tags(), old_tags].concat();
        let tags = with_ttl(&tags, mutation.ttl_ms)?;
        let old_value =
            old.filter(|_| mutation.kind == MutationKind::Append).map_or(&[][..], |old| old.value());
        self.check_cell_bytes(joined_bytes(delta, old_value.len(), tags.len()))?;
        let value = match mutation.kind {
            MutationKind::Increment => add(delta, old)?,
            _ => [old_value, delta.value()].concat(),
        };
        let timestamp = match old {
            Some(old) => old.timestamp().saturating_add(1).max(now_ms),
            None if delta.timestamp() == LATEST_TIMESTAMP => now_ms,
            None => delta.timestamp(),
        };
        let (row, family, qualifier) = (&mutation.row[..], delta.family(), delta.qualifier());
        let kind = CellType::Put;
        KeyValueBuilder { row, family, qualifier, timestamp, kind, value: &value, tags: &tags }.try_build()
    }

    /// Checks a cell's length before allocating memory for it.
    fn check_cell_bytes(&self, key_value_bytes: usize) -> Result<()> {
        check_key_value_bytes(key_value_bytes)?;
        let (bytes, max) = (key_value_bytes + CELL_LENGTH_BYTES, self.cell_bytes_max);
        if max == 0 || bytes <= max {
            return Ok(());
        }
        let region = self.info.name_text();
        Err(HBaseError::do_not_retry(format!(
            "Cell with size {bytes} exceeds limit of {max} bytes in region {region}"
        )))
    }
}

/// A Get of one version of some columns of one row.
fn column_scan(row: &[u8], family: &[u8], qualifiers: Vec<&[u8]>, time_range: TimeRange) -> Scan {
    let qualifiers = qualifiers.into_iter().map(|q| q.to_vec().into()).collect();
    let families = [FamilyColumns { family: family.to_vec().into(), qualifiers: Some(qualifiers) }].into();
    Scan { families, time_range, ..Scan::get(row.to_vec()) }
}

fn names_latest_of_same_column(other: &KeyValue, cell: &CellRef<'_>) -> bool {
    let other = other.as_cell();
    other.timestamp() == LATEST_TIMESTAMP && other.type_code() == cell.type_code() && other.same_column(cell)
}

fn needs_timestamp(cell: &KeyValue) -> bool {
    cell.as_cell().timestamp() == LATEST_TIMESTAMP
}

/// Returns raw tags with their time to live replaced by the mutation's, if it has one.
///
/// # Errors
/// `DoNotRetryIOException` if they are too long.
fn with_ttl(tags: &[u8], ttl_ms: Option<i64>) -> Result<Cow<'_, [u8]>> {
    match ttl_ms {
        Some(ttl_ms) => tags_with_ttl(tags, ttl_ms).map(Cow::Owned),
        None => check_tags(tags).map(|()| Cow::Borrowed(tags)),
    }
}

/// Returns the bytes of the cell that joins an old value and a delta, with `tags_bytes` of tags.
fn joined_bytes(delta: &CellRef<'_>, old_value_bytes: usize, tags_bytes: usize) -> usize {
    let tags = if tags_bytes == 0 { 0 } else { 2 + tags_bytes };
    KEY_VALUE_PREFIX_BYTES + delta.key().len() + old_value_bytes + delta.value().len() + tags
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::region::testing::region_of;
    use crate::region::{CELL_BYTES_MAX, NoEvents, RegionConfig, TIMESTAMP_SLOP};

    #[test]
    fn a_table_has_its_own_maximum_size_of_a_cell() {
        // (the server's, the table's) limit, and the one in force.
        let cases = [(100, None, 100), (100, Some("1000"), 1000), (0, Some("100"), 100), (100, Some("0"), 0)];
        for (of_server, of_table, in_force) in cases {
            let attributes: Vec<_> = of_table.map(|value| (CELL_BYTES_MAX, value)).into_iter().collect();
            let config = RegionConfig { cell_bytes_max: of_server, ..RegionConfig::default() };
            let region = region_of(Arc::new(NoEvents), config, &attributes);
            assert_eq!(region.cell_bytes_max(), in_force);
            let append = |bytes: usize| {
                let cell =
                    KeyValue::new(b"r", b"f", b"q", LATEST_TIMESTAMP, CellType::Put, &vec![b'v'; bytes]);
                region.mutate_wait(Mutation::new(MutationKind::Append, b"r".to_vec(), vec![cell]))
            };
            assert!(append(10).is_ok(), "{of_server} {of_table:?}");
            assert_eq!(append(500).is_ok(), in_force != 100, "{of_server} {of_table:?}");
        }
    }

    #[test]
    fn puts_of_the_far_future_are_refused_where_a_slop_is_set() {
        // (the server's, the table's) limit, and whether 5 s ahead is allowed.
        let cases = [
            (i64::MAX, None, true),
            (1000, None, false),
            (1000, Some("60000"), true),
            (i64::MAX, Some("1000"), false),
            (1000, Some("a minute"), false),
        ];
        for (of_server, of_table, is_allowed) in cases {
            let attributes: Vec<_> = of_table.map(|value| (TIMESTAMP_SLOP, value)).into_iter().collect();
            let config = RegionConfig { timestamp_slop_ms: of_server, ..RegionConfig::default() };
            let region = region_of(Arc::new(NoEvents), config, &attributes);
            let now_ms = region.env.stores.clock.now_ms();
            let write = |kind, timestamp, code: CellType| {
                let cell = KeyValue::new(b"r", b"f", b"q", timestamp, code, b"v");
                region.mutate_wait(Mutation::new(kind, b"r".to_vec(), vec![cell]))
            };
            for timestamp in [LATEST_TIMESTAMP, 0, now_ms + 1000] {
                assert!(write(MutationKind::Put, timestamp, CellType::Put).is_ok(), "{timestamp}");
            }
            let put = write(MutationKind::Put, now_ms + 5000, CellType::Put);
            assert_eq!(put.is_ok(), is_allowed, "{of_server} {of_table:?}");
            if let Err(error) = put {
                let expected = format!("r/f:q/{}/Put/vlen=1/seqid=0 (too.new=1000)", now_ms + 5000);
                assert!(error.message().ends_with(&expected), "{error}");
                assert_eq!(error.kind(), ErrorKind::FailedSanityCheck);
            }
            // As in HBase, deletes are not checked.
            assert!(write(MutationKind::Delete, now_ms + 5000, CellType::DeleteColumn).is_ok());
        }
    }
}
