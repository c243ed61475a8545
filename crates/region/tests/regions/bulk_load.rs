//! Files that another program wrote: a load is complete or has no effect, wherever it stops; and
//! which cells win.

use std::io::ErrorKind as IoKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::mob::{ReferenceWriter, mob_family_dir};
use evenkeel_common::{CellComparator, CellType, ColumnFamilyDescriptor, ErrorKind, KeyValue};
use evenkeel_fs::{Fault, FileSystem, MemoryFileSystem, Op, SurvivingData};
use evenkeel_hfile::{HFileContext, HFileWriter, StoreFileMeta, keys};
use evenkeel_protocol::pb;
use evenkeel_region::operations::Scan;
use evenkeel_region::region::bulk_load::{BulkFile, BulkLoad, BulkLoadOutcome};
use evenkeel_region::store::OpenFiles;
use evenkeel_wal::WalReader;
use evenkeel_wal::markers::{self, Marker};

use crate::harness::{Cluster, NOW_MS, put, values};

const TWO: &[(&[u8], u32)] = &[(b"a", 1), (b"b", 1)];

/// The timestamp of a file's cells unless a test sets another one: before those of any put.
const OLD_MS: i64 = 5;

fn cell(row: &str, family: &str, timestamp: i64, value: &str) -> KeyValue {
    KeyValue::put(row.as_bytes(), family.as_bytes(), b"q", timestamp, value.as_bytes())
}

pub fn write(cluster: &Cluster, path: &str, context: HFileContext, cells: &[KeyValue]) -> PathBuf {
    let path = PathBuf::from(path);
    let mut writer = HFileWriter::create(&cluster.memory, &path, context).expect("a file");
    cells.iter().for_each(|cell| writer.append(&cell.as_cell()).expect("in order"));
    writer.append_file_info(keys::BULKLOAD_TIMESTAMP, 1_i64.to_be_bytes().to_vec());
    writer.finish(StoreFileMeta::default()).expect("written");
    path
}

pub fn hfile(cluster: &Cluster, path: &str, cells: &[KeyValue]) -> PathBuf {
    write(cluster, path, HFileContext::default(), cells)
}

pub fn file(family: &str, path: PathBuf, keep_source: bool) -> BulkFile {
    let family = Bytes::copy_from_slice(family.as_bytes());
    BulkFile { family, source: path.clone(), source_fs: None, path, keep_source }
}

pub fn load(token: &str, files: Vec<BulkFile>) -> BulkLoad {
    BulkLoad {
        files,
        assign_seq_id: true,
        token: Some(token.to_owned()),
        cluster_ids: vec!["c".to_owned()],
        replicate: true,
    }
}

/// Where files are that are loaded, and whether they stay there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Moved,
    Copied,
    /// They are copied from another file system.
    Elsewhere,
}

/// Puts the files of a load on another file system instead.
fn put_elsewhere(cluster: &Cluster, load: BulkLoad) -> BulkLoad {
    let fs = Arc::new(MemoryFileSystem::new());
    let put = |file: BulkFile| {
        let bytes = cluster.memory.read_all(&file.source, 1 << 20).expect("read");
        fs.mkdirs(file.source.parent().expect("a folder")).expect("created");
        fs.write_atomically(&file.source, &bytes).expect("written");
        cluster.memory.delete(&file.source).expect("deleted");
        // It is copied in any case.
        BulkFile { source_fs: Some(Arc::clone(&fs) as _), keep_source: false, ..file }
    };
    BulkLoad { files: load.files.into_iter().map(put).collect(), ..load }
}

/// Three files of two families; one row is in both.
fn three(cluster: &Cluster, keep_source: bool) -> BulkLoad {
    let files = [("a", "1", "r1"), ("a", "2", "r2"), ("b", "3", "r1")];
    let made = files.map(|(family, name, row)| {
        let path = hfile(cluster, &format!("/hbase/in/{name}"), &[cell(row, family, OLD_MS, "loaded")]);
        file(family, path, keep_source)
    });
    load("token", made.into())
}

