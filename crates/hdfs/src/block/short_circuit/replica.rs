//! [`LocalReplica`]: the two files of a replica, as a DataNode passed them.
//!
//! ```text
//! data file: the bytes of the block
//! meta file: int16 version = 1 | byte checksum type | int32 bytes per checksum | checksums
//! ```
//!
//! Numbers are big-endian. There is one checksum for each chunk of the data file, the last one
//! possibly shorter.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::io::ReadWriteFlags;

use crate::block::packet::{Checksum, Mismatch};
use crate::hadoop::hdfs::ChecksumProto;

/// The length of the header of a meta file.
const META_HEADER_BYTES: usize = 7;

/// The version of a meta file's format.
const META_VERSION: i16 = 1;

/// At most this many bytes are verified at a time, except for one larger chunk.
const PIECE_BYTES: usize = 1 << 20;

/// Whether a read may wait for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskWait {
    /// It may.
    Allowed,
    /// Only bytes in the page cache are read; otherwise the read fails with `WouldBlock`.
    Never,
}

/// A replica of a finished block on this machine. It stays readable if the DataNode deletes or
/// moves it.
#[derive(Debug)]
pub(crate) struct LocalReplica {
    data: File,
    meta: File,
    checksum: Checksum,
}

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

impl LocalReplica {
    /// Takes the descriptors of a data file of at least `bytes` bytes and of its meta file.
    ///
    /// # Errors
    /// `InvalidData` if they are not regular files, or not a block and its checksums; an error of
    /// the disk.
    pub(crate) fn new(data: OwnedFd, meta: OwnedFd, bytes: u64) -> io::Result<Self> {
        let (data, meta) = (File::from(data), File::from(meta));
        let (data_status, meta_status) = (data.metadata()?, meta.metadata()?);
        if !data_status.is_file() || !meta_status.is_file() {
            return Err(invalid("a descriptor that is not a file"));
        }
        if data_status.len() < bytes {
            return Err(invalid(format!("a replica of {} bytes, {bytes} expected", data_status.len())));
        }
        let mut header = [0; META_HEADER_BYTES];
        read_exact(&meta, 0, &mut header, DiskWait::Allowed)?;
        let checksum = checksum_of(header)?;
        let (meta_bytes, wanted) = (meta_status.len(), meta_bytes(checksum, bytes));
        if meta_bytes < wanted {
            return Err(invalid(format!("a meta file of {meta_bytes} bytes, {wanted} expected")));
        }
        Ok(Self { data, meta, checksum })
    }

    /// A replica of these bytes.
    #[cfg(test)]
    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        tests::replica(2, 512, bytes)
    }

    /// Fills `buf` from `offset` of the block, and compares it with the checksums if `verify` is
    /// set.
    ///
    /// # Errors
    /// A [`Mismatch`]; `WouldBlock` if the read would wait and may not; `UnexpectedEof` if a file
    /// is too short; an error of the disk.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8], verify: bool, wait: DiskWait) -> io::Result<()> {
        let (Checksum::Crc32(chunk) | Checksum::Crc32c(chunk)) = self.checksum else {
            return read_exact(&self.data, offset, buf, wait);
        };
        if !verify {
            return read_exact(&self.data, offset, buf, wait);
        }
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            done += self.read_piece(offset + done as u64, rest, chunk, wait)?;
        }
        Ok(())
    }

    /// Reads and verifies the first bytes of `buf`; returns their number, at least one.
    fn read_piece(&self, offset: u64, buf: &mut [u8], chunk: usize, wait: DiskWait) -> io::Result<usize> {
        let piece_max = (PIECE_BYTES / chunk).max(1) * chunk;
        let in_chunk = usize::try_from(offset % chunk as u64).unwrap_or(0);
        let start = offset - in_chunk as u64;
        if in_chunk == 0
            && let Some(whole) = buf.get_mut(..(buf.len() / chunk * chunk).min(piece_max))
            && !whole.is_empty()
        {
            read_exact(&self.data, start, whole, wait)?;
            self.verify(start, whole, chunk, wait)?;
            return Ok(whole.len());
        }
        let wanted = in_chunk.saturating_add(buf.len()).div_ceil(chunk).saturating_mul(chunk).min(piece_max);
        let mut piece = vec![0; wanted];
        let read = read_some(&self.data, start, &mut piece, wait)?;
        piece.truncate(read);
        self.verify(start, &piece, chunk, wait)?;
        let found = piece.get(in_chunk..).unwrap_or_default();
        let len = found.len().min(buf.len());
        match (found.get(..len), buf.get_mut(..len)) {
            (Some(found), Some(target)) if len > 0 => target.copy_from_slice(found),
            _ => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        Ok(len)
    }

    /// Compares data that begins on a chunk boundary with its checksums.
    fn verify(&self, offset: u64, data: &[u8], chunk: usize, wait: DiskWait) -> io::Result<()> {
        let mut sums = vec![0; self.checksum.sums_len(data.len())];
        let at = META_HEADER_BYTES as u64 + offset / chunk as u64 * 4;
        read_exact(&self.meta, at, &mut sums, wait)?;
        match self.checksum.matches(data, &sums) {
            true => Ok(()),
            false => Err(io::Error::other(Mismatch { offset })),
        }
    }
}

