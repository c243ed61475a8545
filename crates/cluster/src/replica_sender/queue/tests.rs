//! What is sent to secondary replicas, by event, without tasks.

use bytes::{Buf, Bytes};
use evenkeel_common::clock::ManualClock;
use evenkeel_common::{CellBuffer, KeyValue, RegionInfo, ServerName};
use evenkeel_protocol::pb::region_event_descriptor::EventType;
use evenkeel_wal::markers::{self, Marker};

use super::*;
use crate::replica_sender::entries::EntryMaker;

const BUDGET: u64 = 4 << 20;
const F: Bytes = Bytes::from_static(b"f");
const G: Bytes = Bytes::from_static(b"g");

/// A region that has files with edits up to `files`. Its log has the entries up to `logged`, except
/// `lost`.
#[derive(Default)]
struct Open {
    files: u64,
    logged: u64,
    lost: Option<u64>,
}

impl RegionState for Open {
    fn is_logged(&self, entry: Txid) -> Option<bool> {
        let is_lost = self.lost.is_some_and(|lost| entry == Txid::new(lost));
        (is_lost || entry <= Txid::new(self.logged)).then_some(!is_lost)
    }

    fn files_seq_id(&self) -> u64 {
        self.files
    }

    fn open_event(&self) -> pb::RegionEventDescriptor {
        let store = |family: Bytes| pb::StoreDescriptor {
            family_name: family,
            store_file: vec!["x".to_owned()],
            ..Default::default()
        };
        pb::RegionEventDescriptor {
            event_type: EventType::RegionOpen as i32,
            stores: vec![store(F), store(G)],
            ..Default::default()
        }
    }
}

fn info() -> RegionInfo {
    RegionInfo::new("t".parse().expect("legal"), Bytes::new(), Bytes::new(), 1)
}

fn at(id: i32, port: u16, seq_num: i64) -> RegionLocation {
    RegionLocation { region: info().replica(id), server: ServerName::new("h", port, 1), seq_num }
}

struct Fixture {
    queue: RegionQueue,
    budget: SendBudget,
    region: Open,
}

impl Fixture {
    /// Secondary replicas on the servers of these ports.
    fn new(takes_edits: bool, ports: &[u16]) -> Self {
        let queue = RegionQueue::new(EntryMaker::new(info(), ManualClock::at(7)), takes_edits);
        let mut fixture = Self { queue, budget: SendBudget::new(BUDGET), region: Open::default() };
        fixture.locate(&(1..).zip(ports).map(|(id, port)| at(id, *port, 1)).collect::<Vec<_>>());
        fixture
    }

    /// As [`Fixture::new`], after a flush with the sequence id 5.
    fn live(ports: &[u16]) -> Self {
        let mut fixture = Self::new(true, ports);
        fixture.take(ReplicaEvent::Resumed(5));
        fixture.take(flushed(5, FileChanges::default()));
        for id in 1..=i32::try_from(ports.len()).expect("few") {
            assert_eq!(fixture.sent(id), "open5(f:x g:x) commit5()");
        }
        fixture
    }

    fn locate(&mut self, found: &[RegionLocation]) -> bool {
        self.queue.locate(found, &self.budget).1
    }

    /// Takes an event. Files of flushes have the sequence ids of these.
    fn take(&mut self, event: ReplicaEvent) {
        if let ReplicaEvent::Flushed { through, .. } = event {
            self.region.files = self.region.files.max(through);
        }
        self.queue.take(&event, &self.region);
    }

    fn edits(&mut self, seq_ids: impl IntoIterator<Item = u64>) {
        seq_ids.into_iter().for_each(|seq_id| self.take(edit(seq_id, 1)));
    }

    fn start(&mut self, seq_id: u64, families: &[Bytes], is_of_all: bool) {
        self.take(ReplicaEvent::FlushStarted { seq_id, families: families.to_vec(), is_of_all });
    }

    fn readers(&mut self) -> ReplicasElsewhere {
        self.queue.readers(&self.region)
    }

    fn next(&mut self, id: i32, now: Instant) -> Next {
        self.queue.next(id, now, &self.region)
    }

    fn batch_at(&mut self, id: i32, now: Instant) -> Option<Batch> {
        match self.next(id, now) {
            Next::Batch(batch) => Some(*batch),
            Next::Nothing | Next::Unlogged(_) => None,
        }
    }

    fn batch(&mut self, id: i32) -> Option<Batch> {
        self.batch_at(id, clock::monotonic())
    }

