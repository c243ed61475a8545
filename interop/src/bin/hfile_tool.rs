//! The Rust side of the comparison with the stock store file reader and writer. The test `exchange`
//! runs it.
//!
//! ```text
//! hfile_tool cells <dir>                      makes files of cells as text
//! hfile_tool write <settings> <cells> <out>   writes one store file for each setting
//! hfile_tool read <settings> <cells> <files>  reads store files, compares them with the cells
//! hfile_tool compare <a> <b>                  reports which files of two directories are equal
//! ```
//!
//! A setting is a line `name key=value ...`. A cell is a line `row family qualifier timestamp type
//! sequence-id value tags`, with byte strings in hexadecimal and `-` for an empty one. The Java
//! side uses the same formats.

#![forbid(unsafe_code)]

/// The test support of the crate `hfile`.
#[path = "../../../crates/hfile/tests/support/mod.rs"]
mod support;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use evenkeel_block_cache::LruBlockCache;
use evenkeel_common::cell::KeyValueBuilder;
use evenkeel_common::{CellComparator, CellRef, CellType, KeyBuf, KeyValue, TryError};
use evenkeel_fs::LocalFileSystem;
use evenkeel_hfile::{
    BloomHash, BloomType, ChecksumType, Compression, DataBlockEncoding, HFileContext, HFileReader,
    HFileWriter, OpenOptions, ScanOptions, StoreFileMeta,
};
use support::{Random, Shape, as_stored, random_cells, sort};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args[..] {
        ["cells", dir] => make_cells(Path::new(dir)),
        ["write", settings, cells, out] => {
            each(settings, |setting| setting.write(Path::new(cells), Path::new(out)))
        }
        ["read", settings, cells, files] => {
            each(settings, |setting| setting.read(Path::new(cells), Path::new(files)))
        }
        ["compare", a, b] => compare(Path::new(a), Path::new(b)),
        _ => Err("hfile_tool cells | write | read | compare".into()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn make_cells(dir: &Path) -> Outcome<bool> {
    std::fs::create_dir_all(dir)?;
    let mut random = Random::new(42);
    let shape = Shape {
        cells: 3000,
        tags: false,
        mvcc: true,
        deletes: true,
        value_bytes_max: 60,
        negative_timestamps: false,
    };
    save(&dir.join("empty.txt"), &[])?;
    save(&dir.join("one.txt"), &random_cells(&mut random, Shape { cells: 1, ..shape })[..1])?;
    save(&dir.join("many.txt"), &random_cells(&mut random, shape))?;
    save(&dir.join("tagged.txt"), &random_cells(&mut random, Shape { tags: true, ..shape }))?;
    save(&dir.join("meta.txt"), &meta_cells(&mut random))?;
    save(&dir.join("big.txt"), &regular_cells(&mut random, 40_000, 100))?;
    save(&dir.join("middle.txt"), &regular_cells(&mut random, 9_000, 100))?;
    save(&dir.join("huge.txt"), &regular_cells(&mut random, 6, 700_000))?;
    save(&dir.join("keys.txt"), &long_keys(&mut random))?;
    save(&dir.join("values.txt"), &regular_cells(&mut random, 2, 10_000_000))?;
    save(&dir.join("few.txt"), &random_cells(&mut random, Shape { cells: 25, tags: true, ..shape }))?;
    Ok(true)
}

/// Rows like those of hbase:meta, some with commas in the start key.
fn meta_cells(random: &mut Random) -> Vec<KeyValue> {
    let mut cells: Vec<_> = (0..300)
        .map(|_| {
            let table = random.pick(&["a", "ab", "t", "ns:t"]);
            let start = String::from_utf8(random.bytes(5, b"ab,0")).unwrap_or_default();
            let row =
                format!("{table},{start},{}.{:032x}.", 1_600_000_000_000 + random.below(5), random.below(9));
            let qualifier = random.pick(&["regioninfo", "server", "state"]);
            let mut cell =
                KeyValue::put(row.as_bytes(), b"info", qualifier.as_bytes(), random.below(9) as i64, b"v");
            cell.set_seq_id(random.below(5) as u64);
            cell
        })
        .collect();
    sort(&mut cells, CellComparator::Meta);
    cells
}

/// Rows of a typical table: counters in the row, three columns, half of each value random.
fn regular_cells(random: &mut Random, cells: usize, value_bytes: usize) -> Vec<KeyValue> {
    let mut all: Vec<_> = (0..cells)
        .map(|i| {
            let row = format!("user{:012}", (i / 3) * 7919);
            let qualifier = format!("field{}", i % 3);
            let mut value = vec![b'.'; value_bytes];
            value[..value_bytes / 2].iter_mut().for_each(|b| *b = random.next() as u8);
            let timestamp = 1_700_000_000_000 + (i / 100) as i64;
            let mut cell = KeyValue::put(row.as_bytes(), b"cf", qualifier.as_bytes(), timestamp, &value);
            cell.set_seq_id(if i % 2 == 0 { 0 } else { 1000 + i as u64 });
            cell
        })
        .collect();
    sort(&mut all, CellComparator::Default);
    all
}

/// Rows of the maximum length, and qualifiers as long, with long common parts.
fn long_keys(random: &mut Random) -> Vec<KeyValue> {
    const ROW_BYTES_MAX: usize = i16::MAX as usize;
    let mut all: Vec<_> = (0..24)
        .map(|i| {
            let mut row = vec![b'r'; ROW_BYTES_MAX - i % 5];
            row[ROW_BYTES_MAX - 100 + i / 3] = b's';
            let mut qualifier = vec![b'q'; 32_000 + i % 3];
            qualifier[31_000] = b'a' + (i % 3) as u8;
            KeyValue::put(&row, b"cf", &qualifier, random.below(9) as i64, b"value")
        })
        .collect();
    sort(&mut all, CellComparator::Default);
    all
}

fn save(path: &Path, cells: &[KeyValue]) -> Outcome<()> {
    let mut text = String::new();
    for cell in cells {
        let cell = cell.as_cell();
        writeln!(
            text,
            "{} {} {} {} {} {} {} {}",
            hex(cell.row()),
            hex(cell.family()),
            hex(cell.qualifier()),
            cell.timestamp(),
            cell.type_code(),
            cell.seq_id(),
            hex(cell.value()),
            hex(cell.tags())
        )?;
    }
    Ok(std::fs::write(path, text)?)
}

fn load(path: &Path) -> Outcome<Vec<KeyValue>> {
    std::fs::read_to_string(path)?.lines().map(parse).collect()
}

fn parse(line: &str) -> Outcome<KeyValue> {
    let part: Vec<&str> = line.split(' ').collect();
    let [row, family, qualifier, timestamp, kind, seq_id, value, tags] = part[..] else {
        return Err(line.into());
    };
    let kind = CellType::from_code(kind.parse()?).ok_or("type")?;
    let (row, family, qualifier) = (unhex(row)?, unhex(family)?, unhex(qualifier)?);
    let (value, tags, timestamp) = (unhex(value)?, unhex(tags)?, timestamp.parse()?);
    let builder = KeyValueBuilder {
        row: &row,
        family: &family,
        qualifier: &qualifier,
        timestamp,
        kind,
        value: &value,
        tags: &tags,
    };
    let mut cell = builder.build();
    cell.set_seq_id(seq_id.parse()?);
    Ok(cell)
}

fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "-".into();
    }
    bytes.iter().fold(String::new(), |mut text, b| {
        let _ = write!(text, "{b:02x}");
        text
    })
}

