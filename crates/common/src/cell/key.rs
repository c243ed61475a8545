//! [`KeyBuf`], an owned flat key to seek with.

use super::{CellRef, CellType, KEY_FIXED_BYTES, LATEST_TIMESTAMP, OLDEST_TIMESTAMP, ROW_BYTES_MAX};
use crate::length;

/// Appends a flat key: `u16 row_len | row | u8 family_len | family | qualifier | i64 timestamp | u8
/// type`.
///
/// # Panics
/// If the row or the family is longer than [`super::ROW_BYTES_MAX`] or [`super::FAMILY_BYTES_MAX`],
/// which the caller has checked.
pub fn write_key(
    out: &mut Vec<u8>,
    row: &[u8],
    family: &[u8],
    qualifier: &[u8],
    timestamp: i64,
    type_code: u8,
) {
    assert!(row.len() <= super::ROW_BYTES_MAX && family.len() <= super::FAMILY_BYTES_MAX);
    out.reserve(KEY_FIXED_BYTES + row.len() + family.len() + qualifier.len());
    out.extend_from_slice(&length::must_u16(row.len()).to_be_bytes());
    out.extend_from_slice(row);
    out.push(length::must_u8(family.len()));
    out.extend_from_slice(family);
    out.extend_from_slice(qualifier);
    out.extend_from_slice(&timestamp.to_be_bytes());
    out.push(type_code);
}

/// An owned flat key without a value, for scanners to seek to. It is reusable: the `set_*` methods
/// keep the buffer.
///
/// Seek keys have the sequence id `u64::MAX`, so they sort before stored cells of the same key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyBuf {
    bytes: Vec<u8>,
}

impl KeyBuf {
    /// A key with the given parts.
    pub fn new(row: &[u8], family: &[u8], qualifier: &[u8], timestamp: i64, kind: CellType) -> Self {
        let mut key = Self::default();
        key.set(row, family, qualifier, timestamp, kind);
        key
    }

    /// A copy of a cell's key.
    pub fn of(cell: &CellRef<'_>) -> Self {
        Self { bytes: cell.key().to_vec() }
    }

    /// A key that sorts before every cell of the row. If the row is longer than [`ROW_BYTES_MAX`],
    /// the key sorts after the cells of its longest legal prefix: no cell lies between.
    pub fn first_on_row(row: &[u8]) -> Self {
        match row.get(..ROW_BYTES_MAX) {
            Some(longest) if longest.len() < row.len() => Self::last_on_row(longest),
            _ => Self::new(row, b"", b"", LATEST_TIMESTAMP, CellType::Maximum),
        }
    }

    /// A key that sorts after every cell of the row, and before the next row. For a row longer than
    /// [`ROW_BYTES_MAX`] see [`KeyBuf::first_on_row`].
    pub fn last_on_row(row: &[u8]) -> Self {
        let row = row.get(..ROW_BYTES_MAX).unwrap_or(row);
        Self::new(row, b"", b"", OLDEST_TIMESTAMP, CellType::Minimum)
    }

    /// A key that sorts before every cell of the column.
    pub fn first_on_column(row: &[u8], family: &[u8], qualifier: &[u8]) -> Self {
        Self::new(row, family, qualifier, LATEST_TIMESTAMP, CellType::Maximum)
    }

    /// A key that sorts after every cell of the column.
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
    /// If the `KeyBuf` was never set.
    pub fn as_cell(&self) -> CellRef<'_> {
        CellRef::from_checked(&self.bytes, &[], &[], u64::MAX)
    }

    /// The flat key.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns true if the key was never set.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CellComparator, KeyValue};

    #[test]
    fn an_overlong_search_row_sorts_between_legal_rows() {
        let longest = vec![b'b'; ROW_BYTES_MAX];
        let (too_long, order) = ([&longest[..], b"a"].concat(), CellComparator::Default);
        let cell = |row: &[u8]| KeyValue::put(row, b"f", b"q", 5, b"v");
        for key in [KeyBuf::first_on_row(&too_long), KeyBuf::last_on_row(&too_long)] {
            assert!(order.compare(&cell(&longest).as_cell(), &key.as_cell()).is_lt());
            assert!(order.compare(&key.as_cell(), &cell(b"c").as_cell()).is_lt());
        }
        let first = KeyBuf::first_on_row(&longest);
        assert!(order.compare(&first.as_cell(), &cell(&longest).as_cell()).is_lt());
    }
}
