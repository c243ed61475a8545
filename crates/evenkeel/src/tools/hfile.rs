//! `evenkeel hfile`: prints store files, with the options and output of HBase's `hbase hfile`.
//!
//! Differences: `-s` also prints the sizes of cells and blocks; `-b` prints the index down to the
//! data blocks, not only its root; `-r` takes the directory of a region instead of its name,
//! because a configuration with the root directory may be missing, and skips files that the list of
//! a store with the FILE tracker omits.

use std::collections::{BTreeSet, HashSet};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{ArgAction, Args};
use evenkeel_block_cache::{Block, BlockType, NoCache};
use evenkeel_common::{Binary, CellRef, HBaseError, KeyBuf, KeyValue, TableDescriptor, TryError, console};
use evenkeel_fs::{FileStatus, FileSystem};
use evenkeel_hfile::{BloomSummary, HFileReader, IndexEntry, OpenOptions, ScanOptions, StoreFileName, keys};
use evenkeel_master::descriptors;
use evenkeel_region::store_file_tracker::{self, TrackerKind, TrackerSettings};

use super::mob::MobChecker;
use super::stats::Distribution;
use super::storage::StorageArgs;
use super::text::{Cell, Key, parse_binary};
use super::{ErrorText, exit};

/// Options of `evenkeel hfile`: HBase's letters and names.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct HFileArgs {
    /// Print the name of each file, and its number of cells
    #[arg(short, long)]
    verbose: bool,
    /// Print keys, values and tags
    #[arg(short = 'p', long = "printkv")]
    print_kv: bool,
    /// Print keys
    #[arg(short = 'e', long = "printkey")]
    print_key: bool,
    /// Print the trailer, the file info and the bloom filters' metadata
    #[arg(short = 'm', long = "printmeta")]
    print_meta: bool,
    /// Print the block index
    #[arg(short = 'b', long = "printblocks")]
    print_blocks: bool,
    /// Print the header of each block
    #[arg(short = 'h', long = "printblockheaders")]
    print_block_headers: bool,
    /// Check that rows are in order
    #[arg(short = 'k', long = "checkrow")]
    check_row: bool,
    /// Check that all cells are of the family whose directory the file is in
    #[arg(short = 'a', long = "checkfamily")]
    check_family: bool,
    /// Print all cells whose MOB files are missing
    #[arg(short = 'i', long = "checkMobIntegrity")]
    check_mob: bool,
    /// Print this row only; \xNN stands for a byte
    #[arg(short = 'w', long = "seekToRow", value_name = "ROW")]
    row: Option<String>,
    /// Print statistics, and histograms of the sizes of cells and blocks
    #[arg(short = 's', long)]
    stats: bool,
    /// As -s, with counts by range
    #[arg(short = 'd', long)]
    details: bool,
    /// A file to read
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    file: Option<PathBuf>,
    /// The directory of a region: read all its files
    #[arg(short = 'r', long = "region", value_name = "DIR", conflicts_with = "file")]
    region: Option<PathBuf>,
    #[command(flatten)]
    storage: StorageArgs,
    /// More files to read
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Runs the tool.
///
/// # Errors
/// If a file cannot be read.
pub fn run(args: &HFileArgs) -> Result<ExitCode, ErrorText> {
    let mut files: Vec<_> = args.file.iter().cloned().collect();
    if let Some(dir) = &args.region {
        files.extend(files_of_region(&args.storage, dir)?);
    }
    files.extend(args.files.iter().cloned());
    if files.is_empty() {
        return Err("no file given; see evenkeel hfile --help".into());
    }
    let mut printer = Printer { args, out: BufWriter::new(io::stdout().lock()), cells: 0 };
    for file in &files {
        match printer.print(file) {
            Ok(()) => {}
            Err(PrintError::Output(error)) => return exit(Err(error)),
            Err(PrintError::File(failure)) => {
                drop(printer.out.flush());
                return Err(failure);
            }
        }
    }
    exit(printer.finish())
}

