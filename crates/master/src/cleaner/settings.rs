//! The configuration keys of the cleaners, and the delegates that they name.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_common::Configuration;
use evenkeel_common::clock::Clock;
use evenkeel_common::config::ConfigError;

use super::delegates::{Delegate, KeepAll, TimeToLive};
use super::{file_name, is_local_hfile, is_local_wal, is_procedure_log, is_wal, links};
use crate::snapshot::store::MANIFEST_BYTES_MAX;

const HFILE_PLUGINS: &str = "hbase.master.hfilecleaner.plugins";
const LOG_PLUGINS: &str = "hbase.master.logcleaner.plugins";
/// A week.
const WEEK_MS: i64 = 7 * 24 * 3600 * 1000;

/// How long files are kept, and how often cleaners run. Keys and defaults are HBase's.
#[derive(Clone, Debug)]
pub struct CleanerSettings {
    /// `hbase.master.cleaner.interval`.
    pub every: Duration,
    /// `hbase.master.cleaner.snapshot.interval`.
    pub snapshots_every: Duration,
    /// `hbase.master.hfilecleaner.ttl`.
    pub hfile_ttl_ms: i64,
    /// `hbase.master.logcleaner.ttl`.
    pub log_ttl_ms: i64,
    /// `hbase.master.local.store.hfilecleaner.ttl`.
    pub local_hfile_ttl_ms: i64,
    /// `hbase.master.local.store.walcleaner.ttl`.
    pub local_wal_ttl_ms: i64,
    /// `hbase.master.procedurewalcleaner.ttl`.
    pub procedure_log_ttl_ms: i64,
    /// `snapshot.manifest.size.limit`.
    pub manifest_bytes_max: u64,
    hfile_plugins: Vec<String>,
    log_plugins: Vec<String>,
}

impl CleanerSettings {
    /// Reads HBase's keys.
    ///
    /// # Errors
    /// Returns an error if a value cannot be parsed.
    pub fn from(conf: &Configuration) -> Result<Self, ConfigError> {
        let every = |key, default| Ok(Duration::from_millis(conf.get_u64_or(key, default)?.max(1)));
        let plugins = |key, default: &[&str]| match conf.is_set(key) {
            true => conf.get_list(key),
            false => Ok(default.iter().map(|name| (*name).to_owned()).collect()),
        };
        Ok(Self {
            every: every("hbase.master.cleaner.interval", 600_000)?,
            snapshots_every: every("hbase.master.cleaner.snapshot.interval", 1_800_000)?,
            hfile_ttl_ms: conf.get_i64_or("hbase.master.hfilecleaner.ttl", 300_000)?,
            log_ttl_ms: conf.get_i64_or("hbase.master.logcleaner.ttl", 600_000)?,
            local_hfile_ttl_ms: conf.get_i64_or("hbase.master.local.store.hfilecleaner.ttl", WEEK_MS)?,
            local_wal_ttl_ms: conf.get_i64_or("hbase.master.local.store.walcleaner.ttl", WEEK_MS)?,
            procedure_log_ttl_ms: conf.get_i64_or("hbase.master.procedurewalcleaner.ttl", WEEK_MS)?,
            manifest_bytes_max: conf.get_u64_or("snapshot.manifest.size.limit", MANIFEST_BYTES_MAX)?,
            hfile_plugins: plugins(
                HFILE_PLUGINS,
                &["TimeToLiveHFileCleaner", "TimeToLiveMasterLocalStoreHFileCleaner"],
            )?,
            log_plugins: plugins(
                LOG_PLUGINS,
                &[
                    "TimeToLiveLogCleaner",
                    "TimeToLiveProcedureWALCleaner",
                    "TimeToLiveMasterLocalStoreWALCleaner",
                ],
            )?,
        })
    }

    pub(super) fn hfile_delegates(&self, clock: &Arc<dyn Clock>) -> Vec<Box<dyn Delegate>> {
        let delegate = |name: &str| -> Option<Box<dyn Delegate>> {
            Some(match name {
                "TimeToLiveHFileCleaner" => {
                    Box::new(TimeToLive::new(clock, self.hfile_ttl_ms, ages_in_archive))
                }
                "TimeToLiveMasterLocalStoreHFileCleaner" => {
                    Box::new(TimeToLive::new(clock, self.local_hfile_ttl_ms, is_local_hfile))
                }
                // These are always there.
                "HFileLinkCleaner" | "SnapshotHFileCleaner" => return None,
                other => unknown(HFILE_PLUGINS, other),
            })
        };
        self.hfile_plugins.iter().filter_map(|class| delegate(simple_name(class))).collect()
    }

    pub(super) fn log_delegates(&self, clock: &Arc<dyn Clock>) -> Vec<Box<dyn Delegate>> {
        let delegate = |name: &str| -> Box<dyn Delegate> {
            match name {
                "TimeToLiveLogCleaner" => Box::new(TimeToLive::new(clock, self.log_ttl_ms, is_wal)),
                "TimeToLiveProcedureWALCleaner" => {
                    Box::new(TimeToLive::new(clock, self.procedure_log_ttl_ms, is_procedure_log))
                }
                "TimeToLiveMasterLocalStoreWALCleaner" => {
                    Box::new(TimeToLive::new(clock, self.local_wal_ttl_ms, is_local_wal))
                }
                other => unknown(LOG_PLUGINS, other),
            }
        };
        self.log_plugins.iter().map(|class| delegate(simple_name(class))).collect()
    }
}

fn unknown(key: &str, name: &str) -> Box<dyn Delegate> {
    tracing::error!(key, name, "this cleaner is not supported and might keep any file: no file is deleted");
    Box::new(KeepAll)
}

fn simple_name(class: &str) -> &str {
    class.rsplit('.').next().unwrap_or(class).trim()
}

fn ages_in_archive(path: &Path) -> bool {
    let parent = path.parent().map(file_name).unwrap_or_default();
    links::is_back_references_dir(parent) || links::is_store_file_name(file_name(path))
}
