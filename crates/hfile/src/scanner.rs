//! [`HFileScanner`]: a place in a store file.
//!
//! A scanner holds its [place](crate::scanner::block_position) in the data block it is in (one reference count a block, none a cell), and
//! its place in the index, from which it knows the next block without looking at the file. Nothing is allocated for a cell.
//!
//! The scanner of a half of a file stays within it.

mod block_position;
mod read_ahead;
mod row_prefetcher;

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_block_cache::Block;
use evenkeel_common::{CellComparator, CellRef, HBaseError, Result};

use crate::encoding::{CellCursor, Malformed};
use crate::index::{BlockAt, IndexCursor, LoadIndexBlock};
use crate::reader::HFileReader;
use crate::reference::ReferenceRange;
use crate::writer::InputResidency;

use self::block_position::BlockPosition;
pub use self::row_prefetcher::PREFETCH_ROWS_MAX;
use self::row_prefetcher::{PrefetchedRow, RowPrefetcher};

/// How a scanner reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanOptions {
    /// Keep data blocks in the cache. Index and bloom blocks are kept either way.
    pub cache_blocks: bool,
    /// Reads are few and scattered (a Get), rather than a stream. A hint.
    pub pread: bool,
    /// A compaction reads: data blocks are never kept.
    pub is_compaction: bool,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self { cache_blocks: true, pread: true, is_compaction: false }
    }
}

/// A place in a store file: at a cell, or nowhere. See the module.
#[derive(Debug)]
pub struct HFileScanner {
    reader: Arc<HFileReader>,
    keep: bool,
    order: CellComparator,
    index: IndexCursor,
    /// After the end of the file, or of the half, it is at no cell.
    position: BlockPosition,
    /// Bytes of the block entered last, until somebody asked.
    entered_bytes: u64,
    /// Blocks entered one after the other.
    blocks_in_a_row: u32,
    residency: Option<Arc<InputResidency>>,
    /// Of the bloom filter, the one that was asked last.
    bloom_chunk: Option<Block>,
    prefetcher: RowPrefetcher,
}

/// So many blocks one after the other make a scan for which the next block is read ahead.
const SEQUENTIAL_BLOCKS: u32 = 2;

impl HFileScanner {
    pub(crate) fn new(reader: Arc<HFileReader>, options: ScanOptions) -> Self {
        Self {
            keep: options.cache_blocks && !options.is_compaction,
            order: reader.comparator(),
            index: IndexCursor::default(),
            position: BlockPosition::new(reader.blocks().layout),
            entered_bytes: 0,
            blocks_in_a_row: 0,
            residency: None,
            bloom_chunk: None,
            prefetcher: RowPrefetcher::default(),
            reader,
        }
    }

    /// Tells of each data block from here on whether it was in the cache.
    pub fn track_residency(&mut self, residency: Arc<InputResidency>) {
        self.residency = Some(residency);
    }

    /// From here on every cell has this sequence id, whatever the file says.
    pub fn set_seq_id(&mut self, seq_id: u64) {
        self.position.set_seq_id(seq_id);
    }

    /// The file.
    pub fn reader(&self) -> &Arc<HFileReader> {
        &self.reader
    }

