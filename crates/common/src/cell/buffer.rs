//! [`CellBuffer`], consecutive cells in wire format.

use bytes::Bytes;

use super::{CellRef, KEY_VALUE_PREFIX_BYTES};
use crate::buffer_pool::{self, POOLED_BYTES_MIN};
use crate::length;

/// Consecutive cells, each `u32 len | KeyValue with its tags`: the format of HBase's
/// `KeyValueCodecWithTags`, and of `KeyValueCodec` if [`CellBuffer::has_tags`] is false. A scan
/// collects its whole reply in one buffer.
///
/// A buffer that [shares](CellBuffer::sharing) values holds large ones as [`Bytes`] instead of
/// copies. Each is stored with its offset within the copied bytes.
///
/// ```text
/// copied:  | len | lengths | key 1 || len | lengths | key 2 | tags 2 |
/// shared:                          ^ value 1               ^ value 2
/// ```
///
/// The buffer is bounded by `u32::MAX` bytes; callers keep replies far below it
/// (`hbase.server.scanner.max.result.size`).
#[derive(Clone, Debug)]
pub struct CellBuffer {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    tagged: usize,
    /// Shared values in the order of their cells, each with the offset in `bytes` before which it
    /// belongs.
    shared: Vec<(usize, Bytes)>,
    shared_bytes: usize,
    /// The shortest value that is shared.
    share_bytes_min: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Offset of the KeyValue, after its length.
    start: usize,
    seq_id: u64,
    /// The value's index in `shared`, or [`COPIED`].
    shared: u32,
    /// See [`CellBuffer::set_heap_bytes`].
    heap_bytes: u32,
}

const COPIED: u32 = u32::MAX;

impl Default for CellBuffer {
    fn default() -> Self {
        Self::sharing(usize::MAX)
    }
}

#[cfg_attr(
    not(test),
    expect(clippy::indexing_slicing, reason = "entries are offsets of this buffer's own bytes")
)]
impl CellBuffer {
    /// An empty buffer that copies every cell.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty buffer that shares values of at least `share_bytes_min` bytes, if their owner can
    /// share them.
    pub fn sharing(share_bytes_min: usize) -> Self {
        Self {
            bytes: Vec::new(),
            entries: Vec::new(),
            tagged: 0,
            shared: Vec::new(),
            shared_bytes: 0,
            share_bytes_min,
        }
    }

    /// Returns true if a value of `value_bytes` should be shared.
    #[inline]
    pub fn shares(&self, value_bytes: usize) -> bool {
        value_bytes >= self.share_bytes_min
    }

    /// Appends a copy of a cell.
    #[inline]
    pub fn push(&mut self, cell: &CellRef<'_>) {
        self.bytes.reserve(4 + cell.key_value_len());
        self.start_entry(cell, COPIED);
        self.bytes.extend_from_slice(cell.key());
        self.bytes.extend_from_slice(cell.value());
        self.push_tags(cell);
    }

    /// Appends a cell without copying its value. `value` must be the value of `cell`.
    pub fn push_shared(&mut self, cell: &CellRef<'_>, value: Bytes) {
        debug_assert_eq!(cell.value().len(), value.len());
        self.start_entry(cell, length::must_u32(self.shared.len()));
        self.bytes.extend_from_slice(cell.key());
        self.shared_bytes += value.len();
        self.shared.push((self.bytes.len(), value));
        self.push_tags(cell);
    }

    /// Adds a cell's entry, and writes the bytes before its key.
    #[inline]
    fn start_entry(&mut self, cell: &CellRef<'_>, shared: u32) {
        self.tagged += usize::from(!cell.tags().is_empty());
        let (start, seq_id) = (self.bytes.len() + 4, cell.seq_id());
        self.entries.push(Entry { start, seq_id, shared, heap_bytes: 0 });
        let mut head = [0; 4 + KEY_VALUE_PREFIX_BYTES];
        head[..4].copy_from_slice(&length::must_u32(cell.key_value_len()).to_be_bytes());
        head[4..].copy_from_slice(&cell.prefix());
        self.bytes.extend_from_slice(&head);
    }

    #[inline]
    fn push_tags(&mut self, cell: &CellRef<'_>) {
        if !cell.tags().is_empty() {
            self.bytes.extend_from_slice(&cell.tags_len().to_be_bytes());
            self.bytes.extend_from_slice(cell.tags());
        }
    }

