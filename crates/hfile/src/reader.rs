//! [`HFileReader`]: an open store file.
//!
//! Opening reads and keeps the trailer, the two root indexes, the file info and the bloom metadata.
//! Everything else is read on demand through the block cache. A reader is shared (`Arc`),
//! immutable, and holds no lock.

mod fetch;
mod inspect;
mod open;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use evenkeel_block_cache::{Block, BlockCache, BlockCategory, BlockType, CacheHint, FileId, PrefetchedBlock};
use evenkeel_common::{CellComparator, CellRef, HBaseError, KeyBuf, Result, TryError, TryResult, Wait};
use evenkeel_fs::{BlocksWeight, FileSystem, LocalHost, RandomAccessFile};

pub use self::fetch::ToldBlock;
pub use self::inspect::{BloomSummary, IndexEntry};
use crate::block::BlockReader;
use crate::bloom::{BloomMeta, contains, row_col_key, row_prefix};
use crate::context::{BloomType, ChecksumType, Compression, DataBlockEncoding};
use crate::error::io_at;
use crate::file_info::{FileInfo, keys, parse_compaction_event};
use crate::index::{BlockLocation, LeafView, LoadIndexBlock, MidKey, RootIndex};
use crate::reference::{Half, ReferenceRange};
use crate::scanner::{HFileScanner, ScanOptions};
use crate::trailer::Trailer;

/// How a file is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The maximum of a block's body in bytes. A larger one is treated as damage.
    pub block_bytes_max: usize,
    /// The checksum type and bytes per checksum that every block must have. `None` accepts those of
    /// each block's header, which may be no checksum at all.
    pub checksum: Option<(ChecksumType, u32)>,
    /// The family is `IN_MEMORY`, so its blocks are evicted last.
    pub in_memory: bool,
    /// Read only this half of the file, for a reference left by a split.
    pub half: Option<Half>,
    /// The file's name in the cache, if it is not the last component of `name`: for links and
    /// references, the file they refer to.
    pub cache_name: Option<String>,
    /// Data blocks stay compressed in the cache (`hbase.block.data.cachecompressed`).
    pub cache_compressed: bool,
}

/// The maximum for blocks of an intact file. HBase ends a block at its size, so only one huge cell
/// makes a block of this size.
const BLOCK_BYTES_MAX: usize = 512 << 20;

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            block_bytes_max: BLOCK_BYTES_MAX,
            checksum: None,
            in_memory: false,
            half: None,
            cache_name: None,
            cache_compressed: false,
        }
    }
}

/// An open store file. See the module.
#[derive(Debug)]
pub struct HFileReader {
    blocks: BlockReader,
    trailer: Trailer,
    root: RootIndex,
    mid_key: Option<MidKey>,
    info: FileInfo,
    first_key: Option<KeyBuf>,
    last_key: Option<KeyBuf>,
    time_range: Option<(i64, i64)>,
    bloom_type: BloomType,
    general_bloom: Option<BloomMeta>,
    delete_family_bloom: Option<BloomMeta>,
    in_memory: bool,
    half: Option<Half>,
}

impl HFileReader {
    /// Opens a file. `name` is its path, for messages. Its last component identifies the file in
    /// the cache.
    ///
    /// # Errors
    /// `CorruptHFileException` with file and offset; `IOException`; `UnsupportedOperationException`
    /// for an unknown codec.
    pub fn open(
        file: Arc<dyn RandomAccessFile>,
        name: &str,
        cache: Arc<dyn BlockCache>,
        options: &OpenOptions,
    ) -> Result<Arc<Self>> {
        open::open(file, name, cache, options).map(Arc::new)
    }

    /// Opens the file at a path.
    ///
    /// # Errors
    /// As [`HFileReader::open`].
    pub fn open_path(
        fs: &dyn FileSystem,
        path: &Path,
        cache: Arc<dyn BlockCache>,
        options: &OpenOptions,
    ) -> Result<Arc<Self>> {
        let name = path.display().to_string();
        let file = fs.open(path).map_err(|e| io_at(&name, 0, e))?;
        Self::open(file, &name, cache, options)
    }

