//! Damaged and hostile files: never a panic, never a wrong cell, never much memory.

mod support;

use std::sync::Arc;

use evenkeel_common::{ErrorKind, KeyBuf, KeyValue, Result, TryError};
use evenkeel_fs::{Fault, FaultyFileSystem, Op, RandomAccessFile};
use evenkeel_hfile::{
    BloomType, ChecksumType, Compression, DataBlockEncoding, HFileContext, HFileReader, OpenOptions,
    ScanOptions, TRAILER_BYTES,
};
use support::{Random, Shape, no_cache, open, random_cells, write};

/// A file in a vector.
#[derive(Debug)]
struct Bytes(Vec<u8>);

impl RandomAccessFile for Bytes {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<usize> {
        let rest = self.0.get(offset as usize..).unwrap_or(&[]);
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

fn file(cells: &[KeyValue], context: &HFileContext) -> Vec<u8> {
    let written = write(cells, context);
    let file = evenkeel_fs::FileSystem::open(&written.fs, &written.path).unwrap();
    let mut bytes = vec![0; file.len() as usize];
    file.read_exact_at(0, &mut bytes).unwrap();
    bytes
}

fn cells(count: usize) -> Vec<KeyValue> {
    let shape = Shape {
        cells: count,
        tags: true,
        mvcc: true,
        deletes: true,
        value_bytes_max: 12,
        negative_timestamps: true,
    };
    random_cells(&mut Random::new(5), shape)
}

/// Calls every query of a reader. Results of successful queries must agree with the cells.
fn read_all(bytes: Vec<u8>, cells: &[KeyValue]) -> Result<()> {
    let reader = HFileReader::open(Arc::new(Bytes(bytes)), "/t/f", no_cache(), &OpenOptions::default())?;
    let mut scanner = reader.scanner(ScanOptions::default());
    let mut more = scanner.seek_to_first().map_err(TryError::into_failure)?;
    for cell in cells {
        assert!(more, "a cell is missing");
        assert_eq!(scanner.cell().map(|cell| KeyValue::copy_of(&cell)).as_ref(), Some(cell));
        more = scanner.next().map_err(TryError::into_failure)?;
    }
    assert!(!more, "a cell too many");
    for cell in cells.iter().step_by(3).map(KeyValue::as_cell) {
        assert!(reader.might_contain_row(cell.row())?, "row {cell:?}");
        assert!(reader.might_contain_row_col(cell.row(), cell.qualifier())?, "column {cell:?}");
        assert!(scanner.seek(&cell).map_err(TryError::into_failure)?, "{cell:?}");
        assert_eq!(scanner.cell().map(|cell| KeyValue::copy_of(&cell)), Some(KeyValue::copy_of(&cell)));
    }
    reader.mid_key()?;
    Ok(())
}

fn contexts() -> Vec<HFileContext> {
    let small = HFileContext {
        block_bytes: 150,
        index_block_bytes_max: 100,
        index_block_entries_min: 2,
        bloom_block_bytes: 64,
        includes_tags: true,
        ..HFileContext::default()
    };
    vec![
        small.clone(),
        HFileContext { encoding: DataBlockEncoding::RowIndexV1, bloom: BloomType::RowCol, ..small.clone() },
        HFileContext { encoding: DataBlockEncoding::FastDiff, compression: Compression::Gz, ..small.clone() },
        HFileContext { encoding: DataBlockEncoding::Diff, compression: Compression::Snappy, ..small.clone() },
        HFileContext {
            encoding: DataBlockEncoding::Prefix,
            compression: Compression::Zstd,
            compress_tags: true,
            bloom: BloomType::RowPrefix(2),
            ..small.clone()
        },
        HFileContext { compression: Compression::Lz4, ..HFileContext::default() },
        // Few blocks: with BZIP2 every block needs a decoder of 3.6 MB.
        HFileContext {
            compression: Compression::Bzip2,
            bloom: BloomType::None,
            delete_family_bloom: false,
            ..HFileContext::default()
        },
        HFileContext { compression: Compression::Zstd, zstd_framed: true, ..HFileContext::default() },
        HFileContext {
            encoding: DataBlockEncoding::FastDiff,
            compress_tags: true,
            checksum: ChecksumType::Crc32,
            bytes_per_checksum: 64,
            bloom: BloomType::None,
            ..small
        },
    ]
}

/// The number of random damages of a file: a tenth if reading it is slow.
fn cases(context: &HFileContext, count: usize) -> usize {
    if context.compression == Compression::Bzip2 { count / 10 } else { count }
}

#[test]
fn any_flipped_bit_is_found_or_harmless() {
    for context in contexts() {
        let context = HFileContext { includes_tags: true, ..context };
        let cells = cells(20);
        let good = file(&cells, &context);
        read_all(good.clone(), &cells).unwrap();
        let (mut found, mut harmless) = (0, 0);
        for bit in 0..good.len() * 8 {
            // The middle of the trailer's padding is equivalent to its ends.
            let in_padding = (good.len() - TRAILER_BYTES + 300..good.len() - 50).contains(&(bit / 8));
            // One bit of each byte of a BZIP2 file, a different one each time: every block needs a
            // decoder of 3.6 MB, which is slow.
            let slow = context.compression == Compression::Bzip2 && bit / 8 % 8 != bit % 8;
            if slow || in_padding && !bit.is_multiple_of(997) {
                continue;
            }
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            match read_all(bytes, &cells) {
                Ok(()) => harmless += 1,
                Err(e) => {
                    let kinds = [ErrorKind::CorruptHFile, ErrorKind::UnsupportedOperation];
                    assert!(kinds.contains(&e.kind()), "bit {bit}: {e}");
                    found += 1;
                }
            }
        }
        // Some bytes are never read: statistics in the trailer, and its padding.
        assert!(found > harmless * 3, "{found} found, {harmless} harmless: {context:?}");
    }
}

#[test]
fn a_file_cut_anywhere_is_corrupt() {
    let cells = cells(20);
    for context in contexts() {
        let good = file(&cells, &HFileContext { includes_tags: true, ..context });
        for len in (0..good.len()).filter(|len| len % 7 == 0 || *len > good.len() - 20) {
            let error = read_all(good[..len].to_vec(), &cells).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CorruptHFile, "{len}: {error}");
            assert!(error.message().contains("/t/f at offset"), "{error}");
        }
    }
}

#[test]
fn random_bytes_and_random_damage_do_not_panic() {
    let mut random = Random::new(77);
    let cells = cells(30);
    for context in contexts() {
        let good = file(&cells, &HFileContext { includes_tags: true, ..context.clone() });
        for _ in 0..cases(&context, 300) {
            let mut bytes = good.clone();
            for _ in 0..random.below(30) + 1 {
                let at = random.below(bytes.len());
                bytes[at] = random.next() as u8;
            }
            let _ = read_all_quietly(bytes);
        }
        for _ in 0..50 {
            let mut bytes: Vec<u8> = (0..6000).map(|_| random.next() as u8).collect();
            let tail = bytes.len() - 4;
            bytes[tail..].copy_from_slice(&[3, 0, 0, 3]);
            assert!(read_all_quietly(bytes).is_err());
        }
    }
}

/// Without checksums a wrong cell cannot be detected, but reading must end without a panic.
#[test]
fn damage_without_checksums_does_not_panic() {
    let mut random = Random::new(78);
    let cells = cells(200);
    for context in contexts() {
        let context =
            HFileContext { checksum: ChecksumType::Null, includes_tags: true, block_bytes: 400, ..context };
        let good = file(&cells, &context);
        for _ in 0..cases(&context, 2000) {
            let mut bytes = good.clone();
            for _ in 0..random.below(3) + 1 {
                let at = random.below(bytes.len() - TRAILER_BYTES);
                bytes[at] = random.pick(&[0, 1, 0x7f, 0x80, 0xff, bytes[at] ^ 1, bytes[at].wrapping_add(1)]);
            }
            let _ = read_all_quietly(bytes);
        }
    }
}

/// Reads everything, without comparing it.
fn read_all_quietly(bytes: Vec<u8>) -> Result<u64> {
    let reader = HFileReader::open(Arc::new(Bytes(bytes)), "/t/f", no_cache(), &OpenOptions::default())?;
    let mut scanner = reader.scanner(ScanOptions::default());
    let mut cells = 0u64;
    let mut more = scanner.seek_to_first().map_err(TryError::into_failure)?;
    while more {
        cells += u64::from(scanner.cell().is_some());
        assert!(cells < 1_000_000, "there is no end");
        more = scanner.next().map_err(TryError::into_failure)?;
    }
    let key = KeyBuf::first_on_row(b"ab11");
    scanner.seek_before(&key.as_cell()).map_err(TryError::into_failure)?;
    scanner.seek(&key.as_cell()).map_err(TryError::into_failure)?;
    scanner.reseek(&KeyBuf::last_on_row(b"b").as_cell()).map_err(TryError::into_failure)?;
    reader.might_contain_row(b"ab11")?;
    reader.might_contain_row_col(b"ab11", b"q")?;
    reader.mid_key()?;
    Ok(cells)
}

#[test]
fn false_header_sizes_allocate_no_memory() {
    let cells = cells(20);
    let codecs =
        [Compression::Gz, Compression::Snappy, Compression::Lz4, Compression::Zstd, Compression::Bzip2];
    let forms = codecs.into_iter().chain([Compression::None]).map(|compression| (compression, false));
    for (compression, zstd_framed) in forms.chain([(Compression::Zstd, true)]) {
        let context =
            HFileContext { compression, zstd_framed, includes_tags: true, ..HFileContext::default() };
        let context = HFileContext { checksum: ChecksumType::Null, ..context };
        let good = file(&cells, &context);
        for (at, value) in [(8, 0x7f), (12, 0x7f), (12, 0x10), (29, 0x7f)] {
            let mut bytes = good.clone();
            bytes[at] = value;
            let error = read_all(bytes, &cells).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::CorruptHFile, "{compression:?} {at}: {error}");
        }
    }
}

