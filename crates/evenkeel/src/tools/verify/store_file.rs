//! Checks one store file, from its first byte to its last.
//!
//! * Every block: header, checksum (present if other blocks have one), decompression, the format of
//!   its cells or index entries.
//! * The index: it names exactly the data blocks, in the order of the file; its keys are in order,
//!   none after the first cell of its block, none before the last cell of the previous block.
//! * Every cell: in order, of the family, in the region, within the file's time range and sequence
//!   ids.
//! * The bloom filters: they contain each row, or row and column, and each row with a delete of the
//!   family.
//! * The MOB files that a live file names: they exist.
//! * The checksum file (`.NAME.crc`), if Hadoop's tools left one.
//! * The trailer and the file info: count of cells, first and last data block, last key, count of
//!   family deletes.
//!
//! After a damaged block the check continues at the next offset in the index.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use evenkeel_block_cache::{Block, BlockCache};
use evenkeel_common::length;
use evenkeel_common::{Binary, CellRef, CellType, HBaseError, KeyBuf, RegionInfo};
use evenkeel_fs::{FileSystem, RandomAccessFile, StorageChecksum};
use evenkeel_hfile::{BloomType, HFileReader, IndexEntry, OpenOptions};

use super::super::text::Key;
use super::{Report, mob};

/// The properties that a file's path implies for its cells.
pub struct Expected<'a> {
    /// The region of its directory; `None` if its bounds are unknown.
    pub region: Option<&'a RegionInfo>,
    /// The name of the directory.
    pub family: &'a str,
}

/// Checks a file.
pub fn check(
    fs: &dyn FileSystem,
    path: &Path,
    cache: Arc<dyn BlockCache>,
    expected: &Expected<'_>,
    report: &mut Report<'_>,
) {
    let opened = fs.open(path).map_err(HBaseError::from).and_then(|file| {
        let name = path.display().to_string();
        let reader = HFileReader::open(Arc::clone(&file), &name, cache, &OpenOptions::default())?;
        Ok((file, reader))
    });
    match opened {
        Ok((file, reader)) => {
            let mut walk = Walk::new(&*file, &reader, expected);
            walk.read_index();
            walk.read_blocks();
            walk.compare_with_trailer();
            walk.faults.report(path, report);
            reader.evict();
            check_checksum_file(&*file, path, report);
            if expected.region.is_some() {
                mob::check_references(fs, path, expected.family, &reader, report);
            }
        }
        Err(error) => report.error(path, &error),
    }
}

/// Bytes that [`check_checksum_file`] reads per step; a multiple of the usual bytes per checksum.
const SIDE_STEP_BYTES: usize = 1 << 20;

/// Compares a file with the checksum file of Hadoop's tools, if there is one; those tools refuse a
/// file that does not match.
fn check_checksum_file(file: &dyn RandomAccessFile, path: &Path, report: &mut Report<'_>) {
    let mut bytes = vec![0; SIDE_STEP_BYTES];
    for offset in (0..file.len()).step_by(SIDE_STEP_BYTES) {
        bytes.truncate(length::index(file.len() - offset));
        match file.read_verified_at(offset, &mut bytes) {
            Ok(StorageChecksum::Matches) => {}
            Ok(StorageChecksum::Absent) => return,
            Ok(StorageChecksum::Differs) => {
                let what = "the checksums in the .crc file do not match the bytes from here on";
                return report.fault_at(path, offset, what);
            }
            Err(error) => return report.fault_at(path, offset, error),
        }
    }
}

/// The faults of one file. Faults of one kind are reported once, with their count.
#[derive(Default)]
struct Faults {
    /// Errors of unreadable blocks, by offset; they name file and offset.
    blocks: BTreeMap<u64, String>,
    /// By kind: offset and text of the first fault, and the count.
    kinds: BTreeMap<&'static str, (u64, String, u64)>,
}

impl Faults {
    fn add(&mut self, kind: &'static str, offset: u64, what: impl FnOnce() -> String) {
        self.kinds.entry(kind).or_insert_with(|| (offset, what(), 0)).2 += 1;
    }

    fn report(&self, path: &Path, report: &mut Report<'_>) {
        self.blocks.values().for_each(|text| report.fault(text));
        for (kind, (offset, what, count)) in &self.kinds {
            let more = if *count > 1 { format!(" (the first of {count})") } else { String::new() };
            report.fault_at(path, *offset, format_args!("{kind}: {what}{more}"));
        }
    }
}