/// A loaded file may refer to MOB files of its table.
#[test]
fn references_of_loaded_files_are_resolved() {
    let mut cluster = Cluster::new(TWO);
    let family = ColumnFamilyDescriptor::new(b"a").expect("legal").with("IS_MOB", "true");
    cluster.table = cluster.table.clone().with_family(family);
    cluster.restart();
    let table = cluster.region().info().table().clone();
    let name = format!("{:032x}19700101{:032x}_77aa", 1, 2);
    let value = cell("r", "a", OLD_MS, "long");
    let dir = mob_family_dir(Path::new("/hbase"), &table, "a");
    let dir = dir.to_str().expect("text");
    hfile(&cluster, &format!("{dir}/{name}"), std::slice::from_ref(&value));
    let mut references = ReferenceWriter::new(&table).expect("short");
    let reference = KeyValue::copy_of(&references.reference(&value.as_cell(), &name).expect("fits"));
    let with_refs = |path: &str, refs: Option<&[u8]>| {
        let context = HFileContext { includes_tags: true, ..HFileContext::default() };
        let path = PathBuf::from(path);
        let mut writer = HFileWriter::create(&cluster.memory, &path, context).expect("a file");
        writer.append(&reference.as_cell()).expect("in order");
        writer.append_file_info(keys::BULKLOAD_TIMESTAMP, 1_i64.to_be_bytes().to_vec());
        if let Some(refs) = refs {
            writer.append_file_info(keys::MOB_FILE_REFS, refs.to_vec());
        }
        writer.finish(StoreFileMeta::default()).expect("written");
        path
    };
    let listed = with_refs("/hbase/in/listed", Some(format!("{table}/{name}").as_bytes()));
    let foreign = with_refs("/hbase/in/foreign", Some(format!("other/{name}").as_bytes()));
    let store = Arc::clone(&cluster.region().stores()[0]);
    let error = store.check_bulk_file(&foreign).expect_err("its table does not know of it");
    assert_eq!(error.kind(), ErrorKind::DoNotRetry);
    assert_eq!(store.check_bulk_file(&listed), Ok(true));
    let loaded = cluster.region().bulk_load(&load("listed", vec![file("a", listed, false)]));
    loaded.expect("loaded");
    let read = |cluster: &Cluster| {
        let row = cluster.region().get(Scan::get("r")).expect("read");
        String::from_utf8_lossy(row.get(0).value()).into_owned()
    };
    assert_eq!(read(&cluster), "long");
    let known = store.mob_references().expect("well-formed");
    assert!(known.refs.contains(&table.to_string(), &name) && known.unknown.is_none());
    // Without a list, the file may refer to any MOB file; a major compaction writes the list.
    let unlisted = with_refs("/hbase/in/unlisted", None);
    let loaded = cluster.region().bulk_load(&load("unlisted", vec![file("a", unlisted, false)]));
    loaded.expect("loaded");
    assert!(store.mob_references().expect("well-formed").unknown.is_some());
    cluster.region().compact(None, true).expect("compacted");
    cluster.region().archive_compacted().expect("archived");
    let known = store.mob_references().expect("well-formed");
    assert!(known.unknown.is_none() && known.refs.is_empty(), "it is short");
    assert_eq!(read(&cluster), "long");
}

fn markers_of(cluster: &Cluster) -> Vec<Marker> {
    let mut found = Vec::new();
    let mut reader = WalReader::open(&cluster.memory, &cluster.wal().current_path()).expect("a log");
    while let Some(entry) = reader.next().expect("whole") {
        found.extend(entry.cells.iter().filter_map(|cell| markers::parse(&cell.as_cell()).expect("known")));
    }
    found
}

