//! Bulk loaded files with illegal cells or false metadata. A load reads only the first and the
//! last key, as HBase does, so it may succeed. The region keeps all other cells, opens again,
//! replays its log, flushes, and compacts its other families.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use bytes::Bytes;
use evenkeel_common::{CellType, ColumnFamilyDescriptor, KeyValue};
use evenkeel_fs::{FileSystem, SurvivingData};
use evenkeel_hfile::{ChecksumType, HFileContext, HFileWriter, StoreFileMeta, TRAILER_BYTES, keys};
use evenkeel_protocol::pb;
use evenkeel_region::operations::Scan;
use evenkeel_region::region::bulk_load::{BulkFile, BulkLoad, BulkLoadOutcome};
use evenkeel_region::scanner::ScannerContext;
use prost::Message;

use crate::bulk_load::{file, load};
use crate::harness::{Cluster, texts};

/// The encodings and engines of the loading family.
const STORES: [&[(&str, &str)]; 7] = [
    &[],
    &[("DATA_BLOCK_ENCODING", "PREFIX")],
    &[("DATA_BLOCK_ENCODING", "DIFF"), ("BLOOMFILTER", "ROWCOL")],
    &[("DATA_BLOCK_ENCODING", "FAST_DIFF"), ("COMPRESS_TAGS", "true")],
    &[("DATA_BLOCK_ENCODING", "ROW_INDEX_V1"), ("NEW_VERSION_BEHAVIOR", "true")],
    &[("hbase.hstore.engine.class", "org.apache.hadoop.hbase.regionserver.StripeStoreEngine")],
    &[("hbase.hstore.engine.class", "org.apache.hadoop.hbase.regionserver.DateTieredStoreEngine")],
];
/// The rows of the files. Other rows are before and after them.
const FILE_ROWS: [&str; 4] = ["m1", "m2", "m3", "m4"];
/// The rows of the region.
const FIRST_ROW: &[u8] = b"a";
const END_ROW: &[u8] = b"zy";
/// A limit for the cells of a scan of few cells.
const CELLS_MAX: usize = 1000;

/// A bulk loaded file, before it is written and after.
struct ForeignFile {
    cells: Vec<KeyValue>,
    infos: Vec<(&'static [u8], Vec<u8>)>,
    context: HFileContext,
    meta: StoreFileMeta,
    assign_seq_id: bool,
    /// Bytes of the file, and what replaces them.
    patches: Vec<(Vec<u8>, Vec<u8>)>,
    trailer: Option<fn(&mut pb::FileTrailerProto)>,
}

/// In the metadata, this is replaced by the name of a served file.
const NAME: &str = "00000000000000000000000000000000";

fn tagged(row: &str, tags: &[u8]) -> KeyValue {
    evenkeel_common::cell::KeyValueBuilder {
        row: row.as_bytes(),
        family: b"f",
        qualifier: b"qualifier",
        timestamp: 7,
        kind: CellType::Put,
        value: b"value",
        tags,
    }
    .build()
}

impl ForeignFile {
    /// A legal file without checksums.
    fn legal() -> Self {
        Self {
            cells: FILE_ROWS.map(|row| tagged(row, b"\0\x04\x40tag")).into(),
            infos: vec![(keys::BULKLOAD_TIMESTAMP, 1_i64.to_be_bytes().to_vec())],
            context: HFileContext {
                checksum: ChecksumType::Null,
                includes_tags: true,
                bloom: evenkeel_hfile::BloomType::None,
                ..HFileContext::default()
            },
            meta: StoreFileMeta::default(),
            assign_seq_id: true,
            patches: Vec::new(),
            trailer: None,
        }
    }

    /// With bytes replaced wherever they are.
    fn patched(from: &[u8], to: &[u8]) -> Self {
        assert_eq!(from.len(), to.len());
        Self { patches: vec![(from.into(), to.into())], ..Self::legal() }
    }

    fn with_info(key: &'static [u8], value: impl Into<Vec<u8>>) -> Self {
        let mut file = Self::legal();
        file.infos.push((key, value.into()));
        file
    }

