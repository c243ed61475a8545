//! Secondary replicas that replay edits: what they show, and what their MemStores have.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use evenkeel_common::{CellBuffer, CellType, Durability, KeyValue};
use evenkeel_region::operations::Scan;
use evenkeel_region::region::{FileChange, FileChanges, Region, ReplicaEvent, ReplicaReplication};
use evenkeel_region::store::{BackgroundPriority, CompactionKind};
use parking_lot::Mutex;

use crate::harness::{Cluster, put, scan, values};

const TWO: &[(&[u8], u32)] = &[(b"f", 1), (b"g", 1)];

/// The priority of a flush that a caller waits for.
struct Urgent;

impl BackgroundPriority for Urgent {
    fn is_urgent(&self) -> bool {
        true
    }

    fn lower_priority(&self) {}
}

/// Puts of rows whose values are their keys, in a family.
fn edits(family: &str, rows: &[&str]) -> CellBuffer {
    let mut cells = CellBuffer::new();
    for row in rows {
        let put = KeyValue::put(row.as_bytes(), family.as_bytes(), b"q", 5, row.as_bytes());
        cells.push(&put.as_cell());
    }
    cells
}

fn rows(region: &Arc<Region>) -> Vec<String> {
    values(&scan(region, Scan::default())).into_iter().map(str::to_owned).collect()
}

fn cells_in_memory(region: &Region) -> u64 {
    region.memstore_size().cells
}

/// A cluster whose row `a` is flushed, and a secondary replica.
fn with_secondary() -> (Cluster, Arc<Region>) {
    let cluster = Cluster::new(TWO);
    cluster.put("a", "f", "q", "a").expect("put");
    cluster.region().flush().expect("flushed");
    let secondary = cluster.open_secondary().expect("opened");
    (cluster, secondary)
}

/// As [`with_secondary`], and edits after the read point are replayed.
fn with_replay() -> (Cluster, Arc<Region>) {
    let (cluster, secondary) = with_secondary();
    let seq_id = cluster.region().read_point();
    secondary.resume_replay(seq_id);
    secondary.refresh_after(seq_id, |_| ()).expect("refreshed");
    (cluster, secondary)
}

/// Writes a row to the default replica, and returns its sequence id.
fn write(cluster: &Cluster, row: &str, families: &[&str]) -> u64 {
    let cells: Vec<_> = families.iter().map(|family| (*family, "q", row)).collect();
    cluster.region().mutate_wait(put(row, &cells)).expect("put");
    cluster.region().read_point()
}

#[test]
fn nothing_is_replayed_before_the_end_of_the_gap_is_known() {
    let (_cluster, secondary) = with_secondary();
    assert!(secondary.is_replay_suspended());
    secondary.replay_entry(1000, &edits("f", &["b"])).expect("skipped");
    assert_eq!((rows(&secondary), cells_in_memory(&secondary)), (vec!["a".into()], 0));
}

#[test]
fn edits_behind_a_gap_are_shown_when_files_fill_it() {
    let (_cluster, secondary) = with_secondary();
    secondary.resume_replay(1000);
    secondary.replay_entry(1000, &edits("f", &["b"])).expect("skipped");
    secondary.replay_entry(1001, &edits("f", &["c"])).expect("replayed");
    assert_eq!((rows(&secondary), cells_in_memory(&secondary)), (vec!["a".into()], 1));
    secondary.refresh_after(999, |_| ()).expect("refreshed");
    assert_eq!(rows(&secondary), ["a"], "the flush was before the gap's end");
    secondary.refresh_after(1000, |_| ()).expect("refreshed");
    assert_eq!(rows(&secondary), ["a", "c"]);
    secondary.replay_entry(1002, &edits("f", &["d"])).expect("replayed");
    assert_eq!(rows(&secondary), ["a", "c", "d"]);
}

