//! Compound bloom filters: chunks of bits between the data blocks, and one block of metadata.
//!
//! ```text
//! chunk = bits, byte p / 8, bit p % 8
//! meta  = i32 version (3) | i64 bytes of all chunks | i32 hash count | i32 hash type | i64 keys
//!       | i64 most keys | i32 chunks | vint n, comparator class name
//!       | root index entries: first key of each chunk
//! ```
//!
//! A key belongs to the last chunk whose first key is at or before it. It sets or queries `hash
//! count` bits at `abs((h1 + i * h2) % bits)`, in Java's wrapping 32-bit arithmetic, with `h1 =
//! hash(key, 0)` and `h2 = hash(key, h1)`.
//!
//! Keys: the row; a prefix of the row; or for ROWCOL a KeyValue key without family, with the latest
//! timestamp and type Maximum. The delete family filter holds the rows in which a family was
//! deleted.

mod chunk;
mod hash;
mod reader;
mod writer;

pub(crate) use chunk::contains;
pub use hash::BloomHash;
pub(crate) use reader::BloomMeta;
pub(crate) use writer::BloomWriter;

/// The version of the metadata block.
const VERSION: u32 = 3;
/// The comparator named in the metadata of a ROWCOL filter.
const ROW_COL_COMPARATOR: &[u8] = b"org.apache.hadoop.hbase.CellComparatorImpl";

/// Appends the key of a row and column.
pub(crate) fn row_col_key(out: &mut Vec<u8>, row: &[u8], qualifier: &[u8]) {
    let maximum = evenkeel_common::CellType::Maximum.code();
    evenkeel_common::cell::write_key(
        out,
        row,
        &[],
        qualifier,
        evenkeel_common::cell::LATEST_TIMESTAMP,
        maximum,
    );
}

/// The prefix of a row that a prefix filter uses.
pub(crate) fn row_prefix(row: &[u8], prefix_bytes: u32) -> &[u8] {
    row.get(..prefix_bytes as usize).unwrap_or(row)
}
