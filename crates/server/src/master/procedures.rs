//! Procedures: changes that take a while. The client gets an id at once and polls for the outcome.
//!
//! A few threads run them; two procedures of one table never run at once ([`TableLocks`]). Outcomes are kept for a
//! while and then forgotten; a client that asks for a forgotten one is told so, and checks the table itself, as HBase's
//! clients do. A retried request with the same nonce gets the first one's id.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError};
use evenkeel_common::clock::Clock;
use evenkeel_common::thread::{Supervisor, catch, spawn_essential};
use evenkeel_common::{ErrorKind, HBaseError, Result, TableName};
use parking_lot::{ArcMutexGuard, Mutex, RawMutex};

/// Procedures that may wait to run.
const WAITING_MAX: usize = 1024;
/// Threads that run procedures.
const THREADS: usize = 4;
/// How long an outcome is kept (`hbase.master.executedprocedure.ttl` is 15 minutes).
const KEPT_MS: i64 = 15 * 60 * 1000;

/// How long after its work a procedure is done. HBase's async client reads a table's state as of *before* the millisecond in
/// which it asks, and would not see one that was written in that very millisecond.
const SETTLES: Duration = Duration::from_millis(2);

/// What became of a procedure: its result's bytes, if it has any.
pub type Outcome = Result<Vec<u8>>;
type Work = Box<dyn FnOnce() -> Outcome + Send>;

/// A procedure as a client may see it.
#[derive(Clone, Debug)]
pub struct ProcedureState {
    /// When it was submitted, milliseconds since 1970.
    pub submitted_ms: i64,
    /// When it last changed, milliseconds since 1970.
    pub updated_ms: i64,
    /// `None` while it runs.
    pub outcome: Option<Outcome>,
}

/// Runs procedures and remembers their outcomes.
pub struct ProcedureExecutor {
    clock: Arc<dyn Clock>,
    queue: Mutex<Option<Sender<(u64, Work)>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    /// What waits is not begun any more.
    stopping: bool,
    last_id: u64,
    states: BTreeMap<u64, ProcedureState>,
    nonces: HashMap<(u64, u64), u64>,
}

impl ProcedureExecutor {
    /// Starts the threads.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(clock: Arc<dyn Clock>, supervisor: &Supervisor) -> Result<Self> {
        let (sender, receiver) = crossbeam_channel::bounded(WAITING_MAX);
        let inner = Arc::new(Mutex::new(Inner::default()));
        let mut threads = Vec::with_capacity(THREADS);
        for at in 0..THREADS {
            let (receiver, inner, clock) = (receiver.clone(), Arc::clone(&inner), Arc::clone(&clock));
            threads.push(spawn_essential(format!("procedure-{at}"), supervisor, move || {
                run(&receiver, &inner, &*clock);
                Ok(())
            })?);
        }
        Ok(Self { clock, queue: Mutex::new(Some(sender)), threads: Mutex::new(threads), inner })
    }

    /// Submits a procedure; `nonce` (group and number) of 0 is none.
    ///
    /// # Errors
    /// `MasterStoppedException` after [`ProcedureExecutor::stop`]; `IOException` when too many wait.
    pub fn submit(&self, nonce: (u64, u64), work: impl FnOnce() -> Outcome + Send + 'static) -> Result<u64> {
        let now_ms = self.clock.now_ms();
        let mut inner = self.inner.lock();
        inner.forget(now_ms);
        if let Some(id) = inner.nonces.get(&nonce).filter(|_| nonce.1 != 0) {
            return Ok(*id);
        }
        // Ids grow over restarts too, so that an id of an earlier life is not taken for one of this.
        let id = (inner.last_id + 1).max(now_ms as u64);
        self.enqueue(id, Box::new(work))?;
        inner.last_id = id;
        inner.states.insert(id, ProcedureState { submitted_ms: now_ms, updated_ms: now_ms, outcome: None });
        if nonce.1 != 0 {
            inner.nonces.insert(nonce, id);
        }
        Ok(id)
    }

    /// The procedure that was submitted with a nonce before. Asked before anything is checked: a retry gets its answer
    /// whatever the first request has changed.
    pub fn find(&self, nonce: (u64, u64)) -> Option<u64> {
        self.inner.lock().nonces.get(&nonce).copied().filter(|_| nonce.1 != 0)
    }

    fn enqueue(&self, id: u64, work: Work) -> Result<()> {
        let queue = self.queue.lock();
        let queue = queue.as_ref().ok_or_else(stopped)?;
        queue.try_send((id, work)).map_err(|e| match e {
            TrySendError::Full(_) => {
                HBaseError::io(format!("{WAITING_MAX} procedures are waiting; try again"))
            }
            TrySendError::Disconnected(_) => stopped(),
        })
    }

    /// A procedure's state; `None` when it is not known (any longer).
    pub fn state(&self, id: u64) -> Option<ProcedureState> {
        self.inner.lock().states.get(&id).cloned()
    }

    /// Lets the running procedures end, fails those that wait and takes no more.
    pub fn stop(&self) {
        self.inner.lock().stopping = true;
        drop(self.queue.lock().take());
        for thread in std::mem::take(&mut *self.threads.lock()) {
            drop(thread.join());
        }
    }
}

