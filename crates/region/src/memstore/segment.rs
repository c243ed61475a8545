//! [`Segment`]: sorted cells, their sizes and their time range.

use evenkeel_common::length;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use evenkeel_common::{CellComparator, CellRef};

use super::flat::{FlatBuilder, FlatIndex};
use super::row_prefix_code::RowPrefixEncoder;
use super::skip_list::{InterleavedDescent, SkipList};
use super::{ChunkPool, MemStoreSize};
use crate::operations::TimeRange;

/// A position in a segment, or none. Valid only for the segment that made it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Cursor(*const ());

impl Cursor {
    pub(super) const NONE: Self = Self(std::ptr::null());

    pub(super) fn is_none(self) -> bool {
        self.0.is_null()
    }
}

/// The index of a segment's cells.
enum SegmentIndex {
    /// Takes writes.
    List(SkipList),
    /// Never changes.
    Flat(FlatIndex),
}

/// Calls a method that both kinds of index have. Their cursors are thin pointers.
macro_rules! each {
    ($self:ident, $index:ident => $call:expr) => {
        match &$self.index {
            SegmentIndex::List($index) => $call,
            SegmentIndex::Flat($index) => $call,
        }
    };
}

/// A segment with fewer cells than this is not used to predict the rows of the next one.
const CELLS_TO_LEARN_FROM: u64 = 64;

/// Cells of one store in memory. While it is a list, many threads insert at once, and readers are
/// wait-free.
pub struct Segment {
    index: SegmentIndex,
    data_bytes: AtomicU64,
    heap_bytes: AtomicU64,
    cells: AtomicU64,
    min_timestamp: AtomicI64,
    max_timestamp: AtomicI64,
    /// The number of distinct columns; 0 if unknown.
    columns: AtomicU64,
}

impl Segment {
    /// An empty segment. It takes its first chunk with its first cell. Searches are fastest if most
    /// rows lie between `low` and `high`.
    pub fn new(comparator: CellComparator, (low, high): (&[u8], &[u8]), pool: Arc<ChunkPool>) -> Arc<Self> {
        Self::of_list(SkipList::new(comparator, RowPrefixEncoder::between(low, high), pool))
    }

    fn of_list(list: SkipList) -> Arc<Self> {
        Arc::new(Self::with(SegmentIndex::List(list), MemStoreSize::default()))
    }

    /// Creates an empty segment to follow this one. It expects similar rows.
    ///
    /// # Panics
    /// If the segment is flat.
    pub fn next(&self) -> Arc<Self> {
        let SegmentIndex::List(list) = &self.index else {
            panic!("a flat segment is not what writes went to")
        };
        Self::of_list(list.next_list(self.size().cells >= CELLS_TO_LEARN_FROM))
    }

    fn with(index: SegmentIndex, size: MemStoreSize) -> Self {
        Self {
            index,
            data_bytes: AtomicU64::new(size.data_bytes),
            heap_bytes: AtomicU64::new(size.heap_bytes),
            cells: AtomicU64::new(size.cells),
            min_timestamp: AtomicI64::new(i64::MAX),
            max_timestamp: AtomicI64::new(i64::MIN),
            columns: AtomicU64::new(0),
        }
    }

    /// Copies a cell in. Scanners see it if their read point has reached its sequence id.
    ///
    /// # Panics
    /// If the segment is flat.
    pub fn add(&self, cell: &CellRef<'_>) {
        let SegmentIndex::List(list) = &self.index else { panic!("a flat segment takes no writes") };
        // Before the cell becomes visible, so that no reader skips the segment by a time range that
        // contains it.
        self.extend_time_range(cell.timestamp());
        let bytes = list.insert(cell);
        self.data_bytes.fetch_add(cell.key_value_len() as u64, Ordering::Relaxed);
        self.heap_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.cells.fetch_add(1, Ordering::Relaxed);
    }

    /// The encoder of its rows, while it takes writes.
    #[cfg(test)]
    pub(super) fn row_encoder(&self) -> Option<&RowPrefixEncoder> {
        match &self.index {
            SegmentIndex::List(list) => Some(list.row_encoder()),
            SegmentIndex::Flat(_) => None,
        }
    }

