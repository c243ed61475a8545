//! The events of a stream, without a region.

use super::*;

fn cells(bytes: usize) -> CellBuffer {
    let mut cells = CellBuffer::new();
    cells.push(&KeyValue::put(b"r", b"f", b"q", 1, &vec![0; bytes]).as_cell());
    cells
}

fn started() -> (Arc<Budget>, ReplicaStream) {
    let budget = Budget::new(4096);
    let stream = ReplicaStream::new(true, Arc::clone(&budget));
    stream.set_has_readers(true, false);
    stream.flush_started(5, true, &[]);
    (budget, stream)
}

/// The events as text: edits by sequence id, `>` for resumed, `=` for flushed.
fn taken(stream: &ReplicaStream) -> String {
    let reader = stream.read();
    let text = |event| match event {
        ReplicaEvent::Edits { seq_id, .. } => format!("{seq_id}"),
        ReplicaEvent::Resumed(until) => format!(">{until}"),
        ReplicaEvent::FlushStarted { seq_id, families, is_of_all } => {
            format!("({seq_id} {} {is_of_all}", families.len())
        }
        ReplicaEvent::Flushed { through, changes: FileChanges::Unknown, .. } => format!("={through}?"),
        ReplicaEvent::Flushed { through, changes: FileChanges::Known(changes), .. } => {
            format!("={through}{}", "+".repeat(changes.len()))
        }
    };
    std::iter::from_fn(|| reader.take()).map(text).collect::<Vec<_>>().join(" ")
}

fn through(event: ReplicaEvent) -> u64 {
    let ReplicaEvent::Flushed { through, .. } = event else { panic!("{event:?}") };
    through
}

fn change(outputs: usize) -> FileChanges {
    let outputs = vec!["file".to_owned(); outputs];
    let (family, inputs) = (Bytes::from_static(b"f"), Vec::new());
    FileChanges::Known(vec![FileChange::Replaced { family, inputs, outputs }])
}

#[test]
fn a_running_stream_tells_readers_elsewhere_of_flushes() {
    let (budget, stream) = started();
    let families = [Bytes::from_static(b"f"), Bytes::from_static(b"g")];
    stream.flush_started(6, true, &families);
    assert_eq!(taken(&stream), ">5", "no reader here needs to know");
    stream.set_has_readers(true, true);
    stream.flush_started(7, false, &families[..1]);
    stream.push_edits(8, None, cells(1));
    stream.flush_started(9, true, &families);
    let reader = stream.read();
    assert!(reader.take_up_to(6, drop).is_none());
    assert!(matches!(reader.take_up_to(7, drop), Some(ReplicaEvent::FlushStarted { seq_id: 7, .. })));
    drop(reader);
    assert_eq!(taken(&stream), "8 (9 2 true");
    let others = 4096 - 100;
    assert!(budget.acquire(others));
    stream.flush_started(10, true, &families);
    assert!(stream.is_stopped(), "the readers would miss a flush");
    budget.release(others);
    stream.flush_started(11, false, &families);
    stream.flush_started(12, true, &families);
    assert_eq!(taken(&stream), ">12");
    assert_eq!(budget.used(), 0);
}

#[test]
fn changes_of_files_are_joined_up_to_a_number() {
    let (budget, stream) = started();
    stream.push_flushed(6, change(1));
    stream.push_flushed(0, change(2));
    assert_eq!(taken(&stream), ">5 =6++");
    let others = 4096 - 300;
    assert!(budget.acquire(others));
    stream.push_flushed(7, change(1));
    budget.release(others);
    stream.push_flushed(8, change(1));
    assert_eq!(taken(&stream), "=8++");
    (0..=CHANGES_MAX).for_each(|_| stream.push_flushed(9, change(0)));
    stream.push_flushed(9, change(0));
    assert_eq!(taken(&stream), "=9?");
    assert_eq!(budget.used(), 0);
}

#[test]
fn a_stream_without_readers_keeps_nothing() {
    let stream = ReplicaStream::new(true, Budget::new(4096));
    stream.flush_started(5, true, &[]);
    stream.push_edits(6, None, cells(1));
    stream.push_flushed(6, FileChanges::default());
    assert!(stream.is_stopped() && stream.copy(&[]).is_none() && !stream.announce());
    assert_eq!(taken(&stream), "");
}

#[test]
fn events_keep_their_order() {
    let (budget, stream) = started();
    stream.push_edits(6, None, cells(1));
    stream.push_flushed(6, FileChanges::default());
    stream.push_flushed(0, FileChanges::default());
    stream.push_edits(8, None, cells(1));
    assert_eq!(taken(&stream), ">5 6 =6 8");
    stream.stop_unless_resumed();
    assert!(stream.is_stopped());
    assert_eq!(budget.used(), 0);
}

