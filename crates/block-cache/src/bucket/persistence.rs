//! The files of a cache that outlives its process.
//!
//! ```text
//! INDEX   superblock (4,096 bytes) | slots of shard 0 | slots of shard 1 | ...
//! DATA    frames; each shard is a range of one file
//!
//! superblock  8 bytes "EVKCACHE" | u32 format | u32 frame format | u32 shards | u32 slots a shard
//!             u64 bytes a shard | u32 files
//! ```
//!
//! The slots are mapped and changed in place. So a shutdown writes nothing, a start reads nothing
//! else, and a killed process leaves its cache intact. The kernel writes the pages back in any
//! order. After a crash of the machine, inconsistent blocks fail their checks and are dropped one
//! by one.
//!
//! An index of another format or geometry is replaced by an empty one. The index file is locked: a
//! cache belongs to one process.

#![deny(clippy::indexing_slicing)]

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame;
use super::mapping::Mapping;
use super::slot::Slots;

/// Bytes of the superblock: a page, so that slots are aligned.
pub(crate) const SUPERBLOCK_BYTES: usize = 4096;
const MAGIC: &[u8; 8] = b"EVKCACHE";
const FORMAT: u32 = 1;

/// The layout of a cache's files. A cache with another geometry is not taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub shards: u32,
    pub slots: u32,
    pub shard_bytes: u64,
    pub files: u32,
}

impl Geometry {
    fn superblock(self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for word in [FORMAT, u32::from(frame::FORMAT), self.shards, self.slots] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(self.shard_bytes.to_ne_bytes());
        bytes.extend(self.files.to_ne_bytes());
        bytes
    }

    fn index_bytes(self) -> usize {
        SUPERBLOCK_BYTES + self.shards as usize * Slots::bytes(self.slots)
    }
}

/// The mapped index. Its lock is held while this exists.
pub(crate) struct IndexFile {
    pub file: File,
    pub mapping: Arc<Mapping>,
}

/// Opens the index of a cache, or creates an empty one.
///
/// # Errors
/// `WouldBlock` if another process holds the lock; I/O errors.
pub(crate) fn open_index(path: &Path, geometry: Geometry) -> io::Result<IndexFile> {
    let file = open(path)?;
    file.try_lock()
        .map_err(|_| io::Error::new(io::ErrorKind::WouldBlock, "the cache is in use by another process"))?;
    let superblock = geometry.superblock();
    let mut found = vec![0; superblock.len()];
    let whole = file.metadata()?.len() == geometry.index_bytes() as u64;
    let is_current = whole && read_start(&file, &mut found).is_ok() && found == superblock;
    if !is_current {
        file.set_len(0)?;
        reserve(&file, geometry.index_bytes() as u64)?;
        std::os::unix::fs::FileExt::write_all_at(&file, &superblock, 0)?;
    }
    let mapping = Arc::new(Mapping::of_file(&file, geometry.index_bytes())?);
    Ok(IndexFile { file, mapping })
}

/// Opens a file for frames and reserves its bytes.
///
/// # Errors
/// I/O errors, usually a full disk.
pub(crate) fn open_data(path: &Path, bytes: u64) -> io::Result<File> {
    let file = open(path)?;
    if file.metadata()?.len() != bytes {
        file.set_len(bytes)?;
    }
    reserve(&file, bytes)?;
    Ok(file)
}

/// The index path of a data file if none is configured.
pub(crate) fn index_path(data: &Path) -> PathBuf {
    let mut path = data.as_os_str().to_owned();
    path.push(".index");
    path.into()
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

fn read_start(file: &File, bytes: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, 0)
}

/// Reserves the file's space. Touching a mapped page without space would end the process.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let bytes = i64::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: a call on an open file without pointers.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}
