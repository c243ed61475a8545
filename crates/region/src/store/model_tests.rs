//! Random writes, flushes, compactions, reopenings and reads of one store, compared with a model
//! that keeps lists of cells and answers by definition.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::{CellType, KeyBuf};

use super::StoreFile;
use super::testing::{ENGINES, TestStore, drain_with};
use crate::memstore::SegmentScanner;
use crate::operations::{Columns, FamilyColumns, Scan, TimeRange};
use crate::region::RegionScanner;
use crate::scanner::{KeyValueScanner, LimitScope, ScannerContext};

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

#[derive(Clone, PartialEq, Eq)]
struct Cell {
    row: String,
    qualifier: String,
    timestamp: i64,
    kind: CellType,
    seq_id: u64,
    value: String,
}

impl std::fmt::Debug for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} #{}", self.text(), self.kind, self.seq_id)
    }
}

impl Cell {
    /// Returns true if this marker hides a put. In normal behaviour, sequence ids do not matter.
    fn hides(&self, put: &Self) -> bool {
        let same_column = self.qualifier == put.qualifier;
        self.row == put.row
            && match self.kind {
                CellType::DeleteFamily => put.timestamp <= self.timestamp,
                CellType::DeleteFamilyVersion => put.timestamp == self.timestamp,
                CellType::DeleteColumn => same_column && put.timestamp <= self.timestamp,
                CellType::Delete => same_column && put.timestamp == self.timestamp,
                _ => false,
            }
    }

    fn is_put(&self) -> bool {
        self.kind == CellType::Put
    }

    fn text(&self) -> String {
        format!("{}/{}/{}/{}", self.row, self.qualifier, self.timestamp, self.value)
    }
}

type Column = (String, String);

/// Puts by column, the newest first; with equal timestamps, the last written first.
fn columns<'a>(cells: impl Iterator<Item = &'a Cell>) -> BTreeMap<Column, Vec<&'a Cell>> {
    let mut columns: BTreeMap<Column, Vec<&Cell>> = BTreeMap::new();
    cells
        .filter(|c| c.is_put())
        .for_each(|c| columns.entry((c.row.clone(), c.qualifier.clone())).or_default().push(c));
    columns.values_mut().for_each(|puts| puts.sort_by_key(|c| std::cmp::Reverse((c.timestamp, c.seq_id))));
    columns
}

/// Returns the cells that remain when `cells` are written to one file.
fn merged(cells: &[Cell], versions: usize, drop_deletes: bool, read_point: u64) -> Vec<Cell> {
    let old = |c: &Cell| c.seq_id <= read_point;
    let markers: Vec<&Cell> = cells.iter().filter(|c| !c.is_put()).collect();
    let mut kept: Vec<Cell> = Vec::new();
    for puts in columns(cells.iter()).into_values() {
        let (mut seen, mut count) = (None, 0);
        for put in puts {
            if markers.iter().any(|m| old(m) && m.hides(put)) {
                continue;
            }
            if !old(put) {
                kept.push(put.clone());
                continue;
            }
            if seen == Some(put.timestamp) {
                continue;
            }
            count += 1;
            if count <= versions {
                seen = Some(put.timestamp);
                kept.push(put.clone());
            }
        }
    }
    kept.extend(markers.into_iter().filter(|m| !(drop_deletes && old(m))).cloned());
    kept
}

#[derive(Default)]
struct Model {
    memstore: Vec<Cell>,
    files: Vec<(String, Vec<Cell>)>,
    versions: usize,
    /// Older cells have expired.
    oldest_unexpired: i64,
}

impl Model {
    /// Returns the cells that remain when `cells` are written at this moment.
    fn written(&self, cells: &[Cell], drop_deletes: bool, read_point: u64) -> Vec<Cell> {
        let mut cells = merged(cells, self.versions, drop_deletes, read_point);
        cells.retain(|cell| !cell.is_put() || cell.timestamp >= self.oldest_unexpired);
        cells
    }

