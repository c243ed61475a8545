//! The power is cut in the middle of any call of a server, repeatedly, also while it starts.
//!
//! One seed is one history: writes, flushes in memory and to files, compactions and rolled logs,
//! until the power is cut at a call that the seed chose. What was synced stays. A part of what was
//! only flushed stays, cut anywhere. Then the server starts, possibly into the next cut, and every
//! row must read as promised. A seed selects one region or two, a kind of in-memory compaction, and
//! a log; each life has one of the compaction engines, over the files that the others left. A
//! quarter of the seeds have the store file tracker FILE, and another quarter goes from DEFAULT to
//! FILE and back, one step in each life or stays. A fifth of the seeds have the values of a family
//! in MOB files, which are deleted as soon as nothing refers to them. While a flush or a
//! compaction writes a file, its thread writes rows, and deletes MOB files, between two of its
//! calls, so that the seed determines when.
//!
//! | the log | promise for an acknowledged write |
//! |---|---|
//! | `hbase.wal.hsync` is true | it is there, whole; nothing that it replaced or deleted is back |
//! | it is false, FSYNC_WAL | the same for each of its cells |
//! | it is false, SYNC_WAL | nothing until its region has flushed, then the same for each cell |
//!
//! The last line is HBase's promise for `hflush` on one machine: what only the kernel has is lost
//! with the kernel. Each cell has the value of a write that is no older than the last durable one;
//! so no value comes from before an FSYNC_WAL or a flush, or from nowhere. The
//! one write that the cut interrupted may or may not exist; with `hsync`, never half of it. Without
//! it, one of two families may be flushed before the cut, while the log with the other half is
//! lost.
//!
//! Calls in which the power was cut are counted by operation and place ([`crate::watched`]); the
//! test fails if the seeds miss a step of an append, a roll, a flush, a compaction or the way to
//! the archive.
//!
//! `EVENKEEL_POWER_CUTS` is the number of seeds, `EVENKEEL_POWER_CUT_SEED` the first of them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use evenkeel_common::clock::ManualClock;
use evenkeel_common::mob::mob_archive_dir;
use evenkeel_common::{Durability, KeyValue};
use evenkeel_fs::{FaultyFileSystem, FileSystem, SurvivingData};
use evenkeel_region::operations::{Mutation, MutationKind};
use evenkeel_region::region::{MobCleaner, Region};
use evenkeel_region::store_file_tracker::{MIGRATION_DST_IMPL, MIGRATION_SRC_IMPL, TRACKER_IMPL};
use evenkeel_wal::WalConfig;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::harness::{Cluster, IN_MEMORY_COMPACTIONS, ROOT, increment, put, values};
use crate::watched::{Call, Directory};

const SEEDS: u64 = 1500;
const LIVES: usize = 4;
const ROWS: usize = 6;
/// The maximum number of calls to the file system in one life before the power is cut.
const CALLS_MAX: u64 = 120;

/// Rows from here on are in the second region, if there are two.
const SPLIT: &[u8] = b"r3";

/// The possible values of a cell: the last write that must stay, and all later ones. Any of them
/// may be found.
#[derive(Clone, Debug)]
struct Window<T> {
    values: Vec<T>,
    /// The number of values so far, including those that can no longer be found.
    noted: usize,
}

impl<T: Clone + Debug + PartialEq> Window<T> {
    fn new(value: T) -> Self {
        Self { values: vec![value], noted: 1 }
    }

    fn now(&self) -> &T {
        &self.values[self.values.len() - 1]
    }

    /// Records an acknowledged write.
    fn note(&mut self, value: T, stays: bool) {
        if stays {
            self.values.clear();
        }
        self.values.push(value);
        self.noted += 1;
    }

    /// Records that the last of this many writes must stay.
    fn settle(&mut self, noted: usize) {
        let left_out = self.noted - self.values.len();
        self.values.drain(..noted.saturating_sub(left_out + 1));
    }
}

/// A row: the value of its two cells, in a family each, and the sum of its increments.
#[derive(Clone, Debug)]
struct Row {
    a: Window<Option<String>>,
    b: Window<Option<String>>,
    sum: Window<i64>,
}

impl Default for Row {
    fn default() -> Self {
        Self { a: Window::new(None), b: Window::new(None), sum: Window::new(0) }
    }
}

/// The changes of a write to a row's value and sum, `None` if unchanged.
#[derive(Clone, Debug)]
struct Change {
    row: String,
    value: Option<Option<String>>,
    sum: Option<i64>,
}

/// Settings under which few cells suffice to be compacted into stripes or windows.
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

/// The trackers of the lives of a table: name, source and destination of a migration.
const TRACKERS: [[&str; 3]; 4] = [
    ["MIGRATION", "DEFAULT", "FILE"],
    ["FILE", "", ""],
    ["MIGRATION", "FILE", "DEFAULT"],
    ["DEFAULT", "", ""],
];

