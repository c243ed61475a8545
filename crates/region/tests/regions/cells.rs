//! Cells at and past every limit, valid and invalid, through every kind of write and from loaded
//! files: acknowledged cells come back byte for byte, tags included, after a crash, a replay, a
//! flush and a compaction; deleted ones do not; all others are rejected, and harm no other write to
//! the same log.
//!
//! Each table takes its encoding, codec and log from a seed, which is printed.
//! `EVENKEEL_CELL_SEED` sets it.
//!
//! The model computes what fits from the lengths alone: it shares no code with what it tests.

use std::collections::BTreeMap;

use bytes::Bytes;
use evenkeel_common::cell::LATEST_TIMESTAMP;
use evenkeel_common::{
    CellType, ColumnFamilyDescriptor, Durability, ErrorKind, HBaseError, KeyValue, Result,
};
use evenkeel_fs::SurvivingData;
use evenkeel_hfile::{Compression, DataBlockEncoding, HFileContext};
use evenkeel_protocol::pb;
use evenkeel_region::filter::comparator_from_proto;
use evenkeel_region::operations::{Condition, ConditionTest, Mutation, MutationKind, Scan, TimeRange};
use evenkeel_wal::{WalCompression, WalConfig};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::bulk_load;
use crate::harness::Cluster;

const FAMILY: &[u8] = b"f";
const TAGS_MAX: usize = 65_535;
const TTL_TAG: u8 = 8;
/// Long enough that no cell expires.
const TTL_MS: i64 = 1 << 40;
const ENCODINGS: [&str; 5] = ["NONE", "PREFIX", "DIFF", "FAST_DIFF", "ROW_INDEX_V1"];
const CODECS: [&str; 6] = ["NONE", "GZ", "SNAPPY", "LZ4", "ZSTD", "BZIP2"];
/// Tables of each encoding: one of each codec, and some more.
const TABLES: usize = 10;
/// Cells of each loaded file.
const LOADED: usize = 6;
/// Writes to each table. `EVENKEEL_CELL_WRITES` overrides it.
const WRITES: usize = 60;

fn writes() -> usize {
    std::env::var("EVENKEEL_CELL_WRITES").ok().and_then(|n| n.parse().ok()).unwrap_or(WRITES)
}

/// Every way to write a log.
fn logs() -> Vec<Option<WalCompression>> {
    let plain = WalCompression { tags: false, ..WalCompression::default() };
    let of_values = |codec: &&str| {
        let values = Compression::from_name(codec);
        Some(WalCompression { values, ..WalCompression::default() })
    };
    let without = [None, Some(plain), Some(WalCompression::default())];
    without.into_iter().chain(CODECS.iter().map(of_values)).collect()
}

fn draw<T: Clone>(rng: &mut StdRng, from: &[T]) -> T {
    from.choose(rng).expect("some").clone()
}

/// The bytes of a KeyValue with any parts, as a client may send them.
fn raw(row: &[u8], qualifier: &[u8], timestamp: i64, kind: CellType, value: &[u8], tags: &[u8]) -> Vec<u8> {
    let key_len = 12 + row.len() + FAMILY.len() + qualifier.len();
    let mut bytes = Vec::new();
    bytes.extend(u32::try_from(key_len).expect("short").to_be_bytes());
    bytes.extend(u32::try_from(value.len()).expect("short").to_be_bytes());
    bytes.extend(low_u16(row.len()).to_be_bytes());
    bytes.extend(row);
    bytes.push(1);
    bytes.extend(FAMILY);
    bytes.extend(qualifier);
    bytes.extend(timestamp.to_be_bytes());
    bytes.push(kind.code());
    bytes.extend(value);
    if !tags.is_empty() {
        bytes.extend(low_u16(tags.len()).to_be_bytes());
        bytes.extend(tags);
    }
    bytes
}

/// The low 16 bits of a length, as a writer without a check stores it.
fn low_u16(len: usize) -> u16 {
    u16::try_from(len % 65_536).expect("below")
}

fn tag(kind: u8, value: &[u8]) -> Vec<u8> {
    [&low_u16(value.len() + 1).to_be_bytes()[..], &[kind], value].concat()
}