/// The store files of a region, named as its directory is; without files that a list omits.
fn files_of_region(storage: &StorageArgs, dir: &Path) -> Result<Vec<PathBuf>, ErrorText> {
    let (fs, region) = storage.locate(dir)?;
    let list = |dir: &Path| fs.list(dir).map_err(|e| e.to_string());
    let table = region.parent().map(|dir| descriptors::read(&*fs, dir)).transpose();
    let table = table.map_err(|error| error.message().to_owned())?.flatten();
    let mut files = Vec::new();
    for family in list(&region)?.into_iter().filter(|entry| entry.is_dir && !entry.name().starts_with('.')) {
        let names = list(&family.path)?.into_iter();
        let is_hfile = |name: &str| matches!(StoreFileName::parse(name), Some(StoreFileName::HFile { .. }));
        let listed = listed_names(&*fs, &family, table.as_ref())?;
        let is_of_store = |name: &str| listed.as_ref().is_none_or(|listed| listed.contains(name));
        let hfiles = names.filter(|file| !file.is_dir && is_hfile(file.name()) && is_of_store(file.name()));
        files.extend(hfiles.map(|file| dir.join(family.name()).join(file.name())));
    }
    Ok(files)
}

/// The names in a family's list of store files; `None` if it has none, or if the table is unknown.
fn listed_names(
    fs: &dyn FileSystem,
    family: &FileStatus,
    table: Option<&TableDescriptor>,
) -> Result<Option<BTreeSet<String>>, ErrorText> {
    let Some((table, of_family)) =
        table.and_then(|table| Some((table, table.family(family.name().as_bytes())?)))
    else {
        return Ok(None);
    };
    let kind = TrackerKind::of(&TrackerSettings::of(table, of_family));
    kind.and_then(|kind| store_file_tracker::listed_names(fs, &family.path, kind))
        .map_err(|error| error.message().to_owned())
}

/// The reason why printing stops.
enum PrintError {
    File(ErrorText),
    Output(io::Error),
}

impl From<HBaseError> for PrintError {
    fn from(error: HBaseError) -> Self {
        Self::File(error.message().to_owned())
    }
}

impl From<io::Error> for PrintError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

struct Printer<'a> {
    args: &'a HFileArgs,
    out: BufWriter<io::StdoutLock<'static>>,
    cells: u64,
}

impl Printer<'_> {
    fn finish(&mut self) -> io::Result<()> {
        if self.args.verbose || self.args.print_key || self.args.print_kv {
            writeln!(self.out, "Scanned kv count -> {}", self.cells)?;
        }
        self.out.flush()
    }

    fn print(&mut self, path: &Path) -> Result<(), PrintError> {
        let args = self.args;
        if args.verbose {
            writeln!(self.out, "Scanning -> {}", path.display())?;
        }
        let (fs, path) = args.storage.locate(path).map_err(PrintError::File)?;
        let path = &*path;
        let reader = HFileReader::open_path(&*fs, path, Arc::new(NoCache), &OpenOptions::default())?;
        let wants_stats = args.stats || args.details;
        let mut stats = Stats::default();
        if args.verbose
            || args.print_key
            || args.print_kv
            || args.check_row
            || args.check_family
            || args.check_mob
            || wants_stats
        {
            let mob = args.check_mob.then(|| MobChecker::for_file(Arc::clone(&fs), path)).flatten();
            self.scan(&reader, path, mob, &mut stats)?;
        }
        if args.print_meta {
            print_meta(&mut self.out, &reader)?;
        }
        if args.print_blocks {
            print_index(&mut self.out, &reader)?;
        }
        if args.print_block_headers {
            writeln!(self.out, "Block Headers:")?;
            each_block(&reader, |block| Ok(print_header(&mut self.out, block)?))?;
        }
        if wants_stats {
            each_block(&reader, |block| {
                stats.add_block(block);
                Ok(())
            })?;
            stats.print(&mut self.out, args.details)?;
        }
        Ok(())
    }

    fn scan(
        &mut self,
        reader: &Arc<HFileReader>,
        path: &Path,
        mut mob: Option<MobChecker>,
        stats: &mut Stats,
    ) -> Result<(), PrintError> {
        let mut scanner = reader.scanner(ScanOptions {
            cache_blocks: false,
            pread: false,
            is_compaction: true,
            ..ScanOptions::default()
        });
        let row = self.args.row.as_deref().map(parse_binary);
        let mut found = match &row {
            Some(row) => {
                scanner.seek(&KeyBuf::first_on_row(row).as_cell()).map_err(TryError::into_failure)?
            }
            None => scanner.seek_to_first().map_err(TryError::into_failure)?,
        };
        let mut previous: Option<KeyValue> = None;
        while found && let Some(cell) = scanner.cell() {
            if row.as_ref().is_some_and(|row| row != cell.row()) {
                break;
            }
            stats.add_cell(&cell);
            self.print_cell(&cell)?;
            self.check(reader, path, previous.as_ref(), &cell)?;
            if let Some(error) = mob.as_mut().map_or(Ok(None), |mob| mob.check(&cell))? {
                self.out.flush()?;
                console::print_error(format_args!("{error}\n"));
            }
            if self.args.check_row || self.args.check_family {
                previous = Some(KeyValue::copy_of(&cell));
            }
            self.cells += 1;
            found = scanner.next().map_err(TryError::into_failure)?;
        }
        stats.end_row();
        Ok(())
    }

    fn print_cell(&mut self, cell: &CellRef<'_>) -> io::Result<()> {
        if !self.args.print_key && !self.args.print_kv {
            return Ok(());
        }
        write!(self.out, "K: {}", Cell(cell))?;
        if self.args.print_kv {
            write!(self.out, " V: {}", Binary(cell.value()))?;
            for (at, (kind, value)) in cell.tag_iter().enumerate() {
                write!(self.out, " T[{at}]: [Tag type : {kind}, value : {}]", Binary(value))?;
            }
        }
        writeln!(self.out)
    }

    fn check(
        &mut self,
        reader: &HFileReader,
        path: &Path,
        previous: Option<&KeyValue>,
        cell: &CellRef<'_>,
    ) -> io::Result<()> {
        let previous = previous.map(KeyValue::as_cell);
        let mut warn = |what: &str| {
            self.out.flush()?;
            let shown = previous.map_or_else(String::new, |p| format!("\n\tprevious -> {}", Key(&p)));
            console::print_error(format_args!(
                "WARNING, {what}\n\tfilename -> {}{shown}\n\tcurrent  -> {}\n",
                path.display(),
                Key(cell)
            ));
            Ok::<_, io::Error>(())
        };
        let is_before = |p: CellRef<'_>| reader.comparator().compare_rows(p.row(), cell.row()).is_gt();
        if self.args.check_row && previous.is_some_and(is_before) {
            warn("previous row is greater than current row")?;
        }
        let family = path.parent().and_then(Path::file_name).map(|name| name.as_encoded_bytes());
        if self.args.check_family && family.is_some_and(|family| family != cell.family()) {
            warn("the file is in the directory of another family")?;
        }
        Ok(())
    }
}

