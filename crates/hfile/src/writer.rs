//! [`HFileWriter`]: writes cells to a store file.
//!
//! The layout of the file is stock's:
//!
//! ```text
//! data blocks, with full leaf index blocks and bloom chunks between them
//! intermediate index blocks
//! data root index | meta root index (always empty here) | file info
//! general bloom meta | delete family bloom meta
//! trailer
//! ```
//!
//! For the same cells, settings and creation time, the bytes equal those of HBase 2.6's
//! StoreFileWriter, except for compressed bodies, where codecs differ.
//!
//! Memory: one data block, its compressed form, one index leaf, the root so far, and one bloom
//! chunk per filter.

mod cache_on_write;
mod cell_digest;
mod read_back;

use std::cmp::Ordering;
use std::path::Path;

use bytes::Bytes;
use evenkeel_block_cache::BlockType;
use evenkeel_common::cell::whole_tags;
use evenkeel_common::length;
use evenkeel_common::{CellComparator, CellRef, CellType, HBaseError, KeyBuf, Result};
use evenkeel_fs::{CreateOptions, FileSystem};

use crate::block::header::HEADER_BYTES;
use crate::block::{BlockWriter, reset};
use crate::bloom::BloomWriter;
use crate::context::{BloomType, ChecksumType, DataBlockEncoding, HFileContext};
use crate::encoding::{DataBlockEncoder, key_body, shared_bytes};
use crate::error::io_at;
use crate::file_info::{FileInfo, compaction_event, keys};
use crate::index::{IndexWriter, separator};
use crate::trailer::{TRAILER_BYTES, Trailer};

pub use self::cache_on_write::{CacheOnWrite, CacheOnWritePolicy, InputResidency};
pub use self::cell_digest::CellDigest;
pub use self::read_back::ReadBack;

/// Metadata of the file that only the flush or compaction has.
#[derive(Clone, Debug, Default)]
pub struct StoreFileMeta {
    /// The sequence id of the flush, or the largest of the compacted files (`MAX_SEQ_ID_KEY`).
    /// `None` for files written for bulk load, which get theirs when they are loaded.
    pub max_seq_id: Option<u64>,
    /// A major compaction writes the file.
    pub major_compaction: bool,
    /// Names of the files that this one replaces.
    pub compacted_files: Vec<String>,
    /// The row range of its stripe, end exclusive. Empty means unbounded.
    pub stripe: Option<(Bytes, Bytes)>,
}

/// The result of writing a file.
#[derive(Clone, Debug)]
pub struct WrittenFile {
    /// Bytes of the file.
    pub bytes: u64,
    /// The number of cells.
    pub entries: u64,
    /// The first cell's key. `None` without cells.
    pub first_key: Option<KeyBuf>,
    /// The last cell's key. `None` without cells.
    pub last_key: Option<KeyBuf>,
    /// The smallest and the largest timestamp, as [`crate::HFileReader::time_range`] will return
    /// them.
    pub time_range: Option<(i64, i64)>,
    /// The file info as written.
    pub file_info: FileInfo,
    /// The trailer as written.
    pub trailer: Trailer,
    /// The blocks' checksum type and bytes per checksum.
    pub checksum: (ChecksumType, u32),
    /// The digest of all cells, if requested by [`HFileWriter::digest_cells`].
    pub digest: Option<CellDigest>,
}

/// Writes one store file. Dropping it unfinished leaves a file without a trailer, which the caller
/// must delete.
#[derive(Debug)]
pub struct HFileWriter {
    context: HFileContext,
    blocks: BlockWriter,
    encoder: DataBlockEncoder,
    /// The data block being filled, with its header. Empty between blocks.
    data: Vec<u8>,
    index: IndexWriter,
    general_bloom: Option<BloomWriter>,
    delete_family_bloom: Option<BloomWriter>,
    first_key: KeyBuf,
    last_key: KeyBuf,
    block_first_key: KeyBuf,
    prev_block_last_key: KeyBuf,
    first_data_block: Option<u64>,
    last_data_block: Option<u64>,
    totals: Totals,
    digest: Option<CellDigest>,
    info: FileInfo,
    name: String,
}

#[derive(Debug)]
struct Totals {
    entries: u64,
    key_bytes: u64,
    value_bytes: u64,
    biggest_cell_bytes: u64,
    biggest_cell_key: Vec<u8>,
    tags_bytes_max: usize,
    seq_id_max: u64,
    delete_families: u64,
    timestamp_min: i64,
    timestamp_max: i64,
    earliest_put: i64,
}

