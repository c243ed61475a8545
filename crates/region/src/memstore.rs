//! The MemStore: what was written and is not in a file yet.
//!
//! A store's MemStore is a list of [`Segment`]s, the newest first: one *active* one that takes writes, the *pipeline* of
//! those that an in-memory flush has put behind it, and those that a flush has frozen. The list itself is part of the
//! store's state, an immutable snapshot that readers hold; see [`crate::store`].
//!
//! A segment that takes writes is a skip list whose nodes, index and cell bytes alike, lie in chunks of 2 MiB or as
//! settings say (the first of 256 KiB) outside the general heap (HBase's MSLAB with the index inside). Nothing in it is
//! ever freed, moved or changed but the links; dropping the segment gives whole chunks back.
//!
//! ```text
//! node = u64 seq_id | u32 key_value_len | u16 height | u8 hidden | u8 0 | height x link | KeyValue bytes | padding to 8
//! link = code of the next node's row, 19 bits | its address / 8, 45 bits
//! ```
//!
//! | type | noun |
//! |---|---|
//! | [`ChunkPool`] | spare chunks, bounded, shared by all stores of a server |
//! | `Arena` | chunks of one segment; hands out space by one atomic addition |
//! | `SkipList` | sorted cells; inserts by compare-and-swap, readers wait for nothing |
//! | `RowPrefixEncoder` | what of a row lies beside the links to its cells |
//! | `FlatIndex` | sorted cells that never change: an array of where they are |
//! | [`Segment`] | one of these two, its sizes and its time range |
//! | [`FlatSegmentBuilder`] | cells in order to a flat segment |
//! | [`InMemoryConfig`], `MemStoreCompactionStrategy` | what an in-memory flush does (`IN_MEMORY_COMPACTION`) |
//! | [`SegmentScanner`] | a cursor that skips what its reader must not see |
//!
//! Memory: `Segment::size().heap_bytes` counts the bytes of nodes and hints, or of records and entries, exactly. Chunks round that
//! up: the last one of a segment may have one cell, and each before it has less room left than the cell that came next wanted,
//! 256 KiB at most unless settings say otherwise. A larger cell has a chunk of its own size. `Segment::chunk_bytes` counts the
//! chunks, and the pool bounds those of all segments.

mod arena;
mod chunk;
mod compaction_strategy;
mod flat;
#[cfg(test)]
#[allow(clippy::duplicate_mod, reason = "the core is compiled once more for each way of running it")]
mod loom_tests;
#[cfg(test)]
mod map_tests;
mod memory_hints;
mod pool_config;
mod record;
mod row_prefix_code;
mod scanner;
mod segment;
mod skip_list;
mod sync;
#[cfg(test)]
mod tests;

pub use chunk::{CHUNK_BYTES, ChunkPool, ChunkSizes};
pub use compaction_strategy::{InMemoryCompaction, InMemoryConfig};
pub(crate) use compaction_strategy::{MemStoreCompactionAction, MemStoreCompactionStrategy};
pub use pool_config::{ChunkPoolConfig, chunk_slack_bytes};
pub use scanner::SegmentScanner;
pub(crate) use segment::SegmentDescent;
pub use segment::{FlatSegmentBuilder, Segment};

/// How much a MemStore holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemStoreSize {
    /// Bytes of the cells as KeyValues.
    pub data_bytes: u64,
    /// Bytes of the nodes or records: cells, index and padding.
    pub heap_bytes: u64,
    /// Cells.
    pub cells: u64,
}

impl std::ops::Add for MemStoreSize {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            data_bytes: self.data_bytes + other.data_bytes,
            heap_bytes: self.heap_bytes + other.heap_bytes,
            cells: self.cells + other.cells,
        }
    }
}

impl std::iter::Sum for MemStoreSize {
    fn sum<I: Iterator<Item = Self>>(sizes: I) -> Self {
        sizes.fold(Self::default(), |a, b| a + b)
    }
}