fn unhex(text: &str) -> Outcome<Vec<u8>> {
    if text == "-" {
        return Ok(Vec::new());
    }
    (0..text.len()).step_by(2).map(|i| Ok(u8::from_str_radix(&text[i..i + 2], 16)?)).collect()
}

fn each(settings: &str, act: impl Fn(&Setting) -> Outcome<&'static str>) -> Outcome<bool> {
    let mut good = true;
    for line in
        std::fs::read_to_string(settings)?.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#'))
    {
        let setting = Setting::parse(line)?;
        match act(&setting) {
            Ok(word) => println!("{word} {}", setting.name),
            Err(error) => {
                good = false;
                println!("BAD {}: {error}", setting.name);
            }
        }
    }
    Ok(good)
}

struct Setting {
    name: String,
    cells: String,
    context: HFileContext,
}

impl Setting {
    fn parse(line: &str) -> Outcome<Self> {
        let mut words = line.split_whitespace();
        let name = words.next().ok_or("empty line")?.to_owned();
        let values: HashMap<&str, &str> = words.filter_map(|word| word.split_once('=')).collect();
        let text = |key: &str, default: &'static str| values.get(key).copied().unwrap_or(default).to_owned();
        let number = |key: &str, default: u32| values.get(key).map_or(Ok(default), |v| v.parse::<u32>());
        let flag = |key: &str, default: bool| values.get(key).map_or(default, |v| *v == "true");
        let context = HFileContext {
            encoding: DataBlockEncoding::from_name(&text("encoding", "NONE")).ok_or("encoding")?,
            compression: Compression::from_name(&text("compression", "NONE")).ok_or("compression")?,
            zstd_framed: text("zstd", "hadoop") == "framed",
            block_bytes: number("block", 65_536)? as usize,
            checksum: ChecksumType::from_name(&text("checksum", "CRC32C")).ok_or("checksum")?,
            bytes_per_checksum: number("bpc", 16_384)?,
            includes_mvcc: flag("mvcc", true),
            includes_tags: flag("tags", false),
            compress_tags: flag("compresstags", false),
            comparator: if text("order", "default") == "meta" {
                CellComparator::Meta
            } else {
                CellComparator::Default
            },
            bloom: BloomType::from_name(&text("bloom", "ROW"), Some(number("prefix", 3)?)).ok_or("bloom")?,
            bloom_block_bytes: number("bloomblock", 131_072)? as usize,
            bloom_hash: BloomHash::from_name(&text("hash", "murmur")).ok_or("hash")?,
            index_block_bytes_max: number("index", 131_072)? as usize,
            index_block_entries_min: number("entries", 16)? as usize,
            create_time_ms: 1_700_000_000_000,
            ..HFileContext::default()
        };
        Ok(Self { name, cells: text("cells", "cells.txt"), context })
    }

