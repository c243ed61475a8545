//! [`FlatIndex`]: sorted cells that never change, without the links of a list.
//!
//! ```text
//! record = u64 seq_id | u32 key_value_len | KeyValue bytes          in chunks of the pool, one after the other, unaligned
//! entry  = u32: number of the chunk << 21 | offset in it            in an array, in the order of the cells
//! ```
//! A cell costs its KeyValue and 16 bytes. A chunk is full before the next one is taken, across segments: who builds
//! an index goes on in the chunk that the newest one before has left open. Two indexes become one by merging their
//! entries; the records stay where they are. A chunk goes back to the pool when no index points into it any more.
//!
//! Bound: 2^11 chunks, so 4 GiB and less with cells of a chunk of their own; what is larger stays a skip list.

use std::cmp::Ordering as Order;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use evenkeel_common::{CellComparator, CellRef};

use super::chunk::{ALIGN, CHUNK_BYTES, Chunk, ChunkPool, SHARED_BYTES_MAX};
use super::record::write_key_value;

const OFFSET_BITS: u32 = CHUNK_BYTES.trailing_zeros();
const CHUNKS_MAX: usize = 1 << (u32::BITS - OFFSET_BITS);
const SEQ_ID_BYTES: usize = size_of::<u64>();
const HEADER_BYTES: usize = SEQ_ID_BYTES + size_of::<u32>();
const _: () = assert!(CHUNK_BYTES.is_power_of_two());

/// Which bytes a record is at.
#[derive(Clone, Copy)]
struct Entry(u32);

impl Entry {
    fn new(chunk: usize, offset: usize) -> Self {
        debug_assert!(chunk < CHUNKS_MAX && offset < CHUNK_BYTES);
        Self((chunk as u32) << OFFSET_BITS | offset as u32)
    }

    fn chunk(self) -> usize {
        (self.0 >> OFFSET_BITS) as usize
    }

    fn offset(self) -> usize {
        self.0 as usize & (CHUNK_BYTES - 1)
    }
}

/// A chunk that goes back to its pool.
struct Pooled {
    /// `None` only while it is dropped.
    chunk: Option<Chunk>,
    pool: Arc<ChunkPool>,
}

impl Pooled {
    fn chunk(&self) -> &Chunk {
        self.chunk.as_ref().expect("taken in drop only")
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        self.chunk.take().into_iter().for_each(|chunk| self.pool.give_back(chunk));
    }
}

/// A place in a `FlatIndex`: one of its entries, or none.
pub(super) type Cursor = *const u32;

/// See the module.
pub(super) struct FlatIndex {
    comparator: CellComparator,
    entries: Box<[u32]>,
    chunks: Box<[Arc<Pooled>]>,
    /// Where each chunk begins; the same order.
    bases: Box<[NonNull<u8>]>,
    /// The chunk that may have room left.
    open: Option<usize>,
}

// SAFETY: `bases` point into `chunks`, whose records that `entries` name are never written again.
unsafe impl Send for FlatIndex {}
// SAFETY: as above.
unsafe impl Sync for FlatIndex {}

impl FlatIndex {
    fn new(
        comparator: CellComparator,
        entries: Vec<u32>,
        chunks: Vec<Arc<Pooled>>,
        open: Option<usize>,
    ) -> Self {
        let bases = chunks.iter().map(|chunk| chunk.chunk().base()).collect();
        Self { comparator, entries: entries.into(), chunks: chunks.into(), bases, open }
    }

    /// The order of the cells.
    pub(super) fn comparator(&self) -> CellComparator {
        self.comparator
    }

    /// How many cells there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The first cell that is not before `key`.
    pub(super) fn at_or_after(&self, key: &CellRef<'_>) -> Cursor {
        self.cursor(self.position(0..self.len(), |cell| self.comparator.compare(cell, key) == Order::Less))
    }

