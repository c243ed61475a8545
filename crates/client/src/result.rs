//! [`RowResult`]: the cells of one row.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use bytes::Bytes;
use evenkeel_common::KeyValue;

/// The cells of one row, in HBase's order: family, qualifier, newest first. Empty if the row has
/// none of the requested cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowResult {
    cells: Vec<KeyValue>,
    exists: Option<bool>,
    stale: bool,
    partial: bool,
}

impl RowResult {
    pub(crate) fn new(cells: Vec<KeyValue>, exists: Option<bool>, stale: bool) -> Self {
        Self { cells, exists, stale, partial: false }
    }

    /// The row; `None` when there are no cells.
    pub fn row(&self) -> Option<&[u8]> {
        self.cells.first().map(|cell| cell.as_cell().row())
    }

    /// The cells.
    pub fn cells(&self) -> &[KeyValue] {
        &self.cells
    }

    /// The cells, owned.
    pub fn into_cells(self) -> Vec<KeyValue> {
        self.cells
    }

    /// Returns true if there are no cells.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// The newest value of a column.
    pub fn value(&self, family: impl AsRef<[u8]>, qualifier: impl AsRef<[u8]>) -> Option<&[u8]> {
        let column = (family.as_ref(), qualifier.as_ref());
        self.cells
            .iter()
            .map(KeyValue::as_cell)
            .find(|c| (c.family(), c.qualifier()) == column)
            .map(|c| c.value())
    }

    /// The newest value of a column as a counter: 8 bytes, big-endian.
    pub fn counter(&self, family: impl AsRef<[u8]>, qualifier: impl AsRef<[u8]>) -> Option<i64> {
        Some(i64::from_be_bytes(self.value(family, qualifier)?.try_into().ok()?))
    }

    /// The outcome of a Get with [`crate::Get::existence_only`].
    pub fn exists(&self) -> Option<bool> {
        self.exists
    }

    /// Returns true if the result is from a secondary replica and may be stale.
    pub fn is_stale(&self) -> bool {
        self.stale
    }

    /// A partial row; the next result may continue it.
    pub(crate) fn piece(cells: Vec<KeyValue>, stale: bool) -> Self {
        Self { partial: true, ..Self::new(cells, None, stale) }
    }

    /// Returns true if the next result of the scan may have more cells of the row. Only scans with
    /// [`crate::Scan::batch`] or [`crate::Scan::allow_partial`] return such results.
    pub fn is_partial(&self) -> bool {
        self.partial
    }

    /// The row's bytes, owned.
    pub(crate) fn row_bytes(&self) -> Option<Bytes> {
        self.row().map(Bytes::copy_from_slice)
    }
}

/// The outcome of a [`crate::CheckAndMutate`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckAndMutateResult {
    /// Whether the check passed and the mutations were applied.
    pub success: bool,
    /// The new cells of increments and appends.
    pub result: RowResult,
}
