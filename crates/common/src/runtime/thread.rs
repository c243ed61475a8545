//! Threads: the one place that starts them, and what happens when one dies.
//!
//! A server that has lost one of its threads looks alive and is not: writes wait for a log that nobody writes, calls for
//! handlers that are gone. So each thread is started here, by one of four functions, which say what its failure means:
//!
//! | function | the thread panics, or returns an error | for |
//! |---|---|---|
//! | [`spawn_essential`] | it is logged, and the [`Supervisor`] hears of it, which ends the server | what the server cannot do without |
//! | [`spawn_restarted`] | it is logged, and the body runs again after [`RESTART_PAUSE`] | what holds no state that a panic could leave half changed |
//! | [`spawn`] | it is logged | what somebody waits for, or nobody misses |
//! | [`spawn_scoped`] | whoever joins it gets the panic | a part of its parent's work |
//!
//! A panic in one unit of work (a call, a flush, a procedure) must not kill the thread that does it: [`catch`] makes an
//! error of it at the place that knows how to undo the unit. What reaches the end of an essential thread is a panic that
//! nobody could undo.
//!
//! # The server's threads
//! | thread | started in | one unit panics | the thread ends |
//! |---|---|---|---|
//! | `wal` | `wal/log.rs` | callbacks are caught one by one; a commit fails the log for good | the log fails, the server ends |
//! | `wal-watch` | `wal/log.rs` | | the server ends |
//! | `wal-archiver` | `wal/log/archiver.rs` | that file's job fails | the server ends |
//! | `flush-N` | `server/regionserver/background.rs` | that flush fails, and is tried again | the server ends |
//! | `flush-in-memory-N` | same | that in-memory flush fails | the server ends |
//! | `compact-small-N`, `compact-large-N` | same | that compaction fails; its inputs stay | the server ends |
//! | `chunks` | same | started again | started again |
//! | `memory-trim` | `server/standalone/memory_trim.rs` | started again | started again |
//! | `write-throttle` | `server/regionserver/brake.rs` | answers are caught one by one | the server ends |
//! | `chore` | `server/regionserver/chore.rs` | that round fails | the server ends |
//! | `master-chore` | `server/master/chore.rs` | that task fails | the server ends |
//! | `assignment` | `server/master/assignment.rs` | that round fails, and is tried again | the server ends |
//! | `procedure-N` | `server/master/procedures.rs` | that procedure fails | the server ends |
//! | `zookeeper` | `server/standalone.rs` | that connection is closed | the server ends |
//! | `rpc-accept` | `rpc/server.rs` | | the server ends |
//! | `rpc-conn-N` | same | that call fails, or that connection is closed | the server ends |
//! | `general-N`, `priority-N`, `scan-N` | `rpc/executor.rs` | that call fails | the server ends |
//! | `read-ahead`, `prefetch` | `hfile/read_ahead.rs`, `region/store/cache.rs` | started again: readers read for themselves | started again |
//! | `flush-patient`, `compact-patient` | `region/store/patience.rs` | the flush or compaction that waits for it fails | |
//! | `open-region-N` | `server/standalone/regions.rs` | that region is not served | the start fails |
//! | `start`, `stop`, `signals` | `evenkeel/lifecycle.rs` | | the process ends |
//! | `log` | `evenkeel/log.rs` | started again | started again |
//! | `screen`; `load-N` of `evenkeel pe`; `names` and `interrupts` of the shell | | | nothing depends on them |
//!
//! **Test hook.** In builds with debug assertions the variable `EVENKEEL_TEST_PANIC` names a thread that panics as it
//! first starts. Release builds do not look at it.

use std::any::Any;
use std::fmt::Display;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};
use std::time::Duration;

use crate::error::{HBaseError, Result};

/// How long after a panic a thread of [`spawn_restarted`] goes on.
pub const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// Hears of the failure of essential threads. Clones are one.
#[derive(Clone)]
pub struct Supervisor(Arc<dyn Fn(&ThreadFailure) + Send + Sync>);

/// An essential thread has ended and should not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadFailure {
    /// The thread's name.
    pub thread: String,
    /// The panic's message, or what the thread said.
    pub reason: String,
}

impl Display for ThreadFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "thread {} failed: {}", self.thread, self.reason)
    }
}

impl Supervisor {
    /// Calls `on_failure` on the dying thread, once for each that dies. It must not wait for that thread.
    pub fn new(on_failure: impl Fn(&ThreadFailure) + Send + Sync + 'static) -> Self {
        Self(Arc::new(on_failure))
    }

    /// Does nothing beyond the line in the log that each failure gets: for tests and tools.
    pub fn log_only() -> Self {
        Self::new(|_| {})
    }

    /// Tells of a panic on the calling thread, which may go on, that has left something of the server half done.
    pub fn report(&self, reason: impl Into<String>) {
        let failure = ThreadFailure {
            thread: std::thread::current().name().unwrap_or("?").to_owned(),
            reason: reason.into(),
        };
        tracing::error!(thread = failure.thread, reason = failure.reason, "the server cannot go on");
        self.tell(&failure);
    }

    fn tell(&self, failure: &ThreadFailure) {
        // The listener is the last to help, so its own panic is as far as this goes.
        if catch_unwind(AssertUnwindSafe(|| (self.0)(failure))).is_err() {
            tracing::error!(thread = failure.thread, "the supervisor panicked");
        }
    }
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").finish_non_exhaustive()
    }
}

