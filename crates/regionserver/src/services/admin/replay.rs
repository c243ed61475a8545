//! Replay: another server hands log entries of a default replica to a secondary replica here
//! (`RSRpcServices.replay`).
//!
//! All entries of a call are for one region, in the order of the log. Entries that were replayed
//! before are skipped, so a call can be repeated. Markers say when files have changed:
//!
//! | marker | |
//! |---|---|
//! | FLUSH start of all families | later entries are replayed, if none are at the moment |
//! | FLUSH commit | the files are found again; those of all families fill the gap before |
//! | FLUSH cannot flush, REGION_OPEN | both: everything before is in files |
//! | BULK_LOAD, COMPACTION | the files are found again |
//!
//! A secondary replica shows replayed edits when it has seen a whole flush or an open of its
//! default replica, because edits of before its own open may be missing.

use std::sync::Arc;

use evenkeel_common::{CellBuffer, ErrorKind, HBaseError, Result, quoted};
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::flush_descriptor::FlushAction;
use evenkeel_protocol::pb::region_event_descriptor::EventType;
use evenkeel_region::region::Region;
use evenkeel_rpc::{Call, CallClass, CellBlockReader, DetachedResponder, Respond};
use evenkeel_wal::markers::{self, Marker};

use crate::RegionServer;
use crate::services::method_table::Method;

/// Replay takes a cell block, and waits for files.
pub(super) static METHODS: [Method<RegionServer>; 1] =
    [Method { name: "Replay", class: CallClass::Admin, answer: replay_call }];

fn replay_call(server: &Arc<RegionServer>, call: &Call, reply: DetachedResponder) {
    let decoded = call.decode().and_then(|request| Ok((request, call.cell_reader()?)));
    reply.send_result(decoded.and_then(|(request, cells)| replay(server, &request, cells)));
}

fn replay(
    server: &RegionServer,
    request: &pb::ReplicateWalEntryRequest,
    mut cells: CellBlockReader,
) -> Result<pb::ReplicateWalEntryResponse> {
    let Some(first) = request.entry.first() else { return Ok(pb::ReplicateWalEntryResponse {}) };
    let region = region_of(server, &first.key.encoded_region_name)?;
    let mut refresh_due = false;
    for entry in &request.entry {
        check_region(&first.key, &entry.key)?;
        let seq_id = entry.key.orig_sequence_number.unwrap_or(entry.key.log_sequence_number);
        let (edits, markers) = split_cells(entry, &mut cells)?;
        check_edits(&region, &edits)?;
        check_seq_id(seq_id)?;
        for marker in &markers {
            refresh_due = replay_marker(&region, seq_id, marker, refresh_due)?;
        }
        if !edits.is_empty() {
            check_memory(server, &region)?;
            if region.replay_entry(seq_id, &edits)? {
                server.count_written(edits.encoded_len() as u64);
            }
        }
    }
    if refresh_due {
        refresh(&region, 0)?;
    }
    Ok(pb::ReplicateWalEntryResponse {})
}

fn region_of(server: &RegionServer, encoded_name: &[u8]) -> Result<Arc<Region>> {
    let region = server.regions().get(&String::from_utf8_lossy(encoded_name), encoded_name)?;
    if region.is_secondary() {
        return Ok(region);
    }
    let name = region.info().name_text();
    Err(HBaseError::do_not_retry(format!("{name} is a default replica, which replays only its own log")))
}

fn check_region(first: &pb::WalKey, key: &pb::WalKey) -> Result<()> {
    let (first, other) = (&first.encoded_region_name, &key.encoded_region_name);
    if first == other {
        return Ok(());
    }
    let message = format!(
        "Replay request contains entries from multiple regions. First region:{} , other region:{}",
        quoted(first),
        quoted(other)
    );
    Err(HBaseError::new(ErrorKind::NotServingRegion, message))
}