/// The value in the file info if no put was written (`HConstants.LATEST_TIMESTAMP`).
const NO_PUT: i64 = i64::MAX;

impl HFileWriter {
    /// Creates a file. Missing directories are created.
    ///
    /// # Errors
    /// `IOException`, also if the file exists; `UnsupportedOperationException` for an unsupported
    /// compression.
    pub fn create(fs: &dyn FileSystem, path: &Path, context: HFileContext) -> Result<Self> {
        let name = path.display().to_string();
        let options = CreateOptions { replication: context.dfs_replication, ..CreateOptions::BULK };
        let file = fs.create(path, options).map_err(|e| io_at(&name, 0, e))?;
        Ok(Self {
            blocks: BlockWriter::new(file, name.clone(), &context)?,
            encoder: DataBlockEncoder::new(context.layout()),
            data: Vec::new(),
            index: IndexWriter::new(context.index_block_bytes_max, context.index_block_entries_min),
            general_bloom: BloomWriter::general(&context),
            delete_family_bloom: BloomWriter::delete_family(&context),
            first_key: KeyBuf::default(),
            last_key: KeyBuf::default(),
            block_first_key: KeyBuf::default(),
            prev_block_last_key: KeyBuf::default(),
            first_data_block: None,
            last_data_block: None,
            totals: Totals::default(),
            digest: None,
            info: FileInfo::default(),
            name,
            context,
        })
    }

    /// Caches blocks as they are written. If the file is abandoned, the caller must remove it from
    /// the cache.
    pub fn cache_on_write(&mut self, cache: CacheOnWrite) {
        self.blocks.cache_on_write(cache);
    }

    /// Computes a digest of all cells, to verify the file when it is read back
    /// ([`crate::ReadBack`]). Must be called before the first cell.
    pub fn digest_cells(&mut self) {
        self.digest = Some(CellDigest::default());
    }

    /// Adds a cell. Cells come in the context's order. Cells with equal keys are consecutive and
    /// stay in one block.
    ///
    /// # Errors
    /// `IOException` if the cell is before the last one, or if writing fails. The file must be
    /// abandoned then.
    pub fn append(&mut self, cell: &CellRef<'_>) -> Result<()> {
        if !cell.tags().is_empty() && self.context.layout().compressed_tags {
            return self.append_cell(&self.drop_partial_tag(cell)?);
        }
        self.append_cell(cell)
    }

