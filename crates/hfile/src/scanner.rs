//! [`HFileScanner`]: a position in a store file.
//!
//! A scanner has a [position](crate::scanner::block_position) in its data block and a position in
//! the index, which gives the next block without reading the file. It holds one reference count per
//! block, none per cell, and allocates nothing for a cell.
//!
//! The scanner of a half of a file stays within the half.
//!
//! A scanner can release its block and keep its position ([`HFileScanner::release_block`]). It
//! loads the block again when the caller needs the cell ([`HFileScanner::enter_block`]) or moves to
//! the next one.

mod block_position;
mod read_ahead;
mod row_prefetcher;

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_block_cache::{Block, heap_blocks};
use evenkeel_common::{CellComparator, CellRef, ErrorKind, HBaseError, TryError, TryResult, Wait, cpu_slot};
use evenkeel_metrics::waits::{self, Cause};

use crate::encoding::{CellCursor, Malformed};
use crate::index::{BlockLocation, IndexCursor};
use crate::reader::HFileReader;
use crate::reference::ReferenceRange;
use crate::writer::InputResidency;

use self::block_position::BlockPosition;
pub use self::block_position::SeqIds;
pub use self::row_prefetcher::PREFETCH_ROWS_MAX;
use self::row_prefetcher::{PrefetchedRow, RowPrefetcher};

/// How a scanner reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanOptions {
    /// Insert data blocks into the cache. Index and bloom blocks are always inserted.
    pub cache_blocks: bool,
    /// Random reads (a Get) rather than a stream. A hint.
    pub pread: bool,
    /// A compaction reads, so data blocks are never inserted into the cache. Its scanners keep
    /// their blocks, for which the server has planned memory.
    pub is_compaction: bool,
    /// Whether reads may wait for a disk or for another thread that reads the same block.
    pub wait: Wait,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self { cache_blocks: true, pread: true, is_compaction: false, wait: Wait::Allowed }
    }
}

/// A position in a store file: at a cell, or unset. See the module.
#[derive(Debug)]
pub struct HFileScanner {
    reader: Arc<HFileReader>,
    insert: bool,
    wait: Wait,
    order: CellComparator,
    index: IndexCursor,
    /// After the end of the file or half, it is at no cell.
    position: BlockPosition,
    /// Bytes of the current block, until the next call of [`HFileScanner::enter_block`];
    /// [`RELEASED`] if that has to load it.
    entered_bytes: u64,
    /// The location of the released block.
    released: Option<BlockLocation>,
    /// Blocks may be released.
    releases: bool,
    /// Consecutive blocks entered.
    consecutive_blocks: u32,
    residency: Option<Arc<InputResidency>>,
    /// The bloom chunk of the last query.
    bloom_chunk: Option<Block>,
    prefetcher: RowPrefetcher,
}

/// [`HFileScanner::entered_bytes`] of a scanner that released its block.
const RELEASED: u64 = u64::MAX;

/// Consecutive blocks after which a scanner reads the next block ahead.
const SEQUENTIAL_BLOCKS: u32 = 2;

impl HFileScanner {
    pub(crate) fn new(reader: Arc<HFileReader>, options: ScanOptions) -> Self {
        Self {
            insert: options.cache_blocks && !options.is_compaction,
            wait: options.wait,
            order: reader.comparator(),
            index: IndexCursor::default(),
            position: BlockPosition::new(reader.blocks().layout),
            entered_bytes: 0,
            released: None,
            releases: !options.is_compaction,
            consecutive_blocks: 0,
            residency: None,
            bloom_chunk: None,
            prefetcher: RowPrefetcher::default(),
            reader,
        }
    }

    /// From this call on, records for each data block entered if it was cached.
    pub fn track_residency(&mut self, residency: Arc<InputResidency>) {
        self.residency = Some(residency);
    }

    /// Gives every cell the sequence id that `seq_ids` defines, from this call on.
    pub fn set_seq_ids(&mut self, seq_ids: SeqIds) {
        self.position.set_seq_ids(seq_ids);
    }

    /// The file.
    pub fn reader(&self) -> &Arc<HFileReader> {
        &self.reader
    }

