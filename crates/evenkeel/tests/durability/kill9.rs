//! Durability: kill -9 at random moments, 50 times, under concurrent writers; every acknowledged
//! write must survive.
//!
//! Every writer owns its rows and numbers its writes. A row holds the same number in four cells of
//! two families, so a row whose cells differ is torn. After each restart:
//!
//! - a row holds its last acknowledged number, or that of the one write in flight when the server
//!   died;
//! - a row that was deleted last has no cell, and no deleted cell reappears;
//! - all cells of a row agree;
//! - a counter is at least the acknowledged value and at most the attempted one.
//!
//! The block cache is in files ([`ENGINES`]) and smaller than the data. It caches blocks that are
//! flushed, compacted and read, so kills hit its writes as well. Readers check every row during the
//! load, in the same way as the check after each restart.
//!
//! Small MemStores cause frequent flushes and compactions, and small logs frequent rolls, so kills
//! hit these too. `EVENKEEL_TEST_SEED` repeats the random choices of a run (the moments of the
//! kills also depend on the machine), `EVENKEEL_TEST_KILLS` sets their number.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_client::{
    ClientConfig, Connection, Delete, Get, Increment, Mutation, Put, RowResult, Scan, Table,
};
use evenkeel_common::{ColumnFamilyDescriptor, ErrorKind, TableDescriptor, TableName};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinHandle;

use crate::common::{Server, config, runtime, seed};

const KILLS: u32 = 50;
/// The time limit of the whole test, after which it ends its kills early; it fails if there were
/// too few.
const TIME_MAX: Duration = Duration::from_secs(170);
const KILLS_MIN: u32 = 20;
const PUT_WRITERS: u64 = 3;
const BATCH_WRITERS: u64 = 2;
const COUNT_WRITERS: u64 = 2;
const ROWS: u64 = 400;
const BATCH_ROWS: u64 = 40;
const READERS: u64 = 2;
/// Engines of the block cache, by the name of its file. Each has [`KILLS_EACH`] kills in turn: it
/// starts with the files of the engine before it, and with stale files of an earlier turn.
const ENGINES: [&str; 3] = ["file", "mmap", "files"];
const KILLS_EACH: u32 = 2;
const COLUMNS: [(&str, &str); 4] = [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")];

/// One in this number of writes of a row deletes it.
const DELETE_EVERY: u64 = 5;

/// Returns true if the write with this number deletes its row. The number is the timestamp as well,
/// because a Delete would cover a Put in the same millisecond. 0 is for a row that was never
/// written.
fn deletes(number: u64) -> bool {
    number.is_multiple_of(DELETE_EVERY)
}

/// A writer's view of its rows: the number acknowledged last and the one attempted last.
struct Rows {
    name: String,
    acknowledged: Vec<AtomicU64>,
    attempted: Vec<AtomicU64>,
}

impl Rows {
    fn new(name: String) -> Arc<Self> {
        let zeros = || (0..ROWS).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { name, acknowledged: zeros(), attempted: zeros() })
    }

    /// The hash prefix spreads the rows over the regions.
    fn key(&self, row: u64) -> String {
        let spread = row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        format!("{spread:02x}-{}-{row:04}", self.name)
    }

    fn write(&self, row: u64, number: u64) -> Mutation {
        if deletes(number) {
            return Delete::new(self.key(row)).up_to(number as i64).into();
        }
        // Values of uneven size, so that cells straddle blocks and chunks; each starts with the
        // number.
        let pad = (number * 131 + row * 17) as usize % 900;
        let value = [&number.to_be_bytes()[..], &vec![number as u8; pad]].concat();
        let cell = |put: Put, (f, q): &(&str, &str)| put.column_at(f, q, number as i64, &value);
        COLUMNS.iter().fold(Put::new(self.key(row)), cell).into()
    }

    fn attempt(&self, row: u64, number: u64) -> Mutation {
        self.attempted[row as usize].store(number, Ordering::SeqCst);
        self.write(row, number)
    }

    fn acknowledge(&self, row: u64, number: u64) {
        self.acknowledged[row as usize].store(number, Ordering::SeqCst);
    }

    /// The last acknowledged number of a row.
    fn low(&self, row: u64) -> u64 {
        self.acknowledged[row as usize].load(Ordering::SeqCst)
    }

    /// Checks a row as read; the error describes the fault.
    fn check(&self, row: u64, result: Option<&RowResult>) -> Result<(), String> {
        self.check_from(self.low(row), row, result)
    }

    /// As [`Rows::check`], for a read that started when `low` was acknowledged.
    fn check_from(&self, low: u64, row: u64, result: Option<&RowResult>) -> Result<(), String> {
        let high = self.attempted[row as usize].load(Ordering::SeqCst);
        let Some(result) = result else {
            let deleted = (low..=high).any(deletes);
            return if deleted { Ok(()) } else { Err(format!("lost; {low} was acknowledged")) };
        };
        let values: Vec<_> = COLUMNS.iter().map(|(f, q)| result.value(f, q)).collect();
        let Some(first) = values[0].filter(|v| values.iter().all(|other| *other == Some(*v))) else {
            let numbers: Vec<_> = values.iter().map(|v| v.and_then(number_of)).collect();
            return Err(format!("torn: {numbers:?}, acknowledged {low}, attempted {high}"));
        };
        match number_of(first) {
            Some(n) if (low..=high).contains(&n) => Ok(()),
            other => Err(format!("holds {other:?}, acknowledged {low}, attempted {high}")),
        }
    }

    /// After a check the row's content is known: it is the expected content from then on.
    fn settle(&self, row: u64, result: Option<&RowResult>) {
        let of = |numbers: &[AtomicU64]| numbers[row as usize].load(Ordering::SeqCst);
        let deleted = || (of(&self.acknowledged)..=of(&self.attempted)).rfind(|number| deletes(*number));
        let found = result.and_then(|r| r.value("a", "x")).and_then(number_of);
        let number = found.or_else(deleted).unwrap_or(0);
        self.acknowledge(row, number);
        self.attempted[row as usize].store(number, Ordering::SeqCst);
    }
}

