//! A region that moves: its files in the block cache of the old server, and the hot blocks that
//! the new server fetches.

use evenkeel_block_cache::FileId;
use evenkeel_common::Result;
use evenkeel_hfile::ToldBlock;

use super::Region;

impl Region {
    /// Returns the ids of the store files in the block cache.
    pub fn file_ids(&self) -> Vec<FileId> {
        self.stores.iter().flat_map(|store| store.file_ids()).collect()
    }

    /// Reads blocks of one of the region's files into the cache
    /// ([`Store::fetch_blocks`](crate::store::Store::fetch_blocks)). Returns the number of blocks
    /// that were cached; 0 if the region has no such file.
    ///
    /// # Errors
    /// `IOException`.
    pub fn fetch_blocks(
        &self,
        file: FileId,
        told: &[ToldBlock],
        heat: u8,
        may_read: &mut dyn FnMut(usize) -> bool,
    ) -> Result<u64> {
        let mut stores = self.stores.iter();
        stores.find_map(|store| store.fetch_blocks(file, told, heat, may_read)).unwrap_or(Ok(0))
    }
}
