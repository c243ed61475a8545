//! Files of version 2, minor 3, as HBase 0.98 and 1.x write them: our own file without tags, with
//! the shorter trailer, and optionally with the file info as it was before protobuf.

mod support;

use std::path::Path;
use std::sync::Arc;

use evenkeel_common::varint::write_vlong;
use evenkeel_common::{ErrorKind, KeyBuf, KeyValue, Result, TryError};
use evenkeel_fs::{FileSystem, MemoryFileSystem};
use evenkeel_hfile::{
    BloomType, ChecksumType, Compression, DataBlockEncoding, HFileContext, HFileReader, OpenOptions,
    ScanOptions, TRAILER_BYTES, Trailer,
};
use support::{PATH, Random, Shape, as_stored, no_cache, open, random_cells, write};

const TRAILER_MAGIC: &[u8; 8] = b"TRABLK\"$";
const TRAILER_V2_BYTES: usize = 212;
const HEADER_BYTES: usize = 33;

/// The form of the file info block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InfoForm {
    Protobuf,
    Writable,
}

/// A file of version 2 and the cells in it.
struct VersionTwo {
    bytes: Vec<u8>,
    cells: Vec<KeyValue>,
    trailer: Trailer,
}

impl VersionTwo {
    fn new(context: &HFileContext, form: InfoForm) -> Self {
        let shape = Shape {
            cells: 60,
            tags: false,
            mvcc: true,
            deletes: true,
            value_bytes_max: 20,
            negative_timestamps: false,
        };
        let cells = random_cells(&mut Random::new(9), shape);
        let written = write(&cells, context);
        let reader = open(&written, no_cache());
        let mut bytes = read_file(&written.fs, &written.path);
        let message = bytes.split_off(bytes.len() - TRAILER_BYTES);
        if form == InfoForm::Writable {
            replace_info(&mut bytes, &reader, context.checksum);
        }
        let mut trailer = message[..TRAILER_V2_BYTES - 4].to_vec();
        assert!(message[trailer.len()..TRAILER_BYTES - 4].iter().all(|byte| *byte == 0), "it is shorter");
        trailer.extend_from_slice(&[3, 0, 0, 2]);
        bytes.extend_from_slice(&trailer);
        let cells = cells.iter().map(|cell| as_stored(cell, context)).collect();
        Self { bytes, cells, trailer: reader.trailer().clone() }
    }

    fn trailer_start(&self) -> usize {
        self.bytes.len() - TRAILER_V2_BYTES
    }
}

fn read_file(fs: &MemoryFileSystem, path: &Path) -> Vec<u8> {
    let file = fs.open(path).unwrap();
    let mut bytes = vec![0; file.len() as usize];
    file.read_exact_at(0, &mut bytes).unwrap();
    bytes
}

/// Replaces the file info block, and keeps the blocks after it.
fn replace_info(bytes: &mut Vec<u8>, reader: &HFileReader, checksum: ChecksumType) {
    let start = reader.trailer().file_info_offset as usize;
    let tail = bytes.split_off(start);
    let old_bytes = HEADER_BYTES + u32::from_be_bytes(tail[8..12].try_into().unwrap()) as usize;
    let mut body = (reader.file_infos().iter().count() as i32).to_be_bytes().to_vec();
    for (key, value) in reader.file_infos().iter() {
        write_vlong(&mut body, key.len() as i64);
        body.extend_from_slice(key);
        body.push(1);
        write_vlong(&mut body, value.len() as i64);
        body.extend_from_slice(value);
    }
    bytes.extend_from_slice(&plain_block(b"FILEINF2", &body, checksum));
    bytes.extend_from_slice(&tail[old_bytes..]);
}