    fn write(&self, cells: &Path, out: &Path) -> Outcome<&'static str> {
        let path = out.join(&self.name);
        let _ = std::fs::remove_file(&path);
        let mut writer = HFileWriter::create(&LocalFileSystem::new(), &path, self.context.clone())?;
        for cell in load(&cells.join(&self.cells))? {
            writer.append(&cell.as_cell())?;
        }
        writer.finish(StoreFileMeta { max_seq_id: Some(77), ..StoreFileMeta::default() })?;
        Ok("wrote")
    }

    fn read(&self, cells: &Path, files: &Path) -> Outcome<&'static str> {
        let path = files.join(&self.name);
        if !path.exists() {
            return Ok("absent");
        }
        let cells: Vec<_> =
            load(&cells.join(&self.cells))?.iter().map(|cell| as_stored(cell, &self.context)).collect();
        let options = OpenOptions::default();
        let cache = Arc::new(LruBlockCache::new(64 << 20));
        let reader = HFileReader::open_path(&LocalFileSystem::new(), &path, cache, &options)?;
        expect(cells.len() as u64, reader.entry_count(), "entries")?;
        expect(self.context.encoding, reader.encoding(), "encoding")?;
        expect(cells.last().map(|cell| KeyBuf::of(&cell.as_cell())).as_ref(), reader.last_key(), "last key")?;
        scan(&reader, &cells)?;
        seek(&reader, &cells, self.context.comparator)?;
        blooms(&reader, &cells)?;
        if reader.has_bloom() {
            println!("bloom {}{}", self.name, passing(&reader)?);
        }
        Ok("good")
    }
}

fn scan(reader: &Arc<HFileReader>, cells: &[KeyValue]) -> Outcome<()> {
    let mut scanner = reader.scanner(ScanOptions::default());
    let mut more = scanner.seek_to_first().map_err(TryError::into_failure)?;
    for (i, cell) in cells.iter().enumerate() {
        expect(true, more, "more cells")?;
        let got = scanner.cell().map(|cell| KeyValue::copy_of(&cell));
        expect(Some(cell), got.as_ref(), &format!("cell {i}"))?;
        more = scanner.next().map_err(TryError::into_failure)?;
    }
    expect(false, more, "more cells")
}

