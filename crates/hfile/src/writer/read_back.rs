//! [`ReadBack`]: reads a file that was just written, as a whole, before anything that it replaces
//! is deleted: edits of a log, or the inputs of a compaction.
//!
//! A cell passes through an encoder, a compressor, a buffer, a file system and a kernel on its way
//! to the disk. Their faults are detected here, while the cells still exist elsewhere:
//!
//! * The file has the length that was written. Trailer, root index and file info are readable and
//!   equal the writer's.
//! * Every block has the file's checksum type, matches its checksum, decompresses, and has the
//!   offset of the previous block of its type.
//! * The index refers to every data block, in file order, and to no other block. A block's index
//!   key is after the last cell of the previous block and not after its own first cell. The levels
//!   above agree.
//! * The decoded cells have the digest of the written cells ([`CellDigest`]). So they are the same
//!   cells in the same order, which the writer had checked.
//! * The bloom metadata names the chunks that exist.
//!
//! It does not detect wrong bits in a bloom filter, a disk that loses data later, or bytes that are
//! right in the page cache, from which they are read, and wrong on the disk. Checksums reveal the
//! last two at a later read.
//!
//! All reads bypass the block cache. Memory: one block, and 12 bytes per bloom chunk.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use evenkeel_block_cache::{Block, BlockType, NoCache};
use evenkeel_common::{CellRef, HBaseError, KeyBuf, Result, TryError, Wait};
use evenkeel_fs::FileSystem;

use crate::encoding::CellCursor;
use crate::error::io_at;
use crate::index::{BlockLocation, IndexCursor};
use crate::reader::{HFileReader, OpenOptions};
use crate::writer::CellDigest;
use crate::writer::WrittenFile;

/// A file being read back. See the module.
#[derive(Debug)]
pub struct ReadBack {
    reader: Arc<HFileReader>,
    written: WrittenFile,
    /// The offset of the next block.
    offset: u64,
    /// The index position of the next data block, and its location.
    index: IndexCursor,
    named: Option<BlockLocation>,
    cursor: CellCursor,
    digest: CellDigest,
    /// The last cell's key. Empty before the first.
    last_key: KeyBuf,
    /// The offset of the last block, by type.
    prev_offsets: [i64; BlockType::ALL.len()],
    bloom_chunks: BTreeSet<(u64, u32)>,
}

impl ReadBack {
    /// Opens a file that was just written.
    ///
    /// # Errors
    /// `CorruptHFileException` if the file differs from what was written; `IOException`.
    pub fn open(fs: &dyn FileSystem, path: &Path, written: WrittenFile) -> Result<Self> {
        let checksum = Some(written.checksum);
        let options = OpenOptions { block_bytes_max: usize::MAX, checksum, ..OpenOptions::default() };
        let reader = HFileReader::open_path(fs, path, Arc::new(NoCache), &options)?;
        let mut index = IndexCursor::default();
        let named = index.first(&reader.index(Wait::Allowed)).map_err(TryError::into_failure)?;
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

    /// Reads the next block and returns its size in bytes. `None` after the whole file was read and
    /// equals what was written.
    ///
    /// # Errors
    /// `CorruptHFileException` if the file differs from what was written; `IOException`.
    #[expect(clippy::indexing_slicing, reason = "`prev_offsets` has an element for each type")]
    pub fn step(&mut self) -> Result<Option<u64>> {
        if self.offset >= self.reader.blocks_end() {
            return self.check_end().map(|()| None);
        }
        let block = self.reader.blocks().load_for_single_use(self.offset)?;
        let kind = block.kind();
        let prev = std::mem::replace(&mut self.prev_offsets[kind as usize], block.offset() as i64);
        if block.prev_offset() != prev {
            return Err(self.differs("the header has a wrong offset of the previous block of its type"));
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
        let at = BlockLocation { offset: block.offset(), on_disk_bytes: block.on_disk_bytes() };
        if self.named != Some(at) {
            return Err(self.differs(format_args!("the index refers to {:?} instead", self.named)));
        }
        let malformed = |_| self.reader.blocks().corrupt(at.offset, "the cells are malformed");
        self.cursor.first(block).map_err(malformed)?;
        self.check_index_key(&self.cursor.cell(block))?;
        self.digest.add(&self.cursor.cell(block));
        while let Some(cell) = self.cursor.step(block).map_err(malformed)? {
            self.digest.add(&cell);
        }
        self.last_key.set_to(&self.cursor.cell(block));
        let index = self.reader.index(Wait::Allowed);
        self.named = self.index.next(&index).map_err(TryError::into_failure)?;
        Ok(())
    }

    fn check_index_key(&self, first: &CellRef<'_>) -> Result<()> {
        let order = self.reader.comparator();
        let key = self.index.key(self.reader.root()).and_then(|key| CellRef::new(key, &[], &[], 0).ok());
        let Some(key) = key.filter(|_| self.index.levels_agree(self.reader.root())) else {
            return Err(self.differs("the levels of the index have different keys for it"));
        };
        let is_after_last =
            self.last_key.is_empty() || order.compare_keys(&self.last_key.as_cell(), &key).is_lt();
        if !is_after_last || order.compare_keys(&key, first).is_gt() {
            return Err(self.differs("its index key does not lead to it"));
        }
        Ok(())
    }

    /// Checks the parts that were read at opening.
    fn check_head(&self) -> Result<()> {
        let (reader, written) = (&self.reader, &self.written);
        if reader.len() != written.bytes {
            let (is, was) = (reader.len(), written.bytes);
            return Err(self.differs(format_args!("the file has {is} bytes instead of {was}")));
        }
        // Compared byte by byte: a trailer has no checksum, and a reader skips unknown fields.
        let trailer = written.trailer.encode();
        let mut found = vec![0; trailer.len()];
        let blocks = reader.blocks();
        let read = blocks.file.read_exact_at(reader.blocks_end(), &mut found);
        read.map_err(|e| io_at(&blocks.name, reader.blocks_end(), e))?;
        if found != trailer {
            return Err(self.differs("the trailer differs"));
        }
        if *reader.file_infos() != written.file_info {
            return Err(self.differs("the file info differs"));
        }
        Ok(())
    }

    /// Checks the conditions that depend on all blocks.
    fn check_end(&self) -> Result<()> {
        if let Some(at) = self.named {
            return Err(self.differs(format_args!("the index refers to another data block at {}", at.offset)));
        }
        if self.written.digest.is_some_and(|digest| digest != self.digest) {
            let (is, was) = (self.digest.cells(), self.written.entries);
            return Err(self.differs(format_args!("its {is} cells are not the {was} that were written")));
        }
        let last_key = (!self.last_key.is_empty()).then_some(&self.last_key);
        if last_key != self.written.last_key.as_ref() || last_key != self.reader.last_key() {
            return Err(self.differs("the last key differs"));
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
