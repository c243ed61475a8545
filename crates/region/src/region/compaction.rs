//! Compactions of a region's stores.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use evenkeel_common::thread::catch;
use evenkeel_common::{Result, clock};

use super::replica_stream::FileChange;
use super::{Phase, Region, RegionCount};
use crate::metrics::CompactionEnd;
use crate::store::{
    BackgroundPriority, CompactionKind, CompactionRequest, CompactionResult, Store, StoreFile,
};

/// How often a close retries to archive compacted files, and the pause before each retry.
const ARCHIVE_RETRIES: usize = 3;
const ARCHIVE_RETRY_PAUSE: Duration = Duration::from_millis(100);

impl Region {
    /// Returns true if a store has enough files to compact.
    pub fn needs_compaction(&self) -> bool {
        self.info.is_primary() && self.stores.iter().any(|s| s.needs_compaction())
    }

    /// Compacts one family or all: the files that are due, or all files if `major`. Blocks on the
    /// disk. Returns true if it compacted any files.
    ///
    /// # Errors
    /// `NotServingRegionException`, `NoSuchColumnFamilyException`, and `IOException` from the file
    /// system or if it is cancelled. The files are unchanged then.
    pub fn compact(self: &Arc<Self>, family: Option<&[u8]>, major: bool) -> Result<bool> {
        let kind = if major { CompactionKind::Major } else { CompactionKind::Due };
        self.compact_with(family, kind, None)
    }

    /// Compacts all files of every family, so that the region reads no file of its parent. MOB
    /// files stay as they are.
    ///
    /// # Errors
    /// As [`Region::compact`].
    pub fn compact_references(self: &Arc<Self>) -> Result<bool> {
        self.compact_with(None, CompactionKind::References, None)
    }

    /// As [`Region::compact`], but yields the processors until a caller waits for fewer files.
    ///
    /// # Errors
    /// As [`Region::compact`].
    pub fn compact_in_background(
        self: &Arc<Self>,
        family: Option<&[u8]>,
        kind: CompactionKind,
        priority: &dyn BackgroundPriority,
    ) -> Result<bool> {
        self.compact_with(family, kind, Some(priority))
    }

    fn compact_with(
        self: &Arc<Self>,
        family: Option<&[u8]>,
        kind: CompactionKind,
        priority: Option<&dyn BackgroundPriority>,
    ) -> Result<bool> {
        // A secondary replica does not wait for its refresh, which may wait for the file system.
        if !self.info.is_primary() {
            return Ok(false);
        }
        let _one = self.compacting.lock();
        if *self.updates.read() == Phase::Closed {
            return Err(self.not_serving());
        }
        family.map_or(Ok(()), |f| self.check_family(f).map(drop))?;
        let (mut done, mut failed) = (false, None);
        for store in self.stores.iter().filter(|s| family.is_none_or(|f| f == s.family().name())) {
            let what = format_args!("a compaction of {}", self.info.encoded_name());
            let compacted = catch(what, || self.compact_store(store, kind, priority));
            match compacted {
                Ok(compacted) => done |= compacted,
                Err(error) => {
                    self.counts.add(RegionCount::FailedCompactions, 1);
                    failed = Some(error);
                    break;
                }
            }
        }
        failed.map_or(Ok(done), Err)
    }

    /// Returns true if files were replaced.
    fn compact_store(
        self: &Arc<Self>,
        store: &Arc<Store>,
        kind: CompactionKind,
        priority: Option<&dyn BackgroundPriority>,
    ) -> Result<bool> {
        let Some(request) = store.select(kind) else { return Ok(false) };
        let started = clock::monotonic();
        let result = store.compact_in_background(&request, self.mvcc.read_point(), priority)?;
        let files = store.install_compaction(&result)?;
        let names: Vec<_> = files.iter().map(|file| file.name().to_owned()).collect();
        self.mark_compaction(store, &result, &names)?;
        let end = compaction_end(&request, &files);
        let family = Bytes::copy_from_slice(store.family().name());
        let change = || FileChange::Replaced { family, inputs: result.inputs, outputs: names };
        let swap = || {
            let drops_markers = request.drops_deletes();
            store.swap_compaction(request, files);
            if drops_markers {
                // MemStore cells that the dropped markers hid are visible from here on.
                self.invalidate_row_cache();
            }
        };
        self.with_new_epoch_then(swap, |()| self.stream_files(0, || vec![change()]));
        self.count_compaction(&CompactionEnd { took: clock::since(started), ..end });
        // Before the next store is compacted: secondary replicas may read the former files only for
        // a while after they are archived.
        self.announce_files();
        if let Err(error) = store.archive_replaced() {
            tracing::warn!(region = %self.info.name_text(), %error, "compacted files are not archived yet");
        }
        Ok(true)
    }

