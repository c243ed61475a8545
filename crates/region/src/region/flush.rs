//! Flushes: the MemStore's cells into store files.
//!
//! ```text
//! updates lock alone:  take a sequence id | swap every MemStore's active segment out
//! then, no lock:       wait until every write up to that id is durable and visible
//!                      write a file a store, below .tmp
//! epoch odd:           rename into place | swap file lists | drop snapshots
//! then:                tell the WAL which edits need no replay
//! ```
//! HBase also logs FLUSH markers, for region replicas; there are none here, and replay does not need them.
//! A failure before the renames leaves the snapshots in place: they stay readable and are part of the next flush.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use evenkeel_common::Result;

use super::{Phase, Region};
use crate::store::{Store, StoreFile};

/// A store and the file its snapshot became, below `.tmp`.
type Flushed<'a> = (&'a Arc<Store>, PathBuf);

/// Which sequence id stands for "everything up to here" in a flush's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushNumber {
    /// A new one, after all writes so far.
    Next,
    /// The last one replayed: the edit after it may have the next one already.
    Current,
}

/// What became of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushOutcome {
    /// Whether there was anything to flush.
    pub flushed: bool,
    /// The sequence id up to which every edit is in store files.
    pub seq_id: u64,
}

impl Region {
    /// Writes everything in the MemStore to files. Waits for the disk.
    ///
    /// # Errors
    /// `NotServingRegionException`, or what the file system says; nothing is lost then.
    pub fn flush(self: &Arc<Self>) -> Result<FlushOutcome> {
        let _one = self.flushing.lock();
        if *self.updates.read() == Phase::Closed {
            return Err(self.not_serving());
        }
        self.flush_locked(FlushNumber::Next)
    }

    /// As [`Region::flush`], for a caller that holds the flush lock.
    pub(super) fn flush_locked(self: &Arc<Self>, number: FlushNumber) -> Result<FlushOutcome> {
        if self.stores.iter().all(|s| s.memstore_size().cells == 0) {
            return Ok(FlushOutcome { flushed: false, seq_id: self.max_flushed_seq_id() });
        }
        let started = Instant::now();
        let swapped_ms = self.env.stores.clock.now_ms();
        let seq_id = self.take_snapshots(number);
        self.mvcc.wait_for(seq_id);
        let outcome = self.write_snapshots(seq_id);
        match &outcome {
            Ok(files) => {
                let ms = started.elapsed().as_millis() as u64;
                tracing::info!(region = %self.info.name_text(), seq_id, files = files.len(), ms, "flushed");
            }
            Err(error) => {
                tracing::error!(region = %self.info.name_text(), seq_id, %error, "flush failed; cells stay in memory");
                self.stores.iter().for_each(|s| s.abort_flush());
                self.env.wal.abort_flush(&self.encoded_name);
            }
        }
        self.commit_snapshots(seq_id, outcome?)?;
        self.last_flush_ms.store(swapped_ms, Ordering::Relaxed);
        Ok(FlushOutcome { flushed: true, seq_id })
    }

    fn family_names(&self) -> Vec<Bytes> {
        self.stores.iter().map(|s| s.family().name().to_vec().into()).collect()
    }

    fn take_snapshots(&self, number: FlushNumber) -> u64 {
        let _updates = self.updates.write();
        self.env.wal.start_flush(&self.encoded_name, &self.family_names());
        let seq_id = match number {
            FlushNumber::Next => self.mvcc.begin(|_| ()).0,
            FlushNumber::Current => self.mvcc.write_point(),
        };
        self.with_new_epoch(|| {
            for store in &self.stores {
                store.start_flush();
            }
        });
        self.mvcc.complete(seq_id);
        seq_id
    }

    fn write_snapshots(&self, seq_id: u64) -> Result<Vec<Flushed<'_>>> {
        let read_point = self.mvcc.read_point();
        let written = self.stores.iter().map(|s| Ok(s.flush_snapshot(seq_id, read_point)?.map(|f| (s, f))));
        written.filter_map(Result::transpose).collect()
    }

    /// Files into place first, which may fail; then one swap of every store's lists, which cannot.
    fn commit_snapshots(&self, seq_id: u64, files: Vec<Flushed<'_>>) -> Result<()> {
        let installed = match self.install_snapshots(files) {
            Ok(installed) => installed,
            Err(error) => {
                self.stores.iter().for_each(|s| s.abort_flush());
                self.env.wal.abort_flush(&self.encoded_name);
                return Err(error);
            }
        };
        self.with_new_epoch(|| {
            for (store, file) in self.stores.iter().zip(installed) {
                store.swap_flush(file);
            }
        });
        self.max_flushed_seq_id.store(seq_id, Ordering::Relaxed);
        self.env.wal.complete_flush(&self.encoded_name, &self.family_names(), seq_id);
        Ok(())
    }

    fn install_snapshots(&self, files: Vec<Flushed<'_>>) -> Result<Vec<Option<Arc<StoreFile>>>> {
        let mut files = files.into_iter().peekable();
        let of_store = |store: &Arc<Store>| {
            let path = files.next_if(|(owner, _)| Arc::ptr_eq(owner, store)).map(|(_, path)| path);
            store.install_flush(path)
        };
        self.stores.iter().map(of_store).collect()
    }
}
