//! [`RowPrefetcher`]: blocks of rows that will be sought soon.
//!
//! A row that is cached is found by looks into memory that depend on each other (the block's frame, the digests of its
//! rows, the cell), each of which the processor waits for. When it is known what rows come next, the looks for all of them
//! can go side by side: first the blocks of all are found and their digests asked for, then the places in all are found
//! and the cells asked for. What was found out is kept, so that the seeks that follow do not look again: the blocks, each
//! pinned, at most [`PREFETCH_ROWS_MAX`].
//!
//! Only what lies in memory is looked at. Nothing here fails, and nothing depends on it: a seek that finds no block here
//! loads it.

use std::ops::Range;

use evenkeel_block_cache::{Block, BlockCategory, BlockType, PrefetchedBlock};
use evenkeel_common::cell::LATEST_TIMESTAMP;
use evenkeel_common::{CellComparator, CellRef, CellType, HBaseError, KeyBuf, Result};

use crate::encoding::CellCursor;
use crate::index::{BlockAt, IndexCursor, LoadIndexBlock, RootIndex};
use crate::reader::HFileReader;

/// Rows that are looked for side by side: about as many lines of memory as a core can wait for at once.
pub const PREFETCH_ROWS_MAX: usize = 12;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct RowPrefetcher {
    /// Those that were not sought yet, the next one last.
    rows: Vec<PrefetchedRow>,
    /// The keys of all, one behind the other.
    keys: Vec<u8>,
    key: KeyBuf,
}

/// What was found of a row.
#[derive(Debug)]
pub(crate) struct PrefetchedRow {
    /// Where its first key lies among the keys.
    key: Range<usize>,
    /// At its block.
    pub index: IndexCursor,
    pub block: Block,
    /// Seek points of that block, which are left to be compared with the key.
    pub points: Range<usize>,
}

impl RowPrefetcher {
    /// Looks for rows, of which those beyond [`PREFETCH_ROWS_MAX`] are left out. What was found before is let go of.
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
            prefetched.points = cursor.seek_candidates(&prefetched.block, key.row(), reader.order());
        }
        self.rows.reverse();
    }

    /// What was found of the row of a key, if it was looked for.
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

/// The index of a file, as far as it lies in memory.
struct InMemory<'a>(&'a HFileReader);

impl LoadIndexBlock for InMemory<'_> {
    fn root(&self) -> &RootIndex {
        self.0.root()
    }

    fn root_offset(&self) -> u64 {
        self.0.root_offset()
    }

    fn levels(&self) -> usize {
        self.0.levels()
    }

    fn load_index(&self, at: BlockAt, kind: BlockType) -> Result<Block> {
        let found = self.0.blocks().prefetch(at, BlockCategory::Index).and_then(PrefetchedBlock::block);
        found.filter(|block| block.kind() == kind).ok_or_else(|| HBaseError::io("not in memory"))
    }

    fn corrupt(&self, offset: u64, what: &str) -> HBaseError {
        self.0.corrupt(offset, what)
    }

    fn order(&self) -> CellComparator {
        self.0.order()
    }
}
