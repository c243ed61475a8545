//! Opening and closing a region.
//!
//! Opening: create the directory, write `.regioninfo`, finish interrupted bulk loads, open the
//! stores, replay `recovered.edits`, flush the replayed cells, adopt `recovered.hfiles` (which
//! HBase's log split writes instead of edits, if configured so), record the sequence id in a
//! `.seqid` file, log REGION_OPEN. Closing: flush if the MemStore is large, so that the flush after
//! the next step is short; refuse writes, flush, archive the compacted files, log REGION_CLOSE. A
//! region that is opened twice replays no edit twice: it skips edits at or below the sequence ids
//! of a store's files, and deletes edit files once their cells are flushed.
//!
//! **A closed region's directory contains served files only**, even if a reader still held a
//! compacted file. A stock master splits, merges and snapshots a closed region by a listing of its
//! directory. A compacted file among them would bring back deleted cells: in a daughter its name
//! has a suffix, so the file that replaces it no longer names it.
//!
//! **Replay begins after the `.seqid` file.** Its number is written after a complete flush: at the
//! end of an open, when the replayed cells are in files, and at the end of a close. So an edit at
//! or below it is in a store file, or its family was deleted since. The second case matters: a
//! family that is deleted and added again is a new store without files. Its greatest sequence id is
//! 0, while logs still hold the edits of the old family.
//!
//! **A `.seqid` file bounds the edits beside it only.** One below the other directory says nothing
//! about them: it may be of a time before `hbase.wal.dir` was changed, or a stock server may have
//! run without it, and numbered its edits from the store files on. As the first sequence id of an
//! open, the greatest number of both directories counts.
//!
//! **Two directories of edits.** Recovered edits and the `.seqid` file are in a region's directory
//! below the root directory of the logs (`hbase.wal.dir`). Those of a time before that setting are
//! below `hbase.rootdir`, so both are read, as in HBase. The files of both are replayed in the
//! order of their sequence ids: a flush in the middle of a replay records that all edits up to its
//! sequence id are in files.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use evenkeel_common::clock;
use evenkeel_common::length;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use evenkeel_common::{
    CellComparator, ColumnFamilyDescriptor, HBaseError, KeyValue, RegionInfo, Result, TableDescriptor,
};
use evenkeel_fs::{CreateOptions, FileStatus, FileSystem};
use evenkeel_protocol::pb::region_event_descriptor::EventType;
use evenkeel_protocol::{PB_MAGIC, pb};
use evenkeel_wal::markers::{self, Marker};
use evenkeel_wal::{ReadError, WalEnd, WalReader};
use parking_lot::{Mutex, RwLock};
use prost::Message;

use super::bulk_load::{adopt_loads, manifest};
use super::flush::in_memory::InMemoryFlushSchedule;
use super::flush::policy::FlushSelection;
use super::flush::{FlushLock, FlushSeqId};
use super::mvcc::Mvcc;
use super::nonce::NonceKey;
use super::row_cache::RowCache;
use super::row_lock::RowLocks;
use super::split_policy::BlockedWrites;
use super::{Phase, Region, RegionEnv};
use crate::layout;
use crate::store::{Store, StoreEnv};

/// The maximum bytes of a `.regioninfo` that is read back.
const REGION_INFO_BYTES_MAX: u64 = 1 << 20;

impl Region {
    /// Opens a region. It is ready to be served afterwards. A replica other than the default one
    /// changes nothing on the file system.
    ///
    /// # Errors
    /// `IOException` from the file system, for an unknown store file tracker, for damaged or lost
    /// lists of store files, and for a family that must be encrypted; `CorruptHFileException` for a
    /// damaged store file.
    pub fn open(env: Arc<RegionEnv>, info: RegionInfo, table: Arc<TableDescriptor>) -> Result<Arc<Self>> {
        let started = clock::monotonic();
        check_encryption(&table)?;
        if !info.is_primary() {
            return Self::open_secondary(env, info, table);
        }
        let dir = layout::region_dir(&env.stores.root, &info);
        write_region_info(&*env.stores.fs, &dir, &info)?;
        let loaded = manifest::finish_all(&*env.stores.fs, &dir)?;
        let stores = open_stores(&env, &info, &table)?;
        adopt_loads(&stores, &loaded)?;
        stores.iter().try_for_each(|store| store.archive_unlisted().map(drop))?;
        let seq_id_file = largest_seq_id_file(&env, &info)?;
        let region = Arc::new(Self::with_stores(env, info, table, stores, seq_id_file));
        let replayed = region.replay()?;
        region.load_recovered_files()?;
        region.finish_open()?;
        region.log_finished_loads(loaded)?;
        tracing::info!(
            region = %region.info.name_text(),
            open_seq_num = region.open_seq_num(),
            replayed,
            ms = length::whole_ms(clock::since(started)),
            "region opened"
        );
        Ok(region)
    }

