//! Workers that read and write a few shared rows, whose histories must be linearizable.
//!
//! Every epoch has new rows, so that each history starts without cells. Rows of earlier epochs are
//! not written and must keep their last read state.
//!
//! Every call is made once, without retries, so that an operation without a response is applied at
//! most once. The worker sends no further write to that row in the epoch (see
//! [`history`](super::history)).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_client::{
    Append, CheckAndMutate, CompareOp, Error, Get, Increment, Put, RowMutations, RowResult, Scan, Table,
};
use evenkeel_common::ErrorKind;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinHandle;

use super::Running;
use super::history::{Entry, Operation, RowState, Verdict, append, check};

/// Rows of an epoch.
const ROWS: usize = 10;
/// Workers on them.
const WORKERS: u64 = 8;
/// The largest number of operations on a row in an epoch, which keeps the check fast.
const OPERATIONS_MAX: usize = 3_000;
/// The number of earlier epochs whose rows are read again.
const EPOCHS_KEPT: usize = 20;

/// The rows of all epochs.
#[derive(Default)]
pub struct Registers {
    /// The states of earlier epochs' rows.
    settled: Vec<(String, RowState)>,
    /// Operations with and without a response.
    pub operations: [u64; 2],
}

/// A worker's entries by row.
type Seen = Vec<(usize, Entry)>;

/// A running epoch.
pub struct Epoch {
    rows: Vec<String>,
    workers: Vec<JoinHandle<Seen>>,
    began: Instant,
}

