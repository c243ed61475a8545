//! The blocks of a file: header, checksums, reading and writing.

pub(crate) mod checksum;
pub(crate) mod header;
mod reader;
mod writer;

pub(crate) use reader::BlockReader;
pub use reader::checksum_failures_count;
pub(crate) use writer::{BlockWriter, WrittenBlock, reset};