#[test]
fn an_entry_is_replayed_once_and_in_order() {
    let (_cluster, secondary) = with_replay();
    secondary.replay_entry(1001, &edits("f", &["b"])).expect("replayed");
    secondary.replay_entry(1001, &edits("f", &["c"])).expect("skipped");
    secondary.replay_entry(1000, &edits("f", &["d"])).expect("skipped");
    assert_eq!((rows(&secondary), cells_in_memory(&secondary)), (vec!["a".into(), "b".into()], 1));
    // Cells of a family that the table does not have, such as those of markers.
    secondary.replay_entry(1002, &edits("METAFAMILY", &["e"])).expect("replayed");
    assert_eq!(cells_in_memory(&secondary), 1);
}

#[test]
fn deletes_and_newer_versions_are_replayed() {
    let (_cluster, secondary) = with_replay();
    let mut cells = CellBuffer::new();
    cells.push(&KeyValue::put(b"a", b"f", b"q", i64::MAX - 1, b"newer").as_cell());
    secondary.replay_entry(1001, &cells).expect("replayed");
    assert_eq!(rows(&secondary), ["newer"]);
    let mut cells = CellBuffer::new();
    let delete = KeyValue::new(b"a", b"f", b"q", i64::MAX - 1, CellType::DeleteColumn, b"");
    cells.push(&delete.as_cell());
    secondary.replay_entry(1002, &cells).expect("replayed");
    assert!(rows(&secondary).is_empty());
}

#[test]
fn a_refresh_drops_the_cells_that_are_in_files() {
    let (cluster, secondary) = with_replay();
    for row in ["b", "c"] {
        secondary.replay_entry(write(&cluster, row, &["f"]), &edits("f", &[row])).expect("replayed");
    }
    let flushed = cluster.region().flush().expect("flushed").seq_id;
    let later = write(&cluster, "d", &["f"]);
    secondary.replay_entry(later, &edits("f", &["d"])).expect("replayed");
    assert_eq!((rows(&secondary).join(""), cells_in_memory(&secondary)), ("abcd".into(), 3));
    assert!(secondary.refresh_after(flushed, |_| ()).expect("refreshed"));
    assert_eq!((rows(&secondary).join(""), cells_in_memory(&secondary)), ("abcd".into(), 1));
    // Entries that come late are in files.
    secondary.replay_entry(flushed, &edits("f", &["x"])).expect("skipped");
    cluster.region().flush().expect("flushed");
    // The periodic refresh, which knows only the files.
    assert!(secondary.refresh_store_files().expect("refreshed"));
    assert_eq!((rows(&secondary).join(""), cells_in_memory(&secondary)), ("abcd".into(), 0));
}

/// A flush of cells that need not be kept writes no file.
#[test]
fn a_flush_without_files_drops_cells_too() {
    let (_cluster, secondary) = with_replay();
    secondary.replay_entry(1001, &edits("f", &["b"])).expect("replayed");
    assert!(!secondary.refresh_after(1001, |_| ()).expect("refreshed"));
    assert_eq!((rows(&secondary).join(""), cells_in_memory(&secondary)), ("a".into(), 0));
}

#[test]
fn cells_of_a_family_are_skipped_by_its_own_files() {
    let (cluster, secondary) = with_replay();
    let seq_id = write(&cluster, "b", &["f", "g"]);
    cluster.region().require_flush(&["f".into()]);
    assert!(cluster.region().flush_in_background(&Urgent).expect("flushed").flushed);
    let mut both = edits("f", &["b"]);
    both.append(edits("g", &["b"]));
    let mut newest = 0;
    let refreshed = secondary.refresh_after(0, |up_to| {
        newest = up_to;
        secondary.replay_entry(seq_id, &both).expect("replayed before the files are shown");
    });
    assert!(refreshed.expect("refreshed") && newest >= seq_id);
    assert_eq!((rows(&secondary).join(""), cells_in_memory(&secondary)), ("abb".into(), 1));
    // The same entry again, after the refresh.
    secondary.replay_entry(seq_id, &both).expect("skipped");
    assert_eq!(cells_in_memory(&secondary), 1);
}

