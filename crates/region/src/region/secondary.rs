//! Secondary replicas: regions that read the store files of the default replica
//! (`REGION_REPLICATION` above 1).
//!
//! A secondary replica has a name of its own, and the directory of the default replica. It changes
//! nothing on the file system: it writes no `.regioninfo`, `.seqid` file or marker, replays no
//! recovered edits, deletes no temporary files, archives nothing, and neither flushes nor compacts.
//! Its writes are rejected as those of a read-only table. Its reads show what the default replica
//! had flushed at the last refresh ([`Region::refresh_store_files`]).
//!
//! **A refresh** finds the files of every family, opens the new ones, and swaps the files of all
//! families at once. A read sees either all files of a refresh or none. The read point moves first,
//! to the greatest sequence id of the files, because a scanner skips younger cells.
//!
//! **Files that vanish.** The default replica may archive a file while it is read here. An open
//! file can be read until the archive's cleaner deletes it, and a file that is opened is also
//! looked up in the archive. So a refresh must succeed more often than the cleaner's time to live.
//! If it does not, reads are disabled ([`Region::set_reads_enabled`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use evenkeel_common::{HBaseError, RegionInfo, Result, TableDescriptor};

use super::open::{largest_seq_id_file, open_stores};
use super::{Region, RegionEnv};
use crate::layout;

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
        if is_changed {
            let files = found.iter().flatten().flatten();
            let newest = files.map(|file| file.max_seq_id().max(file.max_cell_seq_id())).max();
            self.with_new_epoch(|| {
                self.mvcc.advance_to(newest.unwrap_or(0));
                let changed = self.stores.iter().zip(found);
                changed
                    .for_each(|(store, found)| found.into_iter().for_each(|files| store.swap_files(files)));
            });
            let in_files = self.stores.iter().map(|store| store.max_seq_id()).max().unwrap_or(0);
            self.max_flushed_seq_id.store(in_files, Ordering::Relaxed);
            self.last_flush_seq_id.store(in_files, Ordering::Relaxed);
        }
        self.archive_compacted().map(|_| is_changed)
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
