//! [`StoreFileRefresher`]: the thread that refreshes the store files of secondary replicas
//! (`StorefileRefresherChore`).
//!
//! It runs every `hbase.regionserver.storefile.refresh.period`. If that is 0, it runs every
//! `hbase.regionserver.meta.storefile.refresh.period`, for replicas of hbase:meta only; if that is
//! 0, too, there is no thread. It is not the chore's thread, because it waits for the file system
//! once for each family.
//!
//! A secondary replica may read files that the default replica has archived, and the cleaner of the
//! archive deletes them after `hbase.master.hfilecleaner.ttl`. So if no refresh of a region has
//! succeeded for that time, less one period, its reads are disabled until one does.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use evenkeel_common::config::ConfigError;
use evenkeel_common::thread::{catch_and_log, spawn_restarted};
use evenkeel_common::{Configuration, TimeUnit};
use evenkeel_region::region::Region;

use crate::RegionServer;

/// When the store files of secondary replicas are refreshed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreFileRefresh {
    /// `hbase.regionserver.storefile.refresh.period`, or with `only_meta` that of hbase:meta.
    pub period_ms: i64,
    /// Only replicas of hbase:meta are refreshed.
    pub only_meta: bool,
    /// `hbase.master.hfilecleaner.ttl`.
    pub archive_ttl_ms: i64,
}

impl StoreFileRefresh {
    const PERIOD: &str = "hbase.regionserver.storefile.refresh.period";
    const META_PERIOD: &str = "hbase.regionserver.meta.storefile.refresh.period";
    const ARCHIVE_TTL: &str = "hbase.master.hfilecleaner.ttl";

    /// Reads HBase's keys; `None` if the files are never refreshed.
    ///
    /// # Errors
    /// [`ConfigError`] if a value is malformed, or if the period is longer than half of the time to
    /// live of archived files.
    pub fn from(conf: &Configuration) -> Result<Option<Self>, ConfigError> {
        let of_all_ms = conf.get_time_or(Self::PERIOD, TimeUnit::Milliseconds, 0)?;
        let of_meta_ms = conf.get_time_or(Self::META_PERIOD, TimeUnit::Milliseconds, 0)?;
        let archive_ttl_ms = conf.get_i64_or(Self::ARCHIVE_TTL, 300_000)?;
        let only_meta = of_all_ms == 0;
        let (key, period_ms) =
            if only_meta { (Self::META_PERIOD, of_meta_ms) } else { (Self::PERIOD, of_all_ms) };
        if period_ms <= 0 {
            return Ok(None);
        }
        if period_ms > archive_ttl_ms / 2 {
            return Err(conf.unusable(key, "at most half of hbase.master.hfilecleaner.ttl"));
        }
        Ok(Some(Self { period_ms, only_meta, archive_ttl_ms }))
    }

    /// The age of the last refresh from which on reads are disabled.
    fn age_max_ms(&self) -> i64 {
        self.archive_ttl_ms - self.period_ms
    }
}

/// See the module's documentation. Dropping it ends the thread.
pub struct StoreFileRefresher {
    /// Dropping it wakes the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl StoreFileRefresher {
    /// Starts the thread, if store files are refreshed at all.
    ///
    /// # Errors
    /// I/O error if it cannot be started.
    pub fn start(server: &Arc<RegionServer>) -> io::Result<Option<Self>> {
        let Some(refresh) = server.config.store_file_refresh else { return Ok(None) };
        let (stop, stopped) = bounded(0);
        let server = Arc::clone(server);
        let period = Duration::from_millis(refresh.period_ms.unsigned_abs());
        let run = move || {
            let mut times = RefreshTimes::default();
            while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                catch_and_log("the refresh of store files", || {
                    server.refresh_secondaries(refresh, &mut times);
                });
            }
        };
        let thread = spawn_restarted("refresh-files", run)?;
        Ok(Some(Self { stop: Some(stop), thread: Some(thread) }))
    }
}

impl Drop for StoreFileRefresher {
    fn drop(&mut self) {
        drop(self.stop.take());
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// When each secondary replica was last refreshed, by encoded name, in milliseconds since 1970.
#[derive(Debug, Default)]
pub struct RefreshTimes(HashMap<String, i64>);

impl RegionServer {
    /// Refreshes the store files of all secondary replicas, or of those of hbase:meta. A read-only
    /// table has new files, too: compactions and bulk loads are permitted.
    pub(crate) fn refresh_secondaries(&self, refresh: StoreFileRefresh, times: &mut RefreshTimes) {
        let regions = self.regions.all();
        let is_refreshed =
            |region: &Region| region.is_secondary() && (!refresh.only_meta || region.info().is_meta());
        for region in regions.iter().filter(|region| is_refreshed(region)) {
            self.refresh_secondary(region, refresh, times);
        }
        times.0.retain(|name, _| self.regions.find(name).is_some());
    }

    fn refresh_secondary(&self, region: &Arc<Region>, refresh: StoreFileRefresh, times: &mut RefreshTimes) {
        let now_ms = self.clock.now_ms();
        let last_ms = times.0.entry(region.info().encoded_name().to_owned()).or_insert(now_ms);
        match self.refresh_files_of(region) {
            Ok(_) => {
                *last_ms = now_ms;
                region.set_reads_enabled(true);
            }
            Err(_) if region.is_closed() => {}
            Err(error) => {
                let age_ms = now_ms.saturating_sub(*last_ms);
                let region_name = region.info().name_text();
                tracing::warn!(region = %region_name, %error, age_ms, "store files are not refreshed");
                if age_ms > refresh.age_max_ms() {
                    region.set_reads_enabled(false);
                }
            }
        }
    }
}
