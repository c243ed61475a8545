//! [`RuntimeSettings`]: settings that operators change while the server runs, by the shell's
//! `update_config` and `update_all_config` (`AdminService.UpdateConfiguration`).
//!
//! The settings are reloaded from the sources of the start: `hbase-site.xml`, overridden by the
//! command line. Then, as in HBase's ConfigurationManager, each part applies the settings that it
//! can change:
//!
//! | settings | when they apply |
//! |---|---|
//! | throughput of compactions and flushes, off-peak hours | the next round of the chore |
//! | maximum age and number of unflushed edits | the next round of the chore |
//! | sizes at which regions flush and reject writes | the next write of each region |
//! | the selection of files for compactions | the next selection of each store |
//! | retries of flushes, and which compactions are large | the next flush or compaction |
//! | limits of slow and large calls | calls that end from then on |
//! | log levels | the next event |
//!
//! As always, a setting of a table or a family overrides the server's.
//!
//! **Changes that cannot be applied** are logged with the value that is still in force, at each
//! update until the server restarts. The reply to the operator has no field for them.
//!
//! **All or nothing.** If a setting is invalid, or a file cannot be read, no setting is changed and
//! the operator gets the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock, Weak};

use evenkeel_common::{Configuration, CurrentConfiguration, HBaseError, Result};
use evenkeel_info_server::LogLevels;
use evenkeel_info_server::pages::properties;
use evenkeel_region::region::{DynamicConfig, RegionConfig};
use evenkeel_region::store::StoreConfig;
use evenkeel_regionserver::RegionServer;
use evenkeel_regionserver::background::BackgroundConfig;
use evenkeel_regionserver::config::RegionServerConfig;
use parking_lot::Mutex;

use crate::{ConfigurationSource, Settings, io_error};

/// The levels of the log, which belongs to the process.
const LOG_LEVELS: &str = "evenkeel.log.levels";
/// The sizes at which regions flush and reject writes.
const REGION_KEYS: [&str; 2] =
    ["hbase.hregion.memstore.flush.size", "hbase.hregion.memstore.block.multiplier"];
/// The limits of slow and large calls.
const SLOW_KEYS: [&str; 5] = [
    "evenkeel.slow.request.ms",
    "hbase.ipc.warn.response.time",
    "hbase.ipc.warn.response.time.scan",
    "hbase.ipc.warn.response.size",
    "hbase.ipc.warn.response.size.scan",
];

/// The source of a value whose successor waits for the next start.
const KEPT_SOURCE: &str = "the start; a new value applies at the next one";

/// See the module's documentation.
pub struct RuntimeSettings {
    source: ConfigurationSource,
    log_levels: Arc<dyn LogLevels>,
    regions: Arc<DynamicConfig>,
    server: OnceLock<Weak<RegionServer>>,
    /// The settings in force: those of the start, with all changes.
    current: Mutex<Configuration>,
    /// The same for pages, with the source of each value.
    shown: Arc<CurrentConfiguration>,
}

/// The result of an update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// Keys whose new values are in force.
    pub changed: Vec<String>,
    /// Keys with new values that do not apply before the next start.
    pub pending: Vec<String>,
}

/// Returns the keys that can be changed.
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
    /// Creates the settings of a start. An update replaces `shown`. A value that waits for the next
    /// start is not shown; the source of the value in force says that there is one.
    pub fn new(
        shown: &Arc<CurrentConfiguration>,
        source: ConfigurationSource,
        log_levels: Arc<dyn LogLevels>,
        region: &RegionConfig,
    ) -> Arc<Self> {
        Arc::new(Self {
            source,
            log_levels,
            regions: Arc::clone(&region.changed),
            server: OnceLock::new(),
            current: Mutex::new(shown.get()),
            shown: Arc::clone(shown),
        })
    }

    /// Sets the server whose settings are updated.
    pub fn serve(&self, server: &Arc<RegionServer>) {
        drop(self.server.set(Arc::downgrade(server)));
    }

    /// Reloads the settings, and lets the parts of the server apply them.
    ///
    /// # Errors
    /// `DoNotRetryIOException` if they cannot be read, or one of them is invalid. No setting is
    /// changed then.
    pub fn update(&self) -> Result<Update> {
        self.try_update().map_err(|error| HBaseError::do_not_retry(error.message()))
    }

    fn try_update(&self) -> Result<Update> {
        let next = (self.source)().map_err(HBaseError::io)?;
        let mut current = self.current.lock();
        let update = compare(&current, &next);
        self.apply(&next, &update)?;
        // As pages show them: a value that refers to a secret stays masked.
        let mut in_force = properties(&current);
        in_force.retain(|property| update.pending.contains(&property.key));
        let mut kept: BTreeMap<String, String> =
            update.pending.iter().map(|key| (key.clone(), String::new())).collect();
        kept.extend(in_force.into_iter().map(|property| (property.key, property.value)));
        self.shown.set(next.overlay(KEPT_SOURCE, kept));
        for key in &update.changed {
            // An empty value counts as not set.
            current.set(key.clone(), value_of(&next, key).unwrap_or_default());
        }
        drop(current);
        log_update(&update);
        Ok(update)
    }

    fn apply(&self, next: &Configuration, update: &Update) -> Result<()> {
        let settings = Settings::from(next)?;
        let stores = StoreConfig::from_configuration(next).map_err(io_error)?;
        let background = BackgroundConfig::from(next).map_err(io_error)?;
        if update.changed.iter().any(|key| key == LOG_LEVELS) {
            let levels = next.get_trimmed(LOG_LEVELS).map_err(io_error)?.unwrap_or_default();
            self.log_levels
                .set_levels(&levels)
                .map_err(|error| HBaseError::io(format!("{LOG_LEVELS}: {error}")))?;
        }
        let Some(server) = self.server.get().and_then(Weak::upgrade) else { return Ok(()) };
        self.regions.set(&settings.region, stores);
        server.background().update_config(&background);
        server.update_config(&settings.regionserver);
        let metrics = server.rpc_metrics();
        metrics.ledger.set_slow(settings.ledger.slow);
        metrics.slow_log.set_limits(settings.slow_log.time_ms, settings.slow_log.bytes);
        Ok(())
    }
}

