//! Stores with MOB files: what is written where, and what readers get.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_common::mob::{MobFileName, is_reference, mob_archive_dir, mob_family_dir};
use evenkeel_common::{CellBuffer, CellType, ErrorKind, KeyValue, TryError, Wait};
use evenkeel_fs::{Fault, FaultyFileSystem, MemoryFileSystem, Op};
use evenkeel_hfile::{HFileReader, OpenOptions, keys};
use evenkeel_protocol::pb;

use super::*;
use crate::filter;
use crate::operations::{MobRead, Scan};
use crate::scanner::{LimitScope, ScannerContext};
use crate::store::Engine;
use crate::store::testing::{ENGINES, NOW_MS, TestStore, drain, drain_with, env, family, region};

const MOB: &[(&str, &str)] = &[("IS_MOB", "true"), ("MOB_THRESHOLD", "10"), ("VERSIONS", "3")];
const LONG: &str = "a value above the threshold";
const OTHER: &str = "another value above it";

fn mob_dir() -> PathBuf {
    mob_family_dir(Path::new("/hbase"), region().table(), "f")
}

impl TestStore {
    fn mob_files(&self) -> Vec<String> {
        let listed = self.env.fs.list(&mob_dir()).unwrap_or_default();
        let mut names: Vec<_> = listed.iter().map(|file| file.name().to_owned()).collect();
        names.sort();
        names
    }

    fn put(&mut self, row: &str, timestamp: i64, value: &str) -> u64 {
        self.add(row, "q", timestamp, CellType::Put, value)
    }

    fn values(&self) -> Vec<String> {
        self.scan(Scan::default())
    }

    /// Replaces the family's attributes, as an alteration does.
    fn alter(&mut self, attributes: &[(&str, &str)]) {
        self.store.close(true).expect("closed");
        self.store = Store::open(&self.env, family(b"f", attributes), &region()).expect("opens");
    }

    /// The MOB files that each store file names.
    fn refs(&self) -> Vec<Vec<String>> {
        let state = self.store.state.load();
        let names = |file: &Arc<StoreFile>| {
            assert!(file.reader().file_info(keys::MOB_FILE_REFS).is_some(), "{}", file.name());
            let refs = references_of(file.reader()).expect("well-formed");
            refs.iter().map(|(table, name)| format!("{table}/{name}")).collect()
        };
        state.files.iter().map(names).collect()
    }

    fn references(&self, mob: MobRead) -> Vec<bool> {
        let scan = Scan { mob, max_versions: 9, ..Scan::default() };
        let (mut out, mut scanner) = (CellBuffer::new(), self.scanner(scan, u64::MAX - 1));
        while scanner.next(&mut out, &mut ScannerContext::unlimited()).expect("read").has_more() {}
        out.iter().map(|cell| is_reference(&cell)).collect()
    }

    fn error(&self, mob: MobRead) -> HBaseErrorText {
        let scan = Scan { mob, ..Scan::default() };
        let error = drain(&mut self.scanner(scan, u64::MAX - 1)).expect_err("fails");
        (error.kind(), error.message().to_owned())
    }
}

type HBaseErrorText = (ErrorKind, String);

fn with_long_and_short() -> TestStore {
    let mut store = TestStore::new(MOB);
    store.put("a", 5, LONG);
    store.put("b", 5, "short");
    store.put("c", 6, OTHER);
    store.add("d", "q", 5, CellType::DeleteColumn, "");
    store.flush(u64::MAX);
    store
}

