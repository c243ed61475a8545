//! Every file system operation fails in turn, in every change of tables or regions: once, once
//! after it took effect, or from then on for a while. When the disk works again, and without a
//! restart, every region of every enabled table is served within [`TIMEOUT`], every cell is
//! present, and the change was made completely or not at all. It can then be made again. All this
//! also holds after a crash.
//!
//! A start is such a change, too: it succeeds or returns the error, and the next one serves
//! everything.
//!
//! CI runs a sample of the operations, chosen by a random seed, which a failure prints;
//! `EVENKEEL_TEST_SEED` sets it. `EVENKEEL_DDL_FAULTS=all` runs all operations.
//! `EVENKEEL_DDL_FAULTS_OF` names one change.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use evenkeel_hfile::{HFileContext, HFileWriter, StoreFileMeta};
use evenkeel_region::region::bulk_load::{BulkFile, BulkLoad, BulkLoadOutcome};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

/// The limit on recovery once the disk works again.
const TIMEOUT: Duration = Duration::from_secs(12);
/// How long a disk keeps failing after a change has failed.
const BAD_FOR: Duration = Duration::from_millis(60);
/// Operations of a change that CI tests, for each kind of failure.
const CALLS_IN_CI: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureMode {
    Once,
    AfterTheWork,
    ForAWhile,
}

const FAILURES: [FailureMode; 3] = [FailureMode::Once, FailureMode::AfterTheWork, FailureMode::ForAWhile];

impl FailureMode {
    fn at(self, call: u64) -> Fault {
        let fault = Fault::on_any("").after(call);
        match self {
            Self::Once => fault.fails(IoKind::StorageFull),
            Self::AfterTheWork => fault.fails_after_effect(IoKind::Other),
            Self::ForAWhile => fault.always().fails(IoKind::StorageFull),
        }
    }
}

/// A change, and its initial state.
struct Subject {
    name: &'static str,
    prepare: fn() -> Cluster,
    change: fn(&Cluster) -> Result<()>,
}

/// The state of the cluster that clients see.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shape {
    tables: BTreeMap<String, TableShape>,
    snapshots: Vec<String>,
    namespaces: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct TableShape {
    state: TableState,
    descriptor: TableDescriptor,
    starts: Vec<Bytes>,
    /// Start keys of the served regions.
    served: Vec<Bytes>,
    cells: Vec<String>,
}

impl Shape {
    fn of(cluster: &Cluster) -> Result<Self> {
        let master = cluster.master();
        let mut tables = BTreeMap::new();
        for table in master.tables() {
            let name = table.descriptor.name();
            let mut regions = master.live_regions(name)?;
            regions.sort_by(|a, b| a.start_key().cmp(b.start_key()));
            let served = cluster.regions_of(name);
            let shape = TableShape {
                state: table.state,
                descriptor: (*table.descriptor).clone(),
                starts: regions.iter().map(|region| region.start_key().clone()).collect(),
                served: served.iter().map(|region| region.info().start_key().clone()).collect(),
                cells: cluster.cells_of(name),
            };
            tables.insert(name.to_string(), shape);
        }
        let snapshots = master.completed_snapshots()?.into_iter().map(|snapshot| snapshot.name).collect();
        let namespaces = master.namespaces().list()?;
        let text = |n: &pb::NamespaceDescriptor| format!("{} {:?}", n.name.escape_ascii(), n.configuration);
        Ok(Self { tables, snapshots, namespaces: namespaces.iter().map(text).collect() })
    }

    /// The shape after a restart, which serves regions that an operator had closed.
    fn after_a_start(&self) -> Self {
        let mut shape = self.clone();
        for table in shape.tables.values_mut().filter(|table| table.state == TableState::Enabled) {
            table.served.clone_from(&table.starts);
            table.cells.clear();
        }
        shape
    }
}

/// Enables disabled tables, and returns every cell.
fn all_cells(cluster: &Cluster) -> BTreeMap<String, Vec<String>> {
    let tables = cluster.master().tables();
    for table in tables.iter().filter(|table| table.state == TableState::Disabled) {
        let name = table.descriptor.name().clone();
        cluster.run(|master| master.enable_table(name, NO_NONCE)).expect("enabled");
    }
    let cells = |table: &Table| {
        let name = table.descriptor.name();
        (name.to_string(), cluster.cells_of(name))
    };
    let is_users = |table: &&Table| !table.descriptor.name().is_system();
    tables.iter().filter(is_users).map(cells).collect()
}

