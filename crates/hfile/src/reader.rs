//! [`HFileReader`]: an open store file.
//!
//! Opening reads the trailer, the two root indexes, the file info and the descriptions of the bloom filters, and keeps
//! them; everything else is read when asked for, through the block cache. A reader is shared (`Arc`), never changes, and
//! holds no lock.

mod inspect;
mod open;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use evenkeel_block_cache::{Block, BlockCache, BlockCategory, BlockType, CacheHint, FileId, PrefetchedBlock};
use evenkeel_common::{CellComparator, CellRef, HBaseError, KeyBuf, Result};
use evenkeel_fs::{FileSystem, RandomAccessFile};

pub use self::inspect::{BloomSummary, IndexEntry};
use crate::block::BlockReader;
use crate::bloom::{BloomMeta, contains, row_col_key, row_prefix};
use crate::context::{BloomType, ChecksumType, Compression, DataBlockEncoding};
use crate::error::io_at;
use crate::file_info::{FileInfo, keys, parse_compaction_event};
use crate::index::{BlockAt, LeafView, LoadIndexBlock, MidKey, RootIndex};
use crate::reference::{Half, ReferenceRange};
use crate::scanner::{HFileScanner, ScanOptions};
use crate::trailer::Trailer;

/// How a file is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Blocks whose body is larger are taken for damage.
    pub block_bytes_max: usize,
    /// Type and bytes of a checksum that every block has; another is taken for damage. `None` takes what each block's
    /// header says, which may be no checksum at all.
    pub checksum: Option<(ChecksumType, u32)>,
    /// The family is `IN_MEMORY`: its blocks should leave the cache last.
    pub in_memory: bool,
    /// Only this half of the file, for a reference left by a split.
    pub half: Option<Half>,
    /// The cache's name of the file, when it is not the last part of `name`: for links and references, the file behind.
    pub cache_name: Option<String>,
    /// Data blocks stay compressed in the cache (`hbase.block.data.cachecompressed`).
    pub cache_compressed: bool,
}

