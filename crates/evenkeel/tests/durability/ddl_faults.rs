//! A whole server whose disk fails in the middle of table changes, while rows are written. The seed
//! chooses the failing call: it fails once, once after it did its work, or all calls from then on
//! fail for a while, as on a full disk. When the disk is sound again, and without a restart,
//! clients find every region served, every acknowledged row present, and the change applied
//! entirely or not at all; it can then be repeated. Sometimes the server dies and restarts, and the
//! same holds.
//!
//! The master's tests cover every call of every change (`EVENKEEL_DDL_FAULTS=all`). Here the faults
//! also hit concurrent work of the server, and clients use sockets. `EVENKEEL_DDL_FAULT_ROUNDS` is
//! the number of rounds.

use std::collections::BTreeSet;
use std::io::ErrorKind as IoKind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_client::{Admin, ClientConfig, Connection, Error, Put, Scan, SnapshotDescription, TableState};
use evenkeel_common::{ColumnFamilyDescriptor, Configuration, TableDescriptor, TableName};
use evenkeel_fs::{Fault, FaultyFileSystem, MemoryFileSystem, SurvivingData};
use evenkeel_standalone::Standalone;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::oneshot;

use crate::common::{PORT_KEYS, config, free_ports, runtime, seed};

const ROUNDS: usize = 36;
/// The number of rounds between two deaths of the server.
const ROUNDS_UNTIL_DEATH: usize = 12;
/// The time limit of clients once the disk is sound.
const TIMEOUT: Duration = Duration::from_secs(20);
/// One call in this number fails.
const CALLS: u64 = 120;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Create,
    Disable,
    Enable,
    Truncate,
    TruncateRegion,
    Delete,
    AddFamily,
    DeleteFamily,
    Split,
    Merge,
    Move,
    Clone,
}

const CHANGES: [Change; 12] = [
    Change::Create,
    Change::Disable,
    Change::Enable,
    Change::Truncate,
    Change::TruncateRegion,
    Change::Delete,
    Change::AddFamily,
    Change::DeleteFamily,
    Change::Split,
    Change::Merge,
    Change::Move,
    Change::Clone,
];

/// The compared properties of a table; `None` if it does not exist.
type Shape = Option<(TableState, Vec<String>, Vec<Bytes>)>;

struct Server {
    /// Holds the lock; the files are in memory.
    folder: tempfile::TempDir,
    ports: [u16; 5],
    memory: MemoryFileSystem,
    fs: FaultyFileSystem,
    running: Option<Standalone>,
    asked_to_stop: Receiver<String>,
}

impl Server {
    fn started() -> Self {
        let memory = MemoryFileSystem::new();
        let mut server = Self {
            folder: tempfile::tempdir().expect("a temporary directory"),
            ports: free_ports(),
            fs: FaultyFileSystem::new(memory.clone()),
            memory,
            running: None,
            asked_to_stop: channel().1,
        };
        server.start();
        server
    }

    fn start(&mut self) {
        let mut conf = Configuration::with_system_properties(Default::default());
        conf.set("hbase.rootdir", format!("file://{}", self.folder.path().display()));
        PORT_KEYS.iter().zip(self.ports).for_each(|(key, port)| conf.set(*key, port.to_string()));
        let (ask, asked) = channel();
        self.asked_to_stop = asked;
        let stop = Arc::new(move |reason: &str| drop(ask.send(reason.to_owned())));
        let running = Standalone::start_on(Arc::new(self.fs.clone()), conf, stop);
        self.running = Some(running.expect("the server starts"));
    }

    /// From this call on, the server's writes do not reach the disk.
    fn die(&mut self) {
        self.fs.cut_power_after(0);
        if let Some(running) = self.running.take() {
            drop(running.stop());
        }
        self.fs.clear();
        self.memory.crash(SurvivingData::Flushed);
    }

    /// A client with this number of retries.
    async fn connect(&self, retries: u32) -> Connection {
        let operation_timeout = TIMEOUT;
        let bootstrap = format!("127.0.0.1:{}", self.ports[1]);
        let config = ClientConfig { retries, operation_timeout, ..config(&bootstrap) };
        Connection::connect(config).await.expect("the server answers")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.die();
    }
}