    /// The current cell; `None` if the position is unset. The view is valid until the scanner
    /// moves. If the block is released, value and tags are empty.
    #[inline]
    pub fn cell(&self) -> Option<CellRef<'_>> {
        self.position.cell().copied()
    }

    /// As [`HFileScanner::cell`], without a copy of the view.
    #[inline]
    pub fn peek(&self) -> Option<&CellRef<'_>> {
        self.position.cell()
    }

    /// The current cell's value without a copy. `None` if the value is not stored as a whole in the
    /// block, or is too small a part of it.
    pub fn share_value(&self) -> Option<Bytes> {
        let cell = self.cell()?;
        self.position.block()?.share(cell.value())
    }

    /// Loads the current block if it is released. Returns the uncompressed bytes of the current
    /// block if it was entered since the last call, else 0.
    ///
    /// # Errors
    /// As [`HFileScanner::seek_to_first`].
    #[inline]
    pub fn enter_block(&mut self) -> TryResult<u64> {
        if self.entered_bytes == 0 { Ok(0) } else { self.take_entered_bytes() }
    }

    fn take_entered_bytes(&mut self) -> TryResult<u64> {
        self.restore_block()?;
        let bytes = std::mem::take(&mut self.entered_bytes);
        Ok(if bytes == RELEASED { 0 } else { bytes })
    }

    /// Releases the current block if it is outside of the caches and this is no compaction. The
    /// scanner keeps its position and the key of the current cell, but not its value and tags,
    /// until [`HFileScanner::enter_block`].
    pub fn release_block(&mut self) {
        let at = self.position.block();
        let at =
            at.map(|block| BlockLocation { offset: block.offset(), on_disk_bytes: block.on_disk_bytes() });
        if self.releases && self.position.release() {
            (self.released, self.entered_bytes) = (at, RELEASED);
        }
    }

    /// Loads the released block again. Without one, does nothing.
    fn restore_block(&mut self) -> TryResult<()> {
        let Some(at) = self.released.take().filter(|_| self.position.is_released()) else { return Ok(()) };
        let restored = self.load(at).and_then(|block| {
            self.entered_bytes = block.data().len() as u64;
            self.position.restore(block).map_err(|e| self.malformed(e).into())
        });
        if restored.is_err() {
            self.position.unset();
        }
        restored
    }

    /// Bytes of the blocks that the scanner holds, with the bloom chunk.
    pub fn held_bytes(&self) -> u64 {
        self.position
            .block()
            .into_iter()
            .chain(&self.bloom_chunk)
            .map(|block| block.data().len() as u64)
            .sum()
    }

    /// Returns true if the position is at a cell.
    #[inline]
    pub fn is_seeked(&self) -> bool {
        self.position.is_at_cell()
    }

    /// As [`HFileReader::might_contain_row`]. Keeps the bloom chunk for the next row.
    pub fn might_contain_row(&mut self, row: &[u8]) -> TryResult<bool> {
        self.reader.bloom_filters(self.wait).might_contain_row_reusing(row, &mut self.bloom_chunk)
    }

    /// Prefetches the cached blocks of up to [`crate::PREFETCH_ROWS_MAX`] rows that will be sought
    /// soon. Rows that are not in the file waste slots; with `use_bloom`, rows that a bloom filter
    /// excludes are skipped.
    pub fn prefetch_rows<'a>(&mut self, rows: impl Iterator<Item = &'a [u8]>, use_bloom: bool) {
        let Self { prefetcher, reader, position, bloom_chunk, .. } = self;
        let rows = rows.take(PREFETCH_ROWS_MAX);
        match use_bloom {
            false => prefetcher.prefetch(reader, position.cursor(), rows),
            true => prefetcher.prefetch(
                reader,
                position.cursor(),
                rows.filter(|row| reader.may_contain_row_in_memory(row, bloom_chunk)),
            ),
        }
    }

    /// Unsets the position.
    pub fn unset(&mut self) {
        self.position.unset();
    }

    /// Moves to the first cell. Returns false if there is none.
    ///
    /// # Errors
    /// `CorruptHFileException`; `IOException`; `RegionTooBusyException` if there is no memory for a
    /// large block ([`heap_blocks::reserve`]); `WouldWait` if [`ScanOptions::wait`] forbids
    /// waiting. The position is unset then. The same holds for every other move.
    pub fn seek_to_first(&mut self) -> TryResult<bool> {
        if let Some(half) = self.half_of(ReferenceRange::Top) {
            return self.seek_whole(&half.split_key.as_cell());
        }
        let (reader, wait) = (Arc::clone(&self.reader), self.wait);
        let found = match self.unset_and(|s| s.index.first(&reader.index(wait)))? {
            Some(at) => self.enter(at, first)?,
            None => return Ok(false),
        };
        Ok(found && self.stays_in_half())
    }

    /// Moves to the first cell at or after `key`, compared with sequence ids. Returns false if
    /// there is none.
    pub fn seek(&mut self, key: &CellRef<'_>) -> TryResult<bool> {
        match self.half_of(ReferenceRange::Top) {
            Some(half) if self.is_before(key, &half.split_key.as_cell()) => {
                self.seek_whole(&half.split_key.as_cell())
            }
            _ => self.seek_whole(key),
        }
    }

    /// As [`HFileScanner::seek`] for a key at or after the position; fast if it is near. If the
    /// position is unset, this is a seek.
    pub fn reseek(&mut self, key: &CellRef<'_>) -> TryResult<bool> {
        if !self.position.is_at_cell() || self.position.is_released() || !self.is_in_block(key) {
            return self.seek(key);
        }
        let found = self.position.seek_forward(key, self.order).map_err(|e| self.malformed(e))?;
        if found { Ok(self.stays_in_half()) } else { self.next_block() }
    }

    /// Moves to the last cell before `key`. Returns false if there is none.
    pub fn seek_before(&mut self, key: &CellRef<'_>) -> TryResult<bool> {
        let found = match self.half_of(ReferenceRange::Bottom) {
            Some(half) if self.is_before(&half.split_key.as_cell(), key) => {
                self.seek_before_whole(&half.split_key.as_cell())?
            }
            _ => self.seek_before_whole(key)?,
        };
        if found && self.is_before_half() {
            self.position.unset();
        }
        Ok(self.position.is_at_cell())
    }

    /// Moves to the next cell. Returns false after the last cell; the position is unset then.
    #[inline]
    // HBase's name. A cell borrows from the scanner, so this cannot implement `Iterator`.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> TryResult<bool> {
        if !self.position.is_at_cell() {
            return Ok(false);
        }
        if self.position.is_released() {
            self.restore_block()?;
        }
        match self.position.step() {
            Ok(true) => Ok(self.stays_in_half()),
            Ok(false) => self.next_block(),
            Err(e) => Err(self.malformed(e).into()),
        }
    }

    /// The index's key of the next data block. Every cell before it is in the blocks up to the
    /// current one, so a seek to a key at or after it need not search the current block. `None` in
    /// the last block, or if the position is unset.
    pub fn next_indexed_key(&self) -> Option<CellRef<'_>> {
        self.position.block()?;
        let key = self.index.next_key(self.reader.root())?;
        CellRef::new(key, &[], &[], u64::MAX).ok()
    }

    fn seek_whole(&mut self, key: &CellRef<'_>) -> TryResult<bool> {
        self.consecutive_blocks = 0;
        if let Some(prefetched) = self.prefetcher.take(key) {
            return self.seek_prefetched(prefetched, key);
        }
        let (reader, wait) = (Arc::clone(&self.reader), self.wait);
        let order = self.order;
        let found = match self.unset_and(|s| s.index.seek(&reader.index(wait), key))? {
            Some(at) => self.enter(at, |cursor, block| cursor.seek(block, key, order))?,
            None => match self.unset_and(|s| s.index.first(&reader.index(wait)))? {
                Some(at) => self.enter(at, |cursor, block| cursor.seek(block, key, order))?,
                None => return Ok(false),
            },
        };
        if found { Ok(self.stays_in_half()) } else { self.next_block() }
    }

    /// As [`HFileScanner::seek_whole`], with the results of the prefetch.
    fn seek_prefetched(&mut self, prefetched: PrefetchedRow, key: &CellRef<'_>) -> TryResult<bool> {
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

    fn seek_before_whole(&mut self, key: &CellRef<'_>) -> TryResult<bool> {
        let (reader, wait) = (Arc::clone(&self.reader), self.wait);
        let order = self.order;
        let Some(at) = self.unset_and(|s| s.index.seek(&reader.index(wait), key))? else { return Ok(false) };
        if self.enter(at, |cursor, block| cursor.seek_before(block, key, order))? {
            return Ok(true);
        }
        // No cell of this block is before the key. The keys of the previous block are before this
        // block's index key, so the result is its last cell.
        match self.unset_and(|s| s.index.previous(&reader.index(wait)))? {
            Some(at) => self.enter(at, |cursor, block| cursor.last(block).map(|()| true)),
            None => Ok(false),
        }
    }

    /// Moves to the first cell of the next block.
    fn next_block(&mut self) -> TryResult<bool> {
        let (reader, wait) = (Arc::clone(&self.reader), self.wait);
        let here = self.position.block().map_or(0, Block::offset);
        match self.unset_and(|s| s.index.next(&reader.index(wait)))? {
            Some(at) if at.offset <= here => {
                Err(reader.corrupt(at.offset, "data blocks are out of order").into())
            }
            Some(at) => {
                self.consecutive_blocks = self.consecutive_blocks.saturating_add(1);
                let found = self.enter(at, first)?;
                self.read_ahead();
                Ok(found && self.stays_in_half())
            }
            None => Ok(false),
        }
    }

    /// Requests a read of the next block if this is a scan, its blocks are cached, and the next one
    /// is not.
    fn read_ahead(&self) {
        if !self.insert || self.consecutive_blocks < SEQUENTIAL_BLOCKS {
            return;
        }
        if let Some(at) = self.index.peek_next(&self.reader.index(self.wait))
            && self.reader.should_read_ahead(at)
        {
            read_ahead::request(&self.reader, at);
        }
    }

    /// Loads a block, unless it is the current one, and moves to the cell that `find` finds.
    fn enter(
        &mut self,
        at: BlockLocation,
        find: impl FnOnce(&mut CellCursor, &Block) -> Result<bool, Malformed>,
    ) -> TryResult<bool> {
        let block = match self.position.take_block() {
            Some(block) if block.offset() == at.offset => block,
            _ => {
                if let Some(residency) = &self.residency {
                    residency.record(self.reader.is_cached(at));
                }
                let block = self.load(at)?;
                self.entered_bytes = block.data().len() as u64;
                block
            }
        };
        self.position.enter(block, find).map_err(|e| self.malformed(e).into())
    }

    /// Reads a data block. If it is large and not cached, reserves memory outside of the caches
    /// first.
    fn load(&self, at: BlockLocation) -> TryResult<Block> {
        let _room = match self.needs_reservation(at) {
            true => Some(self.reserve(u64::from(at.on_disk_bytes))?),
            false => None,
        };
        self.reader.load_data(at, self.insert, self.wait)
    }

    fn needs_reservation(&self, at: BlockLocation) -> bool {
        let is_large = u64::from(at.on_disk_bytes) >= heap_blocks::LARGE_BYTES;
        is_large && self.releases && !self.reader.is_cached(at)
    }

    fn reserve(&self, bytes: u64) -> TryResult<heap_blocks::Reservation> {
        if !self.wait.is_allowed() {
            return heap_blocks::Reservation::try_take(bytes).ok_or(TryError::WouldWait);
        }
        let reservation =
            waits::time(Cause::BlockMemory, || cpu_slot::release_during(|| heap_blocks::reserve(bytes)));
        reservation.ok_or_else(|| {
            let message = format!("no memory for a block of {bytes} bytes; try again later");
            HBaseError::new(ErrorKind::RegionTooBusy, message).into()
        })
    }

    /// Unsets the position, and calls `act`.
    fn unset_and<T>(&mut self, act: impl FnOnce(&mut Self) -> TryResult<T>) -> TryResult<T> {
        self.position.unset();
        act(self)
    }

    /// Unsets the position if the current cell is past the half. Returns true if the position is at
    /// a cell.
    #[inline]
    fn stays_in_half(&mut self) -> bool {
        if self.is_after_half() {
            self.position.unset();
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