/// Tags, and whether they are valid: whole tags, at most 65,535 bytes.
fn tags(rng: &mut StdRng) -> (Vec<u8>, bool) {
    let byte = rng.random::<u8>();
    let filler = |len: usize| vec![byte; len];
    match rng.random_range(0..20) {
        0..=5 => (Vec::new(), true),
        6 => (tag(64, b""), true),
        7 => (tag(64, b"small"), true),
        8 => ([tag(1, b"acl"), tag(2, b"visibility"), tag(TTL_TAG, &TTL_MS.to_be_bytes())].concat(), true),
        // More than a block's dictionary holds.
        9 => ((0..200u8).flat_map(|i| tag(65, &[i, byte % 3])).collect(), true),
        10 => (tag(66, &filler(40_000)), true),
        11 => (tag(66, &filler(65_532)), true),
        12 => ([tag(66, &filler(65_000)), tag(67, &filler(529))].concat(), true),
        // From here on, no client library writes it.
        13 => (filler(1), false),
        14 => ([tag(64, b"good"), vec![0]].concat(), false),
        15 => (vec![0, 0], false),
        16 => ([tag(64, b"good"), vec![0, 0], tag(65, b"good")].concat(), false),
        17 => (vec![0, 9, 64, 1], false),
        18 => ([tag(64, b"good"), vec![0xff, 0xff, 64]].concat(), false),
        _ => (tag(TTL_TAG, &filler(7)), false),
    }
}