    fn answer(&self, scan: &Scan, read_point: u64) -> Vec<Vec<String>> {
        let all: Vec<&Cell> = self.files.iter().flat_map(|(_, cells)| cells).chain(&self.memstore).collect();
        let visible: Vec<&Cell> = all.into_iter().filter(|c| c.seq_id <= read_point).collect();
        let mut rows: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for ((row, qualifier), puts) in columns(visible.iter().copied()) {
            if !in_rows(scan, row.as_bytes()) || !wants(scan, &qualifier) {
                continue;
            }
            let mut live: Vec<&Cell> = puts
                .into_iter()
                .filter(|put| !visible.iter().any(|m| m.hides(put)))
                .filter(|put| scan.time_range.contains(put.timestamp))
                .filter(|put| put.timestamp >= self.oldest_unexpired)
                .collect();
            live.dedup_by_key(|put| put.timestamp);
            live.truncate((scan.max_versions as usize).min(self.versions));
            rows.entry(row).or_default().extend(live.into_iter().map(Cell::text));
        }
        let offset = scan.store_offset as usize;
        let limit = usize::try_from(scan.store_limit).unwrap_or(usize::MAX);
        let rows = rows.into_values().map(|row| row.into_iter().skip(offset).take(limit).collect::<Vec<_>>());
        let mut rows: Vec<_> = rows.filter(|row| !row.is_empty()).collect();
        if scan.reversed {
            rows.reverse();
        }
        rows
    }
}

fn in_rows(scan: &Scan, row: &[u8]) -> bool {
    let after_start =
        |start: &[u8]| start.is_empty() || if scan.reversed { row <= start } else { row >= start };
    let before_stop = |stop: &[u8]| stop.is_empty() || if scan.reversed { row >= stop } else { row <= stop };
    after_start(&scan.start_row)
        && before_stop(&scan.stop_row)
        && (row != &scan.start_row[..] || scan.include_start_row || scan.start_row.is_empty())
        && (row != &scan.stop_row[..] || scan.include_stop_row || scan.stop_row.is_empty())
}

fn wants(scan: &Scan, qualifier: &str) -> bool {
    let Some(family) = scan.families.first() else { return true };
    family.qualifiers.as_ref().is_none_or(|all| all.iter().any(|one| one == qualifier.as_bytes()))
}

const ROWS: u64 = 6;
const QUALIFIERS: [&str; 4] = ["", "a", "b", "c"];
const TIMESTAMPS: u64 = 6;
/// The distance between two timestamps, in milliseconds: times to live are in seconds.
const STEP_MS: i64 = 1000;

fn random_time(random: &mut Random) -> i64 {
    random.below(TIMESTAMPS) as i64 * STEP_MS
}

fn random_row(random: &mut Random) -> String {
    format!("r{}", random.below(ROWS))
}

fn random_scan(random: &mut Random) -> Scan {
    let mut scan = if random.chance(2) { Scan::get(random_row(random)) } else { random_range(random) };
    scan.max_versions = 1 + random.below(4) as u32;
    if random.chance(3) {
        let min = random_time(random);
        let max = if random.chance(2) { i64::MAX } else { min + 1 + random.below(4) as i64 * STEP_MS };
        scan.time_range = TimeRange { min, max };
    }
    if random.chance(2) {
        let wanted = QUALIFIERS.iter().filter(|_| random.chance(2)).map(|q| Bytes::from_static(q.as_bytes()));
        let wanted: Columns = wanted.collect();
        let qualifiers = (!wanted.is_empty()).then_some(wanted);
        scan.families = [FamilyColumns { family: Bytes::from_static(b"f"), qualifiers }].into();
    }
    if random.chance(6) {
        (scan.store_limit, scan.store_offset) = (1 + random.below(3) as i32, random.below(3) as i32);
    }
    scan
}

