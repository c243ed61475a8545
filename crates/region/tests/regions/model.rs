//! Random histories of a region compared with a naive table: puts, every kind of delete, flushes,
//! in-memory flushes of every kind, major compactions, families deleted and added again, crashes.
//! The cells of a deleted family must not come back.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_block_cache::LruBlockCache;
use evenkeel_common::{CellBuffer, CellType, Durability, KeyValue, TableDescriptor, Wait};
use evenkeel_fs::SurvivingData;
use evenkeel_protocol::pb;
use evenkeel_region::filter::{Filter, from_proto};
use evenkeel_region::operations::{FamilyColumns, Mutation, MutationKind, Scan, TimeRange};
use evenkeel_region::region::RowReader;
use evenkeel_region::scanner::ScannerContext;

use crate::harness::{Cluster, IN_MEMORY_COMPACTIONS, scan, texts};

const FAMILIES: [&str; 2] = ["a", "b"];
const VERSIONS: u32 = 1000;
const TIMESTAMPS: i64 = 12;

/// A cell, without the order of its write.
#[derive(Clone, Debug)]
struct Written {
    row: String,
    family: &'static str,
    qualifier: String,
    timestamp: i64,
    kind: CellType,
    value: String,
}

/// Everything written, in order: what is in files and what is not.
#[derive(Default)]
struct Model {
    files: Vec<Written>,
    memory: Vec<Written>,
}

impl Model {
    fn flush(&mut self) {
        self.files.append(&mut self.memory);
    }

    /// Removes markers and what they hide, so that later writes are not hidden.
    fn compact(&mut self) {
        self.files = visible(&self.files).into_values().cloned().collect();
    }

    /// Deletes a family with all its cells.
    fn delete_family(&mut self, family: &str) {
        self.flush();
        self.files.retain(|cell| cell.family != family);
    }

    fn all(&self) -> Vec<String> {
        let cells: Vec<_> = self.files.iter().chain(&self.memory).cloned().collect();
        visible(&cells).into_values().map(text).collect()
    }

    fn row(&self, row: &str) -> Vec<String> {
        self.all().into_iter().filter(|cell| cell.starts_with(&format!("{row}/"))).collect()
    }
}

type CellKey<'a> = (&'a str, &'a str, &'a str, i64);

/// Returns the puts that no marker hides; with equal place and time, the last one.
fn visible(cells: &[Written]) -> BTreeMap<CellKey<'_>, &Written> {
    let mut found = BTreeMap::new();
    for cell in cells.iter().filter(|cell| cell.kind == CellType::Put) {
        if !cells.iter().any(|marker| hides(marker, cell)) {
            found.insert((&*cell.row, cell.family, &*cell.qualifier, -cell.timestamp), cell);
        }
    }
    found
}

fn hides(marker: &Written, cell: &Written) -> bool {
    let column = marker.qualifier == cell.qualifier;
    marker.row == cell.row
        && marker.family == cell.family
        && match marker.kind {
            CellType::DeleteFamily => cell.timestamp <= marker.timestamp,
            CellType::DeleteFamilyVersion => cell.timestamp == marker.timestamp,
            CellType::DeleteColumn => column && cell.timestamp <= marker.timestamp,
            CellType::Delete => column && cell.timestamp == marker.timestamp,
            _ => false,
        }
}

fn text(cell: &Written) -> String {
    format!("{}/{}:{}/{}={}", cell.row, cell.family, cell.qualifier, cell.timestamp, cell.value)
}

/// SplitMix64: a seed determines the run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

fn random_cell(random: &mut Random, value: usize) -> Written {
    let kind = match random.below(10) {
        0 => CellType::Delete,
        1 => CellType::DeleteColumn,
        2 if random.below(2) == 0 => CellType::DeleteFamily,
        2 => CellType::DeleteFamilyVersion,
        _ => CellType::Put,
    };
    let of_family = matches!(kind, CellType::DeleteFamily | CellType::DeleteFamilyVersion);
    let qualifier = if of_family { String::new() } else { format!("q{}", random.below(3)) };
    Written {
        row: format!("r{}", random.below(4)),
        family: FAMILIES[random.below(2) as usize],
        qualifier,
        timestamp: 1 + random.below(TIMESTAMPS as u64) as i64,
        kind,
        value: if kind == CellType::Put { format!("v{value}") } else { String::new() },
    }
}

fn mutation(cell: &Written) -> Mutation {
    let kind = if cell.kind == CellType::Put { MutationKind::Put } else { MutationKind::Delete };
    let (family, qualifier) = (cell.family.as_bytes(), cell.qualifier.as_bytes());
    let key_value = KeyValue::new(
        cell.row.as_bytes(),
        family,
        qualifier,
        cell.timestamp,
        cell.kind,
        cell.value.as_bytes(),
    );
    Mutation::new(kind, cell.row.as_bytes().to_vec(), vec![key_value])
}

