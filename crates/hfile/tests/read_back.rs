//! Reading back a file that was just written: intact files of every format pass, and any file that
//! differs from what was written fails.

mod support;

use std::path::Path;

use evenkeel_common::{CellType, KeyValue, Result};
use evenkeel_fs::{CreateOptions, Damage, Fault, FaultyFileSystem, FileSystem, MemoryFileSystem, Op};
use evenkeel_hfile::{
    BloomType, Compression, DataBlockEncoding, HFileContext, HFileWriter, ReadBack, StoreFileMeta,
    WrittenFile,
};
use support::{Random, Shape, random_cells};

const PATH: &str = "/f/0a";
const ENCODINGS: [DataBlockEncoding; 5] = [
    DataBlockEncoding::None,
    DataBlockEncoding::Prefix,
    DataBlockEncoding::Diff,
    DataBlockEncoding::FastDiff,
    DataBlockEncoding::RowIndexV1,
];

/// Small blocks, so a few hundred cells make several index levels and several bloom chunks.
fn context(encoding: DataBlockEncoding, compression: Compression) -> HFileContext {
    HFileContext {
        encoding,
        compression,
        block_bytes: 512,
        index_block_bytes_max: 200,
        index_block_entries_min: 2,
        bloom: BloomType::Row,
        bloom_block_bytes: 128,
        includes_tags: true,
        includes_mvcc: true,
        ..HFileContext::default()
    }
}

fn cells(count: usize) -> Vec<KeyValue> {
    let shape = Shape {
        cells: count,
        tags: true,
        mvcc: true,
        deletes: true,
        value_bytes_max: 30,
        negative_timestamps: false,
    };
    random_cells(&mut Random::new(11), shape)
}

fn write(fs: &dyn FileSystem, cells: &[KeyValue], context: HFileContext) -> Result<WrittenFile> {
    let mut writer = HFileWriter::create(fs, Path::new(PATH), context)?;
    writer.digest_cells();
    cells.iter().try_for_each(|cell| writer.append(&cell.as_cell()))?;
    writer.finish(StoreFileMeta { max_seq_id: Some(9), ..StoreFileMeta::default() })
}

/// Returns the number of blocks read.
fn read_back(fs: &dyn FileSystem, written: WrittenFile) -> Result<usize> {
    let mut file = ReadBack::open(fs, Path::new(PATH), written)?;
    let mut blocks = 0;
    while file.step()?.is_some() {
        blocks += 1;
    }
    Ok(blocks)
}

#[test]
fn read_back_accepts_sound_files_of_every_form() {
    for encoding in ENCODINGS {
        for compression in [Compression::None, Compression::Snappy, Compression::Gz, Compression::Zstd] {
            for count in [0, 1, 600] {
                let fs = MemoryFileSystem::new();
                let written = write(&fs, &cells(count), context(encoding, compression)).expect("written");
                let blocks = read_back(&fs, written).expect("what was written");
                assert!(blocks >= 3 && (count < 600 || blocks > 30), "{encoding:?} {count}: {blocks}");
            }
        }
    }
}

#[test]
fn read_back_finds_any_changed_byte() {
    let fs = MemoryFileSystem::new();
    let cells = cells(120);
    let written =
        write(&fs, &cells, context(DataBlockEncoding::FastDiff, Compression::None)).expect("written");
    let sound = fs.read_all(Path::new(PATH), 1 << 20).expect("readable");
    // The second bit turns the CRC32C in a block's header into no checksum.
    for (at, mask) in (0..sound.len()).flat_map(|at| [(at, 1 << (at % 8)), (at, 2)]) {
        let mut damaged = sound.clone();
        damaged[at] ^= mask;
        assert!(fails(&damaged, &written), "{at} by {mask}");
    }
    for at in (0..sound.len()).step_by(61) {
        let cut = [&sound[..at], &sound[at + 1..]].concat();
        let longer = [&sound[..at], &sound[at..at + 1], &sound[at..]].concat();
        assert!(fails(&sound[..at], &written) && fails(&cut, &written) && fails(&longer, &written), "{at}");
        let mut zeros = sound.clone();
        zeros[at..(at + 64).min(sound.len())].fill(0);
        assert!(zeros == sound || fails(&zeros, &written), "{at}");
    }
    assert!(!fails(&sound, &written));
}

