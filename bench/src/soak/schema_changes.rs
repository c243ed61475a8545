//! The administrator, which runs during the load: flushes, compactions, splits, merges, moves,
//! alters, snapshots, clones, restores, truncations, deletions and bulk loads in sequence, each
//! with a check.
//!
//! Changes that delete cells use separate tables, whose cells carry a *generation*. Once a change
//! that deletes all earlier cells is acknowledged, no cell of an earlier generation may be visible,
//! regardless of kills and replays ([`Generations`]).
//!
//! A change may fail during a fault. Its outcome is then unknown, and the next change first reads
//! the current state.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_client::{Admin, Connection, Error, Get, Put, Scan, SnapshotDescription, Table};
use evenkeel_common::{ColumnFamilyDescriptor, KeyValue, TableDescriptor, TableName};
use evenkeel_fs::LocalFileSystem;
use evenkeel_hfile::{HFileContext, HFileWriter, StoreFileMeta, keys};
use rand::Rng;
use rand::rngs::StdRng;

use super::owned_rows::OwnedRows;
use super::{FailedStep, Running, family};

/// Rows of a table with generations.
const GENERATION_ROWS: u64 = 40;
/// Rows of a bulk load.
const LOADED_ROWS: u64 = 60;
/// The number of regions from which a table is merged and not split.
const REGIONS_MAX: usize = 8;

type Outcome<T = ()> = Result<T, FailedStep>;

/// A table whose cells carry a generation.
#[derive(Default)]
struct Generations {
    /// The generation of the next cells.
    next: i64,
    /// No cell of an earlier generation may be visible.
    floor: i64,
    /// The generations acknowledged since the last change, by row.
    acknowledged: BTreeMap<String, i64>,
}

/// The run of the server in which a change started. A change that did not end in the same run
/// counts as unacknowledged, regardless of the client's result: if the next run has no record of a
/// procedure, the client treats it as done.
struct ServerRun<'a> {
    running: &'a Running,
    began: u64,
}

impl ServerRun<'_> {
    fn is_the_same(&self) -> Outcome {
        match self.running.starts() == self.began {
            true => Ok(()),
            false => Err(FailedStep::Refused("the server was started again in between".to_owned())),
        }
    }
}

/// A bulk load.
struct BulkLoad {
    name: String,
    acknowledged: bool,
}

/// The administrator and its model.
pub struct SchemaChanges {
    folder: PathBuf,
    schema: Generations,
    scratch: Generations,
    loads: Vec<BulkLoad>,
    made: u64,
    /// The numbers of each change, made and refused.
    pub counts: BTreeMap<&'static str, [u64; 2]>,
    /// The latest error of each refused change.
    pub refusals: BTreeMap<&'static str, String>,
}

/// Parses a valid name.
fn table_name(name: &str) -> Outcome<TableName> {
    name.parse().map_err(|e| FailedStep::Anomaly(format!("{name}: {e}")))
}

/// The kinds of changes.
pub const KINDS: [&str; 16] = [
    "flush",
    "compact",
    "major compact",
    "split",
    "merge",
    "move",
    "alter",
    "delete family",
    "truncate",
    "truncate regions",
    "delete table",
    "snapshot and clone",
    "restore",
    "bulk load",
    "roll log",
    "disable and enable",
];

impl SchemaChanges {
    /// An administrator with a folder for its files.
    pub fn new(folder: &Path) -> Self {
        let folder = folder.join("loads");
        let (schema, scratch, loads) = Default::default();
        let (counts, refusals) = Default::default();
        Self { folder, schema, scratch, loads, made: 0, counts, refusals }
    }

