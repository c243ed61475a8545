//! Compares with [`Reference`] on random histories, and tests very many cells of a column.

use std::time::{Duration, Instant};

use evenkeel_common::{CellComparator, CellRef, CellType, KeyValue};

use super::super::columns::VersionLimits;
use super::super::deletes::DeleteResult;
use super::NewVersionTracker;
use super::reference::Reference;

/// A cell of row r: qualifier, timestamp, type, sequence id.
type Written = (&'static [u8], i64, CellType, u64);

const MARKERS: [CellType; 4] =
    [CellType::Delete, CellType::DeleteColumn, CellType::DeleteFamily, CellType::DeleteFamilyVersion];

/// Sorts cells in the order of a scan and removes duplicates.
fn sorted(written: impl IntoIterator<Item = Written>) -> Vec<KeyValue> {
    let cell = |(qualifier, timestamp, kind, seq_id): Written| {
        let of_family = matches!(kind, CellType::DeleteFamily | CellType::DeleteFamilyVersion);
        let qualifier = if of_family { b"" } else { qualifier };
        let mut cell = KeyValue::new(b"r", b"f", qualifier, timestamp, kind, b"");
        cell.set_seq_id(seq_id);
        cell
    };
    let mut cells: Vec<_> = written.into_iter().map(cell).collect();
    cells.sort_by(|a, b| CellComparator::Default.compare(&a.as_cell(), &b.as_cell()));
    cells.dedup_by(|a, b| CellComparator::Default.compare(&a.as_cell(), &b.as_cell()).is_eq());
    cells
}

fn tracker(versions_max: u32) -> NewVersionTracker {
    let limits = VersionLimits { max: versions_max, min: 0, oldest_unexpired: 0 };
    NewVersionTracker::new(None, versions_max, limits)
}

/// Returns the tracker's result for each put; `None` for markers.
fn answers(tracker: &mut NewVersionTracker, cells: &[KeyValue]) -> Vec<Option<DeleteResult>> {
    let answer = |cell: CellRef<'_>| {
        if !cell.is_delete() {
            return Some(tracker.is_deleted(&cell));
        }
        tracker.add(&cell);
        None
    };
    cells.iter().map(KeyValue::as_cell).map(answer).collect()
}

fn expected(versions_max: u32, cells: &[KeyValue]) -> Vec<Option<DeleteResult>> {
    let mut reference = Reference::new(versions_max as usize);
    let answer = |cell: CellRef<'_>| {
        if !cell.is_delete() {
            return Some(reference.is_deleted(&cell));
        }
        reference.add(&cell);
        None
    };
    cells.iter().map(KeyValue::as_cell).map(answer).collect()
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Few timestamps and sequence ids, so that cells share them; mostly puts, or mostly markers of one
/// kind.
fn history(random: &mut Random) -> Vec<Written> {
    let (timestamps, seq_ids) = (1 + random.below(12), 1 + random.below(30));
    let (puts_of_10, markers) = (1 + random.below(9), 1 + random.below(4));
    let count = 1 + random.below(40);
    let cell = |_| {
        let qualifier = [&b""[..], b"a", b"b"][random.below(3) as usize];
        let marker = MARKERS[random.below(markers) as usize];
        let kind = if random.below(10) < puts_of_10 { CellType::Put } else { marker };
        (qualifier, random.below(timestamps) as i64, kind, random.below(seq_ids))
    };
    (0..count).map(cell).collect()
}

#[test]
fn interval_counts_agree_with_sets() {
    let mut random = Random(3);
    let mut reused = [1, 2, 3, 1000].map(|versions_max| (versions_max, tracker(versions_max)));
    for round in 0..10_000 {
        let cells = sorted(history(&mut random));
        for (versions_max, tracker) in &mut reused {
            tracker.reset();
            let (found, expected) = (answers(tracker, &cells), expected(*versions_max, &cells));
            assert_eq!(found, expected, "round {round}, {versions_max} versions: {cells:#?}");
        }
    }
}

#[test]
fn many_intervals_match_sets() {
    let mut random = Random(5);
    for versions_max in [3, 40, u32::MAX] {
        let cell = |_| {
            let kind = if random.below(2) == 0 { CellType::Put } else { CellType::Delete };
            (&b"q"[..], random.below(700) as i64, kind, random.below(2000))
        };
        let cells = sorted((0..2500).map(cell));
        assert_eq!(answers(&mut tracker(versions_max), &cells), expected(versions_max, &cells));
    }
}

/// Thousands of puts and as many markers of each kind: memory is linear in their number, not
/// quadratic, and time nearly so. If all puts pass all of the family's markers, which takes a step
/// for each, the test uses fewer.
#[test]
fn memory_and_time_are_linear_in_delete_markers() {
    const MANY: u64 = 5000;
    const FEW: u64 = 500;
    const CELL_BYTES_MAX: u64 = 800;
    type History = Box<dyn Fn(u64) -> [Written; 2]>;
    let put = |timestamp: u64, seq_id: u64| (&b"q"[..], timestamp as i64, CellType::Put, seq_id);
    let marker = |kind, timestamp: u64, seq_id: u64| (&b"q"[..], timestamp as i64, kind, seq_id);
    let mut histories: Vec<(String, History)> = Vec::new();
    for kind in MARKERS {
        let each = Box::new(move |n| [put(2 * n, 2 * n), marker(kind, 2 * n + 1, 2 * n + 1)]);
        histories.push((format!("{kind:?} after each put, later"), each));
        let each = Box::new(move |n| [put(2 * n, 2 * n), marker(kind, 2 * n, 2 * n + 1)]);
        histories.push((format!("{kind:?} of each put"), each));
        let each = Box::new(move |n| [put(2 * n, MANY - n), marker(kind, 2 * n + 1, MANY + n)]);
        histories.push((format!("{kind:?} after all puts"), each));
        let each = Box::new(move |n| [put(2 * n, MANY + n), marker(kind, 2 * n + 1, MANY - n)]);
        histories.push((format!("{kind:?} before all puts"), each));
    }
    for (name, each) in histories {
        let count = if name.starts_with("DeleteFamily after all") { FEW } else { MANY };
        let cells = sorted((0..count).flat_map(each));
        for versions_max in [3, u32::MAX] {
            let (mut tracker, began) = (tracker(versions_max), Instant::now());
            for (n, some) in cells.chunks(500).enumerate() {
                answers(&mut tracker, some);
                let (looked_at, held) = ((n as u64 + 1) * 500, tracker.held_bytes());
                let case = format!("{name}, {versions_max} versions, {looked_at} cells");
                assert!(held <= 10_000 + looked_at * CELL_BYTES_MAX, "{case}: {held} bytes");
                let limit = Duration::from_secs(20);
                assert!(began.elapsed() < limit, "{case}: {:?}", began.elapsed());
            }
        }
    }
}
