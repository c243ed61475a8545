//! Secondary replicas: what they show, and that they change nothing.

use std::io::ErrorKind as IoKind;
use std::path::Path;
use std::sync::Arc;

use evenkeel_common::CellBuffer;
use evenkeel_fs::{Fault, FileSystem, Op};
use evenkeel_region::layout;
use evenkeel_region::operations::Scan;
use evenkeel_region::region::Region;
use evenkeel_region::scanner::ScannerContext;
use evenkeel_region::store_file_tracker::TRACKER_IMPL;

use crate::bulk_load::load;
use crate::harness::{Cluster, ROOT, put, scan, values};

const ONE: &[(&[u8], u32)] = &[(b"f", 1)];

/// A cluster in which each of these rows is in a file of its own.
fn with_files(rows: &[&str]) -> Cluster {
    let cluster = Cluster::new(ONE);
    rows.iter().for_each(|row| put_and_flush(&cluster, row));
    cluster
}

/// Puts a row whose value is its key.
fn put_and_flush(cluster: &Cluster, row: &str) {
    cluster.put(row, "f", "q", row).expect("put");
    cluster.region().flush().expect("flushed");
}

fn rows(region: &Arc<Region>) -> Vec<String> {
    values(&scan(region, Scan::default())).into_iter().map(str::to_owned).collect()
}

#[test]
fn a_secondary_shows_what_the_primary_has_flushed() {
    let cluster = with_files(&["a"]);
    let secondary = cluster.open_secondary().expect("opened");
    cluster.put("b", "f", "q", "b").expect("put");
    assert_eq!(rows(&secondary), ["a"]);
    assert!(!secondary.refresh_store_files().expect("refreshed"), "nothing is flushed");
    cluster.region().flush().expect("flushed");
    assert_eq!(rows(&secondary), ["a"], "before a refresh");
    assert!(secondary.refresh_store_files().expect("refreshed"));
    assert_eq!(rows(&secondary), ["a", "b"]);
    assert!(!secondary.refresh_store_files().expect("refreshed"), "it has these files");
    assert!(!cluster.region().refresh_store_files().expect("nothing to do for the primary"));
    assert!(secondary.is_secondary() && !cluster.region().is_secondary());
    assert!(secondary.open_seq_num() > 0);
}

#[test]
fn a_reader_of_several_rows_sees_a_refresh() {
    let cluster = with_files(&["a"]);
    let secondary = cluster.open_secondary().expect("opened");
    let mut reader = secondary.row_reader(evenkeel_common::Wait::Allowed);
    let mut read = |row: &'static str| {
        let mut cells = CellBuffer::new();
        let (key, scan) = (row.into(), || Ok(Scan::get(row)));
        reader.get_of_kind(1, &key, scan, &mut cells, &mut ScannerContext::unlimited()).expect("read");
        cells.len()
    };
    assert_eq!((read("a"), read("b")), (1, 0));
    put_and_flush(&cluster, "b");
    secondary.refresh_store_files().expect("refreshed");
    assert_eq!((read("a"), read("b")), (1, 1));
}

#[test]
fn files_that_are_compacted_away_stay_readable() {
    let cluster = with_files(&["a", "b"]);
    let secondary = cluster.open_secondary().expect("opened");
    let mut scanner = secondary.scanner(Scan::default()).expect("opened");
    cluster.region().compact(None, true).expect("compacted");
    assert_eq!(cluster.region().archive_compacted().expect("archived"), 0, "the primary has moved them");
    assert_eq!(rows(&secondary), ["a", "b"], "read from the archive");
    assert!(secondary.refresh_store_files().expect("refreshed"));
    assert_eq!(secondary.stores()[0].files().len(), 1);
    assert_eq!(rows(&secondary), ["a", "b"]);
    let mut cells = CellBuffer::new();
    scanner.next(&mut cells, &mut ScannerContext::unlimited()).expect("reads the files that it began with");
    assert_eq!(cells.len(), 1);
    drop(scanner);
    secondary.refresh_store_files().expect("releases them");
    assert_eq!(secondary.archive_compacted().expect("none are left"), 0);
}