/// How a table's files are tracked.
enum Trackers {
    /// As it was created.
    Stays,
    /// Changes between lives: the index of the next one in [`TRACKERS`].
    Next(usize, SmallRng),
}

/// What was written, and the source of further writes.
struct Writes {
    random: SmallRng,
    /// True if every write is synced.
    hsync: bool,
    rows: BTreeMap<String, Row>,
    /// The write that the cut interrupted: it may or may not exist.
    in_doubt: Option<Change>,
    writes: u64,
    /// The number of writes made while a file was written.
    meanwhile: u64,
}

impl Writes {
    /// Makes a write in the region that `region_of` returns, unless the power is off.
    fn write(&mut self, fs: &FaultyFileSystem, region_of: impl Fn(&str) -> Arc<Region>) {
        if fs.is_powered_off() {
            return;
        }
        let name = format!("r{}", self.random.random_range(0..ROWS));
        let (mut mutation, change) = self.choose(&name);
        let fsync = !self.hsync && self.random.random_bool(0.3);
        mutation.durability = if fsync { Durability::FsyncWal } else { Durability::SyncWal };
        match region_of(&name).mutate_wait(mutation) {
            Ok(_) => self.acknowledge(change, self.hsync || fsync),
            Err(error) => {
                assert!(fs.is_powered_off(), "a write failed with the power on: {error}");
                self.in_doubt = Some(change);
            }
        }
    }

    fn choose(&mut self, name: &str) -> (Mutation, Change) {
        self.writes += 1;
        let mut change = Change { row: name.to_owned(), value: None, sum: None };
        let mutation = match self.random.random_range(0..8) {
            0 => {
                (change.value, change.sum) = (Some(None), Some(0));
                Mutation::new(MutationKind::Delete, name.to_owned(), Vec::<KeyValue>::new())
            }
            1 | 2 => {
                change.sum = Some(self.rows.get(name).map_or(0, |row| *row.sum.now()) + 1);
                increment(name, "n", "q", 1)
            }
            _ => {
                // Large ones, too, so that a cut hits a write.
                let value = format!("{}{}", self.writes, "x".repeat(self.random.random_range(0..300)));
                change.value = Some(Some(value.clone()));
                put(name, &[("a", "q", &value), ("b", "q", &value)])
            }
        };
        (mutation, change)
    }

    fn acknowledge(&mut self, change: Change, stays: bool) {
        let row = self.rows.entry(change.row).or_default();
        if let Some(value) = change.value {
            row.a.note(value.clone(), stays);
            row.b.note(value, stays);
        }
        if let Some(sum) = change.sum {
            row.sum.note(sum, stays);
        }
    }
}

