//! Periodic work of the master, on its own thread.
//!
//! - queues tables for the normalizer, which has another thread: `hbase.normalizer.period`
//! - archives split and merge parents: `hbase.catalogjanitor.interval`
//! - deletes unneeded files from the archive and `oldWALs`: `hbase.master.cleaner.interval`
//! - archives MOB files without references: `hbase.master.mob.cleaner.period`
//! - compacts families with MOB files: `hbase.mob.compaction.chore.period`
//! - removes snapshots whose time to live has expired: `hbase.master.cleaner.snapshot.interval`
//! - writes slow calls to hbase:slowlog, if enabled: `hbase.slowlog.systable.chore.duration`
//! - reads hbase:quota again, if enabled: `hbase.quota.refresh.period`

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use evenkeel_common::clock;
use evenkeel_common::thread::{catch_and_log, spawn_essential};
use evenkeel_common::{HBaseError, Result};
use evenkeel_regionserver::quotas::settings;
use evenkeel_regionserver::slow_log_table;

use super::Master;
use super::normalizer::NormalizerThread;
use super::quotas::chore::QuotaChore;

/// The thread, that of the normalizer, and that of quotas; they end when this is dropped.
pub struct MasterChore {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _normalizer: NormalizerThread,
    _quotas: Option<QuotaChore>,
}

/// A periodic task.
struct Task {
    every: Duration,
    due: Instant,
    run: fn(&Master),
}

/// The pause after a read of hbase:quota that failed.
const QUOTA_RETRY_PERIOD: Duration = Duration::from_secs(1);

impl MasterChore {
    /// Starts the threads.
    ///
    /// # Errors
    /// Returns an error if a thread cannot be started, or if the setting of a period is not a
    /// number.
    pub fn start(master: &Arc<Master>, janitor_every: Duration) -> Result<Self> {
        let (stop, stopped) = bounded(0);
        let master = Arc::clone(master);
        let task = |every, run| Task { every, due: clock::monotonic() + every, run };
        let mut tasks = vec![
            task(janitor_every, Master::run_janitor_if_on),
            task(master.cleaner_settings.every, Master::run_cleaners_if_on),
            task(master.cleaner_settings.snapshots_every, Master::delete_expired_snapshots_if_on),
        ];
        if let Some(every) = slow_log_table::period(&master.parts.conf)? {
            tasks.push(task(every, Master::write_slow_calls));
        }
        if master.has_quotas() {
            let every = settings::refresh_period(&master.parts.conf);
            let every = every.map_err(|error| HBaseError::io(error.to_string()))?;
            tasks.push(task(every, Master::reload_quotas));
            tasks.push(task(QUOTA_RETRY_PERIOD, Master::retry_reload_of_quotas));
        }
        if let Some(every) = master.mob_settings.clean_every {
            tasks.push(task(every, Master::run_mob_cleaner));
        }
        if let Some(every) = master.mob_settings.compact_every {
            tasks.push(task(every, Master::compact_mob_families));
        }
        if let Some(every) = master.normalizer.settings.every {
            tasks.push(task(every, Master::normalize_all));
        }
        let normalizer = NormalizerThread::start(&master)?;
        let quotas = QuotaChore::start(&master)?;
        let supervisor = master.parts.regionserver.background().supervisor().clone();
        let thread = spawn_essential("master-chore", &supervisor, move || {
            run(&master, tasks, &stopped);
            Ok(())
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread), _normalizer: normalizer, _quotas: quotas })
    }
}

fn run(master: &Master, mut tasks: Vec<Task>, stopped: &Receiver<()>) {
    loop {
        let Some(next) = tasks.iter_mut().min_by_key(|task| task.due) else { return };
        let wait = next.due.saturating_duration_since(clock::monotonic());
        if !matches!(stopped.recv_timeout(wait), Err(RecvTimeoutError::Timeout)) {
            return;
        }
        // A task that panics is logged and runs again at its next time.
        catch_and_log("a task of the master's chore", || (next.run)(master));
        next.due = clock::monotonic() + next.every;
    }
}

impl Drop for MasterChore {
    fn drop(&mut self) {
        drop(self.stop.take());
        drop(self.thread.take().map(JoinHandle::join));
    }
}

impl Master {
    fn run_janitor_if_on(&self) {
        if !self.switches.catalog_janitor.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = self.run_catalog_janitor() {
            tracing::warn!(%error, "the catalog janitor failed");
        }
    }

    fn run_cleaners_if_on(&self) {
        if !self.switches.cleaner.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = self.cleaners.run() {
            tracing::warn!(%error, "a cleaner failed");
        }
    }

    fn run_mob_cleaner(&self) {
        if let Err(error) = self.clean_mob_files() {
            tracing::warn!(%error, "the cleaner of MOB files failed");
        }
    }

    fn delete_expired_snapshots_if_on(&self) {
        if !self.switches.snapshot_cleanup.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = self.delete_expired_snapshots() {
            tracing::warn!(%error, "expired snapshots could not be removed");
        }
    }

    /// Runs the cleaners, whether they are switched on or not. As in HBase, returns true if nothing
    /// is left for a later run.
    ///
    /// # Errors
    /// `IOException` from the file system.
    pub fn run_cleaners(&self) -> Result<bool> {
        Ok(self.cleaners.run()?.kept == 0)
    }
}
