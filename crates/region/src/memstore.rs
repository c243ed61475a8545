//! The MemStore: cells that were written and are not in a file yet.
//!
//! A store's MemStore is a list of [`Segment`]s, the newest first: the *active* segment, which
//! takes writes; the *pipeline* of segments that in-memory flushes have swapped out of it; and the
//! segments that a flush has frozen. The list is part of the store's state, an immutable snapshot
//! that readers hold; see [`crate::store`].
//!
//! A segment that takes writes is a skip list. Its nodes, with index and cell bytes, lie in chunks
//! of 2 MiB or as configured (the first has 256 KiB), outside the general heap, like HBase's MSLAB
//! with the index inside. A node is never freed or moved, and only its links change. Dropping the
//! segment returns whole chunks.
//!
//! ```text
//! node = u64 seq_id | u32 key_value_len | u16 height | u8 hidden | u8 0
//!        | height x link | KeyValue bytes | padding to 8
//! link = prefix code of the next node's row, 19 bits | its address / 8, 45 bits
//! ```
//!
//! | type | contents |
//! |---|---|
//! | [`ChunkPool`] | spare chunks, bounded, shared by all stores of a server |
//! | `Arena` | the chunks of one segment; allocates by one atomic addition |
//! | `SkipList` | sorted cells; inserts by compare-and-swap, wait-free for readers |
//! | `RowPrefixEncoder` | encodes a row's prefix into the links to its cells |
//! | `FlatIndex` | sorted cells that never change: an array of their locations |
//! | [`Segment`] | a skip list or a flat index, with its sizes and its time range |
//! | [`FlatSegmentBuilder`] | builds a flat segment of cells in order |
//! | [`InMemoryConfig`], `MemStoreCompactionStrategy` | what an in-memory flush does |
//! | [`SegmentScanner`] | a cursor that skips cells above its read point |
//!
//! Memory: `Segment::size().heap_bytes` counts the bytes of nodes and hints, or of records and
//! entries, exactly. Chunks round that up. The last chunk of a segment may hold a single cell. Each
//! earlier chunk has less free space than its next cell needed, at most 256 KiB unless configured
//! otherwise. A larger cell gets a chunk of its size. `Segment::chunk_bytes` counts the chunks, and
//! the pool bounds the chunks of all segments.

#[allow(unsafe_code, reason = "owns or reads the memory of cells")]
mod arena;
#[allow(unsafe_code, reason = "owns or reads the memory of cells")]
mod chunk;
mod compaction_strategy;
#[allow(unsafe_code, reason = "owns or reads the memory of cells")]
mod flat;
#[cfg(test)]
#[allow(clippy::duplicate_mod, reason = "the core is compiled once more for each way of running it")]
#[allow(unsafe_code, reason = "owns or reads the memory of cells")]
mod loom_tests;
#[cfg(test)]
mod map_tests;
#[allow(unsafe_code, reason = "owns or reads the memory of cells")]
mod memory_hints;
mod pool_config;
#[allow(unsafe_code, reason = "owns or reads the memory of cells")]
mod record;
mod row_prefix_code;
#[allow(unsafe_code, reason = "owns or reads the memory of cells")]
mod scanner;
mod segment;
#[allow(unsafe_code, reason = "owns or reads the memory of cells")]
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

/// The sizes of a MemStore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemStoreSize {
    /// Bytes of the cells as KeyValues.
    pub data_bytes: u64,
    /// Bytes of the nodes or records: cells, index and padding.
    pub heap_bytes: u64,
    /// The number of cells.
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