struct Simulation {
    cluster: Cluster,
    /// True if a family has all values in MOB files.
    has_mob: bool,
    random: SmallRng,
    trackers: Trackers,
    writes: Arc<Mutex<Writes>>,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let roll_bytes = if random.random_bool(0.3) { 600 } else { 1 << 20 };
        let hsync = random.random_bool(0.7);
        let config = WalConfig { hsync, roll_bytes, ..WalConfig::default() };
        let mut cluster = Cluster::with_wal(&[(b"a", 1), (b"b", 1), (b"n", 1)], config);
        let in_memory = IN_MEMORY_COMPACTIONS[random.random_range(0..IN_MEMORY_COMPACTIONS.len())];
        cluster = cluster.compacting(in_memory);
        if random.random_bool(0.4) {
            cluster = cluster.split_at(SPLIT);
        }
        let trackers = match seed % 4 {
            1 => {
                cluster.alter(&[(TRACKER_IMPL, "FILE")]);
                cluster.restart();
                Trackers::Stays
            }
            3 => Trackers::Next(0, SmallRng::seed_from_u64(seed)),
            _ => Trackers::Stays,
        };
        let has_mob = seed % 5 == 2;
        if has_mob {
            cluster.alter_family("a", &[("IS_MOB", "true"), ("MOB_THRESHOLD", "0")]);
            cluster.restart();
        }
        cluster.watch.begin();
        let writes = Writes {
            random: SmallRng::seed_from_u64(random.random()),
            hsync,
            rows: BTreeMap::new(),
            in_doubt: None,
            writes: 0,
            meanwhile: 0,
        };
        Self { cluster, has_mob, random, trackers, writes: Arc::new(Mutex::new(writes)) }
    }

    /// Works until the power is cut.
    fn live(&mut self) {
        self.cluster.fs.cut_power_after(self.random.random_range(1..CALLS_MAX));
        while !self.cluster.fs.is_powered_off() {
            self.cluster.clock.advance_ms(1);
            let regions = self.cluster.regions();
            let region = Arc::clone(&regions[self.random.random_range(0..regions.len())]);
            match self.random.random_range(0..22) {
                0 | 1 => {
                    self.flush(&region);
                    if self.has_mob {
                        clean_mob_files(&self.cluster.fs, self.cluster.regions());
                    }
                }
                2 => {
                    self.write_in_the_middle();
                    drop(region.compact(None, self.random.random_bool(0.5)));
                    self.cluster.watch.forget_work();
                }
                3 => drop(self.cluster.wal().roll()),
                4 | 5 => drop(region.flush_in_memory()),
                _ => {
                    self.writes.lock().write(&self.cluster.fs, |row| Arc::clone(self.cluster.region_of(row)))
                }
            }
        }
    }

    /// Flushes. Earlier writes must stay from then on.
    fn flush(&mut self, region: &Arc<Region>) {
        let before = self.writes.lock().rows.clone();
        self.write_in_the_middle();
        let flushed = region.flush().is_ok();
        self.cluster.watch.forget_work();
        if !flushed {
            return;
        }
        let rows = &mut self.writes.lock().rows;
        for (name, before) in
            before.iter().filter(|(name, _)| Arc::ptr_eq(self.cluster.region_of(name), region))
        {
            let row = rows.entry(name.clone()).or_default();
            row.a.settle(before.a.noted);
            row.b.settle(before.b.noted);
            row.sum.settle(before.sum.noted);
        }
    }

    /// Writes rows before some call on the files that are written next.
    fn write_in_the_middle(&mut self) {
        let (calls, count) = (self.random.random_range(1..12), self.random.random_range(1..4));
        let regions: Vec<_> = self.cluster.regions().to_vec();
        let (fs, clock) = (self.cluster.fs.clone(), Arc::clone(&self.cluster.clock));
        let (writes, has_mob) = (Arc::clone(&self.writes), self.has_mob);
        let work = move || {
            write_some(count, &fs, &clock, &regions, &mut writes.lock());
            if has_mob {
                clean_mob_files(&fs, &regions);
            }
        };
        self.cluster.watch.in_the_middle(calls, Box::new(work));
    }

    /// Restores the power, which may be cut again before the server is up.
    fn start(&mut self) {
        let keep = if self.random.random_bool(0.3) {
            SurvivingData::Synced
        } else {
            SurvivingData::Torn(self.random.random())
        };
        self.cluster.die(keep);
        self.choose_engine();
        self.change_tracker();
        while self.random.random_bool(0.3) {
            self.cluster.fs.cut_power_after(self.random.random_range(1..40));
            if self.cluster.try_start().is_ok() && !self.cluster.fs.is_powered_off() {
                self.cluster.fs.clear();
                return;
            }
            self.cluster.die(SurvivingData::Torn(self.random.random()));
        }
        self.cluster.start();
    }

    fn choose_engine(&mut self) {
        let class = ENGINE_CLASSES[self.random.random_range(0..ENGINE_CLASSES.len())];
        let class = format!("org.apache.hadoop.hbase.regionserver.{class}");
        self.cluster.alter(&[("hbase.hstore.engine.class", &class)]);
        self.cluster.alter(&ENGINES);
    }

    /// Makes the next step of the trackers, or none.
    fn change_tracker(&mut self) {
        let Trackers::Next(next, random) = &mut self.trackers else { return };
        if random.random_bool(0.7) {
            let [tracker, src, dst] = TRACKERS[*next % TRACKERS.len()];
            *next += 1;
            self.cluster.alter(&[
                (TRACKER_IMPL, tracker),
                (MIGRATION_SRC_IMPL, src),
                (MIGRATION_DST_IMPL, dst),
            ]);
        }
    }

    fn check(&mut self, context: &str) {
        let mut writes = self.writes.lock();
        let in_doubt = writes.in_doubt.take();
        for name in (0..ROWS).map(|row| format!("r{row}")) {
            let promised = writes.rows.get(&name).cloned().unwrap_or_default();
            let doubtful = in_doubt.as_ref().filter(|change| change.row == name);
            let found = self.read(&name);
            let value_is = |window: &Window<Option<String>>, found: &Option<String>| {
                window.values.contains(found)
                    || doubtful.and_then(|change| change.value.as_ref()).is_some_and(|value| value == found)
            };
            let sum_is = promised.sum.values.contains(&found.sum)
                || doubtful.is_some_and(|change| change.sum == Some(found.sum));
            assert!(
                value_is(&promised.a, &found.a) && value_is(&promised.b, &found.b) && sum_is,
                "{context}, {name}: {found:?} and not {promised:?} (in doubt: {doubtful:?})"
            );
            assert!(found.a == found.b || !writes.hsync, "{context}, {name}: half a write: {found:?}");
            let (a, b, sum) = (Window::new(found.a), Window::new(found.b), Window::new(found.sum));
            writes.rows.insert(name, Row { a, b, sum });
        }
    }

    fn read(&self, row: &str) -> Found {
        let cells = self.cluster.row(row);
        let of = |family: &str| {
            let cells: Vec<_> =
                cells.iter().filter(|cell| cell.contains(&format!("/{family}:"))).cloned().collect();
            values(&cells).first().map(|value| (*value).to_owned())
        };
        let sum = of("n").map_or(0, |value| number(value.as_bytes()));
        Found { a: of("a"), b: of("b"), sum }
    }
}

