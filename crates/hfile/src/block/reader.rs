//! Reading blocks: from the cache, or from the file, verified and decompressed.
//!
//! A data block that will be cached is parsed once for its seek points. A block for a single use (a
//! compaction, or a scan without caching) is not: a cursor checks its cells when it reaches them;
//! see [`crate::encoding`].
//!
//! With `hbase.block.data.cachecompressed` a data block is cached compressed, as it is on disk. It
//! is parsed like any other cached block, and its seek points are stored beside the compressed
//! bytes: 2 bytes per cell, or about 5 with a delta encoding. Each read decompresses the whole
//! block, copies the points, and searches as in any other block. The load itself uses the block
//! that was decompressed for parsing.
//!
//! A block that fails verification is read again, without any short-circuit path and through the
//! storage's checksums ([`RandomAccessFile::read_verified_at`]), and the block's checksums are
//! verified again. If they match, the first read was faulty and no data is lost. If not, the file
//! is corrupt, and the error states the result of the storage's checksums. Both cases are counted
//! in HBase's `fsChecksumFailureCount`. I/O errors are returned unchanged.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use evenkeel_block_cache::bucket::BLOCK_BYTES_MAX;
use evenkeel_block_cache::{
    Block, BlockCache, BlockCategory, BlockKey, BlockParts, BlockType, CacheHint, FileId, PrefetchedBlock,
};
use evenkeel_common::{HBaseError, Result, TryError, TryResult, Wait, cpu_slot};
use evenkeel_common::{clock, length};
use evenkeel_fs::{RandomAccessFile, StorageChecksum};
use evenkeel_metrics::waits::{self, Cause};

use crate::block::checksum::verify;
use crate::block::header::{BlockHeader, HEADER_BYTES, HEADER_BYTES_U32};
use crate::context::{CellLayout, ChecksumType, Compression};
use crate::encoding::{SeekPoints, check_head, index_cells};
use crate::error::{corrupt, io_at};
use crate::index::{BlockLocation, check_leaf};
use crate::io_metrics::{self, ReadPattern};
use evenkeel_compression::{decompress, expansion_max};

/// Reads the blocks of one file.
#[derive(Debug)]
pub(crate) struct BlockReader {
    pub file: Arc<dyn RandomAccessFile>,
    pub name: String,
    pub id: FileId,
    pub cache: Arc<dyn BlockCache>,
    pub compression: Compression,
    /// Set once the file info is known. Data blocks are only read afterwards.
    pub layout: CellLayout,
    /// The end of the last block: the start of the trailer.
    pub blocks_end: u64,
    /// The maximum of a decompressed body.
    pub block_bytes_max: usize,
    /// See [`crate::OpenOptions::checksum`].
    pub checksum: Option<(ChecksumType, u32)>,
    /// True once the checksum of a block matched; never false again. Until then, and for a file
    /// whose blocks have none, the storage compares the bytes with its own checksums.
    pub has_checksums: AtomicBool,
    /// Blocks that failed verification at their first read.
    pub checksum_failures: AtomicU64,
    /// Data blocks are cached compressed, as on disk, and decompressed at each read
    /// (`hbase.block.data.cachecompressed`).
    pub caches_compressed: bool,
}

/// Blocks of all files that failed verification at their first read.
static CHECKSUM_FAILURES: AtomicU64 = AtomicU64::new(0);

/// The number of blocks that failed verification since the process started. Each was read again.
/// HBase's metric `fsChecksumFailureCount`.
pub fn checksum_failures_count() -> u64 {
    CHECKSUM_FAILURES.load(Relaxed)
}

/// Whether loading a data block computes its seek points.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SeekPointMode {
    Build,
    Skip,
}

impl SeekPointMode {
    /// Seek points pay off if the block is cached.
    fn of(hint: CacheHint, cache: &dyn BlockCache) -> Self {
        if hint.insert && cache.caches_category(hint.category) { Self::Build } else { Self::Skip }
    }
}

/// A loaded block.
struct LoadedBlock {
    /// The uncompressed block, for the reader.
    block: Block,
    /// The compressed block that is cached in its place, if any.
    compressed: Option<Block>,
}

