//! References: half of a store file, left by a split or a merge.

use evenkeel_common::KeyBuf;

/// Which half of a file a reference names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// Cells at or after the split key.
    Top,
    /// Cells before the split key.
    Bottom,
}

/// Half of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Half {
    /// Sorts before all cells of the split row.
    pub split_key: KeyBuf,
    /// Which side of it.
    pub range: Range,
}
