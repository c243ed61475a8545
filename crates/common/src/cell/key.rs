//! [`KeyBuf`], an owned flat key to seek with.

use super::{CellRef, CellType, KEY_FIXED_BYTES, LATEST_TIMESTAMP, OLDEST_TIMESTAMP};

/// Appends a flat key: `u16 row_len | row | u8 family_len | family | qualifier | i64 timestamp | u8 type`.
///
/// The caller has checked that the row fits [`super::ROW_BYTES_MAX`] and the family [`super::FAMILY_BYTES_MAX`].
pub fn write_key(
    out: &mut Vec<u8>,
    row: &[u8],
    family: &[u8],
    qualifier: &[u8],
    timestamp: i64,
    type_code: u8,
) {
    debug_assert!(row.len() <= super::ROW_BYTES_MAX && family.len() <= super::FAMILY_BYTES_MAX);
    out.reserve(KEY_FIXED_BYTES + row.len() + family.len() + qualifier.len());
    out.extend_from_slice(&(row.len() as u16).to_be_bytes());
    out.extend_from_slice(row);
    out.push(family.len() as u8);
    out.extend_from_slice(family);
    out.extend_from_slice(qualifier);
    out.extend_from_slice(&timestamp.to_be_bytes());
    out.push(type_code);
}

/// An owned flat key with no value: what a scanner is asked to seek to. Reusable: the `set_*` methods keep the
/// buffer.
///
/// Seek keys have the sequence id `u64::MAX`, so they sort before stored cells of the very same key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyBuf {
    bytes: Vec<u8>,
}

impl KeyBuf {
    /// A key of all its parts.
    pub fn new(row: &[u8], family: &[u8], qualifier: &[u8], timestamp: i64, kind: CellType) -> Self {
        let mut key = Self::default();
        key.set(row, family, qualifier, timestamp, kind);
        key
    }

    /// A copy of a cell's key.
    pub fn of(cell: &CellRef<'_>) -> Self {
        Self { bytes: cell.key().to_vec() }
    }

    /// Sorts before every cell of the row.
    pub fn first_on_row(row: &[u8]) -> Self {
        Self::new(row, b"", b"", LATEST_TIMESTAMP, CellType::Maximum)
    }

    /// Sorts after every cell of the row, and before the next row.
    pub fn last_on_row(row: &[u8]) -> Self {
        Self::new(row, b"", b"", OLDEST_TIMESTAMP, CellType::Minimum)
    }

    /// Sorts before every cell of the column.
    pub fn first_on_column(row: &[u8], family: &[u8], qualifier: &[u8]) -> Self {
        Self::new(row, family, qualifier, LATEST_TIMESTAMP, CellType::Maximum)
    }

    /// Sorts after every cell of the column.
    pub fn last_on_column(row: &[u8], family: &[u8], qualifier: &[u8]) -> Self {
        Self::new(row, family, qualifier, OLDEST_TIMESTAMP, CellType::Minimum)
    }

    /// Replaces the key.
    pub fn set(&mut self, row: &[u8], family: &[u8], qualifier: &[u8], timestamp: i64, kind: CellType) {
        self.bytes.clear();
        write_key(&mut self.bytes, row, family, qualifier, timestamp, kind.code());
    }

    /// Replaces the key by a copy of a cell's.
    pub fn set_to(&mut self, cell: &CellRef<'_>) {
        self.bytes.clear();
        self.bytes.extend_from_slice(cell.key());
    }

    /// The key as a cell with no value.
    ///
    /// # Panics
    /// On a default `KeyBuf` that was never set.
    pub fn as_cell(&self) -> CellRef<'_> {
        CellRef::from_checked(&self.bytes, &[], &[], u64::MAX)
    }

    /// The flat key.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether the key was never set.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}