impl Inner {
    fn forget(&mut self, now_ms: i64) {
        self.states.retain(|_, state| state.outcome.is_none() || state.updated_ms + KEPT_MS > now_ms);
        let states = &self.states;
        self.nonces.retain(|_, id| states.contains_key(id));
    }
}

fn stopped() -> HBaseError {
    HBaseError::new(ErrorKind::MasterStopped, "the master is stopping")
}

fn run(queue: &Receiver<(u64, Work)>, inner: &Mutex<Inner>, clock: &dyn Clock) {
    for (id, work) in queue {
        let stopping = inner.lock().stopping;
        let work: Work = if stopping { Box::new(|| Err(stopped())) } else { work };
        let outcome = catch(format_args!("procedure {id}"), work);
        if let Err(error) = &outcome {
            tracing::warn!(id, %error, "procedure failed");
        }
        std::thread::sleep(SETTLES);
        if let Some(state) = inner.lock().states.get_mut(&id) {
            state.updated_ms = clock.now_ms();
            state.outcome = Some(outcome);
        }
    }
}

/// A lock for each table that was ever changed.
#[derive(Debug, Default)]
pub struct TableLocks(Mutex<HashMap<TableName, Arc<Mutex<()>>>>);

impl TableLocks {
    /// Waits for a table's lock.
    pub fn lock(&self, table: &TableName) -> ArcMutexGuard<RawMutex, ()> {
        let lock = Arc::clone(self.0.lock().entry(table.clone()).or_default());
        lock.lock_arc()
    }

    /// A table's lock, unless someone has it.
    pub fn try_lock(&self, table: &TableName) -> Option<ArcMutexGuard<RawMutex, ()>> {
        let lock = Arc::clone(self.0.lock().entry(table.clone()).or_default());
        lock.try_lock_arc()
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_common::clock::ManualClock;

    use super::*;

    fn outcome_of(executor: &ProcedureExecutor, id: u64) -> Outcome {
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
        let id = executor.submit((1, 2), || Ok(b"done".to_vec())).expect("submitted");
        assert_eq!(outcome_of(&executor, id), Ok(b"done".to_vec()));
        assert_eq!(executor.submit((1, 2), || Err(HBaseError::io("twice"))), Ok(id));
        clock.advance_ms(KEPT_MS + 1);
        let other = executor.submit((1, 2), || Err(HBaseError::io("again"))).expect("submitted");
        assert_ne!(other, id);
        assert!(outcome_of(&executor, other).is_err());
        assert!(executor.state(id).is_none());
    }

    #[test]
    fn a_retry_is_found_and_what_waits_at_the_end_is_not_begun() {
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
                executor.submit((7, n), work).expect("submitted")
            })
            .collect();
        running.iter().for_each(|_| begun.recv().expect("running"));
        let waiting = executor.submit((7, 99), || Ok(b"begun".to_vec())).expect("submitted");
        assert_eq!(
            (executor.find((7, 1)), executor.find((7, 98)), executor.find((7, 0))),
            (Some(running[0]), None, None)
        );
        std::thread::scope(|scope| {
            let stop = scope.spawn(|| executor.stop());
            while !executor.inner.lock().stopping {
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
        let id = executor.submit((0, 0), || panic!("bug")).expect("submitted");
        assert!(outcome_of(&executor, id).expect_err("failed").is_do_not_retry());
        executor.stop();
        let refused = executor.submit((0, 0), || Ok(Vec::new())).expect_err("stopped");
        assert_eq!(refused.kind(), ErrorKind::MasterStopped);
    }
}
