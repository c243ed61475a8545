//! Marker edits: events of a region, logged among its edits.
//!
//! A marker is an entry of one cell: a put of family [`META_FAMILY`]. The row is the region's start
//! key (one zero byte if that is empty), the qualifier names the kind, and the value is a protobuf
//! message without magic. A marker takes a sequence id like any edit, and is in no MemStore.
//!
//! | qualifier | message | when |
//! |---|---|---|
//! | `HBASE::COMPACTION` | CompactionDescriptor | outputs exist, inputs are not archived yet |
//! | `HBASE::FLUSH` | FlushDescriptor | a flush begins, ends, fails |
//! | `HBASE::REGION_EVENT::REGION_OPEN` | RegionEventDescriptor | the region opens |
//! | `HBASE::REGION_EVENT::REGION_CLOSE` | RegionEventDescriptor | the region closes |
//! | `HBASE::BULK_LOAD` | BulkLoadDescriptor | files were loaded |
//! | `HBASE::REPLICATION_MARKER` | ReplicationMarkerDescriptor | periodically, if enabled |

use bytes::Bytes;
use evenkeel_common::{CellRef, CellType, HBaseError, KeyValue, Result};
use evenkeel_protocol::pb;
use prost::Message;

use crate::entry::META_FAMILY;

const COMPACTION: &[u8] = b"HBASE::COMPACTION";
const FLUSH: &[u8] = b"HBASE::FLUSH";
const REGION_EVENT: &[u8] = b"HBASE::REGION_EVENT";
const REGION_OPEN: &[u8] = b"HBASE::REGION_EVENT::REGION_OPEN";
const REGION_CLOSE: &[u8] = b"HBASE::REGION_EVENT::REGION_CLOSE";
const BULK_LOAD: &[u8] = b"HBASE::BULK_LOAD";
const REPLICATION: &[u8] = b"HBASE::REPLICATION_MARKER";

/// A marker's message.
#[derive(Clone, Debug, PartialEq)]
pub enum Marker {
    /// Files of a store were replaced by others.
    Compaction(pb::CompactionDescriptor),
    /// A flush began, ended or failed.
    Flush(pb::FlushDescriptor),
    /// The region opened or closed.
    RegionEvent(pb::RegionEventDescriptor),
    /// Files were loaded.
    BulkLoad(pb::BulkLoadDescriptor),
    /// The progress of replication.
    Replication(pb::ReplicationMarkerDescriptor),
    /// An unknown kind, by its qualifier.
    Unknown(Bytes),
}

impl Marker {
    fn qualifier(&self) -> &[u8] {
        match self {
            Self::Compaction(_) => COMPACTION,
            Self::Flush(_) => FLUSH,
            Self::RegionEvent(event) => match event.event_type() {
                pb::region_event_descriptor::EventType::RegionOpen => REGION_OPEN,
                pb::region_event_descriptor::EventType::RegionClose => REGION_CLOSE,
            },
            Self::BulkLoad(_) => BULK_LOAD,
            Self::Replication(_) => REPLICATION,
            Self::Unknown(qualifier) => qualifier,
        }
    }

    fn value(&self) -> Vec<u8> {
        match self {
            Self::Compaction(message) => message.encode_to_vec(),
            Self::Flush(message) => message.encode_to_vec(),
            Self::RegionEvent(message) => message.encode_to_vec(),
            Self::BulkLoad(message) => message.encode_to_vec(),
            Self::Replication(message) => message.encode_to_vec(),
            Self::Unknown(_) => Vec::new(),
        }
    }
}

/// The cell of a marker for a region that starts at `start_key`.
pub fn cell(start_key: &[u8], now_ms: i64, marker: &Marker) -> KeyValue {
    let row = if start_key.is_empty() { &[0][..] } else { start_key };
    KeyValue::new(row, META_FAMILY, marker.qualifier(), now_ms, CellType::Put, &marker.value())
}

