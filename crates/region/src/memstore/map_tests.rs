//! Compares a segment that takes writes with a sorted map, under threads.
//!
//! One seed is one plan: which cells each writer inserts, in writes of several cells, and which of
//! those writes it takes back. Rows, columns, timestamps and types are few, so that writers meet at
//! one place of the list. Sequence ids are dealt out in turn, so that a reader can compute from the
//! progress of each writer up to which id all writes are complete: its read point. Up to it, a
//! [`BTreeMap`], whose order is implemented independently here, holds exactly what must be found.
//! Beyond it, a reader may find any cell that some writer inserts, and no other.
//!
//! Readers go forwards and backwards, through scanners and through the segment itself, while the
//! writers insert.
//!
//! `EVENKEEL_MAP_SEEDS` is the number of seeds, `EVENKEEL_MAP_SEED` the first of them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use evenkeel_common::{CellComparator, CellRef, CellType, KeyValue};

use super::{ChunkPool, Segment, SegmentScanner};
use crate::scanner::KeyValueScanner;

const SEEDS: u64 = if cfg!(miri) { 2 } else { 24 };
const WRITERS: u64 = 3;
const READERS: u64 = 2;
const CELLS_OF_A_WRITE_MAX: u64 = 4;

/// SplitMix64: a seed determines the plan.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn one_of<T: Copy>(&mut self, these: &[T]) -> T {
        these[self.below(these.len() as u64) as usize]
    }
}

/// Row, family and qualifier ascending; timestamp, type code and sequence id descending.
type Key = (Vec<u8>, Vec<u8>, Vec<u8>, Reverse<(i64, u8, u64)>);

fn key_of(cell: &CellRef<'_>) -> Key {
    let newest_first = Reverse((cell.timestamp(), cell.type_code(), cell.seq_id()));
    (cell.row().to_vec(), cell.family().to_vec(), cell.qualifier().to_vec(), newest_first)
}

/// How wide keys are spread.
#[derive(Clone, Copy)]
struct Spread {
    rows: u64,
    qualifiers: u64,
    timestamps: u64,
}

fn random_cell(random: &mut Random, spread: Spread, seq_id: u64) -> KeyValue {
    let row = format!("row{:06}", random.below(spread.rows) * 20_000 / spread.rows);
    let kind = match random.below(10) {
        0 => CellType::Delete,
        1 => CellType::DeleteColumn,
        2 => random.one_of(&[CellType::DeleteFamily, CellType::DeleteFamilyVersion]),
        _ => CellType::Put,
    };
    let of_family = matches!(kind, CellType::DeleteFamily | CellType::DeleteFamilyVersion);
    let qualifier = if of_family { String::new() } else { format!("q{}", random.below(spread.qualifiers)) };
    let timestamp = random.below(spread.timestamps) as i64;
    let value = vec![seq_id as u8; random.below(40) as usize];
    let mut cell = KeyValue::new(row.as_bytes(), b"f", qualifier.as_bytes(), timestamp, kind, &value);
    cell.set_seq_id(seq_id);
    cell
}

struct Write {
    cells: Vec<KeyValue>,
    fails: bool,
}

/// The plan of a seed.
struct Plan {
    seed: u64,
    /// The writes of each writer. Writer `w` has the sequence ids `w + 1`, `w + 1 + WRITERS`, ...
    writes: Vec<Vec<Write>>,
    /// Every cell that a writer inserts: its value, and whether it stays.
    cells: BTreeMap<Key, (Vec<u8>, bool)>,
    ends: (&'static [u8], &'static [u8]),
    spread: Spread,
}