#[test]
fn lost_edits_leave_what_was_visible() {
    let (cluster, secondary) = with_replay();
    secondary.replay_entry(write(&cluster, "b", &["f"]), &edits("f", &["b"])).expect("replayed");
    secondary.suspend_replay();
    let lost = write(&cluster, "c", &["f"]);
    secondary.replay_entry(lost, &edits("f", &["c"])).expect("skipped");
    assert!(secondary.is_replay_suspended());
    secondary.resume_replay(lost);
    secondary.replay_entry(write(&cluster, "d", &["f"]), &edits("f", &["d"])).expect("replayed");
    assert_eq!(rows(&secondary).join(""), "ab", "d is not shown without c");
    // An earlier end does not shorten the gap.
    secondary.resume_replay(1);
    let flushed = cluster.region().flush().expect("flushed").seq_id;
    secondary.refresh_after(flushed, |_| ()).expect("refreshed");
    assert_eq!((rows(&secondary).join(""), cells_in_memory(&secondary)), ("abcd".into(), 0));
}

/// A flush of one family moves the read point beyond edits of the other one that follow a gap.
#[test]
fn edits_behind_a_gap_are_dropped_if_files_would_show_them() {
    let (cluster, secondary) = with_replay();
    secondary.replay_entry(write(&cluster, "b", &["g"]), &edits("g", &["b"])).expect("replayed");
    secondary.suspend_replay();
    let lost = write(&cluster, "c", &["g"]);
    secondary.resume_replay(lost);
    secondary.replay_entry(write(&cluster, "d", &["g"]), &edits("g", &["d"])).expect("replayed");
    secondary.refresh_store_files().expect("refreshed");
    assert_eq!((rows(&secondary).join(""), cells_in_memory(&secondary)), ("ab".into(), 2));
    write(&cluster, "e", &["f"]);
    cluster.region().require_flush(&["f".into()]);
    assert!(cluster.region().flush_in_background(&Urgent).expect("flushed").flushed);
    assert!(secondary.refresh_after(0, |_| ()).expect("refreshed"));
    assert_eq!(rows(&secondary).join(""), "abe", "d is not shown without c");
    assert!(secondary.is_replay_suspended() && cells_in_memory(&secondary) == 1);
    let flushed = cluster.region().flush().expect("flushed").seq_id;
    secondary.resume_replay(flushed);
    secondary.refresh_after(flushed, |_| ()).expect("refreshed");
    assert_eq!((rows(&secondary).join(""), cells_in_memory(&secondary)), ("abcde".into(), 0));
}

/// Edits that were sent, but are not in the log that another server has replayed.
#[test]
fn edits_of_a_default_replica_that_crashed_are_dropped_when_it_opens_again() {
    let (cluster, secondary) = with_replay();
    let opened = cluster.region().flush().expect("nothing to flush").seq_id;
    secondary.replay_open(opened).expect("read");
    let kept = write(&cluster, "b", &["f"]);
    secondary.replay_entry(kept, &edits("f", &["b"])).expect("replayed");
    secondary.replay_entry(kept + 40, &edits("f", &["lost"])).expect("replayed");
    assert_eq!(rows(&secondary), ["a", "b", "lost"]);
    let flushed = cluster.region().flush().expect("flushed").seq_id;
    // The rest of a former opening.
    secondary.replay_open(opened).expect("read");
    assert_eq!(rows(&secondary), ["a", "b", "lost"]);
    secondary.replay_open(flushed).expect("read");
    assert_eq!((rows(&secondary), cells_in_memory(&secondary)), (vec!["a".into(), "b".into()], 0));
    let next = write(&cluster, "c", &["f"]);
    assert!(next < kept + 40);
    assert!(secondary.replay_entry(next, &edits("f", &["c"])).expect("replayed"));
    // The call is repeated.
    secondary.replay_open(flushed).expect("read");
    assert!(!secondary.replay_entry(next, &edits("f", &["c"])).expect("skipped"));
    assert_eq!(rows(&secondary), ["a", "b", "c"]);
}

