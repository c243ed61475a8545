//! Blocks with a wrong checksum: read again through the file system's checksums, recovered or
//! refused, and counted.

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_common::{ErrorKind, KeyValue, Result, TryError, TryResult, Wait};
use evenkeel_fs::{
    Fault, FaultyFileSystem, FileSystem, LocalFileSystem, Op, RandomAccessFile, StorageChecksum,
};
use evenkeel_hfile::{
    ChecksumType, HFileContext, HFileReader, OpenOptions, ScanOptions, checksum_failures_count,
};
use support::{Random, Shape, no_cache, random_cells, write, write_to};

/// A store file on disk, read through injected faults.
struct FaultyFile {
    _dir: tempfile::TempDir,
    fs: FaultyFileSystem,
    path: PathBuf,
    cells: u64,
}

const NAME: &str = "0123456789abcdef0123456789abcdef";

impl FaultyFile {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        let shape = Shape {
            cells: 500,
            tags: false,
            mvcc: true,
            deletes: true,
            value_bytes_max: 60,
            negative_timestamps: false,
        };
        let cells = random_cells(&mut Random::new(3), shape);
        let context = HFileContext { block_bytes: 2000, ..HFileContext::default() };
        write_to(&LocalFileSystem::new(), &path, &cells, &context);
        Self { _dir: dir, fs: FaultyFileSystem::new(LocalFileSystem::new()), path, cells: cells.len() as u64 }
    }

    /// Writes the checksums that Hadoop's tools leave beside a file, of its current bytes.
    fn write_side_sums(&self) {
        let bytes = std::fs::read(&self.path).unwrap();
        let mut sums = [&b"crc\0"[..], &512u32.to_be_bytes()].concat();
        for chunk in bytes.chunks(512) {
            let sum = crc32_by_bits(chunk);
            sums.extend_from_slice(&sum.to_be_bytes());
        }
        std::fs::write(side(&self.path), sums).unwrap();
    }

    fn damage(&self, at: usize) {
        let byte = std::fs::read(&self.path).unwrap()[at];
        self.damage_to(at, byte ^ 1);
    }

    fn damage_to(&self, at: usize, byte: u8) {
        let mut bytes = std::fs::read(&self.path).unwrap();
        bytes[at] = byte;
        std::fs::write(&self.path, bytes).unwrap();
    }

    fn open(&self) -> Result<Arc<HFileReader>> {
        HFileReader::open_path(&self.fs, &self.path, no_cache(), &OpenOptions::default())
    }

    fn scan(&self, reader: &Arc<HFileReader>) -> Result<u64> {
        let mut scanner = reader.scanner(ScanOptions::default());
        let (mut cells, mut more) = (0, scanner.seek_to_first().map_err(TryError::into_failure)?);
        while more {
            cells += 1;
            more = scanner.next().map_err(TryError::into_failure)?;
        }
        Ok(cells)
    }
}

fn side(path: &Path) -> PathBuf {
    path.with_file_name(format!(".{NAME}.crc"))
}

/// CRC-32 by definition, bit by bit.
fn crc32_by_bits(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum: u32, byte| {
        (0..8).fold(
            sum ^ u32::from(*byte),
            |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 },
        )
    })
}

#[test]
fn a_transient_corrupt_read_is_repaired_and_counted() {
    for with_side_sums in [false, true] {
        let faulty = FaultyFile::new();
        if with_side_sums {
            faulty.write_side_sums();
        }
        let reader = faulty.open().unwrap();
        for (failures, at) in [(1, 3u64), (2, 40), (3, 1500)] {
            let before = checksum_failures_count();
            faulty.fs.inject(Fault::on(Op::Read, NAME).times(1).flips(at, 4));
            assert_eq!(faulty.scan(&reader).unwrap(), faulty.cells);
            assert_eq!(reader.checksum_failures(), failures, "flipped at {at}");
            assert!(checksum_failures_count() > before);
        }
    }
}

#[test]
fn a_block_that_seems_to_have_no_checksum_is_read_again() {
    let faulty = FaultyFile::new();
    let reader = faulty.open().unwrap();
    // The checksum type in the header of the first block: CRC32C, 2, becomes none, 0.
    faulty.fs.inject(Fault::on(Op::Read, NAME).times(1).flips(24, 2));
    assert_eq!(faulty.scan(&reader).unwrap(), faulty.cells);
    assert_eq!(reader.checksum_failures(), 1);
}

/// A file on HDFS that is read through the damaged files of a local DataNode. Another DataNode has
/// a good replica.
#[derive(Debug)]
struct DamagedReplica {
    good: Vec<u8>,
    local: Vec<u8>,
}

fn copy(from: &[u8], offset: u64, buf: &mut [u8]) -> usize {
    let rest = from.get(offset as usize..).unwrap_or(&[]);
    let n = rest.len().min(buf.len());
    buf[..n].copy_from_slice(&rest[..n]);
    n
}

impl RandomAccessFile for DamagedReplica {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<usize> {
        Ok(copy(&self.good, offset, buf))
    }

    fn read_at_nowait(&self, offset: u64, buf: &mut [u8], caller_verifies: bool) -> bool {
        let mut good = vec![0; buf.len()];
        copy(&self.good, offset, &mut good);
        copy(&self.local, offset, buf);
        caller_verifies || good == buf
    }

    fn read_checked_by_caller_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        copy(&self.local, offset, buf);
        Ok(())
    }

    fn read_verified_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<StorageChecksum> {
        copy(&self.good, offset, buf);
        Ok(StorageChecksum::Matches)
    }

    fn len(&self) -> u64 {
        self.good.len() as u64
    }
}