/// The reason why bytes from the file are not the expected block.
type Damage = String;

/// The reason why a block could not be read.
enum ReadFailure {
    /// The storage failed after its own retries, or the read would have to wait.
    Io(TryError),
    /// The bytes are not the expected block.
    Damage(Damage),
}

impl From<Damage> for ReadFailure {
    fn from(damage: Damage) -> Self {
        Self::Damage(damage)
    }
}

/// One of the two attempts to read a block: direct, or through the storage's checksums.
struct ReadAttempt {
    pattern: ReadPattern,
    verified: bool,
    /// The file's blocks are known to have checksums, so that the storage need not compare the
    /// bytes of the first attempt with its own. It holds for the whole attempt, whatever other
    /// threads read meanwhile.
    has_checksums: bool,
    /// If the attempt may wait.
    wait: Wait,
    /// The result of the storage's checksums: a mismatch, if there was one.
    storage_checksum: Cell<StorageChecksum>,
}

impl ReadAttempt {
    fn new(file: &BlockReader, pattern: ReadPattern, verified: bool, wait: Wait) -> Self {
        let has_checksums = file.has_checksums.load(Relaxed);
        let storage_checksum = Cell::new(StorageChecksum::Absent);
        Self { pattern, verified, has_checksums, wait, storage_checksum }
    }

    /// Returns true if a block without a checksum is credible: the storage has compared the bytes
    /// of its header with its own checksums, or it has none, and neither have the file's blocks.
    fn accepts_no_checksum(&self) -> bool {
        match self.storage_checksum.get() {
            StorageChecksum::Matches => true,
            StorageChecksum::Absent => !self.has_checksums,
            StorageChecksum::Differs => false,
        }
    }

    fn record(&self, sum: StorageChecksum) {
        if self.storage_checksum.get() != StorageChecksum::Differs {
            self.storage_checksum.set(sum);
        }
    }
}

impl BlockReader {
    /// Returns a block from the cache or the file. `wanted` returns true for the expected types.
    pub fn read(
        &self,
        at: BlockLocation,
        wanted: fn(BlockType) -> bool,
        hint: CacheHint,
    ) -> TryResult<Block> {
        let key = BlockKey { file: self.id, offset: at.offset };
        let mut uncompressed = None;
        let found = self.cache.get_or_load(&key, hint, &mut || {
            let LoadedBlock { block, compressed } =
                self.load(at, SeekPointMode::of(hint, &*self.cache), hint.wait, ReadPattern::of(hint))?;
            let Some(compressed) = compressed else { return Ok(block) };
            uncompressed = Some(block);
            Ok(compressed)
        })?;
        let block = match uncompressed {
            Some(block) => block,
            None if found.is_compressed() => self.decompress_cached(at, &found)?,
            None => found,
        };
        if !wanted(block.kind()) {
            let message = format_args!("unexpected block of type {:?}", block.kind());
            return Err(self.corrupt(at.offset, message).into());
        }
        Ok(block)
    }

    /// Returns true if blocks of this type are cached as stored on disk.
    fn caches_as_stored(&self, kind: BlockType) -> bool {
        self.caches_compressed && self.compression != Compression::None && kind.is_data()
    }

    /// Bytes of a block in the cache.
    pub fn cached_bytes(&self, header: &BlockHeader) -> usize {
        (if self.caches_as_stored(header.kind) { header.on_disk_bytes } else { header.uncompressed_bytes })
            as usize
    }

    /// Decompresses a block that is cached as on disk. It was verified before it was cached.
    fn decompress_cached(&self, at: BlockLocation, compressed: &Block) -> Result<Block> {
        let bytes = compressed.data();
        let header = bytes.first_chunk::<HEADER_BYTES>().ok_or_else(|| Damage::from("no block header"));
        let opened = header.and_then(BlockHeader::parse).and_then(|header| {
            let body = self.decompressed(&header, bytes)?;
            let points = match compressed.seek_points() {
                [] => self.seek_points(header.kind, &body, SeekPointMode::Skip)?,
                points => SeekPoints { points: points.into(), keys: compressed.seek_keys().into() },
            };
            Ok(uncompressed_block(at, &header, body, 0, points))
        });
        opened.map_err(|damage| self.corrupt(at.offset, damage))
    }

