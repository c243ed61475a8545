//! Stores whose files are those that a list names: what takes effect, what a crash leaves, and the
//! way from one tracker to another.

use std::collections::BTreeSet;
use std::io::ErrorKind as IoKind;
use std::path::{Path, PathBuf};

use evenkeel_common::KeyValue;
use evenkeel_fs::{Fault, FileSystem, Op, SurvivingData};
use evenkeel_region::operations::Scan;
use evenkeel_region::region::bulk_load::{BulkLoad, BulkLoadOutcome};
use evenkeel_region::store_file_tracker::{
    LIST_DIR, MIGRATION_DST_IMPL, MIGRATION_SRC_IMPL, TRACKER_IMPL, list_file,
};

use crate::bulk_load::{file, hfile, load};
use crate::harness::{Cluster, put, values};

const TWO: &[(&[u8], u32)] = &[(b"a", 1), (b"b", 1)];
/// More calls of the file system than any operation of these tests makes.
const CALLS_MAX: u64 = 400;

/// The attributes of a table's trackers, one state after the other.
const CYCLE: [[(&str, &str); 3]; 4] = [
    [(TRACKER_IMPL, "MIGRATION"), (MIGRATION_SRC_IMPL, "DEFAULT"), (MIGRATION_DST_IMPL, "FILE")],
    [(TRACKER_IMPL, "FILE"), (MIGRATION_SRC_IMPL, "DEFAULT"), (MIGRATION_DST_IMPL, "FILE")],
    [(TRACKER_IMPL, "MIGRATION"), (MIGRATION_SRC_IMPL, "FILE"), (MIGRATION_DST_IMPL, "DEFAULT")],
    [(TRACKER_IMPL, "DEFAULT"), (MIGRATION_SRC_IMPL, "FILE"), (MIGRATION_DST_IMPL, "DEFAULT")],
];

fn with_lists() -> Cluster {
    let mut cluster = Cluster::new(TWO);
    cluster.alter(&[(TRACKER_IMPL, "FILE")]);
    cluster.restart();
    cluster
}

fn family_dir(cluster: &Cluster, family: &str) -> PathBuf {
    evenkeel_region::layout::region_dir(Path::new("/hbase"), cluster.region().info()).join(family)
}

fn listed(cluster: &Cluster, family: &str) -> BTreeSet<String> {
    listed_in(cluster, &family_dir(cluster, family))
}

/// The files that the list of a family's directory names.
fn listed_in(cluster: &Cluster, dir: &Path) -> BTreeSet<String> {
    let files = list_file::read(&cluster.memory, dir).expect("read");
    files.into_iter().flatten().map(|file| file.name).collect()
}

/// Every file is older.
const ALL_OLD: i64 = i64::MIN / 2;

/// Removes the broken files that are older than `ttl_ms`, and returns their number.
fn remove_broken(cluster: &Cluster, ttl_ms: i64) -> usize {
    let found = cluster.region().find_broken_files(ttl_ms).expect("listed").expect("the region is idle");
    found.iter().for_each(|file| cluster.region().remove_broken_file(file).expect("removed"));
    found.len()
}

/// The visible files in a family's directory.
fn in_directory(cluster: &Cluster, family: &str) -> BTreeSet<String> {
    let entries = cluster.memory.list(&family_dir(cluster, family)).expect("listed").into_iter();
    entries.filter(|entry| !entry.is_dir).map(|entry| entry.name().to_owned()).collect()
}

fn served(cluster: &Cluster, family: &str) -> BTreeSet<String> {
    let stores = cluster.region().stores().iter();
    let of_family = stores.filter(|store| store.family().name() == family.as_bytes());
    of_family.flat_map(|store| store.files()).map(|file| file.name).collect()
}

fn write(cluster: &Cluster, row: &str, value: &str) {
    cluster.region().mutate_wait(put(row, &[("a", "q", value), ("b", "q", value)])).expect("written");
    cluster.clock.advance_ms(1);
}

/// Writes and flushes this many files a family.
fn flush_files(cluster: &Cluster, count: usize) {
    for at in 0..count {
        write(cluster, "r1", &format!("v{at}"));
        cluster.region().flush().expect("flushed");
    }
}

