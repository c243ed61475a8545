//! [`HeatMap`]: the requests of each region over time.
//!
//! A column has the reads and writes per second of each region in one period. It contains only
//! regions that had any, at most [`REGIONS_MAX`], the busiest. A region that was split or moved
//! keeps its place, by its start key, as long as a column contains it.
//!
//! The regions are read while the server has requests, and once after the last of them. Reads and
//! writes without a request, which the server makes internally, are in the next column for which
//! regions are read.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use evenkeel_region::region::{Region, RegionCount};

use super::push;

/// The number of columns that are kept: ten minutes.
pub const COLUMNS: usize = 120;
/// The maximum number of regions in a column.
pub const REGIONS_MAX: usize = 512;

/// A region of the map.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RegionKey {
    /// The table's name.
    pub table: String,
    /// Its start key.
    pub start: Vec<u8>,
    /// Its end key (exclusive); empty for the last region.
    pub end: Vec<u8>,
    /// The encoded name.
    pub encoded: String,
}

/// The rates of a region in one period.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The region.
    pub region: Arc<RegionKey>,
    /// Reads per second.
    pub reads: f64,
    /// Writes per second.
    pub writes: f64,
}

/// The rates of all regions in one period.
#[derive(Clone, Debug, Default)]
pub struct Column {
    /// When it ended, in milliseconds since 1970.
    pub at_ms: i64,
    /// The regions that had requests.
    pub cells: Vec<Cell>,
}

/// A region's counters when they were last read.
#[derive(Debug)]
struct Seen {
    region: Arc<RegionKey>,
    reads: u64,
    writes: u64,
    round: u64,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct HeatMap {
    columns: VecDeque<Column>,
    seen: HashMap<String, Seen>,
    last_ms: Option<i64>,
    round: u64,
    /// The stamp of the last column.
    stamp: Option<StateVersion>,
}

/// A summary of the server's counters: while it is unchanged, the regions are not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateVersion {
    /// Requests of the server since its start.
    pub requests: u64,
    /// How often a region was added or removed.
    pub regions: u64,
}

impl HeatMap {
    /// Returns the columns, the oldest first.
    pub fn columns(&self) -> impl ExactSizeIterator<Item = &Column> {
        self.columns.iter()
    }

    /// Adds a column with the rates since the last one. `regions` is called only if there may be
    /// any requests.
    pub fn add(&mut self, now_ms: i64, stamp: StateVersion, regions: impl FnOnce() -> Vec<Arc<Region>>) {
        if self.is_quiet(stamp) {
            return self.push(now_ms, Vec::new());
        }
        let regions = regions();
        let counts = regions.iter().map(|region| {
            let [reads, writes] = [RegionCount::Reads, RegionCount::Writes].map(|of| region.counts().get(of));
            (region.info(), reads, writes)
        });
        let counts = counts.map(|(info, reads, writes)| {
            let key = || RegionKey {
                table: info.table().to_string(),
                start: info.start_key().to_vec(),
                end: info.end_key().to_vec(),
                encoded: info.encoded_name().to_owned(),
            };
            (info.encoded_name(), key, reads, writes)
        });
        self.add_counts(now_ms, counts);
    }

    /// Returns true if no request has begun and no region was added or removed since the last
    /// column, and that column was empty, so that no earlier request was still being counted.
    fn is_quiet(&mut self, stamp: StateVersion) -> bool {
        let is_same = self.stamp.replace(stamp) == Some(stamp);
        is_same && self.columns.back().is_some_and(|column| column.cells.is_empty())
    }

    fn push(&mut self, now_ms: i64, cells: Vec<Cell>) {
        if self.last_ms.replace(now_ms).is_some() {
            push(&mut self.columns, Column { at_ms: now_ms, cells }, COLUMNS);
        }
    }