/// The offset of the checksum type in a block's header, and the type for no checksums.
const CHECKSUM_TYPE_AT: u64 = 24;
const NO_CHECKSUM: u8 = 0;

struct Walk<'a> {
    file: &'a dyn RandomAccessFile,
    reader: &'a Arc<HFileReader>,
    expected: &'a Expected<'a>,
    faults: Faults,
    /// The entries of the index, in its order.
    index: Vec<IndexEntry>,
    /// The number of entries whose blocks were read.
    index_at: usize,
    /// The offsets of blocks in the index.
    known: BTreeSet<u64>,
    /// The last cell's key, empty before the first, and its sequence id.
    previous: KeyBuf,
    previous_seq_id: u64,
    cells: u64,
    family_deletes: u64,
    /// The first block that has checksums, and the first that has none.
    with_checksums: Option<u64>,
    without_checksums: Option<u64>,
    data_blocks: Option<(u64, u64)>,
    /// True if all data blocks so far were readable; otherwise counts are not checked.
    is_whole: bool,
    asks_bloom: bool,
}

impl<'a> Walk<'a> {
    fn new(file: &'a dyn RandomAccessFile, reader: &'a Arc<HFileReader>, expected: &'a Expected<'a>) -> Self {
        Self {
            file,
            reader,
            expected,
            faults: Faults::default(),
            index: Vec::new(),
            index_at: 0,
            known: BTreeSet::from([reader.trailer().load_on_open_offset]),
            previous: KeyBuf::default(),
            previous_seq_id: 0,
            cells: 0,
            family_deletes: 0,
            with_checksums: None,
            without_checksums: None,
            data_blocks: None,
            is_whole: true,
            asks_bloom: true,
        }
    }

    fn read_index(&mut self) {
        let offset = self.reader.trailer().load_on_open_offset;
        match self.reader.root_index() {
            Ok(entries) => self.read_entries(entries, offset, 1),
            Err(error) => drop(self.faults.blocks.insert(offset, error.message().to_owned())),
        }
        self.known.extend(self.index.iter().map(|entry| entry.offset));
    }

    /// Reads the entries of one index block, and the levels below. The trailer's check bounds the
    /// levels.
    fn read_entries(&mut self, entries: Vec<IndexEntry>, parent: u64, level: u32) {
        if level == self.reader.trailer().data_index_levels {
            entries.into_iter().for_each(|entry| self.take_entry(entry, parent));
            return;
        }
        for entry in entries {
            if entry.offset >= parent {
                self.faults.add("index", parent, || format!("an entry points forward, to {}", entry.offset));
                continue;
            }
            // No block is read twice, regardless of the file's content.
            if !self.known.insert(entry.offset) {
                self.faults.add("index", parent, || format!("the block at {} is named twice", entry.offset));
                continue;
            }
            let block = self.reader.block_at(entry.offset);
            match block.and_then(|block| self.reader.index_entries(&block)) {
                Ok(children) => self.read_entries(children, entry.offset, level + 1),
                Err(error) => drop(self.faults.blocks.insert(entry.offset, error.message().to_owned())),
            }
        }
    }

    fn take_entry(&mut self, entry: IndexEntry, parent: u64) {
        if let Some(last) = self.index.last() {
            let order = self.reader.comparator();
            if entry.offset <= last.offset
                || !order.compare_keys(&last.key.as_cell(), &entry.key.as_cell()).is_lt()
            {
                let shown = Key(&entry.key.as_cell()).to_string();
                self.faults.add("index order", parent, || {
                    format!("the entry {shown} for the block at {} is not after the one before", entry.offset)
                });
            }
        }
        self.index.push(entry);
    }

    fn read_blocks(&mut self) {
        let mut offset = 0;
        while offset < self.reader.blocks_end() {
            offset = match self.reader.block_at(offset) {
                Ok(block) => {
                    self.take_block(&block);
                    offset + u64::from(block.on_disk_bytes())
                }
                Err(error) => {
                    self.faults.blocks.insert(offset, error.message().to_owned());
                    self.is_whole = false;
                    self.after_damage(offset)
                }
            };
        }
        self.pass_entries_before(u64::MAX);
    }

