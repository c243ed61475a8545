//! [`KeyValue`], an owned cell.

use bytes::{Bytes, BytesMut};

use super::{
    CellRef, CellType, FAMILY_BYTES_MAX, KEY_FIXED_BYTES, KEY_VALUE_PREFIX_BYTES, ROW_BYTES_MAX,
    TIMESTAMP_TYPE_BYTES, check_key_value_bytes, check_tags_bytes, write_key,
};
use crate::error::{HBaseError, Result};

/// An owned cell: the bytes of one KeyValue (often a slice of a request's buffer) and its sequence
/// id.
///
/// Invariant: the bytes were checked at construction, so [`KeyValue::as_cell`] cannot fail.
#[derive(Clone)]
pub struct KeyValue {
    bytes: Bytes,
    /// Replaces the key in `bytes`, from which it differs in the timestamp. `bytes` may be shared,
    /// so they are never changed; a value may be long, so it is not copied.
    own_key: Option<Bytes>,
    seq_id: u64,
}

impl KeyValue {
    /// Takes the bytes of exactly one KeyValue.
    ///
    /// # Errors
    /// `IOException` if a length does not match the bytes.
    pub fn parse(bytes: Bytes) -> Result<Self> {
        CellRef::parse(&bytes, 0)?;
        Ok(Self::whole(bytes, 0))
    }

    fn whole(bytes: Bytes, seq_id: u64) -> Self {
        Self { bytes, own_key: None, seq_id }
    }

    /// A put with no tags.
    ///
    /// # Panics
    /// As [`KeyValueBuilder::build`].
    pub fn put(row: &[u8], family: &[u8], qualifier: &[u8], timestamp: i64, value: &[u8]) -> Self {
        Self::new(row, family, qualifier, timestamp, CellType::Put, value)
    }

    /// A cell of the given parts, without tags.
    ///
    /// # Panics
    /// As [`KeyValueBuilder::build`].
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
        Self::whole(bytes.into(), cell.seq_id())
    }

    /// The cell as a view.
    #[inline]
    pub fn as_cell(&self) -> CellRef<'_> {
        let cell = CellRef::parse_checked(&self.bytes, self.seq_id);
        match &self.own_key {
            None => cell,
            Some(key) => CellRef::from_parts(key, cell.value(), cell.tags(), self.seq_id, cell.key_lengths()),
        }
    }

    /// The KeyValue's bytes, shared unless the timestamp was replaced.
    pub fn to_bytes(&self) -> Bytes {
        match self.own_key {
            None => self.bytes.clone(),
            Some(_) => Self::copy_of(&self.as_cell()).bytes,
        }
    }

    /// The length of the KeyValue in bytes.
    pub fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    /// The sequence id; 0 until the region assigns one.
    pub fn seq_id(&self) -> u64 {
        self.seq_id
    }

    /// Assigns the sequence id.
    pub fn set_seq_id(&mut self, seq_id: u64) {
        self.seq_id = seq_id;
    }

    /// The same cell with another timestamp; its value is shared.
    pub fn with_timestamp(&self, timestamp: i64) -> Self {
        let mut key = self.as_cell().key().to_vec();
        set_timestamp(&mut key, timestamp);
        Self { bytes: self.bytes.clone(), own_key: Some(key.into()), seq_id: self.seq_id }
    }

    /// As [`KeyValue::with_timestamp`], with its key in the memory of `keys`: the keys of a batch
    /// need one allocation, which lives as long as any of them.
    pub fn with_timestamp_in(&self, timestamp: i64, keys: &mut BytesMut) -> Self {
        keys.extend_from_slice(self.as_cell().key());
        let mut key = keys.split();
        set_timestamp(&mut key, timestamp);
        Self { bytes: self.bytes.clone(), own_key: Some(key.freeze()), seq_id: self.seq_id }
    }
}

#[cfg_attr(
    not(test),
    expect(clippy::indexing_slicing, reason = "every key ends with a timestamp and a type")
)]
fn set_timestamp(key: &mut [u8], timestamp: i64) {
    let key_end = key.len();
    key[key_end - TIMESTAMP_TYPE_BYTES..key_end - 1].copy_from_slice(&timestamp.to_be_bytes());
}

impl PartialEq for KeyValue {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (self.as_cell(), other.as_cell());
        (a.key(), a.value(), a.tags(), a.seq_id()) == (b.key(), b.value(), b.tags(), b.seq_id())
    }
}

impl Eq for KeyValue {}

impl std::fmt::Debug for KeyValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_cell().fmt(f)
    }
}

/// The parts from which to build a [`KeyValue`].
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
    /// Raw tags, at most [`super::TAGS_BYTES_MAX`] bytes.
    pub tags: &'a [u8],
}

impl KeyValueBuilder<'_> {
    /// Builds the KeyValue of parts that are known to fit. [`KeyValueBuilder::try_build`] is for
    /// parts that derive from input.
    ///
    /// # Panics
    /// If a part is longer than its field allows.
    pub fn build(&self) -> KeyValue {
        self.try_build().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Builds the KeyValue of the parts.
    ///
    /// # Errors
    /// `DoNotRetryIOException` if a part is longer than its field allows, with HBase's message.
    pub fn try_build(&self) -> Result<KeyValue> {
        let illegal = |what| Err(HBaseError::do_not_retry(what));
        let (row, family) = (self.row.len(), self.family.len());
        if row > ROW_BYTES_MAX {
            return illegal(format!("Row length {row} is > {ROW_BYTES_MAX}"));
        }
        if family > FAMILY_BYTES_MAX {
            return illegal(format!("Family > {FAMILY_BYTES_MAX}"));
        }
        check_tags_bytes(self.tags.len())?;
        let key_bytes = KEY_FIXED_BYTES + row + family + self.qualifier.len();
        let tags_bytes = if self.tags.is_empty() { 0 } else { 2 + self.tags.len() };
        check_key_value_bytes(KEY_VALUE_PREFIX_BYTES + key_bytes + self.value.len() + tags_bytes)?;
        let mut key = Vec::with_capacity(key_bytes);
        write_key(&mut key, self.row, self.family, self.qualifier, self.timestamp, self.kind.code());
        Ok(KeyValue::copy_of(&CellRef::from_checked(&key, self.value, self.tags, 0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_timestamp_shares_the_value_and_keeps_the_original() {
        let at = |timestamp| KeyValueBuilder {
            row: b"row",
            family: b"f",
            qualifier: b"q",
            timestamp,
            kind: CellType::Put,
            value: b"value",
            tags: b"\0\x02\x08x",
        };
        let cell = at(1).build();
        let mut later = cell.with_timestamp(5).with_timestamp(-2);
        assert_eq!((&cell, &later), (&at(1).build(), &at(-2).build()));
        assert_ne!(cell, later);
        assert_eq!(later.as_cell().value().as_ptr(), cell.as_cell().value().as_ptr());
        assert_eq!(later.to_bytes(), at(-2).build().to_bytes());
        assert_eq!((later.bytes_len(), cell.to_bytes().len()), (cell.bytes_len(), cell.bytes_len()));
        let mut keys = BytesMut::with_capacity(100);
        for timestamp in [7, 8] {
            let stamped = cell.with_timestamp_in(timestamp, &mut keys);
            assert_eq!(stamped, at(timestamp).build());
            assert_eq!(stamped.as_cell().value().as_ptr(), cell.as_cell().value().as_ptr());
        }
        later.set_seq_id(9);
        assert_eq!((later.as_cell().seq_id(), later.as_cell().timestamp()), (9, -2));
        assert_ne!(later, at(-2).build(), "the sequence id is a part of the cell");
    }
}