fn each_block(
    reader: &HFileReader,
    mut each: impl FnMut(&Block) -> Result<(), PrintError>,
) -> Result<(), PrintError> {
    let mut offset = 0;
    while offset < reader.blocks_end() {
        let block = reader.block_at(offset)?;
        each(&block)?;
        offset += u64::from(block.on_disk_bytes());
    }
    Ok(())
}

fn print_header(out: &mut dyn Write, block: &Block) -> io::Result<()> {
    let kind = std::str::from_utf8(block.kind().magic()).unwrap_or_default();
    writeln!(
        out,
        "[blockType={kind}, fileOffset={}, onDiskSizeWithHeader={}, uncompressedSizeWithoutHeader={}, \
         prevBlockOffset={}]",
        block.offset(),
        block.on_disk_bytes(),
        block.data().len(),
        block.prev_offset()
    )
}

fn print_index(out: &mut dyn Write, reader: &HFileReader) -> Result<(), PrintError> {
    let root = reader.root_index()?;
    writeln!(out, "Block Index:\nsize={}", root.len())?;
    print_entries(out, reader, &root, &mut HashSet::new(), 1)
}

/// Prints the entries of one index block, and the levels below; `level` is 1 for the root. Each
/// block is printed once, even if the index is damaged.
fn print_entries(
    out: &mut dyn Write,
    reader: &HFileReader,
    entries: &[IndexEntry],
    printed: &mut HashSet<u64>,
    level: u32,
) -> Result<(), PrintError> {
    let indent = "    ".repeat(level as usize - 1);
    for entry in entries {
        writeln!(out, "{indent}key={}", Key(&entry.key.as_cell()))?;
        writeln!(out, "{indent}  offset={}, dataSize={}", entry.offset, entry.on_disk_bytes)?;
        if level < reader.trailer().data_index_levels && printed.insert(entry.offset) {
            let children = reader.index_entries(&reader.block_at(entry.offset)?)?;
            print_entries(out, reader, &children, printed, level + 1)?;
        }
    }
    Ok(())
}