#[test]
fn a_bulk_load_orders_between_earlier_and_later_edits() {
    for keep_source in [true, false] {
        let mut cluster = Cluster::new(TWO);
        let at_old = |row: &str, value: &str| {
            let mut mutation = put(row, &[]);
            mutation.cells = vec![cell(row, "a", OLD_MS, value)];
            mutation
        };
        cluster.put("r1", "a", "q", "newer timestamp").expect("written");
        cluster.region().mutate_wait(at_old("r2", "before")).expect("written");
        let load = three(&cluster, keep_source);
        assert_eq!(cluster.region().bulk_load(&load), Ok(BulkLoadOutcome::Loaded));
        let expected = ["newer timestamp", "loaded", "loaded"];
        assert_eq!(values(&cluster.all()), expected);
        let [first] = &cluster.files("/a/")[..1] else { panic!("files") };
        assert!(cluster.files("_SeqId_").len() == 3 && first.contains("/a/"), "{:?}", cluster.files(""));
        cluster.region().mutate_wait(at_old("r2", "after")).expect("written");
        let expected = ["newer timestamp", "loaded", "after"];
        assert_eq!(values(&cluster.all()), expected);

        cluster.crash(SurvivingData::Flushed);
        assert_eq!(values(&cluster.all()), expected, "the log is replayed over what was loaded");
        cluster.region().compact(None, true).expect("compacted");
        assert_eq!(values(&cluster.all()), expected);
        assert_eq!(cluster.files("/hbase/in/").len(), if keep_source { 3 } else { 0 });
        assert!(cluster.files(".tmp").is_empty(), "{:?}", cluster.files(".tmp"));
        cluster.restart();
        assert_eq!(values(&cluster.all()), expected);
    }
}

#[test]
fn store_files_are_written_behind_and_logs_are_not() {
    let mut cluster = Cluster::new(TWO);
    cluster.put("r1", "a", "q", "flushed").expect("written");
    cluster.region().flush().expect("flushed");
    cluster.put("r2", "a", "q", "compacted with it").expect("written");
    cluster.crash(SurvivingData::Flushed);
    cluster.region().flush().expect("flushed");
    cluster.region().compact(None, true).expect("compacted");
    let copied = file("b", hfile(&cluster, "/hbase/in/1", &[cell("r3", "b", OLD_MS, "copied")]), true);
    cluster.region().bulk_load(&load("token", vec![copied])).expect("loaded");

    let (bulk, other): (Vec<String>, Vec<String>) =
        cluster.files("").into_iter().partition(|path| cluster.memory.is_bulk(path.as_ref()).expect("there"));
    let is_store_file = |path: &String| ["/a/", "/b/", "/in/"].iter().any(|dir| path.contains(dir));
    assert!(bulk.iter().all(is_store_file) && !other.iter().any(is_store_file), "{bulk:?} {other:?}");
    assert_eq!(
        bulk.iter().filter(|path| path.contains("/a/")).count(),
        3,
        "two flushed, one compacted: {bulk:?}"
    );
    assert_eq!(bulk.iter().filter(|path| path.contains("/b/")).count(), 1, "one copied: {bulk:?}");
    assert!(other.iter().any(|path| path.contains("WALs/")), "{other:?}");
}

