//! Compactions: several store files into one or few.

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::Result;
use evenkeel_common::thread::catch;

use super::{Phase, Region};
use crate::store::{BackgroundPriority, CompactionResult, Store};

impl Region {
    /// Whether some store has enough files to compact.
    pub fn needs_compaction(&self) -> bool {
        self.stores.iter().any(|s| s.needs_compaction())
    }

    /// Compacts one family or all: whatever is due, or everything when `major`. Waits for the disk. Says whether
    /// anything was done.
    ///
    /// # Errors
    /// `NotServingRegionException`, `NoSuchColumnFamilyException`, or what the file system says; the files stay as they
    /// were then.
    pub fn compact(self: &Arc<Self>, family: Option<&[u8]>, major: bool) -> Result<bool> {
        self.compact_with(family, major, None)
    }

    /// As [`Region::compact`], but yields to others as long as nobody waits for fewer files.
    ///
    /// # Errors
    /// As [`Region::compact`].
    pub fn compact_in_background(
        self: &Arc<Self>,
        family: Option<&[u8]>,
        major: bool,
        priority: &dyn BackgroundPriority,
    ) -> Result<bool> {
        self.compact_with(family, major, Some(priority))
    }

    fn compact_with(
        self: &Arc<Self>,
        family: Option<&[u8]>,
        major: bool,
        priority: Option<&dyn BackgroundPriority>,
    ) -> Result<bool> {
        let _one = self.compacting.lock();
        if *self.updates.read() == Phase::Closed {
            return Err(self.not_serving());
        }
        family.map_or(Ok(()), |f| self.check_family(f).map(drop))?;
        let mut done = false;
        for store in self.stores.iter().filter(|s| family.is_none_or(|f| f == s.family().name())) {
            let what = format_args!("a compaction of {}", self.info.encoded_name());
            done |= catch(what, || self.compact_store(store, major, priority))?;
        }
        Ok(done)
    }

    fn compact_store(
        &self,
        store: &Arc<Store>,
        major: bool,
        priority: Option<&dyn BackgroundPriority>,
    ) -> Result<bool> {
        let Some(request) = store.select_compaction(major) else { return Ok(false) };
        let result = store.compact_in_background(&request, self.mvcc.read_point(), priority)?;
        let files = store.install_compaction(&result)?;
        let names: Vec<_> = files.iter().map(|file| file.name().to_owned()).collect();
        self.mark_compaction(store, &result, &names)?;
        self.with_new_epoch(|| {
            let drops_markers = request.drops_deletes();
            store.swap_compaction(request, files);
            if drops_markers {
                // What they hid of the MemStore is hidden no more.
                self.invalidate_row_cache();
            }
        });
        if let Err(error) = store.archive_replaced() {
            tracing::warn!(region = %self.info.name_text(), %error, "compacted files are not archived yet");
        }
        Ok(true)
    }

    /// Bytes that [`Region::compact`] would read now.
    pub fn next_compaction_bytes(&self, family: Option<&[u8]>, major: bool) -> u64 {
        let wanted = |store: &&Arc<Store>| family.is_none_or(|f| f == store.family().name());
        self.stores.iter().filter(wanted).map(|store| store.next_compaction_bytes(major)).sum()
    }

    /// How much compactions are wanted, by the neediest store: 0 with few files, 1 when flushes are held up by them, more
    /// beyond (HBase's compaction pressure).
    pub fn compaction_pressure(&self) -> f64 {
        self.stores.iter().map(|store| store.compaction_pressure()).fold(0.0, f64::max)
    }

    /// Logs the compaction before any reader uses its output: a server whose log was taken away must not go on to archive
    /// files that another one serves. When it is not known whether the marker is in the log, the output stays where it is,
    /// for replay would take the inputs away; a log that still takes entries has not failed for good, so all is well.
    fn mark_compaction(&self, store: &Store, result: &CompactionResult, outputs: &[String]) -> Result<()> {
        let marked = self.log_compaction(store, &result.inputs, outputs);
        match marked.inspect_err(|_| store.abort_compaction(result))? {
            true => Ok(()),
            false => self.log_compaction(store, &result.inputs, outputs).map(drop),
        }
    }

    /// Archives compacted files that readers have let go of; says how many are left.
    ///
    /// # Errors
    /// What the file system says; the next call tries again.
    pub fn archive_compacted(&self) -> Result<usize> {
        self.stores.iter().try_fold(0, |left, store| Ok(left + store.archive_replaced()?))
    }

    /// When the oldest file that a major compaction throttle was written, milliseconds since 1970; 0 when there is none.
    pub fn last_major_compaction_ms(&self) -> i64 {
        let files = self.stores.iter().flat_map(|store| store.files());
        files.filter(|file| file.is_major).map(|file| file.modified_ms).min().unwrap_or(0)
    }

    /// The row in the middle of the largest store, where a split would cut; `None` when there is nothing to cut.
    pub fn best_split_row(&self) -> Option<Bytes> {
        let largest = self.stores.iter().max_by_key(|s| s.file_bytes())?;
        let row = largest.split_row()?;
        (row != *self.info.start_key()).then_some(row)
    }
}
