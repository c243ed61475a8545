//! Filters that reduce a row by its keys alone: KeyOnlyFilter, FirstKeyOnlyFilter,
//! FirstKeyValueMatchingQualifiersFilter, TimestampsFilter.

use bytes::Bytes;
use evenkeel_common::length;
use evenkeel_common::{CellRef, CellType, KeyBuf, Result};
use evenkeel_protocol::pb;

use super::parse::decode;
use super::{Filter, ReplacedValue, ReturnCode, illegal};

pub(super) fn parse_key_only(bytes: &Bytes) -> Result<Box<dyn Filter>> {
    let proto: pb::KeyOnlyFilter = decode(bytes, &[(1, "len_as_val")])?;
    Ok(Box::new(KeyOnlyFilter { len_as_val: proto.len_as_val }))
}

struct KeyOnlyFilter {
    len_as_val: bool,
}

impl Filter for KeyOnlyFilter {
    fn filter_row_key(&mut self, _first_cell: &CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, _cell: &CellRef<'_>) -> Result<ReturnCode> {
        Ok(ReturnCode::Include)
    }

    fn transform(&self, cell: &CellRef<'_>) -> Option<ReplacedValue> {
        let len = || ReplacedValue::Length(length::must_u32(cell.value().len()).to_be_bytes());
        Some(if self.len_as_val { len() } else { ReplacedValue::Empty })
    }
}

pub(super) fn parse_first_key(bytes: &Bytes) -> Result<Box<dyn Filter>> {
    decode::<pb::FirstKeyOnlyFilter>(bytes, &[])?;
    Ok(Box::new(FirstKeyOnlyFilter { found: false }))
}

struct FirstKeyOnlyFilter {
    found: bool,
}

impl Filter for FirstKeyOnlyFilter {
    fn reset(&mut self) {
        self.found = false;
    }

    fn filter_row_key(&mut self, _first_cell: &CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, _cell: &CellRef<'_>) -> Result<ReturnCode> {
        let first = !std::mem::replace(&mut self.found, true);
        Ok(if first { ReturnCode::Include } else { ReturnCode::NextRow })
    }
}

pub(super) fn parse_matching_qualifiers(bytes: &Bytes) -> Result<Box<dyn Filter>> {
    let proto: pb::FirstKeyValueMatchingQualifiersFilter = decode(bytes, &[])?;
    let mut qualifiers: Vec<Vec<u8>> = proto.qualifiers.iter().map(|q| q.to_vec()).collect();
    qualifiers.sort_unstable();
    Ok(Box::new(FirstKeyValueMatchingQualifiersFilter { qualifiers, found: false }))
}

/// Takes the cells up to and including the first cell with one of the qualifiers.
struct FirstKeyValueMatchingQualifiersFilter {
    /// Sorted.
    qualifiers: Vec<Vec<u8>>,
    found: bool,
}

impl Filter for FirstKeyValueMatchingQualifiersFilter {
    fn reset(&mut self) {
        self.found = false;
    }

    fn filter_row_key(&mut self, _first_cell: &CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode> {
        if self.found {
            return Ok(ReturnCode::NextRow);
        }
        self.found = self.qualifiers.binary_search_by(|q| q[..].cmp(cell.qualifier())).is_ok();
        Ok(ReturnCode::Include)
    }
}

pub(super) fn parse_timestamps(bytes: &Bytes) -> Result<Box<dyn Filter>> {
    let proto: pb::TimestampsFilter = decode(bytes, &[])?;
    if let Some(timestamp) = proto.timestamps.iter().find(|t| **t < 0) {
        return Err(illegal(format!("must be positive {timestamp}")));
    }
    let mut timestamps = proto.timestamps;
    timestamps.sort_unstable();
    Ok(Box::new(TimestampsFilter { timestamps, can_hint: proto.can_hint.unwrap_or(false) }))
}

struct TimestampsFilter {
    /// Ascending.
    timestamps: Vec<i64>,
    can_hint: bool,
}

impl Filter for TimestampsFilter {
    fn filter_row_key(&mut self, _first_cell: &CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode> {
        let timestamp = cell.timestamp();
        if self.timestamps.binary_search(&timestamp).is_ok() {
            return Ok(ReturnCode::Include);
        }
        if timestamp < self.timestamps.first().copied().unwrap_or(i64::MAX) {
            return Ok(ReturnCode::NextCol);
        }
        Ok(if self.can_hint { ReturnCode::SeekNextUsingHint } else { ReturnCode::Skip })
    }

    fn next_cell_hint(&mut self, cell: &CellRef<'_>) -> Result<Option<KeyBuf>> {
        if !self.can_hint {
            return Ok(None);
        }
        let (row, family, qualifier) = (cell.row(), cell.family(), cell.qualifier());
        let older = self.timestamps.partition_point(|t| *t < cell.timestamp());
        Ok(Some(match older.checked_sub(1).and_then(|last| self.timestamps.get(last)) {
            Some(timestamp) => KeyBuf::new(row, family, qualifier, *timestamp, CellType::Maximum),
            None => KeyBuf::last_on_column(row, family, qualifier),
        }))
    }

    fn is_hinting(&self) -> bool {
        true
    }
}
