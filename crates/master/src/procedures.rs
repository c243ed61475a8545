//! Procedures: changes that take a while. The client gets an id at once and polls for the outcome.
//!
//! A few threads run them. Procedures of one table run in turn, in the order of submission. A
//! procedure that waits for another of its table occupies no thread, so a stuck table does not
//! delay changes of other tables. An RPC that changes a single region is a procedure of its table
//! and gets its reply when that ends ([`ProcedureExecutor::on_outcome`]), so no handler waits for a
//! table. A procedure holds its table's lock ([`TableLocks`]) while it runs, as does the assignment
//! in the background.
//!
//! Outcomes are kept for a while and then dropped. A client that requests a dropped one gets "not
//! found" and checks the table itself, as HBase's clients do. A retried request with the same nonce
//! gets the id of the first one.
//!
//! # Bounds
//! The number of waiting procedures, in total and per table; the bytes that waiting and running
//! procedures hold; the number and the bytes of outcomes, of which the oldest are dropped.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use evenkeel_common::clock::Clock;
use evenkeel_common::thread::{Supervisor, catch, catch_and_log, spawn_essential};
use evenkeel_common::{ErrorKind, HBaseError, Result, TableName};
use parking_lot::{ArcMutexGuard, Condvar, Mutex, RawMutex};

/// The limit on procedures waiting to run.
const QUEUED_MAX: usize = 1024;
/// The limit per table, so that one table cannot fill the queue.
const QUEUED_OF_TABLE_MAX: usize = 64;
/// The limit on bytes that waiting and running procedures hold, such as descriptors. A procedure
/// that holds more may run when no other holds any.
const HELD_BYTES_MAX: usize = 8 << 20;
/// Threads that run procedures (`hbase.master.procedure.threads`; this is its default on most
/// machines).
const THREADS: usize = 16;
/// How long an outcome is kept (`hbase.master.executedprocedure.ttl` is 15 minutes).
const OUTCOME_TTL_MS: i64 = 15 * 60 * 1000;
/// The limit on outcomes kept.
const OUTCOMES_MAX: usize = 10_000;
/// The limit on their bytes.
const OUTCOME_BYTES_MAX: usize = 4 << 20;
/// Bytes that an outcome takes besides the table's name and the result or the error.
const OUTCOME_BYTES: usize = 256;

/// How long after its work a procedure counts as done. HBase's async client reads a table's state
/// as of *before* the millisecond of its request, and would not see a state written in that
/// millisecond.
const COMPLETION_DELAY: Duration = Duration::from_millis(2);

/// The outcome of a procedure: the bytes of its result, which may be empty.
pub type ProcedureOutcome = Result<Vec<u8>>;
type ProcedureBody = Box<dyn FnOnce() -> ProcedureOutcome + Send>;
type OutcomeCallback = Box<dyn FnOnce(ProcedureOutcome) + Send>;

/// The state of a procedure that clients see.
#[derive(Clone, Debug)]
pub struct ProcedureState {
    /// HBase's name of its kind: `CreateTableProcedure`.
    pub kind: &'static str,
    /// The table that it changes, if any.
    pub table: Option<TableName>,
    /// True once a thread has started it.
    pub has_begun: bool,
    /// When it was submitted, milliseconds since 1970.
    pub submitted_ms: i64,
    /// When it last changed, milliseconds since 1970.
    pub updated_ms: i64,
    /// `None` while it runs.
    pub outcome: Option<ProcedureOutcome>,
}

impl ProcedureState {
    /// Returns about how many bytes of memory the state takes.
    fn bytes(&self) -> usize {
        let name = self.table.as_ref().map_or(0, |name| name.namespace().len() + name.qualifier().len());
        let outcome = match &self.outcome {
            None => 0,
            Some(Ok(result)) => result.len(),
            Some(Err(error)) => error.message().len(),
        };
        OUTCOME_BYTES + name + outcome
    }
}

/// Runs procedures and keeps their outcomes.
pub struct ProcedureExecutor {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
    ready: Condvar,
}

/// A procedure that no thread has started.
struct QueuedProcedure {
    id: u64,
    table: Option<TableName>,
    /// The bytes that `work` holds.
    bytes: usize,
    work: ProcedureBody,
}