fn random_range(random: &mut Random) -> Scan {
    let bound = |random: &mut Random| match random.below(3) {
        0 => Bytes::new(),
        _ => Bytes::from(random_row(random)),
    };
    Scan {
        start_row: bound(random),
        stop_row: bound(random),
        include_start_row: random.chance(2),
        include_stop_row: random.chance(2),
        reversed: random.chance(2),
        ..Scan::default()
    }
}

/// Drains a scanner under limits that cut results anywhere; joins the parts of each row.
fn read(mut scanner: RegionScanner, random: &mut Random) -> Vec<Vec<String>> {
    let (batch, bytes) = match random.below(3) {
        0 => (0, u64::MAX),
        1 => (1 + random.below(3) as usize, u64::MAX),
        _ => (0, 1 + random.below(100)),
    };
    let limits =
        || ScannerContext::unlimited().with_batch(batch).with_size_limit(LimitScope::BetweenCells, bytes);
    let mut rows: Vec<Vec<String>> = Vec::new();
    let releases = random.chance(2);
    let release = |scanner: &mut RegionScanner| {
        if releases && random.chance(2) {
            scanner.release_blocks();
        }
    };
    for part in drain_with(&mut scanner, limits, release).expect("readable") {
        let row_of = |cell: &String| cell.split('/').next().map(str::to_owned);
        match rows.last_mut() {
            Some(row) if row_of(&row[0]) == row_of(&part[0]) => row.extend(part),
            _ => rows.push(part),
        }
    }
    rows
}

/// Returns true if a cell is in the rows and times of a file, which divides both with the other
/// files of one compaction.
fn may_hold(file: &StoreFile, cell: &Cell) -> bool {
    let (Some(first), Some(last)) = (file.reader().first_key(), file.reader().last_key()) else {
        return false;
    };
    let times = file.reader().time_range().expect("it has cells");
    let row = cell.row.as_bytes();
    (first.as_cell().row()..=last.as_cell().row()).contains(&row)
        && (times.0..=times.1).contains(&cell.timestamp)
}

struct Open {
    scanner: RegionScanner,
    read_point: u64,
    expected: Vec<Vec<String>>,
    what: String,
}

struct ModelRun {
    random: Random,
    test: TestStore,
    model: Model,
    open: Vec<Open>,
    ttl_ms: Option<i64>,
}

impl ModelRun {
    fn new(seed: u64, engine: &[(&str, &str)]) -> Self {
        let versions = 1 + (seed as usize) % 3;
        let bloom = ["ROW", "ROWCOL", "NONE"][(seed as usize / 3) % 3];
        let encoding = ["NONE", "ROW_INDEX_V1"][(seed as usize) % 2];
        let ttl_ms = (seed % 4 == 3).then_some(3000);
        let (versions_text, ttl) = (versions.to_string(), if ttl_ms.is_some() { "3" } else { "FOREVER" });
        // When cells expire in memory depends on the strategy.
        let in_memory = ["BASIC", "EAGER", "NONE", "ADAPTIVE", "EAGER"][(seed as usize) % 5];
        let in_memory = if ttl_ms.is_some() { "NONE" } else { in_memory };
        let basics = [
            ("VERSIONS", &versions_text[..]),
            ("BLOOMFILTER", bloom),
            ("DATA_BLOCK_ENCODING", encoding),
            ("BLOCKSIZE", "64"),
            ("TTL", ttl),
            ("IN_MEMORY_COMPACTION", in_memory),
        ];
        let attributes: Vec<_> = basics.iter().chain(engine).copied().collect();
        let test = TestStore::new(&attributes);
        test.clock.set_ms(TIMESTAMPS as i64 * STEP_MS);
        let model = Model { versions, oldest_unexpired: i64::MIN, ..Model::default() };
        let mut run = Self { random: Random(seed), test, model, open: Vec::new(), ttl_ms };
        run.pass_time(0);
        run
    }

