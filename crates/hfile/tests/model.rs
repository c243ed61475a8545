//! Files of random cells in every setting, compared with a sorted vector.

mod support;

use std::sync::Arc;

use evenkeel_common::cell::{KeyValueBuilder, whole_tags};
use evenkeel_common::{CellComparator, CellRef, CellType, KeyBuf, KeyValue};
use evenkeel_hfile::{
    BloomType, ChecksumType, Compression, DataBlockEncoding, HFileContext, HFileReader, HFileScanner,
    ScanOptions,
};
use support::{Random, Shape, as_stored, lru, no_cache, open, random_cells, write};

const COMPRESSIONS: &[Compression] = &[
    Compression::None,
    Compression::None,
    Compression::None,
    Compression::Gz,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
    Compression::Bzip2,
];

fn random_context(random: &mut Random, encoding: DataBlockEncoding) -> HFileContext {
    let blooms = [BloomType::None, BloomType::Row, BloomType::RowCol, BloomType::RowPrefix(3)];
    HFileContext {
        encoding,
        compression: random.pick(COMPRESSIONS),
        zstd_framed: random.one_in(2),
        block_bytes: random.pick(&[1, 100, 700, 4000, 65536]),
        checksum: random.pick(ChecksumType::ALL),
        bytes_per_checksum: random.pick(&[33, 64, 512, 16384]),
        includes_mvcc: !random.one_in(3),
        includes_tags: random.one_in(2),
        compress_tags: random.one_in(2),
        bloom: random.pick(&blooms),
        bloom_block_bytes: random.pick(&[64, 256, 4096]),
        index_block_bytes_max: random.pick(&[40, 200, 2000, 131_072]),
        index_block_entries_min: random.pick(&[2, 3, 16]),
        ..HFileContext::default()
    }
}

/// The expected results.
struct Model(Vec<KeyValue>);

const ORDER: CellComparator = CellComparator::Default;

impl Model {
    fn first_at_or_after(&self, key: &CellRef<'_>) -> usize {
        self.0.partition_point(|cell| ORDER.compare(&cell.as_cell(), key).is_lt())
    }
}

fn same(scanner: &HFileScanner, expected: Option<&KeyValue>) {
    let got = scanner.cell().map(|cell| KeyValue::copy_of(&cell));
    assert_eq!(got.as_ref(), expected);
}

fn scan_all(reader: &Arc<HFileReader>, model: &Model) {
    let mut scanner = reader.scanner(ScanOptions::default());
    let mut more = scanner.seek_to_first().unwrap();
    for expected in &model.0 {
        assert!(more);
        same(&scanner, Some(expected));
        more = scanner.next().unwrap();
    }
    assert!(!more);
    same(&scanner, None);
    assert!(!scanner.next().unwrap());
}

/// A key at, just before, just after, or far from a cell of the model.
fn random_key(random: &mut Random, model: &Model, shape: Shape) -> (KeyBuf, u64) {
    let near = random.pick(&model.0);
    let cell = near.as_cell();
    match random.below(6) {
        0 => (KeyBuf::of(&cell), u64::MAX),
        1 => (KeyBuf::of(&cell), cell.seq_id()),
        2 => (KeyBuf::of(&cell), 0),
        3 => (KeyBuf::last_on_column(cell.row(), cell.family(), cell.qualifier()), u64::MAX),
        4 => (KeyBuf::first_on_row(cell.row()), u64::MAX),
        _ => (KeyBuf::of(&random_cells(random, Shape { cells: 1, ..shape })[0].as_cell()), u64::MAX),
    }
}

fn seeks(random: &mut Random, reader: &Arc<HFileReader>, model: &Model, shape: Shape) {
    let mut scanner =
        reader.scanner(ScanOptions { cache_blocks: random.one_in(2), ..ScanOptions::default() });
    for _ in 0..60 {
        let (key, seq_id) = random_key(random, model, shape);
        let key = key.as_cell().with_seq_id(seq_id);
        let at = model.first_at_or_after(&key);
        match random.below(3) {
            0 => {
                assert_eq!(scanner.seek(&key).unwrap(), at < model.0.len(), "{key:?}");
                same(&scanner, model.0.get(at));
                walk(random, &mut scanner, model, at);
            }
            1 => {
                assert_eq!(scanner.seek_before(&key).unwrap(), at > 0, "{key:?}");
                let before = at.checked_sub(1);
                same(&scanner, before.map(|i| &model.0[i]));
                if let Some(before) = before {
                    walk(random, &mut scanner, model, before);
                }
            }
            _ => reseeks(random, &mut scanner, model, at),
        }
    }
}