#[test]
fn an_exhausted_budget_stops_the_stream_until_a_flush() {
    let (budget, stream) = started();
    stream.push_edits(6, None, cells(1000));
    stream.push_edits(7, None, cells(5000));
    assert!(stream.is_stopped());
    stream.push_edits(8, None, cells(1));
    stream.flush_started(9, true, &[]);
    stream.push_edits(10, None, cells(1));
    assert_eq!(taken(&stream), ">5 6 >9 10");
    assert_eq!(budget.used(), 0);
    // A stream that runs is not interrupted by another flush.
    stream.flush_started(11, true, &[]);
    assert_eq!(taken(&stream), "");
}

#[test]
fn a_change_of_files_is_told_even_if_the_budget_is_exhausted() {
    let (budget, stream) = started();
    assert!(stream.read().take().is_some());
    let others = 4096 - 100;
    assert!(budget.acquire(others));
    stream.push_flushed(6, FileChanges::default());
    stream.push_flushed(0, FileChanges::default());
    assert!(stream.announce() && stream.has_events() && !stream.is_stopped());
    assert_eq!(taken(&stream), "=6");
    stream.push_flushed(7, FileChanges::default());
    budget.release(others);
    stream.push_edits(8, None, cells(1));
    stream.push_flushed(0, FileChanges::default());
    assert_eq!(taken(&stream), "8 =7");
    assert!(budget.acquire(others));
    stream.push_flushed(9, FileChanges::default());
    let mut aside = Vec::new();
    assert!(stream.read().take_up_to(9, |event| aside.push(through(event))).is_none());
    assert_eq!((aside, stream.has_events()), (vec![9], false));
    stream.push_flushed(10, FileChanges::default());
    stream.set_has_readers(false, false);
    assert_eq!(taken(&stream), "");
}

#[test]
fn a_failed_refresh_is_repeated_after_a_pause() {
    let (_, stream) = started();
    let now = evenkeel_common::clock::monotonic();
    stream.set_failed_flushed(7, now);
    stream.set_failed_flushed(0, now);
    stream.retry_flushed(now);
    assert_eq!(taken(&stream), ">5");
    stream.retry_flushed(now + REFRESH_PAUSE);
    stream.retry_flushed(now + REFRESH_PAUSE * 2);
    assert_eq!(taken(&stream), "=7");
}

#[test]
fn flushes_that_start_a_stream_are_paced() {
    let (_, stream) = started();
    let now = evenkeel_common::clock::monotonic();
    let at = |pauses: u32| now + RESTART_PAUSE_MIN * pauses;
    assert!(stream.begin_restart(now, false) && !stream.begin_restart(now, false));
    assert!(stream.begin_restart(at(1), false), "the first pause is over");
    assert!(!stream.begin_restart(at(2), false) && stream.begin_restart(at(3), false), "twice as long");
    assert!(stream.begin_restart(at(4), true), "a new secondary replica does not wait");
    assert!(!stream.begin_restart(at(4), false) && stream.begin_restart(at(6), false));
    assert!(stream.begin_restart(at(7), false), "the pause is short again");
    (0..20).fold(at(7), |at, _| {
        let next = at + RESTART_PAUSE_MAX;
        assert!(stream.begin_restart(next, false));
        next
    });
}

#[test]
fn a_reader_elsewhere_does_not_wait_for_long() {
    let (_, stream) = started();
    let (mut at, mut pause) = (evenkeel_common::clock::monotonic(), RESTART_PAUSE_MIN);
    assert!(stream.begin_restart(at, false));
    while pause <= RESTART_PAUSE_MAX_ELSEWHERE {
        at += pause;
        pause *= 2;
        assert!(stream.begin_restart(at, false));
    }
    at += RESTART_PAUSE_MAX_ELSEWHERE;
    assert!(!stream.begin_restart(at, false));
    stream.set_has_readers(true, true);
    assert!(stream.begin_restart(at, false), "the pause of before is shortened");
    assert!(!stream.begin_restart(at + RESTART_PAUSE_MAX_ELSEWHERE / 2, false));
    assert!(stream.begin_restart(at + RESTART_PAUSE_MAX_ELSEWHERE, false));
}