/// Rejects edits of user tables while unflushed bytes are at their limit; the sender tries again.
fn check_memory(server: &RegionServer, region: &Arc<Region>) -> Result<()> {
    if !server.memory.is_full() || region.info().is_meta() {
        return Ok(());
    }
    server.request_flush_of(region);
    let message = format!("Over memstore limit, regionName={}", region.info().encoded_name());
    Err(HBaseError::new(ErrorKind::RegionTooBusy, message))
}

/// Takes the cells of an entry: its edits, and the markers among them.
fn split_cells(entry: &pb::WalEntry, cells: &mut CellBlockReader) -> Result<(CellBuffer, Vec<Marker>)> {
    let (mut edits, mut found) = (CellBuffer::new(), Vec::new());
    for _ in 0..entry.associated_cell_count().max(0) {
        let cell = cells.expect_cell()?;
        match markers::parse(&cell.as_cell())? {
            Some(marker) => found.push(marker),
            None => edits.push(&cell.as_cell()),
        }
    }
    Ok((edits, found))
}

/// Rejects cells that a write would not make, too.
fn check_edits(region: &Region, edits: &CellBuffer) -> Result<()> {
    edits.iter().try_for_each(|cell| {
        cell.check()?;
        if region.info().contains_row(cell.row()) {
            return Ok(());
        }
        let (row, name) = (quoted(cell.row()).to_string(), region.info().name_text());
        let message = format!("Requested row out of range for replay on HRegion {name}, row='{row}'");
        Err(HBaseError::new(ErrorKind::WrongRegion, message))
    })
}

/// Returns true if the files must be found again, in addition to what was done. Markers of replaced
/// files come in groups, of which the files are found once.
fn replay_marker(region: &Region, seq_id: u64, marker: &Marker, refresh_due: bool) -> Result<bool> {
    let refreshed = match marker {
        Marker::Flush(flush) => replay_flush(region, seq_id, flush)?,
        Marker::RegionEvent(event) if event.event_type() == EventType::RegionOpen => {
            check_seq_id(event.log_sequence_number())?;
            region.replay_open(event.log_sequence_number()).map(|_| true)?
        }
        Marker::BulkLoad(_) | Marker::Compaction(_) => return Ok(true),
        Marker::RegionEvent(_) | Marker::Replication(_) | Marker::Unknown(_) => false,
    };
    Ok(refresh_due && !refreshed)
}

/// Returns true if the files were found again.
fn replay_flush(region: &Region, seq_id: u64, flush: &pb::FlushDescriptor) -> Result<bool> {
    // An alteration adds families here later than to the default replica.
    let is_of_all = (region.stores().iter())
        .all(|store| flush.store_flushes.iter().any(|flushed| flushed.family_name == store.family().name()));
    if flush.action() != FlushAction::CannotFlush {
        check_seq_id(flush.flush_sequence_number())?;
    }
    match flush.action() {
        FlushAction::StartFlush if is_of_all => begin_replay(region, flush.flush_sequence_number()),
        FlushAction::CommitFlush => {
            return refresh(region, if is_of_all { flush.flush_sequence_number() } else { 0 });
        }
        FlushAction::CannotFlush => {
            begin_replay(region, seq_id);
            return refresh(region, seq_id);
        }
        FlushAction::StartFlush | FlushAction::AbortFlush => {}
    }
    Ok(false)
}

/// Rejects what HBase, whose sequence ids are signed, cannot have sent. Such an id would hide every
/// later edit.
fn check_seq_id(seq_id: u64) -> Result<()> {
    match i64::try_from(seq_id) {
        Ok(_) => Ok(()),
        Err(_) => Err(HBaseError::do_not_retry(format!("{seq_id} is not a sequence id"))),
    }
}

/// Replays the entries after `seq_id`, if nothing is replayed yet.
fn begin_replay(region: &Region, seq_id: u64) {
    if region.is_replay_suspended() {
        region.resume_replay(seq_id);
    }
}