    /// Appends copies of cells without tags in the format of [`CellBuffer::as_contiguous`]. Their
    /// sequence ids are 0.
    ///
    /// Only the length before each cell is checked: the bytes from the first cell that exceeds
    /// `bytes` on are ignored. The caller guarantees that each cell is well-formed.
    pub fn extend_untagged(&mut self, bytes: &[u8]) {
        let (base, mut at) = (self.bytes.len(), 0);
        while let Some(len) = crate::varint::read_u32(bytes, at) {
            let end = at + 4 + len as usize;
            if end > bytes.len() {
                break;
            }
            let start = base + at + 4;
            self.entries.push(Entry { start, seq_id: 0, shared: COPIED, heap_bytes: 0 });
            at = end;
        }
        self.bytes.extend_from_slice(&bytes[..at]);
    }

    /// Appends the cells of another buffer.
    pub fn append(&mut self, other: CellBuffer) {
        (0..other.len()).for_each(|i| self.push_from(&other, i));
    }

    /// Reserves memory for `times` the bytes that are copied here, but for at most `bytes_max`. A
    /// large buffer comes from the [pool](crate::buffer_pool).
    pub fn reserve_times(&mut self, times: usize, bytes_max: usize) {
        let more = self.bytes.len().saturating_mul(times).min(bytes_max);
        let total = self.bytes.len() + more;
        if total < POOLED_BYTES_MIN {
            self.bytes.reserve(more);
        } else if total > self.bytes.capacity() {
            let mut page = buffer_pool::acquire(total);
            page.extend_from_slice(&self.bytes);
            buffer_pool::release(std::mem::replace(&mut self.bytes, page));
        }
        self.entries.reserve(self.entries.len().saturating_mul(times).min(bytes_max / size_of::<Entry>()));
    }

    /// The number of cells.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if there is no cell.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns true if any cell has tags.
    pub fn has_tags(&self) -> bool {
        self.tagged > 0
    }

