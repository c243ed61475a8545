//! Threads: the one place that starts them, and the handling of a thread's failure.
//!
//! A server that has lost one of its threads looks alive but is not: writes wait for a log that no
//! thread writes, calls wait for handlers that have ended. So every thread is started by one of
//! four functions of this module, which define what its failure causes:
//!
//! | function | if the thread panics or returns an error | use |
//! |---|---|---|
//! | [`spawn_essential`] | logged; [`Supervisor`] ends the server | needed to serve |
//! | [`spawn_restarted`] | logged; runs again after [`RESTART_PAUSE`] | without state to corrupt |
//! | [`spawn`] | logged | joined, or not needed |
//! | [`spawn_scoped`] | the joining thread gets the panic | part of its parent's work |
//!
//! A panic in one unit of work (a call, a flush, a procedure) must not end the thread that executes
//! it: [`catch`] converts it to an error where the caller can undo the unit. Only a panic that no
//! caller can undo reaches the end of an essential thread.
//!
//! # The server's threads
//! The last two columns name what fails if a unit of work panics, and if the thread ends.
//!
//! | thread | started in | a unit panics | the thread ends |
//! |---|---|---|---|
//! | `wal` | `wal/wal.rs` | a callback: logged; a commit: the log | the log, the server |
//! | `wal-watch` | `wal/wal.rs` | | the server |
//! | `wal-archiver` | `wal/wal/archiver.rs` | the job of that file | the server |
//! | `flush-N` | `regionserver/background.rs` | that flush, tried again | the server |
//! | `flush-in-memory-N` | same | that in-memory flush | the server |
//! | `compact-small-N`, `compact-large-N` | same | that compaction; inputs stay | the server |
//! | `split-N` | same | that request to split a region | the server |
//! | `replicate` | same | edits of that region, until its next flush | the server |
//! | `chunks` | same | restarted | restarted |
//! | `memory-trim` | `process/memory_trim.rs` | restarted | restarted |
//! | `write-throttle` | `regionserver/limits/write_throttle.rs` | that reply | the server |
//! | `chore` | `regionserver/background/chore.rs` | that round | the server |
//! | `refresh-files` | `regionserver/background/store_file_refresh.rs` | that round | restarted |
//! | `discharge-files` | `regionserver/background/file_discharger.rs` | that round | restarted |
//! | `clean-mob-files` | `regionserver/background/mob_cleaner.rs` | that round | restarted |
//! | `master-chore` | `master/chore.rs` | that task | the server |
//! | `master-quotas` | `master/quotas/chore.rs` | that task | the server |
//! | `master-snapshots` | same | that task | the server |
//! | `normalizer` | `master/normalizer.rs` | that table, until the next run | the server |
//! | `assignment` | `master/assignment.rs` | that round, tried again | the server |
//! | `procedure-N` | `master/procedures.rs` | that procedure | the server |
//! | `zookeeper` | `standalone/endpoint.rs` | that connection | the server |
//! | `rpc-accept` | `rpc/server.rs` | | the server |
//! | `rpc-conn-N` | same | that call, or that connection | the server |
//! | `general-N`, `priority-N`, `scan-N` | `rpc/executor.rs` | that call | the server |
//! | `write-N`, `long-write-N`, `admin-N`, `decode-N` | same | that call | the server |
//! | `hdfs-heartbeat`, `hdfs-lease`, `hdfs-close` | `hdfs/client.rs` | restarted | restarted |
//! | `hdfs-connect` | `hdfs/block/output.rs` | that connection | part of its parent's work |
//! | `read-ahead` | `hfile/scanner/read_ahead.rs` | restarted; readers read | restarted |
//! | `prefetch` | `region/store/cache.rs` | same | restarted |
//! | `flush-lowprio` | `region/store/background_priority.rs` | its flush | |
//! | `compact-lowprio` | same | its compaction | |
//! | `info` | `info-server/server.rs` | that request, or that connection | the server |
//! | `status-history` | `status-pages/history.rs` | restarted | restarted |
//! | `metrics-sink` | `metrics/sink/periodic.rs` | that round | nothing depends on it |
//! | `open-region-N` of a master | `master/regions.rs` | that region is not served | the start |
//! | `split-wal-N` of a master | `master/recovery.rs` | that WAL is not split | the start |
//! | `cluster` | `cluster/start.rs` | that task | the server |
//! | `open-region-N`, `open-meta-N` | `cluster/pools.rs` | that region is not served | the server |
//! | `open-priority-region-N` | same | that region is not served | the server |
//! | `close-region-N` | same | the server | the server |
//! | `split-wal-N`, `remote-procedure-N` of a cluster | same | that job | the server |
//! | `claim-queue-N`, `zookeeper-procedure-N` | same | that job | the server |
//! | `procedure-results` | `cluster/procedures.rs` | | the server |
//! | `tell-hot-blocks` | `cluster/hot_blocks.rs` | that list | restarted |
//! | `fetch-hot-blocks` | `cluster/hot_blocks/arrivals.rs` | that list | restarted |
//! | `start`, `stop`, `signals` | `evenkeel/lifecycle.rs` | | the process |
//! | `log` | `evenkeel/log.rs` | restarted | restarted |
//! | `screen`, `last-line`; `load-N` of `evenkeel pe` | | | nothing depends on them |
//! | `names`, `interrupts` of the shell | | | nothing depends on them |
//!
//! **Test hook.** In builds with debug assertions the environment variable `EVENKEEL_TEST_PANIC`
//! names a thread that panics when it first starts. Release builds ignore it.

