//! Rows beside blocks: results of Gets, under a key made from the region and the row.
//!
//! A row is a frame like a block's. Lookup, pins, eviction and moves are the same, with the same
//! index, budget and policy. The region defines its meaning. Unlike a block, a row can become
//! stale, so its slot stores a state:
//!
//! ```text
//!                      begin: no successor
//!            +-----------------------------------> removed
//!  insert    |          begin                         finish
//!  ------> valid -----------------------------> updating ------> valid, with the successor's bytes
//!            ^   a write will become visible       |  it is visible, and no other update began
//!            |                                     |
//!            +-------- insert (replaces) ----------+--> removed: a second update, or an eviction
//! ```
//!
//! * [`BucketCache::get_row`] takes no lock and serves valid rows only.
//! * [`BucketCache::begin_row_update`] precedes the visibility of a write to the row. From then on
//!   no reader gets the earlier row.
//! * [`BucketCache::finish_row_update`] follows the visibility. It overwrites the row with its
//!   successor, if the successor fits and no reader pins the row; otherwise it removes the row. It
//!   never waits, because the thread that acknowledges writes calls it.
//! * [`BucketCache::insert_row`] checks under the shard's lock that the row is current.
//!   `begin_row_update` takes this lock too. So either the check sees a write that was recorded
//!   before, or that write's `begin_row_update` finds the inserted row.
//!
//! A row whose update never finishes (the log failed) is never served. It is replaced or evicted
//! like any other entry.
//!
//! Rows are small and numerous, so each is also charged [`ROW_INDEX_BYTES`] for its part of the
//! index. A file engine discards the rows of an earlier process when it opens. The `file:` engines
//! cache no rows.

use evenkeel_common::length;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::frame::Header;
use super::pin;
use super::shard::Shard;
use super::slot::Slot;
use super::{BucketCache, hash_of};
use crate::{Block, BlockKey, BlockParts, BlockType};

/// The slot holds a block.
pub(crate) const NO_ROW: u8 = 0;
/// A row that may be served.
pub(crate) const ROW_VALID: u8 = 1;
/// A row that a write in progress changes.
const ROW_UPDATING: u8 = 2;

/// Bytes of slot, index and policy that are charged to a row.
pub const ROW_INDEX_BYTES: u64 = 80;

/// The effect of a write on a cached row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowUpdate {
    /// The row stays the same and is served as before.
    Unchanged,
    /// The successor, served once the write is visible.
    Replaced(Vec<u8>),
    /// The successor is unknown, so the row is removed.
    Unknown,
}

impl BucketCache {
    /// Returns the row as it was inserted or updated last. Counts nothing; see
    /// [`BucketCache::count_row`].
    #[inline]
    pub fn get_row(&self, key: &BlockKey) -> Option<Block> {
        let hash = hash_of(key);
        self.shard(hash).get_row(key, hash)
    }

    /// Counts a hit or a miss of a Get in the row cache.
    #[inline]
    pub fn count_row(&self, hit: bool) {
        self.counters.row(hit);
    }

    /// Inserts a row in place of the entry under its key, if `is_current` confirms that no write
    /// recorded so far changes it. Returns true if the row is kept.
    pub fn insert_row(&self, key: &BlockKey, bytes: Vec<u8>, is_current: impl FnOnce() -> bool) -> bool {
        let hash = hash_of(key);
        self.shard(hash).insert_row(key, hash, &block_of(bytes), is_current)
    }

    /// Stops serving a row until the write `by` is visible, unless the write leaves it unchanged.
    /// `successor` computes the next row from the current one. It runs under the shard's lock, so
    /// it must be fast. Returns the argument for [`BucketCache::finish_row_update`].
    pub fn begin_row_update(
        &self,
        key: &BlockKey,
        by: u32,
        successor: impl FnOnce(&[u8]) -> RowUpdate,
    ) -> Option<Vec<u8>> {
        let hash = hash_of(key);
        self.shard(hash).begin_row_update(key, hash, by, successor)
    }

    /// Replaces a row by its successor, if `by` is still the update in progress.
    pub fn finish_row_update(&self, key: &BlockKey, by: u32, successor: Vec<u8>) {
        let hash = hash_of(key);
        self.shard(hash).finish_row_update(key, hash, by, &block_of(successor));
    }
}

fn block_of(bytes: Vec<u8>) -> Block {
    Block::new(BlockParts {
        kind: BlockType::Data,
        offset: 0,
        on_disk_bytes: 0,
        prev_offset: -1,
        body: 0..length::must_u32(bytes.len()),
        bytes: bytes.into(),
        seek_points: Box::default(),
        seek_keys: Box::default(),
        compressed: false,
    })
}

