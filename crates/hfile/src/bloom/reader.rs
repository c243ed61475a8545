//! The metadata of a bloom filter, read when the file is opened.

use evenkeel_common::varint::{read_u32, read_u64, read_vlong};
use evenkeel_common::{CellComparator, CellRef};

use super::{BloomHash, VERSION};
use crate::index::{BlockLocation, RootIndex};

/// Bytes before the comparator's name.
const FIXED_BYTES: usize = 4 + 8 + 4 + 4 + 8 + 8 + 4;
/// No error rate needs more hash functions. A file with more is damaged.
const HASH_COUNT_MAX: u32 = 64;

/// A bloom filter's metadata.
#[derive(Debug)]
pub(crate) struct BloomMeta {
    pub hash: BloomHash,
    pub hash_count: u32,
    /// Bytes of all chunks.
    pub chunk_bytes: u64,
    index: RootIndex,
}

impl BloomMeta {
    /// Parses the metadata. `None` if it is malformed. `keys_are_cells` for ROWCOL filters.
    pub fn parse(body: &[u8], keys_are_cells: bool) -> Option<Self> {
        if read_u32(body, 0)? != VERSION {
            return None;
        }
        let hash_count = read_u32(body, 12)?;
        let chunks = read_u32(body, FIXED_BYTES - 4)?;
        let (name_len, len) = read_vlong(body.get(FIXED_BYTES..)?)?;
        let index_start = (FIXED_BYTES + len).checked_add(usize::try_from(name_len).ok()?)?;
        let parse = if keys_are_cells { RootIndex::parse_cells } else { RootIndex::parse };
        let (index, rest) = parse(body.get(index_start..)?, chunks)?;
        let (hash, chunk_bytes) = (BloomHash::from_code(read_u32(body, 16)?)?, read_u64(body, 4)?);
        let meta = Self { hash, hash_count, chunk_bytes, index };
        (rest.is_empty() && (1..=HASH_COUNT_MAX).contains(&hash_count)).then_some(meta)
    }

    /// The chunk that would hold a row. `None` if the row is before all chunks.
    pub fn chunk_of_row(&self, row: &[u8], order: CellComparator) -> Option<BlockLocation> {
        self.index.entries_up_to_row(row, order).checked_sub(1).map(|i| self.index.entry(i))
    }

    /// The chunk that would hold a row and column.
    pub fn chunk_of_cell(&self, key: &CellRef<'_>, order: CellComparator) -> Option<BlockLocation> {
        self.index.entries_up_to(key, order).checked_sub(1).map(|i| self.index.entry(i))
    }

    /// The locations of the chunks, in order.
    pub fn chunks(&self) -> impl Iterator<Item = BlockLocation> + '_ {
        (0..self.index.len()).map(|i| self.index.entry(i))
    }

    /// Bytes of memory.
    pub fn heap_bytes(&self) -> usize {
        self.index.heap_bytes()
    }
}
