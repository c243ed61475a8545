//! Writing indexes.
//!
//! Entries are collected in a leaf, which is written between data blocks when it is full. The root
//! collects the leaves. If the file has only one leaf, it becomes the root. A root that is too
//! large is divided into intermediate blocks when the file is finished, level by level.

#![expect(clippy::indexing_slicing, reason = "the root has a count of blocks for each entry")]

use evenkeel_block_cache::BlockType;
use evenkeel_common::Result;
use evenkeel_common::length;
use evenkeel_common::varint::{vlong_len, write_vlong};

use super::{BlockLocation, ENTRY_BYTES};
use crate::block::{BlockWriter, WrittenBlock};

/// The number of levels at which a root is no longer divided.
const LEVELS_MAX: u32 = 16;

#[derive(Debug)]
struct ChunkEntry {
    at: BlockLocation,
    key: Box<[u8]>,
    /// It refers to a data block that replaces cached blocks.
    replaces_cached: bool,
}

#[derive(Debug, Default)]
struct IndexChunk {
    entries: Vec<ChunkEntry>,
    /// The number of data blocks up to and including each entry. Only in the root.
    blocks_to: Vec<u64>,
    root_bytes: usize,
    key_bytes: usize,
}

impl IndexChunk {
    fn push(&mut self, entry: ChunkEntry) {
        let key_bytes = entry.key.len();
        self.root_bytes += ENTRY_BYTES + vlong_len(key_bytes as i64) + key_bytes;
        self.key_bytes += key_bytes;
        self.entries.push(entry);
    }

    fn replaces_cached(&self) -> bool {
        self.entries.iter().any(|entry| entry.replaces_cached)
    }

    /// The entry that refers to this chunk, written at `at`.
    fn into_entry(mut self, at: BlockLocation) -> ChunkEntry {
        let replaces_cached = self.replaces_cached();
        ChunkEntry { at, key: self.entries.swap_remove(0).key, replaces_cached }
    }

    fn leaf_bytes(&self) -> usize {
        4 + 4 * (self.entries.len() + 1) + ENTRY_BYTES * self.entries.len() + self.key_bytes
    }

    fn write_leaf(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&length::must_u32(self.entries.len()).to_be_bytes());
        let mut offset = 0u32;
        out.extend_from_slice(&offset.to_be_bytes());
        for ChunkEntry { key, .. } in &self.entries {
            offset += length::must_u32(ENTRY_BYTES + key.len());
            out.extend_from_slice(&offset.to_be_bytes());
        }
        for ChunkEntry { at, key, .. } in &self.entries {
            write_at(*at, out);
            out.extend_from_slice(key);
        }
    }

    fn write_root(&self, out: &mut Vec<u8>) {
        for ChunkEntry { at, key, .. } in &self.entries {
            write_at(*at, out);
            write_vlong(out, key.len() as i64);
            out.extend_from_slice(key);
        }
    }

    /// Appends the leaf with the middle data block, and the entry in it: i64 offset | i32 size |
    /// i32 entry.
    fn write_mid_key(&self, out: &mut Vec<u8>) {
        let blocks = self.blocks_to.last().copied().unwrap_or(0);
        let middle = blocks.saturating_sub(1) / 2;
        let leaf = self.blocks_to.partition_point(|to| *to <= middle);
        let before = leaf.checked_sub(1).map_or(0, |i| self.blocks_to[i]);
        write_at(self.entries[leaf].at, out);
        out.extend_from_slice(&length::must_u32(length::index(middle - before)).to_be_bytes());
    }
}

fn write_at(at: BlockLocation, out: &mut Vec<u8>) {
    out.extend_from_slice(&at.offset.to_be_bytes());
    out.extend_from_slice(&at.on_disk_bytes.to_be_bytes());
}

/// An index that is always one root block: of meta blocks, or of bloom chunks.
#[derive(Debug, Default)]
pub(crate) struct SingleLevelIndex(IndexChunk);

impl SingleLevelIndex {
    pub fn push(&mut self, at: BlockLocation, key: &[u8]) {
        self.0.push(ChunkEntry { at, key: key.into(), replaces_cached: false });
    }

    pub fn len(&self) -> usize {
        self.0.entries.len()
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        self.0.write_root(out);
    }
}

/// The data index being written.
#[derive(Debug)]
pub(crate) struct IndexWriter {
    leaf: IndexChunk,
    root: IndexChunk,
    levels: u32,
    blocks: u64,
    block_bytes_max: usize,
    entries_min: usize,
    uncompressed_bytes: u64,
}

