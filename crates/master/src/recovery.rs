//! WALs of earlier lives: split into `recovered.edits` of their regions, then moved to `oldWALs`.
//!
//! Every directory below `WALs/` belongs to a server that is dead, since this process holds the
//! root directory. A crash half way loses nothing: a file is moved only when all its edits are in
//! finished files, and splitting it again gives the same files.
//!
//! Nonces are taken from every entry, also of regions that were split or merged since, and of edits
//! that are in store files: a client may repeat an Increment at the region that has the row now.
//!
//! A damaged WAL, and a file that is no WAL at all, goes to `corrupt` instead, which no cleaner
//! deletes from. Every entry of a damaged WAL that can be read is recovered, also behind the
//! damage; the log names what is lost ([`evenkeel_wal::Gap`]).

use std::path::Path;
use std::sync::Arc;

use evenkeel_common::clock;
use evenkeel_common::length;
use evenkeel_common::{Result, TableName};
use evenkeel_fs::{FileStatus, FileSystem};
use evenkeel_region::layout::{self, CORRUPT_DIR};
use evenkeel_region::region::nonce::{NonceKey, NonceManager};
use evenkeel_wal::names;
use evenkeel_wal::split::{SplitOptions, StoreSeqIds, split_wal};

/// How many bytes of edits may gather in memory (`hbase.regionserver.hlog.splitlog.buffersize`).
const BUFFER_BYTES_MAX: usize = 128 << 20;
/// Tells the temporary files of this process from another's.
const WORKER: &str = "standalone";

/// What was found and recovered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Files split.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Entries in them.
    pub entries: u64,
    /// Files with damage, in which some entries are lost.
    pub damaged: u64,
}

/// Splits every WAL below `<root>/WALs`, and restores the nonces of all entries.
///
/// # Errors
/// `IOException` from the file system; the next start goes on where this one ended.
pub fn split_wals(fs: &Arc<dyn FileSystem>, root: &Path, nonces: &NonceManager) -> Result<Recovered> {
    let (wals, started) = (root.join(layout::WALS_DIR), clock::monotonic());
    fs.mkdirs(&wals)?;
    fs.mkdirs(&root.join(layout::OLD_WALS_DIR))?;
    let mut recovered = Recovered::default();
    for server in fs.list(&wals)?.into_iter().filter(|entry| entry.is_dir) {
        let mut files = fs.list(&server.path)?;
        files.retain(|file| !file.is_dir);
        for file in &files {
            split_one(&**fs, root, file, nonces, &mut recovered)?;
        }
        fs.delete(&server.path)?;
    }
    if recovered.files > 0 {
        let ms = length::whole_ms(started.elapsed());
        let Recovered { files, bytes, entries, damaged } = recovered;
        tracing::info!(files, bytes, entries, damaged, ms, "WALs of an earlier life split");
    }
    Ok(recovered)
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
            "a WAL is damaged: its edits are put back but for those in the gaps, the file is kept in {CORRUPT_DIR}"
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

/// Removes a directory that holds nothing.
///
/// # Errors
/// `IOException` from the file system.
pub fn remove_if_empty(fs: &dyn FileSystem, dir: &Path) -> Result<()> {
    if fs.exists(dir)? && fs.list(dir)?.is_empty() {
        fs.delete(dir)?;
    }
    Ok(())
}