#[test]
fn a_flush_writes_long_values_to_a_mob_file() {
    let store = with_long_and_short();
    let files = store.mob_files();
    let [name] = &files[..] else { panic!("{files:?}") };
    let parsed = MobFileName::parse(name).expect("a name");
    assert_eq!((parsed.region(), parsed.date()), (region().encoded_name(), "19700102"));
    let path = mob_dir().join(name);
    let file =
        HFileReader::open_path(&*store.env.fs, &path, Arc::clone(&store.env.cache), &OpenOptions::default());
    let file = file.expect("opens");
    assert_eq!((file.entry_count(), file.file_infos().get_i64(keys::MOB_CELLS_COUNT)), (2, Some(2)));
    assert_eq!(file.max_seq_id(), Some(5));
    assert!(file.file_info(keys::COMPACTION_EVENT).is_none() && !file.has_bloom());
    assert_eq!(store.refs(), [[format!("t/{name}")]]);
    assert_eq!(
        store.values(),
        ["a/q/5/a value above the threshold", "b/q/5/short", "c/q/6/another value above it"]
    );
    assert_eq!(store.scan(Scan { reversed: true, ..Scan::default() })[0], "c/q/6/another value above it");
    assert_eq!(store.scan(Scan::get("c")), ["c/q/6/another value above it"]);
    let metrics = store.env.mob.metrics();
    let bytes = (LONG.len() + OTHER.len()) as u64;
    assert_eq!((metrics.flushes(), metrics.flushed()), (1, (2, bytes)));
    assert_eq!(metrics.scanned().0, 5, "two scans of two, and a Get");
    assert!(!store.store.is_mob_file_pending(name));
}

#[test]
fn a_flush_without_long_values_writes_no_mob_file() {
    let mut store = TestStore::new(MOB);
    store.put("a", 5, "0123456789");
    store.flush(u64::MAX);
    assert!(store.mob_files().is_empty());
    assert_eq!(store.refs(), [Vec::<String>::new()]);
}

#[test]
fn scans_may_ask_for_the_references() {
    let mut store = with_long_and_short();
    let (raw, only) = (
        MobRead { raw: true, ..MobRead::default() },
        MobRead { references_only: true, ..MobRead::default() },
    );
    assert_eq!(store.references(MobRead::default()), [false, false, false]);
    assert_eq!(store.references(raw), [true, false, true]);
    assert_eq!(store.references(only), [false, false], "the cells of references");
    assert_eq!(store.references(MobRead { raw: true, ..only }), [true, true]);
    // An older version in a MOB file is a reference of its own.
    store.put("a", 9, "short");
    assert_eq!(store.references(only), [false, false]);
    store.env.fs.delete(&mob_dir()).expect("deleted");
    assert_eq!(store.references(raw), [false, true, false, true]);
}

#[test]
fn filters_see_references_and_replaced_values_need_no_file() {
    let store = with_long_and_short();
    let named = |name: &str, bytes: &'static [u8]| {
        let proto = pb::Filter {
            name: format!("org.apache.hadoop.hbase.filter.{name}"),
            serialized_filter: Some(bytes::Bytes::from_static(bytes)),
        };
        Some(filter::from_proto(&proto).expect("legal"))
    };
    store.env.fs.delete(&mob_dir()).expect("deleted");
    // KeyOnlyFilter with the length as the value: that of the reference, as in HBase.
    let lengths = Scan { filter: named("KeyOnlyFilter", &[8, 1]), ..Scan::default() };
    let (mut out, mut scanner) = (CellBuffer::new(), store.scanner(lengths, u64::MAX - 1));
    while scanner.next(&mut out, &mut ScannerContext::unlimited()).expect("no file is read").has_more() {}
    let length = u32::try_from(4 + 32 + 8 + 32 + 1 + region().encoded_name().len()).expect("short");
    assert_eq!(out.get(0).value(), length.to_be_bytes());
}

#[test]
fn a_lost_mob_file_is_an_error_or_an_empty_value() {
    let store = with_long_and_short();
    let empty = MobRead { empty_on_miss: true, ..MobRead::default() };
    store.env.fs.delete(&mob_dir()).expect("deleted");
    let (kind, message) = store.error(MobRead::default());
    assert_eq!(kind, ErrorKind::DoNotRetry);
    assert!(message.contains("java.io.FileNotFoundException") && message.contains("mobdir"), "{message}");
    assert_eq!(store.scan(Scan { mob: empty, ..Scan::default() }), ["a/q/5/", "b/q/5/short", "c/q/6/"]);
}