fn number_of(value: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(value.get(..8)?.try_into().ok()?))
}

/// A writer's view of its counter.
struct Counter {
    row: String,
    acknowledged: AtomicI64,
    attempted: AtomicI64,
}

struct Load {
    rows: Vec<Arc<Rows>>,
    batch_rows: Vec<Arc<Rows>>,
    counters: Vec<Arc<Counter>>,
    stop: Arc<AtomicBool>,
    writes: Arc<AtomicU64>,
    reads: Arc<AtomicU64>,
}

impl Load {
    fn new() -> Self {
        let rows = |prefix: &str, n| (0..n).map(|i| Rows::new(format!("{prefix}{i}"))).collect();
        let counter = |i: u64| {
            let row = format!("{:02x}-count{i}", i * 0x70);
            Arc::new(Counter { row, acknowledged: AtomicI64::new(0), attempted: AtomicI64::new(0) })
        };
        Self {
            rows: rows("put", PUT_WRITERS),
            batch_rows: rows("batch", BATCH_WRITERS),
            counters: (0..COUNT_WRITERS).map(counter).collect(),
            stop: Arc::default(),
            writes: Arc::default(),
            reads: Arc::default(),
        }
    }

    /// Starts all writers and readers; each ends at its first failure, because the server is gone
    /// then, or when the test stops it.
    fn spawn(&self, table: &Table, counts: &Table, rng: &mut StdRng) -> Vec<JoinHandle<Result<(), String>>> {
        let mut tasks = Vec::new();
        self.stop.store(false, Ordering::SeqCst);
        for rows in &self.rows {
            let (rows, rng) = (rows.clone(), StdRng::seed_from_u64(rng.random()));
            tasks.push(tokio::spawn(put_rows(
                table.clone(),
                rows,
                rng,
                self.stop.clone(),
                self.writes.clone(),
            )));
        }
        for rows in &self.batch_rows {
            let (rows, rng) = (rows.clone(), StdRng::seed_from_u64(rng.random()));
            tasks.push(tokio::spawn(put_batches(
                table.clone(),
                rows,
                rng,
                self.stop.clone(),
                self.writes.clone(),
            )));
        }
        for _ in 0..READERS {
            let (all, rng) = (self.rows.iter().chain(&self.batch_rows), StdRng::seed_from_u64(rng.random()));
            tasks.push(tokio::spawn(read_rows(
                table.clone(),
                all.cloned().collect(),
                rng,
                self.stop.clone(),
                self.reads.clone(),
            )));
        }
        for counter in &self.counters {
            tasks.push(tokio::spawn(count(
                counts.clone(),
                counter.clone(),
                self.stop.clone(),
                self.writes.clone(),
            )));
        }
        tasks
    }

