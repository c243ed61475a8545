//! Workers that read and write a few shared rows, whose histories must be linearizable.
//!
//! Every epoch has new rows, so that each history starts without cells. Rows of earlier epochs are
//! not written and must keep their last read state.
//!
//! Every call is made once, without retries, so that an operation without a response is applied at
//! most once. The worker sends no further write to that row in the epoch (see
//! [`history`](super::history)). [`Registers::repeating_increments`] makes increments with retries:
//! a server recognises a repeated one by its nonce. Then it knows that the increment was made, but
//! need not know its sum.
//!
//! A read of several rows by one call is one read in the history of each row: HBase promises
//! nothing about the rows together.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use evenkeel_client::{
    Append, CheckAndMutate, CompareOp, Error, Get, Increment, Put, RowMutations, RowResult, Scan, Table,
};
use evenkeel_common::ErrorKind;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinHandle;

use crate::history::{Entry, Operation, RowState, Verdict, append, check};

/// Rows of an epoch.
const ROWS: usize = 10;
/// Workers on them.
const WORKERS: u64 = 8;
/// The largest number of operations on a row in an epoch, which keeps the check fast.
const OPERATIONS_MAX: usize = 3_000;
/// The number of earlier epochs whose rows are read again.
const EPOCHS_KEPT: usize = 20;
/// Rows that one call reads.
const ROWS_OF_A_BATCH: usize = 3;
/// The kinds of operations, by the number that [`Worker::operate`] is given.
const KINDS: u32 = 12;
/// Beyond them, a read of several rows.
const READ_ROWS: u32 = KINDS;

/// The rows of all epochs.
pub struct Registers {
    /// Times of histories are counted from here.
    began: Instant,
    /// Makes increments, with retries.
    repeating: Option<Table>,
    /// A worker's pause between two operations.
    pause: Duration,
    settled: Vec<SettledRow>,
    /// Operations with and without a response.
    pub operations: [u64; 2],
}

/// A row of an earlier epoch.
struct SettledRow {
    name: String,
    /// What was last read.
    state: RowState,
    /// All that happened to it, if an operation without a response may still take effect.
    unsettled: Vec<Entry>,
}

/// A worker's entries by row.
type Seen = Vec<(usize, Entry)>;

/// A running epoch.
pub struct Epoch {
    rows: Vec<String>,
    workers: Vec<JoinHandle<Seen>>,
}

impl SettledRow {
    /// Compares what is read now with what was read before.
    fn check(&mut self, now: RowState, sent_ns: u64, answered_ns: u64) -> Result<(), String> {
        if !self.unsettled.is_empty() {
            self.state = now.clone();
            let answered_ns = Some(answered_ns);
            self.unsettled.push(Entry { sent_ns, answered_ns, operation: Operation::Get(now) });
            return judge(&self.name, &self.unsettled);
        }
        let (name, state) = (&self.name, &self.state);
        match now == *state {
            true => Ok(()),
            false => Err(format!("register {name} of an earlier epoch was {state:?} and is {now:?}")),
        }
    }
}

