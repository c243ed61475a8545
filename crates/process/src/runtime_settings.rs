//! [`RuntimeSettings`]: settings that operators change while the server runs, by the shell's
//! `update_config` and `update_all_config` (`AdminService.UpdateConfiguration`).
//!
//! The settings are read again from where the start had them: `hbase-site.xml`, with the command
//! line over it. Then, as HBase's ConfigurationManager does, each part takes what it can:
//!
//! | settings | what takes them |
//! |---|---|
//! | throughput of compactions and flushes, off-peak hours | the next round of the chore |
//! | how long and how many edits stay unflushed | the same |
//! | sizes at which regions flush and refuse writes | the next write of each region |
//! | which files are compacted together, and when | the next choice of each store |
//! | retries of flushes, and which compactions are large | the next flush or compaction |
//! | what is slow, what is large | calls that end from then on |
//! | log levels | the next event |
//!
//! A setting of a table or a family goes before the server's, as always.
//!
//! **What changed and cannot be taken** is named in the log with the value that still holds, at
//! each update until the server is started again. The reply to the operator has no place for it.
//!
//! **All or nothing.** If a setting cannot be used, or a file cannot be read, nothing is changed
//! and the operator gets the reason.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, Weak};

use evenkeel_common::{Configuration, HBaseError, Result};
use evenkeel_info_server::LogLevels;
use evenkeel_region::region::{ChangedConfig, RegionConfig};
use evenkeel_region::store::StoreConfig;
use evenkeel_regionserver::RegionServer;
use evenkeel_regionserver::background::BackgroundConfig;
use evenkeel_regionserver::config::RegionServerConfig;
use parking_lot::Mutex;

use crate::{ConfigurationSource, Settings, bad};

/// The levels of the log, which the process owns.
const LOG_LEVELS: &str = "evenkeel.log.levels";
/// What regions flush at, and refuse writes at.
const REGION_KEYS: [&str; 2] =
    ["hbase.hregion.memstore.flush.size", "hbase.hregion.memstore.block.multiplier"];
/// What is slow, and what is large.
const SLOW_KEYS: [&str; 5] = [
    "evenkeel.slow.request.ms",
    "hbase.ipc.warn.response.time",
    "hbase.ipc.warn.response.time.scan",
    "hbase.ipc.warn.response.size",
    "hbase.ipc.warn.response.size.scan",
];

/// See the module's documentation.
pub struct RuntimeSettings {
    source: ConfigurationSource,
    log_levels: Arc<dyn LogLevels>,
    regions: Arc<ChangedConfig>,
    server: OnceLock<Weak<RegionServer>>,
    /// What holds now: that of the start, with what was changed.
    current: Mutex<Configuration>,
}

/// What an update did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// Keys whose new values hold.
    pub changed: Vec<String>,
    /// Keys that have new values, and keep their old ones until the next start.
    pub kept: Vec<String>,
}

/// The keys that can be changed.
fn changeable_keys() -> impl Iterator<Item = &'static str> {
    REGION_KEYS
        .into_iter()
        .chain(SLOW_KEYS)
        .chain([LOG_LEVELS])
        .chain(StoreConfig::compaction_keys())
        .chain(BackgroundConfig::CHANGEABLE_KEYS)
        .chain(RegionServerConfig::changeable_keys())
}

impl RuntimeSettings {
    /// The settings of a start.
    pub fn new(
        conf: &Configuration,
        source: ConfigurationSource,
        log_levels: Arc<dyn LogLevels>,
        region: &RegionConfig,
    ) -> Arc<Self> {
        Arc::new(Self {
            source,
            log_levels,
            regions: Arc::clone(&region.changed),
            server: OnceLock::new(),
            current: Mutex::new(conf.clone()),
        })
    }

    /// The server whose settings they are.
    pub fn serve(&self, server: &Arc<RegionServer>) {
        drop(self.server.set(Arc::downgrade(server)));
    }

    /// Reads the settings again, and has the parts of the server take what they can.
    ///
    /// # Errors
    /// `DoNotRetryIOException` if they cannot be read, or one of them cannot be used. Nothing is
    /// changed then.
    pub fn update(&self) -> Result<Update> {
        self.try_update().map_err(|error| HBaseError::do_not_retry(error.message()))
    }

    fn try_update(&self) -> Result<Update> {
        let next = (self.source)().map_err(HBaseError::io)?;
        let mut current = self.current.lock();
        let update = compare(&current, &next);
        self.apply(&next, &update)?;
        for key in &update.changed {
            // An empty value is none.
            current.set(key.clone(), value_of(&next, key).unwrap_or_default());
        }
        drop(current);
        tell(&update);
        Ok(update)
    }