    fn extend_time_range(&self, timestamp: i64) {
        // Load first: nearly every timestamp is within the range already, and a cache line that is
        // only read is not transferred between cores.
        if timestamp < self.min_timestamp() {
            self.min_timestamp.fetch_min(timestamp, Ordering::Relaxed);
        }
        if timestamp > self.max_timestamp() {
            self.max_timestamp.fetch_max(timestamp, Ordering::Relaxed);
        }
    }

    /// Starts a descent to where a row would be inserted; `None` if the list is too small for that
    /// to pay.
    pub(crate) fn begin_descent(self: &Arc<Self>, row: &[u8]) -> Option<SegmentDescent> {
        match &self.index {
            SegmentIndex::List(list) => {
                Some(SegmentDescent { descent: list.begin_descent(row)?, segment: Arc::clone(self) })
            }
            SegmentIndex::Flat(_) => None,
        }
    }

    /// Hides every cell with this key and sequence id, permanently. The sizes stay, because the
    /// bytes do. A flat segment has no such cell: it is made only when all its cells are durable.
    pub fn hide(&self, cell: &CellRef<'_>) {
        if let SegmentIndex::List(list) = &self.index {
            list.hide(cell);
        }
    }

    /// The segment's sizes.
    pub fn size(&self) -> MemStoreSize {
        MemStoreSize {
            data_bytes: self.data_bytes.load(Ordering::Relaxed),
            heap_bytes: self.heap_bytes.load(Ordering::Relaxed),
            cells: self.cells.load(Ordering::Relaxed),
        }
    }

    /// Bytes of its chunks, including free space.
    pub fn chunk_bytes(&self) -> u64 {
        each!(self, index => index.chunk_bytes()) as u64
    }

    /// Returns true if there is no cell.
    pub fn is_empty(&self) -> bool {
        self.first_cursor().is_none()
    }

    /// Returns true if it is flat, and so never changes.
    pub fn is_flat(&self) -> bool {
        matches!(self.index, SegmentIndex::Flat(_))
    }

    /// The first cell.
    pub fn first(&self) -> Option<CellRef<'_>> {
        self.cell(self.first_cursor())
    }

    /// The smallest timestamp; `i64::MAX` if there is no cell.
    pub fn min_timestamp(&self) -> i64 {
        self.min_timestamp.load(Ordering::Relaxed)
    }

    /// The greatest timestamp; `i64::MIN` if there is no cell.
    pub fn max_timestamp(&self) -> i64 {
        self.max_timestamp.load(Ordering::Relaxed)
    }

    /// Returns true if the segment may have a cell in `range` that is not older than
    /// `oldest_unexpired`.
    pub fn may_contain(&self, range: &TimeRange, oldest_unexpired: i64) -> bool {
        let (min, max) = (self.min_timestamp(), self.max_timestamp());
        max >= oldest_unexpired && max >= range.min && range.compare(min) <= 0
    }

    /// Returns the fraction of its cells that are alone in their column, as counted by
    /// [`Segment::count_columns`].
    pub fn unique_fraction(&self) -> Option<f64> {
        let columns = self.columns.load(Ordering::Relaxed);
        (columns > 0).then(|| columns as f64 / self.size().cells.max(1) as f64)
    }

    /// Counts the columns of a flat segment.
    pub fn count_columns(&self) {
        if let SegmentIndex::Flat(index) = &self.index {
            self.columns.store(index.count_columns() as u64, Ordering::Relaxed);
        }
    }

    /// Merges two flat segments, this one being the newer. Returns `None` if one is not flat, or if
    /// the result is too large.
    pub fn merge_with(&self, older: &Self) -> Option<Arc<Self>> {
        let (SegmentIndex::Flat(new), SegmentIndex::Flat(old)) = (&self.index, &older.index) else {
            return None;
        };
        let merged = Self::with(SegmentIndex::Flat(new.merge_with(old)?), self.size() + older.size());
        for segment in [self, older].into_iter().filter(|segment| !segment.is_empty()) {
            merged.extend_time_range(segment.min_timestamp());
            merged.extend_time_range(segment.max_timestamp());
        }
        Some(Arc::new(merged))
    }

    pub(super) fn comparator(&self) -> CellComparator {
        each!(self, index => index.comparator())
    }

    pub(super) fn first_cursor(&self) -> Cursor {
        each!(self, index => Cursor(index.first().cast()))
    }

    pub(super) fn last_cursor(&self) -> Cursor {
        each!(self, index => Cursor(index.last().cast()))
    }

    /// The first cell that is not before `key`.
    pub(super) fn at_or_after(&self, key: &CellRef<'_>) -> Cursor {
        each!(self, index => Cursor(index.at_or_after(key).cast()))
    }

    /// The last cell that is before `key`.
    pub(super) fn before(&self, key: &CellRef<'_>) -> Cursor {
        each!(self, index => Cursor(index.before(key).cast()))
    }

    /// The cell after a cursor, which must not be none.
    #[inline]
    pub(super) fn after(&self, at: Cursor) -> Cursor {
        each!(self, index => Cursor(index.after(at.0.cast()).cast()))
    }

    #[inline]
    pub(super) fn cell(&self, at: Cursor) -> Option<CellRef<'_>> {
        each!(self, index => index.cell(at.0.cast()))
    }

    /// Returns true if the cell belongs to a write that failed, or was replaced by that write.
    #[inline]
    pub(super) fn is_hidden(&self, at: Cursor) -> bool {
        match &self.index {
            SegmentIndex::List(list) => list.is_hidden(at.0.cast()),
            SegmentIndex::Flat(_) => false,
        }
    }
}