#[test]
fn wal_markers_record_loads_and_compactions() {
    let cluster = Cluster::new(TWO);
    cluster.put("r", "a", "q", "1").expect("written");
    let load = three(&cluster, true);
    cluster.region().bulk_load(&load).expect("loaded");
    cluster.region().compact(Some(b"a"), true).expect("compacted");
    assert!(cluster.region().mark_cannot_flush());
    let markers = markers_of(&cluster);
    let [_open, start, commit, Marker::BulkLoad(bulk), Marker::Compaction(compaction), cannot] = &markers[..]
    else {
        panic!("{markers:#?}")
    };
    let flush = |marker: &Marker| match marker {
        Marker::Flush(flush) => flush.clone(),
        other => panic!("{other:?}"),
    };
    use pb::flush_descriptor::FlushAction;
    let (start, commit, cannot) = (flush(start), flush(commit), flush(cannot));
    assert_eq!((start.action(), commit.action()), (FlushAction::StartFlush, FlushAction::CommitFlush));
    assert_eq!(start.store_flushes.iter().map(|s| s.flush_output.len()).collect::<Vec<_>>(), [0, 0]);
    assert_eq!(commit.store_flushes.iter().map(|s| s.flush_output.len()).collect::<Vec<_>>(), [1, 0]);
    assert_eq!((cannot.action(), cannot.store_flushes.len()), (FlushAction::CannotFlush, 0));
    assert_eq!(cannot.flush_sequence_number, Some(u64::MAX));
    let seq_id = start.flush_sequence_number.expect("given");
    assert_eq!((commit.flush_sequence_number, bulk.bulkload_seq_num), (Some(seq_id), seq_id as i64));
    assert_eq!(bulk.stores.iter().map(|s| s.store_file.len()).collect::<Vec<_>>(), [2, 1]);
    assert!(bulk.stores[1].store_file[0].ends_with(&format!("_SeqId_{seq_id}_")));
    assert!(bulk.stores[1].store_file_size_bytes.is_some_and(|bytes| bytes > 0));
    assert_eq!((bulk.cluster_ids.as_slice(), bulk.replicate()), (&["c".to_owned()][..], true));
    let mut inputs: Vec<_> = commit.store_flushes[0].flush_output.clone();
    inputs.extend(bulk.stores[0].store_file.iter().cloned());
    let mut told = compaction.compaction_input.clone();
    inputs.sort();
    told.sort();
    assert_eq!((told, compaction.compaction_output.len()), (inputs, 1));
    assert_eq!((&compaction.family_name[..], &compaction.store_home_dir[..]), (&b"a"[..], "a"));
}

/// Where a load can be stopped, and the faults that stop it there. `moved` is the source path of
/// the renames.
fn faults(moved: &str) -> Vec<(&'static str, Fault)> {
    let other = IoKind::Other;
    vec![
        ("reading a source", Fault::on(Op::Read, "/hbase/in/2").fails(other)),
        ("copying", Fault::on(Op::Append, ".tmp/b/").writes_half(IoKind::StorageFull)),
        ("ending a copy", Fault::on(Op::Sync, ".tmp/a/").after(1).fails(other)),
        ("the flush", Fault::on(Op::Create, ".tmp/a/").after(2).fails(other)),
        ("making the note", Fault::on(Op::Create, ".bulkload-").fails(other)),
        ("writing the note", Fault::on(Op::Append, ".bulkload-").writes_half(IoKind::StorageFull)),
        ("ending the note", Fault::on(Op::Sync, ".bulkload-").fails(other)),
        ("naming the note", Fault::on(Op::Rename, ".bulkload-").fails(other)),
        ("having named the note", Fault::on(Op::Rename, ".bulkload-").fails_after_effect(other)),
        ("the first rename", Fault::on(Op::Rename, moved).fails(other)),
        ("having done the first rename", Fault::on(Op::Rename, moved).fails_after_effect(other)),
        ("the second rename", Fault::on(Op::Rename, moved).after(1).fails(other)),
        ("the third rename", Fault::on(Op::Rename, moved).after(2).fails(other)),
        ("having done the third rename", Fault::on(Op::Rename, moved).after(2).fails_after_effect(other)),
        ("opening", Fault::on(Op::Open, "_SeqId_").after(1).fails(other)),
        ("reading a trailer", Fault::on(Op::Read, "_SeqId_").after(2).fails(other)),
        ("forgetting the note", Fault::on(Op::Delete, ".bulkload-").fails(other)),
        ("the log", Fault::on(Op::Append, "/WALs/").fails(IoKind::StorageFull)),
    ]
}