    /// As before the repetition of a call that may have been replayed. Returns what is sent again.
    fn repeat(&mut self, mut batch: Batch) -> String {
        self.queue.prepare_repetition(&mut batch);
        describe(&batch.call())
    }

    /// Takes all entries of a replica, and returns them as text.
    fn sent(&mut self, id: i32) -> String {
        let batches = std::iter::from_fn(|| self.batch(id));
        batches.map(|batch| describe(&batch.call())).collect::<Vec<_>>().join(" ")
    }
}

fn edit(seq_id: u64, bytes: usize) -> ReplicaEvent {
    let mut cells = CellBuffer::new();
    cells.push(&KeyValue::put(b"r", b"f", b"q", 1, &vec![0; bytes]).as_cell());
    ReplicaEvent::Edits { seq_id, unlogged: None, cells }
}

/// An edit that is visible before its log entry, with the same number, is in the log.
fn unlogged_edit(seq_id: u64) -> ReplicaEvent {
    match edit(seq_id, 1) {
        ReplicaEvent::Edits { cells, .. } => {
            ReplicaEvent::Edits { seq_id, unlogged: Some(Txid::new(seq_id)), cells }
        }
        other => other,
    }
}

fn flushed(through: u64, changes: FileChanges) -> ReplicaEvent {
    ReplicaEvent::Flushed { through, changes, follows_gap: false }
}

/// The end of a flush of families, each of which has a new file.
fn flush_of(seq_id: u64, families: &[Bytes]) -> FileChanges {
    let files = families.iter().map(|family| (family.clone(), vec![format!("new{seq_id}")])).collect();
    FileChanges::Known(vec![FileChange::Flushed { seq_id, files }])
}

/// A bulk load into the family g.
fn load(seq_id: u64) -> FileChanges {
    FileChanges::Known(vec![FileChange::Loaded { seq_id, files: vec![(G, vec!["l".to_owned()])] }])
}

fn compaction() -> FileChanges {
    let names = |names: [&str; 2]| names.map(str::to_owned).to_vec();
    let (inputs, outputs) = (names(["a", "b"]), vec!["c".to_owned()]);
    FileChanges::Known(vec![FileChange::Replaced { family: F, inputs, outputs }])
}

/// The entries of a call: edits by sequence id, markers by their content.
pub(crate) fn describe(call: &ReplayCall) -> String {
    let mut block = Bytes::from(call.cells.clone());
    let mut text = Vec::new();
    for entry in &call.request.entry {
        let (count, seq_id) = (entry.associated_cell_count(), entry.key.log_sequence_number);
        assert!(count > 0 && entry.key.orig_sequence_number.is_none() && entry.key.write_time == 7);
        for _ in 0..count {
            let len = usize::try_from(block.get_u32()).expect("short");
            let cell = KeyValue::parse(block.split_to(len)).expect("a cell");
            let marker = markers::parse(&cell.as_cell()).expect("a marker");
            text.push(marker.map_or_else(|| seq_id.to_string(), |marker| describe_marker(seq_id, &marker)));
        }
    }
    assert!(block.is_empty(), "every cell belongs to an entry");
    text.join(" ")
}