    fn with_trailer(change: fn(&mut pb::FileTrailerProto)) -> Self {
        Self { trailer: Some(change), ..Self::legal() }
    }

    fn unassigned(self) -> Self {
        Self { assign_seq_id: false, ..self }
    }

    /// As files of flushes, whose metadata does not tell that they are bulk loaded.
    fn like_flushed(mut self) -> Self {
        self.infos.retain(|(key, _)| *key != keys::BULKLOAD_TIMESTAMP);
        self.unassigned()
    }

    fn write(&self, cluster: &Cluster, served: &str) -> PathBuf {
        let path = PathBuf::from("/hbase/in/f");
        let mut writer =
            HFileWriter::create(&cluster.memory, &path, self.context.clone()).expect("a new file");
        self.cells.iter().for_each(|cell| writer.append(&cell.as_cell()).expect("in order"));
        self.infos.iter().for_each(|(key, value)| writer.append_file_info(key, value.clone()));
        writer.finish(self.meta.clone()).expect("written");
        let mut bytes = cluster.memory.read_all(&path, 1 << 24).expect("read");
        for (from, to) in &self.patches {
            assert!(replace(&mut bytes, from, to) > 0, "{}", from.escape_ascii());
        }
        replace(&mut bytes, NAME.as_bytes(), served.as_bytes());
        if let Some(change) = self.trailer {
            change_trailer(&mut bytes, change);
        }
        cluster.memory.write_atomically(&path, &bytes).expect("written");
        path
    }
}

/// Replaces bytes wherever they are, and returns how often.
fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) -> usize {
    let found: Vec<_> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(from)).collect();
    found.iter().for_each(|at| bytes[*at..at + to.len()].copy_from_slice(to));
    found.len()
}

fn change_trailer(bytes: &mut [u8], change: fn(&mut pb::FileTrailerProto)) {
    let (start, end) = (bytes.len() - TRAILER_BYTES + 8, bytes.len() - 4);
    let mut trailer = pb::FileTrailerProto::decode_length_delimited(&bytes[start..end]).expect("a trailer");
    change(&mut trailer);
    let trailer = trailer.encode_length_delimited_to_vec();
    bytes[start..end].fill(0);
    bytes[start..start + trailer.len()].copy_from_slice(&trailer);
}

fn replaced_name() -> StoreFileMeta {
    StoreFileMeta { max_seq_id: Some(1), compacted_files: vec![NAME.to_owned()], ..StoreFileMeta::default() }
}

fn claims(max_seq_id: u64) -> ForeignFile {
    ForeignFile {
        meta: StoreFileMeta { max_seq_id: Some(max_seq_id), ..StoreFileMeta::default() },
        ..ForeignFile::legal()
    }
}

/// A file whose cells have a sequence id of their own.
fn numbered(seq_id: u64) -> ForeignFile {
    let mut file = claims(1);
    file.cells.iter_mut().for_each(|cell| cell.set_seq_id(seq_id));
    file
}

fn keeps_seq_ids(mut file: ForeignFile) -> ForeignFile {
    file.infos.push((keys::SKIP_RESET_SEQ_ID, vec![0xff]));
    file
}

/// A cell's key, as in the file.
fn key(row: &[u8], family: &[u8], rest: &[u8]) -> Vec<u8> {
    let row_len = u16::try_from(row.len()).expect("short").to_be_bytes();
    let family_len = [u8::try_from(family.len()).expect("short")];
    [&row_len, row, &family_len, family, rest].concat()
}

const LATEST: [u8; 9] = [0, 0, 0, 0, 0, 0, 0, 7, 4];

/// The second cell's end of key, with these instead of timestamp and type.
fn ends_with(timestamp: i64, code: u8) -> ForeignFile {
    let end = |end: &[u8]| key(b"m2", b"f", &[b"qualifier", end].concat());
    let other = [&timestamp.to_be_bytes()[..], &[code]].concat();
    ForeignFile::patched(&end(&LATEST), &end(&other))
}

fn second_key(row: &[u8], family: &[u8]) -> ForeignFile {
    ForeignFile::patched(&key(b"m2", b"f", b"qualifier"), &key(row, family, b"qualifier"))
}