    /// Makes a scanner without a position.
    pub fn scanner(self: &Arc<Self>, options: ScanOptions) -> HFileScanner {
        HFileScanner::new(Arc::clone(self), options)
    }

    /// The path at opening.
    pub fn name(&self) -> &str {
        &self.blocks.name
    }

    /// The file's id in the block cache.
    pub fn file_id(&self) -> FileId {
        self.blocks.id
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.blocks.blocks_end + self.trailer.len() as u64
    }

    /// Returns the weight of the blocks of the storage that hold the file. A half has those of the
    /// half of the file's bytes, as in HBase (`StoreFileInfo.computeRefFileHDFSBlockDistribution`).
    pub fn blocks_weight(&self, host: &LocalHost) -> BlocksWeight {
        let (len, middle) = (self.len(), self.len() / 2);
        let range = match self.half.as_ref().map(|half| half.range) {
            None => 0..len,
            Some(ReferenceRange::Bottom) => 0..middle,
            Some(ReferenceRange::Top) => middle..len,
        };
        self.blocks.file.blocks_weight(range, host)
    }

    /// Returns true if the file holds no cell.
    pub fn is_empty(&self) -> bool {
        self.trailer.entry_count == 0
    }

    /// The number of cells. For a half, an estimate: half of the file's cells.
    pub fn entry_count(&self) -> u64 {
        if self.half.is_some() { self.trailer.entry_count / 2 } else { self.trailer.entry_count }
    }

    /// A key at or before the first cell. For the upper half it is the split key.
    pub fn first_key(&self) -> Option<&KeyBuf> {
        match &self.half {
            Some(half) if half.range == ReferenceRange::Top => {
                self.first_key.as_ref().map(|_| &half.split_key)
            }
            _ => self.first_key.as_ref(),
        }
    }

    /// The last cell's key. For the lower half it is the split key, which is after all of its
    /// cells.
    pub fn last_key(&self) -> Option<&KeyBuf> {
        match &self.half {
            Some(half) if half.range == ReferenceRange::Bottom => {
                self.last_key.as_ref().map(|_| &half.split_key)
            }
            _ => self.last_key.as_ref(),
        }
    }

    /// A key near the middle of the file, as a candidate for a split point. `None` for an empty
    /// file, and for a half, which is not split again.
    ///
    /// # Errors
    /// `CorruptHFileException`; `IOException`.
    pub fn mid_key(&self) -> Result<Option<KeyBuf>> {
        if self.half.is_some() || self.root.len() == 0 {
            return Ok(None);
        }
        let Some(mid) = self.mid_key else {
            return self
                .key_buf(self.root.key((self.root.len() - 1) / 2), self.trailer.load_on_open_offset)
                .map(Some);
        };
        let index = self.index(Wait::Allowed);
        let leaf = index.load_index(mid.leaf, BlockType::LeafIndex).map_err(TryError::into_failure)?;
        let key = LeafView::new(leaf.data()).and_then(|view| {
            ((mid.entry as usize) < view.len()).then(|| view.key(mid.entry as usize)).flatten()
        });
        let key = key.ok_or_else(|| self.blocks.corrupt(mid.leaf.offset, "the middle key is missing"))?;
        self.key_buf(key, mid.leaf.offset).map(Some)
    }

    /// Returns an entry of the file info; see [`crate::keys`].
    pub fn file_info(&self, key: &[u8]) -> Option<&[u8]> {
        self.info.get(key).map(|value| value.as_ref())
    }

    /// The whole file info.
    pub fn file_infos(&self) -> &FileInfo {
        &self.info
    }

    /// The sequence id of the flush or compaction that wrote the file. `None` for files written for
    /// bulk load.
    pub fn max_seq_id(&self) -> Option<u64> {
        self.info.get_i64(keys::MAX_SEQ_ID).and_then(|id| u64::try_from(id).ok())
    }

