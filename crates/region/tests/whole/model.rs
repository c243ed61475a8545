//! Random histories of a region against a naive table: puts, every kind of delete, flushes, in-memory flushes of every
//! kind, major compactions, crashes.

use std::collections::BTreeMap;

use evenkeel_common::{CellType, KeyValue};
use evenkeel_fs::Keep;
use evenkeel_region::ops::{Mutation, MutationKind, Scan};

use crate::harness::{Cluster, IN_MEMORY_COMPACTIONS, scan};

const FAMILIES: [&str; 2] = ["a", "b"];
const VERSIONS: u32 = 1000;
const TIMESTAMPS: i64 = 12;

/// A cell, the order of its write aside.
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

    /// Markers and what they hide go, so that what is written later is not hidden.
    fn compact(&mut self) {
        self.files = visible(&self.files).into_values().cloned().collect();
    }

    fn all(&self) -> Vec<String> {
        let cells: Vec<_> = self.files.iter().chain(&self.memory).cloned().collect();
        visible(&cells).into_values().map(text).collect()
    }

    fn row(&self, row: &str) -> Vec<String> {
        self.all().into_iter().filter(|cell| cell.starts_with(&format!("{row}/"))).collect()
    }
}

type Place<'a> = (&'a str, &'a str, &'a str, i64);

/// Puts that no marker hides; of those at one place and time the last.
fn visible(cells: &[Written]) -> BTreeMap<Place<'_>, &Written> {
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

/// SplitMix64: a run is known by its seed.
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
                cluster.crash(Keep::Flushed);
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
