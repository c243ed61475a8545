//! Stores and their directories: which files are opened, which are not, and what happens to
//! replaced files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use evenkeel_common::cell::KeyValueBuilder;
use evenkeel_common::{CellType, ColumnFamilyDescriptor, Configuration, KeyBuf, RegionInfo};
use evenkeel_fs::{CreateOptions, Fault, FaultyFileSystem, Latch, MemoryFileSystem, Op};
use evenkeel_hfile::{BloomType, Compression, ScanOptions};
use evenkeel_protocol::{PB_MAGIC, pb};
use prost::Message;

use super::testing::{ENGINES, NOW_MS, TestStore, drain, family, text};
use super::{Store, StoreConfig, StoreEnv};
use crate::layout;
use crate::operations::Scan;

fn write(env: &StoreEnv, path: &std::path::Path, bytes: &[u8]) {
    let mut file = env
        .fs
        .create(path, CreateOptions { overwrite: true, parents: true, ..CreateOptions::SMALL })
        .expect("created");
    file.append(bytes).expect("appended");
    file.sync().expect("synced");
}

fn names(store: &Store) -> Vec<String> {
    store.files().into_iter().map(|file| file.name).collect()
}

fn with_rows(rows: &[&str]) -> TestStore {
    let mut test = TestStore::new(&[]);
    for row in rows {
        test.add(row, "q", 1, CellType::Put, "v");
    }
    test.flush(u64::MAX);
    test
}

#[test]
fn flushed_cells_are_there_after_reopening() {
    let mut test = with_rows(&["a", "b"]);
    test.reopen();
    assert_eq!(test.scan(Scan::default()), ["a/q/1/v", "b/q/1/v"]);
    assert_eq!((test.store.max_seq_id(), test.store.files().len()), (test.seq_id, 1));
    assert_eq!(test.store.memstore_size(), Default::default());
}

#[test]
fn files_that_are_no_store_files_are_ignored() {
    let mut test = with_rows(&["a"]);
    for name in ["0af0", ".tmp-thing", "README"] {
        write(&test.env, &test.store.dirs.family.join(name), if name == "README" { b"x" } else { b"" });
    }
    test.reopen();
    assert_eq!(test.store.files().len(), 1);
}

#[test]
fn compacted_files_are_kept_while_read() {
    let mut test = with_rows(&["a"]);
    test.add("b", "q", 1, CellType::Put, "v");
    test.flush(u64::MAX);
    let inputs = names(&test.store);
    let lengths: Vec<_> = test.store.files().iter().map(|file| file.bytes).collect();
    test.env.archived_files.record();
    let mut scanner = test.scanner(Scan::default(), u64::MAX - 1);
    test.compact(true, u64::MAX);
    assert!(inputs.iter().all(|name| test.env.fs.exists(&test.store.dirs.family.join(name)).expect("asked")));
    assert_eq!(drain(&mut scanner).expect("read").len(), 2);
    assert_eq!(test.store.archive_replaced().expect("archived"), 2, "the scanner is still there");
    assert_eq!(test.env.archived_files.take(), []);
    drop(scanner);
    assert_eq!(test.store.archive_replaced().expect("archived"), 0);
    let archived = test.env.archived_files.take();
    assert!(archived.iter().map(|file| &file.name).eq(&inputs));
    assert!(archived.iter().map(|file| file.bytes).eq(lengths));
    assert!(
        inputs.iter().all(|name| test.env.fs.exists(&test.store.dirs.archive.join(name)).expect("asked"))
    );
    assert_eq!(test.scan(Scan::default()), ["a/q/1/v", "b/q/1/v"]);
}

#[test]
fn files_that_a_compaction_replaced_before_a_crash_are_not_served() {
    let mut test = with_rows(&["a"]);
    test.add("a", "q", 2, CellType::DeleteColumn, "");
    test.add("b", "q", 2, CellType::Put, "v");
    test.flush(u64::MAX);
    let inputs = names(&test.store);
    let reader = test.scanner(Scan::default(), u64::MAX - 1);
    test.compact(true, u64::MAX);
    // Not closed: the inputs lie beside the output, as after a crash.
    let family = test.store.family().clone();
    let store = Store::open(&test.env, family, &super::testing::region()).expect("opens");
    assert_eq!(store.files().len(), 1);
    assert!(names(&store).iter().all(|name| !inputs.contains(name)));
    assert!(inputs.iter().all(|name| test.env.fs.exists(&store.dirs.archive.join(name)).expect("asked")));
    drop(reader);
}