/// Sometimes releases the scanner's block. The scanner loads it again here, or when it moves.
fn release_sometimes(random: &mut Random, scanner: &mut HFileScanner) {
    let Some(cell) = scanner.cell().map(|cell| KeyValue::copy_of(&cell)) else { return };
    if !random.one_in(3) {
        return;
    }
    scanner.release_block();
    let released = scanner.cell().expect("it stays at its cell");
    assert_eq!((released.key(), released.seq_id()), (cell.as_cell().key(), cell.seq_id()));
    if random.one_in(2) {
        scanner.enter_block().unwrap();
        same(scanner, Some(&cell));
    }
}

fn walk(random: &mut Random, scanner: &mut HFileScanner, model: &Model, from: usize) {
    for i in from + 1..(from + random.below(12)).min(model.0.len() + 1) {
        release_sometimes(random, scanner);
        assert_eq!(scanner.next().unwrap(), i < model.0.len());
        same(scanner, model.0.get(i));
    }
}

fn reseeks(random: &mut Random, scanner: &mut HFileScanner, model: &Model, from: usize) {
    if from == model.0.len() {
        return;
    }
    scanner.seek(&model.0[from].as_cell()).unwrap();
    let mut at = from;
    while at < model.0.len() {
        if let Some(next) = scanner.next_indexed_key() {
            let first_after = model.first_at_or_after(&next);
            assert!(first_after > at, "the next block's key is after the place");
        }
        at += random.pick(&[0, 1, 2, 7, 40, 200]) + usize::from(random.one_in(2));
        let Some(cell) = model.0.get(at) else { break };
        let first = cell.as_cell().with_seq_id(u64::MAX);
        let forward = model.first_at_or_after(&first) >= model.first_at_or_after(&scanner.cell().unwrap());
        let key = if forward && random.one_in(2) { first } else { cell.as_cell() };
        at = model.first_at_or_after(&key);
        release_sometimes(random, scanner);
        assert!(scanner.reseek(&key).unwrap());
        same(scanner, model.0.get(at));
    }
    let end = KeyBuf::last_on_row(&[0xff; 40]);
    assert!(!scanner.reseek(&end.as_cell()).unwrap());
    same(scanner, None);
}

fn blooms(reader: &Arc<HFileReader>, model: &Model) {
    for cell in &model.0 {
        let cell = cell.as_cell();
        assert!(reader.might_contain_row(cell.row()).unwrap(), "{cell:?}");
        assert!(reader.might_contain_row_col(cell.row(), cell.qualifier()).unwrap(), "{cell:?}");
        assert!(reader.might_contain_row_prefix(cell.row()).unwrap(), "{cell:?}");
        if matches!(cell.cell_type(), Some(CellType::DeleteFamily | CellType::DeleteFamilyVersion)) {
            assert!(reader.might_contain_delete_family(cell.row()).unwrap(), "{cell:?}");
        }
    }
}

fn metadata(reader: &Arc<HFileReader>, model: &Model, written: &support::Written) {
    assert_eq!(reader.len(), written.file.bytes);
    assert_eq!(reader.entry_count(), model.0.len() as u64);
    assert_eq!(reader.max_seq_id(), Some(77));
    assert_eq!(reader.last_key(), model.0.last().map(|cell| KeyBuf::of(&cell.as_cell())).as_ref());
    assert_eq!(reader.first_key(), model.0.first().map(|cell| KeyBuf::of(&cell.as_cell())).as_ref());
    assert_eq!(reader.time_range(), written.file.time_range);
    let middle = reader.mid_key().unwrap().expect("a file with cells has a middle");
    let at = model.first_at_or_after(&middle.as_cell());
    assert!(at < model.0.len());
}

fn one_case(seed: u64, encoding: DataBlockEncoding) {
    let mut random = Random::new(seed);
    let context = random_context(&mut random, encoding);
    // BZIP2 takes a millisecond per block, however small.
    let slow = context.compression == Compression::Bzip2;
    let shape = Shape {
        cells: if slow { 20 } else { random.pick(&[1, 2, 10, 300, 2000]) },
        tags: context.includes_tags,
        mvcc: true,
        deletes: random.one_in(2),
        value_bytes_max: random.pick(&[0, 10, 200]),
        negative_timestamps: true,
    };
    let mut cells = random_cells(&mut random, shape);
    if !context.includes_mvcc {
        cells.dedup_by(|a, b| ORDER.compare_keys(&a.as_cell(), &b.as_cell()).is_eq());
    }
    let written = write(&cells, &context);
    let model = Model(cells.iter().map(|cell| as_stored(cell, &context)).collect());
    let cache = if random.one_in(2) { lru() } else { no_cache() };
    let reader = open(&written, cache);
    metadata(&reader, &model, &written);
    scan_all(&reader, &model);
    seeks(&mut random, &reader, &model, shape);
    blooms(&reader, &model);
}