fn descriptor(name: &TableName) -> TableDescriptor {
    let family = |name: &str| ColumnFamilyDescriptor::new(name.as_bytes()).expect("legal");
    TableDescriptor::new(name.clone()).with_family(family("f")).with_family(family("g"))
}

fn splits() -> Vec<Bytes> {
    vec![Bytes::from("k"), Bytes::from("t")]
}

/// Creates the table that a change modifies; returns the acknowledged rows.
async fn prepare(connection: &Connection, change: Change, name: &TableName) -> Result<Vec<String>, Error> {
    let admin = connection.admin();
    let target = if change == Change::Clone { source(name) } else { name.clone() };
    if change == Change::Create {
        return Ok(Vec::new());
    }
    admin.create_table(&descriptor(&target), &splits()).await?;
    let rows: Vec<String> = ["a", "c", "m", "p", "u", "z"].map(String::from).to_vec();
    for row in &rows {
        let put = Put::new(row.as_str()).column("f", "q", row.as_str()).column("g", "q", row.as_str());
        connection.table(target.clone()).put(put).await?;
        if row == "c" {
            admin.flush_table(&target).await?;
        }
    }
    match change {
        Change::Enable | Change::Truncate | Change::Delete => admin.disable_table(name).await?,
        Change::Clone => admin.snapshot(&SnapshotDescription::new(&format!("{name}_s"), target)).await?,
        _ => {}
    }
    Ok(rows)
}

fn source(name: &TableName) -> TableName {
    format!("{name}_source").parse().expect("legal")
}

async fn make(admin: &Admin, change: Change, name: &TableName) -> Result<(), Error> {
    let family = |name: &str| ColumnFamilyDescriptor::new(name.as_bytes()).expect("legal");
    match change {
        Change::Create => admin.create_table(&descriptor(name), &splits()).await,
        Change::Disable => admin.disable_table(name).await,
        Change::Enable => admin.enable_table(name).await,
        Change::Truncate => admin.truncate_table(name, true).await,
        Change::TruncateRegion => admin.truncate_region(&admin.regions(name).await?.remove(0).region).await,
        Change::Delete => admin.delete_table(name).await,
        Change::AddFamily => admin.add_family(name, &family("h")).await,
        Change::DeleteFamily => admin.delete_family(name, b"g").await,
        Change::Split => {
            admin.split_region(&admin.regions(name).await?.remove(0).region, Some("b".into())).await
        }
        Change::Merge => {
            let regions: Vec<_> = admin.regions(name).await?.into_iter().take(2).map(|r| r.region).collect();
            admin.merge_regions(&regions, false).await
        }
        Change::Move => admin.move_region(&admin.regions(name).await?.remove(0).region, None).await,
        Change::Clone => admin.clone_snapshot(&format!("{name}_s"), name).await,
    }
}

async fn shape(admin: &Admin, name: &TableName) -> Result<Shape, Error> {
    let Some(state) = admin.table_state(name).await? else { return Ok(None) };
    let families = admin.describe(name).await?.families().map(|family| family.name_text()).collect();
    let starts = admin.regions(name).await?.iter().map(|r| r.region.start_key().clone()).collect();
    Ok(Some((state, families, starts)))
}

fn after(before: &Shape, change: Change) -> Shape {
    let new = || {
        let starts = std::iter::once(Bytes::new()).chain(splits()).collect();
        (TableState::Enabled, vec!["f".to_owned(), "g".to_owned()], starts)
    };
    let mut table = match (change, before.clone()) {
        (Change::Delete, _) => return None,
        (_, None) => return Some(new()),
        (_, Some(table)) => table,
    };
    match change {
        Change::Disable => table.0 = TableState::Disabled,
        Change::Enable | Change::Truncate => table.0 = TableState::Enabled,
        Change::AddFamily => table.1.push("h".to_owned()),
        Change::DeleteFamily => drop(table.1.pop()),
        Change::Split => table.2.insert(1, "b".into()),
        Change::Merge => drop(table.2.remove(1)),
        Change::Create | Change::Delete | Change::TruncateRegion | Change::Move | Change::Clone => {}
    }
    Some(table)
}