    fn apply(&self, next: &Configuration, update: &Update) -> Result<()> {
        let settings = Settings::from(next)?;
        let stores = StoreConfig::from_configuration(next).map_err(bad)?;
        let background = BackgroundConfig::from(next).map_err(bad)?;
        if update.changed.iter().any(|key| key == LOG_LEVELS) {
            let levels = next.get_trimmed(LOG_LEVELS).map_err(bad)?.unwrap_or_default();
            self.log_levels
                .set_levels(&levels)
                .map_err(|error| HBaseError::io(format!("{LOG_LEVELS}: {error}")))?;
        }
        let Some(server) = self.server.get().and_then(Weak::upgrade) else { return Ok(()) };
        self.regions.set(&settings.region, stores);
        server.background().change_config(&background);
        server.change_config(&settings.regionserver);
        let metrics = server.rpc_metrics();
        metrics.ledger.set_slow(settings.ledger.slow);
        metrics.slow_log.set_limits(settings.slow_log.time_ms, settings.slow_log.bytes);
        Ok(())
    }
}

/// The keys whose values differ.
fn compare(current: &Configuration, next: &Configuration) -> Update {
    let keys = current.set_properties().into_iter().chain(next.set_properties());
    let keys: BTreeSet<&str> = keys.map(|(key, ..)| key).collect();
    let differs = |key: &&str| value_of(current, key) != value_of(next, key);
    let changeable: BTreeSet<&str> = changeable_keys().collect();
    let (changed, kept) = keys.into_iter().filter(differs).partition(|key| changeable.contains(key));
    let owned = |keys: Vec<&str>| keys.into_iter().map(str::to_owned).collect();
    Update { changed: owned(changed), kept: owned(kept) }
}

/// The value of a key; `None` if it has none, or one that refers to itself.
fn value_of(conf: &Configuration, key: &str) -> Option<String> {
    conf.get(key).ok().flatten().filter(|value| !value.trim().is_empty())
}

/// Names the keys in the log. Values may be secrets.
fn tell(update: &Update) {
    let Update { changed, kept } = update;
    tracing::info!(keys = changed.join(" "), "settings were read again: {} have changed", changed.len());
    if !kept.is_empty() {
        tracing::warn!(
            keys = kept.join(" "),
            "settings that cannot be changed while the server runs: the next start takes them"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(pairs: &[(&str, &str)]) -> Configuration {
        let mut conf = Configuration::with_system_properties(Default::default());
        pairs.iter().for_each(|(key, value)| conf.set(*key, *value));
        conf
    }

    struct Levels(Mutex<String>);

    impl LogLevels for Levels {
        fn level_of(&self, _: &str) -> String {
            self.0.lock().clone()
        }

        fn set_level(&self, _: &str, _: &str) -> std::result::Result<(), String> {
            Ok(())
        }

        fn set_levels(&self, directives: &str) -> std::result::Result<(), String> {
            *self.0.lock() = directives.to_owned();
            Ok(())
        }
    }

    #[test]
    fn what_changed_is_taken_or_named() {
        let flush = "hbase.hregion.memstore.flush.size";
        let handlers = "hbase.regionserver.handler.count";
        let next = Arc::new(Mutex::new(conf(&[(flush, "1m"), (handlers, "7"), (LOG_LEVELS, "debug")])));
        let of_source = Arc::clone(&next);
        let levels = Arc::new(Levels(Mutex::default()));
        let region = RegionConfig::default();
        let source: ConfigurationSource = Arc::new(move || Ok(of_source.lock().clone()));
        let settings = RuntimeSettings::new(&conf(&[(flush, "2m")]), source, levels.clone(), &region);
        let update = settings.update().expect("usable");
        assert_eq!(
            (update.changed, update.kept),
            (vec![LOG_LEVELS.into(), flush.into()], vec![handlers.into()])
        );
        assert_eq!(levels.level_of(""), "debug");
        let again = settings.update().expect("usable");
        assert_eq!(
            (again.changed, again.kept),
            (vec![], vec![handlers.to_owned()]),
            "named until the next start"
        );
        *next.lock() = conf(&[(flush, "no size"), (LOG_LEVELS, "warn")]);
        let error = settings.update().expect_err("unusable");
        assert!(error.message().contains(flush), "{error}");
        assert_eq!(levels.level_of(""), "debug", "nothing was changed");
        *next.lock() = conf(&[]);
        let update = settings.update().expect("usable");
        assert_eq!(update.changed, [LOG_LEVELS, flush], "back to the defaults");
        assert_eq!((update.kept, levels.level_of("")), (vec![], "info".to_owned()));
    }

    #[test]
    fn every_key_that_can_be_changed_is_known_and_has_an_effect() {
        let mut all = conf(&[]);
        changeable_keys().for_each(|key| all.set(key, "1"));
        assert_eq!(all.unknown_keys(), [""; 0]);
    }
}