/// Starts a thread that the server cannot do without. `Ok` from `body` says that it was asked to end; after an error or a
/// panic `supervisor` is told, and then the thread ends. Joining it never gives a panic.
///
/// # Errors
/// When the system has no thread to give.
pub fn spawn_essential(
    name: impl Into<String>,
    supervisor: &Supervisor,
    body: impl FnOnce() -> std::result::Result<(), String> + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let (name, supervisor) = (name.into(), supervisor.clone());
    start(name.clone(), move || {
        let reason = match catch_unwind(AssertUnwindSafe(body_of(&name, body))) {
            Ok(Ok(())) => return,
            Ok(Err(reason)) => reason,
            Err(panic) => format!("it panicked: {}", message_of(&*panic)),
        };
        tracing::error!(thread = name, reason, "a thread that the server needs has ended");
        supervisor.tell(&ThreadFailure { thread: name, reason });
    })
}

/// Starts a thread whose `body` is called again, after a pause, when it has panicked. When it returns, the thread ends.
///
/// # Errors
/// When the system has no thread to give.
pub fn spawn_restarted(
    name: impl Into<String>,
    body: impl Fn() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let name = name.into();
    start(name.clone(), move || {
        while let Err(panic) = catch_unwind(AssertUnwindSafe(body_of(&name, &body))) {
            tracing::error!(
                thread = name,
                reason = message_of(&*panic),
                "a thread panicked; it starts again"
            );
            std::thread::sleep(RESTART_PAUSE);
        }
    })
}

/// Starts a thread whose panic is logged.
///
/// # Errors
/// When the system has no thread to give.
pub fn spawn(name: impl Into<String>, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let name = name.into();
    start(name.clone(), move || {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(body_of(&name, body))) {
            tracing::error!(thread = name, reason = message_of(&*panic), "a thread panicked");
        }
    })
}

/// Starts a thread within a scope; joining it gives what `body` returned, or its panic.
///
/// # Errors
/// When the system has no thread to give.
#[allow(clippy::disallowed_methods, reason = "the one place")]
pub fn spawn_scoped<'scope, 'env, T: Send + 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    name: impl Into<String>,
    body: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    Builder::new().name(name.into()).spawn_scoped(scope, body)
}

#[allow(clippy::disallowed_methods, reason = "the one place")]
fn start(name: String, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name).spawn(body)
}

/// Runs one unit of work; a panic in it becomes an error that a client may see and should not retry. The caller undoes
/// what the unit had begun, as after any other error.
///
/// # Errors
/// Those of `work`, and `DoNotRetryIOException` after a panic.
pub fn catch<T>(what: impl Display, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let message = message_of(&*panic);
        tracing::error!(reason = message, "{what} panicked");
        Err(HBaseError::do_not_retry(format!("{what} hit a bug of the server: {message}")))
    })
}

/// As [`catch`], for work that nobody waits for: a panic is logged, and that is all.
pub fn catch_and_log(what: impl Display, work: impl FnOnce()) {
    let outcome = catch(what, || {
        work();
        Ok(())
    });
    drop(outcome);
}

/// The message of a panic.
pub fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// `body`, and before it what a test asks for.
fn body_of<T>(name: &str, body: impl FnOnce() -> T) -> impl FnOnce() -> T {
    static HAS_PANICKED: AtomicBool = AtomicBool::new(false);
    let is_named = cfg!(debug_assertions) && std::env::var("EVENKEEL_TEST_PANIC").is_ok_and(|of| of == name);
    move || {
        let panics = is_named && !HAS_PANICKED.swap(true, Ordering::Relaxed);
        assert!(!panics, "EVENKEEL_TEST_PANIC names this thread");
        body()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    fn heard() -> (Supervisor, Receiver<ThreadFailure>) {
        let (tell, told) = channel();
        (Supervisor::new(move |failure| tell.send(failure.clone()).expect("the test listens")), told)
    }

    #[test]
    fn the_death_of_an_essential_thread_is_told_with_its_reason() {
        let (supervisor, told) = heard();
        let bodies: [fn() -> std::result::Result<(), String>; 4] = [
            || panic!("a word"),
            || panic!("a {}", "sentence"),
            || Err("no more work".to_owned()),
            || Ok(()),
        ];
        for (at, body) in bodies.into_iter().enumerate() {
            let thread = spawn_essential(format!("t{at}"), &supervisor, body).expect("a thread");
            thread.join().expect("panics stay inside");
        }
        drop(supervisor);
        let failures: Vec<_> = told.iter().map(|failure| (failure.thread, failure.reason)).collect();
        let expected =
            [("t0", "it panicked: a word"), ("t1", "it panicked: a sentence"), ("t2", "no more work")];
        assert_eq!(failures, expected.map(|(thread, reason)| (thread.to_owned(), reason.to_owned())));
    }

    #[test]
    fn a_supervisor_that_panics_takes_nothing_with_it() {
        let supervisor = Supervisor::new(|failure| panic!("{failure}"));
        let thread = spawn_essential("t", &supervisor, || panic!("first")).expect("a thread");
        thread.join().expect("panics stay inside");
    }

    #[test]
    fn a_thread_that_can_start_again_does() {
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let body = move || assert!(counted.fetch_add(1, Ordering::Relaxed) > 0, "the first time");
        spawn_restarted("t", body).expect("a thread").join().expect("panics stay inside");
        assert_eq!(runs.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_unit_of_work_that_panics_is_an_error() {
        assert_eq!(catch("work", || Ok(1)), Ok(1));
        let error = catch::<()>("flush of r1", || panic!("index {}", 7)).expect_err("a panic");
        assert!(error.is_do_not_retry() && error.message().contains("flush of r1"), "{error}");
        assert!(error.message().contains("index 7"), "{error}");
    }
}
