//! Secondary replicas: regions that read the store files of the default replica
//! (`REGION_REPLICATION` above 1).
//!
//! A secondary replica has a name of its own, and the directory of the default replica. It changes
//! nothing on the file system: it writes no `.regioninfo`, `.seqid` file or marker, replays no
//! recovered edits, deletes no temporary files, archives nothing, and neither flushes nor compacts.
//! Its writes are rejected as those of a read-only table. Its reads show what the default replica
//! had flushed at the last refresh ([`Region::refresh_store_files`]), and the edits that were
//! replayed since.
//!
//! **A refresh** finds the files of every family, opens the new ones, and swaps the files of all
//! families at once. A read sees either all files of a refresh or none. The read point moves first,
//! to the greatest sequence id of the files, because a scanner skips younger cells. The edits up to
//! that id are replayed before the swap if they are at hand ([`Region::refresh_after`]), so that no
//! read sees a row's new cells of one family only.
//!
//! **Replayed edits** ([`Region::replay_entry`]) are those of the default replica's log entries,
//! with their sequence ids, in the order of these ids. Cells that are in files already are skipped,
//! by the sequence id of each store's files, and so is an entry that was replayed before. The cells
//! of an entry become visible at once, because the read point moves last. A refresh drops the cells
//! that are in files now in the same swap that shows the files, so no read misses a cell.
//!
//! **Gaps.** Edits that were made before the replica opened, or that were lost on the way, are in
//! files after the next flush of the default replica. Until a refresh has read these files, later
//! edits are added to the MemStore, but not shown ([`Region::resume_replay`]): a reader never sees
//! an edit without an earlier one. A replica begins with a gap that has no end yet, and replays
//! nothing. If files of some families would show edits behind a gap that they do not fill, these
//! edits are dropped, and the gap has no end again.
//!
//! **Crashes.** A server can send edits that are lost with it. Then another one opens the default
//! replica with a smaller sequence id, and uses those of the lost edits again. They are dropped
//! when the opening is replayed ([`Region::replay_open`]).
//!
//! **Memory.** Only a refresh frees the memory of replayed edits. While refreshes fail, the server
//! lets the replica replay nothing ([`Region::block_replay`]), and may drop what it has replayed
//! ([`Region::drop_replayed`]).
//!
//! **Files ahead of the edits.** A refresh shows all files that it finds. If edits were lost, or a
//! sender is behind, a file of one family may have edits whose cells in other families come later:
//! until then a read sees a part of these edits. HBase shows only the files of the markers that it
//! has replayed, but its periodic refresh has the same effect.
//!
//! **Files that vanish.** The default replica may archive a file while it is read here. An open
//! file can be read until the archive's cleaner deletes it, and a file that is opened is also
//! looked up in the archive. So a refresh must succeed more often than the cleaner's time to live.
//! If the periodic refresh does not, it disables reads ([`Region::set_reads_enabled`]). A flush
//! that fails deletes the files that it has installed: if a refresh has found them before, the
//! replayed cells in them are missing until the next flush.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use evenkeel_common::{CellBuffer, HBaseError, RegionInfo, Result, TableDescriptor};

use super::open::{largest_seq_id_file, open_stores};
use super::{Phase, Region, RegionEnv};
use crate::layout;
use crate::store::StoreFile;

/// What a secondary replica has replayed, by sequence ids.
#[derive(Debug)]
pub(super) struct ReplayState {
    /// Edits up to here may be missing, unless they are in files; `u64::MAX` while nothing is
    /// replayed.
    gap_end: u64,
    /// Every edit up to here is in the files that are read.
    in_files: u64,
    /// The last edit that was added to the MemStore.
    replayed: u64,
    /// The last edit that was handed over; those that were not added are missing.
    offered: u64,
    /// The last opening of the default replica that was replayed; 0 if there was none.
    opened: u64,
    /// The first edit in the MemStore that is not shown, because of a gap; `u64::MAX` if there is
    /// none.
    hidden_from: u64,
    /// True while refreshes fail: nothing is replayed.
    is_blocked: bool,
    /// True if a flush was requested for the replica since it opened.
    is_flush_requested: bool,
}