    fn count_compaction(&self, end: &CompactionEnd) {
        self.counts.add(RegionCount::Compactions, 1);
        self.counts.add(RegionCount::CompactedFiles, end.input_files);
        self.counts.add(RegionCount::CompactedBytes, end.input_bytes);
        self.metrics.compacted(end);
        self.env.stores.metrics.server().compacted(end);
    }

    /// Returns the bytes that [`Region::compact`] would read.
    pub fn next_compaction_bytes(&self, family: Option<&[u8]>, major: bool) -> u64 {
        let is_primary = self.info.is_primary();
        let wanted = |store: &&Arc<Store>| is_primary && family.is_none_or(|f| f == store.family().name());
        self.stores.iter().filter(wanted).map(|store| store.next_compaction_bytes(major)).sum()
    }

    /// Returns HBase's compaction pressure of the neediest store: 0 with few files, 1 if the number
    /// of files blocks flushes, more beyond.
    pub fn compaction_pressure(&self) -> f64 {
        if !self.info.is_primary() {
            return 0.0;
        }
        self.stores.iter().map(|store| store.compaction_pressure()).fold(0.0, f64::max)
    }

    /// Logs the compaction before any reader uses its output. A server that has lost its log must
    /// not archive files that another server serves. If it is uncertain whether the marker is in
    /// the log, the output stays where it is, because replay would archive the inputs. If the log
    /// then still accepts entries, it has not failed permanently, and the compaction proceeds.
    fn mark_compaction(&self, store: &Store, result: &CompactionResult, outputs: &[String]) -> Result<()> {
        let marked = self.log_compaction(store, &result.inputs, outputs);
        match marked.inspect_err(|_| store.abort_compaction(result))? {
            true => Ok(()),
            false => self.log_compaction(store, &result.inputs, outputs).map(drop),
        }
    }

    /// Archives compacted files that no reader holds. Returns how many are left.
    ///
    /// # Errors
    /// `IOException` from the file system; the next call retries.
    pub fn archive_compacted(&self) -> Result<usize> {
        self.stores.iter().try_fold(0, |left, store| Ok(left + store.archive_replaced()?))
    }

    /// Archives all compacted files, for a close: see [`Store::archive_all_replaced`]. Retries it,
    /// because a RegionServer of a cluster aborts if it cannot close a region. A retry continues
    /// with the files that are left.
    pub(super) fn archive_all_compacted(&self) -> Result<()> {
        let archive = || self.stores.iter().try_for_each(|store| store.archive_all_replaced());
        for _ in 0..ARCHIVE_RETRIES {
            let Err(error) = archive() else { return Ok(()) };
            tracing::warn!(region = %self.info.name_text(), %error, "compacted files are not archived yet; the close retries");
            std::thread::sleep(ARCHIVE_RETRY_PAUSE);
        }
        archive()
    }

    /// Returns when the oldest file of a major compaction was written, milliseconds since 1970; 0
    /// if there is none.
    pub fn last_major_compaction_ms(&self) -> i64 {
        let files = self.stores.iter().flat_map(|store| store.files());
        files.filter(|file| file.is_major).map(|file| file.modified_ms).min().unwrap_or(0)
    }
}

/// Returns the sizes and counts of a compaction, without its time.
fn compaction_end(request: &CompactionRequest, outputs: &[Arc<StoreFile>]) -> CompactionEnd {
    let (cells, cell_bytes) = request.cells();
    CompactionEnd {
        is_major: request.is_major(),
        input_files: request.names().len() as u64,
        input_bytes: request.bytes(),
        cells,
        cell_bytes,
        output_files: outputs.len() as u64,
        output_bytes: outputs.iter().map(|file| file.bytes()).sum(),
        ..CompactionEnd::default()
    }
}
