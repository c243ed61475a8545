//! WALs of earlier processes: split into `recovered.edits` of their regions, then moved to
//! `oldWALs`.
//!
//! Every directory below `WALs/` belongs to a dead server, since this process holds the lock of the
//! root directory. On HDFS there is no lock, and the server may be alive. So its directory is
//! renamed first, as HBase's master does, which prevents it from creating another log. The lease of
//! each log is recovered before it is read, which prevents further writes. A crash half way loses
//! nothing: a WAL is moved only when all its edits are in finished files, and splitting it again
//! produces the same files.
//!
//! Nonces are restored from every entry, also of regions that were split or merged since, and of
//! edits that are already in store files: a client may retry an Increment at the region that has
//! the row today.
//!
//! A damaged WAL, and a file that is not a WAL, goes to `corrupt` instead, from which no cleaner
//! deletes. Every readable entry of a damaged WAL is recovered, also entries after the damage; the
//! log lists what is lost ([`evenkeel_wal::Gap`]).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_common::clock;
use evenkeel_common::length;
use evenkeel_common::{Result, TableName};
use evenkeel_fs::{FileStatus, FileSystem};
use evenkeel_region::layout::{self, CORRUPT_DIR};
use evenkeel_region::region::nonce::{NonceKey, NonceManager};
use evenkeel_wal::names;
use evenkeel_wal::split::{SplitOptions, StoreSeqIds, split_wal};

/// The limit on bytes of edits buffered in memory (`hbase.regionserver.hlog.splitlog.buffersize`).
const BUFFER_BYTES_MAX: usize = 128 << 20;
/// Distinguishes the temporary files of this process from those of other processes.
const WORKER: &str = "standalone";

/// Statistics of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Files split.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Entries in them.
    pub entries: u64,
    /// Damaged files; some of their entries are lost.
    pub damaged: u64,
}

/// Splits every WAL below `<root>/WALs`, and restores the nonces of all entries.
///
/// # Errors
/// Returns I/O errors of the file system; the next start continues where this one stopped.
pub fn split_wals(fs: &Arc<dyn FileSystem>, root: &Path, nonces: &NonceManager) -> Result<Recovered> {
    let (wals, started) = (root.join(layout::WALS_DIR), clock::monotonic());
    fs.mkdirs(&wals)?;
    fs.mkdirs(&root.join(layout::OLD_WALS_DIR))?;
    let mut recovered = Recovered::default();
    for server in fs.list(&wals)?.into_iter().filter(|entry| entry.is_dir) {
        let dir = fence(&**fs, &server)?;
        let mut files = fs.list(&dir)?;
        files.retain(|file| !file.is_dir);
        // Takes all files from their writer without waiting: their recoveries run side by side.
        files.iter().for_each(|file| drop(fs.recover(&file.path, &|| false)));
        for file in &files {
            split_one(&**fs, root, file, nonces, &mut recovered)?;
        }
        fs.delete(&dir)?;
    }
    if recovered.files > 0 {
        let ms = length::whole_ms(started.elapsed());
        let Recovered { files, bytes, entries, damaged } = recovered;
        tracing::info!(files, bytes, entries, damaged, ms, "WALs of an earlier process split");
    }
    Ok(recovered)
}

/// Renames the directory of a server that may live, so that it can create no file there. Returns
/// where it is now.
fn fence(fs: &dyn FileSystem, server: &FileStatus) -> Result<PathBuf> {
    if !fs.is_remote() || server.name().ends_with(names::SPLITTING_SUFFIX) {
        return Ok(server.path.clone());
    }
    let dir = server.path.with_file_name(format!("{}{}", server.name(), names::SPLITTING_SUFFIX));
    fs.rename(&server.path, &dir)?;
    Ok(dir)
}

fn split_one(
    fs: &dyn FileSystem,
    root: &Path,
    file: &FileStatus,
    nonces: &NonceManager,
    recovered: &mut Recovered,
) -> Result<()> {
    if !names::is_wal_name(file.name()) {
        tracing::warn!(file = %file.path.display(), "not a WAL; left in {CORRUPT_DIR}");
        return archive(fs, &root.join(CORRUPT_DIR), file);
    }
    let outcome = split_wal(SplitOptions {
        fs,
        wal: &file.path,
        worker: WORKER,
        last_flushed: &mut |_| Ok(StoreSeqIds::default()),
        region_dir: &mut |region: &[u8], table: &TableName| {
            let dir = layout::table_dir(root, table).join(&*String::from_utf8_lossy(region));
            Ok(if fs.exists(&dir)? { Some(dir) } else { None })
        },
        on_entry: &mut |entry| {
            let key = NonceKey { group: entry.nonce_group, nonce: entry.nonce };
            nonces.restore(key, entry.write_time_ms);
        },
        should_continue: &mut || true,
        buffer_bytes_max: BUFFER_BYTES_MAX,
    })?;
    if let Some(damage) = &outcome.corrupt {
        let bytes: u64 = outcome.gaps.iter().map(|gap| gap.to - gap.from).sum();
        tracing::error!(
            damage,
            gaps = outcome.gaps.len(),
            bytes,
            "a WAL is damaged: its edits are recovered except those in the gaps; the file is kept in {CORRUPT_DIR}"
        );
    }
    recovered.files += 1;
    recovered.damaged += u64::from(outcome.corrupt.is_some());
    recovered.bytes += file.len;
    recovered.entries += outcome.entries;
    let dir = if outcome.corrupt.is_some() { CORRUPT_DIR } else { layout::OLD_WALS_DIR };
    archive(fs, &root.join(dir), file)
}

fn archive(fs: &dyn FileSystem, dir: &Path, file: &FileStatus) -> Result<()> {
    fs.mkdirs(dir)?;
    fs.touch(&file.path)?;
    Ok(fs.rename(&file.path, &dir.join(file.name()))?)
}

/// Removes a directory if it is empty.
///
/// # Errors
/// `IOException` from the file system.
pub fn remove_if_empty(fs: &dyn FileSystem, dir: &Path) -> Result<()> {
    if fs.exists(dir)? && fs.list(dir)?.is_empty() {
        fs.delete(dir)?;
    }
    Ok(())
}