/// Loads with a fault that strikes once or always, kills the server or not, and checks the result.
fn stopped(what: &str, fault: Fault, source: Source, dies: bool) {
    let what = format!("{what}, sources {source:?}, server dies {dies}");
    let mut cluster = Cluster::new(TWO);
    cluster.put("r0", "a", "q", "before").expect("written");
    let load = three(&cluster, source != Source::Moved);
    let load = if source == Source::Elsewhere { put_elsewhere(&cluster, load) } else { load };
    cluster.fs.inject(fault);
    let outcome = cluster.region().bulk_load(&load);
    let none = values(&cluster.all()) == ["before"];
    let all = values(&cluster.all()) == ["before", "loaded", "loaded", "loaded"];
    assert!(none || all, "{what}: {:?}", cluster.all());
    assert!(outcome.is_err() || all, "{what}: {outcome:?}");
    match dies {
        true => cluster.crash(SurvivingData::Flushed),
        false => cluster.fs.clear(),
    }
    let none = values(&cluster.all()) == ["before"];
    let now_all = values(&cluster.all()) == ["before", "loaded", "loaded", "loaded"];
    assert!(now_all || none && !all, "{what}: {:?}", cluster.all());
    if none || source != Source::Moved {
        let is_there = |file: &BulkFile| match &file.source_fs {
            Some(fs) => fs.exists(&file.source),
            None => cluster.memory.exists(&file.source),
        };
        let there = load.files.iter().filter(|file| is_there(file).expect("looked"));
        assert_eq!(there.count(), 3, "{what}: no file is lost");
    }
    assert_eq!(cluster.region().bulk_load(&load), Ok(BulkLoadOutcome::Loaded), "{what}: asked again");
    assert_eq!(values(&cluster.all()), ["before", "loaded", "loaded", "loaded"], "{what}");
    assert_eq!(cluster.files("_SeqId_").len(), 3, "{what}: nothing is loaded twice");
    cluster.restart();
    assert_eq!(values(&cluster.all()), ["before", "loaded", "loaded", "loaded"], "{what}");
    assert!(cluster.files(".tmp").is_empty(), "{what}: {:?}", cluster.files(".tmp"));
}

#[test]
fn an_interrupted_bulk_load_is_atomic() {
    for at in 0..faults("").len() {
        for source in [Source::Moved, Source::Copied, Source::Elsewhere] {
            for (dies, for_ever) in [(false, false), (true, false), (true, true)] {
                let moved = if source == Source::Moved { "/hbase/in/" } else { ".tmp/" };
                let (what, fault) = faults(moved).swap_remove(at);
                let fault = if for_ever { fault.always() } else { fault };
                stopped(what, fault, source, dies);
            }
        }
    }
}

#[test]
fn files_of_another_file_system_are_copied_and_survive_a_power_cut() {
    let mut cluster = Cluster::new(TWO);
    cluster.put("r0", "a", "q", "before").expect("written");
    let load = put_elsewhere(&cluster, three(&cluster, false));
    let fs = load.files[0].source_fs.clone().expect("elsewhere");
    let missing = BulkLoad { token: Some("other".to_owned()), ..load.clone() };
    assert_eq!(cluster.region().bulk_load(&load), Ok(BulkLoadOutcome::Loaded));
    cluster.crash(SurvivingData::Synced);
    assert_eq!(values(&cluster.all()), ["before", "loaded", "loaded", "loaded"]);
    assert!(load.files.iter().all(|file| fs.exists(&file.source).expect("looked")), "the sources stay");

    // A file that is gone leaves no copies of the others.
    fs.delete(&load.files[1].source).expect("deleted");
    assert_eq!(cluster.region().bulk_load(&load), Ok(BulkLoadOutcome::Loaded), "it was loaded before");
    let error = cluster.region().bulk_load(&missing).expect_err("it is gone");
    assert!(error.message().contains("/hbase/in/2"), "{error}");
    assert!(cluster.files(".tmp").is_empty(), "{:?}", cluster.files(".tmp"));
    assert_eq!(cluster.files("_SeqId_").len(), 3);
}

