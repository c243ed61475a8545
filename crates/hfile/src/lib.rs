//! Store files: HFile version 3, as HBase 2.6 reads and writes it.
//!
//! # Types
//! * [`HFileWriter`] writes ordered cells to a file.
//! * [`HFileReader`] is an open file with its index root, its file info and its bloom filters.
//! * [`HFileScanner`] is a position in a file.
//! * [`ReadBack`] reads a file that was just written and compares it with the writer's input.
//!
//! `docs/formats/hfile.md` draws the format byte by byte; each module's header draws its part.
//!
//! # A seek
//! 1. The root index, which is kept in memory, leads to the leaf index block, which comes from the
//!    cache.
//! 2. The leaf leads to the data block: from the cache, or read from the file, verified,
//!    decompressed and parsed once.
//! 3. A binary search in the row prefix index of the block's seek points ([`row_prefix_index`])
//!    leaves at most a few cells to compare.
//! # Invariants
//! * Bytes from a file are never trusted. Lengths are checked before use, no allocation exceeds
//!   what the file could hold, and a descent in the index never goes backwards.
//! * A block given to a caller has a verified checksum. Its cells were checked once, or a cursor
//!   checks them.
//! * A block that fails verification is read again through the file system's checksums, and
//!   counted. If it is still damaged, the error is a `CorruptHFileException` with file and offset.
//!
//! # Bounds
//! A reader keeps its root index (about `hfile.index.block.max.size` at most) and the metadata of
//! two bloom filters. A scanner holds one data block, and one index block per level; with
//! prefetched rows it also holds those of up to [`PREFETCH_ROWS_MAX`] rows.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::indexing_slicing))]
#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

mod block;
mod bloom;
mod context;
mod encoding;
mod error;
mod file_info;
mod index;
pub mod io_metrics;
mod reader;
mod reference;
mod row_prefix_index;
mod scanner;
mod trailer;
mod writer;

pub use block::checksum_failures_count;
pub use bloom::BloomHash;
pub use context::{BloomType, ChecksumType, Compression, DataBlockEncoding, HFileContext};
pub use evenkeel_compression::check_supported as check_compression_supported;
pub use file_info::{FileInfo, keys};
pub use reader::{BloomFilters, BloomSummary, HFileReader, IndexEntry, OpenOptions, ToldBlock};
pub use reference::{HFileLink, Half, ReferenceRange, StoreFileName};
pub use scanner::{HFileScanner, PREFETCH_ROWS_MAX, ScanOptions, SeqIds};
pub use trailer::{TRAILER_BYTES, Trailer};
pub use writer::{
    CacheOnWrite, CacheOnWritePolicy, CellDigest, HFileWriter, InputResidency, ReadBack, StoreFileMeta,
    WrittenFile,
};
