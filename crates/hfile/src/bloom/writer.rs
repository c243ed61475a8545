//! Filling and writing a bloom filter.

use std::collections::VecDeque;

use evenkeel_block_cache::BlockType;
use evenkeel_common::varint::write_vlong;
use evenkeel_common::{CellRef, Result};

use super::chunk::{BloomChunk, ChunkSize};
use super::{BloomHash, ROW_COL_COMPARATOR, VERSION, row_col_key, row_prefix};
use crate::block::BlockWriter;
use crate::context::{BloomType, HFileContext};
use crate::index::SingleLevelIndex;

/// A chunk of consecutive keys that is not written yet.
#[derive(Debug)]
struct PendingChunk {
    first_key: Vec<u8>,
    chunk: BloomChunk,
    /// A data block that ended since the first key replaces cached blocks.
    replaces_cached: bool,
}

/// A bloom filter being written.
#[derive(Debug)]
pub(crate) struct BloomWriter {
    kind: BloomType,
    hash: BloomHash,
    size: ChunkSize,
    current: Option<PendingChunk>,
    ready: VecDeque<PendingChunk>,
    index: SingleLevelIndex,
    last_key: Vec<u8>,
    key: Vec<u8>,
    keys: u64,
    keys_max: u64,
    bytes: u64,
    chunks: u32,
}

impl BloomWriter {
    /// A general filter of the context's type. `None` if the context has none.
    pub fn general(context: &HFileContext) -> Option<Self> {
        (context.bloom != BloomType::None).then(|| Self::new(context.bloom, context))
    }

    /// A delete family filter. A ROWCOL filter serves as one, so a file with a ROWCOL filter has
    /// none.
    pub fn delete_family(context: &HFileContext) -> Option<Self> {
        let wanted = context.delete_family_bloom && context.bloom != BloomType::RowCol;
        wanted.then(|| Self::new(BloomType::Row, context))
    }

    #[allow(clippy::cast_possible_truncation, reason = "HBase's arithmetic, of a float from a double")]
    fn new(kind: BloomType, context: &HFileContext) -> Self {
        // A query of a ROWCOL filter looks up the column and the row, which share the error rate.
        let error_rate = match kind {
            BloomType::RowCol => (1.0 - (1.0 - f64::from(context.bloom_error_rate)).sqrt()) as f32,
            _ => context.bloom_error_rate,
        };
        Self {
            kind,
            hash: context.bloom_hash,
            size: ChunkSize::new(context.bloom_block_bytes, error_rate, context.bloom_fold_max),
            current: None,
            ready: VecDeque::new(),
            index: SingleLevelIndex::default(),
            last_key: Vec::new(),
            key: Vec::new(),
            keys: 0,
            keys_max: 0,
            bytes: 0,
            chunks: 0,
        }
    }

    /// Returns true if the cells of a row have one key.
    pub fn keys_are_rows(&self) -> bool {
        !matches!(self.kind, BloomType::RowCol)
    }

    /// Adds a cell's key, unless the previous cell had the same key. Cells come in order.
    pub fn append(&mut self, cell: &CellRef<'_>) {
        if self.kind == BloomType::Row && self.keys > 0 && cell.row() == self.last_key {
            return;
        }
        self.key.clear();
        match self.kind {
            BloomType::RowCol => row_col_key(&mut self.key, cell.row(), cell.qualifier()),
            BloomType::RowPrefix(bytes) => self.key.extend_from_slice(row_prefix(cell.row(), bytes)),
            _ => self.key.extend_from_slice(cell.row()),
        }
        if self.keys == 0 || self.key != self.last_key {
            self.add_key();
        }
    }

    fn add_key(&mut self) {
        self.finish_full_chunk();
        let (size, key) = (self.size, &self.key);
        let pending = self.current.get_or_insert_with(|| {
            self.chunks += 1;
            PendingChunk { first_key: key.clone(), chunk: BloomChunk::new(size), replaces_cached: false }
        });
        pending.chunk.add(self.hash, key);
        self.keys += 1;
        self.last_key.clone_from(key);
    }

    fn finish_full_chunk(&mut self) {
        if self.current.as_ref().is_some_and(|pending| pending.chunk.is_full()) {
            self.finish_chunk();
        }
    }

    fn finish_chunk(&mut self) {
        if let Some(mut pending) = self.current.take() {
            pending.chunk.fold();
            self.keys_max += u64::from(pending.chunk.keys_max());
            self.bytes += pending.chunk.bits().len() as u64;
            self.ready.push_back(pending);
        }
    }

    /// Records the end of a data block, whose keys are in the pending chunks. `replaces_cached`: it
    /// replaces cached blocks.
    pub fn add_block(&mut self, replaces_cached: bool) {
        self.current
            .iter_mut()
            .chain(&mut self.ready)
            .for_each(|pending| pending.replaces_cached |= replaces_cached);
    }

    /// Writes the full chunks, or all of them when the file ends.
    pub fn write_chunks(&mut self, blocks: &mut BlockWriter, closing: bool) -> Result<()> {
        if closing {
            self.finish_chunk()
        } else {
            self.finish_full_chunk()
        }
        while let Some(pending) = self.ready.pop_front() {
            let fill = |out: &mut Vec<u8>| out.extend_from_slice(pending.chunk.bits());
            let written = blocks.write_referring(BlockType::BloomChunk, pending.replaces_cached, fill)?;
            self.index.push(written.at, &pending.first_key);
        }
        Ok(())
    }

    /// The number of keys.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// The last key.
    pub fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Appends the metadata.
    pub fn write_meta(&self, out: &mut Vec<u8>) {
        debug_assert_eq!(self.index.len(), self.chunks as usize);
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&self.bytes.to_be_bytes());
        out.extend_from_slice(&self.size.hash_count.to_be_bytes());
        out.extend_from_slice(&self.hash.code().to_be_bytes());
        out.extend_from_slice(&self.keys.to_be_bytes());
        out.extend_from_slice(&self.keys_max.to_be_bytes());
        out.extend_from_slice(&self.chunks.to_be_bytes());
        let comparator = if self.kind == BloomType::RowCol { ROW_COL_COMPARATOR } else { &[] };
        write_vlong(out, comparator.len() as i64);
        out.extend_from_slice(comparator);
        self.index.write(out);
    }
}
