//! Delta encodings: PREFIX, DIFF and FAST_DIFF store a cell's differences from the previous cell.
//!
//! ```text
//! body   = u16 id | i32 bytes unencoded | [ DIFF: u8 family_len | family ] | cell ...
//! cell   = the encoding's part [ | varint tags_len | tags ] [ | vlong sequence id ]
//!
//! PREFIX    varint key bytes that follow | varint value_len | varint common | key[common..]
//!           | value
//! DIFF      u8 flags | [varint key_len] | [varint value_len] | varint common | key part
//!           | timestamp | [u8 type] | value
//!           flags: 1 same key length, 2 same value length, 4 same type,
//!                  8 timestamp is (previous - this), 16..64 bytes of timestamp less one,
//!                  128 timestamp (or difference) is negative
//!           timestamp: magnitude, lowest byte first
//! FAST_DIFF u8 flags | [varint key_len] | [varint value_len] | varint common | key part
//!           | timestamp | [u8 type] | [value]
//!           flags: 1..4 leading bytes that the timestamp shares, 8 same key length,
//!                  16 same value length, 32 same type, 64 same value
//!           timestamp: the other bytes, highest first
//! ```
//!
//! `common` counts from the start of the flat key (row length, row, family length, family,
//! qualifier). Only with PREFIX may it reach into timestamp and type. The *key part* of DIFF and
//! FAST_DIFF is the flat key from `common` up to the end of the qualifier. It excludes the family
//! unless the row is common: all cells of a block have one family.
//!
//! # Cursor
//! The cursor builds the key in a private buffer; the value stays in the block. A seek point at
//! every [`POINT_CELLS`]th cell holds the state of a cursor, so a search need not start at the
//! first cell of the block. Compressed tags depend on all earlier tags, so a block with compressed
//! tags has one seek point.

use evenkeel_block_cache::Block;
use evenkeel_common::CellRef;
use evenkeel_common::cell::TIMESTAMP_TYPE_BYTES;

use super::byte_reader::ByteReader;
use super::tags::TagDictionary;
use super::{BlockCursor, Malformed, SeekPoints};
use crate::context::{CellLayout, DataBlockEncoding};

pub(super) mod diff_flag {
    pub const SAME_KEY_LEN: u8 = 1;
    pub const SAME_VALUE_LEN: u8 = 1 << 1;
    pub const SAME_TYPE: u8 = 1 << 2;
    pub const IS_DIFFERENCE: u8 = 1 << 3;
    pub const TIMESTAMP_BYTES_SHIFT: u8 = 4;
    pub const NEGATIVE: u8 = 1 << 7;
}

pub(super) mod fast_flag {
    pub const TIMESTAMP_COMMON: u8 = 7;
    pub const SAME_KEY_LEN: u8 = 1 << 3;
    pub const SAME_VALUE_LEN: u8 = 1 << 4;
    pub const SAME_TYPE: u8 = 1 << 5;
    pub const SAME_VALUE: u8 = 1 << 6;
}

/// Cells per seek point.
const POINT_CELLS: usize = 16;
/// Words of a seek point: see [`SeekPoint`].
const POINT_WORDS: usize = 9;
/// Bytes before DIFF's family or the first cell: id and unencoded size.
pub(super) const HEAD_BYTES: usize = 2 + 4;

/// A position among delta-encoded cells.
#[derive(Debug)]
pub(crate) struct DeltaCursor {
    layout: CellLayout,
    /// The current cell's flat key.
    key: Vec<u8>,
    /// The block's family, after its length.
    family: Vec<u8>,
    at: CellSpans,
    /// Uncompressed tags, if the block has compressed ones.
    tags: Vec<u8>,
    dictionary: TagDictionary,
    /// The block was not parsed, so keys are checked as they are built.
    checks_keys: bool,
}

/// The ranges of the cell's parts in the body.
#[derive(Clone, Copy, Debug, Default)]
struct CellSpans {
    value_start: usize,
    value_end: usize,
    tags_start: usize,
    tags_end: usize,
    seq_id: u64,
    next: usize,
}