    async fn verify(&self, table: &Table) -> Result<(), String> {
        let mut found = BTreeMap::new();
        let mut scanner = table.scan(Scan::new());
        while let Some(batch) = scanner.next_batch().await.map_err(|e| format!("the scan failed: {e}"))? {
            for result in batch {
                let row = String::from_utf8_lossy(result.row().unwrap_or_default()).into_owned();
                if found.insert(row.clone(), result).is_some() {
                    return Err(format!("{row} came twice"));
                }
            }
        }
        for rows in self.rows.iter().chain(&self.batch_rows) {
            for row in 0..ROWS {
                let (key, result) = (rows.key(row), found.remove(&rows.key(row)));
                rows.check(row, result.as_ref()).map_err(|what| format!("row {key}: {what}"))?;
                rows.settle(row, result.as_ref());
            }
        }
        for counter in &self.counters {
            counter.check(found.remove(&counter.row).as_ref())?;
        }
        match found.keys().next() {
            None => self.verify_gets(table).await,
            Some(row) => Err(format!("a row that nobody wrote: {row}")),
        }
    }

    /// Gets take another path (bloom filters), so a few rows are also read by Gets.
    async fn verify_gets(&self, table: &Table) -> Result<(), String> {
        for rows in self.rows.iter().chain(&self.batch_rows) {
            for row in (0..ROWS).step_by(37) {
                let get = Get::new(rows.key(row));
                let result = table.get(get).await.map_err(|e| format!("a get failed: {e}"))?;
                let result = Some(&result).filter(|r| !r.is_empty());
                rows.check(row, result).map_err(|what| format!("row {} by get: {what}", rows.key(row)))?;
            }
        }
        Ok(())
    }
}

impl Counter {
    fn check(&self, result: Option<&RowResult>) -> Result<(), String> {
        let (low, high) = (self.acknowledged.load(Ordering::SeqCst), self.attempted.load(Ordering::SeqCst));
        let value = result.and_then(|r| r.counter("a", "n")).unwrap_or(0);
        let other = result.and_then(|r| r.counter("b", "n")).unwrap_or(0);
        if value != other {
            return Err(format!("counter {}: torn, {value} and {other}", self.row));
        }
        if !(low..=high).contains(&value) {
            return Err(format!("counter {}: {value}, acknowledged {low}, attempted {high}", self.row));
        }
        self.acknowledged.store(value, Ordering::SeqCst);
        self.attempted.store(value, Ordering::SeqCst);
        Ok(())
    }
}

