//! [`RowPrefetcher`]: prefetches the blocks of rows that will be sought soon.
//!
//! Finding a cached row takes dependent memory accesses, and the processor waits for each of them:
//! the block's frame, its row prefix index, the cell. If the next rows are known, the accesses for
//! all of them can overlap. The first pass finds the blocks of all rows and prefetches their row
//! prefix indexes; the second pass finds and prefetches the cells. The results are kept, so the
//! following seeks do not repeat the work: the blocks, each pinned, of at most
//! [`PREFETCH_ROWS_MAX`] rows.
//!
//! Only memory is accessed. A prefetch cannot fail, and it is optional: a seek without a prefetched
//! block loads the block.

use std::ops::Range;

use evenkeel_block_cache::{Block, BlockCategory, BlockType, PrefetchedBlock};
use evenkeel_common::cell::LATEST_TIMESTAMP;
use evenkeel_common::{CellComparator, CellRef, CellType, HBaseError, KeyBuf, TryError, TryResult};

use crate::encoding::CellCursor;
use crate::index::{BlockLocation, IndexCursor, LoadIndexBlock, RootIndex};
use crate::reader::HFileReader;

/// Rows prefetched together: about the number of cache misses that a core can have in flight.
pub const PREFETCH_ROWS_MAX: usize = 12;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct RowPrefetcher {
    /// Rows that were not sought yet. The next one is last.
    rows: Vec<PrefetchedRow>,
    /// The concatenated keys of all rows.
    keys: Vec<u8>,
    key: KeyBuf,
}

/// The result of a prefetch.
#[derive(Debug)]
pub(crate) struct PrefetchedRow {
    /// The range of its first key in the keys.
    key: Range<usize>,
    /// The index position of its block.
    pub index: IndexCursor,
    pub block: Block,
    /// The seek points of that block that must still be compared with the key.
    pub points: Range<usize>,
}

impl RowPrefetcher {
    /// Prefetches up to [`PREFETCH_ROWS_MAX`] of the rows. Drops the earlier results.
    #[expect(clippy::indexing_slicing, reason = "the ranges of the rows are of the same keys")]
    pub fn prefetch<'a>(
        &mut self,
        reader: &HFileReader,
        cursor: &CellCursor,
        rows: impl Iterator<Item = &'a [u8]>,
    ) {
        self.rows.clear();
        self.keys.clear();
        let mut found = [const { None }; PREFETCH_ROWS_MAX];
        for (found, row) in found.iter_mut().zip(rows) {
            *found = self.find(reader, row);
        }
        for (key, index, block) in found.into_iter().flatten() {
            if let Some(block) = block.block().filter(is_readable) {
                cursor.prefetch_seek_points(&block);
                self.rows.push(PrefetchedRow { key, index, block, points: 0..0 });
            }
        }
        for prefetched in &mut self.rows {
            let key = CellRef::from_checked(&self.keys[prefetched.key.clone()], &[], &[], u64::MAX);
            prefetched.points = cursor.seek_candidates(&prefetched.block, key.row(), reader.comparator());
        }
        self.rows.reverse();
    }

    /// Returns the result for the row of a key, if it was prefetched.
    #[expect(clippy::indexing_slicing, reason = "the ranges of the rows are of the same keys")]
    pub fn take(&mut self, key: &CellRef<'_>) -> Option<PrefetchedRow> {
        let at = self.rows.iter().rposition(|prefetched| self.keys[prefetched.key.clone()] == *key.key())?;
        self.rows.truncate(at + 1);
        self.rows.pop()
    }

    fn find(
        &mut self,
        reader: &HFileReader,
        row: &[u8],
    ) -> Option<(Range<usize>, IndexCursor, PrefetchedBlock)> {
        self.key.set(row, b"", b"", LATEST_TIMESTAMP, CellType::Maximum);
        let mut index = IndexCursor::default();
        let at = index.seek(&InMemory(reader), &self.key.as_cell()).ok()??;
        let found = reader.blocks().prefetch(at, BlockCategory::Data)?;
        let start = self.keys.len();
        self.keys.extend_from_slice(self.key.bytes());
        Some((start..self.keys.len(), index, found))
    }
}

fn is_readable(block: &Block) -> bool {
    block.kind().is_data() && !block.is_compressed()
}

/// The index blocks of a file that are in memory.
struct InMemory<'a>(&'a HFileReader);

impl LoadIndexBlock for InMemory<'_> {
    fn root(&self) -> &RootIndex {
        self.0.root()
    }

    fn root_offset(&self) -> u64 {
        self.0.root_offset()
    }

    fn levels(&self) -> usize {
        self.0.index_levels()
    }

    fn load_index(&self, at: BlockLocation, kind: BlockType) -> TryResult<Block> {
        let found = self.0.blocks().prefetch(at, BlockCategory::Index).and_then(PrefetchedBlock::block);
        found.filter(|block| block.kind() == kind).ok_or(TryError::WouldWait)
    }

    fn corrupt(&self, offset: u64, what: &str) -> HBaseError {
        self.0.corrupt(offset, what)
    }

    fn order(&self) -> CellComparator {
        self.0.comparator()
    }
}