fn with_tags(tags: &[u8; 6]) -> ForeignFile {
    let mut file = ForeignFile::patched(b"\0\x04\x40gag", tags);
    file.cells[1] = tagged("m2", b"\0\x04\x40gag");
    file
}

/// A file with a row of this length. Its length field is replaced by `other`.
fn with_row_length(row_bytes: usize, other: [u8; 2]) -> ForeignFile {
    let mut file = ForeignFile::legal();
    file.cells[1] = KeyValue::put(&[b"m2", &vec![b'r'; row_bytes - 2][..]].concat(), b"f", b"q", 7, b"value");
    let row_len = u16::try_from(row_bytes).expect("legal").to_be_bytes();
    file.patches.push(([&row_len[..], b"m2rr"].concat(), [&other[..], b"m2rr"].concat()));
    file
}

/// A file that claims to be of the stripe with these boundaries.
fn of_stripe(start: &[u8], end: &[u8]) -> ForeignFile {
    let mut file = ForeignFile::with_info(keys::STRIPE_START, start);
    file.infos.push((keys::STRIPE_END, end.into()));
    file
}

/// A file's name, the file, and true if HBase cannot compact it either.
type Case = (&'static str, ForeignFile, bool);

fn foreign_files() -> Vec<Case> {
    let mut all = vec![
        ("legal", ForeignFile::legal(), false),
        ("legal, unassigned", ForeignFile::legal().unassigned(), false),
    ];
    all.extend(misplaced_keys());
    all.extend(unusual_timestamps_and_types());
    all.extend(malformed_tags());
    all.extend(false_lengths());
    all.extend(replacing_files());
    all.extend(future_sequence_ids());
    all.extend(false_file_infos());
    all.extend(false_trailers());
    all
}

/// Keys that are out of order, or outside of the region or the family.
fn misplaced_keys() -> Vec<Case> {
    vec![
        ("rows out of order", second_key(b"a0", b"f"), true),
        ("a row of another region", second_key(b"zz", b"f"), true),
        (
            "a middle row of another region",
            ForeignFile {
                context: HFileContext { block_bytes: 1, ..ForeignFile::legal().context },
                ..ForeignFile::patched(b"\0\x02m2", b"\0\x02zz")
            },
            true,
        ),
        (
            "a middle row of an earlier region",
            ForeignFile {
                context: HFileContext { block_bytes: 1, ..ForeignFile::legal().context },
                ..ForeignFile::patched(b"\0\x02m2", b"\0\x02A0")
            },
            true,
        ),
        ("another family", second_key(b"m2", b"g"), true),
        ("no family", ForeignFile::patched(b"\x02m2\x01fqual", b"\x02m2\0qqual"), true),
        ("no row", ForeignFile::patched(b"\0\x02m2\x01fqu", b"\0\0\x01fqqqu"), true),
        (
            "columns out of order",
            {
                let mut file = ForeignFile::patched(b"m2\x01fbbbbbbbbb", b"m2\x01f000000000");
                file.cells.insert(1, KeyValue::put(b"m2", b"f", b"aaaaaaaaa", 7, b"value"));
                file.cells.insert(2, KeyValue::put(b"m2", b"f", b"bbbbbbbbb", 7, b"value"));
                file
            },
            true,
        ),
        (
            "versions out of order",
            {
                let mut file = ends_with(99, 4);
                file.cells.insert(2, tagged("m2", b""));
                file.cells[2] = KeyValue::put(b"m2", b"f", b"qualifier", 6, b"value");
                file.patches
                    .push((b"qualifier\0\0\0\0\0\0\0\x06".into(), b"qualifier\0\0\0\0\0\0\x01\x06".into()));
                file
            },
            true,
        ),
    ]
}

/// Unusual timestamps, and types that are illegal or do not suit the cell.
fn unusual_timestamps_and_types() -> Vec<Case> {
    vec![
        ("a negative timestamp", ends_with(-1, 4), false),
        ("the least timestamp", ends_with(i64::MIN, 4), false),
        ("the greatest timestamp", ends_with(i64::MAX, 4), false),
        ("a type that is none", ends_with(7, 5), false),
        ("the type of a key to seek", ends_with(7, 255), false),
        ("the other type to seek", ends_with(7, 0), false),
        ("a delete of a column with a value", ends_with(7, 12), false),
        ("a delete of a family with a qualifier", ends_with(7, 14), false),
    ]
}

/// Malformed tags.
fn malformed_tags() -> Vec<Case> {
    vec![
        ("tags of one tag that is cut", with_tags(b"\0\x09\x40gag"), false),
        ("a tag without type", with_tags(b"\0\0\0\0\0\0"), false),
        ("bytes behind a tag", with_tags(b"\0\x02\x40gag"), false),
        ("a time to live of 3 bytes", with_tags(b"\0\x04\x08gag"), false),
    ]
}

/// Lengths of rows, families, keys and values. All are false except the first.
fn false_lengths() -> Vec<Case> {
    vec![
        ("a long row", with_row_length(32_767, [0x7f, 0xff]), false),
        ("a row too long", with_row_length(32_767, [0x80, 0x00]), true),
        ("a row longer than its key", with_row_length(20, [0xff, 0xff]), true),
        ("a family longer than its key", ForeignFile::patched(b"m2\x01f", b"m2\xfff"), true),
        (
            "a key length past the end",
            ForeignFile::patched(b"\0\0\0\x18\0\0\0\x05\0\x02m2", b"\x7f\0\0\x18\0\0\0\x05\0\x02m2"),
            true,
        ),
        (
            "a value length past the end",
            ForeignFile::patched(b"\0\0\0\x05\0\x02m2", b"\0\x50\0\x05\0\x02m2"),
            true,
        ),
        (
            "a negative value length",
            ForeignFile::patched(b"\0\0\0\x05\0\x02m2", b"\xff\0\0\x05\0\x02m2"),
            true,
        ),
    ]
}

/// Files that name a served file as one that they replace.
fn replacing_files() -> Vec<Case> {
    vec![
        ("it replaces a served file", ForeignFile { meta: replaced_name(), ..ForeignFile::legal() }, false),
        (
            "it replaces a served file, unassigned",
            ForeignFile { meta: replaced_name(), ..ForeignFile::legal() }.unassigned(),
            false,
        ),
        (
            "it replaces a served file, as flushed",
            ForeignFile { meta: replaced_name(), ..ForeignFile::legal() }.like_flushed(),
            false,
        ),
    ]
}

/// Files and cells with sequence ids that the region has not reached.
fn future_sequence_ids() -> Vec<Case> {
    vec![
        ("it claims many edits", claims(1_000_000), false),
        ("it claims many edits, unassigned", claims(1_000_000).unassigned(), false),
        ("it claims many edits, as flushed", claims(1_000_000).like_flushed(), false),
        ("it claims all edits", claims(u64::MAX >> 1), false),
        ("it claims all edits, unassigned", claims(u64::MAX >> 1).unassigned(), false),
        ("it claims all edits, as flushed", claims(u64::MAX >> 1).like_flushed(), false),
        ("cells of the future", numbered(1_000_000), false),
        ("cells of the future, unassigned", numbered(1_000_000).unassigned(), false),
        ("cells of the future, as flushed", numbered(1_000_000).like_flushed(), false),
        ("cells of the end of time", numbered(u64::MAX >> 1), false),
        ("cells of the end of time, as flushed", numbered(u64::MAX >> 1).like_flushed(), false),
        ("cells of the future that keep it", keeps_seq_ids(numbered(1_000_000)), false),
        ("cells of the end of time that keep it", keeps_seq_ids(numbered(u64::MAX >> 1)), false),
        (
            "cells of the end of time that keep it, unassigned",
            keeps_seq_ids(numbered(u64::MAX >> 1)).unassigned(),
            false,
        ),
    ]
}

/// False entries of the file info.
fn false_file_infos() -> Vec<Case> {
    vec![
        (
            "a false last key",
            {
                let mut file = ForeignFile::legal();
                file.patches.push((b"m4".into(), b"m9".into()));
                file
            },
            false,
        ),
        ("a stripe of no rows", of_stripe(b"z", b"a"), false),
        ("a stripe of some rows", of_stripe(b"m", b"n"), false),
        ("a stripe of all rows but the last", of_stripe(b"", b"m5"), false),
        ("a major compaction", ForeignFile::with_info(keys::MAJOR_COMPACTION, [0xff]), false),
        (
            "without minor compactions",
            ForeignFile::with_info(keys::EXCLUDE_FROM_MINOR_COMPACTION, [0xff]),
            false,
        ),
        (
            "no deletes of families",
            {
                let mut file = ForeignFile::patched(
                    b"DELETE_FAMILY_COUNT\x12\x08\0\0\0\0\0\0\0\x01",
                    b"DELETE_FAMILY_COUNT\x12\x08\0\0\0\0\0\0\0\0",
                );
                file.cells.insert(0, KeyValue::new(b"m0", b"f", b"", 7, CellType::DeleteFamily, b""));
                file
            },
            false,
        ),
        (
            "created at the end of time",
            ForeignFile {
                context: HFileContext { create_time_ms: i64::MAX, ..ForeignFile::legal().context },
                ..ForeignFile::legal()
            },
            false,
        ),
    ]
}

/// False fields of the trailer.
fn false_trailers() -> Vec<Case> {
    vec![
        ("a count of no cells", ForeignFile::with_trailer(|trailer| trailer.entry_count = Some(0)), false),
        (
            "a count of all cells",
            ForeignFile::with_trailer(|trailer| trailer.entry_count = Some(u64::MAX)),
            false,
        ),
        (
            "as many bytes as can be",
            ForeignFile::with_trailer(|trailer| {
                trailer.total_uncompressed_bytes = Some(u64::MAX);
                trailer.uncompressed_data_index_size = Some(u64::MAX);
            }),
            false,
        ),
        (
            "hbase:meta's order",
            ForeignFile {
                context: HFileContext {
                    comparator: evenkeel_common::CellComparator::Meta,
                    ..ForeignFile::legal().context
                },
                ..ForeignFile::legal()
            },
            false,
        ),
    ]
}

/// The rows outside of the file, and one among its rows, with the family and the value.
type Rows = Vec<(&'static str, &'static str, String)>;

struct LoadedCluster {
    cluster: Cluster,
    rows: Rows,
    what: String,
    /// True if a compaction failed.
    has_failed: bool,
}

impl LoadedCluster {
    fn put(&mut self, row: &'static str, value: &str) {
        for family in ["f", "g"] {
            self.cluster.put(row, family, "q", value).unwrap_or_else(|e| panic!("{}: {e}", self.what));
            self.rows.push((row, family, value.to_owned()));
        }
    }

    fn check(&self, when: &str) {
        for (row, family, value) in &self.rows {
            let get = Scan::get(row.as_bytes().to_vec());
            let cells = self.cluster.region().get(get);
            let cells = cells.unwrap_or_else(|error| panic!("{}, {when}: row {row}: {error}", self.what));
            let found = texts(&cells);
            let start = format!("{row}/{family}:q/");
            let is_there =
                found.iter().any(|cell| cell.starts_with(&start) && cell.ends_with(&format!("={value}")));
            assert!(is_there, "{}, {when}: row {row} of {family}: {found:?}", self.what);
        }
        self.scan(when);
        let split = self.cluster.region().best_split_row();
        let is_outside = |row: &Bytes| !(FIRST_ROW..END_ROW).contains(&&row[..]);
        assert!(!split.as_ref().is_some_and(is_outside), "{}, {when}: split at {split:?}", self.what);
        let load = self.cluster.region().load();
        assert!(load.store_files < 100, "{}, {when}: {load:?}", self.what);
    }

    /// Scans end, with cells or an error.
    fn scan(&self, when: &str) {
        let reversed = Scan { reversed: true, ..Scan::default() };
        let columns = Scan { start_row: "b".into(), stop_row: "y".into(), ..Scan::default() };
        for scan in [Scan::default(), reversed, columns] {
            let Ok(mut scanner) = self.cluster.region().scanner(scan) else { continue };
            let (mut cells, mut count) = (evenkeel_common::CellBuffer::new(), 0);
            while let Ok(state) = scanner.next(&mut cells, &mut ScannerContext::unlimited()) {
                count += 1;
                assert!(count < CELLS_MAX, "{}, {when}: the scan does not end", self.what);
                if !state.has_more() {
                    break;
                }
            }
        }
    }

    fn crash(&mut self, when: &str) {
        self.cluster.memory.crash(SurvivingData::Flushed);
        self.cluster.die(SurvivingData::Flushed);
        self.cluster.try_start().unwrap_or_else(|error| panic!("{}, {when}: {error}", self.what));
        self.check(when);
    }

    fn flush(&self, when: &str) {
        let flushed = self.cluster.region().flush();
        assert!(flushed.as_ref().is_ok_and(|outcome| outcome.flushed), "{}, {when}: {flushed:?}", self.what);
        self.check(when);
    }

    /// Compacts both families. A file that HBase cannot compact either may stay.
    fn compact(&mut self, is_incompactable: bool, major: bool, when: &str) {
        for family in ["g", "f"] {
            let done = self.cluster.region().compact(Some(family.as_bytes()), major);
            let may_fail = family == "f" && is_incompactable;
            assert!(done.is_ok() || may_fail, "{}, {when}: {done:?}", self.what);
            self.has_failed |= done.is_err();
            self.check(when);
        }
    }
}

fn cluster_of(settings: &[(&str, &str)]) -> Cluster {
    let mut cluster = Cluster::of_rows(&[(b"f", 3), (b"g", 3)], FIRST_ROW, END_ROW);
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal").with("VERSIONS", "3");
    let family = settings.iter().fold(family, |family, (key, value)| family.with(key, value));
    cluster.table = cluster.table.clone().with_family(family);
    cluster.restart();
    cluster
}

/// Returns true if the file was not loaded, or not compacted.
fn live(what: String, settings: &[(&str, &str)], foreign: &ForeignFile, is_incompactable: bool) -> bool {
    let mut loaded =
        LoadedCluster { cluster: cluster_of(settings), rows: Rows::new(), what, has_failed: false };
    loaded.put("a", "flushed");
    loaded.put("z", "flushed");
    loaded.cluster.flush_and_roll();
    loaded.check("before");
    loaded.put("c", "logged");
    let served = loaded.cluster.region().stores()[0].files()[0].name.clone();
    let path = foreign.write(&loaded.cluster, &served);
    let files = vec![BulkFile { ..file("f", path, true) }];
    let load = BulkLoad { assign_seq_id: foreign.assign_seq_id, ..load("t", files) };
    let outcome = loaded.cluster.region().bulk_load(&load);
    loaded.check("loaded");
    loaded.put("d", "logged after it");
    loaded.check("written");
    loaded.crash("after a crash");
    loaded.put("e", "logged after a crash");
    loaded.flush("flushed");
    loaded.compact(is_incompactable, false, "after a minor compaction");
    loaded.put("w", "logged after a minor compaction");
    loaded.crash("after another crash");
    loaded.compact(is_incompactable, true, "after a major compaction");
    loaded.put("x", "logged after a major compaction");
    loaded.crash("after the last crash");
    loaded.put("y", "logged at last");
    loaded.flush("flushed at last");
    loaded.cluster.restart();
    loaded.check("after a clean start");
    loaded.has_failed || outcome != Ok(BulkLoadOutcome::Loaded)
}

#[test]
fn a_foreign_file_harms_no_other_cells() {
    let mut failures = Vec::new();
    for (what, foreign, is_incompactable) in foreign_files() {
        let mut has_stayed = false;
        for settings in STORES {
            let what = format!("{what}, {settings:?}");
            let loaded = AssertUnwindSafe(|| live(what.clone(), settings, &foreign, is_incompactable));
            match catch_unwind(loaded) {
                Ok(stays) => has_stayed |= stays,
                Err(_) => failures.push(what),
            }
        }
        if is_incompactable && !has_stayed {
            failures.push(format!("{what} is compacted"));
        }
    }
    assert!(failures.is_empty(), "{} failures: {failures:#?}", failures.len());
}
