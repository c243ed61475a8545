//! [`KeyValue`], an owned cell.

use bytes::Bytes;

use super::{CellRef, CellType, KEY_VALUE_PREFIX_BYTES, TIMESTAMP_TYPE_BYTES, write_key};
use crate::error::Result;

/// An owned cell: the bytes of one KeyValue (often a slice of a request's buffer) and its sequence id.
///
/// Invariant: the bytes were parsed once; [`KeyValue::as_cell`] cannot fail.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyValue {
    bytes: Bytes,
    seq_id: u64,
}

impl KeyValue {
    /// Takes the bytes of exactly one KeyValue.
    ///
    /// # Errors
    /// `IOException` when a length disagrees with the bytes that are there.
    pub fn parse(bytes: Bytes) -> Result<Self> {
        CellRef::parse(&bytes, 0)?;
        Ok(Self { bytes, seq_id: 0 })
    }

    /// A put with no tags.
    pub fn put(row: &[u8], family: &[u8], qualifier: &[u8], timestamp: i64, value: &[u8]) -> Self {
        Self::new(row, family, qualifier, timestamp, CellType::Put, value)
    }

    /// A cell of all its parts but tags.
    pub fn new(
        row: &[u8],
        family: &[u8],
        qualifier: &[u8],
        timestamp: i64,
        kind: CellType,
        value: &[u8],
    ) -> Self {
        KeyValueBuilder { row, family, qualifier, timestamp, kind, value, tags: &[] }.build()
    }

    /// A copy of a cell.
    pub fn copy_of(cell: &CellRef<'_>) -> Self {
        let mut bytes = Vec::with_capacity(cell.key_value_len());
        cell.write_key_value(&mut bytes, true);
        Self { bytes: bytes.into(), seq_id: cell.seq_id() }
    }

    /// The cell as a view.
    #[inline]
    pub fn as_cell(&self) -> CellRef<'_> {
        CellRef::parse_checked(&self.bytes, self.seq_id)
    }

    /// The KeyValue's bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The sequence id; 0 until the region assigns one.
    pub fn seq_id(&self) -> u64 {
        self.seq_id
    }

    /// Assigns the sequence id.
    pub fn set_seq_id(&mut self, seq_id: u64) {
        self.seq_id = seq_id;
    }

    /// A copy with another timestamp (the bytes may be shared, so they are never changed in place).
    pub fn with_timestamp(&self, timestamp: i64) -> Self {
        let mut bytes = self.bytes.to_vec();
        let key_end = KEY_VALUE_PREFIX_BYTES + self.as_cell().key().len();
        bytes[key_end - TIMESTAMP_TYPE_BYTES..key_end - 1].copy_from_slice(&timestamp.to_be_bytes());
        Self { bytes: bytes.into(), seq_id: self.seq_id }
    }
}

impl std::fmt::Debug for KeyValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_cell().fmt(f)
    }
}

/// The parts of a cell, to build a [`KeyValue`] from.
#[derive(Clone, Copy, Debug)]
pub struct KeyValueBuilder<'a> {
    /// The row, at most [`super::ROW_BYTES_MAX`] bytes.
    pub row: &'a [u8],
    /// The family, at most [`super::FAMILY_BYTES_MAX`] bytes.
    pub family: &'a [u8],
    /// The qualifier.
    pub qualifier: &'a [u8],
    /// Milliseconds since 1970.
    pub timestamp: i64,
    /// The type.
    pub kind: CellType,
    /// The value.
    pub value: &'a [u8],
    /// Raw tags, at most 65,535 bytes.
    pub tags: &'a [u8],
}

impl KeyValueBuilder<'_> {
    /// Lays the parts out as a KeyValue.
    pub fn build(&self) -> KeyValue {
        let mut key = Vec::new();
        write_key(&mut key, self.row, self.family, self.qualifier, self.timestamp, self.kind.code());
        KeyValue::copy_of(&CellRef::from_checked(&key, self.value, self.tags, 0))
    }
}