impl IndexWriter {
    pub fn new(block_bytes_max: usize, entries_min: usize) -> Self {
        Self {
            leaf: IndexChunk::default(),
            root: IndexChunk::default(),
            levels: 1,
            blocks: 0,
            block_bytes_max,
            entries_min,
            uncompressed_bytes: 0,
        }
    }

    /// Adds a data block. `key` is at or before its first key, and after all earlier keys.
    /// `replaces_cached`: the block replaces cached blocks.
    pub fn add_block(&mut self, at: BlockLocation, key: &[u8], replaces_cached: bool) {
        self.leaf.push(ChunkEntry { at, key: key.into(), replaces_cached });
        self.blocks += 1;
    }

    /// Writes the leaf if it is full.
    pub fn write_full_leaf(&mut self, blocks: &mut BlockWriter) -> Result<()> {
        if !self.leaf.entries.is_empty() && self.leaf.leaf_bytes() >= self.block_bytes_max {
            self.write_leaf(blocks)?;
        }
        Ok(())
    }

    /// Ends the data blocks: writes the last leaf, or makes it the root.
    pub fn close_leaves(&mut self, blocks: &mut BlockWriter) -> Result<()> {
        if self.leaf.entries.is_empty() {
            return Ok(());
        }
        if self.root.entries.is_empty() {
            self.root = std::mem::take(&mut self.leaf);
            return Ok(());
        }
        self.write_leaf(blocks)
    }

    /// Writes the intermediate levels that the root needs, and the root. Returns the root's offset.
    pub fn write_root(&mut self, blocks: &mut BlockWriter) -> Result<u64> {
        let mut mid_key = Vec::new();
        if self.levels > 1 {
            self.root.write_mid_key(&mut mid_key);
            while self.root_is_large() {
                self.root = self.write_level(blocks)?;
                self.levels += 1;
            }
        }
        let written = blocks.write_uncounted(BlockType::RootIndex, false, |out| {
            self.root.write_root(out);
            out.extend_from_slice(&mid_key);
        })?;
        self.uncompressed_bytes += written.uncompressed_bytes;
        Ok(written.at.offset)
    }

    pub fn root_entries(&self) -> usize {
        self.root.entries.len()
    }

    pub fn levels(&self) -> u32 {
        self.levels
    }

    /// Bytes of all index blocks, uncompressed, without headers.
    pub fn uncompressed_bytes(&self) -> u64 {
        self.uncompressed_bytes
    }

    fn root_is_large(&self) -> bool {
        self.root.root_bytes > self.block_bytes_max
            && self.root.entries.len() > self.entries_min
            && self.levels < LEVELS_MAX
    }

    fn write_leaf(&mut self, blocks: &mut BlockWriter) -> Result<()> {
        let leaf = std::mem::take(&mut self.leaf);
        let written = self.write_chunk(BlockType::LeafIndex, &leaf, blocks)?;
        self.root.push(leaf.into_entry(written.at));
        self.root.blocks_to.push(self.blocks);
        self.levels = 2;
        Ok(())
    }

    /// Divides the root into intermediate blocks. Returns the new root, which refers to them.
    fn write_level(&mut self, blocks: &mut BlockWriter) -> Result<IndexChunk> {
        let (mut parent, mut current) = (IndexChunk::default(), IndexChunk::default());
        let root = std::mem::take(&mut self.root);
        for (i, entry) in root.entries.into_iter().enumerate() {
            current.push(entry);
            if i >= self.entries_min && current.root_bytes >= self.block_bytes_max {
                self.write_intermediate(std::mem::take(&mut current), &mut parent, blocks)?;
            }
        }
        if !current.entries.is_empty() {
            self.write_intermediate(current, &mut parent, blocks)?;
        }
        Ok(parent)
    }

    fn write_intermediate(
        &mut self,
        chunk: IndexChunk,
        parent: &mut IndexChunk,
        blocks: &mut BlockWriter,
    ) -> Result<()> {
        let written = self.write_chunk(BlockType::IntermediateIndex, &chunk, blocks)?;
        parent.push(chunk.into_entry(written.at));
        Ok(())
    }

    fn write_chunk(
        &mut self,
        kind: BlockType,
        chunk: &IndexChunk,
        blocks: &mut BlockWriter,
    ) -> Result<WrittenBlock> {
        let written = match kind {
            BlockType::LeafIndex => {
                blocks.write_referring(kind, chunk.replaces_cached(), |out| chunk.write_leaf(out))?
            }
            _ => blocks.write_uncounted(kind, chunk.replaces_cached(), |out| chunk.write_leaf(out))?,
        };
        self.uncompressed_bytes += written.uncompressed_bytes;
        Ok(written)
    }
}