#[test]
fn a_refused_bulk_load_changes_nothing() {
    let cluster = Cluster::new(TWO);
    cluster.put("r0", "a", "q", "before").expect("written");
    let good = || file("a", hfile_once(&cluster, "/hbase/in/good", &[cell("r1", "a", OLD_MS, "x")]), false);
    let refused = |bad: BulkFile| {
        let error = cluster.region().bulk_load(&load("t", vec![good(), bad])).expect_err("refused");
        assert_eq!(values(&cluster.all()), ["before"]);
        assert_eq!((cluster.files("/hbase/in/good").len(), cluster.files(".tmp").len()), (1, 0));
        error
    };
    let unknown = refused(file("c", PathBuf::from("/hbase/in/good"), true));
    assert_eq!(unknown.kind(), ErrorKind::DoNotRetry);
    assert!(unknown.message().contains("No such column family c"), "{unknown}");
    refused(file("b", PathBuf::from("/hbase/in/none"), true));
    refused(file("b", PathBuf::from("/hbase/in"), true));
    let empty = hfile(&cluster, "/hbase/in/empty", &[]);
    assert!(refused(file("b", empty, true)).message().contains("First key can not be null"));
    for (name, bytes) in [("zero", vec![]), ("text", b"no HFile at all".repeat(40))] {
        let path = PathBuf::from(format!("/hbase/in/{name}"));
        cluster.memory.write_atomically(&path, &bytes).expect("written");
        refused(file("b", path, true));
    }
    let whole = hfile(&cluster, "/hbase/in/whole", &[cell("r1", "b", OLD_MS, "x")]);
    let mut bytes = cluster.memory.read_all(&whole, 1 << 20).expect("read");
    bytes.truncate(bytes.len() - 9);
    cluster.memory.write_atomically(Path::new("/hbase/in/cut"), &bytes).expect("written");
    refused(file("b", PathBuf::from("/hbase/in/cut"), true));
    let closed = cluster.region().clone();
    closed.close(false).expect("closed");
    let error = closed.bulk_load(&load("t", vec![good()])).expect_err("closed");
    assert_eq!(error.kind(), ErrorKind::NotServingRegion);
}

fn hfile_once(cluster: &Cluster, path: &str, cells: &[KeyValue]) -> PathBuf {
    let there = cluster.memory.exists(Path::new(path)).expect("looked");
    if there { PathBuf::from(path) } else { hfile(cluster, path, cells) }
}

#[test]
fn rows_of_other_regions_are_reported() {
    let cluster = Cluster::of_rows(TWO, b"g", b"p");
    let inside = hfile(&cluster, "/hbase/in/inside", &[cell("g", "a", 1, "x"), cell("oz", "a", 1, "x")]);
    let files: Vec<_> = [("b", "below", "f", "h"), ("a", "above", "h", "p")]
        .into_iter()
        .map(|(family, name, first, last)| {
            let cells = [cell(first, family, 1, "x"), cell(last, family, 1, "x")];
            file(family, hfile(&cluster, &format!("/hbase/in/{name}"), &cells), false)
        })
        .collect();
    let misfits = files.iter().map(|file| file.path.clone()).collect();
    let mut with_good = vec![file("a", inside.clone(), false)];
    with_good.extend(files);
    let outcome = cluster.region().bulk_load(&load("t", with_good));
    assert_eq!(outcome, Ok(BulkLoadOutcome::DoesNotFit(misfits)));
    assert_eq!((cluster.all().len(), cluster.files("/hbase/in/").len()), (0, 3));
    let outcome = cluster.region().bulk_load(&load("t", vec![file("a", inside, false)]));
    assert_eq!((outcome, cluster.all().len()), (Ok(BulkLoadOutcome::Loaded), 2));
}