impl Default for ReplayState {
    fn default() -> Self {
        Self {
            gap_end: u64::MAX,
            in_files: 0,
            replayed: 0,
            offered: 0,
            opened: 0,
            hidden_from: u64::MAX,
            is_blocked: false,
            is_flush_requested: false,
        }
    }
}

impl ReplayState {
    fn has_gap(&self) -> bool {
        self.in_files < self.gap_end
    }

    /// Returns true if a default replica opens with a sequence id that was handed over already, for
    /// an edit or for a flush. Then that edit and the later ones were lost with a server. A
    /// repeated or former opening loses nothing.
    fn is_crash(&self, seq_id: u64) -> bool {
        self.opened > 0 && seq_id > self.opened && seq_id < self.offered.max(self.in_files)
    }
}

/// Returns the greatest sequence id of files, those of cells included.
fn newest_of<'a>(files: impl Iterator<Item = &'a Arc<StoreFile>>) -> u64 {
    files.map(|file| file.max_seq_id().max(file.max_cell_seq_id())).max().unwrap_or(0)
}

impl Region {
    /// Opens a secondary replica. Its sequence id is that of the default replica's directory.
    pub(super) fn open_secondary(
        env: Arc<RegionEnv>,
        info: RegionInfo,
        table: Arc<TableDescriptor>,
    ) -> Result<Arc<Self>> {
        let dir = layout::region_dir(&env.stores.root, &info);
        if !env.stores.fs.exists(&dir)? {
            let dir = dir.display();
            return Err(HBaseError::io(format!("The specified region do not exists on disk: {dir}")));
        }
        let stores = open_stores(&env, &info, &table)?;
        let seq_id_file = largest_seq_id_file(&env, &info)?;
        let region = Arc::new(Self::with_stores(env, info, table, stores, seq_id_file));
        let next = region.mvcc.write_point() + 1;
        region.open_seq_num.store(next, Ordering::Relaxed);
        region.mvcc.advance_to(next);
        let name = region.info.name_text();
        tracing::info!(region = %name, open_seq_num = next, "secondary replica of a region opened");
        Ok(region)
    }

    /// Returns true if this is a secondary replica.
    pub fn is_secondary(&self) -> bool {
        !self.info.is_primary()
    }

    /// Finds the files of the default replica, and reads them from now on. Returns true if they
    /// differ from those before. Does nothing for the default replica.
    ///
    /// # Errors
    /// `NotServingRegionException`, and `IOException` from the file system: the files are those
    /// before.
    pub fn refresh_store_files(&self) -> Result<bool> {
        self.refresh_after(0, |_| ())
    }

    /// As [`Region::refresh_store_files`], when the default replica has told that every edit up to
    /// `flushed` is in files. Before it reads the new files, it calls `replay` with their greatest
    /// sequence id, which replays the edits up to there.
    ///
    /// # Errors
    /// As [`Region::refresh_store_files`].
    pub fn refresh_after(&self, flushed: u64, replay: impl FnOnce(u64)) -> Result<bool> {
        if self.info.is_primary() {
            return Ok(false);
        }
        // Only a refresh takes this lock here.
        let _one = self.compacting.lock();
        if self.is_closed() {
            return Err(self.not_serving());
        }
        let found = self.stores.iter().map(|store| store.find_files()).collect::<Result<Vec<_>>>()?;
        let is_changed = found.iter().any(Option::is_some);
        let newest = newest_of(found.iter().flatten().flatten());
        replay(newest.max(flushed));
        let mut replayed = self.replayed.lock();
        if is_changed || flushed > replayed.in_files {
            self.swap_found(found, newest, flushed, &mut replayed);
        }
        replayed.is_blocked = false;
        drop(replayed);
        self.archive_compacted().map(|_| is_changed)
    }