    /// The offset at which to continue after an unreadable block.
    fn after_damage(&self, offset: u64) -> u64 {
        let entry = self.index.binary_search_by_key(&offset, |entry| entry.offset);
        let end =
            entry.ok().and_then(|i| self.index.get(i)).map(|entry| offset + u64::from(entry.on_disk_bytes));
        let known = self.known.range(offset + 1..).next().copied().unwrap_or(u64::MAX);
        end.filter(|end| *end > offset).map_or(known, |end| end.min(known))
    }

    fn take_block(&mut self, block: &Block) {
        let mut kind = [NO_CHECKSUM];
        let read = self.file.read_exact_at(block.offset() + CHECKSUM_TYPE_AT, &mut kind);
        let first = match kind {
            [NO_CHECKSUM] => &mut self.without_checksums,
            _ => &mut self.with_checksums,
        };
        if read.is_ok() {
            first.get_or_insert(block.offset());
        }
        if !block.kind().is_data() {
            return;
        }
        let at = block.offset();
        self.pass_entries_before(at);
        let entry = self.index.get(self.index_at).filter(|entry| entry.offset == at).cloned();
        match &entry {
            Some(entry) => {
                self.index_at += 1;
                self.check_entry(entry, block);
            }
            None => self.faults.add("index", at, || "a data block is not in the index".into()),
        }
        self.data_blocks = Some((self.data_blocks.map_or(at, |(first, _)| first), at));
        self.take_cells(block, entry.as_ref());
    }

    /// Reports index entries without a data block.
    fn pass_entries_before(&mut self, offset: u64) {
        while let Some(entry) = self.index.get(self.index_at).filter(|entry| entry.offset < offset) {
            if !self.faults.blocks.contains_key(&entry.offset) {
                let at = entry.offset;
                self.faults.add("index", at, || "the index names a data block that is missing".into());
            }
            self.index_at += 1;
        }
    }

    fn check_entry(&mut self, entry: &IndexEntry, block: &Block) {
        if entry.on_disk_bytes != block.on_disk_bytes() {
            self.faults.add("index", entry.offset, || {
                format!(
                    "the block has {} bytes, the index says {}",
                    block.on_disk_bytes(),
                    entry.on_disk_bytes
                )
            });
        }
        let order = self.reader.comparator();
        let is_late = !self.previous.is_empty()
            && order.compare_keys(&self.previous.as_cell(), &entry.key.as_cell()).is_gt();
        if is_late {
            let shown = Key(&self.previous.as_cell()).to_string();
            self.faults.add("index order", entry.offset, || {
                format!("the index's key is before {shown}, of the block before")
            });
        }
    }

    fn take_cells(&mut self, block: &Block, entry: Option<&IndexEntry>) {
        let reader = Arc::clone(self.reader);
        let order = reader.comparator();
        let mut is_first = true;
        let read = reader.for_each_cell(block, |cell| {
            let key = entry.filter(|_| std::mem::take(&mut is_first)).map(|entry| &entry.key);
            if key.is_some_and(|key| order.compare_keys(&key.as_cell(), cell).is_gt()) {
                self.faults.add("index order", block.offset(), || {
                    format!("the index's key is after the block's first cell, {}", Key(cell))
                });
            }
            self.take_cell(block.offset(), cell);
        });
        if let Err(error) = read {
            self.faults.blocks.insert(block.offset(), error.message().to_owned());
            self.is_whole = false;
        }
    }

    fn take_cell(&mut self, at: u64, cell: &CellRef<'_>) {
        self.cells += 1;
        let order = self.reader.comparator();
        let previous =
            (!self.previous.is_empty()).then(|| self.previous.as_cell().with_seq_id(self.previous_seq_id));
        if let Some(p) = previous.filter(|p| order.compare(p, cell).is_gt()) {
            let (before, after) = (Key(&p).to_string(), Key(cell).to_string());
            self.faults.add("cell order", at, || format!("{after} comes after {before}"));
        }
        let is_new_row = previous.is_none_or(|p| p.row() != cell.row());
        let is_new_column = is_new_row || previous.is_some_and(|p| p.qualifier() != cell.qualifier());
        self.check_place(at, cell, is_new_row);
        self.check_info(at, cell);
        self.check_blooms(at, cell, is_new_row, is_new_column);
        self.previous.set_to(cell);
        self.previous_seq_id = cell.seq_id();
    }