    /// Creates a region of opened stores, before its edits are replayed. `seq_id_file` is the
    /// number of its `.seqid` file.
    pub(super) fn with_stores(
        env: Arc<RegionEnv>,
        info: RegionInfo,
        table: Arc<TableDescriptor>,
        stores: Vec<Arc<Store>>,
        seq_id_file: u64,
    ) -> Self {
        let comparator = if info.is_meta() { CellComparator::Meta } else { CellComparator::Default };
        let in_files = stores.iter().map(|s| s.max_seq_id()).max().unwrap_or(0);
        let of_cells = stores.iter().map(|s| s.max_cell_seq_id()).max().unwrap_or(0);
        let start = in_files.max(of_cells).max(seq_id_file);
        let flush_bytes = table.memstore_flush_bytes().unwrap_or_else(|| env.config.current_flush_bytes());
        let first_flush_jitter_bytes =
            flush_bytes / 4 / 256 * u64::from(flush_jitter_of(info.encoded_name()));
        let chunk_bytes = env.stores.chunks.sizes().chunk_bytes;
        let in_memory_bytes =
            env.stores.config.in_memory.threshold_bytes(chunk_bytes, flush_bytes, stores.len());
        let metrics = env.stores.metrics.of_table(info.table());
        let appends = env.wal.table_appends(info.table());
        let blocked_writes = BlockedWrites::new(env.stores.clock.now_ms());
        let flush_selection = FlushSelection::new(&env.config.flush_policy, &table);
        let cell_bytes_max = env.config.cell_bytes_max_of(&table);
        let timestamp_slop_ms = env.config.timestamp_slop_ms_of(&table);
        let replica_stream = env.config.replication.stream_of(&info, &table);
        Self {
            operation_times: env.operation_times.of_table(info.table()),
            row_locks: RowLocks::new(env.config.row_lock_wait),
            row_cache: info.is_primary().then(|| RowCache::open(&env.stores, &info, &table)).flatten(),
            is_read_only: table.is_read_only() || !info.is_primary(),
            reads_disabled: AtomicBool::new(false),
            replayed: Mutex::default(),
            env,
            encoded_name: info.encoded_name().to_owned().into(),
            info,
            table,
            comparator,
            in_memory: InMemoryFlushSchedule::new(&stores, in_memory_bytes),
            stores,
            mvcc: Arc::new(Mvcc::new(start).with_order_recorded(replica_stream.is_some())),
            replica_stream,
            updates: RwLock::new(Phase::Open),
            flushing: FlushLock::default(),
            compacting: Mutex::new(()),
            bulk_loading: Mutex::new(()),
            unfinished: Mutex::default(),
            epoch: AtomicU64::new(0),
            swapping: Mutex::new(()),
            open_seq_num: AtomicU64::new(0),
            max_flushed_seq_id: AtomicU64::new(in_files),
            last_flush_seq_id: AtomicU64::new(in_files),
            first_flush_jitter_bytes: AtomicU64::new(first_flush_jitter_bytes),
            flush_selection,
            counts: Arc::default(),
            blocked_writes,
            cell_bytes_max,
            timestamp_slop_ms,
            unlogged_flushed: Default::default(),
            metrics,
            appends,
        }
    }

    fn finish_open(self: &Arc<Self>) -> Result<()> {
        let next = self.mvcc.write_point() + 1;
        write_seq_id_file(&self.env, &self.info, next - 1)?;
        self.open_seq_num.store(next, Ordering::Relaxed);
        self.log_event(EventType::RegionOpen)
    }