/// See [`SkipList::step`].
pub(crate) struct SegmentDescent {
    segment: Arc<Segment>,
    descent: InterleavedDescent,
}

impl SegmentDescent {
    /// Visits one node on the way to `row`. Returns true if there are more.
    #[inline]
    pub(crate) fn step(&mut self, row: &[u8]) -> bool {
        match &self.segment.index {
            SegmentIndex::List(list) => list.step(&mut self.descent, row),
            SegmentIndex::Flat(_) => false,
        }
    }

    /// The current position.
    #[cfg(test)]
    pub(super) fn before(&self) -> Cursor {
        Cursor(self.descent.before().cast())
    }
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Segment")
            .field("size", &self.size())
            .field("is_flat", &self.is_flat())
            .finish_non_exhaustive()
    }
}

/// Builds a flat [`Segment`] of cells that come in order.
pub struct FlatSegmentBuilder {
    index: FlatBuilder,
    segment: Segment,
}

impl FlatSegmentBuilder {
    /// Creates a builder for about `cells` cells. If `before` is flat, it continues in the chunk
    /// that `before` has left open.
    pub fn new(
        pool: &Arc<ChunkPool>,
        comparator: CellComparator,
        cells: u64,
        before: Option<&Segment>,
    ) -> Self {
        let before = before.and_then(|segment| match &segment.index {
            SegmentIndex::Flat(index) => Some(index),
            SegmentIndex::List(_) => None,
        });
        let index = FlatBuilder::new(pool, comparator, length::index(cells), before);
        // Its sizes and times are filled in by `push`, its index by `finish`.
        let empty = FlatBuilder::new(pool, comparator, 0, None).finish();
        Self { index, segment: Segment::with(SegmentIndex::Flat(empty), MemStoreSize::default()) }
    }

    /// Copies a cell, which must sort after all others. Returns false if the segment is full.
    pub fn push(&mut self, cell: &CellRef<'_>) -> bool {
        let Some(bytes) = self.index.push(cell) else { return false };
        let segment = &mut self.segment;
        segment.extend_time_range(cell.timestamp());
        *segment.data_bytes.get_mut() += cell.key_value_len() as u64;
        *segment.heap_bytes.get_mut() += bytes as u64;
        *segment.cells.get_mut() += 1;
        true
    }

    /// Returns the segment.
    pub fn finish(mut self) -> Arc<Segment> {
        self.segment.index = SegmentIndex::Flat(self.index.finish());
        Arc::new(self.segment)
    }
}