fn versions(scan: Scan) -> Scan {
    Scan { max_versions: VERSIONS, ..scan }
}

fn check(cluster: &Cluster, model: &Model, row: &str, history: &str) {
    let get = versions(Scan::get(row.as_bytes().to_vec()));
    assert_eq!(scan_of(cluster, get), model.row(row), "{history}");
    assert_eq!(scan_of(cluster, versions(Scan::default())), model.all(), "{history}");
}

fn scan_of(cluster: &Cluster, wanted: Scan) -> Vec<String> {
    scan(cluster.region(), wanted)
}

fn run(seed: u64) {
    let mut random = Random(seed);
    let compaction = IN_MEMORY_COMPACTIONS[seed as usize % IN_MEMORY_COMPACTIONS.len()];
    let mut cluster =
        Cluster::new(&FAMILIES.map(|family| (family.as_bytes(), VERSIONS))).compacting(compaction);
    let mut model = Model::default();
    for step in 0..120 {
        let history = format!("seed {seed}, {compaction:?}, step {step}");
        match random.below(28) {
            0 | 1 => {
                cluster.region().flush().expect("flushed");
                model.flush();
            }
            2 => {
                cluster.region().compact(None, true).expect("compacted");
                model.compact();
            }
            3 => {
                cluster.crash(SurvivingData::Flushed);
                model.flush();
            }
            4 => {
                cluster.restart();
                model.flush();
            }
            5..=8 => cluster.region().flush_in_memory().expect("flushed in memory"),
            9 | 10 => {
                let cells: Vec<_> = (0..4).map(|i| random_cell(&mut random, step * 10 + i)).collect();
                let outcomes = cluster.region().batch_mutate_wait(cells.iter().map(mutation).collect());
                assert!(outcomes.iter().all(Result::is_ok), "{history}");
                model.memory.extend(cells);
            }
            _ => {
                let cell = random_cell(&mut random, step * 10);
                cluster.region().mutate_wait(mutation(&cell)).expect("written");
                model.memory.push(cell);
            }
        }
        check(&cluster, &model, &format!("r{}", random.below(4)), &history);
    }
}

#[test]
fn random_histories_read_as_a_naive_table_does() {
    (0..60).for_each(run);
}

/// One family stays, the other is deleted and added again.
fn run_with_families(seed: u64) {
    const STAYS: &str = FAMILIES[0];
    const COMES: &str = FAMILIES[1];
    let mut random = Random(seed);
    let mut cluster = Cluster::new(&FAMILIES.map(|family| (family.as_bytes(), VERSIONS)));
    let (mut model, mut is_there) = (Model::default(), true);
    for step in 0..60 {
        let history = format!("seed {seed}, step {step}");
        match random.below(16) {
            0 => {
                cluster.region().flush().expect("flushed");
                model.flush();
            }
            1 => {
                cluster.region().compact(None, true).expect("compacted");
                model.compact();
            }
            2 => {
                cluster.reopen();
                model.flush();
            }
            3 | 4 => {
                cluster.crash(if random.below(2) == 0 {
                    SurvivingData::Flushed
                } else {
                    SurvivingData::Synced
                });
                model.flush();
            }
            5 | 6 if is_there => {
                cluster.delete_family(COMES);
                model.delete_family(COMES);
                is_there = false;
            }
            5..=8 if !is_there => {
                cluster.add_family(COMES, VERSIONS);
                model.flush();
                is_there = true;
            }
            _ => {
                let mut cell = random_cell(&mut random, step);
                if !is_there {
                    cell.family = STAYS;
                }
                let mut write = mutation(&cell);
                write.durability = Durability::FsyncWal;
                cluster.region().mutate_wait(write).expect("written");
                model.memory.push(cell);
            }
        }
        check(&cluster, &model, &format!("r{}", random.below(4)), &history);
    }
}

#[test]
fn a_family_that_is_deleted_and_added_again_is_empty_whatever_the_log_holds() {
    (0..80).for_each(run_with_families);
}

fn first_key_only() -> Box<dyn Filter> {
    let name = "org.apache.hadoop.hbase.filter.FirstKeyOnlyFilter".to_owned();
    from_proto(&pb::Filter { name, serialized_filter: Some(Bytes::new()) }).expect("a filter")
}

/// Kinds of Gets.
const KINDS: u64 = 8;