    /// Replays the edits of a dead server's WALs that are in no store file, and above the `.seqid`
    /// file beside them. Returns the number of cells.
    fn replay(self: &Arc<Self>) -> Result<u64> {
        let files = recovered_edit_files(&self.env, &self.info)?;
        // Taken before the first replayed cell is flushed, because edit files may overlap.
        let in_files: Vec<u64> = self.stores.iter().map(|s| s.max_seq_id()).collect();
        let (mut cells, mut damaged) = (0, Vec::new());
        for file in &files {
            let settled = seq_id_file_of(&**file.fs, file.root, &self.info)?;
            let in_files: Vec<u64> = in_files.iter().map(|in_files| settled.max(*in_files)).collect();
            let (of_file, is_damaged) = self.replay_file(file.fs, &file.path, &in_files)?;
            cells += of_file;
            damaged.extend(is_damaged.then_some(file));
        }
        if cells > 0 {
            self.flush_locked(FlushSeqId::Current)?;
        }
        damaged.into_iter().try_for_each(|file| self.quarantine_edits(file))?;
        for file in &files {
            file.fs.delete(&file.path)?;
        }
        Ok(cells)
    }

    /// Moves a damaged edit file to the directory of corrupt files, where it replaces none. Its
    /// readable edits are replayed.
    fn quarantine_edits(&self, EditFile { fs, root, path }: &EditFile<'_>) -> Result<()> {
        let dir = root.join(layout::CORRUPT_DIR);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{}-{name}", self.info.encoded_name());
        fs.mkdirs(&dir)?;
        let (mut to, mut attempt) = (dir.join(&name), 0_u32);
        while fs.exists(&to)? {
            attempt += 1;
            to = dir.join(format!("{name}.{attempt}"));
        }
        Ok(fs.rename(path, &to)?)
    }

