//! [`Rates`]: the rates between two snapshots of a server.

use crate::snapshot::{OPERATIONS, RegionFigures, ServerFigures, Snapshot, TableFigures};

/// See the module's documentation. All rates are per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// The server as a whole.
    pub server: ServerRates,
    /// Tables, the busiest first.
    pub tables: Vec<TableRates>,
    /// Regions, the busiest first.
    pub regions: Vec<RegionRates>,
}

/// Rates of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerRates {
    /// Operations.
    pub requests: f64,
    /// Read requests.
    pub reads: f64,
    /// Write requests.
    pub writes: f64,
    /// The fraction of block cache lookups that hit; `None` without lookups.
    pub cache_hits: Option<f64>,
    /// Blocks that were evicted.
    pub evictions: f64,
    /// Bytes that flushes wrote.
    pub flushed_bytes: f64,
    /// Bytes that compactions wrote.
    pub compacted_bytes: f64,
    /// The fraction of the time in which writes were held or rejected.
    pub blocked: f64,
    /// Slow requests.
    pub slow: f64,
}

/// Rates of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableRates {
    /// Its name.
    pub name: String,
    /// Read requests.
    pub reads: f64,
    /// Write requests.
    pub writes: f64,
    /// For each of [`OPERATIONS`], whether there were any.
    pub has: [bool; OPERATIONS.len()],
    /// The current figures of the table.
    pub now: TableFigures,
}

/// Rates of a region.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RegionRates {
    /// Its encoded name.
    pub name: String,
    /// Read requests.
    pub reads: f64,
    /// Write requests.
    pub writes: f64,
    /// The current figures of the region.
    pub now: RegionFigures,
}

impl Rates {
    /// Computes the rates between a snapshot and a later one. If the server was restarted between
    /// them, its counters count from 0.
    pub fn between(before: &Snapshot, now: &Snapshot) -> Self {
        let seconds = now.at.saturating_duration_since(before.at).as_secs_f64().max(1e-3);
        let name = |snapshot: &Snapshot| snapshot.server.as_ref().map(|server| server.name.clone());
        let is_same = name(before) == name(now);
        let per_second = |before: f64, now: f64| growth(before, now) / seconds;
        let server = now.server.as_ref().map(|server| {
            let none = ServerFigures::default();
            let earlier = before.server.as_ref().filter(|_| is_same).unwrap_or(&none);
            ServerRates::between(earlier, server, seconds)
        });
        let mut tables: Vec<_> = now
            .tables
            .iter()
            .map(|(name, table)| {
                let none = TableFigures::default();
                let earlier = before.tables.get(name).filter(|_| is_same).unwrap_or(&none);
                let mut has = [false; OPERATIONS.len()];
                let counts = earlier.operations.iter().zip(&table.operations);
                has.iter_mut()
                    .zip(counts)
                    .for_each(|(has, (before, now))| *has = growth(before.count, now.count) > 0.0);
                TableRates {
                    name: name.clone(),
                    reads: per_second(earlier.reads, table.reads),
                    writes: per_second(earlier.writes, table.writes),
                    has,
                    now: table.clone(),
                }
            })
            .collect();
        tables.sort_by(|a, b| (b.reads + b.writes).total_cmp(&(a.reads + a.writes)));
        let mut regions: Vec<_> = now
            .regions
            .iter()
            .map(|(name, region)| {
                let none = RegionFigures::default();
                let earlier = before.regions.get(name).filter(|_| is_same).unwrap_or(&none);
                RegionRates {
                    name: name.clone(),
                    reads: per_second(earlier.reads, region.reads),
                    writes: per_second(earlier.writes, region.writes),
                    now: region.clone(),
                }
            })
            .collect();
        regions.sort_by(|a, b| (b.reads + b.writes).total_cmp(&(a.reads + a.writes)));
        Self { server: server.unwrap_or_default(), tables, regions }
    }
}

impl ServerRates {
    fn between(before: &ServerFigures, now: &ServerFigures, seconds: f64) -> Self {
        let rate = |of: fn(&ServerFigures) -> f64| growth(of(before), of(now)) / seconds;
        let hits = growth(before.cache.hits, now.cache.hits);
        let lookups = hits + growth(before.cache.misses, now.cache.misses);
        Self {
            requests: rate(|server| server.requests),
            reads: rate(|server| server.reads),
            writes: rate(|server| server.writes),
            cache_hits: (lookups > 0.0).then(|| hits / lookups),
            evictions: rate(|server| server.cache.evictions),
            flushed_bytes: rate(|server| server.flushed_bytes),
            compacted_bytes: rate(|server| server.compacted_bytes),
            blocked: rate(|server| server.blocked_ms / 1000.0).min(1.0),
            slow: rate(|server| server.slow_requests),
        }
    }
}

/// Returns how much a counter grew. A counter that has become smaller has restarted at 0.
fn growth(before: f64, now: f64) -> f64 {
    if now >= before { now - before } else { now }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::snapshot;

    #[test]
    fn rates_are_differences_by_the_time_between() {
        let rates = Rates::between(&snapshot(100, 0), &snapshot(300, 2000));
        assert_eq!((rates.server.requests, rates.server.reads, rates.server.writes), (1100.0, 1000.0, 100.0));
        assert_eq!(rates.server.cache_hits, Some(0.9));
        let names: Vec<_> = rates.tables.iter().map(|table| (table.name.as_str(), table.reads)).collect();
        assert_eq!(names, [("trail", 1000.0), ("ns:a_table_b", 0.0)], "the busiest first");
        assert_eq!(rates.tables[0].has, [true, true, false]);
        assert_eq!((rates.regions[0].reads, rates.regions[0].writes), (1000.0, 100.0));
    }

    #[test]
    fn a_reset_counter_counts_from_zero() {
        let rates = Rates::between(&snapshot(300, 0), &snapshot(100, 1000));
        assert_eq!(rates.server.writes, 100.0);
        let mut restarted = snapshot(500, 1000);
        restarted.server.as_mut().expect("a server").name = "rs1,16020,1800000000000".to_owned();
        let rates = Rates::between(&snapshot(300, 0), &restarted);
        assert_eq!((rates.server.writes, rates.regions[0].writes), (500.0, 500.0), "another process");
        let idle = Rates::between(&snapshot(300, 0), &snapshot(300, 1000));
        assert_eq!((idle.server.requests, idle.server.cache_hits), (0.0, None));
    }
}
