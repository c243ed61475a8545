//! [`Levels`]: the log levels of a running server, which operators change.
//!
//! A logger is a Rust module, such as `evenkeel_region::region`, or `root` for all. A level applies
//! to the modules below, too. `EVENKEEL_LOG` or `evenkeel.log.levels` sets the levels at the start.

use std::sync::Arc;

use evenkeel_standalone::LogLevels;
use parking_lot::Mutex;
use tracing_subscriber::{EnvFilter, Registry, reload};

/// HBase's name for the root logger.
const ROOT: &str = "root";

/// The maximum number of loggers with a level of their own, and the maximum length of a logger:
/// each directive is kept and is compared with every place that logs.
const DIRECTIVES_MAX: usize = 100;
const LOGGER_BYTES_MAX: usize = 200;

/// See the module's documentation.
pub struct Levels {
    filter: reload::Handle<EnvFilter, Registry>,
    /// The current directives.
    directives: Mutex<String>,
}

impl Levels {
    /// The levels of a subscriber whose filter was parsed from these directives.
    pub fn new(filter: reload::Handle<EnvFilter, Registry>, directives: String) -> Arc<Self> {
        Arc::new(Self { filter, directives: Mutex::new(directives) })
    }
}

impl LogLevels for Levels {
    fn level_of(&self, logger: &str) -> String {
        level_in(&self.directives.lock(), logger).to_uppercase()
    }

    fn set_level(&self, logger: &str, level: &str) -> Result<(), String> {
        let level = level.to_lowercase();
        if !["off", "error", "warn", "info", "debug", "trace"].contains(&level.as_str()) {
            return Err(format!("{level} is not a level"));
        }
        let is_module = logger.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':');
        if !is_module || logger.is_empty() || logger.len() > LOGGER_BYTES_MAX {
            return Err(format!("{logger} is not a logger; a logger is a module, evenkeel_region::region"));
        }
        let mut directives = self.directives.lock();
        let mut next: Vec<&str> = directives.split(',').filter(|one| logger_of(one) != logger).collect();
        let added = if logger == ROOT { level } else { format!("{logger}={level}") };
        next.push(&added);
        if next.len() > DIRECTIVES_MAX {
            return Err(format!("{DIRECTIVES_MAX} loggers have levels already; set the level of root"));
        }
        let text = next.join(",");
        let filter = EnvFilter::try_new(&text).map_err(|error| error.to_string())?;
        self.filter.reload(filter).map_err(|error| error.to_string())?;
        *directives = text;
        Ok(())
    }

    fn set_levels(&self, text: &str) -> Result<(), String> {
        let filter = EnvFilter::try_new(text).map_err(|error| error.to_string())?;
        let mut directives = self.directives.lock();
        self.filter.reload(filter).map_err(|error| error.to_string())?;
        text.clone_into(&mut directives);
        Ok(())
    }
}

/// The logger of a directive.
fn logger_of(directive: &str) -> &str {
    match directive.trim().split_once('=') {
        Some((logger, _)) => logger,
        None if directive.contains("::") => directive,
        None => ROOT,
    }
}

/// The level of a logger: that of the directive with the longest matching path prefix.
fn level_in<'a>(directives: &'a str, logger: &str) -> &'a str {
    let holds = |of: &str| of == ROOT || logger == of || logger.starts_with(&format!("{of}::"));
    let all = directives.split(',').filter(|one| holds(logger_of(one)));
    let longest = all.max_by_key(|one| if logger_of(one) == ROOT { 0 } else { logger_of(one).len() });
    longest.map_or("error", |one| one.trim().split_once('=').map_or(one.trim(), |(_, level)| level))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_of_a_module_decides() {
        let directives = "info,evenkeel_region=debug,evenkeel_region::region=warn";
        for (logger, level) in [
            ("evenkeel_wal", "info"),
            ("evenkeel_region", "debug"),
            ("evenkeel_region::store", "debug"),
            ("evenkeel_region::region::flush", "warn"),
            ("evenkeel_regionserver", "info"),
            ("root", "info"),
        ] {
            assert_eq!(level_in(directives, logger), level, "{logger}");
        }
    }

    #[test]
    fn valid_levels_are_set_and_others_refused() {
        let (_layer, handle) = reload::Layer::new(EnvFilter::new("info"));
        let levels = Levels::new(handle, "info".to_owned());
        levels.set_level("evenkeel_wal", "DEBUG").unwrap();
        levels.set_level("root", "warn").unwrap();
        assert_eq!(
            (levels.level_of("evenkeel_wal::wal"), levels.level_of("x")),
            ("DEBUG".into(), "WARN".into())
        );
        levels.set_level("evenkeel_wal", "error").unwrap();
        assert_eq!(levels.level_of("evenkeel_wal"), "ERROR");
        assert!(levels.set_level("evenkeel_wal", "loud").is_err());
        assert!(levels.set_level("a,b=trace", "info").is_err());
        assert!(levels.set_level(&"a".repeat(LOGGER_BYTES_MAX + 1), "info").is_err());
        let set = (0..DIRECTIVES_MAX).filter(|n| levels.set_level(&format!("m{n}"), "info").is_ok()).count();
        assert_eq!(set, DIRECTIVES_MAX - 2, "beside those of root and evenkeel_wal");
        levels.set_level("m0", "warn").unwrap();
        levels.set_levels("warn,evenkeel_wal=trace").unwrap();
        assert_eq!((levels.level_of("evenkeel_wal"), levels.level_of("x")), ("TRACE".into(), "WARN".into()));
        assert!(levels.set_levels("a=loudest").is_err());
        assert_eq!(levels.level_of("x"), "WARN");
    }
}
