//! Reads the cells of a request's block, one at a time.

use bytes::{Buf, Bytes};
use evenkeel_common::cell::{FAMILY_BYTES_MAX, KEY_FIXED_BYTES, KEY_VALUE_PREFIX_BYTES, ROW_BYTES_MAX};
use evenkeel_common::{CellRef, CellType, HBaseError, KeyValue, Result};
use evenkeel_protocol::pb;
use prost::Message;

use super::CellCodec;
use crate::wire::{Malformed, take_bytes, take_u32, take_varint};

/// Largest length of a cell's tags.
const TAGS_BYTES_MAX: usize = u16::MAX as usize;

/// The cells of one block in order. With the KeyValue codecs a cell is a slice of the block, not a
/// copy.
///
/// A cell with invalid lengths is an `IOException`, as in HBase's decoders; after it the reader
/// ends.
#[derive(Debug, Clone)]
pub struct CellBlockReader {
    codec: CellCodec,
    block: Bytes,
}

impl CellBlockReader {
    /// Reads `block`, which must not be compressed.
    pub fn new(codec: CellCodec, block: Bytes) -> Self {
        CellBlockReader { codec, block }
    }

    /// The reader of a request without cells.
    pub fn none() -> Self {
        Self::new(CellCodec::KeyValue, Bytes::new())
    }

    /// Bytes that have not been read.
    pub fn remaining_bytes(&self) -> usize {
        self.block.len()
    }

    /// Returns the next cell; `None` at the end of the block.
    pub fn next_cell(&mut self) -> Result<Option<KeyValue>> {
        if self.block.is_empty() {
            return Ok(None);
        }
        let cell = match self.codec {
            CellCodec::KeyValue => self.next_key_value(false),
            CellCodec::KeyValueWithTags => self.next_key_value(true),
            CellCodec::Cell => self.next_parts(false),
            CellCodec::CellWithTags => self.next_parts(true),
            CellCodec::Message => self.next_message(),
        };
        if cell.is_err() {
            self.block.clear();
        }
        cell.map(Some)
    }

    /// Returns the next cell, which the message announced.
    ///
    /// # Errors
    /// Returns `DoNotRetryIOException` if the block has no more cells: message and block disagree.
    pub fn expect_cell(&mut self) -> Result<KeyValue> {
        self.next_cell()?.ok_or_else(|| {
            HBaseError::do_not_retry(
                "the cell block has fewer cells than the request's associated_cell_count",
            )
        })
    }

    fn next_key_value(&mut self, with_tags: bool) -> Result<KeyValue> {
        let mut rest = &self.block[..];
        let len = take_u32(&mut rest).map_err(partial_cell)? as usize;
        if len > rest.len() {
            return Err(partial_cell(Malformed));
        }
        self.block.advance(4);
        let bytes = self.block.split_to(len);
        match with_tags {
            true => KeyValue::parse(bytes),
            false => KeyValue::parse(without_tags(bytes)?),
        }
    }

    fn next_parts(&mut self, with_tags: bool) -> Result<KeyValue> {
        let mut rest = &self.block[..];
        let parts = Parts::take(&mut rest, with_tags).map_err(partial_cell)?;
        let cell = parts.build()?;
        let taken = self.block.len() - rest.len();
        self.block.advance(taken);
        Ok(cell)
    }

    fn next_message(&mut self) -> Result<KeyValue> {
        let mut rest = &self.block[..];
        let len = take_varint(&mut rest).map_err(partial_cell)?;
        let len = usize::try_from(len).ok().filter(|len| *len <= rest.len());
        let len = len.ok_or_else(|| partial_cell(Malformed))?;
        let prefix = self.block.len() - rest.len();
        self.block.advance(prefix);
        let cell = pb::Cell::decode(self.block.split_to(len))
            .map_err(|error| HBaseError::io(format!("a cell message cannot be read: {error}")))?;
        let kind = cell.cell_type.unwrap_or(i32::from(CellType::Put.code()));
        Parts {
            row: cell.row.as_deref().unwrap_or_default(),
            family: cell.family.as_deref().unwrap_or_default(),
            qualifier: cell.qualifier.as_deref().unwrap_or_default(),
            timestamp: cell.timestamp.unwrap_or_default() as i64,
            kind: u8::try_from(kind).map_err(|_| unknown_type(kind))?,
            value: cell.value.as_deref().unwrap_or_default(),
            tags: &[],
            seq_id: 0,
        }
        .build()
    }
}

