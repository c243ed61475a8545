//! [`FlatIndex`]: sorted cells that never change, without the links of a list.
//!
//! ```text
//! record = u64 seq_id | u32 key_value_len | KeyValue bytes
//!          in chunks of the pool, contiguous and unaligned
//! entry  = u32: number of the chunk | offset in it, with as many bits as a chunk's offset needs
//!          in an array, in the order of the cells
//! ```
//! A cell costs its KeyValue and 16 bytes. A chunk is filled before the next one is taken, across
//! segments: a builder continues in the chunk that the newest older index has left open. Two
//! indexes are merged by merging their entries; the records stay where they are. A chunk returns to
//! the pool once no index points into it.
//!
//! Bound: 4 GiB of chunks, which is 2^11 chunks of 2 MiB, or fewer bytes if large cells have
//! separate chunks. A larger segment stays a skip list.

#![allow(clippy::indexing_slicing, reason = "indexes come from the lengths of the arrays")]

use std::cmp::Ordering as Order;
use std::ptr::NonNull;
use std::sync::Arc;

use evenkeel_common::length;
use evenkeel_common::{CellComparator, CellRef, search};

use super::chunk::{ALIGN, Chunk, ChunkPool};
use super::record::write_key_value;

const SEQ_ID_BYTES: usize = size_of::<u64>();
const HEADER_BYTES: usize = SEQ_ID_BYTES + size_of::<u32>();

/// The layout of an entry: this many of its lower bits are the offset in a chunk.
#[derive(Clone, Copy)]
struct EntryLayout(u32);

impl EntryLayout {
    /// The layout for chunks of `chunk_bytes` bytes, at most 4 GiB.
    fn of(chunk_bytes: usize) -> Self {
        Self(chunk_bytes.next_power_of_two().trailing_zeros().min(u32::BITS - 1))
    }

    fn chunks_max(self) -> usize {
        1 << (u32::BITS - self.0)
    }

    fn entry(self, chunk: usize, offset: usize) -> u32 {
        debug_assert!(chunk < self.chunks_max() && offset < 1 << self.0);
        length::must_u32(chunk) << self.0 | length::must_u32(offset)
    }

    #[inline]
    fn chunk(self, entry: u32) -> usize {
        (entry >> self.0) as usize
    }

    #[inline]
    fn offset(self, entry: u32) -> usize {
        (entry & ((1 << self.0) - 1)) as usize
    }
}

/// A chunk that returns to its pool when it is dropped.
struct PooledChunk {
    /// `None` only during the drop.
    chunk: Option<Chunk>,
    pool: Arc<ChunkPool>,
}

impl PooledChunk {
    fn chunk(&self) -> &Chunk {
        self.chunk.as_ref().expect("taken in drop only")
    }
}

impl Drop for PooledChunk {
    fn drop(&mut self) {
        self.chunk.take().into_iter().for_each(|chunk| self.pool.give_back(chunk));
    }
}

/// An entry of a `FlatIndex`, or null.
pub(super) type Cursor = *const u32;

/// See the module.
pub(super) struct FlatIndex {
    comparator: CellComparator,
    bits: EntryLayout,
    entries: Box<[u32]>,
    chunks: Box<[Arc<PooledChunk>]>,
    /// The addresses of the chunks, in the same order.
    bases: Box<[NonNull<u8>]>,
    /// The chunk that may have free space.
    open: Option<usize>,
}

// SAFETY: `bases` point into `chunks`. The records that `entries` refer to are never written again.
unsafe impl Send for FlatIndex {}
// SAFETY: as above.
unsafe impl Sync for FlatIndex {}

impl FlatIndex {
    fn new(
        comparator: CellComparator,
        bits: EntryLayout,
        entries: Vec<u32>,
        chunks: Vec<Arc<PooledChunk>>,
        open: Option<usize>,
    ) -> Self {
        let bases = chunks.iter().map(|chunk| chunk.chunk().base()).collect();
        Self { comparator, bits, entries: entries.into(), chunks: chunks.into(), bases, open }
    }

    /// The order of the cells.
    pub(super) fn comparator(&self) -> CellComparator {
        self.comparator
    }

    /// The number of cells.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the bytes of its entries and of its chunks, including free space. Two indexes may
    /// share a chunk.
    pub(super) fn chunk_bytes(&self) -> usize {
        let chunks: usize = self.chunks.iter().map(|chunk| chunk.chunk().len()).sum();
        chunks + size_of_val(&*self.entries)
    }