    /// The largest sequence id of a cell, or 0 if cells carry none.
    pub fn max_cell_seq_id(&self) -> u64 {
        self.info.get_i64(keys::MAX_MEMSTORE_TS).and_then(|id| u64::try_from(id).ok()).unwrap_or(0)
    }

    /// The smallest and the largest timestamp. `None` if they are unknown or there is no cell.
    pub fn time_range(&self) -> Option<(i64, i64)> {
        self.time_range
    }

    /// The smallest timestamp of a put, if known.
    pub fn earliest_put_timestamp(&self) -> Option<i64> {
        self.info.get_i64(keys::EARLIEST_PUT_TS)
    }

    /// Returns true if a major compaction wrote the file.
    pub fn is_major_compaction(&self) -> bool {
        self.info.get_bool(keys::MAJOR_COMPACTION).unwrap_or(false)
    }

    /// Names of the files that this one replaces.
    pub fn compacted_files(&self) -> Vec<String> {
        self.info
            .get(keys::COMPACTION_EVENT)
            .and_then(|value| parse_compaction_event(value))
            .unwrap_or_default()
    }

    /// The order of the cells.
    pub fn comparator(&self) -> CellComparator {
        self.trailer.comparator
    }

    /// Bytes of memory of the data index's root.
    pub fn root_index_bytes(&self) -> u64 {
        self.root.heap_bytes() as u64
    }

    /// Bytes of all chunks of the general bloom filter; 0 without one.
    pub fn bloom_bytes(&self) -> u64 {
        self.general_bloom.as_ref().map_or(0, |bloom| bloom.chunk_bytes)
    }

    /// The creation time, in milliseconds since 1970, if the file info has it.
    pub fn create_time_ms(&self) -> Option<i64> {
        self.info.get_i64(keys::CREATE_TIME_TS).filter(|ms| *ms > 0)
    }

    /// The trailer.
    pub fn trailer(&self) -> &Trailer {
        &self.trailer
    }

    /// The encoding of the data blocks.
    pub fn encoding(&self) -> DataBlockEncoding {
        self.blocks.layout.encoding
    }

    /// The compression of the blocks.
    pub fn compression(&self) -> Compression {
        self.trailer.compression
    }

    /// Returns true if cells carry tags.
    pub fn includes_tags(&self) -> bool {
        self.blocks.layout.includes_tags
    }

    /// Returns true if cells carry sequence ids.
    pub fn includes_mvcc(&self) -> bool {
        self.blocks.layout.includes_mvcc
    }

    /// The type of the general bloom filter. `None` if the file has none that can be queried.
    pub fn bloom_type(&self) -> BloomType {
        if self.general_bloom.is_some() { self.bloom_type } else { BloomType::None }
    }

    /// Returns true if the file has a general bloom filter that can be queried.
    pub fn has_bloom(&self) -> bool {
        self.general_bloom.is_some()
    }

    /// The number of cells that delete a family, if known.
    pub fn delete_family_count(&self) -> Option<u64> {
        self.info.get_i64(keys::DELETE_FAMILY_COUNT).and_then(|n| u64::try_from(n).ok())
    }