    /// Makes changes until the epoch is over.
    ///
    /// # Errors
    /// An anomaly.
    pub async fn run(
        &mut self,
        connection: &Connection,
        owned: &OwnedRows,
        running: &Arc<Running>,
        rng: &mut StdRng,
    ) -> Result<(), String> {
        while !running.is_over() {
            let kind = KINDS[rng.random_range(0..KINDS.len())];
            let outcome = self.change(kind, connection, owned, running, rng).await;
            let counts = self.counts.entry(kind).or_default();
            match outcome {
                Ok(()) => counts[0] += 1,
                Err(FailedStep::Refused(why)) => {
                    counts[1] += 1;
                    self.refusals.insert(kind, why);
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
                Err(FailedStep::Anomaly(what)) => return Err(format!("{kind}: {what}")),
            }
            tokio::time::sleep(std::time::Duration::from_millis(rng.random_range(0..300))).await;
        }
        Ok(())
    }

    async fn change(
        &mut self,
        kind: &str,
        connection: &Connection,
        owned: &OwnedRows,
        running: &Running,
        rng: &mut StdRng,
    ) -> Outcome {
        let life = ServerRun { running, began: running.starts() };
        let (admin, own) = (connection.admin(), table_name(super::ROWS)?);
        let tables = [super::ROWS, super::REGISTERS, super::LOADED];
        let table = table_name(tables[rng.random_range(0..tables.len())])?;
        match kind {
            "flush" => Ok(admin.flush_table(&table).await?),
            "compact" => Ok(admin.compact_table(&table, None, false).await?),
            "major compact" => Ok(admin.compact_table(&table, None, true).await?),
            "split" => split(&admin, &table, rng).await,
            "merge" => merge(&admin, &table, rng).await,
            "move" => reopen_region(&admin, &table, rng).await,
            "alter" => alter(&admin, &table, rng).await,
            "delete family" => self.delete_family(connection, &life).await,
            "truncate" => self.truncate(connection, &life, rng.random()).await,
            "truncate regions" => self.truncate_regions(connection, &life).await,
            "delete table" => self.delete_table(connection, &life).await,
            "snapshot and clone" => self.snapshot(connection, owned, &own).await,
            "restore" => self.restore(connection, &life).await,
            "bulk load" => self.bulk_load(connection).await,
            "roll log" => {
                for server in admin.live_servers().await? {
                    admin.roll_wal(&server).await?;
                }
                Ok(())
            }
            _ => {
                let table = table_name(super::LOADED)?;
                let disabled = admin.disable_table(&table).await;
                enable(&admin, &table).await?;
                Ok(disabled?)
            }
        }
    }

    /// Checks the tables that only the administrator writes.
    ///
    /// # Errors
    /// A message about the anomaly.
    pub async fn verify(&mut self, connection: &Connection) -> Result<(), String> {
        for (name, generations, column) in
            [(super::SCHEMA, &self.schema, "x"), (super::SCRATCH, &self.scratch, "f")]
        {
            let outcome = look(connection, name, column, generations).await;
            outcome.map_err(|failure| failure.of(name))?;
        }
        self.verify_loads(connection).await.map_err(|failure| failure.of(super::LOADED))?;
        remove_leftovers(&connection.admin())
            .await
            .map_err(|e| format!("leftovers of changes cannot be removed: {e}"))
    }

    async fn verify_loads(&mut self, connection: &Connection) -> Outcome {
        let name = table_name(super::LOADED)?;
        // A kill may have hit between the two calls of "disable and enable".
        enable(&connection.admin(), &name).await?;
        let table = connection.table(name);
        for load in &mut self.loads {
            let mut found = 0;
            let mut scanner = table.scan(Scan::new().prefix(&load.name));
            loop {
                let Some(batch) = scanner.next_batch().await? else { break };
                found += batch.iter().map(|row| row.cells().len() as u64).sum::<u64>();
            }
            match (found, load.acknowledged) {
                (n, _) if n == 2 * LOADED_ROWS => load.acknowledged = true,
                (0, false) => {}
                (n, acknowledged) => {
                    return Err(FailedStep::Anomaly(format!(
                        "load {}: {n} cells of {}, acknowledged: {acknowledged}",
                        load.name,
                        2 * LOADED_ROWS
                    )));
                }
            }
        }
        Ok(())
    }

    /// Deletes a family and adds it again: its cells never reappear.
    async fn delete_family(&mut self, connection: &Connection, life: &ServerRun<'_>) -> Outcome {
        let (admin, name) = (connection.admin(), table_name(super::SCHEMA)?);
        let generations = &mut self.schema;
        if admin.describe(&name).await?.family(b"x").is_none() {
            generations.all_gone();
            admin.add_family(&name, &family("x")).await?;
        }
        look(connection, super::SCHEMA, "x", generations).await?;
        generations.write(&connection.table(name.clone()), "x").await?;
        if generations.next % 3 == 0 {
            admin.flush_table(&name).await?;
        }
        generations.in_doubt();
        admin.delete_family(&name, b"x").await?;
        life.is_the_same()?;
        generations.all_gone();
        admin.add_family(&name, &family("x")).await?;
        look(connection, super::SCHEMA, "x", generations).await
    }

    async fn truncate(
        &mut self,
        connection: &Connection,
        life: &ServerRun<'_>,
        preserve_splits: bool,
    ) -> Outcome {
        let (admin, name) = (connection.admin(), table_name(super::SCRATCH)?);
        let generations = &mut self.scratch;
        ensure(&admin, &name, generations).await?;
        look(connection, super::SCRATCH, "f", generations).await?;
        generations.write(&connection.table(name.clone()), "f").await?;
        admin.disable_table(&name).await?;
        generations.in_doubt();
        let truncated = admin.truncate_table(&name, preserve_splits).await;
        enable(&admin, &name).await?;
        truncated?;
        life.is_the_same()?;
        generations.all_gone();
        look(connection, super::SCRATCH, "f", generations).await
    }

    /// Truncates every region, one after the other.
    async fn truncate_regions(&mut self, connection: &Connection, life: &ServerRun<'_>) -> Outcome {
        let (admin, name) = (connection.admin(), table_name(super::SCRATCH)?);
        let generations = &mut self.scratch;
        ensure(&admin, &name, generations).await?;
        look(connection, super::SCRATCH, "f", generations).await?;
        generations.write(&connection.table(name.clone()), "f").await?;
        generations.in_doubt();
        for region in admin.regions(&name).await? {
            admin.truncate_region(&region.region).await?;
        }
        life.is_the_same()?;
        generations.all_gone();
        look(connection, super::SCRATCH, "f", generations).await
    }

    async fn delete_table(&mut self, connection: &Connection, life: &ServerRun<'_>) -> Outcome {
        let (admin, name) = (connection.admin(), table_name(super::SCRATCH)?);
        let generations = &mut self.scratch;
        ensure(&admin, &name, generations).await?;
        generations.write(&connection.table(name.clone()), "f").await?;
        admin.disable_table(&name).await?;
        generations.in_doubt();
        admin.delete_table(&name).await?;
        life.is_the_same()?;
        generations.all_gone();
        ensure(&admin, &name, generations).await?;
        look(connection, super::SCRATCH, "f", generations).await
    }

    /// A clone of a snapshot shows each row in its state at some time during the snapshot.
    async fn snapshot(&mut self, connection: &Connection, owned: &OwnedRows, name: &TableName) -> Outcome {
        self.made += 1;
        let (admin, snapshot) = (connection.admin(), format!("s{}", self.made));
        let clone = table_name(&format!("clone{}", self.made))?;
        let low = owned.low();
        admin.snapshot(&SnapshotDescription::new(&snapshot, name.clone())).await?;
        let cloned = self.check_clone(connection, owned, &snapshot, &clone, &low).await;
        if admin.table_exists(&clone).await? {
            let _may_be_disabled = admin.disable_table(&clone).await;
            admin.delete_table(&clone).await?;
        }
        admin.delete_snapshot(&snapshot).await?;
        cloned
    }

    async fn check_clone(
        &self,
        connection: &Connection,
        owned: &OwnedRows,
        snapshot: &str,
        clone: &TableName,
        low: &super::owned_rows::AcknowledgedRows,
    ) -> Outcome {
        connection.admin().clone_snapshot(snapshot, clone).await?;
        owned.verify(&connection.table(clone.clone()), low).await
    }

    /// A restored table shows the state at the time of the snapshot, and no later state.
    async fn restore(&mut self, connection: &Connection, life: &ServerRun<'_>) -> Outcome {
        self.made += 1;
        let (admin, name) = (connection.admin(), table_name(&format!("restored{}", self.made))?);
        let snapshot = format!("r{}", self.made);
        let descriptor = TableDescriptor::new(name.clone()).with_family(family("f"));
        admin.create_table(&descriptor, &[Bytes::from_static(b"r20")]).await?;
        let table = connection.table(name.clone());
        put_all(&table, "f", 1).await?;
        admin.snapshot(&SnapshotDescription::new(&snapshot, name.clone())).await?;
        put_all(&table, "f", 2).await?;
        admin.disable_table(&name).await?;
        let restored = admin.restore_snapshot(&snapshot, false).await;
        enable(&admin, &name).await?;
        restored?;
        life.is_the_same()?;
        for row in 0..GENERATION_ROWS {
            let found = table.get(Get::new(format!("r{row:02}"))).await?.counter("f", "g");
            if found != Some(1) {
                return Err(FailedStep::Anomaly(format!("{name}, row {row}: {found:?} and not 1")));
            }
        }
        admin.disable_table(&name).await?;
        admin.delete_table(&name).await?;
        Ok(admin.delete_snapshot(&snapshot).await?)
    }

    /// Loads two families, all or nothing.
    async fn bulk_load(&mut self, connection: &Connection) -> Outcome {
        self.made += 1;
        let spread = self.made.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        let name = format!("{spread:02x}-load-{}-", self.made);
        let mut files = Vec::new();
        for family in ["a", "b"] {
            let path = self.folder.join(format!("{name}{family}"));
            let written = write_hfile(&path, &name, family);
            written.map_err(|e| FailedStep::Refused(format!("the file to load: {e}")))?;
            files.push((Bytes::copy_from_slice(family.as_bytes()), format!("file:{}", path.display())));
        }
        self.loads.push(BulkLoad { name: name.clone(), acknowledged: false });
        let table = connection.table(table_name(super::LOADED)?);
        let loaded = table.bulk_load(name.as_bytes(), files).await?;
        drop(std::fs::remove_dir_all(&self.folder));
        if let Some(load) = self.loads.last_mut() {
            load.acknowledged = loaded;
        }
        self.verify_loads(connection).await
    }
}

impl Generations {
    /// Records that a change that deletes all cells was acknowledged, or was observed.
    fn all_gone(&mut self) {
        self.floor = self.next;
        self.acknowledged.clear();
    }

