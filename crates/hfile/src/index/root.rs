//! Root index blocks, read when a file is opened and kept in memory.

use std::ops::Range;

use evenkeel_common::search::partition_point;
use evenkeel_common::varint::{read_u32, read_u64, read_vlong};
use evenkeel_common::{CellComparator, CellRef};

use super::{BlockLocation, ENTRY_BYTES};
use crate::row_prefix_index::{candidates, common_prefix, prefix_of};

/// The location of the file's middle key, in an index with leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MidKey {
    pub leaf: BlockLocation,
    pub entry: u32,
}

const MID_KEY_BYTES: usize = 16;

/// A root index: its keys in one allocation, and the location of each.
#[derive(Debug, Default)]
pub(crate) struct RootIndex {
    keys: Vec<u8>,
    entries: Vec<RootEntry>,
    /// The row prefix index of the keys; see [`crate::row_prefix_index`].
    prefixes: Vec<u32>,
    prefix: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct RootEntry {
    key_end: u32,
    at: BlockLocation,
}

impl RootIndex {
    /// Reads `count` entries whose keys are rows. Returns the rest of the body, or `None` if the
    /// entries are malformed.
    pub fn parse(body: &[u8], count: u32) -> Option<(Self, &[u8])> {
        let (mut index, rest) = Self::parse_entries(body, count)?;
        index.build_prefix_index(|key| key);
        Some((index, rest))
    }

    /// As [`RootIndex::parse`], for KeyValue keys.
    pub fn parse_cells(body: &[u8], count: u32) -> Option<(Self, &[u8])> {
        let (mut index, rest) = Self::parse_entries(body, count)?;
        (0..index.len()).try_for_each(|i| CellRef::new(index.key(i), &[], &[], 0).ok().map(drop))?;
        index.build_prefix_index(|key| CellRef::from_checked(key, &[], &[], 0).row());
        Some((index, rest))
    }

    fn build_prefix_index(&mut self, row_of: impl for<'a> Fn(&'a [u8]) -> &'a [u8]) {
        let Some(last) = self.len().checked_sub(1) else { return };
        let prefix = common_prefix(row_of(self.key(0)), row_of(self.key(last))).to_vec();
        self.prefixes = (0..=last).map(|i| prefix_of(row_of(self.key(i)), prefix.len())).collect();
        self.prefix = prefix;
    }

    fn parse_entries(mut body: &[u8], count: u32) -> Option<(Self, &[u8])> {
        let count = count as usize;
        if count > body.len() / (ENTRY_BYTES + 1) {
            return None;
        }
        let mut index = Self { entries: Vec::with_capacity(count), ..Self::default() };
        for _ in 0..count {
            body = index.parse_entry(body)?;
        }
        Some((index, body))
    }

    /// Reads the root of the data index: KeyValue keys, and a mid key if there are leaves. `None`
    /// if anything follows.
    pub fn parse_data(body: &[u8], count: u32, levels: u32) -> Option<(Self, Option<MidKey>)> {
        let (index, rest) = Self::parse_cells(body, count)?;
        let mid_key = if levels > 1 { Some(parse_mid_key(rest)?) } else { None };
        let rest_bytes = if levels > 1 { MID_KEY_BYTES } else { 0 };
        (rest.len() == rest_bytes).then_some((index, mid_key))
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The location in an entry.
    ///
    /// # Panics
    /// If there is no such entry. [`RootIndex::key`] panics likewise.
    #[expect(clippy::indexing_slicing, reason = "documented: `i` is below `len`")]
    pub fn entry(&self, i: usize) -> BlockLocation {
        self.entries[i].at
    }

    /// The key of an entry.
    #[expect(
        clippy::indexing_slicing,
        reason = "documented: `i` is below `len`; `parse_entry` made the key ends"
    )]
    pub fn key(&self, i: usize) -> &[u8] {
        let start = i.checked_sub(1).map_or(0, |before| self.entries[before].key_end as usize);
        &self.keys[start..self.entries[i].key_end as usize]
    }

    /// The number of entries with a key at or before `key`, compared as cells.
    pub fn entries_up_to(&self, key: &CellRef<'_>, order: CellComparator) -> usize {
        partition_point(self.candidates(key.row(), order), |i| {
            order.compare_keys(&CellRef::from_checked(self.key(i), &[], &[], 0), key).is_le()
        })
    }

    /// The number of entries at or before `row`, whose keys are rows.
    pub fn entries_up_to_row(&self, row: &[u8], order: CellComparator) -> usize {
        partition_point(self.candidates(row, order), |i| order.compare_rows(self.key(i), row).is_le())
    }

    /// The entries that must be compared with a row. Entries before the range are smaller, and
    /// entries after it are greater.
    #[expect(clippy::indexing_slicing, reason = "an index has a prefix for each entry, or it has no entries")]
    fn candidates(&self, row: &[u8], order: CellComparator) -> Range<usize> {
        match order {
            CellComparator::Default => candidates(row, &self.prefix, self.len(), |i| self.prefixes[i]),
            CellComparator::Meta => 0..self.len(),
        }
    }

    /// Bytes of memory.
    pub fn heap_bytes(&self) -> usize {
        self.keys.capacity()
            + self.entries.capacity() * size_of::<RootEntry>()
            + self.prefixes.capacity() * size_of::<u32>()
    }

    fn parse_entry<'a>(&mut self, body: &'a [u8]) -> Option<&'a [u8]> {
        let at = BlockLocation { offset: read_u64(body, 0)?, on_disk_bytes: read_u32(body, 8)? };
        let (key_len, len) = read_vlong(body.get(ENTRY_BYTES..)?)?;
        let (key, rest) = body.get(ENTRY_BYTES + len..)?.split_at_checked(usize::try_from(key_len).ok()?)?;
        self.keys.extend_from_slice(key);
        self.entries.push(RootEntry { key_end: u32::try_from(self.keys.len()).ok()?, at });
        Some(rest)
    }
}

fn parse_mid_key(bytes: &[u8]) -> Option<MidKey> {
    let leaf = BlockLocation { offset: read_u64(bytes, 0)?, on_disk_bytes: read_u32(bytes, 8)? };
    Some(MidKey { leaf, entry: read_u32(bytes, 12)? })
}
