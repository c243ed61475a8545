//! The checksum files of Hadoop's local file system, `.NAME.crc` beside the file `NAME`.
//!
//! ```text
//! "crc" 0x00 | i32 bytes per checksum (512 by default) | u32 CRC-32 of each chunk ...
//! ```
//!
//! # Writers
//! Hadoop's tools write checksum files. A stock HBase server does not: it disables them when it
//! opens a local file system (HBASE-11218). Nor does Evenkeel. Readers that verify checksums
//! (Hadoop's tools) reject a file that does not match its checksum file, and accept one without.
//!
//! # The invariant
//! A checksum file always belongs to the present contents of its file: [`crate::LocalFileSystem`]
//! renames it with the file, and removes it when the file is removed or replaced. The order of the
//! steps ensures that a crash leaves a file without checksums rather than with those of other
//! bytes.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crc_fast::crc32_iso_hdlc;

use crate::StorageChecksum;

/// Bytes of the magic and of the bytes per checksum.
const HEADER_BYTES: usize = 8;
const MAGIC: [u8; 4] = *b"crc\0";
const CHECKSUM_BYTES: usize = 4;
/// Larger chunks indicate corruption; Hadoop's default is 512.
const CHUNK_BYTES_MAX: usize = 16 << 20;

/// The path of the checksum file of `path`.
pub(crate) fn path_of(path: &Path) -> Option<PathBuf> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name()?);
    name.push(".crc");
    Some(path.with_file_name(name))
}

/// Returns true if a name is that of a checksum file, by Hadoop's rule.
pub(crate) fn is_checksum_name(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(".crc")
}

/// Removes the checksum file of `path`.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    let Some(sums) = path_of(path) else { return Ok(()) };
    match fs::remove_file(sums) {
        Err(e) if !matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Err(e),
        _ => Ok(()),
    }
}

/// Renames the checksum file of a file that was renamed. The target's was removed before.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let (Some(from), Some(to)) = (path_of(from), path_of(to)) else { return Ok(()) };
    match fs::rename(from, to) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Fills `buf` from `offset` of an open file, and compares the bytes with the checksum file of
/// `path`.
pub(crate) fn read(
    file: &File,
    len: u64,
    path: &Path,
    offset: u64,
    buf: &mut [u8],
) -> io::Result<StorageChecksum> {
    let Some(sums) = ChecksumFile::open(path)? else {
        file.read_exact_at(buf, offset)?;
        return Ok(StorageChecksum::Absent);
    };
    let end = offset + buf.len() as u64;
    let first = offset / sums.chunk_bytes as u64;
    let whole_start = first * sums.chunk_bytes as u64;
    let whole_end = end.next_multiple_of(sums.chunk_bytes as u64).min(len).max(end);
    let mut whole = vec![0; crate::index(whole_end - whole_start)?];
    file.read_exact_at(&mut whole, whole_start)?;
    let skipped = crate::index(offset - whole_start)?;
    let wanted = whole.get(skipped..skipped + buf.len());
    buf.copy_from_slice(wanted.ok_or(io::ErrorKind::UnexpectedEof)?);
    // The checksums of a file of another length belong to other bytes.
    if !sums.matches_len(len) || !sums.matches(&whole, first)? {
        return Ok(StorageChecksum::Differs);
    }
    Ok(StorageChecksum::Matches)
}

struct ChecksumFile {
    file: File,
    len: u64,
    chunk_bytes: usize,
}

