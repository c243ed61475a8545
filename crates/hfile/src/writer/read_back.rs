//! [`ReadBack`]: a file that was just written, read from its first byte to its last, before anything that it replaces may
//! go: a log's edits, the files that a compaction merged.
//!
//! Between a cell in memory and its bytes on a disk lie an encoder, a compressor, a buffer, a file system and a kernel. What
//! one of them gets wrong is found here, while the cells are still somewhere else:
//!
//! * The file is as long as what was written. Trailer, root index and file info can be read, and say what the writer said.
//! * Every block has the file's kind of checksum, which fits it, decompresses, and has the offset of the one of its kind before it.
//! * The index leads to every data block, in the order of the file, and to no other place. A block's key in it is after the
//!   last cell of the block before and not after its first cell; the levels above say the same.
//! * The cells that the blocks decode to have the digest of the cells that were written ([`CellDigest`]): so they are as
//!   many, the same and in the same order, which the writer had checked.
//! * The descriptions of the bloom filters name the chunks that are there.
//!
//! What it does not find: a bloom filter whose bits were wrong when they were written, a disk that loses later what it
//! took, and bytes that are right in the page cache (where they are read from, as they were just written) and wrong behind
//! it. The checksums tell of the latter two when they are read.
//!
//! Nothing goes through the block cache. Memory: one block, and 12 bytes a bloom chunk.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use evenkeel_block_cache::{Block, BlockType, NoCache};
use evenkeel_common::{CellRef, HBaseError, KeyBuf, Result};
use evenkeel_fs::FileSystem;

use crate::encoding::CellCursor;
use crate::error::io_at;
use crate::index::{BlockAt, IndexCursor, LoadIndexBlock};
use crate::reader::{HFileReader, OpenOptions};
use crate::writer::CellDigest;
use crate::writer::WrittenFile;

/// A file being read back. See the module.
#[derive(Debug)]
pub struct ReadBack {
    reader: Arc<HFileReader>,
    written: WrittenFile,
    /// Where the next block begins.
    offset: u64,
    /// The place in the index of the next data block, and where it is.
    index: IndexCursor,
    named: Option<BlockAt>,
    cursor: CellCursor,
    digest: CellDigest,
    /// The last cell's key; empty before the first.
    last_key: KeyBuf,
    /// By kind, the offset of the last block.
    prev_offsets: [i64; BlockType::ALL.len()],
    bloom_chunks: BTreeSet<(u64, u32)>,
}

impl ReadBack {
    /// Opens a file that was just written.
    ///
    /// # Errors
    /// `CorruptHFileException` when it is not what was written; what the file system says.
    pub fn open(fs: &dyn FileSystem, path: &Path, written: WrittenFile) -> Result<Self> {
        let checksum = Some(written.checksum);
        let options = OpenOptions { block_bytes_max: usize::MAX, checksum, ..OpenOptions::default() };
        let reader = HFileReader::open_path(fs, path, Arc::new(NoCache), &options)?;
        let mut index = IndexCursor::default();
        let named = index.first(&*reader)?;
        let cursor = CellCursor::new(reader.blocks().layout);
        let this = Self {
            reader,
            written,
            offset: 0,
            index,
            named,
            cursor,
            digest: CellDigest::default(),
            last_key: KeyBuf::default(),
            prev_offsets: [-1; BlockType::ALL.len()],
            bloom_chunks: BTreeSet::new(),
        };
        this.check_head().map(|()| this)
    }

    /// Reads the next block; how many bytes it has. `None` once the whole file was read and is what was written.
    ///
    /// # Errors
    /// `CorruptHFileException` when it is not what was written; what the file system says.
    pub fn step(&mut self) -> Result<Option<u64>> {
        if self.offset >= self.reader.blocks_end() {
            return self.check_end().map(|()| None);
        }
        let block = self.reader.blocks().load_for_single_use(self.offset)?;
        let kind = block.kind();
        let prev = std::mem::replace(&mut self.prev_offsets[kind as usize], block.offset() as i64);
        if block.prev_offset() != prev {
            return Err(self.differs("the block of its kind before it is not where its header says"));
        }
        if kind.is_data() {
            self.take_data(&block)?;
        } else if kind == BlockType::BloomChunk {
            self.bloom_chunks.insert((block.offset(), block.on_disk_bytes()));
        }
        let bytes = u64::from(block.on_disk_bytes());
        self.offset += bytes;
        Ok(Some(bytes))
    }