impl DeltaCursor {
    pub fn new(layout: CellLayout) -> Self {
        Self {
            layout,
            key: Vec::new(),
            family: Vec::new(),
            at: CellSpans::default(),
            tags: Vec::new(),
            dictionary: TagDictionary::default(),
            checks_keys: false,
        }
    }

    /// The offset in the body of the current cell's end.
    pub fn cell_end(&self) -> usize {
        self.at.next
    }

    /// Moves to the first cell of a body.
    fn start(&mut self, body: &[u8]) -> Result<(), Malformed> {
        self.key.clear();
        self.family.clear();
        self.dictionary.clear();
        self.at = CellSpans { next: HEAD_BYTES, ..CellSpans::default() };
        if self.layout.encoding == DataBlockEncoding::Diff {
            let mut input = ByteReader::new(body, HEAD_BYTES);
            let family_len = input.byte()?;
            self.family.push(family_len);
            self.family.extend_from_slice(input.bytes(usize::from(family_len))?);
            self.at.next = input.position();
        }
        self.advance(body)?;
        self.remember_family()
    }

    /// Moves to the next cell, which must exist.
    #[inline]
    fn advance(&mut self, body: &[u8]) -> Result<(), Malformed> {
        let mut input = ByteReader::new(body, self.at.next);
        match self.layout.encoding {
            DataBlockEncoding::Prefix => self.prefix(&mut input)?,
            DataBlockEncoding::Diff => self.diff(&mut input)?,
            _ => self.fast_diff(&mut input)?,
        }
        if self.layout.includes_tags {
            self.read_tags(&mut input)?;
        }
        self.at.seq_id = if self.layout.includes_mvcc { input.seq_id()? } else { 0 };
        self.at.next = input.position();
        Ok(())
    }

    fn prefix(&mut self, input: &mut ByteReader<'_>) -> Result<(), Malformed> {
        let key_rest = input.varint()?;
        let value_len = input.varint()?;
        let common = input.varint()?;
        if common > self.key.len() {
            return Err(Malformed);
        }
        self.key.truncate(common);
        self.key.extend_from_slice(input.bytes(key_rest)?);
        self.read_value(input, value_len)
    }

    fn diff(&mut self, input: &mut ByteReader<'_>) -> Result<(), Malformed> {
        use diff_flag::*;
        let flags = input.byte()?;
        let (key_len, value_len) =
            self.read_lengths(input, flags & SAME_KEY_LEN != 0, flags & SAME_VALUE_LEN != 0)?;
        let common = input.varint()?;
        let (timestamp, kind) = self.timestamp_and_type();
        self.build_body(input, key_len, common)?;
        let magnitude_bytes = input.bytes(usize::from(flags >> TIMESTAMP_BYTES_SHIFT & 7) + 1)?;
        let magnitude = magnitude_bytes.iter().rev().fold(0u64, |v, b| v << 8 | u64::from(*b)) as i64;
        let signed = if flags & NEGATIVE != 0 { magnitude.wrapping_neg() } else { magnitude };
        let timestamp = if flags & IS_DIFFERENCE != 0 { timestamp.wrapping_sub(signed) } else { signed };
        self.key.extend_from_slice(&timestamp.to_be_bytes());
        self.key.push(if flags & SAME_TYPE != 0 { kind } else { input.byte()? });
        self.read_value(input, value_len)
    }

    fn fast_diff(&mut self, input: &mut ByteReader<'_>) -> Result<(), Malformed> {
        use fast_flag::*;
        let flags = input.byte()?;
        let (key_len, value_len) =
            self.read_lengths(input, flags & SAME_KEY_LEN != 0, flags & SAME_VALUE_LEN != 0)?;
        let common = input.varint()?;
        if self.key.is_empty() {
            return self.fast_diff_first(input, key_len, value_len, common);
        }
        let (timestamp, kind) = self.timestamp_and_type();
        self.build_body(input, key_len, common)?;
        let timestamp_common = usize::from(flags & TIMESTAMP_COMMON);
        self.key.extend_from_slice(timestamp.to_be_bytes().get(..timestamp_common).ok_or(Malformed)?);
        self.key.extend_from_slice(input.bytes(8 - timestamp_common)?);
        self.key.push(if flags & SAME_TYPE != 0 { kind } else { input.byte()? });
        if flags & SAME_VALUE == 0 {
            return self.read_value(input, value_len);
        }
        if value_len == self.value_len() { Ok(()) } else { Err(Malformed) }
    }

