//! [`LogSettings`]: the log's destination, format and levels.
//!
//! | key | default | |
//! |---|---|---|
//! | `evenkeel.log.format` | `auto` | [`Format`]; `auto`: short on a terminal, JSON elsewhere |
//! | `evenkeel.log.levels` | `info` | directives; `EVENKEEL_LOG` overrides them at the start |
//! | `evenkeel.log.file` | | a file instead of standard error |
//! | `evenkeel.log.file.size` | 100 MiB | the size at which the file is rolled; 0: never |
//! | `evenkeel.log.file.count` | 10 | the number of rolled files kept |

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use evenkeel_common::Configuration;
use evenkeel_common::length;
use tracing_subscriber::EnvFilter;

/// The environment variable that sets log levels, such as `info,evenkeel_region=debug`.
pub const LOG_VARIABLE: &str = "EVENKEEL_LOG";
/// The key of the levels.
pub const LEVELS: &str = "evenkeel.log.levels";
/// The default levels.
const LEVELS_DEFAULT: &str = "info";

/// The format of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Time of day, level, message and fields, in colours unless `NO_COLOR` is set.
    Short,
    /// Time in UTC, level, module, message and fields.
    #[default]
    Text,
    /// One JSON object: `timestamp`, `level`, `message`, the fields, `target`.
    Json,
}

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// The format of the lines.
    pub format: Format,
    /// The directives of the levels.
    pub levels: String,
    /// The file; `None` for standard error.
    pub file: Option<LogFile>,
}

/// A file and its rolling limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    /// The current file.
    pub path: PathBuf,
    /// The size in bytes at which it is rolled; 0: never.
    pub bytes_max: u64,
    /// The number of rolled files kept.
    pub kept: usize,
}

impl Default for LogSettings {
    /// Standard error, in the format for its kind, with the environment's levels.
    fn default() -> Self {
        Self { format: automatic(), levels: levels_or(LEVELS_DEFAULT), file: None }
    }
}

impl LogSettings {
    /// Reads the keys.
    /// # Errors
    /// A message of one line that names the key, its value and the expected values.
    pub fn from(conf: &Configuration) -> Result<Self, String> {
        let file = log_file(conf).map_err(|error| error.to_string())?;
        Ok(Self { format: format(conf, file.is_some())?, levels: levels_or(&levels_of(conf)?), file })
    }
}

/// Reads the directives in the settings.
///
/// # Errors
/// A message of one line that names the key, its value and the expected values.
pub fn levels_of(conf: &Configuration) -> Result<String, String> {
    let set = conf.get_trimmed(LEVELS).map_err(|error| error.to_string())?;
    let directives = set.unwrap_or_else(|| LEVELS_DEFAULT.to_owned());
    match EnvFilter::try_new(&directives) {
        Ok(_) => Ok(directives),
        Err(_) => Err(conf.unusable(LEVELS, "levels, such as info,evenkeel_region=debug").to_string()),
    }
}

/// Returns the environment's directives if they are set and valid, otherwise these.
pub fn levels_or(directives: &str) -> String {
    let set = std::env::var(LOG_VARIABLE).ok();
    let usable = set.filter(|directives| EnvFilter::try_new(directives).is_ok());
    usable.unwrap_or_else(|| directives.to_owned())
}

fn log_file(conf: &Configuration) -> evenkeel_common::config::Result<Option<LogFile>> {
    let bytes_max = conf.get_size_or("evenkeel.log.file.size", 100 << 20)?;
    let kept = conf.get_u64_or("evenkeel.log.file.count", 10)?;
    let path = conf.get_trimmed("evenkeel.log.file")?;
    Ok(path.map(|path| LogFile {
        path: PathBuf::from(path),
        bytes_max: bytes_max.max(0).unsigned_abs(),
        kept: length::index(kept),
    }))
}

fn format(conf: &Configuration, is_file: bool) -> Result<Format, String> {
    const KEY: &str = "evenkeel.log.format";
    let set = conf.get_trimmed(KEY).map_err(|error| error.to_string())?;
    match set.as_deref().unwrap_or("auto") {
        "auto" if is_file => Ok(Format::Json),
        "auto" => Ok(automatic()),
        "short" => Ok(Format::Short),
        "text" => Ok(Format::Text),
        "json" => Ok(Format::Json),
        _ => Err(conf.unusable(KEY, "auto, short, text or json").to_string()),
    }
}

fn automatic() -> Format {
    if io::stderr().is_terminal() { Format::Short } else { Format::Json }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Result<LogSettings, String> {
        let mut conf = Configuration::with_system_properties(Default::default());
        pairs.iter().for_each(|(key, value)| conf.set(*key, *value));
        LogSettings::from(&conf)
    }

    #[test]
    fn a_log_file_is_json_and_rolled_by_default() {
        let log = settings(&[("evenkeel.log.file", "/var/log/x.log")]).expect("valid");
        let file = LogFile { path: "/var/log/x.log".into(), bytes_max: 100 << 20, kept: 10 };
        assert_eq!((log.format, log.file), (Format::Json, Some(file)));
        let told =
            [("evenkeel.log.file", "x"), ("evenkeel.log.format", "text"), ("evenkeel.log.file.size", "1m")];
        let log = settings(&told).expect("valid");
        assert_eq!((log.format, log.file.map(|file| file.bytes_max)), (Format::Text, Some(1 << 20)));
    }

    #[test]
    fn errors_name_the_invalid_setting() {
        for (key, value) in [
            ("evenkeel.log.format", "loud"),
            ("evenkeel.log.levels", "evenkeel=loudest"),
            ("evenkeel.log.file.size", "many"),
        ] {
            assert!(settings(&[(key, value)]).is_err_and(|error| error.contains(key)), "{key}");
        }
    }
}