fn two_files(cluster: &Cluster) -> BulkLoad {
    let made = [("a", "1"), ("b", "2")].map(|(family, name)| {
        let cell = KeyValue::put(b"loaded", family.as_bytes(), b"q", 5, b"x");
        file(family, hfile(cluster, &format!("/hbase/in/{name}"), &[cell]), false)
    });
    load("token", made.into())
}

#[test]
fn files_are_written_in_place_and_listed() {
    let mut cluster = with_lists();
    // Any use of the temporary directory fails.
    cluster.fs.inject(Fault::on(Op::Create, ".tmp/").always().fails(IoKind::Other));
    flush_files(&cluster, 3);
    assert_eq!(listed(&cluster, "a"), served(&cluster, "a"));
    assert_eq!(listed(&cluster, "a").len(), 3);
    cluster.region().compact(None, true).expect("compacted");
    for family in ["a", "b"] {
        assert_eq!(listed(&cluster, family), served(&cluster, family));
        assert_eq!(listed(&cluster, family), in_directory(&cluster, family), "the others are archived");
        assert_eq!(listed(&cluster, family).len(), 1);
    }
    cluster.crash(SurvivingData::Flushed);
    assert_eq!(values(&cluster.row("r1")), ["v2", "v2"]);
    cluster.region().bulk_load(&two_files(&cluster)).expect("loaded");
    assert_eq!(listed(&cluster, "b"), served(&cluster, "b"));
    assert_eq!(listed(&cluster, "b").len(), 2);
    cluster.restart();
    assert_eq!(cluster.row("loaded").len(), 2);
}

#[test]
fn unlisted_files_are_not_served_and_deleted_after_their_time() {
    let mut cluster = with_lists();
    flush_files(&cluster, 1);
    let dir = family_dir(&cluster, "a");
    for name in ["00ff", "not-a-store-file"] {
        cluster.memory.write_atomically(&dir.join(name), b"broken").expect("written");
    }
    cluster.restart();
    assert_eq!(values(&cluster.row("r1")), ["v0", "v0"]);
    assert!(!served(&cluster, "a").contains("00ff"));
    assert_eq!(remove_broken(&cluster, i64::MAX), 0, "it is young");
    assert!(in_directory(&cluster, "a").contains("00ff"));
    assert_eq!(remove_broken(&cluster, ALL_OLD), 1);
    let left: BTreeSet<_> =
        served(&cluster, "a").into_iter().chain(["not-a-store-file".to_owned()]).collect();
    assert_eq!(in_directory(&cluster, "a"), left);
    cluster.restart();
    assert_eq!(values(&cluster.row("r1")), ["v0", "v0"]);
}

#[test]
fn a_listed_file_that_is_missing_fails_the_open() {
    let mut cluster = with_lists();
    flush_files(&cluster, 1);
    let [name] = &listed(&cluster, "a").into_iter().collect::<Vec<_>>()[..] else { panic!("one file") };
    cluster.memory.delete(&family_dir(&cluster, "a").join(name)).expect("deleted");
    cluster.die(SurvivingData::Flushed);
    cluster.try_start().expect_err("a file is missing");
}

#[test]
fn a_listed_file_without_cells_fails_the_open() {
    let mut cluster = with_lists();
    flush_files(&cluster, 1);
    let [name] = &listed(&cluster, "a").into_iter().collect::<Vec<_>>()[..] else { panic!("one file") };
    let dir = family_dir(&cluster, "a");
    let file = dir.join(name);
    let content = cluster.memory.read_all(&file, 1 << 20).expect("read");
    cluster.memory.write_atomically(&file, b"").expect("written");
    cluster.die(SurvivingData::Flushed);
    let error = cluster.try_start().expect_err("its cells are missing");
    assert!(error.message().contains("listed as a store file, but empty"), "{error}");
    assert!(listed_in(&cluster, &dir).contains(name), "the list still names it");
    cluster.die(SurvivingData::Flushed);
    cluster.memory.write_atomically(&file, &content).expect("written");
    cluster.start();
    assert_eq!(values(&cluster.row("r1")), ["v0", "v0"]);
}