impl Plan {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let spread = Spread {
            rows: random.one_of(&[1, 7, 300, 20_000]),
            qualifiers: 1 + random.below(3),
            timestamps: random.one_of(&[1, 4, 1000]),
        };
        let ends = random.one_of(&super::tests::EXPECTED);
        let writes_of_each = if cfg!(miri) { 12 } else { random.one_of(&[40, 150, 600]) };
        let mut plan = Self { seed, writes: Vec::new(), cells: BTreeMap::new(), ends, spread };
        for writer in 0..WRITERS {
            let seq_ids = (0..writes_of_each).map(|n| n * WRITERS + writer + 1);
            let writes = seq_ids.map(|seq_id| plan.write(&mut random, seq_id)).collect();
            plan.writes.push(writes);
        }
        plan
    }

    /// Returns a write whose cells differ in their keys, because the map identifies cells by them.
    fn write(&mut self, random: &mut Random, seq_id: u64) -> Write {
        let fails = random.below(12) == 0;
        let mut cells = Vec::new();
        for _ in 0..=random.below(CELLS_OF_A_WRITE_MAX) {
            let cell = random_cell(random, self.spread, seq_id);
            let view = cell.as_cell();
            if let Entry::Vacant(free) = self.cells.entry(key_of(&view)) {
                free.insert((view.value().to_vec(), !fails));
                cells.push(cell);
            }
        }
        Write { cells, fails }
    }

    /// Returns the keys that a reader must find, in order.
    fn up_to(&self, read_point: u64) -> Vec<&Key> {
        let stays = |(_, (_, stays)): &(&Key, &(Vec<u8>, bool))| *stays;
        let visible = |key: &&Key| key.3.0.2 <= read_point;
        self.cells.iter().filter(stays).map(|(key, _)| key).filter(visible).collect()
    }

    /// Checks a cell that was found anywhere; returns its key.
    fn known(&self, cell: &CellRef<'_>) -> Key {
        let key = key_of(cell);
        let planned = self.cells.get(&key).unwrap_or_else(|| panic!("{self}: nobody writes {key:?}"));
        assert_eq!(planned.0, cell.value(), "{self}: the value of {key:?}");
        key
    }
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EVENKEEL_MAP_SEED={}", self.seed)
    }
}

/// A running plan.
struct PlanRun {
    plan: Plan,
    segment: Arc<Segment>,
    /// The number of writes that each writer has completed.
    complete: [AtomicU64; WRITERS as usize],
}

impl PlanRun {
    fn new(plan: Plan) -> Self {
        let segment = Segment::new(CellComparator::Default, plan.ends, ChunkPool::new(4));
        Self { plan, segment, complete: Default::default() }
    }

    fn write(&self, writer: usize) {
        let mut random = Random(self.plan.seed ^ (writer as u64 + 1) << 32);
        for write in &self.plan.writes[writer] {
            for cell in &write.cells {
                self.segment.add(&cell.as_cell());
                if random.below(64) == 0 {
                    std::thread::yield_now();
                }
            }
            if write.fails {
                write.cells.iter().for_each(|cell| self.segment.hide(&cell.as_cell()));
            }
            self.complete[writer].fetch_add(1, Ordering::Release);
        }
    }

    /// Returns the sequence id up to which every write is complete.
    fn read_point(&self) -> u64 {
        let next = |(writer, n): (usize, &AtomicU64)| n.load(Ordering::Acquire) * WRITERS + writer as u64 + 1;
        self.complete.iter().enumerate().map(next).min().map_or(0, |first_incomplete| first_incomplete - 1)
    }

    fn read(&self, reader: u64, stop: &AtomicBool) {
        let mut random = Random(self.plan.seed ^ (reader + 1) << 48);
        loop {
            let last = stop.load(Ordering::Acquire);
            let read_point = self.read_point();
            let expected = self.plan.up_to(read_point);
            match random.below(4) {
                0 => self.forwards(read_point, &expected),
                1 => self.backwards(read_point, &expected),
                2 => self.rows_backwards(read_point, &expected),
                _ => self.here_and_there(&mut random, read_point, &expected),
            }
            if last {
                return;
            }
        }
    }

    fn scanner(&self, read_point: u64) -> SegmentScanner {
        SegmentScanner::new(Arc::clone(&self.segment), read_point)
    }

    fn found(&self, scanner: &SegmentScanner) -> Option<Key> {
        scanner.peek().map(|cell| self.plan.known(cell))
    }

    /// Reads every cell in turn, including those that are not complete.
    fn forwards(&self, read_point: u64, expected: &[&Key]) {
        let (plan, segment) = (&self.plan, &self.segment);
        let (mut seen, mut at) = (Vec::new(), segment.first_cursor());
        while let Some(cell) = segment.cell(at) {
            seen.push((plan.known(&cell), segment.is_hidden(at)));
            at = segment.after(at);
        }
        assert!(seen.is_sorted_by(|a, b| a.0 < b.0), "{plan}: forwards, out of order");
        self.is_all(seen, read_point, expected, "forwards");
    }