#[test]
fn a_failed_flush_loses_nothing() {
    let mut test = TestStore::new(&[]);
    let faulty = FaultyFileSystem::new(MemoryFileSystem::new());
    test.env.fs = Arc::new(faulty.clone());
    test.store = Store::open(&test.env, family(b"f", &[]), &super::testing::region()).expect("opens");
    test.add("a", "q", 1, CellType::Put, "v");
    assert!(test.store.start_flush());
    for op in [Op::Create, Op::Append, Op::Sync] {
        faulty.inject(Fault::on(op, ".tmp"));
        assert!(test.store.flush_snapshot(9, u64::MAX, None).is_err(), "{op:?}");
        test.store.abort_flush();
        faulty.clear();
    }
    let files = test.store.flush_snapshot(9, u64::MAX, None).expect("written");
    faulty.inject(Fault::on(Op::Rename, ".tmp"));
    assert!(test.store.commit_flush(&files).is_err());
    test.store.abort_flush();
    test.add("b", "q", 1, CellType::Put, "v");
    assert_eq!(test.scan(Scan::default()), ["a/q/1/v", "b/q/1/v"]);
    test.seq_id = 10;
    test.flush(u64::MAX);
    assert_eq!((test.store.files().len(), test.store.memstore_size().cells), (1, 0));
    assert_eq!(test.scan(Scan::default()), ["a/q/1/v", "b/q/1/v"]);
    assert!(test.env.fs.list(&test.store.dirs.tmp).expect("listed").is_empty(), "no unfinished file is left");
}

#[test]
fn references_read_half_a_file_until_compacted() {
    let parent = with_rows(&["a", "b", "c", "d"]);
    let file = names(&parent.store).remove(0);
    let parent_name = parent.store.region.encoded_name().to_owned();
    let table = parent.store.region.table().clone();
    for (range, start, rows) in [
        (pb::reference::Range::Top, &b"c"[..], ["c/q/1/v", "d/q/1/v"]),
        (pb::reference::Range::Bottom, b"", ["a/q/1/v", "b/q/1/v"]),
    ] {
        let end = if start.is_empty() { &b"c"[..] } else { b"" };
        let region = RegionInfo::new(
            table.clone(),
            bytes::Bytes::from_static(start),
            bytes::Bytes::from_static(end),
            2,
        );
        let splitkey = KeyBuf::first_on_row(b"c").bytes().to_vec();
        let message = pb::Reference { splitkey: splitkey.into(), range: range as i32 };
        let path =
            layout::region_dir(&parent.env.root, &region).join("f").join(format!("{file}.{parent_name}"));
        write(&parent.env, &path, &[&PB_MAGIC[..], &message.encode_to_vec()].concat());

        let store = Store::open(&parent.env, family(b"f", &[]), &region).expect("opens");
        let test =
            TestStore { env: parent.env.clone(), clock: Arc::clone(&parent.clock), store, seq_id: 100 };
        assert!(
            test.store.has_references() && test.store.split_row().is_none() && test.store.needs_compaction()
        );
        assert_eq!(test.scan(Scan::default()), rows);
        let reversed = test.scan(Scan { reversed: true, ..Scan::default() });
        assert_eq!(reversed, [rows[1], rows[0]]);
        assert!(test.store.has_references_on_disk());
        let reader = test.scanner(Scan::default(), u64::MAX - 1);
        test.compact(false, u64::MAX).expect("references are compacted first");
        assert!(!test.store.has_references());
        assert_eq!(test.scan(Scan::default()), rows);
        assert!(test.store.has_references_on_disk(), "the reader holds the reference");
        drop(reader);
        assert_eq!(test.store.archive_replaced(), Ok(0));
        assert!(!test.store.has_references_on_disk());
    }
}

