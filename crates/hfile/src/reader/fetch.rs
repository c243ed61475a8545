//! [`HFileReader::fetch_blocks`]: reads blocks into the cache at positions that another server has
//! told.
//!
//! A position may be wrong in any way: it comes from a socket. So a block counts only if it lies
//! among the file's blocks, has the told size in its header, and matches its checksum. Anything
//! else is skipped without an error, a second read, or a count of damage. A file whose blocks have
//! no checksums is skipped. A wrong position may still pass, because a value can hold the bytes of
//! a block; it is cached under an offset that no reader requests.
//!
//! Neighbours are read together, [`READ_BYTES_MAX`] at a time. A larger block is read alone.

use evenkeel_block_cache::bucket::BLOCK_BYTES_MAX;
use evenkeel_block_cache::{Admission, Block, BlockCategory, BlockKey};
use evenkeel_common::{Result, length};

use super::HFileReader;
use crate::block::header::HEADER_BYTES;
use crate::index::BlockLocation;

/// A position of a block as another server told it. It is not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ToldBlock {
    /// The offset of the block's header in the file.
    pub offset: u64,
    /// Header, body and checksums.
    pub on_disk_bytes: u32,
}

/// Bytes of one read of several blocks.
const READ_BYTES_MAX: u64 = 1 << 20;
/// Unwanted bytes between two blocks that are read with them.
const GAP_BYTES_MAX: u64 = 64 << 10;
/// Blocks that are looked up in the cache before they are read.
const BLOCKS_AT_ONCE: usize = 64;

impl HFileReader {
    /// Reads blocks into the cache that it lacks and that are worth their space there: those
    /// that had this heat in another server's cache ([`evenkeel_block_cache::BlockCache::admits`]).
    /// Calls `may_read` with the bytes before each read, which may block, and ends if it returns
    /// false. Returns the number of blocks that were cached.
    ///
    /// # Errors
    /// `IOException`.
    pub fn fetch_blocks(
        &self,
        told: &[ToldBlock],
        heat: u8,
        may_read: &mut dyn FnMut(usize) -> bool,
    ) -> Result<u64> {
        let mut fetched = 0;
        if !self.blocks.has_checksums() {
            return Ok(fetched);
        }
        for told in told.chunks(BLOCKS_AT_ONCE) {
            let wanted = self.wanted(told, heat);
            let mut rest = wanted.as_slice();
            while let Some((neighbours, bytes, after)) = split_neighbours(rest) {
                if !may_read(bytes) {
                    return Ok(fetched);
                }
                fetched += self.fetch_neighbours(neighbours, bytes, heat)?;
                rest = after;
            }
        }
        Ok(fetched)
    }

    /// Returns the positions that may be read, in file order and without overlaps.
    fn wanted(&self, told: &[ToldBlock], heat: u8) -> Vec<BlockLocation> {
        let positions = told.iter().filter_map(|told| self.position(*told));
        let mut wanted: Vec<_> = positions.filter(|at| self.is_worth_reading(*at, heat)).collect();
        wanted.sort_unstable_by_key(|at| at.offset);
        wanted.dedup_by(|next, before| next.offset < end_of(before));
        wanted
    }

    /// The position, if a block may be there.
    fn position(&self, ToldBlock { offset, on_disk_bytes }: ToldBlock) -> Option<BlockLocation> {
        let end = offset.checked_add(u64::from(on_disk_bytes))?;
        let is_block = (HEADER_BYTES..=BLOCK_BYTES_MAX).contains(&(on_disk_bytes as usize));
        (is_block && end <= self.cacheable_bytes()).then_some(BlockLocation { offset, on_disk_bytes })
    }

    /// The category and the size in the cache are not known before the block is read.
    fn is_worth_reading(&self, at: BlockLocation, heat: u8) -> bool {
        let key = self.key_of(at);
        let admits = |category| self.blocks.cache.admits(&key, category, at.on_disk_bytes as usize, heat);
        !self.blocks.is_cached(at) && (admits(BlockCategory::Data) || admits(BlockCategory::Index))
    }

    fn fetch_neighbours(&self, neighbours: &[BlockLocation], bytes: usize, heat: u8) -> Result<u64> {
        let start = neighbours.first().map_or(0, |at| at.offset);
        let bytes = self.blocks.read_told(start, bytes)?;
        let bytes_of = |at: &BlockLocation| {
            let from = length::index(at.offset - start);
            bytes.get(from..from + at.on_disk_bytes as usize)
        };
        let blocks = neighbours.iter().filter_map(|at| {
            let block = self.blocks.decode_told(*at, bytes_of(at)?.to_vec())?;
            Some((self.key_of(*at), block))
        });
        Ok(blocks.map(|(key, block)| u64::from(self.insert_fetched(key, block, heat))).sum())
    }

    /// Caches a block if it is still worth its space. A block of an `IN_MEMORY` family gets no
    /// place in the memory area: there it would evict a block that it was not compared with.
    fn insert_fetched(&self, key: BlockKey, block: Block, heat: u8) -> bool {
        let cache = &self.blocks.cache;
        let is_admitted = cache.admits(&key, block.kind().category(), block.data().len(), heat);
        if is_admitted {
            cache.insert(key, block, Admission::Moved(heat));
        }
        is_admitted
    }

    fn key_of(&self, at: BlockLocation) -> BlockKey {
        BlockKey { file: self.blocks.id, offset: at.offset }
    }
}

/// Splits off the first blocks, which one read covers, with its bytes. `None` if there are none.
fn split_neighbours(blocks: &[BlockLocation]) -> Option<(&[BlockLocation], usize, &[BlockLocation])> {
    let first = blocks.first()?;
    let is_read_too = |pair: &&[BlockLocation]| match pair {
        [block, next] => {
            next.offset - end_of(block) <= GAP_BYTES_MAX && end_of(next) - first.offset <= READ_BYTES_MAX
        }
        _ => false,
    };
    let (neighbours, rest) = blocks.split_at(1 + blocks.windows(2).take_while(is_read_too).count());
    let end = neighbours.last().map_or(first.offset, end_of);
    Some((neighbours, length::index(end - first.offset), rest))
}

/// The end of a block whose position was checked.
fn end_of(at: &BlockLocation) -> u64 {
    at.offset + u64::from(at.on_disk_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_read_together_up_to_a_limit() {
        let at = |offset, on_disk_bytes| BlockLocation { offset, on_disk_bytes };
        let blocks =
            [at(0, 100), at(100, 100), at(300, 50), at(1 << 18, 100), at(1 << 20, 5 << 20), at(6 << 20, 1)];
        let mut sizes = Vec::new();
        let mut rest = &blocks[..];
        while let Some((neighbours, bytes, after)) = split_neighbours(rest) {
            sizes.push((neighbours.len(), bytes));
            rest = after;
        }
        assert_eq!(sizes, [(3, 350), (1, 100), (1, 5 << 20), (1, 1)]);
        let full: Vec<_> = (0..40).map(|i| at(i * 65_536, 65_536)).collect();
        let (neighbours, bytes, rest) = split_neighbours(&full).expect("some");
        assert_eq!((neighbours.len(), bytes, rest.len()), (16, 1 << 20, 24));
    }
}