fn part(rng: &mut StdRng, lengths: &[usize]) -> Vec<u8> {
    let len = lengths[rng.random_range(0..lengths.len())];
    vec![b'a' + rng.random_range(0..3); len]
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Stored {
    value: Vec<u8>,
    tags: Vec<u8>,
}

type Column = (Vec<u8>, Vec<u8>);
type Version = (Column, i64);

/// What an acknowledged write changes.
enum Effect {
    Stored(Column, i64, Stored),
    Deleted(CellType, Column, i64),
}

/// One write and its effect: `None` if it must be rejected.
struct Write {
    mutation: Option<Mutation>,
    after: Option<Effect>,
}

const DELETES: [CellType; 4] =
    [CellType::Delete, CellType::DeleteColumn, CellType::DeleteFamily, CellType::DeleteFamilyVersion];

fn without_ttl(tags: &[u8]) -> Vec<u8> {
    let (mut rest, mut kept) = (tags, Vec::new());
    while let [a, b, more @ ..] = rest {
        let (one, after) = more.split_at(usize::from(u16::from_be_bytes([*a, *b])));
        if one[0] != TTL_TAG {
            kept.extend([*a, *b]);
            kept.extend(one);
        }
        rest = after;
    }
    kept
}

/// The expected table: every version of each column.
#[derive(Default)]
struct Model {
    cells: BTreeMap<Column, BTreeMap<i64, Stored>>,
}

impl Model {
    fn write(&self, rng: &mut StdRng, row: Vec<u8>, now_ms: i64) -> Write {
        match rng.random_range(0..8) {
            0..=2 => self.write_value(rng, MutationKind::Put, row, now_ms),
            3 => self.delete(rng, row, now_ms),
            7 => self.write_value(rng, MutationKind::Increment, row, now_ms),
            _ => self.write_value(rng, MutationKind::Append, row, now_ms),
        }
    }

    fn write_value(&self, rng: &mut StdRng, kind: MutationKind, row: Vec<u8>, now_ms: i64) -> Write {
        let qualifier = match kind {
            MutationKind::Increment => b"counter".to_vec(),
            _ => part(rng, &[0, 1, 1, 1, 300, 70_000]),
        };
        let (tags, whole) = tags(rng);
        let ttl_ms = (rng.random_range(0..4) == 0).then_some(TTL_MS);
        let column = (row.clone(), qualifier.clone());
        let delta = match kind {
            MutationKind::Increment => rng.random_range(0..9i64).to_be_bytes().to_vec(),
            _ => part(rng, &[0, 1, 20, 3000, 70_000]),
        };
        let timestamp = if rng.random() { LATEST_TIMESTAMP } else { now_ms };
        let bytes = raw(&row, &qualifier, timestamp, CellType::Put, &delta, &tags);
        let Some(mutation) = mutation(kind, row, bytes, ttl_ms, whole) else {
            return Write { mutation: None, after: None };
        };
        if !whole {
            return Write { mutation: Some(mutation), after: None };
        }
        let (mut joined, mut value) = (tags, delta);
        let old = self.cells.get(&column).and_then(|versions| versions.values().next_back());
        if let (MutationKind::Append | MutationKind::Increment, Some(old)) = (kind, old) {
            joined.extend(&old.tags);
            value = match kind {
                MutationKind::Append => [&old.value[..], &value].concat(),
                _ => (long(&old.value) + long(&value)).to_be_bytes().to_vec(),
            };
        }
        if ttl_ms.is_some() {
            joined = [without_ttl(&joined), tag(TTL_TAG, &TTL_MS.to_be_bytes())].concat();
        }
        let fits = joined.len() <= TAGS_MAX;
        let after = Effect::Stored(column, now_ms, Stored { value, tags: joined });
        Write { mutation: Some(mutation), after: fits.then_some(after) }
    }

    /// A Delete of any type, of a column that exists if there is one, and of one of its versions or
    /// the latest.
    fn delete(&self, rng: &mut StdRng, row: Vec<u8>, now_ms: i64) -> Write {
        let code = draw(rng, &DELETES);
        let of_row: Vec<_> = self.cells.iter().filter(|((of, _), _)| *of == row).collect();
        let (qualifier, versions) = of_row.choose(rng).map_or_else(
            || (part(rng, &[0, 1, 300, 70_000]), Vec::new()),
            |((_, qualifier), versions)| (qualifier.clone(), versions.keys().copied().collect()),
        );
        let qualifier = if is_of_family(code) { Vec::new() } else { qualifier };
        let (tags, whole) = tags(rng);
        let timestamp =
            if rng.random() { LATEST_TIMESTAMP } else { versions.choose(rng).copied().unwrap_or(now_ms) };
        let bytes = raw(&row, &qualifier, timestamp, code, &[], &tags);
        let ttl_ms = (rng.random_range(0..4) == 0).then_some(TTL_MS);
        let Some(mutation) = mutation(MutationKind::Delete, row.clone(), bytes, ttl_ms, whole) else {
            return Write { mutation: None, after: None };
        };
        let column = (row, qualifier);
        let newest = || self.cells.get(&column).and_then(|versions| versions.keys().next_back().copied());
        let timestamp = match (timestamp, code) {
            (LATEST_TIMESTAMP, CellType::Delete) => newest().unwrap_or(now_ms),
            (LATEST_TIMESTAMP, _) => now_ms,
            (timestamp, _) => timestamp,
        };
        let after = whole.then_some(Effect::Deleted(code, column, timestamp));
        Write { mutation: Some(mutation), after }
    }

    fn apply(&mut self, after: Effect) {
        match after {
            Effect::Stored(column, timestamp, stored) => {
                self.cells.entry(column).or_default().insert(timestamp, stored);
            }
            Effect::Deleted(code, column, timestamp) => {
                let of_family = is_of_family(code);
                let is_meant = |of: &Column| of.0 == column.0 && (of_family || of.1 == column.1);
                let is_version = matches!(code, CellType::Delete | CellType::DeleteFamilyVersion);
                let stays = |at: i64| if is_version { at != timestamp } else { at > timestamp };
                for (_, versions) in self.cells.iter_mut().filter(|(of, _)| is_meant(of)) {
                    versions.retain(|at, _| stays(*at));
                }
                self.cells.retain(|_, versions| !versions.is_empty());
            }
        }
    }

    /// Serves a file of cells that another program wrote, in any encoding.
    fn load(&mut self, rng: &mut StdRng, cluster: &Cluster, now_ms: i64) {
        let mut cells = BTreeMap::new();
        while cells.len() < LOADED {
            let (column, value) = ((row(rng), part(rng, &[0, 1, 300, 70_000])), part(rng, &[0, 20, 70_000]));
            if let (tags, true) = tags(rng) {
                cells.insert(column, Stored { value, tags });
            }
        }
        let bytes = |((row, qualifier), stored): (&Column, &Stored)| {
            let bytes = raw(row, qualifier, now_ms, CellType::Put, &stored.value, &stored.tags);
            KeyValue::parse(bytes.into()).expect("legal")
        };
        let context = HFileContext {
            encoding: DataBlockEncoding::from_name(draw(rng, &ENCODINGS)).expect("known"),
            compression: Compression::from_name(draw(rng, &CODECS)).expect("known"),
            includes_tags: true,
            compress_tags: rng.random(),
            ..HFileContext::default()
        };
        let path = format!("/hbase/in/{now_ms}");
        let path = bulk_load::write(cluster, &path, context, &cells.iter().map(bytes).collect::<Vec<_>>());
        let load = bulk_load::load(&now_ms.to_string(), vec![bulk_load::file("f", path, false)]);
        let loaded = cluster.region().bulk_load(&load).expect("loaded");
        assert_eq!(loaded, evenkeel_region::region::bulk_load::BulkLoadOutcome::Loaded);
        cells.into_iter().for_each(|(column, stored)| self.apply(Effect::Stored(column, now_ms, stored)));
    }
}

fn is_of_family(code: CellType) -> bool {
    matches!(code, CellType::DeleteFamily | CellType::DeleteFamilyVersion)
}

/// A mutation of one cell; `None` if the bytes do not form a cell. Only illegal cells do not.
fn mutation(
    kind: MutationKind,
    row: Vec<u8>,
    bytes: Vec<u8>,
    ttl_ms: Option<i64>,
    whole: bool,
) -> Option<Mutation> {
    let cell = KeyValue::parse(Bytes::from(bytes));
    assert!(cell.is_ok() || !whole, "a legal cell is not one");
    let mut mutation = Mutation::new(kind, row, vec![cell.ok()?]);
    mutation.ttl_ms = ttl_ms;
    Some(mutation)
}

fn long(bytes: &[u8]) -> i64 {
    i64::from_be_bytes(bytes.try_into().expect("a long"))
}

/// The rows of the first region, a few.
fn row(rng: &mut StdRng) -> Vec<u8> {
    match rng.random_range(0..8) {
        0 => vec![b'a'; 32_767],
        n => vec![b'a', b'0' + n % 4],
    }
}

fn must_hold(row: &[u8]) -> Condition {
    let name = "org.apache.hadoop.hbase.filter.BinaryComparator".to_owned();
    let comparable = pb::ByteArrayComparable { value: Some(Bytes::new()) };
    let empty = prost::Message::encode_to_vec(&pb::BinaryComparator { comparable });
    let comparator = pb::Comparator { name, serialized_comparator: Some(empty.into()) };
    let nothing = ConditionTest::Column {
        family: Bytes::from_static(FAMILY),
        qualifier: Bytes::from_static(b"never written"),
        op: pb::CompareType::Equal,
        comparator: comparator_from_proto(&comparator).expect("a comparator"),
    };
    Condition { row: row.to_vec().into(), test: nothing, time_range: TimeRange::ALL }
}

/// Makes one write, alone or among others, through any of the interfaces. Others that are valid go
/// to rows that are not checked.
fn send(cluster: &Cluster, rng: &mut StdRng, mutation: Mutation) -> Result<()> {
    let region = cluster.region();
    let row = mutation.row.to_vec();
    let beside = |row: &[u8]| {
        let cell = KeyValue::put(row, FAMILY, b"beside", LATEST_TIMESTAMP, b"");
        Mutation::new(MutationKind::Put, row.to_vec(), vec![cell])
    };
    let is_plain = matches!(mutation.kind, MutationKind::Put | MutationKind::Delete);
    match rng.random_range(0..5) {
        0 | 1 if is_plain => {
            let outcomes = region.batch_mutate_wait(vec![beside(b"c1"), mutation, beside(b"c2")]);
            let [one, two, three] = <[_; 3]>::try_from(outcomes).expect("three outcomes");
            one.expect("no other of the batch is harmed");
            three.expect("no other of the batch is harmed");
            two.map(drop)
        }
        0 | 1 => region.mutate_wait(mutation).map(drop),
        2 => region.mutate_rows_wait(vec![mutation, beside(b"c3")], Vec::new()).map(drop),
        3 => region.check_and_mutate_wait(must_hold(&row), vec![mutation]).map(|made| assert!(made.success)),
        _ => {
            let held = region.check_and_mutate_wait(must_hold(&row), vec![mutation, beside(&row)]);
            held.map(|made| assert!(made.success))
        }
    }
}

fn check(cluster: &Cluster, model: &Model, when: &str) {
    let mut found = BTreeMap::new();
    let scan = Scan { max_versions: u32::MAX, ..Scan::default() };
    let mut scanner = cluster.region().scanner(scan).expect("opens");
    let mut cells = evenkeel_common::CellBuffer::new();
    loop {
        cells.clear();
        let limits = &mut evenkeel_region::scanner::ScannerContext::unlimited();
        let state = scanner.next(&mut cells, limits).unwrap_or_else(|error| panic!("{when}: {error}"));
        for cell in cells.iter().filter(|cell| cell.qualifier() != b"beside") {
            let stored = Stored { value: cell.value().to_vec(), tags: cell.tags().to_vec() };
            let column = (cell.row().to_vec(), cell.qualifier().to_vec());
            found.insert((column, cell.timestamp()), stored);
        }
        if !state.has_more() {
            break;
        }
    }
    let expected = |(column, timestamp): &Version| model.cells.get(column)?.get(timestamp);
    if let Some((version, stored)) = found.iter().find(|(version, stored)| expected(version) != Some(*stored))
    {
        let should = expected(version).map(short);
        panic!("{when}: {} has {}, and should have {should:?}", short_version(version), short(stored));
    }
    let versions =
        model.cells.iter().flat_map(|(column, versions)| versions.keys().map(|at| (column.clone(), *at)));
    let lost = versions.clone().find(|version| !found.contains_key(version));
    assert!(lost.is_none(), "{when}: {:?} is lost", lost.as_ref().map(short_version));
}

fn short(stored: &Stored) -> String {
    format!("a value of {} and tags of {} bytes", stored.value.len(), stored.tags.len())
}

fn short_version(((row, qualifier), timestamp): &Version) -> String {
    format!("row of {} bytes, qualifier of {}, at {timestamp}", row.len(), qualifier.len())
}

fn assert_is_final(error: &HBaseError) {
    assert_eq!(error.kind(), ErrorKind::DoNotRetry, "{error}");
}

fn table(encoding: &str, codec: &str, compress_tags: bool, log: Option<WalCompression>) -> Cluster {
    let config = WalConfig { compression: log, ..WalConfig::default() };
    let mut cluster = Cluster::with_wal(&[(FAMILY, 1)], config).split_at(b"x");
    let family = ColumnFamilyDescriptor::new(FAMILY).expect("legal");
    let family = family.with("DATA_BLOCK_ENCODING", encoding).with("COMPRESSION", codec);
    let family = family.with("COMPRESS_TAGS", &compress_tags.to_string());
    let family = family.with("VERSIONS", "1000000");
    cluster.table = cluster.table.clone().with_family(family);
    cluster.restart();
    cluster
}

/// Writes to one table. After each, a plain write goes to another region through the same log.
fn live(cluster: &mut Cluster, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut model = Model::default();
    let (mut made, mut refused) = (0, 0);
    for at in 0..writes() {
        cluster.clock.advance_ms(1);
        let now_ms = evenkeel_common::clock::Clock::now_ms(&*cluster.clock);
        let row = row(&mut rng);
        let Write { mutation, after } = model.write(&mut rng, row, now_ms);
        let Some(mut mutation) = mutation else {
            refused += 1;
            continue;
        };
        let kind = mutation.kind;
        if at % 10 == 9 {
            mutation.durability = Durability::FsyncWal;
        }
        match (send(cluster, &mut rng, mutation), after) {
            (Ok(()), Some(after)) => {
                made += 1;
                model.apply(after);
            }
            (Err(error), None) => {
                refused += 1;
                assert_is_final(&error);
            }
            (Ok(()), None) => panic!("write {at}, {kind:?}: taken, and does not fit"),
            (Err(error), Some(_)) => panic!("write {at}, {kind:?}: fits, and was refused: {error}"),
        }
        let beside = KeyValue::put(format!("x{at:03}").as_bytes(), FAMILY, b"q", LATEST_TIMESTAMP, b"v");
        let row = beside.as_cell().row().to_vec();
        cluster.regions()[1].mutate_wait(Mutation::new(MutationKind::Put, row, vec![beside])).expect("put");
        if at % 23 == 11 {
            cluster.clock.advance_ms(1);
            model.load(&mut rng, cluster, now_ms + 1);
            check(cluster, &model, "after a bulk load");
        }
        if at % 17 == 16 {
            cluster.region().flush().expect("flushed");
            check(cluster, &model, "after a flush");
        }
    }
    assert!(made > writes() / 3 && refused > writes() / 10, "{made} made, {refused} refused");
    check(cluster, &model, "before the crash");
    cluster.crash(SurvivingData::Flushed);
    check(cluster, &model, "after the replay");
    check_beside(cluster);
    cluster.region().flush().expect("flushed");
    check(cluster, &model, "after the replay and a flush");
    cluster.region().compact(None, true).expect("compacted");
    check(cluster, &model, "after a compaction");
    cluster.restart();
    check(cluster, &model, "after a restart");
    check_beside(cluster);
}

fn check_beside(cluster: &Cluster) {
    let others = crate::harness::scan(&cluster.regions()[1], Scan::default());
    assert_eq!(others.len(), writes(), "every write to the other region is there");
}

/// `EVENKEEL_CELL_SEED`, or a random one.
fn seed() -> u64 {
    let given = std::env::var("EVENKEEL_CELL_SEED").ok().and_then(|text| text.parse().ok());
    given.unwrap_or_else(|| StdRng::from_os_rng().random())
}

fn live_with(encoding: &str) {
    let seed = seed();
    println!("EVENKEEL_CELL_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    for at in 0..TABLES {
        let codec = CODECS.get(at).copied().unwrap_or_else(|| draw(&mut rng, &CODECS));
        let (compress_tags, log) = (rng.random(), draw(&mut rng, &logs()));
        println!("{encoding} {codec}, tags compressed: {compress_tags}, log {log:?}");
        live(&mut table(encoding, codec, compress_tags, log), rng.random());
    }
}

#[test]
fn cells_at_every_limit_come_back_or_are_refused_in_none() {
    live_with(ENCODINGS[0]);
}

#[test]
fn cells_at_every_limit_come_back_or_are_refused_in_prefix() {
    live_with(ENCODINGS[1]);
}

#[test]
fn cells_at_every_limit_come_back_or_are_refused_in_diff() {
    live_with(ENCODINGS[2]);
}

#[test]
fn cells_at_every_limit_come_back_or_are_refused_in_fast_diff() {
    live_with(ENCODINGS[3]);
}

#[test]
fn cells_at_every_limit_come_back_or_are_refused_in_row_index() {
    live_with(ENCODINGS[4]);
}

/// A reported case: two Appends with 40 KB of tags each, and then a crash.
#[test]
fn appends_with_too_many_tag_bytes_are_refused() {
    for log in logs() {
        let mut cluster = table("NONE", "NONE", true, log);
        let append = || {
            let tags = tag(64, &[7; 40_000]);
            let bytes = raw(b"r", b"q", LATEST_TIMESTAMP, CellType::Put, b"v", &tags);
            let cell = KeyValue::parse(bytes.into()).expect("a cell");
            Mutation::new(MutationKind::Append, &b"r"[..], vec![cell])
        };
        cluster.region().mutate_wait(append()).expect("fits");
        let error = cluster.region().mutate_wait(append()).expect_err("does not fit");
        assert_is_final(&error);
        assert!(error.message().contains("80006 > 65535"), "{error}");
        for i in 0..100 {
            cluster.put(&format!("w{i}"), "f", "q", "v").expect("put");
        }
        cluster.crash(SurvivingData::Flushed);
        assert_eq!(cluster.all().len(), 101);
    }
}

/// Logs of servers without checks: their cells come back, and none of the others is lost.
#[test]
fn a_log_with_tags_that_are_not_whole_is_replayed_and_flushed() {
    for encoding in ENCODINGS {
        let mut cluster = table(encoding, "NONE", true, None);
        for i in 0..50 {
            cluster.put(&format!("w{i:02}"), "f", "q", "v").expect("put");
        }
        let bytes = raw(b"w10x", b"q", 7, CellType::Put, b"v", &[7]);
        let cell = KeyValue::parse(bytes.into()).expect("lengths agree");
        let info = cluster.region().info().clone();
        let (region, table) = (info.encoded_name().to_owned().into(), info.table().clone());
        let entry = evenkeel_wal::WalEntry::new(region, table, 1 << 20, 7, vec![cell]);
        let txid = cluster.wal().append(&entry).expect("taken");
        cluster.wal().sync(txid, evenkeel_wal::SyncLevel::Flush).expect("written");
        cluster.crash(SurvivingData::Flushed);
        assert_eq!(cluster.all().len(), 51, "{encoding}: replayed");
        cluster.region().flush().expect("flushed");
        assert_eq!(cluster.all().len(), 51, "{encoding}: flushed");
        cluster.region().compact(None, true).expect("compacted");
        assert_eq!(cluster.all().len(), 51, "{encoding}: compacted");
    }
}