#[test]
fn a_truncation_that_fails_leaves_no_file_that_is_listed_and_deleted() {
    let mut cluster = with_lists();
    flush_files(&cluster, 1);
    let region = std::sync::Arc::clone(cluster.region());
    region.close(false).expect("closed");
    assert_eq!(region.find_broken_files(ALL_OLD).expect("listed").map(|found| found.len()), None);
    // The first store lists its file without cells, the second one does not.
    cluster.fs.inject(Fault::on(Op::Rename, "/b/.filelist/").fails(IoKind::StorageFull));
    region.write_empty_files().expect_err("one list is not written");
    assert_eq!(listed(&cluster, "a").len(), 2);
    region.resume();
    assert_eq!(remove_broken(&cluster, ALL_OLD), 2);
    for family in ["a", "b"] {
        assert_eq!(listed(&cluster, family), served(&cluster, family));
        assert_eq!(in_directory(&cluster, family), served(&cluster, family));
    }
    drop(region);
    cluster.restart();
    assert_eq!(values(&cluster.row("r1")), ["v0", "v0"]);
}

#[test]
fn a_flush_whose_list_is_not_written_keeps_its_log() {
    let mut cluster = with_lists();
    flush_files(&cluster, 1);
    write(&cluster, "r2", "only in the log");
    // The first store's list is written, the second one's is not.
    cluster.fs.inject(Fault::on(Op::Rename, "/b/.filelist/").fails(IoKind::StorageFull));
    cluster.region().flush().expect_err("the list is not written");
    assert_eq!(values(&cluster.row("r2")), ["only in the log", "only in the log"]);
    for family in ["a", "b"] {
        assert_eq!(listed(&cluster, family), served(&cluster, family));
        assert_eq!(listed(&cluster, family), in_directory(&cluster, family));
    }
    cluster.crash(SurvivingData::Flushed);
    assert_eq!(values(&cluster.row("r2")), ["only in the log", "only in the log"]);
}

#[test]
fn a_failed_list_stays_in_doubt_until_it_is_written_again() {
    let mut cluster = with_lists();
    flush_files(&cluster, 1);
    write(&cluster, "r2", "v");
    cluster.fs.inject(Fault::on(Op::Rename, "/b/.filelist/").times(2).fails(IoKind::StorageFull));
    cluster.region().flush().expect_err("the list is not written");
    let names = listed(&cluster, "b");
    assert!(names.is_subset(&in_directory(&cluster, "b")), "what a list names is never deleted");
    cluster.region().flush().expect("flushed");
    assert_eq!(listed(&cluster, "b"), served(&cluster, "b"));
    cluster.region().compact(None, true).expect("compacted");
    assert_eq!(in_directory(&cluster, "b"), served(&cluster, "b"), "the leftover is deleted");
    cluster.crash(SurvivingData::Flushed);
    assert_eq!(values(&cluster.row("r2")), ["v", "v"]);
}

#[test]
fn a_compaction_whose_list_is_not_written_keeps_its_inputs() {
    let mut cluster = with_lists();
    flush_files(&cluster, 3);
    let before = served(&cluster, "a");
    cluster.fs.inject(Fault::on(Op::Rename, "/a/.filelist/").fails(IoKind::StorageFull));
    cluster.region().compact(None, true).expect_err("the list is not written");
    assert_eq!(served(&cluster, "a"), before);
    assert_eq!(listed(&cluster, "a"), before);
    assert_eq!(in_directory(&cluster, "a"), before, "the output is deleted");
    cluster.restart();
    assert_eq!(served(&cluster, "a"), before);
    cluster.region().compact(None, true).expect("compacted");
    assert_eq!(values(&cluster.row("r1")), ["v2", "v2"]);
}

#[test]
fn a_bulk_load_is_complete_or_absent_after_a_power_cut_at_any_call() {
    let (mut complete, mut absent) = (0, 0);
    for calls in 1..CALLS_MAX {
        let mut cluster = with_lists();
        flush_files(&cluster, 1);
        let load = two_files(&cluster);
        cluster.fs.cut_power_after(calls);
        let outcome = cluster.region().bulk_load(&load);
        let whole = !cluster.fs.is_powered_off();
        cluster.die(SurvivingData::Synced);
        cluster.start();
        let cells = cluster.row("loaded").len();
        assert!(cells == 0 || cells == 2, "{calls} calls: half of a load: {cells}");
        assert!(cells == 2 || outcome != Ok(BulkLoadOutcome::Loaded), "{calls} calls: it was acknowledged");
        assert_eq!(values(&cluster.row("r1")), ["v0", "v0"], "{calls} calls");
        for family in ["a", "b"] {
            assert_eq!(listed(&cluster, family), served(&cluster, family), "{calls} calls");
        }
        if cells == 2 {
            complete += 1
        } else {
            absent += 1
        }
        if whole {
            assert!(complete > 3 && absent > 3, "{complete} complete, {absent} absent");
            return;
        }
    }
    panic!("the load makes more than {CALLS_MAX} calls");
}

