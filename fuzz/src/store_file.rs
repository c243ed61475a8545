//! Store files: any bytes; any encoding and codec without checksums, so that mutations reach the
//! decoders; and damage to files with checksums, which must be detected or have no effect.

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use evenkeel_block_cache::NoCache;
use evenkeel_common::cell::KeyValueBuilder;
use evenkeel_common::{CellType, KeyValue, Result, TryError};
use evenkeel_fs::{FileSystem, MemoryFileSystem, RandomAccessFile};
use evenkeel_hfile::{
    BloomType, ChecksumType, Compression, DataBlockEncoding, HFileContext, HFileReader, HFileWriter,
    OpenOptions, ScanOptions, StoreFileMeta,
};

use crate::mutation::damaged;

/// A longer block counts as damage.
const BLOCK_BYTES_MAX: usize = 1 << 20;
/// The maximum of cells read from one input: a few bytes of a block may decode to many.
const CELLS_MAX: usize = 100_000;

#[derive(Debug)]
struct Bytes(Vec<u8>);

impl RandomAccessFile for Bytes {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|at| self.0.get(at..)).unwrap_or(&[]);
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

/// Any bytes as a file: scans, seeks and bloom filter lookups.
pub(crate) fn read(input: &[u8]) {
    drop(read_all(input.to_vec(), |_| ()));
}

fn read_all(bytes: Vec<u8>, mut each: impl FnMut(KeyValue)) -> Result<()> {
    let options = OpenOptions { block_bytes_max: BLOCK_BYTES_MAX, ..OpenOptions::default() };
    let reader = HFileReader::open(Arc::new(Bytes(bytes)), "/t/f", Arc::new(NoCache), &options)?;
    let mut scanner = reader.scanner(ScanOptions::default());
    let mut more = scanner.seek_to_first().map_err(TryError::into_failure)?;
    let (mut cells, mut last) = (0, None);
    while let Some(cell) = scanner.cell().filter(|_| more && cells < CELLS_MAX) {
        let cell = KeyValue::copy_of(&cell);
        last = Some(cell.clone());
        each(cell);
        cells += 1;
        more = scanner.next().map_err(TryError::into_failure)?;
    }
    let Some(last) = last else { return Ok(()) };
    scanner.seek(&last.as_cell()).map_err(TryError::into_failure)?;
    scanner.seek_before(&last.as_cell()).map_err(TryError::into_failure)?;
    reader.might_contain_row(last.as_cell().row())?;
    reader.might_contain_row_col(last.as_cell().row(), last.as_cell().qualifier())?;
    reader.mid_key().map(drop)
}

/// The first byte of `input` selects a file with checksums, the rest damages it.
pub(crate) fn damage(input: &[u8]) {
    static FILES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let files = FILES.get_or_init(|| checked_contexts().iter().map(write).collect());
    let Some((which, edits)) = input.split_first() else { return };
    let (_, bytes) = damaged(&files[usize::from(*which) % files.len()], edits);
    let mut cells = Vec::new();
    if read_all(bytes, |cell| cells.push(cell)).is_ok() {
        assert!(cells == known_cells(), "wrong cells and no error");
    }
}

pub(crate) fn damage_seeds() -> Vec<Vec<u8>> {
    let files = checked_contexts().len() as u8;
    (0..files).map(|which| vec![which, which, 100, 1, 0, 9, 0x80]).collect()
}

/// Ten rows of two columns; some cells with tags, one a delete.
fn known_cells() -> Vec<KeyValue> {
    let mut cells = Vec::new();
    for row in 0..10 {
        for (qualifier, tags) in [(&b"a"[..], &[][..]), (b"b", &[0, 3, 8, 1, 2])] {
            let name = format!("row{row:02}");
            let kind = if row == 5 { CellType::DeleteColumn } else { CellType::Put };
            let value = if kind == CellType::Put { &b"value"[..] } else { b"" };
            let (row, family, timestamp) = (name.as_bytes(), &b"f"[..], 1_700_000_000_000 - i64::from(row));
            cells.push(KeyValueBuilder { row, family, qualifier, timestamp, kind, value, tags }.build());
        }
    }
    cells
}