    /// The bloom filters, for queries that may wait for a disk or must not.
    pub fn bloom_filters(&self, wait: Wait) -> BloomFilters<'_> {
        BloomFilters { reader: self, wait }
    }

    /// As [`BloomFilters::might_contain_row`], if reading may wait.
    ///
    /// # Errors
    /// `CorruptHFileException`; `IOException`.
    pub fn might_contain_row(&self, row: &[u8]) -> Result<bool> {
        self.bloom_filters(Wait::Allowed).might_contain_row(row).map_err(TryError::into_failure)
    }

    /// As [`BloomFilters::might_contain_row_prefix`], if reading may wait.
    ///
    /// # Errors
    /// `CorruptHFileException`; `IOException`.
    pub fn might_contain_row_prefix(&self, prefix: &[u8]) -> Result<bool> {
        self.bloom_filters(Wait::Allowed).might_contain_row_prefix(prefix).map_err(TryError::into_failure)
    }

    /// As [`BloomFilters::might_contain_row_col`], if reading may wait.
    ///
    /// # Errors
    /// `CorruptHFileException`; `IOException`.
    pub fn might_contain_row_col(&self, row: &[u8], qualifier: &[u8]) -> Result<bool> {
        self.bloom_filters(Wait::Allowed)
            .might_contain_row_col(row, qualifier)
            .map_err(TryError::into_failure)
    }

    /// Returns true if the file may contain a delete of a family in the row.
    ///
    /// # Errors
    /// `CorruptHFileException`; `IOException`.
    pub fn might_contain_delete_family(&self, row: &[u8]) -> Result<bool> {
        if self.is_empty() || self.delete_family_count() == Some(0) {
            return Ok(false);
        }
        let Some(bloom) = &self.delete_family_bloom else { return Ok(true) };
        let filters = self.bloom_filters(Wait::Allowed);
        filters.may_contain(bloom, row, &mut None).map_err(TryError::into_failure)
    }

    /// Returns the filter of rows, if there is one, and this row's key in it.
    fn row_filter<'a>(&self, row: &'a [u8]) -> Option<(&BloomMeta, &'a [u8])> {
        let bloom = self.general_bloom.as_ref()?;
        match self.bloom_type() {
            BloomType::Row => Some((bloom, row)),
            BloomType::RowPrefix(bytes) => Some((bloom, row_prefix(row, bytes))),
            BloomType::RowCol | BloomType::None => None,
        }
    }

    /// Returns true if a filter of rows whose chunk is in memory passes the row. Returns false if
    /// the chunk would have to be read, and without a filter.
    pub(crate) fn may_contain_row_in_memory(&self, row: &[u8], kept: &mut Option<Block>) -> bool {
        let Some((bloom, key)) = self.row_filter(row) else { return false };
        let Some(at) = bloom.chunk_of_row(key, self.trailer.comparator) else { return false };
        let at_hand = kept.take().filter(|chunk| chunk.offset() == at.offset);
        *kept = at_hand.or_else(|| {
            let found = self.blocks.prefetch(at, BlockCategory::Bloom).and_then(PrefetchedBlock::block);
            found.filter(|chunk| chunk.kind() == BlockType::BloomChunk)
        });
        let is_set = |chunk: &Block| contains(chunk.data(), bloom.hash, bloom.hash_count, key);
        kept.as_ref().is_some_and(is_set)
    }

    /// The number of blocks that failed verification and were read again. See
    /// [`crate::checksum_failures_count`] for all files.
    pub fn checksum_failures(&self) -> u64 {
        self.blocks.checksum_failures.load(Relaxed)
    }

    /// Bytes of memory that the open file keeps: root index and bloom metadata.
    pub fn heap_bytes(&self) -> usize {
        let blooms = [&self.general_bloom, &self.delete_family_bloom].into_iter().flatten();
        self.root.heap_bytes() + blooms.map(BloomMeta::heap_bytes).sum::<usize>()
    }

    /// Removes the file's blocks from the cache and returns their number.
    pub fn evict(&self) -> usize {
        self.blocks.cache.evict_file(self.blocks.id)
    }

    /// Reads a data block.
    pub(crate) fn load_data(&self, at: BlockLocation, insert: bool, wait: Wait) -> TryResult<Block> {
        self.blocks.read(at, BlockType::is_data, self.hint(insert, BlockCategory::Data, wait))
    }

    /// Counts a hit of a prefetched data block.
    pub(crate) fn count_hit(&self) {
        self.blocks.cache.count_hit(BlockCategory::Data);
    }

    /// Returns true if a data block should be read ahead: a cache keeps its category and lacks the
    /// block.
    pub(crate) fn should_read_ahead(&self, at: BlockLocation) -> bool {
        self.blocks.cache.caches_category(BlockCategory::Data) && !self.blocks.is_cached(at)
    }

    pub(crate) fn is_cached(&self, at: BlockLocation) -> bool {
        self.blocks.is_cached(at)
    }

    /// Bytes of the data, index and bloom blocks, which a cache may hold: the file up to the
    /// load-on-open section.
    pub fn cacheable_bytes(&self) -> u64 {
        self.trailer.load_on_open_offset
    }

    /// Reads the blocks that are not cached into the cache, in file order, until one does not fit
    /// or `should_continue` returns false. Returns the number of blocks read.
    ///
    /// # Errors
    /// `CorruptHFileException`; `IOException`.
    pub fn prefetch_blocks(&self, should_continue: &dyn Fn() -> bool) -> Result<u64> {
        let (mut offset, mut read) = (0, 0);
        while offset < self.cacheable_bytes() && should_continue() {
            let (at, header) = self.blocks.header_at(offset)?;
            let category = header.kind.category();
            if self.blocks.cache.caches_category(category) && !self.blocks.is_cached(at) {
                if !self.blocks.cache.has_space(category, self.blocks.cached_bytes(&header)) {
                    break;
                }
                let hint = self.hint(true, category, Wait::Allowed);
                self.blocks.read(at, |_| true, hint).map_err(TryError::into_failure)?;
                read += 1;
            }
            offset += u64::from(header.on_disk_bytes);
        }
        Ok(read)
    }

    fn hint(&self, insert: bool, category: BlockCategory, wait: Wait) -> CacheHint {
        CacheHint { insert, in_memory: self.in_memory, category, wait }
    }

    /// The root of the data index.
    pub(crate) fn root(&self) -> &RootIndex {
        &self.root
    }

    /// The offset of the root.
    pub(crate) fn root_offset(&self) -> u64 {
        self.trailer.load_on_open_offset
    }

    /// The number of levels of the data index.
    pub(crate) fn index_levels(&self) -> usize {
        self.trailer.data_index_levels as usize
    }

    /// A `CorruptHFileException` at an offset.
    pub(crate) fn corrupt(&self, offset: u64, what: &str) -> HBaseError {
        self.blocks.corrupt(offset, what)
    }

    /// The data index, for lookups that may wait for a disk or must not.
    pub(crate) fn index(&self, wait: Wait) -> DataIndex<'_> {
        DataIndex { reader: self, wait }
    }

    pub(crate) fn blocks(&self) -> &BlockReader {
        &self.blocks
    }

    /// The chunks of all bloom filters in file order. `None` if one of the filters cannot be
    /// queried.
    pub(crate) fn bloom_chunks(&self) -> Option<Vec<BlockLocation>> {
        if self.general_bloom.is_none() && self.info.get(keys::BLOOM_FILTER_TYPE).is_some() {
            return None;
        }
        let blooms = [&self.general_bloom, &self.delete_family_bloom].into_iter().flatten();
        let mut chunks: Vec<_> = blooms.flat_map(BloomMeta::chunks).collect();
        chunks.sort_by_key(|at| at.offset);
        Some(chunks)
    }

    pub(crate) fn half(&self) -> Option<&Half> {
        self.half.as_ref()
    }

    fn key_buf(&self, key: &[u8], offset: u64) -> Result<KeyBuf> {
        let cell = CellRef::new(key, &[], &[], 0).map_err(|e| self.blocks.corrupt(offset, e))?;
        Ok(KeyBuf::of(&cell))
    }
}