#[test]
fn a_cancelled_compaction_stops_and_leaves_no_file() {
    let mut test = with_rows(&["a"]);
    test.add("b", "q", 1, CellType::Put, "2");
    test.flush(u64::MAX);
    let before = names(&test.store);
    let rows = test.scan(Scan::default());
    test.env.compaction_throughput.set_limit(Some(1));
    let request = test.store.select_compaction(true).expect("two files");
    // A busy machine may be late, but not always.
    let ended_in = (0..10).map(|_| {
        test.store.cancel_compactions(false);
        std::thread::scope(|scope| {
            let compaction = scope.spawn(|| test.store.compact(&request, u64::MAX));
            std::thread::sleep(Duration::from_millis(20));
            let told = Instant::now();
            test.store.cancel_compactions(true);
            let outcome = compaction.join().expect("no panic");
            assert!(outcome.expect_err("cancelled").message().contains("cancelled"));
            told.elapsed()
        })
    });
    let at_once = |ended_in: &Duration| *ended_in < Duration::from_millis(50);
    assert!(ended_in.into_iter().any(|ended_in| at_once(&ended_in)), "a byte a second takes minutes");
    drop(request);
    assert_eq!((names(&test.store), test.scan(Scan::default())), (before, rows));
    assert!(test.env.fs.list(&test.store.dirs.tmp).expect("listed").is_empty());
    test.store.cancel_compactions(false);
    test.env.compaction_throughput.set_limit(None);
    assert_eq!(test.compact(true, u64::MAX).map(|(files, _)| files.len()), Some(2));
}

/// All its cells are in one row and dropped: the compaction writes nothing while it reads.
#[test]
fn a_cancelled_compaction_ends_within_a_row_of_dropped_cells() {
    const CELLS: usize = 500_000;
    let (mut test, faulty) = (TestStore::new(&[]), FaultyFileSystem::new(MemoryFileSystem::new()));
    test.env.fs = Arc::new(faulty.clone());
    test.store =
        Store::open(&test.env, family(b"f", &[("TTL", "10")]), &super::testing::region()).expect("opens");
    for n in 0..CELLS {
        test.add("r", &format!("{n:06}"), NOW_MS, CellType::Put, "");
    }
    // The file is not old enough to be dropped without reading it.
    test.add("r", "last", NOW_MS + 60_000, CellType::Put, "v");
    test.flush(u64::MAX);
    test.clock.advance_ms(60_000);
    let request = test.store.select_compaction(true).expect("a file");
    // It blocks in the middle. From there on it may read two more blocks, of a few hundred.
    let (latch, file) = (Latch::new(), names(&test.store).remove(0));
    faulty.inject(Fault::on(Op::Read, &file).after(100).waits_for(&latch));
    faulty.inject(Fault::on(Op::Read, &file).after(102).always().fails(std::io::ErrorKind::Other));
    let outcome = std::thread::scope(|scope| {
        let compaction = scope.spawn(|| test.store.compact(&request, u64::MAX));
        latch.wait_for_arrival();
        test.store.cancel_compactions(true);
        latch.open();
        compaction.join().expect("no panic")
    });
    let error = outcome.expect_err("cancelled");
    assert!(error.message().contains("cancelled"), "it reads on: {error}");
    faulty.clear();
    test.store.cancel_compactions(false);
    test.store.compact(&request, u64::MAX).expect("compacted");
}

/// Returns the bytes that a compaction of `rows` rows of a kilobyte counts towards the limit, if
/// `expired` of them have expired.
fn counted_bytes(rows: u64, expired: u64) -> u64 {
    let mut test = TestStore::new(&[("TTL", "10")]);
    let value = "v".repeat(1000);
    for n in 0..rows {
        let age_ms = if n < expired { 60_000 } else { 0 };
        test.add(&format!("{n:06}"), "q", NOW_MS + 60_000 - age_ms, CellType::Put, &value);
    }
    test.flush(u64::MAX);
    test.clock.advance_ms(60_000);
    test.compact(true, u64::MAX).expect("compacted");
    assert_eq!(test.scan(Scan::default()).len() as u64, rows - expired);
    test.env.compaction_throughput.controller().bytes()
}

/// Dropped cells have been read. Kept cells count once, not as read and as written.
#[test]
fn throttling_counts_dropped_cells_like_kept_ones() {
    let counted = [0, 499, 250].map(|expired| counted_bytes(500, expired));
    assert!(counted.iter().all(|bytes| (500_000..700_000).contains(bytes)), "{counted:?}");
}

#[test]
fn links_read_files_of_other_regions() {
    let source = with_rows(&["a", "b"]);
    let file = names(&source.store).remove(0);
    let link = format!("t={}-{file}", source.store.region.encoded_name());
    let region =
        RegionInfo::new("clone".parse().expect("legal"), bytes::Bytes::new(), bytes::Bytes::new(), 3);
    let path = layout::region_dir(&source.env.root, &region).join("f").join(link);
    write(&source.env, &path, b"");
    for _ in 0..2 {
        let store = Store::open(&source.env, family(b"f", &[]), &region).expect("opens");
        let test =
            TestStore { env: source.env.clone(), clock: Arc::clone(&source.clock), store, seq_id: 100 };
        assert_eq!(test.scan(Scan::default()), ["a/q/1/v", "b/q/1/v"]);
        // The second time the file is in the archive.
        let archived = source.store.dirs.archive.join(&file);
        source.env.fs.mkdirs(&source.store.dirs.archive).expect("made");
        if !source.env.fs.exists(&archived).expect("asked") {
            source.env.fs.rename(&source.store.dirs.family.join(&file), &archived).expect("renamed");
        }
    }
}

