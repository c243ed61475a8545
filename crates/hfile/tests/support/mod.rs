//! Random cells, settings, and a model to compare files with. `measure` of `bench` and `hfile_tool`
//! of `interop` include this file, too.

#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_block_cache::{BlockCache, LruBlockCache, NoCache};
use evenkeel_common::cell::KeyValueBuilder;
use evenkeel_common::{CellComparator, CellRef, CellType, KeyValue};
use evenkeel_fs::{FileSystem, MemoryFileSystem};
use evenkeel_hfile::{HFileContext, HFileReader, HFileWriter, OpenOptions, StoreFileMeta, WrittenFile};

/// A small generator (xorshift64*), so a seed always names the same case.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }

    pub fn bytes(&mut self, len_max: usize, alphabet: &[u8]) -> Vec<u8> {
        (0..self.below(len_max + 1)).map(|_| self.pick(alphabet)).collect()
    }
}

/// The distribution of random cells.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub cells: usize,
    pub tags: bool,
    pub mvcc: bool,
    pub deletes: bool,
    pub value_bytes_max: usize,
    /// Include timestamps before 1970, which stock's classes refuse.
    pub negative_timestamps: bool,
}

const TYPES: [CellType; 5] = [
    CellType::Put,
    CellType::Delete,
    CellType::DeleteColumn,
    CellType::DeleteFamily,
    CellType::DeleteFamilyVersion,
];

/// Random ordered cells of one family. Some keys repeat with other sequence ids.
pub fn random_cells(random: &mut Random, shape: Shape) -> Vec<KeyValue> {
    let mut cells: Vec<KeyValue> = Vec::new();
    while cells.len() < shape.cells {
        let mut cell = random_cell(random, shape);
        if shape.mvcc {
            cell.set_seq_id(random.pick(&[0, 1, 127, 128, 70_000, 5_000_000_000]) + random.below(3) as u64);
        }
        if shape.mvcc && random.one_in(20) {
            let mut again = cell.clone();
            again.set_seq_id(cell.seq_id() + 1);
            cells.push(again);
        }
        cells.push(cell);
    }
    sort(&mut cells, CellComparator::Default);
    cells
}

/// Sorts cells and drops those that repeat key and sequence id.
pub fn sort(cells: &mut Vec<KeyValue>, order: CellComparator) {
    cells.sort_by(|a, b| order.compare(&a.as_cell(), &b.as_cell()));
    cells.dedup_by(|a, b| order.compare(&a.as_cell(), &b.as_cell()).is_eq());
}

fn random_cell(random: &mut Random, shape: Shape) -> KeyValue {
    let mut row = random.bytes(6, b"ab\0\xff");
    row.extend_from_slice(format!("{:02}", random.below(30)).as_bytes());
    let kind = if shape.deletes && random.one_in(4) { random.pick(&TYPES) } else { CellType::Put };
    let family_only = matches!(kind, CellType::DeleteFamily | CellType::DeleteFamilyVersion);
    let qualifier = if family_only { Vec::new() } else { random.bytes(4, b"qr\xfe") };
    let timestamp = match random.below(8) {
        0 => random.pick(&[0, 1, i64::MAX - 1, 255, 256, 1 << 40]),
        1 if shape.negative_timestamps => -(random.below(70_000) as i64),
        _ => 1_700_000_000_000 + random.below(5_000) as i64,
    };
    let value =
        if random.one_in(3) { b"same".to_vec() } else { random.bytes(shape.value_bytes_max, b"value\0") };
    let tags = if shape.tags && random.one_in(2) { random_tags(random) } else { Vec::new() };
    KeyValueBuilder {
        row: &row,
        family: b"fam",
        qualifier: &qualifier,
        timestamp,
        kind,
        value: &value,
        tags: &tags,
    }
    .build()
}

fn random_tags(random: &mut Random) -> Vec<u8> {
    let mut tags = Vec::new();
    for _ in 0..random.below(3) + 1 {
        let value = if random.one_in(2) {
            random.bytes(12, b"tag")
        } else {
            format!("acl{}", random.below(200)).into()
        };
        tags.extend_from_slice(&(value.len() as u16 + 1).to_be_bytes());
        tags.push(random.pick(&[1u8, 2, 8, 65]));
        tags.extend_from_slice(&value);
    }
    tags
}

/// A file in memory.
pub struct Written {
    pub fs: MemoryFileSystem,
    pub path: PathBuf,
    pub file: WrittenFile,
}

pub const PATH: &str = "/t/0123456789abcdef0123456789abcdef";

pub fn write(cells: &[KeyValue], context: &HFileContext) -> Written {
    let fs = MemoryFileSystem::new();
    let path = PathBuf::from(PATH);
    let file = write_to(&fs, &path, cells, context);
    Written { fs, path, file }
}

pub fn write_to(fs: &dyn FileSystem, path: &Path, cells: &[KeyValue], context: &HFileContext) -> WrittenFile {
    let mut writer = HFileWriter::create(fs, path, context.clone()).unwrap();
    cells.iter().for_each(|cell| writer.append(&cell.as_cell()).unwrap());
    writer.finish(StoreFileMeta { max_seq_id: Some(77), ..StoreFileMeta::default() }).unwrap()
}

pub fn open(written: &Written, cache: Arc<dyn BlockCache>) -> Arc<HFileReader> {
    HFileReader::open_path(&written.fs, &written.path, cache, &OpenOptions::default()).unwrap()
}

pub fn no_cache() -> Arc<dyn BlockCache> {
    Arc::new(NoCache)
}

pub fn lru() -> Arc<dyn BlockCache> {
    Arc::new(LruBlockCache::new(64 << 20))
}

/// The part of a cell that a file with these settings stores.
pub fn as_stored(cell: &KeyValue, context: &HFileContext) -> KeyValue {
    let cell = cell.as_cell();
    let tags = if context.includes_tags { cell.tags() } else { &[] };
    let seq_id = if context.includes_mvcc { cell.seq_id() } else { 0 };
    KeyValue::copy_of(&CellRef::new(cell.key(), cell.value(), tags, seq_id).unwrap())
}
