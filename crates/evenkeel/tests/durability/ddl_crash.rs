//! kill -9 in the middle of table changes: after the restart a table is as before or as after the
//! change, never half changed.
//!
//! Each change is started, and the server is killed after a random delay (or once the change was
//! answered), and restarted. Then, after the server has finished any change that it may resume:
//! - the table exists and is enabled or disabled as before the change or as after it;
//! - its regions, in order, cover all keys with no hole and no overlap;
//! - its descriptor is the old one or the new one;
//! - all of its rows are there (or none, after a truncation), and it can be written and dropped;
//! - a family that was deleted, and perhaps added again, has none of its old cells.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_client::{Admin, Connection, Error, Put, Scan, SnapshotDescription, TableState};
use evenkeel_common::{ColumnFamilyDescriptor, ErrorKind, TableDescriptor, TableName};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::common::{Server, TIMEOUT, runtime, seed};

const ROUNDS: u32 = 28;
const TIME_MAX: Duration = Duration::from_secs(150);
const ROWS: [&str; 6] = ["a", "c", "g", "m", "t", "z"];
const SPLITS: [&str; 3] = ["c", "k", "t"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Create,
    Disable,
    Enable,
    Alter,
    Truncate,
    TruncateRegion,
    Delete,
    Split,
    Merge,
    Move,
    DeleteFamily,
    AddFamilyAgain,
    Clone,
    Restore,
}

const CHANGES: [Change; 14] = [
    Change::Create,
    Change::Disable,
    Change::Enable,
    Change::Alter,
    Change::Truncate,
    Change::TruncateRegion,
    Change::Delete,
    Change::Split,
    Change::Merge,
    Change::Move,
    Change::DeleteFamily,
    Change::AddFamilyAgain,
    Change::Clone,
    Change::Restore,
];

/// The compared properties of a table; `None` if it does not exist.
type Shape = Option<Table>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Table {
    state: TableState,
    families: BTreeSet<String>,
    /// The rows by a scan; unknown while the table is disabled.
    rows: Option<Vec<String>>,
    starts: Vec<Bytes>,
}

fn families(name: &TableName) -> TableDescriptor {
    let family = |name: &str| ColumnFamilyDescriptor::new(name.as_bytes()).expect("legal");
    TableDescriptor::new(name.clone()).with_family(family("f")).with_family(family("g"))
}

fn wider(name: &TableName) -> TableDescriptor {
    families(name).with_family(ColumnFamilyDescriptor::new(b"h").expect("legal"))
}

fn keys() -> Vec<Bytes> {
    SPLITS.iter().map(|k| Bytes::from_static(k.as_bytes())).collect()
}

/// Brings a new table into the initial state of a change.
async fn prepare(connection: &Connection, change: Change, name: &TableName) -> Result<(), Error> {
    if change == Change::Create {
        return Ok(());
    }
    let admin = connection.admin();
    if change == Change::Clone {
        // The clone is the table that is checked.
        let source: TableName = format!("{name}_source").parse().expect("legal");
        admin.create_table(&families(&source), &keys()).await?;
        fill(connection, &source).await?;
        return admin.snapshot(&SnapshotDescription::new(&snapshot(name), source)).await;
    }
    let splits = if change == Change::Split { Vec::new() } else { keys() };
    admin.create_table(&families(name), &splits).await?;
    fill(connection, name).await?;
    if change == Change::Split {
        admin.flush_table(name).await?;
    }
    if change == Change::AddFamilyAgain {
        admin.delete_family(name, b"g").await?;
    }
    if change == Change::Restore {
        admin.snapshot(&SnapshotDescription::new(&snapshot(name), name.clone())).await?;
        admin.modify_table(&wider(name)).await?;
    }
    match change {
        Change::Enable | Change::Truncate | Change::Delete | Change::Restore => {
            admin.disable_table(name).await
        }
        _ => Ok(()),
    }
}

async fn fill(connection: &Connection, name: &TableName) -> Result<(), Error> {
    let puts = ROWS.map(|row| Put::new(row).column("f", "q", row).column("g", "q", row));
    connection.table(name.clone()).put_all(puts).await
}

/// The snapshot from which a table is cloned or restored.
fn snapshot(name: &TableName) -> String {
    format!("{name}_snapshot")
}

async fn make(admin: &Admin, change: Change, name: &TableName) -> Result<(), Error> {
    match change {
        Change::Create => admin.create_table(&families(name), &keys()).await,
        Change::Disable => admin.disable_table(name).await,
        Change::Enable => admin.enable_table(name).await,
        Change::Alter => admin.modify_table(&wider(name)).await,
        Change::Truncate => admin.truncate_table(name, true).await,
        Change::TruncateRegion => admin.truncate_region(&admin.regions(name).await?.remove(0).region).await,
        Change::Delete => admin.delete_table(name).await,
        Change::Split => {
            let region = admin.regions(name).await?.remove(0).region;
            admin.split_region(&region, Some("m".into())).await
        }
        Change::Merge => {
            let regions: Vec<_> = admin.regions(name).await?.into_iter().take(2).map(|r| r.region).collect();
            admin.merge_regions(&regions, false).await
        }
        Change::Move => admin.move_region(&admin.regions(name).await?.remove(0).region, None).await,
        Change::DeleteFamily => admin.delete_family(name, b"g").await,
        Change::AddFamilyAgain => {
            let family = ColumnFamilyDescriptor::new(b"g").expect("legal");
            admin.add_family(name, &family).await
        }
        Change::Clone => admin.clone_snapshot(&snapshot(name), name).await,
        Change::Restore => admin.restore_snapshot(&snapshot(name), false).await,
    }
}