#[test]
fn a_store_splits_in_the_middle_unless_it_has_one_row() {
    assert_eq!(with_rows(&["a"]).store.split_row(), None);
    assert_eq!(TestStore::new(&[]).store.split_row(), None);
    let rows: Vec<String> = (0..500).map(|n| format!("row{n:03}")).collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let mut test = TestStore::new(&[("BLOCKSIZE", "512")]);
    for row in rows {
        test.add(row, "q", 1, CellType::Put, "v");
    }
    test.flush(u64::MAX);
    let row = test.store.split_row().expect("many rows");
    assert!((&b"row150"[..]..&b"row350"[..]).contains(&&row[..]), "{row:?}");
}

#[test]
fn a_table_cannot_make_blocks_larger_than_memory_is_planned_for() {
    let mut test = TestStore::new(&[
        ("BLOCKSIZE", "2147483647"),
        ("hfile.index.block.max.size", "4294967295"),
        ("io.storefile.bloom.block.size", "4294967295"),
    ]);
    let context = test.store.hfile_context(true, false).expect("legal");
    assert_eq!((context.block_bytes, context.index_block_bytes_max), (16 << 20, 16 << 20));
    assert_eq!(context.bloom_block_bytes, 4 << 20);
    test.add("a", "q", 1, CellType::Put, "v");
    test.flush(u64::MAX);
    assert_eq!(test.store.files().len(), 1);
}

#[test]
fn compactions_have_a_compression_of_their_own() {
    let cases = [
        (vec![("COMPRESSION", "GZ")], ["GZ", "GZ", "GZ"]),
        (vec![("COMPRESSION_COMPACT", "snappy")], ["NONE", "SNAPPY", "SNAPPY"]),
        (vec![("COMPRESSION_COMPACT_MAJOR", "GZ")], ["NONE", "NONE", "GZ"]),
        (
            vec![("COMPRESSION_COMPACT", "LZ4"), ("COMPRESSION_COMPACT_MINOR", "ZSTD")],
            ["NONE", "ZSTD", "LZ4"],
        ),
    ];
    for (attributes, names) in cases {
        let [flushed, minor, major] = names.map(|name| Compression::from_name(name).expect("known"));
        for (is_major, compacted) in [(false, minor), (true, major)] {
            let mut test = TestStore::new(&attributes);
            let of_file = |test: &TestStore| test.store.state.load().files[0].reader().compression();
            for row in ["a", "b", "c"] {
                test.add(row, "q", 1, CellType::Put, "v");
                test.flush(u64::MAX);
            }
            assert_eq!(of_file(&test), flushed, "{attributes:?}");
            // A compaction of all files is a minor one without the request.
            test.compact(is_major, u64::MAX).expect("three files");
            assert_eq!(of_file(&test), compacted, "{attributes:?}, {is_major}");
        }
    }
}

#[test]
fn busy_files_are_not_chosen_twice() {
    let mut test = with_rows(&["a"]);
    for _ in 0..2 {
        test.add("b", "q", 1, CellType::Put, "v");
        test.flush(u64::MAX);
    }
    let request = test.store.select_compaction(false).expect("three files");
    assert!(request.is_all_files() && !request.is_major() && !test.store.needs_compaction());
    assert!(test.store.select_compaction(true).is_none());
    drop(request);
    assert!(test.store.select_compaction(true).is_some_and(|request| request.is_major()));
}

#[test]
fn old_files_trigger_a_major_compaction() {
    let mut test = TestStore::new(&[]);
    let period_ms = StoreConfig::default().major_period_ms;
    test.add("a", "q", 1, CellType::Put, "v");
    test.flush(u64::MAX);
    assert!(test.store.select_compaction(false).is_none());
    test.clock.set_ms(2 * period_ms);
    assert_eq!(test.compact(false, u64::MAX).map(|(files, _)| files.len()), Some(1));
    assert!(test.store.files()[0].is_major);
    assert!(test.store.select_compaction(false).is_none(), "once is enough");
}