/// Returns the length of the meta file of a block of `bytes` bytes.
fn meta_bytes(checksum: Checksum, bytes: u64) -> u64 {
    let sums = match checksum {
        Checksum::Null => 0,
        Checksum::Crc32(chunk) | Checksum::Crc32c(chunk) => bytes.div_ceil(chunk as u64),
    };
    sums.saturating_mul(4).saturating_add(META_HEADER_BYTES as u64)
}

fn checksum_of(header: [u8; META_HEADER_BYTES]) -> io::Result<Checksum> {
    let [v0, v1, kind, b0, b1, b2, b3] = header;
    let version = i16::from_be_bytes([v0, v1]);
    if version != META_VERSION {
        return Err(invalid(format!("a meta file of version {version}")));
    }
    let bytes_per_checksum = u32::from_be_bytes([b0, b1, b2, b3]);
    Checksum::of(&ChecksumProto { r#type: i32::from(kind), bytes_per_checksum })
}

/// Fills `buf`; `UnexpectedEof` if the file ends first.
fn read_exact(file: &File, offset: u64, buf: &mut [u8], wait: DiskWait) -> io::Result<()> {
    match read_some(file, offset, buf, wait)? {
        read if read == buf.len() => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Fills `buf`, or reads up to the end of the file; returns the number of bytes.
fn read_some(file: &File, offset: u64, buf: &mut [u8], wait: DiskWait) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
        let read = match wait {
            DiskWait::Allowed => file.read_at(rest, offset + done as u64),
            DiskWait::Never => read_cached(file, offset + done as u64, rest),
        };
        match read {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

#[cfg(target_os = "linux")]
fn read_cached(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut buf = [IoSliceMut::new(buf)];
    Ok(rustix::io::preadv2(file, &mut buf, offset, ReadWriteFlags::NOWAIT)?)
}

/// Other systems do not report what is in the page cache.
#[cfg(not(target_os = "linux"))]
fn read_cached(_: &File, _: u64, _: &mut [u8]) -> io::Result<usize> {
    Err(io::ErrorKind::WouldBlock.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use crc_fast::{crc32_iscsi, crc32_iso_hdlc};

    use super::*;

    fn file(bytes: &[u8]) -> OwnedFd {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(bytes).expect("written");
        file.into()
    }

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 31 % 251) as u8).collect()
    }

    fn meta(kind: u8, chunk: u32, data: &[u8]) -> Vec<u8> {
        let mut out = vec![0, 1, kind];
        out.extend(chunk.to_be_bytes());
        if kind > 0 {
            let crc = if kind == 1 { crc32_iso_hdlc } else { crc32_iscsi };
            data.chunks(chunk as usize).for_each(|data| out.extend(crc(data).to_be_bytes()));
        }
        out
    }

    pub(super) fn replica(kind: u8, chunk: u32, data: &[u8]) -> LocalReplica {
        LocalReplica::new(file(data), file(&meta(kind, chunk, data)), data.len() as u64).expect("a replica")
    }

    #[test]
    fn ranges_are_read_at_any_offset_and_length() {
        let data = bytes(2_500_001);
        for replica in [replica(2, 512, &data), replica(1, 4096, &data), replica(0, 0, &data)] {
            for (offset, len) in [
                (0, data.len()),
                (0, 1),
                (511, 2),
                (512, 512),
                (1000, 3000),
                (data.len() - 1, 1),
                (data.len() - 700, 700),
                (1_048_000, 1_100_000),
            ] {
                for verify in [true, false] {
                    let mut buf = vec![0xee; len];
                    replica.read(offset as u64, &mut buf, verify, DiskWait::Allowed).expect("read");
                    assert!(buf == data[offset..offset + len], "{offset}, {len}");
                }
            }
            let beyond = replica.read(data.len() as u64 - 1, &mut [0; 2], true, DiskWait::Allowed);
            assert_eq!(beyond.expect_err("too far").kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn changed_bytes_are_noticed_in_their_chunk_only() {
        let data = bytes(5000);
        let mut changed = data.clone();
        changed[1600] ^= 1;
        let replica = LocalReplica::new(file(&changed), file(&meta(2, 512, &data)), 5000).expect("a replica");
        let read = |offset: u64, len: usize, verify| {
            replica.read(offset, &mut vec![0; len], verify, DiskWait::Allowed)
        };
        for (offset, len) in [(1600, 1), (0, 5000), (1536, 512), (1700, 10)] {
            let error = read(offset, len, true).expect_err("a mismatch");
            assert!(crate::block::packet::is_mismatch(&error), "{error}");
            read(offset, len, false).expect("without checksums");
        }
        read(0, 1536, true).expect("before it");
        read(2048, 2952, true).expect("after it");
    }

    #[test]
    fn what_is_not_a_replica_is_refused() {
        let data = bytes(1000);
        let good = meta(2, 512, &data);
        for bad in
            [&[][..], &good[..6], &[0, 2, 2, 0, 0, 2, 0], &[0, 1, 7, 0, 0, 2, 0], &[0, 1, 2, 0, 0, 0, 0]]
        {
            assert!(LocalReplica::new(file(&data), file(bad), 1000).is_err(), "{bad:?}");
        }
        assert!(LocalReplica::new(file(&data), file(&good), 1001).is_err(), "too short");
        let (pipe, _writer) = io::pipe().expect("a pipe");
        assert!(LocalReplica::new(pipe.into(), file(&good), 0).is_err(), "a pipe");
        for len in [7, 11, 14] {
            let short = LocalReplica::new(file(&data), file(&good[..len]), 1000);
            assert!(short.is_err(), "a meta file of {len} bytes");
        }
        let short = LocalReplica::new(file(&data), file(&good[..11]), 512).expect("a replica");
        assert!(short.read(0, &mut [0; 10], true, DiskWait::Allowed).is_ok());
        let error = short.read(600, &mut [0; 10], true, DiskWait::Allowed).expect_err("no checksum");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn cached_bytes_are_read_without_waiting() {
        let data = bytes(10_000);
        let replica = replica(2, 512, &data);
        let mut buf = vec![0; 3000];
        match replica.read(100, &mut buf, true, DiskWait::Never) {
            Ok(()) => assert!(buf == data[100..3100]),
            // A file system without support refuses every such read.
            Err(_) => assert!(replica.read(0, &mut [0], false, DiskWait::Never).is_err()),
        }
    }
}