#[test]
fn a_loaded_file_that_was_compacted_is_not_loaded_again() {
    let mut cluster = with_lists();
    flush_files(&cluster, 1);
    // The record of the load stays.
    cluster.fs.inject(Fault::on(Op::Delete, ".bulkload-").always().fails(IoKind::Other));
    cluster.region().bulk_load(&two_files(&cluster)).expect("loaded");
    cluster.fs.clear();
    let scanner = cluster.region().scanner(Scan::default()).expect("holds the files");
    cluster.region().compact(None, true).expect("compacted");
    assert_eq!(in_directory(&cluster, "a").len(), 3, "a scanner holds the inputs");
    drop(scanner);
    cluster.crash(SurvivingData::Flushed);
    assert_eq!(served(&cluster, "a").len(), 1);
    assert_eq!(in_directory(&cluster, "a"), served(&cluster, "a"), "the inputs are archived");
    assert_eq!(cluster.row("loaded").len(), 2);
}

/// Writes a file as HBase's log split does.
fn recovered_hfile(cluster: &Cluster) {
    let path = family_dir(cluster, "a").join("recovered.hfiles/00ee");
    let cell = KeyValue::put(b"recovered", b"a", b"q", 5, b"x");
    hfile(cluster, path.to_str().expect("text"), &[cell]);
}

#[test]
fn recovered_files_survive_a_power_cut_at_any_call_of_the_open() {
    for calls in 1..CALLS_MAX {
        let mut cluster = with_lists();
        flush_files(&cluster, 1);
        recovered_hfile(&cluster);
        cluster.die(SurvivingData::Flushed);
        cluster.fs.cut_power_after(calls);
        let started = cluster.try_start().is_ok();
        let whole = !cluster.fs.is_powered_off();
        cluster.die(SurvivingData::Synced);
        cluster.start();
        assert_eq!(values(&cluster.row("recovered")), ["x"], "{calls} calls, started: {started}");
        assert_eq!(listed(&cluster, "a"), served(&cluster, "a"), "{calls} calls");
        if whole {
            return;
        }
    }
    panic!("the open makes more than {CALLS_MAX} calls");
}

#[test]
fn a_table_moves_to_lists_and_back() {
    let mut cluster = Cluster::new(TWO);
    flush_files(&cluster, 2);
    for (round, attributes) in CYCLE.iter().enumerate() {
        cluster.alter(attributes);
        cluster.reopen();
        let value = format!("round {round}");
        write(&cluster, "r2", &value);
        cluster.region().flush().expect("flushed");
        let names = served(&cluster, "a");
        match attributes[0].1 {
            // It ends with a file that takes no effect here, and would with DEFAULT.
            "FILE" => {
                assert_eq!(listed(&cluster, "a"), names);
                cluster
                    .memory
                    .write_atomically(&family_dir(&cluster, "a").join("00ff"), b"broken")
                    .expect("written");
            }
            "DEFAULT" => assert_eq!(in_directory(&cluster, "a"), names),
            _ => {
                assert_eq!(listed(&cluster, "a"), names);
                assert_eq!(in_directory(&cluster, "a"), names);
            }
        }
        if round == 1 {
            cluster.region().compact(None, true).expect("compacted");
        }
        cluster.crash(SurvivingData::Flushed);
        assert_eq!(values(&cluster.row("r1")), ["v1", "v1"], "{attributes:?}");
        assert_eq!(values(&cluster.row("r2")), [&value, &value], "{attributes:?}");
    }
    assert_eq!(cluster.files("archive").iter().filter(|path| path.ends_with("00ff")).count(), 1);
}

#[test]
fn an_unknown_tracker_is_refused() {
    let mut cluster = Cluster::new(TWO);
    cluster.alter(&[(TRACKER_IMPL, "com.example.Tracker")]);
    cluster.die(SurvivingData::Flushed);
    let error = cluster.try_start().expect_err("unknown");
    assert!(error.message().contains("ClassNotFoundException: com.example.Tracker"), "{error}");
    assert!(!cluster.files(LIST_DIR).iter().any(|path| path.contains("/a/")));
}