/// Writes rows to all regions until `end`; returns the acknowledged ones.
async fn write(connection: Connection, name: TableName, mut end: oneshot::Receiver<()>) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for at in 0.. {
        if end.try_recv() != Err(oneshot::error::TryRecvError::Empty) {
            break;
        }
        let row = format!("{}{at:05}", ["b", "n", "w"][at % 3]);
        let put = Put::new(row.as_str()).column("f", "q", row.as_str());
        match connection.table(name.clone()).put(put).await {
            Ok(()) => acknowledged.push(row),
            Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    }
    acknowledged
}

async fn rows(connection: &Connection, name: &TableName) -> Result<BTreeSet<String>, Error> {
    let mut rows = BTreeSet::new();
    let mut scanner = connection.table(name.clone()).scan(Scan::new());
    while let Some(row) = scanner.next().await? {
        if row.value("f", "q").is_some() {
            rows.insert(String::from_utf8_lossy(row.row().unwrap_or_default()).into_owned());
        }
    }
    Ok(rows)
}

/// The expected state of a table.
struct Known {
    name: TableName,
    shape: Shape,
    rows: Vec<String>,
    gone: Vec<String>,
}

impl Known {
    /// As [`Known::check`], but enables a disabled table first.
    async fn check_all(&mut self, connection: &Connection) -> Result<(), String> {
        self.check(connection).await?;
        if let Some((state, ..)) = self.shape.as_mut().filter(|(state, ..)| *state == TableState::Disabled) {
            *state = TableState::Enabled;
            connection.admin().enable_table(&self.name).await.map_err(|e| format!("enable: {e}"))?;
        }
        self.check(connection).await
    }

    /// If the table is enabled, checks that every region is served, every acknowledged row is
    /// there, and no deleted one.
    async fn check(&self, connection: &Connection) -> Result<(), String> {
        let found = shape(&connection.admin(), &self.name).await.map_err(|e| format!("shape: {e}"))?;
        if found != self.shape {
            return Err(format!("it is {found:?} and was {:?}", self.shape));
        }
        if !found.is_some_and(|(state, ..)| state == TableState::Enabled) {
            return Ok(());
        }
        let found = rows(connection, &self.name).await.map_err(|e| format!("scan: {e}"))?;
        let missing: Vec<_> = self.rows.iter().filter(|row| !found.contains(*row)).collect();
        let back: Vec<_> = self.gone.iter().filter(|row| found.contains(*row)).collect();
        match missing.is_empty() && back.is_empty() {
            true => Ok(()),
            false => Err(format!("acknowledged and lost: {missing:?}, gone and back: {back:?}")),
        }
    }
}

fn fault(random: &mut StdRng) -> (Fault, bool, String) {
    let call = random.random_range(0..CALLS);
    let fault = Fault::on_any("").after(call);
    match random.random_range(0..3) {
        0 => (fault.fails(IoKind::StorageFull), false, format!("once at call {call}")),
        1 => (fault.fails_after_effect(IoKind::Other), false, format!("after the work of call {call}")),
        _ => (fault.always().fails(IoKind::StorageFull), true, format!("from call {call} on")),
    }
}

fn is_in_first_region(row: &String) -> bool {
    row.as_bytes() < &splits()[0][..]
}

/// Checks that a truncated region has all or none of the rows that it had before, and truncates it
/// again if it has them.
async fn truncate_again(
    connection: &Connection,
    name: &TableName,
    is_truncated: bool,
    before: &[String],
) -> Result<(), String> {
    let found = rows(connection, name).await.map_err(|e| format!("scan: {e}"))?;
    let left = before.iter().filter(|row| found.contains(*row)).count();
    match left {
        0 => Ok(()),
        _ if !is_truncated && left == before.len() => {
            let again = make(&connection.admin(), Change::TruncateRegion, name).await;
            again.map_err(|e| format!("again: {e}"))
        }
        _ => Err(format!("{left} of {} rows are left", before.len())),
    }
}

