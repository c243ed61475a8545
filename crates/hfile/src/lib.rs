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
//! search among the digests of the block's seek points ([`guide`]) -> at most a few cells.
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
//! as [`ROWS_AHEAD_MAX`].

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]
#![deny(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

mod ahead;
mod block_reader;
mod block_writer;
mod bloom;
mod cache_on_write;
mod checksum;
mod context;
mod digest;
mod encoding;
mod error;
mod file_info;
mod guide;
mod header;
mod index;
mod inspect;
mod place;
mod read_ahead;
mod read_back;
mod reader;
mod reference;
mod scanner;
mod separator;
mod trailer;
mod writer;

pub use ahead::ROWS_MAX as ROWS_AHEAD_MAX;
pub use block_reader::checksum_failures_count;
pub use bloom::BloomHash;
pub use cache_on_write::{CacheOnWrite, OnWrite, Warmth};
pub use context::{BloomType, ChecksumType, Compression, DataBlockEncoding, HFileContext};
pub use digest::CellDigest;
pub use file_info::{FileInfo, keys};
pub use inspect::{BloomSummary, IndexEntry};
pub use read_back::ReadBack;
pub use reader::{HFileReader, OpenOptions};
pub use reference::{HFileLink, Half, Range, StoreFileName};
pub use scanner::{HFileScanner, ScanOptions};
pub use trailer::{TRAILER_BYTES, Trailer};
pub use writer::{HFileWriter, StoreFileMeta, WrittenFile};