/// The bloom filters of a file. See [`HFileReader::bloom_filters`].
#[derive(Clone, Copy, Debug)]
pub struct BloomFilters<'a> {
    reader: &'a HFileReader,
    wait: Wait,
}

impl BloomFilters<'_> {
    /// Returns true if the file may contain the row, by a ROW or row prefix filter. Without such a
    /// filter it returns true.
    ///
    /// # Errors
    /// `CorruptHFileException`; `IOException`; `WouldWait` if the filters must not wait. The same
    /// holds for every other query.
    pub fn might_contain_row(&self, row: &[u8]) -> TryResult<bool> {
        self.might_contain_row_reusing(row, &mut None)
    }

    /// As [`BloomFilters::might_contain_row`]. The chunk stays in `kept` for the next row.
    pub(crate) fn might_contain_row_reusing(&self, row: &[u8], kept: &mut Option<Block>) -> TryResult<bool> {
        match self.reader.row_filter(row) {
            Some((bloom, key)) => self.may_contain(bloom, key, kept),
            None => Ok(!self.reader.is_empty()),
        }
    }

    /// Returns true if the file may contain a row with this prefix. Only a row prefix filter can
    /// exclude it, and only if `prefix` is at least as long as the filter's prefixes.
    pub fn might_contain_row_prefix(&self, prefix: &[u8]) -> TryResult<bool> {
        match (self.reader.bloom_type(), &self.reader.general_bloom) {
            (BloomType::RowPrefix(bytes), Some(bloom)) if prefix.len() >= bytes as usize => {
                self.may_contain(bloom, row_prefix(prefix, bytes), &mut None)
            }
            _ => Ok(!self.reader.is_empty()),
        }
    }

    /// Returns true if the file may contain the column of the row, or a delete of the row's family.
    /// Queries a ROWCOL filter, or else behaves as [`BloomFilters::might_contain_row`].
    pub fn might_contain_row_col(&self, row: &[u8], qualifier: &[u8]) -> TryResult<bool> {
        match (self.reader.bloom_type(), &self.reader.general_bloom) {
            (BloomType::RowCol, Some(bloom)) => Ok(self.may_contain_column(bloom, row, qualifier)?
                || self.may_contain_column(bloom, row, &[])?),
            _ => self.might_contain_row(row),
        }
    }

    fn may_contain(&self, bloom: &BloomMeta, key: &[u8], kept: &mut Option<Block>) -> TryResult<bool> {
        self.chunk_may_contain(bloom, bloom.chunk_of_row(key, self.reader.comparator()), key, kept)
    }

    fn may_contain_column(&self, bloom: &BloomMeta, row: &[u8], qualifier: &[u8]) -> TryResult<bool> {
        let mut key = Vec::new();
        row_col_key(&mut key, row, qualifier);
        let cell = CellRef::from_checked(&key, &[], &[], 0);
        self.chunk_may_contain(bloom, bloom.chunk_of_cell(&cell, self.reader.comparator()), &key, &mut None)
    }

    fn chunk_may_contain(
        &self,
        bloom: &BloomMeta,
        chunk: Option<BlockLocation>,
        key: &[u8],
        kept: &mut Option<Block>,
    ) -> TryResult<bool> {
        let Some(at) = chunk else { return Ok(false) };
        let HFileReader { blocks, trailer, .. } = self.reader;
        if at.offset >= trailer.load_on_open_offset {
            return Err(blocks.corrupt(at.offset, "a bloom chunk in the load-on-open section").into());
        }
        let chunk = match kept.take().filter(|chunk| chunk.offset() == at.offset) {
            Some(chunk) => chunk,
            None => {
                let hint = self.reader.hint(true, BlockCategory::Bloom, self.wait);
                blocks.read(at, |kind| kind == BlockType::BloomChunk, hint)?
            }
        };
        Ok(contains(kept.insert(chunk).data(), bloom.hash, bloom.hash_count, key))
    }
}

/// The data index of a file.
pub(crate) struct DataIndex<'a> {
    reader: &'a HFileReader,
    wait: Wait,
}

impl LoadIndexBlock for DataIndex<'_> {
    fn root(&self) -> &RootIndex {
        self.reader.root()
    }

    fn root_offset(&self) -> u64 {
        self.reader.root_offset()
    }

    fn levels(&self) -> usize {
        self.reader.index_levels()
    }

    fn load_index(&self, at: BlockLocation, kind: BlockType) -> TryResult<Block> {
        let wanted = match kind {
            BlockType::LeafIndex => |kind| kind == BlockType::LeafIndex,
            _ => |kind| kind == BlockType::IntermediateIndex,
        };
        self.reader.blocks.read(at, wanted, self.reader.hint(true, BlockCategory::Index, self.wait))
    }

    fn corrupt(&self, offset: u64, what: &str) -> HBaseError {
        self.reader.corrupt(offset, what)
    }

    fn order(&self) -> CellComparator {
        self.reader.comparator()
    }
}