    /// Finds every cell from the one after it.
    fn backwards(&self, read_point: u64, expected: &[&Key]) {
        let (plan, segment) = (&self.plan, &self.segment);
        let (mut seen, mut at) = (Vec::new(), segment.last_cursor());
        while let Some(cell) = segment.cell(at) {
            seen.push((plan.known(&cell), segment.is_hidden(at)));
            at = segment.before(&cell);
        }
        seen.reverse();
        assert!(seen.is_sorted_by(|a, b| a.0 < b.0), "{plan}: backwards, out of order");
        self.is_all(seen, read_point, expected, "backwards");
    }

    fn is_all(&self, seen: Vec<(Key, bool)>, read_point: u64, expected: &[&Key], how: &str) {
        let complete = seen.iter().filter(|(key, hidden)| key.3.0.2 <= read_point && !hidden);
        assert!(complete.map(|(key, _)| key).eq(expected.iter().copied()), "{}: {how}", self.plan);
    }

    /// Reads the first visible cell of each row, from the last row to the first.
    fn rows_backwards(&self, read_point: u64, expected: &[&Key]) {
        let mut rows = expected.chunk_by(|a, b| a.0 == b.0).map(|row| row[0]).rev();
        let mut scanner = self.scanner(read_point);
        scanner.seek_to_last_row().expect("in memory");
        loop {
            let found = self.found(&scanner);
            assert_eq!(found.as_ref(), rows.next(), "{}: rows backwards", self.plan);
            let Some(key) = found else { return };
            scanner.seek_to_previous_row(&key.0).expect("in memory");
        }
    }

    /// Seeks, and continues from there: by steps, to a later position, or to the previous row.
    fn here_and_there(&self, random: &mut Random, read_point: u64, expected: &[&Key]) {
        let mut scanner = self.scanner(read_point);
        for _ in 0..20 {
            let seq_id = random.below(2 * read_point + 2);
            let mut place = random_cell(random, self.plan.spread, seq_id);
            scanner.seek(&place.as_cell()).expect("in memory");
            let mut at = expected.partition_point(|key| **key < key_of(&place.as_cell()));
            for _ in 0..random.below(12) {
                assert_eq!(self.found(&scanner).as_ref(), expected.get(at).copied(), "{}: a step", self.plan);
                scanner.advance().expect("in memory");
                at = expected.len().min(at + 1);
            }
            if random.below(2) == 0 {
                place = random_cell(random, self.plan.spread, seq_id);
                scanner.reseek(&place.as_cell()).expect("in memory");
                at = at.max(expected.partition_point(|key| **key < key_of(&place.as_cell())));
            } else {
                let row = place.as_cell().row();
                scanner.seek_to_previous_row(row).expect("in memory");
                let before = expected[..expected.partition_point(|key| *key.0 < *row)].last();
                let first_of = |found: &&Key| expected.partition_point(|key| key.0 < found.0);
                at = before.map_or(expected.len(), first_of);
            }
            assert_eq!(self.found(&scanner).as_ref(), expected.get(at).copied(), "{}: a jump", self.plan);
        }
    }
}

fn carry_out(seed: u64) {
    let run = PlanRun::new(Plan::new(seed));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..READERS {
            let (run, stop) = (&run, &stop);
            scope.spawn(move || run.read(reader, stop));
        }
        let run = &run;
        let writers: Vec<_> =
            (0..WRITERS as usize).map(|writer| scope.spawn(move || run.write(writer))).collect();
        let all_well = writers.into_iter().map(|writer| writer.join()).all(|end| end.is_ok());
        stop.store(true, Ordering::Release);
        assert!(all_well, "{}: a writer died", run.plan);
    });
    let all = run.plan.up_to(u64::MAX);
    assert_eq!(run.plan.up_to(run.read_point()), all, "{}: all is complete", run.plan);
    run.forwards(u64::MAX, &all);
    run.backwards(u64::MAX, &all);
    run.rows_backwards(u64::MAX - 1, &all);
    assert_eq!(run.segment.size().cells, run.plan.cells.len() as u64, "{}", run.plan);
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

#[test]
fn a_segment_is_a_sorted_map_under_threads() {
    let first = setting("EVENKEEL_MAP_SEED", 0);
    for seed in first..first + setting("EVENKEEL_MAP_SEEDS", SEEDS) {
        carry_out(seed);
    }
}