fn write(context: &HFileContext) -> Vec<u8> {
    let (fs, path) = (MemoryFileSystem::new(), Path::new("/t/0123456789abcdef0123456789abcdef"));
    let written = HFileWriter::create(&fs, path, context.clone()).and_then(|mut writer| {
        known_cells().iter().try_for_each(|cell| writer.append(&cell.as_cell()))?;
        writer.finish(StoreFileMeta::default())
    });
    written.unwrap_or_else(|e| panic!("{e}"));
    fs.read_all(path, 1 << 20).unwrap_or_else(|e| panic!("{e}"))
}

fn context(encoding: DataBlockEncoding, compression: Compression, checksum: ChecksumType) -> HFileContext {
    HFileContext {
        encoding,
        compression,
        checksum,
        block_bytes: 150,
        index_block_bytes_max: 100,
        index_block_entries_min: 2,
        bloom_block_bytes: 64,
        bloom: BloomType::RowCol,
        includes_tags: true,
        ..HFileContext::default()
    }
}

const CODECS: [Compression; 5] =
    [Compression::Gz, Compression::Snappy, Compression::Lz4, Compression::Zstd, Compression::Bzip2];

fn checked_contexts() -> Vec<HFileContext> {
    let encodings =
        DataBlockEncoding::ALL.iter().map(|e| context(*e, Compression::None, ChecksumType::Crc32C));
    let codecs = CODECS.iter().map(|codec| context(DataBlockEncoding::None, *codec, ChecksumType::Crc32));
    encodings.chain(codecs).collect()
}

fn seeds_of(encoding: DataBlockEncoding) -> Vec<Vec<u8>> {
    let plain = context(encoding, Compression::None, ChecksumType::Null);
    let other =
        HFileContext { compress_tags: true, includes_mvcc: false, bloom: BloomType::Row, ..plain.clone() };
    [plain, other].iter().map(write).collect()
}

pub(crate) fn plain_seeds() -> Vec<Vec<u8>> {
    seeds_of(DataBlockEncoding::None)
}

pub(crate) fn prefix_seeds() -> Vec<Vec<u8>> {
    seeds_of(DataBlockEncoding::Prefix)
}

pub(crate) fn diff_seeds() -> Vec<Vec<u8>> {
    seeds_of(DataBlockEncoding::Diff)
}

pub(crate) fn fast_diff_seeds() -> Vec<Vec<u8>> {
    seeds_of(DataBlockEncoding::FastDiff)
}

pub(crate) fn row_index_seeds() -> Vec<Vec<u8>> {
    seeds_of(DataBlockEncoding::RowIndexV1)
}

pub(crate) fn codec_seeds() -> Vec<Vec<u8>> {
    let of = |codec: &Compression| context(DataBlockEncoding::None, *codec, ChecksumType::Null);
    let framed = HFileContext { zstd_framed: true, ..of(&Compression::Zstd) };
    CODECS.iter().map(of).chain([framed]).map(|context| write(&context)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TARGETS;

    #[test]
    fn committed_seeds_hold_the_known_cells() {
        let mut files = 0;
        for target in
            TARGETS.iter().filter(|target| target.name.starts_with("hfile") && target.name != "hfile_damage")
        {
            for file in std::fs::read_dir(target.seeds()).unwrap_or_else(|e| panic!("{}: {e}", target.name)) {
                let path = file.unwrap_or_else(|e| panic!("{}: {e}", target.name)).path();
                let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                let mut cells = Vec::new();
                read_all(bytes, |cell| cells.push(cell))
                    .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                assert!(cells == known_cells(), "{}", path.display());
                files += 1;
            }
        }
        assert!(files >= 16, "{files}");
    }
}