/// A block that is not compressed, with checksums like those of the other blocks.
fn plain_block(magic: &[u8; 8], body: &[u8], checksum: ChecksumType) -> Vec<u8> {
    const BYTES_PER_CHECKSUM: usize = 16 << 10;
    let data_bytes = HEADER_BYTES + body.len();
    let checksum_bytes = data_bytes.div_ceil(BYTES_PER_CHECKSUM) * 4;
    let mut block = magic.to_vec();
    for size in [body.len() + checksum_bytes, body.len()] {
        block.extend_from_slice(&(size as u32).to_be_bytes());
    }
    block.extend_from_slice(&(-1i64).to_be_bytes());
    block.push(match checksum {
        ChecksumType::Null => 0,
        ChecksumType::Crc32 => 1,
        ChecksumType::Crc32C => 2,
    });
    for size in [BYTES_PER_CHECKSUM, data_bytes] {
        block.extend_from_slice(&(size as u32).to_be_bytes());
    }
    block.extend_from_slice(body);
    let checksum_of = |chunk: &[u8]| match checksum {
        ChecksumType::Null => 0,
        ChecksumType::Crc32 => crc_fast::crc32_iso_hdlc(chunk),
        ChecksumType::Crc32C => crc_fast::crc32_iscsi(chunk),
    };
    let checksums: Vec<u8> =
        block.chunks(BYTES_PER_CHECKSUM).flat_map(|chunk| checksum_of(chunk).to_be_bytes()).collect();
    assert_eq!(checksums.len(), checksum_bytes);
    block.extend_from_slice(&checksums);
    block
}

fn open_bytes(bytes: &[u8]) -> Result<Arc<HFileReader>> {
    let fs = MemoryFileSystem::new();
    fs.write_atomically(Path::new(PATH), bytes).unwrap();
    HFileReader::open_path(&fs, Path::new(PATH), no_cache(), &OpenOptions::default())
}

fn contexts() -> Vec<HFileContext> {
    let small = HFileContext {
        block_bytes: 150,
        index_block_bytes_max: 100,
        index_block_entries_min: 2,
        bloom_block_bytes: 64,
        ..HFileContext::default()
    };
    vec![
        small.clone(),
        HFileContext { includes_mvcc: false, checksum: ChecksumType::Crc32, ..small.clone() },
        HFileContext { encoding: DataBlockEncoding::Prefix, bloom: BloomType::RowCol, ..small.clone() },
        HFileContext { encoding: DataBlockEncoding::Diff, bloom: BloomType::None, ..small.clone() },
        HFileContext { encoding: DataBlockEncoding::FastDiff, ..small },
    ]
}

#[test]
fn version_two_is_read_like_version_three() {
    for context in contexts() {
        for form in [InfoForm::Protobuf, InfoForm::Writable] {
            let file = VersionTwo::new(&context, form);
            let reader = open_bytes(&file.bytes).unwrap();
            assert_eq!((reader.trailer().major, reader.trailer().minor), (2, 3));
            assert_eq!(Trailer { major: 3, ..reader.trailer().clone() }, file.trailer);
            assert_eq!(reader.len(), file.bytes.len() as u64);
            assert_eq!((reader.max_seq_id(), reader.includes_tags()), (Some(77), false));
            assert_eq!(reader.bloom_type(), context.bloom);
            let last = file.cells.last().map(|cell| KeyBuf::of(&cell.as_cell()));
            assert_eq!(reader.last_key(), last.as_ref(), "{context:?} {form:?}");
            check_cells(&reader, &file.cells);
        }
    }
}

fn check_cells(reader: &Arc<HFileReader>, cells: &[KeyValue]) {
    let mut scanner = reader.scanner(ScanOptions::default());
    let mut more = scanner.seek_to_first().unwrap();
    for cell in cells {
        assert!(more);
        assert_eq!(scanner.cell().map(|cell| KeyValue::copy_of(&cell)).as_ref(), Some(cell));
        more = scanner.next().unwrap();
    }
    assert!(!more);
    for cell in cells.iter().map(KeyValue::as_cell) {
        assert!(scanner.seek(&cell).unwrap());
        assert_eq!(scanner.cell().map(|cell| cell.key().to_vec()), Some(cell.key().to_vec()));
        assert!(reader.might_contain_row(cell.row()).unwrap());
        assert!(reader.might_contain_row_col(cell.row(), cell.qualifier()).unwrap());
    }
    assert!(reader.bloom_type() != BloomType::Row || !reader.might_contain_row(b"no such row").unwrap());
}

#[test]
fn compressed_blocks_of_version_two() {
    let context = HFileContext { compression: Compression::Gz, ..contexts().remove(4) };
    let file = VersionTwo::new(&context, InfoForm::Protobuf);
    check_cells(&open_bytes(&file.bytes).unwrap(), &file.cells);
}