#[test]
fn a_mob_file_may_be_in_the_archive() {
    let store = with_long_and_short();
    let values = store.values();
    let archive = mob_archive_dir(Path::new("/hbase"), region().table(), "f");
    let name = &store.mob_files()[0];
    store.env.fs.mkdirs(&archive).expect("made");
    store.env.fs.rename(&mob_dir().join(name), &archive.join(name)).expect("archived");
    store.env.mob.close(&mob_dir().join(name));
    assert_eq!(store.values(), values);
}

#[test]
fn a_read_that_may_not_wait_opens_no_file() {
    let store = with_long_and_short();
    let mut scanner = store.scanner(Scan { wait: Wait::Never, ..Scan::get("a") }, u64::MAX - 1);
    let read = scanner.next(&mut CellBuffer::new(), &mut ScannerContext::unlimited());
    assert!(matches!(read, Err(TryError::WouldWait)), "{read:?}");
    assert!(store.env.mob.is_empty());
}

#[test]
fn resolved_values_count_towards_the_limit_of_a_reply() {
    let mut store = TestStore::new(MOB);
    let value = "v".repeat(1000);
    for row in ["a", "b", "c", "d"] {
        store.put(row, 5, &value);
    }
    store.flush(u64::MAX);
    let limits = || ScannerContext::unlimited().with_size_limit(LimitScope::BetweenCells, 1500);
    let mut scanner = store.scanner(Scan::default(), u64::MAX - 1);
    let (mut out, mut context) = (CellBuffer::new(), limits());
    while context.heap_size < 1500 {
        scanner.next(&mut out, &mut context).expect("read");
    }
    assert_eq!(out.len(), 2);
    let rest = drain_with(&mut scanner, limits, |_| ()).expect("read");
    assert_eq!(rest.concat().len(), 2);
}

#[test]
fn each_version_of_a_key_has_its_own_value() {
    let mut store = TestStore::new(MOB);
    let first = store.put("a", 5, LONG);
    let second = store.put("a", 5, OTHER);
    // A scanner at `first` is open, so the flush keeps both.
    store.flush(first);
    let at = |store: &TestStore, read_point| {
        drain(&mut store.scanner(Scan::default(), read_point)).expect("read").concat()
    };
    assert_eq!(at(&store, first), [format!("a/q/5/{LONG}")]);
    assert_eq!(at(&store, second), [format!("a/q/5/{OTHER}")]);
    store.compact(true, first).expect("compacted");
    assert_eq!(at(&store, first), [format!("a/q/5/{LONG}")]);
    assert_eq!(at(&store, second), [format!("a/q/5/{OTHER}")]);
}

#[test]
fn a_minor_compaction_keeps_the_references() {
    let mut store = with_long_and_short();
    for row in ["e", "f"] {
        store.put(row, 5, LONG);
        store.flush(u64::MAX);
    }
    let (values, files) = (store.values(), store.mob_files());
    assert_eq!(files.len(), 3);
    store.compact(false, u64::MAX).expect("three files");
    let all: Vec<_> = files.iter().map(|name| format!("t/{name}")).collect();
    assert_eq!((store.refs(), store.mob_files(), store.values()), (vec![all], files, values));
}

#[test]
fn a_requested_major_compaction_rewrites_the_values() {
    let mut store = with_long_and_short();
    store.put("a", 7, "a newer value above it");
    store.add("c", "q", 7, CellType::DeleteColumn, "");
    store.flush(u64::MAX);
    let (values, old) = (store.values(), store.mob_files());
    store.compact(true, u64::MAX).expect("compacted");
    let new = store.mob_files();
    let written: Vec<_> = new.iter().filter(|name| !old.contains(name)).collect();
    assert_eq!((written.len(), new.len()), (1, 3), "the cleaner archives the old ones");
    assert_eq!(store.refs(), [[format!("t/{}", written[0])]]);
    assert_eq!(store.values(), values);
    let references = store.store.mob_references().expect("known");
    assert!(references.unknown.is_none() && references.refs.len() == 1);
    store.reopen();
    assert_eq!(store.values(), values);
}