/// A flush whose cells had expired was told, and its id is in no file.
#[test]
fn edits_with_the_id_of_a_lost_flush_are_replayed() {
    let (cluster, secondary) = with_replay();
    let opened = cluster.region().flush().expect("nothing to flush").seq_id;
    secondary.replay_open(opened).expect("read");
    secondary.refresh_after(opened + 40, |_| ()).expect("read");
    let again = write(&cluster, "b", &["f"]);
    secondary.replay_open(again - 1).expect("read");
    assert!(secondary.replay_entry(again, &edits("f", &["b"])).expect("replayed"));
    assert_eq!(rows(&secondary), ["a", "b"]);
}

/// A replica that opened after its default replica did cannot tell which server is the later one.
#[test]
fn the_first_opening_that_is_replayed_drops_nothing() {
    let (cluster, secondary) = with_secondary();
    let seq_id = cluster.region().read_point();
    secondary.replay_entry(seq_id + 40, &edits("f", &["b"])).expect("skipped");
    secondary.replay_open(seq_id).expect("read");
    assert!(secondary.replay_entry(seq_id + 41, &edits("f", &["c"])).expect("replayed"));
    assert_eq!(rows(&secondary), ["a"], "c is not shown without b");
}

#[test]
fn a_blocked_replica_replays_nothing_and_can_drop_its_memory() {
    let (cluster, secondary) = with_replay();
    secondary.replay_entry(write(&cluster, "b", &["f"]), &edits("f", &["b"])).expect("replayed");
    secondary.block_replay();
    let lost = write(&cluster, "c", &["f"]);
    secondary.resume_replay(lost);
    let later = write(&cluster, "d", &["f"]);
    assert!(!secondary.replay_entry(later, &edits("f", &["d"])).expect("skipped"));
    assert!(secondary.is_replay_blocked() && secondary.is_replay_suspended());
    assert_eq!((rows(&secondary).join(""), cells_in_memory(&secondary)), ("ab".into(), 1));
    secondary.drop_replayed();
    assert_eq!((rows(&secondary).join(""), cells_in_memory(&secondary)), ("a".into(), 0));
    secondary.refresh_store_files().expect("refreshed");
    assert!(!secondary.is_replay_blocked() && secondary.is_replay_suspended());
    secondary.resume_replay(later);
    let newer = write(&cluster, "e", &["f"]);
    assert!(secondary.replay_entry(newer, &edits("f", &["e"])).expect("replayed"));
    assert_eq!(rows(&secondary).join(""), "a", "e is not shown without the others");
    let flushed = cluster.region().flush().expect("flushed").seq_id;
    secondary.refresh_after(flushed, |_| ()).expect("refreshed");
    assert_eq!((rows(&secondary).join(""), cells_in_memory(&secondary)), ("abcde".into(), 0));
}

#[test]
fn the_first_flush_for_a_replica_is_requested_once() {
    let (_cluster, secondary) = with_secondary();
    assert!(secondary.request_first_flush() && !secondary.request_first_flush());
}

#[test]
fn a_closed_replica_replays_nothing() {
    let (_cluster, secondary) = with_replay();
    secondary.replay_entry(1001, &edits("f", &["b"])).expect("replayed");
    secondary.close(false).expect("closed");
    assert!(secondary.replay_entry(1002, &edits("f", &["c"])).is_err());
    assert!(secondary.refresh_after(1002, |_| ()).is_err());
}