fn print_meta(out: &mut dyn Write, reader: &HFileReader) -> Result<(), PrintError> {
    print_reader(out, reader)?;
    print_trailer(out, reader)?;
    writeln!(out, "Fileinfo:")?;
    for (key, value) in reader.file_infos().iter() {
        writeln!(out, "    {} = {}", Binary(key), info_value(reader, key, value))?;
    }
    match reader.mid_key() {
        Ok(key) => writeln!(out, "Mid-key: {}", shown_key(key.as_ref()))?,
        Err(error) => writeln!(out, "Mid-key: cannot be read: {}", error.message())?,
    }
    print_blooms(out, reader)
}

fn shown_key(key: Option<&KeyBuf>) -> String {
    key.map_or_else(|| "none".to_owned(), |key| Key(&key.as_cell()).to_string())
}

fn print_reader(out: &mut dyn Write, reader: &HFileReader) -> io::Result<()> {
    let int = |key| reader.file_infos().get_i32(key).unwrap_or(0);
    writeln!(out, "Block index size as per heapsize: {}", reader.heap_bytes())?;
    writeln!(out, "reader={},", reader.name())?;
    writeln!(out, "    compression={},", reader.compression().name().to_lowercase())?;
    writeln!(out, "    encoding={},", reader.encoding().name())?;
    writeln!(out, "    firstKey={},", shown_key(reader.first_key()))?;
    writeln!(out, "    lastKey={},", shown_key(reader.last_key()))?;
    writeln!(out, "    avgKeyLen={},", int(keys::AVG_KEY_LEN))?;
    writeln!(out, "    avgValueLen={},", int(keys::AVG_VALUE_LEN))?;
    writeln!(out, "    entries={},", reader.entry_count())?;
    writeln!(out, "    length={}", reader.len())
}

fn print_trailer(out: &mut dyn Write, reader: &HFileReader) -> io::Result<()> {
    let t = reader.trailer();
    writeln!(out, "Trailer:")?;
    writeln!(out, "    fileinfoOffset={},", t.file_info_offset)?;
    writeln!(out, "    loadOnOpenDataOffset={},", t.load_on_open_offset)?;
    writeln!(out, "    dataIndexCount={},", t.data_index_count)?;
    writeln!(out, "    metaIndexCount={},", t.meta_index_count)?;
    writeln!(out, "    totalUncomressedBytes={},", t.total_uncompressed_bytes)?;
    writeln!(out, "    entryCount={},", t.entry_count)?;
    writeln!(out, "    compressionCodec={},", t.compression.name())?;
    writeln!(out, "    uncompressedDataIndexSize={},", t.uncompressed_data_index_bytes)?;
    writeln!(out, "    numDataIndexLevels={},", t.data_index_levels)?;
    writeln!(out, "    firstDataBlockOffset={},", t.first_data_block_offset)?;
    writeln!(out, "    lastDataBlockOffset={},", t.last_data_block_offset)?;
    writeln!(out, "    comparator={:?},", t.comparator)?;
    writeln!(out, "    majorVersion={},", t.major)?;
    writeln!(out, "    minorVersion={}", t.minor)
}

/// A value of the file info, formatted by its key.
fn info_value(reader: &HFileReader, key: &[u8], value: &[u8]) -> String {
    let info = reader.file_infos();
    let long = || info.get_i64(key).map(|n| n.to_string());
    let int = || info.get_i32(key).map(|n| n.to_string());
    let flag = || info.get_bool(key).map(|b| b.to_string());
    let cell = || CellRef::new(value, &[], &[], 0).ok().map(|cell| Key(&cell).to_string());
    let typed = match key {
        keys::MAX_SEQ_ID | keys::DELETE_FAMILY_COUNT | keys::EARLIEST_PUT_TS | keys::MAX_MEMSTORE_TS => {
            long()
        }
        keys::CREATE_TIME_TS | keys::BULKLOAD_TIMESTAMP | keys::LEN_OF_BIGGEST_CELL => long(),
        keys::AVG_KEY_LEN | keys::AVG_VALUE_LEN | keys::KEY_VALUE_VERSION | keys::MAX_TAGS_LEN => int(),
        keys::BLOOM_FILTER_PARAM => int(),
        keys::MAJOR_COMPACTION | keys::TAGS_COMPRESSED | keys::EXCLUDE_FROM_MINOR_COMPACTION => flag(),
        keys::HISTORICAL => flag(),
        keys::TIMERANGE => reader.time_range().map(|(min, max)| format!("{min}....{max}")),
        keys::LAST_KEY | keys::KEY_OF_BIGGEST_CELL => cell(),
        _ => None,
    };
    typed.unwrap_or_else(|| Binary(value).to_string())
}

