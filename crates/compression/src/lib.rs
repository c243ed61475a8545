//! The compression codecs of HBase's files ([`Compression`]), in the formats of Hadoop's streams. A
//! *body* is the content of one such stream: the body of an HFile block, or one value of a
//! compressed WAL.
//!
//! | name | stored body |
//! |---|---|
//! | GZ | one gzip member |
//! | SNAPPY, LZ4 | Hadoop's block framing (`framing`) around raw Snappy or LZ4 |
//! | ZSTD | one Zstandard frame (Hadoop's codec), or the block framing around it |
//! | BZIP2 | one bzip2 stream |
//!
//! ZSTD in the block framing is the format of hbase-compression-zstd. Files do not name the format,
//! so readers look for the magic of a Zstandard frame. Some writers append an empty member, frame
//! or super-block. Readers stop when they have the expected bytes.
//!
//! [`StreamCodec`] compresses the cell blocks of RPC by Snappy and LZ4, in the same framing. A cell
//! block does not state its decompressed size.
//!
//! Decompression of files writes into a buffer of the expected size. The caller checks this size
//! against [`expansion_max`], the limit of the codec, so a wrong size in a header costs no memory.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation, clippy::indexing_slicing))]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods, clippy::print_stdout, clippy::print_stderr))]

mod algorithm;
#[cfg(feature = "files")]
mod codec;
mod framing;
#[cfg(feature = "files")]
mod gzip;
mod stream;

pub use algorithm::Compression;
#[cfg(feature = "files")]
pub use codec::{Compressor, check_supported, decompress, expansion_max};
pub use stream::{StreamCodec, StreamError};
