//! Random histories of a whole cluster against a naive model of its tables: cells written, flushed
//! and compacted, families added and deleted, tables and regions truncated, tables deleted and
//! created again, snapshots restored and cloned, regions split, merged and moved, processes that
//! die. The model holds what must exist and what must not: data of a deleted family or table, or of
//! a state that was reverted, never comes back.
//!
//! The clock stands still unless a cell is written, so that changes share a millisecond.
//!
//! `EVENKEEL_SCHEMA_HISTORIES` is the number of seeds, `EVENKEEL_SCHEMA_SEED` the first of them.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::*;

const SEEDS: u64 = 12;
const STEPS: usize = 90;
const TABLES: [&str; 2] = ["one", "two"];
const FAMILIES: [&str; 3] = ["a", "b", "c"];
const ROWS: [&str; 6] = ["a", "c", "g", "m", "t", "z"];

/// Values by row and family.
type Cells = BTreeMap<(&'static str, &'static str), String>;

#[derive(Clone, Debug, Default)]
struct Content {
    families: BTreeSet<&'static str>,
    cells: Cells,
}

#[derive(Clone, Debug)]
struct ModelTable {
    is_enabled: bool,
    content: Content,
}

struct History {
    cluster: Cluster,
    random: StdRng,
    tables: BTreeMap<&'static str, ModelTable>,
    snapshots: BTreeMap<String, Content>,
    /// The operations so far.
    log: Vec<String>,
    counter: usize,
}

fn name_of(table: &str) -> TableName {
    table.parse().expect("legal")
}

fn family(name: &str) -> ColumnFamilyDescriptor {
    ColumnFamilyDescriptor::new(name.as_bytes()).expect("legal")
}

fn descriptor(table: &str, families: &BTreeSet<&'static str>) -> TableDescriptor {
    let empty = TableDescriptor::new(name_of(table));
    families.iter().fold(empty, |table, name| table.with_family(family(name)))
}

fn snapshot_of(name: &str, table: &str) -> pb::SnapshotDescription {
    pb::SnapshotDescription { name: name.into(), table: Some(table.into()), ..Default::default() }
}

impl History {
    fn new(seed: u64) -> Self {
        Self {
            cluster: Cluster::new(),
            random: StdRng::seed_from_u64(seed),
            tables: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            log: Vec::new(),
            counter: 0,
        }
    }

    fn run(&mut self, what: &str, submit: impl FnOnce(&Arc<Master>) -> Result<u64>) {
        self.log.push(what.to_owned());
        let outcome = self.cluster.run(submit);
        outcome.unwrap_or_else(|error| panic!("{what}: {error}\n{}", self.told()));
    }

    fn told(&self) -> String {
        self.log.join("\n")
    }

    fn table(&mut self, name: &str) -> &mut ModelTable {
        self.tables.get_mut(name).expect("there")
    }

    fn step(&mut self) {
        let name = *TABLES.choose(&mut self.random).expect("not empty");
        let Some(table) = self.tables.get(name).cloned() else {
            return self.make(name);
        };
        match (self.random.random_range(0..40), table.is_enabled) {
            (0..18, true) => self.write(name, &table.content),
            (18, true) => self.flush(name),
            (19, true) => self.compact(name),
            (20 | 21, true) => self.split(name),
            (22, true) => self.merge(name),
            (23, true) => self.move_region(name),
            (37, true) => self.truncate_region(name),
            (24, true) => self.disable(name),
            (25, true) => self.die_while_disabling(name),
            (0..8, false) => self.enable(name),
            (8..12, false) => self.truncate(name),
            (12..16, false) => self.make_again(name, &table.content),
            (16..20, false) => self.restore(name),
            (26..30, _) => self.change_families(name, &table.content),
            (30 | 31, _) => self.take(name, &table.content),
            (32, _) => self.cluster.master().run_catalog_janitor().map(drop).expect("ran"),
            (33..37, _) => self.die(),
            _ => {}
        }
    }

    fn make(&mut self, name: &'static str) {
        let of_other: Vec<_> = self.snapshots.keys().cloned().collect();
        if let Some(snapshot) = of_other.choose(&mut self.random).filter(|_| self.random.random_bool(0.5)) {
            let (snapshot, content) = (snapshot.clone(), self.snapshots[snapshot].clone());
            let wanted = snapshot_of(&snapshot, name);
            self.run(&format!("clone {snapshot} to {name}"), |master| {
                master.restore_or_clone_snapshot(&wanted, None, NO_NONCE)
            });
            self.tables.insert(name, ModelTable { is_enabled: true, content });
            return;
        }
        let mut families = BTreeSet::from([*FAMILIES.choose(&mut self.random).expect("not empty")]);
        families.extend(FAMILIES.iter().filter(|_| self.random.random_bool(0.4)));
        self.create(name, families);
    }