async fn put_rows(
    table: Table,
    rows: Arc<Rows>,
    mut rng: StdRng,
    stop: Arc<AtomicBool>,
    writes: Arc<AtomicU64>,
) -> Result<(), String> {
    while !stop.load(Ordering::Relaxed) {
        let row = rng.random_range(0..ROWS);
        let number = rows.attempted[row as usize].load(Ordering::SeqCst) + 1;
        let written = match rows.attempt(row, number) {
            Mutation::Delete(delete) => table.delete(delete).await,
            Mutation::Put(put) => table.put(put).await,
            other => return Err(format!("not a write of a row: {other:?}")),
        };
        if let Err(error) = written {
            return died(&error);
        }
        rows.acknowledge(row, number);
        writes.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

async fn put_batches(
    table: Table,
    rows: Arc<Rows>,
    mut rng: StdRng,
    stop: Arc<AtomicBool>,
    writes: Arc<AtomicU64>,
) -> Result<(), String> {
    while !stop.load(Ordering::Relaxed) {
        let first = rng.random_range(0..ROWS);
        let batch: Vec<_> = (0..BATCH_ROWS).map(|i| (first + i) % ROWS).collect();
        let numbers: Vec<_> =
            batch.iter().map(|r| rows.attempted[*r as usize].load(Ordering::SeqCst) + 1).collect();
        let puts = batch.iter().zip(&numbers).map(|(row, number)| rows.attempt(*row, *number).into());
        let outcomes = table.batch(puts.collect()).await;
        for ((row, number), _) in batch.iter().zip(&numbers).zip(&outcomes).filter(|(_, o)| o.is_ok()) {
            rows.acknowledge(*row, *number);
            writes.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(error) = outcomes.iter().find_map(|o| o.as_ref().err()) {
            return died(error);
        }
    }
    Ok(())
}

async fn read_rows(
    table: Table,
    all: Vec<Arc<Rows>>,
    mut rng: StdRng,
    stop: Arc<AtomicBool>,
    reads: Arc<AtomicU64>,
) -> Result<(), String> {
    while !stop.load(Ordering::Relaxed) {
        let (rows, row) = (&all[rng.random_range(0..all.len())], rng.random_range(0..ROWS));
        let low = rows.low(row);
        let result = match table.get(Get::new(rows.key(row))).await {
            Ok(result) => result,
            Err(error) => return died(&error),
        };
        let result = Some(&result).filter(|result| !result.is_empty());
        rows.check_from(low, row, result)
            .map_err(|what| format!("row {} under load: {what}", rows.key(row)))?;
        reads.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

async fn count(
    table: Table,
    counter: Arc<Counter>,
    stop: Arc<AtomicBool>,
    writes: Arc<AtomicU64>,
) -> Result<(), String> {
    while !stop.load(Ordering::Relaxed) {
        counter.attempted.fetch_add(1, Ordering::SeqCst);
        let add = Increment::new(&counter.row).column("a", "n", 1).column("b", "n", 1);
        match table.increment(add).await {
            Ok(result) => {
                let (value, before) =
                    (result.counter("a", "n"), counter.acknowledged.fetch_add(1, Ordering::SeqCst));
                if value != Some(before + 1) {
                    return Err(format!("counter {}: answered {value:?} after {before}", counter.row));
                }
            }
            Err(error) if error.kind() == Some(ErrorKind::RegionTooBusy) => {
                counter.attempted.fetch_sub(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            }
            Err(error) => return died(&error),
        }
        writes.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Accepts a failure that a killed server explains; any other one fails the test.
fn died(error: &evenkeel_client::Error) -> Result<(), String> {
    match error.remote() {
        None => Ok(()),
        Some(e) if e.kind() == Some(ErrorKind::RegionTooBusy) => Ok(()),
        Some(_) => Err(format!("an exception under load: {error}")),
    }
}

/// Increments are not retried: the outcome of one that a kill interrupts is unknown. Puts with
/// retries last through the restart, so they only prove that the row can be overwritten; those
/// without prove durability.
async fn writer_connection(server: &Server, retries: u32) -> Connection {
    let operation_timeout = Duration::from_secs(20);
    let config = ClientConfig { retries, operation_timeout, ..config(&server.bootstrap()) };
    Connection::connect(config).await.expect("the server answers")
}

fn table_descriptor(name: &TableName) -> TableDescriptor {
    let family = |name: &str| ColumnFamilyDescriptor::new(name.as_bytes()).expect("legal");
    TableDescriptor::new(name.clone())
        .with_family(family("a").with("DATA_BLOCK_ENCODING", "FAST_DIFF"))
        .with_family(family("b"))
        .with("MEMSTORE_FLUSHSIZE", "1048576")
}

#[test]
fn acknowledged_writes_survive_kill_9() {
    let seed = seed();
    if let Err(what) = run(&mut StdRng::seed_from_u64(seed)) {
        panic!("{what}\nEVENKEEL_TEST_SEED={seed}");
    }
}

/// The value of `hbase.bucketcache.ioengine` for the start after a number of kills.
fn engine(folder: &Path, kills: u32) -> String {
    let name = ENGINES[(kills / KILLS_EACH) as usize % ENGINES.len()];
    let path = |name: &str| folder.join(name).display().to_string();
    match name {
        "files" => format!("files:{},{}", path("cache-1"), path("cache-2")),
        _ => format!("{name}:{}", path(name)),
    }
}

fn run(rng: &mut StdRng) -> Result<(), String> {
    let kills: u32 = std::env::var("EVENKEEL_TEST_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(KILLS);
    let began = Instant::now();
    let runtime = runtime();
    let mut server = Server::new(&[
        ("hbase.hstore.compaction.min", "3"),
        ("hbase.regionserver.hlog.blocksize", "1048576"),
        ("hbase.bucketcache.size", "2"),
        ("hbase.rs.cacheblocksonwrite", "true"),
        ("hbase.rs.cachecompactedblocksonwrite", "true"),
    ]);
    let caches = tempfile::tempdir().expect("a folder");
    server.set("hbase.bucketcache.ioengine", &engine(caches.path(), 0));
    server.start();
    let name: TableName = "kill9".parse().expect("legal");
    let splits = ["40", "80", "c0"].map(Bytes::from);
    runtime.block_on(async {
        let admin = server.connect().await.admin();
        admin.create_table(&table_descriptor(&name), &splits).await.map_err(|e| format!("create: {e}"))
    })?;
    let load = Load::new();
    let mut done = 0;
    while done < kills && began.elapsed() < TIME_MAX {
        // In every second round Puts end with the server as Increments do, so that their
        // unacknowledged writes show.
        let retries = if done % 2 == 0 { 0 } else { 30 };
        let table = runtime.block_on(writer_connection(&server, retries)).table(name.clone());
        let counts = runtime.block_on(writer_connection(&server, 0)).table(name.clone());
        let tasks = runtime.block_on(async { load.spawn(&table, &counts, rng) });
        sleep(Duration::from_millis(rng.random_range(20..1500)));
        server.kill();
        load.stop.store(true, Ordering::SeqCst);
        server.set("hbase.bucketcache.ioengine", &engine(caches.path(), done + 1));
        server.start();
        for task in tasks {
            let ended = runtime.block_on(task).map_err(|e| format!("a writer panicked: {e}"))?;
            ended.map_err(|what| format!("kill {done}: {what}"))?;
        }
        let fresh = runtime.block_on(server.connect());
        let verified = runtime.block_on(load.verify(&fresh.table(name.clone())));
        verified.map_err(|what| format!("kill {done}: {what}"))?;
        done += 1;
    }
    let writes = load.writes.load(Ordering::Relaxed);
    let reads = load.reads.load(Ordering::Relaxed);
    println!("{done} kills, {writes} acknowledged writes, {reads} reads under load, {:?}", began.elapsed());
    if writes.min(reads) < u64::from(done) * 20 {
        return Err(format!(
            "only {writes} writes and {reads} reads in {done} kills: too little to prove anything"
        ));
    }
    if done < kills.min(KILLS_MIN) {
        return Err(format!("only {done} kills in {:?}", began.elapsed()));
    }
    logs_were_rolled(&server, done)?;
    files_were_written(&server)
}

/// The test also proves little about rolls if the archive has no more logs than the kills left.
fn logs_were_rolled(server: &Server, kills: u32) -> Result<(), String> {
    let dir = server.root().join("oldWALs");
    let logs = std::fs::read_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?.count();
    println!("{logs} logs in the archive");
    if logs < 2 * kills as usize { Err(format!("only {logs} logs in {kills} kills")) } else { Ok(()) }
}

/// The test proves little about flushes if there was none.
fn files_were_written(server: &Server) -> Result<(), String> {
    let data = server.root().join("data/default/kill9");
    let mut files = 0;
    for region in std::fs::read_dir(&data).map_err(|e| format!("{}: {e}", data.display()))?.flatten() {
        files += std::fs::read_dir(region.path().join("a")).map_or(0, |dir| dir.count());
    }
    match files {
        0 => Err("no MemStore was flushed".to_owned()),
        n => {
            println!("{n} store files of family a");
            Ok(())
        }
    }
}