/// Readers run while edits are replayed and files are refreshed: rows never disappear, and both
/// families of an entry are seen together.
#[test]
fn no_reader_misses_a_row_that_was_visible() {
    const ROWS: usize = 60;
    let (cluster, secondary) = with_replay();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut seen = 0;
                while !is_done.load(Ordering::Relaxed) {
                    let found = rows(&secondary).len();
                    assert!(found >= seen && found % 2 == 1, "{found} cells after {seen}");
                    seen = found;
                }
            });
        }
        for at in 0..ROWS {
            let row = format!("r{at:03}");
            let seq_id = write(&cluster, &row, &["f", "g"]);
            let mut both = edits("f", &[&row]);
            both.append(edits("g", &[&row]));
            secondary.replay_entry(seq_id, &both).expect("replayed");
            if at % 5 == 4 {
                let flushed = cluster.region().flush().expect("flushed").seq_id;
                secondary.refresh_after(flushed, |_| ()).expect("refreshed");
            }
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert_eq!((rows(&secondary).len(), cells_in_memory(&secondary)), (2 * ROWS + 1, 0));
}

/// A cluster whose region has a stream with readers, which a flush has started.
fn with_stream() -> Cluster {
    let mut cluster = Cluster::new(TWO);
    cluster.alter(&[("REGION_REPLICATION", "2")]);
    cluster.replication = ReplicaReplication::new(true, false);
    cluster.restart();
    cluster.region().replica_stream().expect("a stream").set_has_readers(true, false);
    cluster
}

/// Replays all events on a secondary replica. Returns them as text.
fn replay_all(cluster: &Cluster, secondary: &Region) -> String {
    let reader = cluster.region().replica_stream().expect("a stream").read();
    let mut text = Vec::new();
    while let Some(event) = reader.take() {
        text.push(match event {
            ReplicaEvent::Edits { seq_id, cells, .. } => {
                secondary.replay_entry(seq_id, &cells).expect("replayed");
                format!("{} cells", cells.len())
            }
            ReplicaEvent::Resumed(seq_id) => {
                secondary.resume_replay(seq_id);
                "resumed".to_owned()
            }
            ReplicaEvent::FlushStarted { is_of_all, .. } => format!("flush of all: {is_of_all}"),
            ReplicaEvent::Flushed { through, .. } => {
                secondary.refresh_after(through, |_| ()).expect("refreshed");
                "files".to_owned()
            }
        });
    }
    text.join(", ")
}

#[test]
fn a_stream_has_the_writes_after_a_flush() {
    let cluster = with_stream();
    let secondary = cluster.open_secondary().expect("opened");
    write(&cluster, "a", &["f"]);
    assert!(cluster.region().replica_stream().expect("a stream").needs_flush());
    assert_eq!(replay_all(&cluster, &secondary), "");
    cluster.region().flush().expect("flushed");
    write(&cluster, "b", &["f", "g"]);
    let mut unlogged = put("c", &[("f", "q", "c")]);
    unlogged.durability = Durability::SkipWal;
    cluster.region().mutate_wait(unlogged).expect("put");
    write(&cluster, "d", &["f"]);
    assert_eq!(replay_all(&cluster, &secondary), "resumed, files, 2 cells, 1 cells");
    assert_eq!(rows(&secondary).join(""), "abbd", "what is not logged is seen after a flush");
    cluster.region().flush().expect("flushed");
    cluster.region().compact(None, true).expect("compacted");
    assert_eq!(replay_all(&cluster, &secondary), "files");
    assert_eq!((rows(&secondary).join(""), cells_in_memory(&secondary)), ("abbcd".into(), 0));
}

#[test]
fn a_flush_of_an_empty_memstore_starts_a_stream() {
    let cluster = with_stream();
    write(&cluster, "a", &["f"]);
    cluster.region().flush().expect("flushed");
    let secondary = cluster.open_secondary().expect("opened");
    let stream = cluster.region().replica_stream().expect("a stream");
    stream.stop();
    assert!(!cluster.region().flush().expect("nothing to flush").flushed);
    write(&cluster, "b", &["f"]);
    assert_eq!(replay_all(&cluster, &secondary), "resumed, files, resumed, files, 1 cells");
    assert_eq!(rows(&secondary).join(""), "ab");
}

