//! The data index: from a key to the one data block that may hold it.
//!
//! ```text
//! root entry  = i64 offset | i32 on-disk size | vint key_len | key
//! root block  = root entry ... [ | mid key ]                   mid key: only with leaves
//! mid key     = i64 leaf offset | i32 leaf on-disk size | i32 entry
//! leaf block  = i32 n | (n + 1) x i32 offset | n x ( i64 offset | i32 on-disk size | key )
//! ```
//!
//! Leaf and intermediate blocks have the same format. Their `n + 1` offsets count from the end of
//! the table of offsets; the last one is the end of the last entry. A key is a KeyValue key. It is
//! greater than every key of the previous block, and not greater than the first key of the block
//! that it refers to.

mod cursor;
mod leaf;
mod root;
mod separator;
mod writer;

pub(crate) use cursor::{IndexCursor, LoadIndexBlock};
pub(crate) use leaf::{LeafView, check_leaf};
pub(crate) use root::{MidKey, RootIndex};
pub(crate) use separator::separator;
pub(crate) use writer::{IndexWriter, SingleLevelIndex};

/// The location of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockLocation {
    pub offset: u64,
    /// Header, body and checksums.
    pub on_disk_bytes: u32,
}

/// Bytes of a leaf entry before its key.
const ENTRY_BYTES: usize = 8 + 4;