    fn check_place(&mut self, at: u64, cell: &CellRef<'_>, is_new_row: bool) {
        if cell.family() != self.expected.family.as_bytes() {
            self.faults.add("family", at, || format!("{} is of another family", Key(cell)));
        }
        let outside = |region: &&RegionInfo| !region.contains_row(cell.row());
        if let Some(region) = self.expected.region.filter(|_| is_new_row).filter(outside) {
            self.faults.add("region", at, || {
                let (start, end) = (Binary(region.start_key()), Binary(region.end_key()));
                format!("row {} is not in the region [{start}, {end})", Binary(cell.row()))
            });
        }
    }

    fn check_info(&mut self, at: u64, cell: &CellRef<'_>) {
        let (timestamp, seq_id) = (cell.timestamp(), cell.seq_id());
        let in_range = |(min, max)| (min..=max).contains(&timestamp);
        if !self.reader.time_range().is_none_or(in_range) {
            self.faults.add("time range", at, || format!("{} is not in it", Key(cell)));
        }
        if seq_id > self.reader.max_cell_seq_id() {
            self.faults.add("sequence id", at, || {
                format!("{} has {seq_id}, more than the file's greatest", Key(cell))
            });
        }
    }

    fn check_blooms(&mut self, at: u64, cell: &CellRef<'_>, is_new_row: bool, is_new_column: bool) {
        if !self.asks_bloom {
            return;
        }
        let is_family_delete =
            matches!(cell.cell_type(), Some(CellType::DeleteFamily | CellType::DeleteFamilyVersion));
        self.family_deletes += u64::from(is_family_delete);
        let general = match self.reader.bloom_type() {
            BloomType::RowCol if is_new_column => {
                self.reader.might_contain_row_col(cell.row(), cell.qualifier())
            }
            BloomType::Row | BloomType::RowPrefix(_) if is_new_row => {
                self.reader.might_contain_row(cell.row())
            }
            _ => Ok(true),
        };
        let delete = match is_family_delete {
            true => self.reader.might_contain_delete_family(cell.row()),
            false => Ok(true),
        };
        match (general, delete) {
            (Ok(in_general), Ok(in_delete)) => {
                if !in_general {
                    self.faults.add("bloom filter", at, || format!("{} is not in it", Key(cell)));
                }
                if !in_delete {
                    self.faults
                        .add("delete family bloom filter", at, || format!("{} is not in it", Key(cell)));
                }
            }
            // An unreadable chunk; the check of blocks reports its offset.
            (Err(error), _) | (_, Err(error)) => {
                self.asks_bloom = false;
                self.faults.add("bloom filter", at, || error.message().to_owned());
            }
        }
    }

    fn compare_with_trailer(&mut self) {
        // Writers use checksums for all blocks of a file or for none, so one header without
        // checksums is a fault if other blocks have them.
        if let (Some(_), Some(at)) = (self.with_checksums, self.without_checksums) {
            self.faults.add("checksum", at, || "this block has none, though others have".into());
        }
        if !self.is_whole {
            return;
        }
        let trailer = self.reader.trailer().clone();
        let at = self.reader.blocks_end();
        let (cells, blocks) = (self.cells, self.data_blocks);
        if cells != trailer.entry_count {
            self.faults.add("trailer", at, || {
                format!("it counts {} cells, the file has {cells}", trailer.entry_count)
            });
        }
        let (first, last) = blocks.map_or((-1, -1), |(first, last)| (first as i64, last as i64));
        let named = (trailer.first_data_block_offset, trailer.last_data_block_offset);
        // Files without cells have offset 0 or -1.
        if blocks.is_some() && (first, last) != named {
            self.faults.add("trailer", at, || {
                format!("it has the first and last data block at {named:?}, they are at {:?}", (first, last))
            });
        }
        self.compare_with_info(trailer.file_info_offset);
    }

    fn compare_with_info(&mut self, at: u64) {
        let last = (!self.previous.is_empty()).then(|| self.previous.bytes());
        if last != self.reader.last_key().map(KeyBuf::bytes) {
            self.faults.add("file info", at, || "the last key is not the last cell's".into());
        }
        let (told, found) = (self.reader.delete_family_count(), self.family_deletes);
        if let Some(told) = told.filter(|told| self.asks_bloom && *told != found) {
            self.faults
                .add("file info", at, || format!("it counts {told} family deletes, the file has {found}"));
        }
    }
}