/// The name of a row; a prefix of hex digits spreads the rows over the regions.
fn name(epoch: u64, row: usize) -> String {
    let spread = (epoch.wrapping_mul(31) + row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    format!("{spread:02x}-{epoch}-{row}")
}

impl Registers {
    /// Starts the workers of an epoch.
    pub fn start(&self, epoch: u64, table: &Table, running: &Arc<Running>, rng: &mut StdRng) -> Epoch {
        let (rows, began): (Vec<_>, _) = ((0..ROWS).map(|row| name(epoch, row)).collect(), Instant::now());
        let worker = |id| {
            let rng = StdRng::seed_from_u64(rng.random());
            let worker = Worker {
                id,
                rng,
                began,
                table: table.clone(),
                rows: rows.clone(),
                running: running.clone(),
                given_up: HashSet::new(),
                written: 0,
                seen: Vec::new(),
            };
            tokio::spawn(worker.run())
        };
        Epoch { workers: (0..WORKERS).map(worker).collect(), rows, began }
    }

    /// Waits for the workers of an epoch, reads its rows once more and checks their histories; then
    /// checks that rows of earlier epochs are unchanged.
    ///
    /// # Errors
    /// A message with the history.
    pub async fn verify(&mut self, epoch: Epoch, table: &Table) -> Result<(), String> {
        let mut histories: Vec<Vec<Entry>> = vec![Vec::new(); ROWS];
        for worker in epoch.workers {
            let seen = worker.await.map_err(|e| format!("a worker of the registers panicked: {e}"))?;
            seen.into_iter().for_each(|(row, entry)| histories[row].push(entry));
        }
        for (row, mut history) in epoch.rows.into_iter().zip(histories) {
            history.sort_by_key(|entry| entry.sent_ns);
            let unanswered = history.iter().filter(|entry| entry.answered_ns.is_none()).count();
            self.operations[0] += (history.len() - unanswered) as u64;
            self.operations[1] += unanswered as u64;
            let sent_ns = ns(epoch.began);
            let state = read(table, &row).await.map_err(|e| format!("register {row}: {e}"))?;
            let operation = Operation::Get(state.clone());
            history.push(Entry { sent_ns, answered_ns: Some(ns(epoch.began)), operation });
            judge(&row, &history)?;
            self.settled.push((row, state));
        }
        let old = self.settled.len().saturating_sub(EPOCHS_KEPT * ROWS);
        self.settled.drain(..old);
        for (row, state) in &self.settled {
            let now = read(table, row).await.map_err(|e| format!("register {row}: {e}"))?;
            if now != *state {
                return Err(format!("register {row} of an earlier epoch was {state:?} and is {now:?}"));
            }
        }
        Ok(())
    }
}

/// The history of a non-linearizable row is the anomaly's text.
fn judge(row: &str, history: &[Entry]) -> Result<(), String> {
    let tell = |to: usize| -> String {
        let lines = history.iter().take(to + 1).map(|entry| {
            format!("{:>14} {:>14?} {:?}", entry.sent_ns, entry.answered_ns.unwrap_or(0), entry.operation)
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    match check(history) {
        Verdict::Linearizable => Ok(()),
        Verdict::Violation(at) => {
            Err(format!("register {row}: entry {at} is not linearizable\n{}", tell(history.len() - 1)))
        }
        Verdict::Undecided => Err(format!(
            "register {row}: too many operations without a response\n{}",
            tell(history.len() - 1)
        )),
    }
}

fn ns(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

async fn read(table: &Table, row: &str) -> Result<RowState, String> {
    state_of(&table.get(Get::new(row)).await.map_err(|e| e.to_string())?)
}

/// A row as a state.
///
/// # Errors
/// If the columns of the pair differ: a torn mutation.
fn state_of(result: &RowResult) -> Result<RowState, String> {
    let number = |family: &str, qualifier: &str| {
        let value = result.value(family, qualifier)?;
        Some(value.try_into().map_or(u64::MAX, u64::from_be_bytes))
    };
    let pair = number("a", "p");
    if pair != number("b", "p") {
        return Err(format!("torn: a:p is {pair:?} and b:p is {:?}", number("b", "p")));
    }
    let list = result.value("b", "l").map_or((0, 0), |bytes| append((0, 0), bytes));
    Ok(RowState { register: number("a", "v"), pair, counter: result.counter("a", "n"), list })
}

struct Worker {
    id: u64,
    rng: StdRng,
    began: Instant,
    table: Table,
    rows: Vec<String>,
    running: Arc<Running>,
    /// Rows to which it sends no further write.
    given_up: HashSet<usize>,
    /// The number of values that it has written, so that each is unique.
    written: u64,
    seen: Seen,
}

impl Worker {
    async fn run(mut self) -> Seen {
        let mut sent: HashMap<usize, usize> = HashMap::new();
        while !self.running.is_over() {
            let row = self.rng.random_range(0..ROWS);
            let count = sent.entry(row).or_default();
            *count += 1;
            if *count > OPERATIONS_MAX / WORKERS as usize {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
            let kind = if self.given_up.contains(&row) { 0 } else { self.rng.random_range(0..12) };
            let sent_ns = ns(self.began);
            let outcome = self.operate(row, kind).await;
            let answered_ns = Some(ns(self.began));
            match outcome {
                Ok(operation) => self.seen.push((row, Entry { sent_ns, answered_ns, operation })),
                Err((operation, error)) => {
                    if let Some(operation) = operation.filter(|_| !was_not_applied(&error)) {
                        self.given_up.insert(row);
                        self.seen.push((row, Entry { sent_ns, answered_ns: None, operation }));
                    }
                    self.pause().await;
                }
            }
        }
        self.seen
    }

    /// Waits until the server answers again, so that one fault affects one row.
    async fn pause(&self) {
        tokio::time::sleep(Duration::from_millis(10)).await;
        while !self.running.is_over() && self.table.get(Get::new("00")).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn value(&mut self) -> u64 {
        self.written += 1;
        self.id << 40 | self.written
    }

    /// Makes one operation. The failure of a write contains the operation.
    async fn operate(&mut self, row: usize, kind: u32) -> Result<Operation, (Option<Operation>, Error)> {
        let (key, value) = (self.rows[row].clone(), self.value());
        let bytes = value.to_be_bytes();
        let table = &self.table;
        match kind {
            0..4 => get(table, &key, kind == 0).await.map_err(|e| (None, e)),
            4 | 5 => {
                let done = table.put(Put::new(&key).column("a", "v", bytes)).await;
                outcome(Operation::Put(value), done)
            }
            6 => {
                let put = |family| Put::new(&key).column(family, "p", bytes);
                let both = RowMutations::new(&key).with(put("a")).with(put("b"));
                outcome(Operation::PutPair(value), table.mutate_row(both).await.map(drop))
            }
            7 | 8 => self.check_and_put(&key, value).await,
            9 | 10 => {
                let response = table.increment(Increment::new(&key).column("a", "n", 1)).await;
                let sum = response.as_ref().ok().and_then(|r| r.counter("a", "n")).unwrap_or(i64::MIN);
                outcome(Operation::Increment(1, sum), response.map(drop))
            }
            _ => {
                let response = table.append(Append::new(&key).column("b", "l", bytes)).await;
                let list = response.as_ref().ok().and_then(|r| r.value("b", "l")).unwrap_or_default();
                outcome(Operation::Append(bytes.to_vec(), append((0, 0), list)), response.map(drop))
            }
        }
    }

    /// Reads the register, and writes it if it is unchanged.
    async fn check_and_put(
        &mut self,
        key: &str,
        value: u64,
    ) -> Result<Operation, (Option<Operation>, Error)> {
        let now = self.table.get(Get::new(key).column("a", "v")).await.map_err(|e| (None, e))?;
        let expected = now.value("a", "v").and_then(|v| Some(u64::from_be_bytes(v.try_into().ok()?)));
        let put = Put::new(key).column("a", "v", value.to_be_bytes());
        let check = match expected {
            None => CheckAndMutate::if_absent(key, "a", "v"),
            Some(value) => CheckAndMutate::new(key, "a", "v", CompareOp::Equal, value.to_be_bytes()),
        };
        let response = self.table.check_and_mutate(check.then(put)).await;
        let done = response.as_ref().is_ok_and(|response| response.success);
        outcome(Operation::CheckAndPut { expected, value, done }, response.map(drop))
    }
}

fn outcome(operation: Operation, made: Result<(), Error>) -> Result<Operation, (Option<Operation>, Error)> {
    match made {
        Ok(()) => Ok(operation),
        Err(error) => Err((Some(operation), error)),
    }
}

/// Reads a row, by a Get or by a scan of it.
async fn get(table: &Table, key: &str, by_scan: bool) -> Result<Operation, Error> {
    let result = match by_scan {
        false => table.get(Get::new(key)).await?,
        true => {
            let mut scanner = table.scan(Scan::new().from(key).to_inclusive(key));
            scanner.next().await?.unwrap_or_default()
        }
    };
    // A torn row becomes a state that no order explains.
    let torn = RowState { list: (usize::MAX, 0), ..RowState::default() };
    Ok(Operation::Get(state_of(&result).unwrap_or(torn)))
}

/// Returns true if the server reported that it has not applied a write.
fn was_not_applied(error: &Error) -> bool {
    use ErrorKind as K;
    let refusals = [
        K::NotServingRegion,
        K::RegionTooBusy,
        K::CallQueueTooBig,
        K::CallDropped,
        K::WrongRegion,
        K::RegionServerStopped,
        K::ServerNotRunningYet,
    ];
    error.kind().is_some_and(|kind| refusals.contains(&kind)) || matches!(last(error), Error::NoServer(_))
}

fn last(error: &Error) -> &Error {
    match error {
        Error::RetriesExhausted { last: inner, .. } => last(inner),
        other => other,
    }
}
