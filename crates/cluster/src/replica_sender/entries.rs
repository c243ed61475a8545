//! Log entries for secondary replicas: edits, and markers of the region's files.
//!
//! | marker | for a secondary replica of HBase |
//! |---|---|
//! | FLUSH start | keeps the cells of the flush apart |
//! | FLUSH commit, with families | reads the new files, and drops these cells |
//! | COMPACTION | reads these files from now on, instead of those |
//! | REGION_OPEN, with the files of all families | reads just these files, drops older cells |
//! | FLUSH commit, without families | shows cells of files up to its sequence id |
//! | BULK_LOAD, without files | shows cells of loaded files with its sequence id |
//! | FLUSH cannot flush | knows that it misses nothing |
//!
//! **Files that are known already.** HBase adds the files of FLUSH commit without a look at those
//! that it has; then it reads a file twice until a compaction. So steps
//! of a flush are not sent again ([`super::queue`]). Where the sender knows that a file was listed,
//! it omits the file. HBase's BULK_LOAD adds all files of the family a second time
//! (`HRegion.replayWALBulkLoadEventMarker`). So new files of a bulk load are told by COMPACTION,
//! without former files, which compares the names. BULK_LOAD follows without files: it shows them.
//!
//! New files of a flush are told by FLUSH commit only: HBase's open scanners then continue in them
//! (`StoreScanner.updateReaders`).
//!
//! A marker names the default replica, as in HBase's log; only the key of an entry names the
//! secondary replica.

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::clock::Clock;
use evenkeel_common::{CellBuffer, KeyValue, RegionInfo};
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::flush_descriptor::{FlushAction, StoreFlushDescriptor};
use evenkeel_wal::Txid;
use evenkeel_wal::markers::{self, Marker};

/// The bytes that an entry occupies in addition to its cells, and in a request.
const ENTRY_BYTES: u64 = 256;

/// What an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    Edits,
    /// A step of a flush.
    Flush,
    /// Replaced files.
    Files,
    /// A part of a list of all files.
    List,
}

/// A log entry. The secondary replicas of a region share it.
#[derive(Debug)]
pub(super) struct Entry {
    kind: EntryKind,
    seq_id: u64,
    /// The log entry that must be in the log before this is sent.
    unlogged: Option<Txid>,
    write_time_ms: i64,
    cell_count: usize,
    /// The cells as in a cell block.
    cells: Vec<u8>,
}

impl Entry {
    fn new(kind: EntryKind, seq_id: u64, write_time_ms: i64, cells: &CellBuffer) -> Self {
        let encoded = match cells.as_contiguous() {
            Some(encoded) => encoded.to_vec(),
            None => copy(cells).into_parts().0,
        };
        let cell_count = cells.len();
        Self { kind, seq_id, unlogged: None, write_time_ms, cell_count, cells: encoded }
    }

    pub(super) fn kind(&self) -> EntryKind {
        self.kind
    }

    pub(super) fn seq_id(&self) -> u64 {
        self.seq_id
    }

    /// The log entry that must be in the log before this is sent.
    pub(super) fn unlogged(&self) -> Option<Txid> {
        self.unlogged
    }

    /// The bytes that it occupies.
    pub(super) fn bytes(&self) -> u64 {
        ENTRY_BYTES + self.cells.len() as u64
    }
}

/// Returns the cells with their values in place.
fn copy(cells: &CellBuffer) -> CellBuffer {
    let mut copies = CellBuffer::new();
    cells.iter().for_each(|cell| copies.push(&cell));
    copies
}

/// Makes the entries of a region.
pub(super) struct EntryMaker {
    /// The default replica.
    region: RegionInfo,
    clock: Arc<dyn Clock>,
}

impl EntryMaker {
    pub(super) fn new(region: RegionInfo, clock: Arc<dyn Clock>) -> Self {
        Self { region, clock }
    }

    pub(super) fn edits(&self, seq_id: u64, unlogged: Option<Txid>, cells: &CellBuffer) -> Arc<Entry> {
        let entry = Entry::new(EntryKind::Edits, seq_id, self.clock.now_ms(), cells);
        Arc::new(Entry { unlogged, ..entry })
    }

    /// A step of a flush of some families, each with its new files.
    pub(super) fn flush(
        &self,
        action: FlushAction,
        seq_id: u64,
        stores: impl Iterator<Item = (Bytes, Vec<String>)>,
    ) -> Arc<Entry> {
        self.marker(EntryKind::Flush, seq_id, &self.flush_marker(action, seq_id, stores))
    }

