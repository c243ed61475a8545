//! [`Submitted`]: the master's procedures that are queued or running here, and opens and closes of
//! regions that ended recently.
//!
//! The master sends a procedure again if it got no response to the RPC that carried it. The
//! duplicate must not run concurrently with the first. What happens to it later depends on the
//! kind of procedure, as in HBase:
//!
//! | kind | its id is known until |
//! |---|---|
//! | transition: opens and closes a region | 10 minutes after its end |
//! | remote procedure: anything else | its end |
//!
//! The report of a transition is retried until a master accepts it, so a duplicate can only be a
//! repetition of the RPC. The master repeats a remote procedure that failed, or whose report was
//! lost, with the same id. HBase keeps no ids of remote procedures, and runs duplicates
//! concurrently.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use evenkeel_common::Result;
use evenkeel_common::clock::Clock;
use parking_lot::Mutex;

use crate::pools::Pool;

/// How long the id of an ended transition is kept (`HRegionServer.executedRegionProcs`).
const REMEMBERED_MS: i64 = 600_000;
/// The id of work that belongs to no procedure (`Procedure.NO_PROC_ID`).
pub const NO_PROCEDURE: i64 = -1;

/// See the module's documentation.
pub struct Submitted {
    clock: Arc<dyn Clock>,
    /// Procedures by id; `None` for one that is queued or running, otherwise the time of its end.
    known: Mutex<HashMap<i64, Option<i64>>>,
}

impl Submitted {
    /// Creates it without procedures.
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, known: Mutex::default() })
    }

    /// Queues a transition, unless its id is known.
    ///
    /// # Errors
    /// As [`Pool::submit`]; the id is forgotten.
    pub fn transition(
        self: &Arc<Self>,
        pool: &Pool,
        id: i64,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<()> {
        let submitted = Arc::clone(self);
        self.submit(pool, id, move || {
            let _running = Running { submitted: &submitted, id, is_remembered: true };
            work();
        })
    }

    /// Queues a remote procedure, unless its id is known. `report` gets its outcome.
    ///
    /// # Errors
    /// As [`Pool::submit`]; the id is forgotten.
    pub fn remote_procedure<T>(
        self: &Arc<Self>,
        pool: &Pool,
        id: i64,
        work: impl FnOnce() -> T + Send + 'static,
        report: impl FnOnce(T) + Send + 'static,
    ) -> Result<()> {
        let submitted = Arc::clone(self);
        self.submit(pool, id, move || {
            let running = Running { submitted: &submitted, id, is_remembered: false };
            let outcome = work();
            // Before the report: the master may repeat a procedure that failed at once.
            drop(running);
            report(outcome);
        })
    }

    /// Queues a job unless its id is known.
    fn submit(&self, pool: &Pool, id: i64, job: impl FnOnce() + Send + 'static) -> Result<()> {
        if id == NO_PROCEDURE {
            return pool.submit(job);
        }
        let now_ms = self.clock.now_ms();
        let mut known = self.known.lock();
        known.retain(|_, ended| ended.is_none_or(|at| now_ms.saturating_sub(at) < REMEMBERED_MS));
        match known.entry(id) {
            Entry::Occupied(_) => {
                tracing::info!(procedure = id, "duplicate procedure; ignored");
                Ok(())
            }
            Entry::Vacant(entry) => {
                // The lock is held, so no duplicate is ignored for a procedure that is not queued.
                let queued = pool.submit(job);
                if queued.is_ok() {
                    entry.insert(None);
                }
                queued
            }
        }
    }
}

