//! [`MobFileCleaner`]: the thread of a RegionServer of a cluster that archives MOB files without
//! references (`RSMobFileCleanerChore`). The embedded master has a cleaner of its own.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use evenkeel_common::Configuration;
use evenkeel_common::config::ConfigError;
use evenkeel_common::thread::{catch_and_log, spawn_restarted};

use crate::RegionServer;

/// When MOB files are archived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MobFileCleanup {
    /// `hbase.master.mob.cleaner.period`.
    pub every: Duration,
    /// `hbase.mob.min.age.archive`, in milliseconds.
    pub min_age_ms: i64,
}

impl MobFileCleanup {
    /// Reads HBase's keys; `None` if the cleaner never runs.
    ///
    /// # Errors
    /// A value that cannot be parsed.
    pub fn from(conf: &Configuration) -> Result<Option<Self>, ConfigError> {
        let seconds = conf.get_i64_or("hbase.master.mob.cleaner.period", 24 * 60 * 60)?;
        let min_age_ms = conf.get_i64_or("hbase.mob.min.age.archive", 60 * 60 * 1000)?;
        let every = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        Ok((!every.is_zero()).then_some(Self { every, min_age_ms }))
    }
}

/// See the module. Dropping it ends the thread.
pub struct MobFileCleaner {
    /// Dropping it wakes the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MobFileCleaner {
    /// Starts the thread.
    ///
    /// # Errors
    /// I/O error if it cannot be started.
    pub fn start(server: &Arc<RegionServer>, cleanup: MobFileCleanup) -> io::Result<Self> {
        let (stop, stopped) = bounded(0);
        let server = Arc::clone(server);
        let run = move || {
            while stopped.recv_timeout(cleanup.every) == Err(RecvTimeoutError::Timeout) {
                catch_and_log("the cleaner of MOB files", || server.clean_mob_files(cleanup.min_age_ms));
            }
        };
        let thread = spawn_restarted("clean-mob-files", run)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for MobFileCleaner {
    fn drop(&mut self) {
        drop(self.stop.take());
        drop(self.thread.take().map(JoinHandle::join));
    }
}

impl RegionServer {
    /// Archives MOB files of the served regions that are older than `min_age_ms` and without
    /// references. A region that cannot be cleaned is logged.
    pub(crate) fn clean_mob_files(&self, min_age_ms: i64) {
        for region in self.regions.all() {
            match region.archive_unreferenced_mob_files(min_age_ms) {
                Ok(0) => {}
                Ok(files) => {
                    tracing::info!(region = %region.info().name_text(), files, "MOB files without references archived");
                }
                Err(error) => {
                    tracing::warn!(region = %region.info().name_text(), %error, "no MOB file is archived");
                }
            }
        }
    }
}
