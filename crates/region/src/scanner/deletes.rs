//! [`DeleteTracker`]: the delete markers of a row, and which cells they hide.

use std::cmp::Ordering;

use evenkeel_common::{CellRef, CellType, HBaseError, Result};

/// The marker that hides a cell, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeleteResult {
    /// The cell is not hidden.
    NotDeleted,
    /// A marker hides it and all older cells of its family.
    FamilyDeleted,
    /// A marker hides every cell of its family with the same timestamp.
    FamilyVersionDeleted,
    /// A marker hides it and all older cells of its column.
    ColumnDeleted,
    /// A marker hides this version only.
    VersionDeleted,
    /// There are enough newer versions (only with NEW_VERSION_BEHAVIOR).
    VersionMasked,
}

/// The markers of a row and family. Cells must come in order. At most one marker of a column
/// matters at a time, because markers sort before the puts that they hide.
#[derive(Debug, Default)]
pub(super) struct DeleteTracker {
    /// True if any marker was added.
    any: bool,
    family_timestamp: Option<i64>,
    /// In descending order, the order of the cells.
    family_versions: Vec<i64>,
    column: Option<ColumnMarker>,
    /// The qualifier of `column`. It is a separate field so that its memory is reused.
    qualifier: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct ColumnMarker {
    type_code: u8,
    timestamp: i64,
}

impl DeleteTracker {
    /// Bytes of the markers.
    pub(super) fn held_bytes(&self) -> u64 {
        (self.family_versions.capacity() * size_of::<i64>() + self.qualifier.capacity()) as u64
    }

    /// Clears the state of the row.
    #[inline]
    pub(super) fn reset(&mut self) {
        if self.any {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.any = false;
        self.family_timestamp = None;
        self.family_versions.clear();
        self.column = None;
    }

    /// Adds a marker.
    pub(super) fn add(&mut self, cell: &CellRef<'_>) {
        self.any = true;
        let (timestamp, type_code) = (cell.timestamp(), cell.type_code());
        if self.family_timestamp.is_some_and(|family| timestamp <= family) {
            return;
        }
        match cell.cell_type() {
            Some(CellType::DeleteFamily) => self.family_timestamp = Some(timestamp),
            Some(CellType::DeleteFamilyVersion) => self.add_family_version(timestamp),
            _ => self.add_column_marker(cell, ColumnMarker { type_code, timestamp }),
        }
    }

    fn add_family_version(&mut self, timestamp: i64) {
        let at = self.family_versions.partition_point(|seen| *seen > timestamp);
        if self.family_versions.get(at) != Some(&timestamp) {
            self.family_versions.insert(at, timestamp);
        }
    }

    fn add_column_marker(&mut self, cell: &CellRef<'_>, marker: ColumnMarker) {
        if self.column.is_some_and(|seen| marker.type_code < seen.type_code)
            && cell.qualifier() == self.qualifier
        {
            return;
        }
        self.column = Some(marker);
        self.qualifier.clear();
        self.qualifier.extend_from_slice(cell.qualifier());
    }

    /// Returns which marker, if any, hides a put.
    ///
    /// # Errors
    /// `IOException` if cells are out of order.
    #[inline]
    pub(super) fn is_deleted(&mut self, cell: &CellRef<'_>) -> Result<DeleteResult> {
        if self.any { self.is_deleted_by_any(cell) } else { Ok(DeleteResult::NotDeleted) }
    }

    fn is_deleted_by_any(&mut self, cell: &CellRef<'_>) -> Result<DeleteResult> {
        let timestamp = cell.timestamp();
        if self.family_timestamp.is_some_and(|family| timestamp <= family) {
            return Ok(DeleteResult::FamilyDeleted);
        }
        if self.has_family_version(timestamp) {
            return Ok(DeleteResult::FamilyVersionDeleted);
        }
        let Some(marker) = self.column else { return Ok(DeleteResult::NotDeleted) };
        match cell.qualifier().cmp(&self.qualifier) {
            Ordering::Equal if marker.type_code == CellType::DeleteColumn.code() => {
                Ok(DeleteResult::ColumnDeleted)
            }
            Ordering::Equal if marker.timestamp == timestamp => Ok(DeleteResult::VersionDeleted),
            Ordering::Less => Err(HBaseError::io(format!("{cell:?} comes after a marker of a later column"))),
            _ => {
                self.column = None;
                Ok(DeleteResult::NotDeleted)
            }
        }
    }

    fn has_family_version(&self, timestamp: i64) -> bool {
        !self.family_versions.is_empty()
            && self.family_versions.binary_search_by(|seen| timestamp.cmp(seen)).is_ok()
    }
}