/// A Get of a kind.
fn random_get(random: &mut Random, kind: u64) -> Scan {
    let asked = |family: &'static str, qualifiers: Option<&[&'static str]>| FamilyColumns {
        family: family.into(),
        qualifiers: qualifiers.map(|all| all.iter().map(|q| (*q).into()).collect()),
    };
    let get = versions(Scan::get(format!("r{}", random.below(4))));
    match kind {
        0 => get,
        1 => Scan { max_versions: 1, ..get },
        2 => Scan { families: [asked("b", None)].into(), ..get },
        3 => Scan {
            families: [asked("a", Some(&["q0", "q2"])), asked("b", Some(&["q1"]))].into_iter().collect(),
            ..get
        },
        4 => Scan { time_range: TimeRange { min: 3, max: 9 }, ..get },
        5 => Scan { store_limit: 2, store_offset: 1, ..get },
        6 => Scan { raw: true, ..get },
        _ => Scan { filter: Some(first_key_only()), ..get },
    }
}

fn read(rows: &mut RowReader<'_>, kind: u64, get: Scan) -> Vec<String> {
    let (mut cells, row) = (CellBuffer::new(), get.start_row.clone());
    let mut context = ScannerContext::unlimited();
    rows.get_of_kind(kind as usize, &row, || Ok(get), &mut cells, &mut context).expect("read");
    texts(&cells)
}

/// A reader that is reused while the region changes reads the same rows as new readers.
fn run_rows(seed: u64) {
    let mut random = Random(seed);
    let compaction = IN_MEMORY_COMPACTIONS[seed as usize % IN_MEMORY_COMPACTIONS.len()];
    let mut cluster = Cluster::new(&FAMILIES.map(|family| (family.as_bytes(), VERSIONS)));
    // Only rows in memory are prefetched.
    cluster.cache = Arc::new(LruBlockCache::new(1 << 20));
    let cluster = cluster.compacting(compaction);
    let region = cluster.region();
    let mut rows = region.row_reader(Wait::Allowed);
    let mut model = Model::default();
    for step in 0..150 {
        match random.below(20) {
            0..=2 => {
                region.flush().expect("flushed");
                model.flush();
            }
            3 => {
                cluster.region().compact(None, true).expect("compacted");
                model.compact();
            }
            4 | 5 => cluster.region().flush_in_memory().expect("flushed in memory"),
            6 => cluster.clock.advance_ms(1),
            _ => {
                let cell = random_cell(&mut random, step);
                cluster.region().mutate_wait(mutation(&cell)).expect("written");
                model.memory.push(cell);
            }
        }
        let kind = random.below(KINDS);
        let expected: Vec<_> = (0..3).map(|_| format!("r{}", random.below(5))).collect();
        for next in 0..expected.len() {
            rows.prefetch_rows(kind as usize, expected[next..].iter().map(String::as_bytes));
            // Sometimes the row read is not the one that was prefetched.
            let is_expected = random.below(8) > 0;
            let state = random.0;
            let get_by = |random: &mut Random| {
                let mut get = random_get(random, kind);
                if is_expected {
                    get.start_row = expected[next].clone().into();
                    get.stop_row = get.start_row.clone();
                }
                get
            };
            let get = get_by(&mut random);
            let row = String::from_utf8(get.start_row.to_vec()).expect("text");
            let seen = read(&mut rows, kind, get);
            let history = format!("seed {seed}, {compaction:?}, step {step}, kind {kind}, row {row}");
            assert_eq!(seen, texts(&region.get(get_by(&mut Random(state))).expect("read")), "{history}");
            if kind == 0 {
                assert_eq!(seen, model.row(&row), "{history}");
            }
        }
    }
}

#[test]
fn rows_read_in_sequence_equal_rows_read_alone() {
    (0..40).for_each(run_rows);
}

#[test]
fn cells_expire_between_two_rows_of_one_reader() {
    let mut cluster = Cluster::new(&[(b"a", 1)]);
    let brief: Vec<_> = cluster.table.families().map(|family| family.clone().with("TTL", "1")).collect();
    cluster.table = brief.into_iter().fold(cluster.table.clone(), TableDescriptor::with_family);
    cluster.restart();
    ["r", "s"].iter().for_each(|row| cluster.put(row, "a", "q", "value").expect("written"));
    let mut rows = cluster.region().row_reader(Wait::Allowed);
    assert_eq!(read(&mut rows, 0, Scan::get("r")).len(), 1);
    cluster.clock.advance_ms(1000);
    assert_eq!(read(&mut rows, 0, Scan::get("s")).len(), 1);
    cluster.clock.advance_ms(1);
    assert!(read(&mut rows, 0, Scan::get("r")).is_empty());
}