#[test]
fn unsorted_files_are_refused_when_verification_is_on() {
    // Rows of hbase:meta have their own order: "t,a,2" before "t,a!,1", unlike plain rows.
    let rows = |family_of_second: &str| {
        [cell("t,a,2", "a", OLD_MS, "x"), cell("t,a!,1", family_of_second, OLD_MS, "x")]
    };
    for verify in [false, true] {
        let mut cluster = Cluster::new(TWO);
        let configuration = [("hbase.hstore.bulkload.verify".to_owned(), verify.to_string())].into();
        let family = ColumnFamilyDescriptor::from_parts(b"a".to_vec(), Default::default(), configuration);
        cluster.table = cluster.table.clone().with_family(family.expect("legal"));
        cluster.restart();
        let meta = HFileContext { comparator: CellComparator::Meta, ..HFileContext::default() };
        let order = file("a", write(&cluster, "/hbase/in/order", meta.clone(), &rows("a")), true);
        let outcome = cluster.region().bulk_load(&load("t", vec![order]));
        match verify {
            false => assert_eq!(outcome, Ok(BulkLoadOutcome::Loaded)),
            true => assert!(outcome.expect_err("refused").message().contains("Previous row is greater")),
        }
        let two = [cell("r1", "a", OLD_MS, "x"), cell("r2", "b", OLD_MS, "x")];
        let families = file("a", hfile(&cluster, "/hbase/in/families", &two), true);
        let outcome = cluster.region().bulk_load(&load("t", vec![families]));
        assert_eq!(outcome.is_err(), verify, "{outcome:?}");
    }
}

#[test]
fn without_a_sequence_id_loaded_cells_are_the_oldest() {
    let cluster = Cluster::new(TWO);
    let mut mutation = put("r", &[]);
    mutation.cells = vec![cell("r", "a", OLD_MS, "written")];
    cluster.region().mutate_wait(mutation).expect("written");
    let path =
        hfile(&cluster, "/hbase/in/1", &[cell("r", "a", OLD_MS, "loaded"), cell("s", "a", OLD_MS, "loaded")]);
    let plain = BulkLoad { assign_seq_id: false, ..load("t", vec![file("a", path, true)]) };
    cluster.region().bulk_load(&plain).expect("loaded");
    assert_eq!(values(&cluster.all()), ["written", "loaded"]);
    cluster.region().flush().expect("flushed");
    cluster.region().compact(None, true).expect("compacted");
    assert_eq!(values(&cluster.all()), ["written", "loaded"]);
}

#[test]
fn an_open_scan_does_not_see_a_bulk_load() {
    let cluster = Cluster::new(TWO);
    cluster.put("r0", "a", "q", "before").expect("written");
    let mut scanner = cluster.region().scanner(Default::default()).expect("opens");
    cluster.region().bulk_load(&three(&cluster, true)).expect("loaded");
    let mut row = evenkeel_common::CellBuffer::new();
    let state =
        scanner.next(&mut row, &mut evenkeel_region::scanner::ScannerContext::unlimited()).expect("read");
    assert_eq!((row.len(), state.has_more()), (1, false));
    assert_eq!(cluster.all().len(), 4);
}

#[test]
fn clients_cannot_add_store_files_above_the_limit() {
    let mut cluster = Cluster::new(TWO);
    cluster.open_files = Arc::new(OpenFiles::new(4));
    cluster.restart();
    let first = three(&cluster, true);
    cluster.region().bulk_load(&first).expect("three files are open");
    let pair = || {
        [("a", "4"), ("b", "5")].map(|(family, name)| {
            let path = hfile(&cluster, &format!("/hbase/in/{name}"), &[cell("r3", family, OLD_MS, "more")]);
            file(family, path, false)
        })
    };
    let two = load("two", pair().into());
    let error = cluster.region().bulk_load(&two).expect_err("five files");
    assert_eq!(error.kind(), ErrorKind::RegionTooBusy, "{error}");
    assert!(two.files.iter().all(|file| cluster.memory.exists(&file.source).expect("readable")));
    let again = cluster.region().bulk_load(&first);
    assert_eq!(again, Ok(BulkLoadOutcome::Loaded), "these files are served already");

    cluster.region().admit_flush().expect("there is nothing to flush");
    cluster.put("r4", "a", "q", "put").expect("written");
    let error = cluster.region().admit_flush().expect_err("five files");
    assert_eq!(error.kind(), ErrorKind::RegionTooBusy, "{error}");
    cluster.region().flush().expect("a flush that no client requests is not limited");

    cluster.region().compact(None, true).expect("compacted");
    cluster.region().bulk_load(&two).expect("four files");
    assert_eq!(values(&cluster.all()), ["loaded", "loaded", "loaded", "more", "more", "put"]);
}