#[test]
fn a_compaction_that_drops_all_values_leaves_no_reference() {
    let mut store = with_long_and_short();
    store.add("a", "q", 7, CellType::DeleteColumn, "");
    store.add("c", "q", 7, CellType::DeleteColumn, "");
    store.flush(u64::MAX);
    let old = store.mob_files();
    store.compact(true, u64::MAX).expect("compacted");
    assert_eq!((store.refs(), store.mob_files()), (vec![vec![]], old));
    assert_eq!(store.values(), ["b/q/5/short"]);
}

#[test]
fn expired_values_are_dropped_and_not_read() {
    let mut store = TestStore::new(&[("IS_MOB", "true"), ("MOB_THRESHOLD", "10"), ("TTL", "10")]);
    store.put("a", NOW_MS, LONG);
    store.put("b", NOW_MS + 5000, LONG);
    store.flush(u64::MAX);
    store.clock.advance_ms(12_000);
    store.compact(true, u64::MAX).expect("compacted");
    assert_eq!(store.values(), [format!("b/q/{}/{LONG}", NOW_MS + 5000)]);
}

#[test]
fn a_higher_threshold_brings_values_back_into_store_files() {
    let mut store = with_long_and_short();
    let values = store.values();
    store.alter(&[("IS_MOB", "true"), ("MOB_THRESHOLD", "25"), ("VERSIONS", "3")]);
    assert_eq!(store.values(), values);
    store.compact(true, u64::MAX).expect("compacted");
    assert_eq!(store.references(MobRead { raw: true, ..MobRead::default() }), [true, false, false]);
    assert_eq!(store.values(), values);
    assert_eq!(store.env.mob.metrics().compacted_from(), (1, OTHER.len() as u64));
    store.alter(&[("IS_MOB", "true"), ("MOB_THRESHOLD", "3"), ("VERSIONS", "3")]);
    store.compact(true, u64::MAX).expect("compacted");
    assert_eq!(store.references(MobRead { raw: true, ..MobRead::default() }), [true, true, true]);
    assert_eq!(store.values(), values);
    assert_eq!(store.env.mob.metrics().compacted_to(), (2, (OTHER.len() + 5) as u64));
}

#[test]
fn a_family_without_mob_files_any_more_still_has_its_values() {
    let mut store = with_long_and_short();
    let values = store.values();
    store.alter(&[("VERSIONS", "3")]);
    assert_eq!(store.values(), values);
    store.put("e", 5, LONG);
    store.flush(u64::MAX);
    assert_eq!(store.mob_files().len(), 1, "no new one");
    store.compact(true, u64::MAX).expect("compacted");
    store.env.fs.delete(&mob_dir()).expect("deleted");
    store.reopen();
    assert_eq!(store.values(), [values, vec![format!("e/q/5/{LONG}")]].concat());
    assert!(!store.store.mob.resolves());
}

#[test]
fn the_optimized_compaction_leaves_large_files() {
    let optimized =
        [("hbase.mob.compaction.type", "optimized"), ("hbase.mob.compactions.max.file.size", "9000")];
    let attributes: Vec<_> = MOB.iter().chain(&optimized).copied().collect();
    let mut store = TestStore::new(&attributes);
    store.put("a", 5, &"v".repeat(8000));
    store.flush(u64::MAX);
    let large = store.mob_files();
    store.put("b", 5, LONG);
    store.flush(u64::MAX);
    let (values, both) = (store.values(), store.mob_files());
    store.compact(true, u64::MAX).expect("compacted");
    let refs = store.refs().concat();
    assert_eq!(refs.len(), 2);
    assert!(refs.contains(&format!("t/{}", large[0])));
    let new = store.mob_files();
    let new: Vec<_> = new.iter().filter(|name| !both.contains(name)).collect();
    assert!(new.len() == 1 && refs.contains(&format!("t/{}", new[0])));
    assert_eq!(store.values(), values);
    // A new file begins once one is large.
    for row in ["c", "d", "e", "f"] {
        store.put(row, 5, &row.repeat(6000));
        store.flush(u64::MAX);
    }
    let values = store.values();
    store.alter(
        &[&attributes[..], &[("BLOCKSIZE", "1000"), ("hbase.mob.compactions.max.file.size", "12000")]]
            .concat(),
    );
    store.compact(true, u64::MAX).expect("compacted");
    assert!(store.refs().concat().len() > 2, "{:?}", store.refs());
    assert_eq!(store.values(), values);
}