    /// Compression splits the tags. A remainder after the last whole tag cannot be written, and
    /// would damage the rest of the block. Only a file or log whose writer did not check has such a
    /// cell.
    fn drop_partial_tag<'a>(&self, cell: &CellRef<'a>) -> Result<CellRef<'a>> {
        let whole = whole_tags(cell.tags());
        if whole.len() < cell.tags().len() {
            let (file, dropped) = (&self.name, cell.tags().len() - whole.len());
            tracing::warn!(%file, ?cell, "dropping the last {dropped} bytes of tags, which are not a whole tag");
        }
        CellRef::new(cell.key(), cell.value(), whole, cell.seq_id())
    }

    fn append_cell(&mut self, cell: &CellRef<'_>) -> Result<()> {
        let shared = shared_bytes(self.last_key.bytes(), cell.key());
        let repeats = self.check_order(cell, shared)?;
        self.append_to_blooms(cell, shared);
        if !repeats && !self.data.is_empty() && self.encoder.reached(self.context.block_bytes) {
            self.finish_data_block()?;
            self.write_inline_blocks()?;
        }
        if self.data.is_empty() {
            self.begin_data_block(cell);
        }
        self.encoder.append(cell, self.last_key.bytes(), shared, &mut self.data);
        self.totals.add(cell);
        if let Some(digest) = &mut self.digest {
            digest.add(cell);
        }
        self.last_key.set_to(cell);
        Ok(())
    }

    /// Adds an entry to the file info. Entries of [`HFileWriter::finish`] take precedence.
    pub fn append_file_info(&mut self, key: &[u8], value: Vec<u8>) {
        self.info.set(key, value);
    }

    /// Bytes of the file so far, without the block being filled.
    pub fn bytes_written(&self) -> u64 {
        self.blocks.position()
    }

    /// The number of cells so far.
    pub fn entries(&self) -> u64 {
        self.totals.entries
    }

    /// Returns true if a cell so far had tags.
    pub fn has_tags(&self) -> bool {
        self.totals.tags_bytes_max > 0
    }

    /// Ends the file and makes it durable.
    ///
    /// # Errors
    /// `IOException`. The file must be abandoned then.
    pub fn finish(mut self, meta: StoreFileMeta) -> Result<WrittenFile> {
        self.finish_data_block()?;
        self.close_inline_blocks()?;
        let load_on_open_offset = self.index.write_root(&mut self.blocks)?;
        self.blocks.write(BlockType::RootIndex, |_| ())?;
        self.fill_file_info(&meta);
        let (file_info_offset, body) = (self.blocks.position(), self.info.encode());
        self.blocks.write(BlockType::FileInfo, |out| out.extend_from_slice(&body))?;
        self.write_bloom_metas()?;
        let trailer = self.trailer(load_on_open_offset, file_info_offset);
        self.blocks.append(&trailer.encode())?;
        let bytes = self.blocks.close()?;
        Ok(self.written(bytes, trailer))
    }

    /// Checks the order. Returns true if the cell has the last cell's key. `shared`: the leading
    /// bytes that both keys share, up to the end of the qualifier.
    fn check_order(&self, cell: &CellRef<'_>, shared: usize) -> Result<bool> {
        if self.last_key.is_empty() {
            return Ok(false);
        }
        let last = self.last_key.as_cell();
        let order = match self.is_provably_after(cell, &last, shared) {
            true => Ordering::Less,
            false => self.context.comparator.compare_keys(&last, cell),
        };
        if order.is_gt() {
            let message = format!("{}: {cell:?} comes before {last:?}, which was written last", self.name);
            return Err(HBaseError::io(message));
        }
        if self.needs_one_family() && last.family() != cell.family() {
            let message = format!("{}: {cell:?} and {last:?} have different families", self.name);
            return Err(HBaseError::io(message));
        }
        Ok(order.is_eq())
    }

    /// Returns true if the first different byte proves that the cell is after the last one, which
    /// is the usual case.
    fn is_provably_after(&self, cell: &CellRef<'_>, last: &CellRef<'_>, shared: usize) -> bool {
        let (row_end, family_bytes) = (2 + cell.row().len(), cell.family().len());
        let next_is_higher = || key_body(last.key()).get(shared) < key_body(cell.key()).get(shared);
        if shared < row_end {
            // Only proves it for rows of the same length.
            return shared >= 2 && self.context.comparator == CellComparator::Default && next_is_higher();
        }
        // A key without a family may sort after its whole row.
        let same_family = family_bytes > 0 && shared > row_end + family_bytes;
        same_family && next_is_higher()
    }

    fn needs_one_family(&self) -> bool {
        matches!(self.context.encoding, DataBlockEncoding::Diff | DataBlockEncoding::FastDiff)
    }

    fn append_to_blooms(&mut self, cell: &CellRef<'_>, shared: usize) {
        if let Some(bloom) = &mut self.general_bloom
            && (shared < 2 + cell.row().len() || !bloom.keys_are_rows())
        {
            bloom.append(cell);
        }
        match &mut self.delete_family_bloom {
            Some(bloom) if deletes_family(cell) => bloom.append(cell),
            _ => (),
        }
    }

    fn begin_data_block(&mut self, cell: &CellRef<'_>) {
        reset(&mut self.data);
        self.encoder.begin(&mut self.data);
        self.block_first_key.set_to(cell);
        if self.last_key.is_empty() {
            self.first_key.set_to(cell);
        } else {
            self.prev_block_last_key.clone_from(&self.last_key);
        }
    }

    fn finish_data_block(&mut self) -> Result<()> {
        if self.data.is_empty() {
            return Ok(());
        }
        self.encoder.end(&mut self.data, HEADER_BYTES);
        let kind = match self.context.encoding {
            DataBlockEncoding::None => BlockType::Data,
            _ => BlockType::EncodedData,
        };
        let replaces_cached = self.blocks.replaces_cached();
        let written = self.blocks.write_block(kind, replaces_cached, &mut self.data)?;
        self.data.clear();
        self.first_data_block.get_or_insert(written.at.offset);
        self.last_data_block = Some(written.at.offset);
        self.index.add_block(written.at, self.index_key().bytes(), replaces_cached);
        for bloom in [&mut self.general_bloom, &mut self.delete_family_bloom].into_iter().flatten() {
            bloom.add_block(replaces_cached);
        }
        Ok(())
    }

    /// A key after the previous block and not after this block's first key. It is a short one if
    /// the order allows to construct it.
    fn index_key(&self) -> KeyBuf {
        if self.prev_block_last_key.is_empty() || self.context.comparator == CellComparator::Meta {
            return self.block_first_key.clone();
        }
        separator(&self.prev_block_last_key.as_cell(), &self.block_first_key.as_cell())
    }

    fn write_inline_blocks(&mut self) -> Result<()> {
        self.index.write_full_leaf(&mut self.blocks)?;
        self.write_bloom_chunks(false)
    }

    fn close_inline_blocks(&mut self) -> Result<()> {
        self.index.close_leaves(&mut self.blocks)?;
        self.write_bloom_chunks(true)
    }

    fn write_bloom_chunks(&mut self, closing: bool) -> Result<()> {
        for bloom in [&mut self.general_bloom, &mut self.delete_family_bloom].into_iter().flatten() {
            bloom.write_chunks(&mut self.blocks, closing)?;
        }
        Ok(())
    }

    fn write_bloom_metas(&mut self) -> Result<()> {
        let blooms = [
            (BlockType::GeneralBloomMeta, &self.general_bloom),
            (BlockType::DeleteFamilyBloomMeta, &self.delete_family_bloom),
        ];
        for (kind, bloom) in blooms {
            if let Some(bloom) = bloom.as_ref().filter(|bloom| bloom.keys() > 0) {
                self.blocks.write(kind, |out| bloom.write_meta(out))?;
            }
        }
        Ok(())
    }

    fn fill_file_info(&mut self, meta: &StoreFileMeta) {
        let info = &mut self.info;
        if let Some(max_seq_id) = meta.max_seq_id {
            info.set(keys::MAX_SEQ_ID, max_seq_id.to_be_bytes().to_vec());
            info.set_bool(keys::MAJOR_COMPACTION, meta.major_compaction);
            info.set(keys::COMPACTION_EVENT, compaction_event(&meta.compacted_files));
        }
        if let Some((start, end)) = &meta.stripe {
            info.set(keys::STRIPE_START, start.clone());
            info.set(keys::STRIPE_END, end.clone());
        }
        info.set_bool(keys::HISTORICAL, false);
        self.totals.fill(info, !self.last_key.is_empty());
        if !self.last_key.is_empty() {
            info.set(keys::LAST_KEY, self.last_key.bytes().to_vec());
        }
        info.set(keys::CREATE_TIME_TS, self.context.create_time_ms.to_be_bytes().to_vec());
        if self.context.encoding != DataBlockEncoding::None {
            info.set(keys::DATA_BLOCK_ENCODING, self.context.encoding.name().as_bytes().to_vec());
        }
        if self.context.includes_tags {
            let compressed = self.context.encoding != DataBlockEncoding::None && self.context.compress_tags;
            info.set(keys::MAX_TAGS_LEN, length::must_i32(self.totals.tags_bytes_max).to_be_bytes().to_vec());
            info.set_bool(keys::TAGS_COMPRESSED, compressed);
        }
        if self.context.includes_mvcc {
            info.set(keys::MAX_MEMSTORE_TS, self.totals.seq_id_max.to_be_bytes().to_vec());
            info.set(keys::KEY_VALUE_VERSION, 1i32.to_be_bytes().to_vec());
        }
        self.fill_bloom_info();
    }

    fn fill_bloom_info(&mut self) {
        let Some(bloom) = self.general_bloom.as_ref().filter(|bloom| bloom.keys() > 0) else { return };
        self.info.set(keys::BLOOM_FILTER_TYPE, self.context.bloom.name().as_bytes().to_vec());
        self.info.set(keys::LAST_BLOOM_KEY, bloom.last_key().to_vec());
        if let BloomType::RowPrefix(bytes) = self.context.bloom {
            self.info.set(keys::BLOOM_FILTER_PARAM, bytes.to_be_bytes().to_vec());
        }
    }

    fn trailer(&self, load_on_open_offset: u64, file_info_offset: u64) -> Trailer {
        Trailer {
            major: 3,
            minor: 3,
            file_info_offset,
            load_on_open_offset,
            uncompressed_data_index_bytes: self.index.uncompressed_bytes(),
            total_uncompressed_bytes: self.blocks.total_uncompressed_bytes() + TRAILER_BYTES as u64,
            data_index_count: length::must_u32(self.index.root_entries()),
            meta_index_count: 0,
            entry_count: self.totals.entries,
            data_index_levels: self.index.levels(),
            first_data_block_offset: self.first_data_block.map_or(-1, |offset| offset as i64),
            last_data_block_offset: self.last_data_block.map_or(-1, |offset| offset as i64),
            comparator: self.context.comparator,
            compression: self.context.compression,
        }
    }

    fn written(self, bytes: u64, trailer: Trailer) -> WrittenFile {
        let key = |key: KeyBuf| (!key.is_empty()).then_some(key);
        WrittenFile {
            bytes,
            entries: self.totals.entries,
            first_key: key(self.first_key),
            last_key: key(self.last_key),
            time_range: self.totals.time_range(),
            file_info: self.info,
            trailer,
            checksum: self.blocks.checksum(),
            digest: self.digest,
        }
    }
}