    /// Records that a change that deletes all cells is about to be sent.
    fn in_doubt(&mut self) {
        self.acknowledged.clear();
    }

    /// Writes the next generation to every row.
    async fn write(&mut self, table: &Table, family: &str) -> Outcome {
        let generation = self.next;
        self.next += 1;
        for row in 0..GENERATION_ROWS {
            let row = format!("r{row:02}");
            table.put(Put::new(&row).column(family, "g", generation.to_be_bytes())).await?;
            self.acknowledged.insert(row, generation);
        }
        Ok(())
    }
}

/// Checks the rows of a table with generations, if it exists and is served.
async fn look(connection: &Connection, name: &str, family: &str, generations: &Generations) -> Outcome {
    let name = table_name(name)?;
    let Some(descriptor) = described(&connection.admin(), &name).await? else {
        return match generations.acknowledged.is_empty() {
            true => Ok(()),
            false => Err(FailedStep::Anomaly(format!("table {name} is gone"))),
        };
    };
    if descriptor.family(family.as_bytes()).is_none() {
        return match generations.acknowledged.is_empty() {
            true => Ok(()),
            false => Err(FailedStep::Anomaly(format!("family {family} of {name} is gone"))),
        };
    }
    if !connection.admin().is_table_enabled(&name).await? {
        return Ok(());
    }
    let table = connection.table(name.clone());
    for row in (0..GENERATION_ROWS).map(|row| format!("r{row:02}")) {
        // All versions: a newer cell may hide a reappeared one.
        let result = table.get(Get::new(&row).family(family).all_versions()).await?;
        let found: Vec<i64> = result
            .cells()
            .iter()
            .map(|c| c.as_cell().value().try_into().map_or(-1, i64::from_be_bytes))
            .collect();
        if let Some(old) = found.iter().find(|generation| **generation < generations.floor) {
            return Err(FailedStep::Anomaly(format!(
                "{name}, row {row}: generation {old} is back; all before {} are gone",
                generations.floor
            )));
        }
        if generations.acknowledged.get(&row).is_some_and(|want| found.first().is_none_or(|n| n < want)) {
            let want = generations.acknowledged.get(&row);
            return Err(FailedStep::Anomaly(format!("{name}, row {row}: {found:?}, acknowledged: {want:?}")));
        }
    }
    Ok(())
}

/// Removes the clones, restored tables and snapshots of interrupted changes.
async fn remove_leftovers(admin: &Admin) -> Result<(), Error> {
    for name in admin.list_tables().await? {
        if ["clone", "restored"].iter().any(|prefix| name.qualifier().starts_with(prefix)) {
            if !admin.is_table_disabled(&name).await? {
                admin.disable_table(&name).await?;
            }
            admin.delete_table(&name).await?;
        }
    }
    for snapshot in admin.list_snapshots().await? {
        admin.delete_snapshot(&snapshot.name).await?;
    }
    Ok(())
}

async fn described(admin: &Admin, name: &TableName) -> Outcome<Option<TableDescriptor>> {
    match admin.table_exists(name).await? {
        true => Ok(Some(admin.describe(name).await?)),
        false => Ok(None),
    }
}

/// Creates the table of generations if it does not exist, and enables it.
async fn ensure(admin: &Admin, name: &TableName, generations: &mut Generations) -> Outcome {
    if !admin.table_exists(name).await? {
        generations.all_gone();
        let descriptor = TableDescriptor::new(name.clone()).with_family(family("f"));
        admin.create_table(&descriptor, &[Bytes::from_static(b"r20")]).await?;
    }
    enable(admin, name).await
}

async fn enable(admin: &Admin, name: &TableName) -> Outcome {
    match admin.is_table_enabled(name).await? {
        true => Ok(()),
        false => Ok(admin.enable_table(name).await?),
    }
}

async fn put_all(table: &Table, family: &str, generation: i64) -> Outcome {
    let put = |row| Put::new(format!("r{row:02}")).column(family, "g", generation.to_be_bytes());
    Ok(table.put_all((0..GENERATION_ROWS).map(put)).await?)
}

async fn split(admin: &Admin, table: &TableName, rng: &mut StdRng) -> Outcome {
    if admin.regions(table).await?.len() >= REGIONS_MAX {
        return merge(admin, table, rng).await;
    }
    let row = format!("{:02x}", rng.random_range(1..=255u32));
    Ok(admin.split_table(table, Some(row.into())).await?)
}

async fn merge(admin: &Admin, table: &TableName, rng: &mut StdRng) -> Outcome {
    let regions = admin.regions(table).await?;
    let live: Vec<_> = regions.into_iter().map(|r| r.region).filter(|r| !r.is_split_parent()).collect();
    if live.len() < 2 {
        return Ok(());
    }
    let at = rng.random_range(0..live.len() - 1);
    Ok(admin.merge_regions(&live[at..at + 2], false).await?)
}

/// Closes and opens a region, as a move to the only server does.
async fn reopen_region(admin: &Admin, table: &TableName, rng: &mut StdRng) -> Outcome {
    let regions = admin.regions(table).await?;
    let region = &regions[rng.random_range(0..regions.len())].region;
    match rng.random_bool(0.5) {
        true => Ok(admin.move_region(region, None).await?),
        false => {
            let closed = admin.unassign_region(region).await;
            admin.assign_region(region).await?;
            Ok(closed?)
        }
    }
}

/// Changes a family's encoding, codec and bloom filter.
async fn alter(admin: &Admin, table: &TableName, rng: &mut StdRng) -> Outcome {
    let name = if rng.random() { "a" } else { "b" };
    let one_of = |rng: &mut StdRng, of: &[&'static str]| of[rng.random_range(0..of.len())];
    let encodings = ["NONE", "PREFIX", "DIFF", "FAST_DIFF", "ROW_INDEX_V1"];
    let changed: ColumnFamilyDescriptor = family(name)
        .with("DATA_BLOCK_ENCODING", one_of(rng, &encodings))
        .with("COMPRESSION", one_of(rng, &["NONE", "SNAPPY", "LZ4", "ZSTD", "GZ"]))
        .with("BLOOMFILTER", one_of(rng, &["NONE", "ROW", "ROWCOL"]));
    Ok(admin.modify_family(table, &changed).await?)
}

/// Writes a store file with all rows of a load.
fn write_hfile(path: &Path, prefix: &str, family: &str) -> evenkeel_common::Result<()> {
    let fs = LocalFileSystem::new();
    let mut writer = HFileWriter::create(&fs, path, HFileContext::default())?;
    for row in 0..LOADED_ROWS {
        let row = format!("{prefix}{row:04}");
        let cell = KeyValue::put(row.as_bytes(), family.as_bytes(), b"q", 5, row.as_bytes());
        writer.append(&cell.as_cell())?;
    }
    writer.append_file_info(keys::BULKLOAD_TIMESTAMP, 1_i64.to_be_bytes().to_vec());
    writer.finish(StoreFileMeta::default()).map(drop)
}