    /// The first cell that is not before `key`.
    pub(super) fn at_or_after(&self, key: &CellRef<'_>) -> Cursor {
        self.cursor(self.position_of(key))
    }

    /// The last cell that is before `key`.
    pub(super) fn before(&self, key: &CellRef<'_>) -> Cursor {
        self.position_of(key).checked_sub(1).map_or(std::ptr::null(), |last| self.cursor(last))
    }

    /// The first cell.
    pub(super) fn first(&self) -> Cursor {
        self.cursor(0)
    }

    /// The last cell.
    pub(super) fn last(&self) -> Cursor {
        self.len().checked_sub(1).map_or(std::ptr::null(), |last| self.cursor(last))
    }

    /// Returns the cell after one of this index; null for a null cursor.
    #[inline]
    pub(super) fn after(&self, at: Cursor) -> Cursor {
        // One past the last entry is still an address of this array.
        let next = at.wrapping_add(1);
        if at.is_null() || next == self.entries.as_ptr_range().end { std::ptr::null() } else { next }
    }

    /// The cell at a cursor of this index, `None` for null.
    #[inline]
    pub(super) fn cell(&self, at: Cursor) -> Option<CellRef<'_>> {
        // SAFETY: null, or an entry of `entries`, which lives as long as `self`.
        unsafe { at.as_ref() }.map(|entry| self.record(*entry))
    }

    /// The number of cells before `key`.
    fn position_of(&self, key: &CellRef<'_>) -> usize {
        search::partition_point(0..self.len(), |i| {
            self.comparator.compare(&self.cell_at(i), key) == Order::Less
        })
    }

    fn cursor(&self, position: usize) -> Cursor {
        self.entries.get(position).map_or(std::ptr::null(), std::ptr::from_ref)
    }

    fn cell_at(&self, position: usize) -> CellRef<'_> {
        self.record(self.entries[position])
    }

    #[inline]
    fn record(&self, entry: u32) -> CellRef<'_> {
        // SAFETY: only `FlatBuilder::push` makes entries, after it wrote a whole record there;
        // those bytes are never written again, and `chunks` keeps them alive.
        unsafe {
            let at = self.bases[self.bits.chunk(entry)].add(self.bits.offset(entry));
            let seq_id = at.cast::<u64>().read_unaligned();
            let len = at.add(SEQ_ID_BYTES).cast::<u32>().read_unaligned() as usize;
            let bytes = std::slice::from_raw_parts(at.add(HEADER_BYTES).as_ptr(), len);
            CellRef::parse_checked(bytes, seq_id)
        }
    }

    /// Returns the first position from `from` on at which `goes_before` is false. Cheap if it is
    /// near.
    fn end_of_run(&self, from: usize, goes_before: impl Fn(&CellRef<'_>) -> bool) -> usize {
        search::gallop(from..self.len(), |i| goes_before(&self.cell_at(i)))
    }

    /// Merges this index with an older one. Among equal cells, this index's come first. Returns
    /// `None` if the result has too many chunks.
    pub(super) fn merge_with(&self, older: &Self) -> Option<Self> {
        let mut chunks = older.chunks.to_vec();
        let numbers: Vec<usize> = self.chunks.iter().map(|chunk| number_of(&mut chunks, chunk)).collect();
        let bits = self.bits;
        if bits.0 != older.bits.0 || chunks.len() > bits.chunks_max() {
            return None;
        }
        let moved = |entry: &u32| bits.entry(numbers[bits.chunk(*entry)], bits.offset(*entry));
        let mut entries = Vec::with_capacity(self.len() + older.len());
        let (mut new, mut old) = (0, 0);
        while new < self.len() {
            let cell = self.cell_at(new);
            let until = older.end_of_run(old, |other| self.comparator.compare(other, &cell) == Order::Less);
            entries.extend_from_slice(&older.entries[old..until]);
            old = until;
            let until = match older.entries.get(old) {
                None => self.len(),
                Some(entry) => {
                    let next = older.record(*entry);
                    self.end_of_run(new, |cell| self.comparator.compare(cell, &next) != Order::Greater)
                }
            };
            entries.extend(self.entries[new..until].iter().map(moved));
            new = until;
        }
        entries.extend_from_slice(&older.entries[old..]);
        let open = self.open.map(|open| numbers[open]).or(older.open);
        Some(Self::new(self.comparator, bits, entries, chunks, open))
    }

    /// The number of distinct columns: rows, families and qualifiers.
    pub(super) fn count_columns(&self) -> usize {
        let same = |pair: &&[u32]| {
            let [a, b] = [pair[0], pair[1]].map(|entry| self.record(entry));
            a.same_row(&b) && a.same_column(&b)
        };
        self.len() - self.entries.windows(2).filter(same).count()
    }
}