#[test]
fn a_corrupt_read_is_repaired_by_a_second_read() {
    let written = write(&cells(200), &HFileContext::default());
    let fs = FaultyFileSystem::new(written.fs);
    fs.inject(Fault::on(Op::Read, "0123").after(7).times(1).flips(50, 1));
    let reader = HFileReader::open_path(&fs, &written.path, no_cache(), &OpenOptions::default()).unwrap();
    let mut scanner = reader.scanner(ScanOptions::default());
    let (mut count, mut more) = (0, scanner.seek_to_first().unwrap());
    while more {
        count += 1;
        more = scanner.next().unwrap();
    }
    assert_eq!(count, reader.entry_count());
    fs.inject(Fault::on(Op::Read, "0123").times(1).flips(50, 1));
    assert!(scanner.seek_to_first().is_ok());
    let mut again = reader.scanner(ScanOptions::default());
    assert!(again.seek_to_first().unwrap());
    assert_eq!(reader.checksum_failures(), 1);
}

#[test]
fn an_io_error_carries_its_offset() {
    let written = write(&cells(200), &HFileContext::default());
    let fs = FaultyFileSystem::new(written.fs);
    let reader = HFileReader::open_path(&fs, &written.path, no_cache(), &OpenOptions::default()).unwrap();
    fs.inject(Fault::on(Op::Read, "0123").always().fails(std::io::ErrorKind::TimedOut));
    let error = reader.scanner(ScanOptions::default()).seek_to_first().unwrap_err().into_failure();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.message().contains("at offset 0"), "{error}");
    fs.clear();
    assert!(reader.scanner(ScanOptions::default()).seek_to_first().unwrap());
}

#[test]
fn readers_share_cached_blocks_by_name() {
    let written = write(&cells(50), &HFileContext::default());
    let cache = support::lru();
    for _ in 0..2 {
        let reader = open(&written, Arc::clone(&cache));
        assert!(reader.scanner(ScanOptions::default()).seek_to_first().unwrap());
    }
    let stats = cache.stats();
    assert_eq!((stats.hits[0], stats.miss_count()), (1, 1));
    let reader = open(&written, Arc::clone(&cache));
    assert_eq!(reader.evict(), 1);
    assert!(
        reader
            .scanner(ScanOptions { cache_blocks: false, ..ScanOptions::default() })
            .seek_to_first()
            .unwrap()
    );
    assert_eq!(cache.stats().blocks, 0);
}