/// The content of a row as it was read.
#[derive(Debug)]
struct Found {
    a: Option<String>,
    b: Option<String>,
    sum: i64,
}

/// Archives MOB files without references, whatever their age, and empties their archive, so that no
/// read finds them there.
fn clean_mob_files(fs: &FaultyFileSystem, regions: &[Arc<Region>]) {
    let mut cleaner = MobCleaner::default();
    for _ in 0..2 {
        cleaner.clean(regions.to_vec(), -1_000_000, &|_| true);
    }
    if let Some(region) = regions.first() {
        drop(fs.delete(&mob_archive_dir(Path::new(ROOT), region.info().table(), "a")));
    }
}

fn write_some(
    count: u64,
    fs: &FaultyFileSystem,
    clock: &ManualClock,
    regions: &[Arc<Region>],
    writes: &mut Writes,
) {
    for _ in 0..count {
        clock.advance_ms(1);
        let is_in = |row: &str, region: &&Arc<Region>| region.info().start_key() <= row.as_bytes();
        let region_of =
            |row: &str| Arc::clone(regions.iter().rfind(|region| is_in(row, region)).expect("one"));
        writes.write(fs, region_of);
        writes.meanwhile += 1;
    }
}

fn number(bytes: &[u8]) -> i64 {
    i64::from_be_bytes(bytes.try_into().expect("eight bytes"))
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

/// Calls in which the power must have been cut.
const STEPS: [Call; 26] = [
    // Writes.
    ("append", Directory::Logs, None),
    ("flush", Directory::Logs, None),
    ("sync", Directory::Logs, None),
    // A log is rolled and archived, or split and archived.
    ("create", Directory::Logs, None),
    ("rename", Directory::Logs, Some(Directory::OldLogs)),
    ("delete", Directory::Logs, None),
    // Flushes and compactions.
    ("create", Directory::Tmp, None),
    ("append", Directory::Tmp, None),
    ("sync", Directory::Tmp, None),
    ("rename", Directory::Tmp, Some(Directory::Region)),
    ("delete", Directory::Tmp, None),
    // The same without a temporary directory.
    ("create", Directory::Region, None),
    ("append", Directory::Region, None),
    ("sync", Directory::Region, None),
    // Lists of store files.
    ("create", Directory::Lists, None),
    ("append", Directory::Lists, None),
    ("sync", Directory::Lists, None),
    ("rename", Directory::Lists, Some(Directory::Lists)),
    ("delete", Directory::Lists, None),
    // Files that were replaced.
    ("mkdirs", Directory::Archive, None),
    ("touch", Directory::Region, None),
    ("rename", Directory::Region, Some(Directory::Archive)),
    // A region is opened after a death.
    ("create", Directory::RecoveredEdits, None),
    ("append", Directory::RecoveredEdits, None),
    ("sync", Directory::RecoveredEdits, None),
    ("rename", Directory::RecoveredEdits, Some(Directory::RecoveredEdits)),
];

#[test]
fn acknowledged_writes_survive_a_power_cut_at_any_step() {
    let (first, seeds) = (setting("EVENKEEL_POWER_CUT_SEED", 0), setting("EVENKEEL_POWER_CUTS", SEEDS));
    let (mut cuts, mut meanwhile) = (BTreeMap::<Call, u64>::new(), 0);
    for seed in first..first + seeds {
        let mut simulation = Simulation::new(seed);
        for life in 0..LIVES {
            let context = format!("EVENKEEL_POWER_CUT_SEED={seed}, life {life}");
            simulation.live();
            simulation.start();
            simulation.check(&context);
        }
        meanwhile += simulation.writes.lock().meanwhile;
        for (call, count) in simulation.cluster.watch.cuts() {
            *cuts.entry(call).or_default() += count;
        }
    }
    cuts.iter().for_each(|(call, count)| println!("{count:6} {call:?}"));
    println!("{meanwhile} writes while a file was written");
    if seeds >= SEEDS {
        let left_out: Vec<_> = STEPS.iter().filter(|call| !cuts.contains_key(call)).collect();
        assert!(left_out.is_empty(), "the power never went in {left_out:?}");
        assert!(meanwhile > seeds, "{meanwhile} writes while a file was written");
    }
}