    /// The cell at the place; `None` when it is nowhere. The view lasts until the scanner moves.
    #[inline]
    pub fn cell(&self) -> Option<CellRef<'_>> {
        self.position.cell().copied()
    }

    /// As [`HFileScanner::cell`], without a copy of the view.
    #[inline]
    pub fn peek(&self) -> Option<&CellRef<'_>> {
        self.position.cell()
    }

    /// The value of the cell at the place without a copy; `None` when it does not lie whole in the block, or is too small a
    /// part of it.
    pub fn share_value(&self) -> Option<Bytes> {
        let cell = self.cell()?;
        self.position.block()?.share(cell.value())
    }

    /// Bytes of the block at the place, uncompressed, when it was entered since this was last asked; else 0.
    #[inline]
    pub fn take_entered_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.entered_bytes)
    }

    /// Bytes of the blocks that it holds on to, of the bloom filter's among them.
    pub fn held_bytes(&self) -> u64 {
        self.position
            .block()
            .into_iter()
            .chain(&self.bloom_chunk)
            .map(|block| block.data().len() as u64)
            .sum()
    }

    /// Whether the place is at a cell.
    #[inline]
    pub fn is_seeked(&self) -> bool {
        self.position.is_at_cell()
    }

    /// As [`HFileReader::might_contain_row`]; holds on to the chunk of the bloom filter for the next row.
    pub fn might_contain_row(&mut self, row: &[u8]) -> Result<bool> {
        self.reader.might_contain_row_reusing(row, &mut self.bloom_chunk)
    }

    /// Looks for rows that will be sought soon, as far as they lie in memory: so many as [`crate::PREFETCH_ROWS_MAX`]. Those
    /// that are not in the file are better left out; `asks` says whether a bloom filter of rows is asked about each.
    pub fn prefetch_rows<'a>(&mut self, rows: impl Iterator<Item = &'a [u8]>, asks: bool) {
        let Self { prefetcher, reader, position, bloom_chunk, .. } = self;
        let rows = rows.take(PREFETCH_ROWS_MAX);
        match asks {
            false => prefetcher.prefetch(reader, position.cursor(), rows),
            true => prefetcher.prefetch(
                reader,
                position.cursor(),
                rows.filter(|row| reader.may_contain_row_in_memory(row, bloom_chunk)),
            ),
        }
    }

    /// Is at no cell from here on.
    pub fn leave(&mut self) {
        self.position.leave();
    }

    /// Goes to the first cell; `false` when there is none.
    ///
    /// # Errors
    /// What reading says; the place is nowhere then. So for every other move.
    pub fn seek_to_first(&mut self) -> Result<bool> {
        if let Some(half) = self.half_of(ReferenceRange::Top) {
            return self.seek_whole(&half.split_key.as_cell());
        }
        let reader = Arc::clone(&self.reader);
        let found = match self.leave_and(|s| s.index.first(&*reader))? {
            Some(at) => self.enter(at, first)?,
            None => return Ok(false),
        };
        Ok(found && self.stays_in_half())
    }

    /// Goes to the first cell at or after `key`, sequence ids counted; `false` when there is none.
    pub fn seek(&mut self, key: &CellRef<'_>) -> Result<bool> {
        match self.half_of(ReferenceRange::Top) {
            Some(half) if self.is_before(key, &half.split_key.as_cell()) => {
                self.seek_whole(&half.split_key.as_cell())
            }
            _ => self.seek_whole(key),
        }
    }

    /// As [`HFileScanner::seek`] for a key that is not before the place; cheap when it is near. From nowhere, a seek.
    pub fn reseek(&mut self, key: &CellRef<'_>) -> Result<bool> {
        if !self.position.is_at_cell() || !self.is_in_block(key) {
            return self.seek(key);
        }
        let found = self.position.seek_forward(key, self.order).map_err(|e| self.malformed(e))?;
        if found { Ok(self.stays_in_half()) } else { self.next_block() }
    }

    /// Goes to the last cell before `key`; `false` when there is none.
    pub fn seek_before(&mut self, key: &CellRef<'_>) -> Result<bool> {
        let found = match self.half_of(ReferenceRange::Bottom) {
            Some(half) if self.is_before(&half.split_key.as_cell(), key) => {
                self.seek_before_whole(&half.split_key.as_cell())?
            }
            _ => self.seek_before_whole(key)?,
        };
        if found && self.is_before_half() {
            self.position.leave();
        }
        Ok(self.position.is_at_cell())
    }

    /// Goes to the next cell; `false` after the last, and the place is nowhere then.
    #[inline]
    #[allow(clippy::should_implement_trait)] // HBase's name; a cell borrows from the scanner, so it is no iterator
    pub fn next(&mut self) -> Result<bool> {
        if !self.position.is_at_cell() {
            return Ok(false);
        }
        match self.position.step() {
            Ok(true) => Ok(self.stays_in_half()),
            Ok(false) => self.next_block(),
            Err(e) => Err(self.malformed(e)),
        }
    }

    /// The index's key of the next data block: every cell before it is in the blocks up to this one. `None` in the last
    /// block, or nowhere. Callers that seek to a key at or after it know that this block need not be searched.
    pub fn next_indexed_key(&self) -> Option<CellRef<'_>> {
        self.position.block()?;
        let key = self.index.next_key(self.reader.root())?;
        CellRef::new(key, &[], &[], u64::MAX).ok()
    }

    fn seek_whole(&mut self, key: &CellRef<'_>) -> Result<bool> {
        self.blocks_in_a_row = 0;
        if let Some(prefetched) = self.prefetcher.take(key) {
            return self.seek_prefetched(prefetched, key);
        }
        let reader = Arc::clone(&self.reader);
        let order = self.order;
        let found = match self.leave_and(|s| s.index.seek(&*reader, key))? {
            Some(at) => self.enter(at, |cursor, block| cursor.seek(block, key, order))?,
            None => match self.leave_and(|s| s.index.first(&*reader))? {
                Some(at) => self.enter(at, |cursor, block| cursor.seek(block, key, order))?,
                None => return Ok(false),
            },
        };
        if found { Ok(self.stays_in_half()) } else { self.next_block() }
    }

    /// As [`HFileScanner::seek_whole`], where most of it was done before.
    fn seek_prefetched(&mut self, prefetched: PrefetchedRow, key: &CellRef<'_>) -> Result<bool> {
        let PrefetchedRow { index, block, points, .. } = prefetched;
        let order = self.order;
        if self.position.block().is_none_or(|last| last.offset() != block.offset()) {
            self.entered_bytes = block.data().len() as u64;
            self.reader.count_hit();
        }
        self.index = index;
        let seek = |cursor: &mut CellCursor, block: &Block| cursor.seek_among(block, key, order, points);
        let found = self.position.enter(block, seek).map_err(|e| self.malformed(e))?;
        if found { Ok(self.stays_in_half()) } else { self.next_block() }
    }

    fn seek_before_whole(&mut self, key: &CellRef<'_>) -> Result<bool> {
        let reader = Arc::clone(&self.reader);
        let order = self.order;
        let Some(at) = self.leave_and(|s| s.index.seek(&*reader, key))? else { return Ok(false) };
        if self.enter(at, |cursor, block| cursor.seek_before(block, key, order))? {
            return Ok(true);
        }
        // No cell of this block is before the key, so the last cell of the block before is, for its keys are before
        // this block's index key.
        match self.leave_and(|s| s.index.previous(&*reader))? {
            Some(at) => self.enter(at, |cursor, block| cursor.last(block).map(|()| true)),
            None => Ok(false),
        }
    }

    /// Goes to the first cell of the next block.
    fn next_block(&mut self) -> Result<bool> {
        let reader = Arc::clone(&self.reader);
        let here = self.position.block().map_or(0, Block::offset);
        match self.leave_and(|s| s.index.next(&*reader))? {
            Some(at) if at.offset <= here => Err(reader.corrupt(at.offset, "data blocks are out of order")),
            Some(at) => {
                self.blocks_in_a_row = self.blocks_in_a_row.saturating_add(1);
                let found = self.enter(at, first)?;
                self.read_ahead();
                Ok(found && self.stays_in_half())
            }
            None => Ok(false),
        }
    }

    /// Has the next block read when this is a scan, its blocks are kept, and it is not cached.
    fn read_ahead(&self) {
        if !self.keep || self.blocks_in_a_row < SEQUENTIAL_BLOCKS {
            return;
        }
        if let Some(at) = self.index.peek_next(&*self.reader)
            && self.reader.wants_data(at)
        {
            read_ahead::request(&self.reader, at);
        }
    }

    /// Loads a block, unless it is the one at hand, and finds the cell to go to.
    fn enter(
        &mut self,
        at: BlockAt,
        find: impl FnOnce(&mut CellCursor, &Block) -> Result<bool, Malformed>,
    ) -> Result<bool> {
        let block = match self.position.take_block() {
            Some(block) if block.offset() == at.offset => block,
            _ => {
                if let Some(residency) = &self.residency {
                    residency.record(self.reader.is_cached(at));
                }
                let block = self.reader.load_data(at, self.keep)?;
                self.entered_bytes = block.data().len() as u64;
                block
            }
        };
        self.position.enter(block, find).map_err(|e| self.malformed(e))
    }

    /// Does something after which the place is nowhere, until it is found again.
    fn leave_and<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.position.leave();
        act(self)
    }

    /// Whether the cell it came to is not past the half; else it is nowhere.
    #[inline]
    fn stays_in_half(&mut self) -> bool {
        if self.is_after_half() {
            self.position.leave();
        }
        self.position.is_at_cell()
    }

    fn is_in_block(&self, key: &CellRef<'_>) -> bool {
        self.next_indexed_key().is_none_or(|next| self.order.compare_keys(key, &next).is_lt())
    }

    fn is_before(&self, a: &CellRef<'_>, b: &CellRef<'_>) -> bool {
        self.order.compare(a, b).is_lt()
    }

    #[inline]
    fn is_after_half(&self) -> bool {
        let Some(half) = self.reader.half().filter(|half| half.range == ReferenceRange::Bottom) else {
            return false;
        };
        self.peek().is_some_and(|cell| !self.is_before(cell, &half.split_key.as_cell()))
    }

    fn is_before_half(&self) -> bool {
        let Some(half) = self.reader.half().filter(|half| half.range == ReferenceRange::Top) else {
            return false;
        };
        self.peek().is_some_and(|cell| self.is_before(cell, &half.split_key.as_cell()))
    }

    fn half_of(&self, range: ReferenceRange) -> Option<crate::reference::Half> {
        self.reader.half().filter(|half| half.range == range).cloned()
    }

    fn malformed(&self, _: Malformed) -> HBaseError {
        let offset = self.position.block().map_or(0, Block::offset);
        self.reader.corrupt(offset, "the cells are malformed")
    }
}

fn first(cursor: &mut CellCursor, block: &Block) -> Result<bool, Malformed> {
    cursor.first(block).map(|()| true)
}