#[test]
fn a_change_of_files_after_lost_edits_says_so() {
    let (budget, stream) = started();
    let follows_gap = || {
        let reader = stream.read();
        let of = |event| match event {
            ReplicaEvent::Flushed { follows_gap, .. } => Some(follows_gap),
            _ => None,
        };
        std::iter::from_fn(|| reader.take()).filter_map(of).collect::<Vec<_>>()
    };
    stream.push_edits(6, None, cells(1));
    stream.push_flushed(6, change(1));
    assert_eq!(follows_gap(), [false]);
    stream.push_edits(7, None, cells(5000));
    stream.push_flushed(7, change(1));
    stream.push_flushed(7, change(1));
    assert_eq!(follows_gap(), [true]);
    stream.flush_started(8, true, &[]);
    stream.push_flushed(8, change(1));
    assert_eq!(follows_gap(), [false]);
    // Also if there is no space for the event itself.
    stream.push_edits(9, None, cells(5000));
    assert!(budget.acquire(budget.max()));
    stream.push_flushed(9, change(1));
    assert_eq!(follows_gap(), [true]);
}

#[test]
fn a_stream_without_edits_tells_of_files() {
    let stream = ReplicaStream::new(false, Budget::new(4096));
    // A flush between the opening of a replica and its first event.
    stream.push_flushed(4, FileChanges::default());
    stream.set_has_readers(true, false);
    assert_eq!(taken(&stream), "=0?");
    stream.set_has_readers(true, false);
    assert_eq!(taken(&stream), "");
    stream.flush_started(5, true, &[]);
    stream.push_edits(6, None, cells(1));
    stream.push_flushed(6, FileChanges::default());
    assert!(!stream.needs_flush());
    assert_eq!(taken(&stream), "=6");
}

#[test]
fn a_stream_returns_its_bytes() {
    let (budget, stream) = started();
    stream.stop_unless_resumed();
    stream.push_edits(6, None, cells(100));
    assert!(budget.used() > 100);
    stream.set_has_readers(false, false);
    assert_eq!((budget.used(), stream.is_stopped()), (0, true));
    stream.set_has_readers(true, false);
    stream.flush_started(7, true, &[]);
    stream.push_edits(8, None, cells(100));
    drop(stream);
    assert_eq!(budget.used(), 0);
}

#[test]
fn events_are_announced_once_until_they_are_read() {
    let (_, stream) = started();
    assert!(stream.announce() && !stream.announce());
    drop(stream.read());
    assert!(stream.announce(), "the events are still there");
    assert_eq!(taken(&stream), ">5");
    assert!(!stream.announce());
}

#[test]
fn edits_of_files_are_taken_before_later_ones() {
    let (_, stream) = started();
    stream.push_edits(6, None, cells(1));
    stream.push_flushed(6, FileChanges::default());
    stream.push_edits(7, None, cells(1));
    stream.push_edits(8, None, cells(1));
    let reader = stream.read();
    let (mut seq_ids, mut aside) = (Vec::new(), Vec::new());
    while let Some(event) = reader.take_up_to(7, |event| aside.push(through(event))) {
        seq_ids.extend(match event {
            ReplicaEvent::Edits { seq_id, .. } | ReplicaEvent::Resumed(seq_id) => Some(seq_id),
            ReplicaEvent::FlushStarted { .. } | ReplicaEvent::Flushed { .. } => None,
        });
    }
    assert_eq!((seq_ids, aside), (vec![5, 6, 7], vec![6]));
    drop(reader);
    assert_eq!(taken(&stream), "8");
}

#[test]
fn only_tables_that_ask_for_it_have_streams() {
    let on = ReplicaReplication::new(true, false);
    let table = |attributes: &[(&str, &str)]| {
        let table = TableDescriptor::new("t".parse().expect("legal"));
        attributes.iter().fold(table, |table, (key, value)| table.with(key, value))
    };
    let info = RegionInfo::new("t".parse().expect("legal"), b"".as_slice().into(), b"".as_slice().into(), 1);
    let has_stream = |replication: &ReplicaReplication, info: &RegionInfo, table| {
        replication.stream_of(info, &table).is_some_and(|stream| stream.takes_edits())
    };
    let two = || table(&[("REGION_REPLICATION", "2")]);
    assert!(has_stream(&on, &info, two()));
    assert!(!has_stream(&on, &info.replica(1), two()));
    assert!(!has_stream(&on, &info, table(&[])));
    let without = table(&[("REGION_REPLICATION", "2"), ("REGION_MEMSTORE_REPLICATION", "false")]);
    assert!(!has_stream(&on, &info, without.clone()));
    assert!(on.stream_of(&info, &without).is_some(), "it still tells that files have changed");
    assert!(!has_stream(&ReplicaReplication::default(), &info, two()));
    assert!(!has_stream(&on, &RegionInfo::meta(), two()));
    let of_catalog = ReplicaReplication::new(false, true);
    assert!(has_stream(&of_catalog, &RegionInfo::meta(), table(&[])));
    assert!(!has_stream(&of_catalog, &info, two()) && of_catalog.is_enabled());
}