/// The name of a row; a prefix of hex digits spreads the rows over the regions.
fn name(epoch: u64, row: usize) -> String {
    let spread = (epoch.wrapping_mul(31) + row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    format!("{spread:02x}-{epoch}-{row}")
}

impl Registers {
    /// Without rows. Workers make each call once, and do not pause.
    #[allow(clippy::new_without_default, reason = "it reads the clock")]
    pub fn new() -> Self {
        let (repeating, pause, settled, operations) = Default::default();
        Self { began: Instant::now(), repeating, pause, settled, operations }
    }

    /// Makes increments by a client with retries, and lets workers pause between two operations.
    pub fn repeating_increments(self, table: Table, pause: Duration) -> Self {
        Self { repeating: Some(table), pause, ..self }
    }

    /// Starts the workers of an epoch, which run until `over`. The client of `table` makes each
    /// call once.
    pub fn start(&self, epoch: u64, table: &Table, over: &Arc<AtomicBool>, rng: &mut StdRng) -> Epoch {
        let rows: Vec<_> = (0..ROWS).map(|row| name(epoch, row)).collect();
        let worker = |id| {
            let rng = StdRng::seed_from_u64(rng.random());
            let worker = Worker {
                id,
                rng,
                began: self.began,
                table: table.clone(),
                repeating: self.repeating.clone(),
                pause: self.pause,
                rows: rows.clone(),
                over: Arc::clone(over),
                given_up: HashSet::new(),
                written: 0,
                seen: Vec::new(),
            };
            tokio::spawn(worker.run())
        };
        Epoch { workers: (0..WORKERS).map(worker).collect(), rows }
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
        for (name, mut history) in epoch.rows.into_iter().zip(histories) {
            history.sort_by_key(|entry| entry.sent_ns);
            let unanswered = history.iter().filter(|entry| entry.answered_ns.is_none()).count();
            self.operations[0] += (history.len() - unanswered) as u64;
            self.operations[1] += unanswered as u64;
            let (state, sent_ns, answered_ns) = self.read(table, &name).await?;
            let operation = Operation::Get(state.clone());
            history.push(Entry { sent_ns, answered_ns: Some(answered_ns), operation });
            judge(&name, &history)?;
            let unsettled = if unanswered > 0 { history } else { Vec::new() };
            self.settled.push(SettledRow { name, state, unsettled });
        }
        let old = self.settled.len().saturating_sub(EPOCHS_KEPT * ROWS);
        self.settled.drain(..old);
        self.verify_settled(table).await
    }

    /// Checks that rows of earlier epochs are unchanged.
    ///
    /// # Errors
    /// As [`Registers::verify`].
    pub async fn verify_settled(&mut self, table: &Table) -> Result<(), String> {
        for at in 0..self.settled.len() {
            let (now, sent_ns, answered_ns) = self.read(table, &self.settled[at].name).await?;
            self.settled[at].check(now, sent_ns, answered_ns)?;
        }
        Ok(())
    }

    /// Reads a row; with the times of the call and of its response.
    async fn read(&self, table: &Table, row: &str) -> Result<(RowState, u64, u64), String> {
        let sent_ns = ns(self.began);
        let result = table.get(Get::new(row)).await.map_err(|e| format!("register {row}: {e}"))?;
        let state = state_of(&result).map_err(|e| format!("register {row}: {e}"))?;
        Ok((state, sent_ns, ns(self.began)))
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
    repeating: Option<Table>,
    pause: Duration,
    rows: Vec<String>,
    over: Arc<AtomicBool>,
    /// Rows to which it sends no further write.
    given_up: HashSet<usize>,
    /// The number of values that it has written, so that each is unique.
    written: u64,
    seen: Seen,
}

impl Worker {
    async fn run(mut self) -> Seen {
        let mut sent: HashMap<usize, usize> = HashMap::new();
        while !self.is_over() {
            let row = self.rng.random_range(0..ROWS);
            let count = sent.entry(row).or_default();
            *count += 1;
            if *count > OPERATIONS_MAX / WORKERS as usize {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
            let kind = match self.given_up.contains(&row) {
                true => [0, READ_ROWS][self.rng.random_range(0..2)],
                false => self.rng.random_range(0..=READ_ROWS),
            };
            if !self.pause.is_zero() {
                tokio::time::sleep(self.pause).await;
            }
            if kind == READ_ROWS {
                self.read_rows(row).await;
                continue;
            }
            let sent_ns = ns(self.began);
            let outcome = self.operate(row, kind).await;
            let answered_ns = Some(ns(self.began));
            match outcome {
                Ok(operation) => self.seen.push((row, Entry { sent_ns, answered_ns, operation })),
                Err((operation, error)) => {
                    if let Some(operation) = operation.filter(|made| self.may_be_applied(made, &error)) {
                        self.given_up.insert(row);
                        self.seen.push((row, Entry { sent_ns, answered_ns: None, operation }));
                    }
                    self.wait_for_an_answer().await;
                }
            }
        }
        self.seen
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Returns true unless the server reported that it has not applied a write. The error of a
    /// repeated call says nothing about the tries before the last one.
    fn may_be_applied(&self, write: &Operation, error: &Error) -> bool {
        let is_repeated = self.repeating.is_some() && matches!(write, Operation::Increment(..));
        is_repeated || !was_not_applied(error)
    }

    /// Reads some rows by one call, from a row on.
    async fn read_rows(&mut self, first: usize) {
        let rows: Vec<_> = (first..first + ROWS_OF_A_BATCH).map(|row| row % ROWS).collect();
        let gets: Vec<_> = rows.iter().map(|row| Get::new(&self.rows[*row])).collect();
        let sent_ns = ns(self.began);
        let results = self.table.get_all(gets).await;
        let answered_ns = Some(ns(self.began));
        let mut all_answered = true;
        for (row, result) in rows.into_iter().zip(results) {
            match result {
                Ok(result) => {
                    self.seen.push((row, Entry { sent_ns, answered_ns, operation: seen_state(&result) }));
                }
                Err(_) => all_answered = false,
            }
        }
        if !all_answered {
            self.wait_for_an_answer().await;
        }
    }

    /// Waits until the server answers again, so that one fault affects one row.
    async fn wait_for_an_answer(&self) {
        tokio::time::sleep(Duration::from_millis(10)).await;
        while !self.is_over() && self.table.get(Get::new("00")).await.is_err() {
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
                let increment = Increment::new(&key).column("a", "n", 1);
                let response = self.repeating.as_ref().unwrap_or(table).increment(increment).await;
                let sum = response.as_ref().ok().and_then(|r| r.counter("a", "n"));
                // The response to a call that was made once has the sum; no order explains another.
                let sum = if self.repeating.is_some() { sum } else { sum.or(Some(i64::MIN)) };
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
    Ok(seen_state(&result))
}

/// The response of a read. A torn row becomes a state that no order explains.
fn seen_state(result: &RowResult) -> Operation {
    let torn = RowState { list: (usize::MAX, 0), ..RowState::default() };
    Operation::Get(state_of(result).unwrap_or(torn))
}

/// Returns true if the server reported that it has not applied a write.
fn was_not_applied(error: &Error) -> bool {
    use ErrorKind as K;
    let refusals = [
        K::NotServingRegion,
        K::RegionMoved,
        K::RegionOpening,
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
