//! The hot blocks of some files, and whether a block that was hot in another server's cache is
//! worth its space here.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

use super::Shard;
use crate::hot_blocks::HotBlock;
use crate::{BlockKey, FileId};

/// Blocks that are read per lock acquisition, some microseconds.
const BLOCKS_AT_ONCE: usize = 64;

impl Shard {
    /// Calls `with` for each block of `files`, by their folded ids, that was requested repeatedly.
    /// Reads every slot, without the lock except for the blocks of these files.
    pub fn each_hot_block(&self, files: &HashMap<u64, FileId>, with: &mut dyn FnMut(HotBlock)) {
        let used = {
            let inner = self.inner.lock();
            if !files.keys().any(|file| inner.files.contains_key(file)) {
                return;
            }
            inner.next_unused
        };
        let mut ids = Vec::with_capacity(BLOCKS_AT_ONCE);
        for id in 1..used {
            let slot = self.slots.get(id);
            if slot.live_version().is_some() && files.contains_key(&slot.file.load(Relaxed)) {
                ids.push(id);
            }
            if ids.len() == BLOCKS_AT_ONCE {
                self.hot_blocks_of(&ids, files).into_iter().for_each(&mut *with);
                ids.clear();
            }
        }
        self.hot_blocks_of(&ids, files).into_iter().for_each(with);
    }

    /// Reads slots under the lock, so that they do not change. They may have changed before.
    fn hot_blocks_of(&self, ids: &[u32], files: &HashMap<u64, FileId>) -> Vec<HotBlock> {
        let inner = self.inner.lock();
        let hot_block = |id: &u32| {
            let slot = self.slots.get(*id);
            let is_block = slot.live_version().is_some() && !slot.is_row();
            let file = files.get(&slot.file.load(Relaxed)).filter(|_| is_block)?;
            Some(HotBlock {
                heat: inner.queues.heat(slot)?,
                key: BlockKey { file: *file, offset: slot.offset.load(Relaxed) },
                on_disk_bytes: slot.on_disk_bytes.load(Relaxed),
            })
        };
        ids.iter().filter_map(hot_block).collect()
    }

    /// Returns true if a block of `bytes` bytes fits without an eviction, or was requested more
    /// often than the block that is evicted next.
    pub fn admits(&self, bytes: u64, heat: u8) -> bool {
        let inner = self.inner.lock();
        bytes <= self.block_bytes_max
            && (inner.used() + bytes <= inner.limit || inner.queues.is_hotter_than_victim(&self.slots, heat))
    }
}