/// Returns the keys whose values differ.
fn compare(current: &Configuration, next: &Configuration) -> Update {
    let keys = current.set_properties().into_iter().chain(next.set_properties());
    let keys: BTreeSet<&str> = keys.map(|(key, ..)| key).collect();
    let differs = |key: &&str| value_of(current, key) != value_of(next, key);
    let changeable: BTreeSet<&str> = changeable_keys().collect();
    let (changed, pending) = keys.into_iter().filter(differs).partition(|key| changeable.contains(key));
    let owned = |keys: Vec<&str>| keys.into_iter().map(str::to_owned).collect();
    Update { changed: owned(changed), pending: owned(pending) }
}

/// Returns the value of a key; `None` if it has none, or one that refers to itself.
fn value_of(conf: &Configuration, key: &str) -> Option<String> {
    conf.get(key).ok().flatten().filter(|value| !value.trim().is_empty())
}

/// Logs the keys without their values, which may be secrets.
fn log_update(update: &Update) {
    let Update { changed, pending } = update;
    tracing::info!(keys = changed.join(" "), "settings reloaded: {} have changed", changed.len());
    if !pending.is_empty() {
        tracing::warn!(
            keys = pending.join(" "),
            "settings that cannot be changed while the server runs: they take effect at the next start"
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
    fn changed_settings_are_applied_or_named() {
        let flush = "hbase.hregion.memstore.flush.size";
        let handlers = "hbase.regionserver.handler.count";
        let next = Arc::new(Mutex::new(conf(&[(flush, "1m"), (handlers, "7"), (LOG_LEVELS, "debug")])));
        let of_source = Arc::clone(&next);
        let levels = Arc::new(Levels(Mutex::default()));
        let region = RegionConfig::default();
        let source: ConfigurationSource = Arc::new(move || Ok(of_source.lock().clone()));
        let shown = Arc::new(CurrentConfiguration::new(conf(&[(flush, "2m")])));
        let settings = RuntimeSettings::new(&shown, source, levels.clone(), &region);
        let update = settings.update().expect("usable");
        assert_eq!(
            (update.changed, update.pending),
            (vec![LOG_LEVELS.into(), flush.into()], vec![handlers.into()])
        );
        assert_eq!(levels.level_of(""), "debug");
        let shown = shown.get();
        assert_eq!(shown.get(flush).expect("a value").as_deref(), Some("1m"));
        assert_eq!(shown.get(handlers).expect("a value").as_deref(), Some("30"), "the default");
        assert_eq!(shown.source_of(handlers).as_deref(), Some(KEPT_SOURCE));
        let again = settings.update().expect("usable");
        assert_eq!(
            (again.changed, again.pending),
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
        assert_eq!((update.pending, levels.level_of("")), (vec![], "info".to_owned()));
    }

    #[test]
    fn values_that_wait_for_the_next_start_show_no_secret() {
        let start = conf(&[("db.password", "hunter2"), ("my.url", "jdbc:x?pw=${db.password}")]);
        let next = conf(&[("db.password", "other"), ("my.url", "jdbc:x")]);
        let source: ConfigurationSource = Arc::new(move || Ok(next.clone()));
        let shown = Arc::new(CurrentConfiguration::new(start));
        let levels = Arc::new(Levels(Mutex::default()));
        let settings = RuntimeSettings::new(&shown, source, levels, &RegionConfig::default());
        let update = settings.update().expect("usable");
        assert_eq!(update.pending, ["db.password", "my.url"]);
        let all = properties(&shown.get());
        assert!(all.iter().any(|property| property.key == "my.url" && property.source == KEPT_SOURCE));
        assert!(all.iter().all(|property| !property.value.contains("hunter2")), "a secret is shown");
    }

    #[test]
    fn every_key_that_can_be_changed_is_known_and_has_an_effect() {
        let mut all = conf(&[]);
        changeable_keys().for_each(|key| all.set(key, "1"));
        assert_eq!(all.unknown_keys(), [""; 0]);
    }
}