    /// Prefetches a block of a category if it is cached in memory; see [`BlockCache::prefetch`].
    pub fn prefetch(&self, at: BlockLocation, category: BlockCategory) -> Option<PrefetchedBlock> {
        self.cache.prefetch(&BlockKey { file: self.id, offset: at.offset }, category)
    }

    /// Returns true if the block is cached.
    pub fn is_cached(&self, at: BlockLocation) -> bool {
        self.cache.contains(&BlockKey { file: self.id, offset: at.offset })
    }

    /// Reads the header at an offset. The block fits the file. A header alone has no checksum.
    pub fn header_at(&self, offset: u64) -> Result<(BlockLocation, BlockHeader)> {
        let mut header = [0; HEADER_BYTES];
        self.check_fits(BlockLocation { offset, on_disk_bytes: HEADER_BYTES_U32 })?;
        self.file.read_exact_at(offset, &mut header).map_err(|e| io_at(&self.name, offset, e))?;
        let header = BlockHeader::parse(&header).map_err(|damage| self.corrupt(offset, damage))?;
        let at = BlockLocation { offset, on_disk_bytes: header.on_disk_bytes };
        self.check_fits(at).map(|()| (at, header))
    }

    /// Reads the block at an offset from the file. Its header gives the size.
    pub fn load_unsized(&self, offset: u64) -> Result<Block> {
        self.check_fits(BlockLocation { offset, on_disk_bytes: HEADER_BYTES_U32 })?;
        let loaded = self.with_retry(offset, Wait::Allowed, ReadPattern::Stream, |attempt| {
            let mut header = [0; HEADER_BYTES];
            self.read_bytes(offset, &mut header, attempt)?;
            let header = BlockHeader::parse(&header)?;
            self.load_attempt(
                BlockLocation { offset, on_disk_bytes: header.on_disk_bytes },
                SeekPointMode::Build,
                attempt,
            )
        });
        loaded.map(|loaded| loaded.block).map_err(TryError::into_failure)
    }

    /// As [`BlockReader::load_unsized`], for a block that is used once: it gets no seek points.
    pub fn load_for_single_use(&self, offset: u64) -> Result<Block> {
        let (at, _) = self.header_at(offset)?;
        let loaded = self.load(at, SeekPointMode::Skip, Wait::Allowed, ReadPattern::Stream);
        loaded.map(|loaded| loaded.block).map_err(TryError::into_failure)
    }

    /// Returns true if a checksum of the file's blocks was seen to match.
    pub fn has_checksums(&self) -> bool {
        self.has_checksums.load(Relaxed)
    }

    /// Reads bytes that may be any, for [`BlockReader::decode_told`]. May wait.
    pub fn read_told(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let attempt = ReadAttempt::new(self, ReadPattern::Stream, false, Wait::Allowed);
        let mut bytes = vec![0; len];
        match self.read_bytes(offset, &mut bytes, &attempt) {
            Ok(()) => Ok(bytes),
            Err(ReadFailure::Io(error)) => Err(error.into_failure()),
            Err(ReadFailure::Damage(damage)) => Err(self.corrupt(offset, damage)),
        }
    }

    /// Returns the block to cache if `bytes` are one with a checksum. They may be any bytes, so
    /// they change nothing of what is known of the file.
    pub fn decode_told(&self, at: BlockLocation, bytes: Vec<u8>) -> Option<Block> {
        let attempt = ReadAttempt::new(self, ReadPattern::Stream, false, Wait::Allowed);
        let header =
            bytes.first_chunk::<HEADER_BYTES>().and_then(|header| BlockHeader::parse(header).ok())?;
        if !attempt.has_checksums || header.uncompressed_bytes as usize > BLOCK_BYTES_MAX {
            return None;
        }
        let loaded = self.decode(at, bytes, SeekPointMode::Build, &attempt).ok()?;
        Some(loaded.compressed.unwrap_or(loaded.block))
    }

    /// A `CorruptHFileException` at an offset.
    pub fn corrupt(&self, offset: u64, what: impl std::fmt::Display) -> HBaseError {
        corrupt(&self.name, offset, what)
    }