impl Iterator for CellBlockReader {
    type Item = Result<KeyValue>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_cell().transpose()
    }
}

/// KeyValueCodec has no tags: bytes after the value are ignored, as in HBase.
fn without_tags(bytes: Bytes) -> Result<Bytes> {
    let mut rest = &bytes[..];
    let key_len = take_u32(&mut rest).map_err(partial_cell)? as usize;
    let value_len = take_u32(&mut rest).map_err(partial_cell)? as usize;
    let end = key_len.checked_add(value_len).and_then(|len| len.checked_add(KEY_VALUE_PREFIX_BYTES));
    match end.filter(|end| *end <= bytes.len()) {
        Some(end) if end == bytes.len() => Ok(bytes),
        Some(end) => Ok(bytes.slice(..end)),
        None => Err(partial_cell(Malformed)),
    }
}

fn partial_cell(_: Malformed) -> HBaseError {
    HBaseError::io("a length in the cell block extends past its end")
}

fn unknown_type(code: i32) -> HBaseError {
    HBaseError::io(format!("{code} is not a cell type"))
}

/// The parts of a cell, as the codecs other than the KeyValue ones encode it.
struct Parts<'a> {
    row: &'a [u8],
    family: &'a [u8],
    qualifier: &'a [u8],
    timestamp: i64,
    kind: u8,
    value: &'a [u8],
    tags: &'a [u8],
    seq_id: u64,
}

impl<'a> Parts<'a> {
    fn take(input: &mut &'a [u8], with_tags: bool) -> Result<Self, Malformed> {
        Ok(Parts {
            row: take_sized(input)?,
            family: take_sized(input)?,
            qualifier: take_sized(input)?,
            timestamp: take_i64(input)?,
            kind: take_bytes(input, 1)?.first().copied().ok_or(Malformed)?,
            value: take_sized(input)?,
            tags: if with_tags { take_sized(input)? } else { &[] },
            seq_id: take_i64(input)? as u64,
        })
    }

    fn build(&self) -> Result<KeyValue> {
        CellType::from_code(self.kind).ok_or_else(|| unknown_type(i32::from(self.kind)))?;
        let key_len = KEY_FIXED_BYTES + self.row.len() + self.family.len() + self.qualifier.len();
        let fits = self.row.len() <= ROW_BYTES_MAX
            && self.family.len() <= FAMILY_BYTES_MAX
            && self.tags.len() <= TAGS_BYTES_MAX
            && i32::try_from(key_len + self.value.len()).is_ok();
        if !fits {
            return Err(HBaseError::io("a part of a cell is longer than a KeyValue can hold"));
        }
        let mut key = Vec::with_capacity(key_len);
        evenkeel_common::cell::write_key(
            &mut key,
            self.row,
            self.family,
            self.qualifier,
            self.timestamp,
            self.kind,
        );
        let mut cell = KeyValue::copy_of(&CellRef::new(&key, self.value, self.tags, self.seq_id)?);
        cell.set_seq_id(self.seq_id);
        Ok(cell)
    }
}

fn take_sized<'a>(input: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let len = take_u32(input)? as usize;
    take_bytes(input, len)
}

fn take_i64(input: &mut &[u8]) -> Result<i64, Malformed> {
    let (head, rest) = input.split_first_chunk::<8>().ok_or(Malformed)?;
    *input = rest;
    Ok(i64::from_be_bytes(*head))
}
