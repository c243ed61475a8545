//! Root index blocks, read when a file is opened and kept.

use evenkeel_common::codec::{read_u32, read_u64, read_vlong};
use evenkeel_common::{CellComparator, CellRef};

use super::chunk::partition;
use super::{BlockAt, ENTRY_BYTES};

/// Where the middle key of the file is, when the index has leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MidKey {
    pub leaf: BlockAt,
    pub entry: u32,
}

const MID_KEY_BYTES: usize = 16;

/// A root index: its keys in one piece of memory, and where each points.
#[derive(Debug, Default)]
pub(crate) struct RootIndex {
    keys: Vec<u8>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key_end: u32,
    at: BlockAt,
}

impl RootIndex {
    /// Reads `count` entries; returns what is left of the body. `None` when the entries are not there.
    pub fn parse(mut body: &[u8], count: u32) -> Option<(Self, &[u8])> {
        let count = count as usize;
        if count > body.len() / (ENTRY_BYTES + 1) {
            return None;
        }
        let mut index = Self { keys: Vec::new(), entries: Vec::with_capacity(count) };
        for _ in 0..count {
            body = index.parse_entry(body)?;
        }
        Some((index, body))
    }

    /// Reads the root of the data index: KeyValue keys, and a mid key when there are leaves, and nothing more.
    pub fn parse_data(body: &[u8], count: u32, levels: u32) -> Option<(Self, Option<MidKey>)> {
        let (index, rest) = Self::parse(body, count)?;
        (0..index.len()).try_for_each(|i| CellRef::new(index.key(i), &[], &[], 0).ok().map(drop))?;
        let mid_key = if levels > 1 { Some(parse_mid_key(rest)?) } else { None };
        let rest_bytes = if levels > 1 { MID_KEY_BYTES } else { 0 };
        (rest.len() == rest_bytes).then_some((index, mid_key))
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Where an entry points.
    ///
    /// # Panics
    /// When there is no such entry; as does [`RootIndex::key`].
    pub fn entry(&self, i: usize) -> BlockAt {
        self.entries[i].at
    }

    /// An entry's key.
    pub fn key(&self, i: usize) -> &[u8] {
        let start = i.checked_sub(1).map_or(0, |before| self.entries[before].key_end as usize);
        &self.keys[start..self.entries[i].key_end as usize]
    }

    /// How many entries have a key at or before `key`, as cells.
    pub fn entries_to(&self, key: &CellRef<'_>, order: CellComparator) -> usize {
        partition(self.len(), |i| {
            order.compare_keys(&CellRef::from_checked(self.key(i), &[], &[], 0), key).is_le()
        })
    }

    /// How many entries are at or before `row`, when their keys are rows.
    pub fn entries_to_row(&self, row: &[u8], order: CellComparator) -> usize {
        partition(self.len(), |i| order.compare_rows(self.key(i), row).is_le())
    }

    /// Bytes of memory.
    pub fn heap_bytes(&self) -> usize {
        self.keys.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    fn parse_entry<'a>(&mut self, body: &'a [u8]) -> Option<&'a [u8]> {
        let at = BlockAt { offset: read_u64(body, 0)?, on_disk_bytes: read_u32(body, 8)? };
        let (key_len, len) = read_vlong(&body[ENTRY_BYTES..])?;
        let rest = &body[ENTRY_BYTES + len..];
        let key = rest.get(..usize::try_from(key_len).ok()?)?;
        self.keys.extend_from_slice(key);
        self.entries.push(Entry { key_end: u32::try_from(self.keys.len()).ok()?, at });
        Some(&rest[key.len()..])
    }
}

fn parse_mid_key(bytes: &[u8]) -> Option<MidKey> {
    let leaf = BlockAt { offset: read_u64(bytes, 0)?, on_disk_bytes: read_u32(bytes, 8)? };
    Some(MidKey { leaf, entry: read_u32(bytes, 12)? })
}