    /// Reads these files from now on, and drops the replayed cells that are in them.
    fn swap_found(
        &self,
        found: Vec<Option<Vec<Arc<StoreFile>>>>,
        newest: u64,
        flushed: u64,
        replayed: &mut ReplayState,
    ) {
        let in_files_before = replayed.in_files;
        replayed.in_files = in_files_before.max(flushed);
        let drops_hidden = replayed.has_gap() && newest >= replayed.hidden_from;
        let kept_through = if drops_hidden { self.mvcc.read_point() } else { replayed.replayed };
        let segments: Vec<_> = (self.stores.iter().zip(&found))
            .map(|(store, files)| {
                let of_new = files.iter().flatten().map(|file| file.max_seq_id()).max();
                let before = in_files_before.max(store.max_seq_id());
                let in_files = flushed.max(of_new.unwrap_or(0));
                let is_newer = in_files > before || drops_hidden;
                is_newer.then(|| store.kept_segment(in_files, kept_through)).flatten()
            })
            .collect();
        if drops_hidden {
            replayed.gap_end = u64::MAX;
        }
        if drops_hidden || !replayed.has_gap() {
            replayed.hidden_from = u64::MAX;
        }
        let shown = if replayed.has_gap() { 0 } else { replayed.replayed };
        self.with_new_epoch(|| {
            self.mvcc.advance_to(newest.max(shown));
            for ((store, files), segment) in self.stores.iter().zip(found).zip(segments) {
                store.swap_found(files, segment);
            }
        });
        let in_files = self.stores.iter().map(|store| store.max_seq_id()).max().unwrap_or(0);
        self.max_flushed_seq_id.store(in_files, Ordering::Relaxed);
        self.last_flush_seq_id.store(in_files, Ordering::Relaxed);
    }

    /// Replays a log entry of the default replica. Entries come in the order of their sequence ids;
    /// an entry out of order was replayed before, or is in files. Returns true if the MemStore has
    /// the entry now, and not before.
    ///
    /// # Errors
    /// `NotServingRegionException`.
    pub fn replay_entry(&self, seq_id: u64, cells: &CellBuffer) -> Result<bool> {
        let mut replayed = self.replayed.lock();
        let updates = self.updates.read();
        if *updates != Phase::Open {
            return Err(self.not_serving());
        }
        replayed.offered = replayed.offered.max(seq_id);
        if seq_id <= replayed.gap_end.max(replayed.in_files).max(replayed.replayed) {
            return Ok(false);
        }
        for cell in cells.iter() {
            if let Some(store) = self.store_of(cell.family())
                && seq_id > store.max_seq_id()
            {
                store.add(&cell.with_seq_id(seq_id));
            }
        }
        replayed.replayed = seq_id;
        match replayed.has_gap() {
            true => replayed.hidden_from = replayed.hidden_from.min(seq_id),
            false => self.mvcc.advance_to(seq_id),
        }
        Ok(true)
    }

    /// Replays the opening of a default replica, whose files have every edit up to `seq_id`; begins
    /// to replay later ones. Drops later ones of before, if an earlier opening was replayed: a
    /// server may send edits that are not in the log yet (`ASYNC_WAL`), and after its crash another
    /// one uses the sequence ids again. Returns true if files differ from those before.
    ///
    /// # Errors
    /// As [`Region::refresh_store_files`].
    pub fn replay_open(&self, seq_id: u64) -> Result<bool> {
        let is_crash = self.replayed.lock().is_crash(seq_id);
        if self.is_replay_suspended() && !is_crash {
            self.resume_replay(seq_id);
        }
        let is_changed = self.refresh_after(seq_id, |_| ())?;
        let mut replayed = self.replayed.lock();
        if is_crash {
            (replayed.replayed, replayed.offered, replayed.in_files) = (seq_id, seq_id, seq_id);
            (replayed.gap_end, replayed.hidden_from) = (seq_id, u64::MAX);
            self.drop_segments();
            tracing::info!(region = %self.info.name_text(), seq_id, "edits that a server has lost are dropped");
        }
        replayed.opened = replayed.opened.max(seq_id);
        Ok(is_changed)
    }