/// A reader of a file of one cell. Its replica has another value, and other damage.
fn damaged_replica(checksum: ChecksumType, damage: fn(&mut Vec<u8>)) -> Arc<HFileReader> {
    let cell = KeyValue::put(b"row", b"f", b"q", 1, b"the value");
    let written = write(&[cell], &HFileContext { checksum, ..HFileContext::default() });
    let file = written.fs.open(&written.path).unwrap();
    let mut good = vec![0; file.len() as usize];
    file.read_exact_at(0, &mut good).unwrap();
    let mut local = good.clone();
    let value = local.windows(9).position(|bytes| bytes == b"the value").unwrap();
    local[value] = b'T';
    damage(&mut local);
    let file = Arc::new(DamagedReplica { good, local });
    HFileReader::open(file, "/t/f", no_cache(), &OpenOptions::default()).unwrap()
}

fn first_value(reader: &Arc<HFileReader>, wait: Wait) -> TryResult<Vec<u8>> {
    let mut scanner = reader.scanner(ScanOptions { wait, ..ScanOptions::default() });
    assert!(scanner.seek_to_first()?);
    Ok(scanner.cell().unwrap().value().to_vec())
}

#[test]
fn blocks_without_a_checksum_are_verified_by_the_storage_also_without_waiting() {
    let reader = damaged_replica(ChecksumType::Null, |_| {});
    for _ in 0..2 {
        let found = first_value(&reader, Wait::Never);
        assert!(matches!(found, Err(TryError::WouldWait)), "{found:?}");
        assert_eq!(first_value(&reader, Wait::Allowed).unwrap(), b"the value");
    }
}

#[test]
fn a_damaged_checksum_type_is_noticed_at_each_read() {
    let reader = damaged_replica(ChecksumType::Crc32C, |local| local[24] = 0);
    for failures in 1..3 {
        for _ in 0..2 {
            let found = first_value(&reader, Wait::Never);
            assert!(matches!(found, Err(TryError::WouldWait)), "{found:?}");
        }
        assert_eq!(first_value(&reader, Wait::Allowed).unwrap(), b"the value");
        assert_eq!(reader.checksum_failures(), failures);
    }
}

#[test]
fn a_lasting_damage_of_the_checksum_type_is_an_error() {
    let faulty = FaultyFile::new();
    faulty.damage_to(24, 0);
    let reader = faulty.open().unwrap();
    for failures in 1..3 {
        let error = faulty.scan(&reader).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CorruptHFile, "{error}");
        assert_eq!(reader.checksum_failures(), failures);
    }
}

#[test]
fn corrupt_reads_during_open_are_repaired() {
    let faulty = FaultyFile::new();
    let offset = faulty.open().unwrap().trailer().load_on_open_offset;
    let mut healed = Vec::new();
    for at in [offset, offset + 9, offset + 33, offset + 60] {
        // The first read is of the trailer, which has no checksum. Then follow the header and the
        // whole of each block.
        for reads_before in 1..12 {
            faulty.fs.inject(Fault::on(Op::Read, NAME).after(reads_before).times(1).flips(at, 0x40));
            let reader = faulty.open().unwrap();
            faulty.fs.clear();
            healed.extend((reader.checksum_failures() > 0).then_some((at - offset, reads_before)));
            assert_eq!(faulty.scan(&reader).unwrap(), faulty.cells);
        }
    }
    assert_eq!(healed, [(0, 1), (0, 2), (9, 1), (9, 2), (33, 2), (60, 2)]);
}

#[test]
fn persistent_damage_is_an_error_with_its_offset() {
    let faulty = FaultyFile::new();
    let assert_error = |wanted: &str| {
        let reader = faulty.open().unwrap();
        let error = faulty.scan(&reader).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CorruptHFile);
        assert!(error.message().ends_with(wanted), "{error}");
        assert!(error.message().contains(&format!("{NAME} at offset 0: ")), "{error}");
        assert_eq!(reader.checksum_failures(), 1);
    };
    faulty.write_side_sums();
    faulty.damage(60);
    assert_error("the checksum does not match (the file system's own checksum does not match either)");
    faulty.write_side_sums();
    assert_error(
        "the checksum does not match (the file system's own checksum matches: it was written with this error)",
    );
    std::fs::remove_file(side(&faulty.path)).unwrap();
    assert_error("the checksum does not match");
}

#[test]
fn an_error_of_the_second_read_is_returned() {
    let faulty = FaultyFile::new();
    let reader = faulty.open().unwrap();
    faulty.fs.inject(Fault::on(Op::Read, NAME).times(1).flips(60, 1));
    faulty.fs.inject(Fault::on(Op::Read, NAME).times(1).fails(std::io::ErrorKind::TimedOut));
    let error = faulty.scan(&reader).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert_eq!(faulty.scan(&reader).unwrap(), faulty.cells);
}

#[test]
fn a_wrong_crc_file_does_not_make_a_file_unreadable() {
    let faulty = FaultyFile::new();
    faulty.write_side_sums();
    let mut sums = std::fs::read(side(&faulty.path)).unwrap();
    sums[9] ^= 1;
    std::fs::write(side(&faulty.path), sums).unwrap();
    let reader = faulty.open().unwrap();
    faulty.fs.inject(Fault::on(Op::Read, NAME).times(1).flips(60, 1));
    assert_eq!(faulty.scan(&reader).unwrap(), faulty.cells);
    assert!(faulty.fs.list(faulty.path.parent().unwrap()).unwrap().iter().all(|file| file.name() == NAME));
}