#[test]
fn a_flush_of_some_families_does_not_start_a_stream() {
    let cluster = with_stream();
    write(&cluster, "a", &["f", "g"]);
    cluster.region().require_flush(&["f".into()]);
    cluster.region().flush_in_background(&Urgent).expect("flushed");
    assert!(cluster.region().replica_stream().expect("a stream").needs_flush());
    cluster.region().require_flush_of_all();
    cluster.region().flush_in_background(&Urgent).expect("flushed");
    assert!(!cluster.region().replica_stream().expect("a stream").needs_flush());
}

/// A reader on another server cannot look into the files: it is told their names.
#[test]
fn a_reader_elsewhere_is_told_of_flushes_and_files() {
    let cluster = with_stream();
    let region = cluster.region();
    let stream = region.replica_stream().expect("a stream");
    stream.set_has_readers(false, true);
    write(&cluster, "a", &["f", "g"]);
    region.flush().expect("flushed");
    write(&cluster, "b", &["f"]);
    let edit = write(&cluster, "c", &["g"]);
    region.flush_families(&["g".into()]).expect("flushed");
    region.flush().expect("flushed");
    region.compact(Some(b"f"), true).expect("compacted");
    region.flush().expect("nothing to flush");
    let events: Vec<_> = {
        let reader = stream.read();
        std::iter::from_fn(|| reader.take()).collect()
    };
    let [resumed, first, b, c, of_g, g_ended, of_f, f_ended, of_none, none_ended] = &events[..] else {
        panic!("{events:?}")
    };
    let ReplicaEvent::Resumed(first_flush) = *resumed else { panic!("{resumed:?}") };
    let (change, through) = flush_in(first);
    assert_eq!((change.0, families_of(&change.1), through), (first_flush, vec!["f", "g"], first_flush));
    assert!([b, c].into_iter().all(|event| matches!(event, ReplicaEvent::Edits { .. })));
    let ReplicaEvent::FlushStarted { seq_id, families, is_of_all: false } = of_g else { panic!("{of_g:?}") };
    assert!(*seq_id > edit && families[..] == ["g"]);
    let (change, through) = flush_in(g_ended);
    assert_eq!((change.0, families_of(&change.1)), (*seq_id, vec!["g"]));
    assert!(through < edit, "an edit of the other family is in memory");
    assert!(matches!(of_f, ReplicaEvent::FlushStarted { is_of_all: true, .. }));
    // The files of the flush and of the compaction: nobody has taken an event between.
    let ReplicaEvent::Flushed { changes: FileChanges::Known(changes), .. } = f_ended else {
        panic!("{f_ended:?}")
    };
    let [FileChange::Flushed { files, .. }, FileChange::Replaced { family, inputs, outputs }] = &changes[..]
    else {
        panic!("{changes:?}")
    };
    let of_flush = files.iter().find(|(family, _)| family == "f").expect("flushed");
    assert!(family == "f" && inputs.contains(&of_flush.1[0]) && inputs.len() == 2);
    let names: Vec<_> = region.stores()[0].files().into_iter().map(|file| file.name).collect();
    assert_eq!(*outputs, names);
    assert!(
        matches!(of_none, ReplicaEvent::FlushStarted { families, is_of_all: true, .. } if families.is_empty())
    );
    assert!(
        matches!(none_ended, ReplicaEvent::Flushed { changes, .. } if *changes == FileChanges::default())
    );
    let open = region.open_event(7);
    assert_eq!((open.log_sequence_number(), &open.stores[0].store_file), (7, outputs));
}