fn cases(encoding: DataBlockEncoding) {
    for seed in 0..150 {
        let case = std::panic::AssertUnwindSafe(|| one_case(seed, encoding));
        if let Err(panic) = std::panic::catch_unwind(case) {
            eprintln!("seed {seed}, {encoding:?}");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn none() {
    cases(DataBlockEncoding::None);
}

#[test]
fn row_index_v1() {
    cases(DataBlockEncoding::RowIndexV1);
}

#[test]
fn prefix() {
    cases(DataBlockEncoding::Prefix);
}

#[test]
fn diff() {
    cases(DataBlockEncoding::Diff);
}

#[test]
fn fast_diff() {
    cases(DataBlockEncoding::FastDiff);
}

#[test]
fn an_empty_file() {
    let written = write(&[], &HFileContext::default());
    let reader = open(&written, no_cache());
    let mut scanner = reader.scanner(ScanOptions::default());
    let key = KeyBuf::first_on_row(b"r");
    assert!(!scanner.seek_to_first().unwrap());
    assert!(!scanner.seek(&key.as_cell()).unwrap());
    assert!(!scanner.reseek(&key.as_cell()).unwrap());
    assert!(!scanner.seek_before(&key.as_cell()).unwrap());
    assert!(!scanner.next().unwrap());
    assert!(scanner.cell().is_none() && scanner.next_indexed_key().is_none());
    assert_eq!((reader.first_key(), reader.last_key(), reader.mid_key().unwrap()), (None, None, None));
    assert_eq!((reader.entry_count(), reader.time_range()), (0, None));
    assert!(!reader.might_contain_row(b"r").unwrap());
    assert!(!reader.might_contain_delete_family(b"r").unwrap());
}

#[test]
fn cells_out_of_order_are_refused() {
    let fs = evenkeel_fs::MemoryFileSystem::new();
    let path = std::path::Path::new("/f");
    let mut writer = evenkeel_hfile::HFileWriter::create(&fs, path, HFileContext::default()).unwrap();
    writer.append(&KeyValue::put(b"b", b"f", b"q", 1, b"").as_cell()).unwrap();
    writer.append(&KeyValue::put(b"b", b"f", b"q", 1, b"").as_cell()).unwrap();
    let error = writer.append(&KeyValue::put(b"a", b"f", b"q", 1, b"").as_cell()).unwrap_err();
    assert!(error.message().contains("comes before"), "{error}");
}

/// Tags that no client library writes, but that files and logs of other writers may hold.
const NOT_WHOLE: [&[u8]; 5] = [&[7], &[0, 0], &[0, 2, 64, 1, 9], &[0, 9, 64], &[0, 1, 64, 0xff, 0xff, 1]];

#[test]
fn tags_that_are_not_whole_cost_no_other_cell() {
    for encoding in DataBlockEncoding::ALL.iter().copied() {
        for compress_tags in [true, false] {
            let context = HFileContext {
                encoding,
                compress_tags,
                includes_tags: true,
                block_bytes: 2000,
                ..HFileContext::default()
            };
            let tags_of = |i: usize| match i % 9 {
                3 => NOT_WHOLE[i % NOT_WHOLE.len()],
                _ => &[0, 3, 64, 1, 2],
            };
            let cell = |i: usize| {
                let row = format!("{i:04}");
                let (row, value) = (row.as_bytes(), &b"value"[..]);
                let kind = CellType::Put;
                KeyValueBuilder {
                    row,
                    family: b"f",
                    qualifier: b"q",
                    timestamp: 1,
                    kind,
                    value,
                    tags: tags_of(i),
                }
                .build()
            };
            let cells: Vec<_> = (0..500).map(cell).collect();
            let reader = open(&write(&cells, &context), no_cache());
            let mut scanner = reader.scanner(ScanOptions::default());
            assert!(scanner.seek_to_first().expect("read"));
            for (i, cell) in cells.iter().enumerate() {
                let (read, cell) = (scanner.cell().expect("a cell"), cell.as_cell());
                assert_eq!((read.key(), read.value()), (cell.key(), cell.value()), "{encoding:?}, {i}");
                let kept = if read.tags() == cell.tags() { cell.tags() } else { whole_tags(cell.tags()) };
                assert_eq!(read.tags(), kept, "{encoding:?}, {i}");
                assert!(i % 9 == 3 || kept == cell.tags(), "{encoding:?}, {i}: whole tags stay");
                assert_eq!(scanner.next().expect("read"), i + 1 < cells.len());
            }
        }
    }
}
