//! Writing blocks: header, body, compression, checksums.

#![expect(
    clippy::indexing_slicing,
    reason = "writes blocks of this process, which begin with room for a header"
)]

use evenkeel_block_cache::BlockType;
use evenkeel_common::{HBaseError, Result, clock};
use evenkeel_fs::AppendFile;

use crate::block::checksum::{append_checksums, checksums_len};
use crate::block::header::{BlockHeader, HEADER_BYTES, HEADER_BYTES_U32};
use crate::context::{CellLayout, ChecksumType, Compression, HFileContext};
use crate::error::io_at;
use crate::index::BlockLocation;
use crate::io_metrics;
use crate::writer::CacheOnWrite;
use evenkeel_compression::Compressor;

/// A block that was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrittenBlock {
    pub at: BlockLocation,
    /// Bytes of the uncompressed body.
    pub uncompressed_bytes: u64,
}

/// Writes blocks to the end of a file.
#[derive(Debug)]
pub(crate) struct BlockWriter {
    file: Box<dyn AppendFile>,
    name: String,
    checksum: ChecksumType,
    bytes_per_checksum: u32,
    compressor: Compressor,
    prev_offsets: [i64; BlockType::ALL.len()],
    scratch: Vec<u8>,
    /// The last block as on disk, in a compressed file.
    compressed: Vec<u8>,
    total_uncompressed_bytes: u64,
    layout: CellLayout,
    cache: Option<CacheOnWrite>,
}

impl BlockWriter {
    pub fn new(file: Box<dyn AppendFile>, name: String, context: &HFileContext) -> Result<Self> {
        Ok(Self {
            file,
            name,
            checksum: context.checksum,
            bytes_per_checksum: context.bytes_per_checksum.max(HEADER_BYTES_U32),
            compressor: Compressor::new(context.compression, context.zstd_framed)?,
            prev_offsets: [-1; BlockType::ALL.len()],
            scratch: Vec::new(),
            compressed: Vec::new(),
            total_uncompressed_bytes: 0,
            layout: context.layout(),
            cache: None,
        })
    }

    /// The blocks' checksum type and bytes per checksum.
    pub fn checksum(&self) -> (ChecksumType, u32) {
        (self.checksum, self.bytes_per_checksum)
    }

    /// Caches blocks as they are written, from this call on.
    pub fn cache_on_write(&mut self, cache: CacheOnWrite) {
        self.cache = Some(cache);
    }

    /// The offset of the next block.
    pub fn position(&self) -> u64 {
        self.file.position()
    }

    /// Bytes of all blocks with headers, uncompressed. Excludes the blocks of
    /// [`BlockWriter::write_uncounted`].
    pub fn total_uncompressed_bytes(&self) -> u64 {
        self.total_uncompressed_bytes
    }

    /// Returns true if the data block that ends now replaces cached blocks. Call it once per data
    /// block.
    pub fn replaces_cached(&self) -> bool {
        self.cache.as_ref().is_some_and(CacheOnWrite::replaces_cached)
    }

    /// Writes a block that refers to no data block. `fill` appends its body.
    pub fn write(&mut self, kind: BlockType, fill: impl FnOnce(&mut Vec<u8>)) -> Result<WrittenBlock> {
        self.write_referring(kind, false, fill)
    }

