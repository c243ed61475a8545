//! [`Readiness`]: whether the process serves its clients, and if not, why. This is the response of
//! `/ready`.
//!
//! The info ports answer from the second step of the start to the last of the stop, so a line shows
//! the progress of either. While the server runs, it is not ready if there is a problem that
//! clients notice and an operator can act on: regions that cannot be opened, changes of tables that
//! cannot be finished, a WAL that cannot be written. All of this is known without blocking.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use evenkeel_common::clock;
use evenkeel_info_server::Readiness as Reasons;
use parking_lot::Mutex;

use crate::wals::Wals;
use crate::{FailureReason, StopProgress};

/// The maximum number of lines about regions and tables.
const LINES_MAX: usize = 100;

/// See the module's documentation.
pub struct Readiness {
    stage: Mutex<Stage>,
    failure: FailureReason,
    served: OnceLock<Served>,
}

enum Stage {
    /// A step of the start, and when it began.
    Starting(&'static str, Instant),
    Serving,
    Stopping(StopProgress),
}

/// The sources of problems that may keep clients from being served.
struct Served {
    wals: Wals,
    pending_problems: Box<dyn Fn() -> Vec<String> + Send + Sync>,
}

impl Readiness {
    /// Creates the readiness of a process that begins to start.
    pub fn new(failure: &FailureReason) -> Arc<Self> {
        let stage = Mutex::new(Stage::Starting("reading the settings", clock::monotonic()));
        Arc::new(Self { stage, failure: Arc::clone(failure), served: OnceLock::new() })
    }

    /// Sets the current step of the start.
    pub fn set_starting(&self, step: &'static str) {
        *self.stage.lock() = Stage::Starting(step, clock::monotonic());
    }

    /// Sets that all clients are served, except for the problems that `pending_problems` returns:
    /// regions that cannot be opened and similar ones, one line each. It must not block.
    pub fn set_serving(
        &self,
        wals: &Wals,
        pending_problems: impl Fn() -> Vec<String> + Send + Sync + 'static,
    ) {
        drop(self.served.set(Served { wals: wals.clone(), pending_problems: Box::new(pending_problems) }));
        *self.stage.lock() = Stage::Serving;
    }

    /// Sets that the process is stopping.
    pub fn set_stopping(&self, progress: &StopProgress) {
        *self.stage.lock() = Stage::Stopping(progress.clone());
    }
}

impl Reasons for Readiness {
    fn reasons(&self) -> Vec<String> {
        let mut reasons: Vec<String> =
            self.failure.get().map(|why| format!("failed: {why}")).into_iter().collect();
        match &*self.stage.lock() {
            Stage::Starting(step, since) => {
                let seconds = clock::monotonic().saturating_duration_since(*since).as_secs();
                reasons.push(format!("starting: {step}, for {seconds} s"));
            }
            Stage::Stopping(progress) => reasons.push(format!("stopping: {}", progress.step())),
            Stage::Serving => reasons.extend(self.served.get().map(Served::problems).unwrap_or_default()),
        }
        reasons
    }
}

impl Served {
    fn problems(&self) -> Vec<String> {
        let logs = [("the log of user tables", &self.wals.user), ("the log of hbase:meta", &self.wals.meta)];
        let refused = logs.into_iter().filter_map(|(what, log)| Some((what, log.write_failure()?)));
        let mut lines: Vec<String> =
            refused.map(|(what, why)| format!("writes are refused: {what}: {why}")).collect();
        let pending_problems = (self.pending_problems)();
        let more = pending_problems.len().saturating_sub(LINES_MAX);
        lines.extend(pending_problems.into_iter().take(LINES_MAX));
        if more > 0 {
            lines.push(format!("and {more} more regions and tables"));
        }
        lines
    }
}
