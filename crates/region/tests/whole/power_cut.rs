//! The power is cut in the middle of whatever a region does, again and again, also while it starts.
//!
//! One seed is one history: writes, flushes, compactions and rolled logs, until the power goes at a call that the seed
//! chose. What was synced stays; of what was only flushed some part does, cut anywhere. Then the server starts, perhaps
//! into the next cut, and every row must read as it was acknowledged. The one write that the cut met may have been made or
//! not, but not half. Each life has one of the engines of compaction, over the files that the others left.
//!
//! `EVENKEEL_POWER_CUTS` is the number of seeds, `EVENKEEL_POWER_CUT_SEED` the first of them.

use std::collections::BTreeMap;

use evenkeel_common::KeyValue;
use evenkeel_fs::Keep;
use evenkeel_region::ops::{Mutation, MutationKind};
use evenkeel_wal::WalConfig;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::harness::{Cluster, increment, put, values};

const SEEDS: u64 = 1000;
const LIVES: usize = 4;
const ROWS: usize = 6;
/// Calls to the file system in one life at most, until the power goes.
const CALLS_MAX: u64 = 120;

/// What a row holds: the value of its two cells, in a family each, and the sum of its increments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    value: Option<String>,
    sum: i64,
}

/// What a step did to a row.
#[derive(Clone, Debug)]
struct Change {
    row: String,
    after: Row,
}

/// Settings under which so few cells are compacted into stripes or windows.
const ENGINES: [(&str, &str); 9] = [
    ("hbase.hstore.compaction.min", "2"),
    ("hbase.store.stripe.initialStripeCount", "3"),
    ("hbase.store.stripe.compaction.minFilesL0", "2"),
    ("hbase.store.stripe.compaction.minFiles", "2"),
    ("hbase.store.stripe.sizeToSplit", "14000"),
    ("hbase.hstore.compaction.date.tiered.base.window.millis", "10"),
    ("hbase.hstore.compaction.date.tiered.windows.per.tier", "2"),
    ("hbase.hstore.compaction.date.tiered.incoming.window.min", "2"),
    ("hbase.hstore.compaction.date.tiered.single.output.for.minor.compaction", "false"),
];

/// The engine of a life.
const ENGINE_CLASSES: [&str; 3] = ["DefaultStoreEngine", "StripeStoreEngine", "DateTieredStoreEngine"];

struct Simulation {
    cluster: Cluster,
    random: SmallRng,
    /// As acknowledged.
    rows: BTreeMap<String, Row>,
    /// The write that the cut met: made or not.
    in_doubt: Option<Change>,
    writes: u64,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let roll_bytes = if random.random_bool(0.3) { 600 } else { 1 << 20 };
        let config = WalConfig { hsync: true, roll_bytes, ..WalConfig::default() };
        Self {
            cluster: Cluster::with_wal(&[(b"a", 1), (b"b", 1), (b"n", 1)], config),
            random,
            rows: BTreeMap::new(),
            in_doubt: None,
            writes: 0,
        }
    }

    /// Works until the power goes.
    fn live(&mut self) {
        self.cluster.fs.cut_power_after(self.random.random_range(1..CALLS_MAX));
        while !self.cluster.fs.is_dark() {
            self.cluster.clock.advance_ms(1);
            match self.random.random_range(0..20) {
                0 | 1 => drop(self.cluster.region().flush()),
                2 => drop(self.cluster.region().compact(None, self.random.random_bool(0.5))),
                3 => drop(self.cluster.wal().roll()),
                _ => self.write(),
            }
        }
    }

    fn write(&mut self) {
        let name = format!("r{}", self.random.random_range(0..ROWS));
        let mut after = self.rows.get(&name).cloned().unwrap_or_default();
        self.writes += 1;
        let mutation = match self.random.random_range(0..8) {
            0 => {
                after = Row::default();
                Mutation::new(MutationKind::Delete, name.clone(), Vec::<KeyValue>::new())
            }
            1 | 2 => {
                after.sum += 1;
                increment(&name, "n", "q", 1)
            }
            _ => {
                // Large ones, too, so that a cut falls into a write.
                let value = format!("{}{}", self.writes, "x".repeat(self.random.random_range(0..300)));
                after.value = Some(value.clone());
                put(&name, &[("a", "q", &value), ("b", "q", &value)])
            }
        };
        let change = Change { row: name, after };
        match self.cluster.region().mutate_wait(mutation) {
            Ok(_) => drop(self.rows.insert(change.row, change.after)),
            Err(error) => {
                assert!(self.cluster.fs.is_dark(), "a write failed with the power on: {error}");
                self.in_doubt = Some(change);
            }
        }
    }

    /// The power comes back, and may go again before the server is up.
    fn start(&mut self) {
        let keep = if self.random.random_bool(0.3) { Keep::Synced } else { Keep::Torn(self.random.random()) };
        self.cluster.die(keep);
        self.choose_engine();
        while self.random.random_bool(0.3) {
            self.cluster.fs.cut_power_after(self.random.random_range(1..40));
            if self.cluster.try_start().is_ok() && !self.cluster.fs.is_dark() {
                self.cluster.fs.clear();
                return;
            }
            self.cluster.die(Keep::Torn(self.random.random()));
        }
        self.cluster.start();
    }

    fn choose_engine(&mut self) {
        let class = ENGINE_CLASSES[self.random.random_range(0..ENGINE_CLASSES.len())];
        let class = format!("org.apache.hadoop.hbase.regionserver.{class}");
        self.cluster.alter(&[("hbase.hstore.engine.class", &class)]);
        self.cluster.alter(&ENGINES);
    }

    fn check(&mut self, context: &str) {
        for row in (0..ROWS).map(|row| format!("r{row}")) {
            let found = self.read(&row, context);
            let acknowledged = self.rows.get(&row).cloned().unwrap_or_default();
            let doubtful =
                self.in_doubt.as_ref().filter(|change| change.row == row).map(|change| &change.after);
            assert!(
                found == acknowledged || Some(&found) == doubtful,
                "{context}, {row}: {found:?} and not {acknowledged:?} (in doubt: {doubtful:?})"
            );
            self.rows.insert(row, found);
        }
        self.in_doubt = None;
    }

    fn read(&self, row: &str, context: &str) -> Row {
        let cells = self.cluster.row(row);
        let of = |family: &str| {
            let cells: Vec<_> =
                cells.iter().filter(|cell| cell.contains(&format!("/{family}:"))).cloned().collect();
            values(&cells).first().map(|value| (*value).to_owned())
        };
        assert_eq!(of("a"), of("b"), "{context}, {row}: half a write: {cells:?}");
        let sum = of("n").map_or(0, |value| number(value.as_bytes()));
        Row { value: of("a"), sum }
    }
}

fn number(bytes: &[u8]) -> i64 {
    i64::from_be_bytes(bytes.try_into().expect("eight bytes"))
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

#[test]
fn what_was_acknowledged_survives_a_power_cut_at_any_step() {
    let first = setting("EVENKEEL_POWER_CUT_SEED", 0);
    for seed in first..first + setting("EVENKEEL_POWER_CUTS", SEEDS) {
        let mut simulation = Simulation::new(seed);
        for life in 0..LIVES {
            let context = format!("EVENKEEL_POWER_CUT_SEED={seed}, life {life}");
            simulation.live();
            simulation.start();
            simulation.check(&context);
        }
    }
}