/// The marker in a cell, or `None` if the cell is an ordinary one.
///
/// # Errors
/// `IOException` if the value is not the message that the qualifier names.
pub fn parse(cell: &CellRef<'_>) -> Result<Option<Marker>> {
    if cell.family() != META_FAMILY {
        return Ok(None);
    }
    let bad = |error| HBaseError::io(format!("marker {}: {error}", cell.qualifier().escape_ascii()));
    let value = cell.value();
    let marker = match cell.qualifier() {
        COMPACTION => pb::CompactionDescriptor::decode(value).map(Marker::Compaction),
        FLUSH => pb::FlushDescriptor::decode(value).map(Marker::Flush),
        BULK_LOAD => pb::BulkLoadDescriptor::decode(value).map(Marker::BulkLoad),
        REPLICATION => pb::ReplicationMarkerDescriptor::decode(value).map(Marker::Replication),
        // Before HBase 2 the event's type was not a part of the qualifier.
        event if event.starts_with(REGION_EVENT) => {
            pb::RegionEventDescriptor::decode(value).map(Marker::RegionEvent)
        }
        other => Ok(Marker::Unknown(Bytes::copy_from_slice(other))),
    };
    marker.map(Some).map_err(bad)
}

/// Returns true if a cell is a compaction marker, the only kind that recovery keeps.
pub fn is_compaction(cell: &CellRef<'_>) -> bool {
    cell.family() == META_FAMILY && cell.qualifier() == COMPACTION
}

/// Returns true if a cell is a replication marker, which belongs to no region.
pub fn is_replication(cell: &CellRef<'_>) -> bool {
    cell.family() == META_FAMILY && cell.qualifier() == REPLICATION
}

#[cfg(test)]
mod tests {
    use super::*;
    use pb::region_event_descriptor::EventType;

    fn event(kind: EventType) -> Marker {
        Marker::RegionEvent(pb::RegionEventDescriptor {
            event_type: kind as i32,
            table_name: Bytes::from_static(b"t"),
            encoded_region_name: Bytes::from_static(b"r"),
            log_sequence_number: Some(7),
            ..Default::default()
        })
    }

    #[test]
    fn markers_round_trip() {
        let markers = [
            event(EventType::RegionOpen),
            event(EventType::RegionClose),
            Marker::Compaction(pb::CompactionDescriptor { store_home_dir: "f".into(), ..Default::default() }),
            Marker::Flush(pb::FlushDescriptor { flush_sequence_number: Some(3), ..Default::default() }),
            Marker::BulkLoad(pb::BulkLoadDescriptor { bulkload_seq_num: 9, ..Default::default() }),
            Marker::Replication(pb::ReplicationMarkerDescriptor { offset: 1, ..Default::default() }),
            Marker::Unknown(Bytes::from_static(b"HBASE::NEW")),
        ];
        for marker in markers {
            let cell = cell(b"start", 5, &marker);
            assert_eq!((cell.as_cell().row(), cell.as_cell().timestamp()), (&b"start"[..], 5));
            assert_eq!(parse(&cell.as_cell()), Ok(Some(marker)));
        }
    }

    #[test]
    fn qualifiers_and_rows_are_those_of_hbase() {
        let open = cell(b"", 5, &event(EventType::RegionOpen));
        assert_eq!(open.as_cell().row(), [0]);
        assert_eq!(open.as_cell().qualifier(), b"HBASE::REGION_EVENT::REGION_OPEN");
        let old = KeyValue::put(b"r", META_FAMILY, b"HBASE::REGION_EVENT", 1, open.as_cell().value());
        assert_eq!(parse(&old.as_cell()), Ok(Some(event(EventType::RegionOpen))));
    }

    #[test]
    fn plain_cells_are_no_markers_and_broken_ones_fail() {
        assert_eq!(parse(&KeyValue::put(b"r", b"f", FLUSH, 1, b"").as_cell()), Ok(None));
        assert!(parse(&KeyValue::put(b"r", META_FAMILY, FLUSH, 1, b"\xff").as_cell()).is_err());
    }
}