    fn pass_time(&mut self, ms: i64) {
        self.test.clock.advance_ms(ms);
        let now_ms = self.test.env.clock.now_ms();
        self.model.oldest_unexpired = self.ttl_ms.map_or(i64::MIN, |ttl_ms| now_ms - ttl_ms);
    }

    fn smallest_read_point(&self) -> u64 {
        self.open.iter().map(|open| open.read_point).min().unwrap_or(self.test.seq_id)
    }

    fn write(&mut self) {
        let kinds = [
            (CellType::Put, 12),
            (CellType::Delete, 2),
            (CellType::DeleteColumn, 1),
            (CellType::DeleteFamily, 1),
            (CellType::DeleteFamilyVersion, 1),
        ];
        let mut at = self.random.below(kinds.iter().map(|(_, weight)| weight).sum());
        let kind = kinds
            .iter()
            .find(|(_, weight)| {
                at < *weight || {
                    at -= weight;
                    false
                }
            })
            .expect("within")
            .0;
        let of_family = matches!(kind, CellType::DeleteFamily | CellType::DeleteFamilyVersion);
        let qualifier = if of_family { "" } else { QUALIFIERS[self.random.below(4) as usize] };
        let (row, timestamp) = (random_row(&mut self.random), random_time(&mut self.random));
        let value = if kind == CellType::Put { format!("v{}", self.test.seq_id) } else { String::new() };
        let seq_id = self.test.add(&row, qualifier, timestamp, kind, &value);
        self.model.memstore.push(Cell { row, qualifier: qualifier.into(), timestamp, kind, seq_id, value });
    }

    fn flush(&mut self) {
        let read_point = self.smallest_read_point();
        let before: Vec<String> = self.test.store.files().into_iter().map(|f| f.name).collect();
        self.test.flush(read_point);
        let cells = std::mem::take(&mut self.model.memstore);
        let cells = self.model.written(&cells, false, read_point);
        self.divide(cells, &before);
    }

    /// Assigns cells to the new files, those that are not in `before`.
    fn divide(&mut self, mut cells: Vec<Cell>, before: &[String]) {
        let state = self.test.store.state.load();
        for file in state.files.iter().filter(|file| !before.iter().any(|name| name == file.name())) {
            let here = cells.extract_if(.., |cell| may_hold(file, cell)).collect();
            self.model.files.push((file.name().to_owned(), here));
        }
        assert!(cells.iter().all(|cell| !cell.is_put()), "in no file: {cells:?}");
    }

    /// Moves all cells in memory to one segment or more. If it drops cells, it drops exactly those
    /// that a flush would drop.
    fn flush_in_memory(&mut self) {
        let read_point = self.smallest_read_point();
        if self.test.flush_in_memory(read_point) {
            let cells = std::mem::take(&mut self.model.memstore);
            self.model.memstore = merged(&cells, self.model.versions, false, read_point);
        }
        self.forget_covered_markers();
        assert_eq!(self.test.store.memstore_size().cells, self.model.memstore.len() as u64);
    }

    /// A rewrite drops the markers of a column behind a put that a family marker hides, because
    /// that marker hides all that they hide. Removes from the model the markers that the store has
    /// dropped.
    fn forget_covered_markers(&mut self) {
        let there = self.cells_in_memory();
        let markers: Vec<Cell> = self.model.memstore.iter().filter(|c| !c.is_put()).cloned().collect();
        let is_covered = |cell: &Cell| {
            let covers = |m: &Cell| m.kind == CellType::DeleteFamily && m.timestamp >= cell.timestamp;
            markers.iter().any(|m| m.row == cell.row && m.seq_id != cell.seq_id && covers(m))
        };
        self.model.memstore.retain(|cell| {
            cell.is_put() || !is_covered(cell) || there.contains(&(cell.row.clone(), cell.seq_id))
        });
    }

