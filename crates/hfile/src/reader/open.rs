//! Opening a file: the trailer and the load-on-open section.
//!
//! The trailer has no checksum, so every number in it is checked against the rest of the file.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use evenkeel_block_cache::{Block, BlockCache, BlockType, FileId};
use evenkeel_common::length;
use evenkeel_common::{CellComparator, CellRef, HBaseError, KeyBuf, Result};
use evenkeel_fs::RandomAccessFile;

use super::{HFileReader, OpenOptions};
use crate::block::BlockReader;
use crate::bloom::BloomMeta;
use crate::context::{BloomType, CellLayout, DataBlockEncoding};
use crate::error::{corrupt, io_at};
use crate::file_info::{FileInfo, keys, parse_time_range};
use crate::index::{MidKey, RootIndex};
use crate::trailer::{TRAILER_BYTES, Trailer};

/// See [`HFileReader::open`].
pub(super) fn open(
    file: Arc<dyn RandomAccessFile>,
    name: &str,
    cache: Arc<dyn BlockCache>,
    options: &OpenOptions,
) -> Result<HFileReader> {
    let trailer = read_trailer(&*file, name)?;
    let cache_name = options.cache_name.as_deref().unwrap_or_else(|| last_part(name));
    let blocks = BlockReader {
        id: FileId::of_name(cache_name),
        name: name.to_owned(),
        cache,
        compression: trailer.compression,
        layout: UNKNOWN_LAYOUT,
        blocks_end: file.len() - trailer.len() as u64,
        block_bytes_max: options.block_bytes_max,
        checksum: options.checksum,
        has_checksums: AtomicBool::new(false),
        checksum_failures: AtomicU64::new(0),
        caches_compressed: options.cache_compressed,
        file,
    };
    FileOpener { blocks, trailer }.open(options)
}

const UNKNOWN_LAYOUT: CellLayout = CellLayout {
    encoding: DataBlockEncoding::None,
    includes_tags: false,
    includes_mvcc: false,
    compressed_tags: false,
};