    fn fast_diff_first(
        &mut self,
        input: &mut ByteReader<'_>,
        key_len: usize,
        value_len: usize,
        common: usize,
    ) -> Result<(), Malformed> {
        if common != 0 {
            return Err(Malformed);
        }
        self.key.extend_from_slice(input.bytes(key_len)?);
        self.read_value(input, value_len)
    }

    fn read_lengths(
        &self,
        input: &mut ByteReader<'_>,
        same_key: bool,
        same_value: bool,
    ) -> Result<(usize, usize), Malformed> {
        let key_len = if same_key { self.key.len() } else { input.varint()? };
        let value_len = if same_value { self.value_len() } else { input.varint()? };
        Ok((key_len, value_len))
    }

    /// Builds a key of `key_len` up to the end of the qualifier.
    fn build_body(
        &mut self,
        input: &mut ByteReader<'_>,
        key_len: usize,
        common: usize,
    ) -> Result<(), Malformed> {
        let body_len = key_len.checked_sub(TIMESTAMP_TYPE_BYTES).ok_or(Malformed)?;
        if common > body_len.min(self.key.len().saturating_sub(TIMESTAMP_TYPE_BYTES)) {
            return Err(Malformed);
        }
        self.key.truncate(common);
        if common < 2 {
            self.key.extend_from_slice(input.bytes(2 - common)?);
        }
        let row_len = self.key.first_chunk().ok_or(Malformed)?;
        let row_end = 2 + usize::from(u16::from_be_bytes(*row_len));
        if common < row_end {
            let row_rest = row_end.checked_sub(self.key.len()).ok_or(Malformed)?;
            self.key.extend_from_slice(input.bytes(row_rest)?);
            self.key.extend_from_slice(&self.family);
        }
        let rest = body_len.checked_sub(self.key.len()).ok_or(Malformed)?;
        self.key.extend_from_slice(input.bytes(rest)?);
        Ok(())
    }

    fn read_value(&mut self, input: &mut ByteReader<'_>, value_len: usize) -> Result<(), Malformed> {
        self.at.value_start = input.position();
        input.bytes(value_len)?;
        self.at.value_end = input.position();
        Ok(())
    }

    fn read_tags(&mut self, input: &mut ByteReader<'_>) -> Result<(), Malformed> {
        let tags_len = input.varint()?;
        if tags_len > usize::from(u16::MAX) {
            return Err(Malformed);
        }
        if self.layout.compressed_tags {
            self.tags.clear();
            return self.dictionary.decompress(input, tags_len, &mut self.tags);
        }
        self.at.tags_start = input.position();
        input.bytes(tags_len)?;
        self.at.tags_end = input.position();
        Ok(())
    }

    fn value_len(&self) -> usize {
        self.at.value_end - self.at.value_start
    }

    /// The timestamp and type of the current key; zeros before the first key.
    fn timestamp_and_type(&self) -> (i64, u8) {
        match self.key.last_chunk::<TIMESTAMP_TYPE_BYTES>() {
            Some([a, b, c, d, e, f, g, h, kind]) => {
                (i64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]), *kind)
            }
            None => (0, 0),
        }
    }

    fn remember_family(&mut self) -> Result<(), Malformed> {
        let cell = CellRef::new(&self.key, &[], &[], 0).map_err(|_| Malformed)?;
        self.family.clear();
        self.family.push(cell.key_lengths().1);
        self.family.extend_from_slice(cell.family());
        Ok(())
    }

    #[expect(clippy::indexing_slicing, reason = "`advance` found these ranges in the same body")]
    fn view<'a>(&'a self, body: &'a [u8]) -> CellRef<'a> {
        let tags = match self.layout.compressed_tags {
            true => &self.tags[..],
            false => &body[self.at.tags_start..self.at.tags_end],
        };
        CellRef::from_checked(&self.key, &body[self.at.value_start..self.at.value_end], tags, self.at.seq_id)
    }

    fn point_of(&self, key_start: usize) -> Result<[u32; POINT_WORDS], Malformed> {
        let words = [
            self.at.next,
            key_start,
            key_start + self.key.len(),
            self.at.value_start,
            self.at.value_end,
            self.at.tags_start,
            self.at.tags_end,
            (self.at.seq_id >> 32) as usize,
            (self.at.seq_id & 0xffff_ffff) as usize,
        ];
        let mut point = [0; POINT_WORDS];
        for (word, value) in point.iter_mut().zip(words) {
            *word = u32::try_from(value).map_err(|_| Malformed)?;
        }
        Ok(point)
    }
}