impl Shard {
    #[inline]
    fn get_row(&self, key: &BlockKey, hash: u64) -> Option<Block> {
        self.open_row(key, hash, Slot::record_hit)
    }

    /// Returns the row of a key if it may be served. Calls `found` with its slot first.
    #[inline]
    fn open_row(&self, key: &BlockKey, hash: u64, found: impl FnOnce(&Slot)) -> Option<Block> {
        let pin = self.pin(key, hash)?;
        let slot = pin.slot();
        if slot.row.load(Acquire) != ROW_VALID {
            return None;
        }
        found(slot);
        let extent = slot.extent();
        let frame = self.storage.frame(extent)?;
        frame.header().is_of(key, extent.len).then(|| Block::pinned(frame, pin))
    }

    fn begin_row_update(
        &self,
        key: &BlockKey,
        hash: u64,
        by: u32,
        successor: impl FnOnce(&[u8]) -> RowUpdate,
    ) -> Option<Vec<u8>> {
        let mut inner = self.inner.lock();
        let id = self.find(key, hash)?;
        let slot = self.slots.get(id);
        // A write is not a use of the row: a row that is written and never read is evicted.
        let row = self.open_row(key, hash, |_| ());
        match row.map_or(RowUpdate::Unknown, |row| successor(row.data())) {
            RowUpdate::Unchanged => None,
            RowUpdate::Replaced(next) => {
                slot.extra.store(by, Relaxed);
                slot.row.store(ROW_UPDATING, Release);
                Some(next)
            }
            RowUpdate::Unknown => {
                self.remove_entry(&mut inner, id);
                None
            }
        }
    }