#[test]
fn a_file_without_local_blocks_is_compacted_again_if_the_setting_says_so() {
    let mut test = TestStore::new(&[("hbase.hstore.min.locality.to.skip.major.compact", "0.5")]);
    let period_ms = StoreConfig::default().major_period_ms;
    test.add("a", "q", 1, CellType::Put, "v");
    test.flush(u64::MAX);
    test.clock.set_ms(2 * period_ms);
    assert!(test.compact(false, u64::MAX).is_some());
    test.clock.set_ms(5 * period_ms);
    assert!(test.store.select_compaction(false).is_none(), "its only file is local");
    test.env.host = evenkeel_fs::LocalHost::on_machine("rs7", "vm");
    test.store =
        Store::open(&test.env, test.store.family().clone(), &super::testing::region()).expect("opens");
    assert_eq!(test.store.load().blocks_weight.locality(), 0.0);
    assert!(test.store.select_compaction(false).is_some_and(|request| request.is_major()));
}

#[test]
fn major_compaction_periods_are_jittered() {
    const PERIOD: &str = "hbase.hregion.majorcompaction";
    const JITTER: &str = "hbase.hregion.majorcompaction.jitter";
    let periods = |settings: &[(&str, &str)]| {
        let period = |_| {
            let mut test = TestStore::new(settings);
            test.add("a", "q", 1, CellType::Put, "v");
            test.flush(u64::MAX);
            let files = test.store.state.load().files.clone();
            let period_ms = test.store.major_period_ms(&files);
            assert_eq!(test.store.major_period_ms(&files), period_ms, "whenever it is asked");
            period_ms
        };
        let mut periods: Vec<_> = (0..32).map(period).collect();
        periods.sort_unstable();
        periods.dedup();
        periods
    };
    for (jitter, least, most) in [("0.2", 800_000, 1_200_000), ("0.5", 500_000, 1_500_000)] {
        let periods = periods(&[(PERIOD, "1000000"), (JITTER, jitter)]);
        let (first, last) = (periods[0], periods[periods.len() - 1]);
        assert!(periods.len() >= 30 && least <= first && last <= most, "{jitter}: {periods:?}");
        assert!(first < 1_000_000 && last > 1_000_000, "{jitter}, to both sides: {periods:?}");
        assert!(last - first > (most - least) / 2, "{jitter}: {periods:?}");
    }
    assert_eq!(periods(&[(PERIOD, "1000000"), (JITTER, "0")]), [1_000_000]);
}

#[test]
fn a_period_of_0_disables_periodic_major_compactions() {
    let mut test = TestStore::new(&[("hbase.hregion.majorcompaction", "0")]);
    test.add("a", "q", 1, CellType::Put, "v");
    test.flush(u64::MAX);
    test.clock.set_ms(1000 * StoreConfig::default().major_period_ms);
    assert!(test.store.select_compaction(false).is_none());
    assert!(test.store.select_compaction(true).is_some_and(|request| request.is_major()), "a user's");
}

/// Where a block's header records which checksums follow it, and how many bytes each covers.
const CHECKSUM_AT: std::ops::Range<usize> = 24..29;

fn checksum_of_the_first_block(env: &StoreEnv, family: ColumnFamilyDescriptor) -> Vec<u8> {
    let mut test = TestStore::new(&[]);
    test.store = Store::open(env, family, &super::testing::region()).expect("opens");
    test.env = env.clone();
    test.add("a", "q", 1, CellType::Put, "v");
    test.flush(u64::MAX);
    let path = test.store.dirs.family.join(&names(&test.store)[0]);
    let mut bytes = vec![0; CHECKSUM_AT.end];
    test.env.fs.open(&path).expect("there").read_exact_at(0, &mut bytes).expect("read");
    assert_eq!(test.scan(Scan::default()), ["a/q/1/v"]);
    bytes[CHECKSUM_AT].to_vec()
}