    fn take_data(&mut self, block: &Block) -> Result<()> {
        let at = BlockAt { offset: block.offset(), on_disk_bytes: block.on_disk_bytes() };
        if self.named != Some(at) {
            return Err(self.differs(format_args!("the index leads to {:?} next, and not here", self.named)));
        }
        let malformed = |_| self.reader.blocks().corrupt(at.offset, "the cells are malformed");
        self.cursor.first(block).map_err(malformed)?;
        self.check_index_key(&self.cursor.cell(block))?;
        self.digest.add(&self.cursor.cell(block));
        while let Some(cell) = self.cursor.step(block).map_err(malformed)? {
            self.digest.add(&cell);
        }
        self.last_key.set_to(&self.cursor.cell(block));
        self.named = self.index.next(&*self.reader)?;
        Ok(())
    }

    fn check_index_key(&self, first: &CellRef<'_>) -> Result<()> {
        let order = self.reader.comparator();
        let key = self.index.key(self.reader.root()).and_then(|key| CellRef::new(key, &[], &[], 0).ok());
        let Some(key) = key.filter(|_| self.index.levels_agree(self.reader.root())) else {
            return Err(self.differs("the levels of the index do not agree on its key"));
        };
        let is_after_last =
            self.last_key.is_empty() || order.compare_keys(&self.last_key.as_cell(), &key).is_lt();
        if !is_after_last || order.compare_keys(&key, first).is_gt() {
            return Err(self.differs("its key in the index does not lead to it"));
        }
        Ok(())
    }

    /// What was read on opening.
    fn check_head(&self) -> Result<()> {
        let (reader, written) = (&self.reader, &self.written);
        if reader.len() != written.bytes {
            let (is, was) = (reader.len(), written.bytes);
            return Err(self.differs(format_args!("{is} bytes are there of {was} written")));
        }
        // Byte by byte: a trailer has no checksum, and a reader passes over what it does not know.
        let trailer = written.trailer.encode();
        let mut found = vec![0; trailer.len()];
        let blocks = reader.blocks();
        let read = blocks.file.read_exact_at(reader.blocks_end(), &mut found);
        read.map_err(|e| io_at(&blocks.name, reader.blocks_end(), e))?;
        if found != trailer {
            return Err(self.differs("the trailer is another"));
        }
        if *reader.file_infos() != written.file_info {
            return Err(self.differs("the file info is another"));
        }
        Ok(())
    }

    /// What only all blocks together tell.
    fn check_end(&self) -> Result<()> {
        if let Some(at) = self.named {
            return Err(self.differs(format_args!("the index names a data block at {}", at.offset)));
        }
        if self.written.digest.is_some_and(|digest| digest != self.digest) {
            let (is, was) = (self.digest.cells(), self.written.entries);
            return Err(self.differs(format_args!("its {is} cells are not the {was} that were written")));
        }
        let last_key = (!self.last_key.is_empty()).then_some(&self.last_key);
        if last_key != self.written.last_key.as_ref() || last_key != self.reader.last_key() {
            return Err(self.differs("the last key is another"));
        }
        match self.reader.bloom_chunks() {
            Some(named)
                if named
                    .iter()
                    .map(|at| (at.offset, at.on_disk_bytes))
                    .ne(self.bloom_chunks.iter().copied()) =>
            {
                Err(self.differs("the bloom filters name other chunks"))
            }
            _ => Ok(()),
        }
    }

    fn differs(&self, what: impl std::fmt::Display) -> HBaseError {
        self.reader.blocks().corrupt(self.offset, format_args!("not what was written: {what}"))
    }
}