    fn load(
        &self,
        at: BlockLocation,
        mode: SeekPointMode,
        wait: Wait,
        pattern: ReadPattern,
    ) -> TryResult<LoadedBlock> {
        self.check_fits(at)?;
        self.with_retry(at.offset, wait, pattern, |attempt| self.load_attempt(at, mode, attempt))
    }

    /// Reads directly, and after damage again through the storage's checksums.
    fn with_retry(
        &self,
        offset: u64,
        wait: Wait,
        pattern: ReadPattern,
        read: impl Fn(&ReadAttempt) -> Result<LoadedBlock, ReadFailure>,
    ) -> TryResult<LoadedBlock> {
        let first = match read(&ReadAttempt::new(self, pattern, false, wait)) {
            Ok(loaded) => return Ok(loaded),
            Err(ReadFailure::Io(error)) => return Err(error),
            // The second read needs a thread that may wait. That thread also counts the failure.
            Err(ReadFailure::Damage(_)) if !wait.is_allowed() => return Err(TryError::WouldWait),
            Err(ReadFailure::Damage(damage)) => damage,
        };
        self.checksum_failures.fetch_add(1, Relaxed);
        CHECKSUM_FAILURES.fetch_add(1, Relaxed);
        let attempt = ReadAttempt::new(self, pattern, true, wait);
        let again = read(&attempt);
        let said = match attempt.storage_checksum.get() {
            StorageChecksum::Absent => "",
            StorageChecksum::Matches => {
                " (the file system's own checksum matches: it was written with this error)"
            }
            StorageChecksum::Differs => " (the file system's own checksum does not match either)",
        };
        match again {
            Ok(loaded) => {
                tracing::warn!(file = %self.name, offset, "{first}; the second read of the block is intact{said}");
                Ok(loaded)
            }
            Err(ReadFailure::Io(error)) => Err(error),
            Err(ReadFailure::Damage(damage)) => {
                Err(self.corrupt(offset, format_args!("{damage}{said}")).into())
            }
        }
    }

    fn load_attempt(
        &self,
        at: BlockLocation,
        mode: SeekPointMode,
        attempt: &ReadAttempt,
    ) -> Result<LoadedBlock, ReadFailure> {
        self.check_fits(at).map_err(|_| does_not_fit(at))?;
        let mut bytes = vec![0; at.on_disk_bytes as usize];
        self.read_bytes(at.offset, &mut bytes, attempt)?;
        Ok(self.decode(at, bytes, mode, attempt)?)
    }

    fn check_fits(&self, at: BlockLocation) -> Result<()> {
        let fits =
            at.offset.checked_add(u64::from(at.on_disk_bytes)).is_some_and(|end| end <= self.blocks_end);
        if !fits || (at.on_disk_bytes as usize) < HEADER_BYTES {
            return Err(self.corrupt(at.offset, does_not_fit(at)));
        }
        Ok(())
    }

    fn read_bytes(&self, offset: u64, bytes: &mut [u8], attempt: &ReadAttempt) -> Result<(), ReadFailure> {
        let started = clock::monotonic();
        self.read_untimed(offset, bytes, attempt)?;
        io_metrics::get().read(attempt.pattern, &self.name, started);
        Ok(())
    }

    fn read_untimed(&self, offset: u64, bytes: &mut [u8], attempt: &ReadAttempt) -> Result<(), ReadFailure> {
        if !attempt.wait.is_allowed() {
            let done = !attempt.verified && self.file.read_at_nowait(offset, bytes, attempt.has_checksums);
            return if done { Ok(()) } else { Err(ReadFailure::Io(TryError::WouldWait)) };
        }
        let read = cpu_slot::release_during(|| match attempt.verified {
            false if attempt.has_checksums => self.file.read_checked_by_caller_at(offset, bytes),
            false => self.file.read_exact_at(offset, bytes),
            true => self.file.read_verified_at(offset, bytes).map(|sum| attempt.record(sum)),
        });
        read.map_err(|e| ReadFailure::Io(io_at(&self.name, offset, e).into()))
    }