#[test]
fn a_compaction_fails_if_a_value_is_lost_unless_it_may_drop_it() {
    let mut store = with_long_and_short();
    store.env.fs.delete(&mob_dir()).expect("deleted");
    let request = store.store.select_compaction(true).expect("a file");
    let error = store.store.compact(&request, u64::MAX).expect_err("lost");
    assert_eq!(error.kind(), ErrorKind::DoNotRetry);
    drop(request);
    assert_eq!(store.store.files().len(), 1);
    let unsafe_key = [("hbase.unsafe.mob.discard.miss", "true")];
    store.alter(&[MOB, &unsafe_key].concat());
    store.compact(true, u64::MAX).expect("compacted");
    assert_eq!(store.values(), ["b/q/5/short"]);
}

#[test]
fn files_that_a_scanner_reads_keep_their_references() {
    let mut store = with_long_and_short();
    let old = store.mob_files();
    let scanner = store.scanner(Scan::default(), u64::MAX - 1);
    store.compact(true, u64::MAX).expect("compacted");
    let references = store.store.mob_references().expect("known");
    assert!(references.refs.contains("t", &old[0]), "a scanner may still need it");
    drop(scanner);
    assert_eq!(store.store.archive_replaced().expect("archived"), 0);
    let references = store.store.mob_references().expect("known");
    assert!(!references.refs.contains("t", &old[0]) && references.refs.len() == 1);
    store.flush(u64::MAX);
}

/// Wraps the file system of a test store.
fn faulty() -> (TestStore, FaultyFileSystem) {
    let (env, clock) = env();
    let fs = FaultyFileSystem::new(MemoryFileSystem::new());
    let env = StoreEnv { fs: Arc::new(fs.clone()), ..env };
    let store = Store::open(&env, family(b"f", MOB), &region()).expect("opens");
    (TestStore { env, clock, store, seq_id: 0 }, fs)
}

#[test]
fn a_failed_flush_leaves_no_mob_file() {
    let mob = mob_dir();
    let mob = mob.to_str().expect("text");
    for (op, path) in
        [(Op::Create, ".tmp/f/"), (Op::Sync, ".tmp/f/"), (Op::Rename, ".tmp/f/d41d8"), (Op::Mkdirs, mob)]
    {
        let (mut store, fs) = faulty();
        store.put("a", 5, LONG);
        assert!(store.store.start_flush());
        fs.inject(Fault::on(op, path));
        store.store.flush_snapshot(9, u64::MAX, None).expect_err("fails");
        store.store.abort_flush();
        assert!(store.mob_files().is_empty() && store.store.files().is_empty(), "{op:?}");
        assert!(store.store.mob.pending.lock().is_empty(), "{op:?}");
        let left = store
            .env
            .fs
            .list(Path::new("/hbase/data/default/t").join(region().encoded_name()).join(".tmp/f").as_path());
        assert!(left.unwrap_or_default().is_empty(), "{op:?}");
        store.flush(u64::MAX);
        assert_eq!(store.values(), [format!("a/q/5/{LONG}")]);
    }
}

#[test]
fn a_flush_that_is_not_committed_deletes_its_mob_file() {
    let (mut store, fs) = faulty();
    store.put("a", 5, LONG);
    assert!(store.store.start_flush());
    let files = store.store.flush_snapshot(9, u64::MAX, None).expect("written");
    let names = store.mob_files();
    assert!(names.len() == 1 && store.store.is_mob_file_pending(&names[0]), "in place before the store file");
    store.store.abort_flush();
    assert!(store.mob_files().is_empty() && !store.store.is_mob_file_pending(&names[0]));
    drop(files);
    // The store file is in place and cannot be deleted: its MOB file stays and is never cleaned.
    assert!(store.store.start_flush());
    let files = store.store.flush_snapshot(9, u64::MAX, None).expect("written");
    store.store.install_flush(&files).expect("in place");
    fs.inject(Fault::on(Op::Delete, "/f/").always());
    store.store.abort_flush();
    let names = store.mob_files();
    assert!(names.len() == 1 && store.store.is_mob_file_pending(&names[0]));
}