impl ChecksumFile {
    /// `None` if there is no checksum file, or if its header is invalid, as in Hadoop.
    fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = match path_of(path).map(File::open) {
            Some(Ok(file)) => file,
            Some(Err(e)) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => return Ok(None),
        };
        let len = file.metadata()?.len();
        let mut header = [0; HEADER_BYTES];
        if len < HEADER_BYTES as u64 {
            return Ok(None);
        }
        file.read_exact_at(&mut header, 0)?;
        let [a, b, c, d, e, f, g, h] = header;
        let chunk_bytes = u32::from_be_bytes([e, f, g, h]) as usize;
        let is_sums = [a, b, c, d] == MAGIC && (1..=CHUNK_BYTES_MAX).contains(&chunk_bytes);
        Ok(is_sums.then_some(Self { file, len, chunk_bytes }))
    }

    fn matches_len(&self, file_len: u64) -> bool {
        let sums = file_len.div_ceil(self.chunk_bytes as u64);
        self.len == HEADER_BYTES as u64 + sums * CHECKSUM_BYTES as u64
    }

    /// Returns true if whole chunks, from the chunk `first` on, match their checksums.
    fn matches(&self, chunks: &[u8], first: u64) -> io::Result<bool> {
        let mut sums = vec![0; chunks.len().div_ceil(self.chunk_bytes) * CHECKSUM_BYTES];
        self.file.read_exact_at(&mut sums, HEADER_BYTES as u64 + first * CHECKSUM_BYTES as u64)?;
        let mut pairs = chunks.chunks(self.chunk_bytes).zip(sums.chunks_exact(CHECKSUM_BYTES));
        Ok(pairs.all(|(chunk, sum)| crc32_iso_hdlc(chunk).to_be_bytes() == sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateOptions, FileSystem, LocalFileSystem};

    const NEW: CreateOptions = CreateOptions { overwrite: false, parents: true, ..CreateOptions::SMALL };

    fn write_with_sums(path: &Path, bytes: &[u8]) {
        let fs = LocalFileSystem::new();
        let mut file = fs.create(path, NEW).expect("create");
        file.append(bytes).expect("append");
        file.sync().expect("sync");
        let mut sums = [&MAGIC[..], &512u32.to_be_bytes()].concat();
        bytes.chunks(512).for_each(|chunk| sums.extend_from_slice(&crc32_iso_hdlc(chunk).to_be_bytes()));
        fs::write(path_of(path).expect("a name"), sums).expect("sums");
    }

    fn ask(path: &Path, offset: u64, bytes: &mut [u8]) -> StorageChecksum {
        LocalFileSystem::new().open(path).expect("open").read_verified_at(offset, bytes).expect("read")
    }

    #[test]
    fn checksums_match_only_the_original_bytes() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("f");
        let bytes: Vec<u8> = (0..1300).map(|i| (i * 7) as u8).collect();
        write_with_sums(&path, &bytes);
        for (offset, len) in [(0, 1300), (511, 2), (512, 512), (1299, 1), (1024, 276), (700, 0)] {
            let mut buf = vec![0; len];
            assert_eq!(ask(&path, offset as u64, &mut buf), StorageChecksum::Matches, "{offset} {len}");
            assert_eq!(buf, bytes[offset..offset + len]);
        }
        let mut changed = bytes.clone();
        changed[600] ^= 1;
        fs::write(&path, &changed).expect("changed");
        assert_eq!(ask(&path, 0, &mut [0; 512]), StorageChecksum::Matches);
        let mut buf = [0; 1];
        assert_eq!(ask(&path, 1000, &mut buf), StorageChecksum::Differs, "the whole chunk counts");
        assert_eq!(buf[0], bytes[1000], "the bytes are handed out nonetheless");
        fs::write(&path, &bytes[..1000]).expect("cut");
        assert_eq!(ask(&path, 0, &mut [0; 10]), StorageChecksum::Differs, "sums of a longer file");
    }

    #[test]
    fn malformed_checksum_files_are_ignored() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("f");
        write_with_sums(&path, &[5; 100]);
        for junk in
            [&b""[..], b"crc", b"xyz\0\0\0\x02\0aaaa", b"crc\0\0\0\0\0aaaa", b"crc\0\xff\xff\xff\xffaaaa"]
        {
            fs::write(path_of(&path).expect("a name"), junk).expect("junk");
            assert_eq!(ask(&path, 0, &mut [0; 10]), StorageChecksum::Absent, "{junk:?}");
        }
    }

    #[test]
    fn a_checksum_file_follows_its_file() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        let fs = LocalFileSystem::new();
        write_with_sums(&a, &[1; 600]);
        write_with_sums(&b, &[2; 600]);
        fs.rename(&a, &b).expect("rename");
        assert_eq!(ask(&b, 0, &mut [0; 600]), StorageChecksum::Matches);
        assert!(!path_of(&a).expect("a name").exists());
        // A file without checksums replaces one that has them.
        fs.write_atomically(&b, b"other").expect("written");
        assert_eq!(ask(&b, 0, &mut [0; 5]), StorageChecksum::Absent);
        write_with_sums(&a, &[1; 600]);
        fs.create(&a, CreateOptions { overwrite: true, parents: false, ..CreateOptions::SMALL })
            .expect("created again");
        assert!(!path_of(&a).expect("a name").exists());
        // The checksum file of a file that another program removed.
        fs::write(path_of(&a).expect("a name"), b"crc\0").expect("stale");
        fs::remove_file(&a).expect("removed");
        fs.create(&a, NEW).expect("made");
        assert!(!path_of(&a).expect("a name").exists());
        write_with_sums(&dir.path().join("c"), b"x");
        let names: Vec<_> = fs.list(dir.path()).expect("list").iter().map(|s| s.name().to_owned()).collect();
        assert_eq!(names, ["a", "b", "c"], "sums are no files of their own");
        fs.delete(&dir.path().join("c")).expect("deleted");
        assert!(!dir.path().join(".c.crc").exists());
    }
}
