//! For tools that inspect a whole file: its blocks in order, its index by entry, its cells by
//! block.
//!
//! All reads bypass the block cache, and every read is verified.

use evenkeel_block_cache::{Block, BlockType};
use evenkeel_common::varint::{read_u32, read_u64};
use evenkeel_common::{CellRef, KeyBuf, Result};

use crate::bloom::{BloomHash, BloomMeta};
use crate::encoding::CellCursor;
use crate::index::{BlockLocation, LeafView};
use crate::reader::HFileReader;

/// An entry of the data index, at any level.
#[derive(Clone, Debug)]
pub struct IndexEntry {
    /// The offset of the block: a data block, or an index block of the next level.
    pub offset: u64,
    /// Bytes of its header, body and checksums.
    pub on_disk_bytes: u32,
    /// At or before the block's first key, and after all keys of the previous block.
    pub key: KeyBuf,
}

/// The metadata of a bloom filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BloomSummary {
    /// Bytes of all chunks.
    pub bytes: u64,
    /// The number of hash functions.
    pub hash_count: u32,
    /// The hash function.
    pub hash: BloomHash,
    /// Keys added.
    pub keys: u64,
    /// The capacity of the chunks in keys.
    pub keys_max: u64,
    /// The number of chunks.
    pub chunks: u32,
}

impl BloomSummary {
    /// Parses a block of type `GeneralBloomMeta` or `DeleteFamilyBloomMeta`. `None` if it is
    /// malformed.
    pub fn of(block: &Block) -> Option<Self> {
        let body = block.data();
        let meta = BloomMeta::parse(body, false)?;
        Some(Self {
            bytes: read_u64(body, 4)?,
            hash_count: meta.hash_count,
            hash: meta.hash,
            keys: read_u64(body, 20)?,
            keys_max: read_u64(body, 28)?,
            chunks: read_u32(body, 36)?,
        })
    }
}

impl HFileReader {
    /// The end of the blocks, and the start of the trailer.
    pub fn blocks_end(&self) -> u64 {
        self.len() - self.trailer().len() as u64
    }

    /// Reads the block of any type at an offset. The next block starts at its end.
    ///
    /// # Errors
    /// `CorruptHFileException` if there is no intact block; `IOException`.
    pub fn block_at(&self, offset: u64) -> Result<Block> {
        self.blocks().load_unsized(offset)
    }

    /// The entries of the root index. They refer to data blocks if the trailer has one level,
    /// otherwise to index blocks.
    ///
    /// # Errors
    /// `CorruptHFileException` for a malformed key.
    pub fn root_index(&self) -> Result<Vec<IndexEntry>> {
        let root = self.root();
        (0..root.len()).map(|i| self.index_entry(self.root_offset(), root.entry(i), root.key(i))).collect()
    }

    /// The entries of an index block below the root.
    ///
    /// # Errors
    /// `CorruptHFileException` if the block is no index block.
    pub fn index_entries(&self, block: &Block) -> Result<Vec<IndexEntry>> {
        let malformed = || self.blocks().corrupt(block.offset(), "not an index block");
        if !matches!(block.kind(), BlockType::LeafIndex | BlockType::IntermediateIndex) {
            return Err(malformed());
        }
        let view = LeafView::new(block.data()).ok_or_else(malformed)?;
        let entry = |i| {
            let (at, key) = view.entry(i).zip(view.key(i)).ok_or_else(malformed)?;
            self.index_entry(block.offset(), at, key)
        };
        (0..view.len()).map(entry).collect()
    }

    /// Calls `each` with every cell of a data block, in order.
    ///
    /// # Errors
    /// `CorruptHFileException` if it is no data block.
    pub fn for_each_cell(&self, block: &Block, mut each: impl FnMut(&CellRef<'_>)) -> Result<()> {
        let malformed = || self.blocks().corrupt(block.offset(), "the cells are malformed");
        if !block.kind().is_data() {
            return Err(malformed());
        }
        let mut cursor = CellCursor::new(self.blocks().layout);
        cursor.first(block).map_err(|_| malformed())?;
        loop {
            each(&cursor.cell(block));
            if cursor.step(block).map_err(|_| malformed())?.is_none() {
                return Ok(());
            }
        }
    }

    fn index_entry(&self, parent: u64, at: BlockLocation, key: &[u8]) -> Result<IndexEntry> {
        let cell = CellRef::new(key, &[], &[], 0).map_err(|e| self.blocks().corrupt(parent, e))?;
        Ok(IndexEntry { offset: at.offset, on_disk_bytes: at.on_disk_bytes, key: KeyBuf::of(&cell) })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use evenkeel_block_cache::NoCache;
    use evenkeel_common::KeyValue;
    use evenkeel_fs::MemoryFileSystem;

    use super::*;
    use crate::{HFileContext, HFileWriter, OpenOptions, StoreFileMeta};

    #[test]
    fn all_blocks_and_cells_are_seen_once_and_in_the_order_of_the_index() {
        let fs = MemoryFileSystem::new();
        let path = Path::new("/f/0a");
        let context = HFileContext {
            block_bytes: 512,
            index_block_bytes_max: 256,
            index_block_entries_min: 2,
            ..HFileContext::default()
        };
        let mut writer = HFileWriter::create(&fs, path, context).expect("created");
        for i in 0..500 {
            let row = format!("row{i:05}");
            let cell = KeyValue::put(row.as_bytes(), b"f", b"q", 1, &[b'v'; 20]);
            writer.append(&cell.as_cell()).expect("appended");
        }
        writer.finish(StoreFileMeta::default()).expect("finished");
        let reader = HFileReader::open_path(&fs, path, std::sync::Arc::new(NoCache), &OpenOptions::default())
            .expect("opens");
        assert!(reader.trailer().data_index_levels > 1);

        let (mut offset, mut data, mut cells, mut blooms) = (0, Vec::new(), 0, 0);
        while offset < reader.blocks_end() {
            let block = reader.block_at(offset).expect("sound");
            if block.kind().is_data() {
                data.push(offset);
                reader.for_each_cell(&block, |_| cells += 1).expect("cells");
            }
            if block.kind() == BlockType::GeneralBloomMeta {
                let summary = BloomSummary::of(&block).expect("description");
                assert_eq!((summary.keys, summary.chunks), (500, 1));
                blooms += 1;
            }
            offset += u64::from(block.on_disk_bytes());
        }
        assert_eq!((offset, cells, blooms), (reader.blocks_end(), 500, 1));
        assert_eq!(leaves(&reader, reader.root_index().expect("root"), 1), data);
        assert!(reader.block_at(1).is_err() && reader.block_at(u64::MAX).is_err());
    }

    fn leaves(reader: &HFileReader, entries: Vec<IndexEntry>, level: u32) -> Vec<u64> {
        if level == reader.trailer().data_index_levels {
            return entries.iter().map(|entry| entry.offset).collect();
        }
        let children = entries.iter().flat_map(|entry| {
            let block = reader.block_at(entry.offset).expect("sound");
            leaves(reader, reader.index_entries(&block).expect("index"), level + 1)
        });
        children.collect()
    }
}