    fn finish_row_update(&self, key: &BlockKey, hash: u64, by: u32, successor: &Block) {
        let Some(mut inner) = self.inner.try_lock() else { return };
        let Some(id) = self.find(key, hash) else { return };
        let slot = self.slots.get(id);
        if slot.row.load(Relaxed) != ROW_UPDATING || slot.extra.load(Relaxed) != by {
            return;
        }
        let extent = slot.extent();
        let fits = Header::of(key, successor).frame_bytes().is_some_and(|bytes| bytes <= extent.len);
        slot.retire();
        let written = fits && !pin::is_pinned(slot) && self.storage.write(extent, key, successor).is_ok();
        if written {
            slot.row.store(ROW_VALID, Relaxed);
            slot.revive();
        } else {
            slot.revive();
            self.remove_entry(&mut inner, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Admission, BlockCache, BucketCacheConfig, FileId};

    fn cache(bytes: u64) -> BucketCache {
        BucketCache::open(&BucketCacheConfig { poison: true, ..BucketCacheConfig::in_memory(bytes) }).unwrap()
    }

    fn key(row: u64) -> BlockKey {
        BlockKey { file: FileId::from_bits(7), offset: row }
    }

    fn text(cache: &BucketCache, row: u64) -> Option<String> {
        cache.get_row(&key(row)).map(|block| String::from_utf8_lossy(block.data()).into_owned())
    }

    #[test]
    fn a_row_is_not_served_while_it_is_updated() {
        let cache = cache(1 << 20);
        assert!(cache.insert_row(&key(1), b"one".to_vec(), || true));
        assert_eq!(text(&cache, 1).as_deref(), Some("one"));
        let next =
            cache.begin_row_update(&key(1), 5, |old| RowUpdate::Replaced([old, b"+"].concat())).unwrap();
        assert_eq!(text(&cache, 1), None);
        cache.finish_row_update(&key(1), 5, next);
        assert_eq!(text(&cache, 1).as_deref(), Some("one+"));
        assert_eq!((cache.stats().rows, cache.stats().blocks), (1, 1));
    }

    #[test]
    fn a_row_with_two_concurrent_updates_is_dropped() {
        let cache = cache(1 << 20);
        assert!(cache.insert_row(&key(1), b"one".to_vec(), || true));
        let next = cache.begin_row_update(&key(1), 5, |_| RowUpdate::Replaced(b"two".to_vec())).unwrap();
        assert!(cache.begin_row_update(&key(1), 6, |_| RowUpdate::Replaced(b"six".to_vec())).is_none());
        cache.finish_row_update(&key(1), 5, next.clone());
        assert_eq!(text(&cache, 1), None);
        // It does not overwrite a row that a reader inserted meanwhile either.
        assert!(cache.insert_row(&key(1), b"new".to_vec(), || true));
        cache.finish_row_update(&key(1), 5, next.clone());
        assert_eq!(text(&cache, 1).as_deref(), Some("new"));
        assert!(cache.begin_row_update(&key(1), 7, |_| RowUpdate::Replaced(b"sev".to_vec())).is_some());
        cache.finish_row_update(&key(1), 5, next);
        assert_eq!(text(&cache, 1), None);
    }

    #[test]
    fn a_stale_row_or_an_unknown_update_is_dropped() {
        let cache = cache(1 << 20);
        assert!(!cache.insert_row(&key(1), b"one".to_vec(), || false));
        assert!(cache.insert_row(&key(2), b"two".to_vec(), || true));
        assert!(cache.begin_row_update(&key(2), 5, |_| RowUpdate::Unknown).is_none());
        assert_eq!((text(&cache, 1), text(&cache, 2), cache.stats().bytes), (None, None, 0));
        assert!(cache.insert_row(&key(3), b"same".to_vec(), || true));
        assert!(cache.begin_row_update(&key(3), 5, |_| RowUpdate::Unchanged).is_none());
        assert_eq!(text(&cache, 3).as_deref(), Some("same"));
    }

    #[test]
    fn a_reader_keeps_the_row_that_it_was_given() {
        let cache = cache(1 << 20);
        assert!(cache.insert_row(&key(1), b"old".to_vec(), || true));
        let held = cache.get_row(&key(1)).unwrap();
        let next = cache.begin_row_update(&key(1), 5, |_| RowUpdate::Replaced(b"new".to_vec())).unwrap();
        cache.finish_row_update(&key(1), 5, next);
        assert_eq!(held.data(), b"old");
        assert_eq!(text(&cache, 1), None, "it was read, so it could not be changed in place");
        assert_eq!(cache.pending_free(), 1);
    }

    #[test]
    fn reads_count_as_uses_of_a_row_and_writes_do_not() {
        let cache = cache(1 << 20);
        assert!(cache.insert_row(&key(1), b"one".to_vec(), || true));
        let uses = || {
            let hash = hash_of(&key(1));
            let shard = cache.shard(hash);
            shard.slots().get(shard.find(&key(1), hash).unwrap()).uses.load(Relaxed)
        };
        for by in 1..4 {
            let next = cache.begin_row_update(&key(1), by, |_| RowUpdate::Replaced(b"two".to_vec())).unwrap();
            cache.finish_row_update(&key(1), by, next);
            assert!(cache.begin_row_update(&key(1), by, |_| RowUpdate::Unchanged).is_none());
        }
        assert_eq!(uses(), 0);
        assert!(cache.get_row(&key(1)).is_some());
        assert_eq!(uses(), 1);
    }

    #[test]
    fn an_oversized_row_update_drops_the_row() {
        let cache = cache(1 << 20);
        assert!(cache.insert_row(&key(1), b"short".to_vec(), || true));
        let next = cache.begin_row_update(&key(1), 5, |_| RowUpdate::Replaced(vec![b'x'; 100])).unwrap();
        cache.finish_row_update(&key(1), 5, next);
        assert_eq!((text(&cache, 1), cache.stats().rows), (None, 0));
    }

    #[test]
    fn rows_with_their_index_and_blocks_stay_within_the_budget() {
        let bytes = 1 << 20;
        let cache = cache(bytes);
        let block = |fill: u8| block_of(vec![fill; 20_000]);
        for n in 0..20_000 {
            cache.insert_row(&key(n), vec![n as u8; 60 + n as usize % 90], || true);
            if n % 100 == 0 {
                cache.insert(
                    BlockKey { file: FileId::from_bits(8), offset: n },
                    block(n as u8),
                    Admission::New,
                );
            }
            let stats = cache.stats();
            assert!(stats.bytes + stats.rows * ROW_INDEX_BYTES <= bytes, "{stats:?}");
        }
        let stats = cache.stats();
        assert!(stats.rows > 1000 && stats.blocks > stats.rows, "{stats:?}");
        assert!(stats.row_evictions > 10_000 && stats.evictions > stats.row_evictions, "{stats:?}");
        assert!(stats.bytes > bytes / 2 && stats.row_bytes < stats.bytes, "{stats:?}");
        cache.shards.iter().for_each(Shard::check);
        assert_eq!(cache.evict_file(FileId::from_bits(7)) as u64, stats.rows);
        assert_eq!((cache.stats().rows, cache.stats().row_bytes), (0, 0));
    }
}