use std::any::Any;
use std::fmt::Display;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};
use std::time::Duration;

use crate::error::{HBaseError, Result};

/// The pause between a panic of a thread of [`spawn_restarted`] and its restart.
pub const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// Is notified of failures of essential threads. Clones share one callback.
#[derive(Clone)]
pub struct Supervisor(Arc<dyn Fn(&ThreadFailure) + Send + Sync>);

/// The unexpected end of an essential thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadFailure {
    /// The thread's name.
    pub thread: String,
    /// The panic's message, or the error that the thread returned.
    pub reason: String,
}

impl Display for ThreadFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "thread {} failed: {}", self.thread, self.reason)
    }
}

impl Supervisor {
    /// A supervisor that calls `on_failure` on each failing thread, once. The callback must not
    /// wait for that thread.
    pub fn new(on_failure: impl Fn(&ThreadFailure) + Send + Sync + 'static) -> Self {
        Self(Arc::new(on_failure))
    }

    /// A supervisor that does nothing; the failure is logged all the same. For tests and tools.
    pub fn log_only() -> Self {
        Self::new(|_| {})
    }

    /// Reports a panic on the calling thread that left state of the server inconsistent. The thread
    /// may continue.
    pub fn report(&self, reason: impl Into<String>) {
        let failure = ThreadFailure {
            thread: std::thread::current().name().unwrap_or("?").to_owned(),
            reason: reason.into(),
        };
        tracing::error!(thread = failure.thread, reason = failure.reason, "the server cannot continue");
        self.tell(&failure);
    }

    fn tell(&self, failure: &ThreadFailure) {
        // A panic of the callback is only logged: nothing remains to report it to.
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

/// Starts a thread that the server needs. `body` returns `Ok` if the thread was stopped. After an
/// error or a panic the thread notifies `supervisor` and ends. Joining it never panics.
///
/// # Errors
/// I/O errors of starting the thread.
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

/// Starts a thread whose `body` is called again, after a pause, if it panics. The thread ends when
/// `body` returns.
///
/// # Errors
/// I/O errors of starting the thread.
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
                "a thread panicked; it is restarted"
            );
            std::thread::sleep(RESTART_PAUSE);
        }
    })
}

/// Starts a thread whose panic is logged.
///
/// # Errors
/// I/O errors of starting the thread.
pub fn spawn(name: impl Into<String>, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let name = name.into();
    start(name.clone(), move || {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(body_of(&name, body))) {
            tracing::error!(thread = name, reason = message_of(&*panic), "a thread panicked");
        }
    })
}

/// Starts a thread within a scope. Joining it returns the result of `body`, or its panic.
///
/// # Errors
/// I/O errors of starting the thread.
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

/// Runs one unit of work and converts a panic to an error that a client may see and should not
/// retry. The caller undoes the unit, as after any other error.
///
/// # Errors
/// The errors of `work`; `DoNotRetryIOException` after a panic.
pub fn catch<T>(what: impl Display, work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let message = message_of(&*panic);
        tracing::error!(reason = message, "{what} panicked");
        Err(HBaseError::do_not_retry(format!("{what} hit a bug of the server: {message}")))
    })
}

/// As [`catch`], for work whose result no thread waits for: a panic is only logged.
pub fn catch_and_log(what: impl Display, work: impl FnOnce()) {
    let outcome = catch(what, || {
        work();
        Ok(())
    });
    drop(outcome);
}

/// Runs one call of a client. A panic is only logged: it drops the call's responder, which answers
/// with an error.
pub fn run_call(method: &'static str, call: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(call)).is_err() {
        tracing::error!(method, "a call panicked");
    }
}

/// The message of a panic.
pub fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// Returns `body`, preceded by a panic if a test requests one.
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
    fn the_death_of_an_essential_thread_is_reported_with_its_reason() {
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
    fn a_panic_of_the_supervisor_is_contained() {
        let supervisor = Supervisor::new(|failure| panic!("{failure}"));
        let thread = spawn_essential("t", &supervisor, || panic!("first")).expect("a thread");
        thread.join().expect("panics stay inside");
    }

    #[test]
    fn a_restartable_thread_restarts() {
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