/// Returns the index of a chunk in `chunks`; adds the chunk if it is missing.
fn number_of(chunks: &mut Vec<Arc<PooledChunk>>, chunk: &Arc<PooledChunk>) -> usize {
    chunks.iter().position(|other| Arc::ptr_eq(other, chunk)).unwrap_or_else(|| {
        chunks.push(Arc::clone(chunk));
        chunks.len() - 1
    })
}

/// Builds a [`FlatIndex`] of cells that come in order.
pub(super) struct FlatBuilder {
    pool: Arc<ChunkPool>,
    comparator: CellComparator,
    bits: EntryLayout,
    entries: Vec<u32>,
    chunks: Vec<Arc<PooledChunk>>,
    open: Option<usize>,
    /// The chunk to continue with.
    before: Option<Arc<PooledChunk>>,
}

impl FlatBuilder {
    /// Creates a builder for about `cells` cells. It continues in the chunk that `before` has left
    /// open.
    pub(super) fn new(
        pool: &Arc<ChunkPool>,
        comparator: CellComparator,
        cells: usize,
        before: Option<&FlatIndex>,
    ) -> Self {
        let before = before.and_then(|index| Some(Arc::clone(&index.chunks[index.open?])));
        let entries = Vec::with_capacity(cells);
        let bits = EntryLayout::of(pool.sizes().chunk_bytes);
        Self { pool: Arc::clone(pool), comparator, bits, entries, chunks: Vec::new(), open: None, before }
    }

    /// Copies a cell, which must sort after all others. Returns the bytes it takes, its entry
    /// included. Returns `None`, without copying, if there are too many chunks.
    pub(super) fn push(&mut self, cell: &CellRef<'_>) -> Option<usize> {
        let bytes = HEADER_BYTES + cell.key_value_len();
        let (entry, at) = self.take(bytes)?;
        // SAFETY: `bytes` bytes at `at` are ours alone (`Chunk::take`): a header and the KeyValue.
        unsafe {
            at.cast::<u64>().write_unaligned(cell.seq_id());
            at.add(SEQ_ID_BYTES).cast::<u32>().write_unaligned(length::must_u32(cell.key_value_len()));
            write_key_value(at.add(HEADER_BYTES), cell);
        }
        self.entries.push(entry);
        Some(bytes + size_of::<u32>())
    }

    fn take(&mut self, bytes: usize) -> Option<(u32, NonNull<u8>)> {
        if bytes > self.pool.sizes().shared_bytes_max {
            let chunk = self.pool.take_large(bytes.next_multiple_of(ALIGN));
            let number = self.add(self.pooled(chunk))?;
            return Some((self.bits.entry(number, 0), self.chunks[number].chunk().take(bytes)?));
        }
        loop {
            if let Some(number) = self.open {
                let chunk = self.chunks[number].chunk();
                if let Some(at) = chunk.take(bytes) {
                    let offset = at.as_ptr() as usize - chunk.base().as_ptr() as usize;
                    return Some((self.bits.entry(number, offset), at));
                }
            }
            let next = self.before.take().unwrap_or_else(|| self.pooled(self.pool.take(bytes)));
            self.open = Some(self.add(next)?);
        }
    }

    fn pooled(&self, chunk: Chunk) -> Arc<PooledChunk> {
        Arc::new(PooledChunk { chunk: Some(chunk), pool: Arc::clone(&self.pool) })
    }

    fn add(&mut self, chunk: Arc<PooledChunk>) -> Option<usize> {
        let number = self.chunks.len();
        (number < self.bits.chunks_max()).then(|| self.chunks.push(chunk))?;
        Some(number)
    }

    /// Returns the index of all cells pushed.
    pub(super) fn finish(self) -> FlatIndex {
        FlatIndex::new(self.comparator, self.bits, self.entries, self.chunks, self.open)
    }
}