/// Returns true if a cell belongs in the delete family bloom filter.
fn deletes_family(cell: &CellRef<'_>) -> bool {
    matches!(cell.cell_type(), Some(CellType::DeleteFamily | CellType::DeleteFamilyVersion))
}

impl Default for Totals {
    fn default() -> Self {
        Self {
            entries: 0,
            key_bytes: 0,
            value_bytes: 0,
            biggest_cell_bytes: 0,
            biggest_cell_key: Vec::new(),
            tags_bytes_max: 0,
            seq_id_max: 0,
            delete_families: 0,
            timestamp_min: i64::MAX,
            timestamp_max: -1,
            earliest_put: NO_PUT,
        }
    }
}

impl Totals {
    fn add(&mut self, cell: &CellRef<'_>) {
        self.entries += 1;
        self.key_bytes += cell.key().len() as u64;
        self.value_bytes += cell.value().len() as u64;
        self.tags_bytes_max = self.tags_bytes_max.max(cell.tags().len());
        self.seq_id_max = self.seq_id_max.max(cell.seq_id());
        self.delete_families += u64::from(deletes_family(cell));
        self.add_biggest(cell);
        self.add_timestamps(cell);
    }

    fn add_biggest(&mut self, cell: &CellRef<'_>) {
        let cell_bytes = cell.key_value_len() as u64 + 4;
        if cell_bytes > self.biggest_cell_bytes {
            self.biggest_cell_bytes = cell_bytes;
            self.biggest_cell_key.clear();
            self.biggest_cell_key.extend_from_slice(cell.key());
        }
    }