    /// Replays a file. Returns the number of cells, and whether a part of the file was unreadable.
    fn replay_file(
        self: &Arc<Self>,
        fs: &Arc<dyn FileSystem>,
        path: &Path,
        in_files: &[u64],
    ) -> Result<(u64, bool)> {
        let mut reader = WalReader::open(&**fs, path)?;
        let (mut count, mut is_damaged) = (0, false);
        loop {
            let entry = match reader.next() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(ReadError::Corrupt { .. }) => {
                    let Some(gap) = reader.skip_damage()? else { break };
                    tracing::error!(file = %path.display(), "edits to replay are lost: {gap}");
                    is_damaged = true;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let key = NonceKey { group: entry.nonce_group, nonce: entry.nonce };
            self.env.nonces.restore(key, entry.write_time_ms);
            for cell in entry.cells {
                if markers::is_compaction(&cell.as_cell()) {
                    self.replay_compaction(&cell)?;
                    continue;
                }
                count += u64::from(self.replay_cell(cell, entry.seq_id, in_files));
            }
            self.mvcc.advance_to(entry.seq_id);
            if self.needs_flush() {
                self.flush_locked(FlushSeqId::Current)?;
            }
        }
        if let Some(WalEnd::Torn { bytes }) = reader.end() {
            tracing::error!(file = %path.display(), bytes, "a file of edits to replay is truncated in the middle of an entry");
            is_damaged = true;
        }
        Ok((count, is_damaged))
    }

    fn replay_cell(&self, mut cell: KeyValue, seq_id: u64, in_files: &[u64]) -> bool {
        let family = cell.as_cell().family();
        let at = self.stores.iter().zip(in_files).find(|(store, _)| store.family().name() == family);
        let Some((store, _)) = at.filter(|(_, in_files)| seq_id > **in_files) else { return false };
        cell.set_seq_id(seq_id);
        store.add(&cell.as_cell());
        true
    }

    /// Removes the files that a compaction had replaced when the server died. The marker may belong
    /// to a parent region or a deleted family. An unreadable marker is skipped (markers are not
    /// synced), because the compaction's output itself names the files it replaces.
    fn replay_compaction(&self, cell: &KeyValue) -> Result<()> {
        let marker = match markers::parse(&cell.as_cell()) {
            Ok(Some(Marker::Compaction(marker))) => marker,
            Ok(_) => return Ok(()),
            Err(error) => {
                let region = self.info.name_text();
                tracing::error!(%region, %error, "a compaction's marker is unreadable and is skipped");
                return Ok(());
            }
        };
        if marker.encoded_region_name != self.encoded_name {
            return Ok(());
        }
        let Some(store) = self.store_of(&marker.family_name) else { return Ok(()) };
        let files = store.replay_compaction(&marker.compaction_input)?;
        if files > 0 {
            tracing::info!(region = %self.info.name_text(), files, "files that were compacted before a crash are archived");
        }
        Ok(())
    }

    /// Adopts the store files that a log split wrote.
    fn load_recovered_files(&self) -> Result<()> {
        for store in &self.stores {
            let seq_id = store.load_recovered_files()?;
            self.mvcc.advance_to(seq_id);
        }
        Ok(())
    }

    /// Closes the region: later calls get `NotServingRegionException`. With `abort`, it flushes
    /// nothing and the WAL keeps the unflushed edits.
    ///
    /// # Errors
    /// `NotServingRegionException` if it is closed already, and `IOException` from the flush or the
    /// log. The region stays open then, because no other instance may be opened while cells are
    /// only in this one's MemStore.
    pub fn close(self: &Arc<Self>, abort: bool) -> Result<()> {
        let preclose_flush_bytes = self.env.config.preclose_flush_bytes_of(&self.table);
        if !abort && self.memstore_size().data_bytes > preclose_flush_bytes {
            self.flush()?;
        }
        self.cancel_compactions(true);
        let closed = self.close_exclusive(abort);
        if closed.is_err() && !self.is_closed() {
            self.cancel_compactions(false);
        }
        self.evict_rows();
        closed
    }

    /// Accepts requests again after a [`Region::close`] that flushed, without any I/O: for a change
    /// that required a closed region and was not made. No other instance of the region may have
    /// served or flushed anything since.
    pub fn resume(&self) {
        self.stores.iter().for_each(|store| store.resume());
        *self.updates.write() = Phase::Open;
        self.cancel_compactions(false);
        tracing::info!(region = %self.info.name_text(), "region accepts requests again");
    }

    /// Writes a file without cells for each family of a closed region. It makes a later replay skip
    /// all edits before the close, also by stock HBase, which does not read the `.seqid` file. So
    /// the other files may be removed.
    ///
    /// # Errors
    /// `IOException` from the file system. Some of the files may then exist; they change no read.
    pub fn write_empty_files(&self) -> Result<()> {
        let seq_id = self.mvcc.write_point();
        self.stores.iter().try_for_each(|store| store.write_empty_file(seq_id))
    }

    fn cancel_compactions(&self, cancel: bool) {
        self.stores.iter().for_each(|store| store.cancel_compactions(cancel));
    }

    /// The part of a close that excludes flushes and compactions.
    fn close_exclusive(self: &Arc<Self>, abort: bool) -> Result<()> {
        if !self.info.is_primary() {
            return self.reject_requests();
        }
        let _no_compaction = self.compacting.lock();
        let no_flush = self.flushing.lock();
        if !abort {
            self.finish_pending_load(&no_flush)?;
        }
        self.reject_requests()?;
        if abort {
            return Ok(());
        }
        self.mvcc.wait_for(self.mvcc.write_point());
        let flushed = self.flush_locked(FlushSeqId::Next);
        if let Err(error) = flushed.and_then(|_| self.archive_all_compacted()).and_then(|()| self.log_close())
        {
            *self.updates.write() = Phase::Open;
            tracing::error!(region = %self.info.name_text(), %error, "region cannot be closed");
            return Err(error);
        }
        self.env.wal.region_closed(&self.encoded_name);
        tracing::info!(region = %self.info.name_text(), "region closed");
        Ok(())
    }

    fn reject_requests(&self) -> Result<()> {
        let mut phase = self.updates.write();
        if *phase == Phase::Closed {
            return Err(self.not_serving());
        }
        *phase = Phase::Closed;
        Ok(())
    }

    fn log_close(self: &Arc<Self>) -> Result<()> {
        self.log_event(EventType::RegionClose)?;
        write_seq_id_file(&self.env, &self.info, self.mvcc.write_point())
    }

    /// Returns true if the region is closed.
    pub fn is_closed(&self) -> bool {
        *self.updates.read() == Phase::Closed
    }
}

/// Refuses tables whose files must be encrypted: they would be written in plain text.
fn check_encryption(table: &TableDescriptor) -> Result<()> {
    let is_encrypted =
        |family: &&ColumnFamilyDescriptor| family.text("ENCRYPTION").is_some_and(|cipher| !cipher.is_empty());
    match table.families().find(is_encrypted) {
        None => Ok(()),
        Some(family) => Err(HBaseError::io(format!(
            "table {}: encryption of column family {} is not supported",
            table.name(),
            family.name_text()
        ))),
    }
}

pub(super) fn open_stores(
    env: &Arc<RegionEnv>,
    info: &RegionInfo,
    table: &TableDescriptor,
) -> Result<Vec<Arc<Store>>> {
    let stores = StoreEnv { config: env.stores.config.for_table(table), ..env.stores.clone() };
    let opened: Result<Vec<_>> =
        table.families().map(|family| Store::open(&stores, family.clone(), info)).collect();
    if let (Ok(opened), Some(changed)) = (&opened, env.config.changed.stores()) {
        let of_table = changed.for_table(table);
        opened.iter().for_each(|store| store.change_compaction_config(&of_table));
    }
    opened
}

/// Writes `.regioninfo`, PBUF and a length-delimited RegionInfo, into a region's directory, which
/// it creates if missing. It rewrites the file if its content differs.
///
/// # Errors
/// `IOException` from the file system.
pub fn write_region_info(fs: &dyn FileSystem, dir: &Path, info: &RegionInfo) -> Result<()> {
    let path = dir.join(layout::REGION_INFO_FILE);
    let mut bytes = PB_MAGIC.to_vec();
    bytes.extend(pb::RegionInfo::from(info).encode_length_delimited_to_vec());
    if fs.exists(&path)? && fs.read_all(&path, REGION_INFO_BYTES_MAX)? == bytes {
        return Ok(());
    }
    fs.mkdirs(dir)?;
    Ok(fs.write_atomically(&path, &bytes)?)
}

/// A file of recovered edits.
struct EditFile<'a> {
    fs: &'a Arc<dyn FileSystem>,
    /// The root directory that it is below.
    root: &'a Path,
    path: PathBuf,
}