/// No block of a sound file is larger: HBase ends blocks at their size, so only one huge cell makes one.
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
    /// Opens a file for reading. `name` is its path, for messages; its last part names it in the cache.
    ///
    /// # Errors
    /// `CorruptHFileException` naming the file and the place; what the file system says.
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

    /// A new scanner, not yet anywhere.
    pub fn scanner(self: &Arc<Self>, options: ScanOptions) -> HFileScanner {
        HFileScanner::new(Arc::clone(self), options)
    }

    /// The path it was opened with.
    pub fn name(&self) -> &str {
        &self.blocks.name
    }

    /// What names the file in the block cache.
    pub fn file_id(&self) -> FileId {
        self.blocks.id
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.blocks.blocks_end + self.trailer.len() as u64
    }

    /// Whether the file holds no cell.
    pub fn is_empty(&self) -> bool {
        self.trailer.entry_count == 0
    }

    /// Cells in the file; of a half, half of them is the guess.
    pub fn entry_count(&self) -> u64 {
        if self.half.is_some() { self.trailer.entry_count / 2 } else { self.trailer.entry_count }
    }

    /// A key at or before the first cell (of a half: the bounds of the half are not looked at for the lower one).
    pub fn first_key(&self) -> Option<&KeyBuf> {
        match &self.half {
            Some(half) if half.range == ReferenceRange::Top => {
                self.first_key.as_ref().map(|_| &half.split_key)
            }
            _ => self.first_key.as_ref(),
        }
    }

    /// The last cell's key; of a lower half, a key after all its cells.
    pub fn last_key(&self) -> Option<&KeyBuf> {
        match &self.half {
            Some(half) if half.range == ReferenceRange::Bottom => {
                self.last_key.as_ref().map(|_| &half.split_key)
            }
            _ => self.last_key.as_ref(),
        }
    }

    /// A key near the middle of the file: a candidate for a split point. `None` for an empty file, and for a half, which
    /// is not split again.
    ///
    /// # Errors
    /// What reading the index says.
    pub fn mid_key(&self) -> Result<Option<KeyBuf>> {
        if self.half.is_some() || self.root.len() == 0 {
            return Ok(None);
        }
        let Some(mid) = self.mid_key else {
            return self
                .key_buf(self.root.key((self.root.len() - 1) / 2), self.trailer.load_on_open_offset)
                .map(Some);
        };
        let leaf = self.load_index(mid.leaf, BlockType::LeafIndex)?;
        let key = LeafView::new(leaf.data()).and_then(|view| {
            ((mid.entry as usize) < view.len()).then(|| view.key(mid.entry as usize)).flatten()
        });
        let key = key.ok_or_else(|| self.blocks.corrupt(mid.leaf.offset, "the middle key is not there"))?;
        self.key_buf(key, mid.leaf.offset).map(Some)
    }

    /// An entry of the file info; see [`crate::keys`].
    pub fn file_info(&self, key: &[u8]) -> Option<&[u8]> {
        self.info.get(key).map(|value| value.as_ref())
    }

    /// The whole file info.
    pub fn file_infos(&self) -> &FileInfo {
        &self.info
    }

    /// The sequence id of the flush or compaction that wrote the file; `None` for files made for bulk load.
    pub fn max_seq_id(&self) -> Option<u64> {
        self.info.get_i64(keys::MAX_SEQ_ID).and_then(|id| u64::try_from(id).ok())
    }

    /// The largest sequence id of a cell, or 0 when cells carry none.
    pub fn max_cell_seq_id(&self) -> u64 {
        self.info.get_i64(keys::MAX_MEMSTORE_TS).and_then(|id| u64::try_from(id).ok()).unwrap_or(0)
    }

    /// Smallest and largest timestamp; `None` when unknown, or when there is no cell.
    pub fn time_range(&self) -> Option<(i64, i64)> {
        self.time_range
    }

    /// The smallest timestamp of a put; `None` when unknown.
    pub fn earliest_put_timestamp(&self) -> Option<i64> {
        self.info.get_i64(keys::EARLIEST_PUT_TS)
    }

    /// Whether a major compaction wrote the file.
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

    /// The trailer.
    pub fn trailer(&self) -> &Trailer {
        &self.trailer
    }

    /// How data blocks are encoded.
    pub fn encoding(&self) -> DataBlockEncoding {
        self.blocks.layout.encoding
    }

    /// How blocks are compressed.
    pub fn compression(&self) -> Compression {
        self.trailer.compression
    }

    /// Whether cells carry tags.
    pub fn includes_tags(&self) -> bool {
        self.blocks.layout.includes_tags
    }

    /// Whether cells carry sequence ids.
    pub fn includes_mvcc(&self) -> bool {
        self.blocks.layout.includes_mvcc
    }

    /// The type of the general bloom filter; `None` when there is none to ask.
    pub fn bloom_type(&self) -> BloomType {
        if self.general_bloom.is_some() { self.bloom_type } else { BloomType::None }
    }

    /// Whether there is a general bloom filter to ask.
    pub fn has_bloom(&self) -> bool {
        self.general_bloom.is_some()
    }

    /// How many cells delete a family; `None` when unknown.
    pub fn delete_family_count(&self) -> Option<u64> {
        self.info.get_i64(keys::DELETE_FAMILY_COUNT).and_then(|n| u64::try_from(n).ok())
    }

    /// Whether the row may be in the file, by a ROW or row prefix filter; `true` when there is neither.
    ///
    /// # Errors
    /// What reading a chunk says.
    pub fn might_contain_row(&self, row: &[u8]) -> Result<bool> {
        self.might_contain_row_reusing(row, &mut None)
    }

    /// As [`HFileReader::might_contain_row`]. The chunk that was asked is kept, for the next row.
    pub(crate) fn might_contain_row_reusing(&self, row: &[u8], kept: &mut Option<Block>) -> Result<bool> {
        match self.row_filter(row) {
            Some((bloom, key)) => self.bloom_may_contain(bloom, key, kept),
            None => Ok(!self.is_empty()),
        }
    }

    /// The filter that knows of rows, if there is one, and what it knows this one by.
    fn row_filter<'a>(&self, row: &'a [u8]) -> Option<(&BloomMeta, &'a [u8])> {
        let bloom = self.general_bloom.as_ref()?;
        match self.bloom_type() {
            BloomType::Row => Some((bloom, row)),
            BloomType::RowPrefix(bytes) => Some((bloom, row_prefix(row, bytes))),
            BloomType::RowCol | BloomType::None => None,
        }
    }

    /// Whether a filter of rows says that the row may be in the file; `false` also when that takes reading, and without one.
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

    /// Whether a row that begins with these bytes may be in the file. Only a row prefix filter can tell, and only when
    /// `prefix` is at least as long as its prefixes.
    ///
    /// # Errors
    /// What reading a chunk says.
    pub fn might_contain_row_prefix(&self, prefix: &[u8]) -> Result<bool> {
        match (self.bloom_type(), &self.general_bloom) {
            (BloomType::RowPrefix(bytes), Some(bloom)) if prefix.len() >= bytes as usize => {
                self.bloom_may_contain(bloom, row_prefix(prefix, bytes), &mut None)
            }
            _ => Ok(!self.is_empty()),
        }
    }

    /// Whether the column of the row may be in the file, or a delete of the row's family; by a ROWCOL filter, or else
    /// as [`HFileReader::might_contain_row`].
    ///
    /// # Errors
    /// What reading a chunk says.
    pub fn might_contain_row_col(&self, row: &[u8], qualifier: &[u8]) -> Result<bool> {
        match (self.bloom_type(), &self.general_bloom) {
            (BloomType::RowCol, Some(bloom)) => Ok(self.bloom_may_contain_column(bloom, row, qualifier)?
                || self.bloom_may_contain_column(bloom, row, &[])?),
            _ => self.might_contain_row(row),
        }
    }

    /// Whether a family may have been deleted in the row, as far as this file knows.
    ///
    /// # Errors
    /// What reading a chunk says.
    pub fn might_contain_delete_family(&self, row: &[u8]) -> Result<bool> {
        if self.is_empty() || self.delete_family_count() == Some(0) {
            return Ok(false);
        }
        match &self.delete_family_bloom {
            Some(bloom) => self.bloom_may_contain(bloom, row, &mut None),
            None => Ok(true),
        }
    }

    /// How many blocks did not verify and were read again; see [`crate::checksum_failures_count`] for all files.
    pub fn checksum_failures(&self) -> u64 {
        self.blocks.checksum_failures.load(Relaxed)
    }

    /// Bytes of memory for what is kept open: root index and bloom descriptions.
    pub fn heap_bytes(&self) -> usize {
        let blooms = [&self.general_bloom, &self.delete_family_bloom].into_iter().flatten();
        self.root.heap_bytes() + blooms.map(BloomMeta::heap_bytes).sum::<usize>()
    }

    /// Makes the cache forget the file's blocks; returns how many there were.
    pub fn evict(&self) -> usize {
        self.blocks.cache.evict_file(self.blocks.id)
    }

    /// Reads a data block.
    pub(crate) fn load_data(&self, at: BlockAt, keep: bool) -> Result<Block> {
        self.blocks.read(at, BlockType::is_data, self.hint(keep, BlockCategory::Data))
    }

    /// Counts a hit of a data block that was looked for ahead.
    pub(crate) fn count_hit(&self) {
        self.blocks.cache.count_hit(BlockCategory::Data);
    }

    /// Whether a data block is worth reading ahead: there is a cache for it, and it is not there.
    pub(crate) fn wants_data(&self, at: BlockAt) -> bool {
        self.blocks.cache.keeps(BlockCategory::Data) && !self.blocks.is_cached(at)
    }

    pub(crate) fn is_cached(&self, at: BlockAt) -> bool {
        self.blocks.is_cached(at)
    }

    /// Bytes of the file before what is read when it is opened: data, index and bloom blocks, which a cache may hold.
    pub fn cacheable_bytes(&self) -> u64 {
        self.trailer.load_on_open_offset
    }

    /// Reads all blocks that are not cached yet into the cache, in order, until one does not fit or `go_on` says no.
    /// Returns how many were read.
    ///
    /// # Errors
    /// What reading says.
    pub fn prefetch_blocks(&self, go_on: &dyn Fn() -> bool) -> Result<u64> {
        let (mut offset, mut read) = (0, 0);
        while offset < self.cacheable_bytes() && go_on() {
            let (at, header) = self.blocks.header_at(offset)?;
            let category = header.kind.category();
            if self.blocks.cache.keeps(category) && !self.blocks.is_cached(at) {
                if !self.blocks.cache.has_room(category, self.blocks.cached_bytes(&header)) {
                    break;
                }
                self.blocks.read(at, |_| true, self.hint(true, category))?;
                read += 1;
            }
            offset += u64::from(header.on_disk_bytes);
        }
        Ok(read)
    }

    fn hint(&self, keep: bool, category: BlockCategory) -> CacheHint {
        CacheHint { keep, in_memory: self.in_memory, category }
    }

    pub(crate) fn blocks(&self) -> &BlockReader {
        &self.blocks
    }

    /// Where the chunks of all bloom filters are, in the order of the file; `None` when it has a filter that cannot be asked.
    pub(crate) fn bloom_chunks(&self) -> Option<Vec<BlockAt>> {
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

    fn bloom_may_contain(&self, bloom: &BloomMeta, key: &[u8], kept: &mut Option<Block>) -> Result<bool> {
        self.chunk_may_contain(bloom, bloom.chunk_of_row(key, self.trailer.comparator), key, kept)
    }

    fn bloom_may_contain_column(&self, bloom: &BloomMeta, row: &[u8], qualifier: &[u8]) -> Result<bool> {
        let mut key = Vec::new();
        row_col_key(&mut key, row, qualifier);
        let cell = CellRef::from_checked(&key, &[], &[], 0);
        self.chunk_may_contain(bloom, bloom.chunk_of_cell(&cell, self.trailer.comparator), &key, &mut None)
    }

    fn chunk_may_contain(
        &self,
        bloom: &BloomMeta,
        chunk: Option<BlockAt>,
        key: &[u8],
        kept: &mut Option<Block>,
    ) -> Result<bool> {
        let Some(at) = chunk else { return Ok(false) };
        if at.offset >= self.trailer.load_on_open_offset {
            return Err(self.blocks.corrupt(at.offset, "a bloom chunk is out of place"));
        }
        let chunk = match kept.take().filter(|chunk| chunk.offset() == at.offset) {
            Some(chunk) => chunk,
            None => {
                let hint = self.hint(true, BlockCategory::Bloom);
                self.blocks.read(at, |kind| kind == BlockType::BloomChunk, hint)?
            }
        };
        Ok(contains(kept.insert(chunk).data(), bloom.hash, bloom.hash_count, key))
    }

    fn key_buf(&self, key: &[u8], offset: u64) -> Result<KeyBuf> {
        let cell = CellRef::new(key, &[], &[], 0).map_err(|e| self.blocks.corrupt(offset, e))?;
        Ok(KeyBuf::of(&cell))
    }
}

impl LoadIndexBlock for HFileReader {
    fn root(&self) -> &RootIndex {
        &self.root
    }

    fn root_offset(&self) -> u64 {
        self.trailer.load_on_open_offset
    }

    fn levels(&self) -> usize {
        self.trailer.data_index_levels as usize
    }

    fn load_index(&self, at: BlockAt, kind: BlockType) -> Result<Block> {
        let wanted = match kind {
            BlockType::LeafIndex => |kind| kind == BlockType::LeafIndex,
            _ => |kind| kind == BlockType::IntermediateIndex,
        };
        self.blocks.read(at, wanted, self.hint(true, BlockCategory::Index))
    }

    fn corrupt(&self, offset: u64, what: &str) -> HBaseError {
        self.blocks.corrupt(offset, what)
    }

    fn order(&self) -> CellComparator {
        self.trailer.comparator
    }
}