#[test]
fn a_mob_file_that_cannot_be_read_back_is_written_again() {
    let (mut store, fs) = faulty();
    store.put("a", 5, LONG);
    assert!(store.store.start_flush());
    fs.inject(Fault::on(Op::Append, ".tmp/f/d41d8").flips(60, 1));
    let files = store.store.flush_snapshot(9, u64::MAX, None).expect("the second attempt");
    store.store.commit_flush(&files).expect("committed");
    assert_eq!(store.values(), [format!("a/q/5/{LONG}")]);
    assert_eq!(store.mob_files().len(), 1);
}

#[test]
fn mob_families_have_the_default_engine_and_read_the_files_of_others() {
    for engine in &ENGINES[1..] {
        let mut store = TestStore::new(&[*engine, &[("VERSIONS", "3")]].concat());
        for row in ["a", "b", "c", "d"] {
            store.put(row, 5, LONG);
            store.flush(u64::MAX);
            store.compact(false, u64::MAX);
        }
        let values = store.values();
        store.alter(&[*engine, MOB].concat());
        assert_eq!(store.store.config.engine.engine, Engine::Default);
        store.put("e", 5, LONG);
        store.flush(u64::MAX);
        store.compact(true, u64::MAX).expect("compacted");
        assert_eq!(store.values(), [values, vec![format!("e/q/5/{LONG}")]].concat());
        assert!(store.references(MobRead { raw: true, ..MobRead::default() }).iter().all(|is| *is));
    }
}

#[test]
fn the_file_tracker_and_in_memory_compactions_change_nothing() {
    let file = ("hbase.store.file-tracker.impl", "FILE");
    for attributes in [[file].as_slice(), &[("IN_MEMORY_COMPACTION", "EAGER")]] {
        let mut store = TestStore::new(&[MOB, attributes].concat());
        store.put("a", 5, LONG);
        store.flush_in_memory(u64::MAX);
        store.put("b", 5, OTHER);
        store.flush(u64::MAX);
        store.put("c", 5, LONG);
        store.flush(u64::MAX);
        let values = store.values();
        store.compact(true, u64::MAX).expect("compacted");
        store.reopen();
        assert_eq!(store.values(), values);
        assert_eq!(store.mob_files().len(), 3);
    }
}

#[test]
fn malformed_references_are_kept_and_read_as_empty_values() {
    let mut store = TestStore::new(MOB);
    let cell = evenkeel_common::cell::KeyValueBuilder {
        row: b"a",
        family: b"f",
        qualifier: b"q",
        timestamp: 5,
        kind: CellType::Put,
        value: b"",
        tags: &[0, 1, 5],
    };
    let store_file = with_long_and_short().store.files()[0].name.clone();
    let names = ["../x".to_owned(), "n".repeat(300), store_file, "t=77aa-00ff".to_owned()];
    for (row, name) in ["a1", "a2", "a3", "a4"].iter().zip(&names) {
        let value = [b"\0\0\0\x09", name.as_bytes()].concat();
        let cell = evenkeel_common::cell::KeyValueBuilder { row: row.as_bytes(), value: &value, ..cell };
        store.add_cell(cell.build());
    }
    store.flush(u64::MAX);
    let empty = ["a1/q/5/", "a2/q/5/", "a3/q/5/", "a4/q/5/"].map(str::to_owned);
    assert_eq!(store.values(), empty);
    store.put("b", 5, LONG);
    store.flush(u64::MAX);
    store.compact(true, u64::MAX).expect("compacted");
    assert_eq!(store.values(), [&empty[..], &[format!("b/q/5/{LONG}")]].concat());
}

/// A cell with a tag that is none of references.
fn tagged(row: &[u8]) -> KeyValue {
    let cell = evenkeel_common::cell::KeyValueBuilder {
        row,
        family: b"f",
        qualifier: b"q",
        timestamp: 5,
        kind: CellType::Put,
        value: b"v",
        tags: &[0, 2, 64, 1],
    };
    cell.build()
}