    fn add_counts<'a, K: Fn() -> RegionKey>(
        &mut self,
        now_ms: i64,
        counts: impl Iterator<Item = (&'a str, K, u64, u64)>,
    ) {
        let seconds = self.last_ms.map_or(0.0, |last_ms| (now_ms - last_ms).max(1) as f64 / 1_000.0);
        self.round += 1;
        let mut cells = Vec::new();
        for (encoded, key, reads, writes) in counts {
            let Some(seen) = self.seen.get_mut(encoded) else {
                let region = Arc::new(key());
                self.seen.insert(encoded.to_owned(), Seen { region, reads, writes, round: self.round });
                continue;
            };
            let (read, written) = (reads.saturating_sub(seen.reads), writes.saturating_sub(seen.writes));
            (seen.reads, seen.writes, seen.round) = (reads, writes, self.round);
            if read + written > 0 && seconds > 0.0 {
                let (reads, writes) = (read as f64 / seconds, written as f64 / seconds);
                cells.push(Cell { region: Arc::clone(&seen.region), reads, writes });
            }
        }
        let round = self.round;
        self.seen.retain(|_, seen| seen.round == round);
        cells.sort_by(|a, b| (b.reads + b.writes).total_cmp(&(a.reads + a.writes)));
        cells.truncate(REGIONS_MAX);
        self.push(now_ms, cells);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(map: &mut HeatMap, now_ms: i64, counts: &[(&str, u64, u64)]) {
        let counts = counts.iter().map(|(name, reads, writes)| {
            let key = move || RegionKey {
                table: "t".into(),
                start: name.as_bytes().to_vec(),
                end: Vec::new(),
                encoded: (*name).to_owned(),
            };
            (*name, key, *reads, *writes)
        });
        map.add_counts(now_ms, counts);
    }

    #[test]
    fn a_column_counts_requests_since_the_last() {
        let mut map = HeatMap::default();
        add(&mut map, 0, &[("a", 100, 0), ("b", 5, 5)]);
        assert_eq!(map.columns().len(), 0, "nothing is known of the time before");
        add(&mut map, 5_000, &[("a", 200, 50), ("b", 5, 5), ("new", 9, 9)]);
        let column = map.columns().next().expect("a column");
        assert_eq!(column.cells.len(), 1, "regions without requests take no room");
        assert_eq!((column.cells[0].reads, column.cells[0].writes), (20.0, 10.0));
        add(&mut map, 10_000, &[("new", 9, 9)]);
        add(&mut map, 15_000, &[("a", 3, 0), ("new", 9, 9)]);
        assert!(
            map.columns().all(|column| column.at_ms != 15_000 || column.cells.is_empty()),
            "opened again"
        );
    }

    #[test]
    fn idle_regions_are_not_sampled() {
        let mut map = HeatMap::default();
        let mut looks = |stamp: (u64, u64)| {
            let (stamp, mut has_looked) = (StateVersion { requests: stamp.0, regions: stamp.1 }, false);
            map.add(5_000, stamp, || {
                has_looked = true;
                Vec::new()
            });
            has_looked
        };
        assert!(looks((7, 1)) && looks((7, 1)), "the first look makes no column");
        assert!(!looks((7, 1)) && !looks((7, 1)));
        assert!(looks((8, 1)), "a request");
        assert!(!looks((8, 1)));
        assert!(looks((8, 2)), "a region");
        assert!(!looks((8, 2)));
        assert_eq!(map.columns().len(), 7, "a column without regions each time");
    }

    #[test]
    fn a_running_request_is_sampled_until_it_ends() {
        let mut map = HeatMap::default();
        let stamp = StateVersion { requests: 1, regions: 1 };
        add(&mut map, 0, &[("a", 0, 0)]);
        map.is_quiet(stamp);
        add(&mut map, 5_000, &[("a", 10, 0)]);
        assert!(!map.is_quiet(stamp), "it read rows in the last column");
        add(&mut map, 10_000, &[("a", 10, 0)]);
        assert!(map.is_quiet(stamp));
    }

    #[test]
    fn columns_and_their_regions_are_bounded() {
        let mut map = HeatMap::default();
        let names: Vec<String> = (0..600).map(|number| format!("r{number}")).collect();
        for round in 0..130_u64 {
            let counts: Vec<_> =
                names.iter().zip(1_u64..).map(|(name, weight)| (name.as_str(), round * weight, 0)).collect();
            add(&mut map, i64::try_from(round).unwrap() * 5_000, &counts);
        }
        assert_eq!(map.columns().len(), COLUMNS);
        let column = map.columns().last().expect("a column");
        assert_eq!((column.cells.len(), column.cells[0].region.encoded.as_str()), (REGIONS_MAX, "r599"));
    }
}
