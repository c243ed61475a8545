//! Encoding the cells of one data block.

#![expect(clippy::indexing_slicing, reason = "encodes cells of this process, whose keys were checked")]

use std::ops::Range;

use evenkeel_common::CellRef;
use evenkeel_common::cell::TIMESTAMP_TYPE_BYTES;
use evenkeel_common::length;
use evenkeel_common::varint::{vlong_len, write_varint, write_vlong};

use super::delta::{HEAD_BYTES, diff_flag, fast_flag};
use super::tags::TagDictionary;
use crate::context::{CellLayout, DataBlockEncoding};

/// Builds the bodies of data blocks in turn.
#[derive(Debug)]
pub(crate) struct DataBlockEncoder {
    layout: CellLayout,
    /// Bytes of the block without encoding.
    unencoded_bytes: usize,
    /// Bytes of the encoded cells, without the head and tail of the body.
    encoded_bytes: usize,
    cells: usize,
    /// Offsets of the rows, relative to the first cell (ROW_INDEX_V1).
    row_offsets: Vec<u32>,
    /// The range of the last value in the block.
    last_value: Range<usize>,
    dictionary: TagDictionary,
}

impl DataBlockEncoder {
    pub fn new(layout: CellLayout) -> Self {
        Self {
            layout,
            unencoded_bytes: 0,
            encoded_bytes: 0,
            cells: 0,
            row_offsets: Vec::new(),
            last_value: 0..0,
            dictionary: TagDictionary::default(),
        }
    }

    /// Returns true if the block has reached a size, encoded or not.
    pub fn reached(&self, block_bytes: usize) -> bool {
        self.encoded_bytes >= block_bytes || self.unencoded_bytes >= block_bytes
    }