async fn round(server: &Server, change: Change, at: usize, random: &mut StdRng) -> Result<Known, String> {
    let name: TableName = format!("t{at}").parse().expect("legal");
    let patient = server.connect(60).await;
    let mut acknowledged = prepare(&patient, change, &name).await.map_err(|e| format!("prepare: {e}"))?;
    let before = shape(&patient.admin(), &name).await.map_err(|e| format!("before: {e}"))?;
    let expected = after(&before, change);
    let (end, ended) = oneshot::channel();
    let writer = tokio::spawn(write(server.connect(0).await, name.clone(), ended));
    let admin = server.connect(1).await.admin();
    let (fault, stays, said) = fault(random);
    server.fs.inject(fault);
    let outcome = tokio::time::timeout(TIMEOUT, make(&admin, change, &name)).await;
    if stays {
        tokio::time::sleep(Duration::from_millis(random.random_range(0..150))).await;
    }
    server.fs.clear();
    let _already_over = end.send(());
    let mut written = writer.await.map_err(|e| format!("the writer: {e}"))?;
    let outcome = outcome.map_err(|_| format!("{said}: no reply"))?;
    let (outcome_is_ok, said) = (outcome.is_ok(), format!("{said}: {outcome:?}"));
    let deadline = Instant::now() + TIMEOUT;
    let mut found = loop {
        match shape(&patient.admin(), &name).await {
            Ok(found) if found == before || found == expected => break found,
            other if Instant::now() > deadline => {
                return Err(format!("{said}: it is {other:?}\nbefore {before:?}\nafter {expected:?}"));
            }
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    if outcome_is_ok && found != expected {
        return Err(format!("{said}, and it is {found:?}"));
    }
    if found != expected {
        let again = make(&patient.admin(), change, &name).await;
        again.map_err(|e| format!("{said}; again: {e}"))?;
        found = shape(&patient.admin(), &name).await.map_err(|e| format!("shape: {e}"))?;
    }
    if found != expected {
        return Err(format!("{said}, made again, and it is {found:?}"));
    }
    let gone = match change {
        Change::Truncate => std::mem::take(&mut acknowledged),
        Change::TruncateRegion => {
            // Rows that were written during the change may be from before it.
            written.retain(|row| !is_in_first_region(row));
            let gone;
            (gone, acknowledged) = acknowledged.into_iter().partition(is_in_first_region);
            let truncated = truncate_again(&patient, &name, outcome_is_ok, &gone).await;
            truncated.map_err(|what| format!("{said}: {what}"))?;
            gone
        }
        _ => Vec::new(),
    };
    acknowledged.extend(written);
    let known = Known { name, shape: found, rows: acknowledged, gone };
    known.check(&patient).await.map_err(|what| format!("{said}: {what}"))?;
    if let Ok(reason) = server.asked_to_stop.try_recv() {
        return Err(format!("{said}: the server asks to be stopped: {reason}"));
    }
    Ok(known)
}

#[test]
fn changes_of_tables_on_a_failing_disk_leave_every_region_served() {
    let seed = seed();
    let mut random = StdRng::seed_from_u64(seed);
    let rounds =
        std::env::var("EVENKEEL_DDL_FAULT_ROUNDS").map_or(ROUNDS, |text| text.parse().expect("a number"));
    let runtime = runtime();
    let mut server = Server::started();
    let mut known = Vec::new();
    for at in 0..rounds {
        let change = CHANGES[at % CHANGES.len()];
        let outcome = runtime.block_on(round(&server, change, at, &mut random));
        let said = |what: String| format!("round {at}, {change:?}, {what}\nEVENKEEL_TEST_SEED={seed}");
        known.push(outcome.unwrap_or_else(|what| panic!("{}", said(what))));
        if (at + 1) % ROUNDS_UNTIL_DEATH == 0 || at + 1 == rounds {
            server.die();
            server.start();
            let connection = runtime.block_on(server.connect(60));
            for mut table in known.drain(..) {
                let checked = runtime.block_on(table.check_all(&connection));
                let what = |what| said(format!("after a start, {}: {what}", table.name));
                checked.unwrap_or_else(|error| panic!("{}", what(error)));
            }
        }
    }
}