/// The primary reads the inputs of a compaction, so they stay where they are; a secondary that
/// releases them must not archive them.
#[test]
fn a_secondary_does_not_archive_what_the_primary_reads() {
    let cluster = with_files(&["a", "b"]);
    let inputs: Vec<_> = cluster.region().stores()[0].files().into_iter().map(|file| file.name).collect();
    let dir = layout::region_dir(Path::new(ROOT), cluster.region().info()).join("f");
    let secondary = cluster.open_secondary().expect("opened");
    let scanner = cluster.region().scanner(Scan::default()).expect("opened");
    cluster.region().compact(None, true).expect("compacted");
    assert_eq!(cluster.region().archive_compacted().expect("tried"), 2, "the scanner holds them");
    assert!(secondary.refresh_store_files().expect("refreshed"));
    assert_eq!(secondary.archive_compacted().expect("released"), 0);
    for name in &inputs {
        assert!(cluster.memory.exists(&dir.join(name)).expect("looked"), "{name} was moved");
    }
    drop(scanner);
    assert_eq!(cluster.region().archive_compacted().expect("archived"), 0);
    assert!(!cluster.memory.exists(&dir.join(&inputs[0])).expect("looked"));
}

#[test]
fn the_output_of_a_failed_compaction_takes_no_input_with_it() {
    let cluster = with_files(&["a", "b"]);
    let secondary = cluster.open_secondary().expect("opened");
    let reader = cluster.region().scanner(Scan::default()).expect("opened");
    cluster.region().compact(None, true).expect("compacted");
    assert!(secondary.refresh_store_files().expect("refreshed"));
    // As if the default replica could not open it.
    let [output] = &cluster.region().stores()[0].files()[..] else { panic!("one file") };
    let dir = layout::region_dir(Path::new(ROOT), cluster.region().info()).join("f");
    assert!(cluster.memory.delete(&dir.join(&output.name)).expect("deleted"));
    assert!(secondary.refresh_store_files().expect("refreshed"));
    assert_eq!(rows(&secondary), ["a", "b"]);
    drop(reader);
}

#[test]
fn a_file_that_is_archived_while_it_is_opened_is_found_there() {
    let cluster = with_files(&["a"]);
    let name = cluster.region().stores()[0].files()[0].name.clone();
    let info = cluster.region().info();
    let live = layout::region_dir(Path::new(ROOT), info).join("f").join(&name);
    let archived = layout::archive_region_dir(Path::new(ROOT), info).join("f").join(&name);
    let bytes = cluster.memory.read_all(&live, 1 << 20).expect("read");
    cluster.memory.mkdirs(archived.parent().expect("a directory")).expect("made");
    cluster.memory.write_atomically(&archived, &bytes).expect("copied");
    cluster.fs.inject(Fault::on(Op::Open, "/hbase/data/default/t/").fails(IoKind::NotFound));
    assert_eq!(rows(&cluster.open_secondary().expect("opened")), ["a"]);
}

#[test]
fn listings_that_change_are_repeated() {
    let cluster = with_files(&["a", "b"]);
    let secondary = cluster.open_secondary().expect("opened");
    cluster.region().compact(None, true).expect("compacted");
    // As if the listing had missed the output, and the inputs had gone before it saw them.
    let [output] = &cluster.region().stores()[0].files()[..] else { panic!("one file") };
    let dir = layout::region_dir(Path::new(ROOT), cluster.region().info()).join("f");
    let hidden = Path::new(ROOT).join("hidden");
    cluster.memory.rename(&dir.join(&output.name), &hidden).expect("hidden");
    let (memory, shown) = (cluster.memory.clone(), dir.join(&output.name));
    let latch = evenkeel_fs::Latch::new();
    cluster.fs.inject(Fault::on(Op::List, "/t/").after(1).waits_for(&latch));
    std::thread::scope(|scope| {
        let refresh = scope.spawn(|| secondary.refresh_store_files().expect("refreshed"));
        latch.wait_for_arrival();
        memory.rename(&hidden, &shown).expect("shown");
        latch.open();
        assert!(refresh.join().expect("ended"));
    });
    assert_eq!(rows(&secondary), ["a", "b"]);
}