    /// The cell at an index.
    ///
    /// # Panics
    /// If there is no such cell.
    #[inline]
    pub fn get(&self, index: usize) -> CellRef<'_> {
        let entry = self.entries[index];
        let bytes = &self.bytes[entry.start..self.end_of(index)];
        match entry.shared {
            COPIED => CellRef::parse_checked(bytes, entry.seq_id),
            shared => self.get_shared(bytes, shared, entry),
        }
    }

    #[cold]
    fn get_shared<'a>(&'a self, bytes: &'a [u8], shared: u32, entry: Entry) -> CellRef<'a> {
        let (at, value) = &self.shared[shared as usize];
        let key_end = at - entry.start;
        // The length of the tags is there only if there are any.
        let tags = if bytes.len() > key_end { &bytes[key_end + 2..] } else { &[] };
        CellRef::from_checked(&bytes[KEY_VALUE_PREFIX_BYTES..key_end], value, tags, entry.seq_id)
    }

    /// The last cell.
    pub fn last(&self) -> Option<CellRef<'_>> {
        self.len().checked_sub(1).map(|i| self.get(i))
    }

    /// The cells in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = CellRef<'_>> + ExactSizeIterator {
        (0..self.len()).map(|i| self.get(i))
    }

    /// Records the heap bytes that HBase counts for the last cell. Those of a new cell are 0.
    #[inline]
    pub fn set_heap_bytes(&mut self, heap_bytes: u64) {
        if let Some(entry) = self.entries.last_mut() {
            entry.heap_bytes = u32::try_from(heap_bytes).unwrap_or(u32::MAX);
        }
    }

    /// The sum of the heap bytes that were recorded for the cells from an index on.
    pub fn heap_bytes_from(&self, from: usize) -> u64 {
        self.entries.get(from..).unwrap_or_default().iter().map(|entry| u64::from(entry.heap_bytes)).sum()
    }

    /// Drops all cells from an index on.
    pub fn truncate(&mut self, len: usize) {
        let Some(entry) = self.entries.get(len) else { return };
        let start = entry.start - 4;
        if self.tagged > 0 {
            self.tagged -= (len..self.len()).filter(|i| !self.get(*i).tags().is_empty()).count();
        }
        self.bytes.truncate(start);
        if let Some(first) = self.entries[len..].iter().map(|e| e.shared).find(|shared| *shared != COPIED) {
            let dropped = self.shared.drain(first as usize..);
            self.shared_bytes -= dropped.map(|(_, value)| value.len()).sum::<usize>();
        }
        self.entries.truncate(len);
    }

    /// Removes the cells from index `from` on for which `keep` returns false.
    pub fn retain_from(&mut self, from: usize, mut keep: impl FnMut(&CellRef<'_>) -> bool) {
        if (from..self.len()).all(|i| keep(&self.get(i))) {
            return;
        }
        // A second call of `keep` is fine: filters that drop cells of a finished row are rare, and
        // their results are stable.
        let kept: Vec<_> = (from..self.len()).filter(|i| keep(&self.get(*i))).collect();
        self.keep_in_order(from, &kept);
    }

    /// Replaces the cells from index `from` on by those at `indices`, in that order.
    pub fn keep_in_order(&mut self, from: usize, indices: &[usize]) {
        let mut tail = CellBuffer::new();
        indices.iter().for_each(|i| tail.push_from(self, *i));
        self.truncate(from);
        (0..tail.len()).for_each(|i| self.push_from(&tail, i));
    }

    /// Appends the cell at an index of another buffer; a value that is shared there is shared here.
    fn push_from(&mut self, other: &CellBuffer, index: usize) {
        match other.shared.get(other.entries[index].shared as usize) {
            Some((_, value)) => self.push_shared(&other.get(index), value.clone()),
            None => self.push(&other.get(index)),
        }
        self.set_heap_bytes(other.entries[index].heap_bytes.into());
    }

    /// Removes all cells and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.shared.clear();
        (self.tagged, self.shared_bytes) = (0, 0);
    }

    /// Bytes of the encoded cells, `u32 len | KeyValue` for each.
    pub fn encoded_len(&self) -> usize {
        self.bytes.len() + self.shared_bytes
    }

    /// The encoded cells as one slice, unless shared values interrupt them.
    pub fn as_contiguous(&self) -> Option<&[u8]> {
        self.shared.is_empty().then_some(&self.bytes[..])
    }

    /// The encoded cells: the copied bytes, and the shared values, each with the offset before
    /// which it belongs.
    pub fn into_parts(self) -> (Vec<u8>, Vec<(usize, Bytes)>) {
        (self.bytes, self.shared)
    }

    fn end_of(&self, index: usize) -> usize {
        self.entries.get(index + 1).map_or(self.bytes.len(), |next| next.start - 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::KeyValueBuilder;
    use crate::{CellType, KeyValue};

    fn cell(i: u8) -> KeyValue {
        let tags: &[u8] = if i.is_multiple_of(3) { &[0, 2, 8, 1] } else { &[] };
        KeyValueBuilder {
            row: &[b'r', i],
            family: b"f",
            qualifier: &[i],
            timestamp: 5,
            kind: CellType::Put,
            value: &vec![i; i as usize * 3],
            tags,
        }
        .build()
    }

    fn fill(buffer: &mut CellBuffer) {
        for i in 0..40 {
            let cell = cell(i);
            let view = cell.as_cell().with_seq_id(i.into());
            match buffer.shares(view.value().len()) {
                true => buffer.push_shared(&view, Bytes::copy_from_slice(view.value())),
                false => buffer.push(&view),
            }
        }
    }

    fn encoded(buffer: CellBuffer) -> Vec<u8> {
        let (bytes, shared) = buffer.into_parts();
        let (mut all, mut from) = (Vec::new(), 0);
        for (at, value) in shared {
            all.extend_from_slice(&bytes[from..at]);
            all.extend_from_slice(&value);
            from = at;
        }
        all.extend_from_slice(&bytes[from..]);
        all
    }

    #[test]
    fn append_puts_cells_of_another_buffer_last() {
        let (mut all, mut twice, mut more) =
            (CellBuffer::sharing(30), CellBuffer::sharing(30), CellBuffer::sharing(30));
        fill(&mut all);
        all.append(all.clone());
        fill(&mut twice);
        fill(&mut twice);
        same(&all, &twice);
        more.append(twice);
        more.reserve_times(3, 1000);
        same(&all, &more);
    }

    fn same(a: &CellBuffer, b: &CellBuffer) {
        let parts = |cell: CellRef<'_>| {
            (cell.key().to_vec(), cell.value().to_vec(), cell.tags().to_vec(), cell.seq_id())
        };
        assert_eq!(a.iter().map(parts).collect::<Vec<_>>(), b.iter().map(parts).collect::<Vec<_>>());
        assert_eq!((a.encoded_len(), a.has_tags()), (b.encoded_len(), b.has_tags()));
        assert_eq!(encoded(a.clone()), encoded(b.clone()));
    }

    #[test]
    fn shared_and_copied_values_behave_alike() {
        let (mut copied, mut shared) = (CellBuffer::new(), CellBuffer::sharing(30));
        fill(&mut copied);
        fill(&mut shared);
        assert!(copied.as_contiguous().is_some() && shared.as_contiguous().is_none());
        same(&copied, &shared);
        for buffer in [&mut copied, &mut shared] {
            buffer.retain_from(5, |cell| cell.value().len() % 2 == 0);
            buffer.keep_in_order(9, &[14, 9, 11, 10]);
        }
        same(&copied, &shared);
        assert!(shared.as_contiguous().is_none(), "what was shared stays so");
        for len in [13, 11, 7, 0] {
            copied.truncate(len);
            shared.truncate(len);
            same(&copied, &shared);
        }
        fill(&mut shared);
        shared.clear();
        assert_eq!((shared.encoded_len(), shared.len()), (0, 0));
    }
}