#[test]
fn new_files_have_the_checksums_of_the_configuration_and_the_family() {
    let settings = |kind: &str, bytes: &str| {
        [("hbase.hstore.checksum.algorithm", kind), ("hbase.hstore.bytes.per.checksum", bytes)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
    };
    let env = |conf: &Configuration| StoreEnv {
        config: StoreConfig::from_configuration(conf).expect("readable"),
        ..super::testing::env().0
    };
    let mut conf = Configuration::new();
    assert_eq!(checksum_of_the_first_block(&env(&conf), family(b"f", &[])), [2, 0, 0, 0x40, 0]);
    settings("CRC32", "4096").into_iter().for_each(|(key, value)| conf.set(key, value));
    assert_eq!(checksum_of_the_first_block(&env(&conf), family(b"f", &[])), [1, 0, 0, 0x10, 0]);

    let own = settings("NULL", "512").into_iter().collect();
    let family = ColumnFamilyDescriptor::from_parts("f".into(), Default::default(), own).expect("legal");
    assert_eq!(checksum_of_the_first_block(&env(&conf), family), [0, 0, 0, 2, 0]);
}

/// Returns the bloom filters and the index of the file of a hundred rows: the kind of the filter,
/// whether a filter records the rows with DeleteFamily markers, levels of the index, bytes of the
/// file.
fn filters_of_a_new_file(settings: &[(&str, &str)]) -> (BloomType, bool, u32, u64) {
    let mut conf = Configuration::new();
    settings.iter().for_each(|(key, value)| conf.set(*key, *value));
    let config = StoreConfig::from_configuration(&conf).expect("readable");
    let env = StoreEnv { config, ..super::testing::env().0 };
    let mut test = TestStore::new(&[]);
    test.store =
        Store::open(&env, family(b"f", &[("BLOCKSIZE", "64")]), &super::testing::region()).expect("opens");
    test.env = env;
    for row in 0..100 {
        test.add(&format!("row{row:03}"), "q", 1, CellType::Put, "v");
    }
    test.add("row007", "", 1, CellType::DeleteFamily, "");
    test.flush(u64::MAX);
    let state = test.store.state.load();
    let reader = state.files[0].reader();
    let knows = !reader.might_contain_delete_family(b"row050").expect("asked");
    (reader.bloom_type(), knows, reader.trailer().data_index_levels, reader.len())
}

#[test]
fn new_files_have_the_filters_and_the_index_of_the_configuration() {
    let plain = filters_of_a_new_file(&[]);
    assert_eq!((plain.0, plain.1, plain.2), (BloomType::Row, true, 1));
    assert_eq!(filters_of_a_new_file(&[("io.storefile.bloom.enabled", "False")]).0, BloomType::None);
    assert!(!filters_of_a_new_file(&[("io.storefile.delete.family.bloom.enabled", "false")]).1);

    let levels = |entries_min: &str| {
        let sizes = ("hfile.index.block.max.size", "128");
        filters_of_a_new_file(&[sizes, ("hfile.index.block.min.entries", entries_min)]).2
    };
    assert!(levels("2") > 2, "{}", levels("2"));
    assert_eq!(levels("100"), 2);

    let rate = |rate| filters_of_a_new_file(&[("io.storefile.bloom.error.rate", rate)]).3;
    assert!(rate("0.000001") > plain.3, "more bits for each key");
    for senseless in ["0", "1", "-1", "NaN", "x"] {
        assert_eq!(rate(senseless), plain.3, "{senseless}");
    }
}

/// The output of a compaction by each engine has every cell of its three flushes, with its sequence
/// id and tags.
#[test]
fn every_engine_keeps_cells_sequence_ids_and_tags() {
    for engine in ENGINES {
        let mut test = TestStore::new(&[&[("VERSIONS", "5")], engine].concat());
        test.clock.set_ms(9000);
        for step in 0..3 {
            for row in ["a", "b", "c", "d"] {
                let (row, timestamp, tags) = (row.as_bytes(), 3000 * step, [0, 2, 70, step as u8]);
                let (family, qualifier, kind) = (b"f", b"q", CellType::Put);
                let parts =
                    KeyValueBuilder { row, family, qualifier, timestamp, kind, value: row, tags: &tags };
                test.add_cell(parts.build());
            }
            test.flush(u64::MAX);
        }
        let before = raw(&test);
        assert_eq!(before.len(), 12);
        let flushed = test.store.files().len();
        let (inputs, _) = test.compact(true, 0).expect("all files");
        assert_eq!(inputs.len(), flushed);
        assert_eq!(raw(&test), before, "{engine:?}");
        test.reopen();
        assert_eq!(raw(&test), before, "{engine:?}");
        let files = test.store.files().len();
        assert_eq!(files > 1, !engine.is_empty(), "{files} files of {engine:?}");
    }
}

/// Returns every cell of the store's files with all its parts, in order.
fn raw(test: &TestStore) -> Vec<String> {
    let mut cells = Vec::new();
    for file in test.store.state.load().files.iter() {
        let mut scanner = file.reader().scanner(ScanOptions::default());
        let mut more = scanner.seek_to_first().expect("readable");
        while more {
            let cell = scanner.cell().expect("a cell");
            cells.push(format!("{} #{} {:?}", text(&cell), cell.seq_id(), cell.tags()));
            more = scanner.next().expect("readable");
        }
    }
    cells.sort();
    cells
}

/// The last of several files names those they replace; before it is in place, all the old files are
/// served.
#[test]
fn a_crash_between_the_files_of_a_compaction_loses_nothing() {
    for engine in &ENGINES[1..] {
        let mut test = TestStore::new(&[&[("VERSIONS", "5")], *engine].concat());
        test.clock.set_ms(9000);
        for step in 0..3 {
            for row in ["a", "b", "c", "d"] {
                test.add(row, "q", 3000 * step, CellType::Put, row);
            }
            test.flush(u64::MAX);
        }
        test.add("b", "", 8000, CellType::DeleteFamily, "");
        test.flush(u64::MAX);
        let (expected, before) = (test.scan(Scan::default()), names(&test.store));
        let request = test.store.select_compaction(true).expect("all files");
        let result = test.store.compact(&request, u64::MAX).expect("compacted");
        assert!(result.outputs.len() > 1, "{engine:?}");
        let family = test.store.dirs.family.clone();
        for (at, path) in result.outputs.iter().enumerate() {
            let name = path.file_name().expect("named");
            test.env.fs.rename(path, &family.join(name)).expect("renamed");
            // Opening a store deletes the files in .tmp: this one belongs to a server that died
            // here.
            let tmp = test.store.dirs.tmp.clone();
            test.env.fs.rename(&tmp, "/aside".as_ref()).expect("aside");
            let store = Store::open(&test.env, test.store.family().clone(), &super::testing::region())
                .expect("opens");
            let died =
                TestStore { env: test.env.clone(), clock: test.clock.clone(), store, seq_id: test.seq_id };
            assert_eq!(died.scan(Scan::default()), expected, "{engine:?} after {at}");
            let served = names(&died.store);
            let is_last = at + 1 == result.outputs.len();
            assert_eq!(before.iter().any(|name| served.contains(name)), !is_last, "{engine:?} after {at}");
            if !is_last {
                test.env.fs.rename("/aside".as_ref(), &tmp).expect("back");
            }
        }
    }
}

/// From `hbase.hstore.blockingStoreFiles` on, where HBase blocks flushes, the write pressure grows
/// with each file; the throughput limit of compactions has grown up to there.
#[test]
fn pressure_grows_with_each_store_file() {
    let mut test = TestStore::new(&[("hbase.hstore.blockingStoreFiles", "5")]);
    let mut seen = Vec::new();
    for _ in 0..10 {
        test.add("r", "q", 1, CellType::Put, "v");
        test.flush(u64::MAX);
        seen.push((test.store.compaction_pressure(), test.store.blocking_pressure()));
    }
    let (compacting, hold): (Vec<_>, Vec<_>) = seen.into_iter().unzip();
    assert_eq!(compacting[..6], [0.0, 0.0, 0.0, 0.5, 1.0, 1.5]);
    assert_eq!(hold[..5], [0.0; 5]);
    for (at, step) in hold[4..].windows(2).enumerate() {
        assert!((step[1] - step[0] - 0.2).abs() < 1e-9, "{at}: {step:?}");
    }
}

/// Stripes and windows stay separate: however many there are, an idle store causes no pressure.
#[test]
fn many_stripes_or_windows_cause_no_pressure() {
    const PACKAGE: &str = "org.apache.hadoop.hbase.regionserver.";
    let with = |engine: &str, settings: &[(&str, &str)]| {
        let engine = format!("{PACKAGE}{engine}");
        let common = [("hbase.hstore.engine.class", &*engine), ("hbase.hstore.blockingStoreFiles", "4")];
        TestStore::new(&[&common, settings].concat())
    };
    let stripes = with("StripeStoreEngine", &[("hbase.store.stripe.initialStripeCount", "12")]);
    let window = [
        ("hbase.hstore.compaction.date.tiered.base.window.millis", "1000"),
        ("hbase.hstore.compaction.date.tiered.windows.per.tier", "100"),
    ];
    for mut test in [stripes, with("DateTieredStoreEngine", &window)] {
        test.clock.advance_ms(20_000);
        for n in 0..24 {
            test.add(&format!("{n:02}"), "q", 1_000_000 + 1000 * (n % 12), CellType::Put, "v");
        }
        test.flush(u64::MAX);
        test.compact(true, u64::MAX).expect("compacted");
        let files = test.store.files().len();
        assert_eq!((files, test.store.blocking_pressure(), test.store.compaction_pressure()), (12, 0.0, 0.0));
        for n in 1..=6 {
            test.add("00", "q", 1_000_000, CellType::Put, "w");
            test.flush(u64::MAX);
            let pressure = test.store.blocking_pressure();
            let over = f64::from(n) - 3.0;
            assert!((pressure - over.max(0.0) / 4.0).abs() < 1e-9, "{n}: {pressure}");
        }
        assert!(test.store.compaction_pressure() > 1.0);
    }
}

/// A check for pending compactions at the same moment takes neither a user's major compaction nor
/// the off-peak permit.
#[test]
fn checking_for_a_needed_compaction_takes_no_request() {
    for engine in ENGINES {
        let mut test = TestStore::new(engine);
        test.env.compaction_throughput.set_off_peak(true);
        test.clock.set_ms(9000);
        for _ in 0..3 {
            test.add("r", "q", 8500, CellType::Put, "v");
            test.flush(u64::MAX);
        }
        let (asked, done) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    test.store.needs_compaction();
                    test.store.next_compaction_bytes(false);
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
            let began = Instant::now();
            let mut lost = 0;
            while asked.load(Ordering::Relaxed) < 3000 && began.elapsed() < Duration::from_secs(20) {
                lost += usize::from(test.store.select_compaction(true).is_none());
                let minor = test.store.select_compaction(false);
                lost += usize::from(minor.is_none_or(|minor| !minor.is_off_peak()));
            }
            done.store(true, Ordering::Relaxed);
            assert_eq!(lost, 0, "{engine:?}");
        });
    }
}

