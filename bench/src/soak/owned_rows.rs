//! Workers that own their rows: acknowledged writes survive all faults.
//!
//! Each write of a row has a number, which is its timestamp as well, so writes take effect in the
//! order of their numbers, in any order of arrival. Every [`DELETE_EVERY`]th write deletes the row.
//! A row holds its number in four columns of two families, each followed by filler whose length and
//! bytes are derived from the number. A row must show one complete write, from the last
//! acknowledged to the last attempted one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use evenkeel_client::{Action, Delete, Get, Put, RowResult, Scan, Table};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinHandle;

use super::{FailedStep, Running};

/// Rows of each worker.
const ROWS: u64 = 300;
/// Workers that write single rows.
const SINGLE: usize = 2;
/// Workers that write batches.
const BATCHES: usize = 2;
/// Rows of a batch.
const BATCH: u64 = 30;
/// Reader tasks.
const READERS: usize = 2;
/// Each write with a multiple of this number deletes its row.
const DELETE_EVERY: u64 = 6;
/// The columns of a row.
const COLUMNS: [(&str, &str); 4] = [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")];
/// The longest filler, in bytes.
const FILLING_MAX: u64 = 1_500;

/// The rows of one worker.
struct Rows {
    owner: usize,
    /// The number of the last write that was acknowledged.
    acknowledged: Vec<AtomicU64>,
    /// The number of the last write that was sent.
    attempted: Vec<AtomicU64>,
}

/// The rows of all workers.
pub struct OwnedRows {
    all: Vec<Arc<Rows>>,
    /// Writes acknowledged, and rows read, since the start.
    pub counts: Arc<[AtomicU64; 2]>,
}

/// The last acknowledged number of each row, by owner and index.
pub struct AcknowledgedRows(Vec<Vec<u64>>);

type Outcome = Result<(), String>;

impl Rows {
    fn key(&self, row: u64) -> String {
        let spread = (row ^ (self.owner as u64) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        format!("{spread:02x}-{}-{row:04}", self.owner)
    }

    fn next(&self, row: u64) -> u64 {
        self.attempted[row as usize].fetch_add(1, Ordering::SeqCst) + 1
    }

    fn acknowledge(&self, row: u64, number: u64) {
        self.acknowledged[row as usize].fetch_max(number, Ordering::SeqCst);
    }

    /// The write with this number.
    fn write(&self, row: u64, number: u64) -> Action {
        let (key, at) = (self.key(row), i64::try_from(number).unwrap_or(i64::MAX));
        if number.is_multiple_of(DELETE_EVERY) {
            return Delete::new(key).family_up_to("a", at).family_up_to("b", at).into();
        }
        let put = |put: Put, (family, qualifier): (&str, &str)| {
            put.column_at(family, qualifier, at, value(number, family, qualifier))
        };
        COLUMNS.into_iter().fold(Put::new(key), put).into()
    }

    /// Checks that a row shows one of the writes from `low` to the last one attempted.
    fn check(&self, row: u64, low: u64, result: Option<&RowResult>) -> Outcome {
        let high = self.attempted[row as usize].load(Ordering::SeqCst);
        let is_absent = |number: u64| number.is_multiple_of(DELETE_EVERY);
        let Some(result) = result.filter(|result| !result.is_empty()) else {
            return match (low..=high).any(is_absent) {
                true => Ok(()),
                false => Err(format!("row {}: absent; acknowledged {low}, attempted {high}", self.key(row))),
            };
        };
        let first = result.value("a", "x").or_else(|| result.cells().first().map(|c| c.as_cell().value()));
        let number = first.and_then(|v| Some(u64::from_be_bytes(v.get(..8)?.try_into().ok()?))).unwrap_or(0);
        let whole = COLUMNS.iter().all(|(f, q)| result.value(f, q) == Some(&value(number, f, q)[..]));
        if !whole || result.cells().len() != COLUMNS.len() {
            return Err(format!("row {}: torn or damaged: {:?}", self.key(row), result.cells()));
        }
        match (low..=high).contains(&number) && !is_absent(number) {
            true => Ok(()),
            false => {
                Err(format!("row {}: number {number}; acknowledged {low}, attempted {high}", self.key(row)))
            }
        }
    }

    fn low(&self) -> Vec<u64> {
        self.acknowledged.iter().map(|n| n.load(Ordering::SeqCst)).collect()
    }
}

/// The value of a column: the number, then filler.
fn value(number: u64, family: &str, qualifier: &str) -> Vec<u8> {
    let salt = family
        .bytes()
        .chain(qualifier.bytes())
        .fold(number, |n, b| (n.rotate_left(9) ^ u64::from(b)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let len = salt >> 32 & 0xffff_ffff;
    let len = if len.is_multiple_of(8) { len % FILLING_MAX } else { len % 60 };
    let mut value = number.to_be_bytes().to_vec();
    value.extend((0..len).map(|i| (salt.rotate_left((i % 64) as u32) & 0xff).to_le_bytes()[0]));
    value
}

impl Default for OwnedRows {
    fn default() -> Self {
        let zeros = || (0..ROWS).map(|_| AtomicU64::new(0)).collect();
        let rows = |owner| Arc::new(Rows { owner, acknowledged: zeros(), attempted: zeros() });
        Self { all: (0..SINGLE + BATCHES).map(rows).collect(), counts: Arc::default() }
    }
}

impl OwnedRows {
    /// Starts the writers and readers of an epoch.
    pub fn start(&self, table: &Table, running: &Arc<Running>, rng: &mut StdRng) -> Vec<JoinHandle<Outcome>> {
        let mut tasks = Vec::new();
        for (owner, rows) in self.all.iter().enumerate() {
            let (table, rows, running) = (table.clone(), rows.clone(), running.clone());
            let (rng, counts) = (StdRng::seed_from_u64(rng.random()), self.counts.clone());
            tasks.push(match owner < SINGLE {
                true => tokio::spawn(write(table, rows, running, rng, counts, 1)),
                false => tokio::spawn(write(table, rows, running, rng, counts, BATCH)),
            });
        }
        for _ in 0..READERS {
            let (table, all, running) = (table.clone(), self.all.clone(), running.clone());
            let (rng, counts) = (StdRng::seed_from_u64(rng.random()), self.counts.clone());
            tasks.push(tokio::spawn(async move { read(&table, &all, &running, rng, &counts).await }));
        }
        tasks
    }

    /// The current acknowledged numbers.
    pub fn low(&self) -> AcknowledgedRows {
        AcknowledgedRows(self.all.iter().map(|rows| rows.low()).collect())
    }

    /// Checks every row of a table that holds these rows in a state since `low`.
    ///
    /// # Errors
    /// The first wrong row, as an anomaly, or the failure of a read.
    pub async fn verify(&self, table: &Table, low: &AcknowledgedRows) -> Result<(), FailedStep> {
        let mut found = std::collections::HashMap::new();
        let mut scanner = table.scan(Scan::new().caching(500));
        loop {
            let batch = scanner.next_batch().await;
            let refused = |e| FailedStep::Refused(format!("the scan of {} failed: {e}", table.name()));
            let Some(batch) = batch.map_err(refused)? else { break };
            for result in batch {
                let row = result.row().map(|r| String::from_utf8_lossy(r).into_owned()).unwrap_or_default();
                if let Some(row) = found.insert(row.clone(), result).map(|_| row) {
                    let what = format!("{row} came twice in one scan of {}", table.name());
                    return Err(FailedStep::Anomaly(what));
                }
            }
        }
        for (rows, low) in self.all.iter().zip(&low.0) {
            for row in 0..ROWS {
                let result = found.remove(&rows.key(row));
                rows.check(row, low[row as usize], result.as_ref())
                    .map_err(|what| FailedStep::Anomaly(format!("{}, scan: {what}", table.name())))?;
            }
        }
        match found.keys().next() {
            Some(row) => Err(FailedStep::Anomaly(format!("{}: {row} was never written", table.name()))),
            None => self.verify_by_gets(table, low).await,
        }
    }

    async fn verify_by_gets(&self, table: &Table, low: &AcknowledgedRows) -> Result<(), FailedStep> {
        for (rows, low) in self.all.iter().zip(&low.0) {
            let gets = (0..ROWS).map(|row| Get::new(rows.key(row)));
            for (row, result) in (0..).zip(table.get_all(gets).await) {
                let refused = |e| FailedStep::Refused(format!("a get of {} failed: {e}", table.name()));
                let result = result.map_err(refused)?;
                rows.check(row, low[row as usize], Some(&result))
                    .map_err(|what| FailedStep::Anomaly(format!("{}, get: {what}", table.name())))?;
            }
        }
        Ok(())
    }
}

async fn write(
    table: Table,
    rows: Arc<Rows>,
    running: Arc<Running>,
    mut rng: StdRng,
    counts: Arc<[AtomicU64; 2]>,
    batch: u64,
) -> Outcome {
    while !running.is_over() {
        let first = rng.random_range(0..ROWS);
        let writes: Vec<_> =
            (0..batch).map(|i| (first + i) % ROWS).map(|row| (row, rows.next(row))).collect();
        let actions = writes.iter().map(|(row, number)| rows.write(*row, *number)).collect();
        let outcomes = table.batch(actions).await;
        let mut failed = false;
        for ((row, number), outcome) in writes.iter().zip(&outcomes) {
            match outcome {
                Ok(_) => rows.acknowledge(*row, *number),
                Err(_) => failed = true,
            }
        }
        let made = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        counts[0].fetch_add(made as u64, Ordering::Relaxed);
        let pause = if failed { 20 } else { rng.random_range(0..3) };
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    Ok(())
}

/// Reads single rows, several rows, and ranges, and checks them. A read may fail; a wrong result
/// ends the task.
async fn read(
    table: &Table,
    all: &[Arc<Rows>],
    running: &Running,
    mut rng: StdRng,
    counts: &[AtomicU64; 2],
) -> Outcome {
    while !running.is_over() {
        let rows = &all[rng.random_range(0..all.len())];
        let low = rows.low();
        let count = if rng.random_bool(0.5) { 1 } else { 25 };
        let asked: Vec<_> = (0..count).map(|_| rng.random_range(0..ROWS)).collect();
        let results = table.get_all(asked.iter().map(|row| Get::new(rows.key(*row)))).await;
        for (row, result) in asked.iter().zip(results) {
            let Ok(result) = result else {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            rows.check(*row, low[*row as usize], Some(&result))
                .map_err(|what| format!("under load, get: {what}"))?;
            counts[1].fetch_add(1, Ordering::Relaxed);
        }
        if rng.random_bool(0.05) {
            scan(table, all, &mut rng, counts).await?;
        }
    }
    Ok(())
}

/// Scans a range under load: rows are in order, without duplicates or gaps, each as its owner wrote
/// it.
async fn scan(table: &Table, all: &[Arc<Rows>], rng: &mut StdRng, counts: &[AtomicU64; 2]) -> Outcome {
    let low: Vec<_> = all.iter().map(|rows| rows.low()).collect();
    let from = format!("{:02x}", rng.random_range(0..=255u32));
    let to = format!("{:02x}", rng.random_range(0..=255u32));
    let (from, to) = if from < to { (from, to) } else { (to, from) };
    let mut found = std::collections::BTreeMap::new();
    let (mut scanner, mut last) = (table.scan(Scan::new().from(&from).to(&to).caching(20)), String::new());
    loop {
        let Ok(batch) = scanner.next_batch().await else { return Ok(()) };
        let Some(batch) = batch else { break };
        for result in batch {
            let row = result.row().map(|r| String::from_utf8_lossy(r).into_owned()).unwrap_or_default();
            if row <= last {
                return Err(format!("under load, scan from {from}: {row} after {last}"));
            }
            last.clone_from(&row);
            found.insert(row, result);
        }
    }
    for (rows, low) in all.iter().zip(&low) {
        for row in (0..ROWS).filter(|row| (from.as_str()..to.as_str()).contains(&rows.key(*row).as_str())) {
            let result = found.get(&rows.key(row));
            rows.check(row, low[row as usize], result)
                .map_err(|what| format!("under load, scan from {from} to {to}: {what}"))?;
        }
    }
    counts[1].fetch_add(found.len() as u64, Ordering::Relaxed);
    Ok(())
}