    /// Verifies and decompresses a block, and computes its seek points if `mode` requires them.
    fn decode(
        &self,
        at: BlockLocation,
        bytes: Vec<u8>,
        mode: SeekPointMode,
        attempt: &ReadAttempt,
    ) -> Result<LoadedBlock, Damage> {
        let header = bytes.first_chunk::<HEADER_BYTES>().ok_or("no block header")?;
        let header = BlockHeader::parse(header)?;
        if header.on_disk_bytes != at.on_disk_bytes {
            return Err(format!("{} bytes on disk instead of {}", header.on_disk_bytes, at.on_disk_bytes));
        }
        if self.checksum.is_some_and(|wanted| wanted != (header.checksum, header.bytes_per_checksum)) {
            return Err("the header has another checksum type than the file".into());
        }
        self.verify(&header, &bytes, attempt)?;
        let (body, start, compressed) = match self.compression {
            Compression::None => (uncompressed(&header, bytes)?, HEADER_BYTES_U32, None),
            _ => {
                (self.decompressed(&header, &bytes)?, 0, self.caches_as_stored(header.kind).then_some(bytes))
            }
        };
        let end = start + header.uncompressed_bytes;
        let cells = body.get(start as usize..end as usize).ok_or("truncated block")?;
        let points = self.seek_points(header.kind, cells, mode)?;
        let compressed = compressed.map(|bytes| compressed_block(at, &header, bytes, &points));
        Ok(LoadedBlock { block: uncompressed_block(at, &header, body, start, points), compressed })
    }

    /// Compares a block with its checksum. A block without one is refused unless the storage
    /// vouches for it: the checksum type in its header may be damaged.
    fn verify(&self, header: &BlockHeader, bytes: &[u8], attempt: &ReadAttempt) -> Result<(), Damage> {
        if header.checksum == ChecksumType::Null {
            return match attempt.accepts_no_checksum() {
                true => Ok(()),
                false => Err("a block without a checksum, unlike others of the file".into()),
            };
        }
        let (data, checksums) = bytes.split_at(header.on_disk_data_bytes as usize);
        if !verify(data, checksums, header.checksum, header.bytes_per_checksum) {
            return Err("the checksum does not match".into());
        }
        // Mostly true already: threads that read the file would contend for its cache line.
        if !attempt.has_checksums {
            self.has_checksums.store(true, Relaxed);
        }
        Ok(())
    }

    /// The decompressed body of a block.
    fn decompressed(&self, header: &BlockHeader, bytes: &[u8]) -> Result<Vec<u8>, Damage> {
        let stored = bytes.get(HEADER_BYTES..header.on_disk_data_bytes as usize).ok_or("truncated block")?;
        let wanted = header.uncompressed_bytes as usize;
        if wanted > self.block_bytes_max || wanted / expansion_max(self.compression) > stored.len() {
            return Err(too_large(stored.len(), wanted));
        }
        let body = waits::time(Cause::Decompress, || decompress(self.compression, stored, wanted));
        let body = body.filter(|body| body.len() == wanted);
        body.ok_or_else(|| {
            format!("the body does not decompress by {} to {wanted} bytes", self.compression.name())
        })
    }

    fn seek_points(&self, kind: BlockType, body: &[u8], mode: SeekPointMode) -> Result<SeekPoints, Damage> {
        match kind {
            BlockType::Data | BlockType::EncodedData if mode == SeekPointMode::Skip => {
                check_head(body, self.layout).map_err(|_| "the cells are malformed")?;
                Ok(SeekPoints::default())
            }
            BlockType::Data | BlockType::EncodedData => {
                index_cells(body, self.layout).map_err(|_| "the cells are malformed".into())
            }
            BlockType::LeafIndex | BlockType::IntermediateIndex => check_leaf(body)
                .map(|()| SeekPoints::default())
                .ok_or_else(|| "the index is malformed".into()),
            _ => Ok(SeekPoints::default()),
        }
    }
}

fn does_not_fit(at: BlockLocation) -> Damage {
    format!("a block of {} bytes does not fit the file", at.on_disk_bytes)
}