/// Waits until the cluster reaches one of two shapes within [`TIMEOUT`], and returns it.
fn settle(cluster: &Cluster, before: &Shape, after: &Shape, history: &str) -> Shape {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let found = Shape::of(cluster);
        match found {
            Ok(found) if found == *before || found == *after => return found,
            other if Instant::now() > deadline => {
                panic!("{history}: it is\n{other:?}\nbefore\n{before:?}\nafter\n{after:?}")
            }
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

struct Reference {
    before: Shape,
    after: Shape,
    cells_before: BTreeMap<String, Vec<String>>,
    cells_after: BTreeMap<String, Vec<String>>,
    /// File system operations.
    calls: u64,
}

impl Subject {
    fn reference(&self) -> Reference {
        let cells = |mut cluster: Cluster| {
            cluster.crash();
            all_cells(&cluster)
        };
        let cluster = (self.prepare)();
        let before = Shape::of(&cluster).expect("read");
        let cells_before = cells(cluster);
        let cluster = (self.prepare)();
        let calls = cluster.fs.calls();
        (self.change)(&cluster).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let calls = cluster.fs.calls() - calls;
        let after = Shape::of(&cluster).expect("read");
        Reference { before, after, cells_before, cells_after: cells(cluster), calls }
    }

    fn run(&self, reference: &Reference, failure: FailureMode, call: u64) {
        let mut cluster = (self.prepare)();
        cluster.fs.inject(failure.at(call));
        let outcome = (self.change)(&cluster);
        let history = format!("{}, {failure:?} at call {call}: {outcome:?}", self.name);
        if failure == FailureMode::ForAWhile {
            std::thread::sleep(BAD_FOR);
        }
        cluster.fs.clear();
        let Reference { before, after, cells_before, cells_after, .. } = reference;
        let mut found = settle(&cluster, before, after, &history);
        if outcome.is_ok() {
            assert_eq!(found, *after, "{history}");
        } else if found != *after {
            (self.change)(&cluster).unwrap_or_else(|error| panic!("{history}, again: {error}"));
            found = settle(&cluster, after, after, &history);
        }
        cluster.crash();
        let now = Shape::of(&cluster).expect("read");
        assert_eq!(now.after_a_start(), found.after_a_start(), "{history}, after a start");
        let expected = if found == *after { cells_after } else { cells_before };
        assert_eq!(all_cells(&cluster), *expected, "{history}, after a start");
    }
}

fn done(outcome: procedures::ProcedureOutcome) -> Result<()> {
    outcome.map(drop)
}

fn family(name: &[u8]) -> ColumnFamilyDescriptor {
    ColumnFamilyDescriptor::new(name).expect("legal")
}

fn new_table() -> TableDescriptor {
    TableDescriptor::new("new".parse().expect("legal")).with_family(family(b"f"))
}

fn disabled_table() -> Cluster {
    let cluster = Cluster::with_table();
    cluster.run(disable).expect("disabled");
    cluster
}

fn snapshot(table: &str) -> pb::SnapshotDescription {
    pb::SnapshotDescription { name: "s".into(), table: Some(table.into()), ..Default::default() }
}

fn with_snapshot() -> Cluster {
    let cluster = Cluster::with_table();
    cluster.run(|master| master.take_snapshot(snapshot("t"), NO_NONCE)).expect("taken");
    cluster.put("later").expect("written");
    cluster
}

fn disabled_with_snapshot() -> Cluster {
    let cluster = with_snapshot();
    // A restore reverts the descriptor, too.
    cluster.run(|m| m.add_family(table_name(), family(b"h"), NO_NONCE)).expect("altered");
    cluster.run(disable).expect("disabled");
    cluster
}

fn namespace(value: &str) -> pb::NamespaceDescriptor {
    let pair = pb::NameStringPair { name: "k".into(), value: value.into() };
    pb::NamespaceDescriptor { name: Bytes::from("ns"), configuration: vec![pair] }
}

fn with_namespace() -> Cluster {
    let cluster = Cluster::with_table();
    cluster.run(|master| master.create_namespace(namespace("1"), NO_NONCE)).expect("made");
    cluster
}

fn with_closed_region() -> Cluster {
    let cluster = Cluster::with_table();
    let encoded = encoded(cluster.master());
    cluster.master().unassign_region(&encoded[0]).expect("closed");
    cluster
}

const LOADED: &str = "/outside/f";

fn with_file_to_load() -> Cluster {
    let cluster = Cluster::with_table();
    let mut writer =
        HFileWriter::create(&cluster.memory, Path::new(LOADED), HFileContext::default()).expect("new");
    let cell = KeyValue::put(b"loaded", b"f", b"q", 5, b"loaded");
    writer.append(&cell.as_cell()).expect("in order");
    writer.finish(StoreFileMeta::default()).expect("written");
    cluster
}

fn bulk_load(cluster: &Cluster) -> Result<()> {
    let file = BulkFile {
        family: Bytes::from("f"),
        path: LOADED.into(),
        source: LOADED.into(),
        source_fs: None,
        keep_source: true,
    };
    let load = BulkLoad {
        files: vec![file],
        assign_seq_id: true,
        token: Some("token".into()),
        ..Default::default()
    };
    match cluster.region_of("loaded").bulk_load(&load)? {
        BulkLoadOutcome::Loaded => Ok(()),
        BulkLoadOutcome::DoesNotFit(_) => Err(HBaseError::io("does not fit")),
    }
}

/// A cluster with an expired snapshot beside one that is not.
fn with_expired_snapshot() -> Cluster {
    let cluster = with_snapshot();
    let short = pb::SnapshotDescription { name: "short".into(), ttl: Some(1), ..snapshot("t") };
    cluster.run(|master| master.take_snapshot(short, NO_NONCE)).expect("taken");
    cluster.clock.advance_ms(60_000);
    cluster
}

/// A cluster with files in the archive and in `oldWALs` that are old enough to be deleted. A
/// snapshot and a clone need some of them.
fn with_old_archive() -> Cluster {
    let mut cluster = with_snapshot();
    cluster.run(|m| m.restore_or_clone_snapshot(&snapshot("clone"), None, NO_NONCE)).expect("cloned");
    for row in ["a", "z"] {
        cluster.put(row).expect("written");
    }
    for region in cluster.regions() {
        region.flush().expect("flushed");
        region.compact(None, true).expect("compacted");
        region.archive_compacted().expect("archived");
    }
    cluster.crash();
    cluster.clock.advance_ms(1_000_000_000);
    cluster
}

/// The family `f` with other settings, on which files and readers depend.
fn other_family() -> ColumnFamilyDescriptor {
    family(b"f").with("VERSIONS", "5").with("BLOOMFILTER", "ROWCOL")
}

fn modify_table(master: &Arc<Master>) -> Result<u64> {
    let table = master.table(&table_name())?.descriptor;
    let changed = (*table).clone().with("MAX_FILESIZE", "123456789").with_family(family(b"h"));
    master.modify_table(table_name(), changed, NO_NONCE)
}

/// A cluster with a split parent whose files are no longer needed.
fn with_split_parent() -> Cluster {
    let cluster = Cluster::with_table();
    cluster.run(split).expect("split");
    for region in cluster.regions() {
        region.compact(None, true).expect("compacted");
        region.archive_compacted().expect("archived");
    }
    cluster
}

const SUBJECTS: &[Subject] = &[
    Subject {
        name: "create",
        prepare: Cluster::with_table,
        change: |c| done(c.run(|m| m.create_table(new_table(), vec![Bytes::from("m")], NO_NONCE))),
    },
    Subject {
        name: "delete",
        prepare: disabled_table,
        change: |c| done(c.run(|m| m.delete_table(table_name(), NO_NONCE))),
    },
    Subject {
        name: "enable",
        prepare: disabled_table,
        change: |c| done(c.run(|m| m.enable_table(table_name(), NO_NONCE))),
    },
    Subject { name: "disable", prepare: Cluster::with_table, change: |c| done(c.run(disable)) },
    Subject {
        name: "truncate",
        prepare: disabled_table,
        change: |c| done(c.run(|m| m.truncate_table(table_name(), false, NO_NONCE))),
    },
    Subject {
        name: "truncate, splits preserved",
        prepare: disabled_table,
        change: |c| done(c.run(|m| m.truncate_table(table_name(), true, NO_NONCE))),
    },
    Subject {
        name: "truncate a region",
        prepare: Cluster::with_table,
        change: |c| done(c.run(truncate_region)),
    },
    Subject {
        name: "truncate a region with links and references",
        prepare: || {
            let cluster = disabled_with_snapshot();
            let restore = |m: &Arc<Master>| m.restore_or_clone_snapshot(&snapshot("t"), None, NO_NONCE);
            cluster.run(restore).expect("restored");
            cluster.run(|m| m.enable_table(table_name(), NO_NONCE)).expect("enabled");
            cluster.run(split).expect("split");
            cluster
        },
        change: |c| done(c.run(truncate_region)),
    },
    Subject {
        name: "add a family",
        prepare: Cluster::with_table,
        change: |c| done(c.run(|m| m.add_family(table_name(), family(b"h"), NO_NONCE))),
    },
    Subject {
        name: "delete a family",
        prepare: Cluster::with_table,
        change: |c| done(c.run(|m| m.delete_family(table_name(), b"f".to_vec(), NO_NONCE))),
    },
    Subject {
        name: "delete a family of a disabled table",
        prepare: disabled_table,
        change: |c| done(c.run(|m| m.delete_family(table_name(), b"f".to_vec(), NO_NONCE))),
    },
    Subject { name: "modify a table", prepare: Cluster::with_table, change: |c| done(c.run(modify_table)) },
    Subject {
        name: "modify a disabled table",
        prepare: disabled_table,
        change: |c| done(c.run(modify_table)),
    },
    Subject {
        name: "modify a family",
        prepare: Cluster::with_table,
        change: |c| done(c.run(|m| m.modify_family(table_name(), other_family(), NO_NONCE))),
    },
    Subject { name: "cleaners", prepare: with_old_archive, change: |c| c.master().run_cleaners().map(drop) },
    Subject {
        name: "expired snapshots",
        prepare: with_expired_snapshot,
        change: |c| {
            c.master().delete_expired_snapshots()?;
            // A snapshot that cannot be read is left for the next run.
            match c.master().completed_snapshots()?.iter().any(|snapshot| snapshot.name == "short") {
                true => Err(HBaseError::io("it stays")),
                false => Ok(()),
            }
        },
    },
    Subject { name: "split", prepare: Cluster::with_table, change: |c| done(c.run(split)) },
    Subject { name: "merge", prepare: Cluster::with_table, change: |c| done(c.run(merge)) },
    Subject {
        name: "move",
        prepare: Cluster::with_table,
        change: |c| c.master().reopen_region(&encoded(c.master())[0]),
    },
    Subject {
        name: "unassign",
        prepare: Cluster::with_table,
        change: |c| c.master().unassign_region(&encoded(c.master())[0]),
    },
    Subject {
        name: "assign",
        prepare: with_closed_region,
        change: |c| {
            let all = c.master().live_regions(&table_name())?;
            all.iter().try_for_each(|region| c.master().assign_region(region.encoded_name()))
        },
    },
    Subject {
        name: "janitor",
        prepare: with_split_parent,
        change: |c| c.master().run_catalog_janitor().map(drop),
    },
    Subject {
        name: "snapshot",
        prepare: Cluster::with_table,
        change: |c| done(c.run(|m| m.take_snapshot(snapshot("t"), NO_NONCE))),
    },
    Subject {
        name: "delete a snapshot",
        prepare: with_snapshot,
        change: |c| c.master().delete_snapshot("s"),
    },
    Subject {
        name: "clone",
        prepare: with_snapshot,
        change: |c| done(c.run(|m| m.restore_or_clone_snapshot(&snapshot("clone"), None, NO_NONCE))),
    },
    Subject {
        name: "restore",
        prepare: disabled_with_snapshot,
        change: |c| done(c.run(|m| m.restore_or_clone_snapshot(&snapshot("t"), None, NO_NONCE))),
    },
    Subject {
        name: "create a namespace",
        prepare: Cluster::with_table,
        change: |c| done(c.run(|m| m.create_namespace(namespace("1"), NO_NONCE))),
    },
    Subject {
        name: "modify a namespace",
        prepare: with_namespace,
        change: |c| done(c.run(|m| m.modify_namespace(namespace("2"), NO_NONCE))),
    },
    Subject {
        name: "delete a namespace",
        prepare: with_namespace,
        change: |c| done(c.run(|m| m.delete_namespace("ns".into(), NO_NONCE))),
    },
    Subject {
        name: "flush",
        prepare: Cluster::with_table,
        change: |c| done(c.run(|m| m.flush_table(table_name(), &[], NO_NONCE))),
    },
    Subject {
        name: "compact",
        prepare: Cluster::with_table,
        change: |c| c.regions().iter().try_for_each(|region| region.compact(None, true).map(drop)),
    },
    Subject { name: "bulk load", prepare: with_file_to_load, change: bulk_load },
];

/// Chooses the operations that fail.
struct Sample {
    takes_all: bool,
    only: Option<String>,
    random: StdRng,
}

impl Sample {
    fn new() -> Self {
        let given = std::env::var("EVENKEEL_TEST_SEED").ok().and_then(|text| text.parse().ok());
        let seed = given.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
        println!("EVENKEEL_TEST_SEED={seed}");
        Self {
            takes_all: std::env::var("EVENKEEL_DDL_FAULTS").is_ok_and(|value| value == "all"),
            only: std::env::var("EVENKEEL_DDL_FAULTS_OF").ok(),
            random: StdRng::seed_from_u64(seed),
        }
    }

    fn takes(&self, name: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == name)
    }

    fn of(&mut self, calls: u64) -> Vec<u64> {
        match self.takes_all {
            true => (0..calls).collect(),
            false => (0..CALLS_IN_CI).map(|_| self.random.random_range(0..calls)).collect(),
        }
    }
}

#[test]
fn a_change_that_fails_at_any_call_leaves_every_region_served() {
    let mut sample = Sample::new();
    for subject in SUBJECTS {
        if !sample.takes(subject.name) {
            continue;
        }
        let (began, reference) = (Instant::now(), subject.reference());
        assert!(reference.calls > 0, "{} makes no calls", subject.name);
        for failure in FAILURES {
            sample.of(reference.calls).into_iter().for_each(|call| subject.run(&reference, failure, call));
        }
        println!("{}: {} calls, {:?}", subject.name, reference.calls, began.elapsed());
    }
}

/// A name, and the function that prepares the directory.
type BeforeStart = (&'static str, fn() -> Cluster);

/// What a start finds: logs to split, references, links, and what changes left.
const BEFORE_STARTS: [BeforeStart; 4] = [
    ("start", Cluster::with_table),
    ("start with references", || {
        let cluster = Cluster::with_table();
        cluster.run(split).expect("split");
        cluster
    }),
    ("start with links", with_old_archive),
    ("start after a change that was cut short", || {
        let cluster = with_snapshot();
        cluster.fs.inject(Fault::on(Op::Rename, "").after(6).always().fails(IoKind::StorageFull));
        drop(cluster.run(merge));
        cluster
    }),
];

/// The shape and cells after a start without faults.
struct StartReference {
    shape: Shape,
    cells: BTreeMap<String, Vec<String>>,
    calls: u64,
}

impl StartReference {
    fn new(prepare: fn() -> Cluster) -> Self {
        let mut cluster = prepare();
        cluster.die();
        let calls = cluster.fs.calls();
        cluster.start();
        let calls = cluster.fs.calls() - calls;
        let shape = Shape::of(&cluster).expect("read");
        Self { shape, cells: all_cells(&cluster), calls }
    }

    fn run(&self, name: &str, prepare: fn() -> Cluster, failure: FailureMode, call: u64) {
        let mut cluster = prepare();
        cluster.die();
        cluster.fs.inject(failure.at(call));
        let outcome = cluster.try_start();
        let history = format!("{name}, {failure:?} at call {call}: {outcome:?}");
        if failure == FailureMode::ForAWhile {
            std::thread::sleep(BAD_FOR);
        }
        cluster.fs.clear();
        if outcome.is_ok() {
            settle(&cluster, &self.shape, &self.shape, &history);
        }
        for start in ["the next start", "the one after it"] {
            cluster.crash();
            let found = settle(&cluster, &self.shape, &self.shape, &format!("{history}, {start}"));
            assert_eq!(found, self.shape, "{history}, {start}");
        }
        assert!(cluster.lost.is_empty(), "{history}: {:?}", cluster.lost);
        assert_eq!(all_cells(&cluster), self.cells, "{history}");
    }
}

#[test]
fn a_start_that_fails_at_any_call_is_made_good_by_the_next() {
    let mut sample = Sample::new();
    for (name, prepare) in BEFORE_STARTS {
        if !sample.takes(name) {
            continue;
        }
        let (began, reference) = (Instant::now(), StartReference::new(prepare));
        for failure in FAILURES {
            let calls = sample.of(reference.calls);
            calls.into_iter().for_each(|call| reference.run(name, prepare, failure, call));
        }
        println!("{name}: {} calls, {:?}", reference.calls, began.elapsed());
    }
}

/// While a region cannot be opened, its requests get a retryable error; it is served once it can be
/// opened.
#[test]
fn a_region_that_fails_to_open_is_served_later() {
    let mut cluster = Cluster::with_table();
    let encoded = encoded(cluster.master());
    cluster.crash_into(Fault::on(Op::List, &format!("{}/f", encoded[0])).always().fails(IoKind::Other));
    let regions = || cluster.master().parts.regionserver.regions();
    std::thread::sleep(BAD_FOR);
    let error = regions().get(&encoded[0], b"t").map(drop).expect_err("not served");
    assert_eq!(error.kind(), ErrorKind::NotServingRegion);
    assert!(regions().find(&encoded[1]).is_some(), "the other one is");
    cluster.fs.clear();
    let deadline = Instant::now() + TIMEOUT;
    while regions().find(&encoded[0]).is_none() {
        assert!(Instant::now() < deadline, "not served");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(cluster.rows(), ROWS);
    cluster.check_regions("served again");
}
