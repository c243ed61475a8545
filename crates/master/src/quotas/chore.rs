//! [`QuotaChore`]: the threads of the periodic work of quotas of space.
//!
//! | task | settings |
//! |---|---|
//! | notes the sizes of regions | `hbase.regionserver.quotas.region.size.reporting.chore.*` |
//! | reads the policies that are in force | `hbase.regionserver.quotas.policy.refresher.chore.*` |
//! | compares quotas with the space that is used | `hbase.master.quotas.observer.chore.*` |
//! | computes the sizes of snapshots | `hbase.master.quotas.snapshot.chore.*` |
//!
//! They have threads of their own, so that a slow hbase:quota delays no other work of the master.
//! The last task has one for itself: it lists files, which may take longer than the periods of the
//! others. It checks between two snapshots whether it is stopped.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded};
use evenkeel_common::thread::{catch_and_log, spawn_essential};
use evenkeel_common::{Result, clock};
use evenkeel_regionserver::quotas::settings::TaskTimes;

use crate::Master;

/// The threads; they end when this is dropped.
pub(crate) struct QuotaChore {
    stop: Option<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

struct Task {
    times: TaskTimes,
    due: Instant,
    run: fn(&Arc<Master>, &Stop),
}

/// Tells a task whether it is to end.
pub(crate) struct Stop(Receiver<()>);

impl Stop {
    /// Returns true if the task is to end early.
    pub(super) fn is_requested(&self) -> bool {
        matches!(self.0.try_recv(), Err(TryRecvError::Disconnected))
    }

    /// Waits; returns false if the task is to end.
    fn wait(&self, time: Duration) -> bool {
        matches!(self.0.recv_timeout(time), Err(RecvTimeoutError::Timeout))
    }

    /// For tasks that run on their own in tests.
    #[cfg(test)]
    pub(crate) fn pair() -> (Sender<()>, Self) {
        let (stop, stopped) = bounded(0);
        (stop, Self(stopped))
    }
}

impl QuotaChore {
    /// Starts the threads, if quotas are enabled.
    ///
    /// # Errors
    /// Returns an error if one cannot be started.
    pub(crate) fn start(master: &Arc<Master>) -> Result<Option<Self>> {
        if !master.has_quotas() {
            return Ok(None);
        }
        let (stop, stopped) = bounded(0);
        let supervisor = master.parts.regionserver.background().supervisor().clone();
        let mut chore = Self { stop: Some(stop), threads: Vec::new() };
        let (of_quotas, stop) = (Arc::clone(master), Stop(stopped.clone()));
        chore.threads.push(spawn_essential("master-quotas", &supervisor, move || {
            run(&of_quotas, tasks(&of_quotas), &stop);
            Ok(())
        })?);
        let (of_snapshots, stop) = (Arc::clone(master), Stop(stopped));
        chore.threads.push(spawn_essential("master-snapshots", &supervisor, move || {
            let times = of_snapshots.quotas.space.settings.snapshots;
            run(&of_snapshots, vec![task(times, |master, stop| master.measure_snapshots(stop))], &stop);
            Ok(())
        })?);
        Ok(Some(chore))
    }
}

fn task(times: TaskTimes, run: fn(&Arc<Master>, &Stop)) -> Task {
    Task { times, due: clock::monotonic() + times.delay, run }
}

fn tasks(master: &Master) -> Vec<Task> {
    let settings = &master.quotas.space.settings;
    vec![
        task(settings.server.report, |master, _| master.report_region_sizes()),
        task(settings.server.refresh, |master, _| master.reload_space_quotas()),
        task(settings.observe, |master, _| master.observe_space()),
    ]
}

fn run(master: &Arc<Master>, mut tasks: Vec<Task>, stop: &Stop) {
    loop {
        let Some(next) = tasks.iter_mut().min_by_key(|task| task.due) else { return };
        if !stop.wait(next.due.saturating_duration_since(clock::monotonic())) {
            return;
        }
        // A task that panics is logged and runs again at its next time.
        catch_and_log("a task of quotas of space", || (next.run)(master, stop));
        next.due = clock::monotonic() + next.times.period;
    }
}

impl Drop for QuotaChore {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}