/// A reference to a MOB file of a table, which need not exist.
fn reference(row: &str, table: &str, file: &str) -> KeyValue {
    let table = table.parse().expect("legal");
    let mut writer = evenkeel_common::mob::ReferenceWriter::new(&table).expect("short");
    let cell = KeyValue::put(row.as_bytes(), b"f", b"q", 5, LONG.as_bytes());
    KeyValue::copy_of(&writer.reference(&cell.as_cell(), file).expect("fits"))
}

/// Writes a HFile as a client, or HBase before 2.5, does: without a list unless `refs` is one.
fn foreign_file(store: &TestStore, path: &Path, cells: &[KeyValue], refs: Option<&[u8]>) {
    store.env.fs.delete(path).expect("deleted");
    let context = evenkeel_hfile::HFileContext { includes_tags: true, ..Default::default() };
    let mut writer = evenkeel_hfile::HFileWriter::create(&*store.env.fs, path, context).expect("created");
    for cell in cells {
        writer.append(&cell.as_cell()).expect("in order");
    }
    if let Some(refs) = refs {
        writer.append_file_info(keys::MOB_FILE_REFS, refs.to_vec());
    }
    let meta = evenkeel_hfile::StoreFileMeta { max_seq_id: Some(5), ..Default::default() };
    writer.finish(meta).expect("written");
}

#[test]
fn a_file_without_a_list_may_have_references_until_it_is_compacted() {
    let mut store = with_long_and_short();
    let name = store.mob_files()[0].clone();
    let file = store.store.dirs.family.join("0123456789abcdef0123456789abcdef");
    foreign_file(&store, &file, &[reference("a", "t", &name), tagged(b"b")], None);
    let own = store.store.files()[0].name.clone();
    store.env.fs.delete(&store.store.dirs.family.join(own)).expect("deleted");
    store.alter(&[("VERSIONS", "3")]);
    assert!(store.store.mob_references().expect("read").unknown.is_some());
    assert_eq!(store.values(), [format!("a/q/5/{LONG}"), "b/q/5/v".to_owned()]);
    let request = store.store.select(crate::store::CompactionKind::References).expect("a file");
    let result = store.store.compact(&request, u64::MAX).expect("compacted");
    store.store.commit_compaction(request, &result).expect("committed");
    let references = store.store.mob_references().expect("read");
    assert!(references.unknown.is_none() && references.refs.contains("t", &name));
    store.compact(true, u64::MAX).expect("compacted");
    let references = store.store.mob_references().expect("read");
    assert!(references.unknown.is_none() && references.refs.is_empty());
    assert_eq!(store.values(), [format!("a/q/5/{LONG}"), "b/q/5/v".to_owned()]);
}

#[test]
fn files_with_tags_have_a_list_in_every_family() {
    let mut store = TestStore::new(&[]);
    store.add_cell(tagged(b"a"));
    store.flush(u64::MAX);
    let references = store.store.mob_references().expect("read");
    assert!(references.unknown.is_none() && references.refs.is_empty());
    assert!(!store.store.mob.resolves(), "no scanner looks for references");
    store.put("b", 5, "v");
    store.flush(u64::MAX);
    store.compact(true, u64::MAX).expect("compacted");
    assert!(store.store.mob_references().expect("read").unknown.is_none() && !store.store.mob.resolves());
    let name = with_long_and_short().mob_files()[0].clone();
    store.add_cell(reference("c", "t", &name));
    store.flush(u64::MAX);
    assert!(store.store.mob_references().expect("read").refs.contains("t", &name));
}