/// The result of a change.
fn after(before: &Shape, change: Change) -> Shape {
    let names = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
    let starts = [&[Bytes::new()][..], &keys()].concat();
    let all = || Some(ROWS.map(String::from).to_vec());
    let mut table = match (change, before.clone()) {
        (Change::Create, _) => {
            let (state, families) = (TableState::Enabled, names(&["f", "g"]));
            return Some(Table { state, families, rows: Some(Vec::new()), starts });
        }
        (Change::Clone, _) => {
            let (state, families) = (TableState::Enabled, names(&["f", "g"]));
            return Some(Table { state, families, rows: all(), starts });
        }
        (Change::Delete, _) | (_, None) => return None,
        (_, Some(table)) => table,
    };
    match change {
        Change::Disable => (table.state, table.rows) = (TableState::Disabled, None),
        Change::Enable => (table.state, table.rows) = (TableState::Enabled, all()),
        Change::Alter => table.families = names(&["f", "g", "h"]),
        Change::Truncate => (table.state, table.rows) = (TableState::Enabled, Some(Vec::new())),
        // The first region has one row.
        Change::TruncateRegion => table.rows = Some(ROWS[1..].iter().copied().map(String::from).collect()),
        Change::Split => table.starts = vec![Bytes::new(), "m".into()],
        Change::Merge => drop(table.starts.remove(1)),
        Change::DeleteFamily => {
            table.families = names(&["f"]);
            table.rows = Some(ROWS.map(|row| format!("{row} torn")).to_vec());
        }
        Change::AddFamilyAgain | Change::Restore => table.families = names(&["f", "g"]),
        Change::Create | Change::Delete | Change::Clone | Change::Move => {}
    }
    Some(table)
}

async fn shape(connection: &Connection, name: &TableName) -> Result<Shape, String> {
    let admin = connection.admin();
    let say = |what: &'static str| move |e: Error| format!("{what}: {e}");
    let listed = admin.list_tables().await.map_err(say("list"))?.contains(name);
    let Some(state) = admin.table_state(name).await.map_err(say("state"))? else {
        return gone(&admin, name, listed).await;
    };
    if !listed {
        return Err("it has a state and is not listed".to_owned());
    }
    let described = admin.describe(name).await.map_err(say("describe"))?;
    let families = described.families().map(|f| f.name_text()).collect();
    let starts = cover(&admin, name, state).await?;
    let rows = match state {
        TableState::Enabled => Some(rows(connection, name).await.map_err(say("scan"))?),
        _ => None,
    };
    Ok(Some(Table { state, families, rows, starts }))
}

/// A table without a state must leave no other traces.
async fn gone(admin: &Admin, name: &TableName, listed: bool) -> Result<Shape, String> {
    if listed {
        return Err("it is listed and has no state".to_owned());
    }
    match admin.regions(name).await {
        Ok(regions) if regions.is_empty() => Ok(None),
        Ok(regions) => Err(format!("it is gone but for {} regions", regions.len())),
        Err(error) => Err(format!("regions: {error}")),
    }
}

/// The start keys of the regions, which must cover all keys.
async fn cover(admin: &Admin, name: &TableName, state: TableState) -> Result<Vec<Bytes>, String> {
    let regions = admin.regions(name).await.map_err(|e| format!("regions: {e}"))?;
    let mut end = Some(Bytes::new());
    for each in &regions {
        let region = &each.region;
        if end.as_ref() != Some(region.start_key()) {
            return Err(format!("a hole or an overlap before {}", region.name_text()));
        }
        end = Some(region.end_key().clone()).filter(|end| !end.is_empty());
        let expect = if state == TableState::Enabled { "OPEN" } else { "CLOSED" };
        if matches!(state, TableState::Enabled | TableState::Disabled) && each.state != expect {
            return Err(format!("{} is {} in a table that is {state:?}", region.name_text(), each.state));
        }
    }
    match (end, regions.is_empty()) {
        (None, false) => Ok(regions.iter().map(|r| r.region.start_key().clone()).collect()),
        _ => Err("regions do not reach the end of the keys".to_owned()),
    }
}

async fn rows(connection: &Connection, name: &TableName) -> Result<Vec<String>, Error> {
    let mut rows = Vec::new();
    let mut scanner = connection.table(name.clone()).scan(Scan::new());
    while let Some(row) = scanner.next().await? {
        let name = String::from_utf8_lossy(row.row().unwrap_or_default()).into_owned();
        let whole = ["f", "g"].iter().all(|f| row.value(f, "q") == Some(name.as_bytes()));
        rows.push(if whole { name } else { format!("{name} torn") });
    }
    Ok(rows)
}