/// Returns the directory of a region's recovered edits below a root directory.
fn recovered_edits_dir(root: &Path, info: &RegionInfo) -> PathBuf {
    layout::region_dir(root, info).join(layout::RECOVERED_EDITS_DIR)
}

fn list_edits(fs: &dyn FileSystem, root: &Path, info: &RegionInfo) -> Result<Vec<FileStatus>> {
    let dir = recovered_edits_dir(root, info);
    Ok(if fs.exists(&dir)? { fs.list(&dir)? } else { Vec::new() })
}

/// Returns the edit files in the order of their sequence ids: files whose names are all digits.
fn recovered_edit_files<'a>(env: &'a RegionEnv, info: &RegionInfo) -> Result<Vec<EditFile<'a>>> {
    let mut files = Vec::new();
    for (fs, root) in env.edit_roots() {
        let edits = list_edits(&**fs, root, info)?.into_iter().filter(|f| !f.is_dir && all_digits(f.name()));
        files.extend(edits.map(|file| EditFile { fs, root, path: file.path }));
    }
    files.sort_by(|a, b| a.path.file_name().cmp(&b.path.file_name()));
    Ok(files)
}

/// Returns true if a region has edits of a dead server's logs to replay.
///
/// # Errors
/// `IOException` from the file system.
pub fn has_recovered_edits(env: &RegionEnv, info: &RegionInfo) -> Result<bool> {
    Ok(!recovered_edit_files(env, info)?.is_empty())
}

fn all_digits(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit())
}

fn seq_id_of(name: &str) -> Option<u64> {
    name.strip_suffix(".seqid").or_else(|| name.strip_suffix("_seqid"))?.parse().ok()
}

/// Returns the number of a region's `.seqid` file below the root directories of its edits.
pub(super) fn largest_seq_id_file(env: &RegionEnv, info: &RegionInfo) -> Result<u64> {
    env.edit_roots().try_fold(0, |largest, (fs, root)| Ok(seq_id_file_of(&**fs, root, info)?.max(largest)))
}