/// Invalid tags are accepted in files, but not if tags are compressed. A cell that passes the
/// checks with such tags must neither take other rows with it nor block flushes forever.
#[test]
fn cells_that_an_encoding_does_not_keep_are_flushed_and_compacted_without_it() {
    for encoding in ["FAST_DIFF", "DIFF", "PREFIX", "ROW_INDEX_V1", "NONE"] {
        let mut test = TestStore::new(&[("DATA_BLOCK_ENCODING", encoding), ("COMPRESSION", "SNAPPY")]);
        for (row, tags) in [("a", &[][..]), ("b", &[7]), ("c", &[0, 9, 1]), ("d", &[0, 2, 70, 1]), ("e", &[])]
        {
            let (row, family, qualifier) = (row.as_bytes(), &b"f"[..], &b"q"[..]);
            let (timestamp, kind) = (1, CellType::Put);
            test.add_cell(
                KeyValueBuilder { row, family, qualifier, timestamp, kind, value: b"v", tags }.build(),
            );
        }
        let expected = ["a/q/1/v", "b/q/1/v", "c/q/1/v", "d/q/1/v", "e/q/1/v"];
        for _ in 0..2 {
            test.flush(u64::MAX);
            assert_eq!(test.scan(Scan::default()), expected, "{encoding}");
            test.reopen();
            assert_eq!(test.scan(Scan::default()), expected, "{encoding}");
            test.compact(true, u64::MAX).expect("compacted");
        }
        assert_eq!(test.scan(Scan::default()), expected, "{encoding}");
    }
}

#[test]
fn the_family_s_storage_policy_comes_before_the_server_s() {
    let of = |setting: &str, attributes: &[(&str, &str)]| {
        let mut conf = Configuration::new();
        conf.set("hbase.hstore.block.storage.policy", setting);
        let config = StoreConfig::from_configuration(&conf).expect("read");
        let config = config.for_family(&family(b"f", attributes));
        (config.storage_policy.name(), config.dfs_replication)
    };
    let named = |name: &str| Some(name.to_owned());
    assert_eq!(of("NONE", &[]), (None, 0));
    assert_eq!(of(" all_ssd ", &[]), (named("ALL_SSD"), 0));
    assert_eq!(of("NONE", &[("DFS_REPLICATION", "2")]), (None, 2));
    assert_eq!(of("COLD", &[("STORAGE_POLICY", "Hot"), ("DFS_REPLICATION", "many")]), (named("HOT"), 0));
    assert_eq!(of("COLD", &[("STORAGE_POLICY", "none")]), (None, 0));
}
