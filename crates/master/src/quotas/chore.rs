//! [`QuotaChore`]: the thread of the periodic work of quotas of space.
//!
//! | task | settings |
//! |---|---|
//! | notes the sizes of regions | `hbase.regionserver.quotas.region.size.reporting.chore.*` |
//! | reads the policies that are in force | `hbase.regionserver.quotas.policy.refresher.chore.*` |
//! | compares quotas with the space that is used | `hbase.master.quotas.observer.chore.*` |
//! | computes the sizes of snapshots | `hbase.master.quotas.snapshot.chore.*` |
//!
//! It has a thread of its own, so that a slow hbase:quota delays no other work of the master.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use evenkeel_common::thread::{catch_and_log, spawn_essential};
use evenkeel_common::{Result, clock};
use evenkeel_regionserver::quotas::settings::TaskTimes;

use crate::Master;

/// The thread; it ends when this is dropped.
pub(crate) struct QuotaChore {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Task {
    times: TaskTimes,
    due: Instant,
    run: fn(&Arc<Master>),
}

impl QuotaChore {
    /// Starts the thread, if quotas are enabled.
    ///
    /// # Errors
    /// Returns an error if it cannot be started.
    pub(crate) fn start(master: &Arc<Master>) -> Result<Option<Self>> {
        if !master.has_quotas() {
            return Ok(None);
        }
        let (stop, stopped) = bounded(0);
        let supervisor = master.parts.regionserver.background().supervisor().clone();
        let master = Arc::clone(master);
        let thread = spawn_essential("master-quotas", &supervisor, move || {
            run(&master, tasks(&master), &stopped);
            Ok(())
        })?;
        Ok(Some(Self { stop: Some(stop), thread: Some(thread) }))
    }
}

fn tasks(master: &Master) -> Vec<Task> {
    let task = |times: TaskTimes, run| Task { times, due: clock::monotonic() + times.delay, run };
    let settings = &master.quotas.space.settings;
    vec![
        task(settings.server.report, Master::report_region_sizes),
        task(settings.server.refresh, |master| master.reload_space_quotas()),
        task(settings.observe, Master::observe_space),
        task(settings.snapshots, |master| master.measure_snapshots()),
    ]
}

fn run(master: &Arc<Master>, mut tasks: Vec<Task>, stopped: &Receiver<()>) {
    loop {
        let Some(next) = tasks.iter_mut().min_by_key(|task| task.due) else { return };
        let wait = next.due.saturating_duration_since(clock::monotonic());
        if !matches!(stopped.recv_timeout(wait), Err(RecvTimeoutError::Timeout)) {
            return;
        }
        // A task that panics is logged and runs again at its next time.
        catch_and_log("a task of quotas of space", || (next.run)(master));
        next.due = clock::monotonic() + next.times.period;
    }
}

impl Drop for QuotaChore {
    fn drop(&mut self) {
        drop(self.stop.take());
        drop(self.thread.take().map(JoinHandle::join));
    }
}