#[derive(Default)]
struct Inner {
    /// True once waiting procedures fail instead of running.
    stopping: bool,
    last_id: u64,
    /// Procedures that may run.
    ready: VecDeque<QueuedProcedure>,
    /// For each table with a procedure that runs or may run, the procedures that wait behind it.
    tables: HashMap<TableName, VecDeque<QueuedProcedure>>,
    /// The number of procedures that no thread has started.
    queued: usize,
    /// The bytes that waiting and running procedures hold.
    held_bytes: usize,
    states: BTreeMap<u64, ProcedureState>,
    /// For procedures that have not ended, what to call with the outcome.
    callbacks: HashMap<u64, OutcomeCallback>,
    nonces: HashMap<(u64, u64), u64>,
}

impl ProcedureExecutor {
    /// Starts the threads.
    ///
    /// # Errors
    /// Returns an error if a thread cannot be started.
    pub fn start(clock: Arc<dyn Clock>, supervisor: &Supervisor) -> Result<Self> {
        let shared = Arc::new(Shared { clock, inner: Mutex::default(), ready: Condvar::new() });
        let mut threads = Vec::with_capacity(THREADS);
        for at in 0..THREADS {
            let shared = Arc::clone(&shared);
            threads.push(spawn_essential(format!("procedure-{at}"), supervisor, move || {
                shared.run();
                Ok(())
            })?);
        }
        Ok(Self { shared, threads: Mutex::new(threads) })
    }

    /// Returns the procedures that are still kept, newest first, each with its id.
    pub fn all(&self) -> Vec<(u64, ProcedureState)> {
        self.shared.inner.lock().states.iter().rev().map(|(id, state)| (*id, state.clone())).collect()
    }

    /// Submits a procedure, which waits for earlier procedures of its table. A procedure without a
    /// table waits for none. A `nonce` (group and number) with number 0 is none. `work` holds no
    /// more of a client's bytes than names.
    ///
    /// # Errors
    /// Returns `MasterStoppedException` after [`ProcedureExecutor::stop`]; `IOException` if too
    /// many wait.
    pub fn submit(
        &self,
        kind: &'static str,
        nonce: (u64, u64),
        table: Option<&TableName>,
        work: impl FnOnce() -> ProcedureOutcome + Send + 'static,
    ) -> Result<u64> {
        self.submit_holding(0, kind, nonce, table, work)
    }

    /// Submits a procedure whose `work` holds `bytes` of memory that a client determines.
    ///
    /// # Errors
    /// As [`ProcedureExecutor::submit`]; `IOException` if the waiting and running procedures hold
    /// too many bytes.
    pub fn submit_holding(
        &self,
        bytes: usize,
        kind: &'static str,
        nonce: (u64, u64),
        table: Option<&TableName>,
        work: impl FnOnce() -> ProcedureOutcome + Send + 'static,
    ) -> Result<u64> {
        let now_ms = self.shared.clock.now_ms();
        let mut inner = self.shared.inner.lock();
        inner.forget(now_ms);
        if let Some(id) = inner.nonces.get(&nonce).filter(|_| nonce.1 != 0) {
            return Ok(*id);
        }
        // Ids grow across restarts too, so that an id of an earlier process is not mistaken for a
        // current one.
        let id = (inner.last_id + 1).max(now_ms as u64);
        inner.enqueue(QueuedProcedure { id, table: table.cloned(), bytes, work: Box::new(work) })?;
        inner.last_id = id;
        let state = ProcedureState {
            kind,
            table: table.cloned(),
            has_begun: false,
            submitted_ms: now_ms,
            updated_ms: now_ms,
            outcome: None,
        };
        inner.states.insert(id, state);
        if nonce.1 != 0 {
            inner.nonces.insert(nonce, id);
        }
        drop(inner);
        self.shared.ready.notify_one();
        Ok(id)
    }