    /// Starts a block: writes the bytes before the cells. `out` holds the block including its
    /// header.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        (self.unencoded_bytes, self.encoded_bytes, self.cells) = (0, 0, 0);
        self.row_offsets.clear();
        self.dictionary.clear();
        if self.layout.encoding != DataBlockEncoding::None {
            out.extend_from_slice(&length::must_u16(self.layout.encoding.code() as usize).to_be_bytes());
        }
        if self.is_delta() {
            out.extend_from_slice(&[0; HEAD_BYTES - 2]);
        }
    }

    /// Adds a cell. In DIFF and FAST_DIFF all cells of a block have one family. `last_key` is the
    /// flat key of the previous cell, of this block or an earlier one. `shared` is the
    /// [`shared_bytes`] of both keys.
    pub fn append(&mut self, cell: &CellRef<'_>, last_key: &[u8], shared: usize, out: &mut Vec<u8>) {
        let last = PreviousCell { key: last_key, shared };
        let start = out.len();
        self.unencoded_bytes += self.unencoded_len(cell);
        match self.layout.encoding {
            DataBlockEncoding::None => append_raw(cell, self.layout, out),
            DataBlockEncoding::RowIndexV1 => self.append_indexed(cell, &last, out),
            _ => self.append_delta(cell, &last, out),
        }
        self.encoded_bytes += out.len() - start;
        self.cells += 1;
    }

    /// Ends the block, whose body begins at `body_start`: writes the bytes after the cells, and
    /// fills in the sizes before them.
    pub fn end(&mut self, out: &mut Vec<u8>, body_start: usize) {
        if self.layout.encoding == DataBlockEncoding::RowIndexV1 {
            let cells_bytes = self.encoded_bytes - 4 * self.row_offsets.len();
            out.extend_from_slice(&length::must_u32(self.row_offsets.len()).to_be_bytes());
            self.row_offsets.iter().for_each(|offset| out.extend_from_slice(&offset.to_be_bytes()));
            out.extend_from_slice(&length::must_u32(cells_bytes).to_be_bytes());
        } else if self.is_delta() {
            let unencoded_bytes = length::must_u32(self.unencoded_bytes).to_be_bytes();
            out[body_start + 2..body_start + HEAD_BYTES].copy_from_slice(&unencoded_bytes);
        }
    }

    fn is_delta(&self) -> bool {
        !matches!(self.layout.encoding, DataBlockEncoding::None | DataBlockEncoding::RowIndexV1)
    }

    fn append_indexed(&mut self, cell: &CellRef<'_>, last: &PreviousCell<'_>, out: &mut Vec<u8>) {
        if self.cells == 0 || last.shared < 2 + cell.row().len() {
            self.row_offsets.push(length::must_u32(self.encoded_bytes - 4 * self.row_offsets.len()));
            self.encoded_bytes += 4;
        }
        append_raw(cell, self.layout, out);
    }

    fn append_delta(&mut self, cell: &CellRef<'_>, last: &PreviousCell<'_>, out: &mut Vec<u8>) {
        match self.layout.encoding {
            DataBlockEncoding::Prefix => self.append_prefix(cell, last, out),
            DataBlockEncoding::Diff => self.append_diff(cell, last, out),
            _ => self.append_fast_diff(cell, last, out),
        }
        self.append_tags_and_mvcc(cell, out);
    }

    fn append_prefix(&mut self, cell: &CellRef<'_>, last: &PreviousCell<'_>, out: &mut Vec<u8>) {
        let common = if self.cells == 0 { 0 } else { last.shared_with_timestamp(cell.key()) };
        write_varint(out, (cell.key().len() - common) as u64);
        write_varint(out, cell.value().len() as u64);
        write_varint(out, common as u64);
        out.extend_from_slice(&cell.key()[common..]);
        self.append_value(cell, out);
    }

    fn append_diff(&mut self, cell: &CellRef<'_>, last: &PreviousCell<'_>, out: &mut Vec<u8>) {
        use diff_flag::*;
        if self.cells == 0 {
            out.push(cell.key_lengths().1);
            out.extend_from_slice(cell.family());
        }
        let same = self.same(cell, last);
        let flags = [(same.key_len, SAME_KEY_LEN), (same.value_len, SAME_VALUE_LEN), (same.kind, SAME_TYPE)];
        let flags = flags.into_iter().filter(|(set, _)| *set).fold(0, |flags, (_, flag)| flags | flag);
        let timestamp = self.shortest_timestamp(last, cell.timestamp());
        let bytes = timestamp.bytes();
        out.push(flags | timestamp.flags | (length::must_u8(bytes) - 1) << TIMESTAMP_BYTES_SHIFT);
        self.append_lengths_and_body(cell, &same, out);
        out.extend_from_slice(&timestamp.magnitude.to_le_bytes()[..bytes]);
        if !same.kind {
            out.push(cell.type_code());
        }
        self.append_value(cell, out);
    }

    fn append_fast_diff(&mut self, cell: &CellRef<'_>, last: &PreviousCell<'_>, out: &mut Vec<u8>) {
        use fast_flag::*;
        let same = self.same(cell, last);
        let same_value = self.cells > 0 && out[self.last_value.clone()] == *cell.value();
        let timestamp = cell.timestamp().to_be_bytes();
        let timestamp_common = self.timestamp_common(last, timestamp);
        let flags = [
            (same.key_len, SAME_KEY_LEN),
            (same.value_len, SAME_VALUE_LEN),
            (same.kind, SAME_TYPE),
            (same_value, SAME_VALUE),
        ];
        let flags = flags.into_iter().filter(|(set, _)| *set).fold(0, |flags, (_, flag)| flags | flag);
        out.push(flags | length::must_u8(timestamp_common));
        self.append_lengths_and_body(cell, &same, out);
        out.extend_from_slice(&timestamp[timestamp_common..]);
        if !same.kind {
            out.push(cell.type_code());
        }
        if !same_value {
            self.append_value(cell, out);
        }
    }

    /// Appends `[varint key_len] | [varint value_len] | varint common | key part`.
    fn append_lengths_and_body(&self, cell: &CellRef<'_>, same: &SharedWithPrevious, out: &mut Vec<u8>) {
        if !same.key_len {
            write_varint(out, cell.key().len() as u64);
        }
        if !same.value_len {
            write_varint(out, cell.value().len() as u64);
        }
        write_varint(out, same.common as u64);
        let row_end = 2 + cell.row().len();
        if same.common < row_end {
            // The first key of FAST_DIFF is stored whole. All others omit their family here.
            let whole = self.cells == 0 && self.layout.encoding == DataBlockEncoding::FastDiff;
            let family_end = row_end + 1 + cell.family().len();
            let row_part_end = if whole { family_end } else { row_end };
            out.extend_from_slice(&cell.key()[same.common..row_part_end]);
            out.extend_from_slice(cell.qualifier());
        } else {
            out.extend_from_slice(&key_body(cell.key())[same.common..]);
        }
    }

    fn append_value(&mut self, cell: &CellRef<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(cell.value());
        self.last_value = start..out.len();
    }

    fn append_tags_and_mvcc(&mut self, cell: &CellRef<'_>, out: &mut Vec<u8>) {
        if self.layout.includes_tags {
            write_varint(out, cell.tags().len() as u64);
            match self.layout.compressed_tags {
                true => self.dictionary.compress(cell.tags(), out),
                false => out.extend_from_slice(cell.tags()),
            }
        }
        if self.layout.includes_mvcc {
            write_vlong(out, cell.seq_id() as i64);
        }
    }

    fn same(&self, cell: &CellRef<'_>, last: &PreviousCell<'_>) -> SharedWithPrevious {
        if self.cells == 0 {
            return SharedWithPrevious::default();
        }
        SharedWithPrevious {
            key_len: last.key.len() == cell.key().len(),
            value_len: self.last_value.len() == cell.value().len(),
            kind: last.key.last() == Some(&cell.type_code()),
            common: last.shared,
        }
    }

    /// The timestamp, or its difference from the last one if that is shorter.
    fn shortest_timestamp(&self, last: &PreviousCell<'_>, timestamp: i64) -> Timestamp {
        let plain = Timestamp::new(timestamp, 0);
        if self.cells == 0 {
            return plain;
        }
        let difference = Timestamp::new(last.timestamp().wrapping_sub(timestamp), diff_flag::IS_DIFFERENCE);
        if difference.bytes() < plain.bytes() { difference } else { plain }
    }

    fn timestamp_common(&self, last: &PreviousCell<'_>, timestamp: [u8; 8]) -> usize {
        if self.cells == 0 { 0 } else { common(&last.timestamp().to_be_bytes()[..7], &timestamp[..7]) }
    }

    fn unencoded_len(&self, cell: &CellRef<'_>) -> usize {
        let tags = if self.layout.includes_tags { 2 + cell.tags().len() } else { 0 };
        let mvcc = if self.layout.includes_mvcc { vlong_len(cell.seq_id() as i64) } else { 0 };
        8 + cell.key().len() + cell.value().len() + tags + mvcc
    }
}

