//! [`CellBuffer`], a run of cells in wire form.

use super::CellRef;

/// Cells one after the other, each `u32 len | KeyValue with its tags`: the form of HBase's `KeyValueCodecWithTags`,
/// and of `KeyValueCodec` as long as [`CellBuffer::has_tags`] is false. A scan collects its whole reply in one.
///
/// Bytes are bounded by `u32::MAX`; callers keep replies far below it (`hbase.server.scanner.max.result.size`).
#[derive(Clone, Debug, Default)]
pub struct CellBuffer {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    tagged: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Where the KeyValue starts, after its length.
    start: usize,
    seq_id: u64,
    tagged: bool,
}

impl CellBuffer {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Copies a cell to the end.
    #[inline]
    pub fn push(&mut self, cell: &CellRef<'_>) {
        let key_value_len = cell.key_value_len();
        self.bytes.reserve(4 + key_value_len);
        self.bytes.extend_from_slice(&(key_value_len as u32).to_be_bytes());
        let tagged = !cell.tags().is_empty();
        self.tagged += usize::from(tagged);
        self.entries.push(Entry { start: self.bytes.len(), seq_id: cell.seq_id(), tagged });
        cell.write_key_value(&mut self.bytes, true);
    }

    /// Copies cells without tags, as [`CellBuffer::bytes`] has them, to the end. Their sequence ids are 0.
    ///
    /// Only the length before each cell is looked at: the bytes are left out from the first that is longer than what is there.
    /// What a cell itself consists of the caller has seen to.
    pub fn extend_untagged(&mut self, bytes: &[u8]) {
        let (base, mut at) = (self.bytes.len(), 0);
        while let Some(len) = crate::codec::read_u32(bytes, at) {
            let end = at + 4 + len as usize;
            if end > bytes.len() {
                break;
            }
            self.entries.push(Entry { start: base + at + 4, seq_id: 0, tagged: false });
            at = end;
        }
        self.bytes.extend_from_slice(&bytes[..at]);
    }

    /// How many cells.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no cell.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether any cell carries tags.
    pub fn has_tags(&self) -> bool {
        self.tagged > 0
    }

    /// The cell at an index.
    ///
    /// # Panics
    /// When there is no such cell.
    #[inline]
    pub fn get(&self, index: usize) -> CellRef<'_> {
        let entry = self.entries[index];
        CellRef::parse_checked(&self.bytes[entry.start..self.end_of(index)], entry.seq_id)
    }

    /// The last cell.
    pub fn last(&self) -> Option<CellRef<'_>> {
        self.len().checked_sub(1).map(|i| self.get(i))
    }

    /// The cells in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = CellRef<'_>> + ExactSizeIterator {
        (0..self.len()).map(|i| self.get(i))
    }

    /// Drops all cells from an index on.
    pub fn truncate(&mut self, len: usize) {
        if let Some(entry) = self.entries.get(len) {
            self.bytes.truncate(entry.start - 4);
            self.tagged -= self.entries[len..].iter().filter(|e| e.tagged).count();
            self.entries.truncate(len);
        }
    }

    /// Keeps, of the cells from index `from` on, those that `keep` says yes to.
    pub fn retain_from(&mut self, from: usize, mut keep: impl FnMut(&CellRef<'_>) -> bool) {
        if (from..self.len()).all(|i| keep(&self.get(i))) {
            return;
        }
        // A second pass is fine: filters that drop cells of a finished row are rare, and their verdicts are stable.
        let kept: Vec<_> = (from..self.len()).filter(|i| keep(&self.get(*i))).collect();
        let mut tail = CellBuffer::new();
        kept.iter().for_each(|i| tail.push(&self.get(*i)));
        self.truncate(from);
        tail.iter().for_each(|cell| self.push(&cell));
    }

    /// Drops everything and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.tagged = 0;
    }

    /// The encoded bytes: `u32 len | KeyValue` for each cell.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The encoded bytes, given away.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn end_of(&self, index: usize) -> usize {
        self.entries.get(index + 1).map_or(self.bytes.len(), |next| next.start - 4)
    }
}