    /// Begins or continues to replay: edits up to `seq_id` may be missing, later ones will be
    /// replayed. They are shown when [`Region::refresh_after`] was told that those up to `seq_id`
    /// are in files, and so are all that were handed over before. Does nothing while the replay is
    /// blocked.
    pub fn resume_replay(&self, seq_id: u64) {
        let mut replayed = self.replayed.lock();
        if !replayed.is_blocked {
            // Two senders may hand over edits: those of a new default replica come before the rest
            // of the log of the one before.
            let seq_id = seq_id.max(replayed.offered);
            let gap_end = Some(replayed.gap_end).filter(|end| *end < u64::MAX);
            replayed.gap_end = gap_end.map_or(seq_id, |end| end.max(seq_id));
        }
    }

    /// Makes [`Region::resume_replay`] ineffective until a refresh succeeds, and replays nothing:
    /// files could not be read, and so the memory of replayed edits would not be freed.
    pub fn block_replay(&self) {
        let mut replayed = self.replayed.lock();
        (replayed.is_blocked, replayed.gap_end) = (true, u64::MAX);
    }

    /// Returns true between [`Region::block_replay`] and the next successful refresh.
    pub fn is_replay_blocked(&self) -> bool {
        self.replayed.lock().is_blocked
    }

    /// Drops all replayed edits, and replays nothing until [`Region::resume_replay`]. Reads show
    /// the files only, which may be older than what they have shown before.
    pub fn drop_replayed(&self) {
        let mut replayed = self.replayed.lock();
        (replayed.gap_end, replayed.hidden_from) = (u64::MAX, u64::MAX);
        self.drop_segments();
    }

    /// Drops all replayed edits, for a caller that excludes others.
    fn drop_segments(&self) {
        let segments: Vec<_> = self.stores.iter().map(|store| store.kept_segment(u64::MAX, 0)).collect();
        self.with_new_epoch(|| {
            for (store, segment) in self.stores.iter().zip(segments) {
                store.swap_found(None, segment);
            }
        });
    }

    /// Returns true for the first call: no flush was requested yet for the edits of before the
    /// replica opened.
    pub fn request_first_flush(&self) -> bool {
        !std::mem::replace(&mut self.replayed.lock().is_flush_requested, true)
    }

    /// Replays nothing until [`Region::resume_replay`], because edits were lost. The replayed edits
    /// stay visible.
    pub fn suspend_replay(&self) {
        self.replayed.lock().gap_end = u64::MAX;
    }

    /// Returns true if nothing is replayed.
    pub fn is_replay_suspended(&self) -> bool {
        self.replayed.lock().gap_end == u64::MAX
    }

    /// Lets reads proceed, or makes them fail with an `IOException`. A scanner that is open already
    /// goes on.
    pub fn set_reads_enabled(&self, enabled: bool) {
        let disabled = !enabled;
        if self.reads_disabled.swap(disabled, Ordering::AcqRel) == disabled {
            return;
        }
        // A reader of several rows does not reuse a scanner of other views.
        self.stores.iter().for_each(|store| store.renew_views());
        tracing::info!(region = %self.info.name_text(), enabled, "reads of a secondary replica");
    }

    /// Rejects a read while reads are disabled.
    pub(super) fn check_reads_enabled(&self) -> Result<()> {
        if !self.reads_disabled.load(Ordering::Relaxed) {
            return Ok(());
        }
        let name = self.info.encoded_name();
        Err(HBaseError::io(format!("{name}: The region's reads are disabled. Cannot serve the request")))
    }
}