    /// The last cell that is before `key`.
    pub(super) fn before(&self, key: &CellRef<'_>) -> Cursor {
        let position = self.position(0..self.len(), |cell| self.comparator.compare(cell, key) == Order::Less);
        position.checked_sub(1).map_or(std::ptr::null(), |last| self.cursor(last))
    }

    /// The first cell.
    pub(super) fn first(&self) -> Cursor {
        self.cursor(0)
    }

    /// The last cell.
    pub(super) fn last(&self) -> Cursor {
        self.len().checked_sub(1).map_or(std::ptr::null(), |last| self.cursor(last))
    }

    /// The cell after one of this index; a null cursor has none.
    #[inline]
    pub(super) fn after(&self, at: Cursor) -> Cursor {
        // One past the last entry is an address of this array still.
        let next = at.wrapping_add(1);
        if at.is_null() || next == self.entries.as_ptr_range().end { std::ptr::null() } else { next }
    }

    /// The cell at a cursor of this index, `None` for null.
    #[inline]
    pub(super) fn cell(&self, at: Cursor) -> Option<CellRef<'_>> {
        // SAFETY: null, or an entry of `entries`, which lives as long as `self`.
        unsafe { at.as_ref() }.map(|entry| self.record(Entry(*entry)))
    }

    fn cursor(&self, position: usize) -> Cursor {
        self.entries.get(position).map_or(std::ptr::null(), std::ptr::from_ref)
    }

    fn cell_at(&self, position: usize) -> CellRef<'_> {
        self.record(Entry(self.entries[position]))
    }

    #[inline]
    fn record(&self, entry: Entry) -> CellRef<'_> {
        // SAFETY: entries are made by `FlatBuilder::push` alone, which wrote a whole record there; nobody writes to those
        // bytes again, and `chunks` keeps them.
        unsafe {
            let at = self.bases[entry.chunk()].add(entry.offset());
            let seq_id = at.cast::<u64>().read_unaligned();
            let len = at.add(SEQ_ID_BYTES).cast::<u32>().read_unaligned() as usize;
            let bytes = std::slice::from_raw_parts(at.add(HEADER_BYTES).as_ptr(), len);
            CellRef::parse_checked(bytes, seq_id)
        }
    }

    /// The first position of a range at which `goes_before` no longer holds; it holds of a run at its beginning, if at all.
    fn position(&self, within: Range<usize>, goes_before: impl Fn(&CellRef<'_>) -> bool) -> usize {
        let Range { start: mut low, end: mut high } = within;
        while low < high {
            let middle = low + (high - low) / 2;
            match goes_before(&self.cell_at(middle)) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// As `position`, from `from` to the end, by ever longer steps: cheap when the run is short.
    fn end_of_run(&self, from: usize, goes_before: impl Fn(&CellRef<'_>) -> bool) -> usize {
        let (mut low, mut step) = (from, 1);
        while low + step <= self.len() {
            if !goes_before(&self.cell_at(low + step - 1)) {
                return self.position(low..low + step - 1, goes_before);
            }
            low += step;
            step *= 2;
        }
        self.position(low..self.len(), goes_before)
    }

    /// Cells of this index and of an older one; of those that compare equal, this one's first. `None` when they have too
    /// many chunks.
    pub(super) fn merge_with(&self, older: &Self) -> Option<Self> {
        let mut chunks = older.chunks.to_vec();
        let numbers: Vec<usize> = self.chunks.iter().map(|chunk| number_of(&mut chunks, chunk)).collect();
        if chunks.len() > CHUNKS_MAX {
            return None;
        }
        let moved = |entry: &u32| Entry::new(numbers[Entry(*entry).chunk()], Entry(*entry).offset()).0;
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
                    let next = older.record(Entry(*entry));
                    self.end_of_run(new, |cell| self.comparator.compare(cell, &next) != Order::Greater)
                }
            };
            entries.extend(self.entries[new..until].iter().map(moved));
            new = until;
        }
        entries.extend_from_slice(&older.entries[old..]);
        let open = self.open.map(|open| numbers[open]).or(older.open);
        Some(Self::new(self.comparator, entries, chunks, open))
    }

    /// How many different columns there are: rows, families and qualifiers.
    pub(super) fn count_columns(&self) -> usize {
        let same = |pair: &&[u32]| {
            let [a, b] = [pair[0], pair[1]].map(|entry| self.record(Entry(entry)));
            a.same_row(&b) && a.same_column(&b)
        };
        self.len() - self.entries.windows(2).filter(same).count()
    }
}