    /// Writes a block. `fill` appends its body. `replaces_cached`: it refers to a data block that
    /// replaces cached blocks.
    pub fn write_referring(
        &mut self,
        kind: BlockType,
        replaces_cached: bool,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<WrittenBlock> {
        let mut block = std::mem::take(&mut self.scratch);
        reset(&mut block);
        fill(&mut block);
        let written = self.write_block(kind, replaces_cached, &mut block);
        self.scratch = block;
        written
    }

    /// As [`BlockWriter::write_referring`], for blocks that stock excludes from the trailer's
    /// total: the root and the intermediate levels of the data index.
    pub fn write_uncounted(
        &mut self,
        kind: BlockType,
        replaces_cached: bool,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<WrittenBlock> {
        let total = self.total_uncompressed_bytes;
        let written = self.write_referring(kind, replaces_cached, fill);
        self.total_uncompressed_bytes = total;
        written
    }

    /// Writes a block. `block` holds [`HEADER_BYTES`] unused bytes and the body; its content is
    /// unspecified afterwards. `replaces_cached`: the block, or a data block it refers to, replaces
    /// cached blocks.
    pub fn write_block(
        &mut self,
        kind: BlockType,
        replaces_cached: bool,
        block: &mut Vec<u8>,
    ) -> Result<WrittenBlock> {
        let uncompressed_bytes = block.len() - HEADER_BYTES;
        let prev_offset = self.prev_offsets[kind as usize];
        let written = self.write_body(kind, block)?;
        if let Some(cache) = &self.cache
            && let Some(admission) = cache.admission(kind, replaces_cached)
        {
            let body = &block[HEADER_BYTES..HEADER_BYTES + uncompressed_bytes];
            let compressed = (self.compressor.kind() != Compression::None).then_some(&*self.compressed);
            let kept = cache.block(kind, written.at, prev_offset, body, compressed, self.layout);
            kept.into_iter().for_each(|block| cache.insert(block, admission));
        }
        Ok(written)
    }

    /// As [`BlockWriter::write_block`]. The body stays in place.
    fn write_body(&mut self, kind: BlockType, block: &mut Vec<u8>) -> Result<WrittenBlock> {
        let uncompressed_bytes = block.len() - HEADER_BYTES;
        if self.compressor.kind() == Compression::None {
            return self.seal(kind, uncompressed_bytes, block);
        }
        let mut compressed = std::mem::take(&mut self.compressed);
        reset(&mut compressed);
        let written = self
            .compressor
            .compress(&block[HEADER_BYTES..], &mut compressed)
            .and_then(|()| self.seal(kind, uncompressed_bytes, &mut compressed));
        self.compressed = compressed;
        written
    }

    /// Appends plain bytes (the trailer).
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let offset = self.position();
        self.file.append(bytes).map_err(|e| io_at(&self.name, offset, e))
    }

    /// Makes the file durable, closes it, and returns its length.
    pub fn close(&mut self) -> Result<u64> {
        let offset = self.position();
        let closed = self.file.sync().and_then(|()| self.file.close());
        closed.map_err(|e| io_at(&self.name, offset, e))?;
        Ok(offset)
    }

    fn seal(
        &mut self,
        kind: BlockType,
        uncompressed_bytes: usize,
        block: &mut Vec<u8>,
    ) -> Result<WrittenBlock> {
        let on_disk_data_bytes = block.len();
        let on_disk_bytes = on_disk_data_bytes + checksums_len(on_disk_data_bytes, self.bytes_per_checksum);
        // Each of the three sizes is a Java int.
        let size = |bytes| match i32::try_from(bytes) {
            Ok(size) => Ok(size.cast_unsigned()),
            Err(_) => Err(HBaseError::io(format!("{}: a block of {bytes} bytes is too large", self.name))),
        };
        let sizes = (size(on_disk_bytes)?, size(uncompressed_bytes)?, size(on_disk_data_bytes)?);
        let (on_disk_bytes, uncompressed_size, on_disk_data_bytes) = sizes;
        let offset = self.position();
        let header = BlockHeader {
            kind,
            on_disk_bytes,
            uncompressed_bytes: uncompressed_size,
            prev_offset: std::mem::replace(&mut self.prev_offsets[kind as usize], offset as i64),
            checksum: self.checksum,
            bytes_per_checksum: self.bytes_per_checksum,
            on_disk_data_bytes,
        };
        header.put(block);
        append_checksums(block, self.checksum, self.bytes_per_checksum);
        let started = clock::monotonic();
        self.append(block)?;
        io_metrics::get().wrote(clock::since(started));
        self.total_uncompressed_bytes += (uncompressed_bytes + HEADER_BYTES) as u64;
        let at = BlockLocation { offset, on_disk_bytes };
        Ok(WrittenBlock { at, uncompressed_bytes: uncompressed_bytes as u64 })
    }
}

/// Clears a buffer and reserves the bytes of a header.
pub(crate) fn reset(block: &mut Vec<u8>) {
    block.clear();
    block.resize(HEADER_BYTES, 0);
}