#[test]
fn bulk_loaded_files_refer_to_mob_files_of_their_table_or_to_linked_ones() {
    let store = with_long_and_short();
    let name = store.mob_files()[0].clone();
    let path = Path::new("/hbase/staging/f/file");
    let check = |table: &str, refs: &str| {
        foreign_file(&store, path, &[reference("a", table, &name)], Some(refs.as_bytes()));
        store.store.check_bulk_file(path)
    };
    assert!(check("t", &format!("t/{name}")).expect("of this table"));
    let other = format!("other/{name}");
    assert_eq!(check("other", &other).expect_err("refused").kind(), ErrorKind::DoNotRetry);
    assert_eq!(check("t", "malformed").expect_err("refused").kind(), ErrorKind::DoNotRetry);
    let table = "other".parse().expect("legal");
    let mob_region = evenkeel_common::mob::mob_region(&table);
    let link = crate::links::link_to(&table, mob_region.encoded_name(), &name);
    store.env.fs.write_atomically(&mob_dir().join(link.name()), b"").expect("written");
    assert!(check("other", &other).expect("linked"));
}

#[test]
fn a_reference_keeps_its_sequence_id() {
    let mut store = TestStore::new(MOB);
    let first = store.put("a", 5, LONG);
    let second = store.put("a", 5, OTHER);
    store.flush(first);
    store.clock.advance_ms(10 * 24 * 60 * 60 * 1000);
    let request = store.store.select(crate::store::CompactionKind::References).expect("a file");
    let result = store.store.compact(&request, first).expect("compacted");
    store.store.commit_compaction(request, &result).expect("committed");
    let at = |read_point| drain(&mut store.scanner(Scan::default(), read_point)).expect("read").concat();
    assert_eq!((at(first), at(second)), (vec![format!("a/q/5/{LONG}")], vec![format!("a/q/5/{OTHER}")]));
}

#[test]
fn a_compaction_reads_a_block_once_for_all_its_values() {
    let (mut store, fs) = faulty();
    for row in 0..200 {
        store.put(&format!("{row:03}"), 5, LONG);
    }
    store.flush(u64::MAX);
    let values = store.values();
    // Opening the file and reading its only block need fewer reads than that.
    fs.inject(Fault::on(Op::Read, "mobdir").after(20).always());
    store.compact(true, u64::MAX).expect("compacted");
    fs.clear();
    assert_eq!(store.values(), values);
}

#[test]
fn a_compaction_finds_a_file_that_is_archived_meanwhile() {
    let store = with_long_and_short();
    let values = store.values();
    let archive = mob_archive_dir(Path::new("/hbase"), region().table(), "f");
    store.env.fs.mkdirs(&archive).expect("made");
    for name in store.mob_files() {
        store.env.fs.rename(&mob_dir().join(&name), &archive.join(&name)).expect("archived");
        store.env.mob.close(&mob_dir().join(&name));
    }
    store.compact(true, u64::MAX).expect("compacted");
    store.env.fs.delete(&archive).expect("deleted");
    assert_eq!(store.values(), values);
}

#[test]
fn tags_that_leave_no_room_for_a_reference_keep_the_value_in_the_store_file() {
    let mut store = TestStore::new(MOB);
    let tags = [&[0xff, 0xfd, 64][..], &vec![7; 0xfffc]].concat();
    let cell = evenkeel_common::cell::KeyValueBuilder {
        row: b"a",
        family: b"f",
        qualifier: b"q",
        timestamp: 5,
        kind: CellType::Put,
        value: LONG.as_bytes(),
        tags: &tags,
    };
    store.add_cell(cell.build());
    store.flush(u64::MAX);
    assert_eq!((store.values(), store.mob_files().len()), (vec![format!("a/q/5/{LONG}")], 0));
}

#[test]
fn a_cell_that_the_file_does_not_have_is_an_error() {
    let mut store = with_long_and_short();
    let name = store.mob_files()[0].clone();
    let mut writer = evenkeel_common::mob::ReferenceWriter::new(region().table()).expect("short");
    let lost = KeyValue::put(b"bb", b"f", b"q", 5, LONG.as_bytes());
    let reference = KeyValue::copy_of(&writer.reference(&lost.as_cell(), &name).expect("fits"));
    store.add_cell(reference);
    let (kind, message) = store.error(MobRead::default());
    assert!(kind == ErrorKind::DoNotRetry && message.contains("has no cell"), "{message}");
    let empty = MobRead { empty_on_miss: true, ..MobRead::default() };
    assert_eq!(store.scan(Scan { mob: empty, ..Scan::get("bb") }), ["bb/q/5/"]);
}