/// The place of a chunk in a list, to which it is added when it is not there.
fn number_of(chunks: &mut Vec<Arc<Pooled>>, chunk: &Arc<Pooled>) -> usize {
    chunks.iter().position(|other| Arc::ptr_eq(other, chunk)).unwrap_or_else(|| {
        chunks.push(Arc::clone(chunk));
        chunks.len() - 1
    })
}

/// Makes a [`FlatIndex`] of cells that come in order.
pub(super) struct FlatBuilder {
    pool: Arc<ChunkPool>,
    comparator: CellComparator,
    entries: Vec<u32>,
    chunks: Vec<Arc<Pooled>>,
    open: Option<usize>,
    /// The chunk to go on with.
    before: Option<Arc<Pooled>>,
}

impl FlatBuilder {
    /// For about `cells` cells; begins in the chunk that `before` has left open.
    pub(super) fn new(
        pool: &Arc<ChunkPool>,
        comparator: CellComparator,
        cells: usize,
        before: Option<&FlatIndex>,
    ) -> Self {
        let before = before.and_then(|index| Some(Arc::clone(&index.chunks[index.open?])));
        let entries = Vec::with_capacity(cells);
        Self { pool: Arc::clone(pool), comparator, entries, chunks: Vec::new(), open: None, before }
    }

    /// Copies a cell in, which goes after all others. Gives the bytes that it takes, its entry included; `None` when there
    /// are too many chunks: then nothing was copied.
    pub(super) fn push(&mut self, cell: &CellRef<'_>) -> Option<usize> {
        let bytes = HEADER_BYTES + cell.key_value_len();
        let (entry, at) = self.take(bytes)?;
        // SAFETY: `bytes` bytes at `at` are ours alone (`Chunk::take`): a header and the KeyValue.
        unsafe {
            at.cast::<u64>().write_unaligned(cell.seq_id());
            at.add(SEQ_ID_BYTES).cast::<u32>().write_unaligned(cell.key_value_len() as u32);
            write_key_value(at.add(HEADER_BYTES), cell);
        }
        self.entries.push(entry.0);
        Some(bytes + size_of::<Entry>())
    }

    fn take(&mut self, bytes: usize) -> Option<(Entry, NonNull<u8>)> {
        if bytes > SHARED_BYTES_MAX {
            let chunk = self.pool.take_large(bytes.next_multiple_of(ALIGN));
            let number = self.add(self.pooled(chunk))?;
            return Some((Entry::new(number, 0), self.chunks[number].chunk().take(bytes)?));
        }
        loop {
            if let Some(number) = self.open {
                let chunk = self.chunks[number].chunk();
                if let Some(at) = chunk.take(bytes) {
                    let offset = at.as_ptr() as usize - chunk.base().as_ptr() as usize;
                    return Some((Entry::new(number, offset), at));
                }
            }
            let next = self.before.take().unwrap_or_else(|| self.pooled(self.pool.take()));
            self.open = Some(self.add(next)?);
        }
    }

    fn pooled(&self, chunk: Chunk) -> Arc<Pooled> {
        Arc::new(Pooled { chunk: Some(chunk), pool: Arc::clone(&self.pool) })
    }

    fn add(&mut self, chunk: Arc<Pooled>) -> Option<usize> {
        let number = self.chunks.len();
        (number < CHUNKS_MAX).then(|| self.chunks.push(chunk))?;
        Some(number)
    }

    /// The index of all cells pushed.
    pub(super) fn finish(self) -> FlatIndex {
        FlatIndex::new(self.comparator, self.entries, self.chunks, self.open)
    }
}
