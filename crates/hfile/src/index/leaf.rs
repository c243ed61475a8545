//! Leaf and intermediate index blocks, read in place.

use evenkeel_common::search::partition_point;
use evenkeel_common::varint::{read_u32, read_u64};
use evenkeel_common::{CellComparator, CellRef};

use super::{BlockLocation, ENTRY_BYTES};

/// Checks the body of a leaf or intermediate index block: at least one entry, offsets that ascend
/// and fill the body, keys that are KeyValue keys.
pub(crate) fn check_leaf(body: &[u8]) -> Option<()> {
    let leaf = LeafView::new(body)?;
    let mut end = 0;
    for i in 0..leaf.len() {
        if leaf.offset(i)? != end {
            return None;
        }
        end = leaf.offset(i + 1)?;
        leaf.entry(i)?;
        CellRef::new(leaf.key(i)?, &[], &[], 0).ok()?;
    }
    (leaf.entries_start() + end == body.len()).then_some(())
}

/// A view of a leaf or intermediate index block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafView<'a> {
    body: &'a [u8],
    len: usize,
}

impl<'a> LeafView<'a> {
    /// Returns `None` if the count is 0 or the body cannot hold that many entries.
    pub fn new(body: &'a [u8]) -> Option<Self> {
        let len = read_u32(body, 0)? as usize;
        (len > 0 && len < body.len() / (4 + ENTRY_BYTES) + 1).then_some(Self { body, len })
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The location in an entry.
    pub fn entry(&self, i: usize) -> Option<BlockLocation> {
        let start = self.entries_start() + self.offset(i)?;
        Some(BlockLocation {
            offset: read_u64(self.body, start)?,
            on_disk_bytes: read_u32(self.body, start + 8)?,
        })
    }

    /// The key of an entry.
    pub fn key(&self, i: usize) -> Option<&'a [u8]> {
        let start = self.entries_start() + self.offset(i)? + ENTRY_BYTES;
        let end = self.entries_start() + self.offset(i + 1)?;
        self.body.get(start..end)
    }

    /// The number of entries with a key at or before `key`.
    pub fn entries_up_to(&self, key: &CellRef<'_>, order: CellComparator) -> usize {
        partition_point(0..self.len, |i| {
            let entry = self.key(i).and_then(|k| CellRef::new(k, &[], &[], 0).ok());
            entry.is_some_and(|entry| order.compare_keys(&entry, key).is_le())
        })
    }

    fn offset(&self, i: usize) -> Option<usize> {
        read_u32(self.body, 4 + 4 * i).map(|n| n as usize)
    }

    fn entries_start(&self) -> usize {
        4 + 4 * (self.len + 1)
    }
}