fn describe_marker(seq_id: u64, marker: &Marker) -> String {
    let family = |name: &Bytes| String::from_utf8_lossy(name).into_owned();
    match marker {
        Marker::Flush(flush) => {
            assert_eq!((flush.flush_sequence_number(), &*flush.table_name), (seq_id, &b"t"[..]));
            assert_eq!(&*flush.encoded_region_name, info().encoded_name().as_bytes());
            let action = match flush.action() {
                FlushAction::StartFlush => "start",
                FlushAction::CommitFlush => "commit",
                FlushAction::CannotFlush => "cannot",
                FlushAction::AbortFlush => "abort",
            };
            let names = |names: &[String]| names.iter().map(|name| format!(":{name}")).collect::<String>();
            let store = |store: &pb::flush_descriptor::StoreFlushDescriptor| {
                format!("{}{}", family(&store.family_name), names(&store.flush_output))
            };
            let stores: Vec<_> = flush.store_flushes.iter().map(store).collect();
            format!("{action}{seq_id}({})", stores.join(" "))
        }
        Marker::Compaction(files) => {
            assert_eq!(&*files.encoded_region_name, info().encoded_name().as_bytes());
            let names = |names: &[String]| names.join("+");
            let (inputs, outputs) = (names(&files.compaction_input), names(&files.compaction_output));
            format!("files{seq_id}({} {inputs}>{outputs})", family(&files.family_name))
        }
        Marker::RegionEvent(event) => {
            assert_eq!(event.log_sequence_number(), seq_id);
            let store = |store: &pb::StoreDescriptor| {
                format!("{}:{}", family(&store.family_name), store.store_file.join("+"))
            };
            let stores: Vec<_> = event.stores.iter().map(store).collect();
            format!("open{seq_id}({})", stores.join(" "))
        }
        Marker::BulkLoad(load) => {
            assert_eq!(u64::try_from(load.bulkload_seq_num), Ok(seq_id));
            assert_eq!(&*load.encoded_region_name, info().encoded_name().as_bytes());
            format!("loaded{seq_id}({})", "store".repeat(load.stores.len()))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn edits_follow_the_files_of_a_flush() {
    let mut fixture = Fixture::new(true, &[1]);
    assert_eq!(fixture.readers(), ReplicasElsewhere { read: true, wait: true, is_first: true });
    fixture.edits([3, 4]);
    fixture.take(ReplicaEvent::Resumed(5));
    // The flush may fail.
    assert_eq!(fixture.readers(), ReplicasElsewhere { read: true, wait: true, is_first: false });
    fixture.edits([5, 6, 7]);
    assert_eq!(fixture.sent(1), "", "these wait for the edits of before");
    fixture.take(flushed(4, FileChanges::default()));
    assert_eq!(fixture.sent(1), "", "the files do not have them yet");
    fixture.take(flushed(5, flush_of(5, &[F, G])));
    fixture.edits([8]);
    assert_eq!(fixture.sent(1), "open5(f:x g:x) commit5() 6 7 8");
    assert_eq!(fixture.readers(), ReplicasElsewhere { read: true, wait: false, is_first: false });
    assert_eq!(fixture.budget.used(), 0);
}

#[test]
fn a_flush_is_told_by_its_begin_and_end() {
    let mut fixture = Fixture::live(&[1]);
    fixture.edits([6]);
    fixture.start(8, &[F, G], true);
    fixture.edits([7]);
    assert_eq!(fixture.sent(1), "6 7", "edits of the flush come before its marker");
    fixture.edits([9]);
    fixture.take(flushed(8, flush_of(8, &[F, G])));
    assert_eq!(fixture.sent(1), "start8(f g) 9 commit8(f:new8 g:new8)");
    fixture.start(10, &[G], false);
    fixture.take(flushed(9, flush_of(10, &[G])));
    assert_eq!(fixture.sent(1), "start10(g) commit10(g:new10)");
    fixture.start(11, &[], true);
    fixture.take(flushed(11, FileChanges::default()));
    assert_eq!(fixture.sent(1), "cannot11()");
}

/// HBase ignores the start of a second flush, and may drop edits of all families at its end.
#[test]
fn a_flush_after_one_that_failed_is_not_told() {
    let mut fixture = Fixture::live(&[1]);
    fixture.start(12, &[F], false);
    // Nothing of this one was queued.
    fixture.start(13, &[F], false);
    fixture.edits([14]);
    fixture.take(flushed(11, flush_of(13, &[F])));
    assert_eq!(fixture.sent(1), "start13(f) 14 commit13(f:new13)");
    fixture.start(15, &[F], false);
    fixture.edits([16]);
    fixture.start(17, &[F], false);
    fixture.edits([18]);
    fixture.take(flushed(11, flush_of(17, &[F])));
    assert_eq!(fixture.sent(1), "start15(f) 16 files18(f >new17)");
    assert!(fixture.readers().wait);
    fixture.take(ReplicaEvent::Resumed(19));
    fixture.take(flushed(19, FileChanges::default()));
    assert_eq!(fixture.sent(1), "open19(f:x g:x) commit19()");
    // The next one is of all stores.
    fixture.start(20, &[F, G], true);
    fixture.edits([21]);
    fixture.start(22, &[F, G], true);
    fixture.edits([23]);
    fixture.take(flushed(22, flush_of(22, &[F, G])));
    assert_eq!(fixture.sent(1), "open22(f:x g:x) commit22() 23");
}

/// A stream that is stopped does not tell that a flush of some stores begins.
#[test]
fn the_end_of_a_flush_without_its_begin_is_not_told() {
    let mut fixture = Fixture::live(&[1]);
    fixture.edits([6]);
    fixture.take(flushed(5, flush_of(8, &[F])));
    fixture.edits([9]);
    assert_eq!(fixture.sent(1), "6 files8(f >new8)");
    assert!(fixture.readers().wait);
}

#[test]
fn steps_of_a_flush_are_not_sent_again() {
    let mut fixture = Fixture::live(&[1]);
    fixture.edits([6]);
    let batch = fixture.batch(1).expect("an edit");
    assert_eq!(fixture.repeat(batch), "6");
    fixture.start(7, &[F], false);
    fixture.take(flushed(5, compaction()));
    fixture.take(flushed(5, flush_of(7, &[F])));
    let batch = fixture.batch(1).expect("entries");
    fixture.edits([8]);
    fixture.take(flushed(5, compaction()));
    assert_eq!(fixture.repeat(batch), "files6(f a+b>c)");
    assert!(fixture.readers().wait);
    fixture.edits([9]);
    assert_eq!(fixture.sent(1), "", "edits and files may depend on what was not replayed");
    fixture.take(flushed(5, compaction()));
    assert_eq!(fixture.sent(1), "", "a file of the flush may be among the former ones");
    // A list that follows has all.
    let mut fixture = Fixture::live(&[1]);
    fixture.start(6, &[F], false);
    fixture.edits([7]);
    let batch = fixture.batch(1).expect("entries");
    fixture.take(ReplicaEvent::Resumed(9));
    fixture.edits([10]);
    fixture.take(flushed(9, FileChanges::default()));
    assert_eq!(fixture.repeat(batch), "");
    assert_eq!(fixture.sent(1), "open9(f:x g:x) commit9() 10");
}

#[test]
fn a_list_has_a_call_of_its_own() {
    let mut fixture = Fixture::new(true, &[1]);
    fixture.take(ReplicaEvent::Resumed(5));
    fixture.edits([6]);
    fixture.take(flushed(5, FileChanges::default()));
    fixture.take(flushed(5, compaction()));
    let list = fixture.batch(1).expect("a list");
    assert_eq!(describe(&list.call()), "open5(f:x g:x) commit5()");
    assert_eq!(fixture.repeat(list), "open5(f:x g:x) commit5()");
    assert_eq!(fixture.sent(1), "6 files6(f a+b>c)");
}

/// A flush of all stores has ended before the list: its edits are in the listed files.
#[test]
fn a_list_has_the_greatest_id() {
    let mut fixture = Fixture::new(true, &[1]);
    fixture.take(ReplicaEvent::Resumed(5));
    fixture.edits([6, 7, 8]);
    fixture.take(flushed(7, FileChanges::default()));
    assert_eq!(fixture.sent(1), "open7(f:x g:x) commit7() 8");
}

#[test]
fn markers_that_wait_for_too_long_are_dropped() {
    let mut fixture = Fixture::live(&[1]);
    fixture.edits([6]);
    fixture.take(flushed(0, compaction()));
    fixture.edits([7]);
    let late = clock::monotonic() + MARKER_AGE_MAX + Duration::from_secs(60);
    assert_eq!(fixture.sent(1), "6 files6(f a+b>c) 7");
    fixture.take(flushed(0, compaction()));
    fixture.edits([8]);
    assert!(fixture.batch_at(1, late).is_none() && fixture.readers().wait);
    fixture.take(flushed(0, compaction()));
    assert_eq!(fixture.sent(1), "", "a change is missing");
    // Also behind edits.
    let mut fixture = Fixture::live(&[1]);
    fixture.edits([6]);
    fixture.take(flushed(0, compaction()));
    let batch = fixture.batch_at(1, late).expect("edits have no files");
    assert_eq!(describe(&batch.call()), "6");
    assert!(fixture.batch_at(1, late).is_none() && fixture.readers().wait);
}

/// A crash may lose such edits, and then this server opens without them.
#[test]
fn edits_are_not_sent_before_they_are_in_the_log() {
    let mut fixture = Fixture::live(&[1]);
    let unlogged = |fixture: &mut Fixture| match fixture.next(1, clock::monotonic()) {
        Next::Unlogged(entry) => Some(entry),
        Next::Batch(_) | Next::Nothing => None,
    };
    fixture.edits([6]);
    [7, 8].into_iter().for_each(|seq_id| fixture.take(unlogged_edit(seq_id)));
    fixture.edits([9]);
    assert_eq!(fixture.sent(1), "6");
    assert_eq!(unlogged(&mut fixture), Some(Txid::new(7)));
    fixture.region.logged = 7;
    assert_eq!((fixture.sent(1), unlogged(&mut fixture)), ("7".to_owned(), Some(Txid::new(8))));
    fixture.region.logged = 8;
    assert_eq!((fixture.sent(1), unlogged(&mut fixture)), ("8 9".to_owned(), None));
}

#[test]
fn edits_that_the_log_has_lost_need_a_flush() {
    let mut fixture = Fixture::live(&[1]);
    fixture.edits([6]);
    fixture.take(flushed(0, compaction()));
    fixture.take(unlogged_edit(7));
    fixture.take(flushed(0, compaction()));
    fixture.edits([8]);
    fixture.region.lost = Some(7);
    assert_eq!(fixture.sent(1), "6 files6(f a+b>c) files7(f a+b>c)");
    assert!(fixture.readers().wait);
    assert_eq!(fixture.budget.used(), 0);
    // Also if it is the first that is sent.
    let mut fixture = Fixture::live(&[1]);
    fixture.take(unlogged_edit(6));
    fixture.take(flushed(0, compaction()));
    fixture.region.lost = Some(6);
    assert_eq!(fixture.sent(1), "files6(f a+b>c)");
}

/// A version that the replica shows may have been replaced by one that it does not show yet.
#[test]
fn a_compaction_of_files_with_hidden_edits_is_not_told() {
    let of_g = |fixture: &mut Fixture| {
        let (inputs, outputs) = (vec!["a".to_owned()], vec!["b".to_owned()]);
        let change = FileChange::Replaced { family: G, inputs, outputs };
        fixture.take(flushed(0, FileChanges::Known(vec![change])));
    };
    let mut fixture = Fixture::live(&[1]);
    fixture.take(ReplicaEvent::Resumed(9));
    fixture.take(flushed(5, flush_of(8, &[F])));
    of_g(&mut fixture);
    assert_eq!(fixture.sent(1), "files8(f >new8) files8(g a>b)", "all edits of g's files are shown");
    fixture.take(flushed(0, compaction()));
    of_g(&mut fixture);
    assert_eq!(fixture.sent(1), "", "a change is missing");
    fixture.take(flushed(9, FileChanges::default()));
    assert_eq!(fixture.sent(1), "open9(f:x g:x) commit9()");
    // The same with loaded files.
    fixture.take(ReplicaEvent::Resumed(12));
    fixture.take(flushed(11, load(11)));
    assert_eq!(fixture.sent(1), "files11(g >l)", "they are not shown before the edits of before");
    of_g(&mut fixture);
    assert_eq!(fixture.sent(1), "");
    fixture.take(flushed(12, FileChanges::default()));
    fixture.take(flushed(0, compaction()));
    assert_eq!(fixture.sent(1), "open12(f:x g:x) commit12() files12(f a+b>c)");
}

/// As above: the replica does not know the new file of a flush whose end is dropped.
#[test]
fn replaced_files_after_a_flush_that_is_dropped_are_dropped() {
    let mut fixture = Fixture::live(&[1]);
    let of_calls = usize::try_from(BUDGET / 16).expect("small");
    fixture.take(flushed(0, compaction()));
    fixture.start(6, &[F], false);
    fixture.take(flushed(5, flush_of(6, &[F])));
    fixture.take(flushed(0, compaction()));
    (7..13).for_each(|seq_id| fixture.take(edit(seq_id, of_calls)));
    fixture.take(flushed(0, compaction()));
    assert_eq!(fixture.sent(1), "files5(f a+b>c)");
    assert!(fixture.readers().wait);
}

/// HBase ignores the markers of a region's next opening if their ids are smaller.
#[test]
fn markers_of_files_have_the_last_id_of_the_stream() {
    let mut fixture = Fixture::live(&[1]);
    fixture.take(flushed(0, compaction()));
    fixture.start(9, &[G], false);
    fixture.take(flushed(0, compaction()));
    fixture.edits([11]);
    fixture.take(flushed(0, compaction()));
    let files = |seq_id: u64| format!("files{seq_id}(f a+b>c)");
    // The flush may not end before a crash, and then an edit may have the id 9.
    assert_eq!(fixture.sent(1), format!("{} {} start9(g) 11 {}", files(5), files(5), files(11)));
}

/// Two flushes have ended before the first is told: the list has the files of both.
#[test]
fn a_file_that_was_listed_is_not_added_again() {
    let mut fixture = Fixture::live(&[1]);
    let listed = |seq_id| {
        let files = vec![(F, vec!["x".to_owned()]), (G, vec![format!("new{seq_id}")])];
        flushed(seq_id, FileChanges::Known(vec![FileChange::Flushed { seq_id, files }]))
    };
    fixture.start(6, &[F, G], true);
    fixture.take(listed(6));
    assert_eq!(fixture.sent(1), "start6(f g) commit6(f g:new6)");
    fixture.start(7, &[F], false);
    fixture.take(flushed(7, flush_of(7, &[F])));
    fixture.start(8, &[F, G], true);
    fixture.take(listed(8));
    assert_eq!(
        fixture.sent(1),
        "start7(f) commit7(f:new7) start8(f g) commit8(f:x g:new8)",
        "names are unique"
    );
    // A flush between has no file of the list.
    let mut fixture = Fixture::live(&[1]);
    fixture.start(6, &[F], false);
    fixture.take(flushed(5, flush_of(6, &[])));
    fixture.start(8, &[F, G], true);
    fixture.take(listed(8));
    assert_eq!(fixture.sent(1), "start6(f) commit6() start8(f g) commit8(f g:new8)");
}

/// Cells above the id of a list are hidden, and files of compactions lack what these replace.
#[test]
fn a_list_has_no_newer_file() {
    let mut fixture = Fixture::new(true, &[1]);
    fixture.take(ReplicaEvent::Resumed(5));
    fixture.edits([6]);
    fixture.region.files = 8;
    fixture.take(flushed(5, FileChanges::default()));
    assert_eq!((fixture.sent(1), fixture.budget.used()), (String::new(), 0));
    assert!(fixture.readers().wait);
    fixture.start(8, &[F, G], true);
    fixture.edits([9]);
    fixture.take(flushed(8, FileChanges::default()));
    assert_eq!(fixture.sent(1), "open8(f:x g:x) commit8() 9");
}

/// After a crash the id of a flush whose cells had all expired is used again.
#[test]
fn a_list_has_an_id_that_is_in_files() {
    let mut fixture = Fixture::new(true, &[1]);
    fixture.take(ReplicaEvent::Resumed(9));
    fixture.edits([8, 10]);
    fixture.region.files = 5;
    let event = flushed(9, flush_of(9, &[]));
    fixture.queue.take(&event, &fixture.region);
    assert_eq!(fixture.sent(1), "open5(f:x g:x) commit5() 10");
}

/// The cells of an edit in the flushed family would be shown without the others.
#[test]
fn the_end_of_a_flush_after_lost_edits_is_not_told() {
    let mut fixture = Fixture::live(&[1]);
    fixture.start(8, &[F], false);
    fixture.edits([6]);
    let changes = flush_of(8, &[F]);
    fixture.take(ReplicaEvent::Flushed { through: 6, changes, follows_gap: true });
    assert_eq!(fixture.sent(1), "6 files8(f >new8)");
    assert!(fixture.readers().wait);
}

#[test]
fn a_flush_is_requested_once_for_a_new_replica() {
    let mut fixture = Fixture::new(true, &[1]);
    assert!(fixture.readers().is_first);
    fixture.queue.flush_requested();
    assert_eq!(fixture.readers(), ReplicasElsewhere { read: true, wait: true, is_first: false });
    fixture.locate(&[at(1, 1, 2)]);
    assert!(fixture.readers().is_first, "another opening");
}

#[test]
fn compactions_and_bulk_loads_are_told_at_once() {
    let mut fixture = Fixture::live(&[1]);
    fixture.take(flushed(0, compaction()));
    fixture.take(flushed(6, load(6)));
    assert_eq!(fixture.sent(1), "files5(f a+b>c) files6(g >l) loaded6()", "its cells are shown");
    fixture.take(flushed(6, load(0)));
    assert_eq!(fixture.sent(1), "files6(g >l)", "they keep the ids that they have");
    // One that lacks edits must not read files that are deleted.
    fixture.take(ReplicaEvent::Resumed(8));
    fixture.take(flushed(0, compaction()));
    assert_eq!(fixture.sent(1), "files6(f a+b>c)");
    // One that lacks changes needs a list first.
    fixture.queue.lose();
    fixture.take(flushed(0, compaction()));
    fixture.edits([9]);
    fixture.start(10, &[F, G], true);
    fixture.take(flushed(0, compaction()));
    assert_eq!(fixture.sent(1), "");
    fixture.take(flushed(10, FileChanges::default()));
    fixture.take(flushed(0, compaction()));
    assert_eq!(fixture.sent(1), "open10(f:x g:x) commit10() files10(f a+b>c)");
}

#[test]
fn replaced_files_that_wait_have_a_limit() {
    let mut fixture = Fixture::live(&[1]);
    (0..FILES_MAX).for_each(|_| fixture.take(flushed(0, compaction())));
    assert!(!fixture.readers().wait && fixture.budget.used() > 0);
    fixture.take(flushed(0, compaction()));
    assert!(fixture.readers().wait);
    assert_eq!((fixture.sent(1), fixture.budget.used()), (String::new(), 0));
}

#[test]
fn an_interrupted_stream_is_filled_by_the_next_flush() {
    let mut fixture = Fixture::live(&[1]);
    fixture.edits([6]);
    // Edits between were lost.
    fixture.take(ReplicaEvent::Resumed(9));
    fixture.edits([9, 10]);
    assert_eq!(fixture.sent(1), "6");
    fixture.take(flushed(9, flush_of(9, &[F])));
    assert_eq!(fixture.sent(1), "open9(f:x g:x) commit9() 10");
    // A flush that failed, and the next one.
    fixture.take(ReplicaEvent::Resumed(12));
    fixture.edits([13]);
    fixture.start(14, &[F, G], true);
    fixture.edits([15]);
    fixture.take(flushed(14, FileChanges::default()));
    assert_eq!(fixture.sent(1), "open14(f:x g:x) commit14() 15");
}

#[test]
fn unknown_changes_of_files_need_a_flush() {
    let mut fixture = Fixture::live(&[1]);
    fixture.edits([6]);
    fixture.take(flushed(0, FileChanges::Unknown));
    assert_eq!(fixture.sent(1), "");
    assert_eq!(fixture.readers(), ReplicasElsewhere { read: true, wait: true, is_first: false });
    fixture.take(ReplicaEvent::Resumed(7));
    fixture.take(flushed(7, FileChanges::default()));
    assert_eq!(fixture.sent(1), "open7(f:x g:x) commit7()");
    // Also while one lacks edits.
    fixture.take(ReplicaEvent::Resumed(8));
    fixture.edits([9]);
    fixture.take(flushed(0, FileChanges::Unknown));
    fixture.take(flushed(0, compaction()));
    assert_eq!(fixture.sent(1), "");
    fixture.take(flushed(8, FileChanges::default()));
    assert_eq!(fixture.sent(1), "open8(f:x g:x) commit8() 9");
}

#[test]
fn a_full_queue_is_dropped_until_a_flush() {
    let mut fixture = Fixture::live(&[1, 2]);
    let of_calls = usize::try_from(BUDGET / 16).expect("small");
    fixture.take(flushed(0, compaction()));
    assert_eq!(fixture.sent(2), "files5(f a+b>c)");
    fixture.take(edit(6, 1));
    let batch = fixture.batch(1).expect("entries");
    assert_eq!(describe(&batch.call()), "files5(f a+b>c) 6");
    assert_eq!(fixture.sent(2), "6");
    fixture.take(flushed(0, compaction()));
    assert_eq!(fixture.sent(2), "files6(f a+b>c)");
    // Half of the budget, which counts each entry twice.
    for seq_id in 7..13 {
        fixture.take(edit(seq_id, of_calls));
        assert_eq!(fixture.sent(2), seq_id.to_string(), "one that keeps up");
    }
    fixture.take(flushed(0, compaction()));
    assert_eq!(fixture.sent(2), "files12(f a+b>c)");
    assert!(fixture.queue.is_current(&batch), "what is being sent comes before the gap");
    assert_eq!(fixture.repeat(batch), "files5(f a+b>c) 6");
    assert_eq!(fixture.sent(1), "files6(f a+b>c) files12(f a+b>c)", "one that does not keep up");
    assert_eq!(fixture.budget.used(), 0);
    assert!(fixture.readers().wait);
    fixture.start(14, &[F, G], true);
    fixture.edits([13, 15]);
    fixture.take(flushed(14, flush_of(14, &[])));
    assert_eq!(fixture.sent(2), "13 start14(f g) 15 commit14()");
    assert_eq!(fixture.sent(1), "open14(f:x g:x) commit14() 15");
    // Held edits have a limit, too.
    fixture.take(ReplicaEvent::Resumed(20));
    (21..30).for_each(|seq_id| fixture.take(edit(seq_id, of_calls)));
    fixture.take(flushed(20, FileChanges::default()));
    assert_eq!((fixture.sent(1), fixture.sent(2)), (String::new(), String::new()));
    assert_eq!(fixture.budget.used(), 0);
}

#[test]
fn replicas_of_one_server_leave_space_for_others() {
    let mut fixture = Fixture::live(&[1, 1, 2]);
    let of_calls = usize::try_from(BUDGET / 16).expect("small");
    // 1 and 2 are on a server that takes nothing. Together they may have 3/4.
    for seq_id in 6..20 {
        fixture.take(edit(seq_id, of_calls));
        assert_eq!(fixture.sent(3), seq_id.to_string());
        assert!(fixture.budget.used() <= BUDGET / 4 * 3);
    }
}

#[test]
fn what_is_being_sent_is_charged_and_kept_in_order() {
    let mut fixture = Fixture::live(&[1]);
    fixture.edits([6]);
    let batch = fixture.batch(1).expect("an entry");
    fixture.edits([7]);
    let used = fixture.budget.used();
    assert!(fixture.queue.is_current(&batch) && used > 0);
    fixture.queue.lose();
    assert!(fixture.queue.is_current(&batch), "it comes before what is missing");
    assert!(fixture.budget.used() > 0 && fixture.budget.used() < used);
    drop(batch);
    assert_eq!(fixture.budget.used(), 0);
}

#[test]
fn a_replica_whose_calls_fail_is_forgotten_until_it_is_found() {
    let mut fixture = Fixture::live(&[1]);
    fixture.edits([6, 7]);
    let batch = fixture.batch(1).expect("entries");
    fixture.queue.fail(&batch, &fixture.budget);
    drop(batch);
    assert_eq!((fixture.readers(), fixture.budget.used()), (ReplicasElsewhere::default(), 0));
    fixture.edits([8]);
    assert!(fixture.locate(&[at(1, 1, 1)]));
    assert_eq!(fixture.readers(), ReplicasElsewhere { read: true, wait: true, is_first: false });
    fixture.take(ReplicaEvent::Resumed(9));
    fixture.take(flushed(9, FileChanges::default()));
    assert_eq!(fixture.sent(1), "open9(f:x g:x) commit9()");
}

#[test]
fn another_opening_is_another_replica() {
    let mut fixture = Fixture::live(&[1]);
    assert!(!fixture.locate(&[at(1, 1, 1)]));
    fixture.edits([6]);
    let batch = fixture.batch(1).expect("an entry");
    assert!(fixture.locate(&[at(1, 1, 2)]));
    assert!(!fixture.queue.is_current(&batch));
    assert_eq!(fixture.readers(), ReplicasElsewhere { read: true, wait: true, is_first: true });
    // The failure of the former.
    fixture.queue.fail(&batch, &fixture.budget);
    assert!(fixture.readers().read);
    assert!(fixture.locate(&[at(1, 2, 3), at(2, 2, 3)]) && fixture.locate(&[]));
    assert_eq!(fixture.readers(), ReplicasElsewhere::default());
}

#[test]
fn without_replicated_edits_all_files_are_listed_at_once() {
    let mut fixture = Fixture::new(false, &[1]);
    fixture.region.files = 1000;
    assert_eq!(fixture.sent(1), "");
    assert_eq!(fixture.readers(), ReplicasElsewhere { read: true, wait: false, is_first: false });
    assert_eq!(fixture.sent(1), "open1000(f:x g:x) commit1000()");
    fixture.start(8, &[F, G], true);
    fixture.take(flushed(8, flush_of(8, &[F])));
    assert_eq!(fixture.sent(1), "start8(f g) commit8(f:new8)");
    fixture.take(flushed(0, FileChanges::Unknown));
    assert_eq!(fixture.sent(1), "open1000(f:x g:x) commit1000()");
}

#[test]
fn a_call_has_a_limited_size() {
    let mut fixture = Fixture::live(&[1]);
    let bytes = usize::try_from(CALL_BYTES).expect("small") / 3;
    [bytes, bytes, bytes, 1]
        .into_iter()
        .zip(6..)
        .for_each(|(bytes, seq_id)| fixture.take(edit(seq_id, bytes)));
    let counts = || fixture.batch(1).map(|batch| batch.call().request.entry.len());
    assert_eq!(std::iter::from_fn(counts).collect::<Vec<_>>(), [2, 2]);
    // One that is larger is sent alone.
    let mut fixture = Fixture::live(&[1]);
    let counts = [bytes * 4, 1].into_iter().zip(6..);
    counts.for_each(|(bytes, seq_id)| fixture.take(edit(seq_id, bytes)));
    assert_eq!(fixture.sent(1), "6 7");
}