/// Returns `bytes` of an uncompressed block if their body has the header's length.
fn uncompressed(header: &BlockHeader, bytes: Vec<u8>) -> Result<Vec<u8>, Damage> {
    let stored_bytes = header.on_disk_data_bytes as usize - HEADER_BYTES;
    let wanted = header.uncompressed_bytes as usize;
    if stored_bytes == wanted { Ok(bytes) } else { Err(too_large(stored_bytes, wanted)) }
}

/// A block whose body begins at `start` of `bytes`.
fn uncompressed_block(
    at: BlockLocation,
    header: &BlockHeader,
    bytes: Vec<u8>,
    start: u32,
    points: SeekPoints,
) -> Block {
    Block::new(BlockParts {
        kind: header.kind,
        offset: at.offset,
        on_disk_bytes: at.on_disk_bytes,
        prev_offset: header.prev_offset,
        bytes: bytes.into(),
        body: start..start + header.uncompressed_bytes,
        seek_points: points.points,
        seek_keys: points.keys,
        compressed: false,
    })
}

/// A block as on disk, with the seek points of its body.
fn compressed_block(at: BlockLocation, header: &BlockHeader, bytes: Vec<u8>, points: &SeekPoints) -> Block {
    Block::new(BlockParts {
        kind: header.kind,
        offset: at.offset,
        on_disk_bytes: at.on_disk_bytes,
        prev_offset: header.prev_offset,
        body: 0..length::must_u32(bytes.len()),
        bytes: bytes.into(),
        seek_points: points.points.clone(),
        seek_keys: points.keys.clone(),
        compressed: true,
    })
}

fn too_large(stored_bytes: usize, wanted: usize) -> Damage {
    format!("{stored_bytes} stored bytes cannot hold {wanted} bytes")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use evenkeel_block_cache::LruBlockCache;
    use evenkeel_common::KeyValue;
    use evenkeel_fs::MemoryFileSystem;

    use super::*;
    use crate::{DataBlockEncoding, HFileContext, HFileReader, HFileWriter, OpenOptions, StoreFileMeta};

    /// A compressed file of several blocks, which are cached compressed.
    fn compressed_file(encoding: DataBlockEncoding, cache: &Arc<LruBlockCache>) -> Arc<HFileReader> {
        let (fs, path) = (MemoryFileSystem::new(), Path::new("/f/0a"));
        let compression = Compression::Snappy;
        let context = HFileContext { block_bytes: 4096, compression, encoding, ..HFileContext::default() };
        let mut writer = HFileWriter::create(&fs, path, context).expect("created");
        for i in 0..500 {
            let row = format!("row{i:05}");
            let cell = KeyValue::put(row.as_bytes(), b"f", b"q", 1, &[b'v'; 50]);
            writer.append(&cell.as_cell()).expect("appended");
        }
        writer.finish(StoreFileMeta::default()).expect("finished");
        let options = OpenOptions { cache_compressed: true, ..OpenOptions::default() };
        HFileReader::open_path(&fs, path, Arc::clone(cache) as _, &options).expect("opens")
    }

    #[test]
    fn a_packed_block_has_its_seek_points_each_time_it_is_opened() {
        for encoding in [DataBlockEncoding::None, DataBlockEncoding::FastDiff] {
            let cache = Arc::new(LruBlockCache::new(1 << 20));
            let reader = compressed_file(encoding, &cache);
            let plain = reader.block_at(0).expect("sound");
            assert!(plain.seek_points().len() > 3 && !plain.is_compressed());
            let at = BlockLocation { offset: 0, on_disk_bytes: plain.on_disk_bytes() };
            let once = reader.load_data(at, false, Wait::Allowed).expect("sound");
            assert!(once.seek_points().is_empty(), "it is not walked for a single use");
            for hits in 0..2 {
                let block = reader.load_data(at, true, Wait::Allowed).expect("sound");
                assert_eq!(
                    (cache.stats().hits[0], block.is_compressed(), block.data()),
                    (hits, false, plain.data())
                );
                assert_eq!(block.seek_points(), plain.seek_points(), "{encoding:?}, {hits} hits");
                assert_eq!(block.seek_keys(), plain.seek_keys());
            }
            assert!(
                cache.get(&BlockKey { file: reader.file_id(), offset: 0 }).expect("cached").is_compressed()
            );
        }
    }
}