/// Finds the files again, and returns true.
fn refresh(region: &Region, flushed: u64) -> Result<bool> {
    region.refresh_after(flushed, |_| ()).map(|_| true)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use evenkeel_common::KeyValue;
    use evenkeel_region::operations::Scan;

    use super::*;
    use crate::RegionServerConfig;
    use crate::testing::*;

    /// A server with a region, whose row `a` is flushed, and a secondary replica of it.
    fn with_replica() -> (TestServer, Arc<Region>, Arc<Region>) {
        let server = TestServer::new(RegionServerConfig::default());
        let primary = server.open(b"", b"", table());
        put(&primary, &[cell(b"a", b"q", b"v")]);
        primary.flush().expect("flushed");
        let info = primary.info().replica(1);
        let replica = Region::open(Arc::clone(&server.env), info, Arc::new(table())).expect("opens");
        assert!(server.server.regions().add(Arc::clone(&replica)).is_none());
        (server, primary, replica)
    }

    type Entry = (u64, Vec<KeyValue>);

    fn send(server: &TestServer, region: &Region, entries: &[Entry]) -> Result<()> {
        let key = |seq_id| pb::WalKey {
            encoded_region_name: Bytes::copy_from_slice(region.info().encoded_name().as_bytes()),
            log_sequence_number: seq_id,
            ..pb::WalKey::default()
        };
        let entry = |(seq_id, cells): &Entry| pb::WalEntry {
            key: key(*seq_id),
            associated_cell_count: i32::try_from(cells.len()).ok(),
            ..pb::WalEntry::default()
        };
        let entry = entries.iter().map(entry).collect();
        let request = pb::ReplicateWalEntryRequest { entry, ..Default::default() };
        let cells: Vec<_> = entries.iter().flat_map(|(_, cells)| cells.clone()).collect();
        replay(&server.server, &request, block(&cells)).map(drop)
    }

    fn flush(seq_id: u64, action: FlushAction, families: &[&'static [u8]]) -> Entry {
        let store = |family: &&'static [u8]| pb::flush_descriptor::StoreFlushDescriptor {
            family_name: Bytes::from_static(family),
            ..Default::default()
        };
        let marker = Marker::Flush(pb::FlushDescriptor {
            action: action as i32,
            flush_sequence_number: Some(seq_id),
            store_flushes: families.iter().map(store).collect(),
            ..Default::default()
        });
        (seq_id, vec![markers::cell(b"", 1, &marker)])
    }

    fn edit(seq_id: u64, row: &[u8]) -> Entry {
        (seq_id, vec![cell(row, b"q", b"v")])
    }

    fn has_row(region: &Region, row: &'static [u8]) -> bool {
        !region.get(Scan::get(row)).expect("read").is_empty()
    }

    #[test]
    fn edits_are_shown_after_a_whole_flush() {
        let (server, _primary, replica) = with_replica();
        send(&server, &replica, &[edit(1000, b"b")]).expect("skipped");
        send(&server, &replica, &[flush(1001, FlushAction::StartFlush, &[b"f"]), edit(1002, b"c")])
            .expect("replayed");
        assert!(!has_row(&replica, b"b") && !has_row(&replica, b"c"));
        let entries = [flush(1001, FlushAction::CommitFlush, &[b"f"]), edit(1003, b"d")];
        send(&server, &replica, &entries).expect("replayed");
        assert!(has_row(&replica, b"c") && has_row(&replica, b"d"));
        // The sender repeats a call whose reply it did not get.
        send(&server, &replica, &entries).expect("skipped");
        assert_eq!(replica.memstore_size().cells, 2);
    }

    #[test]
    fn a_commit_without_its_start_shows_nothing() {
        let (server, primary, replica) = with_replica();
        put(&primary, &[cell(b"b", b"q", b"v")]);
        primary.flush().expect("flushed");
        let entries = [flush(1001, FlushAction::CommitFlush, &[b"f"]), edit(1002, b"c")];
        send(&server, &replica, &entries).expect("skipped");
        assert!(has_row(&replica, b"b"), "the file is read");
        assert!(!has_row(&replica, b"c") && replica.is_replay_suspended());
    }

    fn event(seq_id: u64, event_type: EventType) -> Entry {
        let event = pb::RegionEventDescriptor {
            event_type: event_type as i32,
            log_sequence_number: Some(seq_id),
            ..Default::default()
        };
        (seq_id, vec![markers::cell(b"", 1, &Marker::RegionEvent(event))])
    }

    #[test]
    fn a_default_replica_that_opens_after_a_crash_uses_sequence_ids_again() {
        let (server, _primary, replica) = with_replica();
        let sent = [event(1000, EventType::RegionOpen), edit(1005, b"b"), edit(1050, b"c")];
        send(&server, &replica, &sent).expect("replayed");
        assert!(has_row(&replica, b"c"));
        let again = [event(1006, EventType::RegionOpen), edit(1007, b"d"), edit(1051, b"e")];
        send(&server, &replica, &again).expect("replayed");
        assert!(!has_row(&replica, b"c") && has_row(&replica, b"d") && has_row(&replica, b"e"));
        // A call of the server before, and a repeated one.
        send(&server, &replica, &sent[..2]).expect("skipped");
        send(&server, &replica, &again).expect("skipped");
        assert!(has_row(&replica, b"d") && has_row(&replica, b"e"));
    }

    #[test]
    fn an_open_and_an_empty_flush_begin_the_replay() {
        let (server, _primary, replica) = with_replica();
        send(&server, &replica, &[event(1000, EventType::RegionClose), edit(1001, b"b")]).expect("skipped");
        assert!(!has_row(&replica, b"b"));
        send(&server, &replica, &[event(1002, EventType::RegionOpen), edit(1003, b"c")]).expect("replayed");
        assert!(has_row(&replica, b"c"));
        let (server, _primary, replica) = with_replica();
        let mut cannot = flush(u64::MAX, FlushAction::CannotFlush, &[]);
        cannot.0 = 1000;
        send(&server, &replica, &[cannot, edit(1001, b"b")]).expect("replayed");
        assert!(has_row(&replica, b"b"));
    }

    fn files() -> Entry {
        (1000, vec![markers::cell(b"", 1, &Marker::Compaction(pb::CompactionDescriptor::default()))])
    }

    /// A list of all files after a gap, a flush, and compactions.
    #[test]
    fn markers_of_evenkeel_s_sender_are_replayed() {
        let open = pb::RegionEventDescriptor {
            event_type: EventType::RegionOpen as i32,
            log_sequence_number: Some(1000),
            ..Default::default()
        };
        let open: Entry = (1000, vec![markers::cell(b"", 1, &Marker::RegionEvent(open))]);
        let (server, primary, replica) = with_replica();
        let shown = flush(1000, FlushAction::CommitFlush, &[]);
        let start = flush(1002, FlushAction::StartFlush, &[b"f"]);
        send(&server, &replica, &[open, shown, edit(1001, b"b"), start, edit(1003, b"c")]).expect("replayed");
        assert!(has_row(&replica, b"b") && has_row(&replica, b"c"));
        put(&primary, &[cell(b"d", b"q", b"v")]);
        primary.flush().expect("flushed");
        let ended = [files(), flush(1002, FlushAction::CommitFlush, &[b"f"]), edit(1004, b"e")];
        send(&server, &replica, &ended).expect("replayed");
        assert_eq!(replica.memstore_size().cells, 2, "that of the flush is dropped");
        assert!(has_row(&replica, b"c") && has_row(&replica, b"d") && has_row(&replica, b"e"));
        put(&primary, &[cell(b"g", b"q", b"v")]);
        primary.flush().expect("flushed");
        send(&server, &replica, &[files(), edit(1005, b"h"), files()]).expect("replayed");
        assert!(has_row(&replica, b"g") && has_row(&replica, b"h"), "files that come last are found, too");
    }

    #[test]
    fn a_sequence_id_that_is_negative_in_hbase_is_rejected() {
        let (server, _primary, replica) = with_replica();
        for action in [FlushAction::StartFlush, FlushAction::CommitFlush] {
            let entries = [flush(u64::MAX - 1, action, &[b"f"])];
            assert!(send(&server, &replica, &entries).expect_err("rejected").is_do_not_retry());
            let mut of_flush = flush(u64::MAX - 1, action, &[b"f"]);
            of_flush.0 = 1000;
            assert!(send(&server, &replica, &[of_flush]).is_err());
        }
        assert!(send(&server, &replica, &[edit(u64::MAX, b"b")]).is_err());
        assert!(replica.is_replay_suspended());
    }

    #[test]
    fn a_flush_of_some_families_does_not_fill_a_gap() {
        let (server, _primary, replica) = with_replica();
        // The default replica has a family more.
        let added: &[&[u8]] = &[b"added"];
        for families in [&[], added] {
            let entries = [
                flush(1001, FlushAction::StartFlush, families),
                flush(1001, FlushAction::CommitFlush, families),
                edit(1002, b"b"),
            ];
            send(&server, &replica, &entries).expect("skipped");
            assert!(!has_row(&replica, b"b") && replica.is_replay_suspended());
        }
    }

    #[test]
    fn a_gap_ends_after_the_edits_that_were_not_replayed() {
        let (server, _primary, replica) = with_replica();
        send(&server, &replica, &[edit(2010, b"b")]).expect("skipped");
        // The rest of the log of the default replica before.
        let of_before = [FlushAction::StartFlush, FlushAction::CommitFlush];
        let of_before = of_before.map(|action| flush(1500, action, &[b"f"]));
        send(&server, &replica, &of_before).expect("read");
        send(&server, &replica, &[edit(2011, b"c")]).expect("replayed");
        assert!(!has_row(&replica, b"b") && !has_row(&replica, b"c"));
        send(&server, &replica, &[flush(2010, FlushAction::CommitFlush, &[b"f"])]).expect("read");
        assert!(has_row(&replica, b"c"), "the gap is filled");
    }

    #[test]
    fn calls_that_cannot_be_replayed_are_rejected() {
        let (server, primary, replica) = with_replica();
        send(&server, &replica, &[]).expect("nothing to do");
        let error = send(&server, &primary, &[edit(1, b"b")]).expect_err("a default replica");
        assert!(error.is_do_not_retry(), "{error}");
        let entries = [edit(1, b"b")];
        server.server.regions().remove(replica.info().encoded_name(), None).expect("was open");
        let error = send(&server, &replica, &entries).expect_err("not here");
        assert_eq!(error.kind(), ErrorKind::NotServingRegion);
        let mut few = pb::WalEntry { associated_cell_count: Some(2), ..Default::default() };
        assert!(split_cells(&few, &mut block(&[cell(b"a", b"q", b"v")])).is_err(), "a cell is missing");
        few.associated_cell_count = Some(-1);
        assert!(split_cells(&few, &mut block(&[])).expect("none").0.is_empty());
        let mut elsewhere = CellBuffer::new();
        elsewhere.push(&cell(b"z", b"q", b"v").as_cell());
        let upper = server.open(b"n", b"p", table());
        assert!(check_edits(&upper, &elsewhere).is_err() && check_edits(&primary, &elsewhere).is_ok());
        let other = pb::WalKey { encoded_region_name: Bytes::from_static(b"x"), ..Default::default() };
        let error = check_region(&other, &pb::WalKey::default()).expect_err("two regions");
        assert!(error.to_string().contains("entries from multiple regions"), "{error}");
    }
}