    /// Returns row and sequence id of each cell in memory.
    fn cells_in_memory(&self) -> Vec<(String, u64)> {
        let mut cells = Vec::new();
        for segment in self.test.store.state.load().segments() {
            let mut scanner = SegmentScanner::new(Arc::clone(segment), u64::MAX);
            scanner.seek(&KeyBuf::first_on_row(b"").as_cell()).expect("in memory");
            while let Some(cell) = scanner.peek() {
                cells.push((String::from_utf8_lossy(cell.row()).into_owned(), cell.seq_id()));
                scanner.advance().expect("in memory");
            }
        }
        cells
    }

    fn compact(&mut self, major: bool) {
        let read_point = self.smallest_read_point();
        let before: Vec<String> = self.test.store.files().into_iter().map(|f| f.name).collect();
        let Some((inputs, drops_deletes)) = self.test.compact(major, read_point) else { return };
        assert!(drops_deletes || inputs.len() < before.len());
        let (gone, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.model.files).into_iter().partition(|(name, _)| inputs.contains(name));
        let cells: Vec<Cell> = gone.into_iter().flat_map(|(_, cells)| cells).collect();
        if drops_deletes {
            let dropped: Vec<&Cell> =
                cells.iter().filter(|c| !c.is_put() && c.seq_id <= read_point).collect();
            for put in kept.iter().flat_map(|(_, cells)| cells).filter(|c| c.is_put()) {
                let hides = |marker: &&&Cell| marker.hides(put);
                assert_eq!(dropped.iter().find(hides), None, "{put:?} of another file is hidden no more");
            }
        }
        let cells = self.model.written(&cells, drops_deletes, read_point);
        self.model.files = kept;
        self.divide(cells, &before);
    }

    fn check(&mut self) {
        let scan = random_scan(&mut self.random);
        let what = describe(&scan);
        let read_point = self.test.seq_id;
        let expected = self.model.answer(&scan, read_point);
        let scanner = self.test.scanner(scan, read_point);
        if self.random.chance(4) && self.open.len() < 3 {
            return self.open.push(Open { scanner, read_point, expected, what });
        }
        assert_eq!(read(scanner, &mut self.random), expected, "{what}");
    }

    fn finish_one(&mut self) {
        if let Some(open) = self.open.pop() {
            assert_eq!(read(open.scanner, &mut self.random), open.expected, "opened earlier: {}", open.what);
        }
    }

    fn step(&mut self) {
        match self.random.below(43) {
            0..=19 => self.write(),
            20..=33 => self.check(),
            34 | 35 => self.flush(),
            40..=42 => self.flush_in_memory(),
            36 => self.compact(false),
            37 if self.random.chance(3) => self.compact(true),
            38 => self.finish_one(),
            37 => self.pass_time(STEP_MS / 4),
            39 if self.open.is_empty() && self.random.chance(4) => {
                self.flush();
                self.test.reopen();
            }
            _ => {}
        }
    }
}

fn describe(scan: &Scan) -> String {
    format!(
        "{:?}{:?} to {:?}{:?} reversed {} families {:?} versions {} range {:?} limit {} offset {}",
        scan.start_row,
        scan.include_start_row,
        scan.stop_row,
        scan.include_stop_row,
        scan.reversed,
        scan.families,
        scan.max_versions,
        scan.time_range,
        scan.store_limit,
        scan.store_offset
    )
}

/// With every engine, compactions neither lose cells nor bring them back.
#[test]
fn a_store_agrees_with_the_model() {
    for (at, engine) in ENGINES.iter().enumerate() {
        for seed in 0..40 {
            let mut run = ModelRun::new(seed, engine);
            for step in 0..400 {
                let at = format!("engine {at}, seed {seed}, step {step}");
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.step()));
                assert!(
                    outcome.is_ok(),
                    "{at}\nin memory {:#?}\nin files {:#?}",
                    run.model.memstore,
                    run.model.files
                );
            }
        }
    }
}