/// Ends a procedure when it is dropped, also by a panic.
struct Running<'a> {
    submitted: &'a Submitted,
    id: i64,
    /// The id is known for some time after the end.
    is_remembered: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut known = self.submitted.known.lock();
        if self.is_remembered
            && let Some(ended) = known.get_mut(&self.id)
        {
            *ended = Some(self.submitted.clock.now_ms());
        } else {
            known.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use evenkeel_common::clock::{self, ManualClock};
    use evenkeel_common::thread::Supervisor;

    use super::*;

    struct Test {
        submitted: Arc<Submitted>,
        clock: Arc<ManualClock>,
        pool: Pool,
        events: (Sender<&'static str>, Receiver<&'static str>),
    }

    fn test(threads: usize) -> Test {
        let clock = ManualClock::at(1_000_000);
        let pool = Pool::start("test", threads, &Supervisor::log_only()).expect("threads");
        Test { submitted: Submitted::new(clock.clone()), clock, pool, events: channel() }
    }

    impl Test {
        fn transition(&self, id: i64) {
            let events = self.events.0.clone();
            let work = move || events.send("ran").expect("the test waits");
            self.submitted.transition(&self.pool, id, work).expect("room");
        }

        fn remote_procedure(&self, id: i64) {
            let (run, reported) = (self.events.0.clone(), self.events.0.clone());
            let work = move || run.send("ran").expect("the test waits");
            let report = move |()| reported.send("reported").expect("the test waits");
            self.submitted.remote_procedure(&self.pool, id, work, report).expect("room");
        }

        /// Waits until all that is queued has run.
        fn events(&self) -> Vec<&'static str> {
            let (done, ended) = channel();
            self.pool.submit(move || done.send(()).expect("the test waits")).expect("room");
            ended.recv_timeout(Duration::from_secs(30)).expect("the thread is free");
            self.events.1.try_iter().collect()
        }
    }

    #[test]
    fn a_transition_runs_once() {
        let test = test(1);
        test.transition(7);
        assert_eq!(test.events(), ["ran"]);
        test.clock.advance_ms(REMEMBERED_MS - 1);
        test.transition(7);
        assert!(test.events().is_empty(), "the response was lost, not the procedure");
        test.clock.advance_ms(1);
        test.transition(7);
        assert_eq!(test.events(), ["ran"], "ids are used again after the master's data was deleted");
        test.transition(NO_PROCEDURE);
        test.transition(NO_PROCEDURE);
        assert_eq!(test.events(), ["ran", "ran"]);
    }

    #[test]
    fn a_remote_procedure_runs_again_after_its_end_only() {
        let test = test(1);
        let (go, gate) = channel();
        let wait = move || gate.recv_timeout(Duration::from_secs(30)).expect("the test goes on");
        test.submitted.remote_procedure(&test.pool, 7, wait, |()| {}).expect("room");
        test.remote_procedure(7);
        go.send(()).expect("it runs");
        assert!(test.events().is_empty(), "the duplicate of a running procedure is ignored");
        test.remote_procedure(7);
        assert_eq!(test.events(), ["ran", "reported"]);
    }

    /// A master repeats a procedure as soon as it has the report of its failure.
    #[test]
    fn a_remote_procedure_can_be_repeated_during_its_report() {
        let test = test(2);
        let (repeat, reports) = channel();
        let (submitted, events) = (Arc::clone(&test.submitted), test.events.0.clone());
        let pool = Arc::new(test.pool);
        let same_pool = Arc::clone(&pool);
        let report = move |()| {
            let work = move || events.send("ran again").expect("the test waits");
            repeat.send(submitted.remote_procedure(&same_pool, 7, work, |()| {})).expect("the test waits");
        };
        test.submitted.remote_procedure(&pool, 7, || {}, report).expect("room");
        reports.recv_timeout(Duration::from_secs(30)).expect("a report").expect("room");
        assert_eq!(test.events.1.recv_timeout(Duration::from_secs(30)), Ok("ran again"));
    }

    #[test]
    fn a_procedure_that_cannot_be_queued_is_forgotten() {
        let test = test(1);
        let ((go, gate), (started, start)) = (channel::<()>(), channel());
        let job = move || {
            started.send(()).expect("the test waits");
            let _ended = gate.recv();
        };
        test.pool.submit(job).expect("room");
        start.recv_timeout(Duration::from_secs(30)).expect("the thread is busy");
        while test.pool.submit(|| {}).is_ok() {}
        assert!(test.submitted.transition(&test.pool, 7, || {}).is_err());
        drop(go);
        let deadline = clock::monotonic() + Duration::from_secs(30);
        while test.pool.submit(|| {}).is_err() {
            assert!(clock::monotonic() < deadline, "the queue is emptied");
            std::thread::sleep(Duration::from_millis(1));
        }
        // The thread empties the queue faster than one job after another is added.
        std::thread::sleep(Duration::from_millis(10));
        test.transition(7);
        assert_eq!(test.events(), ["ran"]);
    }

    #[test]
    fn a_procedure_that_panics_has_ended() {
        let test = test(1);
        test.submitted.transition(&test.pool, 7, || panic!("a bug of a transition")).expect("room");
        test.submitted
            .remote_procedure(&test.pool, 8, || panic!("a bug of a procedure"), |()| {})
            .expect("room");
        assert!(test.events().is_empty());
        test.remote_procedure(8);
        assert_eq!(test.events(), ["ran", "reported"]);
        test.clock.advance_ms(REMEMBERED_MS);
        test.transition(7);
        assert_eq!(test.events(), ["ran"]);
    }
}