/// As [`largest_seq_id_file`], below one root directory; 0 if there is none.
fn seq_id_file_of(fs: &dyn FileSystem, root: &Path, info: &RegionInfo) -> Result<u64> {
    largest_seq_id(fs, &recovered_edits_dir(root, info))
}

fn largest_seq_id(fs: &dyn FileSystem, dir: &Path) -> Result<u64> {
    let files = if fs.exists(dir)? { fs.list(dir)? } else { Vec::new() };
    Ok(files.into_iter().filter_map(|file| seq_id_of(file.name())).max().unwrap_or(0))
}

/// Records the highest sequence id of a region in the name of an empty file, below the root
/// directory of the logs (`WALSplitUtil.writeRegionSequenceIdFile`). Deletes older ones there.
///
/// # Errors
/// `IOException` from the file system.
pub fn write_seq_id_file(env: &RegionEnv, info: &RegionInfo, seq_id: u64) -> Result<()> {
    let (fs, root) = env.wal_root();
    write_seq_id(&**fs, &recovered_edits_dir(root, info), seq_id)
}

/// Copies the `.seqid` file with the greatest number from a directory of a region to its directory
/// below another root directory, unless a greater one is there. So the region's sequence ids do not
/// go back when its logs move to that root directory.
///
/// # Errors
/// `IOException` from the file system.
pub fn copy_seq_id_file(
    (from_fs, from): (&dyn FileSystem, &Path),
    (to_fs, to): (&dyn FileSystem, &Path),
) -> Result<()> {
    let seq_id = largest_seq_id(from_fs, &from.join(layout::RECOVERED_EDITS_DIR))?;
    let to = to.join(layout::RECOVERED_EDITS_DIR);
    match seq_id > largest_seq_id(to_fs, &to)? {
        true => write_seq_id(to_fs, &to, seq_id),
        false => Ok(()),
    }
}

fn write_seq_id(fs: &dyn FileSystem, dir: &Path, seq_id: u64) -> Result<()> {
    fs.mkdirs(dir)?;
    let path = dir.join(format!("{seq_id}.seqid"));
    if !fs.exists(&path)? {
        let options = CreateOptions { overwrite: true, parents: true, ..CreateOptions::SMALL };
        let mut file = fs.create(&path, options)?;
        file.sync()?;
        file.close()?;
    }
    for old in fs.list(dir)?.iter().filter(|f| seq_id_of(f.name()).is_some_and(|id| id < seq_id)) {
        fs.delete(&old.path)?;
    }
    Ok(())
}

impl Region {
    fn log_event(&self, event: EventType) -> Result<()> {
        let logged = self.log_marker(|number| Marker::RegionEvent(self.region_event(event, number)));
        logged.map_err(|e| e.context("region event"))
    }

    /// Returns the message of a REGION_OPEN marker that lists all files. It says that every edit
    /// before `seq_id` is in them.
    pub fn open_event(&self, seq_id: u64) -> pb::RegionEventDescriptor {
        self.region_event(EventType::RegionOpen, seq_id)
    }

    fn region_event(&self, event: EventType, seq_id: u64) -> pb::RegionEventDescriptor {
        let store = |store: &Arc<Store>| {
            let family: Bytes = store.family().name().to_vec().into();
            pb::StoreDescriptor {
                store_home_dir: store.family().name_text(),
                store_file: store.files().into_iter().map(|f| f.name).collect(),
                family_name: family,
                store_file_size_bytes: None,
            }
        };
        pb::RegionEventDescriptor {
            event_type: event.into(),
            table_name: self.info.table().to_string().into(),
            encoded_region_name: self.encoded_name.clone(),
            log_sequence_number: Some(seq_id),
            stores: self.stores.iter().map(store).collect(),
            server: Some((&self.env.server).into()),
            region_name: Some(self.info.name().clone()),
        }
    }
}