    /// A delete of a column or family covers all earlier times, so its range starts at 0.
    fn add_timestamps(&mut self, cell: &CellRef<'_>) {
        let timestamp = cell.timestamp();
        self.timestamp_min = self.timestamp_min.min(timestamp);
        self.timestamp_max = self.timestamp_max.max(timestamp);
        match cell.cell_type() {
            Some(CellType::DeleteColumn | CellType::DeleteFamily) => {
                self.timestamp_min = self.timestamp_min.min(0);
                self.timestamp_max = self.timestamp_max.max(0);
            }
            Some(CellType::Put) => self.earliest_put = self.earliest_put.min(timestamp),
            _ => (),
        }
    }

    fn time_range(&self) -> Option<(i64, i64)> {
        (self.entries > 0).then_some((self.timestamp_min, self.timestamp_max))
    }

    fn fill(&self, info: &mut FileInfo, any: bool) {
        let mean = |sum: u64| {
            i32::try_from(sum.checked_div(self.entries).unwrap_or(0))
                .unwrap_or(i32::MAX)
                .to_be_bytes()
                .to_vec()
        };
        info.set(keys::AVG_KEY_LEN, mean(self.key_bytes));
        info.set(keys::AVG_VALUE_LEN, mean(self.value_bytes));
        info.set(keys::DELETE_FAMILY_COUNT, self.delete_families.to_be_bytes().to_vec());
        let range = [self.timestamp_min.to_be_bytes(), self.timestamp_max.to_be_bytes()].concat();
        info.set(keys::TIMERANGE, range);
        info.set(keys::EARLIEST_PUT_TS, self.earliest_put.to_be_bytes().to_vec());
        if any {
            info.set(keys::KEY_OF_BIGGEST_CELL, self.biggest_cell_key.clone());
            info.set(keys::LEN_OF_BIGGEST_CELL, self.biggest_cell_bytes.to_be_bytes().to_vec());
        }
    }
}