    /// Calls `callback` with the outcome of a procedure: now if it has ended, otherwise on the
    /// thread that ends it. A procedure has one callback.
    pub(crate) fn on_outcome(&self, id: u64, callback: impl FnOnce(ProcedureOutcome) + Send + 'static) {
        let mut inner = self.shared.inner.lock();
        let outcome = match inner.states.get(&id) {
            Some(ProcedureState { outcome: None, .. }) => {
                inner.callbacks.insert(id, Box::new(callback));
                return;
            }
            Some(ProcedureState { outcome: Some(outcome), .. }) => outcome.clone(),
            None => Err(HBaseError::io(format!("procedure {id} is no longer known"))),
        };
        drop(inner);
        callback(outcome);
    }

    /// Returns the procedure that was submitted earlier with this nonce. Callers look here before
    /// they check anything, so that a retry gets its response regardless of what the first request
    /// has changed.
    pub fn find(&self, nonce: (u64, u64)) -> Option<u64> {
        self.shared.inner.lock().nonces.get(&nonce).copied().filter(|_| nonce.1 != 0)
    }

    /// Returns the number of procedures of a table that wait for another one of it.
    pub fn waiting_of(&self, table: &TableName) -> usize {
        self.shared.inner.lock().tables.get(table).map_or(0, VecDeque::len)
    }

    /// Returns true if a procedure of any table waits or runs.
    pub(crate) fn is_changing_tables(&self) -> bool {
        !self.shared.inner.lock().tables.is_empty()
    }

    /// Returns a procedure's state; `None` if it is unknown or already dropped.
    pub fn state(&self, id: u64) -> Option<ProcedureState> {
        self.shared.inner.lock().states.get(&id).cloned()
    }

    /// Waits for running procedures to end, fails those that wait and accepts no more.
    pub fn stop(&self) {
        self.shared.inner.lock().stopping = true;
        self.shared.ready.notify_all();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            drop(thread.join());
        }
    }
}

impl Inner {
    fn enqueue(&mut self, procedure: QueuedProcedure) -> Result<()> {
        if self.stopping {
            return Err(stopped());
        }
        let full = |count: usize| HBaseError::io(format!("{count} procedures are waiting; try again"));
        if self.queued >= QUEUED_MAX {
            return Err(full(QUEUED_MAX));
        }
        let held_bytes = self.held_bytes.saturating_add(procedure.bytes);
        if held_bytes > HELD_BYTES_MAX && self.held_bytes > 0 && procedure.bytes > 0 {
            let held = self.held_bytes;
            return Err(HBaseError::io(format!("unfinished procedures hold {held} bytes; try again")));
        }
        match procedure.table.as_ref().and_then(|table| self.tables.get_mut(table)) {
            Some(behind) if behind.len() >= QUEUED_OF_TABLE_MAX => return Err(full(behind.len())),
            Some(behind) => behind.push_back(procedure),
            None => {
                if let Some(table) = &procedure.table {
                    self.tables.insert(table.clone(), VecDeque::new());
                }
                self.ready.push_back(procedure);
            }
        }
        self.queued += 1;
        self.held_bytes = held_bytes;
        Ok(())
    }

    /// Ends a procedure of a table: the next one may run.
    fn release(&mut self, table: &TableName) {
        match self.tables.get_mut(table).and_then(VecDeque::pop_front) {
            Some(next) => self.ready.push_back(next),
            None => drop(self.tables.remove(table)),
        }
    }

    fn forget(&mut self, now_ms: i64) {
        self.states.retain(|_, state| state.outcome.is_none() || state.updated_ms + OUTCOME_TTL_MS > now_ms);
        self.drop_oldest_outcomes();
        let states = &self.states;
        self.nonces.retain(|_, id| states.contains_key(id));
    }

    /// Drops the outcomes that ended first, until number and bytes are within their limits.
    fn drop_oldest_outcomes(&mut self) {
        let mut surplus = self.states.len().saturating_sub(OUTCOMES_MAX + self.queued + THREADS);
        let ended = self.states.iter().filter(|(_, state)| state.outcome.is_some());
        let mut ended: Vec<_> = ended.map(|(id, state)| (state.updated_ms, *id, state.bytes())).collect();
        let mut bytes: usize = ended.iter().map(|(_, _, bytes)| bytes).sum();
        if surplus == 0 && bytes <= OUTCOME_BYTES_MAX {
            return;
        }
        ended.sort_unstable();
        for (_, id, of_outcome) in ended {
            if surplus == 0 && bytes <= OUTCOME_BYTES_MAX {
                return;
            }
            self.states.remove(&id);
            surplus = surplus.saturating_sub(1);
            bytes -= of_outcome;
        }
    }
}