    fn create(&mut self, name: &'static str, families: BTreeSet<&'static str>) {
        let splits = if self.random.random_bool(0.5) { vec![Bytes::from("m")] } else { Vec::new() };
        let table = descriptor(name, &families);
        self.run(&format!("create {name} {families:?}"), |master| {
            master.create_table(table, splits, NO_NONCE)
        });
        let content = Content { families, cells: Cells::new() };
        self.tables.insert(name, ModelTable { is_enabled: true, content });
    }

    fn write(&mut self, name: &'static str, content: &Content) {
        self.counter += 1;
        self.cluster.clock.advance_ms(1);
        let row = *ROWS.choose(&mut self.random).expect("not empty");
        let families: Vec<_> = content.families.iter().copied().collect();
        let family = *families.choose(&mut self.random).expect("a family");
        let region = self.cluster.region_in(&name_of(name), row);
        let (bytes, column) = (row.as_bytes(), family.as_bytes());
        let mutation = if self.random.random_range(0..6) == 0 {
            self.log.push(format!("delete {name}/{row}"));
            self.table(name).content.cells.retain(|(of_row, _), _| *of_row != row);
            Mutation::new(MutationKind::Delete, bytes.to_vec(), Vec::new())
        } else {
            let value = format!("{}", self.counter);
            self.log.push(format!("put {name}/{row}/{family} = {value}"));
            let cell = KeyValue::put(bytes, column, b"q", LATEST_TIMESTAMP, value.as_bytes());
            self.table(name).content.cells.insert((row, family), value);
            Mutation::new(MutationKind::Put, bytes.to_vec(), vec![cell])
        };
        region.mutate_wait(mutation).expect("written");
    }

    fn a_region(&mut self, name: &str) -> Arc<Region> {
        let regions = self.cluster.regions_of(&name_of(name));
        Arc::clone(regions.choose(&mut self.random).expect("served"))
    }

    fn flush(&mut self, name: &str) {
        self.log.push(format!("flush {name}"));
        self.a_region(name).flush().expect("flushed");
    }

    fn compact(&mut self, name: &str) {
        self.log.push(format!("compact {name}"));
        let region = self.a_region(name);
        // A background thread may be compacting the references of a split.
        if region.compact(None, true).is_ok() {
            region.archive_compacted().expect("archived");
        }
    }

    /// A split or a merge may be rejected while references are compacted; then nothing changes.
    fn attempt(&mut self, what: String, submit: impl FnOnce(&Arc<Master>) -> Result<u64>) {
        let outcome = self.cluster.run(submit);
        self.log.push(format!("{what}: {}", if outcome.is_ok() { "done" } else { "refused" }));
    }

    fn split(&mut self, name: &str) {
        let (region, row) =
            (self.a_region(name), *["b", "h", "n", "u"].choose(&mut self.random).expect("one"));
        let encoded = region.info().encoded_name().to_owned();
        self.attempt(format!("split {name} at {row}"), |master| {
            master.split_region(&encoded, Some(Bytes::from(row)), NO_NONCE)
        });
    }

    fn merge(&mut self, name: &str) {
        let regions = self.cluster.regions_of(&name_of(name));
        let names = regions.iter().take(2).map(|region| region.info().encoded_name().to_owned()).collect();
        self.attempt(format!("merge {name}"), |master| master.merge_regions(names, false, NO_NONCE));
    }

    fn move_region(&mut self, name: &str) {
        self.log.push(format!("move {name}"));
        let region = self.a_region(name);
        self.cluster.master().reopen_region(region.info().encoded_name()).expect("moved");
    }

    fn truncate_region(&mut self, name: &'static str) {
        let info = self.a_region(name).info().clone();
        self.run(&format!("truncate {}", info.name_text()), |master| {
            master.truncate_region(info.clone(), NO_NONCE)
        });
        self.table(name).content.cells.retain(|(row, _), _| !info.contains_row(row.as_bytes()));
    }

    fn disable(&mut self, name: &'static str) {
        self.run(&format!("disable {name}"), |master| master.disable_table(name_of(name), NO_NONCE));
        self.table(name).is_enabled = false;
    }

    /// Edits in the logs are replayed when the table is enabled, or before it is altered.
    fn die_while_disabling(&mut self, name: &'static str) {
        let state = meta::MetaChange::State(name_of(name), TableState::Disabling);
        self.cluster.master().meta().commit(vec![state]).expect("written");
        self.log.push(format!("die while {name} is being disabled"));
        self.cluster.crash();
        self.table(name).is_enabled = false;
    }

    fn enable(&mut self, name: &'static str) {
        self.run(&format!("enable {name}"), |master| master.enable_table(name_of(name), NO_NONCE));
        self.table(name).is_enabled = true;
    }

