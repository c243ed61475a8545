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
use evenkeel_region::region::MobCleaner;

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
            let mut cleaner = MobCleaner::default();
            while stopped.recv_timeout(cleanup.every) == Err(RecvTimeoutError::Timeout) {
                catch_and_log("the cleaner of MOB files", || {
                    server.clean_mob_files(&mut cleaner, cleanup.min_age_ms);
                });
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
    /// Runs a pass of the cleaner over the served regions.
    pub(crate) fn clean_mob_files(&self, cleaner: &mut MobCleaner, min_age_ms: i64) {
        let files = cleaner.clean(self.regions.all(), min_age_ms, &|region| self.regions.serves(region));
        if files > 0 {
            tracing::info!(files, "MOB files without references archived");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RegionServerConfig;
    use crate::testing::TestServer;

    #[test]
    fn the_period_and_the_age_are_those_of_hbase() {
        let defaults = MobFileCleanup::from(&Configuration::new()).expect("legal").expect("runs");
        assert_eq!((defaults.every.as_secs(), defaults.min_age_ms), (24 * 60 * 60, 60 * 60 * 1000));
    }

    #[test]
    fn a_region_that_moved_away_is_not_cleaned() {
        let server = TestServer::new(RegionServerConfig::default());
        let region = server.open_with_mob_file();
        region.compact(None, true).expect("compacted");
        region.archive_compacted().expect("archived");
        let mut cleaner = MobCleaner::default();
        let clean = |cleaner: &mut MobCleaner| {
            let regions = server.server.regions();
            cleaner.clean(vec![Arc::clone(&region)], 0, &|region| regions.serves(region))
        };
        server.server.clean_mob_files(&mut cleaner, 0);
        server.server.regions().remove(region.info().encoded_name(), None);
        assert_eq!((clean(&mut cleaner), clean(&mut cleaner)), (0, 0));
        assert!(server.server.regions().add(Arc::clone(&region)).is_none());
        assert_eq!((clean(&mut cleaner), clean(&mut cleaner)), (0, 1));
    }
}