/// The previous cell.
struct PreviousCell<'a> {
    key: &'a [u8],
    /// See [`shared_bytes`].
    shared: usize,
}

impl PreviousCell<'_> {
    fn timestamp(&self) -> i64 {
        self.key[key_body(self.key).len()..].first_chunk().map_or(0, |bytes| i64::from_be_bytes(*bytes))
    }

    /// Leading bytes shared by the whole keys. Timestamps are only compared if everything before
    /// them is equal.
    fn shared_with_timestamp(&self, key: &[u8]) -> usize {
        let bodies_are_equal = self.shared == key_body(key).len() && self.key.len() == key.len();
        if bodies_are_equal { common(self.key, key) } else { self.shared }
    }
}

/// The parts that a cell shares with the previous one.
#[derive(Default)]
struct SharedWithPrevious {
    key_len: bool,
    value_len: bool,
    kind: bool,
    common: usize,
}

/// A timestamp or difference as DIFF stores it.
struct Timestamp {
    magnitude: u64,
    flags: u8,
}

impl Timestamp {
    fn new(value: i64, flags: u8) -> Self {
        let sign = if value < 0 { diff_flag::NEGATIVE } else { 0 };
        Self { magnitude: value.unsigned_abs(), flags: flags | sign }
    }

    fn bytes(&self) -> usize {
        (8 - self.magnitude.leading_zeros() as usize / 8).max(1)
    }
}

/// A flat key up to the end of its qualifier.
#[inline]
pub(crate) fn key_body(key: &[u8]) -> &[u8] {
    &key[..key.len().saturating_sub(TIMESTAMP_TYPE_BYTES)]
}

/// The number of leading bytes that two flat keys share, up to the end of their qualifiers.
#[inline]
pub(crate) fn shared_bytes(a: &[u8], b: &[u8]) -> usize {
    common(key_body(a), key_body(b))
}

/// The number of leading bytes that two byte strings share. Compares eight bytes at a time.
fn common(a: &[u8], b: &[u8]) -> usize {
    let words = |bytes: &[u8]| -> Option<u64> { bytes.first_chunk().map(|word| u64::from_le_bytes(*word)) };
    let mut shared = 0;
    while let (Some(x), Some(y)) = (words(&a[shared..]), words(&b[shared..])) {
        if x != y {
            return shared + (x ^ y).trailing_zeros() as usize / 8;
        }
        shared += 8;
    }
    shared + a[shared..].iter().zip(&b[shared..]).take_while(|(a, b)| a == b).count()
}

fn append_raw(cell: &CellRef<'_>, layout: CellLayout, out: &mut Vec<u8>) {
    cell.write_key_value(out, false);
    if layout.includes_tags {
        out.extend_from_slice(&cell.tags_len().to_be_bytes());
        out.extend_from_slice(cell.tags());
    }
    if layout.includes_mvcc {
        write_vlong(out, cell.seq_id() as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_bytes_are_counted_across_words() {
        let a: Vec<u8> = (0..40).collect();
        for len in 0..40 {
            for differs in 0..len {
                let mut b = a[..len].to_vec();
                b[differs] ^= 0x80;
                assert_eq!((common(&a, &b), common(&b, &a)), (differs, differs), "{len}");
            }
            assert_eq!(common(&a, &a[..len]), len);
        }
    }
}