    fn flush_marker(
        &self,
        action: FlushAction,
        seq_id: u64,
        stores: impl Iterator<Item = (Bytes, Vec<String>)>,
    ) -> Marker {
        let store = |(family, files): (Bytes, Vec<String>)| StoreFlushDescriptor {
            store_home_dir: String::from_utf8_lossy(&family).into_owned(),
            family_name: family,
            flush_output: files,
        };
        Marker::Flush(pb::FlushDescriptor {
            action: action as i32,
            table_name: self.table(),
            encoded_region_name: self.encoded_name(),
            flush_sequence_number: Some(seq_id),
            store_flushes: stores.map(store).collect(),
            region_name: Some(self.region.name().clone()),
        })
    }

    /// Files of a family replace others, or none.
    pub(super) fn files(
        &self,
        seq_id: u64,
        family: &Bytes,
        inputs: &[String],
        outputs: &[String],
    ) -> Arc<Entry> {
        let marker = Marker::Compaction(pb::CompactionDescriptor {
            table_name: self.table(),
            encoded_region_name: self.encoded_name(),
            family_name: family.clone(),
            compaction_input: inputs.to_vec(),
            compaction_output: outputs.to_vec(),
            store_home_dir: String::from_utf8_lossy(family).into_owned(),
            region_name: Some(self.region.name().clone()),
        });
        self.marker(EntryKind::Files, seq_id, &marker)
    }

    /// The cells of loaded files with this sequence id may be shown.
    pub(super) fn loaded(&self, seq_id: u64) -> Arc<Entry> {
        let marker = Marker::BulkLoad(pb::BulkLoadDescriptor {
            table_name: self.region.table().into(),
            encoded_region_name: self.encoded_name(),
            bulkload_seq_num: i64::try_from(seq_id).unwrap_or(i64::MAX),
            ..Default::default()
        });
        self.marker(EntryKind::Files, seq_id, &marker)
    }

    /// Every edit up to the event's sequence id is in the files that it lists.
    pub(super) fn open(&self, event: pb::RegionEventDescriptor) -> Arc<Entry> {
        self.marker(EntryKind::List, event.log_sequence_number(), &Marker::RegionEvent(event))
    }

    /// The end of a list: cells of files up to this sequence id may be shown.
    pub(super) fn shown(&self, seq_id: u64) -> Arc<Entry> {
        let marker = self.flush_marker(FlushAction::CommitFlush, seq_id, std::iter::empty());
        self.marker(EntryKind::List, seq_id, &marker)
    }

    fn marker(&self, kind: EntryKind, seq_id: u64, marker: &Marker) -> Arc<Entry> {
        let now_ms = self.clock.now_ms();
        let cell: KeyValue = markers::cell(self.region.start_key(), now_ms, marker);
        let mut cells = CellBuffer::new();
        cells.push(&cell.as_cell());
        Arc::new(Entry::new(kind, seq_id, now_ms, &cells))
    }

    fn table(&self) -> Bytes {
        self.region.table().to_string().into()
    }

    fn encoded_name(&self) -> Bytes {
        self.region.encoded_name().to_owned().into()
    }
}

/// A call of `Replay`, with its cell block.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplayCall {
    pub(super) request: pb::ReplicateWalEntryRequest,
    pub(super) cells: Vec<u8>,
}

impl ReplayCall {
    /// A call with some entries for a secondary replica
    /// (`ReplicationProtbufUtil.buildReplicateWALEntryRequest`).
    pub(super) fn new<'a>(replica: &RegionInfo, entries: impl Iterator<Item = &'a Entry>) -> Self {
        let name: Bytes = replica.encoded_name().to_owned().into();
        let table: Bytes = replica.table().to_string().into();
        let mut call = Self::default();
        for entry in entries {
            let key = pb::WalKey {
                encoded_region_name: name.clone(),
                table_name: table.clone(),
                log_sequence_number: entry.seq_id,
                write_time: u64::try_from(entry.write_time_ms).unwrap_or(0),
                ..Default::default()
            };
            call.request.entry.push(pb::WalEntry {
                key,
                associated_cell_count: i32::try_from(entry.cell_count).ok(),
                ..Default::default()
            });
            call.cells.extend_from_slice(&entry.cells);
        }
        call
    }
}
