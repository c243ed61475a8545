//! Store files: HFile version 3, as HBase 2.6 reads and writes it.
//!
//! # What is here
//! * [`HFileWriter`] turns ordered cells into a file.
//! * [`HFileReader`] is an open file: its index root, its file info, its bloom filters.
//! * [`HFileScanner`] is a place in it.
//! * [`ReadBack`] reads a file that was just written, and compares it with what the writer was given.
//!
//! The format is drawn byte by byte in `docs/formats/hfile.md`; each module's header draws its part.
//!
//! # How a seek goes
//! root index (kept) -> leaf index block (cache) -> data block (cache; else file, checksum, decompress, walk) -> binary
//! search among the digests of the block's seek points ([`row_prefix_index`]) -> at most a few cells.
//!
//! # Invariants
//! * Bytes from a file are never trusted: lengths are checked before they are used, nothing is allocated by a length
//!   that the file could not hold, and no walk of the index goes backwards.
//! * A block that is handed out was verified by its checksum and walked once, so its cells are well formed.
//! * A block that does not verify is read once more, through the file system's own checksums, and counted; what is
//!   damaged then is `CorruptHFileException`, with the file and the offset.
//!
//! # Bounds
//! A reader keeps its root index (at most about `hfile.index.block.max.size`) and the description of two bloom filters.
//! A scanner holds one data block and one index block a level; one that was told what rows come next, those of as many rows
//! as [`PREFETCH_ROWS_MAX`].

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]
#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

mod block;
mod bloom;
mod context;
mod encoding;
mod error;
mod file_info;
mod index;
mod reader;
mod reference;
mod row_prefix_index;
mod scanner;
mod trailer;
mod writer;

pub use block::checksum_failures_count;
pub use bloom::BloomHash;
pub use context::{BloomType, ChecksumType, Compression, DataBlockEncoding, HFileContext};
pub use file_info::{FileInfo, keys};
pub use reader::{BloomSummary, HFileReader, IndexEntry, OpenOptions};
pub use reference::{HFileLink, Half, ReferenceRange, StoreFileName};
pub use scanner::{HFileScanner, PREFETCH_ROWS_MAX, ScanOptions};
pub use trailer::{TRAILER_BYTES, Trailer};
pub use writer::{
    CacheOnWrite, CacheOnWritePolicy, CellDigest, HFileWriter, InputResidency, ReadBack, StoreFileMeta,
    WrittenFile,
};