fn seek(reader: &Arc<HFileReader>, cells: &[KeyValue], order: CellComparator) -> Outcome<()> {
    let mut scanner = reader.scanner(ScanOptions::default());
    let is = |got: Option<CellRef<'_>>, i: usize, what: &str| {
        expect(Some(&cells[i]), got.map(|cell| KeyValue::copy_of(&cell)).as_ref(), &format!("{what} {i}"))
    };
    for i in (0..cells.len()).step_by((cells.len() / 2000).max(1)) {
        let (cell, key) = (cells[i].as_cell(), KeyBuf::of(&cells[i].as_cell()));
        // Files without sequence ids have equal cells. Any of them is right then, and the first is
        // found.
        let first = cells.partition_point(|c| order.compare(&c.as_cell(), &cell).is_lt());
        expect(true, scanner.seek(&cell).map_err(TryError::into_failure)?, "seek")?;
        is(scanner.cell(), first, "sought cell")?;
        expect(first > 0, scanner.seek_before(&cell).map_err(TryError::into_failure)?, "seek before")?;
        if first > 0 {
            is(scanner.cell(), first - 1, "cell before")?;
        }
        let first = cells.partition_point(|c| order.compare(&c.as_cell(), &key.as_cell()).is_lt());
        expect(true, scanner.seek(&key.as_cell()).map_err(TryError::into_failure)?, "seek to key")?;
        is(scanner.cell(), first, "cell of key")?;
    }
    Ok(())
}

fn blooms(reader: &Arc<HFileReader>, cells: &[KeyValue]) -> Outcome<()> {
    for cell in cells.iter().map(KeyValue::as_cell) {
        expect(true, reader.might_contain_row(cell.row())?, "row in the bloom filter")?;
        expect(
            true,
            reader.might_contain_row_col(cell.row(), cell.qualifier())?,
            "column in the bloom filter",
        )?;
        if matches!(cell.cell_type(), Some(CellType::DeleteFamily | CellType::DeleteFamilyVersion)) {
            expect(true, reader.might_contain_delete_family(cell.row())?, "row in the delete family filter")?;
        }
    }
    if reader.has_bloom() && !matches!(reader.bloom_type(), BloomType::RowPrefix(_)) {
        let found = passing(reader)?.split_whitespace().count();
        if found > 60 {
            return Err(format!("{found} of {ABSENT_KEYS} absent rows pass the bloom filter").into());
        }
    }
    Ok(())
}

/// The number of absent keys for comparing bloom filters.
const ABSENT_KEYS: usize = 1000;

/// The absent keys that pass the bloom filter.
fn passing(reader: &HFileReader) -> Outcome<String> {
    let mut text = String::new();
    for i in 0..ABSENT_KEYS {
        if reader.might_contain_row_col(format!("{i}absent").as_bytes(), b"q")? {
            write!(text, " {i}")?;
        }
    }
    Ok(text)
}

fn expect<T: PartialEq + std::fmt::Debug>(wanted: T, got: T, what: &str) -> Outcome<()> {
    if wanted == got { Ok(()) } else { Err(format!("{what}: wanted {wanted:?}, got {got:?}").into()) }
}

fn compare(a: &Path, b: &Path) -> Outcome<bool> {
    let mut names: Vec<_> = std::fs::read_dir(a)?.filter_map(|e| Some(e.ok()?.file_name())).collect();
    names.sort();
    let mut all = true;
    for name in names.iter().filter(|name| b.join(name).exists()) {
        let (left, right) = (std::fs::read(a.join(name))?, std::fs::read(b.join(name))?);
        if left == right {
            println!("equal {name:?}");
            continue;
        }
        all = false;
        let at = left.iter().zip(&right).take_while(|(l, r)| l == r).count();
        println!("DIFFERENT {name:?} from byte {at} on ({} and {} bytes)", left.len(), right.len());
    }
    Ok(all)
}