fn last_part(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

fn read_trailer(file: &dyn RandomAccessFile, name: &str) -> Result<Trailer> {
    let tail_bytes = file.len().min(TRAILER_BYTES as u64);
    let offset = file.len() - tail_bytes;
    let mut tail = vec![0; length::index(tail_bytes)];
    for last_try in [false, true] {
        file.read_exact_at(offset, &mut tail).map_err(|e| io_at(name, offset, e))?;
        match Trailer::parse(&tail) {
            Ok(trailer) => return Ok(trailer),
            Err(damage) if last_try => return Err(corrupt(name, offset, damage)),
            Err(_) => (),
        }
    }
    Err(corrupt(name, offset, "no trailer"))
}

/// A file whose trailer was read, and no more.
struct FileOpener {
    blocks: BlockReader,
    trailer: Trailer,
}

/// The blocks of the load-on-open section.
#[derive(Default)]
struct LoadOnOpen {
    info: FileInfo,
    general_bloom: Option<Block>,
    delete_family_bloom: Option<Block>,
}

impl FileOpener {
    fn open(mut self, options: &OpenOptions) -> Result<HFileReader> {
        evenkeel_compression::check_supported(self.trailer.compression)?;
        let (root, mut next) = self.block(self.trailer.load_on_open_offset, BlockType::RootIndex)?;
        let (root_index, mid_key) = self.data_root(&root)?;
        let (meta_root, after) = self.block(next, BlockType::RootIndex)?;
        self.check_meta_root(&meta_root)?;
        next = after;
        let loaded = self.load_rest(next)?;
        self.blocks.layout = self.layout(&loaded.info)?;
        let bloom_type = self.bloom_type(&loaded.info)?;
        let keys_are_cells = bloom_type == BloomType::RowCol;
        let general_bloom = self.bloom(loaded.general_bloom, keys_are_cells)?;
        let mut reader = HFileReader {
            delete_family_bloom: self.bloom(loaded.delete_family_bloom, false)?,
            general_bloom: general_bloom.filter(|_| self.can_query(bloom_type)),
            first_key: None,
            last_key: self.last_key(&loaded.info)?,
            time_range: self.time_range(&loaded.info),
            root: root_index,
            mid_key,
            info: loaded.info,
            bloom_type,
            trailer: self.trailer,
            blocks: self.blocks,
            in_memory: options.in_memory,
            half: options.half.clone(),
        };
        if reader.root.len() > 0 {
            reader.first_key = Some(reader.key_buf(reader.root.key(0), reader.trailer.load_on_open_offset)?);
        }
        Ok(reader)
    }

    /// Reads the block of a type at an offset. Returns it with its end.
    fn block(&self, offset: u64, kind: BlockType) -> Result<(Block, u64)> {
        let block = self.blocks.load_unsized(offset)?;
        if block.kind() != kind {
            return Err(self
                .blocks
                .corrupt(offset, format_args!("a block of type {:?} instead of {kind:?}", block.kind())));
        }
        let end = offset + u64::from(block.on_disk_bytes());
        Ok((block, end))
    }

    fn data_root(&self, root: &Block) -> Result<(RootIndex, Option<MidKey>)> {
        let (count, levels) = (self.trailer.data_index_count, self.trailer.data_index_levels);
        let parsed = RootIndex::parse_data(root.data(), count, levels);
        let (index, mid_key) = parsed.ok_or_else(|| self.inconsistent("the root index"))?;
        let empty = self.trailer.entry_count == 0;
        let first = if levels == 1 && !empty {
            index.len().checked_sub(1).map(|_| index.entry(0).offset)
        } else {
            None
        };
        let first_agrees = first.is_none_or(|offset| offset as i64 == self.trailer.first_data_block_offset);
        if empty == (index.len() == 0) && first_agrees {
            Ok((index, mid_key))
        } else {
            Err(self.inconsistent("the trailer"))
        }
    }

    fn check_meta_root(&self, root: &Block) -> Result<()> {
        match RootIndex::parse(root.data(), self.trailer.meta_index_count) {
            Some((_, [])) => Ok(()),
            _ => Err(self.inconsistent("the meta index")),
        }
    }

    /// Reads the file info and the blocks up to the trailer. Blocks of other types are skipped.
    fn load_rest(&self, info_offset: u64) -> Result<LoadOnOpen> {
        let (info, mut next) = self.block(info_offset, BlockType::FileInfo)?;
        if self.trailer.file_info_offset != info_offset {
            return Err(self.inconsistent("the trailer"));
        }
        let info = FileInfo::decode(info.data()).filter(FileInfo::has_what_readers_need);
        let info = info.ok_or_else(|| self.inconsistent("the file info"))?;
        let mut loaded = LoadOnOpen { info, ..LoadOnOpen::default() };
        while next < self.blocks.blocks_end {
            let block = self.blocks.load_unsized(next)?;
            next += u64::from(block.on_disk_bytes());
            match block.kind() {
                BlockType::GeneralBloomMeta => loaded.general_bloom = Some(block),
                BlockType::DeleteFamilyBloomMeta => loaded.delete_family_bloom = Some(block),
                _ => (),
            }
        }
        Ok(loaded)
    }

    fn layout(&self, info: &FileInfo) -> Result<CellLayout> {
        let encoding = match info.get(keys::DATA_BLOCK_ENCODING) {
            Some(name) => self.encoding(name)?,
            None => DataBlockEncoding::None,
        };
        let plain_index = info.get(keys::INDEX_BLOCK_ENCODING).is_none_or(|name| name.as_ref() == b"NONE");
        let includes_tags = info.get(keys::MAX_TAGS_LEN).is_some();
        let layout = CellLayout {
            encoding,
            includes_tags,
            includes_mvcc: info.get_i32(keys::KEY_VALUE_VERSION) == Some(1),
            compressed_tags: includes_tags && info.get_bool(keys::TAGS_COMPRESSED).unwrap_or(false),
        };
        if plain_index { Ok(layout) } else { Err(self.inconsistent("the index block encoding")) }
    }

    /// Returns an encoding by its name. Some encodings of HBase 1, such as PREFIX_TREE, are refused
    /// with the message of `HFileDataBlockEncoderImpl.createFromFileInfo`.
    fn encoding(&self, name: &[u8]) -> Result<DataBlockEncoding> {
        let known = DataBlockEncoding::ALL.iter().find(|encoding| encoding.name().as_bytes() == name);
        known.copied().ok_or_else(|| {
            let shown = name.escape_ascii();
            let what = format_args!("Invalid data block encoding type in file info: {shown}");
            self.blocks.corrupt(self.trailer.file_info_offset, what)
        })
    }

    fn time_range(&self, info: &FileInfo) -> Option<(i64, i64)> {
        let range = info.get(keys::TIMERANGE).and_then(|value| parse_time_range(value))?;
        (self.trailer.entry_count > 0).then_some(range)
    }

    fn bloom_type(&self, info: &FileInfo) -> Result<BloomType> {
        let Some(name) = info.get(keys::BLOOM_FILTER_TYPE) else { return Ok(BloomType::None) };
        let prefix_bytes = info.get_i32(keys::BLOOM_FILTER_PARAM).and_then(|n| u32::try_from(n).ok());
        let kind = std::str::from_utf8(name).ok().and_then(|name| BloomType::from_name(name, prefix_bytes));
        kind.ok_or_else(|| self.inconsistent("the bloom filter type"))
    }

    fn bloom(&self, block: Option<Block>, keys_are_cells: bool) -> Result<Option<BloomMeta>> {
        let Some(block) = block else { return Ok(None) };
        let meta = BloomMeta::parse(block.data(), keys_are_cells);
        meta.map(Some).ok_or_else(|| self.blocks.corrupt(block.offset(), "the bloom metadata is malformed"))
    }

    /// Chunks are located in the file's order. In hbase:meta's order, row prefixes are not sorted.
    fn can_query(&self, bloom_type: BloomType) -> bool {
        match bloom_type {
            BloomType::None => false,
            BloomType::RowPrefix(_) => self.trailer.comparator == CellComparator::Default,
            BloomType::Row | BloomType::RowCol => true,
        }
    }

    fn last_key(&self, info: &FileInfo) -> Result<Option<KeyBuf>> {
        let Some(key) = info.get(keys::LAST_KEY) else { return Ok(None) };
        let cell = CellRef::new(key, &[], &[], 0).map_err(|_| self.inconsistent("the last key"))?;
        Ok(Some(KeyBuf::of(&cell)))
    }

    fn inconsistent(&self, what: &str) -> HBaseError {
        self.blocks.corrupt(self.trailer.load_on_open_offset, format_args!("{what} does not match the file"))
    }
}