#[test]
fn a_secondary_changes_nothing_on_the_file_system() {
    for tracker in ["DEFAULT", "FILE"] {
        let mut cluster = Cluster::new(ONE);
        cluster.alter(&[(TRACKER_IMPL, tracker)]);
        cluster.restart();
        put_and_flush(&cluster, "a");
        let tmp = layout::region_dir(Path::new(ROOT), cluster.region().info()).join(".tmp/f");
        cluster.memory.mkdirs(&tmp).expect("made");
        cluster.memory.write_atomically(&tmp.join("00ff"), b"an output of the primary").expect("written");
        let before = cluster.files("");
        cluster.fs.cut_power_after(1);
        let secondary = cluster.open_secondary().expect("opened");
        assert_eq!(rows(&secondary), ["a"], "{tracker}");
        assert!(!secondary.flush().expect("no flush").flushed);
        assert!(!secondary.compact(None, true).expect("no compaction"));
        assert!(!secondary.needs_compaction() && !secondary.mark_cannot_flush());
        assert!(!secondary.is_splittable() && !secondary.may_have_broken_files());
        secondary.refresh_store_files().expect("refreshed");
        secondary.close(false).expect("closed");
        assert!(secondary.refresh_store_files().is_err() && secondary.flush().is_err());
        assert!(!cluster.fs.is_powered_off(), "{tracker}: a call would have changed something");
        assert_eq!(cluster.files(""), before, "{tracker}");
    }
}

#[test]
fn listed_files_are_found() {
    let mut cluster = Cluster::new(ONE);
    cluster.alter(&[(TRACKER_IMPL, "FILE")]);
    cluster.restart();
    put_and_flush(&cluster, "a");
    let secondary = cluster.open_secondary().expect("opened");
    put_and_flush(&cluster, "b");
    cluster.region().compact(None, true).expect("compacted");
    assert!(secondary.refresh_store_files().expect("refreshed"));
    assert_eq!((rows(&secondary), secondary.stores()[0].files().len()), (vec!["a".into(), "b".into()], 1));
}

#[test]
fn writes_to_a_secondary_are_rejected() {
    let cluster = with_files(&["a"]);
    let secondary = cluster.open_secondary().expect("opened");
    let error = secondary.mutate_wait(put("a", &[("f", "q", "v")])).map(drop).expect_err("rejected");
    assert!(error.to_string().contains("region is read only"), "{error}");
    let error = secondary.bulk_load(&load("token", Vec::new())).map(drop).expect_err("rejected");
    assert!(error.to_string().contains("region is read only"), "{error}");
}

#[test]
fn reads_fail_while_they_are_disabled() {
    let cluster = with_files(&["a"]);
    let secondary = cluster.open_secondary().expect("opened");
    let mut reader = secondary.row_reader(evenkeel_common::Wait::Allowed);
    let mut read = || {
        let (mut cells, key) = (CellBuffer::new(), "a".into());
        let mut context = ScannerContext::unlimited();
        let read = reader.get_of_kind(1, &key, || Ok(Scan::get("a")), &mut cells, &mut context);
        read.map(|()| cells.len()).map_err(|error| error.into_failure().to_string())
    };
    assert_eq!(read(), Ok(1));
    secondary.set_reads_enabled(false);
    let error = read().expect_err("rejected");
    assert!(error.contains("The region's reads are disabled. Cannot serve the request"), "{error}");
    secondary.set_reads_enabled(true);
    assert_eq!(read(), Ok(1));
}

#[test]
fn a_region_without_a_directory_is_not_opened() {
    let cluster = Cluster::new(ONE);
    let dir = layout::region_dir(Path::new(ROOT), cluster.region().info());
    cluster.memory.rename(&dir, &Path::new(ROOT).join("elsewhere")).expect("moved");
    let error = cluster.open_secondary().map(drop).expect_err("rejected").to_string();
    assert!(error.contains("do not exists on disk"), "{error}");
}