    fn truncate(&mut self, name: &'static str) {
        let preserve = self.random.random_bool(0.5);
        self.run(&format!("truncate {name}"), |master| {
            master.truncate_table(name_of(name), preserve, NO_NONCE)
        });
        let table = self.table(name);
        table.is_enabled = true;
        table.content.cells.clear();
    }

    fn make_again(&mut self, name: &'static str, content: &Content) {
        self.run(&format!("delete {name}"), |master| master.delete_table(name_of(name), NO_NONCE));
        self.tables.remove(name);
        if self.random.random_bool(0.8) {
            self.create(name, content.families.clone());
        }
    }

    fn take(&mut self, name: &str, content: &Content) {
        let snapshot = format!("s{}", self.log.len());
        let wanted = snapshot_of(&snapshot, name);
        self.run(&format!("snapshot {name} as {snapshot}"), |master| master.take_snapshot(wanted, NO_NONCE));
        self.snapshots.insert(snapshot, content.clone());
    }

    /// Snapshots of either table: a restore goes to the table that its description names.
    fn restore(&mut self, name: &'static str) {
        let all: Vec<_> = self.snapshots.keys().cloned().collect();
        let Some(snapshot) = all.choose(&mut self.random).cloned() else { return };
        let content = self.snapshots[&snapshot].clone();
        let wanted = snapshot_of(&snapshot, name);
        self.run(&format!("restore {name} from {snapshot}"), |master| {
            master.restore_or_clone_snapshot(&wanted, None, NO_NONCE)
        });
        self.table(name).content = content;
    }

    /// Adds a family, deletes one, or does both in one change.
    fn change_families(&mut self, name: &'static str, content: &Content) {
        let mut families = content.families.clone();
        let missing: Vec<_> = FAMILIES.iter().copied().filter(|f| !families.contains(f)).collect();
        let there: Vec<_> = families.iter().copied().collect();
        let goes = there.choose(&mut self.random).copied().filter(|_| there.len() > 1 || !missing.is_empty());
        let comes = missing.choose(&mut self.random).copied();
        let goes = goes.filter(|_| comes.is_none() || self.random.random_bool(0.6));
        let comes = comes.filter(|_| goes.is_none() || there.len() == 1 || self.random.random_bool(0.4));
        goes.map(|family| families.remove(family));
        comes.map(|family| families.insert(family));
        match (goes, comes) {
            (Some(goes), None) => self.run(&format!("delete family {name}/{goes}"), |master| {
                master.delete_family(name_of(name), goes.as_bytes().to_vec(), NO_NONCE)
            }),
            (None, Some(comes)) => self.run(&format!("add family {name}/{comes}"), |master| {
                master.add_family(name_of(name), family(comes), NO_NONCE)
            }),
            _ => {
                let table = descriptor(name, &families);
                self.run(&format!("modify {name}: {families:?}"), |master| {
                    master.modify_table(name_of(name), table, NO_NONCE)
                });
            }
        }
        let content = &mut self.table(name).content;
        content.cells.retain(|(_, family), _| families.contains(family));
        content.families = families;
    }

    fn die(&mut self) {
        self.log.push("die".to_owned());
        self.cluster.crash();
        self.check();
    }

    fn check(&self) {
        let known: BTreeMap<_, _> = self.tables.iter().map(|(name, t)| (name_of(name), t)).collect();
        let master = self.cluster.master();
        let found: BTreeSet<_> = master.tables().iter().map(|t| t.descriptor.name().clone()).collect();
        let expected: BTreeSet<_> = known.keys().cloned().collect();
        let found: BTreeSet<_> = found.into_iter().filter(|name| !name.is_system()).collect();
        assert_eq!(found, expected, "{}", self.told());
        for (name, table) in known {
            let found = master.table(&name).expect("known");
            let is_enabled = found.state == TableState::Enabled;
            assert_eq!(is_enabled, table.is_enabled, "{name}\n{}", self.told());
            let families: Vec<_> = found.descriptor.families().map(|f| f.name_text()).collect();
            assert!(families.iter().eq(table.content.families.iter()), "{name}\n{}", self.told());
            if is_enabled {
                let cells = self.cluster.cells_of(&name);
                let expected: Vec<_> = table.content.cells.iter().collect();
                let expected: Vec<_> = expected
                    .into_iter()
                    .map(|((row, family), value)| format!("{row}/{family}={value}"))
                    .collect();
                assert_eq!(cells, expected, "{name}\n{}", self.told());
            }
        }
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

#[test]
fn random_schema_histories_keep_exactly_the_expected_cells() {
    let (first, seeds) = (setting("EVENKEEL_SCHEMA_SEED", 1), setting("EVENKEEL_SCHEMA_HISTORIES", SEEDS));
    for seed in first..first + seeds {
        let mut history = History::new(seed);
        history.log.push(format!("EVENKEEL_SCHEMA_SEED={seed}"));
        for _ in 0..STEPS {
            history.step();
        }
        history.check();
        history.die();
    }
}
