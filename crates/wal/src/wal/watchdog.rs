//! [`SyncWatchdog`]: detects a sync that does not return.
//!
//! The committing thread waits for the disk. If the disk never responds, that thread cannot report
//! it. So a separate thread checks how long the commit in progress has taken:
//!
//! | after | effect |
//! |---|---|
//! | [`WalConfig::roll_on_sync`] | a warning, once; if the sync returns, its file is rolled |
//! | [`WalConfig::sync_timeout`] | waiters and later writers get an error, the server aborts |
//!
//! The timeout is HBase's behaviour (`AbstractFSWAL.blockOnSync`, `HRegion.doWALAppend`): a sync
//! that may still succeed cannot be undone, so a server that has given up on one must not continue.
//! HBase measures from the time when a writer begins to wait, this watchdog from the start of the
//! commit; in both cases the first timeout decides. The entries of these writers may be in the log
//! and be replayed.

use evenkeel_common::clock;
use evenkeel_common::length;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use evenkeel_common::{ErrorKind, HBaseError};
use parking_lot::{Condvar, Mutex};

use super::queue::State;
use super::{CHECK_PERIOD, Shared, Txid, count};

/// The commit in progress.
#[derive(Default)]
struct CommitInProgress {
    since: Option<Instant>,
    /// The file at the start of the commit.
    path: PathBuf,
    /// Whether the slow commit was logged.
    is_logged: bool,
    stopped: bool,
}

/// The state that the committing thread and the watchdog share.
#[derive(Default)]
pub(super) struct SyncWatchdog {
    in_progress: Mutex<CommitInProgress>,
    stop: Condvar,
    /// A commit has timed out.
    has_timed_out: AtomicBool,
}

impl SyncWatchdog {
    /// Records the start of a commit.
    pub(super) fn begin(&self, path: &Path) {
        let mut in_progress = self.in_progress.lock();
        if in_progress.path != path {
            in_progress.path = path.to_owned();
        }
        (in_progress.since, in_progress.is_logged) = (Some(clock::monotonic()), false);
    }

    /// Records its end.
    pub(super) fn end(&self) {
        self.in_progress.lock().since = None;
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.in_progress.lock().stopped = true;
        self.stop.notify_all();
    }

    /// Returns true if a commit has timed out, so that its thread must not be joined.
    pub(super) fn has_timed_out(&self) -> bool {
        self.has_timed_out.load(Ordering::Acquire)
    }
}

impl Shared {
    /// The body of the watchdog's thread.
    pub(super) fn run_watchdog(&self) {
        let soonest = self.config.roll_on_sync.min(self.config.sync_timeout);
        let period = (soonest / 4).clamp(Duration::from_millis(5), CHECK_PERIOD);
        let mut in_progress = self.watchdog.in_progress.lock();
        while !in_progress.stopped {
            self.watchdog.stop.wait_for(&mut in_progress, period);
            let Some(took) = in_progress.since.map(clock::since) else { continue };
            if took > self.config.roll_on_sync && !in_progress.is_logged {
                in_progress.is_logged = true;
                count(&self.counters.stuck_syncs);
                let (ms, path) = (length::whole_ms(took), in_progress.path.display());
                tracing::warn!("a sync of {path} has taken {ms} ms and has not returned");
            }
            if took > self.config.sync_timeout {
                in_progress.stopped = true;
                drop(in_progress);
                return self.time_out();
            }
        }
    }

    /// Fails the log, because its commit may never end.
    fn time_out(&self) {
        let mut queue = self.queue.lock();
        if queue.failure().is_some() {
            return;
        }
        let first = queue.committing.iter().map(|waiter| waiter.txid).min();
        let (ms, txid) = (self.config.sync_timeout.as_millis(), first.map_or(queue.last_txid, Txid::get));
        let reason = format!("Failed to get sync result after {ms} ms for txid={txid}, WAL system stuck?");
        queue.state = State::Stuck(HBaseError::new(ErrorKind::Timeout, reason.clone()));
        self.watchdog.has_timed_out.store(true, Ordering::Release);
        let (waiters, rolls) = (queue.take_all_waiters(), queue.take_rolls());
        let failure = queue.check_open();
        drop(queue);
        self.capacity_freed.notify_all();
        rolls.into_iter().for_each(|roll| drop(roll.send(failure.clone())));
        waiters.into_iter().for_each(|(waiter, verdict)| waiter.completion.complete(verdict));
        self.listener.abort(&format!("WAL sync timeout, forcing server shutdown: {reason}"));
    }
}