fn fails(bytes: &[u8], written: &WrittenFile) -> bool {
    let fs = MemoryFileSystem::new();
    let mut file = fs
        .create(Path::new(PATH), CreateOptions { parents: true, ..CreateOptions::default() })
        .expect("created");
    file.append(bytes).and_then(|()| file.sync()).expect("written");
    read_back(&fs, written.clone()).is_err()
}

#[test]
fn read_back_finds_any_damaged_append() {
    let damages = [
        Damage::Flip { at: 40, mask: 0x10 },
        Damage::Drop,
        Damage::Truncate,
        Damage::Duplicate,
        Damage::Zero,
        Damage::Swap,
    ];
    let cells = cells(200);
    for compression in [Compression::None, Compression::Snappy] {
        for damage in damages {
            for nth in 0.. {
                let fs = FaultyFileSystem::new(MemoryFileSystem::new());
                fs.inject(Fault::on(Op::Append, PATH).after(nth).damages(damage));
                let written = write(&fs, &cells, context(DataBlockEncoding::None, compression))
                    .expect("told of nothing");
                let outcome = read_back(&fs, written);
                fs.clear();
                if outcome.is_ok() {
                    assert!(nth > 20, "{damage:?} of append {nth} was not found");
                    break;
                }
            }
        }
    }
}

/// The result of a faulty encoder: an intact file of other cells.
#[test]
fn read_back_finds_an_intact_file_of_other_cells() {
    let cells = cells(60);
    let written_of = |cells: &[KeyValue]| {
        let fs = MemoryFileSystem::new();
        let written =
            write(&fs, cells, context(DataBlockEncoding::None, Compression::None)).expect("written");
        (fs, written)
    };
    let (_, written) = written_of(&cells);
    let at = cells.iter().position(|cell| cell.as_cell().value() == b"same").expect("some");
    let other = |value: &[u8], seq_id: u64| {
        let cell = cells[at].as_cell();
        let kind = cell.cell_type().unwrap_or(CellType::Put);
        let (row, family, qualifier) = (cell.row(), cell.family(), cell.qualifier());
        let timestamp = cell.timestamp();
        let tags = cell.tags();
        let mut cell =
            evenkeel_common::cell::KeyValueBuilder { row, family, qualifier, timestamp, kind, value, tags }
                .build();
        cell.set_seq_id(seq_id);
        let mut cells = cells.clone();
        cells[at] = cell;
        cells
    };
    let seq_id = cells[at].seq_id();
    let (fs, _) = written_of(&other(b"sane", seq_id));
    let error = read_back(&fs, written.clone()).expect_err("another value");
    assert!(error.message().contains("not what was written"), "{error}");
    let (fs, _) = written_of(&other(b"same", seq_id ^ 1));
    read_back(&fs, written.clone()).expect_err("another sequence id");
    let (fs, _) = written_of(&other(b"same", seq_id));
    read_back(&fs, written).expect("the same cells");
}

/// Malformed tags cannot be split when tags are compressed, so the cells read back differ from the
/// written ones.
#[test]
fn read_back_finds_cells_that_an_encoding_loses() {
    for encoding in ENCODINGS {
        for tags in [&[7][..], &[0, 9, 1]] {
            let fs = MemoryFileSystem::new();
            let cell = |row: &str, tags: &[u8]| {
                let (row, family, qualifier) = (row.as_bytes(), &b"f"[..], &b"q"[..]);
                let kind = CellType::Put;
                evenkeel_common::cell::KeyValueBuilder {
                    row,
                    family,
                    qualifier,
                    timestamp: 1,
                    kind,
                    value: b"v",
                    tags,
                }
                .build()
            };
            let cells = [cell("a", &[]), cell("b", tags), cell("c", &[0, 2, 8, 1])];
            let context = context(encoding, Compression::None);
            let compresses = encoding != DataBlockEncoding::None && context.compress_tags;
            let outcome = write(&fs, &cells, context).and_then(|written| read_back(&fs, written));
            assert_eq!(outcome.is_err(), compresses, "{encoding:?} {tags:?}: {outcome:?}");
        }
    }
}