fn print_blooms(out: &mut dyn Write, reader: &HFileReader) -> Result<(), PrintError> {
    let (mut general, mut delete_family) = (None, None);
    let mut offset = reader.trailer().load_on_open_offset;
    while offset < reader.blocks_end() {
        let block = reader.block_at(offset)?;
        match block.kind() {
            BlockType::GeneralBloomMeta => general = BloomSummary::of(&block),
            BlockType::DeleteFamilyBloomMeta => delete_family = BloomSummary::of(&block),
            _ => {}
        }
        offset += u64::from(block.on_disk_bytes());
    }
    print_bloom(out, "Bloom filter", general)?;
    Ok(print_bloom(out, "Delete Family Bloom filter", delete_family)?)
}

fn print_bloom(out: &mut dyn Write, name: &str, bloom: Option<BloomSummary>) -> io::Result<()> {
    writeln!(out, "{name}:")?;
    let Some(bloom) = bloom else { return writeln!(out, "    Not present") };
    writeln!(out, "    BloomSize: {}", bloom.bytes)?;
    writeln!(out, "    No of Keys in bloom: {}", bloom.keys)?;
    writeln!(out, "    Max Keys for bloom: {}", bloom.keys_max)?;
    if bloom.keys_max > 0 {
        writeln!(out, "    Percentage filled: {:.0}%", bloom.keys as f64 * 100.0 / bloom.keys_max as f64)?;
    }
    writeln!(out, "    Number of chunks: {}", bloom.chunks)?;
    writeln!(out, "    Hash: {} x {:?}", bloom.hash_count, bloom.hash)
}

/// The statistics that `-s` prints.
#[derive(Default)]
struct Stats {
    keys: Distribution,
    values: Distribution,
    cells: Distribution,
    row_bytes: Distribution,
    row_columns: Distribution,
    blocks_on_disk: Distribution,
    blocks: Distribution,
    row: Row,
    biggest: Row,
}

/// The current row.
#[derive(Clone, Default)]
struct Row {
    name: Vec<u8>,
    bytes: u64,
    columns: u64,
}

impl Stats {
    fn add_cell(&mut self, cell: &CellRef<'_>) {
        if self.row.columns > 0 && self.row.name != cell.row() {
            self.end_row();
        }
        if self.row.columns == 0 {
            self.row.name = cell.row().to_vec();
        }
        let bytes = cell.key_value_len() as u64;
        self.row.bytes += bytes;
        self.row.columns += 1;
        self.keys.add(cell.key().len() as u64);
        self.values.add(cell.value().len() as u64);
        self.cells.add(bytes);
    }

    fn end_row(&mut self) {
        if self.row.columns == 0 {
            return;
        }
        self.row_bytes.add(self.row.bytes);
        self.row_columns.add(self.row.columns);
        let row = std::mem::take(&mut self.row);
        if row.bytes > self.biggest.bytes {
            self.biggest = row;
        }
    }

    fn add_block(&mut self, block: &Block) {
        if block.kind().is_data() {
            self.blocks_on_disk.add(u64::from(block.on_disk_bytes()));
            self.blocks.add(block.data().len() as u64);
        }
    }

    fn print(&self, out: &mut dyn Write, ranges: bool) -> io::Result<()> {
        writeln!(out, "Stats:")?;
        if self.cells.count() == 0 {
            return writeln!(out, "no data available for statistics");
        }
        let sizes = [
            ("Key length", &self.keys, false),
            ("Val length", &self.values, false),
            ("Row size (bytes)", &self.row_bytes, false),
            ("Row size (columns)", &self.row_columns, false),
            ("Cell size (bytes)", &self.cells, true),
            ("Data block size on disk (bytes)", &self.blocks_on_disk, true),
            ("Data block size (bytes)", &self.blocks, true),
        ];
        for (name, sizes, histogram) in sizes {
            sizes.print(out, name)?;
            if ranges {
                sizes.print_ranges(out)?;
            }
            if histogram {
                sizes.print_histogram(out)?;
            }
        }
        writeln!(out, "Key of biggest row: {}", Binary(&self.biggest.name))
    }
}