/// The state of a cursor at a cell.
struct SeekPoint<'a> {
    key: &'a [u8],
    at: CellSpans,
}

impl<'a> SeekPoint<'a> {
    fn of(block: &'a Block, point: usize) -> Result<Self, Malformed> {
        let words = block.seek_points().get(point * POINT_WORDS..).and_then(|rest| rest.first_chunk());
        let [next, key_start, key_end, value_start, value_end, tags_start, tags_end, high, low]: [u32;
            POINT_WORDS] = *words.ok_or(Malformed)?;
        let key = block.seek_keys().get(key_start as usize..key_end as usize).ok_or(Malformed)?;
        let at = CellSpans {
            value_start: value_start as usize,
            value_end: value_end as usize,
            tags_start: tags_start as usize,
            tags_end: tags_end as usize,
            seq_id: u64::from(high) << 32 | u64::from(low),
            next: next as usize,
        };
        Ok(Self { key, at })
    }
}

impl BlockCursor for DeltaCursor {
    fn points(&self, block: &Block) -> usize {
        block.seek_points().len() / POINT_WORDS
    }

    fn point_key<'a>(&self, block: &'a Block, point: usize) -> Result<CellRef<'a>, Malformed> {
        self.point_cell(block, point)
    }

    fn point_cell<'a>(&self, block: &'a Block, point: usize) -> Result<CellRef<'a>, Malformed> {
        let point = SeekPoint::of(block, point)?;
        Ok(CellRef::from_checked(point.key, &[], &[], point.at.seq_id))
    }

    fn enter(&mut self, block: &Block, point: usize) -> Result<(), Malformed> {
        self.checks_keys = block.seek_points().is_empty();
        if self.layout.compressed_tags || self.checks_keys {
            return self.start(block.data());
        }
        let point = SeekPoint::of(block, point)?;
        self.key.clear();
        self.key.extend_from_slice(point.key);
        self.at = point.at;
        self.remember_family()
    }

    #[inline]
    fn step<'a>(&'a mut self, block: &'a Block) -> Result<Option<CellRef<'a>>, Malformed> {
        let body = block.data();
        if self.at.next >= body.len() {
            return Ok(None);
        }
        self.advance(body)?;
        if self.checks_keys {
            CellRef::new(&self.key, &[], &[], 0).map_err(|_| Malformed)?;
        }
        Ok(Some(self.view(body)))
    }

    #[inline]
    fn cell<'a>(&'a self, block: &'a Block) -> CellRef<'a> {
        self.view(block.data())
    }
}

/// Parses a block's body once: builds and checks every cell, and computes the seek points.
pub(crate) fn index(body: &[u8], layout: CellLayout) -> Result<SeekPoints, Malformed> {
    let mut cursor = DeltaCursor::new(layout);
    let (mut points, mut keys) = (Vec::new(), Vec::new());
    cursor.start(body)?;
    for cells in 0usize.. {
        CellRef::new(&cursor.key, &[], &[], 0).map_err(|_| Malformed)?;
        if cells == 0 || (cells.is_multiple_of(POINT_CELLS) && !layout.compressed_tags) {
            points.extend_from_slice(&cursor.point_of(keys.len())?);
            keys.extend_from_slice(&cursor.key);
        }
        if cursor.at.next >= body.len() {
            break;
        }
        cursor.advance(body)?;
    }
    Ok(SeekPoints { points: points.into(), keys: keys.into() })
}
