//! [`Segment`]: a skip list, its sizes and its time range.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use evenkeel_common::{CellComparator, CellRef};

use super::skip_list::SkipList;
use super::{ChunkPool, MemStoreSize};
use crate::ops::TimeRange;

/// Cells of one store in memory. Takes inserts from many threads; readers wait for nothing.
pub struct Segment {
    pub(super) list: SkipList,
    data_bytes: AtomicU64,
    heap_bytes: AtomicU64,
    cells: AtomicU64,
    min_timestamp: AtomicI64,
    max_timestamp: AtomicI64,
}

impl Segment {
    /// An empty segment. Takes its first chunk with the first cell.
    pub fn new(comparator: CellComparator, pool: Arc<ChunkPool>) -> Arc<Self> {
        Arc::new(Self {
            list: SkipList::new(comparator, pool),
            data_bytes: AtomicU64::new(0),
            heap_bytes: AtomicU64::new(0),
            cells: AtomicU64::new(0),
            min_timestamp: AtomicI64::new(i64::MAX),
            max_timestamp: AtomicI64::new(i64::MIN),
        })
    }

    /// Copies a cell in. It is visible to scanners whose read point has reached its sequence id.
    pub fn add(&self, cell: &CellRef<'_>) {
        // Before the cell can be seen, so that no reader skips the segment for a range that the cell is in.
        self.min_timestamp.fetch_min(cell.timestamp(), Ordering::Relaxed);
        self.max_timestamp.fetch_max(cell.timestamp(), Ordering::Relaxed);
        let bytes = self.list.insert(cell);
        self.data_bytes.fetch_add(cell.key_value_len() as u64, Ordering::Relaxed);
        self.heap_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.cells.fetch_add(1, Ordering::Relaxed);
    }

    /// Hides every cell with this key and sequence id, for ever. The sizes stay: the bytes do.
    pub fn take_back(&self, cell: &CellRef<'_>) {
        self.list.hide(cell);
    }

    /// What the segment holds.
    pub fn size(&self) -> MemStoreSize {
        MemStoreSize {
            data_bytes: self.data_bytes.load(Ordering::Relaxed),
            heap_bytes: self.heap_bytes.load(Ordering::Relaxed),
            cells: self.cells.load(Ordering::Relaxed),
        }
    }

    /// Whether there is no cell.
    pub fn is_empty(&self) -> bool {
        self.list.first().is_null()
    }

    /// The first cell of all.
    pub fn first(&self) -> Option<CellRef<'_>> {
        self.list.cell(self.list.first())
    }

    /// The least timestamp; `i64::MAX` when there is no cell.
    pub fn min_timestamp(&self) -> i64 {
        self.min_timestamp.load(Ordering::Relaxed)
    }

    /// The greatest timestamp; `i64::MIN` when there is no cell.
    pub fn max_timestamp(&self) -> i64 {
        self.max_timestamp.load(Ordering::Relaxed)
    }

    /// Whether any cell may be in `range` and not older than `oldest_unexpired`.
    pub fn may_contain(&self, range: &TimeRange, oldest_unexpired: i64) -> bool {
        let (min, max) = (self.min_timestamp(), self.max_timestamp());
        max >= oldest_unexpired && max >= range.min && range.compare(min) <= 0
    }
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Segment").field("size", &self.size()).finish_non_exhaustive()
    }
}