#[test]
fn earlier_minors_are_refused_as_by_hbase() {
    let file = VersionTwo::new(&HFileContext::default(), InfoForm::Protobuf);
    for minor in 0..3 {
        let mut bytes = file.bytes.clone();
        let at = bytes.len() - 4;
        bytes[at] = minor;
        let error = open_bytes(&bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CorruptHFile);
        let reason = format!("Invalid HFile version: major=2, minor={minor}: expected at least major=2 and");
        assert!(error.message().contains(&reason), "{error}");
    }
}

/// PREFIX_TREE, which HBase 2 removed.
#[test]
fn an_unknown_encoding_is_refused_as_by_hbase() {
    let (encoding, checksum) = (DataBlockEncoding::FastDiff, ChecksumType::Null);
    let context = HFileContext { encoding, checksum, ..HFileContext::default() };
    let mut file = VersionTwo::new(&context, InfoForm::Writable);
    let at = file.bytes.windows(9).rposition(|bytes| bytes == b"FAST_DIFF").unwrap();
    file.bytes[at..at + 9].copy_from_slice(b"PREFIX_TR");
    let error = open_bytes(&file.bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CorruptHFile);
    assert!(error.message().contains("Invalid data block encoding type in file info: PREFIX_TR"), "{error}");
}

/// Reads everything; the cells are not compared, because the trailer and blocks without checksums
/// have no protection.
fn read_quietly(bytes: &[u8]) -> Result<()> {
    let reader = open_bytes(bytes)?;
    let mut scanner = reader.scanner(ScanOptions::default());
    let (mut more, mut cells) = (scanner.seek_to_first().map_err(TryError::into_failure)?, 0);
    while more {
        cells += 1;
        assert!(cells < 100_000, "there is no end");
        more = scanner.next().map_err(TryError::into_failure)?;
    }
    reader.might_contain_row(b"ab11")?;
    reader.mid_key().map(drop)
}

#[test]
fn cut_files_are_corrupt() {
    for form in [InfoForm::Protobuf, InfoForm::Writable] {
        let file = VersionTwo::new(&contexts().remove(0), form);
        for len in 0..file.bytes.len() {
            let error = read_quietly(&file.bytes[..len]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CorruptHFile, "{len}: {error}");
        }
    }
}

#[test]
fn damage_to_trailer_and_file_info_does_not_panic() {
    let context = HFileContext { checksum: ChecksumType::Null, ..contexts().remove(0) };
    let file = VersionTwo::new(&context, InfoForm::Writable);
    let info = file.trailer.file_info_offset as usize;
    assert!(info < file.trailer_start());
    let (mut refused, mut read) = (0, 0);
    for at in info..file.bytes.len() {
        for value in [0, 1, 0x7f, 0x80, 0x8c, 0xff] {
            let mut bytes = file.bytes.clone();
            bytes[at] = value;
            match read_quietly(&bytes) {
                Ok(()) => read += 1,
                Err(error) => {
                    let kinds = [ErrorKind::CorruptHFile, ErrorKind::UnsupportedOperation];
                    assert!(kinds.contains(&error.kind()), "{at} {value}: {error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 500 && read > 500, "{refused} refused, {read} read");
}

#[test]
fn false_lengths_in_the_file_info_allocate_no_memory() {
    let context = HFileContext { checksum: ChecksumType::Null, ..HFileContext::default() };
    let file = VersionTwo::new(&context, InfoForm::Writable);
    let body = file.trailer.file_info_offset as usize + HEADER_BYTES;
    // The count of entries; the length of the first key, as 4 bytes that follow the first.
    for damage in [&[0x7f, 0xff, 0xff, 0xff][..], &[0, 0, 0, 1, 0x8c, 0x7f, 0xff, 0xff, 0xff]] {
        let mut bytes = file.bytes.clone();
        bytes[body..body + damage.len()].copy_from_slice(damage);
        let error = open_bytes(&bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CorruptHFile, "{error}");
        assert!(error.message().contains("the file info does not match the file"), "{error}");
    }
}

#[test]
fn the_trailer_of_version_two_has_its_magic_at_its_own_length() {
    let file = VersionTwo::new(&HFileContext::default(), InfoForm::Protobuf);
    let start = file.trailer_start();
    assert_eq!(&file.bytes[start..start + 8], TRAILER_MAGIC);
    let mut as_three = file.bytes.clone();
    let end = as_three.len();
    as_three[end - 1] = 3;
    assert!(open_bytes(&as_three).is_err(), "a trailer of version 3 is longer");
}
