//! Directories of regions below `hbase.wal.dir`.
//!
//! With that setting, a region has a second directory, below the root directory of the logs, for
//! its recovered edits and its `.seqid` file. The catalog janitor removes it once the region is
//! gone: hbase:meta does not list it, and it has no directory below `hbase.rootdir`. So the removal
//! of a region takes one step less, and a crash before this one leaves nothing behind. (HBase
//! removes them with the region, `GCRegionProcedure`, or with the table, `DeleteTableProcedure`.)
//!
//! A region that is created meanwhile has its directory below `hbase.rootdir` first, and its table
//! is locked.

use std::collections::HashSet;

use evenkeel_common::Result;
use evenkeel_region::region::WalRoot;

use crate::tables::with_merge_parents;
use crate::{Master, reconcile};

impl Master {
    /// Removes directories of regions that are gone; returns their number.
    pub(crate) fn remove_unused_wal_dirs(&self) -> Result<usize> {
        let Some(WalRoot { fs, path: root }) = &self.parts.region_env.wal_root else { return Ok(0) };
        let listed = self.parts.meta.regions(None)?;
        let listed: HashSet<&str> = with_merge_parents(&listed).map(|info| info.encoded_name()).collect();
        let mut removed = 0;
        for (table, dir) in reconcile::table_dirs(&**fs, root)? {
            let Some(_lock) = self.locks.try_lock(&table) else { continue };
            let table_dir = self.table_dir(&table);
            for region in reconcile::region_dirs(&**fs, &dir)? {
                if !listed.contains(region.name()) && !self.fs().exists(&table_dir.join(region.name()))? {
                    fs.delete(&region.path)?;
                    removed += 1;
                }
            }
            if !self.fs().exists(&table_dir)? {
                fs.delete_empty_dir(&dir)?;
            }
        }
        Ok(removed)
    }
}