#[test]
fn recovered_hfiles_are_loaded_on_open() {
    let mut cluster = Cluster::new(TWO);
    cluster.put("r0", "a", "q", "before").expect("written");
    cluster.flush_and_roll();
    let dir = cluster.files("/a/")[0].rsplit_once('/').expect("a path").0.to_owned() + "/recovered.hfiles";
    let mut edits = [cell("r1", "a", NOW_MS, "recovered"), cell("r2", "a", NOW_MS, "recovered")];
    edits.iter_mut().for_each(|cell| cell.set_seq_id(900));
    let context = HFileContext { includes_mvcc: true, ..HFileContext::default() };
    let mut writer =
        HFileWriter::create(&cluster.memory, Path::new(&format!("{dir}/00ff")), context).expect("made");
    edits.iter().for_each(|cell| writer.append(&cell.as_cell()).expect("in order"));
    let meta = StoreFileMeta { max_seq_id: Some(901), ..StoreFileMeta::default() };
    writer.finish(meta).expect("written");
    cluster.memory.write_atomically(Path::new(&format!("{dir}/00fe")), b"").expect("written");
    cluster.restart();
    assert_eq!(values(&cluster.all()), ["before", "recovered", "recovered"]);
    assert!(cluster.region().open_seq_num() > 901);
    assert!(cluster.files("recovered.hfiles").is_empty());
    assert!(cluster.files("/a/00ff").len() == 1 && cluster.files("00fe").is_empty());
}

#[test]
fn a_replayed_compaction_marker_removes_its_inputs() {
    let mut cluster = Cluster::new(TWO);
    for value in ["1", "2"] {
        cluster.put(&format!("r{value}"), "a", "q", value).expect("written");
        cluster.region().flush().expect("flushed");
    }
    let inputs = cluster.files("/a/");
    let kept: Vec<_> =
        inputs.iter().map(|p| cluster.memory.read_all(Path::new(p), 1 << 20).expect("read")).collect();
    let mut delete = put("r1", &[]);
    delete.kind = evenkeel_region::operations::MutationKind::Delete;
    delete.cells = vec![KeyValue::new(b"r1", b"a", b"", i64::MAX, CellType::DeleteFamily, b"")];
    cluster.region().mutate_wait(delete).expect("deleted");
    cluster.region().flush().expect("flushed");
    cluster.region().compact(None, true).expect("compacted");
    assert_eq!(values(&cluster.all()), ["2"]);
    // As if the server had died before they were archived, with an output that does not name the
    // files it replaces.
    let output = cluster.files("/a/").into_iter().find(|p| !p.contains("archive")).expect("one");
    let left = [cell("r2", "a", NOW_MS, "2")];
    cluster.memory.delete(Path::new(&output)).expect("deleted");
    hfile(&cluster, &output, &left);
    for (path, bytes) in inputs.iter().zip(&kept) {
        cluster.memory.write_atomically(Path::new(path), bytes).expect("written");
    }
    cluster.crash(SurvivingData::Flushed);
    assert_eq!(values(&cluster.all()), ["2"]);
    assert!(inputs.iter().all(|path| !cluster.memory.exists(Path::new(path)).expect("looked")));
}