/// Waits until the table has one of two shapes; the server may still be resuming the change.
async fn settle(
    connection: &Connection,
    name: &TableName,
    before: &Shape,
    after: &Shape,
) -> Result<Shape, String> {
    let deadline = Instant::now() + TIMEOUT / 4;
    loop {
        let found = shape(connection, name).await;
        match found {
            Ok(found) if found == *before || found == *after => return Ok(found),
            other if Instant::now() >= deadline => {
                return Err(format!("it is {other:?}\nbefore {before:?}\nafter {after:?}"));
            }
            _ => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

/// The table found must be usable: it can be written and dropped.
async fn use_it(connection: &Connection, name: &TableName, found: &Shape) -> Result<(), String> {
    let admin = connection.admin();
    let say = |what: &'static str| move |e: Error| format!("{what}: {e}");
    let Some(table) = found else {
        admin.create_table(&families(name), &keys()).await.map_err(say("create again"))?;
        admin.disable_table(name).await.map_err(say("disable again"))?;
        return admin.delete_table(name).await.map_err(say("drop again"));
    };
    if table.state == TableState::Disabled {
        admin.enable_table(name).await.map_err(say("enable"))?;
    }
    if !table.families.contains("g") {
        let family = ColumnFamilyDescriptor::new(b"g").expect("legal");
        admin.add_family(name, &family).await.map_err(say("add a family"))?;
    }
    for row in ROWS {
        let put = Put::new(row).column("f", "q", row).column("g", "q", row);
        connection.table(name.clone()).put(put).await.map_err(say("put"))?;
    }
    let found = rows(connection, name).await.map_err(say("scan"))?;
    if found != ROWS {
        return Err(format!("after writing all rows it has {found:?}"));
    }
    admin.disable_table(name).await.map_err(say("disable"))?;
    admin.delete_table(name).await.map_err(say("drop"))
}

#[test]
fn changes_of_tables_survive_kill_9() {
    let seed = seed();
    let mut rng = StdRng::seed_from_u64(seed);
    let began = Instant::now();
    let runtime = runtime();
    let mut server = Server::started(&[]);
    let (mut rounds, mut made) = (0, 0);
    let mut changes = CHANGES.iter().cycle();
    while rounds < ROUNDS && began.elapsed() < TIME_MAX {
        let change = *changes.next().expect("endless");
        let outcome = round(&mut server, &runtime, change, rounds, &mut rng);
        made += u32::from(outcome.unwrap_or_else(|what| panic!("{what}\nEVENKEEL_TEST_SEED={seed}")));
        rounds += 1;
    }
    println!("{rounds} rounds, {made} changes made, {:?}", began.elapsed());
    assert!(rounds >= CHANGES.len() as u32, "only {rounds} rounds in {:?}", began.elapsed());
}

/// One change and one kill. Returns true if the change was found applied.
fn round(
    server: &mut Server,
    runtime: &tokio::runtime::Runtime,
    change: Change,
    round: u32,
    rng: &mut StdRng,
) -> Result<bool, String> {
    let name: TableName = format!("ddl{round}").parse().expect("legal");
    let connection = runtime.block_on(server.connect());
    runtime.block_on(prepare(&connection, change, &name)).map_err(|e| format!("{change:?}: prepare: {e}"))?;
    let before =
        runtime.block_on(shape(&connection, &name)).map_err(|e| format!("{change:?}: before: {e}"))?;
    let expected = after(&before, change);
    let admin = connection.admin();
    let (task_name, begun) = (name.clone(), Instant::now());
    let task = runtime.spawn(async move { make(&admin, change, &task_name).await });
    // Many changes take a few milliseconds, some a second: choose the scale first, then the delay.
    let scale_us = *[300, 3_000, 20_000, 100_000, 600_000].choose(rng).expect("not empty");
    sleep(Duration::from_micros(rng.random_range(0..scale_us)));
    let answered = task.is_finished();
    server.kill();
    let killed_after = begun.elapsed();
    task.abort();
    let reply = runtime.block_on(task);
    if let Ok(Err(error)) = &reply {
        refused(error).map_err(|what| format!("{change:?}: {what}"))?;
    }
    server.start();
    let connection = runtime.block_on(server.connect());
    let whole = format!("{change:?}, killed after {killed_after:?}, answered: {answered}");
    let found = runtime
        .block_on(settle(&connection, &name, &before, &expected))
        .map_err(|e| format!("{whole}: {e}"))?;
    if answered && matches!(reply, Ok(Ok(()))) && found != expected {
        return Err(format!("{whole}: it was answered and is undone: {found:?}"));
    }
    runtime
        .block_on(use_it(&connection, &name, &found))
        .map_err(|e| format!("{whole}, found {found:?}: {e}"))?;
    Ok(found == expected)
}

/// A dying server may break the connection; it must not refuse the change as invalid.
fn refused(error: &Error) -> Result<(), String> {
    match error.kind() {
        Some(ErrorKind::DoNotRetry | ErrorKind::TableExists | ErrorKind::TableNotFound) => {
            Err(format!("refused: {error}"))
        }
        _ => Ok(()),
    }
}