/// Readers elsewhere may read the former files for five minutes only, and a compaction of the next
/// family may take longer.
#[test]
fn the_compaction_of_each_family_is_told_when_it_ends() {
    struct Watch<'a>(&'a Region, Mutex<Vec<String>>);
    impl BackgroundPriority for Watch<'_> {
        fn is_urgent(&self) -> bool {
            let reader = self.0.replica_stream().expect("a stream").read();
            let replaced = |change: &FileChange| match change {
                FileChange::Replaced { family, .. } => String::from_utf8_lossy(family).into_owned(),
                FileChange::Flushed { .. } | FileChange::Loaded { .. } => panic!("{change:?}"),
            };
            let families = |event| match event {
                ReplicaEvent::Flushed { changes: FileChanges::Known(all), .. } => {
                    all.iter().map(replaced).collect::<String>()
                }
                other => panic!("{other:?}"),
            };
            let text: String = std::iter::from_fn(|| reader.take()).map(families).collect();
            self.1.lock().push(text);
            true
        }

        fn lower_priority(&self) {}
    }
    let cluster = with_stream();
    let region = cluster.region();
    region.replica_stream().expect("a stream").set_has_readers(false, true);
    // Smaller compactions never ask whether they are urgent.
    let large = "v".repeat(2 << 20);
    for row in ["a", "b"] {
        let both = put(row, &[("f", "q", &large), ("g", "q", &large)]);
        region.mutate_wait(both).expect("put");
        region.flush().expect("flushed");
    }
    while region.replica_stream().expect("a stream").read().take().is_some() {}
    let watch = Watch(region, Mutex::default());
    assert!(region.compact_in_background(None, CompactionKind::Major, &watch).expect("compacted"));
    let during = watch.1.lock().concat();
    assert_eq!(during, "f", "before g's compaction has ended");
    assert!(watch.is_urgent());
    assert_eq!(watch.1.lock().concat(), "fg");
}

/// After a crash the numbers of markers are used again, for edits, too.
#[test]
fn an_empty_flush_is_told_with_the_id_of_an_edit() {
    let cluster = with_stream();
    let region = cluster.region();
    let stream = region.replica_stream().expect("a stream");
    stream.set_has_readers(false, true);
    write(&cluster, "a", &["f", "g"]);
    let flushed = region.flush().expect("flushed").seq_id;
    region.flush().expect("nothing to flush");
    assert!(region.read_point() > flushed, "the marker of the flush's end has a number");
    let event = {
        let reader = stream.read();
        std::iter::from_fn(|| reader.take()).last().expect("an event")
    };
    let ReplicaEvent::Flushed { through, .. } = event else { panic!("{event:?}") };
    assert_eq!(through, flushed);
}

/// Other servers must not have edits that a crash of this one may lose.
#[test]
fn an_edit_that_is_visible_before_it_is_logged_names_its_log_entry() {
    let cluster = with_stream();
    let region = cluster.region();
    let stream = region.replica_stream().expect("a stream");
    stream.set_has_readers(false, true);
    region.flush().expect("nothing to flush");
    let unlogged_of = |durability| {
        let mut mutation = put("a", &[("f", "q", "a")]);
        mutation.durability = durability;
        region.mutate_wait(mutation).expect("put");
        let reader = stream.read();
        let edits = |event| match event {
            ReplicaEvent::Edits { unlogged, .. } => Some(unlogged),
            _ => None,
        };
        std::iter::from_fn(|| reader.take()).find_map(edits).expect("edits")
    };
    assert_eq!(unlogged_of(Durability::SyncWal), None);
    let entry = unlogged_of(Durability::AsyncWal).expect("an entry");
    let (tell, told) = std::sync::mpsc::channel();
    region.when_logged(entry, move || tell.send(()).expect("waits"));
    told.recv().expect("told");
    assert_eq!(region.is_logged(entry), Some(true));
}

/// The families of a flush, each with its new files.
type FlushedFiles = Vec<(bytes::Bytes, Vec<String>)>;

/// The change of an event that is about one flush, and the sequence id of the event.
fn flush_in(event: &ReplicaEvent) -> ((u64, FlushedFiles), u64) {
    match event {
        ReplicaEvent::Flushed { through, changes: FileChanges::Known(changes), .. } => match &changes[..] {
            [FileChange::Flushed { seq_id, files }] => ((*seq_id, files.clone()), *through),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn families_of(files: &[(bytes::Bytes, Vec<String>)]) -> Vec<&str> {
    assert!(files.iter().all(|(_, names)| names.len() == 1));
    files.iter().map(|(family, _)| std::str::from_utf8(family).expect("text")).collect()
}