fn stopped() -> HBaseError {
    HBaseError::new(ErrorKind::MasterStopped, "the master is stopping")
}

impl Shared {
    fn run(&self) {
        while let Some((QueuedProcedure { id, table, bytes, work }, stopping)) = self.next() {
            let work: ProcedureBody = if stopping { Box::new(|| Err(stopped())) } else { work };
            let outcome = catch(format_args!("procedure {id}"), work);
            if let Err(error) = &outcome {
                tracing::warn!(id, %error, "procedure failed");
            }
            std::thread::sleep(COMPLETION_DELAY);
            self.complete(id, table.as_ref(), bytes, outcome);
        }
    }

    /// Waits for the next procedure, and returns true with it if it must fail; `None` at the end.
    fn next(&self) -> Option<(QueuedProcedure, bool)> {
        let mut inner = self.inner.lock();
        loop {
            if let Some(next) = inner.ready.pop_front() {
                inner.queued -= 1;
                let state = inner.states.get_mut(&next.id);
                state.into_iter().for_each(|state| state.has_begun = true);
                return Some((next, inner.stopping));
            }
            // A procedure that waits for its table becomes ready on the thread that ends the
            // previous one.
            if inner.stopping {
                return None;
            }
            self.ready.wait(&mut inner);
        }
    }

    fn complete(&self, id: u64, table: Option<&TableName>, bytes: usize, outcome: ProcedureOutcome) {
        let now_ms = self.clock.now_ms();
        let mut inner = self.inner.lock();
        let callback = inner.callbacks.remove(&id).map(|callback| (callback, outcome.clone()));
        if let Some(state) = inner.states.get_mut(&id) {
            state.updated_ms = now_ms;
            state.outcome = Some(outcome);
        }
        inner.held_bytes -= bytes;
        inner.forget(now_ms);
        table.into_iter().for_each(|table| inner.release(table));
        drop(inner);
        self.ready.notify_one();
        if let Some((callback, outcome)) = callback {
            catch_and_log(format_args!("the callback of procedure {id}"), || callback(outcome));
        }
    }
}

/// Locks of tables that are being changed. A lock that is neither held nor waited for uses no
/// memory.
#[derive(Debug, Default)]
pub struct TableLocks(Arc<Mutex<HashMap<TableName, Arc<Mutex<()>>>>>);

/// The guard of a table's lock.
pub struct TableLock {
    locks: Arc<Mutex<HashMap<TableName, Arc<Mutex<()>>>>>,
    table: TableName,
    guard: Option<ArcMutexGuard<RawMutex, ()>>,
}

impl Drop for TableLock {
    fn drop(&mut self) {
        let mut locks = self.locks.lock();
        drop(self.guard.take());
        // Each waiting thread holds a reference.
        if locks.get(&self.table).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            locks.remove(&self.table);
        }
    }
}

impl TableLocks {
    /// Waits for a table's lock.
    pub fn lock(&self, table: &TableName) -> TableLock {
        let lock = self.of(table);
        self.held(table, lock.lock_arc())
    }

    /// Takes a table's lock unless it is held.
    pub fn try_lock(&self, table: &TableName) -> Option<TableLock> {
        let lock = self.of(table);
        lock.try_lock_arc().map(|guard| self.held(table, guard))
    }

    fn of(&self, table: &TableName) -> Arc<Mutex<()>> {
        Arc::clone(self.0.lock().entry(table.clone()).or_default())
    }