/// Returns a pseudo-random number that is constant for a region: its encoded name is a hash in
/// hexadecimal digits.
fn flush_jitter_of(encoded_name: &str) -> u8 {
    encoded_name.bytes().fold(0, |sum: u8, byte| sum.wrapping_mul(31).wrapping_add(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::WalRoot;
    use crate::region::testing::region;
    use crate::store::testing::{family, region as region_info};

    /// The environment of a region, with logs below `/wals`.
    fn env_with_wal_root() -> RegionEnv {
        let env = Arc::clone(&region().env);
        RegionEnv {
            stores: env.stores.clone(),
            wal: Arc::clone(&env.wal),
            wal_root: Some(WalRoot { fs: Arc::clone(&env.stores.fs), path: "/wals".into() }),
            config: env.config.clone(),
            server: env.server.clone(),
            nonces: Arc::clone(&env.nonces),
            events: Arc::clone(&env.events),
            operation_times: Arc::default(),
        }
    }

    #[test]
    fn edits_below_both_roots_are_in_the_order_of_their_sequence_ids() {
        let (env, info) = (env_with_wal_root(), region_info());
        let write = |root: &Path, names: &[&str]| {
            for name in names {
                let path = recovered_edits_dir(root, &info).join(name);
                env.stores.fs.write_atomically(&path, b"x").expect("written");
            }
        };
        assert_eq!(has_recovered_edits(&env, &info), Ok(false));
        assert_eq!(largest_seq_id_file(&env, &info), Ok(0));
        write(&env.stores.root, &["0000000000000000012", "0000000000000000031", "25.seqid"]);
        write(
            Path::new("/wals"),
            &["0000000000000000020", "0000000000000000040", "0000000000000000041-w.temp"],
        );
        let files = recovered_edit_files(&env, &info).expect("listed");
        let found: Vec<_> =
            files.iter().map(|file| (file.root == env.stores.root, file.path.clone())).collect();
        let at = |root: &Path, name: &str| recovered_edits_dir(root, &info).join(name);
        let expected = [
            (true, at(&env.stores.root, "0000000000000000012")),
            (false, at(Path::new("/wals"), "0000000000000000020")),
            (true, at(&env.stores.root, "0000000000000000031")),
            (false, at(Path::new("/wals"), "0000000000000000040")),
        ];
        assert_eq!(found, expected);
        assert_eq!(has_recovered_edits(&env, &info), Ok(true));
        assert_eq!(largest_seq_id_file(&env, &info), Ok(25));
        write_seq_id_file(&env, &info, 40).expect("written");
        assert_eq!(largest_seq_id_file(&env, &info), Ok(40));
        assert_eq!(env.stores.fs.exists(&at(Path::new("/wals"), "40.seqid")).ok(), Some(true));
        let below = |root: &Path| (seq_id_file_of(&*env.stores.fs, root, &info)).expect("listed");
        assert_eq!((below(&env.stores.root), below(Path::new("/wals"))), (25, 40));
    }

    #[test]
    fn a_copied_seq_id_file_does_not_go_back() {
        let fs = &*region().env.stores.fs;
        let [left, new] = ["/left/r", "/new/r"].map(Path::new);
        let names = || {
            let files = fs.list(&new.join(layout::RECOVERED_EDITS_DIR)).unwrap_or_default();
            files.iter().map(|file| file.name().to_owned()).collect::<Vec<_>>()
        };
        copy_seq_id_file((fs, left), (fs, new)).expect("there is none");
        assert_eq!(names(), Vec::<String>::new());
        for (seq_id, expected) in [(7, "7.seqid"), (3, "7.seqid"), (12, "12.seqid")] {
            fs.delete(left).expect("deleted");
            write_seq_id(fs, &left.join(layout::RECOVERED_EDITS_DIR), seq_id).expect("written");
            copy_seq_id_file((fs, left), (fs, new)).expect("copied");
            assert_eq!(names(), [expected]);
        }
    }

    #[test]
    fn a_table_that_must_be_encrypted_is_not_opened() {
        let env = Arc::clone(&region().env);
        let open = |cipher: &str| {
            let family = family(b"f", &[("ENCRYPTION", cipher)]);
            let table = TableDescriptor::new("t".parse().expect("legal")).with_family(family);
            Region::open(Arc::clone(&env), region_info(), Arc::new(table))
        };
        assert!(open("").is_ok());
        assert!(open("AES").expect_err("refused").to_string().contains("encryption"));
    }
}
