//! [`CellSource`]: where a cell was read from, and the heap bytes that HBase counts for it.
//!
//! A scan's size limit counts `Cell.heapSize()`, which depends on the class of the cell: cells of a
//! MemStore, of a plain block and of an encoded block have different classes. Cells of a block of
//! ROW_INDEX_V1 have the class of those of a plain block (`RowIndexSeekerV1.toCell`). The limit
//! decides which call of a scan returns which cell, so the same numbers are counted here. They are
//! those of a JVM with compressed object pointers: an object header of 12 bytes, a reference of 4,
//! an array header of 16, and sizes aligned to 8.

use evenkeel_common::CellRef;
use evenkeel_hfile::DataBlockEncoding;

/// `KeyValue.FIXED_OVERHEAD` and `ByteBufferKeyValue.FIXED_OVERHEAD`, aligned.
const KEY_VALUE_BYTES: u64 = 32;
/// The lengths that `SizeCachedKeyValue` adds to a `KeyValue`.
const CACHED_LENGTHS_BYTES: u64 = 6;
/// `OnheapDecodedCell.FIXED_OVERHEAD`.
const DECODED_CELL_BYTES: u64 = 120;
/// `KeyOnlyByteBufferExtendedCell.FIXED_OVERHEAD`.
const KEY_ONLY_BYTES: u64 = 17;
/// The bytes of a KeyValue without tags beside its row, family, qualifier and value.
const INFRASTRUCTURE_BYTES: u64 = 20;
/// The length of the tags, if a KeyValue has any.
const TAGS_LENGTH_BYTES: u64 = 2;
/// The alignment of Java objects.
const ALIGN: u64 = 8;

/// Where a cell was read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CellSource {
    /// A MemStore: a `ByteBufferKeyValue` in a chunk.
    #[default]
    MemStore,
    /// A block without encoding or of ROW_INDEX_V1: a `SizeCachedKeyValue`.
    PlainBlock,
    /// A block with another data block encoding: an `OnheapDecodedCell`.
    EncodedBlock,
}

impl CellSource {
    /// Returns the source that is a block with this encoding.
    #[inline]
    pub fn of_block(encoding: DataBlockEncoding) -> Self {
        match encoding {
            DataBlockEncoding::None | DataBlockEncoding::RowIndexV1 => Self::PlainBlock,
            DataBlockEncoding::Prefix | DataBlockEncoding::Diff | DataBlockEncoding::FastDiff => {
                Self::EncodedBlock
            }
        }
    }

    /// Returns the heap bytes that HBase counts for a cell.
    #[inline]
    pub fn heap_bytes(self, cell: &CellRef<'_>) -> u64 {
        let bytes = cell.key_value_len() as u64;
        match self {
            Self::MemStore => (KEY_VALUE_BYTES + bytes).next_multiple_of(ALIGN),
            Self::PlainBlock => KEY_VALUE_BYTES + CACHED_LENGTHS_BYTES + bytes,
            Self::EncodedBlock => {
                let tags = if cell.tags().is_empty() { 0 } else { TAGS_LENGTH_BYTES };
                DECODED_CELL_BYTES + bytes.saturating_sub(INFRASTRUCTURE_BYTES + tags)
            }
        }
    }

    /// Returns the heap bytes that HBase counts for a cell whose value a KeyOnlyFilter removed:
    /// those of the whole cell, which stays referenced, and of its wrapper.
    pub fn key_only_heap_bytes(self, cell: &CellRef<'_>) -> u64 {
        let whole = self.heap_bytes(cell);
        match self {
            Self::MemStore => (KEY_ONLY_BYTES + whole).next_multiple_of(ALIGN),
            Self::PlainBlock | Self::EncodedBlock => whole,
        }
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_common::KeyValue;
    use evenkeel_hfile::DataBlockEncoding;

    use super::CellSource;

    /// With a limit of 3,000 bytes, stock HBase returns 47, 46 and 24 of these cells in a call, and
    /// 35 and 46 with a KeyOnlyFilter (`LimitChecks.heapSize` of the interop tests).
    #[test]
    fn a_cell_counts_what_its_class_in_hbase_does() {
        let cell = KeyValue::put(b"r", b"f", b"q01", 1, b"v01");
        let cell = cell.as_cell();
        assert_eq!(cell.key_value_len(), 28);
        assert_eq!(CellSource::MemStore.heap_bytes(&cell), 64);
        assert_eq!(CellSource::PlainBlock.heap_bytes(&cell), 66);
        assert_eq!(CellSource::EncodedBlock.heap_bytes(&cell), 128);
        assert_eq!(CellSource::MemStore.key_only_heap_bytes(&cell), 88);
        assert_eq!(CellSource::PlainBlock.key_only_heap_bytes(&cell), 66);
    }

    #[test]
    fn cells_of_row_index_v1_count_as_those_of_plain_blocks() {
        let sources = [
            (DataBlockEncoding::None, CellSource::PlainBlock),
            (DataBlockEncoding::RowIndexV1, CellSource::PlainBlock),
            (DataBlockEncoding::Prefix, CellSource::EncodedBlock),
            (DataBlockEncoding::Diff, CellSource::EncodedBlock),
            (DataBlockEncoding::FastDiff, CellSource::EncodedBlock),
        ];
        for (encoding, source) in sources {
            assert_eq!(CellSource::of_block(encoding), source, "{encoding:?}");
        }
    }
}