    fn held(&self, table: &TableName, guard: ArcMutexGuard<RawMutex, ()>) -> TableLock {
        TableLock { locks: Arc::clone(&self.0), table: table.clone(), guard: Some(guard) }
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_common::clock::ManualClock;

    use super::*;

    fn outcome_of(executor: &ProcedureExecutor, id: u64) -> ProcedureOutcome {
        loop {
            if let Some(outcome) = executor.state(id).expect("known").outcome {
                return outcome;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn outcomes_are_kept_and_nonces_are_honoured() {
        let clock = ManualClock::at(1000);
        let executor = ProcedureExecutor::start(clock.clone(), &Supervisor::log_only()).expect("threads");
        let id = executor.submit("TestProcedure", (1, 2), None, || Ok(b"done".to_vec())).expect("submitted");
        assert_eq!(outcome_of(&executor, id), Ok(b"done".to_vec()));
        assert_eq!(executor.submit("TestProcedure", (1, 2), None, || Err(HBaseError::io("twice"))), Ok(id));
        clock.advance_ms(OUTCOME_TTL_MS + 1);
        let other = executor
            .submit("TestProcedure", (1, 2), None, || Err(HBaseError::io("again")))
            .expect("submitted");
        assert_ne!(other, id);
        assert!(outcome_of(&executor, other).is_err());
        assert!(executor.state(id).is_none());
    }

    #[test]
    fn a_callback_gets_the_outcome_once_whenever_it_comes() {
        let executor =
            ProcedureExecutor::start(ManualClock::at(1), &Supervisor::log_only()).expect("threads");
        let (told, outcomes) = crossbeam_channel::unbounded();
        let (go, wait) = crossbeam_channel::bounded::<()>(0);
        let work = move || wait.recv().map(|()| b"late".to_vec()).map_err(|e| HBaseError::io(e.to_string()));
        let id = executor.submit("TestProcedure", (0, 0), None, work).expect("submitted");
        for _ in 0..2 {
            let told = told.clone();
            executor.on_outcome(id, move |outcome| told.send(outcome).expect("listened to"));
            if outcomes.is_empty() {
                go.send(()).expect("waiting");
            }
            assert_eq!(outcomes.recv().expect("told"), Ok(b"late".to_vec()));
        }
        executor.on_outcome(id + 1, move |outcome| told.send(outcome).expect("listened to"));
        assert!(outcomes.recv().expect("told").is_err(), "an unknown procedure");
        assert!(outcomes.is_empty() && executor.shared.inner.lock().callbacks.is_empty());
    }

    #[test]
    fn retries_find_their_procedure_and_queued_ones_never_start() {
        let executor =
            ProcedureExecutor::start(ManualClock::at(1), &Supervisor::log_only()).expect("threads");
        let (go, wait) = crossbeam_channel::bounded::<()>(0);
        let (begin, begun) = crossbeam_channel::bounded::<()>(THREADS);
        let running: Vec<_> = (1..=THREADS as u64)
            .map(|n| {
                let (begin, wait) = (begin.clone(), wait.clone());
                let work = move || {
                    begin.send(()).expect("listened to");
                    wait.recv().map(|()| Vec::new()).map_err(|e| HBaseError::io(e.to_string()))
                };
                executor.submit("TestProcedure", (7, n), None, work).expect("submitted")
            })
            .collect();
        running.iter().for_each(|_| begun.recv().expect("running"));
        let waiting =
            executor.submit("TestProcedure", (7, 99), None, || Ok(b"begun".to_vec())).expect("submitted");
        assert_eq!(
            (executor.find((7, 1)), executor.find((7, 98)), executor.find((7, 0))),
            (Some(running[0]), None, None)
        );
        std::thread::scope(|scope| {
            let stop = scope.spawn(|| executor.stop());
            while !executor.shared.inner.lock().stopping {
                std::thread::yield_now();
            }
            running.iter().for_each(|_| go.send(()).expect("waiting"));
            stop.join().expect("no panic");
        });
        assert!(running.iter().all(|id| outcome_of(&executor, *id).is_ok()));
        assert_eq!(outcome_of(&executor, waiting).expect_err("not begun").kind(), ErrorKind::MasterStopped);
    }

    #[test]
    fn a_panic_is_an_outcome() {
        let executor =
            ProcedureExecutor::start(ManualClock::at(1), &Supervisor::log_only()).expect("threads");
        let id = executor.submit("TestProcedure", (0, 0), None, || panic!("bug")).expect("submitted");
        assert!(outcome_of(&executor, id).expect_err("failed").is_do_not_retry());
        executor.stop();
        let refused = executor.submit("TestProcedure", (0, 0), None, || Ok(Vec::new())).expect_err("stopped");
        assert_eq!(refused.kind(), ErrorKind::MasterStopped);
    }

    fn table(name: &str) -> TableName {
        name.parse().expect("legal")
    }

    /// Work that blocks until the sender is dropped.
    fn blocked() -> (crossbeam_channel::Sender<()>, impl Fn() -> ProcedureBody) {
        let (sender, receiver) = crossbeam_channel::bounded::<()>(0);
        let work = move || {
            let receiver = receiver.clone();
            Box::new(move || Ok(receiver.recv().map_or_else(|_| b"let go".to_vec(), |()| Vec::new())))
                as ProcedureBody
        };
        (sender, work)
    }

    #[test]
    fn procedures_waiting_for_a_table_do_not_block_others() {
        let executor =
            ProcedureExecutor::start(ManualClock::at(1), &Supervisor::log_only()).expect("threads");
        let (hold, work) = blocked();
        let (stuck, other) = (table("stuck"), table("other"));
        let waiting: Vec<_> = (0..QUEUED_OF_TABLE_MAX + 1)
            .map(|_| executor.submit("TestProcedure", (0, 0), Some(&stuck), work()).expect("submitted"))
            .collect();
        assert!(
            executor.submit("TestProcedure", (0, 0), Some(&stuck), || Ok(Vec::new())).is_err(),
            "more than may wait"
        );
        for at in 0..3 * THREADS {
            let quick = executor
                .submit("TestProcedure", (0, 0), Some(&other), move || Ok(vec![at as u8]))
                .expect("submitted");
            assert_eq!(outcome_of(&executor, quick), Ok(vec![at as u8]));
        }
        assert!(waiting.iter().all(|id| executor.state(*id).expect("known").outcome.is_none()));
        drop(hold);
        assert!(waiting.iter().all(|id| outcome_of(&executor, *id) == Ok(b"let go".to_vec())));
        assert!(executor.shared.inner.lock().tables.is_empty());
        executor.stop();
    }

    #[test]
    fn procedures_of_one_table_run_in_order() {
        let executor =
            ProcedureExecutor::start(ManualClock::at(1), &Supervisor::log_only()).expect("threads");
        let ran = Arc::new(Mutex::new(Vec::new()));
        let ids: Vec<_> = (0..40)
            .map(|at| {
                let ran = Arc::clone(&ran);
                let work = move || {
                    let mut ran = ran.try_lock().ok_or_else(|| HBaseError::io("two at once"))?;
                    ran.push(at);
                    std::thread::sleep(Duration::from_micros(100));
                    Ok(Vec::new())
                };
                executor.submit("TestProcedure", (0, 0), Some(&table("t")), work).expect("submitted")
            })
            .collect();
        assert!(ids.iter().all(|id| outcome_of(&executor, *id).is_ok()));
        assert!(ran.lock().is_sorted());
    }

    #[test]
    fn procedures_waiting_for_a_table_fail_at_stop() {
        let executor =
            ProcedureExecutor::start(ManualClock::at(1), &Supervisor::log_only()).expect("threads");
        let (hold, work) = blocked();
        let first = executor.submit("TestProcedure", (0, 0), Some(&table("t")), work()).expect("submitted");
        let second = executor
            .submit("TestProcedure", (0, 0), Some(&table("t")), || Ok(Vec::new()))
            .expect("submitted");
        std::thread::scope(|scope| {
            let stop = scope.spawn(|| executor.stop());
            while !executor.shared.inner.lock().stopping {
                std::thread::yield_now();
            }
            drop(hold);
            stop.join().expect("no panic");
        });
        drop(outcome_of(&executor, first));
        assert_eq!(outcome_of(&executor, second).expect_err("not begun").kind(), ErrorKind::MasterStopped);
    }

    #[test]
    fn outcomes_are_bounded_in_number() {
        let executor =
            ProcedureExecutor::start(ManualClock::at(1), &Supervisor::log_only()).expect("threads");
        let mut inner = executor.shared.inner.lock();
        for id in 1..=OUTCOMES_MAX as u64 + 500 {
            let state = ProcedureState {
                kind: "TestProcedure",
                table: None,
                has_begun: true,
                submitted_ms: 1,
                updated_ms: 1,
                outcome: Some(Ok(Vec::new())),
            };
            inner.states.insert(id, state);
            inner.nonces.insert((1, id), id);
        }
        inner.last_id = OUTCOMES_MAX as u64 + 500;
        drop(inner);
        let id = executor.submit("TestProcedure", (0, 0), None, || Ok(Vec::new())).expect("submitted");
        drop(outcome_of(&executor, id));
        let inner = executor.shared.inner.lock();
        assert!(inner.states.len() <= OUTCOMES_MAX + THREADS + 1, "{}", inner.states.len());
        assert!(
            inner.nonces.len() <= inner.states.len()
                && inner.states.contains_key(&(OUTCOMES_MAX as u64 + 500))
        );
    }

    #[test]
    fn outcomes_are_bounded_in_bytes() {
        let clock = ManualClock::at(1);
        let executor = ProcedureExecutor::start(clock.clone(), &Supervisor::log_only()).expect("threads");
        let (hold, work) = blocked();
        let first = executor.submit("TestProcedure", (0, 0), None, work()).expect("submitted");
        let fail = || Err(HBaseError::io("e".repeat(8000)));
        let failed: Vec<_> = (0..600)
            .map(|_| {
                clock.advance_ms(1);
                let id = executor.submit("TestProcedure", (0, 0), None, fail).expect("submitted");
                while executor.state(id).is_some_and(|state| state.outcome.is_none()) {
                    std::thread::yield_now();
                }
                id
            })
            .collect();
        clock.advance_ms(1);
        drop(hold);
        assert_eq!(outcome_of(&executor, first), Ok(b"let go".to_vec()), "it ended last");
        let inner = executor.shared.inner.lock();
        let bytes: usize = inner.states.values().map(ProcedureState::bytes).sum();
        assert!((OUTCOME_BYTES_MAX / 2..=OUTCOME_BYTES_MAX).contains(&bytes), "{bytes}");
        let is_kept = |id: &u64| inner.states.contains_key(id);
        assert!(!is_kept(&failed[0]) && failed.last().is_some_and(is_kept));
    }

    #[test]
    fn bytes_held_by_procedures_are_bounded() {
        let executor =
            ProcedureExecutor::start(ManualClock::at(1), &Supervisor::log_only()).expect("threads");
        let (hold, work) = blocked();
        let submit = |bytes, work: ProcedureBody| {
            executor.submit_holding(bytes, "TestProcedure", (0, 0), Some(&table("t")), work)
        };
        let large = submit(HELD_BYTES_MAX + 1, work()).expect("no other holds any bytes");
        let refused = submit(1, work()).expect_err("too many bytes");
        assert!(!refused.is_do_not_retry(), "{refused}");
        let small = submit(0, work()).expect("it holds none");
        drop(hold);
        assert!([large, small].iter().all(|id| outcome_of(&executor, *id).is_ok()));
        let (hold, work) = blocked();
        for _ in 0..4 {
            submit(HELD_BYTES_MAX / 4, work()).expect("within the limit");
        }
        assert!(submit(1, work()).is_err());
        drop(hold);
        executor.stop();
        assert_eq!(executor.shared.inner.lock().held_bytes, 0);
    }

    #[test]
    fn an_unheld_table_lock_takes_no_memory() {
        let locks = Arc::new(TableLocks::default());
        let held = locks.lock(&table("t"));
        assert!(locks.try_lock(&table("t")).is_none());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| drop(locks.lock(&table("t"))));
            while Arc::strong_count(&locks.of(&table("t"))) < 4 {
                std::thread::yield_now();
            }
            drop(held);
            waits.join().expect("no panic");
        });
        (0..1000).for_each(|at| drop(locks.lock(&table(&format!("t{at}")))));
        assert!(locks.0.lock().is_empty(), "{:?}", locks.0.lock());
    }
}
