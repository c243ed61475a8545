//! Markers: the region's events, logged among the edits (`evenkeel_wal::markers`).
//!
//! | marker | when | waits for the log |
//! |---|---|---|
//! | REGION_OPEN, REGION_CLOSE | the region is open; everything is flushed | yes |
//! | FLUSH start | a flush has its sequence id, and writers are still excluded | later |
//! | the same again | the files are written, and the first marker is synced already | yes |
//! | FLUSH commit, abort | the files are served; they could not be written | commit |
//! | FLUSH cannot flush | a user or a bulk load asked for a flush of no cells | yes |
//! | COMPACTION | the output is in the family's directory, the inputs are still served | yes |
//! | BULK_LOAD | the files are served | yes |
//!
//! Each marker takes a sequence id, which is complete at once, because readers see no markers.
//! After a crash, only COMPACTION is read again. The others are for consumers of the log, so a
//! flush succeeds while no marker can be logged.
//!
//! **Files get into place only while the log lives.** The sequence id in a file makes a replay skip
//! all edits up to it. A server that was declared dead does not know yet that another one serves
//! the region, and gives the same sequence ids to other edits: a file of the former would hide
//! acknowledged edits of the latter. Its log fails permanently, because its directory has been
//! renamed, so a flush and a bulk load first write to the log (`check_log`).

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::{HBaseError, Result};
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::flush_descriptor::{FlushAction, StoreFlushDescriptor};
use evenkeel_wal::markers::{self, Marker};
use evenkeel_wal::{SyncLevel, Txid};

use super::Region;
use super::nonce::NonceKey;
use crate::store::Store;

/// "No sequence id" in a marker's unsigned field: HBase's -1.
const NO_SEQ_ID: u64 = u64::MAX;

impl Region {
    /// Appends a marker to the log's queue. Calls `marker` with the marker's sequence id.
    pub(super) fn append_marker(&self, marker: impl FnOnce(u64) -> Marker) -> Result<Txid> {
        let (number, logged) = self.mvcc.begin(|number| {
            let now_ms = self.env.stores.clock.now_ms();
            let cell = markers::cell(self.info.start_key(), now_ms, &marker(number));
            self.log(number, std::iter::once(cell.as_cell()), NonceKey { group: 0, nonce: 0 })
        });
        self.mvcc.complete(number);
        logged
    }

    /// As [`Region::append_marker`], but waits until the log has it.
    pub(super) fn log_marker(&self, marker: impl FnOnce(u64) -> Marker) -> Result<()> {
        self.env.wal.sync(self.append_marker(marker)?, SyncLevel::Flush)
    }

    /// Fails if the log has failed permanently, as it does when the server was declared dead. Makes
    /// a marker durable to find out: that of `logged`, unless the log has it already, otherwise
    /// `marker`. A log that cannot be written at present, such as one on a full disk, has not
    /// failed: a flush must free its files then.
    pub(super) fn check_log(&self, logged: Option<Txid>, marker: impl Fn(u64) -> Marker) -> Result<()> {
        let wal = &self.env.wal;
        let marked = match logged.filter(|txid| wal.settled(*txid, SyncLevel::Flush).is_none()) {
            Some(txid) => txid,
            None => self.append_marker(&marker)?,
        };
        match wal.sync(marked, SyncLevel::Flush) {
            Ok(()) => Ok(()),
            Err(error) => {
                tracing::warn!(region = %self.info.name_text(), %error, "the log cannot be written before files are put into place");
                // An append fails only if the log has failed permanently.
                self.append_marker(&marker).map(drop)
            }
        }
    }

    /// [`Region::check_log`] for a caller that found nothing to flush.
    pub(super) fn check_log_without_flush(&self) -> Result<()> {
        self.check_log(None, |_| self.flush_marker(FlushAction::CannotFlush, NO_SEQ_ID, &[], &[]))
    }

    /// Logs a step of a flush of some stores. `files` are the names of each store's files, in the
    /// order of the stores, once they exist. Returns the marker's place in the log; `None` if it
    /// could not be logged.
    pub(super) fn log_flush(
        &self,
        action: FlushAction,
        seq_id: u64,
        stores: &[Arc<Store>],
        files: &[Vec<String>],
    ) -> Option<Txid> {
        let appended = self.append_marker(|_| self.flush_marker(action, seq_id, stores, files));
        let logged = appended.and_then(|txid| match action {
            FlushAction::CommitFlush => self.env.wal.sync(txid, SyncLevel::Flush).map(|()| txid),
            _ => Ok(txid),
        });
        let warn = |error: &HBaseError| {
            tracing::warn!(region = %self.info.name_text(), ?action, %error, "a flush's marker is not in the log");
        };
        logged.inspect_err(warn).ok()
    }

    pub(super) fn flush_marker(
        &self,
        action: FlushAction,
        seq_id: u64,
        stores: &[Arc<Store>],
        files: &[Vec<String>],
    ) -> Marker {
        let store = |(at, store): (usize, &Arc<Store>)| StoreFlushDescriptor {
            family_name: store.family().name().to_vec().into(),
            store_home_dir: store.family().name_text(),
            flush_output: files.get(at).cloned().unwrap_or_default(),
        };
        Marker::Flush(pb::FlushDescriptor {
            action: action as i32,
            table_name: self.info.table().to_string().into(),
            encoded_region_name: self.encoded_name.clone(),
            flush_sequence_number: Some(seq_id),
            store_flushes: stores.iter().enumerate().map(store).collect(),
            region_name: Some(self.info.name().clone()),
        })
    }

    /// Logs that a flush was requested and the MemStore was empty. Returns true if the marker is in
    /// the log.
    pub fn mark_cannot_flush(&self) -> bool {
        if !self.info.is_primary() {
            return false;
        }
        let logged = self.log_marker(|_| self.flush_marker(FlushAction::CannotFlush, NO_SEQ_ID, &[], &[]));
        logged
            .inspect_err(|error| {
                tracing::warn!(region = %self.info.name_text(), %error, "a flush's marker is not in the log");
            })
            .is_ok()
    }

    /// Logs that `outputs` replace `inputs`. Returns true if the marker is certainly in the log. An
    /// error means that the marker is not in the log, or that the log, and the server with it, has
    /// failed permanently.
    pub(super) fn log_compaction(
        &self,
        store: &Store,
        inputs: &[String],
        outputs: &[String],
    ) -> Result<bool> {
        let marker = |_| {
            Marker::Compaction(pb::CompactionDescriptor {
                table_name: self.info.table().to_string().into(),
                encoded_region_name: self.encoded_name.clone(),
                family_name: Bytes::copy_from_slice(store.family().name()),
                compaction_input: inputs.to_vec(),
                compaction_output: outputs.to_vec(),
                store_home_dir: store.family().name_text(),
                region_name: Some(self.info.name().clone()),
            })
        };
        let appended = self.append_marker(marker)?;
        let synced = self.env.wal.sync(appended, SyncLevel::Flush);
        if let Err(error) = &synced {
            tracing::warn!(region = %self.info.name_text(), %error, "a compaction's marker may not be in the log");
        }
        Ok(synced.is_ok())
    }
}
